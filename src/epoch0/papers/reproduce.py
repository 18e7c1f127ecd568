"""Regenerate a figure or table of a paper: run what is missing, decide its claims, draw it, write it down."""

import csv
import io
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0.errors import InputError
from epoch0.experiments.claims import Claim
from epoch0.experiments.experiment import canonical_json
from epoch0.experiments.progress import Progress
from epoch0.experiments.run import run
from epoch0.experiments.store import Store
from epoch0.papers.catalogue import Artifact, OldArtifact, Results
from epoch0.papers.plans import Engines, Plan, Plans, StrPath, prepared

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Reproduction:
    """One artifact, measured and decided.

    >>> done = reproduce("price-tanner/fig3b")
    >>> print(done)                                             # the claims, one by one
    >>> done.data[0]["growth"], done.figure.axes[0].get_xlabel()
    >>> done.save("results")                                    # results/price-tanner/fig3b.csv, .json and .png

    Attributes:
        id: such as ``"price-tanner/fig3b"``.
        preset: ``"quick"`` or ``"paper"``.
        title: what it shows.
        source: where it stands in the paper.
        about: the setting in one line.
        setting: the setting, a frozen dataclass.
        data: the table, one dict a row.
        claims: the paper's statements, decided.
        figure: the picture, a matplotlib figure.
    """

    id: str
    preset: str
    title: str
    source: str
    about: str
    setting: Any
    data: tuple[dict[str, Any], ...]
    claims: tuple[Claim, ...]
    figure: "Figure"

    def __str__(self) -> str:
        lines = [f"{self.id} ({self.preset}): {self.title}", f"  {self.about}" if self.about else ""]
        for claim in self.claims:
            lines += [f"  {claim.verdict:<10} {claim.text}", f"  {'':<10} {claim.evidence}"]
        counts = Counter(claim.verdict for claim in self.claims)
        lines.append("  " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("holds", "fails", "undecided")))
        return "\n".join(line for line in lines if line)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the picture, ready for JSON; what is not a finite number is None."""
        plain: dict[str, Any] = _finite(
            {
                "id": self.id,
                "preset": self.preset,
                "title": self.title,
                "source": self.source,
                "about": self.about,
                "setting": json.loads(canonical_json(getattr(self.setting, "to_dict", lambda: self.setting)())),
                "claims": [
                    {
                        "text": claim.text,
                        "verdict": claim.verdict,
                        "evidence": claim.evidence,
                        "numbers": dict(claim.numbers),
                        "needed": claim.needed,
                    }
                    for claim in self.claims
                ],
                "data": list(self.data),
            }
        )
        return plain

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame, one row a measurement."""
        import pandas

        return pandas.DataFrame(list(self.data))

    def save(self, folder: StrPath) -> list[Path]:
        """Write ``<id>.csv``, ``<id>.json`` (claims and setting) and ``<id>.png``, each whole or not at all.

        Args:
            folder: made if it is missing; the paper's name becomes a folder in it.

        Returns:
            The three paths.

        Raises:
            InputError: if they cannot be written there.
        """
        base = Path(folder) / self.id
        told = {name: value for name, value in self.to_dict().items() if name != "data"}
        contents: dict[str, bytes] = {
            ".csv": self._csv().encode(),
            ".json": (json.dumps(told, indent=2, allow_nan=False) + "\n").encode(),
            ".png": self._png(),
        }
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:
                # everything is on the disk before the first name changes
                paths = [(base.with_name(base.name + ending), content) for ending, content in contents.items()]
                ready = [stack.enter_context(_beside(path, content)) for path, content in paths]
                return [put_in_place() for put_in_place in ready]
        except OSError as error:
            raise InputError(f"{base}.csv, .json and .png cannot be written: {error}.") from error

    def _csv(self) -> str:
        columns = list(dict.fromkeys(name for row in self.data for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.data)
        return text.getvalue()

    def _png(self) -> bytes:
        from epoch0.plots import png

        return png(self.figure)


@dataclass(frozen=True)
class Part:
    """What one job of an array did: trials of an artifact are in its results file, nothing is decided yet.

    Attributes:
        id: the artifact.
        preset: its preset.
        shard: which part, as ``"i/n"``.
        trials: how many trials the part has.
        store: the results file.
    """

    id: str
    preset: str
    shard: str
    trials: int
    store: str

    def __str__(self) -> str:
        return f"{self.id} ({self.preset}), part {self.shard}: {self.trials} trials are in {self.store}"

    def to_dict(self) -> dict[str, Any]:
        """The attributes, ready for JSON."""
        return dict(vars(self))


def reproduce(
    id: str,
    preset: str = "quick",
    *,
    out: StrPath | None = None,
    store: StrPath | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    data_dir: StrPath | None = None,
) -> Reproduction:
    """One figure or table of a paper, with its claims decided.

    >>> done = e0.reproduce("price-tanner/fig3b", preset="quick")
    >>> [claim.verdict for claim in done.claims]                # as many as the paper makes about it

    Args:
        id: the artifact; ``epoch0.papers.catalogue.catalogue()`` lists them.
        preset: ``"quick"`` (a minute on two cores, nothing to download) or ``"paper"`` (the paper's own setting).
        out: folder for table, claims and picture; None writes nothing.
        store: results file, from which finished trials are taken; default ``results.sqlite`` in ``out``, or none.
        workers: processes on this machine, default one per CPU.
        scheduler: address of a dask scheduler instead.
        progress: shows how far the trials are; None shows nothing.
        data_dir: folder of data sets, looked in first.

    Raises:
        InputError: if there is no such artifact or preset, a data set is absent, or an argument cannot be used.
    """
    planned = Plans([id], preset, data_dir)
    with prepared(planned, out, store, None, workers, scheduler) as (kept, engines):
        return _reproduced(planned.plans[0], preset, out, kept, engines, progress)


def reproduce_all(
    ids: Sequence[str],
    preset: str = "quick",
    *,
    out: StrPath | None = None,
    store: StrPath | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    shard: str | None = None,
    progress: Progress | None = None,
    data_dir: StrPath | None = None,
) -> Iterator[Reproduction | Part]:
    """Several artifacts one after another, with the same workers and one results file; trials they share run once.

    >>> for done in reproduce_all(expand("price-tanner"), out="results"):
    ...     print(done)

    Args:
        ids: the artifacts.
        shard: ``"i/n"`` runs only the i-th of every n trials, into ``results-i-of-n.sqlite`` in ``out``, and draws
            nothing; join the files with ``epoch0 sweep merge`` and reproduce again.
        preset, out, store, workers, scheduler, progress, data_dir: as for :func:`reproduce`.

    Returns:
        One :class:`Reproduction` an artifact as soon as it is done, or with ``shard`` one :class:`Part`.

    Raises:
        InputError: as for :func:`reproduce`; an unknown artifact or preset, or absent data, is told before
            anything runs or is written.
    """
    planned = Plans(ids, preset, data_dir)

    def each() -> Iterator[Reproduction | Part]:
        with prepared(planned, out, store, shard, workers, scheduler) as (kept, engines):
            for plan in planned.plans:
                if shard is None:
                    yield _reproduced(plan, preset, out, kept, engines, progress)
                else:
                    results = _results(plan, kept, engines, progress, shard)
                    yield Part(plan.artifact.id, preset, shard, len(results), str(kept.path))

    return each()


def picture_of(artifact: Artifact | OldArtifact, preset: str, setting: Any, results: Results) -> "Figure":
    """The picture of an artifact with its heading: what it shows, and under which setting."""
    *_, draw = artifact.decided(setting, results)
    return _headed(artifact, preset, artifact.caption(setting), draw)


def _headed(artifact: Artifact | OldArtifact, preset: str, about: str, draw: "Callable[[], Figure]") -> "Figure":
    from epoch0 import plots

    with plots.style():
        picture = draw()
        plots.heading(picture, artifact.title, f"{artifact.id}, {preset}{': ' if about else ''}{about}")
    return picture


def _reproduced(
    plan: Plan, preset: str, out: StrPath | None, store: Store, engines: Engines, progress: Progress | None
) -> Reproduction:
    artifact, setting = plan.artifact, plan.setting
    results = _results(plan, store, engines, progress, None)
    rows, claims, draw = artifact.decided(setting, results)
    about = artifact.caption(setting)
    done = Reproduction(
        artifact.id, preset, artifact.title, artifact.source, about, setting, tuple(rows), tuple(claims),
        _headed(artifact, preset, about, draw),
    )  # fmt: skip
    if out is not None:
        done.save(out)
    return done


def _results(
    plan: Plan, store: Store, engines: Engines, progress: Progress | None, shard: str | None
) -> list[dict[str, Any]]:
    """Results of the trials, in their order; the missing ones are run."""
    if progress is not None:
        progress.title = plan.artifact.id
    return run(plan.trials, store, engine=engines.of(plan), progress=progress, shard=shard)


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Callable[[], Path]]:
    """The content under another name in the same folder, and a function that gives it its own."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)

        def put_in_place() -> Path:
            os.replace(temporary, path)
            return path

        yield put_in_place
    finally:
        Path(temporary).unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON has no signs for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
