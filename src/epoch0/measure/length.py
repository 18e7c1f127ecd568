"""Trajectory length: how long a curve in input space is after each layer (Raghu section 2.3, Price-Tanner section 4)."""

import copy
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp, stack_module_state, vmap

from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure._dense_ensemble import ensemble_norms
from epoch0.measure._guard import check_model, unchanged
from epoch0.measure._length_result import TrajectoryLength, grid_errors, piece_means
from epoch0.measure._tape import Tape, tape
from epoch0.networks.ensemble import Ensemble
from epoch0.seeds import numpy_generator

Method = Literal["tangents", "chords"]
Array = NDArray[np.float64]

# Points of a curve sent through the model at once: enough to fill a matrix product, few enough for the memory.
_AT_ONCE = 1024
# Networks of a list with at most this many parameters run as one batched program; measured as for ensembles.
_STACKED_UP_TO = 150_000


def trajectory_length(
    net: nn.Module | Ensemble | Sequence[nn.Module],
    curve: Curve,
    *,
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
    >>> e0.trajectory_length(nets, e0.Line(x0, x1)).growth_errors    # over networks

    ``"tangents"`` carries (z, dz/dt) at equally spaced t with one random offset a network and averages the norms:
    unbiased, and exact to rounding in float32. ``"chords"`` adds up distances between neighbouring points: it
    understates every length, more with depth, and in float32 overstates it again when the chords are too fine; it is
    there as the independent check and for operations without a forward derivative.

    The model is measured as a fixed function of one input: dropout is off, and batch norm uses its running statistics
    unless ``batch_norm="train"`` asks for those of the sampled points. It comes back unchanged to the bit.

    Args:
        net: one module, an ensemble, or a list of modules of one architecture.
        curve: a curve whose points have the shape of one input.
        layers: names of modules or nonlinearities; default the output of every elementwise nonlinearity in order.
        method: ``"tangents"`` or ``"chords"``.
        points: tangents (default 64 for one module, 16 each for several) or chords (default 10,000).
        seed: names the random offsets.
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
    several = isinstance(net, Ensemble) or not isinstance(net, nn.Module)
    if method not in ("tangents", "chords"):
        raise InputError(f"method={method!r} is not known; use 'tangents' or 'chords'.")
    if points is None:
        points = 10_000 if method == "chords" else (16 if several else 64)
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise InputError(f"points={points!r}: at least one {method[:-1]} is needed.")
    if isinstance(net, Ensemble) and method == "tangents":
        names, norms = ensemble_norms(net, curve, layers, points, seed, dtype)
    else:
        modules = [net] if isinstance(net, nn.Module) else list(net)
        if not modules:
            raise InputError("net is an empty list; give at least one module.")
        if dtype is not None:
            modules = [_in_dtype(module, dtype) for module in modules]
        sizes = {_architecture(module) for module in modules}
        if len(sizes) > 1:
            raise InputError(
                f"the {len(modules)} modules have {len(sizes)} different architectures; measure them one at a time."
            )
        if len(modules) > 1 and method == "tangents" and _parameters(modules[0]) <= _STACKED_UP_TO:
            names, norms = _stacked_norms(modules, curve, layers, points, seed, batch_norm)
        else:
            measured = [
                _norms(module, curve, layers, method, points, numpy_generator(seed, i, 1).random(), batch_norm)
                for i, module in enumerate(modules)
            ]
            names, norms = measured[0][0], np.stack([one for _, one in measured])
    _check_overflow(names, norms, dtype)
    lengths, growth = piece_means(norms)
    if method == "chords":
        lengths = lengths * points
    single = len(norms) == 1 and method == "tangents"
    errors = grid_errors(norms[0]) if single else np.zeros((2, len(names) + 1))
    return TrajectoryLength(names, lengths, growth, errors, method, points)


def _norms(
    module: nn.Module,
    curve: Curve,
    layers: Sequence[str] | None,
    method: Method,
    points: int,
    offset: float,
    batch_norm: Literal["train", "eval"],
) -> tuple[tuple[str, ...], Array]:
    """Norms of the pieces of the curve at the input and each layer, shape (points, L + 1), of one module."""
    grid = (torch.arange(points, dtype=torch.float64) + offset) / points
    if method == "chords":
        grid = torch.linspace(0, 1, points + 1, dtype=torch.float64)
    at_once = len(grid) if batch_norm == "train" else _AT_ONCE
    first = grid[: max(2, at_once)] if batch_norm == "train" else grid[:2]
    with tape(module, curve.point(first), batch_norm=batch_norm) as record, torch.no_grad():
        names, nodes = _places(record, layers)
        like = record.x
        pieces = []
        last: list[Tensor] = []
        for some in grid.split(at_once):
            x = curve.point(some).to(like)
            if method == "tangents":
                _, found = jvp(lambda z: record.values(z, nodes), (x,), (curve.tangent(some).to(like),))
                pieces.append(_row_norms(found))
            else:
                found = [value.flatten(1) for value in record.values(x, nodes)]
                joined = [torch.cat([end, value]) for end, value in zip(last, found, strict=True)] if last else found
                pieces.append(_row_norms([value.diff(dim=0) for value in joined]))
                last = [value[-1:].clone() for value in found]
    return names, np.concatenate(pieces)


def _stacked_norms(
    modules: list[nn.Module],
    curve: Curve,
    layers: Sequence[str] | None,
    points: int,
    seed: int,
    batch_norm: Literal["train", "eval"],
) -> tuple[tuple[str, ...], Array]:
    """As :func:`_norms` for several small modules of one architecture, as one batched program."""
    offsets = torch.tensor([numpy_generator(seed, i, 1).random() for i in range(len(modules))], dtype=torch.float64)
    grid = (torch.arange(points, dtype=torch.float64) + offsets[:, None]) / points
    for module in modules:
        check_model(module)
    parameters, buffers = stack_module_state(modules)  # type: ignore[no-untyped-call, unused-ignore]
    state = {name: tensor.detach() for name, tensor in (parameters | buffers).items()}
    model = modules[0]
    with tape(model, curve.point(grid[0]), batch_norm=batch_norm) as record, torch.no_grad():
        names, nodes = _places(record, layers)
        shape = (len(modules), points, *curve.shape)
        x = curve.point(grid.reshape(-1)).to(record.x).reshape(shape)
        dx = curve.tangent(grid.reshape(-1)).to(record.x).reshape(shape)

        def tangents(own: dict[str, Tensor], x: Tensor, dx: Tensor) -> list[Tensor]:
            def values(z: Tensor) -> list[Tensor]:
                return record.values(z, nodes, call=lambda y: functional_call(model, own, (y,)))

            return list(jvp(values, (x,), (dx,))[1])

        found = vmap(tangents)(state, x, dx)
        norms = _row_norms([value.flatten(0, 1) for value in found])
    return names, norms.reshape(len(modules), points, -1)


def _places(record: Tape, layers: Sequence[str] | None) -> tuple[tuple[str, ...], list[int]]:
    """Names of the layers, and the nodes of the input and the layers."""
    taps = record.taps(layers)
    if not taps:
        known = ", ".join(repr(name) for name in record.modules if name)
        raise InputError(
            "the model has no elementwise nonlinearity, so there is no default layer to measure; "
            f"name some with layers=[...]: {known or 'it has no named modules either'}."
        )
    return tuple(tap.name for tap in taps), [0, *(tap.node for tap in taps)]


def _row_norms(pieces: Sequence[Tensor]) -> Array:
    """Euclidean norm of each row of each tensor, summed in float64: shape (rows, tensors)."""
    columns = [torch.linalg.vector_norm(piece.flatten(1).to(torch.float64), dim=1) for piece in pieces]
    return np.asarray(torch.stack(columns, dim=1).cpu().numpy())


def _check_overflow(names: Sequence[str], norms: Array, dtype: torch.dtype | None) -> None:
    bad = ~np.isfinite(norms).all(axis=(0, 1))
    if bad.any():
        where = ("input", *names)[int(np.argmax(bad))]
        raise InputError(
            f"the length overflows at layer '{where}'"
            + (f" in {dtype}" if dtype is not None else "")
            + "; measure with dtype=torch.float64, or fewer layers."
        )


def _in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module itself if it has that dtype, else a copy that does."""
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype {dtype} is not supported; use torch.float32 or torch.float64.")
    if all(p.dtype == dtype for p in module.parameters() if p.is_floating_point()):
        return module
    with unchanged(module):
        return copy.deepcopy(module).to(dtype)


def _architecture(module: nn.Module) -> tuple[object, ...]:
    kinds = tuple((name, type(part)) for name, part in module.named_modules())
    return kinds, tuple((name, tuple(p.shape), p.dtype) for name, p in module.state_dict().items())


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
