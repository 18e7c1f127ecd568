"""Adaptive counting: look closer wherever a value could cross a face unseen, and audit what was left alone.

A value that is on one side of a face at both ends of a step can have crossed it and come back only if it turns back
between, near the face. How far values depart from their chord is seen whenever a step is halved; with
that, few of the steps are suspicious. A network keeps all its neurons in one step at a time, so one point of the curve
serves all of them (Raghu section 2.1.1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from epoch0.errors import InputError
from epoch0.seeds import generator

Evaluate = Callable[[Tensor], list[Tensor]]
"""t, shape (m,), to the watched values, one tensor (m, columns) a layer, float64."""

CAUTION = 2.0
"""How many times the departure from the chord seen in a step its halves may have; smooth values have a quarter."""

AUDIT = 30
"""Steps that are looked at again."""

_FIRST = 64  # steps to begin with: from there on halves
_DEEPEST = 40  # halvings after which a step is left as it is
_NUMBERS = 1 << 23  # of the values at one end of a batch of steps
_CACHED = 1 << 15  # numbers looked at together
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
        events: where asked for: middle of the step and column of every crossing of the first layer, in order of t.
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
    events: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (np.zeros(0), np.zeros(0, dtype=np.int64)))

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
    caution: float = CAUTION, audit: int = AUDIT, ordered: bool = False, seed: int = 0, deepest: int = _DEEPEST,
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
        ordered: halve steps until each has at most one crossing, and keep them in order.
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
    moments: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    work = [_Steps(ends[:-1], ends[1:], [v[:-1] for v in values], [v[1:] for v in values], 0,
                   torch.zeros(len(ends) - 1, dtype=torch.bool))]  # fmt: skip
    while work:
        steps = work.pop()
        if len(steps.t0) > batch:
            work.append(steps.take(slice(batch, None)))
            steps = steps.take(slice(batch))
        middle = 0.5 * (steps.t0 + steps.t1)
        at_middle = evaluate(middle)
        found.points += len(middle)
        stop = steps.level + 1 >= deepest or (points is not None and found.points >= points)
        suspects = _suspects(steps.at0, at_middle, steps.at1, faces, caution, ordered)
        halves = (
            _Steps(steps.t0, middle, steps.at0, at_middle, steps.level + 1, steps.late),
            _Steps(middle, steps.t1, at_middle, steps.at1, steps.level + 1, steps.late),
        )
        chosen = []
        for half, (again, bolder) in zip(halves, suspects, strict=True):
            if stop:
                found.unresolved += int(again.sum())
                again = torch.zeros_like(again)
            fresh = again & ~bolder & ~half.late  # half the caution would stop here, and count what is seen
            if bool(fresh.any()):
                found.margin -= _flips(half, faces, fresh)
                half.late = half.late | fresh
            if bool((done := ~again).any()):
                _count(found, half, faces, done, moments if ordered else None, columns)
                left.append(half.t0[done].numpy())
                right.append(half.t1[done].numpy())
            chosen.append(again)
        if bool(chosen[0].any() | chosen[1].any()):
            work.append(_joined(halves, (chosen[0], chosen[1])))
    begin, end = np.concatenate(left), np.concatenate(right)
    found.steps, found.resolution = len(begin), float((end - begin).min())
    if ordered and moments:
        when, which = np.concatenate(moments), np.concatenate(columns)
        order = np.argsort(when, kind="stable")
        found.events = when[order], which[order]
    if audit:
        _audit(found, evaluate, faces, begin, end, audit, seed, batch)
    return found


@dataclass
class _Steps:
    """Steps from t0 to t1 with the values at both ends, how often halved, and whether half the caution would not."""

    t0: Tensor
    t1: Tensor
    at0: list[Tensor]
    at1: list[Tensor]
    level: int
    late: Tensor

    def take(self, rows: slice) -> "_Steps":
        at0, at1 = [v[rows] for v in self.at0], [v[rows] for v in self.at1]
        return _Steps(self.t0[rows], self.t1[rows], at0, at1, self.level, self.late[rows])


def _joined(halves: tuple[_Steps, _Steps], chosen: tuple[Tensor, Tensor]) -> _Steps:
    """The chosen steps of both, as one batch."""
    one, two = halves
    first, second = chosen

    def both(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a[first], b[second]])

    return _Steps(
        both(one.t0, two.t0), both(one.t1, two.t1), [both(a, b) for a, b in zip(one.at0, two.at0, strict=True)],
        [both(a, b) for a, b in zip(one.at1, two.at1, strict=True)], one.level, both(one.late, two.late),
    )  # fmt: skip


def _suspects(
    at0: list[Tensor], at_middle: list[Tensor], at1: list[Tensor], faces: Sequence[Sequence[float]], caution: float,
    ordered: bool,
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """For both halves of each step, whether it may hide crossings: with the caution asked for, and with half of it."""
    rows = len(at0[0])
    none = torch.zeros(rows, dtype=torch.bool, device=at0[0].device)
    found = [(none.clone(), none.clone()) for _ in range(2)]
    crossed = [torch.zeros(rows, dtype=torch.int64, device=at0[0].device) for _ in range(2)]
    left = torch.arange(rows, device=none.device)  # steps of which more may be found out
    for number in reversed(range(len(faces))):  # deep layers have most crossings
        layer, whole = faces[number], len(left) == rows
        a, m, b = (v[number] if whole else v[number][left] for v in (at0, at_middle, at1))
        verdicts = found if whole else [(hiding[left], bolder[left]) for hiding, bolder in found]
        size = max(1, _CACHED // a.shape[1]) if a.shape[1] >= 64 else len(left)
        for low in range(0, len(left), max(1, size)):
            part = slice(low, low + size)
            _layer_suspects(a[part], m[part], b[part], layer, caution, [(f[part], h[part]) for f, h in verdicts])
        if not whole:
            for kept, fresh in zip(found, verdicts, strict=True):
                for verdict, told in zip(kept, fresh, strict=True):
                    verdict[left] = told
        if ordered:
            for side, (first, second) in enumerate(((a, m), (m, b))):
                for face in layer:
                    crossed[side] += ((first > face) != (second > face)).sum(dim=1)
            continue
        more = ~(found[0][0] & found[0][1] & found[1][0] & found[1][1])
        if int(more.sum()) < 0.7 * len(left):
            left = more.nonzero()[:, 0]
    if ordered:
        for side in range(2):
            for verdict in found[side]:
                verdict |= crossed[side] > 1
    return found


def _layer_suspects(
    a: Tensor, m: Tensor, b: Tensor, faces: Sequence[float], caution: float, found: list[tuple[Tensor, Tensor]]
) -> None:
    near = torch.add(a, b).mul_(0.5).sub_(m).abs_()
    # a value may be close to its chord by chance, so it is given half of what is usual in its layer at least
    typical = torch.linalg.vector_norm(near, dim=1, keepdim=True).mul_(0.5 / near.shape[1] ** 0.5)
    if near.shape[1] < 64:  # too few for the mean square of one step to tell much
        typical = torch.maximum(2 * typical, typical.mean())
    near = torch.maximum(near, typical, out=near).mul_(4 * caution)
    away = [_distance(values, faces) for values in (a, m, b)]
    for side, (hiding, bolder) in enumerate(found):
        first, second = (a, m, b)[side : side + 2]
        change = torch.sub(second, first).abs_()
        closest = torch.minimum(away[side], away[side + 1]).mul_(4)
        row, column = _nonzero((change < near) & (closest < near))  # slow enough to turn inside, and near a face: few
        hiding[row] = True
        reach = near[row, column] / 2
        bolder[row[(change[row, column] < reach) & (closest[row, column] < reach)]] = True


def _distance(values: Tensor, faces: Sequence[float]) -> Tensor:
    """Distance to the nearest face."""
    found = (values - faces[0]).abs_()
    for face in faces[1:]:
        found = torch.minimum(found, (values - face).abs_(), out=found)
    return found


def _nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the true entries; eight at a time, as most are false."""
    rows, columns = mask.shape
    if columns % 8 or not mask.is_contiguous():
        found = mask.nonzero()
        return found[:, 0], found[:, 1]
    words = mask.view(torch.int64).nonzero()
    eight = mask.view(rows, columns // 8, 8)[words[:, 0], words[:, 1]].nonzero()
    word = words[eight[:, 0]]
    return word[:, 0], 8 * word[:, 1] + eight[:, 1]


def _flips(steps: _Steps, faces: Sequence[Sequence[float]], rows: Tensor) -> int:
    """Crossings seen between the ends of some steps."""
    total = 0
    for before, after, layer in zip(steps.at0, steps.at1, faces, strict=True):
        a, b = before[rows], after[rows]
        total += sum(int(((a > face) ^ (b > face)).sum()) for face in layer)
    return total


def _count(
    found: Refined, steps: _Steps, faces: Sequence[Sequence[float]], done: Tensor, moments: list[np.ndarray] | None,
    columns: list[np.ndarray],
) -> None:  # fmt: skip
    rows = done.nonzero()[:, 0]
    for number, (before, after, layer) in enumerate(zip(steps.at0, steps.at1, faces, strict=True)):
        size = max(1, _CACHED // before.shape[1])
        flips: list[list[Tensor]] = [[] for _ in layer]
        for begin in range(0, len(rows), size):
            part = rows[begin : begin + size]
            a, b = before[part], after[part]
            for which, face in enumerate(layer):
                at, column = _nonzero((a > face) ^ (b > face))
                flips[which].append(torch.stack([part[at], column]))
        for which, face in enumerate(layer):
            row, column = torch.cat(flips[which], dim=1)
            found.margin += int(steps.late[row].sum())
            found.counts[number][which] += torch.bincount(column, minlength=before.shape[1]).cpu().numpy()
            if moments is not None and number == 0:
                share = ((face - before[row, column]) / (after[row, column] - before[row, column])).cpu()
                low, high = steps.t0[row.cpu()], steps.t1[row.cpu()]
                moments.append((low + share * (high - low)).numpy())
                columns.append(column.cpu().numpy())


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
