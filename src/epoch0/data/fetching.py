"""Fetching a known data set: download, check, and only then put it where loading looks."""

import io
import tarfile
from pathlib import Path

from epoch0.data import catalogue
from epoch0.data.catalogue import EMBEDDED, KnownFile, KnownSet, Tell, find, known_set, md5, place, places, present
from epoch0.data.loading import parsed
from epoch0.data.loading import path as folder_of
from epoch0.data.readers import content
from epoch0.errors import InputError, reworded
from epoch0.files import StrPath, made, to_write, write_atomic

SCHEME = "https://"
"""What every address begins with, that of a redirect too: nobody on the way can change or read along."""

_PIECE = 1 << 16


def fetch(name: str, data_dir: StrPath | None = None, progress: Tell | None = None) -> Path:
    """Make a known set available: nothing to do if it is there, else downloaded, checked, and put into place.

    >>> fetch("mnist")                                          # doctest: +SKIP
    PosixPath('/home/me/.cache/epoch0/mnist')

    It gives the folder of the files. Whatever goes wrong, nothing is left behind. A download ends where it is longer
    than the file is known to be, and its checksum is compared before it is decompressed or unpacked.

    Args:
        name: a name that `load` knows.
        data_dir: folder to put it in (made if missing); by default the cache.
        progress: called with one line of text before every download.

    Raises:
        InputError: if the set is unknown, its terms forbid it (says where to get it), no mirror gives its official
            content, the folder cannot be written, the disk is full, or other well-formed files are in the way.
    """
    if (known := known_set(name)).embedded:
        return EMBEDDED
    if known.tree:
        return folder_of(name, data_dir)
    root = places(data_dir)[-1 if data_dir is None else 0][1]
    target, found = root / known.folders[0], find(known, None, data_dir)
    files = found if found is not None else present(known, None, target)
    sound = [_sound(known, file, path, root) for file, path in files.items()]
    if found is not None and all(sound):
        return place(found)
    with made(target):
        to_write(target / catalogue.RECORD)  # fails before anything is downloaded
        tell = progress or (lambda line: None)
        fetched = _archive(known, known.archive, tell) if known.archive else _files(known, tell)
        new = [path for path in (target / name for name in fetched) if not path.exists()]
        try:
            for name, raw in fetched.items():
                write_atomic(target / name, raw, f"data set {known.name} in")
        except BaseException:
            for path in new:
                path.unlink(missing_ok=True)
            raise
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
        text = f"{path} is in the way: it is a well-formed file of other content than the official {file.name}"
        hint = "It can be loaded as it is; to get the official one, move it away."
        raise InputError(f"{text} ({_difference(content(path)[0], file)}). {hint}")
    return True


def _download(url: str, most: int) -> bytes:
    """The raw content of an address, cut off one byte above the limit."""
    import requests
    from urllib3.exceptions import HTTPError

    with requests.Session() as session:
        for scheme in [scheme for scheme in session.adapters if not scheme.startswith(SCHEME)]:
            del session.adapters[scheme]
        try:
            with session.get(url, stream=True, timeout=30, headers={"Accept-Encoding": "identity"}) as response:
                response.raise_for_status()
                raw = bytearray()
                while len(raw) <= most and (piece := response.raw.read(min(_PIECE, most + 1 - len(raw)))):
                    raw += piece
                return bytes(raw)
        except requests.exceptions.InvalidSchema:
            raise InputError(f"it does not begin with {SCHEME}, or leads elsewhere") from None
        except requests.HTTPError as error:
            answer = error if error.response is None else error.response.status_code
            raise InputError(f"the server answers {answer}") from error
        except requests.Timeout:
            raise InputError("no answer within 30 s") from None
        except requests.ConnectionError:
            raise InputError("no connection") from None
        except (requests.RequestException, HTTPError) as error:
            raise InputError(f"the transfer broke off ({type(error).__name__})") from error


def _from_mirrors(known: KnownSet, urls: list[str], *wanted: KnownFile) -> bytes:
    """Try the mirrors in turn until one gives any of the contents that are wanted."""
    failures = []
    for url in urls:
        try:
            raw = _download(url, max(file.bytes for file in wanted))
            if not all(wrong := [_difference(raw, file) for file in wanted]):
                return raw
            failures.append(f"{url}: {wrong[0]}")
        except InputError as problem:
            failures.append(f"{url}: {problem}")
    text = f"{known.name} could not be fetched. {'; '.join(failures)}. Check the network and try again"
    by_hand = f"put the files into DIR/{known.folders[0]} by hand and name DIR with --data-dir"
    raise InputError(f"{text}, or {by_hand} or {catalogue.ENVIRONMENT}. Nothing was changed.")


def _difference(raw: bytes, file: KnownFile) -> str:
    """How content differs from the official one, "" if it does not."""
    if (found := md5(raw)) == file.md5:
        return ""
    size = f"more than {file.bytes:,}" if len(raw) > file.bytes else f"{len(raw):,}"
    return f"{file.name} has wrong content: {size} bytes with MD5 {found}, expected {file.stated}"


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
    """The files in an archive, after the record of their checksums."""
    tell(f"{known.name}: downloading {archive.name} ({archive.bytes / 1e6:.0f} MB)")
    packed, files = _from_mirrors(known, list(known.mirrors), archive), dict[str, bytes]()
    wrong = f"{archive.name} does not unpack into the files of {known.name}"
    with reworded(lambda error: InputError(f"{wrong}: {error}.")), tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for file in known.files():
            if (member := tar.extractfile(f"{Path(known.folders[0]).name}/{file.name}")) is None:
                raise KeyError(file.name)
            files[file.name] = member.read()
    return {catalogue.RECORD: "".join(f"{md5(raw)}  {name}\n" for name, raw in files.items()).encode(), **files}
