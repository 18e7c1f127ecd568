"""Hayou's accuracy tables, 1 to 6 and 8 to 10: their runs, rows, claims, pictures and costs (sections 1, 4, F, G).

A panel is a network on a data set, a sweep over pairs of methods and sparsities; a table is one panel or several.
Beside what is measured stands what is printed, from published.txt: one head a block (table, data, network,
nonlinearity, sparsities), then its rows, one a method. docs/hayou-accuracy says how what is left open was chosen.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import MORE, Claim, at_least, at_most, between, equal_within_error, exact
from epoch0.experiments.cost import Cost
from epoch0.papers.hayou.protocol import METHODS, Network, Recipe, build, run, shape_for
from epoch0.papers.sweep import Artifact, Cell, Found, Sweep, by_cell
from epoch0.papers.tables import Array, Claims, Decision, Table, by, mean_and_error, over_runs
from epoch0.papers.trials import EXTENTS
from epoch0.results import Grid

UNCLEAR = "no clear winner"  # "C" in Table 6


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
# Table 6: data, network, sparsity -> the best method, or UNCLEAR
WINNERS: dict[tuple[str, str, float], str] = {
    (data, network, s): UNCLEAR if word == "C" else METHODS[word].label
    for (data, network, _), own in PUBLISHED.pop("tab6").items()
    for (_, s), word in own.items()
}
# Table 10 prints Table 9 once more, to the digit, under the caption "vanilla-CNN"
PUBLISHED["tab10"] = PUBLISHED["tab9"]


NEAR_CHANCE = 5.0  # percent points above a constant's that still count as chance; one run in three that learns is above
REFERENCES = ("none", "obd")  # methods that do not prune at initialization
WAYS = ("eoc-row", "eoc-measured")  # to rescale, beside the one whose numbers the paper's are set against
Leads = dict[str, Array]


def panel(base: Recipe, methods: Sequence[str], sparsities: Sequence[float], runs: int, **rates: float) -> Sweep:
    """Every method at every sparsity, run i of each with seed i; ``"none"`` once, at sparsity 0. ``rates`` are learning
    rates of methods that have one of their own; only who rescales has norms later.
    """
    axis = {}
    for method in methods:
        late, rate = base.norm_after and METHODS[method].rescaled is not None, rates.get(method, base.learning_rate)
        for s in (0.0,) if method == "none" else sparsities:
            axis[method, s] = {"method": method, "sparsity": s, "norm_after": late, "learning_rate": rate}
    return Sweep(run, base, {"method sparsity": axis}, runs)


def joined(panels: Sequence[Sweep]) -> Sweep:
    return replace(panels[0], also={title(each.spec): each for each in panels[1:]})


def title(recipe: Recipe) -> str:
    network = recipe.network
    tanh = "" if network.activation == "relu" else f", {network.activation}"
    return f"{network.name} x{network.width:g}{tanh}, {recipe.data}"


def printed(table: str, recipe: Recipe) -> Mapping[tuple[str, float], Entry]:
    """Entries of a printed table for this network and data; empty if a smaller network stands in for it."""
    return PUBLISHED[table].get((recipe.data, recipe.network.name, recipe.network.activation), {})


def percents(cell: Cell) -> Array:
    """Accuracy after the last epoch, (runs,)."""
    return 100 * cell["accuracy"]


def chance(cell: Cell) -> float:
    """The same of the best constant."""
    return 100 * float(cell["chance"][0])


def dead(cell: Cell) -> Array:
    """How many layers are fully pruned, (runs,)."""
    return np.array([float(len(result["dead"])) for result in cell.results])


def sd(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def table(name: str, found: Found) -> Table:
    """One row a network, method and sparsity; accuracies in percent, printed ones beside those measured."""

    def columns(cell: Cell) -> Any:
        recipe, network = cell.spec, cell.spec.network
        entry = printed(name, recipe).get((recipe.method, recipe.sparsity), Entry(math.nan, None))
        row = {"data": recipe.data, "network": network.name, "width": network.width, "activation": network.activation}
        row |= {"method": METHODS[recipe.method].label, "accuracy_sd": sd(percents(cell))}
        row |= {"accuracy_best_epoch": float((100 * cell["best"]).mean()), "chance": chance(cell)}
        row |= {"printed": entry.value, "printed_sd": math.nan if entry.sd is None else entry.sd}
        row |= {"dead_layers": float(dead(cell).mean())}
        row |= {"weights_on_paths": float(cell["on_paths"].astype(float).mean())}
        row |= {"diverged": int(cell["diverged"].sum()), "epochs": recipe.trainings * recipe.epochs}
        return {"accuracy": percents(cell)}, row

    return Table(row for item in (found, *found.also.values()) for row in item.rows(columns))


def titled(before: str, after: str, sweep: Sweep) -> str:
    bases = [item.spec for item in (sweep, *sweep.also.values())]
    names, data = (dict.fromkeys(found) for found in zip(*((b.network.name, b.data) for b in bases), strict=True))
    return f"{before} {', '.join(names)} on {', '.join(data)}{after}"


def about(sweep: Sweep) -> str:
    each = [sweep, *sweep.also.values()]
    bases, specs = [item.spec for item in each], [spec for item in each for _, spec, _ in item.cells()]
    networks = ", ".join(dict.fromkeys(f"{base.network.name} x{base.network.width:g}" for base in bases))
    text = f"{networks} (factor on the filters) on {', '.join(dict.fromkeys(base.data for base in bases))}; "
    text += f"{either(base.epochs for base in bases)} epochs of SGD at {either(item.learning_rate for item in specs)}, "
    text += sweep.fill("batches of {batch_size}; scores with batch norm in {batch_norm} mode")
    text += ", without it where rescaled; " if any(item.norm_after for item in specs) else "; "
    text += f"{either(item['runs'] for item in each)} runs"
    spent = [(1 + item.spec.obd_rounds) * item.spec.epochs for item in each if "obd" in item["method"]]
    return f"{text}; OBD trains {max(spent)} epochs in all" if spent else text


def either(counts: Iterable[float]) -> str:
    return " or ".join(map(str, sorted(set(counts))))


def cost(recipe: Recipe) -> Cost:
    network = recipe.network
    shape, classes, train, test = EXTENTS[recipe.data]
    inputs = shape_for(network, shape)
    name = f"{network.name} x{network.width:g}, {recipe.data}, {network.activation}, batches of {recipe.batch_size}"
    images, tests = min(train, recipe.examples or train), min(test, recipe.tested or test)
    name += ", OBD" * (recipe.method == "obd")
    model, images = partial(build, network, inputs, classes, False, 0), recipe.trainings * recipe.epochs * images
    return Cost(name, (), model, inputs, classes, recipe.batch_size, images, recipe.tests * tests)


def winners(accuracies: Mapping[str, tuple[float, float]]) -> list[str]:
    """The best of means with their sds, then who is tied with it: by no more than the larger of their two sds apart.

    >>> winners({"snip": (92.26, 0.32), "sbp-sr": (92.56, 0.06), "magnitude": (90.21, 0.55)})
    ['sbp-sr', 'snip']
    """
    best, spread = max(accuracies.values(), key=lambda item: item[0])

    def tied(method: str) -> bool:
        mean, own = accuracies[method]
        return best - mean <= max((each for each in (spread, own) if not math.isnan(each)), default=0.0)

    return [method for method in sorted(accuracies, key=lambda method: -accuracies[method][0]) if tied(method)]


class Panel:
    """The data of a panel for claims and pictures: arrays have shape (runs,), accuracies are percent of test images."""

    def __init__(self, found: Found) -> None:
        self.found, self.recipe, self.runs = found, found.sweep.spec, found.sweep["runs"]
        self.name, self.network = title(self.recipe), self.recipe.network.name
        self.methods: tuple[str, ...] = found.sweep["method"]
        self.sparsities = [sparsity for sparsity in found.sweep["sparsity"] if sparsity]
        self.top = self.sparsities[-1]

    def cell(self, method: str, sparsity: float) -> Cell:
        return self.found.one(method=method, sparsity=sparsity)

    def accuracy(self, method: str, sparsity: float) -> Array:
        return percents(self.cell(method, sparsity))

    def leads(self, first: str, second: str, least: float = 0.0, of: Callable[[Cell], Array] = percents) -> Leads:
        """By how many points one method is ahead of another, at each sparsity from the least on."""
        subset = [sparsity for sparsity in self.sparsities if sparsity >= least]
        return {percent(s): of(self.cell(first, s)) - of(self.cell(second, s)) for s in subset}

    def rivals(self, sparsity: float) -> dict[str, Array]:
        """Accuracies of those that prune at initialization, as the paper has them."""
        methods = (method for method in self.methods if method not in (*REFERENCES, *WAYS))
        return {method: self.accuracy(method, sparsity) for method in methods}


def panels_of(found: Found) -> list[Panel]:
    return [Panel(each) for each in (found, *found.also.values())]


def percent(sparsity: float) -> str:
    """As the tables print it: 99.5 %."""
    return f"{100 * sparsity:.4g} %"


def ahead(leads: Leads, bound: float = MORE, decide: Callable[..., Claim] = at_least) -> Decision:
    """Decides by differences of runs of one seed, so with the same weights and images, in each of some settings."""
    return over_runs(decide, list(leads.values()), bound, names=list(leads))


def claims(name: str, high: float, found: Found) -> Claims:
    """All that can be asked of the methods and networks; SBP-SR is expected to be ahead from a high sparsity on."""
    panels, decided = panels_of(found), dict[str, Decision]()
    deepest = panels[-1]
    where = f"{deepest.name}, from {percent(min(s for s in deepest.sparsities if s >= high))} on: SBP-SR"
    for other in deepest.methods:
        if other not in (*REFERENCES, "sbp-sr"):
            text = f"{where} is at least as accurate as {METHODS[other].label}"
            decided[text] = ahead(deepest.leads("sbp-sr", other, high))
    more = deepest.leads("sbp-sr", "snip", high, dead)
    decided[f"{where} has no more fully pruned layers than SNIP"] = ahead(more, decide=at_most)
    families: dict[tuple[Any, ...], list[Panel]] = {}
    for each in panels:
        network = each.recipe.network
        families.setdefault((each.recipe.data, network.activation, network.width), []).append(each)
    for first, *_, last in (family for family in families.values() if len(family) > 1):
        less, most = (each.leads("sbp-sr", "snip", high) for each in (first, last))
        text = f"the lead of SBP-SR over SNIP is larger for {last.network} than for {first.name}"
        decided[text] = ahead({where: most[where] - less[where] for where in most if where in less})
    for each in panels:
        if "grasp-sr" in each.methods:  # section 4.2
            text = f"{each.name}: GraSP on the stable network does not improve on GraSP"
            decided[text] = ahead(each.leads("grasp-sr", "grasp"), decide=at_most)
        if "obd" in each.methods:
            others = [method for method in each.methods if method not in REFERENCES]
            leads = {f"{METHODS[m].label}, {s}": item for m in others for s, item in each.leads("obd", m).items()}
            text = f"{each.name}: OBD, which trains before it prunes, is ahead of all that prune at initialization"
            decided[text] = ahead(leads)
    return {**decided, **said_of_itself(name)}


def chance_claims(name: str, high: float, found: Found) -> Claims:
    """Tables 1, 9 and 10: at the highest sparsity SNIP is at chance and SBP-SR is not; then all of :func:`claims`."""
    panels = panels_of(found)
    names = [f"{each.name}, {percent(each.top)}" for each in panels]
    at = f"at {', '.join(dict.fromkeys(percent(each.top) for each in panels))}"
    snip, stable = ([each.cell(method, each.top) for each in panels] for method in PAIR)
    learnt = sum(int((cell["on_paths"].astype(float) > 0).sum()) for cell in snip)
    left = f"(a path from input to output is left in {learnt} of {sum(each.runs for each in panels)} runs)"
    above = [[percents(cell) - chance(cell) for cell in each] for each in (snip, stable)]
    near = f"{at} SNIP is at chance, within {NEAR_CHANCE:g} points {left}"
    return {
        near: over_runs(at_most, above[0], NEAR_CHANCE, names=names),
        f"{at} SBP-SR is not": over_runs(at_least, above[1], NEAR_CHANCE, names=names),
        **claims(name, high, found),
    }


def said_of_itself(table: str) -> Claims:
    """Consistency of Tables 9 and 10 as printed, without a measurement."""
    if table == "tab9":
        shared = {
            f"{key[1]} {METHODS[method].label} {percent(s)}": (PUBLISHED["tab2"][key][method, s], nine)
            for key, own in PUBLISHED["tab9"].items()
            for (method, s), nine in own.items()
            if (method, s) in PUBLISHED["tab2"].get(key, {})
        }
        apart = [f"{name}: {two.value} and {nine.value}" for name, (two, nine) in shared.items() if two != nine]
        text = f"{len(apart)} of {len(shared)} entries differ: {'; '.join(apart)}"
        return {"as printed: Tables 2 and 9 agree where they show the same network": by(exact, not apart, text)}
    if table == "tab10":
        count, same = sum(map(len, PUBLISHED[table].values())), PUBLISHED[table] == PUBLISHED["tab9"]
        text = f"its {count} accuracies are those of Table 9, of ResNet-32 and ResNet-50"
        return {'as printed: Table 10 shows a "vanilla-CNN", as its caption says': by(exact, not same, text)}
    return {}


def tables(name: str, found: Found) -> list[Grid]:
    """A table a panel, what is printed for it in brackets; the paper's own after them, where others stand in."""
    made, panels = [], panels_of(found)
    for each in panels:
        paper = printed(name, each.recipe)
        shown = f"{each.name}: % ± standard error" + (" (as printed, ± sd)" if paper else "")
        made.append(_grid(shown, paper, each.methods, each.sparsities, each))
    if not any(printed(name, each.recipe) for each in panels):
        for (data, network, activation), paper in PUBLISHED[name].items():
            tanh = "" if activation == "relu" else f", {activation}"
            shown, sparsities = f"as printed: {network}{tanh}, {data}, % ± sd", dict.fromkeys(s for _, s in paper if s)
            made.append(_grid(shown, paper, [method for method, _ in paper], list(sparsities)))
    return made


