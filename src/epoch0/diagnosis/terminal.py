"""The checkup as a table for a terminal of any width."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

COLOURS = {"good": "green", "bad": "red", "mild": "yellow"}  # tone to terminal colour; the word beside it says the same
SPARED = ("what it is", "shape", "norm", "±", "law", "step", "gradient", "local χ")
"""Columns that a narrow terminal does without, in this order; ± are the errors beside local χ."""

WORDS = ("layer", "trains", "noise in", "weights of", "change", "what it is", "evidence", "status", "why", "then")
"""Headings of columns of words, which are set flush left."""

GAP = 2  # spaces between columns
NAME_WIDTH = 36  # names of layers longer than this are folded,
LEAST_NAME = 28  # and those longer than this before a column goes
ROWS = 40
"""Parts are shown where everything has at most so many rows, and of more blocks those that are alike are folded."""

MENDED = 5  # so many of the changes that mend a program are shown

LEGEND = (
    "Tangent and gradient: norms carried from the input and back from the loss. Local χ: what fresh directions become "
    "in this layer alone, law: from its weights. Step: one of Adam, relative to the weights."
)


def terminal(checkup: Mapping[str, Any], width: int, depth: int | None = None) -> "RenderableType":
    """The checkup for a terminal: verdict, recipes, the layer to blame, what to do, one row a block and its parts."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Any] = [
        Text.assemble(*_verdict(checkup)),
        Text.assemble((checkup["model"], "bold"), f"  {checkup['subject']}"),
        Text(""),
        _recipes(checkup),
        *_listed("", _reasons(checkup)),
        *_listed("Also seen", fault_lines(checkup["faults"][1:])),
        *_program(checkup["program"]),
    ]
    if checkup["blame"] is not None:
        blame = checkup["blame"]
        lines.append(Text.assemble(("To blame: ", "bold"), (blame["layer"], "bold red"), f", {blame['reason']}."))
    lines += _listed("What to do", checkup["advice"])
    if checkup["remedies"]:
        lines += [Text(""), Text("What was tried on a copy", style="bold"), _remedies(checkup["remedies"])]
    if checkup["layers"]:
        table = _layers(checkup, width, depth)
        lines += [Text(""), Text(passages(checkup)), Text(""), table, Text(LEGEND, style="dim")]
    if checkup["regions"] is not None:
        lines += [Text(""), Text(regions_line(checkup))]
    if checkup["pruning_forecast"] is not None:
        title, said = Text("What pruning would leave", style="bold"), Text(checkup["pruning_forecast"]["sentence"])
        lines += [Text(""), title, said, _pruning_forecast(checkup["pruning_forecast"])]
    if checkup["noise_sensitivity"] is not None:
        lines += [Text(""), Text(checkup["noise_sensitivity"]["sentence"])]
        lines += (
            [_noise_sensitivity(checkup["noise_sensitivity"])]
            if len(checkup["noise_sensitivity"]["layers"]) > 1
            else []
        )
    lines += _listed("Not looked at", checkup["not_examined"])
    return Group(*lines, *_listed("How it was measured", checkup["notes"]))


