"""Hayou Table 4: pruned V-CNNs of three depths, from three starts; what trains at depth 100 (section 4.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import at_least, at_most
from epoch0.papers.hayou import accuracy
from epoch0.papers.hayou.accuracy import NEAR_CHANCE, Entry, above_chance, chance, dead, sd, winner
from epoch0.papers.hayou.protocol import Network, Recipe, run
from epoch0.papers.sweep import Artifact, Cell, Found, Sweep
from epoch0.papers.tables import Claims, Decision, Table, over_runs
from epoch0.results import Grid

SPARSITY = 0.5
LEARNT = 30.0  # percent of the test images: three times what a constant gets; the table is about who trains at all


@dataclass(frozen=True)
class Start:
    """One row of the table: sigma_w, sigma_b, a pruning method with or without rescaling, and what is printed."""

    label: str
    method: str
    weight_std: float
    bias_std: float
    printed: dict[int, Entry]


def _printed(*entries: tuple[float, float]) -> dict[int, Entry]:
    return {depth: Entry(*entry) for depth, entry in zip((10, 50, 100), entries, strict=True)}


# The paper does not give the scales: tanh networks have their edge of chaos at (1, 0); (0.9, 0.1) is in the ordered
# phase, near enough to it that ten layers train.
ORDERED = Start("ordered phase", "snip", 0.9, 0.1, _printed((98.12, 0.13), (10.0, 0.0), (10.0, 0.0)))
EDGE = Start("EOC", "snip", 1.0, 0.0, _printed((98.20, 0.17), (98.75, 0.11), (10.0, 0.0)))
_ENTRIES = _printed((98.18, 0.21), (98.90, 0.07), (99.15, 0.08))
RESCALED = Start("EOC + rescaling", "eoc-rescaling", 1.0, 0.0, _ENTRIES)
STARTS = {start.label: start for start in (ORDERED, EDGE, RESCALED)}


def sweep(base: Recipe, depths: Sequence[int], runs: int, more: int | None = None, seed: int = 0) -> Sweep:
    """Every depth from every start.

    ``more`` runs of EOC + rescaling at the greatest depth, where runs differ most, and of all starts at the least,
    where the claim is that they do not differ.
    """
    axis = {}
    for depth in depths:
        for label, start in STARTS.items():
            weights, biases = Gaussian(start.weight_std), Gaussian(start.bias_std)
            network = replace(base.network, depth=depth, weights=weights, biases=biases)
            axis[depth, label] = {"network": network, "method": start.method}
    often = [depth == depths[0] or (depth == depths[-1] and label == RESCALED.label) for depth, label in axis]
    counts = [more if each and more is not None else runs for each in often]
    return Sweep(run, base, {"depth start": axis}, {"depth start": counts}, seed)


def table(found: Found) -> Table:
    """One row an entry; percent. ``best`` names the best start of a depth, and those within one sd of it."""
    best = {}
    for depth in found.sweep["depth"]:
        each = {cell.at["start"]: 100 * cell["accuracy"] for cell in found.where(depth=depth)}
        best[depth] = winner({label: (float(mine.mean()), sd(mine)) for label, mine in each.items()})

    def others(cell: Cell) -> dict[str, Any]:
        start, won = STARTS[cell.at["start"]], best[cell.at["depth"]]
        entry = start.printed.get(cell.at["depth"]) if cell.spec.data == "mnist" else None
        place = "tie" if won.tied else "best"
        row: dict[str, Any] = {"weight_std": start.weight_std, "bias_std": start.bias_std}
        row |= {"accuracy_sd": sd(100 * cell["accuracy"]), "chance": chance(cell)}
        row["best"] = place if start.label in (won.best, *won.tied) else ""
        row |= {"printed": entry.value if entry else math.nan, "printed_sd": entry.sd if entry else math.nan}
        return {**row, "dead_layers": float(dead(cell).mean()), "diverged": int(cell["diverged"].sum())}

    return found.rows(lambda cell: {"accuracy": 100 * cell["accuracy"]}, others)


def claims(found: Found) -> Claims:
    """What the table shows, entry by entry: who is trained, and who stays at chance."""
    shallow, *middle, deep = found.sweep["depth"]
    ordered, edge, rescaled = STARTS
    name, near = "{start}, depth {depth}", f"stays at chance, within {NEAR_CHANCE:g} points"

    def trained(start: Any, depth: Any) -> Decision:
        return found.table.where(start=start, depth=depth).claim(at_least, "accuracy", LEARNT, names=name)

    def stuck(start: str, depth: int) -> Decision:
        cell = found.one(depth=depth, start=start)
        return over_runs(at_most, above_chance(cell), NEAR_CHANCE, names=[f"{start}, depth {depth}"])

    alike = found.table.where(depth=shallow).alike("accuracy", "start", "{start}", "depth {depth}")
    return {
        f"EOC + rescaling trains at every depth, to {LEARNT:g} % or more": trained(rescaled, found.sweep["depth"]),
        f"depth {deep}: EOC + rescaling trains, to {LEARNT:g} % or more": trained(rescaled, deep),
        f"depth {deep}: EOC without rescaling {near}": stuck(edge, deep),
        f"depth {deep}: the ordered phase {near}": stuck(ordered, deep),
        **{f"depth {depth}: the ordered phase {near}": stuck(ordered, depth) for depth in middle},
        **{f"depth {depth}: both EOC starts train": trained((edge, rescaled), depth) for depth in middle},
        f"depth {shallow}: all three train": trained(tuple(STARTS), shallow),
        f"depth {shallow}: ... and are equally accurate": alike,
    }


def tables(found: Found) -> list[Grid]:
    """Starts by depths, what is printed in brackets; as a table of its own where other data stand in for MNIST."""
    own = found.sweep.spec.data == "mnist"
    made: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    for label, rows in found.table.by("start"):
        told = [f"{one.value:.2f} ± {one.sd:.2f}" for one in STARTS[label].printed.values()]
        ours = [f"{row['accuracy']:.1f} ± {row['accuracy_error']:.1f}" for row in rows]
        made[True][label] = [f"{a} ({b})" for a, b in zip(ours, told, strict=True)] if own else ours
        made[False][label] = told
    depths = tuple(f"depth {depth}" for depth in found.sweep["depth"])
    titles = f"V-CNN, {found.sweep.spec.data}: % ± standard error", "as printed: V-CNN, MNIST, % ± sd"
    grids = [Grid(f"{titles[0]} (as printed, ± sd)" if own else titles[0], depths, made[True])]
    return grids if own else [*grids, Grid(titles[1], tuple(f"depth {d}" for d in EDGE.printed), made[False])]


def draw(found: Found) -> plots.Figure:
    """The table; the best of each depth is shaded."""
    return plots.tables(tables(found))


_ABOUT = (
    f"{{network.activation}}, {{network.width:g}} channels, 3x3 kernels, {SPARSITY:.0%} pruned by SNIP; {{data}}, "
    "{epochs} epochs of SGD at {learning_rate:g}, momentum {momentum:g}, batches of {batch_size}; ordered: sigma_w, "
    f"sigma_b = {ORDERED.weight_std:g}, {ORDERED.bias_std:g}, EOC: {EDGE.weight_std:g}, {EDGE.bias_std:g}; no bars"
)


def presets() -> dict[str, Sweep]:
    """Section 4.1 has plain SGD at 1e-3, batches of 100 and tanh; of section 4.3 nothing but the depths is told.

    32 channels and 3x3 kernels are chosen, and 16 channels for digits. Their number, the learning rate, the batches,
    the epochs and how many runs there are were chosen after looking at other runs; no run of the table was among them.
    See docs/hayou-accuracy.
    """
    network = Network("vanilla_cnn", 10, 32, "tanh")
    more = {"weight_decay": 0.0, "drop_factor": 0.3, "augment": False}
    # as many steps as in section 4.1, in whole epochs
    paper = Recipe(network, "mnist", "snip", SPARSITY, 17, 100, 0.001, **more)  # type: ignore[arg-type]
    less = {"epochs": 3, "batch_size": 16, "learning_rate": 0.0012, "drops": (), "examples": 720, "tested_every": 3}
    quick = replace(paper, network=replace(network, width=16), data="digits", **less)  # type: ignore[arg-type]
    return {"quick": sweep(quick, (10, 50, 100), 3, 6, seed=20), "paper": sweep(paper, (10, 50, 100), 3)}


_TITLE, _COST = "Accuracy of pruned V-CNNs of three depths", accuracy.cost
ARTIFACTS = (Artifact("hayou/tab4", _TITLE, "section 4.3", presets(), table, claims, draw, _ABOUT, _COST, tables),)
