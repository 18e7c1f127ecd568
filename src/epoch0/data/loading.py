"""A data set by name: loaded from the first folder that has it, image folders by path; fetched where it is not."""

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epoch0.arguments import checked
from epoch0.data import catalogue
from epoch0.data.catalogue import KnownFile, KnownSet, Split, Tell, find, known_set, located, md5, place
from epoch0.data.dataset import DataSet, content, parse_cifar, parse_idx
from epoch0.data.image_files import FOLDER, image_files, read_images
from epoch0.errors import InputError, reworded
from epoch0.files import StrPath, made, to_write, write_atomic

SCHEME = "https://"
"""What every address begins with, that of a redirect too: nobody on the way can change or read along."""

_PIECE = 1 << 16
_LABEL_BYTES = {"cifar10": 1, "cifar100": 2}


@checked
def load(name: str, split: Split = "train", data_dir: StrPath | None = None, progress: Tell | None = None) -> DataSet:
    """A data set by name.

    >>> str(load("digits"))
    'digits (train): 1,437 images of 1 x 8 x 8, 10 classes, official content'
    >>> load("digits", split="test").images.shape               # (n, channels, height, width)
    (360, 1, 8, 8)

    Args:
        name: ``"digits"`` (inside the package), ``"mnist"``, ``"fashion-mnist"``, ``"cifar10"``, ``"cifar100"``,
            ``"tiny-imagenet"``, or ``"folder:PATH"`` for image files in PATH/split/class/ or PATH/class/ (the folder
            of the test split is ``test`` or ``val``). A folder without split folders has no test part: it is one set,
            whose split is called ``"all"``, asked for as ``"train"``.
        data_dir: folder searched first; then the one in the environment variable EPOCH0_DATA, then the cache.
        progress: called with a line of text now and then while many image files are decoded.

    Raises:
        InputError: if the set is unknown, found nowhere (says how to fetch it and where was searched), or damaged
            (names the file, with sizes and checksums); if it does not fit into memory, as ImageNet does not.
    """
    if name == "imagenet":
        stream = f"as it streams from the disk: epoch0.train.Folder.of('imagenet', {split!r})"
        raise InputError(f"imagenet is too large to be read into memory; train and evaluate on it {stream}.")
    if name.startswith(FOLDER) or known_set(name).tree:
        files = image_files(name, split, data_dir)

        def tell(done: int) -> None:
            if progress is not None:
                progress(f"{files.name} ({files.split}): {done:,} of {len(files):,} images decoded")

        images = read_images([files.root / each for each in files.names], tell)
        return DataSet(files.name, files.split, images, files.labels, files.classes)
    known = known_set(name)
    found = located(known, split, data_dir)
    images, labels, verified = _read(known, found)
    try:
        return DataSet(name, split, images, labels, known.classes, known.peak, verified)
    except InputError as error:
        raise InputError(f"{error} (Read from {place(found)}.)") from error


@checked
def path(name: str, data_dir: StrPath | None = None) -> Path:
    """The folder a known set would be loaded from; an InputError if it is complete in none."""
    return place(located(known_set(name), None, data_dir))


@dataclass(frozen=True)
class Availability:
    """One line of the list of known sets."""

    name: str
    what: str
    found: Path | None  #: the folder it would be loaded from; None if it must be fetched
    bytes: int  #: of its files on disk where found, else of the download; of the download for trees of image files
    licence: str


@checked
def available(data_dir: StrPath | None = None) -> list[Availability]:
    """Every known set, and where it is (both splits complete) or how much there is to download."""
    rows = []
    for known in catalogue.SETS.values():
        files = find(known, None, data_dir)
        size = sum(file.stat().st_size for file in files.values()) if files and not known.tree else known.download
        rows.append(Availability(known.name, known.what, place(files) if files else None, size, known.licence))
    return rows


def parsed(known: KnownSet, file: KnownFile, path: Path) -> tuple[Any, bool | None]:
    """Images, labels or both, and whether they are official (None: unknown); errors give sizes and checksums."""
    raw, trouble = content(path)
    try:
        if trouble:
            raise InputError(trouble)
        return _parse(known, file, raw, str(path)), catalogue.official(file, path, raw)
    except InputError as error:
        text = f"Found {len(raw):,} bytes with MD5 {md5(raw)}; the official {file.name} has {file.stated}, decompressed"
        raise InputError(f"{error} {text}. Remove the file and run `epoch0 data fetch {known.name}`.") from error


def _parse(known: KnownSet, file: KnownFile, raw: bytes, source: str) -> Any:
    if known.format in _LABEL_BYTES:
        return parse_cifar(raw, source, _LABEL_BYTES[known.format], len(known.classes))
    array, held = parse_idx(raw, source), f"{source} holds"
    if "idx3" in file.name:
        if array.ndim != 3 or array.dtype != np.uint8:
            raise InputError(f"{held} {array.dtype} of shape {array.shape}; images are uint8 (n, height, width).")
        return array[:, None]
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise InputError(f"{held} {array.dtype} of shape {array.shape}; labels are integers of shape (n,).")
    return array.astype(np.int64)


def _read(known: KnownSet, files: dict[KnownFile, Path]) -> tuple[np.ndarray, np.ndarray, bool]:
    """Images and labels of a split, and whether all of them are official."""
    parts, verified = zip(*(parsed(known, file, path) for file, path in files.items()), strict=True)
    if known.format == "idx":
        return *parts, all(verified)
    first, count = next(iter(files.values())).name, len(parts[0][0])
    for path, (images, _) in zip(files.values(), parts, strict=True):
        if len(images) != count:
            raise InputError(f"{path} holds {len(images):,} images and {first} beside it {count:,}: one is incomplete.")
    images, labels = map(np.concatenate, zip(*parts, strict=True))
    return images, labels, all(verified)


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
        return catalogue.EMBEDDED
    if known.tree:
        return place(located(known, None, data_dir))
    root = catalogue.places(data_dir)[-1 if data_dir is None else 0][1]
    target, found = root / known.folders[0], find(known, None, data_dir)
    files = found if found is not None else catalogue.present(known, None, target)
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
        raise InputError(f"{text} ({_difference(content(path)[0], file)}). Load it as it is, or move it away.")
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
