"""Stacks of dense chains, worked through by hand: forward and backward into memory that is used again.

Autograd's own way costs an operation, an allocation and a trip through memory for each of bias, activation, mask and
gradient. Here a layer is one batched product, whose result gets bias and activation while it is in the cache; the
derivative follows from the output; the gradient of a masked weight is masked while it is still in the cache.

Four things save time and change nothing: networks are taken a few at a time, so that a layer is found in the cache
where the layer before left it; a network in which no path of kept weights leads from the inputs to the outputs computes
the same for every example, so it is carried for one, and from the first layer on that still reaches the outputs; a
network that has diverged is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from epoch0.errors import InputError
from epoch0.networks.nonlinearities import activation_of
from epoch0.prune.masks.places import Masked
from epoch0.train._chain_activations import IDENTITY, InPlace, in_place
from epoch0.train._chain_constant import Run, begins, run_of
from epoch0.train._chain_gradients import Gradients
from epoch0.train._chain_plan import Plan, Workspace
from epoch0.train._chain_runs import carry_back, carry_on


@dataclass(frozen=True)
class Layer:
    """One dense layer of all networks; tensors are looked up when they are needed, since a module can be moved."""

    module: nn.Module
    activation: InPlace

    @property
    def weight(self) -> nn.Parameter:
        """Shape (networks, outputs, inputs), zero where it is pruned."""
        row = _row(self.module)
        return cast(nn.Parameter, self.module.weight if row is None else row.original)

    @property
    def bias(self) -> nn.Parameter | None:
        """Shape (networks, outputs)."""
        return cast(nn.Parameter | None, self.module.bias)

    @property
    def mask(self) -> Tensor | None:
        """Shape of the weight, bool."""
        row = _row(self.module)
        return None if row is None else cast(Masked, row[0]).mask


class Chain:
    """The program of one stack; it belongs to the module that it was read from."""

    CACHE = 200_000_000
    """Bytes of weights, gradients and activations that are worked on at a time on a CPU."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self.descending = False
        self.reset()

    def reset(self) -> None:
        """Forget all memory and what is known of the masks: they were moved or loaded."""
        self.forget()
        self._free: list[Workspace] = []
        self._parameters: list[nn.Parameter | None] = []
        self._gradients: Gradients | None = None
        self._begins: list[int | None] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Chain":
        """Of the copied layers, with memory of its own."""
        return Chain([Layer(memo.get(id(layer.module), layer.module), layer.activation) for layer in self.layers])

    def forget(self) -> None:
        """Drop the backward pass that waits for the optimizer, if there is one."""
        self._waiting: _Pass | None = None

    def wait(self, waiting: "_Pass") -> None:
        """Keep a backward pass until the optimizer's step."""
        self._waiting = waiting

    def descend(self, rate: float) -> bool:
        """Do the backward pass that waits, and move every weight against its gradient; false if none waits."""
        if self._waiting is None:
            return False
        waiting, self._waiting = self._waiting, None
        with np.errstate(all="ignore"), torch.no_grad():
            for part in reversed(waiting.plan):
                carry_back(part, waiting.inputs, waiting.gradient, rate)
        self.give(waiting.workspace)
        return True

    def __call__(self, inputs: Tensor, left_out: Sequence[bool], training: bool = False) -> Tensor:
        """Outputs (networks, batch, classes) for inputs (batch, features); NaN for the networks left out."""
        if not self._parameters:
            self._parameters = [tensor for layer in self.layers for tensor in (layer.weight, layer.bias)]
        every = self._parameters
        keep = torch.is_grad_enabled() and any(p is not None and p.requires_grad for p in every)
        descending = keep and training and self.descending
        # descending, no parameter gets a gradient from the graph; one of them is enough to have the outputs in it
        watched = [p for p in every if p is not None and p.requires_grad][:1] if descending else every
        result: Tensor = _Function.apply(inputs, self, every, tuple(left_out), keep, descending, *watched)
        return result

    def runs(self, left_out: Sequence[bool], batch: int) -> list[Run]:
        """The networks in the order and the groups in which they are worked on."""
        most, starts = self.together(batch), self.begins()
        found: list[range] = []
        for network, left in enumerate(left_out):
            if left:
                continue
            if found and found[-1].stop == network and len(found[-1]) < most:
                own = found[-1]
                if (starts[own.start] is None) == (starts[network] is None):
                    found[-1] = range(own.start, network + 1)
                    continue
            found.append(range(network, network + 1))
        return [run_of(own, starts[own.start : own.stop]) for own in found]

    def together(self, batch: int) -> int:
        """How many networks are worked on at a time."""
        weights = [layer.weight for layer in self.layers]
        if weights[0].device.type != "cpu":
            return len(weights[0])
        size = sum(2 * w[0].numel() + batch * w.shape[1] for w in weights) * weights[0].element_size()
        return max(1, self.CACHE // size)

    def begins(self) -> list[int | None]:
        """From which layer on each network is carried for a single example; None: from the first one, for all."""
        if self._begins is None:
            count = len(self.layers[0].weight)
            on_cpu = self.layers[0].weight.device.type == "cpu"  # elsewhere one large program beats several small ones
            self._begins = begins([layer.mask for layer in self.layers], count) if on_cpu else [None] * count
        return self._begins

    def gradients(self) -> Gradients:
        """Memory for the gradients of all parameters, and the masks as numbers."""
        if self._gradients is None:
            self._gradients = Gradients([(layer.weight, layer.bias, layer.mask) for layer in self.layers])
        return self._gradients

    def take(self) -> Workspace:
        """Memory that no other pass is using."""
        return self._free.pop() if self._free else Workspace()

    def give(self, workspace: Workspace) -> None:
        """Memory that can be used again."""
        self._free.append(workspace)


@dataclass(frozen=True)
class _Pass:
    """A backward pass that waits for the optimizer."""

    plan: Plan
    workspace: Workspace
    inputs: Tensor
    gradient: Tensor


class _Function(torch.autograd.Function):
    """The program inside torch's graph."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, chain: Chain, parameters: Sequence[Tensor | None], left_out: tuple[bool, ...],
        keep: bool, descending: bool, *watched: Tensor | None,
    ) -> Tensor:  # fmt: skip
        last = parameters[-2]
        assert last is not None
        outputs = last.new_empty(len(last), len(inputs), last.shape[1])
        for network, left in enumerate(left_out):
            if left:
                outputs[network] = torch.nan
        workspace = chain.take()
        plan = workspace.plan(chain, len(inputs), left_out, parameters, keep, descending)
        with np.errstate(all="ignore"):  # a network that diverges is noticed by its loss, as everywhere in torch
            for part in plan:
                outputs[part.run.networks] = carry_on(part, inputs)
        if keep:
            ctx.save_for_backward(inputs)
            ctx.parameters, ctx.watched = parameters, len(watched)
            ctx.versions = [None if tensor is None else tensor._version for tensor in parameters]
            ctx.chain, ctx.plan, ctx.workspace, ctx.descending = chain, plan, workspace, descending
        else:
            chain.give(workspace)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        chain, workspace, parameters = ctx.chain, ctx.workspace, ctx.parameters
        if workspace is None:
            raise InputError("a stack's backward pass can be done once; call the stack again for another one.")
        if ctx.versions != [None if tensor is None else tensor._version for tensor in parameters]:
            raise InputError("a stack's parameters were changed between its forward and its backward pass.")
        (inputs,) = ctx.saved_tensors
        ctx.workspace = ctx.parameters = None
        if ctx.descending:
            chain.wait(_Pass(ctx.plan, workspace, inputs, gradient))
            return (None,) * (6 + int(ctx.watched))
        found = chain.gradients().lent(parameters, ctx.needs_input_grad[6:])
        done, taken = 0, [part.run.networks for part in ctx.plan]
        for start, stop in [*((own.start, own.stop) for own in taken), (len(gradient), 0)]:
            for own in found if start > done else ():
                if own is not None:
                    own[done:start] = 0.0  # of networks in between, which were left out
            done = stop
        with np.errstate(all="ignore"):
            for part in reversed(ctx.plan):  # the last one is still in the cache
                carry_back(part, inputs, gradient)
        chain.give(workspace)
        return None, None, None, None, None, None, *found


def chain_of(architecture: nn.Module) -> Chain | None:
    """The program of a stacked architecture, or None if it is no chain of dense layers and such activations.

    Args:
        architecture: with stacked parameters, of which each dense layer may be behind one mask of ``prune.apply``.
    """
    parts = list(architecture.children())
    if type(architecture) is not nn.Sequential or not parts or not is_linear(parts[0]):
        return None
    layers: list[Layer] = []
    for part in parts:
        if is_linear(part):
            layers.append(Layer(part, IDENTITY))
            continue
        rule = activation_of(part)
        found = None if rule is None else in_place(rule)
        if found is None or layers[-1].activation is not IDENTITY:
            return None
        layers[-1] = Layer(layers[-1].module, found)
    own = [id(tensor) for layer in layers for tensor in (layer.weight, layer.bias) if tensor is not None]
    kinds = {layer.weight.dtype for layer in layers}
    if len(set(own)) < len(own) or not kinds <= {torch.float32, torch.float64}:
        return None
    return Chain(layers)


def is_linear(part: nn.Module) -> bool:
    """A dense layer, plain or behind one mask of ``prune.apply``?"""
    if type(part) is nn.Linear:
        return True
    if not isinstance(part, nn.Linear) or not is_parametrized(part) or type(part).__bases__ != (nn.Linear,):
        return False
    row = _row(part)
    only = list(cast(nn.ModuleDict, part.parametrizations)) == ["weight"]
    return only and row is not None and len(row) == 1 and type(row[0]) is Masked


def _row(module: nn.Module) -> ParametrizationList | None:
    if not is_parametrized(module, "weight"):
        return None
    return cast(ParametrizationList, cast(nn.ModuleDict, module.parametrizations)["weight"])
