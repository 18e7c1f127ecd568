"""Hayou Table 6: which algorithm is best where, with those within one standard deviation of it counted as ties."""

import math
import textwrap
from typing import Any

from epoch0 import plots
from epoch0.experiments.claims import Claim, exact
from epoch0.papers.catalogue import Artifact
from epoch0.papers.hayou import accuracy, tables
from epoch0.papers.hayou.accuracy import REFERENCES, Winner, compared, joined, panels_of, percent, winner
from epoch0.papers.hayou.published import COMPETITION, WINNERS, Printed, block
from epoch0.papers.hayou.recipe import METHODS
from epoch0.papers.pictures import Axes, Figure
from epoch0.papers.sweep import Found, Sweep, Table

SOURCES = ("tab2", "tab3", "tab5")  # the tables that Table 6 sums up

Grid = dict[str, dict[float, tuple[Winner, str]]]
"""Row -> sparsity -> winner, and what Table 6 prints ("" if nothing)."""


def printed_winners() -> dict[tuple[str, str, float], tuple[str, Winner]]:
    """(data, network, sparsity) -> what Table 6 prints, and what Tables 2, 3 and 5 as printed give."""
    return {
        (data, network, sparsity): (word, winner(_entries(there, sparsity)))
        for (data, network), row in WINNERS.items()
        for sparsity, word in row.items()
        for there in (block(name, data, network) for name in SOURCES)
        if there
    }


def _entries(there: Printed, sparsity: float) -> dict[str, tuple[float, float]]:
    entries = {method: there.entry(method, sparsity) for method in there.rows if method not in REFERENCES}
    return {name: (one.value, math.nan if one.sd is None else one.sd) for name, one in entries.items() if one}


def _named(word: str) -> str:
    return "no clear winner" if word == COMPETITION else METHODS[word].label


def table(found: Found) -> Table:
    """One row a network and sparsity that was measured, then those of the print."""

    def row(source: str, data: str, network: str, s: float, best: Winner, word: str, runs: int) -> dict[str, Any]:
        tied = ", ".join(METHODS[method].label for method in best.tied)
        return {"from": source, "data": data, "network": network, "sparsity": s, "best": METHODS[best.best].label,
                "tied": tied, "table_6": _named(word) if word else "", "runs": runs}  # fmt: skip

    rows = Table()
    for each in panels_of(found):
        key = each.recipe.data, each.network
        for s in each.sparsities:
            rows.append(row("measured", *key, s, each.winner(s), WINNERS.get(key, {}).get(s, ""), each.runs))
    return Table([*rows, *(row("as printed", *key, best, word, 3) for key, (word, best) in printed_winners().items())])


def claims(found: Found) -> list[Claim]:
    """Table 6 against the tables it is made of, as printed; then SBP-SR against the best of the others, measured."""
    return [*of_the_print(), *_of_deepest(found)]


def of_the_print() -> list[Claim]:
    """Table 6 against the tables it is made of."""
    both = printed_winners()
    wrong = [
        f"{network} {data} {percent(sparsity)}: {_named(word)} printed, {best.label}"
        for (data, network, sparsity), (word, best) in both.items()
        if word != best.as_printed
    ]
    other = [
        f"{network} {data} {percent(sparsity)}"
        for (data, network, sparsity), (word, best) in both.items()
        if word not in (COMPETITION, best.best)
    ]
    return [
        exact(
            "as printed: Table 6 follows from Tables 2, 3 and 5 with ties inside one sd",
            not wrong, f"{len(wrong)} of {len(both)} entries do not: {'; '.join(wrong)}", {"different": len(wrong)},
        ),
        exact(
            "as printed: every winner that Table 6 names has the highest mean",
            not other, f"{len(other)} of {len(both)} have not: {', '.join(other)}", {"different": len(other)},
        ),
    ]  # fmt: skip


def _of_deepest(found: Found) -> list[Claim]:
    deepest = {each.recipe.data: each for each in panels_of(found) if "sbp-sr" in each.methods}
    made = []
    for each in deepest.values():
        pairs = {}
        for s in each.sparsities:
            rivals = {m: each.accuracy(m, s) for m in each.methods if m not in (*REFERENCES, "sbp-sr")}
            best = max(rivals, key=lambda method: rivals[method].mean())
            pairs[f"{percent(s)} against {METHODS[best].label}"] = each.accuracy("sbp-sr", s), rivals[best]
        text = f"{each.name}: SBP-SR is the best, or as good as the best of the others, at every sparsity"
        made.append(compared(text, pairs, each.runs))
    return made


