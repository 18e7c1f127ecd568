"""Where a training run takes its batches from: tensors and image sets held on the device where they fit there.

A source gives any examples by number, so the order of an epoch belongs to the loop, and a batch is a function of the
examples chosen and of one seed: the same for any device, any number of workers, and after a resumed checkpoint. The
random numbers of augmentation belong to the example, not to its place in the batch: a batch split over the ranks of a
distributed run is the joint batch.
"""

import warnings
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from epoch0.data import DataSet
from epoch0.errors import InputError, check_finite
from epoch0.train.augmentation import Augmentation
from epoch0.train.checkpoint import digest

_S = TypeVar("_S")
CPU = torch.device("cpu")

SHARE = 0.5
"""Largest part of a device's free memory that data may take; the rest is the network's."""


@runtime_checkable
class Source(Protocol):
    """Labelled examples that a run can draw batches from.

    >>> source = Tensors(torch.eye(4), torch.arange(4)).to("cpu")
    >>> inputs, targets = source.batch(torch.tensor([2, 0]), seed=0)        # (2, 4) and (2,)
    >>> targets
    tensor([2, 0])

    Attributes:
        fingerprint: tells these data, and what is done to them, from any other; goes into checkpoints.
        targets: every target, in order, shape (examples, ...), on the host or the device.
        held: where the data lie and why, in words.
    """

    if TYPE_CHECKING:  # not for isinstance, which would compute the fingerprint of all data to see that there is one

        @property
        def fingerprint(self) -> str: ...  # noqa: D102 - described above

        @property
        def targets(self) -> Tensor: ...  # noqa: D102

        @property
        def held(self) -> str: ...  # noqa: D102

    def __len__(self) -> int: ...

    def to(self, device: str | torch.device) -> "Source":
        """The same source with batches on that device; the data are kept there too if they fit."""
        ...

    def batch(self, chosen: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples, on the device.

        Args:
            chosen: their numbers, int64 of shape (batch,), on the CPU.
            seed: of this batch's augmentation, an integer >= 0.
        """
        ...


def batches(source: Source, plan: Iterable[tuple[Tensor, int]]) -> Generator[tuple[Tensor, Tensor], None, None]:
    """The batches of a plan, one after another; a source that can work ahead begins the next ones meanwhile.

    >>> plan = [(torch.tensor([0, 1]), 5), (torch.tensor([3]), 6)]
    >>> [len(targets) for _, targets in batches(Tensors(torch.eye(4), torch.arange(4)), plan)]
    [2, 1]

    Args:
        source: where from; where its class has ``begin(chosen, seed)`` that returns a function which waits for the
            batch, and a number ``ahead``, so many batches are begun before they are asked for.
        plan: chosen examples and seed of each batch; read at most ``ahead`` further than what was given out.

    Returns:
        A generator; what has been begun is dropped when it is closed.
    """
    begin = getattr(source, "begin", None)
    if begin is None:
        for chosen, seed in plan:
            yield source.batch(chosen, seed)
        return
    ahead: int = source.ahead  # type: ignore[attr-defined]
    under_way: deque[Any] = deque()
    try:
        for chosen, seed in plan:
            under_way.append(begin(chosen, seed))
            if len(under_way) > ahead:
                yield under_way.popleft()()
        while under_way:
            yield under_way.popleft()()
    finally:
        for waiting in under_way:
            waiting.drop()


@dataclass(frozen=True, eq=False)
class Tensors:
    """Inputs and targets as they are, in two tensors.

    >>> source = Tensors(torch.eye(4), torch.arange(4))             # (examples, ...) and (examples, ...)
    >>> len(source), source.held
    (4, '96 B on cpu')

    Args:
        inputs: first dimension the examples; any dtype; floating-point ones must be finite.
        targets: as many.
        augment: changes each batch of images, shape (batch, channels, height, width); see
            :mod:`epoch0.train.augmentation`.
        device: where batches go.
        held: where the tensors lie, in words.

    Raises:
        InputError: if there is no example, the counts differ, or a value is NaN or infinite.
    """

    inputs: Tensor
    targets: Tensor
    augment: Augmentation | None = None
    device: torch.device | None = None
    held: str = ""

    def __post_init__(self) -> None:
        """Check the tensors, once: copies made by `to` come checked."""
        if self.device is not None:
            return
        check_examples(self.inputs, self.targets)
        object.__setattr__(self, "device", self.inputs.device)
        object.__setattr__(self, "held", f"{size(_bytes(self.inputs, self.targets))} on {self.inputs.device}")

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def fingerprint(self) -> str:
        """Shape and checksum of the content, and what augmentation does to it."""
        tensors = {"inputs": self.inputs.detach().cpu(), "targets": self.targets.detach().cpu()}
        content = f"{tuple(self.inputs.shape)} {digest('', tensors)[:16]}"
        return content if self.augment is None else f"{content} {self.augment}"

    def to(self, device: str | torch.device) -> "Tensors":
        """The same source on a device: its tensors too if they take at most half of what is free there."""
        device = exact(device)
        fits, held = room(device, self.inputs, self.targets)
        tensors = (self.inputs.to(device), self.targets.to(device)) if fits else (self.inputs, self.targets)
        return _known(self, replace(self, inputs=tensors[0], targets=tensors[1], device=device, held=held))

    def batch(self, chosen: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples; see :class:`Source`."""
        inputs = take(self.inputs, chosen).to(self.device)
        targets = take(self.targets, chosen).to(self.device)
        return (inputs if self.augment is None else self.augment(inputs, chosen, seed)), targets


@dataclass(frozen=True, eq=False)
class Images:
    """Images held as bytes, a quarter of the memory, and made network inputs batch by batch.

    >>> digits = load("digits")
    >>> source = Images.of(digits, augment=PadCropFlip(1))
    >>> inputs, targets = source.batch(torch.tensor([3, 1, 4]), seed=0)
    >>> inputs.shape, inputs.dtype                                  # (batch, channels, height, width)
    (torch.Size([3, 1, 8, 8]), torch.float32)

    Without augmentation the inputs are those of ``dataset.inputs(normalize, like=...)``, to the last bit.

    Args:
        images: shape (examples, channels, height, width), uint8; kept in channels-last order if they come so.
        targets: class of every image, int64 of shape (examples,).
        scaling: subtracted from every channel, then divided by; two rows of float32, shape (2, channels).
        augment: changes each batch of bytes, before they are scaled, so that padding is black.
        flatten: inputs of shape (batch, channels * height * width), for dense networks.
        classes: how many there are.
        device: where batches go.
        held: where the images lie, in words.
    """

    images: Tensor
    targets: Tensor
    scaling: Tensor
    augment: Augmentation | None = None
    flatten: bool = False
    classes: int = 0
    device: torch.device = CPU
    held: str = ""

    @staticmethod
    def of(
        dataset: DataSet,
        *,
        normalize: str = "standard",
        like: DataSet | None = None,
        augment: Augmentation | None = None,
        flatten: bool = False,
        channels_last: bool = False,
    ) -> "Images":
        """The images of a data set, on the CPU.

        >>> train, test = load("digits"), load("digits", "test")
        >>> len(Images.of(test, like=train, flatten=True))
        360

        Args:
            dataset: its images are shared, not copied.
            normalize: ``"standard"`` (every channel to mean 0 and variance 1) or ``"unit"`` (pixels in [0, 1]).
            like: the set whose channel statistics are used: the train split, for the test split.
            augment: such as ``PadCropFlip(4)``; for the train split only.
            flatten: one row an image, for dense networks.
            channels_last: hold and give the images in torch's channels-last order, which convolutions on GPUs prefer.

        Raises:
            InputError: for another normalization, a constant channel, or `flatten` with `channels_last`.
        """
        if flatten and channels_last:
            raise InputError("flatten=True makes rows, which have no channels_last=True; use one of the two.")
        scaling = torch.from_numpy(np.stack(dataset.scaling(normalize, like)).astype(np.float32))
        with warnings.catch_warnings():  # arrays of mapped files cannot be written to, and nobody does
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            images = torch.from_numpy(np.ascontiguousarray(dataset.images))
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        targets = torch.from_numpy(dataset.labels.astype(np.int64))
        held = f"{size(_bytes(images, targets))} on cpu"
        return Images(images, targets, scaling, augment, flatten, len(dataset.classes), held=held)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        shape = self.images.shape[1:]
        return (shape.numel(),) if self.flatten else tuple(shape)

    @cached_property
    def fingerprint(self) -> str:
        """Shape and checksum of images, labels and scaling, and what else is done to them."""
        tensors = {"images": self.images, "targets": self.targets, "scaling": self.scaling}
        content = digest("", {name: tensor.cpu() for name, tensor in tensors.items()})[:16]
        return " ".join(
            str(part)
            for part in (tuple(self.images.shape), content, self.augment, "flat" if self.flatten else None)
            if part is not None
        )

    def augmented(self, augment: Augmentation) -> "Images":
        """The same images, shared, each batch of them changed.

        >>> Images.of(load("digits")).augmented(PadCropFlip(1)).augment
        PadCropFlip(pad=1, flip=True)
        """
        return replace(self, augment=augment)

    def to(self, device: str | torch.device) -> "Images":
        """The same source on a device: its images too if they take at most half of what is free there."""
        device = exact(device)
        fits, held = room(device, self.images, self.targets)
        images, targets = (self.images.to(device), self.targets.to(device)) if fits else (self.images, self.targets)
        moved = replace(
            self, images=images, targets=targets, scaling=self.scaling.to(device), device=device, held=held
        )
        return _known(self, moved)

    def batch(self, chosen: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples; see :class:`Source`."""
        if self.images.is_contiguous():
            pixels = take(self.images, chosen).to(self.device)
        else:  # in the order of memory, where a gather moves whole images
            pixels = take(self.images.permute(0, 2, 3, 1), chosen).to(self.device).permute(0, 3, 1, 2)
        if self.augment is not None:
            pixels = self.augment(pixels, chosen, seed)
        inputs = scaled(pixels, self.scaling)
        return (inputs.flatten(1) if self.flatten else inputs), take(self.targets, chosen).to(self.device)


def scaled(pixels: Tensor, scaling: Tensor) -> Tensor:
    """Bytes as network inputs: (pixel - shift) / divisor in float32, each channel with its own.

    >>> scaled(torch.full((1, 1, 2, 2), 16, dtype=torch.uint8), torch.tensor([[0.], [16.]])).unique()
    tensor([1.])

    Args:
        pixels: shape (batch, channels, height, width), uint8, contiguous or channels-last; the order is kept.
        scaling: shift and divisor of every channel, float32 of shape (2, channels).
    """
    if pixels.is_contiguous():
        shift, divisor = scaling[:, :, None, None]
        return torch.sub(pixels, shift).div_(divisor)
    # channels last: rows of many pixels at once, which is six times as fast on a CPU as a loop over three channels
    count, channels, height, width = pixels.shape
    shift, divisor = scaling.repeat(1, width)
    rows = pixels.permute(0, 2, 3, 1).reshape(count, height, width * channels)
    return torch.sub(rows, shift).div_(divisor).reshape(count, height, width, channels).permute(0, 3, 1, 2)


def check_examples(inputs: Tensor, targets: Tensor) -> None:
    """Refuse data without examples, with other counts of inputs and targets, or with NaN or infinity.

    Raises:
        InputError: saying which.
    """
    if len(inputs) != len(targets) or len(inputs) == 0:
        raise InputError(
            f"the data have {len(inputs)} inputs and {len(targets)} targets; "
            "there must be as many of both, and at least one."
        )
    check_finite("the training inputs", inputs)
    check_finite("the training targets", targets)


def check_classes(targets: Tensor, classes: int) -> None:
    """Refuse class labels that a network with so many outputs has no output for, before a GPU dies of them.

    >>> check_classes(torch.tensor([0, 9]), classes=10)

    Args:
        targets: class labels, integers of shape (examples,); anything else is let through.
        classes: outputs of the network.

    Raises:
        InputError: naming the first label that is out of range.
    """
    if targets.is_floating_point() or targets.dim() != 1 or len(targets) == 0:
        return
    low, high = (int(end) for end in torch.aminmax(targets))
    if low < 0 or high >= classes:
        first = int(((targets < 0) | (targets >= classes)).nonzero()[0])
        raise InputError(
            f"example {first} has label {int(targets[first])} and the network has {classes} outputs; labels run from 0 "
            f"to {classes - 1}, and these from {low} to {high}."
        )


def take(values: Tensor, chosen: Tensor) -> Tensor:
    """Rows of a tensor, by numbers that lie on the CPU."""
    # index_select copies whole rows; indexing would go number by number, 15 times slower on a CPU
    return values.index_select(0, chosen.to(values.device, non_blocking=True))


def exact(device: str | torch.device) -> torch.device:
    """A device with its number, so that it equals that of the tensors on it.

    >>> exact("cpu")
    device(type='cpu')
    """
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def room(device: torch.device, *tensors: Tensor) -> tuple[bool, str]:
    """Whether tensors fit on a device beside a network, and in words where they are held then."""
    needed = _bytes(*tensors)
    there = all(tensor.device == device for tensor in tensors)
    if device.type != "cuda" or there:
        return True, f"{size(needed)} on {device}"
    free = torch.cuda.mem_get_info(device)[0]
    if needed <= SHARE * free:
        return True, f"{size(needed)} on {device}"
    return False, (
        f"{size(needed)} on the host, each batch copied to {device}: of {size(free)} free there, data may take "
        f"{SHARE:.0%}"
    )


def size(count: int) -> str:
    """Bytes as a person reads them.

    >>> size(153_600_000)
    '153.6 MB'
    """
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= each:
            return f"{count / each:.1f} {unit}"
    return f"{count} B"


def _known(old: _S, new: _S) -> _S:
    """The new source, with the fingerprint of the old one if that has been computed: it is read through once."""
    if "fingerprint" in vars(old):
        vars(new)["fingerprint"] = vars(old)["fingerprint"]
    return new


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
