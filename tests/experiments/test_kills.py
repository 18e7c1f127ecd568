"""A kill at any instant, of any process, while they start too: the same bytes after the run is resumed.

What is killed and when is drawn from a seed, which the name of a failing test tells.
"""

import contextlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

TESTS = str(Path(__file__).parents[1])
DRIVER = f"""
import sys
sys.path.insert(0, {TESTS!r})
from epoch0.experiments.run import Trial, run
from epoch0.experiments.store import Store
print("up", flush=True)
trials = [Trial("trial_functions:draw", {{"size": 40, "pause": 0.04}}, seed) for seed in range(24)]
with Store(sys.argv[1]) as store:
    run(trials, store, **dict([("scheduler", sys.argv[2]) if sys.argv[2:] else ("workers", 2)]))
"""


def started(path, *scheduler):
    command = [sys.executable, "-c", DRIVER, str(path), *scheduler]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(driver):
    _, errors = driver.communicate(timeout=60)
    return driver.returncode, errors.decode()


def held(path):
    """Every row, every array file, and the names of all that lies beside them."""
    with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) as database:
        rows = sorted(database.execute("SELECT * FROM results"))
    database.close()
    files = {each.name: each.read_bytes() for each in (path.parent / f"{path.name}.arrays").iterdir()}
    return rows, files, sorted(each.name for each in path.parent.iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a run without a kill leaves, and how long it takes."""
    path = tmp_path_factory.mktemp("whole") / "r.sqlite"
    driver = started(path)
    assert driver.stdout is not None and driver.stdout.readline() == b"up\n"
    begun = time.monotonic()
    assert finished(driver) == (0, "")
    took = time.monotonic() - begun
    rows, files, names = held(path)
    assert len(rows) == len(files) == 24 and names == ["r.sqlite", "r.sqlite.arrays"]
    return (rows, files, names), took


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 100))])
def test_a_kill_changes_nothing(undisturbed, tmp_path, seed):
    whole, took = undisturbed
    drawn = random.Random(seed)
    path = tmp_path / "r.sqlite"
    driver = started(path)
    assert driver.stdout is not None and driver.stdout.readline() == b"up\n"
    time.sleep(drawn.uniform(0, took))
    workers = psutil.Process(driver.pid).children() if driver.poll() is None else []
    victim = drawn.choice([driver, *workers])
    victim.kill()
    code, errors = finished(driver)
    assert errors == "" and (code == 0 or victim is driver)
    for worker in workers:
        worker.wait(10)
    if code != 0:
        assert finished(started(path)) == (0, "")
    assert held(path) == whole


class Cluster:
    """A scheduler and two workers, each under its nanny, as their owner starts them in a shell."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.parts = {}
        self.begun = []

    def start(self):
        """Whatever of it does not run."""
        there = ["--host", "127.0.0.1", "--no-dashboard"]
        workers = ["worker", self.address, *there, "--nthreads", "1", "--death-timeout", "60"]
        wanted = {"scheduler": ["scheduler", *there, "--port", str(self.port)], "one": workers, "two": workers}
        for name, command in wanted.items():
            if name not in self.parts or self.parts[name].poll() is not None:
                self.parts[name] = subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli.dask_" + command[0], *command[1:]],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, *sys.path])},
                )  # fmt: skip
                self.begun.append(self.parts[name])

    def kill(self, name, drawn):
        """Scheduler, nanny, or the worker below it, if it has come so far."""
        part = self.parts["scheduler" if name == "scheduler" else drawn.choice(["one", "two"])]
        below = psutil.Process(part.pid).children() if name == "worker" and part.poll() is None else []
        drawn.choice(below or [part]).kill()

    def close(self):
        for part in self.begun:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
            part.wait()


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(2, 50)))])
def test_a_kill_around_a_scheduler_changes_nothing(undisturbed, tmp_path, cluster, seed):
    """The owner starts again what was killed, and calls again if the run says so."""
    drawn, path = random.Random(seed), tmp_path / "r.sqlite"
    cluster.start()
    driver = started(path, cluster.address)
    time.sleep(drawn.uniform(0, 4))  # all of it takes about so long, from nothing to the last result
    victim = ("scheduler", "worker", "nanny", "driver")[seed % 4]
    if victim == "driver":
        driver.kill()
    else:
        cluster.kill(victim, drawn)
    for _ in range(3):
        time.sleep(0.2)
        cluster.start()
        _, errors = driver.communicate(timeout=120)
        if driver.returncode == 0:
            break
        assert victim == "driver" or "InputError: " in errors.decode(), errors.decode()
        driver = started(path, cluster.address)
    assert held(path) == undisturbed[0]
