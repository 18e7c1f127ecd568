"""Lines cut at break points, and what they share with a cut plane: the memory, and new points, mixed of old ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.progress import Progress
from epoch0.regions.certificate import Decisions
from epoch0.regions.network.steps import Largest

_CACHE = 1 << 17  # numbers that new rows are made of at a time: they stay in the cache


@dataclass
class Budget:
    """Cells so far, all parts together, and the bytes of memory their geometry may take, so many each."""

    layers: tuple[str, ...]
    memory: float
    progress: Progress
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
        """The old rows of a tensor and the new ones, or some of them: then the tensor of all is never made. Rows are
        increasing numbers, those of new rows go on from those of the old ones. For a tensor that bends where a column
        passes zero there are the ``hats``, (columns, elements).
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
        shape, some = (-1,) + (1,) * (values.dim() - 1), max(64, _CACHE // max(1, values[:1].numel()))
        for at, start, end, into in zip(*(each.split(some) for each in (new, u, v, out[first:])), strict=True):
            torch.index_select(source, 0, start, out=into)
            into.mul_(self.a[at].view(shape)).addcmul_(source.index_select(0, end), self.b[at].view(shape))
            if hats is not None and self.flips is not None:
                into += self.flips.hats(self.a, self.b, at, hats)


def _where(flip: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns that are set; on a CPU torch's own nonzero takes six times as long."""
    at = torch.from_numpy(np.flatnonzero(flip.numpy())) if flip.device.type == "cpu" else flip.flatten().nonzero()[:, 0]
    return at // flip.shape[1], at % flip.shape[1]


class Rows(NamedTuple):
    """Points of lines, one a row."""

    t: Tensor  # parameter, infinite for a point at infinity
    away: Tensor  # -1, 0 or 1: a point at infinity is carried as the direction that leads to it
    group: Tensor  # by whose sizes it is assessed: its line, or for directions a group of their own
    owner: Tensor  # step, face and element that made it, (rows, 3); -1 for ends and corners

    def take(self, rows: Tensor) -> "Rows":
        return Rows(*(column[rows] for column in self))

    @staticmethod
    def joined(parts: Sequence["Rows"]) -> "Rows":
        return Rows(*map(torch.cat, zip(*parts, strict=True)))


class Lines:
    """Points in order along lines; row i of every tensor belongs to point i. ``order`` has the rows, line after line,
    in order of t, and ``line`` the line of each place in it.
    """

    def __init__(self, line: Tensor, rows: Rows, budget: Budget) -> None:
        self.order = torch.arange(len(line), device=line.device)
        self.line, self.rows, self.budget = line, rows, budget
        self.unbounded = bool((rows.away != 0).any())
        self.decisions = Decisions()

    @property
    def infinite(self) -> Tensor | None:
        """Which rows are directions to infinity; None where there are none."""
        return self.rows.away != 0 if self.unbounded else None

    def cut(self, values: Tensor, tolerance: Tensor, step: int, owners: Tensor) -> Cut | None:
        """Insert a point wherever a column changes its sign between neighbours. Values have the shape (rows, columns)
        and are zero on the faces, as those below the tolerance (groups, columns) count. The owners of the columns,
        (columns, 3), are like those of rows.
        """
        positive, zero = self.decisions.signs(values, tolerance, self.rows.group)
        along = positive.index_select(0, self.order)
        flip = along[1:] ^ along[:-1]
        flip[(self.line[1:] != self.line[:-1]).nonzero()[:, 0]] = False
        if zero is not None:
            still = zero.index_select(0, self.order)
            flip &= ~(still[1:] | still[:-1])
            self._adopt(positive, zero, owners)
        places, columns = _where(flip)
        return self._insert(values, tolerance, places, columns, step, owners) if len(places) else None

    def _adopt(self, positive: Tensor, zero: Tensor, owners: Tensor) -> None:
        """An end or corner that nothing made becomes a break point if a column changes its sign right there."""
        rows, columns = zero.nonzero().unbind(1)
        at = torch.argsort(self.order)[rows]
        inner = (at > 0) & (at < len(self.order) - 1) & (self.rows.owner[rows, 0] < 0) & (self.rows.away[rows] == 0)
        rows, columns, at = rows[inner], columns[inner], at[inner]
        before, after = self.order[at - 1], self.order[at + 1]
        inner = (self.line[at - 1] == self.line[at]) & (self.line[at + 1] == self.line[at])
        inner &= ~zero[before, columns] & ~zero[after, columns]
        inner &= positive[before, columns] != positive[after, columns]
        self.rows.owner[rows[inner]] = owners[columns[inner]]

    def _insert(self, values: Tensor, limits: Tensor, places: Tensor, columns: Tensor, step: int, owner: Tensor) -> Cut:
        rows, u, v = self.rows, self.order[places], self.order[places + 1]
        at_u, at_v, t_u, t_v = values[u, columns], values[v, columns], rows.t[u], rows.t[v]
        a, b = at_v / (at_v - at_u), at_u / (at_u - at_v)
        key, t = b, t_u + b * (t_v - t_u)
        if self.unbounded:
            out, back = rows.away[v] != 0, rows.away[u] != 0
            a, b = torch.where(out, 1.0, a), torch.where(out, (at_u / at_v).abs(), b)
            a, b = torch.where(back, (at_v / at_u).abs(), a), torch.where(back, 1.0, b)
            key, t = torch.where(back, -a, b), torch.where(out, t_u + b, torch.where(back, t_v - a, t))
        by_key = torch.argsort(key, stable=True)
        order = by_key[torch.argsort(places[by_key], stable=True)]
        places, columns, u, v, a, b, t, at_u, at_v = (x[order] for x in (places, columns, u, v, a, b, t, at_u, at_v))
        # break points closer than the limits are one: the value of either column at the other's point is zero
        fresh = torch.ones(len(places), dtype=torch.bool, device=places.device)
        of_second, of_first = a[:-1] * at_u[1:] + b[:-1] * at_v[1:], a[1:] * at_u[:-1] + b[1:] * at_v[:-1]
        limit = limits[rows.group[u], columns]
        fresh[1:] = (of_second.abs() > limit[1:]) & (of_first.abs() > limit[:-1]) | (places[1:] != places[:-1])
        lead = fresh.nonzero()[:, 0]
        self.budget.add(len(lead), step)
        old, behind = len(self.order), places[lead]
        flips = None
        if not self.unbounded and values.device.type == "cpu":
            _, segment, count = torch.unique_consecutive(places, return_inverse=True, return_counts=True)
            at = segment[lead]
            flips = Flips(columns, at_u.abs(), at_v.abs(), (count.cumsum(0) - count)[at], count[at])
        cut = Cut(u[lead], v[lead], a[lead], b[lead], flips=flips)
        group = rows.group[torch.where(rows.away[cut.u] == 0, cut.u, cut.v)]
        self.rows = Rows.joined([rows, Rows(t[lead], torch.zeros_like(cut.u), group, owner[columns[lead]])])
        order = torch.argsort(torch.cat([torch.arange(old, device=behind.device), behind]), stable=True)
        self.order = torch.cat([self.order, torch.arange(old, len(order), device=behind.device)])[order]
        self.line = torch.cat([self.line, self.line[behind]])[order]
        return cut

    def drop_ties(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum of these values: take out the points at ties that another entry tops. A difference below a
        window's limit is zero. The rows kept, by which all tensors are to be indexed, or None.
        """
        mine = (self.rows.owner[:, 0] == number).nonzero()[:, 0]
        at = torch.argsort(self.order)[mine]
        left, right = (self._between(values, mine, self.order[at + side]) for side in (-1, 1))
        owner, entry = step.parted(left, right, limit)
        self.rows.owner[mine, 1:] = torch.stack([entry, owner], 1)
        real = owner >= 0
        if bool(real.all()):
            return None
        self.budget.add(-int((~real).sum()), number)
        keep = torch.ones(len(self.order), dtype=torch.bool, device=owner.device)
        keep[mine[~real]] = False
        kept, moved = keep.nonzero()[:, 0], torch.cumsum(keep, 0) - 1
        stays = keep[self.order]
        self.order, self.line, self.rows = moved[self.order[stays]], self.line[stays], self.rows.take(kept)
        return kept

    def split(self, parts: int) -> list[tuple["Lines", Tensor]]:
        """Stretches of the order with their rows: seams are break points, which both sides share, or ends of lines."""
        count, step = len(self.order), self.rows.owner[self.order, 0]
        new_line, seam = self.line[1:] != self.line[:-1], torch.zeros(count, dtype=torch.bool, device=step.device)
        seam[1:] = new_line
        seam[1:-1] |= step[1:-1] >= 0
        if not len(places := seam.nonzero()[:, 0]):
            return []
        wanted = torch.linspace(0, count, parts + 1, device=step.device)[1:-1]
        near = torch.searchsorted(places.double(), wanted.double()).clamp_max(len(places) - 1)
        cuts, found = sorted(set(places[near].tolist())), []
        for low, high in zip([0, *cuts], [*cuts, count], strict=True):
            shared = high < count and bool(self.line[high] == self.line[high - 1])
            rows, order = torch.sort(self.order[low : high + shared])
            part = Lines(self.line[low : high + shared], self.rows.take(rows), self.budget)
            part.order = torch.argsort(order)
            part.decisions.smallest = self.decisions.smallest
            found.append((part, rows))
        return found

    def join(self, parts: Sequence["Lines"]) -> "Lines":
        """The segments one after another, a break point at a seam once."""
        lines, rows = [], []
        for i, part in enumerate(parts):
            shared = int(i > 0 and bool(parts[i - 1].line[-1] == part.line[0]))
            lines.append(part.line[shared:])
            rows.append(part.rows.take(part.order[shared:]))
        whole = Lines(torch.cat(lines), Rows.joined(rows), self.budget)
        whole.decisions = self.decisions
        for part in parts:
            whole.decisions.add(part.decisions)
        return whole

    def _between(self, values: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """Values between points and their neighbours; towards infinity, some way along the direction."""
        far = (self.rows.away[there] != 0).view(-1, *[1] * (values.dim() - 1))
        return torch.where(far, values[here] + values[there], 0.5 * (values[here] + values[there]))
