"""What a cut of lines or a plane hands back to the walk: new points, mixed of old ones."""

from dataclasses import dataclass
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

    def __len__(self) -> int:
        return len(self.u) + (len(self.second) if self.second is not None else 0)

    def extended(self, values: Tensor, faces: Tensor | None = None, width: int = 1) -> Tensor:
        """The old rows of a tensor and the new ones; arguments as for :meth:`take`."""
        found = empty((len(values) + len(self), *values.shape[1:]), values)
        found[: len(values)] = values
        start = len(values)
        for part in (self, self.second):
            if part is not None:
                part._mix(found[start : start + len(part.u)], found[:start], part.u, part.v, slice(None))
                start += len(part.u)
                part._put_on_faces(found, None, faces, width)
        return found

    def take(self, values: Tensor, rows: Tensor, faces: Tensor | None = None, width: int = 1) -> Tensor:
        """Some rows only, old ones and new ones: the tensor of all is never made.

        Rows are increasing numbers, those of new rows go on from those of the old ones. For the tensor that was cut
        there are the values of its faces: column c is element c % width, face c // width.
        """
        old = len(values)
        found = empty((len(rows), *values.shape[1:]), values)
        first, late = torch.searchsorted(rows, rows.new_tensor([old, old + len(self.u)])).tolist()
        torch.index_select(values, 0, rows[:first], out=found[:first])
        new = rows[first:late] - old
        self._mix(found[first:late], values, self.u[new], self.v[new], new)
        self._put_on_faces(found, rows, faces, width)
        if self.second is not None and late < len(rows):
            more, new = self.second, rows[late:] - old - len(self.u)
            parents, place = torch.unique(torch.stack([more.u[new], more.v[new]]), return_inverse=True)
            more._mix(found[late:], self.take(values, parents, faces, width), place[0], place[1], new)
            more._put_on_faces(found, rows, faces, width)
        return found

    def _mix(self, out: Tensor, values: Tensor, u: Tensor, v: Tensor, which: Tensor | slice) -> None:
        shape = (-1,) + (1,) * (values.dim() - 1)
        torch.index_select(values, 0, u, out=out)
        out.mul_(self.a[which].view(shape)).addcmul_(values.index_select(0, v), self.b[which].view(shape))

    def _put_on_faces(self, found: Tensor, rows: Tensor | None, faces: Tensor | None, width: int) -> None:
        """Where a row made here is on a face, its value is exactly the face's; ``rows`` are those there are, if few."""
        if faces is None or not len(self.row):
            return
        place, column = self.row, self.column
        if rows is not None:
            place = torch.searchsorted(rows, place).clamp_max(len(rows) - 1)
            here = rows[place] == self.row
            place, column = place[here], column[here]
        found.view(len(found), -1)[place, column % width] = faces[column // width]


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor with nothing in it yet, of the type and on the device of another.

    On the CPU from numpy, which asks for huge pages: filling them is several times cheaper.
    """
    if like.device.type != "cpu" or like.dtype != torch.float64:
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape))
