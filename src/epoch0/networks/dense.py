"""Fully connected random networks with any weight law, one or many (Price-Tanner 1.1, Raghu 2, Hayou section 2).

Network i of an ensemble is the same to the bit whatever the batch, the worker or the order.
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import torch
from torch import Tensor, nn

from epoch0.activations import Activation, ActivationLike, get
from epoch0.arguments import Count, Seed, Size, check_memory, checked, methods_checked, refuse
from epoch0.distributions import Law
from epoch0.errors import InputError
from epoch0.networks.nonlinearities import Dtype, Scaling, laws_of, module_of
from epoch0.seeds import generator


@dataclass(frozen=True)
class DenseSpec:
    """A dense random network apart from its seed; :func:`mlp` and :func:`ensemble` document the fields."""

    sizes: tuple[int, ...]
    activation: Activation
    weights: Law
    biases: Law
    scaling: str
    linear_output: bool
    dtype: torch.dtype

    @property
    def depth(self) -> int:
        """Number of weight layers."""
        return len(self.sizes) - 1

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.sizes))

    @cached_property  # a thousand networks are drawn from them
    def entry_laws(self) -> tuple[Law, ...]:
        """The law of one entry of each layer's weight matrix as stored, scaling included."""
        fans = [{"fan_in": a, "fan_out": b, "none": 1}[self.scaling] for a, b in pairwise(self.sizes)]
        return tuple(self.weights if fan == 1 else self.weights.scaled(1.0 / math.sqrt(fan)) for fan in fans)

    def skeleton(self) -> nn.Sequential:
        """The module without memory for its parameters (meta device): what ``torch.func.functional_call`` needs."""
        layers: list[nn.Module] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            layers.append(nn.Linear(fan_in, fan_out, device="meta", dtype=self.dtype))
            if layer < self.depth - 1 or not self.linear_output:
                layers.append(module_of(self.activation))
        return nn.Sequential(*layers)

    def fill(self, parameters: Mapping[str, Tensor], source: torch.Generator) -> None:
        """Draw one network into the given tensors, by name; the order of the draws is part of the format."""
        for layer, law in enumerate(self.entry_laws):
            weight, bias = (parameters[f"{2 * layer}.{name}"] for name in ("weight", "bias"))
            law.fill(weight, source)
            self.biases.fill(bias, source)

    def build(self, source: torch.Generator) -> nn.Sequential:
        """One network, drawn from this stream."""
        check_memory("this network", sum(a * b for a, b in pairwise(self.sizes)), self.dtype.itemsize)
        network = self.skeleton().to_empty(device="cpu")
        with torch.no_grad():
            self.fill(dict(network.named_parameters()), source)
        return network


def dense_spec(
    sizes: Sequence[int], activation: ActivationLike, weights: Law | None, biases: Law | None, *rest: Any
) -> DenseSpec:
    """The fields from arguments in their order, the rest of them as they are."""
    if len(sizes) < 2:
        raise InputError(f"sizes={list(sizes)!r}: a network has at least two, all integers > 0: [784, 256, 10].")
    return DenseSpec(tuple(sizes), get(activation), *laws_of(weights, biases), *rest)


@checked
def mlp(
    sizes: Sequence[Size],
    activation: ActivationLike = "relu",
    weights: Law | None = None,
    biases: Law | None = None,
    scaling: Scaling = "fan_in",
    linear_output: bool = True,
    seed: Seed = 0,
    dtype: Dtype = torch.float32,
) -> nn.Sequential:
    """A fully connected network with random weights.

    >>> net = mlp([784, 256, 10], weights=Gaussian(2**0.5), biases=Gaussian(1e-3), seed=0)
    >>> net(torch.zeros(5, 784)).shape                          # (batch, inputs) -> (batch, outputs)
    torch.Size([5, 10])

    Args:
        sizes: inputs, widths of the hidden layers, outputs; L + 1 numbers for L weight layers.
        activation: a name of :mod:`epoch0.activations`, or an activation.
        weights: law of a weight before the scaling; None is ``Gaussian(sqrt 2)``, He's law.
        biases: law of a bias, never scaled; None is zero.
        scaling: divide the weights by sqrt(fan_in), sqrt(fan_out) or nothing ("none").
        linear_output: whether the last layer is left without the nonlinearity.
        seed: names the draw; ``mlp(..., seed=s)`` is always the same network.
        dtype: torch.float32 or torch.float64.

    Source: Price-Tanner section 1.1; He et al. 2015 for the default law.
    """
    return dense_spec(sizes, activation, weights, biases, scaling, linear_output, dtype).build(generator(seed))


