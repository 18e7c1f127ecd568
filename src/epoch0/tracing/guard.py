"""Check the user's model and input, restore the model to the bit after use, copy what its functions hold (THEORY 0)."""

import copy
import ctypes
import functools
import operator
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from types import CellType, FunctionType, MethodType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from epoch0.arguments import refuse_lazy
from epoch0.errors import InputError, check_dense, check_finite
from epoch0.interrupts import ONE_AT_A_TIME
from epoch0.tracing.sizes import dense

_CONTAINERS = (OrderedDict, dict, list, set)

HALF = (torch.float16, torch.bfloat16)  # dtypes too coarse to measure in


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape hold the same bits, NaN included."""
    a, b = dense(a), dense(b)
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


class _TensorState:
    """One tensor as it was: its storage, its bits, its gradient and its flag."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.data, self.requires_grad = tensor, tensor.detach(), tensor.requires_grad
        self.bits = self.data.clone()
        self.grad = tensor.grad if tensor.is_leaf else None
        self.grad_bits = None if self.grad is None else self.grad.detach().clone()
        made: Any = torch.autograd.grad_mode._unsafe_preserve_version_counter
        self.version = None if tensor.is_inference() else made(tensor)

    def restore(self) -> bool:
        """Restore it; whether it held other values."""
        tensor, other = self.tensor, False
        if tensor.data_ptr() != self.data.data_ptr() or tensor.shape != self.data.shape:
            # other memory is not other values: on CUDA recurrent layers gather their weights in one block
            now = tensor.detach()
            other = now.shape != self.bits.shape or now.dtype != self.bits.dtype or not _same_bits(now, self.bits)
            tensor.data = self.data
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():  # else the tensor lets nobody write
            written = not _same_bits(self.data, self.bits)
            if written:
                self.data.copy_(self.bits)
            if tensor.is_leaf:
                if tensor.requires_grad != self.requires_grad:
                    tensor.requires_grad_(self.requires_grad)
                if tensor.grad is not self.grad:
                    tensor.grad = self.grad
                if self.grad is not None and self.grad_bits is not None and not _same_bits(self.grad, self.grad_bits):
                    self.grad.detach().copy_(self.grad_bits)
        if self.version is not None:  # or a graph that waits for its backward pass takes it for another tensor
            self.version.__exit__(None, None, None)
        return other or written


