"""Hanin-Rolnick Theorem 3 (section 5) put to the test: its integral by Monte Carlo, against exact counts.

Along a line (k = 1) the theorem gives the expected number of break points between linear regions; in a square (k = 2)
its integrand, without the condition on ways to the output, gives the expected number of points at which boundaries of
activation regions cross. Counts and integral are taken of the same networks (in the integral the biases of the neurons
in question are integrated out): what the draw of the weights adds to both drops out of their difference.
"""

from typing import Any

import numpy as np
import torch

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.networks import ensemble
from epoch0.papers import pictures
from epoch0.papers.sweep import Artifact, Found, Spec, Sweep
from epoch0.papers.tables import Claims, Table, agrees, by, columns_of
from epoch0.regions import PlanePartition
from epoch0.regions.boundary_density import boundary_density
from epoch0.seeds import numpy_generator

RESOLUTION = 0.1  # counts and integral agree if they differ by less than this, relatively

# what is counted, and what is claimed of it
_LINEAR = "k = 1: Theorem 3 gives the mean number of break points of linear regions on a line"
_ACTIVATION = "k = 1: without the condition on good neurons it gives that of activation regions"
QUANTITIES = {"linear break points on a line": _LINEAR, "activation break points on a line": _ACTIVATION}
QUANTITIES["crossings in a square"] = "k = 2: and the mean number of crossings in a square"


def compare(spec: Spec, seed: int) -> dict[str, Any]:
    """Count exactly, and integrate: ``counts_q`` and ``integral_q`` for each of ``QUANTITIES``, a number a network.

    So many ``networks`` are on a line that joins two points, others, as many as ``planes``, in a square of twice
    ``half`` around a point, as in many dimensions a small square sees few crossings; points are Gaussian, with variance
    1 an entry.
    """
    torch.set_num_threads(1)
    sizes = [spec.inputs, *[spec.width] * spec.depth, 1]
    source = numpy_generator(seed, spec.depth, spec.width)
    x = torch.from_numpy(source.standard_normal((5, spec.inputs)))
    on_line, in_square = (
        ensemble(count, sizes, biases=Gaussian(spec.bias_std), seed=int(own), dtype=torch.float64)
        for count, own in zip((spec.networks, spec.planes), source.integers(2**31, size=2), strict=True)
    )
    found: list[Any] = [regions.on_line(net, x[0], x[1]) for net in on_line]
    linear, activation = [one.linear_count - 1 for one in found], [one.count - 1 for one in found]
    window = regions.square(x[2], x[3], x[4], spec.half)
    crossings = [inner_vertices(regions.on_plane(net, window)) for net in in_square]
    densities = [boundary_density(on_line, (x[0], x[1]), kind=kind, seed=seed) for kind in ("linear", "activation")]
    densities.append(boundary_density(in_square, window, k=2, kind="activation", seed=seed))
    result: dict[str, Any] = {}
    for index, (counts, density) in enumerate(zip((linear, activation, crossings), densities, strict=True)):
        result[f"counts_{index}"] = np.array(counts, dtype=np.float64)
        result[f"integral_{index}"] = density.values.sum(axis=1) * density.measure
    return result


def inner_vertices(found: PlanePartition) -> int:
    """Vertices of a partition that are not on the border of its window."""
    border = found.edges[found.owner_layer < 0]
    return len(found.vertices) - len(np.unique(border))


def table(found: Found) -> Table:
    """One row an architecture and quantity."""
    rows = Table()
    for cell in found:
        for index, quantity in enumerate(QUANTITIES):
            counts, integral = (cell[f"{name}_{index}"][0] for name in ("counts", "integral"))
            means = columns_of(counted=counts, integral=integral, difference=integral - counts)
            neurons = cell.spec.depth * cell.spec.width
            rows.append({**cell.at, "neurons": neurons, "quantity": quantity, "runs": len(counts), **means})
    return rows


def claims(found: Found) -> Claims:
    """Theorem 3 for k = 1 and k = 2, at every architecture."""
    decided = {}
    for (_, rows), text in zip(found.table.by("quantity"), QUANTITIES.values(), strict=True):
        # the error of the difference, network by network, stands for both
        values = rows.of("integral", "difference_error", "counted", "runs")
        groups, names = ("Theorem 3", "counted"), rows.told("depth {depth}, width {width}")
        decided[text] = by(agrees, *values, names, RESOLUTION, groups=groups)
    return decided


def draw(found: Found) -> pictures.Figure:
    """Counts and integrals side by side: one panel a quantity."""
    picture, panels = plots.figure(11.0, 4.3, columns=3)
    for axes, (quantity, rows) in zip(panels, found.table.by("quantity"), strict=True):
        places = np.arange(len(rows), dtype=float)
        for index, (name, label) in enumerate((("counted", "exact counts"), ("integral", "Theorem 3, Monte Carlo"))):
            pictures.points(axes, rows, places + 0.16 * (index - 0.5), name, index, label)
        axes.set_xticks(places, rows.told("{depth} × {width}"))
        axes.set(title=quantity, xlabel="depth × width", ylim=(0, None))
    panels[0].set_ylabel("mean number")
    plots.legend_below(picture, *panels[0].get_legend_handles_labels(), columns=2)
    return picture


_SPEC = Spec(inputs=784, bias_std=0.1, networks=400, planes=200, half=14.0)
_PAPER = Sweep(compare, _SPEC, {"depth width": ((1, 64), (2, 64), (3, 64), (4, 16), (8, 4))}, stride=1)
_SMALL = {"depth width": ((1, 32), (2, 16), (3, 16), (3, 32), (6, 4))}
_PRESETS = {"quick": _PAPER.but(inputs=16, networks=150, planes=100, half=1.0, **_SMALL), "paper": _PAPER}
_ABOUT = (
    "{inputs} inputs, He's weights, bias std {bias_std:g}; {networks} networks on a line, {planes} in a square; "
    "bars: two standard errors over networks, the same for counts and integral"
)
ARTIFACTS = (
    Artifact("hanin-rolnick/th3", "Theorem 3 against exact counts", "section 5", _PRESETS, table, claims, draw, _ABOUT),
)
