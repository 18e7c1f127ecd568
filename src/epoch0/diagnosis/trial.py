"""A short training on copies of the model, one for each rate of each optimizer: does it learn to distinguish examples?

What is read is the same whatever the task: how far the loss falls below that of the best constant answer, and for how
many pairs of examples the loss is lower with their own targets than with exchanged ones, on held-out examples.
The last is 1/2 for a constant answer, and overconfident outputs do not change it.
"""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.diagnosis.step import OPTIMIZERS, Optimizer
from epoch0.errors import InputError, first_line
from epoch0.seeds import generator
from epoch0.tracing.call import Call, as_written, described, mapped
from epoch0.tracing.guard import denormals_as_zero, rebound, same_noise, unchanged
from epoch0.tracing.loss import NotFinite

RATES: dict[Optimizer, tuple[float, ...]] = {"adam": (3e-4, 1e-3, 3e-3), "sgd": (1e-2, 1e-1)}
"""What is tried: the usual rate and its neighbours."""

MOMENTUM = 0.9
LENGTHS = (150, 60, 30)  # steps of a trial; the longest that the time allows
BATCH = 64  # examples a step, as many as there are if fewer
HELD = 4  # one example in HELD is held out
LEARNED, TOLD = 0.5, (0.85, 0.8)
"""When a trial has decided: a loss of held-out examples below this share of the best constant answer's, or so
many pairs of them ordered right while the loss of the others falls by so much; docs/checkup.md has the figures."""

TELLS = 0.65  # held-out pairs that a trial or a kernel must order right, or held-out examples tell nothing
SECONDS = 20.0  # A trial is on by default where it is estimated to take less, in CPU seconds
OTHERS = 12  # other examples whose targets an example is compared with


class NotCopied(InputError):
    """A model cannot be copied, so that there is no trial."""


@dataclass(frozen=True)
class Run:
    """One training."""

    optimizer: Optimizer  #: ``"adam"`` or ``"sgd"`` (with momentum 0.9)
    rate: float  #: its learning rate
    #: of each step's batch, before the step, of one example where the loss is a sum; they end where one is not finite
    losses: tuple[float, ...] = field(repr=False)
    #: share of pairs of held-out examples whose loss is lower with their own targets than exchanged, at the end;
    #: None without held-out examples or where the loss is the model's own
    known: float | None
    known_seen: float | None  #: the same of examples it trained on
    #: by what share of the best constant answer's loss (of the first loss where none can be found) the mean loss of the
    #: last ten steps lies below it; negative above it
    drop: float
    held: float | None  #: loss on the held-out examples at the end, None without
    constant: float | None = None  #: the best constant answer's loss at the end, where it is known

    @property
    def diverged(self) -> bool:
        """Whether the last loss is not finite."""
        return not self.losses or not math.isfinite(self.losses[-1])

    def settles(self, constant: float | None) -> bool:
        """Whether it has learned beyond doubt; ``constant`` is the loss of the best constant answer."""
        constant = self.constant or constant
        if self.held is not None and constant is not None and constant > 0 and self.held < LEARNED * constant:
            return True
        return self.known is not None and self.known >= TOLD[0] and self.drop >= TOLD[1]


@dataclass(frozen=True)
class TrialResult:
    """The trainings of all rates."""

    runs: tuple[Run, ...]  #: of Adam, then of SGD, the smallest rate first
    steps: int  #: of each; fewer with an optimizer whose largest rate settles the matter sooner
    batch: int  #: examples a step
    held_out: int  #: examples held out of training
    seconds: float  #: CPU seconds it took
    constant: float | None = None  #: loss of the best answer that is the same for all, None where it is not known
    sums: bool = False  #: whether the loss is a sum over examples; those of the trial are then of one example
    #: share of held-out pairs that a kernel fitted to the others orders right where neither it nor any run knows TELLS
    #: of them: they tell nothing then, and are left out of the runs; else None
    untold: float | None = None

    def of(self, optimizer: Optimizer) -> list[Run]:
        """The runs of one optimizer, the smallest rate first."""
        return [run for run in self.runs if run.optimizer == optimizer]


