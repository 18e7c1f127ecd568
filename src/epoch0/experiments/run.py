"""Run trials: only what is missing, stored as it finishes, the same results for any workers and after any kill."""

import queue
import re
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from epoch0.arguments import Count, checked
from epoch0.errors import InputError
from epoch0.experiments.engine import Died, Engine, Failure, cores, exit_status
from epoch0.experiments.experiment import Trial, resolve
from epoch0.experiments.store import Store
from epoch0.progress import ProgressBar, format_duration

_DEATHS = 3  # a trial whose worker dies this often is given up
_LONGEST = 2000  # characters of a cause


class TrialError(RuntimeError):
    """A trial could not be finished; all others were, and are in the store. It names the first ``trial`` that failed,
    in the order given, its ``cause``, its ``traceback`` in the worker (empty if that died), how many ``failed``, and
    the ``causes`` of all of them by their keys.
    """

    def __init__(self, message: str, trial: Trial, traceback: str, causes: dict[str, str]) -> None:
        super().__init__(message, trial, traceback, causes)  # all of them: so it survives pickling
        self.trial, self.traceback, self.causes = trial, traceback, causes
        self.cause, self.failed = causes[trial.key], len(causes)

    def __str__(self) -> str:
        return str(self.args[0])


class TrialInputError(TrialError, InputError):
    """A trial refused its input: the first failure was an :class:`~epoch0.errors.InputError`."""


class Progress(ProgressBar):
    """Shows one run, or one run after another: ``run(trials, store, progress=Progress("price-tanner/fig3b"))``.

    >>> import sys
    >>> shown = Progress("price-tanner/fig3b", stream=sys.stdout)
    >>> shown.begin(total=1000, done=120)
    price-tanner/fig3b: 120 of 1000 done (12 %)

    On a terminal this is a bar with the time left; in a file or a pipe it is at most one line every few seconds::

        price-tanner/fig3b: 120 of 1000 done (12 %), 45 s left
    """

    def begin(self, total: float, done: float = 0.0) -> None:
        """A run of ``total`` trials starts, of which an earlier run finished ``done``."""
        self._total, self._found, self._done = int(total), int(done), int(done)
        super().begin(total, done)
        self.line(self._said())

    def advance(self) -> None:
        self._done += 1
        if self.on_terminal or self._done < self._total:  # in a log, `end` reports the last ones
            self.show(self._done, "", self._said)

    def end(self) -> None:
        if self._done > self._found:  # with nothing new, the first line was enough
            self.line(self._said())
        super().end()

    def _said(self) -> str:
        text = f"{self._done} of {self._total} done ({100 * self._done // self._total if self._total else 100} %)"
        ran, took = self._done - self._found, time.monotonic() - self._begun
        if self._done == self._total:
            text += f", {self._found} of them before" if self._found else ""
            text += f", {format_duration(took)}"
        elif ran:
            text += f", {format_duration(took / ran * (self._total - self._done))} left"
        return text


@checked
def run(
    trials: Sequence[Trial],
    store: Store | None = None,
    *,
    workers: Count | None = None,
    scheduler: str | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    shard: str | None = None,
) -> list[dict[str, Any]]:
    """The results of all trials, in their order; those in the store already are not run again.

    >>> from epoch0.experiments.experiment import Spec
    >>> specs = [Spec(depth=depth, noise=0.0, networks=1) for depth in (2, 3, 4)]
    >>> trials = [Trial("epoch0.papers.hanin_rolnick.graph:sawtooth_pieces", spec, 0) for spec in specs]
    >>> with Store("results.sqlite") as store:
    ...     results = run(trials, store, workers=1)
    >>> [int(result["count"][0]) for result in results]         # pieces of a sawtooth of n layers
    [4, 8, 16]

    They are exactly as they are in the store: tuples are lists. Ctrl-C stops the workers and raises
    ``KeyboardInterrupt`` when all that is finished is in the store; a second one does not wait for that.

    Args:
        trials: what to run; equal trials are run once.
        store: where results are kept; None keeps them for this call only.
        workers: processes on this machine, default one per CPU; never more than there are trials to run.
        scheduler: address of a dask scheduler, such as ``"tcp://host:8786"``, instead.
        engine: workers that are shared with other runs, instead of either.
        progress: shows how far the run is; None shows nothing.
        shard: ``"i/n"`` runs only the i-th of every n trials (i from 1 to n), for a job array in which each job has a
            store of its own, to be joined by :func:`epoch0.experiments.store.merge`.

    Raises:
        InputError: if an argument, the store or the scheduler cannot be used.
        TrialError: if trials failed, after all others finished; it is an InputError if the trial's error was one.
    """
    if engine is not None and (workers is not None or scheduler is not None):
        raise InputError("engine was given together with workers or scheduler; the engine has its own workers.")
    own = engine is None
    engine = engine or Engine(workers=workers, scheduler=scheduler)
    wanted = list(trials)
    if shard is not None:
        part, parts = map(int, shard.split("/")) if re.fullmatch(r"[0-9]+/[0-9]+", shard) else (0, 0)
        if not 1 <= part <= parts:
            raise InputError(f"shard {shard!r} is not of the form i/n with i from 1 to n, such as 2/8.")
        wanted = wanted[part - 1 :: parts]
    for function in {trial.function for trial in wanted}:
        resolve(function)
    with ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="epoch0-"))
            store = stack.enter_context(Store(Path(folder) / "results.sqlite"))
        unique, finished = {trial.key: trial for trial in wanted}, store.keys()
        missing = [trial for key, trial in unique.items() if key not in finished]
        if progress is not None:
            progress.begin(len(unique), len(unique) - len(missing))
            stack.callback(progress.end)
        if missing:
            if own and scheduler is None:
                engine.workers = min(len(missing), workers or cores())
            _Run(missing, store, engine, progress).finish(close=own)
        results = {key: store.get(key) for key in unique}
        return [results[trial.key] for trial in wanted]  # type: ignore[misc]  # all are there


