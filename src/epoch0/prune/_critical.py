"""The smallest sparsity at which pruning empties a layer, exactly, from one look at the scores (Hayou 2021, 2.1)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from epoch0.errors import InputError

_CHUNK = 1 << 20


class CriticalSparsity(float):
    """A sparsity, which is a number, with the layer that vanishes there.

    Attributes:
        layer: name of the layer that vanishes first (the first of several that do at once).
        removed: number of weights removed then.
        weights: number of all weights.
        layers: for each layer the sparsity at which it vanishes, by name.
    """

    layer: str
    removed: int
    weights: int
    layers: dict[str, float]
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

    def dead(self, sparsity: float) -> list[str]:
        """Layers of which nothing is left at a sparsity, in the order of the scores."""
        return [name for name, count in self._counts.items() if round(sparsity * self.weights) >= count]

    def __str__(self) -> str:
        return f"{float(self):.6g}: '{self.layer}' vanishes with {self.removed:,} of {self.weights:,} weights removed"


def critical_sparsity(scores: Mapping[str, Tensor]) -> CriticalSparsity:
    """The smallest sparsity at which ``keep(scores, sparsity)`` leaves nothing of some layer.

    >>> scores = {"a": torch.tensor([0.9, 0.8, 0.1]), "b": torch.tensor([0.5, 0.4])}
    >>> s_cr = critical_sparsity(scores)
    >>> float(s_cr), s_cr.layer, s_cr.layers
    (0.6, 'b', {'a': 1.0, 'b': 0.6})

    A layer vanishes when its largest score does. If that has rank r among all M, it is when M - r + 1 are removed, so
    neither search nor sorting is needed: only how many scores lie above each layer's largest, counted in one pass.
    Ties are broken as :func:`keep` breaks them, by the order of names and then of entries; weights that are removed
    already come last.

    Args:
        scores: floating tensors by name, any shapes, larger is more worth keeping; such as ``snip`` gives.

    Returns:
        A float that also knows the layer. With one layer it is 1: nothing but all weights empties it.

    Raises:
        InputError: if there is no score, or one is NaN; it names the tensor.

    Source: Hayou et al. 2021, section 2.1 (definition of s_cr); the closed form is ours.
    """
    if not scores or not all(isinstance(tensor, Tensor) and tensor.numel() for tensor in scores.values()):
        raise InputError("scores must be a mapping of names to tensors, with at least one and none of them empty.")
    removed: Mapping[str, Tensor] = getattr(scores, "removed", {})
    names = list(scores)
    found = {name: _largest(name, scores[name], removed.get(name)) for name in names}
    largest = {name: value for name, value in found.items() if value is not None}
    levels = np.unique(np.array(list(largest.values()), dtype=np.float64))
    above = np.zeros(len(levels), dtype=np.int64)  # scores greater than each level
    equal = np.zeros((len(names), len(levels)), dtype=np.int64)
    left = 0
    for row, name in enumerate(names):
        for values in _chunks(scores[name], removed.get(name)):
            left += len(values)
            values = values[values >= levels[0]]  # most scores lie below every level
            greater = _from_top(np.searchsorted(levels, values, side="left"), len(levels))
            above += greater
            equal[row] += _from_top(np.searchsorted(levels, values, side="right"), len(levels)) - greater
    weights = sum(tensor.numel() for tensor in scores.values())
    counts = {}
    for row, name in enumerate(names):
        if name not in largest:  # nothing is left of it already
            counts[name] = weights - left
            continue
        level = int(np.searchsorted(levels, largest[name]))
        rank = 1 + int(above[level]) + int(equal[:row, level].sum())
        counts[name] = weights - rank + 1
    return CriticalSparsity(counts, weights)


def _from_top(passed: NDArray[np.int64], levels: int) -> NDArray[np.int64]:
    """How many scores passed each level, from how many levels each score passed."""
    counts = np.bincount(passed, minlength=levels + 1)
    return np.asarray(counts[::-1].cumsum()[::-1][1:], dtype=np.int64)


def _largest(name: str, tensor: Tensor, removed: Tensor | None) -> float | None:
    if not tensor.is_floating_point():
        raise InputError(f"the scores of '{name}' are {tensor.dtype}; floating-point numbers are needed.")
    if bool(tensor.isnan().any()):
        raise InputError(
            f"the scores of '{name}' hold {int(tensor.isnan().sum())} NaN values out of {tensor.numel()}; they have no "
            "order. Score in float64, or with a smaller loss."
        )
    return max((float(values.max()) for values in _chunks(tensor, removed) if len(values)), default=None)


def _chunks(tensor: Tensor, removed: Tensor | None) -> Iterator[NDArray[Any]]:
    """The scores that are not removed, in float64, a part at a time."""
    flat = tensor.detach().flatten()
    gone = None if removed is None else removed.flatten()
    for start in range(0, flat.numel(), _CHUNK):
        values = flat[start : start + _CHUNK].double()
        if gone is not None:
            values = values[~gone[start : start + _CHUNK].to(values.device)]
        yield values.cpu().numpy()
