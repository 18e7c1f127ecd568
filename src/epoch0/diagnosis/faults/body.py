"""What a loop body makes of inputs, outputs and targets before the model and the loss get them."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import OwnStep, copied
from epoch0.errors import InputError
from epoch0.tracing.call import Call, mapped, parts
from epoch0.tracing.loss import scalar_loss
from epoch0.tracing.operations import Calls

NOTE = "Inputs, outputs and targets are read as the loop body hands them on to the model and the loss."
_RUNS: ContextVar[bool] = ContextVar("whether a loop body runs, which then turns outputs itself", default=False)


class _Met(BaseException):
    """Raised with its arguments where a loop body calls the model, the loss or backward; no handler of it takes it."""


class _Backward(Calls):
    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "backward":
            raise _Met(args[0])
        return func(*args, **kwargs)


class _Body:
    """A loop body with copies of its model and optimizer, run up to some place."""

    def __init__(self, call: Call, optimizer: torch.optim.Optimizer, step: OwnStep) -> None:
        self.model, self.optimizer, self.step = copied(call.model, optimizer, step)
        self.own = call.criterion or (lambda output, targets: scalar_loss(output, targets, None))

    def until(self, x: Any, y: Any, output: Any = None, whole: bool = False) -> Any:
        """What it calls the model with; given the model's output, the loss; or the tensor that it calls backward of."""

        def meet(*given: Any, **named: Any) -> Any:
            raise _Met(*given, *named.values())

        def once(*given: Any, **named: Any) -> Any:
            stub.forward = None  # what runs the model twice may make its own targets
            return output

        stub: Any = copy.copy(self.model)
        stub.forward = meet if output is None else once
        try:
            with _Backward():
                self.step(stub, self.optimizer, self.own if whole else meet, x, y)  # type: ignore[misc]
        except _Met as found:
            return found.args
        raise InputError("the loop body calls neither the model nor the loss, nor backward")


def as_handed(
    call: Call, known: tuple[Any, Any] | None, optimizer: torch.optim.Optimizer, step: OwnStep
) -> tuple[Call, tuple[Any, Any] | None, OwnStep]:
    """The call, the data and the loop body with inputs and targets as the body hands them on, and its way of outputs.

    Of ``loss(model(x / 255).squeeze(1), y.float())`` the inputs are then ``x / 255``, the targets ``y.float()``, and
    the loss takes outputs with a last dimension of 1. A loss that the body puts together itself is what it calls
    backward of. All stays as it is where examples are not turned each by itself.
    """
    x, y, half, body = call.batch, call.targets, call.examples // 2, _Body(call, optimizer, step)

    def like(rows: Any, wanted: Any) -> Any:
        """As many rows as are wanted, for their shapes."""
        count = len(parts(wanted)[0][1])
        return mapped(rows, lambda t: t.index_select(0, torch.arange(count, device=t.device) % len(t)))

    def other(rows: Any) -> Any:
        return mapped(rows, lambda t: t.roll(1, 0)[:half])

    of_targets = both = False  # whether the targets are turned, or come with the inputs for a loss of the body's own
    try:
        assert call.splits and call.forward is None and half > 1 and x.dim() and y is not None
        with call.unchanged(), torch.no_grad():
            given, some_y = body.until(x, y), mapped(y, lambda t: t[:half])
            assert all(_same(part, t[:half]) for part, t in zip(body.until(x[:half], some_y), given, strict=True))
            inputs = given[0] if len(given) == 1 else given
            of_inputs, raw = not _same(inputs, x), call.raw(body.model.eval(), inputs)
            try:
                outputs, targets = body.until(x, y, raw)
                whole = body.own(outputs, targets).dim() > 0
            except Exception:
                whole = True
            if not whole:
                turned, aims = (
                    body.until(other(x), other(y), raw[:half])[0],
                    body.until(x[:half], some_y, other(raw))[1],
                )
                assert _same(turned, outputs[: len(turned)]) and _same(aims, targets[: len(aims)])
                of_targets = not _same(targets, y)
                if not (of_inputs or of_targets or not _same(outputs, raw)):
                    return call, known, step
                if of_targets and len(targets) != len(y):  # places that come one after another, of targets or inputs
                    of_targets, whole = False, not _same(aims, body.until(other(x), some_y, other(raw))[1])
            if whole:
                value, again, elsewhere = (body.until(z, y, raw, True)[0] for z in (x, x, x.roll(1, 0)))
                assert value.dim() == 0 and _same(value, again)
                both = not _same(value, elsewhere)
    except Exception:  # a body of another kind
        return call, known, step

    def criterion(output: Any, wanted: Any) -> Any:
        if _RUNS.get():
            return body.own(output, wanted)
        some_x, some_y = wanted if both else (like(x, wanted), like(y, wanted) if of_targets else wanted)
        if whole:
            return body.until(some_x, some_y, output, True)[0]
        turned, places = body.until(some_x, some_y, output)
        return body.own(turned, wanted if of_targets else places)

    def body_of_turned(model: nn.Module, optimizer: Any, loss: Callable[..., Any], x_turned: Any, y_turned: Any) -> Any:
        """The body, while the model and the loss get these whatever the body makes of the examples in their place."""

        def instead(*given: Any, **named: Any) -> Any:
            output, wanted = (*given, *named.values())
            return loss(output, y_turned if of_targets else wanted)

        handed = x_turned if isinstance(x_turned, tuple) else (x_turned,)
        turning = model.register_forward_pre_hook(lambda module, args: handed) if of_inputs else nullcontext()
        some_x, some_y = y_turned if both else (like(x, y_turned), like(y, y_turned) if of_targets else y_turned)
        token = _RUNS.set(True)
        try:
            with turning:
                some_x = some_x if of_inputs or both else x_turned
                return step(model, optimizer, body.own if whole else instead, some_x, some_y)
        finally:
            _RUNS.reset(token)

    if known is not None:
        more, wanted = known
        given = body.until(more, wanted)
        told = body.until(more, wanted, like(raw, more))[1] if of_targets else (more, wanted) if both else wanted
        known = ((given[0] if len(given) == 1 else given) if of_inputs else more), told
    told = targets if of_targets else (x, y) if both else y
    return (
        replace(call, batch=inputs, targets=told, criterion=criterion, notes=(*call.notes, NOTE), _seen={}),
        known,
        body_of_turned,
    )


def _same(one: Any, two: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(two, Tensor) or one.shape != two.shape or one.dtype != two.dtype:
        return False
    return torch.allclose(one, two, 1e-5, 0.0, equal_nan=True)
