"""The dry run: sums against plain loops, shared and finished runs counted once, seconds divided fairly."""

import json
import math
import time
from dataclasses import dataclass, field, replace

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy_artifact
from epoch0.errors import InputError
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import Store
from epoch0.papers import catalogue, estimate


@dataclass(frozen=True)
class Toy:
    """An artifact with given costs: configurations with their seeds."""

    id: str
    known: tuple[Cost, ...]
    all_trials: tuple[Trial, ...]

    def setting(self, preset):
        return preset

    def costs(self, setting):
        return self.known

    def trials(self, setting):
        return list(self.all_trials)


def runs(configuration, seeds):
    return tuple(Trial("toy_artifact:toss", {"configuration": configuration}, seed) for seed in seeds)


@dataclass(frozen=True)
class Told(Cost):
    """A cost of which the time of a step is known, and who noted how long it was looked for."""

    each: float = 0.1
    spends: bool = False
    asked: list = field(default_factory=list)

    def seconds_a_step(self, seconds):
        self.asked.append(seconds)
        time.sleep(seconds if self.spends else 0.0)
        return self.each


def cost(name, seeds, images=1000, each=0.1, **more):
    """Batches of ten: a run of 1000 images has 100 steps of a tenth of a second."""
    return Told(name, runs(name, seeds), None, (4,), 10, 10, images, each=each, **more)


def artifact(name, costs, others=()):
    trials = [trial for each in costs for trial in each.trials] + list(others)
    return Toy(f"toy/{name}", tuple(costs), tuple(trials))


@pytest.fixture
def shown(monkeypatch):
    """Puts artifacts in the place of the catalogue's; returns their ids."""

    def show(*artifacts):
        known = {each.id: each for each in artifacts}
        monkeypatch.setattr(estimate, "find", known.__getitem__)
        monkeypatch.setenv("EPOCH0_DEVICE", "cpu")
        return list(known)

    return show


def test_hours_are_steps_times_seconds(shown) -> None:
    ids = shown(artifact("a", [cost("net", range(6), images=3600, each=1.0, evaluated=1800)]))
    done = estimate.estimate(ids, "paper", workers=2)
    (line,) = done.lines
    # 6 runs of 3600 images and 1800 that cost a third, 10 a step and second, two at a time
    assert line.hours == pytest.approx(6 * (3600 + 600) / 10 / 3600 / 2) == done.hours
    assert (line.runs, line.done, line.steps, line.seconds_a_step) == (6, 0, 420, 1.0)


def test_fewer_runs_than_workers(shown) -> None:
    ids = shown(artifact("a", [cost("net", [0], images=3600, each=10.0)]))
    assert estimate.estimate(ids, "paper", workers=64).hours == pytest.approx(1.0)


def test_what_is_stored_is_done(shown, tmp_path) -> None:
    ids = shown(artifact("a", [cost("net", range(4)), cost("other", range(2))]))
    with Store(tmp_path / "results.sqlite") as store:
        for trial in (*runs("net", [1, 3]), *runs("other", [0, 1])):
            store.put(trial, {"heads": 1.0})
    done = estimate.estimate(ids, "paper", store=tmp_path / "results.sqlite", workers=1)
    assert [(line.runs, line.done) for line in done.lines] == [(4, 2), (2, 2)]
    assert done.lines[1].hours == 0 and done.hours == pytest.approx(2 * 1000 / 100 / 3600)


def test_what_is_all_done_is_not_timed(shown, tmp_path) -> None:
    finished = cost("net", range(2))
    ids = shown(artifact("a", [finished]))
    with Store(tmp_path / "results.sqlite") as store:
        for trial in finished.trials:
            store.put(trial, {"heads": 1.0})
    done = estimate.estimate(ids, "paper", store=tmp_path / "results.sqlite")
    assert done.hours == 0 and finished.asked == []


