"""The trained networks that Raghu Figures 6, 8, 9, 10 and 18 share: each is trained, and measured on the way.

A figure names its networks; those of two figures are the same trials, with one key, and are trained once. Definitions
the paper leaves open, and what is taken here:

* pixels have mean 0 and variance 1 in every channel over the training images; no augmentation;
* SGD with momentum 0.9 and a constant learning rate, without weight decay, which would pull the weights down;
* a trajectory is the arc between two test images that the seed draws; lengths are means over several arcs;
* the weight scale of a layer is fan_in times the mean square of its weights: sigma_w^2 as it is now;
* noise is Gaussian, with a standard deviation in the units of the weights ("absolute") or as a part of the root mean
  square of the layer's weights ("relative"); the paper does not say which of the two its "magnitude" is.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.robustness import robustness
from epoch0.curves import Arc
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.experiments.claims import Claim, at_least
from epoch0.experiments.cost import Cost
from epoch0.networks import mlp
from epoch0.papers.checkpoints import checkpoint_of
from epoch0.papers.raghu.convnet import LAYERS, SMALL, ConvNet, examples
from epoch0.papers.sweep import Cell, Found, Results, Sweep, of_runs
from epoch0.seeds import numpy_generator
from epoch0.train.device import chosen_device
from epoch0.train.evaluation import Accuracy
from epoch0.train.lengths import TrajectoryLengths
from epoch0.train.loop import train
from epoch0.train.record import Every, Training

MOMENTUM = 0.9

PLAIN, NORMED = "without batch norm", "with batch norm"

HIGH = {"digits": 0.95, "mnist": 0.97, "cifar10": 0.7}
"""Test accuracy that counts as high for these data."""

_WEIGHTS, _BATCHES, _ARCS, _NOISE = range(4)
"""Streams of a trial's seed."""


@dataclass(frozen=True)
class DenseNet:
    """The fully connected ReLU network of Figure 18, sizes from inputs to classes; biases begin at zero.

    >>> DenseNet((64, 100, 100, 10), variance=2.0).build(seed=0)(torch.zeros(5, 64)).shape
    torch.Size([5, 10])
    """

    sizes: tuple[int, ...]
    variance: float

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.sizes[:1]

    def build(self, seed: int) -> nn.Sequential:
        """One network."""
        return mlp(self.sizes, weights=Gaussian(math.sqrt(self.variance)), seed=seed)


@dataclass(frozen=True)
class TrainedSpec:
    """What one trial trains, and the steps ``at`` which it is measured, from 0 to the last of the training.

    Lengths are means over so many ``arcs`` of so many ``points``; ``absolute`` and ``relative`` are sizes of noise,
    with so many ``draws`` for each layer and size; accuracies are over ``tested`` images of the test
    set; ``examples`` of training are all where it is None.
    """

    data: str
    network: ConvNet | DenseNet
    at: tuple[int, ...]
    batch_size: int
    learning_rate: float
    arcs: int
    points: int
    absolute: tuple[float, ...]
    relative: tuple[float, ...]
    draws: int
    tested: int
    examples: int | None = None


Looks = Callable[[int, nn.Module], dict[str, Any]]


@contextmanager
def training(
    spec: Any, seed: int, examples: tuple[Tensor, Tensor], optimizer: Callable[..., torch.optim.Optimizer], look: Looks
) -> Iterator[tuple[nn.Module, Training]]:
    """A network trained as its spec says, and looked at on the way; the seed names its weights and its batches.

    If ``EPOCH0_CHECKPOINTS`` names a folder, a trial that was killed inside goes on from there.
    """
    if len(spec.at) < 2 or spec.at[0] != 0 or any(b <= a for a, b in pairwise(spec.at)):
        raise InputError(f"at={spec.at}: steps at which to measure begin with 0 and increase.")
    torch.set_num_threads(1)
    weights, batches = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES))
    device, pace = chosen_device(), math.gcd(*spec.at)  # the largest pace that meets every step
    net = spec.network.build(weights).to(device)

    def wanted(step: int, model: nn.Module, metrics: Mapping[str, Any]) -> dict[str, Any] | None:
        return look(step, model) if step in spec.at else None

    with checkpoint_of(spec, seed) as path:
        kept: dict[str, Any] = {"checkpoint": path, "checkpoint_every": spec.at[-1], "checkpoint_minutes": 5.0}
        yield net, train(
            net, examples, steps=spec.at[-1], batch_size=spec.batch_size, optimizer=optimizer,
            learning_rate=spec.learning_rate, seed=batches, device=device, evaluate_every=pace,
            callbacks=[Every(pace, wanted)], **({} if path is None else kept),
        )  # fmt: skip


