"""Lines cut at break points: the order of points along many lines at once, knowing nothing of the network."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from epoch0.regions.certificate import Decisions
from epoch0.regions.complex import Budget, Cut, Flips
from epoch0.regions.network.steps import Largest


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
    """Points in order along lines; row i of every tensor belongs to point i.

    ``order`` has the rows, line after line, in order of t, and ``line`` the line of each place in it.
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
        """Insert a point wherever a column changes its sign between neighbours.

        Values have the shape (rows, columns) and are zero on the faces, as those below the tolerance (groups, columns)
        count. The owners of the columns, (columns, 3), are like those of rows.
        """
        positive, zero = self.decisions.signs(values, tolerance, self.rows.group)
        along = positive.index_select(0, self.order)
        flip = along[1:] ^ along[:-1]
        flip[(self.line[1:] != self.line[:-1]).nonzero()[:, 0]] = False
        if zero is not None:
            still = zero.index_select(0, self.order)
            flip &= ~(still[1:] | still[:-1])
            self._adopt(positive, zero, owners)
        places, columns = flip.nonzero().unbind(1)
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

    def _insert(
        self, values: Tensor, tolerance: Tensor, places: Tensor, columns: Tensor, step: int, owners: Tensor
    ) -> Cut:
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
        # break points closer than the tolerance are one: the value of either column at the other's point is zero
        fresh = torch.ones(len(places), dtype=torch.bool, device=places.device)
        of_second, of_first = a[:-1] * at_u[1:] + b[:-1] * at_v[1:], a[1:] * at_u[:-1] + b[1:] * at_v[:-1]
        limit = tolerance[rows.group[u], columns]
        same = (of_second.abs() <= limit[1:]) | (of_first.abs() <= limit[:-1])
        fresh[1:] = ~(same & (places[1:] == places[:-1]))
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
        self.rows = Rows.joined([rows, Rows(t[lead], torch.zeros_like(cut.u), group, owners[columns[lead]])])
        order = torch.argsort(torch.cat([torch.arange(old, device=behind.device), behind]), stable=True)
        self.order = torch.cat([self.order, torch.arange(old, len(order), device=behind.device)])[order]
        self.line = torch.cat([self.line, self.line[behind]])[order]
        return cut

    def drop_ties(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum of these values: take out the points at ties that another entry tops.

        A difference below a window's limit is zero. The rows kept, by which all tensors are to be indexed, or None.
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
        new_line = self.line[1:] != self.line[:-1]
        seam = torch.zeros(count, dtype=torch.bool, device=step.device)
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
