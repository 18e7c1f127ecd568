"""Regenerate figures and tables of the papers: run what is missing, decide the claims, draw, and write it all down."""

import csv
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from epoch0 import data, plots
from epoch0.arguments import Count, checked
from epoch0.errors import InputError
from epoch0.experiments.claims import VERDICTS, Claim
from epoch0.experiments.engine import Engine
from epoch0.experiments.experiment import Trial, canonical_json
from epoch0.experiments.run import Progress, run
from epoch0.experiments.store import Store
from epoch0.files import StrPath, made, to_write, unlinked, write_atomic
from epoch0.papers.catalogue import find
from epoch0.papers.sweep import Artifact, Results, Sweep
from epoch0.results import Grid, Result, finite, markdown


@dataclass(frozen=True, eq=False)
class Reproduction(Result):
    """One artifact, measured and decided.

    >>> done = reproduce("price-tanner/lemma10")
    >>> print(done)                                             # the claims, one by one
    price-tanner/lemma10 (quick): Mean of |u . w| against the constants of Lemmas 10 and 11
    ...
    >>> done.data[0]["law"], done.figure.axes[0].get_xlabel()
    ('uniform', 'vector u')
    >>> [path.name for path in done.save("results")]            # in results/price-tanner
    ['lemma10.csv', 'lemma10.json', 'lemma10.md', 'lemma10.png']
    """

    id: str  #: such as ``"price-tanner/fig3b"``
    preset: str  #: ``"quick"`` or ``"paper"``
    title: str  #: what it shows
    source: str  #: where it stands in the paper
    about: str  #: the setting in one line
    paper: str  #: the paper's own, where it differs
    setting: Sweep  #: what was run
    data: tuple[dict[str, Any], ...]  #: the table, one dict a row
    claims: tuple[Claim, ...]  #: the paper's statements, decided
    checks: tuple[Claim, ...]  #: what is true for every network, so tests the software
    figure: "plots.Figure"  #: the picture, a matplotlib figure
    tables: tuple[Grid, ...] = ()  #: what the paper prints as tables, measured beside printed

    def __str__(self) -> str:
        lines = [f"{self.id} ({self.preset}): {self.title}", f"  ran: {self.about}", f"  paper: {self.paper}"]
        counts, wide = Counter(claim.verdict for claim in self.claims), max(map(len, VERDICTS))
        for claim in self.claims + self.checks:
            word = "check " * claim.check + claim.verdict
            lines += [f"  {word:<{wide}} {claim.text}", f"  {'':<{wide}} {claim.evidence}"]
        lines += [f"  {line}" for grid in self.tables for line in str(grid).splitlines()]
        lines.append("  " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
        return "\n".join(line for line in lines if line)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the picture, ready for JSON; what is not a finite number is None."""
        plain: dict[str, Any] = {n: getattr(self, n) for n in ("id", "preset", "title", "source", "about", "paper")}
        names = ("text", "verdict", "evidence", "numbers", "needed")
        for kind in ("claims", "checks"):
            plain[kind] = [{name: getattr(claim, name) for name in names} for claim in getattr(self, kind)]
        plain["tables"] = [grid._asdict() for grid in self.tables]
        plain |= {"setting": json.loads(canonical_json(self.setting.to_dict())), "data": list(self.data)}
        return dict(finite(plain))

    def markdown(self) -> str:
        """Heading, picture, tables and claims as a page of Markdown, beside the picture."""
        parts = [f"# {self.id}: {self.title}", f"{self.preset}: {self.about}", f"paper: {self.paper}"]
        parts.append(f"![{self.title}]({self.id.rpartition('/')[2]}.png)")
        parts += [f"{grid.title}\n\n{markdown(grid.lines())}" for grid in self.tables]
        every = self.claims + self.checks
        claims = [("check " * item.check + item.verdict, item.text, item.evidence) for item in every]
        return "\n\n".join([*parts, markdown([("verdict", "claim", "evidence"), *claims])]) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        return list(self.data)

    def save(self, folder: StrPath) -> list[Path]:
        """Write ``<id>.csv``, ``.json`` (claims, checks and setting), ``.md`` and ``.png``, each whole or not at all.

        Gives back the four paths; the folder is made if it is missing, and the paper's name becomes a folder in it.

        Raises:
            InputError: if they cannot be written there.
        """
        table, plain = io.StringIO(), self.to_dict()
        columns = list(dict.fromkeys(name for row in self.data for name in row))
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.data)
        del plain["data"]
        texts = table.getvalue(), json.dumps(plain, indent=2, allow_nan=False) + "\n", self.markdown()
        contents = [*map(str.encode, texts), plots.png(self.figure)]
        with _outputs(Path(folder) / self.id) as paths:
            return [write_atomic(path, content) for path, content in zip(paths, contents, strict=True)]


@contextmanager
def _outputs(base: Path) -> Iterator[list[Path]]:
    """Where table, claims, page and picture go, in a folder that is made; an InputError if one cannot be written."""
    with made(unlinked(base.parent)):
        yield [to_write(base.with_name(base.name + ending)) for ending in (".csv", ".json", ".md", ".png")]


@dataclass(frozen=True)
class Part:
    """What one job of an array did, part ``"i/n"``: its trials are in the results file, nothing is decided yet."""

    id: str
    preset: str
    shard: str
    trials: int
    store: str

    def __str__(self) -> str:
        return f"{self.id} ({self.preset}), part {self.shard}: {self.trials} trials are in {self.store}"

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@checked
def reproduce(
    id: str,
    preset: str = "quick",
    *,
    out: StrPath | None = None,
    store: StrPath | None = None,
    workers: Count | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    data_dir: StrPath | None = None,
) -> Reproduction:
    """One figure or table of a paper, with its claims decided.

    >>> done = e0.reproduce("price-tanner/lemma10", preset="quick")
    >>> [claim.verdict for claim in done.claims]
    ['holds', 'holds', 'holds', 'fails']

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
    options: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "progress": progress, "data_dir": data_dir}
    (done,) = reproduce_all([id], preset, out=out, store=store, **options)
    assert isinstance(done, Reproduction)
    return done


