"""Where trials run: processes of one BLAS thread each, on this machine or behind a scheduler (dask.distributed).

A worker process here is the other end of a socket pair, which has no address: no other user can give it work.
"""

import gc
import logging
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

from epoch0.arguments import Count, checked
from epoch0.errors import InputError, reworded
from epoch0.experiments.encoding import Encoded, encode
from epoch0.experiments.experiment import read_canonical, resolve

# memory that a step frees stays with the process for the next one (docs/experiments); glibc reads these as it starts
_FREED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 29)}
_LIMITS = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM")
_ONE_THREAD = {f"{limit}_THREADS": "1" for limit in _LIMITS}
_WORKER = "import sys; sys.path[:] = sys.argv[2:]; from epoch0.experiments.engine import serve; serve(int(sys.argv[1]))"
_STARTS = 5  # times a worker process may end before it is ready
_ASK_AGAIN = 0.5  # seconds a count of workers stays good
_PATIENCE = 10.0  # seconds for a scheduler to answer
_NO_WORKERS = 60.0  # seconds without a single worker after which a run on a scheduler gives up

Named = tuple[str, str, int]  #: a trial on its way to a worker: function, canonical spec, seed


class Failure(NamedTuple):
    """What went wrong inside a trial, in words that survive the way back from a worker."""

    cause: str
    traceback: str
    bad_input: bool


class Died(NamedTuple):
    """A worker died while it ran a trial, ``times`` times (a remote scheduler may have tried again by itself)."""

    times: int
    status: int | None = None  #: exit status of the process, -9 for signal 9; None behind a scheduler


Outcome = Encoded | Failure | Died  #: the outcome of a trial


