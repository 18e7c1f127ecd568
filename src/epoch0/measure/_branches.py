"""Residual blocks in a record: what a block adds to its shortcut, and where (Hayou et al. 2021, Proposition 2)."""

from dataclasses import dataclass

from epoch0.tracing.layers import Layer, stretches
from epoch0.tracing.tape import Tape


@dataclass(frozen=True)
class Branch:
    """The sum at the end of a residual block.

    Attributes:
        node: what is added to the shortcut: the summand with more weighted operations behind it.
        shortcut: the other summand.
        total: the sum.
        weighted: how many weighted operations of the block are behind the branch.
        beside: how many are behind the shortcut; 0 where it is the identity or nearly so.
    """

    node: int
    shortcut: int
    total: int
    weighted: int
    beside: int


def branch(tape: Tape, layer: Layer) -> Branch | None:
    """The branch of a residual block, by its last sum of two; None if there is none.

    >>> with tape(net, x) as t:                                # blocks x + F(x)
    ...     branch(t, layers(t)[0]).beside
    0

    Args:
        tape: the record.
        layer: one of its layers.
    """
    events = [event for start, _, piece in stretches(tape) if layer.input <= start < layer.output for event in piece]
    made_by = {node: event for event in events for node in event.outputs}

    def weighted_behind(node: int) -> int:
        seen, todo, count = set(), [node], 0
        while todo:
            event = made_by.get(todo.pop())
            if event is None or id(event) in seen:
                continue
            seen.add(id(event))
            count += bool(event.kind)
            todo.extend(event.inputs)
        return count

    sums = [event for event in events if event.name in ("add", "sub") and len(event.inputs) == 2]
    if not sums:
        return None
    first, second = sums[-1].inputs
    counts = weighted_behind(first), weighted_behind(second)
    if counts[1] > counts[0]:
        first, second, counts = second, first, counts[::-1]
    return Branch(first, second, sums[-1].outputs[0], *counts)
