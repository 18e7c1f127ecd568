"""Mean-field predictions against wide random networks; see width_bands for the law of the deviations at width n.

False alarms. A comparison is of a mean over independent networks with its predicted mean, 1/width included, in units of
its predicted standard deviation. Outside 5.5 lies 4e-8 of a Gaussian; the skewness of a mean over 20 networks of 2,000
units (and of more networks that are narrower) raises that by less than a factor of two. 3,150 comparisons at width
2,000: 2.5e-4 in all; 180 at width 300: 2e-5. What is of
order 1/width^2 (the shift of order 1/width times the relative variance of one network's q, at most 0.13) is below a
tenth of a standard error. The variance over the networks is held against the chi-squared quantiles at 1e-7 on either
side: 6e-4 in all at width 2,000.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from epoch0 import activations
from epoch0.theory import mean_field
from wide_networks import FUNCTIONS, Seen, Setting, dense
from width_bands import band, chi, edge, next_q, step

LIMIT = 5.5
DEPTH = 50

# bias_std on the edge, then an ordered and a chaotic (weight_std, bias_std). GELU and SiLU need a large bias: below
# 0.42 and 0.74 the fixed point with chi = 1 repels, so that no network stays there.
POINTS = {
    "tanh": (0.2, (1.0, 0.2), (2.0, 0.2)),
    "erf": (0.2, (0.8, 0.2), (1.8, 0.2)),
    "elu": (0.2, (1.0, 0.2), (1.38, 0.2)),
    "hardtanh": (0.2, (0.9, 0.2), (1.8, 0.2)),
    "gelu": (0.6, (1.2, 0.4), (1.45, 0.6)),
    "silu": (1.0, (1.3, 0.4), (1.45, 1.0)),
    "relu": (0.0, (1.2, 0.3), (1.55, 0.3)),
}


def settings(activation: str) -> list[Setting]:
    """The edge of chaos by the twin's own search, an ordered point, a chaotic one."""
    bias_std, ordered, chaotic = POINTS[activation]
    weight_std = math.sqrt(2) if activation == "relu" else edge(activation, bias_std)[0]
    return [
        Setting(activation, weight_std, bias_std, "edge"),
        Setting(activation, *ordered, "ordered"),
        Setting(activation, *chaotic, "chaotic"),
    ]


def predicted(setting: Setting, depth: int) -> dict[str, NDArray[np.float64]]:
    """The library's log q, c and chi of layers 1 .. depth for inputs of mean square 1 and mean product 1/2."""
    name, w, b = setting.activation, setting.weight_std, setting.bias_std
    q, r = b**2 + w**2, b**2 + w**2 / 2
    rows = []
    for _ in range(depth):
        rows.append((math.log(q), r / q, mean_field.chi(name, w, q)))
        r = b**2 + w**2 * float(mean_field.pair_mean(name, q, q, r / q))
        q = mean_field.variance_map(name, w, b, q)
    return dict(zip(("log_q", "c", "chi"), np.array(rows).T, strict=True))


def outside(
    all_settings: list[Setting], seen: Seen, width: int, rounding: float, off: float = 1.0
) -> tuple[list[str], list[str]]:
    """What lies outside its band: means of q, c, chi over the networks, and their spread over the networks.

    With ``off`` the prediction is made for another weight_std, that many times the true one.
    """
    wrong, spread = [], []
    networks, depth = seen.q1.shape[1:]
    low, high = stats.chi2(networks - 1).ppf([1e-7, 1 - 1e-7]) / (networks - 1)
    for i, setting in enumerate(all_settings):
        law = band(setting, width, depth)
        theory = predicted(replace(setting, weight_std=off * setting.weight_std), depth)
        found = {"log_q": seen.q1[i].log().numpy(), "c": seen.c[i].numpy(), "chi": seen.chi[i].numpy()}
        for name, values in found.items():
            half = LIMIT * law.stds[name] / math.sqrt(networks) + rounding
            miss = np.abs(values.mean(0) - theory[name] - law.shifts[name]) - half
            if (miss > 0).any():
                layer = int(miss.argmax())
                wrong.append(
                    f"{setting}: {name} of layer {layer + 1} is {values.mean(0)[layer]:.5f}, predicted "
                    f"{theory[name][layer]:.5f} {law.shifts[name][layer]:+.5f} +- {half[layer]:.5f}"
                )
            ratio = values.var(0, ddof=1) / (law.stds[name] ** 2)
            seen_well = law.stds[name] > 30 * rounding
            if ((ratio < low) | (ratio > high))[seen_well].any():
                spread.append(f"{setting}: the variance of {name} is {ratio[seen_well].round(2)} of the predicted one")
    return wrong, spread


@pytest.fixture(scope="module")
def width_300() -> tuple[list[Setting], Seen]:
    """What 50 networks did at some settings."""
    some = settings("tanh") + settings("relu")
    return some, dense(some, 300, 10, 50)


