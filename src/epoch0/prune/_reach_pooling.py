"""What a maximum passes on: everything that it looks at, since any of it may be the largest (THEORY section 4)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0.errors import InputError
from epoch0.tracing.operations import argument

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


def pool(dimensions: int) -> Callable[[Args, Kwargs], Any]:
    """The rule of max pooling: sums over the same windows."""

    def rule(args: Args, kwargs: Kwargs) -> Any:
        x = argument(args, kwargs, 0, "input", None)
        size, stride, padding, dilation = (
            _several(argument(args, kwargs, place, name, default), dimensions)
            for place, name, default in ((1, "kernel_size", None), (2, "stride", None), (3, "padding", 0),
                                         (4, "dilation", 1))
        )  # fmt: skip
        stride = stride or size
        channels, spatial = x.shape[-dimensions - 1], x.shape[-dimensions:]
        high = list(padding)
        if argument(args, kwargs, 5, "ceil_mode", False):
            for i in range(dimensions):
                span = spatial[i] + 2 * padding[i] - dilation[i] * (size[i] - 1) - 1
                more = -span % stride[i]
                # torch leaves out a last window that would start beyond the image
                starts = (span + more) < spatial[i] + padding[i]
                high[i] += more if starts else 0
        pads = [side for i in reversed(range(dimensions)) for side in (padding[i], high[i])]
        ones = x.new_ones(channels, 1, *size)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[dimensions - 1]
        found = convolve(F.pad(x, pads), ones, None, tuple(stride), 0, tuple(dilation), channels)
        if argument(args, kwargs, 6, "return_indices", False):
            raise InputError("max pooling that returns its indices cannot be followed.")
        return found

    return rule


def adaptive(average: Callable[..., Tensor]) -> Callable[[Args, Kwargs], Any]:
    """The rule of adaptive max pooling: means over the same windows."""
    return lambda args, kwargs: average(args[0], argument(args, kwargs, 1, "output_size", None))


def _several(value: Any, count: int) -> list[int]:
    if value is None or (isinstance(value, list | tuple) and not value):
        return []
    return list(value) if isinstance(value, list | tuple) else [value] * count


def largest_entry(args: Args, kwargs: Kwargs) -> Any:
    """The rule of ``amax``: the sum over the same dimensions; of two tensors, of their entries."""
    x, dim = argument(args, kwargs, 0, "input", None), argument(args, kwargs, 1, "dim", None)
    if isinstance(dim, Tensor):
        return x + dim
    keep = argument(args, kwargs, 2, "keepdim", False)
    return x.sum() if dim is None else x.sum(dim, keepdim=keep)


def largest_with_indices(args: Args, kwargs: Kwargs) -> Any:
    """The rule of ``max``, which returns indices too where it has a dimension."""
    x, dim = argument(args, kwargs, 0, "input", None), argument(args, kwargs, 1, "dim", None)
    if dim is None or isinstance(dim, Tensor):
        return largest_entry(args, kwargs)
    keep = argument(args, kwargs, 2, "keepdim", False)
    return torch.return_types.max((x.sum(dim, keepdim=keep), x.argmax(dim, keepdim=keep)))
