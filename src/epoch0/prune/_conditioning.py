"""How evenly the layers' scores are scaled, which decides whether pruning empties layers (Hayou 2021, Definition 1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from epoch0.errors import InputError, check_finite

if TYPE_CHECKING:
    import pandas

ILL = 100.0
"""Ill-conditioned: m_l changes by more than this over the depth, so that scores at its ends differ tenfold."""


@dataclass(frozen=True)
class LayerScale:
    """The scale of one layer's scores.

    Attributes:
        layer: its name.
        weights: how many are scored (removed ones do not count).
        log_mean_square: logarithm of m_l; minus infinity where all scores are 0.
        relative: m_l over that of the last layer.
        expected: chi^(L - l), where chi was given; None otherwise.
    """

    layer: str
    weights: int
    log_mean_square: float
    relative: float
    expected: float | None


@dataclass(frozen=True)
class Conditioning:
    """The scales of all layers' scores.

    >>> print(conditioning({"a": torch.full((3, 3), 1e-4), "b": torch.ones(3, 3)}).verdict)
    ill-conditioned: m_l changes by 1e-08 over the depth going back

    Attributes:
        layers: one LayerScale a layer.
        lower: A of Definition 1, the least m_l / m_L.
        upper: B, the largest.
        growth: factor of m_l a layer going back, from a straight line through log m_l; chi by mean-field theory if all
            layers are alike. Layers whose scores are all 0 are left out of it.
        well_conditioned: whether that trend stays below a factor of 100 over the depth and no layer's scores are all 0.
    """

    layers: tuple[LayerScale, ...]
    lower: float
    upper: float
    growth: float
    well_conditioned: bool

    @property
    def verdict(self) -> str:
        """One sentence."""
        silent = [row.layer for row in self.layers if row.log_mean_square == -math.inf]
        if silent:
            return f"ill-conditioned: all scores are 0 in {', '.join(silent)}"
        word = "well-conditioned" if self.well_conditioned else "ill-conditioned"
        over = math.exp(min(math.log(self.growth) * (len(self.layers) - 1), 700.0))
        return f"{word}: m_l changes by {over:.3g} over the depth going back"

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, ready for JSON; None where a number is infinite."""
        found = asdict(self) | {"layers": [asdict(row) for row in self.layers], "verdict": self.verdict}
        rows = [{key: _plain(value) for key, value in row.items()} for row in found.pop("layers")]
        return {key: _plain(value) for key, value in found.items()} | {"layers": rows}

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer; columns as in :class:`LayerScale`."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.layers])

    def __str__(self) -> str:
        size = max(len("layer"), *(len(row.layer) for row in self.layers))
        theory = self.layers[0].expected is not None
        lines = [
            f"{self.verdict}; A={self.lower:.3g}, B={self.upper:.3g}, x{self.growth:.4g} a layer",
            f"{'layer':{size}}  {'weights':>9}  {'m_l/m_L':>9}" + (f"  {'theory':>9}" if theory else ""),
        ]
        for row in self.layers:
            expected = f"  {row.expected:>9.3g}" if row.expected is not None else ""
            lines.append(f"{row.layer:{size}}  {row.weights:>9,}  {row.relative:>9.3g}{expected}")
        return "\n".join(lines)


def conditioning(scores: Mapping[str, Tensor], *, chi: float | None = None) -> Conditioning:
    """Mean square of each layer's scores against that of the last layer, and whether they drift with depth.

    >>> found = conditioning(snip(net, None, [(images, labels)]), chi=0.95)
    >>> found.growth, found.layers[0].relative, found.layers[0].expected

    In the ordered phase m_l = chi^(L - l) m_L, so first layers are emptied first; in the chaotic phase last ones are;
    on the edge of chaos, and in residual networks, the ratios stay between two constants. One network has always some A
    and B: what the definition asks of all depths is judged here by the trend.

    Args:
        scores: floating tensors by name in the order of the layers; such as ``snip`` gives.
        chi: gain of a layer, if known, to set the expected ratios beside the measured ones.

    Returns:
        A :class:`Conditioning`.

    Raises:
        InputError: if there are no scores, or one is not finite, or chi is not above 0.

    Source: Hayou et al. 2021, Definition 1; appendix C for chi^(L - l).
    """
    if not scores or not all(isinstance(tensor, Tensor) and tensor.numel() for tensor in scores.values()):
        raise InputError("scores must be a mapping of names to tensors, with at least one and none of them empty.")
    if chi is not None and not (math.isfinite(chi) and chi > 0):
        raise InputError(f"chi={chi!r} is no gain; it is finite and > 0.")
    removed: Mapping[str, Tensor] = getattr(scores, "removed", {})
    names, logs, counts = list(scores), [], []
    for name, tensor in scores.items():
        check_finite(f"the scores of '{name}'", tensor)
        counts.append(tensor.numel() - int(removed[name].sum()) if name in removed else tensor.numel())
        logs.append(_log_mean_square(tensor, counts[-1]))
    last = logs[-1] if logs[-1] > -math.inf else max(logs)
    relative = [math.exp(min(one - last, 700.0)) if last > -math.inf else 0.0 for one in logs]
    trend = _trend(logs)
    expected = [None if chi is None else chi ** (len(names) - 1 - place) for place in range(len(names))]
    rows = tuple(LayerScale(*row) for row in zip(names, counts, logs, relative, expected, strict=True))
    steady = abs(trend) * (len(names) - 1) <= math.log(ILL) and min(logs) > -math.inf
    return Conditioning(rows, min(relative), max(relative), math.exp(min(-trend, 700.0)), steady)


def _log_mean_square(tensor: Tensor, count: int) -> float:
    """Of scores of any size: SynFlow's reach 1e200, whose square is out of range."""
    largest = float(tensor.detach().abs().max())
    if largest == 0 or count == 0:
        return -math.inf
    square = float(((tensor.detach() / largest).double() ** 2).sum()) / count
    return 2 * math.log(largest) + math.log(square)


def _trend(logs: Sequence[float]) -> float:
    """Slope of the straight line through the finite values; 0 where there are fewer than two."""
    places = [place for place, one in enumerate(logs) if one > -math.inf]
    if len(places) < 2:
        return 0.0
    return float(np.polyfit(places, [logs[place] for place in places], 1)[0])


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
