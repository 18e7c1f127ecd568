"""What a measurement of gains gives back: one row a layer, the whole depth, a table to read (THEORY section 0)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epoch0.columns import aligned

if TYPE_CHECKING:
    import pandas

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LayerGain:
    """What one layer does to signals and gradients.

    Attributes:
        name: qualified name of its weighted module, or what several have in common.
        kind: ``"linear"``, ``"convolution"``, ``"residual block"``, ...
        forward: chi going forward, (||J v||^2/n_out) / (||v||^2/n_in) averaged over random directions v.
        forward_error: its standard error over directions, for this batch.
        forward_example_error: its standard error over examples, for another batch of the same size; NaN if it is
            unknown.
        backward: chi going back, ||J^T g||^2/||g||^2 averaged over random directions g.
        backward_error: as above.
        backward_example_error: as above.
        predicted: chi by the law, from the weights and the measured mean squares of the pre-activations; None where
            there is no law.
        predicted_error: standard deviation of chi around the law that the finite width leaves; NaN without a law.
        agreement: ``"as predicted"``, ``"higher than predicted (×1.12)"``, ``"lower than predicted (×0.85)"`` or
            ``"no law: max pool"``; three standard errors, of measurement and law together, or one percent decide.
        cause: where measurement and law differ: what the theory takes for granted that does not hold here; empty if
            nothing of that kind was found.
        pre_activation: q, the mean square of a pre-activation; NaN unless the layer has exactly one known activation.
        square_in: mean square of one unit entering, over units and examples.
        square_out: mean square of one unit leaving.
        tangent: mean square a unit, relative to the input's, of a tangent carried from the input to the end of this
            layer.
        tangent_error: its standard error over directions.
        gradient: norm of the gradient at the end of this layer (of the loss, or of random cotangents at the output).
        weight_gradients: norm of the gradient of each parameter of the weighted operations.
        weighted: how many weighted operations the layer has.
        has_norm: whether a norm is in it.
        verdict: ``"keeps"``, ``"grows"``, ``"shrinks"``, ``"unclear"``, ``"dead"`` or ``"overflows"``; see
            :func:`gain`.
    """

    name: str
    kind: str
    forward: float
    forward_error: float
    forward_example_error: float
    backward: float
    backward_error: float
    backward_example_error: float
    predicted: float | None
    predicted_error: float
    agreement: str
    cause: str
    pre_activation: float
    square_in: float
    square_out: float
    tangent: float
    tangent_error: float
    gradient: float
    weight_gradients: Mapping[str, float] = field(repr=False)
    weighted: int
    has_norm: bool
    verdict: str


@dataclass(frozen=True)
class Gain:
    """The gains of a model on a batch; one row a layer.

    Attributes:
        layers: the rows, from the input on.
        examples: size of the batch.
        directions: random directions a layer.
        seed: of the directions.
        batch_norm: ``"train"`` (statistics of the batch) or ``"eval"`` (running ones); None if the model has no batch
            norm.
        dropout: whether the model has dropout; it was off.
        input_gradient: norm of the gradient at the input.
        loss: the loss that the gradients are of; None for random cotangents at the output.
    """

    layers: tuple[LayerGain, ...]
    examples: int
    directions: int
    seed: int
    batch_norm: str | None
    dropout: bool
    input_gradient: float
    loss: float | None

    @property
    def depth(self) -> int:
        """How many layers."""
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
    def total_forward(self) -> float:
        """Log of the product of the forward gains; a tangent's norm a unit changes by exp of half of it. -inf if a
        layer is dead.
        """
        return _log_sum(self.chi_forward)

    @property
    def total_forward_error(self) -> float:
        """Standard error of :attr:`total_forward` over directions."""
        return _log_error(self.chi_forward, np.array([layer.forward_error for layer in self.layers]))

    @property
    def total_backward(self) -> float:
        """Log of the product of the backward gains; a gradient's norm changes by exp of half of it. -inf if a layer
        is dead.
        """
        return _log_sum(self.chi_backward)

    @property
    def total_backward_error(self) -> float:
        """Standard error of :attr:`total_backward` over directions."""
        return _log_error(self.chi_backward, np.array([layer.backward_error for layer in self.layers]))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: how batch norm and dropout were treated, and which layers hold several
        operations.
        """
        found = []
        if self.batch_norm:
            statistics = (
                "the statistics of this batch, as in training"
                if self.batch_norm == "train"
                else "the running statistics"
            )
            found.append(f"batch norm used {statistics}")
        if self.dropout:
            found.append("dropout was off")
        for layer in self.layers:
            if layer.weighted > 1 and layer.kind != "residual block":
                found.append(
                    f"'{layer.name}' is one layer of {layer.weighted} weighted operations: "
                    "all paths meet only at its end"
                )
        return tuple(found)

    def __str__(self) -> str:
        """The table: chi forward and backward with errors, prediction, mean squares, gradients, verdict."""
        lines = [f"gain of {self.depth} layers over {self.examples} examples, {self.directions} random directions each"]
        lines += aligned([_HEAD, *(_cells(layer) for layer in self.layers)])
        forward, backward = _factor(self.total_forward / 2), _factor(self.total_backward / 2)
        lines.append(f"whole depth: tangents times {forward}, gradients times {backward} in norm")
        return "\n".join([*lines, *self.notes])

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, with the attributes of :class:`LayerGain` as columns."""
        import pandas

        names = [name for name in LayerGain.__dataclass_fields__ if name != "weight_gradients"]
        frame = pandas.DataFrame([{name: getattr(layer, name) for name in names} for layer in self.layers])
        frame["weight_gradient"] = [math.hypot(*layer.weight_gradients.values()) for layer in self.layers]
        return frame


_HEAD = (
    "layer", "kind", "chi forward", "chi backward", "predicted", "square in", "square out", "gradient", "verdict",
    "measured is",
)  # fmt: skip


def _cells(layer: LayerGain) -> tuple[str, ...]:
    return (
        layer.name,
        layer.kind,
        _with_error(layer.forward, layer.forward_error),
        _with_error(layer.backward, layer.backward_error),
        "" if layer.predicted is None else f"{layer.predicted:.3g}",
        f"{layer.square_in:.3g}",
        f"{layer.square_out:.3g}",
        f"{layer.gradient:.3g}",
        layer.verdict,
        layer.agreement,
    )


def _log_sum(chi: Array) -> float:
    return float(np.log(chi).sum()) if (chi > 0).all() else (-math.inf if (chi == 0).any() else math.nan)


def _log_error(chi: Array, error: Array) -> float:
    return float(np.sqrt(((error / chi) ** 2).sum())) if (chi > 0).all() else math.nan


def _with_error(value: float, error: float) -> str:
    """A number with its error, both to the error's first digit."""
    if not (math.isfinite(value) and math.isfinite(error) and error > 0) or not 1e-4 <= value < 1e5:
        return f"{value:.3g} ± {error:.1g}"
    if error < 1e-5 * value:
        return f"{value:.4g} ± 0"
    digits = max(0, -math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _factor(log: float) -> str:
    """The exponential of a logarithm that may be too large for one."""
    return f"{math.exp(log):.3g}" if not abs(log) > 100 or log == -math.inf else f"10^{log / math.log(10):.0f}"
