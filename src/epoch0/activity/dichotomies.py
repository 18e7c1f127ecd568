"""Dichotomies: how many labellings of some inputs a sweep of a layer's weights passes through (Raghu appendix B.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity._refine import CAUTION, refine
from epoch0.activity._signs_seen import EXACT_INPUTS, seen
from epoch0.activity._turning import TooMany, start, turn
from epoch0.activity._weight_circle import Sweep, named_layer, sweep
from epoch0.columns import aligned
from epoch0.errors import InputError, check_finite
from epoch0.measure._guard import bare, check_model
from epoch0.networks.ensemble import Ensemble
from epoch0.regions._steps import Affine, Fold
from epoch0.seeds import generator, numpy_generator

if TYPE_CHECKING:
    import pandas

EXACT_UP_TO = 4096
"""Neurons above the swept layer times inputs up to which sweeps are followed exactly unless the user says otherwise."""
MOST = 200_000
"""Break points at which "auto" turns to halving steps."""


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
        method: "exact" (closed forms) or "refined" (steps halved until each has one flip at most).
        missed_at_most: flips missed at most with 95 % confidence, all networks together; 0 where exact.
        unresolved: steps left suspicious or with several flips at the finest resolution.
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
        """What each network's count cannot exceed, (networks,): 2^s, and the stretches between flips once round."""
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
    form; in others, and in large ones, steps are halved until each has one flip at most and none is suspicious, as for
    :func:`epoch0.transitions`.

    Args:
        model: any torch module; an ensemble, or a list of modules, is swept one by one. It stays as it is.
        inputs: shape (s, \\*shape of one input).
        layer: its name, or its number among the layers with weights.
        output: which output's sign is the label.
        other: W', of the shape of the layer's weight. By default new weights from the ensemble's law; for other models
            Gaussian weights with the root mean square of W.
        method: "exact", "refined" or "auto".
        caution: as for :func:`epoch0.transitions`.
        points: as for :func:`epoch0.transitions`.
        seed: names the new weights.

    Returns:
        A :class:`Dichotomies`. More than 60 inputs are told apart by hashes, and it says so.

    Raises:
        InputError: no such layer or output, a layer without weights, inputs that do not fit, or weights W' that leave
            the outputs as they are.

    Source: Raghu et al. 2017, appendix B.3, Figures 14 to 16.
    """
    if method not in ("auto", "exact", "refined"):
        raise InputError(f"method={method!r} is not known; use 'auto', 'exact' or 'refined'.")
    models = [model] if isinstance(model, nn.Module) else model
    if not isinstance(models, Ensemble | Sequence) or not len(models):
        raise InputError(f"model is a {type(model).__name__}; give a module, an ensemble or a list of modules.")
    check_finite("inputs", inputs)
    if inputs.dim() < 2 or not len(inputs):
        raise InputError(f"inputs have shape {tuple(inputs.shape)}; give (s, *shape of one input) with s >= 1.")
    inputs = inputs.detach().double().cpu()
    found: list[_Swept] = []
    name = ""
    for index in range(len(models)):
        one = models[index]
        check_model(one)
        name = named_layer(bare(one), layer)
        weights = _others(models, index, one, name, seed) if other is None else _checked(other, one, name)
        swept = sweep(one, inputs, name, weights)
        if not 0 <= output < swept.first.shape[1]:
            raise InputError(f"output={output}: the network has {swept.first.shape[1]} outputs, numbered from 0.")
        found.append(_follow(swept, inputs, output, method, caution, points, seed))
    orders = [seen(one.first, one.which) for one in found]
    return Dichotomies(
        len(inputs), name, np.array([order[-1] for order in orders]), np.array([len(one.which) for one in found]),
        tuple(orders), tuple(one.times for one in found), tuple(one.which for one in found),
        "exact" if all(one.exact for one in found) else "refined", sum(one.missed_at_most for one in found),
        sum(one.unresolved for one in found), len(inputs) > EXACT_INPUTS,
    )  # fmt: skip


def _others(models: Ensemble | Sequence[nn.Module], index: int, model: nn.Module, name: str, seed: int) -> Tensor:
    """W' of one network: from the ensemble's law, or Gaussian with the size of W."""
    weight = bare(model).get_submodule(name).weight
    assert isinstance(weight, Tensor)
    made = torch.empty(weight.shape, dtype=torch.float64)
    if isinstance(models, Ensemble):
        number = [key for key, _ in models.spec.names()].index(f"{name}.weight")
        source = generator(seed, models.indices[index], 0xD1C0)
        models.spec.entry_law(number).sample(made.shape, source, out=made)
        return made
    size = float(weight.detach().double().square().mean().sqrt())
    return torch.randn(weight.shape, generator=generator(seed, index, 0xD1C0), dtype=torch.float64) * size


def _checked(other: Tensor, model: nn.Module, name: str) -> Tensor:
    weight = bare(model).get_submodule(name).weight
    assert isinstance(weight, Tensor)
    check_finite("other", other)
    if other.shape != weight.shape:
        raise InputError(f"other has shape {tuple(other.shape)}, the weight of '{name}' {tuple(weight.shape)}.")
    return other.detach().double().cpu()


@dataclass
class _Swept:
    """One network's flips in order."""

    first: np.ndarray
    times: np.ndarray
    which: np.ndarray
    exact: bool
    missed_at_most: float = 0.0
    unresolved: int = 0


def _follow(
    swept: Sweep, inputs: Tensor, output: int, method: str, caution: float, points: int | None, seed: int
) -> _Swept:
    """All flips of one network."""
    first = (swept.first[:, output] > 0).numpy()
    program = swept.program
    closed = program is not None and all(isinstance(step, Affine | Fold) for step in program.steps)
    if method == "exact" and not closed:
        raise InputError("this network is not made of affine maps and piecewise linear nonlinearities; use 'refined'.")
    if closed and method != "refined" and program is not None and swept.other is not None:
        above = sum(program.elements[s.inputs[0]] for s in program.steps[swept.step :] if isinstance(s, Fold))
        if method == "exact" or above * len(inputs) <= EXACT_UP_TO:
            still = torch.zeros_like(inputs)
            pieces = start(torch.stack([still, still, inputs]), 2 * math.pi)
            try:
                found = turn(program, pieces, layers=False, output=(0.0,), swept={swept.step: swept.other},
                             most=None if method == "exact" else MOST).of(len(program.folds))  # fmt: skip
            except TooMany:
                pass
            else:
                mine = found.element == output
                times, which = (found.angle[mine] / (2 * math.pi)).numpy(), found.group[mine].numpy()
                order = np.argsort(times, kind="stable")
                return _Swept(first, times[order], which[order], True)

    def along(t: Tensor) -> list[Tensor]:
        return [swept.values(2 * math.pi * t)[:, :, output]]

    counted = refine(along, [(0.0,)], first=256, caution=caution, points=points, ordered=True, seed=seed)
    times, which = counted.events
    return _Swept(first, times, which, False, counted.missed_at_most, counted.unresolved)


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
