"""Norm laws against drawn networks: weight matrices entry by entry, a real ReLU, a real way back, in numpy.

A whole law is judged by the Dvoretzky-Kiefer-Wolfowitz inequality: the gap between drawn and predicted distribution
functions exceeds sqrt(log(2/a) / 2n) with probability at most a = 1e-6. A mean or a frequency may be off by 5 standard
errors: 6e-7 false alarms each. Below 1e-4 for the whole file; seeds are fixed, so that a green test stays green.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from epoch0.theory import norms

SDS = 5.0


def layer_stds(sizes: list[int], init: str) -> list[float]:
    """Standard deviation of the weights of every layer, as the initializations define it."""
    over = {"he": lambda i, o: o, "he_fan_in": lambda i, o: i, "glorot": lambda i, o: i + o}[init]
    return [math.sqrt(2 / over(fan_in, fan_out)) for fan_in, fan_out in pairwise(sizes)]


def forward(rng: np.random.Generator, sizes: list[int], networks: int, init: str = "he") -> np.ndarray:
    """||h_l||^2 / ||x||^2 after every layer, shape (networks, layers); one input each."""
    h = rng.standard_normal((networks, sizes[0]))
    start = (h**2).sum(axis=1)
    found = []
    for (fan_in, fan_out), std in zip(pairwise(sizes), layer_stds(sizes, init), strict=True):
        weights = rng.standard_normal((networks, fan_out, fan_in)) * std
        h = np.maximum(np.einsum("nij,nj->ni", weights, h), 0.0)
        found.append((h**2).sum(axis=1) / start)
    return np.stack(found, axis=1)


def follows(samples: np.ndarray, law: norms.NormRatio) -> bool:
    """Whether the drawn distribution function stays in its band around the law's, and mean and dead share agree."""
    n = len(samples)
    values, counts = np.unique(samples, return_counts=True)
    above = np.cumsum(counts) / n
    predicted = law.cdf(values)
    before = np.where(values > 0, predicted, 0.0)  # the law has no atom but at 0
    gap = max(np.abs(above - predicted).max(), np.abs(above - counts / n - before).max())
    error = SDS * law.std / math.sqrt(n)
    return bool(gap < math.sqrt(math.log(2e6) / (2 * n)) and abs(samples.mean() - law.mean) < error)


def often(events: np.ndarray, chance: float) -> bool:
    """Whether a frequency agrees with a probability."""
    return bool(abs(events.mean() - chance) < SDS * math.sqrt(chance * (1 - chance) / len(events)) + 1e-12)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("inputs", "width", "networks"), [(1, 5, 10_000), (4, 20, 10_000), (1, 100, 10_000), (4, 500, 4_000)]
)
def test_one_layer(width: int, networks: int, inputs: int) -> None:
    found = forward(np.random.default_rng(width + inputs), [inputs, width], networks)[:, 0]
    law = norms.NormRatio((width,))
    assert follows(found, law)
    for eps in (0.05, 0.2, 0.5, 0.9):
        assert often(np.abs(found - 1) > eps, norms.failure_probability(eps, width))
    off = np.abs(1 - np.sqrt(found))
    assert abs(off.mean() - law.mean_distortion) < SDS * off.std() / math.sqrt(networks)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("init", "sizes", "networks"),
    [
        ("he", [3, 5, 20, 5], 8_000),
        ("he_fan_in", [3, 5, 20, 5], 8_000),
        ("glorot", [3, 5, 20, 5], 8_000),
        ("he", [20] * 6, 5_000),
        ("glorot", [10, 100, 30, 60], 3_000),
    ],
)
def test_several_layers(sizes: list[int], networks: int, init: str) -> None:
    found = forward(np.random.default_rng(sum(sizes)), sizes, networks, init)
    for layers in range(1, len(sizes)):
        assert follows(found[:, layers - 1], norms.NormRatio.forward(sizes[: layers + 1], init))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("width", "layers", "eps"), [(5, 3, 0.8), (20, 4, 0.5), (100, 3, 0.25)])
def test_chance_that_some_layer_fails(width: int, layers: int, eps: float) -> None:
    """Exactly 1 - (1 - p)^L for one sample: layers are independent."""
    found = forward(np.random.default_rng(7), [width] * (layers + 1), 8_000 if width < 100 else 1_000)
    steps = np.divide(found[:, 1:], found[:, :-1], out=np.zeros_like(found[:, 1:]), where=found[:, :-1] > 0)
    steps = np.concatenate([found[:, :1], steps], axis=1)
    assert often((np.abs(steps - 1) > eps).any(axis=1), norms.failure_probability(eps, width, layers=layers))


def test_many_samples_fail_no_more_often_than_the_bound() -> None:
    """Eight inputs of one network, the same ones alike or unrelated: the sum of their chances bounds the failure."""
    rng = np.random.default_rng(8)
    width, eps, networks = 40, 0.8, 5_000
    bound = norms.failure_probability(eps, width, samples=8)
    assert bound < 0.5
    fails = []
    for alike in (0.0, 0.95):
        inputs = (1 - alike) * rng.standard_normal((networks, 8, 10)) + alike * rng.standard_normal((networks, 1, 10))
        weights = rng.standard_normal((networks, width, 10)) * math.sqrt(2 / width)
        out = np.maximum(np.einsum("nij,nsj->nsi", weights, inputs), 0.0)
        ratio = (out**2).sum(axis=2) / (inputs**2).sum(axis=2)
        failed = (np.abs(ratio - 1) > eps).any(axis=1)
        assert failed.mean() < bound + SDS * math.sqrt(bound / networks)
        fails.append(failed.mean())
    assert fails[1] < fails[0]  # inputs that are alike fail together


