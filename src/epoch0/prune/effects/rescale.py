"""Bring a pruned model back to the edge of chaos by rescaling what is left (Hayou et al. 2021, 2.3 and Algorithm 1).

Pruning takes variance away: a layer that keeps sum_j W_ij^2 delta_ij < sigma_w^2 of each row is in the ordered phase.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from epoch0.errors import InputError, suggest
from epoch0.initialization.initialize import gaussian_input, write_parameters
from epoch0.initialization.result import left_alone
from epoch0.prune.effects.masked_layers import MaskedLayer, masked_sites, measured_factors, no_scale
from epoch0.results import aligned
from epoch0.seeds import generator
from epoch0.theory.mean_field import chi, edge_of_chaos
from epoch0.tracing.call import Forward
from epoch0.tracing.guard import check_model
from epoch0.tracing.layers import layers
from epoch0.tracing.tape import Tape, tape

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class RescaledLayer:
    """What one masked weight was multiplied by.

    Attributes:
        name: its parameter, by the name it had before it was masked.
        kind: ``"linear"`` or ``"convolution"``.
        activation: what is applied to its output next; ``"none"`` if nothing is.
        density: fraction of the weights that is kept.
        rows: units, or output channels of a convolution.
        empty_rows: those without a kept weight; they stay zero.
        target: the weight_std of an unpruned layer that it now stands for.
        weight_std_before: root of the mean over rows of the sum of squared kept weights, as it came.
        weight_std: the same now.
        factor: what the kept weights were multiplied by; with ``method="row"`` the median over rows that keep any.
        smallest: the smallest factor of a row.
        largest: the largest.
        note: in words.
    """

    name: str
    kind: str
    activation: str
    density: float
    rows: int
    empty_rows: int
    target: float
    weight_std_before: float
    weight_std: float
    factor: float
    smallest: float
    largest: float
    note: str


@dataclass(frozen=True)
class Rescaling:
    """What :func:`epoch0.prune.effects.rescale.rescale` changed, and what it left alone.

    Attributes:
        layers: one row for each masked weight that was rescaled, in order of execution.
        untouched: other weights, each with the reason.
        method: ``"layer"``, ``"row"`` or ``"measured"``.
        notes: what a reader must know.
    """

    layers: tuple[RescaledLayer, ...]
    untouched: Mapping[str, str]
    method: str
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What was done, in one line."""
        way = {"layer": "one factor a layer", "row": "one factor a row", "measured": "one factor a layer, measured"}
        empty = sum(layer.empty_rows for layer in self.layers)
        rows = sum(layer.rows for layer in self.layers)
        weights = f"{len(self.layers)} masked weight{'s' if len(self.layers) != 1 else ''}"
        return f"{weights} rescaled, {way[self.method]}; {empty} of {rows} rows keep nothing"

    def __str__(self) -> str:
        """The table, then what was left alone."""
        lines = [self.summary]
        lines += aligned([_HEAD, *(_cells(layer) for layer in self.layers)])
        return "\n".join([*lines, *left_alone(self.untouched), *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dicts."""
        found = asdict(self)
        return {**found, "layers": list(found["layers"]), "notes": list(self.notes)}

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a masked weight, with the attributes of :class:`RescaledLayer` as columns."""
        import pandas

        columns = list(RescaledLayer.__dataclass_fields__)
        return pandas.DataFrame([asdict(layer) for layer in self.layers], columns=columns)


_HEAD = ("weights", "activation", "density", "empty rows", "weight std", "now", "target", "factor", "note")


def _cells(layer: RescaledLayer) -> tuple[str, ...]:
    same = layer.smallest == layer.largest
    spread = "" if same else f" ({layer.smallest:.3g} to {layer.largest:.3g})"
    return (
        layer.name,
        layer.activation,
        f"{layer.density:.3g}",
        f"{layer.empty_rows} of {layer.rows}",
        f"{layer.weight_std_before:.4g}",
        f"{layer.weight_std:.4g}",
        f"{layer.target:.4g}",
        f"{layer.factor:.4g}{spread}",
        layer.note,
    )


WAYS = ("layer", "row", "measured")


def rescale(
    model: nn.Module,
    method: str = "layer",
    *,
    x: Any = None,
    forward: Forward | None = None,
    weight_std: float | None = None,
    seed: int = 0,
) -> Rescaling:
    """Multiply the kept weights of a pruned model, so that each layer has the variance of an unpruned one.

    >>> net = epoch0.networks.mlp([100, *[300] * 20, 10], "tanh", weights=epoch0.Gaussian(1.0))
    >>> _ = torch.nn.utils.prune.random_unstructured(net[2], "weight", 0.9)  # a mask of shape (300, 300)
    >>> rescale(net, x=torch.randn(64, 100)).layers[0].factor.__round__(1)   # about 1/sqrt(0.1)
    3.2

    With sigma_w the weight_std at which a dense layer is on the edge of chaos, the factors rho_i satisfy
    ``sum_j (rho_i W_ij)^2 delta_ij = sigma_w^2``. (Algorithm 1 as printed asks for 1 in place of sigma_w^2: a ReLU
    network has chi = 1/2 then.) The sums go over input channels and kernel of a convolution.

    ``"layer"``: one factor, so that this holds in the mean over all rows, the empty ones included. Right for masks that
    know nothing of the signals (random, magnitude). ``"row"``: one factor a row; what empty rows would have contributed
    is missing. ``"measured"``: one factor, so that on the batch the pre-activations of each layer have the mean square
    that mean-field theory gives a dense one behind the layer before; it counts that the kept weights sit at particular
    inputs and units, as those of SNIP do. With SNIP's masks at 80 % a ReLU network of 50 layers has, from the last
    layer back to the first, gradients that grow 4e12-fold by layer, 2e6-fold by row, and to 0.3 by measuring.

    Masks are found: a parametrization, ``torch.nn.utils.prune``, or zeros in the weights. Parameters change in place,
    those behind a mask with the rest; the masks, modes, gradients, hooks and random states stay.

    Args:
        model: any pruned module.
        method: ``"layer"``, ``"row"`` or ``"measured"``.
        x: a batch, as the model is called with it (see :func:`epoch0.gain`); None: Gaussian of unit variance.
            ``"measured"`` should have real inputs.
        forward: ``forward(model, batch) -> outputs``, for a model that is called in another way.
        weight_std: sigma_w of all layers; None: the edge of chaos of the activation that follows a layer, for biases
            as large as its own; 1 where no activation follows.
        seed: of the Gaussian input.

    Returns:
        The factors, one row a layer.

    Raises:
        InputError: if an argument cannot be used, nothing is masked, an activation has no edge of chaos for these
            biases, or a layer has no scale. Nothing was changed then.

    Source: Hayou et al. 2021, equation 7, Proposition 1, Algorithm 1; THEORY section 4.
    """
    _check(method, weight_std)
    generator(seed)
    check_model(model)
    remarks = []
    if x is None:
        x = gaussian_input(model, seed)
        remarks.append(f"no input was given: Gaussian numbers of unit variance, shape {tuple(x.shape)}")
    with _plain_attention(), tape(model, x, forward=forward) as record:
        found, untouched, follows = masked_sites(record, seed)
        if not found:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(untouched.items())[:5])
            raise InputError(f"no masked weight can be rescaled{': ' + reasons if reasons else ''}. Prune first.")
        targets = {each.name: _target(each, record, weight_std) for each in found}
        sums = {each.name: each.row_sums() for each in found}
        if method == "measured":
            factors = measured_factors(record, found, follows, targets)
        else:
            factors = {each.name: _factors(each, sums[each.name], targets[each.name], method) for each in found}
        values, rows = {}, []
        for each in found:
            factor = factors[each.name]
            # in the parameter's own orientation: the view shares its memory
            each.site.view.mul_(each.per_row(factor).to(each.site.view.dtype))
            values[each.site.name] = each.site.parameter.detach().clone()
            if not bool(values[each.site.name].isfinite().all()):
                raise InputError(f"'{each.name}' would leave the range of {each.site.view.dtype}. Nothing was changed.")
            rows.append(_row(each, targets[each.name], sums[each.name], factor))
        if any(layer.kind == "residual block" for layer in layers(record)):
            remarks.append(
                "residual networks stay on the edge of chaos when they are pruned (Proposition 3): "
                "they train without rescaling too"
            )
        bare_model = record.model
    write_parameters(bare_model, values)
    return Rescaling(tuple(rows), untouched, method, tuple(remarks))


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Let a transformer layer compute the same with and without gradients: it has a short cut for those without."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _check(method: str, weight_std: float | None) -> None:
    if method not in WAYS:
        raise InputError(f"method={method!r} is not known; use 'layer', 'row' or 'measured'.{suggest(method, WAYS)}")
    if weight_std is not None and (isinstance(weight_std, bool) or not (math.isfinite(weight_std) and weight_std > 0)):
        raise InputError(f"weight_std={weight_std!r} is no scale; it must be finite and > 0.")


def _target(each: MaskedLayer, record: Tape, weight_std: float | None) -> float:
    """The weight_std at which a dense layer in its place is on the edge of chaos."""
    if weight_std is not None:
        return weight_std
    activation = each.follow.activation
    if activation is None:
        return 1.0
    if activation.homogeneous:
        return 1 / math.sqrt(float(chi(activation, 1.0, 1.0)))
    bias = each.site.bias
    std = float(record.model.get_parameter(bias).detach().double().square().mean().sqrt()) if bias else 0.0
    try:
        return float(edge_of_chaos(activation, bias_std=std).weight_std)
    except InputError as problem:
        raise InputError(
            f"'{each.name}' with biases of {std:.4g}: {problem} Give weight_std=..., or use "
            "initialize(model, weights='keep'), which asks for a gain of 1 at the signals that arrive."
        ) from problem


def _factors(each: MaskedLayer, sums: Tensor, target: float, method: str) -> Tensor:
    """One factor a row."""
    if method == "layer":
        mean = float(sums.mean())
        if not mean > 0:
            raise no_scale(each)
        return torch.full_like(sums, target / math.sqrt(mean))
    return torch.where(sums > 0, target / sums.sqrt(), torch.ones_like(sums))


def _row(each: MaskedLayer, target: float, before: Tensor, factors: Tensor) -> RescaledLayer:
    site, alive = each.site, each.kept_of_rows() > 0
    used, words = factors[alive], []
    after = float((before * factors.square()).mean().sqrt())
    if len(each.uses) > 1:
        words.append(f"used {len(each.uses)} times; set for the first")
    if each.follow.no_law:
        words.append(f"{each.follow.no_law} behind it is not counted")
    activation = each.follow.activation
    return RescaledLayer(
        name=each.name,
        kind=site.op.kind,
        activation="none" if activation is None else activation.name,
        density=site.density,
        rows=len(before),
        empty_rows=int((~alive).sum()),
        target=target,
        weight_std_before=float(before.mean().sqrt()),
        weight_std=after,
        factor=float(used.median()),
        smallest=float(used.min()),
        largest=float(used.max()),
        note="; ".join(words),
    )
