"""Transitions: how often neurons switch to another linear piece along a curve (Raghu section 2.1)."""

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity.circles import EXACT_UP_TO, MOST, TooMany, turn, turnable
from epoch0.activity.halving import CAUTION, refine
from epoch0.activity.patterns import Method, Watched, several, watch
from epoch0.arguments import Positive, Seed, Size, checked
from epoch0.curves import Arc, Curve, GreatCircle, Line, Polyline, SemicircularArcs
from epoch0.errors import InputError
from epoch0.regions import on_curve
from epoch0.results import Result, aligned


@dataclass(frozen=True, eq=False)
class Transitions(Result):
    """How often the neurons of one network, or of several, switch along a curve.

    A transition is one crossing of a face by one neuron; faces are at 0 for a ReLU, at -1 and 1 for a hard tanh.
    """

    layers: tuple[str, ...]  #: names of the layers watched, in order
    neurons: tuple[np.ndarray, ...]  #: for each layer the counts of its neurons, shape (networks, neurons), int64
    faces: tuple[np.ndarray, ...]  #: for each layer the counts of its faces, shape (networks, faces)
    method: str  #: "line" (the walk on straight lines), "exact" (closed forms on circles) or "refined" (steps halved)
    resolution: float = 0.0  #: length in t of the shortest step; 0 where the count is exact, as the next five are
    points: int = 0  #: of the curve at which the networks were evaluated, all together
    missed: float = 0.0  #: crossings missed, estimated by looking again at steps chosen at random
    missed_at_most: float = 0.0  #: the same with 95 % confidence; a wide bound, as few steps are looked at again
    unresolved: int = 0  #: steps left suspicious at the finest resolution
    closest: float = 0.0  #: for exact counts the closest decision, as a part of the size of the values
    times: tuple[np.ndarray, ...] | None = None  #: for each network t of every transition, increasing; None if refined
    owners: tuple[np.ndarray, ...] | None = None  #: and its layer and neuron, shape (transitions, 2)
    notes: tuple[str, ...] = ()  #: further remarks

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
        """Whether the count is exact up to rounding."""
        return self.method in ("line", "exact")

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
        """How it was counted and what it may have missed, in one line."""
        if self.exact:
            where = "straight lines" if self.method == "line" else "circles"
            return f"exact on {where}; closest decision {self.closest:.0e} of the values' size"
        words = f"steps halved where a crossing could hide, down to {self.resolution:.1e} in t, {self.points} points; "
        words += f"{self.missed:.0f} missed by the look at random steps "
        words += f"(at most {self.missed_at_most:.0f} with 95 % confidence)"
        return f"{words}; {self.unresolved} steps left unresolved" if self.unresolved else words

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
def transitions(
    model: Any,
    curve: Curve,
    *,
    threshold: float | Sequence[float] | None = None,
    method: Method = "auto",
    caution: Positive = CAUTION,
    points: Size | None = None,
    seed: Seed = 0,
) -> Transitions:
    """How often the neurons of a network switch along a curve.

    >>> net = e0.networks.mlp([64, 100, 100, 100, 10], "hardtanh", e0.Gaussian(2.0), seed=0)
    >>> found = e0.transitions(net, e0.Arc(x0, x1))              # x0, x1 of shape (64,)
    >>> found.count, found.per_layer.shape, found.neurons[0].shape, found.exact
    (250, (1, 3), (1, 100), True)
    >>> nets = e0.networks.ensemble(3, [64, 100, 100, 10], "hardtanh", e0.Gaussian(2.0), seed=0)
    >>> e0.transitions(nets, e0.Line(x0, x1)).counts.shape
    (3,)
    >>> smooth = e0.networks.mlp([64, 32, 10], "tanh", seed=0)
    >>> e0.transitions(smooth, e0.Arc(x0, x1), threshold=0.0).how
    'steps halved where a crossing could hide, down to 7.8e-03 in t, 279 points; ...'

    A neuron has one transition whenever its pre-activation passes a value where its slope changes: 0 for a ReLU, either
    of -1 and 1 for a hard tanh. On lines and polylines they are the break points of :func:`epoch0.regions.on_line`; on
    arcs and circles every pre-activation is ``a cos + b sin + c`` between two transitions, which has closed forms too.
    Elsewhere, and in large networks, steps along the curve are halved until none is suspicious. That is no proof; the
    result says what a second look at random steps missed.

    Args:
        model: any torch module; an ensemble, or a list of modules of one architecture, is counted one by one. It is
            read in float64 and evaluation mode and stays as it is.
        curve: a curve whose points have the shape of one input.
        threshold: the value, or values, at which a neuron counts as switching. Needed for networks with smooth
            nonlinearities, which have no transitions of their own.
        method: "exact" insists on closed forms, "refined" on halving steps, "auto" takes what is right and cheap.
        caution: when halving, how many times the departure from the chord seen in a step is allowed for in its halves.
        points: when halving, at most about so many points of the curve a network; the result has what is left.
        seed: names the random steps that are looked at again.

    Raises:
        InputError: a curve of another shape, a network that cannot be read, a smooth one without a threshold, or
            "exact" where there is no closed form.

    Source: Raghu et al. 2017, section 2.1 and Theorem 4.
    """
    models = several(model)
    curve, found = curve.to(torch.float64), []
    for i in range(len(models)):
        network = watch(models[i], curve.shape, threshold)
        own_faces = threshold is None  # closed forms are those of the network's own break points
        closed = None if method == "refined" else _closed(models[i], network, curve, method == "exact", own_faces)
        found.append(_refined(network, curve, caution, points, seed) if closed is None else closed)
    if any(item.layers != found[0].layers for item in found):
        raise InputError("the modules watch different layers; give modules of one architecture.")
    return _together(found)


