"""Dichotomies: against fine sweeps in a plain loop, counts known in advance, bounds, and the random walk."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0.activity import dichotomies, random_walk
from epoch0.activity.dichotomies import seen
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import ensemble, mlp
from epoch0.theory.regions import arrangement_regions

MODULE = sys.modules["epoch0.activity.dichotomies"]  # the function has the module's name


def batch(count: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def swept(model: nn.Sequential, x: torch.Tensor, place: int, other: torch.Tensor, points: int) -> np.ndarray:
    """Twin: the labels of every input at many angles, shape (points, inputs), by plain matrix products."""
    angle = 2 * math.pi * torch.linspace(0, 1, points, dtype=torch.float64)[:, None, None]
    z = x.expand(points, *x.shape)
    for index, part in enumerate(model):
        if isinstance(part, nn.Linear):
            weight = part.weight.detach().double()
            if index == place:
                weight = weight * angle.cos() + other * angle.sin()
            z = z @ weight.mT + part.bias.detach().double()
        else:
            z = part(z)
    return (z[:, :, 0] > 0).numpy()


@pytest.mark.sample(6)
@pytest.mark.parametrize("activation", ["relu", "hardtanh", "tanh"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_fine_sweep(activation: str, layer: int) -> None:
    model = mlp([4, 8, 8, 1], activation, Gaussian(2.0), Gaussian(0.2), seed=3)
    x, other = batch(6, 4), batch(*model[2 * layer].weight.shape, seed=9).float().double()
    labels = swept(model, x, 2 * layer, other, 20_001)
    for method in ("exact", "refined")[activation == "tanh" :]:
        found = dichotomies(model, x, layer, other=other, method=method)
        assert found.counts[0] == len(np.unique(labels, axis=0)) > 3
        assert found.flips[0] == (labels[1:] != labels[:-1]).sum()
        assert (np.bincount(found.which[0], minlength=6) == (labels[1:] != labels[:-1]).sum(axis=0)).all()
        assert found.counts[0] <= min(max(1, found.flips[0]), 64)
        assert found.layer == str(2 * layer) and (found.method == "exact") == (method == "exact")


def test_a_linear_classifier_sees_two_labellings_an_input() -> None:
    """w(t).x = a cos + b sin flips twice for every input; in general position no labelling returns."""
    nets = ensemble(5, [10, 1], "hardtanh", Gaussian(1.0), seed=1)
    found = dichotomies(nets, batch(12, 10))
    assert (found.flips == 24).all() and (found.counts == 24).all()
    assert found.counts[0] == 2 * arrangement_regions(11, 1)  # Cover's count in the plane of the sweep


def test_seen_along_the_way_and_times() -> None:
    nets = ensemble(2, [10, 20, 20, 1], "hardtanh", Gaussian(3.0), seed=1)
    found = dichotomies(nets, batch(8, 10))
    for times, which, first in zip(found.times, found.which, found.seen, strict=True):
        assert len(first) == len(which) + 1 and first[0] == 1 and (np.diff(times) >= 0).all()
        assert ((np.diff(first) == 0) | (np.diff(first) == 1)).all()
        assert (np.bincount(which, minlength=8) % 2 == 0).all()  # a closed sweep returns to its labels


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(1, 10))
def test_seen_by_a_plain_loop(seed: int, inputs: int) -> None:
    rng = np.random.default_rng(seed)
    first, flips = rng.random(inputs) < 0.5, rng.integers(0, inputs, 50)
    signs, met, expected = first.copy(), {tuple(first)}, [1]
    for flip in flips:
        signs[flip] = ~signs[flip]
        met.add(tuple(signs))
        expected.append(len(met))
    assert seen(first, flips).tolist() == expected


def test_hashes_count_as_codes_do() -> None:
    """The same flips among 10 of 70 inputs: hashed as 70, coded as 10."""
    flips = np.random.default_rng(0).integers(0, 10, 3000)
    coded, hashed = seen(np.zeros(10, dtype=bool), flips), seen(np.zeros(70, dtype=bool), flips)
    assert (coded == hashed).all() and coded[-1] > 500
    nets = ensemble(1, [5, 1], "hardtanh", Gaussian(1.0), seed=1)
    found = dichotomies(nets, batch(65, 5))
    assert found.hashed and found.counts[0] == 130 and "hashes" in str(found)
    assert not dichotomies(nets, batch(60, 5)).hashed


@settings(max_examples=3)
@given(st.integers(0, 1000))
def test_exact_and_refined_agree_within_bounds(seed: int) -> None:
    nets, x = ensemble(2, [5, 10, 10, 1], "hardtanh", Gaussian(3.0), seed=seed), batch(3, 5, seed)
    for layer in range(3):
        exact, refined = (dichotomies(nets, x, layer, method=method) for method in ("exact", "refined"))
        assert exact.counts.tolist() == refined.counts.tolist() and exact.flips.tolist() == refined.flips.tolist()
        assert exact.counts.max() <= 8 and (exact.counts <= np.maximum(1, exact.flips)).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize(("activation", "biases", "linear"), [
    ("hardtanh", Gaussian(0.3), False), ("tanh", Gaussian(0.3), True),
    *(pytest.param(name, None, True, marks=pytest.mark.slow) for name in ("hardtanh", "gelu")),
])  # fmt: skip
def test_many_networks_at_once_are_the_loop(activation: str, biases: Gaussian | None, linear: bool) -> None:
    """One program for all against module by module, whatever layer is swept: same flips, labellings and order."""
    nets = ensemble(4, [10, 20, 20, 20, 2], activation, Gaussian(3.0), biases, linear_output=linear, seed=4)
    own = torch.stack([batch(9, 10, seed) for seed in range(4)])
    for layer in (0, 1, 3):
        other = batch(*nets[0][2 * layer].weight.shape, seed=9)
        shared = dichotomies(nets, own[0], layer, output=1, other=other, method="refined")
        apart = dichotomies(nets, own, layer, output=1, other=other, method="refined")
        assert shared.flips.sum() > 50 and apart.layer == str(2 * layer)
        for i, one in enumerate(nets):
            for x, found in ((own[0], shared), (own[i], apart)):
                alone = dichotomies(one, x, layer, output=1, other=other, method="refined")
                assert alone.counts[0] == found.counts[i] and alone.which[0].tolist() == found.which[i].tolist()
                assert np.abs(alone.times[0] - found.times[i]).max(initial=0) < 1e-9
            assert shared.flips[0] == apart.flips[0]


def test_parts_of_an_ensemble_and_of_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few networks or inputs are held at a time, and in whatever company a network is: the same result."""
    nets = ensemble(6, [10, 16, 16, 1], "hardtanh", Gaussian(3.0), seed=1)
    x = batch(12, 10)
    whole = dichotomies(nets, x, method="refined")
    half = dichotomies(nets[3:], x, method="refined")
    assert whole.which[4].tolist() == half.which[1].tolist() and np.abs(whole.times[4] - half.times[1]).max() < 1e-9
    monkeypatch.setattr(MODULE, "_FUNCTIONS", 5)  # inputs of one network in three parts
    again = dichotomies(nets, x, method="refined")
    assert again.flips.tolist() == whole.flips.tolist() and again.counts.tolist() == whole.counts.tolist()
    exact = dichotomies(nets, x, method="exact")
    assert exact.flips.tolist() == whole.flips.tolist() and exact.counts.tolist() == whole.counts.tolist()