def affordable(seconds_a_step: float, most: float = SECONDS) -> int | None:
    """How many steps a trial of at most so many seconds can have, None if even the shortest would take too long."""
    return next((n for n in LENGTHS if n * sum(map(len, RATES.values())) * seconds_a_step <= most), None)


def trial(
    call: Call,
    steps: int,
    *,
    batches: Iterable[Any] | None = None,
    seed: int = 0,
    tell: Callable[[float], None] = lambda share: None,
    settled: bool = True,
) -> TrialResult:
    """Train copies of the model for a few steps with each rate of each optimizer; the model itself is not touched.
    ``batches``, pairs (inputs, targets) such as a DataLoader, are trained on instead and begun again when they end; the
    call's batch is then held out whole. ``settled`` ends the trainings of an optimizer halfway where its largest rate
    settles it, and leaves out held-out examples that tell nothing. An InputError if the model cannot be copied.
    """
    started, constant, sums = time.process_time(), constant_loss(call), _sums(call)
    constant = constant / call.examples if sums and constant is not None else constant
    seen, held = call, None if batches is None else call
    if batches is None and call.splits and call.examples >= 2 * HELD:
        order, count = torch.randperm(call.examples, generator=generator(seed, 0x7472)), call.examples // HELD
        seen, held = call.rows(order[count:]), call.rows(order[:count])
    size = min(BATCH, seen.examples) if seen.splits else seen.examples
    todo = [(optimizer, rate) for optimizer in OPTIMIZERS for rate in reversed(RATES[optimizer])]
    found, ends = dict[tuple[Optimizer, float], Run](), dict.fromkeys(OPTIMIZERS, steps)
    with call.unchanged(), torch.inference_mode(False), as_written(), denormals_as_zero():
        for place, (optimizer, rate) in enumerate(todo):
            model, loss = _copied(call)
            own, told = replace(call, criterion=loss), replace(seen, criterion=loss)
            same_noise(seed + 7)
            stream: Iterator[Call] = repeat(told)
            if batches is not None:
                stream = _streamed(own, batches)
            elif size < seen.examples:
                stream = shuffled(told, seen.examples, size, generator(seed, 0x6F72))
            trained, losses = [p for p in model.parameters() if p.requires_grad], list[float]()
            fused = all(p.is_floating_point() for p in trained)  # torch has no such step for complex weights
            update: torch.optim.Optimizer = torch.optim.Adam(trained, rate, fused=fused)
            if optimizer == "sgd":
                update = torch.optim.SGD(trained, rate, momentum=MOMENTUM, fused=fused)
                for p in trained:  # or torch's fused step fails where a layer is skipped in the first one
                    update.state[p]["momentum_buffer"] = torch.zeros_like(p)
            for mark in (*(n for n in LENGTHS[1:2] if settled and n < steps), steps):
                if mark <= ends[optimizer]:
                    _train(model, stream, update, losses, mark, sums)
                    base = constant
                    if constant is not None and loss is not call.criterion:  # what the loss takes of the weights, too
                        more = float((told.loss(raw := seen.run()) - seen.loss(raw)).detach())
                        base = constant + more / (seen.examples if sums else 1)
                    fields = _read(model, losses, told, held and replace(held, criterion=loss), base, seed, sums)
                    found[optimizer, rate] = run = Run(optimizer, rate, tuple(losses), *fields, base)
                    if rate == RATES[optimizer][-1] and run.settles(constant):
                        ends[optimizer] = mark
            tell((place + 1) / len(todo))
    runs, held_out = tuple(found[item] for item in sorted(found)), 0 if held is None else held.examples
    asked = held if settled and batches is None and max(run.known or 0.0 for run in runs) < TELLS else None
    untold = None if asked is None else kernel_knows(seen, asked, seed)
    if (untold := None if untold is None or untold >= TELLS else untold) is not None:
        runs = tuple(replace(run, known=None, held=None) for run in runs)
    return TrialResult(runs, steps, size, held_out, time.process_time() - started, constant, sums, untold)


