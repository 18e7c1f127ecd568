"""SynFlow: what flows through each weight when all are positive; it needs no data (Tanaka et al. 2020)."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.arguments import checked, refuse
from epoch0.errors import InputError, is_count
from epoch0.prune.masks.keep import largest
from epoch0.prune.scores.functional import Borrowed, Values, borrowed, times
from epoch0.prune.scores.scores import Progress, Scores, scores_of, tell
from epoch0.tracing import operations


class Absolute(operations.Calls):
    """Every torch function as the linear network of absolute values has it.

    Weights and buffers must have been replaced by their absolute values. Activations are the identity, as is ReLU on
    positive numbers; norms only multiply by their scale, ``abs(weight)/sqrt(running_var + eps)`` or ``abs(weight)``,
    and add ``abs(bias)``; dropout is off.
    """

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        known = operations.meaning(name)
        kind, given = known.kind, known.given(args, kwargs)
        if kind == "activation" and args and isinstance(args[0], Tensor):
            return args[0]
        if kind == "norm" and name != "local_response_norm":
            return _scaled(given)
        if kind == "lookup" and given["input"].is_floating_point():
            raise InputError(
                "SynFlow sends an input of ones through the model, and its embedding looks tokens up: there is no flow "
                "through numbers of tokens. Score it by snip, grasp or magnitude, or score what is behind it."
            )
        return operations.measured(func, name, args, kwargs, "eval")


def _scaled(given: dict[str, Any]) -> Tensor:
    """Of a norm: what comes in times its scale, and its bias."""
    x, variance = given["input"], given.get("running_var")
    weight, bias = given.get("weight"), given.get("bias")
    if variance is not None:
        scale = (variance + given.get("eps", 1e-5)).rsqrt()
        weight = scale if weight is None else weight * scale
    if "normalized_shape" not in given:
        wide = (-1, *[1] * (x.dim() - 2))
        weight, bias = (None if t is None else t.reshape(wide) for t in (weight, bias))
    y: Tensor = x if weight is None else x * weight
    return y if bias is None else y + bias


@checked
def synflow(model: nn.Module, x: Tensor | tuple[int, ...]) -> Scores:
    """Score each weight by its synaptic flow: abs(W) dR/d abs(W), R the sum of the outputs for an input of ones.

    >>> net = epoch0.networks.mlp([784, 256, 10], seed=0)
    >>> scores = synflow(net, (784,))                               # the shape of one example
    >>> [round(float(s.sum())) for s in scores.values()]            # the flow through every layer is the same
    [5573, 5573]

    In the network that is scored every parameter has its absolute value and activations are the identity, so R is a sum
    over all paths of products of abs(W). A batch norm multiplies by ``abs(weight)/sqrt(running_var + eps)`` and adds
    ``abs(bias)``; its running mean is left out, as it would make numbers negative. Norms of examples multiply by their
    weight alone.

    One round empties layers at high sparsity (12 of 34 on a ResNet-32 at 98 %); a hundred, each on the masked network,
    empty 1: ``iterate(model, functools.partial(synflow, x=shape), sparsity, steps=100)``.

    It is computed in float64, whose range R leaves after some 200 wide layers. The model is borrowed and comes back to
    the bit. Weights that stand behind a mask score 0.

    Args:
        model: any module from one tensor to one tensor.
        x: the shape of one example, or a batch of which only the shape of an example counts.

    Raises:
        InputError: if the model or the shape cannot be used, R is infinite, or does not depend on a weight.

    Source: Tanaka, Kunin, Yamins, Ganguli 2020, equation 4 and Algorithm 1.
    """
    with _positive(model, x) as (lent, ones):
        scores = _flow(lent, ones)
        lent.warn_of_unused()
        return scores_of(lent.weights, scores, f"synflow, {tuple(ones.shape[1:])}, float64")


def synflow_rounds(
    model: nn.Module, x: Tensor | tuple[int, ...], kept: Sequence[int], progress: Progress | None = None
) -> dict[str, Tensor]:
    """The masks of rounds of SynFlow that keep so many weights, each scored on what the rounds before have left.

    They are those of scoring and keeping in turn, at a third of the cost: the model is borrowed once.
    """
    with _positive(model, x) as (lent, ones):
        removed = {w.name: ~mask for w, mask in zip(lent.weights, lent.kept, strict=True)}
        for number, count in enumerate(kept):
            tell(progress, number, len(kept))
            masks = largest(dict(zip(removed, _flow(lent, ones), strict=True)), count, removed)
            removed = {name: ~mask for name, mask in masks.items()}
            for leaf, gone in zip(lent.leaves, removed.values(), strict=True):
                leaf.detach().masked_fill_(gone, 0.0)
        return masks


@contextmanager
def _positive(model: nn.Module, x: Tensor | tuple[int, ...]) -> Iterator[tuple[Borrowed, Tensor]]:
    """The model on absolute values of its parameters, and an example of ones."""
    if isinstance(x, Tensor) and not x.is_floating_point():
        raise InputError(
            f"x is {x.dtype}: the flow starts from ones, which integers are not; score the part of the model behind "
            "its embedding, with the shape of one of the embedding's outputs."
        )
    shape = tuple(x.shape[1:]) if isinstance(x, Tensor) else x
    if not shape or not all(map(is_count, shape)):
        raise refuse("x", x, "the shape of one example such as (3, 32, 32), or a batch (examples, ...)")
    with borrowed(model, "eval", torch.float64) as lent:
        if any(t.is_complex() for t in lent.others.values()):
            raise InputError("SynFlow follows positive numbers, and this model has complex ones.")
        pairs = zip(lent.leaves, lent.kept, strict=True)
        leaves = [(leaf.detach() * mask).abs().requires_grad_() for leaf, mask in pairs]
        others = {key: t.abs() if t.is_floating_point() else t for key, t in lent.others.items()}
        yield replace(lent, leaves=leaves, others=others), torch.ones((1, *shape), dtype=torch.float64).to(leaves[0])


def _flow(lent: Borrowed, ones: Tensor) -> Values:
    """The scores, where R is a number."""
    flow = lent.output(ones, Absolute()).sum()
    total = float(flow.detach())
    if not math.isfinite(total) or (total == 0 and all(bool(leaf.all()) for leaf in lent.leaves)):
        raise InputError(
            f"the flow through {type(lent.model).__name__} is {total:g}: it leaves the range of float64 on its way; "
            "scale the weights of a network of this depth first (epoch0.initialize)."
        )
    return times(lent.leaves, lent.differentiated(flow))
