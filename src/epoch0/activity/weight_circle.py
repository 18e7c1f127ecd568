"""One layer's weights swept along a great circle: its outputs turn, and what lies above follows (Raghu B.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from epoch0.activity.patterns import in_float64
from epoch0.arguments import shown
from epoch0.errors import InputError, suggest
from epoch0.regions.network.steps import Affine, Program
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
        others = ", ".join(names) or "no layers with one"
        raise InputError(f"layer={layer!r} is a {type(known).__name__}, without a weight matrix; there are {others}.")
    raise InputError(f"there is no layer {layer!r}; there are {', '.join(names)}.{suggest(str(layer), names)}")


@dataclass(frozen=True, eq=False)
class WeightSweep:
    """A network whose layer's weights are W cos + W' sin, on fixed inputs."""

    first: Tensor  # outputs at angle 0, shape (inputs, outputs)
    carry: Callable[[Tensor, Tensor], Tensor]  # as ``values``, for all at once
    numbers: int  # in the largest tensor of one input
    program: Program | None  # the network where it is piecewise linear
    step: int = -1  # index of the swept step
    other: Affine | None = None  # the swept step with the weights W'

    def values(self, which: Tensor, angle: Tensor) -> Tensor:
        """Numbers of inputs and angles, (m,), to outputs (m, outputs), float64."""
        rows = max(1, _NUMBERS // self.numbers)
        with torch.no_grad():
            parts = zip(which.split(rows), angle.split(rows), strict=True)
            return torch.cat([self.carry(part, at) for part, at in parts])


def own_weight(model: nn.Module, layer: str) -> Tensor:
    """The weight of a layer, which no parametrization may compute."""
    if is_parametrized(module := model.get_submodule(layer), "weight"):
        raise InputError(f"the weight of '{layer}' is parametrized; bake the parametrization in first.")
    assert isinstance(module.weight, Tensor)
    return module.weight


def sweep(model: nn.Module, inputs: Tensor, layer: str, other: Tensor) -> WeightSweep:
    """Prepare a sweep of one layer's weights from the network's own to others, W', a quarter turn away.

    The model is bare and checked; inputs, shape (inputs, \\*shape), are float64.
    """
    weight = own_weight(model, layer)
    other = other.to(weight.dtype).double()  # as the model itself would hold it
    shape = tuple(inputs.shape[1:])
    try:
        program = trace(model, shape, "cpu")
        with unchanged(model), torch.no_grad():
            weight.data = other.to(weight, copy=True)  # new memory: what is read from it outlives the model's return
            twin = trace(model, shape, "cpu")
    except InputError as error:
        if "does not take points" in str(error):
            raise
        return _by_hooks(model, inputs, layer, other)
    return _by_program(program, twin, inputs, layer)


def _by_program(program: Program, twin: Program, inputs: Tensor, layer: str) -> WeightSweep:
    """The piecewise linear case: what is below the layer is computed once."""
    slots, swept, parts = {0: inputs}, -1, list[Tensor]()
    with torch.no_grad():
        for index, (step, changed) in enumerate(zip(program.steps, twin.steps, strict=True)):
            before = [slots[slot] for slot in step.inputs]
            own = slots[step.output] = step.run(*before)
            if isinstance(step, Affine) and step.weighted and not torch.equal(other := changed.run(*before), own):
                if swept >= 0:
                    raise InputError(f"the layer '{layer}' is used more than once; its weights cannot be swept.")
                swept, shift = index, step.constant(*before)
                parts = [own - shift, other - shift, shift.expand_as(other)]
    if swept < 0:
        raise InputError(f"the output does not depend on the weights of '{layer}', or both ends of the sweep are one.")
    made_above = {step.output for step in program.steps[swept:]}
    below = {slot for step in program.steps[swept + 1 :] for slot in step.inputs} - made_above
    turning = (program.elements[slot] for step in program.steps[swept:] for slot in (*step.inputs, step.output))

    def carry(which: Tensor, angle: Tensor) -> Tensor:
        carried = {slot: slots[slot][which] for slot in below}
        carried[program.steps[swept].output] = turned(parts, which, angle)
        for step in program.through(carried, start=swept + 1):
            carried[step.output] = step.run(*(carried[slot] for slot in step.inputs))
        return carried[program.output].reshape(len(which), -1)

    changed = twin.steps[swept]
    assert isinstance(changed, Affine)
    return WeightSweep(slots[program.output].reshape(len(inputs), -1), carry, max(turning), program, swept, changed)


def turned(parts: Sequence[Tensor], which: Tensor, angle: Tensor) -> Tensor:
    """Points of circles a cos(angle) + b sin(angle) + c, of those numbered ``which``."""
    turn = angle.view(-1, *[1] * (parts[0].dim() - 1))
    a, b, c = (part.index_select(0, which) for part in parts)
    return a.mul_(turn.cos()).addcmul_(b, turn.sin()).add_(c)


def _by_hooks(model: nn.Module, inputs: Tensor, layer: str, other: Tensor) -> WeightSweep:
    """Any nonlinearity: the layer's output is put in place by a hook, and the module does the rest."""
    weights, key = in_float64(model), f"{layer}.weight"

    def run(x: Tensor, weight: Tensor, put: Tensor | None) -> tuple[Tensor, Tensor]:
        made: list[Tensor] = []

        def hook(module: nn.Module, args: Any, out: Tensor) -> Tensor | None:
            made.append(out)
            return put

        with unchanged(model), torch.no_grad():
            model.eval()
            model.get_submodule(layer).register_forward_hook(hook)
            result = functional_call(model, {**weights, key: weight}, (x,))
        if len(made) != 1:
            raise InputError(f"the layer '{layer}' runs {len(made)} times; its weights cannot be swept.")
        if not isinstance(result, Tensor) or result.dim() == 0 or len(result) != len(x):
            raise InputError(f"the output{shown(result)}; a tensor with {len(x)} rows is needed.")
        return made[0], result.reshape(len(x), -1)

    at, first = run(inputs, weights[key], None)
    again = run(inputs.flip(0), weights[key], None)[1].flip(0)
    if not torch.allclose(first, again, rtol=1e-6, atol=1e-9 * float(first.abs().max()), equal_nan=True):
        raise InputError("the outputs for an input depend on its place among the others, or on random numbers.")
    away, _ = run(inputs, other.double(), None)
    shift, _ = run(inputs, torch.zeros_like(weights[key]), None)
    parts = [at - shift, away - shift, shift]

    def carry(which: Tensor, angle: Tensor) -> Tensor:
        return run(inputs[which], weights[key], turned(parts, which, angle))[1]

    return WeightSweep(first, carry, max(inputs[0].numel(), shift[0].numel()), None)
