"""The law of scores whose gradients follow their weights, against samples, and on the layer that it is for."""

import math

import numpy as np
import pytest
from scipy import integrate

from epoch0.theory.pruning.prediction import (
    GRID,
    entry_of_mean,
    entry_tail,
    fit,
    following_moments,
    following_tail,
    law_of_moments,
)


def sample(correlation: float, count: int, seed: int = 0) -> np.ndarray:
    """|U V| / sqrt(1 + 2 rho^2)."""
    u, n = np.random.default_rng(seed).standard_normal((2, count))
    v = correlation * u + math.sqrt(1 - correlation**2) * n
    return np.asarray(np.abs(u * v) / math.sqrt(1 + 2 * correlation**2))


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8, 0.999, 1.0])
def test_tail_and_moments_are_those_of_a_sample(correlation: float) -> None:
    x = np.sort(sample(correlation, 200_000))
    empirical = 1 - np.searchsorted(x, np.exp(GRID)) / len(x)
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is passed once in a thousand samples; the quadrature adds less than 1e-4
    assert np.abs(following_tail(correlation) - empirical).max() < 1.95 / math.sqrt(len(x)) + 1e-4
    mean, log_mean = following_moments(correlation)
    assert mean == pytest.approx(x.mean(), abs=5 * x.std() / math.sqrt(len(x)))
    assert log_mean == pytest.approx(np.log(x).mean(), abs=5 * np.log(x).std() / math.sqrt(len(x)))


def test_without_a_correlation_it_is_the_product_of_strangers() -> None:
    assert np.abs(following_tail(0.0) - entry_tail(0.0)).max() < 2e-3  # whose grid has steps of 2 percent


def test_the_fit_finds_what_made_the_moments() -> None:
    for correlation, spread in ((0.5, 0.3), (0.0, 0.5), (0.9, 0.0), (1.0, 0.4)):
        mean, log_mean = following_moments(correlation)
        found = fit(mean * math.exp(-(spread**2) / 2), log_mean - spread**2)
        assert found == pytest.approx((correlation, spread), abs=1e-6)


def test_contradicting_moments_have_an_answer() -> None:
    assert fit(0.6, -1.0) == (0.0, 0.0)  # less spread than a product of two normal variables has
    correlation, spread = fit(0.63, -1.6)  # the mean of strangers with the logarithm of a square
    assert 0.5 < correlation < 1 and spread == 0.0
    strangers = math.sqrt(-2 * math.log(0.55 / following_moments(0.0)[0]))
    assert fit(0.55, -9.0) == pytest.approx((0.0, strangers))  # units that hardly ever answer: as by the mean alone
    assert np.array_equal(entry_of_mean(0.55, -9.0), entry_of_mean(0.55))
    square, spread = fit(0.57, -2.0)
    assert square == 1.0 and 0 < spread < 0.2


@pytest.mark.parametrize(("mean", "log_mean"), [(0.5, -1.9), (0.58, -1.75), (0.6, -1.45), (0.45, -2.2)])
def test_the_entry_has_the_moments_asked_for(mean: float, log_mean: float) -> None:
    spread = fit(mean, log_mean)[1]
    tail = entry_of_mean(mean, log_mean)
    t = np.exp(GRID)
    square = 2 * integrate.simpson(t**2 * tail, x=GRID)
    assert square == pytest.approx(1, abs=5e-3) and np.all(np.diff(tail) <= 1e-12)
    if spread > 1e-3:  # both can be met
        assert integrate.simpson(t * tail, x=GRID) == pytest.approx(mean, abs=3e-3)


def test_squares_of_weights_are_told_from_products_of_strangers() -> None:
    """Scores c_i W^2: without the mean logarithm the law would be off by more than 0.03."""
    source = np.random.default_rng(1)
    weights, scales = source.standard_normal((200, 60)), np.exp(source.standard_normal((200, 1)))
    scores = scales * weights**2
    moments = (scores**2).mean(1), (scores**2).mean(0), float(scores.mean())
    level = np.quantile(scores, [0.3, 0.5, 0.7, 0.8, 0.9])
    errors = []
    for logs in (float(np.log(scores).mean()), -math.inf):
        law = law_of_moments(*moments, log_mean=logs)
        tail = np.interp(np.log(level / law.scale), GRID, law.tail)
        errors.append(float(np.abs(tail - [0.7, 0.5, 0.3, 0.2, 0.1]).max()))
    assert errors[0] < 0.02 and errors[1] > 0.03
