"""The dry run: sums against plain loops, shared and finished runs counted once, seconds divided fairly."""

import json
import math
import time
from dataclasses import dataclass, replace

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy_artifact
from epoch0.errors import InputError
from epoch0.experiments.cost import Cost, Speed
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import Store
from epoch0.papers import catalogue, estimate
from epoch0.papers.catalogue import Artifact


@dataclass(frozen=True)
class Toy:
    """Costs of one toy artifact: configurations with their seeds."""

    costs: tuple[Cost, ...]
    trials: tuple[Trial, ...]


def runs(configuration, seeds):
    return tuple(Trial("toy_artifact:toss", {"configuration": configuration}, seed) for seed in seeds)


def cost(name, seeds, images=1000, speed=100.0, **more):
    return Cost(name, len(seeds), 50, 40, images, probe=lambda seconds: speed, trials=runs(name, seeds), **more)


def artifact(name, costs, others=()):
    trials = [trial for each in costs for trial in each.trials] + list(others)
    presets = {"paper": Toy(tuple(costs), tuple(trials))}
    return Artifact(
        f"toy/{name}", name, "nowhere", presets, lambda setting: list(setting.trials), lambda *_: [], lambda *_: [],
        lambda *_: None, costs=lambda setting: setting.costs,
    )  # fmt: skip


@pytest.fixture
def shown(monkeypatch):
    """Puts artifacts in the place of the catalogue's; returns their ids."""

    def show(*artifacts):
        known = {each.id: each for each in artifacts}
        monkeypatch.setattr(estimate, "find", known.__getitem__)
        monkeypatch.setenv("EPOCH0_DEVICE", "cpu")
        return list(known)

    return show


def test_hours_are_images_over_speed(shown) -> None:
    ids = shown(artifact("a", [cost("net", range(6), images=3600, speed=10.0, evaluated=1800)]))
    done = estimate.estimate(ids, "paper", workers=2)
    (line,) = done.lines
    # 6 runs of 3600 images and 1800 that cost a third, 10 a second, two at a time
    assert line.hours == pytest.approx(6 * (3600 + 600) / 10 / 3600 / 2) == done.hours
    assert (line.runs, line.done, line.images, line.parameters, line.prunable) == (6, 0, 21600, 50, 40)


def test_fewer_runs_than_workers(shown) -> None:
    ids = shown(artifact("a", [cost("net", [0], images=3600, speed=1.0)]))
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
    def never(seconds):
        raise AssertionError("timed")

    finished = replace(cost("net", range(2)), probe=never)
    ids = shown(artifact("a", [finished]))
    with Store(tmp_path / "results.sqlite") as store:
        for trial in finished.trials:
            store.put(trial, {"heads": 1.0})
    done = estimate.estimate(ids, "paper", store=tmp_path / "results.sqlite")
    assert done.hours == 0 and not done.untimed


