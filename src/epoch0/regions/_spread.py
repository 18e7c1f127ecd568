"""Pieces of one walk spread over threads: who does a piece changes nothing of what it finds (DESIGN: one walk)."""

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import torch

from epoch0.errors import InputError
from epoch0.regions._report import Report

_DEPTH = 64  # pieces within pieces: so many threads for each worker may wait for others

Item = TypeVar("Item")
Found = TypeVar("Found")


def check_workers(workers: int) -> int:
    """Refuse a number of workers that is none."""
    if isinstance(workers, bool) or workers < 1:
        raise InputError(f"workers={workers!r}; give a positive whole number of threads, such as 2.")
    return workers


class Stopped(Exception):
    """Another piece failed, or the user interrupted: the work on this piece is of no use any more."""


class Crew:
    """Threads that take pieces of work off one another's hands, for the time of one ``with``.

    >>> with Crew(2) as crew:
    ...     crew.map(sum, [[1, 2], [3, 4], [5]])
    [3, 7, 5]

    A thread that has several pieces hands one over whenever another thread is idle and does the others itself, one
    after another; a piece may be divided in the same way. The pieces do not depend on the number of workers, so neither
    does any result. PyTorch's own threads are shared among the workers.

    Args:
        workers: threads that work at a time; with 1 everything is done by the caller.
        report: who is told how far the work is.
    """

    def __init__(self, workers: int = 1, report: Report | None = None) -> None:
        self.workers = workers
        self.report = report or Report()
        self._idle = threading.Semaphore(workers - 1)
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._threads = 0

    def __enter__(self) -> "Crew":
        if self.workers > 1:
            self._threads = torch.get_num_threads()
            torch.set_num_threads(max(1, self._threads // self.workers))
            self._pool = ThreadPoolExecutor(_DEPTH * self.workers, thread_name_prefix="regions")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            if error is not None:
                self._fail(error)
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            torch.set_num_threads(self._threads)

    def map(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        """The function of every item, in order.

        Args:
            function: may itself call ``map``.
            items: independent pieces of work.

        Raises:
            Exception: what the function raised first; the pieces that are under way stop at their next :meth:`check`.
        """
        if self._pool is None:
            return [function(item) for item in items]
        found: list[Found | Future[Found]] = []
        try:
            for place, item in enumerate(items):
                self.check()
                if place + 1 < len(items) and self._idle.acquire(blocking=False):
                    found.append(self._hand_over(function, item))
                else:
                    found.append(function(item))
        except BaseException as error:
            self._fail(error)
            raise
        given = [one for one in found if isinstance(one, Future)]
        if not all(one.done() for one in given):
            self._idle.release()  # while this thread waits another one may work
            try:
                for future in given:
                    future.exception()
            except BaseException as error:  # Ctrl-C
                self._fail(error)
                raise
            finally:
                self._idle.acquire()
        self.check()
        return [one.result() if isinstance(one, Future) else one for one in found]

    def check(self) -> None:
        """Stop this piece if the whole has failed.

        Raises:
            Exception: the failure, in the thread that called first; :class:`Stopped` in the others.
        """
        if self._failure is None:
            return
        if threading.current_thread().name.startswith("regions") or isinstance(self._failure, Stopped):
            raise Stopped
        raise self._failure

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error

    def _hand_over(self, function: Callable[[Item], Found], item: Item) -> Future[Found]:
        assert self._pool is not None
        grad, context = torch.is_grad_enabled(), contextvars.copy_context()

        def carried() -> Found:
            try:
                with torch.set_grad_enabled(grad):
                    return function(item)
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._idle.release()

        def run(*args: Any) -> Found:
            return context.run(carried)

        return self._pool.submit(run)
