"""Linear regions in a checkup: on lines between examples, and on a plane through three (Hanin-Rolnick section 3)."""

import base64
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.regions import LinePartitions, PlanePartition, on_line, on_plane, through
from epoch0.results import finite
from epoch0.seeds import numpy_generator
from epoch0.theory.regions import line_breaks
from epoch0.tracing.guard import unchanged
from epoch0.tracing.tape import Tape

CELLS = 200
"""About how many cells a picture shows: the square through the examples is made smaller until it has no more."""

MOST_CELLS = 1500  # A picture with more cells is not drawn
MEMORY = 2e7  # bytes for the cells of a picture: the count stops at 50,000 cells, whatever was expected


@dataclass(frozen=True, eq=False)
class PlaneView:
    """The cells of a square in input space."""

    count: int  #: activation regions in it
    share: float  #: its side, as a share of that of the square around the circle through the three examples
    side: float  #: its side, in units of the input
    corners: np.ndarray  #: coordinates of the corners of all cells, one cell after another, (corners, 2)
    ends: np.ndarray  #: where each cell begins in ``corners``, and the end, (count + 1,)
    patterns: np.ndarray  #: which neurons are on in each cell, packed bits, (count, bytes)
    borders: np.ndarray  #: ends of the edges between cells, (edges, 2, 2)
    layer: np.ndarray  #: index of the layer that folds at each of them
    layers: tuple[str, ...]  #: names of the layers
    examples: np.ndarray  #: coordinates of the three examples, (3, 2)
    outline: np.ndarray  #: corners of the square, counter-clockwise, (4, 2); cells at its border may reach out of it

    def to_dict(self) -> dict[str, Any]:
        """Its numbers."""
        return {"count": self.count, "share": self.share, "side": self.side}

    def png(self) -> str:
        """The picture as a PNG file, base64: a pattern has the same colour in every picture of the same network."""
        from matplotlib.collections import LineCollection, PolyCollection

        from epoch0 import plots
        from epoch0.regions import pattern_colours

        picture, axes = plots.figure(4.4, 4.4)
        colours = pattern_colours(self.patterns)
        cells = np.split(self.corners, self.ends[1:-1])
        axes.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=colours, linewidths=0.2))
        width = float(np.clip(20.0 / max(1, self.count) ** 0.5, 0.25, 1.0))
        early, late = np.array([0.0, 0.20, 0.36]), np.array([0.84, 0.37, 0.0])
        for index in range(len(self.layers)):
            mine = self.borders[self.layer == index]
            share = index / max(1, len(self.layers) - 1)
            colour = (1 - share) * early + share * late
            axes.add_collection(LineCollection(list(mine), colors=[colour], linewidths=width))
        low, high = self.outline.min(axis=0), self.outline.max(axis=0)
        inside = ((self.examples >= low) & (self.examples <= high)).all(axis=1)
        axes.plot(*self.examples[inside].T, "o", color="black", markersize=5, markerfacecolor="white")
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.grid(False)
        return base64.b64encode(plots.png(picture, dpi=130)).decode("ascii")


def look(model: nn.Module, three: Tensor, density: float) -> tuple[PlaneView | None, str]:
    """The square through three examples, made smaller where it would have too many cells; or why there is none.

    Where a line meets ``density`` borders in a unit of length and they lie in all directions alike, a square of side s
    has about pi / 4 (density s)^2 cells; it is counted again after it was cut.
    """
    if len(three) < 3:
        return None, "a plane needs three examples"
    try:
        full = 0.5 * float((through(*three)[1] - through(*three)[0]).norm())
        share = min(1.0, math.sqrt(CELLS * 4 / math.pi) / max(density * 2 * full, 1e-300))
        for _ in range(2):
            found = on_plane(model, through(*three, margin=share), memory=MEMORY)
            if found.count <= MOST_CELLS:
                return _view(found, three, share, 2 * full * share), ""
            share *= math.sqrt(CELLS / found.count)
    except InputError as problem:
        return None, str(problem)
    return None, f"too many cells to draw: {found.count:,}"


def _view(found: PlanePartition, three: Tensor, share: float, side: float) -> PlaneView:
    axes = found.window.axes.reshape(2, -1)
    examples = (three.cpu() - found.window.origin).reshape(3, -1) @ axes.T
    inner = found.owner_layer >= 0
    with torch.no_grad():
        cells = found.vertices[found.cell_vertices], found.cell_ends, found.patterns
    borders = found.vertices[found.edges[inner]], found.owner_layer[inner]
    outline = found.window.polygon.cpu().numpy()
    return PlaneView(found.count, share, side, *cells, *borders, found.layers, examples.numpy(), outline)


