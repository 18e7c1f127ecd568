"""How far a run is: a bar on a terminal, plain lines in a log, nothing unless the caller asks for it."""

import sys
import time
from typing import Any


class Progress:
    """Shows one run, or one run after another.

    >>> run(trials, store, progress=Progress("price-tanner/fig3b"))

    On a terminal this is a bar with the time left; in a file or a pipe it is at most one line every few seconds::

        price-tanner/fig3b: 120 of 1000 done (12 %), 45 s left

    Args:
        title: what is being run.
        stream: text file to show it in; standard error by default, so that a command's own output stays clean.
        every: least number of seconds between two lines in a log.
    """

    def __init__(self, title: str = "trials", stream: Any = None, every: float = 5.0) -> None:
        self.title = title
        self._stream = stream
        self._every = every
        self._bar: Any = None
        self._task: Any = None
        self._total = self._found = self._done = 0
        self._begun = self._shown = 0.0

    def begin(self, total: int, found: int) -> None:
        """A run starts.

        Args:
            total: number of trials.
            found: how many of them an earlier run finished.
        """
        self._total, self._found, self._done = total, found, found
        self._begun = time.monotonic()
        stream = sys.stderr if self._stream is None else self._stream
        if stream.isatty():
            self._begin_bar(stream)
        else:
            self._line()

    def advance(self, count: int = 1) -> None:
        """That many more trials ended."""
        self._done += count
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._done < self._total and time.monotonic() - self._shown >= self._every:
            self._line()

    def end(self) -> None:
        """The run is over, finished or not."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif self._done > self._found:  # with nothing new, the first line has said it all
            self._line()

    def _begin_bar(self, stream: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._task = self._bar.add_task(self.title, total=self._total, completed=self._done)
        self._bar.start()

    def _line(self) -> None:
        now = time.monotonic()
        share = 100 * self._done // self._total if self._total else 100
        text = f"{self.title}: {self._done} of {self._total} done ({share} %)"
        ran = self._done - self._found
        if self._done == self._total:
            text += f", {self._found} of them before" if self._found else ""
            text += f", {_spelt(now - self._begun)}"
        elif ran:
            text += f", {_spelt((now - self._begun) / ran * (self._total - self._done))} left"
        self._shown = now
        print(text, file=sys.stderr if self._stream is None else self._stream, flush=True)


def _spelt(seconds: float) -> str:
    """A duration in the two units that matter."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
