"""The known data sets: what they are, where they are looked for, and the checksums of their official content.

Looking goes ``data_dir`` first, then the folder in EPOCH0_DATA, then the cache; a folder that lacks the set is passed
over, and a set found nowhere is an error that names every folder searched. Nothing is substituted for another set.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
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


# of the pairs of IDX files: bytes and MD5, and those of the gzipped file that is downloaded
_IDX = """
digits train-images 91984 e333a576b80e2540bca103773a6d3112
digits train-labels 1445 d29200ee0a4803dd035a5c60068a86cb
digits test-images 23056 ae18a447655afdafd1c82f6d2f08e523
digits test-labels 368 0d24b60eda4ee9942788015dff18fa82
mnist train-images 47040016 6bbc9ace898e44ae57da46a324031adb 9912422 f68b3c2dcbeaaa9fbdd348bbdeb94873
mnist train-labels 60008 a25bea736e30d166cdddb491f175f624 28881 d53e105ee54ea40749a09fcbcd1e9432
mnist t10k-images 7840016 2646ac647ad5339dbf082846283269ea 1648877 9fb629c4189551a2d022fa330f9573f3
mnist t10k-labels 10008 27ae3e4e09519cfbb04c329615203637 4542 ec29112dd5afa0611ce80d1b7f02629c
fashion-mnist train-images 47040016 f4a8712d7a061bf5bd6d2ca38dc4d50a 26421880 8d4fb7e6c68d591d4c3dfef9ec88bf0d
fashion-mnist train-labels 60008 9018921c3c673c538a1fc5bad174d6f9 29515 25c81989df183df01b3e8a0aad5dffbe
fashion-mnist t10k-images 7840016 8181f5470baa50b63fa0f6fddb340f0a 4422102 bef4ecab320f06d8554ea6380940ec79
fashion-mnist t10k-labels 10008 15d484375f8d13e6eb1aabb0c3f46965 5148 bb300cfdad3c16e7a12a480ee83cd310
"""


_DIGIT_NAMES = tuple("0123456789")
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
    lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal
    shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
Files = tuple[KnownFile, ...]
_PARTS = ((KnownFile("train", 0),), (KnownFile("val", 0),))  # folders of a tree
_TERMS = "ImageNet's terms: research and teaching, no commerce"


def _idx(name: str, what: str, licence: str, folders: tuple[str, ...], *more: Any, **facts: Any) -> KnownSet:
    found = []
    for owner, file, size, md5, *packed in map(str.split, _IDX.split("\n")[1:-1]):
        spelled = file.replace("images", "images-idx3-ubyte").replace("labels", "labels-idx1-ubyte")
        gzipped = KnownFile(f"{spelled}.gz", int(packed[0]), packed[1]) if packed else None
        found += [KnownFile(spelled, int(size), md5, gzipped)] if owner == name else []
    return KnownSet(name, what, licence, "idx", folders, tuple(found[:2]), tuple(found[2:]), *more, **facts)


def _cifar(number: int, folder: str, files: tuple[Files, Files], classes: str, size: int, md5: str) -> KnownSet:
    name, archive = f"cifar{number}", f"cifar-{number}-binary.tar.gz"
    text = f"colour photographs, 32 x 32, {number} classes, 50,000 + 10,000 images"
    rest = text, "none stated; cite Krizhevsky 2009", name, (f"{name}/{folder}", folder), *files, tuple(classes.split())
    return KnownSet(name, *rest, (f"https://www.cs.toronto.edu/~kriz/{archive}",), KnownFile(archive, size, md5), size)


def _tree(name: str, what: str, terms: str, folders: tuple[str, ...], size: int, home: str) -> KnownSet:
    text = f"{what}; put into DIR/{folders[0]}"
    return KnownSet(name, text, terms, "tree", folders, *_PARTS, download=size, home=home)


_DIGITS = "UCI handwritten digits, 8 x 8, 1,437 + 360 images, inside the package"
_HANDWRITTEN = "handwritten digits, 28 x 28, 60,000 + 10,000 images"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"
_ARTICLES = "Zalando's articles of clothing, 28 x 28, 60,000 + 10,000 images"
_GITHUB = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_FASHION = _CLOTHES, (_GITHUB, "https://storage.googleapis.com/tensorflow/tf-keras-datasets/")
_CIFAR10 = tuple(KnownFile(f"data_batch_{i}.bin", 30_730_000) for i in range(1, 6))
_CIFAR10_FILES = _CIFAR10, (KnownFile("test_batch.bin", 30_730_000),)
_CIFAR100_FILES = (KnownFile("train.bin", 153_700_000),), (KnownFile("test.bin", 30_740_000),)
_SMALL = "colour photographs, 64 x 64, 200 classes, 100,000 + 10,000 images"
_LARGE = "colour photographs of all sizes, 1,000 classes, 1,281,167 + 50,000 images"
_TINY = ("tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200", "tiny-imagenet")
_UNPACKED = "http://cs231n.stanford.edu/tiny-imagenet-200.zip, unpacked as it comes"
_WHOLE = ("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
_REGISTERED = "https://image-net.org (ILSVRC2012, after registration): train/CLASS/*.JPEG and val/CLASS/*.JPEG"
_SETS = (
    _idx("digits", _DIGITS, "CC BY 4.0", (), _DIGIT_NAMES, peak=16),
    _idx("mnist", _HANDWRITTEN, "CC BY-SA 3.0", ("mnist", "MNIST/raw"), _DIGIT_NAMES, _MNIST, download=11_594_722),
    _idx("fashion-mnist", _ARTICLES, "MIT", ("fashion-mnist", "FashionMNIST/raw"), *_FASHION, download=30_878_645),
    _cifar(10, "cifar-10-batches-bin", _CIFAR10_FILES, _CIFAR10_NAMES, 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
    _cifar(100, "cifar-100-binary", _CIFAR100_FILES, _CIFAR100_NAMES, 168_513_733, "03b5dce01913d631647c71ecec9e9cb8"),
    _tree("tiny-imagenet", _SMALL, _TERMS, _TINY, 248_100_043, _UNPACKED),
    _tree("imagenet", _LARGE, f"{_TERMS}, by registration", _WHOLE, 144_200_000_000, _REGISTERED),
)
SETS: dict[str, KnownSet] = {known.name: known for known in _SETS}


def known_set(name: str) -> KnownSet:
    """The set of that name, or an InputError with the names there are."""
    if name not in SETS:
        known = f"{', '.join(SETS)}, and folder:PATH for a folder of images"
        raise InputError(f"data set {name!r} is unknown; there are {known}.{suggest(name, SETS)}")
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
