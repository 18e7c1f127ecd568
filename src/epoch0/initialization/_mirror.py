"""Units in pairs of opposite weights, so that the next layer sees the odd half of the activation only.

The units of a layer are [z, -z] and the next weights [V, -V]: what goes on is V (phi(z) - phi(-z)), and for ReLU, GELU,
SiLU and softplus phi(z) - phi(-z) is z itself. The even half, which draws all examples together with depth and makes
gradients of batch norm explode, is gone, and with V orthogonal no direction is lost (Balduzzi et al. 2017, "looks
linear"; Saxe et al. 2014).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from epoch0.activations import Activation
from epoch0.initialization._steps import Step
from epoch0.seeds import generator
from epoch0.theory.mean_field import chi
from epoch0.tracing.layers import needed
from epoch0.tracing.tape import Change, Tape

INPUT = -1
"""Among the origins of a tensor: the input itself."""

LEAST = 0.25
"""Share of an activation's mean squared slope that its odd half must have for pairs to be worth it."""

FEWEST = 4
"""Units of a layer that is paired: two would carry one number."""

_NOISE = 6


@lru_cache(maxsize=64)
def odd_half(phi: Activation) -> Activation | None:
    """(phi(h) - phi(-h)) / sqrt(2), which is what pairs hand on; None if phi is odd already, or nearly even.

    >>> odd_half(activations.get("relu")).derivative(np.array([-1.0, 2.0]))
    array([0.70710678, 0.70710678])
    """
    h = np.linspace(0.05, 4, 80)
    if float(np.abs(phi.function(h) + phi.function(-h)).max()) < 1e-6:
        return None
    if phi.slopes is not None and phi.breaks in ((), (0.0,)):
        breaks: tuple[float, ...] = ()
        slopes: tuple[float, ...] | None = ((phi.slopes[0] + phi.slopes[-1]) / 2**0.5,)
    else:
        breaks, slopes = tuple(sorted({*phi.breaks, *(-point for point in phi.breaks)})), None
    half = Activation(
        f"odd half of {phi.name}",
        lambda h: np.asarray((phi.function(h) - phi.function(-np.asarray(h))) / 2**0.5),
        lambda h: np.asarray((phi.derivative(h) + phi.derivative(-np.asarray(h))) / 2**0.5),
        breaks, slopes, phi.parameters, phi,
    )  # fmt: skip
    return half if float(chi(half, 1.0, 1.0)) > LEAST * float(chi(phi, 1.0, 1.0)) else None


def swapped(tensor: Tensor, kind: str) -> Tensor:
    """The halves of the units exchanged, of a tensor that goes into a weighted operation of this kind or comes out."""
    axis = _axis(kind, tensor.dim())
    return tensor.roll(tensor.shape[axis] // 2, axis)


def _axis(kind: str, dims: int) -> int:
    return 1 if kind == "convolution" else dims - 1


def origins(tape: Tape) -> dict[int, frozenset[int]]:
    """For each tensor the outputs of the last weighted operations that it is made from; :data:`INPUT` for the input."""
    found = {0: frozenset([INPUT])}
    for event in needed(tape):
        behind = frozenset[int]().union(*(found.get(node, frozenset()) for node in event.inputs))
        found.update({node: frozenset([node]) if event.kind else behind for node in event.outputs})
    return found


def pair_up(tape: Tape, steps: list[Step], origin: Mapping[int, frozenset[int]]) -> None:
    """Mark the steps whose units become pairs, and those whose inputs then are.

    A pair must stay one on its way: with the halves of the units exchanged, what the next step gets must be exchanged
    likewise. All steps are tried at once, in two runs on noise.

    Args:
        tape: the record.
        steps: all steps, in order; those that are kept take no part.
        origin: what :func:`origins` found.
    """
    single = [s for s in steps if s.site.mask is None and s.site.groups == 1 and not s.kept and not s.shared]
    able: dict[int, Step] = {}
    for step in single:
        shape, phi = tape.nodes[step.site.op.outputs[0]].shape, step.follow.activation
        units = shape[_axis(step.site.op.kind, len(shape))]
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
    """What goes into the steps when the outputs of those before are noise, or the same with halves exchanged."""
    got: dict[int, Tensor] = {}

    def put(node: int, step: Step) -> Change:
        def change(tensor: Tensor) -> Tensor:
            source = generator(0, _NOISE, node)
            noise = torch.randn(tensor.shape, generator=source, dtype=tensor.dtype).to(tensor.device)
            return swapped(noise, step.site.op.kind) if swap else noise

        return change

    def look(node: int) -> Change:
        return lambda tensor: got.update({node: tensor.clone()})

    looks: dict[int, Change] = {node: look(node) for node in inputs if node not in able}
    with torch.no_grad():
        tape.run(tape.x, looks | {node: put(node, step) for node, step in able.items()})
    return got


def _exchanged(step: Step, one: Mapping[int, Tensor], two: Mapping[int, Tensor]) -> bool:
    node, kind = step.site.op.inputs[0], step.site.op.kind
    if node not in one or one[node].shape[_axis(kind, one[node].dim())] % 2:
        return False
    close = 1e-4 * float(one[node].abs().max())
    same = torch.allclose(swapped(one[node], kind), two[node], rtol=1e-3, atol=close)
    return same and not torch.allclose(one[node], two[node], rtol=1e-3, atol=close)