LINES = 6  # segments looked at, as far as the batch has pairs of examples
NEURONS = 16_000  # Networks with more are left out: each break point costs a part of a forward pass
STREAM = 0x7265  # name of the random stream that pairs the examples
_QUIET = {"flatten", "reshape", "view", "dropout", "contiguous", "squeeze", "unsqueeze", "alias", "identity"}


@dataclass(frozen=True)
class LayerRegions:
    """Break points that one layer adds to a segment."""

    name: str  #: of the module, or of the call where no module makes it
    neurons: int  #: elements that fold
    breaks: float  #: mean number of break points on a segment
    error: float | None  #: its standard error over the segments, None with one segment
    #: what a random network with weights and biases of these sizes has on the same segments, None where that is not
    #: known
    expected: float | None


@dataclass(frozen=True)
class Regions:
    """How many linear regions a network has where its data is.

    >>> found = checkup(net, x, regions=True).regions           # x of shape (100, 64)
    >>> round(found.per_neuron, 2), round(found.expected_per_neuron, 2)
    (0.33, 0.35)
    """

    lines: int  #: number of segments, each from one example of the batch to another
    neurons: int  #: elements that fold, all layers together
    count: float  #: mean number of activation regions on a segment: one more than the break points
    error: float | None  #: its standard error over the segments, None with one segment
    expected: float | None  #: what theory expects on the same segments, None where it does not apply
    layers: tuple[LayerRegions, ...]  #: one row for each step that folds, in order
    held: bool  #: whether batch norm was held at the statistics of the batch
    #: the square through three examples, None if there is none
    plane: PlaneView | None = field(default=None, repr=False, compare=False)
    plane_reason: str = ""  #: why there is none; else empty

    @property
    def per_neuron(self) -> float:
        """Regions on a segment for each neuron."""
        return self.count / self.neurons

    @property
    def error_per_neuron(self) -> float | None:
        """Its standard error."""
        return None if self.error is None else self.error / self.neurons

    @property
    def expected_per_neuron(self) -> float | None:
        """What theory expects."""
        return None if self.expected is None else self.expected / self.neurons

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; of the plane its numbers, not its cells."""
        plane = None if self.plane is None else self.plane.to_dict()
        for_each = ("per_neuron", "error_per_neuron", "expected_per_neuron")
        told = {name: getattr(self, name) for name in for_each}
        return {**finite(asdict(replace(self, plane=None))), **told, "plane": plane}


def count_regions(record: Tape, seed: int) -> tuple[Regions | None, str]:
    """Regions on segments between examples and on a plane through three; or why there are none. It never fails.

    Returns:
        The regions and "", or None and the reason.
    """
    x = record.call.batch
    if (reason := _no_lines(record)) or not isinstance(x, Tensor):
        return None, reason
    try:
        held = record.has_batch_norm and record.batch_norm == "train"
        with unchanged(record.model):
            norms = [m for m in record.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and held]
            for norm in norms:  # the statistics of this batch become the running ones
                norm.train().momentum = 1.0
            if norms:
                record.model(x)
            return _count(record.model.eval(), x, _random(record), seed, held), ""
    except InputError as problem:
        return None, str(problem)
    except Exception as problem:  # whatever else a model may do, the rest of its checkup stands
        return None, f"the model could not be cut: {type(problem).__name__}: {problem}"


def _no_lines(record: Tape) -> str:
    """Why regions are not counted; empty where they are."""
    x, neurons = record.call.batch, 0
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return "the inputs are no tensor of floats: there is no line between them"
    for op in record.ops:
        rule = op.activation if op.elementwise else None
        if rule is not None and rule.slopes is None and not rule.breaks:
            return f"smooth: no linear regions ({rule.name})"
        if op.elementwise or "max_pool" in op.name:
            neurons += math.prod(record.nodes[op.outputs[0] if op.elementwise else op.inputs[0]].shape[1:])
    if len(x) < 2:
        return "a segment needs two examples"
    return f"too large: {neurons:,} neurons, more than {NEURONS:,}" if neurons > NEURONS else ""


def _random(record: Tape) -> tuple[tuple[float, float], ...]:
    """The variances of a plain dense network's pre-activations, layer by layer; empty if it is none."""
    node, a, b, half = 0, 0.0, 1.0, 1.0
    found: list[tuple[float, float]] = []
    linear = False
    for op in record.ops:
        if op.inputs != (node,) or not op.outputs:
            return ()
        node = op.outputs[-1]
        if op.kind == "linear" and op.fan_in and op.call and not linear and len(record.nodes[node].shape) == 2:
            biases = [p for name in op.weights if (p := record.model.get_parameter(name)).dim() == 1]
            shift = sum(float(p.detach().double().square().mean()) for p in biases)
            squares = (
                op.fan_in * float(w.detach().double().square().mean()) for w in op.call.constants() if w.dim() == 2
            )
            gain = next(squares)  # sigma_w^2
            a, b, linear = shift + gain * half * a, gain * half * b, True
        elif op.elementwise and linear and (rule := op.activation) is not None:
            if rule.breaks != (0.0,) or rule.slopes is None or not rule.homogeneous:
                return ()
            found.append((a, b))
            half, linear = (rule.slopes[0] ** 2 + rule.slopes[1] ** 2) / 2, False
        elif op.kind or op.elementwise or op.name not in _QUIET:
            return ()
    return tuple(found) if node == record.output else ()


