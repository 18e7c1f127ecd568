"""How far a long walk is: told to whoever asks, shown as a bar on a terminal or as lines in a log."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from epoch0.meter import Meter

Progress = Callable[[float, str], None]
"""What is told of the progress: the part that is done, from 0 to 1, and what is being done."""


class Report:
    """Adds up the parts of the work that are done, whichever thread did them.

    >>> seen = []
    >>> report = Report(lambda done, what: seen.append((done, what)))
    >>> report.advance(0.25, "layer 1 of 4")
    >>> seen
    [(0.25, 'layer 1 of 4')]

    Args:
        progress: is called with the part that is done and a text; one call at a time, never with less than before.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._done = 0.0
        self._lock = threading.Lock()

    def advance(self, share: float, what: str) -> None:
        """So much more is done, as a part of the whole."""
        if self._progress is None:
            return
        with self._lock:
            self._done += share
            self._progress(min(self._done, 1.0), what)

    def finish(self, what: str) -> None:
        """All is done."""
        self.advance(1.0 - self._done, what)


class Shown:
    """A progress to look at: a bar on a terminal, in a file or a pipe at most one line every few seconds.

    >>> with Shown("regions") as shown:
    ...     on_line(net, x0, x1, progress=shown)

    Args:
        title: what is being done.
        stream: text file to show it in; standard error by default, so that a command's own output stays clean.
        every: least number of seconds between two lines in a log.
    """

    def __init__(self, title: str, stream: Any = None, every: float = 5.0) -> None:
        self._meter = Meter(title, stream, every, counted=False, transient=True)
        self._begun = time.monotonic()

    def __enter__(self) -> "Shown":
        self._begun = time.monotonic()
        self._meter.begin(1.0)
        return self

    def __call__(self, done: float, what: str) -> None:
        """So much is done."""

        def line() -> str:
            left = (time.monotonic() - self._begun) * (1.0 - done) / max(done, 1e-9)
            return f"{100 * done:.0f} % done, {what}, about {left:.0f} s left"

        self._meter.show(done, what, line)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.end()
