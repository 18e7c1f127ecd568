"""Masks in a safetensors file: one bit a weight, whole or not at all, and nothing that runs code (THEORY section 4)."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from epoch0.errors import InputError
from epoch0.initialization import check_path
from epoch0.prune._masks import Masks

FORMAT = "epoch0 masks 1"
"""Version of the layout; a file that states another one is not read."""


def save(masks: Masks, path: str | Path) -> Path:
    """Write masks: each as packed bits, first weight in the highest bit, with shapes and a checksum in the header.

    >>> save(masks, "masks.safetensors").stat().st_size         # for 1,855,584 weights
    236712

    Raises:
        InputError: if the path is wrong, or the file cannot be written; an older file is intact then.
    """
    target = check_path(path)
    bits = {name: _packed(mask) for name, mask in masks.items()}
    shapes = json.dumps({name: list(mask.shape) for name, mask in masks.items()})
    fresh = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        os.close(handle)
        fresh = Path(name)
        save_file(bits, str(fresh), {"format": FORMAT, "shapes": shapes, "sha256": _digest(shapes, bits)})
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(0o666 & ~mask)  # mkstemp makes it private; a plain file is not
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(fresh, target)
    except (OSError, SafetensorError) as problem:
        kept = "; the file that was there is intact" if target.exists() else ""
        raise InputError(f"the masks cannot be written to {str(path)!r}: {problem}{kept}.") from problem
    finally:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
    return target


def load(path: str | Path) -> Masks:
    """Read masks, in the order in which they were saved, after checking that the file is whole.

    Raises:
        InputError: if the file is missing, cut short, damaged, or something else.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            if not header.get("format", "").startswith("epoch0 masks"):
                raise InputError(f"{str(path)!r} is a safetensors file but holds no masks; Masks.save writes those.")
            if header["format"] != FORMAT:
                raise InputError(
                    f"the masks in {str(path)!r} have the layout {header['format']!r}; this version reads {FORMAT!r}."
                )
            bits = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as problem:
        there = Path(path)
        size = f" ({there.stat().st_size:,} bytes)" if there.is_file() else ""
        raise InputError(
            f"the masks {str(path)!r}{size} cannot be read: the file is missing, cut short, damaged or in another "
            f"format ({problem})."
        ) from problem
    shapes = header.get("shapes", "{}")
    if _digest(shapes, bits) != header.get("sha256"):
        raise InputError(f"the masks {str(path)!r} are damaged: the content does not have the checksum in the header.")
    return Masks._own({name: _unpacked(bits[name], shape) for name, shape in json.loads(shapes).items()})


def _packed(mask: Tensor) -> Tensor:
    return torch.from_numpy(np.packbits(mask.cpu().flatten().numpy()))


def _unpacked(bits: Tensor, shape: list[int]) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count).astype(bool)).reshape(shape)


def _digest(shapes: str, bits: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256(shapes.encode())
    for name in sorted(bits):
        total.update(f"\n{name}\n".encode())
        total.update(bits[name].numpy().data)
    return total.hexdigest()
