"""One trial of Raghu Figures 14 to 16: networks with one layer's weights swept, labellings and flips counted."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from epoch0.activity import dichotomies
from epoch0.distributions import Gaussian
from epoch0.networks import ensemble
from epoch0.seeds import generator

_INPUTS = 10**6
"""Stream of the inputs' seed, away from those of networks."""


@dataclass(frozen=True)
class SweepSpec:
    """Hard-tanh networks with one output, and the layer whose weights are swept.

    Attributes:
        variance: sigma_w^2; there are no biases.
        width: of every hidden layer.
        depth: number of hidden layers.
        layer: which is swept, from 0.
        size: coordinates of an input.
        inputs: s, random inputs of norm sqrt(size).
        networks: how many.
    """

    variance: float
    width: int
    depth: int
    layer: int
    size: int
    inputs: int
    networks: int


def swept(spec: SweepSpec, seed: int) -> dict[str, Any]:
    """Sweep one layer of every network.

    >>> swept(spec, seed=0)["counts"].shape                     # (networks,)
    (10,)

    Args:
        spec: networks and layer.
        seed: of the networks, the inputs and the weights a quarter turn away.

    Returns:
        ``counts`` and ``flips`` (networks,), int64, and ``unresolved``, steps that could not be told apart.

    Source: Raghu et al. 2017, appendix B.3.
    """
    sizes = [spec.size] + [spec.width] * spec.depth + [1]
    nets = ensemble(spec.networks, sizes, "hardtanh", Gaussian(math.sqrt(spec.variance)), seed=seed)
    x = torch.stack([  # each with inputs of its own, so that the networks are independent
        torch.randn(spec.inputs, spec.size, generator=generator(seed, _INPUTS, index), dtype=torch.float64)
        for index in range(spec.networks)
    ])  # fmt: skip
    x = x / x.norm(dim=2, keepdim=True) * math.sqrt(spec.size)
    found = dichotomies(nets, x, spec.layer, method="refined", seed=seed)
    return {"counts": found.counts, "flips": found.flips, "unresolved": found.unresolved}
