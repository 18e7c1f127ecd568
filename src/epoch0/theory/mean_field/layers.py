"""One layer of a wide network for many pairs of inputs: variances, 1 - c and the tangent kernel carried apart.

Whatever the depth, the diagonal has c = 1 exactly and nearly equal inputs keep their relative distance: 1 - c of the
next layer is a sum of positive terms, each proportional to how far apart two inputs are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError
from epoch0.theory.mean_field.tables import SlopeTable

Array = NDArray[np.float64]

_PAIRS_AT_ONCE = 8192


@dataclass(frozen=True)
class LayerScale:
    """Variances that one layer puts on what comes in: K' = skip K + bias + weight E phi phi."""

    weight: float
    bias: float
    skip: float


@dataclass
class Pairs:
    """Variances of rows (n1,) and columns (n2,) at one layer, and of their pairs (n1, n2); they change in place.

    Of pairs, the upper half if symmetric: ``gap`` is 1 - c (1 - abs(c) where signs are kept), ``tangent`` the NTK
    without its signs.
    """

    first: Array
    second: Array
    gap: Array
    tangent: Array
    symmetric: bool


def step(table: SlopeTable, pairs: Pairs, scale: LayerScale, even: bool, layer: int) -> None:
    """One layer, block of rows by block of rows; ``even`` says whether phi is."""
    weights = [table.weights(pairs.first), table.weights(pairs.second)]
    after = [
        scale.skip * q + scale.bias + scale.weight * table.mean_square(q, w)
        for q, w in zip((pairs.first, pairs.second), weights, strict=True)
    ]
    places = _directions(table, weights, scale, pairs)
    ends = [np.sqrt(np.divide(1.0, a, out=np.zeros_like(a), where=a > 0)) for a in after]
    roots = [np.sqrt(pairs.first), np.sqrt(pairs.second)]
    # what the sum below is multiplied by to make it 1 - c again
    factors = [end * root for end, root in zip(ends, roots, strict=True)]

    def slopes(rows: slice, columns: slice) -> tuple[Array, Array]:
        gap = pairs.gap[rows, columns]
        near = np.minimum(gap, 2 - gap) if even else gap
        lost, slope = table.evaluate(weights[0][rows], weights[1][columns], near)
        lost *= scale.weight
        lost *= near
        if even:
            slope[gap > 1] *= -1
        if scale.skip:  # an even phi forgets signs, a skip connection does not
            lost += scale.skip * gap
        lost *= factors[0][rows, None]
        lost *= factors[1][columns]
        if places is not None:
            lost += _apart(places[0][rows], places[1][columns])
        return lost, slope

    _advance(pairs, after, scale, slopes, layer)


def exact_step(
    exact: Callable[[Array, Array, Array], tuple[Array, Array]], pairs: Pairs, scale: LayerScale, layer: int
) -> None:
    """One layer of a phi with straight pieces, from its closed form."""
    one = [exact(q, q, np.zeros_like(q))[0] for q in (pairs.first, pairs.second)]
    both = zip((pairs.first, pairs.second), one, strict=True)
    after = [scale.skip * q + scale.bias + scale.weight * square for q, square in both]

    def slopes(rows: slice, columns: slice) -> tuple[Array, Array]:
        q1, q2 = pairs.first[rows, None], pairs.second[None, columns]
        gap = pairs.gap[rows, columns]
        mean, slope = exact(q1, q2, gap)
        ends = np.sqrt(after[0][rows, None] * after[1][None, columns])
        inside = scale.skip * np.sqrt(q1 * q2) * (1 - gap) + scale.bias + scale.weight * mean
        apart = np.clip(1 - inside / np.where(ends > 0, ends, 1.0), 0.0, 2.0)
        apart[(gap == 0) & (q1 == q2)] = 0.0
        return apart, slope

    _advance(pairs, after, scale, slopes, layer)


