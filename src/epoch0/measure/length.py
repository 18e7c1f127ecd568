"""Trajectory length: how long a curve in input space is after each layer (Raghu section 2.3, Price-Tanner 4).

It comes from the norms of tangents of the curve, carried through any module or many dense networks at once.
"""

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.arguments import Seed, Size, checked, refuse_lazy
from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.networks.dense import Ensemble
from epoch0.results import Result, aligned, finite
from epoch0.seeds import numpy_generator
from epoch0.theory.checks import Array
from epoch0.tracing.call import Forward
from epoch0.tracing.tape import Tape, tape

__all__ = ["TrajectoryLength", "trajectory_length"]  # public; the rest is for other packages


@dataclass(frozen=True, eq=False)
class Norms:
    """Norms of the tangents of the curve, network by network."""

    layers: tuple[str, ...]  # names of the L layers
    norms: Array  # |dz/dt|, shape (networks, points, L + 1); column 0 is the input
    dtype: torch.dtype  # what the norms were computed from


def row_norms(pieces: Sequence[Tensor]) -> Array:
    """Euclidean norm of each row of each tensor, summed in float64: shape (rows, tensors)."""
    columns = [torch.linalg.vector_norm(piece.flatten(1), dim=1, dtype=torch.float64) for piece in pieces]
    return np.asarray(torch.stack(columns, dim=1).cpu().numpy())


def mean_known(values: Array, axis: int) -> Array:
    """Means over the entries that are not NaN; NaN where there is none."""
    with warnings.catch_warnings(action="ignore"):
        return np.asarray(np.nanmean(values, axis=axis))


def grid_errors(values: Array) -> Array:
    """Standard errors of the column means of values at equally spaced t with one random offset; NaN entries left out.

    The pieces are a systematic sample: neighbours are similar, and the error of their mean is far below that of
    independent draws. Its variance has two parts: that of what second differences leave of the values (Wolter's
    estimator v5: right for unrelated neighbours, 4 times too large where the values jump), and that of a trend, since
    a grid of m points moved by a random offset moves the mean of a straight line that rises by r from end to end by
    r (u - 1/2) / m. So it is conservative: the error of a network with kinks is stated up to 4 times too large, that
    of a smooth closed curve far too large, where it is tiny.
    """
    errors = np.full(values.shape[1], math.nan)
    for column in range(values.shape[1]):
        if len(known := values[~np.isnan(values[:, column]), column]) >= 3:
            curvature, rise = known[:-2] - 2 * known[1:-1] + known[2:], (known[-1] - known[0]) / (len(known) - 1)
            errors[column] = math.sqrt(float((curvature**2).mean()) / 6 / len(known) + rise**2 / 12)
    return errors


def _standard_error(values: Array) -> Array:
    """Standard error of each column mean over the entries that are not NaN."""
    with warnings.catch_warnings(action="ignore"):
        return np.asarray(np.sqrt(np.nanvar(values, axis=0, ddof=1) / (~np.isnan(values)).sum(axis=0)))


def lengths_and_growth(pieces: Norms) -> tuple[Array, Array, Array, Array]:
    """Lengths (networks, L + 1), growth (networks, L), and the errors of the means of both."""
    floor = 1e4 * torch.finfo(pieces.dtype).tiny  # norms up to it, 1e-34 in float32, have lost digits to underflow
    before, after, lengths = pieces.norms[..., :-1], pieces.norms[..., 1:], pieces.norms.mean(axis=1)
    # of each piece |dz_l| / |dz_(l-1)|; NaN where nothing reached layer l
    ratios = np.asarray(np.divide(after, before, out=np.full_like(after, math.nan), where=before > floor))
    growth = mean_known(ratios, axis=1)
    if len(pieces.norms) > 1:
        return lengths, growth, _standard_error(lengths), _standard_error(growth)
    return lengths, growth, grid_errors(pieces.norms[0]), grid_errors(ratios[0])


