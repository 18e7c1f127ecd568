"""What a checkup found: one row a layer, the judgement over the depth, as table, JSON, page or text."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0.diagnosis import report
from epoch0.diagnosis.comparison import Comparison
from epoch0.diagnosis.expressivity import Regions
from epoch0.diagnosis.fragility import Fragility
from epoch0.diagnosis.outlook import Outlook
from epoch0.diagnosis.terminal import terminal
from epoch0.diagnosis.verdict import COMFORTABLE, TRAINABLE, Outcome, Passage, Phase, PhaseReading, Verdict
from epoch0.diagnosis.wording import number

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class LayerCheckup:
    """One layer: what was measured in it, what its weights predict, and what would bring its gain to 1.

    Attributes:
        name: the module's name.
        kind: what it is, in words.
        shape_in: shape of one example before it.
        shape_out: shape of one example after it.
        norm_in: root mean square of a unit before it.
        norm_out: root mean square of a unit after it.
        forward_gain: chi forward, mean squared stretch of random tangents per unit.
        forward_error: its standard error.
        backward_gain: chi backward, mean squared stretch of gradients.
        backward_error: its standard error.
        predicted: chi predicted from the weights and the size of the pre-activations, None where there is no
            prediction.
        predicted_error: standard deviation of chi around it that the finite width leaves, NaN where there is none.
        agreement: "as predicted", "higher than predicted (×1.12)", "lower than predicted (×0.85)", or why there is no
            prediction, such as "no law: max pool".
        averaged: number of places that average pooling takes the mean over, 1 without; judged apart from the gain.
        tangent: norm a unit, relative to the input's, of a tangent carried from the input to the end of the layer.
        gradient: norm of the gradient at the end of the layer.
        weight_gradient: norm of the gradient of the layer's weights.
        unlikeness: mean 1 - cosine between two examples after it, None if it has no meaning there.
        dead_units: share of units that are zero for every example.
        saturated: share of saturated values, None without a bounded nonlinearity.
        weights: names of the parameters that the factor multiplies.
        factor: number on the weights that brings the forward gain to 1, None where none does.
        factor_note: why there is none, or what else to know about it; often empty.
        status: 'keeps', 'grows', 'shrinks', 'unclear', 'dead' or 'overflows' as :func:`epoch0.gain` defines them for
            the depth,
            or 'collapsed' or 'saturated'.
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
    unlikeness: float | None
    dead_units: float
    saturated: float | None
    weights: tuple[str, ...]
    factor: float | None
    factor_note: str
    status: str


