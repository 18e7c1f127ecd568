"""Parts of a record: operations, the tensors between them, and places with names (THEORY section 0)."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from epoch0 import activations
from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.tracing.operations import MOVES, PRODUCTS, Meaning, map_tensors, meaning, tensors_in


@dataclass(frozen=True)
class Node:
    """One tensor of the record, in one version (a change in place makes a new node)."""

    index: int  # its place in ``Tape.nodes``; the input is 0
    op: int  # index of the operation that made it, -1 for the input
    shape: tuple[int, ...]  # its shape in the recorded run
    real: bool  # whether it is real floating point
    depends: bool  # whether a derivative with respect to the input reaches it


@dataclass(frozen=True)
class Slot:
    """The place of a recorded tensor among the arguments of a call."""

    node: int


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of a torch function that can be made again with other tensors in place of those it was recorded with."""

    function: Callable[..., Any]  # the torch function
    args: tuple[Any, ...]  # its positional arguments; a tensor that depends on the input is a :class:`Slot`
    kwargs: Mapping[str, Any]  # its other arguments, likewise

    def __call__(self, tensors: Mapping[int, Tensor], constants: Callable[[Tensor], Tensor] | None = None) -> Any:
        def filled(value: Any) -> Any:
            return tensors[value.node] if isinstance(value, Slot) else constants(value) if constants else value

        args, kwargs = map_tensors((self.args, dict(self.kwargs)), filled, Slot)
        return self.function(*args, **kwargs)

    @property
    def slots(self) -> list[Slot]:
        """The tensors among the arguments that depend on the input, in order; of a list among them none."""
        return [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Slot)]

    @cached_property
    def key(self) -> Hashable | None:
        """The key of its function of one number: the torch function and its numbers. None if a tensor of several
        numbers takes part, which makes the function another one in each place.
        """
        parts: list[Hashable] = [self.function]
        for value in (*self.args, *(part for item in sorted(self.kwargs.items()) for part in item)):
            if isinstance(value, Tensor):
                if value.numel() != 1:
                    return None
                value = float(value)
            parts.append(value if isinstance(value, int | float | str | bool | None) else type(value).__name__)
        return tuple(parts)

    def constants(self) -> list[Tensor]:
        """The tensors among the arguments that do not depend on the input, in order."""
        return tensors_in((self.args, dict(self.kwargs)))


@dataclass(frozen=True)
class Op:
    """One call of a torch function."""

    index: int  # its place in ``Tape.ops``
    name: str  # plain name, such as ``"linear"`` or ``"relu"``
    module: str  # qualified name of the innermost module it ran in, ``""`` for the model itself
    inputs: tuple[int, ...]  # nodes among its arguments
    outputs: tuple[int, ...]  # nodes it made, in order; a change in place may make one for each name of the tensor
    results: int  # how many of the outputs it returned (the rest are other names of a tensor changed in place)
    weights: tuple[str, ...] = ()  # parameters that take part, by qualified name
    kind: str = ""  # ``"linear"``, ``"convolution"``, ... for a weighted operation, else ``""``.
    rule: Activation | None = None  # the activation it is by its name and its arguments, if there is a rule for it
    elementwise: bool = False  # whether it is an elementwise nonlinearity
    cut: bool = False  # whether it depends on the input but no derivative goes through it (detach, a no_grad block)
    # nodes whose tensor is first met among the arguments, as (place among the tensor arguments, node): it came from
    # code that cannot be followed, or was changed under another name
    met: tuple[tuple[int, int], ...] = ()
    # how to make the call again; None where that is not possible
    call: FunctionCall | None = field(default=None, compare=False, repr=False)

    @cached_property
    def activation(self) -> Activation | None:
        """The activation it is: by rule, or made from the call itself; None if it is no function of one number."""
        if self.rule is not None or not self.elementwise or self.call is None or len(self.inputs) != 1:
            return self.rule
        call, node = self.call, self.inputs[0]
        return made_activation(self.name, call.key, lambda h: call({node: h.clone()}))

    @property
    def meaning(self) -> Meaning:
        return meaning(self.name)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the call by their roles; empty if it cannot be made again."""
        return {} if self.call is None else self.meaning.given(self.call.args, self.call.kwargs)

    def with_arguments(self, **new: Any) -> FunctionCall:
        """The call with other arguments, by their roles."""
        assert self.call is not None
        return FunctionCall(self.call.function, *self.meaning.replaced(self.call.args, self.call.kwargs, **new))

    @property
    def linear_part(self) -> FunctionCall | None:
        """The call without its bias, where that is a linear map of its one input; else None."""
        bias, one = self.given.get("bias"), self.call is not None and len(self.call.slots) == 1
        if self.kind not in ("linear", "convolution") or not one or isinstance(bias, Slot):
            return None
        return self.call if bias is None else self.with_arguments(bias=torch.zeros_like(bias))


def only_moves(op: Op) -> bool:
    """Whether this moves entries to other places and changes none."""
    return op.meaning.kind in MOVES or op.meaning.kind == "repeat"


def is_average(op: Op) -> bool:
    """Whether this takes means over places."""
    return op.call is not None and op.meaning.kind == "average"


def is_linear(op: Op) -> bool:
    """Whether this is an average, a sum over places, a padding or a multiplication by one number."""
    linear = op.meaning.kind in ("average", "resample", "pad") or op.name == "sum"
    return op.call is not None and (linear or is_scaling(op))


def is_scaling(op: Op) -> bool:
    """Whether this multiplies by one number."""
    call = op.call
    return call is not None and op.meaning.kind in PRODUCTS and len(call.slots) == 1 and call.key is not None


@dataclass(frozen=True)
class Tap:
    """A place to measure at: a name for people, and the node behind it."""

    name: str
    node: int


def use(name: str, uses: Counter[str]) -> str:
    """Count one use more; its name: that of what is used, then ``"... (2nd use)"`` and so on."""
    uses[name] += 1
    if (count := uses[name]) == 1:
        return name
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(count % 10 if count % 100 not in (11, 12, 13) else 0, "th")
    return f"{name} ({count}{suffix} use)"


KEPT = 64  # how many made activations are remembered, so that a function used in every layer is looked at once

_made: dict[Hashable, Activation | None] = {}


def made_activation(name: str, key: Hashable | None, function: Callable[[Tensor], Tensor]) -> Activation | None:
    """The activation that an elementwise function of tensors is, whatever its name; None if it is none."""
    if key is None:
        return None
    if key not in _made:
        while len(_made) >= KEPT:
            del _made[next(iter(_made))]
        try:
            with torch.inference_mode(False), torch.enable_grad():
                _made[key] = activations.custom(function, name=f"this {name}" if name in activations.KNOWN else name)
        except InputError:
            _made[key] = None
    return _made[key]
