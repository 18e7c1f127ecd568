"""Bring a pruned model back to the edge of chaos by rescaling what is left (Hayou et al. 2021, 2.3 and Algorithm 1).

Pruning takes variance away: a layer that keeps sum_j W_ij^2 delta_ij < sigma_w^2 of each row is in the ordered phase.

A measured factor gives a layer's pre-activations the variance of a dense one (after Mishkin & Matas 2016): by theory
sigma_w^2 E phi(sqrt(q) Z)^2, q the variance measured one layer before, as units without kept weights would bias a mean.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.arguments import Seed, checked
from epoch0.errors import InputError
from epoch0.initialization.initialize import gaussian_input, write_parameters
from epoch0.initialization.result import left_alone
from epoch0.initialization.sites import Follow, Follower, Site, find_sites
from epoch0.prune.masks.places import plain_name
from epoch0.results import Result, aligned, counted
from epoch0.theory.mean_field import chi, edge_of_chaos
from epoch0.theory.mean_field.moments import moments_of
from epoch0.tracing.call import Forward
from epoch0.tracing.guard import check_model
from epoch0.tracing.tape import Tape, tape


@dataclass(frozen=True)
class RescaledLayer:
    """What one masked weight was multiplied by."""

    name: str  #: its parameter, by the name it had before it was masked
    kind: str  #: ``"linear"`` or ``"convolution"``
    activation: str  #: what is applied to its output next; ``"none"`` if nothing is
    density: float  #: fraction of the weights that is kept
    rows: int  #: units, or output channels of a convolution
    empty_rows: int  #: those without a kept weight; they stay zero
    target: float  #: the weight_std of an unpruned layer that it now stands for
    weight_std_before: float  #: root of the mean over rows of the sum of squared kept weights, as it came
    weight_std: float  #: the same now
    factor: float  #: what the kept weights were multiplied by; with ``method="row"`` the median over rows that keep any
    smallest: float  #: the smallest factor of a row
    largest: float  #: the largest
    note: str  #: in words


@dataclass(frozen=True)
class Rescaling(Result):
    """What :func:`epoch0.prune.effects.rescale.rescale` changed, and what it left alone."""

    layers: tuple[RescaledLayer, ...]  #: one row for each masked weight that was rescaled, in order of execution
    untouched: Mapping[str, str]  #: other weights, each with the reason
    method: str  #: ``"layer"``, ``"row"`` or ``"measured"``
    notes: tuple[str, ...]  #: remarks for the reader

    @property
    def summary(self) -> str:
        """What was done, in one line."""
        way = {"layer": "one factor a layer", "row": "one factor a row", "measured": "one factor a layer, measured"}
        empty, rows = sum(layer.empty_rows for layer in self.layers), sum(layer.rows for layer in self.layers)
        weights = counted(len(self.layers), "masked weight")
        return f"{weights} rescaled, {way[self.method]}; {empty} of {rows} rows keep nothing"

    def __str__(self) -> str:
        lines = aligned([_HEAD, *map(_cells, self.layers)])
        return "\n".join([self.summary, *lines, *left_alone(self.untouched), *self.notes])

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layers": self.rows(), "notes": list(self.notes)}


_HEAD = ("weights", "activation", "density", "empty rows", "weight std", "now", "target", "factor", "note")


def _cells(layer: RescaledLayer) -> tuple[str, ...]:
    spread = "" if layer.smallest == layer.largest else f" ({layer.smallest:.3g} to {layer.largest:.3g})"
    stds = (f"{std:.4g}" for std in (layer.weight_std_before, layer.weight_std, layer.target))
    kept = f"{layer.density:.3g}", f"{layer.empty_rows} of {layer.rows}"
    return (layer.name, layer.activation, *kept, *stds, f"{layer.factor:.4g}{spread}", layer.note)


@dataclass(eq=False)
class MaskedLayer:
    """One masked weight."""

    name: str  # in the model before it was masked
    site: Site  # its operation and its parameter; ``site.mask`` is never None
    follow: Follow  # what comes after it
    uses: list[Site]  # all operations that use it, the first included
    target: float = 1.0  # the weight_std at which a dense layer in its place is on the edge of chaos


def by_row(site: Site, values: Tensor) -> Tensor:
    """Sums of numbers, one a weight, over the weights into each unit."""
    units = site.by_unit(values)
    return units.sum(tuple(range(2, units.dim()))).flatten()


def masked_sites(record: Tape, seed: int) -> tuple[list[MaskedLayer], dict[str, str], list[Follow]]:
    """Every masked weight that a weighted operation uses, in order, why each other is left alone, and all activations.

    Masked is what is seen through a mask, and what has entries that are zero, as a baked mask leaves them.
    """
    sites, untouched = find_sites(record, seed)
    found, follower = dict[str, MaskedLayer](), Follower(record)
    follows = [follower.follow(op.outputs[0]) for op in record.ops if op.kind and record.nodes[op.outputs[0]].depends]
    for site in sites:
        if site.name in found:
            found[site.name].uses.append(site)
            continue
        kept = site.original != 0 if site.direct else site.mask
        kept = torch.ones_like(site.view, dtype=torch.bool) if kept is None else kept
        follow = follower.follow(site.op.outputs[0])
        if not bool(kept.any()):
            fields = "all of it is zero" if site.direct else "its mask keeps nothing"
            untouched[site.name] = f"{fields}, and no factor changes that"
        elif site.direct and bool(kept.all()):
            untouched[site.name] = "it is not masked"
        elif follow.norm:
            untouched[site.name] = "the norm after it undoes any scale"
        else:
            site.mask, site.bias = kept, site.bias or follow.bias
            found[site.name] = MaskedLayer(plain_name(site.name), site, follow, [site])
    reasons = {plain_name(name): reason for name, reason in untouched.items()}
    return list(found.values()), reasons, [follow for follow in follows if follow.activation is not None]


def no_scale(each: MaskedLayer) -> InputError:
    text = f"'{each.name}' passes nothing on, or its signals overflow, so no factor gives it a variance"
    return InputError(f"{text}: keep more weights (keep(..., floor=...)), or take the layer out. Nothing was changed.")


class _Pass:
    """One pass in which each masked layer's output is scaled where it arises, so that the next gets its final input."""

    def __init__(self, record: Tape, found: list[MaskedLayer], follows: list[Follow]) -> None:
        self.record = record
        self.at = {site.op.outputs[0]: (each, site) for each in found for site in each.uses}
        self.inputs = {site.op.inputs[0] for _, site in self.at.values()}
        self.before = {follow.biased: follow for follow in follows if not follow.norm}  # a norm sets the size anew
        self.made_by = {node: op for op in record.ops for node in op.outputs}
        self.factors: dict[str, float] = {}
        self.kept: dict[int, Tensor] = {}
        self.expected: dict[int, float] = {}  # by node behind an activation: E phi^2 for the variances before it
        self.dense: dict[int, float] = {}  # likewise: that over the mean square that is there

    def run(self) -> dict[str, float]:
        nodes = {*self.at, *self.inputs, *self.before, *(follow.end for follow in self.before.values())}
        with torch.no_grad():
            self.record.run(self.record.x, {node: partial(self._visit, node) for node in nodes})
        return self.factors

    def _visit(self, node: int, tensor: Tensor) -> Tensor | None:
        changed = self._scaled(*self.at[node], tensor) if node in self.at else None
        now = tensor if changed is None else changed
        if node in self.before:
            follow = self.before[node]
            assert follow.activation is not None
            variances = now.double().square().reshape(len(now), -1).mean(1).cpu().numpy()
            self.expected[follow.end] = float(np.mean(moments_of(follow.activation).square(variances)))
        if node in self.expected:
            found = float(now.double().square().mean())
            self.dense[node] = self.expected[node] / found if found > 0 else 1.0
        if node in self.inputs:
            self.kept[node] = now.clone()  # a later operation may work in place
        return changed

    def _scaled(self, each: MaskedLayer, site: Site, output: Tensor) -> Tensor:
        bias = torch.zeros_like(output[:1])
        if site.bias and each.follow.biased == each.site.op.outputs[0]:
            bias = site.beside(self.record.model.get_parameter(site.bias).detach(), output.dim())
        bare = output - bias
        if each.name not in self.factors:
            node = site.op.inputs[0]
            dense = replace(site, mask=None)  # what it would give, on average over its weights
            arriving = float(dense.through(self.kept[node].double().square()).mean())
            wanted = each.target**2 * arriving * self._over_dense(node)
            measured = float(bare.double().square().mean())
            if not (measured > 0 and math.isfinite(measured) and wanted > 0 and math.isfinite(wanted)):
                raise no_scale(each)
            self.factors[each.name] = math.sqrt(wanted / measured)
        return bare * self.factors[each.name] + bias

    def _over_dense(self, node: int) -> float:
        """Mean square that a dense network would have here over the one that is there, if one activation decides it."""
        while node not in self.dense:
            if (op := self.made_by.get(node)) is None or op.kind or len(op.inputs) != 1:
                return 1.0
            node = op.inputs[0]
        return self.dense[node]


