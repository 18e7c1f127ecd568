"""Measure a network as it is: lengths of trajectories and gains of layers (THEORY sections 0 and 1)."""

from epoch0.measure.gain import gain
from epoch0.measure.length import trajectory_length

__all__ = ["gain", "trajectory_length"]
