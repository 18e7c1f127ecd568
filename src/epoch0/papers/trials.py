"""Shared by trials of several papers: curves, images of the data sets, and checkpoints of trainings."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve, GreatCircle, Line, SemicircularArcs
from epoch0.data import load
from epoch0.data.catalogue import SETS
from epoch0.experiments.experiment import canonical_json
from epoch0.seeds import generator, numpy_generator
from epoch0.train import Training, train

_POINTS = 10**6  # stream of a curve's seed, away from those of networks
_CHOICE = 2  # stream of a seed

EXTENTS = {name: known.extent for name, known in SETS.items()}


@dataclass(frozen=True)
class CurveSpec:
    """A curve through two points of Euclidean norm 1 with ``size`` coordinates. The points are the test images
    ``first`` and ``second`` of the data set ``ends``, or two directions drawn from ``seed`` if it is ``"random"``. The
    shape is a ``"line"``; ``"arcs"``, the line bent into semicircles in ``planes`` random planes; or a ``"circle"``,
    the unit circle in the plane of the two points, about the origin.
    """

    ends: str
    shape: Literal["line", "arcs", "circle"] = "line"
    size: int = 0
    first: int = 0
    second: int = 0
    planes: int = 0
    seed: int = 0

    @property
    def data(self) -> str | None:
        """The data set of the ends; None for random ones."""
        return None if self.ends == "random" else self.ends

    def points(self) -> tuple[Tensor, Tensor]:
        """The two points, float32, shape (size,) each; for a circle the second is made orthogonal to the first."""
        if self.ends == "random":
            ends = torch.randn(2, self.size, generator=generator(self.seed, _POINTS), dtype=torch.float64)
        else:
            chosen = load(self.ends, "test").images[[self.first, self.second]].reshape(2, -1)
            ends = torch.from_numpy(chosen.astype(np.float64))
        start, end = ends / ends.norm(dim=1, keepdim=True)
        if self.shape == "circle":
            end = end - (end @ start) * start
            end = end / end.norm()
        return start.float(), end.float()

    def curve(self) -> Curve:
        """The curve itself."""
        start, end = self.points()
        if self.shape == "arcs":
            return SemicircularArcs(start, end, planes=self.planes, seed=self.seed)
        return GreatCircle(start, end) if self.shape == "circle" else Line(start, end)


# between images 100 and 300 of the embedded digits; between the 101st and the 1001st of MNIST's test set, as in a paper
DIGITS = CurveSpec("digits", size=64, first=100, second=300)
MNIST = CurveSpec("mnist", size=784, first=100, second=1000)


def tensors(data: str, split: str = "train", mode: str = "standard", flatten: bool = True) -> tuple[Tensor, Tensor]:
    """The images of a split, as that mode has them, standardized by the training images, and their classes."""
    own = load(data, split)
    inputs = own.inputs(mode, flatten=flatten, like=load(data) if mode == "standard" else None)
    return torch.from_numpy(inputs), torch.from_numpy(own.labels)


def images(data: str, examples: int, seed: int, *, flatten: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Some training images, whole-set standardized, drawn without replacement, with their classes."""
    inputs, labels = tensors(data, flatten=flatten)
    chosen = np.sort(numpy_generator(seed, _CHOICE).choice(len(inputs), examples, replace=False))
    return inputs[chosen].to(dtype), labels[chosen]


def fit(spec: Any, model: nn.Module, examples: Any, **more: Any) -> Training:
    """Train on batches and at a learning rate as a spec has them; ``more`` goes to :func:`epoch0.train.loop.train`."""
    return train(model, examples, batch_size=spec.batch_size, learning_rate=spec.learning_rate, **more)


@contextmanager
def checkpoint_of(spec: Any, seed: int) -> Iterator[Path | None]:
    """The file of this trial in the folder that EPOCH0_CHECKPOINTS names, or None; removed when the trial is done."""
    if not (folder := os.environ.get("EPOCH0_CHECKPOINTS", "").strip()):
        yield None
        return
    name = hashlib.sha256(f"{canonical_json(spec)} {seed}".encode()).hexdigest()[:24]
    path = Path(folder) / f"{name}.safetensors"
    yield path
    for own in Path(folder).glob(f"{path.name}*"):
        own.unlink()
