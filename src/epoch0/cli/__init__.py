"""The command line: a thin face over the library; torch and the rest are imported inside the commands only."""

from typing import Annotated

import typer

from epoch0 import __version__
from epoch0.cli import _experiments, _models, _prune, _theory
from epoch0.heap import keep_freed_memory

app = typer.Typer(
    name="epoch0",
    help="Know your network before epoch 1: what it is at initialization, and what to change.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


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


for _part in (_models, _prune, _theory, _experiments):
    _part.register(app)


def main() -> None:
    """Entry point of the ``epoch0`` command."""
    keep_freed_memory()
    app(prog_name="epoch0")
