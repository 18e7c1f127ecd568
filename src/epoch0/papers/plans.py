"""What reproducing asks for before anything runs: trials that can be made, data that are there, workers that suit."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epoch0 import data
from epoch0.experiments.engine import Engine
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import Store
from epoch0.papers.catalogue import Artifact, OldArtifact, find

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Plan:
    """What is to be run for one artifact."""

    artifact: Artifact | OldArtifact
    setting: Any
    trials: list[Trial]


class Plans:
    """The trials of several artifacts, made before any file is: what cannot run leaves nothing behind."""

    def __init__(self, ids: Sequence[str], preset: str, data_dir: StrPath | None) -> None:
        artifacts = [find(name) for name in ids]
        settings = [artifact.setting(preset) for artifact in artifacts]
        self.data_dir = data_dir
        with self.data_found():
            for name in dict.fromkeys(a.data(setting) for a, setting in zip(artifacts, settings, strict=True)):
                if name is not None:
                    data.path(name)  # absent data is told here, once, and not by every worker
            pairs = zip(artifacts, settings, strict=True)
            self.plans = [Plan(artifact, setting, artifact.trials(setting)) for artifact, setting in pairs]

    @contextmanager
    def data_found(self) -> Iterator[None]:
        """Data sets are looked for in the folder first, by this process and by the workers it starts."""
        with environment("EPOCH0_DATA", self.data_dir):
            yield


@contextmanager
def environment(name: str, folder: StrPath | None) -> Iterator[None]:
    """A folder under that name in the environment of this process and of its workers; None changes nothing."""
    if folder is None:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = os.fspath(Path(folder).resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def prepared(
    planned: Plans,
    out: StrPath | None,
    store: StrPath | None,
    shard: str | None,
    workers: int | None,
    scheduler: str | None,
) -> Iterator[tuple[Store, "Engines"]]:
    """The results file and the workers, closed in the end."""
    with ExitStack() as stack:
        engines = Engines(stack, workers, scheduler)
        stack.enter_context(planned.data_found())
        if store is None:
            name = "results.sqlite" if shard is None else f"results-{shard.replace('/', '-of-')}.sqlite"
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="epoch0-")) if out is None else out
            store = Path(folder) / name
        kept = stack.enter_context(Store(store))
        # a long training goes on from here when it was interrupted in its middle
        stack.enter_context(environment("EPOCH0_CHECKPOINTS", None if out is None else Path(out) / "checkpoints"))
        yield kept, engines


class Engines:
    """Workers for what computes on the cores, and for what trains where there are accelerators: one process each."""

    def __init__(self, stack: ExitStack, workers: int | None, scheduler: str | None) -> None:
        self._stack = stack
        self._workers, self._scheduler = workers, scheduler
        self._plain = stack.enter_context(Engine(workers=workers, scheduler=scheduler))
        self._training: Engine | None = None

    def of(self, plan: Plan) -> Engine:
        """The engine that suits an artifact."""
        if self._scheduler is not None or not plan.artifact.costs(plan.setting):
            return self._plain
        if self._training is None:
            count = accelerators()
            self._training = self._plain
            if count:
                engine = Engine(workers=self._workers or count, accelerators=count)
                self._training = self._stack.enter_context(engine)
        return self._training


def accelerators() -> int:
    """How many a training may choose among here; none if the environment names one device for all."""
    import torch

    from epoch0.train.device import chosen_device

    device = chosen_device()
    return torch.cuda.device_count() if device.type == "cuda" and device.index is None else 0
