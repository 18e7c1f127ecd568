"""What the layers of a random network are made of, and the draw that fills them (Hayou section 2.1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from epoch0 import activations
from epoch0.activations import Activation
from epoch0.distributions import Gaussian, Law
from epoch0.errors import InputError, is_count, suggest
from epoch0.networks.nonlinearities import module_of
from epoch0.seeds import generator

Padding = Literal["zeros", "circular"]
PADDINGS: dict[str, Padding] = {"zeros": "zeros", "circular": "circular"}
_CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}


@dataclass(frozen=True)
class Parts:
    """The choices that all layers of one network share; :func:`parts` checks them.

    Attributes:
        activation: the nonlinearity.
        weights: law of a weight before the division by sqrt(fan_in).
        biases: law of a bias.
        norm: ``"batch"`` for batch norm after every convolution, which then has no bias; None for neither.
        padding: ``"zeros"`` or ``"circular"``.
        dtype: of parameters and buffers.
    """

    activation: Activation
    weights: Law
    biases: Law
    norm: str | None
    padding: Padding
    dtype: torch.dtype

    def convolution(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dims: int = 2) -> nn.Module:
        """A convolution that keeps the size at stride 1; like all layers here without memory until :meth:`fill`."""
        return _CONVOLUTIONS[dims](
            inputs, outputs, kernel, stride, kernel // 2, bias=self.norm is None, padding_mode=self.padding,
            device="meta", dtype=self.dtype,
        )  # fmt: skip

    def linear(self, inputs: int, outputs: int) -> nn.Linear:
        """A fully connected layer with a bias."""
        return nn.Linear(inputs, outputs, device="meta", dtype=self.dtype)

    def normalization(self, channels: int) -> nn.Module:
        """What follows a convolution of images; nothing without batch norm."""
        if self.norm is None:
            return nn.Identity()
        return nn.BatchNorm2d(channels, device="meta", dtype=self.dtype)

    def nonlinearity(self) -> nn.Module:
        """A module of its own for each place, so that each has a name in reports."""
        return module_of(self.activation)

    def fill(self, network: nn.Sequential, seed: int) -> nn.Sequential:
        """Give every layer memory, in the order of the modules: weights, biases; norms become the identity."""
        source = generator(seed)
        with torch.no_grad():
            for layer in network.modules():
                if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
                    layer.to_empty(device="cpu", recurse=False)
                    fan_in = layer.weight[0].numel()
                    self.weights.scaled(1.0 / math.sqrt(fan_in)).sample(layer.weight.shape, source, out=layer.weight)
                    if layer.bias is not None:
                        self.biases.sample(layer.bias.shape, source, out=layer.bias)
                elif isinstance(layer, nn.BatchNorm2d):
                    layer.to_empty(device="cpu", recurse=False)
                    layer.reset_parameters()
        return network


def parts(
    activation: str | Activation, weights: Law | None, biases: Law | None, norm: str | None, padding: str,
    dtype: torch.dtype, seed: int,
) -> Parts:  # fmt: skip
    """The checked choices; None stands for He's law and for biases of zero.

    Raises:
        InputError: naming the argument that cannot be used.
    """
    generator(seed)  # a bad seed is refused before anything is built
    if norm not in ("batch", None):
        raise InputError(f"norm={norm!r} is not known; use 'batch' for batch norm, or None.")
    if padding not in PADDINGS:
        raise InputError(f"padding={padding!r} is not known; use 'zeros' or 'circular'.{suggest(padding, PADDINGS)}")
    return Parts(activations.get(activation), *checked_laws(weights, biases, dtype), norm, PADDINGS[padding], dtype)


def checked_laws(weights: Law | None, biases: Law | None, dtype: torch.dtype) -> tuple[Law, Law]:
    """Laws of weights and biases that can be drawn in that dtype; by default He's law, and zero.

    Raises:
        InputError: naming the argument that cannot be used.
    """
    weights = Gaussian(math.sqrt(2.0)) if weights is None else weights
    biases = Gaussian(0.0) if biases is None else biases
    for name, law in (("weights", weights), ("biases", biases)):
        if not isinstance(law, Law):
            raise InputError(f"{name}={law!r} is no law; use one such as Gaussian(1.0) or Sparse(Uniform(1.0), 0.5).")
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype {dtype} is not supported; use torch.float32 or torch.float64.")
    return weights, biases


def check_count(name: str, value: object, what: str, least: int = 1) -> None:
    """Refuse what is no integer or too small.

    Raises:
        InputError: saying what the argument is.
    """
    if not is_count(value, least):
        raise InputError(f"{name}={value!r}: {what} is an integer >= {least}.")


def check_inputs(inputs: object, example: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape of one input, channels first.

    Args:
        inputs: what the caller gave.
        example: a shape that would do, for the message.
        dims: how many sides an input may have.

    Raises:
        InputError: if these are not so many integers > 0.
    """
    shape = tuple(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, str) else ()
    if len(shape) - 1 not in dims or not all(is_count(side) for side in shape):
        raise InputError(f"inputs={inputs!r} is no shape of one input, channels first; use one such as {example}.")
    return shape


def scaled_channels(channels: Sequence[int], width: float) -> tuple[int, ...]:
    """Channels of each stage, times the width.

    >>> scaled_channels((16, 32, 64), 2)
    (32, 64, 128)

    Raises:
        InputError: if they are no whole numbers; names the nearest width with which they are.
    """
    number = isinstance(width, int | float) and not isinstance(width, bool) and math.isfinite(width) and width > 0
    if not number or not float(width * channels[0]).is_integer():
        step = max(1, round(width * channels[0])) / channels[0] if number else 2
        raise InputError(
            f"width={width!r}: {channels[0]} channels times the width, as for the first stage, must be a whole number "
            f"> 0; use one such as {step:g}."
        )
    return tuple(round(width * count) for count in channels)