class _ModuleState:
    """One module's attributes as they were: mode, hooks, parameters, buffers, and plain lists, sets and dicts."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.attributes = module, dict(module.__dict__)
        held = (value for value in self.attributes.values() if isinstance(value, _CONTAINERS))
        self.containers = [(value, _entries(value)) for value in held]

    def restore(self) -> None:
        for value, saved in self.containers:
            if len(now := _entries(value)) == len(saved) and all(map(operator.is_, now, saved)):
                continue
            # by the methods of the plain kind: a frozen container has its own, which raise
            kind: Any = next(kind for kind in _CONTAINERS if isinstance(value, kind))
            kind.clear(value)
            more: Any = zip(saved[::2], saved[1::2], strict=True) if isinstance(value, dict) else saved
            fill: Any = kind.extend if kind is list else kind.update
            fill(value, more)
        self.module.__dict__.clear()
        self.module.__dict__.update(self.attributes)


def _entries(value: Any) -> list[Any]:
    """The contents of a container; of a dict keys and values in turn."""
    if isinstance(value, dict):
        return list(chain.from_iterable((OrderedDict if isinstance(value, OrderedDict) else dict).items(value)))
    return list(value)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    for value in module.__dict__.values():
        for v in value.values() if isinstance(value, dict) else (value,):
            if isinstance(v, Tensor) and not is_lazy(v) and v.device.type != "meta" and v.layout == torch.strided:
                yield v


_KEEPING: list[None] = []  # one for each that keeps memory at the moment


@contextmanager
def keeping_memory() -> Iterator[None]:
    """What is freed meanwhile stays with the C library: getting pages anew takes up to a fifth of the time. What glibc
    does by itself afterwards is what it does once a program has freed blocks of 32 MiB.
    """
    set_option: Any = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    set_option = set_option or (lambda name, value: None)
    trim, mmap = -1, -3  # the thresholds' numbers in malloc.h
    _KEEPING.append(None)
    try:
        set_option(trim, (1 << 31) - 1)
        set_option(mmap, 1 << 30)
        yield
    finally:
        _KEEPING.pop()
        if not _KEEPING:
            set_option(trim, 64 << 20)
            set_option(mmap, 32 << 20)


@contextmanager
def unchanged(model: nn.Module, *, weights: bool = True, still: bool = False) -> Iterator[None]:
    """Restore the model and the global random states afterwards, also after an exception or Ctrl-C.

    >>> with unchanged(model):
    ...     outputs = model.eval()(x)           # modes, buffers, gradients, hooks, attributes: all come back
    >>> model.training
    True

    Parameters, buffers and other tensors keep their identity and their bits, ``.grad`` stays the same object, and so do
    the hooks, the train/eval mode of every submodule, ``requires_grad``, plain attributes, and the random states of
    torch (CPU, and CUDA where it is in use), numpy and python. It holds a copy of the tensors. Other threads wait.

    Without ``weights`` parameters and their gradients are left out, for a run that is known not to change them. With
    ``still`` a parameter that comes out another one, or with other values, is an error; not a frozen one: what follows
    other weights, as a key encoder does, is no weight that is trained.
    """
    refuse_lazy(model)
    with ONE_AT_A_TIME, keeping_memory(), streams_kept():
        modules = [_ModuleState(module) for module in model.modules()]
        tensors = {id(t): t for module in model.modules() for t in _tensors(module)}
        states = [_TensorState(t) for t in tensors.values() if weights or not isinstance(t, nn.Parameter)]
        names = {id(p): name for name, p in model.named_parameters()}
        try:
            yield
        finally:
            written = [name for name, p in model.named_parameters() if id(p) not in names]
            for module in modules:
                module.restore()
            changed = [id(state.tensor) for state in states if state.restore() and state.requires_grad]
            written += [names[item] for item in changed if item in names]
    if still and written:
        refuse_changed(written[0])


class ChangesItself(InputError):
    """A model that writes into its own weights while it runs."""


def refuse_changed(name: str) -> NoReturn:
    """Refuse a model that writes into its own weights."""
    raise ChangesItself(f"the model changes its own parameter '{name}' while it runs; take that out of its forward.")


@contextmanager
def streams_kept() -> Iterator[None]:
    """Restore the global random states of python, numpy and torch afterwards."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's state is kept, not used
    with noise_kept():
        try:
            yield
        finally:
            np.random.set_state(legacy)  # noqa: NPY002
            random.setstate(python)


