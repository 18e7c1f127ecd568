"""The meaning of each torch function: one table for all packages, and how a call is made while it is measured.

An entry has the kind of an operation and its arguments; packages say what they do with a kind. So a new operation is
one line of operations.txt, and a new activation one in :mod:`epoch0.activations`, which this table includes. Dropout is
the identity and batch norm takes the statistics that were asked for (THEORY section 0).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    """Enter functions, ``conv*d`` for those of 1, 2 and 3 dimensions. An argument is its role, and behind a "=" torch's
    name where that differs. What is there stays: activations have precedence over the functions below.
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
_enter("extremum", "maximum fmax", "input other", finds=_maximum)
for _line in Path(__file__).with_name("operations.txt").read_text("utf-8").splitlines():
    if not _line.startswith("#"):
        _sort, _names, _roles, _facts = (part.strip() for part in f"{_line}|||".split("|")[:4])
        _zero = {"zero": True, "not zero": False}.get(_facts.partition(",")[0])
        _more = {"zero": _zero, "jumps": "jumps" in _facts, "of_two": "of two" in _facts}
        _enter(_sort, _names, (_roles or "input").replace("-", ""), **_more)
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
    """While it is on, every torch function goes through :meth:`call`: the one place where torch's protocol is met. By
    itself it makes the call as it is measured, with these statistics of batch norm.
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
        raise InputError(f"a batch of one, shape {shape}, through batch norm: give more, or batch_norm='eval'.")
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
