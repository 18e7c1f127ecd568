"""The checkup as one self-contained HTML page.

It is drawn from a checkup's plain dictionary, so it says exactly what ``--json`` says and can be made again
from it.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0 import __version__
from epoch0.diagnosis.charts import Marker, Series, log_chart
from epoch0.diagnosis.wording import SIGNS, number, percent, regions_line, shape, signed, times, tone, with_error
from epoch0.errors import InputError

if TYPE_CHECKING:
    import jinja2


TOLD = 12
"""So many layers are named under a chart; of more, the numbers."""


@dataclass(frozen=True)
class Plane:
    """A picture of the linear regions in a square around three examples.

    Attributes:
        png: the picture, a PNG file in base64.
        count: how many regions it shows.
        share: its side, as a share of that of the square around the circle through the examples.
    """

    png: str
    count: int
    share: float


def environment() -> "jinja2.Environment":
    """The templates with the filters and small tables they use."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("epoch0"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    found.filters.update(
        num=number, signed=signed, times=times, shape=shape, pm=with_error, regions=regions_line, pc=percent
    )
    found.globals.update(
        version=__version__, tone=tone, sign=lambda word: SIGNS.get(word, "·")
    )
    return found


def pictures(checkup: Mapping[str, Any]) -> dict[str, Any]:
    """The charts of a checkup: norms through the depth, the gain of every layer, and where segments fold.

    Args:
        checkup: ``Checkup.to_dict()``.

    Returns:
        ``norms``, ``gains``, ``regions``, ``pruning`` and ``fragility`` (empty without them) as SVG text;
        ``predicted`` whether any layer has a prediction, and ``predicted_norms`` whether the first has: then there is a
        line of predicted norms.
    """
    layers = checkup["layers"]
    columns = {key: [layer[key] for layer in layers] for key in ("forward_gain", "backward_gain", "predicted")}
    has_prediction = any(value is not None for value in columns["predicted"])
    stations = ["in", *(str(i) for i in range(1, len(layers) + 1))]
    first = layers[0]["norm_in"] if layers else None
    activations = [first, *(layer["norm_out"] for layer in layers)]
    series = [Series("activations", "activation", [_over(a, first) for a in activations], marker="none")]
    has_line = bool(layers) and columns["predicted"][0] is not None
    if has_line:
        predicted = _travelled(columns["predicted"])
        series.append(Series("predicted tangents", "predicted", predicted, marker="none"))
    series.append(Series("tangents", "forward", [1.0, *(layer["tangent"] for layer in layers)]))
    gradients = [checkup["input_gradient"], *(layer["gradient"] for layer in layers)]
    series.append(Series("gradients", "backward", [_over(g, gradients[-1]) for g in gradients], marker="square"))
    norms = log_chart(
        series,
        stations,
        title="Norms of tangents, gradients and activations after each layer, logarithmic",
        x_label="after layer",
        y_label="norm, relative to its start",
        reference=1.0,
        decades=2.0,
    )
    errors = {key: [layer[key] for layer in layers] for key in ("forward_error", "backward_error")}
    series = [
        Series("forward χ", "forward", columns["forward_gain"], errors["forward_error"], joined=False, aside=-6),
        Series("backward χ", "backward", columns["backward_gain"], errors["backward_error"], "square", False, 6),
    ]
    if has_prediction:
        spread = [layer["predicted_error"] for layer in layers]
        series.append(Series("predicted χ", "predicted", columns["predicted"], spread, "diamond", joined=False))
    gains = log_chart(
        series,
        stations[1:],
        title="The gain chi of every layer, forward and backward, logarithmic, with the line at 1",
        x_label="layer",
        y_label="gain χ",
        reference=1.0,
        decades=1.0,
    )
    return {
        "norms": norms,
        "gains": gains,
        "predicted": has_prediction,
        "predicted_norms": has_line,
        "regions": _folds(checkup.get("regions")),
        "pruning": _densities(checkup.get("outlook")),
        "fragility": _changes(checkup.get("fragility")),
    }


def _densities(outlook: Mapping[str, Any] | None) -> str:
    """Fraction kept of each layer, as it is with these scores and as expected; empty without an outlook."""
    if outlook is None:
        return ""
    rows = outlook["layers"]
    return _density_chart(
        outlook,
        [
            Series("expected", "predicted", [row["predicted"] for row in rows], marker="none"),
            Series("kept", "forward", [row["density"] for row in rows], joined=False),
        ],
    )


