"""Transitions: how often neurons switch their linear stretch along a curve (Raghu section 2.1)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0.activity._reading import OUTPUT, Reading, read, splits
from epoch0.activity._refine import CAUTION, Refined, check_caution, refine
from epoch0.activity._transitions_result import Transitions
from epoch0.activity._turning import TooMany, Turning, start, turn
from epoch0.curves import Arc, Curve, GreatCircle, Line, Polyline, SemicircularArcs
from epoch0.errors import InputError, suggest
from epoch0.networks.ensemble import Ensemble
from epoch0.regions import LinePartition, on_curve, on_line

EXACT_UP_TO = 4096
"""Neurons up to which circles are walked exactly unless the user says otherwise; above, halving steps is cheaper."""
MOST = 200_000
"""Break points on circles at which "auto" turns to halving steps."""


def transitions(
    model: Any, curve: Any, *, of: str = "network", threshold: float | Sequence[float] | None = None,
    method: str = "auto", caution: float = CAUTION, points: int | None = None, seed: int = 0,
) -> Transitions:  # fmt: skip
    """How often the neurons of a network switch along a curve.

    >>> net = e0.networks.mlp([784, 100, 100, 100, 10], "hardtanh", e0.Gaussian(2.0), seed=0)
    >>> found = e0.transitions(net, e0.Arc(x0, x1))              # x0, x1 of shape (784,)
    >>> found.count, found.per_layer.shape, found.per_neuron("1").shape, found.exact
    (1027, (1, 3), (1, 100), True)
    >>> e0.transitions(nets, e0.Line(x0, x1), of="output").counts      # an ensemble; sign changes of its outputs
    array([2, 0, 5, ...])
    >>> e0.transitions(tanh_net, e0.Arc(x0, x1), threshold=0.0).how
    'steps halved where a crossing could hide, down to 3.1e-05 in t, 1412 points; ...'

    A neuron has one transition whenever its pre-activation passes a value where its slope changes: 0 for a ReLU, either
    of -1 and 1 for a hard tanh. On lines and polylines they are the break points of :func:`epoch0.regions.on_line`. On
    arcs and circles every pre-activation is ``a cos + b sin + c`` between two transitions, so they have closed forms
    too. Elsewhere, and in large networks, steps along the curve are halved until none is suspicious: a value that is on
    one side at both ends can only have crossed unseen if it turns back between, which its departure from the chord
    tells. That is no proof; the result says how many crossings the caution alone found, and what a second look at
    random steps missed.

    Args:
        model: any torch module; an ensemble, or a list of modules of one architecture, is counted one by one. It is
            read in float64 and evaluation mode and stays as it is.
        curve: a curve whose points have the shape of one input.
        of: "network" for all neurons, "output" for the outputs alone, which switch where they pass 0.
        threshold: the value, or values, at which a neuron counts as switching. Needed for networks with smooth
            nonlinearities, which have no transitions of their own.
        method: "exact" insists on closed forms, "refined" on halving steps, "auto" takes what is right and cheap.
        caution: when halving, how many times the departure from the chord seen in a step is allowed for in its halves.
        points: when halving, at most about so many points of the curve a network; what is left is told.
        seed: names the random steps that are looked at again.

    Returns:
        A :class:`Transitions` with counts by network, layer, neuron and face.

    Raises:
        InputError: a curve of another shape, a network that cannot be read, a smooth one without a threshold, or
            "exact" where there is no closed form.

    Source: Raghu et al. 2017, section 2.1 and Theorem 4.
    """
    _check(curve, of, method, caution, points)
    models = [model] if isinstance(model, nn.Module) else model
    if not isinstance(models, Ensemble | Sequence) or not len(models):
        raise InputError(f"model is a {type(model).__name__}; give a module, an ensemble or a list of modules.")
    found = [_one(models[i], curve, of, threshold, method, caution, points, seed) for i in range(len(models))]
    if any(one.layers != found[0].layers for one in found):
        raise InputError("the modules watch different layers; give modules of one architecture.")
    return found[0] if len(found) == 1 else _together(found)


def _check(curve: Any, of: str, method: str, caution: float, points: int | None) -> None:
    if not isinstance(curve, Curve):
        raise InputError(f"curve is a {type(curve).__name__}; give one such as epoch0.Arc(x0, x1).")
    if of not in ("network", OUTPUT):
        raise InputError(f"of={of!r} is not known; use 'network' or 'output'.{suggest(of, ['network', OUTPUT])}")
    if method not in ("auto", "exact", "refined"):
        raise InputError(f"method={method!r} is not known; use 'auto', 'exact' or 'refined'.")
    check_caution(caution, points)


def _one(
    model: nn.Module, curve: Curve, of: str, threshold: float | Sequence[float] | None, method: str, caution: float,
    points: int | None, seed: int,
) -> Transitions:  # fmt: skip
    """One network."""
    curve = curve.to(torch.float64)
    reading = read(model, curve.shape, threshold, of == OUTPUT)
    own_faces = of == OUTPUT or threshold is None  # closed forms are those of the network's own break points
    straight = isinstance(curve, Line | Polyline) and reading.program is not None and own_faces
    if straight and method != "refined":
        return _on_lines(model, curve, reading)
    circles = _circles(curve) if splits(reading.program) and own_faces else None
    neurons = sum(reading.program.sizes) if reading.program is not None else 0
    if circles is not None and (method == "exact" or (method == "auto" and neurons <= EXACT_UP_TO)):
        try:
            return _on_circles(reading, *circles, None if method == "exact" else MOST)
        except TooMany:
            pass
    if method == "exact":
        why = "its nonlinearities are smooth" if reading.program is None else (
            "the thresholds are not those of its nonlinearities" if not own_faces else
            "it takes maxima, which have no closed form there" if not splits(reading.program) else
            f"a {type(curve).__name__} is no circle and no line"
        )  # fmt: skip
        raise InputError(f"transitions of this network have no closed form along this curve: {why}; use 'refined'.")
    return _refined(reading, curve, caution, points, seed)


def _on_lines(model: nn.Module, curve: Curve, reading: Reading) -> Transitions:
    """Break points of the walk on straight lines, by owner."""
    if isinstance(curve, Line):
        line = on_line(model, curve.x0, curve.x1)
    else:
        assert isinstance(curve, Polyline)
        line = on_curve(model, curve, pieces=len(curve.points) - 1)
    assert isinstance(line, LinePartition)
    closest = line.certificate.smallest
    if reading.layers[0].name == OUTPUT:
        assert reading.program is not None
        ends = np.union1d(np.concatenate([[0.0], line.breakpoints, [1.0]]), np.linspace(0, 1, len(line.corners)))
        values = reading.values(line.point(torch.from_numpy(ends))).pop()
        times, elements, faces = [], [], []
        for which, face in enumerate(reading.layers[0].faces):
            row, element = ((values[:-1] > face) ^ (values[1:] > face)).nonzero(as_tuple=True)
            before, after = values[row, element], values[row + 1, element]
            share = ((face - before) / (after - before)).numpy()
            times.append(ends[row] + share * (ends[row + 1] - ends[row]))
            elements.append(element.numpy())
            faces.append(np.full(len(row), which))
        t, element_, face_ = (np.concatenate(one) for one in (times, elements, faces))
        return _exactly(reading, "line", t, np.zeros_like(element_), element_, face_, closest)
    return _exactly(
        reading, "line", line.breakpoints, line.owner_layer, line.owner_neuron, line.owner_face, closest
    )  # fmt: skip


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


def _on_circles(reading: Reading, coefficients: Tensor, span: float, most: int | None) -> Transitions:
    """Closed forms on circles, by owner."""
    assert reading.program is not None
    output = reading.layers[0].faces if reading.layers[0].name == OUTPUT else ()
    found: Turning = turn(reading.program, start(coefficients, span), layers=not output, output=output, most=most)
    numbers = [len(reading.program.folds)] if output else range(len(reading.layers))
    times, owners, elements, faces = [], [], [], []
    for layer, number in enumerate(numbers):
        crossings = found.of(number)
        t = (crossings.group.double() + crossings.angle / span) / coefficients.shape[1]
        times.append(t.numpy())
        owners.append(np.full(len(t), layer))
        elements.append(crossings.element.numpy())
        faces.append(crossings.face.numpy())
    t_, layer_, element_, face_ = (np.concatenate(one) for one in (times, owners, elements, faces))
    return _exactly(reading, "exact", t_, layer_, element_, face_, found.closest)


def _exactly(
    reading: Reading, method: str, t: np.ndarray, layer: np.ndarray, element: np.ndarray, face: np.ndarray,
    closest: float,
) -> Transitions:  # fmt: skip
    order = np.argsort(t, kind="stable")
    t, layer, element, face = t[order], layer[order], element[order], face[order]
    neurons, faces = [], []
    for number, watched in enumerate(reading.layers):
        mine = layer == number
        neurons.append(np.bincount(element[mine], minlength=watched.width)[None])
        faces.append(np.bincount(face[mine], minlength=max(1, len(watched.faces)))[None])
    names = tuple(watched.name for watched in reading.layers)
    return Transitions(
        names, tuple(neurons), tuple(faces), method, closest=closest, times=(t,),
        owners=(np.stack([layer, element], axis=1),), notes=reading.notes,
    )  # fmt: skip


def _refined(reading: Reading, curve: Curve, caution: float, points: int | None, seed: int) -> Transitions:
    """Steps halved where a crossing could hide."""
    for watched in reading.layers:
        if watched.entries:
            raise InputError(
                f"'{watched.name}' takes a maximum; its switches are counted on lines and polylines only. "
                "A Polyline through points of the curve has them exactly."
            )
    corners: Sequence[float] = ()
    if isinstance(curve, Polyline | SemicircularArcs):
        pieces = len(curve.points) - 1 if isinstance(curve, Polyline) else curve.planes
        corners = np.linspace(0.0, 1.0, pieces + 1).tolist()
    counted = refine(
        _along(reading, curve), [watched.faces for watched in reading.layers], caution=caution, points=points,
        seed=seed, corners=corners,
    )  # fmt: skip
    return _of_refined(reading, counted)


def _along(reading: Reading, curve: Curve) -> Callable[[Tensor], list[Tensor]]:
    return lambda t: reading.values(curve.point(t))


def _of_refined(reading: Reading, counted: Refined) -> Transitions:
    names = tuple(watched.name for watched in reading.layers)
    neurons = tuple(counts.sum(axis=0)[None] for counts in counted.counts)
    faces = tuple(counts.sum(axis=1)[None] for counts in counted.counts)
    return Transitions(
        names, neurons, faces, "refined", counted.resolution, counted.points, counted.margin, counted.missed,
        counted.missed_at_most, counted.unresolved, notes=reading.notes,
    )  # fmt: skip


def _together(found: list[Transitions]) -> Transitions:
    """Several networks as one result."""
    methods = {one.method for one in found}
    exact = not methods & {"refined"}
    return Transitions(
        found[0].layers,
        tuple(np.concatenate([one.neurons[i] for one in found]) for i in range(len(found[0].layers))),
        tuple(np.concatenate([one.faces[i] for one in found]) for i in range(len(found[0].layers))),
        methods.pop() if len(methods) == 1 else "refined", min(one.resolution for one in found),
        sum(one.points for one in found), sum(one.margin for one in found), sum(one.missed for one in found),
        sum(one.missed_at_most for one in found), sum(one.unresolved for one in found),
        min(one.closest for one in found),
        tuple(t for one in found for t in one.times or ()) if exact else None,
        tuple(o for one in found for o in one.owners or ()) if exact else None, found[0].notes,
    )  # fmt: skip
