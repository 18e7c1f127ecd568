"""The checkup as one self-contained HTML page.

It is drawn from a checkup's plain dictionary, so it says exactly what ``--json`` says and can be made again
from it.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0 import __version__
from epoch0.diagnosis.charts import Series, log_chart
from epoch0.diagnosis.terminal import ROWS
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import (
    SIGNS,
    brief,
    chance,
    evidence,
    number,
    percent,
    rate,
    regions_line,
    shape,
    times,
    tone,
    update,
    with_error,
    within,
)
from epoch0.errors import InputError
from epoch0.files import write_atomic

if TYPE_CHECKING:
    import jinja2

    from epoch0.diagnosis.expressivity import PlaneView


TOLD = 40  # so many letters name the layers under a chart; where it takes more, their numbers


def environment() -> "jinja2.Environment":
    """The templates with the filters and small tables they use."""
    import jinja2

    found = jinja2.Environment(loader=jinja2.PackageLoader("epoch0"), autoescape=True, undefined=jinja2.StrictUndefined)
    found.trim_blocks = found.lstrip_blocks = True
    found.filters |= {f.__name__: f for f in (times, shape, chance, rate, update, brief, within)}
    found.filters |= {"num": number, "pm": with_error, "regions": regions_line, "pc": percent}
    found.globals |= {"version": __version__, "tone": tone, "names": NAMES, "evidence": evidence}
    found.globals["sign"] = lambda word: SIGNS.get(word, "·")
    found.globals["folded"] = lambda checkup: sum(1 + len(layer["parts"]) for layer in checkup["layers"]) > ROWS
    return found


def pictures(checkup: Mapping[str, Any]) -> dict[str, Any]:
    """The charts of a checkup: losses of the trial, norms through the depth, the gain of every layer, and more.

    Returns:
        ``norms``, ``gains``, ``program``, ``regions``, ``pruning`` and ``noise_sensitivity`` (empty without them) as
        SVG text; ``trials``, one dictionary an optimizer; ``predicted``: whether any layer has a law.
    """
    layers = checkup["layers"]
    columns = {key: [layer[key] for layer in layers] for key in ("forward_gain", "backward_gain", "predicted")}
    stations = ["in", *(str(i) for i in range(1, len(layers) + 1))]
    size, back = (_carried(checkup, key) for key in ("norm_out", "gradient"))
    drawn = [
        Series("activations", "activation", size, marker="none"),
        Series("tangents", "forward", _carried(checkup, "tangent")),
        Series("gradients", "backward", back, marker="square"),
    ]
    title = "Norms of carried tangents and gradients and of activations after each layer, logarithmic"
    norms = log_chart(drawn, stations, title, "after layer", "norm, over its start", reference=1.0, decades=2.0)
    errors = {key: [layer[key] for layer in layers] for key in ("forward_error", "backward_error", "predicted_error")}
    aside = 8 if len(layers) <= 20 else 4
    series = [
        Series("forward χ", "forward", columns["forward_gain"], errors["forward_error"], "circle", False, -aside),
        Series("backward χ", "backward", columns["backward_gain"], errors["backward_error"], "square", False, aside),
    ]
    if has_law := any(value is not None for value in columns["predicted"]):
        series.append(Series("law", "predicted", columns["predicted"], errors["predicted_error"], "diamond", False))
    return {
        "norms": norms,
        "gains": _gains(series, stations[1:]),
        "predicted": has_law,
        "program": "" if checkup["program"] is None else _program(checkup["program"]),
        "trials": [] if checkup["trial"] is None else _trials(checkup["trial"]),
        "regions": _folds(checkup["regions"]),
        "pruning": _densities(checkup["pruning_forecast"]),
        "noise_sensitivity": _changes(checkup["noise_sensitivity"]),
    }


def _carried(checkup: Mapping[str, Any], key: str) -> list[float | None]:
    """A norm at the input and after each layer, over that where it starts: at the input, for gradients at the end."""
    layers = checkup["layers"]
    if key == "tangent":
        return [1.0, *(layer[key] for layer in layers)]
    if key == "gradient":
        values = [checkup["input_gradient"], *(layer[key] for layer in layers)]
        return [_over(value, values[-1]) for value in values]
    values = [layers[0]["norm_in"] if layers else None, *(layer[key] for layer in layers)]
    return [_over(value, values[0]) for value in values]


def _over(value: float | None, start: float | None) -> float | None:
    return None if value is None or not start else value / start


def _gains(series: Sequence[Series], layers: Sequence[str], when: str = "") -> str:
    title = f"The local gain chi of every layer{when}, logarithmic, with the line at 1"
    return log_chart(series, layers, title, "layer", "local gain χ", reference=1.0, decades=1.0)


def _trials(trial: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One chart an optimizer: the losses of its runs, over that of the best constant answer where it is known."""
    constant, found = trial["constant"], []
    base = constant if constant and constant > 0 else 1.0
    for optimizer in dict.fromkeys(run["optimizer"] for run in trial["runs"]):
        runs = sorted((run for run in trial["runs"] if run["optimizer"] == optimizer), key=lambda run: run["rate"])
        first = max((run["losses"][0] or 0.0 for run in runs if run["losses"]), default=0.0)
        most = 10 * max(first, base)  # a loss that explodes does not press the others flat
        series = []
        for place, run in enumerate(runs):
            values = [None if loss is None else min(loss, most) / base for loss in run["losses"]]
            series.append(Series(f"rate {rate(run['rate'])}", f"rate{place}", values, marker="none"))
        steps = [str(step) for step in range(1, max(len(run["losses"]) for run in runs) + 1)]
        title = f"Loss of the trial with {NAMES[optimizer]} at every step, one line a learning rate, logarithmic"
        label, line = ("loss (1: constant answer)", 1.0) if base == constant else ("loss", None)
        chart = log_chart(series, steps, title, "step", label, reference=line, decades=0.5)
        shown = [{**run, "style": one.style, "end": _end(run["losses"])} for run, one in zip(runs, series, strict=True)]
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
    title = "The loss with an example's own target over that with another's, at every look in training, logarithmic"
    said = "own loss over others'"
    return log_chart(series, [str(s) for s in steps], title, "step", said, reference=1.0, decades=1.0)


