"""Raghu Figure 3: a circle through the layers of a tanh network, in two dimensions, and how long it becomes (2.1, 2.2).

The paper says neither its sigma_w nor how it projects. Here sigma_w^2 = 16, far in the chaotic phase; the circle goes
around the origin in a random plane, with radius sqrt(inputs); and every pane shows the two directions in which that
image of the circle varies most (its principal components), with the share of the variance that they hold.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.curves import GreatCircle
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import Claim, at_least, between, increasing
from epoch0.experiments.experiment import Trial
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.transitions import wide_limit
from epoch0.seeds import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

CLOSE = 0.05
"""Growth follows sqrt(chi) of wide networks if it is that near to it, relatively; width 100 leaves about 1 %."""

_PLANE, _NETWORKS = range(2)
"""Streams of the seed."""


@dataclass(frozen=True)
class Setting:
    """One preset, and what one of its blocks measures.

    Attributes:
        variance: sigma_w^2.
        width: of the input and of every layer.
        depth: number of layers.
        networks: how many are measured.
        block: networks a trial.
        tangents: points of the circle at which lengths are measured.
        shown: points of the circle that are drawn, of the first network.
        first: index of the first network of a block.
    """

    variance: float
    width: int
    depth: int
    networks: int
    block: int
    tangents: int = 256
    shown: int = 6000
    first: int = 0


def block(spec: Setting, seed: int) -> dict[str, Any]:
    """Measure some networks, each with a circle of its own; draw the first of all.

    >>> block(Setting(4.0, 100, 6, networks=10, block=5), seed=0)["lengths"].shape         # (networks, depth + 1)
    (5, 7)

    Returns:
        ``lengths`` of the circle's images; from the block of network 0 also ``images``, shape (depth + 1, shown, 2),
        and ``shares`` of the variance in them, (depth + 1,).
    """
    lengths = []
    found: dict[str, Any] = {}
    sizes = [spec.width] * (spec.depth + 1)
    stop = min(spec.networks, spec.first + spec.block)
    every = ensemble(stop, sizes, "tanh", Gaussian(math.sqrt(spec.variance)), linear_output=False, seed=seed,
                     dtype=torch.float64)  # fmt: skip
    for index in range(spec.first, stop):
        plane = torch.randn(spec.width, 2, generator=generator(seed, _PLANE, index), dtype=torch.float64)
        basis = torch.linalg.qr(plane).Q * math.sqrt(spec.width)
        circle = GreatCircle(basis[:, 0], basis[:, 1])
        lengths.append(trajectory_length(every[index], circle, points=spec.tangents, seed=seed).lengths)
        if index == 0:
            found = _projected(every[0], circle.point(np.linspace(0.0, 1.0, spec.shown)))
    return {"lengths": np.asarray(lengths, dtype=np.float64), **found}


def _projected(net: Any, points: torch.Tensor) -> dict[str, Any]:
    """Each layer's image of some points in the plane of its first two principal components."""
    images, shares = [], []
    with torch.no_grad():
        for part in (None, *net):
            points = points if part is None else part(points)
            if part is not None and next(part.parameters(), None) is not None:
                continue  # a layer ends with its tanh
            centred = points - points.mean(dim=0)
            _, scales, directions = torch.linalg.svd(centred, full_matrices=False)
            images.append((centred @ directions[:2].T).numpy())
            shares.append(float(scales[:2].square().sum() / scales.square().sum()))
    return {"images": np.stack(images), "shares": np.array(shares)}


def trials(setting: Setting) -> list[Trial]:
    """Blocks of networks of one ensemble."""
    return [
        Trial("epoch0.papers.raghu.circle:block", replace(setting, first=first), 3)
        for first in range(0, setting.networks, setting.block)
    ]


