"""Tangents through many dense networks at once: point and tangent share one batched product a layer.

The general path (``torch.func`` over any module) gives the same numbers; for small networks it costs 20 times as much.
"""

from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.curves import Curve
from epoch0.measure.pieces import Array, Pieces, grid, places, row_norms
from epoch0.networks.ensemble import Ensemble
from epoch0.tracing.tape import tape

_BUDGET = 16_000_000  # numbers held at once: weights, and points with tangents, of some networks (64 MB in float32)


def ensemble_pieces(ensemble: Ensemble, curve: Curve, points: int, layers: Sequence[str] | None, seed: int) -> Pieces:
    """Tangents through each network, shape (networks, points, L + 1).

    Which networks share a batched product depends on their number, not on what is measured; a network alone and in
    company differ by no more than the rounding of one product (in practice they agree to the bit).
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
    return Pieces(names, np.concatenate(found), kind)


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
