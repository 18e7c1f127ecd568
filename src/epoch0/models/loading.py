"""Model loading for the command line: a model named ``package.module:callable`` or ``path/file.py:callable``.

Weights come as safetensors only: reading a ``.pt`` file runs whatever code its author put inside (pickle), so it is
refused.
"""

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

import torch
from torch import nn

from epoch0.errors import InputError, suggest
from epoch0.seeds import generator

PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
"""File endings under which pickled weights travel; none of them is ever opened."""

SHOWN = 4
"""How many weight names an error lists before it only counts the rest."""

CONVERT = 'safetensors.torch.save_file(torch.load("{name}", weights_only=True), "{stem}.safetensors")'


def load_model(spec: str, weights: str | Path | None = None, *, seed: int = 0) -> nn.Module:
    """The module that a command-line name stands for.

    >>> load_model("torch.nn:Identity")
    Identity()
    >>> load_model("nets/small.py:build", weights="small.safetensors")        # doctest: +SKIP

    Args:
        spec: ``package.module:callable`` or ``path/file.py:callable``; the callable is a function returning a module,
            a subclass of ``nn.Module``, or a module itself, and is called without arguments. Packages are looked for
            in
            the working directory too, and a file may import its neighbours.
        weights: a safetensors file with exactly the names and shapes of the model's state.
        seed: what the user's code draws from torch's global generator while it builds the model; the generator is
            put back.

    Returns:
        The module, in the mode in which the user's code left it.

    Raises:
        InputError: for each way in which this can fail, naming the file, line, name or weight.
    """
    source, colon, attribute = str(spec).rpartition(":")
    if str(spec).lower().endswith(PICKLED):
        raise InputError(_pickle_refused(Path(spec), "the model as 'path/file.py:callable'"))
    if not colon or not source or not attribute or "/" in attribute or "\\" in attribute:
        raise InputError(
            f"the model {spec!r} names no callable; write 'path/file.py:callable' or 'package.module:callable'."
        )
    if weights is not None:
        _check_weights_path(Path(weights))
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    folder = str(Path(source).resolve().parent) if is_file else str(Path.cwd())
    seed_of_user_code = int(generator(seed).initial_seed() % 2**63)
    with _importing_from(folder), torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(sys.stderr):
        torch.manual_seed(seed_of_user_code)
        module = _import_file(Path(source)) if is_file else _import_package(source)
        model = _build(_attribute(module, source, attribute), spec, Path(source).name if is_file else source)
    if weights is not None:
        _load_weights(model, Path(weights))
    return model


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Let the user's file import its neighbours while it is being loaded, and only then."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        names = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
        raise InputError(f"the model file {str(path)!r} does not exist.{suggest(path.name, names)}")
    name = f"epoch0_model_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InputError(f"the model file {str(path)!r} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(found)
    # dataclasses and pickling inside the user's file look their own module up by name
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise InputError(f"the model file {str(path)!r} cannot be imported: {_where(problem, path.name)}") from problem
    return module


def _import_package(source: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (source == problem.name or source.startswith(problem.name + ".")):
            raise InputError(
                f"there is no module {problem.name!r} here (for the model {source!r}); "
                "install its package, run from its folder, or name a file: 'path/file.py:callable'."
            ) from problem
        raise InputError(f"the module {source!r} cannot be imported: {_where(problem, '')}") from problem
    except (Exception, SystemExit) as problem:
        raise InputError(f"the module {source!r} cannot be imported: {_where(problem, '')}") from problem


def _where(problem: BaseException, file: str) -> str:
    """File and line at which the user's code failed, then the failure itself.

    The innermost frame of the user's file is what its author has to look at, not the library below it.
    """
    text = f"{type(problem).__name__}: {problem}"
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
            own = [name for name in known if _makes_models(getattr(value, name), module.__name__)]
            offer = suggest(part, known) or (f" It defines {', '.join(own[:SHOWN])}." if own else "")
            raise InputError(f"{source!r} has no {part!r}.{offer}")
        value = getattr(value, part)
    return value


def _makes_models(value: Any, module: str) -> bool:
    """Could this name, defined in the user's module itself, be the one that was meant?"""
    if isinstance(value, nn.Module):
        return True
    if inspect.isclass(value):
        return issubclass(value, nn.Module) and value.__module__ == module
    return inspect.isfunction(value) and value.__module__ == module


def _build(target: Any, spec: str, file: str) -> nn.Module:
    if isinstance(target, nn.Module):
        return target
    if not callable(target):
        raise InputError(
            f"{spec!r} is a {type(target).__name__}; a function returning an nn.Module, an nn.Module class, "
            "or a module is needed."
        )
    needed = _required_arguments(target)
    if needed:
        raise InputError(
            f"{spec!r} needs {'the argument' if len(needed) == 1 else 'the arguments'} {', '.join(needed)}; "
            "it is called without any, so add a function that fills them in and name that one."
        )
    try:
        model = target()
    except (Exception, SystemExit) as problem:
        raise InputError(f"{spec!r} failed while building the model: {_where(problem, file)}") from problem
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec!r} returned a {type(model).__name__}; an nn.Module is needed.")
    return model


def _required_arguments(target: Any) -> list[str]:
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # compiled callables do not tell; calling them will
        return []
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in fixed]


def _pickle_refused(path: Path, instead: str) -> str:
    return (
        f"{str(path)!r} is a pickled file, and opening one runs whatever code is inside, so it is never read. "
        f"Give {instead}, with the weights as safetensors: {CONVERT.format(name=path.name, stem=path.stem)}"
    )


def _check_weights_path(path: Path) -> None:
    if path.suffix.lower() in PICKLED:
        raise InputError(_pickle_refused(path, "the architecture as the model"))
    if not path.is_file():
        names = sorted(p.name for p in path.parent.glob("*.safetensors")) if path.parent.is_dir() else []
        raise InputError(f"the weights file {str(path)!r} does not exist.{suggest(path.name, names)}")


def _load_weights(model: nn.Module, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        given = load_file(path)
    except (SafetensorError, OSError, ValueError) as problem:
        raise InputError(
            f"the weights file {str(path)!r} cannot be read as safetensors ({problem}); "
            "it is truncated, damaged, or in another format."
        ) from problem
    own = model.state_dict()
    missing = [name for name in own if name not in given and not _tied_to_given(own, name, given)]
    unexpected = [name for name in given if name not in own]
    shapes = [
        f"{name} is {tuple(given[name].shape)}, the model's {tuple(own[name].shape)}"
        for name in own
        if name in given and given[name].shape != own[name].shape
    ]
    problems = [
        f"{len(names)} {word}: {'; '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}"
        for word, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if names
    ]
    if problems:
        raise InputError(
            f"the weights in {str(path)!r} do not fit the model ({len(own)} tensors wanted, {len(given)} given): "
            + ", ".join(problems)
            + "."
        )
    model.load_state_dict(given, strict=False)


def _tied_to_given(own: dict[str, torch.Tensor], name: str, given: dict[str, torch.Tensor]) -> bool:
    """Is this tensor shared with one that the file holds?  Safetensors stores a shared tensor once, under one name."""
    mine = own[name]
    return any(other in given and mine.data_ptr() == own[other].data_ptr() and mine.numel() > 0 for other in own)
