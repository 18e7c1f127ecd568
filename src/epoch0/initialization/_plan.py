"""What is to be set in a recorded model: one step for each weighted operation, one for the norm at a branch's end.

Residual branches get a gain of target/blocks each, so that a block's own is 1 + target/blocks (Hayou et al. 2021,
Proposition 2, Stable ResNet).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from epoch0.initialization._follow import MOVES, Follow, Follower, is_linear, stretch
from epoch0.initialization._sites import Site
from epoch0.measure import _ops
from epoch0.measure._branches import Branch, branch
from epoch0.measure._graph import Op
from epoch0.measure._layers import Layer, stretches
from epoch0.measure._tape import Tape
from epoch0.theory.mean_field import chi


@dataclass(eq=False)
class Step:
    """A weighted operation and what its weights are to be.

    Attributes:
        site: the operation.
        follow: what comes after it.
        pooled: mean squared stretch of the averages behind it, 1 without any.
        layer: the layer it is in.
        target: gain it is to have, from its input to behind its activation.
        start: node from which its gain counts when something without weights lies between; None: its own input.
        closes: whether it ends a residual branch.
        halved: whether it is a shortcut whose target makes up for the activation behind the sum.
        first: the step that decides the weights when the operation is another use of them.
        weight_std: what was found; NaN before.
        q: mean variance of its pre-activations.
        arriving: mean square of a tangent from the start at the operation's input.
        predicted: mean-field gain from the start to behind its averages.
    """

    site: Site
    follow: Follow
    pooled: float
    layer: Layer
    target: float
    start: int | None = None
    closes: bool = False
    halved: bool = False
    first: "Step | None" = None
    weight_std: float = float("nan")
    q: float = float("nan")
    arriving: float = 1.0
    predicted: float | None = None

    @property
    def scale_free(self) -> bool:
        """Whether a norm after the weights undoes their scale."""
        return self.follow.norm and not self.closes


@dataclass(eq=False)
class NormStep:
    """The norm that ends a residual branch.

    Attributes:
        op: the norm.
        weight: the parameter that multiplies.
        bias: the parameter that is added; empty if there is none.
        branch: node at the end of the branch.
        start: node at which the block starts.
        target: gain that the branch is to have.
        factor: what its parameters are multiplied by; NaN before.
    """

    op: Op
    weight: str
    bias: str
    branch: int
    start: int
    target: float
    factor: float = float("nan")


@dataclass(eq=False)
class Plan:
    """Everything that is to be set.

    Attributes:
        steps: in order of execution.
        norms: ends of branches that are norms.
        blocks: number of residual blocks.
        layer_targets: gain that each layer should have when all is set, by name; None where that is not known.
        notes: what a reader must know.
    """

    steps: list[Step]
    norms: list[NormStep]
    blocks: int
    layer_targets: dict[str, float | None]
    notes: list[str] = field(default_factory=list)

    @property
    def starts(self) -> set[int]:
        """Nodes at which a fresh tangent starts."""
        return {s.start for s in self.steps if s.start is not None} | {norm.start for norm in self.norms}


def make_plan(tape: Tape, layers: tuple[Layer, ...], sites: list[Site], target: float, residual: str) -> Plan:
    """Find out what each weighted operation is followed by, which ones end branches, and what gain each is to have.

    Args:
        tape: the record.
        layers: its layers.
        sites: operations whose weights can be set.
        target: gain of a layer.
        residual: ``"stable"``: branches get target/blocks; ``"plain"``: they get the target.
    """
    follower = Follower(tape)
    layer_of = {id(event): layer for layer in layers for event in events_of(tape, layer)}
    steps, first = list[Step](), dict[str, Step]()
    for site in sites:
        follow = follower.follow(site.op.outputs[0])
        site.bias = site.bias or follow.bias
        pooled = _pooled(tape, site, follow)
        step = Step(site, follow, pooled, layer_of[id(site.op)], target / pooled, first=first.get(site.name))
        first.setdefault(site.name, step)
        steps.append(step)
    plan = Plan(steps, [], 0, {})
    branches = {layer.name: branch(tape, layer) for layer in layers if layer.kind == "residual block"}
    blocks = {name: found for name, found in branches.items() if found and found.weighted > found.beside}
    plan.blocks = len(blocks)
    share = target / max(plan.blocks, 1) if residual == "stable" else target
    closed: dict[str, Step | NormStep | None] = {}
    for layer in layers:
        found = blocks.get(layer.name)
        if found is not None:
            closed[layer.name] = _close(tape, plan, layer, found, share, residual)
            _projected(plan, layer, found, follower, closed[layer.name])
    _lead_in(tape, plan, layers[0])
    for layer in layers:
        plan.layer_targets[layer.name] = _layer_target(plan, layer, blocks.get(layer.name), closed, target, share)
    return plan


def _pooled(tape: Tape, site: Site, follow: Follow) -> float:
    shapes = [tape.nodes[node].shape for node in (site.op.inputs[0], site.op.outputs[0])]
    ones = tape.x.new_ones((1, *shapes[0][1:]))
    weight = torch.ones_like(site.view) if site.mask is None else site.mask.to(ones.dtype)
    profile = site.responses(ones, weight)
    return stretch(follow.trail, tape.x.new_empty(shapes[1]), profile / profile.mean())


def events_of(tape: Tape, layer: Layer) -> list[Op]:
    """The operations of a layer, in order."""
    return [event for start, _, piece in stretches(tape) if layer.input <= start < layer.output for event in piece]


def _close(tape: Tape, plan: Plan, layer: Layer, found: Branch, share: float, residual: str) -> Step | NormStep | None:
    """The weights or the norm by which a branch is scaled: the last of them before the sum."""
    made_by = {node: event for event in events_of(tape, layer) for node in event.outputs}
    by_op = {id(step.site.op): step for step in plan.steps}
    node, homogeneous = found.node, True
    while (event := made_by.get(node)) is not None and len(event.inputs) == 1:
        if event.kind:
            step = by_op.get(id(event))
            if step is None or step.first is not None:
                return None
            step.target, step.start, step.closes = share / step.pooled, layer.input, True
            return step
        if event.name in _ops.NORMS:
            weight, bias = _affine(tape, event)
            if residual == "plain" or not weight or not homogeneous:
                return None
            plan.norms.append(NormStep(event, weight, bias, found.node, layer.input, share))
            return plan.norms[-1]
        if event.elementwise:
            homogeneous &= event.activation is not None and event.activation.homogeneous
        elif event.name not in MOVES and not is_linear(event):
            return None
        node = event.inputs[0]
    return None


def _affine(tape: Tape, event: Op) -> tuple[str, str]:
    """Names of a norm's weight and bias."""
    assert event.call is not None
    places = {"batch_norm": 3, "instance_norm": 3, "layer_norm": 2, "group_norm": 2, "rms_norm": 2}
    start = places.get(event.name)
    memory = {p.untyped_storage().data_ptr(): name for name, p in tape.model.named_parameters() if p.numel()}
    found = []
    for place, key in ((start, "weight"), (None if start is None else start + 1, "bias")):
        value = None if place is None else _ops.argument(event.call.args, dict(event.call.kwargs), place, key, None)
        found.append(memory.get(value.untyped_storage().data_ptr(), "") if isinstance(value, Tensor) else "")
    return found[0], found[1]


