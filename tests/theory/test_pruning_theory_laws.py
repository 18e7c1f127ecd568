"""Laws of one layer's scores, by convolution of logarithms, against Monte Carlo and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfc, k0

from epoch0.theory.pruning.prediction import (
    GRID,
    Layers,
    ScoreLaw,
    entry_of_mean,
    entry_tail,
    histogram,
    law_of_moments,
    score_law,
    times,
)

POINTS = np.array([0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0])


def at(table: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.interp(np.log(t), GRID, table)


def test_products_on_the_grid_are_exact_where_factors_lie_on_it() -> None:
    kernel = erfc(np.exp(GRID) / math.sqrt(2))
    twice = times(kernel, histogram(np.array([2.0])))
    np.testing.assert_allclose(at(twice, POINTS), erfc(POINTS / 2 / math.sqrt(2)), atol=1e-4)
    both = times(kernel, histogram(np.array([2.0])), histogram(np.array([[0.5], [3.0]])))
    np.testing.assert_allclose(at(both[0], POINTS), erfc(POINTS / math.sqrt(2)), atol=1e-4)
    np.testing.assert_allclose(at(both[1], POINTS), erfc(POINTS / 6 / math.sqrt(2)), atol=1e-4)


def test_product_of_two_normals_has_the_bessel_density() -> None:
    """P(|N N'| > t) is the integral of (2/pi) K_0 from t on, here by a fine sum."""
    x = np.linspace(1e-7, 60, 3_000_001)
    density = 2 / math.pi * k0(x)
    tail = density[::-1].cumsum()[::-1] * (x[1] - x[0])
    exact = np.interp(POINTS, x, tail)
    np.testing.assert_allclose(at(entry_tail(0.0), POINTS), exact, atol=1e-4)
    factors = np.abs(np.random.default_rng(0).standard_normal((1, 200_000)))
    # one normal as entry, the other as the rows: 200,000 rows have a standard error of 0.001
    law = score_law(entry_tail(1.0), factors[0], np.ones(1))
    np.testing.assert_allclose(at(law.tail, POINTS), exact, atol=5e-3)


@pytest.mark.parametrize("shared", [0.0, 0.3, 0.9, 1.0])
def test_entries_against_monte_carlo(shared: float) -> None:
    """400,000 draws: standard error below 0.0008; 56 points pass 0.004, five of them, but for one time in 30,000."""
    draw = np.random.default_rng(1)
    w = np.abs(draw.standard_normal(400_000))
    x = w * np.abs(math.sqrt(shared) + math.sqrt(1 - shared) * draw.standard_normal(400_000))
    np.testing.assert_allclose(at(entry_tail(shared), POINTS), [(x > point).mean() for point in POINTS], atol=4e-3)


@given(st.floats(0.3, 0.999))
def test_entry_has_the_mean_that_was_asked_for_and_mean_square_one(mean: float) -> None:
    tail = entry_of_mean(mean)
    t = np.exp(GRID)
    # E X = integral of P(X > t) dt, E X^2 = integral of 2 t P(X > t) dt
    first = np.trapezoid(tail * t, GRID) + t[0]
    second = np.trapezoid(2 * t * t * tail, GRID)
    assert first == pytest.approx(mean, rel=0.01)
    assert second == pytest.approx(1.0, rel=0.03)
    assert (np.diff(tail) <= 1e-12).all() and tail[0] > 0.99


def test_named_entries() -> None:
    """sqrt(2/pi) is |N|, sqrt(3)/2 is |uniform|, 2/pi is |N N'|, 1 is a constant."""
    np.testing.assert_allclose(at(entry_of_mean(math.sqrt(2 / math.pi)), POINTS), erfc(POINTS / 2**0.5), atol=1e-3)
    uniform = np.clip(1 - POINTS / math.sqrt(3), 0, 1)
    np.testing.assert_allclose(at(entry_of_mean(math.sqrt(3) / 2), POINTS), uniform, atol=1e-4)
    np.testing.assert_allclose(entry_of_mean(2 / math.pi), entry_tail(0.0), atol=1e-6)
    assert at(entry_of_mean(1.0), np.array([0.97, 1.03])).tolist() == [1.0, 0.0]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("n_out", "n_in", "shared"), [(40, 60, 1.0), (40, 60, 0.5), (100, 20, 0.0)])
