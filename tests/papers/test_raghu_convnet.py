"""The conv net of Raghu's figures: its layers as the paper numbers them, its weights as it draws them, bad fields."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from epoch0.papers.raghu.convnet import LABELS, LAYERS, ConvNet
from epoch0.train.raghu import TrajectoryRegularization

SMALL = ConvNet(channels=(8, 8, 16, 16, 16), hidden=(64, 32), colours=1, size=8)


def test_layers_are_the_papers() -> None:
    """Layers 3 and 7 pool (Figure 4), the last hidden layer halves the neurons (Figure 8), ten layers in all."""
    assert len(LAYERS) == 10 and [place for place, layer in enumerate(LAYERS, 1) if layer.kind == "pooling"] == [3, 7]
    assert [layer.kind for layer in LAYERS[-4:]] == ["pooling", "linear", "linear", "linear"]
    assert tuple(layer.label for layer in LAYERS) == LABELS
    net = SMALL.build(0)
    shapes = {}
    for name, module in net.named_children():
        module.register_forward_hook(lambda m, i, out, name=name: shapes.update({name: tuple(out.shape[1:])}))
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    order = list(dict(net.named_children()))
    places = [order.index(layer.output) for layer in LAYERS]
    assert places == sorted(places)
    assert [shapes[layer.output] for layer in LAYERS] == [
        (8, 8, 8), (8, 8, 8), (8, 4, 4), (16, 4, 4), (16, 4, 4), (16, 4, 4), (16, 2, 2), (64,), (32,), (10,)
    ]  # fmt: skip
    standard = ConvNet()
    assert standard.hidden[0] == 2 * standard.hidden[1] == standard.channels[-1] * (32 // 4) ** 2
    assert standard.build(0)(torch.zeros(1, *standard.inputs)).shape == (1, 10)


@pytest.mark.parametrize("variance", [2.0, 8.0])
def test_weights_have_the_stated_variance(variance: float) -> None:
    """fan_in times the mean square is sigma_w^2 within 5 standard errors of a chi-square; false alarm below 1e-5."""
    net = replace(ConvNet(), variance=variance).build(3)
    for name in ("conv1", "conv3", "fc1", "output"):
        weight = net.get_submodule(name).weight.detach().double()
        found = float(weight.square().mean()) * weight[0].numel()
        assert abs(found / variance - 1) < 5 * math.sqrt(2 / weight.numel()), name
        assert torch.equal(net.get_submodule(name).bias, torch.zeros(len(weight)))


def test_draw_is_named_by_the_seed_alone() -> None:
    with_norm = replace(SMALL, norm="batch").build(5)
    one, same, other = SMALL.build(5), SMALL.build(5), SMALL.build(6)
    assert torch.equal(one.conv2.weight, same.conv2.weight)
    assert torch.equal(one.fc2.weight, with_norm.fc2.weight)
    assert not torch.equal(one.conv2.weight, other.conv2.weight)


def test_batch_norm_stands_before_every_hidden_relu() -> None:
    net = replace(SMALL, norm="batch").build(0)
    order = list(dict(net.named_children()))
    relus = [name for name in order if name.startswith("relu")]
    assert len(relus) == 7
    for name in relus:
        norm = net.get_submodule(order[order.index(name) - 1])
        assert isinstance(norm, nn.BatchNorm2d | nn.BatchNorm1d)
        assert net.get_submodule(order[order.index(name) - 2]).bias is None
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 1, 8, 8)).astype(np.float32))
    hidden = net[: order.index("norm6") + 1](x)
    assert torch.allclose(hidden.mean(0), torch.zeros(64), atol=1e-5)


def test_trajectory_regularization_stands_where_batch_norm_does() -> None:
    batch, trajectory = (list(replace(SMALL, norm=norm).build(0).named_children()) for norm in ("batch", "trajectory"))
    assert [name for name, _ in batch] == [name for name, _ in trajectory]
    kinds = {type(module) for name, module in trajectory if name.startswith("norm")}
    assert kinds == {TrajectoryRegularization}
    assert dict(trajectory)["conv1"].bias is not None  # it takes no mean away
