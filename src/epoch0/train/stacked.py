"""Many small networks of one architecture trained as one batched program (Price-Tanner C.2, Hayou section 4.1).

A stack is a module like any other, so the one training loop runs it. The networks share each batch and nothing else:
the loss is the sum of their losses, so no gradient reaches from one to another, and optimizers that act on each
parameter entry by itself (SGD, Adam) leave every network where it would be had it been trained alone. What differs is
rounding, and dropout: each network of a stack drops units of its own.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from epoch0.errors import InputError
from epoch0.networks.ensemble import Ensemble
from epoch0.networks.nonlinearities import activation_of


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
        diverged: which networks had a loss that is no finite number; bool of shape (networks,).
    """

    frozen_at: Tensor
    diverged: Tensor

    def __init__(self, architecture: nn.Module, state: Mapping[str, Tensor]) -> None:
        """Stack the given parameters and buffers.

        Args:
            architecture: one network, on any device (meta will do); copied.
            state: each name of its state -> tensor of shape (networks, *shape there); taken over, not copied.

        Raises:
            InputError: if a name is missing or a shape does not fit.
        """
        super().__init__()
        _check_state(architecture, state)
        count = len(next(iter(state.values())))
        self.networks = _with_state(architecture, state)
        self.kept = _with_state(architecture, {name: value.detach().clone() for name, value in state.items()})
        self.kept.requires_grad_(False)
        self.register_buffer("frozen_at", torch.full((count,), -1, dtype=torch.int64))
        self.register_buffer("diverged", torch.zeros(count, dtype=torch.bool))

    @classmethod
    def of(cls, networks: "Ensemble | Sequence[nn.Module]") -> "Stacked":
        """Stack copies of the networks of an ensemble, or of modules of one architecture.

        >>> len(Stacked.of(ensemble(20, [64, 32, 10], seed=0)))             # doctest: +SKIP
        20

        Raises:
            InputError: if there is no network, or they are not all of one architecture.
        """
        if len(networks) == 0:
            raise InputError("a stack of no networks cannot be made; give at least one.")
        if isinstance(networks, Ensemble):
            return cls(networks.skeleton(), networks.stacked(0, len(networks)))
        try:
            parameters, buffers = stack_module_state(list(networks))
        except RuntimeError as problem:
            raise InputError(f"these {len(networks)} networks cannot be stacked: {problem}") from problem
        return cls(networks[0], {name: value.detach() for name, value in {**parameters, **buffers}.items()})

    def __len__(self) -> int:
        return len(self.frozen_at)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of all networks for the same inputs: (batch, ...) -> (networks, batch, ...)."""
        if inputs.dim() == 2 and _is_dense(self.networks):
            return self._dense(inputs)
        state = {**dict(self.networks.named_parameters()), **dict(self.networks.named_buffers())}

        def one(own: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(self.networks, own, (inputs,))
            return result

        outputs: Tensor = vmap(one, randomness="different")(state)
        return outputs

    def _dense(self, inputs: Tensor) -> Tensor:
        """The same for fully connected networks, at 1.6 times less: one batched product a layer."""
        z = inputs
        for part in self.networks.children():
            if not isinstance(part, nn.Linear):
                z = part(z)
            elif z.dim() == 2:  # the first layer: all networks see the same inputs, so their rows make one matrix
                z = z @ part.weight.flatten(0, 1).t()
                z = z.unflatten(1, part.weight.shape[:2]).transpose(0, 1)
                z = z if part.bias is None else z + part.bias[:, None]
            elif part.bias is None:
                z = torch.bmm(z, part.weight.transpose(1, 2))
            else:
                z = torch.baddbmm(part.bias[:, None], z, part.weight.transpose(1, 2))
        return z

    def loss(self, function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        """The sum over the networks of a loss of one network, for the training loop.

        >>> nets.loss(F.cross_entropy)(nets(x), y)                              # doctest: +SKIP
        tensor(11.6)

        A network whose loss is NaN or infinite is marked in ``diverged`` and left out from then on; the sum is NaN only
        when no network is left.
        """

        def total(outputs: Tensor, targets: Tensor) -> Tensor:
            losses: Tensor = vmap(function, in_dims=(0, None))(outputs, targets)
            self.diverged |= ~losses.detach().isfinite()
            if bool(self.diverged.all()):
                return losses.sum() * torch.nan
            return torch.where(self.diverged, torch.zeros_like(losses), losses).sum()

        return total

    @property
    def running(self) -> int:
        """How many networks are neither frozen nor diverged."""
        return int(((self.frozen_at < 0) & ~self.diverged).sum())

    def freeze(self, which: Tensor, step: int) -> None:
        """Keep those networks as they are now, as if each had been trained alone and stopped here.

        Args:
            which: bool of shape (networks,); networks frozen before stay as they were then.
            step: recorded in ``frozen_at``.
        """
        fresh = which.to(self.frozen_at.device) & (self.frozen_at < 0) & ~self.diverged
        live, kept = self.networks.state_dict(), self.kept.state_dict()
        for name, value in kept.items():
            value[fresh] = live[name][fresh]
        self.frozen_at[fresh] = step

    def settle(self) -> None:
        """Put every frozen network back to where it was frozen; the others stay where they are."""
        frozen = self.frozen_at >= 0
        kept = self.kept.state_dict()
        for name, value in self.networks.state_dict().items():
            value[frozen] = kept[name][frozen]

    def unstack(self, index: int) -> nn.Module:
        """One network as a module with its own memory: as it was frozen, or as it is now.

        Raises:
            InputError: if there is no such network.
        """
        if not 0 <= index < len(self):
            raise InputError(f"network {index} is not in a stack of {len(self)}; count from 0 to {len(self) - 1}.")
        source = self.kept if self.frozen_at[index] >= 0 else self.networks
        state = {name: value[index].detach().clone() for name, value in source.state_dict(keep_vars=True).items()}
        network = _with_state(source, state)
        for name, parameter in self.networks.named_parameters():
            network.get_parameter(name).requires_grad_(parameter.requires_grad)
        return network


@dataclass(frozen=True)
class FreezeAt:
    """A callback that freezes each network of a stack at the first evaluation where its metric is above a target.

    >>> train(nets, data, epochs=50, loss=nets.loss(F.cross_entropy), evaluate=Accuracy(x, y),
    ...       callbacks=[FreezeAt("accuracy", 0.95)], until=lambda row: row["running"] == 0)        # doctest: +SKIP

    Attributes:
        metric: name of a metric with one number a network.
        target: what it has to exceed.
    """

    metric: str
    target: float

    def __call__(self, step: int, model: nn.Module, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Freeze whoever got there; adds ``running``, the number of networks still on their way."""
        if not isinstance(model, Stacked):
            raise InputError(f"FreezeAt works on a stack of networks, not on a {type(model).__name__}.")
        values = torch.as_tensor(metrics.get(self.metric, []), dtype=torch.float64)
        if values.shape != (len(model),):
            raise InputError(
                f"FreezeAt needs a metric {self.metric!r} with one number for each of {len(model)} networks; "
                f"this row has {', '.join(metrics)}."
            )
        model.freeze(values > self.target, step)
        return {"running": model.running}


