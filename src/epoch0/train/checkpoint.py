"""Checkpoints of a training run: tensors and plain numbers in one safetensors file, written whole or not at all.

Nothing is pickled, so reading a checkpoint runs no code. A file that was cut, altered or made by another run is refused
by name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from epoch0.errors import InputError
from epoch0.files import made
from epoch0.initialization.files import from_json, impossible, load_tensors, save_tensors
from epoch0.results import first_names
from epoch0.tracing.guard import bare

LAYOUT = "epoch0 training 2"
Held = tuple[dict[str, Any], dict[str, torch.Tensor]]  # the numbers and the tensors of a checkpoint


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, numbers: Mapping[str, Any]) -> None:
    """The model's state, the optimizer's tensors and `numbers`, whatever JSON can hold, whole or not at all."""
    tensors = {f"model.{name}": value for name, value in bare(model).state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
    with made(path.parent):
        save_tensors(path, "checkpoint", LAYOUT, tensors, {"numbers": json.dumps(numbers, sort_keys=True)})


def restore(path: Path, held: Held, model: nn.Module, optimizer: torch.optim.Optimizer, run: Mapping[str, Any]) -> None:
    """Put what :func:`read` gave back into a model and its optimizer, after checking that it belongs to this run."""
    numbers, tensors = held
    given = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    ours, theirs = (
        {name: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for name, t in tensors.items()}
        for tensors in (bare(model).state_dict(), given)
    )
    pairs = [(name, theirs.get(name, "missing"), ours.get(name, "missing")) for name in {**ours, **theirs}]
    if wrong := [f"{name} is {their}, the model's {our}" for name, their, our in pairs if their != our]:
        raise InputError(f"the checkpoint {str(path)!r} is of another model: {first_names(wrong, 3, '; ')}.")
    stored: dict[str, Any] = numbers["run"]
    settings = [(key, stored.get(key), run.get(key)) for key in {**stored, **run}]
    if changed := [f"{key} {old!r} (now {new!r})" for key, old, new in settings if old != new]:
        told = f"the checkpoint {str(path)!r} was made by a run with {', '.join(changed)}"
        raise InputError(f"{told}; repeat that run's arguments to resume it, or name another path to start anew.")
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name in tensors.keys() - {f"model.{name}" for name in given}:
        _, index, key = name.split(".", 2)
        state.setdefault(int(index), {})[key] = tensors[name]
    bare(model).load_state_dict(given)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    # a fused step goes through memory: what belongs to a weight is to lie there as the weight does
    for parameter in (one for group in optimizer.param_groups for one in group["params"]):
        own = optimizer.state.get(parameter, {})
        alike = {key: value for key, value in own.items() if getattr(value, "shape", None) == parameter.shape}
        own |= {key: torch.empty_like(parameter, dtype=value.dtype).copy_(value) for key, value in alike.items()}


def read(path: Path) -> Held:
    """The numbers and the tensors of a checkpoint, checked to be whole."""
    try:
        tensors, words = load_tensors(path, "checkpoint", LAYOUT, "train")
        numbers = from_json(words.get("numbers", ""))
        if not isinstance(numbers, dict) or not all(isinstance(numbers.get(n), dict) for n in ("run", "progress")):
            raise impossible(path, "checkpoint", "numbers", "what a training run writes")
    except InputError as problem:
        raise InputError(f"{problem} Delete it, or name another path, to start anew.") from problem
    return numbers, {name: tensor.clone() for name, tensor in tensors.items()}
