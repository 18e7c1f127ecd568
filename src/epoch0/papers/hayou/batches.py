"""What networks see: extents of the data sets, and the batch that a score is computed on (Hayou 2.2)."""

import numpy as np
import torch
from torch import Tensor

from epoch0.data import load
from epoch0.seeds import generator, numpy_generator

_INPUTS, _LABELS, _CHOICE = range(3)  # streams of a seed

EXTENTS: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "digits": ((1, 8, 8), 10, 1437, 360),
    "mnist": ((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": ((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": ((3, 32, 32), 100, 50_000, 10_000),
    "tiny-imagenet": ((3, 64, 64), 200, 100_000, 10_000),
    "imagenet": ((3, 224, 224), 1000, 1_281_167, 50_000),
}
"""Data set -> shape of an input, classes, training images, test images: the sets need not be there."""


def images(data: str, examples: int, seed: int, *, flatten: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Some training images, whole-set standardized, drawn without replacement, with their classes."""
    whole = load(data)
    chosen = numpy_generator(seed, _CHOICE).choice(len(whole), examples, replace=False)
    inputs = whole.inputs("standard", flatten=flatten)[np.sort(chosen)]
    return torch.as_tensor(inputs).to(dtype), torch.as_tensor(whole.labels[np.sort(chosen)])


def gaussian(size: int, classes: int, examples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs with N(0, 1) coordinates, float64, and random classes."""
    inputs = torch.randn(examples, size, generator=generator(seed, _INPUTS), dtype=torch.float64)
    return inputs, torch.randint(classes, (examples,), generator=generator(seed, _LABELS))
