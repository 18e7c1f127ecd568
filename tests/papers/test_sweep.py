"""Sweeps against plain loops: every combination once, runs and blocks with their seeds, results under their values."""

import importlib
import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from epoch0.experiments.claims import at_least, at_most
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import canonical_json, resolve
from epoch0.papers.sweep import Artifact, Found, Sweep, by_cell
from epoch0.papers.tables import Mean, Table, mean_and_error


@dataclass(frozen=True)
class Spec:
    depth: int = 1
    width: int = 1
    law: str = ""
    first: int = 0
    networks: int = 1
    data: str | None = None


def told(spec, seed):
    """Says what it was asked: one row of numbers a network."""
    networks = range(spec.first, spec.first + spec.networks)
    return {"asked": np.array([[spec.depth, spec.width, seed, network] for network in networks], dtype=np.float32)}


def alone(spec, seed):
    return {"asked": np.array([spec.depth, spec.width, seed]), "name": spec.law}


def found_of(made: Sweep) -> Found:
    return made.gather([resolve(trial.function)(trial.spec, trial.seed) for trial in made.trials()])


def test_presets_and_a_seed_that_is_a_field() -> None:
    made = Sweep(alone, Spec(depth=3), {"width": (4, 16)}, runs=2, seed="{width}").presets(runs=1, depth=2)
    assert [(trial.seed, trial.spec.depth) for trial in made["quick"].trials()] == [(4, 2), (16, 2)]
    assert [(trial.seed, trial.spec.depth) for trial in made["paper"].trials()] == [(4, 3), (4, 3), (16, 3), (16, 3)]
    named = Sweep(alone, Spec(), {"width": (4, 16)}, seed="width {width}").trials()
    assert len({trial.seed for trial in named} - {4, 16}) == 2


depths = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)


@given(depths, depths, st.integers(1, 4), st.integers(0, 5))
def test_each_run_of_each_combination_is_found_where_it_belongs(depth, width, runs, seed) -> None:
    found = found_of(Sweep(alone, Spec(), {"depth": depth, "width": width}, runs=runs, seed=seed))
    expected = np.array([[[[d, w, seed + run] for run in range(runs)] for w in width] for d in depth])
    np.testing.assert_array_equal(found["asked"], expected)
    for d, w in itertools.product(depth, width):
        assert found.one(depth=d, width=w)["asked"].tolist() == [[d, w, seed + run] for run in range(runs)]


def test_cells_may_have_seeds_of_their_own() -> None:
    found = found_of(Sweep(alone, Spec(), {"depth": (3, 5), "width": (2, 4)}, runs=2, seed=7, stride=100))
    assert found["asked"][..., 2].tolist() == [[[7, 8], [107, 108]], [[207, 208], [307, 308]]]


@given(depths, st.integers(1, 7), st.integers(1, 8))
def test_blocks_join_to_the_networks(depth, runs, block) -> None:
    made = Sweep(told, Spec(), {"depth": depth}, runs=runs, seed=lambda spec, first: 10 * spec.depth, block=block)
    assert sum(trial.spec.networks for trial in made.trials()) == runs * len(depth)
    found = found_of(made)
    for cell in found:
        assert cell["asked"].dtype == np.float64
        assert cell["asked"].tolist() == [[cell.at["depth"], 1, 10 * cell.at["depth"], k] for k in range(runs)]


def test_labels_pairs_and_several_fields_at_once() -> None:
    made = Sweep(
        alone, Spec(),
        {"law": {"g": "gaussian", "u": "uniform"}, "depth width": ((2, 16), (3, 8)), "data": {"small": {"data": None}}},
    )  # fmt: skip
    specs = [(at["law"], spec.law, at["depth"], spec.depth, spec.width, at["data"]) for at, spec, _ in made.cells()]
    assert specs == [
        ("g", "gaussian", 2, 2, 16, "small"), ("g", "gaussian", 3, 3, 8, "small"),
        ("u", "uniform", 2, 2, 16, "small"), ("u", "uniform", 3, 3, 8, "small"),
    ]  # fmt: skip
    assert made["width"] == (16, 8) and made["law"] == ("g", "u") and made["networks"] == 1


def test_runs_may_differ_along_an_axis() -> None:
    made = Sweep(alone, Spec(), {"width": (4, 8), "depth": (1, 2)}, runs={"depth": (3, 2)})
    assert [cell.runs for cell in found_of(made)] == [3, 2, 3, 2] and len(made.trials()) == 10
    assert made.fill("{runs} runs, widths {width}") == "3, 2 runs, widths 4, 8"


def test_a_preset_replaces_axes_fields_and_runs() -> None:
    base = Sweep(alone, Spec(law="a"), {"depth": (1, 2)}, runs=5)
    small = base.but(depth=(3,), law="b", runs=2)
    assert [(trial.spec.depth, trial.spec.law, trial.seed) for trial in small.trials()] == [(3, "b", 0), (3, "b", 1)]
    assert len(base.trials()) == 10 and base["law"] == "a"
    with pytest.raises(TypeError):
        base.but(dept=(3,))


