"""The dry run: what reproducing figures and tables would take on this device: runs, steps, measured seconds a step."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from epoch0.arguments import Count, Positive, checked
from epoch0.experiments.cost import Cost
from epoch0.experiments.engine import cores
from epoch0.experiments.store import Store
from epoch0.files import StrPath
from epoch0.papers.catalogue import find
from epoch0.progress import format_duration
from epoch0.results import Result, aligned
from epoch0.train.device import chosen_device


@dataclass(frozen=True)
class EstimateLine:
    """One configuration of one artifact; ``done`` counts runs in the results file or listed further up. ``hours`` are
    those of all workers together; None stands for what is not known.
    """

    id: str
    configuration: str
    runs: int
    done: int
    steps: float | None = None
    seconds_a_step: float | None = None
    hours: float | None = None


@dataclass(frozen=True)
class Estimate(Result):
    """Runs, steps and hours of several artifacts on a device; one line a configuration."""

    preset: str
    device: str
    workers: int
    lines: tuple[EstimateLine, ...] = field(repr=False)

    @property
    def hours(self) -> float:
        """Hours of everything that was timed."""
        return math.fsum(line.hours or 0.0 for line in self.lines)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("  configuration", "runs", "done", "steps a run", "s a step", "time")]
        for line in self.lines:
            counts = f"{line.runs:,}", f"{line.done:,}", "" if line.steps is None else f"{line.steps:,.0f}"
            each = "" if line.seconds_a_step is None else f"{line.seconds_a_step:.2g}"
            hours = "" if line.hours is None else format_duration(3600 * line.hours)
            rows.append((f"  {line.configuration}", *counts, each, hours))
        head, *table = aligned(rows)
        text = [f"dry run ({self.preset}) on {self.device}", head]
        for id, group in groupby(zip(self.lines, table, strict=True), key=lambda pair: pair[0].id):
            text += [id, *(row for _, row in group)]
        runs, done = sum(line.runs for line in self.lines), sum(line.done for line in self.lines)
        parts = [f"together: {runs:,} runs, {done:,} of them done or shared"]
        if any(line.hours is not None for line in self.lines):
            at_once = "one run at a time" if self.workers == 1 else f"{self.workers} runs at a time"
            parts.append(f"about {format_duration(3600 * self.hours)} here with {at_once}")
        if unknown := sum(line.runs - line.done for line in self.lines if line.hours is None):
            parts.append(f"the time of {unknown:,} {'further ' if len(parts) > 1 else ''}runs is not known")
        if any(line.hours is not None and line.steps is None for line in self.lines):
            parts.append("times without steps were recorded on one core elsewhere")
        return "\n".join([*text, "; ".join(parts) + "."])

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "hours": self.hours, "lines": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(line) for line in self.lines]


def recorded(preset: str) -> dict[str, float]:
    """CPU seconds of each artifact whose trials are no trainings of a known step, as seconds.txt has them."""
    lines = [line.split() for line in Path(__file__).with_name("seconds.txt").read_text().splitlines()]
    return {id: float(seconds) for id, name, seconds in lines if name == preset}


@checked
def estimate(
    ids: Sequence[str],
    preset: str = "paper",
    seconds: Positive = 20.0,
    store: StrPath | None = None,
    workers: Count | None = None,
) -> Estimate:
    """Runs, steps and hours of artifacts, without running them and without their data.

    >>> print(estimate(["hayou/tab2"], "paper", seconds=20.0))                  # doctest: +SKIP

    ``seconds`` of measurement are divided among the configurations that differ, one step of each at least; runs in the
    results file ``store`` are done, one that is missing counts as empty.
    """
    plans, seen = [(artifact, artifact.setting(preset)) for artifact in map(find, dict.fromkeys(ids))], set[str]()
    if store is not None and Path(store).exists():
        with Store(store, read_only=True) as kept:
            seen = kept.keys()
    rows: list[tuple[str, str, int, int, Cost | None]] = []  # artifact, configuration, runs, done
    for artifact, setting in plans:
        for known in artifact.costs(setting) or (None,):
            keys = {trial.key for trial in (artifact.trials(setting) if known is None else known.trials)}
            rows.append((artifact.id, "trials" if known is None else known.name, len(keys), len(keys & seen), known))
            seen |= keys
    different = {cost.name: cost for _, _, runs, done, cost in rows if cost is not None and runs > done}
    times, end = dict[str, float](), time.perf_counter() + seconds
    for place, (name, cost) in enumerate(different.items()):
        share = (end - time.perf_counter()) / (len(different) - place)
        times[name] = cost.seconds_a_step(max(share, seconds / (4 * len(different))))
    device, left = chosen_device(), sum(runs - done for _, _, runs, done, _ in rows)
    own = torch.cuda.device_count() if device.type == "cuda" else cores()  # one run a core, or an accelerator
    at_once = min(workers or own or 1, max(1, left))
    lines, once = [], recorded(preset)
    for id, name, runs, done, known in rows:
        steps, each = None if known is None else known.steps, times.get(name)
        hours = None if steps is None else (runs - done) * steps * (each or 0.0) / at_once / 3600
        if hours is None and id in once:
            hours = once[id] * (1 - done / runs if runs else 1.0) / at_once / 3600
        lines.append(EstimateLine(id, name, runs, done, steps, each, hours))
    return Estimate(preset, str(device), at_once, tuple(lines))
