"""Weights of unit scale: drawn from a seed by the parameter's name, or those that are there; and units in pairs.

The scale of a layer is set afterwards, so that a draw with one seed differs by factors only. Torch's own attention gets
orthogonal queries, keys, values, and an output of its share: then its scores have unit size.

In pairs the units of a layer are [z, -z] and the next weights [V, -V]: what goes on is V (phi(z) - phi(-z)), the odd
half of the activation (Balduzzi et al. 2017; Saxe 2014; docs/initialize says what that is good for).
"""

import math
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.initialization.result import LayerInit
from epoch0.initialization.sites import Plan, Step
from epoch0.seeds import generator
from epoch0.theory.mean_field import chi
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer, needed
from epoch0.tracing.tape import Change, Tape

KINDS = ("mirrored", "gaussian", "uniform", "orthogonal", "keep")
_WEIGHTS, _BIASES, _ATTENTION, _NOISE = 0, 1, 2, 6  # streams of a seed


def named(seed: int, stream: int, name: str) -> torch.Generator:
    """The random stream of a parameter: the same whatever other parameters the model has."""
    return generator(seed, stream, zlib.crc32(name.encode()))


def draw_weights(step: Step, weights: str, seed: int) -> None:
    """Fill a step's weights: the kept ones' mean square times fan_in is 1; ``"keep"`` rescales what is there."""
    site = step.site
    if weights == "keep":
        fresh = site.original.clone()
        if site.mask is None and bool((fresh == 0).any()):
            site.mask = fresh != 0  # weights that are zero were pruned
    else:
        fresh = _fresh(step, weights, named(seed, _WEIGHTS, site.name))
    kept = fresh if site.mask is None else fresh * site.mask
    if not (squares := float(kept.double().square().sum())) > 0:
        raise InputError(f"'{site.name}' holds only zeros, which weights='keep' rescales; use weights='gaussian'.")
    scale = math.sqrt(site.view.numel() * site.density / site.fan_in / squares)
    # weights that the model masks itself keep a value behind the mask
    site.view.copy_((kept if site.direct else fresh).double() * scale)