WAYS = ("layer", "row", "measured")


@checked
def rescale(
    model: nn.Module,
    method: Annotated[str, tuple(WAYS)] = "measured",
    *,
    x: Any = None,
    forward: Forward | None = None,
    seed: Seed = 0,
) -> Rescaling:
    """Multiply the kept weights of a pruned model, so that each layer has the variance of an unpruned one.

    >>> net = epoch0.networks.mlp([100, *[300] * 20, 10], "tanh", weights=epoch0.Gaussian(1.0))
    >>> _ = torch.nn.utils.prune.random_unstructured(net[2], "weight", 0.9)  # a mask of shape (300, 300)
    >>> rescale(net, "layer", x=torch.randn(64, 100)).layers[0].factor.__round__(1)    # about 1/sqrt(0.1)
    3.2

    With sigma_w the weight_std at which a dense layer is on the edge of chaos for the activation that follows it and
    biases as large as its own (1 where no activation follows), the factors rho_i satisfy
    ``sum_j (rho_i W_ij)^2 delta_ij = sigma_w^2``. (Algorithm 1 as printed asks for 1 in place of sigma_w^2: a ReLU
    network has chi = 1/2 then.) The sums go over input channels and kernel of a convolution.

    ``"layer"``: one factor, so that this holds in the mean over all rows, the empty ones included. Right for masks that
    ignore the signals (random, magnitude). ``"row"``: one factor a row; what empty rows would have contributed
    is missing. ``"measured"``: one factor, so that on the batch the pre-activations of each layer have the mean square
    that mean-field theory gives a dense one behind the layer before; it counts that the kept weights sit at particular
    inputs and units, as those of SNIP do, for which Proposition 1 fails (docs/pruning). A note, which is a warning too,
    says where signals grow all the same.

    Masks are found: a parametrization, ``torch.nn.utils.prune``, or zeros in the weights. Parameters change in place,
    those behind a mask with the rest; the masks, modes, gradients, hooks and random states stay.

    Args:
        x: a batch, as the model is called with it (see :func:`epoch0.gain`); None: Gaussian of unit variance.
            ``"measured"`` should have real inputs.
        forward: ``forward(model, batch) -> outputs``, for a model that is called in another way.
        seed: of the Gaussian input.

    Raises:
        InputError: if an argument cannot be used, nothing is masked, an activation has no edge of chaos for these
            biases, or a layer has no scale. Nothing was changed then.

    Source: Hayou et al. 2021, equation 7, Proposition 1, Algorithm 1; THEORY section 4.
    """
    found = rescaled(model, method, x, forward, seed)
    for note in (note for note in found.notes if "Proposition 1" in note):
        warnings.warn(note, stacklevel=3)
    return found


