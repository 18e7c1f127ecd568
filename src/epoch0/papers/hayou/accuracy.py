"""Hayou's accuracy tables: which runs they are made of, and their rows, claims, pictures and costs (section 4, F, G).

A panel is a network on a data set, a sweep over pairs of methods and sparsities; a table is one panel or several.
Beside what is measured stands what is printed: percent of the test images, mean ± standard deviation of 3 runs, from
published.txt: one head a block (table, data, network, nonlinearity, sparsities), then its rows, one a method. Slips of
the print are kept (docs/hayou-accuracy).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from epoch0 import plots
from epoch0.experiments.claims import at_least, at_most, exact
from epoch0.experiments.cost import Cost
from epoch0.papers.hayou.protocol import METHODS, Recipe, build, run, shape_for, with_method
from epoch0.papers.sweep import Cell, Found, Sweep
from epoch0.papers.tables import Array, Claims, Decision, Table, by, mean_and_error, over_runs
from epoch0.papers.trials import EXTENTS
from epoch0.results import Grid

COMPETITION = "C"  # what Table 6 prints where it sees no clear winner


class Entry(NamedTuple):
    """One printed accuracy in percent; ``sd`` is None if nothing stands behind it, or nothing that is a number."""

    value: float
    sd: float | None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.sd is None else f" ± {self.sd:.2f}")


def _read(text: str) -> dict[str, dict[tuple[str, ...], dict[tuple[str, float], Any]]]:
    """Table -> (data, network, nonlinearity) -> (method, sparsity) -> entry, or a word; no pruning has sparsity 0."""
    found: dict[str, dict[tuple[str, ...], dict[tuple[str, float], Any]]] = {}
    for line in text.strip().splitlines():
        if ":" in line:
            head, _, sparsities = line.partition(":")
            name, *block = head.split()
            own = found.setdefault(name, {}).setdefault(tuple(block), {})
            continue
        for method, *entries in map(str.split, line.split("|")):
            places = ["0"] if method == "none" else sparsities.split()
            for place, (value, _, sd) in zip(places, (entry.partition("±") for entry in entries), strict=True):
                entry = Entry(float(value), float(sd) if sd.count(".") == 1 else None) if method != "best" else value
                own[method, float(place)] = entry
    return found


PUBLISHED = _read(Path(__file__).with_name("published.txt").read_text("utf-8"))
WINNERS: dict[tuple[str, ...], dict[float, str]] = {
    (data, network): {s: word for (_, s), word in own.items()}
    for (data, network, _), own in PUBLISHED.pop("tab6").items()
}
"""Table 6: (data, network) -> sparsity -> method, or :data:`COMPETITION`."""
# Table 10 prints Table 9 once more, to the digit, under the caption "vanilla-CNN"
PUBLISHED["tab10"] = PUBLISHED["tab9"]


# ---- Panels

NEAR_CHANCE = 5.0  # percent points above a constant's that still count as chance; one run in three that learns is above
REFERENCES = ("none", "obd")  # methods that do not prune at initialization
WAYS = ("eoc-row", "eoc-measured")  # to rescale, beside the one whose numbers the paper's are set against
Pairs = Mapping[str, tuple[Array, Array]]


def panel(base: Recipe, methods: Sequence[str], sparsities: Sequence[float], runs: int, **rates: float) -> Sweep:
    """Every method at every sparsity, run i of each with seed i; ``"none"`` once, at sparsity 0.

    ``rates`` are learning rates of methods that have one of their own.
    """
    axis = {}
    for method in methods:
        for s in (0.0,) if method == "none" else sparsities:
            late, rate = with_method(base, method, s).norm_after, rates.get(method, base.learning_rate)
            axis[method, s] = {"method": method, "sparsity": s, "norm_after": late, "learning_rate": rate}
    return Sweep(run, base, {"method sparsity": axis}, runs)


def joined(panels: Sequence[Sweep]) -> Sweep:
    """Panels as one table."""
    return replace(panels[0], also={title(each.spec): each for each in panels[1:]})


def title(recipe: Recipe) -> str:
    """Network, factor on its filters, and data."""
    network = recipe.network
    tanh = "" if network.activation == "relu" else f", {network.activation}"
    return f"{network.name} x{network.width:g}{tanh}, {recipe.data}"


def printed(table: str, recipe: Recipe) -> Mapping[tuple[str, float], Entry]:
    """What a table prints for that network on those data; nothing where something smaller stands in for it."""
    return PUBLISHED.get(table, {}).get((recipe.data, recipe.network.name, recipe.network.activation), {})


def dead(cell: Cell) -> Array:
    """How many layers are fully pruned, shape (runs,)."""
    return np.array([float(len(one["dead"])) for one in cell.results])


def chance(cell: Cell) -> float:
    """Accuracy of the best constant, percent."""
    return 100 * float(cell["chance"][0])


def sd(values: Array) -> float:
    """Standard deviation of the runs; NaN for a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def table(name: str, found: Found) -> Table:
    """One row a network, method and sparsity; accuracies in percent, printed ones beside those measured."""

    def others(cell: Cell) -> dict[str, Any]:
        recipe, network = cell.spec, cell.spec.network
        entry = printed(name, recipe).get((recipe.method, recipe.sparsity), Entry(math.nan, None))
        row = {"data": recipe.data, "network": network.name, "width": network.width, "activation": network.activation}
        row |= {"method": METHODS[recipe.method].label, "accuracy_sd": sd(100 * cell["accuracy"])}
        row |= {"accuracy_best_epoch": float((100 * cell["best"]).mean()), "chance": chance(cell)}
        row |= {"printed": entry.value, "printed_sd": math.nan if entry.sd is None else entry.sd}
        row |= {"dead_layers": float(dead(cell).mean())}
        row |= {"weights_on_paths": float(cell["on_paths"].astype(float).mean())}
        return {**row, "diverged": int(cell["diverged"].sum()), "epochs": recipe.trainings * recipe.epochs}

    each = (found, *found.also.values())
    return Table(row for one in each for row in one.rows(lambda cell: {"accuracy": 100 * cell["accuracy"]}, others))


