"""What masks keep: kept weights, dead layers, and weights that lie on no path (Vysogorets & Kempe 2023).

A model runs on zeros and ones: a value says whether an entry can be other than zero, its tangent whether the entry
depends on the input. Sums and products of them never cancel; values, tangents and gradients are brought back to zeros
and ones after each operation, so that nothing overflows (THEORY 4).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from epoch0.arguments import checked
from epoch0.errors import InputError, reworded
from epoch0.prune.masks.apply import check_masks
from epoch0.prune.masks.masks import Masks
from epoch0.regions.network.operations import largest_call
from epoch0.results import Result, aligned, finite, first_names
from epoch0.tracing.call import Call, Forward, described, mapped
from epoch0.tracing.guard import bare, unchanged
from epoch0.tracing.operations import MOVES, Args, Calls, Kwargs, map_tensors, meaning, tensors_in
from epoch0.tracing.tape import prepare_forward_derivatives


class _ZeroOrOne(torch.autograd.Function):
    """Ones where the value, the tangent or the gradient is not zero."""

    @staticmethod
    def forward(ctx: Any, *x: Tensor) -> Tensor:
        return (x[0] > 0).to(x[0].dtype)

    backward = jvp = forward


zero_or_one: Callable[[Tensor], Tensor] = _ZeroOrOne.apply


def depends(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and forward_ad.unpack_dual(x).tangent is not None


def followed(x: Any) -> bool:
    """Whether a value depends on the input or on a masked weight, and so goes by the rules."""
    return depends(x) or (isinstance(x, Tensor) and x.is_floating_point() and x.requires_grad)


def product(multiply: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Tensor:
    """A bilinear operation, where either factor may be a number.

    A weight is on a path if what it is multiplied by depends on the input; that it is not zero, because of a bias, is
    not enough. So the gradient of a factor that does not depend on the input sees the tangent of the other factor.
    """
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        x, number = (a, b) if isinstance(a, Tensor) else (b, a)
        return x.clone() if number else x * 0
    if depends(a) == depends(b):
        return multiply(a.clone(), b.clone())  # clones: what is kept for the gradient must not be changed in place
    if depends(b):
        return product(lambda x, y: multiply(y, x), b, a)
    tangent = forward_ad.unpack_dual(a).tangent.detach().clone()
    return multiply(a.clone(), b.detach()) + (multiply(tangent, b) - multiply(tangent, b.detach()))


def biased(x: Tensor, bias: Any) -> Tensor:
    """With a bias an entry is not zero; it depends on the input as before."""
    return x if bias is None or (isinstance(bias, int | float) and not bias) else x + 1.0


class _Call(NamedTuple):
    func: Any
    name: str
    args: Args
    kwargs: Kwargs

    def run(self) -> Any:
        return self.func(*self.args, **self.kwargs)


def _product(call: _Call, given: Kwargs) -> Tensor:
    multiply = getattr(torch, call.name) if call.name in ("dot", "outer") else torch.mul
    return product(multiply, call.args[0], given.get("other"))


def _weighted(call: _Call, given: Kwargs) -> Any:
    if call.name == "einsum":
        equation, *given_ones = call.args
        tensors = given_ones[0] if isinstance(given_ones[0], list | tuple) else given_ones
        if len(tensors) == 1:
            return torch.einsum(equation, *tensors)
        if len(tensors) != 2:
            raise InputError("an einsum of more than two tensors cannot be followed; write it as two.")
        return product(lambda a, b: torch.einsum(equation, a, b), *tensors)
    if not {"input", "weight"} <= given.keys() or "other" in given:
        raise _unknown(call.name)
    if call.name in _ADDED:
        return product(_ADDED[call.name], given["input"], given["weight"]) + given["bias"]

    def multiply(a: Tensor, b: Tensor) -> Any:
        args, kwargs = meaning(call.name).replaced(call.args, call.kwargs, input=a, weight=b, bias=None)
        return call.func(*args, **kwargs)

    return biased(product(multiply, given["input"], given["weight"]), given.get("bias"))


_ADDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "addmm": torch.mm,
    "baddbmm": torch.bmm,
    "addmv": lambda x, weight: torch.mv(weight, x),
}


def _sum(call: _Call, given: Kwargs) -> Any:
    # of add, sub, maximum and their like either one is enough
    a, b = call.args[0], given.get("other")
    if not isinstance(a, Tensor):
        a, b = b, a
    return a + b if isinstance(b, Tensor) else biased(a, b)


def _quotient(call: _Call, given: Kwargs) -> Any:
    a, b = call.args[0], given.get("other")
    if not isinstance(b, Tensor):
        return a.clone()
    below = b + 1.0  # never zero, but it may depend on the input
    return product(torch.mul, a, below) if isinstance(a, Tensor) else below


def _function(call: _Call, given: Kwargs) -> Any:
    if (known := meaning(call.name)).kind == "function" and followed(given.get("other")):
        return _sum(call, given)
    return given["input"] if known.zero else given["input"] + 1.0


def _norm(call: _Call, given: Kwargs) -> Tensor:
    # statistics are no paths; where the bias stands in the call depends on the norm, and any of it is enough
    learnt = [value for value in (*call.args[1:], *call.kwargs.values()) if isinstance(value, Tensor)]
    if any(tensor.requires_grad for tensor in learnt):
        raise InputError("a masked weight of a norm cannot be followed; leave norms unpruned.")
    return biased(given["input"], 1 if learnt else None)


def _resampled(call: _Call, given: Kwargs) -> Any:
    if given.get("mode", "nearest") == "bicubic":
        raise InputError("bicubic interpolation has negative weights and cannot be followed; bilinear can.")
    return call.run()


def _spread(call: _Call, given: Kwargs) -> Any:
    if "pool" not in call.name:
        return torch.sum(*call.args[:2])
    return getattr(F, call.name.replace("lp", "avg"))(given["input"], given["kernel_size"], given.get("stride"))


def _largest(call: _Call, given: Kwargs) -> Any:
    """A maximum passes on everything that it looks at, since any of it may be the largest."""
    x, name = given["input"], call.name
    if given.get("return_indices"):
        raise InputError("max pooling that returns its indices cannot be followed.")
    if "pool" in name:
        options = {role: value for role, value in given.items() if role != "input"}
        windows, shape = largest_call(name, (x,), options, tuple(x.shape[1:]), name)
        return x.flatten(1)[:, windows.to(x.device)].sum(2).unflatten(1, shape)
    dim, keep = given.get("dim"), given.get("keepdim", False)
    if isinstance(dim, Tensor):  # the larger of two
        return x + dim
    if dim is None:
        return x.sum()
    largest = x.sum(dim, keepdim=keep)
    return largest if name in ("amax", "amin") else torch.return_types.max((largest, x.argmax(dim, keepdim=keep)))


def _mixing(call: _Call, given: Kwargs) -> Tensor:
    """Of ``scaled_dot_product_attention``: every place looks at every place that the mask shows."""
    query, key, value = given["query"], given["key"], given["value"]
    if given.get("enable_gqa"):
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    # the weights of a softmax are never zero, whether or not they depend on the input
    weights = zero_or_one(product(torch.matmul, query, key.mT)) + 1.0
    if given.get("is_causal"):
        weights = weights.tril()
    if (mask := given.get("attn_mask")) is not None:
        weights = weights * (mask if mask.dtype == torch.bool else mask != -torch.inf)
    return product(torch.matmul, weights, value)


def _attention(call: _Call, given: Kwargs) -> tuple[Tensor, Tensor | None]:
    """Of ``multi_head_attention_forward``; tensors of shape (places, [examples,] features)."""
    added = any(given.get(role) is not None for role in ("bias_k", "bias_v", "static_k", "static_v"))
    if added or given["add_zero_attn"]:
        raise InputError("attention with bias_k, bias_v, add_zero_attn or static keys cannot be followed.")
    if given.get("use_separate_proj_weight"):
        weights = [given[f"{letter}_proj_weight"] for letter in "qkv"]
    else:
        weights = list(given["in_proj_weight"].chunk(3))
    heads, bias = given["num_heads"], given["in_proj_bias"]
    biases = [None] * 3 if bias is None else bias.chunk(3)
    inputs = [x if x.dim() == 3 else x.unsqueeze(1) for x in (given["query"], given["key"], given["value"])]

    def split(x: Tensor) -> Tensor:  # (places, examples, features) -> (examples, heads, places, features of a head)
        return x.reshape(*x.shape[:2], heads, -1).permute(1, 2, 0, 3)

    shown = None
    if given.get("attn_mask") is not None:
        shown = _shown(given["attn_mask"])
        shown = shown.reshape(-1, heads, *shown.shape[-2:]) if shown.dim() == 3 else shown
    if given.get("key_padding_mask") is not None:
        padding = _shown(given["key_padding_mask"]).reshape(-1, 1, 1, len(inputs[1]))
        shown = padding if shown is None else shown & padding
    with PathCalls():
        query, key, value = (split(F.linear(x, w, b)) for x, w, b in zip(inputs, weights, biases, strict=True))
        found = F.scaled_dot_product_attention(query, key, value, shown).permute(2, 0, 1, 3).flatten(2)
        out = F.linear(found, given["out_proj_weight"], given["out_proj_bias"])
    out = out if given["query"].dim() == 3 else out.squeeze(1)
    looked = inputs[0].detach().new_ones(inputs[0].shape[1], len(inputs[0]), len(inputs[1]))
    return out, looked if given.get("need_weights", True) else None


def _shown(mask: Tensor) -> Tensor:
    """Where a mask of ``multi_head_attention_forward`` lets through: its True hides, unlike that of the other."""
    return ~mask if mask.dtype == torch.bool else mask != -torch.inf


RULES: dict[str, Callable[[_Call, Kwargs], Any]] = {
    **dict.fromkeys(("activation", "function", "negation", "softmax", "dropout", "same", "unknown"), _function),
    **dict.fromkeys(("sum", "extremum"), _sum),
    **dict.fromkeys(("linear", "convolution", "bilinear"), _weighted),
    **dict.fromkeys(("average", "total"), lambda call, given: call.run()),
    "product": _product,
    "quotient": _quotient,
    "norm": _norm,
    "largest": _largest,
    "spread": _spread,
    "resample": _resampled,
    "attention": _attention,
    "mixing": _mixing,
}
"""The rule of each kind of operation that is not simply run on zeros and ones."""


class PathCalls(Calls):
    """While it is on, every function of a tensor that depends on the input runs by the rule of its kind."""

    def call(self, func: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
        known, own = meaning(name), getattr(func, "__name__", "")
        if known.kind == "lookup":  # rows looked up for tokens and positions: these are the input
            found = func(*args, **kwargs)
            return forward_ad.make_dual(found, (found.detach() != 0).to(found.dtype))
        if not any(map(followed, tensors_in((args, kwargs)))):
            return func(*args, **kwargs)
        call = _Call(func, name, map_tensors(args, _without_sign), map_tensors(kwargs, _without_sign))
        x: Any = call.args[0] if call.args else None
        rule = RULES.get(known.kind)
        if own in ("__rtruediv__", "__rdiv__", "__rpow__"):  # a number above it
            result = _tidied(x + 1.0)
        elif rule is None or (rule is _function and known.zero is None):
            return _moved(call, known.kind in MOVES | {"repeat", "join", "pad", "place", "write", "fill", "choice"})
        else:
            given = known.given(call.args, call.kwargs)
            if rule in (_attention, _mixing):  # masks hide by what they are
                given |= {role: item for role, item in known.given(args, kwargs).items() if role.endswith("_mask")}
            result = _tidied(rule(call, given))
        in_place = kwargs.get("inplace") or own.startswith("__i") or (own.endswith("_") and not own.endswith("__"))
        return x.copy_(result) if in_place and isinstance(x, Tensor) and result is not x else result


def _moved(call: _Call, known: bool) -> Any:
    """The result of a function that moves entries or makes no floating-point numbers; any other is refused by name."""
    try:
        result = call.run()
    except RuntimeError:
        if known:
            raise
        raise _unknown(call.name) from None
    if not known and any(tensor.is_floating_point() for tensor in tensors_in(result)):
        raise _unknown(call.name)
    return result


def _unknown(name: str) -> InputError:
    text, others = f"the operation '{name}' has no rule for what it passes on", "the other numbers of the summary"
    return InputError(f"{text}, so the paths through this model cannot be followed; {others} need no model.")


def _tidied(result: Any) -> Any:
    return map_tensors(result, lambda t: zero_or_one(t) if followed(t) else t)


def _without_sign(tensor: Tensor) -> Tensor:
    """Constants that meet the signal count by whether they are zero."""
    return tensor if not tensor.is_floating_point() or followed(tensor) else (tensor != 0).to(tensor.dtype)


@checked
def on_paths(model: nn.Module, masks: Mapping[str, Tensor], x: Any, forward: Forward | None = None) -> Masks:
    """The weights that are kept and lie on a path of kept weights from the input to the output.

    >>> effective = on_paths(model, masks, x=(64,))               # the shape of one example
    >>> effective.kept <= masks.kept, effective.sparsity >= masks.sparsity
    (True, True)

    A path goes through weights that are kept, through sums, products, nonlinearities and whatever moves entries, and
    carries the signal of the input; docs/pruning has what is none. This is exact entry by entry, at every place of an
    image, so the shape of the input matters. Parameters without a mask count as kept, rows of an embedding as input.

    Args:
        model: what the masks are for; if it is pruned already, its own masks count too. It stays as it is.
        x: the shape of one example, or a batch as the model is called with it: of numbers only the shape counts (of a
            graph, what is zero), of tokens the first example.
        forward: how to call the model, if not as ``model(x)``.

    Raises:
        InputError: if the masks are another model's, the model does not take such inputs, or an operation has no rule.

    Source: Vysogorets & Kempe 2023, effective sparsity.
    """
    model = bare(model)
    where = check_masks(model, masks)
    homes = {id(where[name][0].parameter): name for name in masks}
    prepare_forward_derivatives()
    with unchanged(model), forward_ad.dual_level():
        model.eval()
        values = {key: (b != 0).float() for key, b in model.named_buffers() if b.is_floating_point()}
        seen: dict[str, Tensor] = {}
        for key, parameter in model.named_parameters():
            if id(parameter) in homes:
                name = homes[id(parameter)]
                values[key] = seen[name] = masks[name].to(parameter.device, torch.float32).requires_grad_()
            elif parameter.is_floating_point():
                values[key] = torch.ones_like(parameter, dtype=torch.float32, requires_grad=False)
        call = _start(model, x, forward)
        failed = f"the paths of {type(model).__name__} cannot be followed for {described(call.batch)}"
        once = torch.autograd.graph.disable_saved_tensors_hooks("parts are computed again; switch checkpointing off.")
        with torch.enable_grad(), reworded(lambda error: InputError(f"{failed}: {error}")), once, PathCalls():
            result = call.swapped(values)
        nest = result.to_tuple() if hasattr(result, "to_tuple") else result
        outputs = [out for out in tensors_in(nest) if out.is_floating_point() and out.requires_grad]
        ones = [torch.ones_like(out) for out in outputs]
    gradients = torch.autograd.grad(outputs, [*seen.values()], ones, allow_unused=True) if outputs else ()
    pairs = zip(seen, gradients, strict=False)
    reached = {name: masks[name] & (g > 0).to(masks[name].device) for name, g in pairs if g is not None}
    return Masks._own({name: torch.zeros_like(mask) for name, mask in masks.items()} | reached)


def _start(model: nn.Module, x: Any, forward: Forward | None) -> Call:
    """A call with one example of ones that depend on the input, or the first one, where it is made of integers."""
    if isinstance(x, tuple | list) and not tensors_in(x):
        if not all(isinstance(n, int) and n > 0 for n in x):
            raise InputError(f"x={tuple(x)}: an example needs a shape such as (3, 32, 32), all integers > 0.")
        call = Call(model, torch.ones(1, *x, device=next(model.parameters()).device), None, 1, True, forward=forward)
    else:
        call = Call.of(model, x, forward=forward).divided()

    def ones(tensor: Tensor) -> Any:
        if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
            return tensor  # tokens, or a mask
        start = (torch.ones_like(tensor) if call.splits else tensor != 0).float()
        return forward_ad.make_dual(start, start.clone())

    some = call.rows(slice(0, 1)) if call.splits else call
    return replace(some, batch=mapped(some.batch, ones))


@dataclass(frozen=True)
class LayerMask:
    """The kept entries of one weight."""

    name: str  #: of the weight
    shape: tuple[int, ...]  #: of the weight; a row is an index of its first dimension, a column one of its second
    weights: int  #: how many it has
    kept: int  #: how many of them are kept
    effective: int | None  #: how many of those lie on a path from input to output; None without a model
    density: float  #: fraction kept
    dead_rows: int  #: units or output channels of which no weight is kept (inputs, for a transposed convolution)
    dead_columns: int  #: inputs or input channels of a group that meet no weight that is kept; 0 for a vector
    status: str  #: in words


@dataclass(frozen=True)
class MaskSummary(Result):
    """What a set of masks leaves."""

    layers: tuple[LayerMask, ...]  #: one row a weight, in the order of the masks
    total: int  #: weights
    kept: int  #: weights kept
    effective: int | None  #: those of them that lie on a path from input to output; None without a model

    @property
    def sparsity(self) -> float:
        """Fraction removed."""
        return 1.0 - self.kept / max(self.total, 1)

    @property
    def effective_sparsity(self) -> float | None:
        """Fraction that is removed or lies on no path; None without a model."""
        return None if self.effective is None else 1.0 - self.effective / max(self.total, 1)

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of the layers of which nothing is kept."""
        return tuple(layer.name for layer in self.layers if layer.kept == 0)

    @property
    def verdict(self) -> str:
        """The state of the masks, in one line."""
        if self.effective == 0:
            return "no path leads from the input to the output: the model computes a constant"
        if self.dead:
            return f"{len(self.dead)} of {len(self.layers)} layers are dead: {first_names(self.dead)}"
        if idle := [layer.name for layer in self.layers if layer.effective == 0]:
            return f"no path goes through {first_names(idle)}"
        return "every layer keeps weights" if self.effective is None else "every layer lies on a path"

    def __str__(self) -> str:
        first = f"{self.kept:,} of {self.total:,} weights kept, sparsity {self.sparsity:.4%}"
        if self.effective is not None:
            first += f"; {self.effective:,} on a path, effective sparsity {self.effective_sparsity:.4%}"
        return "\n".join([first, self.verdict, *aligned([_HEAD, *map(_cells, self.layers)])])

    def to_dict(self) -> dict[str, Any]:
        names = ("total", "kept", "sparsity", "effective", "effective_sparsity", "dead", "verdict")
        return dict(finite({name: getattr(self, name) for name in names} | {"layers": self.rows()}))


