"""Hayou's Theorem 3, the weak lottery ticket: random masks bring networks to the edge of chaos (appendix H)."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, between
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.hayou.ticket_trial import TicketSpec, TrainedSpec
from epoch0.papers.means import mean_and_error
from epoch0.theory.mean_field import chi, edge_of_chaos, q_star

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

CLOSE = 0.05
"""How near to 1 the measured gain must be."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        depth: hidden layers of the networks that are measured.
        width: units of the dense ones.
        channels: of the convolutional ones.
        factors: sigma_w over its value on the edge of chaos, increasing, > 1.
        networks: how many of each kind.
        trained: the networks that are trained; its sigma_w is the largest factor's.
        runs: how many of those.
    """

    depth: int
    width: int
    channels: int
    factors: tuple[float, ...]
    networks: int
    trained: TrainedSpec
    runs: int


KINDS = (("dense", "tanh", 0.2), ("dense", "relu", 0.0), ("cnn", "relu", 0.0))
"""Kind, activation and sigma_b."""


def ticket(kind: str, activation: str, bias_std: float, depth: int, width: int, factor: float) -> TicketSpec:
    """Networks that far beyond the edge of chaos."""
    point = edge_of_chaos(activation, bias_std=bias_std)
    # for a ReLU any q is a fixed point
    square = 1.0 if point.q is None else (float(point.q) - bias_std**2) / float(point.weight_std) ** 2
    edge = float(point.weight_std)
    return TicketSpec(kind, activation, depth, width, round(edge * factor, 9), bias_std, round(edge, 9), square)


def specs(setting: Setting) -> list[TicketSpec]:
    """The networks that are measured."""
    return [
        ticket(kind, activation, bias, setting.depth, setting.channels if kind == "cnn" else setting.width, factor)
        for kind, activation, bias in KINDS
        for factor in setting.factors
    ]


def trials(setting: Setting) -> list[Trial]:
    """One a network to measure, then one a network to train."""
    module = "epoch0.papers.hayou.ticket_trial"
    return [
        Trial(f"{module}:measure", spec, seed=1000 * place + network)
        for place, spec in enumerate(specs(setting))
        for network in range(setting.networks)
    ] + [Trial(f"{module}:learn", setting.trained, seed=run) for run in range(setting.runs)]


@dataclass(frozen=True)
class Kind:
    """One kind of network, measured.

    Attributes:
        spec: what it is.
        before: mean gain of each network as it came.
        after: with masks.
    """

    spec: TicketSpec
    before: Array
    after: Array

    @property
    def factor(self) -> float:
        """How far sigma_w is beyond the edge."""
        return self.spec.weight_std / self.spec.edge

    @property
    def family(self) -> str:
        """Kind and activation in words."""
        return f"{self.spec.activation} {'V-CNN' if self.spec.kind == 'cnn' else 'dense'}"

    @property
    def name(self) -> str:
        """For the evidence of claims."""
        return f"{self.family}, {self.factor:.3g} times the edge"

    @property
    def chi(self) -> float:
        """What the mean field gives without masks."""
        spec = self.spec
        q = 1.0 if spec.activation == "relu" else q_star(spec.activation, spec.weight_std, spec.bias_std)
        return float(chi(spec.activation, spec.weight_std, q))


def gather(setting: Setting, results: Results) -> tuple[list[Kind], Array, Array]:
    """The kinds with their gains; accuracies without masks, and with them."""
    kinds = []
    for place, spec in enumerate(specs(setting)):
        mine = results[place * setting.networks : (place + 1) * setting.networks]
        kinds.append(Kind(spec, *(np.array([one[name] for one in mine]) for name in ("before", "after"))))
    runs = results[len(kinds) * setting.networks :]
    return kinds, np.array([one["dense"] for one in runs]), np.array([one["masked"] for one in runs])


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a kind and factor; then the two that were trained."""
    kinds, dense, masked = gather(setting, results)
    rows: list[dict[str, Any]] = []
    for kind in kinds:
        before, before_error = mean_and_error(kind.before)
        after, after_error = mean_and_error(kind.after)
        rows.append(
            {
                "kind": kind.family,
                "factor": kind.factor,
                "density": 1 / kind.factor**2,
                "chi_before": before,
                "chi_before_error": before_error,
                "chi_before_predicted": kind.chi,
                "chi_after": after,
                "chi_after_error": after_error,
                "accuracy": math.nan,
                "accuracy_error": math.nan,
                "networks": setting.networks,
            }
        )
    spec = setting.trained.ticket
    factor = spec.weight_std / spec.edge
    for name, values, density in (("trained as it came", dense, 1.0), ("trained, masked", masked, 1 / factor**2)):
        mean, error = mean_and_error(values)
        rows.append({**dict.fromkeys(rows[0], math.nan), "kind": name, "factor": factor, "density": density,
                     "accuracy": mean, "accuracy_error": error, "networks": setting.runs})  # fmt: skip
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Theorem 3, and that the masked networks train."""
    kinds, dense, masked = gather(setting, results)
    before, before_error = np.transpose([mean_and_error(kind.before) for kind in kinds])
    after, after_error = np.transpose([mean_and_error(kind.after) for kind in kinds])
    names, count = [kind.name for kind in kinds], setting.networks
    better, better_error = mean_and_error(masked - dense)
    mean, error = mean_and_error(masked)
    spec = setting.trained.ticket
    what = f"{spec.activation}, depth {spec.depth}, {spec.weight_std / spec.edge:g} times the edge"
    return [
        at_least("as they come the networks are chaotic: chi is above 1.1", before, before_error, 1.1, count, names),
        between(
            f"Theorem 3: random masks of density sigma_EOC^2/sigma_w^2 bring chi to 1, within {CLOSE:g}",
            after, after_error, 1 - CLOSE, 1 + CLOSE, count, names,
        ),
        at_least("a masked network trains: test accuracy above one half", [mean], [error], 0.5, setting.runs, [what]),
        at_least("... and further than the same network without the mask", [better], [better_error], 0.0, setting.runs,
                 [what]),
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """Gain before and after against sigma_w; accuracies of the networks that were trained."""
    rows = table(setting, results)
    picture, axes = plots.figure(8.4, 4.4, mosaic=[["chi", "accuracy"]], width_ratios=[2.0, 1.0])
    families = list(dict.fromkeys(row["kind"] for row in rows[:-2]))
    for index, family in enumerate(families):
        mine = [row for row in rows[:-2] if row["kind"] == family]
        # beside each other, not on top
        x = [row["factor"] * (1 + 0.012 * (index - 1)) for row in mine]
        plots.points(axes["chi"], x, [row["chi_before"] for row in mine], [row["chi_before_error"] for row in mine],
                     index, f"{family}, as it came", markerfacecolor="none")
        plots.points(axes["chi"], x, [row["chi_after"] for row in mine], [row["chi_after_error"] for row in mine],
                     index, f"{family}, masked")
        plots.curve(axes["chi"], x, [row["chi_before_predicted"] for row in mine], index)
    axes["chi"].plot([], [], color="#333333", label="mean field")
    axes["chi"].axhline(1, color=plots.BOUND, linestyle=":", zorder=1)
    axes["chi"].set(xlabel=r"$\sigma_w\,/\,\sigma_{w,\mathrm{EOC}}$", ylabel=r"mean gain of the layers, $\chi$")
    axes["chi"].set_yscale("log")
    ticks = [1, 2, 3, 5, 10]
    axes["chi"].set_yticks(ticks, [str(tick) for tick in ticks])
    axes["chi"].minorticks_off()
    axes["chi"].legend()
    for index, (row, label) in enumerate(zip(rows[-2:], ("as it came", "masked"), strict=True)):
        plots.points(axes["accuracy"], [index], [100 * row["accuracy"]], [100 * row["accuracy_error"]], index, label)
    axes["accuracy"].axhline(10, color=plots.BOUND, linestyle=":", label="chance", zorder=1)
    axes["accuracy"].set_xticks([0, 1], ["as it came", "masked"])
    spec = setting.trained.ticket
    axes["accuracy"].set(
        xlim=(-0.5, 1.5), ylim=(0, 100), ylabel="test accuracy (%)",
        title=f"{spec.activation}, {spec.depth} layers, {spec.weight_std / spec.edge:g} times the edge",
    )
    axes["accuracy"].legend(loc="center right")
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.trained
    return (
        f"{setting.depth} layers of width {setting.width} ({setting.channels} channels), {setting.networks} networks "
        f"each; trained on {spec.data}: width {spec.ticket.width}, {spec.steps} steps of SGD at "
        f"{spec.learning_rate:g}, {setting.runs} runs; bars: two standard errors"
    )


def _trained(data: str, steps: int, tested: int, depth: int) -> TrainedSpec:
    return TrainedSpec(ticket("dense", "tanh", 0.2, depth, 100, 2.0), data, steps, 64, 0.02, tested)


def presets() -> dict[str, Setting]:
    """Both presets."""
    quick = Setting(8, 250, 48, (1.2, 1.6, 2.2), 8, _trained("digits", 1500, 360, 30), 4)
    return {
        "quick": quick,
        "paper": replace(
            quick, depth=12, width=400, channels=64, factors=(1.2, 1.6, 2.2), networks=4,
            trained=_trained("mnist", 2000, 10000, 30), runs=3,
        ),
    }  # fmt: skip


ARTIFACT = OldArtifact(
    "hayou/wlth", "Random masks bring networks to the edge of chaos", "Hayou et al., Theorem 3, appendix H", presets(),
    trials, table, claims, draw, lambda setting: setting.trained.data, about,
)
