"""What a public function is given, checked by its annotations: one clear error before anything is touched.

>>> @checked
... def thin(width: Count, density: Density = 1.0) -> float:
...     return width * density
>>> thin(784, 98)
Traceback (most recent call last):
    ...
epoch0.errors.InputError: density=98: give a number in (0, 1]. In percent? Then it is 0.98.
"""

import collections.abc
import functools
import inspect
import itertools
import math
import numbers
import os
import reprlib
import sys
import sysconfig
import traceback
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epoch0.errors import InputError, check_dense, check_finite, first_line, suggest
from epoch0.interrupts import ONE_AT_A_TIME, interrupts_wait

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
_PLAIN = int | float | complex | str | bytes | None
MANY = 10**7  # values that are gone through one by one
LARGEST = 2**53  # the integers that a float holds; no seed, count or index is larger


@dataclass(frozen=True)
class Within:
    """The range of a number, or of every number of an array; ``above`` and ``below`` are outside of it."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, low: Any, high: Any) -> bool:
        return bool(low >= self.least and low > self.above and high <= self.most and high < self.below)

    def __str__(self) -> str:
        if (self.above, self.below) == (0, 1):
            return "strictly between 0 and 1"
        low, high = max(self.least, self.above), min(self.most, self.below)
        if abs(low) < 10**4 and abs(high) < 10**4:
            return f"in {'(' if self.above == low else '['}{low:g}, {high:g}{')' if self.below == high else ']'}"
        ends = {">=": self.least, ">": self.above, "<=": self.most, "<": self.below}
        return " and ".join(f"{sign} {end:g}" for sign, end in ends.items() if math.isfinite(end) and abs(end) < 10**4)


Count = Annotated[int, Within(1)]
Whole = Annotated[int, Within(0)]
Seed = Annotated[int, Within(0, 2**128)]
Size = Annotated[int, Within(1, MANY)]  # of what is stored or gone through one by one
Positive = Annotated[float, Within(above=0)]
Std = Annotated[float, Within(0)]
Inside = Annotated[float, Within(above=0, below=1)]
Density = Annotated[float, Within(above=0, most=1)]  # the fraction kept
Directions = Annotated[int, Within(2, 10**4)]
Share = Annotated[float, Within(0, 1)]
Sparsity = Annotated[float, Within(0, below=1)]  # the fraction removed
BatchNorm = Annotated[str, ("train", "eval")]
Depth = Annotated[int, Within(0, 10**5)]
Layers = Annotated[int, Within(1, 10**4)]  # of what is built one by one
Variance = Annotated[ArrayLike, Within(0)]
Correlation = Annotated[ArrayLike, Within(-1 - 1e-12, 1 + 1e-12)]
Stds = Annotated[Sequence[Std] | NDArray[np.float64], Within(0)]


def shown(value: object) -> str:
    """The value as an error repeats it: short, and on one line; its type alone if it cannot be shown."""
    kind = f" is {_article(type(value).__name__)}"
    with suppress(Exception):
        if isinstance(value, np.generic):
            return f"={reprlib.repr(value.item())}"
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return f"{kind} of shape {tuple(value.shape)} and {value.dtype}"
        several = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        if all(isinstance(v, _PLAIN) for v in several) or type(value).__module__ == "torch":
            return f"={reprlib.repr(value)}"
    return f" is the class {value.__name__}" if isinstance(value, type) else kind


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeio' else 'a'} {noun}"


def refuse(name: str, value: object, wanted: str, hint: str = "") -> InputError:
    """The one sentence: what was given, and what would work."""
    return InputError(f"{name}{shown(value)}: give {wanted}.{hint}")


def check_memory(what: str, numbers: float, size: int = 4) -> None:
    """Refuse more numbers than this machine can hold."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if numbers * size > limit:
        needed, most = (f"{count / 1e9:.3g} GB" for count in (numbers * size, limit))
        raise InputError(f"{what}: {numbers:.3g} numbers take {needed}, and this machine has {most}; ask for less.")


class Kind:
    """One kind of argument: its name in messages, a quick test of the type, and the full check."""

    def __init__(self, wanted: str, fits: Callable[[Any], bool], check: Callable[[str, Any], object] | None = None):
        self.wanted, self.fits, self.check = wanted, fits, check

    def take(self, name: str, value: Any) -> Any:
        """The value, numpy's numbers as Python's."""
        if not self.fits(value):
            raise refuse(name, value, self.wanted)
        return self.made(name, value)

    def made(self, name: str, value: Any) -> Any:
        """Convert a value that looks right; it may still be refused."""
        if self.check is not None:
            self.check(name, value)
        return value


