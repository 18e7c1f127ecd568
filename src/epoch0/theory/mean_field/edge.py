"""The edge of chaos, where chi = 1 at the fixed point of the variance, and the phases around it (Hayou 2021, B.1)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0 import plots
from epoch0.activations import Activation, ActivationLike
from epoch0.arguments import Density, Std, Stds, checked
from epoch0.errors import InputError
from epoch0.results import Result, Shown, finite
from epoch0.theory.checks import Array, continuous, scales_in_words
from epoch0.theory.mean_field.fixed_points import reached, scales_at, settled_correlation, settled_q, why_it_diverges
from epoch0.theory.mean_field.moments import Moments, mean_slope, mean_square, moments_of

# A network counts as critical where chi is this close to 1: a signal then lasts for a thousand layers.
TOLERANCE = 1e-3

# The table's own error; smaller relative residuals have no sign.
_SIGN = 1e-10
# A moment below this is an underflow of the table, as for a phi that is flat around 0.
_NOTHING = 1e-28


def scale_free(rule: Activation) -> bool:
    """Whether E phi^2 = q E phi'^2 > 0 for every q, as for ReLU: then the edge is one point, without biases."""
    return rule.homogeneous and any(rule.slopes or ())


def edge_arrays(moments: Moments) -> tuple[Array, Array, Array]:
    """The attracting part of the edge over a grid of q: q, density * weight_std^2 and bias_std^2, each shape (n,)."""
    q, square, slope = moments.table(400)
    logarithmic = np.gradient(np.log(np.maximum(square, 1e-300)), np.log(q))
    with np.errstate(divide="ignore", over="ignore"):
        kept = 1 / slope
        bias = q - square * kept
        # next to 0 both conditions are decided by rounding
        attracts = np.abs(logarithmic * square * kept / q) < 1 - 1e-6
        attracts &= (slope > _NOTHING) & (square > _NOTHING) & (q < moments.top / 10)
    inside = attracts & (bias >= 10 * _SIGN * q)
    # where the edge begins or ends at bias_std = 0, between two points of the grid
    crosses = (bias[1:] * bias[:-1] < 0) & (np.abs(bias[1:]) > 1e-7 * q[1:])
    starts = np.flatnonzero(crosses & attracts[1:] & attracts[:-1])
    share = bias[starts] / (bias[starts] - bias[starts + 1])
    between = [column[starts] + share * (column[starts + 1] - column[starts]) for column in (q, kept)]
    found = np.concatenate([np.stack([q, kept, bias])[:, inside], [*between, np.zeros(len(starts))]], axis=1)
    q, kept, bias = found[:, np.argsort(found[0], kind="stable")]
    return q, kept, bias


@dataclass(frozen=True)
class EdgePoint:
    """A fixed point with chi = 1: does it attract the variance, and from q = 1?"""

    weight_std: float
    bias_std: float
    q: float
    attracts: bool
    reached: bool

    def __str__(self) -> str:
        return f"weight_std={self.weight_std:.6g}, bias_std={self.bias_std:.6g}, q={self.q:.6g}"


def edge_points(moments: Moments, name: str, value: float, density: float) -> list[EdgePoint]:
    """All fixed points with chi = 1 at this value of bias_std or weight_std (``name``), by growing q."""
    rule = moments.activation
    q, square, slope = moments.table(400)
    q, square, slope = (column[slope > _NOTHING] for column in (q, square, slope))
    if name == "bias_std":
        # relative to the largest term: for sigmoid E phi^2 / E phi'^2 is far larger than q where q is small
        residual = (q - square / slope - value**2) / np.maximum(q, square / slope)
        found = _roots(q, residual, lambda v: v - mean_square(rule, v) / mean_slope(rule, v) - value**2)
        at_zero = value**2 == 0
    else:
        target = density * value**2
        found = _roots(q, 1 - slope * target, lambda v: 1 - mean_slope(rule, v) * target)
        at_zero = abs(target * moments.slope_at_zero - 1) < 1e-9

    def point(kept: float, bias: float, q: float) -> EdgePoint:
        if q == 0:
            near, square, _ = moments.table(20)
            attracts = bool((kept * square <= near * (1 + _SIGN))[near <= 1e-2].all())
        else:
            attracts = abs(kept * moments.square_rate(q)) < 1
        settled = float(settled_q(moments, np.array([kept]), np.array([bias]))[0])
        stds = (math.sqrt(kept / density), value) if name == "bias_std" else (value, math.sqrt(bias))
        return EdgePoint(*stds, q, attracts, attracts and abs(settled - q) <= 1e-3 * q + 1e-5)

    points = []
    if at_zero and moments.at_zero < 1e-20 and moments.slope_at_zero > 0:
        points.append(point(1 / moments.slope_at_zero, 0.0, 0.0))
    for v in found:
        kept = 1 / mean_slope(rule, v)
        bias = value**2 if name == "bias_std" else v - kept * mean_square(rule, v)
        if bias >= -_SIGN * v:
            points.append(point(kept, max(bias, 0.0), v))
    return points


