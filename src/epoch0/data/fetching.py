"""Fetching a known data set: download, check, and only then put it where loading looks."""

import io
import tarfile
from pathlib import Path

from epoch0.data import catalogue
from epoch0.data.catalogue import EMBEDDED, KnownFile, KnownSet, Tell, find, known_set, md5, place, places, present
from epoch0.data.loading import parsed
from epoch0.data.loading import path as folder_of
from epoch0.errors import InputError
from epoch0.files import StrPath, made, to_write, write_atomic


def fetch(name: str, data_dir: StrPath | None = None, progress: Tell | None = None) -> Path:
    """Make a known set available: nothing to do if it is there, else downloaded, checked, and put into place.

    >>> fetch("mnist")                                          # doctest: +SKIP
    PosixPath('/home/me/.cache/epoch0/mnist')

    It gives the folder of the files. A download's checksum is compared before it is decompressed, unpacked or written.

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
    root = places(data_dir)[-1 if data_dir is None else 0][1]
    target = root / known.folders[0]
    found = find(known, None, data_dir)
    files = found if found is not None else present(known, None, target)
    sound = [_sound(known, file, path, root) for file, path in files.items()]
    if found is not None and all(sound):
        return place(found)
    with made(target):
        to_write(target / known.files()[0].name)  # told before anything is downloaded
        tell = progress or (lambda line: None)
        fetched = _archive(known, known.archive, tell) if known.archive else _files(known, tell)
        for name, raw in fetched.items():
            write_atomic(target / name, raw, f"data set {known.name} in")
    return target


def _sound(known: KnownSet, file: KnownFile, path: Path, root: Path) -> bool:
    """Whether a file that is already there can stay; a damaged one can be replaced only where fetching writes."""
    try:
        official = parsed(known, file, path)[1]
    except InputError:
        if not path.is_relative_to(root):
            raise
        return False
    if official is False:
        told = f"{path} is in the way: it is a well-formed file of other content than the official {file.name}"
        raise InputError(f"{told}. It can be loaded as it is; to get the official one, move it away.")
    return True


def _from_mirrors(known: KnownSet, urls: list[str], *wanted: KnownFile) -> bytes:
    """Try the mirrors in turn until one gives any of the contents that are wanted."""
    import requests

    failures, official = [], {file.md5 for file in wanted}
    for url in urls:
        try:
            response = requests.get(url, timeout=30)
            response.raise_for_status()
            if (found := md5(response.content)) in official:
                return response.content
            told = f"{len(response.content):,} bytes with MD5 {found}, expected {wanted[0].stated}"
            failures.append(f"{url} has wrong content: {told}")
        except requests.RequestException as error:
            failures.append(f"{url}: {error}")
    raise InputError(
        f"{known.name} could not be fetched. {'; '.join(failures)}. Check the network and try again, or put the files "
        f"into DIR/{known.folders[0]} by hand and name DIR with --data-dir or {catalogue.ENVIRONMENT}."
    )


def _files(known: KnownSet, tell: Tell) -> dict[str, bytes]:
    """The files of a set that come one by one, each compressed or, from some servers, as it is."""
    fetched = {}
    for file in known.files():
        assert file.packed is not None
        name = file.packed.name
        tell(f"{known.name}: downloading {name}")
        fetched[name] = _from_mirrors(known, [mirror + name for mirror in known.mirrors], file.packed, file)
    return fetched


def _archive(known: KnownSet, archive: KnownFile, tell: Tell) -> dict[str, bytes]:
    """The files in an archive."""
    tell(f"{known.name}: downloading {archive.name} ({archive.bytes / 1e6:.0f} MB)")
    packed, files = _from_mirrors(known, list(known.mirrors), archive), dict[str, bytes]()
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            for file in known.files():
                member = tar.extractfile(f"{Path(known.folders[0]).name}/{file.name}")
                if member is None:
                    raise KeyError(file.name)
                files[file.name] = member.read()
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise InputError(f"{archive.name} does not unpack into the files of {known.name}: {error}.") from error
    return files
