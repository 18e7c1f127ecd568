"""The plan of an initialization: the weights and norms to set, and what stays as it is.

Residual branches get a gain of target/blocks each, so that a block's own is 1 + target/blocks (Hayou et al. 2021,
Proposition 2, Stable ResNet); averages on the main path are no part of what weights make up for (docs/initialize).
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0.initialization.draw import INPUT, Origins, in_projection, origins, pair_up
from epoch0.initialization.sites import Follower, NormStep, Plan, Site, Step
from epoch0.measure.law import Flow, NoLaw, linear
from epoch0.seeds import generator
from epoch0.theory.mean_field import chi
from epoch0.tracing.graph import Op, is_average, is_linear, is_scaling, only_moves
from epoch0.tracing.layers import Branch, Layer, branch
from epoch0.tracing.operations import PRODUCTS
from epoch0.tracing.tape import Tape


def make_plan(
    tape: Tape, layers: tuple[Layer, ...], sites: list[Site], target: float, weights: str, edges: bool, frozen: set[str]
) -> Plan:
    """Find out what each weighted operation is followed by, which ones end branches, and what gain each is to have."""
    follower = Follower(tape)
    layer_of = {id(event): layer for layer in layers for event in layer.events}
    steps, first = list[Step](), dict[str, Step]()
    looked_up = {name for op in tape.ops if op.meaning.kind == "lookup" for name in op.weights}
    for site in sites:
        follow = follower.follow(site.op.outputs[0])
        site.bias = site.bias or follow.bias
        steps.append(Step(site, follow, layer_of[id(site.op)], target, first=first.get(site.name)))
        steps[-1].tied = site.name in looked_up
        first.setdefault(site.name, steps[-1])
    branches = {layer.name: branch(layer) for layer in layers if layer.kind == "residual block"}
    blocks = {name: found for name, found in branches.items() if found and found.weighted > found.beside}
    plan, origin = Plan(steps, [], len(blocks), {}, edges=edges, frozen=frozen), origins(tape)
    fixed = {node for op in tape.ops if op.weights and frozen.issuperset(op.weights) for node in op.outputs}
    learnt = tape.start >= 0 and any(step.site.name in tape.ops[tape.start].weights for step in steps)
    for step in steps:
        # an embedding that is a readout too is as small as one, and learns: its size is no input's
        step.begins = origin[step.site.op.inputs[0]] == frozenset([INPUT]) and not learnt
        # what is read of frozen layers is as large as they make it
        step.last = step.site.op.outputs[0] in origin[tape.output] and not origin[step.site.op.inputs[0]] <= fixed
    if weights == "mirrored":
        plan.kept = keep(tape, layers, blocks, steps, origin)
        pair_up(tape, steps, origin)
    share = target / max(plan.blocks, 1)
    closed: dict[str, Step | NormStep | None] = {}
    for layer in layers:
        found = blocks.get(layer.name)
        if found is not None and not any(step.kept for step in steps if step.layer is layer):
            closed[layer.name] = _close(tape, plan, layer, found, share)
            _projected(plan, layer, found, follower, closed[layer.name])
    for norm in plan.norms if weights != "keep" else ():
        tape.model.get_parameter(norm.parameters[0]).detach().fill_(1.0)
    for step in steps:  # what the linear operations behind it do to noise with the profile of its zero-padded borders
        site, trail = step.site, step.follow.trail
        if trail:
            ones = tape.x.new_ones((1, *tape.nodes[site.op.inputs[0]].shape[1:]))
            weight = torch.ones_like(site.view) if site.mask is None else site.mask.to(ones.dtype)
            profile = site.responses(ones, weight)
            step.averages, step.scaled = noise_gains(tape, trail, profile / profile.mean())
        step.averages *= averages_among(tape, step.follow.averages)
    before = list(itertools.takewhile(lambda event: not event.kind, layers[0].events))
    inside = [step for step in steps if step.layer is layers[0]]
    if layers[0].weighted == 1 and len(inside) == 1:
        inside[0].lead = averages_among(tape, before)
        if any(not only_moves(event) and not is_average(event) for event in before):
            inside[0].start = 0
    for layer in layers:
        found, close = blocks.get(layer.name), closed.get(layer.name)
        plan.layer_targets[layer.name] = _layer_target(plan, layer, found, close, follower, target)
    return plan


def _close(tape: Tape, plan: Plan, layer: Layer, found: Branch, share: float) -> Step | NormStep | None:
    """The weights or the norm by which a branch is scaled: the last of them before the sum."""
    made_by = {node: event for event in layer.events for node in event.outputs}
    by_op = {id(step.site.op): step for step in plan.steps}
    node, homogeneous = found.node, True
    while (event := made_by.get(node)) is not None and len(event.inputs) == 1:
        if event.kind:
            if (step := by_op.get(id(event))) is None or step.first is not None:
                return None
            step.goal, step.start, step.closes, step.makes_up = share, layer.input, True, True
            return step
        if event.meaning.kind == "norm":
            weight, bias = (tape.name_of(event.given.get(role)) for role in ("weight", "bias"))
            if weight and homogeneous and not plan.frozen.intersection((weight, bias)):
                plan.norms.append(NormStep((weight, bias) if bias else (weight,), found.node, layer, share))
                return plan.norms[-1]
            return None
        elif event.elementwise:
            homogeneous &= event.activation is not None and event.activation.homogeneous
        elif not only_moves(event) and not is_linear(event):
            return None
        node = event.inputs[0]
    return None


def _layer_target(
    plan: Plan, layer: Layer, found: Branch | None, closed: Step | NormStep | None, follower: Follower, target: float
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
    (averages, scaled), share = noise_gains(follower.tape, after.trail), target / plan.blocks
    if layer.has_norm and averages < 1:
        # a norm that subtracts means over places takes out what the average would see: all of it for one example,
        # 1/examples of it for a batch
        plan.notes.append(f"what the average behind {layer.name} passes depends on the norm in it: no target for gain")
        return None
    if found.shortcut == layer.input and after.activation is None:
        return (1 + share) * averages * scaled
    projected = beside is not None and (after.activation is None or beside.halved)
    return (target + share) * averages * scaled if projected else None


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


# Variance over examples of a sound branch over that of its shortcut: 3 percent to 100 times its size (a small
# embedding, which the first blocks of a pre-norm transformer drown).
SMALLEST, LARGEST = 1e-3, 1e4
GATES = ("sigmoid", "hardsigmoid")  # what multiplies another signal by a share of it
WAVES = ("mul, sin", "mul, cos")  # what an input layer in front of them draws are frequencies, as in a SIREN
SHARPEST = 5.0  # standard deviation of attention scores beyond which a softmax looks at one place only
LOUDEST = 4.0  # size of the outputs that is left alone in a readout that is kept


def keep(
    tape: Tape, layers: tuple[Layer, ...], blocks: Mapping[str, Branch], steps: list[Step], origin: Origins
) -> frozenset[str]:
    """Mark the steps whose weights stay, each with the reason."""
    made_by = {node: op for op in tape.ops for node in op.outputs}
    attends = [op for op in tape.ops if op.name == "scaled_dot_product_attention" and len(op.inputs) > 2]
    scaled = {name: _before_scale(found.node, made_by) for name, found in blocks.items()}
    branches = (node for found in blocks.values() for node in (found.node, found.shortcut))
    ends = (node for step in steps for node in (step.site.op.inputs[0], step.site.op.outputs[0]))
    nodes = [*scaled.values(), *branches, *ends, tape.output, *(node for op in attends for node in op.inputs[:2])]
    sizes, spread, sharp = _sizes(tape, bool(blocks), nodes)
    for op in attends:
        sharp[op.index] = math.sqrt(sizes[op.inputs[0]] * sizes[op.inputs[1]])
    masked, kept = {step.layer.name for step in steps if step.site.mask is not None}, list[str]()
    for layer in layers:
        if layer.name not in blocks or layer.name in masked:
            continue
        found = blocks[layer.name]
        ratio = spread[scaled[layer.name]] / max(spread[found.shortcut], 1e-30)
        ops, places = tape.ops[tape.nodes[layer.input].op + 1 : tape.nodes[layer.output].op + 1], 1.0
        if any("attention" in op.name or op.name == "softmax" for op in ops):
            # what differs from place to place averages out in attention that is not sharp, and comes back in training
            places = math.prod(tape.nodes[found.node].shape[:-1]) / len(tape.x)
        lost = ratio * places < SMALLEST
        normed = layer.has_norm or any(op.name == "rsqrt" for op in ops)  # a norm that is written out
        if sizes[found.node] == 0:
            reason = "kept: its branch starts at zero, which is meant"
        elif normed and not lost and ratio <= LARGEST and all(sharp.get(op.index, 0.0) < SHARPEST for op in ops):
            reason = "kept: a norm sets the size of this block, and its branch is neither lost nor too large"
        else:
            continue
        kept.append(layer.name)
        for step in steps:
            step.kept = reason if step.layer is layer else step.kept
    logarithms = {node for op in tape.ops if op.name == "exp" for node in origin.get(op.inputs[0], ())}
    for step in steps:
        before, after = (sizes[node] for node in (step.site.op.inputs[0], step.site.op.outputs[0]))
        law = step.follow.activation
        if step.follow.gate and law is not None and law.name in GATES and step.site.mask is None and after > 0:
            step.kept = step.kept or "kept: a gate; how far it is open is set by its bias"
        if step.site.op.outputs[0] in logarithms and step.site.mask is None and after > 0:
            step.kept = step.kept or "kept: an exponential follows, which makes a scale of it"
        if law is not None and law.name in WAVES and step.site.op.inputs[0] == 0:
            step.kept = step.kept or "kept: it draws the frequencies of the sine behind it"
        if step.kept or step.layer.name in blocks or step.site.mask is not None:
            continue
        if step.last and before > 0 and not bool(step.site.original.any()):
            step.kept = "kept: the readout starts at zero, which is meant"
        elif kept and after > 1e-6 and (sizes[tape.output] < LOUDEST**2 or not step.last):
            step.kept = "kept: it feeds blocks that are kept, or reads them, at a sound size"
    return frozenset(kept)


def _before_scale(node: int, made_by: Mapping[int, Op]) -> int:
    """The node in front of learnt factors, one for each channel, that end a branch."""
    while (op := made_by.get(node)) is not None and op.meaning.kind in PRODUCTS and op.weights and len(op.inputs) == 1:
        node = op.inputs[0]
    return node


def _sizes(tape: Tape, scores: bool, nodes: list[int]) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Mean squares of these tensors, of their differences between examples, and the std of torch's attention scores."""
    sizes, spread, sharp = dict[int, float](), dict[int, float](), dict[int, float]()
    attentions = {op.inputs[0]: op for op in tape.ops if scores and op.kind == "attention"}

    def look(node: int, tensor: Tensor) -> None:
        values = tensor.detach().double()
        sizes[node] = float(values.square().mean())
        spread[node] = float((values - values.mean(0)).square().mean()) if len(values) > 1 else sizes[node]
        if (op := attentions.get(node)) is not None and (weight := in_projection(op)) is not None:
            q, k, _ = F.linear(values, weight.double()).chunk(3, -1)
            sharp[op.index] = float((q.square().mean() * k.square().mean()).sqrt())

    with torch.no_grad():
        tape.run(tape.x, {node: partial(look, node) for node in (*nodes, *attentions)})
    return sizes, spread, sharp


