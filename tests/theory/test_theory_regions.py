"""Bounds on the number of regions, and the constant of the linear law, against exact counts of random networks."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from epoch0 import regions
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import ensemble
from epoch0.theory.regions import arrangement_regions, line_breaks, upper_bound
from region_twins import recipe, recipe_lines


def sharp_bound(widths: list[int], inputs: int, faces: int) -> int:
    """Montufar 2017: a narrow layer's outputs have fewer dimensions, and the faces of one neuron are parallel."""
    bound, dimension = 1, inputs
    for width in widths:
        bound *= sum(math.comb(width, i) * faces**i for i in range(min(width, dimension) + 1))
        dimension = min(dimension, width)
    return bound


@given(planes=st.integers(1, 60), dimension=st.integers(1, 12))
def test_arrangements_grow_as_a_plane_is_added(planes: int, dimension: int) -> None:
    """A new plane cuts as many regions as its own arrangement, one dimension lower, has."""
    before, on_it = arrangement_regions(planes - 1, dimension), arrangement_regions(planes - 1, dimension - 1)
    assert arrangement_regions(planes, dimension) == before + on_it
    assert arrangement_regions(planes, planes + 3) == 2**planes and arrangement_regions(planes, 0) == 1


def test_random_lines_reach_the_number_of_an_arrangement() -> None:
    net = recipe([2, 9, 1], 1.0)
    window = regions.square(torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 1e4)
    assert regions.count(net, window) == arrangement_regions(9, 2) == 46


@pytest.mark.slow
def test_bounds_of_small_networks_written_out() -> None:
    assert upper_bound([3, 3], 1) == 4 * 4
    assert upper_bound([3, 3], 2, faces=2) == (1 + 6 + 15) ** 2
    assert upper_bound([1, 5], 3) == 2 * (1 + 5 + 10 + 10)
    assert upper_bound([1000] * 50, 784) > 0  # exact, far beyond a float
    assert math.log2(upper_bound([20] * 3, 100)) == 60 == 20 * 3


def test_order_of_the_bound() -> None:
    """Theorem 1: k^(mn) up to a factor that does not depend on k."""
    ratios = [upper_bound([k] * 3, 4) / k**12 for k in (10**3, 10**4, 10**5)]
    assert ratios == pytest.approx([1 / math.factorial(4) ** 3] * 3, rel=0.01)
    ratios = [upper_bound([k] * 3, 4, faces=2) / (2 * k) ** 12 for k in (10**4, 10**5)]
    assert ratios == pytest.approx([1 / math.factorial(4) ** 3] * 2, rel=0.01)


@given(
    widths=st.lists(st.integers(1, 8), min_size=1, max_size=3), inputs=st.integers(1, 4), faces=st.sampled_from([1, 2])
)
def test_bounds_are_in_order(widths: list[int], inputs: int, faces: int) -> None:
    raghu, sharp = upper_bound(widths, inputs, faces=faces), sharp_bound(widths, inputs, faces)
    assert sharp <= raghu and sharp <= (faces + 1) ** sum(widths)  # patterns


def test_counts_obey_the_bounds() -> None:
    for seed, (activation, faces) in product(range(5), ((nn.ReLU(), 1), (nn.Hardtanh(), 2))):
        net = nn.Sequential(*(activation if isinstance(m, nn.ReLU) else m for m in recipe([2, 4, 3, 4, 1], 0.5, seed)))
        corners = regions.square(torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 50.0)
        assert regions.count(net, corners) <= sharp_bound([4, 3, 4], 2, faces)
        line = regions.on_line(net, torch.zeros(2), torch.ones(2), kind="line")
        assert line.count <= sharp_bound([4, 3, 4], 1, faces)