def gather(results: Results) -> Array:
    """Lengths relative to the circle's own, shape (networks, depth + 1)."""
    lengths = np.concatenate([np.asarray(result["lengths"], dtype=np.float64) for result in results])
    return np.asarray(lengths / lengths[:, :1])


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a layer: length relative to the circle, growth in this layer, and what wide networks have."""
    lengths, wide = gather(results), wide_limit("tanh", setting.variance, setting.depth)
    rows = []
    for layer in range(1, setting.depth + 1):
        length, length_error = mean_and_error(lengths[:, layer])
        growth, growth_error = mean_and_error(lengths[:, layer] / lengths[:, layer - 1])
        rows.append({
            "layer": layer, "length": length, "length_error": length_error, "growth": growth,
            "growth_error": growth_error, "wide": wide[layer - 1], "share": float(results[0]["shares"][layer]),
            "networks": len(lengths),
        })  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """The caption of Figure 3, and section 2.2 on how fast."""
    rows = table(setting, results)
    names = [f"layer {row['layer']}" for row in rows]
    growth, error = ([row[key] for row in rows] for key in ("growth", "growth_error"))
    wide = np.array([row["wide"] for row in rows])
    lengths = [1.0, *(row["length"] for row in rows)]
    return [
        increasing(
            "the image of the circle grows longer with depth", lengths,
            [0.0, *(row["length_error"] for row in rows)], setting.networks, ["the circle", *names],
        ),
        at_least("... in every layer", growth, error, 1.0, setting.networks, names),
        between(
            f"growth in every layer is within {100 * CLOSE:g} % of sqrt(chi), the wide limit", growth, error,
            (1 - CLOSE) * wide, (1 + CLOSE) * wide, setting.networks, names,
        ),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """Panes from left to right: the circle, then its image after each layer; below them the lengths."""
    count = setting.depth + 1
    panes = [f"pane {i}" for i in range(count)]
    picture, axes = plots.figure(
        1.75 * count, 5.2, mosaic=[panes, ["lengths"] * count], height_ratios=[1.0, 1.25],
    )  # fmt: skip
    images, shares = (np.asarray(results[0][name]) for name in ("images", "shares"))
    rows = table(setting, results)
    ratio = gather(results)[0]
    for layer, name in enumerate(panes):
        pane = axes[name]
        pane.plot(*images[layer].T, color=plots.COLOURS[0], linewidth=0.9)
        half = 1.08 * float(np.abs(images[layer]).max())
        pane.set(xlim=(-half, half), ylim=(-half, half), aspect="equal", xticks=[], yticks=[])
        pane.grid(False)
        for side in ("top", "right"):
            pane.spines[side].set_visible(True)
        title = "the circle" if layer == 0 else f"layer {layer}: × {ratio[layer]:.3g}"
        pane.set_title(title, fontsize=9)
        pane.set_xlabel(f"{100 * shares[layer]:.0f} % of variance", fontsize=8)
    below = axes["lengths"]
    x = [0, *(row["layer"] for row in rows)]
    length = [1.0, *(row["length"] for row in rows)]
    plots.points(below, x, length, [0.0, *(row["length_error"] for row in rows)], 0,
                 f"mean of {rows[0]['networks']} networks")  # fmt: skip
    wide = np.cumprod([1.0, *(row["wide"] for row in rows)]).tolist()
    plots.curve(below, x, wide, 6, r"wide limit, product of $\sqrt{\chi}$", linestyle=":")
    below.plot(x, ratio, "x", color=plots.COLOURS[1], label="the network drawn above")
    below.set(yscale="log", xlabel="layer $d$ (0: the circle)", ylabel="length / length of the circle", xticks=x)
    ticks = [tick for tick in (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000) if tick <= 1.3 * max(*length, *ratio)]
    below.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    below.minorticks_off()
    below.legend(loc="upper left")
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"tanh, width {setting.width}, $\\sigma_w^2$ = {setting.variance:g}, no biases; panes: one network, the first "
        "two principal components of each image, and how many times longer than the circle it is; "
        "bars: two standard errors over networks"
    )


ARTIFACTS: tuple[OldArtifact, ...] = (
    OldArtifact(
        "raghu/fig3", "A circle through the layers of a tanh network", "Raghu et al., Figure 3, section 2.2",
        {"quick": Setting(16.0, 100, 6, 50, 25), "paper": Setting(16.0, 100, 6, 1000, 50)},
        trials, table, claims, draw, about=about,
    ),
)  # fmt: skip
"""Width 100 is the paper's, in both presets."""
