"""Trajectory length through training: a callback for any loop (Raghu section 3.2, Figures 8, 10 and 18)."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from epoch0 import plots
from epoch0.arguments import Seed, Size, checked
from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure.length import grid, grid_errors, points_apart, tangent_norms
from epoch0.results import Result, aligned, finite
from epoch0.theory.checks import Array
from epoch0.tracing.guard import bare, unchanged
from epoch0.tracing.layers import NamedLayer, labelled
from epoch0.tracing.tape import Tape, tape
from epoch0.train.stacked import Stacked
from epoch0.train.trajectory_regularization import TrajectoryRegularization

DOTTED = {"pooling": "#666666", "batch norm": "#0072B2", "trajectory regularization": "#D55E00"}
"""Kinds of layers that are marked by a dotted line, and its colour."""

_KINDS: dict[type[nn.Module], str] = {TrajectoryRegularization: "trajectory regularization"}


@checked
class TrajectoryLengths(Result):
    """Measure how long a curve is after each layer of a model while it trains, and keep what was measured.

    >>> watch = TrajectoryLengths(e0.Arc(x0, x1))              # x0, x1 of the shape of one input
    >>> done = train(net, (x, y), steps=20, callbacks=[Every(10, watch)])      # our loop, every 10 steps
    >>> row = watch(30, net)                                   # or any other loop, in which this is step 30
    >>> watch.layers, watch.kinds, watch.lengths.shape         # 4 measurements; input and three layers
    (('0', '2', '4'), ('linear', 'linear', 'linear'), (4, 4))
    >>> watch.plot().savefig("lengths.png")

    Every linear map, convolution, pool, norm and residual sum is a layer. An activation right behind a linear map or a
    convolution belongs to it, as in the papers; behind a norm it is a layer of its own, so that what the norm does is
    seen. The curve is followed by tangents at ``points`` equally spaced t with one random offset, the same at every
    step: :func:`epoch0.trajectory_length` with that seed gives the same numbers. What is kept of the model's run (its
    layers) is found at the first call; later calls only run it on the points, and cost less than two training steps.

    The model comes back unchanged to the bit: parameters, buffers, gradients, mode, random states. A model that has
    diverged is measured as NaN or infinity, not refused, so that the run goes on.

    Args:
        points: tangents, at least 1; 2 with ``batch_norm="batch"``.
        seed: names the offset of the grid of t.
        batch_norm: ``"eval"`` (running statistics) or ``"batch"`` (those of the trajectory's points, held fixed);
            docs/trajectory-regularization tells how they differ, at step 0 most.
        activations: ``"joined"`` as above, or ``"apart"``: each a layer of its own.
        name: the column in the rows of our loop.

    Source: Raghu et al. 2017, section 3.2.
    """

    def __init__(
        self,
        curve: Curve,
        points: Size = 32,
        seed: Seed = 0,
        batch_norm: Annotated[str, ("eval", "batch")] = "eval",
        activations: Annotated[str, ("joined", "apart")] = "joined",
        name: str = "trajectory_lengths",
    ) -> None:
        if points < 2 and batch_norm == "batch":
            raise InputError(f"points={points!r}; at least 2 with batch_norm='batch'.")
        self.curve, self.points, self.seed, self.name = curve, points, seed, name
        self.batch_norm, self.activations = batch_norm, activations
        self.steps: list[int] = []  #: at which it was called, in order
        self.layers: tuple[str, ...] = ()  #: their names in order of execution; empty before the first call
        self.kinds: tuple[str, ...] = ()  #: of each, such as "linear", "convolution", "batch norm", "sum"
        self._norms: list[Array] = []
        self._record: Tape | None = None
        self._places: tuple[NamedLayer, ...] = ()
        self._t = grid(points, seed, 0)

    def __call__(self, step: int, model: nn.Module, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Measure the model as it is now: ``{name: lengths}``, None for a number that is not finite."""
        if isinstance(model, Stacked):
            raise InputError("a stack of networks is many models; watch one: lambda s, stack, m: watch(s, stack[0]).")
        norms = self._measure(bare(model))
        self._norms.append(norms)
        self.steps.append(int(step))
        return {self.name: finite(norms.mean(axis=0).tolist())}

    @property
    def lengths(self) -> Array:
        """Length at the input and after each layer, shape (measurements, layers + 1)."""
        return np.array([norms.mean(axis=0) for norms in self._norms]).reshape(-1, len(self.layers) + 1)

    @property
    def errors(self) -> Array:
        """Standard errors of the lengths over t, conservative, shape (measurements, layers + 1)."""
        return np.array([grid_errors(norms) for norms in self._norms]).reshape(-1, len(self.layers) + 1)

    def rows(self) -> list[dict[str, Any]]:
        """One row a step and layer, the input first, in plain numbers; None where there is none."""
        rows: list[dict[str, Any]] = []
        names, kinds = ("input", *self.layers), ("input", *self.kinds)
        for step, lengths, errors in zip(self.steps, self.lengths.tolist(), self.errors.tolist(), strict=True):
            before: float | None = None
            for name, kind, length, error in zip(names, kinds, lengths, errors, strict=True):
                row = {"step": step, "layer": name, "kind": kind, "length": length, "error": error}
                row["growth"] = length / before if before else None
                rows.append({**finite(row), "status": _status(length, before)})
                before = length
        return rows

    to_dict = rows

    def plot(self) -> "plots.Figure":
        """Layers on x, length on y, a line a step coloured by it, dots at pools and norms: Raghu's Figures 8 and 10."""
        from matplotlib import colormaps

        if not self.steps:
            raise InputError("nothing was measured yet: call watch(step, model), or hand it to a loop.")
        names, count = ["input", *self.layers], len(self.steps)
        colours = [colormaps["viridis"](at) for at in np.linspace(0, 0.92, max(2, count))][:count]
        lengths = self.lengths
        shown = np.where(np.isfinite(lengths) & (lengths > 0), lengths, np.nan)
        picture, axes = plots.figure(min(14.0, 3.6 + 0.33 * len(names)), 4.4)
        with plots.style():
            look: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.2, "elinewidth": 0.7}
            chosen = set(np.unique(np.linspace(0, count - 1, min(9, count)).round().astype(int)).tolist())
            for place, (line, error, colour) in enumerate(zip(shown, self.errors, colours, strict=True)):
                look["label"] = f"step {self.steps[place]}" if place in chosen else None
                axes.errorbar(range(len(names)), line, yerr=2 * np.nan_to_num(error), color=colour, **look)
            axes.set(yscale="log", xlabel="layer", ylabel="trajectory length")
            turned = {"rotation": 90 if len(names) > 13 else 45, "ha": "right", "rotation_mode": "anchor"}
            axes.set_xticks(range(len(names)), names, fontsize=7.5 if len(names) > 25 else 8.5, **turned)
            for at, kind in enumerate(self.kinds, 1):
                if kind in DOTTED:
                    label = kind if kind not in self.kinds[: at - 1] else None
                    axes.axvline(at, color=DOTTED[kind], linestyle=":", linewidth=1.3, zorder=0.8, label=label)
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
            about = f"one network, {self.points} tangents along one curve; bars: two standard errors over the curve"
            statistics = "running statistics" if self.batch_norm == "eval" else "statistics of the trajectory's points"
            about += f"; batch norm by {statistics}" if "batch norm" in self.kinds else ""
            plots.heading(picture, "Trajectory length after each layer, through training", about)
        return picture

    def __str__(self) -> str:
        """A table: one line a layer, a column for the first, the middle and the last step."""
        if not self.steps:
            return "Trajectory lengths through training: nothing measured yet"
        shown = sorted({0, (len(self.steps) - 1) // 2, len(self.steps) - 1})
        head = ("layer", "kind", *(f"step {self.steps[index]}" for index in shown))
        numbers = [[f"{length:.5g}" for length in self.lengths[index]] for index in shown]
        rows = zip(("input", *self.layers), ("input", *self.kinds), *numbers, strict=True)
        title = f"Trajectory length at {len(self.steps)} steps, {self.points} tangents, batch norm: {self.batch_norm}"
        return "\n".join([title, *aligned([head, *rows], slice(2, None))])

    def __getstate__(self) -> dict[str, Any]:
        """What was measured can be copied and pickled; the model that was looked at is left out."""
        return {**self.__dict__, "_record": None}

    def _measure(self, model: nn.Module) -> Array:
        """|dz/dt| at the input and each layer, shape (points, layers + 1)."""
        at, known = next(((p.device, p.dtype) for p in model.parameters()), None), self._record
        if known is None or known.model is not model or at != (known.x.device, known.x.dtype):
            known = self._look_at(model)
        try:
            return self._tangents(known)
        except InputError:  # it computes otherwise than when it was looked at: pruned, parametrized, a part frozen
            return self._tangents(self._look_at(model))

    def _look_at(self, model: nn.Module) -> Tape:
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        x = self.curve.point(self._t[:2]).to(device)
        statistics = "train" if self.batch_norm == "batch" else "eval"
        with torch.autocast(device.type, enabled=False), tape(model, x, batch_norm=statistics) as record:
            self._record = points_apart(record)
            self._places = labelled(record, joined=self.activations == "joined", own=_KINDS)
        if not (names := tuple(place.name for place in self._places)):
            raise InputError(f"the model {type(model).__name__} has no layer to measure: no weights, pools or norms.")
        if self.layers and names != self.layers:
            text = f"the layers of the model changed on the way, from {', '.join(self.layers)} to {', '.join(names)}"
            raise InputError(f"{text}; begin another TrajectoryLengths for it.")
        self.layers, self.kinds = names, tuple(place.kind for place in self._places)
        return self._record

    def _tangents(self, record: Tape) -> Array:
        with unchanged(record.model), torch.inference_mode(False):
            record.model.eval()
            return tangent_norms(record, [0, *(place.node for place in self._places)], self.curve, self._t)


def _status(length: float, before: float | None) -> str:
    if not math.isfinite(length):
        return "not finite"
    if before is None:
        return "given"
    return "vanished" if length == 0 else "grows" if length > before else "shrinks" if length < before else "keeps"
