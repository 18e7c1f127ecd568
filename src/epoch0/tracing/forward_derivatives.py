"""Forward derivatives: without torch's warning about itself, and of small networks in half the time (THEORY 1.2b)."""

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

_LINEAR = (F.linear, F.conv1d, F.conv2d, F.conv3d)
_MODULE = "torch._decomp.decompositions_for_jvp"


def prepare_forward_derivatives() -> None:
    """Import what torch imports on the first dual number or jvp, with a deprecation warning about its own code.

    Only that import is quiet, and only the first time: warnings of the user's model are the user's.
    """
    if _MODULE not in sys.modules:
        with warnings.catch_warnings():
            for kind in (DeprecationWarning, FutureWarning):  # which of them depends on the version of torch
                warnings.simplefilter("ignore", kind)
            importlib.import_module(_MODULE)


def jvp(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """``torch.func.jvp``, prepared: the function's value and its derivative along the tangents.

    >>> jvp(torch.sin, (torch.zeros(3),), (torch.ones(3),))[1]                # shape (3,)
    tensor([1., 1., 1.])
    """
    prepare_forward_derivatives()
    return torch.func.jvp(function, primals, tangents)


def side_by_side(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A linear map or convolution with constant weights, of points and tangents as of one batch; None if it is none.

    Torch's own forward derivative makes two products of a linear map and much ado about its bias; for small networks
    that costs more than everything else.
    """
    if func not in _LINEAR or kwargs or args[0].dim() < args[1].dim():
        return None
    (point, tangent), weight, bias = forward_ad.unpack_dual(args[0]), args[1], args[2] if len(args) > 2 else None
    constant = all(w is None or forward_ad.unpack_dual(w).tangent is None for w in (weight, bias))
    if tangent is None or not constant:
        return None
    both = func(torch.cat([point, tangent]), weight, None, *args[3:])
    point, tangent = both.split(len(point))
    if bias is not None:
        point = point + (bias if func is F.linear else bias.reshape(-1, *[1] * (weight.dim() - 2)))
    return forward_ad.make_dual(point, tangent)
