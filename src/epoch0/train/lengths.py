"""Trajectory length through training: a callback for any loop (Raghu section 3.2, Figures 8, 10 and 18)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots
from epoch0.arguments import Seed, Size, checked
from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure.many import grid_offset
from epoch0.measure.pieces import Array, grid_errors, points_at_once, row_norms, shares_statistics
from epoch0.results import Result, aligned
from epoch0.tracing.guard import bare, unchanged
from epoch0.tracing.layers import Place, labelled
from epoch0.tracing.tape import Tape, tape
from epoch0.train.stacked import Stacked
from epoch0.train.trajectory_regularization import TrajectoryRegularization

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    Batch norm is what it is in evaluation unless ``batch_norm="batch"`` asks for the mean and variance of the
    trajectory's own points, held fixed. The two differ most at step 0: in evaluation an untrained batch norm does
    nothing; by the points' own statistics short curves are blown up, and a channel that hardly moves is divided by a
    variance close to 0, most likely the "division by a close to 0 variance" of Raghu's Figure 10.

    The model comes back unchanged to the bit: parameters, buffers, gradients, mode, random states. A model that has
    diverged is measured as NaN or infinity, not refused, so that the run goes on.

    Args:
        points: tangents, at least 1; 2 with ``batch_norm="batch"``.
        seed: names the offset of the grid of t.
        batch_norm: ``"eval"`` (running statistics) or ``"batch"`` (those of the trajectory's points).
        activations: ``"joined"`` as told above, or ``"apart"``: each a layer of its own.
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
        self._places: tuple[Place, ...] = ()
        self._points = self._moves = torch.empty(0)

    def __call__(self, step: int, model: nn.Module, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Measure the model as it is now: ``{name: lengths}``, None for a number that is not finite."""
        if isinstance(model, Stacked):
            raise InputError("a stack of networks is many models; watch one: lambda s, stack, m: watch(s, stack[0]).")
        norms = self._measure(bare(model))
        self._norms.append(norms)
        self.steps.append(int(step))
        return {self.name: [length if math.isfinite(length) else None for length in norms.mean(axis=0).tolist()]}

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
                finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
                rows.append({**finite, "status": _status(length, before)})
                before = length
        return rows

    to_dict = rows

    def plot(self) -> "Figure":
        """Layers on x, length on y, one line a step coloured by it, as in Raghu's Figures 8 and 10."""
        if not self.steps:
            raise InputError("nothing was measured yet: call watch(step, model), or hand it to a loop.")
        picture, axes = plots.figure(min(14.0, 3.6 + 0.33 * (len(self.layers) + 1)), 4.4)
        with plots.style():
            draw_lengths(axes, self.steps, self.layers, self.kinds, self.lengths, self.errors)
            statistics = {"eval": "running statistics", "batch": "statistics of the trajectory's points"}
            about = f"one network, {self.points} tangents along one curve; bars: two standard errors over the curve"
            if "batch norm" in self.kinds:
                about += f"; batch norm by {statistics[self.batch_norm]}"
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
        at = next(((p.device, p.dtype) for p in model.parameters()), None)
        if self._record is None or self._record.model is not model or at != (self._points.device, self._points.dtype):
            self._look_at(model)
        try:
            return self._tangents(model)
        except InputError:  # it computes otherwise than when it was looked at: pruned, parametrized, a part frozen
            self._look_at(model)
            return self._tangents(model)

    def _look_at(self, model: nn.Module) -> None:
        """Find the layers of a model."""
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        x = self.curve.point(self._grid()[:2]).to(device)
        statistics = "train" if self.batch_norm == "batch" else "eval"
        with torch.autocast(device.type, enabled=False), tape(model, x, batch_norm=statistics) as record:
            # each point moves alone: with the derivative of the statistics all points would move at once
            self._record = replace(record, hold_statistics=shares_statistics(record))
            self._places = labelled(record, joined=self.activations == "joined", own=_KINDS)
        curve = self.curve.to(torch.float64) if record.x.dtype == torch.float64 else self.curve
        self._points, self._moves = (found(self._grid()).to(record.x) for found in (curve.point, curve.tangent))
        names = tuple(place.name for place in self._places)
        if not names:
            raise InputError(f"the model {type(model).__name__} has no layer to measure: no weights, pools or norms.")
        if self.layers and names != self.layers:
            raise InputError(
                f"the layers of the model changed on the way, from {', '.join(self.layers)} to {', '.join(names)}; "
                "begin another TrajectoryLengths for it."
            )
        self.layers, self.kinds = names, tuple(place.kind for place in self._places)

    def _grid(self) -> Tensor:
        return (torch.arange(self.points, dtype=torch.float64) + grid_offset(self.seed, 0)) / self.points

    def _tangents(self, model: nn.Module) -> Array:
        record, nodes = self._record, [0, *(place.node for place in self._places)]
        assert record is not None
        at_once = self.points if record.hold_statistics else points_at_once(record, nodes)
        with unchanged(model):
            model.eval()
            parts = zip(self._points.split(at_once), self._moves.split(at_once), strict=True)
            return np.concatenate([row_norms(record.tangents(nodes, x, dx)) for x, dx in parts])


