"""Hayou Table 6: which algorithm is best where, with those within one standard deviation of it counted as ties."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epoch0.experiments.claims import Claim, at_least, exact
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.accuracy import Cells, Panel, gather, trials_of
from epoch0.papers.hayou.accuracy_claims import REFERENCES, gaps, percent
from epoch0.papers.hayou.published import COMPETITION, PUBLISHED, WINNERS, Printed
from epoch0.papers.hayou.recipe import METHODS

SOURCES = ("tab2", "tab3", "tab5")
"""The tables that Table 6 sums up."""


@dataclass(frozen=True)
class WinnersSetting:
    """One preset of Table 6.

    Attributes:
        panels: those of Tables 2, 3 and 5.
    """

    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Winner:
    """The outcome at one sparsity.

    Attributes:
        best: the method with the highest mean.
        tied: others within one standard deviation of it, the best first; empty if it is clear.
    """

    best: str
    tied: tuple[str, ...]

    @property
    def label(self) -> str:
        """In words."""
        names = [METHODS[method].label for method in (self.best, *self.tied)]
        return names[0] if not self.tied else f"tie: {', '.join(names)}"

    @property
    def as_printed(self) -> str:
        """The method, or what Table 6 prints for no clear winner."""
        return COMPETITION if self.tied else self.best


def winner(accuracies: Mapping[str, tuple[float, float]]) -> Winner:
    """The best mean, and who is within one standard deviation of it.

    >>> winner({"snip": (92.26, 0.32), "sbp-sr": (92.56, 0.06), "magnitude": (90.21, 0.55)})
    Winner(best='sbp-sr', tied=('snip',))

    Two means are tied if they differ by no more than the larger of their two standard deviations. The sd of a single
    run, NaN, ties nobody.

    Args:
        accuracies: method -> mean and standard deviation of its runs.
    """
    order = sorted(accuracies, key=lambda method: -accuracies[method][0])
    best, sd = accuracies[order[0]]
    tied = []
    for method in order[1:]:
        mean, spread = accuracies[method]
        widest = max((each for each in (sd, spread) if not math.isnan(each)), default=0.0)
        if best - mean <= widest:
            tied.append(method)
    return Winner(order[0], tuple(tied))


def printed_winners() -> dict[tuple[str, str, float], tuple[str, Winner]]:
    """(data, network, sparsity) -> what Table 6 prints, and what Tables 2, 3 and 5 as printed give."""
    found = {}
    for (data, network), row in WINNERS.items():
        for sparsity, word in row.items():
            for name in SOURCES:
                for each in PUBLISHED[name]:
                    if (each.data, each.network, each.activation) == (data, network, "relu"):
                        found[data, network, sparsity] = word, winner(_entries(each, sparsity))
    return found


def _entries(block: Printed, sparsity: float) -> dict[str, tuple[float, float]]:
    found = {}
    for method in block.rows:
        entry = block.entry(method, sparsity)
        if entry is not None and method not in REFERENCES:
            found[method] = entry.value, math.nan if entry.sd is None else entry.sd
    return found


def measured_winner(cells: Cells, sparsity: float) -> Winner:
    """The same from measured cells."""
    mine = {cell.method: (cell.mean, cell.sd) for cell in cells.values() if cell.sparsity == sparsity}
    return winner({method: values for method, values in mine.items() if method not in REFERENCES})


def trials(setting: WinnersSetting) -> list[Trial]:
    """Those of the tables it sums up."""
    return trials_of(setting.panels)


def table(setting: WinnersSetting, results: Results) -> list[dict[str, Any]]:
    """One row a network and sparsity that was measured, then those of the print."""
    rows = []
    for panel, cells in zip(setting.panels, gather(setting.panels, results), strict=True):
        for sparsity in panel.sparsities:
            found = measured_winner(cells, sparsity)
            word = WINNERS.get((panel.base.data, panel.base.network.name), {}).get(sparsity, "")
            rows.append(_row("measured", panel.base.data, panel.base.network.name, sparsity, found, word, panel.runs))
    for (data, network, sparsity), (word, found) in printed_winners().items():
        rows.append(_row("as printed", data, network, sparsity, found, word, 3))
    return rows


def _row(source: str, data: str, network: str, sparsity: float, found: Winner, word: str, runs: int) -> dict[str, Any]:
    said = "" if not word else "no clear winner" if word == COMPETITION else METHODS[word].label
    return {
        "from": source,
        "data": data,
        "network": network,
        "sparsity": sparsity,
        "best": METHODS[found.best].label,
        "tied": ", ".join(METHODS[method].label for method in found.tied),
        "table_6": said,
        "runs": runs,
    }


def claims(setting: WinnersSetting, results: Results) -> list[Claim]:
    """Table 6 against the tables it is made of, as printed; then SBP-SR against the best of the others, measured."""
    both = printed_winners()
    wrong = [
        f"{network} {data} {percent(sparsity)}: {_named(word)} printed, {found.label}"
        for (data, network, sparsity), (word, found) in both.items()
        if word != found.as_printed
    ]
    other = [
        f"{network} {data} {percent(sparsity)}"
        for (data, network, sparsity), (word, found) in both.items()
        if word != COMPETITION and word != found.best
    ]
    made = [
        exact(
            "as printed: Table 6 follows from Tables 2, 3 and 5 with ties inside one sd",
            not wrong, f"{len(wrong)} of {len(both)} entries do not: {'; '.join(wrong)}", {"different": len(wrong)},
        ),
        exact(
            "as printed: every winner that Table 6 names has the highest mean",
            not other, f"{len(other)} of {len(both)} have not: {', '.join(other)}", {"different": len(other)},
        ),
    ]  # fmt: skip
    return made + _of_deepest(setting, results)


def _of_deepest(setting: WinnersSetting, results: Results) -> list[Claim]:
    measured = gather(setting.panels, results)
    deepest: dict[str, tuple[Panel, Cells]] = {}
    for panel, cells in zip(setting.panels, measured, strict=True):
        if "sbp-sr" in panel.methods:
            deepest[panel.base.data] = panel, cells
    found = []
    for panel, cells in deepest.values():
        pairs = {}
        for sparsity in panel.sparsities:
            rivals = [m for m in panel.methods if m not in (*REFERENCES, "sbp-sr")]
            best = max(rivals, key=lambda method: cells[method, sparsity].mean)
            name = f"{percent(sparsity)} against {METHODS[best].label}"
            pairs[name] = cells["sbp-sr", sparsity].accuracy, cells[best, sparsity].accuracy
        means, errors, names = gaps(pairs)
        text = f"{panel.title}: SBP-SR is the best, or as good as the best of the others, at every sparsity"
        found.append(at_least(text, means, errors, 0.0, panel.runs, names))
    return found


def _named(word: str) -> str:
    return "no clear winner" if word == COMPETITION else METHODS[word].label


def about(setting: WinnersSetting) -> str:
    """The setting in one line."""
    runs = " or ".join(str(count) for count in sorted({panel.runs for panel in setting.panels}))
    said = f"means that differ by no more than the larger of their sds are tied (no bars); {runs} runs of each measured"
    stands = any(panel.base.data == "digits" for panel in setting.panels)
    return said + ("; digits and narrow networks stand in for the paper's" if stands else "")
