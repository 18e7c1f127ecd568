"""What is judged of a layer's gains and signals, the same in a checkup and in a glance (Hayou section 2.2)."""

import math
from collections.abc import Sequence

from epoch0.diagnosis.verdict import COLLAPSED
from epoch0.measure._gain_result import LayerGain
from epoch0.measure.signals import Signals
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


def average_pools(record: Tape, layer: Layer) -> list[tuple[int, int, float]]:
    """Average pools on the main path of a layer: the nodes before and after, and how many places each averages over.

    A pool within a branch, such as a squeeze, is none of them.
    """
    size = {node.index: math.prod(node.shape) for node in record.nodes}
    return [
        (start, end, size[start] / size[end])
        for start, end, events in stretches(record)
        if len(events) == 1
        and ("avg_pool" in events[0].name or events[0].name == "mean")
        and layer.input <= start < layer.output
    ]


def averaged_over(record: Tape, layer: Layer) -> float:
    """How many places average pooling on the main path of a layer takes the mean over, 1 without."""
    return math.prod((places for _, _, places in average_pools(record, layer)), start=1.0)


def in_columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Gains and their errors apart."""
    return [gain for gain, _ in pairs], [error for _, error in pairs]


def alike_after(states: Sequence[Signals]) -> list[bool]:
    """After which layers examples look the same, though they did not at the input.

    Args:
        states: of the signal at the input and after each layer.
    """
    start = states[0].unlikeness
    return [state.unlikeness < min(COLLAPSED, 0.1 * start) for state in states[1:]]