def test_a_results_file_that_is_not_there_is_empty_and_stays_away(shown, tmp_path) -> None:
    ids = shown(artifact("a", [cost("net", range(2))]))
    done = estimate.estimate(ids, "paper", store=tmp_path / "none.sqlite")
    assert done.lines[0].done == 0 and list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_results_file(shown, tmp_path) -> None:
    ids = shown(artifact("a", [cost("net", range(2))]))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="no results file"):
        estimate.estimate(ids, "paper", store=tmp_path / "text")


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("pqr"), st.frozensets(st.integers(0, 5), min_size=1)), max_size=3),
        min_size=1, max_size=3,
    ),
    st.sets(st.tuples(st.sampled_from("pqr"), st.integers(0, 5))),
)  # fmt: skip
def test_shared_runs_count_once_as_in_a_plain_loop(tmp_path_factory, plan, stored) -> None:
    artifacts = [
        artifact(str(place), [cost(name, sorted(seeds)) for name, seeds in costs], () if costs else runs("other", [0]))
        for place, costs in enumerate(plan)
    ]
    known = {each.id: each for each in artifacts}
    path = tmp_path_factory.mktemp("store") / "results.sqlite"
    with Store(path) as store:
        for name, seed in stored:
            store.put(runs(name, [seed])[0], {"heads": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "find", known.__getitem__)
        patch.setenv("EPOCH0_DEVICE", "cpu")
        done = estimate.estimate(list(known), "paper", 0.01, path, workers=1)
    expected, seen = [], set(stored)
    for costs in plan:
        for name, seeds in costs:
            left = [seed for seed in seeds if (name, seed) not in seen]
            seen |= {(name, seed) for seed in seeds}
            expected.append((name, len(seeds), len(seeds) - len(left)))
        if not costs:
            expected.append(("trials", 1, int(("other", 0) in seen)))
            seen.add(("other", 0))
    assert [(line.configuration, line.runs, line.done) for line in done.lines] == expected
    left = sum(count - finished for name, count, finished in expected if "trials" not in name)
    assert done.hours == pytest.approx(left * 10 / 3600)


def test_an_artifact_without_costs_has_its_trials_counted(shown) -> None:
    plain = artifact("a", [], runs("x", range(7)))
    done = estimate.estimate(shown(plain, artifact("b", [cost("net", range(2))])), "paper")
    assert done.lines[0].runs == 7 and done.lines[0].hours is None
    assert "the time of 7 further runs is not known" in str(done)
    assert done.hours == done.lines[1].hours
    alone = str(estimate.estimate(shown(plain), "paper")).splitlines()[-1]
    assert alone == "together: 7 runs, 0 of them done or shared; the time of 7 runs is not known."


def test_every_artifact_can_be_estimated_from_its_presets() -> None:
    one = toy_artifact.artifact("log")
    assert list(one.costs(one.setting("paper"))) == []
    for each in catalogue.catalogue().values():
        for preset in ("quick", "paper"):
            setting = each.setting(preset)
            costs = each.costs(setting)
            try:
                keys = {trial.key for trial in each.trials(setting)}
            except InputError as problem:  # looks at data that are not here
                assert "was not found" in str(problem) and preset == "paper"
                continue
            assert all(trial.key in keys for line in costs for trial in line.trials), each.id


def test_seconds_are_divided_among_what_differs(shown) -> None:
    p, q, r = (cost(name, range(2), spends=name != "r") for name in "pqr")
    estimate.estimate(shown(artifact("a", [p, r, q]), artifact("b", [replace(p, asked=[])])), "paper", seconds=0.3)
    # what r leaves goes to q; p is timed once
    assert p.asked + r.asked + q.asked == pytest.approx([0.1, 0.1, 0.2], abs=0.05)


def test_the_table_and_the_numbers(shown) -> None:
    first = artifact("a", [cost("a net", range(3), 50_000, 0.0123)])
    ids = shown(first, artifact("d", [], runs("x", [0, 1])), artifact("b", [cost("c", [0])]))
    done = estimate.estimate(ids, "paper", 0.01, workers=2)
    lines = str(done).splitlines()
    assert lines[0] == "dry run (paper) on cpu" and [line for line in lines if line.startswith("toy/")] == ids
    rows = [line.split() for line in lines if line.startswith("  ") and "configuration" not in line]
    assert rows == [["a", "net", "3", "0", "5,000", "0.012", "1", "min", "32", "s"], ["trials", "2", "0"],
                    ["c", "1", "0", "100", "0.1", "5", "s"]]  # fmt: skip
    assert "together: 6 runs, 0 of them done or shared; about 1 min 37 s here with 2 runs at a time" in lines[-1]
    assert "the time of 2 further runs is not known" in lines[-1]
    plain = done.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain and plain["lines"][1]["hours"] is None
    frame = done.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["runs"]) == [3, 2, 1]


def test_bad_input(shown) -> None:
    with pytest.raises(InputError, match="no artifact"):
        estimate.estimate(["hayou/tab99"])
    with pytest.raises(InputError, match="no preset"):
        estimate.estimate(["hayou/fig1a"], "papre")
    for seconds in (0, -1.0, math.inf, math.nan, True):
        with pytest.raises(InputError, match=r"seconds=.*give a finite number > 0"):
            estimate.estimate(["hayou/fig1a"], seconds=seconds)
    with pytest.raises(InputError, match="workers"):
        estimate.estimate(["hayou/fig1a"], workers=0)


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_every_artifact_without_a_cost_has_a_recorded_time(preset: str) -> None:
    from epoch0.papers.estimate import recorded

    known = catalogue.catalogue()
    without = {id for id, artifact in known.items() if artifact.cost is None}
    assert recorded(preset).keys() == without and all(seconds > 0 for seconds in recorded(preset).values())


def test_recorded_times_are_used_for_what_is_left(tmp_path) -> None:
    from epoch0.papers.estimate import estimate, recorded

    found = estimate(["price-tanner/fig4b", "price-tanner/fig1"], "paper", workers=1)
    seconds = recorded("paper")
    assert found.hours * 3600 == pytest.approx(seconds["price-tanner/fig4b"] + seconds["price-tanner/fig1"])
    assert "recorded" in str(found) and "not known" not in str(found)
