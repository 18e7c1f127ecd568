"""How a run calls its model: precision, memory layout, compilation, ranks; what the first batch shows to be wrong."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.errors import InputError
from epoch0.train._circular_convolution import with_cheap_circles
from epoch0.train.distributed import Group
from epoch0.train.sources import check_classes

Loss = Callable[[Tensor, Tensor], Tensor]
"""``loss(outputs, targets)``, a scalar."""

CLASSES = (F.cross_entropy, F.nll_loss)
"""Losses whose integer targets are numbers of outputs."""

IGNORED = -100
"""The label that torch's losses leave out."""


def caller(
    model: nn.Module, device: torch.device, precision: str, channels_last: bool, compiled: bool | str, group: Group
) -> Callable[[Tensor], Any]:
    """What turns inputs into outputs in a training step; the model itself where nothing is to be added.

    >>> net = nn.Linear(2, 3)
    >>> caller(net, torch.device("cpu"), "float32", False, False, Group()) is net
    True

    Raises:
        InputError: if ``compiled`` names a backend that torch does not know.
    """
    call: Callable[[Tensor], Any] = group.wrap(model)
    if compiled:
        try:
            call = torch.compile(call, backend="inductor" if compiled is True else compiled)
        except RuntimeError as problem:
            raise InputError(f"compile={compiled!r} cannot be used: {_short(problem)}") from problem
    elif device.type == "cpu":
        call = with_cheap_circles(call, model)
    if precision == "float32" and not channels_last:
        return call

    def outputs(inputs: Tensor) -> Any:
        if channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            result = call(inputs)
        return result.float() if isinstance(result, Tensor) and result.dtype == torch.bfloat16 else result

    return outputs


@contextlib.contextmanager
def laid_out(model: nn.Module, optimizer: torch.optim.Optimizer, channels_last: bool) -> Iterator[None]:
    """Keep the weights of convolutions, and what the optimizer knows of them, channels-last for a while.

    Afterwards the weights lie as they did. A resumed optimizer's state comes as it was written, in rows; updates of
    tensors that lie differently are slow on a GPU.
    """
    changed: list[Tensor] = []
    if channels_last:
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                if tensor.dim() == 4 and tensor.is_contiguous():
                    tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
                    changed.append(tensor)
            for parameter, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor) and value.dim() == 4 and value.shape == parameter.shape:
                        state[name] = value.contiguous(memory_format=torch.channels_last)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor in changed:
                tensor.data = tensor.data.contiguous()


def first_loss(
    model: nn.Module, call: Callable[[Tensor], Any], loss: Loss, inputs: Tensor, targets: Tensor, labels: Tensor | None
) -> Tensor:
    """The loss of the first batch, with what does not fit said in words and nothing left changed.

    Args:
        model: its buffers (batch norm's averages) come back as they were if something is wrong.
        call: from :func:`caller`.
        loss: the loss.
        inputs: the batch.
        targets: its targets.
        labels: the targets of all examples, checked against the number of outputs.

    Raises:
        InputError: naming the shapes, the label or the compiler.
    """
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        outputs = _first_outputs(model, call, inputs)
        return _first_value(loss, outputs, targets, labels)
    except BaseException:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
        raise


def _first_outputs(model: nn.Module, call: Callable[[Tensor], Any], inputs: Tensor) -> Any:
    try:
        return call(inputs)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        if out_of_memory(problem):
            raise
        if type(problem).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise InputError(
                f"torch.compile could not compile this {type(model).__name__}: {_short(problem)} A C++ compiler is "
                "needed on a CPU, a GPU with Triton otherwise; train without compile to do without."
            ) from problem
        name, first = next(iter(model.named_parameters()))
        raise InputError(
            f"the model cannot take the first batch: inputs {_kind(inputs)}, its first parameter {name} is "
            f"{_kind(first)}; {_short(problem)}"
        ) from problem


def _first_value(loss: Loss, outputs: Any, targets: Tensor, labels: Tensor | None) -> Tensor:
    function = getattr(loss, "function", loss)
    function = function.func if isinstance(function, functools.partial) else function
    by_class = function in CLASSES or isinstance(function, nn.CrossEntropyLoss | nn.NLLLoss)
    if by_class and isinstance(outputs, Tensor) and targets.dim() == 1:
        stacked = outputs.dim() == 3 and outputs.shape[1] == len(targets)
        if outputs.dim() == 2 or stacked:
            every = targets if labels is None else labels
            check_classes(every[every != IGNORED], outputs.shape[-1])
    try:
        value = loss(outputs, targets)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        if out_of_memory(problem):
            raise
        shown = _kind(outputs) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        raise InputError(
            f"the loss cannot take the first batch: outputs {shown}, targets {_kind(targets)}; {_short(problem)}"
        ) from problem
    if not isinstance(value, Tensor) or value.numel() != 1:
        shown = f"the shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"the type {type(value).__name__}"
        raise InputError(f"the loss has {shown}; it must be one number (a mean).")
    return value


@contextlib.contextmanager
def enough_memory(batch_size: int, device: torch.device) -> Iterator[None]:
    """Say what would work where memory runs out.

    Raises:
        InputError: naming the batch size.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not out_of_memory(problem):
            raise
        raise InputError(
            f"a training step with batch_size={batch_size} does not fit into the memory of {device} "
            f"({_short(problem)}) Take a smaller batch, precision='bfloat16', or a device with more memory."
        ) from problem


def out_of_memory(problem: BaseException) -> bool:
    """Is this torch's way to say that memory ran out?"""
    text = str(problem)
    known = isinstance(problem, torch.OutOfMemoryError | MemoryError)
    return known or "can't allocate memory" in text or "not enough memory" in text


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _short(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return lines[0][:300].rstrip(".") + "."
