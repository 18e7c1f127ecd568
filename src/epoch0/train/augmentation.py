"""Augmentation of images: random crops and flips, a function of the images, their numbers in their set and one seed.

The random numbers of an image come from the seed and the image's own number in its set: the same on every device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from epoch0.arguments import Density, Depth, Positive, Seed, Size, checked
from epoch0.errors import InputError
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
        side = min(image.size)
        # the longer side is cut to whole pixels, as the reference implementations do
        wide, tall = (self.shorter * length // side for length in image.size)
        left, upper = round((wide - self.size) / 2), round((tall - self.size) / 2)
        square = (left, upper, left + self.size, upper + self.size)
        return np.asarray(image.resize((wide, tall), _BILINEAR).crop(square), np.uint8)
