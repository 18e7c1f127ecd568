"""Means over two correlated Gaussian variables, exact to rounding also at kinks and near |c| = 1 (Hayou 2021, B.1)."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from epoch0.activations import Activation, get
from epoch0.arguments import Correlation, Variance, checked
from epoch0.theory.checks import Array
from epoch0.theory.mean_field.closed_forms import closed_form

# Farther than this from 0 lies 2e-16 of the mass of two normal variables.
_SDS = 8.5
_SMALLEST = 1e-200
# Gauss-Legendre nodes on a piece: more where the highest coefficients of the function, whose square is about the
# error, are above this part of the whole.
_NODES, _ROUGH = (12, 24, 48), 1e-5
_LARGEST_HERMITE, _HERMITE_TERMS = 400.0, 6000


@checked
def pair_mean(
    activation: str | Activation | Callable[..., Any],
    q1: Variance,
    q2: Variance,
    c: Correlation,
    derivative: bool = False,
) -> Array:
    """E phi(h1) phi(h2) for Gaussian h1, h2 of mean 0, variances q1 and q2 and correlation c.

    >>> pair_mean("relu", 1.0, 1.0, np.array([-1.0, 0.0, 1.0])).round(6)              # shape (3,)
    array([0.      , 0.159155, 0.5     ])

    Closed forms for erf, sin and activations with straight pieces. Elsewhere the two variables are taken to be the
    coordinates of a point in the plane, and the mean is a sum along rays from 0, on pieces which end at the breaks of
    both factors and where these meet. The error is below 1e-11 of sqrt(E phi(h1)^2 E phi(h2)^2) for every activation
    known by name. ``derivative`` takes phi' in the place of phi; a variance of 0 is the limit from above.

    Source: Hayou et al. 2021, B.1 (covariance map and, with phi', its slope by Price's theorem).
    """
    rule = get(activation)
    arrays = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (q1, q2, c)))
    first, second, cosine = map(np.atleast_1d, arrays)
    cosine = np.asarray(np.clip(cosine, -1.0, 1.0))
    sine = np.asarray(np.sqrt((1 - cosine) * (1 + cosine)))
    return np.asarray(mean_at(rule, first, second, cosine, sine, derivative).reshape(arrays[0].shape))


def mean_at(rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool) -> Array:
    """:func:`pair_mean` where the angle of the two variables is given by cosine and sine; arrays of one shape."""
    exact = closed_form(rule, q1, q2, cosine, sine, derivative)
    if exact is not None:
        return exact
    result, angle = np.empty(cosine.shape), np.arctan2(sine, cosine)
    for place in np.ndindex(result.shape):
        pair = np.array([q1[place], q2[place]])
        result[place] = ray_means(rule, derivative, np.unique(pair), float(angle[place]))[0, -1]
    return result


def mean_grid(rule: Activation, q: Array, cosine: Array, sine: Array) -> Array:
    """E phi'(h1) phi'(h2) for every angle and every pair of variances; (n,), (n,) and (r,) to (n, r, r).

    Of many variances the Hermite series of a smooth phi costs a tenth of the sums along rays.
    """
    q1, q2, c, s = np.broadcast_arrays(q[:, None], q, cosine[:, None, None], sine[:, None, None])
    exact = closed_form(rule, q1, q2, c, s, True)
    if exact is not None:
        return exact
    if not rule.breaks and q.max() <= _LARGEST_HERMITE:
        found = _hermite(rule, np.maximum(q, _SMALLEST), cosine)
        if found is not None:
            return found
    return np.stack([ray_means(rule, True, q, float(angle)) for angle in np.arctan2(sine, cosine)])


def _hermite(rule: Activation, q: Array, cosine: Array) -> Array | None:
    """The same of a smooth phi by its Hermite series (Mehler's formula); None where it does not converge.

    E f(h1) f(h2) = sum over k of f_k(q1) f_k(q2) c^k, whose terms at c = 1 must add up to E f^2.
    """
    z = np.arange(-500, 501) * 0.025
    mass = np.exp(-0.5 * z**2)
    mass /= mass.sum()
    values = rule.derivative(np.sqrt(q)[:, None] * z)
    whole, weighted = values**2 @ mass, values * mass
    terms = np.empty((_HERMITE_TERMS, len(q)))
    before, now = np.zeros_like(z), np.ones_like(z)
    for k in range(_HERMITE_TERMS):
        terms[k] = weighted @ now
        before, now = now, (z * now - math.sqrt(k) * before) / math.sqrt(k + 1)
        if k % 50 == 49 and (np.abs(terms[k - 9 : k + 1]) ** 2).sum(axis=0).max() < 1e-17 * whole.min():
            terms = terms[: k + 1]
            break
    if (np.abs((terms**2).sum(axis=0) - whole) > 3e-14 * whole).any():
        return None
    found = np.polynomial.polynomial.polyval(cosine, terms[:, :, None] * terms[:, None, :])
    return np.asarray(np.moveaxis(found, -1, 0), dtype=np.float64)


def ray_means(rule: Activation, derivative: bool, q: Array, angle: float) -> Array:
    """E f(h1) f(h2) at one angle for every pair of variances, f being phi or phi'; (r,) to (r, r).

    A point at the distance r from 0 has h1 = sqrt(q1) r sin(v) and h2 = sqrt(q2) r sin(width - v), where the two have
    one sign with width = pi - angle, and, with -h2, where they differ with width = angle.
    """
    function = rule.derivative if derivative else rule.function
    # a variance of 0 as the limit from above: kinks at 0 then see both signs
    scale = np.sqrt(np.maximum(q, _SMALLEST))
    # distance at which a ray of sine 1 meets each break
    breaks = np.array([abs(point) / one for point in rule.breaks if point for one in scale])
    for nodes in _NODES:
        found, rough = _ray_means(function, scale, breaks, angle, nodes)
        if rough <= _ROUGH:
            break
    return found


def _ray_means(
    function: Callable[[Any], Array], scale: Array, breaks: Array, angle: float, nodes: int
) -> tuple[Array, float]:
    """The same with so many nodes on a piece, and how rough the function looks to them."""
    total, rough, largest = np.zeros((len(scale), len(scale))), 0.0, max(float(scale.max()), 1.0)
    steps = _doubling(1 / largest, _SDS)
    for width, opposite in ((math.pi - angle, False), (angle, True)):
        if width <= 0:
            continue
        # where a break of one factor meets one of the other
        meet = np.arctan2(math.sin(width), np.divide.outer(breaks, breaks) + math.cos(width))
        half = np.unique(np.concatenate([_doubling(4 / _SDS / largest, width / 2), meet[meet < width / 2]]))
        v, part = pieces(np.concatenate([half, width - half[-2::-1]]), nodes)
        along = np.broadcast_to(steps, (len(v), len(steps)))
        across = np.minimum(np.divide.outer(1 / np.sin(v), 1 / breaks), _SDS)
        r, mass = pieces(np.sort(np.concatenate([along, across, across[::-1]], axis=1)), nodes)
        mass = mass * r * np.exp(-(r**2) / 2) / (2 * math.pi)
        weight = (part[:, None] * mass).reshape(-1)
        sides = [function(sign * scale[:, None, None] * (np.sin(v)[:, None] * r)) for sign in (1, -1)]
        seen = (sides[0][-1] * mass).reshape(-1, nodes)
        rough = max(rough, float(np.abs(seen @ _highest(nodes)).sum() / max(np.abs(seen).sum(), 1e-300)))
        for first, other in (sides[::-1], sides) if opposite else (sides[:1] * 2, sides[1:] * 2):
            # h2 at a node is h1 at the node that mirrors it
            total += (first.reshape(len(scale), -1) * weight) @ other[:, ::-1].reshape(len(scale), -1).T
    return total, rough


def _doubling(first: float, last: float) -> Array:
    """0, first, 2 first, 4 first, ... as far as last."""
    if first >= last:
        return np.array([0.0, last])
    steps = first * np.exp2(np.arange(math.ceil(math.log2(last / first))))
    return np.concatenate([[0.0], steps[steps < 0.9 * last], [last]])


_legendre = lru_cache(np.polynomial.legendre.leggauss)


@lru_cache
def _highest(nodes: int) -> Array:
    """Matrix from weighted values at so many nodes to the two highest Legendre coefficients that they can see."""
    highest = np.polynomial.legendre.legvander(_legendre(nodes)[0], nodes - 1)[:, -2:]
    return np.asarray(highest * np.array([nodes - 1.5, nodes - 0.5]))


def pieces(edges: Array, nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre points and weights on each piece between the edges; (..., m) to twice (..., (m - 1) nodes)."""
    points, weights = _legendre(nodes)
    half = np.diff(edges, axis=-1)[..., None] / 2
    middle = (edges[..., :-1, None] + edges[..., 1:, None]) / 2
    shape = (*edges.shape[:-1], -1)
    return (middle + half * points).reshape(shape), (half * weights).reshape(shape)


def on_a_line(rule: Activation, q: Array) -> tuple[Array, Array]:
    """phi(sqrt(q) z) on nodes z fit for every variance, and their Gaussian masses; (r,) to (r, nodes) and (nodes,)."""
    scale = np.sqrt(np.maximum(q, _SMALLEST))
    steps, breaks = _doubling(1 / max(float(scale.max()), 1.0), _SDS), np.divide.outer(rule.breaks, scale).ravel()
    z, mass = pieces(np.unique(np.concatenate([-steps, steps, np.clip(breaks, -_SDS, _SDS)])), 20)
    return rule.function(scale[:, None] * z), mass * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
