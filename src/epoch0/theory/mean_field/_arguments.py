"""Checks of the arguments that all mean-field functions share."""

import math
import numbers

from epoch0.activations import Activation
from epoch0.errors import InputError


def check_std(name: str, value: float) -> None:
    """Refuse what is no standard deviation."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r} is no standard deviation; it must be finite and >= 0.")


def check_density(density: float) -> None:
    """Refuse what is no density."""
    if not (_is_number(density) and 0 < density <= 1):
        raise InputError(f"density={density!r} is no density; it is the fraction of weights kept (alpha), in (0, 1].")


def check_scales(weight_std: float, bias_std: float, density: float) -> None:
    """Refuse what is no pair of standard deviations, or no density."""
    check_std("weight_std", weight_std)
    check_std("bias_std", bias_std)
    check_density(density)


def check_continuous(activation: Activation) -> None:
    """Refuse an activation that jumps where the fate of close inputs is asked for."""
    if not activation.continuous:
        raise InputError(
            f"{activation.name} jumps, so it tears inputs apart however close they are: chi is infinite at every "
            "weight_std > 0, and there is no ordered phase, no edge of chaos and no depth scale. mean_field.chi gives "
            "the mean of phi' squared between the jumps, which is what a gradient sees."
        )


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
