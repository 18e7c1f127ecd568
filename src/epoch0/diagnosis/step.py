"""One step of an optimizer, seen in the outputs: what it does to the examples of the step and to others (THEORY 0).

Gains say what a network does to a signal; whether it trains is decided by what a step does to its outputs. Two
derivatives forward and two back at the weights as they are, and the same once more after one step, because a readout
or a branch that starts at zero gets its gradient in the second step only.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing.call import Call, as_written, described
from epoch0.tracing.failures import explain_first_run
from epoch0.tracing.forward_derivatives import prepare_forward_derivatives
from epoch0.tracing.guard import same_noise, unchanged
from epoch0.tracing.loss import NotFinite

Optimizer = Literal["adam", "sgd"]
OPTIMIZERS: tuple[Optimizer, Optimizer] = ("adam", "sgd")

EPS = 1e-8
"""Adam's: gradients below it are taken for nothing."""

USUAL: dict[Optimizer, float] = {"adam": 1e-3, "sgd": 1e-2}
"""The rate of the first step."""

COSTLY = 0.05
"""CPU seconds of a forward and backward pass from which derivatives along a step are taken from differences."""

UNSEEN = 0.4
"""The alignment that is taken where the loss does not come from one output: that of a usual network that trains."""

LEAST = 16
"""Examples from which half of them are held out of the step: with fewer both halves say little."""

LADDER: dict[Optimizer, list[float]] = {
    "adam": [10 ** (-6 + k / 2) for k in range(11)],
    "sgd": [10 ** (-6 + k / 2) for k in range(15)],
}
"""Rates among which the largest that does not raise the loss is looked for, 1e-6 to 0.1 and to 10."""


@dataclass(frozen=True)
class Step:
    """What one step of an optimizer does to a network, without momentum.

    Attributes:
        optimizer: ``"adam"`` (the sign of the gradient, where it exceeds Adam's eps) or ``"sgd"`` (the gradient).
        loss: before, on the examples of the step.
        reached: share of the weights that the step moves; for Adam mean |g|/(|g| + eps).
        alignment: cosine between how the outputs move and how the loss wants them to, both less their means over the
            examples; 1 is the best, 0 for a network that gives all examples the same answer.
        held: the same on examples that the step has not seen; None if the batch cannot be split.
        second: ``alignment`` after one step at the usual rate; the same as before it where a pass takes long and every
            weight moves in the first step.
        second_held: ``held`` after it.
        pace: by what share of the loss it falls per unit of the rate, to first order, through outputs that differ
            between examples.
        second_pace: the same after one step at the usual rate.
        change: log10 of the loss on unseen examples (on the same without them) after that step over before.
        largest: the largest rate of :data:`LADDER` at which the step does not raise the loss, 0 if none.
        updates: weight's name -> root mean square of the step at rate 1 over that of the weight, where it is not zero.
        still: weights that do not move in the first step, and of these
        still_then: those that do not move in the second either.
        finite: whether outputs and loss were finite before and after.
        classes: among how many outputs the loss chooses, as far as the pull on them shows; 1 for values to be met.
        examples: of the step.
        seconds: CPU seconds of its forward and backward pass.
    """

    optimizer: Optimizer
    loss: float
    reached: float
    alignment: float
    held: float | None
    second: float
    second_held: float | None
    pace: float
    second_pace: float
    change: float
    largest: float
    updates: Mapping[str, float]
    still: tuple[str, ...]
    still_then: tuple[str, ...]
    finite: bool
    classes: float = 1.0
    examples: int = 0
    seconds: float = 0.0


Weights = dict[str, Tensor]


@dataclass(frozen=True)
class _Pull:
    """How the loss wants the outputs to move, the outputs, and which draw of dropout they are of."""

    pull: Tensor
    output: Tensor
    draw: int