ENOUGH = 2_000_000  # outputs over which a gain without a rule is estimated: an error of 0.1 to 0.3 %


def noise_gains(tape: Tape, trail: tuple[Op, ...], profile: Tensor | None = None) -> tuple[float, float]:
    """Mean squared gain of noise in the averages among these linear operations, and in the others.

    Two by two averages alone give (0.25, 1.0). ``profile`` is the mean square of the noise at each entry, up to a
    factor; it is broadcast to what goes in.
    """
    if not trail:
        return 1.0, 1.0
    profile = (tape.x.new_ones(()) if profile is None else profile).double()
    flow = Flow(profile.expand(tape.nodes[trail[0].inputs[0]].shape), "other", frozenset())
    squares = [float(flow.square.mean())]
    with contextlib.suppress(NoLaw):
        for op in trail:
            if is_scaling(op):
                flow = replace(flow, square=flow.square * _called(op, torch.ones_like(flow.square)).square())
            else:
                (flow,) = linear(op, flow, flow.square, tape.batch_norm)
            squares.append(float(flow.square.mean()))
    by_rule, parts = len(squares) - 1, [1.0, 1.0]
    noise = squares if by_rule == len(trail) else _of_noise(tape, trail, profile)
    for place, op in enumerate(trail):
        before, after = (squares if place < by_rule else noise)[place : place + 2]
        parts[not is_average(op)] *= after / before if before > 0 else 0.0
    return parts[0], parts[1]


def _of_noise(tape: Tape, trail: tuple[Op, ...], profile: Tensor) -> list[float]:
    """Mean squares of a sample of noise before and behind each operation, up to a factor."""
    source, outputs, squares = generator(0, 0), 0, [0.0] * (len(trail) + 1)
    for _ in range(256):
        noise = torch.randn(tape.nodes[trail[0].inputs[0]].shape, generator=source, dtype=tape.x.dtype)
        noise = noise.to(tape.x.device) * profile.sqrt().to(tape.x.dtype)
        squares[0] += float(noise.double().square().mean())
        for place, op in enumerate(trail):
            noise = _called(op, noise)
            squares[place + 1] += float(noise.double().square().mean())
        outputs += noise.numel()
        if outputs >= ENOUGH:
            break
    return squares


def averages_among(tape: Tape, ops: Iterable[Op]) -> float:
    """The product of the gains of the averages among operations of any kind, each taken alone."""
    return math.prod((noise_gains(tape, (op,))[0] for op in ops if is_average(op)), start=1.0)


def _called(op: Op, noise: Tensor) -> Tensor:
    assert op.call is not None
    result: Tensor = op.call({op.inputs[0]: noise})
    return result
