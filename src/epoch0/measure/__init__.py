"""Measure a network as it is: lengths of trajectories and gains of layers (THEORY sections 0 and 1)."""
