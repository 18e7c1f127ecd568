"""Points and tangents through a recorded model side by side: one product a layer for both (THEORY section 1.2b).

Torch's own forward derivative makes two products of a linear map and much ado about its bias; for small networks that
costs more than everything else.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from epoch0.tracing.tape import Tape

_LINEAR = (F.linear, F.conv1d, F.conv2d, F.conv3d)


def tangents(record: Tape, nodes: Sequence[int], x: Tensor, dx: Tensor) -> list[Tensor]:
    """The derivative of each node's tensor along dx, zero where none reaches it.

    Args:
        record: of the model; its statistics must be held if points meet in them.
        nodes: 0 is the input itself.
        x: points, shape (points, ...).
        dx: tangents, the same shape.
    """
    with torch.inference_mode(False), torch.no_grad(), forward_ad.dual_level(), _Together():
        with torch.autocast(x.device.type, enabled=False):
            values = record.values(forward_ad.make_dual(x, dx), nodes)
        moved = [forward_ad.unpack_dual(value) for value in values]
    return [torch.zeros_like(point) if tangent is None else tangent for point, tangent in moved]


class _Together(TorchFunctionMode):
    """A linear map or convolution with constant weights acts on points and tangents as on one batch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _LINEAR or kwargs or args[0].dim() < args[1].dim():
            return func(*args, **kwargs)
        (point, tangent), weight, bias = forward_ad.unpack_dual(args[0]), args[1], args[2] if len(args) > 2 else None
        constant = all(w is None or forward_ad.unpack_dual(w).tangent is None for w in (weight, bias))
        if tangent is None or not constant:
            return func(*args)
        both = func(torch.cat([point, tangent]), weight, None, *args[3:])
        point, tangent = both.split(len(point))
        if bias is not None:
            point = point + (bias if func is F.linear else bias.reshape(-1, *[1] * (weight.dim() - 2)))
        return forward_ad.make_dual(point, tangent)
