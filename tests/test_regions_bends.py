"""New points carried through a fold and the matrix product after it: the same as by multiplying."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0 import regions
from epoch0.regions import _ahead, _walk
from epoch0.regions._rebuild import cycles
from region_twins import recipe

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)


def multiplied(step, following, cut, before: torch.Tensor, others: list[torch.Tensor], folds: list) -> torch.Tensor:
    """All rows folded and multiplied, the new ones as combinations of the old."""
    faces = torch.tensor(step.faces, dtype=torch.float64)
    rows = torch.cat([before, cut.rows(before, faces, before[0].numel())])
    others = [torch.cat([other, cut.rows(other)]) for other in others]
    others = [one if fold is None else fold.run(one) for one, fold in zip(others, folds, strict=True)]
    return following.run(step.run(rows), *others)


def compared(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Relative distances between rows carried ahead and rows multiplied, one for each time that happens."""
    distances = []

    def both(step, following, cut, before, others, folds):
        ahead = _ahead.carried(step, following, cut, before, others, folds)
        if ahead is not None:
            expected = multiplied(step, following, cut, before, others, folds)
            assert ahead.shape == expected.shape
            distances.append(float((ahead - expected).abs().max() / expected.abs().max()))
        return ahead

    monkeypatch.setattr(_walk, "carried", both)
    monkeypatch.setattr(_ahead, "_WORTH", 0.01)  # however many bends there are
    return distances


ACTIVATIONS = [nn.ReLU(), nn.Hardtanh(), nn.LeakyReLU(0.3), nn.ReLU6(), nn.PReLU(24)]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_carried_ahead_is_multiplied(activation: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    distances = compared(monkeypatch)
    net = recipe([2, 24, 24, 24, 2], 0.3)
    if isinstance(activation, nn.PReLU):
        nn.init.uniform_(activation.weight, -0.5, 0.5)
    net = nn.Sequential(*(activation if isinstance(layer, nn.ReLU) else layer for layer in net)).double()
    p = regions.on_plane(net, 3 * SQUARE)
    assert p.certificate.holds and len(distances) >= 1
    assert max(distances) < 1e-13


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_points_of_lines_carried_ahead_are_multiplied(activation: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    net = recipe([6, 24, 24, 24, 2], 0.3)
    if isinstance(activation, nn.PReLU):
        nn.init.uniform_(activation.weight, -0.5, 0.5)
    net = nn.Sequential(*(activation if isinstance(layer, nn.ReLU) else layer for layer in net)).double()
    x0, x1 = 2 * torch.randn(2, 12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    distances = compared(monkeypatch)
    ahead = regions.on_line(net, x0, x1)
    assert len(distances) >= 1 and max(distances) < 1e-13
    monkeypatch.setattr(_walk, "carried", lambda *_: None)
    plain = regions.on_line(net, x0, x1)
    for one, other in zip(ahead, plain, strict=True):
        assert one.owner == other.owner and one.certificate.holds
        assert np.allclose(one.breakpoints, other.breakpoints, rtol=0, atol=1e-12)


def test_folds_that_several_steps_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a residual network the folded rows are needed once more, by the sum."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second, self.third = nn.Linear(2, 10), nn.Linear(10, 10), nn.Linear(10, 10)
            self.relu, self.last = nn.ReLU(), nn.Linear(10, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.relu(self.first(x))
            h = self.relu(h + self.second(h))
            return self.last(self.relu(h + self.third(h)))

    distances = compared(monkeypatch)
    net = Residual().double()
    p = regions.on_plane(net, 4 * SQUARE)
    assert len(distances) == 2 and max(distances) < 1e-13 and p.verify().holds
    monkeypatch.setattr(_walk, "carried", lambda *_: None)
    assert regions.on_plane(net, 4 * SQUARE).per_layer == p.per_layer


@settings(max_examples=15)
@given(widths=st.lists(st.integers(2, 12), min_size=2, max_size=3), seed=st.integers(0, 999))
def test_with_and_without_are_one_partition(widths: list[int], seed: int) -> None:
    net = recipe([2, *widths, 1], 0.3, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ahead, "_WORTH", 0.01)
        p = regions.on_plane(net, 2 * SQUARE)
        patch.setattr(_walk, "carried", lambda *_: None)
        slow = regions.on_plane(net, 2 * SQUARE)
    assert p.per_layer == slow.per_layer and p.edges.shape == slow.edges.shape
    assert np.allclose(np.sort(p.areas), np.sort(slow.areas), rtol=1e-9, atol=1e-13)
    assert np.allclose(p.vertices, slow.vertices, atol=1e-11) and (p.edges == slow.edges).all()


def test_convolutions_are_carried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    distances = compared(monkeypatch)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(),
                        nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 2)).double().eval()  # fmt: skip
    a, b, c = torch.randn(3, 1, 6, 6, dtype=torch.float64)
    p = regions.on_plane(net, regions.through(a, b, c))
    assert len(distances) == 1 and max(distances) < 1e-13 and p.verify().holds  # flattening stands before the last


def test_cycles_with_and_without_heads() -> None:
    source = np.random.default_rng(0)
    following = source.permutation(200)
    elements, ends = cycles(following)
    heads = elements[ends[:-1]]
    assert sorted(elements) == list(range(200))
    for start, stop in itertools.pairwise(ends):
        assert (following[elements[start:stop]] == np.roll(elements[start:stop], -1)).all()
    for known in (heads, heads[::-1], heads[:-1], np.append(heads, following[heads[0]])):  # the last two are wrong
        again, others = cycles(following, known)
        assert sorted(again) == list(range(200)) and len(others) == len(ends)