def test_first_layer_breaks_are_exact_at_any_width() -> None:
    """4000 networks 3-5-1: five neurons a line; |z| < 4.5 for six means, so a false alarm once in 25,000 runs."""
    x0, x1 = np.array([0.3, -1.0, 0.5]), np.array([1.0, 0.4, -2.0])
    weights = torch.randn(4000 * 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 3**0.5
    biases = torch.randn(4000 * 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for bias_std, kind in product((0.0, 0.7), ("segment", "ray")):
        at = [weights @ torch.from_numpy(x) + bias_std * biases for x in (x0, x1)]
        far = weights @ torch.from_numpy(x1 - x0) if kind == "ray" else at[1]
        met = float(((at[0] > 0) != (far > 0)).double().mean())
        expected = line_breaks([5], x0, x1, weight_std=1.0, bias_std=bias_std, kind=kind)[0] / 5
        assert abs(met - expected) < 4.5 * (expected * (1 - expected) / 20_000) ** 0.5
    both = line_breaks([5], np.stack([x0, x1]), np.stack([x1, x0]), bias_std=0.2)
    assert both.shape == (2, 1) and both[0] == pytest.approx(both[1])


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias_std", [0.0, 0.5])
def test_deep_layers_of_wide_networks(bias_std: float) -> None:
    """25 networks of width 128: layers agree within 4.5 standard errors and a share of 2 / width."""
    nets = ensemble(25, [20, 128, 128, 128, 1], biases=Gaussian(bias_std), seed=3, dtype=torch.float64)
    x0, x1 = torch.randn(2, 20, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    counts = np.array([[1, *regions.on_line(net, x0, x1).per_layer] for net in nets])
    met = np.diff(counts, axis=1)
    expected = line_breaks([128] * 3, x0.numpy(), x1.numpy(), bias_std=bias_std)
    error = met.std(axis=0, ddof=1) / 25**0.5
    assert (np.abs(met.mean(axis=0) - expected) < 4.5 * error + 2.0).all()


def test_a_whole_line_meets_every_neuron_once_on_average() -> None:
    nets = ensemble(25, [5, 100, 100, 1], biases=Gaussian(1e-3), seed=5, dtype=torch.float64)
    x = torch.randn(5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    counts = np.array([regions.on_line(net, torch.zeros(5), x, kind="line").count - 1 for net in nets])
    assert line_breaks([100, 100], np.zeros(5), x.numpy(), bias_std=1e-3, kind="line").tolist() == [100.0, 100.0]
    assert abs(counts.mean() - 200) < 4.5 * counts.std(ddof=1) / 25**0.5 + 4


def test_the_reference_lines() -> None:
    x0, x1 = recipe_lines()
    expected = line_breaks([256] * 4, x0.numpy(), x1.numpy(), bias_std=1e-3).sum(axis=1)
    found = regions.on_line(recipe([784, 256, 256, 256, 256, 10], 1e-3), x0, x1).counts - 1
    assert found.mean() == pytest.approx(expected.mean(), rel=0.03)


def test_limits_of_the_constant() -> None:
    x, y = np.eye(4)[:2]
    assert line_breaks([10] * 3, x, y) == pytest.approx([5.0] * 3)  # no bias: the angle between the ends
    assert line_breaks([10] * 3, x, -x * 3) == pytest.approx([10.0] * 3)
    assert line_breaks([10], x, 2 * x) == pytest.approx([0.0])
    assert line_breaks([10], 1e-200 * x, 1e-200 * y) == pytest.approx([5.0])
    assert line_breaks([10], np.zeros(4), y, bias_std=1.0) > 0 and line_breaks([10], np.zeros(4), y).tolist() == [0.0]
    deep = line_breaks([10] * 2000, x, y, weight_std=0.1, bias_std=0.1)
    assert (np.diff(deep) <= 0).all() and deep[-1] < 1e-100  # biases drown a signal that dies out
    assert (line_breaks([10] * 5000, 1e-9 * x, y, weight_std=1e-180, bias_std=0.1) < 1e-140).all()
    assert line_breaks([10] * 3, x, y, weight_std=3.0, bias_std=0.5)[2] > 4.5
    assert line_breaks([7], x, y, negative_slope=-1.0, weight_std=1.0) == pytest.approx([3.5])


def test_bad_input() -> None:
    with pytest.raises(InputError, match="widths is empty"):
        upper_bound([], 2)
    with pytest.raises(InputError, match=r"widths\[1\]=0"):
        upper_bound([3, 0], 2)
    with pytest.raises(InputError, match="faces=0"):
        upper_bound([3], 2, faces=0)
    x = np.ones(3)
    for arguments, message in (
        ({"x1": np.ones(4)}, "shape"), ({"x1": x}, "same point"), ({"weight_std": 0.0}, "weight_std"),
        ({"bias_std": -1.0}, "bias_std"), ({"kind": "circle"}, "circle"), ({"x0": np.full(3, np.nan)}, "NaN"),
        ({"negative_slope": math.inf}, "negative_slope"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            line_breaks([3], **{"x0": x, "x1": 2 * x, **arguments})
