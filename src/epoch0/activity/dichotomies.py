"""Dichotomies: how many labellings of some inputs a sweep of a layer's weights passes through (Raghu appendix B.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.halving import in_order, search
from epoch0.activity.patterns import several
from epoch0.activity.weight_circle import Sweep, named_layer, own_weight
from epoch0.arguments import Depth, Seed, Size, Whole, Within, checked
from epoch0.errors import InputError
from epoch0.networks.ensemble import Ensemble
from epoch0.results import Result, aligned
from epoch0.seeds import generator, numpy_generator
from epoch0.tracing.guard import bare, check_model

EXACT_INPUTS = 60  # up to which a labelling is one integer; beyond, labellings are told apart by random 128-bit sums


@dataclass(frozen=True, eq=False)
class Dichotomies(Result):
    """The labellings that a closed sweep of one layer's weights passes through."""

    inputs: int  #: s, how many inputs were labelled
    layer: str  #: name of the layer swept
    counts: np.ndarray  #: distinct labellings of each network, shape (networks,)
    flips: np.ndarray  #: changes of one label of each network, once round, shape (networks,)
    seen: tuple[np.ndarray, ...]  #: for each network the distinct labellings at the start and after each flip
    times: tuple[
        np.ndarray, ...
    ]  #: for each network t in [0, 1] of every flip, increasing; by interpolation in its step
    which: tuple[np.ndarray, ...]  #: for each network the input whose label flips
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
        head = f"{self.count:.6g} of 2^{self.inputs} labellings, sweeping the weights of '{self.layer}'"
        told = ["  labellings were told apart by 128-bit hashes"] if self.hashed else []
        left = [f"  {self.unresolved} steps left unresolved"] if self.unresolved else []
        return "\n".join([head, *aligned(rows), *more, *told, *left])


@checked
def dichotomies(
    model: Any,
    inputs: Tensor,
    layer: int | str = 0,
    *,
    output: Whole = 0,
    other: Tensor | None = None,
    seed: Seed = 0,
) -> Dichotomies:
    """Sweep one layer's weights along a great circle and count the labellings of some inputs on the way.

    >>> nets = e0.networks.ensemble(20, [100, 64, 64, 1], "hardtanh", e0.Gaussian(8**0.5), seed=0)
    >>> found = e0.dichotomies(nets, torch.randn(15, 100))       # 15 random inputs of size 100
    >>> found.counts.shape, found.count                          # of 2^15
    ((20,), 63.4)

    The layer's weights are ``W cos(2 pi t) + W' sin(2 pi t)`` for t in [0, 1], W the network's own; all else stays. The
    label of an input is the sign of one output. Every input's own steps are halved until none can hide a flip, and
    further until the order of all flips is plain. That is no proof: of 46,532 flips of small networks 60 were missed,
    always in pairs.

    Args:
        model: a module with piecewise linear nonlinearities, which stays as it is, an ensemble, or a list of modules.
        inputs: shape (s, \\*shape of one input); for an ensemble also (networks, s, size), to each network its own.
        layer: its name, or its number among the layers with weights.
        output: which output's sign is the label.
        other: W', of the shape of the layer's weight. By default new weights from the ensemble's law; for other models
            Gaussian weights with the root mean square of W.
        seed: names the new weights.

    Raises:
        InputError: no such layer or output, a layer without weights, inputs that do not fit, a network that is not
            piecewise linear, or weights W' that leave the outputs as they are.

    Source: Raghu et al. 2017, appendix B.3, Figures 14 to 16.
    """
    models = several(model)
    own = isinstance(models, Ensemble) and inputs.dim() == 3
    if inputs.dim() < 2 or not inputs.numel() or (own and len(inputs) != len(models)):
        wanted = f"for an ensemble whose networks have inputs of their own ({len(models)}, s, size)"
        what = f"inputs have shape {tuple(inputs.shape)}"
        raise InputError(f"{what}; give (s, *shape of one input) with s >= 1, or {wanted}.")
    given, found, names = inputs.detach().double().cpu(), list[_Flips](), list[str]()
    for i in range(len(models)):
        check_model(models[i])
        net, mine = bare(models[i]), given[i] if own else given
        names.append(name := named_layer(net, layer))
        swept = Sweep(net, mine, name, _weights(models, i, own_weight(net, name), name, other, seed))
        if output >= (outputs := swept.first.shape[1]):
            raise InputError(f"output={output!r}: the network has {outputs} outputs, numbered from 0.")
        found.append(_flips(swept, len(mine), output))
    orders = [seen(one.first, one.which) for one in found]
    return Dichotomies(
        given.shape[own],
        names[0],
        counts=np.array([order[-1] for order in orders]),
        flips=np.array([len(one.which) for one in found]),
        seen=tuple(orders),
        times=tuple(one.times for one in found),
        which=tuple(one.which for one in found),
        unresolved=sum(one.unresolved for one in found),
        hashed=given.shape[own] > EXACT_INPUTS,
    )


def _weights(
    models: Ensemble | Sequence[nn.Module], index: int, weight: Tensor, name: str, other: Tensor | None, seed: int
) -> Tensor:
    """W' of one network, in float64: as given, from the ensemble's law, or Gaussian with the size of W."""
    if other is not None:
        if other.shape != weight.shape:
            raise InputError(f"other has shape {tuple(other.shape)}, the weight of '{name}' {tuple(weight.shape)}.")
        return other.detach().double().cpu()
    if isinstance(models, Ensemble):
        made = torch.empty(weight.shape, dtype=torch.float64)
        number = [key for key, _ in models.spec.names()].index(f"{name}.weight")
        source = generator(seed, models.indices[index], 0xD1C0)
        models.spec.entry_law(number).sample(made.shape, source, out=made)
        return made
    size = float(weight.detach().double().square().mean().sqrt())
    return torch.randn(weight.shape, generator=generator(seed, index, 0xD1C0), dtype=torch.float64) * size


class _Flips(NamedTuple):
    """One network's flips in order: the signs at the start, t and the input of each."""

    first: np.ndarray
    times: np.ndarray
    which: np.ndarray
    unresolved: int


def _flips(swept: Sweep, inputs: int, output: int) -> _Flips:
    """Flips of one network by halving steps."""

    def values(which: Tensor, t: Tensor) -> Tensor:
        return swept.values(which, 2 * math.pi * t)[:, output]

    first, changes, unresolved = search(values, inputs)
    t, which, clashes = in_order(values, changes)
    return _Flips(first.numpy(), t.numpy(), which.numpy(), unresolved + clashes)


def seen(first: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Distinct sign vectors so far: at the start, and after each flip of one input's sign.

    >>> seen(np.array([True, False]), np.array([0, 1, 1, 0]))
    array([1, 2, 3, 3, 3])
    """
    inputs = len(first)
    if inputs <= EXACT_INPUTS:
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
    at = np.asarray(flips, dtype=np.int64)
    if not len(at):
        raise InputError("flips holds no number of steps; give one or more.")
    first = np.zeros(inputs, dtype=bool)
    found = [
        seen(first, numpy_generator(seed, walk).integers(0, inputs, size=int(at.max())))[at] for walk in range(walks)
    ]
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(walks)
