"""How much boundary a random network has, by Monte Carlo of an exact formula (Hanin and Rolnick 2019, Theorem 3)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.arguments import Count, Seed, Size, checked
from epoch0.distributions import Gaussian, Law, Uniform
from epoch0.errors import InputError
from epoch0.networks import Ensemble
from epoch0.regions.lines import segment_ends
from epoch0.regions.network.operations import functions_of, refusal
from epoch0.regions.network.steps import Fold
from epoch0.regions.planes.partition import Window, as_window
from epoch0.results import Result
from epoch0.seeds import generator

_NUMBERS = 1 << 21  # of one layer, carried at a time
_REACH = 9.0  # standard deviations: a Gaussian bias is farther out once in 10^18 draws


@dataclass(frozen=True, eq=False)
class BoundaryDensity(Result):
    """Mean density of the boundary between regions of random networks, on a line or in a window."""

    #: number of break points a unit of length on a line; in a window for k = 1 length of boundary, for k = 2 number of
    #: vertices, a unit of area. Of each network and layer, (networks, layers); a vertex stands under the later layer.
    values: np.ndarray
    measure: float  #: length of the line or area of the window
    k: int  #: neurons that fold at one point, as asked for
    kind: str  #: of the regions, as asked for
    dimension: int  #: 1 for a line, 2 for a window

    @property
    def mean(self) -> float:
        """Over the networks, all layers together."""
        return float(self.values.sum(axis=1).mean())

    @property
    def standard_error(self) -> float:
        """Of the mean: the networks are independent; NaN for one network."""
        count = len(self.values)
        return float(self.values.sum(axis=1).std(ddof=1) / count**0.5) if count > 1 else math.nan

    @property
    def per_layer(self) -> np.ndarray:
        """Mean over the networks, (layers,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def expected(self) -> float:
        """Mean number of break points or vertices, or length of the boundary, on the whole line or window."""
        return self.mean * self.measure

    @property
    def expected_error(self) -> float:
        """Standard error of :attr:`expected`."""
        return self.standard_error * self.measure

    def rows(self) -> list[dict[str, Any]]:
        places = np.ndenumerate(self.values)
        return [{"network": network, "layer": layer, "density": value} for (network, layer), value in places]

    def __str__(self) -> str:
        unit = "break points" if self.dimension == 1 else ("length of boundaries" if self.k == 1 else "vertices")
        where = "line" if self.dimension == 1 else "window"
        head = f"{unit} between {self.kind} regions a unit of {'length' if self.dimension == 1 else 'area'}"
        mean = f"{self.mean:.6g} (standard error {self.standard_error:.1g}, {len(self.values)} networks)"
        whole = f"  on the whole {where}: {self.expected:.6g} (standard error {self.expected_error:.1g})"
        layers = (f"  layer {i}: {value:.6g}" for i, value in enumerate(self.per_layer))
        return "\n".join([f"{head}: {mean}", whole, *layers])


@checked
def boundary_density(
    law: Any,
    where: Any,
    *,
    k: Count = 1,
    points: Size = 64,
    seed: Seed = 0,
    kind: Annotated[str, ("linear", "activation")] = "linear",
) -> BoundaryDensity:
    """Expected boundary between the regions of a random network, without finding a single region.

    >>> nets = networks.ensemble(20, [64, 32, 32, 10], biases=Gaussian(1e-3), seed=0)
    >>> found = boundary_density(nets, (x0, x1))                        # a line: x0, x1 of shape (64,)
    >>> round(found.expected, 1), round(found.expected_error, 1)        # break points between x0 and x1
    (19.3, 2.3)
    >>> window = regions.square(x0, x[1], x[2], 1.0)                    # shape (4, 64)
    >>> round(boundary_density(nets, window, k=2, kind="activation").mean, 2)              # vertices a unit of area
    0.87

    A neuron with pre-activation z(x) before its bias folds at x if the bias is ``face - z(x)``. So k neurons fold in a
    small part of a line or window around x with a chance of rho * J times its size: rho is the joint density of their
    biases there, J the k-dimensional volume spanned by their gradients. The mean is taken over networks and points; the
    biases of the neurons in question are not drawn but put where the neurons fold, for what follows too.

    Args:
        law: the random networks: an ensemble of dense ones whose activation folds, with Gaussian or uniform biases.
        where: the two ends of a segment (a tuple, a tensor or a ``Line``), or a window as for
            :func:`epoch0.regions.on_plane`.
        k: 1 for the boundary itself (points on a line, length in a window), 2 for its vertices in a window.
        points: points of each network, spread evenly with one random place each.
        seed: of the points.
        kind: "linear" for boundaries of linear regions as in the theorem: the neuron needs an open way to the output at
            x; "activation" for those of activation regions, and for vertices.

    Raises:
        InputError: if the biases have no density, the activation does not fold, or an argument does not suit.

    Source: Hanin and Rolnick 2019, Theorems 3 and 6.
    """
    if not isinstance(law, Ensemble):
        raise InputError(f"law is a {type(law).__name__}; give networks.ensemble(200, [784, 64, 64, 10]), say.")
    spec = law.spec
    directions, measure, draw = _place(where, spec.sizes[0])
    if k not in (1, 2) or k > len(directions):
        raise InputError(f"k={k!r}; k is {'1 on a line' if len(directions) == 1 else '1 or 2 in a window'}.")
    if k == 2 and kind == "linear":
        raise InputError("vertices (k=2) are those of activation regions; pass kind='activation', or k=1.")
    if (rule := spec.activation).slopes is None:
        raise refusal(rule.name, "the networks' activation")
    if not rule.breaks:
        raise InputError(f"the activation {rule.name} folds nowhere: such networks have one region.")
    fold, biases = Fold(rule.name, (0,), 1, rule.breaks, *functions_of(rule)), _density(spec.biases)
    hidden = spec.depth - 1 if spec.linear_output else spec.depth
    found = np.zeros((len(law), hidden))
    with torch.no_grad():
        for number, index in enumerate(law.indices):
            linear = [layer for layer in law[number] if isinstance(layer, nn.Linear)]
            layers = [(layer.weight.double(), layer.bias.double()) for layer in linear]
            x = draw(points, generator(seed, index, 1))
            found[number] = _FacesMet(layers, hidden, fold, *biases, k, kind == "linear").mean(x, directions).numpy()
    return BoundaryDensity(found, measure, k, kind, len(directions))


Draw = Callable[[int, torch.Generator], Tensor]


def _place(where: Any, inputs: int) -> tuple[Tensor, float, Draw]:
    """Of a line or a window its orthonormal directions (directions, dim), its size, and how to draw points in it."""
    if (ends := segment_ends(where)) is None:
        place = _window(where if isinstance(where, Window) else as_window(where))
    else:
        x0, out = ends[0].cpu(), (ends[1] - ends[0]).cpu()
        if (length := float(out.norm())) == 0:
            raise InputError("x0 and x1 are the same point; a line needs two different ones.")
        place = out[None] / length, length, lambda count, source: x0 + _spread(count, source)[:, None] * out
    if (shape := tuple(place[0].shape[1:])) != (inputs,):
        raise InputError(f"points of shape {shape} do not suit networks of {inputs} inputs.")
    return place


def _window(window: Window) -> tuple[Tensor, float, Draw]:
    corners = window.polygon
    fans = torch.stack([corners[:1].expand(len(corners) - 2, 2), corners[1:-1], corners[2:]], 1)
    first, second = fans[:, 1] - fans[:, 0], fans[:, 2] - fans[:, 0]
    areas = 0.5 * (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    shares, ends = areas / areas.sum(), areas.cumsum(0) / areas.sum()

    def draw(points: int, source: torch.Generator) -> Tensor:
        spread = _spread(points, source)
        which = torch.searchsorted(ends, spread).clamp(max=len(ends) - 1)
        out = ((spread - (ends - shares)[which]) / shares[which]).clamp(0, 1).sqrt()[:, None]
        across = torch.rand(points, 1, generator=source, dtype=torch.float64)
        a, b, c = fans[which].unbind(1)
        return window.points(a + out * ((1 - across) * (b - a) + across * (c - a)))

    return window.axes, window.area, draw


def _spread(points: int, source: torch.Generator) -> Tensor:
    """One uniform number in each of ``points`` equal parts of [0, 1]."""
    return (torch.arange(points) + torch.rand(points, generator=source, dtype=torch.float64)) / points


def _density(law: Law) -> tuple[Callable[[Tensor], Tensor], float]:
    if isinstance(law, Gaussian) and law.std > 0:
        factor, std = 1 / (law.std * math.sqrt(2 * math.pi)), law.std
        return lambda b: factor * torch.exp(-0.5 * (b / std).square()), _REACH * std
    if isinstance(law, Uniform) and law.bound > 0:
        bound = law.bound
        return lambda b: torch.full_like(b, 0.5 / bound), bound
    raise InputError(f"biases={law!r} have no density, which the formula needs; use Gaussian(1e-3) or a Uniform law.")


class _Rows(NamedTuple):
    """States of the network in front of one layer, or behind its weights."""

    weight: Tensor  # what each row counts, (rows,)
    value: Tensor  # outputs of the layer before, or what its weights make of them, (rows, width)
    tangent: Tensor  # their derivatives, (directions, rows, width)
    gradient: Tensor | None = None  # of the neuron on a face, (directions, rows), where one more is to come


@dataclass
class _FacesMet:
    """Sums over sets of k neurons of the density of their biases on their faces times the volume of their gradients. A
    neuron is put on one of its faces by the bias that it would need there: its output becomes the face's, and what
    comes after is computed anew, for all rows (point, neuron, face) of a layer at once. Rows whose bias is farther out
    than its law reaches are left out; with open ways only neurons count that lead to the output.
    """

    layers: list[tuple[Tensor, Tensor]]  # (weight, bias), float64
    hidden: int  # layers that fold
    fold: Fold
    density: Callable[[Tensor], Tensor]  # of a bias, elementwise
    reach: float  # how far from zero a bias comes
    k: int
    open_ways: bool

    def __post_init__(self) -> None:
        self.faces = torch.tensor(self.fold.faces, dtype=torch.float64)
        self.heights = self.fold.run(self.faces)
        self.total = torch.zeros(self.hidden, dtype=torch.float64)

    def mean(self, points: Tensor, directions: Tensor) -> Tensor:
        """Averaged over the points; (layers,), a set standing under the last layer it has a neuron of."""
        tangent = directions[:, None].expand(-1, len(points), -1)
        self._down(_Rows(torch.full((len(points),), 1.0 / len(points)).double(), points, tangent), 0)
        return self.total

    def _down(self, rows: _Rows, layer: int) -> None:
        """Carry rows from a layer to the output, putting neurons on faces on the way."""
        for number in range(layer, self.hidden):
            if not len(rows.weight):
                return
            weight, bias = self.layers[number]
            pushed = rows._replace(value=rows.value @ weight.T, tangent=rows.tangent @ weight.T)
            needed = self.faces - pushed.value[..., None]
            # of the bias that puts each neuron on each face, (rows, width, faces)
            self._meet(pushed, torch.where(needed.abs() <= self.reach, self.density(needed), 0.0), number)
            z = pushed.value + bias
            rows = pushed._replace(value=self.fold.run(z), tangent=pushed.tangent * self.fold.slope(z))

    def _meet(self, pushed: _Rows, density: Tensor, layer: int) -> None:
        """Put each neuron of this layer on its faces: the only one of a set, the second, or the first of two."""
        tangent, gradient = pushed.tangent, pushed.gradient
        volume = tangent.norm(dim=0) if gradient is None else _cross(gradient[..., None], tangent)
        at_once = max(1, _NUMBERS // (self.k * pushed.value.shape[1]))
        for row, neuron, face in (density > 0).nonzero().T.split(at_once, 1):
            weight = pushed.weight[row] * density[row, neuron, face]
            if self.k == 2 and gradient is None:  # the second is one of a layer behind, or a later one of this layer
                placed = self._on_face(pushed, layer, weight, row, neuron, face)
                self._down(placed, layer + 1)
                assert placed.gradient is not None
                later = density[row].sum(2) * (torch.arange(tangent.shape[2]) > neuron[:, None])
                weight, of_two = weight[:, None] * later, _cross(placed.gradient[..., None], tangent[:, row])
                self.total[layer] += (weight * of_two).sum()
                continue
            weight = weight * volume[row, neuron]
            if self.open_ways:
                placed = self._on_face(pushed, layer, weight, row, neuron, face)
                weight = weight[self._open(placed.value, neuron, layer)]
            self.total[layer] += weight.sum()

    def _on_face(self, pushed: _Rows, layer: int, weight: Tensor, row: Tensor, neuron: Tensor, face: Tensor) -> _Rows:
        """Rows behind this layer, each with a neuron of it on a face. The derivatives of a neuron on its face are set
        to zero for what comes after: any multiple of the gradient of one neuron may be taken from that of another
        without changing the area they span.
        """
        every, z = torch.arange(len(row)), pushed.value[row] + self.layers[layer][1]
        before = pushed.tangent[:, row]
        value, tangent = self.fold.run(z), before * self.fold.slope(z)
        value[every, neuron], tangent[:, every, neuron] = self.heights[face], 0.0
        return _Rows(weight, value, tangent, before[:, every, neuron])

    def _open(self, value: Tensor, neuron: Tensor, layer: int) -> Tensor:
        """Whether a neuron of this layer, one a row of its outputs, has an open way to the output."""
        reached = torch.zeros_like(value, dtype=torch.bool)
        reached[torch.arange(len(neuron)), neuron] = True
        for weight, bias in self.layers[layer + 1 : self.hidden]:
            z = value @ weight.T + bias
            value = self.fold.run(z)
            reached = ((reached.double() @ (weight != 0).double().T) > 0) & (self.fold.slope(z) != 0)
        for weight, _ in self.layers[self.hidden :]:
            reached = reached & (weight != 0).any(dim=0)
        return reached.any(dim=1)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Area spanned by two gradients, (2, ...) each."""
    return (a[0] * b[1] - a[1] * b[0]).abs()
