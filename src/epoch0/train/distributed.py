"""One run on several processes under torchrun: the same global order, gradients of the joint batch, one set of files.

Each process ("rank") takes its part of every batch of the one global order. What has to be known by all is told to all:
the settings before the first step, the rows of the history, an infinite loss, Ctrl-C. Only rank 0 evaluates, prints and
writes. A rank that dies ends the others with :class:`ProcessLost`.
"""

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.train.device import check_device, chosen_device

_LOST = ("connection closed", "connection reset", "broken pipe", "timed out", "timeout", "nccl", "gloo", "socket")
"""What torch's errors about a rank that is gone have in their text, in small letters."""


class ProcessLost(RuntimeError):
    """Another process of a distributed run ended or stopped answering; this one cannot go on."""


@dataclass(frozen=True)
class Group:
    """The processes of one run, seen from one of them.

    >>> Group().first, Group(rank=1, size=2).part(torch.arange(5))
    (True, tensor([3, 4]))

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        device: where this process trains.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Is this the process that evaluates, prints and writes?"""
        return self.rank == 0

    def part(self, chosen: Tensor) -> Tensor:
        """This rank's part of a batch, in order; the first ranks have one example more where it does not divide.

        Args:
            chosen: the joint batch, first dimension the examples.
        """
        return chosen if self.size == 1 else chosen.tensor_split(self.size)[self.rank]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is called for a training step: the average of its gradients over the ranks is taken.

        Raises:
            InputError: for synchronized batch norm on a CPU, where torch has none.
        """
        if self.size == 1:
            return model
        for name, module in model.named_modules():
            if isinstance(module, nn.SyncBatchNorm) and self.device.type == "cpu":
                raise InputError(
                    f"layer {name!r} is a SyncBatchNorm, which torch computes on CUDA devices only, and these "
                    f"{self.size} processes train on CPUs; take a plain batch norm, which normalizes the part of the "
                    "batch that its process has, or one process."
                )
        from torch.nn.parallel import DistributedDataParallel

        self.level(model)
        index = [self.device] if self.device.type == "cuda" else None
        # buffers are levelled once at either end: masks are buffers, and need not travel with every step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions have another word for it, older only this
            return DistributedDataParallel(model, device_ids=index, broadcast_buffers=False)

    def level(self, model: nn.Module, *, buffers_only: bool = False) -> None:
        """Give every rank the numbers of rank 0's model."""
        if self.size == 1:
            return
        tensors = list(model.buffers()) if buffers_only else [*model.parameters(), *model.buffers()]
        with torch.no_grad():
            for tensor in tensors:
                sent = tensor.detach().to(torch.uint8) if tensor.dtype == torch.bool else tensor.detach().contiguous()
                self._run("broadcast", sent, src=0)
                if sent.data_ptr() != tensor.data_ptr():
                    tensor.copy_(sent)

    def added(self, values: Tensor) -> Tensor:
        """The sum over the ranks of a tensor of numbers; NaN if any is."""
        if self.size > 1:
            self._run("all_reduce", values)
        return values

    def shared(self, value: Any) -> Any:
        """What rank 0 passes, on every rank; anything that JSON can hold."""
        if self.size == 1:
            return value
        content = json.dumps(value).encode() if self.first else b""
        length = torch.tensor([len(content)], device=self.device)
        self._run("broadcast", length, src=0)
        data = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if self.first:
            data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self._run("broadcast", data, src=0)
        return json.loads(bytes(data.tolist()))

    def told(self, text: str, limit: int = 2000) -> list[str]:
        """What each rank has to say, in order of rank; cut after so many bytes."""
        if self.size == 1:
            return [text]
        own = torch.zeros(limit, dtype=torch.uint8, device=self.device)
        content = bytearray(text.encode()[:limit])
        if content:
            own[: len(content)] = torch.frombuffer(content, dtype=torch.uint8)
        every = [torch.zeros_like(own) for _ in range(self.size)]
        self._run("all_gather", every, own)
        return [bytes(one.tolist()).rstrip(b"\0").decode(errors="ignore") for one in every]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Let bad input that one rank finds be an error of all, so that no rank waits for one that has left.

        Raises:
            InputError: on every rank, what the first of them found.
        """
        problem: InputError | None = None
        try:
            yield
        except InputError as found:
            problem = found
        if problem is not None and self.size == 1:
            raise problem
        for rank, text in enumerate(self.told(str(problem) if problem else "") if self.size > 1 else []):
            if text:
                raise problem if problem else InputError(f"process {rank} of {self.size}: {text}")

    def check_same(self, run: Any) -> None:
        """Refuse ranks that were started with different arguments, data or checkpoints.

        Raises:
            InputError: on every rank, with both.
        """
        said = self.told(json.dumps(run, sort_keys=True))
        for rank, text in enumerate(said):
            if text != said[0]:
                raise InputError(
                    f"process {rank} of {self.size} was started with other arguments, data or another checkpoint than "
                    f"process 0: {text} against {said[0]}; start all of them the same, with a checkpoint all can see."
                )

    def _run(self, what: str, *values: Any, **options: Any) -> None:
        with lost_process():
            getattr(torch.distributed, what)(*values, **options)


_current: ContextVar[Group | None] = ContextVar("epoch0_group", default=None)


def current() -> Group | None:
    """The group this process has joined, None outside :func:`joined`."""
    return _current.get()


@contextlib.contextmanager
def joined(device: str | torch.device | None = None, timeout_minutes: float = 30.0) -> Iterator[Group]:
    """Train on all processes that torchrun started; without torchrun, on this one alone.

    >>> with joined() as group:                         # torchrun --nproc-per-node 8 program.py
    ...     done = train(net, data, epochs=90, batch_size=256, device=group.device)         # doctest: +SKIP

    ``batch_size`` is that of all processes together, so the result does not depend, up to rounding, on how many there
    are. Two things do depend on it. Batch norm normalizes each rank's part of the batch by the mean and variance of
    that part, as under torch's DistributedDataParallel, and the running statistics are those of rank 0's parts: 8
    processes with batches of 256 normalize by 32 examples. ``nn.SyncBatchNorm``, by which torch normalizes the joint
    batch, needs CUDA devices; on CPUs a model that has one is refused. Dropout draws other units on each rank. Every
    callback and evaluation happens on rank 0 while the others wait, at most ``timeout_minutes``.

    Args:
        device: where this process trains; by default the CUDA device of its local rank (with NCCL), else the CPU (with
            gloo).
        timeout_minutes: how long a process waits for the others before it gives up.

    Yields:
        The group; ``group.device`` is where to train, ``group.first`` is true for the one that may print.

    Raises:
        InputError: if the environment names no complete group, or the process is in one already.
        ProcessLost: if the others do not come, or one of them is lost later.
    """
    if current() is not None:
        raise InputError("this process has already joined its group; joined() cannot be nested.")
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if name not in os.environ]
    if "WORLD_SIZE" not in os.environ:
        yield Group(device=chosen_device() if device is None else check_device(device))
        return
    if missing:
        raise InputError(f"WORLD_SIZE is set but {', '.join(missing)} not; start the program with torchrun.")
    if device is None:
        device = chosen_device()
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    place = check_device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with lost_process():
        torch.distributed.init_process_group(
            "nccl" if place.type == "cuda" else "gloo", rank=rank, world_size=size,
            timeout=timedelta(minutes=timeout_minutes),
        )  # fmt: skip
    group = Group(rank, size, place)
    token = _current.set(group)
    whole = False
    try:
        yield group
        whole = True
    finally:
        _current.reset(token)
        if whole or place.type != "cuda":  # with NCCL this waits for work that a lost rank will never finish
            torch.distributed.destroy_process_group()


@contextlib.contextmanager
def lost_process() -> Iterator[None]:
    """Say in plain words that another process is gone, where torch says it in those of its transport.

    Raises:
        ProcessLost: for an error of the transport; other errors pass.
    """
    try:
        yield
    except RuntimeError as problem:
        text = str(problem)
        if isinstance(problem, ProcessLost) or not any(sign in text.lower() for sign in _LOST):
            raise
        raise ProcessLost(
            "another process of this run ended or stopped answering, so this one ends too; start the run again, it "
            f"goes on from its last checkpoint ({text.strip().splitlines()[0][:300]})."
        ) from problem
