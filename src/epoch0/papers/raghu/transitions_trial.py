"""One trial of Raghu Figures 2, 5, 12, 13: a block of random networks, an arc, its length and transitions by layer."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from epoch0.activity import transitions
from epoch0.curves import Arc
from epoch0.distributions import Gaussian
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.papers.curve import CurveSpec


@dataclass(frozen=True)
class BlockSpec:
    """A block of networks of one kind, and what is measured of them.

    Attributes:
        activation: "hardtanh" or "relu".
        variance: sigma_w^2, of a weight times the number of inputs of its layer.
        width: of every layer after the input.
        depth: number of layers.
        ends: the two points of the arc; each is scaled to the norm sqrt(size).
        first: index of the first network of the block.
        networks: how many.
        counted: whether transitions are counted.
        tangents: points of the arc at which lengths are measured.
    """

    activation: str
    variance: float
    width: int
    depth: int
    ends: CurveSpec
    first: int
    networks: int
    counted: bool
    tangents: int = 64


def block(spec: BlockSpec, seed: int) -> dict[str, Any]:
    """Measure one block.

    >>> block(spec, seed=0)["transitions"].shape                # (networks, depth)
    (10, 8)

    Args:
        spec: what to measure.
        seed: of the ensemble; a network is the same whatever the block it is measured in.

    Returns:
        ``lengths`` (networks, depth + 1), ``growth`` (networks, depth); if counted, ``transitions`` (networks, depth).

    Source: Raghu et al. 2017, sections 2.1 and 2.2.
    """
    start, end = spec.ends.points()
    arc = Arc(start * math.sqrt(spec.ends.size), end * math.sqrt(spec.ends.size))
    sizes = [spec.ends.size] + [spec.width] * spec.depth
    every = ensemble(
        spec.first + spec.networks, sizes, spec.activation, Gaussian(math.sqrt(spec.variance)), linear_output=False,
        seed=seed,
    )  # fmt: skip
    nets = every[spec.first :]
    measured = trajectory_length(nets, arc, points=spec.tangents, seed=seed)
    found = {"lengths": np.asarray(measured.network_lengths), "growth": np.asarray(measured.network_growth)}
    return {**found, "transitions": transitions(nets, arc).per_layer} if spec.counted else found