def _grid(shown: str, printed: Mapping[Any, Entry], methods: Any, sparsities: Any, own: Panel | None = None) -> Grid:
    """One row a method: printed values, with measured ones in brackets; the unpruned network has a single entry."""

    def cell(method: str, sparsity: float) -> str:
        text = str(printed.get((method, sparsity), ""))
        if own is None:
            return text
        mean, error = mean_and_error(own.accuracy(method, sparsity))
        return f"{mean:.1f} ± {error:.1f}" + (f" ({text})" if text else "")

    rows = {METHODS[m].label: [cell(m, s) for s in sparsities] for m in METHODS if m in methods and m != "none"}
    if "none" in methods:
        rows = {METHODS["none"].label: [cell("none", 0.0), *[""] * (len(sparsities) - 1)], **rows}
    return Grid(shown, tuple(map(percent, sparsities)), rows)


def draw(tables: Callable[[Found], Sequence[Grid]], found: Found) -> plots.Figure:
    """Laid out as the paper has it: tables; the best of those that prune at initialization is shaded."""
    return plots.tables(tables(found), [METHODS[method].label for method in REFERENCES])


# ---- The paper's protocol, and what stands in for it on two cores
OURS = "eoc-rescaling"
PAIR = ("snip", "sbp-sr")
FOUR = ("snip", "grasp", "synflow", "sbp-sr")
EVERY = ("none", "obd", "random", "magnitude", "snip", "grasp", "grasp-sr", "synflow", "sbp-sr")

