"""Checkups for people: one self-contained HTML page, and a table for the terminal.

Both are drawn from a checkup's plain dictionary, so a page says exactly what ``--json`` says and can be made again
from it.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0 import __version__
from epoch0.diagnosis.charts import Series, log_chart
from epoch0.errors import InputError

if TYPE_CHECKING:
    import jinja2
    from rich.console import RenderableType

TONES = {
    "trains": "good",
    "keeps": "good",
    "overflows": "bad",
    "vanishing": "bad",
    "exploding": "bad",
    "dead": "bad",
    "collapsed": "bad",
    "holds": "good",
    "fails": "bad",
}
"""Status word to tone; anything else is mild. The word is always shown: colour repeats it and never replaces it."""

SIGNS = {
    "trains": "✓",
    "keeps": "✓",
    "overflows": "✕",
    "unclear": "?",
    "holds": "✓",
    "shrinks": "↓",
    "vanishing": "↓",
    "grows": "↑",
    "exploding": "↑",
    "dead": "✕",
    "fails": "✕",
    "collapsed": "≡",
    "saturated": "⊣",
}
COLOURS = {"good": "green", "bad": "red", "mild": "yellow"}


def number(value: float | None, digits: int = 3) -> str:
    """A number for reading: so many significant digits, powers of ten written out, a dash for none.

    >>> number(0.166667), number(3.2e-9), number(None), number(12345.0)
    ('0.167', '3.2×10⁻⁹', '–', '1.23×10⁴')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 < exponent < 4:
        return f"{value:.{max(digits - 1 - exponent, 0)}f}" if exponent < digits else f"{value:.0f}"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}×10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def signed(value: float | None) -> str:
    """A number with its sign, a true minus.

    >>> signed(-3.584), signed(0.2)
    ('−3.58', '+0.200')
    """
    if value is None:
        return "−∞"
    return ("−" if value < 0 else "+") + number(abs(value))


def times(value: float | None) -> str:
    """A change of a norm in words.

    >>> times(0.01), times(3.0), times(1.0)
    ('÷ 100', '× 3.00', '× 1.00')
    """
    if value is None:
        return "–"
    if value == 0:
        return "÷ ∞"
    return f"× {number(value)}" if value >= 0.995 else f"÷ {number(1 / value)}"


def shape(sizes: Sequence[int] | None) -> str:
    """The shape of one example.

    >>> shape((16, 8, 8)), shape((10,)), shape(())
    ('16×8×8', '10', '1')
    """
    return "–" if sizes is None else "×".join(str(size) for size in sizes) or "1"


def tone(word: str, trains: bool = True) -> str:
    """The tone of a status: a layer that shrinks or grows is a fault in a network that does not train, else a remark.

    >>> tone("keeps"), tone("grows"), tone("grows", trains=False)
    ('good', 'mild', 'bad')
    """
    return "bad" if not trains and word in ("shrinks", "grows") else TONES.get(word, "mild")


