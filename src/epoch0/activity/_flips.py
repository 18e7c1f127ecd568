"""All flips of labels in order while one layer's weights turn: in closed form, or by halving steps (Raghu B.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity._dense_sweep import dense_sweeps
from epoch0.activity._sign_changes import Evaluate, Search, in_order, search, together
from epoch0.activity._turning import TooMany, start, turn
from epoch0.activity.weight_circle import layer_names, named_layer, sweep
from epoch0.errors import InputError, check_finite
from epoch0.networks.ensemble import Ensemble
from epoch0.regions.network.steps import Affine, Fold
from epoch0.seeds import generator
from epoch0.tracing.guard import bare, check_model

EXACT_UP_TO = 4096
"""Neurons above the swept layer times inputs up to which sweeps are followed exactly unless the user says otherwise."""
MOST = 200_000
"""Break points at which "auto" turns to halving steps."""
_FUNCTIONS = 1024  # of inputs and networks that are searched at a time
_WEIGHTS = 1 << 23  # numbers of the networks held at a time


@dataclass(frozen=True)
class How:
    """What the user asked for."""

    layer: int | str
    output: int
    other: Tensor | None
    method: str
    caution: float
    points: int | None
    seed: int

    def weights(self, models: Ensemble | Sequence[nn.Module], index: int, weight: Tensor, name: str) -> Tensor:
        """W' of one network, in float64: as given, from the ensemble's law, or Gaussian with the size of W."""
        if self.other is not None:
            check_finite("other", self.other)
            if self.other.shape != weight.shape:
                raise InputError(
                    f"other has shape {tuple(self.other.shape)}, the weight of '{name}' {tuple(weight.shape)}."
                )
            return self.other.detach().double().cpu()
        if isinstance(models, Ensemble):
            made = torch.empty(weight.shape, dtype=torch.float64)
            number = [key for key, _ in models.spec.names()].index(f"{name}.weight")
            source = generator(self.seed, models.indices[index], 0xD1C0)
            models.spec.entry_law(number).sample(made.shape, source, out=made)
            return made
        size = float(weight.detach().double().square().mean().sqrt())
        source = generator(self.seed, index, 0xD1C0)
        return torch.randn(weight.shape, generator=source, dtype=torch.float64) * size

    def check_output(self, outputs: int) -> None:
        """Refuse an output that is not there."""
        if isinstance(self.output, bool) or not isinstance(self.output, int) or not 0 <= self.output < outputs:
            raise InputError(f"output={self.output!r}: the network has {outputs} outputs, numbered from 0.")


@dataclass
class Flips:
    """One network's flips in order."""

    layer: str
    first: np.ndarray
    times: np.ndarray
    which: np.ndarray
    exact: bool
    missed_at_most: float = 0.0
    unresolved: int = 0


def of_ensemble(nets: Ensemble, inputs: Tensor, own: bool, how: How) -> list[Flips] | None:
    """Networks of an ensemble as one program; None where closed forms are better, or it cannot be."""
    spec, count = nets.spec, inputs.shape[-2]
    name = named_layer(skeleton := nets.skeleton(), how.layer)
    layer = layer_names(skeleton).index(name)
    neurons = sum(spec.sizes[layer + 1 : -1]) * count
    small = spec.activation.piecewise_linear and neurons <= EXACT_UP_TO
    if how.method == "exact" or (how.method == "auto" and small) or spec.activation.source is not None:
        return None
    how.check_output(spec.sizes[-1])
    if inputs.shape[-1] != spec.sizes[0]:
        raise InputError(f"the networks do not take inputs of size {inputs.shape[-1]}; theirs is {spec.sizes[0]}.")
    weight = skeleton.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    size = max(1, min(_FUNCTIONS // count, _WEIGHTS // spec.parameters))
    found: list[Flips] = []
    for begin in range(0, len(nets), size):
        some = nets[begin : begin + size]
        others = torch.stack([how.weights(nets, begin + i, weight, name) for i in range(len(some))])
        mine = inputs[begin : begin + size] if own else inputs
        sweeps = dense_sweeps(some, mine, layer, others.to(weight.dtype).double(), how.output)
        found += _halved(sweeps, len(some), count, name, how)
    return found


def of_one(models: Ensemble | Sequence[nn.Module], index: int, inputs: Tensor, how: How) -> Flips:
    """All flips of one network: in closed form where that is right and cheap."""
    model = models[index]
    check_model(model)
    name = named_layer(bare(model), how.layer)
    weight = bare(model).get_submodule(name).weight
    assert isinstance(weight, Tensor)
    swept = sweep(model, inputs, name, how.weights(models, index, weight, name))
    how.check_output(swept.first.shape[1])
    program = swept.program
    closed = program is not None and all(isinstance(step, Affine | Fold) for step in program.steps)
    if how.method == "exact" and not closed:
        raise InputError("this network is not made of affine maps and piecewise linear nonlinearities; use 'refined'.")
    if closed and how.method != "refined" and program is not None and swept.other is not None:
        above = sum(program.elements[s.inputs[0]] for s in program.steps[swept.step :] if isinstance(s, Fold))
        if how.method == "exact" or above * len(inputs) <= EXACT_UP_TO:
            still = torch.zeros_like(inputs)
            pieces = start(torch.stack([still, still, inputs]), 2 * math.pi)
            try:
                found = turn(program, pieces, layers=False, output=(0.0,), swept={swept.step: swept.other},
                             most=None if how.method == "exact" else MOST).of(len(program.folds))  # fmt: skip
            except TooMany:
                pass
            else:
                mine = found.element == how.output
                times, which = (found.angle[mine] / (2 * math.pi)).numpy(), found.group[mine].numpy()
                order = np.argsort(times, kind="stable")
                return Flips(name, (swept.first[:, how.output] > 0).numpy(), times[order], which[order], True)

    def along(which: Tensor, angle: Tensor) -> Tensor:
        return swept.values(which, angle)[:, how.output]

    return _halved(along, 1, len(inputs), name, how)[0]


def _halved(values: Evaluate, networks: int, inputs: int, name: str, how: How) -> list[Flips]:
    """Flips of several networks by halving steps; very many inputs of one network part by part."""
    parts: list[Search] = []
    functions = networks * inputs
    size = _FUNCTIONS if networks == 1 else functions
    for begin in range(0, functions, size):
        count = min(size, functions - begin)
        part = search(_round(values, begin), count, min(count, inputs), caution=how.caution, points=how.points,
                      seed=how.seed)  # fmt: skip
        parts.append(replace(part, changes=replace(part.changes, function=part.changes.function + begin)))
    first = torch.cat([part.first for part in parts]).reshape(networks, inputs).numpy()
    missed = np.sum([part.missed_at_most for part in parts], axis=0)
    unresolved = np.sum([part.unresolved for part in parts], axis=0)
    t, changes, clashes = in_order(_round(values), together([part.changes for part in parts]), inputs, networks)
    ends = torch.bincount(changes.function // inputs, minlength=networks).cumsum(0).tolist()
    found = []
    for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        which = (changes.function[begin:end] - i * inputs).numpy()
        left = int(unresolved[i] + clashes[i])
        found.append(Flips(name, first[i], t[begin:end].numpy(), which, False, float(missed[i]), left))
    return found


def _round(values: Evaluate, begin: int = 0) -> Evaluate:
    """Once round for t in [0, 1], numbers counted from ``begin`` on."""
    return lambda which, t: values(which + begin, 2 * math.pi * t)
