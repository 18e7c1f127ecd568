"""When a layer dies: exactly for given scores, and as the law of their moments expects (Hayou et al. 2021, 2.1)."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.arguments import Share, Sparsity, checked
from epoch0.errors import InputError, check_finite
from epoch0.prune.masks.masks import check_order
from epoch0.results import Shown
from epoch0.theory.pruning.prediction import Layers, PredictedDensity, ScoreLaw, law_of_moments, predict

_DEPTH = 10.0  # scores smaller than the layer's by a factor of e^10 count as next to 0, however small


@checked
class CriticalSparsity(float, Shown):
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

    A layer vanishes when its largest score does (docs/pruning). Ties are broken as :func:`keep` breaks them, by the
    order of names and then of entries; weights that are removed already come last. With one layer it is 1.

    Raises:
        InputError: if there is no score, or one is NaN; it names the tensor.

    Source: Hayou et al. 2021, section 2.1 (definition of s_cr); the closed form is ours.
    """
    _check(scores)
    removed: Mapping[str, Tensor] = getattr(scores, "removed", {})
    left = [_left(name, tensor, removed.get(name)) for name, tensor in scores.items()]
    tops = [np.float64(values.max(initial=-np.inf)) for values in left]
    lowest = min((top for top, values in zip(tops, left, strict=True) if len(values)), default=0.0)
    high = [values[values >= lowest] for values in left]  # most scores lie below the largest of every layer
    weights, counts = sum(tensor.numel() for tensor in scores.values()), {}
    for row, name in enumerate(scores):
        above = sum(int(np.count_nonzero(values > tops[row])) for values in high)
        above += sum(int(np.count_nonzero(values == tops[row])) for values in high[:row])
        counts[name] = weights - (above if len(left[row]) else sum(map(len, left)))
    return CriticalSparsity(counts, weights)


def _check(scores: Mapping[str, Tensor]) -> None:
    if not scores or not all(tensor.numel() for tensor in scores.values()):
        raise InputError("scores must be a mapping of names to tensors, with at least one and none of them empty.")


def _left(name: str, tensor: Tensor, removed: Tensor | None) -> NDArray[np.floating[Any]]:
    """The scores that are not removed: no copy of those of a whole layer. Comparisons with a float64 are exact."""
    check_order(name, tensor)
    flat = tensor.detach().flatten()
    flat = flat if removed is None else flat[~removed.flatten().to(flat.device)]
    return np.asarray((flat if flat.dtype in (torch.float32, torch.float64) else flat.float()).cpu().numpy())


@checked
def predicted_density(scores: Mapping[str, Tensor], sparsity: Sparsity) -> PredictedDensity:
    """What a global threshold on the scores will leave of each layer, which layers may vanish, and from when on.

    >>> found = predicted_density(snip(net, [(images, labels)]), 0.95)      # images (100, 64), labels (100,)
    >>> found.at_risk, round(found.critical_sparsity, 3), round(found.density["0.weight"], 3)
    ([], 0.997, 0.035)

    The scores of a batch are reduced to the mean squares of each layer's rows and columns, their
    mean and that of their logarithms, and the law with these moments answers for any sparsity. It speaks of networks
    with these scales and a fresh draw of the rest, so a layer's risk is not 0 or 1. Densities come out within 0.06 of
    the true ones (docs/pruning). Scores that are exactly 0 count as removed.

    From the standard deviations of a dense network's weights and biases alone:
    :func:`epoch0.theory.pruning.predicted_density`.

    Args:
        scores: of any kind >= 0 by name, such as ``snip`` or ``synflow`` give.
        sparsity: fraction of all weights removed, in [0, 1).

    Source: Hayou et al. 2021, section 2.2, whose Theorem 1 and Proposition 4 bound what this estimates.
    """
    _check(scores)
    laws, logs = zip(*(_law(name, tensor) for name, tensor in scores.items()), strict=True)
    counts = np.array([tensor.numel() for tensor in scores.values()], dtype=np.float64)
    if all(log == -math.inf for log in logs):
        raise InputError("all scores are 0: nothing distinguishes the layers.")
    method = getattr(scores, "method", "") or "scores"
    return predict(Layers(laws, np.array([logs]), counts), sparsity, f"moments of {method}", list(scores))


def _law(name: str, tensor: Tensor) -> tuple[ScoreLaw, float]:
    """The law of a layer's scores in units of their largest, and the logarithm of its scale."""
    check_finite(f"the scores of '{name}'", tensor)
    largest = float(tensor.detach().max())
    if float(tensor.detach().min()) < 0:
        text = f"the scores of '{name}' have signs; the law is that of scores >= 0, as snip, synflow and magnitude are"
        raise InputError(f"{text} (for others, critical_sparsity(scores) and keep(scores, sparsity) are exact).")
    if largest == 0:
        return law_of_moments([0.0], [0.0], 0.0), -math.inf
    matrix = (tensor.detach() / largest).double()
    matrix = matrix.flatten(1) if matrix.dim() > 1 else matrix.reshape(1, -1)
    squares = matrix**2
    rows, columns = squares.mean(dim=1).cpu().numpy(), squares.mean(dim=0).cpu().numpy()
    live = int((rows > 0).sum()) * int((columns > 0).sum())
    zeros = 1 - int((squares > 0).sum()) / live
    logs = matrix[matrix > 0].log().clamp_min(0.5 * math.log(float(squares.mean())) - _DEPTH)
    law = law_of_moments(rows, columns, float(matrix.mean()), zeros, float(logs.mean()))
    return law, math.log(largest) + math.log(law.scale)
