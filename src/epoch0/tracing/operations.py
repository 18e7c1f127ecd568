"""The meaning of each torch function: one table for all packages, and how a call is made while it is measured.

An entry has the kind of an operation and its arguments; packages say what they do with a kind. So a new
operation is one entry here, and a new activation one in :mod:`epoch0.activations`, which this table includes. Dropout
is the identity and batch norm takes the statistics that were asked for (THEORY section 0).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from epoch0 import activations
from epoch0.activations import Activation
from epoch0.errors import InputError

Function = Callable[..., Any]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

# Kinds that multiply by learnt weights and so start a layer; that are no linear map of the input; of functions of
# numbers that are no activations by themselves and may be part of one; that carry entries to other places unchanged.
WEIGHTED = frozenset({"linear", "convolution", "bilinear", "attention", "recurrent"})
_NONLINEAR = "activation extremum function choice largest softmax spread attention mixing recurrent other"
NONLINEAR = frozenset(_NONLINEAR.split())
ARITHMETIC = frozenset({"sum", "product", "quotient", "negation", "function", "choice"})
MOVES = frozenset({"same", "reshape", "move", "select"})
PRODUCTS = ("product", "quotient")  # that scale, by a number or by another signal


@dataclass(frozen=True)
class Meaning:
    """One entry of the table.

    Kinds are ``"activation"``: an elementwise nonlinearity; ``"extremum"``: the larger of two; ``"function"``: another
    function of numbers; ``"sum"``, ``"product"``, ``"quotient"``, ``"negation"``, ``"choice"``: of two tensors, or a
    tensor and numbers; ``"linear"``, ``"convolution"``, ``"bilinear"``, ``"attention"``, ``"recurrent"``: products with
    weights; ``"mixing"``: attention without weights; ``"norm"``; ``"dropout"``; ``"average"``, ``"total"``,
    ``"spread"``, ``"largest"``: of many entries; ``"softmax"``; ``"same"``, ``"reshape"``, ``"move"``, ``"select"``,
    ``"repeat"``, ``"join"``, ``"pad"``, ``"place"``, ``"write"``, ``"resample"``: entries that change places;
    ``"fill"``: a tensor is taken for its shape only; ``"lookup"``; ``"other"``: nonlinear in another way;
    ``"unknown"``.
    """

    kind: str = "unknown"  # one of these
    # roles of its arguments in order, each with torch's name; the rest is not distinguished
    arguments: tuple[tuple[str, str], ...] = (("input", "input"),)
    # whether it is 0 where its input is 0, for functions of numbers; None where that is not known
    zero: bool | None = None
    jumps: bool = False  # whether it is not continuous
    of_two: bool = False  # whether it may also take two tensors, entry by entry
    # from its arguments, by role, to the activation that it is
    finds: Callable[[Kwargs], Activation | None] | None = None

    @property
    def weighted(self) -> str:
        """The kind, of an operation that may start a layer."""
        return self.kind if self.kind in WEIGHTED else ""

    @property
    def elementwise(self) -> bool:
        """Whether it is an elementwise nonlinearity, whose output is a layer of its own."""
        return self.kind in ("activation", "extremum")

    @property
    def arithmetic(self) -> bool:
        """Whether it is a function of numbers that may be part of an activation."""
        return self.of_two or self.kind in ARITHMETIC

    def activation(self, args: Args, kwargs: Mapping[str, Any]) -> Activation | None:
        """The activation that a call with these arguments computes, or None."""
        return None if self.finds is None else self.finds(self.given(args, kwargs))

    def given(self, args: Args, kwargs: Mapping[str, Any]) -> Kwargs:
        """The arguments of a call by their roles; those that were left out are not in it."""
        found = {role: value for (role, _), value in zip(self.arguments, args, strict=False)}
        return {**found, **{role: kwargs[name] for role, name in self.arguments[len(args) :] if name in kwargs}}

    def replaced(self, args: Args, kwargs: Mapping[str, Any], **new: Any) -> tuple[Args, Kwargs]:
        """The arguments of a call with others in place of some that were given."""
        names = {name: role for role, name in self.arguments}
        roles = [role for role, _ in self.arguments[: len(args)]]
        changed = tuple(new.get(role, value) for role, value in zip(roles, args, strict=False)) + args[len(roles) :]
        return changed, {name: new.get(names.get(name, ""), value) for name, value in kwargs.items()}


def _between(given: Kwargs, low: float | None = None, high: float | None = None) -> Activation | None:
    low, high = given.get("min", low), given.get("max", high)
    if not all(bound is None or isinstance(bound, int | float) for bound in (low, high)) or low is high is None:
        return None
    if low is None:
        assert high is not None
        return activations.piecewise("clamp", (float(high),), (1.0, 0.0), min(0.0, high), max=float(high))
    if high is None:
        clamped = activations.piecewise("clamp", (float(low),), (0.0, 1.0), max(0.0, low), min=float(low))
        return activations.get("relu") if low == 0 else clamped
    if (known := activations.known_call("hardtanh", (low, high), {})) is not None or not low < high:
        return known
    low, high = float(low), float(high)
    return activations.piecewise("clamp", (low, high), (0.0, 1.0, 0.0), min(max(0.0, low), high), min=low, max=high)


def _prelu(given: Kwargs) -> Activation | None:
    if not isinstance(weight := given.get("weight"), Tensor) or not bool((weight == weight.flatten()[:1]).all()):
        return None  # a slope for each channel
    return activations.leaky_relu(float(weight.detach().flatten()[0]))


def _rrelu(given: Kwargs) -> Activation:
    return activations.leaky_relu((given.get("lower", 1 / 8) + given.get("upper", 1 / 3)) / 2)


def _threshold(given: Kwargs) -> Activation | None:
    return activations.get("relu") if given["threshold"] == given["value"] == 0 else None


def _maximum(given: Kwargs) -> Activation | None:
    other = given.get("other")
    return activations.get("relu") if isinstance(other, Tensor) and not bool(other.detach().any()) else None


def _softshrink(given: Kwargs) -> Activation:
    width = float(given.get("lambd", 0.5))
    return activations.piecewise("softshrink", (-width, width), (1.0, 0.0, 1.0), lambd=width)


MEANINGS: dict[str, Meaning] = {}  # the table: plain name of a torch function -> what it means


def _enter(kind: str, names: str, arguments: str = "input", **facts: Any) -> None:
    """Enter functions, ``conv*d`` for those of 1, 2 and 3 dimensions.

    An argument is its role, and behind a "=" torch's name where that differs. What is there stays: an entry
    of an activation has precedence over one of the function below.
    """
    roles = tuple((word.split("=")[0], word.split("=")[-1]) for word in arguments.split())
    for name in names.split():
        for dimensions in "123" if "*" in name else " ":
            MEANINGS.setdefault(name.replace("*", dimensions), Meaning(kind, roles, **facts))


def _enter_known(entry: activations.Known) -> None:
    def finds(given: Kwargs) -> Activation | None:
        return entry.reads(**{name: given.get(name, usual) for name, usual in entry.parameters})

    names, arguments = " ".join([entry.function, *entry.aliases]), [name for name, _ in entry.parameters]
    _enter("activation", names, " ".join(["input", *arguments]), zero=entry.zero, finds=finds)


_enter("activation", "hardtanh", "input min=min_val max=max_val", zero=True, finds=lambda given: _between(given, -1, 1))
for _entry in activations.KNOWN.values():
    if _entry.function:
        _enter_known(_entry)
_enter("activation", "clamp clip", "input min max", zero=True, finds=_between)
_enter("activation", "clamp_min", "input min", zero=True, finds=_between)
_enter("activation", "clamp_max", "input max", zero=True, finds=_between)
_enter("activation", "softshrink", "input lambd", zero=True, finds=_softshrink)
_enter("activation", "prelu", "input weight", zero=True, finds=_prelu)
_enter("activation", "rrelu", "input lower upper", zero=True, finds=_rrelu)
_enter("activation", "threshold", "input threshold value", zero=True, jumps=True, finds=_threshold)
_enter("activation", "tanhshrink atan arctan", zero=True)
_enter("activation", "hardshrink sign", zero=True, jumps=True)
_enter("activation", "logsigmoid log_sigmoid cos logit", zero=False)
_enter("activation", "heaviside", zero=False, jumps=True)
_enter("extremum", "maximum fmax", "input other", finds=_maximum)
_enter("extremum", "minimum fmin", "input other")
_enter("function", "sqrt square expm1 log1p asinh sinh tan", zero=True)
_enter("function", "pow float_power", "input other=exponent", zero=True)
_enter("function", "hypot atan2", "input other", zero=True)
_enter("function", "exp exp2 rsqrt reciprocal log log2 log10 erfc cosh sinc", zero=False)
_enter("function", "lerp addcmul logaddexp")
_enter("sum", "add iadd sub isub subtract rsub", "input other")
_enter("product", "mul imul multiply dot outer", "input other")
_enter("quotient", "div idiv divide true_divide truediv itruediv", "input other")
_enter("negation", "neg negative", zero=True)
_enter("choice", "where", "condition input other", jumps=True)
_enter("choice", "threshold_backward", "input=grad_output condition=self other=threshold", jumps=True)  # by a mask

_enter("linear", "linear", "input weight bias")
_enter("linear", "matmul", "input weight=other")
_enter("linear", "mm bmm", "input weight=mat2")
_enter("linear", "mv", "weight=input input=vec")
_enter("linear", "addmm", "bias=input input=mat1 weight=mat2")
_enter("linear", "baddbmm", "bias=input input=batch1 weight=batch2")
_enter("linear", "addmv", "bias=input weight=mat input=vec")
_enter("linear", "einsum tensordot", "")
_enter("bilinear", "bilinear", "input=input1 other=input2 weight bias")
_enter("convolution", "conv*d", "input weight bias stride padding dilation groups")
_enter("convolution", "conv_transpose*d", "input weight bias stride padding output_padding groups dilation")
_enter("convolution", "convolution", "input weight bias stride padding dilation transposed output_padding groups")
_enter("recurrent", "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
_HEADS = "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn "
_HEADS += "dropout_p out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask "
_HEADS += "use_separate_proj_weight q_proj_weight k_proj_weight v_proj_weight static_k static_v"
_enter("attention", "multi_head_attention_forward", _HEADS)
_enter("mixing", "scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale enable_gqa")

_enter("norm", "batch_norm", "input running_mean running_var weight bias training momentum eps")
_enter("norm", "instance_norm", "input running_mean running_var weight bias training=use_input_stats momentum eps")
_enter("norm", "layer_norm", "input normalized_shape weight bias eps")
_enter("norm", "rms_norm", "input normalized_shape weight eps")
_enter("norm", "group_norm", "input num_groups weight bias eps")
_enter("norm", "local_response_norm")
_enter("dropout", "dropout dropout*d alpha_dropout", "input p training", zero=True)
_enter("dropout", "feature_dropout feature_alpha_dropout", "input p training", zero=True)
_enter("softmax", "softmax softmin log_softmax", zero=False)
_enter("softmax", "gumbel_softmax", "input=logits", zero=False)
_enter("average", "avg_pool*d", "input kernel_size stride padding ceil_mode count_include_pad divisor_override")
_enter("average", "adaptive_avg_pool*d", "input output_size")
_enter("average", "mean", "input dim keepdim")
_enter("total", "sum nanmean", "input dim keepdim")
_enter("total", "cumsum fold index_add scatter_add")
_enter("spread", "std var norm logsumexp", "input dim keepdim")
_enter("spread", "lp_pool1d lp_pool2d", "input norm_type kernel_size stride ceil_mode")
_POOLED = "input kernel_size stride padding dilation ceil_mode return_indices"
_enter("largest", "max_pool*d max_pool*d_with_indices", _POOLED)
_enter("largest", "adaptive_max_pool*d", "input output_size return_indices")
_enter("largest", "amax amin", "input dim keepdim")
_enter("largest", "max min", "input dim keepdim", of_two=True)
_enter("other", "fractional_max_pool2d fractional_max_pool3d glu topk sort kthvalue median")

_enter("same", "contiguous clone detach positive pos", zero=True)
_enter("same", "to float double half bfloat16 type type_as cpu cuda data requires_grad identity alias")
_enter("reshape", "flatten reshape view squeeze unsqueeze unflatten view_as reshape_as ravel atleast_1d atleast_2d")
_enter("move", "permute transpose t T mT H mH adjoint movedim moveaxis swapaxes swapdims flip fliplr flipud roll rot90")
_enter("move", "pixel_shuffle pixel_unshuffle")
_enter("move", "channel_shuffle", "input groups")
_enter("select", "getitem select narrow chunk split tensor_split unbind index_select gather take_along_dim diagonal")
_enter("select", "masked_select")
_enter("repeat", "expand expand_as repeat tile repeat_interleave broadcast_to broadcast_tensors meshgrid")
_enter("join", "cat concat concatenate stack hstack vstack dstack")
_enter("pad", "pad", "input pad mode value")
_enter("pad", "constant_pad_nd", "input pad value")
_enter("place", "masked_fill tril triu index_copy scatter unfold as_strided")
_enter("write", "setitem copy zero index_put")
_enter("resample", "interpolate upsample", "input size scale_factor mode align_corners")
_enter("fill", "zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty")
_enter("lookup", "embedding embedding_bag")
_enter("unknown", "nan_to_num normalize", zero=True)
_enter("unknown", "round ceil floor trunc", zero=True, jumps=True)
_enter("unknown", "gt lt ge le", jumps=True)

_UNKNOWN = Meaning()


def meaning(name: str) -> Meaning:
    """The entry of a torch function, by its plain name; of one that is not in the table the kind is "unknown"."""
    return MEANINGS.get(name, _UNKNOWN)


def function_name(func: Function) -> str:
    """The plain name of a torch function: ``relu`` for ``F.relu``, ``torch.relu_`` and ``Tensor.relu``."""
    if (name := getattr(func, "__name__", str(func))) == "__get__":  # a property such as x.T
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return dunder.group(1) if (dunder := _DUNDER.match(name)) else name.strip("_")


_DUNDER = re.compile(r"__(?:[ri](?=add|sub|mul|matmul|truediv|div|pow|floordiv))?(\w+?)__$")


class Calls(TorchFunctionMode):
    """While it is on, every torch function goes through :meth:`call`: the one place where torch's protocol is met.

    By itself it makes the call as it is measured, with these statistics of batch norm.
    """

    def __init__(self, batch_norm: str = "eval") -> None:
        super().__init__()
        self.batch_norm = batch_norm

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        return self.call(func, function_name(func), args, kwargs or {})

    def call(self, func: Function, name: str, args: Args, kwargs: Kwargs) -> Any:
        return measured(func, name, args, kwargs, self.batch_norm)


def measured(func: Function, name: str, args: Args, kwargs: Kwargs, batch_norm: str, hold: bool = False) -> Any:
    """Make the model's call of a torch function as it is measured."""
    if (known := meaning(name)).kind == "dropout":
        return known.given(args, kwargs)["input"]
    if func in (F.batch_norm, F.instance_norm):
        return func(**_with_statistics(func, known.given(args, kwargs), batch_norm, hold and func is F.batch_norm))
    if known.kind == "mixing":
        args, kwargs = known.replaced(args, kwargs, dropout_p=0.0)
    if name == "hardsigmoid":  # torch's own has no second derivative
        x = args[0] if args else kwargs["input"]
        inside = kwargs.get("inplace") or func.__name__.endswith("_")
        return F.hardtanh_(x.div_(6).add_(0.5), 0.0, 1.0) if inside else F.hardtanh(x / 6 + 0.5, 0.0, 1.0)
    return func(*args, **kwargs)


