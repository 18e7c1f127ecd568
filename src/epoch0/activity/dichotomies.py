"""Dichotomies: how many labellings of some inputs a sweep of a layer's weights passes through (Raghu appendix B.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from epoch0.activity._flips import How, of_ensemble, of_one
from epoch0.activity._refine import CAUTION, check_caution
from epoch0.activity._signs_seen import EXACT_INPUTS, seen
from epoch0.columns import aligned
from epoch0.errors import InputError, check_finite
from epoch0.networks.ensemble import Ensemble
from epoch0.seeds import numpy_generator

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Dichotomies:
    """The labellings that a closed sweep of one layer's weights passes through.

    Attributes:
        inputs: s, how many inputs were labelled.
        layer: name of the layer swept.
        counts: distinct labellings of each network, shape (networks,).
        flips: changes of one label of each network, once round, shape (networks,).
        seen: for each network the distinct labellings at the start and after each flip, shape (flips + 1,).
        times: for each network t in [0, 1] of every flip, increasing.
        which: for each network the input whose label flips.
        method: "exact" (closed forms) or "refined" (steps halved until none is suspicious).
        missed_at_most: flips missed at most with 95 % confidence, all networks together; 0 where exact.
        unresolved: steps left suspicious at the finest resolution, and flips whose order stayed open.
        hashed: whether labellings were told apart by 128-bit hashes, as for more than 60 inputs.
    """

    inputs: int
    layer: str
    counts: np.ndarray
    flips: np.ndarray
    seen: tuple[np.ndarray, ...]
    times: tuple[np.ndarray, ...]
    which: tuple[np.ndarray, ...]
    method: str
    missed_at_most: float
    unresolved: int
    hashed: bool

    @property
    def count(self) -> float:
        """Distinct labellings, mean over the networks."""
        return float(self.counts.mean())

    @property
    def error(self) -> float:
        """Its standard error over the networks; NaN for one."""
        return float(self.counts.std(ddof=1) / math.sqrt(len(self.counts))) if len(self.counts) > 1 else math.nan

    @property
    def at_most(self) -> int:
        """2^s, all labellings there are."""
        return 1 << self.inputs

    @property
    def bounds(self) -> np.ndarray:
        """What a network's count cannot exceed, shape (networks,); 2^s, and the stretches between flips once round."""
        stretches = np.maximum(1, self.flips)
        return np.asarray(np.minimum(stretches, self.at_most) if self.inputs < 63 else stretches)

    def to_dict(self) -> list[dict[str, Any]]:
        """One dict a network."""
        rows = zip(self.counts.tolist(), self.flips.tolist(), strict=True)
        return [{"network": i, "dichotomies": count, "flips": flips} for i, (count, flips) in enumerate(rows)]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a network."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def __str__(self) -> str:
        rows = [["network", "dichotomies", "flips"]]
        rows += [[str(row["network"]), str(row["dichotomies"]), str(row["flips"])] for row in self.to_dict()[:10]]
        more = [f"  ... {len(self.counts) - 10} networks more"] if len(self.counts) > 10 else []
        how = "exact" if self.method == "exact" else f"steps halved; at most {self.missed_at_most:.0f} flips missed"
        head = f"{self.count:.6g} of 2^{self.inputs} labellings, sweeping the weights of '{self.layer}' ({how})"
        told = ["  labellings were told apart by 128-bit hashes"] if self.hashed else []
        left = [f"  {self.unresolved} steps left unresolved"] if self.unresolved else []
        return "\n".join([head, *aligned(rows), *more, *told, *left])


