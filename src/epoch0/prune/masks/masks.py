"""Which weights are kept: bool tensors that count and save; from scores the largest, exactly as many as asked for.

They are taken of all weights or of each layer (Hayou et al. 2021, 2.1 and 2.2). And when a layer dies by that: exactly
for given scores, and as the law of their moments expects.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.arguments import Share, Sparsity, Whole, checked
from epoch0.errors import InputError, check_finite
from epoch0.initialization.files import Tensors, check_path, load_tensors, save_tensors
from epoch0.results import Shown, counted
from epoch0.theory.pruning.prediction import Layers, PredictedDensity, ScoreLaw, law_of_moments, predict

_DEPTH = 10.0  # scores smaller than the layer's by a factor of e^10 count as next to 0, however small
LAYOUT = "epoch0 masks 2"


@checked
class Masks(Mapping[str, Tensor], Shown):
    """Name of a weight -> bool tensor of its shape; True is kept.

    >>> masks = Masks({"fc.weight": torch.tensor([[True, False], [False, False]])})     # shape (2, 2)
    >>> masks.kept, masks.total, masks.sparsity
    (1, 4, 0.75)

    Names are those of ``model.named_parameters()`` before the model is pruned. The mapping cannot be changed; the
    tensors are copies, so that nobody else's change reaches them.
    """

    def __init__(self, masks: Tensors) -> None:
        self._masks: dict[str, Tensor] = {}
        for name, mask in masks.items():
            if mask.dtype != torch.bool:
                raise InputError(f"the mask '{name}' is {mask.dtype}; True is kept, so mask != 0 makes a bool one.")
            self._masks[name] = mask.detach().clone()
        if not self._masks:
            raise InputError("there are no masks in it; at least one weight needs one.")

    @classmethod
    def _own(cls, masks: dict[str, Tensor]) -> "Masks":
        """Without copies, of fresh tensors that nobody else holds."""
        made = cls.__new__(cls)
        made._masks = masks
        return made

    def __getitem__(self, name: str) -> Tensor:
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Masks):
            return NotImplemented
        same = (torch.equal(mask, other[name].to(mask.device)) for name, mask in self.items())
        return self.keys() == other.keys() and all(same)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content is big

    @property
    def total(self) -> int:
        """Number of weights."""
        return sum(mask.numel() for mask in self.values())

    @property
    def kept(self) -> int:
        """Number of weights kept."""
        return sum(self.kept_of.values())

    @property
    def density(self) -> float:
        """Fraction kept."""
        return self.kept / max(self.total, 1)

    @property
    def sparsity(self) -> float:
        """Fraction removed."""
        return 1.0 - self.density

    @property
    def kept_of(self) -> dict[str, int]:
        """Number of weights kept of each layer."""
        return {name: int(mask.count_nonzero()) for name, mask in self.items()}

    @property
    def density_of(self) -> dict[str, float]:
        """Fraction kept of each layer."""
        return {name: kept / max(self[name].numel(), 1) for name, kept in self.kept_of.items()}

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of the layers of which nothing is kept."""
        return tuple(name for name, kept in self.kept_of.items() if kept == 0)

    summary: ClassVar[Callable[..., Any]]  # what follows paths is bound here by epoch0.prune.effects.paths
    to_torch_prune: ClassVar[Callable[..., Any]]  # and by epoch0.prune.masks.apply

    def save(self, path: str | Path) -> Path:
        """Write the masks as safetensors of bools; the file appears whole or not at all.

        >>> masks.save("masks.safetensors")
        PosixPath('masks.safetensors')

        The ending must be ``.safetensors`` and the folder must exist; a file there is replaced.
        """
        return save_tensors(check_path(path, "masks"), "masks", LAYOUT, self, {})

    @classmethod
    def load(cls, path: str | Path) -> "Masks":
        """Read what :meth:`save` wrote.

        >>> Masks.load(masks.save("masks.safetensors")) == masks
        True
        """
        return cls(load_tensors(path, "masks", LAYOUT, "Masks.save")[0])

    def __str__(self) -> str:
        kept = f"{self.kept:,} of {counted(self.total, 'weight')} kept in {counted(len(self), 'layer')}"
        return f"{kept}, sparsity {self.sparsity:.4%}"

    def __repr__(self) -> str:
        return f"<Masks: {self}>"


