"""Masks and scores in safetensors files: whole or not at all, and nothing that runs code (THEORY section 4)."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from epoch0.initialization.files import load_tensors, save_tensors

MASKS = "epoch0 masks 1"
"""Layout of the masks; a file that states another version is not read."""

SCORES = "epoch0 scores 1"
"""Layout of the scores."""

_REMOVED = "removed/"  # before the names in a file; no parameter's name has a slash


def save_masks(masks: Mapping[str, Tensor], path: str | Path) -> Path:
    """Write masks: each as packed bits, first weight in the highest bit, with the shapes in the header.

    >>> save_masks(masks, "masks.safetensors").stat().st_size         # for 3,392 weights: a bit each, and the header
    888

    Raises:
        InputError: if the path is wrong, or the file cannot be written; an older file is intact then.
    """
    bits = {name: torch.from_numpy(np.packbits(mask.cpu().flatten().numpy())) for name, mask in masks.items()}
    shapes = json.dumps({name: list(mask.shape) for name, mask in masks.items()})
    return save_tensors(path, "masks", MASKS, bits, {"shapes": shapes})


def load_masks(path: str | Path) -> dict[str, Tensor]:
    """Read masks, in the order in which they were saved, after checking that the file is whole.

    Raises:
        InputError: if the file is missing, cut short, damaged, or something else.
    """
    bits, words = load_tensors(path, "masks", MASKS, "Masks.save")
    return {name: _unpacked(bits[name], shape) for name, shape in json.loads(words["shapes"]).items()}


def save_scores(scores: Mapping[str, Tensor], method: str, removed: Mapping[str, Tensor], path: str | Path) -> Path:
    """Write scores with their method and the marks of the weights that were removed already.

    >>> save_scores({"fc.weight": torch.ones(2, 3)}, "by hand", {}, "scores.safetensors")
    PosixPath('scores.safetensors')

    Raises:
        InputError: if the path is wrong, or the file cannot be written; an older file is intact then.
    """
    marks = {_REMOVED + name: gone for name, gone in removed.items()}
    return save_tensors(path, "scores", SCORES, {**scores, **marks}, {"method": method})


def load_scores(path: str | Path) -> tuple[dict[str, Tensor], str, dict[str, Tensor]]:
    """Read what :func:`save_scores` wrote: scores in their order (which breaks ties), method, removed.

    Raises:
        InputError: if the file is missing, cut short, damaged, or something else.
    """
    tensors, words = load_tensors(path, "scores", SCORES, "Scores.save")
    removed = {name.removeprefix(_REMOVED): t for name, t in tensors.items() if name.startswith(_REMOVED)}
    scores = {name: t for name, t in tensors.items() if not name.startswith(_REMOVED)}
    return scores, words["method"], removed


def _unpacked(bits: Tensor, shape: list[int]) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count).astype(bool)).reshape(shape)
