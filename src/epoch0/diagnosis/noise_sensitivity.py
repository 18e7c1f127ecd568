"""Which layer is most fragile: what noise in one layer's weights does to the outputs, predicted and measured.

Source: Raghu et al. 2017, section 3.1: a perturbation at a layer grows exponentially in the remaining depth after it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epoch0.diagnosis.weight_noise import predicted_changes, weighted_modules, with_noise
from epoch0.diagnosis.wording import percent
from epoch0.errors import InputError
from epoch0.measure.gain import LayerGain
from epoch0.tracing.layers import Layer
from epoch0.tracing.sizes import sum_of_squares
from epoch0.tracing.tape import Tape

PASSES = 24
"""About so many forward passes are spent on noise, whatever the depth."""

MOST = 12
"""So many modules are measured in; of deeper networks these are spread over the depth."""

DRAWS = (2, 4)
"""Fewest and most draws of the noise for each module."""

OUT = 1.25
"""A layer stands out if it changes the outputs by so many times what the middle one does."""

SURE = 3.0
"""... and by so many standard errors more."""

SMALL = 0.5
"""Predictions are of first order: up to about this change of the outputs."""


@dataclass(frozen=True)
class LayerNoiseSensitivity:
    """What noise in the weights of one module does.

    Attributes:
        name: of the module.
        change: root mean square change of the outputs over that of the outputs; None where it was not measured.
        error: its standard error over draws of the noise.
        predicted: the same to first order, from the gains of the layers behind; None where there is no law.
        reason: why there is no prediction.
        accuracy: with the noise; None without class numbers.
        accuracy_error: its standard error over draws.
    """

    name: str
    change: float | None
    error: float | None
    predicted: float | None
    reason: str
    accuracy: float | None
    accuracy_error: float | None


@dataclass(frozen=True)
class NoiseSensitivity:
    """What noise in the weights of one module at a time does to the outputs on a batch.

    >>> found = e0.checkup(net, x, y, noise=0.1).noise_sensitivity      # x of shape (100, 64), y of shape (100,)
    >>> found.sentence
    'No layer stands out as fragile: 10 % noise in the weights of any one layer changes the outputs by 9.5 ...'

    Attributes:
        noise: standard deviation, as a part of the root mean square of the module's weights that are not zero.
        draws: of the noise, for each module that was measured.
        examples: in the batch.
        layers: one row a module, in order of use.
        accuracy: without noise; None without class numbers.
        skipped: modules that noise cannot be put into.
    """

    noise: float
    draws: int
    examples: int
    layers: tuple[LayerNoiseSensitivity, ...]
    accuracy: float | None
    skipped: tuple[str, ...]

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
        return {
            "noise": self.noise, "draws": self.draws, "examples": self.examples, "accuracy": self.accuracy,
            "most_fragile": None if first is None else first.name, "sentence": self.sentence,
            "skipped": list(self.skipped), "layers": [dict(vars(row)) for row in self.layers],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = [
            f"{row.name:<24} changes {percent(row.change)} predicted {percent(row.predicted)} {row.reason}".rstrip()
            for row in self.layers
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


def noise_sensitivity(
    tape: Tape, layers: Sequence[Layer], gains: Sequence[LayerGain], noise: float, targets: Any, seed: int
) -> NoiseSensitivity:
    """Put noise into one module's weights at a time.

    Args:
        tape: the record; batch norm as it says, dropout off.
        layers: its layers.
        gains: of the layers, as measured.
        noise: standard deviation, as a part of the root mean square of the module's weights.
        targets: class numbers, shape (examples,), or anything else.
        seed: of the noise.
    """
    entries, skipped = weighted_modules(tape, layers)
    with torch.no_grad():
        clean = tape.run(tape.x).clone()
    classes = _classes(targets, clean)
    size = math.sqrt(sum_of_squares(clean))
    usable = 0 < size < math.inf
    known: list[tuple[float | None, str]] = [(None, "no finite output")] * len(entries)
    if usable and entries and gains[-1].square_out > 0:
        known = predicted_changes(tape, layers, entries, gains)
    predicted = [(None if value is None else noise * value, reason) for value, reason in known]
    chosen = _spread([value for value, _ in predicted]) if usable else []
    draws = max(DRAWS[0], min(DRAWS[1], PASSES // max(1, len(chosen))))
    changes, accuracies = np.empty((2, len(chosen), draws))
    for row, place in enumerate(chosen):
        for draw in range(draws):
            output = with_noise(tape, entries[place], noise, seed, (place, draw))
            changes[row, draw] = math.sqrt(sum_of_squares(output - clean)) / size
            accuracies[row, draw] = _accuracy(output, classes)
    errors = _errors(changes)
    rows = []
    for place, (entry, (value, reason)) in enumerate(zip(entries, predicted, strict=True)):
        change = error = accuracy = accuracy_error = None
        if place in chosen and np.isfinite(changes[at := chosen.index(place)]).all():
            change, error = float(changes[at].mean()), float(errors[at])
            if classes is not None:
                accuracy = float(accuracies[at].mean())
                accuracy_error = float(accuracies[at].std(ddof=1) / math.sqrt(draws))
        rows.append(LayerNoiseSensitivity(entry.name, change, error, value, reason, accuracy, accuracy_error))
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
        "predictions are of first order, from the gains of the layers behind."
    )
    if found.skipped:
        said += f" It cannot be put into {', '.join(found.skipped[:4])}."
    return [said]
