"""Loading a data set by name: known sets from the first folder that has them, image folders by path."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epoch0.arguments import checked
from epoch0.data.catalogue import SETS, KnownFile, KnownSet, Split, Tell, find, known_set, located, md5, official, place
from epoch0.data.dataset import DataSet
from epoch0.data.image_files import FOLDER, image_files, read_images
from epoch0.data.readers import content, parse_cifar, parse_idx
from epoch0.errors import InputError
from epoch0.files import StrPath

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
    for known in SETS.values():
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
        return _parse(known, file, raw, str(path)), official(file, path, raw)
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
    # a batch cut off between two records is still a well-formed batch; its siblings tell
    first, count = next(iter(files.values())).name, len(parts[0][0])
    for path, (images, _) in zip(files.values(), parts, strict=True):
        if len(images) != count:
            text = f"{path} holds {len(images):,} images and {first} beside it {count:,}"
            raise InputError(f"{text}; the batches of a set are of one size, so one of them is incomplete.")
    images, labels = map(np.concatenate, zip(*parts, strict=True))
    return images, labels, all(verified)
