"""Any piecewise linear module as a list of steps: it runs once on a few points, and every torch function is read.

Weights come in float64; a function of the points becomes a step, checked on those points, any other one is made once.
"""

import builtins
import operator
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.errors import InputError, check_finite, first_line, reworded
from epoch0.networks import nonlinearities
from epoch0.regions.network.operations import AFFINE, affine_call, fold_call, largest_call, multiplies, refusal
from epoch0.regions.network.steps import Affine, Fold, Largest, Program, Step
from epoch0.seeds import generator
from epoch0.tracing.call import as_written
from epoch0.tracing.graph import FunctionCall, Slot
from epoch0.tracing.guard import bare, check_model, unchanged
from epoch0.tracing.operations import Calls, map_tensors, meaning, tensors_in

Run = Callable[..., Tensor]
_PROBE = 13  # points in the run; a size that the model's code fixes to this number is unlikely
_MODAL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
_LEAVES = ("torch.nn", "torch.ao.nn", nonlinearities.__name__)
_ABOUT = ("size", "shape", "dim", "ndim", "len", "numel", "dtype", "device", "is_contiguous", "is_floating_point")
_VALUES = ("bool", "item", "float", "int", "index", "tolist", "numpy", "is_nonzero", "equal", "allclose")
_IN_PLACE = re.compile(r"__i(add|sub|mul|truediv)__|\w*[a-z0-9]_")


def trace(model: nn.Module, shape: tuple[int, ...], device: torch.device | str | None = None) -> Program:
    """Read the model into steps for points of a shape, in float64 and evaluation mode; the model stays as it is. Steps
    run on the model's own device. An InputError names an operation that mixes points or is not piecewise linear.
    """
    model = bare(model)
    check_model(model)
    parameter = next(model.parameters())
    notes: tuple[str, ...] = ()
    if any(m.training and isinstance(m, _MODAL) for m in model.modules()):
        notes = ("the model is in training mode; its regions are those of evaluation mode.",)
    # one point more than the probe: code that fixes the number of points fails
    points = torch.randn(2 * _PROBE + 1, *shape, generator=generator(0), dtype=torch.float64)
    probe, others = points[:_PROBE], points[_PROBE:].to(parameter.device)
    with unchanged(model), torch.no_grad(), as_written():
        model.eval()
        try:
            expected = model(others.to(parameter.dtype if parameter.is_floating_point() else torch.float32))
        except Exception as error:
            hint = "wrap a model that takes anything else, one of token ids from its embedding's output on"
            text = f"the model does not take points of shape {shape}: {first_line(error)}"
            raise InputError(f"{text}. Points are one floating point tensor; {hint}.") from error
        if not isinstance(expected, Tensor):
            kind = type(expected).__name__
            raise InputError(f"the model returns a {kind}; regions need one tensor as the output: wrap the model.")
        device = torch.device(device or parameter.device)
        program = _Reader(probe.to(device)).read(model, notes)
        ours = program.forward(others.to(device)).cpu()
        agree = _agree(ours, expected.double().cpu(), 1e-3)
        # a chaotic network in float32 may be far from itself in float64
        if not agree and not _agree(ours, deepcopy(model).double()(others).cpu(), 1e-9):
            text = f"the steps read from {type(model).__name__} do not compute what it computes"
            raise InputError(f"{text}; its forward changes tensors in place, has state or branches on values.")
    return program


def in_float64(name: str, value: Any) -> Tensor:
    """A point, or several, as a float64 tensor."""
    with reworded(lambda _: InputError(f"{name} is a {type(value).__name__}; give a tensor.")):
        value = torch.as_tensor(value).detach()
    if value.dtype in (torch.float16, torch.bfloat16) or value.is_complex():
        why = "no real point" if value.is_complex() else "too coarse to say where it is"
        raise InputError(f"{name} is {value.dtype}, {why}; give float32 or float64.")
    check_finite(name, value)
    return torch.as_tensor(value, dtype=torch.float64)


def trace_for(model: nn.Module, x: Tensor) -> tuple[Program, bool]:
    """The traced model, and whether x is one point: a batch is tried first, unless x has one dimension only."""
    if x.dim() < 2:
        return trace(model, tuple(x.shape)), True
    try:
        return trace(model, tuple(x.shape[1:])), False
    except InputError as error:
        try:
            return trace(model, tuple(x.shape)), True
        except InputError as second:
            raise (second if "does not take points" in str(error) else error) from None


def _agree(ours: Tensor, theirs: Tensor, part: float) -> bool:
    return ours.shape == theirs.shape and float((ours - theirs).abs().max()) <= part * (float(ours.abs().max()) or 1.0)


