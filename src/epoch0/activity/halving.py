"""Counting by halving steps: refine wherever a value could cross a face unseen, and check a sample of the rest.

A value that is on one side of a face at both ends of a step can have crossed it and come back only if it turns back
between, near the face. How far values depart from their chord is seen whenever a step is halved; with that, few of the
steps are suspicious. :func:`refine` halves a step for all neurons of a network at once (Raghu section 2.1.1),
:func:`search` for every function by itself, and :func:`in_order` settles which of two sign changes comes first (B.3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from epoch0 import special
from epoch0.seeds import generator

# how many times the departure from the chord seen in a step its halves may have; smooth values have a quarter
CAUTION = 2.5
_DEEPEST = 40  # halvings after which a step is left as it is


def missed_at_most(hidden: Tensor, steps: int) -> float:
    """Crossings missed at most: steps that hide some, with 95 % confidence (Clopper-Pearson), times what each hides.

    Of all ``steps`` some chosen at random were looked at again; ``hidden`` is how many crossings each of these hid.
    """
    found, hiding, seen = int(hidden.sum()), int((hidden > 0).sum()), int((hidden == 0).sum())
    if len(hidden) == steps:
        return float(found)
    share = float(special.betaincinv(hiding + 1, seen, 0.95)) if seen else 1.0
    return share * steps * max(2.0, found / max(1, hiding))


class Steps(NamedTuple):
    """Steps of functions along t: number of the function, t and the values at both ends.

    Shapes are (steps,); a function of several values has them in columns, (steps, columns).
    """

    function: Tensor
    low: Tensor
    high: Tensor
    at_low: Tensor
    at_high: Tensor

    def take(self, rows: Tensor | slice) -> "Steps":
        return Steps(*(column[rows] for column in self))

    def halves(self, middle: Tensor, at_middle: Tensor) -> tuple["Steps", "Steps"]:
        first = Steps(self.function, self.low, middle, self.at_low, at_middle)
        return first, Steps(self.function, middle, self.high, at_middle, self.at_high)


def together(parts: Sequence[Steps]) -> Steps:
    return Steps(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _hidden(above: Tensor) -> Tensor:
    """Crossings of columns between places of each step, (steps, places, columns), less those that its ends show."""
    return (above[:, 1:] ^ above[:, :-1]).sum(dim=(1, 2)) - (above[:, 0] ^ above[:, -1]).sum(dim=1)


# All neurons of a network in the same steps.

_FIRST = 64  # steps to begin with
_AUDIT = 30  # steps chosen at random that are looked at again
_NUMBERS = 1 << 23  # of the values at one end of a batch of steps
_NARROW = 64  # columns below which the mean square of one step tells little


@dataclass
class Refined:
    """The counts of :func:`refine`."""

    counts: list[np.ndarray]  # one array a layer, shape (faces, columns)
    points: int = 0  # of the curve at which the network was evaluated
    resolution: float = 1.0  # length in t of the shortest step
    unresolved: int = 0  # steps still suspicious at the finest resolution
    missed: float = 0.0  # crossings missed, estimated from steps chosen at random, looked at four times as closely
    missed_at_most: float = 0.0  # missed at most, with 95 % confidence


def refine(
    evaluate: Callable[[Tensor], list[Tensor]],
    faces: Sequence[Sequence[float]],
    *,
    points: int | None = None,
    caution: float = CAUTION,
    seed: int = 0,
    corners: Sequence[float] = (),
) -> Refined:
    """Count how often every value crosses the faces of its layer for t in [0, 1].

    ``evaluate`` takes t, shape (m,), to the watched values, one tensor (m, columns) a layer, float64 on the CPU, at
    about ``points`` places at most. Steps end at the corners of the curve.
    """
    ends = torch.from_numpy(np.union1d(np.linspace(0.0, 1.0, _FIRST + 1), np.asarray(corners, dtype=np.float64)))
    layers = evaluate(ends)
    counts = [np.zeros((len(f), v.shape[1]), dtype=np.int64) for f, v in zip(faces, layers, strict=True)]
    stops = np.cumsum([v.shape[1] for v in layers]).tolist()
    watched = [(slice(start, stop), f) for start, stop, f in zip([0, *stops], stops, faces, strict=False)]
    found, values = Refined(counts, points=len(ends)), torch.cat(layers, 1)
    batch = max(16, _NUMBERS // values.shape[1])
    done: list[Tensor] = []
    one = torch.zeros(len(ends) - 1, dtype=torch.int64)
    work = [(Steps(one, ends[:-1], ends[1:], values[:-1], values[1:]), 0)]  # and how often they were halved
    while work:
        steps, level = work.pop()
        if len(steps.low) > batch:
            work.append((steps.take(slice(batch, None)), level))
            steps = steps.take(slice(batch))
        middle = 0.5 * (steps.low + steps.high)
        at_middle = torch.cat(evaluate(middle), 1)
        found.points += len(middle)
        stop, chosen = level + 1 >= _DEEPEST or (points is not None and found.points >= points), []
        suspects = _suspects(steps, at_middle, watched, caution)
        for half, again in zip(steps.halves(middle, at_middle), suspects, strict=True):
            if stop:
                found.unresolved += int(again.sum())
                again = torch.zeros_like(again)
            still = half.take(~again)
            for count, (columns, layer) in zip(found.counts, watched, strict=True):
                before, after = still.at_low[:, columns], still.at_high[:, columns]
                count += torch.stack([((before > f) != (after > f)).sum(dim=0) for f in layer]).numpy()
            done.append(torch.stack([still.low, still.high]))
            chosen.append(half.take(again))
        if sum(len(half.low) for half in chosen):
            work.append((together(chosen), level + 1))
    begin, end = torch.cat(done, dim=1)
    found.resolution = float((end - begin).min())
    chosen_again = torch.randperm(len(begin), generator=generator(seed, 0xA0D1))[:_AUDIT]
    share, hidden = torch.linspace(0, 1, 5, dtype=torch.float64), list[Tensor]()
    for chunk in chosen_again.split(max(1, batch // 5)):
        t = torch.lerp(begin[chunk, None], end[chunk, None], share)
        found.points += t.numel()
        pairs = [(v, face) for v, layer in zip(evaluate(t.reshape(-1)), faces, strict=True) for face in layer]
        hidden.append(torch.stack([_hidden(v.reshape(len(chunk), 5, -1) > face) for v, face in pairs]).sum(dim=0))
    more = torch.cat(hidden)
    found.missed = int(more.sum()) / len(more) * len(begin)
    found.missed_at_most = missed_at_most(more, len(begin))
    return found


def _suspects(
    steps: Steps, at_middle: Tensor, watched: Sequence[tuple[slice, Sequence[float]]], caution: float
) -> list[Tensor]:
    """For both halves of each step, whether it may hide crossings."""
    found = [torch.zeros(len(at_middle), dtype=torch.bool) for _ in range(2)]
    for columns, layer in watched:
        a, m, b = steps.at_low[:, columns], at_middle[:, columns], steps.at_high[:, columns]
        near = torch.add(a, b).mul_(0.5).sub_(m).abs_()
        # a value may be close to its chord by chance, so it is given half of what is usual in its layer at least
        typical = torch.linalg.vector_norm(near, dim=1, keepdim=True).mul_(0.5 / near.shape[1] ** 0.5)
        if near.shape[1] < _NARROW:
            typical = torch.maximum(2 * typical, typical.mean())
        near = torch.maximum(near, typical, out=near).mul_(4 * caution)
        # a half is suspicious where it changes by less than near and one of its ends is within near / 4 of a face; then
        # the middle is within 5/4 near of that face, which few values are
        row, column = (_distance(m, layer).mul_(0.8) < near).nonzero(as_tuple=True)
        reach, middle = near[row, column], m[row, column]
        away = _distance(middle, layer)
        for hiding, end in zip(found, (a[row, column], b[row, column]), strict=True):
            worst = torch.maximum((end - middle).abs(), 4 * torch.minimum(away, _distance(end, layer)))
            worst = torch.where(worst == 0, torch.inf, worst)  # it stays on its face, as values behind dead neurons do
            hiding[row[worst < reach]] = True
    return found


def _distance(values: Tensor, faces: Sequence[float]) -> Tensor:
    found = (values - faces[0]).abs_()
    for face in faces[1:]:
        found = torch.minimum(found, (values - face).abs_(), out=found)
    return found


# Every function in steps of its own.

Evaluate = Callable[[Tensor, Tensor], Tensor]  # numbers of functions and t, shape (m,) each, to values, (m,), float64
_FIRST_OF_EACH = 128  # steps of every function to begin with
_CLOSER = 1.6  # times the caution that is enough where all values of a network are looked at together
_AUDIT_OF_EACH = 10  # steps of every function, on average, that are looked at again
_FINEST = 1 << 48  # of the shortest steps make [0, 1]: 128 steps halved 40 times, and one to spare


@dataclass
class Search:
    """The result of :func:`search`."""

    first: Tensor  # signs at t = 0, shape (functions,), bool
    changes: Steps  # steps between whose ends the sign differs
    unresolved: int  # steps that stayed suspicious
    missed_at_most: float  # changes missed at most with 95 % confidence


def search(evaluate: Evaluate, functions: int, caution: float, points: int | None, seed: int) -> Search:
    """Find the sign changes of functions, each in steps of its own, with about ``points`` values each at most."""
    grid, number = torch.linspace(0, 1, _FIRST_OF_EACH + 1, dtype=torch.float64), torch.arange(functions)
    values = evaluate(number.repeat_interleave(len(grid)), grid.repeat(functions)).reshape(functions, -1)
    looked = values.numel()
    ends = (grid[:-1].repeat(functions), grid[1:].repeat(functions), values[:, :-1].flatten(), values[:, 1:].flatten())
    steps = Steps(number.repeat_interleave(_FIRST_OF_EACH), *ends)
    above = torch.zeros(len(steps.low), dtype=torch.float64)  # a quarter of the departure seen one halving before
    level, unresolved = 0, 0
    done: list[Steps] = []
    while len(steps.low):
        middle = 0.5 * (steps.low + steps.high)
        at_middle = evaluate(steps.function, middle)
        looked += len(middle)
        level += 1
        departure = (0.5 * (steps.at_low + steps.at_high) - at_middle).abs()
        # a value may be close to its chord by chance, so it is given half of what is usual at least
        near = torch.maximum(torch.maximum(departure, above), 0.5 * departure.square().mean().sqrt())
        near = (near * (4 * _CLOSER * caution)).repeat_interleave(2)
        pairs = zip(*steps.halves(middle, at_middle), strict=True)
        halves = Steps(*(torch.stack(pair, dim=1).flatten() for pair in pairs))  # those of a step side by side
        closest = torch.minimum(halves.at_low.abs(), halves.at_high.abs())
        change = (halves.at_high - halves.at_low).abs()
        rests = (change == 0) & (closest == 0)  # on 0, as values behind dead neurons are
        again = (change < near) & (4 * closest < near) & ~rests
        if level >= _DEEPEST or (points is not None and looked >= points * functions):
            unresolved = int(again.sum())
            again = torch.zeros_like(again)
        done.append(halves.take(~again))
        above, steps = 0.25 * departure.repeat_interleave(2)[again], halves.take(again)
    whole = together(done)
    count = len(whole.low)  # some of these, chosen at random, are looked at four times as closely
    asked = whole.take(torch.randperm(count, generator=generator(seed, 0xA0D1))[: _AUDIT_OF_EACH * functions])
    t = torch.lerp(asked.low[:, None], asked.high[:, None], torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    inner = evaluate(asked.function.repeat_interleave(3), t.flatten()).reshape(-1, 3)
    more = _hidden(torch.cat([asked.at_low[:, None], inner, asked.at_high[:, None]], dim=1)[:, :, None] > 0)
    changes = whole.take((whole.at_low > 0) != (whole.at_high > 0))
    return Search(values[:, 0] > 0, changes, unresolved, missed_at_most(more, count))


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
        if not len(longer := clash[(high[clash] - low[clash]) * _FINEST > 1.5]):
            break
        middle = 0.5 * (low[longer] + high[longer])
        at_middle = evaluate(number[longer], middle)
        left = (at_low[longer] > 0) != (at_middle > 0)
        at_low[longer[~left]], low[longer[~left]] = at_middle[~left], middle[~left]
        at_high[longer[left]], high[longer[left]] = at_middle[left], middle[left]
    t = low + at_low / (at_low - at_high) * (high - low)
    order = torch.argsort(t, stable=True)
    return t[order], number[order], len(clash)
