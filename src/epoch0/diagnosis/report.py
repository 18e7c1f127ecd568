"""The checkup as one self-contained HTML page.

It is drawn from a checkup's plain dictionary, so it says exactly what ``--json`` says and can be made again from it.
The page asks for nothing and is read in light and dark colours and on a phone, so its charts are drawn here, as inline
SVG with CSS classes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from epoch0 import __version__
from epoch0.diagnosis import wording
from epoch0.diagnosis.terminal import ROWS
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import SIGNS, rate

if TYPE_CHECKING:
    import jinja2

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
    area, title = _Area(count, low - air, high + air), f"{title}, logarithmic"
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


def environment() -> "jinja2.Environment":
    """The templates of the page, with the filters that format numbers."""
    import jinja2

    found = jinja2.Environment(loader=jinja2.PackageLoader("epoch0"), autoescape=True, undefined=jinja2.StrictUndefined)
    found.trim_blocks = found.lstrip_blocks = True
    same = ("times", "shape", "chance", "rate", "update", "brief", "within")
    found.filters |= {name: getattr(wording, name) for name in same}
    found.filters |= {"num": wording.number, "pm": wording.with_error}
    found.globals |= {"version": __version__, "tone": wording.tone, "names": NAMES, "evidence": wording.evidence}
    found.globals["sign"] = lambda word: SIGNS.get(word, "·")
    found.globals["folded"] = lambda checkup: sum(1 + len(layer["parts"]) for layer in checkup["layers"]) > ROWS
    return found


def pictures(checkup: Mapping[str, Any]) -> dict[str, Any]:
    """SVG text of norms through the depth, gains, the losses of the trial by optimizer, and of the program."""
    layers = checkup["layers"]
    norms = [
        Series("activations", "activation", _carried(checkup, "norm_out"), marker="none"),
        Series("tangents", "forward", _carried(checkup, "tangent")),
        Series("gradients", "backward", _carried(checkup, "gradient"), marker="square"),
    ]
    aside = 8 if len(layers) <= 20 else 4

    def points(label: str, key: str, error: str, style: str, marker: Marker, aside: float = 0.0) -> Series:
        values, errors = ([layer[name] for layer in layers] for name in (key, error))
        return Series(label, style, values, errors, marker, joined=False, aside=aside)

    gains = [
        points("forward χ", "forward_gain", "forward_error", "forward", "circle", -aside),
        points("backward χ", "backward_gain", "backward_error", "backward", "square", aside),
    ]
    if has_law := any(layer["predicted"] is not None for layer in layers):
        gains.append(points("law", "predicted", "predicted_error", "predicted", "diamond"))
    carried = "Norms of carried tangents and gradients and of activations after each layer"
    local = "The local gain chi of every layer, with the line at 1"
    return {
        "norms": log_chart(norms, carried, "after layer", "norm, over its start", first=0, reference=1.0, decades=2.0),
        "gains": log_chart(gains, local, "layer", "local gain χ", reference=1.0, decades=1.0),
        "predicted": has_law,
        "trials": [] if checkup["trial"] is None else _trials(checkup["trial"]),
        "program": "" if not checkup["program"] else _program(checkup["program"]),
    }


def _carried(checkup: Mapping[str, Any], key: str) -> list[float | None]:
    """A norm at the input and after each layer, over that where it starts: at the input, for gradients at the end."""
    layers, first = checkup["layers"], {"tangent": 1.0, "gradient": checkup["input_gradient"]}
    values = [first[key] if key in first else layers[0]["norm_in"] if layers else None, *(one[key] for one in layers)]
    start = values[-1 if key == "gradient" else 0]
    return [None if value is None or not start else value / start for value in values]


def _trials(trial: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One chart an optimizer: the losses of its runs, over that of the best constant answer where it is known."""
    constant, found = trial["constant"], []
    base = constant if constant and constant > 0 else 1.0
    label, line = ("loss (1: constant answer)", 1.0) if base == constant else ("loss", None)
    for optimizer in dict.fromkeys(run["optimizer"] for run in trial["runs"]):
        runs = sorted((run for run in trial["runs"] if run["optimizer"] == optimizer), key=lambda run: run["rate"])
        first = max((run["losses"][0] or 0.0 for run in runs if run["losses"]), default=0.0)
        most = 10 * max(first, base)  # a loss that explodes does not press the others flat
        series, shown = [], []
        for place, run in enumerate(runs):
            values = [None if loss is None else min(loss, most) / base for loss in run["losses"]]
            series.append(Series(f"rate {rate(run['rate'])}", f"rate{place}", values, marker="none"))
            last = [loss for loss in run["losses"][-10:] if loss is not None]
            end = sum(last) / len(last) if last and run["losses"][-1] is not None else None
            shown.append({**run, "style": f"rate{place}", "end": end})
        title = f"Loss of the trial with {NAMES[optimizer]} at every step, one line a learning rate"
        chart = log_chart(series, title, "step", label, reference=line, decades=0.5)
        found.append({"optimizer": optimizer, "chart": chart, "runs": shown})
    return found


def _program(program: Mapping[str, Any]) -> str:
    """The loss with own targets over that with others', as training goes: of the program, and of its best change."""
    best = [] if program["best"] is None else [program["tried"][program["best"]]["curve"]]
    curves = [dict(curve) for curve in (program["curve"], *best)]
    steps = sorted({step for curve in curves for step in curve})
    looks: list[tuple[str, str, Marker]] = [("as it is", "backward", "square"), ("changed", "forward", "circle")]
    series = []
    for (label, style, marker), curve in zip(looks, curves, strict=False):
        known = {step: value for step, value in curve.items() if value is not None} or {0: math.nan}
        at, last = np.interp(steps, list(known), list(known.values())), max(known)
        values = [max(1.0 - float(v), 1e-3) if step <= last else None for step, v in zip(steps, at, strict=True)]
        series.append(Series(label, style, values, marker=marker))
    what, label = "with an example's own target over that with another's", "own loss over others'"
    if program["untold"]:
        what, label = "over that before training", "loss over the first"
    title, where = f"The loss {what}, at every look in training", list(map(str, steps))
    return log_chart(series, title, "step", label, positions=where, reference=1.0, decades=1.0)


def page(checkup: Mapping[str, Any]) -> str:
    """The checkup as one HTML page that loads nothing."""
    shown = {"c": checkup, "data": embedded_json(checkup), "pictures": pictures(checkup)}
    return environment().get_template("checkup.html.j2").render(**shown)


def notebook(checkup: Mapping[str, Any]) -> str:
    """The checkup in a compact form for a notebook: verdict, recipes, the norms and the table of blocks."""
    return environment().get_template("notebook.html.j2").render(c=checkup, pictures=pictures(checkup))


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a ``<script>`` element."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")
