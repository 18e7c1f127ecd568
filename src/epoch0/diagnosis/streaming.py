"""The checkup of a network larger than the memory: one block at a time, forward and back (THEORY section 0).

A block is given its weights, measured and emptied again; on the way back it is given the same once more. Between
blocks only the activations at their borders stay, in bfloat16 where an empty model is of half precision, and the
tangents and the gradient that are carried.
"""

import hashlib
import io
import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epoch0 import __version__
from epoch0.data.catalogue import cache_folder
from epoch0.diagnosis.result import PartCheckup
from epoch0.diagnosis.rows import Part, Piece, Row, joined, measured
from epoch0.errors import InputError, suggest
from epoch0.files import write_atomic
from epoch0.initialization.files import read_tensors
from epoch0.measure.gain import Gain, LayerGain
from epoch0.measure.passes import Signals, Travel, passes
from epoch0.seeds import generator
from epoch0.tracing.call import LABELS, Call
from epoch0.tracing.guard import HALF, noise_kept, noise_sources
from epoch0.tracing.layers import layers
from epoch0.tracing.operations import tensors_in
from epoch0.tracing.tape import tape

Tell = Callable[[str, float], None]
Targets = Callable[[Tensor], Any]
State = tuple[dict[str, Any], dict[str, Any]]  # parameters and buffers of one module

EACH = 30.0  # seconds between two writings of what is known
FORWARD = 2.0  # what a block costs on the way forward over what it costs on the way back
WEIGHTED = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)


class _Arrived(BaseException):
    """The next block is called: with what, the run of a block ends."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


@dataclass(frozen=True)
class Stack:
    """The blocks of a model in order, and what runs before and after them."""

    blocks: tuple[tuple[str, ...], ...]  # paths of the modules of each block, the first of which takes its input
    before: tuple[str, ...]  # paths of modules with weights that run before the blocks, such as embeddings
    after: tuple[str, ...]  # and after them: a norm, a head


def stack(model: nn.Module) -> Stack:
    """The blocks of an ``nn.Sequential`` or of a model with one list of blocks.

    >>> stack(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))).blocks
    (('0', '1'), ('2',))

    Raises:
        InputError: naming what is in the way.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if type(model) is nn.Sequential:
        flat = _flat(model, "")
        shared = next((p for p, m in flat if sum(m is other for _, other in flat) > 1), None)
        if shared is not None:
            raise InputError(f"the model cannot be streamed: '{shared}' is used more than once.")
        groups: list[list[str]] = []
        for path, module in flat:
            weighted = any(isinstance(part, WEIGHTED) for part in module.modules())
            if not groups or (
                weighted and any(isinstance(m, WEIGHTED) for p in groups[-1] for m in modules[p].modules())
            ):
                groups.append([])
            groups[-1].append(path)
        return Stack(tuple(map(tuple, groups)), (), ())
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
    own = [p for p, m in modules.items() if _has_own(m) and not p.startswith(path + ".")]
    names = list(modules)
    place = names.index(path)
    before = tuple(p for p in own if names.index(p) < place)
    after = tuple(p for p in own if names.index(p) > place and any(True for _ in modules[p].parameters(recurse=False)))
    always = tuple(p for p in own if p not in before and p not in after)
    blocks = tuple((f"{path}.{name}",) for name, _ in modules[path].named_children())
    return Stack(blocks, (*before, *always), after)


