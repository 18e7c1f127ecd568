"""Edge of chaos and fixed points: against adaptive quadrature, plain iteration, closed forms and the printed values."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epoch0 import activations
from epoch0.errors import InputError
from epoch0.theory.mean_field import chi, edge_of_chaos, q_star, variance_map
from epoch0.theory.mean_field.moments import moments_of
from quadrature_twin import adaptive, iterated

HAVE_AN_EDGE = [
    *((name, b) for name in ("tanh", "erf", "elu", "hardtanh", "selu", "softsign", "sin") for b in (0.1, 0.2, 1.0)),
    ("celu", 0.3), ("relu6", 0.5), ("sigmoid", 0.0), ("sigmoid", 1.0), ("hardsigmoid", 0.3),
    ("gelu", 0.5), ("gelu", 1.0), ("gelu_tanh", 0.5), ("silu", 0.8), ("silu", 1.0), ("mish", 0.5), ("hardswish", 1.0),
]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "bias_std"), HAVE_AN_EDGE)
def test_on_the_edge_chi_is_one_at_an_attracting_fixed_point(name: str, bias_std: float) -> None:
    point, rule = edge_of_chaos(name, bias_std=bias_std), activations.get(name)
    assert point.q is not None and point.bias_std == bias_std and point.chi == pytest.approx(1, abs=1e-12)
    slope = adaptive(lambda h: rule.derivative(h) ** 2, point.q, rule.breaks)
    assert point.weight_std**2 * slope == pytest.approx(1, abs=1e-9)

    def step(q: float) -> float:
        return bias_std**2 + point.weight_std**2 * adaptive(lambda h: rule.function(h) ** 2, q, rule.breaks)

    assert step(point.q) == pytest.approx(point.q, rel=1e-9)
    for near in (0.99, 1.01):  # attracts: the map brings q closer
        assert abs(step(near * point.q) - point.q) < 0.01 * point.q
    assert iterated(rule, point.weight_std, bias_std) == pytest.approx(point.q, rel=3e-4)


@pytest.mark.parametrize(
    ("bias_variance", "weight_variance", "q"),
    [(0.01, 1.424205, 0.273301), (0.04, 1.700796, 0.512079), (0.09, 1.947655, 0.763475)],
)
def test_tanh_as_tabulated(bias_variance: float, weight_variance: float, q: float) -> None:
    point = edge_of_chaos("tanh", bias_std=bias_variance**0.5)
    assert (point.weight_std**2, point.q) == (
        pytest.approx(weight_variance, abs=1e-6), pytest.approx(q, abs=1e-6),
    )  # fmt: skip
    back = edge_of_chaos("tanh", weight_std=point.weight_std)
    assert (back.bias_std, back.q) == (pytest.approx(point.bias_std, rel=1e-9), pytest.approx(point.q, rel=1e-9))


@pytest.mark.parametrize(
    ("name", "weight_std"),
    [("relu", 2**0.5), ("leaky_relu", (2 / (1 + 1e-4)) ** 0.5), ("identity", 1.0), ("abs", 1.0)],
)
def test_scale_free_activations_have_one_point(name: str, weight_std: float) -> None:
    for point in (edge_of_chaos(name), edge_of_chaos(name, bias_std=0.0), edge_of_chaos(name, weight_std=weight_std)):
        assert (point.weight_std, point.bias_std, point.q, point.chi) == (weight_std, 0.0, None, pytest.approx(1.0))
        assert "every q" in str(point)
    with pytest.raises(InputError, match=r"single point weight_std=.*bias_std=0.1 is off it"):
        edge_of_chaos(name, bias_std=0.1)
    with pytest.raises(InputError, match=r"weight_std=1.2 is off it"):
        edge_of_chaos(name, weight_std=1.2)


def test_relu_is_exact() -> None:
    assert edge_of_chaos("relu").weight_std == math.sqrt(2)
    assert edge_of_chaos("relu", density=0.5).weight_std == 2.0
    assert edge_of_chaos(lambda h: torch.relu(h)).weight_std == math.sqrt(2)
    smooth = edge_of_chaos(lambda h: torch.where(h > 0, 3 * h, -h))
    assert (smooth.weight_std**2, smooth.q) == (pytest.approx(2 / 10), None)


@given(st.floats(0.01, 30.0))
def test_erf_and_sine_closed_forms(q: float) -> None:
    """The whole edge in closed form, with the variance as its parameter."""
    weight_variance = math.pi / 4 * math.sqrt(1 + 4 * q)
    bias_variance = q - weight_variance * 2 / math.pi * math.asin(2 * q / (1 + 2 * q))
    point = edge_of_chaos("erf", bias_std=math.sqrt(bias_variance))
    assert (point.q, point.weight_std) == (pytest.approx(q, rel=1e-7), pytest.approx(weight_variance**0.5, rel=1e-9))
    point = edge_of_chaos("sin", bias_std=math.sqrt(q - math.tanh(q)))
    assert point.weight_std**2 == pytest.approx(2 / (1 + math.exp(-2 * q)), rel=1e-9)
    assert edge_of_chaos("erf", weight_std=weight_variance**0.5).q == pytest.approx(q, rel=1e-7)


@pytest.mark.parametrize(
    ("name", "weight_std"), [("tanh", 1.0), ("erf", math.pi**0.5 / 2), ("hardtanh", 1.0), ("elu", 1.0), ("sin", 1.0),
                             ("softsign", 1.0), ("selu", 0.6904861), ("relu6", 2**0.5)]
)  # fmt: skip
def test_without_biases_the_edge_is_at_q_zero(name: str, weight_std: float) -> None:
    point = edge_of_chaos(name)
    assert (point.weight_std, point.q) == (pytest.approx(weight_std, rel=1e-7), 0.0)
    assert edge_of_chaos(name, weight_std=point.weight_std).bias_std == 0.0


@pytest.mark.parametrize(
    ("name", "bias_std", "first"),
    [("gelu", 0.2, 0.416), ("silu", 0.3, 0.745), ("mish", 0.2, 0.308), ("hardswish", 0.5, 0.712), ("silu", 0.0, 0.745)],
)
def test_where_the_edge_repels(name: str, bias_std: float, first: float) -> None:
    """The messages' numbers: chi is 1 at the point, which repels, and q diverges from the weight_std on, not before."""
    with pytest.raises(InputError) as error:
        edge_of_chaos(name, bias_std=bias_std)
    text = str(error.value)
    assert "repels" in text and f"for bias_std from {first}" in text[: text.rindex(" on.")]
    with pytest.raises(InputError) as error:
        q_star(name, 10.0, bias_std)
    limit = float(str(error.value).split("from weight_std=")[1].split()[0])
    rule = activations.get(name)
    assert math.isinf(iterated(rule, 1.0005 * limit, bias_std, 100_000))
    assert iterated(rule, 0.9995 * limit, bias_std) < 100
    weight, q = (float(text.split(f"At weight_std={''}")[1].split(",")[0]), float(text.split(" q=")[1].split(" ")[0]))
    assert chi(rule, weight, q) == pytest.approx(1, abs=1e-5)
    if q > 0:
        assert variance_map(rule, weight, bias_std, q) == pytest.approx(q, rel=1e-5)
        assert variance_map(rule, weight, bias_std, 1.01 * q) > 1.01 * q
        assert variance_map(rule, weight, bias_std, 0.99 * q) < 0.99 * q
    # and where the message says that there is one, there is one
    assert edge_of_chaos(name, bias_std=first + 0.006).q is not None


