"""From an activation to its torch module, and from a module back to the activation it computes."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from epoch0 import activations
from epoch0.activations import Activation, ActivationLike


class Function(nn.Module):
    """A function of torch that has no module of its own, elementwise: erf, sin, abs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, h: Tensor) -> Tensor:
        result: Tensor = getattr(torch, self.name)(h)
        return result

    def extra_repr(self) -> str:
        return self.name


class _NumpyFunction(torch.autograd.Function):
    """A numpy activation inside torch's graph, through its own derivative."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, rule: Activation) -> Tensor:
        ctx.save_for_backward(h)
        ctx.rule = rule
        return torch.as_tensor(rule.function(h.detach().cpu().double().numpy())).to(h)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (h,) = ctx.saved_tensors
        return gradients[0] * torch.as_tensor(ctx.rule.derivative(h.detach().cpu().double().numpy())).to(h), None


class Elementwise(nn.Module):
    """A custom activation: the torch function it was made from, or its numpy function and derivative."""

    def __init__(self, rule: Activation) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, h: Tensor) -> Tensor:
        torch_function = getattr(self.rule.function, "torch_function", None)
        result = _NumpyFunction.apply(h, self.rule) if torch_function is None else torch_function(h)
        assert isinstance(result, Tensor)
        return result

    def extra_repr(self) -> str:
        return self.rule.name


def module_of(activation: ActivationLike) -> nn.Module:
    """A fresh torch module that computes the activation; a function or module is copied."""
    if isinstance((rule := activations.get(activation)).source, nn.Module):
        return copy.deepcopy(rule.source)
    if rule.source is not None or (entry := activations.KNOWN.get(rule.name)) is None:
        return Elementwise(rule)
    if not entry.module:
        return Function(entry.function)
    module: nn.Module = getattr(nn, entry.module)(**dict(entry.settings), **dict(rule.parameters))
    return module


def activation_of(module: nn.Module) -> Activation | None:
    """The activation a module computes, or None if there is no rule for its type."""
    return module.rule if type(module) is Elementwise else activations.known_module(module)