FRESH = 400  # the seeds of quick presets from here on: no run with them was seen before the presets were fixed
_ANY = 0.5  # a sparsity for bases, whose method and sparsity are replaced
_WIDER, _HIGH = (0.995, 0.999), (0.98, 0.995)


def paper(name: str) -> list[Sweep]:
    """All that a table prints. Section 4.2: doubled filters, SGD at 0.1, a tenth from 1/2 and from 3/4 on."""
    made = []
    for (data, network, activation), entries in PUBLISHED[name].items():
        # ten of each of 200 classes do not fit into one batch of GraSP on every device
        variant, batches = ("tiny_imagenet", 10) if data == "tiny-imagenet" else ("cifar", 1)
        epochs = {"cifar10": 160, "cifar100": 250, "tiny-imagenet": 300}[data]
        resnet = Network("resnet", int(network.removeprefix("ResNet-")), 2.0, activation, variant)
        recipe = Recipe(resnet, data, "snip", _ANY, epochs, score_batches=batches)
        methods = [method for method in METHODS if method in {item for item, _ in entries}]
        made.append(panel(recipe, methods, list(dict.fromkeys(s for _, s in entries if s)), 3))
    return made


def _quick(
    depth: int, methods: tuple[str, ...], sparsities: tuple[float, ...], width: float = 0.5, activation: str = "relu"
) -> Sweep:
    """Digits, which are not flipped, on narrow networks; OBD looks at 400 of them, a quarter."""
    network = Network("resnet", depth, width, activation)
    recipe = Recipe(network, "digits", "snip", _ANY, 4, 64, augment=False, obd_batches=4, tested_every=2)
    return panel(recipe, methods, sparsities, 4).but(seed=FRESH)