def titled(before: str, after: str, sweep: Sweep) -> str:
    """The title of a table: the networks and data that it has."""
    bases = [one.spec for one in (sweep, *sweep.also.values())]
    names, data = (dict.fromkeys(found) for found in zip(*((b.network.name, b.data) for b in bases), strict=True))
    return f"{before} {', '.join(names)} on {', '.join(data)}{after}"


def about(sweep: Sweep) -> str:
    """The setting in one line."""
    each = [sweep, *sweep.also.values()]
    bases, specs = [one.spec for one in each], [spec for one in each for _, spec, _ in one.cells()]
    networks = ", ".join(dict.fromkeys(f"{base.network.name} x{base.network.width:g}" for base in bases))
    said = f"{networks} (factor on the filters) on {', '.join(dict.fromkeys(base.data for base in bases))}; "
    said += f"{either(base.epochs for base in bases)} epochs of SGD at {either(one.learning_rate for one in specs)}, "
    said += sweep.told("batches of {batch_size}; scores with batch norm in {batch_norm} mode")
    said += ", without it where rescaled; " if any(one.norm_after for one in specs) else "; "
    said += f"{either(one['runs'] for one in each)} runs, no bars"
    spent = [(1 + one.spec.obd_rounds) * one.spec.epochs for one in each if "obd" in one["method"]]
    return f"{said}; OBD trains {max(spent)} epochs in all" if spent else said


def either(counts: Iterable[float]) -> str:
    """Different numbers in words."""
    return " or ".join(map(str, sorted(set(counts))))


def cost(recipe: Recipe) -> Cost:
    """Of one run; those of the OBD reference are longer."""
    network = recipe.network
    shape, classes, train, test = EXTENTS[recipe.data]
    inputs = shape_for(network, shape)
    name = f"{network.name} x{network.width:g}, {recipe.data}, {network.activation}, batches of {recipe.batch_size}"
    images, tests = min(train, recipe.examples or train), min(test, recipe.tested or test)
    name += ", OBD" * (recipe.method == "obd")
    model, images = partial(build, network, inputs, classes, False, 0), recipe.trainings * recipe.epochs * images
    return Cost(name, (), model, inputs, classes, recipe.batch_size, images, recipe.tests * tests)


@dataclass(frozen=True)
class Winner:
    """The method with the highest mean, and others within one standard deviation of it, the best first."""

    best: str
    tied: tuple[str, ...]

    @property
    def label(self) -> str:
        """In words."""
        names = ", ".join(METHODS[method].label for method in (self.best, *self.tied))
        return f"tie: {names}" if self.tied else names

    @property
    def as_printed(self) -> str:
        """The method, or what Table 6 prints for no clear winner."""
        return COMPETITION if self.tied else self.best


