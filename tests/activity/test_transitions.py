"""Transitions: against the line walk's break points, a plain loop over many points, closed forms and symmetries."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import epoch0 as e0
from epoch0.activity import halving, transitions
from epoch0.activity.halving import refine
from epoch0.curves import Arc, Curve, GreatCircle, Line, Polyline, SemicircularArcs
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import ensemble, mlp


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
def test_both_methods_are_the_plain_loop(shape: str, activation: str) -> None:
    model, curve = net(activation), CURVES[shape](*points(1, 12))
    expected = sampled(model, curve, FACES[activation], 100_001)
    for method in ("auto", "refined"):
        found = transitions(model, curve, method=method)
        assert found.exact == (method == "auto")
        assert [counts[0].tolist() for counts in found.neurons] == [row.tolist() for row in expected[:-1]]


@pytest.mark.parametrize("activation", ["leaky_relu", "relu6", "abs"])
def test_other_piecewise_linear_activations(activation: str) -> None:
    model, curve = net(activation), Arc(*points(2, 12))
    expected = sampled(model, curve, FACES[activation], 100_001)
    for method in ("exact", "refined"):
        found = transitions(model, curve, method=method)
        assert [counts[0].tolist() for counts in found.neurons] == [row.tolist() for row in expected[:-1]]


def test_on_lines_they_are_the_break_points() -> None:
    model, (x0, x1) = net("hardtanh", 3), points(3, 12)
    found, line = transitions(model, Line(x0, x1)), e0.regions.on_line(model, x0, x1)
    assert found.times is not None and found.owners is not None
    assert found.count == len(line.breakpoints) and (found.times[0] == line.breakpoints).all()
    assert (found.owners[0][:, 0] == line.owner_layer).all() and (found.owners[0][:, 1] == line.owner_neuron).all()
    assert (found.faces[1][0] == np.bincount(line.owner_face[line.owner_layer == 1], minlength=2)).all()


def test_times_on_circles_are_where_values_meet_their_faces() -> None:
    model, curve = net("hardtanh", 4), GreatCircle(*points(4, 12))
    found = transitions(model, curve)
    assert found.times is not None and found.owners is not None
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
    assert transitions(model, curve, method="refined").count == expected


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


def test_convolutions_and_skips_on_circles() -> None:
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
    exact, refined = (transitions(model, Arc(x0, x1), method=method) for method in ("exact", "refined"))
    assert exact.count == refined.count > 20
    assert all((a == b).all() for a, b in zip(exact.neurons, refined.neurons, strict=True))


def test_max_pooling_on_lines_only() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1))
    x0, x1 = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    found = transitions(model, Line(x0, x1))
    assert found.count == e0.regions.on_line(model, x0, x1).count - 1 and len(found.layers) == 2
    assert found.faces[0].shape == (1, 4)  # as many as a window has entries, switched to or not
    with pytest.raises(InputError, match="maximum"):
        transitions(model, Arc(x0, x1))


def test_smooth_networks_with_a_threshold() -> None:
    model, curve = net("tanh", 7), Arc(*points(7, 12))
    found = transitions(model, curve, threshold=(-0.5, 0.5))
    expected = sampled(model, curve, (-0.5, 0.5), 100_001)
    assert [counts[0].tolist() for counts in found.neurons] == [row.tolist() for row in expected[:-1]]
    assert [f.sum() for f in found.faces] == found.per_layer[0].tolist() and found.faces[0].shape == (1, 2)


def test_ensembles_are_their_networks() -> None:
    nets = ensemble(3, [8, 20, 20, 1], "hardtanh", Gaussian(2.0), seed=2)
    curve = Arc(*points(8, 8))
    found = transitions(nets, curve)
    alone = [transitions(one, curve) for one in nets]
    assert found.counts.tolist() == [one.count for one in alone] and found.networks == 3
    assert found.times is not None and len(found.times) == 3
    again = transitions(list(nets), curve, method="refined")
    assert again.counts.tolist() == found.counts.tolist() and again.points > 0 and not again.exact


def test_hard_tanh_of_small_weights_is_linear() -> None:
    assert transitions(mlp([8, 20, 20, 1], "hardtanh", Gaussian(0.01)), Arc(*points(0, 8))).count == 0


@pytest.mark.slow
@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from(["relu", "hardtanh"]))
def test_laws(seed: int, activation: str) -> None:
    """A closed curve crosses every face an even number of times; a curve backwards as often; both methods agree."""
    model, (x0, x1) = net(activation, seed, (6, 10, 10, 1)), points(seed, 6)
    whole = transitions(model, GreatCircle(x0, x1))
    assert all((counts % 2 == 0).all() for counts in whole.neurons)
    there, back = transitions(model, Arc(x0, x1)), transitions(model, Arc(x1, x0))
    assert all((a == b).all() for a, b in zip(there.neurons, back.neurons, strict=True))
    quarters = sum(transitions(model, Arc(a, b)).count for a, b in [(x0, x1), (x1, -x0), (-x0, -x1), (-x1, x0)])
    assert quarters == whole.count == transitions(model, GreatCircle(x0, x1), method="refined").count


def test_refinement_says_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dip thinner than the first step, between two of its points, next to a wave that is seen."""

    def dip(t: torch.Tensor) -> list[torch.Tensor]:
        return [torch.stack([torch.sin(6 * math.pi * t) + 0.01, 0.3 - torch.exp(-(((t - 0.5033) / 2e-4) ** 2))], 1)]

    monkeypatch.setattr(halving, "_AUDIT", 10_000)
    found = refine(dip, [(0.0,)])
    assert found.counts[0].tolist() == [[6, 0]]  # both crossings of the dip lie between two points
    assert found.missed == found.missed_at_most == 0  # every step was looked at again
    monkeypatch.setattr(halving, "_FIRST", 2048)
    closer = refine(dip, [(0.0,)])
    assert closer.counts[0].tolist() == [[6, 2]]


