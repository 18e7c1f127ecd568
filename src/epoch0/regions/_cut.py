"""New points as combinations of old ones: what a cut hands to the walk, for lines and planes alike."""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cut:
    """New rows: row i is a[i] row(u[i]) + b[i] row(v[i]).

    Attributes:
        u, v: rows there are.
        a, b: coefficients.
        row, column: where a new row is on a face: its value there is exactly the face's. Rows are numbered on from
            those there were; a row can be on several faces.
        second: further rows, which may also combine rows made here.
    """

    u: Tensor
    v: Tensor
    a: Tensor
    b: Tensor
    row: Tensor
    column: Tensor
    second: Optional["Cut"] = None

    def __len__(self) -> int:
        return len(self.u) + (len(self.second) if self.second is not None else 0)

    def rows(self, values: Tensor, faces: Tensor | None = None, width: int = 1) -> Tensor:
        """The new rows of a tensor whose old rows are given.

        Args:
            values: the old rows.
            faces: for the tensor that was cut: values of its faces; column c is element c % width, face c // width.
            width: elements of a row.
        """
        shape = (-1,) + (1,) * (values.dim() - 1)
        first = values.index_select(0, self.u).mul_(self.a.view(shape))
        first.addcmul_(values.index_select(0, self.v), self.b.view(shape))
        if faces is not None:
            first.view(len(first), -1)[self.row - len(values), self.column % width] = faces[self.column // width]
        if self.second is None or not len(self.second.u):
            return first
        more = self.second
        made = _gather(values, first, more.u).mul_(more.a.view(shape))
        made.addcmul_(_gather(values, first, more.v), more.b.view(shape))
        if faces is not None:
            row = more.row - len(values) - len(first)
            made.view(len(made), -1)[row, more.column % width] = faces[more.column // width]
        return torch.cat([first, made])


def _gather(values: Tensor, first: Tensor, rows: Tensor) -> Tensor:
    """Rows of a tensor that goes on in another one."""
    late = rows - len(values)
    if bool((late >= 0).all()):
        return first.index_select(0, late)
    found = values.index_select(0, rows.clamp_max(len(values) - 1))
    new = late >= 0
    found[new] = first[late[new]]
    return found
