"""When a layer dies, exactly (Hayou et al. 2021, 2.1)."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.arguments import Share, checked
from epoch0.errors import InputError


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
