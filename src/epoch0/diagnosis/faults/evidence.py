"""What the checks read and report: a few runs of the user's program, and of a copy that takes five of its steps.

Every number is taken once, when the first check asks for it. A program costs at most 13 passes: one with gradients, two
without noise, five steps, the loss before and after them, one more with gradients, one with other tokens, one permuted.
"""

import contextlib
import copy
import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from epoch0.diagnosis.faults.reach import Reach, behind, made, reach
from epoch0.measure.passes import SATURATION
from epoch0.results import Shown
from epoch0.tracing.call import Call, as_written, mapped, parts
from epoch0.tracing.guard import rebound, same_noise, unchanged
from epoch0.tracing.loss import number_of, scalar_loss
from epoch0.tracing.operations import MOVES, Calls, meaning
from epoch0.tracing.sizes import dense

DRAW_SMALLER = "Draw smaller weights: epoch0.initialize(model, x=x)."
SAMPLED = 1000  # examples that are read of data with more
STEPS = 5  # steps of the user's optimizer that are made on a copy
CERTAIN = 0.995  # of what is a fact of the program, and no estimate

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase, nn.Bilinear)
DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# what may come between a softmax and the layer that gets its shares: pooled, normalized, in another shape
AFTER = ("MaxPool", "AvgPool", "Mean", "BatchNorm", "LayerNorm", "GroupNorm", "View", "Squeeze", "Unsqueeze")
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
OwnStep = Callable[..., Any]


_KINDS = "output activation, hidden activation, loss, learning rate, optimizer, input scale, target scale, "
_KINDS += "initialization, architecture, regularization, normalization, batch size, training length, labels, shapes, "
_KINDS += "gradient flow, update, data"
KINDS = tuple(_KINDS.split(", "))
"""The kinds of faults, named by what repairs them."""


@dataclass(frozen=True)
class Fault(Shown):
    """Why a program does not learn.

    >>> print(Fault("update", "optimizer", "The learning rate is 0.", "Give a rate above 0.", certainty=0.95))
    update (optimizer): The learning rate is 0. Give a rate above 0.
    """

    kind: str  #: what the cure changes, one of :data:`KINDS`
    where: str  #: a module path, "loss", "optimizer", "inputs", "targets", "outputs" or "step"
    message: str  #: one sentence with the numbers that show it
    fix: str  #: what to write instead, and what that gave where it was tried on a copy
    #: "step 0", seen without training anything but five steps of a copy, "mended on a copy", or "trial": seen in a
    #: training that nothing mended
    evidence: str = "step 0"
    certainty: float = 0.5  #: between 0 and 1, the higher the more certain

    def __str__(self) -> str:
        return f"{self.kind} ({self.where}): {self.message} {self.fix}"


@dataclass
class Pass:
    """One run in training mode, with its gradients."""

    raw: Any = None  # all that the model returned
    output: Tensor | None = None  # THE output, with its graph
    loss: Tensor | None = None  # the loss as the user computes it; None where it cannot be computed
    gradients: dict[str, Tensor | None] = field(default_factory=dict)  # of the parameters; None where none arrives
    # names of modules as they ended, these, and whether what they returned is finite
    ran: list[tuple[str, nn.Module, bool]] = field(default_factory=list)
    flat: dict[str, float] = field(default_factory=dict)  # bounded activations: share of values at their ends
    steps: dict[str, int] = field(default_factory=dict)  # of what recurrent layers read
    sunk: list[str] = field(default_factory=list)  # layers whose biases alone keep nearly all values below zero
    dropped: list[float] = field(default_factory=list)  # probabilities of dropout, of modules and of functions
    open: bool = True  # whether a ReLU let anything through, or there is none
    growth: tuple[float, str] = (1.0, "")  # by how much a module without weights makes its largest input larger
    entered: tuple[str, nn.Module, Tensor] | None = None  # first layer with weights that floats go into, and these
    normed: bool = False  # whether a norm comes right after it
    problem: str = ""  # why there is no loss
    # functions that made (n, n) of (n,) and (n, 1), of n examples, and distances of so many outputs from one target
    tables: list[tuple[str, Any]] = field(default_factory=list)
    recut: list[tuple[Any, ...]] = field(default_factory=list)  # shapes before and after a view that exchanges sizes
    shares: list[str] = field(default_factory=list)  # layers with weights that the shares of a softmax go into
    single: list[str] = field(default_factory=list)  # embeddings that look up one row only
    alone: list[str] = field(default_factory=list)  # norms of groups of one number

    @property
    def last(self) -> str:
        """The module without others in it that ended last."""
        return next((name for name, module, _ in reversed(self.ran) if not list(module.children())), "")

    @property
    def size_in(self) -> float:
        """The mean size of what goes into the first layer with weights, 0 where a norm follows it."""
        return 0.0 if self.entered is None or self.normed else float(self.entered[2].abs().mean())


