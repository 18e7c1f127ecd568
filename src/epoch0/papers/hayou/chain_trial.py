"""One trial of Hayou's Proposition 3: correlations in a residual network that was pruned at initialization."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from epoch0.networks import residual_chain
from epoch0.networks.residual_blocks import Rung
from epoch0.papers.hayou.batches import gaussian, images
from epoch0.prune import apply, keep
from epoch0.prune.scores.baselines import random
from epoch0.prune.scores.connection_sensitivity import snip

METHODS = ("snip", "random")


@dataclass(frozen=True)
class ChainSpec:
    """Fully connected residual networks, y + W relu(y), with He's weights.

    Attributes:
        blocks: residual blocks.
        width: units of y.
        data: name of the data set, or ``"gaussian"``.
        examples: in the batch of SNIP.
        pairs: pairs of inputs whose correlation is followed.
        sparsities: fractions removed, each from the whole network.
    """

    blocks: int
    width: int
    data: str
    examples: int
    pairs: int
    sparsities: tuple[float, ...]


def correlations(spec: ChainSpec, seed: int) -> dict[str, Any]:
    """How correlated two inputs are behind each block, whatever was pruned.

    >>> spec = ChainSpec(50, 100, "gaussian", 50, 10, (0.0, 0.9))
    >>> correlations(spec, seed=0)["snip"].shape                # sparsities, blocks + 1
    (2, 51)

    Returns:
        For ``"snip"`` and ``"random"``: the mean over pairs of 1 - c_l, shape (sparsities, blocks + 1).
    """
    double = torch.float64
    if spec.data == "gaussian":
        inputs, labels = gaussian(spec.width, 10, spec.examples, seed)
    else:
        inputs, labels = images(spec.data, spec.examples, seed, flatten=True, dtype=double)
    found: dict[str, Any] = {}
    for method in METHODS:
        rows = []
        scores = None
        for sparsity in spec.sparsities:
            net = residual_chain(spec.blocks, spec.width, inputs=(inputs.shape[1],), seed=seed, dtype=double)
            if sparsity:
                if scores is None:
                    scores = snip(net, None, [(inputs, labels)]) if method == "snip" else random(net, seed=seed)
                apply(net, keep(scores, sparsity))
            rows.append(_distances(net, inputs, spec.pairs))
        found[method] = np.array(rows)
    return found


def _distances(net: nn.Sequential, x: Tensor, pairs: int) -> NDArray[np.float64]:
    """Mean of 1 - c over pairs, at the input of the first block and behind each."""
    first, second = torch.arange(pairs) * 2 % len(x), (torch.arange(pairs) * 2 + 1) % len(x)
    with torch.no_grad():
        y = net[0](x)
        rows = [_apart(y[first], y[second])]
        for block in net:
            if isinstance(block, Rung):
                y = block(y)
                rows.append(_apart(y[first], y[second]))
    return np.array(rows)


def _apart(a: Tensor, b: Tensor) -> float:
    """1 - c without cancellation: half the squared distance of the directions."""
    a, b = (h / torch.linalg.vector_norm(h, dim=1, keepdim=True) for h in (a, b))
    return float((a - b).square().sum(1).mean() / 2)
