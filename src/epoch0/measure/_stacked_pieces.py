"""Tangents through several small modules of one architecture as one batched program (``torch.func``).

One by one every module pays for each small operation anew; stacked, they pay once.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure.module_pieces import module_pieces, places, shares_statistics
from epoch0.measure.pieces import Array, Pieces, row_norms
from epoch0.tracing.call import Forward
from epoch0.tracing.forward_derivatives import jvp
from epoch0.tracing.guard import check_model
from epoch0.tracing.tape import tape

# Modules with at most this many parameters are stacked: measured, it costs half at this size and a tenth at 30,000.
_STACKED_UP_TO = 500_000
# Numbers held at once, weights and points with their tangents (64 MB in float32).
_BUDGET = 16_000_000


def list_pieces(
    modules: Sequence[nn.Module],
    curve: Curve,
    layers: Sequence[str] | None,
    points: int,
    offsets: Sequence[float],
    batch_norm: Literal["train", "eval"],
    forward: Forward | None = None,
) -> Pieces:
    """Tangents through each module, batched where the modules are small and differ in their tensors only.

    Args:
        modules: at least one, of one architecture.
        curve: its points have the shape of one input.
        layers: names, default the nonlinearities.
        points: tangents a module.
        offsets: one a module.
        batch_norm: ``"train"`` or ``"eval"``.
        forward: another way of calling them, which is not batched.

    Raises:
        InputError: if the architectures differ, or one module cannot be measured.
    """
    check_one_architecture(modules)
    parameters = sum(parameter.numel() for parameter in modules[0].parameters())
    if forward is None and len(modules) > 1 and parameters <= _STACKED_UP_TO and _same_program(modules):
        # one by one is slower and always possible; what is wrong with a module is said there in its own words
        with suppress(InputError, RuntimeError):
            return _stacked(modules, curve, layers, points, offsets, batch_norm)
    return _one_by_one(modules, curve, layers, points, offsets, batch_norm, forward)


def check_one_architecture(modules: Sequence[nn.Module]) -> None:
    """Refuse modules whose parts or shapes differ.

    Raises:
        InputError: with the first module that differs from the first one, and where.
    """
    if not modules:
        raise InputError("model is an empty list; give at least one module.")
    for index, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise InputError(f"model[{index}] is a {type(module).__name__}; a list of networks holds torch modules.")
        for mine, first in zip(_parts(module), _parts(modules[0]), strict=False):
            if mine != first:
                raise InputError(
                    f"the {len(modules)} modules have different architectures: number {index} has {mine}, "
                    f"number 0 has {first}. Measure them one at a time."
                )
        if len(list(_parts(module))) != len(list(_parts(modules[0]))):
            raise InputError(
                f"the {len(modules)} modules have different architectures: numbers 0 and {index} differ in how many "
                "parts they have. Measure them one at a time."
            )


def _parts(module: nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        yield f"'{name}' {type(part).__qualname__}"
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield f"'{name}' of shape {tuple(tensor.shape)} in {tensor.dtype} on {tensor.device}"


def _same_program(modules: Sequence[nn.Module]) -> bool:
    """Whether the modules differ in nothing but parameters and buffers: no other slope, rate, hook or tensor."""
    tensors = {"_parameters", "_buffers", "_modules", "training"}
    for other in modules[1:]:
        for mine, theirs in zip(modules[0].modules(), other.modules(), strict=True):
            settings = [{k: v for k, v in part.__dict__.items() if k not in tensors} for part in (mine, theirs)]
            if settings[0].keys() != settings[1].keys():
                return False
            if not all(_equal(value, settings[1][name]) for name, value in settings[0].items()):
                return False
    return True


def _equal(a: Any, b: Any) -> bool:
    """Equal beyond doubt; tensors and arrays compare to no plain True and count as different."""
    try:
        return (a == b) is True
    except (RuntimeError, TypeError, ValueError):
        return False


def _one_by_one(
    modules: Sequence[nn.Module],
    curve: Curve,
    layers: Sequence[str] | None,
    points: int,
    offsets: Sequence[float],
    batch_norm: Literal["train", "eval"],
    forward: Forward | None,
) -> Pieces:
    found = [
        module_pieces(module, curve, layers, "tangents", points, offset, batch_norm, forward)
        for module, offset in zip(modules, offsets, strict=True)
    ]
    return Pieces(found[0].layers, np.concatenate([one.norms for one in found]), None, found[0].dtype)


def _stacked(
    modules: Sequence[nn.Module],
    curve: Curve,
    layers: Sequence[str] | None,
    points: int,
    offsets: Sequence[float],
    batch_norm: Literal["train", "eval"],
) -> Pieces:
    for module in modules:
        check_model(module)
    model = modules[0]
    grid = (torch.arange(points, dtype=torch.float64) + torch.tensor(offsets, dtype=torch.float64)[:, None]) / points
    with tape(model, curve.point(grid[0, :2]), batch_norm=batch_norm) as record, torch.no_grad():
        names, nodes = places(record, layers)
        if record.x.dtype == torch.float64 and curve.dtype != torch.float64:
            curve = curve.to(torch.float64)
        if shares_statistics(record):
            record = replace(record, hold_statistics=True)

        def norms(own: dict[str, Tensor], x: Tensor, dx: Tensor) -> list[Tensor]:
            def values(z: Tensor) -> list[Tensor]:
                return record.values(z, nodes, call=lambda y: functional_call(model, own, (y,)))

            return list(jvp(values, (x,), (dx,))[1])

        one = sum(tensor.numel() for tensor in model.state_dict().values())
        examples = record.nodes[0].shape[0]
        one += int(4 * points / examples * sum(np.prod(record.nodes[node].shape) for node in nodes))
        size = max(1, _BUDGET // one)
        pieces: list[Array] = []
        for start in range(0, len(modules), size):
            some, t = modules[start : start + size], grid[start : start + size]
            tensors = [dict([*module.named_parameters(), *module.named_buffers()]) for module in some]
            state = {name: torch.stack([one[name].detach() for one in tensors]) for name in tensors[0]}
            x, dx = (
                rule(t.reshape(-1)).to(record.x).reshape(len(some), points, *curve.shape)
                for rule in (curve.point, curve.tangent)
            )
            found = vmap(norms)(state, x, dx)
            pieces.append(row_norms([value.flatten(0, 1) for value in found]).reshape(len(some), points, -1))
    return Pieces(names, np.concatenate(pieces), None, record.x.dtype)
