"""Forward derivatives without torch's warning about itself, also where the user's warnings are errors."""

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

_MODULE = "torch._decomp.decompositions_for_jvp"


def prepare_forward_derivatives() -> None:
    """Import what torch imports on the first dual number or jvp, with a deprecation warning about its own code.

    Only that import is quiet, and only the first time: warnings of the user's model are the user's.
    """
    if _MODULE not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            importlib.import_module(_MODULE)


def jvp(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """``torch.func.jvp``, prepared: the function's value and its derivative along the tangents.

    >>> jvp(torch.sin, (torch.zeros(3),), (torch.ones(3),))[1]                # shape (3,)
    tensor([1., 1., 1.])

    Args:
        function: of as many tensors as there are primals.
        primals: where it is taken.
        tangents: directions, of the primals' shapes.
    """
    prepare_forward_derivatives()
    return torch.func.jvp(function, primals, tangents)
