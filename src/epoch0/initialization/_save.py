"""Weights into a safetensors file: whole or not at all, no code inside (THEORY section 3 sets them)."""

import os
import tempfile
from pathlib import Path

from torch import nn

from epoch0.errors import InputError
from epoch0.measure._guard import bare


def check_path(path: str | Path) -> Path:
    """Refuse a file that :func:`save` could not write, before the work is done.

    >>> check_path("weights.safetensors")                       # in a folder that exists
    PosixPath('weights.safetensors')

    Args:
        path: where to; the ending must be ``.safetensors`` and the folder must exist.

    Returns:
        The path.

    Raises:
        InputError: if the ending or the folder is wrong.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        raise InputError(
            f"weights are written as safetensors, not to {str(path)!r}; name it '{target.stem}.safetensors'."
        )
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"cannot be made: there is no folder '{target.parent}'"
        raise InputError(f"the weights file {str(path)!r} {what}.")
    return target


def save(model: nn.Module, path: str | Path) -> Path:
    """Write the model's state as safetensors.

    >>> save(net, "weights.safetensors")                        # every parameter and buffer, in its own shape
    PosixPath('weights.safetensors')

    The file appears whole or not at all: it is written beside its place under another name and then renamed. A tensor
    under several names is stored once.

    Args:
        model: any module.
        path: where to; the ending must be ``.safetensors`` and the folder must exist. A file that is there is replaced.

    Returns:
        The path.

    Raises:
        InputError: if the ending or the folder is wrong, or the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    target = check_path(path)
    fresh = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        os.close(handle)
        fresh = Path(name)
        save_model(bare(model), str(fresh))
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(0o666 & ~mask)  # mkstemp makes it private; a plain file is not
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(fresh, target)
    except (OSError, SafetensorError) as problem:
        raise InputError(f"the weights cannot be written to {str(path)!r}: {problem}.") from problem
    finally:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
    return target
