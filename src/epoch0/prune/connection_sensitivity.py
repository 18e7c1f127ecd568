"""SNIP: how much the loss feels each weight at initialization (Hayou et al. 2021, section 2.2; Lee et al. 2019)."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.errors import InputError, suggest
from epoch0.prune._batches import described, examples, taken
from epoch0.prune._borrow import Borrowed, Values, added, near_the_end, scored
from epoch0.prune._scores import Scores
from epoch0.prune._settings import check_temperature
from epoch0.tracing.call import Forward
from epoch0.tracing.loss import Loss

REDUCTIONS = ("gradient", "score")


def snip(
    model: nn.Module,
    loss: Loss | None,
    batches: Iterable[Any],
    *,
    batch_norm: str = "train",
    dtype: torch.dtype | None = None,
    number_of_batches: int | None = None,
    forward: Forward | None = None,
    temperature: float = 1.0,
    reduction: str = "gradient",
) -> Scores:
    """Score each weight by its connection sensitivity abs(W dL/dW).

    >>> net = epoch0.networks.mlp([784, 256, 10], seed=0)
    >>> snip(net, None, [(images, labels)])["0.weight"].shape       # images (100, 784), labels (100,)
    torch.Size([256, 784])

    The model is borrowed and comes back to the bit: parameters, gradients, batch-norm statistics, modes, hooks, random
    states. Frozen weights are scored like others. Dropout is off. Weights that stand behind a mask score 0.

    Args:
        model: any module.
        loss: ``loss(outputs, targets) -> scalar``, the mean over the examples; None for cross-entropy (integer targets)
            or the mean squared error.
        batches: pairs (inputs, targets), inputs as the model is called with them; mappings with labels; a data loader;
            or one pair; moved to the model's device.
        batch_norm: ``"train"``: statistics of the batch, as the authors' code has it; ``"eval"``: running ones, at
            initialization the identity. This decides the mask: on a ResNet-32 at 98 % the two masks share 6 % of their
            weights (Jaccard index), with 6 of 34 layers empty in train mode and none in eval mode.
        dtype: to compute in. None: the model's own, and float64 where its gradients come near the end of its range (a
            deep network in the ordered phase: at chi = 0.1, 100 layers, a fifth of the float32 scores are 0 and the
            critical sparsity reads 0.19 in place of 0.05). On that ResNet-32, float32 and float64 masks differ in 64
            of the 37,112 weights they keep.
        number_of_batches: how many batches are taken; None takes all. One is what the authors use.
        forward: ``forward(model, inputs) -> outputs``, for a model that is called in another way.
        temperature: outputs are divided by it; 1 for the authors. Only cross-entropy's mask depends on it.
        reduction: over batches. ``"gradient"``: of the mean gradient over all examples, which is the authors' score
            of one large batch (exactly, unless batch norm couples its examples); ``"score"``: the mean of the scores
            of the batches, in which gradients of opposite signs do not cancel.

    Returns:
        Scores, all >= 0.

    Raises:
        InputError: if the model, the loss or a batch cannot be used; it says why.

    Warns:
        UserWarning: naming weights that the loss does not depend on; they score 0.

    Source: Lee, Ajanthan, Torr 2019, equation 5 (up to its normalization, which changes no order); Hayou et al. 2021,
    section 2.2.
    """
    check_temperature(temperature)
    if reduction not in REDUCTIONS:
        raise InputError(f"reduction={reduction!r}; it is 'gradient' or 'score'.{suggest(reduction, REDUCTIONS)}")
    held = taken(batches, number_of_batches, loss)
    groups = [held] if reduction == "gradient" else [[batch] for batch in held]

    def compute(lent: Borrowed) -> tuple[Values, bool]:
        total, near = Values(), False
        for group in groups:
            gradients = lent.gradients(group, loss, temperature)
            near = near or near_the_end(gradients)
            total = added(total, sensitivity(lent.leaves, gradients), examples(group) / examples(held))
        return total, near

    several = f", reduced by {reduction}" if len(held) > 1 else ""
    return scored(model, batch_norm, dtype, f"snip, {described(held, batch_norm)}{several}", compute, forward=forward)


def sensitivity(weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Values:
    """abs(W dL/dW), written over the gradients, None where they are.

    Args:
        weights: tensors of any shapes.
        gradients: of the same shapes; overwritten.
    """
    with torch.no_grad():
        pairs = zip(weights, gradients, strict=True)
        return [None if gradient is None else gradient.mul_(weight).abs_() for weight, gradient in pairs]
