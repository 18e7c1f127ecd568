"""Score, remove a few, score again: what iterative methods need to keep layers alive (Hayou et al. 2021, section 5)."""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Annotated

from torch import nn

from epoch0.arguments import Size, Sparsity, Whole, checked
from epoch0.errors import InputError
from epoch0.initialization.files import Tensors
from epoch0.progress import Listener
from epoch0.prune.masks.apply import apply
from epoch0.prune.masks.masks import LAYERS, SCOPES, Masks, keep
from epoch0.prune.scores.scores import Scores, tell
from epoch0.prune.scores.synaptic_flow import synflow, synflow_rounds
from epoch0.tracing.guard import bare


@checked
def iterate(
    model: nn.Module,
    score: Callable[[nn.Module], Tensors],
    sparsity: Sparsity,
    *,
    steps: Size = 100,
    scope: Annotated[str, SCOPES] = "global",
    floor: Whole = 0,
    layers: Annotated[str, LAYERS] = "uniform",
    progress: Listener | None = None,
) -> Masks:
    """Prune in rounds: score what is left, remove a little, until exactly ``round(sparsity * M)`` are removed.

    >>> masks = iterate(model, lambda m: snip(m, batches), sparsity=0.98, steps=20)
    >>> masks = iterate(model, functools.partial(synflow, x=(64,)), sparsity=0.99)            # 100 rounds
    >>> masks.kept, masks.total
    (34, 3392)

    Each round the score gets a copy of the model pruned by the masks so far; what is removed stays removed, whatever it
    scores. (``force`` lets weights come back and has rounds of its own.) After round k of n the fraction
    ``(1 - sparsity)^(k / n)`` is kept; on a model that is pruned already it starts from what that has left.

    Args:
        model: pruned or not; it stays as it is.
        score: from a model to scores by name, larger is more worth keeping; the same names each time.
        sparsity: fraction of all weights removed in the end, in [0, 1).
        steps: rounds, at least 1; one round is :func:`~epoch0.prune.masks.masks.keep`.
        scope, floor, layers: as in ``keep``.
        progress: called before each round with the part of them that is done, from 0 to 1, and its number in words.

    Source: Tanaka et al. 2020, Algorithm 1 (SynFlow); de Jorge et al. 2021, section 4 (the schedule).
    """
    plain_rounds = (scope, floor, layers) == ("global", 0, "uniform")
    if plain_rounds and isinstance(score, functools.partial) and score.func is synflow:
        scores = score(model)
        keep(scores, sparsity)  # refuses what no round could reach
        kept = [scores.weights - round(share * scores.weights) for share in _plan(scores, sparsity, steps)]
        return Masks(synflow_rounds(model, kept=kept, progress=progress, **score.keywords))
    try:
        twin = copy.deepcopy(bare(model))
    except (RuntimeError, TypeError, ValueError) as problem:
        text = f"the model {type(bare(model)).__name__} cannot be copied: {problem}. If torch.nn.utils.prune masks it"
        raise InputError(f"{text}, bake(model) or apply(model, masks) in its place makes it one that can.") from problem
    tell(progress, 0, steps)
    scores = _scored(score, twin, {})
    masks = Masks._own({})
    for number, share in enumerate(_plan(scores, sparsity, steps)):
        if number:
            tell(progress, number, steps)
            scores = _scored(score, apply(twin, masks), {name: ~mask for name, mask in masks.items()})
        masks = keep(scores, share, scope=scope, floor=floor, layers=layers)
    return masks


def scheduled(sparsity: float, steps: int, start: float = 0.0) -> list[float]:
    """Sparsities after each round."""
    return [*(1 - (1 - start) * ((1 - sparsity) / (1 - start)) ** (k / steps) for k in range(1, steps)), sparsity]


def _plan(scores: Scores, sparsity: float, steps: int) -> list[float]:
    removed = sum(int(there.count_nonzero()) for there in scores.removed.values())
    return scheduled(sparsity, steps, min(removed / scores.weights, sparsity))


def _scored(score: Callable[[nn.Module], Tensors], model: nn.Module, removed: Tensors) -> Scores:
    if not isinstance(found := score(model), Mapping):
        raise InputError(f"the score must return tensors by name, not a {type(found).__name__}; see snip and its like.")
    if removed and found.keys() != removed.keys():
        odd = ", ".join(f"'{name}'" for name in sorted(found.keys() ^ removed.keys())[:3])
        raise InputError(f"the score names other weights than in the round before: {odd}.")
    return Scores(dict(found), getattr(found, "method", ""), {**getattr(found, "removed", {}), **removed})
