"""Means over two correlated Gaussian variables, exact to rounding also at kinks and near |c| = 1 (Hayou 2021, B.1).

Some have a closed form: arc-cosine, arcsine and sine kernels (Cho & Saul 2009 for one kink at 0, Williams 1997 for erf;
the slopes follow by Price's theorem). The rest are sums.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from epoch0 import special
from epoch0.activations import Activation, ActivationLike, get
from epoch0.arguments import Correlation, Variance, checked
from epoch0.theory.checks import Array

# Beyond 10 standard deviations lies 1.5e-23 of the mass.
_SDS = 10.0
_RAY_NODES = 12
_AGREE = 3e-12


def ray_means(function: Callable[[Any], Array], q: Array, angle: Array) -> Array | None:
    """E f(h1) f(h2) for every angle and every pair of variances; (r,) and (n,) to (n, r, r).

    f is smooth but for 0, with features no narrower than about 1; variances > 0, angles in [0, pi]. None where sums of
    one and a half times as many nodes do not agree with these.
    """
    probes, ends = np.unique(angle[[0, len(angle) // 3, -1]]), np.unique([q.min(), q.max()])
    counts = (_RAY_NODES, _RAY_NODES * 3 // 2)
    both = [np.stack([_ray_mean(function, ends, float(probe), nodes) for probe in probes]) for nodes in counts]
    if not np.abs(both[0] - both[1]).max() <= _AGREE * np.abs(both[1]).max():
        return None
    return np.stack([_ray_mean(function, q, float(item), _RAY_NODES) for item in angle])


def _ray_mean(function: Callable[[Any], Array], q: Array, angle: float, nodes: int) -> Array:
    """All pairs of variances at one angle, shape (r, r)."""
    scale = np.sqrt(q)
    r, mass = pieces(_doubling(1 / float(scale.max()), _SDS), nodes)
    mass, total = mass * r * np.exp(-(r**2) / 2) / (2 * math.pi), np.zeros((len(q), len(q)))
    # where both variables have one sign, and where they differ
    for width, other in ((math.pi - angle, 1), (angle, -1)):
        half = _doubling(1 / _SDS / float(scale.max()), width / 2)
        v, part = pieces(np.concatenate([half, width - half[-2::-1]]), nodes)
        weight = (part[:, None] * mass).reshape(-1)
        sides = [function(sign * scale[:, None, None] * (np.sin(v)[:, None] * r)) for sign in (1, -1)]
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


_legendre = lru_cache(np.polynomial.legendre.leggauss)


def pieces(edges: Array, nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre points and weights on each piece between the edges; (..., m) to twice (..., (m - 1) nodes)."""
    points, weights = _legendre(nodes)
    half, middle = np.diff(edges, axis=-1)[..., None] / 2, (edges[..., :-1, None] + edges[..., 1:, None]) / 2
    shape = (*edges.shape[:-1], -1)
    return (middle + half * points).reshape(shape), (half * weights).reshape(shape)


_NODES = 14
_POINTS_AT_ONCE = 2_000_000
_SMALLEST = 1e-200
_LARGEST_HERMITE, _HERMITE_TERMS = 400.0, 6000
# two trapezoid sums, one of twice the step, agree to the root of the finer one's error
_ROOT_OF_ERROR = 3e-7


@checked
def pair_mean(
    activation: ActivationLike, q1: Variance, q2: Variance, c: Correlation, derivative: bool = False
) -> Array:
    """E phi(h1) phi(h2) for Gaussian h1, h2 of mean 0, variances q1 and q2 and correlation c.

    >>> pair_mean("relu", 1.0, 1.0, np.array([-1.0, 0.0, 1.0])).round(6)              # shape (3,)
    array([0.      , 0.159155, 0.5     ])

    In closed form for erf, sin and activations with straight pieces, by sums elsewhere (docs/kernels); the error is
    below 1e-11 of sqrt(E phi(h1)^2 E phi(h2)^2) for every activation known by name. ``derivative`` takes phi' in the
    place of phi; a variance of 0 is the limit from above.

    Source: Hayou et al. 2021, B.1 (covariance map and, with phi', its slope by Price's theorem).
    """
    rule, arrays = get(activation), np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (q1, q2, c)))
    first, second, cosine = map(np.atleast_1d, arrays)
    cosine = np.asarray(np.clip(cosine, -1.0, 1.0))
    sine = np.asarray(np.sqrt((1 - cosine) * (1 + cosine)))
    return np.asarray(mean_at(rule, first, second, cosine, sine, derivative).reshape(arrays[0].shape))


