"""Averages over places, which weights do not make up for, and norms with running statistics, which are fixed maps."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor, nn
from torch.nn import functional

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.initialization import initialize as set_weights
from epoch0.initialization.plan import stretch
from epoch0.initialization.scale import squared_slope
from epoch0.measure.gain import gain
from epoch0.tracing.tape import tape
from init_models import ResNet, images, preactivation_resnet, residual_mlp, vectors

initialize = functools.partial(set_weights, weights="gaussian")
"""What is drawn: the law of the textbook, with nothing that stays or makes up for sizes."""


def pooled(pool: type[nn.Module] = nn.AvgPool2d) -> nn.Sequential:
    """A VGG whose places are averaged before the first, behind the second and behind the last convolution."""
    return nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), pool(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64),
        nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


class MeanOfPlaces(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h.mean((2, 3))


def test_weights_do_not_make_up_for_averages() -> None:
    net, x = pooled(), images(4)
    done = initialize(net, x=x)
    assert [row.weight_std for row in done.layers] == pytest.approx([math.sqrt(2)] * 4 + [1], rel=1e-6)
    assert [row.target for row in done.layers] == [1.0] * 5
    assert [row.predicted for row in done.layers] == pytest.approx([1.0] * 5, rel=1e-6)
    shares = [1 / 4, 1 / 4, 1 / 16, 1.0, 1.0]  # of a gain that the averages pass
    assert list(done.layer_targets.values()) == pytest.approx(shares, rel=1e-9)
    for row, share in zip(done.layers, shares, strict=True):
        assert (row.status == "set") == (share == 1)
    assert "averages pass 0.06" in done.layers[2].status and "leaves out" in done.layers[2].status
    measured = [gain(net, x, directions=4).chi_forward for seed in range(4) if initialize(net, x=x, seed=seed)]
    # a layer's gain scatters by 10 percent from draw to draw, four draws' mean by 5
    assert np.mean(measured, axis=0) == pytest.approx(np.array(shares), rel=0.2)


def test_signals_keep_their_size_before_and_behind_a_global_average() -> None:
    sizes, parts = [], list(pooled(nn.MaxPool2d))
    for seed in range(8):
        net = nn.Sequential(*parts)
        initialize(net, x=images(), seed=seed)
        with torch.no_grad():
            sizes.append([float(nn.Sequential(*parts[:n])(images()).square().mean()) for n in (2, 5, 8, 13)])
    first, second, before, end = np.mean(sizes, axis=0)
    # ReLU halves the mean square, max pools raise it, a mean over places lowers it; over 8 draws 20 percent error
    assert 0.3 < second / first < 0.8 and 0.8 < before / second < 4 and end / before < 1.2


@pytest.mark.parametrize("how", ["theory", "measured"])
def test_a_resnet_with_a_global_average(how: str) -> None:
    net, x = ResNet(2, norm=False), images()
    done = initialize(net, x=x, method=how)
    stds = {row.name: row.weight_std for row in done.layers}
    rel = 1e-6 if how == "theory" else 0.15
    for name in ("conv1.weight", "layer1.0.conv1.weight", "layer2.1.conv1.weight"):
        assert stds[name] == pytest.approx(math.sqrt(2), rel=rel)
    assert stds["layer2.1.conv2.weight"] == pytest.approx(0.5, abs=0.1)  # a branch of four
    with torch.no_grad():
        before = nn.Sequential(net.conv1, nn.ReLU(), net.layer1, net.layer2)(x)
    assert float(before.square().mean()) < 8 * float(x.square().mean())


@pytest.mark.slow
def test_a_block_without_an_activation_behind_it_keeps_its_target_behind_an_average() -> None:
    class Sum(nn.Module):
        def __init__(self, project: bool) -> None:
            super().__init__()
            self.conv, self.last = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 1)
            self.beside = nn.Conv2d(32, 32, 1) if project else nn.Identity()

        def forward(self, h: Tensor) -> Tensor:
            return self.beside(h) + self.last(torch.relu(self.conv(h)))

    for project, tail in ((False, ()), (True, ()), (True, (nn.ReLU(),))):
        head = (nn.Conv2d(3, 32, 3, padding=1), Sum(project), *tail)
        net = nn.Sequential(*head, MeanOfPlaces(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
        done = initialize(net, x=images())
        assert list(done.layer_targets.values())[1] == pytest.approx(2 / 256, rel=1e-9)
        chis = []
        for seed in range(4):
            initialize(net, x=images(), seed=seed)
            chis.append(gain(net, images(), directions=2, seed=seed).chi_forward[1])
        assert np.mean(chis) == pytest.approx(2 / 256, rel=0.15)


def test_a_norm_takes_out_what_an_average_behind_it_would_see() -> None:
    """With 4 examples batch norm removes a quarter of the mean over places of its own output."""
    for norm in (True, False):
        done = initialize(preactivation_resnet(norm), x=images(4))
        last = done.layer_targets["3"]
        assert (last is None) == norm
        assert last is None or last == pytest.approx(4 / 3 / 64, rel=1e-9)
        assert any("average behind 3" in note for note in done.notes) == norm
    fixed = initialize(preactivation_resnet(), x=images(4), batch_norm="eval")
    assert fixed.layer_targets["3"] == pytest.approx(4 / 3 / 64, rel=1e-9)


def test_an_average_within_a_branch_is_made_up_for() -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(24, 24, 3, padding=1)

        def forward(self, h: Tensor) -> Tensor:
            return h + nn.functional.avg_pool2d(self.conv(torch.relu(h)), 3, 1, 1)

    net = nn.Sequential(nn.Conv2d(3, 24, 3, 2, padding=1), Inside(), nn.Flatten(), nn.Linear(1536, 5))
    done = initialize(net, x=images(4))
    assert "makes up for averages" in done.layers[1].status and done.layers[1].target == 1
    chis = []
    for seed in range(8):
        initialize(net, x=images(4), seed=seed)
        chis.append(gain(net, images(4), directions=2, seed=seed).chi_forward[1])
    # standard error of the mean of eight draws: 3 percent
    assert np.mean(chis) == pytest.approx(2, rel=0.15)


def test_measured_meets_the_target_over_k() -> None:
    net, x = pooled(nn.MaxPool2d), images(16)
    done = initialize(net, x=x, method="measured")
    targets = list(done.layer_targets.values())
    assert targets == pytest.approx([1 / 4, 1, 1 / 16, 1, 1], rel=1e-9)
    found = gain(net, x, directions=16, seed=3)
    for layer, target in zip(found.layers, targets, strict=True):
        assert target is not None
        # 4 standard errors here and 3 where the rounds stop: false alarm below 1e-3 over all
        assert abs(layer.forward - target) < 8 * layer.forward_error + 0.022 * target, layer.name
    assert [row.measured for row in done.layers] == pytest.approx([1.0] * 5, rel=0.2)


ACTIVATIONS = ("relu", "tanh", "gelu", "elu", "hardtanh", "leaky_relu", "softplus", "abs")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_mean_squared_slope_about_a_mean_against_adaptive_quadrature(name: str) -> None:
    rule = e0.activations.get(name)
    for mean, q in ((0.0, 1.0), (0.7, 0.2), (-1.3, 4.0), (2.5, 1e-3), (0.4, 400.0)):
        root = math.sqrt(q)
        cuts = sorted({-9.0, 9.0, *(np.clip((np.array([*rule.breaks, -2, 0, 2]) - mean) / root, -9, 9).tolist())})

        def density(z: float, mean: float = mean, root: float = root) -> float:
            slope = float(rule.derivative(np.array([mean + root * z]))[0])
            return slope**2 * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

        pieces = itertools.pairwise(cuts)
        twin = sum(integrate.quad(density, a, b, epsabs=1e-12, limit=200)[0] for a, b in pieces)
        assert float(squared_slope(rule, np.array(mean), np.array(q))) == pytest.approx(twin, abs=1e-8)


def trained(net: nn.Module) -> nn.Module:
    """Norms with parameters and statistics as training leaves them."""
    source = torch.Generator().manual_seed(9)
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 2, generator=source)
            nn.init.normal_(module.bias, std=0.5, generator=source)
            module.running_mean.normal_(std=0.5, generator=source)
            module.running_var.uniform_(0.5, 3, generator=source)
    return net


def normed() -> nn.Sequential:
    """Norms before activations, with and without a group, before none, and behind one."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, groups=2), nn.BatchNorm2d(64), nn.Tanh(),
        nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(4096, 200), nn.ReLU(), nn.BatchNorm1d(200), nn.Linear(200, 100),
    )  # fmt: skip