@checked
def summary(masks: Masks, model: nn.Module | None = None, x: Any = None, forward: Forward | None = None) -> MaskSummary:
    """Kept weights, dead layers, rows and columns, and with the model the weights that lie on no path.

    >>> print(masks.summary(model, x=(64,)))                # shape of one example, or a batch
    1,696 of 3,392 weights kept, sparsity 50.0000%; 1,696 on a path, effective sparsity 50.0000%
    every layer lies on a path
    weights   shape  kept  of     density  effective  dead rows  dead columns  status
    0.weight  32x64  913   2,048  0.4458   913        0          0             ok
    2.weight  32x32  595   1,024  0.5811   595        0          0             ok
    4.weight  10x32  188   320    0.5875   188        0          0             ok

    Source: Vysogorets & Kempe 2023 for the effective sparsity.
    """
    if (model is None) != (x is None):
        missing = "the shape of one example, x=(3, 32, 32)," if x is None else "the model"
        raise InputError(f"the effective sparsity needs {missing} too; without both, summary() leaves it out.")
    effective = None if model is None or x is None else on_paths(model, masks, x, forward)
    layers = tuple(_layer(name, mask, None if effective is None else effective[name]) for name, mask in masks.items())
    return MaskSummary(layers, masks.total, masks.kept, None if effective is None else effective.kept)


