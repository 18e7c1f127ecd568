"""After an initialization every layer that theory covers has the gain asked for, whatever the model is made of."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import epoch0 as e0
from epoch0.initialization import initialize
from epoch0.measure.gain import gain
from epoch0.networks import mlp
from epoch0.networks.nonlinearities import module_of
from init_models import CASES, ResNet, build, chain, images, residual_mlp, vectors, vgg

FAST = ("mlp tanh", "vgg, averages, tanh", "resnet, batch norm", "layer norm", "odd spellings", "vgg, max pools")
"""Cases measured every time; the others are like one of them."""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "case", [c if c in FAST else pytest.param(c, marks=pytest.mark.slow) for c in (*CASES, "vgg, max pools")]
)
def test_measured_meets_the_target_on_its_batch(case: str) -> None:
    net, x = (vgg(), images()) if case == "vgg, max pools" else build(case)
    done = initialize(net, x=x, method="measured", seed=1)
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
    done = initialize(mlp([100, *[400] * 25, 10], "tanh"), x=vectors(16), weights="gaussian")
    # (0.2^2, 1.700796, 0.512079) of the tanh curve; width 400 leaves a few percent
    assert done.layers[-2].weight_std == pytest.approx(math.sqrt(1.700796), rel=0.03)
    assert done.layers[-2].q == pytest.approx(0.512079, rel=0.1)
    assert done.layers[-2].bias_std == pytest.approx(0.2, rel=1e-5)


def test_relu_is_he_and_zero_bias() -> None:
    done = initialize(chain("relu"), x=vectors())
    for row in done.layers[:-1]:
        assert row.weight_std == pytest.approx(math.sqrt(2), rel=1e-9) and row.bias_std == 0
    assert done.layers[-1].weight_std == pytest.approx(1) and done.layers[-1].activation == "none"


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("how", ["theory", "measured"])
def test_any_target(target: float, how: str) -> None:
    net, x = mlp([100, 400, 400, 300], "tanh"), vectors()
    initialize(net, chi=target, x=x, method=how)
    # one draw of width 400: the spread of a layer's gain is about 3 percent by theory
    assert gain(net, x).chi_forward == pytest.approx(np.full(3, target), rel=0.1 if how == "theory" else 0.05)


@pytest.mark.slow
def test_residual_branches_share_the_target() -> None:
    net, x = residual_mlp(10, 256), vectors(16)
    done = initialize(net, x=x)
    assert done.blocks == 10 and sum("ends a branch" in row.status for row in done.layers) == 10
    assert gain(net, x).chi_forward[1:-1] == pytest.approx(np.full(10, 1.1), abs=0.02)


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
    done = initialize(net, x=x, weights="gaussian")
    ends = [name for name in done.norms if name.endswith("weight")]
    assert ends == [f"layer{stage}.{block}.bn2.weight" for stage in (1, 2) for block in range(3)]
    assert all(0.1 < done.norms[name] < 0.6 for name in ends)
    assert all(bool((net.get_parameter(name) == done.norms[name]).all()) for name in ends)
    assert bool((net.bn1.weight == 1).all())
    assert all("norm after it" in row.status for row in done.layers[:-1])
    again = initialize(net, x=x, weights="gaussian")
    assert again.norms == done.norms  # not multiplied twice


def test_shared_modules_are_set_once() -> None:
    shared = nn.Linear(100, 100)
    net = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(100, 3))
    done = initialize(net, x=vectors(), weights="gaussian")
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


@pytest.mark.slow
def test_every_named_activation_has_an_edge() -> None:
    x = vectors(8)
    for name in e0.activations.KNOWN:
        if name == "identity":
            continue
        net = nn.Sequential(nn.Linear(100, 300), module_of(name), nn.Linear(300, 300), module_of(name))
        done = initialize(net, x=x, weights="gaussian")
        assert all(row.predicted == pytest.approx(1, rel=1e-6) for row in done.layers), name
        # sigmoid and its like square a few large slopes: a draw of width 300 spreads up to 10 percent
        assert gain(net, x, directions=4).chi_forward == pytest.approx(np.ones(2), abs=0.25), name


class Highway(nn.Module):
    """A layer that a gate mixes with its input, nearly shut at first (Srivastava, Greff, Schmidhuber 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.gate(x))
        return share * self.layer(x).relu() + (1 - share) * x


def test_gates_stay_as_they_are() -> None:
    """A sigmoid that multiplies another signal lets a share of it through: at the edge of chaos it is open or shut."""
    torch.manual_seed(0)
    digits = e0.data.load("digits")
    x, y = torch.from_numpy(digits.inputs("standard"))[:256].float(), torch.from_numpy(digits.labels)[:256].long()
    net = nn.Sequential(nn.Linear(64, 64), *(Highway(64) for _ in range(10)), nn.Linear(64, 10))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    done = initialize(net, x=x)
    after = dict(net.named_parameters())
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {f"{i}.gate.{part}" for i in range(1, 11) for part in ("weight", "bias")}
    assert sum(layer.status.startswith("kept: a gate") for layer in done.layers) == 10
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(60):
        adam.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        adam.step()
    assert loss.item() < 0.3  # 2.4 where the gates are set, too