def grid(points: int, seed: int, index: int) -> Tensor:
    """Equally spaced t, moved by a part of a step that is random for each network."""
    return (torch.arange(points, dtype=torch.float64) + float(numpy_generator(seed, index, 1).random())) / points


# numbers held at once (64 MB in float32): the chosen tensors of points that go through a model together; of dense
# networks weights, and points with tangents, of some
_BUDGET = 16_000_000
_AT_MOST = 1024  # more points at once than this are no faster


def module_pieces(
    module: nn.Module, curve: Curve, t: Tensor, layers: Sequence[str] | None, batch_norm: str, forward: Forward | None
) -> Norms:
    """The tangents of the curve at the input and each layer of one module."""
    with tape(module, curve.point(t[:2]), forward=forward, batch_norm=batch_norm) as record, torch.no_grad():
        names, nodes = places(record, layers)
        return Norms(names, tangent_norms(points_apart(record), nodes, curve, t)[None], record.x.dtype)


def tangent_norms(record: Tape, nodes: Sequence[int], curve: Curve, t: Tensor) -> Array:
    """|dz/dt| at these nodes, shape (points, nodes)."""
    if record.x.dtype == torch.float64 and curve.dtype != torch.float64:
        curve = curve.to(torch.float64)
    at_once = len(t)
    if not record.hold_statistics:  # as many points as fit the budget
        kept = sum(np.prod(record.nodes[node].shape) for node in nodes)
        widest = max(np.prod(node.shape) for node in record.nodes)
        at_once = max(2, min(_AT_MOST, int(_BUDGET * record.nodes[0].shape[0] / (2 * kept + 6 * widest))))
    moves = ((curve.point(chunk).to(record.x), curve.tangent(chunk).to(record.x)) for chunk in t.split(at_once))
    return np.concatenate([row_norms(record.tangents(nodes, x, dx)) for x, dx in moves])


