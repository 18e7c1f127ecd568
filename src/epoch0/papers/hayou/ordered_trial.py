"""One trial of Hayou's Theorem 1: the critical sparsity of SNIP in a dense network (section 2.2)."""

from dataclasses import dataclass
from typing import Any

import torch

from epoch0.distributions import Gaussian
from epoch0.networks import mlp
from epoch0.papers.hayou.batches import gaussian
from epoch0.prune import critical_sparsity
from epoch0.prune.scores.connection_sensitivity import snip


@dataclass(frozen=True)
class CriticalSpec:
    """Dense networks of constant width, inputs and outputs included.

    Attributes:
        depth: L, number of weight layers.
        width: N.
        activation: name of the nonlinearity.
        weight_std: sigma_w.
        bias_std: sigma_b.
        examples: Gaussian inputs in the batch, with random labels.
    """

    depth: int
    width: int
    activation: str
    weight_std: float
    bias_std: float
    examples: int


def critical(spec: CriticalSpec, seed: int) -> dict[str, Any]:
    """The smallest sparsity at which SNIP prunes some layer in full, of one network.

    >>> critical(CriticalSpec(100, 100, "tanh", 0.4918, 0.3, 100), seed=0)["critical"]          # chi = 0.2
    0.076...

    Computed in float64: in float32 at chi = 0.1 a fifth of the scores is 0.

    Returns:
        ``critical``, the sparsity, and ``layer``, which one it is (1 is the first).
    """
    inputs, labels = gaussian(spec.width, spec.width, spec.examples, seed)
    net = mlp(
        [spec.width] * (spec.depth + 1), spec.activation, weights=Gaussian(spec.weight_std),
        biases=Gaussian(spec.bias_std), seed=seed, dtype=torch.float64,
    )  # fmt: skip
    scores = snip(net, None, [(inputs, labels)])
    found = critical_sparsity(scores)
    return {"critical": float(found), "layer": 1 + list(scores).index(found.layer)}
