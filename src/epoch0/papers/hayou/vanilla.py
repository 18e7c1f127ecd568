"""Hayou Table 4: pruned V-CNNs of three depths, from three starts; what trains at depth 100 (section 4.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import Claim, at_least, at_most, equal_within_error
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou.accuracy import TRIAL, Panel
from epoch0.papers.hayou.accuracy_claims import NEAR_CHANCE
from epoch0.papers.hayou.accuracy_costs import costs_of
from epoch0.papers.hayou.accuracy_winners import winner
from epoch0.papers.hayou.published import Entry
from epoch0.papers.hayou.recipe import Network, Recipe
from epoch0.papers.means import mean_and_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

SPARSITY = 0.5
LEARNT = 30.0
"""Percent of the test images: three times what a constant gets. The table is about who can be trained at all."""


@dataclass(frozen=True)
class Start:
    """One row of the table.

    Attributes:
        label: as in the paper.
        method: name in :data:`~epoch0.papers.hayou.recipe.METHODS`: SNIP, with or without rescaling.
        weight_std: sigma_w.
        bias_std: sigma_b.
        printed: depth -> what the paper prints.
    """

    label: str
    method: str
    weight_std: float
    bias_std: float
    printed: dict[int, Entry]


def _printed(*entries: Entry) -> dict[int, Entry]:
    return dict(zip((10, 50, 100), entries, strict=True))


ORDERED = Start("ordered phase", "snip", 0.9, 0.1, _printed(Entry(98.12, 0.13), Entry(10.0, 0.0), Entry(10.0, 0.0)))
EDGE = Start("EOC", "snip", 1.0, 0.0, _printed(Entry(98.20, 0.17), Entry(98.75, 0.11), Entry(10.0, 0.0)))
RESCALED = Start(
    "EOC + rescaling", "eoc-rescaling", 1.0, 0.0,
    _printed(Entry(98.18, 0.21), Entry(98.90, 0.07), Entry(99.15, 0.08)),
)  # fmt: skip
STARTS = (ORDERED, EDGE, RESCALED)
"""The paper does not give the scales: a tanh network has its edge of chaos at (1, 0); (0.9, 0.1) is in the ordered
phase, near enough to it that ten layers train."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        base: the recipe; depth, method and scales are replaced.
        depths: increasing.
        runs: of each; run i of every start has seed ``first_seed + i``.
        printed: whether these are the paper's data, beside which its numbers can stand.
        more_runs: of EOC + rescaling at the greatest depth, where runs differ most, and of all starts at the least,
            where the claim is that they do not differ; None is ``runs``.
        first_seed: of the first run.
    """

    base: Recipe
    depths: tuple[int, ...]
    runs: int
    printed: bool
    more_runs: int | None = None
    first_seed: int = 0

    def runs_of(self, depth: int, start: Start) -> int:
        """Runs of one entry."""
        more = depth == self.depths[0] or (depth == self.depths[-1] and start == RESCALED)
        return self.more_runs if more and self.more_runs is not None else self.runs

    def trials_of(self, depth: int, start: Start) -> list[Trial]:
        """The runs of one entry."""
        seeds = range(self.first_seed, self.first_seed + self.runs_of(depth, start))
        return [Trial(TRIAL, recipe(self, depth, start), seed) for seed in seeds]


def recipe(setting: Setting, depth: int, start: Start) -> Recipe:
    """One entry of the table."""
    network = replace(
        setting.base.network, depth=depth, weights=Gaussian(start.weight_std), biases=Gaussian(start.bias_std)
    )
    return replace(setting.base, network=network, method=start.method, sparsity=SPARSITY)


def entries(setting: Setting) -> list[tuple[int, Start]]:
    """Depths and starts in the order of the trials."""
    return [(depth, start) for depth in setting.depths for start in STARTS]


def trials(setting: Setting) -> list[Trial]:
    """One a run."""
    return [trial for depth, start in entries(setting) for trial in setting.trials_of(depth, start)]


@dataclass(frozen=True)
class Measured:
    """One entry, all its runs.

    Attributes:
        depth: convolutions.
        start: the row.
        accuracy: percent of the test images, shape (runs,).
        chance: percent that the best constant gets.
        dead: fully pruned layers, shape (runs,).
        diverged: runs that did.
    """

    depth: int
    start: Start
    accuracy: Array
    chance: float
    dead: Array
    diverged: int

    @property
    def sd(self) -> float:
        """Standard deviation of the runs; NaN for a single one."""
        return float(self.accuracy.std(ddof=1)) if len(self.accuracy) > 1 else math.nan

    @property
    def name(self) -> str:
        """For the evidence of claims."""
        return f"{self.start.label}, depth {self.depth}"


def gather(setting: Setting, results: Results) -> dict[tuple[int, str], Measured]:
    """The entries by depth and label."""
    found, end = {}, 0
    for depth, start in entries(setting):
        begin, end = end, end + setting.runs_of(depth, start)
        mine = results[begin:end]
        found[depth, start.label] = Measured(
            depth, start, np.array([100 * one["accuracy"] for one in mine]), 100 * float(mine[0]["chance"]),
            np.array([float(len(one["dead"])) for one in mine]), sum(bool(one["diverged"]) for one in mine),
        )  # fmt: skip
    return found


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row an entry; percent. ``best`` names the best start of a depth, and those within one sd of it."""
    measured = gather(setting, results)
    rows = []
    for depth in setting.depths:
        won = winner({s.label: (float(m.accuracy.mean()), m.sd) for s in STARTS for m in [measured[depth, s.label]]})
        for start in STARTS:
            mine = measured[depth, start.label]
            mean, error = mean_and_error(mine.accuracy)
            entry = start.printed.get(depth) if setting.printed else None
            place = "tie" if won.tied else "best"
            rows.append(
                {
                    "depth": depth, "start": start.label, "weight_std": start.weight_std, "bias_std": start.bias_std,
                    "accuracy": mean, "accuracy_sd": mine.sd, "accuracy_error": error, "chance": mine.chance,
                    "best": place if start.label in (won.best, *won.tied) else "",
                    "printed": math.nan if entry is None else entry.value,
                    "printed_sd": math.nan if entry is None else entry.sd,
                    "dead_layers": float(mine.dead.mean()), "diverged": mine.diverged, "runs": len(mine.accuracy),
                }
            )  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """What the table shows, entry by entry: who is trained, and who stays at chance."""
    measured = gather(setting, results)
    shallow, deep = setting.depths[0], setting.depths[-1]
    middle = [depth for depth in setting.depths if shallow < depth < deep]

    def trained(text: str, *asked: tuple[int, Start]) -> Claim:
        mine = [measured[depth, start.label] for depth, start in asked]
        means, errors = zip(*(mean_and_error(one.accuracy) for one in mine), strict=True)
        return at_least(text, means, errors, LEARNT, _runs(mine), [one.name for one in mine])

    def stuck(text: str, *asked: tuple[int, Start]) -> Claim:
        mine = [measured[depth, start.label] for depth, start in asked]
        means, errors = zip(*(mean_and_error(one.accuracy - one.chance) for one in mine), strict=True)
        text = f"{text}, within {NEAR_CHANCE:g} points"
        return at_most(text, means, errors, NEAR_CHANCE, _runs(mine), [one.name for one in mine])

    first = [measured[shallow, start.label] for start in STARTS]
    means, errors = zip(*(mean_and_error(one.accuracy) for one in first), strict=True)
    return [
        trained(f"EOC + rescaling trains at every depth, to {LEARNT:g} % or more",
                *((depth, RESCALED) for depth in setting.depths)),
        trained(f"depth {deep}: EOC + rescaling trains, to {LEARNT:g} % or more", (deep, RESCALED)),
        stuck(f"depth {deep}: EOC without rescaling stays at chance", (deep, EDGE)),
        stuck(f"depth {deep}: the ordered phase stays at chance", (deep, ORDERED)),
        *(stuck(f"depth {depth}: the ordered phase stays at chance", (depth, ORDERED)) for depth in middle),
        *(trained(f"depth {depth}: both EOC starts train", (depth, EDGE), (depth, RESCALED)) for depth in middle),
        trained(f"depth {shallow}: all three train", *((shallow, start) for start in STARTS)),
        equal_within_error(
            f"depth {shallow}: ... and are equally accurate", [means], [errors], [_runs(first)],
            settings=[f"depth {shallow}"], groups=[start.label for start in STARTS],
        ),
    ]  # fmt: skip


