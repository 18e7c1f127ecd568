"""SynFlow: what flows through each weight when all are positive (Tanaka et al. 2020); rounds that keep layers alive.

The model runs as the linear network of absolute values, at any depth. Numbers are carried as mantissa and exponent:
where a layer's output leaves [2^-64, 2^64] it is divided by a power of two, which is remembered for the tensor, and
tensors that meet in a sum get the larger exponent. Powers of two change no digit of the output or of a gradient.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from epoch0.arguments import Size, Sparsity, Whole, checked, refuse
from epoch0.errors import InputError
from epoch0.initialization.files import Tensors
from epoch0.progress import Progress
from epoch0.prune.masks.apply import apply
from epoch0.prune.masks.masks import LAYERS, SCOPES, Masks, best, keep
from epoch0.prune.scores.scores import Functional, Scores, Values, functional_copy, score, scores_of, tell
from epoch0.tracing import operations
from epoch0.tracing.call import mapped, parts
from epoch0.tracing.guard import bare

LARGEST = 64  # powers of two up to which numbers are left as they are


class Absolute(operations.Calls):
    """Every torch function as the linear network of absolute values has it.

    Weights and buffers must have been replaced by their absolute values. Activations are the identity, as is ReLU on
    positive numbers; norms only multiply by their scale, ``abs(weight)/sqrt(running_var + eps)`` or ``abs(weight)``,
    and add ``abs(bias)``; dropout is off.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[Tensor, int]] = {}  # with the tensor, so that its id stays its own

    def exponent(self, tensor: Tensor) -> int:
        """The power of two that this tensor is to be multiplied by."""
        return self._known[id(tensor)][1] if id(tensor) in self._known else 0

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        kind = (known := operations.meaning(name)).kind
        if kind == "activation" and args and isinstance(args[0], Tensor):
            return args[0]
        if kind == "norm" and name != "local_response_norm":
            return self._norm(known.given(args, kwargs))
        if kind in ("linear", "convolution", "bilinear"):
            return self._matrix(func, name, args, kwargs)
        if kind == "lookup" and known.given(args, kwargs)["input"].is_floating_point():
            text = "SynFlow sends an input of ones through the model, and its embedding looks tokens up"
            raise InputError(f"{text}: there is no flow through numbers of tokens. Use snip, grasp or magnitude.")
        return self._other(func, name, args, kwargs)

    def _norm(self, given: dict[str, Any]) -> Tensor:
        x, variance = given["input"], given.get("running_var")
        weight, bias = given.get("weight"), given.get("bias")
        if variance is not None:
            scale = (variance + given.get("eps", 1e-5)).rsqrt()
            weight = scale if weight is None else weight * scale
        if "normalized_shape" not in given:
            weight, bias = (None if t is None else t.reshape(-1, *[1] * (x.dim() - 2)) for t in (weight, bias))
        power, y = self.exponent(x), x if weight is None else x * weight
        return self._keep(y if bias is None else y + bias * 2.0**-power, power)

    def _matrix(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        known = operations.meaning(name)
        bias = known.given(args, kwargs).get("bias")
        power = sum(self.exponent(t) for t in operations.tensors_in((args, kwargs)) if t is not bias)
        if bias is not None and (less := self.exponent(bias) - power):
            args, kwargs = known.replaced(args, kwargs, bias=bias * 2.0**less)
        if (y := func(*args, **kwargs)).is_complex():
            raise InputError(f"SynFlow follows positive numbers; '{name}' of this model has complex ones.")
        largest = float(y.detach().max())
        if 0 < largest < math.inf and abs(more := math.frexp(largest)[1]) > LARGEST:
            y, power = y * 2.0**-more, power + more
        return self._keep(y, power)

    def _other(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if not any(powers := [self.exponent(t) for t in operations.tensors_in((args, kwargs))]):
            return super().call(func, name, args, kwargs)
        kind = operations.meaning(name).kind
        if kind in ("product", "quotient"):
            power = powers[0] + (1 if kind == "product" else -1) * sum(powers[1:])
        else:
            power = max(powers)
            if min(powers) < power or kind == "sum":
                first = args[0]
                args, kwargs = operations.map_tensors((args, kwargs), lambda t: self._at(t, power, t is first, func))
                if kind == "sum":
                    args = tuple(a * 2.0**-power if isinstance(a, int | float) else a for a in args)
        result = super().call(func, name, args, kwargs)
        return operations.map_tensors(result, lambda t: self._keep(t, power) if t.is_floating_point() else t)

    def _at(self, tensor: Tensor, power: int, first: bool, func: Any) -> Tensor:
        """The tensor with the mantissa that goes with this exponent; changed in place where the function does that."""
        if not (less := self.exponent(tensor) - power) or not tensor.is_floating_point():
            return tensor
        name = getattr(func, "__name__", "")
        in_place = first and (name.startswith("__i") or (name.endswith("_") and not name.endswith("__")))
        return self._keep(tensor.mul_(2.0**less), power) if in_place else tensor * 2.0**less

    def _keep(self, tensor: Tensor, power: int) -> Tensor:
        if power or id(tensor) in self._known:
            self._known[id(tensor)] = (tensor, power)
        return tensor


@score(rounds=100)
@checked
def synflow(model: nn.Module, x: Any, *, dtype: torch.dtype = torch.float64) -> Scores:
    """Score each weight by its synaptic flow: abs(W) dR/d abs(W), R the sum of the outputs for an input of ones.

    >>> net = epoch0.networks.mlp([784, 256, 10], seed=0)
    >>> scores = synflow(net, (784,))                               # the shape of one example
    >>> [round(float(s.sum())) for s in scores.values()]            # the flow through every layer is the same
    [5573, 5573]

    In the network that is scored every parameter has its absolute value and activations are the identity, so R is a sum
    over all paths of products of abs(W). A batch norm multiplies by ``abs(weight)/sqrt(running_var + eps)`` and adds
    ``abs(bias)``; its running mean, which could be negative, is left out. Other norms multiply by their weight.

    One round empties layers at high sparsity, a hundred hardly any, each on the masked network:
    ``iterate(model, functools.partial(synflow, x=shape), sparsity, steps=100)``. The model is restored to the bit.
    Weights that stand behind a mask score 0.

    Args:
        model: any module.
        x: the shape of one example, or what the model is called with, a tensor, tuple or mapping: of floating numbers
            only the shapes count, and integers beside them are looked up as they are.
        dtype: to compute in. No depth overflows in float32 either, but rounding adds up over rounds (docs/pruning).

    Returns:
        Scores >= 0. At depths at which R leaves the range of floats they are multiplied by a power of two.

    Raises:
        InputError: if the model or the shape cannot be used, or R does not depend on a weight.

    Source: Tanaka, Kunin, Yamins, Ganguli 2020, equation 4 and Algorithm 1.
    """
    with _positive(model, x, dtype) as (net, ones):
        shapes = ", ".join(str(tuple(t.shape[1:])) for _, t in parts(ones))
        gradients, power = _flow(net, ones)
        with torch.no_grad():
            net.warn_of_unused()
            scores = net.times(gradients)
            limit = math.log2(torch.finfo(dtype).max) / 2  # scores of a layer add up to about 1 before this
            if power and abs(power) < limit:
                scores = [score.mul_(2.0**power) for score in scores]
            return scores_of(net.weights, scores, f"synflow, {shapes}, {str(dtype).removeprefix('torch.')}")


def synflow_rounds(
    model: nn.Module, x: Any, kept: list[int], *, dtype: torch.dtype = torch.float64, progress: Progress = None
) -> dict[str, Tensor]:
    """The masks of rounds of SynFlow, each scored on the weights left before; at half the cost of separate rounds."""
    with _positive(model, x, dtype) as (net, ones), torch.no_grad():
        flat = torch.cat([leaf.flatten() for leaf in net.leaves])
        sizes = [leaf.numel() for leaf in net.leaves]
        places, parts = torch.cat([mask.flatten() for mask in net.kept]).nonzero().squeeze(1), flat.split(sizes)
        leaves = [part.view_as(leaf).detach().requires_grad_() for part, leaf in zip(parts, net.leaves, strict=True)]
        scores = torch.empty_like(flat)
        for number, k in enumerate(kept):
            tell(progress, number, len(kept))
            if k >= len(places):
                continue
            with torch.enable_grad():
                gradients, _ = _flow(replace(net, leaves=leaves), ones)
            torch.cat([g.flatten() for g in gradients], out=scores).mul_(flat)
            stay = best(scores if len(places) == len(flat) else scores.index_select(0, places), k)
            flat.index_fill_(0, places.masked_select(~stay), 0.0)
            places = places.masked_select(stay)
        masks = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
        masks[places] = True
        pieces = zip(net.weights, masks.split(sizes), leaves, strict=True)
        return {w.name: piece.view_as(leaf).clone() for w, piece, leaf in pieces}


@contextmanager
def _positive(model: nn.Module, x: Any, dtype: torch.dtype) -> Iterator[tuple[Functional, Any]]:
    """The model on absolute values of its parameters, and an example of ones."""
    if isinstance(x, tuple | list) and x and all(type(size) is int and size > 0 for size in x):
        x = torch.ones(1, *x)
    tensors = [tensor for _, tensor in parts(x)]
    if not all([tensors, *(t.dim() > (len(tensors) == 1) and len(t) and t.layout == torch.strided for t in tensors)]):
        raise refuse("x", x, "the shape of one example such as (3, 32, 32), or a dense batch (examples, ...)")
    if not (any(t.is_floating_point() for t in tensors) and dtype.is_floating_point):
        text = f"x is {tensors[0].dtype}, to compute in {dtype}: the flow starts from ones, real numbers"
        raise InputError(f"{text}; score the part behind its embedding, with the shape of what that returns.")
    one = slice(1 if len({len(tensor) for tensor in tensors}) == 1 else None)  # the nodes of a graph go together
    ones = mapped(x, lambda t: torch.ones_like(t[one]) if t.is_floating_point() else t[one])
    with functional_copy(model, "eval", dtype) as net:
        pairs = zip(net.leaves, net.kept, strict=True)
        leaves = [(leaf.detach() * mask).abs().requires_grad_() for leaf, mask in pairs]
        others = {key: t.abs() if t.is_floating_point() else t for key, t in net.others.items()}
        yield replace(net, leaves=leaves, others=others), ones


def _flow(net: Functional, ones: Any) -> tuple[Values, int]:
    """The gradients of R at the leaves, divided by two to the power that comes with them."""
    mode = Absolute()
    output = net.output(ones, mode)
    return net.differentiated(output.sum()), mode.exponent(output)


@checked
def iterate(
    model: nn.Module,
    score: Callable[[nn.Module], Tensors],
    sparsity: Sparsity,
    *,
    steps: Size = 100,
    scope: Annotated[str, SCOPES] = "global",
    floor: Whole = 0,
    layers: Annotated[str, LAYERS] = "uniform",
    progress: Progress = None,
) -> Masks:
    """Prune in rounds: score what is left, remove a little, until exactly ``round(sparsity * M)`` are removed.

    >>> masks = iterate(model, lambda m: snip(m, batches), sparsity=0.98, steps=20)
    >>> masks = iterate(model, functools.partial(synflow, x=(64,)), sparsity=0.99)            # 100 rounds
    >>> masks.kept, masks.total
    (34, 3392)

    Each round the score gets a copy of the model pruned by the masks so far; what is removed stays removed, whatever it
    scores. (``force`` lets weights come back and has rounds of its own.) After round k of n the fraction
    ``(1 - sparsity)^(k / n)`` is kept; on a model that is pruned already it starts from what that has left.

    Args:
        model: pruned or not; it stays as it is.
        score: from a model to scores by name, larger is more worth keeping; the same names each time.
        sparsity: fraction of all weights removed in the end, in [0, 1).
        steps: rounds, at least 1; one round is :func:`~epoch0.prune.masks.masks.keep`.
        scope, floor, layers: as in ``keep``.
        progress: called before each round with the part of them that is done, from 0 to 1, and its number in words.

    Source: Tanaka et al. 2020, Algorithm 1 (SynFlow); de Jorge et al. 2021, section 4 (the schedule).
    """
    plain_rounds = (scope, floor, layers) == ("global", 0, "uniform")
    if plain_rounds and isinstance(score, functools.partial) and score.func is synflow:
        scores = score(model)
        keep(scores, sparsity)  # refuses what no round could reach
        kept = [scores.weights - round(share * scores.weights) for share in _plan(scores, sparsity, steps)]
        return Masks(synflow_rounds(model, kept=kept, progress=progress, **score.keywords))
    try:
        twin = copy.deepcopy(bare(model))
    except (RuntimeError, TypeError, ValueError) as problem:
        text = f"the model {type(bare(model)).__name__} cannot be copied: {problem}. If torch.nn.utils.prune masks it"
        raise InputError(f"{text}, bake(model) or apply(model, masks) in its place makes it one that can.") from problem
    tell(progress, 0, steps)
    scores, masks = _scored(score, twin, {}), Masks._own({})
    for number, share in enumerate(_plan(scores, sparsity, steps)):
        if number:
            tell(progress, number, steps)
            scores = _scored(score, apply(twin, masks), {name: ~mask for name, mask in masks.items()})
        masks = keep(scores, share, scope=scope, floor=floor, layers=layers)
    return masks


def scheduled(sparsity: float, steps: int, start: float = 0.0) -> list[float]:
    """Sparsities after each round."""
    return [*(1 - (1 - start) * ((1 - sparsity) / (1 - start)) ** (k / steps) for k in range(1, steps)), sparsity]


def _plan(scores: Scores, sparsity: float, steps: int) -> list[float]:
    removed = sum(int(there.count_nonzero()) for there in scores.removed.values())
    return scheduled(sparsity, steps, min(removed / scores.weights, sparsity))


def _scored(score: Callable[[nn.Module], Tensors], model: nn.Module, removed: Tensors) -> Scores:
    if not isinstance(found := score(model), Mapping):
        raise InputError(f"the score must return tensors by name, not a {type(found).__name__}; see snip and its like.")
    if removed and found.keys() != removed.keys():
        odd = ", ".join(f"'{name}'" for name in sorted(found.keys() ^ removed.keys())[:3])
        raise InputError(f"the score names other weights than in the round before: {odd}.")
    return Scores(dict(found), getattr(found, "method", ""), {**getattr(found, "removed", {}), **removed})