def kernel_knows(seen: Call, held: Call, seed: int) -> float | None:
    """Share of held-out pairs that kernel ridge regression on the others orders right; None but for a tensor each."""
    asked = seen.batch, held.batch, seen.targets, held.targets
    if not all(isinstance(item, Tensor) and item.dim() and not item.is_complex() for item in asked):
        return None
    x, more, y, theirs = (item[:512].detach().cpu().reshape(min(len(item), 512), -1) for item in asked)
    if classes := not y.is_floating_point():
        y, theirs = (item.long().squeeze(1) for item in (y, theirs))
    if len(x) != len(y) or len(more) != len(theirs) or (classes and (y.dim() > 1 or min(y.min(), theirs.min()) < 0)):
        return None
    power = 0.0 if x.dtype in (torch.int32, torch.int64) else 2.0  # of tokens how many differ
    apart = [torch.cdist(rows.double(), x.double(), p=power) for rows in (x, more)]
    near, far = (torch.exp(-d / apart[0].median().clamp_min(1e-300)) for d in apart)
    values = F.one_hot(y, int(max(y.max(), theirs.max())) + 1).double() if classes else y.double()
    weights = torch.linalg.solve(near + 0.01 * torch.eye(len(x), dtype=torch.float64), values - values.mean(0))
    told = replace(held, targets=theirs if classes else theirs.double(), criterion=None if classes else F.mse_loss)
    answers = far @ weights + values.mean(0)
    return pairs_ordered(told, answers, seed) if bool(answers.isfinite().all()) else None


