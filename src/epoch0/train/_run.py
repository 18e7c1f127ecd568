"""The steps of one training run, with what is measured between them, its checkpoints and its interruptions."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from epoch0.seeds import generator
from epoch0.train import checkpoint as checkpoints
from epoch0.train._forward import Loss, first_loss
from epoch0.train._losses import Losses, first_not_finite
from epoch0.train.console import Glance, Watch
from epoch0.train.distributed import Group, ProcessLost
from epoch0.train.record import Callback, Every, Row, plain
from epoch0.train.schedules import Constant, Schedule
from epoch0.train.sources import Source, batches
from epoch0.train.stacked import Stacked

ORDER, NOISE = 0, 1
"""Names of the two random streams of a run: the order of its examples, and the noise inside its steps."""

GLANCE = 0.2
"""Seconds between two looks of the progress line."""


@dataclass(frozen=True)
class Plan:
    """What is to be done, all of it checked.

    Attributes:
        total: optimizer steps.
        per_epoch: steps in a pass through the data.
        batch_size: examples a step, of all ranks together.
        evaluate_every: steps between evaluations.
        checkpoint_every: steps between checkpoints, None for none by steps.
        checkpoint_seconds: seconds between checkpoints, None for none by time.
        learning_rate: before the schedule.
        schedule: of the learning rate.
        clip: largest norm of the gradient.
        seed: of order and noise.
    """

    total: int
    per_epoch: int
    batch_size: int
    evaluate_every: int
    checkpoint_every: int | None
    checkpoint_seconds: float | None
    learning_rate: float
    schedule: Schedule | None
    clip: float | None
    seed: int


@dataclass
class Progress:
    """What a checkpoint holds beside tensors."""

    step: int = 0
    losses: float = 0.0
    counted: int = 0
    history: list[Row] = field(default_factory=list)
    stopped: Literal["steps", "until", "diverged"] | None = None


@dataclass(frozen=True)
class Look:
    """Who looks on: what is measured, when it ends, who is told."""

    evaluate: Callable[[nn.Module], Mapping[str, Any]] | None = None
    callbacks: Sequence[Callback | Every] = ()
    until: Callable[[Row], bool] | None = None
    watch: Watch | None = None


class Run:
    """One run in the making: :meth:`go` does all steps that are left.

    Args:
        model: the plain module, on the device, in train mode.
        call: inputs to outputs; see :func:`epoch0.train._forward.caller`.
        loss: of outputs and targets.
        source: where batches come from, on the device.
        optimizer: of the model's parameters.
        plan: what is to be done.
        progress: how far it is; changed as it goes on.
        look: who looks on.
        group: the ranks that train together.
        path: of the checkpoint.
        record: the settings that a checkpoint belongs to.
    """

    def __init__(
        self, model: nn.Module, call: Callable[[Tensor], Any], loss: Loss, source: Source,
        optimizer: torch.optim.Optimizer, plan: Plan, progress: Progress, look: Look, group: Group,
        path: Path | None, record: Row,
    ) -> None:  # fmt: skip
        self.model, self.call, self.loss, self.source, self.optimizer = model, call, loss, source, optimizer
        self.plan, self.progress, self.look, self.group = plan, progress, look, group
        self.path, self.record = path, record
        self.losses = Losses(group.device, group)
        self.parameters = [parameter for group_ in optimizer.param_groups for parameter in group_["params"]]
        self.begun_at = self._read = progress.step
        self.begun = self.written = time.monotonic()
        self.aside = 0.0
        self.recent: float | None = None
        self._planned: deque[tuple[int, float]] = deque()
        self._paces = {look_.steps for look_ in look.callbacks if isinstance(look_, Every)} | {plan.evaluate_every}

    def go(self, reseed: Callable[[int], object], pressed: Callable[[], bool]) -> None:
        """Do the steps that are left.

        Args:
            reseed: seeds what dropout draws from.
            pressed: did the user press Ctrl-C?

        Raises:
            KeyboardInterrupt: on every rank, if one was interrupted; after a checkpoint.
        """
        progress, plan = self.progress, self.plan
        if not progress.history and self._measure(final=plan.total == 0):
            progress.stopped = "until"
        if progress.stopped is None and progress.step < plan.total:
            self.begun = time.monotonic()
            self._steps(reseed, pressed)
        if progress.stopped != "diverged" and not _finite(self.model):
            progress.stopped = "diverged"
        self.group.level(self.model, buffers_only=True)
        self._write()
        self._glance()
        if pressed() or self.losses.interrupted:
            raise KeyboardInterrupt

    @property
    def seconds(self) -> float:
        """Seconds spent in training steps by this process, measurements and checkpoints left out."""
        return time.monotonic() - self.begun - self.aside

    @property
    def images(self) -> int:
        """Examples that went through the training steps of this process's run, those of all ranks."""
        per_epoch, size = self.plan.per_epoch, self.plan.batch_size

        def until(step: int) -> int:
            epochs, rest = divmod(step, per_epoch)
            return epochs * len(self.source) + rest * size

        return until(self.progress.step) - until(self.begun_at)

    def _steps(self, reseed: Callable[[int], object], pressed: Callable[[], bool]) -> None:
        progress, plan, losses, optimizer = self.progress, self.plan, self.losses, self.optimizer
        model, loss, watch, planned = self.call, self.loss, self.look.watch, self._planned
        # where reading a number costs nothing, each loss is looked at before its update, in as few words as possible
        together, at_once, row_due = self.group.size > 1, losses.at_once, self._next_row()
        scheduled = plan.schedule is not None and not isinstance(plan.schedule, Constant)
        clocked = plan.checkpoint_seconds is not None or watch is not None
        write_every, step, total, first = plan.checkpoint_every or plan.total, progress.step, plan.total, True
        glance_at = time.monotonic() + GLANCE
        with contextlib.closing(cast(Generator[Any], batches(self.source, self._chosen()))) as given:
            for inputs, targets in given:
                noise, weight = planned.popleft()
                reseed(noise)
                if first:
                    labels = getattr(self.source, "targets", None)
                    value = first_loss(self.model, model, loss, inputs, targets, labels)
                    first = False
                else:
                    value = loss(model(inputs), targets)
                if at_once:
                    size = value.item()
                    if not isfinite(size):
                        self._stop_diverged(step, size)
                        return
                    self.recent = size
                    progress.losses += size
                    progress.counted += 1
                else:
                    losses.put(value, weight)
                    if losses.due and self._diverged(pressed):
                        return
                optimizer.zero_grad()
                if together:  # torch averages over the ranks, whatever each of them had of the batch
                    value = value * (weight * self.group.size)
                value.backward()
                if plan.clip is not None:
                    _clip(self.model, self.parameters, plan.clip)
                if scheduled:
                    self._set_rate()
                optimizer.step()
                step += 1
                progress.step = step
                if step == row_due:
                    if self._diverged(pressed):
                        return
                    if self._measure(final=step == total):
                        progress.stopped = "until"
                    row_due = self._next_row()
                if losses.interrupted if together else pressed():
                    if not self._diverged(pressed):
                        self._write()
                        raise KeyboardInterrupt
                    return
                if progress.stopped is not None:
                    return
                if step % write_every == 0 and step < total:
                    if self._diverged(pressed):
                        return
                    self._write()
                if clocked and not losses.waiting:
                    # no loss is unread here; what goes by the clock must not make a device wait more often than that
                    now = time.monotonic()
                    if plan.checkpoint_seconds is not None and now - self.written >= plan.checkpoint_seconds:
                        self._write()
                    if watch is not None and now >= glance_at:
                        self._glance()
                        glance_at = now + GLANCE

    def _chosen(self) -> Iterator[tuple[Tensor, int]]:
        """This rank's examples of every batch that is left, and the seed of their augmentation."""
        plan, group, step = self.plan, self.group, self.progress.step
        while step < plan.total:
            epoch, done = divmod(step, plan.per_epoch)
            left = slice(done, done + plan.total - step)
            order, seeds = epoch_of(plan.seed, epoch, len(self.source), plan.per_epoch)
            parts, noise = order.split(plan.batch_size)[left], seeds[left]
            step += len(parts)
            if group.size == 1:
                self._planned.extend((seed, 1.0) for seed in noise)
                yield from zip(parts, noise, strict=True)
                continue
            for joint, seed in zip(parts, noise, strict=True):
                own = group.part(joint)
                # a rank without an example of a short last batch goes through one of it, for nothing
                self._planned.append((seed + group.rank, len(own) / len(joint)))
                yield (own if len(own) else joint[:1]), seed

    def _diverged(self, pressed: Callable[[], bool]) -> bool:
        """Read the losses that wait; true, and recorded, if one is not finite."""
        if self.losses.at_once:
            return False
        progress, values = self.progress, self.losses.read(pressed())
        place = first_not_finite(values)
        for value in values if place is None else values[:place]:
            progress.losses += value
            progress.counted += 1
            self._read += 1
        self.recent = values[-1] if values else self.recent
        if place is None:
            return False
        self._stop_diverged(self._read, values[place])
        return True

    def _stop_diverged(self, step: int, size: float) -> None:
        progress = self.progress
        progress.step = step
        progress.history.append({"step": step, "epoch": step / self.plan.per_epoch, "loss": size})
        progress.stopped = "diverged"

    def _next_row(self) -> int:
        step = self.progress.step
        return min(self.plan.total, *(step - step % pace + pace for pace in self._paces))

    def _measure(self, final: bool) -> bool:
        """Make the row of this step on rank 0 and tell it to all; true if the predicate wants to stop."""
        begun, told = time.monotonic(), None
        if self.group.first:
            try:
                told = self._row(final)
            except BaseException as problem:
                if self.group.size > 1:
                    self.group.shared({"failed": f"{type(problem).__name__}: {problem}"})
                raise
        told = self.group.shared(told)
        if "failed" in told:
            raise ProcessLost(f"process 0 of this run could not measure and ended: {told['failed']}")
        self.progress.losses, self.progress.counted = 0.0, 0
        if not self.group.first:
            self.progress.history.append(told["row"])
        self.aside += time.monotonic() - begun
        return bool(told["stop"])

    def _row(self, final: bool) -> dict[str, Any]:
        progress, model, look, step = self.progress, self.model, self.look, self.progress.step
        evaluating = final or step % self.plan.evaluate_every == 0
        row: Row = {"step": step, "epoch": step / self.plan.per_epoch}
        row["loss"] = progress.losses / progress.counted if progress.counted else None
        model.eval()
        if evaluating and look.evaluate is not None:
            row.update({name: plain(name, value) for name, value in look.evaluate(model).items()})
        for callback in look.callbacks:
            if final or step % callback.steps == 0 if isinstance(callback, Every) else evaluating:
                function = callback.callback if isinstance(callback, Every) else callback
                found = function(step, model, dict(row)) or {}
                row.update({name: plain(name, value) for name, value in found.items()})
        model.train()
        progress.history.append(row)
        return {"row": row, "stop": evaluating and look.until is not None and bool(look.until(row))}

    def _set_rate(self) -> None:
        plan = self.plan
        assert plan.schedule is not None
        rate = plan.learning_rate * plan.schedule.scale(self.progress.step, plan.total, plan.per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _write(self) -> None:
        """Write the checkpoint, if one was asked for and this is the rank that writes."""
        begun = time.monotonic()
        if self.path is not None and self.group.first:
            numbers = {"run": self.record, "progress": asdict(self.progress)}
            checkpoints.save(self.path, self.model, self.optimizer, numbers)
        self.written = time.monotonic()
        self.aside += self.written - begun

    def _glance(self) -> None:
        """Tell whoever looks on how far the run is."""
        if self.look.watch is None or not self.group.first:
            return
        progress, plan, seconds = self.progress, self.plan, self.seconds
        metrics = next((row for row in reversed(progress.history) if len(row) > len(_OWN)), {})
        done = progress.step - self.begun_at
        left = (time.monotonic() - self.begun) / done * (plan.total - progress.step) if done else None
        self.look.watch(
            Glance(
                progress.step, plan.total, progress.step / plan.per_epoch, self.recent,
                {name: value for name, value in metrics.items() if name not in _OWN},
                self.images / seconds if seconds > 0 else 0.0, left,
            )
        )  # fmt: skip


_OWN = ("step", "epoch", "loss")
"""What every row holds."""


def epoch_of(seed: int, epoch: int, examples: int, batches: int) -> tuple[Tensor, list[int]]:
    """The order of an epoch's examples, and one seed for the noise of each of its steps.

    >>> order, noise = epoch_of(0, epoch=3, examples=100, batches=4)
    >>> order.shape, len(noise)
    (torch.Size([100]), 4)
    """
    order = torch.randperm(examples, generator=generator(seed, ORDER, epoch))
    noise: list[int] = torch.randint(2**62, (batches,), generator=generator(seed, NOISE, epoch)).tolist()
    return order, noise


def _clip(model: nn.Module, parameters: list[nn.Parameter], largest: float) -> None:
    """Shrink the gradient to that norm; in a stack, that of each network by itself."""
    if not isinstance(model, Stacked):
        torch.nn.utils.clip_grad_norm_(parameters, largest)
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    factors = (largest / (norms + 1e-6)).clamp(max=1.0)  # as torch does it
    for gradient in gradients:
        gradient.mul_(factors.reshape(-1, *[1] * (gradient.dim() - 1)))


def _finite(model: nn.Module) -> bool:
    if isinstance(model, Stacked):  # of a stack one network may be lost without the others
        return not bool(model.diverged.all())
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())
