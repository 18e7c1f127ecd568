"""Kernels: closed forms (arc-cosine, arcsine), a slow twin that holds whole matrices, float32 in the chaotic phase."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from epoch0 import activations
from epoch0.errors import InputError
from epoch0.theory.mean_field.correlations import pair_mean
from epoch0.theory.mean_field.kernels import kernel
from epoch0.theory.mean_field.tables import tabulate


def twin(x: np.ndarray, activation: str, w: float, b: float, depth: int, skip: float = 0.0, share: float = 1.0):
    """The slow twin: whole matrices, two-dimensional sums at every entry."""
    nngp = b**2 + w**2 * x @ x.T / x.shape[1]
    ntk = nngp.copy()
    for _ in range(depth):
        q = np.diag(nngp)
        c = np.clip(nngp / np.sqrt(np.outer(q, q)), -1, 1)
        np.fill_diagonal(c, 1.0)
        q1, q2 = np.broadcast_arrays(q[:, None], q[None, :])
        fresh = share * (b**2 + w**2 * pair_mean(activation, q1, q2, c))
        ntk = ntk * (skip + share * w**2 * pair_mean(activation, q1, q2, c, derivative=True)) + fresh
        nngp = skip * nngp + fresh
    return nngp, ntk


def off_the_twin(name: str, b: float, architecture: str) -> float:
    """Largest difference of both kernels from the slow twin's, relative to its largest entry."""
    depth = 2 if name in ("hardtanh", "gelu", "tanh") else 3
    x = np.random.default_rng(3).normal(size=(5, 4)) * np.array([1.0, 1.2, 0.7, 1.5, 1.0])[:, None]
    found = kernel(x, activation=name, weight_std=1.3, bias_std=b, depth=depth, architecture=architecture)
    skip, share = float(architecture != "dense"), 1 / depth if architecture == "stable" else 1.0
    nngp, ntk = twin(x, name, 1.3, b, depth, skip, share)
    pairs = ((found.nngp, nngp), (found.ntk, ntk))
    return max(float(np.abs(one - two).max() / np.abs(two).max()) for one, two in pairs)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "b", "architecture"),
    [
        *((name, 0.3, "residual") for name in ("leaky_relu", "abs", "tanh", "gelu", "sin", "hardtanh")),
        *(
            (name, *setting)
            for name in ("relu", "erf")
            for setting in ((0.0, "dense"), (0.3, "dense"), (0.3, "residual"), (0.0, "stable"))
        ),
        ("tanh", 0.0, "stable"),
        ("hardtanh", 0.0, "dense"),
    ],
)
def test_against_the_slow_twin(name: str, b: float, architecture: str) -> None:
    assert off_the_twin(name, b, architecture) < 1e-10


@pytest.mark.slow
def test_kink_without_closed_form() -> None:
    """elu, inputs of their own lengths."""
    x = np.random.default_rng(3).normal(size=(4, 4))
    found = kernel(x, activation="elu", weight_std=1.3, bias_std=0.1, depth=2)
    nngp, ntk = twin(x, "elu", 1.3, 0.1, 2)
    np.testing.assert_allclose(found.nngp, nngp, atol=1e-10)
    np.testing.assert_allclose(found.ntk, ntk, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elu", "selu", "softsign", "relu6"])
def test_against_the_slow_twin_at_leisure(name: str) -> None:
    assert off_the_twin(name, 0.3, "dense") < 1e-10


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "w", "b"), [("tanh", 1.3, 0.2), ("tanh", 2.0, 0.1), ("relu", 1.4, 0.0), ("erf", 1.0, 0.3)]
)
def test_many_inputs_and_few(name: str, w: float, b: float) -> None:
    """An entry does not depend on which other inputs there are."""
    x = np.random.default_rng(7).normal(size=(150, 40))
    x[1] = x[0] * (1 + 1e-9)
    x[2] = x[0]
    many = kernel(x, activation=name, weight_std=w, bias_std=b, depth=60)
    few = kernel(x[:6], activation=name, weight_std=w, bias_std=b, depth=60)
    assert many.gap[0, 2] == 0 and np.array_equal(many.nngp, many.nngp.T)
    np.testing.assert_allclose(many.nngp[:6, :6], few.nngp, rtol=0, atol=1e-11 * np.abs(few.nngp).max())
    np.testing.assert_allclose(many.ntk[:6, :6], few.ntk, rtol=0, atol=1e-10 * np.abs(few.ntk).max())
    np.testing.assert_allclose(many.gap[:6, 3:6], few.gap[:, 3:6], rtol=1e-8, atol=1e-26)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", ["tanh", "relu", "erf", "hardtanh", pytest.param("elu", marks=pytest.mark.slow), "sigmoid", "softplus"]
)
def test_nothing_comes_in(name: str) -> None:
    """Inputs of zeros, weights of zero and both: q is the recursion's, and what does not exist is 0."""
    from epoch0.theory.mean_field import variance_map

    x = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, -1.0], [0.0, 0.0, 0.0]])
    for w, b in ((0.0, 0.0), (0.0, 0.3), (1.2, 0.0), (1.2, 0.3)):
        found = kernel(x, activation=name, weight_std=w, bias_std=b, depth=2)
        assert np.isfinite(found.nngp).all() and np.isfinite(found.ntk).all()
        q = b**2 + w**2 * (x**2).mean(axis=1)
        for _ in range(2):
            q = variance_map(name, w, b, q)
        np.testing.assert_allclose(found.q1, q, rtol=1e-9, atol=1e-18)
        assert found.gap[0, 2] == 0
        if w == 0:
            np.testing.assert_allclose(found.nngp, b**2, atol=1e-300)
            np.testing.assert_allclose(found.ntk, b**2, atol=1e-300)