def densities_before_and_after(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Fraction kept of each layer in two checkups of one model; empty where one has no outlook.

    Args:
        before: ``Checkup.to_dict()["outlook"]``.
        after: the same of the changed model.
    """
    if before is None or after is None:
        return ""
    shown: list[tuple[str, str, Marker, float, Mapping[str, Any]]] = [
        ("before", "before", "square", -4, before),
        ("after", "forward", "circle", 4, after),
    ]
    series = [
        Series(word, style, [row["density"] for row in one["layers"]], (), marker, joined=False, aside=aside)
        for word, style, marker, aside, one in shown
    ]
    return _density_chart(after, series)


def _density_chart(outlook: Mapping[str, Any], series: Sequence[Series]) -> str:
    rows = outlook["layers"]
    return log_chart(
        series,
        [str(i) for i in range(1, len(rows) + 1)],
        title=f"Fraction of the weights kept of each layer at sparsity {outlook['sparsity']:g}, logarithmic",
        x_label="weights, in the order of the table",
        y_label="fraction kept",
        reference=1 - outlook["sparsity"],
        decades=1.0,
    )


def _changes(found: Mapping[str, Any] | None) -> str:
    """What noise in each layer's weights does to the outputs; empty where it was not measured."""
    if found is None or not any(row["change"] for row in found["layers"]):
        return ""
    rows = found["layers"]
    columns = {key: [None if row[key] is None else 100 * row[key] for row in rows] for key in ("change", "predicted")}
    errors = [None if row["error"] is None else 100 * row["error"] for row in rows]
    series = [Series("measured", "forward", columns["change"], errors, joined=False, aside=-4)]
    if any(value is not None for value in columns["predicted"]):
        series.append(Series("predicted", "predicted", columns["predicted"], (), "diamond", joined=False, aside=4))
    return log_chart(
        series,
        [row["name"] if len(rows) <= TOLD else str(i) for i, row in enumerate(rows, start=1)],
        title=f"Change of the outputs in %, with {percent(found['noise'])} noise in one layer's weights, logarithmic",
        x_label="noise in the weights of" if len(rows) <= TOLD else "noise in the weights, in the order of use",
        y_label="change of the outputs, %",
        decades=1.0,
    )


def _folds(regions: Mapping[str, Any] | None) -> str:
    """Break points a neuron on a segment, layer by layer; empty without regions."""
    if regions is None:
        return ""
    measured, errors = _per_neuron(regions, "breaks"), _per_neuron(regions, "error")
    series = [Series("measured", "forward", measured, errors, joined=False)]
    if regions["expected"] is not None:
        series.append(Series("expected", "predicted", _per_neuron(regions, "expected"), marker="none"))
    return _folds_chart(series, regions, "")


def folds_before_and_after(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The same of two checkups of one model in one chart; empty where they do not have the same layers that fold.

    Args:
        before: ``Checkup.to_dict()["regions"]``.
        after: the same of the changed model.
    """
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
    counted = [(_per_neuron(each, "breaks"), _per_neuron(each, "error")) for each in (before, after)]
    series.append(Series("before", "before", *counted[0], marker="square", joined=False, aside=-6))
    series.append(Series("after", "forward", *counted[1], joined=False, aside=6))
    return _folds_chart(series, after, " before and after")


def _per_neuron(regions: Mapping[str, Any], name: str) -> list[float | None]:
    """A column of the layers that fold, over their neurons."""
    layers = regions["layers"]
    return [None if layer[name] is None else layer[name] / max(1, layer["neurons"]) for layer in layers]


def _folds_chart(series: Sequence[Series], regions: Mapping[str, Any], when: str) -> str:
    return log_chart(
        series,
        [str(i) for i in range(1, len(regions["layers"]) + 1)],
        title=f"Break points a neuron on a segment between two examples in every layer that folds{when}, logarithmic",
        x_label="layer that folds",
        y_label="break points a neuron",
        decades=1.0,
    )


def _over(value: float | None, start: float | None) -> float | None:
    return None if value is None or not start else value / start


def _travelled(gains: Sequence[float | None]) -> list[float | None]:
    """Norm after each layer, starting from 1: the square root of the running product, up to the first unknown gain."""
    logs = accumulate((math.log(gain) if gain else math.nan for gain in gains), initial=0.0)
    return [math.exp(value / 2) if abs(value) < 1400 else None for value in logs]


def page(
    checkup: Mapping[str, Any], after: Mapping[str, Any] | None = None, changes: Sequence[str] = (), *,
    planes: Sequence[Plane | None] = (),
) -> str:  # fmt: skip
    """The checkup as one HTML page that loads nothing; with a second one, of the changed model, both side by side.

    Args:
        checkup: ``Checkup.to_dict()``; the page carries it whole, as JSON in the element ``#checkup``.
        after: the same of the model after something was changed, carried in the element ``#after``.
        changes: what was changed, one sentence each.
        planes: pictures of the linear regions on a plane: of the checkup, and of the one after; None for none.
    """
    plane, after_plane = (*planes, None, None)[:2]
    shown = {"c": checkup, "pictures": pictures(checkup), "data": embedded_json(checkup), "plane": plane}
    if after is None:
        return environment().get_template("checkup.html.j2").render(**shown)
    both = {"a": after, "after_pictures": pictures(after), "after_data": embedded_json(after), "changes": changes}
    folds = folds_before_and_after(checkup.get("regions"), after.get("regions"))
    return environment().get_template("comparison.html.j2").render(
        **shown, **both, after_plane=after_plane, change=change_picture(checkup, after), folds=folds,
        pruned=densities_before_and_after(checkup.get("outlook"), after.get("outlook")),
    )  # fmt: skip


def change_picture(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The mean of forward and backward gain of every layer, before and after, as SVG text.

    Args:
        before: ``Checkup.to_dict()``.
        after: the same of the changed model.
    """
    shown: list[tuple[str, str, Marker, Mapping[str, Any]]] = [
        ("before", "before", "square", before),
        ("after", "forward", "circle", after),
    ]
    series = [
        Series(word, style, [_mean_gain(layer) for layer in one["layers"]], (), marker)
        for word, style, marker, one in shown
    ]
    return log_chart(
        series,
        [str(i) for i in range(1, len(before["layers"]) + 1)],
        title="The gain chi of every layer before and after, logarithmic, with the line at 1",
        x_label="layer",
        y_label="gain χ",
        reference=1.0,
        decades=1.0,
    )


def _mean_gain(layer: Mapping[str, Any]) -> float | None:
    gains = layer["forward_gain"], layer["backward_gain"]
    return None if None in gains else sum(gains) / 2


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
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, target)
    except OSError as problem:
        part.unlink(missing_ok=True)
        raise InputError(f"{str(target)!r} cannot be written: {problem.strerror or problem}.") from problem
    return target
