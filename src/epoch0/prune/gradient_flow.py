"""GraSP: keep the weights that the flow of gradients would miss most (Wang, Zhang, Grosse 2020; Hayou et al. 2021)."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.prune._batches import Batch, described, examples, taken
from epoch0.prune._borrow import Borrowed, Values, added, near_the_end, scored
from epoch0.prune._memory import give_back
from epoch0.prune._scores import Scores
from epoch0.prune._settings import check_temperature
from epoch0.tracing.call import Forward
from epoch0.tracing.loss import Loss


def grasp(
    model: nn.Module,
    loss: Loss | None,
    batches: Iterable[Any],
    *,
    temperature: float = 200.0,
    batch_norm: str = "train",
    dtype: torch.dtype | None = None,
    number_of_batches: int | None = None,
    forward: Forward | None = None,
) -> Scores:
    """Score each weight by what it does for the gradient flow: W (H g), H the Hessian and g the gradient of the loss.

    >>> net = epoch0.networks.mlp([784, 256, 10], seed=0)
    >>> grasp(net, None, [(images, labels)])["0.weight"].shape      # images (100, 784), labels (100,)
    torch.Size([256, 784])

    To first order, taking weight i away changes ``g . g`` by ``-2 W_i (H g)_i``. The authors' score is ``-W (H g)`` and
    they remove its largest; this is its negative, so that the largest are kept, as with every score here. Positive: the
    weight helps the flow; negative: it is in its way. The product is exact, by differentiating twice. Several batches
    have one g, the mean over all examples, and one H, that of the mean loss.

    The model is borrowed and comes back to the bit. Frozen weights are scored like others. Dropout is off. Weights that
    stand behind a mask score 0 and are marked as removed, so that negative scores do not bring them back.

    Args:
        model: any module that can be differentiated twice.
        loss: ``loss(outputs, targets) -> scalar``, the mean over the examples; None for cross-entropy (integer targets)
            or the mean squared error.
        batches: pairs (inputs, targets), inputs as the model is called with them; mappings with labels; a data loader;
            or one pair; moved to the model's device.
        temperature: outputs are divided by it; 200 in the authors' code, which brings the softmax close to uniform. On
            a ResNet-32 at 98 %, the mask with 1 shares 18 % of its weights with that of 200 (Jaccard index).
        batch_norm: ``"train"``: statistics of the batch, as in the authors' code; ``"eval"``: running ones. On that
            ResNet-32 the two masks share 5 % of their weights.
        dtype: to compute in; None: the model's own, and float64 where gradients come near the end of its range.
        number_of_batches: how many batches are taken; None takes all. The authors split one class-balanced batch in
            two, which with batch norm in train mode is another score: their mask and this share 58 %.
        forward: ``forward(model, inputs) -> outputs``, for a model that is called in another way.

    Returns:
        Scores of both signs.

    Raises:
        InputError: if the model, the loss or a batch cannot be used, or an operation has no second derivative.

    Warns:
        UserWarning: naming weights that the loss does not depend on; they score 0.

    Source: Wang, Zhang, Grosse 2020, equations 6 to 8.
    """
    check_temperature(temperature)
    held = taken(batches, number_of_batches, loss)

    def compute(lent: Borrowed) -> tuple[Values, bool]:
        if len(held) == 1:
            products, near = product(lent, held[0], loss, temperature)
        else:
            gradients = lent.gradients(held, loss, temperature)
            products, near = Values(), near_the_end(gradients)
            for batch in held:
                found, _ = product(lent, batch, loss, temperature, gradients)
                products = added(products, found, batch.examples / examples(held))
        near = near or near_the_end([p for p in products if p is not None and bool(p.any())])
        with torch.no_grad():
            pairs = zip(lent.leaves, products, strict=True)
            return [None if product is None else product.mul_(weight) for weight, product in pairs], near

    words = f"grasp, temperature {temperature:g}, {described(held, batch_norm)}"
    return scored(model, batch_norm, dtype, words, compute, twice=True, forward=forward)


def product(
    lent: Borrowed,
    batch: Batch,
    loss: Loss | None,
    temperature: float,
    direction: Sequence[Tensor | None] | None = None,
) -> tuple[Values, bool]:
    """The Hessian of the loss times a direction, and whether the gradient comes near the end of its range.

    Args:
        lent: the borrowed model.
        batch: inputs and targets.
        loss: see :func:`grasp`.
        temperature: likewise.
        direction: one tensor a weight; None takes the gradient itself.

    Returns:
        One tensor a weight; None where the loss does not depend on it.
    """
    value = lent.loss(batch, loss, temperature)
    gradients = lent.differentiated(value, create_graph=True)
    if direction is None:
        direction = [None if g is None else g.detach() for g in gradients]
    pairs = [(g, v) for g, v in zip(gradients, direction, strict=True) if g is not None and v is not None]
    along = torch.stack([(g * v).sum() for g, v in pairs if g.requires_grad]).sum() if pairs else value
    near = near_the_end([g.detach() for g, _ in pairs])
    unused = [g is None for g in gradients]
    del gradients, pairs, value
    give_back()  # a ResNet-32 of double width: 690 MB of 2 GB
    found: Sequence[Tensor | None] = [None] * len(unused)
    if along.requires_grad:
        found = lent.differentiated(along)
    filled = [torch.zeros_like(leaf) if p is None else p for leaf, p in zip(lent.leaves, found, strict=True)]
    return [None if gone else p for gone, p in zip(unused, filled, strict=True)], near
