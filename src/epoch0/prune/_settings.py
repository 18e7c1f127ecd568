"""Models and settings that scores cannot be computed with, refused before anything runs (Hayou et al. 2021, 2.2)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from epoch0.errors import InputError
from epoch0.meter import check_progress
from epoch0.tracing.guard import check_model

DTYPES = (torch.float32, torch.float64)

Progress = Callable[[float, str], None]
"""What is told of long work: the part that is done, from 0 to 1, and what comes next."""


def check_settings(model: Any, batch_norm: str, dtype: torch.dtype | None) -> None:
    """Refuse a model or settings that scores cannot be computed with.

    Raises:
        InputError: saying what would work.
    """
    if batch_norm not in ("train", "eval"):
        raise InputError(
            f"batch_norm={batch_norm!r}; it is 'train' (statistics of the batch) or 'eval' (running statistics)."
        )
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


def check_told(progress: object) -> None:
    """Refuse what is no function to tell of progress.

    Raises:
        InputError: repeating it.
    """
    check_progress(progress, "the part that is done, from 0 to 1, and a text")


def tell(progress: Progress | None, done: int, rounds: int) -> None:
    """So many rounds are done, and another begins."""
    if progress is not None:
        progress(done / rounds, f"round {done + 1} of {rounds}")


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that is not a finite number above 0.

    Raises:
        InputError: repeating it.
    """
    if isinstance(temperature, bool) or not 0 < temperature < float("inf"):
        raise InputError(f"temperature={temperature!r}; outputs are divided by it, so it must be finite and > 0.")
