"""Settings every test shares: reproducible examples, one thread, type checks on every call."""

import pytest
import torch
from hypothesis import HealthCheck, settings

# derandomize: the same examples on every run, so that a red test is red for everybody
settings.register_profile(
    "epoch0", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("epoch0")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
