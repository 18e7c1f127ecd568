"""Record one run of any model, and run it again with chosen tensors read or replaced (THEORY section 0).

The record is made of torch functions, wherever they are called: in a module, functionally, in place, in a module used
twice. Dropout is the identity and batch norm uses the statistics asked for; the model is in eval mode and is restored.

The recorded run has gradients switched on for the start alone, so a tensor depends on it exactly when it requires a
gradient, whose graph is asked where code cannot be followed. The start is the batch's floating point tensor; of a batch
of integers the first one that the model makes from them, such as the output of an embedding.
"""

import importlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from epoch0.errors import InputError, reworded, suggest
from epoch0.tracing import operations
from epoch0.tracing.call import Call, Forward, as_written, described, mapped, starts
from epoch0.tracing.failures import explain_first_run, explain_replay
from epoch0.tracing.graph import FunctionCall, Node, Op, Slot, Tap, use
from epoch0.tracing.guard import same_noise, unchanged

Change = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True, eq=False)
class Tape:
    """The record of one run, valid while :func:`tape` is open."""

    call: Call  #: the model and the batch, as they are called; :attr:`model` is in eval mode while the tape is open
    #: where signals start, node 0, shape (examples, ...): the checked input; of several floating point tensors the
    #: first of two or more dimensions; of a batch of integers the first floating point tensor the model makes from them
    #: (the output of an embedding), which further runs replace
    x: Tensor
    start: int  #: index of the operation that makes x, -1 if x is in the batch
    batch_norm: str  #: ``"train"`` or ``"eval"``
    ops: tuple[Op, ...]  #: the calls in order
    #: the same, and among them what code that cannot be followed did (an autograd function), with index -1
    events: tuple[Op, ...] = field(repr=False)
    nodes: tuple[Node, ...]  #: the tensors in order of their making
    output: int  #: node of the output
    nonlinearities: tuple[Tap, ...]  #: outputs of the elementwise nonlinearities in order, with unique names
    #: outputs of the named modules; a module used twice has two taps, the second named ``"... (2nd use)"``.
    modules: Mapping[str, tuple[Tap, ...]] = field(repr=False)
    has_batch_norm: bool  #: whether batch or instance norm ran
    has_dropout: bool  #: whether dropout with a positive rate ran (as the identity)
    overwritten: frozenset[int] = field(repr=False)  #: nodes whose memory is changed in place later in the run
    #: whether further runs take the statistics of the batch as constants, so that derivatives are those of each example
    #: alone (``dataclasses.replace(tape, hold_statistics=True)``)
    hold_statistics: bool = False

    @property
    def model(self) -> nn.Module:
        """The bare module that runs; a float32 copy if the weights given are half precision."""
        return self.call.model

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the reader of any result: a copy that was measured, inputs that were held."""
        op = self.ops[self.start] if self.start >= 0 else None
        where = f" in '{op.module}'" if op is not None and op.module else ""
        made = (f"Signals start at the output of {op.name}{where}.",) if op is not None else ()
        return (*self.call.notes, *starts(self.model, self.call.batch)[2], *made)

    def name_of(self, tensor: Any) -> str:
        """The parameter in whose memory a tensor lies; empty if it lies in none."""
        return self._by_memory.get(tensor.untyped_storage().data_ptr(), "") if isinstance(tensor, Tensor) else ""

    @cached_property
    def _by_memory(self) -> dict[int, str]:
        return {p.untyped_storage().data_ptr(): name for name, p in self.model.named_parameters() if p.numel()}

    def taps(self, names: Sequence[str] | None = None) -> list[Tap]:
        """The places with these names, in the order of the names; by default all nonlinearities."""
        if names is None:
            return list(self.nonlinearities)
        named = {tap.name: (tap,) for taps in self.modules.values() for tap in taps}
        named.update({tap.name: (tap,) for tap in self.nonlinearities})
        if unknown := [name for name in names if name not in named and name not in self.modules]:
            known, name = [n for n in named if n], unknown[0]
            raise InputError(f"no layer is named {name!r}.{suggest(name, known)} The layers are {', '.join(known)}.")
        return [tap for name in names for tap in {**named, **self.modules}[name]]

    def run(self, x: Tensor, change: Mapping[int, Change] | None = None) -> Tensor:
        """Run the same computation again, looking at or replacing chosen tensors on the way, to the output tensor.
        Works inside ``torch.func`` transforms and with dual tensors. An error if the operations differ.
        """
        return self.outputs(x, change)[1]

    def outputs(self, x: Tensor, change: Mapping[int, Change] | None = None) -> tuple[Any, Tensor]:
        """All that the model returns, for :meth:`Call.loss`, and the output tensor; arguments as in :meth:`run`."""
        mode = _Replay(self, change or {})
        same_noise()
        mode.start = start = mode.at(0, x.clone())  # cloned: the model may change its input in place
        batch, place = self.call.batch, None if self.start >= 0 else starts(self.model, self.call.batch)[0]
        batch = start if batch is place else mapped(batch, lambda t: start if t is place else t.clone())
        with self._explained(lambda: mode.index), mode:
            result = self.call.raw(batch=batch)
        if mode.index < len(self.ops):
            raise _different(self.ops[mode.index], "nothing more")
        output = mode.finish(self.call.output(result))
        return output if isinstance(result, Tensor) else result, output

    def values(self, x: Tensor, nodes: Sequence[int]) -> list[Tensor]:
        """The tensors of these nodes for another input: a pure function of x, for ``torch.func.jvp`` and the like."""
        seen: dict[int, Tensor] = {}

        def keep(node: int, tensor: Tensor) -> None:
            seen[node] = tensor.clone() if node in self.overwritten else tensor

        self.run(x, {node: partial(keep, node) for node in nodes})
        return [seen[node] for node in nodes]

    def tangents(self, nodes: Sequence[int], x: Tensor, dx: Tensor) -> list[Tensor]:
        """The derivative of each node's tensor along dx, zero where none reaches it. Statistics of the batch must be
        held if points meet in them.
        """
        with torch.inference_mode(False), torch.no_grad(), forward_ad.dual_level():
            with torch.autocast(x.device.type, enabled=False):
                values = self.values(forward_ad.make_dual(x, dx), nodes)
            moved = [forward_ad.unpack_dual(value) for value in values]
        return [torch.zeros_like(point) if tangent is None else tangent for point, tangent in moved]

    def backward(self) -> AbstractContextManager[None]:
        """A context for ``torch.autograd.grad``: where torch cannot differentiate, the error says why."""
        return self._explained(lambda: len(self.ops))

    @contextmanager
    def _explained(self, reached: Callable[[], int]) -> Iterator[None]:
        with _quiet_attention():
            try:
                yield
            except InputError:
                raise
            except Exception as error:
                if (explained := explain_replay(error, self.events, reached())) is error:
                    raise
                raise explained from error


_MODULE = "torch._decomp.decompositions_for_jvp"


def prepare_forward_derivatives() -> None:
    """Import what torch imports on the first dual number or jvp, with a warning about its own code."""
    if _MODULE not in sys.modules:
        with warnings.catch_warnings(action="ignore"):
            importlib.import_module(_MODULE)


def how_it_ran(batch_norm: str | None, dropout: bool) -> list[str]:
    """How batch norm, ``"train"``, ``"eval"`` or None, and dropout were treated, in words."""
    statistics = {"train": "statistics of this batch, as in training", "eval": "running statistics"}
    return ([f"batch norm used the {statistics[batch_norm]}"] if batch_norm else []) + ["dropout was off"] * dropout


def together(*looks: Mapping[int, Change]) -> dict[int, Change]:
    """Several hooks on the tensors of one run; none of them replaces anything."""

    def at(node: int, tensor: Tensor) -> None:
        for look in looks:
            if node in look:
                look[node](tensor)

    return {node: partial(at, node) for node in dict.fromkeys(node for look in looks for node in look)}


@contextmanager
def tape(
    model: nn.Module | Call,
    batch: Any = None,
    *,
    forward: Forward | None = None,
    batch_norm: str = "train",
    still: bool = False,
) -> Iterator[Tape]:
    """Check the model and the batch, run the model once, and yield the record; afterwards the model is restored.

    >>> with tape(model, x) as t:                              # x of shape (examples, ...)
    ...     [tap.name for tap in t.nonlinearities]
    ...     [values.shape for values in t.values(t.x, [tap.node for tap in t.nonlinearities])]
    ['1', '3']
    [torch.Size([100, 32]), torch.Size([100, 32])]

    Batch norm takes the statistics of the batch (``"train"``) or the running ones (``"eval"``), which stay as they are.
    ``still``: whether a model that writes into its own weights is refused; else they are put back.
    """
    prepare_forward_derivatives()
    call = model if isinstance(model, Call) else Call.of(model, batch, forward=forward)
    hooks: list[Any] = [nn.modules.module._global_backward_hooks, nn.modules.module._global_backward_pre_hooks]
    kept = [dict(each) for each in hooks]
    with unchanged(call.model, still=still), torch.inference_mode(False):
        call.model.eval()
        for parameter in call.model.parameters():
            parameter.requires_grad_(False)
        for module in call.model.modules():
            hooks += [module._backward_hooks, module._backward_pre_hooks]
        try:
            for each in hooks:  # gains are those of the model, not of what somebody watches it with
                each.clear()
            yield _record(call, batch_norm)
        finally:
            for each, before in zip(hooks, kept, strict=False):  # those of single modules come back with the model
                each.update(before)


def _record(call: Call, batch_norm: str) -> Tape:
    # a function of its own, so that the recorded tensors are freed before the tape is used
    recorder = Recorder(call, batch_norm)
    same_noise()
    with _quiet_attention(), torch.enable_grad():
        output = recorder.record()
    modules, nonlinearities = recorder.named()
    ran = tuple(recorder.ops), tuple(recorder.events), tuple(recorder.nodes)
    facts = recorder.has_batch_norm, recorder.has_dropout, frozenset(recorder.overwritten)
    return Tape(call, recorder.x, recorder.start, batch_norm, *ran, output, nonlinearities, modules, *facts)


@contextmanager
def _quiet_attention() -> Iterator[None]:
    # Only the plain implementation of attention has forward derivatives everywhere. And a transformer layer has a short
    # cut where no gradient is asked for: it is to run the same operations in each run.
    short_cut = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), as_written():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(short_cut)


def _different(op: Op, found: str) -> InputError:
    was = f"operation {op.index} was {op.name} in module '{op.module}', now {found}"
    return InputError(f"the model computes something else each time ({was}), which cannot be measured.")


class _Replay(operations.Calls):
    """Count the operations, compare them with the record, and pass the chosen tensors to their hooks."""

    def __init__(self, record: Tape, change: Mapping[int, Change]) -> None:
        super().__init__()
        self.record, self.change, self.index = record, change, 0
        self.start: Tensor | None = None
        self.handed: set[int] = set()
        self.replaced: dict[int, tuple[Tensor, Tensor]] = {}  # a tensor changed in place and replaced, and what by

    def at(self, node: int, tensor: Tensor) -> Tensor:
        self.handed.add(node)
        new = self.change[node](tensor) if node in self.change else None
        return tensor if new is None else new

    def current(self, tensor: Tensor) -> Tensor:
        while id(tensor) in self.replaced:
            tensor = self.replaced[id(tensor)][1]
        return tensor

    def replace(self, old: Tensor, new: Tensor) -> None:
        if old is not new:
            self.replaced[id(old)] = (old, new)

    def finish(self, result: Tensor) -> Tensor:
        result = self.current(result)
        return result if self.record.output in self.handed else self.at(self.record.output, result)

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        ops = self.record.ops
        if self.replaced:
            args, kwargs = operations.map_tensors(args, self.current), operations.map_tensors(kwargs, self.current)
        if self.index < len(ops) and ops[self.index].met and ops[self.index].name == name:
            found = operations.tensors_in((args, kwargs))
            for place, node in ops[self.index].met:
                self.replace(found[place], self.at(node, found[place]))
            if self.replaced:
                args, kwargs = operations.map_tensors(args, self.current), operations.map_tensors(kwargs, self.current)
        if self.index == self.record.start and name == ops[self.index].name:
            self.index += 1
            return self.start
        record = self.record
        if (result := _of_dual(func, name, args, kwargs)) is None:
            result = operations.measured(func, name, args, kwargs, record.batch_norm, record.hold_statistics)
        if operations.meaning(name).kind == "dropout":
            return result
        written = args[0] if name == "setitem" else result
        if not (tensors := [written] if isinstance(written, Tensor) else operations.tensors_in(written)):
            return result
        if self.index >= len(ops):
            raise _different(Op(self.index, "nothing more", "", (), (), 0), name)
        if (op := ops[self.index]).name != name or op.results != len(tensors):
            raise _different(op, name)
        self.index += 1
        if op.cut:
            result = operations.map_tensors(result, Tensor.detach)
        elif not self.change.keys().isdisjoint(op.outputs):
            new = [self.at(node, tensor) for node, tensor in zip(op.outputs, tensors, strict=False)]
            old_inputs = {id(t) for t in operations.tensors_in((args, kwargs))}
            for old, fresh in zip(tensors, new, strict=True):
                if id(old) in old_inputs:
                    self.replace(old, fresh)
            result = None if name == "setitem" else operations.map_tensors(result, lambda _: new.pop(0))
        return result


def _of_dual(func: Any, name: str, args: Any, kwargs: Any) -> Tensor | None:
    """A layer of a dual tensor; torch adds the tangent of its bias, and if that is nothing it takes longest."""
    known = operations.meaning(name)
    if name != "linear" and known.kind != "convolution":
        return None
    given = {role: t for role, t in known.given(args, kwargs).items() if isinstance(t, Tensor)}
    point, tangent = forward_ad.unpack_dual(given.pop("input"))
    if tangent is None or any(forward_ad.unpack_dual(t).tangent is not None for t in given.values()):
        return None
    at, along = ({"input": point}, {"input": tangent} | {role: None for role in given if role == "bias"})
    made = [func(*some, **named) for some, named in (known.replaced(args, kwargs, **one) for one in (at, along))]
    dual: Tensor = forward_ad.make_dual(*made)
    return dual


class Recorder(operations.Calls):
    """Records one run; see the fields of :class:`~epoch0.tracing.tape.Tape`."""

    def __init__(self, call: Call, batch_norm: str) -> None:
        super().__init__(batch_norm)
        self.owner, self.model = call, call.model
        self.start, self.x = -1, torch.empty(0)
        self._whole: dict[int, Tensor] = {}  # integers of the batch and what is made of them, until a start is found
        self.ops: list[Op] = []
        self.events: list[Op] = []
        self.nodes: list[Node] = []
        self.overwritten: set[int] = set()
        self.has_batch_norm = self.has_dropout = False
        self._known: dict[int, tuple[Tensor, int]] = {}  # the tensor is kept, so that its id stays its own
        self._sharing: dict[int, dict[int, Tensor]] = {}  # tensors on one storage, by id
        self._gradients: dict[tuple[Any, int], int] = {}
        self._renamed: set[int] = set()  # changed under another name, not met again yet
        self._weights: dict[int, tuple[Tensor, frozenset[str]]]
        self._weights = {id(p): (p, frozenset([name])) for name, p in self.model.named_parameters()}
        # path, module, its arguments, how many nonlinearities came before it
        self._stack: list[tuple[str, nn.Module, tuple[Any, ...], int]] = []
        self._calls: list[tuple[str, Tensor, int | None]] = []
        self._nonlinear: list[tuple[str, Tensor, int | None]] = []

    def record(self) -> int:
        """Run the model once and return the node of its output."""
        batch = self.owner.batch
        given = described(batch)
        place, whole, _ = starts(self.model, batch)
        beginning = place.clone().requires_grad_().clone() if place is not None else None
        self.nodes.append(Node(0, -1, (), True, True))

        def put(tensor: Tensor) -> Tensor:
            new = beginning if beginning is not None and tensor is place else tensor.clone()
            if place is None and any(tensor is t for t in whole):
                self._whole[id(new)] = new
            return new

        batch = mapped(batch, put)
        if place is not None and beginning is not None:
            self._begin(place, beginning)
        with ExitStack() as hooks:
            for path, module in self.model.named_modules():
                hooks.enter_context(module.register_forward_pre_hook(partial(self._enter, path), prepend=True))
                hooks.enter_context(module.register_forward_hook(partial(self._leave, path)))
            failed = partial(explain_first_run, model=self.model, given=given, stack=self._stack)
            with reworded(failed, torch.OutOfMemoryError), self:
                result = self.owner.raw(batch=batch)
        tensor = self.owner.output(result)
        if place is None and self.start < 0:
            raise InputError(f"{type(self.model).__name__} makes no floating point tensor from {given}; give one.")
        given = given.removeprefix("an ").removeprefix("a ")
        if not tensor.requires_grad:
            raise InputError(f"no derivative of the model's output reaches its {given}: it is constant or detached.")
        node = self._node_if_known(tensor)
        if tensor is beginning or node == 0:
            raise InputError(f"the model returns its {given} as it is: nothing to measure.")
        return self._unseen(tensor, (tensor.grad_fn, tensor.output_nr)) if node is None else node

    def _begin(self, x: Tensor, start: Tensor) -> None:
        self.x = x.detach()
        self.nodes[0] = Node(0, -1, tuple(start.shape), True, True)
        self._know(start, 0)

    def named(self) -> tuple[dict[str, tuple[Tap, ...]], tuple[Tap, ...]]:
        """The outputs of modules by name, and the outputs of the nonlinearities, each use under its own name."""

        def taps(places: Iterable[tuple[str, Tensor, int | None]]) -> Iterator[tuple[str, Tap]]:
            uses: Counter[str] = Counter()
            for name, tensor, node in places:
                node = self._known.get(id(tensor), (tensor, None))[1] if node is None else node
                if node is not None:
                    yield name, Tap(use(name, uses), node)

        modules: dict[str, tuple[Tap, ...]] = {}
        for path, tap in taps(self._calls):
            modules[path] = (*modules.get(path, ()), tap)
        return modules, tuple(tap for _, tap in taps(self._nonlinear))

    def _enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._stack.append((path, module, args, len(self._nonlinear)))

    def _leave(self, path: str, module: nn.Module, args: Any, result: Any) -> None:
        while self._stack[-1][1] is not module:  # the model caught an exception of a submodule
            self._stack.pop()
        before = self._stack.pop()[3]
        tensor = next((t for t in operations.tensors_in(result) if t.requires_grad), None)
        if tensor is None or not path:
            return
        node = self._node_if_known(tensor)
        self._calls.append((path, tensor, node))
        of_torch = type(module).__module__ == "torch.nn.modules.activation"
        alone = next(module.children(), None) is None and (of_torch or next(module.parameters(), None) is None)
        if alone and self._nonlinear[before:]:
            # a module that is nothing but a nonlinearity is named after itself, however it computes it
            self._nonlinear[before:] = [(path, tensor, node)]

    def _node_if_known(self, tensor: Tensor) -> int | None:
        node = self._known[id(tensor)][1] if id(tensor) in self._known else None
        return None if node is None or (tensor.requires_grad and not self.nodes[node].depends) else node

    def _unseen(self, tensor: Tensor, origin: tuple[Any, int]) -> int:
        """A node for a tensor from code that cannot be followed, joined to those that the gradient graph leads to."""
        sources, seen, todo = set[int](), set[tuple[Any, int]](), [origin]
        while todo:
            if (at := todo.pop()) in self._gradients:
                sources.add(self._gradients[at])
            elif at[0] is not None and at not in seen:
                seen.add(at)
                todo.extend(at[0].next_functions)
        node, name = self._new_node(tensor), type(origin[0]).__name__.removesuffix("Backward")
        self.events.append(Op(-1, name, self._path(), tuple(sorted(sources)), (node,), 0))
        return node

    def _path(self) -> str:
        return self._stack[-1][0] if self._stack else ""

    def _new_node(self, tensor: Tensor) -> int:
        shape, number = tuple(tensor.shape), len(self.nodes)
        self.nodes.append(Node(number, len(self.ops), shape, tensor.is_floating_point(), tensor.requires_grad))
        self._know(tensor, number)
        return number

    def _know(self, tensor: Tensor, node: int) -> None:
        self._known[id(tensor)] = (tensor, node)
        if tensor.requires_grad:
            self._gradients[tensor.grad_fn, tensor.output_nr] = node
            self._sharing.setdefault(tensor.untyped_storage().data_ptr(), {})[id(tensor)] = tensor

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if (known := operations.meaning(name)).kind == "dropout":
            self.has_dropout |= float(known.given(args, kwargs).get("p", 0.5)) > 0
            return super().call(func, name, args, kwargs)
        self.has_batch_norm |= name in ("batch_norm", "instance_norm")
        given = operations.tensors_in((args, kwargs))
        versions = [_version(tensor) for tensor in given]
        nodes = [self._node_if_known(tensor) for tensor in given]
        origins = [(tensor.grad_fn, tensor.output_nr) if tensor.requires_grad else None for tensor in given]
        result = super().call(func, name, args, kwargs)
        if not (made := operations.tensors_in(args[0] if name == "setitem" else result)):
            return result
        if self._whole and known.kind != "fill" and any(id(tensor) in self._whole for tensor in given):
            if isinstance(result, Tensor) and result.is_floating_point():
                return self._begin_here(name, given, result)
            self._whole.update({id(t): t for t in made if not (t.is_floating_point() or t.dtype == torch.bool)})
        met: list[tuple[int, int]] = []
        for place, (tensor, origin) in enumerate(zip(given, origins, strict=True)):
            if nodes[place] is None and origin is not None:
                nodes[place] = self._node_if_known(tensor)  # it may be among the arguments twice
                if nodes[place] is None:
                    nodes[place] = unseen = self._unseen(tensor, origin)
                    met.append((place, unseen))
            elif (node := nodes[place]) is not None and node in self._renamed:
                self._renamed.discard(node)
                met.append((place, node))
        inputs = tuple(dict.fromkeys(n for n in nodes if n is not None and self.nodes[n].depends))
        weights = frozenset[str]().union(*(self._weights[id(t)][1] for t in given if id(t) in self._weights))
        outputs = self._outputs(given, versions, made)
        depends = any(self.nodes[n].depends for n in outputs)
        again = self._again(func, args, kwargs, given, versions, nodes) if depends else None
        fields = len(self.ops), name, self._path(), inputs, tuple(outputs), len(made), tuple(sorted(weights))
        op = Op(*fields, met=tuple(met), call=again)
        if not depends:
            if weights:
                self._weights.update({id(t): (t, weights) for t in made if id(t) not in self._weights})
            op = replace(op, cut=bool(inputs) and any(self.nodes[n].real for n in outputs))
        elif weights and known.weighted:
            op = replace(op, kind=known.weighted)
        elif known.elementwise and len(inputs) == 1 and len(made) == 1:
            op = replace(op, elementwise=True, rule=known.activation(args, kwargs))
            self._nonlinear.append((f"{self._path()}.{name}()".removeprefix("."), made[0], outputs[0]))
        self.ops.append(op)
        self.events.append(op)
        return result

    def _begin_here(self, name: str, given: list[Tensor], made: Tensor) -> Tensor:
        """The first floating point tensor made from the integers of the batch is the start."""
        self._whole.clear()
        self.start = len(self.ops)
        weights = tuple(sorted(name for t in given if id(t) in self._weights for name in self._weights[id(t)][1]))
        op = Op(self.start, name, self._path(), (), (), 1, weights)
        self.ops.append(op)
        self.events.append(op)
        start = made.detach().clone().requires_grad_().clone()
        self._begin(made, start)
        return start

    def _again(
        self, func: Any, args: Any, kwargs: Any, given: list[Tensor], versions: list[int], nodes: list[int | None]
    ) -> FunctionCall | None:
        """The call with places instead of the tensors that depend on the input; None if it changed a constant."""
        places: dict[int, Any] = {}
        for tensor, version, node in zip(given, versions, nodes, strict=True):
            if node is not None and self.nodes[node].depends:
                places[id(tensor)] = Slot(node)
            elif _version(tensor) != version:
                return None
        swap = cast(Callable[[Tensor], Tensor], lambda t: places[id(t)] if id(t) in places else t.detach())
        return FunctionCall(func, operations.map_tensors(args, swap), operations.map_tensors(kwargs, swap))

    def _outputs(self, given: list[Tensor], versions: list[int], made: list[Tensor]) -> list[int]:
        """New nodes for what a call made, and for every other name of a tensor that it changed in place."""
        changed = [t for t, version in zip(given, versions, strict=True) if _version(t) != version]
        on_one = (self._sharing.get(t.untyped_storage().data_ptr(), {id(t): t}) for t in changed)
        shared = {key: t for tensors in on_one for key, t in tensors.items()}
        self.overwritten.update(self._known[key][1] for key in shared if key in self._known)
        others = [t for t in shared.values() if t.requires_grad and all(t is not u for u in made)]
        outputs = [self._new_node(t) for t in (*made, *others)]
        self._renamed.update(outputs[len(made) :])
        return outputs


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
