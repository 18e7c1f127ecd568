"""Raghu Figure 11 (section 3.3): test accuracy with batch norm, trajectory regularization and neither.

All three kinds of network begin with the same weights and see the same batches, run by run, so differences are paired.
In the quick preset the learning rate of each kind is the best of 0.001, 0.003 and 0.01 for it (for batch norm 0.03 was
tried too), by the accuracy of three networks on training images held out from training; their seeds, 100 to 102, are in
no preset. In the paper preset it is 0.001 for all, a common one of Adam, and not tuned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, between
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.papers.raghu.convnet import ConvNet
from epoch0.papers.raghu.regularization_trial import RegularizedSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.raghu.regularization_trial:regularized"

KINDS = {"batch": "batch norm", "trajectory": "trajectory regularization", "none": "neither"}
"""What stands in a network's norm -> its name in the figure."""

COMPARABLE = 0.02
"""Accuracies perform "comparably" if they differ by less."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        spec: what all kinds of network share; norm and learning rate are replaced.
        rates: learning rate of each kind in KINDS, in their order.
        runs: networks of each kind.
    """

    spec: RegularizedSpec
    rates: tuple[float, float, float]
    runs: int

    def of(self, norm: str) -> RegularizedSpec:
        """What is trained with that norm."""
        rate = self.rates[list(KINDS).index(norm)]
        return replace(self.spec, network=replace(self.spec.network, norm=norm), learning_rate=rate)


_DIGITS = RegularizedSpec(
    "digits", ConvNet((16,) * 5, (64, 32), colours=1, size=8), (0, 25, 50, 100, 150, 200, 300, 400, 500, 600),
    batch_size=32, learning_rate=0.0, tested=360,
)  # fmt: skip
# 20,000 steps are 51 epochs
_CIFAR = RegularizedSpec(
    "cifar10", ConvNet(), (0, 500, 1000, 2000, 4000, 6000, 8000, 12_000, 16_000, 20_000), batch_size=128,
    learning_rate=0.0, tested=10_000,
)  # fmt: skip

PRESETS = {
    "quick": Setting(_DIGITS, (0.01, 0.01, 0.003), 12),
    "paper": Setting(_CIFAR, (0.001, 0.001, 0.001), 4),
}


def trials(setting: Setting) -> list[Trial]:
    """Every run of every kind; run i has the same weights and batches in all."""
    return [Trial(TRIAL, setting.of(norm), seed) for norm in KINDS for seed in range(setting.runs)]


@dataclass(frozen=True, eq=False)
class Tested:
    """What the networks of one kind gave, those that diverged among them with the accuracy of a guess.

    Attributes:
        name: of the kind.
        steps: at which they were tested, (S,).
        accuracy: on test images, (runs, S).
        multipliers: lambda, (runs, S, layers); no layers but with trajectory regularization.
        ratios: current over original length, likewise.
        diverged: how many runs did.
    """

    name: str
    steps: Array
    accuracy: Array
    multipliers: Array
    ratios: Array
    diverged: int


