"""The gain of every layer of any model: how it scales signals and gradients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from epoch0 import special
from epoch0.arguments import BatchNorm, Directions, Seed, checked
from epoch0.measure.law import PredictedGain, Walk
from epoch0.measure.passes import Passes, Squares, Travel, mean_squares, passes
from epoch0.results import Result, aligned, counted
from epoch0.theory.checks import Array
from epoch0.tracing.call import Call, Forward
from epoch0.tracing.layers import Layer, layers
from epoch0.tracing.loss import Loss
from epoch0.tracing.tape import Change, Tape, how_it_ran, tape, together


@dataclass(frozen=True)
class LayerGain:
    """What one layer does to signals and gradients."""

    name: str  #: qualified name of its weighted module, or what several have in common
    kind: str  #: ``"linear"``, ``"convolution"``, ``"residual block"``, ...
    forward: float  #: chi going forward, (||J v||^2/n_out) / (||v||^2/n_in) averaged over random directions v
    forward_error: float  #: its standard error over directions, for this batch
    forward_example_error: float  #: its standard error over examples, for another batch of the same size; or NaN
    backward: float  #: chi going back, ||J^T g||^2/||g||^2 averaged over random directions g
    backward_error: float  #: as above
    backward_example_error: float  #: as above
    predicted: float | None  #: chi by the law, from weights and measured mean squares; None where there is no law
    predicted_error: float  #: standard deviation of chi around the law that the finite width leaves; NaN without a law
    #: ``"as predicted"``, ``"higher than predicted (×1.12)"``, ``"lower than predicted (×0.85)"`` or ``"no law:
    #: max pool"``; three standard errors, of measurement and law together, or one percent decide
    agreement: str
    pre_activation: float  #: q, mean square of a pre-activation; NaN unless there is exactly one known activation
    square_in: float  #: mean square of one unit entering, over units and examples
    square_out: float  #: mean square of one unit leaving
    tangent: float  #: mean square a unit, relative to the input's, of a tangent carried from the input to its end
    tangent_error: float  #: its standard error over directions
    gradient: float  #: norm of the gradient at its end (of the loss, or of random cotangents at the output)
    weight_gradients: Mapping[str, float] = field(repr=False)  #: norm of the gradient of each weight and bias
    weighted: int  #: how many weighted operations the layer has
    has_norm: bool  #: whether a norm is in it
    verdict: str  #: ``"keeps"``, ``"grows"``, ``"shrinks"``, ``"unclear"``, ``"dead"``, ``"overflows"``: :func:`gain`


@dataclass(frozen=True)
class Gain(Result):
    """The gains of a model on a batch; one row a layer."""

    layers: tuple[LayerGain, ...]  #: the rows, from the input on
    examples: int  #: size of the batch
    directions: int  #: random directions a layer
    seed: int  #: of the directions
    #: ``"train"`` (statistics of the batch) or ``"eval"`` (running ones); None if the model has no batch norm
    batch_norm: str | None
    dropout: bool  #: whether the model has dropout; it was off
    input_gradient: float  #: norm of the gradient at the input
    loss: float | None  #: the loss that the gradients are of; None for random cotangents at the output

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def chi_forward(self) -> Array:
        """Forward chi of each layer, shape (layers,)."""
        return np.array([layer.forward for layer in self.layers])

    @property
    def chi_backward(self) -> Array:
        """Backward chi of each layer, shape (layers,)."""
        return np.array([layer.backward for layer in self.layers])

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks: how batch norm and dropout were treated, which layers hold several operations."""
        found = how_it_ran(self.batch_norm, self.dropout)
        for layer in self.layers:
            if layer.weighted > 1 and layer.kind != "residual block":
                text = f"'{layer.name}' is one layer of {layer.weighted} weighted operations"
                found.append(f"{text}: all paths meet only at its end")
        return tuple(found)

    def __str__(self) -> str:
        over = f"{counted(self.examples, 'example')}, {self.directions} random directions each"
        lines = [f"gain of {counted(self.depth, 'layer')} over {over}"]
        lines += aligned([[*_HEAD, "measured is"], *(_cells(layer) for layer in self.layers)])
        start, factors = self.layers[-1].gradient, [math.sqrt(self.layers[-1].tangent)]
        factors.append(self.input_gradient / start if start else math.nan)
        tangent, gradient = (f"{factor:.3g}" if math.isfinite(factor) else "beyond floats" for factor in factors)
        lines.append(f"carried from end to end: tangents, a unit, times {tangent}, gradients times {gradient}")
        return "\n".join([*lines, *self.notes])

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer, with the attributes of :class:`LayerGain`; of its weights' gradients the norm together."""
        found = [dict(vars(layer)) for layer in self.layers]
        for row in found:
            row["weight_gradient"] = math.hypot(*row.pop("weight_gradients").values())
        return found


_HEAD = ["layer", "kind", "chi forward", "chi backward", "predicted", "square in", "square out", "gradient", "verdict"]


