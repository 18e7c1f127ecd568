"""One trial of Hayou Figures 2 and 4: what SNIP keeps of each layer of a residual network (section 3)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from epoch0.networks import resnet
from epoch0.papers.hayou.batches import images
from epoch0.prune import critical_sparsity, keep
from epoch0.prune.scores.connection_sensitivity import snip


@dataclass(frozen=True)
class ResidualSpec:
    """A residual network with He's weights, and how it is scored.

    Attributes:
        data: name of the data set.
        depth: 6n + 2 layers.
        width: factor on the channels 16, 32, 64.
        stable: whether branches are divided by the root of the number of blocks.
        activation: name of the nonlinearity.
        batch_norm: statistics while scoring: ``"train"``, of the batch, or ``"eval"``, the identity at initialization.
        examples: images in the batch.
        sparsities: fractions of all weights removed.
    """

    data: str
    depth: int
    width: int
    stable: bool
    activation: str
    batch_norm: str
    examples: int
    sparsities: tuple[float, ...]


def densities(spec: ResidualSpec, seed: int) -> dict[str, Any]:
    """Share of each layer's weights that SNIP keeps.

    >>> spec = ResidualSpec("digits", 20, 1, False, "relu", "train", 128, (0.9, 0.98))
    >>> densities(spec, seed=0)["density"].shape                # sparsities, layers
    (2, 22)

    Plain and stable networks of a seed have the same weights and the same images.

    Returns:
        ``density`` (sparsities, layers); ``names`` of the layers and ``weights``, how many each has; ``critical``, the
        smallest sparsity at which a layer is fully pruned.
    """
    inputs, labels = images(spec.data, spec.examples, seed, flatten=False, dtype=torch.float32)
    net = resnet(
        spec.depth, spec.width, spec.stable, 10, spec.activation, inputs=tuple(inputs.shape[1:]), seed=seed
    )  # fmt: skip
    scores = snip(net, None, [(inputs, labels)], batch_norm=spec.batch_norm)
    kept = [keep(scores, sparsity) for sparsity in spec.sparsities]
    return {
        "density": np.array([[float(mask.double().mean()) for mask in masks.values()] for masks in kept]),
        "names": list(scores),
        "weights": [score.numel() for score in scores.values()],
        "critical": float(critical_sparsity(scores)),
    }
