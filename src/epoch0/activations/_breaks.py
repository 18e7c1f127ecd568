"""Break points of a function known only by calling it: where phi or its derivative jumps, found by bisection."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.activations._rule import Array
from epoch0.errors import InputError

_MOST = 200
# Jumps smaller than this part of the function's slope are left to the quadrature, which refines itself.
_JUMP = 1e-6


def scan_points() -> Array:
    """Where a function is looked at: every 0.01 out to 12, then ever wider out to 10,000; never on a round number."""
    near = np.arange(-1200, 1200) * 0.01 + 0.00317
    far = np.geomspace(12.0031, 1e4, 400)
    return np.concatenate([-far[::-1], near, far])


def find_breaks(function: Callable[[Any], Array], derivative: Callable[[Any], Array], what: str) -> tuple[float, ...]:
    """The points where phi or phi' jumps, to about 14 digits, increasing; more than 200 are an error."""

    def look(h: Array) -> Array:
        """Value and slope at the points, shape (2, n); what is not finite counts as a huge number."""
        return np.nan_to_num(np.stack([function(h), derivative(h)]), nan=1e300, posinf=1e300, neginf=-1e300)

    marks = scan_points()
    left, right = marks[:-1], marks[1:]
    found: list[float] = []
    while len(left):
        low, high = _close_in(look, left, right)
        if not len(low):
            break
        points = [_round_between(float(a), float(b)) for a, b in zip(low, high, strict=True)]
        found.extend(points)
        if len(found) > _MOST:
            raise InputError(
                f"{what} has more than {_MOST} break points between -10,000 and 10,000, or a derivative that grows "
                "without bound; give the break points that matter as breaks=(...)."
            )
        # an interval may hold more than one: look again on both sides of each
        owner = np.searchsorted(left, low, side="right") - 1
        gap = 4 * (high - low)
        left, right = np.concatenate([left[owner], high + gap]), np.concatenate([low - gap, right[owner]])
        order = np.argsort(left)
        left, right = left[order], right[order]
        keep = right > left
        left, right = left[keep], right[keep]
    return tuple(sorted(set(found)))


def _close_in(look: Callable[[Array], Array], left: Array, right: Array) -> tuple[Array, Array]:
    """Halve every interval again and again, keeping the half that bends more, until only jumps still bend."""
    low, high = left, right
    at_low, at_high = look(low), look(high)
    keep = _bend(low, at_low, high, at_high)[1]
    for _ in range(64):
        low, high, at_low, at_high = low[keep], high[keep], at_low[:, keep], at_high[:, keep]
        narrow = high - low <= 2e-14 * np.maximum(1.0, np.abs(low))
        if not len(low) or narrow.all():
            break
        middle = (low + high) / 2
        at_middle = look(middle)
        first, first_keep = _bend(low, at_low, middle, at_middle)
        second, second_keep = _bend(middle, at_middle, high, at_high)
        goes_left = first >= second
        low, high = np.where(goes_left, low, middle), np.where(goes_left, middle, high)
        at_low, at_high = np.where(goes_left, at_low, at_middle), np.where(goes_left, at_middle, at_high)
        keep = np.where(goes_left, first_keep, second_keep)
    # what is smooth bends a thousand times as much over a thousand times the width; a jump stays what it is
    wide = 500 * (high - low)
    around = _bend(low - wide, look(low - wide), high + wide, look(high + wide))[0]
    jumps = _bend(low, at_low, high, at_high)[0] > around / 4
    return low[jumps], high[jumps]


def _bend(low: Array, at_low: Array, high: Array, at_high: Array) -> tuple[Array, NDArray[np.bool_]]:
    """How much phi' changes over each interval, and phi beyond its slope; and whether that is more than rounding."""
    with np.errstate(all="ignore"):
        width = high - low
        kink = np.abs(at_high[1] - at_low[1])
        jump = np.abs(at_high[0] - at_low[0] - width * (at_high[1] + at_low[1]) / 2)
        slope = 1e-3 + np.maximum(np.abs(at_high[1]), np.abs(at_low[1]))
        noise = 1e-12 * (np.abs(at_high[0]) + np.abs(at_low[0]))
        return kink + jump, (kink > _JUMP * slope) | (jump > _JUMP * slope + noise)


def _round_between(low: float, high: float) -> float:
    """The roundest number in the interval, give or take rounding, so that a break at 0.5 is 0.5."""
    middle, slack = (low + high) / 2, 2 * (high - low)
    for digits in range(13):
        if abs(round(middle, digits) - middle) <= slack:
            return round(middle, digits) + 0.0
    return middle