_FIRST = [_quick(20, PAIR, _WIDER, 1.0), *(_quick(depth, PAIR, (0.98, 0.99, 0.995, 0.997)) for depth in (20, 32))]
_SECOND = [_quick(20, EVERY, _HIGH), _quick(32, FOUR, _HIGH)]
_THIRD = [_quick(depth, FOUR, (0.98, 0.99, 0.995)) for depth in (20, 32)]
_LARGE = Network("resnet", 50, 1.0, variant="imagenet")
_BOTTLENECKS = Recipe(replace(_LARGE, width=1 / 16, stem="3x3"), "digits", "snip", _ANY, 4, 64, augment=False)
# appendix F; what is left open as in He et al.: batches of 256, decay 1e-4
_IMAGENET = Recipe(_LARGE, "imagenet", "snip", _ANY, 90, 256, drops=(30, 60, 80), weight_decay=1e-4)
_IMAGENET = replace(_IMAGENET, score_per_class=1, score_batches=10)
_NINTH = [
    _quick(depth, PAIR, sparsities, width, activation)
    for depth, width, sparsities in ((20, 1.0, _WIDER), (32, 0.5, (*_HIGH, 0.997)))
    for activation in ("relu", "tanh")
]


# ---- Table 4: V-CNNs of three depths from three starts, rescaled in two other ways, too; who trains at all
SPARSITY = 0.5
LEARNT = 30.0  # percent of the test images: three times what a constant gets; the table is about who trains at all