def _end(losses: Sequence[float | None]) -> float | None:
    """Mean of the last ten losses; None where the training diverged."""
    last = [loss for loss in losses[-10:] if loss is not None]
    return sum(last) / len(last) if last and losses[-1] is not None else None


def _both(values: Sequence[Sequence[float | None]], errors: Sequence[Sequence[float | None]] = ()) -> list[Series]:
    """One quantity in two checkups, joined by lines where no errors go with it."""
    before, after = errors or ((), ())
    joined = not errors
    return [
        Series("before", "before", values[0], before, "square", joined, 0 if joined else -4),
        Series("after", "forward", values[1], after, "circle", joined, 0 if joined else 4),
    ]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Charts of two checkups of one model.

    Returns:
        ``tangent``, ``gradient``, ``gains``, ``regions`` and ``pruning`` (empty where one has none) as SVG text.
    """
    stations = ["in", *(str(i) for i in range(1, len(before["layers"]) + 1))]
    found = {}
    for key in ("tangent", "gradient"):
        series = _both([_carried(one, key) for one in (before, after)])
        title = f"Norms of carried {key}s before and after the change, logarithmic"
        label = f"{key}, over its start"
        found[key] = log_chart(series, stations, title, "after layer", label, reference=1.0, decades=2.0)
    gains, errors = (
        [[layer[key] for layer in one["layers"]] for one in (before, after)]
        for key in ("forward_gain", "forward_error")
    )
    found["gains"] = _gains(_both(gains, errors), stations[1:], " before and after the change")
    found["regions"] = _folds_of_both(before["regions"], after["regions"])
    found["pruning"] = ""
    if before["pruning_forecast"] and after["pruning_forecast"]:
        kept = [[row["density"] for row in one["pruning_forecast"]["layers"]] for one in (before, after)]
        found["pruning"] = _density_chart(after["pruning_forecast"], _both(kept, ((), ())))
    return found


def _densities(pruning_forecast: Mapping[str, Any] | None) -> str:
    """Fraction kept of each layer, as it is with these scores and as expected; empty without a forecast."""
    if pruning_forecast is None:
        return ""
    rows = pruning_forecast["layers"]
    expected = Series("expected", "predicted", [row["predicted"] for row in rows], marker="none")
    kept = Series("kept", "forward", [row["density"] for row in rows], joined=False)
    return _density_chart(pruning_forecast, [expected, kept])


def _density_chart(pruning_forecast: Mapping[str, Any], series: Sequence[Series]) -> str:
    sparsity, where = pruning_forecast["sparsity"], "weights, in the order of the table"
    layers = [str(i) for i in range(1, len(pruning_forecast["layers"]) + 1)]
    title = f"Fraction of the weights kept of each layer at sparsity {sparsity:g}, logarithmic"
    return log_chart(series, layers, title, where, "fraction kept", reference=1 - sparsity, decades=1.0)


def _changes(found: Mapping[str, Any] | None) -> str:
    """What noise in each layer's weights does to the outputs; empty where it was not measured."""
    if found is None or not any(row["change"] for row in found["layers"]):
        return ""
    rows = found["layers"]
    keys = ("change", "predicted", "error")
    columns = {key: [None if row[key] is None else 100 * row[key] for row in rows] for key in keys}
    series = [Series("measured", "forward", columns["change"], columns["error"], joined=False, aside=-4)]
    if any(value is not None for value in columns["predicted"]):
        series.append(Series("predicted", "predicted", columns["predicted"], (), "diamond", joined=False, aside=4))
    named = sum(len(row["name"]) + 1 for row in rows) <= TOLD
    layers = [row["name"] if named else str(i) for i, row in enumerate(rows, start=1)]
    title = f"Change of the outputs in %, with {percent(found['noise'])} noise in one layer's weights, logarithmic"
    where = "noise in the weights of" if named else "noise in the weights, in order of use"
    return log_chart(series, layers, title, where, "change of outputs, %", decades=1.0)


