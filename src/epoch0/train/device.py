"""Where a run takes place: its device, the precision that suits it, the processes that share it.

Under torchrun each process ("rank") takes its part of every batch of the one global order. Only rank 0 evaluates,
prints and writes, and broadcasts to the others; a rank that dies ends the others through torch's own errors.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import torch
from torch import Tensor, nn

from epoch0.arguments import check_device
from epoch0.errors import InputError

VARIABLE = "EPOCH0_DEVICE"  # environment variable that names the device of every trial, such as cpu or cuda:1

Precision = Literal["auto", "float32", "bfloat16"]


def chosen_device() -> torch.device:
    """The device that ``EPOCH0_DEVICE`` names, else the first CUDA device there is, else the CPU.

    >>> chosen_device()                                         # on a laptop
    device(type='cpu')
    """
    if not (name := os.environ.get(VARIABLE, "").strip()):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(check_device(name, f"{VARIABLE}={name!r}"))


def precision_for(precision: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """``"auto"`` is bfloat16 on CUDA, float32 elsewhere; the others mean themselves."""
    return "bfloat16" if precision == "bfloat16" or (precision == "auto" and device.type == "cuda") else "float32"


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    low = precision_for(precision, device) == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16) if low else contextlib.nullcontext()


@dataclass(frozen=True)
class Group:
    """The processes of one run, seen from one of them."""

    rank: int = 0  #: number of this process
    size: int = 1  #: how many there are
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  #: where this one trains

    @property
    def first(self) -> bool:
        return self.rank == 0

    def part(self, chosen: Tensor) -> Tensor:
        """This rank's part of a batch, in order; the first ranks have one example more where it does not divide."""
        return chosen if self.size == 1 else chosen.tensor_split(self.size)[self.rank]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is called for a training step: the average of its gradients over the ranks is taken."""
        if self.size == 1:
            return model
        # newer versions have another word for it, older only this
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            index = [self.device] if self.device.type == "cuda" else None
            # buffers are sent once at either end: masks are buffers, and need not travel with every step
            return nn.parallel.DistributedDataParallel(model, device_ids=index, broadcast_buffers=False)

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0's model: the running statistics of its parts of the batches."""
        for buffer in model.buffers() if self.size > 1 else ():
            torch.distributed.broadcast(buffer, src=0)

    def added(self, values: Tensor) -> Tensor:
        """The sum over the ranks of a tensor of numbers; NaN if any is."""
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values

    def broadcast(self, value: Any) -> Any:
        """The value that rank 0 gives, on every rank."""
        if self.size == 1:
            return value
        held = [value]
        torch.distributed.broadcast_object_list(held, src=0)
        return held[0]


CURRENT: ContextVar[Group | None] = ContextVar("epoch0_group", default=None)
"""The group this process has joined, None outside :func:`joined`."""


@contextlib.contextmanager
def joined(device: str | torch.device | None = None) -> Iterator[Group]:
    """Train on all processes that torchrun started; without torchrun, on this one alone.

    >>> with joined() as group:                         # torchrun --nproc-per-node 8 program.py
    ...     done = train(net, data, epochs=90, batch_size=256, device=group.device)         # doctest: +SKIP

    ``batch_size`` is that of all processes together, so the result does not depend, up to rounding, on how many there
    are, but for batch norm and dropout (docs/training). Rank 0 evaluates and calls back while the others wait.

    Args:
        device: where this process trains; by default the CUDA device of its local rank (NCCL), else the CPU (gloo).
    """
    if CURRENT.get() is not None:
        raise InputError("this process has already joined its group; joined() cannot be nested.")
    place = chosen_device() if device is None else torch.device(check_device(device))
    if "WORLD_SIZE" not in os.environ:
        yield Group(device=place)
        return
    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise InputError(f"WORLD_SIZE is set but {', '.join(missing)} not; start the program with torchrun.")
    if place.type == "cuda":
        place = torch.device("cuda", place.index or int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    torch.distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=timedelta(minutes=30))
    group = Group(torch.distributed.get_rank(), torch.distributed.get_world_size(), place)
    token, whole = CURRENT.set(group), False
    try:
        yield group
        whole = True
    finally:
        CURRENT.reset(token)
        if whole or place.type != "cuda":  # with NCCL this waits for work that a lost rank will never finish
            torch.distributed.destroy_process_group()
