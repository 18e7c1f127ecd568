"""Strips of a plane by several threads: to the last bit the partition of one; and what is said on the way."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0 import regions
from epoch0.errors import InputError
from region_twins import networks, recipe

NETWORKS = networks()
SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)


def same_bits(one: regions.PlanePartition, other: regions.PlanePartition) -> bool:
    """Whether two partitions are equal in every number."""
    names = ("vertices", "edges", "owner_layer", "owner_neuron", "owner_face", "cell_ends", "cell_edges")
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return same and one.per_layer == other.per_layer and one.certificate == other.certificate


@pytest.mark.slow
@settings(max_examples=4)
@given(name=st.sampled_from(sorted(NETWORKS)), seed=st.integers(0, 99), block=st.sampled_from([8_000, 40_000]))
def test_threads_change_nothing(name: str, seed: int, block: int) -> None:
    model, shape = NETWORKS[name]
    centre, u, v = torch.randn(3, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    window = regions.square(0.3 * centre, u, v, 3.0)
    whole = regions.on_plane(model, window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("epoch0.regions.walk.BLOCK", block)
        alone, together = (regions.on_plane(model, window, workers=workers) for workers in (1, 3))
        assert same_bits(alone, together) and together.certificate.holds
        assert regions.count(model, window, workers=2) == whole.count
    assert together.per_layer == whole.per_layer and len(together.edges) == len(whole.edges)
    assert np.allclose(np.sort(together.areas), np.sort(whole.areas), rtol=1e-9, atol=1e-13)


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recipe([2, 32, 32, 32, 1], 0.1)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 50_000)
    for run in (regions.on_plane, regions.count):
        told: list[tuple[float, str]] = []
        run(net, SQUARE, workers=2, progress=lambda done, what: told.append((done, what)))  # noqa: B023
        done = [part for part, _ in told]
        assert done == sorted(done) and done[-1] == 1.0 and len(told) > 10
        assert "layer" in told[5][1] and "cells" in told[-1][1]


@pytest.mark.slow
def test_a_failing_strip_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recipe([2, 48, 48, 48, 1], 0.1)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 50_000)
    with pytest.raises(InputError, match=r"cells were reached at layer"):
        regions.on_plane(net, SQUARE, memory=1e6, workers=2)
    for workers in (0, -1, True):
        with pytest.raises(InputError, match="workers"):
            regions.on_plane(net, SQUARE, workers=workers)
    assert isinstance(net[0], nn.Linear) and regions.on_plane(net, SQUARE, workers=2).certificate.holds
