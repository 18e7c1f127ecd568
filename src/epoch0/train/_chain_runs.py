"""How some networks of a stack of dense chains are carried forward and back, and the memory for it (for _chain)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from epoch0.train._chain import Chain


@dataclass(frozen=True)
class Run:
    """Networks that are worked on together.

    Attributes:
        networks: which, one after another in the stack.
        constant: whether they give the same for every input, so that one example is enough.
    """

    networks: slice
    constant: bool


@dataclass(frozen=True)
class Step:
    """One layer of some networks: views of parameters and of memory, made once and used at every step.

    Attributes:
        signal: what arrives, (networks, batch, inputs); None in the first layer.
        weight: (networks, outputs, inputs).
        transposed: (networks, inputs, outputs).
        bias: (networks, 1, outputs).
        output: (networks, batch, outputs), activated.
        forward: activates the output in place.
        backward: ``backward(delta, output)`` turns the gradient of the output into that of the pre-activation.
        delta: (networks, batch, outputs), that gradient; layers take turns with two pieces of memory.
        delta_transposed: (networks, outputs, batch).
        for_weight: where the gradient of the weight goes, if it is wanted.
        for_bias: the same for the bias.
        multiplier: the mask of the weight as numbers.
    """

    signal: Tensor | None
    weight: Tensor
    transposed: Tensor
    bias: Tensor | None
    output: Tensor
    forward: Callable[[], object]
    backward: Callable[[Tensor, Tensor], object]
    delta: Tensor
    delta_transposed: Tensor
    for_weight: Tensor | None
    for_bias: Tensor | None
    multiplier: Tensor | None


Plan = list[tuple[Run, list[Step]]]


class Workspace:
    """Memory of one forward pass and its backward pass; afterwards it is used again."""

    def __init__(self) -> None:
        self._memory: dict[tuple[int, int], Tensor] = {}
        self._plans: dict[object, Plan] = {}

    def plan(
        self, chain: "Chain", batch: int, left_out: Sequence[bool], parameters: Sequence[Tensor | None], keep: bool
    ) -> Plan:
        """What to do for a batch of that size; without a backward pass two pieces of memory take turns."""
        where = tuple(None if tensor is None else (tensor.data_ptr(), tensor.requires_grad) for tensor in parameters)
        key = (batch, tuple(left_out), keep, where)
        if key not in self._plans:
            if len(self._plans) > 8:
                self._plans.clear()
            self._plans[key] = [
                (run, self._steps(chain, run, place if keep else -1, batch, parameters))
                for place, run in enumerate(chain.runs(left_out, batch))
            ]
        return self._plans[key]

    def _steps(
        self, chain: "Chain", run: Run, place: int, batch: int, parameters: Sequence[Tensor | None]
    ) -> list[Step]:
        which, steps = run.networks, []
        signal: Tensor | None = None
        for index, layer in enumerate(chain.layers):
            weight, bias = parameters[2 * index : 2 * index + 2]
            assert weight is not None
            own = weight.detach()[which]
            shape = (len(own), 1 if run.constant else batch, weight.shape[1])
            z = self._tensor((place, index if place >= 0 else index % 2), shape, own)
            delta = self._tensor((-2, index % 2), shape, own) if place >= 0 else z
            wanted = [place >= 0 and tensor is not None and tensor.requires_grad for tensor in (weight, bias)]
            memory = chain.gradients()
            steps.append(
                Step(
                    signal=signal,
                    weight=own,
                    transposed=own.transpose(1, 2),
                    bias=None if bias is None else bias.detach()[which, None],
                    output=z,
                    forward=layer.activation.on(z),
                    backward=layer.activation.backward,
                    delta=delta,
                    delta_transposed=delta.transpose(1, 2),
                    for_weight=memory.part(2 * index, which) if wanted[0] else None,
                    for_bias=memory.part(2 * index + 1, which) if wanted[1] else None,
                    multiplier=memory.multiplier(index, which),
                )
            )
            signal = z
        return steps

    def _tensor(self, key: tuple[int, int], shape: tuple[int, int, int], like: Tensor) -> Tensor:
        """Memory of that shape, what it holds being left over from before."""
        size = shape[0] * shape[1] * shape[2]
        held = self._memory.get(key)
        if held is None or held.numel() < size:
            self._memory[key] = held = like.new_empty(size)
        return held[:size].view(shape)


class Gradients:
    """Memory for the gradients of all parameters, which is written anew at each step, and the masks as numbers."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor | None, Tensor | None]]) -> None:
        self._memory = [
            None if tensor is None else torch.empty_like(tensor.detach())
            for weight, bias, _ in layers
            for tensor in (weight, bias)
        ]
        # multiplying by numbers is several times faster than by a bool mask
        self._multipliers = [None if mask is None else mask.to(weight.dtype) for weight, _, mask in layers]

    def part(self, slot: int, which: slice) -> Tensor | None:
        """The memory of some networks."""
        own = self._memory[slot]
        return None if own is None else own[which]

    def multiplier(self, index: int, which: slice) -> Tensor | None:
        """The mask of a layer of some networks."""
        own = self._multipliers[index]
        return None if own is None else own[which]

    def lent(self, parameters: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """The memory of those that are wanted, each as a tensor that autograd can keep without a copy."""
        lent: list[Tensor | None] = []
        for own, parameter, want in zip(self._memory, parameters, wanted, strict=True):
            if own is None or parameter is None or not want:
                lent.append(None)
                continue
            held = parameter.grad
            if held is not None and held.data_ptr() == own.data_ptr():
                parameter.grad = held.clone()  # gradients are being added up
            lent.append(own.view(own.shape))
        return lent


def carry_on(run: Run, steps: Sequence[Step], inputs: Tensor) -> Tensor:
    """Outputs of some networks, (networks, batch or 1, classes), in memory that is used again."""
    given = _of(run, inputs, len(steps[0].weight))
    for step in steps:
        signal = given if step.signal is None else step.signal
        if step.bias is None:
            torch.bmm(signal, step.transposed, out=step.output)
        else:
            torch.baddbmm(step.bias, signal, step.transposed, out=step.output)
        step.forward()
    return steps[-1].output


def carry_back(run: Run, steps: Sequence[Step], inputs: Tensor, gradient: Tensor) -> None:
    """Write the gradients of some networks, from the last layer back to the first that wants one."""
    given = _of(run, inputs, len(steps[0].weight))
    if run.constant:
        torch.sum(gradient[run.networks], 1, keepdim=True, out=steps[-1].delta)
    else:
        steps[-1].delta.copy_(gradient[run.networks])
    first = min(i for i, step in enumerate(steps) if step.for_weight is not None or step.for_bias is not None)
    for index in range(len(steps) - 1, first - 1, -1):
        step = steps[index]
        step.backward(step.delta, step.output)
        if step.for_bias is not None:
            torch.sum(step.delta, 1, out=step.for_bias)
        if step.for_weight is not None:
            signal = given if step.signal is None else step.signal
            torch.bmm(step.delta_transposed, signal, out=step.for_weight)
            if step.multiplier is not None:
                step.for_weight.mul_(step.multiplier)
        if index > first:
            torch.bmm(step.delta, step.weight, out=steps[index - 1].delta)


def _of(run: Run, inputs: Tensor, networks: int) -> Tensor:
    """The inputs of some networks: all of them, or any one where they make no difference."""
    own = inputs[:1] if run.constant else inputs
    return own.expand(networks, *own.shape)
