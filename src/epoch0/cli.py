"""The command line: a thin face over the library; torch and the rest are imported inside the commands only."""

import dataclasses
import functools
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from epoch0 import __version__
from epoch0.errors import InputError

app = typer.Typer(
    name="epoch0",
    help="Know your network before epoch 1: what it is at initialization, and what to change.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
theory = typer.Typer(no_args_is_help=True, help="Predictions that need no network: bounds and exact laws.")
data = typer.Typer(no_args_is_help=True, help="Data sets: what is there, fetch what is not.")
sweep = typer.Typer(no_args_is_help=True, help="Results of experiments that ran in several places.")
app.add_typer(theory, name="theory")
app.add_typer(data, name="data")
app.add_typer(sweep, name="sweep")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of data sets, looked in before EPOCH0_DATA and the cache.")
]


class BatchNorm(StrEnum):
    """Which statistics a batch norm uses while it is measured."""

    train = "train"
    eval = "eval"


class Preset(StrEnum):
    """How much of the paper's setting an artifact runs."""

    quick = "quick"
    paper = "paper"


class Law(StrEnum):
    """Weight laws that the command line can name."""

    gaussian = "gaussian"
    uniform = "uniform"
    discrete = "discrete"


def _command(group: typer.Typer, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose user errors are one line on stderr and exit code 2."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                function(*args, **kwargs)
            except InputError as problem:
                typer.echo(f"error: {problem}", err=True)
                raise typer.Exit(2) from None
            except RuntimeError as problem:
                # a trial that could not be finished is reported like bad input; any other RuntimeError is a bug of ours
                if type(problem).__name__ != "TrialError":
                    raise
                typer.echo(f"error: {problem}", err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt:
                typer.echo("stopped; what was finished is kept, and the same command goes on from there.", err=True)
                raise typer.Exit(130) from None

        group.command(**options)(guarded)
        return guarded

    return register


def _version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(f"epoch0 {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = None,
) -> None:
    """Know your network before epoch 1: what it is at initialization, and what to change."""


@_command(app, name="checkup")
def checkup(
    model: Annotated[
        str,
        typer.Argument(
            help="package.module:callable or path.py:callable that gives a torch module. It is your code; it is run."
        ),
    ],
    data_name: Annotated[
        str | None,
        typer.Option("--data", help="Inputs: digits, mnist, fashion-mnist, cifar10 or a path.npz with x and y."),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(help="Gaussian inputs of this shape instead of data, such as 784 or 3,32,32.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="A safetensors file with the weights; never a pickle.")] = None,
    batch: Annotated[int, typer.Option(help="Number of inputs.")] = 64,
    batch_norm: Annotated[
        BatchNorm, typer.Option(help="Batch norm as training sees it, or with its running statistics.")
    ] = BatchNorm.train,
    directions: Annotated[int, typer.Option(help="Random directions a layer; more make the errors smaller.")] = 8,
    seed: Annotated[int, typer.Option(help="Names the random directions and inputs.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write one self-contained page with pictures.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell what a model is before training: phase, verdict, and what to change."""
    from epoch0 import models
    from epoch0.diagnosis import checkup as examine

    network = models.load_model(model, weights=weights, seed=seed)
    given = models.inputs_for(
        network, data=data_name, input_shape=input_shape, batch=batch, seed=seed, data_dir=data_dir
    )
    result = examine(
        network, given.x, given.targets, batch_norm=batch_norm.value, directions=directions, seed=seed, name=model,
        inputs=given.description,
    )  # fmt: skip
    if html is not None:
        result.to_html(html)
    if as_json:
        _print_json(result.to_dict())
    else:
        result.print()
        if html is not None:
            typer.echo(f"page: {html}")


@_command(app, name="reproduce")
def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Artifacts such as price-tanner/fig3b, a paper such as price-tanner, or all."),
    ] = None,
    preset: Annotated[
        Preset, typer.Option(help="quick: a minute on two cores; paper: the paper's own setting.")
    ] = Preset.quick,
    out: Annotated[Path, typer.Option(help="Folder for tables, pictures and results.")] = Path("results"),
    workers: Annotated[int | None, typer.Option(help="Worker processes; default one a core.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler, such as tcp://head:8786.")] = None,
    shard: Annotated[
        str | None, typer.Option(help="Run only part i of n, as i/n, into its own results file; join with sweep merge.")
    ] = None,
    data_dir: DataDir = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the artifacts and leave.")] = False,
    as_json: Json = False,
) -> None:
    """Regenerate figures and tables of the papers, with their claims decided."""
    from epoch0.papers import catalogue

    if list_all:
        rows = [{"id": artifact.id, "what": artifact.title} for artifact in catalogue.catalogue().values()]
        _print_rows(rows, as_json)
        return
    if not ids:
        raise InputError("no artifact was named; give ids, a paper, or all (epoch0 reproduce --list shows them).")
    from epoch0.experiments.progress import Progress
    from epoch0.papers.reproduce import reproduce_all

    results = []
    names = [name for given in ids for name in catalogue.expand(given)]
    for done in reproduce_all(
        list(dict.fromkeys(names)), preset=preset.value, out=out, workers=workers, scheduler=scheduler, shard=shard,
        data_dir=data_dir, progress=Progress(),
    ):  # fmt: skip
        results.append(done.to_dict())
        if not as_json:
            typer.echo(str(done))
    if as_json:
        _print_json(results)
    elif shard is None:
        typer.echo(f"tables, pictures and claims: {out}")


@_command(theory, name="growth")
def growth(
    width: Annotated[int, typer.Option(help="Width k of every layer.")] = 784,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 10,
    law: Annotated[Law, typer.Option(help="Law of the weights.")] = Law.gaussian,
    std: Annotated[float, typer.Option(help="Std of a kept weight before the division by sqrt(width).")] = 2.0,
    density: Annotated[float, typer.Option(help="Fraction of the weights kept (alpha), in (0, 1].")] = 1.0,
    largest: Annotated[int, typer.Option(min=1, help="Discrete law: the integers -C..C, scaled to the std.")] = 3,
    activation: Annotated[str, typer.Option(help="relu or leaky_relu.")] = "relu",
    as_json: Json = False,
) -> None:
    """Growth of a trajectory's length a layer and over the depth: bounds and, where known, the exact law."""
    from epoch0 import distributions
    from epoch0.theory import growth as laws

    if width < 1 or depth < 1:
        raise InputError(f"width {width} and depth {depth} must both be at least 1.")
    unit: distributions.Law = {
        Law.gaussian: distributions.Gaussian(std),
        Law.uniform: distributions.Uniform(std * 3**0.5),
        Law.discrete: distributions.integers(largest, scale=std / (largest * (largest + 1) / 3) ** 0.5),
    }[law]
    entry = distributions.Sparse(unit, density).scaled(width**-0.5)
    bounds = laws.bounds(entry, [width] * depth, activation=activation)
    if as_json:
        _print_json(bounds.to_dict())
    else:
        typer.echo(str(bounds))


@_command(data, name="list")
def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """What there is, and where it was found."""
    from epoch0.data import available

    rows = [dataclasses.asdict(row) for row in available(data_dir)]
    _print_rows([{**row, "found": row["found"] and str(row["found"])} for row in rows], as_json)


@_command(data, name="fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10 or cifar100.")],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Download a data set and check it, content against checksum."""
    from epoch0.data import fetch

    where = fetch(name, data_dir, progress=lambda line: typer.echo(line, err=True))
    _print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))


@_command(data, name="path")
def data_path(
    name: Annotated[str, typer.Argument(help="Name of a data set.")], data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Where a data set lies."""
    from epoch0.data import path

    where = path(name, data_dir)
    _print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))


@_command(sweep, name="merge")
def sweep_merge(
    sources: Annotated[list[Path], typer.Argument(help="Results files to join.")],
    into: Annotated[Path, typer.Option(help="Results file that takes all of them; made if it is not there.")],
    as_json: Json = False,
) -> None:
    """Join the results files of a job array into one."""
    from epoch0.experiments.store import merge

    added = merge(sources, into)
    _print_json({"into": str(into), "added": added}) if as_json else typer.echo(f"{added} trials added to {into}")


@_command(app, name="demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo-out"),
    workers: Annotated[int | None, typer.Option(help="Worker processes; default one a core.")] = None,
    as_json: Json = False,
) -> None:
    """Check three networks on real digits, train them to see who was right, and regenerate one figure: a minute."""
    from epoch0.demo import run

    summary = run(out, workers=workers, echo=None if as_json else typer.echo)
    if as_json:
        _print_json(summary)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def _print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console().print(table)


def main() -> None:
    """Entry point of the ``epoch0`` command."""
    app(prog_name="epoch0")