def rescaled(model: nn.Module, method: str, x: Any = None, forward: Forward | None = None, seed: int = 0) -> Rescaling:
    """The same without a warning, for those who read the notes."""
    check_model(model)
    x, remarks = (x, []) if x is not None else gaussian_input(model, seed)
    with tape(model, x, forward=forward) as record:
        found, untouched, follows = masked_sites(record, seed)
        if not found:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(untouched.items())[:5])
            raise InputError(f"no masked weight can be rescaled{': ' + reasons if reasons else ''}. Prune first.")
        for each in found:
            each.target = _target(each, record)
        measured = _Pass(record, found, follows).run() if method == "measured" else {}
        values, rows = {}, []
        for each in found:
            sums = by_row(each.site, each.site.used().double().square())
            factors = torch.full_like(sums, measured[each.name]) if measured else _factors(each, sums, method)
            units = each.site.by_unit(each.site.view)  # shares the memory of the parameter
            units.mul_(factors.reshape(*units.shape[:2], *[1] * (units.dim() - 2)).to(units.dtype))
            values[each.site.name] = each.site.parameter.detach().clone()
            rows.append(_row(each, sums, factors))
        if method != "measured":
            remarks += _off_the_edge(record, found, follows, method)
    write_parameters(record.model, values)
    return Rescaling(tuple(rows), untouched, method, tuple(remarks))