class _Functional(nn.Module):
    """A call of the model as a function of its weights, whatever way it is called."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.inner = call.model

    def forward(self, call: Call) -> Any:
        return call.raw(self.inner)


class _Probe:
    """The model with other weights, on the examples of the step and on others."""

    def __init__(self, call: Call, seed: int) -> None:
        self.call, self.seed, self.draws, self.costly = call, seed, 0, False
        self.module = _Functional(call)
        self.seen, self.others = _halves(call, seed)

    def raw(self, weights: Weights, call: Call) -> Any:
        self.draws += 1  # dropout draws anew each time, as in training
        same_noise(self.seed * 1009 + self.draws)
        buffers = {f"inner.{name}": buffer.clone() for name, buffer in self.call.model.named_buffers()}
        state = {f"inner.{name}": weight for name, weight in weights.items()}
        try:
            return functional_call(self.module, {**state, **buffers}, (call,))
        except (InputError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise explain_first_run(error, self.call.model, described(self.call.batch), ()) from error

    def pulls(self, weights: Weights, call: Call) -> tuple[float, "_Pull", Any]:
        """The loss, how it wants the outputs to move, and the loss with its graph."""
        raw = self.raw(weights, call)
        loss = call.loss(raw)
        if not loss.requires_grad:
            raise InputError(
                f"the loss of {type(self.call.model).__name__} has no gradient: no weight that requires one takes part "
                "in it, or the model runs without gradients (torch.no_grad, .detach())."
            )
        output = call.output(raw)
        pull = torch.autograd.grad(loss, output, retain_graph=True, allow_unused=True)[0]
        pull = torch.zeros_like(output) if pull is None else -pull  # the loss is made of other outputs
        return float(loss.detach()), _Pull(pull.detach(), output.detach(), self.draws), loss

    def moves(self, weights: Weights, direction: Weights, call: Call, pull: "_Pull") -> Tensor:
        """How the outputs move along a direction of the weights, per unit of it."""
        if self.costly:
            return self._differences(weights, direction, call, pull)
        try:
            with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
                dual = {name: forward_ad.make_dual(weights[name], d) for name, d in direction.items()}
                tangent = forward_ad.unpack_dual(call.output(self.raw({**weights, **dual}, call))).tangent
                return torch.zeros(()) if tangent is None else tangent.clone()
        except (InputError, RuntimeError):  # torch has no forward derivative
            return self._differences(weights, direction, call, pull)

    def _differences(self, weights: Weights, direction: Weights, call: Call, pull: "_Pull") -> Tensor:
        """The same from one short step and what the outputs were before it, with the same dropout."""
        step = 3e-4 * math.sqrt(_square(weights.values()) / max(_square(direction.values()), 1e-300))
        self.draws, draws = pull.draw - 1, self.draws
        with torch.no_grad():
            moved = {name: weights[name] + step * d for name, d in direction.items()}
            output = call.output(self.raw({**weights, **moved}, call))
        self.draws = draws
        difference: Tensor = (output - pull.output) / step
        return difference

    def loss(self, weights: Weights, call: Call) -> float:
        with torch.enable_grad():  # the loss is checked for its graph
            return float(call.loss(self.raw(weights, call)).detach())


def steps(call: Call, seed: int = 0) -> dict[Optimizer, Step]:
    """What one step of Adam and one of SGD do to the outputs.

    >>> found = steps(Call.of(model, x, y))                     # x of shape (examples, ...), y of shape (examples,)
    >>> found["adam"].held, found["sgd"].largest
    (0.41, 1.0)

    Args:
        call: a model, a batch and a loss; the model is given back unchanged to the bit.
        seed: which half of the examples is held back, and dropout.

    Raises:
        InputError: if no weight of the model can be trained.
    """
    model = call.model
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    if not weights:
        raise InputError(f"no parameter of {type(model).__name__} requires a gradient; there is nothing to train.")
    prepare_forward_derivatives()
    with unchanged(model, weights=False), torch.inference_mode(False), as_written():
        model.train()
        probe = _Probe(call, seed)
        start = {name: p.detach() for name, p in weights.items()}
        with _written_back(model) as forget:
            started = time.process_time()
            first, seconds, count = _gradient(probe, start), time.process_time() - started, probe.seen.examples
            forget()
            probe.costly = seconds > COSTLY
            found = {optimizer: _one_step(probe, start, first, optimizer) for optimizer in OPTIMIZERS}
    classes = _classes(first.pull)
    return {name: replace(one, classes=classes, examples=count, seconds=seconds) for name, one in found.items()}


@contextmanager
def _written_back(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Write the weights back if the model's own forward writes into them; after a run one can forget those it left."""
    kept = [(p.detach(), p.detach().clone()) for p in model.parameters()]

    def forget() -> None:
        if all(torch.equal(weight, before) for weight, before in kept):
            kept.clear()

    try:
        yield forget
    finally:
        for weight, before in kept:
            weight.copy_(before)


