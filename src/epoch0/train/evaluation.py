"""What a run looks at and keeps: rows of metrics; loss and accuracy of a whole set, counted exactly, of stacks too."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.arguments import Count, checked, refuse
from epoch0.errors import InputError, first_line, reworded, suggest
from epoch0.results import Result, counted
from epoch0.tracing.guard import refuse_closed, unchanged
from epoch0.train.data import CropResizeFlip, Pair, batches, check_classes
from epoch0.train.device import Precision, autocast
from epoch0.train.stacked import Stacked, loss_of_each

Row = dict[str, Any]
"""What is known at one step: ``step``, ``epoch``, ``loss`` (mean over the steps since the last row), every metric."""

Callback = Callable[[int, nn.Module, Mapping[str, Any]], Mapping[str, Any] | None]
"""``callback(step, model, metrics)`` looks at a model while it trains; what it returns is added to the row.

``metrics`` is the row so far. A bare callback is called at every evaluation; wrap it in :class:`Every` for a pace of
its own. The model is in eval mode and must be left as it was.
"""

Loss = Callable[[Tensor, Tensor], Tensor]


@checked
@dataclass(frozen=True)
class Every:
    """A callback that is called before the first step, then after every so many, and after the last one asked for.

    >>> Every(100, lambda step, model, metrics: {"bias": float(model.bias.norm())}).steps
    100
    """

    steps: Count
    callback: Callback


@dataclass(frozen=True)
class Training(Result):
    """A finished training run."""

    model: nn.Module  #: the very module that was passed in, now trained, in the mode in which it came
    #: one row per step at which something was measured, in order; the first one is before any training
    history: tuple[Row, ...]
    steps: int  #: optimizer steps done in all, the resumed ones included
    #: ``"steps"`` (all that were asked for), ``"until"`` (it said so), ``"diverged"`` (NaN)
    stopped_because: Literal["steps", "until", "diverged"]
    seconds: float = 0.0  #: wall time of the training steps of this process, without earlier parts of a resumed run
    device: str = "cpu"  #: where it was trained
    precision: str = "float32"  #: of its products, ``"float32"`` or ``"bfloat16"``

    @property
    def diverged(self) -> bool:
        """Did the loss, or a parameter, stop being a finite number?"""
        return self.stopped_because == "diverged"

    def best(self, metric: str, *, largest: bool = True) -> Row:
        """The row with the largest (or smallest) value of a metric, the earliest among equals."""
        rows = [r for r in self.history if isinstance(r.get(metric), int | float) and math.isfinite(r[metric])]
        if not rows:
            known = sorted({name for row in self.history for name in row})
            raise InputError(f"no row has {metric!r}; its columns are {', '.join(known)}.{suggest(metric, known)}")
        return max(rows, key=lambda row: row[metric] if largest else -row[metric])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model and the times, for a trial to return and a store to keep: the same at each run."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("model", "seconds")}
        return {**own, "history": [dict(row) for row in self.history], "diverged": self.diverged}

    def rows(self) -> list[Row]:
        """The history, one row per evaluated step, with a plain-word status."""
        status = ["running"] * (len(self.history) - 1) + [f"stopped: {self.stopped_because}"]
        return [{**row, "status": words} for row, words in zip(self.history, status, strict=True)]

    def __str__(self) -> str:
        last = {k: v for k, v in self.history[-1].items() if isinstance(v, int | float) and k not in ("step", "epoch")}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in last.items())
        return f"{counted(self.steps, 'step')}, stopped: {self.stopped_because}" + (f" ({shown})" if shown else "")


def plain(name: str, value: Any) -> Any:
    """A metric as JSON can hold it, so that a resumed history is that of an uninterrupted run."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise refuse(f"the metric {name!r}", value, "a number, a string, an array or a list of them, which can be recorded")


