"""How likely a ReLU network changes a norm by more than a tolerance, by three methods (Arpit-Bengio Theorems 1, 3).

Weights N(0, 2/fan_out), biases zero. Failure means that in some layer, for some sample, the squared norm changes by
more than a factor 1 +- eps; without failure the norm after L layers lies between (1 - eps)^L and (1 + eps)^L of the
input's.
"""

import math
from collections import Counter
from collections.abc import Sequence

from epoch0.theory.norms.checks import DIRECTIONS, METHODS, check_choice, check_count, check_eps, layer_widths
from epoch0.theory.norms.rates import chernoff_rate, paper_rate
from epoch0.theory.norms.tails import layer_failure


def failure_probability(
    eps: float,
    widths: int | Sequence[int],
    samples: int = 1,
    method: str = "exact",
    direction: str = "forward",
    layers: int = 1,
) -> float:
    """Probability, or a bound on it, that some layer changes some sample's squared norm by more than eps.

    >>> round(failure_probability(0.1, 1919), 5)                          # one layer, one sample, exact
    0.04997
    >>> round(failure_probability(0.1, 4152, method="paper"), 5)
    0.04997
    >>> round(failure_probability(0.1, [2000] * 10, samples=5), 3)        # ten layers, five samples
    1.0

    Args:
        eps: allowed relative change of the squared norm in a layer, in (0, 1).
        widths: number of units of every layer, or a sequence of one a layer.
        samples: number of inputs N, >= 1.
        method: "paper" is the bound of its theorems; "chernoff" the same argument with the best parameter for each
            tail; "exact" the exact law of a layer. Layers are independent for one sample, so that exactly
            1 - prod(1 - p_l) is its chance of failing; samples share the weights, and their chances are added (a
            bound, as in the other two methods).
        direction: "forward" (activations; Lemma 5 for one step back has the same number) or "gradient" (forward and
            backward pass: twice as likely; takes the paper's assumption that what comes back is independent of the
            weights, and layers of nearly one width).
        layers: number of layers, with one width for all of them.

    Returns:
        A probability, at most 1. With one sample, forward, the exact method's is no bound but the probability itself.

    Raises:
        InputError: for an eps outside (0, 1), a width, samples or layers below 1, or an unknown method or direction.

    Source: Arpit-Bengio Theorem 1 (forward), Theorem 3 (gradient); THEORY 2 for the exact law.
    """
    check_eps(eps)
    check_count("samples", samples)
    check_choice("method", method, METHODS)
    check_choice("direction", direction, DIRECTIONS)
    sizes = layer_widths(widths, layers)
    chance = samples * _one_sample(eps, sizes, method) * (1 if direction == "forward" else 2)
    return min(1.0, chance)


def _one_sample(eps: float, sizes: "Counter[int]", method: str) -> float:
    """Chance of one sample's failing in the forward pass; widths and how many layers have each."""
    if method == "exact":
        chances = [(layer_failure(size, eps), times) for size, times in sizes.items()]
        if any(chance == 1.0 for chance, _ in chances):
            return 1.0
        return -math.expm1(math.fsum(times * math.log1p(-chance) for chance, times in chances))
    paper = method == "paper"
    rates = [paper_rate(eps)] * 2 if paper else [chernoff_rate(eps, "upper"), chernoff_rate(eps, "lower")]
    return math.fsum(times * math.exp(-size * rate) for size, times in sizes.items() for rate in rates)
