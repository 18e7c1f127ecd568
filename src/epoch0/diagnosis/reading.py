"""What is judged of a layer's gains (Hayou section 2.2)."""

import math

from epoch0.measure.gain import LayerGain
from epoch0.tracing.layers import Layer, stretches
from epoch0.tracing.tape import Tape


def judged(row: LayerGain, pool: float) -> tuple[float, float]:
    """The gain that is judged and its error: the mean of both ways of measuring it, without average pooling.

    The mean over k places divides the squares of independent perturbations by k, once and whatever the weights; what
    the places have in common passes whole, and so do the gradients of weights used at all of them. It is no part of
    what depth multiplies up.

    Args:
        row: the measured gains.
        pool: how many places are averaged over.
    """
    return pool * (row.forward + row.backward) / 2, pool * math.hypot(row.forward_error, row.backward_error) / 2


def average_pools(record: Tape) -> list[tuple[int, int, float]]:
    """Average pools on the main path: the nodes before and after, and how many places each averages over.

    A pool within a branch, such as a squeeze, is none of them.
    """
    size = {node.index: math.prod(node.shape) for node in record.nodes}
    return [
        (start, end, size[start] / size[end])
        for start, end, events in stretches(record)
        if len(events) == 1 and ("avg_pool" in events[0].name or events[0].name == "mean")
    ]


def averaged_over(pools: list[tuple[int, int, float]], layer: Layer) -> float:
    """How many places the average pools of a layer take the mean over, 1 without."""
    return math.prod((places for start, _, places in pools if layer.input <= start < layer.output), start=1.0)