class Start(NamedTuple):
    """One row of the table: a pruning method with or without rescaling, sigma_w, sigma_b, and what is printed. ``rate``
    is the learning rate of the quick preset, tuned in the same way for each start (docs/hayou-accuracy).
    """

    label: str
    method: str
    weight_std: float
    bias_std: float
    rate: float
    printed: Mapping[int, Entry] = {}


def _of(*entries: tuple[float, float]) -> dict[int, Entry]:
    return {depth: Entry(*entry) for depth, entry in zip((10, 50, 100), entries, strict=True)}


# The paper gives no scales. The edge of chaos of tanh is at (1, 0); at (0.9, 0.1), ordered, ten layers still train.
ORDERED = Start("ordered phase", "snip", 0.9, 0.1, 0.012, _of((98.12, 0.13), (10.0, 0.0), (10.0, 0.0)))
EDGE = Start("EOC", "snip", 1.0, 0.0, 0.012, _of((98.20, 0.17), (98.75, 0.11), (10.0, 0.0)))
RESCALED = Start("EOC + rescaling", OURS, 1.0, 0.0, 0.004, _of((98.18, 0.21), (98.90, 0.07), (99.15, 0.08)))
PRINTED = (ORDERED, EDGE, RESCALED)
FURTHER = tuple(Start(METHODS[way].label, way, 1.0, 0.0, 0.004) for way in WAYS)
STARTS = {start.label: start for start in (*PRINTED, *FURTHER)}


def sweep_4(base: Recipe, depths: Sequence[int], runs: int, more: int = 0, seed: int = 0) -> Sweep:
    """Every depth from every start; ``more`` runs at the greatest depth and of the paper's starts at the least."""
    axis: dict[tuple[int, str], dict[str, Any]] = {}
    counts = []
    for depth, (label, start) in product(depths, STARTS.items()):
        weights, biases = Gaussian(start.weight_std), Gaussian(start.bias_std)
        network = replace(base.network, depth=depth, weights=weights, biases=biases)
        rate = start.rate if base.data == "digits" else base.learning_rate
        axis[depth, label] = {"network": network, "method": start.method, "learning_rate": rate}
        often = start in (PRINTED if depth == depths[0] else (RESCALED,) if depth == depths[-1] else ())
        counts.append((more if often else 0) or runs)
    return Sweep(run, base, {"depth start": axis}, {"depth start": counts}, seed)


@by_cell
def table_4(cell: Cell) -> Any:
    start, spec = STARTS[cell.at["start"]], cell.spec
    entry = start.printed.get(cell.at["depth"]) if spec.data == "mnist" else None
    row: dict[str, Any] = {"weight_std": start.weight_std, "bias_std": start.bias_std, "rate": spec.learning_rate}
    row |= {"accuracy_sd": sd(percents(cell)), "chance": chance(cell)}
    row |= {"printed": entry.value if entry else math.nan, "printed_sd": entry.sd if entry else math.nan}
    row |= {"dead_layers": float(dead(cell).mean()), "diverged": int(cell["diverged"].sum())}
    return {"accuracy": percents(cell)}, row