def test_the_audit_tells_of_carelessness() -> None:
    """With hardly any caution crossings are missed: the second look finds some, and their number is near the truth."""
    nets, curve = ensemble(2, [16, 64, 64, 64, 64, 1], "hardtanh", Gaussian(3.0), seed=3), GreatCircle(*points(9, 16))
    truth = transitions(nets, curve).count
    careless = transitions(nets, curve, method="refined", caution=0.02)
    lost = truth - careless.count
    assert lost > 0 and 0 < careless.missed <= careless.missed_at_most and careless.missed_at_most >= lost
    assert "missed" in str(careless)
    careful = transitions(nets, curve, method="refined")
    assert truth - careful.count <= 2


def test_budget_of_points_is_kept() -> None:
    found = transitions(net("hardtanh"), GreatCircle(*points(1, 12)), method="refined", points=500)
    assert found.unresolved > 0 and found.points < 1500 and "unresolved" in found.how


def test_the_model_comes_back_as_it_was() -> None:
    for activation, more in (("hardtanh", {}), ("tanh", {"threshold": 0.0})):
        model = net(activation).train()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        state = torch.get_rng_state()
        transitions(model, Arc(*points(1, 12)), **more)
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
    ({"model": net("tanh")}, "threshold"),
    ({"model": nn.Linear(12, 2)}, "no nonlinearity"),
    ({"curve": Arc(*points(0, 5))}, "does not take points"),
    ({"method": "fast"}, "'auto'"),
    ({"caution": 0}, "caution=.*> 0"),
    ({"points": 0}, ">= 1"),
    ({"threshold": float("nan")}, "finite"),
    ({"threshold": (0.1, 0.1)}, "different"),
    ({"model": 3}, "give a module"),
    ({"model": []}, "give a module"),
    ({"model": net("tanh"), "threshold": 0.0, "method": "exact"}, "smooth"),
    ({"threshold": 0.5, "method": "exact"}, "thresholds"),
    ({"model": [net("relu"), net("relu", sizes=(12, 5, 2))]}, "one architecture"),
])  # fmt: skip
def test_bad_input(change: dict, message: str) -> None:
    given_ = {"model": net("relu"), "curve": Arc(*points(0, 12)), **change}
    with pytest.raises(InputError, match=message):
        transitions(given_.pop("model"), given_.pop("curve"), **given_)


def test_a_curve_needs_two_different_ends() -> None:
    with pytest.raises(InputError, match="same point"):
        Arc(torch.ones(3), torch.ones(3))
