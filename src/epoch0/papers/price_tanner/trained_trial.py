"""One trial of Price-Tanner Figure 6: networks of one initial sigma_w, trained, and measured before and after.

Definitions the paper leaves open, and what is taken here:

* a network has 10 weight layers, d - 32 - ... - 32 - 10 (nine ReLU layers, a linear output), biases start at zero;
* images are scaled to norm 1 ("normalised"), for training and for the lines alike;
* sigma_w of a network is the root mean square, over the eight 32 x 32 layers, of sqrt(32) times the standard deviation
  of the layer's weights; the first and the last layer change the width, so their growth is on another scale;
* the growth factor along a line is the ratio ||dz'|| / ||dz|| averaged over the pieces and over the same eight layers;
* a network is done at the first evaluation at which its test accuracy is above the target; it is measured as it was
  then, and a network that never gets there is reported and left out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from epoch0.curves import Line
from epoch0.data import DataSet, load
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.measure.length import trajectory_length
from epoch0.networks import ensemble
from epoch0.seeds import numpy_generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.stacked import FreezeAt, Stacked

Array = NDArray[np.float64]

_WEIGHTS, _BATCHES = range(2)
"""Streams of a trial's seed."""


@dataclass(frozen=True)
class StackSpec:
    """What one trial trains and measures.

    Attributes:
        data: name of the data set.
        sizes: inputs, hidden widths (all equal), classes.
        weight_std: sigma_w at initialization, before the 1/sqrt(fan_in).
        networks: how many are trained.
        random_networks: how many are measured before training; those that are trained are the first of them.
        lines: how many within a class, and again as many between two.
        lines_seed: names the lines; the same in every trial of a figure.
        points: points on each line.
        accuracy: test accuracy to be exceeded.
        epochs: when to give up.
        batch_size: of training.
        learning_rate: of Adam, whose other settings are torch's defaults.
    """

    data: str
    sizes: tuple[int, ...]
    weight_std: float
    networks: int
    random_networks: int
    lines: int
    lines_seed: int
    points: int
    accuracy: float
    epochs: int
    batch_size: int
    learning_rate: float


