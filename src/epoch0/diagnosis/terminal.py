"""The checkup, or two of one model, as tables for a terminal of any width."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from epoch0.diagnosis import wording
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import SIGNS

COLOURS = {"good": "green", "bad": "red", "mild": "yellow"}  # tone to terminal colour; the word beside it says the same
SPARED = ("what it is", "shape", "norm", "±", "law", "step", "local χ", "tangent")
"""Columns that a narrow terminal does without, in this order; ± are the errors beside local χ."""

FORECAST = ("count", "expected", "empty from", "vanishes")  # the same of what pruning would leave

WORDS = ("layer", "trains", "weights of", "what it is", "evidence", "status")
"""Headings of columns of words, which are set flush left."""

WIDTH = 160  # columns of a table that is printed as text
GAP = 2  # spaces between columns
NAME_WIDTH = 36  # names of layers longer than this are folded,
LEAST_NAME = 28  # and those longer than this before a column goes
ROWS = 40  # rows up to which all parts are shown; of more blocks equal ones are shown once

LEGEND = (
    "Tangent and gradient: norms carried from the input and back from the loss. Local χ: what fresh directions become "
    "in this layer alone, law: from its weights. Step: one of Adam, relative to the weights."
)

Found = Mapping[str, Any]
Cells = Sequence[str | Text]


def terminal(checkup: Found, width: int, depth: int | None = None) -> RenderableType:
    """The checkup for a terminal: verdict, recipes, the layer to blame, what to do, one row a block and its parts."""
    lines: list[RenderableType] = [_verdict(checkup), _head(checkup), Text(""), _recipes(width, checkup)]
    recipes = ((NAMES[name], item["reason"]) for name, item in checkup["recipes"].items() if name != "yours")
    lines += _listed("", [f"{name}: {why}." for name, why in recipes if why not in checkup["verdict"]])
    also = checkup["faults"][1:]  # the first is shown already
    texts = [f"{wording.chance(f['certainty'])} {f['kind']} ({f['where']}): {f['message']} {f['fix']}" for f in also]
    lines += _listed("Also seen", texts)
    if (program := checkup["program"]) is not None and (tried := program["tried"]):
        lines += _section(f"Changes tried on copies: {len(tried)}; that mend it: {sum(t['mends'] for t in tried)}.")
    if (blame := checkup["blame"]) is not None:
        lines.append(Text.assemble(("To blame: ", "bold"), (blame["layer"], "bold red"), f", {blame['reason']}."))
    lines += _listed("What to do", checkup["advice"])
    if checkup["layers"]:
        lines += [Text(""), Text(_passages(checkup)), Text(""), _blocks(checkup, width, depth), Text(LEGEND, "dim")]
    if (forecast := checkup["pruning_forecast"]) is not None:
        rows = forecast["layers"]
        columns: dict[str, Cells] = {
            "weights of": [row["name"] for row in rows],
            "count": [f"{row['weights']:,}" for row in rows],
            "kept": [f"{row['density']:.4f}" for row in rows],
            "expected": [f"{row['predicted']:.4f}" for row in rows],
            "vanishes": [f"{row['vanishes']:.3f}" for row in rows],
            "empty from": [f"{row['critical']:.4f}" for row in rows],
            "status": [_status(row["status"], True) for row in rows],
        }
        lines += [
            *_section("What pruning would leave", forecast["sentence"]),
            _table(_spared(columns, width, FORECAST)),
        ]
    lines += _listed("Not looked at", checkup["not_examined"])
    return Group(*lines, *_listed("How it was measured", checkup["notes"]))


def side_by_side(before: Found, after: Found, width: int) -> RenderableType:
    """Two checkups of one model: verdicts, recipes and layers, before → after."""
    lines: list[RenderableType] = [_head(before)]
    for word, item in (("before", before), ("after", after)):
        lines += [Text.assemble(f"{word:<8}", _verdict(item)), Padding(Text(_passages(item)), (0, 0, 0, 8))]
        if item["pruning_forecast"] is not None:
            lines.append(Padding(Text(item["pruning_forecast"]["sentence"]), (0, 0, 0, 8)))
    lines += [Text(""), _recipes(width, before, after), Text("")]
    rows: list[Mapping[str, str | Text]] = []
    for pair in zip(before["layers"], after["layers"], strict=True):
        signs = " → ".join(layer["status"] for layer in pair)
        gains = {"local χ": _pair(_short, "forward_gain", *pair), "law": _pair(_short, "predicted", *pair)}
        status = Text(signs, COLOURS[wording.tone(pair[1]["status"], after["trains"])])
        rows.append({"layer": wording.brief(pair[0]["name"]), **_row(*pair), **gains, "status": status})
    return Group(*lines, _fitting(rows, width))


def plain(shown: RenderableType) -> str:
    """The same as text without colours, in which no sentence is wrapped."""
    console = Console(width=10_000, color_system=None, highlight=False, force_jupyter=False)
    with console.capture() as text:
        console.print(shown)
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def _head(checkup: Found) -> Text:
    return Text.assemble((checkup["model"], "bold"), f"  {checkup['subject']}")


def _passages(checkup: Found) -> str:
    """Phase and what the depth does to carried norms, in one line."""
    low, high = (wording.number(checkup[key]) for key in ("chi_low", "chi_high"))
    chi = "" if checkup["chi"] is None else f", local χ = {wording.number(checkup['chi'])} a layer ({low} to {high})"
    backward, forward = wording.times(checkup["backward"]["factor"]), wording.times(checkup["forward"]["factor"])
    way = f"; between the first layer's end and the last one's start carried tangents {forward}, gradients {backward}"
    return f"Phase {checkup['phase']}{chi}{way if checkup['forward']['layers'] > 0 else ''}."


def _verdict(checkup: Found) -> Text:
    word = checkup["outcome"]
    style = f"bold {COLOURS[wording.tone(word, checkup['trains'])]}"
    return Text.assemble((f"{SIGNS[word]} {word}", style), "  ", (checkup["verdict"], "bold"))


def _section(heading: str, *lines: str) -> list[RenderableType]:
    return [Text(""), Text(heading, "bold"), *map(Text, lines)]


def _listed(heading: str, sentences: Sequence[str]) -> list[RenderableType]:
    """Sentences under a heading, each with a bullet; nothing where there are none."""
    start = _section(heading) if heading and sentences else []
    return [*start, *(Padding(Text(f"• {sentence}"), (0, 0, 0, 2)) for sentence in sentences)]


def _table(columns: Mapping[str, Cells], name_width: int = NAME_WIDTH) -> Table:
    """A table without lines, its first column folded where it is longer than that."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for place, heading in enumerate(columns):
        words, whole = heading in WORDS or not place, bool(place) and heading != "what it is"
        look = dict[str, Any](overflow="fold", max_width=None if place else name_width)
        table.add_column(Text(heading), justify="left" if words else "right", no_wrap=whole, **look)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return table