def _runs(measured: Sequence[Measured]) -> list[int]:
    return [len(one.accuracy) for one in measured]


def draw(setting: Setting, results: Results) -> "Figure":
    """Accuracy against depth, the three starts beside each other; the print as open markers."""
    measured = gather(setting, results)
    picture, axes = plots.figure(6.4, 4.0)
    chance = max(one.chance for one in measured.values())
    axes.axhline(chance, color=plots.BOUND, linestyle=":", label="chance", zorder=1)
    for index, start in enumerate(STARTS):
        x = [place + 0.1 * (index - 1) for place in range(len(setting.depths))]
        mine = [measured[depth, start.label] for depth in setting.depths]
        means, errors = zip(*(mean_and_error(one.accuracy) for one in mine), strict=True)
        plots.points(axes, x, means, errors, index, start.label, linestyle="-", linewidth=0.6)
        if setting.printed:
            known = [(place, start.printed[depth]) for place, depth in zip(x, setting.depths, strict=True)
                     if depth in start.printed]  # fmt: skip
            spread = [(entry.sd or 0.0) / 3**0.5 for _, entry in known]
            plots.points(axes, [place + 0.04 for place, _ in known], [entry.value for _, entry in known], spread, index,
                         f"{start.label}, as printed", markerfacecolor="none")  # fmt: skip
    axes.set_xticks(range(len(setting.depths)), [str(depth) for depth in setting.depths])
    axes.grid(False, axis="x")
    axes.set(xlabel="depth: convolutions", ylabel="test accuracy (%)", ylim=(0, 103),
             xlim=(-0.5, len(setting.depths) - 0.5))  # fmt: skip
    plots.legend_below(picture, columns=4)
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    base = setting.base
    network = base.network
    most = f"{setting.more_runs} at depth {setting.depths[0]} and of {RESCALED.label} at {setting.depths[-1]}"
    more = f" ({most})" if setting.more_runs else ""
    data = base.data if base.examples is None else f"the first {base.examples} {base.data}"
    return (
        f"{network.activation}, {network.width:g} channels, {network.kernel}x{network.kernel} kernels, {SPARSITY:.0%} "
        f"pruned by SNIP; {data}, {base.epochs} epochs of SGD at {base.learning_rate:g} with momentum "
        f"{base.momentum:g}, batches of {base.batch_size}; ordered: sigma_w, sigma_b = {ORDERED.weight_std:g}, "
        f"{ORDERED.bias_std:g}, EOC: {EDGE.weight_std:g}, {EDGE.bias_std:g}; {setting.runs} runs{more}; "
        "bars: two standard errors"
    )


