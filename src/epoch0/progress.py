"""Progress of long work: a bar on a terminal or in a notebook, else plain lines now and then."""

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Progress = Callable[[float, str], None] | None
"""What hears of long work: it is called with the part that is done, from 0 to 1, and what is being done."""


class ProgressBar:
    """A bar on a terminal or in a notebook, else at most one line every few seconds. It goes to standard error unless a
    stream is given; ``every``: seconds between lines in a log.
    """

    counted = True  # the bar shows the numbers done and in all; else the part in per cent, and it goes when it is over

    def __init__(self, title: str = "trials", stream: Any = None, every: float = 5.0) -> None:
        self.title, self._stream, self._every = title, stream, every
        self._bar: Any = None
        self._shown = 0.0

    @property
    def on_terminal(self) -> bool:
        """Whether a bar is shown."""
        return self._bar is not None

    def begin(self, total: float, done: float = 0.0) -> None:
        """Start, with this much done already."""
        self._begun = self._shown = time.monotonic()
        file = self._stream or sys.stderr
        if file.isatty() or (self._stream is None and in_notebook()):
            self._bar = _bar(file, self.counted)
            self._task = self._bar.add_task(self.title, total=total, completed=done)
            self._bar.start()

    def show(self, done: float, text: str, line: Callable[[], str]) -> None:
        """Show what is done; the text follows the title of the bar, and a log gets the line if one is due."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=f"{self.title}: {text}" if text else self.title)
        elif time.monotonic() - self._shown >= self._every:
            self.line(line())

    def line(self, text: str) -> None:
        """Write a line to the log, whether one is due or not; on a terminal the bar shows it."""
        if self._bar is None:
            self._shown = time.monotonic()
            print(f"{self.title}: {text}", file=self._stream or sys.stderr, flush=True)

    def end(self) -> None:
        """Stop, finished or not."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class FractionProgress(ProgressBar):
    """Shows the share that is done, from 0 to 1, and what is being done: ``shown(0.25, "layer 1 of 4")``. A log gets
    lines also while that is one long call, and none where all is quick.
    """

    counted, _said = False, ""
    _before: float | None = None  # the share that was done before, of work that goes on where it was stopped

    def __enter__(self) -> "FractionProgress":
        self._over = threading.Event()
        self._reporter = threading.Thread(target=self._report, daemon=True)
        self.begin(1.0)
        self._reporter.start()
        return self

    def __call__(self, done: float, what: str) -> None:
        spent = time.monotonic() - self._begun
        if self._before is None:
            self._before = done if spent < 1 else 0.0
            if self._bar is not None:
                self._bar.reset(self._task, completed=self._before)
        new = done - self._before
        left = f", about {spent * (1.0 - done) / new:.0f} s left" if new > 0 else ""
        self._said = f"{100 * done:.0f} % done, {what}{left}"
        self.show(done, what, lambda: self._said)

    def _report(self) -> None:
        while not self._over.wait(self._every or None):
            if self._said and time.monotonic() - self._shown >= self._every:
                self.line(f"{self._said}, {time.monotonic() - self._begun:.0f} s so far")

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._reporter.join()
        self.end()


def format_duration(seconds: float) -> str:
    """A duration in the two units that matter: 12 s, 1 h 02 min."""
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left:02d} s" if minutes else f"{left} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def in_notebook() -> bool:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell" and importlib.util.find_spec("ipywidgets") is not None


def _bar(stream: Any, counted: bool) -> Any:
    from rich import progress
    from rich.console import Console

    amount = progress.MofNCompleteColumn() if counted else progress.TaskProgressColumn()
    bar = (progress.TextColumn("{task.description}"), progress.BarColumn(), amount)
    times = (progress.TimeElapsedColumn(), progress.TextColumn("left"), progress.TimeRemainingColumn())
    console = Console(file=stream) if stream.isatty() else Console()  # of a notebook, which rich finds by itself
    return progress.Progress(*bar, *times, console=console, transient=not counted)
