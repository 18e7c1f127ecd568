"""One weight seen through its mask: the parametrization that keeps pruned weights at zero (Hayou et al. 2021, 2.1)."""

import torch
from torch import Tensor, nn


class Masked(nn.Module):
    """A parametrization for ``torch.nn.utils.parametrize``: the weight where the mask is true, zero elsewhere.

    >>> masked = Masked(torch.tensor([[True, False]]))
    >>> masked(torch.tensor([[2.0, float("nan")]]))             # (1, 2) -> (1, 2), whatever lies under the mask
    tensor([[2., 0.]])

    The gradient of a pruned weight is zero too, not a product with zero: infinite gradients under a loss scaler leave
    no NaN there. Whatever an optimizer does to the parameter, the module computes with an exact zero.

    Args:
        mask: bool, shape of the weight; True is kept. It moves and is saved with the module, and is never cast.
        order: names of the parameters of the module before it was masked, so that baking can restore their order.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, order: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.order = order

    def forward(self, weight: Tensor) -> Tensor:
        """The weight with zeros where it is pruned; same shape and dtype."""
        return torch.where(self.mask, weight, 0.0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What is stored when someone assigns to the masked weight: all of it, the mask stays."""
        return weight

    def extra_repr(self) -> str:
        """What ``print(model)`` shows."""
        return f"{int(self.mask.count_nonzero())} of {self.mask.numel()} kept"
