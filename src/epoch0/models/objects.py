"""Python objects named on the command line, ``package.module:name`` or ``path/file.py:name``: the user's code, run."""

import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from epoch0.activations import Activation, get
from epoch0.arguments import checked
from epoch0.errors import InputError, suggest
from epoch0.files import explained, to_read
from epoch0.seeds import generator
from epoch0.tracing.guard import draw_anew, streams_kept

SHOWN = 4  # how many names an error lists


@contextlib.contextmanager
def named_object(spec: str, what: str, *, seed: int = 0) -> Iterator[tuple[Any, str]]:
    """Import what a command-line name stands for, and lend the surroundings in which it may be called.

    Inside, the file's neighbours can be imported, torch's global generator starts from the seed (and is put back
    afterwards), and what the user's code prints goes to stderr. Packages are looked for in the working directory too.
    ``what`` it is to be is for errors. Gives the object, and the file or module it came from, for :func:`where`.
    """
    source, colon, attribute = str(spec).rpartition(":")
    if not colon or not source or not attribute or "/" in attribute or "\\" in attribute:
        raise InputError(
            f"the {what} {spec!r} names no callable; write 'path/file.py:callable' or 'package.module:callable'."
        )
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    with explained(source, what, "read"):
        folder = str(Path(source).resolve().parent if is_file else Path.cwd())
    sys.path.insert(0, folder)
    try:
        with seeded(seed):
            missing = f"there is no module {{!r}} here (for the {what} {source!r}); install its package, run from its "
            missing += "folder, or name a file: 'path/file.py:callable'."
            module = _import_file(Path(source), what) if is_file else imported(source, missing)
            yield _attribute(module, source, attribute), Path(source).name if is_file else source
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run foreign code with torch's global generator at a seed, put back afterwards; what it prints goes to stderr."""
    start = int(generator(seed).initial_seed() % 2**63)
    with streams_kept(), contextlib.redirect_stdout(sys.stderr):
        draw_anew(start)
        yield


def _import_file(path: Path, what: str) -> ModuleType:
    to_read(path, what)
    name = f"epoch0_model_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InputError(f"the {what} file {str(path)!r} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(found)
    # dataclasses and pickling inside the user's file look their own module up by name
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise InputError(f"the {what} file {str(path)!r} cannot be imported: {where(problem, path.name)}") from problem
    return module


def imported(source: str, missing: str, what: str = "module", hint: str = "") -> ModuleType:
    """A module by its name; an InputError, ``missing`` where it is not there."""
    try:
        return importlib.import_module(source)
    except (Exception, SystemExit) as problem:
        lost = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if lost and (source == lost or source.startswith(lost + ".")):
            raise InputError(missing.format(lost)) from problem
        raise InputError(f"the {what} {source!r} cannot be imported: {where(problem, '')}{hint}") from problem


def where(problem: BaseException, file: str) -> str:
    """File and line at which the user's code failed: the innermost frame of its file, not of a library below it."""
    text = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
    if isinstance(problem, SyntaxError):
        return f"{Path(problem.filename or file).name}, line {problem.lineno}: SyntaxError: {problem.msg}"
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if not f.filename.startswith("<frozen")]
    frames = [f for f in frames if Path(f.filename) != Path(__file__)] or frames
    own = [f for f in frames if Path(f.filename).name == file] or frames[-1:]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {text}" if own else text


def _attribute(module: ModuleType, source: str, attribute: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [name for name in vars(value) if not name.startswith("_")]
            own = [name for name in known if _is_own(getattr(value, name), module.__name__)]
            offer = suggest(part, known) or (f" It defines {', '.join(own[:SHOWN])}." if own else "")
            raise InputError(f"{source!r} has no {part!r}.{offer}")
        value = getattr(value, part)
    return value


def _is_own(value: Any, module: str) -> bool:
    """Could this name, defined in the user's module itself, be the one that was meant?"""
    maker = inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, nn.Module))
    return isinstance(value, nn.Module) or (maker and value.__module__ == module)


@checked
def load_activation(spec: str) -> Activation:
    """The activation that a command-line name stands for.

    >>> load_activation("tanh").name
    'tanh'
    >>> load_activation("nets/phi.py:swoosh")                   # doctest: +SKIP

    A name that :func:`epoch0.activations.get` knows, or ``path/file.py:function`` or ``package.module:function``: an
    elementwise function of an array or a tensor, a module, or a class of them; an InputError for anything else.
    """
    if ":" not in spec:
        return get(spec)
    with named_object(spec, "activation") as (found, file):
        try:
            made = found() if inspect.isclass(found) and issubclass(found, nn.Module) else found
        except (Exception, SystemExit) as problem:
            raise InputError(f"{spec!r} failed while it was made: {where(problem, file)}") from problem
        if not isinstance(made, Activation) and not callable(made):
            raise InputError(
                f"{spec!r} is a {type(made).__name__}; an elementwise function of an array or a tensor is needed."
            )
        return get(made)
