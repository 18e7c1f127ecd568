"""Why an activation has no edge of chaos at a place, in words with numbers, and where it has one."""

import math

import numpy as np
from numpy.typing import NDArray

from epoch0.theory.mean_field.edge_arrays import NOTHING, edge_arrays
from epoch0.theory.mean_field.edge_points import EdgePoint
from epoch0.theory.mean_field.fixed_points import diverges_from, settle
from epoch0.theory.mean_field.moments import Moments

Array = NDArray[np.float64]


def why_no_edge(
    moments: Moments, found: list[EdgePoint], bias_std: float | None, weight_std: float | None, density: float
) -> str:
    """Why there is none, with numbers, and where there is one."""
    name = moments.activation.name
    given = f"bias_std={bias_std:g}" if weight_std is None else f"weight_std={weight_std:g}"
    given += "" if density == 1 else f", density={density:g}"
    sentences = [f"{name} has no edge of chaos at {given}"]
    if bias_std is not None:
        limit = diverges_from(moments, bias_std, density)
        weights = np.geomspace(1e-3, 1 - 1e-9, 150) * min(limit, 1e3)
        kept = density * weights**2
        q = settle(moments, kept, np.full(150, bias_std**2))
        inside = np.isfinite(q)
        gain, weights, q = kept[inside] * moments.slope(q[inside]), weights[inside], q[inside]
        until = f" until q, started at 1, diverges, from weight_std={limit:.6g} on" if math.isfinite(limit) else ""
        jump = np.flatnonzero((gain[:-1] < 1) & (gain[1:] > 1))
        if len(jump):
            i = int(jump[0])
            sentences[0] += (
                f": between weight_std={weights[i]:.4g} and {weights[i + 1]:.4g} q jumps from {q[i]:.4g} to "
                f"{q[i + 1]:.4g}, and chi at the fixed point over 1, from {gain[i]:.4g} to {gain[i + 1]:.4g}"
            )
        else:
            most = max(float(np.max(gain, initial=0.0)), 1e-12)
            sentences[0] += f": chi at the fixed point stays below {most:.6g}{until}"
    for point in found:
        sentences.append(
            f"At weight_std={point.weight_std:.6g}, bias_std={point.bias_std:.6g}, q={point.q:.6g} chi is 1, but that "
            "fixed point repels: the variance leaves it"
        )
    q, kept, bias = edge_arrays(moments)
    if not (moments.table(20)[2] > NOTHING).any():
        sentences.append("The derivative is 0 everywhere, and so is chi")
    elif not len(q):
        sentences.append("Nor is there one at any other setting")
    elif weight_std is None:
        assert bias_std is not None
        sentences.append(f"There is one {_range('bias_std', q, np.sqrt(bias), bias_std)}")
    else:
        sentences.append(f"There is one {_range('weight_std', q, np.sqrt(kept / density), weight_std)}")
    return ". ".join(sentences) + "."


def _range(name: str, q: Array, values: Array, asked: float) -> str:
    """The values on the piece of the edge that comes nearest to what was asked for."""
    pieces = np.split(values, np.flatnonzero(np.diff(np.log(q)) > 0.03) + 1)
    nearest = min(pieces, key=lambda piece: float(np.abs(piece - asked).min()))
    low, high = float(nearest.min()), float(nearest.max())
    upper = f" to {high:.4g}" if high < 50 else " on"
    return f"for {name} from {low if low > 1e-4 else 0:.4g}{upper}"
