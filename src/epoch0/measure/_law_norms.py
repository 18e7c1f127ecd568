"""Norms at the measured statistics: what they do to the mean square of a random tangent (Yang et al. 2019).

Batch norm with the statistics of the batch takes two directions out of each channel's tangent, the mean and the signal
itself, and multiplies the rest by gamma^2/(variance + eps); the other norms do the same over their own groups.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from epoch0.measure._law_flow import Flow, NoLaw
from epoch0.measure._law_rules import call_of, kept
from epoch0.tracing.graph import Op


def normed(op: Op, flow: Flow, value: Tensor, batch_norm: str) -> Flow:
    """Batch, instance, layer, group and RMS norm at the measured statistics."""
    call_of(op)
    given = op.given
    if not flow.white and op.name != "batch_norm":
        raise NoLaw(f"{op.name.replace('_', ' ')} of repeated values")
    x, gamma = value.detach(), given.get("weight")
    usual = torch.finfo(x.dtype).eps if op.name == "rms_norm" else 1e-5
    eps = usual if given.get("eps") is None else float(given["eps"])
    channels = [1, -1, *[1] * (x.dim() - 2)]
    if op.name in ("batch_norm", "instance_norm"):
        running = given.get("running_mean") is not None and given.get("running_var") is not None
        scale = torch.ones(()) if gamma is None else gamma.square().reshape(channels)
        if batch_norm == "eval" and running:
            scale = scale.to(x) / (given["running_var"].reshape(channels) + eps)
            return replace(_after_norm(flow), square=flow.square * scale)
        if op.name == "batch_norm":
            square = _grouped(x, flow.square, lambda t: t.transpose(0, 1).flatten(1), lambda t: (
                t.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)), eps)  # fmt: skip
        else:
            square = _grouped(x, flow.square, lambda t: t.flatten(2), lambda t: t.reshape(x.shape), eps)
    elif op.name == "group_norm":
        groups = int(given["num_groups"])
        scale = torch.ones(()) if gamma is None else gamma.square().reshape(channels)
        square = _grouped(
            x, flow.square, lambda t: t.reshape(x.shape[0], groups, -1), lambda t: t.reshape(x.shape), eps
        )
    elif op.name in ("layer_norm", "rms_norm"):
        last = len(given["normalized_shape"])
        scale = torch.ones(()) if gamma is None else gamma.square()
        square = _grouped(
            x, flow.square, lambda t: t.flatten(-last), lambda t: t.reshape(x.shape), eps, op.name == "layer_norm"
        )
    else:
        raise NoLaw(op.name.replace("_", " "))
    size = x.numel() // x.shape[1] if op.name == "batch_norm" else _group_size(op.name, x, given)
    # the two directions are as long as others exactly behind a dense layer; else that holds to their own order
    exact = op.name == "batch_norm" and x.dim() == 2 and flow.signal == "gaussian"
    alike = flow.fan if flow.fan and op.name != "batch_norm" else size
    left = 0.0 if exact else (1 / size + 1 / alike) ** 2
    gains = _relative(gamma, channels) if op.name in ("batch_norm", "instance_norm") else None
    after = replace(_after_norm(flow), gains=gains, coupling=max(flow.coupling, 1 / size))
    return replace(after, square=square * scale.to(square), variance=flow.variance + left)


def _relative(gamma: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    if gamma is None or not bool((gamma != gamma[0]).any()):
        return None
    squares = gamma.double().square()
    return (squares / squares.mean()).reshape(*shape)


def _group_size(name: str, x: Tensor, given: Mapping[str, Any]) -> int:
    if name == "instance_norm":
        return max(1, math.prod(x.shape[2:]))
    if name == "group_norm":
        return max(1, math.prod(x.shape[1:]) // int(given["num_groups"]))
    return math.prod(given["normalized_shape"])


def _after_norm(flow: Flow) -> Flow:
    return replace(flow, signal=kept(flow), known=None, random=None)


def _grouped(
    x: Tensor, square: Tensor, group: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor], eps: float,
    centred: bool = True,
) -> Tensor:  # fmt: skip
    """Squares after a normalisation over the last dimension of ``group``: J = (1/s)(I - 1 1'/n - z z'/n), z the output.

    Entry i of J v has the mean square (1/s^2)[t_i (1 - 2 (1 + z_i^2)/n) + sum_j t_j (1 + z_i z_j)^2 / n^2] when the
    entries of v are uncorrelated with mean squares t; without centring the ones fall away.
    """
    h, t = group(x.double()), group(square).double()
    n, one = h.shape[-1], 1.0 if centred else 0.0
    h = h - h.mean(-1, keepdim=True) if centred else h
    variance = h.square().mean(-1, keepdim=True) + eps
    z = h / variance.sqrt()
    sums = [(t * z**power).sum(-1, keepdim=True) for power in range(3)]
    mixed = one * sums[0] + 2 * one * z * sums[1] + z**2 * sums[2]
    after = (t * (1 - 2 * (one + z**2) / n) + mixed / n**2) / variance
    return back(after.clamp(min=0).to(square.dtype))
