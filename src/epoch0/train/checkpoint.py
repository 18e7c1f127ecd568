"""Checkpoints of a training run: tensors and plain numbers in one safetensors file, written whole or not at all.

Nothing is pickled, so reading a checkpoint runs no code. A digest over every tensor and every number is kept in the
header, and a file that was cut, altered or made by another run is refused by name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from epoch0.errors import InputError
from epoch0.files import write_atomic
from epoch0.initialization.files import digest
from epoch0.tracing.guard import bare

FORMAT = "epoch0 training 1"
"""Version of the layout; a file that states another one is not read."""


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, numbers: Mapping[str, Any]) -> None:
    """Write one checkpoint; afterwards the path holds either the whole new one or the old one, untouched.

    >>> save(Path("run.safetensors"), model, optimizer, {"step": 100})          # doctest: +SKIP

    The model's whole ``state_dict`` goes in, under the names it has before it is compiled, the state tensors of the
    optimizer, and ``numbers``, whatever JSON can hold.

    Raises:
        InputError: if the disk is full or the path cannot be written.
    """
    tensors = {f"model.{name}": _copied(value) for name, value in bare(model).state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.{index}.{key}"] = _copied(value)
    header = json.dumps({"format": FORMAT, **numbers}, sort_keys=True)
    content = to_bytes(tensors, {"epoch0": header, "sha256": digest(header, tensors)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    except OSError as problem:
        kept = "the checkpoint written before it is intact" if path.exists() else "no checkpoint exists yet"
        raise InputError(
            f"the checkpoint {str(path)!r} ({len(content):,} bytes) cannot be written: {problem.strerror or problem}; "
            f"{kept}. Free some space or name another path, then run again."
        ) from problem


def restore(
    path: Path, numbers: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], model: nn.Module,
    optimizer: torch.optim.Optimizer, run: Mapping[str, Any],
) -> None:  # fmt: skip
    """Put what :func:`read` gave back into a model and its optimizer, after checking that it belongs to this run."""
    given = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    _check_model(path, bare(model).state_dict(), given)
    stored: dict[str, Any] = numbers["run"]
    settings = [(key, stored.get(key), run.get(key)) for key in {**stored, **run}]
    changed = [f"{key} {old!r} (now {new!r})" for key, old, new in settings if old != new]
    if changed:
        raise InputError(
            f"the checkpoint {str(path)!r} was made by a run with {', '.join(changed)}; "
            "repeat that run's arguments to resume it, or name another path to start anew."
        )
    bare(model).load_state_dict(given)
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    # a clone, as safetensors refuses tensors which share memory (tied weights); in one piece whatever the layout
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The numbers and the tensors of a checkpoint, checked to be whole."""
    if path.is_dir():
        raise InputError(f"the checkpoint {str(path)!r} is a folder; name a file in it.")
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
    ours, theirs = (
        {name: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in tensors.items()}
        for tensors in (own, given)
    )
    wrong = [
        f"{name} is {theirs.get(name, 'missing')}, the model's {ours.get(name, 'missing')}"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(f"the checkpoint {str(path)!r} is of another model: {'; '.join(wrong[:3])}{more}.")
