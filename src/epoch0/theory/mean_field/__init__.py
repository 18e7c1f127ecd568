"""Mean-field theory of wide networks: the maps of variances and correlations by a layer, and the edge of chaos.

>>> from epoch0.theory import mean_field
>>> print(mean_field.edge_of_chaos("tanh", bias_std=0.2))
tanh: edge of chaos at weight_std=1.30415 (weight_std^2=1.7008), bias_std=0.2, q=0.512079

Arguments have one meaning in all functions: ``activation`` is a name such as "tanh", an Activation, or a torch
function; ``weight_std`` is sigma_w, the standard deviation of a kept weight times sqrt(fan_in), >= 0; ``bias_std`` is
sigma_b, that of a bias, >= 0; ``density`` is the fraction of the weights kept (alpha), in (0, 1]; ``q`` is the variance
of a pre-activation, >= 0, and ``c`` the correlation of two, in [-1, 1]. A function of arrays returns float64 of the
shape to which they broadcast. An InputError names what is unknown or out of its range.
"""

from epoch0.theory.mean_field.correlations import pair_mean
from epoch0.theory.mean_field.edge import EdgeCurve as EdgeCurve
from epoch0.theory.mean_field.edge import EdgeOfChaos, Phase, PhaseDiagram, edge_of_chaos, phase, phase_diagram
from epoch0.theory.mean_field.fixed_points import DepthScale, c_star, correlation_map, depth_scale, q_star
from epoch0.theory.mean_field.kernels import Kernel, kernel
from epoch0.theory.mean_field.moments import Propagation, chi, gaussian_mean, propagate, variance_map

__all__ = ["DepthScale", "EdgeCurve", "EdgeOfChaos", "Kernel", "Phase", "PhaseDiagram", "Propagation"]
__all__ += ["c_star", "chi", "correlation_map", "depth_scale", "edge_of_chaos"]
__all__ += ["gaussian_mean", "kernel", "pair_mean", "phase", "phase_diagram", "propagate", "q_star", "variance_map"]
