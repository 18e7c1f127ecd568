"""Commands on data sets: what is there, fetch what is not."""

import dataclasses
from typing import Annotated

import typer

from epoch0.cli._shared import DataDir, Json, command, print_json, print_rows


def register(app: typer.Typer) -> None:
    """Put the commands on the app."""
    data = typer.Typer(no_args_is_help=True, help="Data sets: what is there, fetch what is not.")
    command(data, name="list")(data_list)
    command(data, name="fetch")(data_fetch)
    command(data, name="path")(data_path)
    app.add_typer(data, name="data")


def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """What there is, and where it was found."""
    from epoch0.data import available

    rows = [dataclasses.asdict(row) for row in available(data_dir)]
    print_rows([{**row, "found": row["found"] and str(row["found"])} for row in rows], as_json)


def data_fetch(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10 or cifar100.")],
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
    name: Annotated[str, typer.Argument(help="Name of a data set.")], data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Where a data set lies."""
    from epoch0.data import path

    where = path(name, data_dir)
    print_json({"name": name, "path": str(where)}) if as_json else typer.echo(str(where))
