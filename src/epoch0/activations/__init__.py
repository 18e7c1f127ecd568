"""Nonlinearities as data: function, derivative and, where they are piecewise linear, break points and slopes.

Everything here is numpy in float64; ``networks.nonlinearities`` turns an activation into a torch module and back.
"""

import copyreg
from collections.abc import Callable
from functools import partial
from typing import Any

from epoch0.activations._custom import custom
from epoch0.activations._named import *  # noqa: F403 - the entry of an activation makes it public
from epoch0.activations._named import KNOWN, Activation, Known, known_call, known_function, known_module, piecewise
from epoch0.arguments import checked
from epoch0.errors import InputError, suggest

ActivationLike = str | Activation | Callable[..., Any]
"""What stands for an activation everywhere: a name, an Activation, or a torch function or module."""

__all__ = ["KNOWN", "Activation", "ActivationLike", "Known", "custom", "get", "piecewise"]
__all__ += ["known_call", "known_function", "known_module"]
__all__ += [entry.make.__name__ for entry in KNOWN.values()]


@checked
def get(activation: ActivationLike) -> Activation:
    """The activation of that name; an :class:`Activation` is handed back as it is, a function is made into one.

    >>> get("hardtanh").breaks
    (-1.0, 1.0)
    >>> get(torch.tanh) == get("tanh"), get(lambda h: h * torch.sigmoid(2 * h)).breaks
    (True, ())

    A function is elementwise, of torch, or a torch module without parameters. It goes through :func:`custom`
    each time, so make it an Activation once where it is used in a loop. An InputError if there is no rule for the name
    (the message lists the names), or the function cannot serve as an activation.
    """
    if isinstance(activation, Activation):
        return activation
    if callable(activation):
        return known_module(activation) or known_function(activation) or custom(activation)
    named = {**KNOWN, "swish": KNOWN["silu"]}  # its other name
    if not isinstance(activation, str) or activation not in named:
        text = f"no rule for activation {activation!r}; known are {', '.join(KNOWN)}"
        raise InputError(f"{text}, and any torch function will do.{suggest(str(activation), named)}")
    return named[activation]()


def _remade(activation: Activation) -> tuple[Any, ...]:
    """How an activation is pickled: as the call that makes it, since its functions are closures."""
    if activation.source is not None:
        return custom, (activation.source, activation.breaks or None, activation.name)
    if activation.slopes is None and activation.name in KNOWN:
        return partial(globals()[KNOWN[activation.name].make.__name__], **dict(activation.parameters)), ()
    made: Any = partial(piecewise, at_zero=float(activation.function(0.0)), **dict[str, Any](activation.parameters))
    return made, (activation.name, activation.breaks, activation.slopes)


copyreg.pickle(Activation, _remade)
