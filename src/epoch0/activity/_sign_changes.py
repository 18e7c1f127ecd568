"""Sign changes of many functions on [0, 1], each with steps of its own, and the order in which they come.

Every function is looked at where it needs it: a step is halved while its values are near 0 and could turn between, as
in :mod:`epoch0.activity._refine`, but never for the sake of another function. Which of two changes comes first is
settled afterwards, by halving the few steps in which both lie (Raghu appendix B.3).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from epoch0.activity._refine import missed_at_most
from epoch0.seeds import generator

Evaluate = Callable[[Tensor, Tensor], Tensor]
"""Numbers of functions, never decreasing, and t, shape (m,) each, to values, shape (m,), float64."""

_FIRST = 128  # steps of every function to begin with
_CLOSER = 1.6  # times the caution that is enough where all values of a network are looked at together
_AUDIT = 10  # steps of every function, on average over its group, that are looked at again
_DEEPEST = 40  # halvings after which a step is left as it is
_FINEST = 1 << 48  # of the shortest steps make [0, 1]: 128 steps halved 40 times, and one to spare


@dataclass(frozen=True)
class Steps:
    """Stretches of functions: number of the function, t and the value at both ends, shape (steps,) each."""

    function: Tensor
    low: Tensor
    high: Tensor
    at_low: Tensor
    at_high: Tensor

    def __len__(self) -> int:
        return len(self.low)

    def take(self, rows: Tensor) -> "Steps":
        """Some of them, by a mask or by numbers."""
        return Steps(*(part[rows] for part in self.parts()))

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The five columns."""
        return self.function, self.low, self.high, self.at_low, self.at_high

    @property
    def changes(self) -> Tensor:
        """Whether the sign differs between the ends."""
        return (self.at_low > 0) != (self.at_high > 0)


def together(parts: list[Steps]) -> Steps:
    """Several as one."""
    return Steps(*(torch.cat(columns) for columns in zip(*(part.parts() for part in parts), strict=True)))


@dataclass
class Search:
    """What a search found.

    Attributes:
        first: signs at t = 0, shape (functions,), bool.
        changes: steps between whose ends the sign differs.
        unresolved: steps of each group that stayed suspicious, shape (groups,).
        missed_at_most: changes missed in each group at most with 95 % confidence, shape (groups,).
    """

    first: Tensor
    changes: Steps
    unresolved: np.ndarray
    missed_at_most: np.ndarray


