"""Hayou's accuracy tables: which runs they are made of, and what the runs say (Tables 1, 2, 3, 8, 9, 10)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hayou.published import Entry, Printed, block
from epoch0.papers.hayou.recipe import METHODS, Recipe, with_method

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.hayou.protocol:run"


@dataclass(frozen=True)
class Panel:
    """One network on one data set: every method at every sparsity.

    Attributes:
        base: the recipe; method and sparsity are replaced.
        methods: names of :data:`~epoch0.papers.hayou.recipe.METHODS`; ``"none"`` runs once, at sparsity 0.
        sparsities: increasing.
        runs: of each; run i of every method has seed i.
        printed: table whose block for this network and data set the runs repeat; None where something smaller stands
            in for it.
    """

    base: Recipe
    methods: tuple[str, ...]
    sparsities: tuple[float, ...]
    runs: int
    printed: str | None = None

    @property
    def title(self) -> str:
        """Network, factor on its filters, and data."""
        network = self.base.network
        tanh = "" if network.activation == "relu" else f", {network.activation}"
        return f"{network.name} x{network.width:g}{tanh}, {self.base.data}"

    @property
    def block(self) -> Printed | None:
        """What is printed."""
        if self.printed is None:
            return None
        network = self.base.network
        return block(self.printed, self.base.data, network.name, network.activation)

    def cells(self) -> list[tuple[str, float]]:
        """Methods and sparsities in the order of the runs."""
        return [
            (method, sparsity)
            for method in self.methods
            for sparsity in ((0.0,) if method == "none" else self.sparsities)
        ]


@dataclass(frozen=True)
class Setting:
    """One preset of one table.

    Attributes:
        panels: networks and data sets.
        table: as it is called in the paper.
        high: from this sparsity on the paper expects SBP-SR to be ahead.
    """

    panels: tuple[Panel, ...]
    table: str
    high: float


@dataclass(frozen=True)
class Cell:
    """One method at one sparsity, all its runs.

    Attributes:
        method: its name.
        sparsity: fraction removed.
        accuracy: percent of the test images after the last epoch, shape (runs,).
        best: percent, of the best test.
        chance: percent that the best constant gets.
        dead: fully pruned layers, shape (runs,).
        on_paths: kept weights on a path from input to output, shape (runs,); NaN where they were not counted.
        diverged: whether the run did, shape (runs,).
        printed: what the paper prints here, if it does.
    """

    method: str
    sparsity: float
    accuracy: Array
    best: Array
    chance: float
    dead: Array
    on_paths: Array
    diverged: Array
    printed: Entry | None

    @property
    def mean(self) -> float:
        """Mean accuracy in percent."""
        return float(self.accuracy.mean())

    @property
    def sd(self) -> float:
        """Standard deviation of the runs in percent; NaN for a single one."""
        return float(self.accuracy.std(ddof=1)) if len(self.accuracy) > 1 else math.nan

    @property
    def error(self) -> float:
        """Standard error of the mean in percent."""
        return self.sd / math.sqrt(len(self.accuracy))


Cells = dict[tuple[str, float], Cell]


@lru_cache(maxsize=4096)
def runs_of(panel: Panel, method: str, sparsity: float) -> tuple[Trial, ...]:
    """The runs of one method at one sparsity; remembered, since a key costs more than a look-up."""
    recipe = with_method(panel.base, method, sparsity)
    return tuple(Trial(TRIAL, recipe, seed) for seed in range(panel.runs))


def trials_of(panels: Sequence[Panel]) -> list[Trial]:
    """One a run; what panels have in common, and tables, is run once."""
    every = (trial for panel in panels for cell in panel.cells() for trial in runs_of(panel, *cell))
    return list({trial.key: trial for trial in every}.values())


def gather(panels: Sequence[Panel], results: Results) -> list[Cells]:
    """The cells of every panel, by method and sparsity, from results in the order of :func:`trials_of`."""
    known = {trial.key: result for trial, result in zip(trials_of(panels), results, strict=True)}
    return [
        {cell: _cell(panel, *cell, [known[trial.key] for trial in runs_of(panel, *cell)]) for cell in panel.cells()}
        for panel in panels
    ]


def _cell(panel: Panel, method: str, sparsity: float, runs: Results) -> Cell:
    def numbers(name: str, scale: float = 1.0) -> Array:
        return np.array([math.nan if one[name] is None else scale * one[name] for one in runs], dtype=np.float64)

    return Cell(
        method, sparsity, numbers("accuracy", 100), numbers("best", 100), 100 * float(runs[0]["chance"]),
        np.array([float(len(one["dead"])) for one in runs]), numbers("on_paths"), numbers("diverged"),
        None if panel.block is None else panel.block.entry(method, sparsity),
    )  # fmt: skip


def table_of(panels: Sequence[Panel], results: Results) -> list[dict[str, Any]]:
    """One row a network, method and sparsity; accuracies in percent, printed ones beside those measured."""
    rows = []
    for panel, cells in zip(panels, gather(panels, results), strict=True):
        network = panel.base.network
        for cell in cells.values():
            entry = cell.printed
            rows.append(
                {
                    "data": panel.base.data,
                    "network": network.name,
                    "width": network.width,
                    "activation": network.activation,
                    "method": METHODS[cell.method].label,
                    "sparsity": cell.sparsity,
                    "accuracy": cell.mean,
                    "accuracy_sd": cell.sd,
                    "accuracy_error": cell.error,
                    "accuracy_best_epoch": float(cell.best.mean()),
                    "chance": cell.chance,
                    "printed": math.nan if entry is None else entry.value,
                    "printed_sd": math.nan if entry is None or entry.sd is None else entry.sd,
                    "dead_layers": float(cell.dead.mean()),
                    "weights_on_paths": float(cell.on_paths.mean()),
                    "diverged": int(cell.diverged.sum()),
                    "epochs": with_method(panel.base, cell.method, cell.sparsity).epochs_in_all,
                    "runs": panel.runs,
                }
            )
    return rows


def trials(setting: Setting) -> list[Trial]:
    """The runs of a table."""
    return trials_of(setting.panels)


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """The rows of a table."""
    return table_of(setting.panels, results)


def data(setting: Setting) -> str:
    """The data set of the first panel; others are told when they are loaded."""
    return setting.panels[0].base.data


def about(setting: Setting) -> str:
    """The setting in one line."""
    bases = [panel.base for panel in setting.panels]
    networks = list(dict.fromkeys(f"{base.network.name} x{base.network.width:g}" for base in bases))
    first = bases[0]
    epochs = sorted({base.epochs for base in bases})
    sets = ", ".join(dict.fromkeys(base.data for base in bases))
    runs = sorted({panel.runs for panel in setting.panels})
    said = (
        f"{', '.join(networks)} (factor on the filters) on {sets}; "
        f"{' or '.join(map(str, epochs))} epochs of SGD at {first.learning_rate:g}, batches of {first.batch_size}; "
        f"scores with batch norm in {first.batch_norm} mode; {' or '.join(map(str, runs))} runs; "
        "bars: two standard errors"
    )
    if first.data == "digits":
        said += "; 8x8 digits and narrow networks stand in for the paper's"
    if any("obd" in panel.methods for panel in setting.panels):
        spent = max(with_method(panel.base, "obd", 0.5).epochs_in_all for panel in setting.panels)
        said += f"; OBD trains {spent} epochs in all"
    return said