def mean_at(rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool) -> Array:
    """:func:`pair_mean` where the angle of the two variables is given by cosine and sine; arrays of one shape."""
    if (exact := _closed_form(rule, q1, q2, cosine, sine, derivative)) is not None:
        return exact
    shape = cosine.shape
    # a variance of 0 as the limit from above: kinks at 0 then see both signs
    parts = [np.ravel(np.maximum(q, _SMALLEST)) for q in (q1, q2)] + [np.ravel(cosine), np.ravel(sine)]
    function, result = rule.derivative if derivative else rule.function, np.empty(cosine.size)
    # steps follow the larger variance; half powers of two keep the number of groups small; one variable is a sum less
    scale = np.exp2(np.ceil(np.log2(np.maximum(parts[0], parts[1]).clip(0.25))) / 2)
    scale[parts[3] == 0] *= -1
    for item in np.unique(scale):
        inside = np.flatnonzero(scale == item)
        group = [part[inside] for part in parts]
        if rule.breaks or abs(item) > 16:
            result[inside] = _by_panels(function, _marked(rule), *group)
        else:
            result[inside] = _by_steps(function, float(abs(item)), *group)
    return result.reshape(shape)


def mean_grid(rule: Activation, q: Array, cosine: Array, sine: Array) -> Array:
    """E phi'(h1) phi'(h2) for every angle and every pair of variances; (n,), (n,) and (r,) to (n, r, r).

    Smooth activations by their Hermite series, those with a kink at 0 only and large variances by sums along rays; the
    rest by the sums of :func:`pair_mean`, with the mean over h2 shared by all variances of h1.
    """
    count, angles = len(q), len(cosine)
    q1, q2, c, s = np.broadcast_arrays(q[:, None], q, cosine[:, None, None], sine[:, None, None])
    if (exact := _closed_form(rule, q1, q2, c, s, True)) is not None:
        return exact
    result, q = np.empty((angles, count, count)), np.maximum(q, _SMALLEST)
    if not rule.breaks and q.max() <= _LARGEST_HERMITE and (found := _by_hermite(rule, q, cosine)) is not None:
        return found
    if not any(rule.breaks) and (found := ray_means(rule.derivative, q, np.arctan2(sine, cosine))) is not None:
        return found
    if count == 1:
        return mean_at(rule, q1, q2, c, s, True)
    points = _marked(rule)
    for b in range(count):
        variance = np.full(angles, q[b])
        z1, mass = _outer(points, np.broadcast_to(q, (angles, count)), variance, cosine, sine)
        inner = _inner(rule.derivative, points, variance, cosine, sine, z1) * mass
        for a in range(count):
            result[:, a, b] = (rule.derivative(math.sqrt(q[a]) * z1) * inner).sum(axis=-1)
    return result


