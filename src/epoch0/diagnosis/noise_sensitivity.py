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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import is_parametrized

from epoch0.diagnosis.wording import percent
from epoch0.prune.masks.places import plain_name
from epoch0.results import finite, first_names
from epoch0.seeds import generator
from epoch0.tracing.call import Call, as_written
from epoch0.tracing.guard import same_noise, unchanged
from epoch0.tracing.sizes import sum_of_squares

COTANGENTS = 8  # so many passes back predict all modules
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

    >>> found = e0.checkup(net, x, y, noise=0.1, trial=False).noise_sensitivity  # x: (100, 64), y: (100,)
    >>> found.sentence
    'No layer stands out as fragile: 10 % noise in the weights of any one layer changes the outputs by 9.5 ...'
    """

    noise: float  #: standard deviation, as a part of the root mean square of the module's weights that are not zero
    draws: int  #: of the noise, for each module that was measured
    examples: int  #: in the batch
    layers: tuple[LayerNoiseSensitivity, ...]  #: one row a module with weights that count, in the model's order
    accuracy: float | None  #: without noise; None without class numbers
    skipped: tuple[str, ...]  #: modules whose weights are zero or change nothing

    @property
    def measured(self) -> tuple[LayerNoiseSensitivity, ...]:
        """The rows with a measured change."""
        return tuple(row for row in self.layers if row.change is not None)

    @property
    def most_fragile(self) -> LayerNoiseSensitivity | None:
        """The module whose noise changes the outputs most, None if it does not stand out from the others."""
        first = max(self.measured, key=lambda row: row.change or 0.0, default=None)
        if first is None or first.change is None or len(self.measured) == 1:
            return first
        more = first.change - self._median
        return first if first.change > OUT * self._median and more > SURE * (first.error or 0.0) else None

    @property
    def _median(self) -> float:
        return float(np.median([row.change or 0.0 for row in self.measured]))

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        if not self.measured:
            return "What noise in the weights costs cannot be told: there is no weight to change, or no finite output."
        noise, first = f"{percent(self.noise)} noise in", self.most_fragile
        if first is None:
            said = f"No layer stands out as fragile: {noise} the weights of any one layer changes the outputs by "
            return f"{said}{_told(self.measured)}."
        if len(self.measured) == 1:
            return f"{noise} the weights of '{first.name}' changes the outputs by {_told([first])}."
        said = f"Most fragile: layer '{first.name}': {noise} its weights changes the outputs by {_told([first])}"
        said += f", and the median layer's by {percent(self._median)}"
        if first.accuracy is not None and self.accuracy is not None:
            said += f"; accuracy goes from {self.accuracy:.3g} to {first.accuracy:.3g}"
        return f"{said}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        first = self.most_fragile
        said = {"most_fragile": None if first is None else first.name, "sentence": self.sentence}
        return {**finite(asdict(self)), **said}

    def __str__(self) -> str:
        rows = (f"{r.name:<24} changes {percent(r.change)} predicted {percent(r.predicted)}" for r in self.layers)
        return "\n".join([self.sentence, *rows])


def _told(rows: Sequence[LayerNoiseSensitivity]) -> str:
    """The changes of these rows, and what was predicted if that is known of all."""
    said = _range([row.change or 0.0 for row in rows])
    known = [row.predicted for row in rows if row.predicted is not None]
    if len(known) < len(rows):
        return said
    predicted = "too much for a law of small changes" if max(known) > SMALL else _range(known)
    return f"{said} (predicted{':' * (max(known) > SMALL)} {predicted})"


def _range(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def noise_sensitivity(call: Call, noise: float, batch_norm: str = "train", seed: int = 0) -> NoiseSensitivity:
    """Put noise into one module's weights at a time; the model is given back unchanged."""
    with unchanged(call.model), torch.inference_mode(False), torch.enable_grad(), as_written():
        found = _weights(call.model.eval())
        for module in call.model.modules():
            module.training = batch_norm == "train" and isinstance(module, _NormBase)
        output = _outputs(call, {})
        clean, classes = output.detach().clone(), _classes(call.targets, output)
        accuracy = None if classes is None else _accuracy(clean, classes)
        size = math.sqrt(sum_of_squares(clean))
        if not (0 < size < math.inf and output.requires_grad):
            return NoiseSensitivity(noise, 0, len(clean), (), accuracy, tuple(found))
        slopes = _slopes(output, found, seed)
        del output
        names = [name for name in found if slopes[name] != 0]
        chosen = _spread([slopes[name] for name in names])
        draws = max(DRAWS[0], min(DRAWS[1], PASSES // max(1, len(chosen))))
        changes, right = np.empty((2, len(chosen), draws))
        for row, place in enumerate(chosen):
            for draw in range(draws):
                outputs = _outputs(call, _noisy(found[names[place]], noise, seed, (place, draw))).detach()
                changes[row, draw] = math.sqrt(sum_of_squares(outputs - clean)) / size
                right[row, draw] = math.nan if classes is None else _accuracy(outputs, classes)
    errors, right_errors = _errors(changes), right.std(axis=1, ddof=1) / math.sqrt(draws)
    rows = []
    for place, name in enumerate(names):
        told: list[float | None] = [None] * 4
        if place in chosen and np.isfinite(changes[at := chosen.index(place)]).all():
            told = [changes[at].mean(), errors[at], right[at].mean(), right_errors[at]]
        change, error, accurate, accurate_error = (None if v is None or math.isnan(v) else float(v) for v in told)
        predicted = noise * slopes[name] / size if math.isfinite(slopes[name]) else None
        rows.append(LayerNoiseSensitivity(name, change, error, predicted, accurate, accurate_error))
    return NoiseSensitivity(
        noise, draws, len(clean), tuple(rows), accuracy, tuple(name for name in found if name not in names)
    )


class _Given(nn.Module):
    """Stands where a parametrization computes a weight, and gives it as it was."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.original = nn.Parameter(weight.detach().clone())

    def forward(self) -> Tensor:
        return self.original


def _weights(model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Name of a module -> its weights of two or more dimensions by name, parametrized ones as they are used."""
    for module in list(model.modules()):
        if is_parametrized(module):
            made = module.parametrizations
            for key in list(made):  # type: ignore[arg-type]
                made[key] = _Given(getattr(module, key))  # type: ignore[operator,assignment]
    found: dict[str, dict[str, Tensor]] = {}
    for name, weight in model.named_parameters():
        weight.requires_grad_(wanted := weight.dim() >= 2 and weight.is_floating_point())
        if wanted:
            found.setdefault(plain_name(name).rpartition(".")[0] or name, {})[name] = weight
    return found


def _outputs(call: Call, weights: Mapping[str, Tensor]) -> Tensor:
    same_noise()
    return call.output(call.swapped(weights))


def _scale(weight: Tensor) -> float:
    """Root mean square of the weights that are not zero: what was pruned stays so."""
    return math.sqrt(sum_of_squares(weight) / max(1, int(weight.count_nonzero())))


def _noisy(weights: Mapping[str, Tensor], noise: float, seed: int, stream: Sequence[int]) -> dict[str, Tensor]:
    changed = {}
    for place, (name, weight) in enumerate(weights.items()):
        step = torch.randn(weight.shape, generator=generator(seed, *stream, place)).to(weight) * (weight != 0)
        changed[name] = weight.detach() + noise * _scale(weight) * step
    return changed


def _slopes(output: Tensor, found: Mapping[str, Mapping[str, Tensor]], seed: int) -> dict[str, float]:
    """Root mean square change of the outputs, times their number, for noise of size 1 in each module, to first order.

    The mean square of J N over noise N is the sum of squares of J, and so is that of J^T u over random u: a few passes
    back tell it for all modules.
    """
    totals = dict.fromkeys(found, 0.0)
    named = [(name, weight) for name, weights in found.items() for weight in weights.values()]
    for draw in range(COTANGENTS):
        u = torch.randn(output.shape, generator=generator(seed, 0x6672, draw)).to(output)
        slopes = torch.autograd.grad(output, [w for _, w in named], u, retain_graph=True, allow_unused=True)
        for (name, weight), slope in zip(named, slopes, strict=True):
            if slope is not None:
                totals[name] += _scale(weight) ** 2 * sum_of_squares(slope * (weight != 0)) / COTANGENTS
    return {name: math.sqrt(total) for name, total in totals.items()}


def _spread(slopes: Sequence[float]) -> list[int]:
    """Which modules are measured: all, or some spread over the depth and the one of the largest prediction."""
    count = len(slopes)
    if count <= MOST:
        return list(range(count))
    worst = max(range(count), key=slopes.__getitem__)
    return sorted({worst, *(round(i * (count - 1) / (MOST - 2)) for i in range(MOST - 1))})


def _errors(changes: np.ndarray) -> np.ndarray:
    """Standard errors of the means, from the relative spread over draws that all modules have in common."""
    mean = changes.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = (changes / mean[:, None]).var(axis=1, ddof=1)
    known = relative[np.isfinite(relative)]
    return np.asarray(mean * math.sqrt(float(known.mean() if len(known) else 0.0) / changes.shape[1]))


def _classes(targets: Any, outputs: Tensor) -> Tensor | None:
    """The class numbers, where targets are some and outputs are scores."""
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dim() != 1 or outputs.dim() != 2:
        return None
    return targets.to(outputs.device) if len(targets) == len(outputs) else None


def _accuracy(outputs: Tensor, classes: Tensor) -> float:
    return float((outputs.argmax(dim=1) == classes).double().mean())


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
    return [said + (f" It changes nothing in {first_names(found.skipped)}." if found.skipped else "")]
