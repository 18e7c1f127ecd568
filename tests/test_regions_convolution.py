"""Convolutions in blocks against torch's own."""

import pytest
import torch
from torch.nn import functional

from epoch0.regions._convolution import convolution


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "kernel", "padding"),
    [(3, 4, (32, 32), (3, 3), (1, 1)), (4, 5, (27, 30), (3, 1), (0, 2)), (1, 16, (29, 26), (4, 2), (2, 0)),
     (2, 3, (8, 8), (3, 3), (1, 1)), (20, 3, (32, 32), (3, 3), (1, 1)), (2, 2, (40, 40), (7, 7), (3, 3))],
)  # fmt: skip
def test_blocks_are_the_convolution(channels, outputs, size, kernel, padding) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(5, channels, *size, generator=source, dtype=torch.float64)
    weight = torch.randn(outputs, channels, *kernel, generator=source, dtype=torch.float64)
    for bias in (torch.randn(outputs, generator=source, dtype=torch.float64), None):
        expected = functional.conv2d(x, weight, bias, padding=padding)
        assert torch.allclose(convolution(x, weight, bias, padding), expected, rtol=1e-12, atol=1e-12)