def _flat(module: nn.Module, path: str) -> list[tuple[str, nn.Module]]:
    """The children of nested plain sequences in order."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        found += _flat(child, f"{path}{name}.") if type(child) is nn.Sequential else [(f"{path}{name}", child)]
    return found


def _has_own(module: nn.Module) -> bool:
    return any(t is not None for t in (*module._parameters.values(), *module._buffers.values()))


class Weights:
    """The weights of a model, lent to a few modules at a time: those it has, or where it has none fresh ones.

    Fresh ones come from ``_init_weights`` of a model of transformers, else from ``reset_parameters``, in a stream
    of the seed and the module's path, so that a block has the same weights whenever it is made. A folder of
    safetensors, which are mapped and not read, may hold those of a model that has none.
    """

    def __init__(self, model: nn.Module, seed: int, folder: Path | None = None) -> None:
        self.model, self.seed = model, seed
        self.modules = dict(model.named_modules())
        self.own: dict[str, State] = {p: (dict(m._parameters), dict(m._buffers)) for p, m in self.modules.items()}
        tensors = [t for state in self.own.values() for part in state for t in part.values() if t is not None]
        on_meta = {t.device.type == "meta" for t in tensors}
        self.fresh = on_meta == {True}
        if len(on_meta) > 1 and not self.fresh:
            lost = next(n for n, t in [*model.named_parameters(), *model.named_buffers()] if t.device.type == "meta")
            raise InputError(f"'{lost}' is on the meta device and other weights are not; build all of the model there.")
        self.empty = {
            id(t): nn.Parameter(t.detach().to("meta"), t.requires_grad) if isinstance(t, nn.Parameter) else t.to("meta")
            for t in tensors
        }
        # tensor -> the first module that has it
        self.home = {id(t): p for p, s in reversed(self.own.items()) for t in s[0].values() if t is not None}
        self.stored: dict[int, Tensor] = {}
        if folder is not None:
            self._store(folder)

    def _store(self, folder: Path) -> None:
        """Look up the weights in the files of a folder, or in one file."""
        if not self.fresh:
            raise InputError(f"weights from {str(folder)!r} are for a model on the meta device; this one has its own.")
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        if not files:
            raise InputError(f"the folder {str(folder)!r} has no .safetensors in it.")
        given = {name: tensor for file in files for name, tensor in read_tensors(file, "weights")[0].items()}
        lost: dict[int, str] = {}
        for name, t in [*self.model.named_parameters(remove_duplicate=False), *self.model.named_buffers()]:
            if name not in given:
                if isinstance(t, nn.Parameter):
                    lost[id(t)] = name
            elif given[name].shape != t.shape:
                raise InputError(
                    f"'{name}' in {str(folder)!r} has shape {tuple(given[name].shape)}, the model's {tuple(t.shape)}."
                )
            else:
                self.stored[id(t)] = given[name]
        if lacks := next((n for key, n in lost.items() if key not in self.stored), None):
            some = suggest(lacks, given) or f" It has {', '.join(list(given)[:3])} ..."
            raise InputError(f"{str(folder)!r} holds no '{lacks}'.{some}")

    @contextmanager
    def put_away(self) -> Iterator[None]:
        """Leave the model without weights meanwhile."""
        try:
            self._put(self.empty)
            yield
        finally:
            self._put({})

    def _put(self, by: Mapping[int, Any]) -> None:
        for path, module in self.modules.items():
            for own, there in zip(self.own[path], (module._parameters, module._buffers), strict=True):
                for name, tensor in own.items():
                    there[name] = None if tensor is None else by.get(id(tensor), tensor)

    @contextmanager
    def lent(self, paths: Sequence[str]) -> Iterator[None]:
        """Give these modules and all inside them their weights."""
        inside = [p for p in self.modules if any(p == path or p.startswith(path + ".") for path in paths)]
        tied = {self.home[id(t)] for p in inside for t in self.own[p][0].values() if t is not None}
        wanted = list(dict.fromkeys((*(p for p in self.modules if p in tied), *inside)))
        by: dict[int, Any] = dict(self.empty)
        if self.fresh:
            by.update(self._made(wanted))
        else:
            by.update({id(t): t for p in wanted for part in self.own[p] for t in part.values() if t is not None})
        try:
            self._put(by)
            yield
        finally:
            self._put(self.empty)

    def _made(self, paths: Sequence[str]) -> dict[int, Any]:
        """Fresh tensors for the modules: children before what they are in, as transformers initializes."""
        by: dict[int, Any] = {}
        for path in paths:
            for part in self.own[path]:
                for t in part.values():
                    if t is not None and id(t) not in by:
                        dtype = torch.float32 if t.is_floating_point() else t.dtype
                        room = torch.full(t.shape, math.nan if t.is_floating_point() else 0, dtype=dtype)
                        by[id(t)] = nn.Parameter(room, t.requires_grad) if isinstance(t, nn.Parameter) else room
        self._put({**self.empty, **by})
        with noise_kept(), torch.no_grad():
            for path in sorted(paths, key=lambda p: -p.count(".")):
                if all(t is None or id(t) in self.stored for part in self.own[path] for t in part.values()):
                    continue
                key = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big")
                noise_sources()["cpu", 0].set_state(generator(self.seed, 0x696E, key).get_state())
                self._initialize(path)
            for key in by.keys() & self.stored.keys():
                by[key].copy_(self.stored[key])
        for path in paths:
            for part in self.own[path]:
                for name, t in part.items():
                    if t is not None and by[id(t)].is_floating_point() and bool(by[id(t)].isnan().any()):
                        raise InputError(
                            f"'{path}.{name}' cannot be streamed: {type(self.modules[path]).__name__} has no "
                            "reset_parameters or _init_weights that sets it."
                        )
        return by

    def _initialize(self, path: str) -> None:
        module, parents = self.modules[path], [path[:i] for i, c in enumerate(path) if c == "."]
        for parent in [*parents[::-1], ""]:
            if callable(init := getattr(self.modules.get(parent), "_init_weights", None)):
                init(module)
                return
        for name in ("reset_parameters", "_reset_parameters"):
            if callable(reset := getattr(module, name, None)):
                reset()
                return


class Blocks:
    """A model run one block at a time, each in the model's own forward: the blocks before it give no numbers."""

    def __init__(self, call: Call, found: Stack, weights: Weights) -> None:
        self.call, self.stack, self.weights = call, found, weights
        self.modules = dict(call.model.named_modules())
        self.inputs: list[Tensor] = []  # of each block but the first, as far as they are known
        self.tuples: dict[str, int] = {}

    def paths(self, index: int) -> tuple[str, ...]:
        """The modules that have weights while this block runs."""
        small = [p for p in self.stack.before if not isinstance(self.modules[p], nn.Embedding)]
        first = self.stack.before if index == 0 else small
        return (*first, *self.stack.blocks[index], *(self.stack.after if self.last(index) else ()))

    def last(self, index: int) -> bool:
        """Whether no block comes after it."""
        return index == len(self.stack.blocks) - 1

    def part(self, index: int) -> Call:
        """The call of one block, on what the block before it gave."""
        batch = self.call.batch if index == 0 else self.inputs[index - 1]
        batch = batch.float() if index and batch.dtype is torch.bfloat16 else batch  # all is computed in float32

        def forward(model: nn.Module, batch: Any) -> Any:
            return self._run(index, batch)

        return replace(self.call, batch=batch, forward=forward, splits=False, notes=(), _seen=[])

    def _run(self, index: int, batch: Any) -> Any:
        changed: list[nn.Module] = []

        def put(path: str, make: Callable[[Any], Any]) -> None:
            module = self.modules[path]
            module.forward = make(module.forward)
            changed.append(module)

        def nothing(path: str) -> Callable[[Any], Any]:
            gone = torch.full_like(batch, math.nan)
            count = self.tuples.get(path)
            return lambda old: lambda *args, **named: gone if count is None else (gone, *[None] * (count - 1))

        def embedded(path: str) -> Callable[[Any], Any]:
            width = self.modules[path].embedding_dim
            return lambda old: lambda ids, *args, **named: batch.new_full((*ids.shape, width), math.nan)

        def begins(old: Any) -> Any:
            def run(*args: Any, **named: Any) -> Any:
                if args:
                    return old(batch, *args[1:], **named)
                return old(**{**named, next(iter(named)): batch})

            return run

        def ends(path: str) -> Callable[[Any], Any]:
            def stop(*args: Any, **named: Any) -> Any:
                given = tensors_in((args, named))
                if sum(t.requires_grad for t in given) > 1:
                    raise InputError(f"the model cannot be streamed: '{path}' takes more than one signal.")
                raise _Arrived(given[0])

            return lambda old: stop

        def noted(path: str) -> Callable[[Any], Any]:
            def keep(old: Any) -> Any:
                def run(*args: Any, **named: Any) -> Any:
                    made = old(*args, **named)
                    if isinstance(made, tuple):
                        self.tuples.update({p: len(made) for group in self.stack.blocks for p in group})
                    return made

                return run

            return keep

        try:
            for number, group in enumerate(self.stack.blocks):
                for path in group if number < index else ():
                    put(path, nothing(path))
            if index:
                for path in self.stack.before:
                    if isinstance(self.modules[path], nn.Embedding):
                        put(path, embedded(path))
                put(self.stack.blocks[index][0], begins)
            elif self.stack.before:
                put(self.stack.blocks[0][0], noted(self.stack.blocks[0][0]))
            if not self.last(index):
                put(self.stack.blocks[index + 1][0], ends(self.stack.blocks[index + 1][0]))
            return replace(self.call, batch=self.call.batch).raw(batch=self.call.batch if index else batch)
        except _Arrived as arrived:
            return arrived.hidden
        finally:
            for module in changed:
                module.__dict__.pop("forward", None)


