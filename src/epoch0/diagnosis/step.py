"""One step of an optimizer, seen in the outputs: what it does to the examples of the step and to others (THEORY 0).

Gains say what a network does to a signal; whether it trains is decided by what a step does to its outputs. Two
derivatives forward and two back at the weights as they are, and the same once more after one step, because a readout
or a branch that starts at zero gets its gradient in the second step only.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from epoch0.arguments import refuse_inference
from epoch0.errors import InputError, reworded
from epoch0.seeds import generator
from epoch0.tracing.call import Call, as_written, described
from epoch0.tracing.failures import explain_first_run
from epoch0.tracing.guard import refuse_changed, same_noise, unchanged
from epoch0.tracing.loss import NotFinite
from epoch0.tracing.sizes import dense, sum_of_squares
from epoch0.tracing.tape import prepare_forward_derivatives

Optimizer = Literal["adam", "sgd"]
OPTIMIZERS: tuple[Optimizer, Optimizer] = ("adam", "sgd")

EPS = 1e-8  # adam's: gradients below it are taken for nothing
USUAL: dict[Optimizer, float] = {"adam": 1e-3, "sgd": 1e-2}  # the rate of the first step

COSTLY = 0.05
"""CPU seconds of a forward and backward pass from which derivatives along a step are taken from differences."""

FEW, PASS = 32, 0.1  # it is then followed on FEW examples at least, more if a pass over half of them takes PASS seconds

AN_OPERATION, A_VALUE, A_PRODUCT, A_FLOP, A_GROUPED = 7e-6, 6.7e-10, 6.8e-12, 1.3e-11, 2e-10
"""CPU seconds of each in one thread, the last three of a flop: of products, of convolutions, and of those in groups;
fitted to the passes of 99 networks of other libraries: 88 % of them within a factor of 1.5.

