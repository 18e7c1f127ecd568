"""Pruned networks whose outputs do not depend on their inputs, and how much of them has to be computed (for _chain).

Those are the networks whose masks leave no path from the inputs to the outputs. Units that the inputs reach may be
left, and so may units that reach the outputs, but they are not the same, and no kept weight leads from the first to the
second. So any one example gives the right outputs, and the right gradient of every weight: a unit's gradient is zero
unless it reaches the outputs. Where no unit of a layer does, neither that layer nor those before it change anything,
and the next one may as well know of its bias alone. (If numbers overflow there, a network trained alone has zero times
infinity, hence NaN, and ends as diverged; here it goes on.)
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Run:
    """Networks that are worked on together.

    Attributes:
        networks: which, one after another in the stack.
        constant: whether they give the same for every input, so that one example is enough.
        begins: of constant networks, the layer that each is carried on from, in ascending order.
    """

    networks: slice
    constant: bool
    begins: tuple[int, ...] = ()

    def count(self, layer: int) -> int:
        """How many of the networks, the first ones, have begun at that layer."""
        return bisect_right(self.begins, layer) if self.constant else self.networks.stop - self.networks.start


def begins(masks: Sequence[Tensor | None], networks: int) -> list[int | None]:
    """From which layer on a constant network has to be carried, None for the others.

    >>> dead, whole = torch.zeros(1, 2, 2, dtype=torch.bool), torch.ones(1, 2, 2, dtype=torch.bool)
    >>> begins([whole, dead, whole], 1), begins([whole, None, whole], 1)
    ([1], [None])

    Args:
        masks: of the layers in order, each (networks, outputs, inputs), bool; None where nothing is pruned.
        networks: how many.
    """
    known = [torch.ones(1, 1, 1, dtype=torch.bool) if mask is None else mask for mask in masks]
    reached = known[0].any(2)  # units that the inputs reach, (networks, units)
    for mask in known[1:]:
        reached = (mask & reached[:, None]).any(2)
    constant = (~reached.any(1)).expand(networks).tolist()
    reaching = torch.ones(1, 1, dtype=torch.bool)  # units that reach the outputs, (networks, units)
    first = torch.zeros(networks, dtype=torch.int64)
    for mask in reversed(known[1:]):
        reaching = (mask & reaching[:, :, None]).any(1)
        first += ~reaching.any(1)
    return [own if same else None for same, own in zip(constant, first.tolist(), strict=True)]


def run_of(networks: range, begins: Sequence[int | None]) -> Run:
    """Neighbours that are worked on together. What begins late begins with the earliest of those after it.

    >>> run_of(range(5, 8), [3, 1, 2])
    Run(networks=slice(5, 8, None), constant=True, begins=(1, 1, 2))
    """
    own: list[int] = []
    for begin in reversed(begins):
        if begin is not None:
            own.append(min(begin, own[-1]) if own else begin)
    return Run(slice(networks.start, networks.stop), bool(own), tuple(reversed(own)))
