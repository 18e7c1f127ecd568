"""Data that a run draws batches from, and augmentation: two tensors, images held as bytes or files, a ``DataLoader``.

What has ``batch(chosen, seed)`` gives examples by number: a batch is a function of the examples chosen and of one seed,
the same for any number of threads, after a resumed checkpoint, and split over processes. So is an augmentation: the
random numbers of an image come from the seed and the image's own number in its set, on every device.
"""

import hashlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from epoch0.arguments import Count, Density, Depth, Positive, Seed, Size, Whole, checked, methods_checked, refuse
from epoch0.data import DataSet, ImageFiles, image_files, load
from epoch0.data.image_files import decoded, default_workers
from epoch0.errors import InputError, check_finite
from epoch0.initialization.files import digest
from epoch0.seeds import numpy_generator

if TYPE_CHECKING:
    from PIL.Image import Image

_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_BILINEAR = 2  # pillow's number; pillow itself is imported where images are opened
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Augmentation = Callable[[Tensor, Tensor, int], Tensor]
"""``augment(images, chosen, seed)``: the changed images of a batch; its ``repr`` says all that it does.

``images`` has the shape (batch, channels, height, width), any dtype and device, and is not changed; ``chosen`` holds
the number of every image in its set, int64 of shape (batch,), on the CPU; ``seed`` is the batch's own, an integer >= 0.
"""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # red, green, blue; a fully lit pixel is 1


