"""Which layer is most fragile: what noise in one layer's weights does to the outputs, predicted and measured.

With W + eps r N in place of W, N standard normal and r the root mean square of W, the outputs change to first order by
eps r J N, J their derivative by W, whose mean square over N is (eps r)^2 times the sum of squares of J. In a wide
random network that is

    (change / output)^2 = eps^2 s_in chi_l chi_(l+1) ... chi_L / s_out,    s the mean square of a unit,

since a pre-activation h = W z changes by eps^2 times its own mean square, and every later layer multiplies that by chi.
As s_out is s_in times the layers' own gains rho of mean squares, what counts is how much more a layer stretches
differences than signals.

Source: Raghu et al. 2017, section 3.1: a perturbation at a layer grows exponentially in the remaining depth after it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epoch0.diagnosis.wording import percent
from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing import operations
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer
from epoch0.tracing.sizes import sum_of_squares
from epoch0.tracing.tape import Change, Tape

COTANGENTS = 8  # so many passes back predict all modules


@dataclass(frozen=True)
class Weighted:
    """One module with weights, or one parameter that the model uses by itself."""

    name: str  # of the module
    ops: tuple[Op, ...]  # where its weights are used; several times in a module used twice


def weighted_modules(tape: Tape, layers: Sequence[Layer]) -> tuple[list[Weighted], list[str]]:
    """What noise can be put into, in the order of use, and the names of what it cannot."""
    found: dict[str, list[Op]] = {}
    left: list[str] = []
    for op in tape.ops:
        if not op.kind or not any(op.outputs and one.input < op.outputs[0] <= one.output for one in layers):
            continue
        name = op.module or op.weights[0].removesuffix(".weight").removesuffix(".bias")
        if op.call is None or not matrices(tape, op):
            left.append(name)
        else:
            found.setdefault(name, []).append(op)
    entries = [Weighted(name, tuple(ops)) for name, ops in found.items() if name not in left]
    return entries, list(dict.fromkeys(left))


def matrices(tape: Tape, op: Op) -> list[Tensor]:
    """The weights among the constants of an operation, biases left out; as they are used, parametrized or not."""
    assert op.call is not None
    found = [t for t in op.call.constants() if t.is_floating_point() and t.dim() >= 2 and bool(t.any())]
    known = {parameter.data_ptr() for parameter in tape.model.parameters()}
    own = [tensor for tensor in found if tensor.data_ptr() in known]
    return own if own else found if op.kind in ("linear", "convolution") else []


def scale(weight: Tensor) -> float:
    """Root mean square of the weights that are not zero: what was pruned stays so."""
    values = weight.detach().double()
    return math.sqrt(float(values.square().sum()) / max(1, int((values != 0).sum())))


def _run(tape: Tape, entries: Sequence[Weighted], new: Callable[[Tensor, int, int], Tensor]) -> Tensor:
    """The outputs with other weights, the same wherever they are used: of a weight, its entry and its place in it."""
    replaced: dict[int, Callable[[Tensor], Tensor]] = {}
    kept: dict[int, Tensor] = {}

    def values(op: Op, weights: Mapping[int, Tensor]) -> Iterator[Callable[[Tensor], Tensor]]:
        """Each output of an operation."""
        call, made = op.call, list[Tensor]()
        assert call is not None

        def result(tensor: Tensor, index: int) -> Tensor:
            if index == 0:
                made[:] = operations.tensors_in(call({n: kept[n] for n in op.inputs}, lambda c: weights.get(id(c), c)))
            return made[index]

        return (partial(result, index=index) for index in range(op.results))

    for index, entry in enumerate(entries):
        for op in entry.ops:
            weights = {id(weight): new(weight, index, place) for place, weight in enumerate(matrices(tape, op))}
            replaced.update(zip(op.outputs, values(op, weights), strict=False))
    wanted = {node for entry in entries for op in entry.ops for node in op.inputs}

    def at(node: int) -> Change:
        def arrive(tensor: Tensor) -> Tensor | None:
            other = replaced[node](tensor) if node in replaced else None
            if node in wanted:
                value = tensor if other is None else other
                kept[node] = value.clone() if node in tape.overwritten else value
            return other

        return arrive

    return tape.run(tape.x, {node: at(node) for node in (*wanted, *replaced)})


def with_noise(tape: Tape, entry: Weighted, noise: float, seed: int, stream: Sequence[int]) -> Tensor:
    """The outputs with noise in one module's weights."""

    def noisy(weight: Tensor, _: int, place: int) -> Tensor:
        step = torch.randn(weight.shape, generator=generator(seed, *stream, place)).to(weight) * (weight != 0)
        return weight + noise * scale(weight) * step

    with torch.no_grad():
        return _run(tape, [entry], noisy)


