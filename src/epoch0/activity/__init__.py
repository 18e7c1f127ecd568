"""What neurons do along curves of inputs and of weights: transitions, patterns, dichotomies (Raghu et al. 2017).

A network, a curve or data that cannot be used is one InputError that says why.
"""

from epoch0.activity.dichotomies import Dichotomies, dichotomies, random_walk
from epoch0.activity.patterns import ActivationPatterns, activation_patterns
from epoch0.activity.transitions import Transitions, transitions
from epoch0.activity.weights import Robustness, robustness

__all__ = ["ActivationPatterns", "Dichotomies", "Robustness", "Transitions", "activation_patterns", "dichotomies"]
__all__ += ["random_walk", "robustness", "transitions"]
