"""Room for large tensors: memory is used again, as getting it from the system takes as long as filling it does."""

import math
from collections import deque
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

_SMALL = 1 << 18  # bytes: smaller pieces the C library keeps itself
_STEPS = 8  # capacities between a power of two and the next
_LARGER = 4  # capacities above the wanted one that do as well
_SPARE = 2  # half as many more
_WHOLE = "memory_and_more"  # attribute of a tensor that may be made longer in place


class Reuse:
    """While one of these is open, memory of tensors that are no more is kept for others.

    >>> with Reuse(1 << 24):
    ...     first = room((1 << 20,), like)
    ...     del first
    ...     second = room((1 << 20,), like)         # where the first was

    Args:
        most: bytes that may lie idle.
    """

    users: ClassVar[int] = 0
    most: ClassVar[int] = 0
    free: ClassVar[dict[int, deque[np.ndarray]]] = {}

    def __init__(self, most: int) -> None:
        self._mine = most

    def __enter__(self) -> "Reuse":
        Reuse.users += 1
        Reuse.most += self._mine
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Reuse.users -= 1
        Reuse.most -= self._mine
        if not Reuse.users:
            Reuse.free = {}


class _Lent:
    """Owner of some memory, as numpy asks for it; gives it back when nothing refers to it any more."""

    def __init__(self, memory: np.ndarray, shape: tuple[int, ...]) -> None:
        self.memory = memory
        self.__array_interface__: dict[str, Any] = {
            "shape": shape, "typestr": np.dtype(np.float64).str, "data": (memory.ctypes.data, False), "version": 3
        }  # fmt: skip

    def __del__(self) -> None:
        idle = sum(capacity * len(free) for capacity, free in list(Reuse.free.items()))
        if idle + len(self.memory) <= Reuse.most:
            Reuse.free.setdefault(len(self.memory), deque()).append(self.memory)


def room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor with nothing in it yet.

    On the CPU numpy asks for huge pages, which makes filling them several times cheaper.

    Args:
        shape: its shape.
        like: a tensor of the same type and device.
    """
    if like.device.type != "cpu" or like.dtype != torch.float64:
        return like.new_empty(shape)
    size = 8 * math.prod(shape)
    if size < _SMALL or not Reuse.most:
        return torch.from_numpy(np.empty(shape))
    return torch.from_numpy(np.asarray(_Lent(_memory(size), shape)))


def roomy(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """As :func:`room`, with memory for some more rows behind it, which :func:`grown` takes."""
    rows, row = shape[0], 8 * math.prod(shape[1:])
    wanted = rows + rows // _SPARE
    if like.device.type == "cpu" and like.dtype == torch.float64 and rows * row >= _SMALL:
        idle = [size for size, free in list(Reuse.free.items()) if free and rows * row <= size < 2 * wanted * row]
        if idle:  # what lies idle is taken with what is left behind the rows, little or much
            above = [size for size in idle if size >= wanted * row]
            wanted = (min(above) if above else max(idle)) // row
    return _begun(room((wanted, *shape[1:]), like), rows)


def grown(tensor: Tensor, more: int) -> Tensor:
    """The same rows and some more at the end, with nothing in them yet: in place if there is memory behind the tensor.

    After that the tensor itself must not be made longer again.

    Args:
        tensor: the rows there are.
        more: how many more.
    """
    rows = len(tensor)
    whole = tensor.__dict__.pop(_WHOLE, None)
    if whole is not None and len(whole) >= rows + more:
        return _begun(whole, rows + more)
    found = roomy((rows + more, *tensor.shape[1:]), tensor)
    found[:rows] = tensor
    return found


def _begun(whole: Tensor, rows: int) -> Tensor:
    found = whole[:rows]
    found.__dict__[_WHOLE] = whole
    return found


def _memory(size: int) -> np.ndarray:
    step = (1 << (size.bit_length() - 1)) // _STEPS
    capacity = -(-size // step) * step
    for larger in range(_LARGER):
        try:  # another thread may take the last one
            return Reuse.free[capacity + larger * step].pop()
        except (KeyError, IndexError):
            pass
    return np.empty(capacity, dtype=np.uint8)
