"""Training one layer alone: against a plain loop over that layer's parameters, and everything else to the bit."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.seeds import generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.raghu import train_one_layer

STEPS = {"batch_size": 16, "learning_rate": 0.05}


def examples(count: int = 48, size: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(count, size, generator=generator(5))
    return x, x[:, :3].argmax(dim=1)


def bits(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(before: dict[str, torch.Tensor], model: nn.Module) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


@pytest.mark.parametrize("layer", [0, "2", -1])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_same_bits_as_a_plain_loop(layer: int | str, optimizer: str) -> None:
    """The loop's own order of examples comes from its seed; a run over everything in one batch needs none of it."""
    x, y = examples()
    net = mlp([6, 8, 8, 3], "hardtanh", seed=1).double()
    twin, name = deepcopy(net), {0: "0", "2": "2", -1: "4"}[layer]
    done = train_one_layer(net, layer, (x.double(), y), steps=5, batch_size=48, learning_rate=0.05, optimizer=optimizer)
    own = list(twin.get_submodule(name).parameters())
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    steps = kind(own, lr=0.05)
    for _ in range(5):
        steps.zero_grad()
        F.cross_entropy(twin(x.double()), y).backward()
        steps.step()
    assert done.steps == 5 and done.model is net
    for key, tensor in twin.state_dict().items():
        assert torch.allclose(net.state_dict()[key], tensor, rtol=0, atol=1e-12), key
    with torch.no_grad():
        start = F.cross_entropy(mlp([6, 8, 8, 3], "hardtanh", seed=1)(x), y)
        assert F.cross_entropy(net(x.double()), y) < 0.999 * start


class Mixed(nn.Module):
    """Batch norm on both sides of every layer, instance norm's statistics, dropout, a shortcut, spectral norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.second, self.other = nn.Conv1d(4, 4, 3, padding=1), nn.InstanceNorm1d(4, track_running_stats=True)
        self.drop, self.head = nn.Dropout(0.3), spectral_norm(nn.Linear(24, 3))
        self.register_buffer("never", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x[:, None])).relu()
        return self.head(self.drop((x + self.other(self.second(x)).relu()).flatten(1)))


@pytest.mark.parametrize("layer", ["first", "second"])
def test_everything_else_to_the_bit(layer: str) -> None:
    torch.manual_seed(0)
    net = Mixed()
    net.norm.eval()
    net.head.bias.requires_grad_(False)
    net.second.weight.grad = torch.ones_like(net.second.weight)
    kept = net.second.weight.grad
    flags, modes = [p.requires_grad for p in net.parameters()], [m.training for m in net.modules()]
    before = bits(net)
    x, y = examples()
    seen: list[bool] = []
    look = [lambda step, model, row: seen.append(model is net)]
    done = train_one_layer(net, layer, (x, y), epochs=3, evaluate=Accuracy(x, y), callbacks=look, **STEPS)
    assert changed(before, net) == {f"{layer}.weight", f"{layer}.bias"}
    assert [p.requires_grad for p in net.parameters()] == flags
    assert [m.training for m in net.modules()] == modes
    assert not any(m._forward_pre_hooks for m in net.modules())
    assert seen and all(seen) and len(done.history) == 4
    if layer == "first":
        assert net.second.weight.grad is kept and bool((kept == 1).all())


def test_frozen_norms_use_the_statistics_they_have_and_dropout_drops() -> None:
    """With running statistics 0 and 1 a frozen batch norm is the identity up to eps: as if it were not there."""
    x, y = examples()
    torch.manual_seed(1)
    linear = [nn.Linear(6, 8), nn.Linear(8, 3)]
    normed = nn.Sequential(linear[0], nn.BatchNorm1d(8, eps=0.0), nn.Tanh(), linear[1])
    plain = nn.Sequential(deepcopy(linear[0]), nn.Tanh(), deepcopy(linear[1]))
    for net in (normed, plain):
        train_one_layer(net, 0, (x, y), steps=6, seed=3, **STEPS)
    assert torch.allclose(normed[0].weight, plain[0].weight, rtol=0, atol=1e-6)
    results = []
    for rate in (0.0, 0.5):
        net = nn.Sequential(deepcopy(plain[0]), nn.Dropout(rate), deepcopy(plain[2]))
        train_one_layer(net, 0, (x, y), steps=3, seed=3, **STEPS)
        results.append(net[0].weight.detach())
    assert not torch.allclose(*results, atol=1e-4)


def test_a_parametrized_layer_trains_what_its_weight_is_made_of() -> None:
    x, y = examples()
    net = nn.Sequential(weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3))
    before = bits(net)
    train_one_layer(net, 0, (x, y), steps=3, **STEPS)
    assert changed(before, net) == {
        "0.bias", "0.parametrizations.weight.original0", "0.parametrizations.weight.original1"
    }  # fmt: skip


def test_a_frozen_layer_can_be_named_and_stays_frozen_for_others() -> None:
    x, y = examples()
    net = mlp([6, 8, 3], seed=0)
    net.requires_grad_(False)
    before = bits(net)
    train_one_layer(net, 1, (x, y), steps=2, **STEPS)
    assert changed(before, net) == {"2.weight", "2.bias"}
    assert not any(p.requires_grad for p in net.parameters())


def test_flags_come_back_after_a_failure() -> None:
    x, y = examples()
    net = mlp([6, 8, 3], seed=0)

    def fails(model: nn.Module) -> dict[str, float]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        train_one_layer(net, 0, (x, y), steps=2, evaluate=fails, **STEPS)
    assert all(p.requires_grad for p in net.parameters())
    assert not any(m._forward_pre_hooks for m in net.modules())


@pytest.mark.parametrize(
    ("layer", "words"),
    [("0x", "there is no layer '0x'"), ("1", "ReLU, without a weight"), (7, "2 layers with weights")],
)
def test_refusals(layer: int | str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        train_one_layer(mlp([6, 8, 3], seed=0), layer, examples(), steps=1)


def test_a_near_miss_is_told() -> None:
    net = nn.Sequential()
    net.add_module("encoder", nn.Linear(6, 6))
    net.add_module("head", nn.Linear(6, 3))
    with pytest.raises(InputError, match="encoder"):
        train_one_layer(net, "encodr", examples(), steps=1)


def test_shared_weights_are_refused() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    net[2].weight = net[0].weight
    with pytest.raises(InputError, match=r"shares its parameters with '2\.weight'"):
        train_one_layer(net, 0, examples(), steps=1)
    assert all(p.requires_grad for p in net.parameters())


def test_loss_falls_and_the_layer_decides_what_can_be_fitted() -> None:
    """Only the last of three layers: a linear readout of random features fits 3 classes in 6 dimensions well."""
    x, y = examples(200)
    net = mlp([6, 40, 40, 3], "hardtanh", seed=2)
    done = train_one_layer(net, -1, (x, y), epochs=30, evaluate=Accuracy(x, y), batch_size=20, learning_rate=0.2)
    assert done.history[-1]["accuracy"] > 0.85 > 0.6 > done.history[0]["accuracy"]
    assert math.isfinite(done.history[-1]["loss"])
