"""Where trials run: processes of one BLAS thread each, on this machine or behind a scheduler (dask.distributed)."""

import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from epoch0.errors import InputError, is_count
from epoch0.experiments.encoding import Encoded, encode
from epoch0.experiments.experiment import Trial, read_canonical, resolve
from epoch0.heap import heap_environment

_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES} | {"VECLIB_MAXIMUM_THREADS": "1"}
_counting = threading.Lock()
_inside: list[int] = []  # the threads that compute with one BLAS thread at this moment
_outside: dict[str, Any] = {}  # how many BLAS threads there were before the first of them
_ACCELERATORS = "EPOCH0_ACCELERATORS"  # how many a new worker process shares with its siblings
_PARENT = "__DASK_PARENT_PID"  # set by dask beside the variables that it is given
_ASK_AGAIN = 0.5  # seconds a count of workers stays good
_PATIENCE = "10s"  # for a scheduler to answer
_NO_WORKERS = 60.0  # seconds without a single worker after which a run gives up
_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # the run itself decides what is tried again after a worker died
    "distributed.scheduler.worker-ttl": None,  # a trial may keep its process busy for as long as it likes
    "distributed.worker.profile.enabled": False,
}


@dataclass(frozen=True)
class Failure:
    """What went wrong inside a trial, in words that survive the way back from a worker."""

    cause: str
    traceback: str
    bad_input: bool


@dataclass(frozen=True)
class Outcome:
    """One trial that ran: its encoded result or its failure, and how many seconds it took."""

    result: Encoded | None
    failure: Failure | None
    seconds: float


@dataclass(frozen=True)
class Died:
    """The worker died while it ran a group, this many times (a remote scheduler may have tried again by itself)."""

    times: int


