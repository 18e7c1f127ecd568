"""Raghu's convolutional network (sections 2.2, 3), and Figure 4: an arc's length in it before training, per sigma_w^2.

docs/raghu lists our choices. Pixels are standardized, biases begin at zero; batch norm (Figure 10) or trajectory
regularization (Figure 11) stands behind every hidden layer, before its ReLU; no bias before batch norm.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils import skip_init

from epoch0 import plots
from epoch0.curves import Arc
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, Claim, at_least, at_most
from epoch0.measure.length import trajectory_length
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Decision, by, mean_and_error, over_runs
from epoch0.papers.trials import tensors
from epoch0.seeds import generator, numpy_generator
from epoch0.train.raghu import TrajectoryRegularization


class FigureLayer(NamedTuple):
    """A layer as the figures number it, pools counted; ``output`` is the module whose output is the layer's."""

    label: str
    kind: str
    output: str


_OUTPUTS = {"conv1": "relu1", "conv2": "relu2", "pool1": "pool1", "conv3": "relu3", "conv4": "relu4", "conv5": "relu5"}
_OUTPUTS |= {"pool2": "pool2", "fc1": "relu6", "fc2": "relu7", "output": "output"}
_KINDS = {"conv": "convolution", "pool": "pooling"}
# in order, whatever the widths and norms; the first is number 1
LAYERS = tuple(FigureLayer(label, _KINDS.get(label[:4], "linear"), output) for label, output in _OUTPUTS.items())
LABELS = tuple(layer.label for layer in LAYERS)


