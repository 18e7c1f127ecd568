"""Loading a data set by name: known sets from the first folder that has them, image folders by path."""

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np

from epoch0.arguments import checked
from epoch0.data.catalogue import SETS, SPLITS, KnownFile, KnownSet, absent, find, known_set, official, place
from epoch0.data.dataset import DataSet
from epoch0.data.decoding import read_images
from epoch0.data.image_files import FOLDER, ImageFiles, image_files
from epoch0.data.readers import content, parse_cifar, parse_idx
from epoch0.errors import InputError

_LABEL_BYTES = {"cifar10": 1, "cifar100": 2}
_Parsed = TypeVar("_Parsed")


@checked
def load(
    name: str,
    split: Annotated[str, SPLITS] = "train",
    data_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], object] | None = None,
) -> DataSet:
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
        raise InputError(
            "imagenet is too large to be read into memory; train and evaluate on it as it streams from the disk: "
            f"epoch0.train.Folder.of('imagenet', {split!r})."
        )
    if name.startswith(FOLDER):
        return _read_tree(image_files(name, split), progress)
    known = known_set(name)
    if known.tree:
        return _read_tree(image_files(name, split, data_dir), progress)
    files = find(known, split, data_dir)
    if files is None:
        raise absent(known, split, data_dir)
    read = _read_cifar if known.format in _LABEL_BYTES else _read_idx
    images, labels, verified = read(known, files)
    try:
        return DataSet(name, split, images, labels, known.classes, known.peak, verified)
    except InputError as error:
        raise InputError(f"{error} (Read from {next(iter(files.values())).parent}.)") from error


@checked
def path(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder a known set would be loaded from.

    Raises:
        InputError: if the set is unknown or is not complete in any folder searched.
    """
    known = known_set(name)
    folder = place(known, data_dir)
    if folder is None:
        raise absent(known, None, data_dir)
    return folder


@dataclass(frozen=True)
class Availability:
    """One line of the list of known sets."""

    name: str
    what: str
    found: Path | None  #: the folder it would be loaded from; None if it must be fetched
    bytes: int  #: of its files on disk where found, else of the download; of the download for trees of image files
    licence: str


@checked
def available(data_dir: str | os.PathLike[str] | None = None) -> list[Availability]:
    """Every known set, and where it is (both splits complete) or how much there is to download."""
    rows = []
    for known in SETS.values():
        files = None if known.tree else find(known, None, data_dir)
        size = sum(file.stat().st_size for file in files.values()) if files else known.download
        rows.append(Availability(known.name, known.what, place(known, data_dir), size, known.licence))
    return rows


def check(known: KnownSet, file: KnownFile, path: Path) -> bool | None:
    """Read one file of a known set in full: True if it is the official one, False if not, None if that is unknown."""
    idx = _parse_images if "idx3" in file.name else _parse_labels
    return _parsed(known, file, path, _cifar_parser(known) if known.format in _LABEL_BYTES else idx)[1]


def _cifar_parser(known: KnownSet) -> Callable[[bytes, str], tuple[np.ndarray, np.ndarray]]:
    return functools.partial(parse_cifar, label_bytes=_LABEL_BYTES[known.format], classes=len(known.classes))


def _parsed(
    known: KnownSet, file: KnownFile, path: Path, parse: Callable[[bytes, str], _Parsed]
) -> tuple[_Parsed, bool | None]:
    """The parsed file and whether it is official; an error about it also gives sizes and checksums."""
    raw, trouble = content(path)
    try:
        if trouble:
            raise InputError(f"{path} {trouble}: {len(raw):,} bytes could be decompressed.")
        return parse(raw, str(path)), official(file, path, raw)
    except InputError as error:
        md5 = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        raise InputError(
            f"{error} Found {len(raw):,} bytes with MD5 {md5}; the official {file.name} has {file.bytes:,} bytes"
            f"{f' with MD5 {file.md5}' if file.md5 else ''}, decompressed. Remove the file and run "
            f"`epoch0 data fetch {known.name}`."
        ) from error


def _parse_images(raw: bytes, source: str) -> np.ndarray:
    array = parse_idx(raw, source)
    if array.ndim != 3 or array.dtype != np.uint8:
        raise InputError(f"{source} holds {array.dtype} of shape {array.shape}; images are uint8 (n, height, width).")
    return array[:, None]


def _parse_labels(raw: bytes, source: str) -> np.ndarray:
    array = parse_idx(raw, source)
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise InputError(f"{source} holds {array.dtype} of shape {array.shape}; labels are integers of shape (n,).")
    return array.astype(np.int64)


def _read_idx(known: KnownSet, files: dict[KnownFile, Path]) -> tuple[np.ndarray, np.ndarray, bool]:
    (images_file, images_path), (labels_file, labels_path) = files.items()
    images, images_official = _parsed(known, images_file, images_path, _parse_images)
    labels, labels_official = _parsed(known, labels_file, labels_path, _parse_labels)
    return images, labels, bool(images_official and labels_official)


def _read_cifar(known: KnownSet, files: dict[KnownFile, Path]) -> tuple[np.ndarray, np.ndarray, bool]:
    batches, verified = [], True
    for file, where in files.items():
        batch, is_official = _parsed(known, file, where, _cifar_parser(known))
        batches.append(batch)
        verified = verified and is_official is True
        # a batch cut off between two records is still a well-formed batch; its siblings tell
        if len(batch[1]) != len(batches[0][1]):
            raise InputError(
                f"{where} holds {len(batch[1]):,} images and {next(iter(files.values())).name} beside it "
                f"{len(batches[0][1]):,}; the batches of a set are of one size, so one of them is incomplete."
            )
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels), verified


def _read_tree(files: ImageFiles, progress: Callable[[str], object] | None) -> DataSet:
    def tell(done: int) -> None:
        if progress is not None:
            progress(f"{files.name} ({files.split}): {done:,} of {len(files):,} images decoded")

    return DataSet(files.name, files.split, read_images(files.paths(), tell), files.labels, files.classes)