def draw_biases(name: str, shape: torch.Size, pairs: bool, seed: int) -> Tensor:
    """Standard normal biases, float64; opposite in pairs."""
    biases = torch.randn(shape, generator=named(seed, _BIASES, name), dtype=torch.float64)
    return torch.cat([half := biases[: shape[0] // 2], -half]) if pairs else biases


def _fresh(step: Step, weights: str, source: torch.Generator) -> Tensor:
    site, shape = step.site, step.site.view.shape
    if weights == "gaussian":
        return torch.randn(shape, generator=source, dtype=torch.float64).to(site.view.device)
    if weights == "uniform":
        return torch.rand(shape, generator=source, dtype=torch.float64).mul(2).sub(1).to(site.view.device)
    fresh = torch.empty(shape, dtype=torch.float64)
    groups, rows, columns, *places = (units := site.by_unit(fresh)).shape
    # of pairs only one half is drawn, and the other is its opposite
    rows, columns = rows // (2 if step.half else 1), columns // (2 if step.paired else 1)
    each = torch.stack([orthogonal(rows, columns * math.prod(places), source) for _ in range(groups)])
    each = each.reshape(groups, rows, columns, *places)
    each = torch.cat([each, -each], 2) if step.paired else each
    units.copy_(torch.cat([each, -each], 1) if step.half else each)
    return fresh.to(site.view.device)


def orthogonal(rows: int, columns: int, source: torch.Generator) -> Tensor:
    """Orthonormal rows, or columns where there are more rows than columns; uniformly distributed."""
    q = torch.empty(max(rows, columns), min(rows, columns), dtype=torch.float64)
    nn.init.orthogonal_(q, generator=source)
    return q if rows >= columns else q.T


def draw_attentions(tape: Tape, layers: tuple[Layer, ...], plan: Plan, seed: int) -> tuple[list[LayerInit], list[str]]:
    """Fill the parameters of the attentions of residual blocks that are not kept; biases become 0."""
    rows, changed = list[LayerInit](), list[str]()
    blocks = [layer for layer in layers if layer.kind == "residual block" and layer.name not in plan.kept]
    for block, op in [(layer.name, op) for layer in blocks for op in layer.events]:
        if in_projection(op) is None or op.call is None:
            continue
        for place, parts, gain in ((5, 3, 1.0), (11, 1, 1 / max(plan.blocks, 1))):
            values = [value.detach() for value in op.call.args[place : place + 2] if isinstance(value, Tensor)]
            if not all(names := [tape.name_of(value) for value in values]) or plan.frozen.intersection(names):
                continue
            weight, size = values[0], values[0].shape[1]
            before = float(weight.double().square().mean().sqrt()) * size**0.5
            source = named(seed, _ATTENTION, names[0])
            weight.copy_(torch.cat([orthogonal(size, size, source) for _ in range(parts)]) * gain**0.5)
            for bias in values[1:]:
                bias.zero_()
            words = "queries, keys and values of unit size" if parts > 1 else "ends a branch"
            stds = size, 1.0, before, gain**0.5, 0.0, float("nan")
            rows.append(LayerInit(names[0], op.module, block, "attention", "none", *stds, gain, None, None, words))
            changed += names
    return rows, changed


def in_projection(op: Op) -> Tensor | None:
    """The stacked weights of queries, keys and values of torch's own attention on one sequence; None for any other."""
    if op.call is None or op.call.function is not F.multi_head_attention_forward or len(op.inputs) != 1:
        return None
    weight = op.call.args[5] if len(op.call.args) > 11 else None
    return weight.detach() if isinstance(weight, Tensor) and weight.shape[0] == 3 * weight.shape[1] else None


INPUT = -1  # among the origins of a tensor: the input itself
LEAST = 0.25  # share of an activation's mean squared slope that its odd half must have for pairs to be worth it
FEWEST = 4  # units of a layer that is paired: two would carry one number


@lru_cache(maxsize=64)
def odd_half(phi: Activation) -> Activation | None:
    """(phi(h) - phi(-h)) / sqrt(2), which pairs pass on; None if phi is odd already, or nearly even."""
    h = np.linspace(0.05, 4, 80)
    if float(np.abs(phi.function(h) + phi.function(-h)).max()) < 1e-6:
        return None
    if phi.slopes is not None and phi.breaks in ((), (0.0,)):
        breaks: tuple[float, ...] = ()
        slopes: tuple[float, ...] | None = ((phi.slopes[0] + phi.slopes[-1]) / 2**0.5,)
    else:
        breaks, slopes = tuple(sorted({*phi.breaks, *(-point for point in phi.breaks)})), None
    others = breaks, slopes, phi.parameters, phi
    half = Activation(
        f"odd half of {phi.name}",
        lambda h: np.asarray((phi.function(h) - phi.function(-np.asarray(h))) / 2**0.5),
        lambda h: np.asarray((phi.derivative(h) + phi.derivative(-np.asarray(h))) / 2**0.5),
        *others,
    )
    return half if float(chi(half, 1.0, 1.0)) > LEAST * float(chi(phi, 1.0, 1.0)) else None


def swapped(tensor: Tensor, kind: str) -> Tensor:
    """The halves of the units exchanged, of a tensor that goes into a weighted operation of this kind or comes out."""
    return tensor.roll(tensor.shape[_axis(kind)] // 2, _axis(kind))


def _axis(kind: str) -> int:
    return 1 if kind == "convolution" else -1


Origins = Mapping[int, frozenset[int]]


def origins(tape: Tape) -> dict[int, frozenset[int]]:
    """For each tensor the outputs of the last weighted operations that it is made from; :data:`INPUT` for the input."""
    found = {0: frozenset([INPUT])}
    for event in needed(tape):
        behind = frozenset[int]().union(*(found.get(node, frozenset()) for node in event.inputs))
        found.update({node: frozenset([node]) if event.kind else behind for node in event.outputs})
    return found


def pair_up(tape: Tape, steps: list[Step], origin: Origins) -> None:
    """Mark the steps whose units become pairs, and those whose inputs then are.

    A pair must stay one on its way: with the halves of the units exchanged, what the next step gets must be exchanged
    likewise. All steps are tried at once, in two runs on noise.
    """
    uses = Counter(s.site.name for s in steps)
    single = [s for s in steps if s.site.mask is None and s.site.groups == 1 and not s.kept and uses[s.site.name] == 1]
    able: dict[int, Step] = {}
    for step in single:
        shape, phi = tape.nodes[step.site.op.outputs[0]].shape, step.follow.activation
        units = shape[_axis(step.site.op.kind)]
        paired = units % 2 == 0 and units >= FEWEST and not step.follow.gate
        if phi is not None and paired and odd_half(phi) is not None:
            able[step.site.op.outputs[0]] = step
    one, two = (_on_noise(tape, able, {s.site.op.inputs[0] for s in single}, turn) for turn in (False, True))
    fits = {id(s.site.op): s for s in single if _exchanged(s, one, two)}
    while True:
        fits = {key: s for key, s in fits.items() if origin[s.site.op.inputs[0]] <= able.keys()}
        spoiled = set(origin[tape.output])
        for op in needed(tape):
            if op.kind and id(op) not in fits:
                spoiled = spoiled.union(*(origin.get(node, ()) for node in op.inputs))
        if not spoiled & able.keys():
            break
        able = {node: step for node, step in able.items() if node not in spoiled}
    for step in able.values():
        assert step.follow.activation is not None
        step.half = odd_half(step.follow.activation)
    for step in fits.values():
        step.paired = True


def _on_noise(tape: Tape, able: Mapping[int, Step], inputs: set[int], swap: bool) -> dict[int, Tensor]:
    """Inputs of the steps when the steps before them put out noise, or the same noise with its halves exchanged."""
    taken: dict[int, Tensor] = {}

    def put(node: int, step: Step, tensor: Tensor) -> Tensor:
        noise = torch.randn(tensor.shape, generator=generator(0, _NOISE, node), dtype=tensor.dtype).to(tensor.device)
        return swapped(noise, step.site.op.kind) if swap else noise

    def look(node: int, tensor: Tensor) -> None:
        taken[node] = tensor.detach().clone()

    looks: dict[int, Change] = {node: partial(look, node) for node in inputs}
    with torch.no_grad():
        tape.run(tape.x, looks | {node: partial(put, node, step) for node, step in able.items()})
    return taken


def _exchanged(step: Step, one: Mapping[int, Tensor], two: Mapping[int, Tensor]) -> bool:
    node, kind = step.site.op.inputs[0], step.site.op.kind
    if node not in one or one[node].shape[_axis(kind)] % 2:
        return False
    close = 1e-4 * float(one[node].abs().max())
    same = torch.allclose(swapped(one[node], kind), two[node], rtol=1e-3, atol=close)
    return same and not torch.allclose(one[node], two[node], rtol=1e-3, atol=close)
