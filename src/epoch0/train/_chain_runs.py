"""How some networks of a stack of dense chains are carried forward and back, and the memory for it (for _chain)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epoch0.train._chain_products import SMALL, Work, affine, masked_product, product

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
        weight: (networks, outputs, inputs).
        bias: (networks, 1, outputs).
        output: (networks, batch, outputs), activated.
        forward: activates the output in place.
        backward: ``backward(delta, output)`` turns the gradient of the output into that of the pre-activation.
        delta: (networks, batch, outputs), that gradient; layers take turns with two pieces of memory.
        for_weight: where the gradient of the weight goes, if it is wanted.
        for_bias: the same for the bias.
        multiplier: the mask of the weight as numbers.
        pre_activate: writes the pre-activation into ``output``; None in the first layer, whose inputs are given.
        differentiate: writes the gradient of the weight; None if it is not wanted, and in the first layer.
        pass_back: writes the gradient of the layer before's output into its delta; None in the first layer.
    """

    weight: Tensor
    bias: Tensor | None
    output: Tensor
    forward: Work
    backward: Callable[[Tensor, Tensor], object]
    delta: Tensor
    for_weight: Tensor | None
    for_bias: Tensor | None
    multiplier: Tensor | None
    pre_activate: Work | None
    differentiate: Work | None
    pass_back: Work | None


Plan = list[tuple[Run, list[Step]]]


class Workspace:
    """Memory of one forward pass and its backward pass; afterwards it is used again."""

    def __init__(self) -> None:
        self._memory: dict[tuple[int, int], Tensor] = {}
        self._plans: dict[object, Plan] = {}

    def plan(
        self, chain: "Chain", batch: int, left_out: Sequence[bool], parameters: Sequence[Tensor | None], keep: bool,
        descending: bool = False,
    ) -> Plan:  # fmt: skip
        """What to do for a batch of that size; without a backward pass two pieces of memory take turns.

        ``descending``: all gradients of weights use one piece of memory, as each is used up before the next is made.
        """
        where = tuple(None if tensor is None else (tensor.data_ptr(), tensor.requires_grad) for tensor in parameters)
        key = (batch, tuple(left_out), keep, descending, torch.get_num_threads(), where)
        if key not in self._plans:
            if len(self._plans) > 8:
                self._plans.clear()
            self._plans[key] = [
                (run, self._steps(chain, run, place if keep else -1, batch, parameters, descending))
                for place, run in enumerate(chain.runs(left_out, batch))
            ]
        return self._plans[key]

    def _steps(
        self, chain: "Chain", run: Run, place: int, batch: int, parameters: Sequence[Tensor | None], descending: bool
    ) -> list[Step]:
        which, examples = run.networks, 1 if run.constant else batch
        steps: list[Step] = []
        memory = chain.gradients()
        inner = [weight for weight in parameters[2::2] if weight is not None]
        sizes = [0 if examples == 1 else weight[0].numel() for weight in inner]
        most = max((size for size in sizes if examples * size <= SMALL), default=0)
        for index, layer in enumerate(chain.layers):
            weight, bias = parameters[2 * index : 2 * index + 2]
            assert weight is not None
            own, row = weight.detach()[which], None if bias is None else bias.detach()[which, None]
            shape = (len(own), examples, weight.shape[1])
            z = self._tensor((place, index if place >= 0 else index % 2), shape, own)
            delta = self._tensor((-2, index % 2), shape, own) if place >= 0 else z
            wanted = [place >= 0 and tensor is not None and tensor.requires_grad for tensor in (weight, bias)]
            for_weight = None
            if wanted[0] and descending:
                for_weight = self._tensor((-4, 0), (len(own), weight.shape[1], weight.shape[2]), own)
            elif wanted[0]:
                for_weight = memory.part(2 * index, which)
            multiplier = memory.multiplier(index, which)
            pre_activate = differentiate = pass_back = None
            if steps:
                before = steps[-1]
                pre_activate = affine(before.output, own, row, z)
                pass_back = product(delta, own, before.delta)
                if for_weight is not None:
                    turned = delta.transpose(1, 2)
                    # what is used up at once is in the cache as it is
                    near = None if descending else self._tensor((-3, 0), (len(own), 1, most), own).flatten()
                    differentiate = masked_product(turned, before.output, multiplier, for_weight, near)
            steps.append(
                Step(
                    weight=own,
                    bias=row,
                    output=z,
                    forward=layer.activation.on(z),
                    backward=layer.activation.backward,
                    delta=delta,
                    for_weight=for_weight,
                    for_bias=memory.part(2 * index + 1, which) if wanted[1] else None,
                    multiplier=multiplier,
                    pre_activate=pre_activate,
                    differentiate=differentiate,
                    pass_back=pass_back,
                )
            )
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


def carry_on(run: Run, steps: Sequence[Step], inputs: Tensor) -> Tensor:
    """Outputs of some networks, (networks, batch or 1, classes), in memory that is used again."""
    first = steps[0]
    given, transposed = _of(run, inputs, len(first.weight)), first.weight.transpose(1, 2)
    if first.bias is None:
        torch.bmm(given, transposed, out=first.output)
    else:
        torch.baddbmm(first.bias, given, transposed, out=first.output)
    first.forward()
    for step in steps[1:]:
        assert step.pre_activate is not None
        step.pre_activate()
        step.forward()
    return steps[-1].output


def carry_back(
    run: Run, steps: Sequence[Step], inputs: Tensor, gradient: Tensor, rate: float | None = None
) -> None:
    """Write the gradients of some networks, from the last layer back to the first that wants one.

    With a learning rate each weight is moved as soon as nothing else needs it as it was.
    """
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
        if step.differentiate is not None:
            step.differentiate()
        elif step.for_weight is not None:
            given = _of(run, inputs, len(step.weight))
            torch.bmm(step.delta.transpose(1, 2), given, out=step.for_weight)
            if step.multiplier is not None:
                step.for_weight.mul_(step.multiplier)
        if index > first:
            assert step.pass_back is not None
            step.pass_back()
        if rate is not None:
            if step.for_weight is not None:
                step.weight.add_(step.for_weight, alpha=-rate)
            if step.for_bias is not None:
                assert step.bias is not None
                step.bias.add_(step.for_bias[:, None], alpha=-rate)


def _of(run: Run, inputs: Tensor, networks: int) -> Tensor:
    """The inputs of some networks: all of them, or any one where they make no difference."""
    own = inputs[:1] if run.constant else inputs
    return own.expand(networks, *own.shape)
