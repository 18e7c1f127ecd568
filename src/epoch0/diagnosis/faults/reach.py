"""What a loss can reach: over free outputs, over what the last activation lets through, over one answer for all."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 64  # with so many examples' targets is asked what the loss can reach
ROUNDS, STEPS = 4, 80  # a loss is minimized over outputs in rounds of so many steps of Adam, until a round gains little

SHAPE_ONLY = ("View", "UnsafeView", "Squeeze", "Unsqueeze", "Reshape", "Alias", "Clone")
ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Relu": torch.relu, "Softplus": F.softplus, "Elu": F.elu,
    "LeakyRelu": F.leaky_relu, "Gelu": F.gelu, "Silu": F.silu, "Exp": torch.exp, "Abs": torch.abs,
}  # fmt: skip


@dataclass(frozen=True)
class Last:
    """The last activation of a program: its name, what it does, and what its result is shaped like for one example."""

    name: str
    apply: Callable[[Tensor], Tensor]
    shape: torch.Size


def last_activation(output: Tensor) -> Last | None:
    """The activation that a model ends with, as its graph of gradients knows it; None without."""
    at: Any = output.grad_fn
    reshaped = False
    while at is not None:
        name = type(at).__name__.removesuffix("Backward0").removesuffix("Backward1").removesuffix("Backward")
        if name in SHAPE_ONLY:
            at, reshaped = at.next_functions[0][0], True
        elif name in ("Softmax", "LogSoftmax"):
            shape = at._saved_result.shape
            dim = int(at._saved_dim)
            dim = dim if dim < len(shape) else dim - 2**64
            function = torch.softmax if name == "Softmax" else torch.log_softmax
            return Last(name, partial(function, dim=dim), shape)
        elif name in ELEMENTWISE:
            shape = at._saved_result.shape if reshaped and hasattr(at, "_saved_result") else output.shape
            return Last(name, ELEMENTWISE[name], shape)
        else:
            return None
    return None


@dataclass
class Reach:
    """What the loss of some examples can reach."""

    free: float  # over free outputs; minus infinity without bound
    through: float  # over what the last activation lets through
    constant: float  # over one answer for all examples, through the last activation
    now: float  # the loss of the model's outputs
    last: Last | None  # the last activation
    best: Tensor  # the outputs that reach ``through``
    targets: Tensor  # those examples' targets
    output: Tensor  # the model's outputs for them
    flat: float  # share of the examples whose loss can fall and has no slope where the outputs are
    sums: bool  # whether the loss adds the examples up instead of taking their mean
    score: Callable[[Tensor], Tensor]  # the loss of other outputs


def reach(output: Tensor, targets: Any, loss: Callable[[Any, Any], Tensor]) -> Reach | None:
    """What a loss can reach; None where outputs or targets are not one tensor of as many rows."""
    if not isinstance(targets, Tensor) or output.dim() == 0 or targets.dim() == 0:
        return None
    if len(output) != len(targets) or len(output) < 2 or not bool(output.isfinite().all()):
        return None
    count = min(ROWS, len(output), max(4, 20_000 // max(1, output[0].numel())))
    if output[:count].numel() > 100_000:
        return None
    rows = torch.linspace(0, len(output) - 1, count).long().to(output.device)
    wanted, out = targets[rows], output.detach()[rows].double()
    last = last_activation(output)
    if last is not None and last.shape[0] != len(output):
        last = None
    exact = wanted.double() if wanted.is_floating_point() else wanted

    def score(z: Tensor) -> Tensor:
        return loss(z, exact)

    def coarse(z: Tensor) -> Tensor:  # for a loss with weights of its own in single precision
        return loss(z.to(output.dtype), wanted).double()

    if (first := _tried(score, out)) is None:
        score = coarse
        first = _tried(score, out)
    if first is None or not bool(first.isfinite()):
        return None
    through = last.apply if last is not None else lambda z: z
    inner = torch.Size((count, *last.shape[1:])) if last is not None else out.shape
    if inner.numel() != out.numel():
        last, through, inner = None, lambda z: z, out.shape
    size = max(1.0, float(wanted.double().abs().max())) if wanted.is_floating_point() else 1.0
    noise = torch.randn(inner, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(out.device)

    def outputs(z: Tensor) -> Tensor:
        return through(z).reshape(out.shape)

    starts = [out, 0.5 + 0.1 * noise.reshape(out.shape)]
    free = min((_least(score, z, size) for z in starts), key=lambda found: found[0])
    if last is None:
        best, arg = free
    else:
        inside = (_least(lambda z: score(outputs(z)), z, size) for z in (0.1 * noise, 0.5 + 0.1 * noise))
        best, arg = min(inside, key=lambda found: found[0])  # a ReLU that is shut stays so from the first start
        arg = outputs(arg)
    row = 0.1 * noise[:1]
    constant = min(_least(lambda z: score(outputs(z.expand(inner))), start, size)[0] for start in (row, 0.5 + row))
    known = exact.shape == out.shape and exact.is_floating_point() and float(score(exact.to(out))) < float(score(arg))
    flat = _flat(score, out, exact.to(out) if known else arg)
    half = count // 2
    try:
        two = float(loss(out[:half].to(output.dtype), wanted[:half]) + loss(out[half:].to(output.dtype), wanted[half:]))
    except Exception:
        two = math.nan
    sums = count > 3 and abs(two - float(first)) < 1e-3 * abs(two)
    return Reach(min(free[0], best), best, constant, float(first), last, arg, wanted, out, flat, sums, score)


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
            loss = _tried(score, z)
            if loss is None or not bool(loss.isfinite()):
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
            rate = 0.3 * size * (1 - at / STEPS) ** 1.5
            z.detach().addcdiv_(mean, scale, value=-rate / (1 - 0.9 ** (at + 1)))
    with torch.no_grad():
        further = [_tried(score, start + k * (where - start)) for k in (10, 1000)]
        far = [math.inf if one is None else float(one) for one in further]
    if far[0] < value - 1 and far[1] < far[0] - 100 and far[1] < -100:
        return -math.inf, where
    return value, where


def _tried(score: Callable[[Tensor], Tensor], z: Tensor) -> Tensor | None:
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
    still = slope.flatten(1).abs().amax(1) == 0 if slope.dim() > 1 else slope.abs() == 0
    if not bool(still.any()):
        return 0.0
    mixed = out.clone()
    mixed[still] = best[still]
    now, then = float(score(out)), float(score(mixed))
    return float(still.double().mean()) if then < now - 0.05 * abs(now) * float(still.double().mean()) else 0.0
