"""Norms with running statistics: fixed affine maps, one for each channel (Hayou et al. 2021, B.1.2, applied to them).

The gain of one is known, gamma^2/(var + eps), and unlike batch statistics it leaves the scale of the weights alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from epoch0.tracing.graph import Op
from epoch0.tracing.tape import Tape


@dataclass(frozen=True, eq=False)
class Affine:
    """h -> factor h + offset, with one factor and one offset for each channel.

    Attributes:
        factor: shape (channels,), float64.
        offset: likewise.
    """

    factor: Tensor
    offset: Tensor

    def factors(self, like: Tensor) -> Tensor:
        """The factors in the shape and dtype in which they multiply a tensor (examples, channels, ...)."""
        return _beside(self.factor, like)

    def offsets(self, like: Tensor) -> Tensor:
        """The offsets, likewise."""
        return _beside(self.offset, like)


def affine_of(tape: Tape, op: Op) -> Affine | None:
    """The affine map that a batch or instance norm is; None if it takes the statistics of the batch.

    >>> affine_of(tape, op).factor                              # of 64 channels
    tensor([1.0000, ...])

    Args:
        tape: the record; says which statistics are used.
        op: any operation.
    """
    if tape.batch_norm != "eval" or op.name not in ("batch_norm", "instance_norm"):
        return None
    mean, var, weight, bias = (op.given.get(name) for name in ("running_mean", "running_var", "weight", "bias"))
    if not isinstance(mean, Tensor) or not isinstance(var, Tensor):
        return None
    factor = (var.detach().double() + float(op.given.get("eps", 1e-5))).rsqrt()
    factor = factor if weight is None else factor * weight.detach().double()
    offset = torch.zeros_like(factor) if bias is None else bias.detach().double()
    return Affine(factor, offset - factor * mean.detach().double())


def _beside(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like.dtype).reshape(-1, *[1] * (like.dim() - 2))