def fault_lines(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a fault: how certain it is, its kind, where it is, what shows it, what to write instead."""
    return [f"{chance(f['certainty'])} {f['kind']} ({f['where']}): {f['message']} {f['fix']}" for f in faults]


def _program(program: Mapping[str, Any] | None) -> list[Any]:
    """The changes that mend it in a table, and how many do not in a line."""
    if program is None or not program["tried"]:
        return []
    from rich.text import Text

    mended = sorted((one for one in program["tried"] if one["mends"]), key=lambda one: -one["curve"][-1][1])
    said = f"{len(program['tried'])} changes were tried on copies, {len(mended)} of them mend it"
    lines: list[Any] = [Text(""), Text(f"{said}{':' if mended else '.'}", style="bold")]
    if not mended:
        return lines
    shares = [[program["curve"][-1][1], one["curve"][-1][1]] for one in mended[:MENDED]]
    known = [" → ".join("–" if share is None else f"{max(share, 0):.0%}" for share in pair) for pair in shares]
    names, steps = zip(*((" ".join(one["fixes"]), str(one["curve"][-1][0])) for one in mended[:MENDED]), strict=True)
    return [*lines, _table({"change": names, "known": known, "steps": steps})]


def passages(checkup: Mapping[str, Any]) -> str:
    """Phase and what the depth does to carried norms, in one line."""
    chi = ""
    if checkup["chi"] is not None:
        low, high = number(checkup["chi_low"]), number(checkup["chi_high"])
        chi = f", local χ = {number(checkup['chi'])} a layer ({low} to {high})"
    backward, forward = times(checkup["backward"]["factor"]), times(checkup["forward"]["factor"])
    return f"Phase {checkup['phase']}{chi}; over the depth carried tangents {forward}, gradients {backward}."


def _verdict(checkup: Mapping[str, Any], before: str = "") -> list[Any]:
    word = checkup["outcome"]
    style = f"bold {COLOURS[tone(word, checkup['trains'])]}"
    return [before, (f"{SIGNS[word]} {word}", style), "  ", (checkup["verdict"], "bold" if not before else "")]


def _reasons(checkup: Mapping[str, Any]) -> list[str]:
    """Those that the verdict does not say already."""
    recipes = ((name, one) for name, one in checkup["recipes"].items() if name != "yours")
    return [f"{NAMES[n]}: {one['reason']}." for n, one in recipes if one["reason"] not in checkup["verdict"]]


def _listed(heading: str, sentences: Sequence[str]) -> list[Any]:
    """Sentences under a heading, each with a bullet; nothing where there are none."""
    from rich.padding import Padding
    from rich.text import Text

    start = [Text(""), Text(heading, style="bold")] if heading and sentences else []
    return [*start, *(Padding(Text(f"• {sentence}"), (0, 0, 0, 2)) for sentence in sentences)]


def _table(columns: Mapping[str, "Sequence[str | Text]"], name_width: int = NAME_WIDTH) -> "Table":
    """A table without lines, its first column folded where it is longer than that."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for place, heading in enumerate(columns):
        wraps = heading in ("what it is", "then", "why", "change") or not place
        table.add_column(
            Text(heading), justify="left" if heading in WORDS or not place else "right", no_wrap=not wraps,
            overflow="fold", max_width=None if place or heading == "change" else name_width,
        )  # fmt: skip
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return table


def _toned(word: str, tone: str) -> "Text":
    from rich.text import Text

    return Text(word, style=COLOURS[tone])


def _recipes(checkup: Mapping[str, Any]) -> "Table":
    """One row an optimizer."""
    recipes = checkup["recipes"].values()
    return _table(
        {
            "": [NAMES[recipe["optimizer"]] for recipe in recipes],
            "trains": [_toned("✓ yes", "good") if recipe["trains"] else _toned("✕ no", "bad") for recipe in recipes],
            "chance": [chance(recipe["probability"]) for recipe in recipes],
            "begin at": [rate(recipe["learning_rate"]) for recipe in recipes],
            "at most": ["" if (r := recipe["largest_learning_rate"]) is None else rate(r) for recipe in recipes],
            "evidence": [evidence(checkup, recipe) for recipe in recipes],
        }
    )


def _remedies(remedies: Sequence[Mapping[str, Any]]) -> "Table":
    """One row a change, with the chance before and after."""
    signs = [_toned("✓ helps", "good") if one["helps"] else _toned("· does not", "mild") for one in remedies]
    return _table(
        {
            "change": [one["change"] for one in remedies],
            "status": signs,
            "chance": [f"{chance(one['before'])} → {chance(one['after'])}" for one in remedies],
        }
    )


def _layers(checkup: Mapping[str, Any], width: int, depth: int | None) -> "Table":
    """One row a block, its parts under it, with as many columns as there is room for."""
    from rich.text import Text

    layers, trains = checkup["layers"], checkup["trains"]
    blame = (checkup["blame"] or {}).get("layer")
    everything = len(layers) + sum(len(layer["parts"]) for layer in layers)
    rows: list[dict[str, Any]] = []
    for status, group in groupby(layers, key=lambda layer: (layer["status"], layer["name"] == blame)):
        alike = list(group)
        hidden = range(2, len(alike) - 1) if depth is None and len(layers) > ROWS and len(alike) > 5 else range(0)
        for place, layer in enumerate(alike):
            if place == 2 and hidden:
                rows.append({"layer": f"… {len(hidden)} more, all", "status": _status(status[0], trains)})
            if place in hidden:
                continue
            opened = depth > 0 if depth is not None else everything <= ROWS or layer["name"] == blame
            style = "bold red" if layer["name"] == blame else "bold" if opened and layer["parts"] else ""
            gain = with_error(layer["forward_gain"], layer["forward_error"])
            name = Text(brief(layer["name"]), style=style)
            status_cell = _status(layer["status"], trains)
            rows.append(_row(layer, name, gain) | {"law": number(layer["predicted"]), "status": status_cell})
            if opened:
                rows += [
                    _row(part, Text(f"  {within(part['name'], layer['name'])}"), _gain(part["gain"]))
                    for part in layer["parts"]
                ]
    headings = ("layer", "what it is", "shape", "norm", "tangent", "gradient", "local χ", "law", "step", "status")
    columns = {heading: [row.get(heading, "") for row in rows] for heading in headings}
    for spared in SPARED:
        if _wanted(columns) <= width:
            break
        if spared == "±":
            columns["local χ"] = [gain.partition(" ±")[0] for gain in columns["local χ"]]
        else:
            del columns[spared]
    return _table(columns, _name_width(columns, width))


def _row(row: Mapping[str, Any], name: "Text", gain: str) -> dict[str, Any]:
    return {
        "layer": name, "what it is": row["kind"], "shape": shape(row["shape_out"]), "norm": number(row["norm_out"], 2),
        "tangent": number(row["tangent"], 2), "gradient": number(row["gradient"], 2), "local χ": gain,
        "step": update(row["update"]),
    }  # fmt: skip


def _gain(value: float | None) -> str:
    return "" if value is None else number(value)


def _status(word: str, trains: bool) -> "Text":
    return _toned(f"{SIGNS.get(word, '·')} {word}", tone(word, trains))


def _name_width(columns: "Mapping[str, Sequence[str | Text]]", width: int) -> int:
    """The room that is left for names."""
    others = {heading: cells for heading, cells in columns.items() if heading != "layer"}
    return min(NAME_WIDTH, max(8, width - _wanted(others) - GAP))


def _wanted(columns: "Mapping[str, Sequence[str | Text]]") -> int:
    """How wide a table would be without folding anything but long names."""
    widths = {heading: max(len(text) for text in (heading, *cells)) for heading, cells in columns.items()}
    widths |= {"layer": min(widths["layer"], LEAST_NAME)} if "layer" in widths else {}
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _noise_sensitivity(found: Mapping[str, Any]) -> "Table":
    """One row a module that noise was put into, and accuracy where classes were given."""
    from rich.text import Text

    rows = [row for row in found["layers"] if row["change"] is not None]
    columns: dict[str, Any] = {
        "noise in": [Text(row["name"], style="bold" * (row["name"] == found["most_fragile"])) for row in rows],
        "outputs": [f"{with_error(100 * row['change'], 100 * (row['error'] or 0))} %" for row in rows],
        "predicted": [percent(row["predicted"]) for row in rows],
    }
    if found["accuracy"] is not None:
        columns["accuracy"] = [with_error(row["accuracy"], row["accuracy_error"]) for row in rows]
    return _table(columns)


def _pruning_forecast(pruning_forecast: Mapping[str, Any]) -> "Table":
    """One row a weight: what is kept of it and when it vanishes."""
    rows = pruning_forecast["layers"]
    return _table(
        {
            "weights of": [row["name"] for row in rows],
            "count": [f"{row['weights']:,}" for row in rows],
            "kept": [f"{row['density']:.4f}" for row in rows],
            "expected": [f"{row['predicted']:.4f}" for row in rows],
            "vanishes": [f"{row['vanishes']:.3f}" for row in rows],
            "empty from": [f"{row['critical']:.4f}" for row in rows],
            "status": [_status(row["status"], True) for row in rows],
        }
    )


def side_by_side(comparison: Mapping[str, Any], width: int) -> "RenderableType":
    """Two checkups of one model for a terminal, from ``Comparison.to_dict()``."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[Any] = [Text.assemble((comparison["model"], "bold"), f"  {comparison['subject']}")]
    for word in ("before", "after"):
        one = comparison[word]
        lines.append(Text.assemble(*_verdict(one, f"{word:<8}")))
        told = [passages(one), *([] if one["regions"] is None else [regions_line(one)])]
        told += [
            one[found]["sentence"] for found in ("pruning_forecast", "noise_sensitivity") if one[found] is not None
        ]
        lines += [Padding(Text(sentence), (0, 0, 0, 8)) for sentence in told]
    lines += [*_listed("What was changed", comparison["changes"]), Text(""), _recipe_pairs(comparison), Text("")]
    return Group(*lines, _layer_pairs(comparison, width))


def _recipe_pairs(comparison: Mapping[str, Any]) -> "Table":
    before, after = (comparison[word]["recipes"] for word in ("before", "after"))

    def pair(show: Any, key: str) -> list[str]:
        return [f"{show(before[name][key])} → {show(after[name][key])}" for name in before]

    return _table(
        {
            "": [NAMES[name] for name in before],
            "trains": pair(lambda trains: "✓ yes" if trains else "✕ no", "trains"),
            "chance": pair(chance, "probability"),
            "begin at": pair(rate, "learning_rate"),
        }
    )


def _layer_pairs(comparison: Mapping[str, Any], width: int) -> "Table":
    """One row a layer: each quantity before and after."""
    layers = comparison["layers"]

    def pair(key: str) -> list[str]:
        return [" → ".join(number(layer[word][key], 2) for word in ("before", "after")) for layer in layers]

    columns: dict[str, Any] = {
        "layer": [brief(layer["name"]) for layer in layers],
        "what it is": [layer["kind"] for layer in layers],
        "norm": pair("norm_out"),
        "tangent": pair("tangent"),
        "gradient": pair("gradient"),
        "local χ": pair("forward_gain"),
        "law": pair("predicted"),
        "step": pair("update"),
        "status": [
            _toned(f"{one['before']['status']} → {one['after']['status']}", tone(one["after"]["status"], trains))
            for trains in [comparison["after"]["trains"]]
            for one in layers
        ],
    }
    for spared in ("what it is", "law", "norm", "step", "local χ", "tangent"):
        if _wanted(columns) <= width:
            break
        del columns[spared]
    return _table(columns, _name_width(columns, width))