class Engine:
    """Worker processes, started when first needed, good for several runs.

    >>> from epoch0.experiments.run import run
    >>> from epoch0.papers.hanin_rolnick.sawtooth import SawtoothSpec
    >>> trials = [Trial("epoch0.papers.hanin_rolnick.sawtooth:pieces", SawtoothSpec(n, 0.0, 1), 0) for n in (2, 3, 4)]
    >>> with Engine(workers=1) as engine:
    ...     [int(run([trial], engine=engine)[0]["count"][0]) for trial in trials]      # pieces of a sawtooth
    [4, 8, 16]

    Args:
        workers: processes on this machine; default one per CPU.
        scheduler: address of a running scheduler, such as ``"tcp://host:8786"``, instead of processes here. Its
            workers need this package at the same version.
        accelerators: how many accelerators the processes here share: each sees one of them only, in turn.

    Raises:
        InputError: if workers is not an integer >= 1, or both are given; when first used, if no scheduler answers.
    """

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, accelerators: int = 0) -> None:
        if workers is not None and not is_count(workers):
            raise InputError(f"workers is {workers!r}; give the number of worker processes, 1 or more.")
        if workers is not None and scheduler is not None:
            raise InputError(f"workers={workers} and scheduler={scheduler!r}: a scheduler has workers; give one.")
        self.workers = workers
        self.scheduler = scheduler
        self.accelerators = accelerators
        self._open: ExitStack | None = None
        self._client: Any = None
        self._cluster: Any = None
        self._counted = (-_ASK_AGAIN, 0)
        self._some_worker = 0.0
        self._finished: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the processes or reach the scheduler; does nothing when that is done already."""
        if self._client is not None:
            return
        stack = ExitStack()
        try:
            stack.enter_context(_silence())
            if self.scheduler is None:
                self._cluster = stack.enter_context(_local_cluster(self.workers, self.accelerators))
            self._client = stack.enter_context(self._connected())
        except BaseException:
            self._cluster = None
            stack.close()
            raise
        self._open = stack
        self._some_worker = time.monotonic()

    def slots(self, ask: bool = False) -> int:
        """How many groups can run at this moment: one a worker thread. ``ask`` counts now, whenever the last count was.

        No worker at all for a minute is an InputError.
        """
        self.start()
        now = time.monotonic()
        if ask or now - self._counted[0] >= _ASK_AGAIN:
            try:
                count = sum(self._client.nthreads().values())
            except OSError as error:
                raise self._gone() from error
            self._counted = (now, count)
            if count:
                self._some_worker = now
            elif now - self._some_worker > _NO_WORKERS:
                raise InputError(
                    f"{self._where()} has had no worker for {_NO_WORKERS:.0f} s; start workers and run again."
                )
        return self._counted[1]

    def submit(self, group: Sequence[Trial], seconds: float) -> Any:
        """Start a group of trials on a free worker; see :func:`run_group`. Returns a handle for :meth:`wait`."""
        self.start()
        named = [(trial.function, trial.canonical, trial.seed) for trial in group]
        future = self._client.submit(run_group, named, seconds, key=f"epoch0-{uuid.uuid4().hex}", pure=False)
        future.add_done_callback(self._finished.put)
        return future

    def wait(self, seconds: float) -> Any:
        """The handle of a group that ended, or None when none does within that time."""
        try:
            return self._finished.get(timeout=seconds)
        except queue.Empty:
            return None

    def outcomes(self, handle: Any) -> list[Outcome] | Died:
        """What became of an ended group: one outcome for each trial that was reached, in order.

        A scheduler that went away, or workers that cannot run this package, are an InputError.
        """
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            outcomes: list[Outcome] = handle.result(timeout=_NO_WORKERS)
            return outcomes
        except KilledWorker as error:
            return Died(error.allowed_failures + 1)
        except (CancelledError, OSError) as error:
            raise self._gone() from error
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"the workers of {self.scheduler or 'the local engine'} cannot run this package: {error}; "
                "install the same version there."
            ) from error

    def close(self, now: bool = False) -> None:
        """Stop the processes started here, or leave the scheduler; with ``now`` running trials do not end first."""
        stack, client, cluster = self._open, self._client, self._cluster
        self._open = self._client = self._cluster = None
        self._counted = (-_ASK_AGAIN, 0)
        self._finished = queue.SimpleQueue()
        if stack is None:
            return
        if now and cluster is not None:
            cluster.sync(_kill_workers, list(cluster.workers.values()))
        elif now:
            client.cancel(list(client.futures), force=True)
        stack.close()

    def _where(self) -> str:
        return f"the scheduler at {self.scheduler}" if self.scheduler else "the local engine"

    def _gone(self) -> InputError:
        return InputError(f"{self._where()} went away; run again: what is finished is not run again.")

    def _connected(self) -> Any:
        """A client of the processes or of the scheduler."""
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port

        address = self._cluster if self.scheduler is None else self.scheduler
        try:
            if self.scheduler is not None:
                kind, place = parse_address(self.scheduler)
                if kind in ("tcp", "tls"):
                    parse_host_port(place)  # a client that finds no port sometimes waits without end instead
            return Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"no scheduler answers at {self.scheduler!r} ({error}); start one with 'dask scheduler' and give its "
                "address, such as tcp://host:8786."
            ) from error

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self.close(now=kind is not None)


def run_group(group: Sequence[tuple[str, str, int]], seconds: float) -> list[Outcome]:
    """Run trials (function, canonical spec, seed) one after another on a worker, until the time is up.

    At least one is run; the rest is left for another group.
    """
    outcomes: list[Outcome] = []
    begun = time.perf_counter()
    for function, canonical, seed in group:
        outcomes.append(_attempt(function, canonical, seed))
        if time.perf_counter() - begun >= seconds:
            break
    return outcomes


@contextmanager
def one_thread() -> Iterator[None]:
    """Everything inside computes with one BLAS thread: results and times do not depend on the machine's cores.

    Libraries loaded inside read it from the environment; torch, if it is loaded, is told directly. Both are put back by
    the last of the threads that are inside at the same time.
    """
    with _counting:
        if not _inside:
            _outside["environment"] = {name: os.environ.get(name) for name in _ONE_THREAD}
            os.environ.update(_ONE_THREAD)
        _inside.append(threading.get_ident())
        set_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
        if set_threads is not None:
            _outside.setdefault("threads", sys.modules["torch"].get_num_threads())
            set_threads(1)
    try:
        yield
    finally:
        with _counting:
            _inside.pop()
            if not _inside:
                _restore_environment(_outside.pop("environment"))
                if "threads" in _outside:
                    sys.modules["torch"].set_num_threads(_outside.pop("threads"))


def dask_setup(worker: Any) -> None:
    """Called by a new local worker process, before it has loaded torch.

    Ctrl-C is for the driver, which then closes the workers in order. Of shared accelerators each is left one.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    count = int(os.environ.get(_ACCELERATORS, "0"))
    if count:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
        os.environ["CUDA_VISIBLE_DEVICES"] = seen.split(",")[int(worker.name) % count]