def _cells(layer: LayerGain) -> tuple[str, ...]:
    pairs = (layer.forward, layer.forward_error), (layer.backward, layer.backward_error)
    gains = (f"{chi:.4g} ± {error:.1g}" for chi, error in pairs)
    law = "" if layer.predicted is None else f"{layer.predicted:.3g}"
    sizes = (f"{size:.3g}" for size in (layer.square_in, layer.square_out, layer.gradient))
    return (layer.name, layer.kind, *gains, law, *sizes, layer.verdict, layer.agreement)


SURE = 3.0  # standard errors between measurement and law up to which they agree, for one layer
NEAR = 0.01  # relative difference between them that is never called a disagreement
MANY = 1e6  # degrees of freedom from which Student's law is the normal one


@checked
def gain(
    model: nn.Module,
    x: Any,
    targets: Any = None,
    *,
    loss: Loss | None = None,
    forward: Forward | None = None,
    batch_norm: BatchNorm = "train",
    directions: Directions = 8,
    seed: Seed = 0,
) -> Gain:
    """Measure how much each layer scales signals going forward and gradients going back.

    >>> net = epoch0.networks.mlp([784, 256, 256, 10], weights=epoch0.Gaussian(2**.5), seed=0)
    >>> g = gain(net, torch.randn(64, 784))                              # three layers
    >>> g.chi_forward.round(), round(g.layers[0].predicted, 2)           # 1, 1 and the readout's 2
    (array([1., 1., 2.]), 0.99)

    A layer is a segment between two tensors that all paths share: a residual block is one. J is its Jacobian for the
    whole batch, so batch norm couples the examples. Both gains estimate ||J||_F^2/n_out, without bias, one going each
    way. The model is used in whatever mode it is in and restored to the bit; dropout is off.

    Verdicts speak of the depth L of the whole network: ``keeps`` means that if all layers had this gain, norms would
    change less than twofold from end to end, abs(log chi) L/2 < log 2; ``grows`` and ``shrinks`` that they would
    change more, and that chi differs from 1 by two standard errors; ``unclear`` that the errors leave it open (more
    directions or examples decide); ``dead`` that nothing passes; ``overflows`` that numbers are not finite.

    Args:
        model: any module.
        x: a batch, as the model is called with it: a tensor of shape (examples, ...), a tuple, a mapping, a graph (see
            :class:`~epoch0.tracing.call.Call`). Signals start at its floating point tensor, or at the first one that is
            made of its integers, such as the output of an embedding.
        targets: classes (integers, shape (examples,)) or values of the output's shape. Without them the loss is the
            model's own (labels in the batch, a ``training_step``), else gradients start from random cotangents.
        loss: ``loss(outputs, targets) -> scalar``; default: cross-entropy for integers, mean squared error for floats.
        forward: ``forward(model, batch) -> outputs``, for a model that is called in another way.
        batch_norm: ``"train"``: statistics of this batch, as training sees it; ``"eval"``: running statistics.
        directions: random directions a layer, >= 2; errors fall with its square root.
        seed: of the directions.

    Raises:
        InputError: if the model, the input, the targets or their combination cannot be measured.

    Source: THEORY section 0; Hayou et al. 2021, B.1.2 (chi); Schoenholz et al. 2017.
    """
    with tape(Call.of(model, x, targets, loss=loss, forward=forward), batch_norm=batch_norm) as record:
        return measure_gains(record, layers(record), directions, seed)[0]


def measure_gains(
    record: Tape,
    found: Sequence[Layer],
    directions: int,
    seed: int,
    places: Sequence[int] = (),
    *,
    looks: Mapping[int, Change] | None = None,
    travel: Travel | None = None,
    gradients: bool = True,
) -> tuple[Gain, dict[int, tuple[float, float, float]]]:
    """The gains of a recorded model, and what is carried to the nodes of other places beside its layers.

    By node: mean square a unit of a tangent carried from the input, relative to the input's; norm of the gradient; mean
    square of a unit. ``looks`` are made in a run that is needed anyway. Of a piece of a model, ``travel`` is what came
    from the one before it; without gradients theirs are NaN.
    """
    call, travel = record.call, travel or Travel(directions, directions, seed)
    nodes = sorted({layer.output for layer in found} | {*places})
    # a network may leave the range of floats: that is a finding, not a warning
    with np.errstate(over="ignore", invalid="ignore"):
        walk = Walk(record, found)
        before = [layer.pre_activation for layer in found if layer.pre_activation is not None]
        squares, sizes = mean_squares(record, [0, *before, *nodes])
        looking, loss = together(sizes, walk.changes(), looks or {}), call.loss if call.has_loss else None
        seen = passes(record, found, directions, seed, nodes, loss, looking, travel, gradients)
        at = {node: index for index, node in enumerate(nodes)}
        rows = [_row(layer, i, walk.found[i], seen, at[layer.output], squares) for i, layer in enumerate(found)]
        rows = [_assessed(row, directions, len(rows)) for row in rows]
        carried = {
            n: (float(seen.carried.total[:, at[n]].mean()), seen.gradients.get(n, math.nan), float(squares[n].mean()))
            for n in places
        }
    mode, start = record.batch_norm if record.has_batch_norm else None, seen.gradients.get(0, math.nan)
    return Gain(tuple(rows), call.examples, directions, seed, mode, record.has_dropout, start, seen.loss), carried


