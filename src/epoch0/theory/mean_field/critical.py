"""The edge of chaos of any activation: where chi = 1 at the fixed point of the variance (Hayou 2021, 2.2, B.1)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import ActivationLike, get
from epoch0.errors import InputError
from epoch0.theory.checks import check_continuous, check_density, check_std
from epoch0.theory.mean_field.edge import EdgePoint, edge_points, scale_free, why_no_edge
from epoch0.theory.mean_field.moments import Moments, moments_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EdgeOfChaos:
    """A point on the edge of chaos of an activation.

    ``q`` is the variance of the pre-activations at the fixed point, None if every q is one, as for ReLU; ``chi`` the
    gain there, 1 up to rounding; ``others`` the (weight_std, bias_std, q) of further points that answer the same
    question.
    """

    activation: str
    weight_std: float
    bias_std: float
    q: float | None
    chi: float
    density: float = 1.0
    note: str = ""
    others: tuple[tuple[float, float, float], ...] = ()

    def __str__(self) -> str:
        """One line."""
        q = "any q" if self.q is None else f"q={self.q:.6g}"
        density = "" if self.density == 1 else f", density={self.density:g}"
        note = f" ({self.note})" if self.note else ""
        return (
            f"{self.activation}: edge of chaos at weight_std={self.weight_std:.6g} "
            f"(weight_std^2={self.weight_std**2:.6g}), bias_std={self.bias_std:.6g}, {q}{density}{note}"
        )

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        names = ("weight_std", "bias_std", "q")
        return asdict(self) | {"others": [dict(zip(names, point, strict=True)) for point in self.others]}


@dataclass(frozen=True, eq=False)
class EdgeCurve:
    """The edge of chaos as arrays of shape (n,), q at the fixed point; NaN where there is none."""

    bias_std: Array
    weight_std: Array
    q: Array


def edge_of_chaos(
    activation: ActivationLike, *, bias_std: float | None = None, weight_std: float | None = None, density: float = 1.0
) -> EdgeOfChaos:
    """The point on the edge of chaos with this bias_std, or with this weight_std.

    >>> point = edge_of_chaos("tanh", bias_std=0.2)
    >>> round(point.weight_std ** 2, 6), round(point.q, 6)
    (1.700796, 0.512079)
    >>> print(edge_of_chaos("relu"))
    relu: edge of chaos at weight_std=1.41421 (weight_std^2=2), bias_std=0, any q (every q is a fixed point)

    The point is a fixed point that attracts the variance. If several do, it is one that deep layers reach from
    pre-activations of variance 1, and of those the one with the smallest weight_std; ``others`` holds the rest. With
    neither bias_std nor weight_std bias_std is 0; both are an InputError, and so is a place without an edge: the
    message says how far chi gets, from which weight_std on q diverges, and where there is an edge.

    Source: Hayou et al. 2021, 2.2 and B.1.
    """
    moments = moments_of(get(activation))
    check_continuous(moments.activation)
    check_density(density)
    if bias_std is not None and weight_std is not None:
        raise InputError(
            f"bias_std={bias_std!r} and weight_std={weight_std!r}: give one of them, the edge of chaos fixes the other."
        )
    if weight_std is None:
        bias_std = 0.0 if bias_std is None else bias_std
        check_std("bias_std", bias_std)
    else:
        check_std("weight_std", weight_std)
    if scale_free(moments):
        return _single_point(moments, bias_std, weight_std, density)
    found = edge_points(moments, bias_std, weight_std, density)
    best = [point for point in found if point.attracts]
    if not best:
        raise InputError(why_no_edge(moments, found, bias_std, weight_std, density))
    best.sort(key=lambda point: (not point.reached, point.weight_std))
    chosen = best[0]
    others = tuple((point.weight_std, point.bias_std, point.q) for point in best[1:])
    gain = density * chosen.weight_std**2 * moments.exact_slope(chosen.q)
    where = (moments.activation.name, chosen.weight_std, chosen.bias_std, chosen.q)
    return EdgeOfChaos(*where, gain, density, _note(moments, best), others)


def edge_of_chaos_curve(
    activation: ActivationLike, bias_stds: Sequence[float] | Array, density: float = 1.0
) -> EdgeCurve:
    """The weight_std on the edge of chaos for each bias_std; NaN where :func:`edge_of_chaos` would raise.

    >>> edge_of_chaos_curve("tanh", [0.1, 0.2, 0.3]).weight_std.round(4)             # shape (3,)
    array([1.1934, 1.3041, 1.3956])

    Source: Hayou et al. 2021, 2.2 and B.1.
    """
    check_density(density)
    for one in bias_stds:
        check_std("bias_std", one)
    biases = np.asarray(bias_stds, dtype=np.float64)
    rule = get(activation)
    weights, variances = np.full(len(biases), np.nan), np.full(len(biases), np.nan)
    for i, bias_std in enumerate(biases):
        try:
            point = edge_of_chaos(rule, bias_std=float(bias_std), density=density)
        except InputError:
            continue
        weights[i], variances[i] = point.weight_std, np.nan if point.q is None else point.q
    return EdgeCurve(biases, weights, variances)


def _single_point(moments: Moments, bias_std: float | None, weight_std: float | None, density: float) -> EdgeOfChaos:
    name = moments.activation.name
    slopes = moments.activation.slopes
    slope = moments.exact_slope(1.0) if slopes is None else (slopes[0] ** 2 + slopes[-1] ** 2) / 2
    edge = math.sqrt(1 / (density * slope))
    if (bias_std or 0.0) > 0 or (weight_std is not None and abs(weight_std / edge - 1) > 1e-9):
        given = f"bias_std={bias_std:g}" if weight_std is None else f"weight_std={weight_std:g}"
        raise InputError(
            f"{name} is on the edge of chaos only at the single point weight_std={edge:.6g}, bias_std=0"
            f"{'' if density == 1 else f' (density={density:g})'}, and {given} is off it: {name} keeps its shape at "
            "every scale, so chi does not depend on q, and with chi = 1 a bias makes q grow from layer to layer."
        )
    return EdgeOfChaos(name, edge, 0.0, None, density * edge**2 * slope, density, "every q is a fixed point")


def _note(moments: Moments, best: list[EdgePoint]) -> str:
    notes = []
    if best[0].q == 0:
        q, square, _ = moments.table(20)
        still = q[(q <= 10) & (np.abs(square / moments.slope_at_zero / q - 1) < 1e-8)]
        if len(still) and still[-1] > 1e-3:
            notes.append(f"every q below about {still[-1]:.2g} is a fixed point to 8 digits")
    if not best[0].reached:
        notes.append("from q = 1 the variance does not get there: it must start near this q")
    if len(best) > 1:
        rest = "; ".join(f"weight_std={p.weight_std:.6g}, bias_std={p.bias_std:.6g}, q={p.q:.6g}" for p in best[1:])
        notes.append(f"also at {rest}")
    return ". ".join(notes)