def _off_the_edge(record: Tape, found: list[MaskedLayer], follows: list[Follow], method: str) -> list[str]:
    """A note if signals grow on this batch all the same: by a fifth a layer, and tenfold over all."""
    try:
        left = _Pass(record, found, follows).run()
    except InputError:  # a layer that passes nothing on
        return []
    growth, count = -2 * sum(map(math.log, left.values())), len(left)
    if growth < max(math.log(10), count * math.log(1.2)):
        return []
    text = f"on this batch the squared signal grows {math.exp(growth / count):.2f}-fold a layer, over {count}: one "
    text += f"factor a {method} takes masks for independent of the signals (Proposition 1), which those of gradient "
    return [f'{text}scores, as of SNIP, are not behind a ReLU; method="measured" counts that']


def _target(each: MaskedLayer, record: Tape) -> float:
    """The weight_std at which a dense layer in its place is on the edge of chaos."""
    if (activation := each.follow.activation) is None:
        return 1.0
    if activation.homogeneous:
        return 1 / math.sqrt(float(chi(activation, 1.0, 1.0)))
    bias = each.site.bias
    std = float(record.model.get_parameter(bias).detach().double().square().mean().sqrt()) if bias else 0.0
    try:
        return float(edge_of_chaos(activation, bias_std=std).weight_std)
    except InputError as problem:
        raise InputError(f"'{each.name}' with biases of {std:.4g}: {problem} Use weights='keep'.") from problem


def _factors(each: MaskedLayer, sums: Tensor, method: str) -> Tensor:
    if method == "row":
        return torch.where(sums > 0, each.target / sums.sqrt(), 1.0)
    if not (mean := float(sums.mean())) > 0:
        raise no_scale(each)
    return torch.full_like(sums, each.target / math.sqrt(mean))


def _row(each: MaskedLayer, before: Tensor, factors: Tensor) -> RescaledLayer:
    site, words = each.site, []
    assert site.mask is not None
    alive = by_row(site, site.mask.double()) > 0
    used = factors[alive]
    if len(each.uses) > 1:
        words.append(f"used {len(each.uses)} times; set for the first")
    if each.follow.no_law:
        words.append(f"{each.follow.no_law} behind it is not counted")
    activation = each.follow.activation
    reason = each.name, site.op.kind, "none" if activation is None else activation.name, site.density
    stds = each.target, float(before.mean().sqrt()), float((before * factors.square()).mean().sqrt())
    spread = float(used.median()), float(used.min()), float(used.max())
    return RescaledLayer(*reason, len(before), int((~alive).sum()), *stds, *spread, "; ".join(words))