A clock would give a model another verdict on a busy day."""

UNSEEN = 0.4
"""The alignment that is taken where the loss does not come from one output: that of a usual network that trains."""

SHORT = 3e-4
"""Length of the step from which a derivative is taken, in norms of the weights: a tenth of it, at most twice, if
outputs move by more than FAR times what they differ between examples, ten times it if by less than ROUNDED eps."""
FAR, ROUNDED = 0.3, 100.0
LEAST = 16  # examples from which half of them are held out of the step, and on which a pass's cost is estimated

LADDER: dict[Optimizer, list[float]] = {
    "adam": [10 ** (-8 + k / 2) for k in range(15)],
    "sgd": [10 ** (-8 + k / 2) for k in range(19)],
}
"""Rates among which the largest that does not raise the loss is looked for, 1e-8 to 0.1 and to 10."""


@dataclass(frozen=True)
class StepEffect:
    """What one step of an optimizer does to a network, without momentum."""

    #: ``"adam"`` (the sign of the gradient, where it exceeds Adam's eps) or ``"sgd"`` (the gradient)
    optimizer: Optimizer
    loss: float  #: before, on the examples of the step
    reached: float  #: share of the weights that the step moves; for Adam mean |g|/(|g| + eps)
    #: cosine between how the outputs move and how the loss wants them to, once their mean over the examples is right:
    #: the step is down what is left of the gradient then. The mean is learned in a few steps, and until then it hides
    #: whether the examples can be separated. 1 is the best, 0 for a network that gives all examples the same answer.
    alignment: float = 0.0
    held: float | None = None  #: the same on examples that the step has not seen; None if the batch cannot be split
    #: ``alignment`` after one step at the usual rate; the same as before it where a pass takes long and every weight
    #: moves in the first step, or Adam's first step moves outputs as it should
    second: float = 0.0
    second_held: float | None = None  #: ``held`` after it
    #: by what share the loss falls per unit of the rate, to first order, through outputs that differ between examples;
    #: after one step at the usual rate
    second_pace: float = 0.0
    change: float = 0.0  #: log10 of the loss on unseen examples (on the same without them) after that step over before
    largest: float = 0.0  #: the largest rate of :data:`LADDER` at which the step does not raise the loss, 0 if none
    #: weight's name -> root mean square of the step at rate 1 over that of the weight, where it is not zero
    updates: Mapping[str, float] = field(default_factory=dict)
    finite: bool = False  #: whether outputs and loss were finite before and after
    #: whether derivatives were taken from differences and the second look only where the first could not do
    quick: bool = False
    classes: float = 1.0  #: among how many outputs the loss chooses, as the pull on them shows; 1 for values
    used: int = 0  #: examples that this is from, where there are enough half of them of the step and half held out
    examples: int = 0  #: of a step from all of the batch
    seconds: float = 0.0  #: CPU seconds of a forward and backward pass over as many, estimated


Weights = dict[str, Tensor]


class _Cost(TorchDispatchMode):
    """Estimates the CPU seconds of the operations that run inside it."""

    operations = seconds = 0.0  # seconds of what grows with the examples

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        values = sum(t.numel() for t in (made if isinstance(made, tuple | list) else [made]) if isinstance(t, Tensor))
        flops = flop_registry.get(func.overloadpacket)
        count = 0 if flops is None else flops(*args, **(kwargs or {}), out_val=made)
        self.operations += AN_OPERATION
        convolved = A_GROUPED if len(args) > 8 and args[8] != 1 else A_FLOP
        self.seconds += values * A_VALUE + count * (convolved if "conv" in func.name() else A_PRODUCT)
        return made


@dataclass
class _Pull:
    """Outputs of a call, the direction in which the loss pulls them, and their draw of dropout."""

    call: Call
    pull: Tensor
    output: Tensor
    draw: int
    again: tuple[int, Tensor] | None = None  # another draw, and the outputs of that


class _Probe:
    """The model with other weights, on the examples of the step and on others."""

    def __init__(self, call: Call, weights: Weights, seed: int) -> None:
        self.call, self.seed, self.draws, self.costly = call, seed, 0, False
        self.squares = {name: sum_of_squares(w) for name, w in weights.items()}
        self.size = sum(self.squares.values())
        self.noisy: bool | None = None  # whether two runs differ; None until it was looked at
        self.seen, self.others = call, None  # the examples of the step, and the others, where the batch can be split
        if call.splits and call.examples >= LEAST:
            order = torch.randperm(call.examples, generator=generator(seed, 0x7374))
            self.seen, self.others = (call.rows(half) for half in order.split((call.examples + 1) // 2))

    def raw(self, weights: Weights, call: Call) -> Any:
        self.draws += 1  # dropout draws anew each time, as in training
        same_noise(self.seed * 1009 + self.draws)
        buffers = {name: buffer.clone() for name, buffer in call.model.named_buffers()}
        failed = partial(explain_first_run, model=call.model, given=described(self.call.batch), stack=())
        with reworded(failed, torch.OutOfMemoryError):
            return call.swapped({**weights, **buffers})

    def pulls(self, weights: Weights, call: Call) -> tuple[Tensor, Tensor, _Pull]:
        """The loss and the outputs with their graph, and how the loss wants the outputs to move."""
        raw = self.raw(weights, call)
        loss, output = call.loss(raw), call.output(raw)
        if not loss.requires_grad:
            text = f"the loss of {type(self.call.model).__name__} has no gradient: no weight that requires one takes"
            raise InputError(f"{text} part in it, or the model runs without gradients (torch.no_grad, .detach()).")
        pull = torch.zeros_like(output)  # where the loss is made of other outputs
        if output.requires_grad:
            pull = -torch.autograd.grad(loss, output, retain_graph=True, materialize_grads=True)[0]
        return loss, output, _Pull(call, pull.detach(), output.detach(), self.draws - 1)

    def moves(self, weights: Weights, direction: Weights, pull: _Pull) -> Tensor:
        """How the outputs move down a direction of the weights, per unit of it."""
        if not self.costly:
            try:
                with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
                    dual = {name: forward_ad.make_dual(weights[name], d) for name, d in direction.items()}
                    tangent = forward_ad.unpack_dual(pull.call.output(self.raw({**weights, **dual}, pull.call))).tangent
                    return torch.zeros(()) if tangent is None else -tangent
            except (InputError, RuntimeError) as error:
                if isinstance(error, InputError) and not isinstance(error.__cause__, (RuntimeError, TypeError)):
                    raise  # the model itself fails; else torch has no forward derivative
        return self._differences(weights, direction, pull)

    def _differences(self, weights: Weights, direction: Weights, pull: _Pull) -> Tensor:
        """The same from one short step; with dropout both ends of it are of a draw that the pull has not seen. The step
        is shorter where outputs move far, as through many chaotic layers, and longer where rounding hides it.
        """
        if (squares := sum(map(sum_of_squares, direction.values()))) == 0:
            return torch.zeros_like(pull.output)
        unit, length = math.sqrt(self.size / squares), SHORT

        def outputs(draw: int, at: Weights) -> Tensor:
            self.draws = draw
            with torch.no_grad():
                return pull.call.output(self.raw(at, pull.call))

        if self.noisy is not False and pull.again is None:
            draw = self.draws
            pull.again = draw, outputs(draw, weights)
            self.noisy = not torch.equal(pull.again[1], pull.output)
        draw, before = pull.again if self.noisy and pull.again is not None else (pull.draw, pull.output)
        rounded = ROUNDED * torch.finfo(before.dtype).eps * math.sqrt(sum_of_squares(before))
        far = max(FAR * math.sqrt(sum_of_squares(_less_mean(before))), 10 * rounded)
        for retries in (2, 1, 0):
            moved = outputs(draw, self.moved(weights, direction, length * unit)) - before
            size = math.sqrt(sum_of_squares(_less_mean(moved)))
            if not retries or not (size > far or size < rounded):  # what is no number is left as it is
                break
            length = length / 10 if size > far else length * 10
        return moved / (length * unit)

    def moved(self, weights: Weights, direction: Weights, rate: float) -> Weights:
        return {name: torch.add(w, direction[name], alpha=-rate) for name, w in weights.items()}

    def loss(self, weights: Weights, call: Call) -> float:
        with torch.enable_grad(), suppress(NotFinite):  # the loss is checked for its graph
            return float(call.loss(self.raw(weights, call)).detach())
        return math.inf


def steps(call: Call, seed: int = 0, quick: bool | None = None) -> dict[Optimizer, StepEffect]:
    """What one step of Adam and one of SGD do to the outputs; the model is given back unchanged to the bit. The seed
    says which half of the examples is held back, and is that of dropout; ``quick`` takes derivatives from differences
    and looks once where that may do. An InputError if no weight can be trained.
    """
    model = call.model
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    if not weights:
        raise InputError(f"no parameter of {type(model).__name__} requires a gradient; there is nothing to train.")
    for name, p in weights.items():
        refuse_inference(name, p)
    prepare_forward_derivatives()
    with unchanged(model, weights=False), torch.inference_mode(False), as_written():
        model.train()
        start = {name: p.detach() for name, p in weights.items()}
        probe = _Probe(call, start, seed)
        kept = [(p.detach(), p.detach().clone()) for p in model.parameters()]
        try:
            count, few = probe.seen.examples, call.rows(slice(0, LEAST)) if call.splits else call
            with torch.no_grad(), _Cost() as cost:
                probe.raw(start, few)
            seconds = 3 * (cost.operations + cost.seconds * count / few.examples)  # a pass back is two forward
            if (
                seconds > COSTLY
                and call.splits
                and (most := max(FEW, int(PASS * call.examples / seconds))) < call.examples
            ):
                order = torch.randperm(call.examples, generator=generator(seed, 0x6665))
                probe = _Probe(call.rows(order[:most]), start, seed)
            probe.draws, probe.costly = 0, seconds > COSTLY if quick is None else quick
            first = _gradient(probe, start)
            if all(torch.equal(weight, before) for weight, before in kept):
                kept.clear()  # a model that did not write into its weights in one run does not in the next
            found: dict[Optimizer, StepEffect] = {"sgd": _one_step(probe, start, first, "sgd")}
            first.normalize()
            found["adam"] = _one_step(probe, start, first, "adam")
        finally:
            for weight, before in kept:
                weight.copy_(before)
    shared = {"classes": _classes(first.pulls[0].pull), "used": probe.call.examples, "examples": count}
    shared |= {"quick": probe.costly, "seconds": seconds}
    return {name: replace(found[name], **shared) for name in OPTIMIZERS}  # type: ignore[arg-type]


@dataclass
class _Gradient:
    loss: float
    held: float
    pulls: list[_Pull]  # of the examples of the step, and of others
    gradient: Weights
    wanted: Weights
    falls: dict[Optimizer, float]  # by how much the loss falls per unit of the rate, where outputs do not tell
    finite: bool

    def normalize(self) -> None:
        """Turn gradients into steps of Adam, in place."""
        for tensor in (*self.gradient.values(), *self.wanted.values()):
            tensor.div_(tensor.abs().add_(EPS))


def _gradient(probe: _Probe, start: Weights) -> _Gradient:
    with torch.enable_grad():
        leaves = {name: w.detach().requires_grad_() for name, w in start.items()}
        loss, output, pull = probe.pulls(leaves, probe.seen)
        rebound = [name for name, leaf in leaves.items() if leaf.data_ptr() != start[name].data_ptr()]
        # other memory with the same values is none: recurrent layers on CUDA gather theirs
        if apart := [name for name in rebound if not torch.equal(leaves[name], start[name])]:
            refuse_changed(apart[0])

        def back(end: Tensor, start: Tensor | None, keep: bool) -> Weights:
            found = torch.autograd.grad(end, list(leaves.values()), start, retain_graph=keep, materialize_grads=True)
            return dict(zip(leaves, map(dense, found), strict=True))

        left = _less_mean(pull.pull)
        nonzero = bool(left.any())
        value, gradient = float(loss.detach()), back(loss, None, nonzero)
        wanted = back(output, -left, False) if nonzero else {name: g.clone() for name, g in gradient.items()}
        del loss, output
        held, pulls = value, [pull]
        if probe.others is not None:
            other, _, pull = probe.pulls(leaves, probe.others)
            held, pulls = float(other.detach()), [*pulls, pull]
    squares = [sum_of_squares(g) for g in gradient.values()]
    finite = math.isfinite(value) and all(map(math.isfinite, squares))
    falls: dict[Optimizer, float] = {}
    if not nonzero:
        falls = {"adam": sum(float(g.abs().sum(dtype=torch.float64)) for g in gradient.values()), "sgd": sum(squares)}
    return _Gradient(value, held, pulls, gradient, wanted, falls, finite)


def _one_step(probe: _Probe, start: Weights, first: _Gradient, optimizer: Optimizer) -> StepEffect:
    direction, own = first.gradient, probe.squares
    sizes = [
        (float(size.sum() if optimizer == "adam" else size.count_nonzero()), float(size.max()) if size.numel() else 0.0)
        for size in map(torch.abs, direction.values())
    ]
    reached = sum(moved for moved, _ in sizes) / sum(d.numel() for d in direction.values())
    updates = {n: math.sqrt(sum_of_squares(d) / own[n]) for n, d in direction.items() if own[n] > 0}
    step = StepEffect(optimizer, first.loss, reached, updates=updates)
    if not first.finite:
        return step
    alignment, held, pace = _response(probe, start, first, optimizer)
    largest = _largest(probe, start, direction, first.loss, optimizer)
    step = replace(step, alignment=alignment, held=held, largest=largest)
    after = probe.moved(start, direction, USUAL[optimizer])
    still = any(largest <= (1e-3 if optimizer == "adam" else 0.0) for _, largest in sizes)
    if probe.costly and (not still or (optimizer == "adam" and alignment > 0)):  # a second look would tell little
        then_loss = probe.loss(after, probe.others or probe.seen)
        change = math.log10(min(then_loss / first.held, 1e3)) if first.held > 0 and then_loss > 0 else 0.0
        step = replace(step, change=change, finite=math.isfinite(then_loss))
        return replace(step, second=alignment, second_held=held, second_pace=pace)
    if not (then := _gradient(probe, after)).finite:
        return replace(step, second_held=None if held is None else 0.0, change=3.0)
    change = math.log10(max(then.held, 1e-12) / max(first.held, 1e-12)) if first.held > 0 else 0.0
    if optimizer == "adam":
        then.normalize()
    then.gradient.clear()
    second, held, pace = _response(probe, after, then, optimizer)
    return replace(step, second=second, second_held=held, second_pace=pace, change=change, finite=True)


def _response(probe: _Probe, at: Weights, found: _Gradient, optimizer: Optimizer) -> tuple[float, float | None, float]:
    """Alignment on the examples of the step and on others, and the share of the loss that goes per unit of the rate."""
    if found.falls:
        known = [(UNSEEN, found.falls[optimizer]) for _ in found.pulls]
    else:
        known = [_alignment(pull.pull, probe.moves(at, found.wanted, pull)) for pull in found.pulls]
    alignment, pace = known[0]
    return alignment, known[1][0] if len(known) > 1 else None, pace / max(abs(found.loss), 1e-300)


def _largest(probe: _Probe, start: Weights, direction: Weights, before: float, optimizer: Optimizer) -> float:
    """The largest rate at which the loss does not rise, by bisection: from there on it is taken to rise."""
    rates = LADDER[optimizer][:: 3 if probe.costly else 1]
    low, high = -1, len(rates)
    middle = sum(rate <= USUAL[optimizer] for rate in rates) - 1 if probe.costly else high // 2
    with torch.no_grad():
        while high - low > 1:
            probe.draws = 0  # the dropout of the loss before, or its noise would hide the step
            after = probe.loss(probe.moved(start, direction, rates[middle]), probe.seen)
            low, high = (middle, high) if after <= before * (1 + 1e-6) else (low, middle)
            middle = (low + high) // 2
    return rates[low] if low >= 0 else 0.0


def _classes(pull: Tensor) -> float:
    """Outputs of an answer per output that the loss pulls at: the number of classes for cross-entropy, else few."""
    pull = pull.double().movedim(1, -1) if pull.dim() == 4 else pull.double()
    pull = pull.reshape(-1, pull.shape[-1] if pull.dim() > 1 else 1)
    fourth = float(pull.pow(4).sum(1).mean())
    pulled = float(pull.square().sum(1).square().mean()) / fourth if fourth > 0 else pull.shape[1]
    return max(1.0, pull.shape[1] / pulled) if math.isfinite(pulled) and pulled > 0 else 1.0


def _alignment(pull: Tensor, move: Tensor) -> tuple[float, float]:
    """Cosine and product of two movements of the outputs, less their means over all answers."""
    if move.shape != pull.shape:  # the outputs do not move
        return 0.0, 0.0
    one, other = (_less_mean(t.double()) for t in (pull, move))
    if not math.isfinite(size := float(one.norm() * other.norm())) or size == 0:
        return 0.0, 0.0
    product = float((one * other).sum())
    return product / size, product


def _less_mean(outputs: Tensor) -> Tensor:
    """Outputs less their mean over all answers; positions of a sequence or an image are answers of their own."""
    values = 1 if outputs.dim() == 4 else outputs.dim() - 1 if outputs.dim() > 1 else None  # images: channels first
    return outputs - outputs.mean([dim for dim in range(outputs.dim()) if dim != values], keepdim=True)
