"""Activations: function against torch, derivative against autograd, breaks and slopes against finite differences."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from epoch0 import activations
from epoch0.errors import InputError
from epoch0.networks.nonlinearities import activation_of, module_of

# torch keeps constants of these in float32 (1/6, 1/alpha), or goes over to a line (softplus beyond 20 / beta)
LOOSE = {"hardsigmoid": 1e-7, "hardswish": 1e-7, "celu": 1e-6, "softplus": 1e-8}

ALL = [make() for make in activations.KNOWN.values()] + [
    activations.leaky_relu(0.2),
    activations.elu(0.7),
    activations.hardtanh(-0.5, 2.0),
    activations.celu(0.7),
    activations.softplus(3.0),
]
NAMES = [f"{a.name}{dict(a.parameters) or ''}" for a in ALL]


@pytest.mark.parametrize("activation", ALL, ids=NAMES)
class TestActivation:
    def test_agrees_with_torch(self, activation: activations.Activation) -> None:
        h = torch.linspace(-8, 8, 4001, dtype=torch.float64, requires_grad=True)
        value = module_of(activation)(h)
        points = h.detach().numpy()
        loose = LOOSE.get(activation.name, 1e-12)
        np.testing.assert_allclose(activation.function(points), value.detach().numpy(), rtol=loose, atol=1e-14)
        (slope,) = torch.autograd.grad(value.sum(), h)
        away = np.all([np.abs(h.detach().numpy() - b) > 1e-9 for b in (*activation.breaks, 1e9)], axis=0)
        np.testing.assert_allclose(
            activation.derivative(points)[away], slope.numpy()[away], rtol=LOOSE.get(activation.name, 1e-10), atol=1e-13
        )

    def test_pieces(self, activation: activations.Activation) -> None:
        if activation.slopes is None:
            h = np.linspace(-4, 4, 301)
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


def test_modules_without_a_rule() -> None:
    for module in (nn.Softmax(dim=0), nn.Softplus(1.0, threshold=3.0), nn.Hardtanh(0.0, 1.0), nn.LogSigmoid()):
        assert activation_of(module) is None

    class ReLU(nn.ReLU):
        """A user's own class may do anything, whatever it is called."""

    assert activation_of(ReLU()) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: activations.get("rleu"), "Did you mean 'relu'"),
        (lambda: activations.get("step"), "known are relu"),
        (lambda: activations.get("swich"), "Did you mean 'swish'"),
        (lambda: activations.hardtanh(0.5, 1.0), "minimum < 0 < maximum"),
        (lambda: activations.celu(0.0), "alpha=0.0: .*> 0"),
        (lambda: activations.softplus(-1.0), "beta=-1.0: .*> 0"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


@pytest.mark.parametrize("activation", ALL, ids=NAMES)
def test_custom_finds_what_is_known(activation: activations.Activation) -> None:
    """The same function without its name: derivative by autograd, break points and slopes found again."""
    module = module_of(activation)
    found = activations.custom(lambda h: module(h) * 1)
    h = np.concatenate([np.linspace(-9, 9, 1001), np.array(activation.breaks)])
    loose = LOOSE.get(activation.name, 1e-9)
    np.testing.assert_allclose(found.function(h), activation.function(h), rtol=loose, atol=1e-14)
    np.testing.assert_allclose(found.derivative(h), activation.derivative(h), rtol=loose, atol=2e-12)
    if activation.name in ("celu", "softsign") or activation == activations.elu(1.0):
        assert found.breaks == ()  # only the second derivative jumps
    elif activation.name == "softplus":
        # where torch goes over to the line
        assert found.breaks == () or max(abs(b) for b in found.breaks) == pytest.approx(20 / module.beta)
    else:
        assert found.breaks == activation.breaks
    assert (found.slopes is None) == (activation.slopes is None)
    if activation.slopes is not None:
        np.testing.assert_allclose(found.slopes, activation.slopes, rtol=LOOSE.get(activation.name, 1e-12))
    assert found.homogeneous == activation.homogeneous
    assert found != activation


@given(
    st.lists(st.integers(-900, 900).map(lambda i: i / 100), min_size=1, max_size=6, unique=True),
    st.integers(0, 2**32 - 1),
)
def test_custom_finds_every_break_of_a_piecewise_linear_function(points: list[float], seed: int) -> None:
    points = sorted(points)
    slopes = np.random.default_rng(seed).permutation(len(points) + 1) * 0.5
    steps = list(zip(points, np.diff(slopes), strict=True))

    def phi(h: torch.Tensor) -> torch.Tensor:
        value = slopes[0] * h
        for point, step in steps:
            value = value + step * torch.relu(h - point)
        return value

    found = activations.custom(phi)
    assert found.breaks == tuple(points)
    np.testing.assert_allclose(found.slopes, slopes, atol=1e-12)


def test_any_shape_and_names() -> None:
    bump = activations.custom(lambda h: torch.exp(-(h**2)), name="bump")
    assert (bump.name, bump.breaks, bump.slopes) == ("bump", (), None)
    assert activations.custom(lambda h: h * h).derivative(3.0) == 6.0
    h = np.linspace(-2, 2, 12).reshape(3, 4)
    assert bump.function(h).shape == bump.derivative(h).shape == (3, 4)
    assert bump.function(0.5).shape == ()


def test_jumps_and_tiny_gaps() -> None:
    shrink = activations.get(nn.Hardshrink(0.75))
    assert (shrink.breaks, shrink.slopes, shrink.homogeneous) == ((-0.75, 0.75), None, False)
    close = activations.custom(lambda h: torch.relu(h - 0.1) - torch.relu(h - 0.1003))
    assert close.breaks == (0.1, 0.1003)
    assert activations.custom(lambda h: torch.where(h > 1 / 3, h, 0 * h)).breaks[0] == pytest.approx(1 / 3, abs=1e-13)
    given_breaks = activations.custom(torch.round, breaks=(0.5, -0.5, 0.5))
    assert given_breaks.breaks == (-0.5, 0.5)


def test_what_oscillates_is_not_broken_and_jumps_are_told() -> None:
    for function in (lambda h: torch.sin(5 * h), lambda h: torch.sin(30 * h), lambda h: h + torch.sin(h) ** 2):
        assert activations.custom(function).breaks == ()
    narrow = activations.custom(lambda h: torch.exp(-(((h - 0.505) * 1000) ** 2)))
    assert narrow.derivative(0.505) == pytest.approx(0, abs=1e-9)
    for function, continuous in ((torch.sign, False), (lambda h: torch.relu(h - 1), True), (nn.Hardshrink(), False)):
        assert activations.custom(function).continuous == continuous
    cut = activations.custom(lambda h: torch.where(h > 500, torch.nan, h))
    with pytest.raises(InputError, match=r"derivative of .* returns NaN at h=600"):
        cut.derivative(600.0)


def test_known_functions_and_modules_keep_their_names() -> None:
    cases = [
        (torch.relu, "relu"), (F.gelu, "gelu"), (np.tanh, "tanh"), (torch.sigmoid, "sigmoid"), (np.abs, "abs"),
        (nn.ReLU(inplace=True), "relu"), (torch.special.expit, "sigmoid"), (F.leaky_relu, "leaky_relu"),
        (nn.GELU(approximate="tanh"), "gelu_tanh"),
    ]  # fmt: skip
    for function, name in cases:
        assert activations.get(function) == activations.get(name)
    assert activations.custom(lambda h: h * 2, name="relu").name == "custom relu"

    def relu(h: torch.Tensor) -> torch.Tensor:
        return 2 * torch.relu(h)

    mine = activations.get(relu)
    assert mine.name == "custom relu" and mine != activations.get("relu") and mine.slopes == (0.0, 2.0)
    assert mine == activations.get(relu) and hash(mine) == hash(activations.get(relu))
    assert mine != activations.get(lambda h: relu(h))


def test_custom_as_a_module() -> None:
    h = torch.linspace(-3, 3, 50, dtype=torch.float64, requires_grad=True)
    for rule in (
        activations.custom(lambda x: x * torch.sigmoid(2 * x)),
        activations.custom(nn.Softshrink(0.3)),
        activations.Activation("mine", lambda x: np.asarray(x) ** 3, lambda x: 3 * np.asarray(x) ** 2),
    ):
        module = module_of(rule)
        (slope,) = torch.autograd.grad(module(h).sum(), h)
        np.testing.assert_allclose(module(h).detach().numpy(), rule.function(h.detach().numpy()), rtol=1e-12)
        np.testing.assert_allclose(slope.numpy(), rule.derivative(h.detach().numpy()), rtol=1e-12)
        assert module(h.float()).dtype == torch.float32
    assert activation_of(module_of(rule)) == rule


def test_a_module_is_copied_and_the_random_streams_stay() -> None:
    module = nn.Softshrink(0.5)
    rule = activations.get(module)
    module.lambd = 2.0
    assert rule.function(1.0) == 0.5
    torch.manual_seed(1)
    first = torch.rand(1)
    torch.manual_seed(1)
    with pytest.raises(InputError, match="called again"):
        activations.get(nn.Dropout())
    assert torch.rand(1) == first
    assert activations.get(nn.RReLU(0.1, 0.3).eval()).slopes == pytest.approx((0.2, 1.0))


def test_far_out_overflow_is_allowed() -> None:
    naive = activations.custom(lambda h: torch.log(1 + torch.exp(h)))
    assert naive.function(100.0) == pytest.approx(100.0)
    with pytest.raises(InputError, match="NaN at h=1000"):
        naive.derivative(1000.0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: activations.custom(lambda h: 1 / h), "returns inf at h=0"),
        (lambda: activations.custom(torch.sqrt), "returns nan at h=-"),
        (lambda: activations.custom(lambda h: torch.softmax(h, -1)), "not elementwise"),
        (lambda: activations.custom(lambda h: h - h.mean()), "not elementwise"),
        (lambda: activations.custom(lambda h: h.cumsum(0)), "not elementwise"),
        (lambda: activations.custom(nn.LayerNorm(97, elementwise_affine=False)), "cannot be called.*expected input"),
        (lambda: activations.custom(lambda h: h[:-1]), "keep the shape"),
        (lambda: activations.custom(nn.RReLU()), "called again.*eval"),
        (lambda: activations.custom(nn.PReLU()), "has parameters"),
        (lambda: activations.custom(lambda h: torch.tanh(h.float())), "float32 .* must compute in float64"),
        (lambda: activations.custom(lambda h: np.maximum(h, 0)), "cannot be called.*of numpy functions make"),
        (lambda: activations.custom(lambda h: torch.tanh(h.detach())), "is wrong: at h=.*differences"),
        (lambda: activations.custom(lambda a, b: a), "cannot be called.*missing 1 required"),
        (lambda: activations.custom(math.tanh), "cannot be called"),
        (lambda: activations.get(nn.ReLU), r"ReLU is a class; give one of its objects, such as ReLU\(\)"),
        (lambda: activations.custom(torch.round), "more than 200 break points"),
        (lambda: activations.custom(torch.sin, breaks=(math.inf,)), "breaks.*finite"),
    ],
)
def test_bad_functions(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
