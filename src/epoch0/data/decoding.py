"""Decoding image files with pillow, many at a time: the same pixels and the same first error for any number of workers.

Threads are enough: pillow lets go of the interpreter while it decodes, and what has been decoded lies in one array.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

BLOCK = 64  # files that a worker takes at a time
PAUSE = 2.0  # seconds between two lines of progress


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
    """Image files of one size as an array, shape (n, channels, height, width), uint8.

    >>> read_images([Path("a.png"), Path("b.png")]).shape           # doctest: +SKIP
    (2, 3, 64, 64)

    One channel if every file is grayscale, else three (red, green, blue; an alpha channel is dropped). Needs pillow.
    The progress is called with the number of files decoded so far, every two seconds. Workers are threads, by default
    one for each core. A file that is damaged or of another size is named: the first in order.
    """
    first = decoded(paths[0])
    # the array that is given back from the start, so that a hundred thousand images are never held twice
    images = np.empty((len(paths), 3, first.height, first.width), np.uint8)

    def fill(start: int) -> bool:
        gray = True
        for index in range(start, min(start + BLOCK, len(paths))):
            image = decoded(paths[index])
            if image.size != first.size:
                raise InputError(
                    f"{paths[index]} is {image.width} x {image.height} pixels and {paths[0]} is {first.width} x "
                    f"{first.height}; all images of a folder must have one size."
                )
            pixels = np.asarray(image, np.uint8)
            images[index] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
            gray = gray and pixels.ndim == 2
        return gray

    all_gray, told = True, time.monotonic()
    pool = ThreadPoolExecutor(workers or default_workers())
    try:
        for block, gray in enumerate(pool.map(fill, range(0, len(paths), BLOCK))):
            all_gray = all_gray and gray
            if progress is not None and time.monotonic() > told + PAUSE:
                told = time.monotonic()
                progress(min((block + 1) * BLOCK, len(paths)))
    finally:
        pool.shutdown(cancel_futures=True)
    return images[:, :1].copy() if all_gray else images