@pytest.mark.slow
def test_networks_of_width_300_are_in_the_band(width_300: tuple[list[Setting], Seen]) -> None:
    wrong, spread = outside(*width_300, 300, 1e-12)
    assert not wrong and not spread, "\n".join(wrong + spread)


def test_the_band_notices_a_weight_std_that_is_off_by_three_percent(width_300: tuple[list[Setting], Seen]) -> None:
    wrong, _ = outside(*width_300, 300, 1e-12, off=1.03)
    assert {message.split(":")[0] for message in wrong} == {str(setting) for setting in width_300[0]}


@pytest.mark.slow
def test_networks_of_width_2000_and_depth_50_are_in_the_band() -> None:
    """About 35 CPU seconds: all settings share their unit Gaussian matrices, scaled, in float32."""
    every = [setting for activation in POINTS for setting in settings(activation)]
    wrong, spread = outside(every, dense(every, 2000, DEPTH, 20, dtype=torch.float32), 2000, 4e-6)
    assert not wrong and not spread, "\n".join(wrong + spread)


@pytest.mark.sample(1)
@pytest.mark.parametrize("activation", POINTS)
def test_maps_are_those_of_the_quadrature_twin(activation: str) -> None:
    """The twin's error is below 2e-7 here (against twice as fine panels); chi by a separate one-dimensional sum."""
    for setting in settings(activation):
        theory = predicted(setting, 12)
        law = band(setting, 10**9, 12)
        for name in theory:
            np.testing.assert_allclose(theory[name], law.values[name], rtol=0, atol=3e-7, err_msg=f"{setting} {name}")


@pytest.mark.parametrize("activation", [name for name in POINTS if name != "relu"])
def test_edge_is_that_of_the_twin(activation: str) -> None:
    bias_std = POINTS[activation][0]
    weight_std, q = edge(activation, bias_std)
    found = mean_field.edge_of_chaos(activation, bias_std=bias_std)
    assert found.weight_std == pytest.approx(weight_std, rel=1e-7)
    assert found.q == pytest.approx(q, rel=3e-6)
    assert chi(Setting(activation, found.weight_std, bias_std), found.q) == pytest.approx(1.0, abs=1e-7)
    assert next_q(Setting(activation, found.weight_std, bias_std), found.q) == pytest.approx(found.q, rel=1e-7)


@pytest.mark.parametrize(
    ("bias_variance", "weight_variance", "q"),
    [(0.01, 1.424205, 0.273301), (0.04, 1.700796, 0.512079), (0.09, 1.947655, 0.763475)],
)
def test_the_twin_knows_the_printed_edge_of_tanh(bias_variance: float, weight_variance: float, q: float) -> None:
    found = edge("tanh", math.sqrt(bias_variance))
    assert (found[0] ** 2, found[1]) == pytest.approx((weight_variance, q), abs=6e-7)


@pytest.mark.parametrize("activation", POINTS)
def test_words_of_the_points(activation: str) -> None:
    """Where q has no fixed point (sigma_w^2 / 2 > 1 and phi like a ReLU far out) the word says so."""
    for setting, word in zip(settings(activation), ("critical", "ordered", "chaotic"), strict=True):
        endless = word == "chaotic" and activation in ("relu", "gelu", "silu")
        found = mean_field.phase(activation, setting.weight_std, setting.bias_std)
        assert found.word == ("diverges" if endless else word), setting


@pytest.mark.sample(1)
@pytest.mark.parametrize(("activation", "weight_std", "bias_std"), [("tanh", 2.0, 0.2), ("hardtanh", 1.56, 0.79)])
def test_deep_networks_settle_where_the_theory_says(activation: str, weight_std: float, bias_std: float) -> None:
    """q* and c* are what 200 layers of the twin come to, and c gets there by a factor e every xi_c layers."""
    setting = Setting(activation, weight_std, bias_std)
    x, seen = np.array([0.0, 0.0, 0.3]), []
    for _ in range(200):
        x = step(setting, x)
        seen.append(x[2])
    found = mean_field.phase(activation, weight_std, bias_std)
    assert math.exp(x[0]) == pytest.approx(found.q, rel=1e-7)
    assert x[2] == pytest.approx(found.c_star, abs=2e-6)
    far, near = np.abs(np.array([seen[20], seen[30]]) - seen[-1])
    assert 10 / math.log(far / near) == pytest.approx(found.xi_c, rel=0.1)


def test_every_activation_has_a_torch_twin() -> None:
    """The twin's functions are torch's own and agree with ours, so that what is compared is one nonlinearity."""
    h = torch.linspace(-6, 6, 241, dtype=torch.float64)
    for name, function in FUNCTIONS.items():
        np.testing.assert_allclose(activations.get(name).function(h.numpy()), function(h).numpy(), atol=1e-12)
