"""Price-Tanner Figure 6 (appendix C.2): presets, trials and tables; both figures come from the same trials.

See :mod:`epoch0.papers.price_tanner.trained_trial` for what is trained and how it is measured. The paper prints neither
its five sigma_w nor its optimizer: here they are 1.0, 1.4, 1.8, 2.2, 2.6 and Adam.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.distributions import Gaussian
from epoch0.experiments.experiment import Trial
from epoch0.papers import means
from epoch0.papers.price_tanner.trained_trial import StackSpec
from epoch0.theory import growth as theory

Array = NDArray[np.float64]
Results = Sequence[Mapping[str, Any]]

WEIGHT_STDS = (1.0, 1.4, 1.8, 2.2, 2.6)
"""The five initial sigma_w. The paper does not print its own; with these nearly every network learns in time."""

KINDS = ("within a class", "between classes")


@dataclass(frozen=True)
class TrainedSetting:
    """One preset.

    Attributes:
        spec: what is trained and measured; its ``weight_std`` is replaced by each of ``weight_stds``.
        weight_stds: the initial sigma_w.
        note: what the title adds.
    """

    spec: StackSpec
    weight_stds: tuple[float, ...] = WEIGHT_STDS
    note: str = ""


PRESETS: Mapping[str, TrainedSetting] = {
    "quick": TrainedSetting(
        StackSpec("digits", (64, *[32] * 9, 10), 0.0, 20, 40, 20, 6, 16, 0.95, 150, 64, 0.006), note="digits, 8 x 8"
    ),
    "paper": TrainedSetting(
        StackSpec("mnist", (784, *[32] * 9, 10), 0.0, 20, 40, 20, 6, 64, 0.95, 30, 100, 0.001), note="MNIST"
    ),
}
"""Both train the paper's 20 networks a sigma_w, and draw 20 lines of each kind between test images.

Of random networks the paper has 20 too; they leave open whether lines agree within 5 %, so 20 more are measured.
"""


def trials(setting: TrainedSetting) -> list[Trial]:
    """One an initial sigma_w, with networks, batches and offsets of its own, and the lines of all."""
    function = "epoch0.papers.price_tanner.trained_trial:train_and_measure"
    return [
        Trial(function, replace(setting.spec, weight_std=std), seed) for seed, std in enumerate(setting.weight_stds)
    ]


@dataclass(frozen=True)
class Trained:
    """The networks of one initial sigma_w, those that did not reach the accuracy already left out.

    Attributes:
        initial: sigma_w as asked for.
        reached: which networks exceeded the accuracy, (networks,).
        accuracy: test accuracy of all networks when they stopped, (networks,).
        std: sigma_w of the networks by ``"trained"`` (those that reached it) and ``"random"`` (all, before training).
        growth: growth factors of the same, (networks, lines), the first half of the lines within a class.
        log_length: log of the mean relative length of the same, (networks, hidden layers).
    """

    initial: float
    reached: NDArray[np.bool_]
    accuracy: Array
    std: Mapping[str, Array]
    growth: Mapping[str, Array]
    log_length: Mapping[str, Array]

    @property
    def enough(self) -> bool:
        """Are there two networks or more, so that there is a standard error?"""
        return int(self.reached.sum()) >= 2

    def kind(self, which: str, kind: int) -> Array:
        """Growth factors along the lines of one kind (an index into KINDS), (networks, lines)."""
        lines = self.growth[which].shape[1] // 2
        return self.growth[which][:, kind * lines : (kind + 1) * lines]


def gather(setting: TrainedSetting, results: Results) -> list[Trained]:
    """The trials' results, in the order of :func:`trials`, without the networks that missed the accuracy."""
    gathered = []
    for std, result in zip(setting.weight_stds, results, strict=True):
        reached = np.asarray(result["reached"], dtype=bool)

        def by_state(name: str, result: Mapping[str, Any] = result, reached: Any = reached) -> dict[str, Array]:
            trained, random = (np.asarray(result[f"{name}_{state}"]) for state in ("trained", "random"))
            return {"trained": trained[reached], "random": random}

        accuracy = np.asarray(result["accuracy"])
        gathered.append(Trained(std, reached, accuracy, by_state("std"), by_state("growth"), by_state("log_length")))
    return gathered


def table_a(setting: TrainedSetting, results: Results) -> list[dict[str, Any]]:
    """Figure 6a: one row an initial sigma_w, kind of line, and state of the networks.

    The errors of the growth join those over networks and over lines: both are samples.
    """
    rows = []
    for trained in gather(setting, results):
        for state in ("trained", "random"):
            for kind, name in enumerate(KINDS):
                growth = trained.kind(state, kind)
                std, std_error = mean_and_error(trained.std[state])
                mean, over_lines = mean_and_error(mean_and_error(growth)[0])
                error = np.hypot(over_lines, mean_and_error(growth.mean(1))[1])
                rows.append(
                    {
                        "networks": state,
                        "lines": name,
                        "initial_std": trained.initial,
                        "weight_std": float(std),
                        "weight_std_error": float(std_error),
                        "growth": float(mean),
                        "growth_error": float(error),
                        "exact_random": exact_random(setting, float(std)),
                        "count": len(growth),
                        **_training_columns(trained, state),
                    }
                )
    return rows


def table_b(setting: TrainedSetting, results: Results) -> list[dict[str, Any]]:
    """Figure 6b: one row an initial sigma_w, line, and state of the networks; errors over networks."""
    rows = []
    for trained in gather(setting, results):
        for state in ("trained", "random"):
            growth = trained.growth[state]
            std, std_error = mean_and_error(trained.std[state])
            for line in range(growth.shape[1]):
                mean, error = mean_and_error(growth[:, line])
                rows.append(
                    {
                        "networks": state,
                        "line": line,
                        "lines": KINDS[2 * line // growth.shape[1]],
                        "initial_std": trained.initial,
                        "weight_std": float(std),
                        "weight_std_error": float(std_error),
                        "growth": float(mean),
                        "growth_error": float(error),
                        "count": len(growth),
                        **_training_columns(trained, state),
                    }
                )
    return rows


def _training_columns(trained: Trained, state: str) -> dict[str, Any]:
    """Accuracy and the networks left out, which have no meaning before training."""
    if state == "random":
        return {"accuracy": None, "missed": ""}
    missed = ", ".join(str(index) for index in np.flatnonzero(~trained.reached))
    reached = trained.accuracy[trained.reached]
    return {"accuracy": float(reached.mean()) if len(reached) else None, "missed": missed}


def exact_random(setting: TrainedSetting, std: float) -> float:
    """Growth factor of a random network with that sigma_w in its square layers."""
    width = setting.spec.sizes[1]
    if not np.isfinite(std):
        return float("nan")
    return float(theory.exact(Gaussian(std / width**0.5), width))


def mean_and_error(values: Array) -> tuple[Any, Any]:
    """Mean over the first axis and its standard error, as of any measurement; NaN where no network is left."""
    if len(values) == 0:
        missing = np.full(values.shape[1:], np.nan)
        return missing, missing
    return means.mean_and_error(values)
