"""The checkup of a network larger than the memory: one block at a time, forward and back (THEORY section 0).

A block is given its weights, measured and emptied again; on the way back it is given the same once more. Between
blocks only the activations at their borders stay, and the tangents and the gradient that are carried.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epoch0.diagnosis.rows import Piece, joined, measured
from epoch0.errors import InputError, suggest
from epoch0.initialization.files import read_tensors
from epoch0.measure.passes import Travel, passes
from epoch0.seeds import generator
from epoch0.tracing.call import LABELS, Call
from epoch0.tracing.guard import noise_kept, noise_sources
from epoch0.tracing.layers import layers
from epoch0.tracing.operations import tensors_in
from epoch0.tracing.tape import tape

Tell = Callable[[str, float], None]
Targets = Callable[[Tensor], Any]

WEIGHTED = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)


class _Arrived(BaseException):
    """The next block is called: with what, the run of a block ends."""


def stack(model: nn.Module) -> tuple[list[list[str]], list[str], list[str]]:
    """The blocks of an ``nn.Sequential`` or of a model with one list of blocks; else an InputError says why not.

    Paths of the modules of each block, the first of which takes its input; of those with weights that run before the
    blocks, such as embeddings; and of those that run after them: a norm, a head.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if type(model) is nn.Sequential:
        flat = _flat(model, "")
        if shared := [p for p, m in flat if sum(m is other for _, other in flat) > 1]:
            raise InputError(f"the model cannot be streamed: '{shared[0]}' is used more than once.")
        groups: list[list[str]] = []
        weighted = {path: any(isinstance(part, WEIGHTED) for part in module.modules()) for path, module in flat}
        for path in weighted:
            if not groups or (weighted[path] and any(weighted[p] for p in groups[-1])):
                groups.append([])
            groups[-1].append(path)
        return groups, [], []
    lists = [(path, m) for path, m in modules.items() if isinstance(m, nn.ModuleList) and len(m) > 1]
    sizes = {path: sum(p.numel() for p in m.parameters()) for path, m in lists}
    path = max(sizes, key=lambda p: sizes[p], default="")
    kinds = {type(block).__name__ for block in modules[path]} if path else set()
    if len(kinds) != 1:
        why = f"'{path}' mixes {', '.join(sorted(kinds))}" if path else "it has no list of blocks (nn.ModuleList)"
        raise InputError(
            f"the model {type(model).__name__} cannot be streamed: {why}. "
            "An nn.Sequential or a stack of equal blocks can."
        )
    tensors = {p: (*m._parameters.values(), *m._buffers.values()) for p, m in modules.items()}
    own = [p for p in tensors if any(t is not None for t in tensors[p]) and not p.startswith(path + ".")]
    names = list(modules)
    before = [p for p in own if names.index(p) < names.index(path)]
    after = [p for p in own if p not in before and any(True for _ in modules[p].parameters(recurse=False))]
    before += [p for p in own if p not in before and p not in after]  # buffers alone are there from the start
    return [[f"{path}.{name}"] for name, _ in modules[path].named_children()], before, after


