"""One layer's weights swept along a great circle: its outputs turn, and what lies above follows (Raghu B.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from epoch0.errors import InputError, suggest
from epoch0.regions.network.steps import Affine, Program
from epoch0.regions.network.trace import trace
from epoch0.tracing.guard import bare, unchanged

NUMBERS = 1 << 17
"""Numbers of one tensor at a time: what stays in a processor's cache."""


def layer_names(model: nn.Module) -> list[str]:
    """Names of the modules whose weights can be swept: dense and convolutional layers, in the order they were made."""
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def named_layer(model: nn.Module, layer: Any) -> str:
    """The name of a layer given by its name or its number among those with weights.

    Raises:
        InputError: if there is no such layer, or it has no weights of its own that can be swept.
    """
    names = layer_names(model)
    if isinstance(layer, int) and not isinstance(layer, bool):
        if not -len(names) <= layer < len(names):
            raise InputError(f"layer={layer}: the network has {len(names)} layers with weights, numbered from 0.")
        return names[layer]
    known = dict(model.named_modules())
    if layer not in names:
        if isinstance(layer, str) and layer in known:
            raise InputError(
                f"layer={layer!r} is a {type(known[layer]).__name__}, without a weight matrix; there are "
                f"{', '.join(names) or 'no layers with one'}."
            )
        raise InputError(f"there is no layer {layer!r}; there are {', '.join(names)}.{suggest(str(layer), names)}")
    return str(layer)


@dataclass(frozen=True, eq=False)
class Sweep:
    """A network whose layer's weights are W cos + W' sin, on fixed inputs.

    Attributes:
        layer: name of the layer.
        first: outputs at angle 0, shape (inputs, outputs).
        values: numbers of inputs (m,) and angles (m,) to outputs (m, outputs), float64.
        program: the network where it is piecewise linear, else None.
        step: index of the swept step.
        other: the swept step with the weights W'.
    """

    layer: str
    first: Tensor
    values: Callable[[Tensor, Tensor], Tensor]
    program: Program | None
    step: int = -1
    other: Affine | None = None


def sweep(model: nn.Module, inputs: Tensor, layer: str, other: Tensor) -> Sweep:
    """Prepare a sweep of one layer's weights from the network's own to others a quarter turn away.

    Args:
        model: a checked module.
        inputs: shape (inputs, \\*shape), float64.
        layer: name of a dense or convolutional layer.
        other: W', of the layer's own weight's shape.

    Raises:
        InputError: if the layer is used more than once in a run, or its weight is computed by a parametrization.
    """
    model = bare(model)
    module = model.get_submodule(layer)
    if is_parametrized(module, "weight"):
        raise InputError(f"the weight of '{layer}' is parametrized; bake the parametrization in before sweeping it.")
    weight = module.weight
    assert isinstance(weight, Tensor)
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


def _by_program(program: Program, twin: Program, inputs: Tensor, layer: str) -> Sweep:
    """The piecewise linear case: what is below the layer is computed once."""
    last = program.last_uses()
    slots: dict[int, Tensor] = {0: inputs}
    swept, below, parts = -1, dict[int, Tensor](), []
    with torch.no_grad():
        for index, (step, changed) in enumerate(zip(program.steps, twin.steps, strict=True)):
            before = [slots[slot] for slot in step.inputs]
            slots[step.output] = step.run(*before)
            if isinstance(step, Affine) and isinstance(changed, Affine) and step.weighted:
                other = changed.run(*before)
                if not torch.equal(other, slots[step.output]):
                    if swept >= 0:
                        raise InputError(f"the layer '{layer}' is used more than once; its weights cannot be swept.")
                    swept = index
                    shift = step.run(*(torch.zeros_like(t[:1]) for t in before))
                    parts = [slots[step.output] - shift, other - shift, shift.expand_as(other)]
                    below = {slot: t for slot, t in slots.items() if slot != step.output}
            for slot in last[index]:
                slots.pop(slot, None)
                below.pop(slot, None) if swept == index else None
    if swept < 0:
        raise InputError(f"the output does not depend on the weights of '{layer}', or both ends of the sweep are one.")
    turning = (program.elements[slot] for step in program.steps[swept:] for slot in (*step.inputs, step.output))
    rows = max(1, NUMBERS // max(turning))

    def values(which: Tensor, angle: Tensor) -> Tensor:
        made = []
        for mine, at in zip(which.split(rows), angle.split(rows), strict=True):
            carried = {slot: t[mine] for slot, t in below.items()}
            carried[program.steps[swept].output] = turned(parts, mine, at)
            with torch.no_grad():
                for index in range(swept + 1, len(program.steps)):
                    step = program.steps[index]
                    carried[step.output] = step.run(*(carried[slot] for slot in step.inputs))
                    for slot in last[index]:
                        carried.pop(slot, None)
            made.append(carried[program.output].reshape(len(mine), -1))
        return torch.cat(made)

    changed = twin.steps[swept]
    assert isinstance(changed, Affine)
    return Sweep(layer, slots[program.output].reshape(len(inputs), -1), values, program, swept, changed)


def turned(parts: Sequence[Tensor], which: Tensor, angle: Tensor) -> Tensor:
    """The values a cos + b sin + c of some inputs; c may be left out."""
    turn = angle.view(-1, *[1] * (parts[0].dim() - 1))
    made = parts[0].index_select(0, which).mul_(turn.cos()).addcmul_(parts[1].index_select(0, which), turn.sin())
    return made.add_(parts[2].index_select(0, which)) if len(parts) == 3 else made


def _by_hooks(model: nn.Module, inputs: Tensor, layer: str, other: Tensor) -> Sweep:
    """Any nonlinearity: the layer's output is put in place by a hook, and the module does the rest."""
    weights = {
        name: (t.detach().double() if t.is_floating_point() else t.detach()).cpu()
        for name, t in [*model.named_parameters(), *model.named_buffers()]
    }
    key = f"{layer}.weight"

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
        return made[0], result.reshape(len(x), -1)

    at, first = run(inputs, weights[key], None)
    away, _ = run(inputs, other.double(), None)
    shift, _ = run(inputs, torch.zeros_like(weights[key]), None)
    parts = [at - shift, away - shift, shift]
    rows = max(1, NUMBERS // max(inputs[0].numel(), shift[0].numel()))

    def values(which: Tensor, angle: Tensor) -> Tensor:
        made = []
        for mine, turn in zip(which.split(rows), angle.split(rows), strict=True):
            made.append(run(inputs[mine], weights[key], turned(parts, mine, turn))[1])
        return torch.cat(made)

    return Sweep(layer, first, values, None)
