"""The one training loop: every network of the papers' experiments that gets trained is trained here.

Two runs with the same arguments give the same bits on a CPU, interrupted or not: the order of epoch ``e`` is a function
of ``(seed, e)``, the random numbers drawn inside step ``s`` (dropout, augmentation) a function of ``(seed, s)``, the
learning rate a function of ``s``, and everything else that a step needs is in the checkpoint. The global random
generators come back as they were.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from epoch0.errors import InputError
from epoch0.meter import check_progress
from epoch0.train import checkpoint as checkpoints
from epoch0.train._chain_descent import Descent, is_plain
from epoch0.train._forward import Loss, caller, enough_memory, laid_out
from epoch0.train._lent import deferred_interrupt, own_randomness
from epoch0.train._run import NOISE, ORDER, Look, Plan, Progress, Run
from epoch0.train.console import Console, Watch
from epoch0.train.device import check_device, precision_for
from epoch0.train.distributed import Group, current, lost_process
from epoch0.train.optimizers import OPTIMIZERS, SGD, Adam, AdamW, Optimizer, build
from epoch0.train.optimizers import settings_of as optimizer_settings
from epoch0.train.record import Callback, Every, Row, Training
from epoch0.train.schedules import Schedule, depends_on_total
from epoch0.train.schedules import settings_of as schedule_settings
from epoch0.train.sources import Source, Tensors
from epoch0.train.stacked import Stacked

__all__ = ["NOISE", "OPTIMIZERS", "ORDER", "SGD", "Adam", "AdamW", "Loss", "train"]


def train(
    model: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor] | Source,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int = 64,
    optimizer: str | Optimizer = "sgd",
    learning_rate: float = 0.1,
    schedule: Schedule | None = None,
    clip: float | None = None,
    loss: Loss = F.cross_entropy,
    seed: int = 0,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    channels_last: bool = False,
    compile: bool | str = False,
    evaluate: Callable[[nn.Module], Mapping[str, Any]] | None = None,
    evaluate_every: int | None = None,
    callbacks: Sequence[Callback | Every] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    checkpoint_minutes: float | None = None,
    until: Callable[[Row], bool] | None = None,
    progress: bool | Watch | None = None,
) -> Training:
    """Train a model in place, reproducibly, with measurements on the way and a checkpoint to come back to.

    >>> x, y = torch.eye(2), torch.tensor([0, 1])                               # shapes (2, 2) and (2,)
    >>> perfect = lambda row: row["accuracy"] == 1
    >>> done = train(nn.Linear(2, 2), (x, y), epochs=50, evaluate=Accuracy(x, y), until=perfect)
    >>> done.history[-1]["accuracy"]
    1.0

    Args:
        model: any module; trained in place, on ``device``, in train mode (eval mode while it is evaluated).
        data: inputs and targets, first dimension the examples, or a :class:`epoch0.train.sources.Source`. An epoch is
            one random order of all of them, its last batch as short as it comes.
        steps: optimizer steps in all; give either this or ``epochs``.
        epochs: passes through the data; give either this or ``steps``.
        batch_size: examples a step; of all processes together in a distributed run.
        optimizer: ``"sgd"``, ``"adam"``, ``"adamw"``, or settings from :mod:`epoch0.train.optimizers`.
        learning_rate: step size.
        schedule: of the learning rate, from :mod:`epoch0.train.schedules`; constant by default.
        clip: largest Euclidean norm of the gradient of all parameters; of each network's in a stack.
        loss: ``loss(outputs, targets) -> scalar``, a mean over the batch; for a stack of networks
            ``stacked.loss(...)``; for label smoothing ``functools.partial(F.cross_entropy, label_smoothing=0.1)``.
        seed: of the order of the examples, augmentation and dropout; the initial parameters are the model's own.
        device: where to train; the data are moved there once if they fit.
        precision: ``"bfloat16"`` computes products in bfloat16 (autocast; parameters, their updates and the loss stay
            in float32, pruned weights exactly zero); ``"auto"`` is that on CUDA and ``"float32"`` elsewhere.
        channels_last: keep images and convolutions channels-last while training; faster on tensor cores, and on most
            CPUs.
        compile: compile the training step's forward and backward pass with ``torch.compile``; a text names its
            backend. Evaluation and callbacks see the plain model, and so does the checkpoint.
        evaluate: ``evaluate(model) -> metrics``, such as :class:`epoch0.train.record.Accuracy`; called before training,
            every ``evaluate_every`` steps, and at the end.
        evaluate_every: steps between evaluations; an epoch by default.
        callbacks: called after the evaluation, in order; see ``Callback`` and ``Every`` in :mod:`epoch0.train.record`.
        checkpoint: a safetensors file. If it exists the run goes on from it, else it begins and writes it. Ctrl-C then
            ends the step, writes it and raises ``KeyboardInterrupt``; a second Ctrl-C does not wait.
        checkpoint_every: steps between checkpoints; at every evaluation by default.
        checkpoint_minutes: minutes between checkpoints; if given, there are none by steps unless asked for.
        until: ``until(row)`` at every evaluation, after the callbacks; true ends the training.
        progress: True shows a bar on a terminal, lines in a log; a function is called a few times a second with a
            :class:`epoch0.train.console.Glance`.

    Returns:
        The history, the steps done and why it stopped. A loss that is NaN or infinite stops the run as ``"diverged"``:
        at once on a CPU; on CUDA the losses are read every few steps, so the parameters may have gone on a little.

    Raises:
        InputError: for arguments that cannot work, data that do not fit the model, too little memory, a checkpoint that
            cannot be read or written or is of another run.
        ProcessLost: if another process of a distributed run is gone; see :mod:`epoch0.train.distributed`.
    """
    group = current() or Group(device=check_device(device))
    path = None if checkpoint is None else Path(checkpoint)
    with group.together():
        place = _place(device, group)
        if not isinstance(progress, bool):
            check_progress(progress, "how far the run is; True shows a bar, or lines in a log")
        used, settings = precision_for(precision, place), optimizer_settings(optimizer)
        source = _source(data)
        counts = {"batch_size": batch_size, "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}
        _check_pace(counts, {"learning_rate": learning_rate, "clip": clip, "checkpoint_minutes": checkpoint_minutes})
        per_epoch = -(-len(source) // batch_size)
        total = _total_steps(steps, epochs, per_epoch)
        if checkpoint_minutes is None:
            checkpoint_every = checkpoint_every or evaluate_every or per_epoch
        plan = Plan(
            total, per_epoch, batch_size, evaluate_every or per_epoch, checkpoint_every,
            None if checkpoint_minutes is None else 60 * checkpoint_minutes, learning_rate, schedule, clip, seed,
        )  # fmt: skip
        model.to(place)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise InputError(f"a {type(model).__name__} has no parameter that requires a gradient; nothing to train.")
        built = build(settings, parameters, learning_rate)
        if isinstance(model, Stacked) and is_plain(settings, clip) and used == "float32" and group.size == 1:
            built = model.descent(parameters, learning_rate) or built
        run = _record(plan, settings, used, source, group) if path is not None or group.size > 1 else {}
        state = Progress() if path is None else _resume(path, model, built, run, total)
    group.check_same({**run, "step": state.step, "total": total})
    modes = {module: module.training for module in model.modules()}
    watch = Console() if progress is True else progress or None
    model.train()
    try:
        with contextlib.ExitStack() as held:
            held.enter_context(lost_process() if group.size > 1 else contextlib.nullcontext())
            held.enter_context(enough_memory(batch_size, place))
            held.enter_context(laid_out(model, built, channels_last))
            reseed = held.enter_context(own_randomness(place))
            pressed = held.enter_context(deferred_interrupt(path is not None or group.size > 1))
            held.enter_context(built.armed() if isinstance(built, Descent) else contextlib.nullcontext())
            call = caller(model, place, used, channels_last, compile, group)
            look = Look(evaluate, callbacks, until, watch)
            doing = Run(model, call, loss, source.to(place), built, plan, state, look, group, path, run)
            doing.go(reseed, pressed)
    finally:
        built.zero_grad()
        for module, mode in modes.items():
            module.training = mode
        if isinstance(watch, Console):
            watch.close()
    seconds, images = doing.seconds, doing.images
    return Training(
        model, tuple(state.history), state.step, state.stopped or "steps", seconds,
        images / seconds if images else 0.0, str(place), used,
    )  # fmt: skip


def _place(device: str | torch.device, group: Group) -> torch.device:
    place = check_device(device)
    if group.size > 1 and place not in (group.device, torch.device(group.device.type)):
        raise InputError(f"device is {str(device)!r}, but this process trains on {group.device}; pass group.device.")
    return group.device if group.size > 1 else place


def _source(data: Any) -> Source:
    if isinstance(data, tuple) and len(data) == 2:
        return Tensors(*data)
    if isinstance(data, Source):
        return data
    raise InputError(f"data is a {type(data).__name__}; give a tuple (inputs, targets) of tensors, or a source.")


def _record(plan: Plan, settings: Optimizer, precision: str, source: Source, group: Group) -> Row:
    """What a checkpoint belongs to; what is as it always was is left out, so that older checkpoints stay good."""
    run: Row = {"seed": plan.seed, "batch_size": plan.batch_size, "learning_rate": plan.learning_rate}
    run["optimizer"] = {"name": type(settings).__name__, **asdict(settings)}
    run["data"] = source.fingerprint
    scheduled = schedule_settings(plan.schedule)
    if scheduled is not None:
        run["schedule"] = scheduled
    if depends_on_total(plan.schedule):
        run["steps"] = plan.total
    if plan.clip is not None:
        run["clip"] = plan.clip
    if precision != "float32":
        run["precision"] = precision
    if group.size > 1:
        run["processes"] = group.size
    return run


def _resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, run: Row, total: int) -> Progress:
    if path.is_dir():
        raise InputError(f"the checkpoint {str(path)!r} is a folder; name a file in it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"the folder of the checkpoint {str(path)!r} cannot be made: {problem.strerror}.") from problem
    if not path.exists():
        return Progress()
    progress = Progress(**checkpoints.load(path, model, optimizer, run)["progress"])
    if progress.step > total:
        raise InputError(
            f"the checkpoint {str(path)!r} already has {progress.step} steps and {total} were asked for; "
            "ask for at least as many, or name another path to start anew."
        )
    return progress


def _check_pace(counts: Mapping[str, int | None], sizes: Mapping[str, float | None]) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{name} is {count}; it must be at least 1.")
    for name, size in sizes.items():
        if size is not None and not (math.isfinite(size) and size > 0):
            raise InputError(f"{name} is {size}; it must be a finite number above 0.")


def _total_steps(steps: int | None, epochs: int | None, per_epoch: int) -> int:
    if (steps is None) == (epochs is None):
        raise InputError(f"steps is {steps} and epochs is {epochs}; give exactly one of them.")
    total = steps if steps is not None else (epochs or 0) * per_epoch
    if total < 0:
        raise InputError(f"{total} steps cannot be done; ask for 0 or more.")
    return total