def test_a_results_file_that_is_not_there_is_empty_and_stays_away(shown, tmp_path) -> None:
    ids = shown(artifact("a", [cost("net", range(2))]))
    done = estimate.estimate(ids, "paper", store=tmp_path / "none.sqlite")
    assert done.lines[0].done == 0 and list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_results_file(shown, tmp_path) -> None:
    ids = shown(artifact("a", [cost("net", range(2))]))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="no results file"):
        estimate.estimate(ids, "paper", store=tmp_path / "text")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("pqr"), st.frozensets(st.integers(0, 5), min_size=1)), max_size=3),
        min_size=1, max_size=3,
    ),
    st.sets(st.tuples(st.sampled_from("pqr"), st.integers(0, 5))),
)  # fmt: skip
def test_shared_runs_count_once_as_in_a_plain_loop(tmp_path_factory, plan, stored) -> None:
    artifacts = [
        artifact(str(place), [cost(name, sorted(seeds)) for name, seeds in costs], runs("other", [0]))
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
        done = estimate.estimate(list(known), "paper", store=path, workers=1)
    expected, seen = [], set(stored)
    for costs in plan:
        for name, seeds in costs:
            left = [seed for seed in seeds if (name, seed) not in seen]
            seen |= {(name, seed) for seed in seeds}
            expected.append((name, len(seeds), len(seeds) - len(left)))
        expected.append(("other trials" if costs else "trials", 1, int(("other", 0) in seen)))
        seen.add(("other", 0))
    assert [(line.configuration, line.runs, line.done) for line in done.lines] == expected
    left = sum(count - finished for name, count, finished in expected if "trials" not in name)
    assert done.hours == pytest.approx(left * 1000 / 100 / 3600)


def test_costs_without_trials_stand_for_all(shown) -> None:
    bare = replace(cost("net", range(3)), trials=())
    done = estimate.estimate(shown(artifact("a", [bare], runs("net", range(3)))), "paper", workers=1)
    (line,) = done.lines
    assert (line.runs, line.done) == (3, 0) and line.hours == pytest.approx(3 * 1000 / 100 / 3600)


def test_an_artifact_without_costs_has_its_trials_counted(shown) -> None:
    plain = artifact("a", [], runs("x", range(7)))
    done = estimate.estimate(shown(plain, artifact("b", [cost("net", range(2))])), "paper")
    assert done.lines[0].runs == 7 and math.isnan(done.lines[0].hours)
    assert done.untimed == (done.lines[0],) and "the time of 7 further runs is not known" in str(done)
    assert done.hours == done.lines[1].hours
    alone = str(estimate.estimate(shown(plain), "paper")).splitlines()[-1]
    assert alone == "together: 7 runs, 0 of them done or shared; the time of 7 runs is not known."


def test_trials_that_need_absent_data_are_told_and_stop_nothing(shown) -> None:
    def absent(setting):
        raise InputError("data set mnist was not found")

    blind = replace(artifact("a", []), trials=absent)
    done = estimate.estimate(shown(blind, artifact("b", [cost("net", [0])])), "paper")
    assert "note: trials: data set mnist was not found" in str(done) and done.hours > 0
    assert [line.runs for line in done.lines] == [0, 1]


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
    given_seconds = []

    def probe(spent):
        def take(seconds):
            given_seconds.append(seconds)
            time.sleep(spent(seconds))
            return 10.0

        return take

    def line(name, spent, timed_as=""):
        return replace(cost(name, range(2), timed_as=timed_as), probe=probe(spent))

    whole = lambda seconds: seconds  # noqa: E731
    ids = shown(artifact("a", [line("p", whole, "same"), line("q", whole, "same"), line("r", whole), line("s", whole)]))
    estimate.estimate(ids, "paper", seconds=0.3)
    # q is timed as p; a late wake-up of the sleep is taken from those behind
    assert given_seconds == pytest.approx([0.1] * 3, abs=0.05)
    given_seconds.clear()
    ids = shown(artifact("a", [line("p", lambda seconds: 0.0), line("q", whole), line("r", lambda seconds: 1.0)]))
    estimate.estimate(ids, "paper", seconds=0.3)
    assert given_seconds == pytest.approx([0.1, 0.15, 0.15], abs=0.05)
    given_seconds.clear()
    ids = shown(artifact("a", [line("p", lambda seconds: 0.5), line("q", whole)]))
    estimate.estimate(ids, "paper", seconds=0.4)
    # the first took all: the second has a quarter of its share
    assert given_seconds == pytest.approx([0.2, 0.05], abs=0.03)


def test_the_same_speed_has_one_error(shown) -> None:
    both = [
        Cost(name, 1, 5, 5, 3600, probe=lambda seconds: Speed(1.0, 0.1), timed_as=timed) for name, timed in
        (("p", "x"), ("q", "x"), ("r", "y"))
    ]  # fmt: skip
    done = estimate.estimate(shown(artifact("a", both)), "paper", workers=1)
    # 0.1 hour each: p and q err together, r by itself
    assert done.hours_error == pytest.approx(math.hypot(0.2, 0.1))


def test_known_operations_take_the_place_of_counted_ones(shown) -> None:
    told = replace(cost("net", [0]), flops=500.0, probe=lambda seconds: Speed(10.0, flops=400.0, peak=1e4))
    (line,) = estimate.estimate(shown(artifact("a", [told])), "paper").lines
    assert line.speed.share == pytest.approx(0.5)


def test_the_table(shown) -> None:
    speeds = Speed(123.4, 5.6, 8, 4e8, 1e11, "timed 8"), Speed(math.nan, note="too big")
    fast = replace(cost("a net", range(3), images=50_000), probe=lambda seconds: speeds[0])
    slow = replace(cost("another net of this artifact", range(2)), probe=lambda seconds: speeds[1])
    ids = shown(artifact("a", [fast, slow]), artifact("b", [cost("third", [0])]))
    done = estimate.estimate(ids, "paper", workers=2)
    lines = str(done).splitlines()
    assert lines[0].startswith("dry run (paper) on ")
    heads = lines[1]
    column = heads.index("images/s")
    rows = [line for line in lines if line.startswith("  ") and "configuration" not in line]
    assert [row[column:].split("  ")[0] for row in rows] == ["123 ± 5.6", "", "100"]
    assert [row[heads.index("runs") :].split()[0] for row in rows] == ["3", "2", "1"]
    assert rows[0][heads.index("of peak") :].startswith("49 %")
    assert "note: another net of this artifact: too big" in lines
    assert [line for line in lines if line.startswith("toy/")] == ["toy/a", "toy/b"]
    assert "together: 6 runs, 0 of them done or shared; 153,000 images" in lines[-1]
    assert "the time of 2 further runs is not known" in lines[-1]


def test_as_numbers(shown) -> None:
    done = estimate.estimate(shown(artifact("a", [cost("net", range(2))], runs("x", [0]))), "paper")
    plain = done.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["lines"][1]["hours"] is None and plain["lines"][0]["images_per_second"] == 100.0
    frame = done.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["runs"]) == [2, 1]


@pytest.mark.parametrize(
    ("hours", "words"), [(0.0, "0"), (1 / 7200, "0.5 s"), (0.5, "30 min"), (2.34, "2.3 h"), (1234.0, "1,200 h")]
)
def test_times_in_the_unit_that_one_reads(hours, words) -> None:
    assert estimate._hours(hours) == words


def test_bad_input(shown) -> None:
    with pytest.raises(InputError, match="no artifact"):
        estimate.estimate(["hayou/tab99"])
    with pytest.raises(InputError, match="no preset"):
        estimate.estimate(["hayou/fig1a"], "papre")
    with pytest.raises(InputError, match="seconds"):
        estimate.estimate(["hayou/fig1a"], seconds=0.0)
    with pytest.raises(InputError, match="workers"):
        estimate.estimate(["hayou/fig1a"], workers=0)


def test_shares_have_two_digits_and_all_before_the_point() -> None:
    assert [estimate._percent(share) for share in (0.0042, 0.374, 0.994, 1.0, 1.19)] == [
        "0.42 %", "37 %", "99 %", "100 %", "119 %",
    ]  # fmt: skip
