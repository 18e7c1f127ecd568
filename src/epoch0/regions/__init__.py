"""Exact linear regions of piecewise linear networks on lines and planes (Hanin and Rolnick 2019; Raghu et al. 2017)."""

from epoch0.regions._certificate import Certificate
from epoch0.regions._line_count import on_curve, on_line
from epoch0.regions._line_partition import LinePartition, LinePartitions
from epoch0.regions._plane_count import count, on_plane
from epoch0.regions._plane_partition import PlanePartition
from epoch0.regions._windows import Window, square, through
from epoch0.regions.boundary_density import BoundaryDensity, boundary_density
from epoch0.regions.colours import pattern_colours
from epoch0.regions.distance import Distances, distance

__all__ = [
    "BoundaryDensity", "Certificate", "Distances", "LinePartition", "LinePartitions", "PlanePartition", "Window",
    "boundary_density", "count", "distance", "on_curve", "on_line", "on_plane", "pattern_colours",
    "square", "through",
]  # fmt: skip
