"""Expected norm of a random sub-vector, the step where the paper's bound loses its root (Price-Tanner appendix B)."""

import numpy as np

from epoch0.errors import InputError, suggest
from epoch0.theory.gaussian_growth import binomial, check_width, chi_mean


def expected_subvector_norm(direction: str, density: float, size: int) -> float:
    """E||u_S|| for a unit vector u and a random set S that keeps each entry with probability ``density``.

    >>> expected_subvector_norm("one-hot", 0.25, 100), round(expected_subvector_norm("flat", 0.25, 100), 4)
    (0.25, 0.4981)

    It lies between the density (one-hot: the case that the paper's bound, linear in alpha, must allow for) and its
    square root.

    Args:
        direction: "one-hot", "flat" (all entries equal) or "sphere" (uniform on the unit sphere).
        density: probability that an entry is kept (alpha), in (0, 1].
        size: number of entries of u, >= 1.

    Raises:
        InputError: for another direction, a density outside (0, 1] or a size below 1.

    Source: Price-Tanner appendix B; on the sphere the squared norm of n of N entries is Beta(n/2, (N - n)/2).
    """
    check_width(size, "size")
    if not 0 < density <= 1:
        raise InputError(f"density={density!r} is no density; it is the fraction of entries kept (alpha), in (0, 1].")
    counts, mass = binomial(size, density)
    if direction == "one-hot":
        return float(density)
    if direction == "flat":
        return float(mass @ np.sqrt(counts / size))
    if direction == "sphere":
        return float(mass @ chi_mean(counts) / chi_mean(np.array(float(size))))
    known = ["one-hot", "flat", "sphere"]
    raise InputError(f"direction={direction!r} is not known; use one of {known}.{suggest(direction, known)}")
