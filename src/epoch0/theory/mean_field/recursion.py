"""NNGP and NTK of many pairs of inputs, layer by layer: variances, 1 - c and the tangent kernel carried apart.

Whatever the depth, the diagonal has c = 1 exactly and nearly equal inputs keep their relative distance: 1 - c of the
next layer is a sum of positive terms, each proportional to how far apart two inputs are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.theory.mean_field.closed_forms import is_cheap, straight_pair
from epoch0.theory.mean_field.moments import moments_of
from epoch0.theory.mean_field.tables import SlopeTable, needed_rank, tabulate

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
    """What is known of the inputs at one layer; arrays change in place from layer to layer.

    Attributes:
        first: variances of the rows, shape (n1,).
        second: variances of the columns, shape (n2,).
        gap: 1 - c (1 - abs(c) where signs are kept), shape (n1, n2); the upper half if symmetric.
        tangent: NTK without its signs, shape (n1, n2); the upper half if symmetric.
        symmetric: whether rows and columns are the same inputs.
    """

    first: Array
    second: Array
    gap: Array
    tangent: Array
    symmetric: bool


def parity(rule: Activation) -> int:
    """1 if phi is even, -1 if it is odd, 0 if neither."""
    probes = np.concatenate([np.geomspace(1e-3, 30, 61), np.linspace(0.01, 8, 97)])
    right, left = rule.function(probes), rule.function(-probes)
    size = 1e-14 * np.abs(right)
    if (np.abs(left + right) <= size).all():
        return -1
    return 1 if (np.abs(left - right) <= size).all() else 0


def run(rule: Activation, pairs: Pairs, layers: int, scale: LayerScale, folded: bool) -> None:
    """Carry the pairs through the layers.

    Raises:
        InputError: if a variance or the tangent kernel exceeds what float64 holds; the message names the layer.
    """
    table: SlopeTable | None = None
    rebuild, before = 0, np.zeros(2)
    even = parity(rule) == 1
    exact = straight_pair(rule)
    for layer in range(layers):
        every = pairs.first if pairs.symmetric else np.concatenate([pairs.first, pairs.second])
        ends = np.array([every.min(), every.max()])
        settled = needed_rank(ends[0], ends[1], _shift(every)) == 1
        if exact is not None and not settled:
            _exact_step(exact, pairs, scale, layer)
            continue
        # all variances agree and stay: the cheapest table serves to the end
        last = settled and np.abs(ends - before).max() <= 1e-13 * ends[1] and (table is None or table.rank > 1)
        if last or table is None or layer >= rebuild or not table.covers(every):
            low, high, rebuild = (*ends, layers) if last else _range_ahead(rule, every, scale, layer, layers)
            table = tabulate(rule, float(low), float(high), folded or even)
        before = ends
        with np.errstate(over="ignore", invalid="ignore"):
            _step(table, pairs, scale, even, layer)


def _shift(q: Array) -> float:
    return 0.1 * math.sqrt(q.max()) if q.min() < 1e-6 * q.max() else 0.3 if q.max() == 0 else 0.0


def _range_ahead(rule: Activation, q: Array, scale: LayerScale, layer: int, layers: int) -> tuple[float, float, int]:
    """Range of variances for one table, and the layer from which on another one is better."""
    low, high = float(q.min()), float(q.max())
    if rule.homogeneous:
        return low, high, layers
    here = needed_rank(low, high, _shift(q))
    cheap = is_cheap(rule)
    if here == 1 and cheap:
        # one variance: a new table for the next one costs less than a table of several
        return low, high, layers
    moments = moments_of(rule)
    sample = np.quantile(q, [0.0, 0.25, 0.5, 0.75, 1.0])
    for ahead in range(layer + 1, layers):
        if sample.max() > moments.top:
            return low, high, ahead
        sample = scale.skip * sample + scale.bias + scale.weight * moments.square(sample)
        # the splines know these variances to ten digits
        least, most = min(low, float(sample.min()) * (1 - 1e-9)), max(high, float(sample.max()) * (1 + 1e-9))
        spread = needed_rank(float(sample.min()), float(sample.max()), _shift(sample))
        # a phi whose table takes long to make gets one that serves for longer
        room = here + (1 if cheap else 6)
        if needed_rank(least, most, _shift(np.array([least, most]))) > max(room, 3):
            return low, high, ahead
        if spread <= 0.7 * here and sample.max() > sample.min() * (1 + 1e-7):
            return low, high, ahead
        low, high = least, most
    return low, high, layers


def _step(table: SlopeTable, pairs: Pairs, scale: LayerScale, even: bool, layer: int) -> None:
    """One layer, block of rows by block of rows."""
    weights = [table.weights(pairs.first), table.weights(pairs.second)]
    after = [
        scale.skip * q + scale.bias + scale.weight * table.mean_square(q, w)
        for q, w in zip((pairs.first, pairs.second), weights, strict=True)
    ]
    _check(after, layer)
    places = _directions(table, weights, scale, pairs)

    def slopes(rows: slice, columns: slice) -> tuple[Array, Array]:
        gap, sign = pairs.gap[rows, columns], None
        if even and gap.max() > 1:
            sign = np.where(gap > 1, -1.0, 1.0)
            gap = np.minimum(gap, 2 - gap)
        mean, slope = table.evaluate(weights[0][rows], weights[1][columns], gap)
        mean *= scale.weight
        mean += scale.skip
        # an even phi forgets signs: 1 - abs(c) stands for 1 - c, which a skip connection does not forget
        if sign is not None:
            slope *= sign
            mean = (mean - scale.skip) * gap + scale.skip * pairs.gap[rows, columns]
        else:
            mean *= gap
        ends = [np.sqrt(np.divide(q, a, out=np.zeros_like(q), where=a > 0)) for q, a in
                ((pairs.first[rows], after[0][rows]), (pairs.second[columns], after[1][columns]))]  # fmt: skip
        mean *= ends[0][:, None]
        mean *= ends[1]
        if places is not None:
            mean += _apart(places[0][rows], places[1][columns])
        return mean, slope

    _advance(pairs, after, scale, slopes, layer)


def _exact_step(exact: Callable[[Array, Array, Array], tuple[Array, Array]], pairs: Pairs, scale: LayerScale,
                layer: int) -> None:  # fmt: skip
    """One layer of a phi with straight pieces, from its closed form."""
    one = [exact(q, q, np.zeros_like(q))[0] for q in (pairs.first, pairs.second)]
    both = zip((pairs.first, pairs.second), one, strict=True)
    after = [scale.skip * q + scale.bias + scale.weight * square for q, square in both]
    _check(after, layer)

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


def _advance(pairs: Pairs, after: list[Array], scale: LayerScale,
             slopes: Callable[[slice, slice], tuple[Array, Array]], layer: int) -> None:  # fmt: skip
    """Write the next layer's gaps and tangent kernel over this one's, block by block."""
    roots = [np.sqrt(one) for one in after]
    rows, start = len(pairs.first), 0
    while start < rows:
        skipped = start if pairs.symmetric else 0
        stop = min(rows, start + max(1, _PAIRS_AT_ONCE // (len(pairs.second) - skipped)))
        block, rest = slice(start, stop), slice(skipped, None)
        gap, slope = slopes(block, rest)
        tangent = pairs.tangent[block, rest]
        slope *= scale.weight
        slope += scale.skip
        tangent *= slope
        fresh = (1 - gap) * roots[0][block, None]
        fresh *= roots[1][None, rest]
        if scale.skip:
            # what the skip carries on is in the tangent kernel already
            old = (1 - pairs.gap[block, rest]) * np.sqrt(pairs.first[block, None])
            old *= np.sqrt(pairs.second[None, rest])
            fresh -= scale.skip * old
        tangent += fresh
        pairs.gap[block, rest] = gap
        if not np.isfinite(tangent).all():
            raise InputError(f"the NTK overflows float64 in layer {layer + 1}; use fewer or a smaller weight_std.")
        start = stop
    pairs.first, pairs.second = after[0], after[0] if pairs.symmetric else after[1]


def _check(after: list[Array], layer: int) -> None:
    if not all(np.isfinite(one).all() for one in after):
        raise InputError(
            f"the variance of a pre-activation overflows float64 in layer {layer + 1}: "
            "use fewer layers or a smaller weight_std."
        )


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
    total = (squares[0][:, None] - squares[1]) / (along[0][:, None] + along[1])
    total *= total
    for a, b in zip(first.T, second.T, strict=True):
        step = a[:, None] - b
        step *= step
        total += step
    total *= 0.5
    return np.asarray(total)
