"""The batches that scores are computed on: taken, counted and checked before anything runs (Hayou et al. 2021, 2.2)."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from epoch0.errors import InputError, check_finite
from epoch0.tracing.loss import Loss, check_targets

Batch = tuple[Tensor, Any]


def taken(batches: Iterable[Any], number_of_batches: int | None, loss: Loss | None) -> list[Batch]:
    """The first batches as pairs (inputs, targets); one bare pair of tensors is a list of one batch.

    >>> len(taken([(torch.zeros(8, 3), torch.zeros(8, dtype=torch.long))] * 5, 2, None))
    2

    Args:
        batches: pairs of inputs, shape (examples, ...), and targets; each has its examples in the first dimension.
        number_of_batches: how many are taken; None takes all, and holds them in memory together.
        loss: of the user, to say whether targets may be missing.

    Raises:
        InputError: if there is none, or one is no pair, empty, not finite, or has another number of targets.
    """
    if number_of_batches is not None and (
        isinstance(number_of_batches, bool) or not isinstance(number_of_batches, int) or number_of_batches < 1
    ):
        raise InputError(f"number_of_batches={number_of_batches!r}; give an integer >= 1, or None for all.")
    if isinstance(batches, tuple) and len(batches) == 2 and all(isinstance(part, Tensor) for part in batches):
        batches = [batches]
    if isinstance(batches, Tensor | dict | str) or not (
        hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    ):
        raise InputError(
            f"batches must be pairs (inputs, targets), not a {type(batches).__name__}; give [(inputs, targets)]."
        )
    found = []
    for place, batch in enumerate(islice(batches, number_of_batches)):
        if not isinstance(batch, tuple | list) or len(batch) != 2 or not isinstance(batch[0], Tensor):
            parts = ", ".join(type(part).__name__ for part in batch) if isinstance(batch, tuple | list) else ""
            what = f"{type(batch).__name__} of ({parts})" if parts else type(batch).__name__
            raise InputError(f"batch {place} is a {what}; each must be a pair (inputs, targets), inputs a tensor.")
        x, targets = batch
        if x.dim() == 0 or x.numel() == 0:
            raise InputError(f"batch {place} is empty: its inputs have shape {tuple(x.shape)}; leave it out.")
        if x.is_floating_point():
            check_finite(f"the inputs of batch {place}", x)
        if targets is None:
            raise InputError(f"batch {place} has no targets; the loss needs them.")
        check_targets(len(x), targets, loss)
        if isinstance(targets, Tensor) and targets.is_inference():
            with torch.inference_mode(False):
                targets = targets.clone()  # which gradients can be taken with
        found.append((x.detach(), targets))
    if not found:
        raise InputError("there are no batches: the iterable is empty (or was used up by an earlier loop).")
    return found


def examples(batches: Sequence[Batch]) -> int:
    """How many examples the batches have together."""
    return sum(len(x) for x, _ in batches)


def described(batches: Sequence[Batch], batch_norm: str) -> str:
    """Number of batches and examples and the settings, in a few words, with ``{dtype}`` to be filled in."""
    count = f"{len(batches)} batch{'es' if len(batches) > 1 else ''}, {examples(batches)} examples"
    return f"{count}, batch norm {batch_norm}, {{dtype}}"
