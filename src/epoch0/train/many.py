"""Many networks trained at once within the memory there is: one stack, or as many as it takes (Hayou section 4.1)."""

import copy
import gc
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from epoch0.errors import InputError
from epoch0.networks.ensemble import Ensemble
from epoch0.train._chain import chain_of
from epoch0.train._chain_descent import is_plain
from epoch0.train._forward import Loss, out_of_memory
from epoch0.train.loop import train
from epoch0.train.optimizers import SGD, Optimizer, settings_of
from epoch0.train.record import Training
from epoch0.train.sources import Source, size
from epoch0.train.stacked import Stacked

SHARE = 0.8
"""Of the memory that is free, how much a stack is planned to take; the rest is for what the plan does not see."""

Networks = Ensemble | Sequence[nn.Module]


@dataclass(frozen=True)
class ManyTrained:
    """Networks that were trained together.

    >>> done = train_many(nets, (x, y), steps=100, evaluate=Accuracy(x, y))     # doctest: +SKIP
    >>> done.metric("accuracy").shape, done.diverged.sum()                      # doctest: +SKIP
    ((27,), 0)

    Attributes:
        parts: the runs, one a stack; their networks in order.
    """

    parts: tuple[Training, ...]

    @property
    def stacks(self) -> tuple[Stacked, ...]:
        """The trained stacks."""
        return tuple(part.model for part in self.parts if isinstance(part.model, Stacked))

    def __len__(self) -> int:
        return sum(len(stack) for stack in self.stacks)

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """Which networks had a loss that was no finite number, shape (networks,); they stopped there, alone."""
        return np.concatenate([stack.diverged.cpu().numpy() for stack in self.stacks])

    def metric(self, name: str) -> NDArray[np.float64]:
        """The last value of a metric that has one number a network, shape (networks,).

        Raises:
            InputError: if no row has it.
        """
        found = []
        for part, stack in zip(self.parts, self.stacks, strict=True):
            row = next((row for row in reversed(part.history) if name in row), None)
            if row is None or np.shape(row[name]) != (len(stack),):
                known = ", ".join(dict.fromkeys(key for row in part.history for key in row))
                raise InputError(f"no row holds {name!r} with one number a network; its columns are {known}.")
            found.append(np.asarray(row[name], dtype=np.float64))
        return np.concatenate(found)

    def unstack(self, index: int) -> nn.Module:
        """One network as a module of its own; see :meth:`Stacked.unstack`."""
        for stack in self.stacks:
            if 0 <= index < len(stack):
                return stack.unstack(index)
            index -= len(stack)
        raise InputError(f"there are {len(self)} networks; count from 0 to {len(self) - 1}.")