def _by_hermite(rule: Activation, q: Array, cosine: Array) -> Array | None:
    """:func:`mean_grid` of a smooth phi by its Hermite series (Mehler's formula); None where it does not converge. E
    f(h1) f(h2) = sum over k of f_k(q1) f_k(q2) c^k, whose terms at c = 1 must add up to E f^2.
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


def _by_steps(function: Callable[[Any], Array], scale: float, q1: Array, q2: Array, c: Array, s: Array) -> Array:
    """Trapezoid sums in both variables for a smooth function; arrays of shape (m,)."""
    result, left = np.empty(len(c)), np.arange(len(c))
    for halvings in range(3):
        half = int(np.ceil(_SDS * scale * 2**halvings / 0.25 / 2)) * 2
        z = np.arange(-half, half + 1) * (0.25 / scale / 2**halvings)
        mass = np.exp(-0.5 * z**2)
        mass /= mass.sum()
        coarse, agree = mass[::2] / mass[::2].sum(), np.zeros(len(left), dtype=bool)
        own, weights = (z, (mass, coarse)) if s.any() else (np.zeros(1), (np.ones(1),) * 2)  # of h2 where h1 is known
        for start in range(0, len(left), some := max(_POINTS_AT_ONCE // (len(z) * len(own)), 1)):
            part = slice(start, start + some)
            at = left[part]
            along = c[at, None, None] * z[:, None] + s[at, None, None] * own
            inner, outer = function(np.sqrt(q2[at])[:, None, None] * along), function(np.sqrt(q1[at])[:, None] * z)
            size = np.sqrt((outer**2 @ mass) * ((inner**2 @ weights[0]) @ mass)) + 1e-300
            result[at] = (outer * (inner @ weights[0])) @ mass
            rough = (outer[:, ::2] * (inner[:, ::2, ::2] @ weights[1])) @ coarse
            agree[part] = np.abs(result[at] - rough) <= _ROOT_OF_ERROR * size
        if not len(left := left[~agree]):
            return result
    # features much narrower than 1, such as a kink nobody named: panels do no worse
    result[left] = _by_panels(function, np.zeros(1), q1[left], q2[left], c[left], s[left])
    return result


def _marked(rule: Activation) -> Array:
    """Where panels end: at 0 and at the breaks."""
    return np.array(sorted({0.0, *rule.breaks}))


def _by_panels(function: Callable[[Any], Array], points: Array, q1: Array, q2: Array, c: Array, s: Array) -> Array:
    """The mean over h2 given h1 on panels, then the mean over h1 on panels; arrays of shape (m,)."""
    result = np.empty(len(c))
    if (straight := s < 1e-15).any():  # h2 is a multiple of h1
        at = np.flatnonzero(straight)
        roots, far = (np.sqrt(q1[at]), np.sign(c[at]) * np.sqrt(q2[at])), np.full(len(at), _SDS)
        marks = [_around(points / root[:, None], 1 / np.abs(root), far) for root in roots]
        z, mass = _panels(np.concatenate(marks, axis=1))
        first, second = (function(root[:, None] * z) for root in roots)
        result[at] = (first * second * mass).sum(axis=1)
    # like angles together: the number of panels grows with the log of 1/s
    order = np.flatnonzero(~straight)
    for at in np.array_split(order[np.argsort(s[order])], max(-(-len(order) // 32), 1)):
        if len(at):
            z1, mass = _outer(points, q1[at, None], q2[at], c[at], s[at])
            inner = _inner(function, points, q2[at], c[at], s[at], z1)
            result[at] = (function(np.sqrt(q1[at])[:, None] * z1) * inner * mass).sum(axis=-1)
    return result


def _outer(points: Array, q1: Array, q2: Array, c: Array, s: Array) -> tuple[Array, Array]:
    """Nodes and masses of z1, shape (m, nodes), fit for each of the variances q1, shape (m, k)."""
    other, far = np.sqrt(q2), np.full(len(q2), _SDS)
    slope = np.where(np.abs(c) < 1e-3, 1e-3, c)
    # an edge at each break of each variance; panels that shrink towards them for the largest
    largest, marks = np.sqrt(q1.max(axis=1)), [points / np.sqrt(own)[:, None] for own in q1.T]
    marks.append(_around(points / largest[:, None], 1 / largest, far))
    # the mean over h2 bends within s/|c| of where its middle meets a break: panels shrink to half of that
    bends = _around(points / (slope * other)[:, None], np.minimum(s, 1.0) / np.abs(slope) / 2, far)
    return _panels(np.concatenate([*marks, bends], axis=1))


def _inner(function: Callable[[Any], Array], points: Array, q2: Array, c: Array, s: Array, z1: Array) -> Array:
    """The mean of function(h2) given h1 = sqrt(q1) z1; arrays of shape (m,), z1 and result (m, nodes)."""
    result, scale = np.empty(z1.shape), np.sqrt(q2)
    marks = _around(points / scale[:, None], 1 / scale, _SDS * s)
    step = max(1, _POINTS_AT_ONCE // (z1.shape[1] * (marks.shape[1] + 8) * _NODES))
    for start in range(0, len(z1), step):
        at = slice(start, start + step)
        middle, spread = c[at, None] * z1[at], s[at, None]
        z2, mass = _panels((marks[at, None, :] - middle[..., None]) / spread[..., None])
        h2 = scale[at, None, None] * (middle[..., None] + spread[..., None] * z2)
        result[at] = (function(h2) * mass).sum(axis=-1)
    return result


def on_a_line(rule: Activation, q: Array) -> tuple[Array, Array]:
    """phi(sqrt(q) z) on nodes z fit for every variance, and their Gaussian masses; (r,) to (r, nodes) and (nodes,)."""
    scale = np.sqrt(np.maximum(q, _SMALLEST))
    z, mass = _panels(_around(_marked(rule) / scale[:, None], 1 / scale, np.full(len(q), _SDS)).reshape(1, -1), 28)
    return rule.function(scale[:, None] * z), mass[0]


def _around(points: Array, width: Array, far: Array) -> Array:
    """The points, shape (m, k) or (k,), and marks at width, 2 width, 4 width, ... of them as far as far, (m, marks)."""
    ratio = float((far / width).max())
    steps = np.exp2(np.arange(0, int(np.ceil(np.log2(ratio))) + 1)) if ratio > 1 else np.zeros(0)
    around = width[:, None] * np.concatenate([-steps[::-1], [0.0], steps])
    return np.asarray((points[:, :, None] + around[:, None, :]).reshape(len(width), -1))


def _panels(marks: Array, count: int = 8) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and Gaussian masses on at least ``count`` panels ending at the marks; twice (..., nodes)."""
    even = np.broadcast_to(np.linspace(-_SDS, _SDS, count + 1), (*marks.shape[:-1], count + 1))
    # marks out of range fold onto the ends, as empty panels
    z, mass = pieces(np.sort(np.concatenate([np.clip(marks, -_SDS, _SDS), even], axis=-1), axis=-1), _NODES)
    return z, mass * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


