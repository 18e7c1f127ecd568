"""Scores into a safetensors file and back: whole or not at all, no code inside (Hayou et al. 2021, 2.1)."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from epoch0.errors import InputError
from epoch0.initialization._save import check_path

KIND = "epoch0 scores"


def write(path: str | Path, tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> Path:
    """Write tensors and strings beside the place and rename: the file is there whole or not at all.

    Raises:
        InputError: if the ending or the folder is wrong, or the disk refuses.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    target, fresh = check_path(path), None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        os.close(handle)
        fresh = Path(name)
        # copies: views that share memory are refused by the format
        save_file({key: t.detach().clone().contiguous() for key, t in tensors.items()}, fresh, {**words, "kind": KIND})
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(0o666 & ~mask)  # mkstemp makes it private; a plain file is not
        os.replace(fresh, target)
    except (OSError, SafetensorError) as problem:
        raise InputError(f"the scores cannot be written to {str(path)!r}: {problem}.") from problem
    finally:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
    return target


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and strings of a file that :func:`write` made.

    Raises:
        InputError: if there is no such file, or it holds something else.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    try:
        with safe_open(path, framework="pt") as file:
            words = file.metadata() or {}
            if words.get("kind") != KIND:
                raise InputError(f"{str(path)!r} holds no scores; Scores.save(path) writes such a file.")
            return {name: file.get_tensor(name) for name in file.keys()}, words  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as problem:
        raise InputError(f"{str(path)!r} cannot be read as scores: {problem}.") from problem
