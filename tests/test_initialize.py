"""After an initialization every layer that theory covers has the gain asked for, whatever the model is made of."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import epoch0 as e0
from epoch0.initialization import Initialization, initialize
from epoch0.measure.gain import Gain, gain
from epoch0.networks import mlp
from epoch0.networks.nonlinearities import module_of
from init_models import Odd, ResNet, residual_mlp, strided, transformer_like, vgg


def vectors(examples: int = 48) -> Tensor:
    return torch.randn(examples, 100, generator=torch.Generator().manual_seed(3))


def images(examples: int = 8) -> Tensor:
    return torch.randn(examples, 3, 16, 16, generator=torch.Generator().manual_seed(4))


def chain(activation: str) -> nn.Module:
    return mlp([100, 300, 250, 300, 20], activation)


class Custom(nn.Module):
    """An activation that nobody has named."""

    def forward(self, h: Tensor) -> Tensor:
        return h * torch.sigmoid(2 * h) + 0.3 * torch.sin(h)


def custom() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 300), Custom(), nn.Linear(300, 300), Custom(), nn.Linear(300, 20))


CASES = {
    **{f"mlp {name}": (lambda name=name: chain(name), vectors()) for name in ("relu", "tanh", "gelu", "erf", "elu")},
    "mlp custom": (custom, vectors()),
    "mlp softplus": (lambda: chain("softplus"), vectors()),
    "vgg, averages, tanh": (lambda: vgg(nn.Tanh, nn.AvgPool2d), images(4)),
    "vgg, no pools": (lambda: vgg(nn.GELU, None), images(4)),
    "strided": (strided, images(4)),
    "resnet": (lambda: ResNet(2, norm=False, width=24), images(4)),
    "resnet, batch norm": (lambda: ResNet(1), images(4)),
    "residual, relu": (lambda: residual_mlp(3), vectors()),
    "residual, tanh": (lambda: residual_mlp(3, activation=nn.Tanh), vectors()),
    "layer norm": (lambda: transformer_like(3), vectors()),
    "odd spellings": (Odd, vectors()),
}
DRAWS = 5
SLOW = ("mlp gelu", "mlp erf", "mlp softplus", "vgg, no pools", "residual, tanh")
"""Cases that another one is like."""


def build(case: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, x = CASES[case]
    return make(), x


def both_ways(g: Gain) -> np.ndarray:
    return (g.chi_forward + g.chi_backward) / 2


def covered(done: Initialization) -> list[bool]:
    """Layers whose gain theory says: a target, and nothing without a law behind the weights."""
    unlawful = {row.layer for row in done.layers if "no law" in row.status}
    return [value is not None and name not in unlawful for name, value in done.layer_targets.items()]


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) if c in SLOW else c for c in CASES])
def test_theory_meets_the_target_in_the_mean_over_draws(case: str) -> None:
    net, x = build(case)
    chis, targets = [], np.array([])
    for seed in range(DRAWS):
        done = initialize(net, x=x, seed=seed)
        chosen = covered(done)
        targets = np.array([t for t, c in zip(done.layer_targets.values(), chosen, strict=True) if c], dtype=float)
        measured = gain(net, x, directions=2, seed=seed)
        assert [layer.name for layer in measured.layers] == list(done.layer_targets)
        chis.append(both_ways(measured)[chosen])
    assert len(targets) >= (1 if "batch norm" in case else 3)
    off = np.mean(chis, axis=0) - targets
    error = np.std(chis, axis=0, ddof=1) / math.sqrt(DRAWS)
    # the bound of 10 percent is for gross errors; the test for small ones is a
    # t test over independent draws, 1e-4 a layer: about 70 layers in all, one false alarm in 140 fresh sets of seeds.
    # At fan-in n the gain itself is that of theory up to (E Z^2 phi'^2 / E phi'^2 - 1) / n, less than 1.5/n here
    fans = {row.layer: row.fan_in for row in done.layers}
    allowance = [1.5 / fans[name] for name, c in zip(done.layer_targets, chosen, strict=True) if c]
    assert (np.abs(off) < stats.t.ppf(1 - 5e-5, DRAWS - 1) * error + allowance).all(), (off, error)
    assert (np.abs(off) < 0.1 * targets).all(), (off, error)


@pytest.mark.parametrize("case", [*CASES, "vgg, max pools"])
def test_measured_meets_the_target_on_its_batch(case: str) -> None:
    net, x = (vgg(), images()) if case == "vgg, max pools" else build(case)
    done = initialize(net, x=x, how="measured", seed=1)
    measured = gain(net, x, directions=8, seed=7)
    assert case != "vgg, max pools" or done.rounds > 1
    for layer, target in zip(measured.layers, done.layer_targets.values(), strict=True):
        if target is None:
            continue
        # 5 standard errors of this measurement and 2 percent, at which the rounds stop: false alarm < 1e-4 over all
        error = 5 * math.hypot(layer.forward_error, layer.backward_error) / 2
        assert abs((layer.forward + layer.backward) / 2 - target) < error + 0.022 * target, (layer.name, layer.forward)


def test_weight_std_is_the_root_of_the_mean_field_equation() -> None:
    """Against a twin: a fine sum at each example's own mean square, bisection."""
    net, x = mlp([100, 300, 5], "tanh"), vectors() * torch.linspace(0.2, 3, 48)[:, None]
    done = initialize(net, x=x, bias_std=0.3, chi=0.9)
    nodes = np.linspace(-9, 9, 4001)
    mass = np.exp(-(nodes**2) / 2)
    mass = mass / mass.sum()
    square = x.double().square().mean(1).numpy()

    def chi(s: float) -> float:
        h = np.sqrt(0.09 + s**2 * square)[:, None] * nodes
        return s**2 * float((((1 - np.tanh(h) ** 2) ** 2) @ mass).mean())

    low, high = 0.1, 10.0
    for _ in range(60):
        low, high = (low, (low + high) / 2) if chi((low + high) / 2) > 0.9 else ((low + high) / 2, high)
    # the rows take 64 groups of like examples: here each example is its own
    assert done.layers[0].weight_std == pytest.approx(low, rel=1e-6)
    assert done.layers[0].predicted == pytest.approx(0.9, rel=1e-6)
    assert done.layers[0].bias_std == pytest.approx(0.3, rel=1e-6)
    weight = net.get_parameter("0.weight").detach().double()
    assert float(weight.square().mean().sqrt()) * 10 == pytest.approx(low, rel=1e-5)


