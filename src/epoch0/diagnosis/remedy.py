"""What to change: the factor on each layer's weights that brings its gain to 1, found by measuring.

For a homogeneous activation without biases the factor is chi^(-1/2), exactly; for any other layer it is the
fixed point of that rule, since scaling a layer moves the signals of all layers after it. Residual blocks and
normalised layers
have no such factor, and say so; for residual blocks 1/sqrt(blocks) on the branches is tried instead (Hayou
Proposition 2).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epoch0.measure._branches import branch
from epoch0.seeds import generator
from epoch0.tracing.forward_derivatives import jvp
from epoch0.tracing.guard import unchanged
from epoch0.tracing.layers import Layer
from epoch0.tracing.tape import Tape

ROUNDS = 12
"""Rounds of rescaling and measuring before a layer counts as out of reach; homogeneous layers need one."""

CLOSE = 0.005
"""A round leaves a layer alone when its log gain is this small, in the directions used for the search."""

REACH = 50.0
"""Factors beyond this, or below one over it, are no advice: the layer's gain does not follow its weights."""

PROBE = 2.0
"""Normalised layers are tried with their weights times this."""

FOLLOWS = 0.3
"""Share of the change by PROBE squared, in logs, from which a gain follows its weights. A norm after the weights leaves
a little, through biases and its epsilon; weights with no norm after them give 1."""

Gains = tuple[list[float], list[float]]
"""Forward gain of each layer and its standard error."""


@dataclass(frozen=True)
class Branches:
    """What scaling all residual branches by one number does.

    Attributes:
        blocks: number of residual blocks.
        factor: 1/sqrt(blocks).
        before: log of the forward gain from the first block's input to the last block's output, as the model is.
        after: the same with every branch multiplied by the factor.
    """

    blocks: int
    factor: float
    before: float
    after: float


@dataclass(frozen=True)
class Remedy:
    """The factors, and what was measured with them in place.

    Attributes:
        factors: for each layer the number its weights are multiplied by, None where no number works.
        reasons: why there is none, empty where there is one.
        gains: forward gain of each layer with all factors in place, measured in fresh directions.
        errors: standard error of each.
        branches: the remedy of residual blocks, None without any.
    """

    factors: tuple[float | None, ...]
    reasons: tuple[str, ...]
    gains: tuple[float, ...]
    errors: tuple[float, ...]
    branches: Branches | None

    @property
    def reached(self) -> tuple[bool, ...]:
        """Whether each layer has a factor with which its gain was 1, within three standard errors or 5 percent."""
        pairs = zip(self.factors, self.gains, self.errors, strict=True)
        return tuple(f is not None and abs(g - 1) <= max(3 * e, 0.05) for f, g, e in pairs)


@contextmanager
def scaled(net: nn.Module, factors: dict[str, float]) -> Iterator[None]:
    """Lend the model with some parameters multiplied; afterwards every bit is as it was.

    >>> with scaled(net, {"0.weight": 2.0}):
    ...     net(x)                                              # x of shape (examples, ...)
    """
    with unchanged(net):
        parameters = dict(net.named_parameters(remove_duplicate=False))
        for name, factor in factors.items():
            parameters[name].data.mul_(factor)
        yield


def find_remedy(
    net: nn.Module, layers: Sequence[Layer], start: Gains, measure: Callable[[int], Gains], branches: Branches | None
) -> Remedy:
    """The factor of each layer.

    >>> find_remedy(net, layers, measure(0), measure, None).factors          # a ReLU net with chi = 1/6 in each layer
    (2.449, 2.449, 2.449)

    Args:
        net: the model; it is scaled while it is measured, and put back.
        layers: its layers.
        start: gains of the model as it is.
        measure: measures the model's gains as it stands, in the directions named by a number; 0 are those of `start`.
        branches: what :func:`try_branches` found.
    """
    matrices = [matrices_of(net, layer) for layer in layers]
    reasons = [_refusal(layer, names, gain) for layer, names, gain in zip(layers, matrices, start[0], strict=True)]
    _refuse_scale_free(net, layers, matrices, reasons, start, measure)
    groups = _groups(matrices, reasons)
    logs = [0.0] * len(layers)

    def in_place() -> dict[str, float]:
        return {name: math.exp(logs[group[0]]) for group in groups for layer in group for name in matrices[layer]}

    gains = start[0]
    for _ in range(ROUNDS):
        steps = {group[0]: _step(group, layers, gains) for group in groups}
        if all(abs(step) <= CLOSE / 2 for step in steps.values()):
            break
        for group in groups:
            for layer in group:
                logs[layer] = max(-math.log(REACH), min(math.log(REACH), logs[layer] + steps[group[0]]))
        with scaled(net, in_place()):
            gains = measure(0)[0]
    for group in groups:
        for layer in group:
            if abs(logs[layer]) >= math.log(REACH) * 0.999:
                reasons[layer] = "no factor within reach brings its gain to 1"
                logs[layer] = 0.0
    groups = [group for group in groups if not reasons[group[0]]]
    with scaled(net, in_place()):
        after, errors = measure(1)
    factors = tuple(None if reason else math.exp(log) for reason, log in zip(reasons, logs, strict=True))
    return Remedy(factors, tuple(reasons), tuple(after), tuple(errors), branches)


