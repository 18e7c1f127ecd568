"""Windows in, partitions out; and counts alone, for which the last layer needs no geometry."""

from typing import Any

import numpy as np
from torch import Tensor, nn

from epoch0.curves import Curve, Line
from epoch0.errors import InputError
from epoch0.networks.ensemble import Ensemble
from epoch0.regions.line_regions import on_curve, on_line
from epoch0.regions.network.trace import trace
from epoch0.regions.planes.partition import PlanePartition, cut_plane, walked
from epoch0.regions.planes.windows import window as checked
from epoch0.regions.walk import MEMORY, check_memory
from epoch0.regions.workers import Progress


def on_plane(
    model: nn.Module, window: Any, *, memory: float = MEMORY, workers: int = 1, progress: Progress | None = None
) -> PlanePartition:
    """The regions of a network on a window: a convex polygon in any plane of input space.

    >>> p = on_plane(net, regions.through(images[0], images[1], images[2]))     # net: 64-32-32-10
    >>> p.count, p.vertices.shape, p.areas.shape
    (258, (293, 2), (258,))

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

    >>> count(net, regions.through(images[0], images[1], images[2]))     # a window of shape (4, 64)
    258
    >>> count(net, (x0, x1))                                  # a segment; with batches, one number a line
    22

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
    return walked(program, window, check_memory(memory), len(program.folds) - 1, workers, progress).count
