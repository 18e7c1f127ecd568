"""How much boundary a random network has, by Monte Carlo of an exact formula (Hanin and Rolnick 2019, Theorem 3)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Line
from epoch0.distributions import Gaussian, Law, Uniform
from epoch0.errors import InputError, check_finite
from epoch0.networks import Ensemble
from epoch0.networks.dense import DenseSpec
from epoch0.networks.nonlinearities import module_of
from epoch0.regions.faces_met import Dense, FacesMet
from epoch0.regions.network.steps import Fold
from epoch0.regions.network.trace import trace
from epoch0.regions.planes.windows import Window
from epoch0.regions.planes.windows import window as checked
from epoch0.seeds import generator

if TYPE_CHECKING:
    import pandas

_REACH = 9.0  # standard deviations: a Gaussian bias is farther out once in 10^18 draws


@dataclass(frozen=True, eq=False)
class BoundaryDensity:
    """Mean density of the boundary between regions of random networks, on a line or in a window.

    Attributes:
        values: of each network and layer, (networks, layers): number of break points a unit of length on a line; in a
            window for k = 1 length of boundary, for k = 2 number of vertices, a unit of area. A vertex stands under
            the later of its two layers.
        measure: length of the line or area of the window.
        k: neurons that fold at one point.
        kind: "linear" or "activation", as asked for.
        dimension: 1 on a line, 2 in a window.
    """

    values: np.ndarray
    measure: float
    k: int
    kind: str
    dimension: int

    @property
    def mean(self) -> float:
        """Mean density over the networks, all layers together."""
        return float(self.values.sum(axis=1).mean())

    @property
    def standard_error(self) -> float:
        """Of the mean: the networks are independent; NaN for one network."""
        if len(self.values) < 2:
            return float("nan")
        return float(self.values.sum(axis=1).std(ddof=1) / len(self.values) ** 0.5)

    @property
    def per_layer(self) -> np.ndarray:
        """Mean density of each layer, (layers,)."""
        means: np.ndarray = self.values.mean(axis=0)
        return means

    @property
    def expected(self) -> float:
        """Mean number of break points or vertices, or length of the boundary, on the whole line or window."""
        return self.mean * self.measure

    @property
    def expected_error(self) -> float:
        """Standard error of ``expected``."""
        return self.standard_error * self.measure

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a network and layer: its density."""
        import pandas

        networks, layers = self.values.shape
        return pandas.DataFrame({
            "network": np.repeat(np.arange(networks), layers), "layer": np.tile(np.arange(layers), networks),
            "density": self.values.ravel(),
        })  # fmt: skip

    def __str__(self) -> str:
        what = "break points" if self.dimension == 1 else ("length of boundaries" if self.k == 1 else "vertices")
        where = "line" if self.dimension == 1 else "window"
        rows = [
            f"{what} between {self.kind} regions a unit of {'length' if self.dimension == 1 else 'area'}: "
            f"{self.mean:.6g} (standard error {self.standard_error:.1g}, {len(self.values)} networks)",
            f"  on the whole {where}: {self.expected:.6g} (standard error {self.expected_error:.1g})",
        ]
        return "\n".join([*rows, *(f"  layer {i}: {value:.6g}" for i, value in enumerate(self.per_layer))])


