"""Write down one run of a model: every torch function, the tensors it joined and its module (THEORY section 0).

Dependence on the start is not guessed: the recorded run has gradients switched on for the start alone, so a tensor
depends on it exactly when it requires a gradient. Where code cannot be followed, the gradient graph says where a
tensor came from. The start is the batch's floating point tensor; of a batch of integers it is the first one that the
model makes from them, such as the output of an embedding.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.tracing import operations
from epoch0.tracing.call import Call, described, mapped, starts
from epoch0.tracing.failures import explain_first_run
from epoch0.tracing.graph import FunctionCall, Node, Op, Slot, Tap, use


class Recorder(operations.Calls):
    """Writes down one run; see the fields of :class:`~epoch0.tracing.tape.Tape`."""

    def __init__(self, call: Call, batch_norm: str) -> None:
        super().__init__()
        self.owner, self.model, self.batch_norm = call, call.model, batch_norm
        self.start, self.x = -1, torch.empty(0)
        self._whole: dict[int, Tensor] = {}  # integers of the batch and what is made of them, until a start is found
        self.ops: list[Op] = []
        self.events: list[Op] = []
        self.nodes: list[Node] = []
        self.overwritten: set[int] = set()
        self.has_batch_norm = self.has_dropout = False
        self._known: dict[int, tuple[Tensor, int]] = {}  # the tensor is kept, so that its id stays its own
        self._sharing: dict[int, list[Tensor]] = {}  # tensors on one storage
        self._gradients: dict[tuple[Any, int], int] = {}
        self._renamed: set[int] = set()  # changed under another name, not met again yet
        self._weights: dict[int, tuple[Tensor, frozenset[str]]]
        self._weights = {id(p): (p, frozenset([name])) for name, p in self.model.named_parameters()}
        # path, module, its arguments, how many nonlinearities came before it
        self._stack: list[tuple[str, nn.Module, tuple[Any, ...], int]] = []
        self._calls: list[tuple[str, Tensor, int | None]] = []
        self._nonlinear: list[tuple[str, Tensor, int | None, Op | None]] = []

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
            try:
                with self:
                    result = self.owner.raw(batch=batch)
            except (InputError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                raise explain_first_run(error, self.model, given, [frame[:3] for frame in self._stack]) from error
        tensor = self.owner.output(result)
        if place is None and self.start < 0:
            why = f"the model {type(self.model).__name__} makes no floating point tensor from {given}"
            raise InputError(f"{why}: gradients have nowhere to start. Give a floating point batch.")
        given = given.removeprefix("an ").removeprefix("a ")
        if not tensor.requires_grad:
            where = f"no derivative of the model's output reaches its {given}"
            raise InputError(f"{where}: the output is constant or detached.")
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

        def taps(places: Iterable[tuple[str, Tensor, int | None, Op | None]]) -> Iterator[tuple[str, Tap]]:
            uses: Counter[str] = Counter()
            for name, tensor, node, op in places:
                node = self._known.get(id(tensor), (tensor, None))[1] if node is None else node
                if node is not None:
                    yield name, Tap(use(name, uses), node, op)

        modules: dict[str, tuple[Tap, ...]] = {}
        for path, tap in taps((*call, None) for call in self._calls):
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
        if alone and len(inside := self._nonlinear[before:]):
            # a module that is nothing but a nonlinearity is named after itself, however it computes it
            only = inside[0][3] if len(inside) == 1 and inside[0][2] == node else None
            self._nonlinear[before:] = [(path, tensor, node, only)]

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
        node = self._new_node(tensor)
        name = type(origin[0]).__name__.removesuffix("Backward")
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
            sharing = self._sharing.setdefault(tensor.untyped_storage().data_ptr(), [])
            if all(t is not tensor for t in sharing):
                sharing.append(tensor)

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        known = operations.meaning(name)
        if known.kind == "dropout":
            self.has_dropout |= float(known.given(args, kwargs).get("p", 0.5)) > 0
            return operations.measured(func, name, args, kwargs, self.batch_norm)
        self.has_batch_norm |= name in ("batch_norm", "instance_norm")
        given = operations.tensors_in((args, kwargs))
        versions = [_version(tensor) for tensor in given]
        nodes = [self._node_if_known(tensor) for tensor in given]
        origins = [(tensor.grad_fn, tensor.output_nr) if tensor.requires_grad else None for tensor in given]
        result = operations.measured(func, name, args, kwargs, self.batch_norm)
        made = operations.tensors_in(args[0] if name == "setitem" else result)
        if not made:
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
        op = Op(
            len(self.ops), name, self._path(), inputs, tuple(outputs), len(made), tuple(sorted(weights)),
            met=tuple(met), call=again,
        )  # fmt: skip
        if not depends:
            if weights:
                self._weights.update({id(t): (t, weights) for t in made if id(t) not in self._weights})
            op = replace(op, cut=bool(inputs) and any(self.nodes[n].real for n in outputs))
        elif weights and known.weighted:
            op = replace(op, kind=known.weighted, fan_in=operations.fan_in(name, known, known.given(args, kwargs)))
        elif known.elementwise and len(inputs) == 1 and len(made) == 1:
            op = replace(op, elementwise=True, rule=known.activation(args, kwargs))
            self._nonlinear.append((f"{self._path()}.{name}()".removeprefix("."), made[0], outputs[0], op))
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
        """The call with places instead of the tensors that depend on the input, which are not kept.

        None if it changed a constant, which is another one then.
        """
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
        others: list[Tensor] = []
        for tensor in changed:
            for t in self._sharing.get(tensor.untyped_storage().data_ptr(), [tensor]):
                if id(t) in self._known:
                    self.overwritten.add(self._known[id(t)][1])
                if t.requires_grad and all(t is not u for u in (*made, *others)):
                    others.append(t)
        outputs = [self._new_node(t) for t in (*made, *others)]
        self._renamed.update(outputs[len(made) :])
        return outputs


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