def _with_statistics(func: Function, given: Kwargs, batch_norm: str, hold: bool) -> Kwargs:
    """The arguments of batch or instance norm with the statistics of the batch ("train") or running ones ("eval")."""
    given.pop("training", None)
    named = "training" if func is F.batch_norm else "use_input_stats"
    running = given.get("running_mean") is not None and given.get("running_var") is not None
    if batch_norm == "eval" and running:
        return {**given, named: False}
    shape = tuple(given["input"].shape)
    if func is F.batch_norm and shape[0] == 1 and running:  # without running ones it standardizes weights
        why = f"a batch of one, shape {shape}, through batch norm: one example has no batch statistics"
        raise InputError(f"{why}. Give more examples, or measure with batch_norm='eval'.")
    mean = variance = None
    if hold:
        x = given["input"].detach()
        over = [0, *range(2, x.dim())]
        mean, variance = x.mean(over), x.var(over, correction=0)
    return {**given, "running_mean": mean, "running_var": variance, named: not hold}


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in a nest of tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list | dict):
        return [t for v in (value.values() if isinstance(value, dict) else value) for t in tensors_in(v)]
    return []


def map_tensors(value: Any, change: Callable[[Any], Any], *others: type) -> Any:
    """The same nest of tuples, lists and dicts with each tensor, and each object of the other types, changed."""
    if isinstance(value, (Tensor, *others)):
        return change(value)
    if isinstance(value, tuple | list):
        changed = [map_tensors(v, change, *others) for v in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if isinstance(value, dict):
        return type(value)((k, map_tensors(v, change, *others)) for k, v in value.items())
    return value
