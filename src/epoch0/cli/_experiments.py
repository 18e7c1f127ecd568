"""Commands on figures of the papers, results of several places, data sets; the demonstration, the doctor."""

import dataclasses
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from epoch0 import __version__
from epoch0.cli._shared import DataDir, Json, print_json, print_result, print_rows
from epoch0.errors import InputError


def reproduce(
    ids: Annotated[
        list[str] | None, Argument(help="Artifacts such as price-tanner/fig3b, a paper such as price-tanner, or all.")
    ] = None,
    preset: Annotated[
        Literal["quick", "paper"], Option(help="quick: a minute on two cores; paper: the paper's own setting.")
    ] = "quick",
    out: Annotated[Path, Option(help="Folder for tables, pictures and results.")] = Path("results"),
    workers: Annotated[int | None, Option(help="Worker processes; default one a core.")] = None,
    scheduler: Annotated[str | None, Option(help="Address of a dask scheduler, such as tcp://head:8786.")] = None,
    shard: Annotated[
        str | None, Option(help="Run only part i of n, as i/n, into its own results file; join with sweep merge.")
    ] = None,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Run nothing: print runs, weights, images and hours, measured here.")
    ] = False,
    seconds: Annotated[float, Option(help="Of measurement for a dry run.")] = 20.0,
    list_all: Annotated[bool, Option("--list", help="List the artifacts and leave.")] = False,
    statements: Annotated[
        bool, Option("--statements", help="Print every statement of the papers with its verdicts, and leave.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Regenerate figures and tables of the papers, with their claims decided."""
    from epoch0.papers import catalogue

    if list_all:
        known = catalogue.catalogue().values()
        print_rows([{"id": item.id, "what": item.titled(item.presets["paper"])} for item in known], as_json)
        return
    if statements:
        print_rows([{"paper": statement.paper, **statement.row()} for statement in catalogue.statements()], as_json)
        return
    if not ids:
        raise InputError("no artifact was named; give ids, a paper, or all (epoch0 reproduce --list shows them).")
    names = list(dict.fromkeys(name for given in ids for name in catalogue.expand(given)))
    if dry_run:
        from epoch0.papers.estimate import estimate

        # what the results file of the folder has is done
        print_result(estimate(names, preset, seconds, out / "results.sqlite", workers=workers), as_json)
        return
    from epoch0.experiments.run import Progress
    from epoch0.papers.reproduce import reproduce_all

    where = dict[str, Any](out=out, workers=workers, scheduler=scheduler, shard=shard, data_dir=data_dir)
    results = []
    for done in reproduce_all(names, preset=preset, progress=Progress("trials"), **where):
        results.append(done.to_dict())
        if not as_json:
            typer.echo(str(done))
    if as_json:
        print_json(results)
    elif shard is None:
        typer.echo(f"tables, pictures and claims: {out}")


def sweep_merge(
    sources: Annotated[list[Path], Argument(help="Results files to join.")],
    into: Annotated[Path, Option(help="Results file that takes all of them; made if it is not there.")],
    as_json: Json = False,
) -> None:
    """Join the results files of a job array into one."""
    from epoch0.experiments.store import merge

    added = merge(sources, into)
    print_json({"into": str(into), "added": added}) if as_json else typer.echo(f"{added} trials added to {into}")


def demo(
    out: Annotated[Path, Option(help="Folder for the report.")] = Path("demo-out"),
    workers: Annotated[int | None, Option(help="Worker processes; default one a core.")] = None,
    as_json: Json = False,
) -> None:
    """Check three networks on real digits, train them to see who was right, and regenerate one figure: a minute."""
    from epoch0.demo import run

    summary = run(out, workers=workers, echo=None if as_json else typer.echo)
    if as_json:
        print_json(summary)


def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """What there is, and where it was found."""
    from epoch0.data import available

    rows = [dataclasses.asdict(row) for row in available(data_dir)]
    print_rows([{**row, "found": row["found"] and str(row["found"])} for row in rows], as_json)


def data_fetch(
    name: Annotated[str, Argument(help="mnist, fashion-mnist, cifar10 or cifar100.")],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Download a data set and check it, content against checksum.

    Tiny ImageNet and ImageNet are not downloaded; epoch0 data list says where to put them.
    """
    from epoch0.data import fetch

    where = fetch(name, data_dir, progress=lambda line: typer.echo(line, err=True))
    print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))


def data_path(
    name: Annotated[str, Argument(help="Name of a data set.")], data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Where a data set lies."""
    from epoch0.data import path

    where = path(name, data_dir)
    print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))


def doctor(data_dir: DataDir = None, as_json: Json = False) -> None:
    """What this installation has: versions, devices, data sets, and the command that brings what is missing.

    Leaves with exit code 1 if something is missing that is not optional.
    """
    rows = [*_packages(), *_devices_and_data(data_dir)]
    print_rows(rows, as_json)
    if any(row["status"] == "missing" for row in rows):
        raise typer.Exit(1)


def _packages() -> Iterator[dict[str, Any]]:
    """Python, this package, and what it asks for; what the extra ``all`` asks for is optional."""
    from packaging.requirements import Requirement

    yield _row("python", platform.python_version(), "ok")
    yield _row("epoch0", __version__, "ok")
    for line in metadata.requires("epoch0") or []:
        wanted = Requirement(line)
        optional = wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})
        if optional and wanted.marker is not None and not wanted.marker.evaluate({"extra": "all"}):
            continue
        found = next((distribution.version for distribution in metadata.distributions(name=wanted.name)), None)
        word = "optional" if optional else "missing"
        fits = found is not None and wanted.specifier.contains(found, prereleases=True)
        yield _row(wanted.name, found, "ok" if fits else word, f"pip install '{wanted.name}{wanted.specifier}'")


def _devices_and_data(data_dir: Path | None) -> Iterator[dict[str, Any]]:
    import torch

    from epoch0.data import available
    from epoch0.data.catalogue import SETS

    yield _row("cpu", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads", "ok")
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield _row(f"cuda:{number}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB", "ok")
    if torch.backends.mps.is_available():
        yield _row("mps", "Apple's GPU", "ok")
    for item in available(data_dir):
        mend = "epoch0 data list says where to put it" if SETS[item.name].tree else f"epoch0 data fetch {item.name}"
        yield _row(item.name, None if item.found is None else str(item.found), "ok" if item.found else "optional", mend)


def _row(what: str, found: str | None, status: str, mend: str | None = None) -> dict[str, Any]:
    return {"what": what, "found": found, "status": status, "mend": None if status == "ok" else mend}
