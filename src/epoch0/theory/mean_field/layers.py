"""Many pairs of inputs through the layers of a wide network: variances, 1 - c and the tangent kernel carried apart.

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
from epoch0.theory.mean_field.closed_forms import straight_means
from epoch0.theory.mean_field.moments import moments_of
from epoch0.theory.mean_field.tables import TOLERANCE, SlopeTable, needed_rank, tabulate

Array = NDArray[np.float64]
Means = Callable[[slice, slice], tuple[Array, Array]]  # rows and columns -> their gaps one layer on, E phi' phi'

_PAIRS_AT_ONCE = 8192
_BROAD = 12  # variances of a table that serves for several layers


def parity(rule: Activation) -> int:
    """1 if phi is even, -1 if it is odd, 0 if neither."""
    probes = np.concatenate([np.geomspace(1e-3, 30, 61), np.linspace(0.01, 8, 97)])
    right, left = rule.function(probes), rule.function(-probes)
    size = 1e-14 * np.abs(right)
    if (np.abs(left + right) <= size).all():
        return -1
    return 1 if (np.abs(left - right) <= size).all() else 0


@dataclass
class Pairs:
    """Variances of rows (n1,) and columns (n2,) at one layer, and of their pairs (n1, n2); they change in place.

    A layer is K' = skip K + bias + weight E phi phi, of which there are ``layers``. Of pairs, the upper half if
    symmetric: ``gap`` is 1 - c (1 - abs(c) where signs are kept, ``folded``), ``tangent`` the NTK without its signs.
    A table serves as long as it can; ``error`` is the largest of those used, relative to its values.
    """

    rule: Activation
    layers: int
    weight: float
    bias: float
    skip: float
    folded: bool
    first: Array
    second: Array
    gap: Array
    tangent: Array
    symmetric: bool

    def __post_init__(self) -> None:
        self.even = parity(self.rule) == 1
        self.folded = self.folded or self.even
        self.straight = self.rule.slopes is not None and any(self.rule.breaks)
        self.table: SlopeTable | None = None
        self.error = TOLERANCE
        self.rebuild, self.before = 0, (0.0, 0.0)

    def step(self, layer: int) -> None:
        """Carry the pairs through one layer."""
        both = np.concatenate([self.first, self.second])
        low, high = float(both.min()), float(both.max())
        settled = needed_rank(low, high) == 1
        if self.straight and not settled:
            self._advance(*self._exactly(), layer)
            return
        # all variances agree and stay: the cheapest table serves to the end
        stay = max(abs(low - self.before[0]), abs(high - self.before[1])) <= 1e-13 * high
        last = settled and stay and (self.table is None or self.table.rank > 1)
        if last or self.table is None or layer >= self.rebuild or not self.table.covers(np.array([low, high])):
            least, most, self.rebuild = (low, high, self.layers) if last else self._range_ahead(both, layer)
            self.table = tabulate(self.rule, least, most, self.folded)
            self.error = max(self.error, self.table.error)
        self.before = low, high
        with np.errstate(over="ignore", invalid="ignore"):
            self._advance(*self._by_table(self.table), layer)

    def _range_ahead(self, sample: Array, layer: int) -> tuple[float, float, int]:
        """Range of variances for one table, and the layer from which on another one is better."""
        low, high = float(sample.min()), float(sample.max())
        # one variance and a kink: a new table for the next one costs less than a table of several
        if self.rule.homogeneous or (needed_rank(low, high) == 1 and any(self.rule.breaks)):
            return low, high, self.layers
        moments, room = moments_of(self.rule), min(needed_rank(low, high) + 6, _BROAD)
        sample = np.quantile(sample, [0.0, 0.25, 0.5, 0.75, 1.0])
        for ahead in range(layer + 1, self.layers):
            if sample.max() > moments.top:
                return low, high, ahead
            sample = self.skip * sample + self.bias + self.weight * moments.square(sample)
            # the splines know these variances to ten digits
            least, most = min(low, float(sample.min()) * (1 - 1e-9)), max(high, float(sample.max()) * (1 + 1e-9))
            if needed_rank(least, most) > room:
                return low, high, ahead
            low, high = least, most
        return low, high, self.layers

    def _by_table(self, table: SlopeTable) -> tuple[list[Array], Means]:
        """The next variances of both, and the next gaps with E phi' phi', from a table."""
        sides = (self.first, self.second)
        weights = [table.weights(q) for q in sides]
        squares = [table.mean_square(q, w) for q, w in zip(sides, weights, strict=True)]
        after = [self.skip * q + self.bias + self.weight * one for q, one in zip(sides, squares, strict=True)]
        places = self._directions(table, weights)
        # what the sum below is multiplied by to make it 1 - c again
        inverses = [np.divide(1.0, a, out=np.zeros_like(a), where=a > 0) for a in after]
        factors = [np.sqrt(one) * np.sqrt(q) for one, q in zip(inverses, sides, strict=True)]

        def means(rows: slice, columns: slice) -> tuple[Array, Array]:
            gap = self.gap[rows, columns]
            near = np.minimum(gap, 2 - gap) if self.even else gap
            lost, slope = table.evaluate(weights[0][rows], weights[1][columns], near)
            lost *= self.weight
            lost *= near
            if self.even:
                slope[gap > 1] *= -1
            if self.skip:  # an even phi forgets signs, a skip connection does not
                lost += self.skip * gap
            lost *= factors[0][rows, None]
            lost *= factors[1][columns]
            if places is not None:
                lost += _apart(places[0][rows], places[1][columns])
            return lost, slope

        return after, means

    def _exactly(self) -> tuple[list[Array], Means]:
        """The same of a phi with straight pieces, from its closed form."""
        sides = (self.first, self.second)
        squares = [straight_means(self.rule, q, q, np.ones_like(q), np.zeros_like(q))[0] for q in sides]
        after = [self.skip * q + self.bias + self.weight * one for q, one in zip(sides, squares, strict=True)]

        def means(rows: slice, columns: slice) -> tuple[Array, Array]:
            q1, q2 = self.first[rows, None], self.second[None, columns]
            gap = self.gap[rows, columns]
            mean, slope = straight_means(self.rule, q1, q2, 1 - gap, np.sqrt(gap * (2 - gap)))
            ends = np.sqrt(after[0][rows, None] * after[1][None, columns])
            inside = self.skip * np.sqrt(q1 * q2) * (1 - gap) + self.bias + self.weight * mean
            apart = np.clip(1 - inside / np.where(ends > 0, ends, 1.0), 0.0, 2.0)
            apart[(gap == 0) & (q1 == q2)] = 0.0
            return apart, slope

        return after, means

    def _advance(self, after: list[Array], means: Means, layer: int) -> None:
        """Write the next gaps and tangent kernel over these, block of rows by block of rows."""
        if not all(np.isfinite(one).all() for one in after):
            raise InputError(
                f"the variance of a pre-activation overflows float64 in layer {layer + 1}: "
                "use fewer layers or a smaller weight_std."
            )
        roots = [np.sqrt(one) for one in after]
        start = 0
        while start < len(self.first):
            skipped = start if self.symmetric else 0
            stop = start + max(1, _PAIRS_AT_ONCE // (len(self.second) - skipped))
            rows, columns = slice(start, stop), slice(skipped, None)
            gap, slope = means(rows, columns)
            slope *= self.weight
            slope += self.skip
            fresh = 1 - gap
            fresh *= roots[0][rows, None]
            fresh *= roots[1][None, columns]
            if self.skip:
                # what the skip carries on is in the tangent kernel already
                old = (1 - self.gap[rows, columns]) * np.sqrt(self.first[rows, None])
                old *= np.sqrt(self.second[None, columns])
                fresh -= self.skip * old
            tangent = self.tangent[rows, columns]
            tangent *= slope
            tangent += fresh
            self.gap[rows, columns] = gap
            if not np.isfinite(tangent).all():
                raise InputError(f"the NTK overflows float64 in layer {layer + 1}; use fewer or a smaller weight_std.")
            start = stop
        self.first, self.second = after[0], after[0] if self.symmetric else after[1]

    def _directions(self, table: SlopeTable, weights: list[Array]) -> list[Array] | None:
        """Where each input's function phi(sqrt(q) .) points, as the part across the mean direction; None if all agree.

        Inputs of different variance are not alike after a layer even where c = 1: half the squared distance between
        these directions is 1 - c. Shape (n, k): the few directions in which they differ.
        """
        if math.isinf(table.high):
            if not self.bias:
                return None
            # all functions are alike, only their lengths against the bias's differ: a turn in one plane
            ratio = self.skip + self.weight * float(table.ratios[0])
            middle = math.sqrt(float(np.median(self.first)))
            root = math.sqrt(self.bias * ratio / (self.bias + ratio * middle**2))
            turns = [(np.sqrt(q) - middle) / np.sqrt(self.bias + ratio * q) for q in (self.first, self.second)]
            return [root * one[:, None] for one in turns]
        if table.rank == 1:
            return None
        grid = table.grid
        columns = [math.sqrt(self.weight) * table.values * np.sqrt(table.masses)]
        columns += [np.sqrt(self.bias) * np.ones((len(grid), 1)), np.sqrt(self.skip * grid)[:, None]]
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