SCOPES, LAYERS = ("global", "layer"), ("uniform", "erk")
_NARROW = (torch.float16, torch.bfloat16, torch.float32)


@checked
def keep(
    scores: Tensors,
    sparsity: Sparsity,
    *,
    scope: Annotated[str, SCOPES] = "global",
    floor: Whole = 0,
    layers: Annotated[str, LAYERS] = "uniform",
) -> Masks:
    """Keep the highest-scored weights and drop the rest.

    >>> masks = keep({"fc": torch.tensor([[0.1, 0.9], [0.5, 0.2]])}, sparsity=0.5)      # shape (2, 2)
    >>> masks["fc"]
    tensor([[False,  True],
            [ True, False]])
    >>> scores = {"a": torch.rand(10, 10), "b": torch.rand(100, 10)}
    >>> keep(scores, 0.9, scope="layer", layers="erk").kept_of                          # (10 + 10) : (100 + 10)
    {'a': 17, 'b': 93}

    Exactly ``round(sparsity * M)`` of the M weights are removed, where ``round`` takes halves to the even number, as
    Python's does. Among equal scores those that come first are kept: in the order of the names in ``scores``, and row
    by row within a tensor. So ties never change the count, nor does the device; each mask is where its scores are.

    Args:
        scores: floating tensors by name, any shapes; larger is more worth keeping, infinity included. Weights that
            :class:`~epoch0.prune.scores.scores.Scores` knows as removed stay removed and count as such.
        sparsity: fraction of all weights removed, in [0, 1).
        scope: ``"global"``: one threshold for all layers. ``"layer"``: one for each layer.
        floor: weights that each layer keeps at least (a layer smaller than that keeps all of its own).
        layers: for ``scope="layer"``: ``"uniform"``: the same density in each layer; ``"erk"``: Erdos-Renyi-kernel
            densities; the numbers of weights kept are rounded so that their sum is exact.

    Raises:
        InputError: if the sparsity is not in [0, 1) or leaves no weight, the floor cannot be met, or a score is NaN.

    Source: Hayou et al. 2021, section 2.2; Evci et al. 2020, section 3, for ERK.
    """
    if not scores:
        raise InputError("scores must be a mapping of names to tensors, with at least one.")
    if scope == "global" and layers != "uniform":
        raise InputError(f"layers={layers!r} sets the sparsity of each layer: use it with scope='layer'.")
    removed: Tensors = getattr(scores, "removed", {})
    sizes = {name: tensor.numel() for name, tensor in scores.items()}
    most = {n: size - int(removed[n].count_nonzero()) if n in removed else size for n, size in sizes.items()}
    least = {name: min(int(floor), left) for name, left in most.items()}
    total, low, high = (sum(of.values()) for of in (sizes, least, most))
    if (kept := total - round(sparsity * total)) == 0:
        bound = f"{1 - 1 / max(total, 1):.9g}"
        raise InputError(f"sparsity={sparsity} leaves none of {total:,} weights; keep at least one: <= {bound}.")
    if not low <= kept <= high:
        needed = f"floor={floor} in {len(scores)} layers needs {low:,}"
        bound = f"{total - high:,} are removed already" if kept > high else needed
        text = f"sparsity={sparsity} keeps {kept:,} of {total:,} weights, but {bound}"
        raise InputError(f"{text}: sparsity must be from {1 - high / total:.9g} to {1 - low / total:.9g}.")
    if scope == "global":
        return Masks._own(_keep_globally(scores, kept, least, removed))
    by_shape = [float(sum(tensor.shape)) if tensor.numel() else 0.0 for tensor in scores.values()]
    weights = by_shape if layers == "erk" else list(sizes.values())
    counts = dict(zip(scores, shared_out(kept, weights, list(least.values()), list(most.values())), strict=True))
    return Masks._own({name: largest({name: scores[name]}, counts[name], removed)[name] for name in scores})


def _keep_globally(scores: Tensors, count: int, least: Mapping[str, int], removed: Tensors) -> dict[str, Tensor]:
    """One threshold, lowered for layers that would fall below their floor and raised for the others in return."""
    masks: dict[str, Tensor] = {}
    free = dict(scores)
    while True:
        found = largest(free, count, removed)
        short = [name for name, mask in found.items() if least[name] and int(mask.count_nonzero()) < least[name]]
        if not short:
            masks |= found
            return {name: masks[name] for name in scores}
        for name in short:
            masks |= largest({name: free.pop(name)}, least[name], removed)
            count -= least[name]