def train_many(
    networks: Networks,
    data: tuple[Tensor, Tensor] | Source,
    *,
    masks: Sequence[Mapping[str, Tensor]] | None = None,
    loss: Loss = F.cross_entropy,
    memory: float | None = None,
    batch_size: int = 64,
    optimizer: str | Optimizer = "sgd",
    device: str | torch.device = "cpu",
    checkpoint: str | Path | None = None,
    **options: Any,
) -> ManyTrained:
    """Train many networks of one architecture, each as if alone, stacked as far as memory goes.

    >>> train_many([prune.apply(net, masks) for net, masks in pruned], (x, y), steps=10000)     # doctest: +SKIP

    All see the same batches. If they need more memory than there is, they are trained in parts, one after another, and
    a warning says so; the results are the same but for rounding.

    Args:
        networks: an ensemble, or modules, pruned ones too; they are copied.
        data: as for :func:`epoch0.train.loop.train`.
        masks: one for each network; see :meth:`Stacked.of`.
        loss: ``loss(outputs, targets) -> scalar`` of one network.
        memory: bytes that may be used; None: a share of what is free on the device.
        batch_size: examples a step.
        optimizer: as for ``train``.
        device: where to train.
        checkpoint: a safetensors file; if there are parts, each has one of its own beside it.
        options: of ``train``.

    Returns:
        The runs.

    Raises:
        InputError: if not even one network fits, or for what ``train`` and ``Stacked.of`` refuse.

    Warns:
        UserWarning: if the networks are trained in parts.
    """
    place = torch.device(device)
    one = networks[0]
    if masks is not None:
        one = Stacked.of([one], masks[:1]).unstack(0)
    settings = settings_of(optimizer)
    usual = options.get("precision", "float32") == "float32" and not options.get("compile")
    descends = place.type == "cpu" and usual and is_plain(settings, options.get("clip")) and chain_of(one) is not None
    each = memory_of(one, _example(data, batch_size), settings, descends)
    free = memory if memory is not None else SHARE * _free(place)
    most = int(free // each)
    if most < 1:
        raise InputError(
            f"a step of one network needs about {size(int(each))} and {size(int(free))} are free on {place}; "
            "take a smaller batch or network."
        )
    count = len(networks)
    parts: list[Training] = []
    start = 0
    if most < count:
        _say(count, each, free, place, most)
    while start < count:
        stop = min(start + most, count)
        path = checkpoint
        if path is not None and (start, stop) != (0, count):
            path = Path(path).with_name(f"{Path(path).name}.{start}-{stop}")
        try:
            stack = Stacked.of(networks[start:stop], None if masks is None else masks[start:stop])
            done = train(
                stack, data, batch_size=batch_size, optimizer=optimizer, device=place, checkpoint=path,
                loss=stack.loss(loss), **options,
            )  # fmt: skip
        except (RuntimeError, MemoryError, InputError) as problem:
            if not out_of_memory(problem.__cause__ or problem) or stop - start == 1:
                raise
            most = -(-(stop - start) // 2)
        else:
            parts.append(done)
            start = stop
            continue
        # outside of the handler, whose traceback holds the tensors
        stack = done = None  # type: ignore[assignment]
        gc.collect()
        if place.type == "cuda":
            torch.cuda.empty_cache()
        _say(count, each, free, place, most)
    return ManyTrained(tuple(parts))


def memory_of(
    network: nn.Module, batch: Tensor, optimizer: Optimizer | None = None, descends: bool = False
) -> float:
    """Bytes that a step of one network of a stack needs: parameters, what a step writes, what autograd keeps.

    >>> memory_of(nn.Linear(1000, 10, bias=False), torch.zeros(2, 1000)) / 40_000      # no step, no gradient: 3 or 4
    3.0...

    Args:
        network: one network; not changed.
        batch: inputs of one step, (examples, ...).
        optimizer: what trains it; None is plain SGD.
        descends: whether each gradient is used up before the next is made; see :mod:`epoch0.train._chain_descent`.
    """
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    twin = copy.deepcopy(network)
    own = {p.untyped_storage().data_ptr() for p in twin.parameters()} | {batch.untyped_storage().data_ptr()}
    first = next(twin.parameters(), batch)
    with torch.random.fork_rng(devices=[]), saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = twin(batch.to(first.dtype) if batch.is_floating_point() else batch)
    activations = sum(count for where, count in kept.items() if where not in own)
    del outputs
    sizes = [p.numel() * p.element_size() for p in twin.parameters()]
    parameters = sum(sizes)
    buffers = sum(b.numel() * b.element_size() for b in twin.buffers())
    # the parameters, their copy for networks that stop, and what the optimizer remembers
    states = (1 if optimizer.momentum else 0) if isinstance(optimizer, SGD) else 0 if optimizer is None else 2
    # masks: with their copy, and once as numbers
    masks = sum(4 * b.numel() for b in twin.buffers() if b.dtype == torch.bool)
    gradients = max(sizes, default=0) if descends else parameters
    return float((2 + states) * parameters + gradients + 2 * buffers + masks + activations)


def _example(data: tuple[Tensor, Tensor] | Source, batch_size: int) -> Tensor:
    """A batch as the networks will see them."""
    if isinstance(data, tuple):
        return data[0][:batch_size].cpu()
    return data.batch(torch.arange(min(batch_size, len(data))), 0)[0].cpu()


def _free(place: torch.device) -> float:
    if place.type == "cuda":
        return float(torch.cuda.mem_get_info(place)[0])
    return float(psutil.virtual_memory().available)


def _say(count: int, each: float, free: float, place: torch.device, most: int) -> None:
    warnings.warn(
        f"a stack of {count} networks needs about {size(int(count * each))}, and {size(int(free))} may be used on "
        f"{place}: trained in parts of at most {most} networks. The results are the same.",
        stacklevel=3,
    )
