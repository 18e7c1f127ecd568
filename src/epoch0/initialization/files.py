"""Safetensors files that are there whole or not at all: a model's weights, or tensors with a checksum in the header."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.tracing.guard import bare


@checked
def check_path(path: str | Path, what: str = "weights") -> Path:
    """The path, if its ending is ``.safetensors`` and the folder exists; else an InputError, before the work is done.

    >>> check_path("weights.safetensors")                       # in a folder that exists
    PosixPath('weights.safetensors')

    ``what`` is to be written, in the plural, for the message.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        raise InputError(
            f"{what} are written as safetensors, not to {str(path)!r}; name it '{target.stem}.safetensors'."
        )
    if target.is_dir() or not target.parent.is_dir():
        reason = "is a folder" if target.is_dir() else f"cannot be made: there is no folder '{target.parent}'"
        raise InputError(f"the {what} file {str(path)!r} {reason}.")
    return target


def written(path: str | Path, what: str, fill: Callable[[Path], None]) -> Path:
    """Let ``fill`` write a file beside its place, flush it to the disk and only then give it its name.

    >>> written("net.safetensors", "weights", lambda fresh: fresh.write_bytes(b"..."))
    PosixPath('net.safetensors')

    A file that is there is replaced, or stays as it is on an error; ``what`` names it in the message, in the plural.
    """
    from safetensors import SafetensorError

    target = check_path(path, what)
    fresh = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        os.close(handle)
        fresh = Path(name)
        fill(fresh)
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(0o666 & ~mask)  # mkstemp makes it private; a plain file is not
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(fresh, target)
    except (OSError, SafetensorError) as problem:
        kept = "; the file that was there is intact" if target.exists() else ""
        raise InputError(f"the {what} cannot be written to {str(path)!r}: {problem}{kept}.") from problem
    finally:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
    return target


def save_tensors(
    path: str | Path, what: str, layout: str, tensors: Mapping[str, Tensor], words: Mapping[str, str]
) -> Path:
    """Write tensors and strings with the layout, the order of the tensors and a checksum in the header.

    >>> save_tensors("masks.safetensors", "masks", "epoch0 masks 1", {"a": torch.ones(2)}, {"shapes": "{}"})
    PosixPath('masks.safetensors')

    The layout says what is in it and how: words and a version.
    """
    from safetensors.torch import save_file

    # copies: views that share memory are refused by the format
    plain = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
             for name, tensor in tensors.items()}  # fmt: skip
    header = {**words, "format": layout, "order": json.dumps(list(plain))}  # the format itself sorts by name
    header["sha256"] = digest(json.dumps(header, sort_keys=True), plain)
    return written(path, what, lambda fresh: save_file(plain, fresh, header))


def load_tensors(path: str | Path, what: str, layout: str, writer: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what :func:`save_tensors` wrote, in its order, after checking that the file is whole.

    >>> path = save_tensors("masks.safetensors", "masks", "epoch0 masks 1", {"a": torch.ones(2)}, {"shapes": "{}"})
    >>> tensors, words = load_tensors(path, "masks", "epoch0 masks 1", "Masks.save")
    >>> tensors["a"], words["shapes"]
    (tensor([1., 1.]), '{}')
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        kind = "a folder, not a file" if Path(path).is_dir() else "missing"
        raise InputError(f"the {what} {str(path)!r} cannot be read: it is {kind}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            header = dict(file.metadata() or {})
            stated = header.get("format", "")
            if stated.rpartition(" ")[0] != layout.rpartition(" ")[0]:
                raise InputError(f"{str(path)!r} is a safetensors file but holds no {what}; {writer} writes those.")
            if stated != layout:
                raise InputError(
                    f"the {what} in {str(path)!r} have the layout {stated!r}; this version reads {layout!r}."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as problem:
        raise InputError(
            f"the {what} {str(path)!r} ({Path(path).stat().st_size:,} bytes) cannot be read: the file is cut short, "
            f"damaged or in another format ({problem})."
        ) from problem
    stored = header.pop("sha256", None)
    if digest(json.dumps(header, sort_keys=True), tensors) != stored:
        raise InputError(f"the {what} {str(path)!r} are damaged: the content does not have the checksum in the header.")
    return {name: tensors[name] for name in json.loads(header.pop("order"))}, header


def digest(header: str, tensors: Mapping[str, Tensor]) -> str:
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


@checked
def save(model: nn.Module, path: str | Path) -> Path:
    """Write the model's state as safetensors.

    >>> save(net, "weights.safetensors")                        # every parameter and buffer, in its own shape
    PosixPath('weights.safetensors')

    The file appears whole or not at all: it is written beside its place under another name and then renamed. One that
    is there is replaced. A tensor under several names is stored once. An InputError if the ending is not
    ``.safetensors``, or the file cannot be written.
    """
    from safetensors.torch import save_model

    return written(path, "weights", lambda fresh: save_model(bare(model), str(fresh)))