def boundary_density(
    law: Any, where: Any, *, k: int = 1, samples: int | None = None, points: int = 64, seed: int = 0,
    kind: str = "linear",
) -> BoundaryDensity:  # fmt: skip
    """Expected boundary between the regions of a random network, without finding a single region.

    >>> nets = networks.ensemble(20, [64, 32, 32, 10], biases=Gaussian(1e-3), seed=0)
    >>> found = boundary_density(nets, (x0, x1))                        # a line: x0, x1 of shape (64,)
    >>> round(found.expected, 1), round(found.expected_error, 1)        # break points between x0 and x1
    (19.3, 2.3)
    >>> window = regions.square(x0, x[1], x[2], 1.0)                    # shape (4, 64)
    >>> round(boundary_density(nets, window, k=2).mean, 2)              # vertices a unit of area
    0.87

    A neuron with pre-activation z(x) before its bias folds at x if the bias is ``face - z(x)``. So k neurons fold in a
    small part of a line or window around x with a chance of rho * J times its size: rho is the joint density of their
    biases there, J the k-dimensional volume spanned by their gradients. The mean is taken over networks and points; the
    biases of the neurons in question are not drawn but put where the neurons fold, and what comes behind them is
    computed with that.

    Args:
        law: the random networks: an ensemble of dense networks with Gaussian or uniform biases.
        where: the two ends of a segment (a tuple, a tensor of two points or a ``Line``), or a window of three corners
            or more, as for :func:`epoch0.regions.on_plane`.
        k: 1 for the boundary itself (points on a line, length in a window), 2 for its vertices in a window.
        samples: how many networks; None for those of the ensemble itself, on which exact counts can be made to compare.
        points: points of each network, spread evenly with one random place each.
        seed: names the networks if ``samples`` is given, and the points.
        kind: "linear" for boundaries of linear regions as in the theorem: every neuron of the set needs an open way to
            the output at x (one that is on its face is not open); "activation" for those of activation regions.

    Returns:
        BoundaryDensity.

    Raises:
        InputError: if the biases have no density or the activation does not fold, if k, samples or points make no
            sense, or the line or window does not suit the networks.

    Source: Hanin and Rolnick 2019, Theorems 3 and 6.
    """
    if not isinstance(law, Ensemble):
        raise InputError(
            f"law is a {type(law).__name__}; random networks are needed: networks.ensemble(200, [784, 64, 64, 10], "
            "biases=Gaussian(1e-3))."
        )
    if kind not in ("linear", "activation"):
        raise InputError(f"kind={kind!r}; boundaries are those of 'linear' or of 'activation' regions.")
    for name, value in (("samples", samples), ("points", points)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{name}={value!r}: an integer >= 1 is needed.")
    spec = law.spec
    place = _place(where, spec.sizes[0])
    if isinstance(k, bool) or k not in (1, 2) or k > len(place.directions):
        known = "1 on a line" if len(place.directions) == 1 else "1 or 2 in a window"
        raise InputError(f"k={k!r}; k is {known}.")
    fold, density, reach = _fold(spec), *_density(spec.biases)
    nets = law if samples is None else Ensemble(spec, seed, range(samples))
    hidden = spec.depth - 1 if spec.linear_output else spec.depth
    found = np.zeros((len(nets), hidden))
    with torch.no_grad():
        for number, index in enumerate(nets.indices):
            linear = [layer for layer in nets[number] if isinstance(layer, nn.Linear)]
            layers = [(layer.weight.double(), layer.bias.double()) for layer in linear]
            x = place.draw(points, generator(seed, index, 1))
            sums = FacesMet(Dense(layers, hidden, fold, density, reach), k, open_ways=kind == "linear")
            found[number] = sums.mean(x, place.directions).numpy()
    return BoundaryDensity(found, place.measure, k, kind, len(place.directions))


@dataclass(frozen=True)
class _Place:
    """A line or a window: its orthonormal directions (directions, dim), its size, and how to draw points in it."""

    directions: Tensor
    measure: float
    draw: Callable[[int, torch.Generator], Tensor]


def _place(where: Any, inputs: int) -> _Place:
    if isinstance(where, Line):
        where = (where.x0, where.x1)
    if isinstance(where, Tensor) and len(where) == 2:
        where = (where[0], where[1])
    if isinstance(where, tuple | list):
        if len(where) != 2 or not all(isinstance(end, Tensor) for end in where):
            raise InputError("a segment has two ends, both tensors; give (x0, x1).")
        place = _segment(where[0], where[1])
    else:
        place = _window(where if isinstance(where, Window) else checked(where))
    if place.directions.shape[1:] != (inputs,):
        shape = tuple(place.directions.shape[1:])
        raise InputError(f"points of shape {shape} do not suit networks of {inputs} inputs.")
    return place


def _segment(x0: Tensor, x1: Tensor) -> _Place:
    if x0.shape != x1.shape:
        raise InputError(f"x0 has shape {tuple(x0.shape)} and x1 {tuple(x1.shape)}; they must agree.")
    check_finite("x0", x0)
    check_finite("x1", x1)
    x0, x1 = x0.detach().cpu().double(), x1.detach().cpu().double()
    length = float((x1 - x0).norm())
    if length == 0:
        raise InputError("x0 and x1 are the same point; a line needs two different ones.")

    def draw(points: int, source: torch.Generator) -> Tensor:
        return x0 + _spread(points, source)[:, None] * (x1 - x0)

    return _Place((x1 - x0)[None] / length, length, draw)


def _window(window: Window) -> _Place:
    corners = window.polygon
    fans = torch.stack([corners[:1].expand(len(corners) - 2, 2), corners[1:-1], corners[2:]], 1)
    first, second = fans[:, 1] - fans[:, 0], fans[:, 2] - fans[:, 0]
    areas = 0.5 * (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    ends = areas.cumsum(0) / areas.sum()

    def draw(points: int, source: torch.Generator) -> Tensor:
        spread = _spread(points, source)
        which = torch.searchsorted(ends, spread).clamp(max=len(ends) - 1)
        inside = (spread - (ends - areas / areas.sum())[which]) / (areas / areas.sum())[which]
        out = inside.clamp(0, 1).sqrt()[:, None]
        across = torch.rand(points, 1, generator=source, dtype=torch.float64)
        a, b, c = fans[which].unbind(1)
        return window.points(a + out * ((1 - across) * (b - a) + across * (c - a)))

    return _Place(window.axes, window.area, draw)


def _spread(points: int, source: torch.Generator) -> Tensor:
    """One uniform number in each of so many equal parts of [0, 1]."""
    return (torch.arange(points) + torch.rand(points, generator=source, dtype=torch.float64)) / points


def _fold(spec: DenseSpec) -> Fold:
    step = next(iter(trace(nn.Sequential(nn.Linear(1, 1), module_of(spec.activation)), (1,), "cpu").folds), None)
    if not isinstance(step, Fold):
        raise InputError(f"the activation {spec.activation.name} folds nowhere: such networks have one region.")
    return step


def _density(law: Law) -> tuple[Callable[[Tensor], Tensor], float]:
    if isinstance(law, Gaussian) and law.std > 0:
        factor, std = 1 / (law.std * math.sqrt(2 * math.pi)), law.std
        return lambda b: factor * torch.exp(-0.5 * (b / std).square()), _REACH * std
    if isinstance(law, Uniform) and law.bound > 0:
        bound = law.bound
        return lambda b: torch.full_like(b, 0.5 / bound), bound
    raise InputError(f"biases={law!r} have no density, which the formula needs; use Gaussian(1e-3) or a Uniform law.")