def _roots(q: Array, seen: Array, residual: Callable[[float], float]) -> list[float]:
    """Where the residual, seen on the grid, changes its sign; by exact quadrature, which must confirm both signs."""
    from scipy.optimize import brentq

    signed = np.flatnonzero(np.abs(seen) > _SIGN)
    sign, found = np.sign(seen[signed]), []
    for i in np.flatnonzero(sign[1:] != sign[:-1]):
        low, high = float(q[signed[i]]), float(q[signed[i + 1]])
        if residual(low) * residual(high) < 0:
            ends = math.log(low), math.log(high)
            found.append(math.exp(brentq(lambda x: residual(math.exp(x)), *ends, xtol=1e-14, rtol=1e-14)))
    return found


def why_no_edge(moments: Moments, found: list[EdgePoint], name: str, value: float, density: float) -> str:
    """Why there is none, and where there is one."""
    sparse = "" if density == 1 else f", density={density:g}"
    sentences = [f"{moments.activation.name} has no edge of chaos at {name}={value:g}{sparse}"]
    sentences += [f"At {point} chi is 1, but that fixed point repels: the variance leaves it" for point in found]
    q, kept, bias = edge_arrays(moments)
    if not (moments.table(20)[2] > _NOTHING).any():
        sentences.append("The derivative is 0 everywhere, and so is chi")
    elif not len(q):
        sentences.append("Nor is there one at any other setting")
    else:
        values = np.sqrt(bias if name == "bias_std" else kept / density)
        pieces = np.split(values, np.flatnonzero(np.diff(np.log(q)) > 0.03) + 1)
        nearest = min(pieces, key=lambda piece: float(np.abs(piece - value).min()))  # to what was asked for
        low, high = float(nearest.min()), float(nearest.max())
        upper = f" to {high:.4g}" if high < 50 else " on"
        sentences.append(f"There is one for {name} from {low if low > 1e-4 else 0:.4g}{upper}")
    return ". ".join(sentences) + "."


@dataclass(frozen=True)
class EdgeOfChaos(Shown):
    """A point on the edge of chaos of an activation.

    ``q`` is the variance at the fixed point, None if every q is one, as for ReLU; ``chi`` the gain there, 1 up to
    rounding; ``note`` names further points that answer the same question.
    """

    activation: str
    weight_std: float
    bias_std: float
    q: float | None
    chi: float
    density: float = 1.0
    note: str = ""

    def __str__(self) -> str:
        q = "any q" if self.q is None else f"q={self.q:.6g}"
        density = "" if self.density == 1 else f", density={self.density:g}"
        note = f" ({self.note})" if self.note else ""
        weights = f"weight_std={self.weight_std:.6g} (weight_std^2={self.weight_std**2:.6g})"
        return f"{self.activation}: edge of chaos at {weights}, bias_std={self.bias_std:.6g}, {q}{density}{note}"

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class EdgeCurve:
    """The edge of chaos as arrays of shape (n,), q at the fixed point; NaN where there is none."""

    bias_std: Array
    weight_std: Array
    q: Array


