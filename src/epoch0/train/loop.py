"""The one training loop: every network of the papers' experiments that gets trained is trained here.

Two runs with the same arguments give the same bits on a CPU, interrupted or not: the order of epoch ``e`` is a function
of ``(seed, e)``, the random numbers drawn inside step ``s`` (dropout) a function of ``(seed, s)``, and everything else
that a step needs is in the checkpoint. The global random generators come back as they were.
"""

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from epoch0.errors import InputError, check_finite, suggest
from epoch0.seeds import generator
from epoch0.train import checkpoint as checkpoints
from epoch0.train.record import Callback, Every, Row, Training, plain
from epoch0.train.stacked import Stacked

ORDER, NOISE = 0, 1
"""Names of the two random streams of a run: the order of its examples, and the noise inside its steps."""

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``loss(outputs, targets)``, a scalar."""


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, ``torch.optim.SGD``.

    >>> SGD(momentum=0.9)
    SGD(momentum=0.9, weight_decay=0.0, nesterov=False)
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def build(self, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """The torch optimizer of these settings."""
        return torch.optim.SGD(parameters, lr=learning_rate, **asdict(self))


@dataclass(frozen=True)
class Adam:
    """Adam, ``torch.optim.Adam``.

    >>> Adam(epsilon=1e-6).beta1
    0.9
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def build(self, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """The torch optimizer of these settings."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(parameters, learning_rate, betas, self.epsilon, self.weight_decay)


OPTIMIZERS: dict[str, SGD | Adam] = {"sgd": SGD(), "adam": Adam()}
"""What the two plain names mean."""


@dataclass
class _Progress:
    """What the checkpoint holds beside tensors."""

    step: int
    losses: float
    counted: int
    history: list[Row]
    stopped: Literal["steps", "until", "diverged"] | None


def train(
    model: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    *,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int = 64,
    optimizer: str | SGD | Adam = "sgd",
    learning_rate: float = 0.1,
    loss: Loss = F.cross_entropy,
    seed: int = 0,
    device: str | torch.device = "cpu",
    evaluate: Callable[[nn.Module], Mapping[str, Any]] | None = None,
    evaluate_every: int | None = None,
    callbacks: Sequence[Callback | Every] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
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
        data: inputs and targets, first dimension the examples. An epoch is one random order of all of them, its last
            batch as short as it comes.
        steps: optimizer steps in all; give either this or ``epochs``.
        epochs: passes through the data; give either this or ``steps``.
        batch_size: examples a step.
        optimizer: ``"sgd"``, ``"adam"``, or :class:`SGD` / :class:`Adam` with settings.
        learning_rate: step size.
        loss: ``loss(outputs, targets) -> scalar``; for a stack of networks ``stacked.loss(...)``.
        seed: of the order of the examples and of dropout; the initial parameters are the model's own.
        device: where to train; the data are moved there once.
        evaluate: ``evaluate(model) -> metrics``, such as :class:`epoch0.train.record.Accuracy`; called before training,
            every ``evaluate_every`` steps, and at the end.
        evaluate_every: steps between evaluations; an epoch by default.
        callbacks: called after the evaluation, in order; see ``Callback`` and ``Every`` in :mod:`epoch0.train.record`.
        checkpoint: a safetensors file. If it exists the run goes on from it, else it begins and writes it. Ctrl-C then
            ends the step, writes it and raises ``KeyboardInterrupt``; a second Ctrl-C does not wait.
        checkpoint_every: steps between checkpoints; at every evaluation by default.
        until: ``until(row)`` at every evaluation, after the callbacks; true ends the training.

    Returns:
        The history, the steps done and why it stopped. A loss that is NaN or infinite stops the run as ``"diverged"``.

    Raises:
        InputError: for arguments that cannot work, a checkpoint that cannot be read or written or is of another run.
    """
    inputs, targets = data
    settings = _settings(optimizer)
    _check_data(inputs, targets)
    counts = {"batch_size": batch_size, "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}
    _check_pace(counts, learning_rate)
    per_epoch = -(-len(inputs) // batch_size)
    total = _total_steps(steps, epochs, per_epoch)
    path = None if checkpoint is None else Path(checkpoint)
    model.to(device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError(f"a {type(model).__name__} has no parameter that requires a gradient; nothing to train.")
    built = settings.build(parameters, learning_rate)
    progress = _Progress(0, 0.0, 0, [], None)
    run: Row = {}
    if path is not None:
        run = {"seed": seed, "batch_size": batch_size, "learning_rate": learning_rate}
        run["optimizer"] = {"name": type(settings).__name__, **asdict(settings)}
        run["data"] = _fingerprint(inputs, targets)
        progress = _resume(path, model, built, run, total)
    inputs, targets = inputs.to(device), targets.to(device)
    evaluate_every = evaluate_every or per_epoch
    checkpoint_every = checkpoint_every or evaluate_every

    def measure(final: bool) -> bool:
        """Make the row of this step, if one is due; true if the predicate wants to stop."""
        step = progress.step
        evaluating = final or step % evaluate_every == 0
        due = [
            callback
            for callback in callbacks
            if (final or step % callback.steps == 0 if isinstance(callback, Every) else evaluating)
        ]
        if not (evaluating or due):
            return False
        row: Row = {"step": step, "epoch": step / per_epoch}
        row["loss"] = progress.losses / progress.counted if progress.counted else None
        progress.losses, progress.counted = 0.0, 0
        model.eval()
        if evaluating and evaluate is not None:
            row.update({name: plain(name, value) for name, value in evaluate(model).items()})
        for callback in due:
            function = callback.callback if isinstance(callback, Every) else callback
            row.update({name: plain(name, value) for name, value in (function(step, model, dict(row)) or {}).items()})
        model.train()
        progress.history.append(row)
        return evaluating and until is not None and bool(until(row))

    def write() -> None:
        """Write the checkpoint, if one was asked for."""
        if path is not None:
            checkpoints.save(path, model, built, {"run": run, "progress": asdict(progress)})

    modes = {module: module.training for module in model.modules()}
    model.train()
    try:
        with _own_randomness(torch.device(device)) as reseed, _deferred_interrupt(path is not None) as interrupted:
            if not progress.history and measure(final=total == 0):
                progress.stopped = "until"
            begun = -1
            while progress.stopped is None and progress.step < total:
                epoch, batch = divmod(progress.step, per_epoch)
                if epoch != begun:
                    order, noise = _epoch(seed, epoch, len(inputs), per_epoch)
                    begun = epoch
                chosen = order[batch * batch_size : (batch + 1) * batch_size].to(device)
                reseed(noise[batch])
                value = loss(model(inputs[chosen]), targets[chosen])
                if value.numel() != 1:
                    raise InputError(f"the loss has the shape {tuple(value.shape)}; it must be one number (a mean).")
                size = value.item()
                if not math.isfinite(size):
                    progress.history.append({"step": progress.step, "epoch": progress.step / per_epoch, "loss": size})
                    progress.stopped = "diverged"
                    break
                built.zero_grad()
                value.backward()
                built.step()
                progress.step += 1
                progress.losses += size
                progress.counted += 1
                if measure(final=progress.step == total):
                    progress.stopped = "until"
                if interrupted():
                    write()
                    raise KeyboardInterrupt
                if progress.step % checkpoint_every == 0 and progress.step < total:
                    write()
            if progress.stopped != "diverged" and not _finite(model):
                progress.stopped = "diverged"
            write()
            if interrupted():
                raise KeyboardInterrupt
    finally:
        built.zero_grad()
        for module, mode in modes.items():
            module.training = mode
    return Training(model, tuple(progress.history), progress.step, progress.stopped or "steps")


def _epoch(seed: int, epoch: int, examples: int, batches: int) -> tuple[torch.Tensor, list[int]]:
    """The order of an epoch's examples, and one seed for the noise of each of its steps."""
    order = torch.randperm(examples, generator=generator(seed, ORDER, epoch))
    noise: list[int] = torch.randint(2**62, (batches,), generator=generator(seed, NOISE, epoch)).tolist()
    return order, noise


@contextlib.contextmanager
def _own_randomness(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Lend the global generators to the run's steps and put them back afterwards."""
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):

        def reseed(seed: int) -> None:
            torch.default_generator.manual_seed(seed)
            if on_cuda:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)

        yield reseed


@contextlib.contextmanager
def _deferred_interrupt(active: bool) -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until the step is whole (half an update cannot be resumed); a second one goes through."""
    pressed = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not active or not in_main_thread or usual is not signal.default_int_handler:
        yield pressed.is_set
        return

    def note(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, usual)


def _resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, run: Row, total: int) -> _Progress:
    if path.is_dir():
        raise InputError(f"the checkpoint {str(path)!r} is a folder; name a file in it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"the folder of the checkpoint {str(path)!r} cannot be made: {problem.strerror}.") from problem
    if not path.exists():
        return _Progress(0, 0.0, 0, [], None)
    progress = _Progress(**checkpoints.load(path, model, optimizer, run)["progress"])
    if progress.step > total:
        raise InputError(
            f"the checkpoint {str(path)!r} already has {progress.step} steps and {total} were asked for; "
            "ask for at least as many, or name another path to start anew."
        )
    return progress


def _fingerprint(inputs: torch.Tensor, targets: torch.Tensor) -> str:
    tensors = {"inputs": inputs.detach().cpu(), "targets": targets.detach().cpu()}
    return f"{tuple(inputs.shape)} {checkpoints.digest('', tensors)[:16]}"


def _finite(model: nn.Module) -> bool:
    if isinstance(model, Stacked):  # of a stack one network may be lost without the others
        return not bool(model.diverged.all())
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def _settings(optimizer: str | SGD | Adam) -> SGD | Adam:
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            close = suggest(optimizer, OPTIMIZERS)
            raise InputError(f"no optimizer is called {optimizer!r}; use 'sgd' or 'adam'.{close}")
        return OPTIMIZERS[optimizer]
    return optimizer


def _check_data(inputs: torch.Tensor, targets: torch.Tensor) -> None:
    if len(inputs) != len(targets) or len(inputs) == 0:
        raise InputError(
            f"the data have {len(inputs)} inputs and {len(targets)} targets; "
            "there must be as many of both, and at least one."
        )
    check_finite("the training inputs", inputs)
    check_finite("the training targets", targets)


def _check_pace(counts: Mapping[str, int | None], learning_rate: float) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{name} is {count}; it must be at least 1.")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise InputError(f"learning_rate is {learning_rate}; it must be a finite number above 0.")


def _total_steps(steps: int | None, epochs: int | None, per_epoch: int) -> int:
    if (steps is None) == (epochs is None):
        raise InputError(f"steps is {steps} and epochs is {epochs}; give exactly one of them.")
    total = steps if steps is not None else (epochs or 0) * per_epoch
    if total < 0:
        raise InputError(f"{total} steps cannot be done; ask for 0 or more.")
    return total
