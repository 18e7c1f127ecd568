"""Trajectory length: how long a curve in input space is after each layer (Raghu section 2.3, Price-Tanner 4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from epoch0.arguments import Seed, Size, checked
from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure.pieces import Array, Pieces, ensemble_pieces, grid, lengths_and_growth, mean_known, module_pieces
from epoch0.networks.dense import Ensemble
from epoch0.results import Result, aligned, finite
from epoch0.tracing.call import Forward

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

    The pair (z, dz/dt) is carried at equally spaced t with one random offset a network, and the norms are averaged:
    unbiased, and exact to rounding in float32.

    It is measured as a fixed function of one input: dropout is off, and batch norm uses its running statistics
    unless ``batch_norm="train"`` asks for those of the sampled points, which are then held fixed. The model comes back
    unchanged to the bit.

    Args:
        model: one module, an ensemble, or a list of modules of one architecture.
        curve: a curve whose points have the shape of one input.
        forward: ``forward(model, points) -> outputs``, for a model that is called in another way, such as ``lambda
            model, points: model(inputs_embeds=points)``.
        layers: names of modules or nonlinearities, taken in order of execution; default every elementwise
            nonlinearity.
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
        found, shapes = list[Pieces](), set[tuple[torch.Size, ...]]()
        for i, net in enumerate(models):
            shapes.add(tuple(p.shape for p in net.parameters()))
            found.append(module_pieces(net, curve, grid(points, seed, i), layers, batch_norm, forward))
            if len(shapes) > 1 or found[i].layers != found[0].layers:
                raise InputError(f"model[{i}] has other layers than model[0]; give modules of one architecture.")
        pieces = Pieces(found[0].layers, np.concatenate([one.norms for one in found]), found[0].dtype)
    bad = ~np.isfinite(pieces.norms).all(axis=(0, 1))
    if bad.any():
        where = ("input", *pieces.layers)[int(np.argmax(bad))]
        instead = "measure fewer layers" if pieces.dtype == torch.float64 else "measure model.double()"
        raise InputError(f"the length overflows at layer '{where}' in {pieces.dtype}; {instead}.")
    return TrajectoryLength(pieces.layers, *lengths_and_growth(pieces), points)
