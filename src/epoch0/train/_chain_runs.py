"""How some networks of a stack of dense chains are carried forward and back, and the memory for it (for _chain)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epoch0.train._chain_constant import Run
from epoch0.train._chain_products import SMALL, Work, affine, masked_product, product

if TYPE_CHECKING:
    from epoch0.train._chain import Chain


@dataclass(frozen=True)
class Step:
    """One layer of some networks: views of parameters and of memory, made once and used at every step.

    Attributes:
        weight: (networks, outputs, inputs), of the networks that have a layer before.
        bias: (networks, 1, outputs).
        output: (networks, batch, outputs), activated.
        forward: activates the output in place.
        backward: ``backward(delta, output)`` turns the gradient of the output into that of the pre-activation.
        delta: (networks, batch, outputs), that gradient; layers take turns with two pieces of memory.
        for_weight: where the gradient of the weight goes, if it is wanted.
        for_bias: the same for the bias, of the shape of the bias.
        multiplier: the mask of the weight as numbers.
        pre_activate: writes the pre-activation into ``output``; None in the first layer, whose inputs are given.
        differentiate: writes the gradient of the weight; None if it is not wanted, and in the first layer.
        pass_back: writes the gradient of the layer before's output into its delta; None if there is none.
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


@dataclass(frozen=True)
class Part:
    """What to do for some networks.

    Attributes:
        run: which.
        steps: their layers, from the first that counts.
        zeros: gradients of what does not count, which are wanted and zero.
    """

    run: Run
    steps: tuple[Step, ...]
    zeros: tuple[Tensor, ...]


Plan = list[Part]


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
                self._part(chain, run, place if keep else -1, batch, parameters, descending)
                for place, run in enumerate(chain.runs(left_out, batch))
            ]
        return self._plans[key]

    def _part(
        self, chain: "Chain", run: Run, place: int, batch: int, parameters: Sequence[Tensor | None], descending: bool
    ) -> Part:
        which, examples = run.networks, 1 if run.constant else batch
        steps: list[Step] = []
        zeros: list[Tensor] = []
        memory = chain.gradients()
        inner = [weight for weight in parameters[2::2] if weight is not None]
        sizes = [0 if examples == 1 else weight[0].numel() for weight in inner]
        most = max((size for size in sizes if examples * size <= SMALL), default=0)
        widest = max((weight.shape[1] for weight in inner), default=0)
        for index, layer in enumerate(chain.layers):
            weight, bias = parameters[2 * index : 2 * index + 2]
            assert weight is not None
            count, led = run.count(index), run.count(max(index - 1, 0))  # the others begin here, with their bias
            wanted = [place >= 0 and tensor is not None and tensor.requires_grad for tensor in (weight, bias)]
            for slot, want, begun in ((2 * index, wanted[0], led), (2 * index + 1, wanted[1], count)):
                gradient = memory.part(slot, which) if want and not descending else None
                if gradient is not None and begun < len(gradient):
                    zeros.append(gradient[begun:])
            if count == 0:
                continue
            own, row = weight.detach()[which][:led], None if bias is None else bias.detach()[which, None][:count]
            shape = (which.stop - which.start, examples, weight.shape[1])
            z = self._tensor((place, index if place >= 0 else index % 2), shape, weight)[:count]
            delta = self._tensor((-2, index % 2), shape, weight)[:count] if place >= 0 else z
            for_weight = for_bias = None
            if wanted[0] and led and descending:
                for_weight = self._tensor((-4, 0), (shape[0], weight.shape[1], weight.shape[2]), weight)[:led]
            elif wanted[0] and led:
                for_weight = _first(memory.part(2 * index, which), led)
            if wanted[1]:
                for_bias = _first(memory.part(2 * index + 1, which), count)
            multiplier = _first(memory.multiplier(index, which), led)
            works: list[Work] = []
            differentiate = pass_back = None
            if steps:
                before = steps[-1]
                room = self._tensor((-5, 0), (shape[0], examples, widest), weight).flatten()
                works.append(affine(before.output, own, _first(row, led), z[:led], room))
                pass_back = product(delta[:led], own, before.delta)
                if for_weight is not None:
                    turned = delta[:led].transpose(1, 2)
                    if descending:  # what is used up at once is in the cache as it is, and masked when it is used
                        differentiate = product(turned, before.output, for_weight)
                    else:
                        near = self._tensor((-3, 0), (led, 1, most), weight).flatten()
                        differentiate = masked_product(turned, before.output, multiplier, for_weight, near)
            if index and led < count:
                works.append(_begin(z[led:], None if row is None else row[led:]))
            steps.append(
                Step(
                    weight=own,
                    bias=row,
                    output=z,
                    forward=layer.activation.on(z),
                    backward=layer.activation.backward,
                    delta=delta,
                    for_weight=for_weight,
                    for_bias=None if for_bias is None else for_bias[:, None],
                    multiplier=multiplier,
                    pre_activate=_each(works),
                    differentiate=differentiate,
                    pass_back=pass_back,
                )
            )
        return Part(run, tuple(steps), tuple(zeros))

    def _tensor(self, key: tuple[int, int], shape: tuple[int, int, int], like: Tensor) -> Tensor:
        """Memory of that shape, what it holds being left over from before."""
        size = shape[0] * shape[1] * shape[2]
        held = self._memory.get(key)
        if held is None or held.numel() < size:
            self._memory[key] = held = like.new_empty(size)
        return held[:size].view(shape)


