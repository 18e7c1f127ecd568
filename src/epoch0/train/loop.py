"""The one training loop: every network of the papers' experiments that gets trained is trained here.

Two runs with the same arguments give the same bits on a CPU, interrupted or not: the order of epoch ``e`` is a function
of ``(seed, e)``, the random numbers drawn inside step ``s`` (dropout, augmentation) a function of ``(seed, s)``, and
everything else that a step needs is in the checkpoint, tensors and plain numbers: nothing is pickled.
"""

import functools
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from epoch0.arguments import Count, Positive, Seed, Whole, check_device, checked, refuse, refuse_lazy
from epoch0.errors import InputError, first_line, reworded
from epoch0.files import made
from epoch0.initialization.files import from_json, impossible, load_tensors, save_tensors
from epoch0.results import first_names
from epoch0.seeds import generator
from epoch0.tracing.guard import bare, draw_anew, refuse_closed, streams_kept
from epoch0.train.data import Pair, batches, check_classes
from epoch0.train.device import CURRENT, Group, Precision, autocast, precision_for
from epoch0.train.evaluation import Callback, Every, Row, Training, plain
from epoch0.train.stacked import Stacked

ORDER, NOISE = 0, 1
"""Names of the two random streams of a run: the order of its examples, and the noise inside its steps."""

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
BUNCH = 32  # steps between two looks at the losses on an accelerator, which reading makes wait
STEPS = 10**9  # of one run at most: even the smallest model takes a day or two
LAYOUT = "epoch0 training 2"  # of checkpoints
RATE = "the learning rate of the next step"  # name of a setting in checkpoints
Loss = Callable[[Tensor, Tensor], Tensor]


