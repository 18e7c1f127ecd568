"""Activations: function against torch, derivative against autograd, breaks and slopes against finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epoch0 import activations
from epoch0.errors import InputError
from epoch0.networks.nonlinearities import activation_of, module_of

ALL = [make() for make in activations.KNOWN.values()] + [
    activations.leaky_relu(0.2),
    activations.elu(0.7),
    activations.hardtanh(-0.5, 2.0),
]
NAMES = [f"{a.name}{dict(a.parameters) or ''}" for a in ALL]


@pytest.mark.parametrize("activation", ALL, ids=NAMES)
class TestActivation:
    def test_agrees_with_torch(self, activation: activations.Activation) -> None:
        h = torch.linspace(-8, 8, 4001, dtype=torch.float64, requires_grad=True)
        value = module_of(activation)(h)
        points = h.detach().numpy()
        np.testing.assert_allclose(activation.function(points), value.detach().numpy(), rtol=1e-12, atol=1e-14)
        (slope,) = torch.autograd.grad(value.sum(), h)
        away = np.all([np.abs(h.detach().numpy() - b) > 1e-9 for b in (*activation.breaks, 1e9)], axis=0)
        np.testing.assert_allclose(
            activation.derivative(h.detach().numpy())[away], slope.numpy()[away], rtol=1e-10, atol=1e-13
        )

    def test_pieces(self, activation: activations.Activation) -> None:
        if activation.slopes is None:
            h = np.linspace(-3, 3, 301)
            assert np.ptp(np.diff(activation.function(h), 2)) > 1e-6
            return
        assert len(activation.slopes) == len(activation.breaks) + 1
        edges = np.array([-10.0, *activation.breaks, 10.0])
        rise = np.diff(activation.function(edges)) / np.diff(edges)
        np.testing.assert_allclose(rise, activation.slopes, atol=1e-12)

    def test_round_trip_through_torch(self, activation: activations.Activation) -> None:
        assert activation_of(module_of(activation)) == activation

    def test_homogeneous_means_what_it_says(self, activation: activations.Activation) -> None:
        h = np.linspace(-3, 3, 61)
        scales = np.allclose(activation.function(2.5 * h), 2.5 * activation.function(h), atol=1e-12)
        assert activation.homogeneous == scales

    def test_far_out_is_finite(self, activation: activations.Activation) -> None:
        h = np.array([-1e4, -750.0, 750.0, 1e4])
        assert np.isfinite(activation.function(h)).all() and np.isfinite(activation.derivative(h)).all()


@given(st.floats(-0.9, 3.0), st.floats(-5, 5))
def test_leaky_slopes(slope: float, h: float) -> None:
    expected = h if h > 0 else slope * h
    assert activations.leaky_relu(slope).function(h) == pytest.approx(expected, abs=1e-12)


def test_derivative_keeps_relative_precision_in_the_tail() -> None:
    assert activations.tanh().derivative(30.0) == pytest.approx(4 * np.exp(-60.0), rel=1e-12)


def test_tanh_gelu_has_no_rule() -> None:
    assert activation_of(torch.nn.GELU(approximate="tanh")) is None
    assert activation_of(torch.nn.Softmax(dim=0)) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: activations.get("rleu"), "Did you mean 'relu'"),
        (lambda: activations.get("step"), "known are relu"),
        (lambda: activations.hardtanh(0.5, 1.0), "minimum < 0 < maximum"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