@checked
def reproduce_all(
    ids: Sequence[str],
    preset: str = "quick",
    *,
    out: StrPath | None = None,
    store: StrPath | None = None,
    workers: Count | None = None,
    scheduler: str | None = None,
    shard: str | None = None,
    progress: Progress | None = None,
    data_dir: StrPath | None = None,
) -> Iterator[Reproduction | Part]:
    """Several artifacts one after another, with the same workers and one results file; trials they share run once.

    >>> for done in reproduce_all(expand("price-tanner"), out="results"):       # doctest: +SKIP
    ...     print(done)

    Each is given back as soon as it is done. Arguments are those of :func:`reproduce`, and ``shard``: ``"i/n"`` runs
    only the i-th of every n trials, into ``results-i-of-n.sqlite`` in ``out``, draws nothing and gives back a
    :class:`Part`; join the files with ``epoch0 sweep merge`` and reproduce again.

    Raises:
        InputError: as for :func:`reproduce`; an unknown artifact or preset, or absent data, fails before anything runs.
    """
    plans = planned(ids, preset, data_dir)

    def each() -> Iterator[Reproduction | Part]:
        with ExitStack() as stack:
            engine_of = _engines(stack, workers, scheduler)
            stack.enter_context(environment("EPOCH0_DATA", data_dir, ahead=True))
            path = store
            if path is None:
                name = "results.sqlite" if shard is None else f"results-{shard.replace('/', '-of-')}.sqlite"
                home = Path(out or stack.enter_context(tempfile.TemporaryDirectory(prefix="epoch0-")))
                path = unlinked(home / name, "results file")
            if out is not None:  # trials may take hours: what cannot be written fails before
                unlinked(Path(out) / "checkpoints")
                for plan in plans:
                    with _outputs(Path(out) / plan.artifact.id):
                        pass
            kept = stack.enter_context(Store(path))
            # a long training goes on from here when it was interrupted in its middle
            stack.enter_context(environment("EPOCH0_CHECKPOINTS", None if out is None else Path(out) / "checkpoints"))
            for plan in plans:
                if progress is not None:
                    progress.title = plan.artifact.id
                results = run(plan.trials, kept, engine=engine_of(plan), progress=progress, shard=shard)
                if shard is not None:
                    yield Part(plan.artifact.id, preset, shard, len(results), str(kept.path))
                    continue
                done = decided(plan.artifact, preset, plan.setting, results)
                if out is not None:
                    done.save(out)
                yield done

    return each()


def decided(artifact: Artifact, preset: str, setting: Sweep, results: Results) -> Reproduction:
    """Table, claims, and the picture with its heading: what it shows, and under which setting."""
    rows, claims, draw, tables = artifact.decided(setting, results)
    title, about, paper = artifact.titled(setting), artifact.caption(setting), artifact.of_paper(setting)
    with plots.style():
        picture = draw()
        plots.heading(picture, title, f"{artifact.id}, {preset}: {about}", f"paper: {paper}")
    counted, checks = (tuple(claim for claim in claims if claim.check is kind) for kind in (False, True))
    named = artifact.id, preset, title, artifact.source, about, paper
    return Reproduction(*named, setting, tuple(rows), counted, checks, picture, tables)


class ArtifactPlan(NamedTuple):
    """The trials of one artifact."""

    artifact: Artifact
    setting: Sweep
    trials: list[Trial]


@checked
def planned(ids: Sequence[str], preset: str, data_dir: StrPath | None) -> list[ArtifactPlan]:
    """The trials of several artifacts, made before any file is: what cannot run leaves nothing behind."""
    chosen = [(artifact, artifact.setting(preset)) for artifact in map(find, ids)]
    with environment("EPOCH0_DATA", data_dir, ahead=True):
        for name in dict.fromkeys(setting.data for _, setting in chosen):
            if name is not None:
                data.path(name)  # absent data fails here, once, and not in every worker
        return [ArtifactPlan(artifact, setting, artifact.trials(setting)) for artifact, setting in chosen]


@contextmanager
def environment(name: str, folder: StrPath | None, ahead: bool = False) -> Iterator[None]:
    """A folder under that name in the environment, of workers too, perhaps ``ahead`` of those there; None: as it is."""
    if folder is None:
        yield
        return
    before, given = os.environ.get(name), os.fspath(Path(folder).resolve())
    if ahead and os.pathsep in given:
        raise InputError(f"data folder {given!r}: {os.pathsep!r} is between folders in {name}; give one without it.")
    os.environ[name] = f"{given}{os.pathsep}{before}" if before and ahead else given
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _engines(stack: ExitStack, workers: int | None, scheduler: str | None) -> Callable[[ArtifactPlan], Engine]:
    """Workers for what computes on the cores, and for what trains where there are accelerators: one process each."""
    plain = stack.enter_context(Engine(workers=workers, scheduler=scheduler))

    @cache
    def training() -> Engine:
        import torch

        from epoch0.train.device import chosen_device

        device = chosen_device()  # the environment may name one for all trainings
        count = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 0
        return stack.enter_context(Engine(workers=workers or count, accelerators=count)) if count else plain

    return lambda plan: plain if scheduler is not None or plan.artifact.cost is None else training()
