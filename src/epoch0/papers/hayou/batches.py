"""The batch that a score is computed on: images of a data set, or Gaussian inputs with random labels (Hayou 2.2)."""

import numpy as np
import torch
from torch import Tensor

from epoch0.data import load
from epoch0.seeds import generator, numpy_generator

_INPUTS, _LABELS, _CHOICE = range(3)
"""Streams of a seed."""


def images(data: str, examples: int, seed: int, *, flatten: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Some training images, whole-set standardized, with their classes.

    >>> images("digits", 100, seed=0, flatten=True, dtype=torch.float64)[0].shape
    torch.Size([100, 64])

    Args:
        data: name of the data set.
        examples: how many, drawn without replacement.
        seed: names the draw.
        flatten: (examples, pixels) in place of (examples, channels, height, width).
        dtype: of the inputs.
    """
    whole = load(data)
    chosen = numpy_generator(seed, _CHOICE).choice(len(whole), examples, replace=False)
    inputs = whole.inputs("standard", flatten=flatten)[np.sort(chosen)]
    return torch.as_tensor(inputs).to(dtype), torch.as_tensor(whole.labels[np.sort(chosen)])


def gaussian(size: int, classes: int, examples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs with N(0, 1) coordinates, float64, and random classes."""
    inputs = torch.randn(examples, size, generator=generator(seed, _INPUTS), dtype=torch.float64)
    return inputs, torch.randint(classes, (examples,), generator=generator(seed, _LABELS))
