"""How a walk is run: threads that share its pieces, how far it is, and the memory it may fill (DESIGN: one walk)."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

import torch

from epoch0.errors import InputError

Progress = Callable[[float, str], None]
"""What is told of the progress: the part that is done, from 0 to 1, and what is being done."""


@dataclass
class Budget:
    """Cells so far, all parts together, and the bytes of memory their geometry may take, so many each."""

    layers: tuple[str, ...]
    memory: float
    cells: int = 1
    each: int = 400  # its share of vertices, edges, owners and lists, twice while parts are put together
    what: str = "cells"
    advice: str = "choose a smaller window, give more memory, or use regions.count"
    lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, cells: int, step: int) -> None:
        """Count more cells; an InputError says that their geometry would not fit."""
        with self.lock:
            self.cells += cells
        if self.cells * self.each > self.memory:
            raise InputError(
                f"{self.cells} {self.what} were reached at layer '{self.layers[step]}', whose geometry takes more than "
                f"memory={self.memory:.3g} bytes; {self.advice}."
            )


Item = TypeVar("Item")
Found = TypeVar("Found")


class ThreadPool:
    """Threads for the pieces of a walk, for the time of one ``with``.

    Pieces within pieces stay with their thread. The pieces do not depend on the number of workers, so neither does any
    result. PyTorch's own threads are shared among the workers.
    """

    def __init__(self, workers: int = 1, progress: Progress | None = None) -> None:
        self.workers = workers
        self._progress, self._done, self._lock = progress, 0.0, Lock()
        self._failure: BaseException | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._threads = 0

    def __enter__(self) -> "ThreadPool":
        if self.workers > 1:
            self._threads = torch.get_num_threads()
            torch.set_num_threads(max(1, self._threads // self.workers))
            self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="regions")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._pool is not None:
            self._failure = self._failure or error
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            torch.set_num_threads(self._threads)

    def map(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        """The function of every item, in order; it may itself call ``map``.

        What it raises first is raised; the pieces that are under way raise it too, at their next :meth:`check`.
        """
        if self._pool is None or threading.current_thread().name.startswith("regions"):
            return [function(item) for item in items]
        grad = torch.is_grad_enabled()

        def carried(item: Item) -> Found:
            self.check()
            try:
                with torch.set_grad_enabled(grad):
                    return function(item)
            except BaseException as error:
                self._failure = self._failure or error
                raise

        return list(self._pool.map(carried, items))

    def advance(self, share: float, what: str) -> None:
        """So much more is done, as a part of the whole, or all; told of one at a time, whichever thread did it."""
        if self._progress is not None:
            with self._lock:
                self._done = min(self._done + share, 1.0)
                self._progress(self._done, what)

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure
