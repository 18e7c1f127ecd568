"""Regions on windows: reference counts, the clipping twin on every kind of network, degeneracies, laws of symmetry."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from epoch0 import regions
from epoch0.errors import InputError
from epoch0.regions.planes.cutting import cycles
from region_twins import networks, plane_areas, recipe, recipe_plane

NETWORKS = networks()
SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)


def check(p: regions.PlanePartition) -> None:
    """Everything a partition promises about itself."""
    assert p.certificate.euler == 1 and abs(p.certificate.measure_error) < 1e-9 and p.certificate.undecided == 0
    assert p.certificate.holds and p.verify().holds and p.verify().distinct
    assert p.count == p.per_layer[-1] if p.per_layer else p.count == 1
    assert (np.diff(p.cell_ends) >= 3).all() and p.areas.min() > -1e-12
    used = np.bincount(p.cell_edges >> 1, minlength=len(p.edges))
    assert (used == np.where(p.owner_layer < 0, 1, 2)).all()  # border edges have one side, inner ones two
    assert set(np.unique(p.edges)) == set(range(len(p.vertices)))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("widths", "count", "per_layer", "vertices", "edges"),
    [([2, 16, 16, 1], 412, (126, 412), 444, 855), ([2, 64, 64, 64, 1], 14353, (1949, 6671, 14353), 14533, 28885)],
    ids=["P0", "P1"],
)
def test_reference_counts(widths, count, per_layer, vertices, edges) -> None:
    net = recipe(widths, 0.1)
    p = regions.on_plane(net, SQUARE)
    assert p.count == count == regions.count(net, SQUARE)
    assert p.per_layer == per_layer and len(p.vertices) == vertices and len(p.edges) == edges
    check(p)
    assert p.linear_count == count


def test_reference_plane_in_784_dimensions() -> None:
    net, (centre, u, v) = recipe([784, 64, 64, 64, 10], 0.1), recipe_plane()
    window = regions.square(centre, u, v, 28.0)
    p = regions.on_plane(net, window)
    assert p.count == 4711 == regions.count(net, window) and p.per_layer == (694, 2180, 4711)
    assert len(p.vertices) == 4853 and len(p.edges) == 9563
    check(p)
    assert torch.allclose(p.points[:4], window)


@pytest.mark.slow
def test_reference_of_a_quarter_million_cells() -> None:
    net = recipe([2, 256, 256, 256, 1], 0.1)
    p = regions.on_plane(net, SQUARE)
    assert p.count == 262431 == regions.count(net, SQUARE) and p.per_layer == (30569, 119787, 262431)
    assert len(p.vertices) == 263165 and len(p.edges) == 525595
    check(p)


@pytest.mark.sample(3)
@pytest.mark.parametrize("centre", [(0.3, 0.2), (0.0, 0.0), (-0.9, 0.1), (1.0, 1.0), (1.0, 0.0)])
def test_zero_biases_meet_in_the_apex(centre) -> None:
    net = recipe([2, 64, 64, 64, 1], 0.0)
    window = SQUARE + torch.tensor(centre, dtype=torch.float64)
    p = regions.on_plane(net, window)
    check(p)
    assert regions.count(net, window) == p.count
    if max(map(abs, centre)) < 0.5:
        assert p.count == 346 and p.per_layer == (128, 244, 346)
    apex = np.abs(p.vertices).max(axis=1) < 1e-12
    assert apex.sum() == 1
    inner = p.owner_layer >= 0
    assert (p.edges[inner] == np.flatnonzero(apex)[0]).any(axis=1).all()  # every boundary is a ray from the apex


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NETWORKS)
def test_twin_by_clipping(name: str, seed: int) -> None:
    model, shape = NETWORKS[name]
    source = torch.Generator().manual_seed(seed)
    centre, u, v = torch.randn(3, *shape, generator=source, dtype=torch.float64)
    window = regions.square(0.3 * centre, u, v, 4.0)
    p = regions.on_plane(model, window)
    expected = plane_areas(model, p.window.origin, p.window.axes, p.window.polygon.numpy())
    assert p.count == len(expected) == regions.count(model, window), name
    assert np.allclose(np.sort(p.areas), expected, rtol=1e-7, atol=1e-9)
    assert p.count > 8
    check(p)


def test_slopes_agree_with_the_network() -> None:
    model, shape = NETWORKS["skip"]
    centre, u, v = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = regions.on_plane(model, regions.square(centre, u, v, 3.0))
    for cell in (0, p.count // 2, -1):
        x = p.window.points(torch.from_numpy(p.cell(cell)))
        middle = x.mean(dim=0)
        matrix = torch.autograd.functional.jacobian(lambda point: model(point[None])[0], middle)
        assert torch.allclose(model(x), model(middle[None]) + (x - middle) @ matrix.T, atol=1e-9)
        slopes = torch.tensordot(p.window.axes, matrix, dims=([1], [1]))
        assert np.allclose(p.slopes[cell], slopes.numpy(), atol=1e-9)


def test_slices_cross_the_edges_of_the_plane() -> None:
    model, shape = NETWORKS["max pool"]
    centre, u, v = torch.randn(3, *shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    p = regions.on_plane(model, regions.square(centre, u, v, 3.0))
    start, stop = np.array([-2.5, -1.7]), np.array([2.1, 2.9])
    ends = p.vertices[p.edges[p.owner_layer >= 0]] - start
    side = ends @ np.array([stop[1] - start[1], start[0] - stop[0]])
    along = (ends @ (stop - start)) / ((stop - start) @ (stop - start))
    crossing = side[:, 0] * side[:, 1] < 0
    share = side[crossing, 0] / (side[crossing, 0] - side[crossing, 1])
    t = along[crossing, 0] + share * (along[crossing, 1] - along[crossing, 0])
    t = np.sort(t[(t > 0) & (t < 1)])
    line = regions.on_line(model, *p.window.points(torch.from_numpy(np.stack([start, stop]))))
    assert line.count == len(t) + 1 and np.allclose(line.breakpoints, t, atol=1e-9)


def test_duplicated_dead_and_parallel_neurons() -> None:
    net = recipe([2, 6, 6, 1], 0.3)
    single = regions.on_plane(net, SQUARE * 3)
    with torch.no_grad():
        wide = recipe([2, 12, 6, 1], 0.3)
        wide[0].weight.copy_(net[0].weight.repeat(2, 1) * torch.tensor([1.0] * 6 + [2.0] * 6)[:, None])
        wide[0].bias.copy_(net[0].bias.repeat(2) * torch.tensor([1.0] * 6 + [2.0] * 6))
        wide[2].weight.copy_(net[2].weight.repeat(1, 2) * torch.tensor([0.5] * 6 + [0.25] * 6))
        wide[2].bias.copy_(net[2].bias)
        wide[4].load_state_dict(net[4].state_dict())
    double = regions.on_plane(wide, SQUARE * 3)
    assert double.count == single.count
    assert np.allclose(np.sort(double.areas), np.sort(single.areas))
    check(double)
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.fill_(-1.0)
    dead = regions.on_plane(net, SQUARE * 3)
    check(dead)
    assert dead.count == dead.per_layer[0] > 1 and dead.linear_count == 1
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3))
        net[0].bias.copy_(torch.tensor([0.0, 0.5, 1.0, 0.0, 0.5, 0.5]))
    grid = regions.on_plane(net, SQUARE * 3)
    assert grid.count == 4 * 3 and np.allclose(grid.areas.sum(), 36)
    check(grid)


@pytest.mark.slow
def test_pooling_what_is_zero_everywhere_makes_no_regions() -> None:
    """ReLU and max pooling commute: the linear regions are the same, though many windows hold nothing but zeros."""
    torch.manual_seed(0)
    conv, more, last = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1), nn.Linear(12, 2)
    relu, pool, flat = nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    first = nn.Sequential(conv, relu, pool, more, relu, pool, flat, last).double()
    second = nn.Sequential(conv, pool, relu, more, pool, relu, flat, last).double()
    x0, x1, v = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    for kind in ("segment", "line"):
        one, other = (regions.on_line(net, 3 * x0, 3 * x1, kind=kind) for net in (first, second))
        assert one.count > other.count >= one.linear_count == other.linear_count > 10
        assert np.allclose(one.breakpoints[one.linear_breaks], other.breakpoints[other.linear_breaks])
        assert len(np.unique(one.patterns, axis=0)) == one.count
    one, other = (regions.on_plane(net, regions.square(x0, x1, v, 3.0)) for net in (first, second))
    check(one)
    check(other)
    assert one.count > other.count >= one.linear_count == other.linear_count > 50


def test_networks_without_folds_are_one_region() -> None:
    net = nn.Linear(2, 3)
    p = regions.on_plane(net, SQUARE)
    check(p)
    assert p.count == p.linear_count == regions.count(net, SQUARE) == 1 and p.per_layer == ()
    assert regions.on_line(net, torch.zeros(2), torch.ones(2), kind="line").count == 1


def test_many_lines_through_one_point_inside_a_cell() -> None:
    """Ten lines meet at one point that is no vertex before, three at another: 2 n sectors where n lines meet."""
    angles = np.arange(10) * np.pi / 10 + 0.1
    normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    more = np.stack([np.cos(angles[:3] + 0.05), np.sin(angles[:3] + 0.05)], axis=1)
    net = nn.Sequential(nn.Linear(2, 13), nn.ReLU(), nn.Linear(13, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.from_numpy(np.concatenate([normals, more])))
        net[0].bias.copy_(torch.from_numpy(-np.concatenate([normals @ [0.137, 0.71], more @ [-0.4, 0.23]])))
    p = regions.on_plane(net, SQUARE * 100)
    check(p)
    assert p.count == 1 + 13 + 9 + 2 + 30  # lines, their two bundles, and each line of one crosses each of the other
    assert regions.count(net, SQUARE * 100) == p.count


@given(
    widths=st.lists(st.integers(1, 8), min_size=1, max_size=3), seed=st.integers(0, 999),
    activation=st.sampled_from([nn.ReLU(), nn.Hardtanh(), nn.LeakyReLU(0.3), nn.ReLU6()]),
    bias=st.sampled_from([0.0, 0.4]), corners=st.integers(3, 7),
)  # fmt: skip
def test_laws_of_random_networks(widths, seed, activation, bias, corners) -> None:
    net = recipe([2, *widths, 2], bias, seed)
    net = nn.Sequential(*(activation if isinstance(layer, nn.ReLU) else layer for layer in net))
    source = np.random.default_rng(seed)
    angles = np.sort(source.uniform(0, 2 * np.pi, corners))
    if np.diff(angles, append=angles[0] + 2 * np.pi).max() > 6:
        angles = np.arange(corners) * 2 * np.pi / corners
    window = torch.from_numpy(3 * np.stack([np.cos(angles), np.sin(angles)], axis=1) + source.normal(size=2))
    p = regions.on_plane(net, window)
    check(p)
    assert p.linear_count <= p.count == regions.count(net, window)
    expected = plane_areas(net, p.window.origin, p.window.axes, p.window.polygon.numpy())
    assert len(expected) == p.count and np.allclose(np.sort(p.areas), expected, atol=1e-9)
    clockwise = regions.on_plane(net, window.flip(0))
    assert clockwise.count == p.count


def test_windows() -> None:
    a, b, c = torch.randn(3, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    corners = regions.through(a, b, c)
    centre = corners.mean(dim=0)
    radii = [(x - centre).norm() for x in (a, b, c)]
    assert torch.allclose(torch.stack(radii), radii[0].expand(3)) and corners.shape == (4, 20)
    assert torch.allclose((corners[1] - corners[0]).norm(), 2 * radii[0])
    images = torch.randn(3, 1, 4, 4)
    assert regions.through(*images, margin=2.0).shape == (4, 1, 4, 4)
    square = regions.square(a, b, c, 2.0)
    assert torch.allclose((square[1] - square[0]).norm(), torch.tensor(4.0, dtype=torch.float64))
    assert abs(float((square[1] - square[0]) @ (square[2] - square[1]))) < 1e-9


def test_bad_windows_are_refused() -> None:
    net = recipe([2, 4, 1], 0.1)
    line = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    bow = SQUARE[[0, 2, 1, 3]]
    dart = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 1.0], [0.0, 4.0]])
    star = torch.tensor([[np.cos(a), np.sin(a)] for a in np.arange(5) * 4 * np.pi / 5])
    for window, words in (
        (line, "no area"), (bow, "convex|no area"), (dart, "convex at corner 2"), (star, "convex"),
        (SQUARE[:2], "three"),
        (SQUARE * float("nan"), "NaN"), (SQUARE[[0, 0, 1, 2]], "coincide"), ([[0, 0]], "tensor"),
        (SQUARE.half(), "float16"),
        (torch.rand(4, 3, generator=torch.Generator().manual_seed(0)), "one plane"),
        (torch.rand(3, 1), "one coordinate"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            regions.on_plane(net, window)
    corner = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    with pytest.raises(InputError, match="corners 0 and 2 of the window coincide"):
        regions.on_plane(net, corner)
    with pytest.raises(InputError, match="complex64"):
        regions.on_plane(net, SQUARE.to(torch.complex64))
    with pytest.raises(InputError, match="shape"):
        regions.on_plane(net, regions.through(*torch.eye(3)))
    good = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    for point, words in (
        (torch.tensor([0.0, float("nan")]), "NaN"), (torch.zeros(2).half(), "float16"), (torch.zeros(3), "shape"),
        ("a", "=.a.: give"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            regions.through(point, *good)
        with pytest.raises(InputError, match=words):
            regions.square(point, *good, 1.0)
    with pytest.raises(InputError, match="margin=nan"):
        regions.through(torch.zeros(2), *good, margin=float("nan"))
    with pytest.raises(InputError, match="one line"):
        regions.through(good[0], *good)
    with pytest.raises(InputError, match="one line"):
        regions.through(*line)
    with pytest.raises(InputError, match="parallel"):
        regions.square(line[0], line[1], line[2], 1.0)
    with pytest.raises(InputError, match="half"):
        regions.square(line[0], SQUARE[0], SQUARE[1], -1.0)


def test_counting_takes_lines_curves_and_windows() -> None:
    model, _ = NETWORKS["dense"]
    x0, x1 = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
    lines = regions.on_line(model, x0, x1)
    assert regions.count(model, (x0, x1)).tolist() == lines.counts.tolist()
    assert regions.count(model, (x0[0], x1[0])) == lines[0].count
    from epoch0.curves import Line, Polyline

    assert regions.count(model, Line(x0[0], x1[0])) == lines[0].count
    assert regions.count(model, Polyline(torch.stack([x0[0], x1[0]]))) == lines[0].count


def test_pictures(tmp_path) -> None:
    net = recipe([2, 12, 12, 3], 0.2)
    p = regions.on_plane(net, SQUARE * 2)
    p.plot().savefig(tmp_path / "regions.png")
    p.plot().savefig(tmp_path / "regions.svg")
    assert (tmp_path / "regions.png").stat().st_size > 10_000 and (tmp_path / "regions.svg").stat().st_size > 1000
    colours = regions.pattern_colours(p.patterns)
    assert (regions.pattern_colours(p.patterns[::-1])[::-1] == colours).all()
    assert len(np.unique(colours, axis=0)) == p.count and colours.min() >= 0 and colours.max() <= 1
    with pytest.raises(InputError, match="packed bits"):
        regions.pattern_colours(p.patterns[0])
    assert p.to_pandas().shape == (p.count, 5) and "activation regions" in str(p)


def test_cycles_of_a_permutation() -> None:
    source = np.random.default_rng(0)
    following = source.permutation(200)
    elements, ends = cycles(following)
    assert sorted(elements) == list(range(200))
    for start, stop in itertools.pairwise(ends):
        assert (following[elements[start:stop]] == np.roll(elements[start:stop], -1)).all()