def test_no_edge_at_all() -> None:
    with pytest.raises(InputError, match=r"no edge of chaos at bias_std=0\.1\. Nor is there one at any other"):
        edge_of_chaos("softplus", bias_std=0.1)
    with pytest.raises(InputError, match=r"no edge of chaos at weight_std=0\.9\. There is one for weight_std from 1 "):
        edge_of_chaos("tanh", weight_std=0.9)
    with pytest.raises(InputError, match="derivative is 0 everywhere"):
        edge_of_chaos(lambda h: 0 * h)
    with pytest.raises(InputError, match="any other setting"):
        edge_of_chaos(lambda h: h**3, bias_std=0.1)
    with pytest.raises(InputError, match="sign jumps, so it tears inputs apart"):
        edge_of_chaos(torch.sign)
    with pytest.raises(InputError, match=r"no edge of chaos at bias_std=0\.1\. "):
        edge_of_chaos(lambda h: h + torch.sin(h) ** 2, bias_std=0.1)


def test_several_solutions_are_all_told() -> None:
    point = edge_of_chaos("gelu", weight_std=1.4)
    other = [float(part.split("=")[1]) for part in point.note.split("also at ")[1].split(", ")]
    assert other[:2] == pytest.approx([1.4, 0.686], abs=1e-3)
    for (weight_std, bias_std, q), digits in (((point.weight_std, point.bias_std, point.q), 1e-9), (other, 1e-5)):
        assert chi("gelu", weight_std, q) == pytest.approx(1, abs=digits)
        assert variance_map("gelu", weight_std, bias_std, q) == pytest.approx(q, rel=digits)


@given(st.sampled_from(["tanh", "elu", "sigmoid", "hardtanh"]), st.floats(0.05, 1.0), st.floats(0.1, 1.0))
def test_density_scales_the_weights(name: str, density: float, bias_std: float) -> None:
    dense, sparse = edge_of_chaos(name, bias_std=bias_std), edge_of_chaos(name, bias_std=bias_std, density=density)
    assert sparse.weight_std == pytest.approx(dense.weight_std / math.sqrt(density), rel=1e-9)
    assert sparse.q == pytest.approx(dense.q, rel=1e-9)
    kept = sparse.weight_std * math.sqrt(density)
    assert q_star(name, sparse.weight_std, bias_std, density) == pytest.approx(q_star(name, kept, bias_std), rel=1e-9)


