"""Activations made from recorded calls: any elementwise function of one number, whatever its name (Hayou B.1.2)."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from epoch0 import activations
from epoch0.activations import Activation
from epoch0.errors import InputError

KEPT = 64
"""How many functions are remembered, so that a function used in every layer is looked at once."""

_found: dict[Hashable, Activation | None] = {}


def key(call: Any) -> Hashable | None:
    """What tells a call's function of one number from others: the torch function and its numbers.

    None if a tensor of several numbers takes part, which makes the function another one in each place.
    """
    parts: list[Hashable] = [call.function]
    for value in (*call.args, *(part for item in sorted(call.kwargs.items()) for part in item)):
        if isinstance(value, Tensor):
            if value.numel() != 1:
                return None
            value = float(value)
        parts.append(value if isinstance(value, int | float | str | bool | None) else type(value).__name__)
    return tuple(parts)


def activation(name: str, key: Hashable | None, function: Callable[[Tensor], Tensor]) -> Activation | None:
    """The activation that an elementwise function of tensors is; None if it is none.

    >>> activation("sin", "sin", torch.sin).derivative(np.zeros(1))                  # any shape
    array([1.])

    Args:
        name: what to call it.
        key: the same for the same function; None if it is no function of one number.
        function: from a tensor to one of the same shape.
    """
    if key is None:
        return None
    if key not in _found:
        while len(_found) >= KEPT:
            del _found[next(iter(_found))]
        try:
            with torch.inference_mode(False), torch.enable_grad():
                title = f"this {name}" if name in activations.KNOWN else name
                _found[key] = activations.custom(function, name=title)
        except InputError:
            _found[key] = None
    return _found[key]
