"""Plain SGD of a stack of dense chains: a weight moves while its gradient is still in the cache (for loop and _chain).

Without momentum, decay and clipping nothing but the update wants a gradient. So the backward pass waits for the
optimizer's step, which goes through the layers once, from the last to the first: gradient, gradient of the layer
before, update. No gradient is written to main memory and read again, and the numbers are those of torch's SGD to the
bit.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from epoch0.train.optimizers import SGD, Optimizer

if TYPE_CHECKING:
    from epoch0.train._chain import Chain


class Descent(torch.optim.SGD):
    """SGD whose step is the backward pass of a chain; one that did not go through the chain is torch's own."""

    def __init__(self, parameters: list[nn.Parameter], learning_rate: float, chain: "Chain") -> None:
        super().__init__(parameters, learning_rate)
        self._chain = chain

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the weights."""
        if self._chain.descend(float(self.param_groups[0]["lr"])):
            return None
        return super().step(closure)

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Backward passes of the chain in train mode wait for the step as long as this lasts."""
        self._chain.descending = True
        try:
            yield
        finally:
            self._chain.descending = False
            self._chain.forget()


def is_plain(settings: Optimizer, clip: float | None) -> bool:
    """Does each update want a gradient only once?

    >>> is_plain(SGD(), None), is_plain(SGD(momentum=0.9), None), is_plain(SGD(), clip=1.0)
    (True, False, False)
    """
    return clip is None and isinstance(settings, SGD) and not (settings.momentum or settings.weight_decay)
