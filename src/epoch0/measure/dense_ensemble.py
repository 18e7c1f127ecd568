"""Tangents through ensembles of dense networks, written out: point and tangent share each matrix product.

The general path (``torch.func`` over any module) gives the same numbers; this one costs 1.3 to 3 times less and holds
the weights of a few networks only. Small widths go through one batched product a layer, large ones one by one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve
from epoch0.errors import InputError, suggest
from epoch0.measure.pieces import Array, Pieces
from epoch0.networks.ensemble import Ensemble
from epoch0.seeds import numpy_generator
from epoch0.tracing.forward_derivatives import jvp

# Numbers held at once: weights, and points with tangents, of the networks in one batch (64 MB in float32).
_BUDGET = 16_000_000


def ensemble_pieces(
    ensemble: Ensemble,
    curve: Curve,
    layers: Sequence[str] | None,
    points: int,
    seed: int,
    dtype: torch.dtype | None,
) -> Pieces:
    """Tangents through each network, shape (networks, points, L + 1).

    Which networks share a batched product depends on their number, not on what is measured; a network alone and in
    company differ by no more than the rounding of one product (in practice they agree to the bit).

    Args:
        ensemble: dense networks.
        curve: its points have shape (inputs,).
        layers: module names of the networks, default their nonlinearities.
        points: tangents a network, equally spaced in t with a random offset of the network's own.
        seed: names the offsets; that of a network goes with its index in the unlimited ensemble.
        dtype: None for the ensemble's own.
    """
    spec = ensemble.spec
    if curve.shape != (spec.sizes[0],):
        raise InputError(f"the points of the curve have shape {curve.shape}; the networks take ({spec.sizes[0]},).")
    skeleton = ensemble.skeleton()
    names = _chosen(skeleton, layers)
    kind = dtype or spec.dtype
    if kind == torch.float64 and curve.dtype != torch.float64:
        curve = curve.to(torch.float64)
    size = 1
    if ensemble.batched:
        size = max(1, min(len(ensemble), _BUDGET // (spec.parameters + 4 * points * max(spec.sizes))))
    norms = np.empty((len(ensemble), points, len(names) + 1))
    # one set of buffers for all batches: fresh memory for every network costs as much as a small product
    memory = ensemble.stacked(0, size)
    with torch.no_grad():
        for start in range(0, len(ensemble), size):
            stop = min(start + size, len(ensemble))
            own = memory if start == 0 else ensemble.stacked(start, stop, out=memory)
            state = {name: value.to(kind) for name, value in own.items()}
            offsets = torch.tensor([grid_offset(seed, i) for i in ensemble.indices[start:stop]], dtype=torch.float64)
            t = (torch.arange(points, dtype=torch.float64) + offsets[:, None]) / points
            z, dz = (
                rule(t.reshape(-1)).to(kind).reshape(stop - start, points, -1) for rule in (curve.point, curve.tangent)
            )
            norms[start:stop] = _walk(skeleton, state, z, dz, set(names), ensemble.batched)
    return Pieces(tuple(names), norms, None, kind)


def grid_offset(seed: int, index: int) -> float:
    """The random offset, in [0, 1), of the grid of the network with this index."""
    return float(numpy_generator(seed, index, 1).random())


def _chosen(skeleton: nn.Sequential, layers: Sequence[str] | None) -> list[str]:
    known = [name for name, _ in skeleton.named_children()]
    if layers is None:
        chosen = [name for name, part in skeleton.named_children() if not isinstance(part, nn.Linear)]
        if not chosen or all(isinstance(part, nn.Linear | nn.Identity) for part in skeleton):
            raise InputError(
                "the networks have no nonlinearity, so there is no default layer to measure; "
                f"name some with layers=[...]: {', '.join(map(repr, known))}."
            )
        return chosen
    for name in layers:
        if name not in known:
            raise InputError(f"no layer is named {name!r}.{suggest(name, known)} The layers are {', '.join(known)}.")
    return sorted(set(layers), key=int)


def _walk(
    skeleton: nn.Sequential, state: dict[str, Tensor], z: Tensor, dz: Tensor, wanted: set[str], batched: bool
) -> Array:
    """Norms of dz at the input and at the wanted modules: shape (networks, points, 1 + wanted).

    Args:
        skeleton: the layers.
        state: stacked weights (networks, fan_out, fan_in) and biases (networks, fan_out).
        z: points, shape (networks, points, inputs).
        dz: tangents, the same shape.
        wanted: names of modules.
        batched: one batched product a layer; otherwise there is one network, and a plain product is faster.
    """
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
        elif isinstance(part, nn.ReLU):
            alive = both[:, :points] > 0
            both = both.unflatten(1, (2, points)).mul_(alive[:, None]).flatten(1, 2)
        else:
            both = torch.cat(jvp(part, (both[:, :points],), (both[:, points:],)), dim=1)
        if name in wanted:
            columns.append(_norm(both[:, points:]))
    return np.asarray(torch.stack(columns, dim=2).numpy())


def _norm(dz: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(dz, dim=2, dtype=torch.float64)
    return norm
