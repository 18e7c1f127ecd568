"""Mean-field theory of wide networks: what a layer does to variances and correlations, and where chaos begins.

>>> from epoch0.theory import mean_field
>>> round(mean_field.chi("tanh", 1.700796 ** 0.5, 0.512079), 5)
1.0
"""

from epoch0.theory.mean_field.gaussian import gaussian_mean
from epoch0.theory.mean_field.maps import chi, variance_map

__all__ = ["chi", "gaussian_mean", "variance_map"]
