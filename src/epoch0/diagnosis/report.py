"""The checkup as one self-contained HTML page.

It is drawn from a checkup's plain dictionary, so it says exactly what ``--json`` says and can be made again
from it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import __version__
from epoch0.diagnosis import wording
from epoch0.diagnosis.charts import Marker, Series, log_chart
from epoch0.diagnosis.terminal import ROWS
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import SIGNS, rate

if TYPE_CHECKING:
    import jinja2


def environment() -> "jinja2.Environment":
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
    """SVG text of norms through the depth, gains, the losses of the trial by optimizer, the program and pruning."""
    layers = checkup["layers"]
    norms = [
        Series("activations", "activation", _carried(checkup, "norm_out"), marker="none"),
        Series("tangents", "forward", _carried(checkup, "tangent")),
        Series("gradients", "backward", _carried(checkup, "gradient"), marker="square"),
    ]
    aside = 8 if len(layers) <= 20 else 4
    gains = [
        _points("forward χ", layers, "forward_gain", "forward_error", "forward", "circle", -aside),
        _points("backward χ", layers, "backward_gain", "backward_error", "backward", "square", aside),
    ]
    if has_law := any(layer["predicted"] is not None for layer in layers):
        gains.append(_points("law", layers, "predicted", "predicted_error", "predicted", "diamond"))
    return {
        "norms": _norms(norms, "tangents and gradients and of activations after each layer", "norm"),
        "gains": _gains(gains),
        "predicted": has_law,
        "program": "" if checkup["program"] is None else _program(checkup["program"]),
        "trials": [] if checkup["trial"] is None else _trials(checkup["trial"]),
        "pruning": _densities(measured=checkup),
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """SVG text of carried norms, gains and pruning in two checkups of one model."""
    found, gains, both = {}, [], {"before": before, "after": after}
    for key in ("tangent", "gradient"):
        named = [(word, *_STYLES[word], _carried(one, key)) for word, one in both.items()]
        lines = [Series(word, style, values, marker=marker) for word, style, marker, _, values in named]
        found[key] = _norms(lines, f"{key}s before and after the change", key)
    for word, one in both.items():
        gains.append(_points(word, one["layers"], "forward_gain", "forward_error", *_STYLES[word]))
    return {**found, "gains": _gains(gains, " before and after the change"), "pruning": _densities(**both)}


_STYLES: dict[str, tuple[str, Marker, float]] = {
    "measured": ("forward", "circle", 0.0), "before": ("before", "square", -4.0), "after": ("forward", "circle", 4.0),
}  # fmt: skip
"""How one checkup is drawn, and two side by side: style, marker, and how far beside their position the points stand."""


def _points(
    label: str, rows: Sequence[Mapping[str, Any]], key: str, error: str, style: str, marker: Marker = "circle",
    aside: float = 0.0,
) -> Series:  # fmt: skip
    errors = [row[error] for row in rows] if error else []
    return Series(label, style, [row[key] for row in rows], errors, marker, joined=False, aside=aside)


def _carried(checkup: Mapping[str, Any], key: str) -> list[float | None]:
    """A norm at the input and after each layer, over that where it starts: at the input, for gradients at the end."""
    layers = checkup["layers"]
    first = {"tangent": 1.0, "gradient": checkup["input_gradient"]}
    values = [first[key] if key in first else layers[0]["norm_in"] if layers else None, *(one[key] for one in layers)]
    start = values[-1 if key == "gradient" else 0]
    return [None if value is None or not start else value / start for value in values]


def _norms(series: Sequence[Series], what: str, label: str) -> str:
    stations = ["in", *map(str, range(1, len(series[0].values)))]
    title = f"Norms of carried {what}"
    return log_chart(series, stations, title, "after layer", f"{label}, over its start", reference=1.0, decades=2.0)


def _gains(series: Sequence[Series], when: str = "") -> str:
    title = f"The local gain chi of every layer{when}, with the line at 1"
    return log_chart(series, None, title, "layer", "local gain χ", reference=1.0, decades=1.0)


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
        chart = log_chart(series, None, title, "step", label, reference=line, decades=0.5)
        found.append({"optimizer": optimizer, "chart": chart, "runs": shown})
    return found


def _program(program: Mapping[str, Any]) -> str:
    """The loss with own targets over that with others', as training goes: of the program, and of its best change."""
    curves = [("as it is", "before", program["curve"])]
    if program["best"] is not None:
        curves.append(("changed", "forward", program["tried"][program["best"]]["curve"]))
    steps = sorted({step for _, _, curve in curves for step, _ in curve})
    series = []
    for label, style, curve in curves:
        known = [(step, 1.0 - value) for step, value in curve if value is not None] or [(0, math.nan)]
        at, left = zip(*known, strict=True)
        values = [float(np.interp(step, at, left)) if step <= at[-1] else None for step in steps]
        series.append(Series(label, style, values, marker="square" if style == "before" else "circle"))
    title = "The loss with an example's own target over that with another's, at every look in training"
    said = "own loss over others'"
    return log_chart(series, [str(s) for s in steps], title, "step", said, reference=1.0, decades=1.0)


def _densities(**checkups: Mapping[str, Any]) -> str:
    """Fraction kept of each layer, as it is with these scores and, of one, as expected; empty without a forecast."""
    found = {word: one["pruning_forecast"] for word, one in checkups.items()}
    if not all(found.values()):
        return ""
    names = {"measured": "kept"}
    series = [
        _points(names.get(word, word), one["layers"], "density", "", *_STYLES[word]) for word, one in found.items()
    ]
    if forecast := found.get("measured"):
        expected = [row["predicted"] for row in forecast["layers"]]
        series.insert(0, Series("expected", "predicted", expected, marker="none"))
    sparsity = [*found.values()][-1]["sparsity"]
    title = f"Fraction of the weights kept of each layer at sparsity {sparsity:g}"
    where = "weights, in order of the table"
    return log_chart(series, None, title, where, "fraction kept", reference=1 - sparsity, decades=1.0)


def page(checkup: Mapping[str, Any], after: Mapping[str, Any] | None = None, changed: Sequence[str] = ()) -> str:
    """The checkup as one HTML page that loads nothing; with a second one, of the changed model, both side by side."""
    shown = {"c": checkup, "data": embedded_json(checkup)}
    if after is None:
        return environment().get_template("checkup.html.j2").render(**shown, pictures=pictures(checkup))
    shown |= {"a": after, "after_data": embedded_json(after), "changed": changed}
    return environment().get_template("comparison.html.j2").render(**shown, pictures=changes(checkup, after))


def notebook(checkup: Mapping[str, Any]) -> str:
    """The checkup in a compact form for a notebook: verdict, recipes, the norms and the table of blocks."""
    return environment().get_template("notebook.html.j2").render(c=checkup, pictures=pictures(checkup))


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a ``<script>`` element."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")
