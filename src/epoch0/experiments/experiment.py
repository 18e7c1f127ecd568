"""A trial: a pure function of a frozen spec and a seed, with a content key; a paper's experiment is many of them."""

import dataclasses
import hashlib
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any

from epoch0.arguments import Within, checked
from epoch0.errors import InputError, reworded, suggest
from epoch0.experiments.encoding import plain

DATA_VERSION = 1
"""Raise it when the same spec and seed would give other numbers than before: every old key is then out of date."""

_CLASS = "$class"  # the one reserved name: a frozen dataclass is written as {"$class": "module:Name", field: value}
_LARGEST_SEED = 2**63 - 1  # what SQLite's integers hold

TrialFunction = Callable[[Any, int], dict[str, Any]]
"""``f(spec, seed) -> result``: module-level, pure, its result a dict of numbers, strings, lists and numpy arrays."""


class Spec(SimpleNamespace):
    """A frozen spec whose fields need no class of their own.

    >>> Spec(width=4, widths=(4, 8)).widths, Spec(width=4).but(depth=2)
    ((4, 8), Spec(width=4, depth=2))
    """

    def but(self, **fields: Any) -> "Spec":
        """The same with other values of some fields, or with more fields."""
        return Spec(**{**vars(self), **fields})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the spec has no field {name!r}; it has {', '.join(vars(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a spec is frozen; spec.but({name}=...) gives another")

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, unlike its base
        return hash(frozenset(vars(self).items()))


@checked
@dataclass(frozen=True)
class Trial:
    """One run of a function: what it computes is decided by ``function``, ``spec`` and ``seed`` and by nothing else.

    >>> trial = Trial("package.module:name", {"width": 784, "weights": Gaussian(2.0)}, seed=7)
    >>> len(trial.key)
    64

    The spec is frozen when the trial is made: later changes to a dict that was passed do not reach the trial. Two
    trials are equal when their keys are. The order of a mapping's names does not matter; the numbers 1 and 1.0 are
    different, since a function may treat them differently; tuples count as lists.

    Args:
        function: ``"package.module:name"`` of a module-level function of (spec, seed).
        spec: a mapping of JSON-able values (finite numbers, strings, booleans, None, lists, mappings) and frozen
            dataclasses such as weight laws; or one frozen dataclass. The function receives it back with the same
            classes: sequences as lists, and as tuples inside a dataclass.
        seed: an integer in [0, 2^63).

    Raises:
        InputError: if a value cannot be written exactly (NaN, infinity, arrays, functions, mutable dataclasses).
    """

    function: str
    spec: Any = field(compare=False)
    seed: Annotated[int, Within(0, _LARGEST_SEED)]
    canonical: str = field(init=False, repr=False, compare=False)
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        module, colon, name = self.function.partition(":")
        if not (colon and module and name.isidentifier()):
            raise InputError(f"trial function {self.function!r} is not of the form 'package.module:name'.")
        if module == "__main__":
            raise InputError(f"trial function {self.function!r} is in the main script; move it to a module of its own.")
        canonical = canonical_json(self.spec)
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "spec", read_canonical(canonical))
        parts = {"data_version": DATA_VERSION, "function": self.function, "seed": self.seed}
        text = f'{json.dumps(parts, sort_keys=True, separators=(",", ":"))[:-1]},"spec":{canonical}}}'
        object.__setattr__(self, "key", hashlib.sha256(text.encode()).hexdigest())

    def __str__(self) -> str:
        """The trial in one line: function, seed and spec, a long spec shortened in the middle."""
        spec = self.canonical if len(self.canonical) <= 300 else f"{self.canonical[:200]} ... {self.canonical[-80:]}"
        return f"{self.function} seed={self.seed} spec={spec}"


@checked
def canonical_json(value: Any) -> str:
    """The one text of a spec: names sorted, no spaces, ASCII, every float by its shortest exact decimal.

    >>> canonical_json({"b": (1, 2.0), "a": Gaussian(0.1)})
    '{"a":{"$class":"epoch0.distributions:Gaussian","std":0.1},"b":[1,2.0]}'
    """
    return json.dumps(plain(value, "spec", (_CLASS,), _plain), sort_keys=True, separators=(",", ":"))


@checked
def read_canonical(text: str) -> Any:
    """The spec that :func:`canonical_json` wrote, its dataclasses made again from their classes.

    >>> read_canonical('{"a":{"$class":"epoch0.distributions:Gaussian","std":0.1}}')
    {'a': Gaussian(std=0.1)}
    """
    with reworded(lambda error: InputError(f"a spec is not JSON ({error}): {text[:200]!r}.")):
        value = json.loads(text)
    return _rebuilt(value, inside_dataclass=False)


@checked
def resolve(function: str) -> TrialFunction:
    """The function a trial names.

    >>> resolve("epoch0.papers.price_tanner.growth:block")
    <function block at ...>
    """
    found: TrialFunction = _imported(function, "trial function")
    if not callable(found):
        raise InputError(f"trial function {function!r} is a {type(found).__name__}, not a function of (spec, seed).")
    return found


def _imported(name: str, noun: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.startswith("."):
        raise InputError(f"{noun} {name!r} is not of the form 'package.module:name'.")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"{noun} {name!r} cannot be imported: {error}.") from error
    if not hasattr(module, attribute):
        raise InputError(f"{noun} {name!r}: {module_name} has no {attribute!r}.{suggest(attribute, dir(module))}")
    return getattr(module, attribute)


def _is_frozen(kind: Any) -> bool:
    return kind is Spec or bool(getattr(getattr(kind, "__dataclass_params__", None), "frozen", False))


def _plain(value: Any, place: str) -> Any:
    """A frozen dataclass or a spec in JSON's own types; anything else is refused."""
    if isinstance(value, float):
        raise InputError(f"{place} is {value}; a trial's spec holds finite numbers only.")
    if isinstance(value, Spec) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        if not _is_frozen(kind := type(value)) or "." in kind.__qualname__:
            raise InputError(f"{place} is a {kind.__name__}; a dataclass in a spec is frozen and defined in a module.")
        own = vars(value) if isinstance(value, Spec) else [part.name for part in dataclasses.fields(value) if part.init]
        fields = {name: plain(getattr(value, name), f"{place}.{name}", (_CLASS,), _plain) for name in own}
        return {_CLASS: f"{kind.__module__}:{kind.__qualname__}", **fields}
    kinds = "numbers, strings, lists, mappings and frozen dataclasses"
    hint = "for an array its .tolist(), for a function its name"
    raise InputError(f"{place} is a {type(value).__name__}, which has no exact text; use {kinds} ({hint}).")


def _rebuilt(value: Any, inside_dataclass: bool) -> Any:
    if isinstance(value, list):
        items = [_rebuilt(item, inside_dataclass) for item in value]
        return tuple(items) if inside_dataclass else items
    if not isinstance(value, dict):
        return value
    if _CLASS not in value:
        return {name: _rebuilt(item, inside_dataclass) for name, item in value.items()}
    if not (isinstance(kind := _imported(value[_CLASS], "spec class"), type) and _is_frozen(kind)):
        raise InputError(f"spec class {value[_CLASS]!r} is not a frozen dataclass.")
    fields = {name: _rebuilt(item, True) for name, item in value.items() if name != _CLASS}
    text = f"spec class {value[_CLASS]!r} does not take the fields {sorted(fields)}"
    with reworded(lambda error: InputError(f"{text}: {error}.")):
        return kind(**fields)
