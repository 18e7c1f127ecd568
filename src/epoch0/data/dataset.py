"""A labelled image set in memory, three ways to turn its pixels into inputs, and readers of IDX, CIFAR records, npz.

Every reader turns a missing, truncated or malformed file into one InputError that names the file and says, where the
format tells, how many bytes it has and how many it should have.
"""

import gzip
import io
import math
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from epoch0.arguments import Count, checked
from epoch0.errors import InputError, check_finite, reworded, suggest
from epoch0.files import StrPath, explained, to_read

# Source: Y. LeCun, "The MNIST database", section "The IDX file format"; all numbers are big-endian.
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CIFAR_PIXELS = 3 * 32 * 32
_PIECE = 1 << 24

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
            raise InputError(f"{named}: images of shape {images.shape}, labels {labels.shape}; give (n, c, h, w), n.")
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
            raise InputError(f"like={like.name} has {like.images.shape[1]} channels and {self.name} has {channels}.")
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


def content(path: Path) -> tuple[bytes, str]:
    """The bytes of a file, decompressed if it is gzip, and the error if the compression is damaged ("" if not).

    Gzip is known by its first two bytes, not by the file's name. An IDX header, else a gigabyte, limits it.
    """
    with explained(path, "file", "read"):
        raw = to_read(path).read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw, ""
    found, trouble = bytearray(), ""
    try:
        with gzip.open(io.BytesIO(raw)) as packed:
            while not trouble and (piece := packed.read(_PIECE)):
                found += piece
                is_idx = len(found) > 3 and found[2] in IDX_TYPES and len(found) >= 4 + 4 * found[3]
                if len(found) > (_asked(found)[1] if is_idx else 1 << 30):
                    trouble = "is longer than its beginning says"
    except (OSError, EOFError, zlib.error) as problem:
        trouble = f"is a damaged gzip file ({problem})"
    return bytes(found), trouble and f"{path} {trouble}: {len(found):,} bytes could be decompressed."


def _asked(raw: bytes | bytearray) -> tuple[tuple[int, ...], int]:
    """The shape in the header of an IDX file, and the number of bytes that the whole file must have."""
    start = 4 + 4 * raw[3]
    shape = tuple(np.frombuffer(bytes(raw[4:start]), ">u4").tolist())
    return shape, start + math.prod(shape) * np.dtype(IDX_TYPES[raw[2]]).itemsize


def parse_idx(raw: bytes, source: str) -> np.ndarray:
    """The array in the (decompressed) bytes of an IDX file, in the machine's byte order; errors name the source."""
    if len(raw) < 4:
        raise InputError(f"{source} is no IDX file: it has {len(raw)} bytes, and the header alone needs 4.")
    if raw[0] or raw[1] or raw[2] not in IDX_TYPES or raw[3] == 0:
        raise InputError(f"{source} is no IDX file: it begins with {raw[:4].hex(' ')}, not with 00 00 and a type.")
    dtype, dimensions = np.dtype(IDX_TYPES[raw[2]]), raw[3]
    if len(raw) < (start := 4 + 4 * dimensions):
        raise InputError(f"{source} is truncated: it has {len(raw):,} bytes, and its header needs {start}.")
    shape, expected = _asked(raw)
    if len(raw) != expected:
        state = "is truncated" if len(raw) < expected else "is too long"
        raise InputError(f"{source} {state}: it has {len(raw):,} bytes; {shape}, {dtype.name} asks for {expected:,}.")
    # an empty array may still name sizes beyond what numpy can address
    if dimensions > 32 or math.prod(max(size, 1) for size in shape) * dtype.itemsize > sys.maxsize:
        raise InputError(f"{source} has shape {shape}, which is more than an array can have.")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


@checked
def read_idx(path: StrPath) -> np.ndarray:
    """The array in an IDX file, gzipped or not.

    >>> Path("numbers.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 3, 4]))
    10
    >>> read_idx("numbers.idx")                                 # of any shape
    array([3, 4], dtype=uint8)

    Source: Y. LeCun, "The MNIST database", section "The IDX file format".
    """
    raw, trouble = content(Path(path))
    if trouble:
        raise InputError(trouble)
    return parse_idx(raw, str(path))


def parse_cifar(raw: bytes, source: str, label_bytes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels in the bytes of a CIFAR binary batch.

    A record has ``label_bytes`` label bytes (1 for CIFAR-10, 2 for CIFAR-100: coarse, then fine, which is returned) and
    3,072 pixel bytes (red, green and blue plane, row by row).

    Source: A. Krizhevsky, "The CIFAR-10 and CIFAR-100 datasets", section "Binary version".
    """
    record = label_bytes + CIFAR_PIXELS
    if len(raw) == 0 or len(raw) % record:
        text = f"{source} is no CIFAR batch or is truncated: it has {len(raw):,} bytes, which is not a multiple"
        raise InputError(f"{text} of the {record:,} bytes of one record (next: {(len(raw) // record + 1) * record:,}).")
    records = np.frombuffer(raw, np.uint8).reshape(-1, record)
    if (labels := records[:, label_bytes - 1].astype(np.int64)).max() >= classes:
        first = int(np.argmax(labels >= classes))
        raise InputError(f"{source}: record {first} has label {labels[first]}, and labels run from 0 to {classes - 1}.")
    return records[:, label_bytes:].reshape(-1, 3, 32, 32).copy(), labels


@checked
def load_npz(path: StrPath) -> tuple[np.ndarray, np.ndarray | None]:
    """Inputs ``x`` and, where there are any, targets ``y`` from an ``.npz`` file; nothing is unpickled.

    >>> np.savez("batch.npz", x=np.zeros((32, 784), np.float32), y=np.zeros(32, np.int64))
    >>> x, y = load_npz("batch.npz")
    >>> x.shape, y.shape                                        # (n, ...), (n, ...)
    ((32, 784), (32,))
    """
    arrays = read_npz(path, ("x", "y"))
    x, y = arrays["x"], arrays.get("y")
    if y is not None and len(x) != len(y):
        raise InputError(f"{path} has {len(x)} examples in x but {len(y)} in y; the counts must agree.")
    return x, y


@checked
def read_npz(path: StrPath, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Arrays of finite real numbers by name, one example or more each; of the names the first must be there."""
    # a damaged file makes zipfile and numpy raise any of a dozen unrelated types
    damaged = reworded(lambda error: InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}."))
    with damaged, open(to_read(path), "rb") as file:
        if file.read(4)[:2] != b"PK":
            raise InputError(f"{path} is no .npz file; write one with numpy.savez(path, x=inputs, y=targets).")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            held = list(archive.files)
            if names and names[0] not in held:
                raise InputError(f"{path} has no array named {names[0]}; it holds {', '.join(held) or 'nothing'}.")
            arrays = {name: archive[name] for name in names or held if name in held}
    for name, array in arrays.items():
        if array.dtype.kind not in "buif":
            raise InputError(f"{name} in {path} is of type {array.dtype}; it must hold real numbers.")
        if array.ndim == 0 or len(array) == 0:
            raise InputError(f"{name} in {path} has shape {array.shape}; it needs at least one example: (n, ...).")
        check_finite(f"{name} in {path}", array)
    return arrays
