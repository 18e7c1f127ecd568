"""Convolution, batch norm and ReLU that are cheap to differentiate twice, for Hessian products (Wang et al. 2020).

torch differentiates its own backward formulas in pieces: it keeps tensors that the result does not need, and takes the
weight gradients of convolutions without the kernel for them. Here a gradient is one function with one derivative. For
batch norm, with xhat = (x - mean)/std, r = 1/std, P(v) = v - mean(v) - xhat mean(v xhat), it is g = weight r P(gy). Its
vector-Jacobian product is weight r P(v) in gy, the same formula, and

    -r (mean(gy xhat) weight r P(v) + mean(v xhat) g + mean(v g) xhat)          in x:

x and g are all that is kept, tensors that the convolutions around it keep anyway.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

_ATEN = torch.ops.aten
_RELU = (F.relu, torch.relu, Tensor.relu)
_DIMENSIONS = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}
Setting = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, whether transposed, output padding, groups."""


def cheap(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], batch_norm: str) -> Tensor | None:
    """What a call of a torch function gives, if there is a cheap second derivative for it; otherwise None.

    >>> cheap(torch.relu, (torch.tensor([-1.0, 1.0]),), {}, "train")
    tensor([0., 1.])

    Args:
        func: the torch function.
        args: its positional arguments.
        kwargs: its other arguments.
        batch_norm: ``"train"`` or ``"eval"``: the statistics wanted.
    """
    if func in _RELU and len(args) == 1 and not kwargs.get("inplace"):
        return _Relu.apply(*args)  # type: ignore[no-any-return]
    if func is F.batch_norm:
        return _batch_norm(batch_norm, *args, **kwargs)
    return _convolution(_DIMENSIONS[func], *args, **kwargs) if func in _DIMENSIONS else None


def _batch_norm(
    statistics: str, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:  # fmt: skip
    of_batch = statistics == "train" or running_mean is None or running_var is None
    if not of_batch or len(input) == 1 or any(t is not None and t.requires_grad for t in (weight, bias)):
        return None
    return _BatchNorm.apply(input, weight, bias, eps)  # type: ignore[no-any-return]


def _convolution(
    dimensions: int, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor | None:  # fmt: skip
    if isinstance(padding, str) or input.dim() != dimensions + 2 or (bias is not None and bias.requires_grad):
        return None
    setting = convolution_setting(dimensions, stride, padding, dilation, groups)
    return _Convolution.apply(input, weight, bias, setting)  # type: ignore[no-any-return]


def convolution_setting(dimensions: int, stride: Any, padding: Any, dilation: Any, groups: int = 1) -> Setting:
    """What the operators of torch want of a convolution's arguments, each a number or one a dimension.

    >>> convolution_setting(2, 1, (1, 0), [2])
    ([1, 1], [1, 0], [2, 2], False, [0, 0], 1)
    """
    sizes = [[s] * dimensions if isinstance(s, int) else list(s) for s in (stride, padding, dilation)]
    strides, paddings, dilations = (s * dimensions if len(s) < dimensions else s for s in sizes)
    return strides, paddings, dilations, False, [0] * dimensions, groups


class _Relu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> Tensor:
        return _ReluGradient.apply(gy, *ctx.saved_tensors)  # type: ignore[no-any-return]


class _ReluGradient(Function):
    @staticmethod
    def forward(ctx: Any, gy: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return _ATEN.threshold_backward(gy, y, 0)  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None]:
        return _ATEN.threshold_backward(v, *ctx.saved_tensors, 0), None


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, setting: Setting) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.setting = setting
        return _ATEN.convolution(x, weight, bias, *setting)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        wanted = ctx.needs_input_grad[:2]
        return (*_ConvolutionGradient.apply(gy, *ctx.saved_tensors, ctx.setting, wanted), None, None)


class _ConvolutionGradient(Function):
    @staticmethod
    def forward(
        ctx: Any, gy: Tensor, x: Tensor, weight: Tensor, setting: Setting, wanted: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.save_for_backward(gy, x, weight)
        ctx.setting, ctx.wanted = setting, wanted
        ctx.set_materialize_grads(False)
        return _ATEN.convolution_backward(gy, x, weight, None, *setting, [*wanted, False])[:2]  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, vx: Tensor | None, vw: Tensor | None) -> tuple[Tensor | None, ...]:
        gy, x, weight = ctx.saved_tensors
        parts = [_ATEN.convolution(x, vw, None, *ctx.setting)] if vw is not None else []
        if vx is not None:
            parts.append(_ATEN.convolution(vx, weight, None, *ctx.setting))
        in_gy = parts[0].add_(parts[1]) if len(parts) == 2 else parts[0] if parts else None
        back = _ATEN.convolution_backward
        in_x = in_weight = None
        if vw is not None and ctx.wanted[0]:
            in_x = back(gy, x, vw, None, *ctx.setting, [True, False, False])[0]
        if vx is not None and ctx.wanted[1]:
            in_weight = back(gy, vx, weight, None, *ctx.setting, [False, True, False])[1]
        return in_gy, in_x, in_weight, None, None


class _BatchNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        y, mean, scale = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor, None, None, None]:
        return _BatchNormGradient.apply(gy, *ctx.saved_tensors, ctx.eps), None, None, None


class _BatchNormGradient(Function):
    @staticmethod
    def forward(
        ctx: Any, gy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, scale: Tensor, eps: float
    ) -> Tensor:
        g, along = _norm_backward(gy, x, weight, mean, scale, eps)
        ctx.save_for_backward(x, g, weight, mean, scale, along)
        ctx.eps = eps
        return g

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        x, g, weight, mean, scale, along = ctx.saved_tensors
        in_gy, v_along = _norm_backward(v, x, weight, mean, scale, ctx.eps)
        count = x.numel() // len(mean)
        slope = -scale.square() * (v * g).sum([0, *range(2, x.dim())]) / count
        in_x = in_gy * _wide(-scale * along / count, x)
        in_x.addcmul_(g, _wide(-scale * v_along / count, x))
        in_x.addcmul_(x, _wide(slope, x)).sub_(_wide(slope * mean, x))
        return in_gy, in_x, None, None, None, None


def _norm_backward(
    gy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, scale: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient at x, and the sum of gy xhat by channel."""
    unit = torch.ones_like(mean) if weight is None else weight
    back = _ATEN.native_batch_norm_backward
    g, along, _ = back(gy, x, unit, None, None, mean, scale, True, eps, [True, True, False])
    return g, along


def _wide(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (x.dim() - 2))
