"""Hayou's Tables 1 to 6 and 8 to 10 as artifacts: the paper's protocol, and what stands in for it on two cores.

Quick presets train on the embedded 8x8 digits for 4 epochs; docs/hayou-accuracy says how networks, sparsities, epochs,
rates and seeds were chosen, what is taken from public code where Table 5 leaves it open, and what was looked at before.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most, equal_within_error, exact
from epoch0.papers.hayou import accuracy
from epoch0.papers.hayou.accuracy import REFERENCES, WAYS, Winner, compared, joined, panel, panels_of, percent, winner
from epoch0.papers.hayou.protocol import METHODS, Network, Recipe, run
from epoch0.papers.sweep import Artifact, Cell, Found, Sweep
from epoch0.papers.tables import Claims, Decision, Table, by, mean_and_error, over_runs
from epoch0.results import Grid

OURS = "eoc-rescaling"
FOUR = ("snip", "grasp", "synflow", "sbp-sr")
PAIR = ("snip", "sbp-sr")
SEVEN = ("none", "random", "magnitude", *FOUR)
EVERY = ("none", "obd", "random", "magnitude", "snip", "grasp", "grasp-sr", "synflow", "sbp-sr")

_ANY = 0.5  # a sparsity for bases, whose method and sparsity are replaced
_RUNS = 4  # of quick presets; the paper has 3
_TO_999, _TO_98, _TO_95 = (0.9, 0.95, 0.98, 0.995, 0.999), (0.9, 0.95, 0.98), (0.85, 0.9, 0.95)
_WIDER = (0.995, 0.999)
_DEPTHS = (32, 50, 104)


def paper_recipe(depth: int, data: str, activation: str = "relu") -> Recipe:
    """Section 4.2: doubled filters, SGD at 0.1, a tenth of it from 1/2 and from 3/4 of the epochs on."""
    # ten of each of 200 classes do not fit into one batch of GraSP on every device
    variant, batches = ("tiny_imagenet", 10) if data == "tiny-imagenet" else ("cifar", 1)
    epochs = {"cifar10": 160, "cifar100": 250, "tiny-imagenet": 300}[data]
    network = Network("resnet", depth, 2.0, activation, variant=variant)
    return Recipe(network, data, "snip", _ANY, epochs, score_batches=batches)


def _paper(
    data: str, methods: tuple[str, ...], sparsities: tuple[float, ...], depths: Iterable[int] = _DEPTHS
) -> list[Sweep]:
    return [panel(paper_recipe(depth, data), methods, sparsities, 3) for depth in depths]


def _quick(
    depth: int, methods: tuple[str, ...], sparsities: tuple[float, ...], width: float = 0.5, activation: str = "relu"
) -> Sweep:
    """Digits, which are not flipped, on narrow networks; OBD looks at 400 of them, a quarter."""
    network = Network("resnet", depth, width, activation)
    recipe = Recipe(network, "digits", "snip", _ANY, 4, 64, augment=False, obd_batches=4, tested_every=2)
    return panel(recipe, methods, sparsities, _RUNS)


# Table 6 has these panels of the paper's preset, and those of Table 5, too
SECOND = {
    "quick": [_quick(20, EVERY, (0.98, 0.995)), _quick(32, FOUR, (0.98, 0.995))],
    "paper": [
        each
        for name in ("cifar10", "cifar100")
        for each in (*_paper(name, EVERY, _TO_98, (32,)), *_paper(name, SEVEN, _TO_98, (50, 104)))
    ],
}
THIRD = _paper("tiny-imagenet", FOUR, _TO_95)
_LARGE = Network("resnet", 50, 1.0, variant="imagenet")
_BOTTLENECKS = Recipe(replace(_LARGE, width=1 / 16, stem="3x3"), "digits", "snip", _ANY, 4, 64, augment=False)
# appendix F; what is left open as in He et al.: batches of 256, decay 1e-4
_IMAGENET = Recipe(_LARGE, "imagenet", "snip", _ANY, 90, 256, drops=(30, 60, 80), weight_decay=1e-4)
_IMAGENET = replace(_IMAGENET, score_per_class=1, score_batches=10)
_NINTH = {
    "quick": [
        _quick(depth, PAIR, sparsities, width, activation)
        for depth, width, sparsities in ((20, 1.0, _WIDER), (32, 0.5, (0.98, 0.995, 0.997)))
        for activation in ("relu", "tanh")
    ],
    "paper": [
        panel(paper_recipe(depth, "cifar10", activation), PAIR, (0.9, 0.98, 0.995, 0.999), 3)
        for depth in (32, 50)
        for activation in ("relu", "tanh")
    ],
}


# ---- Table 4: V-CNNs of three depths from three starts, rescaled in two other ways, too; who trains at all


SPARSITY = 0.5
LEARNT = 30.0  # percent of the test images: three times what a constant gets; the table is about who trains at all


@dataclass(frozen=True)
class Start:
    """One row of the table: a pruning method with or without rescaling, sigma_w, sigma_b, and what is printed.

    ``rate`` is the learning rate of the quick preset, tuned alike for each start (docs/hayou-accuracy).
    """

    label: str
    method: str
    weight_std: float
    bias_std: float
    rate: float
    printed: Mapping[int, accuracy.Entry] = field(default_factory=dict)


def _of(*entries: tuple[float, float]) -> dict[int, accuracy.Entry]:
    return {depth: accuracy.Entry(*entry) for depth, entry in zip((10, 50, 100), entries, strict=True)}


# The paper does not give the scales: tanh networks have their edge of chaos at (1, 0); (0.9, 0.1) is in the ordered
# phase, near enough to it that ten layers train.
ORDERED = Start("ordered phase", "snip", 0.9, 0.1, 0.012, _of((98.12, 0.13), (10.0, 0.0), (10.0, 0.0)))
EDGE = Start("EOC", "snip", 1.0, 0.0, 0.012, _of((98.20, 0.17), (98.75, 0.11), (10.0, 0.0)))
RESCALED = Start("EOC + rescaling", OURS, 1.0, 0.0, 0.004, _of((98.18, 0.21), (98.90, 0.07), (99.15, 0.08)))
PRINTED = (ORDERED, EDGE, RESCALED)
FURTHER = tuple(Start(METHODS[way].label, way, 1.0, 0.0, 0.004) for way in WAYS)
STARTS = {start.label: start for start in (*PRINTED, *FURTHER)}


def sweep_4(base: Recipe, depths: Sequence[int], runs: int, more: int | None = None, seed: int = 0) -> Sweep:
    """Every depth from every start; digits are trained at the rate of the start.

    ``more`` runs of EOC + rescaling at the greatest depth, where runs differ most, and of the paper's starts at the
    least, where the claim is that they do not differ.
    """
    axis: dict[tuple[int, str], dict[str, Any]] = {}
    counts = []
    for depth, (label, start) in product(depths, STARTS.items()):
        weights, biases = Gaussian(start.weight_std), Gaussian(start.bias_std)
        network = replace(base.network, depth=depth, weights=weights, biases=biases)
        rate = start.rate if base.data == "digits" else base.learning_rate
        axis[depth, label] = {"network": network, "method": start.method, "learning_rate": rate}
        often = start in (PRINTED if depth == depths[0] else (RESCALED,) if depth == depths[-1] else ())
        counts.append(more if more is not None and often else runs)
    return Sweep(run, base, {"depth start": axis}, {"depth start": counts}, seed)


def table_4(found: Found) -> Table:
    """One row an entry; percent."""

    def others(cell: Cell) -> dict[str, Any]:
        start, spec = STARTS[cell.at["start"]], cell.spec
        entry = start.printed.get(cell.at["depth"]) if spec.data == "mnist" else None
        row: dict[str, Any] = {"weight_std": start.weight_std, "bias_std": start.bias_std, "rate": spec.learning_rate}
        row |= {"accuracy_sd": accuracy.sd(100 * cell["accuracy"]), "chance": accuracy.chance(cell)}
        row |= {"printed": entry.value if entry else math.nan, "printed_sd": entry.sd if entry else math.nan}
        return {**row, "dead_layers": float(accuracy.dead(cell).mean()), "diverged": int(cell["diverged"].sum())}

    return found.rows(lambda cell: {"accuracy": 100 * cell["accuracy"]}, others)


def claims_4(found: Found) -> Claims:
    """What the table shows, entry by entry: who is trained, and who stays at chance; the other ways to rescale."""
    shallow, *middle, deep = found.sweep["depth"]
    ordered, edge, rescaled = (start.label for start in PRINTED)
    name, near = "{start}, depth {depth}", f"stays at chance, within {accuracy.NEAR_CHANCE:g} points"

    def trained(start: Any, depth: Any) -> Decision:
        return found.table.where(start=start, depth=depth).claim(at_least, "accuracy", LEARNT, names=name)

    def stuck(start: str, depth: int) -> Decision:
        cell = found.one(depth=depth, start=start)
        return over_runs(at_most, accuracy.above_chance(cell), accuracy.NEAR_CHANCE, names=[f"{start}, depth {depth}"])

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
    printed = {start.label: [str(one) for one in start.printed.values()] for start in PRINTED}
    for label, some in found.table.by("start"):
        ours, told = some.told("{accuracy:.1f} ± {accuracy_error:.1f}"), printed.get(label)
        rows[label] = [f"{a} ({b})" for a, b in zip(ours, told, strict=True)] if own and told else ours
    title = f"V-CNN, {found.sweep.spec.data}: % ± standard error" + " (as printed, ± sd)" * own
    grids = [Grid(title, tuple(f"depth {depth}" for depth in found.sweep["depth"]), rows)]
    if not own:
        grids.append(Grid("as printed: V-CNN, MNIST, % ± sd", tuple(f"depth {d}" for d in EDGE.printed), printed))
    return grids


def about_4(sweep: Sweep) -> str:
    """The setting in one line; quick has a learning rate for each start."""
    rates = accuracy.either(spec.learning_rate for _, spec, _ in sweep.cells())
    return sweep.told(
        f"{{network.activation}}, {{network.width:g}} channels, 3x3 kernels, {SPARSITY:.0%} pruned by SNIP; {{data}}, "
        f"{{epochs}} epochs of SGD at {rates}, momentum {{momentum:g}}, batches of {{batch_size}}; ordered: sigma_w, "
        f"sigma_b = {ORDERED.weight_std:g}, {ORDERED.bias_std:g}, EOC: {EDGE.weight_std:g}, {EDGE.bias_std:g}; no bars"
    )


def presets_4() -> dict[str, Sweep]:
    """Section 4.1 has plain SGD at 1e-3, batches of 100 and tanh; of section 4.3 nothing but the depths is told.

    32 channels and 3x3 kernels are chosen, and 16 channels for digits. Their number, the batches, the epochs and how
    many runs there are were chosen after looking at other runs; no run of the table was among them.
    """
    network = Network("vanilla_cnn", 10, 32, "tanh")
    more = {"weight_decay": 0.0, "drop_factor": 0.3, "augment": False}
    # as many steps as in section 4.1, in whole epochs
    paper = Recipe(network, "mnist", "snip", SPARSITY, 17, 100, 0.001, **more)  # type: ignore[arg-type]
    less = {"epochs": 3, "batch_size": 16, "drops": (), "examples": 720, "tested_every": 3}
    quick = replace(paper, network=replace(network, width=16), data="digits", **less)  # type: ignore[arg-type]
    return {"quick": sweep_4(quick, (10, 50, 100), 3, 6, seed=300), "paper": sweep_4(paper, (10, 50, 100), 3)}


# ---- Table 5: VGG16, and 3xVGG16 with thrice the convolutions between its pools


OTHERS = ("snip", "synflow")
SIMILAR = 0.01  # relative size of a difference that would show where the paper says that methods perform similarly
NOT_MUCH = 1.0  # points by which 3xVGG16 may be ahead where the paper sees no great improvement


def claims_5(found: Found) -> Claims:
    """Section 4.3: on VGG16 the three are alike, on 3xVGG16 rescaling wins."""
    once, thrice = panels_of(found)
    leads = {
        f"{METHODS[other].label}, {percent(s)}": (thrice.lead(OURS, other, s), once.lead(OURS, other, s))
        for other, s in product(OTHERS, thrice.sparsities)
    }
    gained = {percent(s): (thrice.accuracy(OURS, s), once.accuracy(OURS, s)) for s in thrice.sparsities}
    label, methods = METHODS[OURS].label, (*OTHERS, OURS)
    larger = f"the larger the blocks between pools, the better rescaling does: its lead is larger on {thrice.network}"
    much = f"{thrice.network} does not improve much on {once.network} ({label}): by {NOT_MUCH:g} point or less"
    each = np.array([[mean_and_error(once.accuracy(method, s)) for method in methods] for s in once.sparsities])
    names = {"settings": [percent(s) for s in once.sparsities], "groups": [METHODS[method].label for method in methods]}
    same = by(equal_within_error, each[..., 0], each[..., 1], once.runs, resolution=SIMILAR, **names)
    ahead = {
        f"{thrice.name}: {METHODS[way].label} is ahead of {METHODS[other].label}": compared(thrice.pairs(way, other))
        for way, other in product((OURS, *WAYS), OTHERS)
        if way in thrice.methods
    }
    return {
        f"{once.name}: the three methods perform similarly": same,
        **ahead,
        larger: compared(leads),
        much: compared(gained, NOT_MUCH, most=True),
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


def printed_winners() -> dict[tuple[str, str, float], tuple[str, Winner]]:
    """(data, network, sparsity) -> what Table 6 prints, and what Tables 2, 3 and 5 as printed give."""

    def best(there: Mapping[tuple[str, float], accuracy.Entry], sparsity: float) -> Winner:
        each = {method: one for (method, s), one in there.items() if s == sparsity and method not in REFERENCES}
        return winner({name: (one.value, math.nan if one.sd is None else one.sd) for name, one in each.items()})

    return {
        (data, network, sparsity): (word, best(there, sparsity))
        for (data, network), row in accuracy.WINNERS.items()
        for sparsity, word in row.items()
        for name in SOURCES
        if (there := accuracy.PUBLISHED[name].get((data, network, "relu")))
    }


def _named(word: str) -> str:
    return "no clear winner" if word == accuracy.COMPETITION else METHODS[word].label


def table_6(found: Found) -> Table:
    """One row a network and sparsity that was measured, then those of the print."""

    def row(source: str, data: str, network: str, s: float, best: Winner, word: str, runs: int) -> dict[str, Any]:
        place = {"from": source, "data": data, "network": network, "sparsity": s, "best": METHODS[best.best].label}
        tied = ", ".join(METHODS[method].label for method in best.tied)
        return {**place, "tied": tied, "table_6": _named(word) if word else "", "runs": runs}

    rows = Table()
    for each in panels_of(found):
        key = each.recipe.data, each.network
        for s in each.sparsities:
            rows.append(row("measured", *key, s, each.winner(s), accuracy.WINNERS.get(key, {}).get(s, ""), each.runs))
    return Table([*rows, *(row("as printed", *key, best, word, 3) for key, (word, best) in printed_winners().items())])


def claims_6(found: Found) -> Claims:
    """Table 6 against the tables it is made of, as printed; then SBP-SR against the best of the others, measured."""
    decided = dict(of_the_print())
    deepest = {each.recipe.data: each for each in panels_of(found) if "sbp-sr" in each.methods}
    for each in deepest.values():
        pairs = {}
        for s in each.sparsities:
            rivals = {m: each.accuracy(m, s) for m in each.methods if m not in (*REFERENCES, "sbp-sr")}
            best = max(rivals, key=lambda method: rivals[method].mean())
            pairs[f"{percent(s)} against {METHODS[best].label}"] = each.accuracy("sbp-sr", s), rivals[best]
        text = f"{each.name}: SBP-SR is the best, or as good as the best of the others, at every sparsity"
        decided[text] = compared(pairs)
    return decided


def of_the_print() -> Claims:
    """Table 6 against the tables it is made of."""
    both, wrong, other = printed_winners(), [], []
    for (data, network, sparsity), (word, best) in both.items():
        place = f"{network} {data} {percent(sparsity)}"
        if word != best.as_printed:
            wrong.append(f"{place}: {_named(word)} printed, {best.label}")
        if word not in (accuracy.COMPETITION, best.best):
            other.append(place)
    follows = f"{len(wrong)} of {len(both)} entries do not: {'; '.join(wrong)}"
    highest = f"{len(other)} of {len(both)} have not: {', '.join(other)}"
    follow = by(exact, not wrong, follows, {"different": len(wrong)})
    high = by(exact, not other, highest, {"different": len(other)})
    return {
        "as printed: Table 6 follows from Tables 2, 3 and 5 with ties inside one sd": follow,
        "as printed: every winner that Table 6 names has the highest mean": high,
    }


def tables_6(found: Found) -> list[Grid]:
    """The best method of each network and sparsity: measured, and as Tables 2, 3 and 5 print."""
    titles = {"measured": "measured here: the best method, and those within one sd of it"}
    titles["as printed"] = "from Tables 2, 3 and 5 as printed; in brackets where Table 6 says otherwise"
    names = {("measured", each.recipe.data, each.network): each.name for each in panels_of(found)}
    made = []
    for source, rows in found.table.by("from"):
        columns, grid = sorted(set(rows.column("sparsity").tolist())), dict[str, list[str]]()
        for row in rows:
            name = names.get((source, row["data"], row["network"]), "{network}, {data}".format_map(row))
            best = f"tie: {row['best']}, {row['tied']}" if row["tied"] else row["best"]
            other = row["table_6"] != (_named(accuracy.COMPETITION) if row["tied"] else best)
            cell = best + f" (Table 6: {row['table_6']})" * (other and source == "as printed")
            grid.setdefault(name, [""] * len(columns))[columns.index(row["sparsity"])] = cell
        made.append(Grid(titles[source], tuple(map(percent, columns)), grid))
    return made


def draw_6(found: Found) -> plots.Figure:
    """Two tables."""
    grids = tables_6(found)
    heights = [len(grid.rows) + 1 for grid in grids]
    picture, axes = plots.figure(9.6, 0.52 * sum(heights) + 1.6, 2, 1, height_ratios=heights)
    for pane, grid in zip(axes, grids, strict=True):
        plots.table(pane, grid, {})
    return picture


_artifact = partial(Artifact, about=accuracy.about, cost=accuracy.cost)


def _table(
    name: str, what: str, place: str, quick: list[Sweep], paper: list[Sweep], *, claims: Any = None, more: str = ""
) -> Artifact:
    """One of the tables that are made alike; ``claims`` are those of all such tables, or its own."""
    rows, read = partial(accuracy.table, name), partial(accuracy.tables, name)
    presets, title = {"quick": joined(quick), "paper": joined(paper)}, partial(accuracy.titled, what, more)
    decide = claims or partial(accuracy.claims, name, 0.0)
    return _artifact(f"hayou/{name}", title, place, presets, rows, decide, partial(accuracy.draw, read), tables=read)


def _to_chance(name: str, *what: Any, more: str = "") -> Artifact:
    """One of the tables that go to sparsities at which SNIP is at chance."""
    return _table(name, *what, claims=partial(accuracy.chance_claims, name, 0.98), more=more)


_PRUNED = "Accuracy of pruned"
_SMALL = [_quick(20, PAIR, _WIDER, 1.0), *(_quick(depth, PAIR, (0.98, 0.99, 0.995, 0.997)) for depth in (20, 32))]
_FIRST = _SMALL, _paper("cifar10", PAIR, _TO_999)
_THIRD = [_quick(depth, FOUR, (0.98, 0.99, 0.995)) for depth in (20, 32)]
_EIGHTH = [panel(_BOTTLENECKS, FOUR, _TO_98, 3)], [panel(_IMAGENET, FOUR, _TO_95, 3)]
_TENTH = ', which the paper calls a "vanilla-CNN": Table 9 once more'
_SUM = {"quick": joined(SECOND["quick"]), "paper": joined([*SECOND["paper"], *FIFTH["paper"], *THIRD])}
_SIX = "Which algorithm performs better"
ARTIFACTS = (
    _to_chance("tab1", "SNIP and SBP-SR: accuracy of pruned", "section 1", *_FIRST),
    _table("tab2", "Nine methods: accuracy of pruned", "section 4.2", *SECOND.values()),
    _table("tab3", _PRUNED, "section 4.2", _THIRD, THIRD),
    _artifact(
        "hayou/tab4", "Accuracy of pruned V-CNNs of three depths", "section 4.3", presets_4(), table_4, claims_4,
        partial(accuracy.draw, tables_4), about=about_4, tables=tables_4,
    ),
    _table("tab5", _PRUNED, "section 4.3", *FIFTH.values(), claims=claims_5),
    _artifact("hayou/tab6", _SIX, "section 4.3", _SUM, table_6, claims_6, draw_6, tables=tables_6),
    _table("tab8", _PRUNED, "appendix F", *_EIGHTH),
    _to_chance("tab9", f"{_PRUNED} ReLU and tanh", "appendix G", *_NINTH.values()),
    _to_chance("tab10", _PRUNED, "appendix G", *_NINTH.values(), more=_TENTH),
)  # fmt: skip
