"""Tensors of zeros and ones that say what depends on the input: sums and products that never cancel (THEORY 4).

A value says whether an entry can be other than zero, its tangent whether the entry depends on the input. Values,
tangents and gradients are brought back to zeros and ones after each operation, so that nothing overflows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


class _ZeroOrOne(torch.autograd.Function):
    """Ones where anything is, in the value, the tangent and the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return (gradients[0] > 0).to(gradients[0].dtype)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return (tangents[0] > 0).to(tangents[0].dtype)


def zero_or_one(x: Tensor) -> Tensor:
    """Ones where x is positive; the same of its tangent and, backwards, of its gradient."""
    found: Tensor = _ZeroOrOne.apply(x)
    return found


def depends(x: Any) -> bool:
    """Whether a value carries the dependence on the input along."""
    return isinstance(x, Tensor) and x.is_floating_point() and forward_ad.unpack_dual(x).tangent is not None


def followed(x: Any) -> bool:
    """Whether a value depends on the input or on a masked weight, and so goes by the rules."""
    return depends(x) or (isinstance(x, Tensor) and x.is_floating_point() and x.requires_grad)


def product(multiply: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Tensor:
    """A bilinear operation, where either factor may be a number.

    A weight is on a path if what it is multiplied by depends on the input; that it is not zero, because of a bias, is
    not enough. So the gradient of a factor that does not depend on the input sees the tangent of the other factor.
    """
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        x, number = (a, b) if isinstance(a, Tensor) else (b, a)
        return x.clone() if number else x * 0
    if depends(a) == depends(b):
        return multiply(a.clone(), b.clone())  # clones: what is kept for the gradient must not be changed in place
    if depends(b):
        return product(lambda x, y: multiply(y, x), b, a)
    tangent = forward_ad.unpack_dual(a).tangent.detach().clone()
    return multiply(a.clone(), b.detach()) + (multiply(tangent, b) - multiply(tangent, b.detach()))


def biased(x: Tensor, bias: Any) -> Tensor:
    """With a bias an entry is not zero; it depends on the input as before."""
    return x if bias is None or (isinstance(bias, int | float) and not bias) else x + 1.0
