"""What a network of width n does, to order 1/n: where the mean of q, c and chi lies and how far one network strays.

Given the activations of one layer, the pre-activations of the next are independent Gaussians whose covariance G is the
mean of products over the n units plus the bias. So G is a Markov chain with E[G' | G] = M(G), the mean-field map, and
Cov[G' | G] = C(G) / n exactly, both means over Gaussian pairs. Mean and covariance of the chain are carried along in
the coordinates (log q1, log q2, c) with symmetric pairs of points, which is exact to order 1/n.

The quadrature is independent of the library's: Gauss-Legendre in two dimensions, panels ending at the kinks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq

from wide_networks import FUNCTIONS, Setting, slope

KINKS: dict[str, tuple[float, ...]] = {"relu": (0.0,), "elu": (0.0,), "hardtanh": (-1.0, 1.0)}
_REACH = 9.0  # standard deviations; 2e-19 of the mass lies beyond


def both(activation: str, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """phi and phi' at h, by torch in float64."""
    value, derivative = slope(FUNCTIONS[activation], torch.from_numpy(np.ascontiguousarray(h)))
    return value.numpy(), derivative.numpy()


def _panels(marks: np.ndarray, base: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and masses of a standard normal, panels between the marks (last axis) and ``base`` even ones."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    even = np.broadcast_to(np.linspace(-_REACH, _REACH, base + 1), (*marks.shape[:-1], base + 1))
    edges = np.sort(np.concatenate([np.clip(marks, -_REACH, _REACH), even], axis=-1), axis=-1)
    half = np.diff(edges)[..., None] / 2
    z = (edges[..., :-1, None] + edges[..., 1:, None]) / 2 + half * points
    mass = half * weights * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return z.reshape(*marks.shape[:-1], -1), mass.reshape(*marks.shape[:-1], -1)


def single(activation: str, q: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """h, phi(h), phi'(h) and the masses for h of variance q."""
    marks = [b + side * w for b in {0.0, *KINKS.get(activation, ())} for w in (0, 0.5, 2, 5) for side in (-1, 1)]
    z, mass = _panels(np.array(marks) / math.sqrt(q), 16, 8)
    h = math.sqrt(q) * z
    return h, *both(activation, h), mass


def pair(activation: str, q1: float, q2: float, c: float, nodes: int = 8) -> tuple[np.ndarray, ...]:
    """h1 (m, 1), phi(h1), phi'(h1), h2 (m, k), phi(h2), phi'(h2), masses (m, k)."""
    kinks = {0.0, *KINKS.get(activation, ())}
    s = math.sqrt(max(1 - c * c, 0.0))
    near = max(s, 1e-12) * math.sqrt(q2 / q1)
    marks = [b / math.sqrt(q1) + side * w / math.sqrt(q1) for b in kinks for w in (0, 1, 4) for side in (-1, 1)]
    if abs(c) > 0.2:  # where the second one crosses a kink
        marks += [b / (c * math.sqrt(q2)) + side * w * near for b in kinks for w in (0, 1, 3) for side in (-1, 1)]
    z1, mass1 = _panels(np.array(marks), 10, nodes)
    if s < 1e-9:
        z2, mass2 = np.zeros((len(z1), 1)), np.ones((1, 1))
    else:
        offsets = np.array([b + w for b in sorted(kinks) for w in (-2.0, 0.0, 2.0)])
        z2, mass2 = _panels((offsets / math.sqrt(q2) - c * z1[:, None]) / s, 6, nodes)
    h1, h2 = math.sqrt(q1) * z1[:, None], math.sqrt(q2) * (c * z1[:, None] + s * z2)
    return h1, *both(activation, h1), h2, *both(activation, h2), mass1[:, None] * mass2


def chi(setting: Setting, q: float) -> float:
    _, _, slopes, mass = single(setting.activation, q)
    return setting.weight_std**2 * float((slopes**2 * mass).sum())


def next_q(setting: Setting, q: float) -> float:
    _, value, _, mass = single(setting.activation, q)
    return setting.bias_std**2 + setting.weight_std**2 * float((value**2 * mass).sum())


def edge(activation: str, bias_std: float, low: float = 1e-3, high: float = 1e3) -> tuple[float, float]:
    """(weight_std, q) with chi = 1 at the fixed point q, from the curve over q where chi is 1."""

    def weight_std(q: float) -> float:
        return chi(Setting(activation, 1.0, 0.0), q) ** -0.5

    def excess(log_q: float) -> float:
        q = math.exp(log_q)
        return q - next_q(Setting(activation, weight_std(q), bias_std), q)

    q = math.exp(brentq(excess, math.log(low), math.log(high), xtol=1e-14))
    return weight_std(q), q


def step(setting: Setting, x: np.ndarray) -> np.ndarray:
    """The mean-field map in the coordinates (log q1, log q2, c)."""
    q1, q2, c = math.exp(x[0]), math.exp(x[1]), min(float(x[2]), 1.0)
    _, f1, _, _, f2, _, mass = pair(setting.activation, q1, q2, c)
    means = np.array([(f * mass).sum() for f in (f1**2, f2**2, f1 * f2)])
    return _coordinates(setting.bias_std**2 + setting.weight_std**2 * means)


def _coordinates(gram: np.ndarray) -> np.ndarray:
    return np.array([math.log(gram[0]), math.log(gram[1]), gram[2] / math.sqrt(gram[0] * gram[1])])


def _carry(
    f: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of f(x) to second order in the spread of x."""
    sizes, directions = np.linalg.eigh(covariance)
    at = f(mean)
    total, spread = at.copy(), np.zeros((len(at), len(at)))
    for size, direction in zip(sizes, directions.T, strict=True):
        if size > 0:
            up, down = f(mean + math.sqrt(size) * direction), f(mean - math.sqrt(size) * direction)
            total += (up + down - 2 * at) / 2
            spread += np.outer(up - down, up - down) / 4
    return total, spread


def _gram(x: np.ndarray) -> np.ndarray:
    q1, q2 = math.exp(x[0]), math.exp(x[1])
    return np.array([q1, q2, x[2] * math.sqrt(q1 * q2)])


def _noise(setting: Setting, x: np.ndarray) -> np.ndarray:
    """n Cov[G' | G] for G' = (q1, q2, product)."""
    q1, q2, c = math.exp(x[0]), math.exp(x[1]), min(float(x[2]), 1.0)
    _, f1, _, _, f2, _, mass = pair(setting.activation, q1, q2, c)
    products = [np.broadcast_to(f, mass.shape) for f in (f1**2, f2**2, f1 * f2)]
    mean = [(p * mass).sum() for p in products]
    return setting.weight_std**4 * np.array(
        [[((a - ma) * (b - mb) * mass).sum() for b, mb in zip(products, mean, strict=True)]
         for a, ma in zip(products, mean, strict=True)]
    )  # fmt: skip


def _wishart(gram: np.ndarray) -> np.ndarray:
    """n Cov of the mean over n units of (h1^2, h2^2, h1 h2) for h of covariance gram."""
    a, b, r = gram
    return np.array([[2 * a * a, 2 * r * r, 2 * a * r], [2 * r * r, 2 * b * b, 2 * b * r],
                     [2 * a * r, 2 * b * r, a * b + r * r]])  # fmt: skip


@dataclass(frozen=True)
class Band:
    """Per layer, each (depth,): infinitely wide value, shift of the mean at this width, standard deviation of one net.

    ``log_q`` is the logarithm of the variance of the first input's pre-activations, ``c`` their correlation with the
    second's, ``chi`` the stretch of the travelling tangent.
    """

    values: dict[str, np.ndarray]
    shifts: dict[str, np.ndarray]
    stds: dict[str, np.ndarray]


def band(setting: Setting, width: int, depth: int, c: float = 0.5) -> Band:
    """The law of ``wide_networks.dense`` at order 1/width."""
    b, w = setting.bias_std**2, setting.weight_std**2
    x = _coordinates(np.array([b + w, b + w, b + w * c]))  # exact: the inputs are
    mean, spread, rho = x.copy(), np.zeros((3, 3)), 0.0
    rows: dict[str, list[tuple[float, float, float]]] = {"log_q": [], "c": [], "chi": []}
    for _ in range(depth):
        # what is seen: moments over the units of this layer, given G
        total, own = _carry(_coordinates, _gram(mean), _wishart(_gram(mean)) / width)
        seen, seen_spread = mean + (total - mean), spread + own
        rows["log_q"].append((x[0], seen[0] - x[0], seen_spread[0, 0]))
        rows["c"].append((x[2], seen[2] - x[2], seen_spread[2, 2]))
        q = math.exp(x[0])
        h, value, slopes, mass = single(setting.activation, q)
        one = (slopes**2 * mass).sum()
        moved, through = _carry(lambda y: np.array([chi(setting, math.exp(y[0]))]), mean[:1], spread[:1, :1])
        aligned = w * rho * (((slopes * h) ** 2 * mass).sum() / q - one)
        own_chi = w * w * (3 * (slopes**4 * mass).sum() - one**2) / width
        rows["chi"].append((w * one, moved[0] + aligned - w * one, through[0, 0] + own_chi))
        # the squared correlation of tangent and pre-activation, mean over networks
        turned = (value * slopes * h * mass).sum() ** 2 / q * rho + ((value * slopes) ** 2 * mass).sum() / width
        rho = w * turned / (next_q(setting, q) * one)
        # on to the next layer: the map over the spread, then its own noise
        after, spread_after = _carry(lambda y: step(setting, y), mean, spread)
        noise = _noise(setting, mean) / width
        total, own = _carry(_coordinates, _gram(after), noise)
        x, mean, spread = step(setting, x), total, spread_after + own
    pick = {k: np.array(v) for k, v in rows.items()}
    return Band(
        {k: v[:, 0] for k, v in pick.items()},
        {k: v[:, 1] for k, v in pick.items()},
        {k: np.sqrt(v[:, 2]) for k, v in pick.items()},
    )
