"""Propagation: fixed points, chi, residual laws of Hayou's appendix."""

import math

import numpy as np
import pytest
import torch

from epoch0.errors import InputError
from epoch0.theory.mean_field import chi, variance_map
from epoch0.theory.mean_field.correlations import pair_mean
from epoch0.theory.mean_field.moments import propagate


@pytest.mark.parametrize("name", ["tanh", "relu", "erf", "elu"])
def test_dense_is_the_recursion(name: str) -> None:
    found = propagate(name, 1.4, 0.3, 6, q=0.8, c=0.6, density=0.9)
    q, k = 0.8, 0.48
    for layer in range(6):
        assert found.chi[layer] == pytest.approx(chi(name, 1.4, q, 0.9), rel=1e-9)
        k = 0.09 + 0.9 * 1.96 * float(pair_mean(name, q, q, k / q))
        q = variance_map(name, math.sqrt(0.9) * 1.4, 0.3, q)
        assert found.q[layer + 1] == pytest.approx(q, rel=1e-9)
        assert found.c is not None and found.c[layer + 1] == pytest.approx(k / q, rel=1e-9)
    assert found.log_gain == pytest.approx(np.log(found.chi).sum())
    np.testing.assert_allclose(found.gradient, np.exp(np.append(np.cumsum(np.log(found.chi[::-1]))[::-1], 0.0)))


def test_edge_of_chaos_is_critical_and_phases_are_told() -> None:
    assert propagate("tanh", math.sqrt(1.700796), 0.2, 100, q=0.512079).phase == "critical"
    assert propagate("tanh", 1.0, 0.2, 100).phase == "ordered"
    assert propagate("tanh", 2.0, 0.2, 100, c=0.5).phase == "chaotic"
    assert "chaotic" in str(propagate("tanh", 2.0, 0.2, 100, c=0.5))


def test_relu_residual_laws() -> None:
    """q grows by 1 + weight_std^2/2 a block; the stable network tends to exp(weight_std^2/2) times its start."""
    plain = propagate("relu", 1.0, 0.0, 20, architecture="residual", c=0.3)
    np.testing.assert_allclose(plain.q, 1.5 ** np.arange(21), rtol=1e-12)
    np.testing.assert_allclose(plain.chi, 1.5, rtol=1e-12)
    stable = propagate("relu", 1.0, 0.0, 4000, architecture="stable")
    assert stable.q[-1] == pytest.approx(math.exp(0.5), rel=1e-4)
    assert stable.phase == "critical"
    deep = propagate("relu", 1.0, 0.0, 400, architecture="residual", c=0.3)
    assert deep.gap is not None
    # 1 - c ~ kappa / l^2: its inverse root gains a constant a layer, from f(c) = c + (2 sqrt 2 / 3 pi)(1 - c)^(3/2)
    step = (deep.gap[400] ** -0.5 - deep.gap[200] ** -0.5) / 200
    assert step == pytest.approx(math.sqrt(2) / (3 * math.pi) / 3, rel=0.03)


def test_close_inputs_keep_their_distance() -> None:
    found = propagate("gelu", 1.6, 0.1, 3, q=0.9, c=1 - 2.0**-40)
    assert found.gap is not None
    qs = found.q
    for layer in range(3):
        expected = found.gap[layer] * found.chi[layer] * qs[layer] / qs[layer + 1]
        assert found.gap[layer + 1] == pytest.approx(expected, rel=1e-5)
    equal = propagate("tanh", 3.0, 0.0, 100, c=1.0)
    assert equal.gap is not None and not equal.gap.any()


def test_table_and_bad_input() -> None:
    frame = propagate("relu", 1.0, 0.1, 3, c=0.2).to_pandas()
    assert list(frame.columns) == ["layer", "q", "c", "chi", "gradient"] and len(frame) == 4
    assert len(propagate("relu", 1.0, 0.1, 0).q) == 1
    for keywords, words in (
        ({"q": np.ones(3)}, "q is a"), ({"q": -1.0}, "q=-1.0.*>= 0"),
        ({"c": 2.0}, "c=2.0.*in .-1, 1"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            propagate("relu", 1.0, 0.1, 3, **keywords)
    with pytest.raises(InputError, match="layer"):
        propagate("relu", 1e20, 0.1, 30)


@pytest.mark.parametrize("square", [lambda h: h**2, torch.exp], ids=["square", "exp"])
def test_what_grows_without_bound_is_said_without_warnings(square: object) -> None:
    with pytest.raises(InputError, match=r"overflows float64 in layer \d"):
        propagate(square, 1.5, 0.0, 50)


def test_gradients_beyond_the_largest_float_are_infinite() -> None:
    found = propagate("tanh", 30.0, 0.0, 300)
    assert np.isinf(found.gradient[0]) and found.log_gain == pytest.approx(np.log(found.chi).sum())
    with pytest.raises(InputError, match="overflows float64 in layer 942"):
        propagate("relu", 1.5, 0.0, 1800, architecture="residual")


@pytest.mark.parametrize(("arguments", "words"), [({"q": "a"}, "q='a'"), ({"c": "b"}, "c='b'")])
def test_what_is_no_number(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        propagate("tanh", 1.5, 0.0, 3, **arguments)


def test_a_gradient_beyond_the_range_of_floats_is_said_by_its_power() -> None:
    found = propagate("tanh", 6.0, 0.05, 1500, c=0.5)
    assert f"changes by 10^{found.log_gain / 2 / math.log(10):.1f} in norm" in str(found) and found.log_gain > 1500
    assert "1 layer:" in str(propagate("tanh", 1.5, 0.05, 1))