def test_more_bias_needs_more_weight() -> None:
    many = [edge_of_chaos("tanh", bias_std=bias_std) for bias_std in np.linspace(0, 2, 30).tolist()]
    assert (np.diff([point.weight_std for point in many]) > 0).all()
    assert (np.diff([point.q for point in many]) > 0).all()


FIXED = st.tuples(
    st.sampled_from([name for name in activations.KNOWN if name != "identity"]), st.floats(0, 3), st.floats(0, 1.5)
)


@given(FIXED)
def test_q_star_is_where_plain_iteration_ends(case: tuple[str, float, float]) -> None:
    name, weight_std, bias_std = case
    try:
        q = q_star(name, weight_std, bias_std)
    except InputError as error:
        assert "q diverges" in str(error)
        limit = float(str(error).split("it does from weight_std=")[1].split()[0])
        assert weight_std >= limit * (1 - 1e-5)
        start, later = (iterated(activations.get(name), weight_std, bias_std, n) for n in (100, 200))
        assert later > start or math.isinf(later)  # without bound, perhaps slowly
        return
    assert variance_map(name, weight_std, bias_std, q) == pytest.approx(q, rel=1e-9, abs=1e-13)
    end = iterated(activations.get(name), weight_std, bias_std, 1000)
    slope = weight_std**2 * moments_of(activations.get(name)).square_rate(q)
    if slope < 0.97:  # else 1000 layers do not settle
        assert end == pytest.approx(q, rel=1e-4, abs=2e-9)


def test_q_star_in_the_corners() -> None:
    assert q_star("relu", math.sqrt(2), 0.0) == 1.0  # every q is fixed; it starts at 1
    assert q_star("relu", 1.0, 0.5) == pytest.approx(0.5, rel=1e-12)
    assert q_star("tanh", 0.0, 0.3) == pytest.approx(0.09, rel=1e-12)
    assert q_star("tanh", 0.0, 0.0) == q_star("tanh", 1.0, 0.0) == q_star("hardtanh", 1.0, 0.0) == 0.0
    assert q_star("tanh", 1.0, 1e-7) == pytest.approx(1e-7 / math.sqrt(2), rel=1e-4)  # q = b^2 + q - 2 q^2
    assert q_star("identity", 0.5, 1.0) == pytest.approx(4 / 3, rel=1e-12)
    with pytest.raises(InputError, match=r"diverges for relu at weight_std=2, bias_std=0.1: .* weight_std=1\.41421"):
        q_star("relu", 2.0, 0.1)
    with pytest.raises(InputError, match=r"density=0.5: with this bias_std it does from weight_std=2 on"):
        q_star("relu", 3.0, 0.1, density=0.5)
    # where E phi^2 falls with q the map overshoots
    bump = activations.custom(lambda h: h * torch.exp(-(h**2)), name="bump")
    q = q_star(bump, 4.0, 0.1)
    assert variance_map(bump, 4.0, 0.1, q) == pytest.approx(q, rel=1e-9)
    narrow = activations.custom(lambda h: torch.exp(-((3 * h) ** 8)), name="narrow")
    assert q_star(narrow, 1.0, 0.3) == pytest.approx(iterated(narrow, 1.0, 0.3), rel=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: edge_of_chaos("tanh", bias_std=0.1, weight_std=1.0), "give one of them"),
        (lambda: edge_of_chaos("tanh", bias_std=-0.1), "bias_std=-0.1"),
        (lambda: edge_of_chaos("tanh", weight_std=math.inf), "weight_std=inf"),
        (lambda: edge_of_chaos("tanh", bias_std=True), "bias_std=True"),
        (lambda: edge_of_chaos("tahn"), "Did you mean 'tanh'"),
        (lambda: edge_of_chaos("tanh", density=0.0), "density=0"),
        (lambda: q_star("tanh", math.nan, 0.0), "weight_std=nan"),
        (lambda: edge_of_chaos("tanh", weight_std=0.0), "no edge of chaos at weight_std=0"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


def edge(name: str, bias_std: float) -> str:
    """The cell of the table."""
    try:
        return f"{edge_of_chaos(name, bias_std=bias_std).weight_std:.4f}"
    except InputError:
        return "–"


@pytest.mark.slow
def test_the_table_of_the_page_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mean-field.md").read_text()
    lines = [line.strip().strip("|").split("|") for line in page.splitlines() if "|" in line]
    rows = [[cell.strip(" `") for cell in line] for line in lines]
    head = next(row for row in rows if row[0] == "activation" and row[1] == "bias_std` 0")
    biases = [0.0, *map(float, head[2:])]
    values = {row[0]: row[1:] for row in rows if row[0] in activations.KNOWN and len(row) == len(head)}
    assert list(values) == list(activations.KNOWN)
    for name, printed in values.items():
        assert [edge(name, bias_std) for bias_std in biases] == printed
