"""Image files decoded while the network trains: for sets that fit into no memory, such as ImageNet.

Only the list of the files is held. Threads decode the images of the next few batches while the device works on this
one; each image is a function of its file, its number and the batch's seed, so order and bits are the same for any
number of threads, for a run that was resumed, and for a batch split over ranks (each decodes its own part only).
"""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epoch0.data import ImageFiles, image_files, load
from epoch0.data.decoding import decoded, default_workers
from epoch0.errors import InputError
from epoch0.train.augmentation import CentreCrop, CropResizeFlip, PadCropFlip, uniforms
from epoch0.train.sources import CPU, Images, exact, scaled

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's training pixels, red, green and blue, of a fully lit one at 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Their standard deviation."""

_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Folder:
    """A source that opens its image files when they are asked for.

    >>> source = Folder.of("imagenet", "train", augment=True).to("cuda")        # doctest: +SKIP
    >>> inputs, targets = source.batch(torch.arange(256), seed=0)               # doctest: +SKIP
    >>> inputs.shape                                                            # doctest: +SKIP
    torch.Size([256, 3, 224, 224])

    Args:
        files: which, and their classes.
        view: makes a square of each image.
        scaling: subtracted from red, green and blue, then divided by, in bytes; float32 of shape (2, 3).
        channels_last: give batches in torch's channels-last order; costs nothing, as decoded images come that way.
        workers: threads that decode.
        ahead: batches that are begun before they are asked for, by :func:`epoch0.train.sources.batches`.
        device: where batches go.

    Raises:
        InputError: if `workers` is below 1 or `ahead` below 0.
    """

    files: ImageFiles
    view: CropResizeFlip | CentreCrop
    scaling: Tensor = field(repr=False)
    channels_last: bool = False
    workers: int = 1
    ahead: int = 3
    device: torch.device = CPU

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        if self.workers < 1 or self.ahead < 0:
            raise InputError(f"workers={self.workers} and ahead={self.ahead} cannot be; at least 1 thread decodes, and "
                             "0 or more batches are begun ahead.")  # fmt: skip

    @staticmethod
    def of(
        name: str,
        split: str = "train",
        *,
        augment: bool = False,
        size: int = 224,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        channels_last: bool = False,
        workers: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> "Folder":
        """A set that comes as a tree of image files.

        Args:
            name: ``"imagenet"``, ``"tiny-imagenet"`` or ``"folder:PATH"``; see :func:`epoch0.data.image_files`.
            split: ``"train"`` or ``"test"`` (ImageNet's validation images).
            augment: random parts and flips, for training; else the central square of the image, whose shorter side is
                made 8/7 of `size` (256 for 224).
            size: side of the squares, in pixels.
            mean: subtracted from red, green and blue in [0, 1].
            std: what they are divided by then.
            channels_last: give batches in channels-last order.
            workers: threads that decode; by default one for each core, shared with the other ranks of this machine.
            data_dir: folder searched first.

        Raises:
            InputError: if the set is not there or not whole, or an argument cannot be.
        """
        files = image_files(name, split, data_dir)
        if min(std) <= 0 or size < 1:
            raise InputError(f"std={std} and size={size} must be above 0.")
        view = CropResizeFlip(size) if augment else CentreCrop(size, size * 8 // 7)
        scaling = torch.tensor([mean, std], dtype=torch.float64) * 255
        threads = default_workers() if workers is None else workers
        return Folder(files, view, scaling.float(), channels_last, threads)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.files.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return (3, self.view.size, self.view.size)

    @property
    def held(self) -> str:
        """Where the images are: on the disk."""
        threads = f"{self.workers} thread{'s' if self.workers > 1 else ''}"
        return f"{len(self):,} files in {self.files.root}, decoded by {threads}, each batch copied to {self.device}"

    @cached_property
    def targets(self) -> Tensor:
        """Class of every image, int64 of shape (images,), on the CPU."""
        return torch.from_numpy(self.files.labels.copy())

    @cached_property
    def fingerprint(self) -> str:
        """Number of files, checksum of their names, classes and scaling, and the view; not of their content."""
        total = hashlib.sha256("\0".join((*self.files.names, *self.files.classes)).encode("utf-8", "surrogateescape"))
        total.update(self.files.labels.tobytes() + self.scaling.cpu().numpy().tobytes())
        return f"{len(self)} files {total.hexdigest()[:16]} {self.view}"

    def augmented(self) -> "Folder":
        """The same files, seen as random parts of the same size, every second one mirrored."""
        return replace(self, view=CropResizeFlip(self.view.size))

    def to(self, device: str | torch.device) -> "Folder":
        """The same source with batches on that device."""
        device = exact(device)
        return replace(self, device=device, scaling=self.scaling.to(device))

    def batch(self, chosen: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples; see :class:`epoch0.train.sources.Source`."""
        return self.begin(chosen, seed)()

    def begin(self, chosen: Tensor, seed: int) -> "Decoding":
        """Let the threads begin with a batch; call what comes back to wait for it."""
        size, count, numbers = self.view.size, len(chosen), chosen.numpy()
        # pinned memory is copied to a GPU while that computes
        pixels = torch.empty((count, size, size, 3), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        u = uniforms(numbers, seed, self.view.numbers)
        rows = pixels.numpy()
        blocks = [
            self._pool.submit(self._decode, rows[i : i + _BLOCK], numbers[i : i + _BLOCK], u[i : i + _BLOCK])
            for i in range(0, count, _BLOCK)
        ]
        return Decoding(self, chosen, pixels, blocks)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers, thread_name_prefix="decoding")

    def _decode(self, rows: NDArray[np.uint8], numbers: NDArray[np.int64], u: NDArray[np.float64]) -> None:
        for row, number, own in zip(rows, numbers.tolist(), u, strict=True):
            image = decoded(self.files.path(number))
            row[:] = self.view(image if image.mode == "RGB" else image.convert("RGB"), own)


@dataclass(frozen=True, eq=False)
class Decoding:
    """A batch that is being decoded."""

    source: Folder
    chosen: Tensor
    pixels: Tensor
    blocks: "list[Future[None]]"

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Wait for the batch; an image that cannot be read is named, the first in the batch's order if there are more.

        Raises:
            InputError: naming the file.
        """
        try:
            for block in self.blocks:
                block.result()
        finally:
            self.drop()
        source = self.source
        images = self.pixels.to(source.device, non_blocking=True).permute(0, 3, 1, 2)
        if not source.channels_last:
            images = images.contiguous()
        targets = source.targets[self.chosen].to(source.device, non_blocking=True)
        return scaled(images, source.scaling), targets

    def drop(self) -> None:
        """Nobody wants it any more: what has not been begun is left undone."""
        for block in self.blocks:
            block.cancel()


def image_sources(
    name: str,
    *,
    augment: bool = False,
    flatten: bool = False,
    channels_last: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
) -> tuple[Images | Folder, Images | Folder]:
    """Train and test split of any data set as sources with the customary treatment.

    >>> train, test = image_sources("digits", flatten=True)
    >>> len(train), len(test), train.shape, train.classes
    (1437, 360, (64,), 10)

    ImageNet streams from the disk; every other set is read into memory and standardized with the channel statistics of
    its train split.

    Args:
        name: of the set; see :func:`epoch0.data.load`.
        augment: for the train split: pad by 4, crop and flip; for ImageNet random parts and flips.
        flatten: rows for dense networks; not with ImageNet.
        channels_last: batches in torch's channels-last order.
        data_dir: folder searched first.

    Raises:
        InputError: if the set cannot be found or read, a class has no training image, or `flatten` does not go with
            the rest.
    """
    if name == "imagenet":
        if flatten:
            raise InputError("imagenet cannot come with flatten=True; its images have 150,528 numbers each.")
        files, others = (
            Folder.of(name, split, channels_last=channels_last, data_dir=data_dir) for split in ("train", "test")
        )
        return (files.augmented() if augment else files), others
    train, test = (load(name, split, data_dir) for split in ("train", "test"))
    counts = np.bincount(train.labels, minlength=len(train.classes))
    if not counts.all():  # a folder may have classes in one split only; what is never shown cannot be learnt
        untaught = [one for one, count in zip(train.classes, counts, strict=True) if not count]
        raise InputError(
            f"{name} has {len(train.classes)} classes and its train split images of {np.count_nonzero(counts)}: it "
            f"lacks {', '.join(untaught[:3])}{f' and {len(untaught) - 3} more' if len(untaught) > 3 else ''}."
        )
    images = Images.of(train, flatten=flatten, channels_last=channels_last)
    held_out = Images.of(test, like=train, flatten=flatten, channels_last=channels_last)
    return (images.augmented(PadCropFlip(4)) if augment else images), held_out
