"""A convolution as one small matrix product for each row of each output: the quickest for few channels."""

import numpy as np
from torch import Tensor

from epoch0.regions._room import room, roomy
from epoch0.regions._steps import NOTHING, Way, put

_SHIFTED = 1 << 17  # numbers of shifted input at a time
_ALONE = 1 << 18  # multiplications up to which numpy's product never calls other threads


def windowed(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], more: Tensor | None = None, way: Way = NOTHING,
) -> Tensor:  # fmt: skip
    """A convolution as one small matrix product for each row of each output, for few channels.

    Every input is written once for each column of the kernel, shifted sideways, such that what one row of the output
    sees lies together, with a row of ones for the bias. numpy multiplies so small matrices two to three times as quick
    as torch where the processor has wide vectors. A point's result does not depend on the points beside it.

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
    found = (roomy if way.grows else room)((points, out, high, wide), x)
    lines = columns * channels  # of one row of the kernel, and one more for the bias
    each = np.zeros((out, rows, lines + 1))
    each[:, :, :lines] = weight.detach().permute(0, 2, 3, 1).reshape(out, rows, lines)
    each[:, 0, lines] = 0.0 if bias is None else bias.detach()
    taps = each.reshape(out, -1)
    shared = dilation[0] == 1 and down < rows  # rows that several rows of the output see are written once
    slid = shared and across == 1 and dilation[1] == 1 and beside < columns  # the same memory from a later start
    length = width + beside if slid else wide  # of a line: what is left of one is also right of the one before
    step, size = down if shared else rows, (lines + 1) * length
    tall = (high - 1) * step + rows
    some = min(points, max(1, _SHIFTED // (tall * size)))
    copies = room((some, tall, lines + 1, length), x)
    copies.zero_()
    copies[:, :, lines] = 1.0
    if slid:
        entries, slides = _slid(copies, lines, channels, (height, width), (above, beside))
    else:
        kernel = rows, columns
        entries, slides = _placed(copies, lines, (height, width), kernel, stride, padding, dilation, shared), []
    seen = np.lib.stride_tricks.as_strided(
        copies.numpy(), (some, high, taps.shape[1], wide), tuple(8 * n for n in (tall * size, step * size, length, 1))
    )
    made, chunk = found.permute(0, 2, 1, 3).numpy(), max(1, _ALONE // (taps.shape[1] * wide))
    folded = room((some, *x.shape[1:]), x)
    writes = [(to, folded[:, :, from_rows, from_columns]) for to, from_rows, from_columns in entries] + slides
    flat, added = found.view(points, -1).numpy(), None if more is None else room((some, out, high, wide), x)
    start = 0
    for source in x.detach().split(some):
        stop = start + source.shape[0]
        part = slice(0, stop - start)
        # memory is read in order, and the rest is in the cache
        put(way.fold, source, folded if source.shape[0] == some else folded[part])
        for to, come in writes:
            to.copy_(come)
        for first in range(0, out, chunk):
            some_out = slice(first, first + chunk)
            np.matmul(taps[some_out], seen[part], out=made[start:stop, :, some_out])
        if more is not None and added is not None:
            put(way.fold_more, more[start:stop], added[part])
            found[start:stop].add_(added[part])
        if way.seen is not None:
            way.seen(start, flat[start:stop])
        start = stop
    return found


Entry = tuple[Tensor, slice, slice]
"""Where some rows and columns of the input are written, for all channels: (points, channels, rows, columns)."""


def _slid(
    copies: Tensor, lines: int, channels: int, size: tuple[int, int], padding: tuple[int, ...]
) -> tuple[list[Entry], list[tuple[Tensor, Tensor]]]:
    """The input is written once; what the other columns of the kernel see is the same memory from a later start on.

    Every line begins with zeros, which also stand for what is to the right of the line before.
    """
    (height, width), (above, beside) = size, padding
    some, tall, _, length = copies.shape
    to, come = _stretch(-above, 1, height, tall)
    mine = copies[:, to, :channels, beside : beside + width].permute(0, 2, 1, 3)
    flat, whole = copies.view(some, tall, -1)[:, to], channels * length
    slides = []
    for column in range(1, lines // channels):
        start = column * whole
        slides.append((flat[:, :, start : start + whole - column], flat[:, :, column:whole]))
    return [(mine, come, slice(0, width))], slides


def _placed(
    copies: Tensor, lines: int, size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...], shared: bool,
) -> list[Entry]:  # fmt: skip
    """The input is written for every column of the kernel; where no rows are shared, for every place of it."""
    (height, width), (rows, columns), (down, across), (above, beside) = size, kernel, stride, padding
    some, tall, _, wide = copies.shape
    into = copies[:, :, :lines].view(some, tall, columns, lines // columns, wide).permute(0, 3, 1, 2, 4)
    found: list[Entry] = []
    for column in range(columns):
        here, there = _stretch(column * dilation[1] - beside, across, width, wide)
        if here.start >= here.stop:
            continue
        if shared:
            to, come = _stretch(-above, 1, height, tall)
            found.append((into[:, :, to, column, here], come, there))
            continue
        for row in range(rows):
            to, come = _stretch(row * dilation[0] - above, down, height, tall // rows)
            if to.start < to.stop:
                place = slice(to.start * rows + row, to.stop * rows, rows)
                found.append((into[:, :, place, column, here], come, there))
    return found


def _stretch(offset: int, step: int, inputs: int, outputs: int) -> tuple[slice, slice]:
    """The outputs i whose input offset + step i is there, and those inputs."""
    low, high = max(0, -(offset // step)), min(outputs, (inputs - 1 - offset) // step + 1)
    return slice(low, high), slice(low * step + offset, (high - 1) * step + offset + 1, step)