class _Run:
    """The pieces of a model, measured forward and back one block at a time."""

    def __init__(
        self, call: Call, directions: int, seed: int, batch_norm: str, targets: Targets, weights: Path | None
    ) -> None:
        self.call, self.directions, self.seed, self.targets = call, directions, seed, targets
        self.batch_norm, self.stack = batch_norm, stack(call.model)
        self.weights, self.count = Weights(call.model, seed, weights), len(self.stack.blocks)
        self.blocks = Blocks(call, self.stack, self.weights)
        self.travel = Travel(directions, 1 if directions == 2 else directions, seed)
        self.source = generator(seed, 0x616C)
        self.coarse = any(p.dtype in HALF for p in call.model.parameters())

    def forward(self, index: int) -> Piece:
        blocks, last = self.blocks, self.blocks.last(index)
        with self.weights.lent(blocks.paths(index)):
            part = blocks.part(index)
            if last and not _has_loss(self.call):
                with torch.no_grad():
                    part = replace(part, targets=self.targets(part.output(part.run())))
            part = _Ending(**vars(part)) if last else replace(part, targets=None)
            with tape(part, batch_norm=self.batch_norm) as record:
                name = self.stack.blocks[index][0]
                first = next((op for op in record.ops if op.outputs and record.nodes[op.outputs[0]].depends), None)
                if not layers(record) or first is None:
                    raise InputError(f"the model cannot be streamed: nothing passes through '{name}'.")
                with torch.no_grad():
                    made = record.run(record.x).detach().clone()
                # numbers that the blocks before did not give must not be met: NaN stand in their place
                bad = made.isnan() if last else ~made.isfinite()
                if index and bool(bad.any()) and bool(blocks.inputs[index - 1].isfinite().all()):
                    raise InputError(
                        f"the model cannot be streamed: after '{name}' numbers are not finite; they overflow, or "
                        "another path leads there from an earlier block."
                    )
                if not last:
                    blocks.inputs.append(made.bfloat16() if self.coarse else made)
                return measured(record, self.directions, self.seed, self.travel, self.source, gradients=last)

    @property
    def state(self) -> dict[str, Any]:
        """All that the next block needs beside the pieces."""
        way, sources = self.travel, [self.source, *self.travel.fresh, *self.travel.back]
        return {
            "inputs": self.blocks.inputs, "tuples": self.blocks.tuples, "sources": [s.get_state() for s in sources],
            "moving": way.moving, "begun": way.begun, "gradient": way.gradient,
        }  # fmt: skip

    @state.setter
    def state(self, kept: Mapping[str, Any]) -> None:
        way = self.travel
        for source, state in zip([self.source, *way.fresh, *way.back], kept["sources"], strict=True):
            source.set_state(state)
        self.blocks.inputs, self.blocks.tuples = kept["inputs"], kept["tuples"]
        way.moving, way.begun, way.gradient = kept["moving"], kept["begun"], kept["gradient"]

    def key(self, weights: Path | None) -> str:
        """What the numbers depend on: the model, its files and code, the batch, the settings."""
        model, digest = self.call.model, hashlib.sha256()
        files = {sys.modules[type(m).__module__].__file__ or "" for m in model.modules()} - {""}
        if weights is not None:
            files |= {str(f) for f in (weights.glob("*.safetensors") if weights.is_dir() else [weights])}
        config = getattr(model, "config", None)
        said = [str(model), str(config), self.directions, self.travel.seed, self.batch_norm, __version__]
        said += [(name, tuple(t.shape), str(t.dtype)) for name, t in model.state_dict().items()]
        said += [(name, (at := os.stat(name)).st_size, at.st_mtime_ns) for name in sorted(files)]
        digest.update(repr(said).encode())
        for t in tensors_in((self.call.batch, self.call.targets)):
            digest.update(repr((t.dtype, t.shape)).encode() + t.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def back(self, index: int, piece: Piece) -> Piece:
        part = replace(self.blocks.part(index), targets=None)
        with self.weights.lent(self.blocks.paths(index)), tape(part, batch_norm=self.batch_norm) as record:
            return _back(record, piece, self.travel)


class _Kept:
    """One file in the user's cache folder with what is known of a run that was stopped; a later run writes over it.

    Only plain numbers, tensors and the records of this package are read from it.
    """

    RECORDS = (Piece, Gain, LayerGain, Row, Signals, Part, PartCheckup)

    def __init__(self, key: str) -> None:
        self.key, self.path, self.last = key, cache_folder() / "streaming.pt", time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The state of a run that was stopped, if it was this one."""
        try:
            with torch.serialization.safe_globals([*self.RECORDS]):
                found: dict[str, Any] = torch.load(self.path, weights_only=True)
        except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, TypeError, AttributeError):
            return None
        return found if isinstance(found, dict) and found.get("key") == self.key else None

    def save(self, state: dict[str, Any]) -> None:
        """Write it, unless that was done lately."""
        if time.monotonic() - self.last < EACH:
            return
        whole = io.BytesIO()
        torch.save({**state, "key": self.key}, whole)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, whole.getvalue())
        self.last = time.monotonic()

    def remove(self) -> None:
        """The run has come to its end."""
        if self.load() is not None:
            self.path.unlink(missing_ok=True)


def stream(
    call: Call, directions: int, seed: int, batch_norm: str, targets: Targets, tell: Tell, weights: Path | None = None,
    notes: list[str] | None = None,
) -> Piece:  # fmt: skip
    """Measure the layers of a model block by block, forward and back.

    Of a model on the meta device what is known is kept in the user's cache folder twice a minute until the end; killed
    and called again, it goes on at the block where it was, which the notes say. ``targets`` makes them up from the
    outputs where there are none; ``weights`` is a folder of safetensors, or one file. An InputError names what is in
    the way.
    """
    run, notes = _Run(call, directions, seed, batch_norm, targets, weights), [] if notes is None else notes
    count, names, pieces = run.count, [group[0] for group in run.stack.blocks], list[Piece]()
    ways = [("forward", index) for index in range(count)] + [("back", index) for index in reversed(range(count - 1))]
    keeps = run.weights.fresh and call.criterion is None and call.forward is None  # no function can be told apart
    kept, done = _Kept(run.key(weights)) if keeps else None, 0
    if kept is not None and (state := kept.load()) is not None:
        pieces, notes[:], run.state, done = state["pieces"], state["notes"], state, state["done"]
        notes.append(f"Of a run that was stopped {done} of {len(ways)} steps were there.")
    with run.weights.put_away():
        for step, (way, index) in enumerate(ways[done:], done):
            share = (min(step, count) * FORWARD + max(0, step - count)) / (count * FORWARD + count - 1)
            tell(f"{names[index]}, {way}", share)
            if way == "forward":
                pieces.append(run.forward(index))
            else:
                pieces[index] = run.back(index, pieces[index])
            if kept is not None:
                kept.save({**run.state, "pieces": pieces, "notes": notes, "done": step + 1})
    if kept is not None:
        kept.remove()
    return joined(pieces, type(call.model).__name__)


@dataclass(frozen=True)
class Plan:
    """What streaming a model would take, from its first and its last block."""

    blocks: int
    parameters: int
    memory: int  # bytes that the process takes at most
    seconds: float  # on the clock, with the threads there are
    tried: float  # seconds that finding this out took

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks, {self.parameters:,} parameters "
            f"({self.parameters * 4 / 2**30:.1f} GiB in float32).\n"
            f"Streaming takes about {self.memory / 2**30:.1f} GiB of memory and {self.seconds / 60:.1f} minutes with "
            f"{torch.get_num_threads()} threads: the first and the last block were measured in {self.tried:.0f} s."
        )


def plan(call: Call, targets: Targets, directions: int = 2, seed: int = 0, weights: Path | None = None) -> Plan:
    """Memory and time of :func:`stream`, from measuring the first and the last block.

    The time takes all blocks but the last to be like the first.
    """
    run = _Run(call, directions, seed, "train", targets, weights)
    last, clock = run.count - 1, [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    with run.weights.put_away():
        piece = run.forward(0)
        each, seconds, border = lap(), 0.0, 0
        if last:
            border = run.blocks.inputs[0].nbytes
            run.blocks.inputs *= last  # what goes into the last block is as large as what comes out of the first
            run.forward(last)
            seconds = lap()
            run.back(0, piece)
            each += lap()
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Plan(
        run.count, sum(p.numel() for p in call.model.parameters()), peak + border * max(0, last - 1),
        seconds + each * max(1, last), clock[-1] - clock[0],
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Ending(Call):
    """The call of the last block, whose model returns the loss of its own."""

    @property
    def has_loss(self) -> bool:
        return True


def _has_loss(call: Call) -> bool:
    given = isinstance(call.batch, Mapping) and any(call.batch.get(key) is not None for key in LABELS)
    return call.targets is not None or given


def _back(record: Any, piece: Piece, travel: Travel) -> Piece:
    """The piece with the gradients that come from behind it."""
    nodes = sorted({part.node for row in piece.rows for part in row.parts} | {row.output for row in piece.rows})
    names = {name for row in piece.rows for name in row.weights}
    back = Travel(0, 0, 0)
    back.gradient = travel.gradient
    found = passes(record, (), 0, 0, nodes=nodes, names=names, travel=back).gradients
    travel.gradient = back.gradient
    gains = [
        replace(gain, gradient=found[row.output], weight_gradients={n: found[n] for n in row.weights if n in found})
        for gain, row in zip(piece.gains.layers, piece.rows, strict=True)
    ]
    rows = [
        replace(row, parts=tuple(replace(p, row=replace(p.row, gradient=found[p.node])) for p in row.parts))
        for row in piece.rows
    ]
    return replace(piece, gains=replace(piece.gains, layers=tuple(gains), input_gradient=found[0]), rows=tuple(rows))
