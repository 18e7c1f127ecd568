"""Loading a data set by name: known sets from the first folder that has them, image folders by path."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epoch0.arguments import checked
from epoch0.data.catalogue import SETS, KnownFile, KnownSet, Split, absent, find, known_set, md5, place
from epoch0.data.dataset import DataSet
from epoch0.data.image_files import FOLDER, image_files, read_images
from epoch0.data.readers import content, parse_cifar, parse_idx
from epoch0.errors import InputError
from epoch0.files import StrPath

_LABEL_BYTES = {"cifar10": 1, "cifar100": 2}


@checked
def load(name: str, split: Split = "train", data_dir: StrPath | None = None) -> DataSet:
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

    Raises:
        InputError: if the set is unknown, found nowhere (says how to fetch it and where was searched), or damaged
            (names the file, with sizes and checksums); if it does not fit into memory, as ImageNet does not.
    """
    if name == "imagenet":
        stream = f"as it streams from the disk: epoch0.train.Folder.of('imagenet', {split!r})"
        raise InputError(f"imagenet is too large to be read into memory; train and evaluate on it {stream}.")
    if name.startswith(FOLDER) or known_set(name).tree:
        files = image_files(name, split, data_dir)
        images = read_images([files.root / each for each in files.names])
        return DataSet(files.name, files.split, images, files.labels, files.classes)
    known = known_set(name)
    found = find(known, split, data_dir)
    if found is None:
        raise absent(known, split, data_dir)
    images, labels, verified = _read(known, found)
    try:
        return DataSet(name, split, images, labels, known.classes, known.peak, verified)
    except InputError as error:
        raise InputError(f"{error} (Read from {place(found)}.)") from error


@checked
def path(name: str, data_dir: StrPath | None = None) -> Path:
    """The folder a known set would be loaded from; an InputError if it is complete in none."""
    known = known_set(name)
    files = find(known, None, data_dir)
    if files is None:
        raise absent(known, None, data_dir)
    return place(files)


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


def _parse(known: KnownSet, file: KnownFile, raw: bytes, source: str) -> Any:
    if known.format in _LABEL_BYTES:
        return parse_cifar(raw, source, _LABEL_BYTES[known.format], len(known.classes))
    array, images = parse_idx(raw, source), "idx3" in file.name
    if array.ndim != (3 if images else 1) or array.dtype != np.uint8:
        wanted = "images are uint8 (n, height, width), labels uint8 (n,)"
        raise InputError(f"{source} holds {array.dtype} of shape {array.shape}; {wanted}.")
    return array[:, None] if images else array.astype(np.int64)


def _read(known: KnownSet, files: dict[KnownFile, Path]) -> tuple[np.ndarray, np.ndarray, bool]:
    """Images and labels of a split, and whether all files are known to be the official ones."""
    parts, verified = [], True
    for file, where in files.items():
        try:
            raw = content(where)
            parts.append(_parse(known, file, raw, str(where)))
        except InputError as error:
            told = f"The official {file.name} has {file.stated}, decompressed"
            raise InputError(f"{error} {told}. Remove the file and run `epoch0 data fetch {known.name}`.") from error
        verified &= file.md5 == md5(raw)  # of CIFAR only the archive has a checksum
    if known.format == "idx":
        return *parts, verified
    images, labels = map(np.concatenate, zip(*parts, strict=True))
    return images, labels, verified