def predicted_changes(tape: Tape, entries: Sequence[Weighted], seed: int) -> list[float]:
    """Relative change of the outputs for noise of size 1 in each module, to first order.

    The mean square of J N over noise N is the sum of squares of J, and so is that of J^T u over random u: a few passes
    back tell it for all modules.
    """
    leaves: dict[tuple[int, int], Tensor] = {}

    def leaf(weight: Tensor, index: int, place: int) -> Tensor:
        return leaves.setdefault((index, place), weight.detach().clone().requires_grad_())

    totals = [0.0] * len(entries)
    with torch.enable_grad(), tape.backward():
        output = _run(tape, entries, leaf)
        for draw in range(COTANGENTS):
            u = torch.randn(output.shape, generator=generator(seed, 0x6672, draw)).to(output)
            found = torch.autograd.grad(output, list(leaves.values()), u, retain_graph=True, allow_unused=True)
            for ((index, _), weight), slope in zip(leaves.items(), found, strict=True):
                if slope is not None:
                    totals[index] += scale(weight) ** 2 * sum_of_squares(slope * (weight != 0)) / COTANGENTS
    size = sum_of_squares(output)
    return [math.sqrt(total / size) for total in totals]


PASSES = 24  # about so many forward passes are spent on noise, whatever the depth
MOST = 12  # so many modules are measured in; of deeper networks these are spread over the depth
DRAWS = (2, 4)  # fewest and most draws of the noise for each module
OUT = 1.25  # A layer stands out if it changes the outputs by so many times what the middle one does
SURE = 3.0  # ... and by so many standard errors more
SMALL = 0.5  # predictions are of first order: up to about this change of the outputs


@dataclass(frozen=True)
class LayerNoiseSensitivity:
    """What noise in the weights of one module does."""

    name: str  #: of the module
    #: root mean square change of the outputs over that of the outputs; None where it was not measured
    change: float | None
    error: float | None  #: its standard error over draws of the noise
    predicted: float | None  #: the same to first order; None where that is not finite
    accuracy: float | None  #: with the noise; None without class numbers
    accuracy_error: float | None  #: its standard error over draws


@dataclass(frozen=True)
class NoiseSensitivity:
    """What noise in the weights of one module at a time does to the outputs on a batch.

    >>> found = e0.checkup(net, x, y, noise=0.1).noise_sensitivity      # x of shape (100, 64), y of shape (100,)
    >>> found.sentence
    'No layer stands out as fragile: 10 % noise in the weights of any one layer changes the outputs by 9.5 ...'
    """

    noise: float  #: standard deviation, as a part of the root mean square of the module's weights that are not zero
    draws: int  #: of the noise, for each module that was measured
    examples: int  #: in the batch
    layers: tuple[LayerNoiseSensitivity, ...]  #: one row a module, in order of use
    accuracy: float | None  #: without noise; None without class numbers
    skipped: tuple[str, ...]  #: modules that noise cannot be put into

    @property
    def measured(self) -> tuple[LayerNoiseSensitivity, ...]:
        """The rows with a measured change."""
        return tuple(row for row in self.layers if row.change is not None)

    @property
    def most_fragile(self) -> LayerNoiseSensitivity | None:
        """The module whose noise changes the outputs most, None if it does not stand out from the others."""
        rows = self.measured
        if not rows:
            return None
        first = max(rows, key=lambda row: row.change or 0.0)
        middle = float(np.median([row.change for row in rows if row.change is not None]))
        most, error = first.change or 0.0, first.error or 0.0
        return first if len(rows) == 1 or (most > OUT * middle and most - middle > SURE * error) else None

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        if not self.measured:
            return "What noise in the weights costs cannot be told: there is no weight to change, or no finite output."
        noise = f"{percent(self.noise)} noise in"
        changes = [row.change for row in self.measured if row.change is not None]
        first = self.most_fragile
        if first is None or len(changes) == 1:
            one = f"the weights of '{self.measured[0].name}'" if len(changes) == 1 else "the weights of any one layer"
            start = "" if len(changes) == 1 else "No layer stands out as fragile: "
            said = f"{start}{noise} {one} changes the outputs by {_range(changes)}{_predictions(self.measured)}"
        else:
            middle = percent(float(np.median(changes)))
            said = (
                f"Most fragile: layer '{first.name}': {noise} its weights changes the outputs by "
                f"{percent(first.change)}{_predictions([first])}, and the median layer's by {middle}"
            )
            if first.accuracy is not None and self.accuracy is not None:
                said += f"; accuracy goes from {self.accuracy:.3g} to {first.accuracy:.3g}"
        return f"{said}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        first = self.most_fragile
        found = {name: getattr(self, name) for name in ("noise", "draws", "examples", "accuracy")}
        found |= {"most_fragile": None if first is None else first.name, "sentence": self.sentence}
        return {**found, "skipped": list(self.skipped), "layers": [dict(vars(row)) for row in self.layers]}

    def __str__(self) -> str:
        rows = [
            f"{row.name:<24} changes {percent(row.change)} predicted {percent(row.predicted)}" for row in self.layers
        ]
        return "\n".join([self.sentence, *rows])


