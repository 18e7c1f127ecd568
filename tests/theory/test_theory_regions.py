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
from epoch0.theory.regions import arrangement_regions, upper_bound
from region_twins import recipe


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


def test_a_whole_line_meets_every_neuron_once_on_average() -> None:
    nets = ensemble(25, [5, 100, 100, 1], biases=Gaussian(1e-3), seed=5, dtype=torch.float64)
    x = torch.randn(5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    counts = np.array([regions.on_line(net, torch.zeros(5), x, kind="line").count - 1 for net in nets])
    assert abs(counts.mean() - 200) < 4.5 * counts.std(ddof=1) / 25**0.5 + 4


def test_bad_input() -> None:
    with pytest.raises(InputError, match="widths is empty"):
        upper_bound([], 2)
    with pytest.raises(InputError, match=r"widths\[1\]=0"):
        upper_bound([3, 0], 2)
    with pytest.raises(InputError, match="faces=0"):
        upper_bound([3], 2, faces=0)
