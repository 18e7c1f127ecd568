"""Fetching a known data set: download, check, and only then put it where loading looks."""

import errno
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from epoch0.data import catalogue
from epoch0.data.catalogue import EMBEDDED, KnownFile, KnownSet, cache_folder, find, known_set, present
from epoch0.data.loading import check
from epoch0.data.loading import path as folder_of
from epoch0.data.readers import content
from epoch0.errors import InputError


def fetch(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Path:
    """Make a known set available: nothing to do if it is there, else downloaded, checked, and moved into place whole.

    >>> fetch("mnist")                                          # doctest: +SKIP
    PosixPath('/home/me/.cache/epoch0/mnist')

    It gives the folder of the files. Whatever goes wrong, no half-written file is left where `load` would find it.

    Args:
        name: a name that `load` knows.
        data_dir: folder to put it in (made if missing); by default the cache.
        progress: called with one line of text before every download.

    Raises:
        InputError: if the set is unknown, its terms forbid it (says where to get it), no mirror gives its official
            content, the folder cannot be written, the disk is full, or well-formed files of other content are in the
            way (they are never overwritten).
    """
    known = known_set(name)
    if known.embedded:
        return EMBEDDED
    if known.tree:
        return folder_of(name, data_dir)
    root = Path(data_dir).expanduser() if data_dir is not None else cache_folder()
    target = root / known.folders[0]
    found = find(known, None, data_dir)
    files = found if found is not None else present(known, None, target)
    sound = [_sound(known, file, path, root) for file, path in files.items()]
    if found is not None and all(sound):
        return next(iter(found.values())).parent
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # beside the target, so that moving into place is one rename on one disk
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            staging = Path(scratch) / target.name
            staging.mkdir()
            if known.archive is None:
                _download_files(known, staging, progress)
            else:
                _download_archive(known, known.archive, staging, progress)
            _move(staging, target)
    except OSError as error:
        reason = f"the disk is full ({known.download / 1e6:.0f} MB to download, more unpacked)"
        raise InputError(
            f"{name} could not be put into {target}: "
            f"{reason if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or error}. "
            "Make room or permission there, or name another folder with --data-dir (data_dir=). Nothing was changed."
        ) from error
    return target


def _sound(known: KnownSet, file: KnownFile, path: Path, root: Path) -> bool:
    """Whether a file that is already there can stay; a damaged one can be replaced only where fetching writes."""
    try:
        official = check(known, file, path)
    except InputError:
        if not path.is_relative_to(root):
            raise
        return False
    if official is False:
        raw, _ = content(path)
        raise InputError(
            f"{path} is in the way: it is a well-formed file of other content than the official {file.name} "
            f"({_difference(file, raw)}). It can be loaded as it is; to get the official one, move it away."
        )
    return True


def _download(url: str, to: Path) -> str:
    """Download one address to a file; gives what went wrong, "" if nothing."""
    import pooch
    import requests

    try:
        pooch.HTTPDownloader(timeout=30, chunk_size=1 << 16)(url, str(to), None)
    except requests.HTTPError as error:
        return f"the server answers {error.response.status_code if error.response is not None else error}"
    except requests.Timeout:
        return "no answer within 30 s"
    except requests.ConnectionError:
        return "no connection"
    except requests.RequestException as error:
        return f"the transfer broke off ({type(error).__name__})"
    return ""


def _from_mirrors(known: KnownSet, urls: list[str], to: Path, judge: Callable[[Path], str]) -> None:
    """Try the mirrors in turn until one gives the file that `judge` finds nothing wrong with."""
    failures = []
    for url in urls:
        wrong = _download(url, to) or judge(to)
        if not wrong:
            return
        failures.append(f"{url}: {wrong}")
    raise InputError(
        f"{known.name} could not be fetched. {'; '.join(failures)}. Check the network and try again, or put the files "
        f"into DIR/{known.folders[0]} by hand and name DIR with --data-dir or {catalogue.ENVIRONMENT}. Nothing was "
        "changed."
    )


def _difference(file: KnownFile, raw: bytes, trouble: str = "") -> str:
    """What tells downloaded content from the official one, "" if nothing does."""
    md5 = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if not trouble and md5 == file.md5:
        return ""
    return (
        f"{file.name} {trouble or 'has wrong content'}: {len(raw):,} bytes with MD5 {md5}, expected {file.bytes:,} "
        f"bytes{f' with MD5 {file.md5}' if file.md5 else ''}"
    )


def _wrong(file: KnownFile, path: Path) -> str:
    return _difference(file, *content(path))


def _download_files(known: KnownSet, staging: Path, progress: Callable[[str], object] | None) -> None:
    for file in known.files():
        name = f"{file.name}.gz"
        if progress is not None:
            progress(f"{known.name}: downloading {name}")
        urls = [mirror + name for mirror in known.mirrors]
        _from_mirrors(known, urls, staging / name, partial(_wrong, file))


def _download_archive(
    known: KnownSet, archive: KnownFile, staging: Path, progress: Callable[[str], object] | None
) -> None:
    if progress is not None:
        progress(f"{known.name}: downloading {archive.name} ({archive.bytes / 1e6:.0f} MB)")
    packed = staging.parent / archive.name
    _from_mirrors(known, list(known.mirrors), packed, lambda path: _difference(archive, path.read_bytes()))
    record = []
    try:
        with tarfile.open(packed) as tar:
            for file in known.files():
                member = tar.extractfile(f"{staging.name}/{file.name}")
                if member is None:
                    raise KeyError(file.name)
                raw = member.read()
                (staging / file.name).write_bytes(raw)
                record.append(f"{hashlib.md5(raw, usedforsecurity=False).hexdigest()}  {file.name}\n")
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise InputError(f"{archive.name} does not unpack into the files of {known.name}: {error}.") from error
    (staging / catalogue.RECORD).write_text("".join(record), encoding="utf-8")


def _move(staging: Path, target: Path) -> None:
    """Put a complete set in place: by one rename, or file by file over damaged files that are there."""
    if not target.exists():
        staging.rename(target)
        return
    for file in sorted(staging.iterdir()):
        os.replace(file, target / file.name)