class _Reader(Calls):
    """Sees every torch function of a run, and writes down those of the points as steps."""

    def __init__(self, probe: Tensor) -> None:
        super().__init__()
        self.probe, self.device = probe, probe.device
        self.steps: list[Step] = []
        self.slots = {id(probe): (probe, 0)}  # the tensors are kept, so that their ids stay their own
        self.elements = [probe[0].numel()]
        self.names: set[str] = set()
        self.leaves: list[tuple[str, nn.Module]] = []  # modules of torch that run now, the outermost first
        self.title = self.where = ""  # the name of the step that is made, and the place that errors name

    def read(self, model: nn.Module, notes: tuple[str, ...]) -> Program:
        for path, module in model.named_modules():
            if path and not isinstance(module, nn.Sequential) and module.__module__.startswith(_LEAVES):
                self._watch(path, module)
        text = f"the forward of {type(model).__name__} cannot be followed"
        with reworded(lambda error: InputError(f"{text}: {error}")), self:
            found = model(self.probe)
        if not isinstance(found, Tensor) or id(found) not in self.slots:
            raise InputError("the model's output does not depend on its input, or is no single tensor.")
        output, shape = self.slots[id(found)][1], tuple(self.probe.shape[1:])
        return Program(tuple(self.steps), output, shape, tuple(self.elements), notes)

    def _watch(self, path: str, module: nn.Module) -> None:
        def leave(*_: Any) -> None:
            self.leaves.pop()

        module._forward_pre_hooks.clear()  # those that compute weights have run, others only look
        module._forward_hooks.clear()
        module.register_forward_pre_hook(lambda *_: self.leaves.append((path, module)))
        module.register_forward_hook(leave, always_call=True)

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Make a call; if the points take part in it, write down its step."""
        known, in_place = meaning(name), _IN_PLACE.fullmatch(getattr(func, "__name__", ""))
        given = [tensor for tensor in tensors_in((args, kwargs)) if id(tensor) in self.slots]
        # what modules of torch make of their weights they make in their own type
        if given or not (self.leaves or in_place or known.kind == "write"):
            args, kwargs = map_tensors(args, self._constant), map_tensors(kwargs, self._constant)
        if not given or name in _ABOUT:
            return func(*args, **kwargs)
        if known.kind == "same":
            return self._know(given[0].clone(memory_format=torch.contiguous_format), given[0])
        if self.leaves:
            path, module = self.leaves[0]
            self.title, self.where = self._name(path, "#", 2), f"module '{path}' ({type(module).__name__})"
        else:
            self.title = self._name(name if func.__name__.startswith("__") else func.__name__, "_", 1)
            self.where = f"call '{self.title}'"
        if name in _VALUES:
            raise InputError(f"the model asks for values of its points ({name}, {self.where}), by which it may branch.")
        if known.kind == "dropout":
            if kwargs.get("training", args[2] if len(args) > 2 else True):
                raise InputError(f"dropout is switched on in evaluation mode ({self.where}): the network is random.")
            return self._know(given[0].clone(), given[0])
        with reworded(lambda error: InputError(f"the operation {name} ({self.where}) cannot be followed: {error}")):
            made = self._step(getattr(torch.Tensor, name) if in_place else func, name, args, kwargs, given)
            result = func(*args, **kwargs)  # which may change what the model holds in place
        if isinstance(made, Tensor) and isinstance(result, tuple):  # the largest, and which it is
            return type(result)((self._know(result[0], made), None))
        for tensor, like in zip(tensors_in(result), tensors_in(made), strict=True):
            self._know(tensor, like)
        return result

    def _constant(self, value: Tensor) -> Tensor:
        """A tensor as the steps use it, if it does not depend on the points."""
        if id(value) in self.slots:
            return value
        return value.detach().to(self.device, torch.float64 if value.is_floating_point() else value.dtype)

    def _know(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Note that a tensor holds what is in the slot of another."""
        self.slots[id(tensor)] = (tensor, self.slots[id(like)][1])
        return tensor

    def _new(self, step: Step, value: Tensor) -> Tensor:
        self.steps.append(step)
        self.slots[id(value)] = (value, len(self.elements))
        self.elements.append(value[0].numel())
        return value

    def _name(self, name: str, apart: str, count: int) -> str:
        unique = name
        while unique in self.names or (apart == "_" and hasattr(builtins, unique)):
            unique, count = f"{name}{apart}{count}", count + 1
        self.names.add(unique)
        return unique

    def _step(self, func: Any, name: str, args: Any, kwargs: Any, given: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
        """Adds the step of a call, with new slots for its results."""
        kind, values = meaning(name).kind, given[0]
        if kind == "activation":
            found, faces, run, recession = fold_call(name, args, kwargs, self.where)
            if len(given) > 1 or found is not values:
                raise InputError(f"the operation {name} ({self.where}) takes its threshold or slope from the input.")
            source, slot = self.slots[id(values)][1], len(self.elements)
            return self._new(Fold(self.title, (source,), slot, faces, run, recession), run(values)) if faces else values
        if kind == "extremum" or (kind == "largest" and len(args) == 2 and isinstance(args[1], Tensor)):
            pair = self._one(_pair, "stack", args, ".pair")
            size = pair[0, 0].numel()
            windows = torch.arange(2 * size).reshape(2, size).T.contiguous()
            return self._largest(windows, tuple(pair.shape[2:]), pair, "min" in name)
        if kind == "largest":
            windows, shape = largest_call(name, args, kwargs, tuple(values.shape[1:]), self.where)
            return self._largest(windows, shape, values, name in ("amin", "min"))
        if kind in AFFINE or multiplies(name):
            return self._affine(func, name, args, kwargs, self.title)
        raise refusal(name, self.where)

    def _largest(self, windows: Tensor, shape: tuple[int, ...], values: Tensor, low: bool) -> Tensor:
        if low:
            values = self._one(operator.neg, "neg", (values,), ".negative")
        source, slot = self.slots[id(values)][1], len(self.elements)
        step = Largest(self.title, (source,), slot, windows.to(self.device), shape)
        found = self._new(step, step.run(values))
        return self._one(operator.neg, "neg", (found,), ".back") if low else found

    def _one(self, func: Run, name: str, args: Any, behind: str) -> Tensor:
        found = self._affine(func, name, args, {}, self.title + behind)
        assert isinstance(found, Tensor)
        return found

    def _affine(self, func: Any, name: str, args: Any, kwargs: Any, title: str) -> Tensor | tuple[Tensor, ...]:
        kind = meaning(name).kind
        func, args, kwargs = affine_call(func, name, args, kwargs, self.where)
        given = {self.slots[id(t)][1]: t for t in tensors_in((args, kwargs)) if id(t) in self.slots}

        def placed(value: Any, constant: Callable[[Tensor], Any] = lambda t: t) -> Any:
            return map_tensors(value, lambda t: Slot(self.slots[id(t)][1]) if id(t) in self.slots else constant(t))

        call = squared = FunctionCall(func, placed(args), placed(kwargs))
        whole = call(given)
        if kind == "reshape" or name in ("expand", "expand_as", "broadcast_to"):
            # any number of points, whatever number the code has asked for
            given = dict([next(iter(given.items()))])
            change, shape = Tensor.reshape if kind == "reshape" else Tensor.expand, whole.shape[1:]
            call = squared = FunctionCall(partial(_reshaped, change, shape), (Slot(next(iter(given))),), {})
        elif multiplies(name):
            numbers = int | float if kind in ("product", "quotient") else ()
            factors = tuple(a * a if isinstance(a, numbers) else a for a in args)
            squared = FunctionCall(func, placed(factors, _square), placed(kwargs, _square))
        elif kind in ("sum", "negation"):
            squares = tuple(a if isinstance(a, Tensor) and id(a) in self.slots else a * a for a in args[:2])
            squared = FunctionCall(_added, placed(squares), {})
        terms = max((t[0].numel() for t in tensors_in(args) if id(t) not in self.slots and t.dim() > 1), default=1)
        found = []
        for pick in range(len(whole)) if isinstance(whole, tuple | list) else (None,):
            run, size = (partial(_picked, item, tuple(given), pick) for item in (call, squared))
            value = whole if pick is None else whole[pick]
            _check(run, size, list(given.values()), value, name, self.where)
            biased = bool((run(*(torch.zeros_like(t[:1]) for t in given.values())) != 0).any())
            step = Affine(title, tuple(given), len(self.elements), run, size, biased, multiplies(name), terms)
            found.append(self._new(step, value))
        return tuple(found) if isinstance(whole, tuple | list) else found[0]


# functions of a module and no closures: a partition keeps its network, and can be pickled


def _picked(call: FunctionCall, slots: tuple[int, ...], pick: int | None, *tensors: Tensor) -> Any:
    """A call, or one of its results, for the tensors in some slots."""
    result = call(dict(zip(slots, tensors, strict=True)))
    return result if pick is None else result[pick]


def _reshaped(change: Run, shape: Sequence[int], x: Tensor) -> Tensor:
    return change(x, (len(x), *shape))


def _added(*terms: Any) -> Any:
    return sum(terms[1:], start=terms[0])


def _square(value: Tensor) -> Tensor:
    return value.square() if value.is_floating_point() else value


def _pair(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack(torch.broadcast_tensors(first, second), 1)


def _check(run: Run, size: Run, tensors: list[Tensor], whole: Tensor, operation: str, where: str) -> None:
    """Refuse a step that mixes points or moves their dimension, or is not affine half way between points."""
    part = run(*(t[3:8] for t in tensors)) if whole.dim() and len(whole) == _PROBE else None
    if part is None or part.shape != whole[3:8].shape or not torch.allclose(part, whole[3:8], rtol=1e-9, atol=1e-12):
        why = "mixes the examples of a batch or moves the batch dimension from its first place"
        raise InputError(f"the operation {operation} ({where}) {why}; it may not, nor branch on values.")
    middle, mean = run(*(0.5 * (t[:4] + t[4:8]) for t in tensors)), 0.5 * (whole[:4] + whole[4:8])
    terms = torch.as_tensor(size(*(t[:8].square() for t in tensors))).sqrt()
    rounding = 1e-8 * float(mean.abs().max()) + 1e-13 * float(terms.max()) + 1e-300
    if not torch.allclose(middle, mean, rtol=1e-8, atol=rounding):
        raise refusal(operation, where)