def _step(group: Sequence[int], layers: Sequence[Layer], gains: Sequence[float]) -> float:
    """Change of the log factor: half the log gain, shared by the layer's weighted operations; a group's mean."""
    each = [-0.5 * math.log(gains[i]) / max(layers[i].weighted, 1) if gains[i] > 0 else 0.0 for i in group]
    return sum(each) / len(each)


def matrices_of(net: nn.Module, layer: Layer) -> list[str]:
    """Names of the layer's weights: its parameters of two or more dimensions, which biases and norms have not."""
    parameters = dict(net.named_parameters(remove_duplicate=False))
    return [name for name in layer.weights if name in parameters and parameters[name].dim() >= 2]


def _refusal(layer: Layer, matrices: Sequence[str], gain: float) -> str:
    if layer.kind == "residual block":
        return "residual block: its gain is that of the shortcut plus that of the branch"
    if not matrices:
        return "no weights to scale"
    if not gain > 0 or not math.isfinite(gain):
        return "nothing passes through"
    return ""


def _refuse_scale_free(
    net: nn.Module,
    layers: Sequence[Layer],
    matrices: Sequence[list[str]],
    reasons: list[str],
    start: Gains,
    measure: Callable[[int], Gains],
) -> None:
    """Find the layers whose gain stays the same when their weights double: their norm undoes any scale."""
    suspects = [i for i, layer in enumerate(layers) if layer.has_norm and not reasons[i]]
    if not suspects:
        return
    with scaled(net, {name: PROBE for i in suspects for name in matrices[i]}):
        doubled = measure(0)[0]
    for i in suspects:
        if doubled[i] > 0 and abs(math.log(doubled[i] / start[0][i])) < FOLLOWS * 2 * math.log(PROBE):
            reasons[i] = "the norm undoes any scale of the weights"


def _groups(matrices: Sequence[list[str]], reasons: Sequence[str]) -> list[list[int]]:
    """Layers that share weights move together; all others are alone."""
    groups: list[list[int]] = []
    for index, names in enumerate(matrices):
        if reasons[index]:
            continue
        group = next((g for g in groups if any(set(names) & set(matrices[i]) for i in g)), None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    return groups


def try_branches(tape: Tape, layers: Sequence[Layer], directions: int, seed: int) -> Branches | None:
    """Measure what multiplying every residual branch by 1/sqrt(blocks) would do; None if no block is found.

    Source: Hayou et al. 2021, Proposition 2 (Stable ResNet).
    """
    blocks = [layer for layer in layers if layer.kind == "residual block"]
    found = [branch(tape, layer) for layer in blocks]
    sums = [one for one in found if one is not None]
    if not sums or len(sums) < len(blocks):
        return None
    ends, factor = [one.node for one in sums], 1 / math.sqrt(len(sums))
    first, last = blocks[0].input, sums[-1].total
    before = _log_gain(tape, first, last, {}, directions, seed)
    after = _log_gain(tape, first, last, dict.fromkeys(ends, factor), directions, seed)
    return Branches(len(ends), factor, before, after)


def _log_gain(tape: Tape, start: int, end: int, factors: dict[int, float], directions: int, seed: int) -> float:
    """Log of the mean squared stretch a unit between two nodes, with some nodes multiplied, over random directions."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        seen: dict[int, Tensor] = {}

        def change(node: int) -> Callable[[Tensor], Tensor]:
            def changed(tensor: Tensor) -> Tensor:
                tensor = tensor * factors.get(node, 1.0)
                seen[node] = tensor
                return tensor

            return changed

        tape.run(x, {node: change(node) for node in {start, end, *factors}})
        return seen[start], seen[end]

    squares = torch.zeros(2, dtype=torch.float64)
    for direction in range(directions):
        v = torch.randn(tape.x.shape, generator=generator(seed, direction)).to(tape.x)
        tangents = jvp(both, (tape.x,), (v,))[1]
        squares += torch.stack([t.detach().double().square().mean().cpu() for t in tangents])
    return float((squares[1] / squares[0]).log())