def check_order(name: str, scores: Tensor) -> None:
    """Refuse scores that are no floats, or that hold NaN."""
    if not scores.is_floating_point():
        raise InputError(f"the scores of '{name}' are {scores.dtype}; floating-point numbers are needed.")
    if bad := int(scores.isnan().count_nonzero()):
        text = f"the scores of '{name}' hold {bad} NaN value{'s' if bad > 1 else ''} out of {scores.numel()}"
        raise InputError(f"{text}; they have no order. Score in float64, or with a smaller loss.")


def largest(scores: Tensors, count: int, removed: Tensors | None = None) -> dict[str, Tensor]:
    """Masks of the ``count`` largest of all scores; among equals those that come first, by name and then row by row.

    Zeros are equal whatever their sign, and infinities are scores. Mixed precisions are compared exactly.
    """
    dtype = torch.float32 if all(tensor.dtype in _NARROW for tensor in scores.values()) else torch.float64
    sizes = [tensor.numel() for tensor in scores.values()]
    flat, left = torch.empty(sum(sizes), dtype=dtype), torch.ones(sum(sizes), dtype=torch.bool)
    for (name, tensor), part, stays in zip(scores.items(), flat.split(sizes), left.split(sizes), strict=True):
        check_order(name, tensor)
        part.copy_(tensor.detach().flatten())
        if removed and name in removed:
            stays.copy_(~removed[name].flatten())
    kept = best(flat, count) if left.all() else left.masked_scatter(left, best(flat.masked_select(left), count))
    masks = zip(scores.items(), kept.split(sizes), strict=True)
    return {name: mask.view(tensor.shape).to(tensor.device) for (name, tensor), mask in masks}


def best(scores: Tensor, count: int) -> Tensor:
    """Which scores are among the ``count`` largest; of equal ones those that come first."""
    dropped = len(scores) - count
    if dropped == 0 or count == 0:
        return torch.full_like(scores, dropped == 0, dtype=torch.bool)
    threshold = float(np.partition(scores.cpu().numpy(), dropped)[dropped])  # quicker than torch's kthvalue
    stay = scores > threshold
    stay[(scores == threshold).nonzero().squeeze(1)[: count - int(stay.count_nonzero())]] = True
    return stay


def shared_out(total: int, weights: Sequence[float], low: Sequence[int], high: Sequence[int]) -> list[int]:
    """Whole shares that add up to the total, proportional to the weights as far as the bounds allow.

    The largest remainders are rounded up, the first of equal ones first.
    """
    weight, least, most = np.asarray(weights, dtype=np.float64), np.asarray(low), np.asarray(high)

    def at(scale: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.clip(scale * weight, least, most)

    # the sum grows with the scale: bisection until the two ends are neighbours
    below, above = 0.0, 1.0
    while at(above).sum() < total and above < 1e300:
        above *= 2
    while below < (middle := (below + above) / 2) < above:
        below, above = (middle, above) if at(middle).sum() < total else (below, middle)
    exact = at(above)
    whole = np.clip(np.floor(exact + 1e-9), least, most).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")  # largest remainder first
    while whole.sum() < total:  # one round, or a second one where bounds stop the first
        for place in order:
            whole[place] += int(whole.sum() < total and whole[place] < most[place])
    return [int(share) for share in whole]


@checked
def check_sparsity(sparsity: Sparsity) -> None:
    """Refuse what is no fraction removed, before anything else is done."""


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
        raise InputError(f"the scores of '{name}' have signs; this law is of scores >= 0 (else: critical_sparsity).")
    if largest == 0:
        return law_of_moments([0.0], [0.0], 0.0), -math.inf
    matrix = (tensor.detach() / largest).double()
    matrix = matrix.flatten(1) if matrix.dim() > 1 else matrix.reshape(1, -1)
    squares = matrix**2
    rows, columns = squares.mean(dim=1).cpu().numpy(), squares.mean(dim=0).cpu().numpy()
    zeros = 1 - int((squares > 0).sum()) / (int((rows > 0).sum()) * int((columns > 0).sum()))
    logs = matrix[matrix > 0].log().clamp_min(0.5 * math.log(float(squares.mean())) - _DEPTH)
    law = law_of_moments(rows, columns, float(matrix.mean()), zeros, float(logs.mean()))
    return law, math.log(largest) + math.log(law.scale)
