"""Windows: convex polygons in a plane of input space, and the ways to name one (Hanin-Rolnick section 3)."""

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from epoch0.arguments import Positive, checked
from epoch0.errors import InputError, check_dense
from epoch0.regions.network.trace import in_float64


@dataclass(frozen=True, eq=False)
class Window:
    """A convex polygon with coordinates in its plane: point = origin + coordinates @ axes."""

    corners: Tensor  #: ``(corners, *shape)``, counter-clockwise in the plane's coordinates
    origin: Tensor  #: ``(*shape)``; the mean of the corners, or zero where inputs have two coordinates
    axes: Tensor  #: two orthonormal directions, ``(2, *shape)``; for inputs of two coordinates their own axes
    polygon: Tensor  #: the corners in coordinates, (corners, 2)

    def points(self, coordinates: Tensor) -> Tensor:
        """Input points for coordinates of shape (points, 2)."""
        found: Tensor = self.origin.reshape(1, -1) + coordinates @ self.axes.reshape(2, -1)
        return found.view(-1, *self.origin.shape)

    def sample(self) -> Tensor:
        """A few points that set the scale of values in the window: corners, middles of edges, the centre."""
        middles = 0.5 * (self.polygon + self.polygon.roll(1, 0))
        return self.points(torch.cat([self.polygon, middles, self.polygon.mean(dim=0, keepdim=True)]))

    @property
    def area(self) -> float:
        """Area in the plane."""
        return float(polygon_area(self.polygon))


def polygon_area(polygon: Tensor) -> Tensor:
    """Signed area of a polygon, (corners, 2): positive if counter-clockwise."""
    x, y = (polygon - polygon[0]).T
    area: Tensor = 0.5 * (x @ y.roll(-1) - y @ x.roll(-1))
    return area


def window(corners: Any) -> Window:
    """Check the corners of a window, shape ``(corners, *shape)``, and give them coordinates."""
    if isinstance(corners, Tensor):
        check_dense("the window", corners)
    if not isinstance(corners, Tensor) or corners.dim() < 2 or len(corners) < 3:
        shape = tuple(corners.shape) if isinstance(corners, Tensor) else type(corners).__name__
        text = f"the window is {shape}; it must be a tensor of shape (corners, ...) with three corners or more"
        raise InputError(f"{text}, such as regions.square(centre, u, v, half) or regions.through(a, b, c).")
    corners = in_float64("the window", corners).cpu()
    flat = corners.reshape(len(corners), -1)
    if flat.shape[1] < 2:
        raise InputError("the inputs have one coordinate only, so there is no plane in them; use regions.on_line.")
    sides = flat.roll(-1, 0) - flat
    scale = float(sides.norm(dim=1).max())
    apart = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    if len(same := (apart <= 1e-12 * scale).triu(1).nonzero()):
        first, second = same[0].tolist()
        raise InputError(f"corners {first} and {second} of the window coincide; name every corner once.")
    origin, basis = flat.mean(dim=0), _axes(sides[0], flat - flat[0])
    if basis is None:
        raise InputError("the window has no area: its corners are on one line.")
    if flat.shape[1] == 2:
        origin, basis = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    polygon = (flat - origin) @ basis.T
    away = float((origin + polygon @ basis - flat).norm(dim=1).max())
    if away > 1e-5 * scale:  # corners may come in float32
        raise InputError(f"the window's corners are not in one plane: one is {away / scale:.1e} of its width away.")
    if float(polygon_area(polygon)) < 0:
        polygon, corners = polygon.flip(0), corners.flip(0)
    edge = polygon.roll(-1, 0) - polygon
    following = edge.roll(-1, 0)
    turn = edge[:, 0] * following[:, 1] - edge[:, 1] * following[:, 0]
    angles = torch.atan2(turn, (edge * following).sum(dim=1))
    if bool((turn < -1e-9 * scale * scale).any()) or float(angles.sum()) > 6.5:
        worst = int(turn.argmin())
        text = f"the window is not convex at corner {(worst + 1) % len(corners)}, or its corners are not in order"
        raise InputError(f"{text}; give the corners of a convex polygon one after another.")
    shape = corners.shape[1:]
    return Window(corners, origin.reshape(shape), basis.reshape(2, *shape), polygon)


def _axes(first: Tensor, others: Tensor) -> Tensor | None:
    """An orthonormal basis of the plane, beginning along the first side; None if all is on one line."""
    u = first / first.norm()
    rest = others - (others @ u)[:, None] * u
    rest = rest - (rest @ u)[:, None] * u
    lengths = rest.norm(dim=1)
    if float(lengths.max()) <= 1e-12 * float(others.norm(dim=1).max()):
        return None
    v = rest[int(lengths.argmax())]
    return torch.stack([u, v / v.norm()])


@checked
def square(centre: ArrayLike, u: ArrayLike, v: ArrayLike, half: Positive) -> Tensor:
    """The corners of a square window, shape ``(4, *shape)``, float64.

    >>> square(torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.ones(2, 2), 28.0).shape
    torch.Size([4, 2, 2])

    The centre has any shape, u, the direction of a side, and v the same; of v the part perpendicular to u is used, so
    they are not parallel. ``half`` is half the side's length.

    Raises:
        InputError: if u and v are parallel or zero, or half is not positive.
    """
    centre, u, v = (in_float64(name, x) for name, x in (("the centre", centre), ("u", u), ("v", v)))
    for name, value in (("u", u), ("v", v)):
        if value.shape != centre.shape:
            raise InputError(f"{name} has shape {tuple(value.shape)} and the centre {tuple(centre.shape)}.")
    directions = torch.stack([u, v]).reshape(2, -1)
    axes = _axes(directions[0], directions) if float(directions[0].norm()) > 0 else None
    if axes is None:
        raise InputError("u and v are parallel or zero; a square needs two different directions.")
    signs = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
    corners: Tensor = centre.reshape(1, -1) + half * signs @ axes
    return corners.reshape(4, *centre.shape)


@checked
def through(a: ArrayLike, b: ArrayLike, c: ArrayLike, *, margin: Positive = 1.0) -> Tensor:
    """The corners of the square through three points, centred where all three are equally far away.

    >>> through(images[0], images[1], images[2]).shape               # images of shape (100, 64)
    torch.Size([4, 64])

    The points have one shape and are not on one line; sides are along b - a, ``margin`` is half a side over the radius.

    Raises:
        InputError: if the points are on one line, or not of one shape.

    Source: Hanin and Rolnick 2019, Figure 5: planes through three examples, centred at their circumcentre.
    """
    a, b, c = (in_float64(f"point {name}", x) for name, x in (("a", a), ("b", b), ("c", c)))
    if not a.shape == b.shape == c.shape:
        raise InputError(f"the three points have shapes {tuple(a.shape)}, {tuple(b.shape)} and {tuple(c.shape)}.")
    p, q = (b - a).reshape(-1), (c - a).reshape(-1)
    pp, qq, pq = float(p @ p), float(q @ q), float(p @ q)
    gram = pp * qq - pq * pq
    if gram <= 1e-12 * pp * qq or pp == 0 or qq == 0:
        raise InputError("the three points are on one line, so no circle goes through them; take another third point.")
    s, t = qq * (pp - pq) / (2 * gram), pp * (qq - pq) / (2 * gram)
    away = s * p + t * q
    return square(a + away.reshape(a.shape), b - a, c - a, margin * float(away.norm()))