def shuffled(call: Call, count: int, size: int, order: torch.Generator | None) -> Iterator[Call]:
    """Endless batches of the first ``count`` examples, each time in a new order or, without one, as they lie."""
    while True:
        rows = torch.arange(count) if order is None else torch.randperm(count, generator=order)
        for index in rows[: count // size * size].split(size):
            yield call.rows(index) if call.splits else call


def _streamed(call: Call, batches: Any) -> Iterator[Call]:
    more = True
    while more:
        more = False
        for batch in batches:
            more = True
            if call.targets is None:  # the loss is the model's own
                yield Call.of(call.model, batch, forward=call.forward)
            elif isinstance(batch, tuple | list) and len(batch) == 2:
                yield Call.of(call.model, batch[0], batch[1], loss=call.criterion, forward=call.forward)
            else:
                raise InputError(f"batches must hold pairs (inputs, targets); one of them is {described(batch)}.")
    raise InputError("batches is empty, or has ended; give what can be begun again, such as a DataLoader.")


def _copied(call: Call) -> tuple[nn.Module, Any]:
    """A copy of the model, and its loss, of the copy where it reads the model."""
    memo: dict[int, Any] = {}
    try:
        copied = copy.deepcopy(call.model, memo)
    except (RuntimeError, TypeError) as error:
        name, why = type(call.model).__name__, first_line(error)
        raise NotCopied(f"{name} cannot be copied for a trial ({why}); leave it out with trial=False.") from error
    for module in copied.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # Adam takes no sparse gradients
    return copied, rebound(call.criterion, memo)


def _train(
    model: nn.Module, stream: Iterator[Call], update: torch.optim.Optimizer, losses: list[float], steps: int, sums: bool
) -> None:
    """Train until ``steps`` steps are done, or the loss is no longer finite."""
    model.train()
    while len(losses) < steps and (not losses or math.isfinite(losses[-1])):
        one = next(stream)
        with torch.enable_grad():
            try:
                raw = one.run(model)
            except InputError as refused:  # a forward may refuse weights that are no numbers, or a distribution's scale
                sound = all(bool(p.isfinite().all()) for p in model.parameters())
                if sound and not (losses and "Expected parameter" in str(refused)):
                    raise
                losses.append(math.nan)
                break
            try:
                loss = one.loss(raw)
                losses.append(float(loss.detach()) / (one.examples if sums else 1))
            except InputError as refused:  # a loss may refuse outputs that are no numbers
                if not isinstance(refused, NotFinite) and bool(one.output(raw).isfinite().all()):
                    raise NotCopied(f"of a copy of the model {refused}") from refused  # it reads what the model keeps
                losses.append(math.nan)
            if not math.isfinite(losses[-1]):
                break
            update.zero_grad()
            loss.backward()
        update.step()


def _read(
    model: nn.Module, losses: list[float], seen: Call, held: Call | None, constant: float | None, seed: int, sums: bool
) -> tuple[float | None, float | None, float, float | None]:
    """The fields known, known_seen, drop and held of a :class:`Run`."""
    if not math.isfinite(losses[-1]):
        nothing = 0.5 if isinstance(seen.targets, Tensor) and seen.targets.dim() else None
        return None if held is None else nothing, nothing, -1.0, None
    model.eval()
    few = seen.rows(slice(0, min(seen.examples, BATCH))) if seen.splits else seen
    with torch.no_grad():
        known, known_seen = (None if one is None else pairs_ordered(one, one.run(model), seed) for one in (held, few))
    value = None
    if held is not None:
        try:
            with torch.enable_grad():
                value = float(held.loss(held.run(model)).detach()) / (held.examples if sums else 1)
        except InputError:
            value = math.inf
    base, last = losses[0] if constant is None else constant, losses[-10:]
    return known, known_seen, max((base - sum(last) / len(last)) / max(abs(base), 1e-12), -1.0), value


def pairs_ordered(call: Call, raw: Any, seed: int, rows: int = BATCH // 2) -> float | None:
    """Share of pairs whose loss is lower with their own targets than exchanged, of a few examples and OTHERS each; None
    where they tell nothing.
    """
    if not isinstance(targets := call.targets, Tensor) or not targets.dim():
        return None
    count = len(targets)
    chosen = torch.randperm(count, generator=generator(seed, 0x7072))
    few, classes = chosen[:rows], not targets.is_floating_point() and targets.dim() == 1
    entropy = classes and call.criterion in (None, F.cross_entropy) and bool((targets >= 0).all())
    if entropy and (scores := call.output(raw).detach()).dim() == 2:  # the loss is lower where the score is higher
        right, theirs = targets[few, None].long(), targets[chosen[:OTHERS]].long()
        same, different = scores[few].gather(1, right), scores[few][:, theirs]
        wins = ((same > different) + 0.5 * (same == different))[right != theirs]
        return float(wins.mean()) if wins.numel() else None
    won: list[float] = []
    for i in few.tolist():
        others = [j for j in chosen[:OTHERS].tolist() if not torch.equal(targets[i], targets[j])]
        one = mapped(raw, partial(_row, i=i, count=count))
        try:
            with torch.enable_grad():
                own, *other = (float(call.loss(one, targets[j : j + 1]).detach()) for j in (i, *others))
        except InputError:
            return None
        won += [1.0 if own < value else 0.5 if own == value else 0.0 for value in other]
    return sum(won) / len(won) if {*won} - {0.5} else None


def pairs_apart(call: Call, raw: Any) -> tuple[float, int]:
    """The share of pairs of examples, no two of which share one, whose loss together is lower with their own targets
    than exchanged, and how many there are with different ones: a share of 1/2 without knowledge, binomial.
    """
    targets, count, won = call.targets, call.examples, list[float]()
    assert isinstance(targets, Tensor)
    order = targets.reshape(count, -1).double().sum(1).argsort(stable=True).tolist()
    with torch.enable_grad():
        for pair in zip(order[: count // 2], order[count - count // 2 :], strict=True):
            if torch.equal(*(targets[i] for i in pair)):
                continue
            one, two = (mapped(raw, partial(_row, i=i, count=count)) for i in pair)
            own, low, high, other = (float(call.loss(z, targets[i : i + 1]).detach()) for z in (one, two) for i in pair)
            won.append(0.5 + 0.5 * ((own + other < low + high) - (own + other > low + high)))
    return sum(won) / max(len(won), 1), len(won)


def _row(tensor: Tensor, i: int, count: int) -> Tensor:
    tensor = tensor[i : i + 1] if tensor.dim() and len(tensor) == count else tensor
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor


def constant_loss(call: Call) -> float | None:
    """The loss of the best answer that is the same for all examples and, for classes, at all of their places. None
    where it cannot be found, and where all targets are the same, for which such an answer is right.
    """
    targets, own = call.targets, None
    if targets is None and call.labels is not None:
        targets = call.labels[1]
    if not call.splits or (call.targets is None and not call.has_loss) or same_targets(call):
        return None
    if call.targets is None and call.criterion is not None:
        return None  # what asks for no targets may have its best where outputs have no end
    plain = call.targets is not None and call.criterion in (None, F.cross_entropy)
    if plain and isinstance(targets, Tensor) and not targets.is_floating_point():
        counts = targets[targets >= 0].unique(return_counts=True)[1].double()  # their entropy
        return float(counts.sum().log() - (counts * counts.log()).sum() / counts.sum())
    with unchanged(call.model), torch.inference_mode(False), torch.no_grad():
        call.model.eval()
        output = call.output(call.run())
        if call.targets is None and (own := call.own_loss()) is None:
            return None
    places = [0]  # of examples and, for classes, all their places: all dimensions but that of the classes
    if isinstance(targets, Tensor) and not targets.is_floating_point() and targets.dim() == output.dim() - 1:
        classes = output.dim() - 1 if targets.shape == output.shape[:-1] else 1
        places = [dim for dim in range(output.dim()) if dim != classes]
    # of the usual size: what an overflowing network answers is no place to start from
    answer = output.mean(places, keepdim=True).detach().nan_to_num().clamp(-3, 3).requires_grad_()
    # the model's own loss takes a pass each time
    search = torch.optim.LBFGS([answer], max_iter=50 if own is None else 10, line_search_fn="strong_wolfe")

    def value() -> Tensor:
        search.zero_grad()
        if own is not None:
            same_noise(0)
        loss = (call.loss if own is None else own)(answer.expand_as(output))
        loss.backward(inputs=[answer])
        return loss

    try:
        with unchanged(call.model), torch.enable_grad(), warnings.catch_warnings(action="ignore"):
            call.model.eval()
            search.step(value)
            return float(value().detach())
    except (InputError, RuntimeError):
        return None


def _sums(call: Call) -> bool:
    """Whether the loss is a sum over examples: two halves have together about as much of it as the whole, not twice."""
    if not call.splits or call.examples < 8:
        return False
    half = call.examples // 2
    parts = (call, call.rows(slice(0, half)), call.rows(slice(half, None)))
    with unchanged(call.model), torch.no_grad():
        call.model.eval()
        try:
            whole, *halves = (float(part.loss(part.run())) for part in parts)
        except InputError:  # not finite, say
            return False
    # of a loss that compares examples, log n, eight have a quarter less than two times four
    return whole != 0 and 0.8 < sum(halves) / whole < 1.2


def same_targets(call: Call) -> bool:
    """Whether the batch asks for the same answer to all examples: all classes, or all rows of values, are equal."""
    if not isinstance(targets := call.targets, Tensor) or not targets.dim() or not targets.numel():
        return False
    return bool((targets == (targets[:1] if targets.is_floating_point() else targets.flatten()[0])).all())
