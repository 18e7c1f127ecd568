"""Sign changes by halving steps: look closer wherever a value could pass 0 unseen (Raghu appendix B.3).

A value that has one sign at both ends of a step can have passed 0 and come back only if it turns back between, near 0.
How far values depart from their chord is seen whenever a step is halved; with that, few of the steps are suspicious.
:func:`search` halves the steps of every function for itself, and :func:`in_order` settles which of two sign changes
comes first.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# numbers of functions and t, shape (m,) each, to values, (m,), float64
Evaluate = Callable[[Tensor, Tensor], Tensor]
_FIRST = 128  # steps of every function to begin with
# how many times the departure from the chord seen in a step its halves may have; smooth values have a quarter
_CAUTION = 4.0
_DEEPEST = 40  # halvings after which a step is left as it is
_FINEST = 1 << 48  # of the shortest steps make [0, 1]: 128 steps halved 40 times, and one to spare


class Steps(NamedTuple):
    """Steps of functions along t: number of the function, t and the values at both ends, shape (steps,) each."""

    function: Tensor
    low: Tensor
    high: Tensor
    at_low: Tensor
    at_high: Tensor

    def take(self, rows: Tensor) -> "Steps":
        return Steps(*(column[rows] for column in self))


def search(evaluate: Evaluate, functions: int) -> tuple[Tensor, Steps, int]:
    """The sign changes of functions, each in steps of its own.

    Whether each is positive at t = 0, the steps between whose ends a sign differs, how many steps stayed suspicious.
    """
    grid = torch.linspace(0, 1, _FIRST + 1, dtype=torch.float64)
    number = torch.arange(functions)
    values = evaluate(number.repeat_interleave(len(grid)), grid.repeat(functions)).reshape(functions, -1)
    ends = (grid[:-1].repeat(functions), grid[1:].repeat(functions), values[:, :-1].flatten(), values[:, 1:].flatten())
    steps = Steps(number.repeat_interleave(_FIRST), *ends)
    above = torch.zeros(len(steps.low), dtype=torch.float64)  # a quarter of the departure seen one halving before
    level, unresolved = 0, 0
    done: list[Steps] = []
    while len(steps.low):
        middle = 0.5 * (steps.low + steps.high)
        at_middle = evaluate(steps.function, middle)
        level += 1
        departure = (0.5 * (steps.at_low + steps.at_high) - at_middle).abs()
        # a value may be close to its chord by chance, so it is given half of what is usual at least
        usual = 0.5 * departure.square().mean().sqrt()
        near = torch.maximum(torch.maximum(departure, above), usual)
        near = (near * (4 * _CAUTION)).repeat_interleave(2)
        first = Steps(steps.function, steps.low, middle, steps.at_low, at_middle)
        second = Steps(steps.function, middle, steps.high, at_middle, steps.at_high)
        pairs = zip(first, second, strict=True)
        halves = Steps(*(torch.stack(pair, dim=1).flatten() for pair in pairs))  # those of a step side by side
        closest = torch.minimum(halves.at_low.abs(), halves.at_high.abs())
        change = (halves.at_high - halves.at_low).abs()
        rests = (change == 0) & (closest == 0)  # on 0, as what is behind dead neurons does
        again = (change < near) & (4 * closest < near) & ~rests
        if level >= _DEEPEST:
            unresolved = int(again.sum())
            again = torch.zeros_like(again)
        done.append(halves.take(~again))
        above = 0.25 * departure.repeat_interleave(2)[again]
        steps = halves.take(again)
    whole = Steps(*(torch.cat(columns) for columns in zip(*done, strict=True)))
    changes = whole.take((whole.at_low > 0) != (whole.at_high > 0))
    return values[:, 0] > 0, changes, unresolved


def in_order(evaluate: Evaluate, changes: Steps) -> tuple[Tensor, Tensor, int]:
    """Halve steps that lie in each other until the order is plain: t and function of each, how many stay unordered."""
    number, (low, high, at_low, at_high) = changes.function, (column.clone() for column in changes[1:])
    while True:
        # ends are whole multiples of the finest step, so these integers are exact; two steps lie side by side or one in
        # the other, and of those that begin together the longer comes first
        begin, end = ((part * _FINEST).long() for part in (low, high))
        order = torch.from_numpy(np.lexsort((-end.numpy(), begin.numpy())))
        shared = torch.zeros(len(order), dtype=torch.bool)
        shared[1:] = begin[order][1:] < torch.cummax(end[order], dim=0).values[:-1]
        shared[:-1] |= begin[order][1:] < end[order][:-1]
        clash = order[shared]
        mine = clash[(high[clash] - low[clash]) * _FINEST > 1.5]
        if not len(mine):
            break
        middle = 0.5 * (low[mine] + high[mine])
        at_middle = evaluate(number[mine], middle)
        left = (at_low[mine] > 0) != (at_middle > 0)
        at_low[mine[~left]], low[mine[~left]] = at_middle[~left], middle[~left]
        at_high[mine[left]], high[mine[left]] = at_middle[left], middle[left]
    t = low + at_low / (at_low - at_high) * (high - low)
    order = torch.argsort(t, stable=True)
    return t[order], number[order], len(clash)
