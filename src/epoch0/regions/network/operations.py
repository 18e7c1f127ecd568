"""Each kind of operation as regions take it: affine, piecewise linear with break points, or refused (Hanin 2019)."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.tracing.operations import MOVES, Args, Function, Kwargs, meaning

_PRODUCTS = {"linear", "convolution", "product", "quotient"}
# kinds that are affine beside those that multiply by constants; each step is checked on points
AFFINE = MOVES | {"sum", "negation", "average", "total", "repeat", "join", "pad", "place", "resample"}


def multiplies(operation: str) -> bool:
    """Whether it multiplies by constants."""
    return meaning(operation).kind in _PRODUCTS or operation == "batch_norm"


def refusal(operation: str, where: str) -> InputError:
    """Why this operation has no regions, and what can be measured instead."""
    known, instead = meaning(operation), "trajectory_length and gain measure networks with any nonlinearity"
    known_ones = "relu, leaky_relu, prelu, hardtanh, relu6, abs, clamp and max pooling have linear regions"
    if known.jumps:
        reason = f"{operation} jumps, and regions are defined for continuous functions here"
    elif known.kind in ("activation", "function", "softmax"):
        reason = f"{operation} is no piecewise linear function"
    elif known.kind == "norm" or operation == "normalize":
        reason = f"{operation} divides by a norm of its input, which is not piecewise linear"
    elif multiplies(operation):
        reason = f"{operation} of two tensors that both depend on the input is not piecewise linear"
    else:
        reason = f"no rule says that {operation} is piecewise linear"
    text = f"the operation {operation} ({where}) cannot be cut into linear regions: {reason}"
    return InputError(f"{text}. {instead}; {known_ones}.")


def affine_call(func: Function, name: str, args: Args, kwargs: Kwargs, where: str) -> tuple[Function, Args, Kwargs]:
    """A call as regions make it: batch norm by its running statistics, convolutions in float64 in the cache."""
    if func is torch.conv2d:
        func = _convolution
    if name != "batch_norm":
        return func, args, kwargs
    given = meaning(name).given(args, kwargs)
    mean, variance = given.get("running_mean"), given.get("running_var")
    if mean is None or variance is None or given.get("training"):
        raise InputError(f"{where} keeps no running statistics: it mixes the examples of a batch.")
    scale = (variance + given.get("eps", 1e-5)).rsqrt()
    scale = scale if given.get("weight") is None else scale * given["weight"]
    shift = torch.zeros_like(scale) if given.get("bias") is None else given["bias"]
    return _normalize, (given["input"], scale, shift - mean * scale), {}


def _convolution(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """As torch's, a product for each row of the kernel: the input is copied once a column of it, not once a place."""
    if x.device.type != "cpu" or groups > 1 or isinstance(padding, str) or x.dim() != 4:
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    pairs = ((one, one) if isinstance(one, int) else (one[0], one[-1]) for one in (stride, padding, dilation))
    (down, across), (above, beside), (far, wide) = pairs
    x = functional.pad(x, (beside, beside, above, above))
    (count, channels, height, width), (out, _, rows, columns) = x.shape, weight.shape
    high, long = (height - far * (rows - 1) - 1) // down + 1, (width - wide * (columns - 1) - 1) // across + 1
    point, channel, row, column = x.stride()
    read = x.as_strided((count, columns, channels, height, long), (point, wide * column, channel, row, across * column))
    copies = read.reshape(count, columns * channels, height, long)
    found = x.new_zeros(1, 1, 1) if bias is None else bias.view(1, out, 1)
    for first, taps in zip(range(0, far * rows, far), weight.permute(2, 0, 3, 1), strict=True):
        seen = copies[:, :, first : first + down * (high - 1) + 1 : down].reshape(count, -1, high * long)
        factors = taps.reshape(out, -1).expand(count, -1, -1), seen
        found = found.baddbmm_(*factors) if first else torch.baddbmm(found, *factors)
    return found.view(count, out, high, long)


def _normalize(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Batch norm by its running statistics: one factor and one shift a channel."""
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return torch.addcmul(shift.view(shape), x, scale.view(shape))


Elementwise = Callable[[Tensor], Tensor]


def fold_call(
    operation: str, args: Args, kwargs: Kwargs, where: str
) -> tuple[Any, tuple[float, ...], Elementwise, Elementwise]:
    """The input, faces, function and recession function of an elementwise piecewise linear call."""
    known = meaning(operation)
    given = known.given(args, kwargs)
    values, slope = given.pop("input"), given.get("weight")
    given = {role: float(v) if isinstance(v, Tensor) and v.numel() == 1 else v for role, v in given.items()}
    if operation == "prelu" and isinstance(slope, Tensor) and slope.numel() > 1:
        prelu = partial(functional.prelu, weight=slope)
        return values, (0.0,), prelu, prelu
    rule = known.finds(given | ({"weight": slope} if operation == "prelu" else {})) if known.finds else None
    if rule is None and given.keys() & {"min", "max"}:
        raise InputError(f"{operation} ({where}) needs plain numbers as bounds, the lower one below the upper one.")
    if rule is None or rule.slopes is None:
        raise refusal(operation, where)
    return values, rule.breaks, *functions_of(rule)


def functions_of(rule: Activation) -> tuple[Elementwise, Elementwise]:
    """A continuous piecewise linear function of tensors, and the limit of its value at s x over s."""
    breaks, slopes = rule.breaks, rule.slopes
    assert slopes is not None
    heights = rule.function(np.array(breaks))
    if breaks == (0.0,) and slopes in ((0.0, 1.0), (-1.0, 1.0)) and not heights.any():
        return (torch.relu, torch.relu) if slopes[0] == 0 else (torch.abs, torch.abs)
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
        return windows, tuple((1 if d + 1 in dims else n) for d, n in enumerate(shape) if keep or d + 1 not in dims)
    if kwargs.get("return_indices") or operation.endswith("indices"):
        raise InputError(f"{operation} ({where}) also returns indices, which are not piecewise linear.")
    spatial, dilation = int(operation[-2]), kwargs.get("dilation", args[4] if len(args) > 4 else 1)
    sizes, along = shape[-spatial:], list[list[range]]()
    for axis, size in enumerate(sizes):  # the largest of numbers that grow along an axis are where the windows end
        ramp = torch.arange(size, dtype=torch.float64).view(size, *[1] * (spatial - 1 - axis)).expand(1, 1, *sizes)
        last, first = (sign * getattr(functional, operation)(sign * ramp, *args[1:], **kwargs) for sign in (1, -1))
        step = dilation if isinstance(dilation, int) else dilation[axis % len(dilation)]
        ends = (end.movedim(2 + axis, 0).flatten(1)[:, 0].int().tolist() for end in (first, last))
        along.append([range(low, high + 1, step) for low, high in zip(*ends, strict=True)])
    out = (*shape[:-spatial], *map(len, along))
    parts = (zip(*product(*part), strict=True) for part in product(*along))
    places = [np.ravel_multi_index(tuple(part), sizes).tolist() for part in parts]
    longest = max(map(len, places))
    window, channels = torch.tensor([p + [p[0]] * (longest - len(p)) for p in places]), math.prod(shape[:-spatial])
    return (torch.arange(channels)[:, None, None] * math.prod(sizes) + window).reshape(-1, longest), out
