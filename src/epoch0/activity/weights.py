"""One layer's weights changed: by noise, and what it costs in accuracy (Raghu 3.1); along a great circle (B.3)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from epoch0.activity.patterns import in_float64
from epoch0.arguments import Count, Seed, Size, checked, shown
from epoch0.errors import InputError, suggest
from epoch0.regions.network.steps import Affine, Program
from epoch0.regions.network.trace import trace
from epoch0.results import Result, aligned, counted
from epoch0.seeds import generator
from epoch0.tracing.call import Call, Forward
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


@dataclass(frozen=True, eq=False)
class Robustness(Result):
    """Accuracy with noise in one layer's weights at a time."""

    layers: tuple[str, ...]  #: names of the layers, in the order they were made
    noise: np.ndarray  #: sizes of the noise, shape (sizes,)
    accuracies: np.ndarray  #: shape (layers, sizes, draws)
    clean: float  #: accuracy without noise
    relative: bool  #: whether the sizes are parts of the root mean square of the layer's weights
    examples: int  #: how many the accuracies are over

    @property
    def accuracy(self) -> np.ndarray:
        """Mean over the draws, shape (layers, sizes)."""
        return np.asarray(self.accuracies.mean(axis=2))

    @property
    def error(self) -> np.ndarray:
        """Standard error over the draws of the noise, shape (layers, sizes); NaN for one draw."""
        if (draws := self.accuracies.shape[2]) == 1:
            return np.full(self.accuracies.shape[:2], math.nan)
        return np.asarray(self.accuracies.std(axis=2, ddof=1) / math.sqrt(draws))

    @property
    def cost(self) -> np.ndarray:
        """Accuracy lost, shape (layers, sizes)."""
        return self.clean - self.accuracy

    @property
    def most_fragile(self) -> str:
        """The layer that loses most accuracy, on average over the sizes of the noise."""
        return self.layers[int(self.cost.mean(axis=1).argmax())]

    def rows(self) -> list[dict[str, Any]]:
        """One dict for each layer and size of the noise."""
        return [
            {"layer": layer, "noise": noise, "accuracy": mean, "error": None if math.isnan(e) else e, "cost": cost}
            for layer, *columns in zip(self.layers, self.accuracy, self.error, self.cost, strict=True)
            for noise, mean, e, cost in zip(self.noise.tolist(), *(c.tolist() for c in columns), strict=True)
        ]

    def __str__(self) -> str:
        unit = "of each layer's weights" if self.relative else "absolute"
        rows = [["layer", *(f"noise {size:g}" for size in self.noise)]]
        for layer, means, errors in zip(self.layers, self.accuracy, self.error, strict=True):
            rows.append([layer, *(f"{m:.4f} +- {e:.4f}" for m, e in zip(means, errors, strict=True))])
        how = f"{unit}; {counted(self.accuracies.shape[2], 'draw')}, {counted(self.examples, 'example')}"
        head = f"Accuracy with noise in one layer at a time ({how}), {self.clean:.4f} without"
        loses = "most fragile: " + self.most_fragile if self.accuracy.min() < self.clean else "no layer loses any"
        return "\n".join([f"{head}; {loses}", *aligned(rows)])


@checked
def robustness(
    model: nn.Module,
    data: tuple[Any, Tensor],
    noise: Sequence[float] | float,
    *,
    forward: Forward | None = None,
    layers: Sequence[str | int] | str | int | None = None,
    draws: Size = 5,
    relative: bool = True,
    batch_size: Count = 1000,
    seed: Seed = 0,
) -> Robustness:
    """Accuracy against Gaussian noise in the weights of one layer at a time.

    >>> found = e0.robustness(net, (x, y), [0.1, 0.25, 0.5])     # x of shape (10000, 784), y of shape (10000,)
    >>> found.accuracy.shape, found.most_fragile
    ((3, 3), '0')

    The same draws are scaled to every size, so that curves over the sizes are smooth. Biases keep their values; dropout
    is off, and batch norm uses its running statistics. The model is not touched.

    Args:
        model: a classifier: its output are scores, (examples, classes) or (examples, length, classes).
        data: inputs, as the model is called with them (a tensor, a tuple, a mapping, a graph), and class numbers,
            (examples,) or (examples, length).
        noise: standard deviation of the noise, or several: parts of the layer's root mean square; with
            ``relative=False`` in units of the weights.
        forward: ``forward(model, inputs) -> outputs``, for a model that is called in another way.
        layers: names or numbers of layers with weights, or one of them; by default all.
        draws: of the noise, for each layer and size.
        relative: see ``noise``.
        batch_size: examples at a time.
        seed: names the draws.

    Raises:
        InputError: noise that is negative or not finite, no such layer, one without weights, or data that do not fit.

    Source: Raghu et al. 2017, section 3.1 and Figure 6.
    """
    inputs, targets = data
    if targets.is_floating_point() or not targets.numel() or not targets.dim():
        raise InputError(f"targets {tuple(targets.shape)} ({targets.dtype}) do not fit: give an integer for each.")
    call = Call.of(model, inputs, targets, forward=forward)
    model = call.model
    if not len(sizes := np.atleast_1d(np.asarray(noise, dtype=np.float64))) or sizes.min() < 0:
        raise InputError(f"noise={noise!r}; give standard deviations >= 0, such as [0.1, 0.25].")
    asked = [layers] if isinstance(layers, str | int) else layers
    chosen = layer_names(model) if asked is None else [named_layer(model, layer) for layer in asked]
    if not chosen:
        raise InputError(f"{type(model).__name__} has no dense or convolutional layer.")
    weights = [own_weight(model, name) for name in chosen]
    starts = range(0, call.examples, batch_size) if call.splits else ()
    batches = [call.rows(slice(start, start + batch_size)) for start in starts] or [call]
    found = np.empty((len(chosen), len(sizes), draws))
    with unchanged(model), torch.no_grad():
        model.eval()
        clean = _accuracy({}, batches)
        for i, (name, weight) in enumerate(zip(chosen, weights, strict=True)):
            unit = float(weight.double().square().mean().sqrt()) if relative else 1.0
            for draw in range(draws):
                step = torch.randn(weight.shape, generator=generator(seed, i, draw)).to(weight) * unit
                for j, size in enumerate(sizes.tolist()):
                    found[i, j, draw] = _accuracy({f"{name}.weight": weight + size * step}, batches)
    return Robustness(tuple(chosen), sizes, found, clean, relative, call.examples)


def _accuracy(changed: dict[str, Tensor], batches: Sequence[Call]) -> float:
    right = total = 0
    for call in batches:
        y, scores = call.targets, call.output(call.swapped(changed) if changed else call.run())
        if scores.dim() < 2 or scores.shape[:-1] != y.shape or scores.shape[-1] < 2:
            raise InputError(f"scores are {tuple(scores.shape)}; give (*{tuple(y.shape)}, classes), classes >= 2.")
        low, high, classes = int(y.min()), int(y.max()), scores.shape[-1]
        if low < 0 or high >= classes:
            raise InputError(f"targets run from {low} to {high}; the model has {classes} classes, from 0.")
        right += int((scores.argmax(dim=-1) == y).sum())
        total += y.numel()
    return right / total
