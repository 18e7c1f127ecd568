"""Hanin-Rolnick Figures 5 to 7: presets, trials, and what was measured for each architecture; they share their runs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.hanin_rolnick.runs import RunSpec, UntrainedSpec
from epoch0.papers.means import mean_and_error

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        data: name of the data set.
        depths: numbers of hidden layers.
        widths: of all hidden layers of a network; every depth is joined with every width.
        runs: networks of each architecture that are trained.
        at: epochs at which regions are measured.
        batch_size: of training.
        lines: lines of each run.
        linear_lines: on how many of them linear regions are counted.
        points: random points of each run.
        random: further networks of each architecture that are only measured before training.
        random_lines: lines, and 10 times as many points, of each of those.
        together: how many of the runs are trained as one program, with the same batches.
        learning_rate: of Adam.
    """

    data: str
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    runs: int
    at: tuple[float, ...]
    batch_size: int
    lines: int
    linear_lines: int
    points: int
    random: int
    random_lines: int = 50
    together: int = 1
    learning_rate: float = 1e-3

    def specs(self) -> list[RunSpec]:
        """One an architecture, depth by depth."""
        common = (
            self.at, self.batch_size, self.learning_rate, self.lines, self.linear_lines, self.points, self.together
        )  # fmt: skip
        return [RunSpec(self.data, depth, width, *common) for depth in self.depths for width in self.widths]

    def untrained(self) -> list[UntrainedSpec]:
        """The same architectures, for what is measured before training alone; none without ``random``."""
        shapes = [(depth, width) for depth in self.depths for width in self.widths]
        lines, points = self.random_lines, 10 * self.random_lines
        return [UntrainedSpec(self.data, *shape, self.random, lines, points) for shape in shapes if self.random]


_DEPTHS, _WIDTHS = (2, 3, 4), (16, 32, 64)
_EARLY = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)

LINES = {
    "quick": Setting(
        "digits", _DEPTHS, _WIDTHS, 20, (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0, 20.0, 40.0, 60.0), 32, 25, 1,
        250, random=120, random_lines=20, together=20,
    ),
    "paper": Setting(
        "mnist", _DEPTHS, _WIDTHS, 5, (*_EARLY, 12.0, 14.0, 16.0, 18.0, 20.0), 128, 100, 10, 1000, random=60
    ),
}  # fmt: skip
"""Figures 5 and 6. The paper prints depths and widths in a legend that is lost; 4 x 16 and 3 x 64 are in its text."""

HISTOGRAM = {name: replace(one, depths=(4,), widths=(16,), random=0) for name, one in LINES.items()}
"""Figure 7: one architecture of those."""


