"""Which steps along a curve may hide crossings: a value that is slow there, near a face, and can turn between."""

from collections.abc import Sequence

import torch
from torch import Tensor

_CACHED = 1 << 16  # numbers looked at together
_NARROW = 64  # columns below which the mean square of one step tells little


def suspects(
    at0: list[Tensor], at_middle: list[Tensor], at1: list[Tensor], faces: Sequence[Sequence[float]], caution: float
) -> list[tuple[Tensor, Tensor]]:
    """For both halves of each step, whether it may hide crossings: with the caution asked for, and with half of it.

    Args:
        at0: values where the steps begin, one tensor (steps, columns) a layer.
        at_middle: values in their middle.
        at1: values where they end.
        faces: of each layer.
        caution: how many times the departure from the chord is allowed for.
    """
    rows = len(at0[0])
    none = torch.zeros(rows, dtype=torch.bool)
    found = [(none.clone(), none.clone()) for _ in range(2)]
    left = torch.arange(rows)  # steps of which more may be found out
    for number in reversed(range(len(faces))):  # deep layers have most crossings
        layer, whole = faces[number], len(left) == rows
        a, m, b = (v[number] if whole else v[number][left] for v in (at0, at_middle, at1))
        verdicts = found if whole else [(hiding[left], bolder[left]) for hiding, bolder in found]
        size = max(1, _CACHED // a.shape[1]) if a.shape[1] >= _NARROW else len(left)
        for low in range(0, len(left), max(1, size)):
            part = slice(low, low + size)
            _of_layer(a[part], m[part], b[part], layer, caution, [(f[part], h[part]) for f, h in verdicts])
        if not whole:
            for kept, fresh in zip(found, verdicts, strict=True):
                for verdict, told in zip(kept, fresh, strict=True):
                    verdict[left] = told
        more = ~(found[0][0] & found[0][1] & found[1][0] & found[1][1])
        if int(more.sum()) < 0.7 * len(left):
            left = more.nonzero()[:, 0]
    return found


def _of_layer(
    a: Tensor, m: Tensor, b: Tensor, faces: Sequence[float], caution: float, found: list[tuple[Tensor, Tensor]]
) -> None:
    near = torch.add(a, b).mul_(0.5).sub_(m).abs_()
    # a value may be close to its chord by chance, so it is given half of what is usual in its layer at least
    typical = torch.linalg.vector_norm(near, dim=1, keepdim=True).mul_(0.5 / near.shape[1] ** 0.5)
    if near.shape[1] < _NARROW:
        typical = torch.maximum(2 * typical, typical.mean())
    near = torch.maximum(near, typical, out=near).mul_(4 * caution)
    # a half is suspicious where it changes by less than near and one of its ends is within near / 4 of a face; then the
    # middle is within 5/4 near of that face, which few values are
    row, column = nonzero(_distance(m, faces).mul_(0.8) < near)
    place = row * near.shape[1] + column
    reach, first, middle, last = (torch.take(v, place) for v in (near, a, m, b))
    away = _distance(middle, faces)
    for (hiding, bolder), end in zip(found, (first, last), strict=True):
        change = (end - middle).abs_()
        closest = torch.minimum(away, _distance(end, faces)).mul_(4)
        worst = torch.maximum(change, closest, out=change)
        worst = torch.where(worst == 0, torch.inf, worst)  # it rests on its face, as what is behind dead neurons does
        hiding[row[worst < reach]] = True
        bolder[row[worst < 0.5 * reach]] = True


def _distance(values: Tensor, faces: Sequence[float]) -> Tensor:
    """Distance to the nearest face."""
    if len(faces) == 2:
        centre, half = 0.5 * (faces[0] + faces[1]), 0.5 * (faces[1] - faces[0])
        from_centre = (values - centre).abs_() if centre else values.abs()
        return from_centre.sub_(half).abs_()
    found = (values - faces[0]).abs_() if faces[0] else values.abs()
    for face in faces[1:]:
        found = torch.minimum(found, (values - face).abs_(), out=found)
    return found


def nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the true entries; eight at a time, as most are false.

    >>> nonzero(torch.tensor([[False, True], [True, False]]))    # shape (2,) each
    (tensor([0, 1]), tensor([1, 0]))
    """
    rows, columns = mask.shape
    if columns % 8 or not mask.is_contiguous():
        found = mask.nonzero()
        return found[:, 0], found[:, 1]
    words = mask.view(torch.int64).nonzero()
    eight = mask.view(rows, columns // 8, 8)[words[:, 0], words[:, 1]].nonzero()
    word = words[eight[:, 0]]
    return word[:, 0], 8 * word[:, 1] + eight[:, 1]
