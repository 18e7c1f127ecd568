"""SNIP, what the loss feels of each weight, and FORCE, the same in rounds (Lee et al. 2019; de Jorge et al. 2021)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.arguments import BatchNorm, Size, Sparsity
from epoch0.prune.masks.keep import largest
from epoch0.prune.scores.functional import Batch, Borrowed, Values, near_the_end, scored, times
from epoch0.prune.scores.scores import Progress, Scores, listed, tell
from epoch0.tracing.call import Forward
from epoch0.tracing.loss import Loss


@listed("batches", "batch_norm")
def snip(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss: Loss | None = None,
    batch_norm: BatchNorm = "train",
    dtype: torch.dtype | None = None,
    forward: Forward | None = None,
) -> Scores:
    """Score each weight by its connection sensitivity abs(W dL/dW).

    >>> net = epoch0.networks.mlp([64, 256, 10], seed=0)
    >>> snip(net, [(images, labels)])["0.weight"].shape       # images (100, 64), labels (100,)
    torch.Size([256, 64])

    The model is borrowed and comes back to the bit: parameters, gradients, batch-norm statistics, modes, hooks, random
    states. Frozen weights are scored like others. Dropout is off. Weights that stand behind a mask score 0.

    Args:
        batches: pairs (inputs, targets), inputs as the model is called with them; mappings with labels; a data loader;
            or one pair; moved to the model's device. The gradient is the mean over all examples: the authors' score
            of one large batch (exactly, unless batch norm couples its examples).
        loss: ``loss(outputs, targets) -> scalar``, the mean over the examples; None for cross-entropy (integer targets)
            or the mean squared error.
        batch_norm: ``"train"``: statistics of the batch, as the authors' code has it; ``"eval"``: running ones, at
            initialization the identity. This decides the mask: on a ResNet-32 at 98 % the two masks share 6 % of their
            weights (Jaccard index), with 6 of 34 layers empty in train mode and none in eval mode.
        dtype: to compute in. None: the model's own, and float64 where its gradients come near the end of its range (a
            deep network in the ordered phase: at chi = 0.1, 100 layers, a fifth of the float32 scores are 0 and the
            critical sparsity reads 0.19 in place of 0.05). On that ResNet-32, float32 and float64 masks differ in 64
            of the 37,112 weights they keep.
        forward: ``forward(model, inputs) -> outputs``, for a model that is called in another way.

    Warns:
        UserWarning: naming weights that the loss does not depend on; they score 0.

    Source: Lee, Ajanthan, Torr 2019, equation 5 (up to its normalization, which changes no order); Hayou et al. 2021,
    section 2.2.
    """

    def compute(lent: Borrowed, held: list[Batch]) -> tuple[Values, bool]:
        gradients = lent.gradients(held, loss)
        near = near_the_end(gradients)
        return sensitivity(lent.leaves, gradients), near

    return scored(model, batches, loss, "snip", compute, batch_norm, dtype, forward)


def sensitivity(weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Values:
    """abs(W dL/dW), written over the gradients, None where they are."""
    return [None if product is None else product.abs_() for product in times(weights, gradients)]


@listed("batches", "batch_norm", "sparsity", "steps", "progress", rounds=60)
def force(
    model: nn.Module,
    batches: Iterable[Any],
    sparsity: Sparsity,
    steps: Size = 60,
    *,
    loss: Loss | None = None,
    revive: bool = True,
    batch_norm: BatchNorm = "train",
    dtype: torch.dtype | None = None,
    forward: Forward | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Score each weight by its connection sensitivity in the network that earlier rounds have left.

    >>> net = epoch0.networks.mlp([64, 256, 10], seed=0)
    >>> scores = force(net, [(images, labels)], sparsity=0.98, steps=10)      # images (100, 64), labels (100,)
    >>> print(keep(scores, sparsity=0.98))                          # the last round's choice
    379 of 18,944 weights kept in 2 layers, sparsity 97.9994%

    Round t of n scores abs(W dL/dW) with the gradient of the network masked by round t - 1, and keeps
    ``M^(1 - t/n) k^(t/n)`` of the M weights, k of them in the end. The scores of round n come back: what
    ``keep(scores, sparsity)`` makes of them is the mask of the method. One step is SNIP. Each round costs one forward
    and one backward pass of all batches.

    The model is treated, and arguments not told here are, as by :func:`snip`; weights that stand behind a mask count
    among the removed, and stay so.

    Args:
        sparsity: fraction of all weights that is to be removed in the end, in [0, 1).
        steps: rounds, >= 1; the authors recommend 60.
        revive: True for FORCE: a weight removed in an earlier round can come back, as its sensitivity is W times the
            gradient at its place; False for iterative SNIP: removed is removed.
        progress: called before each round with the part of them that is done, from 0 to 1, and its number in words.

    Returns:
        Scores >= 0. With ``revive=False`` the weights that round n - 1 removed are marked as removed.

    Source: de Jorge, Sanyal, Behl, Torr, Rogez, Dokania 2021, section 4 and Algorithm 1.
    """
    removed = dict[str, Tensor]()

    def compute(lent: Borrowed, held: list[Batch]) -> tuple[Values, bool]:
        weights = [leaf.detach() for leaf in lent.leaves]
        kept = standing = dict(zip([w.name for w in lent.weights], lent.kept, strict=True))
        near = False
        for number, k in enumerate(_counts(sum(w.numel() for w in weights), sparsity, steps)):
            tell(progress, number, steps)
            masked = [(w * m).requires_grad_() for w, m in zip(weights, kept.values(), strict=True)]
            gradients = replace(lent, leaves=masked).gradients(held, loss)
            near = near or near_the_end(gradients)
            values = sensitivity(weights, gradients)
            pairs = list(zip(values, kept.items(), strict=True))
            if not revive:
                values = [None if v is None else v.masked_fill_(~m, 0.0) for v, (_, m) in pairs]
            if k is not None:
                scores = {name: torch.zeros(m.shape, device=m.device) if v is None else v for v, (name, m) in pairs}
                allowed = standing if revive else kept
                k = min(k, sum(int(mask.sum()) for mask in allowed.values()))
                kept = largest(scores, k, {name: ~mask for name, mask in allowed.items()})
        removed.update({name: ~mask for name, mask in (standing if revive else kept).items()})
        return values, near

    words = f"{'force' if revive else 'iterative snip'}, {steps} steps to {sparsity:.6g}"
    scores = scored(model, batches, loss, words, compute, batch_norm, dtype, forward)
    return Scores(scores, scores.method, removed)


def _counts(total: int, sparsity: float, steps: int) -> list[int | None]:
    """How many weights are kept after each round; None after the last, whose scores are the result."""
    last = max(total - round(sparsity * total), 1)
    return [*(round(total ** (1 - t / steps) * last ** (t / steps)) for t in range(1, steps)), None]
