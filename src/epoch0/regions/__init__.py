"""Exact linear regions of piecewise linear networks on lines and planes (Hanin and Rolnick 2019; Raghu et al. 2017)."""

from epoch0.regions._certificate import Certificate
from epoch0.regions._line_count import on_curve, on_line
from epoch0.regions._line_partition import LinePartition, LinePartitions

__all__ = ["Certificate", "LinePartition", "LinePartitions", "on_curve", "on_line"]