def trained(spec: TrainedSpec, seed: int) -> dict[str, Any]:
    """Train one network and measure it at some steps: lengths, weight scale, accuracy; noise in its layers at the end.

    Returns:
        ``steps``, (steps,); ``accuracy`` on test images and the ``loss`` since the last measurement, (steps,), the
        first loss NaN; ``lengths``, (steps, layers + 1), the arc itself first, batch norm as in evaluation;
        ``lengths_batch``, the same with the statistics of the arc's own points, if there is a batch norm; ``layers``
        and their ``kinds``, (layers,); ``scale`` of the weights, (steps, weighted); ``weighted``, names of the layers
        with weights; ``absolute`` and ``relative``, accuracy with noise, (weighted, sizes); ``clean`` accuracy;
        ``diverged``: what came after is NaN; ``device``.

    Raises:
        InputError: if the data set is not there or does not fit the network, or ``at`` cannot be used.
    """
    x, y = (values[: spec.examples] for values in examples(spec.data, "train", spec.network.inputs))
    held, labels = (values[: spec.tested] for values in examples(spec.data, "test", spec.network.inputs))
    accuracy, source = Accuracy(held, labels), numpy_generator(seed, _ARCS)
    arcs = [Arc(*held[source.choice(len(held), size=2, replace=False)]) for _ in range(spec.arcs)]
    modes = {"lengths": "eval", "lengths_batch": "batch"} if _normed(spec.network) else {"lengths": "eval"}
    watching = {
        name: [TrajectoryLengths(arc, spec.points, seed=place, batch_norm=mode) for place, arc in enumerate(arcs)]
        for name, mode in modes.items()
    }

    def look(step: int, model: nn.Module) -> dict[str, Any]:
        row: dict[str, Any] = dict(accuracy(model))
        for name, watches in watching.items():
            for watch in watches:
                watch(step, model)
            row[name] = np.mean([watch.lengths[-1] for watch in watches], axis=0).tolist()
        # in the row, since a resumed run may have nothing left to look at
        row |= {"layers": list(watches[0].layers), "kinds": list(watches[0].kinds)}
        return {**row, "scale": [scale(weight) for weight in weighted(model).values()]}

    noise = int(numpy_generator(seed, _NOISE).integers(2**31))
    with training(spec, seed, (x, y), partial(torch.optim.SGD, momentum=MOMENTUM), look) as (net, done):
        found = history(spec, done, "accuracy", *modes, "scale")
        for unit, sizes in (("absolute", spec.absolute), ("relative", spec.relative)):
            if sizes:
                noisy = robustness(
                    net, (held, labels), sizes, draws=spec.draws, relative=unit == "relative", seed=noise
                )
                found |= {unit: noisy.accuracy, "clean": noisy.clean}
    first = done.history[0]
    names = {"layers": first["layers"], "kinds": first["kinds"], "weighted": list(weighted(net))}
    return {**found, **names, "device": next(net.parameters()).device.type}


def _normed(network: ConvNet | DenseNet) -> bool:
    return isinstance(network, ConvNet) and network.norm == "batch"


def history(spec: Any, done: Training, *names: str) -> dict[str, Any]:
    """What was measured under these names at the steps of the spec; NaN from where the training diverged."""
    rows = {row["step"]: row for row in done.history if names[0] in row}
    kept = [rows[step] for step in spec.at if step in rows]
    missing = len(spec.at) - len(kept)
    found: dict[str, Any] = {"steps": np.array(spec.at), "diverged": missing > 0 or done.diverged}
    for name in ("loss", *names):
        values = np.array([row[name] for row in kept], dtype=np.float64)  # None, the loss at first, is NaN
        found[name] = np.pad(values, [(0, missing), *[(0, 0)] * (values.ndim - 1)], constant_values=np.nan)
    return found


