"""What the functions of the norm theory accept, said in one place (Arpit-Bengio section 3)."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from epoch0.errors import InputError, suggest
from epoch0.theory.gaussian_growth import check_width

METHODS = ("paper", "chernoff", "exact")
DIRECTIONS = ("forward", "gradient")


def check_eps(eps: float) -> None:
    """Refuse a tolerance outside (0, 1).

    Raises:
        InputError: naming the value.
    """
    if isinstance(eps, bool) or not 0 < eps < 1:
        raise InputError(
            f"eps={eps!r} is no tolerance; it is the relative change of the squared norm that is allowed, "
            "strictly between 0 and 1, such as 0.1."
        )


def check_delta(delta: float) -> None:
    """Refuse a probability of failure outside (0, 1).

    Raises:
        InputError: naming the value.
    """
    if isinstance(delta, bool) or not 0 < delta < 1:
        raise InputError(
            f"delta={delta!r} is no probability of failure to allow; it lies strictly between 0 and 1, such as 0.05."
        )


def check_count(name: str, count: int) -> None:
    """Refuse a number of samples, layers or dimensions, or the number of a layer, that is not an integer >= 1.

    Raises:
        InputError: naming the argument and its value.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise InputError(f"{name}={count!r} cannot be used; it is an integer >= 1.")


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse a word that is not one of the known ones.

    Raises:
        InputError: naming the argument, its value, the known words and the closest of them.
    """
    if value not in known:
        raise InputError(f"{name}={value!r} is not known; use one of {', '.join(known)}.{suggest(value, known)}")


def layer_widths(widths: int | Sequence[int], layers: int) -> "Counter[int]":
    """How many layers have each width, from one width for all of them or a sequence.

    Args:
        widths: number of units of every layer, or a sequence of one a layer.
        layers: number of layers; must be left at 1 with a sequence, which says it itself.

    Raises:
        InputError: for a width below 1, layers below 1, no layer, or a sequence together with ``layers``.
    """
    check_count("layers", layers)
    if isinstance(widths, int | np.integer):
        check_width(widths)
        return Counter({int(widths): int(layers)})
    sizes = list(widths)
    if not sizes:
        raise InputError("widths holds no layer; give the number of units of one layer or more.")
    if layers not in (1, len(sizes)):
        raise InputError(f"{len(sizes)} widths and layers={layers}; give layers only with one width for all of them.")
    for size in sizes:
        check_width(size)
    return Counter(int(size) for size in sizes)
