"""NNGP and NTK of infinitely wide networks on a set of inputs (Lee et al. 2018, Jacot et al. 2018; Hayou 2021, B.1)."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation, get
from epoch0.errors import InputError
from epoch0.theory.mean_field._arguments import check_continuous, check_scales
from epoch0.theory.mean_field.input_pairs import as_inputs, pair_gaps
from epoch0.theory.mean_field.layer_steps import LayerScale, Pairs
from epoch0.theory.mean_field.recursion import parity, run

Array = NDArray[np.float64]
ARCHITECTURES = ("dense", "residual", "stable")


@dataclass(frozen=True)
class Kernel:
    """NNGP and NTK of a network with ``depth`` hidden layers and a linear readout, at infinite width.

    Attributes:
        nngp: covariance of the outputs for inputs i and j, shape (n1, n2).
        ntk: inner product of the outputs' gradients (NTK parametrization: every parameter a standard normal, scaled in
            the forward pass), shape (n1, n2).
        q1: the outputs' variance for each input of x1, shape (n1,); the diagonal of ``nngp`` if x2 is x1.
        q2: the same for x2, shape (n2,).
        gap: 1 - c, to its own relative precision, where ``nngp`` has rounded it away; shape (n1, n2).
        activation: name.
        weight_std: sigma_w.
        bias_std: sigma_b.
        density: fraction of weights kept.
        depth: hidden layers; for ``"residual"`` and ``"stable"`` residual blocks.
        architecture: ``"dense"``, ``"residual"`` or ``"stable"``.
        layer_error: error of a layer's E phi' phi' relative to its largest value: 1e-12, or larger (as measured) for an
            activation with kinks away from 0 and bent pieces, if the inputs differ in length.
    """

    nngp: Array
    ntk: Array
    q1: Array
    q2: Array
    gap: Array
    activation: str
    weight_std: float
    bias_std: float
    density: float
    depth: int
    architecture: str
    layer_error: float = 1e-12

    @property
    def correlation(self) -> Array:
        """Correlation of the outputs for inputs i and j, shape (n1, n2)."""
        return 1 - self.gap

    @property
    def diagonal(self) -> Array:
        """NTK of each input with itself; shape (n,). Only where x2 was left out."""
        if self.ntk.shape[0] != self.ntk.shape[1]:
            raise InputError(f"an NTK of shape {self.ntk.shape}, between two sets of inputs, has no diagonal.")
        return np.asarray(np.diagonal(self.ntk).copy())

    def to_dict(self) -> dict[str, Any]:
        """What was asked for and the ranges of what came out, as plain numbers and words; not the matrices."""
        found: dict[str, Any] = {
            "activation": self.activation, "weight_std": self.weight_std, "bias_std": self.bias_std,
            "density": self.density, "depth": self.depth, "architecture": self.architecture,
            "inputs": list(self.nngp.shape), "layer_error": self.layer_error,
        }  # fmt: skip
        for name, values in (("q", np.concatenate([self.q1, self.q2])), ("correlation", self.correlation),
                             ("ntk", self.ntk)):  # fmt: skip
            ends = {"least": values.min(), "median": np.median(values), "most": values.max()}
            found[name] = {word: float(value) for word, value in ends.items()}
        return found

    def __str__(self) -> str:
        seen = self.to_dict()
        sparse = f", density {self.density:g}" if self.density < 1 else ""
        lines = [
            f"{self.architecture} {self.activation} network, {self.depth} hidden layers, "
            f"weight_std={self.weight_std:g}, bias_std={self.bias_std:g}{sparse}; "
            f"{self.nngp.shape[0]} x {self.nngp.shape[1]} inputs",
            f"{'':14}{'least':>14}{'median':>14}{'most':>14}",
        ]
        words = {"q": "variance q", "correlation": "correlation", "ntk": "NTK"}
        for name, word in words.items():
            lines.append(f"{word:14}" + "".join(f"{seen[name][k]:>14.6g}" for k in ("least", "median", "most")))
        if self.layer_error > 1e-11:
            lines.append(
                f"Kinks away from 0 and inputs of different length: each layer's slopes are within about "
                f"{self.layer_error:.1g} only; inputs of one length are exact."
            )
        return "\n".join(lines)


def kernel(
    x1: Any,
    x2: Any = None,
    *,
    activation: str | Activation | Callable[..., Any],
    weight_std: float,
    bias_std: float = 0.0,
    depth: int,
    density: float = 1.0,
    architecture: Literal["dense", "residual", "stable"] = "dense",
) -> Kernel:
    """NNGP and NTK between inputs, right also at depth 100 in the chaotic phase.

    >>> found = kernel([[1.0, 0.0], [0.0, 1.0]], activation="relu", weight_std=2**0.5, depth=1)
    >>> found.nngp.round(4), found.ntk.round(4)                                       # shape (2, 2)
    (array([[1.    , 0.3183],
           [0.3183, 1.    ]]), array([[2.    , 0.3183],
           [0.3183, 2.    ]]))

    Layers: ``K_0 = bias_std^2 + weight_std^2 x.x'/d`` is the covariance of the first pre-activations and ``depth``
    nonlinear layers follow, ``K_(l+1) = bias_std^2 + weight_std^2 E phi(h) phi(h')``; so ``nngp`` is K_depth, that of
    the outputs of a network with ``depth`` hidden layers and a readout with the same two standard deviations.
    ``NTK_0 = K_0``, ``NTK_(l+1) = K_(l+1) + NTK_l weight_std^2 E phi'(h) phi'(h')``. For ``"residual"`` a block adds
    itself to its input, ``K_(l+1) = K_l + bias_std^2 + weight_std^2 E phi phi``; for ``"stable"`` both variances of a
    block are divided by ``depth``. Blocks come after the first linear map; nothing follows them.

    Variances and ``1 - c`` are carried apart: c is exactly 1 on the diagonal and for equal inputs, and 1 - c keeps its
    relative precision for nearly equal ones. (An activation with straight pieces and kinks away from 0, such as
    hardtanh, keeps it once the inputs' variances agree; before that 1 - c is exact to 1e-15.) Computed in float64
    whatever the inputs' type. Tables in the angle and the variance stand for phi; each layer's covariance is within
    1e-11 of the exact one.
    Activations with kinks away from 0 which are not straight between them (hardswish, some functions of your own) are
    less exact as long as the inputs differ in length, and take seconds a table: ``layer_error`` tells by how much.

    Args:
        x1: inputs, shape (n1, d): numpy array, torch tensor or nested lists.
        x2: inputs, shape (n2, d); None: x1 again.
        activation: a name such as "tanh", an Activation, or a function.
        weight_std: sigma_w, standard deviation of a kept weight times sqrt(fan_in); >= 0.
        bias_std: sigma_b; >= 0.
        depth: number of hidden layers, >= 0.
        density: fraction of the weights kept (alpha), in (0, 1].
        architecture: ``"dense"``, ``"residual"`` or ``"stable"``.

    Returns:
        A :class:`Kernel`, in float64.

    Raises:
        InputError: for inputs that are no (n, d) arrays of finite numbers or of different d, an argument out of its
            range, an activation that jumps (its NTK is infinite), or where a kernel exceeds float64 (the message names
            the layer).

    Source: Lee et al. 2018 (NNGP), Jacot et al. 2018 (NTK), Hayou et al. 2021, B.1 and appendix H (density).
    """
    rule = get(activation)
    check_scales(weight_std, bias_std, density)
    check_continuous(rule)
    check_depth(depth)
    if architecture not in ARCHITECTURES:
        raise InputError(f"architecture={architecture!r}; kernel knows {', '.join(ARCHITECTURES)}.")
    first = as_inputs("x1", x1)
    second = first if x2 is None else as_inputs("x2", x2)
    if first.shape[1] != second.shape[1]:
        raise InputError(f"x1 has shape {first.shape} and x2 {second.shape}: inputs of different size.")
    weight = density * weight_std**2
    # a network's biases are a further input of its own
    vectors = [
        np.concatenate([one * math.sqrt(weight / first.shape[1]), np.full((len(one), 1), float(bias_std))], axis=1)
        for one in (first, second)
    ]
    folded = bias_std == 0 and parity(rule) == -1
    gap, signs = pair_gaps(vectors[0], vectors[1], folded)
    q1, q2 = ((one**2).sum(axis=1) for one in vectors)
    with np.errstate(over="ignore"):
        tangent = (1 - gap) * np.sqrt(q1)[:, None] * np.sqrt(q2)
    if not (np.isfinite(q1).all() and np.isfinite(q2).all()):
        raise InputError("the inputs times weight_std overflow float64; scale them down.")
    pairs = Pairs(q1, q2, gap, tangent, x2 is None)
    if pairs.symmetric:
        np.fill_diagonal(pairs.gap, 0.0)
        np.fill_diagonal(pairs.tangent, q1)
    share = 1.0 if architecture != "stable" else 1.0 / max(depth, 1)
    skip = 0.0 if architecture == "dense" else 1.0
    error = run(rule, pairs, depth, LayerScale(weight * share, bias_std**2 * share, skip), folded)
    if pairs.symmetric:
        lower = np.tril_indices(len(first), -1)
        for full in (pairs.gap, pairs.tangent):
            full[lower] = full.T[lower]
    nngp = signs * (1 - pairs.gap) * (np.sqrt(pairs.first)[:, None] * np.sqrt(pairs.second))
    if pairs.symmetric:
        np.fill_diagonal(nngp, pairs.first)
    gaps = np.where(signs < 0, 2 - pairs.gap, pairs.gap)
    return Kernel(
        nngp, signs * pairs.tangent, pairs.first, pairs.second, gaps, rule.name,
        float(weight_std), float(bias_std), float(density), int(depth), architecture, error,
    )  # fmt: skip


def check_depth(depth: int) -> None:
    """Refuse what is no number of layers."""
    if isinstance(depth, bool) or not isinstance(depth, numbers.Integral) or depth < 0:
        raise InputError(f"depth={depth!r} is no number of layers; it must be a whole number >= 0.")
