"""Several layers as one table: what a stretch of a network does to a pair of inputs depends on their angle and lengths.

After a few layers the map of many is still smooth, so it is carried through once on a small grid of angles and
variances and interpolated from there for every pair of inputs (kernels of Hayou et al. 2021, B.1, layer by layer).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError
from epoch0.theory.mean_field.layers import Pairs, advance, check_variances
from epoch0.theory.mean_field.tables import (
    Angles,
    evaluate_series,
    needed_rank,
    nodes,
    place,
    to_coefficients,
    variance_grid,
    variance_weights,
)

Array = NDArray[np.float64]

_ANGLES = 64
_LARGEST_RANK = 14
_MOST_LAYERS = 32
# of the last coefficients relative to the largest value
_TAIL = 3e-13
# values so much smaller than the largest would lose more than two digits
_RANGE = 100.0


@dataclass(frozen=True)
class Stretch:
    """Several layers as functions of the angle and the two variances, in [low, high], that enter them.

    ``series``, (3, r, k, n), holds Chebyshev coefficients in the angle at r variances of the row and k of the column:
    of (gap' - gap' at angle 0) / gap, the product of the slopes, and what is added to the tangent kernel. ``apart``,
    (r, k), is gap' at angle 0 over the squared distance of the variances' places, ``growth`` q' / q at the r variances.
    """

    layers: int
    angles: Angles
    low: float
    high: float
    series: Array
    apart: Array
    growth: Array


def compose(
    walk: Callable[[Pairs, int], None], low: float, high: float, angles: Angles, start: int, layers: int
) -> Stretch | None:
    """As many layers from ``start`` on as one small table can hold; None if that is not even two.

    ``walk`` carries pairs through the layer of that number, in place; variances from low > 0 to high enter.
    """
    rank = needed_rank(low, high)
    if rank > _LARGEST_RANK or low < 1e-3 * high:
        return None
    rows, columns = (variance_grid(low, high, k) for k in (rank, rank if rank == 1 else rank + 1))
    # an angle of 0 comes first: how far apart lengths alone put two inputs
    gap = np.append(0.0, 2 * np.sin(angles.to_angle(nodes(_ANGLES)) / 2) ** 2)
    shape = (len(gap), rank, len(columns))
    full = np.broadcast_to(gap[:, None, None], shape).reshape(-1, len(columns)).copy()
    pairs = Pairs(np.tile(rows, len(gap)), columns, full, np.zeros_like(full), False, np.ones_like(full))
    found: Stretch | None = None
    for layer in range(start, min(layers, start + _MOST_LAYERS)):
        try:
            walk(pairs, layer)
        except InputError:
            return found
        assert pairs.passed is not None
        after, tangent, passed = (one.reshape(shape) for one in (pairs.gap, pairs.tangent, pairs.passed))
        values = np.stack([(after[1:] - after[0]) / gap[1:, None, None], passed[1:], tangent[1:]])
        series = np.tensordot(values, to_coefficients(_ANGLES), axes=(1, 1))
        count = _enough(series, values, rank)
        if count is None:
            return found
        distance = place(rows, low)[:, None] - place(columns, low)
        apart = after[0] / distance**2 if rank > 1 else np.zeros((1, 1))
        if layer > start:
            kept = series[..., :count]
            found = Stretch(layer - start + 1, angles, low, high, kept, apart, pairs.first[:rank] / rows)
    return found


def cross(stretch: Stretch, pairs: Pairs, layer: int) -> None:
    """Carry the pairs through the stretch, in place."""
    low, high, sides = stretch.low, stretch.high, (pairs.first, pairs.second)
    weights = [variance_weights(q, low, high, k) for q, k in zip(sides, stretch.apart.shape, strict=True)]
    growth = [np.einsum("ia,a->i", variance_weights(q, low, high, len(stretch.growth)), stretch.growth) for q in sides]
    after = [q * grown for q, grown in zip(sides, growth, strict=True)]
    check_variances(after, layer)
    places = [place(q, low) for q in sides]
    far = weights[0] @ stretch.apart @ weights[1].T if len(stretch.growth) > 1 else None

    def block(rows: slice, columns: slice) -> tuple[Array, Array, Array]:
        gap = pairs.gap[rows, columns]
        t = stretch.angles.of_gap(gap)
        lost, slope, fresh = evaluate_series(stretch.series, weights[0][rows], weights[1][columns], t)
        lost *= gap
        if far is not None:
            lost += (places[0][rows, None] - places[1][columns]) ** 2 * far[rows, columns]
        return lost, slope, fresh

    advance(pairs, after, block, layer)


def _enough(series: Array, values: Array, rank: int) -> int | None:
    """How many terms in the angle suffice; None if none do, or the values span too many decades."""
    sizes = np.abs(values).max(axis=(1, 2, 3))
    if not np.isfinite(values).all():
        return None
    usual = np.median(np.abs(values), axis=(1, 2, 3))
    if sizes[0] > _RANGE * np.abs(values[0]).min() or (sizes[1:] > _RANGE * usual[1:]).any():
        return None
    relative = (np.abs(series).max(axis=(1, 2)) / np.maximum(sizes, 1e-300)[:, None]).max(axis=0)
    if relative[-3:].max() > _TAIL:
        return None
    if rank > 2:
        across = np.abs(np.tensordot(series, to_coefficients(series.shape[2]), axes=(2, 1))).max(axis=(1, 2))[:, -1]
        if (across > 3 * _TAIL * sizes).any():
            return None
    return max(int(np.flatnonzero(relative > 0.03 * _TAIL).max()) + 1, 2)