class _Number(Kind):
    def __init__(self, whole: bool, within: Within) -> None:
        self.within = within
        kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating, numbers.Real)
        sort = "an integer" if whole else "a number" if "1" in str(within) else "a finite number"
        wanted = f"{sort} {within}".rstrip()
        super().__init__(wanted, lambda v: isinstance(v, kinds) and not isinstance(v, bool | np.timedelta64))

    def made(self, name: str, value: Any) -> Any:
        sort = type(value)
        if sort is not int and sort is not float:
            value = int(value) if isinstance(value, int | np.integer) else float(value)
        if not (self.within.holds(value, value) and -math.inf < value < math.inf):
            percent = len(name) > 3 and (0 < self.within.most <= 1 or 0 < self.within.below <= 1)  # no chi, no eps
            hint = f" In percent? Then it is {value / 100:g}." if percent and 1 < value <= 100 else ""
            most = f" and <= {self.within.most:,}" if 10**4 <= self.within.most < value < math.inf else ""
            raise refuse(name, value, self.wanted + most, hint)
        if sort is int and self.within.most == math.inf and not -LARGEST <= value <= LARGEST:
            raise refuse(name, value, f"{self.wanted}, and one that a computer can count to (2^53)")
        return value


class _Numbers(Kind):
    """A number, an array or a tensor, or nested sequences of numbers; or arrays only."""

    def __init__(self, sort: type | None, within: Within | None, finite: bool = True, plain: bool = False) -> None:
        self.sort, self.within, self.finite, self.plain = sort, within, finite, plain
        array = "a numpy array" if sort is np.ndarray else "a torch tensor"
        super().__init__(f"{array if sort else 'a number or an array of numbers'} {within or ''}".rstrip(), self._fits)

    def _fits(self, value: Any) -> bool:
        if self.sort is not None:
            return isinstance(value, self.sort)
        looks_right = isinstance(value, Sequence | numbers.Real) or hasattr(value, "dtype")
        return looks_right and not isinstance(value, str | bytes)

    def made(self, name: str, value: Any) -> Any:
        array = value
        if hasattr(value, "is_sparse"):
            if not self.finite:
                check_dense(name, value)
            if value.is_complex() or (self.sort is None and str(value.dtype) == "torch.bool"):
                raise refuse(name, value, f"{self.wanted} of real numbers")
            if self.sort is None:
                array = value = value.detach().resolve_neg()
        elif self.sort is None:
            try:
                array = np.asarray(None if np.ma.is_masked(value) else value)
            except (TypeError, ValueError, OverflowError, RuntimeError):
                array = np.empty(0, dtype=object)
            if array.dtype.kind in "iuf":
                array = np.require(array, array.dtype.newbyteorder("="), "C")  # as torch takes it, too
            if hasattr(value, "__array__"):
                value = array.item() if isinstance(value, np.generic) and array.dtype.kind in "iuf" else array
        if not hasattr(array, "is_sparse") and array.dtype.kind not in ("iuf" if self.sort is None else "iufbUS"):
            raise refuse(name, value, self.wanted)
        too_large = array.dtype == np.uint64 and bool((array > LARGEST).any())
        if too_large or (isinstance(value, list | tuple) and not value):
            raise refuse(name, value, self.wanted)
        if self.finite and not (isinstance(array, np.ndarray) and array.dtype.kind in "US"):
            check_finite(name, array)
        if self.within is not None and math.prod(array.shape) and not self.within.holds(array.min(), array.max()):
            raise refuse(name, value, self.wanted)
        if self.plain and not isinstance(value, int | float):  # a number or an array, and nothing else
            return np.asarray(array.cpu() if hasattr(array, "is_sparse") else array, dtype=np.float64)
        return value


class _Each(Kind):
    """A sequence, tuple, mapping or iterator, with the kind of its elements."""

    def __init__(self, wanted: str, fits: Callable[[Any], bool], values: Sequence[Kind | None], sort: str) -> None:
        each = [*{v.wanted: 0 for v in values[sort == "mapping" :] if v}]
        super().__init__(f"{wanted}{', each ' + each[0] if len(each) == 1 else ''}", fits)
        self.values, self.sort = values, sort

    def made(self, name: str, value: Any) -> Any:
        if self.sort == "mapping":
            keys, entries = self.values
            for key, entry in value.items():
                if keys and not keys.fits(key):
                    raise refuse(name, value, f"{self.wanted} by {keys.wanted}")
                if entries:
                    entries.take(f"{name}[{key!r}]", entry)
            return value
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if self.sort == "once":
            value = list(itertools.islice(value, MANY))
        pair = self.sort == "pair"
        if pair and len(value) != len(self.values):
            raise refuse(name, value, self.wanted)
        if len(value) > MANY:  # of a range that takes no memory, say
            raise refuse(name, value, f"{self.wanted}, {MANY:,} of them at most")
        kinds = self.values if pair else itertools.repeat(self.values[0], len(value))
        pairs = enumerate(zip(kinds, value, strict=True))
        taken = [kind.take(f"{name}[{i}]", v) if kind else v for i, (kind, v) in pairs]
        if self.sort in ("tuple", "pair"):
            return tuple(taken)
        return value if all(a is b for a, b in zip(taken, value, strict=True)) else taken


