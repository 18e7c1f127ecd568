"""A labelled image set in memory, and the three ways to turn its pixels into network inputs."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from epoch0.arguments import Count, checked
from epoch0.errors import InputError, suggest

NORMALIZATIONS = ("unit", "standard", "norm")
_BLOCK = 256


@checked
@dataclass(frozen=True, eq=False)
class DataSet:
    """Images with labels; a value, never changed by epoch0.

    >>> digits = load("digits", split="test")
    >>> digits.images.shape, digits.labels.shape               # (n, channels, height, width), (n,)
    ((360, 1, 8, 8), (360,))
    >>> digits.inputs().shape                                  # (n, channels * height * width), float32 in [0, 1]
    (360, 64)

    Raises:
        InputError: if there is no image, images are not (n, channels, height, width), or counts and labels disagree.
    """

    name: str  #: what the set is called, such as ``"mnist"``
    split: str  #: ``"train"``, ``"test"``, or ``"all"`` for an image folder without split folders
    images: NDArray[np.uint8] = field(repr=False)  #: pixels, shape (n, channels, height, width), n >= 1
    labels: NDArray[np.int64] = field(repr=False)  #: class index of every image, shape (n,)
    classes: tuple[str, ...] = field(repr=False)  #: name of every class, in label order
    peak: Count = 255  #: the value of a fully lit pixel (16 for the digits, 255 elsewhere)
    verified: bool = False  #: whether the content is known to be the official one, by checksum

    def __post_init__(self) -> None:
        named, images, labels = f"{self.name} ({self.split})", self.images, self.labels
        if images.ndim != 4 or labels.ndim != 1:
            text = f"{named} has images of shape {images.shape} and labels of shape {labels.shape}"
            raise InputError(f"{text}; they must be (n, channels, height, width) and (n,).")
        if images.size == 0:
            raise InputError(f"{named} holds no image; a data set needs at least one.")
        if len(images) != len(labels):
            raise InputError(f"{named} has {len(images):,} images but {len(labels):,} labels; the counts must agree.")
        low, high, last = int(labels.min()), int(labels.max()), len(self.classes) - 1
        if low < 0 or high > last:
            wanted = f"labels run from 0 to {last}"
            raise InputError(f"{named} has labels from {low} to {high} for {last + 1} classes; {wanted}.")

    def __len__(self) -> int:
        return len(self.images)

    def __str__(self) -> str:
        shape = " x ".join(str(size) for size in self.images.shape[1:])
        content = "official content" if self.verified else "content not verified"
        return f"{self.name} ({self.split}): {len(self):,} images of {shape}, {len(self.classes)} classes, {content}"

    def inputs(
        self,
        normalize: Annotated[str | None, (*NORMALIZATIONS, None)] = "unit",
        flatten: bool = True,
        dtype: type[np.floating] | np.dtype | str = np.float32,
        like: "DataSet | None" = None,
    ) -> NDArray[np.floating]:
        """The images as fresh floating-point network inputs.

        >>> digits = load("digits")
        >>> float(digits.inputs("unit").max())                 # shape (1437, 64)
        1.0
        >>> digits.inputs("norm", flatten=False).shape         # each image has Euclidean norm 1
        (1437, 1, 8, 8)

        Args:
            normalize: ``"unit"`` divides by `peak`; ``"standard"`` gives every channel zero mean and unit variance
                over the whole set; ``"norm"`` scales every image to Euclidean norm 1; None keeps pixel values.
            flatten: shape (n, channels * height * width) instead of (n, channels, height, width).
            dtype: a floating-point dtype.
            like: for ``"standard"``, the set whose mean and variance are used, as the train split; default: this one.

        Raises:
            InputError: for an unknown normalization, a dtype that is not floating-point, a constant channel under
                ``"standard"``, or an entirely black image under ``"norm"``.
        """
        if not np.issubdtype(np.dtype(dtype), np.floating):
            raise InputError(f"dtype {np.dtype(dtype)} cannot hold network inputs; use a floating-point dtype.")
        if like is not None and normalize != "standard":
            raise InputError(f"like= names the statistics for normalize='standard'; normalize is {normalize!r}.")
        mean, scale = np.zeros(1), np.ones(1)
        if normalize in ("unit", "standard"):
            mean, scale = self.scaling(normalize, like)
        elif normalize == "norm":
            scale = self._norms()[:, None]
        values = self.images.astype(dtype)
        if mean.any():
            values -= mean.astype(dtype)[:, None, None]
        values /= scale.astype(dtype)[..., None, None]
        return values.reshape(len(self), -1) if flatten else values

    def scaling(
        self, normalize: str = "standard", like: "DataSet | None" = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What `inputs` subtracts from every channel, and what it then divides it by.

        >>> load("digits").scaling("unit")                      # each of shape (channels,)
        (array([0.]), array([16.]))
        """
        channels = self.images.shape[1]
        if normalize == "unit":
            return np.zeros(channels), np.full(channels, float(self.peak))
        if normalize != "standard":
            text = f"normalize={normalize!r} does not treat every image alike, channel by channel"
            raise InputError(f"{text}; use 'standard' or 'unit'.{suggest(normalize, ('standard', 'unit'))}")
        like = self if like is None else like
        if like.images.shape[1] != channels:
            text = f"like={like.name} has {like.images.shape[1]} channels and {self.name} has {channels}"
            raise InputError(f"{text}; the statistics of one cannot be used for the other.")
        mean, std = _channel_statistics(like.images)
        if np.any(std == 0):
            text = f"channel {int(np.argmin(std))} of {like.name} ({like.split}) is constant"
            raise InputError(f"{text}, so it has no unit variance; use normalize='unit'.")
        return mean, std

    def _norms(self) -> NDArray[np.float64]:
        # einsum would overflow in uint8; float64 is exact for sums of squares of bytes
        norms = np.array([np.linalg.norm(row.astype(np.float64)) for row in self.images.reshape(len(self), -1)])
        if np.any(norms == 0):
            text = f"image {int(np.argmin(norms))} of {self.name} ({self.split}) is entirely black"
            raise InputError(f"{text}, so it cannot be scaled to norm 1; use normalize='unit'.")
        return norms


def _channel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact mean and standard deviation of every channel, from its histogram of the 256 byte values."""
    levels, found = np.arange(256, dtype=np.float64), []
    for channel in range(images.shape[1]):
        # bincount makes 8 bytes of each pixel: never of all images at once
        parts = (images[start : start + _BLOCK, channel].ravel() for start in range(0, len(images), _BLOCK))
        share = sum(np.bincount(part, minlength=256) for part in parts) / images[:, channel].size
        mean = share @ levels
        found.append((mean, np.sqrt(share @ (levels - mean) ** 2)))
    mean, std = np.array(found).T
    return mean, std
