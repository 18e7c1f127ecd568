"""One trial of Price-Tanner Figures 1, 2, 3 and 5: a block of random networks, one curve, its length at every layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from epoch0.distributions import Law
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.networks.ensemble import Ensemble
from epoch0.papers.curve import CurveSpec


@dataclass(frozen=True)
class BlockSpec:
    """A block of networks of one kind.

    Attributes:
        weights: law of a weight before the division by sqrt(width).
        biases: law of a bias.
        width: width of every layer, the input included.
        depth: number of ReLU layers.
        curve: the curve sent through.
        first: index of the first network of the block.
        networks: number of networks.
        tangents: points of the curve a network.
    """

    weights: Law
    biases: Law
    width: int
    depth: int
    curve: CurveSpec
    first: int
    networks: int
    tangents: int = 16

    def ensemble(self, seed: int) -> Ensemble:
        """The networks: number ``first`` and those after it of the ensemble with that seed."""
        sizes = [self.width] * (self.depth + 1)
        every = ensemble(
            self.first + self.networks, sizes, "relu", self.weights, self.biases, linear_output=False, seed=seed
        )
        return every[self.first :]


def block(spec: BlockSpec, seed: int) -> dict[str, Any]:
    """Measure one block.

    >>> block(spec, seed=0)["lengths"].shape                    # (networks, depth + 1)
    (25, 11)

    Args:
        spec: what to measure.
        seed: of the ensemble; a network is the same whatever the block it is measured in.

    Returns:
        ``lengths`` (networks, depth + 1) and ``growth`` (networks, depth), float64.

    Source: Price & Tanner, section 4.
    """
    measured = trajectory_length(spec.ensemble(seed), spec.curve.curve(), points=spec.tangents, seed=seed)
    return {"lengths": np.asarray(measured.network_lengths), "growth": np.asarray(measured.network_growth)}