def test_flips_close_together_are_put_in_order() -> None:
    """Two inputs that differ by 1e-9 flip 1e-9 apart: far below any step, and in the order of the closed forms."""
    nets = ensemble(1, [10, 30, 30, 1], "hardtanh", Gaussian(3.0), seed=1)
    x = batch(4, 10)
    x = torch.cat([x, x + 1e-9 * batch(4, 10, 5)])
    exact, refined = (dichotomies(nets, x, method=method) for method in ("exact", "refined"))
    assert refined.flips[0] == exact.flips[0] > 20 and np.diff(exact.times[0]).min() < 1e-8
    assert refined.which[0].tolist() == exact.which[0].tolist() and refined.unresolved == 0
    twins = dichotomies(nets, torch.cat([x[:1], x[:1]]), method="refined")
    assert twins.unresolved == twins.flips[0] and (np.diff(twins.times[0])[::2] == 0).all()  # one input twice: no order


def test_budget_of_points() -> None:
    nets = ensemble(3, [10, 30, 30, 30, 1], "hardtanh", Gaussian(4.0), seed=1)
    found = dichotomies(nets, batch(8, 10), method="refined", points=200)
    assert found.unresolved > 0 and "unresolved" in str(found)
    assert dichotomies(nets, batch(8, 10), method="refined").unresolved == 0


