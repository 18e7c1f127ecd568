"""What is to be set in a recorded model: one step for each weighted operation, one for the norm at a branch's end.

Residual branches get a gain of target/blocks each, so that a block's own is 1 + target/blocks (Hayou et al. 2021,
Proposition 2, Stable ResNet).
"""

import torch
from torch import Tensor

from epoch0.initialization._keep import keep
from epoch0.initialization._mirror import INPUT, origins, pair_up
from epoch0.initialization._steps import NormStep, Plan, Step
from epoch0.initialization._stretch import averages_among, stretch
from epoch0.initialization.follow import Follower, affine_of, is_average, is_linear, only_moves
from epoch0.initialization.sites import Site
from epoch0.theory.mean_field import chi
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Branch, Layer, branch, events_of
from epoch0.tracing.tape import Tape


def make_plan(
    tape: Tape, layers: tuple[Layer, ...], sites: list[Site], target: float, residual: str, weights: str, edges: bool
) -> Plan:
    """Find out what each weighted operation is followed by, which ones end branches, and what gain each is to have.

    Args:
        tape: the record.
        layers: its layers.
        sites: operations whose weights can be set.
        target: gain of a layer.
        residual: ``"stable"``: branches get target/blocks; ``"plain"``: they get the target.
        weights: their law; with ``"keep"`` the norms that end branches stay, else they start from 1; with
            ``"mirrored"`` sound blocks stay and units become pairs.
        edges: whether what comes in and what goes out is brought to unit size.
    """
    follower = Follower(tape)
    layer_of = {id(event): layer for layer in layers for event in events_of(tape, layer)}
    steps, first = list[Step](), dict[str, Step]()
    for site in sites:
        follow = follower.follow(site.op.outputs[0])
        site.bias = site.bias or follow.bias
        step = Step(site, follow, layer_of[id(site.op)], target, first=first.get(site.name))
        step.shared = step.first is not None
        first.setdefault(site.name, step).shared |= step.shared
        steps.append(step)
    plan = Plan(steps, [], 0, {}, edges=edges)
    branches = {layer.name: branch(tape, layer) for layer in layers if layer.kind == "residual block"}
    blocks = {name: found for name, found in branches.items() if found and found.weighted > found.beside}
    plan.blocks = len(blocks)
    origin = origins(tape)
    for step in steps:
        step.begins = origin[step.site.op.inputs[0]] == frozenset([INPUT])
        step.last = step.site.op.outputs[0] in origin[tape.output]
    if weights == "mirrored":
        plan.kept = keep(tape, layers, blocks, steps)
        pair_up(tape, steps, origin)
    share = target / max(plan.blocks, 1) if residual == "stable" else target
    closed: dict[str, Step | NormStep | None] = {}
    for layer in layers:
        found = blocks.get(layer.name)
        if found is not None:
            if any(step.kept for step in steps if step.layer is layer):
                continue
            closed[layer.name] = _close(tape, plan, layer, found, share, residual)
            _projected(plan, layer, found, follower, closed[layer.name])
    for norm in plan.norms:
        if weights != "keep":
            tape.model.get_parameter(norm.weight).detach().fill_(1.0)
    for step in steps:
        _measure_trail(tape, step)
    _lead_in(tape, plan, layers[0])
    for layer in layers:
        found, close = blocks.get(layer.name), closed.get(layer.name)
        plan.layer_targets[layer.name] = _layer_target(tape, plan, layer, found, close, follower, target, share)
    return plan


def layer_targets(plan: Plan) -> dict[str, float | None]:
    """What a fresh perturbation finds in each layer when all is set; None where that is not known."""
    found = dict(plan.layer_targets)
    for step in plan.steps:
        if step.layer.kind != "residual block" and (target := found[step.layer.name]) is not None:
            found[step.layer.name] = target * step.fresh
    return found


def _measure_trail(tape: Tape, step: Step) -> None:
    """What the linear operations behind a step do to noise that has the profile of its zero-padded borders."""
    site, follow = step.site, step.follow
    if follow.trail:
        ones = tape.x.new_ones((1, *tape.nodes[site.op.inputs[0]].shape[1:]))
        weight = torch.ones_like(site.view) if site.mask is None else site.mask.to(ones.dtype)
        profile = site.responses(ones, weight)
        step.averages, step.scaled = stretch(tape, follow.trail, profile / profile.mean())
    step.averages *= averages_among(tape, follow.averages)


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
            step.goal, step.start, step.closes, step.makes_up = share, layer.input, True, True
            return step
        if event.meaning.kind == "norm":
            weight, bias = _parameters(tape, event)
            if residual != "plain" and weight and homogeneous:
                plan.norms.append(NormStep(event, weight, bias, found.node, layer, layer.input, share))
                return plan.norms[-1]
            if affine_of(tape, event) is None:
                return None
        elif event.elementwise:
            homogeneous &= event.activation is not None and event.activation.homogeneous
        elif not only_moves(event) and not is_linear(event):
            return None
        node = event.inputs[0]
    return None


def _parameters(tape: Tape, event: Op) -> tuple[str, str]:
    """Names of a norm's weight and bias."""
    memory = {p.untyped_storage().data_ptr(): name for name, p in tape.model.named_parameters() if p.numel()}
    values = event.given.get("weight"), event.given.get("bias")
    weight, bias = (memory.get(v.untyped_storage().data_ptr(), "") if isinstance(v, Tensor) else "" for v in values)
    return weight, bias


def _lead_in(tape: Tape, plan: Plan, layer: Layer) -> None:
    """Count what lies between the input and the first weights, if it changes more than the places of entries."""
    events = events_of(tape, layer)
    before = []
    for event in events:
        if event.kind:
            break
        before.append(event)
    inside = [step for step in plan.steps if step.layer is layer]
    if layer.weighted == 1 and len(inside) == 1:
        inside[0].lead = averages_among(tape, tuple(before))
        if any(not only_moves(event) and not is_average(event) for event in before):
            inside[0].start = 0


def _layer_target(
    tape: Tape,
    plan: Plan,
    layer: Layer,
    found: Branch | None,
    closed: Step | NormStep | None,
    follower: Follower,
    target: float,
    share: float,
) -> float | None:
    inside = [step for step in plan.steps if step.layer is layer]
    if layer.kind != "residual block":
        if layer.weighted != 1 or len(inside) != 1 or inside[0].first is not None or inside[0].kept:
            return None
        (step,) = inside
        return None if step.scale_free or step.follow.gate else target * step.averages * step.lead
    if found is None or closed is None:
        return None
    beside, after = _shortcut(plan, layer, found), follower.follow(found.total)
    if after.end != layer.output or after.norm or after.no_law:
        return None
    averages, scaled = stretch(tape, after.trail)
    norms = [op for op in events_of(tape, layer) if op.meaning.kind == "norm" and affine_of(tape, op) is None]
    if norms and averages < 1:
        # a norm that subtracts means over places takes out what the average would see: all of it for one example,
        # 1/examples of it for a batch
        plan.notes.append(f"what the average behind {layer.name} passes depends on the norm in it: no target for gain")
        return None
    if found.shortcut == layer.input and after.activation is None:
        return (1 + share) * averages * scaled
    if beside is not None and (after.activation is None or beside.halved):
        return (target + share) * averages * scaled
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
    if beside is not None:
        beside.makes_up = True
    if beside is None or closer is None or rule is None or not rule.homogeneous or after.norm or after.no_law:
        return
    slope = float(chi(rule, 1.0, 1.0))
    beside.goal, beside.halved = beside.goal / slope, True
    closer.goal /= slope
