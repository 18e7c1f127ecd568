"""Convolutions in float64 on the CPU: torch unfolds a whole batch at once, so a few points at a time are quicker."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

_UNFOLDED = 5 << 18  # numbers of unfolded input at a time: they stay in the cache; up to six times as quick


def few_at_a_time(function: Callable[..., Tensor], kernel: int) -> Callable[..., Tensor]:
    """The same convolution, done for a few points after another on the CPU.

    Args:
        function: (points, weight, bias) to the convolution.
        kernel: places of the kernel.
    """

    def convolved(x: Tensor, *weights: Any) -> Tensor:
        some = max(1, _UNFOLDED // max(1, kernel * x[0].numel()))
        if x.device.type != "cpu" or len(x) <= some:
            return function(x, *weights)
        first = function(x[:some], *weights)
        found = first.new_empty(len(x), *first.shape[1:])
        found[:some] = first
        for start in range(some, len(x), some):
            found[start : start + some] = function(x[start : start + some], *weights)
        return found

    return convolved
