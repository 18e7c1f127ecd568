"""Means over two Gaussian variables in polar coordinates, where a kink at 0 is a ray (as in Cho & Saul 2009).

Between the rays h1 = 0 and h2 = 0 nothing bends, however close the two are: sums over wedges keep their precision at
every angle, and one set of nodes serves many variances.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SDS = 10.0
_NODES = 12
_AGREE = 3e-12
_NUMBERS_AT_ONCE = 4_000_000


def ray_means(function: Callable[[Any], Array], q: Array, angle: Array) -> Array | None:
    """E f(h1) f(h2) for every angle and every pair of variances; (r,) and (n,) to (n, r, r).

    >>> found = ray_means(lambda h: np.maximum(h, 0.0), np.ones(1), np.array([0.0, np.pi / 2]))
    >>> found[:, 0, 0].round(6)
    array([0.5     , 0.159155])

    f is smooth but for 0, with features no narrower than about 1; variances > 0, angles in [0, pi]. None where sums of
    one and a half times as many nodes do not agree with these.
    """
    probes = np.unique(angle[[0, len(angle) // 3, -1]])
    ends = np.unique([q.min(), q.max()])
    both = [
        np.stack([_mean(function, ends, float(one), nodes) for one in probes]) for nodes in (_NODES, _NODES * 3 // 2)
    ]
    if not np.abs(both[0] - both[1]).max() <= _AGREE * np.abs(both[1]).max():
        return None
    return np.stack([_mean(function, q, float(one), _NODES) for one in angle])


def _mean(function: Callable[[Any], Array], q: Array, angle: float, nodes: int) -> Array:
    """All pairs of variances at one angle, shape (r, r)."""
    scale = np.sqrt(q)
    r, mass = _panels(_doubling(1 / float(scale.max()), _SDS), nodes)
    mass = mass * r * np.exp(-(r**2) / 2) / (2 * math.pi)
    total = np.zeros((len(q), len(q)))
    # where both variables have one sign, and where they differ
    for width, other in ((math.pi - angle, 1), (angle, -1)):
        if width <= 0:
            continue
        half = _doubling(1 / _SDS / float(scale.max()), width / 2)
        v, part = _panels(np.concatenate([half, width - half[-2::-1]]), nodes)
        weight = (part[:, None] * mass).reshape(-1)
        step = max(1, _NUMBERS_AT_ONCE // len(weight))
        sides = []
        for sign in (1, -1):
            values = np.empty((len(q), len(v), len(r)))
            for start in range(0, len(q), step):
                some = slice(start, start + step)
                values[some] = function(sign * scale[some, None, None] * (np.sin(v)[:, None] * r))
            sides.append(values)
        for k in (0, 1):
            # h2 at a node is h1 at the node that mirrors it
            second = sides[k if other == 1 else 1 - k][:, ::-1].reshape(len(q), -1)
            total += (sides[k].reshape(len(q), -1) * weight) @ second.T
    return total


def _doubling(first: float, last: float) -> Array:
    """0, first, 2 first, 4 first, ... as far as last."""
    if first >= last:
        return np.array([0.0, last])
    steps = first * np.exp2(np.arange(math.ceil(math.log2(last / first))))
    return np.concatenate([[0.0], steps[steps < 0.9 * last], [last]])


def _panels(edges: Array, nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre points and weights between the edges."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    half = np.diff(edges)[:, None] / 2
    middle = (edges[1:] + edges[:-1])[:, None] / 2
    return (middle + half * points).reshape(-1), (half * weights).reshape(-1)
