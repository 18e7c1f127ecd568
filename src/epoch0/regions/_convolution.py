"""Convolutions in float64 on the CPU, a few points at a time: what torch unfolds at once leaves the cache."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.regions._complex import empty

_SHIFTED = 1 << 17  # numbers of shifted input at a time


def convolution(module: nn.Module) -> Callable[..., Tensor]:
    """A convolution as a function of (points, weight, bias): :func:`shifted` wherever that is right and quicker."""
    m: Any = module
    if not isinstance(m, nn.Conv2d) or m.groups != 1 or m.padding_mode != "zeros" or isinstance(m.padding, str):
        return m._conv_forward  # type: ignore[no-any-return]
    stride, padding, dilation = m.stride, m.padding, m.dilation

    def convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float64 or x.requires_grad:
            return m._conv_forward(x, weight, bias)  # type: ignore[no-any-return]
        return shifted(x, weight, bias, stride, padding, dilation)

    return convolved


def shifted(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...],
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
    """
    points, channels, height, width = x.shape
    out, _, rows, columns = weight.shape
    (down, across), (above, beside) = stride, padding
    high = (height + 2 * above - dilation[0] * (rows - 1) - 1) // down + 1
    wide = (width + 2 * beside - dilation[1] * (columns - 1) - 1) // across + 1
    whole = empty((points, out, high, wide), x)
    found = whole.view(points, out, high * wide)
    taps = weight.permute(2, 0, 3, 1).reshape(rows, out, columns * channels)
    shift = x.new_zeros(out, 1) if bias is None else bias.view(out, 1)
    # rows of the input that meet the same row of the kernel lie together: row r is in phase r % down
    deep = -(-(height + 2 * above) // down)
    some = min(points, max(1, _SHIFTED // (columns * channels * down * deep * wide)))
    copies = x.new_zeros(some, columns, channels, down, deep, wide)
    starts = [((row * dilation[0]) % down * deep + row * dilation[0] // down) * wide for row in range(rows)]
    for start in range(0, points, some):
        part, mine = x[start : start + some], found[start : start + some]
        count = len(part)
        _shift(part, copies[:count], (down, across), (above, beside), dilation, rows)
        unfolded = copies[:count].view(count, columns * channels, down * deep * wide)
        seen = [unfolded[:, :, first : first + high * wide] for first in starts]
        tap = taps[:, None].expand(rows, count, out, columns * channels)
        torch.baddbmm(shift.expand(count, out, 1), tap[0], seen[0], out=mine)
        for row in range(1, rows):
            mine.baddbmm_(tap[row], seen[row])
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
