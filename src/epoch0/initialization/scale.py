"""The scale of every layer, found in forward passes that scale weights as they go, so that later inputs are right.

By theory the gain is weight_std^2 times the mean over places of E phi'(sqrt(q) Z)^2, q = bias_std^2 + weight_std^2 m
with m the mean square that comes in (Hayou et al. 2021, B.1.2). On the batch it is the mean over the layer's own units:
s^2 mean of (sum of squared weights into the unit) phi'(s h + b)^2, s the scale.

In residual blocks a random tangent travels along, which tells what a branch passes on before its last weights
(Proposition 2). The measured way checks every layer with fresh directions and corrects its target where it is off, as
for max pools (Mishkin & Matas 2016 do so for variances).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.initialization.draw import swapped
from epoch0.initialization.sites import NormStep, Plan, Step
from epoch0.measure.passes import passes
from epoch0.seeds import generator, numpy_generator
from epoch0.theory.checks import Array
from epoch0.theory.mean_field import chi
from epoch0.tracing.failures import NoForwardDerivative
from epoch0.tracing.layers import Layer
from epoch0.tracing.tape import Tape

BINS = 64  # groups of places of like variance that an expectation is taken over


@dataclass(frozen=True)
class Places:
    """Places of a layer: variance of the pre-activation at weight_std 1, and share of the fan-in."""

    square: Array  # variance of the pre-activation for weight_std 1 and no bias; shape (places,)
    share: Array  # fraction of the fan-in that meets an entry of the input, mean 1; likewise


def expected(activation: Activation | None, weight_std: float, bias_std: float, at: Places) -> float:
    """Mean-field gain of a layer, shares of its places counted."""
    passed = weight_std**2 * at.share
    if activation is None:
        return float(passed.mean())
    if activation.homogeneous:
        return float(passed.mean()) * float(chi(activation, 1.0, 1.0))
    return float((passed * np.asarray(chi(activation, 1.0, bias_std**2 + weight_std**2 * at.square))).mean())


def standard(step: Step) -> float:
    """The weight_std that the target asks for where pre-activations are of unit size, or their size does not matter."""
    slope = 1.0 if step.law is None else float(chi(step.law, 1.0, 1.0))
    return math.sqrt(step.target / slope) if slope > 0 else 1.0


LARGEST = 1e6  # scales beyond this, or below one over it, count as out of reach


class OutOfReach(Exception):
    """No scale gives the target; the message says what the gain does."""


def solved(gain: Callable[[float], float], target: float, scale_free: bool) -> float:
    """The scale at which the gain passes the target upwards; a gain without a scale of its own goes with the square."""
    from scipy.optimize import brentq

    low = high = 1.0
    best = value = gain(1.0)
    if not math.isfinite(value):
        raise OutOfReach("its signals overflow")
    if scale_free:
        if value == 0:
            raise OutOfReach("nothing passes through it")
        return math.sqrt(target / value)
    if value >= target:
        while (value := gain(low)) >= target:
            high, low = low, low / 1.5
            if low < 1 / LARGEST:
                raise OutOfReach(f"its gain stays above {value:.3g} however small the weights")
    else:
        while not (value := gain(high)) >= target:
            low, high, best = high, high * 1.5, max(best, value)
            if high > LARGEST or not math.isfinite(value):
                raise OutOfReach(f"its gain reaches {best:.3g} at most, whatever the weights")
    root = brentq(lambda log: gain(math.exp(log)) - target, math.log(low), math.log(high), xtol=1e-9, rtol=1e-12)
    return math.exp(float(root))


# entries of a layer that its scale is solved for on the batch; four times as many where one look is enough
SAMPLE = 1 << 16
UNIT_SIZE = 4.0  # mean squares of inputs and outputs that are of unit size, up to this factor, are left to the gain
_TANGENTS, _ENTRIES = 2, 3


@dataclass(eq=False)
class ScalePass:
    """The state of one pass."""

    tape: Tape  # the record; its model's weights have unit scale
    plan: Plan  # what to set; the results are written into its steps
    method: str  # by theory or on the batch
    seed: int  # of tangents and samples
    biases: Mapping[str, Tensor]  # values of the bias parameters, by name
    # factors on the targets of steps, by place; of norms by -1, -2 and so on
    corrections: Mapping[int, float] = field(default_factory=dict)

    def run(self) -> None:
        starts = {step.start for step in self.plan.steps if step.start is not None}
        try:
            self._run(starts | {norm.layer.input for norm in self.plan.norms})
        except NoForwardDerivative:
            self._run(set())

    def _run(self, starts: set[int]) -> None:
        steps, self.starts = self.plan.steps, starts
        self.arrived: dict[int, Tensor] = {}
        self.inputs = {step.site.op.inputs[0] for step in steps}
        self.began: dict[int, float] = {}  # mean square of the tangent at its start
        self.at: dict[int, list[tuple[int, Step]]] = {}
        for place, step in enumerate(steps):
            self.at.setdefault(step.site.op.outputs[0], []).append((place, step))
        self.norms = {norm.branch: (-1 - i, norm) for i, norm in enumerate(self.plan.norms)}
        ends = {step.layer.output for step in steps if step.start in self.starts}
        self.stops = {step.layer.output for step in steps if step.layer.kind == "residual block"} | ends
        nodes = {*self.at, *self.inputs, *self.norms, *self.starts, *self.stops}
        with torch.no_grad(), forward_ad.dual_level():
            self.tape.run(self.tape.x, {node: partial(self._visit, node) for node in nodes})
        self.arrived.clear()

    def _visit(self, node: int, tensor: Tensor) -> Tensor | None:
        before = tensor
        for place, step in self.at.get(node, ()):
            tensor = self._set(place, step, tensor)
        if node in self.norms:
            tensor = self._set_norm(*self.norms[node], tensor)
        if node in self.starts:
            primal, source = forward_ad.unpack_dual(tensor).primal, generator(self.seed, _TANGENTS, node)
            tangent = torch.randn(primal.shape, generator=source, dtype=primal.dtype).to(primal.device)
            self.began[node] = float(tangent.double().square().mean())
            tensor = forward_ad.make_dual(primal.clone(), tangent)
        elif node in self.stops and self.starts:
            tensor = forward_ad.unpack_dual(tensor).primal
        if node in self.inputs:
            self.arrived[node] = tensor
        return None if tensor is before else tensor

    def _set(self, place: int, step: Step, tensor: Tensor) -> Tensor:
        if step.kept:
            step.weight_std = 1.0
            return tensor
        step.weight_std = step.first.weight_std if step.first is not None else step.weight_std
        unit = self._times(1 / step.weight_std, step, tensor) if step.tied else tensor
        if step.first is None:
            self._solve(place, step, unit)
        return tensor if step.tied else self._times(step.weight_std, step, tensor)

    def _times(self, factor: float, step: Step, tensor: Tensor) -> Tensor:
        bias = self._bias_inside(step, tensor)
        return tensor * factor if bias is None or not bool(bias.any()) else (tensor - bias) * factor + bias

    @torch.no_grad()  # a forward may have gradients on, to differentiate on its way
    def _solve(self, place: int, step: Step, output: Tensor) -> None:
        site, activation = step.site, step.law
        primal, tangent = forward_ad.unpack_dual(self.arrived[site.op.inputs[0]])
        arriving = 0.0  # mean square of a tangent from the start at the operation's input
        if step.start in self.began and tangent is not None:
            arriving = float(site.through(tangent.square()).double().mean()) / self.began[step.start] / step.lead
        arriving = arriving if arriving > 0 else 1.0
        target, bias = step.target * self.corrections.get(place, 1.0) / arriving, self.biases.get(site.bias)
        bias_std = 0.0 if bias is None else float(bias.double().square().mean().sqrt())
        if step.scale_free:
            step.weight_std = standard(step)
            return
        try:
            if step.tied:
                pass
            elif (size := self._edge(step, primal)) > 0:
                step.weight_std, step.by_size = size, True
            elif self.method == "theory":
                at, free = self._places(step, primal), activation is None or activation.homogeneous
                step.weight_std = solved(lambda s: expected(activation, s, 0.0 if free else bias_std, at), target, free)
            else:
                step.weight_std = self._by_batch(place, step, primal, output, target)
        except OutOfReach as reason:
            name = "no activation" if activation is None else activation.name
            layer = f"layer '{site.module}' ({name}, density {site.density:.3g})"
            raise InputError(f"{layer} cannot have the gain {target:.4g}: {reason}. Nothing was changed.") from None
        at = self._places(step, primal) if self.method == "theory" else self._seen(step, output)
        step.q = float((bias_std**2 + step.weight_std**2 * at.square).mean())
        gain = expected(activation, step.weight_std, bias_std, at)
        step.predicted = arriving * gain * step.pooled
        if step.half or step.by_size:
            whole = expected(step.follow.activation, step.weight_std, bias_std, at)
            step.fresh = whole / (target if step.by_size else gain)

    def _edge(self, step: Step, x: Tensor) -> float:
        """The scale at which signals that come in, or go out, have unit size; 0 where the gain decides."""
        if not self.plan.edges or not (step.begins or step.last) or step.layer.kind == "residual block":
            return 0.0
        rule, at = step.law, self._places(step, x)
        size = float(at.square.mean()) * (1.0 if step.begins else step.scaled)
        saturates = (rule is not None and not rule.homogeneous) or (step.last and bool(step.follow.no_law))
        if not size > 0 or (not saturates and 1 / UNIT_SIZE <= size <= UNIT_SIZE):
            return 0.0
        slope = float(chi(rule, 1.0, 1.0)) if rule is not None and rule.homogeneous else 1.0
        weight_std = 1 / math.sqrt(size * slope)
        return weight_std if expected(rule, weight_std, 0.0, at) > 0 else 0.0

    def _places(self, step: Step, x: Tensor) -> Places:
        site = step.site
        if step.paired:
            x = (x - swapped(x, site.op.kind)) / math.sqrt(2)  # the rest goes out in the weights
        squares = site.through(x.square())
        square, share = _flat(squares), _flat(site.through(torch.ones_like(x[:1])).expand_as(squares))
        if square.size <= BINS:
            return Places(square, share)
        order, cuts = np.argsort(square, kind="stable"), np.linspace(0, square.size, BINS + 1).astype(int)
        return Places(*(np.add.reduceat(values[order], cuts[:-1]) / np.diff(cuts) for values in (square, share)))

    def _seen(self, step: Step, output: Tensor) -> Places:
        """Variances over the units of each example, of the pre-activations themselves."""
        h = self._without_bias(step, output)
        rows = h.shape[0] if h.shape[:1] == self.tape.x.shape[:1] else 1
        square = np.asarray(h.detach().double().reshape(rows, -1).square().mean(1).cpu())
        return Places(square, np.full_like(square, step.site.density))

    def _without_bias(self, step: Step, output: Tensor) -> Tensor:
        h: Tensor = forward_ad.unpack_dual(output).primal
        return h if (bias := self._bias_inside(step, h)) is None else h - bias

    def _bias_inside(self, step: Step, h: Tensor) -> Tensor | None:
        """The bias that the operation itself adds to its output h."""
        bias = self.biases.get(step.site.bias) if step.follow.biased == step.site.op.outputs[0] else None
        return None if bias is None else step.site.beside(bias, h.dim())

    def _by_batch(self, place: int, step: Step, x: Tensor, output: Tensor, target: float) -> float:
        site, rule = step.site, step.law
        h = self._without_bias(step, output)
        gains = site.responses(torch.ones_like(x[:1]), site.used().square()).expand_as(h)
        bias = self.biases.get(site.bias)
        offsets = torch.zeros_like(h[:1]) if bias is None else site.beside(bias, h.dim())
        count = SAMPLE if rule is not None and not rule.homogeneous else 4 * SAMPLE
        sample = [t.expand_as(h).reshape(-1) for t in (gains, h, offsets)]
        if h.numel() > count:
            chosen = torch.randint(h.numel(), (count,), generator=generator(self.seed, _ENTRIES, place)).to(h.device)
            sample = [t[chosen] for t in sample]
        into, signal, offset = (_flat(t) for t in sample)  # squared weights into the unit, its pre-activation for s = 1
        if rule is None:
            return solved(lambda s: s**2 * float(into.mean()), target, True)
        line = rule.homogeneous and not bool(offset.any())
        return solved(lambda s: s**2 * float((into * rule.derivative(s * signal + offset) ** 2).mean()), target, line)

    def _set_norm(self, place: int, norm: NormStep, tensor: Tensor) -> Tensor:
        tangent, goal = forward_ad.unpack_dual(tensor).tangent, norm.goal * self.corrections.get(place, 1.0)
        norm.factor = math.sqrt(goal)
        if tangent is not None and (start := norm.layer.input) in self.began:
            arriving = float(tangent.double().square().mean()) / self.began[start]
            norm.factor = math.sqrt(goal / arriving) if arriving > 0 else 1.0
        return tensor * norm.factor


def _flat(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().reshape(-1).double().cpu())


ROUNDS = 4  # passes of the measured way at most
DIRECTIONS = 4  # random directions a layer for the check
EXAMPLES = 64  # examples that the check takes at most
CLOSE = 0.02  # A layer is left alone when its log gain is this near to that of its target, or three standard errors
FARTHEST = 4.0  # largest correction of a target by the measured gain, where weights are set for training
_CHECK = 5


def apply(plan: Plan, tape: Tape, sign: int = 1) -> None:
    """Multiply the parameters by the factors that a pass found; with sign -1 divide."""
    for step in plan.steps:
        if step.first is None and not step.kept and not step.tied:
            step.site.view.mul_(step.weight_std**sign)
    for norm in plan.norms:
        for name in norm.parameters:
            tape.model.get_parameter(name).detach().mul_(norm.factor**sign)


def measured_rounds(pass_: ScalePass, tape: Tape, layers: tuple[Layer, ...]) -> tuple[int, dict[str, float], list[str]]:
    """Passes and checks until every layer has its target, or the rounds are used up."""
    plan = pass_.plan
    for done in range(1, ROUNDS + 1):
        pass_.run()
        apply(plan, tape)
        gains, errors = check(tape, layers, pass_.seed, done)
        off = {}
        for place, step in enumerate(plan.steps):
            gain, target = gains[step.layer.name], plan.layer_targets.get(step.layer.name)
            target = None if target is None else target * step.fresh
            # a block with an identity has its own scale already; one with a projection moves as a whole
            projected = any(other.halved for other in plan.steps if other.layer is step.layer)
            fixed = step.layer.kind == "residual block" and not (projected and (step.halved or step.closes))
            exact = not step.follow.no_law and step.layer.kind != "residual block" and step.start is None
            if target is None or fixed or exact or step.first is not None or step.kept or step.tied or not gain > 0:
                continue
            if abs(math.log(gain / target)) > max(CLOSE, 3 * errors[step.layer.name] / gain):
                off[place] = pass_.corrections.get(place, 1.0) * target / gain
                if plan.edges:  # what is farther off is not for weights to make up for: a softmax, say
                    off[place] = min(max(off[place], 1 / FARTHEST), FARTHEST)
                if step.halved:
                    off |= {-1 - i: off[place] for i, norm in enumerate(plan.norms) if norm.layer is step.layer}
        if not off or done == ROUNDS:
            return done, gains, [plan.steps[place].layer.name for place in off if place >= 0]
        pass_.corrections = {**pass_.corrections, **off}
        apply(plan, tape, -1)
    raise AssertionError("the last round returns")


def check(tape: Tape, layers: tuple[Layer, ...], seed: int, turn: int) -> tuple[dict[str, float], dict[str, float]]:
    """Gain of each layer in fresh directions, and its standard error."""
    alone = isinstance(tape.call.batch, Tensor) and tape.start < 0  # nothing else has as many rows
    small = dataclasses.replace(tape, x=tape.x[:EXAMPLES]) if alone else tape
    fresh = int(numpy_generator(seed, _CHECK, turn).integers(2**31))
    with np.errstate(over="ignore", invalid="ignore"):
        found = passes(small, layers, DIRECTIONS, fresh).backward
    names = [layer.name for layer in layers]
    spread = found.total.std(axis=0, ddof=1) / math.sqrt(DIRECTIONS)
    gains, errors = (dict(zip(names, each.tolist(), strict=True)) for each in (found.total.mean(axis=0), spread))
    return gains, errors