def test_largest_score_of_a_layer_with_shared_rows_and_columns(n_out: int, n_in: int, shared: float) -> None:
    """Distribution function of the largest of 2,400 dependent scores, given rows and columns, against 4,000 layers:
    standard error below 0.008; nine points in three cases pass 0.032 but for 1 in 1,000."""
    draw = np.random.default_rng(2)
    rows, columns = np.abs(draw.standard_normal(n_out)), np.abs(draw.standard_normal(n_in))
    largest = np.empty(4000)
    for one in range(4000):
        w, noise = draw.standard_normal((2, n_out, n_in))
        scores = np.abs(w * (math.sqrt(shared) + math.sqrt(1 - shared) * noise)) * rows[:, None] * columns
        largest[one] = scores.max()
    law = score_law(entry_tail(shared), rows, columns)
    quantiles = np.quantile(largest, np.linspace(0.1, 0.9, 9))
    np.testing.assert_allclose(at(law.none_above, quantiles), np.linspace(0.1, 0.9, 9), atol=0.032)
    assert law.weights == n_out * n_in


@pytest.mark.parametrize("kind", ["product", "sum", "zeros", "dead", "one row"])
def test_law_from_moments_against_the_scores_themselves(kind: str) -> None:
    draw = np.random.default_rng(3)
    weights, rows, columns = draw.standard_normal((120, 200)), draw.standard_normal((120, 1)), draw.random((1, 200))
    gradient = rows * columns if kind != "sum" else draw.standard_normal((120, 200)) * (0.5 + columns)
    scores = np.abs(weights * gradient)
    if kind == "zeros":
        scores *= draw.random(scores.shape) < 0.3
    if kind == "dead":
        scores[::2] = 0
    if kind == "one row":
        scores = scores[:1]
    squares = scores**2
    live = np.outer(squares.any(axis=1), squares.any(axis=0)).sum()
    zeros = 1 - (squares > 0).sum() / live
    law = law_of_moments(squares.mean(axis=1), squares.mean(axis=0), float(scores.mean()), zeros)
    t = np.quantile(scores, [0.3, 0.6, 0.8, 0.95, 0.99])
    t = t[t > 0]
    predicted = at(law.tail, t / law.scale)
    np.testing.assert_allclose(predicted, [(scores > point).mean() for point in t], atol=0.02)
    assert at(law.none_above, scores.max() / law.scale * np.array([0.3, 3.0])) == pytest.approx([0, 1], abs=0.02)


def test_layers_of_zeros_and_thresholds() -> None:
    one = law_of_moments([1.0, 1.0], [1.0, 1.0], math.sqrt(2 / math.pi))
    none = law_of_moments([0.0], [0.0], 0.0)
    layers = Layers([one, none], np.array([[0.0, -math.inf]]), np.array([4.0, 4.0]))
    log_t = layers.thresholds(0.75)
    assert layers.at("tail", log_t)[0] == pytest.approx([0.5, 0.0], abs=1e-6)
    assert layers.at("none_above", log_t)[0, 1] == 1.0 and layers.critical_sparsity() == (0.0, 0.0)


def test_scales_only_shift_the_law() -> None:
    one = score_law(entry_tail(1.0), np.ones(10), np.ones(10))
    shifted = ScoreLaw(one.tail, one.none_above, 1.0, 100)
    counts = np.array([100.0, 100.0])
    for shift in (0.0, 50.0, -300.0):
        layers = Layers([one, shifted], np.array([[shift, shift + 1]]), counts)
        if shift == 0.0:
            density, critical = layers.at("tail", layers.thresholds(0.5)), layers.critical_sparsity()
        np.testing.assert_allclose(layers.at("tail", layers.thresholds(0.5)), density, atol=1e-9)
        assert layers.critical_sparsity() == pytest.approx(critical, abs=1e-6)
