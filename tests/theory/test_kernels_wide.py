"""Kernels against finite random networks, with the part of order 1/width removed.

Each comparison is of the combination (4 * mean at width 4 n - mean at width n) / 3 with the prediction at infinite
width, in units of its standard error: no 1/width is left in it, and of C/n^2 only C/(4 n^2), about 1e-3 here, below a
fifth of a standard error. More than 5.5 standard errors: 4e-8 a comparison for Gaussian means; means over 300 networks
and more of sums over 40 units and more. About 20 comparisons in the fast tests and 500 in the slow ones: 2e-5.
"""

import math
from itertools import product
from typing import Literal

import numpy as np
import pytest
import torch

from epoch0.theory import mean_field
from epoch0.theory.mean_field.correlations import pair_mean
from wide_networks import FUNCTIONS, Setting, infinite, kernels
from width_bands import pair

LIMIT = 5.5
Architecture = Literal["dense", "residual", "stable"]
X = torch.tensor([[1.0, 0.5, -0.3, 0.8], [0.2, -1.0, 0.6, 1.2], [-0.5, 0.4, 2.0, 0.1]], dtype=torch.float64)
DEPTH = 3
SCALES = {"dense": None, "residual": 1.0, "stable": DEPTH**-0.5}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("q1", "q2", "c"), [(1.0, 1.0, 0.5), (0.3, 2.0, 0.9), (1.0, 1.01, 0.9999), (0.05, 0.05, -0.8), (3.0, 7.0, 0.0)]
)
def test_pair_means_are_those_of_the_twin(name: str, q1: float, q2: float, c: float) -> None:
    """Two quadratures that share nothing; half the twin's nodes change it by less than the tolerance."""
    _, f1, d1, _, f2, d2, mass = pair(name, q1, q2, c, nodes=20)
    size = math.sqrt((f1**2 * mass).sum() * (f2**2 * mass).sum())
    values = [pair_mean(name, np.array([q1]), q2, c, derivative=slope).item() for slope in (False, True)]
    assert values[0] == pytest.approx((f1 * f2 * mass).sum(), abs=1e-9 * size)
    slopes = (d1 * d2 * mass).sum()
    assert values[1] == pytest.approx(slopes, abs=1e-8)


def recursion(setting: Setting, density: float, scale: float | None) -> tuple[np.ndarray, np.ndarray]:
    """NNGP and NTK of the three inputs, pair by pair and layer by layer, with the twin's quadrature."""
    w, b = density * setting.weight_std**2, setting.bias_std**2
    nngp = b + w * (X @ X.T).numpy() / X.shape[1]
    ntk = nngp.copy()
    for _ in range(DEPTH):
        means, slopes = np.empty_like(nngp), np.empty_like(nngp)
        for i, j in product(range(len(X)), repeat=2):
            q1, q2 = nngp[i, i], nngp[j, j]
            c = 1.0 if i == j else nngp[i, j] / math.sqrt(q1 * q2)
            _, f1, d1, _, f2, d2, mass = pair(setting.activation, q1, q2, c)
            means[i, j], slopes[i, j] = (f1 * f2 * mass).sum(), (d1 * d2 * mass).sum()
        made, passed = b + w * means, w * slopes * ntk
        if scale is None:
            nngp, ntk = made, made + passed
        else:
            nngp, ntk = nngp + scale**2 * made, ntk + scale**2 * (made + passed)
    return nngp, ntk


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "architecture"),
    [(name, "dense") for name in FUNCTIONS]
    + list(product(("relu", "tanh", "hardtanh", "silu"), ("residual", "stable"))),
)
def test_kernels_are_those_of_the_twin(name: str, architecture: Architecture) -> None:
    """Inputs of different lengths, with biases; the twin's error is below 1e-7 (finer panels)."""
    found = mean_field.kernel(
        X.numpy(), activation=name, weight_std=1.4, bias_std=0.5, depth=DEPTH, density=0.8, architecture=architecture
    )
    nngp, ntk = recursion(Setting(name, 1.4, 0.5), 0.8, SCALES[architecture])
    np.testing.assert_allclose(found.nngp, nngp, rtol=3e-7)
    np.testing.assert_allclose(found.ntk, ntk, rtol=3e-6)


def off(
    setting: Setting, architecture: Architecture, density: float, networks: int, n: int = 40
) -> dict[str, np.ndarray]:
    """How many standard errors the kernels lie off, for three inputs."""
    found = mean_field.kernel(
        X.numpy(), activation=setting.activation, weight_std=setting.weight_std, bias_std=setting.bias_std,
        depth=DEPTH, density=density, architecture=architecture,
    )  # fmt: skip
    seen = []
    for part, width in enumerate((n, 4 * n)):
        # a mask over few inputs gives no Gaussians: the inputs are repeated to the width of the layers
        x = X.repeat(1, width // 4)
        seen.append(kernels(setting, x, width, DEPTH, networks // (1 + part), density=density,
                            branch_scale=SCALES[architecture], seed=11 + part))  # fmt: skip
    result = {}
    for k, name in enumerate(("nngp", "ntk")):
        value, error = infinite(seen[0][k], seen[1][k], 4)
        result[name] = np.abs(getattr(found, name) - value.numpy()) / error.numpy()
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "architecture", "density"),
    [
        pytest.param(Setting("relu", 1.4, 0.5), "dense", 1.0, marks=pytest.mark.slow),
        (Setting("tanh", 1.6, 0.7), "dense", 0.5),
        pytest.param(Setting("erf", 1.3, 0.5), "residual", 1.0, marks=pytest.mark.slow),
        pytest.param(Setting("relu", 1.4, 0.8), "stable", 1.0, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_kernels_of_finite_networks(setting: Setting, architecture: Architecture, density: float) -> None:
    for name, errors in off(setting, architecture, density, 600).items():
        assert (errors < LIMIT).all(), (name, errors)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SCALES)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "identity"])
def test_kernels_of_many_finite_networks(name: str, architecture: Architecture) -> None:
    for density in (1.0, 0.5):
        for kernel, errors in off(Setting(name, 1.4, 0.5), architecture, density, 1200).items():
            assert (errors < LIMIT).all(), (density, kernel, errors)
