"""What a checkup found: one row a layer, the assessment over the depth, as table, JSON, page or text."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from epoch0.arguments import Size, Whole
from epoch0.diagnosis import report
from epoch0.diagnosis.faults import UNTRAINED, Fault, Mending
from epoch0.diagnosis.terminal import WIDTH, plain, side_by_side, terminal
from epoch0.diagnosis.trial import TrialResult
from epoch0.diagnosis.verdict import CumulativeGain, Phase, Recipe, outcome, sentence
from epoch0.errors import InputError
from epoch0.files import write_atomic
from epoch0.results import Result, finite


class _Tables(Result):
    """What is shown as tables as wide as the terminal."""

    def _tables(self, width: int) -> RenderableType:
        raise NotImplementedError

    def __str__(self) -> str:
        return plain(self._tables(WIDTH))

    def print(self, width: Size | None = None) -> None:
        """Show it in the terminal; ``width``: columns to use instead of the terminal's."""
        console = Console(width=width, highlight=False)
        console.print(self._tables(console.width))


@dataclass(frozen=True)
class Comparison(_Tables):
    """What a change did to a network, as :meth:`Checkup.compare` gives it.

    >>> laws = epoch0.Gaussian(0.5), epoch0.Gaussian(2**0.5)
    >>> nets = (epoch0.networks.mlp([*[64] * 13, 10], weights=law, seed=0) for law in laws)
    >>> before, after = (checkup(net, x, y, trial=False) for net in nets)              # x of shape (100, 64)
    >>> found = before.compare(after)
    >>> found.before["outcome"], found.after["outcome"]
    ('vanishing', 'trains')
    """

    before: Mapping[str, Any]  #: ``Checkup.to_dict()`` of the model as it was
    after: Mapping[str, Any]  #: the same of the changed one

    def __post_init__(self) -> None:
        one, other = ([layer["name"] for layer in each["layers"]] for each in (self.before, self.after))
        if one != other:
            only = [name for name in (*one, *other) if (name in one) != (name in other)]
            text = f"the two checkups are not of one model: {len(one)} layers before and {len(other)} after"
            raise InputError(f"{text}, {f'{only[0]!r} is in one of them only' if only else 'in another order'}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: both checkups."""
        return {"before": self.before, "after": self.after}

    def rows(self) -> list[dict[str, Any]]:
        """Two rows a layer, before and after, with the fields of :class:`LayerCheckup` but its parts."""
        return [{"when": when, **_row(layer)} for when, item in self.to_dict().items() for layer in item["layers"]]

    def _tables(self, width: int) -> RenderableType:
        return side_by_side(self.before, self.after, width)


@dataclass(frozen=True)
class PartCheckup:
    """One part of a layer: a weighted operation, a norm, an attention or a pool within it."""

    name: str  #: module path, or the call in its forward
    kind: str  #: what it is, in words
    shape_out: tuple[int, ...]  #: shape of one example after it
    norm_out: float  #: root mean square of a unit after it
    gain: float | None  #: mean squared growth of a random tangent by it alone; None where it has several inputs
    tangent: float  #: norm a unit of a tangent carried from the input, relative to there; NaN where it cannot be
    gradient: float  #: norm of the gradient there
    update: float | None  #: size of one step of Adam at the suggested rate relative to its weights; None without any


@dataclass(frozen=True)
class LayerCheckup:
    """One layer: what is carried to its end, what it does to fresh directions, and what its weights predict."""

    name: str  #: module path
    kind: str  #: what it is, in words
    shape_out: tuple[int, ...]  #: shape of one example after it
    norm_in: float  #: root mean square of a unit before it
    norm_out: float  #: root mean square of a unit after it
    forward_gain: float  #: local chi forward, mean squared growth of fresh random tangents per unit
    forward_error: float  #: its standard error
    backward_gain: float  #: local chi backward, mean squared growth of fresh gradients
    backward_error: float  #: its standard error
    predicted: float | None  #: chi predicted from the weights and the size of the pre-activations; None where it is not
    predicted_error: float  #: standard deviation of chi around it that the finite width leaves, NaN where there is none
    #: "as predicted", "higher than predicted (×1.12)", "lower than predicted (×0.85)", or why there is no prediction
    agreement: str
    averaged: float  #: places that average pooling takes the mean over, 1 without; assessed apart from the gain
    tangent: float  #: norm a unit, relative to the input's, of a tangent carried from the input to the end of the layer
    gradient: float  #: norm of the gradient carried back to the end of the layer
    update: float | None  #: size of Adam's step at the suggested rate over that of the weights; None without weights
    dissimilarity: float | None  #: mean 1 - cosine between two examples after it, None if it has no meaning there
    dead_units: float  #: share of units that are zero for every example
    saturated: float | None  #: share of saturated values, None without a bounded nonlinearity
    #: 'keeps', 'grows', 'shrinks', 'unclear', 'dead' or 'overflows' as :func:`epoch0.gain` defines them for the depth,
    #: or 'collapsed' or 'saturated'
    status: str
    parts: tuple[PartCheckup, ...] = ()  #: what it is made of, in order, where that is more than one operation


@dataclass(frozen=True)
class Remedy:
    """A change that was tried on a copy."""

    change: str  #: what was changed, as the call that does it
    before: float  #: chance of training before, the better of the two optimizers'
    after: float  #: the same with the change
    verdict: str  #: of the changed copy
    helps: bool  #: whether the changed copy is expected to train, and the chance rose by a tenth


@dataclass(frozen=True)
class LayerOutlook:
    """What pruning would leave of one weight."""

    name: str  #: of the weight
    weights: int  #: how many it has
    density: float  #: fraction kept with the scores of this batch
    predicted: float  #: fraction that a network with score moments like these is expected to keep
    vanishes: float  #: probability that such a network keeps nothing of it
    critical: float  #: sparsity from which on nothing is left of it, with the scores of this batch
    status: str  #: ``"dies"`` (with the scores of this batch), ``"at risk"`` (a chance above 5 %) or ``"survives"``


@dataclass(frozen=True)
class PruningForecast:
    """What SNIP, with one threshold for all layers, would leave of a model.

    >>> found = checkup(net, images, labels, sparsity=0.95, trial=False).pruning_forecast  # (100, 64), (100,)
    >>> round(found.critical_sparsity, 3), found.first
    (0.996, '0.weight')
    """

    sparsity: float  #: fraction of all weights removed
    layers: tuple[LayerOutlook, ...]  #: one row a weight, in the model's order
    critical_sparsity: float  #: the smallest sparsity at which some layer is emptied, with the scores of this batch
    first: str  #: the layer that is emptied there
    expected: float  #: that sparsity as expected of networks with such score moments
    expected_sd: float  #: its standard deviation
    sentence: str  #: the forecast in words


class VerdictError(InputError):
    """A network is not expected to train; the message is the report."""

    __str__ = ValueError.__str__  # with its lines, which other errors do not have


@dataclass(frozen=True)
class Checkup(_Tables):
    """The assessment of a network before its first epoch.

    >>> found = checkup(model, x, y)                            # x of shape (100, 64), y of shape (100,)
    >>> found.verdict
    'Trains with either, Adam at a rate of about 0.003 or SGD at 0.1.'
    >>> round(found.recipes["adam"].probability, 1), found.trains
    (1.0, True)
    """

    model: str  #: name of the model
    subject: str  #: what was measured on what, in words
    #: whether it trains with ``"adam"`` and with ``"sgd"``, and as ``"yours"`` with the optimizer that was given; how
    #: sure that is, with which rate, and why
    recipes: Mapping[str, Recipe]
    blame: tuple[str, str] | None = None  #: the layer that does most harm, and why; None where it trains or none does
    #: 'ordered', 'critical', 'chaotic' or 'unknown'; a statement of its own, apart from the verdict
    phase: Phase = "unknown"
    chi: float = math.nan  #: geometric mean of the local gains of the layers with a nonlinearity
    #: 95 % interval of the mean gain, from the spread over the layers and the noise of measuring
    chi_interval: tuple[float, float] = (math.nan, math.nan)
    #: what the depth does to gradients carried from the last layer's input to the first one's output
    backward: CumulativeGain = field(default_factory=CumulativeGain)
    forward: CumulativeGain = field(default_factory=CumulativeGain)  #: what it does to tangents, going the other way
    input_gradient: float = math.nan  #: norm of the gradient at the input
    layers: tuple[LayerCheckup, ...] = ()  #: one row a layer
    advice: tuple[str, ...] = ()  #: what to do, one sentence each; no change that was not measured to help
    remedies: tuple[Remedy, ...] = ()  #: the changes that were tried
    notes: tuple[str, ...] = ()  #: how it was measured, one sentence each
    trial: TrialResult | None = None  #: the short trainings, None without
    trial_reason: str = ""  #: why there was no trial
    pruning_forecast: PruningForecast | None = None  #: what pruning to the sparsity would leave; None if not asked for
    faults: tuple[Fault, ...] = ()  #: what keeps the program from learning, most certain first; empty for a sound one
    not_examined: tuple[str, ...] = ()  #: what was not looked at, and what to pass so that it would be
    program: Mending | None = None  #: the trial of the program that was given, and the changes tried on copies

    @property
    def verdict(self) -> str:
        """The verdict in one sentence that says what to do; one more where the program that was given did not run."""
        why_not = next((line for line in self.not_examined if line.startswith("Whether it learns: ")), "")
        if why_not and not self.recipes:
            return f"Not judged: {why_not.partition(': ')[2]}"
        ran = "yours" in self.recipes or self.outcome == "fault"
        ended = "followed" if "loop body" in why_not else ""
        ended = f"run{why_not.removeprefix(UNTRAINED).rstrip('.')}" if why_not.startswith(UNTRAINED) else ended
        unrun = not ran and bool(ended)
        text = sentence(self.recipes) + f" This is of the network: the program itself could not be {ended}." * unrun
        return text if "yours" in self.recipes or not self.faults else f"{text} Look at its {self.faults[0]}"

    @property
    def outcome(self) -> str:
        """The verdict in a word. 'trains', 'needs adam', 'needs sgd', or why it does not train: 'overflow', 'no
        gradient', 'size', 'collapsed', 'vanishing', 'exploding', 'rough', 'saturated', 'blind' or 'slow'; 'fault' for a
        program that does not learn.
        """
        return outcome(self.recipes)

    @property
    def trains(self) -> bool:
        """Whether the network is expected to train as it is: with the optimizer given, else with one of the two."""
        given = self.recipes.get("yours")
        return any(recipe.trains for recipe in self.recipes.values()) if given is None else given.trains

    def __bool__(self) -> bool:
        """The same, so that ``assert checkup(...)`` is no test that always passes."""
        return self.trains

    def raise_for_verdict(self) -> None:
        """Do nothing if the network is expected to train; for tests and CI.

        ``assert checkup(...).trains`` does as well; pytest then prints the verdict in one line rather than the report.

        Raises:
            VerdictError: if it is not; the message is the report.
        """
        if not self.trains:
            raise VerdictError(str(self))

    def _tables(self, width: int) -> RenderableType:
        return terminal(self.to_dict(), width)

    def __repr__(self) -> str:
        """One line: what pytest prints of an ``assert checkup(...).trains`` that fails."""
        return f"<Checkup of {self.model}: {self.verdict}>"

    def print(self, width: Size | None = None, *, depth: Whole | None = None) -> None:
        """Show the checkup in the terminal; ``width``: columns to use instead of the terminal's. A ``depth`` of 0 shows
        blocks only, 1 their parts too; by default parts where the whole has at most 40 rows.
        """
        console = Console(width=width, highlight=False)
        console.print(terminal(self.to_dict(), console.width, depth))

    def _repr_html_(self) -> str:
        return report.notebook(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: numbers are finite or null; the seconds of the trial are no part of it."""
        properties = {name: getattr(self, name) for name in ("verdict", "outcome", "trains")}
        plain: dict[str, Any] = finite(asdict(self) | properties)
        plain["program"] = self.program and finite(self.program.to_dict(self.faults[0].kind if self.faults else ""))
        plain["chi_low"], plain["chi_high"] = plain.pop("chi_interval")
        plain["blame"] = None if self.blame is None else {"layer": self.blame[0], "reason": self.blame[1]}
        for way in ("forward", "backward"):
            plain[way]["factor"] = finite(getattr(self, way).factor)
        if self.trial is not None:
            del plain["trial"]["seconds"]
        return plain

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer, with the fields of :class:`LayerCheckup` but its parts."""
        return [_row(vars(layer)) for layer in self.layers]

    def compare(self, after: "Checkup") -> Comparison:
        """This checkup and that of the same model after something was changed, side by side.

        >>> mended = epoch0.networks.mlp([64, 32, 32, 10], weights=epoch0.Gaussian(2.0), seed=0)
        >>> before, after = (checkup(one, x, y, trial=False) for one in (net, mended))
        >>> print(before.compare(after))
        Sequential  shape (100, 64)
        before  ✓ trains  Trains with either, Adam at a rate of about 0.003 or SGD at 0.01.
                Phase ...

        Raises:
            InputError: if the two have different layers.
        """
        return Comparison(self.to_dict(), after.to_dict())

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the checkup as one self-contained HTML page; an InputError if the file cannot be written."""
        return write_atomic(path, report.page(self.to_dict()).encode(), "page")


def _row(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in layer.items() if name != "parts"}