def joined_gains(pieces: Sequence[Gain], names: Sequence[str]) -> Gain:
    """The gains of a model that was measured piece by piece; with the number of layers limits of agreement change."""
    first, every = pieces[0], [row for piece in pieces for row in piece.layers]
    named = (replace(row, name=name) for name, row in zip(names, every, strict=True))
    rows = tuple(_assessed(row, first.directions, len(every)) for row in named)
    mode, dropout = next((one.batch_norm for one in pieces if one.batch_norm), None), any(one.dropout for one in pieces)
    return replace(first, layers=rows, batch_norm=mode, dropout=dropout, loss=pieces[-1].loss)


def _row(layer: Layer, place: int, law: PredictedGain, seen: Passes, node: int, squares: dict[int, Array]) -> LayerGain:
    size = {n: float(squares[n].mean()) for n in (layer.input, layer.output, layer.pre_activation) if n is not None}
    q = math.nan if layer.pre_activation is None else size[layer.pre_activation]
    gradients = {name: seen.gradients[name] for name in layer.weights if name in seen.gradients}
    chi = *_estimate(seen.forward, place), *_estimate(seen.backward, place)
    law_says, sizes = (law.predicted, law.error, f"no law: {law.reason}"), (q, size[layer.input], size[layer.output])
    arriving = *_estimate(seen.carried, node)[:2], seen.gradients.get(layer.output, math.nan)
    facts = gradients, layer.weighted, layer.has_norm
    return LayerGain(layer.name, layer.kind, *chi, *law_says, *sizes, *arriving, *facts, verdict="")


def _assessed(row: LayerGain, directions: int, layers: int) -> LayerGain:
    """The row with its agreement and its verdict, which depend on the number of layers."""
    measured, errors, text = (row.forward + row.backward) / 2, (row.forward_error, row.backward_error), row.agreement
    if row.predicted is not None:
        halves = [error / 2 for error in errors]
        text = agreement(measured, halves, directions, row.predicted, row.predicted_error, layers)
    # fmax: the error over examples may be unknown
    error = math.hypot(*np.fmax(errors, (row.forward_example_error, row.backward_example_error)))
    verdict = gain_status(measured, error / 2, layers) if math.isfinite(row.square_out) else "overflows"
    return replace(row, agreement=text, verdict=verdict)


def _estimate(squares: Squares, place: int) -> tuple[float, float, float]:
    """Mean over directions, its standard error over directions and over examples."""
    total, examples = squares.total[:, place], squares.examples[:, place]
    if len(total) < 2:
        return float(total.mean()), math.nan, math.nan
    over_examples = examples.std(ddof=1) / math.sqrt(len(examples)) if len(examples) > 1 else math.nan
    return float(total.mean()), float(total.std(ddof=1) / math.sqrt(len(total))), float(over_examples)


def agreement(
    measured: float, errors: Sequence[float], directions: int, predicted: float, finite_width: float, layers: int
) -> str:
    """How the measured gain compares with the predicted one, in words.

    They agree within three standard errors, those of the measurement and of the law at finite width together, or within
    one percent. With few directions errors are uncertain themselves, and with many layers one is off by chance:
    Student's law and the number of layers widen the three, so that 3 of 1000 tables hold a disagreement by chance.
    """
    if not math.isfinite(measured):
        return "no comparison: numbers overflow"
    parts = [error**2 for error in errors if math.isfinite(error)]
    variance, sampled = sum(parts) + finite_width**2, sum(part**2 for part in parts) / (directions - 1)
    freedom = min(variance**2 / sampled, MANY) if sampled > 0 else MANY
    limit = -float(special.stdtrit(freedom, special.ndtr(-SURE) / layers))
    if abs(measured - predicted) <= max(limit * math.sqrt(variance), NEAR * predicted):
        return "as predicted"
    if predicted == 0:
        return "higher than predicted"
    ratio = measured / predicted
    return f"{'higher' if ratio > 1 else 'lower'} than predicted (×{ratio:.3g})"


def gain_status(measured: float, error: float, depth: int) -> str:
    """What layers of this gain would do if all had it, in the words of :func:`gain`.

    >>> gain_status(1.01, 0.001, 10), gain_status(0.5, 0.01, 10), gain_status(1.1, 0.2, 10)
    ('keeps', 'shrinks', 'unclear')
    """
    if not math.isfinite(measured):
        return "overflows"
    if measured <= 0:
        return "dead"
    margin = 2 * math.log(2) / depth  # of log chi, in which the whole depth changes norms less than twofold
    low, high = max(measured - 2 * error, 0.0), measured + 2 * error
    if abs(math.log(measured)) < margin:
        return "keeps" if low > 0 and math.log(high) < 2 * margin and math.log(low) > -2 * margin else "unclear"
    return "unclear" if low < 1 < high else "grows" if measured > 1 else "shrinks"