def _attempt(function: str, canonical: str, seed: int) -> Outcome:
    begun = time.perf_counter()
    try:
        with one_thread():
            call = resolve(function)
            with one_thread():  # again, for torch may have been loaded just now
                result = encode(call(read_canonical(canonical), seed))
    except (Exception, SystemExit) as error:
        failure = Failure(f"{type(error).__name__}: {error}", traceback.format_exc(), isinstance(error, InputError))
        return Outcome(None, failure, time.perf_counter() - begun)
    return Outcome(result, None, time.perf_counter() - begun)


@contextmanager
def _local_cluster(workers: int | None, accelerators: int) -> Iterator[Any]:
    import dask
    from dask.system import CPU_COUNT
    from distributed import LocalCluster, Nanny

    class _Nanny(Nanny):  # type: ignore[misc]
        """Starts worker processes that neither run the user's script again nor leave marks in this process."""

        async def instantiate(self) -> Any:
            self.pre_spawn_env.update(_ONE_THREAD | heap_environment())
            with _as_it_was(self.pre_spawn_env):
                return await super().instantiate()

    with dask.config.set(_SETTINGS):
        try:
            cluster = LocalCluster(
                n_workers=workers or CPU_COUNT,
                threads_per_worker=1,
                worker_class=_Nanny,
                dashboard_address="127.0.0.1:0",  # dask opens a port in any case: any free one, on this machine only
                scheduler_kwargs={"dashboard": False},
                memory_limit=0,
                silence_logs=logging.CRITICAL,
                preload=[__name__],
                env={_ACCELERATORS: str(accelerators)},
            )
        except (RuntimeError, OSError) as error:
            raise InputError(f"{workers or CPU_COUNT} worker processes could not be started: {error}.") from error
        with cluster:
            yield cluster


_quiet = ExitStack()  # holds the levels that dask's loggers had before
_open_engines = 0


@contextmanager
def _silence() -> Iterator[None]:
    """Keep dask's log off the terminal while any engine is open: a run tells what its caller has to know."""
    global _open_engines
    from distributed.utils import silence_logging_cmgr

    if _open_engines == 0:
        _quiet.enter_context(silence_logging_cmgr(logging.CRITICAL))
    _open_engines += 1
    try:
        yield
    finally:
        _open_engines -= 1
        if _open_engines == 0:
            _quiet.close()


_starting = 0  # worker processes being started in this process at this moment; only the engine's event loop counts them
_before: dict[str, Any] = {}


@contextmanager
def _as_it_was(environment: Mapping[str, str]) -> Iterator[None]:
    """While worker processes start, hide the main script; afterwards put it and the environment back.

    A spawned process imports the main module anew, which runs a script that has no ``__main__`` guard from its top.
    Trials are named by their modules, so workers need no main module. The environment is set by dask, in this process,
    for libraries that read it when the worker loads them.
    """
    global _starting
    main = sys.modules["__main__"].__dict__
    if _starting == 0:
        _before["environment"] = {name: os.environ.get(name) for name in (*environment, _PARENT)}
        _before["main"] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
        main.pop("__file__", None)
        main["__spec__"] = None
    _starting += 1
    try:
        yield
    finally:
        _starting -= 1
        if _starting == 0:
            main.update(_before["main"])
            _restore_environment(_before["environment"])


def _restore_environment(before: Mapping[str, str | None]) -> None:
    """Put back environment variables; None means it was not set."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


async def _kill_workers(nannies: Sequence[Any]) -> None:
    """End worker processes in the middle of what they do."""
    for nanny in nannies:
        nanny.auto_restart = False
        if nanny.process is not None and nanny.process.process is not None:
            await nanny.process.process.kill()
