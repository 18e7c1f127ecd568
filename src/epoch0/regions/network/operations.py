"""What each kind of operation is to regions: affine, piecewise linear with break points, or refused (Hanin 2019)."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.networks import nonlinearities
from epoch0.regions.complex import empty
from epoch0.tracing.operations import MEANINGS, MOVES, meaning

AFFINE = MOVES | {
    "linear", "convolution", "product", "quotient", "sum", "negation", "average", "total", "repeat", "join", "pad",
    "place", "resample",
}  # fmt: skip
"""Kinds that are affine where at most one factor depends on the input; each step is checked on points."""

_BY_CLASS = {name.replace("_", ""): name for name, known in MEANINGS.items()
             if known.kind in ("activation", "largest", "average") or name == "channel_shuffle"}  # fmt: skip


def is_affine(operation: str) -> bool:
    """Whether it may be an affine step."""
    return meaning(operation).kind in AFFINE or operation == "batch_norm"


def multiplies(operation: str) -> bool:
    """Whether it multiplies by constants."""
    return meaning(operation).kind in ("linear", "convolution", "product", "quotient") or operation == "batch_norm"


def refusal(operation: str, where: str) -> InputError:
    """Why this operation has no regions, and what can be measured instead."""
    plain = operation.removesuffix("module").replace("batchnorm", "batch_norm")
    instead = (
        "trajectory_length and gain measure networks with any nonlinearity; relu, leaky_relu, prelu, hardtanh, relu6, "
        "abs, clamp and max pooling have linear regions."
    )
    known = meaning(plain)
    if known.jumps:
        reason = f"{plain} jumps, and regions are defined for continuous functions here"
    elif known.kind in ("activation", "function", "softmax"):
        reason = f"{plain} is no piecewise linear function"
    elif known.kind == "norm" or plain == "normalize":
        reason = f"{plain} divides by a norm of its input, which is not piecewise linear"
    elif multiplies(plain):
        reason = f"{plain} of two tensors that both depend on the input is not piecewise linear"
    else:
        reason = f"no rule says that {plain} is piecewise linear"
    return InputError(f"the operation {operation} ({where}) cannot be cut into linear regions: {reason}. {instead}")


def module_call(module: nn.Module, where: str) -> tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A leaf module as (operation, function, weights, keywords): function(x, *weights, **keywords) in evaluation mode.

    Raises:
        InputError: if there is no rule for it.
    """
    m: Any = module
    if isinstance(module, nonlinearities.Function):
        return m.name, module.forward, (), {}
    names = (kind.__name__.lower() for kind in type(module).__mro__)
    if (operation := next((_BY_CLASS[name] for name in names if name in _BY_CLASS), None)) is not None:
        call = getattr(functional, operation, None) or getattr(torch, operation)
        keywords = {name: getattr(m, name) for _, name in meaning(operation).arguments[1:] if hasattr(m, name)}
        weights = (keywords.pop("weight"),) if "weight" in keywords else ()
        return operation, call, weights, keywords
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
    return torch.addcmul(shift.view(shape), x, scale.view(shape))


