"""What to do for some networks of a stack of dense chains, layer by layer, and the memory for it (for _chain)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epoch0.train._chain_constant import Run
from epoch0.train._chain_products import (
    SMALL,
    Work,
    affine,
    affine_of_inputs,
    masked_product,
    product,
    product_with_inputs,
)

if TYPE_CHECKING:
    from epoch0.train._chain import Chain


@dataclass(frozen=True)
class Step:
    """One layer of some networks: views of parameters and of memory, made once and used at every step.

    Attributes:
        weight: (networks, outputs, inputs), of the networks that have a layer before.
        bias: (networks, 1, outputs).
        output: (networks, batch, outputs), activated.
        forward: given the inputs of the networks, writes the output.
        backward: ``backward(delta, output)`` turns the gradient of the output into that of the pre-activation.
        delta: (networks, batch, outputs), that gradient; layers take turns with two pieces of memory.
        for_weight: where the gradient of the weight goes, if it is wanted.
        for_bias: the same for the bias, of the shape of the bias.
        multiplier: the mask of the weight as numbers.
        differentiate: given the inputs of the networks, writes the gradient of the weight, masked unless descending;
            None if it is not wanted.
        pass_back: writes the gradient of the layer before's output into its delta; None if there is none.
    """

    weight: Tensor
    bias: Tensor | None
    output: Tensor
    forward: Callable[[Tensor], object]
    backward: Callable[[Tensor, Tensor], object]
    delta: Tensor
    for_weight: Tensor | None
    for_bias: Tensor | None
    multiplier: Tensor | None
    differentiate: Callable[[Tensor], object] | None
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
                _Maker(self, chain, run, place if keep else -1, batch, parameters, descending).part()
                for place, run in enumerate(chain.runs(left_out, batch))
            ]
        return self._plans[key]

    def tensor(self, key: tuple[int, int], shape: tuple[int, int, int], like: Tensor) -> Tensor:
        """Memory of that shape, what it holds being left over from before."""
        size = shape[0] * shape[1] * shape[2]
        held = self._memory.get(key)
        if held is None or held.numel() < size:
            self._memory[key] = held = like.new_empty(size)
        return held[:size].view(shape)


class _Maker:
    """Makes the part of one run; ``place`` is the run's number, or negative for no backward pass."""

    def __init__(
        self, workspace: Workspace, chain: "Chain", run: Run, place: int, batch: int,
        parameters: Sequence[Tensor | None], descending: bool,
    ) -> None:  # fmt: skip
        self.workspace, self.chain, self.run, self.place = workspace, chain, run, place
        self.parameters, self.descending, self.gradients = parameters, descending, chain.gradients()
        self.networks, self.examples = run.networks.stop - run.networks.start, 1 if run.constant else batch
        weights = [weight for weight in parameters[::2] if weight is not None]
        self.like, self.widest = weights[0], max(weight.shape[1] for weight in weights)
        sizes = [0 if self.examples == 1 else weight[0].numel() for weight in weights[1:]]
        self.most = max((size for size in sizes if self.examples * size <= SMALL), default=0)

    def part(self) -> Part:
        """All of it."""
        steps: list[Step] = []
        for index in range(len(self.chain.layers)):
            if self.run.count(index):
                steps.append(self._step(index, steps[-1] if steps else None))
        return Part(self.run, tuple(steps), tuple(self._zeros()))

    def _step(self, index: int, before: Step | None) -> Step:
        which, count, led = self.run.networks, self.run.count(index), self._led(index)
        parameter, bias = self.parameters[2 * index : 2 * index + 2]
        assert parameter is not None
        weight = parameter.detach()[which][:led]
        row = None if bias is None else bias.detach()[which, None][:count]
        shape = (self.networks, self.examples, weight.shape[1])
        output = self._memory(self.place, index if self.place >= 0 else index % 2, shape)[:count]
        delta = self._memory(-2, index % 2, shape)[:count] if self.place >= 0 else output
        for_bias = self._for(2 * index + 1, count)
        for_weight = self._for_weight(index, led)
        multiplier = _first(self.gradients.multiplier(index, which), led)
        differentiate = None
        if for_weight is not None:
            differentiate = self._differentiate(delta[:led], before, multiplier, for_weight)
        activation = self.chain.layers[index].activation
        return Step(
            weight=weight,
            bias=row,
            output=output,
            forward=self._forward(index, weight, row, output, before),
            backward=activation.backward,
            delta=delta,
            for_weight=for_weight,
            for_bias=None if for_bias is None else for_bias[:, None],
            multiplier=multiplier,
            differentiate=differentiate,
            pass_back=None if before is None else product(delta[:led], weight, before.delta),
        )

    def _forward(
        self, index: int, weight: Tensor, bias: Tensor | None, output: Tensor, before: Step | None
    ) -> Callable[[Tensor], object]:
        on, led = self.chain.layers[index].activation.on, len(weight)
        room = self._memory(-5, 0, (self.networks, self.examples, self.widest)).flatten()
        if index == 0:
            multiply, found = affine_of_inputs(weight, bias, room[: output.numel()])
            activate = on(found, output)
            return lambda inputs: (multiply(inputs), activate())
        works: list[Work] = []
        found = output
        if before is not None:
            work, found = affine(before.output, weight, _first(bias, led), output[:led], room)
            works.append(work)
        if led < len(output):
            works.append(_begin(output[led:], None if bias is None else bias[led:]))
        works.append(on(output if found.data_ptr() == output.data_ptr() else found, output))
        return _each(works)

    def _differentiate(
        self, delta: Tensor, before: Step | None, multiplier: Tensor | None, out: Tensor
    ) -> Callable[[Tensor], object]:
        turned, mask = delta.transpose(1, 2), None if self.descending else multiplier  # descending masks the update
        if before is None:
            return product_with_inputs(turned, mask, out)
        if self.descending:  # what is used up at once is in the cache as it is
            return _each([product(turned, before.output, out)])
        near = self._memory(-3, 0, (len(delta), 1, self.most)).flatten()
        return _each([masked_product(turned, before.output, mask, out, near)])

    def _for_weight(self, index: int, led: int) -> Tensor | None:
        weight = self.parameters[2 * index]
        assert weight is not None
        if self.descending and led and self._wanted(2 * index):
            return self._memory(-4, 0, (self.networks, *weight.shape[1:]))[:led]
        return self._for(2 * index, led) if led else None

    def _for(self, slot: int, count: int) -> Tensor | None:
        """Where the gradient of a parameter goes that the backward pass writes to stay."""
        return _first(self.gradients.part(slot, self.run.networks), count) if self._wanted(slot) else None

    def _zeros(self) -> list[Tensor]:
        zeros: list[Tensor] = []
        for slot in range(0 if self.descending else len(self.parameters)):
            begun = self.run.count(slot // 2) if slot % 2 else self._led(slot // 2)
            gradient = self._for(slot, self.networks)
            if gradient is not None and begun < len(gradient):
                zeros.append(gradient[begun:])
        return zeros

    def _wanted(self, slot: int) -> bool:
        parameter = self.parameters[slot]
        return self.place >= 0 and parameter is not None and parameter.requires_grad

    def _led(self, index: int) -> int:
        """How many networks have a layer before; the others begin here, with their bias."""
        return self.run.count(max(index - 1, 0))

    def _memory(self, kind: int, turn: int, shape: tuple[int, int, int]) -> Tensor:
        return self.workspace.tensor((kind, turn), shape, self.like)


def _first(tensor: Tensor | None, count: int) -> Tensor | None:
    return None if tensor is None else tensor[:count]


def _begin(z: Tensor, bias: Tensor | None) -> Work:
    """Networks that begin here: what comes before reaches no output, so whatever it is may be taken for zero."""
    return z.zero_ if bias is None else lambda: z.copy_(bias)


def _each(works: Sequence[Work]) -> Callable[[Tensor], object]:
    """All of them, one after another, whatever the inputs."""
    if len(works) == 1:
        (only,) = works
        return lambda inputs: only()
    if len(works) == 2:
        first, second = works
        return lambda inputs: (first(), second())

    def work(inputs: Tensor) -> None:
        for own in works:
            own()

    return work
