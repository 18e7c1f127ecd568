"""Norms at initialization: how wide a ReLU network must be to keep them, and their exact law (Arpit-Bengio).

>>> from epoch0.theory import norms
>>> norms.required_width(eps=0.1, delta=0.05), norms.required_width(eps=0.1, delta=0.05, method="paper")
(1919, 4152)

Arguments have one meaning in all functions: ``eps`` is the allowed relative change of the squared norm in a layer and
``delta`` the allowed probability of failure, both in (0, 1); ``samples`` and ``layers`` are numbers of inputs and of
layers, >= 1. ``method`` is "paper" (the bound of its theorems), "chernoff" (the same argument with the best parameter
for each tail) or "exact" (the exact law of a layer). ``direction`` is "forward" (activations; one step back has the
same number, Lemma 5) or "gradient" (both passes: twice as likely to fail; takes the paper's assumption that what comes
back is independent of the weights, and layers of nearly one width). All of them raise InputError for anything else.
"""

from epoch0.theory.norms.failure import (
    NormSummary,
    chernoff_rate,
    failure_probability,
    paper_rate,
    required_width,
    required_width_subspace,
    summary,
    tolerance,
)
from epoch0.theory.norms.ratio import NormRatio

__all__ = ["NormRatio", "NormSummary", "chernoff_rate", "failure_probability", "paper_rate", "required_width"]
__all__ += ["required_width_subspace", "summary", "tolerance"]
