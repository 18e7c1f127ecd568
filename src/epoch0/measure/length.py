"""Trajectory length: how long a curve in input space is after each layer (Raghu section 2.3, Price-Tanner 4)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import nn

from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure._dense_ensemble import ensemble_pieces, grid_offset
from epoch0.measure._length_result import TrajectoryLength
from epoch0.measure._module_pieces import in_dtype, module_pieces
from epoch0.measure._pieces import Pieces, lengths_and_growth
from epoch0.measure._stacked_pieces import check_one_architecture, list_pieces
from epoch0.networks.ensemble import Ensemble
from epoch0.tracing.call import Forward

Method = Literal["tangents", "chords"]


def trajectory_length(
    model: nn.Module | Ensemble | Sequence[nn.Module],
    curve: Curve,
    *,
    forward: Forward | None = None,
    layers: Sequence[str] | None = None,
    method: Method = "tangents",
    points: int | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    batch_norm: Literal["train", "eval"] = "eval",
) -> TrajectoryLength:
    """Length of a curve at the input and after each layer, and its growth factor from layer to layer.

    >>> net = e0.networks.mlp([784, 256, 256, 10], seed=0)
    >>> length = e0.trajectory_length(net, e0.Line(x0, x1))     # x0, x1 of shape (784,)
    >>> length.lengths.shape, length.growth.shape               # input and two ReLU layers
    ((3,), (2,))
    >>> nets = e0.networks.ensemble(100, [784, 256, 256, 10], seed=0)
    >>> e0.trajectory_length(nets, e0.Line(x0, x1)).growth_errors.shape         # over networks
    (2,)

    ``"tangents"`` carries (z, dz/dt) at equally spaced t with one random offset a network and averages the norms:
    unbiased, and exact to rounding in float32. ``"chords"`` adds up distances between neighbouring points: it
    understates every length, more with depth, and in float32 overstates it again when the chords are too fine; it is
    there as the independent check and for operations without a forward derivative.

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
        method: ``"tangents"`` or ``"chords"``.
        points: tangents (default 64, which adds 0.1 % to the variance across networks; 16 add 1.5 %) or chords
            (default 10,000).
        seed: names the random offsets; a network of an ensemble keeps its own whatever slice it is measured in.
        dtype: measure in this dtype instead of the model's own; norms are always summed in float64.
        batch_norm: ``"eval"`` or ``"train"``.

    Returns:
        A :class:`TrajectoryLength` with lengths (L + 1), growth (L) and their standard errors, over networks or, for
        one module, over t.

    Raises:
        InputError: NaN weights, a shape that does not fit, an unknown layer, a model without a nonlinearity (name
            ``layers`` then), modules of different architecture, or lengths that overflow the dtype.

    Source: Raghu et al. 2017, section 2.3; Price & Tanner, section 4.
    """
    _check(curve, layers, method, dtype)
    if points is None:
        points = 10_000 if method == "chords" else 64
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise InputError(f"points={points!r}: at least one {method[:-1]} is needed.")
    if isinstance(model, Ensemble) and method == "tangents":
        pieces = ensemble_pieces(model, curve, layers, points, seed, dtype)
    else:
        if isinstance(model, nn.Module):
            model = [model]
        elif not isinstance(model, Ensemble):
            check_one_architecture(model)
        if method == "tangents":
            modules = [in_dtype(module, dtype) for module in model]
            offsets = [grid_offset(seed, index) for index in range(len(modules))]
            pieces = list_pieces(modules, curve, layers, points, offsets, batch_norm, forward)
        else:
            pieces = _chord_pieces(model, curve, layers, points, dtype, batch_norm, forward)
    _check_overflow(pieces)
    return TrajectoryLength(pieces.layers, *lengths_and_growth(pieces), method, points)


def _chord_pieces(
    networks: Sequence[nn.Module] | Ensemble,
    curve: Curve,
    layers: Sequence[str] | None,
    points: int,
    dtype: torch.dtype | None,
    batch_norm: Literal["train", "eval"],
    forward: Forward | None,
) -> Pieces:
    """Chords through one network after another; of an ensemble only one exists at a time."""
    found = [
        module_pieces(in_dtype(networks[index], dtype), curve, layers, "chords", points, 0.0, batch_norm, forward)
        for index in range(len(networks))
    ]
    coarse = np.concatenate([one.coarse for one in found if one.coarse is not None])
    return Pieces(found[0].layers, np.concatenate([one.norms for one in found]), coarse, found[0].dtype)


def _check(curve: Curve, layers: Sequence[str] | None, method: str, dtype: torch.dtype | None) -> None:
    if not isinstance(curve, Curve):
        raise InputError(f"curve is a {type(curve).__name__}; give one such as epoch0.Line(x0, x1).")
    if method not in ("tangents", "chords"):
        raise InputError(f"method={method!r} is not known; use 'tangents' or 'chords'.")
    if isinstance(layers, str) or (layers is not None and not layers):
        raise InputError(f"layers={layers!r}; give a list of layer names, or leave it out for all nonlinearities.")
    if dtype not in (None, torch.float32, torch.float64):
        raise InputError(f"dtype {dtype} is not supported; use torch.float32 or torch.float64.")


def _check_overflow(pieces: Pieces) -> None:
    bad = ~np.isfinite(pieces.norms).all(axis=(0, 1))
    if bad.any():
        where = ("input", *pieces.layers)[int(np.argmax(bad))]
        raise InputError(
            f"the length overflows at layer '{where}' in {pieces.dtype}"
            + ("; measure fewer layers." if pieces.dtype == torch.float64 else "; measure with dtype=torch.float64.")
        )
