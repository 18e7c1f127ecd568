"""Small pictures of one number a layer, as inline SVG that follows the page's light or dark colours.

The report must be one file that asks for nothing and is read in either colour scheme and on a phone, so its charts are
drawn here as text with CSS classes instead of as images of fixed colours, and fit the larger letters on a phone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal, TypeGuard

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 14, 14, 54
TICKS = 6  # at most about this many labelled ticks on an axis
LETTER = 9.5  # width of a letter at most
CROWDED = 50  # positions from which on points are drawn small

Marker = Literal["circle", "square", "diamond", "none"]

POINTS: dict[Marker, str] = {
    "circle": '<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="{size}">{tip}</circle>',
    "square": '<rect class="point" x="{left:.1f}" y="{top:.1f}" width="{side}" height="{side}">{tip}</rect>',
    "diamond": '<path class="point" d="M{x:.1f},{peak:.1f}l{wide},{wide}l-{wide},{wide}l-{wide},-{wide}z">{tip}</path>',
    "none": "",
}


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str  # what it is called in the legend
    style: str  # CSS class that gives its colour and dashes, such as 'forward', 'backward' or 'predicted'
    values: Sequence[float | None]  # one a position; None, what is not positive or not finite leaves a gap
    errors: Sequence[float | None] = ()  # standard errors, drawn as bars of plus and minus two; empty for none
    marker: Marker = "circle"  # shape of the points
    joined: bool = True  # whether a line joins the points
    aside: float = 0.0  # how far points stand beside their position, so that two series do not hide each other


def log_chart(
    series: Sequence[Series],
    title: str,
    x_label: str,
    y_label: str,
    *,
    first: int = 1,
    positions: Sequence[str] = (),
    reference: float | None = None,
    decades: float = 0.4,
) -> str:
    """A chart with a logarithmic value axis, one ``<svg>``; places have names, or count from ``first``, 0 the input."""
    count = max(len(item.values) for item in series)
    positions = positions or ["in" if place == 0 else str(place) for place in range(first, first + count)]
    every = [reference, *(value for item in series for value in item.values)]
    logs = [math.log10(value) for value in every if _drawn(value)] or [-1.0, 1.0]
    low, high = min(logs), max(logs)  # powers of ten, with a little air
    air = max(0.06 * (high - low), (decades - (high - low)) / 2, 0.04) if any(map(_drawn, every)) else 0.0
    area = _Area(count, low - air, high + air)
    title = f"{title}, logarithmic"
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">',
        f"<title>{escape(title)}</title>",
        *_axes(area, positions, x_label, y_label),
        *([] if reference is None else [_across("reference", area.y(reference))]),
    ]
    return "".join([*parts, *(_line(area, item, positions) for item in series), "</svg>"])


@dataclass(frozen=True)
class _Area:
    count: int
    low: float
    high: float

    def x(self, index: int) -> float:
        return LEFT + (index + 0.5) * (WIDTH - LEFT - RIGHT) / max(self.count, 1)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def _drawn(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value > 0


def _ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis: powers of ten, or 1-2-5 and finer when there are few decades."""
    if (decades := high - low) > 2.5:
        step = max(1, math.ceil(decades / TICKS))
        return [10.0**k for k in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]
    powers = range(math.floor(low), math.ceil(high) + 1)
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)):
        ticks = [d * 10.0**k for k in powers for d in digits if low <= math.log10(d * 10.0**k) <= high]
        if len(ticks) >= 4:
            break
    return ticks


def _tick_text(value: float) -> str:
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    mantissa, _, power = f"{value:.0e}".partition("e")
    start = "10" if mantissa == "1" else f"{mantissa}×10"
    return f'{start}<tspan class="power" dy="-5">{str(int(power)).replace("-", "−")}</tspan>'


def _across(style: str, y: float) -> str:
    return f'<line class="{style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(style: str, where: str, text: str, anchor: str = "middle") -> str:
    return f'<text class="{style}" {where} text-anchor="{anchor}">{text}</text>'


def _axes(area: _Area, positions: Sequence[str], x_label: str, y_label: str) -> list[str]:
    bottom, across, up = HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts = []
    for value in _ticks(area.low, area.high):
        y = area.y(value)
        parts += [_across("grid", y), _text("tick", f'x="{LEFT - 8}" y="{y + 5:.1f}"', _tick_text(value), "end")]
    parts.append(_across("axis", bottom))
    for index in _labelled(positions):
        parts.append(_text("tick", f'x="{area.x(index):.1f}" y="{bottom + 20}"', escape(positions[index])))
    parts.append(_text("label", f'x="{across:.0f}" y="{HEIGHT - 8}"', escape(x_label)))
    return [*parts, _text("label", f'transform="translate(14 {up:.0f}) rotate(-90)"', escape(y_label))]


def _labelled(positions: Sequence[str]) -> list[int]:
    """Which positions are named on the axis: as many as fit, numbers that are round, and the first."""
    least = LETTER * (len(positions[-1]) + 1) * len(positions) / (WIDTH - LEFT - RIGHT) if positions else 1.0
    every = next(step for step in (d * 10**k for k in range(9) for d in (1, 2, 5)) if step >= least)
    return [i for i, name in enumerate(positions) if i == 0 or (int(name) % every == 0 and i >= least)]


def _line(area: _Area, one: Series, positions: Sequence[str]) -> str:
    parts = [f'<g class="{escape(one.style, quote=True)}">']
    drawn = {index: value for index, value in enumerate(one.values) if _drawn(value)}
    for present, run in groupby(range(len(one.values)), drawn.__contains__):
        points = [f"{area.x(index):.1f},{area.y(drawn[index]):.1f}" for index in run] if present and one.joined else []
        parts += [f'<polyline points="{" ".join(points)}"/>'] if len(points) > 1 else []
    for index, value in drawn.items():
        x, y = area.x(index) + one.aside, area.y(value)
        error = one.errors[index] if index < len(one.errors) else None
        if _drawn(error):
            top, bottom = area.y(value + 2 * error), area.y(max(value - 2 * error, 10**area.low))
            parts.append(f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
        tip = f"<title>{escape(positions[index])}: {escape(one.label)} {value:.4g}</title>"
        size = 4.0 if area.count < CROWDED else 2.0
        low, wide = 0.9 * size, 1.3 * size
        ends = {"left": x - low, "top": y - low, "side": 2 * low, "peak": y - wide, "wide": wide}
        parts.append(POINTS[one.marker].format(x=x, y=y, size=size, tip=tip, **ends))
    return "".join([*parts, "</g>"])
