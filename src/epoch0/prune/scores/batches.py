"""The batches and settings that scores are computed with, checked before anything runs (Hayou et al. 2021, 2.2)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.tracing.call import LABELS, check_tensors, examples_in, mapped, parts
from epoch0.tracing.guard import check_model, streams_kept
from epoch0.tracing.loss import Loss, check_targets


class Batch(NamedTuple):
    """Inputs, as the model is called with them, their targets (None: labels are among the inputs), and how many."""

    inputs: Any
    targets: Any
    examples: int


@streams_kept()
def taken(batches: Iterable[Any], loss: Loss | None) -> list[Batch]:
    """The batches as pairs (inputs, targets); one bare pair of tensors is a list of one batch.

    What a loader draws from torch's global stream on the way is given back.

    >>> len(taken([(torch.zeros(8, 3), torch.zeros(8, dtype=torch.long))] * 5, None))
    5
    """
    pair = isinstance(batches, tuple) and len(batches) == 2 and all(isinstance(part, Tensor) for part in batches)
    if pair or _labelled(batches):
        batches = [batches]
    loops = hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    if isinstance(batches, Tensor | dict | str) or not loops:
        raise InputError(
            f"batches must be pairs (inputs, targets), not a {type(batches).__name__}; give [(inputs, targets)]."
        )
    found = []
    for place, batch in enumerate(batches):
        both = (batch, None) if _labelled(batch) else batch
        if not isinstance(both, tuple | list) or len(both) != 2 or not (tensors := parts(both[0])):
            kinds = ", ".join(type(part).__name__ for part in both) if isinstance(both, tuple | list) else ""
            what = f"{type(both).__name__} of ({kinds})" if kinds else type(both).__name__
            raise InputError(
                f"batch {place} is a {what}; each must be a pair (inputs, targets), inputs what the model is called "
                "with, or a mapping with labels."
            )
        x, targets = both
        if targets is None and not _labelled(x):
            raise InputError(f"batch {place} has no targets; the loss needs them.")
        try:
            check_tensors(x, tensors)
            count = examples_in(x, targets, tensors)
            check_targets(len(x) if isinstance(x, Tensor) else None, targets, loss)
        except InputError as problem:
            raise InputError(f"batch {place}: {problem}") from problem
        if place == MOST:
            raise InputError(f"there are more than {MOST:,} batches, and all are kept meanwhile; give fewer.")
        found.append(Batch(mapped(x, _usable), mapped(targets, _usable), count))
    if not found:
        raise InputError("there are no batches: the iterable is empty (or was used up by an earlier loop).")
    return found


def examples(batches: Sequence[Batch]) -> int:
    """How many examples the batches have together."""
    return sum(batch.examples for batch in batches)


def _labelled(batch: Any) -> bool:
    return isinstance(batch, Mapping) and any(batch.get(key) is not None for key in LABELS)


def _usable(tensor: Tensor) -> Tensor:
    if not tensor.is_inference():
        return tensor.detach()
    with torch.inference_mode(False):
        return tensor.clone()  # which gradients can be taken with


def told(batches: Sequence[Batch], batch_norm: str) -> str:
    """Number of batches and examples and the setting, in a few words."""
    count = f"{len(batches)} batch{'es' if len(batches) > 1 else ''}, {examples(batches)} examples"
    return f"{count}, batch norm {batch_norm}"


MOST = 10**4  # batches: an iterable may have no end
DTYPES = (torch.float32, torch.float64)

Progress = Callable[[float, str], None]
"""What is told of long work: the part that is done, from 0 to 1, and what comes next."""


def check_settings(model: Any, dtype: torch.dtype | None) -> None:
    """Refuse a model or settings that scores cannot be computed with."""
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"dtype={dtype}: scores are computed in torch.float32 or torch.float64.")
    if isinstance(model, nn.Module):
        for name, parameter in model.named_parameters():
            if parameter.dtype in (torch.float16, torch.bfloat16):
                raise InputError(
                    f"'{name}' is {parameter.dtype}, in which gradients underflow and many weights are equal; score "
                    "copy.deepcopy(model).float(): masks from its scores fit this model too."
                )
    check_model(model)


def tell(progress: Progress | None, done: int, rounds: int) -> None:
    """So many rounds are done, and another begins."""
    if progress is not None:
        progress(done / rounds, f"round {done + 1} of {rounds}")
