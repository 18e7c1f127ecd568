"""Which operations of torch are affine, which fold and where, and why the others do neither (DESIGN: break faces)."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from epoch0.errors import InputError
from epoch0.regions._convolution import convolution

IDENTITIES = {
    "identity", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout",
    "feature_alpha_dropout", "contiguous", "clone", "detach", "to", "float", "double", "positive", "pos", "type_as",
}  # fmt: skip
WEIGHTED = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "matmul", "mm",
    "addmm", "einsum", "batch_norm", "mul", "imul", "multiply", "div", "itruediv", "truediv", "divide",
}  # fmt: skip
SHAPES = WEIGHTED | {
    "add", "iadd", "sub", "isub", "subtract", "rsub", "neg", "negative", "flatten", "unflatten", "reshape", "view",
    "reshape_as", "view_as", "permute", "transpose", "swapaxes", "movedim", "squeeze", "unsqueeze", "expand", "repeat",
    "tile", "getitem", "narrow", "select", "index_select", "chunk", "split", "unbind", "stack", "cat", "concat",
    "concatenate", "flip", "roll", "pad", "mean", "sum", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "interpolate", "upsample", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "unfold", "fold",
}  # fmt: skip
FOLDS = {
    "relu", "leaky_relu", "rrelu", "prelu", "hardtanh", "relu6", "abs", "absolute", "clamp", "clip", "clamp_min",
    "clamp_max", "hardsigmoid", "softshrink",
}  # fmt: skip
LARGEST = {
    "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "amax", "amin", "maximum", "minimum", "max", "min",
}  # fmt: skip
_SMOOTH = {
    "tanh", "sigmoid", "gelu", "silu", "elu", "selu", "celu", "softplus", "softsign", "mish", "erf", "exp", "log",
    "sin", "cos", "softmax", "log_softmax", "logsigmoid", "tanhshrink", "sqrt", "pow", "square", "hardswish", "softmin",
}  # fmt: skip
_NORMS = {"layer_norm", "group_norm", "instance_norm", "local_response_norm", "rms_norm", "normalize"}
_JUMPS = {"sign", "round", "floor", "ceil", "heaviside", "hardshrink", "threshold", "gt", "lt", "ge", "le", "where"}


def refusal(operation: str, where: str) -> InputError:
    """Why this operation has no regions, and what can be measured instead."""
    plain = operation.removesuffix("module").replace("batchnorm", "batch_norm")
    instead = (
        "trajectory_length and gain measure networks with any nonlinearity; relu, leaky_relu, prelu, hardtanh, relu6, "
        "abs, clamp and max pooling have linear regions."
    )
    if plain in _SMOOTH:
        reason = f"{plain} is no piecewise linear function"
    elif plain in _NORMS:
        reason = f"{plain} divides by a norm of its input, which is not piecewise linear"
    elif plain in _JUMPS:
        reason = f"{plain} jumps, and regions are defined for continuous functions here"
    elif plain in WEIGHTED:
        reason = f"{plain} of two tensors that both depend on the input is not piecewise linear"
    else:
        reason = f"no rule says that {plain} is piecewise linear"
    return InputError(f"the operation {operation} ({where}) cannot be cut into linear regions: {reason}. {instead}")


def module_call(module: nn.Module, where: str) -> tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A leaf module as (operation, function, weights, keywords): function(x, *weights, **keywords) in evaluation mode.

    Raises:
        InputError: if there is no rule for it.
    """
    kind = next((k.__name__ for k in type(module).__mro__ if k.__name__ in _MODULES), None)
    m: Any = module
    if kind is not None:
        operation, attributes = _MODULES[kind]
        keywords = {name: getattr(m, name) for name in attributes}
        call = getattr(functional, operation, None) or getattr(torch, operation)
        return operation, call, (m.weight,) if kind == "PReLU" else (), keywords
    if isinstance(module, nn.Linear):
        return "linear", functional.linear, (m.weight, m.bias), {}
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):  # padding of every mode is in the module's own function
        return f"conv{len(m.kernel_size)}d", convolution(module), (m.weight, m.bias), {}
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        name = f"conv_transpose{len(m.kernel_size)}d"
        function, settings = getattr(functional, name), (m.stride, m.padding, m.output_padding, m.groups, m.dilation)
        return name, lambda x, weight, bias: function(x, weight, bias, *settings), (m.weight, m.bias), {}
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        if m.running_mean is None:
            raise InputError(f"{where} keeps no running statistics: it mixes the examples of a batch.")
        scale = (m.running_var.detach().double() + m.eps).rsqrt()
        scale = scale if m.weight is None else scale * m.weight.detach().double()
        shift = torch.zeros_like(scale) if m.bias is None else m.bias.detach().double()
        return "batch_norm", _normalize, (scale, shift - m.running_mean.double() * scale), {}
    if isinstance(module, nn.modules.padding._ConstantPadNd | nn.modules.padding._ReflectionPadNd
                  | nn.modules.padding._ReplicationPadNd | nn.modules.padding._CircularPadNd):  # fmt: skip
        return "pad", lambda x: m.forward(x), (), {}
    if isinstance(module, nn.Upsample | nn.UpsamplingNearest2d | nn.PixelShuffle | nn.Flatten | nn.Unflatten):
        return "reshape", lambda x: m.forward(x), (), {}
    if isinstance(module, nn.Identity | nn.modules.dropout._DropoutNd):
        return "identity", lambda x: x, (), {}
    module_name = type(module).__name__.lower()
    operation = module_name.removesuffix("norm") + "_norm" if module_name.endswith("norm") else module_name
    raise refusal(operation, where)


