"""Activations named on the command line: one of ours by its name, or a function of the user's own."""

import inspect

from torch import nn

from epoch0.activations import Activation, get
from epoch0.errors import InputError
from epoch0.models.objects import named_object, where


def load_activation(spec: str) -> Activation:
    """The activation that a command-line name stands for.

    >>> load_activation("tanh").name
    'tanh'
    >>> load_activation("nets/phi.py:swoosh")                   # doctest: +SKIP

    Args:
        spec: a name that :func:`epoch0.activations.get` knows, or ``path/file.py:function`` or
            ``package.module:function``
            of an elementwise function of a numpy array or a torch tensor, a module, or a class of modules.

    Raises:
        InputError: if there is no such name or file, or what it names is no elementwise function.
    """
    if ":" not in spec:
        return get(spec)
    with named_object(spec, "activation") as (found, file):
        try:
            made = found() if inspect.isclass(found) and issubclass(found, nn.Module) else found
        except (Exception, SystemExit) as problem:
            raise InputError(f"{spec!r} failed while it was made: {where(problem, file)}") from problem
        if not isinstance(made, Activation) and not callable(made):
            raise InputError(
                f"{spec!r} is a {type(made).__name__}; an elementwise function of an array or a tensor is needed."
            )
        return get(made)
