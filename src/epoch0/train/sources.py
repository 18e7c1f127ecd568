"""Where a training run takes its batches from: tensors and image sets held on the device where they fit there.

A source gives any examples by number, so the order of an epoch belongs to the loop, and a batch is a function of the
examples chosen and of one seed: the same for any device, any number of workers, and after a resumed checkpoint. The
random numbers of augmentation belong to the example, not to its place in the batch: a batch split over the ranks of a
distributed run is the joint batch.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from epoch0.errors import InputError, check_finite
from epoch0.train.augmentation import Augmentation
from epoch0.train.checkpoint import digest

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


def batches(source: Source, plan: Iterable[tuple[Tensor, int]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of a plan, one after another; a source that can work ahead begins the next ones meanwhile.

    >>> plan = [(torch.tensor([0, 1]), 5), (torch.tensor([3]), 6)]
    >>> [len(targets) for _, targets in batches(Tensors(torch.eye(4), torch.arange(4)), plan)]
    [2, 1]

    Args:
        source: where from; where its class has ``begin(chosen, seed)`` that returns a function which waits for the
            batch, and a number ``ahead``, so many batches are begun before they are asked for.
        plan: chosen examples and seed of each batch; read at most ``ahead`` further than what was given out.

    Returns:
        An iterator; what has been begun is dropped when it is closed.
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

    def to(self, device: str | torch.device) -> Self:
        """The same source on a device: its tensors too if they take at most half of what is free there."""
        device = torch.device(device)
        fits, held = room(device, self.inputs, self.targets)
        tensors = (self.inputs.to(device), self.targets.to(device)) if fits else (self.inputs, self.targets)
        return replace(self, inputs=tensors[0], targets=tensors[1], device=device, held=held)

    def batch(self, chosen: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples; see :class:`Source`."""
        inputs = take(self.inputs, chosen).to(self.device)
        targets = take(self.targets, chosen).to(self.device)
        return (inputs if self.augment is None else self.augment(inputs, chosen, seed)), targets


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
    if values.device.type == "cpu":
        return values[chosen]
    return values[chosen.to(values.device, non_blocking=True)]


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


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
