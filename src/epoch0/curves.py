"""Curves x(t), t in [0, 1], with exact tangents: trajectories of Raghu (section 2.3) and Price-Tanner (section 4)."""

import math
from typing import Annotated, Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from epoch0.arguments import Seed, Size, checked, methods_checked, refuse
from epoch0.errors import InputError, reworded
from epoch0.seeds import generator

Dtype = Annotated[torch.dtype, (torch.float32, torch.float64)]


@checked
class Curve:
    """A curve in input space; subclasses give the point, of ``shape``, and the tangent dx/dt, batched over t."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __init_subclass__(cls) -> None:
        methods_checked(cls)

    def point(self, t: ArrayLike) -> Tensor:
        """x(t): t of shape (m,) in [0, 1] gives shape (m, \\*shape)."""
        return self._on(t, self._points)

    def tangent(self, t: ArrayLike) -> Tensor:
        """dx/dt at t: t of shape (m,) in [0, 1] gives shape (m, \\*shape)."""
        return self._on(t, self._tangents)

    def to(self, dtype: Dtype) -> "Curve":
        """The same curve in another floating dtype."""
        raise InputError(f"{type(self).__name__} does not convert; define to(dtype).")

    def _on(self, t: Any, rule: Any) -> Tensor:
        t = _tensor("t", t, torch.float64).reshape(-1)
        if not bool(((t >= 0) & (t <= 1)).all()):
            low, high = float(t.min()), float(t.max())
            raise InputError(f"t runs from {low:g} to {high:g}; a curve is defined for t in [0, 1].")
        values: Tensor = rule(t)
        return values.reshape(len(t), *self.shape)

    def _points(self, t: Tensor) -> Tensor:
        raise InputError(f"{type(self).__name__} has no points.")

    def _tangents(self, t: Tensor) -> Tensor:
        raise InputError(f"{type(self).__name__} has no tangents.")


def _tensor(name: str, value: Any, dtype: torch.dtype | None = None) -> Tensor:
    with reworded(lambda _: refuse(name, value, "numbers that torch.as_tensor takes")):
        return torch.as_tensor(value, dtype=dtype)


def _as_point(name: str, value: Any) -> Tensor:
    """A detached floating copy on the CPU; integers and lists become float64's default, float32."""
    point = _tensor(name, value).detach().cpu()
    point = point.to(point.dtype if point.dtype == torch.float64 else torch.float32)
    if point.numel() == 0:
        raise InputError(f"{name} is empty (shape {tuple(point.shape)}); a point needs at least one coordinate.")
    return point.clone()


def _piece(t: Tensor, pieces: int) -> tuple[Tensor, Tensor]:
    """Which of the equal pieces each t is on, and how far along it, from 0 to 1."""
    index: Tensor = (t * pieces).floor().clamp_(max=pieces - 1)
    return index.to(torch.int64), t * pieces - index


