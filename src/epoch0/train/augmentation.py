"""Augmentation of image batches: random crops and flips, a function of the images, their numbers and one seed.

The random numbers of an image come from the seed and the image's own number in its set, through a counter-based
generator on the CPU: a few bytes an image, the same on every device, and the same however a batch is split.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from epoch0.seeds import numpy_generator

_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Augmentation(Protocol):
    """Changes a batch of images; its ``repr`` says all that it does."""

    def __call__(self, images: Tensor, chosen: Tensor, seed: int) -> Tensor:
        """The changed images.

        Args:
            images: shape (batch, channels, height, width), any dtype and device; not changed.
            chosen: the number of every image in its set, int64 of shape (batch,), on the CPU.
            seed: of the batch, an integer >= 0.
        """
        ...


def uniforms(chosen: NDArray[np.int64], seed: int, count: int) -> NDArray[np.float64]:
    """Random numbers in [0, 1) that belong to images: row i depends on the seed and on ``chosen[i]`` only.

    >>> uniforms(np.array([7, 3]), seed=0, count=2)[1] == uniforms(np.array([3]), seed=0, count=2)[0]
    array([ True,  True])

    Args:
        chosen: number of every image, shape (batch,).
        seed: any integer >= 0.
        count: numbers an image.

    Returns:
        Shape (batch, count).

    Source: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, Fig. 16
    (SplitMix64 as a function of its counter).
    """
    keys = numpy_generator(seed).integers(2**64, size=2, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is meant
        own = _mixed(keys[0] + chosen.astype(np.uint64) * _STRIDE) ^ keys[1]
        counters = own[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _STRIDE
        return (_mixed(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))
