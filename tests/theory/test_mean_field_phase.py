"""Correlation map, depth scales, phases and phase diagrams: against closed forms, iterated maps and each other."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epoch0 import activations
from epoch0.errors import InputError
from epoch0.theory.mean_field import (
    c_star,
    chi,
    correlation_map,
    depth_scale,
    edge_of_chaos,
    phase,
    phase_diagram,
    q_star,
    variance_map,
)
from quadrature_twin import iterated


def relu_map(c):
    return (c * np.arcsin(c) + np.sqrt(1 - c**2)) / math.pi + c / 2


def test_relu_correlation_map_is_the_printed_one() -> None:
    c = np.linspace(-1, 1, 41)
    np.testing.assert_allclose(correlation_map("relu", math.sqrt(2), 0.0, c), relu_map(c), atol=1e-14)
    np.testing.assert_allclose(correlation_map("relu", 0.3, 0.0, c), relu_map(c), atol=1e-14)  # q* = 0: no scale
    near = 1 - np.array([1e-4, 1e-6])
    expansion = near + 2 * math.sqrt(2) / (3 * math.pi) * (1 - near) ** 1.5
    np.testing.assert_allclose(correlation_map("relu", math.sqrt(2), 0.0, near), expansion, atol=1e-10)


CASES = st.tuples(
    st.sampled_from(["tanh", "erf", "sin", "selu", "softsign", "gelu"]), st.floats(0.3, 1.3), st.floats(0.05, 1.0)
)


@given(CASES)
def test_correlation_map_is_convex_with_slope_chi_at_one(case: tuple[str, float, float]) -> None:
    name, weight_std, bias_std = case
    c = np.linspace(0, 1, 21)
    f = correlation_map(name, weight_std, bias_std, c)
    assert f[-1] == 1.0 and f[0] >= 0 and (np.diff(f, 2) >= -1e-12).all()
    q = q_star(name, weight_std, bias_std)
    slope = (1 - float(correlation_map(name, weight_std, bias_std, 1 - 1e-6))) / 1e-6
    assert slope == pytest.approx(chi(name, weight_std, q), rel=1e-3)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "weight_std", "bias_std"),
    [
        ("tanh", 2.0, 0.3), ("tanh", 1.0, 0.3), ("erf", 1.5, 0.05), ("selu", 1.1, 0.2), ("sin", 2.0, 0.5),
        ("elu", 1.3, 0.1),
    ],
)  # fmt: skip
def test_fixed_points_and_depth_scales_of_the_iterated_maps(name: str, weight_std: float, bias_std: float) -> None:
    """Started a little off, the variance and the correlation come back by the factor exp(-1 / xi) a layer."""
    q, c = q_star(name, weight_std, bias_std), c_star(name, weight_std, bias_std)
    scale = depth_scale(name, weight_std, bias_std)
    off = 1.0005 * q
    slope = (variance_map(name, weight_std, bias_std, off) - q) / (off - q)
    assert scale.xi_q == pytest.approx(-1 / math.log(abs(slope)), rel=5e-3)
    assert float(correlation_map(name, weight_std, bias_std, c)) == pytest.approx(c, abs=1e-11)
    near = c - 1e-5
    slope = (c - float(correlation_map(name, weight_std, bias_std, near))) / 1e-5
    assert scale.xi_c == pytest.approx(-1 / math.log(slope), rel=1e-3)
    at = c + 0.1 if c < 1 else 0.5
    for _ in range(int(7 * scale.xi_c) + 1):
        at = float(correlation_map(name, weight_std, bias_std, at, q))
    assert at == pytest.approx(c, abs=1e-3)


def test_correlations_in_the_corners() -> None:
    assert c_star("tanh", 2.0, 0.0) == 0.0  # odd and without biases: uncorrelated inputs stay so
    assert c_star("tanh", 0.9, 0.0) == c_star("relu", math.sqrt(2), 0.0) == c_star("tanh", 1.0, 0.3) == 1.0
    assert c_star("tanh", 0.0, 0.3) == 1.0
    edge = edge_of_chaos("tanh", bias_std=0.2)
    assert c_star("tanh", edge.weight_std, 0.2) == 1.0 and math.isinf(depth_scale("tanh", edge.weight_std, 0.2).xi_c)
    above = c_star("tanh", edge.weight_std * (1 + 1e-5), 0.2)
    assert 0.9999 < above < 1
    at_zero = depth_scale("tanh", 0.9, 0.0)
    assert at_zero.xi_q == at_zero.xi_c == pytest.approx(-1 / math.log(0.81), rel=1e-12)
    flat = depth_scale("tanh", 0.0, 0.3)
    assert flat.xi_q == flat.xi_c == 0.0
    # the limit of q = 0: tanh is the identity there
    np.testing.assert_allclose(correlation_map("tanh", 0.9, 0.0, np.array([0.0, 0.3, 1.0])), [0, 0.3, 1], atol=1e-10)


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("name", "weight_std", "bias_std", "word"),
    [
        ("tanh", 1.0, 0.3, "ordered"), ("tanh", 2.0, 0.3, "chaotic"), ("tanh", 1.304146, 0.2, "critical"),
        ("relu", math.sqrt(2), 0.0, "critical"), ("relu", 1.414, 0.0, "critical"), ("relu", 1.0, 0.0, "ordered"),
        ("relu", 1.0, 0.5, "ordered"), ("relu", 1.5, 0.0, "diverges"), ("relu", math.sqrt(2), 0.1, "diverges"),
        ("gelu", 1.4, 0.1, "ordered"), ("gelu", 1.6, 0.1, "diverges"), ("elu", 1.3, 0.1, "chaotic"),
        ("tanh", 0.0, 0.0, "ordered"),
    ],
)  # fmt: skip
def test_phase(name: str, weight_std: float, bias_std: float, word: str) -> None:
    found = phase(name, weight_std, bias_std)
    assert found.word == word and word in str(found)
    json.dumps(found.to_dict(), allow_nan=False)
    if word == "diverges":
        assert math.isinf(found.q) and found.to_dict()["q"] is None and "from weight_std=1." in found.note
        assert found.chi == pytest.approx(weight_std**2 / 2, rel=1e-6)  # half the units are on, far out
    else:
        assert found.q == q_star(name, weight_std, bias_std)
        assert found.chi == pytest.approx(chi(name, weight_std, found.q), rel=1e-12)
        assert found.c_star == c_star(name, weight_std, bias_std)
        scales = depth_scale(name, weight_std, bias_std)
        assert (found.xi_q, found.xi_c) == (scales.xi_q, scales.xi_c)


def test_a_gain_without_bound_is_infinite() -> None:
    found = phase(lambda h: h * h, 5.0, 0.1)
    assert (found.word, found.chi, found.to_dict()["chi"]) == ("diverges", math.inf, None)
    assert phase(torch.exp, 0.3, 0.1).word == "ordered"
    diagram = phase_diagram(torch.exp, [0.3, 1.0], [0.1, 0.2])
    assert diagram.phase.tolist() == [["ordered", "diverges"]] * 2 and np.isinf(diagram.chi[:, 1]).all()
    diagram.plot().canvas.draw()


def test_density_enters_as_fewer_weights() -> None:
    sparse, dense = phase("tanh", 2.0, 0.3, density=0.36), phase("tanh", 1.2, 0.3)
    for one in ("word", "chi", "q", "c_star", "xi_q", "xi_c"):
        other = getattr(dense, one)
        assert getattr(sparse, one) == (other if isinstance(other, str) else pytest.approx(other, rel=1e-9))
    assert "density=0.36" in str(sparse)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "elu", "sigmoid", "sin"])
def test_phase_diagram_is_the_phases(name: str) -> None:
    widest = 20.0 if name == "sigmoid" else 2.5
    diagram = phase_diagram(name, np.linspace(0.1, widest, 60), np.linspace(0, 1, 50), density=0.8)
    random = np.random.default_rng(5)
    for row, column in zip(random.integers(50, size=10), random.integers(60, size=10), strict=True):
        one = phase(name, float(diagram.weight_std[column]), float(diagram.bias_std[row]), density=0.8)
        assert diagram.phase[row, column] == one.word
        assert diagram.chi[row, column] == pytest.approx(one.chi, rel=1e-7)
        assert diagram.q[row, column] == pytest.approx(one.q, rel=1e-7, abs=1e-12)
    # the edge parts the phases
    edge = diagram.edge
    for i in np.flatnonzero(np.isfinite(edge.q))[:: max(len(edge.q) // 7, 1)]:
        assert chi(name, float(edge.weight_std[i]), float(edge.q[i]), 0.8) == pytest.approx(1, abs=1e-4)
        assert variance_map(
            name, float(edge.weight_std[i]), float(edge.bias_std[i]), float(edge.q[i]), 0.8
        ) == pytest.approx(edge.q[i], rel=1e-4)
    if name == "relu":
        assert (edge.weight_std.tolist(), edge.bias_std.tolist()) == ([pytest.approx(2.5**0.5)], [0.0])


def test_phase_diagram_as_data() -> None:
    diagram = phase_diagram("gelu", [1.0, 1.4, 2.0], [0.1, 0.5])
    assert diagram.phase.tolist() == [["ordered", "ordered", "diverges"], ["ordered", "critical", "diverges"]]
    assert "ordered 50%" in str(diagram)
    table = diagram.to_pandas()
    assert table.shape == (6, 5) and table.phase.tolist() == diagram.phase.ravel().tolist()
    assert table.weight_std.tolist() == [1.0, 1.4, 2.0] * 2
    plain = json.loads(json.dumps(diagram.to_dict(), allow_nan=False))
    assert plain["q"][0][2] is None and plain["chi"][0][2] == pytest.approx(2.0, rel=1e-6)


def test_where_the_variance_map_falls_q_swings_but_settles() -> None:
    """E phi^2 may fall with q, but never faster than 1/sqrt(q), so that there are no cycles: see fixed_points."""
    bump = activations.custom(lambda h: 8 * h * torch.exp(-20 * h**2), name="bump")
    flat = activations.custom(lambda h: torch.exp(-((3 * h) ** 8)), name="flat")
    for rule in (bump, flat):
        diagram = phase_diagram(rule, np.linspace(0.1, 40, 12), [0.0, 0.1, 1.0])
        assert (diagram.phase != "diverges").all() and np.isfinite(diagram.q).all()
        for row, column in ((0, 3), (1, 6), (2, 11), (2, 0)):
            weight_std, bias_std = float(diagram.weight_std[column]), float(diagram.bias_std[row])
            end = iterated(rule, weight_std, bias_std)
            assert diagram.q[row, column] == pytest.approx(end, rel=1e-4)
            assert q_star(rule, weight_std, bias_std) == pytest.approx(end, rel=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "labels"), [
    ("tanh", ["edge"]), ("relu", ["q diverges", "edge"]), ("gelu", ["q diverges", "edge"]),
])  # fmt: skip
def test_picture(name: str, labels: list[str]) -> None:
    picture = phase_diagram(name, np.linspace(0.5, 3, 40), np.linspace(0, 1, 30)).plot()
    axes = picture.axes[0]
    legend = [text.get_text() for text in axes.get_legend().texts]
    assert all(text.startswith(label) for text, label in zip(legend, labels, strict=True))
    assert axes.get_xlim() == (0.5, 3.0) and axes.get_ylim() == (0.0, 1.0)
    assert "weight_std" in axes.get_xlabel() and "bias_std" in axes.get_ylabel()
    words = {text.get_text() for text in axes.texts}
    assert words == ({"ordered", "chaotic"} if name == "tanh" else {"ordered"})
    picture.canvas.draw()


def test_picture_of_one_phase_and_of_nothing_settled() -> None:
    for weights, words in (([0.1, 0.2, 0.3], {"ordered"}), ([2.0, 3.0], set())):
        picture = phase_diagram("relu", weights, [0.1, 0.5]).plot()
        assert {text.get_text() for text in picture.axes[0].texts} == words
        picture.canvas.draw()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: phase_diagram("tanh", [1.0, 0.5], [0.1]), r"weight_stds=\[1.0, 0.5\]: give a list of increasing"),
        (lambda: phase_diagram("tanh", [], [0.1]), "weight_stds"),
        (lambda: phase_diagram("tanh", [1.0], [-0.1]), "bias_stds"),
        (lambda: phase_diagram("tanh", np.ones((1, 1)), [0.1]), "weight_stds"),
        (lambda: phase_diagram("tanh", [1.0], [0.1], density=3.0), "density=3"),
        (lambda: phase("tanh", -1.0, 0.0), "weight_std=-1"),
        (lambda: phase(torch.sign, 1.0, 0.0), "sign jumps"),
        (lambda: correlation_map("tanh", 0.0, 0.0, 0.5), "make every pre-activation 0"),
        (lambda: correlation_map("relu", 2.0, 0.1, 0.5), "q diverges for relu"),
        (lambda: correlation_map("tanh", 1.0, 0.1, 1.5), "c=1.5|correlation"),
        (lambda: c_star("relu", 2.0, 0.0), "q diverges"),
        (lambda: depth_scale("tanh", 1.0, 0.1, density=0.0), "density=0"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
