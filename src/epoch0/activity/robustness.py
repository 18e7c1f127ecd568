"""Robustness: what noise in one layer's weights costs in accuracy (Raghu section 3.1, Figure 6)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.weight_circle import layer_names, named_layer, own_weight
from epoch0.arguments import Count, Seed, Size, checked
from epoch0.errors import InputError
from epoch0.results import Result, aligned, counted
from epoch0.seeds import generator
from epoch0.tracing.call import Call, Forward
from epoch0.tracing.guard import unchanged


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
        given = f"targets {tuple(targets.shape)} ({targets.dtype})"
        raise InputError(f"{given} do not fit: one class number, an integer, for every example.")
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
        y = call.targets
        scores = call.output(call.swapped(changed) if changed else call.run())
        if scores.dim() < 2 or scores.shape[:-1] != y.shape or scores.shape[-1] < 2:
            wanted = f"scores (*{tuple(y.shape)}, classes), classes >= 2"
            raise InputError(f"the model returns {tuple(scores.shape)}; accuracy needs {wanted}.")
        low, high, classes = int(y.min()), int(y.max()), scores.shape[-1]
        if low < 0 or high >= classes:
            raise InputError(f"targets run from {low} to {high}; the model has {classes} classes, from 0.")
        right += int((scores.argmax(dim=-1) == y).sum())
        total += y.numel()
    return right / total
