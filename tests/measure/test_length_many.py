"""Trajectory length of many networks: ensembles and lists against single networks and the exact law."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from torch import nn

import epoch0 as e0
from epoch0.seeds import generator, numpy_generator
from length_models import DOUBLE, Residual, chord_lengths, he, line


def exact_growth(width: int, std: float) -> float:
    """The twin of the exact dense-Gaussian law: E over A ~ Bin(width, 1/2) of the mean of a chi variable."""
    a = np.arange(1, width + 1)
    log_pmf = special.gammaln(width + 1) - special.gammaln(a + 1) - special.gammaln(width - a + 1) - width * math.log(2)
    mean_chi = math.sqrt(2) * np.exp(special.gammaln((a + 1) / 2) - special.gammaln(a / 2))
    return std / math.sqrt(width) * float((np.exp(log_pmf) * mean_chi).sum())


@pytest.mark.slow
def test_dense_gaussian_growth_is_the_exact_law() -> None:
    # 4 layers x 2 widths, |z| < 4: false-alarm rate 5e-4; seeds fixed
    for width, networks in ((10, 3000), (100, 200)):
        nets = e0.networks.ensemble(networks, [width] * 5, weights=e0.Gaussian(1.5), biases=e0.Gaussian(0.1),
                                    linear_output=False, seed=1)  # fmt: skip
        result = e0.trajectory_length(nets, line((width,), dtype=torch.float32))
        z = (result.growth - exact_growth(width, 1.5)) / result.growth_errors
        assert np.abs(z).max() < 4, z
        ratio = result.network_lengths[:, -1] / result.network_lengths[:, 0]
        error = ratio.std(ddof=1) / math.sqrt(networks)
        assert abs(ratio.mean() - exact_growth(width, 1.5) ** 4) < 4 * error


def test_a_line_through_the_origin_is_allowed() -> None:
    direction = torch.randn(50, generator=generator(2))
    nets = e0.networks.ensemble(400, [50] * 3, weights=e0.Gaussian(2.0), biases=e0.Gaussian(0.01), linear_output=False)
    result = e0.trajectory_length(nets, e0.Line(-direction, direction))
    assert (np.abs(result.growth - exact_growth(50, 2.0)) < 4 * result.growth_errors).all()  # false alarm 2e-4


@pytest.mark.parametrize("activation", ["relu", "tanh", "hardtanh", "elu"])
@pytest.mark.parametrize("sizes", [[6, 9, 5, 7], [200, 150, 6]])
def test_ensemble_equals_its_networks_one_by_one(activation: str, sizes: list[int]) -> None:
    nets = e0.networks.ensemble(6, sizes, activation, biases=e0.Gaussian(0.2), seed=3, dtype=DOUBLE)
    curve = line((sizes[0],))
    together = e0.trajectory_length(nets, curve, points=16, seed=5)
    listed = e0.trajectory_length(list(nets), curve, points=16, seed=5)
    np.testing.assert_allclose(together.network_lengths, listed.network_lengths, rtol=1e-10)
    np.testing.assert_allclose(together.network_growth, listed.network_growth, rtol=1e-10)
    assert together.layers == listed.layers == tuple(str(2 * i + 1) for i in range(len(sizes) - 2))
    alone = e0.trajectory_length(nets[0], curve, points=16, seed=5)
    np.testing.assert_allclose(alone.network_lengths[0], together.network_lengths[0], rtol=1e-10)


@given(st.integers(1, 12), st.integers(0, 11), st.booleans())
def test_a_network_does_not_depend_on_its_company(count: int, first: int, wide: bool) -> None:
    sizes = [140, 130, 9] if wide else [7, 11, 9]
    nets = e0.networks.ensemble(12, sizes, biases=e0.Gaussian(0.1), linear_output=False, seed=2)
    curve = line((sizes[0],), dtype=torch.float32)
    part = e0.trajectory_length(nets[first : first + count], curve)
    whole = e0.trajectory_length(nets, curve)
    # a batched product of another size may round differently, at the level of one float32 step a layer
    np.testing.assert_allclose(part.network_lengths, whole.network_lengths[first : first + count], rtol=2e-6)


def test_chunks_do_not_matter(monkeypatch) -> None:
    model, curve = he(Residual()), line((2, 6, 6))
    nets = e0.networks.ensemble(7, [12, 20, 9], biases=e0.Gaussian(0.1), dtype=DOUBLE)
    flat = line((12,))

    def measure() -> list[np.ndarray]:
        found = [
            e0.trajectory_length(model, curve, points=100),
            e0.trajectory_length(nets, flat),
            e0.trajectory_length(list(nets), flat),
        ]
        return [array for one in found for array in (one.network_lengths, one.network_growth, one.length_errors)]

    large = measure()
    monkeypatch.setattr("epoch0.measure.length._BUDGET", 4000)
    for a, b in zip(large, measure(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def test_a_list_may_differ_in_settings() -> None:
    def model(slope: float) -> nn.Module:
        torch_net = e0.networks.mlp([12, 10, 8], "relu", seed=int(10 * slope), dtype=DOUBLE)
        return nn.Sequential(torch_net[0], nn.LeakyReLU(slope), torch_net[2], nn.Tanh())

    models, curve = [model(0.1), model(0.9), model(0.3)], line((12,))
    together = e0.trajectory_length(models, curve, points=16)
    for i, one in enumerate(models):
        alone = e0.trajectory_length([one] * (i + 1), curve, points=16)  # the last has the offset of index i
        np.testing.assert_allclose(together.network_lengths[i], alone.network_lengths[i], rtol=1e-10)


def test_an_ensemble_has_the_lengths_of_chords() -> None:
    nets = e0.networks.ensemble(5, [12, 20, 20, 9], dtype=DOUBLE, seed=2)
    tangents = e0.trajectory_length(nets, line((12,)), points=2000)
    chords = [chord_lengths(net, line((12,)), points=2000) for net in nets]
    np.testing.assert_allclose(chords, tangents.network_lengths, rtol=3e-3)


def test_vanished_pieces_are_left_out_of_the_growth() -> None:
    # width 1: a ReLU layer maps a whole line to 0 half the time; those pieces have no ratio later
    nets = e0.networks.ensemble(2000, [1] * 4, weights=e0.Gaussian(2.0), biases=e0.Gaussian(1.0), linear_output=False)
    result = e0.trajectory_length(nets, e0.Line(torch.tensor([-1.0]), torch.tensor([1.0])))
    dead = (result.network_lengths[:, 1] == 0).mean()
    assert 0.05 < dead < 0.5
    assert np.isnan(result.network_growth[:, 1][result.network_lengths[:, 1] == 0]).all()
    assert (np.abs(result.growth - exact_growth(1, 2.0)) < 4 * result.growth_errors).all()  # false alarm 2e-4


def test_ensemble_errors_are_over_networks() -> None:
    nets = e0.networks.ensemble(50, [20] * 3, linear_output=False)
    result = e0.trajectory_length(nets, line((20,), dtype=torch.float32))
    np.testing.assert_allclose(result.length_errors, result.network_lengths.std(0, ddof=1) / math.sqrt(50))


@pytest.mark.slow
def test_memory_of_a_large_ensemble() -> None:
    code = """
import torch, epoch0 as e0
torch.set_num_threads(1)
def peak():  # ru_maxrss would begin with the peak of the process that started this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
nets = e0.networks.ensemble(100, [784] * 11, weights=e0.Sparse(e0.Gaussian(2.0), 0.5), linear_output=False)
x0, x1 = torch.randn(2, 784)
e0.trajectory_length(nets[:2], e0.Line(x0, x1))
before = peak()
e0.trajectory_length(nets, e0.Line(x0, x1))
after = peak()
print(after, after - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    whole, grown = (int(word) / 1024 for word in done.stdout.split())
    assert whole < 1000 and grown < 100  # MB, the process with torch in it included


def test_offsets_differ_between_networks() -> None:
    assert numpy_generator(0, 0, 1).random() != numpy_generator(0, 1, 1).random()
