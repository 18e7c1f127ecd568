"""Dichotomies: how many labellings of some inputs a sweep of a layer's weights passes through (Raghu appendix B.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.circles import EXACT_UP_TO, MOST, TooMany, turn, turnable
from epoch0.activity.halving import CAUTION, in_order, search, together
from epoch0.activity.patterns import Method, several
from epoch0.activity.weights import WeightSweep, named_layer, own_weight, sweep
from epoch0.arguments import Depth, Positive, Seed, Size, Whole, Within, checked
from epoch0.errors import InputError
from epoch0.networks.dense import Ensemble
from epoch0.regions.network.steps import Fold
from epoch0.results import Result, aligned
from epoch0.seeds import generator, numpy_generator
from epoch0.tracing.guard import bare, check_model

EXACT_INPUTS = 60  # up to which a labelling is one integer; beyond, labellings are told apart by random 128-bit sums
_FUNCTIONS = 1024  # of inputs that are searched at a time


@dataclass(frozen=True, eq=False)
class Dichotomies(Result):
    """The labellings that a closed sweep of one layer's weights passes through."""

    inputs: int  #: s, how many inputs were labelled
    layer: str  #: name of the layer swept
    counts: np.ndarray  #: distinct labellings of each network, shape (networks,)
    flips: np.ndarray  #: changes of one label of each network, once round, shape (networks,)
    seen: tuple[np.ndarray, ...]  #: for each network the distinct labellings at the start and after each flip
    times: tuple[np.ndarray, ...]  #: for each network t in [0, 1] of every flip, increasing
    which: tuple[np.ndarray, ...]  #: for each network the input whose label flips
    method: str  #: "exact" (closed forms) or "refined" (steps halved until none is suspicious)
    missed_at_most: float  #: flips missed at most with 95 % confidence, all networks together; 0 where exact
    unresolved: int  #: steps left suspicious at the finest resolution, and flips whose order stayed open
    hashed: bool  #: whether labellings were told apart by 128-bit hashes, as for more than 60 inputs

    @property
    def count(self) -> float:
        """Distinct labellings, mean over the networks."""
        return float(self.counts.mean())

    @property
    def error(self) -> float:
        """Its standard error over the networks; NaN for one."""
        return float(self.counts.std(ddof=1) / math.sqrt(len(self.counts))) if len(self.counts) > 1 else math.nan

    def rows(self) -> list[dict[str, Any]]:
        """One dict a network."""
        rows = zip(self.counts.tolist(), self.flips.tolist(), strict=True)
        return [{"network": i, "dichotomies": count, "flips": flips} for i, (count, flips) in enumerate(rows)]

    def __str__(self) -> str:
        rows = [["network", "dichotomies", "flips"], *(list(map(str, row.values())) for row in self.rows()[:10])]
        more = [f"  ... {len(self.counts) - 10} networks more"] if len(self.counts) > 10 else []
        how = "exact" if self.method == "exact" else f"steps halved; at most {self.missed_at_most:.0f} flips missed"
        head = f"{self.count:.6g} of 2^{self.inputs} labellings, sweeping the weights of '{self.layer}' ({how})"
        notes = ["  labellings were told apart by 128-bit hashes"] if self.hashed else []
        left = [f"  {self.unresolved} steps left unresolved"] if self.unresolved else []
        return "\n".join([head, *aligned(rows), *more, *notes, *left])