def search(
    evaluate: Evaluate, functions: int, of_group: int, *, caution: float, points: int | None, seed: int,
) -> Search:  # fmt: skip
    """Find the sign changes of functions, ``of_group`` of them in a group: what is found does not depend on the others.

    Args:
        evaluate: the functions.
        functions: how many.
        of_group: functions of one network.
        caution: how many times the departure from the chord seen in a step is allowed for in its halves.
        points: at most about so many values a function, on average over the group; None is no limit.
        seed: names the steps that are looked at again.
    """
    groups = -(-functions // of_group)
    grid = torch.linspace(0, 1, _FIRST + 1, dtype=torch.float64)
    number = torch.arange(functions)
    values = evaluate(number.repeat_interleave(_FIRST + 1), grid.repeat(functions)).reshape(functions, _FIRST + 1)
    looked = torch.full((groups,), _FIRST + 1) * of_group
    steps = Steps(number.repeat_interleave(_FIRST), grid[:-1].repeat(functions), grid[1:].repeat(functions),
                  values[:, :-1].reshape(-1), values[:, 1:].reshape(-1))  # fmt: skip
    above = torch.zeros(len(steps), dtype=torch.float64)  # a quarter of the departure seen one halving before
    unresolved = torch.zeros(groups, dtype=torch.int64)
    done: list[Steps] = []
    level = 0
    while len(steps):
        middle = 0.5 * (steps.low + steps.high)
        at_middle = evaluate(steps.function, middle)
        group = steps.function // of_group
        looked += torch.bincount(group, minlength=groups)
        level += 1
        departure = (0.5 * (steps.at_low + steps.at_high) - at_middle).abs()
        near = torch.maximum(torch.maximum(departure, above), _usual(departure, group, groups))
        near *= 4 * _CLOSER * caution
        halves = Steps(  # both of a step side by side
            steps.function.repeat_interleave(2), _both(steps.low, middle), _both(middle, steps.high),
            _both(steps.at_low, at_middle), _both(at_middle, steps.at_high),
        )  # fmt: skip
        near = near.repeat_interleave(2)
        closest = torch.minimum(halves.at_low.abs(), halves.at_high.abs())
        change = (halves.at_high - halves.at_low).abs()
        rests = (change == 0) & (closest == 0)  # on 0, as what is behind dead neurons does
        again = (change < near) & (4 * closest < near) & ~rests
        over = looked >= (points * of_group if points is not None else torch.iinfo(torch.int64).max)
        stop = again & (over[halves.function // of_group] | (level >= _DEEPEST))
        unresolved += torch.bincount(halves.function[stop] // of_group, minlength=groups)
        again &= ~stop
        done.append(halves.take(~again))
        above = 0.25 * departure.repeat_interleave(2)[again]
        steps = halves.take(again)
    whole = together(done)
    bounds = _audited(evaluate, whole, of_group, groups, seed)
    return Search(values[:, 0] > 0, whole.take(whole.changes), unresolved.numpy(), bounds)


def _both(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], dim=1).reshape(-1)


def _usual(departure: Tensor, group: Tensor, groups: int) -> Tensor:
    """Half the root mean square of the group's departures: a value may be close to its chord by chance."""
    total = torch.zeros(groups, dtype=torch.float64).index_add_(0, group, departure.square())
    mean = total / torch.bincount(group, minlength=groups).clamp_min(1)
    return 0.5 * mean.sqrt()[group]


def _audited(evaluate: Evaluate, steps: Steps, of_group: int, groups: int, seed: int) -> np.ndarray:
    """Changes missed at most in each group, from steps chosen at random that are looked at four times as closely."""
    group = steps.function // of_group
    order = torch.argsort(group, stable=True)
    counts = torch.bincount(group, minlength=groups).tolist()
    chosen, begin = [], 0
    for count in counts:
        some = torch.randperm(count, generator=generator(seed, 0xA0D1))[: _AUDIT * of_group].sort().values
        chosen.append(order[begin + some])
        begin += count
    asked = steps.take(torch.cat(chosen))
    asked = asked.take(torch.argsort(asked.function, stable=True))
    share = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    t = torch.lerp(asked.low[:, None], asked.high[:, None], share)
    inner = evaluate(asked.function.repeat_interleave(3), t.reshape(-1)).reshape(-1, 3)
    sign = torch.cat([asked.at_low[:, None], inner, asked.at_high[:, None]], dim=1) > 0
    more = (sign[:, 1:] != sign[:, :-1]).sum(dim=1) - asked.changes.long()
    own = asked.function // of_group
    hidden = torch.bincount(own, weights=more.double(), minlength=groups)
    hiding = torch.bincount(own, weights=(more > 0).double(), minlength=groups)
    audited = torch.bincount(own, minlength=groups)
    rows = zip(*(column.tolist() for column in (audited, hidden, hiding)), counts, strict=True)
    return np.array([missed_at_most(int(a), int(h), int(w), n) for a, h, w, n in rows])


def in_order(
    evaluate: Evaluate, changes: Steps, of_group: int, groups: int
) -> tuple[Tensor, Steps, np.ndarray]:  # fmt: skip
    """Halve the steps with a change in which other changes of the group lie too, until the order is plain.

    Returns:
        t of every change, the steps in order of group and t, and how many of each group could not be told apart.
    """
    low, high, at_low, at_high = (part.clone() for part in changes.parts()[1:])
    number = changes.function
    group = number // of_group
    while True:
        # ends are whole multiples of the finest step, so these integers are exact; two steps lie side by side or one in
        # the other, and of those that begin together the longer comes first
        begin, end = (group * (2 * _FINEST) + (part * _FINEST).long() for part in (low, high))
        order = torch.from_numpy(np.lexsort((-end.numpy(), begin.numpy())))
        shared = torch.zeros(len(order), dtype=torch.bool)
        shared[1:] = begin[order][1:] < torch.cummax(end[order], dim=0).values[:-1]
        shared[:-1] |= begin[order][1:] < end[order][:-1]
        clash = order[shared].sort().values
        mine = clash[(high[clash] - low[clash]) * _FINEST > 1.5]
        if not len(mine):
            break
        mine = mine[torch.argsort(number[mine], stable=True)]
        middle = 0.5 * (low[mine] + high[mine])
        at_middle = evaluate(number[mine], middle)
        left = (at_low[mine] > 0) != (at_middle > 0)
        at_low[mine], at_high[mine] = (
            torch.where(left, at_low[mine], at_middle), torch.where(left, at_middle, at_high[mine])
        )  # fmt: skip
        low[mine], high[mine] = torch.where(left, low[mine], middle), torch.where(left, middle, high[mine])
    t = low + at_low / (at_low - at_high) * (high - low)
    unresolved = torch.bincount(group[clash], minlength=groups).numpy()
    order = torch.from_numpy(np.lexsort((t.numpy(), group.numpy())))
    return t[order], Steps(number, low, high, at_low, at_high).take(order), unresolved