def carry_on(part: Part, inputs: Tensor) -> Tensor:
    """Outputs of some networks, (networks, batch or 1, classes), in memory that is used again."""
    for step in part.steps:
        if step.pre_activate is not None:
            step.pre_activate()
        else:
            given, transposed = _of(part.run, inputs, len(step.weight)), step.weight.transpose(1, 2)
            if step.bias is None:
                torch.bmm(given, transposed, out=step.output)
            else:
                torch.baddbmm(step.bias, given, transposed, out=step.output)
        step.forward()
    return part.steps[-1].output


def carry_back(part: Part, inputs: Tensor, gradient: Tensor, rate: float | None = None) -> None:
    """Write the gradients of some networks, from the last layer back to the first that wants one.

    With a learning rate each weight is moved as soon as nothing else needs it as it was, and biases in the end.
    """
    run, steps = part.run, part.steps
    for untouched in part.zeros:
        untouched.zero_()
    if run.constant:
        torch.sum(gradient[run.networks], 1, keepdim=True, out=steps[-1].delta)
    else:
        steps[-1].delta.copy_(gradient[run.networks])
    wanting = [i for i, step in enumerate(steps) if step.for_weight is not None or step.for_bias is not None]
    first = min(wanting, default=len(steps))
    for index in range(len(steps) - 1, first - 1, -1):
        step = steps[index]
        step.backward(step.delta, step.output)
        if step.for_bias is not None:
            torch.sum(step.delta, 1, keepdim=True, out=step.for_bias)
        if step.differentiate is not None:
            step.differentiate()
        elif step.for_weight is not None:
            given = _of(run, inputs, len(step.weight))
            torch.bmm(step.delta.transpose(1, 2), given, out=step.for_weight)
            if step.multiplier is not None and rate is None:
                step.for_weight.mul_(step.multiplier)
        if index > first:
            assert step.pass_back is not None
            step.pass_back()
        if rate is not None and step.for_weight is not None:
            if step.multiplier is None:
                step.weight.add_(step.for_weight, alpha=-rate)
            else:  # the mask first: times 0 or 1 is exact, so this rounds as gradients masked before would
                step.weight.addcmul_(step.multiplier, step.for_weight, value=-rate)
    if rate is not None:
        moving = [(step.bias, step.for_bias) for step in steps]
        pairs = [(bias, own) for bias, own in moving if bias is not None and own is not None]
        if pairs:
            torch._foreach_add_([bias for bias, _ in pairs], [own for _, own in pairs], alpha=-rate)


def _first(tensor: Tensor | None, count: int) -> Tensor | None:
    return None if tensor is None else tensor[:count]


def _begin(z: Tensor, bias: Tensor | None) -> Work:
    """Networks that begin here: what comes before reaches no output, so whatever it is may be taken for zero."""
    return z.zero_ if bias is None else lambda: z.copy_(bias)


def _each(works: Sequence[Work]) -> Work | None:
    """All of them, one after another."""
    if len(works) < 2:
        return works[0] if works else None

    def work() -> None:
        for own in works:
            own()

    return work


def _of(run: Run, inputs: Tensor, networks: int) -> Tensor:
    """The inputs of some networks: all of them, or any one where they make no difference."""
    own = inputs[:1] if run.constant else inputs
    return own.expand(networks, *own.shape)
