"""Circular convolutions that are cheap on a CPU, forth and back (for _forward and evaluation).

Torch pads in place, slice by slice, so its backward pass makes a tensor of zeros and several copies for each of the
four sides, which can take longer than the convolution. Here

* the sides are added where they came from, in torch's order: gradients are the same to the bit;
* images that lie channels-last are padded as they lie, and the gradient of a convolution that keeps their size is found
  as what it is on a torus, a circular convolution with the kernel turned round: the same up to rounding.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def with_cheap_circles(call: Callable[[Tensor], Any], model: nn.Module) -> Callable[[Tensor], Any]:
    """The same outputs; circular convolutions in ``model`` cost less.

    >>> with_cheap_circles(net, net)(images)           # as net(images)

    For the time of a call every such layer does its work here; afterwards the model is as it was.
    """
    layers = [(part, _done_here(part)) for part in model.modules() if isinstance(part, nn.Conv2d) and _is_ours(part)]
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


def _done_here(layer: nn.Conv2d) -> Callable[[Tensor], Tensor]:
    def forward(image: Tensor) -> Tensor:
        sides, weight = layer.padding, layer.weight
        assert not isinstance(sides, str)
        if _keeps_size(layer) and _wants_gradient(image) and _is_on_torus(image, weight, sides):
            convolved: Tensor = _OnTorus.apply(image, weight, layer.bias)
            return convolved
        padded = pad(image, beside=sides[1], above=sides[0])
        return F.conv2d(padded, weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)

    return forward


def _keeps_size(layer: nn.Conv2d) -> bool:
    if layer.groups != 1 or layer.stride != (1, 1) or layer.dilation != (1, 1):
        return False
    return layer.kernel_size == tuple(2 * int(side) + 1 for side in layer.padding)


def _wants_gradient(image: Tensor) -> bool:
    return image.requires_grad and torch.is_grad_enabled()


def _is_on_torus(image: Tensor, weight: Tensor, sides: tuple[int, ...]) -> bool:
    """What lies in rows keeps torch's gradient to the bit, and autocast has casts of its own."""
    if image.dtype != weight.dtype or torch.is_autocast_enabled("cpu"):
        return False
    return _is_for_us(image, sides[1], sides[0]) and _format_of(image) is torch.channels_last


def pad(image: Tensor, beside: int, above: int) -> Tensor:
    """Circular padding: that many columns left and right, and rows above and below; laid out as the image is.

    >>> pad(torch.zeros(2, 3, 8, 8), 1, 2).shape
    torch.Size([2, 3, 12, 10])
    """
    if not _is_for_us(image, beside, above):
        return F.pad(image, (beside, beside, above, above), mode="circular")
    if _wants_gradient(image):
        padded: Tensor = _CircularPad.apply(image, beside, above)
        return padded
    return _padded(image, beside, above)


def _is_for_us(image: Tensor, beside: int, above: int) -> bool:
    """Everything else is for torch, also to say what is wrong with it."""
    if image.dim() != 4 or image.device.type != "cpu" or torch._C._are_functorch_transforms_active():
        return False
    return 0 <= above <= image.shape[2] and 0 <= beside <= image.shape[3] and image.numel() > 0


def _padded(image: Tensor, beside: int, above: int) -> Tensor:
    if _format_of(image) is torch.contiguous_format:
        return F.pad(image, (beside, beside, above, above), mode="circular")
    # torch would make rows of it, several times as slowly, and the convolution would turn them back
    count, channels, height, width = image.shape
    places = _places(height, width, beside, above)
    pixels = image.permute(0, 2, 3, 1).reshape(count, height * width, channels).index_select(1, places)
    return pixels.view(count, height + 2 * above, width + 2 * beside, channels).permute(0, 3, 1, 2)


@lru_cache(maxsize=128)
def _places(height: int, width: int, beside: int, above: int) -> Tensor:
    """Where each pixel of the padded image comes from, as numbers of the image's pixels row by row."""
    with torch.inference_mode(False):  # it is remembered, and a tensor made in that mode is of no use outside
        rows = torch.arange(-above, height + above) % height
        columns = torch.arange(-beside, width + beside) % width
        return (rows[:, None] * width + columns).flatten()


def _format_of(image: Tensor) -> torch.memory_format:
    last = not image.is_contiguous() and image.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


class _CircularPad(torch.autograd.Function):
    # a separate setup_context would let torch.func in, and cost as much as is won here
    @staticmethod
    def forward(ctx: Any, image: Tensor, beside: int, above: int) -> Tensor:
        ctx.beside, ctx.above = beside, above
        return _padded(image, beside, above)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        beside, above, lies = ctx.beside, ctx.above, _format_of(gradient)
        height, width = gradient.shape[-2] - 2 * above, gradient.shape[-1] - 2 * beside
        rows = gradient.narrow(-2, above, height).clone(memory_format=lies)
        rows.narrow(-2, 0, above).add_(gradient.narrow(-2, above + height, above))
        rows.narrow(-2, height - above, above).add_(gradient.narrow(-2, 0, above))
        own = rows.narrow(-1, beside, width).clone(memory_format=lies)
        own.narrow(-1, 0, beside).add_(rows.narrow(-1, beside + width, beside))
        own.narrow(-1, width - beside, beside).add_(rows.narrow(-1, 0, beside))
        return own, None, None


class _OnTorus(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padded = _padded(image, weight.shape[3] // 2, weight.shape[2] // 2)
        ctx.save_for_backward(image, weight, padded)
        return F.conv2d(padded, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        image, weight, padded = ctx.saved_tensors
        above, beside = weight.shape[2] // 2, weight.shape[3] // 2
        if torch.is_grad_enabled():  # to be differentiated again, for which it must come from the image
            padded = pad(image, beside, above)
        turned = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
        of_image = F.conv2d(pad(gradient, beside, above), turned)
        asked = [False, *ctx.needs_input_grad[1:]]
        of_weight = of_bias = None
        if any(asked):
            _, of_weight, of_bias = torch.ops.aten.convolution_backward(
                gradient, padded, weight, [weight.shape[0]], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, asked
            )
        return of_image, of_weight, of_bias
