"""The functions of ``scipy.special``, which is loaded by the first that is used: it takes a fifth of a second."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what the import system asks of any module
        raise AttributeError(name)
    from scipy import special

    found = globals()[name] = getattr(special, name)
    return found
