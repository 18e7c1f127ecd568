"""Activation patterns: against plain loops over neurons, the line walk's patterns, and the laws of a distance."""

import numpy as np
import pytest
import torch
from torch import nn

from epoch0.activity import activation_patterns
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.regions import on_line


def batch(count: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(model: nn.Sequential, x: torch.Tensor, faces: tuple[float, ...]) -> list[np.ndarray]:
    """Twin: the state of every neuron, one by one."""
    states = []
    for part in model:
        if isinstance(part, nn.Linear):
            x = x @ part.weight.detach().double().T + part.bias.detach().double()
        else:
            states.append(np.array([[sum(v > f for f in faces) for v in row] for row in x.tolist()]))
            x = part(x)
    return states


@pytest.mark.parametrize(("activation", "faces"), [("relu", (0.0,)), ("hardtanh", (-1.0, 1.0)), ("relu6", (0.0, 6.0))])
def test_states_distances_and_counts_by_a_plain_loop(activation: str, faces: tuple[float, ...]) -> None:
    model, x = mlp([5, 13, 8, 2], activation, Gaussian(2.0), Gaussian(0.5), seed=1), batch(40, 5)
    x[7] = x[3]
    found, states = activation_patterns(model, x), plain(model, x, faces)
    assert found.layers == ("1", "3") and found.neurons == (13, 8) and len(found) == 40
    for layer, expected in zip(found.layers, states, strict=True):
        assert (found.states(layer) == expected).all()
    whole = np.concatenate(states, axis=1)
    assert found.count == len({tuple(row) for row in whole})
    assert found.per_layer.tolist() == [len({tuple(row) for row in state}) for state in states]
    assert (found.packed[3] == found.packed[7]).all()


def test_bytes_are_as_few_as_the_neurons_need() -> None:
    x = batch(10, 5)
    assert activation_patterns(mlp([5, 100, 2], seed=0), x).bits[0].shape == (10, 1, 13)
    assert activation_patterns(mlp([5, 100, 2], "hardtanh", seed=0), x).bits[0].shape == (10, 2, 13)
    assert activation_patterns(mlp([5, 100, 2], seed=0), x).packed.dtype == np.uint8


def test_patterns_along_a_line_are_those_of_its_regions() -> None:
    model, (x0, x1) = mlp([6, 20, 20, 1], seed=2), batch(2, 6)
    line = on_line(model, x0, x1)
    ends = np.concatenate([[0.0], line.breakpoints, [1.0]])
    found = activation_patterns(model, line.point(0.5 * (ends[1:] + ends[:-1])))
    assert found.count == line.count
    bits = np.unpackbits(line.patterns, axis=1, count=40)
    states = np.concatenate([found.states("1"), found.states("3")], axis=1)
    assert (bits == states).all() and ((states[1:] != states[:-1]).sum(axis=1) == 1).all()


def test_max_pooling_and_convolutions() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    x = torch.randn(20, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    found = activation_patterns(model, x)
    assert found.neurons == (8, 8) and found.bits[0].shape[1] == 4
    with torch.no_grad():
        pooled, index = nn.functional.max_pool2d(model[0](x), 2, return_indices=True)
    index = index.reshape(20, -1).numpy()
    entry = 2 * (index // 4 % 2) + index % 2  # of a window of 2 x 2, in a map of 4 x 4
    assert (np.unpackbits(found.bits[0], axis=2, count=8).argmax(axis=1) == entry).all()
    assert (found.states(found.layers[1]) == (pooled > 0).reshape(20, -1).numpy()).all()


def test_smooth_networks_need_a_threshold() -> None:
    model, x = mlp([5, 13, 8, 2], "tanh", seed=1), batch(30, 5)
    found = activation_patterns(model, x, threshold=0.1)
    expected = plain(model, x, (0.1,))
    assert (found.states("1") == expected[0]).all() and (found.states("3") == expected[1]).all()
    with pytest.raises(InputError, match="threshold"):
        activation_patterns(model, x)


def test_table_and_bad_input() -> None:
    model, x = mlp([5, 13, 8, 2], seed=1), batch(30, 5)
    found = activation_patterns(model, x)
    assert found.to_pandas().patterns.tolist() == found.per_layer.tolist()
    assert "distinct activation patterns of 30 inputs" in str(found)
    for bad, message in ((x[0], "batch of inputs"), (x[:0], "batch of inputs"), (x[:, :3], "does not take"),
                         (x * torch.nan, "NaN")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            activation_patterns(model, bad)
    with pytest.raises(InputError, match="no layer '11'"):
        found.states("11")
