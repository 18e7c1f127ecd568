"""What a command is doing, stage by stage: a bar on a terminal, plain lines in a log."""

import sys
import threading
import time
from types import TracebackType
from typing import Any


class Stages:
    """Tells which stage a command is at, also while a stage is silent: it may be one long call.

    >>> with Stages("prune", 3) as stage:
    ...     stage("scoring by snip")
    ...     stage.within(0.5, "round 3 of 6")

    On a terminal this is a bar; in a file or a pipe a line every few seconds, and none for what is quick::

        prune: scoring by snip, round 3 of 6 (stage 1 of 3), 10 s

    Args:
        title: the command.
        count: number of stages.
        stream: text file to tell it in; standard error by default, so that a command's own output stays clean.
        every: seconds between two lines in a log.
    """

    def __init__(self, title: str, count: int, stream: Any = None, every: float = 5.0) -> None:
        self._title, self._count, self._stream, self._every = title, count, stream, every
        self._number, self._name, self._inside, self._share = 0, "", "", 0.0
        self._begun = 0.0
        self._bar: Any = None
        self._task: Any = None
        self._over = threading.Event()
        self._teller: threading.Thread | None = None

    def __enter__(self) -> "Stages":
        self._begun = time.monotonic()
        self._stream = sys.stderr if self._stream is None else self._stream
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._task = self._bar.add_task(self._title, total=self._count)
            self._bar.start()
        else:
            self._teller = threading.Thread(target=self._tell, daemon=True)
            self._teller.start()
        return self

    def __call__(self, name: str) -> None:
        """The next stage begins."""
        self._number, self._name, self._inside, self._share = self._number + 1, name, "", 0.0
        self._update()

    def within(self, share: float, what: str) -> None:
        """So much of the stage is done, from 0 to 1, and this comes next."""
        self._inside, self._share = what, share
        self._update()

    def _text(self) -> str:
        return f"{self._title}: {self._name}{', ' if self._inside else ''}{self._inside}"

    def _update(self) -> None:
        if self._bar is not None:
            done = max(self._number - 1, 0) + self._share
            self._bar.update(self._task, completed=done, description=self._text())

    def _tell(self) -> None:
        while not self._over.wait(self._every):
            if self._number:
                seconds = time.monotonic() - self._begun
                line = f"{self._text()} (stage {self._number} of {self._count}), {seconds:.0f} s"
                print(line, file=self._stream, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._teller is not None:
            self._teller.join()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
