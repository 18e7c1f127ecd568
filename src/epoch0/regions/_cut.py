"""New points as combinations of old ones: what a cut hands to the walk, for lines and planes alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor

from epoch0.regions._bends import Bends
from epoch0.regions._room import roomy


@dataclass(frozen=True)
class Cut:
    """New rows: row i is a[i] row(u[i]) + b[i] row(v[i]).

    Attributes:
        u, v: rows there are.
        a, b: coefficients.
        row, column: where a new row is on a face: its value there is exactly the face's. Rows are numbered on from
            those there were; a row can be on several faces.
        second: further rows, which may also combine rows made here.
        bends: where every segment between old rows has its new points in order: the bends of each new point, of those
            made here and of the second ones, or None if there are more than a number.
    """

    u: Tensor
    v: Tensor
    a: Tensor
    b: Tensor
    row: Tensor
    column: Tensor
    second: Optional["Cut"] = None
    bends: Callable[[float], tuple[Bends, Bends] | None] | None = None

    def __len__(self) -> int:
        return len(self.u) + (len(self.second) if self.second is not None else 0)

    def rows(
        self, values: Tensor, faces: Tensor | None = None, width: int = 1, out: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """The new rows of a tensor whose old rows are given.

        Args:
            values: the old rows.
            faces: for the tensor that was cut: values of its faces; column c is element c % width, face c // width.
            width: elements of a row.
            out: where they are written.
        """
        shape = (-1,) + (1,) * (values.dim() - 1)
        first = None if out is None else out[: len(self.u)]
        first = torch.index_select(values, 0, self.u, out=first).mul_(self.a.view(shape))
        first.addcmul_(values.index_select(0, self.v), self.b.view(shape))
        if faces is not None:
            first.view(len(first), -1)[self.row - len(values), self.column % width] = faces[self.column // width]
        if self.second is None or not len(self.second.u):
            return first
        more = self.second
        made = _gather(values, first, more.u)
        if out is not None:
            made = out[len(first) :].copy_(made)
        made.mul_(more.a.view(shape))
        made.addcmul_(_gather(values, first, more.v), more.b.view(shape))
        if faces is not None:
            row = more.row - len(values) - len(first)
            made.view(len(made), -1)[row, more.column % width] = faces[more.column // width]
        return torch.cat([first, made]) if out is None else out

    def take(self, values: Tensor, rows: Tensor, faces: Tensor | None = None, width: int = 1) -> Tensor:
        """Some rows only, old ones and new ones, as :meth:`rows` makes them.

        Args:
            values: the old rows.
            rows: increasing numbers; the new rows are numbered on from the old ones.
            faces: as for :meth:`rows`.
            width: elements of a row.
        """
        old, shape = len(values), (-1,) + (1,) * (values.dim() - 1)
        found = roomy((len(rows), *values.shape[1:]), values)
        first, late = torch.searchsorted(rows, rows.new_tensor([old, old + len(self.u)])).tolist()
        torch.index_select(values, 0, rows[:first], out=found[:first])
        new = rows[first:late] - old
        made = found[first:late]
        torch.index_select(values, 0, self.u[new], out=made)
        made.mul_(self.a[new].view(shape)).addcmul_(values.index_select(0, self.v[new]), self.b[new].view(shape))
        self._on_faces(found, rows, faces, width)
        if self.second is not None and late < len(rows):
            more, new = self.second, rows[late:] - old - len(self.u)
            parents, place = torch.unique(torch.stack([more.u[new], more.v[new]]), return_inverse=True)
            sources = self.take(values, parents, faces, width)
            made = found[late:]
            torch.index_select(sources, 0, place[0], out=made)
            made.mul_(more.a[new].view(shape)).addcmul_(sources.index_select(0, place[1]), more.b[new].view(shape))
            more._on_faces(found, rows, faces, width)
        return found

    def _on_faces(self, found: Tensor, rows: Tensor, faces: Tensor | None, width: int) -> None:
        """Where a row made here is on a face, its value is exactly the face's."""
        if faces is None or not len(self.row) or not len(rows):
            return
        place = torch.searchsorted(rows, self.row).clamp_max(len(rows) - 1)
        here = rows[place] == self.row
        column = self.column[here]
        found.view(len(found), -1)[place[here], column % width] = faces[column // width]


def _gather(values: Tensor, first: Tensor, rows: Tensor) -> Tensor:
    """Rows of a tensor that goes on in another one."""
    late = rows - len(values)
    if bool((late >= 0).all()):
        return first.index_select(0, late)
    found = values.index_select(0, rows.clamp_max(len(values) - 1))
    new = late >= 0
    found[new] = first[late[new]]
    return found
