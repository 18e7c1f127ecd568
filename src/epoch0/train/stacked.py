"""Many small networks of one architecture trained as one batched program (Price-Tanner C.2, Hayou section 4.1).

A stack is a module like any other, so the one training loop runs it. The networks share each batch and nothing else:
the loss is the sum of their losses, and optimizers that act on each parameter entry by itself (SGD, Adam) leave every
network where it would be had it been trained alone, but for rounding and its own dropout. Pruned ones keep their masks.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from epoch0.arguments import Whole, checked, refuse
from epoch0.errors import InputError, first_line, reworded
from epoch0.networks.dense import Ensemble
from epoch0.prune.masks.apply import apply
from epoch0.prune.masks.places import places


@checked
class Stacked(nn.Module):
    """Networks of one architecture, their parameters stacked along a first dimension.

    >>> nets = Stacked.of([nn.Linear(4, 3) for _ in range(5)])
    >>> nets(torch.zeros(2, 4)).shape                       # (batch, inputs) -> (networks, batch, classes)
    torch.Size([5, 2, 3])
    >>> nets.unstack(1)
    Linear(in_features=4, out_features=3, bias=True)

    Attributes:
        networks: the architecture with stacked parameters and buffers; never called by itself.
        kept: the same for the networks that have been frozen, as they were at that moment.
        frozen_at: step at which each network was frozen, -1 for those that were not; int64 of shape (networks,).
        diverged: which networks had a loss that is no finite number, and stopped alone; bool of shape (networks,).
    """

    frozen_at: Tensor
    diverged: Tensor

    def __init__(self, architecture: nn.Module, state: Mapping[str, Tensor]) -> None:
        """Stack the given parameters and buffers: name -> tensor of shape (networks, *shape in the architecture)."""
        super().__init__()
        count = len(next(iter(state.values())))
        self.networks = _with_state(architecture, state)
        self.kept = _with_state(architecture, {name: value.detach().clone() for name, value in state.items()})
        self.kept.requires_grad_(False)
        self.register_buffer("frozen_at", torch.full((count,), -1, dtype=torch.int64))
        self.register_buffer("diverged", torch.zeros(count, dtype=torch.bool))

    @classmethod
    def of(
        cls, networks: "Ensemble | Sequence[nn.Module]", masks: Sequence[Mapping[str, Tensor]] | None = None
    ) -> "Stacked":
        """Stack copies of the networks of an ensemble, or of modules of one architecture.

        >>> len(Stacked.of([net] * 9, [keep(scores, s / 10) for s in range(1, 10)]))        # doctest: +SKIP
        9

        Args:
            networks: modules that ``prune.apply`` has pruned bring their masks, which may differ.
            masks: one for each network, as ``prune.keep`` makes them; the networks given are not changed.
        """
        if len(networks) == 0 or next(networks[0].parameters(), None) is None:
            raise InputError("a stack of no networks, or without parameters, cannot be made; give at least one.")
        if masks is not None:
            networks = _masked(networks, masks)
        if isinstance(networks, Ensemble):
            return cls(networks.skeleton(), networks.stacked(0, len(networks)))
        hint = "give networks of one architecture, with masks on the same weights of all, or of none"
        with reworded(lambda problem: InputError(f"these networks cannot be stacked ({first_line(problem)}); {hint}.")):
            parameters, buffers = stack_module_state(list(networks))
            return cls(networks[0], {name: value.detach() for name, value in {**parameters, **buffers}.items()})

    def __len__(self) -> int:
        return len(self.frozen_at)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of all networks for the same inputs: (batch, ...) -> (networks, batch, ...)."""
        state = {**dict(self.networks.named_parameters()), **dict(self.networks.named_buffers())}
        call = vmap(lambda own: functional_call(self.networks, own, (inputs,)), randomness="different")
        outputs: Tensor = call(state)
        return outputs

    def loss(self, function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        """The sum over the networks of a loss of one network, for the training loop.

        >>> nets.loss(F.cross_entropy)(nets(x), y)                              # doctest: +SKIP
        tensor(11.6)

        A network whose loss is NaN or infinite is marked in ``diverged`` and left out; without any left the sum is NaN.
        """
        each = loss_of_each(function)

        def total(outputs: Tensor, targets: Tensor) -> Tensor:
            losses = each(outputs, targets)
            if bool((lost := ~losses.detach().isfinite() & ~self.diverged).any()):
                self._keep(lost & (self.frozen_at < 0))
                self.diverged |= lost
            if bool(self.diverged.all()):
                return losses.sum() * torch.nan
            return torch.where(self.diverged, torch.zeros_like(losses), losses).sum()

        total.function = function  # type: ignore[attr-defined]  # the loop checks the labels of losses that it knows
        return total

    @property
    def running(self) -> int:
        """Number of networks that are neither frozen nor diverged."""
        return int(((self.frozen_at < 0) & ~self.diverged).sum())

    def freeze(self, which: Tensor, step: Whole) -> None:
        """Keep those networks, bool (networks,), as they are now, as if each had stopped here alone."""
        if which.dtype != torch.bool or which.shape != self.frozen_at.shape:
            raise refuse("which", which, f"bool of shape ({len(self)},)")
        fresh = which.to(self.frozen_at.device) & (self.frozen_at < 0) & ~self.diverged
        self._keep(fresh)
        self.frozen_at[fresh] = step

    def _keep(self, which: Tensor) -> None:
        live = self.networks.state_dict()
        for name, value in self.kept.state_dict().items():
            value[which] = live[name][which]

    def settle(self) -> None:
        """Put every frozen or diverged network back to where it stopped; the others stay where they are."""
        frozen, kept = (self.frozen_at >= 0) | self.diverged, self.kept.state_dict()
        for name, value in self.networks.state_dict().items():
            value[frozen] = kept[name][frozen]

    def unstack(self, index: int) -> nn.Module:
        """One network as a module with its own memory: as it stopped, or as it is now; a pruned one with its masks."""
        if not 0 <= index < len(self):
            raise InputError(f"network {index} is not in a stack of {len(self)}; count from 0 to {len(self) - 1}.")
        source = self.kept if self.frozen_at[index] >= 0 or self.diverged[index] else self.networks
        held = {**source.state_dict(keep_vars=True), **dict(source.named_buffers())}  # the former lacks some buffers
        network = _with_state(source, {name: value[index].detach().clone() for name, value in held.items()})
        for name, parameter in self.networks.named_parameters():
            network.get_parameter(name).requires_grad_(parameter.requires_grad)
        return network


@checked
@dataclass(frozen=True)
class FreezeAt:
    """A callback that freezes each network of a stack at the first evaluation where its metric is above a target.

    >>> train(nets, data, epochs=50, loss=nets.loss(F.cross_entropy), evaluate=Accuracy(x, y),
    ...       callbacks=[FreezeAt("accuracy", 0.95)], until=lambda row: row["running"] == 0)        # doctest: +SKIP
    """

    metric: str
    target: float

    def __call__(self, step: int, model: nn.Module, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Freeze networks above the target; adds ``running``, the number of the others."""
        if not isinstance(model, Stacked):
            raise InputError(f"FreezeAt works on a stack of networks, not on a {type(model).__name__}.")
        if (values := torch.as_tensor(metrics.get(self.metric, []), dtype=torch.float64)).shape != (len(model),):
            wanted = f"a metric {self.metric!r} with one number for each of {len(model)} networks"
            raise InputError(f"FreezeAt needs {wanted}; this row has {', '.join(metrics)}.")
        model.freeze(values > self.target, step)
        return {"running": model.running}


def loss_of_each(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Losses of shape (networks,) from outputs (networks, batch, ...) and the targets that all share."""
    return vmap(function, in_dims=(0, None))


def _masked(networks: "Ensemble | Sequence[nn.Module]", masks: Sequence[Mapping[str, Tensor]]) -> list[nn.Module]:
    """Copies with masks; a weight that only some of the networks have a mask for keeps everything in the others."""
    if len(masks) != len(networks):
        raise InputError(f"there are {len(masks)} masks for {len(networks)} networks; give one for each.")
    names, found = {name for each in masks for name in each}, []
    for network, own in zip(networks, masks, strict=True):
        weights = {name: where[0].parameter for name, where in places(network).items() if name in names}
        whole = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in weights.items()}
        found.append(apply(copy.deepcopy(network), {**whole, **own}))
    return found


def _with_state(architecture: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a module that holds these tensors, of whatever shape, as its parameters and buffers."""
    # keeping the copy from copying the tensors: they may be on the meta device or much larger than those of one network
    memo: dict[int, Any] = {id(old): state[name] for name, old in architecture.named_buffers()}
    for name, old in architecture.named_parameters():
        memo[id(old)] = nn.Parameter(state[name], requires_grad=old.requires_grad)
    return copy.deepcopy(architecture, memo)