Masks.summary = summary


def _layer(name: str, mask: Tensor, on_path: Tensor | None) -> LayerMask:
    kept, effective = int(mask.count_nonzero()), None if on_path is None else int(on_path.count_nonzero())
    along = [mask.movedim(axis, 0).reshape(mask.shape[axis], -1) for axis in range(min(mask.dim(), 2))]
    rows, columns = ([int((~item.any(1)).sum()) for item in along] + [0, 0])[:2]
    used = f"{kept - effective} kept weights on no path" if effective is not None and effective < kept else "ok"
    status = "dead: nothing is kept" if kept == 0 else "idle: no path goes through it" if effective == 0 else used
    counts = mask.numel(), kept, effective, kept / max(mask.numel(), 1)
    return LayerMask(name, tuple(mask.shape), *counts, rows, columns, status)


_HEAD = ("weights", "shape", "kept", "of", "density", "effective", "dead rows", "dead columns", "status")


def _cells(layer: LayerMask) -> tuple[str, ...]:
    counts = ("x".join(map(str, layer.shape)), f"{layer.kept:,}", f"{layer.weights:,}", f"{layer.density:.4g}")
    effective = "-" if layer.effective is None else f"{layer.effective:,}"
    return (layer.name, *counts, effective, str(layer.dead_rows), str(layer.dead_columns), layer.status)
