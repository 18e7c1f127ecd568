"""The checkup as a table for a terminal of any width."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epoch0.diagnosis.wording import SIGNS, number, percent, regions_line, shape, times, tone, with_error

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLOURS = {"good": "green", "bad": "red", "mild": "yellow"}
"""Tone to terminal colour; the word beside it says the same."""

SPARED = ("shape", "norm", "what it is", "measured is", "predicted", "backward χ")
"""Columns that a narrow terminal does without, in this order."""

GAP = 2
"""Spaces between columns."""

NAME_WIDTH = 28
"""Names of layers longer than this are folded."""


def terminal(checkup: Mapping[str, Any], width: int) -> "RenderableType":
    """The checkup for a terminal: verdict, phase, one row a layer, what to change, how it was measured.

    Args:
        checkup: ``Checkup.to_dict()``.
        width: columns there are; the table leaves out what does not fit, the page and the JSON have everything.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    outcome, backward, forward, chi = checkup["outcome"], checkup["backward"], checkup["forward"], ""
    if checkup["chi"] is not None:
        chi = f", χ = {number(checkup['chi'])} a layer ({number(checkup['chi_low'])} to {number(checkup['chi_high'])})"
    changes = f"gradients {times(backward['factor'])}, signals {times(forward['factor'])} over the depth"
    lines: list[Any] = [
        Text.assemble((checkup["model"], "bold"), f"  {checkup['subject']}"),
        Text.assemble((f"{SIGNS[outcome]} {outcome}", f"bold {COLOURS[tone(outcome)]}"), "  ", checkup["verdict"]),
        Text(f"phase {checkup['phase']}{chi}; {changes}"),
        Text(regions_line(checkup)),
        *_fragility_line(checkup),
        Text(""),
        _table(checkup["layers"], checkup["trains"], width),
        Text(""),
    ]
    if checkup.get("outlook") is not None:
        title, said = Text("What pruning would leave", style="bold"), Text(checkup["outlook"]["sentence"])
        lines += [title, said, _outlook_table(checkup["outlook"]), Text("")]
    if checkup.get("fragility") is not None and len(checkup["fragility"]["layers"]) > 1:
        size = percent(checkup["fragility"]["noise"])
        title = Text(f"What {size} noise in one layer's weights does to the outputs", style="bold")
        lines += [title, _fragility_table(checkup["fragility"]), Text("")]
    for heading, sentences in (("What to change", checkup["advice"]), ("How it was measured", checkup["notes"])):
        lines.append(Text(heading, style="bold"))
        for sentence in sentences:
            bullet = Text("• ")
            bullet.append(sentence)
            lines.append(Padding(bullet, (0, 0, 0, 2)))
    return Group(*lines)


def _table(layers: Sequence[Mapping[str, Any]], trains: bool, width: int) -> "Table":
    """One row a layer, with as many columns as there is room for."""
    from rich.table import Table
    from rich.text import Text

    columns = {
        "": [str(index) for index in range(1, len(layers) + 1)],
        "layer": [layer["name"] for layer in layers],
        "what it is": [layer["kind"] for layer in layers],
        "shape": [shape(layer["shape_out"]) for layer in layers],
        "norm": [number(layer["norm_out"]) for layer in layers],
        "forward χ": [with_error(layer["forward_gain"], layer["forward_error"]) for layer in layers],
        "backward χ": [with_error(layer["backward_gain"], layer["backward_error"]) for layer in layers],
        "predicted": [number(layer["predicted"]) for layer in layers],
        "measured is": [layer["agreement"] for layer in layers],
        "factor": [number(layer["factor"]) for layer in layers],
        "status": [f"{SIGNS.get(layer['status'], '·')} {layer['status']}" for layer in layers],
    }
    for spared in SPARED:
        if _wanted(columns) <= width:
            break
        del columns[spared]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for heading in columns:
        words = heading in ("layer", "what it is", "measured is", "status")
        most = NAME_WIDTH if heading == "layer" else None
        table.add_column(
            heading, justify="left" if words else "right", no_wrap=not words, overflow="fold", max_width=most
        )
    for index, layer in enumerate(layers):
        cells = [Text(column[index]) for column in columns.values()]
        cells[-1].stylize(COLOURS[tone(layer["status"], trains)])
        table.add_row(*cells)
    return table


def _fragility_line(checkup: Mapping[str, Any]) -> "list[RenderableType]":
    from rich.text import Text

    return [] if checkup.get("fragility") is None else [Text(checkup["fragility"]["sentence"])]


