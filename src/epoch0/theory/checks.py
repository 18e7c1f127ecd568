"""Checks of the theory's arguments, each with an error that repeats the value."""

from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.activations import Activation, ActivationLike, get
from epoch0.errors import InputError

Array = NDArray[np.float64]
Number = TypeVar("Number", float, Array)  # a number or an array, and the result is the same


def like(values: Array | float, given: Number) -> Number:
    """The values as a float where a number was given."""
    return cast(Number, float(values) if np.ndim(given) == 0 else values)


def scales_in_words(weight_std: float, bias_std: float, density: float) -> str:
    """Both standard deviations, and a density that is not 1."""
    return f"weight_std={weight_std:g}, bias_std={bias_std:g}" + ("" if density == 1 else f", density={density:g}")


def continuous(activation: ActivationLike) -> Activation:
    """The activation; one that jumps is refused, as the fate of close inputs is asked for."""
    if not (rule := get(activation)).continuous:
        text = f"{rule.name} jumps, so it tears inputs apart however close they are: chi is infinite at every "
        text += "weight_std > 0, and there is no ordered phase, no edge of chaos and no depth scale"
        raise InputError(f"{text}. See mean_field.chi, the mean of phi' squared between the jumps.")
    return rule


def of_layers(name: str, value: float | ArrayLike, layers: int) -> Array:
    """One standard deviation for all layers, or one for each, as an array of shape (layers,)."""
    if (array := np.asarray(value, dtype=np.float64)).shape not in ((), (layers,)):
        raise InputError(f"{name} has shape {array.shape} for {layers} layers; give one number, or one a layer.")
    return np.broadcast_to(array, layers)
