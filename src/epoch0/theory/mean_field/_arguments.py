"""Checks of the arguments that all mean-field functions share."""

import math

from epoch0.errors import InputError


def check_std(name: str, value: float) -> None:
    """Refuse what is no standard deviation."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r} is no standard deviation; it must be finite and >= 0.")


def check_density(density: float) -> None:
    """Refuse what is no density."""
    if not 0 < density <= 1:
        raise InputError(f"density={density!r} is no density; it is the fraction of weights kept (alpha), in (0, 1].")