def trials(setting: Setting) -> list[Trial]:
    """Those of the runs, architecture by architecture; then one an architecture before training."""
    room, seeds = "epoch0.papers.hanin_rolnick.runs", range(setting.runs // setting.together)
    trained = [Trial(f"{room}:run", spec, seed) for spec in setting.specs() for seed in seeds]
    return trained + [Trial(f"{room}:untrained", spec, setting.runs) for spec in setting.untrained()]


@dataclass(frozen=True)
class Measured:
    """The runs of one architecture.

    Attributes:
        spec: what they are.
        epoch: when regions were measured, (epochs,).
        accuracy: on the test set, (runs, epochs).
        counts: activation regions on each line, (runs, epochs, lines).
        linear: linear regions on the first lines, (runs, epochs, linear_lines).
        distance: from each point to the nearest boundary, (runs, epochs, points).
        start_regions: mean number of regions a line, per neuron, of the networks before training, the further ones
            among them, (networks,).
        start_product: mean distance times the number of neurons, of the same.
    """

    spec: RunSpec
    epoch: Array
    accuracy: Array
    counts: Array
    linear: Array
    distance: Array
    start_regions: Array
    start_product: Array

    @property
    def name(self) -> str:
        """For legends and the evidence of claims."""
        return f"depth {self.spec.depth}, width {self.spec.width}"

    @property
    def regions(self) -> Array:
        """Mean number of regions a line, per neuron, (runs, epochs)."""
        return np.asarray(self.counts.mean(-1) / self.spec.neurons)

    @property
    def product(self) -> Array:
        """Mean distance times the number of neurons, (runs, epochs)."""
        return np.asarray(self.distance.mean(-1) * self.spec.neurons)


def gather(setting: Setting, results: Results) -> list[Measured]:
    """The measurements of each architecture, in the order of the trials."""
    found = []
    programs = setting.runs // setting.together
    for place, spec in enumerate(setting.specs()):
        mine = results[place * programs : (place + 1) * programs]
        parts = [
            np.concatenate([np.asarray(one[name], dtype=np.float64) for one in mine])
            for name in ("accuracy", "counts", "linear", "distance")
        ]
        epoch = np.asarray(mine[0]["epoch"], dtype=np.float64)
        measured = Measured(spec, epoch, *parts, *[np.zeros(0)] * 2)
        more = results[len(setting.specs()) * programs + place] if setting.random else {}
        start = [
            np.concatenate([own[:, 0], np.asarray(more.get(name, []), dtype=np.float64) * factor])
            for name, own, factor in (
                ("counts", measured.regions, 1 / spec.neurons), ("distance", measured.product, spec.neurons)
            )
        ]  # fmt: skip
        found.append(replace(measured, start_regions=start[0], start_product=start[1]))
    return found


def turn(curves: Array, *, lowest: bool) -> tuple[Array, Array, list[int]]:
    """How far each run goes to the turning point of its kind, and back from there to the end.

    >>> turn(np.array([[1.0, 0.5, 0.8], [1.0, 0.4, 0.7]]), lowest=True)
    (array([0.5, 0.6]), array([0.3, 0.3]), [1, 1])

    The turning point of a run is where the mean of the other runs has its extremum, so that what is measured there is
    independent of where it is: noise alone would give zero on average. It is neither the first nor the last epoch: a
    curve that only rises or only falls makes a change of the wrong sign.

    Args:
        curves: (runs, epochs), two runs and three epochs or more.
        lowest: whether the turning point is a minimum, else a maximum.

    Returns:
        Changes to the turning point and back, counted positive in the direction of a turn, each (runs,); and its place.
    """
    sign = -1.0 if lowest else 1.0
    mean = (curves.sum(0) - curves) / (len(curves) - 1)
    places = [1 + int(place) for place in np.argmax(sign * mean[:, 1:-1], axis=1)]
    at = curves[np.arange(len(curves)), places]
    return sign * (at - curves[:, 0]), sign * (at - curves[:, -1]), places


def means(values: list[Array]) -> tuple[Array, Array]:
    """Means over runs and their errors, one a setting."""
    mean, error = np.transpose([mean_and_error(one) for one in values])
    return mean, error


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row an architecture and epoch: regions on lines, distances and accuracy, with errors over runs."""
    rows = []
    for one in gather(setting, results):
        ratio = one.linear.mean(-1) / one.counts[..., : one.linear.shape[-1]].mean(-1)
        for place, epoch in enumerate(one.epoch.tolist()):
            row: dict[str, Any] = {
                "depth": one.spec.depth,
                "width": one.spec.width,
                "neurons": one.spec.neurons,
                "epoch": epoch,
                "runs": setting.runs,
            }
            measured = {
                "accuracy": one.accuracy[:, place],
                "regions": one.counts[:, place].mean(-1),
                "regions_per_neuron": one.regions[:, place],
                "linear_share": ratio[:, place],
                "distance": one.distance[:, place].mean(-1),
                "neurons_times_distance": one.product[:, place],
            }
            for name, values in measured.items():
                row[name], row[f"{name}_error"] = mean_and_error(values)
            row["most_regions"] = int(one.counts[:, place].max())
            rows.append(row)
    return rows


def about(setting: Setting) -> str:
    """The setting in one line."""
    size = {"digits": "digits, 8 x 8", "mnist": "MNIST"}.get(setting.data, setting.data)
    more = f" and {setting.random} untrained networks" if setting.random else ""
    same = f" ({setting.together} at a time on the same batches)" if setting.together > 1 else ""
    return (
        f"{size}; {setting.runs} runs{same}{more} of each architecture; Adam {setting.learning_rate:g}, batches of "
        f"{setting.batch_size}; {setting.lines} lines, {setting.points} points; bands, bars: two standard errors"
    )


def data(setting: Setting) -> str:
    """Name of the data set."""
    return setting.data
