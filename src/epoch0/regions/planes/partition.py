"""A window, and its partition into regions: cells, edges with owners, areas, patterns, maps (Hanin-Rolnick, 3)."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from epoch0 import plots
from epoch0.arguments import Kind, Positive, checked
from epoch0.curves import Curve
from epoch0.errors import InputError, check_dense
from epoch0.progress import Progress
from epoch0.regions.certificate import RELATIVE, Certificate, sizes_of
from epoch0.regions.complex import Budget
from epoch0.regions.lines import LinePartitions, on_curve, on_line, segment_ends
from epoch0.regions.network.steps import Largest, Pieces, Program, follow
from epoch0.regions.network.trace import in_float64, trace
from epoch0.regions.planes.cutting import Plane, components, next_around
from epoch0.regions.walk import MEMORY, walk
from epoch0.results import Result, counted
from epoch0.tracing.guard import keeping_memory

Axes = Annotated[Any, Kind("axes of matplotlib", lambda v: v is None or hasattr(v, "add_collection"))]


@dataclass(frozen=True, eq=False)
class Window:
    """A convex polygon with coordinates in its plane: point = origin + coordinates @ axes."""

    corners: Tensor  #: ``(corners, *shape)``, counter-clockwise in the plane's coordinates
    origin: Tensor  #: ``(*shape)``; the mean of the corners, or zero where inputs have two coordinates
    axes: Tensor  #: two orthonormal directions, ``(2, *shape)``; for inputs of two coordinates their own axes
    polygon: Tensor  #: the corners in coordinates, (corners, 2)

    def points(self, coordinates: Tensor) -> Tensor:
        """Input points for coordinates of shape (points, 2)."""
        found: Tensor = self.origin.reshape(1, -1) + coordinates @ self.axes.reshape(2, -1)
        return found.view(-1, *self.origin.shape)

    def sample(self) -> Tensor:
        """A few points that set the scale of values in the window: corners, middles of edges, the centre."""
        middles = 0.5 * (self.polygon + self.polygon.roll(1, 0))
        return self.points(torch.cat([self.polygon, middles, self.polygon.mean(dim=0, keepdim=True)]))

    @property
    def area(self) -> float:
        """Area in the plane."""
        return float(polygon_area(self.polygon))


def polygon_area(polygon: Tensor) -> Tensor:
    """Signed area of a polygon, (corners, 2): positive if counter-clockwise."""
    x, y = (polygon - polygon[0]).T
    area: Tensor = 0.5 * (x @ y.roll(-1) - y @ x.roll(-1))
    return area


def as_window(corners: Any) -> Window:
    """Check the corners of a window, shape ``(corners, *shape)``, and give them coordinates."""
    if isinstance(corners, Tensor):
        check_dense("the window", corners)
    if not isinstance(corners, Tensor) or corners.dim() < 2 or len(corners) < 3:
        shape = tuple(corners.shape) if isinstance(corners, Tensor) else type(corners).__name__
        raise InputError(f"the window is {shape}; give a tensor (corners, ...), three corners or more.")
    corners = in_float64("the window", corners).cpu()
    flat = corners.reshape(len(corners), -1)
    if flat.shape[1] < 2:
        raise InputError("the inputs have one coordinate only, so there is no plane in them; use regions.on_line.")
    sides = flat.roll(-1, 0) - flat
    scale = float(sides.norm(dim=1).max())
    apart = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    if len(same := (apart <= 1e-12 * scale).triu(1).nonzero()):
        first, second = same[0].tolist()
        raise InputError(f"corners {first} and {second} of the window coincide; name every corner once.")
    origin, basis = flat.mean(dim=0), _axes(sides[0], flat - flat[0])
    if basis is None:
        raise InputError("the window has no area: its corners are on one line.")
    if flat.shape[1] == 2:
        origin, basis = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    polygon = (flat - origin) @ basis.T
    away = float((origin + polygon @ basis - flat).norm(dim=1).max())
    if away > 1e-5 * scale:  # corners may come in float32
        raise InputError(f"the window's corners are not in one plane: one is {away / scale:.1e} of its width away.")
    if float(polygon_area(polygon)) < 0:
        polygon, corners = polygon.flip(0), corners.flip(0)
    edge = polygon.roll(-1, 0) - polygon
    following = edge.roll(-1, 0)
    turn = edge[:, 0] * following[:, 1] - edge[:, 1] * following[:, 0]
    angles = torch.atan2(turn, (edge * following).sum(dim=1))
    if bool((turn < -1e-9 * scale * scale).any()) or float(angles.sum()) > 6.5:
        worst = int(turn.argmin())
        raise InputError(f"window not convex at corner {(worst + 1) % len(corners)}; give its corners in their order.")
    shape = corners.shape[1:]
    return Window(corners, origin.reshape(shape), basis.reshape(2, *shape), polygon)


def _axes(first: Tensor, others: Tensor) -> Tensor | None:
    """An orthonormal basis of the plane, beginning along the first side; None if all is on one line."""
    u = first / first.norm()
    rest = others - (others @ u)[:, None] * u
    rest = rest - (rest @ u)[:, None] * u
    lengths = rest.norm(dim=1)
    if float(lengths.max()) <= 1e-12 * float(others.norm(dim=1).max()):
        return None
    v = rest[int(lengths.argmax())]
    return torch.stack([u, v / v.norm()])


@checked
def square(centre: ArrayLike, u: ArrayLike, v: ArrayLike, half: Positive) -> Tensor:
    """The corners of a square window, shape ``(4, *shape)``, float64.

    >>> square(torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.ones(2, 2), 28.0).shape
    torch.Size([4, 2, 2])

    The centre has any shape, u, the direction of a side, and v the same; of v the part perpendicular to u is used, so
    they are not parallel. ``half`` is half the side's length.

    Raises:
        InputError: if u and v are parallel or zero, or half is not positive.
    """
    centre, u, v = (in_float64(name, x) for name, x in (("the centre", centre), ("u", u), ("v", v)))
    for name, value in (("u", u), ("v", v)):
        if value.shape != centre.shape:
            raise InputError(f"{name} has shape {tuple(value.shape)} and the centre {tuple(centre.shape)}.")
    directions = torch.stack([u, v]).reshape(2, -1)
    axes = _axes(directions[0], directions) if float(directions[0].norm()) > 0 else None
    if axes is None:
        raise InputError("u and v are parallel or zero; a square needs two different directions.")
    signs = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
    corners: Tensor = centre.reshape(1, -1) + half * signs @ axes
    return corners.reshape(4, *centre.shape)


@checked
def through(a: ArrayLike, b: ArrayLike, c: ArrayLike, *, margin: Positive = 1.0) -> Tensor:
    """The corners of the square through three points, centred where all three are equally far away.

    >>> through(images[0], images[1], images[2]).shape               # images of shape (100, 64)
    torch.Size([4, 64])

    The points have one shape and are not on one line; sides are along b - a, ``margin`` is half a side over the radius.

    Raises:
        InputError: if the points are on one line, or not of one shape.

    Source: Hanin and Rolnick 2019, Figure 5: planes through three examples, centred at their circumcentre.
    """
    a, b, c = (in_float64(f"point {name}", x) for name, x in (("a", a), ("b", b), ("c", c)))
    if not a.shape == b.shape == c.shape:
        raise InputError(f"the three points have shapes {tuple(a.shape)}, {tuple(b.shape)} and {tuple(c.shape)}.")
    p, q = (b - a).reshape(-1), (c - a).reshape(-1)
    pp, qq, pq = float(p @ p), float(q @ q), float(p @ q)
    gram = pp * qq - pq * pq
    if gram <= 1e-12 * pp * qq or pp == 0 or qq == 0:
        raise InputError("the three points are on one line, so no circle goes through them; take another third point.")
    s, t = qq * (pp - pq) / (2 * gram), pp * (qq - pq) / (2 * gram)
    away = s * p + t * q
    return square(a + away.reshape(a.shape), b - a, c - a, margin * float(away.norm()))


@dataclass(frozen=True, eq=False)
class PlanePartition(Result):
    """How a network's linear pieces tile a window.

    Activation regions are the cells on which every neuron keeps its sign; ``count`` counts them. Neighbours may still
    share one affine map; ``linear_count`` counts the cells after such neighbours are joined.
    """

    window: Window  #: the polygon and the coordinates in its plane
    #: coordinates in the plane, (vertices, 2); behind max pooling some lie where an edge runs straight on
    vertices: np.ndarray
    edges: np.ndarray  #: vertices of each edge, (edges, 2)
    owner_layer: np.ndarray  #: for each edge the index in ``layers`` of what folds there; -1 on the window's border
    owner_neuron: np.ndarray  #: and the neuron, an index in the flattened layer (of the window, for max pooling)
    owner_face: np.ndarray  #: and its face (0 for a ReLU; for max pooling the entry of the window)
    cell_ends: np.ndarray  #: where each cell begins in ``cell_edges``, and the end, (count + 1,)
    cell_edges: np.ndarray  #: half-edges of the cells, counter-clockwise; 2 e runs along edge e, 2 e + 1 against it
    areas: np.ndarray  #: area of each cell, in the square of the input's unit
    layers: tuple[str, ...]  #: names of the folding steps, in order
    per_layer: tuple[int, ...]  #: cells after each folding step
    certificate: Certificate  #: evidence for the count; :meth:`verify` adds the comparison of all patterns
    notes: tuple[str, ...]  #: further remarks
    program: Program = field(repr=False)  #: the network as steps

    @property
    def count(self) -> int:
        """Number of activation regions."""
        return len(self.cell_ends) - 1

    @property
    def neurons(self) -> int:
        """Number of elements that fold, all layers together."""
        return self.program.neurons

    @cached_property
    def cell_vertices(self) -> np.ndarray:
        """Vertices of the cells, counter-clockwise, cell by cell as ``cell_ends`` says."""
        return np.asarray(self.edges[self.cell_edges >> 1, self.cell_edges & 1])

    def cell(self, index: int) -> np.ndarray:
        """Corners of one cell in the plane's coordinates, counter-clockwise, shape (corners, 2)."""
        if not -self.count <= index < self.count:
            raise InputError(f"there is no cell {index}; the {self.count} are counted from 0.")
        start, stop = self.cell_ends[index % self.count + np.arange(2)]
        return np.asarray(self.vertices[self.cell_vertices[start:stop]])

    @property
    def points(self) -> Tensor:
        """The vertices in input space, ``(vertices, *shape)``, float64."""
        return self.window.points(torch.from_numpy(self.vertices))

    @cached_property
    def adjacency(self) -> np.ndarray:
        """The cells to the left and right of each edge, (edges, 2); -1 outside the window."""
        beside = np.full(2 * len(self.edges), -1)
        beside[self.cell_edges] = np.repeat(np.arange(self.count), np.diff(self.cell_ends))
        return beside.reshape(-1, 2)

    @cached_property
    def middles(self) -> np.ndarray:
        """A point inside each cell, in the plane's coordinates: the mean of its vertices, (count, 2)."""
        degree = np.diff(self.cell_ends)
        total = np.add.reduceat(self.vertices[self.cell_vertices], self.cell_ends[:-1], axis=0)
        return np.asarray(total / degree[:, None])

    @cached_property
    def patterns(self) -> np.ndarray:
        """Which elements are above each face, cell by cell: bits packed into bytes, shape (count, bytes).

        The columns are those of :attr:`LinePartition.patterns`.
        """
        return self._pieces.patterns

    @property
    def slopes(self) -> np.ndarray:
        """Derivatives of the outputs along the plane's two axes in each cell, (count, 2, outputs)."""
        return self._pieces.slopes.swapaxes(0, 1)

    @cached_property
    def _pieces(self) -> Pieces:
        """The network at the middle of every cell."""

        def inside(part: slice) -> tuple[Tensor, Tensor]:
            return self.window.points(torch.from_numpy(self.middles[part])), self.window.axes[:, None]

        return follow(self.program, self.count, inside, sizes_of(self.program, self.window.sample()))

    @cached_property
    def linear_regions(self) -> np.ndarray:
        """For each cell the number of the linear region it belongs to: neighbours with one affine map share it."""
        inner = self.adjacency[(self.adjacency >= 0).all(axis=1)]
        slopes, terms = self.slopes, self._pieces.terms
        same = (np.abs(slopes[inner[:, 0]] - slopes[inner[:, 1]]) <= RELATIVE * terms).all(axis=(1, 2))
        return components(inner[same], self.count)

    @cached_property
    def linear_count(self) -> int:
        """Number of linear regions: cells after neighbours with one affine map are joined."""
        return int(self.linear_regions.max()) + 1

    def verify(self) -> Certificate:
        """The certificate with all patterns compared: two cells never share one."""
        distinct = self.count == 1 or len(np.unique(self.patterns, axis=0)) == self.count
        return replace(self.certificate, distinct=distinct)

    def plot(self, axes: Axes = None) -> "plots.Figure":
        """A picture of the partition, in matplotlib axes if they are given.

        Cells are filled by their patterns, the same always in the same colour; boundaries have one colour a layer.
        """
        from matplotlib.collections import LineCollection, PolyCollection

        picture, axes = plots.figure(6.0, 5.6) if axes is None else (axes.figure, axes)
        corners = np.split(self.vertices[self.cell_vertices], self.cell_ends[1:-1])
        colours = pattern_colours(self.patterns)
        cells = PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=0.2, rasterized=True)
        axes.add_collection(cells)
        width = float(np.clip(40.0 / max(1, self.count) ** 0.5, 0.15, 1.0))
        for layer in np.unique(self.owner_layer[self.owner_layer >= 0]).tolist():
            selected, colour = self.owner_layer == layer, plots.COLOURS[layer % len(plots.COLOURS)]
            lines, flat = self.vertices[self.edges[selected]], self.count > 20_000
            axes.add_collection(LineCollection(lines, colors=colour, linewidths=width, rasterized=flat))
            label = f"layer {self.layers[layer]}: {len(np.unique(self.owner_neuron[selected]))} neurons fold here"
            axes.plot([], [], color=colour, label=label)
        low, high = self.window.polygon.min(dim=0).values.numpy(), self.window.polygon.max(dim=0).values.numpy()
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set(xlabel="along the first axis", ylabel="along the second axis")
        axes.set_title(f"{self.count:,} activation regions")
        axes.grid(False)
        if self.layers:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
        return picture

    def rows(self) -> list[dict[str, Any]]:
        """One row a cell: its area, corners, middle, and the number of its linear region."""
        corners, regions = np.diff(self.cell_ends).tolist(), self.linear_regions.tolist()
        columns = self.areas.tolist(), corners, *self.middles.T.tolist(), regions
        names = ("area", "corners", "x", "y", "linear_region")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def __str__(self) -> str:
        share = self.count / (max(1, self.neurons) ** 2 / 2)
        where = f"on a window of area {self.window.area:.4g}, {share:.3f} of neurons squared / 2"
        rows = [f"{counted(self.count, 'activation region')} {where}"]
        rows += [f"  after {name:<20} {count:>9}" for name, count in zip(self.layers, self.per_layer, strict=True)]
        return "\n".join([*rows, f"  {self.certificate}", *(f"  note: {note}" for note in self.notes)])