def _advance(
    pairs: Pairs,
    after: list[Array],
    scale: LayerScale,
    slopes: Callable[[slice, slice], tuple[Array, Array]],
    layer: int,
) -> None:
    """Write the next gaps and tangent kernel over these, block of rows by block of rows.

    ``slopes`` gives the next gaps and the means of phi' phi' for a slice of rows and one of columns; ``after`` holds
    the next variances of both.
    """
    if not all(np.isfinite(one).all() for one in after):
        raise InputError(
            f"the variance of a pre-activation overflows float64 in layer {layer + 1}: "
            "use fewer layers or a smaller weight_std."
        )
    roots = [np.sqrt(one) for one in after]
    start = 0
    while start < len(pairs.first):
        skipped = start if pairs.symmetric else 0
        stop = start + max(1, _PAIRS_AT_ONCE // (len(pairs.second) - skipped))
        rows, columns = slice(start, stop), slice(skipped, None)
        gap, slope = slopes(rows, columns)
        slope *= scale.weight
        slope += scale.skip
        fresh = 1 - gap
        fresh *= roots[0][rows, None]
        fresh *= roots[1][None, columns]
        if scale.skip:
            # what the skip carries on is in the tangent kernel already
            old = (1 - pairs.gap[rows, columns]) * np.sqrt(pairs.first[rows, None])
            old *= np.sqrt(pairs.second[None, columns])
            fresh -= scale.skip * old
        tangent = pairs.tangent[rows, columns]
        tangent *= slope
        tangent += fresh
        pairs.gap[rows, columns] = gap
        if not np.isfinite(tangent).all():
            raise InputError(f"the NTK overflows float64 in layer {layer + 1}; use fewer or a smaller weight_std.")
        start = stop
    pairs.first, pairs.second = after[0], after[0] if pairs.symmetric else after[1]


def _directions(table: SlopeTable, weights: list[Array], scale: LayerScale, pairs: Pairs) -> list[Array] | None:
    """Where each input's function phi(sqrt(q) .) points, as the part across the mean direction; None if all agree.

    Inputs of different variance are not alike after a layer even where c = 1: half the squared distance between these
    directions is 1 - c. Shape (n, k): the few directions in which they differ.
    """
    if math.isinf(table.high):
        if not scale.bias:
            return None
        # all functions are alike, only their lengths against the bias's differ: a turn in one plane
        ratio = scale.skip + scale.weight * float(table.ratios[0])
        middle = math.sqrt(float(np.median(pairs.first)))
        root = math.sqrt(scale.bias * ratio / (scale.bias + ratio * middle**2))
        turns = [(np.sqrt(q) - middle) / np.sqrt(scale.bias + ratio * q) for q in (pairs.first, pairs.second)]
        return [root * one[:, None] for one in turns]
    if table.rank == 1:
        return None
    grid = table.grid
    columns = [math.sqrt(scale.weight) * table.values * np.sqrt(table.masses)]
    columns += [np.sqrt(scale.bias) * np.ones((len(grid), 1)), np.sqrt(scale.skip * grid)[:, None]]
    vectors = np.concatenate(columns, axis=1)
    vectors /= np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    middle = vectors[len(vectors) // 2]
    across = vectors - middle
    across -= (across @ middle)[:, None] * middle
    left, sizes, _ = np.linalg.svd(across, full_matrices=False)
    kept = sizes > 1e-11 * max(float(sizes[0]), 1e-300)
    places = left[:, kept] * sizes[kept]
    return [np.einsum("ia,ak->ik", one, places) for one in weights]


def _apart(first: Array, second: Array) -> Array:
    """Half the squared distance of unit vectors, given their parts across one direction; (m1, k), (m2, k)."""
    squares = [(one**2).sum(axis=1) for one in (first, second)]
    along = [np.sqrt(np.clip(1 - one, 0.0, 1.0)) for one in squares]
    total = ((squares[0][:, None] - squares[1]) / (along[0][:, None] + along[1])) ** 2
    for a, b in zip(first.T, second.T, strict=True):
        total += (a[:, None] - b) ** 2
    return np.asarray(0.5 * total)
