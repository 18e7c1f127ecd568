"""Windows in, partitions out; and counts alone, for which the last layer needs no geometry."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve, Line
from epoch0.errors import InputError
from epoch0.networks.ensemble import Ensemble
from epoch0.regions.certificate import Certificate, Sizes
from epoch0.regions.line_regions import on_curve, on_line
from epoch0.regions.network.steps import Largest, Program
from epoch0.regions.network.trace import trace
from epoch0.regions.planes.cutting import Plane
from epoch0.regions.planes.mesh import straightened
from epoch0.regions.planes.partition import PlanePartition, cell_areas
from epoch0.regions.planes.windows import Window
from epoch0.regions.planes.windows import window as checked
from epoch0.regions.walk import MEMORY, block, check_memory, walk
from epoch0.regions.workers import Budget, Progress, Report, ThreadPool, check_workers


def on_plane(
    model: nn.Module, window: Any, *, memory: float = MEMORY, workers: int = 1, progress: Progress | None = None
) -> PlanePartition:
    """The regions of a network on a window: a convex polygon in any plane of input space.

    >>> p = on_plane(net, regions.through(images[0], images[1], images[2]))
    >>> p.count, p.vertices.shape, p.areas.sum()
    (4711, (4853, 2), 3136.0)

    Args:
        model: as for :func:`on_line`.
        window: corners of the polygon in order, tensor of shape ``(corners, *shape)``; ``regions.square`` and
            ``regions.through`` make them.
        memory: bytes that values and geometry may take, about; larger work is split into strips.
        workers: threads that work on the strips; the result is the same to the last bit.
        progress: is called with the part that is done, from 0 to 1, and a text, while the walk runs.

    Returns:
        A PlanePartition.

    Raises:
        InputError: if the window is not convex, has no area, or its corners are not in one plane, or the model has an
            operation that is not piecewise linear, or there are more cells than fit into the memory.

    Source: Hanin and Rolnick 2019, section 3.2.
    """
    found = checked(window)
    program = trace(model, tuple(found.origin.shape), "cpu")
    return cut_plane(program, found, check_memory(memory), workers, progress)


def count(
    model: nn.Module | Ensemble, where: Any, *, memory: float = MEMORY, workers: int = 1,
    progress: Progress | None = None,
) -> int | np.ndarray:  # fmt: skip
    """Only the number of activation regions on a line or a window, without the geometry of the last layer.

    >>> count(net, regions.square(centre, u, v, 28.0))
    4711
    >>> count(net, (x0, x1))                                  # a segment; with batches, one number a line
    469

    Args:
        model: as for :func:`on_line`; an ensemble for lines only.
        where: a window (tensor of three corners or more), the two ends of a segment (a tuple of two points or of two
            batches, or a tensor of two points), or a curve of ``epoch0.curves``.
        memory: bytes that values and geometry may take, about.
        workers: threads that work on the pieces of a line or window.
        progress: as for :func:`on_plane`.

    Returns:
        An int; for batches of lines an array, shape (lines,), for ensembles (networks, lines).
    """
    if isinstance(where, Line):
        where = (where.x0, where.x1)
    if isinstance(where, Curve):
        if isinstance(model, Ensemble):
            raise InputError("curves are counted for one network at a time: regions.count(nets[i], curve).")
        return on_curve(model, where, memory=memory, workers=workers, progress=progress).count
    if isinstance(where, Tensor) and len(where) == 2:
        where = (where[0], where[1])
    if isinstance(where, tuple | list):
        if len(where) != 2:
            raise InputError(f"a segment has two ends, not {len(where)}; give (x0, x1).")
        found = on_line(model, *where, memory=memory, workers=workers, progress=progress)
        return found.count if not hasattr(found, "counts") else found.counts
    if isinstance(model, Ensemble):
        raise InputError("windows are counted for one network at a time: regions.count(nets[i], window).")
    window = checked(where)
    program = trace(model, tuple(window.origin.shape), "cpu")
    return _walked(program, window, check_memory(memory), len(program.folds) - 1, workers, progress).count


def _walked(
    program: Program, window: Window, memory: float, last: int, workers: int, progress: Progress | None
) -> Plane:
    """The window cut along every fold; step ``last`` is only counted."""
    if last >= 0 and isinstance(program.folds[last], Largest):
        last = -1  # the pieces of a maximum are joined by their geometry
    budget = Budget(tuple(step.name for step in program.folds), memory if last < 0 else 2 * memory)
    plane = Plane.start(window.polygon.clone(), budget, last)
    samples = window.sample()
    group = torch.zeros(len(samples), dtype=torch.int64)
    pool = ThreadPool(check_workers(workers), Report(_with_cells(budget, progress)))
    with torch.no_grad(), pool:
        sizes = Sizes.measure(program, samples, group, torch.zeros(1, dtype=torch.bool))
        found = walk(program, plane, {0: window.points(window.polygon)}, sizes, block(memory), pool)
        assert isinstance(found, Plane)
    pool.report.finish("done")
    return found


def _with_cells(budget: Budget, progress: Progress | None) -> Progress | None:
    """A progress that also says how many cells there are."""
    if progress is None:
        return None
    return lambda done, what: progress(done, f"{what}, {budget.cells:,} cells")


def _per_layer(plane: Plane, folds: int) -> tuple[int, ...]:
    """Cells after each folding step: a step that cut nothing left as many as there were."""
    return tuple(plane.cells_after(number) for number in range(folds))


def cut_plane(
    program: Program, window: Window, memory: float = MEMORY, workers: int = 1, progress: Progress | None = None
) -> PlanePartition:
    """The partition of a window by a traced network."""
    plane = _walked(program, window, memory, -1, workers, progress)
    mesh = plane.mesh
    if any(isinstance(step, Largest) for step in program.folds):
        mesh = straightened(mesh, len(window.polygon))
    vertices, owner = mesh.points.numpy(), mesh.owner
    cells = mesh.edges[mesh.half >> 1, mesh.half & 1]
    areas = cell_areas(vertices, cells, mesh.ends)
    certificate = Certificate.of(
        plane.decisions, euler=len(vertices) - len(mesh.edges) + plane.count,
        measure_error=float(areas.sum()) / window.area - 1.0,
    )  # fmt: skip
    found = PlanePartition(
        window, vertices, mesh.edges, owner[:, 0], owner[:, 1], owner[:, 2], mesh.ends, mesh.half,
        tuple(step.name for step in program.folds), _per_layer(plane, len(program.folds)), certificate,
        program.notes, program,
    )  # fmt: skip
    found.__dict__["areas"] = areas
    return found