def test_further_sweeps_come_after_and_are_found_by_name() -> None:
    more = Sweep(told, Spec(depth=7, data="mnist"), runs=3, block=2)
    made = Sweep(alone, Spec(), {"depth": (1, 2)}, runs=2, also={"more": more})
    found = found_of(made)
    assert len(made.trials()) == 6 and found.also["more"].one()["asked"][:, 3].tolist() == [0, 1, 2]
    assert made.data == "mnist" and found["asked"].shape == (2, 2, 3)
    assert json.loads(canonical_json(made.to_dict()))["more"]["spec"]["depth"] == 7


def test_rows_have_means_errors_and_what_is_exact() -> None:
    found = found_of(Sweep(alone, Spec(), {"depth": (1, 2)}, runs=4))

    def row(cell):
        columns = ("depth", "width", "seed")
        exact = {"deep": cell.spec.depth, "exact": [f"{cell.spec.depth} {name}" for name in columns]}
        measured = {"asked": cell["asked"], "known": Mean([1, 2, 3], [0, 0, 1])}
        return measured, exact, {"column": columns}

    table = found.rows(row)
    assert len(table) == 6 and list(table[0]) == [
        "depth", "column", "runs", "asked", "asked_error", "known", "known_error", "deep", "exact"
    ]  # fmt: skip
    assert by_cell(row)(found) == table and found.rows(lambda cell: {"asked": cell["asked"][:, 0]})[1]["asked"] == 2.0
    seeds = table.where(column="seed")
    assert seeds.column("asked").tolist() == [1.5, 1.5]
    assert seeds.column("asked_error") == pytest.approx(np.std(range(4), ddof=1) / 2)
    assert (
        seeds.labels("{column} {known:g}") == ["seed 3", "seed 3"]
        and table[4]["exact"] == "2 width"
        and type(table[4]["deep"]) is int
    )
    assert [(value, len(rows)) for value, rows in table.by("depth")] == [(1, 3), (2, 3)]
    assert len(table.where(column=("seed", "width"), depth=2)) == 2


def test_what_is_not_known_is_nan_in_a_column() -> None:
    assert np.isnan(Table([{"a": None}, {"a": 1.0}]).column("a")).tolist() == [True, False]
    assert np.isnan(mean_and_error(np.array([3.0])).error)


@pytest.mark.parametrize(("decide", "bounds"), [(at_most, [0.5, 1.0, 1.7]), (at_least, [0.1, 0.0, 0.0])])
def test_settings_in_which_a_bound_cannot_fail_are_told_and_not_counted(decide, bounds) -> None:
    """Of a share: a bound of 1 and more, or of 0, holds whatever is measured."""
    table = Table({"a": 0.3, "a_error": 0.01, "runs": 9, "bound": bound, "name": bound} for bound in bounds)
    can_fail = [0 < bound < 1 for bound in bounds]
    ((text, decision),) = table.bounded("a share", np.array(can_fail), decide, "a", "bound", names="{name}").items()
    told = "; ".join(f"{bound}: {bound:.2g}" for bound in bounds[1:])
    assert text == f"a share (2 of 3 settings cannot fail and are not counted, by their bounds: {told})"
    claim = decision(text)
    assert claim.verdict == "holds" and "settings" not in claim.evidence and f"against {bounds[0]:g}" in claim.evidence
    assert len(table.bounded("a share", np.array([False] * 3), decide, "a", "bound", names="{name}")) == 0
    (text,) = table.bounded("a share", np.array([True] * 3), decide, "a", "bound", names="{name}")
    assert text == "a share"


def test_costs_are_grouped_by_their_names() -> None:
    made = Sweep(alone, Spec(), {"depth": (1, 2), "width": (1, 2)}, runs=3)

    def cost(spec):
        return Cost(f"depth {spec.depth}", (), nn.Identity, (1,), 2, 10, 100 * spec.depth)

    costs = made.costs(cost)
    assert [(one.name, len(one.trials), one.images) for one in costs] == [("depth 1", 6, 100), ("depth 2", 6, 200)]
    assert {trial.key for one in costs for trial in one.trials} == {trial.key for trial in made.trials()}


def test_a_heading_names_what_differs_whatever_digits_it_has() -> None:
    """What the text names in braces is not added, and nothing else is taken for it: here 8 runs and 2 planes."""
    presets = Sweep(alone, Spec(width=5), {"depth": (1, 2)}, runs=4).presets(runs=8, depth=(1, 3), width=2)
    functions = (lambda found: Table(), lambda found: [], lambda found: None)
    made = Artifact("arpit-bengio/extra", "", "", presets, *functions, "8 layers, {depth}; {width} of 0, 1 and 2")
    assert made.caption(presets["quick"]) == "8 layers, 1, 3; 2 of 0, 1 and 2; runs: 8; bars: two standard errors"
    assert made.of_paper(presets["quick"]) == "8 layers, 1, 2; 5 of 0, 1 and 2; runs: 4"


def test_the_page_shows_a_whole_figure(tmp_path, monkeypatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    (code,) = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    (tmp_path / "figure_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    (artifact,) = importlib.import_module("figure_of_the_page").ARTIFACTS
    assert isinstance(artifact, Artifact)
    setting = artifact.setting("quick").but(runs=4, width=(16, 32))
    trials = setting.trials()
    results = [resolve(trial.function)(trial.spec, trial.seed) for trial in trials]
    table, claims, draw, _ = artifact.decided(setting, results)
    assert len(table) == 2 and claims[0].evidence and draw().axes and "16, 32" in artifact.caption(setting)
    del sys.modules["figure_of_the_page"]
