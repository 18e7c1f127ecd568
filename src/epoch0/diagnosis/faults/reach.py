"""The lowest loss possible: over free outputs, over what the last activation lets through, over one answer for all."""

import math
from collections.abc import Callable, Iterator
from ctypes import c_int64
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from epoch0.tracing.call import drawn
from epoch0.tracing.guard import noise_kept

ROWS = 64  # examples whose targets are used
ROUNDS, STEPS = 4, 80  # a loss is minimized over outputs in rounds of STEPS steps of Adam, until a round gains little

SHAPE_ONLY = ("View", "UnsafeView", "Squeeze", "Unsqueeze", "Reshape", "Alias", "Clone")
_RULES = (torch.sigmoid, torch.tanh, torch.relu, F.softplus, F.elu, F.leaky_relu, F.gelu, F.silu, torch.exp, torch.abs)
ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {f.__name__.title().replace("_", ""): f for f in _RULES}
SOFTMAXES: dict[str, Callable[..., Tensor]] = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}


@dataclass(frozen=True)
class Last:
    """The last activation of a program: its name, what it does, and the shape of its result; no name without one."""

    name: str
    apply: Callable[[Tensor], Tensor]
    shape: torch.Size


def behind(tensor: Tensor, through: tuple[str, ...], most: int = 7) -> Any:
    """The operation that made a tensor in its autograd graph, behind at most ``most`` of these kinds."""
    at: Any = tensor.grad_fn
    for _ in range(most):
        if at is None or not type(at).__name__.removeprefix("Native").startswith(through):
            break
        at = at.next_functions[0][0]
    return at


def made(end: Tensor, stop: Any = None) -> Iterator[Any]:
    """The operations that a tensor was made by, from its graph, without those behind ``stop``."""
    todo, seen = [end.grad_fn], {None, stop}
    while todo:
        if (at := todo.pop()) not in seen:
            seen.add(at)
            yield at
            todo += [item for item, _ in at.next_functions]  # type: ignore[union-attr]


def last_activation(output: Tensor) -> Last:
    """The activation that a model ends with."""
    at = behind(output, SHAPE_ONLY)
    name = type(at).__name__.partition("Backward")[0]
    shape = getattr(at, "_saved_result", output).shape if name in ELEMENTWISE | SOFTMAXES else None
    if shape is None or shape[0] != len(output) or shape.numel() != output.numel():
        return Last("", torch.clone, output.shape)
    if name in ELEMENTWISE:
        return Last(name, ELEMENTWISE[name], shape)
    return Last(name, partial(SOFTMAXES[name], dim=c_int64(at._saved_dim).value), shape)  # saved without its sign


@dataclass
class Reach:
    """The lowest values that the loss of some examples can have."""

    free: float  # over free outputs; minus infinity without bound
    through: float  # over what the last activation lets through
    constant: float  # over one answer for all examples, through the last activation
    now: float  # the loss of the model's outputs
    last: Last  # the last activation
    best: Tensor  # the outputs that reach ``through``
    targets: Tensor  # those examples' targets
    output: Tensor  # the model's outputs for them
    flat: float  # share of the examples whose loss can fall and has no slope where the outputs are
    exact: bool  # whether the targets themselves, as outputs, are as good as any that were found
    sums: bool  # whether the loss adds the examples up instead of taking their mean
    score: Callable[[Tensor], Tensor]  # the loss of other outputs

    @property
    def least(self) -> float:
        """The lowest loss: not that of outputs that the loss is not made for, as of probabilities above 1."""
        return self.through if self.free < 0 <= self.through else self.free

    @property
    def values(self) -> bool:
        """Whether targets are values in the shape of the outputs."""
        return self.targets.is_floating_point() and self.output.shape == self.targets.shape

    @property
    def binary(self) -> bool:
        """Whether the loss is the binary cross-entropy of logits."""
        pairs = ((z, self.targets.to(z).reshape(z.shape)) for z in (self.output, 0.5 - 2 * self.output))
        usual = F.binary_cross_entropy_with_logits
        return all(math.isclose(float(self.score(z)), float(usual(z, wanted)), rel_tol=1e-5) for z, wanted in pairs)

    def stands_still(self, value: float) -> bool:
        """Whether no example has a slope where all outputs have this value, though the loss could fall from there."""
        z = torch.full_like(self.output, value)
        return tried(self.score, z) is not None and _flat(self.score, z, self.best) > 0.99

    def right(self, size: float, dim: int = 1) -> Tensor | None:
        """Outputs that give right classes this much and others nothing; None where targets are no classes."""
        shape, wanted = self.output.shape, self.targets
        if wanted.is_floating_point() or len(shape) <= dim or wanted.shape != (*shape[:dim], *shape[dim + 1 :]):
            return None
        inside = 0 <= int(wanted.min()) <= int(wanted.max()) < shape[dim]
        # classes that lie at the end, of as many places, as of a connectionist loss
        inside &= len(shape) != 3 or dim != 1 or int(wanted.max()) >= min(shape[1] - 1, shape[2])
        return torch.zeros_like(self.output).scatter_(dim, wanted.long().unsqueeze(dim), size) if inside else None


def one_hot(targets: Tensor) -> bool:
    """Whether each row adds up to 1, as shares of classes do."""
    return targets.dim() > 1 and bool(((targets.double().sum(1) - 1).abs() < 1e-3).all())


