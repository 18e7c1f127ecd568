"""The remedy: factors that bring gains to 1, applied to a copy, and that copy measured from scratch."""

import copy

import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup
from epoch0.diagnosis.remedy import scaled
from epoch0.measure.gain import gain


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(64, 32, generator=torch.Generator().manual_seed(1))


def treated(net: nn.Module, found: Checkup) -> nn.Module:
    """A copy with each layer's weight multiplied by its factor; layer names are module names here."""
    copied = copy.deepcopy(net)
    with torch.no_grad():
        for layer in found.layers:
            if layer.factor is not None:
                copied.get_parameter(f"{layer.name}.weight").mul_(layer.factor)
    return copied


def conv_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.ELU(),
        nn.Conv2d(12, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


CASES = {
    "relu": (lambda: e0.networks.mlp([32, 48, 64, 40, 5], weights=e0.Gaussian(0.6)), None),
    "relu with biases": (lambda: e0.networks.mlp([32, 48, 48, 5], "relu", e0.Gaussian(0.6), e0.Gaussian(0.5)), None),
    "tanh": (lambda: e0.networks.mlp([32, *[64] * 6, 5], "tanh", e0.Gaussian(0.7), e0.Gaussian(0.2)), None),
    "saturated tanh": (lambda: e0.networks.mlp([32, *[64] * 4, 5], "tanh", e0.Gaussian(6.0)), None),
    "hardtanh, too large": (lambda: e0.networks.mlp([32, *[64] * 4, 5], "hardtanh", e0.Gaussian(3.0)), None),
    "convolutions": (conv_net, (1, 8, 8)),
}


@pytest.mark.parametrize("case", CASES)
def test_factors_bring_every_gain_to_one(case: str, x: torch.Tensor) -> None:
    build, shape = CASES[case]
    net = build()
    batch = x if shape is None else torch.randn(32, *shape, generator=torch.Generator().manual_seed(2))
    found = checkup(net, batch)
    assert all(layer.factor is not None and layer.factor_note == "" for layer in found.layers)
    after = gain(treated(net, found), batch, directions=32, seed=11)
    for layer in after.layers:
        # 5 standard errors of the search (8 directions) and of this measurement: false alarm < 1e-4 over all cases
        assert abs(layer.forward - 1) < 5 * layer.forward_error * (1 + 2) + 0.01, (layer.name, layer.forward)
    assert checkup(treated(net, found), batch).trains


def test_homogeneous_factor_is_one_over_root_chi(x: torch.Tensor) -> None:
    found = checkup(e0.networks.mlp([32, 64, 64, 5], weights=e0.Gaussian(0.7)), x)
    for layer in found.layers:
        assert layer.factor == pytest.approx(layer.forward_gain**-0.5, rel=5e-3)


def test_batch_norm_follows_no_scale(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(10):
        layers += [nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(32, 5))
    found = checkup(net, x)
    assert all(layer.factor is None and "undoes any scale" in layer.factor_note for layer in found.layers[:-1])
    assert found.phase == "chaotic" and found.backward.log_gain > 2  # 9 log(pi / (pi - 1)) = 3.4 and the readout's -1
    text = " ".join(found.advice)
    assert "undoes any scale" in text and "1.467" in text and "fewer layers" in text
    # with the running statistics of a fresh network (mean 0, variance 1) the norm is the identity and a scale works
    assert all(layer.factor is not None for layer in checkup(net, x, batch_norm="eval", directions=3).layers)


class Block(nn.Module):
    """x + F(x), F of two layers."""

    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(width, width), nn.Linear(width, width), scale
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, std=(2 / width) ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.second(torch.relu(self.first(x)))


def residual(blocks: int, scale: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(32, scale) for _ in range(blocks)], nn.Linear(32, 5))


def test_residual_blocks_get_the_square_root_of_their_number(x: torch.Tensor) -> None:
    found = checkup(residual(12), x, directions=4)
    assert found.outcome == "exploding"
    assert all(layer.factor is None and "shortcut plus" in layer.factor_note for layer in found.layers[:-1])
    assert any("1/sqrt(12) = 0.289" in line for line in found.advice)
    tamed = checkup(residual(12, 12**-0.5), x, directions=4)
    assert tamed.trains and tamed.forward.log_gain < 0.3 * found.forward.log_gain


def test_branches_are_tried_by_measuring(x: torch.Tensor) -> None:
    from epoch0.diagnosis.remedy import try_branches
    from epoch0.tracing.layers import layers
    from epoch0.tracing.tape import tape

    def total(net: nn.Module) -> tuple[float, float]:
        with tape(net, x) as record:
            tried = try_branches(record, layers(record), 8, 0)
            assert tried is not None and tried.blocks == 8
            return tried.before, tried.after

    before, after = total(residual(8))
    directly = total(residual(8, 8**-0.5))[0]
    assert after == pytest.approx(directly, abs=1e-4)
    assert before > 3 * after


def test_shared_weights_move_together(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    shared = nn.Linear(32, 32)
    found = checkup(nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(32, 3)), x)
    factors = [layer.factor for layer in found.layers[:3]]
    assert factors[0] == factors[1] == factors[2] and factors[0] is not None
    assert any("use the same weights" in line for line in found.advice)


def test_scaled_gives_the_model_back_to_the_bit() -> None:
    net = e0.networks.mlp([4, 3, 2])
    before = {name: p.clone() for name, p in net.named_parameters()}
    with pytest.raises(KeyboardInterrupt), scaled(net, {"0.weight": 3.0}):
        assert torch.equal(net.get_parameter("0.weight"), 3.0 * before["0.weight"])
        raise KeyboardInterrupt
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_norm_undoes_the_scale_of_the_weights_before_it(norm_first: bool, x: torch.Tensor) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(3):
        pair = [nn.LayerNorm(32), nn.Linear(32, 32)]
        layers += [*(pair if norm_first else pair[::-1]), nn.ReLU()]
    found = checkup(nn.Sequential(*layers, nn.Linear(32, 4)), x, directions=4)
    refused = [layer for layer in found.layers if "undoes any scale" in layer.factor_note]
    # a layer ends where the next weights begin, so the norm of the next block closes it; only the last has none
    assert len(refused) == (2 if norm_first else 3)
