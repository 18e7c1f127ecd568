"""The paper's bound on the critical sparsity in the ordered phase, printed and corrected (Hayou 2021, Theorem 1)."""

import math
from dataclasses import dataclass

from epoch0.activations import ActivationLike, get
from epoch0.errors import InputError
from epoch0.theory.mean_field.fixed_points import q_star
from epoch0.theory.mean_field.maps import chi as gain
from epoch0.theory.pruning.checks import check_count


@dataclass(frozen=True)
class OrderedBound:
    """What Theorem 1 says of one network.

    Attributes:
        value: (1 + log(kappa L N^2) / kappa) / L.
        kappa: abs(log chi) / 8.
        chi: gain of a layer.
        vacuous: whether the bound says nothing: it is above 1, or kappa L N^2 below 1, where its proof does not hold.
        paper: whether the logarithm in ``value`` is the decimal one that the paper's example used.
    """

    value: float
    kappa: float
    chi: float
    vacuous: bool
    paper: bool

    def __str__(self) -> str:
        used = "log base 10, as in the paper's example" if self.paper else "natural logarithm"
        empty = ", which says nothing" if self.vacuous else ""
        return f"chi={self.chi:.6g}, kappa={self.kappa:.6g}: E[s_cr] <= {self.value:.6g}{empty} ({used})"


def ordered_bound(chi: float, depth: int, width: int, *, paper: bool = False) -> OrderedBound:
    """Upper bound on the expected critical sparsity of SNIP in the ordered phase, without its error term.

    >>> kappa = math.exp(-8 * 0.2)                                            # chi at kappa = 0.2
    >>> round(ordered_bound(kappa, 100, 100).value, 3), round(ordered_bound(kappa, 100, 100, paper=True).value, 3)
    (0.62, 0.275)

    The error term, O(1/(kappa^2 sqrt(L N^2))), has no stated constant and is left out. The proof needs the natural
    logarithm; the paper's example, "27 % at kappa = 0.2", is the formula with log base 10. Two limits that the
    statement leaves out: it holds for bias_std > 0 only (see :func:`ordered_bound_of`), and at L = N = 100 it is above
    1, so empty, for chi above 0.39. Measured values lie about eight times lower; :func:`predicted_density` comes within
    5 %.

    Args:
        chi: gain of a layer, in (0, 1).
        depth: L, number of layers.
        width: N, number of units of each.
        paper: whether to use the logarithm that gives the paper's 27 %.

    Raises:
        InputError: for chi outside (0, 1), or a depth or width below 1.

    Source: Hayou et al. 2021, Theorem 1.
    """
    if isinstance(chi, bool) or not 0 < chi < 1:
        raise InputError(
            f"chi={chi!r}: the bound is for the ordered phase, 0 < chi < 1"
            + ("; on the edge of chaos, chi = 1, no layer is weaker than the others." if chi == 1 else ".")
        )
    check_count("depth", depth)
    check_count("width", width)
    kappa = abs(math.log(chi)) / 8
    inside = kappa * depth * width**2
    logarithm = math.log10(inside) if paper else math.log(inside)
    value = (1 + logarithm / kappa) / depth
    return OrderedBound(value, kappa, float(chi), value > 1 or inside < 1, paper)


def ordered_bound_of(
    activation: ActivationLike, weight_std: float, bias_std: float, depth: int, width: int, *, paper: bool = False
) -> OrderedBound:
    """The same bound for weights and biases of given standard deviations, refused where the theorem is false.

    >>> ordered_bound_of("tanh", 0.4918, 0.3, 100, 100).vacuous                             # chi = 0.2
    False

    Args:
        activation: a name, an Activation or a function.
        weight_std: sigma_w; > 0.
        bias_std: sigma_b; > 0.
        depth: L, number of layers.
        width: N, number of units of each.
        paper: as for :func:`ordered_bound`.

    Raises:
        InputError: if the network is not in the ordered phase, or its pre-activations shrink to 0: there it is linear,
            W dL/dW is the same in sum for every layer, and none vanishes (tanh without biases at chi = 0.8 measures a
            critical sparsity of 0.997).

    Source: Hayou et al. 2021, Theorem 1; the proof's constant, E phi(sqrt(q) Z)^2 times the gradient, must not be 0.
    """
    rule = get(activation)
    q = q_star(rule, weight_std, bias_std)
    # towards 0 by ever smaller steps counts as 0: what is left is linear
    if q < 1e-12:
        raise InputError(
            f"{rule.name} at weight_std={weight_std:g}, bias_std={bias_std:g} settles at q = 0: the theorem's constant "
            "is 0 and the network linear, so that all layers' scores are alike and none vanishes. It needs q > 0, "
            "which bias_std > 0 gives."
        )
    return ordered_bound(gain(rule, weight_std, q), depth, width, paper=paper)
