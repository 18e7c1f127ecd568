"""Model loading for the command line: ``package.module:callable``, ``path/file.py:callable`` or a library's model.

Weights come as safetensors only: reading a ``.pt`` file runs whatever code its author put inside (pickle), so it is
refused.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import nn

from epoch0.errors import InputError, suggest
from epoch0.models.libraries import is_library_model, library_model
from epoch0.models.objects import SHOWN, named_object, where

PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
"""File endings under which pickled weights travel; none of them is ever opened."""

CONVERT = 'safetensors.torch.save_file(torch.load("{name}", weights_only=True), "{stem}.safetensors")'


def load_model(spec: str, weights: str | Path | None = None, *, seed: int = 0) -> nn.Module:
    """The module that a command-line name stands for.

    >>> load_model("torch.nn:Identity")
    Identity()
    >>> load_model("nets/small.py:build", weights="small.safetensors")        # doctest: +SKIP

    Args:
        spec: ``package.module:callable`` or ``path/file.py:callable``; the callable is a function returning a module,
            a subclass of ``nn.Module``, or a module itself, and is called without arguments. Packages are looked for
            in the working directory too, and a file may import its neighbours. Or a model of a library with random
            weights, see :func:`epoch0.models.libraries.library_model`: ``timm:resnet50``.
        weights: a safetensors file with exactly the names and shapes of the model's state.
        seed: what the user's code draws from torch's global generator while it builds the model; the generator is
            put back.

    Returns:
        The module, in the mode in which the user's code left it.

    Raises:
        InputError: for each way in which this can fail, naming the file, line, name or weight.
    """
    if str(spec).lower().endswith(PICKLED):
        raise InputError(_pickle_refused(Path(spec), "the model as 'path/file.py:callable'"))
    if weights is not None:
        _check_weights_path(Path(weights))
    if is_library_model(spec):
        model = library_model(spec, seed=seed)
    else:
        with named_object(spec, "model", seed=seed) as (target, file):
            model = _build(target, spec, file)
    if weights is not None:
        _load_weights(model, Path(weights))
    return model


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
        raise InputError(f"{spec!r} failed while building the model: {where(problem, file)}") from problem
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
