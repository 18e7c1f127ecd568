"""Settings every test shares: reproducible examples, one thread, types checked on every call where asked."""

import gc
import os
import queue
import signal
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import typecheck

# What is imported and collected stays to the end: the garbage collector would walk through all of it again and again.
gc.disable()

if os.environ.get("EPOCH0_TYPES"):
    typecheck.install()

# derandomize: the same examples on every run, so that a red test is red for everybody
for _name, _examples in {"quick": 15, "thorough": 50}.items():
    settings.register_profile(
        _name, derandomize=True, deadline=None, max_examples=_examples, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("EPOCH0_EXAMPLES", "quick"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m "not slow" is obeyed
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            cases.setdefault((item.path, item.nodeid.split("[")[0]), []).append(item)
    for of_one in cases.values():
        few = min(of_one[0].get_closest_marker("sample").args[0], len(of_one))
        kept = {len(of_one) * (2 * number + 1) // (2 * few) for number in range(few)}
        for number, item in enumerate(of_one):
            if number not in kept:
                item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.name != "test_readme.py")  # the longest test: it would be alone at the end


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch  # not by the process that hands out the tests

    torch.set_num_threads(1)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a scheduler computes in this process: nothing has to start."""
    from epoch0.experiments import engine

    def submit(self: engine._Processes, named: engine.Named) -> "Future[engine.Outcome]":
        future: Future[engine.Outcome] = Future()
        future.set_result(engine.attempt(*named))
        self.finished.put(future)
        return future

    def no_processes(self: engine._Processes, workers: int | None, accelerators: int) -> None:
        self.finished = queue.SimpleQueue()

    monkeypatch.setattr(engine._Processes, "__init__", no_processes)
    monkeypatch.setattr(engine._Processes, "slots", lambda self: 1)
    monkeypatch.setattr(engine._Processes, "submit", submit)
    monkeypatch.setattr(engine._Processes, "close", lambda self, now: None)
