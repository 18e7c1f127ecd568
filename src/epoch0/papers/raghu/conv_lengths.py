"""Raghu Figure 4 (section 2.2): the length of an arc through a conv net before training, for several sigma_w^2."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.conv_lengths_trial import BlockSpec
from epoch0.papers.raghu.convnet import ConvNet, Layer, layers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.raghu.conv_lengths_trial:block"

SIMILAR = 0.25
"""Growth in two kinds of layers is similar if it differs by no more than this part."""

KEEPING = ("conv2", "conv3", "conv4", "conv5", "fc1")
"""Layers with weights that have as many neurons as there are before them: their growth is that of one of Theorem 3."""

POOLS = ("pool1", "pool2")


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        data: name of the data set.
        network: at the first of the variances.
        variances: sigma_w^2, increasing; the first is the usual one, 2, that the paper finds not to grow.
        ends: the two test images at the ends of the arc.
        networks: how many at each variance, with weights of their own.
        block: networks a trial.
    """

    data: str
    network: ConvNet
    variances: tuple[float, ...]
    ends: tuple[int, int]
    networks: int
    block: int


PRESETS = {
    "quick": Setting("digits", ConvNet((16,) * 5, (64, 32), colours=1, size=8), (2.0, 4.0, 8.0, 16.0), (100, 300),
                     100, 25),
    "paper": Setting("cifar10", ConvNet(), (2.0, 4.0, 8.0, 16.0), (100, 1000), 100, 10),
}  # fmt: skip


def trials(setting: Setting) -> list[Trial]:
    """Blocks of networks; each variance has networks of its own."""
    made = []
    for variance in setting.variances:
        seed = int.from_bytes(hashlib.sha256(f"conv {variance!r}".encode()).digest()[:7], "big")
        network = replace(setting.network, variance=variance)
        for first in range(0, setting.networks, setting.block):
            count = min(setting.block, setting.networks - first)
            made.append(Trial(TRIAL, BlockSpec(setting.data, network, setting.ends, first, count), seed))
    return made


def gather(setting: Setting, results: Results) -> list[Array]:
    """Lengths of each variance, shape (networks, layers + 1)."""
    count = math.ceil(setting.networks / setting.block)
    return [
        np.concatenate([np.asarray(r["lengths"], dtype=np.float64) for r in results[i * count : (i + 1) * count]])
        for i in range(len(setting.variances))
    ]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row for each variance and layer: length, and growth from the layer before, with their standard errors."""
    rows = []
    for variance, lengths in zip(setting.variances, gather(setting, results), strict=True):
        growth, growth_error = mean_and_error(lengths[:, 1:] / lengths[:, :-1])
        mean, error = mean_and_error(lengths)
        for layer in layers():
            number = layer.number
            rows.append({
                "variance": variance, "layer": number, "name": layer.label, "kind": layer.kind,
                "networks": len(lengths), "length": mean[number], "length_error": error[number],
                "growth": growth[number - 1], "growth_error": growth_error[number - 1],
            })  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """What the text and the caption say of Figure 4, and Figure 8 of its step 0."""
    first, *larger = setting.variances
    lengths, count = gather(setting, results), setting.networks
    found = {v: each[:, 1:] / each[:, :-1] for v, each in zip(setting.variances, lengths, strict=True)}
    kept = {v: growth[:, _places(KEEPING)] for v, growth in found.items()}
    pools = {v: growth[:, _places(POOLS)] for v, growth in found.items()}
    over = {v: growth - pools[v].mean(1, keepdims=True) for v, growth in kept.items()}
    shares = {v: growth[:, :-1] / growth[:, -1].mean() for v, growth in kept.items()}
    rate, rate_error, rate_names = _over_layers({v: kept[v].mean(1, keepdims=True) for v in larger}, ["mean"])
    usual = mean_and_error(kept[first].mean(1))
    step, step_error, step_names = _steps(setting.variances, lengths)
    return [
        at_least(
            "length grows with depth at sigma_w^2 above 2: growth of a layer that keeps the number of neurons",
            rate, rate_error, 1.0, count, rate_names,
        ),
        at_most(
            "at sigma_w^2 = 2 it does not (step 0 of Figure 8)", [usual[0]], [usual[1]], 1.0, count,
            [f"sigma_w^2 = {first:g}, mean"],
        ),
        at_least("length grows with sigma_w^2 at every layer", step, step_error, 0.0, count, step_names),
        _at(at_most, "pooling layers reduce length: their growth", pools, POOLS, 1.0, count),
        _at(
            at_least, "... more than layers that keep the number of neurons: growth of those, less that of a pool",
            over, KEEPING, 0.0, count,
        ),
        _at(
            at_least, f"convolutions grow like fully connected layers: at least {1 - SIMILAR:g} times as much as fc1",
            shares, KEEPING[:-1], 1 - SIMILAR, count,
        ),
        _at(at_most, f"... and at most {1 + SIMILAR:g} times", shares, KEEPING[:-1], 1 + SIMILAR, count),
    ]  # fmt: skip


def _at(decide: Any, text: str, found: dict[float, Array], names: tuple[str, ...], bound: float, count: int) -> Claim:
    """A claim about some layers at every variance."""
    mean, error, settings = _over_layers(found, names)
    claim: Claim = decide(text, mean, error, bound, count, settings)
    return claim


def _places(names: tuple[str, ...]) -> list[int]:
    return [layer.number - 1 for layer in layers() if layer.label in names]


def _over_layers(found: dict[float, Array], names: Sequence[str]) -> tuple[Array, Array, list[str]]:
    """Mean over the networks at every variance and layer, its error, and what to call it."""
    mean, error = mean_and_error(np.stack(list(found.values()), axis=1))
    return mean.ravel(), error.ravel(), [f"{name}, sigma_w^2 = {v:g}" for v in found for name in names]


def _steps(variances: Sequence[float], lengths: list[Array]) -> tuple[Array, Array, list[str]]:
    """Change of the mean log length from each variance to the next at every layer, its error, what to call it."""
    parts = [mean_and_error(np.log(each[:, 1:])) for each in lengths]
    mean, error = (np.stack([part[i] for part in parts]) for i in (0, 1))
    names = [f"{layer.label}, sigma_w^2 {a:g} to {b:g}" for a, b in pairwise(variances) for layer in layers()]
    return np.diff(mean, axis=0).ravel(), np.hypot(error[1:], error[:-1]).ravel(), names


def draw(setting: Setting, results: Results) -> "Figure":
    """Length against layer, one line a variance, pooling layers marked."""
    rows = table(setting, results)
    picture, axes = plots.figure(6.4, 4.6)
    mark_pools(axes, layers())
    for index, variance in enumerate(setting.variances):
        some = [row for row in rows if row["variance"] == variance]
        plots.points(
            axes, [row["layer"] for row in some], [row["length"] for row in some],
            [row["length_error"] for row in some], index, f"$\\sigma_w^2$ = {variance:g}", linestyle="-", linewidth=1.2,
        )  # fmt: skip
    axes.set(yscale="log", xlabel="layer", ylabel="mean length of the arc after the layer")
    axes.legend(loc="upper left")
    return picture


def mark_pools(axes: Any, named: list[Layer]) -> None:
    """Names of the layers along the axis and grey bands behind the pools."""
    axes.set_xticks([layer.number for layer in named], [layer.label for layer in named], rotation=35, ha="right")
    for layer in named:
        if layer.kind == "pooling":
            axes.axvspan(layer.number - 0.4, layer.number + 0.4, color="#e8e8e8", zorder=0)


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.network
    return (
        f"{setting.data}, an arc between test images {setting.ends[0]} and {setting.ends[1]}; ReLU, "
        f"{spec.channels[0]} channels, fully connected {spec.hidden[0]} and {spec.hidden[1]}, biases zero; "
        f"{setting.networks} networks at each sigma_w^2; grey: pooling layers; bars: two standard errors"
    )


ARTIFACTS = (
    OldArtifact(
        "raghu/fig4", "Trajectory length through a conv net before training", "Raghu et al., Figure 4, section 2.2",
        PRESETS, trials, table, claims, draw, lambda setting: setting.data, about,
    ),
)  # fmt: skip
