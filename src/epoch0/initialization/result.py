"""What an initialization did: one row for each weighted operation, what was left alone and why (THEORY section 3)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from epoch0.initialization.sites import Plan, Step
from epoch0.results import Result, aligned, counted, first_names
from epoch0.tracing.tape import Tape, how_it_ran


@dataclass(frozen=True)
class LayerInit:
    """What one weighted operation was set to."""

    name: str  #: its parameter, by qualified name
    module: str  #: the module it runs in
    layer: str  #: the layer of ``epoch0.gain`` that it is in
    kind: str  #: ``"linear"`` or ``"convolution"``
    activation: str  #: what is applied to it next; ``"none"`` if nothing is
    #: weights into one unit that meet an entry of the input, on average; less than their number at zero-padded borders
    fan_in: float
    density: float  #: fraction of the weights that is kept
    weight_std_before: float  #: root mean square of a kept weight times sqrt(fan_in), as it came
    weight_std: float  #: the same now
    bias_std: float  #: of its biases; NaN if it has none
    q: float  #: mean variance of its pre-activations; NaN where a norm decides it
    target: float  #: gain asked for from its input to behind its activation
    #: mean-field gain from there to there with the weights it has now; None where a norm decides it
    predicted: float | None
    measured: float | None  #: gain of its layer, measured in fresh directions (``method="measured"``); None otherwise
    status: str  #: in words


@dataclass(frozen=True)
class Initialization(Result):
    """What :func:`epoch0.initialization.initialize` changed, and what it left alone."""

    layers: tuple[LayerInit, ...]  #: one row for each weighted operation that was set, in order of execution
    #: gain that each layer of ``epoch0.gain`` should have now; None where theory does not say
    layer_targets: Mapping[str, float | None]
    untouched: Mapping[str, str]  #: parameters of weighted operations that were left alone, each with the reason
    norms: Mapping[str, float]  #: parameters of norms at the ends of branches, each with what it was multiplied by
    target: float  #: gain asked for
    method: str  #: ``"theory"`` or ``"measured"``
    blocks: int  #: number of residual blocks
    rounds: int  #: passes over the model
    seed: int  #: of the draw
    notes: tuple[str, ...]  #: remarks for the reader

    @property
    def summary(self) -> str:
        """What was done, in one line."""
        names = {layer.name: layer.status.startswith("kept") for layer in self.layers}
        kept, way = sum(names.values()), "by theory" if self.method == "theory" else "by measuring"
        stay = f", {kept} kept as they are" if kept else ""
        weights = counted(len(names) - kept, "weight")
        return f"{weights} set for a gain of {self.target:.4g}, {way}, seed {self.seed}{stay}"

    def __str__(self) -> str:
        lines, factors = aligned([_HEAD, *map(_cells, self.layers)]), [f"{n} x {f:.3g}" for n, f in self.norms.items()]
        lines += [f"ends of branches: {', '.join(factors)}"] * bool(factors)
        return "\n".join([self.summary, *lines, *left_alone(self.untouched), *self.notes])

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layers": self.rows(), "notes": list(self.notes)}


def left_alone(untouched: Mapping[str, str]) -> list[str]:
    """One line a name, and one for all names of a reason that holds for many."""
    lines: list[str] = []
    for reason in dict.fromkeys(untouched.values()):
        names = [name for name, other in untouched.items() if other == reason]
        lines += [f"left alone: {name} ({reason})" for name in (names if len(names) <= 5 else [first_names(names)])]
    return lines


_HEAD = ("weights", "activation", "fan in", "density", "weight std", "now", "bias std", "q", "target", "chi", "status")


def _cells(layer: LayerInit) -> tuple[str, ...]:
    chi = layer.measured if layer.measured is not None else layer.predicted
    scales = (layer.weight_std_before, layer.weight_std, layer.bias_std, layer.q, layer.target, chi)
    numbers = ("-" if value is None or value != value else f"{value:.4g}" for value in scales)
    return layer.name, layer.activation, f"{layer.fan_in:.4g}", f"{layer.density:.3g}", *numbers, layer.status


def row(step: Step, plan: Plan, biases: Mapping[str, Tensor], gains: Mapping[str, float]) -> LayerInit:
    """What a weighted operation was set to, given the values of biases and the gains of layers, by name."""
    site, rule = step.site, step.follow.activation
    kept = site.original if site.mask is None else site.original[site.mask]
    before, bias = float(kept.double().square().mean().sqrt()) * site.fan_in**0.5, biases.get(site.bias)
    bias_std = float("nan") if bias is None else float(bias.double().square().mean().sqrt())
    # gain of the segment that the target is for, where that is a layer but for its averages
    alone = step.layer.weighted == 1 and step.layer.name in gains
    measured = gains[step.layer.name] / (step.averages * step.lead) if alone else None
    fields = site.name, site.module, step.layer.name, site.op.kind, "none" if rule is None else rule.name
    stds, goal = (before, before if step.kept else step.weight_std, bias_std), (step.q, step.goal, step.predicted)
    return LayerInit(*fields, site.fan_in, site.density, *stds, *goal, measured, _status(step, plan))


def _status(step: Step, plan: Plan) -> str:
    if step.kept:
        return step.kept
    if step.first is not None:
        return f"uses the weights of {step.first.site.module}, which were set there"
    if step.scale_free:
        return "the norm after it fixes the gain"
    follow = step.follow
    words = ["in pairs"] * bool(step.half) + ["shared with an embedding, which was set with it"] * step.tied
    if step.by_size:
        words.append(f"brings {'inputs' if step.begins else 'outputs'} to unit size")
    if step.closes:
        words.append(f"ends a branch, one of {plan.blocks}")
    if step.halved:
        words.append("shortcut: makes up for the activation behind the sum")
    if follow.gate:
        words.append("its result is multiplied with another signal")
    if follow.no_law:
        words.append(f"no law for {follow.no_law} behind it")
    if abs(step.pooled - 1) > 0.02:
        fields = "averages and scalings" if step.makes_up else "scalings"
        words.append(f"makes up for {fields} behind it that pass {step.pooled:.3g}")
    averages = step.lead if step.makes_up else step.lead * step.averages
    if abs(averages - 1) > 0.02:
        words.append(f"averages pass {averages:.3g} of it, which the target leaves out")
    return "; ".join(words) or "set"


def notes(plan: Plan, tape: Tape, off: list[str], rounds: int) -> list[str]:
    """Remarks on how the weights were set."""
    found = how_it_ran(tape.batch_norm if tape.has_batch_norm else None, tape.has_dropout)
    if plan.blocks:
        closed = sum(step.closes for step in plan.steps) + len(plan.norms)
        found.append(f"{counted(plan.blocks, 'residual block')}; the branches of {closed} were scaled")
    if off:
        found.append(f"after {rounds} rounds still off the target: {', '.join(dict.fromkeys(off))}")
    return [*found, *plan.notes]