def _pair(show: Callable[..., str], key: str, *rows: Found) -> str:
    """A number of one checkup, or of two: before → after."""
    return " → ".join(show(row[key]) for row in rows)


_short = partial(wording.number, digits=2)


def _recipes(width: int, *checkups: Found) -> Table:
    rows = [[checkup["recipes"][name] for checkup in checkups] for name in checkups[0]["recipes"]]
    trains = [_pair(lambda trains: "✓ yes" if trains else "✕ no", "trains", *row) for row in rows]
    columns: dict[str, Cells] = {
        "": [NAMES[row[0]["optimizer"]] for row in rows],
        "trains": [Text(s, COLOURS["good" if r[-1]["trains"] else "bad"]) for s, r in zip(trains, rows, strict=True)],
        "chance": [_pair(wording.chance, "probability", *row) for row in rows],
        "begin at": [_pair(wording.rate, "learning_rate", *row) for row in rows],
    }
    if len(checkups) == 1:
        most = [row[0]["largest_learning_rate"] for row in rows]
        columns["first step stands"] = ["" if value is None else wording.rate(value) for value in most]
        columns["evidence"] = [wording.evidence(checkups[0], row[0]) for row in rows]
    return _table(_spared(columns, width, ("evidence", "first step stands")))


def _blocks(checkup: Found, width: int, depth: int | None) -> Table:
    """One row a block, its parts under it, with as many columns as fit."""
    layers, trains = checkup["layers"], checkup["trains"]
    blame = (checkup["blame"] or {}).get("layer")
    everything = len(layers) + sum(len(layer["parts"]) for layer in layers)
    rows: list[dict[str, str | Text]] = []
    for (word, _), group in groupby(layers, key=lambda layer: (layer["status"], layer["name"] == blame)):
        equal, status = list(group), _status(word, trains)
        hidden = range(2, len(equal) - 1) if depth is None and len(layers) > ROWS and len(equal) > 5 else range(0)
        for place, layer in enumerate(equal):
            if place == 2 and hidden:
                rows.append({"layer": f"… {len(hidden)} more, all", "status": status})
            if place in hidden:
                continue
            opened = depth > 0 if depth is not None else everything <= ROWS or layer["name"] == blame
            style = "bold red" if layer["name"] == blame else "bold" if opened and layer["parts"] else ""
            gain = wording.with_error(layer["forward_gain"], layer["forward_error"])
            law, name = wording.number(layer["predicted"]), Text(wording.brief(layer["name"]), style=style)
            rows.append({"layer": name, **_row(layer), "local χ": gain, "law": law, "status": status})
            for part in layer["parts"] if opened else []:
                path, gain = part["name"], "" if part["gain"] is None else wording.number(part["gain"])
                rows.append({"layer": f"  {wording.within(path, layer['name'])}", **_row(part), "local χ": gain})
    return _fitting(rows, width)


