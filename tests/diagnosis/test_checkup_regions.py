"""Linear regions in the checkup: counts against dense sampling, theory against many networks, reasons, the page."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from test_checkup import everything
from torch import nn

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup
from epoch0.diagnosis.expressivity import count_regions
from epoch0.tracing.tape import tape
from pages import assert_self_contained


def batch(examples: int, size: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randn(examples, size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def found() -> Checkup:
    return checkup(
        e0.networks.mlp([32, 48, 48, 48, 5], weights=e0.Gaussian(2**0.5), seed=1),
        batch(64),
        regions=True,
        trial=False,
        directions=4,
    )


def test_counts_are_those_of_dense_sampling() -> None:
    net, x = e0.networks.mlp([8, 10, 10, 3], weights=e0.Gaussian(2**0.5), biases=e0.Gaussian(0.2), seed=3), batch(2, 8)
    regions = checkup(net, x, regions=True, trial=False, remedies=False, directions=2).regions
    assert regions is not None and (regions.lines, regions.error, regions.neurons) == (1, None, 20)
    assert regions.plane is None and "three examples" in regions.plane_reason
    t = torch.linspace(0, 1, 200_001, dtype=torch.float64)[:, None]
    h, folds = x[:1].double() + t * (x[1:] - x[:1]).double(), []
    with torch.no_grad():
        for module in net:
            if isinstance(module, nn.Linear):
                h = nn.functional.linear(h, module.weight.double(), module.bias.double())
            else:
                folds.append(int(((h[1:] > 0) != (h[:-1] > 0)).sum()))
                h = torch.relu(h)
    assert [layer.breaks for layer in regions.layers] == folds and regions.count == 1 + sum(folds)


def test_theory_is_the_mean_of_random_networks() -> None:
    """24 networks; the first layer is binomial, |z| > 4 has a chance of 6e-5; deeper ones have six errors."""
    x, layers = batch(2), []
    for seed in range(24):
        net = e0.networks.mlp([32, 64, 64, 64, 5], "leaky_relu", e0.Gaussian(1.2), e0.Gaussian(0.5), seed=seed)
        with tape(net, x) as record:
            regions, _ = count_regions(record, 0)
        assert regions is not None
        layers.append([(layer.breaks, layer.expected) for layer in regions.layers])
    measured, expected = np.array(layers, dtype=float).transpose(2, 1, 0)
    p = expected[0].mean() / 64
    assert abs(measured[0].mean() - 64 * p) < 4 * math.sqrt(64 * p * (1 - p) / 24)
    error = measured.std(axis=1, ddof=1) / math.sqrt(24)
    # a few per cent are the finite width's
    assert (np.abs(measured.mean(axis=1) - expected.mean(axis=1)) < 6 * error + 0.05 * expected.mean(axis=1)).all()
    assert expected[2].mean() < 0.95 * expected[0].mean()  # biases gather, so deeper layers fold less


def test_segments_have_errors_and_theory_beside_them(found: Checkup) -> None:
    regions = found.regions
    assert regions is not None and regions.lines == 6 and regions.neurons == 144 and found.regions_reason == ""
    assert regions.count == pytest.approx(1 + sum(layer.breaks for layer in regions.layers))
    assert regions.expected is not None and regions.expected == pytest.approx(
        1 + sum(layer.expected or 0.0 for layer in regions.layers)
    )
    assert 0.3 < regions.per_neuron < 0.8 and 0.4 < (regions.expected_per_neuron or 0) < 0.6
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))["regions"]
    assert plain["error"] == regions.error and plain["plane"]["count"] == regions.plane.count  # type: ignore[union-attr]


def test_the_plane_is_cut_without_gaps(found: Checkup) -> None:
    plane = found.regions.plane if found.regions is not None else None
    assert plane is not None
    areas = []
    for corners in np.split(plane.corners, plane.ends[1:-1]):
        x, y = (corners - corners[0]).T
        areas.append(0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1)))
    assert len(areas) == plane.count and min(areas) > 0
    assert sum(areas) == pytest.approx(plane.side**2, rel=1e-9)
    assert len(np.unique(plane.patterns, axis=0)) == plane.count


def test_page_and_terminal_say_the_same(found: Checkup, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = found.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    page = assert_self_contained(text)
    assert page.tags.count("img") == 1 and "data:image/png;base64,iVBOR" in text
    assert found.regions is not None and found.regions.plane is not None
    found.print(width=300)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Linear regions"))
    assert line.strip() in text and f"{found.regions.plane.count:,} in a square" in line and "expected" in line


def test_residual_convolutional_network_has_regions_but_no_theory() -> None:
    images = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    one = checkup(everything(), images, regions=True, trial=False, remedies=False, directions=4)
    assert one.regions is not None and one.regions.expected is None and one.regions.count > 100
    text = " ".join(one.notes)
    assert "batch norm held at the statistics of this batch" in text and "Theory has no number" in text


class Branching(nn.Module):
    """Asks for values of its inputs, by which it branches."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.net(x)
        return found if float(x.detach().sum()) < 1e9 else -found


def test_no_regions_is_a_reason_never_an_error(tmp_path: Path) -> None:
    wide = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 2))  # fmt: skip
    cases = [
        (e0.networks.mlp([32, 16, 5], "tanh"), batch(8), "smooth: no linear regions", 0),
        (wide, torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0)), "too large: 16,384 neurons", 1),
        (Branching(), batch(8), "does not branch on values", 1),
        (e0.networks.mlp([32, 16, 5]), batch(1).repeat(4, 1), "all the same", 1),
        (
            nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.ReLU(), nn.Linear(12, 2)),
            torch.arange(24).reshape(8, 3) % 9,
            "no line between them",
            1,
        ),
        (nn.Linear(32, 5), batch(8), "one affine map", 1),
    ]
    for net, x, words, notes in cases:
        one = checkup(net, x, regions=True, trial=False, remedies=False, directions=2)
        assert one.regions is None and words in one.regions_reason
        assert sum("not counted" in note for note in one.notes) == notes
        plain = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert plain["regions"] is None and words in plain["regions_reason"]
        assert words in one.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