@pytest.mark.slow
def test_kinks_away_from_zero_tell_their_error() -> None:
    """hardswish is exact at one length; a table of several variances measures its error."""
    x = np.array([[1.0, 0.5], [0.4, -1.0]])
    one = x / np.sqrt((x**2).sum(axis=1, keepdims=True))
    found = kernel(one, activation="hardswish", weight_std=1.2, bias_std=0.1, depth=1)
    nngp, ntk = twin(one, "hardswish", 1.2, 0.1, 1)
    assert found.layer_error <= 1e-12
    np.testing.assert_allclose(found.nngp, nngp, atol=1e-10)
    np.testing.assert_allclose(found.ntk, ntk, atol=1e-10)
    table = tabulate(activations.get("relu6"), 8.0, 10.0)
    q1, q2 = np.array([8.7]), np.array([9.6])
    slope = table.evaluate(table.variances.weights(q1), table.variances.weights(q2), np.array([[0.02]]))[1]
    exact = pair_mean("relu6", q1, q2, 0.98, derivative=True)
    assert np.abs(slope - exact).max() <= 3 * table.error and table.error > 1e-12


def test_arc_cosine_and_arcsine() -> None:
    x = np.random.default_rng(0).normal(size=(6, 8))
    q = (x**2).mean(axis=1)
    covariance = x @ x.T / 8
    lengths = np.sqrt(np.outer(q, q))
    angle = np.arccos(np.clip(covariance / lengths, -1, 1))
    arc = lengths * (np.sin(angle) + (math.pi - angle) * np.cos(angle)) / (2 * math.pi)
    slope = (math.pi - angle) / (2 * math.pi)
    relu = kernel(x, activation="relu", weight_std=1.0, depth=1)
    np.testing.assert_allclose(relu.nngp, arc, atol=1e-7 * q.max())  # arccos of the twin loses half the digits at c = 1
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(relu.nngp[off], arc[off], rtol=1e-12)
    np.testing.assert_allclose(relu.ntk[off], (arc + slope * covariance)[off], rtol=1e-11)
    arcsine = 2 / math.pi * np.arcsin(2 * covariance / np.sqrt(np.outer(1 + 2 * q, 1 + 2 * q)))
    np.testing.assert_allclose(kernel(x, activation="erf", weight_std=1.0, depth=1).nngp, arcsine, atol=1e-13)


@pytest.mark.sample(1)
@pytest.mark.parametrize("count", [2, 8, 512])
def test_float32_inputs_in_the_chaotic_phase(count: int) -> None:
    """erf, weight_std^2 = 2, no biases, depth 100: every diagonal entry is the fixed point."""
    x = np.random.default_rng(1).normal(size=(count, 16)).astype(np.float32)
    found = kernel(x, activation="erf", weight_std=math.sqrt(2), depth=100)
    np.testing.assert_allclose(np.diag(found.nngp), 0.88075063, atol=1e-8)
    assert np.isfinite(found.ntk).all() and np.diag(found.ntk).min() > 3e8
    both = kernel(x, x[:1], activation="erf", weight_std=math.sqrt(2), depth=100)
    assert both.gap[0, 0] == 0
    np.testing.assert_allclose(both.ntk[:, 0], found.ntk[:, 0], rtol=1e-9)
    opposite = kernel(x[:1], -x[:1], activation="erf", weight_std=math.sqrt(2), depth=100)
    assert opposite.correlation[0, 0] == -1.0