@checked
def pattern_colours(patterns: np.ndarray) -> np.ndarray:
    """A light colour for each pattern that depends on its bits alone.

    >>> p = regions.on_plane(net, regions.through(*images[:3]))
    >>> p.patterns.shape, pattern_colours(p.patterns).shape
    ((258, 8), (258, 3))

    Each byte of the pattern adds its own multiple to a sum, and the sum's bits choose hue, strength and brightness, so
    a cell keeps its colour between training steps as long as its pattern survives.

    Packed bits of shape (patterns, bytes) become red, green and blue between 0 and 1, shape (patterns, 3).

    Raises:
        InputError: if the patterns are no table of whole numbers.

    Source: pictures as in Hanin and Rolnick 2019, Figures 1 and 8; the rule for the colours is ours.
    """
    if patterns.ndim != 2 or patterns.dtype.kind not in "ui":
        raise InputError(f"patterns are {patterns.dtype} {patterns.shape}; give packed bits (patterns, bytes).")
    from matplotlib.colors import hsv_to_rgb

    weights = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, patterns.shape[1], dtype=np.uint64)
    weights |= np.uint64(1)
    mixed = np.einsum("ij,j->i", patterns, weights, dtype=np.uint64, casting="unsafe") + weights.sum()  # of bytes + 1
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    parts = [((mixed >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(float) / 65535 for shift in (0, 16, 32)]
    return np.asarray(hsv_to_rgb(np.stack([parts[0], 0.12 + 0.33 * parts[1], 0.84 + 0.16 * parts[2]], axis=1)))


@keeping_memory()
def walked(program: Program, window: Window, memory: float, last: int, progress: Progress) -> Plane:
    """The window cut along every fold; step ``last`` is only counted."""
    if last >= 0 and isinstance(program.folds[last], Largest):
        last = -1  # the pieces of a maximum are joined by their geometry
    budget = Budget(program.layers, memory if last < 0 else 2 * memory, progress)
    plane = Plane.start(window.polygon.clone(), budget, last)
    with torch.no_grad():
        found = walk(program, plane, {0: window.points(window.polygon)}, sizes_of(program, window.sample()), memory)
    budget.advance(1.0, "done")
    return found


@checked
def on_plane(model: nn.Module, window: Any, *, memory: Positive = MEMORY, progress: Progress = None) -> PlanePartition:
    """The regions of a network on a window: a convex polygon in any plane of input space.

    >>> p = on_plane(net, regions.through(images[0], images[1], images[2]))     # net: 64-32-32-10
    >>> p.count, p.vertices.shape, p.areas.shape
    (258, (293, 2), (258,))

    Args:
        window: corners of the polygon in order, tensor of shape ``(corners, *shape)``, in one plane and not on one
            line; ``regions.square`` and ``regions.through`` make them.
        model, memory, progress: as for :func:`on_line`; larger work is split into strips.

    Raises:
        InputError: if the window is not convex, has no area, or its corners are not in one plane, or the model has an
            operation that is not piecewise linear, or there are more cells than fit into the memory.

    Source: Hanin and Rolnick 2019, section 3.2.
    """
    where = as_window(window)
    program = trace(model, tuple(where.origin.shape), "cpu")
    plane = walked(program, where, memory, -1, progress)
    mesh, per_layer = plane.mesh, tuple(plane.cells_after(number) for number in range(len(program.folds)))
    vertices, starts, following = mesh.points.numpy(), mesh.ends[:-1], next_around(mesh.ends)
    corners = vertices[mesh.edges[mesh.half >> 1, mesh.half & 1]]
    # areas measured from a corner of each cell, so that slivers keep their size
    x, y = (corners - np.repeat(corners[starts], np.diff(mesh.ends), axis=0)).T
    areas = np.asarray(0.5 * np.add.reduceat(x * y[following] - y * x[following], starts))
    euler, error = len(vertices) - len(mesh.edges) + plane.count, float(areas.sum()) / where.area - 1.0
    certificate = Certificate(RELATIVE, **vars(plane.decisions), euler=euler, measure_error=error)
    layer, face, neuron = mesh.owner.T
    geometry = vertices, mesh.edges, layer, neuron, face, mesh.ends, mesh.half, areas
    return PlanePartition(where, *geometry, program.layers, per_layer, certificate, program.notes, program)


@checked
def count(model: nn.Module, where: Any, *, memory: Positive = MEMORY, progress: Progress = None) -> int | np.ndarray:
    """Only the number of activation regions on a line or a window, without the geometry of the last layer.

    >>> count(net, regions.through(images[0], images[1], images[2]))     # a window of shape (4, 64)
    258
    >>> count(net, (x0, x1))                                  # a segment; with batches, one number a line
    22

    For batches of lines it is an array, shape (lines,).

    Args:
        where: a window (tensor of three corners or more), the two ends of a segment (a tuple of two points or of two
            batches, or a tensor of two points), or a curve of ``epoch0.curves``.
        model, memory, progress: as for :func:`on_line`.
    """
    if (ends := segment_ends(where)) is not None:
        lines = on_line(model, *ends, memory=memory, progress=progress)
        return lines.counts if isinstance(lines, LinePartitions) else lines.count
    if isinstance(where, Curve):
        return on_curve(model, where, memory=memory, progress=progress).count
    found = as_window(where)
    program = trace(model, tuple(found.origin.shape), "cpu")
    return walked(program, found, memory, len(program.folds) - 1, progress).count