def claims_4(found: Found) -> Claims:
    """Claims of the table, entry by entry: which networks train and which stay at chance; other ways to rescale."""
    shallow, *middle, deep = found.sweep["depth"]
    ordered, edge, rescaled = (start.label for start in PRINTED)
    name, near = "{start}, depth {depth}", f"stays at chance, within {NEAR_CHANCE:g} points"

    def trained(start: Any, depth: Any) -> Decision:
        return found.table.where(start=start, depth=depth).claim(at_least, "accuracy", LEARNT, names=name)

    def stuck(start: str, depth: int) -> Decision:
        cell = found.one(depth=depth, start=start)
        return over_runs(at_most, percents(cell) - chance(cell), NEAR_CHANCE, names=[f"{start}, depth {depth}"])

    three = found.table.where(depth=shallow, start=(ordered, edge, rescaled))
    every = {start: f"{start} trains at every depth, to {LEARNT:g} % or more" for start in (rescaled, *STARTS)}
    return {
        every[rescaled]: trained(rescaled, found.sweep["depth"]),
        f"depth {deep}: EOC + rescaling trains, to {LEARNT:g} % or more": trained(rescaled, deep),
        f"depth {deep}: EOC without rescaling {near}": stuck(edge, deep),
        f"depth {deep}: the ordered phase {near}": stuck(ordered, deep),
        **{f"depth {depth}: the ordered phase {near}": stuck(ordered, depth) for depth in middle},
        **{f"depth {depth}: both EOC starts train": trained((edge, rescaled), depth) for depth in middle},
        f"depth {shallow}: all three train": trained((ordered, edge, rescaled), shallow),
        f"depth {shallow}: ... and are equally accurate": three.alike("accuracy", "start", "{start}", "depth {depth}"),
        **{every[start.label]: trained(start.label, found.sweep["depth"]) for start in FURTHER},
    }


def tables_4(found: Found) -> list[Grid]:
    """Starts by depths, what is printed in brackets; as a table of its own where other data stand in for MNIST."""
    own, rows = found.sweep.spec.data == "mnist", dict[str, list[str]]()
    printed = {start.label: [str(item) for item in start.printed.values()] for start in PRINTED}
    for label, subset in found.table.by("start"):
        ours, theirs = subset.labels("{accuracy:.1f} ± {accuracy_error:.1f}"), printed.get(label)
        rows[label] = [f"{a} ({b})" for a, b in zip(ours, theirs, strict=True)] if own and theirs else ours
    title = f"V-CNN, {found.sweep.spec.data}: % ± standard error" + " (as printed, ± sd)" * own
    grids = [Grid(title, tuple(f"depth {depth}" for depth in found.sweep["depth"]), rows)]
    if not own:
        grids.append(Grid("as printed: V-CNN, MNIST, % ± sd", tuple(f"depth {d}" for d in EDGE.printed), printed))
    return grids


def about_4(sweep: Sweep) -> str:
    rates = either(spec.learning_rate for _, spec, _ in sweep.cells())
    return sweep.fill(
        f"depth {{depth}}, {{network.activation}}, {{network.width:g}} channels, 3x3 kernels, {SPARSITY:.0%} pruned by "
        f"SNIP; {{data}}, {{epochs}} epochs of SGD at {rates}, momentum {{momentum:g}}, batches of {{batch_size}}; "
        f"sigma_w, sigma_b = {ORDERED.weight_std:g}, {ORDERED.bias_std:g} if ordered, 1, 0 for EOC"
    )


def presets_4() -> dict[str, Sweep]:
    """Section 4.1 has plain SGD at 1e-3, batches of 100 and tanh; of section 4.3 the paper states the depths only."""
    network = Network("vanilla_cnn", 10, 32, "tanh")
    # as many steps as in section 4.1, in whole epochs
    paper = Recipe(network, "mnist", "snip", SPARSITY, 17, 100, 0.001, drop_factor=0.3, weight_decay=0.0, augment=False)
    less = {"epochs": 3, "batch_size": 16, "drops": (), "examples": 720, "tested_every": 3}
    quick = replace(paper, network=replace(network, width=16), data="digits", **less)  # type: ignore[arg-type]
    return {"quick": sweep_4(quick, (10, 50, 100), 3, 6, seed=300), "paper": sweep_4(paper, (10, 50, 100), 3)}


# ---- Table 5: VGG16, and 3xVGG16 with thrice the convolutions between its pools
OTHERS = ("snip", "synflow")
SIMILAR = 0.01  # relative size of a difference that would show where the paper says that methods perform similarly
NOT_MUCH = 1.0  # points by which 3xVGG16 may differ where the paper says that it "does not improve much"


