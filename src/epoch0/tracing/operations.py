"""What each torch function is to a measurement, a nonlinearity or a weighted operation or a norm, and what to call.

Dropout is the identity and batch norm takes the statistics that were asked for (THEORY section 0).
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0 import activations
from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.tracing.sizes import sum_of_squares

Function = Callable[..., Any]


def function_name(func: Function) -> str:
    """The plain name of a torch function: ``relu`` for ``F.relu``, ``torch.relu_`` and ``Tensor.relu`` alike."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":  # a property such as x.T
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    if dunder := _DUNDER.match(name):
        return dunder.group(1)
    return name.strip("_")


_DUNDER = re.compile(r"__(?:[ri](?=add|sub|mul|matmul|truediv|div|pow|floordiv))?(\w+?)__$")


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any) -> Any:
    """One argument of a call, wherever it was given."""
    return args[position] if len(args) > position else kwargs.get(name, default)


def _hardtanh(low: float, high: float) -> Activation | None:
    if (low, high) == (0, 6):
        return activations.relu6()
    return activations.hardtanh(float(low), float(high)) if low < 0 < high else None


def _clamp(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    low, high = argument(args, kwargs, 1, "min", None), argument(args, kwargs, 2, "max", None)
    if high is None and isinstance(low, int | float) and low == 0:
        return activations.get("relu")
    return _hardtanh(low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _prelu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    weight = argument(args, kwargs, 1, "weight", None)
    if not isinstance(weight, Tensor) or not bool((weight == weight.flatten()[:1]).all()):
        return None  # a slope for each channel
    return activations.leaky_relu(float(weight.detach().flatten()[0]))


def _maximum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    other = argument(args, kwargs, 1, "other", None)
    return activations.get("relu") if isinstance(other, Tensor) and not bool(other.detach().any()) else None


def _threshold(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    zero = argument(args, kwargs, 1, "threshold", None) == 0 and argument(args, kwargs, 2, "value", None) == 0
    return activations.get("relu") if zero else None


def _named(name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Activation | None]:
    return lambda args, kwargs: activations.get(name)


def _gelu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    exact = argument(args, kwargs, 1, "approximate", "none") == "none"
    return activations.gelu() if exact else activations.gelu_tanh()


def _softplus(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    beta, threshold = argument(args, kwargs, 1, "beta", 1), argument(args, kwargs, 2, "threshold", 20)
    return activations.softplus(float(beta)) if beta > 0 and threshold >= 20 else None


def _unknown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    return None


_WITHOUT_RULE = (
    "logsigmoid", "log_sigmoid", "cos", "clamp_max", "minimum", "softshrink", "hardshrink", "tanhshrink", "logit",
    "atan", "arctan", "heaviside", "sign",
)  # fmt: skip

_BY_NAME = (
    "relu", "tanh", "erf", "silu", "relu6", "hardsigmoid", "hardswish", "sigmoid", "selu", "mish", "softsign", "sin",
    "abs",
)  # fmt: skip

ELEMENTWISE: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Activation | None]] = {
    **{name: _named(name) for name in _BY_NAME},
    **{other: _named(name) for other, name in (("expit", "sigmoid"), ("absolute", "abs"))},
    "gelu": _gelu,
    "softplus": _softplus,
    "leaky_relu": lambda a, k: activations.leaky_relu(float(argument(a, k, 1, "negative_slope", 0.01))),
    "rrelu": lambda a, k: activations.leaky_relu(
        (argument(a, k, 1, "lower", 1 / 8) + argument(a, k, 2, "upper", 1 / 3)) / 2
    ),
    "hardtanh": lambda a, k: _hardtanh(argument(a, k, 1, "min_val", -1.0), argument(a, k, 2, "max_val", 1.0)),
    "elu": lambda a, k: activations.elu(float(argument(a, k, 1, "alpha", 1.0))),
    "celu": lambda a, k: activations.celu(float(argument(a, k, 1, "alpha", 1.0))),
    "prelu": _prelu,
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda a, k: activations.get("relu") if argument(a, k, 1, "min", None) == 0 else None,
    "maximum": _maximum,
    "threshold": _threshold,
    **dict.fromkeys(_WITHOUT_RULE, _unknown),
}
"""Elementwise nonlinearities, and the activation that each call is; None without a rule, see :class:`Op`."""

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")

OTHER_NONLINEAR = frozenset({
    "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d", "lp_pool1d", "lp_pool2d", "softmax", "softmin", "log_softmax",
    "gumbel_softmax", "multi_head_attention_forward", "scaled_dot_product_attention", "glu", "max", "min", "amax",
    "amin", "topk", "sort", "kthvalue", "median", "pow", "square", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt",
    "norm", "logsumexp", "where", *_RECURRENT,
})  # fmt: skip
"""Nonlinear, but no elementwise activation whose output is a layer of its own."""

WEIGHTED = {
    "linear": "linear", "addmm": "linear", "matmul": "linear", "mm": "linear", "bmm": "linear", "baddbmm": "linear",
    "einsum": "linear", "tensordot": "linear", "mv": "linear", "addmv": "linear", "bilinear": "bilinear",
    **{f"conv{d}d": "convolution" for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": "convolution" for d in (1, 2, 3)},
    "convolution": "convolution",
    "multi_head_attention_forward": "attention",
    **dict.fromkeys(_RECURRENT, "recurrent"),
}  # fmt: skip
"""Operations that multiply by learnt weights and so start a layer."""

NORMS = frozenset({"batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm", "local_response_norm"})
RESHAPES = frozenset({"flatten", "reshape", "view", "squeeze", "unsqueeze", "contiguous", "clone", "unflatten", "to"})
FILLED = frozenset({"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like",
    "new_zeros", "new_ones", "new_full", "new_empty"})  # fmt: skip
"""Operations that take a tensor for its shape or dtype, not for its values."""
DROPOUTS = frozenset(
    {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
)


_SIGNATURES: dict[Any, inspect.Signature] = {}  # no lru_cache: compiled code warns of it


def _signature(function: Function) -> inspect.Signature:
    if function not in _SIGNATURES:
        _SIGNATURES[function] = inspect.signature(function)
    return _SIGNATURES[function]


def _statistics(
    func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], flag: str, batch_norm: str, hold: bool
) -> Any:
    """Call batch or instance norm with the statistics of the batch ("train") or the running ones ("eval")."""
    call = _signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    values = call.arguments
    running = values["running_mean"] is not None and values["running_var"] is not None
    if batch_norm == "train" or not running:
        shape = tuple(values["input"].shape)
        if flag == "training" and shape[0] == 1 and running:  # without running ones it standardizes weights
            raise InputError(
                f"a batch of one, shape {shape}, through batch norm: one example has no batch statistics. "
                "Give more examples, or measure with batch_norm='eval'."
            )
        if flag == "training" and hold:
            x = values["input"].detach()
            over = [0, *range(2, x.dim())]
            mean, variance = x.mean(over), x.var(over, correction=0)
            values.update({"running_mean": mean, "running_var": variance, flag: False})
        else:
            values.update({"running_mean": None, "running_var": None, flag: True})
    else:
        values[flag] = False
    return func(*call.args, **call.kwargs)


def call(
    func: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], batch_norm: str, hold: bool = False
) -> Any:
    """What the model's call of a torch function gives while it is measured.

    Args:
        func: the torch function.
        name: its plain name.
        args: its positional arguments.
        kwargs: its other arguments.
        batch_norm: ``"train"`` for the statistics of the batch, ``"eval"`` for the running ones.
        hold: take the statistics of the batch as constants: no derivative goes through them.

    Raises:
        InputError: for a batch of one through batch statistics.
    """
    if name in DROPOUTS:
        return argument(args, kwargs, 0, "input", None)
    if func is F.batch_norm:
        return _statistics(func, args, kwargs, "training", batch_norm, hold)
    if func is F.instance_norm:
        return _statistics(func, args, kwargs, "use_input_stats", batch_norm, hold)
    if name == "scaled_dot_product_attention":
        args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
        kwargs = {**kwargs, "dropout_p": 0.0} if "dropout_p" in kwargs else kwargs
    return func(*args, **kwargs)


def activation(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Activation | None:
    """The activation that a call of an elementwise nonlinearity is, if there is a rule for it."""
    return ELEMENTWISE[name](args, kwargs)


_NONE = (0, (0,), (0, 0), (0, 0, 0), "valid")


def weight_gain(func: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, int]:
    """Mean over output units of the sum of squared weights into the unit, and the number of weights into a unit.

    For a dense layer this is fan_in * mean(W^2) = sigma_w^2. A convolution sees fewer weights at a zero-padded
    border, and that is counted: the call itself is made with squared weights on an input of ones.

    Returns:
        (NaN, 0) unless the call is a linear map or convolution of its first argument by its second.
    """
    simple = name in ("linear", "matmul", "mm") or WEIGHTED[name] == "convolution"
    if not simple or len(args) < 2 or not (isinstance(args[0], Tensor) and isinstance(args[1], Tensor)):
        return float("nan"), 0
    x, weight = args[0].detach(), args[1].detach()
    if not args[0].requires_grad or args[1].requires_grad or x.dim() < 2 or weight.dim() < 2:
        return float("nan"), 0
    rows = weight.shape[-1] if name in ("matmul", "mm") else weight.shape[0]
    unpadded = "conv" in name and "transpose" not in name and argument(args, kwargs, 4, "padding", 0) in _NONE
    if name == "linear" or (weight.dim() == 2 and name in ("matmul", "mm")) or unpadded:
        return sum_of_squares(weight) / rows, weight.numel() // rows
    without_bias = (torch.ones_like(x[:1]), weight.square(), *([None] if len(args) > 2 else []), *args[3:])
    with torch.no_grad():
        squares = func(*without_bias, **{k: None if k == "bias" else v for k, v in kwargs.items()})
    if name in ("matmul", "mm"):
        fan_in = weight.shape[-2]
    elif "transpose" in name:
        groups = argument(args, kwargs, 6, "groups", 1)
        fan_in = weight.shape[0] // groups * weight[0, 0].numel()
    else:
        fan_in = weight[0].numel()
    return float(squares.double().mean()), int(fan_in)


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in a nest of tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    return []


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of tuples, lists and dicts with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        changed = [map_tensors(v, change) for v in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if isinstance(value, dict):
        return type(value)((k, map_tensors(v, change)) for k, v in value.items())
    return value
