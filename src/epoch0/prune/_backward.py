"""The backward pass of a borrowed model: no operation without a derivative, no module that runs again (Hayou 2021)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from epoch0.errors import InputError


def differentiated(
    value: Tensor, leaves: Sequence[Tensor], push: Tensor | None = None, times: str = "once", **how: bool
) -> tuple[Tensor | None, ...]:
    """The gradient of a value, or its product with a cotangent, at leaves; None where it does not depend on one.

    >>> w = torch.ones(2, requires_grad=True)                   # shape (2,)
    >>> differentiated((3 * w).sum(), [w])
    (tensor([3., 3.]),)

    Args:
        value: what is differentiated; a scalar, or of the shape of the cotangent.
        leaves: tensors of any shapes.
        push: the cotangent.
        times: how often the model will have been differentiated, for the message.
        how: ``create_graph``, ``retain_graph``.

    Raises:
        InputError: if an operation of the model cannot be differentiated.
    """
    try:
        return torch.autograd.grad(value, leaves, push, allow_unused=True, **how)
    except InputError:
        raise
    except RuntimeError as error:
        text = str(error).strip().splitlines() or [""]
        raise InputError(f"the model cannot be differentiated {times}: {text[0]}") from error


@contextmanager
def only_forward(model: nn.Module, running: Sequence[object]) -> Iterator[None]:
    """Refuse modules that run again in the backward pass: they would run on the model's own weights and modes.

    >>> with only_forward(model, running := []):
    ...     running.append(True)                                # from here on it may run
    ...     model(x)

    Args:
        model: whose modules are watched.
        running: not empty while they may run.

    Raises:
        InputError: if one runs while they may not.
    """
    modules = list(model.modules())
    if any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in modules):
        yield  # compiled parts are traced without such hooks, and torch warns of them
        return
    mine = {id(module) for module in modules}

    def refuse(module: nn.Module, inputs: object) -> None:
        if id(module) in mine and not running:
            raise InputError(
                f"the model runs its {type(module).__name__} again in the backward pass (activation checkpointing), "
                "where it cannot be scored; switch that off for the scores."
            )

    handle = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