def gradients(
    rng: np.random.Generator, sizes: list[int], networks: int, init: str, shared: bool
) -> tuple[np.ndarray, np.ndarray]:
    """||dl/dW^l||^2 / (||delta||^2 ||x||^2) for every layer, and every step's factor, forward and back.

    ``shared``: the way back through the same weights, as in a network; else through fresh ones, which is the paper's
    assumption (the gates are the network's own in both cases).
    """
    stds = layer_stds(sizes, init)
    weights = [
        rng.standard_normal((networks, fan_out, fan_in)) * std
        for (fan_in, fan_out), std in zip(pairwise(sizes), stds, strict=True)
    ]
    hs, gates = [rng.standard_normal((networks, sizes[0]))], []
    for w in weights:
        a = np.einsum("nij,nj->ni", w, hs[-1])
        gates.append(a > 0)
        hs.append(np.maximum(a, 0.0))
    down = [rng.standard_normal((networks, sizes[-1]))]  # dl/da^L, then of the layers below
    for layer in range(len(weights) - 1, 0, -1):
        w = weights[layer] if shared else rng.standard_normal(weights[layer].shape) * stds[layer]
        down.append(gates[layer - 1] * np.einsum("nij,ni->nj", w, down[-1]))
    forth = np.stack([(h**2).sum(axis=1) for h in hs], axis=1)
    back = np.stack([(d**2).sum(axis=1) for d in reversed(down)], axis=1)
    ratios = back * forth[:, :-1] / (back[:, -1:] * forth[:, :1])
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.concatenate([forth[:, 1:] / forth[:, :-1], back[:, :-1] / back[:, 1:]], axis=1)
    return ratios, np.nan_to_num(steps)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("init", "sizes", "networks"),
    [
        ("he", [4, 5, 20, 7, 3], 5_000),
        ("he_fan_in", [4, 5, 20, 7, 3], 5_000),
        ("glorot", [4, 5, 20, 7, 3], 5_000),
        ("he", [30] * 5, 3_000),
    ],
)
def test_gradient_law_under_the_papers_assumption(sizes: list[int], networks: int, init: str) -> None:
    ratios, _ = gradients(np.random.default_rng(9), sizes, networks, init, shared=False)
    for layer in range(1, len(sizes)):
        assert follows(ratios[:, layer - 1], norms.NormRatio.gradient(sizes, layer, init))


@pytest.mark.slow
def test_gradient_law_of_networks() -> None:
    """The way back through the network's own weights: the assumption is wrong by something of order 1/width only."""
    sizes = [20, 100, 60, 100, 40]
    ratios, _ = gradients(np.random.default_rng(10), sizes, 2_000, "he", shared=True)
    for layer in range(1, len(sizes)):
        assert follows(ratios[:, layer - 1], norms.NormRatio.gradient(sizes, layer))


@pytest.mark.slow
def test_gradient_failures_stay_below_the_bound() -> None:
    """Of Theorem 3 in its exact form: every step of both directions of three layers."""
    for shared in (False, True):
        _, steps = gradients(np.random.default_rng(11), [60] * 4, 2_000, "he", shared)
        failed = (np.abs(steps - 1) > 0.5).any(axis=1).mean()
        bound = norms.failure_probability(0.5, 60, direction="gradient", layers=3)
        one_way = norms.failure_probability(0.5, 60, layers=3)
        assert one_way < failed + SDS * 0.01 and failed < bound + SDS * math.sqrt(bound / 2_000)


@pytest.mark.parametrize(("dimension", "least", "most"), [(1, 2, 2), (2, 330, 399), (5, 400, 400)])
def test_relu_does_not_keep_a_subspace(dimension: int, least: int, most: int) -> None:
    """Why Theorem 2 stops at one layer: outputs of inputs in d dimensions span far more.

    One dimension gives two rays. In two dimensions the 800 half-lines where units switch leave a few arcs without any
    of the 1,000 inputs, so that the rank is a little below 400; six draws gave 351 to 370.
    """
    for seed in range(3):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.standard_normal((50, dimension)))[0]
        inputs = rng.standard_normal((1000, dimension)) @ basis.T
        outputs = np.maximum(inputs @ rng.standard_normal((50, 400)) * math.sqrt(2 / 400), 0.0)
        assert np.linalg.matrix_rank(inputs) == dimension
        assert least <= np.linalg.matrix_rank(outputs) <= most


def test_one_layer_of_the_subspace_width_keeps_a_plane() -> None:
    """Lemma 3 at d = 2: its width keeps every direction, with much to spare."""
    eps, delta = 0.5, 0.05
    width = norms.required_width_subspace(eps, delta, 2)
    angles = np.linspace(0, 2 * math.pi, 2_000, endpoint=False)
    weights = np.random.default_rng(12).standard_normal((width, 2)) * math.sqrt(2 / width)
    lengths = np.linalg.norm(np.maximum(weights @ np.stack([np.cos(angles), np.sin(angles)]), 0.0), axis=0)
    assert np.abs(lengths - 1).max() < eps / 4
