"""One trial of Hanin-Rolnick Figures 5 to 7 (sections 3.1, 3.2): networks trained, their regions measured on the way.

What the paper leaves open: pixels are in [0, 1]; lines through the origin and a training example have no ends; examples
and random points are drawn once for each network and stay the same through its training.
"""

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0 import regions
from epoch0.data import DataSet, load
from epoch0.distributions import Gaussian
from epoch0.networks import ensemble, mlp
from epoch0.papers.sweep import Spec
from epoch0.papers.tables import Array
from epoch0.papers.trials import fit
from epoch0.regions.distance import distance
from epoch0.seeds import numpy_generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.record import Every
from epoch0.train.stacked import Stacked

BIAS_STD = 1e-3  # standard deviation of the biases at initialization (section 3: variance 1e-6)
_WEIGHTS, _BATCHES, _LINES, _POINTS = range(4)  # streams of a trial's seed


def run(spec: Spec, seed: int) -> dict[str, Any]:
    """Train networks by Adam as one program, and measure them at the epochs ``at``: increasing, from 0 to the last.

    Each has its own weights, lines and points, and the same batches. Activation regions are counted on ``lines``
    through the origin and a training example, linear regions on the first ``linear_lines``; distances from ``points``.

    ``epoch`` (epochs,) is the nearest whole number of steps; ``accuracy`` on the test set is (networks, epochs), and
    ``counts``, ``linear`` and ``distance`` are (networks, epochs, lines, linear lines or points).
    """
    torch.set_num_threads(1)
    examples = load(spec.data, "train")
    inputs, targets = tensors(examples)
    accuracy = Accuracy(*tensors(load(spec.data, "test")))
    nets = networks(spec, inputs.shape[1], len(examples.classes), seed)
    lines, points = (_source(spec, seed, stream) for stream in (_LINES, _POINTS))
    spread = mean_and_std(inputs)
    places = [(some(inputs, spec.lines, lines), random_points(*spread, spec.points, points)) for _ in nets]

    def look(model: nn.Module, index: int) -> dict[str, Any]:
        return {**accuracy(model), **_measured(spec, model, *places[index])}

    batches = int(_source(spec, seed, _BATCHES).integers(2**31))
    return through_training(spec, nets, (inputs, targets), batches, look)


def _measured(spec: Spec, model: nn.Module, through: Tensor, points: Tensor) -> dict[str, Array]:
    """Regions on every line and distance from every point."""
    found: Any = regions.on_line(model, torch.zeros_like(through), through, kind="line")
    linear = [found[index].linear_count for index in range(spec.linear_lines)]
    each = {"counts": found.counts, "linear": linear, "distance": distance(model, points).distance}
    return {name: np.asarray(values, dtype=np.float64) for name, values in each.items()}


def through_training(
    spec: Any, nets: Sequence[nn.Module], examples: tuple[Tensor, Tensor], seed: int, look: Callable[..., Any]
) -> dict[str, Array]:
    """Train networks by Adam as one program, and look at each, with its number, at the epochs of the spec.

    ``epoch`` is (epochs,), what ``look`` returns by name (networks, epochs, ...).
    """
    steps = [round(epoch * -(-len(examples[0]) // spec.batch_size)) for epoch in spec.at]
    epochs: list[float] = []
    seen: list[list[dict[str, Any]]] = []

    def watch(step: int, model: nn.Module, metrics: Mapping[str, Any]) -> None:
        if step in steps:
            each = [model.unstack(i) for i in range(len(nets))] if isinstance(model, Stacked) else [model]
            epochs.append(metrics["epoch"])
            seen.append([look(one, index) for index, one in enumerate(each)])

    together = Stacked.of(nets) if len(nets) > 1 else nets[0]
    loss = together.loss(F.cross_entropy) if isinstance(together, Stacked) else F.cross_entropy
    how = {"steps": steps[-1], "loss": loss, "seed": seed, "callbacks": [Every(gcd(*steps), watch)]}
    fit(spec, together, examples, optimizer="adam", **how)
    found = {name: np.array([[one[name] for one in row] for row in seen]).swapaxes(0, 1) for name in seen[0][0]}
    return {"epoch": np.array(epochs), **found}


def untrained(spec: Spec, seed: int) -> dict[str, Any]:
    """The same before training alone: mean ``counts`` of regions a line and mean ``distance``, (networks,).

    Each network has lines and points of its own.
    """
    torch.set_num_threads(1)
    examples = load(spec.data, "train")
    inputs, _ = tensors(examples)
    mean, std = mean_and_std(inputs)
    sizes = [inputs.shape[1], *[spec.width] * spec.depth, len(examples.classes)]
    source = numpy_generator(seed, spec.depth, spec.width)
    counts, away = [], []
    for net in ensemble(spec.networks, sizes, biases=Gaussian(BIAS_STD), seed=int(source.integers(2**31))):
        through = some(inputs, spec.lines, source)
        found: Any = regions.on_line(net, torch.zeros_like(through), through, kind="line")
        counts.append(found.counts.mean())
        away.append(distance(net, random_points(mean, std, spec.points, source)).distance.mean())
    return {"counts": np.array(counts), "distance": np.array(away)}


def networks(spec: Spec, inputs: int, classes: int, seed: int) -> list[nn.Sequential]:
    """The networks of a trial before training: He's weights, biases of standard deviation 1e-3."""
    sizes = [inputs, *[spec.width] * spec.depth, classes]
    seeds = _source(spec, seed, _WEIGHTS).integers(2**31, size=spec.networks)
    return [mlp(sizes, biases=Gaussian(BIAS_STD), seed=int(one)) for one in seeds]


def mean_and_std(inputs: Tensor) -> tuple[Array, Array]:
    """Of the examples, component by component, float64."""
    mean, std = inputs.double().mean(0), inputs.double().std(0, correction=0)
    return mean.numpy(), std.numpy()


def random_points(mean: Array, std: Array, points: int, source: np.random.Generator) -> Tensor:
    """Gaussian points with the mean and the variance of the examples, component by component, float64."""
    return torch.from_numpy(mean + std * source.standard_normal((points, len(mean))))


def some(inputs: Tensor, count: int, source: np.random.Generator) -> Tensor:
    """So many of the examples, float64."""
    return inputs[torch.from_numpy(source.choice(len(inputs), size=count, replace=False))].double()


def tensors(data: DataSet) -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1] and labels."""
    return torch.from_numpy(data.inputs("unit")), torch.from_numpy(data.labels)


def _source(spec: Spec, seed: int, stream: int) -> np.random.Generator:
    """Architectures of one seed are independent too."""
    return numpy_generator(seed, spec.depth, spec.width, stream)


def turn(curves: Array, *, lowest: bool) -> tuple[Array, Array, list[int]]:
    """How far each run (runs, epochs) goes to the turning point of its kind and back to the end, and where that is.

    >>> turn(np.array([[1.0, 0.5, 0.8], [1.0, 0.4, 0.7]]), lowest=True)
    (array([0.5, 0.6]), array([0.3, 0.3]), [1, 1])

    The turning point of a run is where the mean of the other runs has its extremum, so that what is measured there is
    independent of where it is: noise alone would give zero on average. It is neither the first nor the last epoch: a
    curve that only rises or only falls makes a change of the wrong sign.
    """
    sign = -1.0 if lowest else 1.0
    mean = (curves.sum(0) - curves) / (len(curves) - 1)
    places = [1 + int(place) for place in np.argmax(sign * mean[:, 1:-1], axis=1)]
    at = curves[np.arange(len(curves)), places]
    return sign * (at - curves[:, 0]), sign * (at - curves[:, -1]), places
