"""Transitions: how often neurons switch their linear stretch along a curve (Raghu section 2.1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.circles import turn
from epoch0.activity.patterns import Reading, read, several
from epoch0.arguments import checked
from epoch0.curves import Arc, Curve, GreatCircle, Line, Polyline, SemicircularArcs
from epoch0.errors import InputError
from epoch0.regions import LinePartition, on_curve, on_line
from epoch0.regions.network.steps import Largest
from epoch0.results import Result, aligned

_EXACT_UP_TO = 4096  # neurons up to which circles are walked; a fine polyline is cheaper above
_PIECES = 500  # of that polyline
_PIECES_OF_AN_ARC = 100  # where there may be many of them


@dataclass(frozen=True, eq=False)
class Transitions(Result):
    """How often the neurons of one network, or of several, switch along a curve.

    A transition is one passage of one neuron through one of its faces: 0 for a ReLU, -1 or 1 for a hard tanh.
    """

    layers: tuple[str, ...]  #: names of the layers watched, in order
    neurons: tuple[np.ndarray, ...]  #: for each layer the counts of its neurons, shape (networks, neurons), int64
    faces: tuple[np.ndarray, ...]  #: for each layer the counts of its faces, shape (networks, faces)
    method: str  #: "line" (the walk on straight lines), "circle" (closed forms), "polyline" (many straight pieces)
    closest: float  #: the closest decision, as a part of the size of the values
    times: tuple[np.ndarray, ...]  #: for each network t of every transition, increasing
    owners: tuple[np.ndarray, ...]  #: and its layer and neuron, shape (transitions, 2)
    notes: tuple[str, ...]  #: what else should be known, such as how far a polyline is from the curve

    @property
    def networks(self) -> int:
        """Number of networks."""
        return len(self.neurons[0])

    @property
    def per_layer(self) -> np.ndarray:
        """Transitions in each layer, shape (networks, layers)."""
        return np.stack([counts.sum(axis=1) for counts in self.neurons], axis=1)

    @property
    def counts(self) -> np.ndarray:
        """Transitions of each network, shape (networks,)."""
        return np.asarray(self.per_layer.sum(axis=1))

    @property
    def count(self) -> int:
        """Transitions of all networks together."""
        return int(self.counts.sum())

    @property
    def exact(self) -> bool:
        """Whether the count is that of the curve itself, up to rounding."""
        return self.method in ("line", "circle")

    def rows(self) -> list[dict[str, Any]]:
        """One dict a layer: mean count over the networks, its standard error (None for one network), busiest neuron."""
        rows = []
        for layer, counts in zip(self.layers, self.neurons, strict=True):
            totals = counts.sum(axis=1)
            error = float(totals.std(ddof=1) / len(totals) ** 0.5) if len(totals) > 1 else None
            row = {"layer": layer, "transitions": float(totals.mean()), "error": error}
            rows.append({**row, "per_neuron": float(counts.mean()), "most_of_one_neuron": int(counts.max(initial=0))})
        return rows

    @property
    def how(self) -> str:
        """How it was counted, in one line."""
        where = {"line": "straight lines", "circle": "circles", "polyline": "a polyline near the curve"}[self.method]
        return f"exact on {where}; closest decision {self.closest:.0e} of the values' size"

    def __str__(self) -> str:
        who = "one network" if self.networks == 1 else f"{self.networks} networks, means with standard errors"
        rows = [["layer", "transitions", "+-", "a neuron", "at most"]]
        for row in self.rows():
            error = "" if row["error"] is None else f"{row['error']:.3g}"
            numbers = f"{row['transitions']:.6g}", error, f"{row['per_neuron']:.3g}", str(row["most_of_one_neuron"])
            rows.append([row["layer"], *numbers])
        head = f"{self.counts.mean():.6g} transitions, {who}"
        return "\n".join([head, *aligned(rows), f"  {self.how}", *(f"  note: {note}" for note in self.notes)])


@checked
def transitions(model: Any, curve: Curve) -> Transitions:
    """How often the neurons of a network switch along a curve.

    >>> net = e0.networks.mlp([64, 100, 100, 100, 10], "hardtanh", e0.Gaussian(2.0), seed=0)
    >>> found = e0.transitions(net, e0.Arc(x0, x1))              # x0, x1 of shape (64,)
    >>> found.count, found.per_layer.shape, found.neurons[0].shape, found.exact
    (250, (1, 3), (1, 100), True)
    >>> nets = e0.networks.ensemble(3, [64, 100, 100, 10], "hardtanh", e0.Gaussian(2.0), seed=0)
    >>> e0.transitions(nets, e0.Line(x0, x1)).counts.shape
    (3,)

    A neuron has one transition whenever its pre-activation passes a value where its slope changes: 0 for a ReLU, either
    of -1 and 1 for a hard tanh. On lines and polylines they are the break points of :func:`epoch0.regions.on_line`; on
    arcs and circles every pre-activation is ``a cos + b sin + c`` between two transitions, which has closed forms too.
    Elsewhere, and in large networks or those that take maxima, they are the break points of a fine polyline, and a note
    says how far it is from the curve.

    Args:
        model: a torch module with piecewise linear nonlinearities; an ensemble, or a list of modules of one
            architecture, is counted one by one. It is read in float64 and evaluation mode and stays as it is.
        curve: a curve whose points have the shape of one input.

    Raises:
        InputError: a curve of another shape, or a network that is not piecewise linear. Of a smooth one
            ``activation_patterns`` at points of the curve, with a threshold, tells on which side of it every neuron is.

    Source: Raghu et al. 2017, section 2.1 and Theorem 4.
    """
    curve = curve.to(torch.float64)
    found = [_of_one(one, curve) for one in several(model)]
    if any(one.layers != found[0].layers for one in found):
        raise InputError("the modules watch different layers; give modules of one architecture.")
    methods = {one.method for one in found}
    return Transitions(
        found[0].layers,
        tuple(np.concatenate(each) for each in zip(*(one.neurons for one in found), strict=True)),
        tuple(np.concatenate(each) for each in zip(*(one.faces for one in found), strict=True)),
        methods.pop() if len(methods) == 1 else "polyline",
        min(one.closest for one in found),
        tuple(one.times[0] for one in found),
        tuple(one.owners[0] for one in found),
        found[0].notes,
    )


def _of_one(model: nn.Module, curve: Curve) -> Transitions:
    reading = read(model, curve.shape, None)
    program, circles = reading.program, _circles(curve)
    assert program is not None  # a network without one needs a threshold
    turns = not any(isinstance(step, Largest) for step in program.folds)  # a maximum has no closed form there
    if circles is not None and turns and sum(program.sizes) <= _EXACT_UP_TO:
        every, closest = turn(program, *circles)
        number = np.repeat(np.arange(len(every)), [len(one.angle) for one in every])
        group, angle, element, face = (torch.cat(column) for column in zip(*every, strict=True))
        t = (group.double() + angle / circles[1]) / circles[0].shape[1]
        columns = t.numpy(), number, element.numpy(), face.numpy()
        return _result(reading, "circle", columns, closest, reading.notes)
    if isinstance(curve, Line):
        line = on_line(model, curve.x0, curve.x1)
        assert isinstance(line, LinePartition)
    elif isinstance(curve, Polyline):
        line = on_curve(model, curve, pieces=len(curve.points) - 1)
    else:
        pieces = _PIECES_OF_AN_ARC * curve.planes if isinstance(curve, SemicircularArcs) else _PIECES
        line = on_curve(model, curve, pieces=pieces)
    columns = line.breakpoints, line.owner_layer, line.owner_neuron, line.owner_face
    straight = isinstance(curve, Line | Polyline)
    notes = reading.notes if straight else line.notes
    return _result(reading, "line" if straight else "polyline", columns, line.certificate.smallest, notes)


def _circles(curve: Curve) -> tuple[Tensor, float] | None:
    """A curve as circles of one span: coefficients of cos, sin and 1, shape (3, circles, \\*shape), and the span."""
    if isinstance(curve, Arc | GreatCircle):
        still = torch.zeros_like(curve.x0)
        return torch.stack([curve.x0, curve.x1, still])[:, None], math.pi * (0.5 if isinstance(curve, Arc) else 2.0)
    if isinstance(curve, SemicircularArcs):
        begin = torch.arange(curve.planes, dtype=torch.float64)
        first, half, last = (curve.point((begin + part) / curve.planes) for part in (0.0, 0.5, 1.0))
        centre = 0.5 * (first + last)
        return torch.stack([first - centre, half - centre, centre]), math.pi
    return None


def _result(
    reading: Reading, method: str, found: Sequence[np.ndarray], closest: float, notes: tuple[str, ...]
) -> Transitions:
    """Of one network, from t, layer, neuron and face of every transition."""
    order = np.argsort(found[0], kind="stable")
    t, layer, element, face = (column[order] for column in found)
    counts = []
    for number, watched in enumerate(reading.layers):
        mine, sides = layer == number, len(watched.faces) or watched.entries
        counts.append(np.zeros((sides, watched.width), dtype=np.int64))
        np.add.at(counts[-1], (face[mine], element[mine]), 1)
    neurons, faces = (tuple(each.sum(axis=axis)[None] for each in counts) for axis in (0, 1))
    names, owners = tuple(watched.name for watched in reading.layers), np.stack([layer, element], axis=1)
    return Transitions(names, neurons, faces, method, closest, (t,), (owners,), notes)
