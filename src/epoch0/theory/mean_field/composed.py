"""Several layers as one table: what a stretch of a network does to a pair of inputs depends on their angle and lengths.

After a few layers the map of many is still smooth, so it is carried through once on a small grid of angles and
variances and interpolated from there for every pair of inputs (kernels of Hayou et al. 2021, B.1, layer by layer).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError
from epoch0.theory.mean_field.angle_grids import Angles, basis, nodes, to_coefficients
from epoch0.theory.mean_field.layer_steps import Pairs, advance, check_variances
from epoch0.theory.mean_field.tables import needed_rank, place, polynomials, powers_of, to_powers

Array = NDArray[np.float64]

_ANGLES = 64
_LARGEST_RANK = 14
_MOST_LAYERS = 32
# of the last coefficients relative to the largest value
_TAIL = 3e-13
# values so much smaller than the largest would lose more than two digits
_RANGE = 100.0
_CANCELLING = 300.0


@dataclass(frozen=True)
class Stretch:
    """Several layers as functions of the angle and the two variances that enter them.

    Attributes:
        layers: how many.
        angles: the scale of the angle.
        low: least variance covered.
        high: largest.
        series: Chebyshev coefficients in the angle at r variances of the row and k of the column, shape (3, r, k, n):
            of (gap' - gap' at angle 0) / gap, the product of the slopes, and what is added to the tangent kernel.
        powers: the same in powers of the angle's variable, where they serve (one variance only).
        apart: gap' at angle 0 over the squared distance of the variances' places, shape (r, k).
        growth: q' / q at the r variances.
    """

    layers: int
    angles: Angles
    low: float
    high: float
    series: Array
    powers: Array | None
    apart: Array
    growth: Array


def compose(walk: Callable[[Pairs, int], None], low: float, high: float, angles: Angles, start: int,
            layers: int) -> Stretch | None:  # fmt: skip
    """As many layers as one small table can hold; None if that is not even two.

    Args:
        walk: carries pairs through the layer of that number, in place.
        low: least variance that enters, > 0.
        high: largest.
        angles: the scale of the angle.
        start: number of the first layer.
        layers: number of the network's layers.
    """
    rank = needed_rank(low, high)
    if rank > _LARGEST_RANK or low < 1e-3 * high:
        return None
    rows, columns = _grid(low, high, rank), _grid(low, high, rank if rank == 1 else rank + 1)
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
        lost = (after[1:] - after[0]) / gap[1:, None, None]
        values = np.stack([lost, passed[1:], tangent[1:]])
        series = np.moveaxis(np.tensordot(values, to_coefficients(_ANGLES), axes=(1, 1)), -1, -1)
        count = _enough(series, values, rank)
        if count is None:
            return found
        distance = _places(rows, low, high)[:, None] - _places(columns, low, high)
        apart = after[0] / distance**2 if rank > 1 else np.zeros((1, 1))
        series = series[..., :count]
        powers = None
        if rank == 1:
            powers = series[:, 0, 0] @ to_powers(count)
            if (np.abs(powers).sum(axis=1) > _CANCELLING * np.abs(values).max(axis=(1, 2, 3))).any():
                powers = None
        if layer > start:
            found = Stretch(layer - start + 1, angles, low, high, series, powers, apart, pairs.first[:rank] / rows)
    return found


def cross(stretch: Stretch, pairs: Pairs, layer: int) -> None:
    """Carry the pairs through the stretch, in place."""
    weights = [_weights(stretch, q, k) for q, k in zip((pairs.first, pairs.second), stretch.apart.shape, strict=True)]
    by_row = weights if pairs.symmetric else [weights[0], _weights(stretch, pairs.second, len(stretch.growth))]
    after = [pairs.first * np.einsum("ia,a->i", by_row[0], stretch.growth)]
    after.append(after[0] if pairs.symmetric else pairs.second * np.einsum("ia,a->i", by_row[1], stretch.growth))
    check_variances(after, layer)
    places = [_places(q, stretch.low, stretch.high) for q in (pairs.first, pairs.second)]
    rank, other = stretch.apart.shape
    far = weights[0] @ stretch.apart @ weights[1].T if rank > 1 else None

    def block(rows: slice, columns: slice) -> tuple[Array, Array, Array]:
        gap = pairs.gap[rows, columns]
        t = np.sqrt(0.5 * gap)
        np.arcsin(t, out=t)
        t *= 2
        t = stretch.angles.to_unit(t)
        if far is None:
            given = stretch.powers if stretch.powers is not None else stretch.series[:, 0, 0]
            parts = polynomials(given, t.reshape(1, -1), stretch.powers is not None)[0].reshape(3, *gap.shape)
        else:
            series = np.tensordot(weights[0][rows], stretch.series, axes=(1, 1))
            series = series.reshape(len(gap), 3 * other, -1)
            parts = (series @ powers_of(t, series.shape[-1], monomial=False)).reshape(len(gap), 3, other, -1)
            parts *= weights[1].T[:, columns]
            parts = parts.sum(axis=2).transpose(1, 0, 2)
        lost = parts[0] * gap
        if far is not None:
            distance = places[0][rows, None] - places[1][columns]
            distance *= distance
            distance *= far[rows, columns]
            lost += distance
        return lost, parts[1], parts[2]

    advance(pairs, after, block, layer)


def _grid(low: float, high: float, rank: int) -> Array:
    """Variances at the Chebyshev nodes of log q; one that stands for all if rank is 1."""
    if rank == 1:
        return np.array([(low + high) / 2])
    return np.asarray(low * np.exp((nodes(rank) + 1) / 2 * math.log(high / low)))


def _places(q: Array, low: float, high: float) -> Array:
    return np.asarray(2 * place(q, low, 0.0) / place(np.array([high]), low, 0.0) - 1)


def _weights(stretch: Stretch, q: Array, rank: int) -> Array:
    if rank == 1:
        return np.ones((len(q), 1))
    values = basis(_places(q, stretch.low, stretch.high), rank)
    return np.asarray(np.einsum("ik,ka->ia", values, to_coefficients(rank)))


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
