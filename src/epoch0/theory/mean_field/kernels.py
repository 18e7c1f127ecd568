"""NNGP and NTK of infinitely wide networks on a set of inputs (Lee et al. 2018, Jacot et al. 2018; Hayou 2021, B.1).

Variances, 1 - c and the tangent kernel are carried apart: whatever the depth, the diagonal has c = 1 exactly and nearly
equal inputs keep their relative distance, since 1 - c of the next layer is a sum of positive terms proportional to it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from epoch0.activations import Activation
from epoch0.arguments import Density, Depth, Std, checked
from epoch0.errors import InputError
from epoch0.results import Shown, counted
from epoch0.theory.checks import Array, continuous
from epoch0.theory.mean_field import tables
from epoch0.theory.mean_field.correlations import erf_pair, is_erf, straight_means
from epoch0.theory.mean_field.moments import moments_of

Means = Callable[[slice, slice], tuple[Array, Array]]  # rows and columns -> their gaps one layer on, E phi' phi'

# Below this, 1 - c from a product of matrices has lost three digits; the difference of the inputs has not.
_NEAR = 1e-2
_NUMBERS_AT_ONCE, _PAIRS_AT_ONCE = 4_000_000, 8192
_BROAD = 12  # variances of a table that serves for several layers
# Several layers at once: angles, most variances and layers, fewest pairs, layers before the next attempt.
_ANGLES, _MOST_VARIANCES, _MOST_LAYERS, _FEW_PAIRS, _PATIENCE = 64, 14, 32, 20_000, 8


def parity(rule: Activation) -> int:
    """1 if phi is even, -1 if it is odd, 0 if neither."""
    probes = np.concatenate([np.geomspace(1e-3, 30, 61), np.linspace(0.01, 8, 97)])
    right, left = rule.function(probes), rule.function(-probes)
    size = 1e-14 * np.abs(right)
    return -1 if (np.abs(left + right) <= size).all() else 1 if (np.abs(left - right) <= size).all() else 0


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
        self.table: tables.SlopeTable | None = None
        self.error = tables.TOLERANCE
        self.rebuild, self.before = 0, (0.0, 0.0)

    def walk(self) -> None:
        """Carry the pairs through all layers, several at once where they can be."""
        layer = patience = 0
        while layer < self.layers:
            leapt = self._leap(layer) if layer >= patience and self.gap.size >= _FEW_PAIRS else 0
            if not leapt:
                patience = max(patience, layer + _PATIENCE) if layer >= patience else patience
                self.step(layer)
            layer += leapt or 1

    def _leap(self, start: int) -> int:
        """Carry the pairs through as many layers as one small table holds; how many that is, 0 or at least 2. What they
        do depends on a pair's angle and variances: walked on a small grid, from tangent kernels 0 and 1.
        """
        both = np.concatenate([self.first, self.second])
        low, high = float(both.min()), float(both.max())
        rank = tables.needed_rank(low, high)
        # kinks bend sharply where variances differ; single layers keep more of a small c's precision
        if self.folded or rank > (1 if self.rule.breaks else _MOST_VARIANCES) or low < 1e-3 * high or low == 0:
            return 0
        sides = [tables.Variances(low, high, count) for count in (rank, rank + (rank > 1))]
        first, second = (side.grid for side in sides)
        angles = tables.Angles.of(self.rule, high)
        gap = np.append(0.0, 2 * np.sin(angles.to_angle(tables.nodes(_ANGLES)) / 2) ** 2)[:, None, None]
        shape, flat = (2, len(gap), rank, len(second)), (-1, len(second))
        tangent = np.broadcast_to(np.arange(2.0)[:, None, None, None], shape).reshape(flat)
        all_rows, full = np.tile(first, 2 * len(gap)), np.broadcast_to(gap, shape).reshape(flat)
        grid = replace(self, first=all_rows, second=second, gap=full, tangent=tangent, symmetric=False)
        grid.table, grid.rebuild, grid.before = self.table, self.rebuild, self.before
        leapt, series, apart, growth = 0, full, full, [all_rows]
        for layer in range(start, min(self.layers, start + _MOST_LAYERS)):
            try:
                grid.step(layer)
            except InputError:
                break
            (ends, _), (fresh, passed) = grid.gap.reshape(shape), grid.tangent.reshape(shape)
            values = np.stack([(ends - ends[0]) / np.maximum(gap, 1e-300), passed - fresh, fresh])[:, 1:]
            sizes = np.abs(values).max(axis=(1, 2, 3))
            # values so much smaller than the largest would lose more than two digits
            usual = [values[0].min(), *np.median(values[1:], axis=(1, 2, 3))]
            if not np.isfinite(sizes).all() or (sizes > 100 * np.abs(usual)).any():
                break
            found = np.tensordot(values, tables.to_coefficients(_ANGLES), axes=(1, 1))
            if not (count := _enough(found, sizes)):
                break
            leapt, series, apart = layer + 1 - start, found[..., :count], ends[0].copy()
            growth = [grid.first[:rank] / first, grid.second / second]
        if leapt < 2:
            return 0
        self.table, self.rebuild, self.before, self.error = grid.table, grid.rebuild, grid.before, grid.error
        now = (self.first, self.second)
        left, right = weights = [side.weights(q) for q, side in zip(now, sides, strict=True)]
        place = sides[0].place
        places = [place(q) for q in now]
        apart = apart / np.maximum((place(first)[:, None] - place(second)) ** 2, 1e-300)
        for rows, columns in self._blocks():
            gap = self.gap[rows, columns]
            lost, passed, fresh = tables.evaluate_series(series, left[rows], right[columns], angles.of_gap(gap))
            far = left[rows] @ apart @ right[columns].T
            far *= (places[0][rows, None] - places[1][columns]) ** 2
            gap *= lost
            gap += far
            self.tangent[rows, columns] *= passed
            self.tangent[rows, columns] += fresh
        first, second = (q * np.einsum("ia,a->i", w, g) for q, w, g in zip(now, weights, growth, strict=True))
        self.first, self.second = first, first if self.symmetric else second
        return leapt

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of a few pairs at a time, which stay in the cache."""
        start = 0
        while start < len(self.first):
            skipped = start if self.symmetric else 0
            stop = start + max(1, _PAIRS_AT_ONCE // (len(self.second) - skipped))
            yield slice(start, stop), slice(skipped, None)
            start = stop

    def step(self, layer: int) -> None:
        both = np.concatenate([self.first, self.second])
        low, high = float(both.min()), float(both.max())
        settled = tables.needed_rank(low, high) == 1
        if self.rule.slopes is not None and any(self.rule.breaks) and not settled:
            self._advance(*self._exactly(), layer)
            return
        # all variances agree and stay: the cheapest table serves to the end
        stay = max(abs(low - self.before[0]), abs(high - self.before[1])) <= 1e-13 * high
        last = settled and stay and (self.table is None or self.table.variances.rank > 1)
        serves = self.rule.homogeneous or (self.table is not None and self.table.variances.covers(low, high))
        if last or self.table is None or layer >= self.rebuild or not serves:
            least, most, self.rebuild = (low, high, self.layers) if last else self._range_ahead(both, layer)
            self.table = tables.tabulate(self.rule, least, most)
            self.error = max(self.error, self.table.error)
        self.before = low, high
        with np.errstate(over="ignore", invalid="ignore"):
            self._advance(*self._by_table(self.table), layer)

    def _range_ahead(self, sample: Array, layer: int) -> tuple[float, float, int]:
        """Range of variances for one table, and the layer from which on another one is better."""
        low, high = float(sample.min()), float(sample.max())
        # one variance and a kink: a new table for the next one costs less than a table of several
        if self.rule.homogeneous or (tables.needed_rank(low, high) == 1 and any(self.rule.breaks)):
            return low, high, self.layers
        moments, room = moments_of(self.rule), min(tables.needed_rank(low, high) + 6, _BROAD)
        sample = np.quantile(sample, [0.0, 0.25, 0.5, 0.75, 1.0])
        for ahead in range(layer + 1, self.layers):
            if sample.max() > moments.top:
                return low, high, ahead
            sample = self.skip * sample + self.bias + self.weight * moments.square(sample)
            # the splines know these variances to ten digits
            least, most = min(low, float(sample.min()) * (1 - 1e-9)), max(high, float(sample.max()) * (1 + 1e-9))
            if tables.needed_rank(least, most) > room:
                return low, high, ahead
            low, high = least, most
        return low, high, self.layers

    def _by_table(self, table: tables.SlopeTable) -> tuple[list[Array], Means]:
        """The next variances of both, and the next gaps with E phi' phi', from a table."""
        sides = (self.first, self.second)
        weights = [table.variances.weights(q) for q in sides]
        squares = [table.mean_square(q, w) for q, w in zip(sides, weights, strict=True)]
        after = [self.skip * q + self.bias + self.weight * item for q, item in zip(sides, squares, strict=True)]
        places = self._directions(table, weights)
        # what the sum below is multiplied by to make it 1 - c again
        inverses = [np.divide(1.0, a, out=np.zeros_like(a), where=a > 0) for a in after]
        factors = [np.sqrt(item) * np.sqrt(q) for item, q in zip(inverses, sides, strict=True)]
        first, second = sides
        exact = is_erf(self.rule) and min(first.min(), second.min()) > 0

        def means(rows: slice, columns: slice) -> tuple[Array, Array]:
            gap = self.gap[rows, columns]
            near = np.minimum(gap, 2 - gap) if self.even else gap
            if exact:
                lost, slope = erf_pair(first[rows, None], second[columns], near)
            else:
                lost, slope = table.evaluate(weights[0][rows], weights[1][columns], near)
                lost *= near
            lost *= self.weight
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
        after = [self.skip * q + self.bias + self.weight * item for q, item in zip(sides, squares, strict=True)]

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
        if not all(np.isfinite(item).all() for item in after):
            raise InputError(f"variances overflow float64 in layer {layer + 1}; give fewer, or a smaller weight_std.")
        roots = [np.sqrt(item) for item in after]
        for rows, columns in self._blocks():
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
        self.first, self.second = after[0], after[0] if self.symmetric else after[1]

    def _directions(self, table: tables.SlopeTable, weights: list[Array]) -> list[Array] | None:
        """Where each input's function phi(sqrt(q) .) points, as the part across the mean direction; None if all agree.
        Inputs of different variance are not alike after a layer even where c = 1: half the squared distance between
        these directions is 1 - c. Shape (n, k): the few directions in which they differ.
        """
        if self.rule.homogeneous:
            if not self.bias:
                return None
            # all functions are alike, only their lengths against the bias's differ: a turn in one plane
            ratio, middle = self.skip + self.weight * float(table.ratios[0]), math.sqrt(float(np.median(self.first)))
            root = math.sqrt(self.bias * ratio / (self.bias + ratio * middle**2))
            turns = [(np.sqrt(q) - middle) / np.sqrt(self.bias + ratio * q) for q in (self.first, self.second)]
            return [root * turn[:, None] for turn in turns]
        if len(grid := table.variances.grid) == 1:
            return None
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
        return [np.einsum("ia,ak->ik", item, places) for item in weights]


def _enough(series: Array, sizes: Array) -> int:
    """How many terms in the angle suffice for values of these sizes; 0 if none do."""
    relative, rank = np.abs(series).max(axis=(1, 2)) / np.maximum(sizes, 1e-300)[:, None], series.shape[2]
    across = np.abs(np.tensordot(series, tables.to_coefficients(rank), axes=(2, 1))).max(axis=(1, 2))[:, -1]
    if relative[:, -3:].max() > 3e-13 or (rank > 2 and (across > 1e-12 * sizes).any()):
        return 0
    return max(int(np.flatnonzero((relative > 1e-14).any(axis=0)).max()) + 1, 2)


def _apart(first: Array, second: Array) -> Array:
    """Half the squared distance of unit vectors, given their parts across one direction; (m1, k), (m2, k)."""
    squares = [(item**2).sum(axis=1) for item in (first, second)]
    along = [np.sqrt(np.clip(1 - square, 0.0, 1.0)) for square in squares]
    total = ((squares[0][:, None] - squares[1]) / (along[0][:, None] + along[1])) ** 2
    for a, b in zip(first.T, second.T, strict=True):
        total += (a[:, None] - b) ** 2
    return np.asarray(0.5 * total)


@dataclass(frozen=True)
class Kernel(Shown):
    """NNGP and NTK of a network with ``depth`` hidden layers or blocks and a linear readout, at infinite width.

    ``nngp``, (n1, n2), is the covariance of the outputs and ``ntk``, likewise, the inner product of their gradients
    (NTK parametrization: every parameter a standard normal, scaled in the forward pass). ``q1``, (n1,), and ``q2``,
    (n2,), are the outputs' variances; ``gap``, (n1, n2), is 1 - c to its own relative precision, where ``nngp`` has
    rounded it away. ``layer_error`` is the error of a layer's E phi' phi' relative to its largest value: 1e-12, or
    larger (as measured) for kinks away from 0 and bent pieces, if the inputs differ in length.
    """

    nngp: Array
    ntk: Array
    q1: Array
    q2: Array
    gap: Array
    activation: str
    weight_std: float
    bias_std: float
    density: float
    depth: int
    architecture: str
    layer_error: float = 1e-12

    @property
    def correlation(self) -> Array:
        """Correlation of the outputs for inputs i and j, shape (n1, n2)."""
        return 1 - self.gap

    def to_dict(self) -> dict[str, Any]:
        """The settings and the ranges of the results, as plain numbers and words; not the matrices."""
        names = ("activation", "weight_std", "bias_std", "density", "depth", "architecture", "layer_error")
        found: dict[str, Any] = {name: getattr(self, name) for name in names} | {"inputs": list(self.nngp.shape)}
        alone = self.gap.shape[0] == self.gap.shape[1] > 1 and not np.diagonal(self.gap).any()
        pairs = alone * np.eye(*self.gap.shape) == 0  # not of an input with itself
        ranges = {"q": np.append(self.q1, self.q2), "correlation": self.correlation[pairs], "ntk": self.ntk[pairs]}
        for name, values in ranges.items():
            ends = {"least": values.min(), "median": np.median(values), "most": values.max()}
            found[name] = {word: float(value) for word, value in ends.items()}
        return found

    def __str__(self) -> str:
        seen, (rows, columns) = self.to_dict(), self.nngp.shape
        network = f"{self.architecture} {self.activation} network, {counted(self.depth, 'hidden layer')}"
        sparse = f", density {self.density:g}" * (self.density < 1)
        law = f"weight_std={self.weight_std:g}, bias_std={self.bias_std:g}{sparse}; {rows} x {columns} inputs"
        lines = [f"{network}, {law}", f"{'':14}{'least':>14}{'median':>14}{'most':>14}"]
        for name, word in {"q": "variance q", "correlation": "correlation", "ntk": "NTK"}.items():
            lines.append(f"{word:14}" + "".join(f"{seen[name][k]:>14.6g}" for k in ("least", "median", "most")))
        if self.layer_error > 1e-11:
            text = "Kinks away from 0 and inputs of different length: each layer's slopes are within about"
            lines.append(f"{text} {self.layer_error:.1g} only; inputs of one length are exact.")
        return "\n".join(lines)


@checked
def kernel(
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    activation: str | Activation | Callable[..., Any],
    weight_std: Std,
    bias_std: Std = 0.0,
    depth: Depth,
    density: Density = 1.0,
    architecture: Literal["dense", "residual", "stable"] = "dense",
) -> Kernel:
    """NNGP and NTK between inputs, right also at depth 100 in the chaotic phase.

    >>> found = kernel([[1.0, 0.0], [0.0, 1.0]], activation="relu", weight_std=2**0.5, depth=1)
    >>> found.nngp.round(4), found.ntk.round(4)                                       # shape (2, 2)
    (array([[1.    , 0.3183],
           [0.3183, 1.    ]]), array([[2.    , 0.3183],
           [0.3183, 2.    ]]))

    Layers: ``K_0 = bias_std^2 + weight_std^2 x.x'/d`` is the covariance of the first pre-activations and ``depth``
    nonlinear layers follow, ``K_(l+1) = bias_std^2 + weight_std^2 E phi(h) phi(h')``; so ``nngp`` is K_depth, that of
    the outputs of a network with ``depth`` hidden layers and a readout with the same two standard deviations.
    ``NTK_0 = K_0``, ``NTK_(l+1) = K_(l+1) + NTK_l weight_std^2 E phi'(h) phi'(h')``. For ``"residual"`` a block adds
    itself to its input, ``K_(l+1) = K_l + bias_std^2 + weight_std^2 E phi phi``; for ``"stable"`` both variances of a
    block are divided by ``depth``. Blocks come after the first linear map; nothing follows them.

    Computed in float64; each layer's covariance is within 1e-11 of the exact one. c is exactly 1 for equal inputs, and
    1 - c keeps its relative precision for nearly equal ones (docs/kernels.md says how).

    Inputs are numpy arrays, torch tensors or nested lists of shape (n1, d) and (n2, d); without x2 it is x1 again. An
    InputError names what is no such array of finite numbers or out of its range, an activation that jumps (its NTK is
    infinite), or the layer where a kernel exceeds float64.

    Source: Lee et al. 2018 (NNGP), Jacot et al. 2018 (NTK), Hayou et al. 2021, B.1 and appendix H (density).
    """
    rule, first = continuous(activation), _inputs("x1", x1)
    second = first if x2 is None else _inputs("x2", x2)
    if first.shape[1] != second.shape[1]:
        raise InputError(f"x1 has shape {first.shape} and x2 {second.shape}: inputs of different size.")
    weight = density * weight_std**2
    # a network's biases are a further input of its own
    factor, pair = math.sqrt(weight / first.shape[1]), (first, second)
    vectors = [np.concatenate([item * factor, np.full((len(item), 1), float(bias_std))], axis=1) for item in pair]
    folded = bias_std == 0 and parity(rule) == -1
    gap, signs = pair_gaps(vectors[0], vectors[1], folded)
    q1, q2 = ((vector**2).sum(axis=1) for vector in vectors)
    with np.errstate(over="ignore"):
        tangent = (1 - gap) * np.sqrt(q1)[:, None] * np.sqrt(q2)
    if not (np.isfinite(q1).all() and np.isfinite(q2).all()):
        raise InputError("the inputs times weight_std overflow float64; scale them down.")
    share = 1.0 if architecture != "stable" else 1.0 / max(depth, 1)
    scale = (weight * share, bias_std**2 * share, 0.0 if architecture == "dense" else 1.0)
    pairs = Pairs(rule, depth, *scale, folded, q1, q2, gap, tangent, x2 is None)
    if pairs.symmetric:
        np.fill_diagonal(pairs.gap, 0.0)
        np.fill_diagonal(pairs.tangent, q1)
    pairs.walk()
    if pairs.symmetric:
        lower = np.tril_indices(len(first), -1)
        for full in (pairs.gap, pairs.tangent):
            full[lower] = full.T[lower]
    nngp = signs * (1 - pairs.gap) * (np.sqrt(pairs.first)[:, None] * np.sqrt(pairs.second))
    if pairs.symmetric:
        np.fill_diagonal(nngp, pairs.first)
    gaps = np.where(signs < 0, 2 - pairs.gap, pairs.gap)
    q1, q2, ntk = pairs.first, pairs.second, signs * pairs.tangent
    scales = (float(weight_std), float(bias_std), float(density))
    return Kernel(nngp, ntk, q1, q2, gaps, rule.name, *scales, int(depth), architecture, pairs.error)


def _inputs(name: str, x: Any) -> Array:
    array = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{name} has shape {array.shape}; it must be (n, d): n >= 1 inputs of d >= 1 numbers each.")
    return array


def pair_gaps(first: Array, second: Array, fold: bool) -> tuple[Array, Array]:
    """1 - c of every pair of rows, and the sign that was taken off; (n1, d) and (n2, d) to (n1, n2) twice.

    A row of zeros is at a right angle to every other and equal to another row of zeros. With ``fold``, for an odd phi
    without biases, 1 - abs(c) and the sign of c; otherwise every sign is 1.
    """
    lengths = [np.sqrt(np.einsum("id,id->i", item, item)) for item in (first, second)]
    units = [item / np.where(n > 0, n, 1.0)[:, None] for item, n in zip((first, second), lengths, strict=True)]
    cosine = np.clip(units[0] @ units[1].T, -1.0, 1.0)
    signs = np.where(cosine < 0, -1.0, 1.0) if fold else np.ones(cosine.shape)
    gaps = 1 - cosine * signs
    rows, columns = np.nonzero(gaps < _NEAR)
    step = max(1, _NUMBERS_AT_ONCE // first.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        difference = second[j] * signs[i, j][:, None] - first[i]
        # the part of the difference across the first vector is the sine times the second's length
        difference -= np.einsum("pd,pd->p", difference, units[0][i])[:, None] * units[0][i]
        sine = np.einsum("pd,pd->p", difference, difference) / lengths[1][j] ** 2
        gaps[i, j] = sine / (1 + np.sqrt(np.clip(1 - sine, 0.0, 1.0)))
    gaps[(lengths[0] == 0)[:, None] & (lengths[1] == 0)[None, :]] = 0.0
    return gaps, signs