def gather(setting: Setting, results: Results) -> dict[str, Tested]:
    """The results by norm."""
    found = {}
    for place, (norm, name) in enumerate(KINDS.items()):
        mine = results[place * setting.runs : (place + 1) * setting.runs]
        accuracy, multipliers, ratios = (
            np.array([one[key] for one in mine], dtype=np.float64) for key in ("accuracy", "multipliers", "ratios")
        )
        diverged = sum(bool(one["diverged"]) for one in mine)
        steps = np.asarray(mine[0]["steps"], dtype=np.float64)
        found[norm] = Tested(name, steps, accuracy, multipliers, ratios, diverged)
    return found


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row for each kind and step."""
    rows = []
    for norm, found in gather(setting, results).items():
        mean, error = mean_and_error(found.accuracy)
        for place, step in enumerate(found.steps):
            row = {
                "network": found.name, "learning_rate": setting.of(norm).learning_rate, "runs": setting.runs,
                "diverged": found.diverged, "step": int(step), "accuracy": mean[place], "accuracy_error": error[place],
            }  # fmt: skip
            with_layers = found.multipliers.shape[2] > 0
            row["lambda"] = float(np.nanmean(found.multipliers[:, place])) if with_layers else None
            row["length_ratio"] = float(np.nanmean(found.ratios[:, place])) if with_layers else None
            rows.append(row)
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Section 3.3: both "perform comparably, and considerably better than not using batch norm"; "slightly more train
    time" for trajectory regularization (Figure 11).
    """
    found = gather(setting, results)
    decided = []
    for when, part in (("after training", slice(-1, None)), ("through training, mean of the tests", slice(1, None))):
        own = {norm: each.accuracy[:, part].mean(1) for norm, each in found.items()}
        for norm in ("batch", "trajectory"):
            text = f"{when}: {KINDS[norm]} is better than neither: difference in test accuracy"
            mean, error = mean_and_error(own[norm] - own["none"])
            decided.append(at_least(text, [mean], [error], 0.0, setting.runs, [_told(own, norm, "none")]))
        mean, error = mean_and_error(own["trajectory"] - own["batch"])
        text = f"{when}: trajectory regularization and batch norm differ by less than {COMPARABLE:g} in test accuracy"
        told = [_told(own, "trajectory", "batch")]
        decided.append(between(text, [mean], [error], -COMPARABLE, COMPARABLE, setting.runs, told))
    text = "trajectory regularization takes more training than batch norm: its mean of the tests is lower, difference"
    return [*decided, at_most(text, [mean], [error], 0.0, setting.runs, told)]


def _told(own: dict[str, Array], *norms: str) -> str:
    return " minus ".join(f"{own[norm].mean():.4f} ({KINDS[norm]})" for norm in norms)


def draw(setting: Setting, results: Results) -> "Figure":
    """Test accuracy against training step, one line a kind; beside it the second half, enlarged."""
    found = gather(setting, results)
    picture, (whole, late) = plots.figure(8.6, 4.2, 1, 2, width_ratios=(3, 2))
    with plots.style():
        for axes in (whole, late):
            for place, each in enumerate(found.values()):
                kept = each.steps >= (each.steps[-1] / 2 if axes is late else 0)
                mean, error = (values[kept].tolist() for values in mean_and_error(each.accuracy))
                label = each.name + (f" ({each.diverged} of {setting.runs} diverged)" if each.diverged else "")
                steps = each.steps[kept] + (place - 1) * 0.004 * each.steps[-1]  # so that bars do not hide each other
                plots.points(axes, steps.tolist(), mean, error, place, label, linestyle="-")
            axes.set(xlabel="training step")
        chance = 1 / setting.spec.network.classes
        whole.axhline(chance, color=plots.BOUND, linestyle=":", linewidth=1.2, label="chance")
        whole.set(ylabel="test accuracy")
        whole.legend(loc="lower right")
        late.set_title("the second half, enlarged", loc="left")
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    spec = setting.spec
    channels = " to ".join(str(count) for count in sorted({spec.network.channels[0], spec.network.channels[-1]}))
    rates = ", ".join(f"{rate:g} ({name})" for rate, name in zip(setting.rates, KINDS.values(), strict=True))
    return (
        f"{spec.data}, conv net, {channels} channels, sigma_w^2 = "
        f"{spec.network.variance:g}; {spec.optimizer.capitalize()}, batch {spec.batch_size}, learning rates {rates}; "
        f"{setting.runs} networks of each kind; bars: two standard errors"
    )


def data(setting: Setting) -> str:
    """The data set that the trials load."""
    return setting.spec.data


def costs(setting: Setting) -> list[Cost]:
    """One cost a kind of network."""
    found, mine = [], trials(setting)
    for place, (norm, name) in enumerate(KINDS.items()):
        spec = setting.of(norm)
        found.append(
            Cost(
                f"conv net, {name}, {spec.data}", mine[place * setting.runs : (place + 1) * setting.runs],
                partial(spec.network.build, 0), spec.network.inputs, spec.network.classes, spec.batch_size,
                spec.at[-1] * spec.batch_size, spec.tested * len(spec.at),
            )
        )  # fmt: skip
    return found


ARTIFACTS: Sequence[OldArtifact] = (
    OldArtifact(
        "raghu/fig11", "Test accuracy with batch norm, trajectory regularization and neither",
        "Raghu et al., Figure 11, section 3.3", PRESETS, trials, table, claims, draw, data, about, costs,
    ),
)  # fmt: skip
"""Figure 11."""
