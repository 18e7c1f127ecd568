"""From scores to masks: keep the largest, exactly as many as asked for (Hayou et al. 2021, section 2.2)."""

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.prune.masks.layers import check_sparsity, kept_of_layers
from epoch0.prune.masks.masks import Masks

SCOPES = ("global", "layer")
_NARROW = (torch.float16, torch.bfloat16, torch.float32)


class PruningWarning(UserWarning):
    """So few weights are kept that whole layers must be empty: the network computes a constant."""


def keep(
    scores: Mapping[str, Tensor],
    sparsity: float,
    *,
    scope: str = "global",
    floor: int = 0,
    layers: str | Mapping[str, float] = "uniform",
) -> Masks:
    """Keep the highest-scored weights and drop the rest.

    >>> masks = keep({"fc": torch.tensor([[0.1, 0.9], [0.5, 0.2]])}, sparsity=0.5)      # shape (2, 2)
    >>> masks["fc"]
    tensor([[False,  True],
            [ True, False]])

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
            densities; the numbers of weights kept are rounded so that their sum is exact. Or a dict of sparsities by
            name: then those layers get exactly theirs, and the layers it does not name share ``sparsity`` uniformly.

    Raises:
        InputError: if the sparsity is not in [0, 1) or leaves no weight, the floor cannot be met, an option or a name
            is not known, or a score is NaN.

    Warns:
        PruningWarning: if fewer weights than layers are left, with the names of those that are empty.

    Source: Hayou et al. 2021, section 2.2; Evci et al. 2020, section 3, for ERK.
    """
    found = select(scores, sparsity, scope=scope, floor=floor, layers=layers)
    warn_if_few(found, sparsity)
    return found


def select(
    scores: Mapping[str, Tensor],
    sparsity: float,
    *,
    scope: str = "global",
    floor: int = 0,
    layers: str | Mapping[str, float] = "uniform",
) -> Masks:
    """What :func:`keep` does, without its warning."""
    check_sparsity(sparsity)
    _check(scores, scope, floor, layers)
    removed: Mapping[str, Tensor] = getattr(scores, "removed", {})
    most = {name: tensor.numel() - int(removed[name].count_nonzero()) if name in removed else tensor.numel()
            for name, tensor in scores.items()}  # fmt: skip
    least = {name: min(int(floor), left) for name, left in most.items()}
    told = set(layers) if scope == "layer" and not isinstance(layers, str) else set()
    rest = [name for name in scores if name not in told]
    total = sum(scores[name].numel() for name in rest)
    if rest:
        _check_left(sparsity, total, {name: least[name] for name in rest}, sum(most[name] for name in rest), floor)
    if scope == "layer":
        shapes = {name: tuple(tensor.shape) for name, tensor in scores.items()}
        counts = kept_of_layers(shapes, sparsity, layers, least, most)
        masks = {name: largest({name: scores[name]}, count, removed)[name] for name, count in counts.items()}
    else:
        masks = _keep_globally(scores, total - round(sparsity * total), least, removed)
    return Masks._own(masks)


def warn_if_few(masks: Masks, sparsity: float) -> None:
    """Warn the caller's caller by name of layers that are empty because fewer weights than layers are left."""
    if (kept := masks.kept) < len(masks):
        warnings.warn(
            f"sparsity {sparsity} leaves {kept} weight{'s' if kept != 1 else ''} for {len(masks)} layers; "
            f"nothing is left of {', '.join(masks.dead)}.",
            PruningWarning,
            stacklevel=3,
        )


def _keep_globally(
    scores: Mapping[str, Tensor], count: int, least: Mapping[str, int], removed: Mapping[str, Tensor]
) -> dict[str, Tensor]:
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


def _check(scores: Mapping[str, Tensor], scope: str, floor: int, layers: str | Mapping[str, float]) -> None:
    if not isinstance(scores, Mapping) or not scores or not all(isinstance(t, Tensor) for t in scores.values()):
        raise InputError(f"scores must be a mapping of names to tensors, with at least one; got {type(scores)}.")
    for name, tensor in scores.items():
        if not tensor.is_floating_point():
            raise InputError(f"the scores of '{name}' are {tensor.dtype}; floating-point numbers are needed.")
    if scope not in SCOPES:
        raise InputError(f"scope={scope!r} is not known; use 'global' or 'layer'.")
    if isinstance(floor, bool) or int(floor) != floor or floor < 0:
        raise InputError(f"floor={floor!r} is no number of weights a layer; use an integer >= 0, such as 1.")
    if scope == "global" and layers != "uniform":
        raise InputError(f"layers={layers!r} sets the sparsity of each layer: use it with scope='layer'.")


def _check_left(sparsity: float, total: int, least: Mapping[str, int], left: int, floor: int) -> None:
    count, needed = total - round(sparsity * total), sum(least.values())
    if count == 0:
        raise InputError(
            f"sparsity={sparsity} leaves none of {total:,} weights; keep at least one: "
            f"sparsity <= {max(1 - 1 / max(total, 1), 0):.9g}."
        )
    if count > left:
        raise InputError(
            f"sparsity={sparsity} keeps {count:,} of {total:,} weights, but {total - left:,} are removed already; "
            f"the sparsity is at least {1 - left / total:.9g} then."
        )
    if count < needed:
        raise InputError(
            f"sparsity={sparsity} leaves {count:,} of {total:,} weights; floor={floor} in {len(least)} layers "
            f"needs {needed:,}: lower one of the two."
        )


def largest(scores: Mapping[str, Tensor], count: int, removed: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Masks of the ``count`` largest of all scores; among equals those that come first, by name and then row by row.

    >>> largest({"a": torch.tensor([[1.0, 3.0]]), "b": torch.tensor([3.0])}, 1)        # shapes (1, 2) and (1,)
    {'a': tensor([[False,  True]]), 'b': tensor([False])}

    Zeros are equal whatever their sign, and infinities are scores like any other. Scores of mixed precision are
    compared exactly.
    """
    dtype = torch.float32 if all(tensor.dtype in _NARROW for tensor in scores.values()) else torch.float64
    flat = torch.empty(sum(tensor.numel() for tensor in scores.values()), dtype=dtype)
    sizes = [tensor.numel() for tensor in scores.values()]
    for (name, tensor), part in zip(scores.items(), flat.split(sizes), strict=True):
        part.copy_(tensor.detach().flatten())
        if bad := int(part.isnan().count_nonzero()):
            raise InputError(
                f"the scores of '{name}' hold {bad} NaN value{'s' if bad > 1 else ''} out of {tensor.numel()}; "
                "they have no order. Score in float64, or with a smaller loss."
            )
        if removed and name in removed:
            part.masked_fill_(removed[name].flatten().cpu(), -torch.inf)
    masks = zip(scores.items(), best(flat, count).split(sizes), strict=True)
    return {name: mask.view(tensor.shape).to(tensor.device) for (name, tensor), mask in masks}


def best(scores: Tensor, count: int) -> Tensor:
    """Which scores are among the ``count`` largest; of equal ones those that come first.

    >>> best(torch.tensor([0.5, 0.1, 0.5, 0.5]), 2)
    tensor([ True, False,  True, False])
    """
    dropped = len(scores) - count
    if dropped == 0 or count == 0:
        return torch.full_like(scores, dropped == 0, dtype=torch.bool)
    threshold = float(np.partition(scores.cpu().numpy(), dropped)[dropped])  # quicker than torch's kthvalue
    stay = scores > threshold
    missing = count - int(stay.count_nonzero())
    stay[(scores == threshold).nonzero().squeeze(1)[:missing]] = True
    return stay
