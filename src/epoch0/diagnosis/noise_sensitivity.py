"""Which layer is most fragile: what noise in one layer's weights does to the outputs, predicted and measured.

With W + eps r N in place of W, N standard normal and r the root mean square of W, a pre-activation h = W z changes by
eps r N z: entries uncorrelated, mean square ``eps^2 r^2 |z|^2``, for random W eps^2 times that of h. From there
it travels as any small change does, and every later layer multiplies its mean square by chi. So in units of the output

    (change / output)^2 = eps^2 s_in chi_l chi_(l+1) ... chi_L / s_out,    s the mean square of a unit,

a perturbation that grows with the remaining depth. Since s_out is s_in times the layers' own gains rho of mean squares,
this is eps^2 times the product of chi/rho: what counts is how much more a layer stretches differences than signals.

Source: Raghu et al. 2017, section 3.1: a perturbation at a layer grows exponentially in the remaining depth after it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epoch0.diagnosis.wording import percent
from epoch0.errors import InputError
from epoch0.measure import law_rules
from epoch0.measure.gain import LayerGain
from epoch0.measure.law import Walk
from epoch0.measure.law_flow import Chain, Flow, NoLaw
from epoch0.seeds import generator
from epoch0.tracing import operations
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer, average_pools
from epoch0.tracing.sizes import sum_of_squares
from epoch0.tracing.tape import Change, Tape

WALKS = 8  # so many weighted operations of one stretch between two stations are predicted; each takes one more run


@dataclass(frozen=True)
class Weighted:
    """One module with weights, or one parameter that the model uses by itself."""

    name: str  # of the module
    ops: tuple[Op, ...]  # where its weights are used; several times in a module used twice
    layers: tuple[int, ...]  # the layer that each of these is in


def weighted_modules(tape: Tape, layers: Sequence[Layer]) -> tuple[list[Weighted], list[str]]:
    """What noise can be put into, in the order of use, and the names of what it cannot."""
    found: dict[str, list[tuple[Op, int]]] = {}
    left: list[str] = []
    for op in tape.ops:
        place = _layer_of(op, layers)
        if not op.kind or place is None:
            continue
        name = op.module or op.weights[0].removesuffix(".weight").removesuffix(".bias")
        if op.call is None or not matrices(tape, op):
            left.append(name)
        else:
            found.setdefault(name, []).append((op, place))
    names = [name for name in found if name not in left]
    entries = [Weighted(n, tuple(op for op, _ in found[n]), tuple(place for _, place in found[n])) for n in names]
    return entries, list(dict.fromkeys(left))


def _layer_of(op: Op, layers: Sequence[Layer]) -> int | None:
    return next((i for i, one in enumerate(layers) if op.outputs and one.input < op.outputs[0] <= one.output), None)


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


class _NoiseWalk(Walk):
    """The walk of a law that begins with noise in one operation of each layer in place of a tangent at its input."""

    def __init__(self, tape: Tape, layers: Sequence[Layer], chosen: Sequence[Op]) -> None:
        super().__init__(tape, layers)
        self.chosen = {op.index for op in chosen}
        self.started: dict[int, float] = {}
        self.common: dict[int, float] = {}

    def _start(self, node: int, tensor: Tensor) -> None:
        super()._start(node, tensor)
        flow = self.flows[node]
        assert isinstance(flow, Flow)
        self.flows[node] = replace(flow, square=torch.zeros_like(tensor))

    def _pass(self, event: Op) -> None:
        super()._pass(event)
        if event.index in self.chosen:
            self.flows[event.outputs[0]] = self._noise(event)

    def _noise(self, event: Op) -> Flow | Chain | str:
        """Noise of size 1, relative to the weights, at the output of an operation."""
        if len(event.inputs) != 1:
            return "a product of two signals"
        z = self.values[event.inputs[0]].detach()
        signal = Flow(z.square(), "known", frozenset({"input"}))
        try:
            flow = law_rules.weighted(event, signal, lambda weight: scale(weight) ** 2 * (weight != 0).to(weight))
        except NoLaw as reason:
            return str(reason)
        self.common[event.index] = common = _shared(event, z, flow)
        if self._before_batch_norm(event.outputs[0]):
            flow = replace(flow, square=flow.square * (1 - common))
        self.started[event.index] = float(flow.square.double().mean())
        return flow

    def _before_batch_norm(self, node: int) -> bool:
        users = [event for event in self.events if node in event.inputs]
        return self.tape.batch_norm == "train" and len(users) == 1 and users[0].name == "batch_norm"


def _shared(op: Op, z: Tensor, flow: Flow) -> float:
    """The part of the noise that is the same for all examples and places, which a batch norm takes out.

    The sum of the outputs has the derivative sum of the inputs of each weight: their mean, squared, against the mean
    square.
    """
    call = op.call
    assert call is not None and flow.units is not None
    zeros: list[Tensor] = []

    def zero(weight: Tensor) -> Tensor:
        zeros.append(torch.zeros_like(weight).requires_grad_())
        return zeros[-1]

    with torch.enable_grad():
        output = call({op.inputs[0]: z}, zero)
        found = torch.autograd.grad(output.sum(), zeros, allow_unused=True)
    size = [scale(weight) * (weight != 0).to(weight) for weight in call.constants()]
    summed = sum(sum_of_squares(g * own) for g, own in zip(found, size, strict=True) if g is not None and g.dim() >= 2)
    units = output.shape[flow.units]
    mean = float(flow.square.double().mean())
    return min(1.0, summed / units / (output.numel() / units) ** 2 / mean) if mean > 0 else 0.0


def predicted_changes(
    tape: Tape, layers: Sequence[Layer], entries: Sequence[Weighted], gains: Sequence[LayerGain]
) -> list[tuple[float | None, str]]:
    """Relative change of the outputs for noise of size 1 in each module, to first order; or why there is none.

    Later layers count with the gain that their weights predict, or the measured one where there is no law. Average
    pooling passes what places have in common: the part of the noise that they share, as far as they share the signal.
    """
    ranks: list[list[Op]] = []
    taken = dict.fromkeys(range(len(layers)), 0)
    for op, place in sorted(((o, p) for e in entries for o, p in zip(e.ops, e.layers, strict=True)), key=_in_order):
        if taken[place] == len(ranks):
            ranks.append([])
        ranks[taken[place]].append(op)
        taken[place] += 1
    pools = [_pools(tape, layer) for layer in layers]
    each = np.array([gain.forward if gain.predicted is None else gain.predicted for gain in gains])
    with np.errstate(divide="ignore"):  # in logarithms, as deep networks leave the range of floats
        logs = np.log(each)
    at_end: dict[int, tuple[float, str]] = {}
    for chosen in ranks[:WALKS]:
        walk = _NoiseWalk(tape, layers, chosen)
        with torch.no_grad():
            tape.run(tape.x, walk.changes())
        for op in chosen:
            place = _layer_of(op, layers) or 0
            law, layer = walk.found[place], layers[place]
            value = law.predicted
            if value is None and op.index in walk.started and layer.weight_gain > 0:
                value = walk.started[op.index] * gains[place].forward / layer.weight_gain
            if value is None:
                at_end[op.index] = (math.nan, law.reason)
                continue
            passed = [math.log1p((k - 1) * _of_signal(tape, walk.common[op.index]) * rho)
                      for pool in pools[place:] for k, rho in pool]  # fmt: skip
            behind = float(logs[place + 1 :].sum()) + sum(passed) - math.log(gains[-1].square_out)
            at_end[op.index] = (behind + (math.log(value) if value > 0 else -math.inf), "")
    return [_together(entry, at_end) for entry in entries]


def _of_signal(tape: Tape, common: float) -> float:
    """The part of the noise that places share, where the signal's part is all; batch norm takes the means of both."""
    return 1.0 if _centred(tape) else common


