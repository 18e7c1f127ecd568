"""Each decider comes out each way, and calls a true claim false no more often than it says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epoch0.errors import InputError
from epoch0.experiments import claims
from epoch0.experiments.claims import Claim
from epoch0.seeds import numpy_generator

REPEATS = 1000
# With a false-alarm rate of exactly 1 % the number of alarms in 1,000 repeats exceeds 23 with probability 1e-4
# (binomial), and is below 2 with probability 5e-4; seeds are fixed, so that a green test stays green.
MOST_ALARMS = 23


def measure(true, std, samples, rng):
    """Means and standard errors of that many draws about each true value."""
    true = np.asarray(true, dtype=float)
    draws = true + std * rng.standard_normal((samples, *true.shape))
    return draws.mean(0), draws.std(0, ddof=1) / math.sqrt(samples)


def alarms(decide, true, std, samples, seed):
    """How often a claim that is true, only just, is said to fail."""
    rng = numpy_generator(seed)
    return sum(decide(*measure(true, std, samples, rng)).verdict == "fails" for _ in range(REPEATS))


def verdict(claim: Claim) -> str:
    assert claim.text == "t" and claim.evidence and "\n" not in claim.evidence
    assert (claim.needed is None) or claim.verdict == "undecided"
    return claim.verdict


# each decider, three ways -----------------------------------------------------------------------------------------


def test_at_most_each_way():
    assert verdict(claims.at_most("t", [1.0, 2.0], 0.05, [1.5, 2.5], samples=20)) == "holds"
    assert verdict(claims.at_most("t", [1.0, 2.9], 0.05, [1.5, 2.5], samples=20)) == "fails"
    assert verdict(claims.at_most("t", [1.48, 2.49], 0.05, [1.5, 2.5], samples=20)) == "undecided"


def test_at_least_is_at_most_mirrored():
    for measured in ([1.0, 2.0], [1.0, 2.9], [1.48, 2.49]):
        below = claims.at_most("t", measured, 0.05, [1.5, 2.5], samples=20)
        above = claims.at_least("t", -np.array(measured), 0.05, [-1.5, -2.5], samples=20)
        assert (below.verdict, below.needed) == (above.verdict, above.needed)
        assert below.numbers["pooled_score"] == above.numbers["pooled_score"]


def test_between_each_way():
    assert verdict(claims.between("t", [1.0, 2.0], 0.05, 0.5, 2.5, samples=20)) == "holds"
    assert verdict(claims.between("t", [1.0, 2.9], 0.05, 0.5, 2.5, samples=20)) == "fails"
    assert verdict(claims.between("t", [0.2, 2.0], 0.05, 0.5, 2.5, samples=20)) == "fails"
    assert verdict(claims.between("t", [0.51, 2.48], 0.05, 0.5, 2.5, samples=20)) == "undecided"


def test_increasing_each_way():
    assert verdict(claims.increasing("t", [1, 2, 3, 4], 0.1, samples=20)) == "holds"
    assert verdict(claims.increasing("t", [1, 2, 1.2, 4], 0.1, samples=20)) == "fails"
    assert verdict(claims.increasing("t", [1, 1.05, 1.1, 1.12], 0.1, samples=20)) == "undecided"
    assert verdict(claims.increasing("t", np.linspace(1, 2, 40), 0.05, samples=20)) == "holds"  # steps under the noise


def test_equal_within_error_each_way():
    assert verdict(claims.equal_within_error("t", [[1.41, 1.42, 1.40]], 0.01, 100)) == "holds"
    assert verdict(claims.equal_within_error("t", [[1.41, 1.52, 1.40]], 0.01, 100)) == "fails"
    coarse = claims.equal_within_error("t", [[1.41, 1.42, 1.40]], 0.1, 100)
    assert verdict(coarse) == "undecided" and coarse.needed is not None and coarse.needed > 1000
    assert verdict(claims.equal_within_error("t", [1.0, 1.0], 0.0)) == "holds"  # exact numbers, one setting
    assert verdict(claims.equal_within_error("t", [1.0, 1.0 + 1e-6], 0.0)) == "fails"


def test_better_fit_each_way():
    alpha = np.linspace(0.1, 0.9, 9)
    wave = 0.002 * np.cos(9 * alpha)
    for exponent, expected in ((0.5, "holds"), (1.0, "fails"), (0.75, "undecided")):
        measured = 2 * alpha**exponent + wave
        assert verdict(claims.better_fit("t", measured, 0.01, alpha**0.5, 3 * alpha, samples=50)) == expected


def test_linear_each_way():
    x = np.arange(1.0, 9.0)
    wave = 0.02 * np.cos(5 * x)
    assert verdict(claims.linear("t", x, 0.5 * x + wave, 0.03, samples=50)) == "holds"
    assert verdict(claims.linear("t", x, 0.1 * x**2 + wave, 0.03, samples=50)) == "fails"
    assert verdict(claims.linear("t", x, np.abs(x - 4.5) + wave, 0.03, samples=50)) == "fails"  # a kink, no slope
    assert verdict(claims.linear("t", x, 0.5 + wave, 0.03, samples=50)) == "undecided"  # level
    assert verdict(claims.linear("t", x, 0.5 * x + 30 * wave, 1.0, samples=50)) == "undecided"  # too noisy
    assert verdict(claims.linear("t", x, x + 0.01 * x**2, 0.001, samples=50)) == "holds"  # curved a little, for sure


def test_exact_both_ways():
    assert verdict(claims.exact("t", True, "8 teeth", {"teeth": 8.0})) == "holds"
    assert verdict(claims.exact("t", False, "7 teeth")) == "fails"


# the false-alarm rate at the edge of each claim ---------------------------------------------------------------------


@pytest.mark.parametrize("samples", [4, 30])
def test_false_alarms_of_bounds(samples):
    true = np.full(9, 2.0)
    found = alarms(lambda m, e: claims.at_most("t", m, e, true, samples), true, 0.3, samples, 1)
    assert 2 <= found <= MOST_ALARMS  # not far below 1 % either: the test is no rubber stamp
    found = alarms(lambda m, e: claims.between("t", m, e, true, 9.0, samples), true, 0.3, samples, 2)
    assert found <= MOST_ALARMS


def test_false_alarms_of_increasing():
    true = np.full(6, 2.0)
    assert alarms(lambda m, e: claims.increasing("t", m, e, 10), true, 0.3, 10, 3) <= MOST_ALARMS


@pytest.mark.parametrize("samples", [5, 50])
def test_false_alarms_of_equality(samples):
    true = np.array([[1.0] * 3, [2.0] * 3])
    spread = np.array([0.1, 0.3, 0.5])
    found = alarms(lambda m, e: claims.equal_within_error("t", m, e, samples), true, spread, samples, 4)
    assert found <= MOST_ALARMS


def test_false_alarms_of_fits():
    x = np.linspace(0.1, 0.9, 9)
    found = alarms(lambda m, e: claims.better_fit("t", m, e, x**0.5, x, 10), 2 * x**0.75, 0.05, 10, 5)
    assert found <= MOST_ALARMS
    found = alarms(lambda m, e: claims.linear("t", x, m, e, 10), 2 * x, 0.5, 10, 6)
    assert found <= MOST_ALARMS


def test_holds_is_rare_without_evidence():
    """At the edge of a bound "holds" comes at most once in a hundred too, even if all settings share their noise."""
    rng, true, found = numpy_generator(7), np.zeros(9), 0
    for _ in range(REPEATS):
        mean, error = measure([0.0], 1.0, 10, rng)
        found += claims.at_most("t", np.repeat(mean, 9), np.repeat(error, 9), true, 10).verdict == "holds"
    assert 2 <= found <= MOST_ALARMS


def test_needed_samples_decide():
    """That many samples decide nine times in ten, when the truth is what was seen (1e-6 to fall below 8 in 10)."""
    first = claims.at_most("t", [1.40, 1.43], 0.05, 1.5, 20)
    assert first.verdict == "undecided" and first.needed is not None and 20 < first.needed < 400
    rng = numpy_generator(8)
    decided = sum(
        claims.at_most("t", *measure([1.40, 1.43], 0.05 * math.sqrt(20), first.needed, rng), 1.5, first.needed).verdict
        == "holds"
        for _ in range(400)
    )
    assert decided >= 320


def test_one_setting_does_not_carry_the_others():
    assert claims.at_most("t", [0.0, 1.5, 1.5, 1.5], 0.05, 1.5, 20).verdict == "undecided"
    assert claims.at_most("t", [0.0, 1.2, 1.2, 1.5], 0.05, 1.5, 20).verdict == "holds"


def test_nothing_points_either_way():
    claim = claims.at_most("t", [1.5, 1.5], 0.05, 1.5, 20)
    assert claim.verdict == "undecided" and claim.needed is None


def test_exact_means_need_no_errors():
    assert claims.at_most("t", [1.5, 1.2], 0.0, 1.5).verdict == "holds"
    assert claims.at_most("t", [1.5 + 1e-9], 0.0, 1.5).verdict == "fails"
    assert claims.at_least("t", [1.5 * (1 - 1e-15)], 0.0, 1.5, 1).verdict == "holds"  # rounding is no contradiction
    assert claims.increasing("t", [1.0, 2.0, 3.0], 0.0).verdict == "holds"
    assert claims.linear("t", [1, 2, 3, 4], [2.0, 4.0, 6.0, 8.0], 0.0).verdict == "holds"
    assert claims.linear("t", [1, 2, 3, 4], [1.0, 4.0, 9.0, 32.0], 0.0).verdict == "fails"


def test_one_sample_decides_nothing():
    claim = claims.at_most("t", [1.0], [math.nan], [5.0], 1)
    assert claim.verdict == "undecided" and claim.needed == 2
    assert claims.linear("t", [1, 2, 3], [1.0, 2.0, 3.0], math.nan, 1).verdict == "undecided"


def test_fitted_exponent():
    x = np.array([0.1, 0.3, 0.5, 0.9])
    exponent, error = claims.fitted_exponent(x, 3 * x**0.7, 0.01)
    assert exponent == pytest.approx(0.7, abs=1e-12) and 0 < error < 0.1


def test_claims_read_well():
    names = ["alpha = 0.1", "alpha = 0.2"]
    claim = claims.at_most("growth below the bound", [1.3, 1.6], 0.01, [1.41, 1.73], 100, names)
    assert str(claim).startswith("holds: growth below the bound (closest is alpha = 0.1: 1.3 ± 0.01 against 1.41")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.floats(0, 1e6), st.integers(2, 1000))
def test_bounds_never_crash_and_never_contradict_themselves(measured, error, samples):
    below = claims.at_most("t", measured, error, 0.0, samples)
    assert {below.verdict} <= {"holds", "fails", "undecided"}
    above = claims.at_least("t", measured, error, 0.0, samples)
    if error > 0:
        assert not (below.verdict == above.verdict == "holds")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: claims.at_most("t", [math.nan], 0.1, 1.0), "measured holds 1 NaN"),
        (lambda: claims.at_most("t", [1.0], -0.1, 1.0), "not negative"),
        (lambda: claims.at_most("t", [1.0, 2.0], 0.1, [1.0, 2.0, 3.0]), "upper bounds have shape"),
        (lambda: claims.at_most("t", [1.0], 0.1, 1.0, samples=1), "2 samples or more"),
        (lambda: claims.at_most("t", [], 0.1, 1.0), "empty"),
        (lambda: claims.increasing("t", [1.0], 0.1), "two settings"),
        (lambda: claims.equal_within_error("t", [[1.0]], 0.1), "two groups"),
        (lambda: claims.better_fit("t", [1.0, -2.0, 3.0], 0.1, 1.0, 2.0), "positive"),
        (lambda: claims.better_fit("t", [1.0, 2.0, 3.0], 0.1, [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), "nothing disting"),
        (lambda: claims.linear("t", [1, 1, 2], [1.0, 2.0, 3.0], 0.1), "three different places"),
        (lambda: claims.at_most("t", [1.0, 2.0], 0.1, 3.0, settings=["one"]), "1 names for 2"),
        (lambda: claims.fitted_exponent([1, 2], [1.0, 2.0], 0.1), "three points"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()