class _Heard(Calls):
    """Shows each call, and what it returned, to a function."""

    def __init__(self, note: Callable[[str, Any, Any, Any], None]) -> None:
        super().__init__()
        self.note = note

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        made = func(*args, **kwargs)
        self.note(name, args, kwargs, made)
        return made


def _broadcasts(count: int, into: Pass) -> _Heard:
    """Records where as many outputs as targets make a table, where several outputs lie far from one, and views."""
    row, column, found = (count,), (count, 1), into.tables

    def note(name: str, args: Any, kwargs: Any, made: Any) -> None:
        two = [a for a in args[:2] if isinstance(a, Tensor)]
        if (shapes := {tuple(a.shape) for a in two}) == {row, column} and meaning(name).kind not in {*MOVES, "linear"}:
            pairs = two[0].data_ptr() == two[1].data_ptr() or (isinstance(made, Tensor) and made.dtype == torch.bool)
            found.extend([] if pairs else [(name, (row, column))])  # a table that is meant compares all with themselves
        elif name in DISTANCES and len(sizes := {math.prod(shape) for shape in shapes}) == 1:
            found.extend([(name, tuple(shapes))] * (math.prod(torch.broadcast_shapes(*shapes)) not in sizes))
        if name in DISTANCES and column in shapes and {(len(s), s[0]) for s in shapes} == {(2, count)}:
            found.extend((name, width) for width in {s[1] for s in shapes} - {1})
        if name in ("view", "reshape") and isinstance(made, Tensor) and isinstance(args[0], Tensor):
            old, new = tuple(args[0].shape), tuple(made.shape)
            if old != new and old[:1] == new[:1] == row and sorted(old) == sorted(new) and 1 not in old[1:]:
                into.recut.append((old, new))

    return _Heard(note)


def _dropout(found: list[float]) -> _Heard:
    """Records the probabilities of dropout."""

    def note(name: str, args: Any, kwargs: Any, made: Any) -> None:
        given = {"p": 0.5, "training": True, **meaning(name).given(args, kwargs)} if name == "dropout" else {}
        found.extend([float(given["p"])] if given.get("training") else [])

    return _Heard(note)


@dataclass
class After:
    """A copy of the program after its steps."""

    before: float  # mean loss of the whole batch in training mode before the steps
    after: float  # the same afterwards; NaN where it is not finite
    moved: float  # root mean square of the change of the outputs
    sizes: dict[str, float]  # change of each weight matrix in the last step relative to its norm
    towards: float  # cosine between the first step and the gradient; a step of any optimizer should go against it
    late: Pass  # a run with gradients after the steps
    model: nn.Module  # the copy
    quiet: tuple[Tensor, Tensor] | None  # outputs afterwards without noise, for the batch and the exchanged one
    loop: list["Loop"]  # what the user's loop body did in each step; empty for the usual one
    rate: float = 1.0  # the learning rate in the last step over that in the first
    still: tuple[str, ...] = ()  # weight matrices of the optimizer that no step moved; empty where none was moved


@dataclass
class Loop:
    """What the user's loop body did in one step."""

    wanted: dict[str, Tensor]  # the gradients of the loss before the step
    left: dict[str, Tensor]  # those that the step left behind; of parameters without one, nothing
    moved: bool  # whether any parameter changed
    training: bool | None  # whether the model ran in training mode; None where it was not run
    flat: bool = False  # whether it left gradients that are all exactly zero
    idle: bool = False  # whether its optimizer stepped, without any gradient
    copy: bool = False  # whether no weight is behind what it called backward of, such as a copy of the loss
    classes: tuple[list[int], list[int]] = ([], [])  # as they are and as the loss got them, where it got class numbers


