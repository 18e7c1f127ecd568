"""Small pictures of one number a layer, as inline SVG that follows the page's light or dark colours.

The report must be one file that asks for nothing and is read in either colour scheme, so its charts are drawn here as
text
with CSS classes instead of as fixed-colour images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46
TICKS = 7
"""At most about this many labelled ticks on an axis."""

Marker = Literal["circle", "square", "diamond", "none"]


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        label: what it is called in the legend.
        style: CSS class that gives its colour and dashes: 'forward', 'backward' or 'predicted'.
        values: one positive number a position; None, zero or a number that is not finite leaves a gap.
        errors: standard error of each value, drawn as a bar of plus and minus two; empty for none.
        marker: shape of the points.
        joined: whether a line joins the points.
        aside: how far the points stand beside their position, in units of the picture, so that two series do not hide
            each other.
    """

    label: str
    style: str
    values: Sequence[float | None]
    errors: Sequence[float | None] = ()
    marker: Marker = "circle"
    joined: bool = True
    aside: float = 0.0


def log_chart(
    series: Sequence[Series],
    positions: Sequence[str],
    *,
    title: str,
    x_label: str,
    y_label: str,
    reference: float | None = None,
    decades: float = 0.4,
) -> str:
    """A chart with one position a layer and a logarithmic value axis, as one ``<svg>`` element.

    >>> svg = log_chart([Series("norm", "forward", [1.0, 0.1])], ["in", "1"], title="t", x_label="x", y_label="y")
    >>> svg.startswith("<svg") and svg.endswith("</svg>")
    True

    Args:
        series: the lines; each has as many values as there are positions.
        positions: name of each position; shown when the pointer rests on a point, and on the axis as far as there is
            room.
        title: what the picture shows, for readers who cannot see it.
        x_label: label of the axis of positions.
        y_label: label of the value axis.
        reference: a value at which a horizontal line is drawn.
        decades: least height of the value axis in powers of ten, so that what hardly changes looks level.
    """
    low, high = _range(series, reference, decades)
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
    exponent = round(math.log10(value))
    return f'10<tspan class="power" dy="-5">{"−" if exponent < 0 else ""}{abs(exponent)}</tspan>'


def _axes(area: _Area, positions: Sequence[str], x_label: str, y_label: str) -> list[str]:
    bottom, middle = HEIGHT - BOTTOM, TOP + (HEIGHT - TOP - BOTTOM) / 2
    parts = []
    for value in _ticks(area.low, area.high):
        y = area.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_tick_text(value)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    widest = 7.5 * max((len(position) for position in positions), default=1)
    every = max(1, math.ceil(widest * len(positions) / (WIDTH - LEFT - RIGHT)))
    for index in range(0, len(positions), every):
        parts.append(
            f'<text class="tick" x="{area.x(index):.1f}" y="{bottom + 17}" text-anchor="middle">'
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
        parts.append(_point(one.marker, x, y, tip))
    return [*parts, "</g>"]


def _point(marker: Marker, x: float, y: float, tip: str) -> str:
    if marker == "square":
        return f'<rect class="point" x="{x - 3.4:.1f}" y="{y - 3.4:.1f}" width="6.8" height="6.8">{tip}</rect>'
    if marker == "diamond":
        return f'<path class="point" d="M{x:.1f},{y - 5:.1f}l5,5l-5,5l-5,-5z">{tip}</path>'
    if marker == "circle":
        return f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3.8">{tip}</circle>'
    return ""