class _TwoEnds(Curve):
    """A curve fixed by two different points of one shape."""

    @checked
    def __init__(self, x0: ArrayLike, x1: ArrayLike) -> None:
        start, end = _as_point("x0", x0), _as_point("x1", x1)
        name = type(self).__name__
        if start.shape != end.shape:
            raise InputError(f"{name}: x0 has shape {tuple(start.shape)} and x1 {tuple(end.shape)}; they must agree.")
        if bool((start == end).all()):
            raise InputError(f"{name}: x0 and x1 are the same point; a curve needs two different ones.")
        self.dtype = torch.promote_types(start.dtype, end.dtype)
        self.x0: Tensor = torch.atleast_1d(start.to(self.dtype))
        self.x1: Tensor = torch.atleast_1d(end.to(self.dtype))
        self.shape = tuple(self.x0.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"

    def to(self, dtype: Dtype) -> "Curve":
        return type(self)(self.x0.to(dtype), self.x1.to(dtype))

    def _mix(self, first: Tensor, second: Tensor) -> Tensor:
        """first(t) x0 + second(t) x1; coefficients in float64 so that a fine grid of t stays fine."""
        flat0, flat1 = self.x0.reshape(1, -1), self.x1.reshape(1, -1)
        return first.to(self.dtype)[:, None] * flat0 + second.to(self.dtype)[:, None] * flat1


class Line(_TwoEnds):
    """The straight line from x0 to x1: x(t) = (1 - t) x0 + t x1.

    >>> line = Line(torch.zeros(3), torch.ones(3))
    >>> line.point([0.0, 0.5]).shape, line.tangent([0.5]).tolist()
    (torch.Size([2, 3]), [[1.0, 1.0, 1.0]])

    Ends of any one shape; an InputError if theirs differ, a value is NaN or infinite, or they coincide.

    Source: Price-Tanner section 4.
    """

    def _points(self, t: Tensor) -> Tensor:
        return self._mix(1.0 - t, t)

    def _tangents(self, t: Tensor) -> Tensor:
        return (self.x1 - self.x0).reshape(1, -1).expand(len(t), -1)


class _Trigonometric(_TwoEnds):
    """cos(w t) x0 + sin(w t) x1."""

    _speed: float

    def _points(self, t: Tensor) -> Tensor:
        return self._mix(torch.cos(self._speed * t), torch.sin(self._speed * t))

    def _tangents(self, t: Tensor) -> Tensor:
        return self._mix(-self._speed * torch.sin(self._speed * t), self._speed * torch.cos(self._speed * t))


class Arc(_Trigonometric):
    """The arc from x0 to x1 about the origin: x(t) = cos(pi t / 2) x0 + sin(pi t / 2) x1.

    A quarter of a circle when x0 and x1 are orthogonal and equally long, a piece of an ellipse otherwise.

    >>> arc = Arc(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    >>> round(arc.point([0.5]).norm().item(), 6)                # on the unit circle
    1.0

    Source: Raghu section 2.3.
    """

    _speed = math.pi / 2


class GreatCircle(_Trigonometric):
    """The closed curve x(t) = cos(2 pi t) x0 + sin(2 pi t) x1, through x0, x1, -x0 and -x1.

    >>> circle = GreatCircle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    >>> circle.tangent([0.0, 0.3]).shape
    torch.Size([2, 2])

    Source: Raghu section 2.4; Price-Tanner Figure 1.
    """

    _speed = 2 * math.pi


@checked
class SemicircularArcs(_TwoEnds):
    """The line from x0 to x1 bent into semicircles, one after another, each in a random plane through the line.

    The chord is cut into ``planes`` equal pieces; each becomes half a circle that bulges in a random direction
    perpendicular to the chord. The length is pi/2 times that of the chord, whatever the number of planes.

    >>> curve = SemicircularArcs(torch.zeros(500), torch.ones(500), planes=100, seed=0)
    >>> round((curve.tangent([0.123]).norm() / 500**0.5).item(), 4)             # constant speed
    1.5708

    Points have two or more coordinates; ``seed`` names the random planes. InputError as for :class:`Line`.

    Source: Price-Tanner appendix C.1, whose construction is described in words only.
    """

    def __init__(self, x0: ArrayLike, x1: ArrayLike, planes: Size = 100, seed: Seed = 0) -> None:
        super().__init__(x0, x1)
        if self.x0.numel() < 2:
            raise InputError("SemicircularArcs needs points with at least two coordinates; these have one.")
        self.planes, self.seed = planes, seed
        chord = self._chord = (self.x1 - self.x0).reshape(-1).to(torch.float64)
        along = chord / chord.norm()
        normals = torch.randn(planes, chord.numel(), generator=generator(seed, planes), dtype=torch.float64)
        for _ in range(2):  # the second projection removes what rounding left of the first
            normals = normals - (normals @ along)[:, None] * along
        self._normals = normals / normals.norm(dim=1, keepdim=True)
        self._start = self.x0.reshape(-1).to(torch.float64)
        self._radius = float(chord.norm()) / (2 * planes)

    def to(self, dtype: Dtype) -> "SemicircularArcs":
        return SemicircularArcs(self.x0.to(dtype), self.x1.to(dtype), planes=self.planes, seed=self.seed)

    def _points(self, t: Tensor) -> Tensor:
        index, share = _piece(t, self.planes)
        angle = math.pi * share
        along, bulge = (index + 0.5 * (1.0 - torch.cos(angle))) / self.planes, self._radius * torch.sin(angle)
        exact: Tensor = self._start + along[:, None] * self._chord + bulge[:, None] * self._normals[index]
        return exact.to(self.dtype)

    def _tangents(self, t: Tensor) -> Tensor:
        index, share = _piece(t, self.planes)
        angle = math.pi * share
        along, bulge = 0.5 * math.pi * torch.sin(angle), self._radius * math.pi * self.planes * torch.cos(angle)
        exact: Tensor = along[:, None] * self._chord + bulge[:, None] * self._normals[index]
        return exact.to(self.dtype)


@checked
class Polyline(Curve):
    """Straight pieces through the given points, each piece taking an equal share of t.

    >>> path = Polyline(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]]))
    >>> path.point([0.75]).tolist(), path.tangent([0.75]).tolist()
    ([[1.0, 1.0]], [[0.0, 4.0]])

    ``points`` has the shape (n, \\*shape); an InputError if n < 2, neighbours coincide, or a value is not finite.
    """

    def __init__(self, points: ArrayLike) -> None:
        points = _as_point("points", points)
        if points.dim() < 2 or len(points) < 2:
            raise InputError(f"Polyline got points of shape {tuple(points.shape)}; it needs (n, ...) with n >= 2.")
        self.points = points
        self.dtype, self.shape = points.dtype, tuple(points.shape[1:])
        self._flat = points.reshape(len(points), -1)
        still = (self._flat[1:] == self._flat[:-1]).all(dim=1)
        if bool(still.any()):
            raise InputError(f"Polyline: points {int(still.nonzero()[0])} and the next one coincide; remove one.")

    def __repr__(self) -> str:
        return f"Polyline({len(self.points)} points, shape={self.shape}, dtype={self.dtype})"

    def to(self, dtype: Dtype) -> "Polyline":
        return Polyline(self.points.to(dtype))

    def _points(self, t: Tensor) -> Tensor:
        index, share = _piece(t, len(self.points) - 1)
        return torch.lerp(self._flat[index], self._flat[index + 1], share.to(self.dtype)[:, None])

    def _tangents(self, t: Tensor) -> Tensor:
        index, _ = _piece(t, len(self.points) - 1)
        rise: Tensor = self._flat[index + 1] - self._flat[index]
        return rise * (len(self.points) - 1)
