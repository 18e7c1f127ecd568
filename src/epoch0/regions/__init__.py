"""Exact linear regions of piecewise linear networks on lines and planes (Hanin and Rolnick 2019; Raghu et al. 2017).

What cannot be used is one InputError that names it: NaN, points and shapes that do not suit the model or each other, an
operation that is not piecewise linear, more than fits into the memory.
"""

from epoch0.regions.boundary_density import BoundaryDensity, boundary_density
from epoch0.regions.certificate import Certificate
from epoch0.regions.distance import Distances, distance
from epoch0.regions.lines import LinePartition, LinePartitions, on_curve, on_line
from epoch0.regions.planes.partition import PlanePartition, Window, count, on_plane, pattern_colours, square, through

__all__ = ["BoundaryDensity", "Certificate", "Distances", "LinePartition", "LinePartitions", "PlanePartition", "Window"]
__all__ += ["boundary_density", "count", "distance", "on_curve", "on_line", "on_plane", "pattern_colours", "square"]
__all__ += ["through"]