def _is_dense(architecture: nn.Module) -> bool:
    """Linear layers and elementwise nonlinearities in a row, the first one linear?"""
    parts = list(architecture.children())
    if type(architecture) is not nn.Sequential or not parts or type(parts[0]) is not nn.Linear:
        return False
    return all(type(part) is nn.Linear or activation_of(part) is not None for part in parts)


def _check_state(architecture: nn.Module, state: Mapping[str, Tensor]) -> None:
    own = {**dict(architecture.named_parameters()), **dict(architecture.named_buffers())}
    if set(own) != set(state):
        missing, foreign = sorted(set(own) - set(state)), sorted(set(state) - set(own))
        raise InputError(f"the stacked state does not fit the architecture: missing {missing}, not in it {foreign}.")
    if not own:
        raise InputError(f"a {type(architecture).__name__} without parameters cannot be stacked.")
    counts = {len(value) if value.dim() else 0 for value in state.values()}
    wrong = [name for name, value in state.items() if value.shape[1:] != own[name].shape]
    if len(counts) != 1 or counts == {0} or wrong:
        shapes = ", ".join(f"{name} {tuple(state[name].shape)}" for name in wrong or state)
        raise InputError(
            f"the stacked state does not fit the architecture: {shapes}; one first dimension for all is needed."
        )


def _with_state(architecture: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a module that holds these tensors, of whatever shape, as its parameters and buffers."""
    # keeping the copy from copying the tensors: they may be on the meta device or much larger than those of one network
    own = {**dict(architecture.named_parameters()), **dict(architecture.named_buffers())}
    memo: dict[int, Any] = {}
    for name, old in own.items():
        new: Tensor = state[name]
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(new, requires_grad=old.requires_grad)
        memo[id(old)] = new
    return copy.deepcopy(architecture, memo)