@checked
def edge_of_chaos(
    activation: ActivationLike, *, bias_std: Std | None = None, weight_std: Std | None = None, density: Density = 1.0
) -> EdgeOfChaos:
    """The point on the edge of chaos with this bias_std, or with this weight_std.

    >>> point = edge_of_chaos("tanh", bias_std=0.2)
    >>> round(point.weight_std ** 2, 6), round(point.q, 6)
    (1.700796, 0.512079)
    >>> print(edge_of_chaos("relu"))
    relu: edge of chaos at weight_std=1.41421 (weight_std^2=2), bias_std=0, any q (every q is a fixed point)

    Of several fixed points that attract the variance it is one that deep layers reach from pre-activations of variance
    1, and of those the one with the smallest weight_std. With neither bias_std nor weight_std bias_std is 0; both are
    an InputError, and so is a place without an edge: the message says where chi is 1 but repels, and where an edge is.

    Source: Hayou et al. 2021, 2.2 and B.1.
    """
    rule = continuous(activation)
    if bias_std is not None and weight_std is not None:
        raise InputError(f"{bias_std=} and {weight_std=}: give one of them, the edge of chaos fixes the other.")
    name, value = ("bias_std", bias_std or 0.0) if weight_std is None else ("weight_std", weight_std)
    if scale_free(rule):
        return _single_point(rule, name, value, density)
    moments = moments_of(rule)
    found = edge_points(moments, name, value, density)
    if not (best := [point for point in found if point.attracts]):
        raise InputError(why_no_edge(moments, found, name, value, density))
    chosen, *others = sorted(best, key=lambda point: (not point.reached, point.weight_std))
    gain = density * chosen.weight_std**2 * mean_slope(rule, chosen.q)
    notes = [] if chosen.reached else ["from q = 1 the variance does not get there: it must start near this q"]
    notes += [f"also at {'; '.join(map(str, others))}"] if others else []
    return EdgeOfChaos(rule.name, chosen.weight_std, chosen.bias_std, chosen.q, gain, density, ". ".join(notes))


def _single_point(rule: Activation, name: str, value: float, density: float) -> EdgeOfChaos:
    slopes = rule.slopes or ()
    slope = (slopes[0] ** 2 + slopes[-1] ** 2) / 2
    edge = math.sqrt(1 / (density * slope))
    if value > 0 if name == "bias_std" else abs(value / edge - 1) > 1e-9:
        sparse = "" if density == 1 else f" (density={density:g})"
        text = f"{rule.name} is on the edge of chaos only at the single point weight_std={edge:.6g}, bias_std=0{sparse}"
        why = "so chi does not depend on q, and with chi = 1 a bias makes q grow from layer to layer"
        raise InputError(f"{text}, and {name}={value:g} is off it: {rule.name} keeps its shape at every scale, {why}.")
    return EdgeOfChaos(rule.name, edge, 0.0, None, density * edge**2 * slope, density, "every q is a fixed point")


@dataclass(frozen=True)
class Phase(Shown):
    """What a deep network of one activation does at one (weight_std, bias_std).

    ``word`` is "ordered" (chi < 1: inputs become parallel, gradients vanish), "critical" (abs(chi - 1) <= 0.001),
    "chaotic" (chi > 1: inputs part, gradients explode), or "diverges": q grows without bound. ``chi`` is that of the
    fixed point ``q``, or its limit for large q. ``c_star`` is the correlation at which two inputs settle, ``xi_q`` and
    ``xi_c`` the depth scales in layers; all three NaN where q diverges.
    """

    activation: str
    weight_std: float
    bias_std: float
    density: float
    word: str
    chi: float
    q: float
    c_star: float
    xi_q: float
    xi_c: float
    note: str = ""

    def __str__(self) -> str:
        at = scales_in_words(self.weight_std, self.bias_std, self.density)
        scales = f"xi_q={self.xi_q:.4g}, xi_c={self.xi_c:.4g}"
        numbers = f"chi={self.chi:.6g}, q={self.q:.6g}, c*={self.c_star:.6g}, {scales}"
        return f"{self.activation} at {at}: {self.word}, {numbers}" + (f" ({self.note})" if self.note else "")

    def to_dict(self) -> dict[str, object]:
        return dict(finite(vars(self)))


