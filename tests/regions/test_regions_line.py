"""Regions on lines: reference counts, the twin on every kind of network, exact degeneracies, laws of symmetry."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epoch0 import regions
from epoch0.curves import Arc, Line, Polyline
from region_twins import line_breaks, networks, recipe, recipe_lines

NETWORKS = networks()


@pytest.fixture(scope="module")
def reference():
    return regions.on_line(recipe([784, 256, 256, 256, 256, 10], 1e-3), *recipe_lines())


def test_reference_counts(reference) -> None:
    assert reference.count == 50605
    assert reference.counts[:5].tolist() == [469, 479, 571, 546, 509]
    assert all(line.certificate.holds for line in reference)
    assert len(reference.to_pandas()) == 100


def test_patterns_of_neighbours_differ_in_the_owner_alone(reference) -> None:
    line = reference[0]
    bits = np.unpackbits(line.patterns, axis=1)[:, : line.neurons].astype(int)
    changed, neuron = np.nonzero(np.diff(bits, axis=0))
    assert changed.tolist() == list(range(line.count - 1))
    assert (neuron == 256 * line.owner_layer + line.owner_neuron).all()
    assert len(np.unique(bits, axis=0)) == line.count == line.per_layer[-1] == line.linear_count
    assert line.owner[0] == (line.layers[line.owner_layer[0]], line.owner_neuron[0], 0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_twin_by_sampling(name: str) -> None:
    model, shape = NETWORKS[name]
    for seed in range(3):
        x0 = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
        x1 = x0.roll(1) * 0.5 - x0
        line = regions.on_line(model, x0, x1)
        expected = line_breaks(model, x0, x1)
        assert line.count == len(expected) + 1, name
        assert np.abs(line.breakpoints - expected).max() < 1e-9
        assert line.certificate.holds and line.count > 3


def test_rays_and_whole_lines() -> None:
    model, shape = NETWORKS["skip"]
    x0, x1 = torch.randn(2, 4, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    far = 1e4
    for kind, low in (("ray", 0.0), ("line", -far)):
        found = regions.on_line(model, x0, x1, kind=kind)
        long = regions.on_line(model, x0 + low * (x1 - x0), x0 + far * (x1 - x0))
        assert found.counts.tolist() == long.counts.tolist()
        for one, other in zip(found, long, strict=True):
            assert np.allclose(one.breakpoints, low + (far - low) * other.breakpoints, rtol=1e-9, atol=1e-6)
            assert one.linear_count == other.linear_count
            assert one.patterns.tolist() == other.patterns.tolist()


@pytest.mark.parametrize("name", ["hardtanh", "relu6", "max pool", "leaky"])
def test_whole_lines_of_other_folds(name: str) -> None:
    model, shape = NETWORKS[name]
    x0, x1 = torch.randn(2, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    whole = regions.on_line(model, x0, x1, kind="line")
    long = regions.on_line(model, x0 - 1e4 * (x1 - x0), x0 + 1e4 * (x1 - x0))
    assert whole.count == long.count and whole.owner == long.owner


def test_a_break_point_at_the_start_of_a_whole_line_is_found() -> None:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1)).double()
    line = regions.on_line(net, torch.zeros(1), torch.ones(1), kind="line")
    assert line.count == 2 and line.breakpoints.tolist() == [0.0] and line.owner == [("1", 0, 0)]
    assert regions.on_line(net, torch.zeros(1), torch.ones(1), kind="ray").count == 1


def test_zero_biases_meet_in_the_origin() -> None:
    net = recipe([6, 32, 32, 32, 2], 0.0)
    x = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    through = regions.on_line(net, -x, 2 * x)
    assert through.count == 2 and abs(through.breakpoints[0] - 1 / 3) < 1e-12
    assert regions.on_line(net, torch.zeros(6), x).count == 1


def test_duplicated_neurons_break_once() -> None:
    net = recipe([3, 16, 16, 2], 0.5)
    x0, x1 = torch.randn(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    count = regions.on_line(net, x0, x1).count
    double = recipe([3, 32, 32, 2], 0.5)
    with torch.no_grad():
        for i, sources in ((0, 1), (2, 2), (4, 2)):
            weight = net[i].weight.repeat(1 if i == 4 else 2, 1)
            double[i].weight.copy_(weight.repeat(1, sources) / sources)
            double[i].bias.copy_(net[i].bias.repeat(1 if i == 4 else 2))
    assert regions.on_line(double, x0, x1).count == count


def test_dead_neurons_make_activation_regions_that_are_not_linear_regions() -> None:
    net = recipe([3, 16, 16, 2], 0.5)
    with torch.no_grad():
        net[2].weight[:, :5] = 0.0  # five neurons of the first layer lead nowhere
        net[2].bias[:] = net[2].bias.abs()
    line = regions.on_line(net, *(torch.randn(2, 3, generator=torch.Generator().manual_seed(3)) * 3))
    nowhere = (line.owner_layer == 0) & (line.owner_neuron < 5)
    assert nowhere.any() and (line.linear_breaks == ~nowhere).all()
    assert line.linear_count == line.count - nowhere.sum()
    with torch.no_grad():
        net[2].weight[:] = 0.0
        net[2].bias[:] = -1.0
    line = regions.on_line(net, *(torch.randn(2, 3, generator=torch.Generator().manual_seed(3)) * 3))
    assert line.linear_count == 1 and line.per_layer[0] == line.count > 1


@settings(max_examples=12)
@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=3), seed=st.integers(0, 99),
    activation=st.sampled_from([nn.ReLU(), nn.Hardtanh(), nn.LeakyReLU(0.3)]), bias=st.sampled_from([0.0, 0.4]),
)  # fmt: skip
def test_same_partition_after_rescaling_and_permuting(widths, seed, activation, bias) -> None:
    source = torch.Generator().manual_seed(seed)
    net = recipe([3, *widths, 2], bias, seed)
    net = nn.Sequential(*(activation if isinstance(layer, nn.ReLU) else layer for layer in net))
    twin = deepcopy(net)
    with torch.no_grad():
        scale, order = torch.ones(3, dtype=torch.float64), torch.arange(3)
        for i in range(0, len(net), 2):
            last, homogeneous = i == len(net) - 1, not isinstance(activation, nn.Hardtanh)
            n = net[i].out_features
            new_scale = torch.ones(n, dtype=torch.float64)
            if homogeneous and not last:
                new_scale = torch.rand(n, generator=source, dtype=torch.float64) * 4 + 0.1
            new_order = torch.arange(n) if last else torch.randperm(n, generator=source)
            twin[i].weight.copy_(((new_scale[:, None] * net[i].weight) / scale)[new_order][:, order])
            twin[i].bias.copy_((new_scale * net[i].bias)[new_order])
            scale, order = new_scale, new_order
    x0, x1 = torch.randn(2, 3, generator=source, dtype=torch.float64) * 3
    one, other = regions.on_line(net, x0, x1, kind="line"), regions.on_line(twin, x0, x1, kind="line")
    assert one.count == other.count and one.linear_count == other.linear_count
    assert np.allclose(one.breakpoints, other.breakpoints, rtol=1e-8, atol=1e-8)


def test_curves() -> None:
    model, shape = NETWORKS["dense"]
    x0, x1 = torch.randn(2, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 3
    straight = regions.on_line(model, x0, x1)
    curve = regions.on_curve(model, Line(x0, x1), pieces=7)
    assert curve.count == straight.count and np.allclose(curve.breakpoints, straight.breakpoints)
    assert curve.linear_count == straight.linear_count
    there_and_back = regions.on_curve(model, Polyline(torch.stack([x0, x1, x0])), pieces=2)
    assert there_and_back.count == 2 * straight.count - 1
    arc = regions.on_curve(model, Arc(x0, x1), pieces=300)
    t = arc.point(arc.breakpoints)
    assert t.shape == (arc.count - 1, 3) and "away from the curve" in arc.notes[0]


def test_model_comes_back_unchanged_and_train_mode_is_said() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    line = regions.on_line(net, torch.zeros(3), torch.ones(3))
    assert net.training and all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert "evaluation mode" in line.notes[0] and "evaluation mode" in str(line)
    assert line.to_pandas().columns.tolist() == ["t", "layer", "neuron", "face", "linear"]
