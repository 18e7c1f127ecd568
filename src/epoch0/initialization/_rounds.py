"""The measured way: after the pass, check every layer with fresh tangents and go again where one is still off.

One pass is exact for weights with an activation; what theory does not cover (max pools, functions that cannot be
followed) is met by correcting the layer's target by what was measured (Mishkin & Matas 2016 do so for variances).
"""

import dataclasses
import math

import numpy as np

from epoch0.initialization._pass import Pass
from epoch0.initialization._steps import Plan, Step
from epoch0.measure.passes import forward_squares
from epoch0.seeds import numpy_generator
from epoch0.tracing.layers import Layer
from epoch0.tracing.tape import Tape

DIRECTIONS = 4
"""Random tangents a layer for the check."""

EXAMPLES = 64
"""Examples that the check takes at most."""

CLOSE = 0.02
"""A layer is left alone when its log gain is this near to that of its target, or three standard errors."""

FARTHEST = 4.0
"""Largest correction of a target by what was measured, where weights are set for training."""

_CHECK = 5


def apply(plan: Plan, tape: Tape, sign: int = 1) -> None:
    """Multiply the parameters by what a pass found; with sign -1 take it back."""
    for step in plan.steps:
        if step.first is None and not step.kept:
            step.site.view.mul_(step.weight_std**sign)
    for norm in plan.norms:
        for name in norm.parameters:
            tape.model.get_parameter(name).detach().mul_(norm.factor**sign)


def measured_rounds(
    pass_: Pass, tape: Tape, layers: tuple[Layer, ...], max_rounds: int
) -> tuple[int, dict[str, float], list[str]]:
    """Passes and checks until every layer has its target, or the rounds are used up.

    Args:
        pass_: one pass, set up.
        tape: the record.
        layers: its layers.
        max_rounds: passes at most.

    Returns:
        How many passes were made, gain of each layer by name, names of layers still off.
    """
    plan = pass_.plan
    corrections: dict[int, float] = {}
    for done in range(1, max_rounds + 1):
        pass_.corrections = corrections
        pass_.run()
        apply(plan, tape)
        gains, errors = check(tape, layers, pass_.seed, done)
        off = {}
        for place, step in enumerate(plan.steps):
            gain, target = gains[step.layer.name], plan.layer_targets.get(step.layer.name)
            target = None if target is None else target * step.fresh
            # a block with an identity has its own scale already; one with a projection moves as a whole
            fixed = step.layer.kind == "residual block" and not _moves(step, plan)
            exact = not step.follow.no_law and step.layer.kind != "residual block" and step.start is None
            if target is None or fixed or exact or step.first is not None or step.kept or not gain > 0:
                continue
            if abs(math.log(gain / target)) > max(CLOSE, 3 * errors[step.layer.name] / gain):
                off[place] = corrections.get(place, 1.0) * target / gain
                if plan.edges:  # what is farther off is not for weights to make up for: a softmax, say
                    off[place] = min(max(off[place], 1 / FARTHEST), FARTHEST)
                if step.halved:
                    off |= {-1 - i: off[place] for i, norm in enumerate(plan.norms) if norm.layer is step.layer}
        if not off or done == max_rounds:
            return done, gains, [plan.steps[place].layer.name for place in off if place >= 0]
        corrections = {**corrections, **off}
        apply(plan, tape, -1)
    raise AssertionError("max_rounds is at least 1")


def _moves(step: Step, plan: Plan) -> bool:
    """Whether a step of a residual block scales one of the two paths of a block whose shortcut has weights."""
    projected = any(other.halved for other in plan.steps if other.layer is step.layer)
    return projected and (step.halved or step.closes)


def check(tape: Tape, layers: tuple[Layer, ...], seed: int, turn: int) -> tuple[dict[str, float], dict[str, float]]:
    """Gain of each layer in fresh directions, and its standard error."""
    small = dataclasses.replace(tape, x=tape.x[:EXAMPLES])
    fresh = int(numpy_generator(seed, _CHECK, turn).integers(2**31))
    with np.errstate(over="ignore", invalid="ignore"):
        found = forward_squares(small, layers, DIRECTIONS, fresh, fresh=True)
    names = [layer.name for layer in layers]
    gains = {name: float(value) for name, value in zip(names, found.total.mean(axis=0), strict=True)}
    spread = found.total.std(axis=0, ddof=1) / math.sqrt(DIRECTIONS)
    return gains, {name: float(value) for name, value in zip(names, spread, strict=True)}