class _Run:
    """The trials of one call that are not in the store, on their way into it."""

    def __init__(self, missing: list[Trial], store: Store, engine: Engine, progress: Progress | None) -> None:
        self.missing, self.store, self.engine, self.progress = missing, store, engine, progress
        self.pending = deque(missing)
        self.suspects: deque[Trial] = deque()  # their worker died: each runs again when nothing else does
        self.deaths: dict[str, int] = {}  # of the worker while a suspect ran alone, by the keys
        self.flying: dict[Any, Trial] = {}
        self.failures: dict[str, Failure] = {}  # by the keys of the trials

    def finish(self, close: bool) -> None:
        """Run everything, then raise what went wrong; whatever ends it, what had finished is stored."""
        done = False
        try:
            with _interrupts_wait() as interrupted:
                self.workers = self.engine.start()
                while (self.pending or self.suspects or self.flying) and not interrupted.is_set():
                    self._fill()
                    self._collect(0.2)
                if interrupted.is_set():
                    while self._collect(0.0):
                        pass
                    raise KeyboardInterrupt
            done = True
        finally:
            if close or not done:
                self.engine.close(now=not done)
        if self.failures:
            causes = {trial.key: self.failures[trial.key].cause for trial in self.missing if trial.key in self.failures}
            first, *_ = (trial for trial in self.missing if trial.key in causes)
            failed, total, failure = len(causes), len(self.missing), self.failures[first.key]
            rest = f" (the other {total - failed} are finished and stored)" if total > failed else ""
            message = f"{failed} of {total} trials failed{rest}. The first, {first}: {shorten(failure.cause, _LONGEST)}"
            raise (TrialInputError if failure.bad_input else TrialError)(message, first, failure.traceback, causes)

    def _fill(self) -> None:
        """Submit as many trials as there are slots, and in the end one suspect after another, each alone."""
        slots, given = self.workers.slots(), list[Trial]()
        while self.pending and len(self.flying) + len(given) < slots:
            given.append(self.pending.popleft())
        if self.suspects and not self.flying and not given:
            given.append(self.suspects.popleft())
        for trial in given:
            self.flying[self.workers.submit((trial.function, trial.canonical, trial.seed))] = trial

    def _collect(self, seconds: float) -> bool:
        """Keep what a trial gave, if one ends within that time."""
        try:
            handle = self.workers.finished.get(timeout=seconds)
        except queue.Empty:
            return False
        trial, outcome = self.flying.pop(handle), self.workers.outcome(handle)
        if isinstance(outcome, Died):  # find the trial that was the cause by running each suspect alone
            before = self.deaths.get(trial.key)
            deaths = self.deaths[trial.key] = 0 if before is None else before + outcome.times
            if deaths < _DEATHS:
                self.suspects.append(trial)
                return True
            ended = "" if outcome.status is None else f"{exit_status(outcome.status)}: "
            cause = f"it killed its worker process {deaths} times ({ended}out of memory, or a crash)"
            outcome = Failure(cause, "", False)
        if isinstance(outcome, Failure):
            self.failures[trial.key] = outcome
        else:
            self.store.put(trial, outcome)
        if self.progress is not None:
            self.progress.advance()
        return True


@contextmanager
def _interrupts_wait() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event, so that it never falls inside a commit; a second one acts at once."""
    interrupted, before = threading.Event(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield interrupted
        return

    def note(number: int, frame: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
