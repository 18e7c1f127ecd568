"""What the theory takes as arguments: each check once, with an error that repeats the value."""

import math
import numbers
from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.activations import Activation
from epoch0.errors import InputError, suggest

Number = TypeVar("Number", float, NDArray[np.float64])  # a number or an array, and the result is the same


def like(values: NDArray[np.float64] | float, given: Number) -> Number:
    """The values as a float where a number was given."""
    return cast(Number, float(values) if np.ndim(given) == 0 else values)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_integer(value: object, least: int = 1) -> bool:
    """Whether this is an integer, numpy's included, that is large enough."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def check_width(width: int, name: str = "width") -> None:
    """Refuse what is no number of units."""
    if not is_integer(width):
        raise InputError(f"{name}={width!r} is no width; it is the number of units of a layer, an integer >= 1.")


def check_count(name: str, count: int) -> None:
    """Refuse what is no number of samples, layers, dimensions or the like."""
    if not is_integer(count):
        raise InputError(f"{name}={count!r} cannot be used; it is an integer >= 1.")


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse a word that is not one of the known ones."""
    if value not in known:
        raise InputError(f"{name}={value!r} is not known; use one of {', '.join(known)}.{suggest(value, known)}")


def check_std(name: str, value: float) -> None:
    """Refuse what is no standard deviation."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r} is no standard deviation; it must be finite and >= 0.")


def check_density(density: float) -> None:
    """Refuse what is no fraction of weights kept."""
    if not (_is_number(density) and 0 < density <= 1):
        raise InputError(f"density={density!r} is no density; it is the fraction of weights kept (alpha), in (0, 1].")


def check_scales(weight_std: float, bias_std: float, density: float) -> None:
    """Refuse what is no pair of standard deviations, or no density."""
    check_std("weight_std", weight_std)
    check_std("bias_std", bias_std)
    check_density(density)


def check_sparsity(sparsity: float) -> None:
    """Refuse what is no fraction of weights removed."""
    number = _is_number(sparsity)
    if not number or not 0 <= sparsity < 1:
        hint = f" In percent? Then it is {float(sparsity) / 100:g}." if number and 1 < sparsity <= 100 else ""
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
    for size in sizes:
        check_count("a width", size)
    return [int(size) for size in sizes]


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
