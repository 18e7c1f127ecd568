"""The loss of every network of a stack, from the loss of one (for stacked and evaluation)."""

import functools
from collections.abc import Callable

from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from epoch0.train._forward import IGNORED

OF_CLASSES = {"label_smoothing"}
"""Settings of cross entropy that leave its mean one over the examples that are not ignored."""


def of_each(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Losses of shape (networks,) from outputs (networks, batch, ...) and the targets that all share.

    >>> of_each(F.cross_entropy)(torch.zeros(5, 2, 10), torch.tensor([3, 1])).shape
    torch.Size([5])

    Args:
        function: ``loss(outputs, targets) -> scalar`` of one network, a mean over the batch.
    """
    mapped = vmap(function, in_dims=(0, None))
    own = function.func if isinstance(function, functools.partial) else function
    settings = function.keywords if isinstance(function, functools.partial) and not function.args else {}
    plain = function is F.cross_entropy or (own is F.cross_entropy and bool(settings) and settings.keys() <= OF_CLASSES)

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        by_class = outputs.dim() == 3 and targets.dim() == 1 and not targets.is_floating_point()
        if not (plain and by_class and outputs.device.type == "cpu"):
            found: Tensor = mapped(outputs, targets)
            return found
        # on a CPU torch's softmax over ten numbers in a row takes ten times as long as over ten rows
        every = targets.expand(len(outputs), len(targets))
        each = F.cross_entropy(outputs.transpose(1, 2), every, reduction="none", **settings)
        return each.sum(1) / targets.ne(IGNORED).sum()

    return losses
