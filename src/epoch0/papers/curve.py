"""The curves of the figures about trajectories, between two images or two random points, and how growth is averaged."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from epoch0.curves import Curve, GreatCircle, Line, SemicircularArcs
from epoch0.data import load
from epoch0.errors import InputError
from epoch0.papers.sweep import Array
from epoch0.seeds import generator

_POINTS = 10**6
"""Stream of a curve's seed, away from those of networks."""


@dataclass(frozen=True)
class CurveSpec:
    """A curve through two points of Euclidean norm 1 with ``size`` coordinates.

    The points are the test images ``first`` and ``second`` of the data set ``ends``, or two directions drawn from
    ``seed`` if it is ``"random"``. The shape is a ``"line"``; ``"arcs"``, the line bent into semicircles in ``planes``
    random planes; or a ``"circle"``, the unit circle in the plane of the two points, about the origin.
    """

    ends: str
    shape: Literal["line", "arcs", "circle"] = "line"
    size: int = 0
    first: int = 0
    second: int = 0
    planes: int = 0
    seed: int = 0

    @property
    def data(self) -> str | None:
        """Name of the data set that the points come from, if any."""
        return None if self.ends == "random" else self.ends

    def points(self) -> tuple[Tensor, Tensor]:
        """The two points, float32, shape (size,) each; for a circle the second is made orthogonal to the first.

        Raises:
            InputError: if the data set is not there, has no such images, or their size differs.
        """
        if self.ends == "random":
            ends = torch.randn(2, self.size, generator=generator(self.seed, _POINTS), dtype=torch.float64)
        else:
            images = load(self.ends, "test").images
            for index in (self.first, self.second):
                if not 0 <= index < len(images):
                    raise InputError(f"{self.ends} (test) has no image {index}; there are {len(images):,}, from 0 on.")
            chosen = images[[self.first, self.second]].reshape(2, -1)
            if chosen.shape[1] != self.size:
                raise InputError(f"the curve has {self.size} coordinates; {self.ends} has {chosen.shape[1]} pixels.")
            ends = torch.from_numpy(chosen.astype(np.float64))
        start, end = ends / ends.norm(dim=1, keepdim=True)
        if self.shape == "circle":
            end = end - (end @ start) * start
            end = end / end.norm()
        return start.float(), end.float()

    def curve(self) -> Curve:
        """The curve itself."""
        start, end = self.points()
        if self.shape == "arcs":
            return SemicircularArcs(start, end, planes=self.planes, seed=self.seed)
        return GreatCircle(start, end) if self.shape == "circle" else Line(start, end)


def mean_growth(growth: Array) -> tuple[float, float, int]:
    """Mean over all layers of all networks, its standard error over networks, and the networks that count.

    A layer that nothing reaches has no growth factor. The others count alike: a mean of each network's own mean would
    give the layers before a death more weight, among them the one that killed, and understate.

    Args:
        growth: shape (networks, layers), NaN where nothing reached the layer.
    """
    alive = ~np.isnan(growth)
    kept = alive.any(axis=1)
    total, count = np.where(alive, growth, 0.0)[kept].sum(axis=1), alive[kept].sum(axis=1)
    networks = len(total)
    mean = total.sum() / count.sum()
    if networks < 2:
        return float(mean), math.nan, networks
    spread = math.sqrt(float(((total - mean * count) ** 2).sum()) / (networks - 1))  # of a ratio of two sums
    return float(mean), spread / float(count.mean()) / math.sqrt(networks), networks
