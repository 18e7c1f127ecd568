"""Activations whose derivative follows from their output, forward and backward on given memory (for _chain)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from epoch0.activations import Activation

_aten = torch.ops.aten

Forward = Callable[[], object]
Backward = Callable[[Tensor, Tensor], object]


@dataclass(frozen=True)
class InPlace:
    """An activation that can take its input's memory.

    Attributes:
        on: given z and out, which may be z, makes a function that writes phi of whatever z then holds.
        backward: writes phi'(z) * gradient over the gradient, from phi(z).
    """

    on: Callable[[Tensor, Tensor], Forward]
    backward: Backward


def in_place(activation: Activation) -> InPlace | None:
    """The activation in place, or None where its derivative does not follow from its output.

    >>> in_place(epoch0.activations.get("gelu")) is None        # not monotone: an output has two inputs
    True
    """
    settings = dict(activation.parameters)
    if activation.source is not None:
        return None
    if activation.name == "identity":
        return IDENTITY
    if activation.name == "tanh":
        return InPlace(_tanh, lambda g, y: _aten.tanh_backward.grad_input(g, y, grad_input=g))
    if activation.name == "sigmoid":
        return InPlace(_sigmoid, lambda g, y: _aten.sigmoid_backward.grad_input(g, y, grad_input=g))
    if activation.name == "relu":
        return InPlace(_relu, lambda g, y: _aten.threshold_backward.grad_input(g, y, 0.0, grad_input=g))
    if activation.name == "elu" and settings.get("alpha", 1.0) == 1.0:
        return InPlace(_elu, lambda g, y: _aten.elu_backward.grad_input(g, 1.0, 1.0, 1.0, True, y, grad_input=g))
    return None


def _identity(z: Tensor, out: Tensor) -> Forward:
    return (lambda: None) if z is out else lambda: out.copy_(z)


IDENTITY = InPlace(_identity, lambda gradient, y: None)


def _sigmoid(z: Tensor, out: Tensor) -> Forward:
    return lambda: torch.sigmoid(z, out=out)


def _relu(z: Tensor, out: Tensor) -> Forward:
    return lambda: _aten.relu.out(z, out=out)


def _tanh(z: Tensor, out: Tensor) -> Forward:
    if not _for_numpy(z):
        return lambda: torch.tanh(z, out=out)
    before, after = z.numpy(), out.numpy()
    return lambda: np.tanh(before, out=after)


def _elu(z: Tensor, out: Tensor) -> Forward:
    if not _for_numpy(z):
        return lambda: _aten.elu.out(z, out=out)
    before, after = z.numpy(), out.numpy()

    def elu() -> None:
        below = np.minimum(before, 0.0)
        np.expm1(below, out=below)
        np.maximum(before, 0.0, out=after)
        np.add(after, below, out=after)

    return elu


def _for_numpy(z: Tensor) -> bool:
    # numpy's vectorized tanh takes a sixth of the time of torch's on a CPU, expm1 a third, at the same two last places
    return z.device.type == "cpu" and z.dtype == torch.float32