def environment() -> "jinja2.Environment":
    """The templates with the filters and small tables they use."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("epoch0"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    found.filters.update(num=number, signed=signed, times=times, shape=shape, pm=with_error)
    found.globals.update(
        version=__version__, tone=tone, sign=lambda word: SIGNS.get(word, "·")
    )
    return found


def pictures(checkup: Mapping[str, Any]) -> dict[str, Any]:
    """The two charts of a checkup: norms through the depth, and the gain of every layer.

    Args:
        checkup: ``Checkup.to_dict()``.

    Returns:
        ``norms`` and ``gains`` as SVG text, ``predicted`` whether any layer has a prediction.
    """
    layers = checkup["layers"]
    columns = {key: [layer[key] for layer in layers] for key in ("forward_gain", "backward_gain", "predicted")}
    has_prediction = any(value is not None for value in columns["predicted"])
    stations = ["in", *(str(i) for i in range(1, len(layers) + 1))]
    first = layers[0]["norm_in"] if layers else None
    activations = [first, *(layer["norm_out"] for layer in layers)]
    series = [Series("activations", "activation", [_over(a, first) for a in activations], marker="none")]
    if has_prediction:
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
    )
    errors = {key: [layer[key] for layer in layers] for key in ("forward_error", "backward_error")}
    series = [
        Series("forward χ", "forward", columns["forward_gain"], errors["forward_error"], joined=False, aside=-6),
        Series("backward χ", "backward", columns["backward_gain"], errors["backward_error"], "square", False, 6),
    ]
    if has_prediction:
        series.append(Series("predicted χ", "predicted", columns["predicted"], (), "diamond", joined=False))
    gains = log_chart(
        series,
        stations[1:],
        title="The gain chi of every layer, forward and backward, logarithmic, with the line at 1",
        x_label="layer",
        y_label="gain χ",
        reference=1.0,
    )
    return {"norms": norms, "gains": gains, "predicted": has_prediction}


def _over(value: float | None, start: float | None) -> float | None:
    return None if value is None or not start else value / start


def _travelled(gains: Sequence[float | None]) -> list[float | None]:
    """Norm after each layer, starting from 1: the square root of the running product, up to the first unknown gain."""
    logs = accumulate((math.log(gain) if gain else math.nan for gain in gains), initial=0.0)
    return [math.exp(value / 2) if abs(value) < 1400 else None for value in logs]


def page(checkup: Mapping[str, Any]) -> str:
    """The checkup as one HTML page that loads nothing.

    Args:
        checkup: ``Checkup.to_dict()``; the page carries it whole, as JSON in the element ``#checkup``.
    """
    template = environment().get_template("checkup.html.j2")
    return template.render(c=checkup, pictures=pictures(checkup), data=embedded_json(checkup))


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


def terminal(checkup: Mapping[str, Any]) -> "RenderableType":
    """The checkup for a terminal: verdict, phase, one row a layer, what to change, how it was measured.

    Args:
        checkup: ``Checkup.to_dict()``.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    outcome = checkup["outcome"]
    colour = COLOURS[tone(outcome)]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", "layer", "what it is"):
        table.add_column(heading, no_wrap=heading == "layer", justify="right" if not heading else "left")
    for heading in ("shape", "norm", "forward χ", "backward χ", "predicted", "factor"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for index, layer in enumerate(checkup["layers"], start=1):
        status = layer["status"]
        table.add_row(
            str(index),
            Text(layer["name"]),
            Text(layer["kind"]),
            shape(layer["shape_out"]),
            number(layer["norm_out"]),
            with_error(layer["forward_gain"], layer["forward_error"]),
            with_error(layer["backward_gain"], layer["backward_error"]),
            number(layer["predicted"]),
            number(layer["factor"]),
            Text(f"{SIGNS.get(status, '·')} {status}", style=COLOURS[tone(status, checkup["trains"])]),
        )
    backward, forward, chi = checkup["backward"], checkup["forward"], ""
    if checkup["chi"] is not None:
        chi = f", χ = {number(checkup['chi'])} a layer ({number(checkup['chi_low'])} to {number(checkup['chi_high'])})"
    lines: list[Any] = [
        Text.assemble((checkup["model"], "bold"), f"  {checkup['subject']}"),
        Text.assemble((f"{SIGNS[outcome]} {outcome}", f"bold {colour}"), "  ", checkup["verdict"]),
        Text(
            f"phase {checkup['phase']}{chi}; gradients {times(backward['factor'])}, signals {times(forward['factor'])}"
        ),
        Text(""),
        table,
        Text(""),
        Text("What to change", style="bold"),
    ]
    lines += [Padding(Text(f"• {line}"), (0, 0, 0, 2)) for line in checkup["advice"]]
    lines.append(Text("How it was measured", style="bold"))
    lines += [Padding(Text(f"• {line}"), (0, 0, 0, 2)) for line in checkup["notes"]]
    return Group(*lines)


def with_error(value: float | None, error: float | None) -> str:
    """A number and its standard error, whose first digit is the last one of the number.

    >>> with_error(0.17491, 0.00071), with_error(1.0, 0.02), with_error(65.8, 12.0)
    ('0.1749 ± 0.0007', '1.00 ± 0.02', '66 ± 12')
    """
    if value is None or error is None or not error > 0 or not 1e-3 <= abs(value) < 1e4:
        return number(value) if not error else f"{number(value)} ± {number(error, 1)}"
    decimals = min(max(-math.floor(math.log10(error)), 0), 5)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"