TARGETS = [1.0, 1.0, 0.25, 1.0, 1.0]


@pytest.mark.slow
def test_running_statistics_are_a_fixed_map_in_theory() -> None:
    net, x = trained(normed()), images(4)
    chis = []
    for seed in range(6):
        done = initialize(net, x=x, batch_norm="eval", seed=seed)
        chis.append(gain(net, x, batch_norm="eval", directions=2, seed=seed).chi_forward)
    assert list(done.layer_targets.values()) == pytest.approx(TARGETS, rel=1e-9)
    assert [row.predicted for row in done.layers] == pytest.approx([1.0] * 5, rel=1e-6)
    assert "counts the fixed norm" in done.layers[0].status
    # standard error of the mean of six draws: about 3 percent where it is largest
    assert np.mean(chis, axis=0) == pytest.approx(np.array(TARGETS), rel=0.12)


@pytest.mark.slow
def test_running_statistics_measured() -> None:
    net, x = trained(normed()), images(8)
    done = initialize(net, x=x, batch_norm="eval", method="measured")
    found = gain(net, x, batch_norm="eval", directions=16, seed=5)
    for layer, target in zip(found.layers, done.layer_targets.values(), strict=True):
        assert target is not None
        assert abs(layer.forward - target) < 8 * layer.forward_error + 0.022 * target, layer.name
    train = initialize(trained(normed()), x=x, batch_norm="train", method="measured")
    assert train.layer_targets["0"] is None and "the norm after it" in train.layers[0].status


