"""Files of the user: what may be read or written, each refusal one line; files that appear whole or not at all."""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from epoch0.errors import InputError, suggest

StrPath = str | os.PathLike[str]
_NO_PATH = ("null", "surrogates", "Symlink loop", "home directory")  # what Python says of a text that is no path
_ASIS = os.O_NOFOLLOW | os.O_NONBLOCK  # a link is no file of ours, and neither is a pipe, which would be waited for
_PARTIAL = ".epoch0-{}.partial"  # while it is not whole, where a file must have a name; nobody can guess it


@contextmanager
def explained(path: StrPath, noun: str, doing: str) -> Iterator[None]:
    """Turn errors of the system about a file or folder into one InputError that names it."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as problem:
        known = isinstance(problem, OSError) or any(words in str(problem) for words in _NO_PATH)
        if isinstance(problem, InputError) or not known:
            raise
        full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = f"{getattr(problem, 'strerror', None) or problem}{', the disk is full; make room' if full else ''}."
        if (at := getattr(problem, "filename", None)) and str(at) != str(path):
            reason = f"{reason[:-1]}: {str(at)!r}."
        with suppress(OSError, ValueError):
            if doing == "read" and isinstance(problem, FileNotFoundError):
                near = [each.name for each in Path(path).parent.iterdir() if each.suffix == Path(path).suffix]
                reason = f"it does not exist.{suggest(Path(path).name, near)}"
            elif doing == "written" and os.path.isfile(path):
                reason = f"{reason[:-1]}; the file that was there is intact."
        raise InputError(f"the {noun} {str(path)!r} cannot be {doing}: {reason}") from problem


def to_read(path: StrPath, noun: str = "file") -> Path:
    """The path, if a plain file is there that may be read; else an InputError that says what is wrong."""
    with explained(path, noun, "read"):
        _check_plain(os.stat(path), path, noun, "read")
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return Path(path)


def to_write(path: StrPath, noun: str = "file", endings: Sequence[str] = ()) -> Path:
    """The path, if a file of one of these endings can be put there; else an InputError, before the work is done."""
    target = Path(path)
    if endings and target.suffix.lower() not in endings:
        example = f"{target.stem}{endings[0]}"
        raise InputError(f"the name of the {noun} {str(path)!r} must end in {', '.join(endings)}, as {example!r}.")
    with explained(path, noun, "written"):
        if not target.parent.is_dir():
            raise InputError(f"the {noun} {str(path)!r} cannot be written: there is no folder {str(target.parent)!r}.")
        with suppress(FileNotFoundError):
            _check_plain(os.stat(path), path, noun, "written")  # of what a link leads to: /dev/stdout is a link
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise InputError(f"the {noun} {str(path)!r} cannot be written: the folder may not be written to.")
    return target


def _check_plain(found: os.stat_result, path: StrPath, noun: str, doing: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "device, pipe or socket"
        raise InputError(f"the {noun} {str(path)!r} cannot be {doing}: it is a {kind}, not a file.")


def write_atomic(path: StrPath, content: bytes, noun: str = "file", *, new: bool = False) -> Path:
    """Put content at a path: afterwards it holds either all of it or what it held before; with ``new`` only if free.

    Until whole, the file has a name that nobody can guess; after a kill the next writer removes it. Follows no link.
    """
    target = to_write(path, noun)
    with explained(path, noun, "written"):
        sweep(target.parent)
        partial = target.with_name(_PARTIAL.format(secrets.token_hex(8)))
        try:
            with _fresh(partial) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                if new:
                    with suppress(FileExistsError):
                        os.link(partial, target)
                else:
                    os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    return target


def _fresh(partial: Path) -> BinaryIO:
    """A file to write, locked while it is written."""
    while True:
        file = open(partial, "xb")  # noqa: SIM115  # the caller closes it
        with suppress(OSError):  # who sweeps may hold it for a moment
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # swept away before it was locked


def sweep(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder."""
    for stale in folder.glob(_PARTIAL.format("*")):
        with suppress(OSError), open(stale, opener=lambda name, flags: os.open(name, flags | _ASIS)) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer holds it
            stale.unlink()


def unlinked(path: StrPath, noun: str = "folder", *, own: bool = False) -> Path:
    """A path inside a folder of ours, if no link is there: we make none, so somebody else says where it leads.

    With ``own``, links that this user or root has made are followed: where the user says a name.
    """
    if os.path.islink(path) and not (own and os.lstat(path).st_uid in (0, os.geteuid())):
        raise InputError(f"the {noun} {str(path)!r} is a link, which is not followed here; remove it.")
    return Path(path)


@contextmanager
def made(folder: Path) -> Iterator[Path]:
    """A folder, made if it is missing; what was made for it and holds nothing in the end is removed again.

    A link to it that another user has made is refused.
    """
    with explained(folder, "folder", "made"):
        missing = [each for each in (unlinked(folder, own=True), *folder.parents) if not each.exists()]
    try:
        with explained(folder, "folder", "made"):
            folder.mkdir(parents=True, exist_ok=True)
        yield folder
    finally:
        for each in missing:
            with suppress(OSError, ValueError):
                each.rmdir()
