"""From outputs and targets to the scalar whose gradient is measured, with errors for mismatches (THEORY section 0)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from epoch0.errors import InputError, check_dense

Loss = Callable[[Any, Any], Tensor]

IGNORED = -100  # the class that torch's cross-entropy leaves out


class NotFinite(InputError):
    """A loss is NaN or infinite though all outputs are finite."""


def scalar_loss(output: Tensor, targets: Any, loss: Loss | None) -> Tensor:
    """The loss of a batch.

    >>> scalar_loss(torch.zeros(2, 10), torch.tensor([3, 9]), None)            # cross-entropy of 10 equal classes
    tensor(2.3026)
    """
    if loss is None:
        if not isinstance(targets, Tensor):
            raise InputError(f"targets must be a torch tensor, not a {type(targets).__name__}; or give a loss as well.")
        targets = targets.to(output.device)
        value = _squares(output, targets) if targets.is_floating_point() else _cross_entropy(output, targets.long())
        return check_loss(value, [output])
    try:
        value = loss(output, targets)
    except Exception as error:
        if targets is None:
            text = "a loss was given but no targets, and this loss needs both"
            raise InputError(f"{text}: {type(error).__name__}: {error}") from error
        raise InputError(f"the loss fails on outputs {tuple(output.shape)}: {type(error).__name__}: {error}") from error
    return check_loss(value, [output])


def number_of(value: Any) -> Any:
    """The number to minimize in the result of a loss: it, the first of several, the ``"loss"`` of a mapping."""
    if isinstance(value, Mapping):
        return value.get("loss", value)
    return value[0] if isinstance(value, tuple | list) and value else value


def check_loss(value: Any, outputs: Sequence[Tensor]) -> Tensor:
    """The loss as a scalar, or the reason why it cannot be one; NotFinite if all outputs are finite and it is not."""
    value = number_of(value)
    lost = isinstance(value, Tensor) and not value.requires_grad and any(o.requires_grad for o in outputs)
    if not isinstance(value, Tensor) or value.numel() != 1 or lost:
        kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(f"the loss must return one number computed from the outputs with torch, not {kind}.")
    # overflowing outputs are a finding
    if not bool(value.isfinite()) and all(bool(o.isfinite().all()) for o in outputs if o.is_floating_point()):
        raise NotFinite(f"the loss of this batch is {float(value.detach())}; a finite one is needed for gradients.")
    return value.reshape(())


def _wrong(output: Tensor, targets: Tensor, wanted: str) -> InputError:
    given = f"targets of shape {tuple(targets.shape)} do not fit outputs of shape {tuple(output.shape)}"
    return InputError(f"{given}: {wanted}, or give a loss of your own.")


def _squares(output: Tensor, targets: Tensor) -> Tensor:
    if output.shape != targets.shape:
        whole = targets.dim() == output.dim() - 1 and bool((targets == targets.round()).all())
        wanted = f"float targets (mean squared error) need shape {tuple(output.shape)}"
        raise _wrong(output, targets, f"{wanted}, classes targets.long()" if whole else wanted)
    return F.mse_loss(output, targets.to(output.dtype))


def _cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    flat = 1 in (output.dim() - 1, targets.dim()) and targets.numel() == output.shape[:-1].numel()  # a row a place
    images = output.dim() > 3 and targets.shape == (output.shape[0], *output.shape[2:])  # classes second, as in torch
    if output.dim() >= 2 and not images and (flat or targets.shape == output.shape[:-1]):  # [length,] classes last
        output, targets = output.reshape(-1, output.shape[-1]), targets.reshape(-1)
    elif output.dim() < 2 or targets.shape != (output.shape[0], *output.shape[2:]):
        count = f"the {len(output)} examples, and outputs a number a class" if output.dim() else "several examples"
        raise _wrong(output, targets, f"integer targets (classes) need one for each of {count}")
    classes = output.shape[1]
    if bool((wrong := ((targets < 0) | (targets >= classes)) & (targets != IGNORED)).any()):
        known = f"the model has {classes} outputs, so classes go from 0 to {classes - 1}"
        known = known if classes > 1 else "the model has 1 output; take floats and F.binary_cross_entropy_with_logits"
        raise InputError(f"target {int(targets[wrong][0])} is out of range: {known}.")
    return F.cross_entropy(output, targets)


def check_targets(examples: int | None, targets: Any) -> None:
    """Refuse targets of another length than the batch or without values, before any run."""
    if isinstance(targets, Tensor):
        check_dense("the targets", targets)
    if examples is not None and isinstance(targets, Tensor) and (targets.dim() == 0 or len(targets) != examples):
        found = "one number" if targets.dim() == 0 else f"{len(targets)} targets"
        raise InputError(f"{found} for {examples} examples; give one target an example.")