def winner(accuracies: Mapping[str, tuple[float, float]]) -> Winner:
    """The best of means with their sds, and who is tied with it: by no more than the larger of their two sds apart.

    >>> winner({"snip": (92.26, 0.32), "sbp-sr": (92.56, 0.06), "magnitude": (90.21, 0.55)})
    Winner(best='sbp-sr', tied=('snip',))
    """
    first, *others = sorted(accuracies, key=lambda method: -accuracies[method][0])
    best, sd = accuracies[first]

    def near(mean: float, spread: float) -> bool:
        return best - mean <= max((each for each in (sd, spread) if not math.isnan(each)), default=0.0)

    return Winner(first, tuple(method for method in others if near(*accuracies[method])))


class Panel:
    """What claims and pictures ask of a panel: arrays have shape (runs,), accuracies are percent of the test images."""

    def __init__(self, found: Found) -> None:
        self.found, self.recipe, self.runs = found, found.sweep.spec, found.sweep["runs"]
        self.name, self.network = title(self.recipe), self.recipe.network.name
        self.methods: tuple[str, ...] = found.sweep["method"]
        self.sparsities = [sparsity for sparsity in found.sweep["sparsity"] if sparsity]

    def cell(self, method: str, sparsity: float | None = None) -> Cell:
        """The runs of a method at a sparsity, or at the highest."""
        return self.found.one(method=method, sparsity=self.sparsities[-1] if sparsity is None else sparsity)

    def accuracy(self, method: str, sparsity: float) -> Array:
        """After the last epoch."""
        return 100 * self.cell(method, sparsity)["accuracy"]

    def lead(self, first: str, second: str, sparsity: float) -> Any:
        """By how many points one method is ahead of another."""
        return self.accuracy(first, sparsity) - self.accuracy(second, sparsity)

    def pairs(self, first: str, second: str, sparsities: Sequence[float] | None = None) -> Pairs:
        """Accuracies of two methods at each sparsity, or at some."""
        return {percent(s): (self.accuracy(first, s), self.accuracy(second, s)) for s in sparsities or self.sparsities}

    def winner(self, sparsity: float) -> Winner:
        """The best of those that prune at initialization."""
        each = {m: self.accuracy(m, sparsity) for m in self.methods if m not in (*REFERENCES, *WAYS)}
        return winner({method: (float(mine.mean()), sd(mine)) for method, mine in each.items()})


def panels_of(found: Found) -> list[Panel]:
    """The panels of a table."""
    return [Panel(each) for each in (found, *found.also.values())]


def percent(sparsity: float) -> str:
    """As the tables print it: 99.5 %."""
    return f"{100 * sparsity:.4g} %"


def compared(pairs: Pairs, bound: float = 0.0, *, most: bool = False) -> Decision:
    """The first of each pair of runs with one seed, so the same weights and images, is ahead by the bound or more."""
    each = [first - second for first, second in pairs.values()]
    return over_runs(at_most if most else at_least, each, bound, names=list(pairs))


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
    tops = [percent(each.sparsities[-1]) for each in panels]
    names = [f"{each.name}, {top}" for each, top in zip(panels, tops, strict=True)]
    at = f"at {', '.join(dict.fromkeys(tops))}"
    learnt = sum(int((each.cell("snip")["on_paths"].astype(float) > 0).sum()) for each in panels)
    left = f"(a path from input to output is left in {learnt} of {sum(each.runs for each in panels)} runs)"
    snip, stable = ([above_chance(each.cell(method)) for each in panels] for method in ("snip", "sbp-sr"))
    near = f"{at} SNIP is at chance, within {NEAR_CHANCE:g} points {left}"
    return {
        near: over_runs(at_most, snip, NEAR_CHANCE, names=names),
        f"{at} SBP-SR is not": over_runs(at_least, stable, NEAR_CHANCE, names=names),
        **claims(name, high, found),
    }


def above_chance(cell: Cell) -> Array:
    """What is above the accuracy of the best constant, percent, (runs,)."""
    return np.asarray(100 * cell["accuracy"] - chance(cell))