def claims_5(found: Found) -> Claims:
    """Section 4.3: on VGG16 the three agree, on 3xVGG16 rescaling wins."""
    once, thrice = panels_of(found)
    methods = (*OTHERS, OURS)
    each = np.array([[mean_and_error(once.accuracy(method, s)) for method in methods] for s in once.sparsities])
    names = {"settings": [percent(s) for s in once.sparsities], "groups": [METHODS[method].label for method in methods]}
    larger = {
        f"{METHODS[other].label}, {s}": lead - once.leads(OURS, other)[s]
        for other in OTHERS
        for s, lead in thrice.leads(OURS, other).items()
    }
    gained = [thrice.accuracy(OURS, s) - once.accuracy(OURS, s) for s in thrice.sparsities]
    little = f"{thrice.network} does not improve much on {once.network} ({METHODS[OURS].label}), the two are within"
    same = by(equal_within_error, each[..., 0], each[..., 1], once.runs, resolution=SIMILAR, **names)
    better = "the larger the blocks between pools, the better rescaling does: its lead is larger on"
    return {
        f"{once.name}: the three methods perform similarly": same,
        **{
            f"{thrice.name}: {METHODS[way].label} is ahead of {METHODS[other].label}": ahead(thrice.leads(way, other))
            for way, other in product((OURS, *WAYS), OTHERS)
        },
        f"{better} {thrice.network}": ahead(larger),
        f"{little} {NOT_MUCH:g} point": over_runs(between, gained, -NOT_MUCH, NOT_MUCH, names=names["settings"]),
    }


def _vggs(data: str, depth: int, width: float, **more: Any) -> list[Recipe]:
    networks = [Network("vgg", depth, width, repeat=repeat, padding="circular") for repeat in (1, 3)]
    return [Recipe(each, data, "snip", _ANY, norm_after=True, **more) for each in networks]


_FEW = {"epochs": 5, "batch_size": 32, "augment": False, "synflow_steps": 30, "drops": (0.8,)}
# the best of one grid for each (docs/hayou-accuracy)
_RATES = {"snip": 0.03, "synflow": 0.03, "eoc-rescaling": 0.1, "eoc-row": 0.1, "eoc-measured": 0.03}
_WAYS = (*OTHERS, OURS, *WAYS)
FIFTH = {
    "quick": [panel(each, _WAYS, (0.9,), 7, **_RATES).but(seed=300) for each in _vggs("digits", 11, 1 / 8, **_FEW)],
    "paper": [panel(each, _WAYS, (0.85, 0.9, 0.95), 3) for each in _vggs("cifar10", 16, 1.0)],
}


# ---- Table 6: which algorithm is best where, with those within one standard deviation of it counted as ties
SOURCES = ("tab2", "tab3", "tab5")  # the tables that Table 6 sums up


def table_6(found: Found) -> Table:
    """One row a network and sparsity that was measured, then those of the print."""
    rows = Table()

    def add(source: str, key: tuple[str, str, float], each: Mapping[str, tuple[float, float]], runs: int) -> None:
        row = {"from": source, **dict(zip(("data", "network", "sparsity"), key, strict=True))}
        best, *tied = (METHODS[method].label for method in winners(each))
        rows.append({**row, "best": best, "tied": ", ".join(tied), "table_6": WINNERS.get(key, ""), "runs": runs})

    for entry in panels_of(found):
        for s in entry.sparsities:
            each = {method: (float(values.mean()), sd(values)) for method, values in entry.rivals(s).items()}
            add("measured", (entry.recipe.data, entry.network, s), each, entry.runs)
    for data, network, s in WINNERS:
        (paper,) = filter(None, (PUBLISHED[name].get((data, network, "relu")) for name in SOURCES))
        own = {method: item for (method, at), item in paper.items() if at == s and method not in REFERENCES}
        each = {method: (item.value, math.nan if item.sd is None else item.sd) for method, item in own.items()}
        add("as printed", (data, network, s), each, 3)
    return rows


def _best(row: Mapping[str, Any]) -> str:
    return f"tie: {row['best']}, {row['tied']}" if row["tied"] else row["best"]


def _differs(row: Mapping[str, Any]) -> bool:
    return bool(row["table_6"] != (UNCLEAR if row["tied"] else row["best"]))


def claims_6(found: Found) -> Claims:
    """Table 6 against the tables it is made of, as printed; then SBP-SR against the best of the others, measured."""
    printed = found.table.where(**{"from": "as printed"})
    rows = {f"{row['network']} {row['data']} {percent(row['sparsity'])}": row for row in printed}
    wrong = [f"{at}: {row['table_6']} printed, {_best(row)}" for at, row in rows.items() if _differs(row)]
    other = [at for at, row in rows.items() if row["table_6"] not in (UNCLEAR, row["best"])]
    follows = not wrong, f"{len(wrong)} of {len(rows)} entries do not: {'; '.join(wrong)}", {"different": len(wrong)}
    highest = not other, f"{len(other)} of {len(rows)} have not: {', '.join(other)}", {"different": len(other)}
    decided = {
        "as printed: Table 6 follows from Tables 2, 3 and 5 with ties inside one sd": by(exact, *follows),
        "as printed: every winner that Table 6 names has the highest mean": by(exact, *highest),
    }
    for each in {each.recipe.data: each for each in panels_of(found) if "sbp-sr" in each.methods}.values():
        leads = {}
        for s in each.sparsities:
            rivals = each.rivals(s)
            own, best = rivals.pop("sbp-sr"), max(rivals, key=lambda method: rivals[method].mean())
            leads[f"{percent(s)} against {METHODS[best].label}"] = own - rivals[best]
        text = f"{each.name}: SBP-SR is the best, or as good as the best of the others, at every sparsity"
        decided[text] = ahead(leads)
    return decided


