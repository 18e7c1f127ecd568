"""One thread at a time where global state is changed, and a Ctrl-C that waits while it is set up or restored."""

import _thread
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

ONE_AT_A_TIME = threading.RLock()
"""Held while a model is in use: its weights, forward derivatives and random streams are shared by all threads."""

AGAIN = 0.005  # seconds until a Ctrl-C that came at a bad instant is tried again
_WAITS = ("__enter__", "__exit__", "_whole")  # in these frames something is half done


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C interrupts the body, but never while a context is entered or left, or a file is written.

    A model's own forward can be interrupted everywhere. It acts in the main thread only, where Ctrl-C is handled.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before) or hasattr(before, "waits"):
        yield
        return
    listens, edge = before, sys._getframe(2)  # the frame of the ``with``: what is above it is the caller's business

    def wait(number: int, frame: FrameType | None) -> None:
        at = frame
        while at is not None and at.f_code.co_name != "_call_impl":
            if at.f_code.co_name in _WAITS:
                later = threading.Timer(AGAIN, _thread.interrupt_main)
                later.daemon = True
                later.start()
                return
            at = at.f_back if at is not edge else None
        listens(number, frame)

    wait.waits = True  # type: ignore[attr-defined]
    try:
        signal.signal(signal.SIGINT, wait)
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def whole(function: F) -> F:
    """The function, which Ctrl-C never stops halfway: it waits for its end."""

    @functools.wraps(function)
    def _whole(*args: Any, **named: Any) -> Any:
        with interrupts_wait():
            return function(*args, **named)

    return cast("F", _whole)
