"""Every result can be pickled and copied, and says the same afterwards."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import epoch0 as e0
from epoch0 import activations


def results() -> dict[str, Callable[[], Any]]:
    net = e0.networks.mlp([6, 12, 3], "relu", weights=e0.Gaussian(2**0.5), biases=e0.Gaussian(0.1), seed=0)
    x, y = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    scores, line = e0.prune.snip(net, [(x, y)]), e0.Line(x[0], x[1])
    masks = e0.prune.keep(scores, 0.5)
    return {
        "ensemble": lambda: e0.networks.ensemble(3, [6, 5, 2], "relu", weights=e0.Gaussian(1.0), seed=0),
        "line": lambda: e0.regions.on_line(net, x[0], x[1]),
        "plane": lambda: e0.regions.on_plane(net, x[:3]),
        "of convolutions": lambda: e0.regions.on_line(
            e0.networks.resnet(8, classes=3, inputs=(1, 8, 8), seed=0).eval(), torch.zeros(1, 8, 8), torch.ones(1, 8, 8)
        ),
        "distance": lambda: e0.regions.distance(net, x),
        "length": lambda: e0.trajectory_length(net, line),
        "transitions": lambda: e0.transitions(net, line),
        "patterns": lambda: e0.activation_patterns(net, x),
        "gain": lambda: e0.gain(net, x, y),
        "scores": lambda: scores,
        "masks": lambda: masks,
        "summary": lambda: masks.summary(net, x),
        "critical": lambda: e0.prune.critical_sparsity(scores),
        "initialization": lambda: e0.initialize(copy.deepcopy(net), x=x),
        "rescaling": lambda: e0.prune.rescale(e0.prune.apply(copy.deepcopy(net), masks), x=x),
        "checkup": lambda: e0.checkup(net, x, y, trial=False),
        "edge of chaos": lambda: e0.theory.mean_field.edge_of_chaos("tanh", bias_std=0.2),
        "law": lambda: e0.Sparse(e0.Gaussian(1.0), 0.5),
        "curve": lambda: e0.SemicircularArcs(x[0], x[1], planes=2, seed=0),
        "reproduction": lambda: e0.reproduce("price-tanner/fig4a", workers=1),
    }


@pytest.mark.usefixtures("in_this_process")
def test_results() -> None:
    for name, make in results().items():
        one = make()
        for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert type(again) is type(one), name
            assert str(again) == str(one) or " object at " in str(one), name
            if hasattr(one, "to_dict"):
                assert str(again.to_dict()) == str(one.to_dict()), name


def test_a_partition_still_evaluates_its_network() -> None:
    net = e0.networks.mlp([2, 8, 8, 1], "relu", weights=e0.Gaussian(2**0.5), biases=e0.Gaussian(0.1), seed=0)
    one = e0.regions.on_line(net, torch.tensor([-3.0, 1.0]), torch.tensor([3.0, -1.0]))
    again = pickle.loads(pickle.dumps(one))
    assert again.count == one.count and np.array_equal(again.breakpoints, one.breakpoints)


@pytest.mark.parametrize("name", activations.KNOWN)
def test_known_activations(name: str) -> None:
    h = np.linspace(-3, 3, 13)
    one = activations.get(name)
    again = pickle.loads(pickle.dumps(one))
    assert again == one and again.breaks == one.breaks
    assert np.array_equal(again.function(h), one.function(h)) and np.array_equal(again.derivative(h), one.derivative(h))


def test_other_activations() -> None:
    h = np.linspace(-3, 3, 13)
    made = activations.piecewise("own", (0.0, 1.0), (0.0, 1.0, 0.5), at_zero=2.0)
    known = activations.leaky_relu(0.3), activations.elu(2.0), activations.hardtanh(-0.5, 2.0)
    for one in (*known, made, activations.custom(torch.sin)):
        again = pickle.loads(pickle.dumps(one))
        assert again == one and np.array_equal(again.function(h), one.function(h))
