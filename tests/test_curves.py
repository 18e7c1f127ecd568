"""Curves: tangents against central differences, lengths against closed forms, ends where they belong."""

import math

import pytest
import torch

import epoch0 as e0
from epoch0.curves import Curve
from epoch0.errors import InputError
from epoch0.seeds import generator

G = generator(3)
A, B = torch.randn(6, generator=G, dtype=torch.float64), torch.randn(6, generator=G, dtype=torch.float64)
IMAGE0, IMAGE1 = torch.randn(2, 3, 4, generator=G), torch.randn(2, 3, 4, generator=G)
CURVES: list[Curve] = [
    e0.Line(A, B),
    e0.Arc(A, B),
    e0.GreatCircle(A, B),
    e0.SemicircularArcs(A, B, planes=7, seed=1),
    e0.Polyline(torch.randn(5, 6, generator=G, dtype=torch.float64)),
]
IDS = [type(curve).__name__ for curve in CURVES]


@pytest.mark.parametrize("curve", CURVES, ids=IDS)
def test_tangent_is_the_derivative(curve: Curve) -> None:
    t = torch.rand(400, generator=generator(1), dtype=torch.float64) * 0.99 + 0.005
    joins = torch.cat([torch.arange(n + 1, dtype=torch.float64) / n for n in (4, 7)])
    t = t[(t[:, None] - joins).abs().min(1).values > 1e-4]
    h = 1e-5
    central = (curve.point(t + h) - curve.point(t - h)) / (2 * h)
    torch.testing.assert_close(curve.tangent(t), central, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("curve", CURVES, ids=IDS)
def test_continuous_and_float32_close(curve: Curve) -> None:
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    points = curve.point(t)
    step = (points[1:] - points[:-1]).norm(dim=1).max()
    speed = curve.tangent(t).norm(dim=1).max()
    assert step <= speed / 20_000 * 1.001
    single = curve.to(torch.float32)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.point(t).double(), points, rtol=1e-5, atol=1e-5)


def test_ends() -> None:
    for curve in (e0.Line(A, B), e0.Arc(A, B), e0.SemicircularArcs(A, B, planes=3)):
        ends = curve.point([0.0, 1.0])
        torch.testing.assert_close(ends, torch.stack([A, B]), rtol=1e-12, atol=1e-12)
    circle = e0.GreatCircle(A, B)
    torch.testing.assert_close(circle.point([0.0, 0.25, 0.5, 1.0]), torch.stack([A, B, -A, A]), rtol=1e-12, atol=1e-12)


def test_lengths_in_closed_form() -> None:
    t = (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
    chord = float((B - A).norm())
    assert float(e0.Line(A, B).tangent(t).norm(dim=1).mean()) == pytest.approx(chord)
    arcs = e0.SemicircularArcs(A, B, planes=50, seed=2).tangent(t).norm(dim=1)
    torch.testing.assert_close(arcs, torch.full_like(arcs, math.pi / 2 * chord))
    x, y = torch.eye(6, dtype=torch.float64)[:2] * 3
    assert float(e0.Arc(x, y).tangent(t).norm(dim=1).mean()) == pytest.approx(3 * math.pi / 2)
    assert float(e0.GreatCircle(x, y).tangent(t).norm(dim=1).mean()) == pytest.approx(6 * math.pi)
    path = e0.Polyline(torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]))
    assert float(path.tangent(t).norm(dim=1).mean()) == pytest.approx(6.0)


def test_semicircles_bulge_across_the_chord() -> None:
    curve = e0.SemicircularArcs(A, B, planes=4, seed=0)
    tops = curve.point((torch.arange(4) + 0.5) / 4)
    middle = e0.Line(A, B).point((torch.arange(4) + 0.5) / 4)
    out = tops - middle
    torch.testing.assert_close(out.norm(dim=1), torch.full((4,), float((B - A).norm()) / 8, dtype=torch.float64))
    assert (out @ (B - A)).abs().max() < 1e-12
    assert (out[0] @ out[1]).abs() / out[0].norm() ** 2 < 0.999  # different planes
    other = e0.SemicircularArcs(A, B, planes=4, seed=1).point([0.1])
    assert not torch.equal(curve.point([0.1]), other)
    assert torch.equal(curve.point([0.1]), e0.SemicircularArcs(A, B, planes=4, seed=0).point([0.1]))


def test_images_keep_their_shape() -> None:
    for curve in (e0.Line(IMAGE0, IMAGE1), e0.Arc(IMAGE0, IMAGE1), e0.SemicircularArcs(IMAGE0, IMAGE1, planes=2)):
        assert curve.shape == (2, 3, 4)
        assert curve.point(torch.rand(5)).shape == (5, 2, 3, 4)
        assert curve.tangent([0.3]).shape == (1, 2, 3, 4)
    assert e0.Polyline(torch.stack([IMAGE0, IMAGE1])).point([0.5]).shape == (1, 2, 3, 4)


def test_the_callers_tensor_is_not_kept() -> None:
    x0, x1 = torch.zeros(3), torch.ones(3)
    line = e0.Line(x0, x1)
    x1.fill_(9.0)
    assert line.point([1.0]).tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: e0.Line(torch.ones(3), torch.ones(3)), "same point"),
        (lambda: e0.Arc(torch.ones(3), torch.zeros(4)), r"\(3,\).*\(4,\)"),
        (lambda: e0.Line(torch.tensor([1.0, math.nan]), torch.zeros(2)), "x0 holds NaN"),
        (lambda: e0.Line(torch.zeros(0), torch.zeros(0)), "empty"),
        (lambda: e0.SemicircularArcs(torch.zeros(3), torch.ones(3), planes=0), "planes=0"),
        (lambda: e0.SemicircularArcs(torch.zeros(1), torch.ones(1)), "two coordinates"),
        (lambda: e0.Polyline(torch.zeros(1, 3)), "n >= 2"),
        (lambda: e0.Polyline(torch.tensor([[0.0], [1.0], [1.0]])), "points 1 and the next"),
        (lambda: e0.Line(torch.zeros(2), torch.ones(2)).point([1.5]), "t in \\[0, 1\\]"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