def tables_6(found: Found) -> list[Grid]:
    titles = {"measured": "measured here: the best method, and those within one sd of it"}
    titles["as printed"] = "from Tables 2, 3 and 5 as printed; in brackets where Table 6 says otherwise"
    names = {("measured", each.recipe.data, each.network): each.name for each in panels_of(found)}
    made = []
    for source, rows in found.table.by("from"):
        columns, grid = sorted(set(rows.column("sparsity").tolist())), dict[str, list[str]]()
        for row in rows:
            name = names.get((source, row["data"], row["network"]), "{network}, {data}".format_map(row))
            text = f" (Table 6: {row['table_6']})" * (source == "as printed" and _differs(row))
            grid.setdefault(name, [""] * len(columns))[columns.index(row["sparsity"])] = _best(row) + text
        made.append(Grid(titles[source], tuple(map(percent, columns)), grid))
    return made


def draw_6(found: Found) -> plots.Figure:
    grids = tables_6(found)
    heights = [len(grid.rows) + 1 for grid in grids]
    picture, axes = plots.figure(9.6, 0.52 * sum(heights) + 1.6, 2, 1, height_ratios=heights)
    for pane, grid in zip(axes, grids, strict=True):
        plots.table(pane, grid, {})
    return picture


_artifact = partial(Artifact, about=about, cost=cost)


def _table(
    name: str, heading: str, place: str, quick: list[Sweep], paper: list[Sweep], decide: Any = None, more: str = ""
) -> Artifact:
    """One of the tables with a common layout; ``decide`` are its claims, by default the common ones."""
    rows, read = partial(table, name), partial(tables, name)
    presets, title = {"quick": joined(quick), "paper": joined(paper)}, partial(titled, heading, more)
    decide = decide or partial(claims, name, 0.0)
    return _artifact(f"hayou/{name}", title, place, presets, rows, decide, partial(draw, read), tables=read)


_CHANCE = {name: partial(chance_claims, name, 0.98) for name in ("tab1", "tab9", "tab10")}
_PRUNED = "Accuracy of pruned"
_TENTH = ', which the paper calls a "vanilla-CNN": Table 9 once more'
_EIGHTH = panel(_BOTTLENECKS, FOUR, (0.9, 0.95, 0.98), 3), panel(_IMAGENET, FOUR, (0.85, 0.9, 0.95), 3)
_PLACE, _TITLE_4, _TITLE_6 = "section 4.3", f"{_PRUNED} V-CNNs of three depths", "Which algorithm performs better"
_DRAW_4 = partial(draw, tables_4)
_SUM = {"quick": joined(_SECOND), "paper": joined([*paper("tab2"), *FIFTH["paper"], *paper("tab3")])}
ARTIFACTS = (
    _table("tab1", "SNIP and SBP-SR: accuracy of pruned", "section 1", _FIRST, paper("tab1"), _CHANCE["tab1"]),
    _table("tab2", "Nine methods: accuracy of pruned", "section 4.2", _SECOND, paper("tab2")),
    _table("tab3", _PRUNED, "section 4.2", _THIRD, paper("tab3")),
    _artifact("hayou/tab4", _TITLE_4, _PLACE, presets_4(), table_4, claims_4, _DRAW_4, about=about_4, tables=tables_4),
    _table("tab5", _PRUNED, _PLACE, FIFTH["quick"], FIFTH["paper"], claims_5),
    _artifact("hayou/tab6", _TITLE_6, _PLACE, _SUM, table_6, claims_6, draw_6, tables=tables_6),
    _table("tab8", _PRUNED, "appendix F", [_EIGHTH[0].but(seed=FRESH)], [_EIGHTH[1]]),
    _table("tab9", f"{_PRUNED} ReLU and tanh", "appendix G", _NINTH, paper("tab9"), _CHANCE["tab9"]),
    _table("tab10", _PRUNED, "appendix G", _NINTH, paper("tab10"), _CHANCE["tab10"], _TENTH),
)
