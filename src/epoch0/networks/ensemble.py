"""Many random networks of one kind: network i is the same to the bit whatever the batch, the worker or the order."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn

from epoch0.activations import Activation
from epoch0.arguments import Count, Seed, Size, checked, methods_checked, refuse
from epoch0.distributions import Law
from epoch0.errors import InputError
from epoch0.networks._parts import Dtype, Scaling
from epoch0.networks.dense import DenseSpec, dense_spec
from epoch0.seeds import generator


@methods_checked
@dataclass(frozen=True)
class Ensemble:
    """Random dense networks that exist only while they are looked at.

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
    activation: str | Activation = "relu",
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
