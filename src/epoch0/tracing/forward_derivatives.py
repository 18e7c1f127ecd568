"""Forward derivatives: without torch's warning about itself, and of small networks in half the time (THEORY 1.2b)."""

import importlib
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from epoch0.tracing.operations import meaning

_ADDED = ("addmm", "addmv", "baddbmm")  # products that add their first argument
_NORMS = (F.batch_norm, F.layer_norm)
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


def call_of_duals(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a torch function gives for dual tensors, the tangents of linear maps and norms by rule.

    Torch's own forward derivative of a linear map multiplies by zeros where the weights are constant: three products
    instead of two.
    """
    if func in _NORMS and (normed := _normed(func, meaning(name).given(args, kwargs))) is not None:
        return normed
    if kwargs or (place := _moved(func, name, args)) is None:
        return func(*args, **kwargs)
    point, tangent = forward_ad.unpack_dual(args[place])
    return forward_ad.make_dual(
        func(*args[:place], point, *args[place + 1 :]), _along(func, name, args, place, tangent)
    )


def tangent_of(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The tangent of what a torch function gives for dual tensors; None if that is no tensor or has none."""
    if kwargs or (place := _moved(func, name, args)) is None:
        made = call_of_duals(func, name, args, kwargs)
        return forward_ad.unpack_dual(made).tangent if isinstance(made, Tensor) else None
    return _along(func, name, args, place, forward_ad.unpack_dual(args[place]).tangent)


def _moved(func: Any, name: str, args: tuple[Any, ...]) -> int | None:
    """The place of the one dual tensor among the factors of a linear map or convolution; None if it is no such call."""
    known = meaning(name)
    if known.kind not in ("linear", "convolution") or len(args) > len(known.arguments):
        return None
    if getattr(func, "__name__", "") not in (name, f"__{name}__", f"__r{name}__"):  # not in place
        return None
    duals = [(place, forward_ad.unpack_dual(arg)) for place, arg in enumerate(args) if isinstance(arg, Tensor)]
    moved = [(place, dual.primal) for place, dual in duals if dual.tangent is not None]
    if len(moved) != 1 or known.arguments[moved[0][0]][0] == "bias":
        return None
    # where numbers overflow no tangent is left
    return moved[0][0] if math.isfinite(moved[0][1].sum()) else None


def _along(func: Any, name: str, args: tuple[Any, ...], place: int, tangent: Any) -> Tensor:
    """The tangent of a linear map: the map of the tangent, without what is added."""
    left = {"beta": 0} if name in _ADDED else {}
    roles = meaning(name).arguments
    rest = [None if roles[i][0] == "bias" and not left else arg for i, arg in enumerate(args)]
    found: Tensor = func(*rest[:place], tangent, *rest[place + 1 :], **left)
    return found


def _normed(func: Any, given: dict[str, Any]) -> Any:
    """Batch or layer norm of a dual tensor: its Jacobian without weights is symmetric, so back is on."""
    x, constants = given["input"], [t for t in (given.get("weight"), given.get("bias")) if t is not None]
    point, tangent = forward_ad.unpack_dual(x)
    if tangent is None or torch.is_autocast_enabled(x.device.type):
        return None
    if any(t.dtype != x.dtype or forward_ad.unpack_dual(t).tangent is not None for t in constants):
        return None
    weight, bias, eps = given.get("weight"), given.get("bias"), given.get("eps", 1e-5)
    only_x = [True, False, False]
    if func is F.layer_norm:
        shape = given["normalized_shape"]
        result, *seen = torch.native_layer_norm(point, shape, weight, bias, eps)
        moved = torch.ops.aten.native_layer_norm_backward(tangent, point, shape, *seen, None, None, only_x)[0]
        return forward_ad.make_dual(result, moved if weight is None else moved * weight)
    running, training = (given.get("running_mean"), given.get("running_var")), given.get("training", False)
    result, *seen = torch.native_batch_norm(point, weight, bias, *running, training, 0.0, eps)
    back = torch.ops.aten.native_batch_norm_backward
    moved = back(tangent, point, weight, *running, *seen, training, eps, only_x)[0]
    return forward_ad.make_dual(result, moved)
