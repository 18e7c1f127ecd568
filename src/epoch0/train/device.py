"""Where a run takes place: the device that was chosen, and the precision that suits it."""

import contextlib
import os
from typing import Literal

import torch

from epoch0.errors import InputError

VARIABLE = "EPOCH0_DEVICE"
"""Environment variable that names the device of every trial, such as ``cpu`` or ``cuda:1``."""

Precision = Literal["auto", "float32", "bfloat16"]


def chosen_device() -> torch.device:
    """The device that ``EPOCH0_DEVICE`` names, else the first CUDA device there is, else the CPU.

    >>> chosen_device()                                         # on a laptop
    device(type='cpu')
    """
    name = os.environ.get(VARIABLE, "").strip()
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return check_device(name, f"{VARIABLE}={name!r}")


def check_device(device: str | torch.device, said: str | None = None) -> torch.device:
    """A device that can be used.

    >>> check_device("cpu")
    device(type='cpu')

    Raises:
        InputError: if there is no such device here, as the user ``said`` it.
    """
    said = said or f"device={str(device)!r}"
    try:
        found = torch.device(device)
    except RuntimeError as problem:
        raise InputError(f"{said} names no device; use 'cpu', 'cuda' or 'cuda:0'.") from problem
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (found.index or 0) >= count:
            there = f"{count or 'no'} CUDA device{'s' if count != 1 else ''} can be used here"
            raise InputError(f"{said}: {there} (torch {torch.__version__}); use 'cpu'.")
    return found


def precision_for(precision: str, device: torch.device) -> Literal["float32", "bfloat16"]:
    """What ``"auto"`` means on a device: bfloat16 on CUDA, float32 elsewhere; other names pass through.

    >>> precision_for("auto", torch.device("cpu"))
    'float32'
    """
    if precision not in ("auto", "float32", "bfloat16"):
        raise InputError(f"precision is {precision!r}; use 'float32', 'bfloat16' or 'auto'.")
    low = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return "bfloat16" if low else "float32"


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """Products in that precision for a while."""
    low = precision_for(precision, device) == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16) if low else contextlib.nullcontext()
