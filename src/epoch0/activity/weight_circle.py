"""One layer's weights swept along a great circle: its outputs turn, and what lies above follows (Raghu B.3)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from epoch0.errors import InputError, suggest
from epoch0.regions.network.steps import Affine
from epoch0.regions.network.trace import trace
from epoch0.tracing.guard import unchanged

_NUMBERS = 1 << 17  # of one tensor at a time: what stays in a processor's cache


def layer_names(model: nn.Module) -> list[str]:
    """Names of the modules whose weights can be swept: dense and convolutional layers, in the order they were made."""
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def named_layer(model: nn.Module, layer: Any) -> str:
    """The name of a layer given by its name or its number among those with weights."""
    names = layer_names(model)
    if isinstance(layer, int) and not isinstance(layer, bool):
        if not -len(names) <= layer < len(names):
            raise InputError(f"layer={layer}: the network has {len(names)} layers with weights, numbered from 0.")
        return names[layer]
    if layer in names:
        return str(layer)
    if isinstance(layer, str) and (known := dict(model.named_modules()).get(layer)) is not None:
        there = ", ".join(names) or "no layers with one"
        raise InputError(f"layer={layer!r} is a {type(known).__name__}, without a weight matrix; there are {there}.")
    raise InputError(f"there is no layer {layer!r}; there are {', '.join(names)}.{suggest(str(layer), names)}")


def own_weight(model: nn.Module, layer: str) -> Tensor:
    """The weight of a layer, which no parametrization may compute."""
    module = model.get_submodule(layer)
    if is_parametrized(module, "weight"):
        raise InputError(f"the weight of '{layer}' is parametrized; bake the parametrization in first.")
    assert isinstance(module.weight, Tensor)
    return module.weight


class Sweep:
    """A piecewise linear network whose layer's weights are W cos + W' sin, on inputs (inputs, \\*shape), float64.

    W are the network's own weights, W' the others, a quarter turn away. What is below the layer is computed once.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, layer: str, other: Tensor) -> None:
        weight, shape = own_weight(model, layer), tuple(inputs.shape[1:])
        self.program = program = trace(model, shape, "cpu")
        with unchanged(model), torch.no_grad():
            weight.data = other.to(weight, copy=True)  # new memory: what is read from it outlives the model's return
            twin = trace(model, shape, "cpu")
        slots, found, parts = {0: inputs}, list[int](), list[Tensor]()
        with torch.no_grad():
            for index, (step, changed) in enumerate(zip(program.steps, twin.steps, strict=True)):
                before = [slots[slot] for slot in step.inputs]
                own = slots[step.output] = step.run(*before)
                if isinstance(step, Affine) and step.weighted and not torch.equal(away := changed.run(*before), own):
                    shift = step.constant(*before)
                    parts = [own - shift, away - shift, shift.expand_as(away)]
                    found.append(index)
        if len(found) > 1:
            raise InputError(f"the layer '{layer}' is used more than once; its weights cannot be swept.")
        if not found:
            raise InputError(
                f"the output does not depend on the weights of '{layer}', or both ends of the sweep are one."
            )
        self.parts, self.above, above = parts, found[0] + 1, program.steps[found[0] + 1 :]
        self.turned = program.steps[found[0]].output
        read = {slot for step in above for slot in step.inputs} - {step.output for step in above} - {self.turned}
        self.below = {slot: slots[slot] for slot in read}
        self.first = slots[program.output].reshape(len(inputs), -1)  # outputs at angle 0, (inputs, outputs)
        widest = max(
            program.elements[slot] for step in program.steps[found[0] :] for slot in (*step.inputs, step.output)
        )
        self.rows = max(1, _NUMBERS // widest)

    def values(self, which: Tensor, angle: Tensor) -> Tensor:
        """Numbers of inputs and angles, (m,), to outputs (m, outputs), float64."""
        with torch.no_grad():
            parts = zip(which.split(self.rows), angle.split(self.rows), strict=True)
            return torch.cat([self._carry(mine, at) for mine, at in parts])

    def _carry(self, which: Tensor, angle: Tensor) -> Tensor:
        turn = angle.view(-1, *[1] * (self.parts[0].dim() - 1))
        a, b, c = (part.index_select(0, which) for part in self.parts)
        carried = {slot: values[which] for slot, values in self.below.items()}
        carried[self.turned] = a.mul_(turn.cos()).addcmul_(b, turn.sin()).add_(c)
        for step in self.program.through(carried, start=self.above):
            carried[step.output] = step.run(*(carried[slot] for slot in step.inputs))
        return carried[self.program.output].reshape(len(which), -1)