def _fragility_table(found: Mapping[str, Any]) -> "Table":
    """One row a module that noise was put into, and accuracy where classes were given."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column("noise in", overflow="fold", max_width=NAME_WIDTH)
    for heading in ("change", "predicted", *(["accuracy"] if found["accuracy"] is not None else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in found["layers"]:
        if row["change"] is None:
            continue
        change, error = (None if row[key] is None else 100 * row[key] for key in ("change", "error"))
        style = "bold" if row["name"] == found["most_fragile"] else ""
        cells: list[Any] = [Text(row["name"], style=style), f"{with_error(change, error)} %", percent(row["predicted"])]
        if found["accuracy"] is not None:
            cells.append(with_error(row["accuracy"], row["accuracy_error"]))
        table.add_row(*cells, Text(row["reason"]))
    return table


def _outlook_table(outlook: Mapping[str, Any]) -> "Table":
    """One row a weight: what is kept of it and when it vanishes."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column("weights of", overflow="fold", max_width=NAME_WIDTH)
    for heading in ("count", "kept", "expected", "chance to vanish", "empty from"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for row in outlook["layers"]:
        style = {"dies": "red", "at risk": "yellow"}.get(row["status"], "green")
        table.add_row(
            Text(row["name"]), f"{row['weights']:,}", f"{row['density']:.4f}", f"{row['predicted']:.4f}",
            f"{row['vanishes']:.3f}", f"{row['critical']:.4f}", Text(row["status"], style=style),
        )  # fmt: skip
    return table


def _wanted(columns: Mapping[str, Sequence[str]]) -> int:
    """How wide the table would be without folding anything but long names."""
    widths = {heading: max(len(text) for text in (heading, *cells)) for heading, cells in columns.items()}
    widths["layer"] = min(widths["layer"], NAME_WIDTH)
    return sum(widths.values()) + GAP * len(widths)


def side_by_side(comparison: Mapping[str, Any], width: int) -> "RenderableType":
    """Two checkups of one model for a terminal: verdicts, phases, what was changed, and each layer before and after.

    Args:
        comparison: ``Comparison.to_dict()``.
        width: columns there are.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[Any] = [Text.assemble((comparison["model"], "bold"), f"  {comparison['subject']}")]
    for word in ("before", "after"):
        one = comparison[word]
        style = f"bold {COLOURS[tone(one['outcome'])]}"
        lines.append(
            Text.assemble(f"{word:<7}", (f"{SIGNS[one['outcome']]} {one['outcome']}", style), "  ", one["verdict"])
        )
        chi = "" if one["chi"] is None else f", χ = {number(one['chi'])} a layer"
        lines.append(Text(f"       phase {one['phase']}{chi}; gradients {times(one['backward']['factor'])}"))
        lines.append(Padding(Text(regions_line(one)), (0, 0, 0, 7)))
        told = [one[found]["sentence"] for found in ("outlook", "fragility") if one[found] is not None]
        lines += [Padding(Text(sentence), (0, 0, 0, 7)) for sentence in told]
    if comparison["same_square"] is not None:
        both = " → ".join(f"{comparison['same_square'][word]:,}" for word in ("before", "after"))
        lines.append(Text(f"regions in one square, {comparison['same_square']['share']:.2g} of its width: {both}"))
    if comparison["changes"]:
        lines += [Text(""), Text("What was changed", style="bold")]
        lines += [Padding(Text(f"• {sentence}"), (0, 0, 0, 2)) for sentence in comparison["changes"]]
    return Group(*lines, Text(""), _pairs_table(comparison, width))


def _pairs_table(comparison: Mapping[str, Any], width: int) -> "Table":
    """One row a layer: each quantity before and after."""
    from rich.table import Table
    from rich.text import Text

    layers = comparison["layers"]

    def pair(key: str, error: str = "") -> list[str]:
        shown = []
        for layer in layers:
            both = layer["before"], layer["after"]
            shown.append(" → ".join(with_error(one[key], one[error]) if error else number(one[key]) for one in both))
        return shown

    columns = {
        "": [str(index) for index in range(1, len(layers) + 1)],
        "layer": [layer["name"] for layer in layers],
        "what it is": [layer["kind"] for layer in layers],
        "forward χ": pair("forward_gain", "forward_error"),
        "backward χ": pair("backward_gain", "backward_error"),
        "predicted": pair("predicted"),
        "norm": pair("norm_out"),
        "gradient": pair("gradient"),
        "status": [f"{layer['before']['status']} → {layer['after']['status']}" for layer in layers],
    }
    for spared in ("what it is", "gradient", "predicted", "backward χ", "norm"):
        if _wanted(columns) <= width:
            break
        del columns[spared]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for heading in columns:
        words = heading in ("layer", "what it is", "status")
        most = NAME_WIDTH if heading == "layer" else None
        table.add_column(
            heading, justify="left" if words else "right", no_wrap=not words, overflow="fold", max_width=most
        )
    for index, layer in enumerate(layers):
        cells = [Text(column[index]) for column in columns.values()]
        cells[-1].stylize(COLOURS[tone(layer["after"]["status"], comparison["after"]["trains"])])
        table.add_row(*cells)
    return table
