"""The checkup in other trainers: callbacks for them, and numbers for their loggers.

Libraries are imported when a callback is made. Hugging Face's Trainer is here, Lightning in :mod:`epoch0.lightning`.
"""

import contextlib
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from epoch0.diagnosis.checkup import checkup
from epoch0.diagnosis.result import Checkup, VerdictError
from epoch0.errors import InputError, suggest
from epoch0.results import Result
from epoch0.tracing.guard import unchanged

FAIL_ON = ("never", "hard", "fault")


def scalars(found: Result) -> dict[str, float]:
    """The numbers of a result by names for a logger, what is not finite left out.

    >>> numbers = scalars(e0.gain(net, x))
    >>> sorted(numbers)[:3], round(numbers["epoch0/backward/0"], 2)
    (['epoch0/backward/0', 'epoch0/backward/2', 'epoch0/backward/4'], 0.93)
    >>> scalars(e0.checkup(net, x, y))["epoch0/trains"]
    1.0

    ``epoch0/<column>/<layer>`` for each column of the result's rows; of a watch over training, such as
    :class:`epoch0.train.TrajectoryLengths`, those of its last step. Of a checkup also ``epoch0/trains``,
    ``epoch0/<recipe>/probability`` and ``learning_rate``, and the number of ``faults``.
    """
    rows = found.rows()
    last = max((row["step"] for row in rows if "step" in row), default=None)
    numbers: dict[str, Any] = {}
    if isinstance(found, Checkup):
        numbers |= {"trains": found.trains, "faults": len(found.faults)}
        for name, recipe in found.recipes.items():
            numbers |= {f"{name}/{key}": getattr(recipe, key) for key in ("probability", "learning_rate")}
    for place, row in enumerate(rows):
        if row.get("step") == last:
            where = row.get("name", row.get("layer", place))
            numbers |= {f"{key}/{where}": value for key, value in row.items() if key != "step"}
    known = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    return {f"epoch0/{name}": value for name, value in known.items() if math.isfinite(value)}


def log(logger: Any, found: Result | Mapping[str, float], step: int = 0) -> None:
    """Pass the numbers of a result to a logger: TensorBoard's, W&B's, MLflow's, Lightning's, Hugging Face's.

    >>> class Writer:                                           # as torch.utils.tensorboard.SummaryWriter has it
    ...     def add_scalar(self, name, value, step):
    ...         print(name, value, step)
    >>> log(Writer(), {"epoch0/trains": 1.0}, step=3)
    epoch0/trains 1.0 3

    Args:
        logger: a Hugging Face Trainer, or what has ``log_metrics`` (``mlflow`` itself, Lightning's loggers),
            ``add_scalar`` (a SummaryWriter) or ``log`` (a W&B run).
        found: a result, see :func:`scalars`, or numbers by name.
        step: of training.
    """
    numbers = dict(scalars(found) if isinstance(found, Result) else found)
    if hasattr(logger, "callback_handler"):  # a Trainer has its step, and passes numbers to all its reporters
        logger.log(numbers)
    elif hasattr(logger, "log_metrics"):
        logger.log_metrics(numbers, step=step)
    elif hasattr(logger, "add_scalar"):
        for name, value in numbers.items():
            logger.add_scalar(name, value, step)
    elif hasattr(logger, "log"):
        logger.log(numbers, step=step)
    else:
        raise InputError(f"a {type(logger).__name__} is no logger; give one with log_metrics, add_scalar or log.")


def first(loader: Any) -> Any:
    """The first batch of a loader; of several loaders, in a mapping or a list, that of each.

    >>> first({"a": torch.utils.data.DataLoader([1, 2, 3], batch_size=2)})
    {'a': tensor([1, 2])}
    """
    if isinstance(loader, Mapping):
        return {name: first(item) for name, item in loader.items()}
    return [first(item) for item in loader] if isinstance(loader, list | tuple) else next(iter(loader))


