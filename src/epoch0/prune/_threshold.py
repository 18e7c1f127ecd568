"""The n largest of many tensors without sorting or copying them: the global threshold (Hayou et al. 2021, 2.2).

A float seen as an integer, with the order of the negative half turned round, sorts as the float does. So the threshold
is found sixteen bits at a time: one histogram of the leading bits says in which bin it lies, the next one is of the
members of that bin only. A few hundred kilobytes are looked at at a time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.errors import InputError

CHUNK = 1 << 18
DIGIT = 16
_NARROW = (torch.float16, torch.bfloat16, torch.float32)


def largest(
    scores: Mapping[str, Tensor], count: int, removed: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Masks of the ``count`` largest of all scores; among equals those that come first, by name and then row by row.

    >>> largest({"a": torch.tensor([[1.0, 3.0]]), "b": torch.tensor([3.0])}, 1)        # shapes (1, 2) and (1,)
    {'a': tensor([[False,  True]]), 'b': tensor([False])}

    Zeros are equal whatever their sign, and infinities are scores like any other. Scores of mixed precision are
    compared exactly.

    Args:
        scores: floating tensors of any shape and device; one that is not contiguous is copied while it is looked at.
        count: how many to keep, 0 to all that are not removed.
        removed: bool tensors by name, True where a score does not count; names may be missing. All scores are finite
            then.

    Returns:
        Bool tensors of the same shapes, each on the device of its scores.

    Raises:
        InputError: naming the tensor that holds NaN.
    """
    wide = any(tensor.dtype not in _NARROW for tensor in scores.values())
    dtype = torch.float64 if wide else torch.float32
    removed = removed or {}
    threshold, ties = _threshold(scores, dtype, count, removed)
    masks = {}
    for name, tensor in scores.items():
        mask = torch.empty(tensor.numel(), dtype=torch.bool, device=tensor.device)
        for part, values in zip(mask.split(CHUNK), _chunks(tensor, dtype, removed.get(name)), strict=True):
            torch.gt(values, threshold, out=part)
            if ties and bool((equal := values == threshold).any()):
                first = equal.nonzero()[:ties, 0]
                part[first] = True
                ties -= len(first)
        masks[name] = mask.reshape(tensor.shape)
    return masks


def _threshold(
    scores: Mapping[str, Tensor], dtype: torch.dtype, count: int, removed: Mapping[str, Tensor]
) -> tuple[float, int]:
    """The count-th largest score, and how many of those equal to it belong to the count largest."""
    bits = 64 if dtype == torch.float64 else 32
    prefix, wanted = 0, count
    for shift in range(bits - DIGIT, -1, -DIGIT):
        histogram = np.zeros(1 << DIGIT, dtype=np.int64)
        for name, tensor in scores.items():
            for keys in _keys(name, tensor, dtype, removed.get(name)):
                digits = keys >> shift
                if shift == bits - DIGIT:
                    digits = digits + (1 << (DIGIT - 1))  # the sign bit leads: from -32768 .. to 0 ..
                else:
                    digits = digits[(digits >> DIGIT) == prefix] & ((1 << DIGIT) - 1)
                histogram += np.bincount(digits, minlength=1 << DIGIT)
        if wanted == 0:  # nothing is wanted: the scores were only looked at for NaN
            return float("inf"), 0
        from_top = np.cumsum(histogram[::-1])
        place = int(np.searchsorted(from_top, wanted))
        wanted -= int(from_top[place - 1]) if place else 0
        digit = (1 << DIGIT) - 1 - place
        prefix = digit - (1 << (DIGIT - 1)) if shift == bits - DIGIT else (prefix << DIGIT) | digit
    integer = np.int64 if bits == 64 else np.int32
    key = np.array([prefix], dtype=integer)
    return float(_ordered(key).view(np.float64 if bits == 64 else np.float32)[0]), wanted


def _chunks(tensor: Tensor, dtype: torch.dtype, removed: Tensor | None) -> Iterator[Tensor]:
    """The scores a chunk at a time, minus infinity where they do not count."""
    parts = tensor.detach().flatten().split(CHUNK)
    if removed is None:
        yield from (part.to(dtype) for part in parts)
    else:
        for part, gone in zip(parts, removed.flatten().split(CHUNK), strict=True):
            yield part.to(dtype).masked_fill(gone.to(part.device), -torch.inf)


def _keys(name: str, tensor: Tensor, dtype: torch.dtype, removed: Tensor | None) -> Iterator[NDArray[Any]]:
    """Integers in the order of the scores, a chunk at a time."""
    integer = np.int64 if dtype == torch.float64 else np.int32
    for part in _chunks(tensor, dtype, removed):
        values = part.cpu().numpy()
        if np.isnan(values).any():
            bad = int(tensor.isnan().sum())
            raise InputError(
                f"the scores of '{name}' hold {bad} NaN value{'s' if bad > 1 else ''} out of {tensor.numel()}; "
                "they have no order. Score in float64, or with a smaller loss."
            )
        yield _ordered((values + 0).view(integer))  # -0.0 + 0 is +0.0


def _ordered(keys: NDArray[Any]) -> NDArray[Any]:
    """Bits of floats as integers in their order, and back: its own inverse."""
    highest = np.iinfo(keys.dtype).max
    return np.asarray(keys ^ ((keys >> (8 * keys.dtype.itemsize - 1)) & highest))
