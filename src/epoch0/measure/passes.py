"""One run of a network with its graph, and all that its gains are estimated from (THEORY section 0).

Between two places J is the Jacobian of the whole batch. For a random direction v of any length E ||J v||^2/||v||^2 is
||J||_F^2/N_in exactly, and E ||J^T g||^2/||g||^2 = ||J||_F^2/N_out, so both estimates have no bias. The way back
through the graph is linear in g, and its derivative along v is J v: no other run is needed.

:func:`signals` describes the batch on its way: the similarity of examples is c of mean-field theory (Hayou B.1).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epoch0.activations import KNOWN
from epoch0.seeds import generator
from epoch0.theory.checks import Array
from epoch0.tracing.layers import Layer
from epoch0.tracing.sizes import squares_by_row, sum_of_squares
from epoch0.tracing.tape import Change, Tape, together

# streams of the seed, one a kind of direction
_TANGENTS, _COTANGENTS, _INPUT_TANGENT, _OUTPUT_COTANGENT = range(4)


class Squares:
    """Squared growth of one kind of direction: for the whole batch, shape (directions, places), and for each example.

    Those of examples, (examples, places), are means over directions, NaN where the first dimension is not examples.
    """

    def __init__(self, directions: int, places: int, examples: int) -> None:
        self.total, self.examples = np.zeros((directions, places)), np.zeros((examples, places))

    def put(self, direction: int, place: int, tensor: Tensor | None, unit: float) -> None:
        """Add the square of a propagated direction, relative to this sum of squares; None stands for zeros."""
        directions, examples = len(self.total), len(self.examples)
        if tensor is not None:
            by_row = tensor.shape[:1] == (examples,)
            rows = squares_by_row(tensor) if by_row else np.full(examples, np.nan)
            self.total[direction, place] = (rows.sum() if by_row else sum_of_squares(tensor)) / unit
            self.examples[:, place] += rows * examples / unit / directions


def _direction(like: Tensor, source: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=source, dtype=like.dtype).to(like.device)


def mean_squares(tape: Tape, nodes: Sequence[int]) -> tuple[dict[int, Array], dict[int, Change]]:
    """Mean square of one unit in each of these tensors, shape (examples,); (1,) where examples do not come first.

    They are filled in by a run with these looks at it.
    """
    found: dict[int, Array] = {}

    def look(node: int, tensor: Tensor) -> None:
        rows = len(tape.x) if tensor.shape[:1] == tape.x.shape[:1] else 1
        found[node] = squares_by_row(tensor.reshape(rows, -1)) * rows / tensor.numel()

    return found, {node: partial(look, node) for node in nodes}


class _Jacobian:
    """J of a segment of the model for the whole batch, in a graph that is kept."""

    def __init__(self, tape: Tape, start: Tensor, ends: Sequence[Tensor]) -> None:
        self.tape, self.start, self.ends = tape, start, ends
        self.zeros = [torch.zeros_like(end, requires_grad=True) for end in ends]

    @cached_property
    def _back(self) -> Tensor | None:
        return self._derivative(self.ends, self.start, self.zeros, retain_graph=True, create_graph=True)[0]

    def _derivative(self, of: Any, to: Any, along: Any, **more: bool) -> Sequence[Tensor | None]:
        with self.tape.backward():
            found: Sequence[Tensor | None] = torch.autograd.grad(of, to, along, allow_unused=True, **more)
        return found

    def forward(self, tangent: Tensor | None) -> Sequence[Tensor | None]:
        """J v at each end: J^T u is linear in u, and this is its derivative."""
        if tangent is None or self._back is None or not self._back.requires_grad:
            return [None] * len(self.ends)
        return self._derivative(self._back, self.zeros, tangent, retain_graph=True)

    def backward(self, cotangent: Tensor) -> Tensor | None:
        """J^T g from the last end."""
        return self._derivative(self.ends[-1], self.start, cotangent, retain_graph=True)[0]


class Travel:
    """Random directions in the order in which layers take them, and the tangents and gradient on their way.

    Whoever measures a model piece by piece gives every piece the same one, in order.
    """

    def __init__(self, directions: int, carried: int, seed: int) -> None:
        self.fresh = [generator(seed, _TANGENTS, d) for d in range(directions)]
        self.back = [generator(seed, _COTANGENTS, d) for d in range(directions)]
        self.alone = generator(seed, 0x616C)  # of what measures single operations
        self.carried, self.seed = carried, seed
        self.moving: list[Tensor | None] = []  # tangents that started at the input; None where nothing arrived
        self.begun: list[float] = []  # mean square of each of them there
        self.gradient: Tensor | None = None  # at the piece's end, if known; after a run with gradients at its start


@dataclass
class Passes:
    """The measurements of one run and of passes through its graph."""

    forward: Squares  # (||J v||^2/n_out) / (||v||^2/n_in), a fresh v for each layer and J that of the layer
    backward: Squares  # ||J^T g||^2/||g||^2 with a fresh g at the end of each layer
    carried: Squares  # as forward, for one v at the input and J from there to each of the nodes
    gradients: dict[int | str, float]  # norm of the gradient at the input, at each of the nodes and of each weight
    loss: float | None  # the loss that they are of


def passes(
    tape: Tape,
    layers: Sequence[Layer],
    directions: int,
    seed: int,
    nodes: Sequence[int] = (),
    loss: Callable[[Any], Tensor] | None = None,
    looks: Mapping[int, Change] | None = None,
    travel: Travel | None = None,
    gradients: bool = True,
) -> Passes:
    """One run with its graph: each layer's own Jacobian both ways, what is carried to nodes, and gradients.

    Tangents start at the input and are measured at the nodes, in order, as are gradients there and of the layers'
    weights; without nodes only each layer's own way back is measured. Without a loss gradients start from random
    cotangents at the output. ``looks`` see tensors without their graph; ``travel`` is what came from the piece of the
    model before this one, or from that behind it; None for no tangents that are carried.
    """
    travel = Travel(directions, 0, seed) if travel is None else travel
    seen: dict[int | str, Tensor] = {}
    kept, looks = {0, *nodes, *(layer.output for layer in layers)}, looks or {}

    def at(node: int, tensor: Tensor) -> Tensor | None:
        if node in looks:
            with torch.no_grad():
                looks[node](tensor.detach())
        if node not in kept:
            return None
        seen[node] = tensor.requires_grad_() if node == 0 else tensor
        return tensor.clone() if node == 0 or node in tape.overwritten else None

    gradients, names = bool(nodes) and gradients, {name for layer in layers for name in layer.weights}
    named = tape.model.named_parameters() if gradients else ()
    weights = {name: weight for name, weight in named if name in names and weight.is_floating_point()}
    for weight in weights.values():
        weight.requires_grad_(True)
    try:
        with torch.enable_grad():
            raw, output = tape.outputs(tape.x, {node: partial(at, node) for node in kept | looks.keys()})
            end = output if loss is None else loss(raw)
            del raw, output
            found = _growth(tape, layers, seen, nodes, travel)
            draws: list[Tensor | None] = [travel.gradient]
            if loss is None and travel.gradient is None:
                draws = [_direction(end, generator(seed, _OUTPUT_COTANGENT, d)) for d in range(directions)]
            wanted: dict[int | str, Tensor] = {node: seen[node] for node in (0, *nodes)} if gradients else {}
            wanted.update(weights)
            squares = np.zeros(len(wanted))
            with tape.backward():
                for place, draw in enumerate(draws if wanted else ()):
                    more = place + 1 < len(draws)
                    pulls = torch.autograd.grad(end, list(wanted.values()), draw, retain_graph=more, allow_unused=True)
                    squares += [0.0 if g is None else sum_of_squares(g) for g in pulls]
                    travel.gradient = pulls[0] if nodes else None
    finally:
        for weight in weights.values():
            weight.requires_grad_(False)
    norms = dict(zip(wanted, np.sqrt(squares / len(draws)).tolist(), strict=True))
    return Passes(*found, norms, None if loss is None else float(end.detach()))


def _growth(
    tape: Tape, layers: Sequence[Layer], seen: Mapping[int | str, Tensor], nodes: Sequence[int], travel: Travel
) -> tuple[Squares, Squares, Squares]:
    """Through one layer after another, in fresh directions and with what came from the input."""
    directions = len(travel.fresh)
    counts = (directions, len(layers)), (directions, len(layers)), (travel.carried, len(nodes))
    forward, backward, travelled = (Squares(*count, len(tape.x)) for count in counts)
    if not travel.begun:
        drawn = [_direction(seen[0], generator(travel.seed, _INPUT_TANGENT, d)) for d in range(travel.carried)]
        travel.moving, travel.begun = [*drawn], [sum_of_squares(tangent) / tangent.numel() for tangent in drawn]
    for place, layer in enumerate(layers):
        stops = [*(node for node in nodes if layer.input < node < layer.output), layer.output]
        start, ends = seen[layer.input], [seen[node] for node in stops]
        jacobian = _Jacobian(tape, start, ends)
        for d in range(directions):
            cotangent = _direction(ends[-1], travel.back[d])
            backward.put(d, place, jacobian.backward(cotangent), sum_of_squares(cotangent))
            if nodes:
                tangent = _direction(start, travel.fresh[d])
                unit = sum_of_squares(tangent) / start.numel() * ends[-1].numel()
                forward.put(d, place, jacobian.forward(tangent)[-1], unit)
        for d in range(travel.carried):
            arrived = jacobian.forward(travel.moving[d])
            travel.moving[d] = arrived[-1]
            for node, passed in zip(stops, arrived, strict=True):
                travelled.put(d, nodes.index(node), passed, travel.begun[d] * seen[node].numel())
    return forward, backward, travelled


# A unit is saturated where a bounded activation is beyond this share of its range, measured from the middle. Fewer
# numbers than UNITS an example say nothing by their cosine: two positive numbers always point the same way.
SATURATION, UNITS = 0.95, 4


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
    """A function that describes the batch at the input and after each layer, L + 1 places, and its hooks for a run."""
    nodes = [layers[0].input, *(layer.output for layer in layers)] if layers else []
    rules = {op.outputs[0]: KNOWN[op.rule.name] for op in tape.ops if op.rule and op.rule.name in KNOWN}
    ranges = {node: rule.bounds for node, rule in rules.items() if rule.bounds is not None}
    seen: dict[int, Signals] = {}
    shares: dict[int, float] = {}

    def look(node: int, tensor: Tensor) -> None:
        values = tensor.detach().double()
        flat = values.flatten(1) if values.dim() > 1 else values[:, None]
        dead, norms, apart = float((flat == 0).all(dim=0).double().mean()), flat.norm(dim=1), math.nan
        unit = flat[norms > 0] / norms[norms > 0, None]
        if len(unit) > 1 and unit.shape[1] >= UNITS:
            # a spread around the mean direction: no pair is formed, and nearly equal directions lose no digits
            apart = float((unit - unit.mean(dim=0)).square().sum() / (len(unit) - 1))
        seen[node] = Signals(float(flat.square().mean().sqrt()), apart, dead, math.nan)

    def share(node: int, low: float, high: float, tensor: Tensor) -> None:
        middle, half = (low + high) / 2, (high - low) / 2
        shares[node] = float(((tensor - middle).abs() >= SATURATION * half).double().mean())

    def found() -> list[Signals]:
        inside = [[shares[node] for node in ranges if layer.input < node <= layer.output] for layer in layers]
        means = [math.nan, *(sum(numbers) / len(numbers) if numbers else math.nan for numbers in inside)]
        return [replace(seen[node], saturated=mean) for node, mean in zip(nodes, means, strict=True)]

    places = {node: partial(look, node) for node in nodes}
    return found, together(places, {node: partial(share, node, *ends) for node, ends in ranges.items()})
