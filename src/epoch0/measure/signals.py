"""What a batch looks like after every layer: its size, how alike its examples are, which units are dead or saturated.

The similarity of examples is the correlation c of mean-field theory (Hayou B.1: c -> c* with depth); gains say how it
moves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from epoch0.activations import KNOWN
from epoch0.tracing.layers import Layer
from epoch0.tracing.tape import Change, Tape, together

SATURATION = 0.95
"""A unit is saturated where a bounded activation is beyond this share of its range, measured from the middle."""

UNITS = 4
"""Fewer numbers than this an example say nothing by their cosine: two positive numbers always point the same way."""


@dataclass(frozen=True)
class Signals:
    """The batch at one place of the model.

    Attributes:
        size: root mean square of a unit over the batch.
        unlikeness: mean over pairs of examples of 1 - cosine; NaN with one example, fewer than 4 units, or zeros only.
        dead: share of units that are zero for every example.
        saturated: share of the units' values that are saturated, over the layer's bounded nonlinearities; NaN without
            any.
    """

    size: float
    unlikeness: float
    dead: float
    saturated: float


def signals(tape: Tape, layers: Sequence[Layer], *others: Mapping[int, Change]) -> list[Signals]:
    """The batch at the input and after each layer, L + 1 places for L layers.

    >>> with tape(mlp([64, 32, 10]), x) as t:                  # x of shape (examples, 64)
    ...     [s.size for s in signals(t, layers(t))]            # input, after layer 1, after layer 2

    Args:
        tape: the record.
        layers: its layers.
        others: what else to look at in the same run.
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

    places = {node: look(node) for node in nodes}
    with torch.no_grad():
        tape.run(tape.x, together(places, {n: share(n, *ends) for found in bounded for n, ends in found}, *others))
    means = [math.nan, *(sum(shares[n] for n, _ in found) / len(found) if found else math.nan for found in bounded)]
    return [replace(seen[node], saturated=mean) for node, mean in zip(nodes, means, strict=True)]


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