def _count(model: nn.Module, x: Tensor, random: Sequence[tuple[float, float]], seed: int, held: bool) -> Regions:
    order = numpy_generator(seed, STREAM).permutation(len(x)).tolist()
    lines = min(LINES, len(x) // 2)
    pairs = [
        (i, j) for i, j in zip(order[:lines], order[lines : 2 * lines], strict=True) if not torch.equal(x[i], x[j])
    ]
    if not pairs:
        raise InputError("the examples are all the same, so there is no segment between them")
    starts, ends = (x[[pair[side] for pair in pairs]].double() for side in (0, 1))
    found = on_line(model, starts, ends)
    assert isinstance(found, LinePartitions)
    one = found[0]
    if not one.neurons:
        raise InputError("nothing in the network folds: it is one affine map")
    windows = [getattr(step, "windows", None) for step in one.program.folds]  # of a maximum its neurons
    sizes = [size if w is None else len(w) for w, size in zip(windows, one.program.sizes, strict=True)]
    breaks = np.stack([np.bincount(line.owner_layer, minlength=len(one.layers)) for line in found])
    expected = _expected(random, sizes, starts, ends)
    means = [None] * len(sizes) if expected is None else [float(value) for value in expected]
    rows = zip(one.layers, sizes, breaks.T, means, strict=True)
    layers = tuple(LayerRegions(name, size, float(b.mean()), _error(b), mean) for name, size, b, mean in rows)
    count = float(found.counts.mean())
    length = float((ends - starts).flatten(1).norm(dim=1).mean())
    plane, why = look(model, x[order[:3]].double(), (count - 1) / length)
    total = None if expected is None else 1.0 + float(expected.sum())
    return Regions(len(pairs), one.neurons, count, _error(found.counts), total, layers, held, plane, why)


def _expected(
    random: Sequence[tuple[float, float]], sizes: Sequence[int], starts: Tensor, ends: Tensor
) -> np.ndarray | None:
    """Expected break points of each layer, mean over the segments; None where there is no theory."""
    if not random or len(random) != len(sizes) or not all(math.isfinite(a) and 1e-280 < b < 1e280 for a, b in random):
        return None
    x0, x1 = (side.flatten(1).cpu().numpy() for side in (starts, ends))
    per_layer = [
        line_breaks([size], x0, x1, weight_std=math.sqrt(b), bias_std=math.sqrt(a)).mean()
        for size, (a, b) in zip(sizes, random, strict=True)
    ]
    return np.array(per_layer)


def _error(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def about(found: Regions | None, reason: str) -> list[str]:
    """How linear regions were counted, and why not where they were not."""
    if found is None:
        return [] if reason.startswith("smooth") else [f"Linear regions were not counted: {reason.rstrip('.')}."]
    lines = f"{found.lines} segments" if found.lines > 1 else "one segment"
    held = ", with batch norm held at the statistics of this batch" if found.held else ""
    expected = (
        "What is expected is the mean of wide random networks with weights and biases of these sizes."
        if found.expected is not None
        else "Theory has no number for this network; of dense random ones at He's initialization about half of the "
        "neurons fold between two unrelated points (Hanin & Rolnick 2019, Theorem 1)."
    )
    plane = [] if found.plane is not None else [f"No plane is drawn: {found.plane_reason.rstrip('.')}."]
    return [f"Regions were counted exactly, on {lines} between examples{held}. {expected}", *plane]
