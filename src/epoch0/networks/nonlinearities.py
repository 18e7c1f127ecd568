"""From an activation to its torch module, and from a module back to the activation it computes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from epoch0 import activations
from epoch0.activations import Activation


class Erf(nn.Module):
    """The error function as a module, elementwise; torch has the function only."""

    def forward(self, h: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return torch.erf(h)


_MODULES: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "hardtanh": nn.Hardtanh,
    "tanh": nn.Tanh,
    "erf": Erf,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


def module_of(activation: str | Activation) -> nn.Module:
    """A fresh torch module that computes the activation.

    >>> module_of("relu")
    ReLU()

    Raises:
        InputError: if there is no rule for that name.
    """
    rule = activations.get(activation)
    return _MODULES[rule.name](**dict(rule.parameters))


_RECOGNISED: dict[type[nn.Module], Callable[[Any], Activation | None]] = {
    nn.ReLU: lambda module: activations.relu(),
    nn.LeakyReLU: lambda module: activations.leaky_relu(module.negative_slope),
    nn.Hardtanh: lambda module: activations.hardtanh(module.min_val, module.max_val),
    nn.Tanh: lambda module: activations.tanh(),
    Erf: lambda module: activations.erf(),
    nn.ELU: lambda module: activations.elu(module.alpha),
    nn.GELU: lambda module: activations.gelu() if module.approximate == "none" else None,
    nn.SiLU: lambda module: activations.silu(),
    nn.Identity: lambda module: activations.identity(),
}


def activation_of(module: nn.Module) -> Activation | None:
    """The activation a module computes, or None if there is no rule for its type.

    >>> activation_of(nn.LeakyReLU(0.2)).parameters
    (('negative_slope', 0.2),)
    """
    rule = _RECOGNISED.get(type(module))
    return rule(module) if rule else None