_PROBES = np.array([-2.3, -0.4, 0.0, 0.7, 1.9])


def _closed_form(rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool) -> Array | None:
    """E phi(h1) phi(h2), or of phi', in closed form, None where the activation has none; arrays of one shape."""
    if rule.homogeneous and rule.slopes is not None:
        return _one_kink(rule.slopes[0], rule.slopes[-1], q1, q2, cosine, sine, derivative)
    if rule.slopes is not None and (derivative or rule.continuous):
        return straight_means(rule, q1, q2, cosine, sine)[derivative]
    if is_erf(rule):
        ends = (1 + 2 * q1) * (1 + 2 * q2)
        if derivative:
            return np.asarray(4 / math.pi / np.sqrt(1 + 2 * q1 + 2 * q2 + 4 * q1 * q2 * sine**2))
        return np.asarray(2 / math.pi * np.arcsin(2 * cosine * np.sqrt(q1 * q2 / ends)))
    if rule.name == "sin" and np.array_equal(rule.function(_PROBES), np.sin(_PROBES)):
        product = cosine * np.sqrt(q1) * np.sqrt(q2)
        # sinh and cosh would overflow where the whole is small, and their two halves cancel near 0
        plus, minus = (np.exp(-(q1 + q2) / 2 + sign * product) / 2 for sign in (1, -1))
        if derivative:
            return np.asarray(plus + minus)
        return np.where(np.abs(product) < 1, np.exp(-(q1 + q2) / 2) * np.sinh(np.clip(product, -1, 1)), plus - minus)
    return None


def is_erf(rule: Activation) -> bool:
    """Whether the activation is erf itself."""
    return rule.name == "erf" and np.array_equal(rule.function(_PROBES), special.erf(_PROBES))


def erf_pair(q1: Array, q2: Array, gap: Array) -> tuple[Array, Array]:
    """(K(c = 1) - K) / sqrt(q1 q2) and E erf' erf', from q1 (m, 1) > 0, q2 (n,) > 0 and 1 - c (m, n).

    The difference of two arcsines as the angle between them: a sum of positive terms, so nothing cancels.
    """
    first, second = 1 / np.sqrt(1 + 2 * q1), 1 / np.sqrt(1 + 2 * q2)
    # the sines of both arcs are largest and below, their cosines near and far
    largest = (2 * np.sqrt(q1) * first) * (np.sqrt(q2) * second)
    near, across = np.sqrt((1 + 2 * q1) + 2 * q2) * first * second, largest * gap
    below = largest - across
    apart = (largest + below) * across
    far = np.sqrt(apart + near**2)
    angle = 2 * np.arctan((largest * apart / (near + far) + near * across) / (1 + near * far + largest * below))
    return angle * (2 / math.pi / np.sqrt(q1)) * (1 / np.sqrt(q2)), (4 / math.pi * first) * second / far


