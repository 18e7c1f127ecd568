"""A polygon cut into cells by neurons: vertices, edges and cells, knowing nothing of the network behind the values."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from epoch0.regions.certificate import Decisions
from epoch0.regions.complex import Budget, Cut
from epoch0.regions.network.steps import Largest
from epoch0.regions.planes.chords import Arrangement, cycles
from epoch0.regions.planes.mesh import Mesh, joined, next_around, parts_of, used, within


class Plane:
    """A convex polygon partitioned into convex cells; row i of every tensor belongs to vertex i.

    Edge e has the half-edges 2e, from its first to its second vertex, and 2e + 1; cells are to the left of theirs. The
    step ``last`` is only counted, none for -1; the history has the cells after each step that cut.
    """

    infinite = None

    def __init__(self, mesh: Mesh, budget: Budget, last: int = -1) -> None:
        self.mesh, self.budget, self.last = mesh, budget, last
        self.count = self.before = len(mesh.ends) - 1
        self.history: dict[int, int] = {}
        self.decisions = Decisions()

    @staticmethod
    def start(corners: Tensor, budget: Budget, last: int = -1) -> "Plane":
        number = np.arange(len(corners))
        edges = np.stack([number, (number + 1) % len(corners)], axis=1)
        none = np.full((len(corners), 3), -1)
        mesh = Mesh(corners, edges, none, 2 * number, np.array([0, len(corners)]), none[:, 0], none[:, 0])
        return Plane(mesh, budget, last)

    def cut(
        self, values: Tensor, tolerance: Tensor, step: int, owners: Tensor, columns: slice | None = None,
        decisions: Decisions | None = None,
    ) -> Cut | None:  # fmt: skip
        """Cut every cell along every column, or some, that takes both signs in it; as for lines."""
        some, decisions = columns or slice(0, values.shape[1]), decisions or self.decisions
        undecided = decisions.undecided
        found = Arrangement(self.mesh, values[:, some], tolerance[0, some], decisions)
        if not len(found.cell) and not len(found.u):
            return None
        if found.cross():  # in one point: one half of the columns, then the other, which finds a vertex there
            middle, again = (some.start + some.stop) // 2, Decisions()
            first = self.cut(values, tolerance, step, owners, slice(some.start, middle), again)
            if first is not None:
                values = first.take(values, None, values.new_zeros(1), values.shape[1])
            second = self.cut(values, tolerance, step, owners, slice(middle, some.stop), again)
            decisions.undecided = undecided + again.undecided
            return second if first is None else first if second is None else first.then(second)
        self._note(step, self.count + len(found.cell) + len(found.one))
        if step == self.last and columns is None:  # only counted
            return None
        cut = found.rebuild(owners.numpy(), some.start)
        self._note(step, len(self.mesh.ends) - 1)
        return cut

    def _note(self, step: int, count: int) -> None:
        self.budget.add(count - self.count, step)
        self.count = self.history[step] = count

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum: join the cells on both sides of edges where another entry tops the tie."""
        mesh = self.mesh
        mine = np.flatnonzero(mesh.owner[:, 0] == number)
        if not len(mine):
            return None
        cell_of = np.empty(2 * len(mesh.edges), dtype=np.int64)
        cell_of[mesh.half] = np.repeat(np.arange(len(mesh.ends) - 1), np.diff(mesh.ends))
        left, right = (self._inside(values, cell_of[2 * mine + side]) for side in (0, 1))
        window, entry = step.parted(left, right, limit)
        mesh.owner[mine, 1:] = torch.stack([entry, window], 1).numpy()
        if bool((window >= 0).all()):
            return None
        false = np.zeros(len(mesh.edges), dtype=bool)
        false[mine[window.numpy() < 0]] = True
        kept = self._remove(false)
        self._note(number, len(mesh.ends) - 1)
        return kept

    def _inside(self, values: Tensor, cells: np.ndarray) -> Tensor:
        """Values in the middle of some cells: the means over their vertices."""
        mesh = self.mesh
        degree = np.diff(mesh.ends)[cells]
        which = np.repeat(np.arange(len(cells)), degree)
        half = mesh.half[np.repeat(mesh.ends[cells], degree) + within(degree)]
        total = values.new_zeros(len(cells), *values.shape[1:])
        total.index_add_(0, torch.from_numpy(which), values[torch.from_numpy(mesh.edges[half >> 1, half & 1])])
        return total / torch.from_numpy(degree).view(-1, *[1] * (values.dim() - 1))

    def _remove(self, false: np.ndarray) -> Tensor:
        """Take out edges; the vertices that are left, by which all tensors are to be indexed."""
        mesh = self.mesh
        following = np.empty(2 * len(mesh.edges), dtype=np.int64)
        following[mesh.half] = mesh.half[next_around(mesh.ends)]
        real = mesh.half[~false[mesh.half >> 1]]
        target = following[real]
        while (wrong := false[target >> 1]).any():
            target[wrong] = following[target[wrong] ^ 1]
        local = np.full(2 * len(mesh.edges), -1)
        local[real] = np.arange(len(real))
        elements, mesh.ends = cycles(local[target])
        number = np.cumsum(~false) - 1
        half = real[elements]
        mesh.half = 2 * number[half >> 1] + (half & 1)
        mesh.edges, mesh.owner, mesh.from_edge = mesh.edges[~false], mesh.owner[~false], mesh.from_edge[~false]
        rows, mesh.edges = used(mesh.edges, len(mesh.points))
        kept = torch.from_numpy(rows)
        mesh.points, mesh.from_row = mesh.points[kept], mesh.from_row[rows]
        return kept

    def split(self, parts: int) -> list[tuple["Plane", Tensor]]:
        """Strips of cells with their rows; edges between strips are in both."""
        if self.count < 2:
            return []
        meshes = parts_of(self.mesh, parts)
        return [(Plane(mesh, self.budget, self.last), torch.from_numpy(mesh.from_row)) for mesh in meshes]

    def join(self, parts: Sequence["Plane"]) -> "Plane":
        """The whole of the strips after they were cut."""
        for step in sorted(set().union(*(part.history for part in parts))):
            self.history[step] = sum(part.cells_after(step) for part in parts)
        for part in parts:
            self.decisions.add(part.decisions)
        self.count = sum(part.count for part in parts)
        if self.last < 0:
            self.mesh, wrong = joined(self.mesh, [part.mesh for part in parts])
            self.decisions.undecided += wrong
        return self

    def cells_after(self, step: int) -> int:
        """Number of cells after a step, whether it cut anything or not."""
        earlier = [number for number in self.history if number <= step]
        return self.history[max(earlier)] if earlier else self.before
