"""What the theory takes as arguments: each check once, with an error that repeats the value."""

import math
import numbers
import reprlib
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.activations import Activation
from epoch0.errors import InputError

Number = TypeVar("Number", float, NDArray[np.float64])  # a number or an array, and the result is the same


def like(values: NDArray[np.float64] | float, given: Number) -> Number:
    """The values as a float where a number was given."""
    return cast(Number, float(values) if np.ndim(given) == 0 else values)


def as_array(name: str, values: Any) -> NDArray[np.float64]:
    """The values as float64, or an error that repeats them."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        given = reprlib.repr(values)
        raise InputError(f"{name}={given} cannot be used; give a number or an array of numbers.") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_count(name: str, count: int, least: int = 1) -> int:
    """A number of units, samples, layers, dimensions or the like, numpy's included, as an int."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < least:
        raise InputError(f"{name}={count!r} cannot be used; it is an integer >= {least}.")
    return int(count)


def check_inside(name: str, value: float, what: str) -> None:
    """Refuse what is no fraction strictly between 0 and 1."""
    if isinstance(value, bool) or not 0 < value < 1:
        raise InputError(f"{name}={value!r} is no {what}; it lies strictly between 0 and 1.")


def check_std(name: str, value: float) -> float:
    """Refuse what is no standard deviation."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r} is no standard deviation; it must be finite and >= 0.")
    return float(value)


def check_density(density: float) -> None:
    """Refuse what is no fraction of weights kept."""
    if not (_is_number(density) and 0 < density <= 1):
        raise InputError(f"density={density!r} is no density; it is the fraction of weights kept (alpha), in (0, 1].")


def check_scales(weight_std: float, bias_std: float, density: float) -> None:
    """Refuse what is no pair of standard deviations, or no density."""
    check_std("weight_std", weight_std)
    check_std("bias_std", bias_std)
    check_density(density)


def scales_in_words(weight_std: float, bias_std: float, density: float) -> str:
    """Both standard deviations, and a density that is not 1."""
    sparse = "" if density == 1 else f", density={density:g}"
    return f"weight_std={weight_std:g}, bias_std={bias_std:g}{sparse}"


def check_sparsity(sparsity: float) -> None:
    """Refuse what is no fraction of weights removed."""
    number = _is_number(sparsity)
    if not number or not 0 <= sparsity < 1:
        hint = f" In percent? Then it is {sparsity / 100:g}." if number and 1 < sparsity <= 100 else ""
        raise InputError(f"sparsity={sparsity!r} is no fraction of weights to remove; it is in [0, 1).{hint}")


def check_continuous(activation: Activation) -> None:
    """Refuse an activation that jumps where the fate of close inputs is asked for."""
    if not activation.continuous:
        raise InputError(
            f"{activation.name} jumps, so it tears inputs apart however close they are: chi is infinite at every "
            "weight_std > 0, and there is no ordered phase, no edge of chaos and no depth scale. mean_field.chi gives "
            "the mean of phi' squared between the jumps, which is what a gradient sees."
        )


def check_variance(name: str, values: NDArray[np.float64], given: object) -> None:
    """Refuse variances that are negative, infinite or NaN."""
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(f"{name}={given!r} is no variance; it must be finite and >= 0.")


def network_widths(widths: Sequence[int]) -> list[int]:
    """Inputs and units of each layer, as a list of at least two integers >= 1."""
    sizes = list(widths)
    if len(sizes) < 2:
        raise InputError(f"widths={sizes} is no network; give the number of inputs, then of units of each layer.")
    return [check_count("a width", size) for size in sizes]


def of_layers(name: str, value: float | ArrayLike, layers: int) -> NDArray[np.float64]:
    """One standard deviation for all layers, or one for each, as an array of shape (layers,)."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(layers, float(array))
    if array.shape != (layers,):
        raise InputError(f"{name} has shape {array.shape} for {layers} layers; give one number, or one a layer.")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(f"{name}={value!r}: standard deviations must be finite and >= 0.")
    return array