def _lead_in(tape: Tape, plan: Plan, layer: Layer) -> None:
    """Count what lies between the input and the first weights, if it changes more than the places of entries."""
    events = events_of(tape, layer)
    before = []
    for event in events:
        if event.kind:
            break
        before.append(event)
    inside = [step for step in plan.steps if step.layer is layer]
    if layer.weighted == 1 and len(inside) == 1 and any(event.name not in MOVES for event in before):
        inside[0].start = 0


def _layer_target(
    plan: Plan,
    layer: Layer,
    found: Branch | None,
    closed: dict[str, Step | NormStep | None],
    target: float,
    share: float,
) -> float | None:
    inside = [step for step in plan.steps if step.layer is layer]
    if layer.kind != "residual block":
        alone = layer.weighted == 1 and len(inside) == 1 and inside[0].first is None
        return target if alone and not inside[0].scale_free and not inside[0].follow.gate else None
    if found is None or closed.get(layer.name) is None:
        return None
    if found.shortcut == layer.input and layer.output == found.total:
        return 1 + share
    beside = _shortcut(plan, layer, found)
    if beside is not None and (layer.output == found.total or beside.halved):
        return target + share
    return None


def _shortcut(plan: Plan, layer: Layer, found: Branch) -> Step | None:
    """The projection that is the whole shortcut of a block; None if there is none or a norm is in it."""
    ends = [s for s in plan.steps if s.layer is layer and s.follow.end == found.shortcut]
    alone = len(ends) == 1 and found.beside == 1 and ends[0].site.op.inputs[0] == layer.input
    return ends[0] if alone and not ends[0].scale_free and ends[0].first is None else None


def _projected(plan: Plan, layer: Layer, found: Branch, follower: Follower, closer: Step | NormStep | None) -> None:
    """Make up for an activation behind the sum of two weighted paths; behind an identity it passes more than half."""
    beside, after = _shortcut(plan, layer, found), follower.follow(found.total)
    rule = after.activation
    more = after.norm or after.no_law or any(op.name not in MOVES for op in after.trail)
    if beside is None or closer is None or rule is None or not rule.homogeneous or more:
        return
    slope = float(chi(rule, 1.0, 1.0))
    beside.target, beside.halved = beside.target / slope, True
    closer.target /= slope
