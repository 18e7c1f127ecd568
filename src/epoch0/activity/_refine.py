"""Adaptive counting: look closer wherever a value could cross a face unseen, and audit what was left alone.

A value that is on one side of a face at both ends of a step can have crossed it and come back only if it turns back
between, near the face. How far values depart from their chord is seen whenever a step is halved; with
that, few of the steps are suspicious. A network keeps all its neurons in one step at a time, so one point of the curve
serves all of them (Raghu section 2.1.1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from epoch0.activity._suspects import nonzero, suspects
from epoch0.errors import InputError
from epoch0.seeds import generator

Evaluate = Callable[[Tensor], list[Tensor]]
"""t, shape (m,), to the watched values, one tensor (m, columns) a layer, float64 on the CPU."""

CAUTION = 2.5
"""How many times the departure from the chord seen in a step its halves may have; smooth values have a quarter."""

AUDIT = 30
"""Steps that are looked at again."""

_FIRST = 64  # steps to begin with: from there on halves
_DEEPEST = 40  # halvings after which a step is left as it is
_NUMBERS = 1 << 23  # of the values at one end of a batch of steps
_CONFIDENCE = 0.95


@dataclass
class Refined:
    """What was counted.

    Attributes:
        counts: one array a layer, shape (faces, columns).
        points: of the curve at which the network was evaluated.
        steps: between which the crossings were counted.
        resolution: length in t of the shortest step.
        unresolved: steps still suspicious at the finest resolution.
        audited: steps chosen at random that were looked at four times as closely.
        hidden: crossings found there that had been missed.
        margin: crossings that half the caution would not have seen.
        hiding: audited steps in which some had been missed.
    """

    counts: list[np.ndarray]
    points: int = 0
    steps: int = 0
    resolution: float = 1.0
    unresolved: int = 0
    audited: int = 0
    hidden: int = 0
    hiding: int = 0
    margin: int = 0

    @property
    def missed(self) -> float:
        """Crossings missed, estimated from the audit."""
        return self.hidden / self.audited * self.steps if self.audited else float("nan")

    @property
    def missed_at_most(self) -> float:
        """Missed at most, with 95 % confidence."""
        return missed_at_most(self.audited, self.hidden, self.hiding, self.steps)


def check_caution(caution: float, points: int | None) -> None:
    """Refuse a caution that is not positive and a number of points that is none.

    Raises:
        InputError: saying what would work.
    """
    if isinstance(caution, bool) or not 0 < caution < float("inf"):
        raise InputError(f"caution={caution!r}; give a positive number such as {CAUTION:g}.")
    if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < 1):
        raise InputError(f"points={points!r}; give an integer of at least 1, or None for no limit.")


def missed_at_most(audited: int, hidden: int, hiding: int, steps: int) -> float:
    """Crossings missed at most: steps that hide some, with 95 % confidence (Clopper-Pearson), times what each hides.

    Args:
        audited: steps chosen at random that were looked at again.
        hidden: crossings found there that had been missed.
        hiding: audited steps in which some had been missed.
        steps: all of them.
    """
    if not audited:
        return float("nan")
    if audited == steps:
        return float(hidden)
    seen = audited - hiding
    share = float(betaincinv(hiding + 1, seen, _CONFIDENCE)) if seen else 1.0
    return share * steps * max(2.0, hidden / max(1, hiding))


def refine(
    evaluate: Evaluate, faces: Sequence[Sequence[float]], *, first: int = _FIRST, points: int | None = None,
    caution: float = CAUTION, audit: int = AUDIT, seed: int = 0, deepest: int = _DEEPEST,
    corners: Sequence[float] = (),
) -> Refined:  # fmt: skip
    """Count how often every value crosses its faces for t in [0, 1].

    Args:
        evaluate: the network along the curve.
        faces: of each layer.
        first: equal steps to begin with.
        points: evaluate at most so many, about; None is no limit.
        caution: how many times the departure from the chord is allowed for.
        audit: steps to look at again, chosen at random; 0 for none.
        seed: names the random steps.
        deepest: halvings of the first steps at most.
        corners: t at which the curve has corners; steps end there.
    """
    ends = torch.from_numpy(np.union1d(np.linspace(0.0, 1.0, first + 1), np.asarray(corners, dtype=np.float64)))
    values = evaluate(ends)
    counts = [np.zeros((len(f), v.shape[1]), dtype=np.int64) for f, v in zip(faces, values, strict=True)]
    found = Refined(counts, points=len(ends))
    batch = max(16, _NUMBERS // sum(v.shape[1] for v in values))
    left: list[np.ndarray] = []
    right: list[np.ndarray] = []
    states = _states(values, faces)
    work = [_Steps(ends[:-1], ends[1:], [v[:-1] for v in values], [v[1:] for v in values], [s[:-1] for s in states],
                   [s[1:] for s in states], 0, torch.zeros(len(ends) - 1, dtype=torch.bool))]  # fmt: skip
    while work:
        steps = work.pop()
        if len(steps.t0) > batch:
            work.append(steps.take(slice(batch, None)))
            steps = steps.take(slice(batch))
        middle = 0.5 * (steps.t0 + steps.t1)
        at_middle = evaluate(middle)
        found.points += len(middle)
        stop = steps.level + 1 >= deepest or (points is not None and found.points >= points)
        found_suspicious = suspects(steps.at0, at_middle, steps.at1, faces, caution)
        state, level = _states(at_middle, faces), steps.level + 1
        halves = (
            _Steps(steps.t0, middle, steps.at0, at_middle, steps.state0, state, level, steps.late),
            _Steps(middle, steps.t1, at_middle, steps.at1, state, steps.state1, level, steps.late),
        )
        chosen = []
        for half, (again, bolder) in zip(halves, found_suspicious, strict=True):
            if stop:
                found.unresolved += int(again.sum())
                again = torch.zeros_like(again)
            fresh = again & ~bolder & ~half.late  # half the caution would stop here, and count what is seen
            if bool(fresh.any()):
                found.margin -= _flips(half, fresh)
                half.late = half.late | fresh
            if bool((done := ~again).any()):
                _count(found, half, done)
                left.append(half.t0[done].numpy())
                right.append(half.t1[done].numpy())
            chosen.append(again)
        if bool(chosen[0].any() | chosen[1].any()):
            work.append(_joined(halves, (chosen[0], chosen[1])))
    begin, end = np.concatenate(left), np.concatenate(right)
    found.steps, found.resolution = len(begin), float((end - begin).min())
    if audit:
        _audit(found, evaluate, faces, begin, end, audit, seed, batch)
    return found


@dataclass
class _Steps:
    """Steps from t0 to t1: values and states at both ends, how often halved, whether half the caution had stopped."""

    t0: Tensor
    t1: Tensor
    at0: list[Tensor]
    at1: list[Tensor]
    state0: list[Tensor]
    state1: list[Tensor]
    level: int
    late: Tensor

    def take(self, rows: slice) -> "_Steps":
        at0, at1, state0, state1 = (
            [v[rows] for v in part] for part in (self.at0, self.at1, self.state0, self.state1)
        )  # fmt: skip
        return _Steps(self.t0[rows], self.t1[rows], at0, at1, state0, state1, self.level, self.late[rows])


def _states(values: list[Tensor], faces: Sequence[Sequence[float]]) -> list[Tensor]:
    """The number of faces each value is above, int8."""
    found = []
    for value, layer in zip(values, faces, strict=True):
        state = (value > layer[0]).view(torch.int8)
        for face in layer[1:]:
            state += (value > face).view(torch.int8)
        found.append(state)
    return found


def _joined(halves: tuple[_Steps, _Steps], chosen: tuple[Tensor, Tensor]) -> _Steps:
    """The chosen steps of both, as one batch."""
    one, two = halves
    first, second = (rows.nonzero()[:, 0] for rows in chosen)

    def both(a: Tensor, b: Tensor) -> Tensor:
        made = a.new_empty(len(first) + len(second), *a.shape[1:])
        torch.index_select(a, 0, first, out=made[: len(first)])
        torch.index_select(b, 0, second, out=made[len(first) :])
        return made

    def every(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        return [both(v, w) for v, w in zip(a, b, strict=True)]

    return _Steps(
        both(one.t0, two.t0), both(one.t1, two.t1), every(one.at0, two.at0), every(one.at1, two.at1),
        every(one.state0, two.state0), every(one.state1, two.state1), one.level, both(one.late, two.late),
    )  # fmt: skip


def _flips(steps: _Steps, rows: Tensor) -> int:
    """Crossings seen between the ends of some steps."""
    pairs = zip(steps.state0, steps.state1, strict=True)
    return sum(int((before[rows] - after[rows]).abs().sum()) for before, after in pairs)


def _count(found: Refined, steps: _Steps, done: Tensor) -> None:
    """Crossings between the ends of the steps that are done."""
    rows = done.nonzero()[:, 0]
    late = steps.late[rows]
    for counts, before, after in zip(found.counts, steps.state0, steps.state1, strict=True):
        one, two = (before, after) if len(rows) == len(before) else (before[rows], after[rows])
        row, column = nonzero(one != two)
        low, high = one[row, column], two[row, column]
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        for which, count in enumerate(counts):
            met = (low <= which) & (high > which)
            found.margin += int(late[row[met]].sum())
            count += torch.bincount(column[met], minlength=len(count)).numpy()


def _audit(
    found: Refined, evaluate: Evaluate, faces: Sequence[Sequence[float]], begin: np.ndarray, end: np.ndarray,
    audit: int, seed: int, batch: int,
) -> None:  # fmt: skip
    """Look at some steps four times as closely."""
    count = min(audit, len(begin))
    chosen = torch.randperm(len(begin), generator=generator(seed, 0xA0D1))[:count].numpy()
    found.audited = count
    size = max(1, batch // 5)
    for start in range(0, count, size):
        some = chosen[start : start + size]
        share = torch.linspace(0, 1, 5, dtype=torch.float64)
        t = torch.lerp(torch.from_numpy(begin[some])[:, None], torch.from_numpy(end[some])[:, None], share)
        values = evaluate(t.reshape(-1))
        found.points += t.numel()
        more = torch.zeros(len(some), dtype=torch.int64)
        for value, layer in zip(values, faces, strict=True):
            rows = value.reshape(len(some), 5, -1)
            for face in layer:
                above = rows > face
                inner = (above[:, 1:] ^ above[:, :-1]).sum(dim=(1, 2))
                more += (inner - (above[:, 0] ^ above[:, 4]).sum(dim=1)).cpu()
        found.hidden += int(more.sum())
        found.hiding += int((more > 0).sum())
