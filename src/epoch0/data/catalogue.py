"""The known data sets: what they are, where they are looked for, and the checksums of their official content.

Looking goes ``data_dir`` first, then the folder in EPOCH0_DATA, then the cache; a folder that lacks the set is passed
over, and a set found nowhere is an error that names every folder searched. Nothing is substituted for another set.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from epoch0.errors import InputError, suggest
from epoch0.files import StrPath, explained

SPLITS = ("train", "test")
Split = Annotated[str, SPLITS]
Tell = Callable[[str], object]
"""A callback for progress, called with a line of text now and then."""

ENVIRONMENT = "EPOCH0_DATA"
RECORD = "epoch0-checksums.md5"
EMBEDDED = Path(__file__).parent / "digits"


@dataclass(frozen=True)
class KnownFile:
    """One file of a set: its name, and the size and MD5 of its official (decompressed) content where known."""

    name: str
    bytes: int
    md5: str | None = None
    packed: "KnownFile | None" = None  # as it is downloaded

    @property
    def stated(self) -> str:
        """The official length and checksum, in words."""
        return f"{self.bytes:,} bytes{f' with MD5 {self.md5}' if self.md5 else ''}"


@dataclass(frozen=True)
class KnownSet:
    """A data set epoch0 knows by name."""

    name: str
    what: str  # one line about it
    licence: str  # or the terms it comes under
    format: str  # "idx" (pairs of files: images, labels), "cifar10", "cifar100", or "tree" (image files in folders)
    extent: tuple[tuple[int, ...], int, int, int]  # shape of an input, classes, images to train and to test
    folders: tuple[str, ...]  # where it may lie under a data folder; fetching writes the first
    train: tuple[KnownFile, ...] = ()
    test: tuple[KnownFile, ...] = ()
    classes: tuple[str, ...] = ()  # in label order; those of a tree are the names of its folders
    mirrors: tuple[str, ...] = ()  # addresses to download from, in this order: of a folder for IDX files, of an archive
    archive: KnownFile | None = None  # None if files are downloaded one by one
    download: int = 0  # bytes
    peak: int = 255  # the value of a fully lit pixel
    home: str = ""  # where to get a tree, in words

    def files(self, split: str | None = None) -> tuple[KnownFile, ...]:
        return {"train": self.train, "test": self.test, None: self.train + self.test}[split]

    @property
    def embedded(self) -> bool:
        """Whether it is inside the package."""
        return not self.folders

    @property
    def tree(self) -> bool:  # of image files: folders ``train`` and ``val``
        return self.format == "tree"


def _file(name: str, size: int, md5: str | None = None, *packed: Any) -> KnownFile:
    return KnownFile(name, size, md5, KnownFile(*packed) if packed else None)


def _known(name: str, extent: Any, archive: Sequence[Any] = (), **facts: Any) -> KnownSet:
    files: dict[str, Any] = {split: tuple(_file(*each) for each in facts.pop(split)) for split in SPLITS}
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    facts["extent"] = (tuple(extent[:-3]), *extent[-3:])
    return KnownSet(name, **files, archive=_file(*archive) if archive else None, **facts)


# sets.json: a file is its name, bytes and MD5, then those of the gzipped one that is downloaded
_FACTS = json.loads(Path(__file__).with_name("sets.json").read_text("utf-8"))
SETS: dict[str, KnownSet] = {name: _known(name, **facts) for name, facts in _FACTS.items()}


def known_set(name: str) -> KnownSet:
    """The set of that name, or an InputError with the names there are."""
    if name not in SETS:
        raise InputError(f"data set {name!r} is unknown; give {', '.join(SETS)} or folder:PATH.{suggest(name, SETS)}")
    return SETS[name]


def places(data_dir: StrPath | None) -> list[tuple[str, Path]]:
    """The folders that are searched, in order, each with the reason it is; the last is the user's cache."""
    found = []
    named = os.environ.get(ENVIRONMENT, "").split(os.pathsep)  # several, as in PATH
    for reason, folder in (("data_dir", data_dir), *((ENVIRONMENT, each) for each in named)):
        if folder is not None and (folder or reason == "data_dir"):
            with explained(folder, "data folder", "read"):
                found.append((reason, Path(folder).expanduser()))
    return [*found, ("cache", cache_folder())]


def cache_folder() -> Path:
    """Where this user's downloads lie: ``~/.cache/epoch0`` on Linux."""
    import pooch

    return Path(pooch.os_cache("epoch0"))


def _folders(known: KnownSet, data_dir: StrPath | None) -> Iterator[tuple[str, Path]]:
    return ((reason, root / folder) for reason, root in places(data_dir) for folder in known.folders)


def present(known: KnownSet, split: str | None, folder: Path) -> dict[KnownFile, Path]:
    """Those files of a set that lie in this very folder, under any of the names they go by; of a tree its folders."""
    found: dict[KnownFile, Path] = {}
    with explained(folder, "data folder", "read"):
        for file in known.files(split):
            names = [file.name]
            if known.format == "idx":  # the first is what fetching writes
                both = (file.name, file.name.replace("-idx", ".idx"))
                names = [name + suffix for name in both for suffix in (".gz", "")]
            exists = Path.is_dir if known.tree else Path.is_file
            if paths := [folder / name for name in names if exists(folder / name)]:
                found[file] = paths[0]
    return found


def find(known: KnownSet, split: str | None, data_dir: StrPath | None) -> dict[KnownFile, Path] | None:
    """Every file of a split (of both, for None) from the first folder that has them all; None if none has."""
    if known.embedded:
        return present(known, split, EMBEDDED)
    found = (present(known, split, folder) for _, folder in _folders(known, data_dir))
    return next((files for files in found if len(files) == len(known.files(split))), None)


def place(files: dict[KnownFile, Path]) -> Path:
    return next(iter(files.values())).parent


def located(known: KnownSet, split: str | None, data_dir: StrPath | None) -> dict[KnownFile, Path]:
    """The same; an InputError for a set that was found nowhere: what to do, and every folder searched."""
    if (files := find(known, split, data_dir)) is not None:
        return files
    title, searched = f"data set {known.name}{f' ({split})' if split else ''}", []
    for reason, folder in _folders(known, data_dir):
        present_files = present(known, split, folder)
        missing = [file.name for file in known.files(split) if file not in present_files]
        searched.append(f"{folder} ({reason}{'; lacks ' + ', '.join(missing) if present_files else ''})")
    todo = f"Fetch it with `epoch0 data fetch {known.name}` ({known.download / 1e6:.0f} MB)"
    if known.tree:
        todo = f"Its terms do not allow epoch0 to fetch it: get it from {known.home}, with train/ and val/"
    by_hand = f"put it into DIR/{known.folders[0]} and name DIR with --data-dir (data_dir=) or {ENVIRONMENT}"
    raise InputError(f"{title} was not found. {todo}; or {by_hand}. Searched: {'; '.join(searched)}.")


def official(file: KnownFile, path: Path, raw: bytes) -> bool | None:
    """Whether the content is official; None without a checksum, as for CIFAR's files until fetching records theirs."""
    if file.md5:
        return md5(raw) == file.md5
    with suppress(OSError, UnicodeDecodeError):
        for line in (path.parent / RECORD).read_text(encoding="utf-8").splitlines():
            if line.split()[1:] == [path.name]:
                return md5(raw) == line.split()[0]
    return None


def md5(raw: bytes) -> str:
    """The MD5 checksum, which the sources publish; it guards against accidents only."""
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()
