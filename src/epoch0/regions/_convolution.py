"""Convolutions in float64 on the CPU, a few points at a time: what torch unfolds at once leaves the cache."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.regions._room import room, roomy
from epoch0.regions._steps import NOTHING, Way
from epoch0.regions._windowed import windowed

_UNFOLDED = 5 << 18  # numbers of unfolded input at a time: they stay in the cache
_SHIFTED = 1 << 17  # numbers of shifted input at a time
_NARROW = 1 << 16  # weights that stay in the cache with all that one product needs


def convolution(module: nn.Module) -> Callable[..., Tensor]:
    """A convolution as a function of (points, weight, bias, more, way), the quickest there is for float64 on the CPU.

    What is ``more``, if given, is added to the result; ``way`` says what is done with every block on its way.
    """
    m: Any = module
    plain = few_at_a_time(m._conv_forward, math.prod(m.kernel_size))
    if not isinstance(m, nn.Conv2d) or m.groups != 1 or m.padding_mode != "zeros" or isinstance(m.padding, str):
        return plain
    stride, padding, dilation = m.stride, m.padding, m.dilation

    def convolved(
        x: Tensor, weight: Tensor, bias: Tensor | None, more: Tensor | None = None, way: Way = NOTHING
    ) -> Tensor:  # fmt: skip
        if x.device.type != "cpu" or x.dtype != torch.float64 or x.requires_grad:
            return plain(x, weight, bias, more, way)
        return quickest(x, weight, bias, stride, padding, dilation, more, way)

    return convolved


def quickest(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], more: Tensor | None = None, way: Way = NOTHING,
) -> Tensor:  # fmt: skip
    """The convolution, and something added to it, in the manner that suits its weights and the processor.

    Args:
        x, weight, bias, stride, padding, dilation: as for :func:`shifted`.
        more: what is added, of the shape of the result.
        way: what is done with every block on its way.
    """
    if weight.numel() <= _NARROW and torch.backends.cpu.get_cpu_capability() == "AVX512":
        return windowed(x, weight, bias, stride, padding, dilation, more, way)
    return shifted(x, weight, bias, stride, padding, dilation, more, way)


def few_at_a_time(function: Callable[..., Tensor], kernel: int) -> Callable[..., Tensor]:
    """The same convolution, done for a few points after another on the CPU: up to six times as quick.

    Args:
        function: (points, weight, bias) to the convolution.
        kernel: places of the kernel.
    """

    def convolved(
        x: Tensor, weight: Tensor, bias: Tensor | None, more: Tensor | None = None, way: Way = NOTHING
    ) -> Tensor:  # fmt: skip
        some = max(1, _UNFOLDED // max(1, kernel * x[0].numel()))
        if x.device.type != "cpu" or len(x) <= some:
            found = function(way.folded(x), weight, bias)
        else:
            first = function(way.folded(x[:some]), weight, bias)
            found = first.new_empty(len(x), *first.shape[1:])
            found[:some] = first
            for start in range(some, len(x), some):
                found[start : start + some] = function(way.folded(x[start : start + some]), weight, bias)
        return found if more is None else found + way.folded_more(more)

    return convolved


def shifted(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], more: Tensor | None = None, way: Way = NOTHING,
) -> Tensor:  # fmt: skip
    """A convolution as one matrix product for each row of its kernel, two to three times as quick as torch's.

    torch writes every input once for each place of the kernel. Here it is written once for each column of the kernel,
    shifted sideways; shifts up and down are then only other starts in the same memory. A point's result does not depend
    on the points beside it.

    >>> shifted(x, weight, bias, (1, 1), (1, 1), (1, 1)).shape     # (7, 3, 32, 32), (8, 3, 3, 3), (8,)
    torch.Size([7, 8, 32, 32])

    Args:
        x: points, shape (points, channels, height, width).
        weight: shape (out, channels, rows, columns).
        bias: shape (out,).
        stride, padding, dilation: down and across.
        more: what is added, of the shape of the result.
        way: what is done with every block on its way.
    """
    points, channels, height, width = x.shape
    out, _, rows, columns = weight.shape
    (down, across), (above, beside) = stride, padding
    high = (height + 2 * above - dilation[0] * (rows - 1) - 1) // down + 1
    wide = (width + 2 * beside - dilation[1] * (columns - 1) - 1) // across + 1
    whole = (roomy if way.grows else room)((points, out, high, wide), x)
    found = whole.view(points, out, high * wide)
    taps = weight.permute(2, 0, 3, 1).reshape(rows, out, columns * channels)
    shift = x.new_zeros(out, 1) if bias is None else bias.view(out, 1)
    pointwise = (rows, columns, down, across, above, beside) == (1, 1, 1, 1, 0, 0)
    # rows of the input that meet the same row of the kernel lie together: row r is in phase r % down
    deep = -(-(height + 2 * above) // down)
    some = min(points, max(1, _SHIFTED // (columns * channels * down * deep * wide)))
    copies = x.new_zeros(0 if pointwise else some, columns, channels, down, deep, wide)
    starts = [((row * dilation[0]) % down * deep + row * dilation[0] // down) * wide for row in range(rows)]
    for start in range(0, points, some):
        part, mine = way.folded(x[start : start + some]), found[start : start + some]
        count = part.shape[0]
        if start == 0 or count < some:
            shifts, taps_here = shift.expand(count, out, 1), taps[:, None].expand(rows, count, out, columns * channels)
            tap = taps_here.unbind()
            if not pointwise:
                unfolded = copies[:count].view(count, columns * channels, down * deep * wide)
                seen = [unfolded[:, :, first : first + high * wide] for first in starts]
        if pointwise:
            seen = [part.reshape(count, channels, high * wide)]
        else:
            _shift(part, copies[:count], (down, across), (above, beside), dilation, rows)
        torch.baddbmm(shifts, tap[0], seen[0], out=mine)
        for row in range(1, rows):
            mine.baddbmm_(tap[row], seen[row])
        made = whole[start : start + some]
        if more is not None:
            made += way.folded_more(more[start : start + some])
        if way.seen is not None:
            way.seen(start, made.view(count, -1).numpy())
    return whole


def _shift(
    part: Tensor, copies: Tensor, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
    rows: int,
) -> None:  # fmt: skip
    """Write the points once for every column of the kernel; what lies in the padding was zero before and stays so."""
    (down, across), (above, beside) = stride, padding
    height, width = part.shape[2:]
    wide = copies.shape[-1]
    for column in range(copies.shape[1]):
        offset = column * dilation[1] - beside  # of the input's column that meets output 0
        low, high = max(0, -(offset // across)), min(wide, (width - 1 - offset) // across + 1)
        for phase in {row * dilation[0] % down for row in range(rows)}:
            first = (phase - above) % down  # the first row of the input in this phase
            number = -(-(height - first) // down)
            if low < high and number > 0:
                place = (first + above) // down
                from_columns = slice(low * across + offset, (high - 1) * across + offset + 1, across)
                copies[:, column, :, phase, place : place + number, low:high] = part[:, :, first::down, from_columns]
