"""What a loop body makes of inputs, outputs and targets before the model and the loss get them."""

import copy
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from types import CellType
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.diagnosis.faults.evidence import OwnStep, copied
from epoch0.errors import InputError
from epoch0.tracing.call import Call, StepResult, mapped, parts, same_shapes
from epoch0.tracing.guard import same_noise, unchanged
from epoch0.tracing.loss import scalar_loss
from epoch0.tracing.operations import Calls

NOTE = "Inputs, outputs and targets are read as the loop body hands them on to the model and the loss."
LONE = "The loop body makes targets of its own or cannot be followed; pass forward= and a loss of what that returns."
MOVES = "The targets move with a copy of the model, which stands still where the loss is looked at."
_RUNS: ContextVar[bool] = ContextVar("whether a loop body runs, which then turns outputs itself", default=False)


class _Met(BaseException):
    """Raised with its arguments where a loop body calls the model, the loss or backward; no handler of it takes it."""


class _Backward(Calls):
    """Meets backward, after it was passed over so many times."""

    def __init__(self, over: int, model: nn.Module) -> None:
        super().__init__()
        self.left, self.model = over, model

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name != "backward":
            return func(*args, **kwargs)
        if self.left == 0:
            raise _Met("backward", args[0])
        self.left -= 1
        for p in self.model.parameters():  # what comes next may read it
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        return None


class _Body:
    """A loop body with copies of its model and optimizer, run up to some place."""

    def __init__(self, call: Call, optimizer: torch.optim.Optimizer, step: OwnStep) -> None:
        self.model, self.optimizer, self.step, loss = copied(call.model, optimizer, step, call.criterion)
        self.own = loss or (lambda output, targets: scalar_loss(output, targets, None))

    def until(
        self, place: str, x: Any, y: Any, *outputs: Any, noise: int | None = None, model: Any = None, over: int = 0
    ) -> tuple[Any, ...]:
        """With what it calls "model", "loss", "backward" or "anything" once the model has given these outputs. A model
        that is given runs instead, as often as the body calls it.
        """
        left = list(outputs)

        def forward(*given: Any, **named: Any) -> Any:
            if not left:
                raise _Met("model", *((named,) if named and not given else (*given, *named.values())))
            return left.pop(0)

        def asked(*given: Any, **named: Any) -> Any:
            raise _Met("loss", *given, *named.values())

        stub: Any = copy.copy(self.model) if model is None else model
        if model is None:
            stub.forward = forward
        if noise is not None:
            same_noise(noise)
        try:
            with _Backward(over, self.model):
                self.step(stub, self.optimizer, asked if place in ("model", "loss") else self.own, x, y)
        except _Met as found:
            if place in ("anything", found.args[0]):
                return found.args[1:]
        raise InputError(f"the loop body does not come to the {place}")


