"""Hanin-Rolnick Figures 1 and 8 (section 3.3): regions in planes through three examples, at random and in training.

The window is the square around the circle through the three examples, centred where they are equally far away. Which
classes the paper takes is lost in its text; here 0, 1 and 2. Figure 1 does not say whether its network is trained; here
it is not.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots, regions
from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most, between, check
from epoch0.networks import ensemble
from epoch0.papers.hanin_rolnick.planar import checks
from epoch0.papers.hanin_rolnick.trained import BIAS_STD, tensors, through_training, turn
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep
from epoch0.papers.tables import Array, Claims, Table, by, over_runs, power
from epoch0.regions import PlanePartition, pattern_colours
from epoch0.seeds import numpy_generator
from epoch0.theory.regions import arrangement_regions
from epoch0.train.evaluation import Accuracy

CLASSES = (0, 1, 2)
EXPONENT = 0.2  # regions grow as the square of the neurons if the fitted exponent is this near to 2
ORDER = 10.0  # of the order of the number of neurons squared: within this factor
_WEIGHTS, _BATCHES, _EXAMPLES = range(3)  # streams of a seed


def random_slices(spec: Spec, seed: int) -> dict[str, Any]:
    """Regions of networks before training in planes: ``counts``, ``euler``, ``area_error``, (networks, planes).

    Of the first plane of the width ``drawn`` also ``linear``, its linear regions, ``distinct``, whether all its
    patterns differ, and the arrays of :func:`drawing` as ``0``.
    """
    torch.set_num_threads(1)
    examples = load(spec.data, "train")
    inputs, labels = tensors(examples)
    source = numpy_generator(seed, spec.depth, spec.width, _EXAMPLES)
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, len(examples.classes)]
    weights = int(numpy_generator(seed, spec.depth, spec.width, _WEIGHTS).integers(2**31))
    rows: list[dict[str, list[float]]] = []
    kept: dict[str, Any] = {}
    for net in ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=weights):
        chosen = [three(inputs, labels, source) for _ in range(spec.planes)]
        found = [regions.on_plane(net, regions.through(*one)) for one in chosen]
        rows.append(_checked(found))
        if spec.drawn == spec.width and not kept:
            checks = {"distinct": found[0].verify().distinct, "linear": found[0].linear_count}
            kept = {**drawing(found[0], chosen[0], "0"), **checks}
    return {**{name: np.array([row[name] for row in rows]) for name in rows[0]}, **kept}


def trained_slices(spec: Spec, seed: int) -> dict[str, Any]:
    """The same of one network at the epochs ``at``, (epochs, planes), with ``epoch`` and ``accuracy``, (epochs,).

    For each of the ``drawn`` epochs the arrays of :func:`drawing` under its number in ``drawn``.
    """
    torch.set_num_threads(1)
    examples = load(spec.data, "train")
    inputs, labels = tensors(examples)
    accuracy = Accuracy(*tensors(load(spec.data, "test")))
    sources = [numpy_generator(seed, spec.depth, spec.width, stream) for stream in (_WEIGHTS, _BATCHES, _EXAMPLES)]
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, len(examples.classes)]
    net = ensemble(1, sizes, biases=Gaussian(BIAS_STD), seed=int(sources[0].integers(2**31)))[0]
    planes = [three(inputs, labels, sources[2]) for _ in range(spec.planes)]
    whens = iter(spec.at)
    kept: dict[str, Any] = {}

    def look(model: nn.Module, _: int) -> dict[str, Any]:
        found, when = [regions.on_plane(model, regions.through(*chosen)) for chosen in planes], next(whens)
        if seed == 0 and when in spec.drawn:
            kept.update(drawing(found[0], planes[0], str(spec.drawn.index(when))))
        return {**accuracy(model), **_checked(found)}

    batches = int(sources[1].integers(2**31))
    epochs, *measured = through_training(spec, [net], (inputs, labels), batches, look).items()
    return {**dict([epochs]), **{name: values[0] for name, values in measured}, **kept}


def three(inputs: Tensor, labels: Tensor, source: np.random.Generator) -> list[Tensor]:
    """One example of each of the three classes, float64."""
    places = [np.flatnonzero(labels.numpy() == label) for label in CLASSES]
    return [inputs[int(source.choice(mine))].double() for mine in places]


def drawing(found: PlanePartition, chosen: list[Tensor], name: str) -> dict[str, Array]:
    """What a picture needs: cells with their colours, and where the three examples are in the plane."""
    axes, origin = found.window.axes.reshape(2, -1), found.window.origin.reshape(-1)
    places = torch.stack([(one - origin) @ axes.T for one in chosen]).numpy()
    parts = {"vertices": found.vertices, "cell_vertices": found.cell_vertices, "cell_ends": found.cell_ends}
    parts |= {"colours": pattern_colours(found.patterns), "examples": places, "window": found.window.polygon.numpy()}
    return {f"{part}_{name}": values for part, values in parts.items()}


def _checked(found: list[PlanePartition]) -> dict[str, list[float]]:
    """Of each plane the number of regions and the two free checks."""
    checks = [one.certificate for one in found]
    euler, error = [float(one.euler or 0) for one in checks], [one.measure_error or 0.0 for one in checks]
    return {"counts": [float(one.count) for one in found], "euler": euler, "area_error": error}


# ---- Figure 1


def table(found: Found) -> Table:
    """One row a width: regions in a plane, against neurons squared, and as many lines in general position."""

    def measured(cell: Cell) -> dict[str, Any]:
        counts = cell["counts"][0].mean(1)
        return {"regions": counts, "regions_per_neurons_squared": counts / _neurons(cell) ** 2}

    def beside(cell: Cell) -> dict[str, Any]:
        euler, told = cell["euler"], {"neurons": _neurons(cell)}
        told |= {"lines_in_general_position": arrangement_regions(_neurons(cell), 2)}
        told |= {"euler_least": int(euler.min()), "euler_most": int(euler.max())}
        return {**told, "largest_area_error": float(np.abs(cell["area_error"]).max())}

    return found.rows(measured, beside)


def _neurons(cell: Cell) -> int:
    return int(cell.spec.depth * cell.spec.width)


def claims(found: Found) -> Claims:
    """Section 3.3: as many regions as neurons squared, in order of magnitude; and the free checks."""
    rows, drawn, names = found.table, found.one(width=found.sweep["drawn"]), "{neurons} neurons"
    neurons, mean, error, count = rows.of("neurons", "regions", "regions_error", "runs")
    told = f"{int(drawn['counts'][0, 0, 0])} regions, {int(drawn['linear'][0])} of them linear regions"
    return {
        "the number of regions grows as the number of neurons squared (exponent)": power(
            neurons, mean, error, count, 2.0, EXPONENT, "all widths"
        ),
        f"it is within a factor {ORDER:g} of the number of neurons squared": by(
            between, mean / neurons**2, error / neurons**2, 1 / ORDER, ORDER, count, rows.told(names)
        ),
        "it is at most that of as many lines in general position, 1 + N + N(N - 1)/2": rows.claim(
            at_most, "regions", "lines_in_general_position", names=names
        ),
        "no two regions of the network that is drawn have one pattern": by(check, bool(drawn["distinct"].all()), told),
        **checks(found, "partitions"),
    }


def draw(found: Found) -> plots.Figure:
    """The regions of one network, large, and how their number grows with the neurons."""
    picture, panels = plots.figure(11.0, 6.2, mosaic=[["plane", "count"]], width_ratios=[1.45, 1.0])
    drawn, rows = found.one(width=found.sweep["drawn"]), found.table
    plane(panels["plane"], drawn, "0")
    cells, what = len(drawn["cell_ends_0"][0]) - 1, found.sweep.told("{depth} hidden layers of {drawn}")
    panels["plane"].set_title(f"{what}: {cells:,} regions in this square")
    axes, x = panels["count"], rows.column("neurons")
    plots.means(axes, rows, "neurons", "regions", 0, "measured, mean")
    plots.column(axes, rows, "neurons", "lines_in_general_position", 1, "lines in general position", linestyle="--")
    square = rows[0]["regions"] / x[0] ** 2 * x.astype(float) ** 2
    axes.plot(x, square, color=plots.BOUND, linestyle=":", label="in proportion to neurons squared")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="regions in the square")
    plots.ticks(axes, x.tolist())
    axes.legend()
    return picture


def plane(axes: plots.Axes, cell: Cell, name: str) -> None:
    """Cells in the colours of their patterns, with thin edges, and the three examples."""
    from matplotlib.collections import PolyCollection

    parts = ("vertices", "cell_vertices", "cell_ends", "colours", "examples", "window")
    vertices, of, ends, colours, examples, window = (np.asarray(cell.results[0][f"{part}_{name}"]) for part in parts)
    look: dict[str, Any] = {"facecolors": colours, "edgecolors": "#333333", "linewidths": 0.12, "rasterized": True}
    axes.add_collection(PolyCollection(np.split(vertices[of], ends[1:-1]), **look))
    axes.plot(*examples.T, "ko", markersize=4, markeredgecolor="white", clip_on=False, zorder=3)
    low, high = window.min(0), window.max(0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", ylabel="")
    axes.set_xlabel("in the plane of three examples (dots)")
    axes.grid(False)


# ---- Figure 8


def training_table(found: Found) -> Table:
    """One row an epoch: regions in a plane, and accuracy, with errors over networks."""
    cell = found.one()
    epochs, squared = cell["epoch"][0].tolist(), _neurons(cell) ** 2
    rows = found.rows(lambda cell: {"regions": cell["counts"].mean(2), "accuracy": cell["accuracy"]}, epoch=epochs)
    return Table({**row, "regions_per_neurons_squared": row["regions"] / squared} for row in rows)


def training_claims(found: Found) -> Claims:
    """Section 3.3: the regions expand at first and then contract; their number stays of the order neurons squared."""
    cell = found.one()
    counts, epoch = cell["counts"].mean(2), cell["epoch"][0]
    fall, rise, places = turn(counts, lowest=True)
    when, names = [f"lowest near epoch {epoch[max(places)]:.2g}"], [f"epoch {one:.2g}" for one in epoch]
    shares = counts / _neurons(cell) ** 2
    return {
        "the number of regions falls in the initial part of training": over_runs(at_least, fall, 0.0, names=when),
        "... and then rises until the end": over_runs(at_least, rise, 0.0, names=when),
        f"it stays within a factor {ORDER:g} of the number of neurons squared": over_runs(
            between, shares, 1 / ORDER, ORDER, names=names
        ),
        **checks(found, "partitions"),
    }


def training_draw(found: Found) -> plots.Figure:
    """One plane at several epochs, a cell in one colour as long as its pattern survives; below, all counts."""
    cell = found.one()
    spec, rows = cell.spec, found.table
    names = [str(index) for index in range(len(spec.drawn))]
    width, grid = 3.1 * len(names), [names, ["count"] * len(names)]
    picture, panels = plots.figure(width, 6.4, mosaic=grid, height_ratios=[width / len(names) / 2.6, 1.0])
    for name, when in zip(names, spec.drawn, strict=True):
        plane(panels[name], cell, name)
        accuracy = float(cell["accuracy"][0, spec.at.index(when)])
        cells = len(np.asarray(cell.results[0][f"cell_ends_{name}"])) - 1
        told = f"epoch {when:g}" if when else "before training"
        panels[name].set_title(f"{told}: {cells:,} regions,\ntest accuracy {accuracy:.1%}", fontsize=9)
        panels[name].tick_params(labelsize=7)
        panels[name].set_xlabel("in the plane of three examples", fontsize=8)
    axes, epoch = panels["count"], rows.column("epoch")
    label = f"mean over {cell.runs} networks of {spec.planes} planes each"
    plots.means(axes, rows, "epoch", "regions", 0, label, linestyle="-")
    axes.axhline(_neurons(cell) ** 2 / ORDER, color=plots.BOUND, linestyle=":", label=f"neurons squared / {ORDER:g}")
    plots.epochs(axes, epoch[-1])
    axes.set(ylabel="regions in the square")
    axes.legend()
    return picture


_EARLY = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0)
_SPEC = Spec(data="mnist", depth=3, networks=40, planes=5, drawn=64)
_SLICES = Sweep(random_slices, _SPEC, {"width": (16, 32, 64, 128)})
_HOW = {"depth": 3, "width": 64, "at": (*_EARLY, 15.0, 20.0), "batch_size": 128, "learning_rate": 1e-3}
_THROUGH = Sweep(trained_slices, Spec(data="mnist", **_HOW, planes=10, drawn=(0.0, 1.0, 10.0, 20.0)), runs=5)
_LESS: dict[str, Any] = {"at": (*_EARLY, 20.0, 40.0, 60.0), "drawn": (0.0, 1.0, 10.0, 60.0)}
_PRESETS = {"quick": _SLICES.but(data="digits", width=(16, 32, 64, 96), planes=2), "paper": _SLICES}
_TRAINED = {"quick": _THROUGH.but(data="digits", batch_size=32, planes=5, **_LESS), "paper": _THROUGH}


_BARS = "planes through one example of 0, 1 and 2 (dots); bars: two standard errors"
_TITLE = "Regions in a plane through three examples"
ARTIFACTS = (
    Artifact("hanin-rolnick/fig1", _TITLE, "", _PRESETS, table, claims, draw, f"before training; {_BARS}"),
    Artifact(
        "hanin-rolnick/fig8",
        f"{_TITLE}, through training",
        "section 3.3",
        _TRAINED,
        training_table,
        training_claims,
        training_draw,
        f"one network a run, by Adam; {_BARS}",
    ),
)