def reach(output: Tensor, targets: Any, loss: Callable[[Any, Any], Tensor]) -> Reach | None:
    """The lowest values of a loss; None where outputs or targets are not one tensor of as many rows."""
    if not isinstance(targets, Tensor) or output.dim() == 0 or targets.dim() == 0:
        return None
    if len(output) != len(targets) or len(output) < 2 or not bool(output.isfinite().all()):
        return None
    count = min(ROWS, len(output), max(4, 20_000 // max(1, output[0].numel())))
    if output[:count].numel() > 100_000:
        return None
    rows = drawn(len(output), count).to(output.device)
    wanted, out, last = targets[rows], output.detach()[rows].double(), last_activation(output)
    exact = wanted.double() if wanted.is_floating_point() else wanted

    def score(z: Tensor) -> Tensor:
        return loss(z, exact)

    def coarse(z: Tensor) -> Tensor:  # for a loss with weights of its own in single precision
        return loss(z.to(output.dtype), wanted).double()

    if (first := tried(score, out)) is None:
        score = coarse
        first = tried(score, out)
    if first is None or not bool(first.isfinite()):
        return None
    if not torch.equal(first, score(out)):  # it draws at random: from here on always the same
        loss = noise_kept()(loss)
    inner = torch.Size((count, *last.shape[1:]))
    size = max(1.0, float(wanted.double().abs().max())) if wanted.is_floating_point() else 1.0
    noise = torch.randn(inner, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(out.device)

    def outputs(z: Tensor) -> Tensor:
        return last.apply(z).reshape(out.shape)

    def least(score: Callable[[Tensor], Tensor], start: Tensor) -> tuple[float, Tensor]:
        """Far away, where the targets are, or near, where their logarithms are."""
        return min((_least(score, start, step) for step in {size, 1.0}), key=lambda found: found[0])

    free, arg = min((least(score, z) for z in (out, 0.5 + 0.1 * noise.reshape(out.shape))), key=lambda found: found[0])
    best = free
    if last.name == "Softmax" and exact.is_floating_point() and exact.shape == out.shape:  # a loss may want 0 to 1
        free = min(free, least(lambda z: score(z.sigmoid()), out)[0])
    if last.name:
        inside = (least(lambda z: score(outputs(z)), z) for z in (0.1 * noise, 0.5 + 0.1 * noise))
        best, at = min(inside, key=lambda found: found[0])  # a ReLU that is shut stays so from the first start
        arg = outputs(at)
    row = 0.1 * noise[:1]
    constant = min(least(lambda z: score(outputs(z.expand(inner))), start)[0] for start in (row, 0.5 + row))
    known = exact.shape == out.shape and exact.is_floating_point() and float(score(exact.to(out))) <= float(score(arg))
    flat, half = _flat(score, out, exact.to(out) if known else arg), count // 2
    two = tried(lambda z: loss(z[:half], wanted[:half]) + loss(z[half:], wanted[half:]), out.to(output.dtype))
    sums = count > 3 and two is not None and abs(float(two) - float(first)) < 1e-3 * abs(float(two))
    return Reach(min(free, best), best, constant, float(first), last, arg, wanted, out, flat, known, sums, score)


def _least(score: Callable[[Tensor], Tensor], start: Tensor, size: float) -> tuple[float, Tensor]:
    """The least loss that Adam finds from there and where; minus infinity where it falls without bound."""
    value, where, first, before = math.inf, start.detach().clone(), math.inf, math.inf
    with torch.enable_grad():
        for step in range(ROUNDS * STEPS):
            at = step % STEPS
            if at == 0:
                if step and before - value <= 0.005 * (first - value):
                    break
                before, z = value, where.clone().requires_grad_()
                mean, square = torch.zeros_like(where), torch.zeros_like(where)
            if (loss := tried(score, z)) is None or not bool(loss.isfinite()):
                break
            now = float(loss.detach())
            first = now if step == 0 else first
            if now < value:
                value, where = now, z.detach().clone()
            if not loss.requires_grad:
                break
            (slope,) = torch.autograd.grad(loss, [z], allow_unused=True)
            if slope is None:
                break
            # Adam written out: torch's own takes as long as all the rest for so few numbers
            mean.lerp_(slope, 0.1)
            square.mul_(0.999).addcmul_(slope, slope, value=0.001)
            scale = (square.sqrt() / math.sqrt(1 - 0.999 ** (at + 1))).add_(1e-8)
            z.detach().addcdiv_(mean, scale, value=-0.3 * size * (1 - at / STEPS) ** 1.5 / (1 - 0.9 ** (at + 1)))
    with torch.no_grad():
        further = [tried(score, start + k * (where - start)) for k in (10, 1000)]
        far = [math.inf if item is None else float(item) for item in further]
    return -math.inf if far[0] < value - 1 and far[1] < far[0] - 100 and far[1] < -100 else value, where


def tried(score: Callable[[Tensor], Tensor], z: Tensor) -> Tensor | None:
    """The loss there; None where it refuses such outputs."""
    try:
        return score(z)
    except Exception:
        return None


def _flat(score: Callable[[Tensor], Tensor], out: Tensor, best: Tensor) -> float:
    """Share of examples without any slope at their outputs, whose loss would yet fall with the best ones."""
    z = out.detach().clone().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(score(z), [z], allow_unused=True)
    if slope is None:
        return 0.0
    still = slope.reshape(len(slope), -1).eq(0).all(1)
    share, mixed = float(still.double().mean()), out.clone()
    mixed[still] = best[still]
    now, then = float(score(out)), float(score(mixed))
    return share if then < now - 0.05 * abs(now) * share else 0.0