@dataclass(frozen=True)
class ConvNet:
    """What the network is, apart from its seed.

    >>> net = ConvNet(channels=(16,) * 5, hidden=(64, 32), colours=1, size=8).build(seed=0)
    >>> net(torch.zeros(5, 1, 8, 8)).shape                      # (batch, colours, size, size) -> (batch, classes)
    torch.Size([5, 10])

    ``hidden`` are the fully connected layers before the output; ``size``, height and width, is a multiple of 4 for the
    two pools; ``variance`` is sigma_w^2; ``norm`` is before each hidden ReLU: "none", "batch" or "trajectory".

    Source: Raghu et al. 2017, section 2.2, captions of Figures 4, 6, 8, 10 and 11.
    """

    channels: tuple[int, ...] = (32, 32, 32, 32, 32)
    hidden: tuple[int, ...] = (2048, 1024)
    colours: int = 3
    size: int = 32
    classes: int = 10
    variance: float = 2.0
    norm: str = "none"

    @property
    def inputs(self) -> tuple[int, int, int]:
        """Shape of one input."""
        return (self.colours, self.size, self.size)

    def build(self, seed: int) -> nn.Sequential:
        """Parts are named conv1, norm1, relu1, ..., pool1, ..., flatten, fc1, fc2, output; norms change no weights."""
        parts, before = OrderedDict[str, nn.Module](), self.colours
        source, widths = generator(seed), iter((*self.channels, *self.hidden, self.classes))
        for label, kind, output in LAYERS:
            if kind == "pooling":
                parts[label] = nn.MaxPool2d(2)
                continue
            if label == "fc1":
                parts["flatten"], before = nn.Flatten(), before * (self.size // 4) ** 2
            after, bias, image = next(widths), self.norm != "batch" or label == "output", kind == "convolution"
            made, more = (nn.Conv2d, {"kernel_size": 3, "padding": 1}) if image else (nn.Linear, {})
            layer: Any = skip_init(made, before, after, bias=bias, **more)
            with torch.no_grad():
                law = Gaussian(math.sqrt(self.variance / layer.weight[0].numel()))
                law.sample(layer.weight.shape, source, out=layer.weight)
                if layer.bias is not None:
                    layer.bias.zero_()
            parts[label] = layer
            if output != label:
                if self.norm != "none":
                    batch: type[nn.Module] = nn.BatchNorm2d if image else nn.BatchNorm1d
                    parts[f"norm{output[4:]}"] = batch(after) if self.norm == "batch" else TrajectoryRegularization()
                parts[output] = nn.ReLU()
            before = after
        return nn.Sequential(parts)


# ---- Figure 4
SIMILAR = 0.25  # growth in two kinds of layers is similar if it differs by no more than this part
# layers with weights that have as many neurons as there are before them: their growth is that of one of Theorem 3
KEEPING = ("conv2", "conv3", "conv4", "conv5", "fc1")
POOLS = ("pool1", "pool2")


def block(spec: Spec, seed: int) -> dict[str, Any]:
    """``lengths`` (networks, layers + 1) of an arc between two test images, the arc's own first, in any block."""
    weights = numpy_generator(seed).integers(2**31, size=spec.first + spec.networks)[spec.first :]
    nets = [spec.network.build(int(weight)) for weight in weights]
    held, _ = tensors(spec.data, "test", flatten=False)
    arc = Arc(*(held[end] for end in spec.ends))
    found = trajectory_length(nets, arc, layers=[layer.output for layer in LAYERS], points=spec.points, seed=seed)
    return {"lengths": np.asarray(found.network_lengths)}


@by_cell
def table(cell: Cell) -> Any:
    named = {"name": LABELS, "kind": [layer.kind for layer in LAYERS]}
    return by_layer(cell), named, {"layer": range(1, len(LAYERS) + 1)}


def by_layer(cell: Cell, measured: str = "lengths") -> dict[str, Array]:
    """Lengths after each layer, and over those before it, from what was measured from the curve itself on."""
    return {"length": cell[measured][..., 1:], "growth": growth_of(cell[measured])}


def growth_of(lengths: Array) -> Array:
    """Length after a layer over that before it; layers are the last axis."""
    return np.asarray(lengths[..., 1:] / lengths[..., :-1])


def claims(found: Found) -> Claims:
    variances = found.sweep["variance"]
    growth = growth_of(found["lengths"]).swapaxes(0, 1)  # (runs, variances, layers)
    kept, pools = (growth[..., [LABELS.index(name) for name in names]] for names in (KEEPING, POOLS))
    mean, shares = kept.mean(-1, keepdims=True), kept[..., :-1] / kept[..., -1:].mean(0)

    def at(decide: Callable[..., Claim], values: Array, names: Sequence[str], bound: float) -> Decision:
        settings = [f"{name}, sigma_w^2 = {v:g}" for v in variances[-values.shape[1] :] for name in names]
        return over_runs(decide, values, bound, names=settings)

    # change of the mean log length from each variance to the next, at every layer
    logs, error = np.stack([mean_and_error(np.log(cell["lengths"][:, 1:])) for cell in found], axis=1)
    steps, errors = np.diff(logs, axis=0).ravel(), np.hypot(error[1:], error[:-1]).ravel()
    names = [f"{name}, sigma_w^2 {a:g} to {b:g}" for a, b in pairwise(variances) for name in LABELS]
    still = over_runs(at_most, mean[:, 0], 1.0, names=[f"sigma_w^2 = {variances[0]:g}, mean"])
    grows = "length grows with depth at sigma_w^2 above 2: growth of a layer that keeps the number of neurons"
    less = "... more than layers that keep the number of neurons: growth of those, less that of a pool"
    similar = f"convolutions grow like fully connected layers: at least {1 - SIMILAR:g} times as much as fc1"
    return {
        grows: at(at_least, mean[:, 1:], ["mean"], 1.0),
        "at sigma_w^2 = 2 it does not (step 0 of Figure 8)": still,
        "length grows with sigma_w^2 at every layer": by(at_least, steps, errors, MORE, found.sweep["runs"], names),
        "pooling layers reduce length: their growth": at(at_most, pools, POOLS, 1.0),
        less: at(at_least, kept - pools.mean(-1, keepdims=True), KEEPING, MORE),
        similar: at(at_least, shares, KEEPING[:-1], 1 - SIMILAR),
        f"... and at most {1 + SIMILAR:g} times": at(at_most, shares, KEEPING[:-1], 1 + SIMILAR),
    }


@plots.drawn(6.4, 4.6, legend="upper left")
def draw(found: Found, axes: plots.Axes) -> None:
    axes.set_xticks(range(1, len(LABELS) + 1), LABELS, rotation=35, ha="right")
    mark_pools(axes, [layer.kind for layer in LAYERS])
    plots.lines(axes, found.table, "layer", "length", "variance", r"$\sigma_w^2$ = {:g}", linewidth=1.2)
    axes.set(yscale="log", xlabel="layer", ylabel="mean length of the arc after the layer")


def mark_pools(axes: plots.Axes, kinds: Sequence[str]) -> None:
    """Shade the pooling layers."""
    for number, kind in enumerate(kinds, start=1):
        if kind == "pooling":
            axes.axvspan(number - 0.4, number + 0.4, color="#e8e8e8", zorder=0)


SMALL = ConvNet((16,) * 5, (64, 32), colours=1, size=8)  # for digits


def by_variance(network: ConvNet, *variances: float) -> dict[float, dict[str, Any]]:
    """An axis: sigma_w^2 -> the network with it."""
    return {variance: {"network": replace(network, variance=variance)} for variance in variances}


_VARIANCES = (2.0, 4.0, 8.0, 16.0)
_SPEC = Spec(data="cifar10", network=ConvNet(), ends=(100, 1000), points=64)
_AXES = {"variance": by_variance(ConvNet(), *_VARIANCES)}
_CIFAR = Sweep(block, _SPEC, _AXES, runs=100, seed="conv {network.variance!r}", block=10)
_FEW = {"network": SMALL, "ends": (100, 300), "variance": by_variance(SMALL, *_VARIANCES)}
_PRESETS = _CIFAR.presets(data="digits", block=25, **_FEW)
_TITLE = "Trajectory length through a conv net before training"
_ABOUT = "{data}, an arc between test images {ends[0]} and {ends[1]}; ReLU, {network.channels[0]} channels, fully "
_ABOUT += "connected {network.hidden[0]} and {network.hidden[1]}, no biases; {runs} networks each; grey: pooling layers"
ARTIFACTS = (Artifact("raghu/fig4", _TITLE, "section 2.2", _PRESETS, table, claims, draw, _ABOUT),)
