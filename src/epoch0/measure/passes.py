"""The passes over a network that its gains are estimated from (THEORY section 0).

Between two stations J is the Jacobian of the whole batch. For a random direction v of any length E ||J v||^2/||v||^2
is the mean squared singular value ||J||_F^2/N_in exactly, and E ||J^T g||^2/||g||^2 = ||J||_F^2/N_out, so both
estimates below have the mean ||J||_F^2/N_out without any bias. Each pass serves all layers: every station gets its
own fresh direction.

:func:`signals` tells what the batch looks like on its way: the similarity of examples is the correlation c of
mean-field theory (Hayou B.1: c -> c* with depth).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from numpy.typing import NDArray
from torch import Tensor

from epoch0.activations import KNOWN
from epoch0.seeds import generator
from epoch0.tracing.failures import NoForwardDerivative
from epoch0.tracing.layers import Layer
from epoch0.tracing.sizes import squares_by_row, sum_of_squares
from epoch0.tracing.tape import Change, Tape, together

Array = NDArray[np.float64]


@runtime_checkable
class Station(Protocol):
    """A place where the passes look: a layer, or a place within one."""

    @property
    def output(self) -> int:
        """The node that is looked at."""

    @property
    def weights(self) -> tuple[str, ...]:
        """The parameters whose gradients are measured."""


# streams of the seed, one a kind of direction
_TANGENTS, _COTANGENTS, _INPUT_TANGENT, _OUTPUT_COTANGENT = range(4)


@dataclass
class Squares:
    """Squared stretches of one kind, by direction and layer."""

    total: Array  # ratio for the whole batch, shape (directions, layers)
    # the same with the share of each example alone, shape (examples, layers), averaged over directions; NaN
    # where the first dimension of a station is not the examples
    examples: Array = field(repr=False)


def _by_example(tensor: Tensor | None, examples: int) -> Array:
    if tensor is None or tensor.shape[:1] != (examples,):
        return np.full(examples, 0.0 if tensor is None else np.nan)
    return squares_by_row(tensor)


def _direction(like: Tensor, source: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=source, dtype=like.dtype).to(like.device)


def mean_squares(tape: Tape, nodes: Sequence[int]) -> tuple[dict[int, Array], dict[int, Change]]:
    """Mean square of one unit in each of these tensors, shape (examples,); (1,) where examples do not come first.

    Returns:
        The mean squares by node, filled in by a run with these looks at it.
    """
    found: dict[int, Array] = {}

    def look(node: int) -> Change:
        def change(tensor: Tensor) -> None:
            rows = len(tape.x) if tensor.shape[:1] == tape.x.shape[:1] else 1
            found[node] = squares_by_row(tensor.reshape(rows, -1)) * rows / tensor.numel()

        return change

    return found, {node: look(node) for node in nodes}


class _Stretch:
    """Mean squares a unit of what one tangent became at the end of each layer, relative to what it started as."""

    def __init__(self, examples: int, source: torch.Generator) -> None:
        self.examples, self.source, self.scale = examples, source, 0.0
        self.total: list[float] = []
        self.single: list[Array] = []

    def draw(self, like: Tensor) -> Tensor:
        direction = _direction(like, self.source)
        self.scale = sum_of_squares(direction) / direction.numel()
        return direction

    def add(self, tangent: Tensor | None, like: Tensor) -> None:
        self.total.append(0.0 if tangent is None else sum_of_squares(tangent) / like.numel() / self.scale)
        self.single.append(_by_example(tangent, self.examples) * self.examples / like.numel() / self.scale)


def _dual_pass(tape: Tape, layers: Sequence[Station], source: torch.Generator, fresh: bool) -> _Stretch:
    """One forward pass with dual numbers; a fresh tangent for each layer, or one from the input through all."""
    found = _Stretch(len(tape.x), source)

    def start(tensor: Tensor) -> Tensor:
        dual: Tensor = forward_ad.make_dual(tensor, found.draw(tensor))
        return dual

    def end(last: bool) -> Change:
        def change(tensor: Tensor) -> Tensor | None:
            primal, tangent = forward_ad.unpack_dual(tensor)
            found.add(tangent, primal)
            return None if last or not fresh else start(primal.clone())

        return change

    with torch.no_grad(), forward_ad.dual_level():
        looks = {0: start, **{layer.output: end(layer is layers[-1]) for layer in layers}}
        replace(tape, duals=True).run(tape.x, looks)
    return found


def _twice_backward(tape: Tape, layers: Sequence[Station]) -> Callable[[torch.Generator, bool], _Stretch]:
    """The same without forward derivatives: J^T u is linear in u, and its derivative along v is J v."""
    with torch.enable_grad():
        starts, ends = _cut(tape, layers)
        zeros = [torch.zeros_like(end, requires_grad=True) for end in ends]
        with tape.backward():
            back = torch.autograd.grad(ends, starts, zeros, create_graph=True, allow_unused=True)

    def one_pass(source: torch.Generator, fresh: bool) -> _Stretch:
        found = _Stretch(len(tape.x), source)
        tangent: Tensor | None = found.draw(starts[0])
        for place, (pulled, zero) in enumerate(zip(back, zeros, strict=True)):
            if fresh and place:
                tangent = found.draw(starts[place])
            if pulled is None or tangent is None or not pulled.requires_grad:
                tangent = None
            else:
                with tape.backward():
                    (tangent,) = torch.autograd.grad(pulled, zero, tangent, retain_graph=True, allow_unused=True)
            found.add(tangent, zero)
        return found

    return one_pass


def forward_squares(
    tape: Tape, layers: Sequence[Station], directions: int, seed: int, *, fresh: bool, everywhere: bool = False
) -> Squares:
    """(||J v||^2/n_out) / (||v||^2/n_in), one forward pass a direction for all layers.

    With a fresh v for each layer J is its own Jacobian; otherwise one v starts at the input, and J is the Jacobian from
    there. Where stations may lie within layers, ``everywhere``, there is no answer without forward derivatives.
    """
    stream = _TANGENTS if fresh else _INPUT_TANGENT
    try:
        passes = [_dual_pass(tape, layers, generator(seed, stream, d), fresh) for d in range(directions)]
    except NoForwardDerivative:
        if everywhere:
            raise
        one_pass = _twice_backward(tape, layers)
        passes = [one_pass(generator(seed, stream, d), fresh) for d in range(directions)]
    examples = np.mean([one.single for one in passes], axis=0).T
    return Squares(np.array([one.total for one in passes]), examples)


def _cut(tape: Tape, layers: Sequence[Station]) -> tuple[list[Tensor], list[Tensor]]:
    """Run with the graph cut at every station: where each layer starts and where it ends, with a graph of its own."""
    starts: list[Tensor] = []
    ends: list[Tensor] = []

    def restart(tensor: Tensor) -> Tensor:
        starts.append(tensor.detach().requires_grad_())
        return starts[-1].clone()  # a leaf must not be changed in place

    def cut(last: bool) -> Change:
        def change(tensor: Tensor) -> Tensor | None:
            ends.append(tensor)
            return None if last else restart(tensor)

        return change

    tape.run(tape.x, {0: restart, **{layer.output: cut(layer is layers[-1]) for layer in layers}})
    return starts, ends


def _backward_squares(tape: Tape, pairs: Sequence[tuple[Tensor, Tensor]], directions: int, seed: int) -> Squares:
    """||J^T g||^2/||g||^2 with a fresh g at the end of each layer, through the graph of a run that is kept."""
    examples, total, single = len(tape.x), [], []
    for d in range(directions):
        source = generator(seed, _COTANGENTS, d)
        total.append(list[float]())
        single.append(list[Array]())
        for start, end in pairs:
            cotangent = _direction(end, source)
            (back,) = torch.autograd.grad(end, start, cotangent, retain_graph=True, allow_unused=True)
            scale = sum_of_squares(cotangent)
            total[d].append(0.0 if back is None else sum_of_squares(back) / scale)
            single[d].append(_by_example(back, examples) * examples / scale)
    return Squares(np.array(total), np.mean(single, axis=0).T)


@dataclass
class Backward:
    """What one run and the ways back through its graph say."""

    norms: list[float]  # of the gradient at the input and at the end of each station
    weights: dict[str, float]  # norm of the gradient of each weight
    squares: Squares  # ||J^T g||^2/||g||^2 with a fresh g at the end of each layer


def backward_pass(
    tape: Tape, layers: Sequence[Layer], stations: Sequence[Station], loss: Callable[[Any], Tensor] | None,
    directions: int, seed: int, looks: Mapping[int, Change] | None = None,
) -> Backward:  # fmt: skip
    """One run with its graph: the gradient at the input, at stations and of weights, and each layer's own Jacobian.

    Args:
        tape: the record.
        layers: its layers, which are among the stations.
        stations: where the gradient is measured, in order.
        loss: of what the model returns; without it gradients start from random cotangents at the output.
        directions: how many random cotangents.
        seed: of the directions.
        looks: what else to look at in this run; it sees tensors without their graph.
    """
    seen: dict[int, Tensor] = {}
    nodes, looks = (0, *(station.output for station in stations)), looks or {}

    def at(node: int) -> Change:
        def change(tensor: Tensor) -> Tensor | None:
            if node in looks:
                with torch.no_grad():
                    looks[node](tensor.detach())
            if node not in nodes:
                return None
            seen[node] = tensor.requires_grad_() if node == 0 else tensor
            return tensor.clone() if node == 0 or node in tape.overwritten else None

        return change

    names = dict.fromkeys(name for station in stations for name in station.weights)
    weights = {name: p for name, p in tape.model.named_parameters() if name in names and p.is_floating_point()}
    for weight in weights.values():
        weight.requires_grad_(True)
    try:
        with torch.enable_grad():
            raw, output = tape.outputs(tape.x, {node: at(node) for node in {*nodes, *looks}})
            end = output if loss is None else loss(raw)
            draws: list[Tensor | None] = [None]
            if loss is None:
                draws = [_direction(end, generator(seed, _OUTPUT_COTANGENT, d)) for d in range(directions)]
            del raw, output
            sums = np.zeros(len(nodes) + len(weights))
            with tape.backward():
                ends = [(seen[layer.input], seen[layer.output]) for layer in layers]
                squares = _backward_squares(tape, ends, directions, seed)
                wanted = [*(seen[node] for node in nodes), *weights.values()]
                for place, draw in enumerate(draws):
                    more = place + 1 < len(draws)
                    gradients = torch.autograd.grad(end, wanted, draw, retain_graph=more, allow_unused=True)
                    sums += [0.0 if g is None else sum_of_squares(g) for g in gradients]
    finally:
        for weight in weights.values():
            weight.requires_grad_(False)
    norms = [float(n) for n in np.sqrt(sums / len(draws))]
    return Backward(norms[: len(nodes)], dict(zip(weights, norms[len(nodes) :], strict=True)), squares)


SATURATION = 0.95
"""A unit is saturated where a bounded activation is beyond this share of its range, measured from the middle."""

UNITS = 4
"""Fewer numbers than this an example say nothing by their cosine: two positive numbers always point the same way."""


@dataclass(frozen=True)
class Signals:
    """The batch at one place of the model."""

    size: float  # root mean square of a unit over the batch
    # mean over pairs of examples of 1 - cosine; NaN with one example, fewer than 4 units, or zeros only
    dissimilarity: float
    dead: float  # share of units that are zero for every example
    # share of the units' values that are saturated, over the layer's bounded nonlinearities; NaN without any
    saturated: float


def signals(tape: Tape, layers: Sequence[Layer]) -> tuple[Callable[[], list[Signals]], dict[int, Change]]:
    """The batch at the input and after each layer, L + 1 places for L layers.

    Returns:
        What tells them after a run with these looks at it.
    """
    bounded = _bounded_outputs(tape, layers)
    nodes = [layers[0].input, *(layer.output for layer in layers)] if layers else []
    seen: dict[int, Signals] = {}
    shares: dict[int, float] = {}

    def look(node: int) -> Change:
        def change(tensor: Tensor) -> None:
            seen[node] = _look(tensor)

        return change

    def share(node: int, low: float, high: float) -> Change:
        def change(tensor: Tensor) -> None:
            shares[node] = _saturated(tensor, low, high)

        return change

    def found() -> list[Signals]:
        means = [math.nan, *(sum(shares[n] for n, _ in some) / len(some) if some else math.nan for some in bounded)]
        return [replace(seen[node], saturated=mean) for node, mean in zip(nodes, means, strict=True)]

    places = {node: look(node) for node in nodes}
    return found, together(places, {n: share(n, *ends) for some in bounded for n, ends in some})


def _bounded_outputs(tape: Tape, layers: Sequence[Layer]) -> list[list[tuple[int, tuple[float, float]]]]:
    """Outputs of the bounded nonlinearities of each layer, which holds the nodes between its input and its output."""
    ranges = {op.outputs[0]: KNOWN[op.rule.name].bounds for op in tape.ops if op.rule and op.rule.name in KNOWN}
    bounded = [(node, bounds) for node, bounds in ranges.items() if bounds is not None]
    return [[each for each in bounded if layer.input < each[0] <= layer.output] for layer in layers]


def _look(values: Tensor) -> Signals:
    flat = values.detach().double().flatten(1) if values.dim() > 1 else values.detach().double()[:, None]
    dead = float((flat == 0).all(dim=0).double().mean())
    return Signals(float(flat.square().mean().sqrt()), _unlikeness(flat), dead, math.nan)


def _unlikeness(flat: Tensor) -> float:
    """Mean of 1 - cosine over pairs, from the mean direction: no pair is formed; zero examples are left out."""
    norms = flat.norm(dim=1)
    flat = flat[norms > 0] / norms[norms > 0, None]
    count = len(flat)
    if count < 2 or flat.shape[1] < UNITS:
        return math.nan
    # written as a spread around the mean direction, so that nearly equal directions lose no digits
    mean = flat.mean(dim=0)
    return float((flat - mean).square().sum() / (count - 1))


def _saturated(values: Tensor, low: float, high: float) -> float:
    middle, half = (low + high) / 2, (high - low) / 2
    return float(((values - middle).abs() >= SATURATION * half).double().mean())