def test_depth_arrives_at_the_edge_of_chaos_of_theory() -> None:
    done = initialize(mlp([100, *[400] * 25, 10], "tanh"), x=vectors(16))
    # (0.2^2, 1.700796, 0.512079) of the tanh curve; width 400 leaves a few percent
    assert done.layers[-2].weight_std == pytest.approx(math.sqrt(1.700796), rel=0.03)
    assert done.layers[-2].q == pytest.approx(0.512079, rel=0.1)
    assert done.layers[-2].bias_std == pytest.approx(0.2, rel=1e-5)


def test_relu_is_he_and_zero_bias() -> None:
    done = initialize(chain("relu"), x=vectors())
    for row in done.layers[:-1]:
        assert row.weight_std == pytest.approx(math.sqrt(2), rel=1e-9) and row.bias_std == 0
    assert done.layers[-1].weight_std == pytest.approx(1) and done.layers[-1].activation == "none"


@pytest.mark.parametrize("target", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("how", ["theory", "measured"])
def test_any_target(target: float, how: str) -> None:
    net, x = mlp([100, 400, 400, 300], "tanh"), vectors()
    initialize(net, chi=target, x=x, how=how)
    # one draw of width 400: the spread of a layer's gain is about 3 percent by theory
    assert gain(net, x).chi_forward == pytest.approx(np.full(3, target), rel=0.1 if how == "theory" else 0.05)


def test_residual_branches_share_the_target() -> None:
    net, x = residual_mlp(10, 256), vectors()
    done = initialize(net, x=x)
    assert done.blocks == 10 and sum("ends a branch" in row.status for row in done.layers) == 10
    assert gain(net, x).chi_forward[1:-1] == pytest.approx(np.full(10, 1.1), abs=0.02)
    initialize(net, x=x, residual="plain")
    assert gain(net, x).chi_forward[1:-1] == pytest.approx(np.full(10, 2.0), abs=0.15)


def test_a_scale_of_the_users_own_on_the_branch_is_counted() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(200, 200), nn.Linear(200, 200)

        def forward(self, x: Tensor) -> Tensor:
            return x + 0.1 * self.second(torch.relu(self.first(x)))

    net = nn.Sequential(nn.Linear(100, 200), *(Scaled() for _ in range(4)), nn.Linear(200, 3))
    initialize(net, x=vectors())
    assert gain(net, vectors()).chi_forward[1:-1] == pytest.approx(np.full(4, 1.25), abs=0.04)


def test_norms_at_the_ends_of_branches_are_scaled() -> None:
    net, x = ResNet(3), images()
    for block in (*net.layer1, *net.layer2):  # as many users do, which would leave nothing to scale
        nn.init.zeros_(block.bn2.weight)
    done = initialize(net, x=x)
    ends = [name for name in done.norms if name.endswith("weight")]
    assert ends == [f"layer{stage}.{block}.bn2.weight" for stage in (1, 2) for block in range(3)]
    assert all(0.1 < done.norms[name] < 0.6 for name in ends)
    assert all(bool((net.get_parameter(name) == done.norms[name]).all()) for name in ends)
    assert bool((net.bn1.weight == 1).all())
    assert all("norm after it" in row.status for row in done.layers[:-1])
    again = initialize(net, x=x)
    assert again.norms == done.norms  # not multiplied twice


def test_shared_modules_are_set_once() -> None:
    shared = nn.Linear(100, 100)
    net = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(100, 3))
    done = initialize(net, x=vectors())
    assert "uses the weights of 0" in done.layers[1].status
    assert done.layers[0].weight_std == done.layers[1].weight_std
    assert done.layer_targets["0 (2nd use)"] is None
    first = gain(net, vectors()).layers[0]
    assert first.forward == pytest.approx(1, abs=0.08)


def test_tied_transpose() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(100, 300))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x @ self.weight) @ self.weight.t()

    net = Tied()
    done = initialize(net, x=vectors())
    assert [row.name for row in done.layers] == ["weight", "weight"] and "uses the weights" in done.layers[1].status
    assert float(net.weight.detach().square().mean().sqrt()) * 10 == pytest.approx(done.layers[0].weight_std, rel=1e-5)


def test_every_named_activation_has_an_edge() -> None:
    x = vectors(16)
    for name in e0.activations.KNOWN:
        if name == "identity":
            continue
        net = nn.Sequential(nn.Linear(100, 500), module_of(name), nn.Linear(500, 500), module_of(name))
        done = initialize(net, x=x)
        assert all(row.predicted == pytest.approx(1, rel=1e-6) for row in done.layers), name
        # sigmoid and its like square a few large slopes: a draw of width 500 spreads up to 10 percent
        assert gain(net, x, directions=4).chi_forward == pytest.approx(np.ones(2), abs=0.25), name
