"""Networks made by hand: the sawtooth and the folding network have exactly as many regions as they should."""

import numpy as np
import pytest
import torch
from torch import nn

from epoch0 import regions
from epoch0.errors import InputError
from epoch0.networks import folding, sawtooth
from epoch0.theory.regions import arrangement_regions, upper_bound

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sawtooth_is_a_tent_again_and_again(dtype: torch.dtype) -> None:
    x = torch.arange(0, 1025, dtype=dtype) / 1024
    tent = x
    for depth in range(1, 9):
        tent = 1 - (2 * tent - 1).abs()
        assert torch.equal(sawtooth(depth, dtype=dtype)(x[:, None])[:, 0], tent)


@pytest.mark.parametrize("depth", [1, 2, 5, 10])
def test_sawtooth_has_two_to_the_depth_pieces(depth: int) -> None:
    line = regions.on_line(sawtooth(depth), torch.zeros(1), torch.ones(1))
    assert line.count == line.linear_count == 2**depth
    assert np.array_equal(line.breakpoints, np.arange(1, 2**depth) / 2**depth)
    assert line.neurons == 2 * depth


@pytest.mark.parametrize("folds", [[3], [2, 3], [3, 5, 2], [1, 4]])
def test_folding_of_an_interval(folds: list[int]) -> None:
    line = regions.on_line(folding(1, folds), torch.zeros(1), torch.ones(1))
    pieces = int(np.prod(folds))
    assert line.count == line.linear_count == pieces
    assert line.breakpoints == pytest.approx(np.arange(1, pieces) / pieces, abs=1e-12)


def test_folding_maps_the_cube_onto_itself() -> None:
    x = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out = folding(3, [3, 2], dtype=torch.float64)(x).detach()
    assert out.shape == (2000, 3) and float(out.min()) >= 0 and float(out.max()) <= 1 + 1e-12
    assert torch.allclose(out[:, :1], folding(1, [3, 2], dtype=torch.float64)(x[:, :1]), atol=1e-12)
    zigzag = 1 - ((6 * x / 2) % 1 * 2 - 1).abs()  # 6 pieces a side
    assert torch.allclose(out, zigzag, atol=1e-12)


def planes(count: int) -> nn.Sequential:
    """A layer whose planes all cross each other in general position next to the middle of the square."""
    angle = torch.arange(count, dtype=torch.float64) * (3.0 / max(count, 1)) + 0.1
    layer = nn.Linear(2, count, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([angle.cos(), angle.sin()], 1))
        layer.bias.copy_(0.02 * torch.arange(1, count + 1) ** 1.5 - 0.5 * layer.weight.sum(1))
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(count, 1, dtype=torch.float64))


@pytest.mark.parametrize(("folds", "last"), [([3], 0), ([2, 2], 0), ([3], 4), ([2, 2], 3), ([2], 1)])
def test_folding_of_a_square(folds: list[int], last: int) -> None:
    net = folding(2, folds, dtype=torch.float64)
    if last:  # every copy of the square is cut by all planes of one more layer
        net = nn.Sequential(net, planes(last))
    expected = int(np.prod(folds)) ** 2 * arrangement_regions(last, 2)
    plane = regions.on_plane(net, SQUARE)
    assert plane.count == expected == regions.count(net, SQUARE)
    assert plane.linear_count <= expected
    if not last:
        assert plane.linear_count == expected
    widths = [2 * p for p in folds] + ([last] if last else [])
    assert expected <= upper_bound(widths, 2, faces=1)


def test_bad_input() -> None:
    for wrong in (0, -1, True):
        with pytest.raises(InputError, match="depth"):
            sawtooth(wrong)
    with pytest.raises(InputError, match=r"folds=\[\]"):
        folding(2, [])
    with pytest.raises(InputError, match="folds"):
        folding(2, [2, 0])
    with pytest.raises(InputError, match="inputs=0"):
        folding(0, [2])
    with pytest.raises(InputError, match="float16"):
        folding(1, [2], dtype=torch.float16)
