"""What neurons do along curves of inputs and of weights: transitions, patterns, dichotomies (Raghu et al. 2017)."""

from epoch0.activity._transitions_result import Transitions
from epoch0.activity.transitions import transitions

__all__ = ["Transitions", "transitions"]