def _one_kink(left: float, right: float, q1: Array, q2: Array, cosine: Array, sine: Array, derivative: bool) -> Array:
    """Slope ``left`` below 0 and ``right`` above: parts of one sign and of two, each an arc-cosine kernel."""
    angle = np.arctan2(sine, cosine)
    same, mixed = left**2 + right**2, 2 * left * right
    if derivative:
        return np.asarray((same * (math.pi - angle) + mixed * angle) / (2 * math.pi))
    up, down = sine + (math.pi - angle) * cosine, sine - angle * cosine
    return np.asarray(np.sqrt(q1) * np.sqrt(q2) * (same * up - mixed * down) / (2 * math.pi))


def straight_means(rule: Activation, q1: Array, q2: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    """E phi phi (of a continuous phi) and E phi' phi' of an activation with straight pieces; arrays that broadcast.

    Where the variances differ these means bend sharply at c = 1 (two kinks pass each other), so that no table serves.
    """
    breaks, slopes = rule.breaks, rule.slopes or ()
    bends = list(zip(breaks, np.diff(slopes), strict=True))
    # phi(h) = start + slopes[0] h + sum of steps * max(h - break, 0)
    start = float(rule.function(np.zeros(1))[0]) - sum(step * max(-point, 0.0) for point, step in bends)
    q1, q2, cosine, sine = np.broadcast_arrays(q1, q2, cosine, sine)
    first, second = (np.sqrt(np.maximum(q, 1e-200)) for q in (q1, q2))
    hinges = [sum(step * scale * _hinge(point / scale) for point, step in bends) for scale in (first, second)]
    value = (start + hinges[0]) * (start + hinges[1]) + slopes[0] ** 2 * first * second * cosine
    slope = np.full(value.shape, slopes[0] ** 2)
    for point, step in bends:
        # slopes that step at the breaks: chances that one variable, or both, lie above one
        above = special.ndtr(-point / first) + special.ndtr(-point / second)
        # E h1 max(h2 - b, 0) = covariance * P(h2 > b)
        value += slopes[0] * step * first * second * cosine * above
        slope += slopes[0] * step * above
        for other, change in bends:
            a, b = point / first, other / second
            chance = _both_above(a, b, cosine, sine)
            slope += step * change * chance
            product = _hinge_pair(a, b, cosine, sine, chance) - _hinge(a) * _hinge(b)
            value += step * change * first * second * product
    return value, slope


def _hinge(a: Array) -> Array:
    """E max(Z - a, 0)."""
    return np.asarray(np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi) - a * special.ndtr(-a))


def _hinge_pair(a: Array, b: Array, cosine: Array, sine: Array, chance: Array) -> Array:
    """E max(Z1 - a, 0) max(Z2 - b, 0), given P(Z1 > a, Z2 > b) (moments of a truncated pair, Rosenbaum 1961)."""
    s, lower = np.maximum(sine, 1e-150), 1 / (1 + np.abs(cosine))

    def beyond(x: Array, y: Array) -> Array:
        # (y - cosine x) / sine without its cancellation
        turned = np.where(cosine > 0, (y - x) / s + s * lower * x, (y + x) / s - s * lower * x)
        return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * special.ndtr(-turned))

    with np.errstate(over="ignore"):
        apart = np.where(cosine > 0, a - b, a + b) / s
        density = s / (2 * math.pi) * np.exp(-(apart**2) / 2 - lower * np.where(cosine > 0, a * b, -a * b))
    return np.asarray((a * b + cosine) * chance - b * beyond(a, b) - a * beyond(b, a) + density)


def _both_above(a: Array, b: Array, cosine: Array, sine: Array) -> Array:
    """P(Z1 > a, Z2 > b) for standard normal variables with that angle (Owen 1956)."""
    # Owen's formula divides by a and b; 0 as the limit from above
    a, b = (np.where(np.abs(x) < 1e-100, 1e-100, x) for x in (a, b))
    s = np.maximum(sine, 1e-150)

    def tail(x: Array, y: Array) -> Array:
        # (y - cosine x) / (sine x), where the difference would cancel near an angle of 0 or pi
        near, far = (y - x) / x / s + s / (1 + np.abs(cosine)), (y + x) / x / s - s / (1 + np.abs(cosine))
        return np.asarray(special.owens_t(x, np.where(cosine > 0, near, far)))

    with np.errstate(over="ignore"):
        inside = (special.ndtr(-a) + special.ndtr(-b)) / 2 - tail(-a, -b) - tail(-b, -a)
    return np.asarray(np.clip(inside - np.where(a * b < 0, 0.5, 0.0), 0.0, 1.0))
