"""Tangents through many networks: ensembles of dense networks written out.

In an ensemble point and tangent share each matrix product. The general path (``torch.func`` over any module) gives the
same numbers; this one costs 1.3 to 3 times less and holds the weights of a few networks only. Small widths go through
one batched product a layer, large ones one by one.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve
from epoch0.errors import InputError, suggest
from epoch0.measure.pieces import Array, Pieces
from epoch0.networks.ensemble import Ensemble
from epoch0.seeds import numpy_generator
from epoch0.tracing.tape import prepare_forward_derivatives

_BUDGET = 16_000_000  # numbers held at once: weights, and points with tangents, of some networks (64 MB in float32)


def ensemble_pieces(
    ensemble: Ensemble, curve: Curve, points: int, layers: Sequence[str] | None, kind: torch.dtype, seed: int
) -> Pieces:
    """Tangents through each network, shape (networks, points, L + 1).

    Which networks share a batched product depends on their number, not on what is measured; a network alone and in
    company differ by no more than the rounding of one product (in practice they agree to the bit).
    """
    spec = ensemble.spec
    if curve.shape != (spec.sizes[0],):
        raise InputError(f"the points of the curve have shape {curve.shape}; the networks take ({spec.sizes[0]},).")
    prepare_forward_derivatives()
    skeleton = ensemble.skeleton()
    names = _chosen(skeleton, layers)
    if kind == torch.float64 and curve.dtype != torch.float64:
        curve = curve.to(torch.float64)
    most = _BUDGET // (spec.parameters + 4 * points * max(spec.sizes))
    size = max(1, min(len(ensemble), most)) if ensemble.batched else 1
    norms = np.empty((len(ensemble), points, len(names) + 1))
    # one set of buffers for all batches: fresh memory for every network costs as much as a small product
    memory = ensemble.stacked(0, size)
    with torch.no_grad():
        for start in range(0, len(ensemble), size):
            stop = min(start + size, len(ensemble))
            own = memory if start == 0 else ensemble.stacked(start, stop, out=memory)
            state = {name: value.to(kind) for name, value in own.items()}
            own_offsets = [grid_offset(seed, index) for index in ensemble.indices[start:stop]]
            offsets = torch.tensor(own_offsets, dtype=torch.float64)
            t = (torch.arange(points, dtype=torch.float64) + offsets[:, None]) / points
            z, dz = (rule(t.reshape(-1)).to(kind).reshape(*t.shape, -1) for rule in (curve.point, curve.tangent))
            norms[start:stop] = _walk(skeleton, state, z, dz, set(names), ensemble.batched)
    return Pieces(tuple(names), norms, None, kind)


def grid_offset(seed: int, index: int) -> float:
    return float(numpy_generator(seed, index, 1).random())


def _chosen(skeleton: nn.Sequential, layers: Sequence[str] | None) -> list[str]:
    known = [name for name, _ in skeleton.named_children()]
    if layers is None:
        chosen = [name for name, part in skeleton.named_children() if not isinstance(part, nn.Linear)]
        if not chosen or all(isinstance(part, nn.Linear | nn.Identity) for part in skeleton):
            why = "the networks have no nonlinearity, so there is no default layer to measure"
            raise InputError(f"{why}; name some with layers=[...]: {', '.join(map(repr, known))}.")
        return chosen
    for name in layers:
        if name not in known:
            raise InputError(f"no layer is named {name!r}.{suggest(name, known)} The layers are {', '.join(known)}.")
    return sorted(set(layers), key=int)


def _walk(
    skeleton: nn.Sequential, state: dict[str, Tensor], z: Tensor, dz: Tensor, wanted: set[str], batched: bool
) -> Array:
    """Norms of dz at the input and at the wanted modules: shape (networks, points, 1 + wanted)."""
    points = z.shape[1]
    columns = [_norm(dz)]
    both = torch.cat([z, dz], dim=1)
    for name, part in skeleton.named_children():
        if len(columns) > len(wanted):
            break
        if isinstance(part, nn.Linear):
            weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
            both = torch.bmm(both, weight.mT) if batched else torch.mm(both[0], weight[0].t())[None]
            both[:, :points] += bias[:, None]
        else:
            both = torch.cat(torch.func.jvp(part, (both[:, :points],), (both[:, points:],)), dim=1)
        if name in wanted:
            columns.append(_norm(both[:, points:]))
    return np.asarray(torch.stack(columns, dim=2).numpy())


def _norm(dz: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(dz, dim=2, dtype=torch.float64)
    return norm


def check_one_architecture(modules: Sequence[nn.Module]) -> None:
    if not modules:
        raise InputError("model is an empty list; give at least one module.")
    for index, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise InputError(f"model[{index}] is a {type(module).__name__}; a list of networks holds torch modules.")
        both = zip_longest(_parts(module), _parts(modules[0]), fillvalue="nothing more")
        if other := next(((mine, first) for mine, first in both if mine != first), None):
            differ = f"number {index} has {other[0]}, number 0 has {other[1]}. Measure them one at a time."
            raise InputError(f"the {len(modules)} modules have different architectures: {differ}")


def _parts(module: nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        yield f"'{name}' {type(part).__qualname__}"
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield f"'{name}' of shape {tuple(tensor.shape)} in {tensor.dtype} on {tensor.device}"