def _closed(model: nn.Module, network: Watched, curve: Curve, insist: bool, own_faces: bool) -> Transitions | None:
    program = network.program
    if isinstance(curve, Line | Polyline) and program is not None and own_faces:
        line = on_curve(model, curve, pieces=len(curve.points) - 1 if isinstance(curve, Polyline) else 1)
        columns = (line.breakpoints, line.owner_layer, line.owner_neuron, line.owner_face)
        return _exactly(network, "line", columns, line.certificate.smallest)
    circles = _circles(curve) if turnable(program) and own_faces else None
    if circles is not None and program is not None and (insist or sum(program.sizes) <= EXACT_UP_TO):
        with suppress(TooMany):  # then halving steps is cheaper
            every, closest = turn(program, *circles, most=math.inf if insist else MOST)
            every.pop()  # the output's
            number = np.repeat(np.arange(len(every)), [len(item.angle) for item in every])
            group, angle, element, face = (torch.cat(column) for column in zip(*every, strict=True))
            t = (group.double() + angle / circles[1]) / circles[0].shape[1]
            return _exactly(network, "exact", (t.numpy(), number, element.numpy(), face.numpy()), closest)
    if not insist:
        return None
    why = f"a {type(curve).__name__} is no circle and no line"
    if program is None:
        why = "its nonlinearities are smooth"
    elif not own_faces:
        why = "the thresholds are not those of its nonlinearities"
    elif not turnable(program):
        why = "it takes maxima, which have no closed form there"
    raise InputError(f"transitions of this network have no closed form along this curve: {why}; use 'refined'.")


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


def _exactly(network: Watched, method: str, found: Sequence[np.ndarray], closest: float) -> Transitions:
    order = np.argsort(found[0], kind="stable")
    t, layer, element, face = (column[order] for column in found)
    counts = []
    for number, watched in enumerate(network.layers):
        inside, sides = layer == number, len(watched.faces) or watched.entries
        counts.append(np.zeros((sides, watched.width), dtype=np.int64))
        np.add.at(counts[-1], (face[inside], element[inside]), 1)
    return _result(network, method, counts, closest=closest, times=(t,), owners=(np.stack([layer, element], axis=1),))


def _result(network: Watched, method: str, counts: Sequence[np.ndarray], **more: Any) -> Transitions:
    """The result for one network from the counts of each layer, (faces, neurons)."""
    names = tuple(watched.name for watched in network.layers)
    neurons, faces = (tuple(each.sum(axis=axis)[None] for each in counts) for axis in (0, 1))
    return Transitions(names, neurons, faces, method, notes=network.notes, **more)


def _refined(network: Watched, curve: Curve, caution: float, points: int | None, seed: int) -> Transitions:
    if maxima := [watched.name for watched in network.layers if watched.entries]:
        raise InputError(f"'{maxima[0]}' takes a maximum, counted on lines and polylines only: give a Polyline.")
    pieces = curve.planes if isinstance(curve, SemicircularArcs) else 1
    pieces = len(curve.points) - 1 if isinstance(curve, Polyline) else pieces
    corners, levels = np.linspace(0.0, 1.0, pieces + 1).tolist(), [watched.faces for watched in network.layers]

    def values(t: Tensor) -> list[Tensor]:
        return network.values(curve.point(t))

    found = refine(values, levels, caution=caution, points=points, seed=seed, corners=corners)
    return _result(network, "refined", **vars(found))


def _together(found: list[Transitions]) -> Transitions:
    def each(name: str) -> list[Any]:
        return [getattr(item, name) for item in found]

    methods, exact = set(each("method")), all(each("exact"))
    merged: dict[str, Any] = {"method": methods.pop() if len(methods) == 1 else "refined"}
    merged |= {name: tuple(map(np.concatenate, zip(*each(name), strict=True))) for name in ("neurons", "faces")}
    merged |= {name: min(each(name)) for name in ("resolution", "closest")}
    merged |= {name: sum(each(name)) for name in ("points", "missed", "missed_at_most", "unresolved")}
    merged |= {name: tuple(itertools.chain(*each(name))) if exact else None for name in ("times", "owners")}
    return replace(found[0], **merged)
