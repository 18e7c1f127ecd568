"""Memory that freed tensors leave behind in malloc goes back to the system."""

import sys

import pytest
import torch

from epoch0.prune import _memory


def resident() -> float:
    """Memory of this process in MB."""
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) * 1.024e-3 for line in file if line.startswith("VmRSS:"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_holes_go_back() -> None:
    if _memory._trim() is None:
        pytest.skip("malloc is not that of glibc")
    tensors = [torch.ones(16_000) for _ in range(2_000)]  # 64 kB each, below the size that malloc maps on its own
    del tensors[1::2]
    before = resident()
    _memory.give_back()
    assert before - resident() > 40  # of 64 MB between those that stay
    assert all(float(tensor.sum()) == 16_000 for tensor in tensors)


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    _memory._trim.cache_clear()
    try:
        assert _memory._trim() is None
        _memory.give_back()
    finally:
        _memory._trim.cache_clear()