class _Any(Kind):
    """One of several kinds: the first that looks like the value decides."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        words = [*{kind.wanted: 0 for kind in kinds if kind.wanted != "None"}]
        super().__init__(" or ".join(words), lambda v: any(kind.fits(v) for kind in kinds))

    def take(self, name: str, value: Any) -> Any:
        for kind in self.kinds:
            if kind.fits(value):
                return kind.take(name, value)
        raise refuse(name, value, self.wanted)


class _Choice(Kind):
    def __init__(self, words: Sequence[Any]) -> None:
        self.words = tuple(words)
        *others, last = map(repr, self.words)
        super().__init__(f"{', '.join(others)} or {last}" if others else last, lambda v: isinstance(v, str))

    def take(self, name: str, value: Any) -> Any:
        if not any(value is w or (type(value) is type(w) and value == w) for w in self.words):
            close = suggest(value, map(str, self.words)) if isinstance(value, str) else ""
            raise InputError(f"{name}{shown(value)} is not known; use {self.wanted}.{close}")
        return value


class _Function(Kind):
    def __init__(self, wanted: str, takes: Sequence[Any] | None) -> None:
        super().__init__(f"{wanted}{f' of {len(takes)} arguments' if takes else ''}", callable)
        self.takes = takes

    def made(self, name: str, value: Any) -> Any:
        if _is_model(value):
            refuse_lazy(value)
        try:
            inspect.signature(getattr(value, "forward", value)).bind(*self.takes) if self.takes else None
        except TypeError as error:
            raise refuse(name, value, f"{self.wanted} ({error})") from error
        except ValueError:  # one of C's, which does not tell what it takes
            pass
        return value


def _check_path(name: str, value: Any) -> None:
    if not (text := os.fspath(value)):
        raise refuse(name, value, "a path")
    if "\0" in text or any(len(os.fsencode(part)) > 255 for part in text.split("/")):
        raise refuse(name, value, "a path without NUL, no name in it longer than 255 bytes")


def check_device(device: Any, label: str | None = None) -> Any:
    """A device of torch that can be used."""
    import torch

    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as problem:
        why = f"{label or f'device={str(device)!r}'} cannot be used here ({first_line(problem)})"
        others = ", 'cuda' or 'cuda:0'" if torch.cuda.is_available() else ""
        raise InputError(f"{why}; use 'cpu'{others}.") from problem
    return found


def _kind(hint: Any, more: tuple[Any, ...] = ()) -> Kind | None:
    """The kind that an annotation stands for; None where anything goes."""
    within = next((m for m in more if isinstance(m, Within)), None)
    base, parts = typing.get_origin(hint), typing.get_args(hint)
    if found := next((m for m in more if isinstance(m, Kind)), None):
        return found
    if words := next((m for m in more if isinstance(m, tuple)), None):
        return _Choice(words)
    if base is Annotated:
        return _kind(parts[0], parts[1:])
    if hint is ArrayLike:
        return _Numbers(None, within, finite=None not in more)
    if base is typing.Literal:
        return _Choice(parts)
    if base in (typing.Union, types.UnionType):
        return _union(parts, more)
    if isinstance(hint, TypeVar):
        return _Numbers(None, within, plain=True) if hint.__constraints__ else _kind(hint.__bound__)
    if hint is None or hint is type(None):
        return Kind("None", lambda v: v is None)
    if hint is bool:
        return Kind("True or False", lambda v: isinstance(v, bool | np.bool_))
    if hint in (int, float):
        return _Number(hint is int, within or Within())
    if np.ndarray in (base, hint) or base is typing.get_origin(NDArray[Any]):  # its own origin from numpy 2.5 on
        return _Numbers(np.ndarray, within, finite=False)
    sort = base or hint
    if sort is collections.abc.Callable:
        return _Function("a function", parts[0] if parts and isinstance(parts[0], list) else None)
    if not isinstance(sort, type) or sort in (object, Any):
        return None
    if sort.__module__ == "torch" and sort.__name__ == "Tensor":
        plain = Kind("a torch tensor", lambda v: isinstance(v, sort))  # whatever it holds, wherever it is
        return plain if None in more else _Numbers(sort, within)
    inner = [_kind(part) for part in parts if part is not ...]
    for kind in inner if issubclass(sort, Mapping) else ():
        if isinstance(kind, _Numbers):
            kind.finite = False  # scores and states may hold infinity
    if sort is tuple and parts and ... not in parts:
        return _Each(f"{len(parts)} values", _sequence, inner, "pair")
    if sort in (collections.abc.Sequence, list, tuple):
        return _Each("a list", _sequence, inner or [None], "tuple" if sort is tuple else "sequence")
    if sort in (collections.abc.Mapping, dict):
        return _Each("a mapping", lambda v: isinstance(v, Mapping), inner or [None, None], "mapping")
    if sort is collections.abc.Iterable:
        if not any(inner):
            return Kind("a list", _iterable)
        # a collection, not a loader, which draws and may start processes
        return _Each("a list", lambda v: isinstance(v, Collection | Iterator) and _iterable(v), inner, "once")
    if issubclass(sort, os.PathLike):
        return Kind("a path", lambda v: isinstance(v, str | os.PathLike), _check_path)
    if sort.__module__ == "torch" and sort.__name__ == "device":
        wanted = "a device, as 'cpu' or 'cuda:0'"
        return Kind(wanted, lambda v: isinstance(v, str | sort), lambda name, value: check_device(value))
    if sort is str:
        return Kind("a text", lambda v: isinstance(v, str))
    return Kind(_article(sort.__name__), lambda v: isinstance(v, sort))


def _iterable(value: Any) -> bool:
    # not asked for an iterator: a DataLoader would draw from torch's generator and start its workers
    loops = hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")
    return loops and not isinstance(value, str | bytes | type) and getattr(value, "ndim", 1) != 0


def _sequence(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _union(parts: Sequence[Any], more: tuple[Any, ...] = ()) -> Kind | None:
    whole = typing.get_args(ArrayLike)
    if whole and set(whole) <= set(parts):  # ``ArrayLike | None`` is one flat union, or its name from numpy 2.5 on
        parts = [ArrayLike, *(part for part in parts if part not in whole)]
    if len(kinds := [(part, kind) for part in parts if (kind := _kind(part, more))]) < len(parts):
        return None
    texts = any(kind.check for _, kind in kinds)  # a path or device, which may be a text
    return _Any([kind for part, kind in kinds if not (texts and part is str)])


@functools.cache
def _kinds(function: Callable[..., Any]) -> tuple[list[str], dict[str, Kind], Kind | None, Kind | None]:
    """Names of the positional parameters, kinds by name, and those of ``*args`` and ``**named``."""
    by_name: dict[str, Kind] = {}
    plain = inspect.unwrap(function)
    for name, hint in plain.__annotations__.items():
        try:
            spelled = types.SimpleNamespace(__annotations__={name: hint})
            known = {"torch": sys.modules.get("torch")} | plain.__globals__
            kind = _kind(typing.get_type_hints(spelled, known, include_extras=True)[name])
        except (NameError, AttributeError):  # imported for type checkers only
            kind = None
        if kind is not None and name != "return":
            by_name[name] = kind
    all_of_them = inspect.signature(function).parameters.values()
    order = [p.name for p in all_of_them if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = {p.kind: by_name.pop(p.name, None) for p in all_of_them if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return order, by_name, rest.get(inspect.Parameter.VAR_POSITIONAL), rest.get(inspect.Parameter.VAR_KEYWORD)


def checked(function: F) -> F:
    """The function, or the class with its methods, every argument checked by its annotation, read at the first call.

    Numbers of numpy come in as Python's. What cannot be allocated is an InputError as well. Defaults are not checked.
    """
    if isinstance(function, type):
        if "__init__" in vars(function):
            function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return methods_checked(function)
    makes, trains = function.__name__ == "__init__", function.__module__.startswith("epoch0.train")
    alone: AbstractContextManager[Any] = nullcontext() if trains else ONE_AT_A_TIME

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        order, kinds, more, named_more = _kinds(function)
        name, kind = "", None
        taken: list[Any] = []
        try:
            for place, value in enumerate(args):
                name = order[place] if place < len(order) else f"argument {place}"
                kind = kinds.get(name) if place < len(order) else more
                taken.append(kind.take(name, value) if kind else value)
            for name, value in named.items():
                kind = kinds.get(name, named_more)
                named[name] = kind.take(name, value) if kind else value
        except InputError:
            raise
        except Exception as error:  # it cannot even be looked at
            raise refuse(name, value, kind.wanted if kind else "another value") from error
        models = () if makes else [v for v in (*taken[:2], named.get("model")) if _is_model(v)]
        for model in models:
            if "_modules" not in vars(model) and not hasattr(model, "_c"):  # but for a TorchScript's
                raise InputError(f"the {type(model).__name__} was made without its __init__; nothing is in it.")
        try:
            if not models:
                return function(*taken, **named)
            with interrupts_wait(), alone:
                return function(*taken, **named)
        except Exception as error:
            large = isinstance(error, RuntimeError) and any(words in str(error) for words in _TOO_LARGE)
            if large or isinstance(error, MemoryError | OverflowError | RecursionError):
                text = f"{function.__qualname__}: what was asked for is too large ({first_line(error)}); ask for less."
                raise InputError(text) from error
            if (located := _located(error)) is error:
                raise
            raise located from error

    call.checks = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _is_model(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(value), torch.nn.Module)


def refuse_lazy(model: Any, *, written: bool = False) -> None:
    """Refuse a model with parameters or buffers that its first batch would make.

    With ``written`` also one with parameters that cannot be written, or that nothing can be differentiated by.
    """
    from torch.nn.parameter import is_lazy

    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"'{name}' is lazy and has no values yet; call the model once on a batch first.")
        if written and tensor.requires_grad:
            refuse_inference(name, tensor)
            expanded = any(size > 1 and not by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
            if tensor.is_meta or expanded:
                raise InputError(f"'{name}' has no memory for each value ({'meta' if tensor.is_meta else 'expanded'}).")


def refuse_inference(name: str, parameter: Any) -> None:
    """Refuse a parameter made under ``torch.inference_mode``: nothing can be differentiated by it."""
    if parameter.requires_grad and parameter.is_inference():
        raise InputError(f"'{name}' was made under torch.inference_mode and has no gradient; copy.deepcopy the model.")


def _located(error: Exception) -> Exception:
    """The error of a model's forward or of a caller's object, with its place in that code; other errors unchanged."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = max((place for place, (code, _) in enumerate(frames) if code.co_filename.startswith(_OURS)), default=0)
    beyond = frames[ours + 1 :]
    theirs = [each for each in beyond if not each[0].co_filename.startswith(_LIBRARIES)]
    first = theirs[0][0] if theirs else None
    read = first is not None and (
        (first.co_name.startswith("__") and first.co_name != "__call__") or first.co_flags & inspect.CO_GENERATOR
    )
    caller = frames[ours][0].co_name
    called = any(code.co_name == "_call_impl" for code, _ in beyond) or (theirs and caller == "raw")
    if caller != "_outputs":  # where training calls the model: the rest are callbacks
        called = called and not any(f"{os.sep}train{os.sep}" in code.co_filename for code, _ in frames[: ours + 1])
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_GRADIENT) and not theirs:
        return InputError(f"no gradient: the model or the loss freezes, detaches or rewrites what it needs ({error}).")
    if isinstance(error, InputError) or not (read or called):
        return error
    at, line = (theirs or frames)[-1]
    place = f"{at.co_name} in {os.path.basename(at.co_filename)}, line {line}"
    return InputError(f"{place}, raises {type(error).__name__}: {first_line(error)}")


def methods_checked(owner: C) -> C:
    """The class with what its public methods are given checked; ``forward`` stays as torch calls it."""
    for name, method in list(vars(owner).items()):
        plain = getattr(method, "__func__", method)
        public = name == "__call__" or not (name.startswith("_") or name == "forward")
        if public and isinstance(plain, types.FunctionType) and not hasattr(plain, "checks"):
            code = inspect.unwrap(plain).__code__
            if code.co_argcount + code.co_kwonlyargcount > (not isinstance(method, staticmethod)):
                made = checked(plain)
                setattr(owner, name, type(method)(made) if isinstance(method, classmethod | staticmethod) else made)
    return owner


_OURS = os.path.dirname(__file__) + os.sep
# where code is not the caller's: ours, Python's, that of libraries (where numpy is installed), or of no file
_LIBRARIES = ("<", _OURS, sysconfig.get_path("stdlib") + os.sep, os.path.dirname(np.__path__[0]) + os.sep)
_NO_GRADIENT = ("not require grad", "modified by an inplace operation")
_TOO_LARGE = ("allocate memory", "calculation overflowed", "multiplication overflow", "without overflow")
