"""What is predicted before pruning: density of each layer, its risk, and the critical sparsity (THEORY section 4)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0.theory.pruning.survival import Layers

if TYPE_CHECKING:
    import pandas

AT_RISK = 0.05
"""A layer is at risk if it vanishes with a larger probability than this."""


@dataclass(frozen=True)
class LayerDensity:
    """What a global threshold is expected to leave of one layer.

    Attributes:
        layer: its name.
        weights: how many it has.
        density: expected fraction kept.
        vanishes: probability that nothing is kept.
        mean_square: m_l, the mean square of its scores, over that of the last layer.
    """

    layer: str
    weights: int
    density: float
    vanishes: float
    mean_square: float


@dataclass(frozen=True)
class PredictedDensity:
    """What pruning by a global threshold is expected to leave.

    >>> found = e0.theory.pruning.predicted_density("tanh", 0.8041, 0.3, [100] * 101, sparsity=0.3)
    >>> found.at_risk[:3], round(found.critical_sparsity, 2)
    (['1', '2', '3'], 0.15)

    Attributes:
        sparsity: fraction of all weights removed.
        layers: one LayerDensity a layer.
        critical_sparsity: expected smallest sparsity at which some layer is fully removed.
        critical_sparsity_sd: its standard deviation; see ``basis`` for what varies.
        basis: what the prediction rests on, in words.
    """

    sparsity: float
    layers: tuple[LayerDensity, ...]
    critical_sparsity: float
    critical_sparsity_sd: float
    basis: str

    @property
    def density(self) -> dict[str, float]:
        """Expected fraction kept, by layer."""
        return {row.layer: row.density for row in self.layers}

    @property
    def at_risk(self) -> list[str]:
        """Layers that vanish with a probability above 5 %, in the order of the layers."""
        return [row.layer for row in self.layers if row.vanishes > AT_RISK]

    @property
    def expected_dead(self) -> float:
        """Expected number of layers of which nothing is kept."""
        return sum(row.vanishes for row in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, ready for JSON."""
        return asdict(self) | {
            "layers": [asdict(row) for row in self.layers],
            "at_risk": self.at_risk,
            "expected_dead": self.expected_dead,
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer; columns as in :class:`LayerDensity`."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.layers])

    def __str__(self) -> str:
        """The critical sparsity, the layers at risk, and a table."""
        size = max(len("layer"), *(len(row.layer) for row in self.layers))
        lines = [f"{'layer':{size}}  {'weights':>9}  {'density':>7}  {'vanishes':>8}  {'m_l/m_L':>9}"]
        lines += [
            f"{row.layer:{size}}  {row.weights:>9,}  {row.density:>7.4f}  {row.vanishes:>8.3f}  {row.mean_square:>9.3g}"
            for row in self.layers
        ]
        return f"{self.headline}\n" + "\n".join(lines)

    @property
    def headline(self) -> str:
        """One sentence without the table."""
        risk = self.at_risk
        shown = ", ".join(risk[:6]) + (f" and {len(risk) - 6} more" if len(risk) > 6 else "")
        return (
            f"sparsity {self.sparsity:g} ({self.basis}): a layer is expected to vanish from "
            f"{self.critical_sparsity:.4g} (sd {self.critical_sparsity_sd:.2g}) on; "
            + (f"at risk: {shown}" if risk else "no layer is at risk")
        )


def predict(layers: Layers, names: Sequence[str], sparsity: float, basis: str) -> PredictedDensity:
    """The prediction for one sparsity, averaged over the networks in ``layers``."""
    log_t = layers.thresholds(sparsity)
    density, gone = layers.tails(log_t).mean(axis=0), layers.none_above(log_t).mean(axis=0)
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
