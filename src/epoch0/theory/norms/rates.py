"""Exponents of the bounds on a layer's norm: failure <= exp(-width * rate) (Arpit-Bengio Lemmas 2 and 5).

``||ReLU(R u)||^2 / ||u||^2`` is the mean of m copies of ``2 B Z^2``, B a fair coin and Z standard normal, so that
Chernoff's bound with parameter lambda has the exponent ``lambda t / 2 - log((1 + s) / 2)`` at the ratio t, where
``s = (1 - 2 lambda)^(-1/2)``. The paper takes a convenient lambda; the best one solves a cubic equation in s.
"""

import math

from epoch0.theory.norms.checks import check_choice, check_eps


def paper_rate(eps: float) -> float:
    """Exponent of the paper's bound, for either tail: eps/4 + log(2 / (1 + sqrt(1 + eps))).

    >>> round(paper_rate(0.1), 7)
    0.0008886

    Args:
        eps: allowed relative change of the squared norm, in (0, 1).

    Returns:
        c, so that one layer of width m fails with probability at most ``2 exp(-m c)``; about 3 eps^2 / 32.

    Raises:
        InputError: if eps is outside (0, 1).

    Source: Arpit-Bengio Lemma 2 (activations) and Lemma 5 (gradients).
    """
    check_eps(eps)
    # written so that a small eps keeps its digits: sqrt(1 + eps) - 1 = eps / (1 + sqrt(1 + eps))
    return eps / 4 - math.log1p(eps / (2 * (1 + math.sqrt(1 + eps))))


def chernoff_rate(eps: float, tail: str = "upper") -> float:
    """Best exponent that Chernoff's method can give for one tail.

    >>> round(chernoff_rate(0.1), 7), round(chernoff_rate(0.1, "lower"), 7)
    (0.0009451, 0.001063)

    Args:
        eps: allowed relative change of the squared norm, in (0, 1).
        tail: "upper" (the ratio is at least 1 + eps) or "lower" (at most 1 - eps).

    Returns:
        A rate, so that the tail of a layer of width m is at most ``exp(-m rate)``; about eps^2 / 10. By Cramer's
        theorem no larger one holds for all widths.

    Raises:
        InputError: if eps is outside (0, 1) or the tail is not known.

    Source: THEORY 2, "Chernoff with lambda optimised", solved in closed form.
    """
    check_eps(eps)
    check_choice("tail", tail, ("upper", "lower"))
    excess = eps if tail == "upper" else -eps
    return rate_at(excess, saddle(excess))


def saddle(excess: float) -> float:
    """Best lambda for the tail beyond the ratio t = 1 + excess, as u = s - 1: the root of 2 (1 + u)^3 = t (2 + u).

    Args:
        excess: t - 1, in (-1, 1).
    """
    # Newton from the right of the only root above -1, where the cubic is convex: it comes down without a detour. In u
    # and not in s, so that a small excess keeps its digits.
    u = 2 * excess / 5 if excess > 0 else 0.0
    for _ in range(100):
        step = (((2 * u + 6) * u + 5 - excess) * u - 2 * excess) / ((6 * u + 12) * u + 5 - excess)
        u -= step
        if abs(step) <= 1e-16 * abs(u):
            break
    return u


def rate_at(excess: float, u: float) -> float:
    """Chernoff's exponent at the ratio 1 + excess for the lambda of ``u``."""
    return (1 + excess) / 4 * u * (2 + u) / (1 + u) ** 2 - math.log1p(u / 2)
