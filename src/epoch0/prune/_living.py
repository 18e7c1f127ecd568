"""Convolutions on the channels that rounds of pruning have left, without the others (Tanaka et al. 2020, 5)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from epoch0.prune._twice import Setting, convolution_setting

WORTH = 0.9
"""Share of a convolution's products that must be left to do at most, for the others to be left out."""

_ATEN = torch.ops.aten
_DIMENSIONS = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}


class Living:
    """Of convolution weights, the output and input channels that have a weight which is not zero.

    >>> w = torch.zeros(8, 4, 3, 3)
    >>> w[2, 1] = 1.0
    >>> living = Living([w])
    >>> living.convolution(F.conv2d, (torch.ones(1, 4, 5, 5), w), {}).shape      # one of 32 kernels is computed
    torch.Size([1, 8, 3, 3])

    Weights of 0 must stay so for as long as this is used, and get a gradient of 0 if their channel has no other.

    Args:
        weights: tensors of any shapes, without negative elements; they are known by identity.
    """

    def __init__(self, weights: Iterable[Tensor] = ()) -> None:
        self._channels: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # with the weight, so that its id stays its own
        for weight in weights:
            if weight.dim() < 3:
                continue
            kernels = weight.detach().flatten(2).amax(2)
            rows, columns = (kernels.amax(dim).nonzero().squeeze(1) for dim in (1, 0))
            if len(rows) * len(columns) <= WORTH * kernels.numel():
                self._channels[id(weight)] = (weight, rows, columns)

    def convolution(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
        """What a call of a torch function gives, if it is a convolution with fewer channels; otherwise None."""
        if func not in _DIMENSIONS or not self._channels:
            return None
        return self._convolution(_DIMENSIONS[func], *args, **kwargs)

    def _convolution(
        self, dimensions: int, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Tensor | None:  # fmt: skip
        known = self._channels.get(id(weight))
        if known is None or groups != 1 or isinstance(padding, str) or input.dim() != dimensions + 2:
            return None
        setting = convolution_setting(dimensions, stride, padding, dilation)
        y: Tensor = _Living.apply(input, weight, known[1], known[2], setting)
        return y if bias is None else y + bias.reshape(-1, *[1] * dimensions)


class _Living(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rows: Tensor, columns: Tensor, setting: Setting) -> Tensor:
        some, kernels = x.index_select(1, columns), weight.index_select(0, rows).index_select(1, columns)
        ctx.save_for_backward(some, kernels, rows, columns)
        ctx.setting, ctx.shapes = setting, (x.shape, weight.shape)
        stride, padding, dilation = setting[:3]
        sizes = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        ]
        y = x.new_zeros(len(x), len(weight), *sizes)
        return y.index_copy_(1, rows, _ATEN.convolution(some, kernels, None, *setting)) if len(rows) else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        some, kernels, rows, columns = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        gx, gw = (gy.new_zeros(shape) if want else None for shape, want in zip(ctx.shapes, wanted, strict=True))
        if len(rows):
            push = gy.index_select(1, rows)
            found = _ATEN.convolution_backward(push, some, kernels, None, *ctx.setting, [*wanted, False])
            if gx is not None:
                gx.index_copy_(1, columns, found[0])
            if gw is not None:
                gw[rows[:, None], columns] = found[1]
        return gx, gw, None, None, None
