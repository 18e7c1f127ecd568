"""What is predicted before pruning: density of each layer, its risk, and the critical sparsity (THEORY section 4)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from epoch0.results import Result, first_names
from epoch0.theory.checks import Array
from epoch0.theory.pruning.score_law import GRID, LOW, ScoreLaw

_STEP = 0.06  # of log t in the integral for the critical sparsity


@dataclass(frozen=True)
class LayerDensity:
    """What a global threshold is expected to leave of one layer.

    Expected fraction kept, the probability that nothing is, and the mean square of the scores over the last layer's.
    """

    layer: str
    weights: int
    density: float
    vanishes: float
    mean_square: float


@dataclass(frozen=True)
class PredictedDensity(Result):
    """What pruning by a global threshold is expected to leave.

    >>> found = e0.theory.pruning.predicted_density("tanh", 0.8041, 0.3, [100] * 101, sparsity=0.3)
    >>> found.at_risk[:3], round(found.critical_sparsity, 2)
    (['1', '2', '3'], 0.15)

    ``critical_sparsity`` is the expected smallest sparsity at which some layer is fully removed; what its standard
    deviation is over, and what the prediction rests on, is said in ``basis``.
    """

    sparsity: float
    layers: tuple[LayerDensity, ...]
    critical_sparsity: float
    critical_sparsity_sd: float
    basis: str

    @property
    def density(self) -> dict[str, float]:
        return {row.layer: row.density for row in self.layers}

    @property
    def at_risk(self) -> list[str]:
        """Layers that vanish with a probability above 5 %, in the order of the layers."""
        return [row.layer for row in self.layers if row.vanishes > 0.05]

    def to_dict(self) -> dict[str, Any]:
        dead = sum(row.vanishes for row in self.layers)
        return asdict(self) | {"layers": self.rows(), "at_risk": self.at_risk, "expected_dead": dead}

    def __str__(self) -> str:
        size = max(len("layer"), *(len(row.layer) for row in self.layers))
        risk = f"at risk: {first_names(self.at_risk, 6)}" if self.at_risk else "no layer is at risk"
        critical = f"{self.critical_sparsity:.4g} (sd {self.critical_sparsity_sd:.2g})"
        head = f"sparsity {self.sparsity:g} ({self.basis}): a layer is expected to vanish from {critical} on; {risk}"
        lines = [head, f"{'layer':{size}}  {'weights':>9}  {'density':>7}  {'vanishes':>8}  {'m_l/m_L':>9}"]
        lines += [
            f"{row.layer:{size}}  {row.weights:>9,}  {row.density:>7.4f}  {row.vanishes:>8.3f}  {row.mean_square:>9.3g}"
            for row in self.layers
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Layers:
    """Laws of the scores of a network's layers, and how their scales vary.

    ``log_scales``, (networks, layers), is the logarithm of each layer's scale in several networks, minus infinity where
    all scores are 0; ``weights``, (layers,), the number of weights of each layer.
    """

    laws: Sequence[ScoreLaw]
    log_scales: Array
    weights: Array

    def thresholds(self, sparsity: float) -> Array:
        """Logarithm of the threshold that removes this fraction of all weights, in each network; shape (networks,)."""
        finite = self.log_scales[np.isfinite(self.log_scales)]
        low = np.full(len(self.log_scales), finite.min() + LOW)
        high = np.full(len(self.log_scales), finite.max() + GRID[-1])
        for _ in range(60):
            middle = (low + high) / 2
            more = self.at("tail", middle) @ self.weights / self.weights.sum() > 1 - sparsity
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.asarray((low + high) / 2)

    def at(self, what: str, log_t: Array, networks: int | slice = slice(None)) -> Array:
        """Each layer's "tail" or "none_above" at thresholds, of one network or one of each; (m,) to (m, layers)."""
        beyond = 0.0 if what == "tail" else 1.0
        scales = self.log_scales[networks]
        found = np.empty((len(log_t), len(self.laws)))
        for layer, law in enumerate(self.laws):
            found[:, layer] = np.interp(log_t - scales[..., layer], GRID, getattr(law, what), right=beyond)
        return found

    def critical_sparsity(self) -> tuple[float, float]:
        """Mean and standard deviation of the smallest sparsity at which some layer is fully removed.

        Each layer's largest score has its law; the first layer to go is the one whose largest score is least, and the
        sparsity is the fraction of all scores below that.
        """
        if not np.isfinite(self.log_scales).all():
            return 0.0, 0.0
        least = self.log_scales.min(axis=1)
        # the largest score of the weakest layer is not above its grid, and of a layer of one weight not far below
        steps = np.arange(-LOW + GRID[-1], step=_STEP) + LOW
        first, second = np.empty(len(least)), np.empty(len(least))
        for network in range(len(least)):
            tails, nones = (self.at(what, least[network] + steps, network) for what in ("tail", "none_above"))
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


def predict(layers: Layers, sparsity: float, basis: str, names: Sequence[str] = ()) -> PredictedDensity:
    """The prediction for one sparsity, averaged over the networks in ``layers``; names are "1", "2", ... by default."""
    names = names or [str(layer + 1) for layer in range(len(layers.laws))]
    log_t = layers.thresholds(sparsity)
    density, gone = layers.at("tail", log_t).mean(axis=0), layers.at("none_above", log_t).mean(axis=0)
    mean, sd = layers.critical_sparsity()
    # the median network: a mean of lognormal scales would speak of the rarest
    squares = 2 * np.median(layers.log_scales, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.exp(squares - squares[-1])
    rows = tuple(
        LayerDensity(name, int(count), float(kept), float(chance), float(square))
        for name, count, kept, chance, square in zip(names, layers.weights, density, gone, relative, strict=True)
    )
    return PredictedDensity(float(sparsity), rows, mean, sd, basis)
