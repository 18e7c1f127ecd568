"""From the laws of all layers' scores to what a global threshold leaves of each (Hayou et al. 2021, section 2.2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from epoch0.theory.pruning.log_grid import GRID, LOW, SIZE, STEP
from epoch0.theory.pruning.score_law import ScoreLaw

Array = NDArray[np.float64]

_HIGHEST = GRID[-1]
_STEP = 0.06  # of log t in the integral for the critical sparsity


@dataclass(frozen=True, eq=False)
class Layers:
    """Laws of the scores of a network's layers, and how their scales vary.

    Attributes:
        laws: one a layer.
        log_scales: logarithm of each layer's scale in several networks, shape (networks, layers); minus infinity where
            all scores are 0.
        weights: number of weights of each layer, shape (layers,).
    """

    laws: Sequence[ScoreLaw]
    log_scales: Array
    weights: Array

    def thresholds(self, sparsity: float) -> Array:
        """Logarithm of the threshold that removes this fraction of all weights, in each network; shape (networks,)."""
        finite = self.log_scales[np.isfinite(self.log_scales)]
        low = np.full(len(self.log_scales), finite.min() + LOW)
        high = np.full(len(self.log_scales), finite.max() + _HIGHEST)
        for _ in range(60):
            middle = (low + high) / 2
            more = self.tails(middle) @ self.weights / self.weights.sum() > 1 - sparsity
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.asarray((low + high) / 2)

    def tails(self, log_t: Array) -> Array:
        """Fraction of each layer's scores above a threshold, shape (networks,) to (networks, layers)."""
        return self._at(log_t, self.log_scales, True)[0]

    def none_above(self, log_t: Array) -> Array:
        """Probability that no score of a layer lies above a threshold; shapes as for :meth:`tails`."""
        return self._at(log_t, self.log_scales, False)[0]

    def _at(self, log_t: Array, scales: Array, *kinds: bool) -> list[Array]:
        """Tails (True) and chances of none above (False) at thresholds, between the points of the grid by lines."""
        place = (log_t[..., None] - scales - LOW) / STEP
        inside = np.clip(place, 0, SIZE - 1.000001)
        at = inside.astype(np.int64)
        share = inside - at
        at += np.arange(len(self.laws)) * SIZE
        found = []
        for kind in kinds:
            table = self._tables[0 if kind else 1]
            left = table[at]
            found.append(np.where(place > SIZE - 1, 0.0 if kind else 1.0, left + (table[at + 1] - left) * share))
        return found

    @cached_property
    def _tables(self) -> tuple[Array, Array]:
        """All layers' tails, one behind the other, and their chances of none above."""
        tails, nones = (np.concatenate([getattr(law, name) for law in self.laws]) for name in ("tail", "none_above"))
        return tails, nones

    def critical_sparsity(self) -> tuple[float, float]:
        """Mean and standard deviation of the smallest sparsity at which some layer is fully removed.

        Each layer's largest score has its law; the first layer to go is the one whose largest score is least, and the
        sparsity is the fraction of all scores below that.
        """
        if not np.isfinite(self.log_scales).all():
            return 0.0, 0.0
        least = self.log_scales.min(axis=1)
        # the largest score of the weakest layer is not above its grid, and of a layer of one weight not far below
        steps = np.arange(-LOW + _HIGHEST, step=_STEP) + LOW
        first, second = np.empty(len(least)), np.empty(len(least))
        for network in range(len(least)):
            tails, nones = self._at(least[network] + steps, self.log_scales[network], True, False)
            removed = 1 - tails @ self.weights / self.weights.sum()
            with np.errstate(divide="ignore"):
                alive = np.exp(np.log1p(-nones).sum(axis=1))
            alive[-1] = 0.0
            # the integral of s over the law of t, of which 1 - alive is the distribution function
            chance = np.diff(1 - alive, prepend=0.0)
            between = np.concatenate([removed[:1], (removed[1:] + removed[:-1]) / 2])
            first[network], second[network] = chance @ between, chance @ between**2
        mean = float(first.mean())
        return mean, math.sqrt(max(float(second.mean()) - mean**2, 0.0))
