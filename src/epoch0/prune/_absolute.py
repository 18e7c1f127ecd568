"""Run a model as the linear network of absolute values, at any depth: what SynFlow scores (Tanaka et al. 2020, 5).

Numbers are carried as mantissa and exponent: where a layer's output leaves [2^-64, 2^64] it is divided by a power of
two, which is remembered for the tensor, and tensors that meet in a sum get the larger exponent. Powers of two change
no digit, so the output, and with it every gradient at a weight, is 2^-exponent times what it would be without.
"""

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from epoch0.errors import InputError
from epoch0.prune._living import Living
from epoch0.tracing import operations

LARGEST = 64
"""Powers of two up to which numbers are left as they are."""

_ACTIVATIONS = operations.ELEMENTWISE.keys() - {"maximum", "minimum"}
_CHANNEL_NORMS = (F.batch_norm, F.instance_norm, F.group_norm)
_LAST_NORMS, _LAST_PLACES = (F.layer_norm, F.rms_norm), ((2, "weight"), (3, "bias"))
_PRODUCTS = {"mul": 1, "imul": 1, "multiply": 1, "div": -1, "idiv": -1, "itruediv": -1, "truediv": -1, "divide": -1}
_SUMS = ("add", "iadd", "sub", "isub", "rsub")
_MATRIX = {name for name, kind in operations.WEIGHTED.items() if kind in ("linear", "convolution", "bilinear")}


Scales = dict[tuple[int, int], tuple[Any, ...]]
"""Of batch norms, by the identity of their variance and the dimensions of the input; with the variance itself."""


class Absolute(TorchFunctionMode):
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
        living: the channels that convolutions have left; None computes all.
    """

    def __init__(self, scales: Scales | None = None, living: Living | None = None) -> None:
        super().__init__()
        self._living = Living() if living is None else living
        self._scales = {} if scales is None else scales
        self._known: dict[int, tuple[Tensor, int]] = {}  # with the tensor, so that its id stays its own

    def exponent(self, tensor: Tensor) -> int:
        """The power of two that this tensor is to be multiplied by."""
        return self._known[id(tensor)][1] if id(tensor) in self._known else 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, operations.function_name(func)
        if name in _ACTIVATIONS and args and isinstance(args[0], Tensor):
            return args[0]
        if func in _CHANNEL_NORMS:
            return self._norm(func, args, kwargs)
        if func in _LAST_NORMS:
            return self._affine(args[0], *(operations.argument(args, kwargs, *where, None) for where in _LAST_PLACES))
        if name in _MATRIX:
            return self._matrix(func, name, args, kwargs)
        looks_up = name in ("embedding", "embedding_bag")
        if looks_up and operations.argument(args, kwargs, 0, "input", None).is_floating_point():
            raise InputError(
                "SynFlow sends an input of ones through the model, and its embedding looks tokens up: there is no flow "
                "through numbers of tokens. Score it by snip, grasp or magnitude, or score what is behind it."
            )
        if not self._known:
            return operations.call(func, name, args, kwargs, "eval")
        return self._other(func, name, args, kwargs)

    def _norm(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        x = args[0]
        key = id(operations.argument(args, kwargs, 2, "running_var", None)), x.dim()
        if func is F.batch_norm and key in self._scales:
            return self._scaled(x, *self._scales[key][1:])
        first = 2 if func is F.group_norm else 3
        weight = operations.argument(args, kwargs, first, "weight", None)
        bias = operations.argument(args, kwargs, first + 1, "bias", None)
        variance = None if func is F.group_norm else operations.argument(args, kwargs, 2, "running_var", None)
        if variance is not None:
            scale = (variance + operations.argument(args, kwargs, 7, "eps", 1e-5)).rsqrt()
            weight = scale if weight is None else weight * scale
        wide = (-1, *[1] * (x.dim() - 2))
        weight, bias = (None if t is None else t.reshape(wide) for t in (weight, bias))
        if variance is not None:
            self._scales[key] = (variance, weight, bias if bias is not None and bool(bias.any()) else None)
            return self._scaled(x, *self._scales[key][1:])
        return self._affine(x, weight, bias)

    def _affine(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return self._scaled(x, weight, bias if bias is not None and bool(bias.any()) else None)

    def _scaled(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        power = self.exponent(x)
        y = x if weight is None else x * weight
        return self._keep(y if bias is None else y + bias * 2.0**-power, power)

    def _matrix(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        power = sum(self.exponent(t) for t in operations.tensors_in(args[:2]))
        if power:
            args, kwargs = list(args), dict(kwargs)
            if kwargs.get("bias") is not None:
                kwargs["bias"] = kwargs["bias"] * 2.0**-power
            elif len(args) > 2 and isinstance(args[2], Tensor):
                args[2] = args[2] * 2.0**-power
        y = self._living.convolution(func, args, kwargs)
        y = func(*args, **kwargs) if y is None else y
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
            return operations.call(func, name, args, kwargs, "eval")
        if name in _PRODUCTS or name in ("bmm", "baddbmm"):
            power = powers[0] + _PRODUCTS.get(name, 1) * sum(powers[1:])
        else:
            power = max(powers)
            if min(powers) < power or name in _SUMS:
                first = args[0]
                args, kwargs = operations.map_tensors((args, kwargs), lambda t: self._at(t, power, t is first, func))
                if name in _SUMS:
                    args = tuple(a * 2.0**-power if isinstance(a, int | float) else a for a in args)
        result = operations.call(func, name, args, kwargs, "eval")
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