def _row(*rows: Found) -> dict[str, str]:
    return {
        "what it is": rows[0]["kind"],
        "shape": wording.shape(rows[0]["shape_out"]) if len(rows) == 1 else "",
        "norm": _pair(_short, "norm_out", *rows),
        **{key: _pair(_short, key, *rows) for key in ("tangent", "gradient")},
        "step": _pair(wording.update, "update", *rows) if any(row["update"] is not None for row in rows) else "",
    }


def _status(word: str, trains: bool) -> Text:
    return Text(f"{SIGNS.get(word, '·')} {word}", COLOURS[wording.tone(word, trains)])


def _fitting(rows: Sequence[Mapping[str, str | Text]], width: int) -> Table:
    """A table of layers without the columns that do not fit, and without empty ones."""
    headings = ("layer", "what it is", "shape", "norm", "tangent", "gradient", "local χ", "law", "step", "status")
    columns: dict[str, Cells] = {heading: [row.get(heading, "") for row in rows] for heading in headings}
    columns = {heading: cells for heading, cells in columns.items() if any(map(len, cells))}
    columns = _spared(columns, width, SPARED)
    others = {heading: cells for heading, cells in columns.items() if heading != "layer"}
    return _table(columns, min(NAME_WIDTH, max(8, width - _wanted(others) - GAP)))


def _spared(columns: dict[str, Cells], width: int, names: Sequence[str]) -> dict[str, Cells]:
    """The columns without so many of these, in their order, that the others fit."""
    for name in names:
        if _wanted(columns) <= width:
            break
        if name == "±":
            columns["local χ"] = [str(gain).partition(" ±")[0] for gain in columns["local χ"]]
        columns.pop(name, None)
    return columns


def _wanted(columns: Mapping[str, Cells]) -> int:
    """How wide a table would be without folding anything but long names."""
    widths = {heading: max(len(text) for text in (heading, *cells)) for heading, cells in columns.items()}
    widths |= {"layer": min(widths["layer"], LEAST_NAME)} if "layer" in widths else {}
    return sum(widths.values()) + GAP * (len(widths) - 1)
