"""Checks of the arguments that the predictions for pruning share (Hayou et al. 2021, section 2)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.errors import InputError

Array = NDArray[np.float64]


def check_sparsity(sparsity: float) -> None:
    """Refuse what is no fraction removed.

    Raises:
        InputError: unless it is a number in [0, 1).
    """
    number = isinstance(sparsity, int | float | np.integer | np.floating) and not isinstance(sparsity, bool)
    if not number or not 0 <= sparsity < 1:
        hint = f" In percent? Then it is {float(sparsity) / 100:g}." if number and 1 < sparsity <= 100 else ""
        raise InputError(f"sparsity={sparsity!r} is no fraction of weights to remove; it is in [0, 1).{hint}")


def check_count(name: str, count: int) -> None:
    """Refuse what is no whole number above 0.

    Raises:
        InputError: naming the argument.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise InputError(f"{name}={count!r} cannot be used; it is a whole number >= 1.")


def check_widths(widths: Sequence[int]) -> list[int]:
    """Inputs and units of each layer, as a list of at least two whole numbers above 0.

    Raises:
        InputError: if they are not.
    """
    sizes = list(widths)
    if len(sizes) < 2:
        raise InputError(f"widths={sizes} is no network; give the number of inputs, then of units of each layer.")
    for size in sizes:
        check_count("a width", size)
    return [int(size) for size in sizes]


def of_layers(name: str, value: float | ArrayLike, layers: int) -> Array:
    """One standard deviation for all layers, or one for each, as an array of shape (layers,).

    Raises:
        InputError: if there is another number of them, or one is negative or not finite.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(layers, float(array))
    if array.shape != (layers,):
        raise InputError(f"{name} has shape {array.shape} for {layers} layers; give one number, or one a layer.")
    if not all(math.isfinite(one) and one >= 0 for one in array):
        raise InputError(f"{name}={value!r}: standard deviations must be finite and >= 0.")
    return array