def _normalize(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Batch norm by its running statistics: one factor and one shift a channel."""
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return x * scale.view(shape) + shift.view(shape)


_POOL = ("kernel_size", "stride", "padding")
_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ReLU": ("relu", ()),
    "LeakyReLU": ("leaky_relu", ("negative_slope",)),
    "RReLU": ("rrelu", ("lower", "upper")),
    "PReLU": ("prelu", ()),
    "Hardtanh": ("hardtanh", ("min_val", "max_val")),
    "ReLU6": ("relu6", ()),
    "Hardsigmoid": ("hardsigmoid", ()),
    "Softshrink": ("softshrink", ("lambd",)),
    "Abs": ("abs", ()),
    "MaxPool1d": ("max_pool1d", (*_POOL, "dilation", "ceil_mode", "return_indices")),
    "MaxPool2d": ("max_pool2d", (*_POOL, "dilation", "ceil_mode", "return_indices")),
    "MaxPool3d": ("max_pool3d", (*_POOL, "dilation", "ceil_mode", "return_indices")),
    "AdaptiveMaxPool1d": ("adaptive_max_pool1d", ("output_size", "return_indices")),
    "AdaptiveMaxPool2d": ("adaptive_max_pool2d", ("output_size", "return_indices")),
    "AdaptiveMaxPool3d": ("adaptive_max_pool3d", ("output_size", "return_indices")),
    "AvgPool1d": ("avg_pool1d", (*_POOL, "ceil_mode", "count_include_pad")),
    "AvgPool2d": ("avg_pool2d", (*_POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    "AvgPool3d": ("avg_pool3d", (*_POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    "AdaptiveAvgPool1d": ("adaptive_avg_pool1d", ("output_size",)),
    "AdaptiveAvgPool2d": ("adaptive_avg_pool2d", ("output_size",)),
    "AdaptiveAvgPool3d": ("adaptive_avg_pool3d", ("output_size",)),
    "ChannelShuffle": ("channel_shuffle", ("groups",)),
}

FoldCall = tuple[Any, tuple[float, ...], Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def fold_call(
    operation: str, args: tuple[Any, ...], weights: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> FoldCall:
    """The input, faces, function and recession function of an elementwise piecewise linear call."""
    values = args[0] if args else kwargs["input"]
    rest = (*args[1:], *weights)

    def argument(place: int, *names: str, default: Any = None) -> Any:
        found = rest[place] if len(rest) > place else next((kwargs[n] for n in names if n in kwargs), default)
        if isinstance(found, Tensor) and found.numel() == 1 and operation != "prelu":
            return float(found)
        return found

    if operation == "relu":
        return values, (0.0,), _relu, _relu
    if operation in ("abs", "absolute"):
        return values, (0.0,), torch.abs, torch.abs
    if operation in ("leaky_relu", "rrelu"):
        slope = argument(0, "negative_slope", default=0.01)
        if operation == "rrelu":
            slope = (argument(0, "lower", default=1 / 8) + argument(1, "upper", default=1 / 3)) / 2
        slope = float(slope)

        def leaky(x: Tensor) -> Tensor:
            return functional.leaky_relu(x, slope)

        return values, (0.0,), leaky, leaky
    if operation == "prelu":
        weight = argument(0, "weight")

        def prelu(x: Tensor) -> Tensor:
            return functional.prelu(x, weight)

        return values, (0.0,), prelu, prelu
    if operation == "softshrink":
        width = float(argument(0, "lambd", default=0.5))
        return values, (-width, width), lambda x: functional.softshrink(x, width), lambda x: x
    if operation == "hardsigmoid":
        return values, (-3.0, 3.0), lambda x: (x / 6 + 0.5).clamp(0, 1), torch.zeros_like
    if operation == "relu6":
        low, high = 0.0, 6.0
    elif operation == "hardtanh":
        low, high = argument(0, "min_val", default=-1.0), argument(1, "max_val", default=1.0)
    else:
        low = argument(0, "min", default=-math.inf) if operation != "clamp_max" else -math.inf
        high = argument(1, "max", default=math.inf) if operation != "clamp_max" else argument(0, "max")
        low, high = -math.inf if low is None else low, math.inf if high is None else high
    if not all(isinstance(bound, int | float) for bound in (low, high)):
        raise InputError(f"{operation} ({where}) has bounds that are no plain numbers; give min and max as numbers.")
    return _clamp(values, float(low), float(high), operation, where)


def _clamp(values: Any, low: float, high: float, operation: str, where: str) -> FoldCall:
    if low >= high:
        raise InputError(f"{operation} ({where}) clamps to [{low:g}, {high:g}], which has no inside.")
    faces = tuple(face for face in (low, high) if math.isfinite(face))
    keep_low, keep_high = -math.inf if low == -math.inf else 0.0, math.inf if high == math.inf else 0.0
    return values, faces, lambda x: x.clamp(low, high), lambda x: x.clamp(keep_low, keep_high)


def _relu(x: Tensor) -> Tensor:
    return x.clamp_min(0.0)


def into(run: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The same function with its result written to a given tensor, for those used most."""
    if run is _relu:
        return lambda x, out: torch.clamp_min(x, 0.0, out=out)
    return (lambda x, out: torch.abs(x, out=out)) if run is torch.abs else None


def largest_call(
    operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, ...], where: str
) -> tuple[Tensor, tuple[int, ...]]:
    """Windows of flat indices, shape (outputs, window), and the shape of the output, of a maximum over parts."""
    if operation in ("amax", "amin", "max", "min"):
        dims = kwargs.get("dim", args[1] if len(args) > 1 else ())
        keep = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
        dims = [d % (len(shape) + 1) for d in ((dims,) if isinstance(dims, int) else dims)]
        if not dims or 0 in dims:
            raise InputError(f"{operation} ({where}) takes the largest over the batch; name other dimensions.")
        index = torch.arange(math.prod(shape)).reshape(shape)
        kept = [d for d in range(len(shape)) if d + 1 not in dims]
        windows = index.permute(*kept, *(d - 1 for d in dims)).reshape(math.prod(shape[d] for d in kept), -1)
        left = tuple((1 if d + 1 in dims else n) for d, n in enumerate(shape) if keep or d + 1 not in dims)
        return windows, left
    if kwargs.get("return_indices"):
        raise InputError(f"{operation} ({where}) also returns indices, which are not piecewise linear.")
    spatial = int(operation[-2])
    trial: Any = getattr(functional, operation)(torch.zeros(1, *shape), *args[1:], **kwargs)
    out = tuple(trial.shape[1:])
    sizes, outs = shape[-spatial:], out[-spatial:]
    if operation.startswith("adaptive"):
        along = [[range(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in zip(sizes, outs, strict=True)]
    else:
        names = ("kernel_size", "stride", "padding", "dilation")
        given = {**dict(zip(names, args[1:], strict=False)), **{k: v for k, v in kwargs.items() if k in names}}
        kernel = _each(given["kernel_size"], spatial)
        stride = _each(given.get("stride") or kernel, spatial)
        padding, dilation = _each(given.get("padding", 0), spatial), _each(given.get("dilation", 1), spatial)
        along = [
            [range(i * s - p, i * s - p + k * d, d) for i in range(m)]
            for k, s, p, d, m in zip(kernel, stride, padding, dilation, outs, strict=True)
        ]
    places = []
    for starts in product(*along):
        inside = [[i for i in part if 0 <= i < n] for part, n in zip(starts, sizes, strict=True)]
        places.append([_flat_index(point, sizes) for point in product(*inside)])
    longest = max(map(len, places))
    window = torch.tensor([p + [p[0]] * (longest - len(p)) for p in places])
    channels = math.prod(shape[:-spatial])
    windows = (torch.arange(channels)[:, None, None] * math.prod(sizes) + window).reshape(-1, longest)
    return windows, out


def _each(value: Any, count: int) -> tuple[int, ...]:
    return (int(value),) * count if isinstance(value, int) else tuple(value) * (count if len(value) == 1 else 1)


def _flat_index(point: tuple[int, ...], sizes: tuple[int, ...]) -> int:
    index = 0
    for i, n in zip(point, sizes, strict=True):
        index = index * n + i
    return index