@checked
def dichotomies(
    model: Any,
    inputs: Tensor,
    layer: int | str = 0,
    *,
    output: Whole = 0,
    other: Tensor | None = None,
    method: Method = "auto",
    caution: Positive = CAUTION,
    points: Size | None = None,
    seed: Seed = 0,
) -> Dichotomies:
    """Sweep one layer's weights along a great circle and count the labellings of some inputs on the way.

    >>> nets = e0.networks.ensemble(20, [100, 64, 64, 1], "hardtanh", e0.Gaussian(8**0.5), seed=0)
    >>> found = e0.dichotomies(nets, torch.randn(15, 100))       # 15 random inputs of size 100
    >>> found.counts.shape, found.count                          # of 2^15
    ((20,), 63.4)

    The layer's weights are ``W cos(2 pi t) + W' sin(2 pi t)`` for t in [0, 1], W the network's own; all else stays. The
    label of an input is the sign of one output. In a piecewise linear network every flip of a label has a closed
    form; in others, and in large ones, every input's own steps are halved until none is suspicious, as for
    :func:`epoch0.transitions`, and further until the order of all flips is plain.

    Args:
        model: a module, which stays as it is, an ensemble, or a list of modules.
        inputs: shape (s, \\*shape of one input); for an ensemble also (networks, s, size), to each network its own.
        layer: its name, or its number among the layers with weights.
        output: which output's sign is the label.
        other: W', of the shape of the layer's weight. Default: from the ensemble's law, else Gaussian with the size of
            W.
        method, caution: as for :func:`epoch0.transitions`.
        points: when halving, at most about so many angles an input.
        seed: names the new weights.

    Raises:
        InputError: no such layer or output, a layer without weights, inputs that do not fit, or W' without effect.

    Source: Raghu et al. 2017, appendix B.3, Figures 14 to 16.
    """
    models = several(model)
    own = isinstance(models, Ensemble) and inputs.dim() == 3
    if inputs.dim() < 2 or not inputs.numel() or (own and len(inputs) != len(models)):
        wanted = f"for an ensemble whose networks have inputs of their own ({len(models)}, s, size)"
        raise InputError(f"inputs have shape {tuple(inputs.shape)}; give (s, *shape of one), s >= 1, or {wanted}.")
    given, insist, found, names = inputs.detach().double().cpu(), method == "exact", list[_Flips](), list[str]()
    for i in range(len(models)):
        check_model(models[i])
        net, targets = bare(models[i]), given[i] if own else given
        names.append(name := named_layer(net, layer))
        swept = sweep(net, targets, name, _weights(models, i, own_weight(net, name), name, other, seed))
        if output >= (outputs := swept.first.shape[1]):
            raise InputError(f"output={output!r}: the network has {outputs} outputs, numbered from 0.")
        if insist and not turnable(swept.program):
            raise InputError("this network is not of affine maps and piecewise linear nonlinearities; use 'refined'.")
        closed = None if method == "refined" else _closed(swept, targets, output, insist)
        found.append(closed or _halved(swept, len(targets), output, caution, points, seed))
    first, times, which, exact, missed, unresolved = zip(*found, strict=True)
    orders = tuple(map(seen, first, which))
    counts, flips = np.array([order[-1] for order in orders]), np.array([len(order) - 1 for order in orders])
    labelled, way = given.shape[own], "exact" if all(exact) else "refined"
    left = sum(missed), sum(unresolved), labelled > EXACT_INPUTS
    return Dichotomies(labelled, names[0], counts, flips, orders, times, which, way, *left)


