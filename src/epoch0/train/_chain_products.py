"""Products of stacks of matrices on given memory, made ready once and done at every step (for _chain_runs).

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


def affine(signal: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, room: Tensor) -> Work:
    """``out = signal @ weight^T + bias``, of whatever these hold when it is done.

    Args:
        signal: shape (networks, batch, inputs).
        weight: shape (networks, outputs, inputs), in rows.
        bias: shape (networks, 1, outputs).
        out: shape (networks, batch, outputs).
        room: flat, at least as large as ``out``; what it holds is lost.
    """
    right = weight.transpose(1, 2)

    def multiply() -> Tensor:
        if bias is None:
            return torch.bmm(signal, right, out=out)
        return torch.baddbmm(bias, signal, right, out=out)

    if _of_vectors(signal):
        a, b, c = signal.numpy(), right.numpy(), out.numpy()

        def each() -> None:
            np.matmul(a, b, out=c)
            if bias is not None:
                out.add_(bias)

        return each
    if weight.device.type != "cpu" or signal.shape[1] == 1:
        return multiply
    if weight.dtype == torch.float32 and min(weight.shape[1:]) > 1 and _for_openblas(signal, right):
        return _turned(signal, weight, bias, out, room[: out.numel()].view(out.shape))

    def near() -> None:
        # MKL reads a transposed factor in an order that makes it wait for main memory; so it is read in rows before
        weight.sum()
        multiply()

    return near


def _turned(signal: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, room: Tensor) -> Work:
    """The same by OpenBLAS, whose right factor has to lie in rows: the weights are transposed on the way."""
    networks, outputs, inputs = weight.shape
    size = outputs * inputs
    # to shuffle the channels of a single pixel is to transpose; of all that torch has it is the quickest by far
    pixels = weight.as_strided((networks, size, 1, 1), (size, 1, size, size))
    rows = (networks, inputs, outputs), (size, outputs, 1)
    a, c = signal.numpy(), room.numpy()

    def multiply() -> None:
        weight.sum()  # from main memory in rows, as above
        right = torch.native_channel_shuffle(pixels, outputs).as_strided(*rows)
        np.matmul(a, right.numpy(), out=c)  # into the cache: ``out`` is likely in main memory
        if bias is None:
            out.copy_(room)
        else:
            torch.add(room, bias, out=out)

    return multiply


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