class Examination:
    """Base of the callbacks: a checkup before the first step, its numbers, its page, and whether training may begin.

    Args:
        fail_on: ``"hard"`` refuses to start where the network is not expected to train, ``"fault"`` also for faults;
            ``"never"`` only reports.
        page: path of the HTML report; by default ``epoch0-checkup.html`` in the folder of the run; False: none.
        batch: what is examined; by default the first batch of the training data.
        settings: arguments of :func:`epoch0.checkup`, such as ``trial=False`` or ``seconds=20``.
    """

    library: ClassVar[tuple[str, ...]]  #: modules one of which has the base
    base: ClassVar[str]  #: its name there

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """An instance of a class that is also the library's."""
        kind: Any = cls
        return object.__new__(_joined(kind, _base(cls.library, cls.base, cls.__module__)))

    def __init__(
        self, *, fail_on: str = "never", page: str | Path | bool = True, batch: Any = None, **settings: Any
    ) -> None:
        known = [name for name in inspect.signature(checkup).parameters if name not in ("model", "batch")]
        if unknown := [name for name in settings if name not in known]:
            raise InputError(f"the checkup has no argument {unknown[0]!r}.{suggest(unknown[0], known)}")
        if fail_on not in FAIL_ON:
            raise InputError(f"fail_on={fail_on!r} is none of {', '.join(FAIL_ON)}.{suggest(fail_on, FAIL_ON)}")
        self.fail_on, self.page, self.batch, self.settings = fail_on, page, batch, settings
        self.found: Checkup | None = None  #: the checkup, once it was made

    def __reduce__(self) -> Any:
        return Examination.__new__, (type(self).__mro__[1],), vars(self)

    def examine(self, model: nn.Module, batch: Callable[[], Any], folder: str | Path, **own: Any) -> Path | None:
        """Make the checkup of a model that is about to be trained, and write its page; gives back where that is."""
        with unchanged(model):  # a loader that begins draws random numbers, which training is to draw, too
            # a LightningModule has no step to log to yet
            model.__dict__["log"] = model.__dict__["log_dict"] = lambda *given, **named: None
            self.found = checkup(model, batch() if self.batch is None else self.batch, **{**own, **self.settings})
        if self.page is False:
            return None
        path = Path(folder) / "epoch0-checkup.html" if self.page is True else Path(self.page)
        path.parent.mkdir(parents=True, exist_ok=True)
        return self.found.to_html(path)

    def refusal(self) -> str:
        """Why training may not begin; empty if it may."""
        if self.found is None or self.fail_on == "never":  # another process looks
            return ""
        return str(self.found) if not self.found or (self.fail_on == "fault" and self.found.faults) else ""


class TrainerCheckup(Examination):
    """A checkup before the first step of Hugging Face's Trainer.

    ::

        callback = epoch0.integrations.TrainerCheckup(fail_on="hard")
        trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback])
        callback.logger = trainer       # so that its reporters get the numbers
        trainer.train()                 # training, or a VerdictError with the report

    The numbers also stand in ``trainer.state.log_history``, the page in the output folder, and the checkup as
    ``callback.found``. ``logger`` is anything that :func:`log` takes; active W&B and MLflow runs are found. See
    :class:`Examination`.
    """

    library, base = ("transformers",), "TrainerCallback"

    def __init__(self, *, logger: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.logger = logger

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        page = None
        if state.is_world_process_zero:
            page = self.examine(given["model"], lambda: next(iter(given["train_dataloader"])), args.output_dir)
        refused = [self.refusal()]
        if args.world_size > 1:
            import torch.distributed

            torch.distributed.broadcast_object_list(refused)
        if self.found is not None:
            for logger in [self.logger] if self.logger is not None else active():
                log(logger, self.found, state.global_step)
                if page is not None and hasattr(logger, "log_artifact"):
                    logger.log_artifact(str(page))
            if not hasattr(self.logger, "callback_handler"):
                state.log_history.append({**scalars(self.found), "step": state.global_step})
        if refused[0]:
            raise VerdictError(refused[0])


def active() -> list[Any]:
    """The runs of W&B and MLflow that are open in this process.

    >>> active()
    []
    """
    wandb, mlflow = (sys.modules.get(name) for name in ("wandb", "mlflow"))
    runs = [getattr(wandb, "run", None), mlflow if mlflow is not None and mlflow.active_run() else None]
    return [run for run in runs if run is not None]


@functools.cache
def _joined(kind: type, base: type) -> type:
    return kind if issubclass(kind, base) else type(kind.__name__, (kind, base), {"__module__": kind.__module__})


def _base(library: tuple[str, ...], name: str, user: str) -> Any:
    """The class that callbacks of a library have to be, of the module that the user has imported."""
    for module in [module for module in library if module in sys.modules] or library:
        with contextlib.suppress(ImportError):
            return getattr(importlib.import_module(module), name)
    package = library[0].partition(".")[0]
    raise InputError(f"the callback of {user} needs {package}, which is not installed: pip install {package}") from None
