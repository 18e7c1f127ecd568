"""Transitions: against the line walk's break points, a plain loop over many points, closed forms and symmetries."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import epoch0 as e0
from epoch0.activity import transitions
from epoch0.curves import Arc, Curve, GreatCircle, Line, Polyline, SemicircularArcs
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import ensemble, mlp

MODULE = sys.modules["epoch0.activity.transitions"]  # the function has the module's name


def points(seed: int, size: int, count: int = 2) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net(activation: str, seed: int = 0, sizes: tuple[int, ...] = (12, 30, 30, 30, 2)) -> nn.Sequential:
    return mlp(list(sizes), activation, Gaussian(2.0), Gaussian(0.3), seed=seed)


def sampled(model: nn.Sequential, curve: Curve, faces: tuple[float, ...], count: int) -> list[np.ndarray]:
    """Twin: sign changes of every pre-activation between neighbouring points, layer by layer, in plain torch."""
    totals: list[np.ndarray] = []
    t = torch.linspace(0, 1, count, dtype=torch.float64)
    for start in range(0, count - 1, 20_000):
        z = curve.to(torch.float64).point(t[start : start + 20_001])
        found = []
        for part in model:
            if not isinstance(part, nn.Linear):
                found.append(sum(((z[1:] > f) != (z[:-1] > f)).sum(dim=0) for f in faces).numpy())
                z = part(z)
            else:
                z = z @ part.weight.detach().double().T + part.bias.detach().double()
        found.append(((z[1:] > 0) != (z[:-1] > 0)).sum(dim=0).numpy())
        totals = [a + b for a, b in zip(totals, found, strict=True)] if totals else found
    return totals


CURVES = {
    "arc": lambda a, b: Arc(a, b),
    "circle": lambda a, b: GreatCircle(a, b),
    "semicircles": lambda a, b: SemicircularArcs(a, b, planes=5),
    "polyline": lambda a, b: Polyline(torch.stack([a, b, -a, 0.3 * b])),
    "line": lambda a, b: Line(a, b),
}
FACES = {"relu": (0.0,), "hardtanh": (-1.0, 1.0), "leaky_relu": (0.0,), "relu6": (0.0, 6.0), "abs": (0.0,)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape", CURVES)
@pytest.mark.parametrize("activation", ["relu", "hardtanh"])
def test_both_ways_are_the_plain_loop(shape: str, activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, curve = net(activation), CURVES[shape](*points(1, 12))
    expected = sampled(model, curve, FACES[activation], 100_001)
    for limit in (4096, 0):  # with closed forms, and as a large network
        monkeypatch.setattr(MODULE, "_EXACT_UP_TO", limit)
        found = transitions(model, curve)
        assert found.exact == (limit > 0 or shape in ("line", "polyline"))
        assert found.exact or "away from the curve" in str(found)
        assert [counts[0].tolist() for counts in found.neurons] == [row.tolist() for row in expected[:-1]]


@pytest.mark.parametrize("activation", ["leaky_relu", "relu6", "abs"])
def test_other_piecewise_linear_activations(activation: str) -> None:
    model, curve = net(activation), Arc(*points(2, 12))
    expected = sampled(model, curve, FACES[activation], 100_001)
    found = transitions(model, curve)
    assert [counts[0].tolist() for counts in found.neurons] == [row.tolist() for row in expected[:-1]]


def test_on_lines_they_are_the_break_points() -> None:
    model, (x0, x1) = net("hardtanh", 3), points(3, 12)
    found, line = transitions(model, Line(x0, x1)), e0.regions.on_line(model, x0, x1)
    assert found.count == len(line.breakpoints) and (found.times[0] == line.breakpoints).all()
    assert (found.owners[0][:, 0] == line.owner_layer).all() and (found.owners[0][:, 1] == line.owner_neuron).all()
    assert (found.faces[1][0] == np.bincount(line.owner_face[line.owner_layer == 1], minlength=2)).all()


def test_times_on_circles_are_where_values_meet_their_faces() -> None:
    model, curve = net("hardtanh", 4), GreatCircle(*points(4, 12))
    found = transitions(model, curve)
    t, owners = found.times[0], found.owners[0]
    z = curve.point(torch.from_numpy(t))
    for number in range(3):
        h = nn.functional.linear(z, model[2 * number].weight.double(), model[2 * number].bias.double())
        mine = np.flatnonzero(owners[:, 0] == number)
        at = h[mine, owners[mine, 1]].abs().detach()
        assert (at - 1).abs().max() < 1e-9
        z = nn.functional.hardtanh(h)
    assert (np.diff(t) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "hardtanh"])
def test_arc_against_a_million_points(activation: str) -> None:
    model = mlp([50, 100, 100, 100, 100, 100, 1], activation, Gaussian(2.0), seed=5)
    curve = Arc(*points(5, 50))
    expected = sum(row.sum() for row in sampled(model, curve, FACES[activation], 1_000_001)[:-1])
    assert transitions(model, curve).count == expected


def test_one_layer_has_closed_forms() -> None:
    """h = a cos + b sin on a great circle: a ReLU without bias passes 0 twice, hard tanh four times or never."""
    model = mlp([9, 200, 1], "hardtanh", Gaussian(2.0), seed=0)
    x0, x1 = points(0, 9)
    size = torch.hypot(model[0].weight.double() @ x0, model[0].weight.double() @ x1)
    found = transitions(model, GreatCircle(x0, x1))
    assert (found.neurons[0][0] == np.where(size.detach().numpy() > 1, 4, 0)).all()
    assert set(transitions(mlp([9, 50, 1], seed=0), GreatCircle(x0, x1)).neurons[0][0]) == {2}


def test_expected_crossings_of_the_first_layer() -> None:
    """P(|N(0, 2)| > 1) = erfc(1/2) of the first layer's neurons cross +-1 twice each on half a circle... counted whole.

    x0, x1 orthonormal times sqrt(n): the size of h over the circle is sigma_w times a Rayleigh variable, so 4 exp(-1/(2
    sigma_w^2)) crossings a neuron. 1000 neurons: standard error 4 sqrt(p(1-p)/1000), 1.6 % of the mean; 4 of them are
    wrong once in 16000.
    """
    model = mlp([16, 1000, 1], "hardtanh", Gaussian(1.5), seed=1)
    basis = 4 * torch.linalg.qr(points(6, 16).T)[0].T
    counts = transitions(model, GreatCircle(basis[0], basis[1])).neurons[0][0]
    p = math.exp(-1 / (2 * 1.5**2))
    assert abs(counts.mean() - 4 * p) < 4 * 4 * math.sqrt(p * (1 - p) / 1000)


def test_convolutions_and_skips_on_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(2, 4, 3, padding=1)
            self.second = nn.Conv2d(4, 4, 3, padding=1)
            self.norm = nn.BatchNorm2d(4)
            self.out = nn.Linear(4 * 16, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            x = torch.relu(x + self.norm(self.second(x)))
            return self.out(x.flatten(1))

    torch.manual_seed(0)
    model = Skip().eval()
    x0, x1 = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0)) * 2
    exact = transitions(model, Arc(x0, x1))
    monkeypatch.setattr(MODULE, "_EXACT_UP_TO", 0)
    straight = transitions(model, Arc(x0, x1))
    assert exact.exact and not straight.exact and exact.count == straight.count > 20
    assert all((a == b).all() for a, b in zip(exact.neurons, straight.neurons, strict=True))


def test_max_pooling() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1))
    x0, x1 = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    found = transitions(model, Line(x0, x1))
    assert found.count == e0.regions.on_line(model, x0, x1).count - 1 and len(found.layers) == 2
    assert found.faces[0].shape == (1, 4)  # as many as a window has entries, switched to or not
    arc = transitions(model, Arc(x0, x1))
    assert arc.method == "polyline" and arc.count == e0.regions.on_curve(model, Arc(x0, x1), pieces=500).count - 1


def test_ensembles_are_their_networks() -> None:
    nets = ensemble(3, [8, 20, 20, 1], "hardtanh", Gaussian(2.0), seed=2)
    curve = Arc(*points(8, 8))
    found = transitions(nets, curve)
    alone = [transitions(one, curve) for one in nets]
    assert found.counts.tolist() == [one.count for one in alone] and found.networks == 3
    assert len(found.times) == len(found.owners) == 3
    assert transitions(list(nets), curve).counts.tolist() == found.counts.tolist()


def test_hard_tanh_of_small_weights_is_linear() -> None:
    assert transitions(mlp([8, 20, 20, 1], "hardtanh", Gaussian(0.01)), Arc(*points(0, 8))).count == 0


@pytest.mark.slow
@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from(["relu", "hardtanh"]))
def test_laws(seed: int, activation: str) -> None:
    """A closed curve crosses every face an even number of times; a curve backwards as often."""
    model, (x0, x1) = net(activation, seed, (6, 10, 10, 1)), points(seed, 6)
    whole = transitions(model, GreatCircle(x0, x1))
    assert all((counts % 2 == 0).all() for counts in whole.neurons)
    there, back = transitions(model, Arc(x0, x1)), transitions(model, Arc(x1, x0))
    assert all((a == b).all() for a, b in zip(there.neurons, back.neurons, strict=True))
    quarters = sum(transitions(model, Arc(a, b)).count for a, b in [(x0, x1), (x1, -x0), (-x0, -x1), (-x1, x0)])
    assert quarters == whole.count


def test_the_model_comes_back_as_it_was() -> None:
    model = net("hardtanh").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    transitions(model, Arc(*points(1, 12)))
    assert model.training and not model[1]._forward_pre_hooks and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_tables() -> None:
    found = transitions(ensemble(4, [8, 20, 20, 1], "hardtanh", Gaussian(2.0), seed=2), Arc(*points(8, 8)))
    frame = found.to_pandas()
    assert frame.layer.tolist() == ["1", "3"] and frame.transitions.sum() == pytest.approx(found.counts.mean())
    assert (found.neurons[1].sum(axis=1) == found.per_layer[:, 1]).all()
    text = str(found)
    assert "4 networks" in text and "exact on circles" in text and "3" in text


@pytest.mark.parametrize(("change", "message"), [
    ({"curve": None}, "curve=None: give a Curve"),
    ({"model": net("tanh")}, "threshold for activation_patterns"),
    ({"model": nn.Linear(12, 2)}, "no nonlinearity"),
    ({"curve": Arc(*points(0, 5))}, "does not take points"),
    ({"model": 3}, "give a module"),
    ({"model": []}, "give a module"),
    ({"model": [net("relu"), net("relu", sizes=(12, 5, 2))]}, "one architecture"),
])  # fmt: skip
def test_bad_input(change: dict, message: str) -> None:
    given_ = {"model": net("relu"), "curve": Arc(*points(0, 12)), **change}
    with pytest.raises(InputError, match=message):
        transitions(given_.pop("model"), given_.pop("curve"), **given_)


def test_a_curve_needs_two_different_ends() -> None:
    with pytest.raises(InputError, match="same point"):
        Arc(torch.ones(3), torch.ones(3))
