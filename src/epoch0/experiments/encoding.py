"""The exact written form of a trial's result: JSON for numbers and small arrays, safetensors for large ones."""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.errors import InputError

_INLINE = 1024  # entries; a smaller array is written into the JSON, since a small file costs more than a long line
_ARRAY, _FILE = "$array", "$file"
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64")


@dataclass(frozen=True)
class Encoded:
    """A result as it is written: its JSON, and the bytes of a safetensors file for its large arrays or None."""

    text: str
    arrays: bytes | None

    @property
    def digest(self) -> str:
        """SHA-256 of both parts; kept in the row, so that a changed byte is noticed."""
        both = hashlib.sha256(self.text.encode())
        both.update(self.arrays or b"")
        return both.hexdigest()


def encode(result: Any) -> Encoded:
    """A result in the exact form the store keeps: floats to the bit, arrays with dtype and shape. It may hold numbers
    (NaN and infinity too), strings, booleans, None, lists, mappings, numpy scalars (kept as Python numbers) and numpy
    arrays; tuples become lists. An InputError names the place of what cannot be kept exactly.
    """
    large: dict[str, NDArray[Any]] = {}

    def other(value: Any, place: str) -> Any:
        if isinstance(value, float):
            return value
        if not isinstance(value, np.ndarray):
            raise InputError(f"{place} is a {type(value).__name__}, which cannot be kept; give numbers or arrays.")
        if str(value.dtype) not in _DTYPES:
            raise InputError(f"{place} is an array of dtype {value.dtype}; use one of {', '.join(_DTYPES)}.")
        form = {"dtype": str(value.dtype), "shape": list(value.shape)}
        if value.size <= _INLINE:
            return {_ARRAY: value.ravel().tolist(), **form}
        name = str(len(large))
        large[name] = np.ascontiguousarray(value)
        return {_FILE: name, **form}

    if not isinstance(result, Mapping):
        raise InputError(f"a trial function returned {type(result).__name__!r}; a result is a dict of named values.")
    text = json.dumps(plain(result, "result", (_ARRAY, _FILE), other), separators=(",", ":"))
    if not large:
        return Encoded(text, None)
    from safetensors.numpy import save

    return Encoded(text, save(large))


def decode(encoded: Encoded) -> dict[str, Any]:
    from safetensors.numpy import load

    large = {} if encoded.arrays is None else load(encoded.arrays)

    def read(value: dict[str, Any]) -> Any:
        if _ARRAY in value:
            return np.array(value[_ARRAY], dtype=value["dtype"]).reshape(value["shape"])
        return large[value[_FILE]] if _FILE in value else value

    result: dict[str, Any] = json.loads(encoded.text, object_hook=read)
    return result


def equal(one: Any, other: Any) -> bool:
    """Whether two results say the same: NaN is NaN, 0 is -0, whatever the order of the names."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    return bool(one == other or (one != one and other != other))


def plain(value: Any, place: str, reserved: Collection[str], other: Callable[[Any, str], Any]) -> Any:
    """The value in JSON's own types; what JSON cannot express goes to `other`, with its place for the error."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or name in reserved:
                names = " and ".join(map(repr, reserved))
                raise InputError(f"{place} has the name {name!r}; names are strings other than the reserved {names}.")
        return {name: plain(item, f"{place}[{name!r}]", reserved, other) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{place}[{index}]", reserved, other) for index, item in enumerate(value)]
    return other(value, place)