def dichotomies(
    model: Any, inputs: Tensor, layer: int | str = 0, *, output: int = 0, other: Tensor | None = None,
    method: str = "auto", caution: float = CAUTION, points: int | None = None, seed: int = 0,
) -> Dichotomies:  # fmt: skip
    """Sweep one layer's weights along a great circle and count the labellings of some inputs on the way.

    >>> nets = e0.networks.ensemble(20, [100, 64, 64, 1], "hardtanh", e0.Gaussian(8**0.5), seed=0)
    >>> found = e0.dichotomies(nets, x)                          # x of shape (15, 100): 15 random inputs
    >>> found.counts.shape, found.count, found.at_most
    ((20,), 71.3, 32768)

    The layer's weights are ``W cos(2 pi t) + W' sin(2 pi t)`` for t in [0, 1], W the network's own; all else stays. The
    label of an input is the sign of one output. In a piecewise linear network every flip of a label has a closed
    form; in others, and in large ones, every input's own steps are halved until none is suspicious, as for
    :func:`epoch0.transitions`, and further until the order of all flips is plain.

    Args:
        model: any torch module, which stays as it is; an ensemble, whose networks are swept together; or a list of
            modules, which are swept one by one.
        inputs: shape (s, \\*shape of one input); for an ensemble also (networks, s, size), to each network its own.
        layer: its name, or its number among the layers with weights.
        output: which output's sign is the label.
        other: W', of the shape of the layer's weight. By default new weights from the ensemble's law; for other models
            Gaussian weights with the root mean square of W.
        method: "exact", "refined", or "auto" for what is right and cheap.
        caution: as for :func:`epoch0.transitions`.
        points: when halving, at most about so many angles an input.
        seed: names the new weights.

    Returns:
        A :class:`Dichotomies`. More than 60 inputs are told apart by hashes, and it says so.

    Raises:
        InputError: no such layer or output, a layer without weights, inputs that do not fit, or weights W' that leave
            the outputs as they are.

    Source: Raghu et al. 2017, appendix B.3, Figures 14 to 16.
    """
    models = _models(model, method)
    check_caution(caution, points)
    if not isinstance(inputs, Tensor):
        raise InputError(f"inputs are a {type(inputs).__name__}; give a tensor of shape (s, *shape of one input).")
    check_finite("inputs", inputs)
    own = isinstance(models, Ensemble) and inputs.dim() == 3
    if inputs.dim() < 2 or not inputs.numel() or (own and len(inputs) != len(models)):
        raise InputError(
            f"inputs have shape {tuple(inputs.shape)}; give (s, *shape of one input) with s >= 1, or for an ensemble "
            f"whose networks have inputs of their own ({len(models)}, s, size)."
        )
    given = inputs.detach().double().cpu()
    how = How(layer, output, other, method, caution, points, seed)
    found = of_ensemble(models, given, own, how) if isinstance(models, Ensemble) else None
    if found is None:
        found = [of_one(models, i, given[i] if own else given, how) for i in range(len(models))]
    orders = [seen(one.first, one.which) for one in found]
    count = given.shape[own]
    return Dichotomies(
        count, found[0].layer, np.array([order[-1] for order in orders]), np.array([len(one.which) for one in found]),
        tuple(orders), tuple(one.times for one in found), tuple(one.which for one in found),
        "exact" if all(one.exact for one in found) else "refined", sum(one.missed_at_most for one in found),
        sum(one.unresolved for one in found), count > EXACT_INPUTS,
    )  # fmt: skip


def _models(model: Any, method: str) -> Ensemble | Sequence[nn.Module]:
    if method not in ("auto", "exact", "refined"):
        raise InputError(f"method={method!r} is not known; use 'auto', 'exact' or 'refined'.")
    models = [model] if isinstance(model, nn.Module) else model
    if not isinstance(models, Ensemble | Sequence) or not len(models):
        raise InputError(f"model is a {type(model).__name__}; give a module, an ensemble or a list of modules.")
    return models


def random_walk(inputs: int, flips: Sequence[int], *, walks: int = 100, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distinct labellings that a random walk has seen which flips one label of s, chosen uniformly, at each step.

    >>> mean, error = random_walk(15, [0, 1, 100])               # shape (3,) each
    >>> mean[:2]
    array([1., 2.])

    Args:
        inputs: s, how many labels there are.
        flips: numbers of steps after which to look.
        walks: independent walks.
        seed: names them.

    Returns:
        Mean over the walks and its standard error, shape (len(flips),) each.

    Raises:
        InputError: if a number is out of its range.

    Source: Raghu et al. 2017, Figure 16.
    """
    at = np.asarray(flips, dtype=np.int64)
    if inputs < 1 or walks < 2 or at.ndim != 1 or not len(at) or at.min() < 0:
        raise InputError(
            f"random_walk(inputs={inputs}, flips={list(flips)!r}, walks={walks}): it needs an input, two walks and "
            "numbers of flips >= 0."
        )
    first = np.zeros(inputs, dtype=bool)
    found = [
        seen(first, numpy_generator(seed, walk).integers(0, inputs, size=int(at.max())))[at] for walk in range(walks)
    ]
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(walks)


def sauer_shelah(points: int, dimension: int) -> int:
    """The most labellings of s points by a class of VC dimension d: the sum of C(s, i) for i up to d.

    >>> sauer_shelah(15, 2), sauer_shelah(15, 15) == 2**15
    (121, True)

    It is also the most regions into which s hyperplanes cut a space of d dimensions.

    Args:
        points: s, points or hyperplanes, >= 0.
        dimension: d, >= 0.

    Source: Sauer 1972; Raghu et al. 2017, Theorem 5.
    """
    if points < 0 or dimension < 0:
        raise InputError(f"sauer_shelah(points={points}, dimension={dimension}): both must be >= 0.")
    return sum(math.comb(points, i) for i in range(min(points, dimension) + 1))
