"""Predict what a network is at initialization, without building one: growth, gains, norms, linear regions, pruning.

>>> import epoch0 as e0
>>> e0.theory.growth.exact(e0.Gaussian(2.0).scaled(784**-0.5), 784)
1.4130857...
"""

from epoch0.theory import growth, mean_field, norms, pruning, regions

__all__ = ["growth", "mean_field", "norms", "pruning", "regions"]