def uniforms(chosen: NDArray[np.int64], seed: int, count: int) -> NDArray[np.float64]:
    """Random numbers in [0, 1) that belong to images: row i depends on the seed and on ``chosen[i]`` only.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, Fig. 16 (SplitMix64).
    """
    keys = numpy_generator(seed).integers(2**64, size=2, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        own = _mixed(keys[0] + chosen.astype(np.uint64) * _STRIDE) ^ keys[1]
        counters = own[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _STRIDE
        return (_mixed(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@checked
@dataclass(frozen=True)
class PadCropFlip:
    """Zeros around each image, a random crop of the old size out of it, and every second one mirrored.

    >>> images = torch.arange(18.).reshape(2, 1, 3, 3)              # (batch, channels, height, width)
    >>> PadCropFlip(pad=1)(images, chosen=torch.tensor([5, 8]), seed=0).shape
    torch.Size([2, 1, 3, 3])

    Source: K. He et al., "Deep residual learning", CVPR 2016, section 4.2 (pad 4, on CIFAR-10).
    """

    pad: Depth = 4
    flip: bool = True

    def drawn(self, chosen: Tensor, seed: Seed) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """First row and first column of each crop in the padded image, and which are mirrored; each (batch,)."""
        u = uniforms(chosen.numpy(), seed, 3)
        down, right = (u[:, :2] * (2 * self.pad + 1)).astype(np.int64).T
        return down, right, (u[:, 2] < 0.5) & self.flip

    def __call__(self, images: Annotated[Tensor, None], chosen: Tensor, seed: Seed) -> Tensor:
        """The crops; see ``Augmentation``."""
        down, right, mirrored = (torch.from_numpy(drawn) for drawn in self.drawn(chosen, seed))
        count, channels, height, width = images.shape
        rows, columns = down[:, None] + torch.arange(height), right[:, None] + torch.arange(width)
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
        image, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[:, None, None]
        places = (image, channel, rows[:, None, :, None], columns[:, None, None, :])
        return F.pad(images, (self.pad,) * 4)[tuple(place.to(images.device, non_blocking=True) for place in places)]


@checked
@dataclass(frozen=True)
class CropResizeFlip:
    """A random part of an image of any size, stretched to a square, and every second one mirrored.

    >>> view = CropResizeFlip(224)
    >>> from PIL import Image
    >>> view(Image.new("RGB", (300, 200)), np.full(view.numbers, 0.5)).shape
    (224, 224, 3)

    A part has a share of the image's area drawn from `area` and a ratio of width to height whose logarithm is drawn
    from that of `ratio`; of ten draws the first that fits into the image is taken, else the largest central part of a
    ratio allowed. ``numbers`` is how many random numbers an image takes.

    Source: C. Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6 (8 to 100 %, 3/4 to 4/3).
    """

    size: Size = 224
    area: tuple[Density, Density] = (0.08, 1.0)
    ratio: tuple[Positive, Positive] = (3 / 4, 4 / 3)

    tries: ClassVar[int] = 10
    numbers: ClassVar[int] = 2 * tries + 3

    def box(self, width: int, height: int, u: NDArray[np.float64]) -> tuple[int, int, int, int]:
        """Left, upper, right and lower edge of the part, in pixels, from `numbers` random numbers in [0, 1)."""
        low, high = (math.log(end) for end in self.ratio)
        for share, shape in u[: 2 * self.tries].reshape(-1, 2).tolist():
            part = width * height * (self.area[0] + (self.area[1] - self.area[0]) * share)
            ratio = math.exp(low + (high - low) * shape)
            wide, tall = round(math.sqrt(part * ratio)), round(math.sqrt(part / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                left, upper = int(u[-3] * (width - wide + 1)), int(u[-2] * (height - tall + 1))
                break
        else:
            wide = min(width, max(1, round(height * self.ratio[1])))
            tall = min(height, max(1, round(width / self.ratio[0])))
            left, upper = (width - wide) // 2, (height - tall) // 2
        return left, upper, left + wide, upper + tall

    def __call__(self, image: "Image", u: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Bytes of shape (size, size, 3), from an RGB image and `numbers` random numbers in [0, 1)."""
        # cropped before it is stretched: resize(box=...) would let pixels outside the part in at its edges
        part = image.crop(self.box(image.width, image.height, u)).resize((self.size, self.size), _BILINEAR)
        pixels = np.asarray(part, np.uint8)
        return pixels[:, ::-1] if u[-1] < 0.5 else pixels


@checked
@dataclass(frozen=True)
class CentreCrop:
    """The central square of an image whose shorter side has been brought to a given length; nothing is random.

    >>> CentreCrop(224, shorter=256).numbers
    0

    Source: A. Krizhevsky et al. 2012, section 2 (256); K. He et al., CVPR 2016, section 3.4 (one central crop of 224).
    """

    size: Size = 224  #: side of the square
    shorter: Size = 256  #: shorter side of the image before the square is cut out, at least as long

    numbers: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.size > self.shorter:
            text = f"a square of {self.size} pixels cannot be cut from an image {self.shorter} wide"
            raise InputError(f"CentreCrop({self.size}, shorter={self.shorter}): {text}.")

    def __call__(self, image: "Image", u: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Bytes of shape (size, size, 3), from an RGB image."""
        # the longer side is cut to whole pixels, as the reference implementations do
        wide, tall = (self.shorter * length // min(image.size) for length in image.size)
        left, upper = round((wide - self.size) / 2), round((tall - self.size) / 2)
        square = (left, upper, left + self.size, upper + self.size)
        return np.asarray(image.resize((wide, tall), _BILINEAR).crop(square), np.uint8)


@dataclass(frozen=True, eq=False)
class Pair:
    """Inputs and targets in two tensors, as many of both, the first dimension the examples; finite."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        for name, given in (("inputs", self.inputs), ("targets", self.targets)):
            if not isinstance(given, Tensor) or given.dim() == 0:
                raise refuse(name, given, "a tensor whose first dimension is the examples")
        if len(self.inputs) != len(self.targets) or len(self.inputs) == 0:
            raise InputError(f"the data have {len(self.inputs)} inputs and {len(self.targets)} targets; one for each.")
        check_finite("the training inputs", self.inputs)
        check_finite("the training targets", self.targets)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def fingerprint(self) -> str:
        """Checksum of inputs and targets."""
        return digest("", {"inputs": self.inputs.cpu(), "targets": self.targets.cpu()})[:16]

    def to(self, device: torch.device) -> "Pair":
        moved = object.__new__(Pair)  # checked already
        moved.__dict__.update(inputs=self.inputs.to(device), targets=self.targets.to(device))
        return moved

    def batch(self, chosen: Tensor, seed: Seed = 0) -> tuple[Tensor, Tensor]:
        return take(self.inputs, chosen), take(self.targets, chosen)


@methods_checked
@dataclass(frozen=True, eq=False)
class Images:
    """Images held as bytes, a quarter of the memory, and made network inputs batch by batch.

    >>> source = Images.of(load("digits"), augment=PadCropFlip(1))
    >>> source.batch(torch.tensor([3, 1, 4]), seed=0)[0].shape      # (batch, channels, height, width), float32
    torch.Size([3, 1, 8, 8])

    Without augmentation the inputs are those of ``dataset.inputs(normalize, like=...)``, to the last bit.
    """

    images: Tensor  #: shape (examples, channels, height, width), uint8
    targets: Tensor  #: class of every image, int64 of shape (examples,)
    scaling: Tensor  #: subtracted from every channel, then divided by; float32 of shape (2, channels)
    #: changes each batch of bytes, before they are scaled, so that padding is black
    augment: Augmentation | None = None
    flatten: bool = False  #: one row an image, for dense networks
    classes: Whole = 0  #: how many there are

    @staticmethod
    def of(
        dataset: DataSet,
        *,
        normalize: str = "standard",
        like: DataSet | None = None,
        augment: Augmentation | None = None,
        flatten: bool = False,
    ) -> "Images":
        """The images of a data set, shared, not copied.

        ``normalize`` is ``"standard"`` (every channel to mean 0 and variance 1, by the statistics of ``like``: the
        train split, for the test split) or ``"unit"`` (pixels in [0, 1]).
        """
        scaling = torch.from_numpy(np.stack(dataset.scaling(normalize, like)).astype(np.float32))
        images = torch.from_numpy(np.ascontiguousarray(dataset.images))
        targets = torch.from_numpy(dataset.labels.astype(np.int64))
        return Images(images, targets, scaling, augment, flatten, len(dataset.classes))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        shape = self.images.shape[1:]
        return (shape.numel(),) if self.flatten else tuple(shape)

    @property
    def fingerprint(self) -> str:
        """Checksum of images, labels and scaling, and what else is done to them."""
        held = {"images": self.images, "targets": self.targets, "scaling": self.scaling}
        return f"{digest('', {name: t.cpu() for name, t in held.items()})[:16]} {self.augment} {self.flatten}"

    def augmented(self, augment: Augmentation | None = None) -> "Images":
        """The same images, each batch of them changed; None pads by 4, crops and flips."""
        return replace(self, augment=PadCropFlip(4) if augment is None else augment)

    def first(self, count: Count) -> "Images":
        """The first images only."""
        return replace(self, images=self.images[:count], targets=self.targets[:count])

    def to(self, device: torch.device | str) -> "Images":
        return replace(self, **{name: getattr(self, name).to(device) for name in ("images", "targets", "scaling")})

    def batch(self, chosen: Tensor, seed: Seed = 0) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples, numbers on the CPU; ``seed`` is that of the batch's augmentation."""
        pixels = take(self.images, chosen)
        if self.augment is not None:
            pixels = self.augment(pixels, chosen, seed)
        shift, divisor = self.scaling[:, :, None, None]
        inputs = torch.sub(pixels, shift).div_(divisor)
        return (inputs.flatten(1) if self.flatten else inputs), take(self.targets, chosen)


@methods_checked
@dataclass(frozen=True, eq=False)
class Folder:
    """Image files opened when they are asked for, by threads, one batch ahead: for sets that fit into no memory.

    >>> source = Folder.of("imagenet", "train", augment=True)                   # doctest: +SKIP
    >>> source.batch(torch.arange(256), seed=0)[0].shape                        # doctest: +SKIP
    torch.Size([256, 3, 224, 224])
    """

    files: ImageFiles
    view: CropResizeFlip | CentreCrop  #: makes a square of each image
    scaling: Tensor = field(repr=False)  #: subtracted from the colours, then divided by; bytes, float32 of shape (2, 3)
    workers: int = 1  #: threads that decode

    @staticmethod
    def of(
        name: str,
        split: str = "train",
        *,
        augment: bool = False,
        size: Size = 224,
        workers: Count | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> "Folder":
        """A set that comes as a tree of image files, with ImageNet's scaling.

        Args:
            name: ``"imagenet"``, ``"tiny-imagenet"`` or ``"folder:PATH"``; see :func:`epoch0.data.image_files`.
            split: ``"train"`` or ``"test"`` (ImageNet's validation images).
            augment: random parts and flips, for training; else the central square after the shorter side is 8/7 of
                `size`.
            size: side of the squares, in pixels.
            workers: threads that decode; by default one for each core, shared with the other ranks of this machine.
            data_dir: folder searched first.
        """
        view = CropResizeFlip(size) if augment else CentreCrop(size, size * 8 // 7)
        scaling = torch.tensor([IMAGENET_MEAN, IMAGENET_STD], dtype=torch.float64) * 255
        return Folder(image_files(name, split, data_dir), view, scaling.float(), workers or default_workers())

    def __len__(self) -> int:
        return len(self.files)

    @property
    def classes(self) -> int:
        return len(self.files.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.view.size, self.view.size)

    @cached_property
    def targets(self) -> Tensor:
        """Class of every file, int64."""
        return torch.from_numpy(self.files.labels.copy())

    @property
    def fingerprint(self) -> str:
        """Checksum of the names of the files and their classes, and the view."""
        total = hashlib.sha256("\0".join((*self.files.names, *self.files.classes)).encode("utf-8", "surrogateescape"))
        total.update(self.files.labels.tobytes())
        return f"{total.hexdigest()[:16]} {self.view}"

    def augmented(self) -> "Folder":
        """The same files, seen as random parts of the same size, every second one mirrored."""
        return replace(self, view=CropResizeFlip(self.view.size))

    def first(self, count: Count) -> "Folder":
        files = self.files
        return replace(self, files=replace(files, names=files.names[:count], labels=files.labels[:count]))

    def to(self, device: torch.device | str) -> "Folder":
        return replace(self, scaling=self.scaling.to(device))

    def batch(self, chosen: Tensor, seed: Seed = 0) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples; see :meth:`Images.batch`. A file that cannot be read is named."""
        numbers, paths = uniforms(chosen.numpy(), seed, self.view.numbers), map(self.files.path, chosen.tolist())
        views = self._pool.map(lambda path, own: self.view(decoded(path).convert("RGB"), own), paths, numbers)
        pixels = torch.from_numpy(np.stack(list(views)))
        shift, divisor = self.scaling
        device = shift.device
        inputs = torch.sub(pixels.to(device), shift).div_(divisor).permute(0, 3, 1, 2).contiguous()
        return inputs, self.targets[chosen].to(device)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers, thread_name_prefix="decoding")


def batches(source: Any, plan: Iterable[tuple[Tensor, int]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of a plan of chosen examples and seeds; those of a :class:`Folder` are begun one ahead."""
    if not isinstance(source, Folder):
        yield from (source.batch(*each) for each in plan)
        return
    with ThreadPoolExecutor(1) as thread:
        begun: Iterator[Any] = (thread.submit(source.batch, *each) for each in plan)
        for batch, _ahead in itertools.pairwise(itertools.chain(begun, [None])):
            yield batch.result()


@checked
def image_sources(
    name: str, *, augment: bool = False, flatten: bool = False, data_dir: str | os.PathLike[str] | None = None
) -> tuple[Any, Any]:
    """Train and test split of any data set, treated as is customary: :class:`Images`, of ImageNet :class:`Folder`.

    >>> train, test = image_sources("digits", flatten=True)
    >>> len(train), len(test), train.shape, train.classes
    (1437, 360, (64,), 10)

    ImageNet streams from the disk; every other set is read into memory and standardized over its train split.

    Augmentation changes the train split: pad by 4, crop and flip; ImageNet: random parts and flips. ``flatten`` gives
    rows for dense networks, not with ImageNet. Names and folders are those of :func:`epoch0.data.load`.
    """
    if name == "imagenet":
        if flatten:
            raise InputError("imagenet cannot come with flatten=True; its images have 150,528 numbers each.")
        files, others = (Folder.of(name, split, data_dir=data_dir) for split in ("train", "test"))
        return (files.augmented() if augment else files), others
    train, test = (load(name, split, data_dir) for split in ("train", "test"))
    images, held_out = (Images.of(split, like=train, flatten=flatten) for split in (train, test))
    return (images.augmented() if augment else images), held_out


def check_classes(targets: Tensor, classes: int) -> None:
    """Refuse labels that are no number of a class, before an accelerator fails on them."""
    if targets.is_floating_point() or targets.dim() != 1 or len(targets) == 0:
        return
    low, high = (int(end) for end in torch.aminmax(targets))
    if low < 0 or high >= classes:
        first = int(((targets < 0) | (targets >= classes)).nonzero()[0])
        text = f"example {first} has label {int(targets[first])} and the network has {classes} outputs"
        raise InputError(f"{text}; labels run from 0 to {classes - 1}, and these from {low} to {high}.")


def take(values: Tensor, chosen: Tensor) -> Tensor:
    """Rows of a tensor, by numbers that lie on the CPU."""
    if chosen.dim() != 1 or chosen.dtype not in (torch.int32, torch.int64):
        raise refuse("chosen", chosen, "integers, the numbers of examples, in one dimension")
    # index_select copies whole rows; indexing would go number by number, 15 times slower on a CPU
    return values.index_select(0, chosen.to(values.device, non_blocking=True))
