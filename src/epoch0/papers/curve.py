"""The curves of the figures about trajectories: between two images of a data set or two random points."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from epoch0.curves import Curve, GreatCircle, Line, SemicircularArcs
from epoch0.data import load
from epoch0.errors import InputError
from epoch0.seeds import generator

_POINTS = 10**6
"""Stream of a curve's seed, away from those of networks."""


@dataclass(frozen=True)
class CurveSpec:
    """A curve through two points of Euclidean norm 1.

    Attributes:
        ends: a data set, whose test images ``first`` and ``second`` are the points, or ``"random"`` for two directions
            drawn from ``seed``.
        shape: ``"line"``; ``"arcs"``, the line bent into semicircles in ``planes`` random planes; or ``"circle"``, the
            unit circle in the plane of the two points, about the origin.
        size: number of coordinates of a point.
        first: index of the first image.
        second: index of the second image.
        planes: number of semicircles.
        seed: names the random points and planes.
        pixels: the bytes of the two images in hexadecimal, see :meth:`with_pixels`.
    """

    ends: str
    shape: Literal["line", "arcs", "circle"] = "line"
    size: int = 0
    first: int = 0
    second: int = 0
    planes: int = 0
    seed: int = 0
    pixels: tuple[str, ...] = ()

    def with_pixels(self) -> "CurveSpec":
        """The same with its images inside: workers then need no data set, and a trial's key is that of its pixels.

        Raises:
            InputError: if the data set is not there, or has no such image.
        """
        if self.ends == "random":
            return self
        images = load(self.ends, "test").images
        for index in (self.first, self.second):
            if not 0 <= index < len(images):
                raise InputError(f"{self.ends} (test) has no image {index}; it has {len(images):,}, counted from 0.")
        return replace(self, pixels=tuple(images[index].tobytes().hex() for index in (self.first, self.second)))

    @property
    def data(self) -> str | None:
        """Name of the data set that the points come from, if any."""
        return None if self.ends == "random" else self.ends

    def points(self) -> tuple[Tensor, Tensor]:
        """The two points, float32, shape (size,) each; for a circle the second is made orthogonal to the first.

        Raises:
            InputError: if the images are missing or their size differs.
        """
        if self.ends == "random":
            ends = torch.randn(2, self.size, generator=generator(self.seed, _POINTS), dtype=torch.float64)
        else:
            pixels = self.pixels or self.with_pixels().pixels
            values = [np.frombuffer(bytes.fromhex(image), dtype=np.uint8) for image in pixels]
            if [len(one) for one in values] != [self.size, self.size]:
                raise InputError(
                    f"the curve needs two images of {self.size} pixels from {self.ends}; it has {len(values)} of "
                    f"{', '.join(str(len(one)) for one in values) or 'no'} pixels."
                )
            ends = torch.from_numpy(np.stack(values).astype(np.float64))
        start, end = ends / ends.norm(dim=1, keepdim=True)
        if self.shape == "circle":
            end = end - (end @ start) * start
            end = end / end.norm()
        return start.float(), end.float()

    def curve(self) -> Curve:
        """The curve itself.

        Raises:
            InputError: as for :meth:`points`.
        """
        start, end = self.points()
        if self.shape == "arcs":
            return SemicircularArcs(start, end, planes=self.planes, seed=self.seed)
        return GreatCircle(start, end) if self.shape == "circle" else Line(start, end)
