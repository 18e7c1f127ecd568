"""The trained networks that Raghu Figures 6, 8, 9, 10 and 18 share: what is trained in each preset, and what it gave.

A figure names its networks; those of two figures are the same trials, with one key, and are trained once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError
from epoch0.experiments.claims import Claim, at_least
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.convnet import ConvNet
from epoch0.papers.raghu.trained_trial import MOMENTUM, DenseNet, TrainedSpec, weighted

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.raghu.trained_trial:trained"

CLASSES = 10


@dataclass(frozen=True)
class Setting:
    """One preset of a figure.

    Attributes:
        networks: name of each kind of network -> what is trained and measured, as pairs.
        runs: networks of each kind, with weights, batches and arcs of their own.
        high: test accuracy that counts as high for these data.
    """

    networks: tuple[tuple[str, TrainedSpec], ...]
    runs: int
    high: float

    @property
    def spec(self) -> TrainedSpec:
        """The first one; all have the same data and steps."""
        return self.networks[0][1]


_DIGITS = TrainedSpec(
    "digits", ConvNet((16,) * 5, (64, 32), colours=1, size=8), (0, 10, 30, 100, 300, 1000), batch_size=32,
    learning_rate=0.01, arcs=4, points=32, absolute=(0.05, 0.1, 0.25, 0.5, 1.0), relative=(0.1, 0.25, 0.5, 1.0, 2.0),
    draws=5, tested=360,
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

PLAIN, NORMED = "without batch norm", "with batch norm"


def conv_nets(*names: str) -> dict[str, Setting]:
    """Both presets of a figure of conv nets with sigma_w^2 = 2.

    >>> conv_nets("without batch norm")["quick"].runs
    8
    """

    def nets(spec: TrainedSpec) -> tuple[tuple[str, TrainedSpec], ...]:
        assert isinstance(spec.network, ConvNet)
        normed = replace(spec, network=replace(spec.network, norm="batch"))
        return tuple((name, normed if name == NORMED else spec) for name in names)

    return {"quick": Setting(nets(_DIGITS), 8, 0.95), "paper": Setting(nets(_CIFAR), 4, 0.7)}


def dense_nets(*variances: float) -> dict[str, Setting]:
    """Both presets of a figure of fully connected networks, one kind for each sigma_w^2."""

    def nets(spec: TrainedSpec) -> tuple[tuple[str, TrainedSpec], ...]:
        assert isinstance(spec.network, DenseNet)
        with_variance = {v: replace(spec.network, variance=v) for v in variances}
        return tuple((f"sigma_w^2 = {v:g}", replace(spec, network=net)) for v, net in with_variance.items())

    return {"quick": Setting(nets(_DENSE_DIGITS), 8, 0.95), "paper": Setting(nets(_DENSE_MNIST), 8, 0.97)}


def trials(setting: Setting) -> list[Trial]:
    """Every run of every kind; run i has the same seed in all kinds, and so the same batches and arcs."""
    return [Trial(TRIAL, spec, seed) for _, spec in setting.networks for seed in range(setting.runs)]


@dataclass(frozen=True, eq=False)
class Measured:
    """What the networks of one kind gave; runs that diverged are left out.

    Attributes:
        name: of the kind.
        diverged: how many did.
        layers: names of the layers at which lengths are measured, (L,).
        kinds: of each of them.
        weighted: names of the layers with weights, (W,).
        steps: of measurement, (S,).
        accuracy: (runs, S).
        lengths: (runs, S, L + 1), the arc itself first.
        lengths_batch: the same by the statistics of the arc's points; empty without batch norm.
        scale: of the weights, (runs, S, W).
        absolute: accuracy with noise, (runs, W, sizes); empty if none was added.
        relative: the same with noise relative to the weights.
        clean: accuracy without noise, (runs,).
    """

    name: str
    diverged: int
    layers: tuple[str, ...]
    kinds: tuple[str, ...]
    weighted: tuple[str, ...]
    steps: Array
    accuracy: Array
    lengths: Array
    lengths_batch: Array
    scale: Array
    absolute: Array
    relative: Array
    clean: Array

    @property
    def runs(self) -> int:
        """Networks that did not diverge."""
        return len(self.accuracy)


def gather(setting: Setting, results: Results) -> list[Measured]:
    """The results by kind.

    Raises:
        InputError: if every network of a kind diverged.
    """
    found = []
    for place, (name, _) in enumerate(setting.networks):
        mine = results[place * setting.runs : (place + 1) * setting.runs]
        kept = [one for one in mine if not one["diverged"]]
        if not kept:
            raise InputError(f"all {len(mine)} networks {name} diverged; a lower learning rate would help.")
        stacked = {
            key: np.array([one[key] for one in kept if key in one], dtype=np.float64)
            for key in ("accuracy", "lengths", "lengths_batch", "scale", "absolute", "relative", "clean")
        }
        first = kept[0]
        found.append(
            Measured(
                name, len(mine) - len(kept), tuple(first["layers"]), tuple(first["kinds"]), tuple(first["weighted"]),
                np.asarray(first["steps"], dtype=np.float64), **stacked,
            )
        )  # fmt: skip
    return found


def accurate(setting: Setting, found: Sequence[Measured]) -> list[Claim]:
    """Every kind is trained to high test accuracy: without it the figure says nothing."""
    claims = []
    for each in found:
        mean, error = mean_and_error(each.accuracy[:, -1])
        text = f"{each.name}: trained to high test accuracy, {100 * setting.high:g} % and more"
        claim = at_least(text, [mean], [error], setting.high, each.runs, ["accuracy"])
        told = f"; {each.diverged} diverged and were left out everywhere" if each.diverged else ""
        claims.append(replace(claim, evidence=claim.evidence + told))
    return claims


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec, network = setting.spec, setting.spec.network
    if isinstance(network, ConvNet):
        what = f"conv net, {network.channels[0]} channels, fully connected {network.hidden[0]} and {network.hidden[1]}"
        what += f", sigma_w^2 = {network.variance:g}"
    else:
        what = f"fully connected ReLU networks, {len(network.sizes) - 2} hidden layers of width {network.sizes[1]}"
    return (
        f"{spec.data}, {what}; {spec.at[-1]:,} steps of SGD at {spec.learning_rate:g} (momentum {MOMENTUM:g}), batch "
        f"{spec.batch_size}; {setting.runs} networks"
    )


def data(setting: Setting) -> str:
    """The data set that the trials load."""
    return setting.spec.data


def costs(setting: Setting) -> list[Cost]:
    """One cost a kind of network."""
    found = []
    mine = trials(setting)
    for place, (name, spec) in enumerate(setting.networks):
        build = partial(spec.network.build, 0)
        noisy = len(weighted(build())) * (len(spec.absolute) + len(spec.relative)) * spec.draws
        found.append(
            Cost(
                f"{type(spec.network).__name__} {name}, {spec.data}",
                mine[place * setting.runs : (place + 1) * setting.runs], build, spec.network.inputs, CLASSES,
                spec.batch_size, spec.at[-1] * spec.batch_size, spec.tested * (len(spec.at) + noisy),
            )
        )  # fmt: skip
    return found
