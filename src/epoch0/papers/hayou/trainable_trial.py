"""One trial of Hayou Figures 3 and 5: all pruned networks of one depth, trained as one stack (section 4.1)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.papers.checkpoints import checkpoint_of
from epoch0.papers.hayou.batches import images
from epoch0.prune import Masks, apply, keep, random
from epoch0.prune.effects.rescale import rescale
from epoch0.prune.scores.connection_sensitivity import snip
from epoch0.train.device import chosen_device
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.stacked import Stacked

INITS = ("rescaled", "edge", "ordered")
"""Edge of chaos with rescaling, edge of chaos, ordered phase: the panels of the figures, in their order."""


@dataclass(frozen=True)
class DepthSpec:
    """The networks of one depth.

    Attributes:
        data: name of the data set.
        activation: name of the nonlinearity.
        depth: number of weight layers, the last one included.
        width: units of each hidden layer.
        edge: sigma_w and sigma_b on the edge of chaos.
        ordered: sigma_w and sigma_b in the ordered phase.
        sparsities: fractions of all weights removed by SNIP.
        examples: images that SNIP scores on, and that measured rescaling looks at.
        rescaling: how weights are rescaled, see :func:`epoch0.prune.effects.rescale.rescale`.
        steps: of plain SGD.
        batch_size: of it.
        learning_rate: of it.
        tested: test images.
    """

    data: str
    activation: str
    depth: int
    width: int
    edge: tuple[float, float]
    ordered: tuple[float, float]
    sparsities: tuple[float, ...]
    examples: int
    rescaling: str
    steps: int
    batch_size: int
    learning_rate: float
    tested: int


def trained(spec: DepthSpec, seed: int) -> dict[str, Any]:
    """Prune, rescale, train and test every network of one depth; all see the same batches.

    >>> trained(spec, seed=0)["accuracy"].shape                     # 3 initializations, 9 sparsities
    (3, 9)

    The network on the edge of chaos and its rescaled twin have the same weights and masks. Scores are in float64. If
    ``EPOCH0_CHECKPOINTS`` names a folder, a trial that was killed goes on from there.

    Returns:
        ``accuracy``, the share of the test images; ``diverged``; ``dead``, how many layers keep nothing; ``unscaled``,
        whether a network could not be rescaled, since a layer keeps nothing: all (initializations, sparsities).
        ``chance``: share of the most frequent class; ``device``.
    """
    first, test = load(spec.data, "train"), load(spec.data, "test")
    x, y = torch.as_tensor(first.inputs("standard")), torch.as_tensor(first.labels)
    held = torch.as_tensor(test.inputs("standard", like=first))[: spec.tested]
    labels = torch.as_tensor(test.labels)[: spec.tested]
    classes = len(first.classes)
    nets, dead, unscaled = [], [], []
    batch = images(spec.data, spec.examples, seed, flatten=True, dtype=torch.float64)
    for init in INITS:
        for masks in _masks(spec, init, seed, batch, classes):
            net = apply(network(spec, init, seed, x.shape[1], classes), masks)
            failed = False
            if init == "rescaled":
                try:
                    rescale(net, spec.rescaling, x=batch[0].float())
                except InputError:  # a layer without weights has no scale
                    failed = True
            nets.append(net)
            dead.append(len(masks.dead))
            unscaled.append(failed)
    device = chosen_device()
    with checkpoint_of(spec, seed) as path:
        stack = Stacked.of(nets)
        done = train(
            stack, (x, y), steps=spec.steps, batch_size=spec.batch_size, learning_rate=spec.learning_rate, seed=seed,
            loss=stack.loss(F.cross_entropy), device=device, evaluate=Accuracy(held, labels), evaluate_every=spec.steps,
            checkpoint=path, checkpoint_minutes=None if path is None else 2.0,
        )  # fmt: skip
    shape = (len(INITS), len(spec.sparsities))
    return {
        "accuracy": np.array(done.history[-1]["accuracy"]).reshape(shape),
        "diverged": stack.diverged.cpu().numpy().reshape(shape),
        "dead": np.array(dead).reshape(shape),
        "unscaled": np.array(unscaled).reshape(shape),
        "chance": float(np.bincount(labels.numpy()).max() / len(labels)),
        "device": device.type,
    }


def network(spec: DepthSpec, init: str, seed: int, inputs: int, classes: int) -> nn.Sequential:
    """One network before it is pruned."""
    weight_std, bias_std = spec.ordered if init == "ordered" else spec.edge
    return mlp(
        [inputs, *[spec.width] * (spec.depth - 1), classes], spec.activation, weights=Gaussian(weight_std),
        biases=Gaussian(bias_std) if bias_std > 0 else None, seed=seed,
    )  # fmt: skip


def _masks(spec: DepthSpec, init: str, seed: int, batch: tuple[Tensor, Tensor], classes: int) -> list[Masks]:
    net = network(spec, init, seed, batch[0].shape[1], classes).double()
    scores = snip(net, None, [batch])
    return [keep(scores, sparsity) for sparsity in spec.sparsities]


def untrained(spec: DepthSpec, inputs: int, classes: int) -> Stacked:
    """All networks of a trial with random masks, for a dry run that times their steps."""
    nets = [network(spec, init, 0, inputs, classes) for init in INITS for _ in spec.sparsities]
    return Stacked.of(nets, [keep(random(net), s) for net, s in zip(nets, spec.sparsities * len(INITS), strict=True)])
