"""The checkup as one self-contained HTML page.

It is drawn from a checkup's plain dictionary, so it says exactly what ``--json`` says and can be made again from it.
"""

import json
import math
from collections.abc import Mapping
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
    layers = checkup["layers"]
    first = {"tangent": 1.0, "gradient": checkup["input_gradient"]}
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
    title = "The loss with an example's own target over that with another's, at every look in training"
    where = list(map(str, steps))
    return log_chart(series, title, "step", "own loss over others'", positions=where, reference=1.0, decades=1.0)


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
