"""The dry run: what reproducing figures and tables would take on this device, from a measurement of some seconds."""

import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0.columns import aligned
from epoch0.errors import InputError
from epoch0.experiments.cost import Cost, Speed, check_seconds
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import Store
from epoch0.papers.catalogue import Artifact, find
from epoch0.train.device import chosen_device

if TYPE_CHECKING:
    import pandas
    import torch

_HOUR = 3600.0
_HEADS = ("  configuration", "runs", "done", "parameters", "prunable", "images", "images/s", "of peak", "time")
_UNMEASURED = Speed(math.nan)
_LEAST_SHARE = 0.25  # of an equal share, when those before took longer than theirs


@dataclass(frozen=True)
class Line:
    """One configuration of one artifact.

    Attributes:
        id: the artifact.
        configuration: its name; ``"trials"`` for an artifact that says nothing of its costs.
        runs: how many there are.
        done: how many of them need not run: in the results file already, or listed further up for another artifact.
        parameters: of the network; None where nothing is known.
        prunable: of them, weights that masks are put on.
        images: examples that the runs still to do train on, together.
        steps_worth: the same with the examples that are only passed forward, in training steps.
        speed: measured here.
        workers: runs that are under way at the same time.
        cost: what the artifact says of it.
    """

    id: str
    configuration: str
    runs: int
    done: int
    parameters: int | None = None
    prunable: int | None = None
    images: int | None = None
    steps_worth: float = math.nan
    speed: Speed = _UNMEASURED
    workers: int = 1
    cost: Cost | None = field(default=None, repr=False, compare=False)

    @property
    def hours(self) -> float:
        """Hours of all workers together for the runs still to do; NaN where nothing was timed."""
        if self.runs == self.done and self.images is not None:
            return 0.0
        return self.steps_worth / self.speed.images_per_second / self.workers / _HOUR

    @property
    def hours_error(self) -> float:
        """Its standard error, from that of the speed."""
        return self.hours * self.speed.error / self.speed.images_per_second if self.hours else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Numbers ready for JSON; what is not known is None."""
        speed = self.speed
        numbers = {
            "id": self.id, "configuration": self.configuration, "runs": self.runs, "done": self.done,
            "parameters": self.parameters, "prunable": self.prunable, "images": self.images,
            "images_per_second": speed.images_per_second, "images_per_second_error": speed.error,
            "timed_batch_size": speed.batch_size, "flops_per_image": speed.flops, "device_peak": speed.peak,
            "share_of_peak": speed.share, "hours": self.hours, "hours_error": self.hours_error, "note": speed.note,
        }  # fmt: skip
        return {name: _known(value) for name, value in numbers.items()}


@dataclass(frozen=True)
class Estimate:
    """What several artifacts would take.

    >>> print(estimate(["hayou/tab4"], "paper"))                # runs, weights, images, images a second, hours
    >>> estimate(["hayou/tab4"], "paper").to_dict()["hours"]

    Attributes:
        preset: the preset.
        device: what it was measured on, in words.
        workers: runs under way at the same time: one a CPU core or an accelerator, no more than there are left.
        seconds: that the measurement took.
        lines: one a configuration, in the order of the artifacts.
    """

    preset: str
    device: str
    workers: int
    seconds: float
    lines: tuple[Line, ...] = field(repr=False)

    @property
    def hours(self) -> float:
        """Of everything that was timed."""
        return sum(line.hours for line in self.lines if not math.isnan(line.hours))

    @property
    def hours_error(self) -> float:
        """Its standard error, as far as it is known; lines with one timing have the same speed and add up."""
        together: dict[int, float] = {}
        for line in self.lines:
            if not math.isnan(line.hours_error):
                together[id(line.speed)] = together.get(id(line.speed), 0.0) + line.hours_error
        return math.hypot(*together.values())

    @property
    def untimed(self) -> tuple[Line, ...]:
        """Lines whose hours are not known and that have something left to run."""
        return tuple(line for line in self.lines if math.isnan(line.hours) and line.runs > line.done)

    def __str__(self) -> str:
        table = aligned([_HEADS, *map(_cells, self.lines)])
        lines = [f"dry run ({self.preset}) on {self.device}, measured for {self.seconds:.0f} s", table[0]]
        last = ""
        for line, text in zip(self.lines, table[1:], strict=True):
            if line.id != last:
                lines.append(line.id)
            last = line.id
            lines.append(text)
        lines += list(dict.fromkeys(f"note: {line.configuration.strip()}: {line.speed.note}" for line in self.lines
                                    if line.speed.note))  # fmt: skip
        lines.append(self._sum())
        return "\n".join(lines)

    def _sum(self) -> str:
        runs, done = (sum(getattr(line, name) for line in self.lines) for name in ("runs", "done"))
        images = sum(line.images or 0 for line in self.lines)
        parts = [f"together: {runs:,} runs, {done:,} of them done or shared"]
        if images:
            parts.append(f"{images:,} images to train on")
        if any(not math.isnan(line.hours) for line in self.lines):
            at_once = "one run at a time" if self.workers == 1 else f"{self.workers} runs at a time"
            error = f" ± {_hours(self.hours_error)}" if self.hours_error else ""
            parts.append(f"about {_hours(self.hours)}{error} here with {at_once}")
        if self.untimed:
            left = sum(line.runs - line.done for line in self.untimed)
            parts.append(f"the time of {left:,} {'further ' if len(parts) > 2 else ''}runs is not known")
        return "; ".join(parts) + "."

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; what is not known is None."""
        return {
            "preset": self.preset, "device": self.device, "workers": self.workers, "seconds": self.seconds,
            "hours": self.hours, "hours_error": self.hours_error,
            "runs": sum(line.runs for line in self.lines), "done": sum(line.done for line in self.lines),
            "lines": [line.to_dict() for line in self.lines],
        }  # fmt: skip

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a line."""
        import pandas

        return pandas.DataFrame([line.to_dict() for line in self.lines])


def estimate(
    ids: Sequence[str],
    preset: str = "paper",
    seconds: float = 20.0,
    store: "str | os.PathLike[str] | None" = None,
    *,
    workers: int | None = None,
) -> Estimate:
    """Runs, weights, images and hours of artifacts, without running them and without their data.

    >>> print(estimate(["hayou/tab2"], "paper", seconds=20.0))

    Args:
        ids: artifacts; :func:`epoch0.papers.catalogue.expand` makes them of names.
        preset: ``"quick"`` or ``"paper"``.
        seconds: of measurement in all, divided among the configurations that differ. One step of each is timed in any
            case, so it can take longer.
        store: a results file; runs that are in it are done. One that is missing counts as empty.
        workers: runs at the same time; default one a core, or one an accelerator.

    Raises:
        InputError: if an artifact or preset is unknown, seconds or workers cannot be used, or the file is no results
            file.
    """
    check_seconds(seconds)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers is {workers!r}; give the number of worker processes, 1 or more.")
    artifacts = [find(name) for name in dict.fromkeys(ids)]
    settings = [artifact.setting(preset) for artifact in artifacts]
    finished = set[str]()
    if store is not None and Path(store).exists():
        with Store(store, read_only=True) as kept:
            finished = kept.keys()
    begun = time.perf_counter()
    device = chosen_device()
    plans = [_Plan(each, setting) for each, setting in zip(artifacts, settings, strict=True)]
    plain = [line for plan in plans for line in plan.lines(finished)]
    left = [line for line in plain if line.runs > line.done]
    speeds = _speeds([line.cost for line in left if line.cost is not None], seconds)
    runs_left = sum(line.runs - line.done for line in left)
    at_once = min(workers or _at_once(device), max(1, runs_left))
    lines = tuple(_timed(line, speeds, at_once) for line in plain)
    return Estimate(preset, _name(device), at_once, time.perf_counter() - begun, lines)


class _Plan:
    """What one artifact would run."""

    def __init__(self, artifact: Artifact, setting: Any) -> None:
        self.id = artifact.id
        self.costs = tuple(artifact.costs(setting))
        self.trials: list[Trial] = []
        self.unknown = ""
        try:
            self.trials = artifact.trials(setting)
        except InputError as problem:  # a few choose their trials by looking at the data, which may not be here
            self.unknown = str(problem)

    def lines(self, seen: set[str]) -> list[Line]:
        """One a configuration, then one for all trials that no configuration names; their keys are seen from now on."""
        lines = []
        for cost in self.costs:
            keys = {trial.key for trial in cost.trials}
            share = len(keys - seen) / len(keys) if keys else 1.0
            left = round(share * cost.runs)
            lines.append(
                Line(self.id, cost.name, cost.runs, cost.runs - left, cost.parameters, cost.prunable,
                     left * cost.images, left * cost.steps_worth, cost=cost)
            )  # fmt: skip
            seen |= keys
        named = {trial.key for cost in self.costs for trial in cost.trials}
        rest = {trial.key for trial in self.trials} - named
        # costs that name no trials stand for all of them
        if rest and (named or not self.costs):
            lines.append(Line(self.id, "other trials" if named else "trials", len(rest), len(rest & seen)))
            seen |= rest
        if self.unknown:
            lines.append(Line(self.id, "trials", 0, 0, speed=replace(_UNMEASURED, note=self.unknown)))
        return lines


def _timed(line: Line, speeds: Mapping[str, Speed], workers: int) -> Line:
    """The line with what was measured."""
    if line.cost is None:
        return replace(line, workers=workers)
    speed = speeds.get(_timing(line.cost), _UNMEASURED)
    if line.cost.flops is not None:
        speed = replace(speed, flops=line.cost.flops)
    return replace(line, speed=speed, workers=workers)


def _speeds(costs: Sequence[Cost], seconds: float) -> dict[str, Speed]:
    """One timing for each configuration that differs; what one leaves of its share goes to those after it."""
    different = {_timing(cost): cost.probe for cost in costs if cost.probe is not None}
    end = time.perf_counter() + seconds
    found = {}
    for place, (timing, probe) in enumerate(different.items()):
        share = (end - time.perf_counter()) / (len(different) - place)
        measured = probe(max(share, _LEAST_SHARE * seconds / len(different)))
        found[timing] = measured if isinstance(measured, Speed) else Speed(float(measured))
    return found


def _timing(cost: Cost) -> str:
    return cost.timed_as or cost.name


def _cores() -> int:
    from dask.system import CPU_COUNT

    return int(CPU_COUNT)


def _at_once(device: "torch.device") -> int:
    """Runs that the engine gives out: one a core, one an accelerator."""
    if device.type != "cuda":
        return _cores()
    import torch

    return torch.cuda.device_count() if device.index is None else 1


def _name(device: "torch.device") -> str:
    """The device in words."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return f"{_cores()} CPU cores ({platform.machine()}), one thread a run"


def _cells(line: Line) -> tuple[str, ...]:
    """A row of the printed table."""
    speed = line.speed
    rate = "" if math.isnan(speed.images_per_second) else f"{speed.images_per_second:,.3g}"
    if rate and not math.isnan(speed.error):
        rate += f" ± {speed.error:,.2g}"
    return (
        f"  {line.configuration}", f"{line.runs:,}", f"{line.done:,}", _count(line.parameters), _count(line.prunable),
        _count(line.images), rate, "" if math.isnan(speed.share) else _percent(speed.share),
        "" if math.isnan(line.hours) else _hours(line.hours),
    )  # fmt: skip


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _percent(share: float) -> str:
    """Two digits, and all before the point."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _hours(hours: float) -> str:
    """A time in the unit that one reads."""
    if hours == 0:
        return "0"
    if hours < 1 / 60:
        return f"{3600 * hours:.2g} s"
    if hours < 1:
        return f"{60 * hours:.2g} min"
    return f"{hours:,.1f} h" if hours < 100 else f"{float(f'{hours:.2g}'):,.0f} h"


def _known(value: Any) -> Any:
    """None for NaN, which JSON has no sign for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