def train_and_measure(spec: StackSpec, seed: int) -> dict[str, Any]:
    """Train a stack of networks and carry every line through it, before and after.

    >>> spec = StackSpec("digits", (64, *[32] * 9, 10), 1.4, 10, 20, 20, 0, 64, 0.95, 100, 32, 0.004)
    >>> train_and_measure(spec, seed=0)["growth_trained"].shape                 # doctest: +SKIP
    (10, 40)

    Returns:
        ``reached``: which networks exceeded the accuracy, (networks,); ``accuracy``: test accuracy of each;
        ``epochs``: passes through the data until then, -1 for never; ``std_trained`` and ``std_random``: sigma_w of
        each; ``growth_...``: growth factor, (networks, lines); ``log_length_...``: mean over the lines of the log of
        the length at each hidden layer relative to the first, (networks, hidden layers).

    Raises:
        InputError: if the data set is not there, or its images do not fit ``sizes``.

    Source: Price-Tanner appendix C.2.
    """
    torch.set_num_threads(1)
    examples, held_out = load(spec.data, "train"), load(spec.data, "test")
    inputs, targets = _tensors(examples)
    if inputs.shape[1] != spec.sizes[0] or len(examples.classes) != spec.sizes[-1]:
        raise InputError(
            f"{spec.data} has {inputs.shape[1]} pixels and {len(examples.classes)} classes; "
            f"sizes are {list(spec.sizes)}."
        )
    pairs = line_pairs(held_out.labels, spec.lines, spec.lines_seed)
    test_inputs, test_targets = _tensors(held_out)
    ends = test_inputs[torch.from_numpy(pairs)]  # (lines, 2, pixels)
    weights_seed, batches_seed = (int(numpy_generator(seed, s).integers(2**31)) for s in (_WEIGHTS, _BATCHES))
    nets = ensemble(spec.random_networks, spec.sizes, weights=Gaussian(spec.weight_std), seed=weights_seed)
    before = _measured(Stacked.of(nets), ends, spec.points, seed)
    stack = Stacked.of([nets[index] for index in range(spec.networks)])
    done = train(
        stack,
        (inputs, targets),
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        optimizer="adam",
        learning_rate=spec.learning_rate,
        loss=stack.loss(F.cross_entropy),
        seed=batches_seed,
        evaluate=Accuracy(test_inputs, test_targets),
        callbacks=[FreezeAt("accuracy", spec.accuracy)],
        until=lambda row: bool(row["running"] == 0),
    )
    stack.settle()
    after = _measured(stack, ends, spec.points, seed)
    at = stack.frozen_at.numpy()
    rows = {row["step"]: row for row in done.history if "accuracy" in row}
    accuracy = [rows[step if step >= 0 else done.history[-1]["step"]] for step in at.tolist()]
    per_epoch = -(-len(inputs) // spec.batch_size)
    result: dict[str, Any] = {
        "reached": at >= 0,
        "accuracy": np.array([row["accuracy"][index] for index, row in enumerate(accuracy)]),
        "epochs": np.where(at >= 0, at / per_epoch, -1.0),
    }
    for name, (std, growth, log_length) in (("random", before), ("trained", after)):
        result |= {f"std_{name}": std, f"growth_{name}": growth, f"log_length_{name}": log_length}
    return result


def line_pairs(labels: NDArray[np.int64], lines: int, seed: int) -> NDArray[np.int64]:
    """Which two examples each line joins: first ``lines`` pairs of one class, then ``lines`` of two classes.

    >>> line_pairs(np.array([0, 0, 1, 1]), 1, seed=0).shape
    (2, 2)

    Raises:
        InputError: if there are no two examples of one class, or only one class.
    """
    source = numpy_generator(seed)
    counts = np.bincount(labels)
    if lines < 1 or counts.max() < 2 or (counts > 0).sum() < 2:
        raise InputError(f"{lines} lines of each kind cannot be drawn between {len(labels)} examples of these classes.")
    pairs: list[tuple[int, int]] = []
    for same in (True, False):
        while len(pairs) < (lines if same else 2 * lines):
            first, second = source.integers(len(labels), size=2)
            if first != second and (labels[first] == labels[second]) == same:
                pairs.append((int(first), int(second)))
    return np.array(pairs, dtype=np.int64)


def weight_std(stack: Stacked) -> Array:
    """sigma_w of each network: root mean square over its square layers of sqrt(width) times the std of the weights."""
    square = [p.detach() for p in stack.networks.parameters() if p.dim() == 3 and p.shape[1] == p.shape[2]]
    if not square:
        raise InputError("the networks have no two hidden layers of equal width, so they have no sigma_w to tell.")
    variances = torch.stack([p.double().var(dim=(1, 2)) * p.shape[2] for p in square])
    return np.asarray(variances.mean(0).sqrt().numpy())


def _measured(stack: Stacked, ends: Tensor, points: int, seed: int) -> tuple[Array, Array, Array]:
    """sigma_w, growth factor along each line, log length at the hidden layers relative to the first."""
    networks = [stack.unstack(index).eval().requires_grad_(False) for index in range(len(stack))]
    growth, logs = [], []
    for line, (start, end) in enumerate(ends):
        found = trajectory_length(networks, Line(start, end), points=points, seed=seed + line)
        growth.append(found.network_growth[:, 1:].mean(-1))
        hidden = found.network_lengths[:, 1:]
        logs.append(np.log(np.maximum(hidden, np.finfo(float).tiny) / hidden[:, :1]))
    return weight_std(stack), np.stack(growth, 1), np.mean(logs, 0)


def _tensors(data: DataSet) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(data.inputs("norm")), torch.from_numpy(data.labels)