@dataclass
class _Gradient:
    loss: float
    held: float
    pull: _Pull
    pull_held: _Pull | None
    gradient: Weights
    finite: bool


def _gradient(probe: _Probe, start: Weights) -> _Gradient:
    with torch.enable_grad():
        leaves = {name: w.detach().requires_grad_() for name, w in start.items()}
        value, pull, loss = probe.pulls(leaves, probe.seen)
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        del loss
        gradient = {
            name: torch.zeros_like(w) if g is None else g for (name, w), g in zip(leaves.items(), found, strict=True)
        }
        held, pull_held = value, None
        if probe.others is not None:
            held, pull_held, _ = probe.pulls(leaves, probe.others)
    finite = math.isfinite(value) and all(math.isfinite(torch.linalg.vector_norm(g)) for g in gradient.values())
    return _Gradient(value, held, pull, pull_held, gradient, finite)


def _one_step(probe: _Probe, start: Weights, first: _Gradient, optimizer: Optimizer) -> Step:
    direction = {name: _direction(g, optimizer) for name, g in first.gradient.items()}
    count = sum(d.numel() for d in direction.values())
    moved = (
        sum(float(torch.linalg.vector_norm(d, 1)) for d in direction.values())
        if optimizer == "adam"
        else sum(int((d != 0).sum()) for d in direction.values())
    )
    sizes = {name: _rms(start[name]) for name in direction}
    updates = {name: _rms(d) / sizes[name] for name, d in direction.items() if sizes[name] > 0}
    least = 1e-3 if optimizer == "adam" else 0.0
    still = tuple(name for name, d in direction.items() if float(torch.linalg.vector_norm(d, math.inf)) <= least)
    if not first.finite:
        nothing = (0.0, None, 0.0, None, 0.0, 0.0, 0.0, 0.0)
        return Step(optimizer, first.loss, moved / count, *nothing, updates, still, still, False)
    alignment, pace = _alignment(first.pull, probe.moves(start, direction, probe.seen, first.pull))
    held = None
    if probe.others is not None and first.pull_held is not None:
        held, _ = _alignment(first.pull_held, probe.moves(start, direction, probe.others, first.pull_held))
    ladder = LADDER[optimizer][2::3] if probe.costly else LADDER[optimizer]
    largest = _largest(probe, start, direction, first.loss, ladder)
    after = {name: w + USUAL[optimizer] * direction[name] for name, w in start.items()}
    if probe.costly and not still:  # nothing waits for a second step
        try:
            then_loss = probe.loss(after, probe.others or probe.seen)
        except InputError:
            then_loss = math.inf
        change = math.log10(min(then_loss / first.held, 1e3)) if first.held > 0 and then_loss > 0 else 0.0
        part = pace / max(abs(first.loss), 1e-300)
        found = (alignment, held, alignment, held, part, part, change, largest)
        return Step(optimizer, first.loss, moved / count, *found, updates, still, still, math.isfinite(then_loss))
    del direction
    then = _gradient(probe, after)
    if not then.finite:
        found = (alignment, held, 0.0, None if held is None else 0.0, pace / first.loss, 0.0, 3.0, largest)
        return Step(optimizer, first.loss, moved / count, *found, updates, still, still, False)
    change = math.log10(max(then.held, 1e-12) / max(first.held, 1e-12)) if first.held > 0 else 0.0
    direction = {name: _direction(g, optimizer) for name, g in then.gradient.items()}
    then_still = tuple(name for name in still if not bool((direction[name].abs() > least).any()))
    second, second_pace = _alignment(then.pull, probe.moves(after, direction, probe.seen, then.pull))
    second_held = None
    if probe.others is not None and then.pull_held is not None:
        second_held, _ = _alignment(then.pull_held, probe.moves(after, direction, probe.others, then.pull_held))
    paces = (pace / max(abs(first.loss), 1e-300), second_pace / max(abs(then.loss), 1e-300))
    found = (alignment, held, second, second_held, *paces, change, largest)
    return Step(optimizer, first.loss, moved / count, *found, updates, still, then_still, True)