def _ahead(panel: Panel, high: float) -> Claims:
    """SBP-SR against every other method that prunes at initialization, on the deepest network."""
    others = [method for method in panel.methods if method not in (*REFERENCES, "sbp-sr")]
    sparsities = [sparsity for sparsity in panel.sparsities if sparsity >= high]
    if "sbp-sr" not in panel.methods or not others or not sparsities:
        return {}
    decided, where = {}, f"{panel.name}, from {percent(sparsities[0])} on: SBP-SR"
    for other in others:
        text = f"{where} is at least as accurate as {METHODS[other].label}"
        decided[text] = compared(panel.pairs("sbp-sr", other, sparsities))
    if "snip" in others:
        pairs = {percent(s): (dead(panel.cell("sbp-sr", s)), dead(panel.cell("snip", s))) for s in sparsities}
        decided[f"{where} has no more fully pruned layers than SNIP"] = compared(pairs, most=True)
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
            decided[text] = compared(pairs)
    return decided


def _references(panel: Panel) -> Claims:
    """Section 4.2 on GraSP-SR, and OBD as the table shows it."""
    decided = {}
    if {"grasp", "grasp-sr"} <= set(panel.methods):
        text = f"{panel.name}: GraSP on the stable network does not improve on GraSP"
        decided[text] = compared(panel.pairs("grasp-sr", "grasp"), most=True)
    if "obd" in panel.methods:
        others = {METHODS[m].label: panel.pairs("obd", m) for m in panel.methods if m not in REFERENCES}
        pairs = {f"{label}, {where}": pair for label, each in others.items() for where, pair in each.items()}
        text = f"{panel.name}: OBD, which trains before it prunes, is ahead of all that prune at initialization"
        decided[text] = compared(pairs)
    return decided


def of_the_print(table: str) -> Claims:
    """What Tables 9 and 10 say about themselves, without a measurement."""
    if table == "tab9":
        shared = {
            f"{key[1]} {METHODS[method].label} {percent(s)}": (PUBLISHED["tab2"][key][method, s], nine)
            for key, own in PUBLISHED["tab9"].items()
            for (method, s), nine in own.items()
            if (method, s) in PUBLISHED["tab2"].get(key, {})
        }
        apart = [f"{name}: {two.value} and {nine.value}" for name, (two, nine) in shared.items() if two != nine]
        told = f"{len(apart)} of {len(shared)} entries differ: {'; '.join(apart)}"
        return {"as printed: Tables 2 and 9 agree where they show the same network": by(exact, not apart, told)}
    if table == "tab10":
        count = sum(map(len, PUBLISHED["tab10"].values()))
        same = PUBLISHED["tab10"] == PUBLISHED["tab9"]
        told = f"its {count} accuracies are those of Table 9, of ResNet-32 and ResNet-50"
        return {'as printed: Table 10 shows a "vanilla-CNN", as its caption says': by(exact, not same, told)}
    return {}


def tables(name: str, found: Found) -> list[Grid]:
    """A table a panel, what is printed for it in brackets; the paper's own after them, where others stand in."""
    made, panels = [], panels_of(found)
    for each in panels:
        there = printed(name, each.recipe)
        shown = f"{each.name}: % ± standard error" + (" (as printed, ± sd)" if there else "")
        made.append(_grid(shown, there, each.methods, each.sparsities, each))
    if not any(printed(name, each.recipe) for each in panels):
        for (data, network, activation), there in PUBLISHED.get(name, {}).items():
            tanh = "" if activation == "relu" else f", {activation}"
            shown, sparsities = f"as printed: {network}{tanh}, {data}, % ± sd", dict.fromkeys(s for _, s in there if s)
            made.append(_grid(shown, there, [method for method, _ in there], list(sparsities)))
    return made


def _grid(shown: str, there: Mapping[Any, Entry], methods: Any, sparsities: Any, own: Panel | None = None) -> Grid:
    """A row a method, what is not pruned with one entry: what is printed, or what was measured with it in brackets."""

    def cell(method: str, sparsity: float) -> str:
        told = str(there.get((method, sparsity), ""))
        if own is None:
            return told
        mean, error = mean_and_error(own.accuracy(method, sparsity))
        return f"{mean:.1f} ± {error:.1f}" + (f" ({told})" if told else "")

    rest = [""] * (len(sparsities) - 1)
    rows = {
        METHODS[method].label: [cell(method, 0.0), *rest] if method == "none" else [cell(method, s) for s in sparsities]
        for method in METHODS
        if method in methods
    }
    return Grid(shown, tuple(map(percent, sparsities)), rows)


def draw(tables: Callable[[Found], Sequence[Grid]], found: Found) -> plots.Figure:
    """Laid out as the paper has it: tables; the best of those that prune at initialization is shaded."""
    return plots.tables(tables(found), [METHODS[method].label for method in REFERENCES])