@dataclass
class Evidence:
    """A program and what its runs showed."""

    call: Call
    optimizers: tuple[Optimizer, ...] = ()
    data: tuple[Any, Any] | None = None  # inputs and targets of up to 1,000 examples; None where their shapes differ
    batch_size: int | None = None
    steps: int = 0  # of an epoch, where a loader tells
    step: OwnStep | None = None
    ordered: bool = False  # whether the loader gives the examples in the order in which they lie
    passes: int = 0
    stopped: str = ""  # why a trial of the program could not be made
    lost: Fault | None = None  # that some of the examples or inputs hold NaN, and were left out
    lone: str = ""  # that the loop body cannot be followed, or makes its own targets
    untold: str = ""  # what a loss that reads no targets did, which is not enough to tell
    whole: bool = False  # whether the loss takes all that the model returns, a tuple, say, and not THE output
    dropped: list[float] = field(default_factory=list)  # what dropout leaves out in evaluation mode, too
    more: Callable[[], Any] | None = None  # reads more of the data; None where that would not be the same program

    @property
    def model(self) -> nn.Module:
        return self.call.model

    @property
    def blind(self) -> bool:
        """Whether there is no loss to look at: that of a loop body that cannot be followed, nor run as a whole."""
        return bool(self.lone) and self.call.targets is not None

    @property
    def targets(self) -> Tensor | None:
        """All targets that are known: those of the data, else those of the batch."""
        known = self.call.targets if self.data is None or self.data[1] is None else self.data[1]
        if self.call.targets is None and self.call.labels is None:
            return None  # what a loader gives beside the inputs of a model with a loss of its own
        return known.detach() if isinstance(known, Tensor) and known.numel() and not self.lone else None

    @property
    def inputs(self) -> Tensor | None:
        """All inputs that are known as one tensor of floats."""
        known = self.call.batch if self.data is None or self.data[0] is None else self.data[0]
        return known.detach() if isinstance(known, Tensor) and known.is_floating_point() else None

    def loss_of(self, raw: Any, targets: Any, loss: Any = None) -> Tensor:
        """The loss, unchecked, of the model's result, or of its output tensor where it cannot take the result."""
        criterion = loss or self.call.criterion or (lambda output, targets: scalar_loss(output, targets, None))
        try:
            value: Tensor = number_of(criterion(raw, targets))
            self.whole = self.whole or not isinstance(raw, Tensor)
            return value if value.dim() == 0 else value.mean()
        except Exception:
            if isinstance(raw, Tensor):
                raise
            return self.loss_of(self.call.output(raw), targets, loss)

    def loss_in(self, call: Call, raw: Any) -> Tensor:
        """The loss of a call: the user's, or the model's own where there are no targets."""
        return call.loss(raw) if call.targets is None else self.loss_of(raw, call.targets, call.criterion)

    def run(self, call: Call) -> Pass:
        """One run in training mode with gradients, whatever comes of it."""
        self.passes += 1
        found, names = Pass(), {module: name for name, module in call.model.named_modules()}

        def seen(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            tensors = [t for t in (result if isinstance(result, tuple) else [result]) if isinstance(t, Tensor)]
            finite = all(bool(t.isfinite().all()) for t in tensors if t.is_floating_point())
            given, name = next((a for a in args if isinstance(a, Tensor)), None), names[module]
            if found.entered is not None and found.ran[-1][1] is found.entered[1]:
                found.normed |= isinstance(module, NORMS)
            found.ran.append((name, module, finite))
            if isinstance(module, nn.Sigmoid | nn.Tanh) and tensors:
                middle, half = (0.5, 0.5) if isinstance(module, nn.Sigmoid) else (0.0, 1.0)
                found.flat[name] = float(((tensors[0] - middle).abs() > SATURATION * half).double().mean())
            found.open &= not isinstance(module, nn.ReLU) or not tensors or bool(tensors[0].any())
            plain = all(fine for _, _, fine in found.ran[:-1]) and next(module.parameters(), None) is None
            if plain and given is not None and tensors and given.is_floating_point() and given.numel():
                growth = float(tensors[0].detach().abs().max()) / max(1.0, float(given.detach().abs().max()))
                found.growth = max(found.growth, (growth, name))
            if isinstance(module, nn.Embedding) and given is not None and given.numel() > 1:
                found.single += [name] if bool((given == given.flatten()[0]).all()) else []
            if isinstance(module, nn.GroupNorm) and given is not None:
                found.alone += [name] if given.numel() == len(given) * module.num_groups else []
            if not isinstance(module, WEIGHTED):
                return
            found.sunk += [name] if tensors and _sunk(module, tensors[0].detach()) else []
            if isinstance(module, nn.RNNBase) and given is not None and given.dim() > 1:
                found.steps[name] = given.shape[-2 if module.batch_first else 0]
            shares = given is not None and type(behind(given, AFTER)).__name__.startswith("Softmax")
            found.shares += [name] if shares else []
            if found.entered is None and given is not None and given.is_floating_point() and not given.requires_grad:
                found.entered = (name, module, given.detach())

        count = call.examples if call.splits and call.examples > 1 else -1
        try:
            with unchanged(call.model), as_written(), torch.enable_grad():
                same_noise()
                for module in call.model.train().modules():
                    module.register_forward_hook(seen)
                with _broadcasts(count, found), _dropout(found.dropped):
                    raw = found.raw = call.raw()
                    found.output = call.output(raw)
                    found.loss = None if self.blind else self.loss_in(call, raw)
                if found.loss is not None and found.loss.requires_grad:
                    found.gradients = gradients(found.loss, call.model)
        except Exception as error:  # whatever the user's code raises is a result of the pass
            found.problem = raised(error)
        return found

    @cached_property
    def first(self) -> Pass:
        """The first pass, of all of the batch."""
        return self.run(self.call)

    def quietly(self, model: nn.Module, batch: Any) -> Tensor:
        """The outputs in evaluation mode."""
        self.passes += 1
        with unchanged(model), torch.no_grad(), as_written(), _dropout(self.dropped):
            same_noise()
            model.eval()
            return self.call.output(self.call.raw(model, mapped(batch, Tensor.clone))).detach()

    @cached_property
    def reach(self) -> Reach | None:
        """The lowest losses possible; None where outputs and targets do not allow it."""
        if self.first.output is not None and self.call.splits and not self.whole:
            with contextlib.suppress(Exception), torch.no_grad():
                return reach(self.first.output, self.call.targets, self.loss_of)
        return None

    @cached_property
    def maximized(self) -> bool:
        """Whether the optimizer is meant to maximize: rewards, or a likelihood, which has no floor; not an error."""
        asked = [group.get("maximize", False) for item in self.optimizers for group in item.param_groups]
        return bool(asked) and all(asked) and (self.reach is None or self.reach.free == -math.inf)

    @cached_property
    def reads_targets(self) -> bool:
        """Whether the loss depends on the targets, and these say what is right."""
        output, targets, loss = self.first.output, self.call.targets, self.first.loss
        if self.blind:
            return False  # what a judge is to say, or rewards and own values
        if self.inputs is not None and bool((self.inputs == self.inputs[:1]).all()) and len(self.inputs) > 1:
            return False  # one example, many times
        if output is None or not isinstance(targets, Tensor) or not targets.dim():
            return True
        ran = [[p.requires_grad for p in module.parameters(recurse=False)] for _, module, _ in self.first.ran]
        trained = [any(each) for each in ran if each]
        fixed = any(trained) and not trained[-1]  # the last module with weights is frozen while others are trained
        # the place of the positive among the negatives; what a critic is to say, that stands still or is in the loss
        if bool((targets == targets[:1]).all()) and (
            len(parts(self.call.batch)) > 1 or fixed or (loss is not None and self.weights_of(loss, output.grad_fn))
        ):
            return False
        if torch.equal(other := targets.roll(1, 0), targets):
            other = (targets == 0).to(targets.dtype)
        # an absolute error is the same for all that lies far away, and the exponential of such outputs hides the rest
        far = (float(targets.mean()), float(targets.std())) if targets.is_floating_point() else (0.0, 1.0)
        source = torch.Generator().manual_seed(0)

        def differs(middle: float, scale: float) -> bool:
            def draw(like: Tensor) -> Tensor:
                noise = torch.randn(like.shape, generator=source).to(like)
                return (like.detach() if self.whole else 0) + middle + scale * noise

            drawn = mapped(self.first.raw, draw) if self.whole else draw(output)
            one, two = (float(self.loss_of(drawn, wanted).detach()) for wanted in (targets, other))
            return not (math.isclose(one, two, rel_tol=1e-5) and math.isfinite(one))  # sums in another order round

        with contextlib.suppress(Exception):  # where it refuses them it reads them
            return differs(*far) or differs(0.0, 1.0)
        return True

    @cached_property
    def through(self) -> dict[str, Tensor]:
        """The gradients by way of the outputs, where the loss reads weights of the model, too; else nothing."""
        out, loss, own = self.first.output, self.first.loss, dict(self.model.named_parameters())
        if out is None or loss is None or not self.weights_of(loss, out.grad_fn, own=self.model):
            return {}
        (pull,) = torch.autograd.grad(loss, out, retain_graph=True, allow_unused=True)
        if pull is None:
            return {}
        found = torch.autograd.grad(out, [*own.values()], pull, retain_graph=True, allow_unused=True)
        return {n: dense(g) for n, g in zip(own, found, strict=True) if g is not None}

    def weights_of(self, end: Tensor, stop: Any = None, own: nn.Module | None = None) -> int:
        """The number of weights outside, or in one's own, that a tensor depends on, without those behind ``stop``."""
        known, inside = {id(p) for p in (self.model if own is None else own).parameters()}, own is not None
        leaves = (getattr(at, "variable", 0) for at in made(end, stop))
        return sum(isinstance(leaf, nn.Parameter) and (id(leaf) in known) == inside for leaf in leaves)

    @cached_property
    def exchanged(self) -> Any:
        """The batch with other examples' inputs in its first and last place; None where that cannot be."""
        count = self.call.examples
        if not self.call.splits or count < 4 or self.lone:  # a loop body may pair examples
            return None

        def swap(tensor: Tensor) -> Tensor:
            new = tensor.clone()
            if tensor.dim() == 0 or len(tensor) != count:
                return new
            if tensor.is_floating_point():  # also from other places: what is black in all of them would not show
                values, ends = tensor[1:-1].flatten(), tensor[[0, -1]]
                drawn = torch.randint(len(values), ends.shape, generator=torch.Generator().manual_seed(0))
                beyond = (ends > values.max()) | (ends < values.min())  # the range of the batch stays
                new[[0, -1]] = torch.where(beyond, ends, values[drawn.to(values.device)])
                return new
            for end in (0, -1) if tensor.dim() > 1 else ():  # but labels beside the inputs stay
                if len(different := (tensor[1:-1] != tensor[end]).flatten(1).any(1).nonzero()):
                    new[end] = tensor[1 + int(different[end])]
            return new

        new = mapped(self.call.batch, swap)
        pairs = zip(parts(self.call.batch), parts(new), strict=True)
        return new if any(not torch.equal(a, b) for (_, a), (_, b) in pairs) else None

    @cached_property
    def quiet(self) -> tuple[Tensor, Tensor] | None:
        """Outputs for the batch and for the exchanged one."""
        return self._pair(self.model)

    @cached_property
    def mixed(self) -> float:
        """By what share of their size outputs change with the inputs of other examples; 0 where examples are apart."""
        one, two = self.quiet or (torch.empty(0), torch.empty(0))
        if one.shape != two.shape or one.shape[:1] != (self.call.examples,) or one.shape[1:] == one.shape[:1]:
            return 0.0
        inner, size = float((one[1:-1] - two[1:-1]).double().abs().amax()), float(one.double().abs().amax())
        return inner / size if inner > 1e-5 * size > 0 else 0.0  # a sound row is the same to the bit

    def _pair(self, model: nn.Module) -> tuple[Tensor, Tensor] | None:
        if self.exchanged is not None:
            with contextlib.suppress(Exception):
                return self.quietly(model, self.call.batch), self.quietly(model, self.exchanged)
        return None

    @cached_property
    def after(self) -> After | None:
        """Five steps of the optimizer that was given, on a copy; None where there is none or nothing can be copied."""
        loss = self.first.loss  # the user's loop may know another where there is none
        runs = loss.requires_grad if loss is not None else self.step is not None and self.first.output is not None
        if len(self.optimizers) == 1 and runs:
            with self.call.unchanged(), contextlib.suppress(Exception):
                return self._steps(*copied(self.model, self.optimizers[0], self.step, self.call.criterion))
        return None

    def _steps(self, model: nn.Module, optimizer: Optimizer, step: OwnStep | None, loss: Any) -> After:
        call = dataclasses.replace(self.call, model=model, criterion=loss)
        model.train()
        before, early = self._measured(call)
        count = min(self.batch_size or self.call.examples, self.call.examples) if call.splits else call.examples
        sizes, towards, loop, rates = dict[str, float](), math.nan, list[Loop](), list[float]()
        drawn = [n for n, p in model.named_parameters() if p.dim() > 1 and p.requires_grad and bool(p.any())]
        for index in range(STEPS):
            old = {name: p.detach().clone() for name, p in model.named_parameters()}
            rates.append(rate_of(optimizer))
            begin = (index * count) % max(1, call.examples - count + 1)
            rows = call.rows(slice(begin, begin + count)) if call.splits and count < call.examples else call
            slopes, new = self._step(model, optimizer, step, rows, loop), dict(model.named_parameters())
            if loop:
                loop[-1].moved = any(not torch.equal(new[n].detach(), p) for n, p in old.items())
            if index == 0 and slopes:
                pairs = (torch.stack([new[n].detach() - old[n], g]).double().reshape(2, -1) for n, g in slopes.items())
                sums = torch.stack([pair @ pair.T for pair in pairs]).sum(0)
                towards = float(sums[0, 1] / (sums[0, 0] * sums[1, 1]).sqrt())  # NaN where nothing moved
            if not loop or loop[-1].moved:  # gradients of several batches may be added up first
                nonzero = [n for n in drawn if float(old[n].norm()) > 0]
                sizes = {n: float((new[n].detach() - old[n]).double().norm() / old[n].double().norm()) for n in nonzero}
        after, late = self._measured(call)
        seen, moved = self.run(call), float((late - early).double().square().mean().sqrt())
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        still = [n for n in drawn if id(new[n]) in held and torch.equal(new[n], self.model.get_parameter(n))]
        slowed, pair = rates[-1] / (rates[0] or 1.0), self._pair(model)
        return After(before, after, moved, sizes, towards, seen, model, pair, loop, slowed, tuple(still))

    def _measured(self, call: Call) -> tuple[float, Tensor]:
        """The loss and outputs of the whole batch in training mode, running statistics left alone."""
        self.passes += 1
        with unchanged(call.model), torch.no_grad(), as_written():
            same_noise()
            call.model.train()
            raw = call.raw()
            out = call.output(raw).detach().clone()
            return math.nan if self.first.loss is None else float(self.loss_in(call, raw)), out

    def _step(
        self, model: nn.Module, optimizer: Optimizer, step: OwnStep | None, rows: Call, loop: list[Loop]
    ) -> dict[str, Tensor]:
        """One step of the copy as its user makes it, and the gradients at its start."""
        self.passes += 1

        def there() -> dict[str, Tensor]:
            return {n: dense(p.grad).clone() for n, p in model.named_parameters() if p.grad is not None}

        if step is None:
            slopes = dict[str, Tensor]()
            stepped(optimizer, lambda: self.loss_in(rows, rows.raw()), lambda: slopes.update(slopes or there()))
            return slopes
        same_noise()
        wanted = {} if self.first.loss is None or self.blind else gradients(self.loss_in(rows, rows.raw()), model)
        slopes = {n: slope for n, slope in wanted.items() if slope is not None}
        modes, idle, copies, aims = list[bool](), list[bool](), list[bool](), [rows.targets]
        same_noise()

        def heard(output: Any, targets: Any, *more: Any, **named: Any) -> Any:
            aims[1:] = [targets]
            return (rows.criterion or self.loss_of)(output, targets, *more, **named)

        def steps(own: Any, given: Any, named: Any) -> None:  # with a closure it asks for gradients itself
            asks = named or any(item is not own for item in given)
            idle.extend([] if asks else [not any(bool(slope.any()) for slope in there().values())])

        hook = model.register_forward_pre_hook(lambda module, args: modes.append(module.training))
        stepping = optimizer.register_step_pre_hook(steps)
        no_weight = lambda end: self.weights_of(end, own=model) == 0  # noqa: E731
        backward = _Heard(lambda name, args, *_: copies.extend([no_weight(args[0])] if name == "backward" else []))
        with hook, stepping, backward, warnings.catch_warnings(action="ignore"):  # a schedule knows another optimizer
            step(model, optimizer, heard, rows.batch, rows.targets)
        left = {n: slope for n, slope in there().items() if bool(slope.any())}
        flat, empty = bool(there()) and not left, bool(idle) and all(idle)
        named = [t.tolist() for t in aims if isinstance(t, Tensor) and t.dim() == 1 and not t.is_floating_point()]
        both = (named[0], named[1]) if len(named) == 2 and len(named[0]) == len(named[1]) else ([], [])
        cut = bool(copies) and all(copies)
        loop.append(Loop(slopes, left, True, any(modes) if modes else None, flat, empty, cut, both))
        return slopes


def gradients(loss: Tensor, model: nn.Module) -> dict[str, Tensor | None]:
    """Gradients of the loss by parameter; None where none arrives."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
    return {n: g if g is None else dense(g) for n, g in zip(named, found, strict=True)}


def stepped(optimizer: Any, loss: Callable[[], Tensor], seen: Callable[[], None] = lambda: None) -> Tensor:
    """The loss of one step of the usual loop; ``seen`` is called once its gradients are there. An optimizer such as
    LBFGS asks for them itself, as often as it likes.
    """

    def backward() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        seen()
        return value

    arguments = inspect.signature(optimizer.step).parameters.values()
    if any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in arguments):
        value: Tensor = optimizer.step(backward)
    else:
        value = backward()
        optimizer.step()
    return value


def copied(model: nn.Module, optimizer: Optimizer, step: OwnStep | None, loss: Any) -> tuple[Any, Any, Any, Any]:
    """A copy of each, at the rate that a schedule warms up to, where the loop body does not step one."""
    memo: dict[int, Any] = {}
    model, (optimizer,) = twins(model, (optimizer,), memo)
    step, loss = rebound(step, memo), rebound(loss, memo)
    if not any(isinstance(item, LRScheduler) and item.optimizer is optimizer for item in memo.values()):
        for group in optimizer.param_groups:
            group["lr"] = peak(group)
    return model, optimizer, step, loss


def twins(
    model: nn.Module, optimizers: tuple[Optimizer, ...], memo: dict[int, Any]
) -> tuple[nn.Module, tuple[Optimizer, ...]]:
    """Copies of a model and of optimizers over it, with what optimizers hold that torch does not copy."""
    copies = copy.deepcopy((model, optimizers), memo)
    for old, new in zip(optimizers, copies[1], strict=True):
        for name, value in vars(old).items():
            # the step that a schedule puts in its place is that of the original
            if name not in vars(new) and not callable(getattr(type(old), name, None)):
                with contextlib.suppress(Exception):  # a file, a lock: the copy does without
                    vars(new)[name] = copy.deepcopy(value, memo)
    return copies


def peak(group: dict[str, Any]) -> float:
    """The learning rate of a group, or what its schedule began with or comes to, where that is more."""
    return max(float(group.get(name, 0.0)) for name in ("lr", "initial_lr", "max_lr"))


def rate_of(optimizer: Optimizer) -> float:
    """The largest learning rate of its groups."""
    return max(float(group["lr"]) for group in optimizer.param_groups)


def raised(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def affine(call: Call, model: nn.Module, name: str) -> bool:
    """Whether the input of a layer is an affine map of the network's inputs."""
    x, caught = call.batch, list[Tensor]()
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return False
    with unchanged(model), torch.no_grad():
        model.get_submodule(name).register_forward_pre_hook(lambda module, args: caught.append(args[0]))
        for batch in (x, -3 * x, -2 * x, 0 * x):
            call.raw(model.eval(), mapped(batch, Tensor.clone))
    if len(caught) != 4:
        return False
    one, other, both, none = caught
    return float((one + other - both - none).abs().max()) <= 1e-4 * max(float(one.abs().max()), 1e-12)


def padding_after(tokens: Any, model: nn.Module) -> Tensor | None:
    """How many places of padding come after each text that recurrent layers read; None where they are few."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    if not recurrent or not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dim() != 2:
        return None
    after = (tokens == tokens[:, -1].mode().values).flip(1).long().cumprod(1).sum(1)
    return after if float(after.double().mean()) > 0.2 * tokens.shape[1] else None


def _sunk(module: nn.Module, made: Tensor) -> bool:
    """Whether the biases of a layer alone keep nearly all that it returns below zero."""
    bias = getattr(module, "bias", None)
    if not isinstance(bias, Tensor) or made.is_complex() or float((made > 0).double().mean()) > 0.02:
        return False
    per_unit = bias.detach().reshape(-1, *[1] * (made.dim() - 2)) if isinstance(module, CONVOLUTIONS) else bias.detach()
    return float(bias.detach().mean()) < -3 * float((made - per_unit).std())