@checked
@dataclass(frozen=True)
class Accuracy:
    """Share of examples whose largest output is the right one; per network for a stack of networks.

    >>> Accuracy(torch.eye(2), torch.tensor([0, 0]))(nn.Identity())
    {'accuracy': 0.5}
    """

    inputs: Tensor
    targets: Tensor
    name: str = "accuracy"  #: what to call it in the row
    batch_size: Count = 1000  #: examples of a forward pass

    def __post_init__(self) -> None:
        object.__setattr__(self, "_data", Pair(self.inputs, self.targets))  # refuses what does not go together

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """Evaluate, in the mode the model is in; outputs have shape (..., batch, classes), buffers stay."""
        return {self.name: _means(model, vars(self)["_data"], self.batch_size)["accuracy"]}


@checked
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Mean loss and share of examples that are classified right, in eval mode, as ``evaluate=`` of ``train``.

    >>> test = Evaluation((torch.eye(2), torch.tensor([0, 0])))             # inputs (2, 2), targets (2,)
    >>> test(nn.Identity())["test_accuracy"]
    0.5
    """

    data: Any  #: the examples, inputs and targets, or what :func:`epoch0.train.image_sources` gives
    batch_size: Count = 1000  #: examples a forward pass; changes nothing but rounding
    name: str = "test"  #: of the split; begins the names of the metrics
    loss: Loss | None = None  #: ``loss(outputs, targets)``, the mean over a batch; None: the cross-entropy
    #: of the products, as for ``train``; outputs become float32 before they are compared
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.data, tuple) and len(self.data) == 2:
            object.__setattr__(self, "data", Pair(*self.data))
        if not (hasattr(self.data, "batch") and isinstance(getattr(self.data, "targets", None), Tensor)):
            raise refuse("data", self.data, "the pair of inputs and targets, or what train.image_sources gives")
        view = getattr(self.data, "view", None)
        changed = view if isinstance(view, CropResizeFlip) else getattr(self.data, "augment", None)
        if changed is not None:
            raise InputError(f"an evaluation is of the examples as they are, and these have {changed}; leave it out.")
        if not self.name:
            raise InputError("name='' would give a metric the name of the training loss; call the split something.")

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """``test_loss``, for class labels ``test_accuracy`` in [0, 1]. Lists with one number a network for a stack.
        Modes and buffers of the model stay as they are.
        """
        device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
        if self.data.targets.device != device:
            object.__setattr__(self, "data", self.data.to(device))
        own = self.loss or F.cross_entropy
        loss = loss_of_each(own) if isinstance(model, Stacked) else own
        means = _means(model, self.data, self.batch_size, loss, self.precision)
        return {f"{self.name}_{name}": mean for name, mean in means.items()}


@torch.no_grad()
def _means(
    model: nn.Module, data: Any, size: int, loss: Loss | None = None, precision: Precision = "float32"
) -> dict[str, Any]:
    """Mean loss, if one is given, in eval mode, and for class labels the share that is right; lists for a stack."""
    targets, sums = data.targets, dict[str, Any]()
    device = next((parameter.device for parameter in model.parameters()), targets.device)
    by_class = loss is None or (not targets.is_floating_point() and targets.dim() == 1)
    refuse_closed(model, run_only=True)
    text = f"model and loss cannot take these {len(targets)} examples"
    explained = reworded(lambda problem: InputError(f"{text}: {first_line(problem)[:300]}"), torch.OutOfMemoryError)
    with contextlib.ExitStack() as after, unchanged(model), explained:
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):  # its state is not in Python
                after.callback(setattr, module, "training", module.training)
                for buffer in module.buffers(recurse=False):
                    after.callback(buffer.copy_, buffer.clone())
        if loss is not None:
            model.eval()
        for x, y in batches(data, ((part, 0) for part in torch.arange(len(targets)).split(size))):
            x, y = x.to(device), y.to(device)
            with autocast(device, precision):
                outputs = model(x)
            outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
            if loss is not None and by_class and not sums:
                check_classes(targets, outputs.shape[-1])
            if loss is not None:
                sums["loss"] = sums.get("loss", 0.0) + loss(outputs, y).double() * len(y)
            if by_class:
                sums["accuracy"] = sums.get("accuracy", 0) + (outputs.argmax(-1) == y).sum(-1)
        return {name: (torch.as_tensor(total).double() / len(targets)).tolist() for name, total in sums.items()}
