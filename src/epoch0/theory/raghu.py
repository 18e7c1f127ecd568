"""The growth bounds of Raghu et al. (2017), Theorem 3, with the constants of their proof; see also ``growth``."""

import math

import numpy as np

from epoch0.errors import InputError, suggest
from epoch0.theory.checks import check_choice, check_std, check_width
from epoch0.theory.gaussian_growth import chi_mean


def raghu_lower_bound(
    weight_std: float, bias_std: float, width: int, activation: str = "relu", constant: str = "proof"
) -> float:
    """Raghu's lower bound on the growth of a trajectory's length in one layer of Gaussian weights.

    >>> round(raghu_lower_bound(2.0, 0.0, 784), 6)
    0.999363
    >>> round(raghu_lower_bound(2.0, 0.0, 100, activation="hardtanh", constant="order"), 6)
    1.40028

    The paper asks for square layers and a trajectory with a part perpendicular to itself. Two steps of the proof do
    not hold as printed: ``sqrt(m - 3/2) >= sqrt(m/2)`` is used for m = 2 too, and (1 - p)^(k-1) is bounded with
    p <= 1/sigma where a lower bound on p is needed. So "proof" is the paper's number, not a certified one; for ReLU
    the exact law (:func:`epoch0.theory.growth.exact`) is larger at every width.

    ``weight_std`` is sigma_w, a weight's standard deviation times sqrt(width), ``bias_std`` sigma_b, on which ReLU's
    bound does not depend, and ``activation`` "relu" or "hardtanh", whose proof needs weight_std^2 + bias_std^2 >= 1.
    The constant "proof" is 0 where it is negative and says nothing; "order" is the expression inside the theorem's O(),
    which is a shape and no bound.

    Source: Raghu et al. 2017, Theorem 3 and appendix D, equations (a)-(d).
    """
    check_std("weight_std", weight_std)
    check_std("bias_std", bias_std)
    check_width(width)
    check_choice("constant", constant, ("proof", "order"))
    if activation not in ("relu", "hardtanh"):
        hint = suggest(activation, ["relu", "hardtanh"])
        raise InputError(f"activation={activation!r} has no bound of Raghu's; use 'relu' or 'hardtanh'.{hint}")
    root = math.sqrt(width)
    if activation == "relu":
        if constant == "order":
            return weight_std * root / math.sqrt(width + 1)
        bracket = root / math.sqrt(2 * (width + 1)) - math.ldexp(root, -int(width))
        return max(0.0, weight_std / math.sqrt(2) * bracket)
    total = math.hypot(weight_std, bias_std)
    if constant == "order":
        return weight_std * root / math.sqrt(total**2 + width * total) if total > 0 else 0.0
    if total < 1:
        raise InputError(
            f"weight_std={weight_std!r}, bias_std={bias_std!r} are too small for the hard-tanh proof, which needs "
            "weight_std^2 + bias_std^2 >= 1; constant='order' has no such condition."
        )
    kept = weight_std * root / ((2 * math.pi) ** 0.25 * math.sqrt(total * (total * math.sqrt(2 * math.pi) + width - 1)))
    lost = float(weight_std / total * root * (1 - 1 / total) ** (width - 1))
    return max(0.0, float(kept - lost) / math.sqrt(2))


def raghu_upper_bound(weight_std: float, width: int) -> float:
    """Raghu's upper bound on the growth in one hard-tanh layer: the mean of a chi variable, as if nothing saturated.

    >>> round(raghu_upper_bound(2.0, 100), 6)
    1.995006

    It holds for every activation whose slopes are at most 1, ReLU included, and is at most
    ``weight_std * sqrt((width + 1)/width)``, the second form that the paper prints.

    Source: Raghu et al. 2017, appendix D, equations (2) and (3).
    """
    check_std("weight_std", weight_std)
    check_width(width)
    return float(chi_mean(np.array(float(width)))) * weight_std / math.sqrt(width)