def _weights(
    models: Ensemble | Sequence[nn.Module], index: int, weight: Tensor, name: str, other: Tensor | None, seed: int
) -> Tensor:
    """W' of one network, in float64: as given, from the ensemble's law, or Gaussian with the size of W."""
    if other is not None:
        if other.shape != weight.shape:
            raise InputError(f"other has shape {tuple(other.shape)}, the weight of '{name}' {tuple(weight.shape)}.")
        return other.detach().double().cpu()
    if isinstance(models, Ensemble):
        made, source = torch.empty(weight.shape, dtype=torch.float64), generator(seed, models.indices[index], 0xD1C0)
        models.spec.entry_laws[int(name) // 2].sample(made.shape, source, out=made)
        return made
    size = float(weight.detach().double().square().mean().sqrt())
    return torch.randn(weight.shape, generator=generator(seed, index, 0xD1C0), dtype=torch.float64) * size


class _Flips(NamedTuple):
    """One network's flips in order: the signs at the start, t and the input of each."""

    first: np.ndarray
    times: np.ndarray
    which: np.ndarray
    exact: bool = True
    missed_at_most: float = 0.0
    unresolved: int = 0


def _closed(swept: WeightSweep, inputs: Tensor, output: int, insist: bool) -> _Flips | None:
    """All flips of one network in closed form, where there is one and it is cheap or insisted on."""
    program, other = swept.program, swept.other
    if other is None or not turnable(program):
        return None
    above = sum(program.elements[step.inputs[0]] for step in program.steps[swept.step :] if isinstance(step, Fold))
    if not insist and above * len(inputs) > EXACT_UP_TO:
        return None
    still = torch.zeros_like(inputs)
    circles, most, turned = torch.stack([still, still, inputs]), math.inf if insist else MOST, {swept.step: other}
    try:
        found = turn(program, circles, 2 * math.pi, output=(0.0,), most=most, swept=turned)[0][-1]
    except TooMany:  # then halving steps is cheaper
        return None
    own = found.element == output
    times, which = (found.angle[own] / (2 * math.pi)).numpy(), found.group[own].numpy()
    order = np.argsort(times, kind="stable")
    return _Flips((swept.first[:, output] > 0).numpy(), times[order], which[order])


def _halved(swept: WeightSweep, inputs: int, output: int, caution: float, points: int | None, seed: int) -> _Flips:
    """Flips of one network by halving steps; very many inputs part by part."""

    def values(which: Tensor, t: Tensor, begin: int = 0) -> Tensor:
        return swept.values(which + begin, 2 * math.pi * t)[:, output]

    parts, changes = [], []
    for begin in range(0, inputs, _FUNCTIONS):
        parts.append(search(partial(values, begin=begin), min(_FUNCTIONS, inputs - begin), caution, points, seed))
        changes.append(parts[-1].changes._replace(function=parts[-1].changes.function + begin))
    first = torch.cat([part.first for part in parts]).numpy()
    t, which, clashes = in_order(values, together(changes))
    left = sum(part.unresolved for part in parts) + clashes
    return _Flips(first, t.numpy(), which.numpy(), False, sum(part.missed_at_most for part in parts), left)


def seen(first: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Distinct sign vectors so far: at the start, and after each flip of one input's sign.

    >>> seen(np.array([True, False]), np.array([0, 1, 1, 0]))
    array([1, 2, 3, 3, 3])
    """
    if (inputs := len(first)) <= EXACT_INPUTS:
        words = np.uint64(1) << np.arange(inputs, dtype=np.uint64)[None]
    else:  # two sign vectors of n share both sums with probability below n^2 / 2^129
        words = numpy_generator(0, inputs).integers(0, 2**64, size=(2, inputs), dtype=np.uint64)
    start = np.bitwise_xor.reduce(words[:, first], axis=1, keepdims=True)
    codes = np.bitwise_xor.accumulate(np.concatenate([start, words[:, flips]], axis=1), axis=1)
    order = np.lexsort(codes)  # stable: of equal codes the first comes first
    new = np.ones(len(order), dtype=np.int64)
    new[order[1:]] = (codes[:, order[1:]] != codes[:, order[:-1]]).any(axis=0)
    return np.asarray(new.cumsum())


@checked
def random_walk(
    inputs: Size, flips: Sequence[Depth], *, walks: Annotated[int, Within(2, 10**7)] = 100, seed: Seed = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct labellings that a random walk has seen which flips one label of s, chosen uniformly, at each step.

    >>> mean, error = random_walk(15, [0, 1, 100])               # shape (3,) each
    >>> mean[:2]
    array([1., 2.])

    Gives the mean over independent walks and its standard error after each of these numbers of steps.

    Source: Raghu et al. 2017, Figure 16.
    """
    if not len(at := np.asarray(flips, dtype=np.int64)):
        raise InputError("flips holds no number of steps; give one or more.")
    first = np.zeros(inputs, dtype=bool)
    each = (numpy_generator(seed, walk).integers(0, inputs, size=int(at.max())) for walk in range(walks))
    found = [seen(first, flipped)[at] for flipped in each]
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(walks)
