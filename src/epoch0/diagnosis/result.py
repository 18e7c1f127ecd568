"""What a checkup found: one row a layer, the judgement over the depth, as table, JSON, page or text."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0.diagnosis import report
from epoch0.diagnosis.comparison import Comparison
from epoch0.diagnosis.expressivity import Regions
from epoch0.diagnosis.noise_sensitivity import NoiseSensitivity
from epoch0.diagnosis.pruning_forecast import PruningForecast
from epoch0.diagnosis.step import Optimizer
from epoch0.diagnosis.terminal import terminal
from epoch0.diagnosis.trial import Trial
from epoch0.diagnosis.verdict import NAMES, CumulativeGain, Phase, PhaseEstimate, Recipe, outcome, sentence
from epoch0.diagnosis.wording import number
from epoch0.errors import InputError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class PartCheckup:
    """One part of a layer: a weighted operation, a norm, an attention or a pool within it.

    Attributes:
        name: module path, or the call in its forward.
        kind: what it is, in words.
        shape_out: shape of one example after it.
        norm_out: root mean square of a unit after it.
        gain: mean squared stretch of a random tangent by this operation alone; None where it has several inputs.
        tangent: norm a unit, relative to the input's, of a tangent carried from the input to there; NaN where it cannot
            be carried.
        gradient: norm of the gradient there.
        update: size of one step of Adam at the suggested rate relative to its weights; None without weights.
    """

    name: str
    kind: str
    shape_out: tuple[int, ...]
    norm_out: float
    gain: float | None
    tangent: float
    gradient: float
    update: float | None


@dataclass(frozen=True)
class LayerCheckup:
    """One layer: what is carried to its end, what it does to fresh directions, and what its weights predict.

    Attributes:
        name: module path.
        kind: what it is, in words.
        shape_in: shape of one example before it.
        shape_out: shape of one example after it.
        norm_in: root mean square of a unit before it.
        norm_out: root mean square of a unit after it.
        forward_gain: local chi forward, mean squared stretch of fresh random tangents per unit.
        forward_error: its standard error.
        backward_gain: local chi backward, mean squared stretch of fresh gradients.
        backward_error: its standard error.
        predicted: chi predicted from the weights and the size of the pre-activations, None where there is no
            prediction.
        predicted_error: standard deviation of chi around it that the finite width leaves, NaN where there is none.
        agreement: "as predicted", "higher than predicted (×1.12)", "lower than predicted (×0.85)", or why there is no
            prediction, such as "no law: max pool".
        averaged: number of places that average pooling takes the mean over, 1 without; judged apart from the gain.
        tangent: norm a unit, relative to the input's, of a tangent carried from the input to the end of the layer.
        gradient: norm of the gradient carried back to the end of the layer.
        weight_gradient: norm of the gradient of the layer's weights.
        update: size of one step of Adam at the suggested rate relative to the layer's weights, the largest of them;
            None without weights.
        dissimilarity: mean 1 - cosine between two examples after it, None if it has no meaning there.
        dead_units: share of units that are zero for every example.
        saturated: share of saturated values, None without a bounded nonlinearity.
        status: 'keeps', 'grows', 'shrinks', 'unclear', 'dead' or 'overflows' as :func:`epoch0.gain` defines them for
            the depth, or 'collapsed' or 'saturated'.
        parts: what it is made of, in order, where that is more than one operation.
    """

    name: str
    kind: str
    shape_in: tuple[int, ...]
    shape_out: tuple[int, ...]
    norm_in: float
    norm_out: float
    forward_gain: float
    forward_error: float
    backward_gain: float
    backward_error: float
    predicted: float | None
    predicted_error: float
    agreement: str
    averaged: float
    tangent: float
    gradient: float
    weight_gradient: float
    update: float | None
    dissimilarity: float | None
    dead_units: float
    saturated: float | None
    status: str
    parts: tuple[PartCheckup, ...] = ()


@dataclass(frozen=True)
class Remedy:
    """A change that was tried on a copy.

    Attributes:
        change: what was changed, as the call that does it.
        before: chance of training before, the better of the two optimizers'.
        after: the same with the change.
        verdict: of the changed copy.
        helps: whether the changed copy is expected to train, or the chance rose by a tenth.
    """

    change: str
    before: float
    after: float
    verdict: str
    helps: bool


class VerdictError(InputError):
    """A network is not expected to train; the message is the report."""


@dataclass(frozen=True)
class Checkup:
    """The state of a network before its first epoch, judged.

    >>> found = checkup(model, x, y)                            # x of shape (100, 64), y of shape (100,)
    >>> found.verdict
    'Trains with either, Adam at a rate of about 0.003 or SGD at 0.1.'
    >>> round(found.recipes["adam"].probability, 1), found.trains
    (1.0, True)

    Attributes:
        model: name of the model.
        subject: what was measured on what, in words.
        recipes: ``"adam"`` and ``"sgd"``: whether it trains with it, how sure that is, with which rate, and why.
        blame: the layer that does most harm, with the reason; None where it trains or no single layer does.
        phase_reading: ordered, critical or chaotic, with the mean local gain a layer and its interval.
        backward: what the depth does to gradients carried from the last layer's input to the first one's output.
        forward: what it does to tangents carried the other way.
        input_gradient: norm of the gradient at the input.
        layers: one row a layer.
        advice: what to do, one sentence each; no change that was not measured to help.
        remedies: the changes that were tried.
        notes: how it was measured, one sentence each.
        trial: the short trainings, None without.
        trial_reason: why there was no trial.
        regions: linear regions on segments between examples and on a plane through three, None if there are none.
        regions_reason: why there are none: "not asked for", "smooth: no linear regions (tanh)"; else empty.
        pruning_forecast: what pruning to the sparsity asked for would leave, None if none was asked for.
        noise_sensitivity: what noise in the weights of one layer at a time does to the outputs, None if left out.
        seconds: CPU seconds of the checkup, and of these of the trial.
    """

    model: str
    subject: str
    recipes: Mapping[Optimizer, Recipe]
    blame: tuple[str, str] | None
    phase_reading: PhaseEstimate
    backward: CumulativeGain
    forward: CumulativeGain
    input_gradient: float
    layers: tuple[LayerCheckup, ...]
    advice: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    notes: tuple[str, ...]
    trial: Trial | None = None
    trial_reason: str = ""
    regions: Regions | None = None
    regions_reason: str = ""
    pruning_forecast: PruningForecast | None = None
    noise_sensitivity: NoiseSensitivity | None = None
    seconds: tuple[float, float] = (0.0, 0.0)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence that says what to do."""
        return sentence(self.recipes)

    @property
    def outcome(self) -> str:
        """The verdict in a word.

        'trains', 'needs adam', 'needs sgd', or why it does not train: 'overflow', 'no gradient', 'size', 'collapsed',
        'vanishing', 'exploding', 'rough', 'saturated', 'blind' or 'slow'.
        """
        return outcome(self.recipes)

    @property
    def trains(self) -> bool:
        """Whether the network is expected to train as it is, with one of the optimizers."""
        return any(recipe.trains for recipe in self.recipes.values())

    def raise_for_verdict(self) -> None:
        """Do nothing if the network is expected to train; for tests and CI.

        Raises:
            VerdictError: if it is not; the message is the report.
        """
        if not self.trains:
            raise VerdictError(str(self))

    @property
    def phase(self) -> Phase:
        """'ordered', 'critical', 'chaotic' or 'unknown'; a statement of its own, apart from the verdict."""
        return self.phase_reading.phase

    @property
    def chi(self) -> float:
        """Geometric mean of the local gains of the layers with a nonlinearity."""
        return self.phase_reading.chi

    @property
    def chi_interval(self) -> tuple[float, float]:
        """95 % interval of the mean gain, from the spread over the layers and the noise of measuring."""
        return self.phase_reading.low, self.phase_reading.high

    def __str__(self) -> str:
        lines = [self.verdict]
        lines += [f"  {NAMES[name]}: {one.probability:.0%}, {one.reason}" for name, one in self.recipes.items()]
        lines += [] if self.blame is None else [f"to blame: {self.blame[0]}: {self.blame[1]}"]
        lines += [f"phase {self.phase_reading}"]
        lines += [] if self.noise_sensitivity is None else [self.noise_sensitivity.sentence]
        lines += [
            f"{index:>3} {layer.name:<24} chi forward {number(layer.forward_gain)} backward "
            f"{number(layer.backward_gain)} carried tangent {number(layer.tangent)} gradient {number(layer.gradient)} "
            f"{layer.status}"
            for index, layer in enumerate(self.layers, start=1)
        ]
        return "\n".join(lines)

    def print(self, width: int | None = None, *, depth: int | None = None) -> None:
        """Show the checkup in the terminal.

        Args:
            width: columns to use instead of the terminal's.
            depth: 0 shows blocks only, 1 their parts too; by default parts where the whole has at most 40 rows.
        """
        from rich.console import Console

        console = Console(width=width, highlight=False)
        console.print(terminal(self.to_dict(), console.width, depth))

    def _repr_html_(self) -> str:
        """The checkup in a notebook."""
        return report.notebook(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: numbers are finite or null; what it cost is no part of it."""
        return {
            "model": self.model,
            "subject": self.subject,
            "verdict": self.verdict,
            "outcome": self.outcome,
            "trains": self.trains,
            "recipes": {name: _plain(recipe) for name, recipe in self.recipes.items()},
            "blame": None if self.blame is None else {"layer": self.blame[0], "reason": self.blame[1]},
            "phase": self.phase,
            "chi": _finite(self.chi),
            "chi_low": _finite(self.phase_reading.low),
            "chi_high": _finite(self.phase_reading.high),
            "backward": {**_plain(self.backward), "factor": _finite(self.backward.factor)},
            "forward": {**_plain(self.forward), "factor": _finite(self.forward.factor)},
            "input_gradient": _finite(self.input_gradient),
            "layers": [_plain(layer) for layer in self.layers],
            "advice": list(self.advice),
            "remedies": [_plain(remedy) for remedy in self.remedies],
            "notes": list(self.notes),
            "trial": None if self.trial is None else {k: v for k, v in _plain(self.trial).items() if k != "seconds"},
            "trial_reason": self.trial_reason,
            "regions": None if self.regions is None else self.regions.to_dict(),
            "regions_reason": self.regions_reason,
            "pruning_forecast": None if self.pruning_forecast is None else self.pruning_forecast.to_dict(),
            "noise_sensitivity": None if self.noise_sensitivity is None else self.noise_sensitivity.to_dict(),
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, with the fields of :class:`LayerCheckup` but its parts as columns."""
        import pandas

        names = [field.name for field in fields(LayerCheckup) if field.name != "parts"]
        return pandas.DataFrame([[getattr(layer, name) for name in names] for layer in self.layers], columns=names)

    def compare(self, after: "Checkup", changes: Sequence[str] = ()) -> Comparison:
        """This checkup and that of the same model after something was changed, side by side.

        >>> mended = epoch0.networks.mlp([64, 32, 32, 10], weights=epoch0.Gaussian(2.0), seed=0)
        >>> print(checkup(net, x, y).compare(checkup(mended, x, y), ["All weights times 1.41."]))
        before: Trains with either, Adam at a rate of about 0.003 or SGD at 0.1.
        after:  Trains with either, Adam at a rate of about 0.003 or SGD at 0.1.
        trains before, trains after: ...

        Args:
            after: the checkup of the changed model.
            changes: what was changed, one sentence each.

        Raises:
            InputError: if the two have different layers.
        """
        planes = [None if one.regions is None else one.regions.plane for one in (self, after)]
        return Comparison(self.to_dict(), after.to_dict(), tuple(changes), (planes[0], planes[1]))

    def to_html(
        self, path: str | os.PathLike[str], after: "Checkup | None" = None, changes: Sequence[str] = ()
    ) -> Path:
        """Write the checkup as one self-contained HTML page.

        Args:
            path: the file.
            after: a checkup of the same model after something was changed; the page then shows both.
            changes: what was changed, one sentence each.

        Raises:
            InputError: if the file cannot be written, or the two checkups have different layers.
        """
        if after is not None:
            return self.compare(after, changes).to_html(path)
        plane = None if self.regions is None else self.regions.plane
        shown = None if plane is None else report.Plane(plane.png(), plane.count, plane.share)
        return report.write(report.page(self.to_dict(), planes=[shown]), path)


def _finite(value: Any) -> Any:
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, what is not finite as null."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else _finite(value)
