"""Files that are written whole or not at all."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_atomic(path: Path, content: bytes) -> None:
    """Put content at a path: afterwards it holds either all of it or what it held before.

    >>> write_atomic(Path("claims.json"), b"[]")

    Raises:
        OSError: if the disk is full or the path cannot be written; nothing else is left behind then.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> list[Path]:
    """Make a folder; gives those that were made for it, the innermost first.

    >>> make_folder(Path("results/today"))
    [PosixPath('results/today'), PosixPath('results')]
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that hold nothing, as far as possible, in this order."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
