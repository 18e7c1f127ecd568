"""When a layer dies, exactly, and how evenly layers are scored, which decides it (Hayou et al. 2021, 2.1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.arguments import Positive, Share, checked
from epoch0.errors import InputError, check_finite
from epoch0.results import Result, finite


@checked
class CriticalSparsity(float):
    """A sparsity, which is a number, with the layer that vanishes there."""

    layer: str  #: name of the layer that vanishes first (the first of several that do at once)
    removed: int  #: number of weights removed then
    weights: int  #: number of all weights
    layers: dict[str, float]  #: for each layer the sparsity at which it vanishes, by name
    _counts: dict[str, int]

    def __new__(cls, removed: Mapping[str, int], weights: int) -> "CriticalSparsity":
        """From the number of weights removed when each layer vanishes."""
        layer = min(removed, key=lambda name: removed[name])
        self = super().__new__(cls, removed[layer] / weights)
        self.layer, self.removed, self.weights = layer, removed[layer], weights
        self.layers = {name: count / weights for name, count in removed.items()}
        self._counts = dict(removed)
        return self

    def __getnewargs__(self) -> tuple[dict[str, int], int]:  # type: ignore[override]
        return self._counts, self.weights

    def dead(self, sparsity: Share) -> list[str]:
        """Layers of which nothing is left at a sparsity, in the order of the scores."""
        return [name for name, count in self._counts.items() if round(sparsity * self.weights) >= count]

    def __str__(self) -> str:
        return f"{float(self):.6g}: '{self.layer}' vanishes with {self.removed:,} of {self.weights:,} weights removed"


@checked
def critical_sparsity(scores: Mapping[str, Tensor]) -> CriticalSparsity:
    """The smallest sparsity at which ``keep(scores, sparsity)`` leaves nothing of some layer.

    >>> scores = {"a": torch.tensor([0.9, 0.8, 0.1]), "b": torch.tensor([0.5, 0.4])}
    >>> s_cr = critical_sparsity(scores)
    >>> float(s_cr), s_cr.layer, s_cr.layers
    (0.6, 'b', {'a': 1.0, 'b': 0.6})

    A layer vanishes when its largest score does. If that has rank r among all M, it is when M - r + 1 are removed, so
    neither search nor sorting is needed: only how many scores lie above each layer's largest.
    Ties are broken as :func:`keep` breaks them, by the order of names and then of entries; weights that are removed
    already come last.

    With one layer it is 1: nothing but all weights empties it.

    Raises:
        InputError: if there is no score, or one is NaN; it names the tensor.

    Source: Hayou et al. 2021, section 2.1 (definition of s_cr); the closed form is ours.
    """
    if not scores or not all(tensor.numel() and tensor.dtype != torch.bool for tensor in scores.values()):
        raise InputError("scores must be a mapping of names to tensors of numbers, at least one and none empty.")
    removed: Mapping[str, Tensor] = getattr(scores, "removed", {})
    tops = {name: _largest(name, tensor, removed.get(name)) for name, tensor in scores.items()}
    lowest = min((top for top in tops.values() if top is not None), default=0.0)
    weights = sum(tensor.numel() for tensor in scores.values())
    left, high = 0, []
    for name, tensor in scores.items():
        values = _left(tensor, removed.get(name))
        left += len(values)
        high.append(values[values >= lowest])  # most scores lie below the largest of every layer
    counts = {}
    for row, (name, top) in enumerate(tops.items()):
        if top is None:  # nothing is left of it already
            counts[name] = weights - left
            continue
        greater = sum(int(np.count_nonzero(values > top)) for values in high)
        counts[name] = weights - greater - sum(int(np.count_nonzero(values == top)) for values in high[:row])
    return CriticalSparsity(counts, weights)


def _largest(name: str, tensor: Tensor, removed: Tensor | None) -> float | None:
    if not tensor.is_floating_point():
        raise InputError(f"the scores of '{name}' are {tensor.dtype}; floating-point numbers are needed.")
    if bool(tensor.isnan().any()):
        raise InputError(
            f"the scores of '{name}' hold {int(tensor.isnan().sum())} NaN values out of {tensor.numel()}; they have no "
            "order. Score in float64, or with a smaller loss."
        )
    values = _left(tensor, removed)
    return float(values.max()) if len(values) else None


def _left(tensor: Tensor, removed: Tensor | None) -> NDArray[np.float64]:
    """The scores that are not removed, in float64."""
    flat = tensor.detach().flatten()
    flat = flat if removed is None else flat[~removed.flatten().to(flat.device)]
    return np.asarray(flat.double().cpu().numpy())


ILL = 100.0
"""Ill-conditioned: m_l changes by more than this over the depth, so that scores at its ends differ tenfold."""


@dataclass(frozen=True)
class LayerScale:
    """The scale of one layer's scores."""

    layer: str  #: its name
    weights: int  #: how many are scored (removed ones do not count)
    log_mean_square: float  #: logarithm of m_l; minus infinity where all scores are 0
    relative: float  #: m_l over that of the last layer
    expected: float | None  #: chi^(L - l), where chi was given; None otherwise


@dataclass(frozen=True)
class Conditioning(Result):
    """The scales of all layers' scores.

    >>> print(conditioning({"a": torch.full((3, 3), 1e-4), "b": torch.ones(3, 3)}).verdict)
    ill-conditioned: m_l changes by 1e-08 over the depth going back
    """

    layers: tuple[LayerScale, ...]  #: one LayerScale a layer
    lower: float  #: A of Definition 1, the least m_l / m_L
    upper: float  #: B, the largest
    #: factor of m_l a layer going back, from a straight line through log m_l; chi by mean-field theory if all layers
    #: are alike. Layers whose scores are all 0 are left out of it.
    growth: float
    #: whether that trend stays below a factor of 100 over the depth and no layer's scores are all 0
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
        return dict(finite(asdict(self) | {"verdict": self.verdict}))

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


@checked
def conditioning(scores: Mapping[str, Tensor], *, chi: Positive | None = None) -> Conditioning:
    """Mean square of each layer's scores against that of the last layer, and whether they drift with depth.

    >>> found = conditioning(snip(net, [(images, labels)]), chi=0.95)
    >>> round(found.growth, 2), [round(row.relative, 2) for row in found.layers], round(found.layers[0].expected, 2)
    (0.38, [0.14, 0.28, 1.0], 0.9)

    In the ordered phase m_l = chi^(L - l) m_L, so first layers are emptied first; in the chaotic phase last ones are;
    on the edge of chaos, and in residual networks, the ratios stay between two constants. One network has always some A
    and B: what the definition asks of all depths is judged here by the trend.

    The scores come in the order of the layers. ``chi``, the gain of a layer, if known, sets the expected ratios beside
    the measured ones.

    Raises:
        InputError: if there are no scores, or one is not finite, or chi is not above 0.

    Source: Hayou et al. 2021, Definition 1; appendix C for chi^(L - l).
    """
    if not scores or not all(tensor.numel() and tensor.dtype != torch.bool for tensor in scores.values()):
        raise InputError("scores must be a mapping of names to tensors of numbers, at least one and none empty.")
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
