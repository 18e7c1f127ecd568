"""The verdict of a checkup alone: whether a network trains, without what to change or where its regions lie.

A checkup looks for factors by measuring again and again, and counts regions; a command that judges one model several
times needs neither (Hayou et al. 2021, section 2.2; Schoenholz et al. 2017).
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.diagnosis.reading import alike_after, averaged_over, in_columns
from epoch0.diagnosis.verdict import Verdict, read_passage, read_verdict
from epoch0.measure._passes import Array, backward_squares, forward_squares
from epoch0.measure.signals import signals
from epoch0.tracing.guard import bare
from epoch0.tracing.layers import layers, require_nonlinearity
from epoch0.tracing.tape import Tape, tape

PASSES = 4
"""What a direction costs, in forward passes: a dual pass computes twice as much, and so does one back."""

BUDGET = 8e10
"""Multiplications that a glance may cost: three seconds of one thread."""

DIRECTIONS = 8
"""Random directions a layer where they cost little; half as many where they do not."""

LEAST = 16
"""Examples that are looked at in any case, if there are as many."""


def glance(net: nn.Module, x: Tensor, *, batch_norm: str = "train", directions: int = 8, seed: int = 0) -> Verdict:
    """What :func:`epoch0.checkup` says of a network, in a fraction of its time.

    >>> net = epoch0.networks.mlp([784, *[256] * 20, 10], weights=epoch0.Gaussian(1.0))
    >>> glance(net, torch.randn(64, 784)).outcome               # x of shape (examples, ...)
    'vanishing'

    Args:
        net: any module from one tensor to one tensor, in whatever mode; it is given back unchanged to the bit.
        x: a batch, shape (examples, ...).
        batch_norm: ``"train"`` or ``"eval"``, as for a checkup.
        directions: random directions a layer, >= 2.
        seed: of the directions; those of a checkup with the same seed.

    Raises:
        InputError: if the model has no nonlinearity, or the model or the input cannot be measured.

    Source: Schoenholz et al. 2017 (depth scales); Hayou et al. 2021, section 2.2 (phases).
    """
    # a network may leave the range of floats: that is a finding, not a warning
    with tape(bare(net), x, batch_norm=batch_norm) as record, np.errstate(over="ignore", invalid="ignore"):
        require_nonlinearity(record)
        found = layers(record)
        alike = alike_after(signals(record, found))
        pools = np.array([averaged_over(record, layer) for layer in found])
        squares = [
            forward_squares(record, found, directions, seed, fresh=True).total,
            backward_squares(record, found, directions, seed).total,
        ]
        gains = pools * sum(one.mean(axis=0) for one in squares) / 2
        errors = pools * np.hypot(*(_error(one) for one in squares)) / 2
    names = [layer.name for layer in found]
    pairs = list(zip(gains.tolist(), errors.tolist(), strict=True))
    backward, forward = read_passage(*in_columns(pairs[1:])), read_passage(*in_columns(pairs))
    return read_verdict(
        backward,
        forward,
        dead=[name for name, gain in zip(names, gains, strict=True) if gain <= 0],
        overflowing=[name for name, gain in zip(names, gains, strict=True) if not math.isfinite(gain)],
        collapsed=[
            name
            for name, gain, same in zip(names, gains, alike, strict=True)
            if same and gain > 0 and math.isfinite(gain)
        ],
    )


def _error(total: Array) -> Array:
    return np.asarray(total.std(axis=0, ddof=1) / math.sqrt(len(total)))


def multiplications(record: Tape) -> float:
    """What a forward pass of one example costs: multiplications by weights.

    Args:
        record: of a forward pass.
    """
    sizes = {node.index: math.prod(node.shape[1:]) for node in record.nodes}
    return float(sum(op.fan_in * sizes[op.outputs[0]] for op in record.ops if op.kind))


def few(net: nn.Module, x: Tensor, budget: float = BUDGET) -> tuple[Tensor, int]:
    """The examples and the number of directions with which a glance costs about so many multiplications.

    >>> examples, directions = few(resnet32, x)                 # x of shape (128, 3, 32, 32)
    >>> examples.shape, directions                              # 276 million multiplications an example
    (torch.Size([18, 3, 32, 32]), 4)

    Each layer's gain is a mean over directions, examples and units, so that few of a large model's are enough: four
    directions and 16 examples of a ResNet-32 give the sum of the log gains of all 128 within 0.3, where 6 is the limit.

    Args:
        net: the model.
        x: the batch, shape (examples, ...).
        budget: multiplications; where all examples in eight directions cost more, fewer are taken, at least 16.

    Returns:
        The examples, evenly spread over the batch, and the directions.
    """
    with tape(bare(net), x[: min(2, len(x))], batch_norm="eval") as record:
        each = PASSES * multiplications(record)
    if each * DIRECTIONS * len(x) <= budget:
        return x, DIRECTIONS
    directions = DIRECTIONS // 2
    count = min(len(x), max(LEAST, int(budget / (each * directions))))
    return x[torch.linspace(0, len(x) - 1, count).round().long().to(x.device)], directions
