"""Lines cut at break points: the order of points along many lines at once, knowing nothing of the network."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from epoch0.regions.certificate import Decisions
from epoch0.regions.complex import Cut
from epoch0.regions.network.steps import Largest
from epoch0.regions.workers import Budget

_BLOCK = 1 << 16  # values looked at together: they stay in the cache


class Lines:
    """Points in order along lines; row i of every tensor belongs to point i.

    Attributes:
        order: rows, line after line, in order of t; ``line`` has the line of each place in it.
        t: parameter of each row; that of a point at infinity is infinite.
        away: -1, 0 or 1 for each row: a point at infinity is carried as the direction that leads to it.
        group: by whose sizes each row is judged: its line, or for directions a group of their own.
        step, element, face: what made each row: -1 for ends and corners.
    """

    def __init__(self, line: Tensor, t: Tensor, away: Tensor, group: Tensor, budget: Budget | None = None) -> None:
        self.order = torch.arange(len(t), device=t.device)
        self.line, self.t, self.away, self.group = line, t, away, group
        self.budget = budget or Budget((), math.inf)
        self.unbounded = bool((away != 0).any())
        self.step, self.element, self.face = (torch.full_like(line, -1) for _ in range(3))
        self.decisions = Decisions()

    def cut(self, values: Tensor, tolerance: Tensor, step: int, width: int, face: int | None = None) -> Cut | None:
        """Insert a point wherever a column changes its sign between neighbours.

        Values have the shape (rows, columns) and are zero on the faces, as those below the tolerance (groups, columns)
        count. Column c belongs to element c % width and, if none is given, to face c // width.
        """
        positive, zero_row, zero_column = self._signs(values, tolerance)
        zero = None
        if len(zero_row):
            zero = torch.zeros_like(positive)
            zero[zero_row, zero_column] = True
            positive[zero_row, zero_column] = False
        places, columns = self._flips(positive, zero)
        if zero is not None:
            self._adopt(positive, zero, zero_row, zero_column, step, width, face)
        if not len(places):
            return None
        return self._insert(values, tolerance, places, columns, step, width, face)

    def _signs(self, values: Tensor, tolerance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which values are positive, and rows and columns of the zeros; the smallest that is none is noted."""
        positive, zeros = values > 0.0, [torch.empty(0, 2, dtype=torch.int64, device=values.device)]
        largest = 1.0 / tolerance.amax(dim=0).clamp_min(1e-300)
        smallest = self.decisions.smallest / self.decisions.relative  # as a multiple of the tolerance
        some = max(1, _BLOCK // values.shape[1]) if values.device.type == "cpu" else len(values)
        for start in range(0, len(values), some):
            size = values[start : start + some].abs()
            if float((size * largest).amin()) > max(1.0, smallest):
                continue  # nothing here decides more narrowly, by whatever group
            ratio = size / tolerance[self.group[start : start + some]].clamp_min(1e-300)
            zero = ratio <= 1.0
            smallest = min(smallest, float(torch.where(zero, math.inf, ratio).amin()))
            if len(found := zero.nonzero()):
                found[:, 0] += start
                zeros.append(found)
        self.decisions.smallest = smallest * self.decisions.relative
        row, column = torch.cat(zeros).unbind(1)
        self.decisions.zeros += len(row)
        return positive, row, column

    def _flips(self, positive: Tensor, zero: Tensor | None) -> tuple[Tensor, Tensor]:
        """Places in the order after which a column changes its sign, and the columns."""
        along = positive.index_select(0, self.order)
        flip = along[1:] ^ along[:-1]
        flip[(self.line[1:] != self.line[:-1]).nonzero()[:, 0]] = False
        if zero is not None:
            still = zero.index_select(0, self.order)
            flip &= ~(still[1:] | still[:-1])
        found = flip.nonzero()
        return found[:, 0], found[:, 1]

    def _adopt(
        self, positive: Tensor, zero: Tensor, rows: Tensor, columns: Tensor, step: int, width: int, face: int | None
    ) -> None:
        """An end or corner that nothing made becomes a break point if a column changes its sign right there."""
        at = self._places()[rows]
        inner = (at > 0) & (at < len(self.order) - 1) & (self.step[rows] < 0) & (self.away[rows] == 0)
        rows, columns, at = rows[inner], columns[inner], at[inner]
        before, after = self.order[at - 1], self.order[at + 1]
        inner = (self.line[at - 1] == self.line[at]) & (self.line[at + 1] == self.line[at])
        inner &= ~zero[before, columns] & ~zero[after, columns]
        inner &= positive[before, columns] != positive[after, columns]
        rows, columns = rows[inner], columns[inner]
        self.step[rows], self.element[rows] = step, columns % width
        self.face[rows] = columns // width if face is None else face

    def _insert(
        self, values: Tensor, tolerance: Tensor, places: Tensor, columns: Tensor, step: int, width: int,
        face: int | None,
    ) -> Cut:  # fmt: skip
        u, v = self.order[places], self.order[places + 1]
        at_u, at_v = values[u, columns], values[v, columns]
        a, b = at_v / (at_v - at_u), at_u / (at_u - at_v)
        key = b
        if self.unbounded:
            out, back = self.away[v] != 0, self.away[u] != 0
            a, b = torch.where(out, 1.0, a), torch.where(out, (at_u / at_v).abs(), b)
            a, b = torch.where(back, (at_v / at_u).abs(), a), torch.where(back, 1.0, b)
            key = torch.where(back, -a, b)
        by_key = torch.argsort(key, stable=True)
        order = by_key[torch.argsort(places[by_key], stable=True)]
        places, columns, u, v, a, b = (one[order] for one in (places, columns, u, v, a, b))
        # break points closer than the tolerance are one: the value of either column at the other's point is zero
        fresh = torch.ones(len(places), dtype=torch.bool, device=places.device)
        first, second = columns[:-1], columns[1:]
        left, right = u[1:], v[1:]
        of_second = a[:-1] * values[left, second] + b[:-1] * values[right, second]
        of_first = a[1:] * values[left, first] + b[1:] * values[right, first]
        owner = self.group[left]
        same = (of_second.abs() <= tolerance[owner, second]) | (of_first.abs() <= tolerance[owner, first])
        fresh[1:] = ~(same & (places[1:] == places[:-1]))
        number = torch.cumsum(fresh, 0) - 1
        lead = fresh.nonzero()[:, 0]
        self.budget.add(len(lead), step)
        cut = Cut(u[lead], v[lead], a[lead], b[lead], number + len(self.t), columns)
        self._append(cut, places[lead], columns[lead], step, width, face)
        return cut

    def _append(self, cut: Cut, places: Tensor, columns: Tensor, step: int, width: int, face: int | None) -> None:
        old = len(self.t)
        t_u, t_v = self.t[cut.u], self.t[cut.v]
        t = t_u + cut.b * (t_v - t_u)
        if self.unbounded:
            out, back = self.away[cut.v] != 0, self.away[cut.u] != 0
            t = torch.where(out, t_u + cut.b, torch.where(back, t_v - cut.a, t))
        self.t = torch.cat([self.t, t])
        self.away = torch.cat([self.away, torch.zeros_like(cut.u)])
        self.group = torch.cat([self.group, self.group[torch.where(self.away[cut.u] == 0, cut.u, cut.v)]])
        self.step = torch.cat([self.step, torch.full_like(cut.u, step)])
        self.element = torch.cat([self.element, columns % width])
        self.face = torch.cat([self.face, columns // width if face is None else torch.full_like(cut.u, face)])
        ahead = torch.zeros(len(self.order) + 1, dtype=torch.int64, device=places.device)
        ahead.scatter_add_(0, places + 1, torch.ones_like(places))
        ahead = ahead.cumsum(0)[:-1]
        order = torch.empty(len(self.order) + len(places), dtype=torch.int64, device=places.device)
        line = torch.empty_like(order)
        kept = torch.arange(len(self.order), device=places.device) + ahead
        new = places + 1 + torch.arange(len(places), device=places.device)
        order[kept], line[kept] = self.order, self.line
        order[new], line[new] = torch.arange(old, old + len(places), device=places.device), self.line[places]
        self.order, self.line = order, line

    def settle(self, step: Largest, number: int, values: Tensor, limit: Tensor) -> Tensor | None:
        """After a maximum of these values: take out the points at ties that another entry tops.

        A difference below a window's limit is zero. The rows kept, by which all tensors are to be indexed, or None.
        """
        mine = (self.step == number).nonzero()[:, 0]
        at = self._places()[mine]
        left, right = (self._between(values, mine, self.order[at + side]) for side in (-1, 1))
        owner, entry = step.parted(left, right, limit)
        self.element[mine], self.face[mine] = owner, entry
        real = owner >= 0
        if bool(real.all()):
            return None
        self.budget.add(-int((~real).sum()), number)
        keep = torch.ones(len(self.t), dtype=torch.bool, device=owner.device)
        keep[mine[~real]] = False
        kept = keep.nonzero()[:, 0]
        moved = torch.cumsum(keep, 0) - 1
        stays = keep[self.order]
        self.order, self.line = moved[self.order[stays]], self.line[stays]
        for name in ("t", "away", "group", "step", "element", "face"):
            setattr(self, name, getattr(self, name)[kept])
        return kept

    def split(self, parts: int) -> list[tuple["Lines", Tensor]]:
        """Stretches of the order with their rows: seams are break points, which both sides share, or ends of lines."""
        count = len(self.order)
        step = self.step[self.order]
        new_line = self.line[1:] != self.line[:-1]
        seam = torch.zeros(count, dtype=torch.bool, device=step.device)
        seam[1:] = new_line
        seam[1:-1] |= step[1:-1] >= 0
        places = seam.nonzero()[:, 0]
        if not len(places):
            return []
        wanted = torch.linspace(0, count, parts + 1, device=step.device)[1:-1]
        near = torch.searchsorted(places.double(), wanted.double()).clamp_max(len(places) - 1)
        cuts = sorted(set(places[near].tolist()))
        found = []
        for low, high in zip([0, *cuts], [*cuts, count], strict=True):
            shared = high < count and bool(self.line[high] == self.line[high - 1])
            along = self.order[low : high + shared]
            rows, order = torch.sort(along)
            line, t, away, group = self.line[low : high + shared], self.t[rows], self.away[rows], self.group[rows]
            part = Lines(line, t, away, group, self.budget)
            part.order = torch.argsort(order)
            part.decisions.smallest = self.decisions.smallest
            part.step, part.element, part.face = self.step[rows], self.element[rows], self.face[rows]
            found.append((part, rows))
        return found

    def join(self, parts: Sequence["Lines"]) -> "Lines":
        """The stretches one after another, a break point at a seam once."""
        kept = []
        for i, part in enumerate(parts):
            before = parts[i - 1] if i else None
            shared = before is not None and bool(before.line[-1] == part.line[0])
            kept.append(part.order[int(shared) :])
        t, away, group = (
            torch.cat([getattr(p, name)[rows] for p, rows in zip(parts, kept, strict=True)])
            for name in ("t", "away", "group")
        )
        line = torch.cat([p.line[len(p.line) - len(rows) :] for p, rows in zip(parts, kept, strict=True)])
        whole = Lines(line, t, away, group, self.budget)
        for name in ("step", "element", "face"):
            setattr(whole, name, torch.cat([getattr(p, name)[rows] for p, rows in zip(parts, kept, strict=True)]))
        whole.decisions = self.decisions
        for part in parts:
            whole.decisions.add(part.decisions)
        return whole

    def _places(self) -> Tensor:
        """The place of each row in the order."""
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(len(self.order), device=self.order.device)
        return place

    def _between(self, values: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """Values between points and their neighbours; towards infinity, some way along the direction."""
        far = (self.away[there] != 0).view(-1, *[1] * (values.dim() - 1))
        return torch.where(far, values[here] + values[there], 0.5 * (values[here] + values[there]))
