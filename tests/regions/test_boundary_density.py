"""Theorem 3 by Monte Carlo against exact counts of the very same random networks, on lines and in windows."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from epoch0 import regions
from epoch0.curves import Line
from epoch0.distributions import Discrete, Gaussian, Uniform
from epoch0.errors import InputError
from epoch0.networks import Ensemble, ensemble, mlp
from epoch0.regions.boundary_density import boundary_density


def place(dim: int, count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def nets(count: int, sizes: list[int], activation: str, bias_std: float, seed: int = 0) -> Ensemble:
    return ensemble(count, sizes, activation, biases=Gaussian(bias_std), seed=seed, dtype=torch.float64)


def agree(found: regions.BoundaryDensity, exact: np.ndarray) -> bool:
    """Within 4 standard errors of the difference: a false alarm once in 16,000 comparisons, and seeds are fixed."""
    error = float(exact.std(ddof=1)) / len(exact) ** 0.5
    return abs(found.expected - exact.mean()) < 4 * np.hypot(error, found.expected_error)


def break_points(sizes: list[int], activation: str, bias_std: float, networks: int, *, output: bool = True) -> bool:
    """Whether so many networks by the formula, and a third of them by counting, agree; what disagrees is raised."""
    random = ensemble(
        networks, sizes, activation, biases=Gaussian(bias_std), linear_output=output, seed=1, dtype=torch.float64
    )
    x0, x1 = place(sizes[0], 2)
    lines = [regions.on_line(net, x0, x1) for net in random[: networks // 3]]
    for kind, exact in (
        ("activation", np.array([line.count - 1 for line in lines])),
        ("linear", np.array([line.linear_count - 1 for line in lines])),
    ):
        found = boundary_density(random, (x0, x1), kind=kind, points=32)
        assert agree(found, exact), kind
        assert found.measure == pytest.approx(float((x1 - x0).norm()))
        assert found.values.shape == (networks, len(sizes) - 2 if output else len(sizes) - 1)
    return len(lines) == networks // 3


def test_break_points_on_a_line() -> None:
    assert break_points([3, 3, 2, 3, 1], "relu", 0.5, 60)
    assert break_points([3, 4, 2], "hardtanh", 0.4, 30, output=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "activation", "bias_std", "output"),
    [
        ([3, 3, 2, 3, 2], "hardtanh", 0.5, True), ([4, 6, 6, 1], "leaky_relu", 0.3, True),
        ([3, 4, 2], "relu6", 0.4, False),
        ([5, 20, 20, 20, 1], "relu", 1e-2, True), ([50, 64, 64, 64, 10], "relu", 1e-3, True),
    ],
)  # fmt: skip
def test_break_points_of_many_networks(sizes: list[int], activation: str, bias_std: float, output: bool) -> None:
    assert break_points(sizes, activation, bias_std, 240, output=output)


@pytest.mark.slow
def test_narrow_layers_close_ways() -> None:
    """Behind layers of two neurons many folds cannot be seen in the output; far more than errors apart."""
    random = nets(300, [3, 3, 2, 3, 1], "relu", 0.5)
    linear, activation = (
        boundary_density(random, tuple(place(3, 2)), kind=kind, points=8) for kind in ("linear", "activation")
    )
    difference = (activation.values - linear.values).sum(axis=1)
    assert difference.mean() > 5 * difference.std() / 300**0.5
    assert (difference > -1e-9).all() and (linear.per_layer[-1] == activation.per_layer[-1])


def edges_and_vertices(sizes: list[int], activation: str, bias_std: float, networks: int) -> bool:
    """Whether the formula and a third of the networks, taken apart, agree; what disagrees is raised."""
    random = nets(networks, sizes, activation, bias_std)
    window = regions.square(*place(3, 3), 1.0)
    exact = np.array([lengths_and_vertices(regions.on_plane(net, window)) for net in random[: networks // 3]])
    for k, kind, column in ((1, "activation", 0), (1, "linear", 1), (2, "activation", 2)):
        found = boundary_density(random, window, k=k, kind=kind, points=32)
        assert agree(found, exact[:, column]), (k, kind)
        assert found.measure == pytest.approx(4.0) and found.values.shape == (networks, len(sizes) - 2)
    return exact.shape == (networks // 3, 3)


@pytest.mark.slow
def test_edges_and_vertices_in_a_window() -> None:
    assert edges_and_vertices([3, 4, 3, 4, 1], "relu", 0.5, 30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "activation", "bias_std"),
    [
        ([3, 4, 3, 4, 1], "relu", 0.5), ([3, 4, 4, 2], "hardtanh", 0.5), ([3, 12, 12, 12, 1], "relu", 1e-2),
        ([3, 5, 5, 1], "leaky_relu", 0.3),
    ],
)  # fmt: skip
def test_edges_and_vertices_of_many_networks(sizes: list[int], activation: str, bias_std: float) -> None:
    assert edges_and_vertices(sizes, activation, bias_std, 240)


def lengths_and_vertices(plane: regions.PlanePartition) -> tuple[float, float, float]:
    """Length of edges inside the window, of those where the map changes; crossings."""
    slopes = plane.slopes
    edge = plane.adjacency
    inner = plane.owner_layer >= 0
    jump = np.abs(slopes[edge[:, 0]] - slopes[edge[:, 1]]).reshape(len(edge), -1).max(axis=1)
    linear = inner & (jump > 1e-11 * np.abs(slopes).max())
    length = np.linalg.norm(plane.vertices[plane.edges[:, 0]] - plane.vertices[plane.edges[:, 1]], axis=1)
    border = np.zeros(len(plane.vertices), dtype=bool)
    border[plane.edges[~inner].ravel()] = True
    return length[inner].sum(), length[linear].sum(), (~border).sum()


def test_first_layer_in_closed_form() -> None:
    """One layer of Gaussian weights: the angle between the ends, over pi, for every neuron."""
    x0, x1 = place(6, 2)
    found = boundary_density(nets(150, [6, 10, 1], "relu", 0.7), (x0, x1), kind="linear")
    height = torch.tensor([0.7 * 3**0.5])  # a bias's standard deviation over a weight's, sqrt(2 / 6)
    expected = 10 / math.pi * float(torch.cosine_similarity(torch.cat([height, x0]), torch.cat([height, x1]), 0).acos())
    assert abs(found.expected - expected) < 4 * found.expected_error < 1.5


@pytest.mark.slow
def test_uniform_biases_and_other_windows() -> None:
    random = ensemble(80, [2, 6, 5, 1], biases=Uniform(0.8), seed=3, dtype=torch.float64)
    triangle = torch.tensor([[0.0, 0.0], [1.5, 0.2], [0.3, 1.0]])
    exact = np.array([lengths_and_vertices(regions.on_plane(net, triangle))[::2] for net in random[:20]])
    for k in (1, 2):
        found = boundary_density(random, triangle, k=k, kind="activation", points=16)
        assert agree(found, exact[:, k - 1])
    assert found.measure == pytest.approx(0.5 * abs(1.5 * 1.0 - 0.2 * 0.3))


def test_points_are_spread_evenly() -> None:
    """The points of a window of five corners: the share in a part of it is its area, within 4 deviations."""
    from epoch0.regions.boundary_density import _place

    corners = torch.tensor([[0.0, 0.0], [2.0, 0.0], [3.0, 1.0], [1.0, 3.0], [-1.0, 1.0]])
    _, area, draw = _place(corners, 2)
    x = draw(40_000, torch.Generator().manual_seed(0))
    assert area == pytest.approx(7.0)
    assert float((x[:, 1] < 1).double().mean()) == pytest.approx(3 / 7, abs=0.01)
    assert float((x[:, 0] < 1).double().mean()) == pytest.approx(3.5 / 7, abs=0.01)
    line = _place((torch.zeros(2), torch.tensor([3.0, 4.0])), 2)[2](5, torch.Generator().manual_seed(0))
    assert (line.norm(dim=1).floor() == torch.arange(5)).all()


def test_seeds_and_faces_of_the_result() -> None:
    random, ends = nets(5, [3, 4, 1], "relu", 0.5), tuple(place(3, 2))
    one, two = (boundary_density(random, ends, seed=4) for _ in range(2))
    assert (one.values == two.values).all() and len(one.values) == 5
    assert (boundary_density(random, Line(*ends)).values == boundary_density(random, torch.stack(ends)).values).all()
    assert "break points between linear regions" in str(one) and "layer 0" in str(one)
    assert "vertices" in str(boundary_density(random, regions.square(*place(3, 3), 1.0), k=2, kind="activation"))
    assert one.to_pandas().shape == (5, 3)
    assert np.isnan(boundary_density(nets(1, [3, 4, 1], "relu", 0.5), ends).standard_error)
    assert one.expected == pytest.approx(one.mean * one.measure)


def test_bad_input() -> None:
    random, (x0, x1) = nets(3, [3, 4, 1], "relu", 0.5), place(3, 2)
    with pytest.raises(InputError, match="law is a Sequential"):
        boundary_density(mlp([3, 4, 1]), (x0, x1))
    with pytest.raises(InputError, match="k=2; k is 1 on a line"):
        boundary_density(random, (x0, x1), k=2)
    with pytest.raises(InputError, match="k=3; k is 1 or 2"):
        boundary_density(random, regions.square(*place(3, 3), 1.0), k=3)
    with pytest.raises(InputError, match="pass kind='activation'"):
        boundary_density(random, regions.square(*place(3, 3), 1.0), k=2)
    with pytest.raises(InputError, match="no density"):
        boundary_density(nets(3, [3, 4, 1], "relu", 0.0), (x0, x1))
    with pytest.raises(InputError, match="no density"):
        boundary_density(ensemble(3, [3, 4, 1], biases=Discrete((-1.0, 1.0))), (x0, x1))
    with pytest.raises(InputError, match="tanh"):
        boundary_density(nets(3, [3, 4, 1], "tanh", 0.5), (x0, x1))
    with pytest.raises(InputError, match="folds nowhere"):
        boundary_density(nets(3, [3, 4, 1], "identity", 0.5), (x0, x1))
    with pytest.raises(InputError, match="do not suit networks of 3 inputs"):
        boundary_density(random, tuple(place(4, 2)))
    with pytest.raises(InputError, match="same point"):
        boundary_density(random, (x0, x0))
    with pytest.raises(InputError, match="kind='all'"):
        boundary_density(random, (x0, x1), kind="all")
    with pytest.raises(InputError, match="points=0"):
        boundary_density(random, (x0, x1), points=0)
    with pytest.raises(InputError, match="two ends"):
        boundary_density(random, (x0, x1, x0))
