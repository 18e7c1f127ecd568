"""Small pictures of one number a layer, as inline SVG that follows the page's light or dark colours.

The report must be one file that asks for nothing and is read in either colour scheme and on a phone, so its charts are
drawn here as text with CSS classes instead of as images of fixed colours. They have room for the larger letters that
the page sets on a phone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 14, 14, 54
TICKS = 6  # at most about this many labelled ticks on an axis
LETTER = 9.5  # width of a letter at most
CROWDED = 50  # from so many positions on points are small

Marker = Literal["circle", "square", "diamond", "none"]


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str  # what it is called in the legend
    style: str  # CSS class that gives its colour and dashes, such as 'forward', 'backward' or 'predicted'
    # one positive number a position; None, zero or a number that is not finite leaves a gap
    values: Sequence[float | None]
    # standard error of each value, drawn as a bar of plus and minus two; empty for none
    errors: Sequence[float | None] = ()
    marker: Marker = "circle"  # shape of the points
    joined: bool = True  # whether a line joins the points
    # how far the points stand beside their position, in units of the picture, so that two series do not hide each other
    aside: float = 0.0


def log_chart(
    series: Sequence[Series],
    positions: Sequence[str],
    title: str,
    x_label: str,
    y_label: str,
    *,
    reference: float | None = None,
    decades: float = 0.4,
) -> str:
    """A chart with one position a layer and a logarithmic value axis, which the title says, as one ``<svg>`` element.

    >>> svg = log_chart([Series("norm", "forward", [1.0, 0.1])], ["in", "1"], title="t", x_label="x", y_label="y")
    >>> svg.startswith("<svg") and svg.endswith("</svg>")
    True
    """
    low, high = _range(series, reference, decades)
    title = f"{title}, logarithmic"
    area = _Area(len(positions), low, high)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">',
        f"<title>{escape(title)}</title>",
        *_axes(area, positions, x_label, y_label),
    ]
    if reference is not None:
        y = area.y(reference)
        parts.append(f'<line class="reference" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for one in series:
        parts += _line(area, one, positions)
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Area:
    """From layer index and value to the place on the picture."""

    count: int
    low: float
    high: float

    def x(self, index: int) -> float:
        step = (WIDTH - LEFT - RIGHT) / max(self.count, 1)
        return LEFT + (index + 0.5) * step

    def y(self, value: float) -> float:
        if value <= 0:
            return HEIGHT - BOTTOM
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def _drawn(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _range(series: Sequence[Series], reference: float | None, decades: float) -> tuple[float, float]:
    """Powers of ten from the lowest to the highest value, with a little air."""
    values = [math.log10(v) for one in series for v in one.values if v is not None and _drawn(v)]
    if reference is not None:
        values.append(math.log10(reference))
    if not values:
        return -1.0, 1.0
    low, high = min(values), max(values)
    air = max(0.06 * (high - low), (decades - (high - low)) / 2, 0.04)
    return low - air, high + air


def _ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis: powers of ten, or 1-2-5 and finer when there are few decades."""
    decades = high - low
    if decades > 2.5:
        step = max(1, math.ceil(decades / TICKS))
        first = math.ceil(low / step) * step
        return [10.0**k for k in range(first, math.floor(high) + 1, step)]
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)):
        ticks = [
            d * 10.0**k
            for k in range(math.floor(low), math.ceil(high) + 1)
            for d in digits
            if low <= math.log10(d * 10.0**k) <= high
        ]
        if len(ticks) >= 4:
            break
    return ticks


def _tick_text(value: float) -> str:
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    mantissa, _, power = f"{value:.0e}".partition("e")
    start = "10" if mantissa == "1" else f"{mantissa}×10"
    return f'{start}<tspan class="power" dy="-5">{str(int(power)).replace("-", "−")}</tspan>'


def _axes(area: _Area, positions: Sequence[str], x_label: str, y_label: str) -> list[str]:
    bottom, middle = HEIGHT - BOTTOM, TOP + (HEIGHT - TOP - BOTTOM) / 2
    parts = []
    for value in _ticks(area.low, area.high):
        y = area.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{_tick_text(value)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    for index in _labelled(positions):
        parts.append(
            f'<text class="tick" x="{area.x(index):.1f}" y="{bottom + 20}" text-anchor="middle">'
            f"{escape(positions[index])}</text>"
        )
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    parts.append(
        f'<text class="label" transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    return parts


def _labelled(positions: Sequence[str]) -> list[int]:
    """Which positions are named on the axis: as many as there is room for, numbers that are round, and the first."""
    widest = LETTER * max((len(position) for position in positions), default=1) + LETTER
    least = max(1.0, widest * len(positions) / (WIDTH - LEFT - RIGHT))
    every = next(step for step in (d * 10**k for k in range(9) for d in (1, 2, 5)) if step >= least)
    numbers = [int(position) if position.isdigit() else index for index, position in enumerate(positions)]
    named = [i for i, value in enumerate(numbers) if value % every == 0 and i >= least]
    return [0, *named] if positions and 0 not in named else named


def _line(area: _Area, one: Series, positions: Sequence[str]) -> list[str]:
    parts = [f'<g class="{escape(one.style, quote=True)}">']
    run: list[str] = []
    for index, value in enumerate([*one.values, None]):
        if value is not None and _drawn(value):
            run.append(f"{area.x(index):.1f},{area.y(value):.1f}")
            continue
        if one.joined and len(run) > 1:
            parts.append(f'<polyline points="{" ".join(run)}"/>')
        run = []
    for index, value in enumerate(one.values):
        if value is None or not _drawn(value):
            continue
        x, y = area.x(index) + one.aside, area.y(value)
        error = one.errors[index] if index < len(one.errors) else None
        if error is not None and _drawn(error):
            top = area.y(value + 2 * error)
            bottom = area.y(max(value - 2 * error, 10**area.low))
            parts.append(f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>')
        tip = f"<title>{escape(positions[index])}: {escape(one.label)} {value:.4g}</title>"
        parts.append(_point(one.marker, x, y, 4.0 if area.count < CROWDED else 2.0, tip))
    return [*parts, "</g>"]


def _point(marker: Marker, x: float, y: float, size: float, tip: str) -> str:
    if marker == "square":
        low, side = 0.9 * size, 1.8 * size
        return f'<rect class="point" x="{x - low:.1f}" y="{y - low:.1f}" width="{side}" height="{side}">{tip}</rect>'
    if marker == "diamond":
        w = 1.3 * size
        return f'<path class="point" d="M{x:.1f},{y - w:.1f}l{w},{w}l-{w},{w}l-{w},-{w}z">{tip}</path>'
    if marker == "circle":
        return f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="{size}">{tip}</circle>'
    return ""