def _predictions(rows: Sequence[LayerNoiseSensitivity]) -> str:
    known = [row.predicted for row in rows if row.predicted is not None]
    if len(known) < len(rows):
        return ""
    if max(known) > SMALL:
        return " (predicted: too much for a law of small changes)"
    return f" (predicted {_range(known)})"


def _range(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def check_noise(noise: float) -> None:
    """Refuse a size of noise that says nothing.

    Raises:
        InputError: if it is not a finite number > 0.
    """
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not (math.isfinite(noise) and noise > 0):
        raise InputError(
            f"noise={noise!r}; give a part of the size of the weights, such as 0.1 for 10 %, or None to leave it out."
        )


def noise_sensitivity(tape: Tape, layers: Sequence[Layer], noise: float, targets: Any, seed: int) -> NoiseSensitivity:
    """Put noise into one module's weights at a time."""
    entries, skipped = weighted_modules(tape, layers)
    with torch.no_grad():
        clean = tape.run(tape.x).clone()
    classes = _classes(targets, clean)
    size = math.sqrt(sum_of_squares(clean))
    usable = 0 < size < math.inf
    predicted: list[float | None] = [None] * len(entries)
    if usable and entries:
        changed = (noise * value for value in predicted_changes(tape, entries, seed))
        predicted = [value if math.isfinite(value) else None for value in changed]
    chosen = _spread(predicted) if usable else []
    draws = max(DRAWS[0], min(DRAWS[1], PASSES // max(1, len(chosen))))
    changes, accuracies = np.empty((2, len(chosen), draws))
    for row, place in enumerate(chosen):
        for draw in range(draws):
            output = with_noise(tape, entries[place], noise, seed, (place, draw))
            changes[row, draw] = math.sqrt(sum_of_squares(output - clean)) / size
            accuracies[row, draw] = _accuracy(output, classes)
    errors = _errors(changes)
    rows = []
    for place, (entry, value) in enumerate(zip(entries, predicted, strict=True)):
        change = error = accuracy = accuracy_error = None
        if place in chosen and np.isfinite(changes[at := chosen.index(place)]).all():
            change, error = float(changes[at].mean()), float(errors[at])
            if classes is not None:
                accuracy = float(accuracies[at].mean())
                accuracy_error = float(accuracies[at].std(ddof=1) / math.sqrt(draws))
        rows.append(LayerNoiseSensitivity(entry.name, change, error, value, accuracy, accuracy_error))
    clean_accuracy = None if classes is None else _accuracy(clean, classes)
    return NoiseSensitivity(noise, draws, len(tape.x), tuple(rows), clean_accuracy, tuple(skipped))


def _spread(predicted: Sequence[float | None]) -> list[int]:
    """Which modules are measured: all, or some spread over the depth and the one of the largest prediction."""
    count = len(predicted)
    if count <= MOST:
        return list(range(count))
    chosen = {round(i * (count - 1) / (MOST - 2)) for i in range(MOST - 1)}
    worst = max(range(count), key=lambda i: predicted[i] or 0.0)
    return sorted(chosen | {worst})


def _errors(changes: np.ndarray) -> np.ndarray:
    """Standard errors of the means, from the relative spread over draws that all modules have in common."""
    draws = changes.shape[1]
    mean = changes.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = (changes / mean[:, None]).var(axis=1, ddof=1)
    known = relative[np.isfinite(relative)]
    return np.asarray(mean * math.sqrt(float(known.mean()) / draws)) if len(known) else np.zeros(len(mean))


def _classes(targets: Any, outputs: Tensor) -> Tensor | None:
    """The class numbers, where targets are some and outputs are scores."""
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dim() != 1 or outputs.dim() != 2:
        return None
    return targets.to(outputs.device) if len(targets) == len(outputs) else None


def _accuracy(outputs: Tensor, classes: Tensor | None) -> float:
    return math.nan if classes is None else float((outputs.argmax(dim=1) == classes).double().mean())


def about(found: NoiseSensitivity | None) -> list[str]:
    """How it was measured, in a sentence; empty where it was not."""
    if found is None or not found.measured:
        return []
    measured, count = len(found.measured), len(found.layers)
    which = f"{measured} of {count} modules, spread over the depth," if measured < count else "each module"
    said = (
        f"Noise was put into the weights of {which} {found.draws} times ({measured * found.draws} forward passes); "
        "predictions are of first order, from passes back."
    )
    if found.skipped:
        said += f" It cannot be put into {', '.join(found.skipped[:4])}."
    return [said]
