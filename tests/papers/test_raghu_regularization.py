"""Raghu Figure 11: the trial, what its claims say of made-up results that differ, the picture, the cost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from epoch0 import plots
from epoch0.data import load
from epoch0.experiments.claims import VERDICTS
from epoch0.papers.catalogue import find
from epoch0.papers.raghu.convnet import ConvNet
from epoch0.papers.raghu.trained import KINDS, kinds, regularized
from epoch0.papers.reproduce import reproduce
from epoch0.papers.sweep import Spec, Sweep
from epoch0.seeds import numpy_generator

SMALL = Spec(
    data="digits",
    network=ConvNet((4,) * 5, (8, 8), colours=1, size=8),
    at=(0, 4, 10),
    batch_size=16,
    learning_rate=0.01,
    tested=60,
    examples=100,
)


def spec(norm: str, **other: Any) -> Spec:
    return SMALL.but(network=replace(SMALL.network, norm=norm), **other)


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return {norm: regularized(spec(norm), seed=3) for norm in KINDS}


def test_all_kinds_begin_at_the_same_function_and_part(found: dict[str, dict[str, Any]]) -> None:
    first = [each["accuracy"][0] for each in found.values()]
    assert first[0] == first[1] == first[2]
    losses = [each["loss"][1] for each in found.values()]
    assert len(set(losses)) == 3 and all(np.isnan(each["loss"][0]) for each in found.values())
    assert [each["multipliers"].shape for each in found.values()] == [(3, 0), (3, 7), (3, 0)]


def test_lambda_and_the_ratio_of_lengths_are_told(found: dict[str, dict[str, Any]]) -> None:
    multipliers, ratios = found["trajectory"]["multipliers"], found["trajectory"]["ratios"]
    assert (multipliers[0] == 1).all() and (ratios[0] == 1).all()
    assert (multipliers[2] != 1).all() and (ratios[2] != 1).all() and (ratios > 0).all()


def test_accuracy_is_that_of_a_network_trained_by_hand() -> None:
    # a single step on all the images, so that their order is no matter; a seed by which no two logits are near
    one = spec("none", at=(0, 1), batch_size=100)
    result = regularized(one, seed=7)
    digits, tests = load("digits", "train"), load("digits", "test")
    x = torch.from_numpy(digits.inputs("standard", flatten=False))[:100]
    net = one.network.build(int(numpy_generator(7, 0).integers(2**31)))
    F.cross_entropy(net(x), torch.from_numpy(digits.labels)[:100]).backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= 0.01 * parameter.grad / (parameter.grad.abs() + 1e-8)  # the first step of Adam
        held = torch.from_numpy(tests.inputs("standard", flatten=False, like=digits))[:60]
        first, second = net(held).topk(2).values.T
        right = net(held).argmax(1) == torch.from_numpy(tests.labels)[:60]
    assert (first - second).min() > 0.1  # rounding decides nothing, on any processor
    assert result["accuracy"][1] == pytest.approx(right.double().mean().item())


def test_the_same_seed_gives_the_same() -> None:
    again = [regularized(spec("trajectory"), seed=3)["accuracy"] for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_a_run_that_diverges_counts_as_a_guess() -> None:
    result = regularized(spec("none", learning_rate=1e6), seed=0)
    assert result["diverged"] and result["accuracy"][-1] == 0.1 and np.isnan(result["loss"][-1])


def test_an_interrupted_trial_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCH0_CHECKPOINTS", str(tmp_path))
    np.testing.assert_array_equal(
        regularized(spec("trajectory"), seed=3)["multipliers"],
        (monkeypatch.delenv("EPOCH0_CHECKPOINTS"), regularized(spec("trajectory"), seed=3))[1]["multipliers"],
    )
    assert not list(tmp_path.iterdir())


FIGURE = find("raghu/fig11")
SETTING = Sweep(regularized, SMALL.but(at=(0, 100, 200)), {"network": kinds(SMALL.network, 0.1, 0.01, 0.01)}, runs=10)


def made_up(final: dict[str, float], spread: float = 0.003, seed: int = 0) -> list[dict[str, Any]]:
    """Results whose accuracies after training have these means; the runs' spread is shared and their own."""
    source, results = np.random.default_rng(seed), []
    shared = source.normal(0, 0.02, 10)
    for norm in KINDS:
        for run in range(10):
            end = final[norm] + shared[run] + source.normal(0, spread)
            layers = 7 if norm == "trajectory" else 0
            results.append(
                {
                    "accuracy": np.array([0.1, end - 0.1, end]),
                    "diverged": False,
                    "multipliers": np.full((3, layers), 0.5),
                    "ratios": np.full((3, layers), 2.0),
                    "loss": np.zeros(3),
                }
            )
    return results


