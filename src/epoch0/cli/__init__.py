"""The command line: a thin layer over the library; torch and the rest are imported inside the commands only."""

import os
import signal
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any

import typer
from typer import Option

from epoch0 import __version__
from epoch0.cli import _models, _others
from epoch0.cli._shared import guarded


def _group(help: str, *functions: Callable[..., None], **settings: Any) -> typer.Typer:
    """Commands with the names of their functions, less a ``data_`` or ``sweep_`` in front."""
    group = typer.Typer(help=help, no_args_is_help=True, **settings)
    for function in functions:
        name = function.__name__.removeprefix("data_").removeprefix("sweep_").replace("_", "-")
        group.command(name)(guarded(function))
    return group


def _version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(f"epoch0 {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool | None, Option("--version", callback=_version, is_eager=True, help="The version.")] = None,
) -> None:
    """Know your network before epoch 1: what it is at initialization, and what to change."""


_on_models = (_models.checkup, _models.init, _models.regions, _models.prune)
_laws = (_others.growth, _others.eoc, _others.phase_diagram, _others.kernel, _others.width)
_on_data = (_others.data_list, _others.data_fetch, _others.data_path)
_more = (_others.reproduce, _others.demo, _others.doctor)
_look = dict[str, Any](pretty_exceptions_enable=False, rich_markup_mode="rich")
app = _group(str(_root.__doc__), *_on_models, *_more, name="epoch0", callback=_root, **_look)
app.add_typer(_group("Predictions that need no network: bounds and exact laws.", *_laws), name="theory")
app.add_typer(_group("Results of experiments that ran in several places.", _others.sweep_merge), name="sweep")
app.add_typer(_group("Data sets: what is there, fetch what is not.", *_on_data), name="data")


def _interrupted(number: int, frame: FrameType | None) -> None:
    if any(at.f_code.co_filename.startswith("<frozen importlib") for at, _ in traceback.walk_stack(frame)):
        os.write(2, b"stopped.\n")
        os._exit(130)  # half a module would be left to whoever asks for it next
    signal.default_int_handler(number, frame)


def main() -> None:
    signal.signal(signal.SIGINT, _interrupted)
    app(prog_name="epoch0")