def _centred(tape: Tape) -> bool:
    return tape.batch_norm == "train" and tape.has_batch_norm


def _in_order(pair: tuple[Op, int]) -> int:
    return pair[0].index


def _together(entry: Weighted, at_end: Mapping[int, tuple[float, str]]) -> tuple[float | None, str]:
    """All uses of a module's weights, as if they changed apart."""
    total = 0.0
    for op in entry.ops:
        log, reason = at_end.get(op.index, (math.nan, "too many weights between two tensors that all paths share"))
        if reason:
            return None, f"no law: {reason}"
        total += math.exp(log) if log < 700 else math.inf
    return (math.sqrt(total), "") if math.isfinite(total) else (None, "numbers overflow")


def _pools(tape: Tape, layer: Layer) -> list[tuple[float, float]]:
    """The average pools of a layer: how many places each averages over, and the signal's correlation between them.

    Behind batch norm in training noise moves no channel's mean, and the signal counts without those.
    """
    found = []
    for start, end, places in average_pools(tape):
        if not layer.input <= start < layer.output:
            continue
        with torch.no_grad():
            before, after = (_mean_square(t, _centred(tape)) for t in tape.values(tape.x, [start, end]))
        share = after / before if before > 0 else 1.0
        found.append((places, min(1.0, max(0.0, (places * share - 1) / max(places - 1, 1)))))
    return found


