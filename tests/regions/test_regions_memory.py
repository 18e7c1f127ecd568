"""Work split along lines and into strips of a plane: the joined result is the unsplit one, seams included."""

import numpy as np
import pytest
import torch

from epoch0 import regions
from epoch0.errors import InputError
from region_twins import networks, recipe

NETWORKS = networks()
SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["segment", "line"])
def test_split_lines_are_the_same(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = NETWORKS[name]
    x0, x1 = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    whole = regions.on_line(model, x0, x1, kind=kind)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 125)  # bytes: a break point or two at a time
    split = regions.on_line(model, x0, x1, kind=kind)
    assert whole.counts.tolist() == split.counts.tolist()
    for one, other in zip(whole, split, strict=True):
        assert np.allclose(one.breakpoints, other.breakpoints, rtol=1e-12, atol=1e-12)
        assert one.owner == other.owner and one.per_layer == other.per_layer
        assert other.certificate.holds and one.certificate.zeros == other.certificate.zeros


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_split_planes_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = NETWORKS[name]
    centre, u, v = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    window = regions.square(0.3 * centre, u, v, 4.0)
    whole = regions.on_plane(model, window)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 20_000)  # bytes: a few vertices at a time
    split = regions.on_plane(model, window)
    same_plane(whole, split)
    assert regions.count(model, window) == whole.count


def same_plane(whole: regions.PlanePartition, split: regions.PlanePartition) -> None:
    assert split.count == whole.count and split.per_layer == whole.per_layer
    assert len(split.vertices) == len(whole.vertices) and len(split.edges) == len(whole.edges)
    assert split.certificate.holds and split.verify().holds
    assert np.allclose(np.sort(split.areas), np.sort(whole.areas), rtol=1e-9, atol=1e-15)
    assert (np.bincount(split.cell_edges >> 1) == np.where(split.owner_layer < 0, 1, 2)).all()

    def described(p: regions.PlanePartition) -> np.ndarray:
        """Edges by where they are and who owns them, in an order of their own."""
        ends = np.sort(np.round(p.vertices[p.edges], 9), axis=1).reshape(len(p.edges), -1)
        rows = np.column_stack([p.owner_layer, p.owner_neuron, p.owner_face, ends + 0.0])
        return rows[np.lexsort(rows.T[::-1])]

    assert np.allclose(described(whole), described(split), atol=1e-8)


def test_zero_biases_split_at_the_apex(monkeypatch: pytest.MonkeyPatch) -> None:
    net, window = recipe([2, 64, 64, 64, 1], 0.0), SQUARE + torch.tensor([0.3, 0.2], dtype=torch.float64)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 20_000)
    p = regions.on_plane(net, window)
    assert p.count == 346 and p.verify().holds


def test_a_reference_count_in_many_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recipe([2, 64, 64, 64, 1], 0.1)
    monkeypatch.setattr("epoch0.regions.walk.BLOCK", 300_000)
    p = regions.on_plane(net, SQUARE)
    assert p.count == 14353 == regions.count(net, SQUARE) and p.certificate.holds
    assert len(p.vertices) == 14533 and len(p.edges) == 28885


def test_too_many_cells_for_the_memory_are_refused() -> None:
    net = recipe([2, 64, 64, 64, 1], 0.1)
    with pytest.raises(InputError, match=r"cells were reached at layer '5'.*smaller window") as error:
        regions.on_plane(net, SQUARE, memory=1e6)
    assert "memory=1e+06" in str(error.value)
    for memory in (0, -1.0, float("nan"), True):
        with pytest.raises(InputError, match="memory"):
            regions.on_plane(net, SQUARE, memory=memory)
        with pytest.raises(InputError, match="memory"):
            regions.on_line(net, torch.zeros(2), torch.ones(2), memory=memory)


def test_too_many_break_points_for_the_memory_are_refused() -> None:
    net = recipe([3, 64, 64, 64, 1], 0.3)
    x0, x1 = torch.randn(2, 20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    count = regions.on_line(net, x0, x1).count
    with pytest.raises(InputError, match=r"regions were reached at layer '[135]'.*memory=2e\+05") as error:
        regions.on_line(net, x0, x1, memory=2e5)
    assert "fewer or shorter lines" in str(error.value)
    assert 20 < int(str(error.value).split()[0]) <= count
    with pytest.raises(InputError, match=r"at layer '1' the values at three points.*Give at least"):
        regions.on_line(net, x0, x1, memory=1e3)
    with pytest.raises(InputError, match=r"regions were reached"):
        regions.count(net, (x0, x1), memory=1e5)