@checked
def train(
    model: nn.Module,
    data: Any,
    *,
    steps: Whole | None = None,
    epochs: Whole | None = None,
    batch_size: Count = 64,
    optimizer: Annotated[str, tuple(OPTIMIZERS)] | Callable[..., Optimizer] = "sgd",
    learning_rate: Positive = 0.1,
    schedule: Callable[[Optimizer, int], LRScheduler] | None = None,
    clip: Positive | None = None,
    loss: Loss | None = None,
    seed: Seed = 0,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    channels_last: bool = False,
    evaluate: Callable[[nn.Module], Mapping[str, Any]] | None = None,
    evaluate_every: Count | None = None,
    callbacks: Sequence[Callback | Every] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: Count | None = None,
    checkpoint_minutes: Positive | None = None,
    until: Callable[[Row], bool] | None = None,
) -> Training:
    """Train a model in place, reproducibly, with measurements on the way and a checkpoint to come back to.

    >>> x, y = torch.eye(2), torch.tensor([0, 1])                               # shapes (2, 2) and (2,)
    >>> perfect = lambda row: row["accuracy"] == 1
    >>> done = train(nn.Linear(2, 2), (x, y), epochs=50, evaluate=Accuracy(x, y), until=perfect)
    >>> done.history[-1]["accuracy"]
    1.0

    Args:
        model: any module; trained in place, on ``device``, in train mode (eval mode while it is evaluated).
        data: inputs and targets, first dimension the examples, or what :func:`epoch0.train.image_sources` gives: an
            epoch is one random order of all of them, its last batch as short as it comes. Or a
            ``torch.utils.data.DataLoader``, or any iterable of ``(inputs, targets)`` that has a length and can be gone
            through again. A shuffling loader draws its order from ``seed``, but for a generator of its own; a sampler
            with ``set_epoch`` gets the epoch. A resumed run goes through the batches of its epoch again.
        steps, epochs: optimizer steps in all, at most 10^9, or passes through the data; one of them.
        batch_size: examples a step, of all processes together in a distributed run; not used if data come in batches.
        optimizer: ``"sgd"``, ``"adam"``, ``"adamw"``, or ``optimizer(parameters, lr=learning_rate)``: a class of
            ``torch.optim``, or ``functools.partial(torch.optim.SGD, momentum=0.9)``.
        schedule: ``schedule(optimizer, steps)`` -> a scheduler of ``torch.optim.lr_scheduler``, stepped after every
            optimizer step of all ``steps``: ``CosineAnnealingLR`` itself, or
            ``lambda optimizer, steps: MultiStepLR(optimizer, [steps // 2, steps * 3 // 4])``.
        clip: largest Euclidean norm of the gradient of all parameters; not of a stack of networks.
        loss: ``loss(outputs, targets) -> scalar``, a mean over the batch; None: the cross-entropy. For a stack
            ``stacked.loss(...)``; for label smoothing ``functools.partial(F.cross_entropy, label_smoothing=0.1)``.
        seed: of the order of the examples, augmentation and dropout.
        device: where to train; a pair of tensors or images are moved there once.
        precision: ``"bfloat16"`` computes products in bfloat16 (autocast; parameters, their updates and the loss stay
            in float32, pruned weights exactly zero); ``"auto"`` is that on CUDA and ``"float32"`` elsewhere.
        channels_last: keep images and convolutions channels-last while training; faster on tensor cores and most CPUs.
        evaluate: ``evaluate(model) -> metrics``, such as :class:`epoch0.train.Evaluation`; called before training,
            every ``evaluate_every`` steps (an epoch by default), and at the end.
        callbacks: called after the evaluation, in order; see ``Callback``, ``Every`` in :mod:`epoch0.train.evaluation`.
        checkpoint: a safetensors file. If it exists the run goes on from it, else it begins and writes it.
        checkpoint_every: steps between checkpoints; at every evaluation by default.
        checkpoint_minutes: minutes between checkpoints; if given, there are none by steps unless asked for.
        until: ``until(row)`` at every evaluation, after the callbacks; true ends the training.

    A loss that is NaN or infinite stops the run as ``"diverged"``: at once on a CPU; on CUDA the losses are read every
    few steps, so the parameters may have gone on a little.
    """
    place = check_device(device)
    group = CURRENT.get() or Group(device=place)
    if group.size > 1 and place.type != group.device.type:
        raise InputError(f"device is {str(device)!r}, but this process trains on {group.device}; pass group.device.")
    used, pair = precision_for(precision, group.device), isinstance(data, tuple) and len(data) == 2
    source = Pair(*data) if pair and not any(isinstance(part, tuple | list) for part in data) else data
    per_epoch = _per_epoch(source, batch_size)
    if (steps is None) == (epochs is None):
        raise InputError(f"steps is {steps} and epochs is {epochs}; give exactly one of them.")
    total = steps if steps is not None else (epochs or 0) * per_epoch
    if total > STEPS:
        raise InputError(f"steps={steps} and epochs={epochs} are {total:,} steps; ask for {STEPS:,} at most.")
    if clip is not None and isinstance(model, Stacked):
        raise InputError(f"clip={clip} is for one network; each of a stack has a gradient of its own, leave it out.")
    refuse_closed(model, run_only=True)
    refuse_lazy(model, written=True)
    model.to(group.device)
    torchs = _build(optimizer, [p for p in model.parameters() if p.requires_grad], learning_rate)
    run: Row = {"seed": seed, "batch_size": batch_size, "learning_rate": learning_rate, "precision": used, "clip": clip}
    run |= {"optimizer": type(torchs).__name__, "processes": group.size}
    run |= {name: value for name, value in torchs.defaults.items() if value and name not in ("lr", "fused")}
    run = json.loads(json.dumps(run))  # as it comes back from a file: tuples are lists
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        run["data"] = getattr(source, "fingerprint", f"{per_epoch} batches")
    held = _read(path) if path is not None and os.path.lexists(path) else None
    state = CheckpointState() if held is None else held[0]
    if state.step > total:
        raise InputError(f"{str(path)!r} already has {state.step} steps and {total} were asked for; name another path.")
    if group.broadcast(state.step) != state.step:
        raise InputError(f"process {group.rank} finds another checkpoint than process 0; all must see the same file.")
    scheduler = None if schedule is None else _scheduler(schedule, torchs, total, state.step)
    if held is not None:
        rate = torchs.param_groups[0]["lr"]  # the rate identifies a schedule, which is a function
        _restore(f"the checkpoint {str(path)!r}", *held[1:], model, torchs, {**run, RATE: rate})
    if checkpoint_every is None and checkpoint_minutes is None:
        checkpoint_every = evaluate_every or per_epoch
    pace = evaluate_every or per_epoch
    looks = [each if isinstance(each, Every) else Every(pace, each) for each in callbacks]
    source = source if not hasattr(source, "batch") else source.to(group.device)
    loss = loss or F.cross_entropy
    steps_of = loss, torchs, scheduler, state, group, total, per_epoch, batch_size, seed, used, clip, channels_last
    looking, writing = (evaluate, pace, looks, until), (path, checkpoint_every, checkpoint_minutes, run)
    doing = _Run(model, source, *steps_of, *looking, *writing)
    with ExitStack() as after:
        for module in model.modules():
            after.callback(setattr, module, "training", module.training)
        after.callback(torchs.zero_grad)
        # a step of torch's optimizers that is interrupted may have left it off
        after.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        if channels_last:
            after.callback(_lay_out, model, torchs, torch.contiguous_format)
            _lay_out(model, torchs, torch.channels_last)
        model.train()
        doing.go()
    history, why = tuple(state.history), state.stopped or "steps"
    return Training(model, history, state.step, why, doing.seconds, str(group.device), used)


