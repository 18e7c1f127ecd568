"""Convolutions of a few points at a time against those of all at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0.regions._convolution import convolution, few_at_a_time, shifted


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, groups=2), nn.Conv1d(2, 3, 3),
     nn.Conv2d(2, 3, 5, padding_mode="circular", padding=2), nn.Conv2d(2, 3, 3, padding="same")],
    ids=str,
)  # fmt: skip
def test_a_few_points_at_a_time_are_all_points(layer: nn.Module) -> None:
    layer = layer.double()
    points = {"Conv1d": 4000}.get(type(layer).__name__, 150)
    shape = (64,) if isinstance(layer, nn.Conv1d) else (32, 32)
    x = torch.randn(points, layer.in_channels, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    some = few_at_a_time(layer._conv_forward, layer.weight[0, 0].numel())
    quick = convolution(layer)
    with torch.no_grad():
        assert torch.allclose(some(x, layer.weight, layer.bias), layer(x), rtol=1e-12, atol=1e-12)
        assert torch.equal(some(x[:1], layer.weight, layer.bias), layer(x[:1]))
        assert torch.allclose(quick(x, layer.weight, layer.bias), layer(x), rtol=1e-12, atol=1e-12)


@settings(max_examples=60)
@given(
    channels=st.integers(1, 4), out=st.integers(1, 5), size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)), stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)), dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    bias=st.booleans(), points=st.integers(1, 4),
)  # fmt: skip
def test_every_geometry(channels, out, size, kernel, stride, padding, dilation, bias, points) -> None:
    if any(n + 2 * p <= d * (k - 1) for n, p, d, k in zip(size, padding, dilation, kernel, strict=True)):
        return  # the kernel does not fit
    source = torch.Generator().manual_seed(0)
    x = torch.randn(points, channels, *size, generator=source, dtype=torch.float64)
    weight = torch.randn(out, channels, *kernel, generator=source, dtype=torch.float64)
    shift = torch.randn(out, generator=source, dtype=torch.float64) if bias else None
    expected = nn.functional.conv2d(x, weight, shift, stride, padding, dilation)
    assert torch.allclose(shifted(x, weight, shift, stride, padding, dilation), expected, rtol=1e-12, atol=1e-12)


def test_blocks_of_points_and_gradients() -> None:
    layer = nn.Conv2d(3, 4, 3, 2, 1).double()
    x = torch.randn(200, 3, 17, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    quick = convolution(layer)
    with torch.no_grad():
        whole = quick(x, layer.weight, layer.bias)
        assert torch.allclose(whole, layer(x), rtol=1e-12, atol=1e-12)
        for start, stop in ((0, 1), (3, 40), (199, 200)):
            assert torch.equal(quick(x[start:stop], layer.weight, layer.bias), whole[start:stop])
    x = x[:2].requires_grad_()
    quick(x, layer.weight, layer.bias).sum().backward()
    assert x.grad is not None and bool((x.grad != 0).any())
