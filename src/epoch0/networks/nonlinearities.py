"""What networks are made of: activations as modules and back, layers and the draw of their weights (Hayou 2.1)."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from epoch0 import activations
from epoch0.activations import Activation, ActivationLike
from epoch0.arguments import check_memory
from epoch0.distributions import Gaussian, Law
from epoch0.errors import InputError
from epoch0.seeds import generator

Dtype = Annotated[torch.dtype, (torch.float32, torch.float64)]  # in which weights can be drawn
Scaling = Annotated[str, ("fan_in", "fan_out", "none")]
Norm = Annotated[str | None, ("batch", None)]
Padding = Annotated[str, ("zeros", "circular")]


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


@dataclass(frozen=True)
class Parts:
    """The choices that all layers of one network share."""

    activation: Activation
    weights: Law
    biases: Law
    norm: str | None
    padding: str
    dtype: torch.dtype

    def convolution(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dims: int = 2) -> nn.Module:
        """A convolution that keeps the size at stride 1; like all layers here without memory until :meth:`fill`."""
        kind = nn.Conv1d if dims == 1 else nn.Conv2d
        options: dict[str, Any] = {"bias": self.norm is None, "padding_mode": self.padding}
        return kind(inputs, outputs, kernel, stride, kernel // 2, **options, device="meta", dtype=self.dtype)

    def linear(self, inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs, device="meta", dtype=self.dtype)

    def normalization(self, channels: int) -> nn.Module:
        return nn.Identity() if self.norm is None else nn.BatchNorm2d(channels, device="meta", dtype=self.dtype)

    def nonlinearity(self) -> nn.Module:
        """A module of its own for each place, so that each has a name in reports."""
        return module_of(self.activation)

    def fill(self, network: nn.Sequential, seed: int) -> nn.Sequential:
        """Give every layer memory, in the order of the modules: weights, biases; norms become the identity."""
        source = generator(seed)
        check_memory("this network", sum(p.numel() for p in network.parameters()), self.dtype.itemsize)
        with torch.no_grad():
            for layer in network.modules():
                if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
                    layer.to_empty(device="cpu", recurse=False)
                    law = self.weights.scaled(1.0 / math.sqrt(layer.weight[0].numel()))
                    law.sample(layer.weight.shape, source, out=layer.weight)
                    if layer.bias is not None:
                        self.biases.sample(layer.bias.shape, source, out=layer.bias)
                elif isinstance(layer, nn.BatchNorm2d):
                    layer.to_empty(device="cpu", recurse=False).reset_parameters()
        return network


def laws_of(weights: Law | None, biases: Law | None) -> tuple[Law, Law]:
    """The laws of weights and biases; by default He's law and zero."""
    return Gaussian(math.sqrt(2.0)) if weights is None else weights, Gaussian(0.0) if biases is None else biases


def check_inputs(inputs: Sequence[int], example: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape of one input: channels, then as many sides as ``dims`` allows; the example is for the message."""
    if len(inputs) - 1 not in dims:
        raise InputError(f"inputs={inputs!r} is no shape of one input, channels first; use one such as {example}.")
    return tuple(inputs)


def scaled_channels(channels: Sequence[int], width: float) -> tuple[int, ...]:
    """Channels of each stage, times the width; the error names the nearest width that makes them whole numbers."""
    if not float(width * channels[0]).is_integer():
        step = max(1, round(width * channels[0])) / channels[0]
        raise InputError(f"width={width!r}: {channels[0]} times it must be a whole number > 0, such as {step:g}.")
    return tuple(round(width * count) for count in channels)