def _status(length: float, before: float | None) -> str:
    if not math.isfinite(length):
        return "not finite"
    if before is None:
        return "given"
    if length == 0:
        return "vanished"
    return "grows" if length > before else "shrinks" if length < before else "keeps"


def draw_lengths(
    axes: "Axes", steps: Sequence[int], layers: Sequence[str], kinds: Sequence[str], lengths: Any, errors: Any = None
) -> None:
    """Draw into axes of a constrained layout: one line a step in the colour of the step, dots at pools and norms.

    >>> from matplotlib.figure import Figure
    >>> axes = Figure(layout="constrained").subplots()
    >>> draw_lengths(axes, [0, 100], ["0", "2"], ["linear", "linear"], np.ones((2, 3)))

    Lengths and their standard errors have the shape (measurements, layers + 1), the input first; a number that is not
    finite or not above 0 is left out.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.ticker import LogFormatter

    values = np.asarray(lengths, dtype=float)
    shown = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    colours = [colormaps["viridis"](at) for at in np.linspace(0, 0.92, max(2, len(steps)))][: len(steps)]
    x = np.arange(values.shape[1])
    for index, colour in enumerate(colours):
        bars = None if errors is None else 2 * np.nan_to_num(np.asarray(errors, dtype=float)[index])
        axes.errorbar(x, shown[index], yerr=bars, color=colour, marker="o", markersize=3, linewidth=1.2, elinewidth=0.7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set_xticks(x, ["input", *layers], rotation=90 if len(layers) > 12 else 45, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", labelsize=7.5 if len(layers) > 24 else 8.5)
    axes.set_xlabel("layer")
    axes.set_ylabel("trajectory length")
    for kind, colour in DOTTED.items():
        places = [place for place, other in enumerate(kinds, start=1) if other == kind]
        for number, place in enumerate(places):
            label = kind if number == 0 else None
            axes.axvline(place, color=colour, linestyle=":", linewidth=1.3, zorder=0.8, label=label)
    if any(kind in DOTTED for kind in kinds):
        axes.legend(loc="best", title="layers that are dotted")
    if not colours:
        return
    edges = np.arange(len(steps) + 1)
    scale = ScalarMappable(BoundaryNorm(edges, len(steps)), ListedColormap(colours))
    side = axes.figure.colorbar(scale, ax=axes, label="training step", pad=0.02)
    some = np.unique(np.linspace(0, len(steps) - 1, min(9, len(steps))).round().astype(int))
    side.set_ticks([place + 0.5 for place in some], labels=[str(steps[place]) for place in some])
    side.minorticks_off()