@checked
def phase(activation: ActivationLike, weight_std: Std, bias_std: Std, density: Density = 1.0) -> Phase:
    """Whether a deep network is ordered, critical or chaotic, with its fixed points and depth scales.

    >>> print(phase("tanh", 1.5, 0.1))
    tanh at weight_std=1.5, bias_std=0.1: chaotic, chi=1.12905, q=0.813322, c*=0.180084, xi_q=1.417, xi_c=14.85

    Source: Hayou et al. 2021, 2.2 and B.1.
    """
    rule = continuous(activation)
    moments, kept = moments_of(rule), density * weight_std**2
    q, where = reached(moments, kept, bias_std**2), (rule.name, float(weight_std), float(bias_std), float(density))
    if math.isinf(q):
        gain, note = kept * moments.slope_far, "q grows without bound: " + why_it_diverges(moments, bias_std, density)
        return Phase(*where, "diverges", gain, math.inf, math.nan, math.nan, math.nan, note)
    gain, c = kept * mean_slope(rule, q), settled_correlation(rule, weight_std, bias_std, q, density)
    scales, note = scales_at(rule, weight_std, q, c, density), ""
    if bias_std == 0 and scale_free(rule):
        note = "every q is a fixed point" if abs(gain - 1) <= 1e-9 else "q shrinks to 0 by the factor chi a layer"
    return Phase(*where, str(_words(gain, q)), gain, q, c, scales.xi_q, scales.xi_c, note)


def _words(chi: ArrayLike, q: ArrayLike) -> NDArray[Any]:
    known = [np.isinf(q), np.abs(np.subtract(chi, 1)) <= TOLERANCE, np.less(chi, 1)]
    return np.select(known, ["diverges", "critical", "ordered"], "chaotic")