@checked
class Engine:
    """Worker processes, started when first needed, good for several runs.

    Args:
        workers: processes on this machine; default one per CPU.
        scheduler: address of a running scheduler, such as ``"tcp://host:8786"``, instead of processes here. Its
            workers need this package at the same version.
        accelerators: how many accelerators the processes here share: each sees one of them only, in turn.
    """

    def __init__(self, *, workers: Count | None = None, scheduler: str | None = None, accelerators: int = 0) -> None:
        if workers is not None and scheduler is not None:
            raise InputError(f"workers={workers} and scheduler={scheduler!r}: a scheduler has workers; give one.")
        self.workers, self.scheduler, self.accelerators = workers, scheduler, accelerators
        self._pool: _Processes | _Scheduler | None = None

    def start(self) -> "_Processes | _Scheduler":
        """Start the processes or reach the scheduler; does nothing when that is done already."""
        if self._pool is None and self.scheduler is not None:
            self._pool = _Scheduler(self.scheduler)
        self._pool = self._pool or _Processes(self.workers, self.accelerators)
        return self._pool

    def close(self, now: bool = False) -> None:
        """Stop the processes started here, or leave the scheduler; with ``now`` running trials do not end first."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(now)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self.close(now=kind is not None)


class _Processes:
    """Worker processes of this machine: a thread for each starts it, talks to it, and starts another when it died."""

    def __init__(self, workers: int | None, accelerators: int) -> None:
        self.finished: queue.SimpleQueue[Future[Outcome]] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[tuple[Named, Future[Outcome]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of the two that follow
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._trouble: InputError | None = None
        own = {**_FREED, **os.environ, **_ONE_THREAD}
        seen = (own.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(accelerators)))).split(",")
        self._threads = []
        for number in range(workers or cores()):
            chosen = {"CUDA_VISIBLE_DEVICES": seen[number % accelerators]} if accelerators else {}
            self._threads.append(threading.Thread(target=self._serve, args=({**own, **chosen},), daemon=True))
            self._threads[-1].start()

    def slots(self) -> int:
        """The number of trials to hand out, one in advance for each process; InputError if none can be started."""
        if self._trouble is not None:
            raise self._trouble
        return 2 * len(self._threads)

    def submit(self, named: Named) -> Future[Outcome]:
        """Start a trial on the next free worker; its handle is put into ``finished`` when it ends."""
        future: Future[Outcome] = Future()
        future.add_done_callback(self.finished.put)
        self._waiting.put((named, future))
        return future

    def outcome(self, handle: Future[Outcome]) -> Outcome:
        return handle.result()

    def close(self, now: bool) -> None:
        with self._lock:
            self._closed = now
            for process in self._running if now else ():
                process.kill()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, environment: dict[str, str]) -> None:
        process = None
        try:
            while True:
                if process is None:
                    process, stream = self._started(environment)
                if (next_one := self._waiting.get()) is None:
                    break
                named, future = next_one
                try:
                    stream.send(named)
                    answer = stream.recv()
                except Exception:  # unpickling what a broken process says can raise anything
                    answer = Died(1, self._ended(process, stream))
                    process = None
                future.set_result(answer)
        except (OSError, InputError) as error:
            self._trouble = InputError(f"worker processes could not be started: {str(error).removesuffix('.')}.")
        if process is not None:
            self._ended(process, stream)

    def _started(self, environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], Connection]:
        """A process that is ready, and the way to it. One that was killed on the way is started again."""
        for _ in range(_STARTS):
            stream, theirs = Pipe()
            with theirs, self._lock:
                if self._closed:
                    raise InputError("the engine was closed")
                # -P: nothing is imported from the folder one is in; a session of its own: Ctrl-C is for the driver
                command = [sys.executable, "-P", "-c", _WORKER, str(theirs.fileno()), *sys.path]
                settings = dict[str, Any](env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
                process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **settings)
                self._running.add(process)
            try:
                stream.recv()
                return process, stream
            except Exception:
                status = self._ended(process, stream)
        raise InputError(f"{_STARTS} ended before they were ready, the last with {exit_status(status)}")

    def _ended(self, process: subprocess.Popen[bytes], stream: Connection) -> int:
        """The exit status of a process that is dead or has no more work."""
        stream.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what its trials have started
        with self._lock:
            self._running.discard(process)
        return process.wait()


class _Scheduler:
    def __init__(self, address: str) -> None:
        self.address = address
        self.finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._counted = (-_ASK_AGAIN, 0)
        from distributed import Client
        from distributed.utils import silence_logging_cmgr

        with ExitStack() as stack:
            stack.enter_context(silence_logging_cmgr(logging.CRITICAL))  # a run reports what its caller needs
            gc.collect()  # a client that found nobody, finalized while this one starts, would wait for a lock of both
            hint = "start one with 'dask scheduler' and give its address, such as tcp://host:8786"
            with reworded(lambda error: InputError(f"no scheduler answers at {address!r} ({error}); {hint}.")):
                self._client = stack.enter_context(Client(address, timeout=_PATIENCE, set_as_default=False))
            self._open = stack.pop_all()
        self._some_worker = time.monotonic()

    def slots(self) -> int:
        """The number of threads of the workers."""
        if (now := time.monotonic()) - self._counted[0] >= _ASK_AGAIN:
            try:
                count = sum(self._client.sync(self._client.scheduler.ncores, callback_timeout=_NO_WORKERS).values())
            except OSError as error:
                raise self._gone() from error
            self._counted = (now, count)
            if count:
                self._some_worker = now
            elif now - self._some_worker > _NO_WORKERS:
                raise InputError(f"{self.address} had no worker for {_NO_WORKERS:.0f} s; start workers and run again.")
        return self._counted[1]

    def submit(self, named: Named) -> Any:
        future = self._client.submit(attempt, *named, key=f"epoch0-{uuid.uuid4().hex}", pure=False)
        future.add_done_callback(self.finished.put)
        return future

    def outcome(self, handle: Any) -> Outcome:
        from distributed import KilledWorker

        try:
            outcome: Outcome = handle.result(timeout=_NO_WORKERS)
            return outcome
        except KilledWorker as error:
            return Died(error.allowed_failures + 1)
        except (CancelledError, OSError) as error:
            raise self._gone() from error
        except (ImportError, AttributeError) as error:
            raise InputError(f"workers of {self.address} cannot run epoch0: {error}; install it there.") from error

    def close(self, now: bool) -> None:
        if now:
            self._client.cancel(list(self._client.futures), force=True)
        self._open.close()

    def _gone(self) -> InputError:
        return InputError(f"the scheduler at {self.address} went away; run again: what is finished is not run again.")


def serve(number: int) -> None:
    """The main loop of a worker process, until the driver is gone; ``number`` is the file descriptor of its socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(number, False)
    os.register_at_fork(after_in_child=lambda: os.close(number))  # a trial's own processes do not keep it open
    stream, asked = Connection(number), queue.SimpleQueue[Named]()
    # when the driver is gone, and either thread may be the first to see it: whatever a trial is doing, or has started
    end = partial(os.killpg, 0, signal.SIGKILL)

    def hear() -> None:
        try:
            while True:
                asked.put(stream.recv())
        finally:
            end()

    threading.Thread(target=hear, daemon=True).start()
    try:
        stream.send("ready")
        while True:
            answer = attempt(*asked.get())
            with suppress(Exception):  # a trial may have closed it
                sys.stdout.flush()
            stream.send(answer)
    except ConnectionError:
        end()


def cores() -> int:
    """How many CPUs this process may use: those of its affinity, at most the quota of its container rounded up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file, or no limit
        group = Path("/proc/self/cgroup").read_text().strip().split(":")[-1].lstrip("/")
        quota, period = map(int, Path("/sys/fs/cgroup", group, "cpu.max").read_text().split())
        count = min(count, math.ceil(quota / period))
    return count


def exit_status(status: int) -> str:
    """How a process ended, in words: exit status -9 (SIGKILL)."""
    known = {-number.value: f" ({number.name})" for number in signal.Signals}
    return f"exit status {status}{known.get(status, '')}"


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes inside with one thread, as on a worker: results and times do not depend on the machine's cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def attempt(function: str, canonical: str, seed: int) -> Encoded | Failure:
    """Run a trial on a worker, whose process computes with one BLAS thread from then on, whoever started it."""
    os.environ.update(_ONE_THREAD)
    try:
        call = resolve(function)
        torch: Any = sys.modules.get("torch")
        if hasattr(torch, "set_num_threads"):  # another thread may be loading it just now
            torch.set_num_threads(1)
        return encode(call(read_canonical(canonical), seed))
    except BaseException as error:
        try:
            cause = f"{type(error).__name__}: {error}"
        except Exception:
            cause = f"{type(error).__name__}, which cannot be shown"
        return Failure(cause, traceback.format_exc(), isinstance(error, InputError))
