"""The checkup of a network larger than the memory: one block at a time, forward and back (THEORY section 0).

A block is given its weights, measured and emptied again; on the way back it is given the same again. Between blocks
only the activations at their borders stay, in bfloat16 if the model is, and the carried tangents and gradient.
"""

import hashlib
import io
import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epoch0 import __version__
from epoch0.data.catalogue import cache_folder
from epoch0.diagnosis.result import PartCheckup
from epoch0.diagnosis.rows import Piece, Row, joined, measured
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

EACH = 30.0  # seconds between two saves
FORWARD = 2.0  # what a block costs on the way forward over what it costs on the way back
TRAVELS = ("moving", "begun", "gradient")  # attributes of ``Travel`` that a saved state holds
WEIGHTED = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)


class _Arrived(BaseException):
    """Raised with its input when the next block is called, which ends the run of a block."""


def stack(model: nn.Module) -> tuple[list[list[str]], list[str], list[str]]:
    """The blocks of an ``nn.Sequential`` or of a model with one list of blocks; else an InputError says why not. Paths
    of the modules of each block, the first of which takes its input; of those with weights that run before the blocks,
    such as embeddings; and of those that run after them: a norm, a head.
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
        raise InputError(f"the model {type(model).__name__} cannot be streamed: {why}. A stack of equal blocks can.")
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
    """The weights of a model, loaded for a few modules at a time: those it has, or where it has none fresh ones. Fresh
    ones come from ``_init_weights`` of a model of transformers, else from ``reset_parameters``, in a stream of the seed
    and the module's path, so that a block has the same weights whenever it is made. A folder of safetensors, which are
    mapped and not read, may hold those of a model that has none.
    """

    def __init__(self, model: nn.Module, seed: int, folder: Path | None = None) -> None:
        self.model, self.seed = model, seed
        self.modules = dict(model.named_modules())
        # path of a module -> the table of its own that a tensor stands in, its name there, and the tensor
        self.held: dict[str, list[tuple[dict[str, Any], str, Tensor]]] = {
            path: [(own, name, t) for own in (m._parameters, m._buffers) for name, t in own.items() if t is not None]
            for path, m in self.modules.items()
        }
        named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
        on_meta = {t.device.type == "meta" for _, t in named}
        self.fresh = on_meta == {True}
        if len(on_meta) > 1:
            lost = next(name for name, t in named if t.device.type == "meta")
            raise InputError(f"'{lost}' is on the meta device and other weights are not; build all of the model there.")
        self.empty: dict[int, Any] = {}
        for _, t in named:
            gone = t.detach().to("meta")
            self.empty[id(t)] = nn.Parameter(gone, t.requires_grad) if isinstance(t, nn.Parameter) else gone
        # parameter -> the first module that has it
        every = ((path, t) for path, held in reversed(self.held.items()) for _, _, t in held)
        self.home = {id(t): path for path, t in every if isinstance(t, nn.Parameter)}
        self.stored: dict[int, Tensor] = {}
        if folder is None:
            return
        if not self.fresh:
            raise InputError(f"weights from {str(folder)!r} are for a model on the meta device; this one has its own.")
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        if not files:
            raise InputError(f"the folder {str(folder)!r} has no .safetensors in it.")
        given = {name: tensor for file in files for name, tensor in read_tensors(file, "weights")[0].items()}
        for name, t in named:
            if name in given and given[name].shape != t.shape:
                raise InputError(f"'{name}' in {str(folder)!r} is {tuple(given[name].shape)}, not {tuple(t.shape)}.")
            self.stored |= {id(t): given[name]} if name in given else {}
        if lacks := [name for name, t in named if isinstance(t, nn.Parameter) and id(t) not in self.stored]:
            hint = suggest(lacks[0], given) or f" It has {', '.join(list(given)[:3])} ..."
            raise InputError(f"{str(folder)!r} holds no '{lacks[0]}'.{hint}")

    def _put(self, by: Mapping[int, Any]) -> None:
        for held in self.held.values():
            for own, name, tensor in held:
                own[name] = by.get(id(tensor), tensor)

    @contextmanager
    def loaded(self, paths: Sequence[str]) -> Iterator[None]:
        """Load the weights of these modules and all inside them; the rest of the model is without weights meanwhile."""
        inside = [p for p in self.modules if any(p == path or p.startswith(path + ".") for path in paths)]
        tied = {self.home.get(id(t)) for p in inside for _, _, t in self.held[p]}
        wanted = list(dict.fromkeys((*(p for p in self.modules if p in tied), *inside)))
        tensors = {id(t): t for path in wanted for _, _, t in self.held[path]}
        try:
            self._put(self.empty | (self._made(wanted, tensors) if self.fresh else tensors))
            yield
        finally:
            self._put({})

    def _made(self, paths: Sequence[str], tensors: Mapping[int, Tensor]) -> dict[int, Any]:
        """Fresh tensors for the modules: children before what they are in, as transformers initializes."""
        by: dict[int, Any] = {}
        for key, t in tensors.items():
            dtype = torch.float32 if t.is_floating_point() else t.dtype
            filled = torch.full(t.shape, math.nan if t.is_floating_point() else 0, dtype=dtype)
            by[key] = nn.Parameter(filled, t.requires_grad) if isinstance(t, nn.Parameter) else filled
        self._put({**self.empty, **by})
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
                    kind = type(self.modules[path]).__name__
                    raise InputError(f"'{path}.{name}' cannot be streamed: no reset_parameters of {kind} sets it.")
        return by


class _Run:
    """A model measured forward and back one block at a time; the blocks before the current one give no numbers."""

    def __init__(
        self, call: Call, directions: int, seed: int, batch_norm: str, targets: Targets, weights: Path | None
    ) -> None:
        self.call, self.directions, self.targets, self.batch_norm = call, directions, targets, batch_norm
        self.blocks, self.before, self.after = stack(call.model)
        self.weights = Weights(call.model, seed, weights)
        self.count, self.modules = len(self.blocks), dict(call.model.named_modules())
        self.inputs = list[Tensor]()  # of each block but the first, as far as they are known
        self.several: int | None = None  # how many things a block returns, where it is a tuple
        self.travel = Travel(directions, 1 if directions == 2 else directions, seed)
        self.sources = [self.travel.alone, *self.travel.fresh, *self.travel.back]
        self.coarse = any(p.dtype in HALF for p in call.model.parameters())
        labelled = isinstance(call.batch, Mapping) and any(call.batch.get(key) is not None for key in LABELS)
        self.has_loss = labelled or call.targets is not None or call.criterion is not None

    def loaded(self, index: int) -> AbstractContextManager[None]:
        """Load the weights of a block, with those of modules before the first and after the last."""
        first = [p for p in self.before if index == 0 or not isinstance(self.modules[p], nn.Embedding)]
        return self.weights.loaded((*first, *self.blocks[index], *(self.after if index == self.count - 1 else ())))

    def part(self, index: int) -> Call:
        """The call of one block, on what the block before it gave."""
        batch = self.call.batch if index == 0 else self.inputs[index - 1]
        batch = batch.float() if index and batch.dtype is torch.bfloat16 else batch  # all is computed in float32
        # the last one without targets returns a loss of the model's own
        own = dict[str, Any](splits=False, notes=(), _seen={"loss": index == self.count - 1})
        own |= {"targets": None, "criterion": None}
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
                raise InputError(f"the model cannot be streamed: '{blocks[index + 1][0]}' takes more than one signal.")
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
        with self.loaded(index):
            part = self.part(index)
            part = replace(part, targets=self.call.targets, criterion=self.call.criterion) if last else part
            if last and not self.has_loss:
                with torch.no_grad():
                    part = replace(part, targets=self.targets(part.output(part.run())))
            with tape(part, batch_norm=self.batch_norm) as record:
                moved = any(record.nodes[op.outputs[0]].depends for op in record.ops if op.outputs)
                if not moved or not layers(record):
                    raise InputError(f"the model cannot be streamed: nothing passes through '{name}'.")
                with torch.no_grad():
                    made = record.run(record.x).detach().clone()
                # numbers that the blocks before did not give must not be met: NaN stand in their place
                bad = made.isnan() if last else ~made.isfinite()
                if index and bool(bad.any()) and bool(self.inputs[index - 1].isfinite().all()):
                    why = "they overflow, or another path leads there from an earlier block"
                    raise InputError(f"the model cannot be streamed: after '{name}' numbers are not finite; {why}.")
                if not last:
                    self.inputs.append(made.bfloat16() if self.coarse else made)
                return measured(record, self.directions, self.travel.seed, self.travel, gradients=last)

    def state(self) -> dict[str, Any]:
        """The state that the next block needs beside the pieces."""
        kept = {"inputs": self.inputs, "several": self.several, "sources": [s.get_state() for s in self.sources]}
        return kept | {name: vars(self.travel)[name] for name in TRAVELS}

    def go_on(self, state: Mapping[str, Any]) -> None:
        self.inputs, self.several = state["inputs"], state["several"]
        vars(self.travel).update({name: state[name] for name in TRAVELS})
        for source, drawn in zip(self.sources, state["sources"], strict=True):
            source.set_state(drawn)

    def key(self, weights: Path | None) -> str:
        """What the numbers depend on: the model, its files and code, the batch, the settings."""
        model, digest = self.call.model, hashlib.sha256()
        files = {sys.modules[type(m).__module__].__file__ or "" for m in model.modules()} - {""}
        if weights is not None:
            files |= {str(f) for f in (weights.glob("*.safetensors") if weights.is_dir() else [weights])}
        config = getattr(model, "config", None)
        parts = [str(model), str(config), self.directions, self.travel.seed, self.batch_norm, __version__]
        parts += [(name, tuple(t.shape), str(t.dtype)) for name, t in model.state_dict().items()]
        parts += [(name, (at := os.stat(name)).st_size, at.st_mtime_ns) for name in sorted(files)]
        digest.update(repr(parts).encode())
        for t in tensors_in((self.call.batch, self.call.targets)):
            digest.update(repr((t.dtype, t.shape)).encode() + t.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def back(self, index: int, piece: Piece) -> Piece:
        """The piece with the gradients that come from behind it."""
        part, rows, gains = self.part(index), piece.rows, piece.gains
        with self.loaded(index), tape(part, batch_norm=self.batch_norm) as record:
            nodes = sorted({row.output for row in rows} | {node for row in rows for _, node, _ in row.parts})
            back = Travel(0, 0, 0)
            back.gradient = self.travel.gradient
            found = passes(record, (), 0, 0, nodes=nodes, travel=back).gradients
        self.travel.gradient = back.gradient
        layers = tuple(replace(gain, gradient=found[row.output]) for gain, row in zip(gains.layers, rows, strict=True))
        inside = [tuple((replace(p, gradient=found[n]), n, of) for p, n, of in row.parts) for row in rows]
        rows = tuple(replace(row, parts=parts) for row, parts in zip(rows, inside, strict=True))
        return replace(piece, gains=replace(gains, layers=layers, input_gradient=found[0]), rows=rows)


def _kept(path: Path, key: str) -> dict[str, Any] | None:
    """The state that an interrupted run of the same key left in a file: plain numbers, tensors, our records."""
    try:
        with torch.serialization.safe_globals([Piece, Gain, LayerGain, Row, Signals, PartCheckup]):
            found: dict[str, Any] = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, TypeError, AttributeError):
        return None
    return found if isinstance(found, dict) and found.get("key") == key else None


def stream(
    call: Call,
    directions: int,
    seed: int,
    batch_norm: str,
    targets: Targets,
    tell: Tell,
    weights: Path | None,
    notes: list[str],
) -> Piece:
    """Measure the layers of a model block by block, forward and back. Of a model on the meta device what is known is
    kept in the user's cache folder twice a minute until the end; killed and called again, it goes on at the block where
    it was, which the notes say; another run writes over it. ``targets`` makes them up from the outputs where there are
    none; ``weights`` is a folder of safetensors, or one file.
    """
    run = _Run(call, directions, seed, batch_norm, targets, weights)
    count, names, pieces = run.count, [group[0] for group in run.blocks], list[Piece]()
    ways = [("forward", index) for index in range(count)] + [("back", index) for index in reversed(range(count - 1))]
    keeps = run.weights.fresh and call.criterion is None and call.forward is None  # functions have no key
    key, path, last, done = run.key(weights) if keeps else "", cache_folder() / "streaming.pt", time.monotonic(), 0
    if keeps and (state := _kept(path, key)) is not None:
        pieces, notes[:], done = state["pieces"], state["notes"], state["done"]
        run.go_on(state)
        notes.append(f"Of a run that was stopped {done} of {len(ways)} steps were there.")
    for step, (way, index) in enumerate(ways[done:], done):
        share = (min(step, count) * FORWARD + max(0, step - count)) / (count * FORWARD + count - 1)
        tell(f"{names[index]}, {way}", share)
        if way == "forward":
            pieces.append(run.forward(index))
        else:
            pieces[index] = run.back(index, pieces[index])
        if keeps and time.monotonic() - last >= EACH:
            whole = io.BytesIO()
            torch.save({**run.state(), "pieces": pieces, "notes": notes, "done": step + 1, "key": key}, whole)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, whole.getvalue())
            last = time.monotonic()
    if keeps and _kept(path, key) is not None:
        path.unlink(missing_ok=True)
    return joined(pieces, type(call.model).__name__)


@dataclass(frozen=True)
class Needs:
    """What streaming a model would take, from its first and its last block."""

    blocks: int
    parameters: int
    memory: int  # bytes that the process takes at most
    seconds: float  # on the clock, with the threads there are
    tried: float  # seconds that finding this out took

    def __str__(self) -> str:
        parameters = f"{self.parameters:,} parameters ({self.parameters * 4 / 2**30:.1f} GiB in float32)"
        takes = f"{self.memory / 2**30:.1f} GiB of memory and {self.seconds / 60:.1f} minutes"
        how = f"{torch.get_num_threads()} threads: the first and the last block were measured in {self.tried:.0f} s."
        return f"{self.blocks} blocks, {parameters}.\nStreaming takes about {takes} with {how}"


def plan(call: Call, targets: Targets, directions: int = 2, seed: int = 0, weights: Path | None = None) -> Needs:
    """Memory and time of :func:`stream`, from measuring the first and the last block, all others taken as the first."""
    run = _Run(call, directions, seed, "train", targets, weights)
    last, border, began = run.count - 1, 0, time.perf_counter()
    piece = run.forward(0)
    first = end = back = time.perf_counter()
    if last:
        border = run.inputs[0].nbytes
        run.inputs *= last  # what goes into the last block is as large as what comes out of the first
        run.forward(last)
        end = time.perf_counter()
        run.back(0, piece)
        back = time.perf_counter()
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    parameters, memory = sum(p.numel() for p in call.model.parameters()), peak + border * max(0, last - 1)
    return Needs(run.count, parameters, memory, end - first + (first - began + back - end) * max(1, last), back - began)
