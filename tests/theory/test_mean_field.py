"""Mean field: Gaussian means against scipy's adaptive quadrature and closed forms, chi and q against printed values."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from epoch0 import activations
from epoch0.errors import InputError
from epoch0.theory.mean_field import chi, gaussian_mean, variance_map
from epoch0.theory.mean_field.moments import moments_of
from quadrature_twin import adaptive

ALL = [make() for make in activations.KNOWN.values()] + [activations.hardtanh(-0.5, 2.0), activations.elu(0.7)]
NAMES = [f"{a.name}{dict(a.parameters) or ''}" for a in ALL]


@pytest.mark.sample(37)
@pytest.mark.parametrize("activation", ALL, ids=NAMES)
@pytest.mark.parametrize("q", [1e-6, 0.3, 40.0, 1e4])
def test_maps_against_adaptive_quadrature(activation: activations.Activation, q: float) -> None:
    if activation.name == "sin" and q > 1000:
        return  # adaptive quadrature does not follow 190 periods; the closed form below does
    slope = adaptive(lambda h: activation.derivative(h) ** 2, q, activation.breaks)
    assert chi(activation, 1.5, q, density=0.5) == pytest.approx(0.5 * 2.25 * slope, rel=1e-9)
    square = adaptive(lambda h: activation.function(h) ** 2, q, activation.breaks)
    assert variance_map(activation, 1.5, 0.2, q) == pytest.approx(0.04 + 2.25 * square, rel=1e-9)
    assert variance_map(activation, 1.5, 0.2, q, density=0.5) == pytest.approx(0.04 + 1.125 * square, rel=1e-9)


@pytest.mark.parametrize("q", [1e-12, 0.5, 3.0, 1e12])
def test_hardtanh_and_erf_closed_forms(q: float) -> None:
    assert chi("hardtanh", 1.0, q) == pytest.approx(special.erf(1 / math.sqrt(2 * q)), rel=1e-13)
    assert chi("erf", 1.0, q) == pytest.approx(4 / math.pi / math.sqrt(1 + 4 * q), rel=1e-10)


@pytest.mark.parametrize("q", [1e-12, 0.5, 3.0, 100.0, 1e5])
def test_sine_closed_forms(q: float) -> None:
    assert chi("sin", 1.0, q) == pytest.approx((1 + math.exp(-2 * q)) / 2, rel=1e-9)
    assert variance_map("sin", 1.0, 0.0, q) == pytest.approx(-math.expm1(-2 * q) / 2, rel=1e-9)


@given(st.floats(-3, 3), st.floats(0.01, 100))
def test_a_kink_that_nobody_named_is_found(point: float, q: float) -> None:
    # a kink between a panel's end and its first node, 0.0026 sd away, is not seen: at most that squared is lost
    kink = gaussian_mean(lambda h: np.maximum(h - point, 0.0), q)
    z = point / math.sqrt(q)
    exact = math.sqrt(q) * (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * special.ndtr(-z))
    assert kink == pytest.approx(exact, abs=4e-6 * math.sqrt(q))


def test_what_oscillates_too_fast_is_refused() -> None:
    with pytest.raises(InputError, match="does not converge at q=1e\\+09"):
        gaussian_mean(np.cos, 1e9)


@given(st.floats(0, 1e8), st.floats(0, 10), st.floats(0.01, 1))
def test_relu_has_no_scale(q: float, weight_std: float, density: float) -> None:
    assert chi("relu", weight_std, q, density) == pytest.approx(density * weight_std**2 / 2, rel=1e-12)
    assert variance_map("relu", weight_std, 1.0, q) == pytest.approx(1 + weight_std**2 * q / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("bias_variance", "weight_variance", "q"),
    [(0.01, 1.424205, 0.273301), (0.04, 1.700796, 0.512079), (0.09, 1.947655, 0.763475)],
)
def test_tanh_edge_of_chaos(bias_variance: float, weight_variance: float, q: float) -> None:
    """At the tabulated point q is fixed and chi is 1, to the digits of the table."""
    assert variance_map("tanh", weight_variance**0.5, bias_variance**0.5, q) == pytest.approx(q, abs=3e-6)
    assert chi("tanh", weight_variance**0.5, q) == pytest.approx(1.0, abs=3e-6)


def test_arrays_of_q_agree_with_numbers() -> None:
    q = np.array([[0.0, 1e-9, 0.1], [1.0, 30.0, 1e6]])
    for name in ("tanh", "hardtanh", "elu", "relu"):
        each = np.array([[chi(name, 1.3, float(value)) for value in row] for row in q])
        np.testing.assert_allclose(chi(name, 1.3, q), each, rtol=1e-10)
    assert gaussian_mean(np.cos, np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.sample(5)
@pytest.mark.parametrize("activation", ALL, ids=NAMES)
def test_tabulated_moments_are_the_means(activation: activations.Activation) -> None:
    table = moments_of(activation)
    q = np.exp(np.random.default_rng(3).uniform(math.log(1e-11), math.log(min(table.top, 1e14) / 10), 60))
    square = gaussian_mean(lambda h: activation.function(h) ** 2, q, activation.breaks)
    slope = gaussian_mean(lambda h: activation.derivative(h) ** 2, q, activation.breaks)
    np.testing.assert_allclose(table.square(q), square, rtol=1e-10)
    np.testing.assert_allclose(table.slope(q), slope, rtol=1e-10)
    for one in (0.01, 0.7, 30.0):
        rate = (table.square(np.array(one * 1.001)) - table.square(np.array(one / 1.001))) / (one * 0.0019990)
        assert table.square_rate(one) == pytest.approx(float(rate), rel=1e-4, abs=1e-9)


def test_zero_variance_is_the_limit() -> None:
    assert chi("relu", 1.0, 0.0) == 0.5
    assert chi("tanh", 2.0, 0.0) == 4.0
    assert variance_map("tanh", 2.0, 0.3, 0.0) == pytest.approx(0.09)


def test_known_means() -> None:
    q = np.geomspace(1e-3, 1e3, 13)
    np.testing.assert_allclose(gaussian_mean(np.square, q), q, rtol=1e-13)
    np.testing.assert_allclose(gaussian_mean(np.cos, q[:9]), np.exp(-q[:9] / 2), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(gaussian_mean(np.abs, q, breaks=(0.0,)), np.sqrt(2 * q / math.pi), rtol=1e-13)
    step = gaussian_mean(lambda h: (h > 0.7).astype(float), 2.0, breaks=(0.7,))
    assert step == pytest.approx(special.ndtr(-0.7 / math.sqrt(2)), rel=1e-13)


@pytest.mark.parametrize("q", [-1.0, math.nan, math.inf])
def test_bad_variance(q: float) -> None:
    with pytest.raises(InputError, match=r"q=-|q holds"):
        chi("tanh", 1.0, q)


def test_functions_serve_as_activations() -> None:
    assert chi(np.tanh, 1.3, 0.7) == chi("tanh", 1.3, 0.7)
    mine = chi(lambda h: torch.relu(h) - 0.2 * torch.relu(-h), 1.0, 5.0)
    assert mine == pytest.approx((1 + 0.2**2) / 2, rel=1e-13)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="tanh"):
        chi("tahn", 1.0, 1.0)
    root = activations.custom(lambda h: torch.relu(h).sqrt(), name="root")
    with pytest.raises(InputError, match="root: the means of its square or of its derivative's are not finite"):
        moments_of(root)
    with pytest.raises(InputError, match="weight_std=-1"):
        chi("tanh", -1.0, 1.0)
    with pytest.raises(InputError, match="density=0"):
        chi("tanh", 1.0, 1.0, density=0.0)
    with pytest.raises(InputError, match="bias_std=nan"):
        variance_map("tanh", 1.0, math.nan, 1.0)
    with pytest.raises(InputError, match="density=2"):
        variance_map("tanh", 1.0, 0.0, 1.0, density=2.0)