def verdicts(results: list[dict[str, Any]]) -> list[str]:
    return [claim.verdict for claim in FIGURE.decided(SETTING, results)[1]]


def test_claims_tell_what_is_so_from_what_is_not() -> None:
    assert verdicts(made_up({"batch": 0.80, "trajectory": 0.795, "none": 0.75})) == ["holds"] * 7
    worse = verdicts(made_up({"batch": 0.80, "trajectory": 0.70, "none": 0.75}))
    assert worse == [*["holds", "fails", "fails"] * 2, "holds"]
    better = verdicts(made_up({"batch": 0.70, "trajectory": 0.80, "none": 0.75}))
    assert better == [*["fails", "holds", "fails"] * 2, "fails"]
    level = verdicts(made_up({"batch": 0.75, "trajectory": 0.75, "none": 0.75}, spread=0.01))
    assert level[0] == level[1] == "undecided" and level[2] == "holds"


def test_differences_are_paired_run_by_run() -> None:
    _, (claim, *_), *_ = FIGURE.decided(SETTING, made_up({"batch": 0.76, "trajectory": 0.76, "none": 0.75}))
    # the spread that runs share, 0.02, is seven times that of their differences
    assert claim.verdict == "holds" and "(batch norm) minus" in claim.evidence


def test_table_and_picture() -> None:
    results = made_up({"batch": 0.80, "trajectory": 0.795, "none": 0.75})
    results[-1]["diverged"] = True
    found = FIGURE.read(SETTING, results)
    rows = found.table
    assert len(rows) == 9 and [row["lambda"] for row in rows if row["network"] != KINDS["trajectory"]] == [None] * 6
    assert rows[3]["lambda"] == 0.5 and rows[3]["length_ratio"] == 2.0 and rows[0]["learning_rate"] == 0.1
    own = found.one(network=KINDS["none"])["accuracy"][:, 2]
    assert rows[8]["accuracy"] == pytest.approx(own.mean())
    assert rows[8]["accuracy_error"] == pytest.approx(own.std(ddof=1) / 10**0.5) and rows[8]["diverged"] == 1
    (axes,) = FIGURE.draw(found).axes
    assert all(len(line.get_xdata()) == 3 for line in axes.lines if line.get_marker() in plots.MARKERS)
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["chance", "batch norm", "trajectory regularization", "neither (1 of 10 diverged)"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training step", "test accuracy")


def test_trials_of_the_presets_and_their_cost() -> None:
    for preset, runs, rates in (("quick", 12, [0.01, 0.01, 0.003]), ("paper", 4, [0.001] * 3)):
        made = FIGURE.trials(FIGURE.setting(preset))
        assert [t.spec.network.norm for t in made[::runs]] == list(KINDS) and len(made) == 3 * runs
        assert all(t.seed < 100 for t in made)  # learning rates were chosen on others
        assert [t.spec.learning_rate for t in made[::runs]] == rates
    costs = FIGURE.costs(FIGURE.setting("paper"))
    assert [len(cost.trials) for cost in costs] == [4, 4, 4] and isinstance(costs[0].model(), nn.Module)
    assert costs[0].images == 20_000 * 128
    assert "steps of Adam at 0.01, 0.01, 0.003 in turn" in FIGURE.caption(FIGURE.setting("quick"))
    assert FIGURE.setting("paper").data == "cifar10"


@pytest.mark.slow
def test_a_small_preset_through_the_catalogue_and_its_results_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Spec(**{name: value for name, value in vars(SMALL).items() if name != "learning_rate"})  # an axis has it
    small = Sweep(regularized, spec, {"network": kinds(SMALL.network, 0.01, 0.01, 0.003)}, runs=2)
    monkeypatch.setitem(FIGURE.presets, "quick", small)
    first = reproduce("raghu/fig11", preset="quick", out=tmp_path, workers=1)
    again = reproduce("raghu/fig11", preset="quick", out=tmp_path, workers=1)  # from the results file
    assert [row["accuracy"] for row in first.data] == [row["accuracy"] for row in again.data]
    assert len(first.data) == 9 and len(first.claims) == 7
    assert [row["lambda"] is None for row in again.data] == [True] * 3 + [False] * 3 + [True] * 3
    assert any(tmp_path.rglob("*.png"))


@pytest.mark.slow
def test_quick_preset_to_its_end(tmp_path: Path) -> None:
    done = reproduce("raghu/fig11", preset="quick", out=tmp_path, workers=2)
    assert all(claim.verdict in VERDICTS for claim in done.claims) and len(done.claims) == 7
    final = {row["network"]: row["accuracy"] for row in done.data if row["step"] == 600}
    assert min(final.values()) > 0.95