@dataclass(frozen=True, eq=False)
class PhaseDiagram(Result):
    """The phase over a grid of bias_std (rows) and weight_std (columns), as in :class:`Phase`, and the edge inside."""

    activation: str
    weight_std: Array
    bias_std: Array
    density: float
    chi: Array
    q: Array
    phase: NDArray[Any]
    edge: EdgeCurve

    def __str__(self) -> str:
        words, counts = np.unique(self.phase, return_counts=True)
        shares = ", ".join(f"{word} {count / self.phase.size:.0%}" for word, count in zip(words, counts, strict=True))
        rows, columns = self.chi.shape
        return f"{self.activation}: phase diagram of {columns} weight_std x {rows} bias_std: {shares}"

    def to_dict(self) -> dict[str, object]:
        names = ("weight_std", "bias_std", "phase", "chi", "q")
        found = {"activation": self.activation, "density": self.density}
        found |= {name: getattr(self, name).tolist() for name in names}
        return dict(finite({**found, "edge": {name: values.tolist() for name, values in vars(self.edge).items()}}))

    def rows(self) -> list[dict[str, Any]]:
        weight, bias = np.meshgrid(self.weight_std, self.bias_std)
        names = ("weight_std", "bias_std", "chi", "q", "phase")
        columns = (values.ravel().tolist() for values in (weight, bias, self.chi, self.q, self.phase))
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def plot(self) -> "plots.Figure":
        """The diagram as a matplotlib figure: colour for chi, a line for the edge, hatching where q diverges."""
        from matplotlib.colors import TwoSlopeNorm
        from matplotlib.patches import Patch

        picture, axes = plots.figure()
        with plots.style():
            diverges = np.isinf(self.q)
            # where q diverges chi is a limit, not a gain that a layer has: no colour there
            shown = np.where(diverges, np.nan, np.log10(np.clip(self.chi, 1e-3, 1e3)))
            reach = 1.0 if diverges.all() else min(max(0.1, float(np.nanmax(np.abs(shown)))), 1.0)
            x, y, colours = self.weight_std, self.bias_std, np.clip(shown, -reach, reach)
            look: dict[str, Any] = {"cmap": "RdBu_r", "norm": TwoSlopeNorm(0.0, -reach, reach), "shading": "nearest"}
            image = axes.pcolormesh(x, y, colours, **look, rasterized=True)
            bar = picture.colorbar(image, ax=axes, extend="both", label=r"gain $\chi$ at the fixed point (log scale)")
            ticks = [t for t in (0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0) if abs(np.log10(t)) <= reach * 1.001]
            bar.set_ticks([float(np.log10(t)) for t in ticks], labels=[f"{t:g}" for t in ticks])
            handles = []
            if diverges.any():
                axes.contourf(x, y, diverges.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"])
                axes.contour(x, y, diverges.astype(float), levels=[0.5], colors=plots.BOUND, linewidths=0.8)
                handles.append(Patch(facecolor="white", edgecolor=plots.BOUND, hatch="////", label="q diverges"))
            edge, point = self.edge, {"marker": "o", "linestyle": "none", "markersize": 7, "clip_on": False}
            style: dict[str, Any] = point if len(edge.weight_std) == 1 else {"linewidth": 2}
            style |= {"color": "black", "label": r"edge of chaos, $\chi=1$", "zorder": 5}
            if np.isfinite(edge.weight_std).any():
                handles += axes.plot(edge.weight_std, edge.bias_std, **style)
            axes.grid(False)
            axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
            axes.set(xlabel=r"weight_std  $\sigma_w$", ylabel=r"bias_std  $\sigma_b$")
            for word, colour in (("ordered", "#053061"), ("chaotic", "#67001f")):
                rows, columns = np.nonzero(self.phase == word)
                if (share := len(rows) / self.phase.size) > 0.02:
                    at = (float(np.median(x[columns])), float(np.median(y[rows])))
                    turned = 90 if share < 0.15 else 0
                    axes.text(*at, word, ha="center", va="center", color=colour, fontsize=11, rotation=turned)
            if handles:
                axes.legend(handles=handles, loc="upper left")
            title = f"Phase diagram of {self.activation}" + (f", density {self.density:g}" if self.density != 1 else "")
            plots.heading(picture, title, "wide dense network, at the fixed point of the variance")
        return picture


@checked
def phase_diagram(
    activation: ActivationLike, weight_stds: Stds, bias_stds: Stds, density: Density = 1.0
) -> PhaseDiagram:
    """The phase at every point of a grid of weight_stds (columns) and bias_stds (rows), both increasing and >= 0.

    >>> diagram = phase_diagram("tanh", np.linspace(0.5, 3, 200), np.linspace(0, 1, 100))
    >>> print(diagram)
    tanh: phase diagram of 200 weight_std x 100 bias_std: chaotic 59%, critical 0%, ordered 41%

    Source: Hayou et al. 2021, 2.2 and B.1; Poole et al. 2016 for the picture.
    """
    moments = moments_of(continuous(activation))
    weights, biases = _axis("weight_stds", weight_stds), _axis("bias_stds", bias_stds)
    kept, bias = (a.ravel() for a in np.meshgrid(density * weights**2, biases**2))
    q = settled_q(moments, kept, bias)
    chi = kept * np.where(np.isfinite(q), moments.slope(np.where(np.isfinite(q), q, 1.0)), moments.slope_far)
    chi, q, words = (item.reshape(len(biases), len(weights)) for item in (chi, q, _words(chi, q)))
    edge = _edge_inside(moments, weights, biases, density)
    return PhaseDiagram(moments.activation.name, weights, biases, density, chi, q, words, edge)


def _axis(name: str, values: Sequence[float] | Array) -> Array:
    axis = np.asarray(values, dtype=np.float64)
    if axis.ndim != 1 or not len(axis) or (np.diff(axis) <= 0).any():
        raise InputError(f"{name}={values!r}: give a list of increasing numbers >= 0, at least one.")
    return axis


def _edge_inside(moments: Moments, weights: Array, biases: Array, density: float) -> EdgeCurve:
    """The part of the edge in the window which deep layers reach from q = 1; NaN separates pieces."""
    if scale_free(moments.activation):
        weight = 1 / math.sqrt(density * float(moments.slope(np.array(1.0))))
        inside = weights[0] <= weight <= weights[-1] and biases[0] == 0
        one = np.array([weight if inside else np.nan])
        return EdgeCurve(np.where(np.isnan(one), np.nan, 0.0), one, np.array([np.nan]))
    q, kept, bias = edge_arrays(moments)
    # one step beyond the window, so that the line reaches its border
    inside = (kept <= 1.1 * density * weights[-1] ** 2) & (bias <= 1.1 * biases[-1] ** 2 + 1e-6)
    q, kept, bias = q[inside], kept[inside], bias[inside]
    gap = np.where(np.abs((settled_q(moments, kept, bias) if len(q) else q) - q) <= 1e-2 * q, 1.0, np.nan)
    return EdgeCurve(np.sqrt(bias) * gap, np.sqrt(kept / density) * gap, q * gap)
