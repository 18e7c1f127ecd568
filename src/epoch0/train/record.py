"""Reports of a training run: its rows, its callbacks, and the finished run."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from epoch0.arguments import Count, checked, refuse
from epoch0.errors import InputError, suggest
from epoch0.results import Result, counted

Row = dict[str, Any]
"""What is known at one step: ``step``, ``epoch``, ``loss`` (mean over the steps since the last row), every metric."""


Callback = Callable[[int, nn.Module, Mapping[str, Any]], Mapping[str, Any] | None]
"""``callback(step, model, metrics)`` looks at a model while it trains; what it returns is added to the row.

``metrics`` is the row so far. A bare callback is called at every evaluation; wrap it in :class:`Every` for a pace of
its own. The model is in eval mode and must be left as it was.
"""


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
            text = f"no row of this training holds a number called {metric!r}"
            raise InputError(f"{text}; its columns are {', '.join(known)}.{suggest(metric, known)}")
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
