"""How a user's function is called: numpy in, numpy out, whichever of numpy and torch it is written in."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from epoch0.activations._rule import Array
from epoch0.errors import InputError

Plain = Callable[[Array], Any]
"""A function of a flat float64 array that returns whatever the user's function makes of it, as numpy if it can be."""


def is_module(function: object) -> bool:
    """Whether it is a torch module; a process that has not imported torch has none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(function, torch.nn.Module)


def torch_value(function: Callable[..., Any]) -> Plain:
    """The numpy face of a torch function."""
    import torch

    def value(h: Array) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            result = function(torch.from_numpy(h.copy()))
        return result.detach().cpu().resolve_conj().numpy() if isinstance(result, torch.Tensor) else result

    return value


def torch_slope(function: Callable[..., Any]) -> Plain:
    """The derivative of a torch function by automatic differentiation; 0 where the graph says nothing."""
    import torch

    def slope(h: Array) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = torch.from_numpy(h.copy()).requires_grad_()
            result = function(leaf * 1)  # not the leaf itself: an in-place ReLU may not write there
            if not result.requires_grad:
                return np.zeros(h.shape)
            (gradient,) = torch.autograd.grad(result.sum(), leaf, allow_unused=True)
        if gradient is None:
            return np.zeros(h.shape)
        # where phi is NaN the graph may well say 0
        return gradient.masked_fill(result.detach().isnan(), torch.nan).numpy()

    return slope


def numpy_value(function: Callable[..., Any]) -> Plain:
    """A numpy function, called on a copy."""

    def value(h: Array) -> Any:
        with np.errstate(all="ignore"):
            return function(h.copy())

    return value


def face(function: Callable[..., Any], what: str, torch_first: bool) -> tuple[Plain, bool]:
    """The numpy face of a user's function, found by calling it, and whether it is written in torch.

    Args:
        function: a numpy function, a torch function or a torch module.
        what: what it is, for the error message.
        torch_first: try a tensor before an array; a function that takes both then has a derivative for free.

    Raises:
        InputError: if it can be called neither with an array nor with a tensor.
    """
    if is_module(function):
        return torch_value(function), True
    failures = []
    probe = np.array([-0.5, 0.25, 1.5])
    for in_torch in (torch_first, not torch_first):
        plain = torch_value(function) if in_torch else numpy_value(function)
        try:
            if in_torch:
                _check_is_torch(function, probe)
            plain(probe)
        except Exception as error:  # whatever a user's function raises
            kind = "float64 tensor" if in_torch else "float64 array"
            failures.append(f"with a {kind} {type(error).__name__}: {error}")
        else:
            return plain, in_torch
    raise InputError(
        f"{what} cannot be called. An activation takes an array (numpy) or a tensor (torch) of float64 and returns one "
        f"of the same shape. It raised {'; '.join(failures)}."
    )


def _check_is_torch(function: Callable[..., Any], probe: Array) -> None:
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        # with a gradient wanted, numpy functions refuse a tensor instead of silently taking its values
        result = function(torch.from_numpy(probe.copy()).requires_grad_() * 1)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"returned {type(result).__name__}, no tensor")


class Face:
    """A user's function on arrays of any shape, with its answer checked: same shape, real, float64, no NaN.

    Attributes:
        torch_function: the torch function behind it, if it is one.
        strict: whether NaN is refused; off while the function is searched for break points far out.

    Raises:
        InputError: when called, if the answer is none of that; the message says at which h.
    """

    def __init__(self, plain: Plain, what: str) -> None:
        self.plain, self.what, self.strict = plain, what, False
        self.torch_function: Callable[..., Any] | None = None

    def __call__(self, h: Any) -> Array:
        """Any shape to the same shape."""
        points = np.asarray(h, dtype=np.float64)
        flat = points.reshape(-1)
        try:
            value = np.asarray(self.plain(flat))
        except Exception as error:  # whatever a user's function raises
            raise InputError(
                f"{self.what} cannot be called with input of shape {flat.shape}: {type(error).__name__}: {error}. It "
                "must work on each element of any array."
            ) from error
        if value.shape != flat.shape:
            raise InputError(
                f"{self.what} returns shape {value.shape} for input of shape {flat.shape}; it must work on each "
                "element and keep the shape."
            )
        if value.dtype.kind not in "fiub" or (value.dtype.kind == "f" and value.dtype.itemsize < 8):
            raise InputError(f"{self.what} returns {value.dtype} for float64 input; it must compute in float64.")
        value = value.astype(np.float64)
        if self.strict and (bad := np.isnan(value)).any():
            raise InputError(f"{self.what} returns NaN at h={float(flat[bad][0]):.6g}; it must be finite for every h.")
        return value.reshape(points.shape)