def _lay_out(model: nn.Module, torchs: Optimizer, layout: torch.memory_format) -> None:
    held = [*model.parameters(), *model.buffers(), *(part for own in torchs.state.values() for part in own.values())]
    for tensor in held:
        if isinstance(tensor, Tensor) and tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=layout)


@checked
@dataclass
class CheckpointState:
    """The part of a checkpoint beside its tensors."""

    step: Whole = 0
    losses: float = 0.0
    counted: Whole = 0
    history: list[Row] = field(default_factory=list)
    stopped: Literal["steps", "until", "diverged"] | None = None


@dataclass
class _Run:
    model: nn.Module
    source: Any
    loss: Loss
    optimizer: Optimizer
    scheduler: LRScheduler | None
    progress: CheckpointState
    group: Group
    total: int
    per_epoch: int
    batch_size: int
    seed: int
    precision: Precision
    clip: float | None
    channels_last: bool
    evaluate: Callable[[nn.Module], Mapping[str, Any]] | None
    evaluate_every: int
    callbacks: Sequence[Every]
    until: Callable[[Row], bool] | None
    path: Path | None
    write_every: int | None
    write_minutes: float | None
    record: Row
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._unread: list[Tensor] = []
        self._read = self.progress.step
        self._paces = {self.evaluate_every, *(callback.steps for callback in self.callbacks)}
        self._written = time.monotonic()

    def go(self) -> None:
        progress = self.progress
        with streams_kept():
            if not progress.history:
                self._measure(final=self.total == 0)
            if progress.stopped is None and progress.step < self.total:
                self._steps()
        if isinstance(self.model, Stacked):  # of a stack one network may be lost without the others
            lost = bool(self.model.diverged.all())
        else:
            lost = not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters())
        progress.stopped = "diverged" if lost else progress.stopped
        self.group.share_buffers(self.model)
        self._write()

    def _steps(self) -> None:
        progress, optimizer, group = self.progress, self.optimizer, self.group
        call, compute = group.wrap(self.model), self._first_loss
        bunch, begun = 1 if group.device.type == "cpu" else BUNCH, time.monotonic()
        for inputs, targets, share in self._batches():
            value = compute(call, inputs, targets)
            compute = self._loss
            self._unread.append(value.detach() if group.size == 1 else value.detach() * share)
            if len(self._unread) >= bunch and self._diverged():
                break
            optimizer.zero_grad()
            # torch averages over the ranks, whatever each of them had of the batch
            (value if group.size == 1 else value * (share * group.size)).backward()
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
            progress.step = step = progress.step + 1
            final = step == self.total
            measured = final or any(step % pace == 0 for pace in self._paces)
            write = self.write_every is not None and step % self.write_every == 0
            write |= self.write_minutes is not None and time.monotonic() > self._written + 60 * self.write_minutes
            if measured or write:
                if self._diverged():
                    break
                self.seconds += time.monotonic() - begun
                if measured:
                    self._measure(final)
                if write and not final and progress.stopped is None:
                    self._write()
                begun = time.monotonic()
            if progress.stopped is not None:
                break
        self.seconds += time.monotonic() - begun

    def _batches(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """The batches that are left, and which part of each joint batch this rank has."""
        group, step = self.group, self.progress.step
        while step < self.total:
            epoch, done = divmod(step, self.per_epoch)
            noise = torch.randint(2**62, (self.per_epoch,), generator=generator(self.seed, NOISE, epoch)).tolist()
            seeds = noise[done : done + self.total - step]
            step += len(seeds)
            if not hasattr(self.source, "batch"):
                yield from self._loaded(epoch, done, noise[: done + len(seeds)])
                continue
            order = torch.randperm(len(self.source), generator=generator(self.seed, ORDER, epoch))
            parts = order.split(self.batch_size)[done : done + len(seeds)]
            own = [group.part(part) for part in parts]
            # a rank without an example of a short last batch goes through one of it, for nothing
            chosen = [local if len(local) else part[:1] for local, part in zip(own, parts, strict=True)]
            stream = batches(self.source, zip(chosen, seeds, strict=True))
            for (inputs, targets), seed, local, part in zip(stream, seeds, own, parts, strict=True):
                draw_anew(seed + group.rank)
                yield inputs, targets, len(local) / len(part)

    def _loaded(self, epoch: int, done: int, noise: list[int]) -> Iterator[tuple[Tensor, Tensor, float]]:
        """The same of an iterable, behind the batches that were trained on before."""
        for name in ("sampler", "batch_sampler"):
            if (set_epoch := getattr(getattr(self.source, name, None), "set_epoch", None)) is not None:
                set_epoch(epoch)
        draw_anew(int(torch.randint(2**62, (), generator=generator(self.seed, ORDER, epoch))))
        stream = iter(self.source)
        for place, seed in enumerate(noise):
            draw_anew(seed + self.group.rank)
            try:
                inputs, targets = next(stream)
                if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
                    raise TypeError(f"it is a pair of {type(inputs).__name__} and {type(targets).__name__}.")
                if targets.dim() == 0:
                    raise ValueError("it is one example, no batch; put it into a DataLoader.")
            except (TypeError, ValueError, StopIteration) as problem:
                which = f"batch {place} of {self.per_epoch} of epoch {epoch}"
                raise InputError(f"{which} is missing or no pair (inputs, targets): {_short(problem)}") from problem
            if place >= done:
                device = self.group.device
                yield inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True), 1 / self.group.size

    def _outputs(self, call: nn.Module, inputs: Tensor) -> Any:
        if self.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.precision == "float32":
            return call(inputs)
        with autocast(self.group.device, self.precision):
            return call(inputs).float()

    def _loss(self, call: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(self._outputs(call, inputs), targets)

    def _first_loss(self, call: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of the first batch; what does not fit is explained, and nothing is left changed."""
        before = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        first = next(self.model.parameters())
        kinds = f"inputs are {_kind(inputs)}, targets {_kind(targets)}, the first parameter {_kind(first)}"
        try:
            outputs = self._outputs(call, inputs)
            if _by_class(self.loss) and isinstance(outputs, Tensor) and targets.dim() == 1:
                labels = getattr(self.source, "targets", targets)
                if outputs.shape[:-1] == targets.shape or outputs.dim() == 3:
                    check_classes(labels[labels != -100], outputs.shape[-1])  # -100 is left out by torch's losses
            kinds = f"outputs are {_kind(outputs)}, targets {_kind(targets)}"
            if not isinstance(value := self.loss(outputs, targets), Tensor) or value.numel() != 1:
                raise InputError(f"the loss is {_kind(value)}; it must be one number (a mean).")
            if not value.requires_grad:
                raise InputError("the loss has no gradient; are the outputs detached, or is torch.no_grad() on?")
            return value
        except BaseException as problem:
            with torch.no_grad():
                for buffer, kept in before:
                    buffer.copy_(kept)
            known = isinstance(problem, RuntimeError | ValueError | TypeError | IndexError)
            if not known or isinstance(problem, InputError | torch.OutOfMemoryError):
                raise
            raise InputError(f"model and loss cannot take the first batch: {kinds}; {_short(problem)}") from problem

    def _diverged(self) -> bool:
        """Read the losses that wait; true, and recorded, if one is not finite."""
        progress, waiting, self._unread = self.progress, self._unread, []
        if not waiting:
            return False
        for value in self.group.added(torch.stack(waiting).double()).tolist():
            if not math.isfinite(value):
                progress.step = self._read
                progress.history.append({"step": self._read, "epoch": self._read / self.per_epoch, "loss": value})
                progress.stopped = "diverged"
                return True
            progress.losses += value
            progress.counted += 1
            self._read += 1
        return False

    def _measure(self, final: bool) -> None:
        """Make the row of this step on rank 0 and broadcast it."""
        progress = self.progress
        row, stop = self.group.broadcast(self._row(final) if self.group.first else None)
        progress.losses, progress.counted = 0.0, 0
        progress.history.append(row)
        if stop:
            progress.stopped = "until"

    def _row(self, final: bool) -> tuple[Row, bool]:
        progress, model, step = self.progress, self.model, self.progress.step
        evaluating = final or step % self.evaluate_every == 0
        row: Row = {"step": step, "epoch": step / self.per_epoch}
        row["loss"] = progress.losses / progress.counted if progress.counted else None
        model.eval()
        if evaluating and self.evaluate is not None:
            row |= _columns("evaluate", self.evaluate(model))
        for item in self.callbacks:
            if final or step % item.steps == 0:
                row |= _columns("a callback", item.callback(step, model, dict(row)) or {})
        model.train()
        return row, evaluating and self.until is not None and bool(self.until(row))

    def _write(self) -> None:
        if self.path is not None and self.group.first:
            run = {**self.record, RATE: self.optimizer.param_groups[0]["lr"]}
            numbers = json.dumps({"run": run, "progress": asdict(self.progress)}, sort_keys=True)
            tensors = {f"model.{name}": value for name, value in bare(self.model).state_dict().items()}
            for index, entries in self.optimizer.state_dict()["state"].items():
                own = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
                tensors |= {f"optimizer.{index}.{key}": value for key, value in own.items()}
            with made(self.path.parent):
                save_tensors(self.path, "checkpoint", LAYOUT, tensors, {"numbers": numbers})
        self._written = time.monotonic()


def _read(path: Path) -> tuple[CheckpointState, Row, dict[str, Tensor]]:
    """How far the run of a checkpoint was, its settings, and the tensors, checked to be whole."""
    anew = "Delete it, or name another path, to start anew."
    try:
        tensors, words = load_tensors(path, "checkpoint", LAYOUT, "train")
        numbers = from_json(words.get("numbers", ""))
        if not isinstance(numbers, dict) or not all(isinstance(numbers.get(n), dict) for n in ("run", "progress")):
            raise impossible(path, "checkpoint", "numbers", "what a training run writes")
    except InputError as problem:
        raise InputError(f"{problem} {anew}") from problem
    try:
        progress = CheckpointState(**numbers["progress"])
    except (TypeError, InputError) as problem:
        raise InputError(f"the checkpoint {str(path)!r} cannot be resumed: {problem} {anew}") from problem
    return progress, numbers["run"], {name: tensor.clone() for name, tensor in tensors.items()}


def _restore(noun: str, stored: Row, tensors: dict[str, Tensor], model: nn.Module, torchs: Optimizer, run: Row) -> None:
    """Put tensors of a checkpoint back into a model and its optimizer, after checking that it belongs to this run."""
    given = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    ours, theirs = (
        {name: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in tensors.items()}
        for tensors in (bare(model).state_dict(), given)
    )
    pairs = [(name, theirs.get(name, "missing"), ours.get(name, "missing")) for name in {**ours, **theirs}]
    if wrong := [f"{name} is {their}, the model's {our}" for name, their, our in pairs if their != our]:
        raise InputError(f"{noun} is of another model: {first_names(wrong, 3, '; ')}.")
    settings = [(key, stored.get(key), run.get(key)) for key in {**stored, **run}]
    if changed := [f"{key} {old!r} (now {new!r})" for key, old, new in settings if old != new]:
        raise InputError(f"{noun} was made by a run with {', '.join(changed)}; repeat that, or name another path.")
    state: dict[int, dict[str, Tensor]] = {}
    for name in tensors.keys() - {f"model.{name}" for name in given}:
        _, index, key = name.split(".", 2)
        state.setdefault(int(index), {})[key] = tensors[name]
    bare(model).load_state_dict(given)
    torchs.load_state_dict({"state": state, "param_groups": torchs.state_dict()["param_groups"]})
    # a fused step goes through memory: what belongs to a weight is to lie there as the weight does
    for parameter in (item for group in torchs.param_groups for item in group["params"]):
        own = torchs.state.get(parameter, {})
        shaped = {key: value for key, value in own.items() if getattr(value, "shape", None) == parameter.shape}
        own |= {key: torch.empty_like(parameter, dtype=value.dtype).copy_(value) for key, value in shaped.items()}


def _columns(noun: str, found: object) -> Row:
    if not isinstance(found, Mapping):
        raise InputError(f"{noun} gave a {type(found).__name__}; give a mapping of names to numbers.")
    return {name: plain(name, value) for name, value in found.items()}


def _per_epoch(data: Any, batch_size: int) -> int:
    try:
        count = len(data)
        if hasattr(data, "batch"):
            return -(-count // batch_size)
        if not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):  # a loader's iterator would draw
            raise TypeError
    except TypeError as problem:
        known = "a tuple (inputs, targets) of tensors, a DataLoader, or a list of batches; it needs a length"
        raise refuse("data", data, known) from problem
    if count == 0:
        raise InputError("the data have no batch; give at least one.")
    return count


def _build(optimizer: str | Callable[..., Optimizer], parameters: list[nn.Parameter], rate: float) -> Optimizer:
    if not parameters:
        raise InputError("the model has no parameter that requires a gradient; nothing to train.")
    if isinstance(optimizer, str):
        fused = optimizer != "sgd" and all(p.is_floating_point() and p.device.type == "cpu" for p in parameters)
        optimizer = functools.partial(OPTIMIZERS[optimizer], **({"fused": True} if fused else {}))
    with reworded(lambda problem: InputError(f"the optimizer {optimizer} cannot be made: {problem}.")):
        if not isinstance(made := optimizer(parameters, lr=rate), Optimizer) or isinstance(made, torch.optim.LBFGS):
            raise TypeError(f"it gave a {type(made).__name__}; give one of torch.optim that steps without a closure")
        return made


def _scheduler(schedule: Callable[[Optimizer, int], LRScheduler], optimizer: Optimizer, total: int, done: int) -> Any:
    """The scheduler, brought to where a resumed run is: its rates follow from the number of steps, to the bit."""
    if not isinstance(scheduler := schedule(optimizer, total), LRScheduler):
        raise InputError(f"schedule gave a {type(scheduler).__name__}; give schedule(optimizer, steps) -> LRScheduler.")
    # not warned that the optimizer's steps come first: here they were done in another process
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        for _ in range(done):
            scheduler.step()
    return scheduler


def _by_class(loss: Any) -> bool:
    loss = getattr(loss, "function", loss)
    loss = loss.func if isinstance(loss, functools.partial) else loss
    return loss in (F.cross_entropy, F.nll_loss) or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


def _short(problem: BaseException) -> str:
    return first_line(problem).rstrip()[:300].rstrip(".") + "."
