"""A kill at any instant, of the driver or of a worker, while they start too: the same bytes after the run is resumed.

What is killed and when is drawn from a seed, which the name of a failing test tells.
"""

import random
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
    run(trials, store, workers=2)
"""


def started(path):
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


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


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 100))])
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
