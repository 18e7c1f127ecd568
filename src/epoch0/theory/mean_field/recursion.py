"""NNGP and NTK of many pairs of inputs through all layers: which table serves which, and several layers at once."""

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.theory.mean_field.closed_forms import erf_pair, is_erf, straight_pair
from epoch0.theory.mean_field.composed import compose, cross
from epoch0.theory.mean_field.layers import LayerScale, Pairs, exact_step, step
from epoch0.theory.mean_field.moments import moments_of
from epoch0.theory.mean_field.tables import TOLERANCE, Angles, SlopeTable, needed_rank, tabulate

Array = NDArray[np.float64]

# layers taken one by one after an attempt to take several at once has failed
_PATIENCE = 8
# variances of a table that serves for several layers
_BROAD = 12
_FEW_PAIRS = 20_000


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

    An InputError names the layer in which a variance or the tangent kernel exceeds what float64 holds.
    """
    stepper, scout = (_Stepper(rule, layers, scale, folded) for _ in range(2))
    layer, patience = 0, 0
    while layer < layers:
        if layer >= patience and layers - layer > 2 and stepper.can_compose(pairs):
            low, high = _ends(pairs)
            angles = Angles.of(rule, high, stepper.folded)
            stretch = compose(scout.step, low, high, angles, layer, layers)
            if stretch is not None:
                cross(stretch, pairs, layer)
                layer += stretch.layers
                continue
            patience = layer + _PATIENCE
        stepper.step(pairs, layer)
        layer += 1
    return stepper.error


class _Stepper:
    """Carries pairs through one layer after the other, with a table as long as it serves."""

    def __init__(self, rule: Activation, layers: int, scale: LayerScale, folded: bool) -> None:
        self.rule, self.layers, self.scale = rule, layers, scale
        self.even = parity(rule) == 1
        self.folded = folded or self.even
        self.straight = straight_pair(rule)
        self.form = erf_pair if is_erf(rule) else None
        self.table: SlopeTable | None = None
        self.error = TOLERANCE
        self.rebuild, self.before = 0, (0.0, 0.0)

    def can_compose(self, pairs: Pairs) -> bool:
        """Whether several layers at once are worth a try."""
        low, high = _ends(pairs)
        # where c = 0 stays (folded), single layers keep more of a small c's precision
        if self.folded or low <= 0 or len(pairs.first) * len(pairs.second) < _FEW_PAIRS:
            return False
        if self.rule.homogeneous and not self.scale.bias:
            return True
        # kinks bend sharply where lengths differ, and the closed form is quick enough while many of them are needed
        return needed_rank(low, high) == 1 or not (self.rule.breaks or self.form)

    def step(self, pairs: Pairs, layer: int) -> None:
        """Carry the pairs through one layer, in place."""
        low, high = _ends(pairs)
        settled = needed_rank(low, high) == 1
        if self.straight is not None and not settled:
            exact_step(self.straight, pairs, self.scale, layer)
            return
        # all variances agree and stay: the cheapest table serves to the end
        stay = max(abs(low - self.before[0]), abs(high - self.before[1])) <= 1e-13 * high
        last = settled and stay and (self.table is None or self.table.rank > 1)
        if last or self.table is None or layer >= self.rebuild or not self.table.covers(np.array([low, high])):
            least, most, self.rebuild = (low, high, self.layers) if last else self._range_ahead(pairs, layer)
            self.table = tabulate(self.rule, least, most, self.folded)
            self.error = max(self.error, self.table.error)
        self.before = low, high
        with np.errstate(over="ignore", invalid="ignore"):
            step(self.table, pairs, self.scale, self.even, layer, self.form)

    def _range_ahead(self, pairs: Pairs, layer: int) -> tuple[float, float, int]:
        """Range of variances for one table, and the layer from which on another one is better."""
        low, high = _ends(pairs)
        if self.rule.homogeneous:
            return low, high, self.layers
        if needed_rank(low, high) == 1 and (any(self.rule.breaks) or self.form):
            # one variance: a new table for the next one costs less than a table of several, and kinks do not harm it
            return low, high, self.layers
        moments, room = moments_of(self.rule), min(needed_rank(low, high) + 6, _BROAD)
        sample = np.quantile(np.concatenate([pairs.first, pairs.second]), [0.0, 0.25, 0.5, 0.75, 1.0])
        for ahead in range(layer + 1, self.layers):
            if sample.max() > moments.top:
                return low, high, ahead
            sample = self.scale.skip * sample + self.scale.bias + self.scale.weight * moments.square(sample)
            # the splines know these variances to ten digits
            least, most = min(low, float(sample.min()) * (1 - 1e-9)), max(high, float(sample.max()) * (1 + 1e-9))
            if needed_rank(least, most) > room:
                return low, high, ahead
            low, high = least, most
        return low, high, self.layers


def _ends(pairs: Pairs) -> tuple[float, float]:
    both = np.concatenate([pairs.first, pairs.second])
    return float(both.min()), float(both.max())
