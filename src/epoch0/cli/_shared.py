"""What all commands share: reporting user errors, options of several commands, printing as tables or JSON."""

import functools
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from epoch0.errors import InputError
from epoch0.files import to_write, write_atomic

Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
DataDir = Annotated[Path | None, Option("--data-dir", help="Folder of data sets, before EPOCH0_DATA and the cache.")]


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose user errors are one line on stderr and exit code 2."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # the name of a file may be no text
        try:
            function(*args, **kwargs)
        except (InputError, RuntimeError, OSError) as problem:
            # an unfinished trial is reported like bad input, as what the system refuses is; any other
            # RuntimeError is a bug of ours, and who closes a pipe has seen enough
            known = isinstance(problem, InputError | OSError) and not isinstance(problem, BrokenPipeError)
            if not known and type(problem).__name__ != "TrialError":
                raise
            typer.echo(f"error: {problem}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            kept = "; what was finished is kept, and the same command goes on from there"
            typer.echo(f"stopped{kept if function.__name__ == 'reproduce' or kwargs.get('stream') else ''}.", err=True)
            raise typer.Exit(130) from None

    return command


def check_picture(path: Path) -> Path:
    return to_write(path, "picture", (".png", ".svg", ".pdf"))


def save_picture(figure: Any, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower())
    write_atomic(path, content.getvalue(), "picture")


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def print_result(found: Any, as_json: bool, *more: str) -> None:
    print_json(found.to_dict()) if as_json else typer.echo("\n".join([str(found), *more]))


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console().print(table)