def _flat(module: nn.Module, path: str) -> list[tuple[str, nn.Module]]:
    """The children of nested plain sequences in order."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        found += _flat(child, f"{path}{name}.") if type(child) is nn.Sequential else [(f"{path}{name}", child)]
    return found


class Weights:
    """The weights of a model on the meta device, made for a few modules at a time.

    They come from ``_init_weights`` of a model of transformers, else from ``reset_parameters``, in a stream
    of the seed and the module's path, so that a block has the same weights whenever it is made; or from a folder of
    safetensors, which are mapped and not read.
    """

    def __init__(self, model: nn.Module, seed: int, folder: Path | None = None) -> None:
        self.seed, self.modules = seed, dict(model.named_modules())
        # path of a module -> the table of its own that a tensor stands in, its name there, and the tensor
        self.held: dict[str, list[tuple[dict[str, Any], str, Tensor]]] = {
            path: [(own, name, t) for own in (m._parameters, m._buffers) for name, t in own.items() if t is not None]
            for path, m in self.modules.items()
        }
        named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
        if full := next((name for name, t in named if t.device.type != "meta"), None):
            raise InputError(
                f"'{full}' has numbers already; stream=True takes a model that was built on the meta device. Its "
                "weights may lie in a folder of safetensors: stream=folder."
            )
        # parameter -> the first module that has it
        every = ((path, t) for path, held in reversed(self.held.items()) for _, _, t in held)
        self.home = {id(t): path for path, t in every if isinstance(t, nn.Parameter)}
        self.stored: dict[int, Tensor] = {}
        if folder is None:
            return
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        if not files:
            raise InputError(f"the folder {str(folder)!r} has no .safetensors in it.")
        given = {name: tensor for file in files for name, tensor in read_tensors(file, "weights")[0].items()}
        self.stored = {id(t): given[name] for name, t in named if name in given and given[name].shape == t.shape}
        for name, t in named:
            if isinstance(t, nn.Parameter) and id(t) not in self.stored:
                some = suggest(name, given) or f" It has {', '.join(list(given)[:3])} ..."
                raise InputError(f"{str(folder)!r} holds no '{name}' of shape {tuple(t.shape)}.{some}")

    def _put(self, by: Mapping[int, Any]) -> None:
        for held in self.held.values():
            for own, name, tensor in held:
                own[name] = by.get(id(tensor), tensor)

    @contextmanager
    def lent(self, paths: Sequence[str]) -> Iterator[None]:
        """Give these modules and all inside them their weights."""
        inside = [p for p in self.modules if any(p == path or p.startswith(path + ".") for path in paths)]
        tied = {self.home.get(id(t)) for p in inside for _, _, t in self.held[p]}
        try:
            self._make(list(dict.fromkeys((*(p for p in self.modules if p in tied), *inside))))
            yield
        finally:
            self._put({})

    def _make(self, paths: Sequence[str]) -> None:
        """Fresh tensors for the modules: children before what they are in, as transformers initializes."""
        by: dict[int, Any] = {}
        for t in (t for path in paths for _, _, t in self.held[path]):
            dtype = torch.float32 if t.is_floating_point() else t.dtype
            room = torch.full(t.shape, math.nan if t.is_floating_point() else 0, dtype=dtype)
            by[id(t)] = nn.Parameter(room, t.requires_grad) if isinstance(t, nn.Parameter) else room
        self._put(by)
        with noise_kept(), torch.no_grad():
            for path in sorted(paths, key=lambda p: -p.count(".")):
                if all(id(t) in self.stored for _, _, t in self.held[path]):
                    continue
                key = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big")
                noise_sources()["cpu", 0].set_state(generator(self.seed, 0x696E, key).get_state())
                module, around = self.modules[path], [path[:i] for i, c in enumerate(path) if c == "."]
                inits = [getattr(self.modules.get(parent), "_init_weights", None) for parent in [*around[::-1], ""]]
                resets = [getattr(module, name, None) for name in ("reset_parameters", "_reset_parameters")]
                if init := next(filter(callable, inits), None):
                    init(module)
                elif reset := next(filter(callable, resets), None):
                    reset()
            for key in by.keys() & self.stored.keys():
                by[key].copy_(self.stored[key])
        for path in paths:
            for _, name, t in self.held[path]:
                if by[id(t)].is_floating_point() and bool(by[id(t)].isnan().any()):
                    raise InputError(
                        f"'{path}.{name}' cannot be streamed: {type(self.modules[path]).__name__} has no "
                        "reset_parameters or _init_weights that sets it."
                    )


class _Run:
    """A model measured forward and back one block at a time, each in the model's own forward.

    The blocks before the one that runs give no numbers.
    """

    def __init__(
        self, call: Call, directions: int, seed: int, batch_norm: str, targets: Targets, weights: Path | None
    ) -> None:
        self.call, self.directions, self.targets, self.batch_norm = call, directions, targets, batch_norm
        self.blocks, self.before, self.after = stack(call.model)
        self.weights = Weights(call.model, seed, weights)
        self.count, self.modules = len(self.blocks), self.weights.modules
        self.inputs = list[Tensor]()  # of each block but the first, as far as they are known
        self.several: int | None = None  # how many things a block returns, where it is a tuple
        self.travel = Travel(directions, 1 if directions == 2 else directions, seed)
        self.source = generator(seed, 0x616C)
        labelled = isinstance(call.batch, Mapping) and any(call.batch.get(key) is not None for key in LABELS)
        self.has_loss = labelled or call.targets is not None

    def lent(self, index: int) -> AbstractContextManager[None]:
        first = [p for p in self.before if index == 0 or not isinstance(self.modules[p], nn.Embedding)]
        last = self.after if index == self.count - 1 else ()
        return self.weights.lent((*first, *self.blocks[index], *last))

    def part(self, index: int) -> Call:
        """The call of one block, on what the block before it gave."""
        batch = self.call.batch if index == 0 else self.inputs[index - 1]
        own = dict[str, Any](splits=False, notes=(), _seen={})
        return replace(self.call, batch=batch, forward=lambda model, batch: self._run(index, batch), **own)

    def _run(self, index: int, batch: Any) -> Any:
        blocks, modules, undo = self.blocks, self.modules, ExitStack()

        def instead(path: str, forward: Callable[..., Any]) -> None:
            modules[path].forward = forward
            undo.callback(modules[path].__dict__.pop, "forward")

        def nothing(*args: Any, **named: Any) -> Any:
            gone = torch.full_like(batch, math.nan)
            return gone if self.several is None else (gone, *[None] * (self.several - 1))

        def embedded(width: Any) -> Callable[..., Any]:
            return lambda ids, *args, **named: batch.new_full((*ids.shape, width), math.nan)

        def begin(module: nn.Module, args: Any, named: Any) -> Any:
            return ((batch, *args[1:]), named) if args else (args, {**named, next(iter(named)): batch})

        def end(module: nn.Module, args: Any, named: Any) -> None:
            given = tensors_in((args, named))
            if sum(t.requires_grad for t in given) > 1:
                path = blocks[index + 1][0]
                raise InputError(f"the model cannot be streamed: '{path}' takes more than one signal.")
            raise _Arrived(given[0])

        def note(module: nn.Module, args: Any, made: Any) -> None:
            self.several = len(made) if isinstance(made, tuple) else None

        def before(path: str, hook: Callable[..., Any]) -> None:
            undo.callback(modules[path].register_forward_pre_hook(hook, prepend=True, with_kwargs=True).remove)

        with undo:
            for path in (path for group in blocks[:index] for path in group):
                instead(path, nothing)
            if index:
                for path in self.before:
                    if isinstance(modules[path], nn.Embedding):
                        instead(path, embedded(modules[path].embedding_dim))
                before(blocks[index][0], begin)
            elif self.before:
                undo.callback(modules[blocks[0][0]].register_forward_hook(note).remove)
            if index < self.count - 1:
                before(blocks[index + 1][0], end)
            try:
                return self.call.raw(batch=self.call.batch if index else batch)
            except _Arrived as arrived:
                return arrived.args[0]

    def forward(self, index: int) -> Piece:
        last, name = index == self.count - 1, self.blocks[index][0]
        with self.lent(index):
            part = replace(self.part(index), targets=self.call.targets if last else None)
            if last and not self.has_loss:
                with torch.no_grad():
                    part = replace(part, targets=self.targets(part.output(part.run())))
            part = _Ending(**vars(part)) if last else part
            with tape(part, batch_norm=self.batch_norm) as record:
                moved = any(record.nodes[op.outputs[0]].depends for op in record.ops if op.outputs)
                if not moved or not layers(record):
                    raise InputError(f"the model cannot be streamed: nothing passes through '{name}'.")
                with torch.no_grad():
                    made = record.run(record.x).detach().clone()
                # numbers that the blocks before did not give must not be met: NaN stand in their place
                bad = made.isnan() if last else ~made.isfinite()
                if index and bool(bad.any()) and bool(self.inputs[index - 1].isfinite().all()):
                    raise InputError(
                        f"the model cannot be streamed: after '{name}' numbers are not finite; they overflow, or "
                        "another path leads there from an earlier block."
                    )
                if not last:
                    self.inputs.append(made)
                return measured(record, self.directions, self.travel.seed, self.travel, self.source, gradients=last)

    def back(self, index: int, piece: Piece) -> Piece:
        """The piece with the gradients that come from behind it."""
        part = replace(self.part(index), targets=None)
        with self.lent(index), tape(part, batch_norm=self.batch_norm) as record:
            nodes = sorted({part.node for row in piece.rows for part in row.parts} | {row.output for row in piece.rows})
            back = Travel(0, 0, 0)
            back.gradient = self.travel.gradient
            found = passes(record, (), 0, 0, nodes=nodes, travel=back).gradients
        self.travel.gradient = back.gradient
        gains = [
            replace(gain, gradient=found[row.output]) for gain, row in zip(piece.gains.layers, piece.rows, strict=True)
        ]
        rows = [
            replace(row, parts=tuple(replace(p, row=replace(p.row, gradient=found[p.node])) for p in row.parts))
            for row in piece.rows
        ]
        after = replace(piece.gains, layers=tuple(gains), input_gradient=found[0])
        return replace(piece, gains=after, rows=tuple(rows))


def stream(
    call: Call, directions: int, seed: int, batch_norm: str, targets: Targets, tell: Tell, weights: Path | None
) -> Piece:
    """Measure the layers of a model block by block, forward and back.

    ``targets`` makes them up from the outputs where there are none; ``weights`` is a folder of safetensors, or one
    file. An InputError names what is in the way.
    """
    run, pieces = _Run(call, directions, seed, batch_norm, targets, weights), list[Piece]()
    ways = [("forward", index) for index in range(run.count)] + [("back", i) for i in reversed(range(run.count - 1))]
    for step, (way, index) in enumerate(ways):
        tell(f"{run.blocks[index][0]}, {way}", step / len(ways))
        if way == "forward":
            pieces.append(run.forward(index))
        else:
            pieces[index] = run.back(index, pieces[index])
    return joined(pieces, type(call.model).__name__)


@dataclass(frozen=True, eq=False)
class _Ending(Call):
    """The call of the last block, whose model returns the loss of its own."""

    @property
    def has_loss(self) -> bool:
        return True