@methods_checked
@dataclass(frozen=True)
class Ensemble:
    """Random dense networks that are made when they are accessed.

    >>> nets = ensemble(100, [784, 100, 10], seed=0)
    >>> len(nets), nets[3](torch.zeros(2, 784)).shape
    (100, torch.Size([2, 10]))
    >>> nets.stacked(0, 5)["0.weight"].shape                    # (networks, fan_out, fan_in)
    torch.Size([5, 100, 784])
    """

    spec: DenseSpec
    seed: int  # network i draws from stream (seed, i)
    indices: range  # which networks of the unlimited ensemble are in it

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, which: int) -> nn.Sequential: ...
    @overload
    def __getitem__(self, which: slice) -> "Ensemble": ...
    def __getitem__(self, which: Any) -> "nn.Sequential | Ensemble":
        if isinstance(which, slice):
            return Ensemble(self.spec, self.seed, self.indices[which])
        try:
            index = self.indices[operator.index(which)]
        except TypeError as problem:
            raise refuse("which", which, "the number of a network, or a slice") from problem
        except IndexError:
            raise IndexError(f"network {which} of an ensemble of {len(self)}") from None
        return self.spec.build(generator(self.seed, index))

    def __iter__(self) -> Iterator[nn.Sequential]:
        return (self[place] for place in range(len(self)))

    def skeleton(self) -> nn.Sequential:
        """The architecture without memory, as of :class:`DenseSpec`."""
        return self.spec.skeleton()

    def stacked(self, start: int, stop: int, out: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Parameters of networks start..stop-1 by name, each of shape (stop - start, \\*shape of the parameter).

        ``out`` is a dict from an earlier call with at least as many networks, to be overwritten instead of new memory.
        An InputError if the range is empty or reaches outside the ensemble.
        """
        if not 0 <= start < stop <= len(self):
            raise InputError(f"networks {start} to {stop} are not in an ensemble of {len(self)}.")
        count, spec = stop - start, self.spec
        if out is None:
            kinds = self.skeleton().named_parameters()
            out = {name: torch.empty(count, *kind.shape, dtype=spec.dtype) for name, kind in kinds}
        out = {name: tensor[:count] for name, tensor in out.items()}
        for place, index in enumerate(self.indices[start:stop]):
            spec.fill({name: tensor[place] for name, tensor in out.items()}, generator(self.seed, index))
        return out


@checked
def ensemble(
    networks: Count,
    sizes: Sequence[Size],
    activation: ActivationLike = "relu",
    weights: Law | None = None,
    biases: Law | None = None,
    scaling: Scaling = "fan_in",
    linear_output: bool = True,
    seed: Seed = 0,
    dtype: Dtype = torch.float32,
) -> Ensemble:
    """Many independent networks with the arguments of :func:`epoch0.networks.mlp`.

    >>> nets = ensemble(1000, [32] * 11, weights=Sparse(Gaussian(2.0), 0.5), linear_output=False, seed=0)

    Network i draws from its own stream (seed, i). An InputError names the argument that cannot be used.
    """
    spec = dense_spec(sizes, activation, weights, biases, scaling, linear_output, dtype)
    return Ensemble(spec, seed, range(networks))
