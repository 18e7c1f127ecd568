"""Made-up numbers: phases, cumulative gains, the verdict for each optimizer with its reason, rate and sentence."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epoch0.diagnosis.step import LADDER, StepEffect
from epoch0.diagnosis.trial import LENGTHS, RATES, Run, TrialResult
from epoch0.diagnosis.verdict import (
    FITTED,
    CumulativeGain,
    Recipe,
    Signs,
    assess,
    best_run,
    cumulative_gain,
    estimate_phase,
    level,
    outcome,
    probability,
    sentence,
    step_numbers,
    suggested_rate,
    trial_numbers,
)
from epoch0.measure.gain import gain_status

GAINS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)
FLAT = CumulativeGain(0.0, 5)


def step(optimizer: Any = "adam", **changes: Any) -> StepEffect:
    """The first step of a network that is well."""
    values = {
        "loss": 1.6, "reached": 1.0, "alignment": 0.8, "held": 0.6, "second": 0.8, "second_held": 0.6,
        "second_pace": 20.0, "change": -0.1, "largest": 0.01 if optimizer == "adam" else 1.0, "updates": {},
        "finite": True, "examples": 50,
    }  # fmt: skip
    return StepEffect(optimizer=optimizer, **{**values, **changes})


def lost(optimizer: Any = "adam", **changes: Any) -> StepEffect:
    """The first step of a network that gives the same answer whatever it is asked."""
    nothing = {"alignment": 0.01, "held": -0.02, "second": 0.01, "second_held": 0.0, "change": 0.0}
    return step(optimizer, **{**nothing, "second_pace": 1e-9, **changes})


def signs(**changes: Any) -> Signs:
    return Signs(
        **{"forward": FLAT, "backward": FLAT, "input_size": 1.0, "output_size": 0.3, "dissimilarity": 0.3, **changes}
    )


def orders(value: float) -> CumulativeGain:
    return CumulativeGain(2 * value * math.log(10), 10)


def run(optimizer: Any = "adam", rate: float = 1e-3, **changes: Any) -> Run:
    values = {"losses": (1.6,) * 60, "known": 0.9, "known_seen": 1.0, "drop": 0.9, "held": 1.0}
    return Run(optimizer=optimizer, rate=rate, **{**values, **changes})


def trial_of(*runs: Run, steps: int = 60) -> TrialResult:
    return TrialResult(runs, steps, 64, 16, 1.0)


def recipe(optimizer: Any, trains: bool, chance: float, cause: str = "learns") -> Recipe:
    return Recipe(optimizer, trains, chance, 1e-3, 0.1, "because", "step 0", cause)


def joined(adam: tuple[bool, float, str], sgd: tuple[bool, float, str]) -> dict[Any, Recipe]:
    return {"adam": recipe("adam", *adam), "sgd": recipe("sgd", *sgd)}


# ---- cumulative gains, phases, statuses ----------------------------------------------------------------------


@given(st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=50))
def test_a_cumulative_gain_is_the_quotient_of_norms(norms: list[float]) -> None:
    gain = cumulative_gain(norms)
    assert gain.factor == pytest.approx(norms[-1] / norms[0], rel=1e-9) and gain.layers == len(norms) - 1
    assert gain.orders == pytest.approx(math.log10(norms[-1] / norms[0]), abs=1e-9)


def test_cumulative_gains_that_end_or_cannot_begin() -> None:
    assert cumulative_gain([1.0, 0.0]).log_gain == -math.inf
    assert cumulative_gain([]) == CumulativeGain(0.0, 0) and cumulative_gain([2.0]) == CumulativeGain(0.0, 0)
    assert math.isnan(cumulative_gain([math.nan, 1.0]).log_gain) and math.isnan(
        cumulative_gain([math.inf, 1.0]).log_gain
    )
    assert cumulative_gain([0.0, 1.0]).log_gain == 0  # nothing to compare with
    assert cumulative_gain([1e-300, 1e300]).factor == math.inf or cumulative_gain([1e-300, 1e300]).factor > 1e300


def test_phase_is_critical_only_if_one_is_inside_the_interval() -> None:
    assert estimate_phase([0.9, 1.1, 1.0, 1.02], [0.01] * 4).phase == "critical"
    assert estimate_phase([0.9, 0.91, 0.9], [0.01] * 3).phase == "ordered"
    near, off = estimate_phase([1.0008] * 3, [1e-5] * 3), estimate_phase([1.008] * 3, [1e-5] * 3)
    assert near.phase == "critical" and off.phase == "chaotic"  # both known to be above 1; the former is 1.00
    assert estimate_phase([1.1, 1.12, 1.1], [0.01] * 3).phase == "chaotic"
    # one layer: only the noise of the measurement speaks
    assert estimate_phase([0.9], [0.01]).phase == "ordered"
    assert estimate_phase([0.9], [0.1]).phase == "critical"
    assert estimate_phase([], []).phase == "unknown"
    assert estimate_phase([0.17, 0.003], [0.001] * 2).phase == "unknown"  # from a thousandth to more than 1
    assert estimate_phase([0.0, 0.5], [0.0, 0.01]) == estimate_phase([0.5], [0.01])


@given(GAINS, st.floats(0, 0.5))
def test_the_interval_holds_the_geometric_mean(gains: list[float], noise: float) -> None:
    reading = estimate_phase(gains, [noise * g for g in gains])
    assert reading.chi == pytest.approx(math.exp(sum(math.log(g) for g in gains) / len(gains)))
    assert reading.chi_interval[0] <= reading.chi * (1 + 1e-12) and reading.chi <= reading.chi_interval[1] * (1 + 1e-12)


def test_status_of_a_layer_speaks_of_the_depth() -> None:
    assert gain_status(0.9, 0.001, 5) == "keeps"
    assert gain_status(0.9, 0.001, 50) == "shrinks"
    assert gain_status(1.1, 0.001, 50) == "grows"
    assert gain_status(1.1, 0.2, 50) == "unclear"
    assert gain_status(0.0, 0.0, 5) == "dead"
    assert gain_status(math.inf, 0.0, 5) == gain_status(math.nan, 0.0, 5) == "overflows"


# ---- the fitted chance -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_there_are_weights_for_every_kind_of_evidence_and_of_known_numbers(optimizer: Any) -> None:
    known = {*step_numbers(step(optimizer), signs(), step()), *trial_numbers([run(optimizer)], optimizer), "intercept"}
    bases = ("step 0", "step 0 quick", *(f"trial {n}" for n in LENGTHS))
    kinds = {f"{base}{end}" for base in bases for end in ("", " alone")}
    assert set(FITTED[optimizer]) == kinds
    for name, weights in FITTED[optimizer].items():
        assert "intercept" in weights and set(weights) <= known
        assert not ("alone" in name and {"held", "second held", "known"} & set(weights))


def test_sgd_is_told_what_adam_learned_in_its_trial_and_never_the_other_way() -> None:
    runs = [run("adam", known=0.95, known_seen=0.99), run("sgd", known=0.55, known_seen=0.6)]
    sgd, adam = trial_numbers(runs, "sgd"), trial_numbers(runs, "adam")
    assert sgd["learned by adam"] == adam["learned"] > sgd["learned"]
    for kind, weights in FITTED["sgd"].items():
        assert ("learned by adam" in weights) == (kind.startswith("trial") and "alone" not in kind)
        assert weights.get("learned by adam", 0) >= 0 and "learned by adam" not in FITTED["adam"][kind]
    better = probability("sgd", step_numbers(step("sgd"), signs(), step()) | sgd, "trial 150")
    alone = probability("sgd", step_numbers(step("sgd"), signs(), step()) | trial_numbers(runs[1:], "sgd"), "trial 150")
    assert better > alone


def test_the_chance_is_logistic_in_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FITTED["adam"], "step 0", {"intercept": -1.0, "held": 2.0})
    assert probability("adam", {"held": 1.5, "reached": 3.0}, "step 0") == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert probability("adam", {"held": 1e9}, "step 0") <= 1 and probability("adam", {"held": -1e9}, "step 0") >= 0


@given(st.floats(allow_nan=True), st.floats(0, 1), st.floats(allow_nan=True))
def test_numbers_are_finite_whatever_was_measured(wild: float, cosine: float, other: float) -> None:
    measured = step(alignment=cosine, second=-cosine, second_pace=wild, change=wild, reached=wild, largest=0.0)
    found = step_numbers(
        measured,
        signs(
            forward=CumulativeGain(wild, 3), backward=CumulativeGain(other, 3), input_size=abs(wild), dissimilarity=wild
        ),
        step(alignment=-cosine),
    )
    assert all(math.isfinite(value) for value in found.values())


def test_kind_of_evidence() -> None:
    assert level(step(), [], None) == "step 0" and level(step(held=None), [], None) == "step 0 alone"
    assert level(step(quick=True, held=None), [], None) == "step 0 quick alone"
    assert level(step(), [run()], 60) == "trial 60" and level(step(), [run(known=None)], 60) == "trial 60 alone"
    assert (
        level(step(), [run()], 3) == f"trial {min(LENGTHS)}" and level(step(), [run()], 999) == f"trial {max(LENGTHS)}"
    )


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_what_learns_is_likelier_than_what_does_not(optimizer: Any) -> None:
    """Whatever the weights are fitted to."""
    ill = signs(forward=orders(-6), backward=orders(-6), dissimilarity=1e-7)
    rates = RATES[optimizer]
    good = trial_of(*(run(optimizer, rate) for rate in rates))
    bad = trial_of(*(run(optimizer, rate, known=0.5, known_seen=0.5, drop=0.0) for rate in rates))
    for well, ill_trial in ((None, None), (good, bad)):
        learns, fails = assess(step(optimizer), signs(), well), assess(lost(optimizer), ill, ill_trial)
        assert learns.trains and learns.probability > fails.probability + 0.2
        assert learns.evidence == fails.evidence == ("step 0" if well is None else "trial")


# ---- reasons ---------------------------------------------------------------------------------------------------

REASONS = {
    "overflow": (lost(finite=False), signs(overflowing=("3",)), "numbers leave the range of floats in 3"),
    "overflow after it": (lost(finite=False), signs(), "numbers leave the range of floats after the first step"),
    "no gradient": (lost(reached=0.0, second=0.0), signs(dead=("2",)), "no weight gets a gradient: nothing passes"),
    "no gradient inside": (lost(), signs(dead=("2", "5")), "nothing passes through 2 and 1 more"),
    "blind batch": (lost(), signs(same="all targets are the same"), "all targets are the same"),
    "size": (lost(loss=80.0), signs(constant_loss=1.6, output_size=90.0), "the first loss is 80"),
    "size of inputs": (lost(), signs(input_size=1e-3), "the inputs are of size 0.001"),
    "vanishing": (lost(), signs(backward=orders(-5)), "gradients shrink by 5.0 orders of magnitude"),
    "vanishing eps": (lost(reached=0.1), signs(), "90% of them are below Adam's eps"),
    "collapsed": (lost(), signs(collapsed=("7",)), "from 7 on all examples look alike"),
    "exploding": (lost(), signs(forward=orders(3)), "differences between inputs grow by 3.0 orders"),
    "exploding back": (lost(), signs(backward=orders(3)), "gradients grow by 3.0 orders"),
    "rough": (lost(largest=1e-5), signs(), "already a rate of 3"),
    "rough at once": (lost(largest=0.0), signs(), "already a rate of 1×10⁻⁸ makes"),
    "saturated": (lost(), signs(saturated=("1",)), "most values are saturated after 1"),
    "blind": (lost(), signs(), "a step moves the outputs of all examples alike (cosine 0.01"),
    "slow": (lost(alignment=0.5), signs(), "it learns too slowly"),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_is_the_first_that_applies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for weights in FITTED["adam"].values():
        monkeypatch.setitem(weights, "intercept", -1e3)
    first, seen, words = REASONS[name]
    found = assess(first, seen, None)
    assert not found.trains and found.cause == " ".join(name.split()[: 1 + name.startswith("no ")])
    assert found.reason.startswith(words) or words in found.reason
    assert "(in 60 steps" not in found.reason
    fell = run(known=0.55, drop=0.02, losses=(1.6, *(1.5,) * 59))
    tried = assess(first, seen, trial_of(fell, run(rate=3e-3, known=0.5, drop=-0.1)))
    if first.reached > 0:
        assert (
            "in 60 steps at the best of 2 rates the loss fell from 1.60 to 1.50" in tried.reason
            and "55% of the pairs" in tried.reason
        )


def test_cannot_only_without_any_gradient() -> None:
    stuck = {o: assess(lost(o, reached=0.0, alignment=0.0, second=0.0), signs(), None) for o in ("adam", "sgd")}
    assert sentence(stuck) == "Cannot train: no weight gets a gradient."
    assert all(one.probability <= 0.01 for one in stuck.values())
    second = assess(step(reached=0.0), signs(), None)
    assert second.reason != "no weight gets a gradient"


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_trial_that_learns_for_others_settles_it(optimizer: Any) -> None:
    first = lost(optimizer, largest=1e-6, reached=0.1)

    def chance(held: float | None, constant: float | None) -> float:
        made = run(optimizer, known=0.55, known_seen=0.55, drop=0.05, held=held)
        return assess(first, signs(), replace(trial_of(made), constant=constant)).probability

    assert chance(0.7, 1.5) == pytest.approx(0.98)  # below half of what a constant answer gives
    assert all(chance(*given) < 0.5 for given in ((0.8, 1.5), (None, 1.5), (0.7, None), (-3.0, -1.0), (math.nan, 1.5)))

    pairs = [assess(first, signs(), trial_of(run(optimizer, known=known, drop=0.8))) for known in (0.85, 0.84)]
    assert pairs[0].probability >= 0.98 > pairs[1].probability


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_what_stays_above_one_answer_for_all_does_not_train(optimizer: Any) -> None:
    """Targets of 1e-4 and outputs of 1, say: the loss falls a thousand times, and a constant answer is far better."""
    fell = [run(optimizer, rate, known=None, known_seen=None, drop=-0.5) for rate in RATES[optimizer]]
    whole = replace(trial_of(*fell), constant=1e-9)
    found, better = (assess(step(optimizer), signs(), one) for one in (whole, replace(whole, constant=None)))
    assert better.trains and not found.trains
    rising = assess(lost(optimizer, alignment=0.5), signs(), replace(whole, constant=None))
    assert rising.reason.startswith("at no rate tried its loss falls (in 60 steps at the best of")


# ---- rates -----------------------------------------------------------------------------------------------------


def test_the_rate_is_the_trial_s_best_or_the_usual_one_less_what_the_first_step_does_not_stand() -> None:
    runs = [run(rate=3e-4, drop=0.7), run(rate=1e-3, drop=0.8), run(rate=3e-3, losses=(1.0, math.nan), drop=0.9)]
    assert best_run(runs).rate == suggested_rate(step(), runs) == 1e-3
    assert suggested_rate(step(largest=LADDER["adam"][-1]), []) == RATES["adam"][-1]
    assert suggested_rate(replace(step(largest=LADDER["adam"][-1]), quick=True), []) == 1e-3
    assert suggested_rate(step(largest=3e-3), []) == pytest.approx(1e-3)
    assert suggested_rate(step(largest=1e-5), []) == RATES["adam"][0]  # where it trains all the same
    assert 0 < suggested_rate(step(largest=0.0), []) < min(RATES["adam"])
    steady = [run("sgd", rate=0.01, drop=0.78), run("sgd", rate=0.1, drop=0.8)]
    assert best_run(steady).rate == 0.01 and best_run([replace(steady[0], drop=0.7), steady[1]]).rate == 0.1
    for largest in LADDER["sgd"]:
        rate = suggested_rate(step("sgd", largest=largest), [])
        assert 0 < rate <= max(largest, RATES["sgd"][0]) and f"{rate:.0e}"[0] in "13"


# ---- sentences -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adam", "sgd", "said", "word"),
    [
        ((True, 0.9, "learns"), (True, 0.9, "learns"), "Trains with either, Adam at a rate of about 0.001 or SGD at 0.",
         "trains"),
        ((True, 0.9, "learns"), (False, 0.1, "rough"), "Needs Adam, at a rate of about 0.001; with SGD with mom",
         "needs adam"),
        ((False, 0.1, "rough"), (True, 0.9, "learns"), "Needs SGD, at a rate of about 0.001; with Adam because.",
         "needs sgd"),
        ((False, 0.1, "rough"), (False, 0.2, "vanishing"), "Will not train: because.", "vanishing"),
        ((False, 0.0, "no gradient"), (False, 0.0, "no gradient"), "Cannot train: because.", "no gradient"),
        ((True, 0.6, "learns"), (True, 0.9, "learns"), "Probably: trains with either", "trains"),
        ((False, 0.4, "slow"), (False, 0.1, "slow"), "Probably: will not train: because.", "slow"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_to_do(adam: Any, sgd: Any, said: str, word: str) -> None:
    recipes = joined(adam, sgd)
    assert sentence(recipes).startswith(said) and outcome(recipes) == word


def test_a_recipe_says_how_sure_it_is() -> None:
    found = assess(step(), signs(), None)
    assert found.evidence == "step 0" and found.largest_learning_rate == 0.01 and 0 < found.probability < 1
    assert "cosine 0.80, 0.60 on examples it has not seen" in found.reason
    alone = assess(replace(step(), held=None, second_held=None), signs(), None)
    assert "has not seen" not in alone.reason


@pytest.mark.parametrize(
    ("drop", "words"), [(0.97, "these examples, and little that"), (0.3, "too slowly or not what")]
)
def test_what_is_learned_of_the_examples_alone_is_not_called_slow(drop: float, words: str) -> None:
    learned = assess(lost("adam", alignment=0.5), signs(), trial_of(run("adam", known=0.5, known_seen=0.5, drop=drop)))
    assert not learned.trains and learned.reason.startswith(f"it learns {words} holds for other examples (in 60 steps")
