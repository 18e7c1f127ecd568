"""What Hayou et al. say about their accuracy tables, decided: who is ahead, where, and by how much (section 4, G)."""

from collections.abc import Mapping, Sequence

import numpy as np

from epoch0.experiments.claims import Claim, at_least, at_most, exact
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.accuracy import Array, Cell, Cells, Panel, Setting, gather
from epoch0.papers.hayou.published import PUBLISHED
from epoch0.papers.hayou.recipe import METHODS
from epoch0.papers.means import mean_and_error

NEAR_CHANCE = 5.0
"""Percent points above what a constant gets that still count as chance; one run in three that learns is above."""

REFERENCES = ("none", "obd")
"""Methods that do not prune at initialization."""


def claims(setting: Setting, results: Results) -> list[Claim]:
    """All that can be asked of the methods and networks there are."""
    measured = gather(setting.panels, results)
    last, cells = setting.panels[-1], measured[-1]
    found = [*_ahead(last, cells, setting.high)]
    found += _with_depth(setting, measured)
    found += [claim for panel, mine in zip(setting.panels, measured, strict=True) for claim in _references(panel, mine)]
    return found + _of_the_print(setting.table)


def chance_claims(setting: Setting, results: Results) -> list[Claim]:
    """Tables 1, 9 and 10: at the highest sparsity SNIP is at chance and SBP-SR is not; then all of :func:`claims`."""
    measured = gather(setting.panels, results)
    pairs = list(zip(setting.panels, measured, strict=True))
    top = [panel.sparsities[-1] for panel in setting.panels]
    names = [f"{panel.title}, {percent(s)}" for panel, s in zip(setting.panels, top, strict=True)]
    words = ", ".join(dict.fromkeys(percent(s) for s in top))
    snip, stable = ([cells[method, panel.sparsities[-1]] for panel, cells in pairs] for method in ("snip", "sbp-sr"))
    counts = [panel.runs for panel in setting.panels]
    learnt = sum(int((cell.on_paths > 0).sum()) for cell in snip)
    return [
        at_most(
            f"at {words} SNIP is at chance, within {NEAR_CHANCE:g} points (a path from input to output is left in "
            f"{learnt} of {sum(counts)} runs)",
            *_above_chance(snip), NEAR_CHANCE, counts, names,
        ),
        at_least(f"at {words} SBP-SR is not", *_above_chance(stable), NEAR_CHANCE, counts, names),
        *claims(setting, results),
    ]  # fmt: skip


def percent(sparsity: float) -> str:
    """As the tables print it.

    >>> percent(0.995)
    '99.5 %'
    """
    return f"{100 * sparsity:.4g} %"


def _above_chance(cells: Sequence[Cell]) -> tuple[list[float], list[float]]:
    means, errors = zip(*(mean_and_error(cell.accuracy - cell.chance) for cell in cells), strict=True)
    return list(means), list(errors)


def gaps(pairs: Mapping[str, tuple[Array, Array]]) -> tuple[list[float], list[float], list[str]]:
    """Mean differences of runs with the same seed (same weights, same order of images), their errors, their names."""
    found = [mean_and_error(first - second) for first, second in pairs.values()]
    return [mean for mean, _ in found], [error for _, error in found], list(pairs)


def _ahead(panel: Panel, cells: Cells, high: float) -> list[Claim]:
    """SBP-SR against every other method that prunes at initialization, on the deepest network."""
    others = [method for method in panel.methods if method not in (*REFERENCES, "sbp-sr")]
    sparsities = [sparsity for sparsity in panel.sparsities if sparsity >= high]
    if "sbp-sr" not in panel.methods or not others or not sparsities:
        return []
    where = f"{panel.title}, from {percent(sparsities[0])} on"
    found = []
    for method in others:
        pairs = {percent(s): (cells["sbp-sr", s].accuracy, cells[method, s].accuracy) for s in sparsities}
        means, errors, names = gaps(pairs)
        text = f"{where}: SBP-SR is at least as accurate as {METHODS[method].label}"
        found.append(at_least(text, means, errors, 0.0, panel.runs, names))
    if "snip" in others:
        pairs = {percent(s): (cells["sbp-sr", s].dead, cells["snip", s].dead) for s in sparsities}
        means, errors, names = gaps(pairs)
        text = f"{where}: SBP-SR has no more fully pruned layers than SNIP"
        found.append(at_most(text, means, errors, 0.0, panel.runs, names))
    return found