def _folds(regions: Mapping[str, Any] | None) -> str:
    """Break points a neuron on a segment, layer by layer; empty without regions."""
    if regions is None:
        return ""
    measured, errors = _per_neuron(regions, "breaks"), _per_neuron(regions, "error")
    series = [Series("measured", "forward", measured, errors, joined=False)]
    if regions["expected"] is not None:
        series.append(Series("expected", "predicted", _per_neuron(regions, "expected"), marker="none"))
    return _folds_chart(series, regions, "")


def _folds_of_both(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The same of two checkups in one chart; empty where they do not have the same layers that fold."""
    if before is None or after is None:
        return ""
    one, other = ([(layer["name"], layer["neurons"]) for layer in each["layers"]] for each in (before, after))
    if one != other:
        return ""
    series = [
        Series(f"expected, {word}", style, _per_neuron(each, "expected"), marker="none")
        for word, style, each in (("before", "before", before), ("after", "predicted", after))
        if each["expected"] is not None
    ]
    counted, errors = ([_per_neuron(each, key) for each in (before, after)] for key in ("breaks", "error"))
    series += _both(counted, errors)
    return _folds_chart(series, after, " before and after")


def _per_neuron(regions: Mapping[str, Any], name: str) -> list[float | None]:
    """A column of the layers that fold, over their neurons."""
    layers = regions["layers"]
    return [None if layer[name] is None else layer[name] / max(1, layer["neurons"]) for layer in layers]


def _folds_chart(series: Sequence[Series], regions: Mapping[str, Any], when: str) -> str:
    layers = [str(i) for i in range(1, len(regions["layers"]) + 1)]
    title = f"Break points a neuron on a segment between two examples in every layer that folds{when}, logarithmic"
    return log_chart(series, layers, title, "layer that folds", "break points a neuron", decades=1.0)


def page(
    checkup: Mapping[str, Any], after: Mapping[str, Any] | None = None, changed: Sequence[str] = (), *,
    planes: "Sequence[PlaneView | None]" = (),
) -> str:  # fmt: skip
    """The checkup as one HTML page that loads nothing; with a second one, of the changed model, both side by side."""
    plane, after_plane = (*planes, None, None)[:2]
    shown = {"c": checkup, "data": embedded_json(checkup), "plane": plane}
    if after is None:
        return environment().get_template("checkup.html.j2").render(**shown, pictures=pictures(checkup))
    both = {"a": after, "after_data": embedded_json(after), "after_plane": after_plane, "changed": changed}
    drawn = changes(checkup, after)
    return environment().get_template("comparison.html.j2").render(**shown, **both, pictures=drawn)


def notebook(checkup: Mapping[str, Any]) -> str:
    """The checkup in a compact form for a notebook: verdict, recipes and the table of blocks."""
    return environment().get_template("notebook.html.j2").render(c=checkup)


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a ``<script>`` element."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")


def write(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page whole or not at all.

    Raises:
        InputError: if the folder is not there or cannot be written to.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{str(target)!r} is a folder; name a file, such as {str(target / 'checkup.html')!r}.")
    if not target.parent.is_dir():
        raise InputError(f"the folder {str(target.parent)!r} of {target.name!r} does not exist; make it first.")
    try:
        write_atomic(target, text.encode())
    except OSError as problem:
        raise InputError(f"{str(target)!r} cannot be written: {problem.strerror or problem}.") from problem
    return target
