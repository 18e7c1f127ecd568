"""Training one layer alone; trajectory lengths, watched through training and held down by a layer (Raghu section 3)."""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import plots
from epoch0.activity.weights import named_layer
from epoch0.arguments import Seed, Size, Std, checked
from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.measure.length import grid, grid_errors, points_apart, tangent_norms
from epoch0.results import Result, Shown, aligned, finite
from epoch0.theory.checks import Array
from epoch0.tracing.guard import bare, check_model, unchanged
from epoch0.tracing.layers import NamedLayer, labelled
from epoch0.tracing.tape import Tape, tape
from epoch0.train.evaluation import Training
from epoch0.train.loop import train
from epoch0.train.stacked import Stacked

DOTTED = {"pooling": "#666666", "batch norm": "#0072B2", "trajectory regularization": "#D55E00"}
"""Kinds of layers that are marked by a dotted line, and its colour."""


@checked
class TrajectoryRegularization(nn.Module):
    """Multiply by a learnt lambda, and add scale * lambda * (current length / original length) to the loss.

    >>> net = nn.Sequential(nn.Linear(64, 100), TrajectoryRegularization(), nn.ReLU(), nn.Linear(100, 10))
    >>> loss = F.cross_entropy(net(x), y)                      # x of shape (100, 64); nothing is added here
    >>> loss.backward()                                        # the gradients are those of the loss and the penalty
    >>> penalty(net)                                           # what the last forward pass has added to the loss
    tensor(0.0100)

    Lengths are those of the piecewise linear curve through neighbouring examples of the minibatch, per segment; the
    original one is that of the first minibatch that is trained on. Training and evaluation compute the same outputs to
    the bit, and lambda begins at 1, where the layer is the identity.

    Each ``backward()`` that passes the layer in train mode trains on the penalty, in any loop, with any loss; the
    *value* of the loss does not show it: read :func:`penalty`. docs/trajectory-regularization tells why, and what to do
    with several backward passes before an update, a ``GradScaler``, or gradients of gradients.

    Attributes:
        multiplier: lambda, a parameter of shape ().
        original_segment: buffer, mean length of a segment in the first minibatch; 0 before. It is in the state dict.
        segment: buffer, the same of the last minibatch.
        penalty: buffer, what was added to the loss at the last forward pass.

    Raises:
        InputError: in train mode, for a minibatch of fewer than two examples (``drop_last=True`` avoids it). A first
            length of 0 adds nothing, and is set by the first above 0.

    Source: Raghu et al. 2017, section 3.3, Figure 11.
    """

    original_segment: Tensor
    segment: Tensor
    penalty: Tensor

    def __init__(self, scale: Std = 0.01) -> None:
        super().__init__()
        self.scale = float(scale)
        self.multiplier = nn.Parameter(torch.ones(()))
        for name in ("original_segment", "segment", "penalty"):
            self.register_buffer(name, torch.zeros(()), persistent=name == "original_segment")

    def forward(self, x: Tensor) -> Tensor:
        """Lambda times x, of shape (batch, ...)."""
        if not (self.training and torch.is_grad_enabled()):
            return x * self.multiplier
        if x.dim() == 0 or len(x) < 2:
            needs = "the curve through the examples of a minibatch needs at least two"
            raise InputError(f"a minibatch of shape {tuple(x.shape)}: {needs}. Use drop_last=True, or model.eval().")
        scaled: Tensor
        scaled, segment, original = _Regularized.apply(x, self.multiplier, self.original_segment, self.scale)
        with torch.no_grad():
            added = self.scale * self.multiplier * segment / _not_zero(original)
            for buffer, value in ((self.original_segment, original), (self.segment, segment), (self.penalty, added)):
                buffer.copy_(value)
        return scaled

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}"


def mean_segment(x: Tensor) -> Tensor:
    """Mean distance between neighbouring examples of x, shape (examples, ...)."""
    return _lengths(x[1:] - x[:-1]).mean()


def _lengths(steps: Tensor) -> Tensor:
    rest, kind = tuple(range(1, steps.dim())), torch.promote_types(steps.dtype, torch.float32)
    found: Tensor = torch.linalg.vector_norm(steps, dim=rest, dtype=kind) if rest else steps.abs().to(kind)
    return found


def _not_zero(x: Tensor) -> Tensor:
    return torch.where(x == 0, torch.ones_like(x), x)


