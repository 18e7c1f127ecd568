"""One trial of Hayou Figure 1: which weights of a deep dense network SNIP keeps (sections 2.2 and 2.3)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.networks import mlp
from epoch0.papers.hayou.batches import images
from epoch0.prune import critical_sparsity, keep
from epoch0.prune.scores.connection_sensitivity import snip


@dataclass(frozen=True)
class KeptSpec:
    """A dense network and how it is pruned.

    Attributes:
        data: name of the data set.
        depth: number of weight layers, the last one included.
        width: units of each hidden layer.
        activation: name of the nonlinearity.
        weight_std: sigma_w.
        bias_std: sigma_b.
        sparsity: fraction of all weights removed.
        examples: images in the batch.
    """

    data: str
    depth: int
    width: int
    activation: str
    weight_std: float
    bias_std: float
    sparsity: float
    examples: int


def kept(spec: KeptSpec, seed: int) -> dict[str, Any]:
    """Share of the weights into each unit that SNIP keeps.

    >>> spec = KeptSpec("digits", 100, 100, "tanh", 1.304, 0.2, 0.7, 100)
    >>> kept(spec, seed=0)["rows"].shape                        # hidden layers, units
    (99, 100)

    Scores are in float64: gradients of 100 layers outside the edge of chaos leave the range of float32.

    Returns:
        ``rows`` (hidden layers, units), float32; ``density`` (layers,), the output layer included; ``dead``, how many
        layers keep nothing; ``critical``, the smallest sparsity at which a layer would be fully pruned;
        ``correlation``, the mean correlation of two inputs, and ``square``, their mean square.
    """
    inputs, labels = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    classes = len(load(spec.data).classes)
    net = mlp(
        [inputs.shape[1], *[spec.width] * (spec.depth - 1), classes], spec.activation,
        weights=Gaussian(spec.weight_std), biases=Gaussian(spec.bias_std), seed=seed, dtype=torch.float64,
    )  # fmt: skip
    scores = snip(net, None, [(inputs, labels)])
    masks = list(keep(scores, spec.sparsity).values())
    square = float(inputs.square().mean())
    pairs = inputs @ inputs.T / inputs.shape[1]
    others = (float(pairs.sum()) - float(pairs.diagonal().sum())) / (len(pairs) * (len(pairs) - 1))
    return {
        "rows": np.stack([mask.double().mean(1).numpy() for mask in masks[:-1]]).astype(np.float32),
        "density": np.array([float(mask.double().mean()) for mask in masks]),
        "dead": sum(not bool(mask.any()) for mask in masks),
        "critical": float(critical_sparsity(scores)),
        "correlation": others / square,
        "square": square,
    }
