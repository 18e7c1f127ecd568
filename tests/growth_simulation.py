"""The slow twin of the growth theory: real weight matrices, a real ReLU, tangents pushed through, in numpy."""

import math
from itertools import pairwise

import numpy as np


def draw(rng: np.random.Generator, law: str, shape: tuple[int, ...], density: float) -> np.ndarray:
    """Entries of standard deviation 1 before the mask."""
    if law == "gaussian":
        values = rng.standard_normal(shape)
    elif law == "uniform":
        values = rng.uniform(-math.sqrt(3), math.sqrt(3), shape)
    else:  # the integers -2..2, variance 2
        values = rng.integers(-2, 3, shape) / math.sqrt(2)
    return values * (rng.random(shape) < density) if density < 1 else values


def direction(name: str, size: int) -> np.ndarray:
    """A unit vector."""
    if name == "flat":
        return np.full(size, size**-0.5)
    if name == "one-hot":
        return np.eye(size)[0]
    weights = np.arange(1.0, size + 1)
    return weights / np.linalg.norm(weights)


def growths(
    rng: np.random.Generator,
    sizes: list[int],
    stds: list[float],
    *,
    law: str = "gaussian",
    density: float = 1.0,
    tangent: str = "flat",
    networks: int = 10_000,
    slope: float = 0.0,
    bias: float = 0.3,
    straight: bool = False,
) -> np.ndarray:
    """||dz|| after each layer, shape (networks, layers), for a unit tangent at the input.

    ``straight`` puts the input along the tangent: a straight line through the origin.
    """
    dz = np.tile(direction(tangent, sizes[0]), (networks, 1))
    z = 0.7 * dz if straight else rng.standard_normal((networks, sizes[0]))
    norms = []
    for (fan_in, fan_out), std in zip(pairwise(sizes), stds, strict=True):
        weights = std * draw(rng, law, (networks, fan_out, fan_in), density)
        h = np.einsum("nij,nj->ni", weights, z) + bias * rng.standard_normal((networks, fan_out))
        rate = np.where(h > 0, 1.0, slope)
        dz = rate * np.einsum("nij,nj->ni", weights, dz)
        z = rate * h
        norms.append(np.linalg.norm(dz, axis=1))
    return np.stack(norms, axis=1)
