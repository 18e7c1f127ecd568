"""Hayou's accuracy tables: which runs they are made of, and their rows, claims, pictures and costs (section 4, F, G).

A panel is a network on a data set, a sweep over pairs of methods and sparsities; a table is one panel or several.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_least, at_most, exact
from epoch0.experiments.cost import Cost
from epoch0.papers.hayou.protocol import build, run, shape_for
from epoch0.papers.hayou.published import COMPETITION, PUBLISHED, Entry, Printed, block
from epoch0.papers.hayou.recipe import METHODS, Recipe, with_method
from epoch0.papers.means import Array, mean_and_error
from epoch0.papers.pictures import Axes, Figure
from epoch0.papers.sweep import Cell, Claims, Decision, Found, Sweep, Table, by
from epoch0.papers.trials import EXTENTS

NEAR_CHANCE = 5.0  # percent points above a constant's that still count as chance; one run in three that learns is above
REFERENCES = ("none", "obd")  # methods that do not prune at initialization
Pairs = Mapping[str, tuple[Array, Array]]


def panel(base: Recipe, methods: Sequence[str], sparsities: Sequence[float], runs: int) -> Sweep:
    """Every method at every sparsity, run i of each with seed i; ``"none"`` once, at sparsity 0."""
    pairs = [(method, s) for method in methods for s in ((0.0,) if method == "none" else sparsities)]
    recipes = {pair: with_method(base, *pair) for pair in pairs}
    varied = ("method", "sparsity", "norm_after")
    axis = {pair: {name: getattr(recipe, name) for name in varied} for pair, recipe in recipes.items()}
    return Sweep(run, base, {"method sparsity": axis}, runs)


def joined(panels: Sequence[Sweep]) -> Sweep:
    """Panels as one table."""
    first, *others = panels
    return replace(first, also={title(each.spec): each for each in others})


def title(recipe: Recipe) -> str:
    """Network, factor on its filters, and data."""
    network = recipe.network
    tanh = "" if network.activation == "relu" else f", {network.activation}"
    return f"{network.name} x{network.width:g}{tanh}, {recipe.data}"


def printed(table: str, recipe: Recipe) -> Printed | None:
    """What a table prints for that network on those data; None where something smaller stands in for it."""
    return block(table, recipe.data, recipe.network.name, recipe.network.activation)


def dead(cell: Cell) -> Array:
    """How many layers are fully pruned, shape (runs,)."""
    return np.array([float(len(one["dead"])) for one in cell.results])


def sd(values: Array) -> float:
    """Standard deviation of the runs; NaN for a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def table(name: str, found: Found) -> Table:
    """One row a network, method and sparsity; accuracies in percent, printed ones beside those measured."""

    def others(cell: Cell) -> dict[str, Any]:
        recipe, network = cell.spec, cell.spec.network
        there = printed(name, recipe)
        entry = there.entry(recipe.method, recipe.sparsity) if there else None
        row = {"data": recipe.data, "network": network.name, "width": network.width, "activation": network.activation}
        row |= {"method": METHODS[recipe.method].label, "accuracy_sd": sd(100 * cell["accuracy"])}
        row |= {"accuracy_best_epoch": float((100 * cell["best"]).mean()), "chance": 100 * float(cell["chance"][0])}
        row["printed"] = math.nan if entry is None else entry.value
        row["printed_sd"] = math.nan if entry is None or entry.sd is None else entry.sd
        row["dead_layers"] = float(dead(cell).mean())
        row["weights_on_paths"] = float(cell["on_paths"].astype(float).mean())
        return {**row, "diverged": int(cell["diverged"].sum()), "epochs": recipe.epochs_in_all}

    rows = (each.found.rows(lambda cell: {"accuracy": 100 * cell["accuracy"]}, others) for each in panels_of(found))
    return Table(itertools.chain(*rows))


