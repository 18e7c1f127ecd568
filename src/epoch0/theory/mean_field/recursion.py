"""NNGP and NTK of many pairs of inputs through all layers: which table serves which, and several layers at once."""

import math

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.theory.mean_field.angle_grids import Angles
from epoch0.theory.mean_field.closed_forms import erf_pair, is_cheap, is_erf, straight_pair
from epoch0.theory.mean_field.composed import Stretch, compose, cross
from epoch0.theory.mean_field.layer_steps import LayerScale, Pairs, exact_step, step
from epoch0.theory.mean_field.moments import moments_of
from epoch0.theory.mean_field.tables import TOLERANCE, SlopeTable, needed_rank, tabulate

Array = NDArray[np.float64]


def parity(rule: Activation) -> int:
    """1 if phi is even, -1 if it is odd, 0 if neither."""
    probes = np.concatenate([np.geomspace(1e-3, 30, 61), np.linspace(0.01, 8, 97)])
    right, left = rule.function(probes), rule.function(-probes)
    size = 1e-14 * np.abs(right)
    if (np.abs(left + right) <= size).all():
        return -1
    return 1 if (np.abs(left - right) <= size).all() else 0


def run(rule: Activation, pairs: Pairs, layers: int, scale: LayerScale, folded: bool) -> float:
    """Carry the pairs through the layers; the result is the largest error of a table used, relative to its values.

    Raises:
        InputError: if a variance or the tangent kernel exceeds what float64 holds; the message names the layer.
    """
    stepper = _Stepper(rule, layers, scale, folded)
    layer, patience = 0, 0
    while layer < layers:
        if layer >= patience and stepper.can_compose(pairs) and layers - layer > 2:
            stretch = stepper.compose(pairs, layer)
            if stretch is not None:
                cross(stretch, pairs, layer)
                layer += stretch.layers
                continue
            patience = layer + _PATIENCE
        stepper.step(pairs, layer)
        layer += 1
    return stepper.error


# layers taken one by one after an attempt to take several at once has failed
_PATIENCE = 8
# variances of a table for few pairs
_BROAD = 12
_FEW_PAIRS = 20_000


class _Stepper:
    """Carries pairs through one layer after the other, with a table as long as it serves."""

    def __init__(self, rule: Activation, layers: int, scale: LayerScale, folded: bool) -> None:
        self.rule, self.layers, self.scale = rule, layers, scale
        self.even = parity(rule) == 1
        self.folded = folded or self.even
        # c = 0 stays, and near it c is known to its own precision: single layers keep more of that
        self.keeps_zero = folded
        self.scout: _Stepper | None = None
        self.straight = straight_pair(rule)
        self.form = erf_pair if is_erf(rule) else None
        self.table: SlopeTable | None = None
        self.error = TOLERANCE
        self.rebuild, self.before = 0, np.zeros(2)
        # whether tables are for few pairs: made rarely, for many variances
        self.broad = False

    def can_compose(self, pairs: Pairs) -> bool:
        """Whether several layers at once are worth a try."""
        if self.even or self.keeps_zero or len(pairs.first) * len(pairs.second) < _FEW_PAIRS:
            return False
        low, high = _ends(pairs)
        settled = needed_rank(low, high) == 1 if low > 0 else False
        if self.rule.homogeneous and not self.scale.bias:
            return low > 0
        # kinks bend sharply where lengths differ, and the closed form is quick enough while many of them are needed
        return settled or (low > 0 and not self.rule.breaks and self.form is None)

    def compose(self, pairs: Pairs, layer: int) -> Stretch | None:
        """Layers from this one on as one table, if that pays."""
        low, high = _ends(pairs)
        width = math.inf if high < 3 or self.rule.homogeneous else 1 / math.sqrt(high)
        if self.scout is None:
            self.scout = _Stepper(self.rule, self.layers, self.scale, self.folded)
            self.scout.broad = True
        end = math.pi / 2 if self.folded else math.pi
        return compose(self.scout.step, low, high, Angles(end, width), layer, self.layers)

    def step(self, pairs: Pairs, layer: int) -> None:
        """Carry the pairs through one layer, in place."""
        every = pairs.first if pairs.symmetric else np.concatenate([pairs.first, pairs.second])
        ends = np.array([every.min(), every.max()])
        settled = needed_rank(ends[0], ends[1], _shift(every)) == 1
        if self.straight is not None and not settled:
            exact_step(self.straight, pairs, self.scale, layer)
            return
        # all variances agree and stay: the cheapest table serves to the end
        stay = np.abs(ends - self.before).max() <= 1e-13 * ends[1]
        last = settled and stay and (self.table is None or self.table.rank > 1)
        if last or self.table is None or layer >= self.rebuild or not self.table.covers(every):
            low, high, self.rebuild = (*ends, self.layers) if last else self._range_ahead(every, layer)
            self.table = tabulate(self.rule, float(low), float(high), self.folded)
            self.error = max(self.error, self.table.error)
        self.before = ends
        with np.errstate(over="ignore", invalid="ignore"):
            step(self.table, pairs, self.scale, self.even, layer, self.form)

    def _range_ahead(self, q: Array, layer: int) -> tuple[float, float, int]:
        """Range of variances for one table, and the layer from which on another one is better."""
        low, high = float(q.min()), float(q.max())
        if self.rule.homogeneous:
            return low, high, self.layers
        here = needed_rank(low, high, _shift(q))
        cheap = is_cheap(self.rule)
        if here == 1 and (any(self.rule.breaks) or (cheap and not self.broad)):
            # one variance: a new table for the next one costs less than a table of several, and kinks do not harm it
            return low, high, self.layers
        moments = moments_of(self.rule)
        sample = np.quantile(q, [0.0, 0.25, 0.5, 0.75, 1.0])
        for ahead in range(layer + 1, self.layers):
            if sample.max() > moments.top:
                return low, high, ahead
            sample = self.scale.skip * sample + self.scale.bias + self.scale.weight * moments.square(sample)
            # the splines know these variances to ten digits
            least, most = min(low, float(sample.min()) * (1 - 1e-9)), max(high, float(sample.max()) * (1 + 1e-9))
            spread = needed_rank(float(sample.min()), float(sample.max()), _shift(sample))
            # a phi whose table takes long to make gets one that serves for longer
            room = _BROAD if self.broad else here + (1 if cheap else 6)
            if needed_rank(least, most, _shift(np.array([least, most]))) > max(room, 3):
                return low, high, ahead
            if not self.broad and spread <= 0.7 * here and sample.max() > sample.min() * (1 + 1e-7):
                return low, high, ahead
            low, high = least, most
        return low, high, self.layers


def _ends(pairs: Pairs) -> tuple[float, float]:
    return (
        float(min(pairs.first.min(), pairs.second.min())), float(max(pairs.first.max(), pairs.second.max())),
    )  # fmt: skip


def _shift(q: Array) -> float:
    return 0.1 * math.sqrt(q.max()) if q.min() < 1e-6 * q.max() else 0.3 if q.max() == 0 else 0.0
