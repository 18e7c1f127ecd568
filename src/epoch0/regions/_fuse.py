"""Batch norm folded into the layer before it: one step where the network has two, and a pass over memory less."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from epoch0.regions._steps import Affine, Step


@dataclass(frozen=True)
class Kernel:
    """What an affine step is made of.

    Attributes:
        function: of (points, weight, bias).
        weight: first dimension runs over the output channels.
        bias: of the output channels.
    """

    function: Callable[..., Tensor]
    weight: Tensor
    bias: Tensor | None


def fused(
    steps: Sequence[Step], kernels: dict[int, Kernel], norms: dict[int, tuple[Tensor, Tensor]], output: int
) -> tuple[Step, ...]:
    """The steps, where a layer that only a batch norm reads becomes one with it.

    The sizes of the terms stay those of the two steps, one after the other, so no decision about zero changes.

    Args:
        steps: in order.
        kernels: of those steps that are linear layers or convolutions, by the slot they write.
        norms: factor and shift of each channel, for the steps that are batch norms, by the slot they write.
        output: slot of the network's output.
    """
    uses = Counter(slot for step in steps for slot in step.inputs)
    found: list[Step] = []
    place: dict[int, int] = {}
    for step in steps:
        source = step.inputs[0]
        alone = uses[source] == 1 and source != output
        if isinstance(step, Affine) and step.output in norms and source in kernels and alone:
            layer = found[place[source]]
            assert isinstance(layer, Affine)
            merged = _merged(layer, step, kernels[source], *norms[step.output])
            found[place[source]] = merged
            place[step.output] = place[source]
            continue
        place[step.output] = len(found)
        found.append(step)
    return tuple(found)


def _merged(layer: Affine, norm: Affine, kernel: Kernel, scale: Tensor, shift: Tensor) -> Affine:
    weight = kernel.weight * scale.view(-1, *[1] * (kernel.weight.dim() - 1))
    bias = shift if kernel.bias is None else kernel.bias * scale + shift
    function, first, second = kernel.function, layer.size, norm.size

    def run(x: Any) -> Tensor:
        return function(x, weight, bias)

    def size(squares: Any) -> Tensor:
        return torch.as_tensor(second(first(squares)))

    return replace(layer, output=norm.output, run=run, size=size, biased=bool((bias != 0).any()))
