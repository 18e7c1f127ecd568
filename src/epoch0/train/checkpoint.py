"""Checkpoints of a training run: tensors and plain numbers in one safetensors file, written whole or not at all.

Nothing is pickled, so reading a checkpoint runs no code. A digest over every tensor and every number is kept in the
header, and a file that was cut, altered or made by another run is refused by name.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from epoch0.errors import InputError

FORMAT = "epoch0 training 1"
"""Version of the layout; a file that states another one is not read."""

SHOWN = 3
"""How many differences an error lists before it only counts the rest."""


def digest(header: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over a header and named CPU tensors: names, dtypes, shapes and bytes.

    >>> digest("{}", {"a": torch.zeros(2)}) == digest("{}", {"a": torch.zeros(3)})
    False
    """
    total = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def plain_names(model: nn.Module) -> dict[str, str]:
    """Each name of a model's state -> its name in the plain model, without what compiling and wrapping put in front.

    >>> plain_names(torch.compile(nn.Linear(2, 1)))
    {'_orig_mod.weight': 'weight', '_orig_mod.bias': 'bias'}
    """
    wrapped = isinstance(model, nn.parallel.DistributedDataParallel)
    names = {name: name.replace("_orig_mod.", "") for name in model.state_dict()}
    return {name: plain.removeprefix("module.") if wrapped else plain for name, plain in names.items()}


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, numbers: Mapping[str, Any]) -> None:
    """Write one checkpoint; afterwards the path holds either the whole new one or the old one, untouched.

    >>> save(Path("run.safetensors"), model, optimizer, {"step": 100})          # doctest: +SKIP

    Args:
        path: where; its folder must exist.
        model: its whole ``state_dict`` goes in, on the CPU, under the names of the plain model.
        optimizer: its state tensors go in; its settings belong into ``numbers``.
        numbers: whatever JSON can hold.

    Raises:
        InputError: if the disk is full or the path cannot be written.
    """
    # clones, because safetensors refuses tensors which share memory (tied weights)
    names = plain_names(model)
    tensors = {f"model.{names[name]}": _copied(value) for name, value in model.state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.{index}.{key}"] = _copied(value)
    header = json.dumps({"format": FORMAT, **numbers}, sort_keys=True)
    content = to_bytes(tensors, {"epoch0": header, "sha256": digest(header, tensors)})
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        kept = "the checkpoint written before it is intact" if path.exists() else "no checkpoint exists yet"
        raise InputError(
            f"the checkpoint {str(path)!r} ({len(content):,} bytes) cannot be written: {problem.strerror or problem}; "
            f"{kept}. Free some space or name another path, then run again."
        ) from problem


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, run: Mapping[str, Any]) -> dict[str, Any]:
    """Put a checkpoint back into a model and its optimizer, after checking that it is whole and belongs to this run.

    >>> numbers = load(Path("run.safetensors"), model, optimizer, {"seed": 0})  # doctest: +SKIP

    Args:
        path: an existing file.
        model: gets the stored parameters and buffers; untouched if anything is wrong.
        optimizer: gets the stored state tensors, moved to where its parameters are.
        run: the settings of the present run, compared with ``numbers["run"]`` of the file.

    Returns:
        The numbers given to :func:`save`.

    Raises:
        InputError: naming the file and what is wrong with it: cut, altered, foreign, of another model or another run.
    """
    numbers, tensors = _read(path)
    given = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    names = plain_names(model)
    _check_model(path, {names[name]: value for name, value in model.state_dict().items()}, given)
    stored: dict[str, Any] = numbers["run"]
    # a setting that is not there is one that was left alone, in the file or in this run
    settings = [(key, stored.get(key), run.get(key)) for key in {**stored, **run}]
    changed = [f"{key} {old!r} (now {new!r})" for key, old, new in settings if old != new]
    if changed:
        raise InputError(
            f"the checkpoint {str(path)!r} was made by a run with {', '.join(changed)}; "
            "repeat that run's arguments to resume it, or name another path to start anew."
        )
    model.load_state_dict({name: given[plain] for name, plain in names.items()})
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return numbers


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    # in one piece, whatever the memory layout: safetensors takes nothing else
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if "epoch0" not in metadata or "sha256" not in metadata:
                raise InputError(
                    f"{str(path)!r} is a safetensors file but not a checkpoint of a training run; "
                    "name another path to start anew."
                )
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as problem:
        size = f" ({path.stat().st_size:,} bytes)" if path.is_file() else ""
        raise InputError(
            f"the checkpoint {str(path)!r}{size} cannot be read: it is cut short, damaged or in another format "
            f"({problem}). Delete it to start anew."
        ) from problem
    stored, computed = metadata["sha256"], digest(metadata["epoch0"], tensors)
    if stored != computed:
        raise InputError(
            f"the checkpoint {str(path)!r} is damaged: its content has the checksum {computed[:16]}..., "
            f"{stored[:16]}... was recorded. Delete it to start anew."
        )
    numbers: dict[str, Any] = json.loads(metadata["epoch0"])
    if numbers["format"] != FORMAT:
        raise InputError(
            f"the checkpoint {str(path)!r} has the layout {numbers['format']!r}; this version reads {FORMAT!r}."
        )
    return numbers, tensors


def _check_model(path: Path, own: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> None:
    def kind(tensor: torch.Tensor) -> str:
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"

    wrong = [f"{name} is missing" for name in own if name not in given]
    wrong += [f"{name} is not in the model" for name in given if name not in own]
    wrong += [
        f"{name} is {kind(given[name])}, the model's {kind(own[name])}"
        for name in own
        if name in given and kind(given[name]) != kind(own[name])
    ]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise InputError(f"the checkpoint {str(path)!r} is of another model: {'; '.join(wrong[:SHOWN])}{more}.")
