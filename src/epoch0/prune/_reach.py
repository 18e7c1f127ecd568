"""What each torch function passes on from the input towards the output: a model run on zeros and ones (THEORY 4)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from epoch0.errors import InputError
from epoch0.prune._reach_attention import attention, multi_head
from epoch0.prune._reach_pooling import adaptive, largest_entry, largest_with_indices, pool
from epoch0.prune._zero_one import biased, followed, product, zero_or_one
from epoch0.tracing.operations import DROPOUTS, NORMS, argument, function_name, map_tensors, tensors_in

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


def _linear(args: Args, kwargs: Kwargs) -> Tensor:
    return biased(product(F.linear, args[0], argument(args, kwargs, 1, "weight", None)),
                  argument(args, kwargs, 2, "bias", None))  # fmt: skip


def _convolution(function: Callable[..., Tensor]) -> Callable[[Args, Kwargs], Tensor]:
    def rule(args: Args, kwargs: Kwargs) -> Tensor:
        weight, bias = argument(args, kwargs, 1, "weight", None), argument(args, kwargs, 2, "bias", None)
        rest = {key: value for key, value in kwargs.items() if key not in ("input", "weight", "bias")}
        x = argument(args, kwargs, 0, "input", None)
        return biased(product(lambda a, b: function(a, b, None, *args[3:], **rest), x, weight), bias)

    return rule


def _plain(function: Callable[..., Tensor]) -> Callable[[Args, Kwargs], Tensor]:
    return lambda args, kwargs: product(function, args[0], argument(args, kwargs, 1, "other", None))


def _added(function: Callable[..., Tensor]) -> Callable[[Args, Kwargs], Tensor]:
    # addmm(bias, a, b) and baddbmm
    return lambda args, kwargs: product(function, args[1], args[2]) + args[0]


def _einsum(args: Args, kwargs: Kwargs) -> Any:
    tensors = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
    if len(tensors) == 1:
        return torch.einsum(args[0], *tensors)
    if len(tensors) != 2:
        raise InputError("an einsum of more than two tensors cannot be followed; write it as two.")
    return product(lambda a, b: torch.einsum(args[0], a, b), *tensors)


def _sum(args: Args, kwargs: Kwargs) -> Any:
    # add, sub, maximum and their like: either one is enough
    a, b = args[0], argument(args, kwargs, 1, "other", None)
    if not isinstance(a, Tensor):
        a, b = b, a
    return a + b if isinstance(b, Tensor) else biased(a, b)


def _quotient(args: Args, kwargs: Kwargs) -> Any:
    a, b = args[0], argument(args, kwargs, 1, "other", None)
    if not isinstance(b, Tensor):
        return a.clone()
    below = b + 1.0  # never zero, but it may depend on the input
    return product(torch.mul, a, below) if isinstance(a, Tensor) else below


def _same(args: Args, kwargs: Kwargs) -> Any:
    return argument(args, kwargs, 0, "input", None)


def _not_zero(args: Args, kwargs: Kwargs) -> Tensor:
    found: Tensor = _same(args, kwargs) + 1.0
    return found


def _norm(args: Args, kwargs: Kwargs) -> Tensor:
    # statistics are no paths; where the bias stands in the call depends on the norm, and any of it is enough
    learnt = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, Tensor)]
    if any(tensor.requires_grad for tensor in learnt):
        raise InputError("a masked weight of a norm cannot be followed; leave norms unpruned.")
    found: Tensor = biased(_same(args, kwargs), 1 if learnt else None)
    return found


def _interpolate(args: Args, kwargs: Kwargs) -> Tensor:
    if argument(args, kwargs, 3, "mode", "nearest") == "bicubic":
        raise InputError("bicubic interpolation has negative weights and cannot be followed; bilinear can.")
    return F.interpolate(*args, **kwargs)


_ZERO_AT_ZERO = (
    "relu", "relu6", "tanh", "erf", "silu", "hardswish", "selu", "mish", "softsign", "sin", "abs", "absolute", "gelu",
    "leaky_relu", "rrelu", "hardtanh", "elu", "celu", "prelu", "clamp", "clip", "clamp_min", "clamp_max", "threshold",
    "softshrink", "hardshrink", "tanhshrink", "atan", "arctan", "sign", "sqrt", "square", "pow", "neg", "negative",
    "expm1", "log1p", "asinh", "sinh", "tan", "positive", "nan_to_num", "normalize", "detach", "contiguous", "clone",
    "round", "ceil", "floor", "trunc",
)  # fmt: skip
_NOT_ZERO_AT_ZERO = (
    "sigmoid", "expit", "hardsigmoid", "softplus", "logsigmoid", "log_sigmoid", "cos", "cosh", "exp", "exp2", "softmax",
    "log_softmax", "softmin", "logit", "rsqrt", "reciprocal", "log", "log2", "log10", "erfc", "sinc", "heaviside",
)  # fmt: skip
_SUMS = ("add", "sub", "subtract", "rsub", "maximum", "minimum", "fmax", "fmin", "hypot", "atan2")

RULES: dict[str, Callable[[Args, Kwargs], Any]] = {
    **dict.fromkeys(_ZERO_AT_ZERO, _same),
    **dict.fromkeys(_NOT_ZERO_AT_ZERO, _not_zero),
    **dict.fromkeys(DROPOUTS, _same),
    **dict.fromkeys(NORMS, _norm),
    **dict.fromkeys(_SUMS, _sum),
    **{name: _convolution(getattr(F, name)) for d in (1, 2, 3) for name in (f"conv{d}d", f"conv_transpose{d}d")},
    **{name: _plain(getattr(torch, name)) for name in ("mul", "multiply", "matmul", "mm", "bmm", "mv", "dot", "outer")},
    **{f"max_pool{d}d{ending}": pool(d) for d in (1, 2, 3) for ending in ("", "_with_indices")},
    **{f"adaptive_max_pool{d}d": adaptive(getattr(F, f"adaptive_avg_pool{d}d")) for d in (1, 2, 3)},
    "linear": _linear,
    "addmm": _added(torch.mm),
    "baddbmm": _added(torch.bmm),
    "einsum": _einsum,
    "interpolate": _interpolate,
    "div": _quotient,
    "divide": _quotient,
    "truediv": _quotient,
    "amax": largest_entry,
    "amin": largest_entry,
    "max": largest_with_indices,
    "min": largest_with_indices,
    "scaled_dot_product_attention": attention,
    "multi_head_attention_forward": multi_head,
}  # fmt: skip
"""What stands for each function that is not simply run on zeros and ones."""

SUMMING: dict[str, Callable[..., Any] | None] = {
    **dict.fromkeys((
        "mean", "sum", "nanmean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
        "adaptive_avg_pool2d", "adaptive_avg_pool3d", "cumsum", "fold", "index_add", "scatter_add",
    )),
    **dict.fromkeys(("std", "var", "norm", "logsumexp"), torch.sum),
    "lp_pool1d": F.avg_pool1d,
    "lp_pool2d": F.avg_pool2d,
}  # fmt: skip
"""Sums of entries with positive weights: run as they are, or the sum that stands for them."""

MOVING = frozenset({
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "reshape", "view", "view_as", "reshape_as",
    "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "movedim", "moveaxis", "transpose", "swapaxes",
    "swapdims", "t", "T", "mT", "H", "mH", "adjoint", "expand", "expand_as", "repeat", "repeat_interleave", "tile",
    "pad", "constant_pad_nd", "roll", "flip", "rot90", "unfold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "getitem", "index_select", "select", "narrow", "gather", "take_along_dim", "chunk", "split", "tensor_split",
    "unbind", "where", "masked_fill", "tril", "triu", "diagonal", "to", "type", "type_as", "float", "double", "half",
    "bfloat16", "cpu", "cuda", "data", "ravel", "broadcast_to", "broadcast_tensors", "meshgrid", "setitem", "copy",
    "requires_grad", "zero", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
    "new_empty", "index_put", "index_copy", "scatter", "masked_select", "identity", "as_strided", "alias",
})  # fmt: skip
"""Entries change places only."""


_TABLES = ("embedding", "embedding_bag")
_NUMBER_ABOVE = ("__rtruediv__", "__rdiv__", "__rpow__")


class Reach(TorchFunctionMode):
    """While it is on, every function of a tensor that depends on the input runs by its rule."""

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        kwargs, name = kwargs or {}, function_name(func)
        if name in _TABLES:  # rows looked up for tokens and positions: these are the input
            found = func(*args, **kwargs)
            return forward_ad.make_dual(found, (found.detach() != 0).to(found.dtype))
        if not any(map(followed, tensors_in((args, kwargs)))):
            return func(*args, **kwargs)
        args, kwargs = map_tensors(args, _without_sign), map_tensors(kwargs, _without_sign)
        if getattr(func, "__name__", "") in _NUMBER_ABOVE:
            result = _tidied(args[0] + 1.0)
        elif name in RULES:
            result = _tidied(RULES[name](args, kwargs))
        elif name in SUMMING:
            stand_in = SUMMING[name]
            result = _tidied(func(*args, **kwargs) if stand_in is None else stand_in(*args[:2]))
        else:
            return _moved(func, name, args, kwargs)
        in_place = kwargs.get("inplace") or _writes(getattr(func, "__name__", ""))
        if in_place and isinstance(args[0], Tensor) and result is not args[0]:
            return args[0].copy_(result)
        return result


def _moved(func: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """The result of a function that moves entries or makes no floating-point numbers; any other is refused by name."""
    if name in MOVING:
        return func(*args, **kwargs)
    try:
        result = func(*args, **kwargs)
        known = not any(tensor.is_floating_point() for tensor in tensors_in(result))
    except RuntimeError:
        known, result = False, None
    if not known:
        raise InputError(
            f"the operation '{name}' has no rule for what it passes on, so the paths through this model cannot "
            "be followed; the other numbers of the summary need no model."
        )
    return result


def _writes(name: str) -> bool:
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    return name.endswith("_")


def _tidied(result: Any) -> Any:
    return map_tensors(result, lambda t: zero_or_one(t) if followed(t) else t)


def _without_sign(tensor: Tensor) -> Tensor:
    """Constants that meet the signal count by whether they are zero."""
    if not tensor.is_floating_point() or followed(tensor):
        return tensor
    return (tensor != 0).to(tensor.dtype)
