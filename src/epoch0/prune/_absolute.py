"""Run a model as the linear network of absolute values, at any depth: what SynFlow scores (Tanaka et al. 2020, 5).

Numbers are carried as mantissa and exponent: where a layer's output leaves [2^-64, 2^64] it is divided by a power of
two, which is remembered for the tensor, and tensors that meet in a sum get the larger exponent. Powers of two change
no digit, so the output, and with it every gradient at a weight, is 2^-exponent times what it would be without.
"""

import math
from typing import Any

from torch import Tensor

from epoch0.errors import InputError
from epoch0.tracing import operations

LARGEST = 64
"""Powers of two up to which numbers are left as they are."""


Scales = dict[tuple[int, int], tuple[Any, ...]]
"""Of batch norms, by the identity of their variance and the dimensions of the input; with the variance itself."""


class Absolute(operations.Calls):
    """Every torch function as the linear network of absolute values has it.

    >>> with Absolute() as mode:
    ...     y = torch.tanh(torch.full((2, 3), 5.0))             # activations are the identity
    >>> y, mode.exponent(y)
    (tensor([[5., 5., 5.],
            [5., 5., 5.]]), 0)

    Weights and buffers must have been replaced by their absolute values. Activations are the identity, as is ReLU on
    positive numbers; norms only multiply by their scale, ``abs(weight)/sqrt(running_var + eps)`` or ``abs(weight)``,
    and add ``abs(bias)``; dropout is off.

    Args:
        scales: of the norms met so far, for further runs of the same model on the same tensors.
    """

    def __init__(self, scales: Scales | None = None) -> None:
        super().__init__()
        self._scales = {} if scales is None else scales
        self._known: dict[int, tuple[Tensor, int]] = {}  # with the tensor, so that its id stays its own

    def exponent(self, tensor: Tensor) -> int:
        """The power of two that this tensor is to be multiplied by."""
        return self._known[id(tensor)][1] if id(tensor) in self._known else 0

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What the function gives in the linear network of absolute values."""
        known = operations.meaning(name)
        kind, given = known.kind, known.given(args, kwargs)
        if kind == "activation" and args and isinstance(args[0], Tensor):
            return args[0]
        if kind == "norm" and name != "local_response_norm":
            return self._norm(name, given)
        if kind in ("linear", "convolution", "bilinear"):
            return self._matrix(func, name, args, kwargs)
        if kind == "lookup" and given["input"].is_floating_point():
            raise InputError(
                "SynFlow sends an input of ones through the model, and its embedding looks tokens up: there is no flow "
                "through numbers of tokens. Score it by snip, grasp or magnitude, or score what is behind it."
            )
        if not self._known:
            return operations.measured(func, name, args, kwargs, "eval")
        return self._other(func, name, args, kwargs)

    def _norm(self, name: str, given: dict[str, Any]) -> Tensor:
        x, variance = given["input"], given.get("running_var")
        key = id(variance), x.dim()
        if name == "batch_norm" and key in self._scales:
            return self._scaled(x, *self._scales[key][1:])
        weight, bias = given.get("weight"), given.get("bias")
        if variance is not None:
            scale = (variance + given.get("eps", 1e-5)).rsqrt()
            weight = scale if weight is None else weight * scale
        if "normalized_shape" not in given:
            wide = (-1, *[1] * (x.dim() - 2))
            weight, bias = (None if t is None else t.reshape(wide) for t in (weight, bias))
        bias = bias if bias is not None and bool(bias.any()) else None
        if variance is not None:
            self._scales[key] = (variance, weight, bias)
        return self._scaled(x, weight, bias)

    def _scaled(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        power = self.exponent(x)
        y = x if weight is None else x * weight
        return self._keep(y if bias is None else y + bias * 2.0**-power, power)

    def _matrix(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        known = operations.meaning(name)
        bias = known.given(args, kwargs).get("bias")
        power = sum(self.exponent(t) for t in operations.tensors_in((args, kwargs)) if t is not bias)
        if bias is not None and (less := self.exponent(bias) - power):
            args, kwargs = known.replaced(args, kwargs, bias=bias * 2.0**less)
        y = func(*args, **kwargs)
        if y.is_complex():
            raise InputError(f"SynFlow follows positive numbers; '{name}' of this model has complex ones.")
        largest = float(y.detach().max())
        if 0 < largest < math.inf and abs(more := math.frexp(largest)[1]) > LARGEST:
            y, power = y * 2.0**-more, power + more
        return self._keep(y, power)

    def _other(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        tensors = operations.tensors_in((args, kwargs))
        powers = [self.exponent(t) for t in tensors]
        if not any(powers):
            return operations.measured(func, name, args, kwargs, "eval")
        kind = operations.meaning(name).kind
        if kind in ("product", "quotient"):
            power = powers[0] + (1 if kind == "product" else -1) * sum(powers[1:])
        else:
            power = max(powers)
            if min(powers) < power or kind == "sum":
                first = args[0]
                args, kwargs = operations.map_tensors((args, kwargs), lambda t: self._at(t, power, t is first, func))
                if kind == "sum":
                    args = tuple(a * 2.0**-power if isinstance(a, int | float) else a for a in args)
        result = operations.measured(func, name, args, kwargs, "eval")
        return operations.map_tensors(result, lambda t: self._keep(t, power) if t.is_floating_point() else t)

    def _at(self, tensor: Tensor, power: int, first: bool, func: Any) -> Tensor:
        """The tensor with the mantissa that goes with this exponent; changed in place where the function does that."""
        less = self.exponent(tensor) - power
        if not less or not tensor.is_floating_point():
            return tensor
        name = getattr(func, "__name__", "")
        in_place = first and (name.startswith("__i") or (name.endswith("_") and not name.endswith("__")))
        return self._keep(tensor.mul_(2.0**less), power) if in_place else tensor * 2.0**less

    def _keep(self, tensor: Tensor, power: int) -> Tensor:
        if power or id(tensor) in self._known:
            self._known[id(tensor)] = (tensor, power)
        return tensor
