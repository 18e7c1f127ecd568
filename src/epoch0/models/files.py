"""A batch from a file: arrays by name, from ``.npz`` or ``.safetensors``; nothing is unpickled."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.errors import InputError, check_finite, suggest

INPUTS, TARGETS = ("x", "inputs"), ("y", "targets", "labels")
"""Names of the one input and of the targets."""


def batch_from(path: str | Path, model: nn.Module) -> tuple[Any, Tensor | None, str]:
    """The batch in a file, its targets, and what they are in words.

    >>> batch_from("batch.npz", model)                          # doctest: +SKIP
    (tensor(...), tensor(...), "16 examples of batch.npz: x (16, 3, 224, 224), y (16,)")

    Args:
        path: ``.npz`` or ``.safetensors`` with ``x`` (or ``inputs``) for a model of one input, else with arrays that
            have the names of the model's arguments; and, where there are any, targets ``y``, ``targets`` or
            ``labels``. What the model's forward names, stays in the batch: ``labels`` of a model of transformers.
        model: whose forward is asked for the names of its arguments.

    Raises:
        InputError: if the file is missing, damaged or of another kind, or its names are not the model's.
    """
    path = Path(path)
    if not path.is_file():
        names = sorted(p.name for ending in ("npz", "safetensors") for p in path.parent.glob(f"*.{ending}"))
        raise InputError(f"the batch file {str(path)!r} does not exist.{suggest(path.name, names)}")
    readers = {".npz": _npz, ".safetensors": _safetensors}
    if path.suffix.lower() not in readers:
        raise InputError(f"a batch comes as .npz or .safetensors, not {path.name!r}; a pickle is never opened.")
    arrays = readers[path.suffix.lower()](path)
    if not arrays:
        raise InputError(f"{path} holds no arrays; it needs x, or the names of the model's arguments.")
    for name, array in arrays.items():
        check_finite(f"{name} in {path}", array)
    shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
    known = inspect.signature(model.forward).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    found = [name for name in TARGETS if name in arrays and name not in known]
    if len(found) > 1:
        raise InputError(f"{path} holds {' and '.join(found)}; only one of them can be the targets.")
    targets = arrays.pop(found[0]) if found else None
    if not arrays:
        raise InputError(f"{path} holds only {found[0]}; it needs x, or the names of the model's arguments.")
    said = f"{len(next(iter(arrays.values())))} examples of {path.name}: {shapes}"
    if len(arrays) == 1 and next(iter(arrays)) in INPUTS:
        return next(iter(arrays.values())), targets, said
    if unknown := [name for name in arrays if name not in known and not free]:
        raise InputError(
            f"{path} holds {', '.join(unknown)}, which the model's forward does not take; it takes "
            f"{', '.join(known)}.{suggest(unknown[0], known)}"
        )
    return arrays, targets, said


def _npz(path: Path) -> dict[str, Tensor]:
    found = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in archive.files:
                array = archive[name]
                if array.dtype.kind not in "buif":
                    raise InputError(f"{name} in {path} is of type {array.dtype}; it must hold real numbers.")
                floats = array.dtype.kind == "f"
                found[name] = torch.from_numpy(np.array(array, dtype=np.float64 if floats else None))
                if floats:
                    found[name] = found[name].to(torch.get_default_dtype())
                elif array.dtype.kind != "b":
                    found[name] = found[name].long()
    except InputError:
        raise
    except Exception as error:  # a damaged file makes zipfile and numpy raise any of a dozen unrelated types
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    return _filled(found, path)


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return _filled(load_file(path), path)
    except (SafetensorError, OSError, ValueError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{path} cannot be read as safetensors: {problem}.") from problem


def _filled(arrays: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    for name, array in arrays.items():
        if array.dim() == 0 or len(array) == 0:
            raise InputError(f"{name} in {path} has shape {tuple(array.shape)}; it needs at least one example.")
    return arrays
