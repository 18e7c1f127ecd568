"""Products of stacks of matrices on given memory, made ready once and done at every step (for _chain_plan).

Most products of a stack are small, and there the library counts. On a CPU with AVX-512, the OpenBLAS that comes with
numpy multiplies small matrices without packing them first: on one thread 1.1 to 2 times as fast as torch's MKL, up to
3 times in float64, where the right factor lies in rows. Either library rounds as well as the other. With more threads
torch goes on, which spreads a stack over them.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

Work = Callable[[], object]

SMALL = 1_000_000
"""Multiplications up to which OpenBLAS takes a product for small."""


def product(left: Tensor, right: Tensor, out: Tensor) -> Work:
    """``out = left @ right``, of whatever these hold when it is done.

    >>> product(delta, weight, out=delta_before)()          # (networks, batch, outputs) @ (networks, outputs, inputs)

    Args:
        left: shape (networks, rows, inner), in rows or in columns.
        right: shape (networks, inner, columns), in rows.
        out: shape (networks, rows, columns), in rows; none of the factors.
    """
    if left.shape[2] == 1:
        return lambda: torch.mul(left, right, out=out)
    if not (_of_vectors(left) or _for_openblas(left, right)):
        return lambda: torch.bmm(left, right, out=out)
    a, b, c = left.numpy(), right.numpy(), out.numpy()
    return lambda: np.matmul(a, b, out=c)


def masked_product(left: Tensor, right: Tensor, mask: Tensor | None, out: Tensor, room: Tensor | None) -> Work:
    """The same times a mask of numbers, of the shape of ``out``.

    Args:
        left: see :func:`product`.
        right: see :func:`product`.
        mask: None for no mask.
        out: see :func:`product`; likely in main memory, so it is better written once.
        room: flat, at least as large as ``out`` if the product is small; what it holds is lost. None if ``out`` itself
            is likely in the cache.
    """
    if mask is None:
        return product(left, right, out)
    if room is None or not _for_openblas(left, right):
        multiply = product(left, right, out)

        def masked() -> None:
            multiply()
            out.mul_(mask)

        return masked
    near = room[: out.numel()].view(out.shape)
    multiply = product(left, right, near)

    def masked_near() -> None:
        multiply()
        torch.mul(near, mask, out=out)

    return masked_near


def affine(signal: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, room: Tensor) -> tuple[Work, Tensor]:
    """``signal @ weight^T + bias``, of whatever these hold when it is done, and where it is then found.

    >>> work, found = affine(signal, weight, bias, out, room)   # found is out, or part of room

    Args:
        signal: shape (networks, batch, inputs).
        weight: shape (networks, outputs, inputs), in rows.
        bias: shape (networks, 1, outputs).
        out: shape (networks, batch, outputs).
        room: flat, at least as large as ``out``, likely in the cache; what it holds is lost.
    """
    right = weight.transpose(1, 2)
    if _of_vectors(signal):
        return _added(product(signal, right, out), bias, out), out
    if signal.device.type != "cpu" or signal.shape[1] == 1:
        return _batched(signal, right, bias, out), out
    if weight.dtype == torch.float32 and min(right.shape[1:]) > 1 and _for_openblas(signal, right):
        near = room[: out.numel()].view(out.shape)
        return _added(_turned(signal, weight, near), bias, near), near
    return _read_first(weight, _batched(signal, right, bias, out)), out


def affine_of_inputs(weight: Tensor, bias: Tensor | None, room: Tensor) -> tuple[Callable[[Tensor], object], Tensor]:
    """The same for a signal that all networks share: one large product, done when the signal is given.

    >>> work, found = affine_of_inputs(weight, bias, room)      # (networks, outputs, inputs), (networks, 1, outputs)
    >>> work(inputs)                                            # (batch, inputs); found is (networks, batch, outputs)

    Args:
        weight: of networks that follow one another in memory.
        bias: likewise.
        room: as large as the result.
    """
    networks, outputs, inputs = weight.shape
    every = weight.view(networks * outputs, inputs).T
    near = room.view(-1, networks * outputs)  # examples in front, then all units of all networks
    row = None if bias is None else bias.view(-1)

    def multiply(signal: Tensor) -> Tensor:
        if row is None:
            return torch.mm(signal, every, out=near)
        return torch.addmm(row, signal, every, out=near)

    return multiply, near.view(-1, networks, outputs).transpose(0, 1)


def product_with_inputs(left: Tensor, mask: Tensor | None, out: Tensor) -> Callable[[Tensor], object]:
    """``out = left @ inputs``, times a mask of numbers, for inputs that all networks share; done when they are given.

    Args:
        left: shape (networks, rows, batch).
        mask: of the shape of ``out``; None for no mask.
        out: shape (networks, rows, inputs).
    """

    def multiply(inputs: Tensor) -> None:
        torch.bmm(left, inputs.expand(len(left), *inputs.shape), out=out)
        if mask is not None:
            out.mul_(mask)

    return multiply


def _batched(signal: Tensor, right: Tensor, bias: Tensor | None, out: Tensor) -> Work:
    if bias is None:
        return lambda: torch.bmm(signal, right, out=out)
    return lambda: torch.baddbmm(bias, signal, right, out=out)


def _turned(signal: Tensor, weight: Tensor, out: Tensor) -> Work:
    """By OpenBLAS, whose right factor has to lie in rows: the weights are transposed on the way."""
    networks, outputs, inputs = weight.shape
    size = outputs * inputs
    # to shuffle the channels of a single pixel is to transpose; of all that torch has it is the quickest by far
    pixels = weight.as_strided((networks, size, 1, 1), (size, 1, size, size))
    rows = (networks, inputs, outputs), (size, outputs, 1)
    a, c = signal.numpy(), out.numpy()

    def multiply() -> None:
        right = torch.native_channel_shuffle(pixels, outputs).as_strided(*rows)
        np.matmul(a, right.numpy(), out=c)

    return _read_first(weight, multiply)


def _read_first(weight: Tensor, work: Work) -> Work:
    """Transposed reading makes a CPU wait for main memory at every step, so the weights are read in rows before."""

    def near() -> None:
        weight.sum()
        work()

    return near


def _added(work: Work, bias: Tensor | None, out: Tensor) -> Work:
    if bias is None:
        return work

    def added() -> None:
        work()
        out.add_(bias)

    return added


def _of_vectors(left: Tensor) -> bool:
    """Is each product one of a row and a matrix? Torch takes up to twice as long for a stack of those as numpy."""
    return left.shape[1] == 1 and left.device.type == "cpu" and torch.get_num_threads() == 1


def _for_openblas(left: Tensor, right: Tensor) -> bool:
    rows, inner, columns = left.shape[1], left.shape[2], right.shape[2]
    if left.device.type != "cpu" or torch.get_num_threads() != 1 or not _has_small_kernels():
        return False
    return min(rows, inner) > 1 and rows * inner * columns <= SMALL


@cache
def _has_small_kernels() -> bool:
    built = np.show_config(mode="dicts") or {}
    library = str(built.get("Build Dependencies", {}).get("blas", {}).get("name", ""))
    return "openblas" in library and torch.backends.cpu.get_cpu_capability() == "AVX512"
