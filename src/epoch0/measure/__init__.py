"""Measure a network as it is: lengths of trajectories and gains of layers (THEORY sections 0 and 1).

A model, an input or their combination that cannot be measured is one InputError that says why.
"""

from epoch0.measure.gain import gain
from epoch0.measure.length import trajectory_length

__all__ = ["gain", "trajectory_length"]