FoldCall = tuple[Any, tuple[float, ...], Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def fold_call(
    operation: str, args: tuple[Any, ...], weights: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> FoldCall:
    """The input, faces, function and recession function of an elementwise piecewise linear call."""
    known = meaning(operation)
    given = known.given((*args, *weights), kwargs)
    values, slope = given.pop("input"), given.get("weight")
    given = {role: float(v) if isinstance(v, Tensor) and v.numel() == 1 else v for role, v in given.items()}
    if operation == "prelu" and isinstance(slope, Tensor) and slope.numel() > 1:

        def prelu(x: Tensor) -> Tensor:
            return functional.prelu(x, slope)

        return values, (0.0,), prelu, prelu
    rule = known.finds(given | ({"weight": slope} if operation == "prelu" else {})) if known.finds else None
    if rule is None and given.keys() & {"min", "max"}:
        raise InputError(f"{operation} ({where}) needs plain numbers as bounds, the lower one below the upper one.")
    if rule is None or rule.slopes is None:
        raise refusal(operation, where)
    return values, rule.breaks, *_functions(rule)


def _functions(rule: Activation) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """A continuous piecewise linear function of tensors, and the limit of its value at s x over s."""
    breaks, slopes = rule.breaks, rule.slopes
    assert slopes is not None
    heights = rule.function(np.array(breaks))
    if breaks == (0.0,) and slopes in ((0.0, 1.0), (-1.0, 1.0)) and not heights.any():
        return (_relu, _relu) if slopes[0] == 0 else (torch.abs, torch.abs)
    low, high = breaks[0] if slopes[0] == 0 else None, breaks[-1] if slopes[-1] == 0 else None
    clips = set(slopes) == {0.0, 1.0} and tuple(heights) == breaks

    def run(x: Tensor) -> Tensor:
        if clips:
            return x.clamp(low, high)
        # each piece from where it begins, so that a flat one is flat to the bit
        value: Tensor = heights[0] + slopes[0] * (x - breaks[0])
        for point, height, slope in zip(breaks, heights.tolist(), slopes[1:], strict=True):
            value = torch.where(x > point, height + slope * (x - point), value)
        return value

    return run, lambda x: torch.where(x > 0, slopes[-1] * x, slopes[0] * x)


def _relu(x: Tensor) -> Tensor:
    return x.clamp_min(0.0)


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
    if kwargs.get("return_indices") or operation.endswith("indices"):
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


_SHIFTED = 1 << 17  # numbers of shifted input at a time


def convolution(module: nn.Module) -> Callable[..., Tensor]:
    """A convolution as a function of (points, weight, bias): :func:`shifted` wherever that is right and quicker."""
    m: Any = module
    if not isinstance(m, nn.Conv2d) or m.groups != 1 or m.padding_mode != "zeros" or isinstance(m.padding, str):
        return m._conv_forward  # type: ignore[no-any-return]
    stride, padding, dilation = m.stride, m.padding, m.dilation

    def convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float64 or x.requires_grad:
            return m._conv_forward(x, weight, bias)  # type: ignore[no-any-return]
        return shifted(x, weight, bias, stride, padding, dilation)

    return convolved


def shifted(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """A convolution as one matrix product for each row of its kernel, two to three times as quick as torch's.

    torch writes every input once for each place of the kernel. Here it is written once for each column of the kernel,
    shifted sideways; shifts up and down are then only other starts in the same memory. A point's result does not depend
    on the points beside it.

    >>> x, weight, bias = torch.randn(7, 3, 32, 32), torch.randn(8, 3, 3, 3), torch.randn(8)
    >>> shifted(x, weight, bias, (1, 1), (1, 1), (1, 1)).shape
    torch.Size([7, 8, 32, 32])

    Args:
        x: points, shape (points, channels, height, width).
        weight: shape (out, channels, rows, columns).
        bias: shape (out,).
        stride, padding, dilation: down and across.
    """
    points, channels, height, width = x.shape
    out, _, rows, columns = weight.shape
    (down, across), (above, beside) = stride, padding
    high = (height + 2 * above - dilation[0] * (rows - 1) - 1) // down + 1
    wide = (width + 2 * beside - dilation[1] * (columns - 1) - 1) // across + 1
    whole = empty((points, out, high, wide), x)
    found = whole.view(points, out, high * wide)
    taps = weight.permute(2, 0, 3, 1).reshape(rows, out, columns * channels)
    shift = x.new_zeros(out, 1) if bias is None else bias.view(out, 1)
    # rows of the input that meet the same row of the kernel lie together: row r is in phase r % down
    deep = -(-(height + 2 * above) // down)
    some = min(points, max(1, _SHIFTED // (columns * channels * down * deep * wide)))
    copies = x.new_zeros(some, columns, channels, down, deep, wide)
    starts = [((row * dilation[0]) % down * deep + row * dilation[0] // down) * wide for row in range(rows)]
    for start in range(0, points, some):
        part, mine = x[start : start + some], found[start : start + some]
        count = len(part)
        _shift(part, copies[:count], (down, across), (above, beside), dilation, rows)
        unfolded = copies[:count].view(count, columns * channels, down * deep * wide)
        seen = [unfolded[:, :, first : first + high * wide] for first in starts]
        tap = taps[:, None].expand(rows, count, out, columns * channels)
        torch.baddbmm(shift.expand(count, out, 1), tap[0], seen[0], out=mine)
        for row in range(1, rows):
            mine.baddbmm_(tap[row], seen[row])
    return whole


def _shift(
    part: Tensor, copies: Tensor, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
    rows: int,
) -> None:  # fmt: skip
    """Write the points once for every column of the kernel; what lies in the padding was zero before and stays so."""
    (down, across), (above, beside) = stride, padding
    height, width = part.shape[2:]
    wide = copies.shape[-1]
    for column in range(copies.shape[1]):
        offset = column * dilation[1] - beside  # of the input's column that meets output 0
        low, high = max(0, -(offset // across)), min(wide, (width - 1 - offset) // across + 1)
        for phase in {row * dilation[0] % down for row in range(rows)}:
            first = (phase - above) % down  # the first row of the input in this phase
            number = -(-(height - first) // down)
            if low < high and number > 0:
                place = (first + above) // down
                from_columns = slice(low * across + offset, (high - 1) * across + offset + 1, across)
                copies[:, column, :, phase, place : place + number, low:high] = part[:, :, first::down, from_columns]
