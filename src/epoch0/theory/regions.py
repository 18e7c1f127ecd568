"""How many linear regions a network can have, and how many one has at initialization (THEORY section 5 and 1.3).

The bounds are exact Python integers. Conventions: ``widths`` are those of the hidden layers, ``inputs`` the dimension
of the input, or of the line or plane that is looked at, and ``faces`` the number T of break points of the activation:
1 for ReLU, leaky ReLU and abs, 2 for hard tanh and ReLU6. An InputError names the argument that cannot be used.

>>> e0.theory.regions.upper_bound([64, 64, 64], inputs=2)
9011897441
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from epoch0.arguments import Size, Std, Whole, checked
from epoch0.errors import InputError


@checked
def arrangement_regions(planes: Whole, dimension: Whole) -> int:
    """Largest number of regions into which so many hyperplanes cut a space of that dimension: sum of C(planes, i).

    >>> arrangement_regions(3, 2), arrangement_regions(64, 1)
    (7, 65)

    Planes in general position reach it, and so does a layer of as many ReLU neurons with random weights.

    Source: Zaslavsky's theorem; Raghu et al. 2017, Theorem 5.
    """
    return sum(math.comb(planes, i) for i in range(min(planes, dimension) + 1))


@checked
def upper_bound(widths: Sequence[Size], inputs: Size, *, faces: Size = 1) -> int:
    """No network of these widths has more activation regions, whatever its weights: a product over layers.

    >>> upper_bound([2, 2, 2], inputs=1), upper_bound([4, 4], inputs=2, faces=2)
    (27, 1369)

    A layer's neurons cut each region of the layers before along hyperplanes, into no more than
    :func:`arrangement_regions`; together O(k^(mn)) for n layers of width k and m inputs.

    Source: Raghu et al. 2017, Theorems 1 and 5.
    """
    return math.prod(arrangement_regions(faces * width, inputs) for width in _widths(widths))


@checked
def line_breaks(
    widths: Sequence[Size],
    x0: ArrayLike,
    x1: ArrayLike,
    *,
    weight_std: Std = 2**0.5,
    bias_std: Std = 0.0,
    negative_slope: float = 0.0,
    kind: Annotated[str, ("segment", "ray", "line")] = "segment",
) -> np.ndarray:
    """Expected break points along a line in each layer of a wide random network: the constant of the linear law.

    >>> line_breaks([256, 256], np.eye(784)[0], np.eye(784)[1])         # perpendicular ends: half of the neurons
    array([128., 128.])
    >>> line_breaks([256, 256], np.eye(784)[0], np.eye(784)[1], bias_std=1e-3, kind="line")
    array([256., 256.])

    In the wide limit the pre-activations of a layer along a line are a Gaussian process whose covariance is
    a + b x.x', so that a neuron is a random plane through the origin in the space of vectors (sqrt(a / b), x): it comes
    between two of them with a chance of their angle over pi. Layer after layer ``a`` only gathers biases. A whole line
    sweeps the angle pi, one break a neuron on average. The first layer is exact at any width if its weights are
    Gaussian; deeper ones have a correction of the order of one over the width.

    The ends are of shape (dim,), or (lines, dim), and the result (layers,) or (lines, layers). ``weight_std`` is
    sigma_w, a weight's standard deviation times sqrt(fan_in), ``bias_std`` sigma_b, ``negative_slope`` that of the
    activation below zero (-1 for abs), and ``kind`` "segment", "ray" (from x0 on through x1) or "line".

    Source: Hanin and Rolnick 2019, Theorem 1; the constant by Rice's formula (THEORY section 5).
    """
    sizes = np.array(_widths(widths), dtype=np.float64)
    start, end = np.asarray(x0, dtype=np.float64), np.asarray(x1, dtype=np.float64)
    if start.shape != end.shape or start.ndim not in (1, 2) or start.shape[-1] == 0:
        raise InputError(f"x0 has shape {start.shape} and x1 {end.shape}; both must be (dim,) or (lines, dim).")
    if weight_std == 0:
        raise InputError("weight_std=0: without weights no neuron depends on its input.")
    if bool((start == end).all(axis=-1).any()):
        raise InputError("x0 and x1 are the same point; a line needs two different ones.")
    scale = np.maximum(np.abs(start).max(axis=-1), np.abs(end).max(axis=-1))[..., None]
    start, end = start / scale, end / scale
    handed_on = 2 * math.log(weight_std) + math.log(0.5 * (1 + negative_slope**2))  # part of the variance, as a log
    gathered, found = 0.0, []
    for layer in range(len(sizes)):
        gathered = min(1e300, gathered + math.exp(min(690.0, -layer * handed_on)))
        height = np.minimum(1e150, bias_std / weight_std * math.sqrt(start.shape[-1] * gathered) / scale)
        found.append(_angle(start, end, height, kind) / math.pi)
    return np.stack(found, axis=-1) * sizes


def _angle(start: np.ndarray, end: np.ndarray, height: np.ndarray, kind: str) -> np.ndarray:
    """Angle swept by (height, x) as x runs along the line."""
    if kind == "line":
        return np.full(start.shape[:-1], math.pi)
    a = np.concatenate([height, start], axis=-1)
    b = np.concatenate([height, end], axis=-1) if kind == "segment" else np.concatenate([0 * height, end - start], -1)
    lengths = [np.linalg.norm(v, axis=-1, keepdims=True) for v in (a, b)]
    a, b = (np.divide(v, n, out=np.zeros_like(v), where=n > 0) for v, n in zip((a, b), lengths, strict=True))
    angle = 2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))
    return np.where((lengths[0] > 0)[..., 0] & (lengths[1] > 0)[..., 0], angle, 0.0)


def _widths(widths: Sequence[int]) -> tuple[int, ...]:
    if not len(widths):
        raise InputError("widths is empty; name the widths of the hidden layers: [64, 64, 64].")
    return tuple(widths)