def test_a_fixed_norm_scales_the_weights_before_it() -> None:
    """ReLU without offsets: weight_std^2 mean(gamma^2/(var + eps))/2 = 1."""
    net = nn.Sequential(nn.Linear(100, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 10))
    nn.init.uniform_(net[1].weight, 0.5, 3, generator=torch.Generator().manual_seed(1))
    net[1].running_var.fill_(4.0)
    gamma = net[1].weight.detach().clone()
    done = initialize(net, x=vectors(), batch_norm="eval")
    share = float((gamma.double().square() / (4 + 1e-5)).mean())
    assert done.layers[0].weight_std == pytest.approx(math.sqrt(2 / share), rel=1e-6)
    assert torch.equal(net[1].weight, gamma) and done.layer_targets["0"] == 1
    assert initialize(net, x=vectors()).layer_targets["0"] is None


def test_a_fixed_norm_that_passes_nothing_is_told() -> None:
    net = nn.Sequential(nn.Linear(100, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 10))
    nn.init.zeros_(net[1].weight)
    with pytest.raises(InputError, match=r"layer '0'.*nothing passes through it"):
        initialize(net, x=vectors(), batch_norm="eval")


@pytest.mark.parametrize("how", [pytest.param("theory", marks=pytest.mark.slow), "measured"])
def test_blocks_that_end_in_fixed_norms(how: str) -> None:
    net, x = trained(ResNet(2)), images(4)
    done = initialize(net, x=x, batch_norm="eval", method=how)
    assert len([name for name in done.norms if name.endswith("weight")]) == 4
    found = gain(net, x, batch_norm="eval", directions=8, seed=2)
    known = {name: target for name, target in done.layer_targets.items() if target is not None}
    assert known == pytest.approx({"conv1": 1.0, "layer2.0": 1.25, "fc": 1.0})
    rel = 0.25 if how == "theory" else 0.08  # one draw of width 32
    for layer in found.layers:
        if layer.name in known:
            assert layer.forward == pytest.approx(known[layer.name], rel=rel), layer.name
    plain = initialize(net, x=x, batch_norm="eval", method=how, residual="plain")
    assert not plain.norms and sum("ends a branch" in row.status for row in plain.layers) == 4


@pytest.mark.slow
def test_the_page_about_averages_agrees_with_the_checkup() -> None:
    """What the targets leave out is what the checkup leaves out of its judgement."""
    net, x = pooled(), images()
    done = initialize(net, x=x)
    found = e0.checkup(net, x, directions=2)
    for row, target in zip(found.layers, done.layer_targets.values(), strict=True):
        assert target == pytest.approx(1 / row.averaged, rel=1e-9)
    net = residual_mlp(1, 16)
    assert all(layer.averaged == 1 for layer in e0.checkup(net, vectors(), directions=2).layers)


@pytest.mark.parametrize("padding", ["circular", "reflect", "replicate"])
def test_padding_with_entries_of_the_image_is_no_estimate(padding: str) -> None:
    """It only repeats entries, so sigma_w of a ReLU network is sqrt(2) to all digits, not to those of a sample."""
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, padding_mode=padding), nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1, padding_mode=padding), nn.ReLU(), nn.Conv2d(6, 2, 3),
    )  # fmt: skip
    done = initialize(net, x=torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0)), seed=0)
    found = [row.weight_std for row in done.layers[:2]]
    assert found[1] == pytest.approx(2**0.5, rel=1e-7)
    if padding == "circular":  # the others show these images' borders more often than their middles, or less
        assert found[0] == pytest.approx(2**0.5, rel=1e-7)


def test_the_stretch_of_padding_is_that_of_noise() -> None:
    class Padded(nn.Module):
        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode, self.out = mode, nn.Linear(40, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.relu(functional.pad(x, (3, 1), mode=self.mode)).flatten(1))

    profile = torch.linspace(0.1, 2.0, 6)
    x = torch.randn(4000, 4, 6, generator=torch.Generator().manual_seed(0))
    for mode in ("constant", "circular", "reflect"):
        with tape(Padded(mode), x[:2]) as record:
            pad = record.ops[0]
            assert pad.name == "pad"
            exact = stretch(record, (pad,), profile)[1]
        noise = x * profile.sqrt()
        after, before = functional.pad(noise, (3, 1), mode=mode).square().mean(), noise.square().mean()
        assert exact == pytest.approx(float(after / before), rel=0.03)  # 5 standard errors of a sample of 96,000