class _Regularized(torch.autograd.Function):
    """x times lambda, with the penalty's gradient 1 in the backward pass; written out to save memory."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, multiplier: Tensor, original: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's output, the mean segment, and the original one, which is the mean segment if there was none."""
        segment = mean_segment(x).to(multiplier.dtype)
        return x * multiplier, segment, torch.where(original > 0, original, segment)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, multiplier, _, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(x, multiplier, output[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of loss + scale * multiplier * mean segment / original, by x and by the multiplier."""
        x, multiplier, original = ctx.saved_tensors
        above, weight = gradients[0], torch.full_like(original, ctx.scale) / _not_zero(original)
        steps = x[1:] - x[:-1]
        lengths = _lengths(steps)
        pull = (weight * multiplier / len(steps) / _not_zero(lengths)).to(x.dtype)  # a step of length 0 pulls nowhere
        steps, by_x = steps * pull.reshape(-1, *[1] * (x.dim() - 1)), above * multiplier
        by_x[1:] += steps
        by_x[:-1] -= steps
        by_multiplier = (above * x).sum(dtype=multiplier.dtype) + weight * lengths.mean().to(multiplier.dtype)
        return by_x, by_multiplier, None, None


@checked
def penalty(model: nn.Module) -> Tensor:
    """What the layers of a model have added to the loss at their last forward pass in train mode, shape (). Without a
    gradient: the layers see to it themselves.
    """
    if not (layers := [part for part in model.modules() if isinstance(part, TrajectoryRegularization)]):
        raise InputError(f"the model {type(bare(model)).__name__} has no TrajectoryRegularization layer.")
    return torch.stack([layer.penalty for layer in layers]).sum(dim=0)


@dataclass(frozen=True)
class Replaced(Shown):
    """A model whose batch norms were replaced; another module only if it was a batch norm itself."""

    model: nn.Module
    names: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(name or "the model itself" for name in self.names)
        return f"{len(self.names)} batch norm{'s' * (len(self.names) > 1)} replaced: {names}"


@checked
def replace_batch_norm(model: nn.Module, scale: Std = 0.01) -> Replaced:
    """Put a :class:`TrajectoryRegularization` in the place of every batch norm of a model, in place.

    >>> net = e0.networks.resnet(20, stable=False, seed=0)
    >>> print(replace_batch_norm(net))
    21 batch norms replaced: bn1, layer1.0.bn1, ...
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)               # made afterwards: the lambdas are new
    >>> images, labels = torch.randn(4, 3, 32, 32), torch.arange(4)
    >>> F.cross_entropy(net(images), labels).backward()                     # trains on the penalties too

    BatchNorm1d, 2d, 3d, SyncBatchNorm and their subclasses; those shared by several places stay shared. Names, modes,
    devices and dtypes stay. It is meant for a model that is not trained yet: running statistics, weights and biases of
    the batch norms go, and nothing shifts in their place.

    Source: Raghu et al. 2017, section 3.3.
    """
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise InputError(f"the model is wrapped in {type(model).__name__}; replace its batch norms before wrapping it.")
    inner, kind = bare(model), nn.modules.batchnorm._BatchNorm
    places = [(name, part) for name, part in inner.named_modules(remove_duplicate=False) if isinstance(part, kind)]
    if not places:
        text = f"the model {type(inner).__name__} has no batch norm module to replace"
        raise InputError(f"{text}; where forward calls F.batch_norm, put TrajectoryRegularization() yourself.")
    made: dict[int, TrajectoryRegularization] = {}
    for name, part in places:
        if id(part) not in made:
            held = next((t for t in (part.weight, part.running_mean) if t is not None), torch.empty(0))
            made[id(part)] = TrajectoryRegularization(scale).to(held).train(part.training)
        if name:
            inner.set_submodule(name, made[id(part)])
    return Replaced(made.get(id(inner), model), tuple(name for name, _ in places))


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
            own: dict[type[nn.Module], str] = {TrajectoryRegularization: "trajectory regularization"}
            self._places = labelled(record, joined=self.activations == "joined", own=own)
        if not (names := tuple(place.name for place in self._places)):
            raise InputError(f"the model {type(model).__name__} has no layer to measure: no weights, pools or norms.")
        if self.layers and names != self.layers:
            raise InputError(f"layers changed on the way: {self.layers} to {names}; make another TrajectoryLengths.")
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


@checked
def train_one_layer(model: nn.Module, layer: str | int, data: Any, **options: Any) -> Training:
    """Train one layer's weights and bias in place; all other parameters and all buffers stay as they are, to the bit.

    >>> net = e0.networks.mlp([64, *[100] * 3, 10], "hardtanh", weights=e0.Gaussian(1.0), seed=0)
    >>> done = train_one_layer(net, 1, (x, y), epochs=50, evaluate=Accuracy(x, y))     # x (100, 64), y (100,)
    >>> done.steps, done.history[-1]["accuracy"] > 0.9
    (100, True)

    Whatever happens, so do requires_grad, hooks and modes. The others are frozen, not taken out: signals and gradients
    pass through them. Modules with buffers of their own (batch norm and its like, spectral norm) compute as in
    evaluation, with the statistics they have; so a batch norm that has never seen a batch is the identity. Dropout acts
    as in any training.

    The layer is a name, or a number among dense and convolutional ones, from 0; the rest as in
    :func:`epoch0.train.train`.

    Source: Raghu et al. 2017, section 3.1, Figures 7 and 17.
    """
    check_model(model)
    inner = bare(model)
    name = named_layer(inner, layer)
    part = inner.get_submodule(name)
    own, ids = set(part.modules()), {id(parameter) for parameter in part.parameters()}
    for other, module in inner.named_modules():
        shared = [key for key, parameter in module.named_parameters(recurse=False) if id(parameter) in ids]
        if module not in own and shared:
            raise InputError(f"layer={name!r} shares its parameters with '{f'{other}.{shared[0]}'.lstrip('.')}'.")
    # at every call, as the loop puts the whole model in train mode after each evaluation; it gives the modes back
    quiet = lambda module, inputs: nn.Module.train(module, False) and None  # noqa: E731
    with ExitStack() as after:
        for module in inner.modules():
            if module not in own and any(buffer is not None for buffer in module._buffers.values()):
                after.callback(module.register_forward_pre_hook(quiet, prepend=True).remove)
        for parameter in inner.parameters():
            after.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_(id(parameter) in ids)
        return train(model, data, **options)
