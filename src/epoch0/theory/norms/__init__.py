"""Norms at initialization: how wide a ReLU network must be to keep them, and their exact law (Arpit-Bengio).

>>> from epoch0.theory import norms
>>> norms.required_width(eps=0.1, delta=0.05), norms.required_width(eps=0.1, delta=0.05, method="paper")
(1919, 4152)
"""

from epoch0.theory.norms.failure import failure_probability
from epoch0.theory.norms.rates import chernoff_rate, paper_rate
from epoch0.theory.norms.ratio import NormRatio
from epoch0.theory.norms.tables import NormsAtWidth, NormSummary, at_width, summary
from epoch0.theory.norms.widths import required_width, required_width_subspace, tolerance

__all__ = [
    "NormRatio",
    "NormSummary",
    "NormsAtWidth",
    "at_width",
    "chernoff_rate",
    "failure_probability",
    "paper_rate",
    "required_width",
    "required_width_subspace",
    "summary",
    "tolerance",
]
