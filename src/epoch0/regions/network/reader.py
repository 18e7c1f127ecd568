"""Goes through a traced graph once with a few probe points and writes down the steps (DESIGN: one walk)."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from epoch0.errors import InputError
from epoch0.regions.network.operations import (
    fold_call,
    is_affine,
    largest_call,
    module_call,
    multiplies,
    refusal,
)
from epoch0.regions.network.steps import Affine, Fold, Largest, Program, Step
from epoch0.tracing.operations import meaning

PROBE = 13  # points in the trial run; a shape that is fixed to this number by the model's code is unlikely


class _Batch:
    """Stands for the number of points wherever the traced code asks for it."""

    def __repr__(self) -> str:
        return "the number of points"


_BATCH = _Batch()


class _Slot:
    """Stands for a tensor that depends on the input."""

    def __init__(self, index: int, probe: Tensor) -> None:
        self.index, self.probe = index, probe


class Reader:
    """Goes through the graph once with a few probe points, and writes down the steps."""

    def __init__(self, model: nn.Module, device: torch.device, shape: tuple[int, ...], probe: Tensor) -> None:
        self.model, self.device, self.shape = model, device, shape
        self.steps: list[Step] = []
        self.slots = 1
        self.input = _Slot(0, probe.to(device))
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.names: set[str] = set()
        self.widths: list[int] = []
        self.elements = [probe[0].numel()]

    def read(self, graph: fx.Graph, notes: tuple[str, ...]) -> Program:
        """The steps of a graph, with notes for whoever reads the result."""
        values: dict[fx.Node, Any] = {}
        found: Any = None
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = self._placeholder(node)
            elif node.op == "output":
                found = fx.node.map_arg(node.args[0], lambda n: values[n])
            elif node.op == "get_attr":
                values[node] = self._constant(_attribute(self.model, str(node.target)))
            else:
                args = fx.node.map_arg(node.args, lambda n: values[n])
                kwargs = fx.node.map_arg(node.kwargs, lambda n: values[n])
                values[node] = self._call(node, tuple(args), dict(kwargs))
                if _in_place(node, self.modules) and isinstance(first := node.args[0], fx.Node):
                    values[first] = values[node]  # whoever reads that tensor from now on reads what it became
        if not isinstance(found, _Slot):
            raise InputError("the model's output does not depend on its input, or is no single tensor.")
        return Program(
            tuple(self.steps), found.index, self.shape, tuple(found.probe.shape[1:]), tuple(self.widths),
            tuple(self.elements), notes,
        )  # fmt: skip

    def _placeholder(self, node: fx.Node) -> Any:
        if not any(isinstance(v, Tensor) for v in node.args) and self.input.index == 0 and not self.names:
            self.names.add("")
            return self.input
        return node.args[0] if node.args else None

    def _constant(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            value = value.detach().to(self.device)
            return value.double() if value.is_floating_point() else value
        return value

    def _name(self, name: str) -> str:
        unique, count = name, 2
        while unique in self.names:
            unique, count = f"{name}#{count}", count + 1
        self.names.add(unique)
        return unique

    def _call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        where = f"node '{node.name}'"
        if node.op == "call_module":
            module = self.modules[str(node.target)]
            where = f"module '{node.target}' ({type(module).__name__})"
            operation, call, weights, own = module_call(module, where)
            weights, kwargs, title = tuple(self._constant(w) for w in weights), {**own, **kwargs}, str(node.target)
        else:
            operation = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "?")
            target: Any = node.target
            call = _method(operation) if node.op == "call_method" else target
            title, weights = node.name, ()
            operation = operation.removeprefix("__").removesuffix("__").rstrip("_")
        if operation in ("size", "getattr", "dim", "len") or (operation == "getitem" and _is_shape(args[0])):
            return self._shape(operation, args, where)
        if operation.startswith("_assert"):  # how torch.fx notes that an argument was left at its default
            return None
        if not any(isinstance(a, _Slot) for a in _flat((args, kwargs))):
            return self._constant(call(*args, *weights, **kwargs))
        try:
            return self._step(operation, call, args, weights, kwargs, self._name(title), where)
        except (TypeError, RuntimeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the operation {operation} ({where}) cannot be followed: {error}") from error

    def _shape(self, operation: str, args: tuple[Any, ...], where: str) -> Any:
        value = args[0]
        if operation == "getattr" and args[1] in ("shape", "ndim", "device", "dtype"):
            if args[1] in ("device", "dtype"):
                return getattr(value.probe if isinstance(value, _Slot) else value, args[1])
            operation = "size" if args[1] == "shape" else "dim"
            args = (value,)
        if operation == "getattr":
            raise InputError(f"the attribute {args[1]} ({where}) has no rule here.")
        if isinstance(value, tuple):
            return value[args[1]] if operation == "getitem" else len(value)
        if not isinstance(value, _Slot):
            return value.dim() if operation == "dim" else value.size(*args[1:])
        if operation == "dim":
            return value.probe.dim()
        sizes = (_BATCH, *value.probe.shape[1:])
        return sizes if len(args) == 1 else sizes[args[1]]

    def _step(
        self, operation: str, call: Callable[..., Any], args: tuple[Any, ...], weights: tuple[Any, ...],
        kwargs: dict[str, Any], name: str, where: str,
    ) -> Any:  # fmt: skip
        kind = meaning(operation).kind
        if kind in ("same", "dropout"):
            if kind == "dropout" and kwargs.get("training", args[2] if len(args) > 2 else True):
                raise InputError(f"dropout is switched on in evaluation mode ({where}): the network is random.")
            return args[0]
        if kind == "activation":
            values, faces, run, recession = fold_call(operation, args, weights, kwargs, where)
            if not isinstance(values, _Slot):
                raise InputError(f"the operation {operation} ({where}) takes its threshold or slope from the input.")
            if not faces:
                return values
            return self._fold(Fold(name, (values.index,), self.slots, faces, run, recession), values)
        if kind in ("largest", "extremum"):
            return self._largest(operation, args, kwargs, name, where)
        if is_affine(operation):
            return self._affine(operation, call, args, weights, kwargs, name, where)
        raise refusal(operation, where)

    def _fold(self, step: Fold | Largest, values: _Slot) -> _Slot:
        self.steps.append(step)
        self.widths.append(values.probe[0].numel())
        return self._new(step.run(values.probe))

    def _new(self, probe: Tensor) -> _Slot:
        self.slots += 1
        self.elements.append(probe[0].numel())
        return _Slot(self.slots - 1, probe)

    def _largest(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, where: str) -> Any:
        values = args[0]
        pair_of = meaning(operation).kind == "extremum" or (len(args) == 2 and isinstance(args[1], _Slot | Tensor))
        if pair_of:
            first, second = args
            pair = self._affine("stack", lambda a, b: torch.stack([a, b], 1), _spread(first, second, self), (), {},
                                f"{name}.pair", where)  # fmt: skip
            size = pair.probe[0, 0].numel()
            index = torch.arange(2 * size).reshape(2, size).T.contiguous()
            shape = tuple(pair.probe.shape[2:])
            low = "min" in operation
        else:
            index, shape = largest_call(operation, args, kwargs, tuple(values.probe.shape[1:]), where)
            low, pair = operation in ("amin", "min"), values
        if low:
            pair = self._affine("neg", operator.neg, (pair,), (), {}, f"{name}.negative", where)
        found = self._fold(Largest(name, (pair.index,), self.slots, index.to(self.device), shape), pair)
        back = self._affine("neg", operator.neg, (found,), (), {}, f"{name}.back", where) if low else found
        return (back, None) if operation in ("max", "min") and not pair_of else back

    def _affine(
        self, operation: str, call: Callable[..., Any], args: tuple[Any, ...], weights: tuple[Any, ...],
        kwargs: dict[str, Any], name: str, where: str,
    ) -> Any:  # fmt: skip
        kind = meaning(operation).kind
        sources = list({a.index: a for a in _flat((args, kwargs)) if isinstance(a, _Slot)}.values())
        place = {slot.index: i for i, slot in enumerate(sources)}

        def runner(power: int, pick: int | None = None) -> Callable[..., Tensor]:
            def constant(value: Any) -> Any:
                squared = power == 2 and isinstance(value, Tensor) and value.is_floating_point()
                return value.square() if squared else value

            own = tuple(constant(w) for w in weights)
            scaled = _map(args, constant) if multiplies(operation) else args
            if power == 2 and kind in ("product", "quotient"):
                scaled = tuple(a * a if isinstance(a, int | float) else constant(a) for a in args)

            def run(*tensors: Tensor) -> Any:
                def put(value: Any) -> Any:
                    if isinstance(value, _Slot):
                        return tensors[place[value.index]]
                    return len(tensors[0]) if value is _BATCH else value

                result: Any = call(*_map(scaled, put), *own, **_map(kwargs, put))
                return result if pick is None else result[pick]

            return run

        tensors = [slot.probe for slot in sources]
        result = runner(1)(*tensors)
        picks: list[int | None] = list(range(len(result))) if isinstance(result, tuple | list) else [None]
        found = []
        for pick in picks:
            run, size = runner(1, pick), runner(2, pick)
            if kind in ("sum", "negation"):
                size = _sum_of_squares(args, place)
            probe = run(*tensors)
            _check_rows(run, tensors, probe, operation, where)
            _check_affine(run, size, tensors, operation, where)
            zero = run(*(torch.zeros_like(t[:1]) for t in tensors))
            step = Affine(
                name, tuple(s.index for s in sources), self.slots, run, size, bool((zero != 0).any()),
                multiplies(operation), _terms(weights),
            )  # fmt: skip
            self.steps.append(step)
            found.append(self._new(probe))
        return found[0] if picks == [None] else tuple(found)


def _terms(weights: tuple[Any, ...]) -> int:
    """How many terms each output sums."""
    return max((w[0].numel() for w in weights if isinstance(w, Tensor) and w.dim() > 1), default=1)


def _sum_of_squares(args: tuple[Any, ...], place: dict[int, int]) -> Callable[..., Tensor]:
    """Sizes of a sum: those of its terms, squared, added."""

    def size(*tensors: Tensor) -> Tensor:
        terms = [tensors[place[value.index]] if isinstance(value, _Slot) else value * value for value in args[:2]]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total

    return size


def _spread(first: Any, second: Any, reader: Reader) -> tuple[Any, Any]:
    """The two operands of an elementwise maximum in one shape; one of them may be a constant."""
    slot = first if isinstance(first, _Slot) else second
    shape = torch.broadcast_shapes(*(tuple(v.probe.shape) if isinstance(v, _Slot) else tuple(torch.as_tensor(v).shape)
                                     for v in (first, second)))  # fmt: skip
    if shape[0] != len(slot.probe):
        raise InputError("a maximum of tensors of different batch shapes cannot be followed.")
    found = []
    for value in (first, second):
        other = slot if not isinstance(value, _Slot) else value

        def run(tensor: Tensor, value: Any = value) -> Tensor:
            constant = tensor if isinstance(value, _Slot) else torch.as_tensor(value, dtype=tensor.dtype) + 0 * tensor
            spread: Tensor = constant.expand(len(tensor), *shape[1:])
            return spread

        found.append(reader._affine("expand", run, (other,), (), {}, reader._name("operand"), "a maximum"))
    return found[0], found[1]


def _check_rows(run: Callable[..., Tensor], tensors: list[Tensor], whole: Tensor, operation: str, where: str) -> None:
    """Refuse a step that mixes points or moves their dimension."""
    part = run(*(t[3:8] for t in tensors)) if whole.dim() and len(whole) == PROBE else None
    if part is None or part.shape != whole[3:8].shape or not torch.allclose(part, whole[3:8], rtol=1e-9, atol=1e-12):
        raise InputError(
            f"the operation {operation} ({where}) mixes the examples of a batch or moves the batch dimension from its "
            "first place; regions need a network that treats each example alone."
        )


def _check_affine(
    run: Callable[..., Tensor], size: Callable[..., Tensor], tensors: list[Tensor], operation: str, where: str
) -> None:
    """Refuse a step whose value half way between points is not the mean of the values, beyond rounding of its terms."""
    a, b = [t[:4] for t in tensors], [t[4:8] for t in tensors]
    middle = run(*(0.5 * (x + y) for x, y in zip(a, b, strict=True)))
    mean = 0.5 * (run(*a) + run(*b))
    terms = torch.as_tensor(size(*(t[:8].square() for t in tensors))).sqrt()
    rounding = 1e-8 * float(mean.abs().max()) + 1e-13 * float(terms.max()) + 1e-300
    if not torch.allclose(middle, mean, rtol=1e-8, atol=rounding):
        raise refusal(operation, where)


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple)


def _method(name: str) -> Callable[..., Any]:
    name = {"view": "reshape", "view_as": "reshape_as"}.get(name, name)  # .contiguous() is left out
    return lambda value, *args, **kwargs: getattr(value, name)(*args, **kwargs)


def _attribute(model: nn.Module, path: str) -> Any:
    value: Any = model
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    return bool(node.kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__")) or node.target in (
        operator.iadd, operator.isub, operator.imul, operator.itruediv,
    )  # fmt: skip


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [one for v in value.values() for one in _flat(v)]
    if isinstance(value, tuple | list):
        return [one for v in value for one in _flat(v)]
    return [value]


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map(v, change) for key, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_map(v, change) for v in (value.start, value.stop, value.step)))
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(_map(v, change) for v in value)
    return change(value)
