"""Hanin-Rolnick Theorem 3 (section 5) put to the test: its integral by Monte Carlo, against exact counts.

Along a line (k = 1) the theorem gives the expected number of break points between linear regions; in a square (k = 2)
its integrand, without the condition on ways to the output, gives the expected number of points at which boundaries of
activation regions cross. Counts and integral are taken of the same networks (in the integral the biases of the neurons
in question are integrated out): what the draw of the weights adds to both drops out of their difference.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import Claim, equal_within_error
from epoch0.experiments.experiment import Trial
from epoch0.networks import ensemble
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error
from epoch0.regions import PlanePartition
from epoch0.regions.boundary_density import boundary_density
from epoch0.seeds import numpy_generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOLUTION = 0.1
"""Counts and integral agree if a relative difference of this size would have been seen and was not."""

WIDE = 8
"""Crossings are compared in networks of this width and more: narrower ones have too few to tell anything."""

QUANTITIES = ("linear break points on a line", "activation break points on a line", "crossings in a square")


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        inputs: dimension of the input.
        shapes: depth and width of each architecture.
        networks: how many on a line.
        planes: how many in a square.
        half: half the side of the square; in many dimensions a small one sees few crossings.
        bias_std: standard deviation of the biases.
    """

    inputs: int
    shapes: tuple[tuple[int, int], ...]
    networks: int
    planes: int
    half: float
    bias_std: float = 0.1


@dataclass(frozen=True)
class DensitySpec:
    """One architecture.

    Attributes:
        inputs: dimension of the input.
        depth: number of hidden layers.
        width: of each.
        bias_std: standard deviation of the biases.
        networks: on the line.
        planes: in the square.
        half: half the side of the square.
    """

    inputs: int
    depth: int
    width: int
    bias_std: float
    networks: int
    planes: int
    half: float


def compare(spec: DensitySpec, seed: int) -> dict[str, Any]:
    """Count exactly, and integrate, network by network.

    The line joins two points, and the square is around a point; all Gaussian with variance 1 an entry.

    Returns:
        ``counts_q`` and ``integral_q`` for each of the three ``QUANTITIES``: one number a network, in units of the
        counts.
    """
    torch.set_num_threads(1)
    sizes = [spec.inputs, *[spec.width] * spec.depth, 1]
    source = numpy_generator(seed, spec.depth, spec.width)
    x = torch.from_numpy(source.standard_normal((5, spec.inputs)))
    seeds = [int(one) for one in source.integers(2**31, size=2)]
    on_line, in_square = (
        ensemble(count, sizes, biases=Gaussian(spec.bias_std), seed=own, dtype=torch.float64)
        for count, own in zip((spec.networks, spec.planes), seeds, strict=True)
    )
    linear, activation = [], []
    for net in on_line:
        found = regions.on_line(net, x[0], x[1])
        linear.append(found.linear_count - 1)  # type: ignore[union-attr]
        activation.append(found.count - 1)
    window = regions.square(x[2], x[3], x[4], spec.half)
    crossings = [inner_vertices(regions.on_plane(net, window)) for net in in_square]
    line = (x[0], x[1])
    densities = [
        boundary_density(on_line, line, kind="linear", seed=seed),
        boundary_density(on_line, line, kind="activation", seed=seed),
        boundary_density(in_square, window, k=2, kind="activation", seed=seed),
    ]
    result: dict[str, Any] = {}
    for index, (counts, density) in enumerate(zip((linear, activation, crossings), densities, strict=True)):
        result[f"counts_{index}"] = np.array(counts, dtype=np.float64)
        result[f"integral_{index}"] = density.values.sum(axis=1) * density.measure
    return result


def inner_vertices(found: PlanePartition) -> int:
    """Vertices of a partition that are not on the border of its window."""
    border = found.edges[found.owner_layer < 0]
    return len(found.vertices) - len(np.unique(border))


def trials(setting: Setting) -> list[Trial]:
    """One an architecture."""
    specs = [
        DensitySpec(setting.inputs, *shape, setting.bias_std, setting.networks, setting.planes, setting.half)
        for shape in setting.shapes
    ]
    return [Trial("epoch0.papers.hanin_rolnick.density:compare", spec, seed) for seed, spec in enumerate(specs)]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row an architecture and quantity."""
    rows = []
    for (depth, width), result in zip(setting.shapes, results, strict=True):
        for index, quantity in enumerate(QUANTITIES):
            counts, integral = (np.asarray(result[f"{name}_{index}"]) for name in ("counts", "integral"))
            row: dict[str, Any] = {"depth": depth, "width": width, "neurons": depth * width, "quantity": quantity}
            row["counted"], row["counted_error"] = mean_and_error(counts)
            row["integral"], row["integral_error"] = mean_and_error(integral)
            row["difference"], row["difference_error"] = mean_and_error(integral - counts)
            row["networks"] = len(counts)
            rows.append(row)
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Theorem 3 for k = 1 and k = 2, at every architecture."""
    rows = table(setting, results)
    claims = []
    for quantity, text in zip(
        QUANTITIES,
        (
            "k = 1: Theorem 3 gives the mean number of break points of linear regions on a line",
            "k = 1: without the condition on good neurons it gives that of activation regions",
            "k = 2: and the mean number of crossings in a square",
        ),
        strict=True,
    ):
        mine = [row for row in rows if row["quantity"] == quantity]
        if quantity == QUANTITIES[2]:
            mine = [row for row in mine if row["width"] >= WIDE] or mine
        # the error of the difference, network by network, stands for both
        claims.append(
            equal_within_error(
                text,
                [[row["counted"], row["integral"]] for row in mine],
                [[0.0, row["difference_error"]] for row in mine],
                mine[0]["networks"],
                resolution=RESOLUTION,
                settings=[f"depth {row['depth']}, width {row['width']}" for row in mine],
                groups=["counted", "Theorem 3"],
            )
        )
    return claims


def draw(setting: Setting, results: Results) -> "Figure":
    """Counts and integrals side by side: one panel a quantity."""
    picture, panels = plots.figure(11.0, 4.3, columns=3)
    rows = table(setting, results)
    names = [f"{depth} × {width}" for depth, width in setting.shapes]
    places = np.arange(len(names), dtype=float)
    for axes, quantity in zip(panels, QUANTITIES, strict=True):
        mine = [row for row in rows if row["quantity"] == quantity]
        for index, (name, label) in enumerate((("counted", "exact counts"), ("integral", "Theorem 3, Monte Carlo"))):
            mean, error = ([row[f"{name}{part}"] for row in mine] for part in ("", "_error"))
            x = (places + 0.16 * (index - 0.5)).tolist()
            plots.points(axes, x, mean, error, index, label)
        axes.set_xticks(places, names)
        axes.set(title=quantity, xlabel="depth × width", ylim=(0, None))
    panels[0].set_ylabel("mean number")
    plots.legend_below(picture, *panels[0].get_legend_handles_labels(), columns=2)
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"{setting.inputs} inputs, He's weights, bias std {setting.bias_std:g}; {setting.networks} networks on a line, "
        f"{setting.planes} in a square; bars: two standard errors over networks, the same for counts and integral"
    )
