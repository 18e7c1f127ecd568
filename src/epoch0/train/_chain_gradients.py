"""Gradients of a stack of dense chains, in memory that is lent to autograd and written anew (for _chain)."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Gradients:
    """Memory for the gradients of all parameters, which is written anew at each step, and the masks as numbers."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor | None, Tensor | None]]) -> None:
        self._parameters = [tensor for weight, bias, _ in layers for tensor in (weight, bias)]
        self._memory: list[Tensor | None] = [None] * len(self._parameters)
        # multiplying by numbers is several times faster than by a bool mask
        self._multipliers = [None if mask is None else mask.to(weight.dtype) for weight, _, mask in layers]

    def whole(self, slot: int) -> Tensor | None:
        """The memory of one parameter, made when it is first asked for."""
        parameter = self._parameters[slot]
        if self._memory[slot] is None and parameter is not None:
            self._memory[slot] = torch.empty_like(parameter.detach())
        return self._memory[slot]

    def part(self, slot: int, which: slice) -> Tensor | None:
        """The memory of some networks."""
        own = self.whole(slot)
        return None if own is None else own[which]

    def multiplier(self, index: int, which: slice) -> Tensor | None:
        """The mask of a layer of some networks."""
        own = self._multipliers[index]
        return None if own is None else own[which]

    def lent(self, parameters: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """The memory of those that are wanted, each as a tensor that autograd can keep without a copy."""
        lent: list[Tensor | None] = []
        for slot, (parameter, want) in enumerate(zip(parameters, wanted, strict=True)):
            own = self.whole(slot) if want else None
            if own is None or parameter is None:
                lent.append(None)
                continue
            held = parameter.grad
            if held is not None and held.data_ptr() == own.data_ptr():
                parameter.grad = held.clone()  # gradients are being added up
            lent.append(own.view(own.shape))
        return lent
