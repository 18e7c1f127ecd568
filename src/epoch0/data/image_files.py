"""Sets that come as trees of image files: which files belong to a split, which class each is of, and what is in them.

Tiny ImageNet and ImageNet are read as they are published, any other tree as split/class/files. A class that is missing
or empty and an annotation that fits nothing are errors before the first image is opened. Pillow decodes many at a time.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epoch0.arguments import checked, methods_checked
from epoch0.data.catalogue import KnownSet, Split, known_set, located, place
from epoch0.errors import InputError, reworded
from epoch0.files import StrPath, explained
from epoch0.results import first_names

if TYPE_CHECKING:
    from PIL.Image import Image

FOLDER = "folder:"
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
_IMAGENET_CLASSES = 1000
PAUSE = 2.0  # seconds between two lines of progress


@methods_checked
@dataclass(frozen=True, eq=False)
class ImageFiles:
    """The image files of one split, in order, each with its class; no image has been opened.

    >>> for animal in ("cat", "dog"):
    ...     Path("animals", animal).mkdir(parents=True)
    ...     Path("animals", animal, "0.png").touch()
    >>> files = image_files("folder:animals")
    >>> len(files), files.path(1).name, files.classes[files.labels[1]]
    (2, '0.png', 'dog')
    """

    name: str
    split: str  #: "train", "test" or "all"
    root: Path  #: the folder that the names begin in
    names: tuple[str, ...] = field(repr=False)  #: path of every file under the root, with forward slashes
    labels: NDArray[np.int64] = field(repr=False)  #: class index of every file, shape (n,)
    classes: tuple[str, ...] = field(repr=False)  #: name of every class, in label order

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """Path of the file with this number."""
        if not -len(self) <= index < len(self):
            raise InputError(f"index={index}: there are {len(self)} files.")
        return self.root / self.names[index]


@checked
def image_files(name: str, split: Split = "train", data_dir: StrPath | None = None) -> ImageFiles:
    """The image files of a set that comes as a tree of them.

    It is ``"tiny-imagenet"``, ``"imagenet"`` or ``"folder:PATH"``. The validation part is the test split: the official
    test parts come without labels. Other arguments are as in :func:`load`.

    Raises:
        InputError: if the set is unknown, found nowhere or no tree of image files; if a class has no folder or no
            image; if an annotation names an unknown class or file, or a file has none.
    """
    with explained(name, "data set", "read"):
        if name.startswith(FOLDER):
            return _plain_tree(name, Path(name.removeprefix(FOLDER)).expanduser(), split)
        if not (known := known_set(name)).tree:
            raise InputError(f"{name} does not come as image files; read it whole with epoch0.data.load({name!r}).")
        root = place(located(known, split, data_dir))
        return (_tiny_imagenet if name == "tiny-imagenet" else _imagenet)(known, root, split)


def _tiny_imagenet(known: KnownSet, root: Path, split: str) -> ImageFiles:
    if len(set(classes := _lines(root / "wnids.txt"))) != len(classes) or not classes:
        lines = f"{len(classes)} lines, {len(set(classes))} of them different"
        raise InputError(f"{root / 'wnids.txt'} must name each class once; it has {lines}.")
    classes = sorted(classes)
    if split == "train":
        _check_folders(root / "train", classes, "as wnids.txt has")
        return _files(known.name, split, root, [f"train/{item}/images" for item in classes], classes)
    annotations, images = root / "val" / "val_annotations.txt", root / "val" / "images"
    present, stated = set(_images(images)), dict[str, int]()
    for number, line in enumerate(_lines(annotations), 1):
        file, wnid = (*line.split("\t"), "", "")[:2]
        at = f"line {number} of {annotations}"
        if wnid not in classes:
            raise InputError(f"{at} gives {file!r} the class {wnid!r}, none of the {len(classes)} in wnids.txt.")
        if file not in present or file in stated:
            wrong = "a second time" if file in stated else f"which is not in {images}"
            raise InputError(f"{at} names {file!r}{',' * (file not in stated)} {wrong}.")
        stated[file] = classes.index(wnid)
    if not stated or (missing := sorted(present - set(stated))):
        lacks = f"; it lacks {first_names(missing, 3)}" if stated else ""
        raise InputError(f"{annotations} names {len(stated):,} files and the folder has {len(present):,}{lacks}.")
    order = sorted(stated, key=lambda file: (len(file), file))  # val_2 before val_10
    labels = np.array([stated[file] for file in order], np.int64)
    return ImageFiles(known.name, split, root, tuple(f"val/images/{file}" for file in order), labels, tuple(classes))


def _imagenet(known: KnownSet, root: Path, split: str) -> ImageFiles:
    folders = {part: _subfolders(root / part) for part in ("train", "val") if (root / part).is_dir()}
    part, beside = ("train", "val") if split == "train" else ("val", "train")
    folder = root / part
    if not folders[part] and (loose := _images(folder)):
        hint = f"sort them into one folder a class ({part}/n01440764/...), named as those of train are"
        raise InputError(f"{folder} holds {len(loose):,} image files and no class folder; {hint}.")
    classes = sorted({*folders[part], *folders.get(beside, [])})
    _check_folders(folder, classes, f"as {beside} beside it has")
    if len(classes) != _IMAGENET_CLASSES:
        hint = f"for a part of it name the folder itself: 'folder:{root}' (with train/ and test/ or val/)"
        raise InputError(f"{folder} has {len(classes):,} class folders and ImageNet {_IMAGENET_CLASSES:,}; {hint}.")
    return _files(known.name, split, root, [f"{part}/{item}" for item in classes], classes)


def _plain_tree(name: str, root: Path, split: str) -> ImageFiles:
    if not root.is_dir():
        raise InputError(f"{name}: {root} is not a folder; it must hold split/class/ or class/ with image files.")
    test = "val" if (root / "val").is_dir() and not (root / "test").is_dir() else "test"
    parts = [part for part in ("train", test) if (root / part).is_dir()]
    part = "train" if split == "train" else test
    if parts and part not in parts:
        raise InputError(f"{name} has no folder {split!r}; it has {parts[0]!r}.")
    if not parts and split == "test":
        raise InputError(f"{name} has no split folders, so it has no test part; split='train' gives all of it.")
    # classes are those of both splits, so that a label means the same in each
    classes = sorted({subfolder for folder in parts or [""] for subfolder in _subfolders(root / folder)})
    prefix = f"{part}/" if parts else ""
    names, labels = [], []
    for label, item in enumerate(classes):
        if (folder := root / f"{prefix}{item}").is_dir():
            _subfolders(folder)  # an error where it may not be read, which the next line passes over
        members = sorted(member for member in folder.rglob("*") if member.suffix.lower() in IMAGE_SUFFIXES)
        names += [member.relative_to(root).as_posix() for member in members]
        labels += [label] * len(members)
    if not names:
        wanted = f"split/class/ or class/ with {', '.join(IMAGE_SUFFIXES)} files"
        raise InputError(f"{name} ({split}) holds no image; {root} must hold {wanted}.")
    return ImageFiles(name, split if parts else "all", root, tuple(names), np.array(labels, np.int64), tuple(classes))


def _files(name: str, split: str, root: Path, folders: Sequence[str], classes: Sequence[str]) -> ImageFiles:
    """The images right inside the folder of each class; none may be empty."""
    names, counts = list[str](), list[int]()
    for folder, item in zip(folders, classes, strict=True):
        if not (members := sorted(_images(root / folder))):
            raise InputError(f"{root / folder} holds no image of class {item} of {name} ({split}); unpack it again.")
        names += [f"{folder}/{member}" for member in members]
        counts.append(len(members))
    return ImageFiles(name, split, root, tuple(names), np.repeat(np.arange(len(counts)), counts), tuple(classes))


def _check_folders(folder: Path, classes: Sequence[str], source: str) -> None:
    found = set(_subfolders(folder))
    missing, foreign = sorted(set(classes) - found), sorted(found - set(classes))
    wrong = [f"it lacks {first_names(missing, 3)}"] if missing else []
    wrong += [f"{first_names(foreign, 3)} {'is' if len(foreign) == 1 else 'are'} not among them"] if foreign else []
    if wrong:
        text = f"{folder} must have {len(classes):,} class folders, {source}, and has {len(found):,}"
        raise InputError(f"{text}: {'; '.join(wrong)}.")


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]


def _images(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; the set is not whole there.")
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.name.lower().endswith(IMAGE_SUFFIXES)]


def _lines(path: Path) -> list[str]:
    with reworded(lambda error: InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.")):
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def default_workers() -> int:
    """Threads to decode with: the cores that this process may use, shared with the other ranks of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def decoded(path: Path) -> "Image":
    """An image file as a pillow image, wholly read: mode L if it is grayscale, else RGB without an alpha channel."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("reading image files needs pillow: pip install 'epoch0[images]'.") from error
    try:
        with Image.open(path) as image:
            return image.convert("L" if image.mode in ("1", "L") else "RGB")
    # a damaged file makes pillow raise any of these
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is not a readable image: {error}.") from error


def read_images(
    paths: Sequence[Path], progress: Callable[[int], object] | None = None, workers: int | None = None
) -> NDArray[np.uint8]:
    """Image files of one size as an array, shape (n, channels, height, width), uint8; one channel if all are gray.

    The progress is called with the number of files decoded so far, every two seconds. A file that is damaged or of
    another size is named: the first in order.
    """
    first = decoded(paths[0])
    # the array that is given back from the start, so that a hundred thousand images are never held twice
    images = np.empty((len(paths), 3, first.height, first.width), np.uint8)

    def fill(index: int) -> bool:
        if (image := decoded(paths[index])).size != first.size:
            sizes = f"{image.width} x {image.height} pixels and {paths[0]} is {first.width} x {first.height}"
            raise InputError(f"{paths[index]} is {sizes}; all images of a folder must have one size.")
        pixels = np.asarray(image, np.uint8)
        images[index] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        return pixels.ndim == 2

    all_gray, reported = True, time.monotonic()
    with ThreadPoolExecutor(workers or default_workers()) as pool:
        for done, gray in enumerate(pool.map(fill, range(len(paths))), 1):
            all_gray = all_gray and gray
            if progress is not None and time.monotonic() > reported + PAUSE:
                reported = time.monotonic()
                progress(done)
    return images[:, :1].copy() if all_gray else images