@dataclass(frozen=True)
class Checkup:
    """The state of a network before its first epoch, judged.

    >>> found = checkup(net, x)                                 # x of shape (examples, ...)
    >>> found.verdict
    'Expected to train: over 10 layers gradients change by a factor of 1.1 and signals by 0.92.'
    >>> found.phase, found.trains
    ('critical', True)

    Attributes:
        model: name of the model.
        subject: what was measured on what, in words.
        reading: the judgement, an outcome word with the sentence.
        phase_reading: ordered, critical or chaotic, with the mean gain a layer and its interval.
        backward: what the depth does to gradients between the last layer and the first.
        forward: what it does to signals between input and output.
        input_gradient: norm of the gradient at the input.
        layers: one row a layer.
        advice: what to change, one sentence each.
        notes: how it was measured, one sentence each.
        regions: linear regions on segments between examples and on a plane through three, None if there are none.
        regions_reason: why there are none: "smooth: no linear regions (tanh)", "too large: ..."; else empty.
        outlook: what pruning to the sparsity asked for would leave, None if none was asked for.
        fragility: what noise in the weights of one layer at a time does to the outputs, None if it was left out.
    """

    model: str
    subject: str
    reading: Verdict
    phase_reading: PhaseReading
    backward: Passage
    forward: Passage
    input_gradient: float
    layers: tuple[LayerCheckup, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    regions: Regions | None = None
    regions_reason: str = ""
    outlook: Outlook | None = None
    fragility: Fragility | None = None

    @property
    def verdict(self) -> str:
        """The verdict over the whole depth, one plain sentence."""
        return self.reading.sentence

    @property
    def phase(self) -> Phase:
        """'ordered', 'critical', 'chaotic' or 'unknown'; a statement of its own, apart from the verdict."""
        return self.phase_reading.phase

    @property
    def chi(self) -> float:
        """Geometric mean of the gains of the layers with a nonlinearity."""
        return self.phase_reading.chi

    @property
    def chi_interval(self) -> tuple[float, float]:
        """95 % interval of the mean gain, from the spread over the layers and the noise of measuring."""
        return self.phase_reading.low, self.phase_reading.high

    @property
    def outcome(self) -> Outcome:
        """The verdict in a word: 'trains', 'vanishing', 'exploding', 'dead' or 'collapsed'."""
        return self.reading.outcome

    @property
    def trains(self) -> bool:
        """Whether the network is expected to train as it is."""
        return self.reading.trains

    @property
    def trainable_depth(self) -> int | None:
        """How many layers of this mean gain keep \\|S\\| within what trains; None if any number does."""
        rate = abs(self.backward.log_gain) / max(self.backward.layers, 1)
        if rate * 1000 <= TRAINABLE:
            return None
        return math.floor(TRAINABLE / rate) if math.isfinite(rate) else 0

    def __str__(self) -> str:
        lines = [self.verdict, f"phase {self.phase_reading}"]
        lines += [] if self.fragility is None else [self.fragility.sentence]
        lines += [
            f"{index:>3} {layer.name:<24} chi forward {number(layer.forward_gain)} backward "
            f"{number(layer.backward_gain)} factor {number(layer.factor)} {layer.status}"
            for index, layer in enumerate(self.layers, start=1)
        ]
        return "\n".join(lines)

    def print(self, width: int | None = None) -> None:
        """Show the checkup in the terminal.

        Args:
            width: columns to use instead of the terminal's.
        """
        from rich.console import Console

        console = Console(width=width, highlight=False)
        console.print(terminal(self.to_dict(), console.width))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: numbers are finite or null."""
        return {
            "model": self.model,
            "subject": self.subject,
            "verdict": self.verdict,
            "outcome": self.outcome,
            "trains": self.trains,
            "phase": self.phase,
            "chi": _finite(self.chi),
            "chi_low": _finite(self.phase_reading.low),
            "chi_high": _finite(self.phase_reading.high),
            "backward": {**_plain(self.backward), "factor": _finite(self.backward.factor)},
            "forward": {**_plain(self.forward), "factor": _finite(self.forward.factor)},
            "trainable_depth": self.trainable_depth,
            "limits": {"trainable": TRAINABLE, "comfortable": COMFORTABLE},
            "input_gradient": _finite(self.input_gradient),
            "layers": [_plain(layer) for layer in self.layers],
            "advice": list(self.advice),
            "notes": list(self.notes),
            "regions": None if self.regions is None else self.regions.to_dict(),
            "regions_reason": self.regions_reason,
            "outlook": None if self.outlook is None else self.outlook.to_dict(),
            "fragility": None if self.fragility is None else self.fragility.to_dict(),
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, with the fields of :class:`LayerCheckup` as columns."""
        import pandas

        names = [field.name for field in fields(LayerCheckup)]
        return pandas.DataFrame([[getattr(layer, name) for name in names] for layer in self.layers], columns=names)

    def compare(self, after: "Checkup", changes: Sequence[str] = ()) -> Comparison:
        """This checkup and that of the same model after something was changed, side by side.

        >>> print(checkup(net, x).compare(checkup(mended, x), ["All weights times 2.45."]))

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


def _plain(value: Any) -> dict[str, Any]:
    plain = {field.name: getattr(value, field.name) for field in fields(value)}
    return {key: list(item) if isinstance(item, tuple) else _finite(item) for key, item in plain.items()}
