"""What attention passes on: values where they are looked at, queries and keys where they meet a value (THEORY 4)."""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0.errors import InputError
from epoch0.prune._zero_one import biased, product, zero_or_one
from epoch0.tracing.operations import argument


def attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Of ``scaled_dot_product_attention``: every place looks at every place that the mask shows."""
    query, key, value = (argument(args, kwargs, i, name, None) for i, name in enumerate(("query", "key", "value")))
    mask = argument(args, kwargs, 3, "attn_mask", None)
    if argument(args, kwargs, 7, "enable_gqa", False):
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    return _looked_up(query, key, value, mask, argument(args, kwargs, 5, "is_causal", False))


def multi_head(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Of ``multi_head_attention_forward``; tensors of shape (places, [examples,] features)."""
    call = inspect.signature(F.multi_head_attention_forward).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    if any(given[name] is not None for name in ("bias_k", "bias_v", "static_k", "static_v")) or given["add_zero_attn"]:
        raise InputError("attention with bias_k, bias_v, add_zero_attn or static keys cannot be followed.")
    if given["use_separate_proj_weight"]:
        weights = [given[f"{letter}_proj_weight"] for letter in "qkv"]
    else:
        weights = list(given["in_proj_weight"].chunk(3))
    heads, bias = given["num_heads"], given["in_proj_bias"]
    inputs = [given[name] if given[name].dim() == 3 else given[name].unsqueeze(1) for name in ("query", "key", "value")]

    def split(x: Tensor) -> Tensor:  # (places, examples, features) -> (examples, heads, places, features of a head)
        return x.reshape(*x.shape[:2], heads, -1).permute(1, 2, 0, 3)

    query, key, value = (
        split(zero_or_one(biased(product(F.linear, x, w), bias))) for x, w in zip(inputs, weights, strict=True)
    )
    shown = None
    if given["attn_mask"] is not None:
        shown = _shown(given["attn_mask"])
        shown = shown.reshape(-1, heads, *shown.shape[-2:]) if shown.dim() == 3 else shown
    if given["key_padding_mask"] is not None:
        padding = _shown(given["key_padding_mask"]).reshape(-1, 1, 1, key.shape[2])
        shown = padding if shown is None else shown & padding
    found = zero_or_one(_looked_up(query, key, value, shown, False))
    joined = found.permute(2, 0, 1, 3).flatten(2)
    out = zero_or_one(biased(product(F.linear, joined, given["out_proj_weight"]), given["out_proj_bias"]))
    out = out if given["query"].dim() == 3 else out.squeeze(1)
    return out, query.detach().new_ones(query.shape[0], query.shape[2], key.shape[2]) if given["need_weights"] else None


def _shown(mask: Tensor) -> Tensor:
    """Where a mask of ``multi_head_attention_forward`` lets through: its True hides, unlike that of the other."""
    return ~mask if mask.dtype == torch.bool else mask != -torch.inf


def _looked_up(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    # the weights of a softmax are never zero, whether or not they depend on the input
    weights = zero_or_one(product(torch.matmul, query, key.mT)) + 1.0
    if causal:
        weights = weights.tril()
    if mask is not None:
        weights = weights * (mask if mask.dtype == torch.bool else mask != -torch.inf)
    return product(torch.matmul, weights, value)
