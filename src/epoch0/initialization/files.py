"""Safetensors files that are there whole or not at all: a model's weights, or tensors with a checksum in the header."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.files import StrPath, to_read, to_write, write_atomic
from epoch0.tracing.guard import bare

Tensors = Mapping[str, Tensor]  # by their names


@checked
def check_path(path: StrPath, what: str = "weights") -> Path:
    """The path, if ``what`` can be written there and its ending is ``.safetensors``; else an InputError.

    >>> check_path("weights.safetensors")                       # in a folder that exists
    PosixPath('weights.safetensors')
    """
    return to_write(path, what, [".safetensors"])


def save_tensors(path: StrPath, noun: str, layout: str, tensors: Tensors, words: Mapping[str, str]) -> Path:
    """Write tensors and strings with the layout, the order of the tensors and a checksum in the header.

    The layout says what is in it and how: words and a version.
    """
    header = {**words, "format": layout, "order": json.dumps(list(tensors))}  # the format itself sorts by name
    header["sha256"] = digest(json.dumps(header, sort_keys=True), tensors)
    return write_atomic(path, _packed(tensors, header), noun)


def _packed(tensors: Tensors, header: dict[str, str] | None = None) -> bytes:
    from safetensors.torch import save as to_bytes

    # copies: views that share memory are refused by the format
    kept = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    try:
        return bytes(to_bytes(kept, header))
    except KeyError as problem:
        raise InputError(f"safetensors files hold no values of {problem}; convert them first.") from problem


def read_tensors(path: StrPath, noun: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the strings of the header in any safetensors file."""
    from safetensors import safe_open

    path = to_read(path, noun)
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except Exception as problem:  # a made-up header makes it raise half a dozen unrelated types
        which = f"the {noun} {str(path)!r} ({path.stat().st_size:,} bytes)"
        why = f"the file is cut short, damaged or in another format ({problem})"
        raise InputError(f"{which} cannot be read: {why}.") from problem


def load_tensors(path: StrPath, noun: str, layout: str, writer: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what :func:`save_tensors` wrote, in its order, after checking that the file is whole."""
    mapped, header = read_tensors(path, noun)
    tensors = {name: tensor.clone() for name, tensor in mapped.items()}  # the file may be written over later
    if (stated := header.get("format", "")) != layout:
        why = f"its layout is {stated!r}, and this version reads {layout!r}; {writer} writes those"
        raise InputError(f"{str(path)!r} is a safetensors file but holds no {noun}: {why}.")
    stored = header.pop("sha256", None)
    if digest(json.dumps(header, sort_keys=True), tensors) != stored:
        raise InputError(f"the {noun} {str(path)!r} are damaged: the content does not have the checksum in the header.")
    order = from_json(header.pop("order", ""))
    named = isinstance(order, list) and all(isinstance(name, str) for name in order)
    if not named or sorted(order) != sorted(tensors):
        raise impossible(path, noun, "order", "the names of its tensors, each once")
    return {name: tensors[name] for name in order}, header


def from_json(text: str) -> Any:
    """The value of JSON text; None if it is invalid, which the checks of its content refuse."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def impossible(path: StrPath, noun: str, name: str, wanted: str) -> InputError:
    """The error for a file that is whole, and in whose header an entry says what cannot be."""
    return InputError(f"the {noun} {str(path)!r} cannot be read: {name!r} in the header must hold {wanted}.")


def digest(header: str, tensors: Tensors) -> str:
    """A checksum: a hash of the header and of every tensor by name."""
    total = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


@checked
def save(model: nn.Module, path: StrPath) -> Path:
    """Write the model's state as safetensors.

    >>> save(net, "weights.safetensors")                        # every parameter and buffer, in its own shape
    PosixPath('weights.safetensors')

    The file appears whole or not at all; one that is there is replaced. A tensor under several names is stored once,
    under the first. An InputError if the ending is not ``.safetensors``, the state holds more than tensors
    (packed weights of quantized layers), or the file cannot be written.
    """
    target, state = check_path(path), bare(model).state_dict()
    own: dict[Any, str] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor) or is_lazy(tensor) or tensor.device.type == "meta":
            kind = type(tensor).__name__
            raise InputError(f"'{name}' of the model's state is a {kind}; only tensors with values can be stored.")
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        own.setdefault(same if tensor.numel() else name, name)
    return write_atomic(target, _packed({name: state[name] for name in own.values()}), "weights")