def about(sweep: Sweep) -> str:
    """The setting in one line."""
    each = [sweep, *sweep.also.values()]
    bases = [one.spec for one in each]
    first = bases[0]
    networks = ", ".join(dict.fromkeys(f"{base.network.name} x{base.network.width:g}" for base in bases))
    said = (
        f"{networks} (factor on the filters) on {', '.join(dict.fromkeys(base.data for base in bases))}; "
        f"{either(base.epochs for base in bases)} epochs of SGD at {first.learning_rate:g}, batches of "
        f"{first.batch_size}; scores with batch norm in {first.batch_norm} mode; "
        f"{either(one['runs'] for one in each)} runs; bars: two standard errors"
    )
    if first.data == "digits":
        said += "; 8x8 digits and narrow networks stand in for the paper's"
    reference = [one.spec for one in each if "obd" in one["method"]]
    if reference:
        spent = max(with_method(base, "obd", 0.5).epochs_in_all for base in reference)
        said += f"; OBD trains {spent} epochs in all"
    return said


def either(counts: Iterable[int]) -> str:
    """Different counts in words."""
    return " or ".join(map(str, sorted(set(counts))))


def cost(recipe: Recipe) -> Cost:
    """Of one run; those of the OBD reference are longer."""
    network = recipe.network
    shape, classes, train, test = EXTENTS[recipe.data]
    inputs = shape_for(network, shape)
    name = f"{network.name} x{network.width:g}, {recipe.data}, {network.activation}, batches of {recipe.batch_size}"
    images, tests = min(train, recipe.examples or train), min(test, recipe.tested or test)
    name += ", OBD" * (recipe.method == "obd")
    model, evaluated = partial(build, network, inputs, classes, False, 0), recipe.tests_in_all * tests
    return Cost(name, (), model, inputs, classes, recipe.batch_size, recipe.epochs_in_all * images, evaluated)


