"""Batch norms and residual sums folded into the layer before: one step where the network has two or three."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from epoch0.regions._steps import Affine, Step, Way


@dataclass(frozen=True)
class Kernel:
    """What an affine step is made of.

    Attributes:
        function: of (points, weight, bias); if it adds, of (points, weight, bias, more, way).
        weight: first dimension runs over the output channels.
        bias: of the output channels.
        adds: whether the function adds more to its result on its way, and folds what goes into it.
    """

    function: Callable[..., Tensor]
    weight: Tensor
    bias: Tensor | None
    adds: bool = False

    def streamed(self, inputs: Sequence[Tensor], way: Way) -> Tensor:
        """The layer of its first input, with the second added if there is one."""
        found: Tensor = self.function(inputs[0], self.weight, self.bias, *(inputs[1:] or (None,)), way)
        return found


def fused(
    steps: Sequence[Step], kernels: dict[int, Kernel], norms: dict[int, tuple[Tensor, Tensor]], sums: set[int],
    output: int,
) -> tuple[Step, ...]:  # fmt: skip
    """The steps, where a layer that only a batch norm or a sum of two slots reads becomes one with it.

    The sizes of the terms stay those of the separate steps, one after the other, so no decision about zero changes.

    Args:
        steps: in order.
        kernels: of those steps that are linear layers or convolutions, by the slot they write.
        norms: factor and shift of each channel, for the steps that are batch norms, by the slot they write.
        sums: slots that are the sum of two others of the same shape.
        output: slot of the network's output.
    """
    uses = Counter(slot for step in steps for slot in step.inputs)
    steps = [_streaming(s, kernels[s.output]) if isinstance(s, Affine) and s.output in kernels else s for s in steps]
    found: list[Step] = []
    place: dict[int, int] = {}
    kernels = dict(kernels)
    folded = 0  # where in the list the steps begin that come after the last fold
    for step in steps:
        alone = [slot for slot in step.inputs if slot in kernels and uses[slot] == 1 and slot != output]
        if isinstance(step, Affine) and step.output in norms and alone:
            source = alone[0]
            layer = found[place[source]]
            assert isinstance(layer, Affine)
            found[place[source]], kernels[step.output] = _normed(layer, step, kernels[source], *norms[step.output])
            place[step.output] = place[source]
            continue
        late = [slot for slot in alone if kernels[slot].adds and place[slot] >= folded]
        late = [slot for slot in late if not set(found[place[slot]].inputs) & set(step.inputs)]
        if isinstance(step, Affine) and step.output in sums and late:
            # the sum stays where it is, as what is added to the layer may come after the layer
            at = place[late[0]]
            layer = found.pop(at)
            assert isinstance(layer, Affine)
            place = {slot: index - (index > at) for slot, index in place.items()}
            step = _summed(layer, step, kernels[late[0]])
        elif not isinstance(step, Affine):
            folded = len(found) + 1
        place[step.output] = len(found)
        found.append(step)
    return tuple(found)


def _streaming(step: Affine, kernel: Kernel) -> Affine:
    return replace(step, streamed=kernel.streamed) if kernel.adds else step


def _normed(layer: Affine, norm: Affine, kernel: Kernel, scale: Tensor, shift: Tensor) -> tuple[Affine, Kernel]:
    weight = kernel.weight * scale.view(-1, *[1] * (kernel.weight.dim() - 1))
    bias = shift if kernel.bias is None else kernel.bias * scale + shift
    function, first, second = kernel.function, layer.size, norm.size

    def run(x: Any) -> Tensor:
        return function(x, weight, bias)

    def size(squares: Any) -> Tensor:
        return torch.as_tensor(second(first(squares)))

    kernel = replace(kernel, weight=weight, bias=bias)
    step = replace(layer, output=norm.output, run=run, size=size, biased=bool((bias != 0).any()))
    return _streaming(step, kernel), kernel


def _summed(layer: Affine, total: Affine, kernel: Kernel) -> Affine:
    function, first, second = kernel.function, layer.size, total.size
    mine = total.inputs.index(layer.output)

    def run(x: Any, more: Any) -> Tensor:
        return function(x, kernel.weight, kernel.bias, more)

    def size(squares: Any, more: Any) -> Tensor:
        return torch.as_tensor(second(*((first(squares), more) if mine == 0 else (more, first(squares)))))

    step = replace(layer, inputs=(*layer.inputs, total.inputs[1 - mine]), output=total.output, run=run, size=size)
    return replace(step, streamed=kernel.streamed)