def test_networks_one_by_one_and_convolutions() -> None:
    nets, x = ensemble(3, [10, 20, 1], "relu", Gaussian(2.0), seed=1), batch(8, 10)
    found = dichotomies(nets, x, 0)
    assert found.counts.tolist() == [int(dichotomies(nets[i : i + 1], x, 0).counts[0]) for i in range(3)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)).eval()
    for layer in ("0", 1):
        one, two = (dichotomies(model, x[:, None], layer, method=m, output=1) for m in ("exact", "refined"))
        assert one.counts == two.counts and one.flips == two.flips and one.flips[0] > 0


def test_model_comes_back() -> None:
    for activation in ("hardtanh", "tanh"):
        for dtype in (torch.float32, torch.float64):
            model = mlp([10, 20, 1], activation, Gaussian(3.0), seed=1, dtype=dtype).train()
            before = {k: v.clone() for k, v in model.state_dict().items()}
            pointer = model[0].weight.data_ptr()
            first = dichotomies(model, batch(5, 10))
            assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
            assert model.training and model[0].weight.data_ptr() == pointer and not model[0]._forward_hooks
            assert dichotomies(model, batch(5, 10)).flips[0] == first.flips[0] > 0


def test_random_walk() -> None:
    """1 and 2 labellings after 0 and 1 flips; after 2 flips the same input flips back with probability 1/s."""
    mean, error = random_walk(4, [0, 1, 2, 1000], walks=400)
    assert mean[0] == 1 and mean[1] == 2 and mean[3] == 16
    assert abs(mean[2] - (3 - 1 / 4)) < 4 * math.sqrt(0.25 * 0.75 / 400)  # fails by chance once in 16000
    assert error[2] == pytest.approx(math.sqrt(0.25 * 0.75 / 400), rel=0.3)


def test_table() -> None:
    found = dichotomies(ensemble(12, [5, 1], "hardtanh", Gaussian(1.0), seed=1), batch(4, 5))
    assert found.to_pandas().dichotomies.tolist() == [8] * 12 and found.count == 8 and found.error == 0
    assert "of 2^4" in str(found) and "2 networks more" in str(found)


@pytest.mark.parametrize(("change", "message"), [
    ({"layer": 5}, "numbered from 0"),
    ({"layer": "1"}, "without a weight matrix"),
    ({"layer": "first"}, "no layer 'first'"),
    ({"output": 3}, "outputs, numbered"),
    ({"inputs": torch.zeros(4)}, "s >= 1"),
    ({"inputs": torch.zeros(4, 3)}, "does not take"),
    ({"inputs": torch.full((4, 10), torch.nan)}, "NaN"),
    ({"other": torch.zeros(3)}, "shape"),
    ({"caution": 0.0}, "caution=.*> 0"),
    ({"points": 0}, ">= 1"),
    ({"output": -1}, ">= 0"),
    ({"inputs": torch.zeros(0, 10)}, "s >= 1"),
    ({"model": ensemble(3, [10, 5, 1]), "inputs": torch.zeros(2, 4, 10)}, "inputs of their own"),
    ({"model": ensemble(3, [10, 5, 1]), "inputs": torch.zeros(4, 9), "method": "refined"}, "does not take"),
    ({"model": ensemble(3, [10, 5, 1]), "output": 1, "method": "refined"}, "outputs, numbered"),
    ({"method": "fast"}, "'auto'"),
    ({"model": 3}, "give a module"),
    ({"model": mlp([10, 20, 1], "tanh"), "method": "exact"}, "'refined'"),
])  # fmt: skip
def test_bad_input(change: dict, message: str) -> None:
    arguments = {"model": mlp([10, 20, 1], seed=0), "inputs": batch(4, 10), **change}
    with pytest.raises(InputError, match=message):
        dichotomies(arguments.pop("model"), arguments.pop("inputs"), **arguments)


def test_shared_and_parametrized_layers_are_refused() -> None:
    shared = nn.Linear(10, 10)
    with pytest.raises(InputError, match="more than once"):
        dichotomies(nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(10, 1)), batch(4, 10))
    with pytest.raises(InputError, match="2 times"):
        dichotomies(nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(10, 1)), batch(4, 10))
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(10, 1))
    with pytest.raises(InputError, match="parametrized"):
        dichotomies(nn.Sequential(normed), batch(4, 10))