def costs(setting: Setting) -> list[Cost]:
    """One a depth."""
    found = []
    for depth in setting.depths:
        mine = [trial for start in STARTS for trial in setting.trials_of(depth, start)]
        (cost,) = costs_of([Panel(recipe(setting, depth, EDGE), ("snip",), (SPARSITY,), setting.runs)])
        found.append(replace(cost, trials=mine))
    return found


def _base(data: str, channels: int, epochs: int, batch_size: int, learning_rate: float) -> Recipe:
    """Section 4.1 has plain SGD at 1e-3, batches of 100 and tanh; of section 4.3 nothing but the depths is told."""
    network = Network("vanilla_cnn", 10, channels, "tanh", kernel=3)
    return Recipe(
        network, data, "snip", SPARSITY, epochs, batch_size, learning_rate, weight_decay=0.0, drop_factor=0.3,
        augment=False,
    )  # fmt: skip


def presets() -> dict[str, Setting]:
    """Both presets.

    The paper tells neither channels nor kernels of its V-CNNs: 32 channels and 3x3 kernels are chosen, and 16 channels
    for digits. Their number, the learning rate, the batches, the epochs and how many runs there are were chosen after
    looking at other runs; no run of the table was among them. See docs/hayou-accuracy.
    """
    quick = replace(_base("digits", 16, 3, 16, 0.0012), drops=(), examples=720, tested_every=3)
    return {
        "quick": Setting(quick, (10, 50, 100), 3, False, more_runs=6, first_seed=20),
        # as many steps as in section 4.1, in whole epochs
        "paper": Setting(_base("mnist", 32, 17, 100, 0.001), (10, 50, 100), 3, True),
    }


ARTIFACT = OldArtifact(
    "hayou/tab4", "Accuracy of pruned V-CNNs of three depths", "Hayou et al., Table 4, section 4.3", presets(), trials,
    table, claims, draw, lambda setting: setting.base.data, about, costs,
)
