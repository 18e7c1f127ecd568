"""Settings every test shares: reproducible examples, one thread, types checked on every call where asked."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

import typecheck

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


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
