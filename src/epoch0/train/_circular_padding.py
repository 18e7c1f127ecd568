"""Circular padding whose gradient is cheap on a CPU (for _forward).

Torch pads in place, slice by slice, so its backward pass makes a tensor of zeros and several copies for each of the
four sides, which can take longer than the convolution. Here the sides are added where they came from, in torch's order:
the numbers are the same to the bit.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def with_cheap_gradient(call: Callable[[Tensor], Any], model: nn.Module) -> Callable[[Tensor], Any]:
    """The same outputs, and gradients to the bit; circular padding in ``model`` costs less on the way back.

    >>> with_cheap_gradient(net, net)(images)           # as net(images)

    For the time of a call every such convolution does its padding here; afterwards the model is as it was.
    """
    layers = [(part, _padded_here(part)) for part in model.modules() if isinstance(part, nn.Conv2d) and _is_ours(part)]
    if not layers:
        return call

    def outputs(inputs: Tensor) -> Any:
        try:
            for layer, forward in layers:
                layer.__dict__["forward"] = forward
            return call(inputs)
        finally:
            for layer, _ in layers:
                layer.__dict__.pop("forward", None)

    return outputs


def _is_ours(layer: nn.Conv2d) -> bool:
    """Circular padding in numbers, and torch's own forward?"""
    if layer.padding_mode != "circular" or isinstance(layer.padding, str):
        return False
    own = type(layer).forward is nn.Conv2d.forward and type(layer)._conv_forward is nn.Conv2d._conv_forward
    return own and not {"forward", "_conv_forward"} & layer.__dict__.keys()


def _padded_here(layer: nn.Conv2d) -> Callable[[Tensor], Tensor]:
    def forward(image: Tensor) -> Tensor:
        sides = layer.padding
        assert not isinstance(sides, str)
        padded = pad(image, beside=sides[1], above=sides[0])
        return F.conv2d(padded, layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)

    return forward


def pad(image: Tensor, beside: int, above: int) -> Tensor:
    """Circular padding: that many columns left and right, and rows above and below.

    >>> pad(torch.zeros(2, 3, 8, 8), 1, 2).shape
    torch.Size([2, 3, 12, 10])
    """
    wanted = image.requires_grad and torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
    if wanted and image.dim() == 4 and image.device.type == "cpu":
        padded: Tensor = _CircularPad.apply(image, beside, above)
        return padded
    return F.pad(image, (beside, beside, above, above), mode="circular")


class _CircularPad(torch.autograd.Function):
    # a separate setup_context would let torch.func in, and cost as much as is won here
    @staticmethod
    def forward(ctx: Any, image: Tensor, beside: int, above: int) -> Tensor:
        ctx.beside, ctx.above = beside, above
        return F.pad(image, (beside, beside, above, above), mode="circular")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        beside, above = ctx.beside, ctx.above
        height, width = gradient.shape[-2] - 2 * above, gradient.shape[-1] - 2 * beside
        rows = gradient.narrow(-2, above, height).clone(memory_format=torch.contiguous_format)
        rows.narrow(-2, 0, above).add_(gradient.narrow(-2, above + height, above))
        rows.narrow(-2, height - above, above).add_(gradient.narrow(-2, 0, above))
        own = rows.narrow(-1, beside, width).clone(memory_format=torch.contiguous_format)
        own.narrow(-1, 0, beside).add_(rows.narrow(-1, beside + width, beside))
        own.narrow(-1, width - beside, beside).add_(rows.narrow(-1, 0, beside))
        return own, None, None