def _mean_square(tensor: Tensor, centred: bool) -> float:
    value = tensor.detach().double()
    if centred and value.dim() > 1:
        value = value - value.mean([0, *range(2, value.dim())], keepdim=True)
    return float(value.square().mean())


def with_noise(tape: Tape, entry: Weighted, noise: float, seed: int, stream: Sequence[int]) -> Tensor:
    """The outputs with noise in one module's weights, the same noise wherever they are used."""
    replaced: dict[int, Callable[[Tensor], Tensor]] = {}
    kept: dict[int, Tensor] = {}
    for op in entry.ops:
        replaced.update(_changed(tape, op, noise, kept, seed, stream))
    wanted = {node for op in entry.ops for node in op.inputs}

    def at(node: int) -> Change:
        def arrive(tensor: Tensor) -> Tensor | None:
            new = replaced[node](tensor) if node in replaced else None
            if node in wanted:
                value = tensor if new is None else new
                kept[node] = value.clone() if node in tape.overwritten else value
            return new

        return arrive

    with torch.no_grad():
        return tape.run(tape.x, {node: at(node) for node in (*wanted, *replaced)})


def _changed(
    tape: Tape, op: Op, noise: float, kept: Mapping[int, Tensor], seed: int, stream: Sequence[int]
) -> dict[int, Callable[[Tensor], Tensor]]:
    """For each output of an operation, what it is with noisy weights."""
    call = op.call
    assert call is not None
    noisy: dict[int, Tensor] = {}
    for place, weight in enumerate(matrices(tape, op)):
        step = torch.randn(weight.shape, generator=generator(seed, *stream, place)).to(weight) * (weight != 0)
        noisy[id(weight)] = weight + noise * scale(weight) * step
    made: list[Tensor] = []

    def result(index: int) -> Callable[[Tensor], Tensor]:
        def value(tensor: Tensor) -> Tensor:
            if index == 0:
                made[:] = operations.tensors_in(call({n: kept[n] for n in op.inputs}, lambda c: noisy.get(id(c), c)))
            return made[index]

        return value

    return {node: result(index) for index, node in enumerate(op.outputs[: op.results])}


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
    predicted: float | None  #: the same to first order, from the gains of the layers behind; None where there is no law
    reason: str  #: why there is no prediction
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
    """Put noise into one module's weights at a time."""
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
