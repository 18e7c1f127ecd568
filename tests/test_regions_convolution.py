"""Convolutions of a few points at a time against those of all at once; sums that are added on the way."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from epoch0 import regions
from epoch0.regions import _convolution, _fuse, _reader, _walk, _windowed
from epoch0.regions._convolution import convolution, few_at_a_time, shifted
from epoch0.regions._steps import Affine, Fold, Way
from epoch0.regions._trace import trace
from epoch0.regions._windowed import windowed


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
    bias=st.booleans(), points=st.integers(1, 4), alone=st.sampled_from([1, 40, 1 << 18]),
)  # fmt: skip
def test_every_geometry(channels, out, size, kernel, stride, padding, dilation, bias, points, alone) -> None:
    if any(n + 2 * p <= d * (k - 1) for n, p, d, k in zip(size, padding, dilation, kernel, strict=True)):
        return  # the kernel does not fit
    source = torch.Generator().manual_seed(0)
    x = torch.randn(points, channels, *size, generator=source, dtype=torch.float64)
    weight = torch.randn(out, channels, *kernel, generator=source, dtype=torch.float64)
    shift = torch.randn(out, generator=source, dtype=torch.float64) if bias else None
    expected = nn.functional.conv2d(x, weight, shift, stride, padding, dilation)
    assert torch.allclose(shifted(x, weight, shift, stride, padding, dilation), expected, rtol=1e-12, atol=1e-12)
    more = torch.randn(expected.shape, generator=source, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_windowed, "_ALONE", alone)  # also a few channels at a time
        patch.setattr(_windowed, "_SHIFTED", 300)  # and a few points
        found = windowed(x, weight, shift, stride, padding, dilation)
        added = windowed(x, weight, shift, stride, padding, dilation, more)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(added, found + more)


@pytest.mark.parametrize("way", [shifted, windowed])
def test_blocks_of_points_and_gradients(way: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if way is shifted or not wide:  # the other way than that of this processor
        monkeypatch.setattr(_convolution, "quickest", lambda *args: way(*args[:6]))
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


@pytest.mark.parametrize("weights", [1, 1 << 16])
@pytest.mark.parametrize("layer", [nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1, groups=3)], ids=str)
def test_what_is_added_on_the_way(layer: nn.Module, weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_convolution, "_NARROW", weights)
    layer = layer.double()
    x, more = torch.randn(2, 9, 3, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = more.clone()
    with torch.no_grad():
        found = convolution(layer)(x, layer.weight, layer.bias, more)
        assert torch.allclose(found, layer(x) + more, rtol=1e-12, atol=1e-12) and torch.equal(more, kept)


class Sum(nn.Module):
    """Sums of all kinds, of which only some can be added on the way."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.relu = kind, nn.ReLU()
        self.first, self.second, self.third = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(3))
        self.norm, self.last = nn.BatchNorm2d(2), nn.Linear(2 * 5 * 5, 3)
        nn.init.uniform_(self.norm.running_mean, -0.2, 0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        h = self.second(self.relu(self.third(x)))
        if self.kind == "plain":
            h = h + x
        elif self.kind == "normed, other order":
            h = x + self.norm(h)
        elif self.kind == "in place":
            h += x
        elif self.kind == "two layers":
            h = h + self.third(x)
        elif self.kind == "read twice":
            h = h + x + h
        elif self.kind == "of its own input":
            h = self.second(x) + x
        elif self.kind == "broadcast":
            h = h + x.mean((2, 3), keepdim=True)
        elif self.kind == "scaled":
            h = torch.add(h, x, alpha=2.0)
        else:  # a fold between the layer and the sum
            h = h + self.relu(x - 0.3)
        return self.last(self.relu(h).flatten(1))


KINDS = {
    "plain": 1, "normed, other order": 1, "in place": 1, "two layers": 1, "read twice": 0, "of its own input": 0,
    "broadcast": 0, "scaled": 0, "fold between": 0,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_added_by_the_layer_before(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Sum(kind).double().eval()
    x0, x1 = 2 * torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    program = trace(net, (2, 5, 5), "cpu")
    summed = [step for step in program.steps if isinstance(step, Affine) and step.weighted and len(step.inputs) == 2]
    assert len(summed) == KINDS[kind]
    x = torch.stack([x0, x1])
    with torch.no_grad():
        assert torch.allclose(program.forward(x), net(x), rtol=1e-12, atol=1e-12)
    line = regions.on_line(net, x0, x1)
    fused = _fuse.fused
    monkeypatch.setattr(_reader, "fused", lambda steps, *_, output: fused(steps, {}, {}, set(), output))
    apart = regions.on_line(net, x0, x1)
    assert line.owner == apart.owner and line.count > 20 and line.certificate.holds
    assert line.certificate.smallest == pytest.approx(apart.certificate.smallest, rel=1e-6)
    assert (abs(line.breakpoints - apart.breakpoints) < 1e-12).all()


FOLDS = {
    "relu": Fold("", (0,), 1, (0.0,), torch.relu, torch.relu, lambda x, out: torch.clamp_min(x, 0.0, out=out)),
    "leaky": Fold("", (0,), 1, (0.0,), *[lambda x: nn.functional.leaky_relu(x, 0.1)] * 2),
}  # fmt: skip


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("weights", [1, 1 << 16])
@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, 2, 1), nn.Conv2d(3, 3, 1, 2),
     nn.Conv2d(3, 3, 3, 1, 1, groups=3)],
    ids=str,
)  # fmt: skip
def test_folds_on_the_way(layer: nn.Module, weights: int, fold: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_convolution, "_NARROW", weights)
    monkeypatch.setattr(_convolution, "_SHIFTED", 400)
    monkeypatch.setattr(_windowed, "_SHIFTED", 400)  # a few points at a time
    layer, source = layer.double(), torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, 6, 5, generator=source, dtype=torch.float64)
    kept, shown = x.clone(), {}
    with torch.no_grad():
        more = torch.randn(layer(x).shape, generator=source, dtype=torch.float64)
        way = Way(FOLDS[fold], FOLDS[fold], lambda first, rows: shown.update({first: rows.copy()}), grows=True)
        found = convolution(layer)(x, layer.weight, layer.bias, more, way)
        expected = layer(FOLDS[fold].run(x)) + FOLDS[fold].run(more)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12) and torch.equal(x, kept)
    if shown:  # grouped convolutions are not shown
        rows = torch.cat([torch.from_numpy(shown[first]) for first in sorted(shown)])
        assert len(shown) > 1 and torch.equal(rows, found.flatten(1))
    assert bool(shown) == (layer.groups == 1)


@pytest.mark.parametrize("block", [None, 60_000])
@pytest.mark.parametrize("kind", ["plain", "two layers", "fold between"])
def test_folds_done_late_change_nothing(kind: str, block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Sum(kind).double().eval()
    x0, x1 = 2 * torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if block is not None:
        monkeypatch.setattr(_walk, "BLOCK", block)
    found, late = [], _walk.late_folds
    monkeypatch.setattr(_walk, "late_folds", lambda *args: found.append(late(*args)) or found[-1])
    line = regions.on_line(net, x0, x1)
    assert len(found) == 1 and len(found[0]) >= 1
    monkeypatch.setattr(_walk, "late_folds", lambda *_: {})
    early = regions.on_line(net, x0, x1)
    assert line.owner == early.owner and line.count > 20 and line.certificate.holds
    assert line.certificate.zeros == early.certificate.zeros
    assert line.certificate.smallest == pytest.approx(early.certificate.smallest, rel=1e-6)
    assert (abs(line.breakpoints - early.breakpoints) < 1e-12).all()