def _direction(gradient: Tensor, optimizer: Optimizer) -> Tensor:
    return -gradient if optimizer == "sgd" else -gradient / (gradient.abs() + EPS)


def _largest(probe: _Probe, start: Weights, direction: Weights, before: float, rates: list[float]) -> float:
    """The largest rate at which the loss does not rise, by bisection: from there on it is taken to rise."""
    low, high = -1, len(rates)
    with torch.no_grad():
        while high - low > 1:
            middle = (low + high) // 2
            moved = {name: w + rates[middle] * direction[name] for name, w in start.items()}
            probe.draws = 0  # the dropout of the loss before, or its noise would hide the step
            try:
                after = probe.loss(moved, probe.seen)
            except NotFinite:
                after = math.inf
            low, high = (middle, high) if after <= before * (1 + 1e-6) else (low, middle)
    return rates[low] if low >= 0 else 0.0


def _classes(wanted: _Pull) -> float:
    """How many outputs an answer has for each that the loss pulls at: the classes of cross-entropy, few of others."""
    pull = _answers(wanted.pull).double()
    fourth = float(pull.pow(4).sum(1).mean())
    pulled = float(pull.square().sum(1).square().mean()) / fourth if fourth > 0 else pull.shape[1]
    return max(1.0, pull.shape[1] / pulled) if math.isfinite(pulled) and pulled > 0 else 1.0


def _alignment(wanted: _Pull, move: Tensor) -> tuple[float, float]:
    """Cosine and product of two movements of the outputs, less their means over all answers."""
    pull = wanted.pull
    if not bool(pull.any()):
        return UNSEEN, 0.0
    if move.shape != pull.shape:  # the outputs do not move
        return 0.0, 0.0
    one, other = (_answers(t).double() for t in (pull, move))
    one, other = one - one.mean(0), other - other.mean(0)
    size = float(one.norm() * other.norm())
    if not math.isfinite(size) or size == 0:
        return 0.0, 0.0
    product = float((one * other).sum())
    return product / size, product


def _answers(outputs: Tensor) -> Tensor:
    """Outputs as (answers, values): positions of a sequence or an image are answers of their own."""
    if outputs.dim() <= 1:
        return outputs.reshape(-1, 1)
    if outputs.dim() == 4:  # channels first
        return outputs.movedim(1, -1).reshape(-1, outputs.shape[1])
    return outputs.reshape(-1, outputs.shape[-1])


def _square(tensors: Iterable[Tensor]) -> float:
    return sum(float(torch.linalg.vector_norm(t)) ** 2 for t in tensors)


def _rms(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(max(tensor.numel(), 1))


def _halves(call: Call, seed: int) -> tuple[Call, Call | None]:
    """The examples of the step, and the others; none of them where the batch cannot be split."""
    if not call.splits or call.examples < LEAST:
        return call, None
    order = torch.randperm(call.examples, generator=generator(seed, 0x7374))
    half = (call.examples + 1) // 2
    return call.rows(order[:half]), call.rows(order[half:])
