"""What cut lines and a cut plane share: the memory that they may fill, and new points, mixed of old ones."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.progress import Listener


@dataclass
class Budget:
    """Cells so far, all parts together, and the bytes of memory their geometry may take, so many each."""

    layers: tuple[str, ...]
    memory: float
    progress: Listener | None
    cells: int = 1
    each: int = 400  # its share of vertices, edges, owners and lists, twice while parts are put together
    what: str = "cells"
    advice: str = "choose a smaller window, give more memory, or use regions.count"
    done: float = 0.0  # part of the whole walk

    def add(self, cells: int, step: int) -> None:
        """Count more cells; an InputError says that their geometry would not fit."""
        self.cells += cells
        if self.cells * self.each > self.memory:
            text = f"{self.cells} {self.what} were reached at layer '{self.layers[step]}'"
            raise InputError(f"{text}, whose geometry takes more than memory={self.memory:.3g} bytes; {self.advice}.")

    def advance(self, share: float, what: str) -> None:
        """So much more is done, as a part of the whole."""
        if self.progress is not None:
            self.done = min(self.done + share, 1.0)
            self.progress(self.done, f"{what}, {self.cells:,} {self.what}")


class Flips(NamedTuple):
    """Where columns change their sign on the segments that a cut divides, segment by segment."""

    column: Tensor
    at_u: Tensor  # the distance from zero at the segment's ends
    at_v: Tensor
    first: Tensor  # of each new row the first one on its segment
    number: Tensor  # and how many there are

    def hats(self, a: Tensor, b: Tensor, rows: Tensor, hats: Tensor) -> Tensor:
        """How far a function of the columns is from its chord at some new rows; ``hats``: of a bend of one, by column.

        A column bends the function where it passes zero, which adds a triangle over the whole segment.
        """
        from scipy.sparse import csr_array

        first, count = self.first[rows], self.number[rows]
        begin = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(count, 0, out=begin[1:])
        row = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
        at = torch.arange(len(row), device=rows.device) + (first - begin[:-1])[row]
        height = torch.minimum(b[rows][row] * self.at_v[at], a[rows][row] * self.at_u[at])
        entries = height.numpy(), self.column[at].numpy(), begin.numpy()
        return torch.from_numpy(csr_array(entries, (len(rows), len(hats))) @ hats.numpy())


@dataclass(frozen=True)
class Cut:
    """New rows: row i is a[i] row(u[i]) + b[i] row(v[i])."""

    u: Tensor  #: rows there are
    v: Tensor
    a: Tensor  #: coefficients
    b: Tensor
    before: Optional["Cut"] = None  #: rows made before these, which these may combine, too
    flips: Flips | None = None  #: None where they are not all known

    def then(self, other: "Cut") -> "Cut":
        """These rows, and behind them those of another cut."""
        return replace(other, before=self if other.before is None else self.then(other.before))

    def __len__(self) -> int:
        return len(self.u) + (0 if self.before is None else len(self.before))

    @property
    def bends(self) -> float:
        """Flips at new rows, all together: infinite where they are not known."""
        here = float("inf") if self.flips is None else float(self.flips.number.sum())
        return here + (0.0 if self.before is None else self.before.bends)

    def take(self, values: Tensor, rows: Tensor | None = None, hats: Tensor | None = None) -> Tensor:
        """The old rows of a tensor and the new ones, or some of them: then the tensor of all is never made.

        Rows are increasing numbers, those of new rows go on from those of the old ones. For a tensor that bends where
        a column passes zero there are the ``hats``, (columns, elements).
        """
        if rows is None:
            rows = torch.arange(len(values) + len(self), device=values.device)
        found = values.new_empty((len(rows), *values.shape[1:]))
        self._write(found, values, rows, hats)
        return found

    def _write(self, out: Tensor, values: Tensor, rows: Tensor, hats: Tensor | None) -> None:
        if not len(rows):  # each part asks those before it twice
            return
        old = len(values) + len(self) - len(self.u)
        first = int(torch.searchsorted(rows, old))
        new = rows[first:] - old
        source, u, v = values, self.u[new], self.v[new]
        if self.before is None:
            torch.index_select(values, 0, rows[:first], out=out[:first])
        else:
            self.before._write(out[:first], values, rows[:first], hats)
            parents, place = torch.unique(torch.stack([u, v]), return_inverse=True)
            source, (u, v) = self.before.take(values, parents, hats), place
        shape = (-1,) + (1,) * (values.dim() - 1)
        torch.index_select(source, 0, u, out=out[first:])
        out[first:].mul_(self.a[new].view(shape)).addcmul_(source.index_select(0, v), self.b[new].view(shape))
        if hats is not None and self.flips is not None:
            out[first:] += self.flips.hats(self.a, self.b, new, hats)