def test_diagonal_recursion() -> None:
    """The diagonal is the recursion of q and chi alone, whatever the other entries do."""
    from epoch0.theory.mean_field import chi, variance_map

    x = np.random.default_rng(2).normal(size=(3, 5))
    found = kernel(x, activation="tanh", weight_std=2.0, bias_std=0.1, depth=40)
    for i in range(3):
        q = ntk = 0.01 + 4.0 * float((x[i] ** 2).mean())
        for _ in range(40):
            gain, q = chi("tanh", 2.0, q), variance_map("tanh", 2.0, 0.1, q)
            ntk = q + gain * ntk
        assert found.q1[i] == found.nngp[i, i] == pytest.approx(q, rel=1e-11)
        assert found.ntk[i, i] == pytest.approx(ntk, rel=1e-10)


def test_nearly_equal_inputs_keep_their_distance() -> None:
    """At 1 - c = 5e-21 the gap still grows by chi a layer (q at its fixed point), while nngp shows nothing of it."""
    from epoch0.theory.mean_field import chi, q_star

    w, b, d = 1.5, 0.3, 4
    q = q_star("tanh", w, b)
    side = math.sqrt((q - b**2) * d) / w
    x = np.array([[side, 0.0, 0.0, 0.0], [side * math.cos(1e-10), side * math.sin(1e-10), 0.0, 0.0]])
    first = kernel(x, activation="tanh", weight_std=w, bias_std=b, depth=0).gap[0, 1]
    after = kernel(x, activation="tanh", weight_std=w, bias_std=b, depth=10).gap[0, 1]
    assert after / first == pytest.approx(chi("tanh", w, q) ** 10, rel=1e-7)


def test_relu_scales() -> None:
    x = np.random.default_rng(4).normal(size=(4, 6))
    one = kernel(x, activation="relu", weight_std=1.7, depth=6)
    np.testing.assert_allclose(kernel(3 * x, activation="relu", weight_std=1.7, depth=6).ntk, 9 * one.ntk, rtol=1e-10)
    sparse = kernel(x, activation="relu", weight_std=1.7 * math.sqrt(2), depth=6, density=0.5)
    np.testing.assert_allclose(sparse.ntk, one.ntk, rtol=1e-12)


@given(st.integers(1, 5), st.integers(1, 4), st.floats(0.2, 3.0), st.floats(0.0, 1.0), st.integers(0, 2**31))
@settings(max_examples=5)
def test_kernels_are_covariances(n: int, d: int, w: float, b: float, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(n, d))
    for name in ("relu", "erf"):
        found = kernel(x, activation=name, weight_std=w, bias_std=b, depth=3)
        for one in (found.nngp, found.ntk):
            assert np.array_equal(one, one.T)
            assert np.linalg.eigvalsh(one).min() >= -1e-9 * np.abs(one).max()
        apart = kernel(x, x, activation=name, weight_std=w, bias_std=b, depth=3)
        np.testing.assert_allclose(apart.ntk, found.ntk, rtol=1e-9, atol=1e-12 * np.abs(found.ntk).max())


@pytest.mark.parametrize("name", ["relu", "erf", "tanh", "gelu", "sin", "softplus"])
@pytest.mark.parametrize(
    ("low", "high"), [(0.4, 0.4), (0.5, 2.0), (0.0, 1.0), pytest.param(20.0, 30.0, marks=pytest.mark.slow)]
)
def test_tables_keep_their_tolerance(name: str, low: float, high: float) -> None:
    """The stated error of a table, at random places between its nodes."""
    rule, rng = activations.get(name), np.random.default_rng(5)
    table = tabulate(rule, low, high)
    q1, q2, gap = rng.uniform(low, high, (7, 1)), rng.uniform(low, high, (1, 8)), rng.uniform(0, 2, (7, 8)) ** 3 / 4
    slope = table.evaluate(table.variances.weights(q1[:, 0]), table.variances.weights(q2[0]), gap)[1]
    exact = pair_mean(rule, q1, q2, 1 - gap, derivative=True)
    assert np.abs(slope - exact).max() <= 1e-12 * np.abs(table.coefficients).max() * 3