def _with_depth(setting: Setting, measured: Sequence[Cells]) -> list[Claim]:
    """The lead of SBP-SR over SNIP grows from the shallowest network to the deepest, data set by data set."""
    found = []
    for kind in dict.fromkeys(_family(panel) for panel in setting.panels):
        mine = [
            (panel, cells)
            for panel, cells in zip(setting.panels, measured, strict=True)
            if _family(panel) == kind and {"snip", "sbp-sr"} <= set(panel.methods)
        ]
        if len(mine) < 2:
            continue
        (first, first_cells), (last, last_cells) = mine[0], mine[-1]
        common = [s for s in last.sparsities if s in first.sparsities and s >= setting.high]
        if not common or first.runs != last.runs:
            continue
        pairs = {percent(s): (_lead(last_cells, s), _lead(first_cells, s)) for s in common}
        means, errors, names = gaps(pairs)
        text = f"the lead of SBP-SR over SNIP is larger for {last.base.network.name} than for {first.title}"
        found.append(at_least(text, means, errors, 0.0, last.runs, names))
    return found


def _family(panel: Panel) -> tuple[str, str, float]:
    """Networks that differ in their depth alone."""
    return panel.base.data, panel.base.network.activation, panel.base.network.width


def _lead(cells: Cells, sparsity: float) -> Array:
    return np.asarray(cells["sbp-sr", sparsity].accuracy - cells["snip", sparsity].accuracy)


def _references(panel: Panel, cells: Cells) -> list[Claim]:
    """Section 4.2 on GraSP-SR, and OBD as the table shows it."""
    found = []
    if {"grasp", "grasp-sr"} <= set(panel.methods):
        pairs = {percent(s): (cells["grasp-sr", s].accuracy, cells["grasp", s].accuracy) for s in panel.sparsities}
        means, errors, names = gaps(pairs)
        text = f"{panel.title}: GraSP on the stable network does not improve on GraSP"
        found.append(at_most(text, means, errors, 0.0, panel.runs, names))
    if "obd" in panel.methods:
        pairs = {
            f"{METHODS[method].label}, {percent(s)}": (cells["obd", s].accuracy, cells[method, s].accuracy)
            for method in panel.methods
            if method not in REFERENCES
            for s in panel.sparsities
        }
        means, errors, names = gaps(pairs)
        text = f"{panel.title}: OBD, which trains before it prunes, is ahead of all that prune at initialization"
        found.append(at_least(text, means, errors, 0.0, panel.runs, names))
    return found


def _of_the_print(table: str) -> list[Claim]:
    """What the tables say about themselves, without a measurement."""
    if table == "tab9":
        apart, compared = _tables_2_and_9()
        text = "as printed: Tables 2 and 9 agree where they show the same network"
        return [exact(text, not apart, f"{len(apart)} of {compared} entries differ: {'; '.join(apart)}")]
    if table == "tab10":
        count = sum(len(row) for each in PUBLISHED["tab10"] for row in each.rows.values())
        same = PUBLISHED["tab10"] == PUBLISHED["tab9"]
        text = 'as printed: Table 10 shows a "vanilla-CNN", as its caption says'
        return [exact(text, not same, f"its {count} accuracies are those of Table 9, of ResNet-32 and ResNet-50")]
    return []


def _tables_2_and_9() -> tuple[list[str], int]:
    apart, compared = [], 0
    for nine in PUBLISHED["tab9"]:
        for two in PUBLISHED["tab2"]:
            if (nine.data, nine.network, nine.activation) != (two.data, two.network, two.activation):
                continue
            for method in nine.rows:
                for sparsity in nine.sparsities:
                    a, b = nine.entry(method, sparsity), two.entry(method, sparsity)
                    if a is None or b is None:
                        continue
                    compared += 1
                    if a != b:
                        name = f"{nine.network} {METHODS[method].label} {percent(sparsity)}"
                        apart.append(f"{name}: {b.value} and {a.value}")
    return apart, compared