def draw(found: Found) -> Figure:
    """Two tables: what was measured, and what the printed tables give."""
    measured: Grid = {each.name: {s: (each.winner(s), "") for s in each.sparsities} for each in panels_of(found)}
    printed: Grid = {}
    for (data, network, sparsity), (word, best) in printed_winners().items():
        printed.setdefault(f"{network}, {data}", {})[sparsity] = best, word
    heights = [len(measured) + 0.6, len(printed) + 0.6]
    picture, axes = plots.figure(
        9.6, 0.52 * sum(heights) + 1.6, mosaic=[["measured"], ["printed"]], height_ratios=heights
    )
    _table(axes["measured"], measured, "measured here: the best method, and those within one sd of it")
    _table(axes["printed"], printed, "from Tables 2, 3 and 5 as printed; red frames: Table 6 says otherwise")
    _legend(picture)
    return picture


def _table(axes: Axes, grid: Grid, name: str) -> None:
    from matplotlib.patches import Rectangle

    columns = sorted({sparsity for row in grid.values() for sparsity in row})
    for y, row in enumerate(grid.values()):
        for x, sparsity in enumerate(columns):
            if sparsity not in row:
                axes.text(x, y, "-", ha="center", va="center", color=plots.BOUND)
                continue
            best, word = row[sparsity]
            colour, alpha = _FILLS[bool({best.best, *best.tied} & _OURS), bool(best.tied)]
            box = (x - 0.48, y - 0.46), 0.96, 0.92
            axes.add_patch(Rectangle(*box, facecolor=colour, alpha=alpha, linewidth=0))
            text = "\n".join(textwrap.wrap(best.label, 34)[:2])
            if word and word != best.as_printed:
                axes.add_patch(Rectangle(*box, fill=False, edgecolor="#B00020", linewidth=1.4))
                text += f"\nTable 6: {_named(word)}"
            axes.text(x, y, text, ha="center", va="center", fontsize=6.6)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(grid) - 0.5, -0.5), xlabel="sparsity (%)")
    axes.set_xticks(range(len(columns)), [f"{100 * sparsity:.4g}" for sparsity in columns])
    axes.set_yticks(range(len(grid)), list(grid))
    axes.tick_params(length=0)
    axes.grid(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_title(name, fontsize=9, loc="left")


_OURS = {"sbp-sr", "eoc-rescaling"}
_FILLS = {
    (True, False): (plots.COLOURS[0], 0.5),
    (True, True): (plots.COLOURS[0], 0.14),
    (False, True): (plots.COLOURS[4], 0.16),
    (False, False): (plots.COLOURS[4], 0.55),
}
"""Whether a method of the paper is among the best, and whether there is a tie -> colour and opacity."""


def _legend(picture: Figure) -> None:
    from matplotlib.patches import Patch

    labels = ("the paper's method alone", "tie with the paper's method", "tie without it", "another alone")
    handles = [
        Patch(facecolor=colour, alpha=alpha, label=label)
        for (colour, alpha), label in zip(_FILLS.values(), labels, strict=True)
    ]
    plots.legend_below(picture, handles=handles, columns=4)


def about(sweep: Sweep) -> str:
    """The setting in one line."""
    each = [sweep, *sweep.also.values()]
    runs = accuracy.either(one["runs"] for one in each)
    said = f"means that differ by no more than the larger of their sds are tied (no bars); {runs} runs of each measured"
    stands = any(one.spec.data == "digits" for one in each)
    return said + ("; digits and narrow networks stand in for the paper's" if stands else "")


ARTIFACTS = (
    Artifact(
        "hayou/tab6", "Which algorithm performs better", "Hayou et al., Table 6, section 4.3",
        {
            "quick": joined(tables.SECOND["quick"]),
            "paper": joined([*tables.SECOND["paper"], *tables.FIFTH["paper"], *tables.THIRD]),
        },
        table, claims, draw, about, accuracy.cost,
    ),
)  # fmt: skip
