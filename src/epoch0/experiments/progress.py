"""How far a run is: a bar on a terminal, plain lines in a log, nothing unless the caller asks for it."""

import time
from typing import Any

from epoch0.meter import Meter, format_duration


class Progress:
    """Shows one run, or one run after another: ``run(trials, store, progress=Progress("price-tanner/fig3b"))``.

    >>> import sys
    >>> shown = Progress("price-tanner/fig3b", stream=sys.stdout)
    >>> shown.begin(total=1000, found=120)
    price-tanner/fig3b: 120 of 1000 done (12 %)

    On a terminal this is a bar with the time left; in a file or a pipe it is at most one line every few seconds::

        price-tanner/fig3b: 120 of 1000 done (12 %), 45 s left

    Args:
        title: what is being run.
        stream: text file to show it in; standard error by default, so that a command's own output stays clean.
        every: least number of seconds between two lines in a log.
    """

    def __init__(self, title: str = "trials", stream: Any = None, every: float = 5.0) -> None:
        self._meter = Meter(title, stream, every)
        self._total = self._found = self._done = 0
        self._begun = 0.0

    @property
    def title(self) -> str:
        """What is being run; may be set before it begins."""
        return self._meter.title

    @title.setter
    def title(self, title: str) -> None:
        self._meter.title = title

    def begin(self, total: int, found: int) -> None:
        """A run starts.

        Args:
            total: number of trials.
            found: how many of them an earlier run finished.
        """
        self._total, self._found, self._done = total, found, found
        self._begun = time.monotonic()
        self._meter.begin(total, found)
        self._meter.line(self._said())

    def advance(self, count: int = 1) -> None:
        """That many more trials ended."""
        self._done += count
        if self._meter.on_terminal or self._done < self._total:  # a log hears of the last ones from `end`
            self._meter.show(self._done, "", self._said)

    def end(self) -> None:
        """The run is over, finished or not."""
        if self._done > self._found:  # with nothing new, the first line has said it all
            self._meter.line(self._said())
        self._meter.end()

    def _said(self) -> str:
        share = 100 * self._done // self._total if self._total else 100
        text = f"{self._done} of {self._total} done ({share} %)"
        ran, took = self._done - self._found, time.monotonic() - self._begun
        if self._done == self._total:
            text += f", {self._found} of them before" if self._found else ""
            text += f", {format_duration(took)}"
        elif ran:
            text += f", {format_duration(took / ran * (self._total - self._done))} left"
        return text