class _Reading:
    """What a loop body makes of a batch for the model and for the loss. Of ``loss(model(x / 255).squeeze(1),
    y.float())`` inputs are ``x / 255``, targets ``y.float()``; what it puts together itself is read as a whole.
    """

    def __init__(self, call: Call, body: _Body) -> None:
        self.call, self.body = call, body
        self.inputs, self.targets = call.batch, call.targets
        self.output: Any = None  # of the model
        self.of_inputs = self.of_targets = False  # whether these are others than those given
        self.whole = self.both = False  # whether the loss is that of the whole; and targets come with the inputs
        self.plain = self.followed = False  # whether the body hands on what it gets; whether it can be followed
        self.training = False  # whether it can only be run in training mode
        self.direct: Any = None  # the loss without the body, where it can do without

    def look(self) -> None:
        call, body, x, y, half = self.call, self.body, self.call.batch, self.call.targets, self.call.examples // 2
        known, raw = self._look_at_inputs(), self.output
        with suppress(Exception), warnings.catch_warnings(action="error"):
            value = body.own(raw if isinstance(raw, Tensor) else call.output(raw), y)
            self.direct = value if bool(value.isfinite()) else None

        def shifted(rows: Any, count: int = half) -> Any:
            return mapped(rows, lambda t: t.roll(1, 0)[:count])

        def first(rows: Any) -> Any:
            return mapped(rows, lambda t: t[:half]) if call.splits else rows

        def among(few: Any, rows: Any) -> bool:
            return call.splits and _same(few, rows[: len(few)])

        turned = None
        with suppress(Exception):
            turned, self.targets = body.until("loss", x, y, raw, noise=0)
            aims = body.until("loss", first(x), first(y), shifted(raw), noise=1)[1]
            moved = body.until("loss", shifted(x), shifted(y), first(raw), noise=1)[0]
            fits = body.own(turned, self.targets).dim() == 0
            self.followed = fits and among(aims, self.targets) and among(moved, turned)
        if self.followed:
            self.of_targets = not _same(self.targets, y)
            self.plain = not (self.of_inputs or self.of_targets or not _same(turned, raw))
            if self.of_targets and len(self.targets) != call.examples:  # places one after another, of either
                self.of_targets = False
                self.followed = _same(aims, body.until("loss", shifted(x), first(y), shifted(raw), noise=0)[1])
        if not self.followed and known and (self.of_inputs or self.direct is None or turned is None):
            value, elsewhere, others = (
                body.until("backward", a, b, raw, noise=0)[0]
                for a, b in ((x, y), (shifted(x, call.examples), y), (x, shifted(y, call.examples)))
            )
            self.both, reads = call.splits and not _same(value, elsewhere), not _same(value, others)
            self.followed = self.whole = value.dim() == 0 and (
                _same(value, self.direct) if reads and self.direct is not None else self.both or reads
            )

    def _look_at_inputs(self) -> bool:
        """Find what the model gets and gives; whether that follows from the batch alone."""
        call, body, known = self.call, self.body, False
        with suppress(Exception):
            given = body.until("model", call.batch, call.targets, noise=0)
            known, again = _same(_one(given), call.batch), body.until("model", call.batch, call.targets, noise=1)
            if call.splits and _same(again, given) and all(len(t) == call.examples for _, t in parts(given)):
                self.inputs, self.of_inputs, known = _one(given), not known, True
        self.output = call.raw(body.model.eval(), self.inputs)
        return known

    def turned(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Inputs and targets as the model and the loss get them, of other examples."""
        given = self.body.until("model", x, y) if self.of_inputs else (x,)
        if self.of_targets:
            return _one(given), self.body.until("loss", x, y, self._like(self.output, y))[1]
        return _one(given), (x, y) if self.both else y

    @property
    def as_call(self) -> Call:
        """The call with what the model and the loss get."""
        call = self.call
        told = self.targets if self.of_targets else (call.batch, call.targets) if self.both else call.targets
        return replace(call, batch=self.inputs, targets=told, criterion=self.loss, notes=(*call.notes, NOTE), _seen={})

    def given(self, wanted: Any) -> tuple[Any, Any]:
        """Inputs and targets for the body to go with what the loss gets; for their shapes, where it reads others."""
        if self.both:
            x, y = wanted
            return x, y
        x, y = self.call.batch, self.call.targets
        return self._like(x, wanted), self._like(y, wanted) if self.of_targets else wanted

    def _like(self, rows: Any, wanted: Any) -> Any:
        """As many rows as are wanted, for their shapes."""
        count = len(parts(wanted)[0][1])
        pick = lambda t: t.index_select(0, torch.arange(count, device=t.device) % len(t))  # noqa: E731
        return mapped(rows, pick) if self.call.splits else rows

    def loss(self, output: Any, wanted: Any) -> Any:
        """The loss of what the model returns, as the body computes it."""
        if _RUNS.get():
            return self.body.own(output, wanted)
        if self.whole:
            return self.body.until("backward", *self.given(wanted), output)[0]
        turned, places = self.body.until("loss", *self.given(wanted), output)
        return self.body.own(turned, wanted if self.of_targets else places)

    def run(self, model: nn.Module, batch: Any) -> StepResult:
        """What the body calls backward of, as a loss of the model's own, and what the model gave it first."""
        made = list[tuple[bool, Any]]()

        def heard(module: nn.Module, given: Any, result: Any) -> None:
            if any(tensor.dim() for _, tensor in parts((result,))):  # no losses
                made.append((module is not model, result))

        if self.training:
            model.train()
        with ExitStack() as hooks:
            for module in model.modules():
                hooks.enter_context(module.register_forward_hook(heard))
            value = self.body.until("backward", *batch, model=model)[0]
            return StepResult(value, min(made, key=lambda pair: pair[0])[1])

    def runs(self) -> bool:
        """Whether it calls backward once, of a finite number, the same for the same noise, at least in training."""
        model, batch = self.body.model, (self.call.batch, self.call.targets)

        def number(train: bool) -> bool:
            model.train(train)
            with suppress(Exception):
                one, two = (self.body.until("backward", *batch, noise=0, model=model)[0] for _ in range(2))
                return one.dim() == 0 and bool(one.isfinite()) and _same(one, two)
            return False

        with unchanged(model), torch.no_grad():
            with suppress(Exception):  # of several losses none is the loss of the model
                self.body.until("backward", *batch, model=model, over=1)
                return False
            self.training = not number(False)
            return number(True)

    def repeats(self) -> bool:
        """Whether a step runs the model more than once, and targets given are all the same, or those of each loss."""
        body, y, count, aims = self.body, self.call.targets, list[int](), list[Any]()

        def heard(output: Any, wanted: Any) -> Any:
            aims.append(mapped(wanted, Tensor.clone))  # which may be filled anew for the next loss
            return body.own(output, wanted)

        runs = body.model.register_forward_hook(lambda *_: count.append(1))
        with unchanged(body.model.train()), runs, _Backward(1000, body.model), suppress(Exception, _Met):
            body.step(body.model, body.optimizer, heard, self.call.batch, y)
        alike = [isinstance(t, Tensor) and t.dim() > 0 and bool((t == t.flatten()[0]).all()) for t in (y, *aims)]
        judges = len(aims) > 1 and all(alike[1:]) and not _same(*aims[:2])
        return max(len(count), len(aims)) > 1 and (alike[0] or judges)

    def differs(self) -> bool:
        """Whether the usual loss, as none was given, is not the body's: that has no use for targets, or for classes."""
        if self.call.criterion is not None or self.followed:
            return False
        with unchanged(self.body.model), torch.no_grad(), suppress(Exception):  # it uses the targets
            self.body.until("backward", self.call.batch, object(), model=self.body.model.train())
            return True
        with suppress(Exception):  # values, or a model that it runs twice
            given, y = (self.call.batch, self.call.targets), self.call.targets
            right = y if y.is_floating_point() else torch.zeros_like(self.output).scatter_(1, y[:, None], 5.0)
            good, bad = (self.body.until("backward", *given, z)[0] for z in (right, right.roll(1, 1)))
            return y.is_floating_point() or bool(good >= bad - 0.1)  # no loss is usual for values
        return False

    def leaves(self) -> bool:
        """Whether the body runs and, if the given loss can do without it, hands that other values than the targets."""
        plain, y = self.direct is not None and not self.of_inputs, self.call.targets
        try:
            self.body.model.train()
            self.body.until("anything", self.call.batch, y, model=self.body.model)
            aims = self.body.until("loss", self.call.batch, y, model=self.body.model)[1:] if plain else ()
            return not plain or (len(aims) == 1 and isinstance(y, Tensor) and not bool(torch.isin(aims[0], y).all()))
        except Exception:  # it fails, with or without us
            return False

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Reading":
        return self  # copies of a program read the same


def as_handed(call: Call, data: Any, optimizer: torch.optim.Optimizer, step: OwnStep) -> tuple[Call, Any, OwnStep, str]:
    """The call, the data and the loop body with inputs and targets as the body hands them on, and its way of outputs.
    All stays where the loss can do without the body; where that cannot be followed, or makes its own targets, the last
    result says so.
    """
    x, y, read = call.batch, call.targets, None
    if isinstance(x, tuple | list) and len(x) == 2 and not comes_to_backward(call, optimizer, step):
        of_pair: OwnStep = lambda model, optimizer, loss, pair, _: step(model, optimizer, loss, *pair)  # noqa: E731
        if comes_to_backward(call, optimizer, of_pair):  # two items of a loader, of which the model takes both
            if data is not None and not same_shapes(data[0], x):
                data = (data, data[1]) if y is x[1] else None
            return as_handed(call, data, optimizer, of_pair)
    known_loss = y is None and call.criterion is None and call.has_loss
    if not (known_loss or call.asks or (y is not None and call.forward is not None)):
        with suppress(Exception):  # what cannot be copied
            read = _Reading(call, _Body(call, optimizer, step))
    if read is None:
        return call, data, step, ""
    if y is not None:
        with torch.no_grad(), suppress(Exception):
            read.look()
    alone = y is None or read.repeats()
    alone |= (other := not alone and read.differs())  # it has targets of its own, for what else it runs
    cells = [cell.cell_contents for cell in getattr(step, "__closure__", None) or () if cell != CellType()]
    known, code = getattr(step, "__globals__", {}), getattr(step, "__code__", None)
    cells += [known[name] for name in getattr(code, "co_names", ()) if name in known]
    # values that move with a copy of the model that gives them, as a target network does
    moving = read.whole or (other and isinstance(y, Tensor) and y.is_floating_point())
    names = call.model.state_dict().keys()
    moving &= any(isinstance(m, nn.Module) and m is not call.model and m.state_dict().keys() == names for m in cells)
    if not alone and (read.plain or not (read.followed or read.leaves())):
        return call, data, step, ""
    if alone or moving or not read.followed:
        told = MOVES if moving else LONE
        if not read.runs():
            return call, data, step, told
        if y is None and data is not None and isinstance(x, tuple | list) and len(x) == 2:
            data = (data, None)
        whole = replace(call, batch=(x, y), targets=None, criterion=None, notes=(*call.notes, NOTE))
        whole = replace(whole, forward=read.run, asks=None, _seen={})
        return whole, data, lambda model, optimizer, loss, pair, _: step(model, optimizer, read.body.own, *pair), told

    def body_of_turned(model: nn.Module, optimizer: Any, loss: Callable[..., Any], x_turned: Any, y_turned: Any) -> Any:
        """The body, while the model and the loss get these whatever the body makes of the examples in their place."""

        def instead(*given: Any, **named: Any) -> Any:
            output, wanted = (*given, *named.values())
            return loss(output, y_turned if read.of_targets else wanted)

        def handed(module: nn.Module, args: Any, named: Any) -> tuple[Any, Any]:
            by_name = isinstance(x_turned, Mapping) and not args
            return ((), x_turned) if by_name else (x_turned if isinstance(x_turned, tuple) else (x_turned,), {})

        x, y = read.given(y_turned)
        token = _RUNS.set(True)
        try:
            with model.register_forward_pre_hook(handed, with_kwargs=True) if read.of_inputs else nullcontext():
                x = x if read.of_inputs or read.both else x_turned
                return step(model, optimizer, read.body.own if read.whole else instead, x, y)
        finally:
            _RUNS.reset(token)

    turned = None
    with suppress(Exception):  # there are none, or the body takes no other number of them
        turned = read.turned(*data)
    return read.as_call, turned, body_of_turned, ""


def comes_to_backward(call: Call, optimizer: torch.optim.Optimizer, step: OwnStep, over: int = 0) -> bool:
    """Whether the loop body calls backward, after it was passed over so many times."""
    with suppress(Exception):
        body = _Body(call, optimizer, step)
        body.until("backward", call.batch, call.targets, model=body.model.train(), over=over)
        return True
    return False


def _one(given: tuple[Any, ...]) -> Any:
    """What a model is called with, as a batch."""
    return given[0] if len(given) == 1 else given


def _same(one: Any, two: Any) -> bool:
    """Whether two tensors, or two batches of them, are equal but for rounding."""
    try:
        torch.testing.assert_close(one, two, rtol=1e-5, atol=0.0, equal_nan=True)
        return True
    except (AssertionError, TypeError, ValueError):
        return False
