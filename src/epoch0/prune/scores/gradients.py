"""Scores from derivatives of the loss: SNIP and FORCE the first, GraSP and OBD the second (Hayou et al. 2021, 2.2)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.arguments import BatchNorm, Positive, Seed, Size, Sparsity, checked
from epoch0.errors import InputError
from epoch0.progress import Progress
from epoch0.prune.masks.masks import largest
from epoch0.prune.scores.scores import Batch, Functional, Scores, Values, added, examples, score, scored, tell
from epoch0.seeds import generator
from epoch0.tracing.call import Forward
from epoch0.tracing.loss import Loss, scalar_loss


@score()
@checked
def snip(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss: Loss | None = None,
    batch_norm: BatchNorm = "train",
    forward: Forward | None = None,
) -> Scores:
    """Score each weight by its connection sensitivity abs(W dL/dW).

    >>> snip(net, [(images, labels)])["0.weight"].shape       # net: 64-32-32-10; images (100, 64), labels (100,)
    torch.Size([32, 64])

    The model is restored to the bit: parameters, gradients, batch-norm statistics, modes, hooks, random states. Frozen
    weights are scored like others. Dropout is off. Weights that stand behind a mask score 0. It computes in the model's
    own precision, and in float64 where gradients come near the end of its range.

    Args:
        batches: pairs (inputs, targets), inputs as the model is called with them; mappings with labels; a data loader;
            or one pair; moved to the model's device. The gradient is the mean over all examples: the authors' score
            of one large batch (exactly, unless batch norm couples its examples).
        loss: ``loss(outputs, targets) -> scalar``, a mean over examples; None: cross-entropy or mean squared error.
        batch_norm: ``"train"``: statistics of the batch, as the authors' code has it; ``"eval"``: running ones, at
            initialization the identity. This decides the mask (docs/pruning).
        forward: ``forward(model, inputs) -> outputs``, for a model that is called in another way.

    Warns:
        UserWarning: naming weights that the loss does not depend on; they score 0.

    Source: Lee, Ajanthan, Torr 2019, equation 5 (without its normalization); Hayou et al. 2021, section 2.2.
    """

    def compute(net: Functional, held: list[Batch]) -> tuple[Values, bool]:
        return sensitivity(net, net.gradients(held, loss))

    return scored("snip", compute, model, batches, loss, batch_norm=batch_norm, forward=forward)


def sensitivity(net: Functional, gradients: Values) -> tuple[Values, bool]:
    """abs(W dL/dW), written over the gradients, and whether one of these came near the end of its range."""
    near = net.near_the_end(gradients)
    return [product.abs_() for product in net.times(gradients)], near


@score(rounds=60)
@checked
def force(
    model: nn.Module,
    batches: Iterable[Any],
    sparsity: Sparsity,
    steps: Size = 60,
    *,
    loss: Loss | None = None,
    batch_norm: BatchNorm = "train",
    forward: Forward | None = None,
    progress: Progress = None,
) -> Scores:
    """Score each weight by its connection sensitivity in the network that earlier rounds have left.

    >>> net = epoch0.networks.mlp([64, 256, 10], seed=0)
    >>> scores = force(net, [(images, labels)], sparsity=0.98, steps=10)      # images (100, 64), labels (100,)
    >>> print(keep(scores, sparsity=0.98))                          # the last round's choice
    379 of 18,944 weights kept in 2 layers, sparsity 97.9994%

    Round t of n scores abs(W dL/dW) with the gradient of the network masked by round t - 1, and keeps
    ``M^(1 - t/n) k^(t/n)`` of the M weights, k of them in the end. A weight removed in an earlier round can come back,
    as its sensitivity is W times the gradient at its place; in ``iterate`` it cannot. The scores of round
    n come back: what ``keep(scores, sparsity)`` makes of them is the mask of the method. One step is SNIP. Each round
    costs one forward and one backward pass of all batches.

    The model and the other arguments are treated as by :func:`snip`; masked weights count as removed, and stay so.

    Args:
        sparsity: fraction of all weights that is to be removed in the end, in [0, 1).
        steps: rounds, >= 1; the authors recommend 60.
        progress: called before each round with the part of them that is done, from 0 to 1, and its number in words.

    Source: de Jorge, Sanyal, Behl, Torr, Rogez, Dokania 2021, section 4 and Algorithm 1.
    """

    def compute(net: Functional, held: list[Batch]) -> tuple[Values, bool]:
        weights = [leaf.detach() for leaf in net.leaves]
        kept = dict(zip([w.name for w in net.weights], net.kept, strict=True))
        gone = {name: ~mask for name, mask in kept.items()}
        total, near = sum(w.numel() for w in weights), False
        last = max(total - round(sparsity * total), 1)
        for number in range(1, steps + 1):
            tell(progress, number - 1, steps)
            masked = [(w * m).requires_grad_() for w, m in zip(weights, kept.values(), strict=True)]
            values, close = sensitivity(net, replace(net, leaves=masked).gradients(held, loss))
            near = near or close
            if number < steps:
                count = round(total ** (1 - number / steps) * last ** (number / steps))
                count = min(count, total - sum(int(mask.sum()) for mask in gone.values()))
                kept = largest(dict(zip(kept, values, strict=True)), count, gone)
        return values, near

    words = f"force, {steps} steps to {sparsity:.6g}"
    return scored(words, compute, model, batches, loss, batch_norm=batch_norm, forward=forward)


@score()
@checked
def grasp(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss: Loss | None = None,
    temperature: Positive = 200.0,
    batch_norm: BatchNorm = "train",
    forward: Forward | None = None,
) -> Scores:
    """Score each weight by its effect on the gradient flow: W (H g), H the Hessian and g the gradient of the loss.

    >>> grasp(net, [(images, labels)])["0.weight"].shape      # net: 64-32-32-10; images (100, 64), labels (100,)
    torch.Size([32, 64])

    To first order, taking weight i away changes ``g . g`` by ``-2 W_i (H g)_i``. The authors' score is ``-W (H g)`` and
    they remove its largest; this is its negative, so that the largest are kept, as with every score here. Positive: the
    weight helps the flow; negative: it is in its way. The product is exact, by differentiating twice. Several batches
    have one g, the mean over all examples, and one H, that of the mean loss.

    The model and the other arguments are treated as by :func:`snip`; weights that stand behind a mask are
    marked as removed, so that negative scores do not bring them back.

    Args:
        temperature: outputs are divided by it; 200 in the authors' code, which brings the softmax close to uniform.
        batch_norm: as for SNIP; docs/pruning has how much this and the temperature decide. The authors split one
            class-balanced batch in two, another score in train mode.

    Raises:
        InputError: if the model, the loss or a batch cannot be used, or an operation has no second derivative.

    Source: Wang, Zhang, Grosse 2020, equations 6 to 8.
    """

    def compute(net: Functional, held: list[Batch]) -> tuple[Values, bool]:
        gradients = net.gradients(held, loss, temperature) if len(held) > 1 else None
        products = Values()
        for batch in held:
            gradients, found = product(net, net.loss(batch, loss, temperature), gradients)
            products = added(products, found, batch.examples / examples(held))
        near = net.near_the_end(gradients or []) or net.near_the_end(products, zeros=False)
        return net.times(products), near

    words = f"grasp, temperature {temperature:g}"
    return scored(words, compute, model, batches, loss, batch_norm=batch_norm, forward=forward, twice=True)


def product(net: Functional, value: Tensor, direction: Values | None) -> tuple[Values, Values]:
    """A direction, the gradient of the loss if there is none, and the Hessian of the loss times it."""
    gradients = net.differentiated(value, create_graph=True)
    direction = [g.detach() for g in gradients] if direction is None else direction
    terms = [(g * v).sum() for g, v in zip(gradients, direction, strict=True) if g.requires_grad]
    if not terms:  # the loss is linear
        return direction, [torch.zeros_like(leaf) for leaf in net.leaves]
    return direction, net.differentiated(torch.stack(terms).sum())


_PROBE = 6


@score()
@checked
def obd(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    probes: Size = 16,
    seed: Seed = 0,
    batch_norm: BatchNorm = "train",
    forward: Forward | None = None,
) -> Scores:
    """Score each weight by its diagonal-curvature saliency W^2 H_ii/2, H the Hessian of the loss.

    >>> obd(net, [(images, labels)])["0.weight"].shape        # net: 64-32-32-10; images (100, 64), labels (100,)
    torch.Size([32, 64])

    To second order the loss rises by this when a weight is taken out of a trained network, whose gradient is 0. The
    diagonal is that of the Gauss-Newton matrix J^T H_out J of cross-entropy (integer targets) or of the mean squared
    error, estimated without bias as the square of one gradient for each probe: outputs are pushed by independent random
    vectors of covariance H_out (for cross-entropy, softmax minus a class drawn from it). Never negative. It is the
    diagonal of H itself where the network is piecewise linear in each single weight: ReLU and max-pooling networks
    without batch statistics, no module used twice. Otherwise it is LeCun's own approximation. An entry that many
    examples add to has a relative error of sqrt(2/probes): 35 % for 16 probes. A probe costs one backward pass.

    The model and the other arguments are treated as by :func:`snip`.

    Args:
        probes: how many for each batch.
        seed: of the probes.
        batch_norm: ``"eval"`` is the choice for a trained network.

    Source: LeCun, Denker, Solla 1990, equations 5 to 9 (obd); Martens 2020, section 10.2 (sampled Gauss-Newton).
    """

    def compute(net: Functional, held: list[Batch]) -> tuple[Values, bool]:
        total, near = Values(), False
        for place, batch in enumerate(held):
            if batch.targets is None:
                raise InputError(f"there is no loss: give targets, which batch {place} does not have.")
            output = net.output(batch.inputs, targets=batch.targets)
            scalar_loss(output, batch.targets, None)  # which refuses targets that do not fit
            for probe in range(probes):
                push = _push(output.detach(), batch.targets, generator(seed, _PROBE, place, probe))
                found = [g.square() for g in net.differentiated(output, push, retain_graph=probe + 1 < probes)]
                near = near or net.near_the_end(found, zeros=False)
                total = added(total, found, batch.examples / examples(held) / probes)
        return [t.div_(2) for t in net.times(net.times(total))], near

    words = f"obd, {probes} probes, seed {seed}"
    return scored(words, compute, model, batches, None, batch_norm=batch_norm, forward=forward)


def _push(output: Tensor, targets: Tensor, source: torch.Generator) -> Tensor:
    """A random cotangent u of the output's shape, E u u^T the curvature of the mean loss."""
    if targets.is_floating_point():
        signs: Tensor = torch.randint(2, output.shape, generator=source, dtype=torch.int8).to(output).mul_(2).sub_(1)
        return signs.mul_((2.0 / output.numel()) ** 0.5)
    last = targets.shape == output.shape[:-1]  # classes last: (examples, ..., classes); else (examples, classes, ...)
    logits = output if last else output.movedim(1, -1)
    chances = logits.reshape(-1, logits.shape[-1]).softmax(-1)
    drawn = torch.multinomial(chances.double().cpu(), 1, generator=source).to(output.device)
    chances.scatter_add_(1, drawn, -torch.ones_like(chances[:, :1]))
    push = chances.mul_(len(drawn) ** -0.5).reshape(logits.shape)
    return push if last else push.movedim(-1, 1)
