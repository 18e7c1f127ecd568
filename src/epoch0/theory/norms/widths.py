"""The width that a network needs to keep norms, and the tolerance that a width keeps (Arpit-Bengio section 3, Fig. 2).

Both invert :func:`failure_probability`, whichever the method.
"""

import math

from epoch0.errors import InputError
from epoch0.theory.gaussian_growth import check_width
from epoch0.theory.norms.checks import check_count, check_delta, check_eps
from epoch0.theory.norms.failure import failure_probability


def required_width(
    eps: float, delta: float, samples: int = 1, layers: int = 1, method: str = "exact", direction: str = "forward"
) -> int:
    """The least width, the same for all layers, at which norms are kept within eps with probability 1 - delta.

    >>> [required_width(0.1, 0.05, method=method) for method in ("paper", "chernoff", "exact")]
    [4152, 3698, 1919]

    Args:
        eps: allowed relative change of the squared norm in a layer, in (0, 1).
        delta: allowed probability of failure, in (0, 1).
        samples: number of inputs N, >= 1.
        layers: number of layers L, >= 1.
        method: "paper", "chernoff" or "exact"; see :func:`failure_probability`.
        direction: "forward" or "gradient".

    Returns:
        The least width whose failure probability is at most delta. All three fall as the width grows (the exact one
        by computation, for every width up to 2,500, not by proof).

    Raises:
        InputError: for an eps or a delta outside (0, 1), samples or layers below 1, or an unknown method or direction.

    Source: Arpit-Bengio Theorems 1 and 3 solved for the width; THEORY 2, the table.
    """
    check_delta(delta)

    def enough(width: int) -> bool:
        return failure_probability(eps, width, samples, method, direction, layers) <= delta

    if enough(1):
        return 1
    fails, width = 1, 2
    while not enough(width):
        fails, width = width, 2 * width
    while width - fails > 1:
        middle = (fails + width) // 2
        fails, width = (fails, middle) if enough(middle) else (middle, width)
    return width


def tolerance(
    width: int, delta: float, samples: int = 1, layers: int = 1, method: str = "exact", direction: str = "forward"
) -> float:
    """The least eps that a width keeps with probability 1 - delta: the inverse of :func:`required_width` in eps.

    >>> [round(tolerance(500, 0.05, method=method), 4) for method in ("paper", "chernoff", "exact")]
    [0.3026, 0.2741, 0.1956]

    Args:
        width: number of units of every layer, >= 1.
        delta: allowed probability of failure, in (0, 1).
        samples: number of inputs N, >= 1.
        layers: number of layers L, >= 1.
        method: "paper", "chernoff" or "exact"; see :func:`failure_probability`.
        direction: "forward" or "gradient".

    Returns:
        The tolerance of the squared norm in a layer, correct to rounding and on the safe side of it.

    Raises:
        InputError: if no eps below 1 is kept at this width, for a width, samples or layers below 1, a delta outside
            (0, 1), or an unknown method or direction.

    Source: Arpit-Bengio section 4.2, the predicted curve of Figure 2.
    """
    check_delta(delta)
    check_width(width)
    check_count("layers", layers)

    def failure(eps: float) -> float:
        return failure_probability(eps, width, samples, method, direction, layers)

    low, high = 0.0, math.nextafter(1.0, 0.0)
    if failure(high) > delta:
        raise InputError(
            f"width={width} keeps no tolerance below 1 with probability 1 - delta = {1 - delta:g} ({method}, "
            f"samples={samples}, layers={layers}); it takes a width of at least "
            f"{required_width(high, delta, samples, layers, method, direction)}."
        )
    while True:
        middle = (low + high) / 2
        if middle in (low, high) or high - low < 1e-15 * high:
            return high
        low, high = (low, middle) if failure(middle) <= delta else (middle, high)


def required_width_subspace(eps: float, delta: float, dimension: int, layers: int = 1) -> int:
    """The width at which one layer keeps the norm of **every** input of a subspace at once (Theorem 2, one layer).

    >>> required_width_subspace(0.2, 0.05, dimension=1)
    19368

    Args:
        eps: allowed relative change of the norm itself (not of its square), in (0, 1).
        delta: allowed probability of failure, in (0, 1).
        dimension: dimension d of the subspace that holds the inputs, >= 1.
        layers: only 1 is proved.

    Returns:
        The least integer that Lemma 3 allows.

    Raises:
        InputError: for more than one layer, with the reason; for eps or delta outside (0, 1), a dimension below 1.

    Source: Arpit-Bengio Lemma 3, which is Theorem 2 with one layer.
    """
    check_eps(eps)
    check_delta(delta)
    check_count("dimension", dimension)
    check_count("layers", layers)
    if layers > 1:
        raise InputError(
            f"layers={layers}: the bound over a subspace is proved for one layer only. The proof of Theorem 2 takes "
            "the outputs of a ReLU layer to lie in a subspace of the inputs' dimension again; they do not (inputs of "
            "2 dimensions leave a layer of 400 units with rank above 300). Use layers=1, or required_width with a "
            "finite number of samples."
        )
    return math.ceil(_subspace_width(eps, delta, dimension, layers))


def _subspace_width(eps: float, delta: float, dimension: int, layers: int) -> float:
    """Equation (11) as printed, for any number of layers."""
    spacing = min(eps / (3 * math.sqrt(dimension)), math.sqrt(eps) / (math.sqrt(3) * dimension))
    third = eps / 3
    rate = eps / 12 - math.log1p(third / (2 * (1 + math.sqrt(1 + third))))
    return (dimension * math.log(2 / spacing) + math.log(4 * layers / delta)) / rate
