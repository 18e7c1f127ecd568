"""What a loop body makes of inputs, outputs and targets before the model and the loss get them."""

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import OwnStep, copied
from epoch0.errors import InputError
from epoch0.tracing.call import Call, mapped, parts
from epoch0.tracing.guard import same_noise
from epoch0.tracing.loss import scalar_loss
from epoch0.tracing.operations import Calls

NOTE = "Inputs, outputs and targets are read as the loop body hands them on to the model and the loss."
LONE = "The loop body makes targets of its own or cannot be followed; pass forward= and a loss of what that returns."
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

    def until(self, x: Any, y: Any, output: Any = None, whole: bool = False, real: bool = False) -> Any:
        """What it calls the model with; given its output, or with the real model, the loss; or backward of."""

        def meet(*given: Any, **named: Any) -> Any:
            raise _Met(*given, *named.values())

        def asked(*given: Any, **named: Any) -> Any:
            if output is None and not real:
                raise InputError("the loop body does not call the model itself")
            meet(*given, **named)

        def once(*given: Any, **named: Any) -> Any:
            stub.forward = None  # what runs the model twice may make its own targets
            return output

        stub: Any = self.model if real else copy.copy(self.model)
        if not real:
            stub.forward = meet if output is None else once
        try:
            with _Backward():
                self.step(stub, self.optimizer, self.own if whole else asked, x, y)  # type: ignore[misc]
        except _Met as found:
            return found.args
        raise InputError("the loop body calls neither the model nor the loss, nor backward")


def as_handed(
    call: Call, known: Any, optimizer: torch.optim.Optimizer, step: OwnStep
) -> tuple[Call, Any, OwnStep, str]:
    """The call, the data and the loop body with inputs and targets as the body hands them on, and its way of outputs.

    Of ``loss(model(x / 255).squeeze(1), y.float())`` inputs are then ``x / 255``, targets ``y.float()``; what the body
    puts together itself is what it calls backward of. All stays where the loss can do without the body; where it cannot
    be followed, or makes its own targets, the last result says so.
    """
    x, y, half = call.batch, call.targets, call.examples // 2
    body = None
    with suppress(Exception):  # what cannot be copied
        body = _Body(call, optimizer, step)
    if body is None or call.forward is not None or call.asks or y is None:
        return call, known, step, ""

    def met(*given: Any, noise: int = 0, whole: bool = False) -> Any:
        same_noise(noise)
        return body.until(*given, whole=whole)  # type: ignore[misc]

    def like(rows: Any, wanted: Any) -> Any:
        """As many rows as are wanted, for their shapes."""
        count = len(parts(wanted)[0][1])
        pick = lambda t: t.index_select(0, torch.arange(count, device=t.device) % len(t))  # noqa: E731
        return mapped(rows, pick) if call.splits else rows

    def other(rows: Any, count: int = half) -> Any:
        return mapped(rows, lambda t: t.roll(1, 0)[:count])

    def rowwise(few: Any, all_rows: Any) -> bool:
        return call.splits and all(_same(part, t[: len(part)]) for part, t in zip(few, all_rows, strict=True))

    few_x, few_y = (mapped(side, lambda t: t[:half]) if call.splits else side for side in (x, y))
    inputs, raw, outputs, targets, direct = x, None, None, y, None
    followed = whole = both = of_inputs = of_targets = known_inputs = False  # both: targets come with the inputs
    with torch.no_grad(), suppress(Exception):
        with suppress(Exception):
            given = met(x, y)
            handed = given[0] if len(given) == 1 else given
            known_inputs = _same(handed, x)
            if call.splits and _same(met(x, y, noise=1), given) and all(len(part) == call.examples for part in given):
                inputs, of_inputs, known_inputs = handed, not known_inputs, True
        raw = call.raw(body.model.eval(), inputs)
        with suppress(Exception), warnings.catch_warnings(action="error"):
            value = body.own(raw if isinstance(raw, Tensor) else call.output(raw), y)
            direct = value if bool(value.isfinite()) else None
        with suppress(Exception):
            outputs, targets = met(x, y, raw)
            aims = met(few_x, few_y, other(raw), noise=1)[1]
            followed = body.own(outputs, targets).dim() == 0 and rowwise(
                (met(other(x), other(y), raw[:half], noise=1)[0], aims), (outputs, targets)
            )
        if followed:
            of_targets = not _same(targets, y)
            if not (of_inputs or of_targets or not _same(outputs, raw)):
                return call, known, step, ""
            if of_targets and len(targets) != call.examples:  # places one after another, of targets or of inputs
                of_targets, followed = False, _same(aims, met(other(x), few_y, other(raw))[1])
        if not followed and known_inputs and (of_inputs or direct is None or outputs is None):
            value, elsewhere, others = (
                met(a, b, raw, whole=True)[0]
                for a, b in ((x, y), (other(x, call.examples), y), (x, other(y, call.examples)))
            )
            both = call.splits and not _same(value, elsewhere)
            reads = not _same(value, others)
            followed = whole = value.dim() == 0 and (
                _same(value, direct) if reads and direct is not None else both or reads
            )
    if not followed:
        return call, known, step, LONE * _apart(body, x, y, direct is not None and not of_inputs)
    told = targets if of_targets else (x, y) if both else y

    def criterion(output: Any, wanted: Any) -> Any:
        if _RUNS.get():
            return body.own(output, wanted)
        some_x, some_y = wanted if both else (like(x, wanted), like(y, wanted) if of_targets else wanted)
        if whole:
            return body.until(some_x, some_y, output, whole=True)[0]
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

    turned = None
    with suppress(Exception):  # there are none, or the body takes no other number of them
        more, wanted = known
        given = body.until(more, wanted) if of_inputs else (more,)
        aims = body.until(more, wanted, like(raw, more))[1] if of_targets else (more, wanted) if both else wanted
        turned = given[0] if len(given) == 1 else given, aims
    call = replace(call, batch=inputs, targets=told, criterion=criterion, notes=(*call.notes, NOTE), _seen={})
    return call, turned, body_of_turned, ""


def _apart(body: _Body, x: Any, y: Any, plain: bool) -> bool:
    """Whether a body runs and, if the given loss can do without it, hands that other values than the given targets."""
    try:
        body.model.train()
        body.until(x, y, whole=True, real=True)
        aims = body.until(x, y, real=True)[1:]
        return not plain or (len(aims) == 1 and isinstance(y, Tensor) and not bool(torch.isin(aims[0], y).all()))
    except Exception:  # it fails, with or without us
        return False


def _same(one: Any, two: Any) -> bool:
    """Whether two tensors, or two batches of them, are equal but for rounding."""
    try:
        torch.testing.assert_close(one, two, rtol=1e-5, atol=0.0, equal_nan=True)
        return True
    except (AssertionError, TypeError, ValueError):
        return False
