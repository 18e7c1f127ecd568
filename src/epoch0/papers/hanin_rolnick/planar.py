"""Hanin-Rolnick Figures 1, 2, 8: regions in planes; of two inputs, layer by layer (Raghu Figure 1 too), and in slices.

Every network of a trial is put to the tests of how its regions are made; the first is drawn.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots, regions
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, at_least, at_most, between, check
from epoch0.networks import ensemble
from epoch0.papers.hanin_rolnick.trained import BIAS_STD, through_training, turn
from epoch0.papers.sweep import Artifact, Cell, Found, Spec, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Table, by, over_runs
from epoch0.papers.trials import EXTENTS, tensors
from epoch0.regions import PlanePartition, pattern_colours
from epoch0.regions.planes.cutting import next_around
from epoch0.seeds import numpy_generator
from epoch0.theory.regions import arrangement_regions, upper_bound
from epoch0.train import Accuracy

EXACT = 1e-9  # relative difference between sums of lengths or areas that rounding explains
STRAIGHT = 1e-9  # angle in radians, beyond the rounding of short edges, up to which two directions are one
_ROUNDING = 1e-13  # of a coordinate in a window of size 1


def partitions(spec: Spec, seed: int) -> dict[str, Any]:
    """Partition the square [-half, half]^2 by every network, layer by layer.

    ``cells`` are activation regions after each layer, (networks, depth); ``parents``, distinct patterns of the first l
    layers over all final cells, are equal to them if every cell comes from one cell of each layer before; ``moved`` is
    the largest relative difference between the length of the boundaries that the first l layers make in the whole
    network and in the network cut off there; ``bent`` counts bends of a boundary where no earlier layer has one. Of the
    first network the drawing: ``owner`` is the layer of each edge, -1 for the border, ``heights`` the output at each
    vertex, and names with ``_l`` are the cells after layer l.
    """
    sizes, laws = [2, *[spec.width] * spec.depth, 1], (Gaussian(spec.weight_std), Gaussian(spec.bias_std))
    axes = torch.eye(2, dtype=torch.float64)
    window = regions.square(torch.zeros(2), axes[0], axes[1], spec.half)
    tested: list[dict[str, Any]] = []
    drawing: dict[str, Any] = {}
    for net in ensemble(spec.networks, sizes, "relu", *laws, seed=seed, dtype=torch.float64):
        layers = [regions.on_plane(net[: 2 * (layer + 1)], window) for layer in range(spec.depth)]
        whole = regions.on_plane(net, window)
        bits = np.unpackbits(whole.patterns, axis=1)[:, : spec.width * spec.depth]
        parents = [len(np.unique(bits[:, : spec.width * (layer + 1)], axis=0)) for layer in range(spec.depth)]
        lengths, moved, bends = _lengths(whole), [], [bends_of(whole, layer) for layer in range(spec.depth)]
        for layer, cut in enumerate(layers):
            own = _lengths(cut)[cut.owner_layer >= 0].sum()
            same = lengths[(whole.owner_layer >= 0) & (whole.owner_layer <= layer)].sum()
            moved.append(abs(own - same) / max(own, 1e-300))
        elsewhere, cells = sum(int((~explained).sum()) for _, explained in bends), [cut.count for cut in layers]
        row = {"cells": cells, "linear": whole.linear_count, "parents": parents, "moved": max(moved), "bent": elsewhere}
        row |= {"bends": [len(at) for at, _ in bends], "concave": concave_corners(whole)}
        tested.append({**row, "euler": whole.certificate.euler, "area_error": whole.certificate.measure_error})
        if not drawing:
            drawing = {"vertices": whole.vertices, "edges": whole.edges, "owner": whole.owner_layer}
            with torch.no_grad():
                drawing["heights"] = net(whole.points)[:, 0].numpy()
            for index, cut in enumerate(layers, start=1):
                drawing |= _cells(cut, str(index))
    result = {name: np.stack([np.asarray(item[name], dtype=np.float64) for item in tested]) for name in tested[0]}
    return {**result, **drawing}


def bends_of(partition: PlanePartition, layer: int) -> tuple[Array, Array]:
    """Where the boundary of a neuron of that layer turns, and whether an earlier layer has a boundary there."""
    selected = partition.owner_layer == layer
    ends, neuron = partition.edges[selected], np.repeat(partition.owner_neuron[selected], 2)
    vertex, other = ends.ravel(), ends[:, ::-1].ravel()
    order = np.lexsort((vertex, neuron))
    vertex, other, neuron = vertex[order], other[order], neuron[order]
    along = partition.vertices[other] - partition.vertices[vertex]
    length = np.linalg.norm(along, axis=1)
    blur = STRAIGHT + 100 * _ROUNDING / length  # the angle that rounding may turn an edge by
    x, y = along.T / length
    # edges of one neuron that meet in a vertex stand side by side
    pair = np.flatnonzero((vertex[1:] == vertex[:-1]) & (neuron[1:] == neuron[:-1]))
    at = vertex[pair][np.abs(x[pair] * y[pair + 1] - y[pair] * x[pair + 1]) > blur[pair] + blur[pair + 1]]
    earlier = np.zeros(len(partition.vertices), dtype=bool)
    earlier[partition.edges[(partition.owner_layer >= 0) & (partition.owner_layer < layer)]] = True
    return at, earlier[at]


def concave_corners(partition: PlanePartition) -> int:
    """Corners of cells that turn the wrong way, by more than rounding can."""
    point, following = partition.vertices[partition.cell_vertices], next_around(partition.cell_ends)
    into = point[following] - point  # the corner that follows, and the side behind it goes out of there
    out = into[following]
    lengths = np.linalg.norm(out, axis=1), np.linalg.norm(into, axis=1)
    turn = into[:, 0] * out[:, 1] - into[:, 1] * out[:, 0]
    return int((turn < -STRAIGHT * lengths[0] * lengths[1] - 100 * _ROUNDING * (lengths[0] + lengths[1])).sum())


def _lengths(partition: PlanePartition) -> Array:
    ends = partition.vertices[partition.edges]
    return np.asarray(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1))


def _cells(found: PlanePartition, name: str) -> dict[str, Array]:
    parts = {"vertices": found.vertices, "cell_vertices": found.cell_vertices, "cell_ends": found.cell_ends}
    return {f"{part}_{name}": values for part, values in {**parts, "colours": pattern_colours(found.patterns)}.items()}


def table(found: Found) -> Table:
    spec, (result,), rows = found.sweep.spec, found.one().results, Table()
    for (network, layer), cells in np.ndenumerate(result["cells"]):
        row: dict[str, Any] = {"network": network, "layer": layer + 1}
        row |= {"regions": int(cells), "most_possible": _most(spec, layer)}
        row["bends_of_its_boundaries"] = int(result["bends"][network][layer])
        row["linear_regions_of_the_network"] = int(result["linear"][network])
        rows.append({**row, "euler": int(result["euler"][network]), "area_error": float(result["area_error"][network])})
    return rows


def _most(spec: Spec, layer: int) -> int:
    return upper_bound([spec.width] * (layer + 1), inputs=2)


def further(found: Found) -> Claims:
    """Theorem 1 of Raghu et al., layer by layer; and how much a layer adds to what lines in the plane would make."""
    spec, (result,) = found.sweep.spec, found.one().results
    cells = np.asarray(result["cells"])
    above = int((cells > [_most(spec, layer) for layer in range(spec.depth)]).sum())
    text = f"{above} of {cells.size} counts above; {cells[:, -1].max():g} of {_most(spec, spec.depth - 1)} at the most"
    lines = [float(arrangement_regions(spec.width * (layer + 1), 2)) for layer in range(spec.depth)]
    names = [f"layer {layer + 1}" for layer in range(spec.depth)]
    as_lines = "the number of regions after n > 1 layers is at most that of as many lines in general position"
    theorem = "the number of regions is at most (1 + k + k(k - 1)/2)^n, k neurons in each of n layers"
    return {
        as_lines: over_runs(at_most, cells[:, 1:], np.array(lines[1:]), names=names[1:]),
        theorem: by(check, above == 0, text, {"above": above}),
    }


def checks(cells: Iterable[Cell], noun: str) -> Claims:
    euler, areas = (np.concatenate([cell[name].ravel() for cell in cells]) for name in ("euler", "area_error"))
    area = float(np.abs(areas).max())
    right, detail = bool((euler == 1).all()) and area < EXACT, f"areas are off by at most {area:.1e} of the square"
    numbers = {"area_error": area, "euler_least": float(euler.min()), "euler_most": float(euler.max())}
    text = "vertices - edges + cells = 1, and the areas add up to the square"
    return {text: by(check, right, f"{len(euler)} {noun}; {detail}", numbers)}


def claims(found: Found) -> Claims:
    (result,), networks = found.one().results, found.sweep["networks"]
    cells, parents = np.asarray(result["cells"]), np.asarray(result["parents"])
    moved, wrong = float(np.max(result["moved"])), int((cells != parents).any(axis=1).sum())
    text = f"{int(cells[:, -1].sum())} cells of {networks} networks; {wrong} networks contradict"
    apart = f"their lengths differ by at most {moved:.1e} of themselves"
    subdivides = "each layer only subdivides: every final cell comes from one cell of each layer before"
    stay = by(check, moved < EXACT, apart, {"largest_difference": moved})
    return {
        subdivides: by(check, wrong == 0, text, {"contradict": wrong}),
        "later layers leave the boundaries of earlier ones where they are": stay,
        **further(found),
        **checks(found, "networks"),
    }


def draw(found: Found) -> plots.Figure:
    from matplotlib.collections import LineCollection, PolyCollection
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    setting, (result,) = found.sweep.spec, found.one().results
    half, depth = setting.half, setting.depth
    names = [f"layer {layer + 1}" for layer in range(depth)]
    rows, solid = [names, ["graph"] * depth], {"graph": {"projection": "3d"}}
    picture, panels = plots.figure(3.0 * depth + 0.6, 9.2, mosaic=rows, height_ratios=[1.0, 1.7], per_subplot_kw=solid)
    vertices, edges, owner = (np.asarray(result[name]) for name in ("vertices", "edges", "owner"))
    window = {"xlim": (-half, half), "ylim": (-half, half), "xlabel": "first input"}
    for index, name in enumerate(names, start=1):
        axes, parts = panels[name], ("vertices", "cell_vertices", "cell_ends", "colours")
        own, of, ends, colours = (np.asarray(result[f"{part}_{index}"]) for part in parts)
        cells = np.split(of, ends[1:-1])
        corners = [own[cell] for cell in cells]
        axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=0.2))
        for layer in range(index):
            made = list(vertices[edges[owner == layer]])
            axes.add_collection(LineCollection(made, colors=plots.COLOURS[layer], linewidths=1.0))
        axes.set(aspect="equal", title=f"after layer {index}: {len(corners)} regions", **window)
        axes.grid(False)
        for axis in "xy":
            plots.ticks(axes, np.linspace(-half, half, 5).tolist(), axis)  # "1.0 -1.0" of two panels touch
        axes.tick_params(labelleft=index == 1)
    panels[names[0]].set_ylabel("second input")
    for layer in range(depth):
        panels[names[-1]].plot([], [], color=plots.COLOURS[layer], label=f"made by layer {layer + 1}")
    plots.legend_below(picture, *panels[names[-1]].get_legend_handles_labels(), columns=depth)
    heights = np.asarray(result["heights"])
    faces, axes = [np.column_stack([own[cell], heights[cell]]) for cell in cells], panels["graph"]
    axes.add_collection3d(Poly3DCollection(faces, facecolors=colours, edgecolors="#555555", linewidths=0.3))
    axes.set(zlim=(heights.min(), heights.max()), title="its graph over the regions", zlabel="output", **window)
    axes.set(ylabel="second input", xticks=[-half, 0, half], yticks=[0, half])
    axes.locator_params("z", nbins=4)
    axes.view_init(elev=34, azim=-60)
    axes.tick_params(labelsize=7)
    axes.set_box_aspect((1, 1, 0.7), zoom=1.1)
    return picture


def square(width: int, networks: int) -> Spec:
    return Spec(width=width, depth=3, weight_std=math.sqrt(2.0), bias_std=0.3, half=1.0, networks=networks)


ABOUT = "2 inputs, {depth} hidden layers of {width}, 1 output; He's weights, bias std {bias_std:g}; "
ABOUT += "the first of {networks} networks, all of them tested; exact, no error bars"
_TITLE = "Regions of a network with two inputs, layer by layer"
_PRESETS = Sweep(partitions, square(16, networks=200)).presets(width=8, networks=30)
ARTIFACTS: tuple[Artifact, ...] = (Artifact("hanin-rolnick/fig2", _TITLE, "", _PRESETS, table, claims, draw, ABOUT),)


# ---- Figures 1 and 8 (section 3.3): regions in planes through three examples, at random and in training
# The window is the square around the circle through the three examples, centred where they are equally far away. Which
# classes the paper takes is lost in its text; here 0, 1 and 2. The network of Figure 1 is not trained here.
CLASSES = (0, 1, 2)
EXPONENT = 0.2  # regions grow as the square of the neurons if the fitted exponent is this near to 2
ORDER = 10.0  # of the order of the number of neurons squared: within this factor


def random_slices(spec: Spec, seed: int) -> dict[str, Any]:
    """Regions of networks before training in planes: ``counts``, ``euler``, ``area_error``, (networks, planes). Of the
    first plane of the width ``drawn`` also ``linear``, its linear regions, ``distinct``, whether all its patterns
    differ, and the arrays of :func:`drawing` as ``0``.
    """
    inputs, labels = tensors(spec.data, mode="unit")
    weights, _, source = (numpy_generator(seed, spec.depth, spec.width, stream) for stream in range(3))
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, EXTENTS[spec.data][1]]
    rows: list[dict[str, list[float]]] = []
    kept: dict[str, Any] = {}
    for net in ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=int(weights.integers(2**31))):
        chosen = [three(inputs, labels, source) for _ in range(spec.planes)]
        found = [regions.on_plane(net, regions.through(*item)) for item in chosen]
        rows.append(_checked(found))
        if spec.drawn == spec.width and not kept:
            checks = {"distinct": found[0].verify().distinct, "linear": found[0].linear_count}
            kept = {**drawing(found[0], chosen[0], "0"), **checks}
    return {**{name: np.array([row[name] for row in rows]) for name in rows[0]}, **kept}


def trained_slices(spec: Spec, seed: int) -> dict[str, Any]:
    """The same of one network at the epochs ``at``, (epochs, planes), with ``epoch`` and ``accuracy``, (epochs,); for
    each of the ``drawn`` epochs the arrays of :func:`drawing` under its number in ``drawn``.
    """
    inputs, labels = tensors(spec.data, mode="unit")
    accuracy = Accuracy(*tensors(spec.data, "test", "unit"))
    weights, batches, examples = (numpy_generator(seed, spec.depth, spec.width, stream) for stream in range(3))
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, EXTENTS[spec.data][1]]
    net = ensemble(1, sizes, biases=Gaussian(BIAS_STD), seed=int(weights.integers(2**31)))[0]
    planes = [three(inputs, labels, examples) for _ in range(spec.planes)]
    whens, kept = iter(spec.at), dict[str, Any]()

    def look(model: nn.Module, _: int) -> dict[str, Any]:
        found, when = [regions.on_plane(model, regions.through(*chosen)) for chosen in planes], next(whens)
        if seed == 0 and when in spec.drawn:
            kept.update(drawing(found[0], planes[0], str(spec.drawn.index(when))))
        return {**accuracy(model), **_checked(found)}

    found = through_training(spec, [net], (inputs, labels), int(batches.integers(2**31)), look)
    return {**{name: values if name == "epoch" else values[0] for name, values in found.items()}, **kept}


def three(inputs: Tensor, labels: Tensor, source: np.random.Generator) -> list[Tensor]:
    """One example of each of the three classes, float64."""
    places = [np.flatnonzero(labels.numpy() == label) for label in CLASSES]
    return [inputs[int(source.choice(selected))].double() for selected in places]


def drawing(found: PlanePartition, chosen: list[Tensor], name: str) -> dict[str, Array]:
    """Data of a picture: cells with their colours, and where the three examples are in the plane."""
    axes, origin = found.window.axes.reshape(2, -1), found.window.origin.reshape(-1)
    places = torch.stack([(item - origin) @ axes.T for item in chosen]).numpy()
    return {**_cells(found, name), f"examples_{name}": places, f"window_{name}": found.window.polygon.numpy()}


def _checked(found: list[PlanePartition]) -> dict[str, list[float]]:
    checks = [item.certificate for item in found]
    euler, error = [float(check.euler or 0) for check in checks], [check.measure_error or 0.0 for check in checks]
    return {"counts": [float(item.count) for item in found], "euler": euler, "area_error": error}


# ---- Figure 1
@by_cell
def slice_table(cell: Cell) -> Any:
    counts, neurons, euler = cell["counts"][0].mean(1), _neurons(cell), cell["euler"]
    measured = {"regions": counts, "regions_per_neurons_squared": counts / neurons**2}
    numbers = {"neurons": neurons, "lines_in_general_position": arrangement_regions(neurons, 2)}
    numbers |= {"euler_least": int(euler.min()), "euler_most": int(euler.max())}
    return measured, {**numbers, "largest_area_error": float(np.abs(cell["area_error"]).max())}


def _neurons(cell: Cell) -> int:
    return int(cell.spec.depth * cell.spec.width)


def slice_claims(found: Found) -> Claims:
    rows, drawn, names = found.table, found.one(width=found.sweep["drawn"]), "{neurons} neurons"
    near = rows.claim(between, "regions_per_neurons_squared", 1 / ORDER, ORDER, names=names)
    as_lines = rows.claim(at_most, "regions", "lines_in_general_position", names=names)
    text = f"{int(drawn['counts'][0, 0, 0])} regions, {int(drawn['linear'][0])} of them linear regions"
    grows = rows.power("neurons", "regions", 2.0, EXPONENT, "all widths")
    return {
        "the number of regions grows as the number of neurons squared (exponent)": grows,
        f"it is within a factor {ORDER:g} of the number of neurons squared": near,
        "it is at most that of as many lines in general position, 1 + N + N(N - 1)/2": as_lines,
        "no two regions of the network that is drawn have one pattern": by(check, bool(drawn["distinct"].all()), text),
        **checks(found, "partitions"),
    }


@plots.drawn(11.0, 6.2, mosaic=[["plane", "count"]], width_ratios=[1.45, 1.0])
def slice_draw(found: Found, panels: Any) -> None:
    drawn, rows = found.one(width=found.sweep["drawn"]), found.table
    plane(panels["plane"], drawn, "0")
    cells, title = len(drawn["cell_ends_0"][0]) - 1, found.sweep.fill("{depth} hidden layers of {drawn}")
    panels["plane"].set_title(f"{title}: {cells:,} regions in this square")
    axes, x = panels["count"], rows.column("neurons")
    plots.means(axes, rows, "neurons", "regions", 0, "measured, mean")
    plots.column(axes, rows, "neurons", "lines_in_general_position", 1, "lines in general position", linestyle="--")
    square = rows[0]["regions"] / x[0] ** 2 * x.astype(float) ** 2
    axes.plot(x, square, color=plots.BOUND, linestyle=":", label="in proportion to neurons squared")
    axes.set(xscale="log", yscale="log", xlabel="neurons", ylabel="regions in the square")
    plots.ticks(axes, x.tolist())
    axes.legend()


def plane(axes: plots.Axes, cell: Cell, name: str) -> None:
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
@by_cell
def training_table(cell: Cell) -> Any:
    regions, squared = cell["counts"].mean(2), _neurons(cell) ** 2
    measured, exact = {"regions": regions, "accuracy": cell["accuracy"]}, regions.mean(0) / squared
    return measured, {"regions_per_neurons_squared": exact}, {"epoch": cell["epoch"][0].tolist()}


def training_claims(found: Found) -> Claims:
    cell = found.one()
    counts, epoch = cell["counts"].mean(2), cell["epoch"][0]
    fall, rise, place = turn(counts, lowest=True)
    when, names = [f"lowest near epoch {epoch[place]:.2g}"], [f"epoch {item:.2g}" for item in epoch]
    stays = over_runs(between, counts / _neurons(cell) ** 2, 1 / ORDER, ORDER, names=names)
    return {
        "the number of regions falls in the initial part of training": over_runs(at_least, fall, MORE, names=when),
        "... and then rises until the end": over_runs(at_least, rise, MORE, names=when),
        f"it stays within a factor {ORDER:g} of the number of neurons squared": stays,
        **checks(found, "partitions"),
    }


def training_draw(found: Found) -> plots.Figure:
    cell = found.one()
    spec, rows = cell.spec, found.table
    names = [str(index) for index in range(len(spec.drawn))]
    width, grid = 3.1 * len(names), [names, ["count"] * len(names)]
    picture, panels = plots.figure(width, 6.4, mosaic=grid, height_ratios=[width / len(names) / 2.6, 1.0])
    for name, when in zip(names, spec.drawn, strict=True):
        plane(panels[name], cell, name)
        accuracy = float(cell["accuracy"][0, spec.at.index(when)])
        cells = len(np.asarray(cell.results[0][f"cell_ends_{name}"])) - 1
        text = f"epoch {when:g}" if when else "before training"
        panels[name].set_title(f"{text}: {cells:,} regions,\ntest accuracy {accuracy:.1%}", fontsize=9)
        panels[name].tick_params(labelsize=7)
        panels[name].set_xlabel("in the plane of three examples", fontsize=8)
    axes, label = panels["count"], f"mean over {cell.runs} networks of {spec.planes} planes each"
    plots.means(axes, rows, "epoch", "regions", 0, label, linestyle="-")
    axes.axhline(_neurons(cell) ** 2 / ORDER, color=plots.BOUND, linestyle=":", label=f"neurons squared / {ORDER:g}")
    plots.epochs(axes, rows[-1]["epoch"])
    axes.set(ylabel="regions in the square")
    axes.legend()
    return picture


_EARLY = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0)
_SPEC = Spec(data="mnist", depth=3, networks=40, planes=5, drawn=64)
_SLICES = Sweep(random_slices, _SPEC, {"width": (16, 32, 64, 128)})
_HOW = {"depth": 3, "width": 64, "at": (*_EARLY, 15.0, 20.0), "batch_size": 128, "learning_rate": 1e-3}
_THROUGH = Sweep(trained_slices, Spec(data="mnist", **_HOW, planes=10, drawn=(0.0, 1.0, 10.0, 20.0)), runs=15)
_LESS: dict[str, Any] = {"at": (*_EARLY, 20.0, 40.0, 60.0), "drawn": (0.0, 1.0, 10.0, 60.0)}
_SLICE_PRESETS = _SLICES.presets(data="digits", width=(16, 32, 64, 96), planes=2)
_TRAINED = _THROUGH.presets(data="digits", batch_size=32, planes=5, **_LESS)
_SLICE_TITLE = "Regions in a plane through three examples"
_OF = "{data}; {depth} hidden layers of width {width}, %s networks, {planes} planes each through examples of 0, 1 and 2"
_ADAM = "{drawn.last:g} epochs of Adam at {learning_rate:g}, batches of {batch_size}; {runs}"
_FIRST = slice_table, slice_claims, slice_draw, _OF % "before training; {networks}"
_EIGHTH = training_table, training_claims, training_draw, _OF % _ADAM
ARTIFACTS += (
    Artifact("hanin-rolnick/fig1", _SLICE_TITLE, "", _SLICE_PRESETS, *_FIRST),
    Artifact("hanin-rolnick/fig8", f"{_SLICE_TITLE}, through training", "section 3.3", _TRAINED, *_EIGHTH),
)