class _OwnNoise(TorchDispatchMode):
    """Random operations of this thread draw from copies of torch's streams; those go on as other threads use them."""

    def __init__(self) -> None:
        super().__init__()
        self.sources = {device: source.clone_state() for device, source in _global_sources().items()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        func, place = _with_generator(func)
        if place is not None and named.get("generator") is None and len(args) <= place:
            devices = [t.device for t in args if isinstance(t, Tensor)]
            device = torch.device(named.get("device") or (devices[0] if devices else "cpu"))
            if (source := self.sources.get((device.type, device.index or 0))) is not None:
                named["generator"] = source
        return func(*args, **named)


@functools.cache
def _with_generator(func: Any) -> tuple[Any, int | None]:
    """The operation, or of a random one the overload that takes a generator besides; and which argument that is."""

    def kinds(one: Any) -> list[tuple[str, str]]:
        return [(a.name, str(a.type)) for a in one._schema.arguments if a.name != "generator"]

    packet = func.overloadpacket
    others = packet.overloads() if torch.Tag.nondeterministic_seeded in func.tags else ()
    for one in (func, *(getattr(packet, name) for name in others)):
        names = [a.name for a in one._schema.arguments]
        if "generator" in names and kinds(one) == kinds(func):
            return one, names.index("generator")
    return func, None  # fused kernels, such as dropout's on a GPU


_HERE = threading.local()


def _global_sources() -> dict[tuple[str, int], torch.Generator]:
    cuda = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return {("cpu", 0): torch.default_generator, **{("cuda", i): source for i, source in enumerate(cuda)}}


def noise_sources() -> dict[tuple[str, int], torch.Generator]:
    """The generators of torch's random operations in this thread, by kind and number of device."""
    own: _OwnNoise | None = getattr(_HERE, "own", None)
    return _global_sources() if own is None else own.sources


@contextmanager
def noise_kept(*own: torch.Generator) -> Iterator[None]:
    """Restore torch's random streams, and ``own``, afterwards; where another thread may draw, it has torch's. Daemon
    threads (progress bars, notebooks) are taken to draw nothing, as that makes small networks faster.
    """
    others = any(not t.daemon for t in threading.enumerate() if t is not threading.current_thread())
    begun = _OwnNoise() if others and getattr(_HERE, "own", None) is None else None
    with begun or nullcontext():
        _HERE.own = begun or getattr(_HERE, "own", None)
        states = [(source, source.get_state()) for source in (*noise_sources().values(), *own)]
        try:
            yield
        finally:
            for source, state in states:
                source.set_state(state)
            if begun is not None:
                _HERE.own = None


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Take numbers below 1e-38 for zero while a copy trains: with them it takes several times as long to go nowhere."""
    before = float(torch.tensor(torch.finfo(torch.float32).tiny) / 2) == 0  # torch has no getter
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def draw_anew(seed: int) -> None:
    """Start torch's random streams anew; only where the noise is kept."""
    # torch.manual_seed would also seed a CUDA that is not in use yet, for later
    for source in noise_sources().values():
        source.manual_seed(seed)


def same_noise(seed: int = 0) -> None:
    """Start the global random streams anew, so that a noisy model draws the same in each run; only under the guard."""
    draw_anew(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - some models draw their masks from numpy or python
    random.seed(seed)


def bare(model: nn.Module) -> nn.Module:
    """The module the user wrote: what ``torch.compile`` or a parallel wrapper was put around."""
    while True:
        if isinstance(original := getattr(model, "_orig_mod", None), nn.Module):
            model = original
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def check_model(model: Any) -> None:
    """Refuse what cannot be measured: no module, no parameters, NaN or infinite values, half precision."""
    if not isinstance(model, nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        hint = "; make an instance of it first" if isinstance(model, type) and issubclass(model, nn.Module) else ""
        if hasattr(model, "graph_module") and hasattr(model, "graph_signature"):
            hint = "; pass the nn.Module it was exported from"
        raise InputError(f"a torch.nn.Module is needed, not {kind}{hint}.")
    refuse_closed(model)
    refuse_lazy(model)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        check_dense(f"'{name}'", tensor)
        if tensor.dtype in HALF:
            raise InputError(f"'{name}' is {tensor.dtype}, too coarse; measure copy.deepcopy(model).float().")
        # the extremes tell, ten times quicker than asking every entry
        ends = tensor.detach().aminmax() if tensor.is_floating_point() and tensor.numel() else ()
        odd = not all(bool(end.isfinite()) for end in ends)
        if odd and (isinstance(tensor, nn.Parameter) or bool(tensor.isnan().any())):  # else a mask of minus infinity
            check_finite(f"'{name}'", tensor)
    if next(model.parameters(), None) is None:
        raise InputError(f"the model {type(model).__name__} has no parameters: there is nothing to measure.")


def refuse_closed(model: nn.Module, *, run_only: bool = False) -> None:
    """Refuse a model that is TorchScript or was exported, or has such parts; if it is only to be run, without modes."""
    for path, module in model.named_modules():
        text = f"the module '{path}'" if path else "the model"
        if isinstance(module, torch.jit.ScriptModule) and not (run_only and hasattr(module, "training")):
            raise InputError(f"{text} is scripted and cannot be looked into; pass the nn.Module it was scripted from.")
        nodes = module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
        if any(isinstance(node.target, torch._ops.OpOverload) for node in nodes):
            raise InputError(f"{text} is exported and has lost its layers; pass the nn.Module it was exported from.")


def rebound(function: Any, memo: dict[int, Any]) -> Any:
    """A function of the user with copies of what it closes over, or has a state and a name; itself without such."""

    def own(value: Any) -> Any:
        with suppress(Exception):  # a file, a lock: the copy shares it
            if isinstance(value, MethodType):
                return MethodType(value.__func__, own(value.__self__))
            if id(value) in memo or not (isinstance(value, FunctionType) and (value is function or value.__closure__)):
                return copy.deepcopy(value, memo)
            memo[id(value)] = value  # it may close over itself
            code, known, cells = value.__code__, value.__globals__, value.__closure__ or ()
            held = [None if cell == CellType() else cell.cell_contents for cell in cells]  # or a name without a value
            states = {n: own(known[n]) for n in code.co_names if n in known and hasattr(known[n], "state_dict")}
            new = [own(item) for item in held]
            if states or any(one is not two for one, two in zip(held, new, strict=True)):
                own_cells = tuple(c if c == CellType() else CellType(item) for c, item in zip(cells, new, strict=True))
                made = FunctionType(code, known | states, value.__name__, value.__defaults__, own_cells)
                made.__kwdefaults__, memo[id(value)] = value.__kwdefaults__, made
                return made
        return value

    return own(function)