@dataclass(frozen=True)
class Winner:
    """The method with the highest mean, and others within one standard deviation of it, the best first."""

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
    """The best of means with their sds, and who is tied with it: by no more than the larger of their two sds apart.

    >>> winner({"snip": (92.26, 0.32), "sbp-sr": (92.56, 0.06), "magnitude": (90.21, 0.55)})
    Winner(best='sbp-sr', tied=('snip',))
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


class Panel:
    """What claims and pictures ask of a panel: arrays have shape (runs,), accuracies are percent of the test images."""

    def __init__(self, found: Found) -> None:
        self.found, self.recipe, self.runs = found, found.sweep.spec, found.sweep["runs"]
        self.name, self.network = title(self.recipe), self.recipe.network.name
        self.methods: tuple[str, ...] = found.sweep["method"]
        self.sparsities = [sparsity for sparsity in found.sweep["sparsity"] if sparsity]
        self.chance = 100 * float(found.cells[0]["chance"][0])

    def accuracy(self, method: str, sparsity: float) -> Array:
        """After the last epoch."""
        return 100 * self.found.one(method=method, sparsity=sparsity)["accuracy"]

    def dead(self, method: str, sparsity: float) -> Array:
        """How many layers are fully pruned."""
        return dead(self.found.one(method=method, sparsity=sparsity))

    def lead(self, first: str, second: str, sparsity: float) -> Array:
        """By how many points one method is ahead of another."""
        return np.asarray(self.accuracy(first, sparsity) - self.accuracy(second, sparsity))

    def pairs(self, first: str, second: str, sparsities: Sequence[float] | None = None) -> Pairs:
        """Accuracies of two methods at each sparsity, or at some."""
        chosen = self.sparsities if sparsities is None else sparsities
        return {percent(s): (self.accuracy(first, s), self.accuracy(second, s)) for s in chosen}

    def winner(self, sparsity: float) -> Winner:
        """The best of those that prune at initialization."""
        each = {m: self.accuracy(m, sparsity) for m in self.methods if m not in REFERENCES}
        return winner({method: (float(mine.mean()), sd(mine)) for method, mine in each.items()})


def panels_of(found: Found) -> list[Panel]:
    """The panels of a table."""
    return [Panel(each) for each in (found, *found.also.values())]


def percent(sparsity: float) -> str:
    """As the tables print it: 99.5 %."""
    return f"{100 * sparsity:.4g} %"


def compared(pairs: Pairs, runs: int, bound: float = 0.0, *, most: bool = False) -> Decision:
    """The first of each pair of runs with one seed, so the same weights and images, is ahead by the bound or more."""
    each = np.transpose([mean_and_error(first - second) for first, second in pairs.values()])
    return by(at_most if most else at_least, *each, bound, runs, list(pairs))


def claims(name: str, high: float, found: Found) -> Claims:
    """All that can be asked of the methods and networks; SBP-SR is expected to be ahead from a high sparsity on."""
    panels = panels_of(found)
    decided = {**_ahead(panels[-1], high), **_with_depth(panels, high)}
    for each in panels:
        decided |= _references(each)
    return {**decided, **of_the_print(name)}


def chance_claims(name: str, high: float, found: Found) -> Claims:
    """Tables 1, 9 and 10: at the highest sparsity SNIP is at chance and SBP-SR is not; then all of :func:`claims`."""
    panels = panels_of(found)
    counts, tops = [each.runs for each in panels], [percent(each.sparsities[-1]) for each in panels]
    names, words = [f"{each.name}, {percent(each.sparsities[-1])}" for each in panels], ", ".join(dict.fromkeys(tops))
    top = {m: [each.found.one(method=m, sparsity=each.sparsities[-1]) for each in panels] for m in ("snip", "sbp-sr")}
    learnt = sum(int((cell["on_paths"].astype(float) > 0).sum()) for cell in top["snip"])
    text = f"at {words} SNIP is at chance, within {NEAR_CHANCE:g} points"
    left = f"(a path from input to output is left in {learnt} of {sum(counts)} runs)"
    snip, stable = (np.transpose([mean_and_error(above_chance(cell)) for cell in cells]) for cells in top.values())
    return {
        f"{text} {left}": by(at_most, *snip, NEAR_CHANCE, counts, names),
        f"at {words} SBP-SR is not": by(at_least, *stable, NEAR_CHANCE, counts, names),
        **claims(name, high, found),
    }


def above_chance(cell: Cell) -> Array:
    """What is above the accuracy of the best constant, percent, (runs,)."""
    return np.asarray(100 * cell["accuracy"] - 100 * float(cell["chance"][0]))


def _ahead(panel: Panel, high: float) -> Claims:
    """SBP-SR against every other method that prunes at initialization, on the deepest network."""
    others = [method for method in panel.methods if method not in (*REFERENCES, "sbp-sr")]
    sparsities = [sparsity for sparsity in panel.sparsities if sparsity >= high]
    if "sbp-sr" not in panel.methods or not others or not sparsities:
        return {}
    where = f"{panel.name}, from {percent(sparsities[0])} on: SBP-SR"
    decided = {
        f"{where} is at least as accurate as {METHODS[other].label}": compared(
            panel.pairs("sbp-sr", other, sparsities), panel.runs
        )
        for other in others
    }
    if "snip" in others:
        pairs = {percent(s): (panel.dead("sbp-sr", s), panel.dead("snip", s)) for s in sparsities}
        decided[f"{where} has no more fully pruned layers than SNIP"] = compared(pairs, panel.runs, most=True)
    return decided


def _with_depth(panels: Sequence[Panel], high: float) -> Claims:
    """The lead of SBP-SR over SNIP grows from the shallowest network to the deepest of those that else are alike."""
    families: dict[tuple[Any, ...], list[Panel]] = {}
    for each in panels:
        if {"snip", "sbp-sr"} <= set(each.methods):
            network = each.recipe.network
            families.setdefault((each.recipe.data, network.activation, network.width), []).append(each)
    decided = {}
    for first, *_, last in (family for family in families.values() if len(family) > 1):
        common = [s for s in last.sparsities if s in first.sparsities and s >= high]
        if common and first.runs == last.runs:
            pairs = {percent(s): (last.lead("sbp-sr", "snip", s), first.lead("sbp-sr", "snip", s)) for s in common}
            text = f"the lead of SBP-SR over SNIP is larger for {last.network} than for {first.name}"
            decided[text] = compared(pairs, last.runs)
    return decided


def _references(panel: Panel) -> Claims:
    """Section 4.2 on GraSP-SR, and OBD as the table shows it."""
    decided = {}
    if {"grasp", "grasp-sr"} <= set(panel.methods):
        text = f"{panel.name}: GraSP on the stable network does not improve on GraSP"
        decided[text] = compared(panel.pairs("grasp-sr", "grasp"), panel.runs, most=True)
    if "obd" in panel.methods:
        pairs = {
            f"{METHODS[method].label}, {where}": pair
            for method in panel.methods
            if method not in REFERENCES
            for where, pair in panel.pairs("obd", method).items()
        }
        text = f"{panel.name}: OBD, which trains before it prunes, is ahead of all that prune at initialization"
        decided[text] = compared(pairs, panel.runs)
    return decided


def of_the_print(table: str) -> Claims:
    """What Tables 9 and 10 say about themselves, without a measurement."""
    if table == "tab9":
        apart, shared = _tables_2_and_9()
        told = f"{len(apart)} of {shared} entries differ: {'; '.join(apart)}"
        return {"as printed: Tables 2 and 9 agree where they show the same network": by(exact, not apart, told)}
    if table == "tab10":
        count = sum(len(row) for each in PUBLISHED["tab10"] for row in each.rows.values())
        same = PUBLISHED["tab10"] == PUBLISHED["tab9"]
        told = f"its {count} accuracies are those of Table 9, of ResNet-32 and ResNet-50"
        return {'as printed: Table 10 shows a "vanilla-CNN", as its caption says': by(exact, not same, told)}
    return {}


def _tables_2_and_9() -> tuple[list[str], int]:
    apart, shared = [], 0
    for nine in PUBLISHED["tab9"]:
        two = block("tab2", nine.data, nine.network, nine.activation)
        for method, sparsity in itertools.product(nine.rows, nine.sparsities):
            a, b = nine.entry(method, sparsity), None if two is None else two.entry(method, sparsity)
            shared += a is not None and b is not None
            if a is not None and b is not None and a != b:
                name = f"{nine.network} {METHODS[method].label} {percent(sparsity)}"
                apart.append(f"{name}: {b.value} and {a.value}")
    return apart, shared


# colour and marker of each method, the same in every table
LOOKS = {"sbp-sr": 0, "eoc-rescaling": 0, "snip": 1, "grasp": 2, "synflow": 3, "magnitude": 4, "force": 4, "random": 5}
LOOKS |= {"obd": 6, "grasp-sr": 7}
_WIDEST = 3  # panels side by side
_PRINTED_RUNS = 3  # behind each printed standard deviation


def draw(name: str, found: Found) -> Figure:
    """What was measured; below it the paper's own panels, where others stand in for them."""
    panels = panels_of(found)
    apart = [] if any(printed(name, each.recipe) for each in panels) else list(PUBLISHED.get(name, ()))
    columns = max(_columns(len(panels)), _columns(len(apart)))
    upper, lower = -(-len(panels) // columns), -(-len(apart) // columns)
    size = (3.4 * columns + 0.6, 2.7 * (upper + lower) + 0.9)
    picture, grid = plots.figure(*size, upper + lower, columns, squeeze=False)
    for each, axes in zip(panels, grid[:upper].flat, strict=False):
        _measured(axes, each, printed(name, each.recipe))
    for there, axes in zip(apart, grid[upper:].flat, strict=False):
        _printed(axes, there)
    for axes in [*grid[:upper].flat[len(panels) :], *grid[upper:].flat[len(apart) :]]:
        axes.remove()
    for row in grid:
        row[0].set_ylabel("test accuracy (%)")
    measured = {method for each in panels for method in each.methods}
    told = {method for there in apart for method in there.rows}
    _legend(picture, [*_in_order(measured), *_in_order(told - measured)], "none" in measured | told, name in PUBLISHED)
    return picture


def _columns(panels: int) -> int:
    """Beside each other, so that no row is emptier than it needs to be: four panels are two and two."""
    return -(-panels // -(-panels // _WIDEST)) if panels else 0


def _measured(axes: Axes, panel: Panel, there: Printed | None) -> None:
    pruned = _in_order(panel.methods)
    for place, method in enumerate(pruned):
        mine = [mean_and_error(panel.accuracy(method, sparsity)) for sparsity in panel.sparsities]
        x = _beside(place, len(pruned), len(mine))
        means, errors = [one.mean for one in mine], [one.error for one in mine]
        line = {"linestyle": "-", "linewidth": 0.6}
        plots.points(axes, x, means, errors, LOOKS[method], METHODS[method].label, **line)
        entries = {at: there.entry(method, s) for at, s in zip(x, panel.sparsities, strict=True)} if there else {}
        known = {at + 0.35 / len(pruned): entry for at, entry in entries.items() if entry}
        if known:
            _open(axes, list(known), list(known.values()), LOOKS[method], alpha=0.8)
    whole = float(panel.accuracy("none", 0.0).mean()) if "none" in panel.methods else None
    lowest = min(float((100 * cell["accuracy"]).mean()) for cell in panel.found)
    _finish(axes, panel.name, panel.sparsities, whole, panel.chance, lowest)


def _printed(axes: Axes, there: Printed) -> None:
    pruned = _in_order(there.rows)
    for place, method in enumerate(pruned):
        row = there.rows[method]
        _open(axes, _beside(place, len(pruned), len(row)), row, LOOKS[method], linestyle="-", linewidth=0.6)
    whole = there.rows["none"][0].value if "none" in there.rows else None
    tanh = "" if there.activation == "relu" else f", {there.activation}"
    lowest = min(entry.value for row in there.rows.values() for entry in row)
    _finish(axes, f"as printed: {there.network}{tanh}, {there.data}", there.sparsities, whole, None, lowest)


def _open(axes: Axes, x: list[float], entries: Sequence[Entry], look: int, **style: Any) -> None:
    """Printed values as open markers."""
    spread = [0.0 if entry.sd is None else entry.sd / _PRINTED_RUNS**0.5 for entry in entries]
    plots.points(axes, x, [entry.value for entry in entries], spread, look, "", markerfacecolor="none", **style)


def _in_order(methods: Iterable[str]) -> list[str]:
    """Those that prune, from left to right as in the legend."""
    return [method for method in METHODS if method in set(methods) and method != "none"]


def _beside(place: int, count: int, points: int) -> list[float]:
    """Methods beside each other, not on top."""
    shift = min(0.6, 0.15 * count) * ((place + 0.5) / count - 0.5)
    return [at + shift for at in range(points)]


def _finish(
    axes: Axes, name: str, sparsities: Sequence[float], whole: float | None, chance: float | None, lowest: float
) -> None:
    """What all panels have; ``whole`` is the accuracy without pruning."""
    if whole is not None:
        axes.axhline(whole, color=plots.BOUND, linestyle="--", linewidth=1.0, zorder=1)
    axes.set_title(name, fontsize=9)
    axes.set_xticks(range(len(sparsities)), [f"{100 * sparsity:.4g}" for sparsity in sparsities])
    axes.set(xlim=(-0.5, len(sparsities) - 0.5), xlabel="sparsity (%)")
    axes.grid(False, axis="x")
    if lowest < 40:
        axes.set_ylim(0, 102)
        if chance is not None:
            axes.axhline(chance, color=plots.BOUND, linestyle=":", linewidth=1.2, zorder=1)


def _legend(picture: Figure, methods: Sequence[str], whole: bool, opened: bool) -> None:
    """Every method once, then what lines and open markers mean."""
    from matplotlib.lines import Line2D

    def entry(label: str, **style: Any) -> Any:
        return Line2D([], [], label=label, **{"color": plots.BOUND, **style})

    handles = [
        entry(METHODS[m].label, color=plots.COLOURS[LOOKS[m]], marker=plots.MARKERS[LOOKS[m]], linewidth=0.6)
        for m in methods
    ]
    handles += [entry("not pruned", linestyle="--", linewidth=1.0)] if whole else []
    handles.append(entry("chance", linestyle=":", linewidth=1.2))
    handles += [entry("as printed (open)", marker="o", markerfacecolor="none", linestyle="none")] if opened else []
    plots.legend_below(picture, handles=handles, columns=6)
