"""Freed memory handed back to the system between two passes that need much of it (GraSP: Wang et al. 2020)."""

import ctypes
import functools
import sys
from collections.abc import Callable


def give_back() -> None:
    """Return what malloc keeps of freed tensors: its holes count as memory of the process, and may be half of it.

    >>> give_back()                                             # between two passes; nothing without glibc
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None
    return found