def test_pair_mean_against_adaptive_quadrature() -> None:
    """Twin in polar coordinates, where a kink at 0 is a line through the origin."""
    rng = np.random.default_rng(6)
    for name in ("elu", "tanh", "softsign", "gelu"):
        rule = activations.get(name)
        q1, q2, c = rng.uniform(0.2, 3), rng.uniform(0.2, 3), rng.uniform(-0.9, 0.9)
        s = math.sqrt(1 - c * c)
        lines = [start + k * math.pi for start in (math.pi / 2, math.atan2(-c, s)) for k in (0, 1)]
        cuts = sorted({0.0, 2 * math.pi, *(line % (2 * math.pi) for line in lines)})
        radius, masses = np.polynomial.legendre.leggauss(120)
        radius, masses = 4.75 * (radius + 1), 4.75 * masses

        def ray(angle: float, rule=rule, q1=q1, q2=q2, c=c, s=s, r=radius, m=masses) -> float:
            h1 = math.sqrt(q1) * r * math.cos(angle)
            h2 = math.sqrt(q2) * r * (c * math.cos(angle) + s * math.sin(angle))
            values = rule.function(h1) * rule.function(h2) * r * np.exp(-(r**2) / 2)
            return float(values @ m) / (2 * math.pi)

        slow = sum(integrate.quad(ray, a, b, epsabs=1e-13)[0] for a, b in pairwise(cuts))
        assert float(pair_mean(rule, q1, q2, c)) == pytest.approx(slow, abs=1e-10)


@pytest.mark.parametrize("name", list(activations.KNOWN))
@pytest.mark.parametrize("derivative", [False, True])
def test_pair_mean_is_a_correlation(name: str, derivative: bool) -> None:
    """Symmetric, equal to the one-dimensional mean at c = 1, never above it (Cauchy-Schwarz)."""
    from epoch0.theory.mean_field import gaussian_mean

    rule = activations.get(name)
    f = rule.derivative if derivative else rule.function
    q1, q2, c = np.array([0.1, 1.0, 5.0]), np.array([2.0, 1.0, 0.3]), np.array([-1.0, 0.999999, 0.4])
    one = gaussian_mean(lambda h: f(h) ** 2, q1, rule.breaks)
    np.testing.assert_allclose(pair_mean(rule, q1, q1, 1.0, derivative), one, rtol=1e-11)
    size = np.sqrt(one * gaussian_mean(lambda h: f(h) ** 2, q2, rule.breaks))
    found = pair_mean(rule, q1, q2, c, derivative)
    np.testing.assert_allclose(found, pair_mean(rule, q2, q1, c, derivative), atol=1e-12 * size.max())
    assert (np.abs(found) <= size * (1 + 1e-12)).all()


def test_bad_input() -> None:
    x = np.ones((2, 3))
    with pytest.raises(InputError, match=r"layer \d+"):
        kernel(x, activation="relu", weight_std=1e30, depth=20)
    with pytest.raises(InputError, match="shape"):
        kernel(np.ones(3), activation="relu", weight_std=1.0, depth=1)
    with pytest.raises(InputError, match="different size"):
        kernel(x, np.ones((2, 4)), activation="relu", weight_std=1.0, depth=1)
    with pytest.raises(InputError, match="depth=-1"):
        kernel(x, activation="relu", weight_std=1.0, depth=-1)
    with pytest.raises(InputError, match="NaN"):
        kernel(x * np.nan, activation="relu", weight_std=1.0, depth=1)
    with pytest.raises(InputError, match="c="):
        pair_mean("tanh", 1.0, 1.0, 1.5)
    zero = kernel(np.zeros((2, 3)), activation="tanh", weight_std=0.0, depth=3)
    assert not zero.nngp.any() and not zero.ntk.any()


def test_the_table_leaves_out_each_input_with_itself() -> None:
    x = np.random.default_rng(0).normal(size=(2, 8))
    one = kernel(x, activation="relu", weight_std=1.4, depth=2)
    pair = one.to_dict()["correlation"]
    assert pair["least"] == pair["most"] == pytest.approx(float(one.correlation[0, 1]))
    two = kernel(x, x[:1], activation="relu", weight_std=1.4, depth=2).to_dict()["correlation"]
    assert two["most"] == pytest.approx(1.0)
