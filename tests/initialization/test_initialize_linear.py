"""Averages over places, which weights do not make up for, and paddings that repeat entries of the image."""

import functools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import epoch0 as e0
from epoch0.initialization import initialize as set_weights
from epoch0.initialization.plan import noise_gains
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
            exact = noise_gains(record, (pad,), profile)[1]
        noise = x * profile.sqrt()
        after, before = functional.pad(noise, (3, 1), mode=mode).square().mean(), noise.square().mean()
        assert exact == pytest.approx(float(after / before), rel=0.03)  # 5 standard errors of a sample of 96,000
