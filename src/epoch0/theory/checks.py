"""What the theory takes as arguments: each check once, with an error that repeats the value."""

from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.activations import Activation
from epoch0.errors import InputError

Number = TypeVar("Number", float, NDArray[np.float64])  # a number or an array, and the result is the same


def like(values: NDArray[np.float64] | float, given: Number) -> Number:
    """The values as a float where a number was given."""
    return cast(Number, float(values) if np.ndim(given) == 0 else values)


def scales_in_words(weight_std: float, bias_std: float, density: float) -> str:
    """Both standard deviations, and a density that is not 1."""
    sparse = "" if density == 1 else f", density={density:g}"
    return f"weight_std={weight_std:g}, bias_std={bias_std:g}{sparse}"


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


def of_layers(name: str, value: float | ArrayLike, layers: int) -> NDArray[np.float64]:
    """One standard deviation for all layers, or one for each, as an array of shape (layers,)."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(layers, float(array))
    if array.shape != (layers,):
        raise InputError(f"{name} has shape {array.shape} for {layers} layers; give one number, or one a layer.")
    return array
