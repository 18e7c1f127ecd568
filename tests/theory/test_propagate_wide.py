"""Propagation against finite random networks: gradients going back, residual networks.

The part of order 1/width is removed: each comparison is of (4 * mean at width 4 n - mean at width n) / 3 with the
prediction at infinite width, in units of its standard error, and of C/n^2 only C/(4 n^2) is left, below a fifth of a
standard error. More than 5.5 of them: 4e-8 a comparison for Gaussian means, here over 120 networks and more. About 400
comparisons: 2e-5 in all, with fixed seeds.
"""

import math

import numpy as np
import pytest

from epoch0.theory.mean_field.moments import propagate
from wide_networks import Setting, gradients, infinite, residual
from width_bands import band

LIMIT = 5.5


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "setting",
    [Setting("tanh", 1.3, 0.2), Setting("hardtanh", 1.8, 0.2), Setting("gelu", 1.45, 0.6), Setting("relu", 1.55, 0.3)],
    ids=str,
)
def test_propagation_is_that_of_the_quadrature_twin(setting: Setting) -> None:
    """The twin's error is below 2e-7 here (against finer panels)."""
    q = setting.bias_std**2 + setting.weight_std**2
    c = (setting.bias_std**2 + setting.weight_std**2 / 2) / q
    found = propagate(setting.activation, setting.weight_std, setting.bias_std, 12, q=q, c=c)
    law = band(setting, 10**9, 12)
    for name, values in (("log_q", np.log(found.q)), ("c", found.c), ("chi", found.chi)):
        np.testing.assert_allclose(values[:12], law.values[name], rtol=0, atol=3e-7, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [Setting("tanh", 2.0, 0.2), pytest.param(Setting("hardtanh", 1.07, 0.2), marks=pytest.mark.slow)],
    ids=str,
)
def test_gradients_going_back(setting: Setting) -> None:
    """The gradient's variance at each layer over that at the last: widths 40 and 160, 600 and 200 networks."""
    seen, error = infinite(gradients(setting, 40, 8, 600, seed=1), gradients(setting, 160, 8, 200, seed=2), 4)
    q = setting.bias_std**2 + setting.weight_std**2
    found = propagate(setting.activation, setting.weight_std, setting.bias_std, 7, q=q)
    off = np.abs(found.gradient - seen.numpy()) / np.maximum(error.numpy(), 1e-12)
    assert (off < LIMIT).all(), (found.gradient, seen, error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "word", "scale"),
    [
        pytest.param("tanh", "residual", 1.0, marks=pytest.mark.slow),
        ("relu", "stable", 6**-0.5),
        pytest.param("relu", "residual", 1.0, marks=pytest.mark.slow),
        pytest.param("tanh", "stable", 6**-0.5, marks=pytest.mark.slow),
    ],
)
def test_residual_networks(activation: str, word: str, scale: float) -> None:
    """Widths 40 and 160, 1/width removed: q and c of 7 layers, chi of 6 blocks; 80 comparisons: 3e-6 in all."""
    setting = Setting(activation, 1.3, 0.4)
    narrow = residual(setting, 40, 6, 400, scale=scale, seed=3)
    wide = residual(setting, 160, 6, 200, scale=scale, seed=4)
    found = propagate(activation, 1.3, 0.4, 6, q=1.0, c=0.5, architecture=word)
    pairs = {
        "q": (found.q, narrow.q1[0], wide.q1[0]),
        "c": (found.c, narrow.c[0], wide.c[0]),
        "chi": (found.chi, narrow.chi[0][:, 1:], wide.chi[0][:, 1:]),
    }
    for name, (theory, few, many) in pairs.items():
        seen, error = infinite(few, many, 4)
        assert (np.abs(theory[: len(seen)] - seen.numpy()) < LIMIT * error.numpy()).all(), (name, theory, seen, error)


@pytest.mark.sample(1)
@pytest.mark.parametrize("weight_std", [1.0, math.sqrt(2)])
def test_residual_relu_in_closed_form(weight_std: float) -> None:
    """q = (1 + sigma_w^2/2)^l and 1 - c ~ kappa / l^2, kappa = (9 pi^2/2) (1 + 2/sigma_w^2)^2.

    From f(c) = c + (2 sqrt2/3 pi)(1-c)^(3/2): e' = e - beta e^(3/2) for e = 1 - c, and 1/sqrt(e) gains beta/2 + (3/8)
    beta^2 sqrt(e) a layer. So e ~ (2 / (beta l))^2 up to a relative A/l + 3 log(l)/l; from l and 2 l without A, 2/l
    and the squares of what was taken away are left.
    """
    half = weight_std**2 / 2
    found = propagate("relu", weight_std, 0.0, 1000, q=1e-290, c=0.0, architecture="residual")
    growth = np.diff(np.log(found.q))
    np.testing.assert_allclose(growth, math.log1p(half), rtol=1e-9)
    kappa = 4.5 * math.pi**2 * (1 + 1 / half) ** 2
    layers = np.array([250, 500, 1000])
    assert found.gap is not None
    scaled = found.gap[layers] * layers**2 / kappa
    assert (np.diff(scaled) > 0).all() and scaled[-1] == pytest.approx(1.0, abs=0.1)
    assert 2 * scaled[-1] - scaled[-2] == pytest.approx(1.0, abs=6 / 500)
    blocks = 3000
    stable = propagate("relu", weight_std, 0.0, blocks, q=2.0, c=0.3, architecture="stable")
    assert stable.q[-1] == pytest.approx(2 * (1 + half / blocks) ** blocks, rel=1e-9)
    assert stable.q[-1] == pytest.approx(2 * math.exp(half), rel=half**2 / blocks)
    np.testing.assert_allclose(stable.chi, 1 + half / blocks, rtol=1e-12)