def ensemble_pieces(ensemble: Ensemble, curve: Curve, points: int, layers: Sequence[str] | None, seed: int) -> Norms:
    """Tangents through each network, shape (networks, points, L + 1).

    Which networks share a batched product depends on their number, not on what is measured; a network alone and in
    company differ by no more than the rounding of one product (in practice they agree to the bit). The general path
    gives the same numbers; for small networks it costs 20 times as much.
    """
    with tape(ensemble[0], curve.point(torch.zeros(2, dtype=torch.float64))) as record:
        names, _ = places(record, layers)
    kind = ensemble.spec.dtype
    if kind == torch.float64 and curve.dtype != torch.float64:
        curve = curve.to(torch.float64)
    size = max(1, min(len(ensemble), _BUDGET // (ensemble.spec.parameters + 4 * points * max(ensemble.spec.sizes))))
    skeleton, found = ensemble.skeleton(), []
    # one set of buffers for all batches: fresh memory for every network costs as much as a small product
    memory = ensemble.stacked(0, size)
    with torch.no_grad():
        for start in range(0, len(ensemble), size):
            stop = min(start + size, len(ensemble))
            state = memory if start == 0 else ensemble.stacked(start, stop, out=memory)
            t = torch.stack([grid(points, seed, index) for index in ensemble.indices[start:stop]])
            z, dz = (rule(t.reshape(-1)).to(kind).reshape(*t.shape, -1) for rule in (curve.point, curve.tangent))
            found.append(_walk(skeleton, state, z, dz, names))
    return Norms(names, np.concatenate(found), kind)


def _walk(skeleton: nn.Sequential, state: dict[str, Tensor], z: Tensor, dz: Tensor, wanted: Collection[str]) -> Array:
    """Norms of dz at the input and at the wanted modules: shape (networks, points, 1 + wanted)."""
    tangents, points = [dz], z.shape[1]
    both = torch.cat([z, dz], dim=1)
    for name, part in skeleton.named_children():
        if isinstance(part, nn.Linear):
            both = torch.bmm(both, state[f"{name}.weight"].mT)
            both[:, :points] += state[f"{name}.bias"][:, None]
        else:
            both = torch.cat(torch.func.jvp(part, (both[:, :points],), (both[:, points:],)), dim=1)
        if name in wanted:
            tangents.append(both[:, points:])
    return row_norms([tangent.flatten(0, 1) for tangent in tangents]).reshape(*z.shape[:2], -1)


def places(record: Tape, layers: Sequence[str] | None) -> tuple[tuple[str, ...], list[int]]:
    """Names of the layers in order of execution, and the nodes of the input and the layers."""
    taps = sorted({tap.name: tap for tap in record.taps(layers)}.values(), key=lambda tap: tap.node)
    if not taps:
        known = ", ".join(repr(name) for name in record.modules if name)
        why = "the model has no elementwise nonlinearity, so there is no default layer to measure"
        raise InputError(f"{why}; name some with layers=[...]: {known or 'it has no named modules either'}.")
    return tuple(tap.name for tap in taps), [0, *(tap.node for tap in taps)]


def points_apart(record: Tape) -> Tape:
    """The record with each point moving alone, if they meet in the statistics of a batch norm.

    With the derivative of the statistics all points would move at once.
    """
    norms = [part for part in record.model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    without = any(part.running_mean is None for part in norms)
    return replace(record, hold_statistics=record.has_batch_norm and (record.batch_norm == "train" or without))


_COLUMNS = ("layer", "length", "length_error", "growth", "growth_error", "status")


@dataclass(frozen=True, eq=False)
class TrajectoryLength(Result):
    """Length of a curve at the input and after each layer, and how it grew from one to the next.

    Length and growth are those of plain Euclidean norms, as in the papers. Growth is the mean over small pieces of the
    curve of ``|dz_l| / |dz_(l-1)|``; a piece that an earlier layer already mapped to a point has no ratio and is left
    out. So is one that has become too short for the dtype (1e-34 in float32, 2e-304 in float64).
    """

    layers: tuple[str, ...]  #: names of the L layers
    network_lengths: Array  #: shape (networks, L + 1); column 0 is the input curve
    network_growth: Array  #: shape (networks, L); NaN where every piece had vanished before
    #: standard errors of the lengths, shape (L + 1,), over networks; of one network over t (conservative, up to about 4
    #: times too large where the network has kinks)
    length_errors: Array
    growth_errors: Array  #: the same of the growth, shape (L,)
    points: int  #: tangents per network

    @property
    def networks(self) -> int:
        """Number of networks measured."""
        return len(self.network_lengths)

    @property
    def lengths(self) -> Array:
        """Mean length over the networks, shape (L + 1,); entry 0 is the input curve."""
        return np.asarray(self.network_lengths.mean(axis=0))

    @property
    def growth(self) -> Array:
        """Mean growth factor of each layer, shape (L,); NaN if nothing reached the layer."""
        return mean_known(self.network_growth, axis=0)

    @property
    def status(self) -> tuple[str, ...]:
        """One word a layer: grows, shrinks, keeps (1 is within two standard errors) or vanished."""
        size, growth = self.growth - 1, self.growth
        gone, same = (self.lengths[1:] == 0) | np.isnan(growth), np.abs(size) <= 2 * self.growth_errors
        return tuple(np.select([gone, same, size > 0], ["vanished", "keeps", "grows"], "shrinks").tolist())

    def rows(self) -> list[dict[str, Any]]:
        """One dict a row, the input first; a number that does not exist (growth of the input) is None."""
        growth, growth_errors = ([math.nan, *values] for values in (self.growth, self.growth_errors))
        plain = finite(np.column_stack([self.lengths, self.length_errors, growth, growth_errors]).tolist())
        every = zip(("input", *self.layers), plain, ("given", *self.status), strict=True)
        return [dict(zip(_COLUMNS, (layer, *row, word), strict=True)) for layer, row, word in every]

    def __str__(self) -> str:
        who = f"{self.networks} networks" if self.networks > 1 else "one network"
        over = f"one standard error over {'networks' if self.networks > 1 else 't'}"
        rows = [["layer", "length", "+-", "growth", "+-", "status"]]
        for layer, *numbers, word in (row.values() for row in self.rows()):
            forms = zip(numbers, (".6g", ".2g", ".4f", ".2g"), strict=True)
            rows.append([layer, *("" if value is None else format(value, form) for value, form in forms), word])
        title = f"Trajectory length, {who}, {self.points} tangents; +- is {over}"
        return "\n".join([title, *aligned(rows, slice(1, 5))])


@checked
def trajectory_length(
    model: nn.Module | Ensemble | Sequence[nn.Module],
    curve: Curve,
    *,
    forward: Forward | None = None,
    layers: Sequence[str] | None = None,
    points: Size = 64,
    seed: Seed = 0,
    batch_norm: Literal["train", "eval"] = "eval",
) -> TrajectoryLength:
    """Length of a curve at the input and after each layer, and its growth factor from layer to layer.

    >>> net = e0.networks.mlp([64, 256, 256, 10], seed=0)
    >>> length = e0.trajectory_length(net, e0.Line(x0, x1))     # x0, x1 of shape (64,)
    >>> length.lengths.shape, length.growth.shape               # input and two ReLU layers
    ((3,), (2,))
    >>> nets = e0.networks.ensemble(20, [64, 256, 256, 10], seed=0)
    >>> e0.trajectory_length(nets, e0.Line(x0, x1)).growth_errors.shape         # over networks
    (2,)

    The pair (z, dz/dt) is carried at equally spaced t with one random offset a network, and the norms are averaged.

    It is measured as a fixed function of one input: dropout is off, and batch norm uses its running statistics
    unless ``batch_norm="train"`` asks for those of the sampled points, held fixed. The model is restored to the bit.

    Args:
        model: one module, an ensemble, or a list of modules of one architecture.
        curve: a curve whose points have the shape of one input.
        forward: ``forward(model, points) -> outputs``, for a model that is called in another way, such as ``lambda
            model, points: model(inputs_embeds=points)``.
        layers: names of modules or nonlinearities, taken in order of execution; default: all nonlinearities.
        points: tangents; 64 add 0.1 % to the variance across networks, 16 add 1.5 %.
        seed: names the random offsets; a network of an ensemble keeps its own whatever slice it is measured in.
        batch_norm: ``"eval"`` or ``"train"``.

    Raises:
        InputError: NaN weights, a shape that does not fit, an unknown layer, a model without a nonlinearity (name
            ``layers`` then), modules of different architecture, or lengths that overflow the dtype.

    Source: Raghu et al. 2017, section 2.3; Price & Tanner, section 4.
    """
    if isinstance(layers, str) or (layers is not None and not layers):
        raise InputError(f"layers={layers!r}; give a list of layer names, or leave it out for all nonlinearities.")
    if isinstance(model, Ensemble):
        pieces = ensemble_pieces(model, curve, points, layers, seed)
    else:
        models = [model] if isinstance(model, nn.Module) else model
        if not len(models):
            raise InputError("model is an empty list; give at least one module.")
        found, shapes = list[Norms](), set[tuple[torch.Size, ...]]()
        for i, net in enumerate(models):
            refuse_lazy(net)
            shapes.add(tuple(p.shape for p in net.parameters()))
            found.append(module_pieces(net, curve, grid(points, seed, i), layers, batch_norm, forward))
            if len(shapes) > 1 or found[i].layers != found[0].layers:
                raise InputError(f"model[{i}] has other layers than model[0]; give modules of one architecture.")
        pieces = Norms(found[0].layers, np.concatenate([item.norms for item in found]), found[0].dtype)
    if (bad := ~np.isfinite(pieces.norms).all(axis=(0, 1))).any():
        where = ("input", *pieces.layers)[int(np.argmax(bad))]
        raise InputError(f"the length overflows at '{where}' in {pieces.dtype}; measure fewer, or model.double().")
    return TrajectoryLength(pieces.layers, *lengths_and_growth(pieces), points)
