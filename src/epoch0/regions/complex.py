"""What a cut of lines or a plane hands back to the walk: new points, mixed of old ones."""

from dataclasses import dataclass, replace
from typing import Optional

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Cut:
    """New rows: row i is a[i] row(u[i]) + b[i] row(v[i])."""

    u: Tensor  #: rows there are
    v: Tensor
    a: Tensor  #: coefficients
    b: Tensor
    row: Tensor  #: new rows, numbered on from those there were, that are on a face; their value is exactly the face's
    column: Tensor  #: and the face; a row can be on several
    second: Optional["Cut"] = None  #: further rows, which may also combine rows made here

    def then(self, other: Optional["Cut"]) -> "Cut":
        """These rows, and behind them those of another cut."""
        return replace(self, second=other if self.second is None else self.second.then(other))

    def parts(self) -> list["Cut"]:
        """Rows that combine only those before them, part by part."""
        return [self, *(self.second.parts() if self.second is not None else ())]

    def __len__(self) -> int:
        return sum(len(part.u) for part in self.parts())

    def extended(self, values: Tensor, faces: Tensor | None = None, width: int = 1) -> Tensor:
        """The old rows of a tensor and the new ones; arguments as for :meth:`take`."""
        return self.take(values, torch.arange(len(values) + len(self), device=values.device), faces, width)

    def take(self, values: Tensor, rows: Tensor, faces: Tensor | None = None, width: int = 1) -> Tensor:
        """Some rows only, old ones and new ones: the tensor of all is never made.

        Rows are increasing numbers, those of new rows go on from those of the old ones. For the tensor that was cut
        there are the values of its faces: column c is element c % width, face c // width.
        """
        found = empty((len(rows), *values.shape[1:]), values)
        _take(self.parts(), found, values, rows, faces, width)
        return found

    def _put_on_faces(self, found: Tensor, rows: Tensor, faces: Tensor, width: int) -> None:
        """Where a row made here is on a face, its value is exactly the face's; ``rows`` are those there are."""
        place = torch.searchsorted(rows, self.row).clamp_max(len(rows) - 1)
        here = rows[place] == self.row
        place, column = place[here], self.column[here]
        found.view(len(found), -1)[place, column % width] = faces[column // width]


def _take(parts: list[Cut], out: Tensor, values: Tensor, rows: Tensor, faces: Tensor | None, width: int) -> None:
    """Write some rows of old ones and of those that the parts make."""
    if not len(rows) or not parts:
        torch.index_select(values, 0, rows, out=out)
        return
    *before, last = parts
    old = len(values) + sum(len(part.u) for part in before)
    first = int(torch.searchsorted(rows, old))
    _take(before, out[:first], values, rows[:first], faces, width)
    new = rows[first:] - old
    source, u, v = values, last.u[new], last.v[new]
    if before and len(new):
        parents, place = torch.unique(torch.stack([u, v]), return_inverse=True)
        source, (u, v) = empty((len(parents), *values.shape[1:]), values), place
        _take(before, source, values, parents, faces, width)
    shape = (-1,) + (1,) * (values.dim() - 1)
    torch.index_select(source, 0, u, out=out[first:])
    out[first:].mul_(last.a[new].view(shape)).addcmul_(source.index_select(0, v), last.b[new].view(shape))
    if faces is not None and len(last.row):
        last._put_on_faces(out, rows, faces, width)


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor with nothing in it yet, of the type and on the device of another.

    On the CPU from numpy, which asks for huge pages: filling them is several times cheaper.
    """
    if like.device.type != "cpu" or like.dtype != torch.float64:
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape))