def weighted(net: nn.Module) -> dict[str, Tensor]:
    """Weights of the dense and convolutional layers in order, under the names of their modules.

    >>> list(weighted(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))))
    ['0', '2']
    """
    return {name: module.weight for name, module in net.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


def scale(weight: Tensor) -> float:
    """sigma_w^2 of one layer: fan_in times the mean square of its weights."""
    return float(weight.detach().double().square().mean()) * weight[0].numel()


# ---- what the figures share


class TrainedSweep(Sweep):
    """Networks by their names; runs that diverged are left out of what is gathered."""

    def gather(self, results: Results) -> Found:
        """The results cell by cell.

        Raises:
            InputError: if every network of a kind diverged.
        """
        found = super().gather(results)
        for place, cell in enumerate(found.cells):
            kept = [one for one in cell.results if not one["diverged"]]
            if not kept:
                name = cell.at["networks"]
                raise InputError(f"all {cell.runs} networks {name} diverged; a lower learning rate would help.")
            found.cells[place] = replace(cell, results=kept, runs=len(kept))
        return found


_DIGITS = TrainedSpec(
    "digits", SMALL, (0, 10, 30, 100, 300, 1000), batch_size=32, learning_rate=0.01, arcs=4, points=32,
    absolute=(0.05, 0.1, 0.25, 0.5, 1.0), relative=(0.1, 0.25, 0.5, 1.0, 2.0), draws=5, tested=360,
)  # fmt: skip
_CIFAR = replace(
    _DIGITS, data="cifar10", network=ConvNet(), at=(0, 100, 300, 1000, 3000, 10_000), batch_size=128, tested=2000,
)  # fmt: skip
_DENSE_DIGITS = replace(
    _DIGITS, network=DenseNet((64, *[100] * 8, 10), 1.0), learning_rate=0.02, absolute=(), relative=(), draws=0,
)  # fmt: skip
_DENSE_MNIST = replace(
    _DENSE_DIGITS, data="mnist", network=DenseNet((784, *[100] * 8, 10), 1.0), at=_CIFAR.at, batch_size=128,
    tested=10_000,
)  # fmt: skip


def named(spec: TrainedSpec, networks: Sequence[ConvNet | DenseNet], runs: int) -> TrainedSweep:
    """Networks of some kinds, each under its name; run i has the same seed in all, so the same batches and arcs."""
    return TrainedSweep(trained, spec, {"networks": {name_of(net): {"network": net} for net in networks}}, runs)


def name_of(network: ConvNet | DenseNet) -> str:
    """What the figures call it."""
    if isinstance(network, DenseNet):
        return f"sigma_w^2 = {network.variance:g}"
    return NORMED if _normed(network) else PLAIN


def conv_nets(*norms: str) -> dict[str, Sweep]:
    """Both presets of a figure of conv nets with sigma_w^2 = 2."""
    return {
        preset: named(spec, [replace(net, norm=norm) for norm in norms], runs)
        for preset, spec, net, runs in (("quick", _DIGITS, SMALL, 8), ("paper", _CIFAR, ConvNet(), 4))
    }


def dense_nets(*variances: float) -> dict[str, Sweep]:
    """Both presets of a figure of fully connected networks, one kind for each sigma_w^2."""
    return {
        preset: named(spec, [DenseNet((size, *[100] * 8, 10), v) for v in variances], 8)
        for preset, spec, size in (("quick", _DENSE_DIGITS, 64), ("paper", _DENSE_MNIST, 784))
    }


def accurate(found: Found, cells: Sequence[Cell] | None = None) -> list[Claim]:
    """Every kind is trained to high test accuracy: without it the figure says nothing."""
    claims = []
    high = HIGH[found.sweep["data"]]
    for cell in found.cells if cells is None else cells:
        text = f"{cell.at['networks']}: trained to high test accuracy, {100 * high:g} % and more"
        claim = of_runs(at_least, text, cell["accuracy"][:, -1], high, names=["accuracy"])
        diverged = found.sweep["runs"] - cell.runs
        told = f"; {diverged} diverged and were left out everywhere" if diverged else ""
        claims.append(replace(claim, evidence=claim.evidence + told))
    return claims


def about(more: str, sweep: Sweep) -> str:
    """The setting in one line, and more."""
    network = sweep.spec.network
    if isinstance(network, ConvNet):
        what = f"conv net, {network.channels[0]} channels, fully connected {network.hidden[0]} and {network.hidden[1]}"
        what += f", sigma_w^2 = {network.variance:g}"
    else:
        what = f"fully connected ReLU networks, {len(network.sizes) - 2} hidden layers of width {network.sizes[1]}"
    return sweep.told(
        f"{{data}}, {what}; {sweep['at'][-1]:,} steps of SGD at {{learning_rate:g}} (momentum {MOMENTUM:g}), batch "
        f"{{batch_size}}; {{runs}} networks{more}; bars: two standard errors"
    )


def cost(spec: TrainedSpec) -> Cost:
    """Of one network, with its noise."""
    net = spec.network
    count = len(net.sizes) - 1 if isinstance(net, DenseNet) else sum(layer.kind != "pooling" for layer in LAYERS)
    noisy = count * (len(spec.absolute) + len(spec.relative)) * spec.draws
    return Cost(
        f"{type(net).__name__} {name_of(net)}, {spec.data}", (), partial(net.build, 0), net.inputs, 10,
        spec.batch_size, spec.at[-1] * spec.batch_size, spec.tested * (len(spec.at) + noisy),
    )  # fmt: skip
