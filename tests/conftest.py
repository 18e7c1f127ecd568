"""Settings every test shares: reproducible examples, one thread, types checked on every call where asked."""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
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
    """A run without a scheduler has one worker, a thread of this process: it starts in no time."""
    import dask
    from distributed import LocalCluster

    from epoch0.experiments import engine

    @contextmanager
    def cluster(workers: int | None, accelerators: int) -> Iterator[LocalCluster]:
        # any free port: the one that dask takes by itself may be another process's
        quiet = {"dashboard_address": "127.0.0.1:0", "memory_limit": 0, "silence_logs": logging.CRITICAL}
        with (
            dask.config.set(engine._SETTINGS),
            LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet) as made,
        ):
            yield made

    monkeypatch.setattr(engine, "_local_cluster", cluster)
