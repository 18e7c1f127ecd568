"""Robustness: against a plain loop that changes a copy, a closed form for two classes, and no trace left behind."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from epoch0.activity import robustness
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.seeds import generator


def data(model: nn.Module, count: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and the model's own decisions: accuracy 1 without noise."""
    x = torch.randn(count, 20, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return x, model.eval()(x).argmax(dim=1)


def test_plain_loop_over_changed_copies() -> None:
    model = mlp([20, 30, 30, 5], seed=0)
    x, y = data(model)
    for relative in (True, False):
        found = robustness(model, (x, y), [0.0, 0.3], draws=3, relative=relative, seed=4, batch_size=64)
        assert found.clean == 1.0 and found.layers == ("0", "2", "4")
        for i, place in enumerate((0, 2, 4)):
            for draw in range(3):
                copy = deepcopy(model)
                weight = copy[place].weight.data
                unit = weight.double().square().mean().sqrt().item() if relative else 1.0
                weight += 0.3 * unit * torch.randn(weight.shape, generator=generator(4, i, draw))
                expected = (copy(x).argmax(dim=1) == y).double().mean().item()
                assert found.accuracies[i, 1, draw] == pytest.approx(expected, abs=2 / 400)
                assert found.accuracies[i, 0, draw] == 1.0


def test_closed_form_of_two_classes() -> None:
    """Scores (w.x, 0) with w = e1 and noise r in both rows: right where the difference keeps its sign.

    w.x against noise: the difference of scores is x1 + r sqrt(2) z.x; with x Gaussian in n dimensions the two
    are independent with variances 1 and 2 r^2 |z|^2, so agreement is 1 - arctan(ratio)/pi, ratio^2 = 2 r^2 n (1 to
    within sqrt(2/n) of |z|^2/n). 20 draws, 4000 examples: binomial and |z| errors below 0.01; 4 of them allowed.
    """
    n, r = 200, 0.05
    model = nn.Sequential(nn.Linear(n, 2, bias=False))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].weight[0, 0] = 1.0
    x = torch.randn(4000, n, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] < 0).long()
    found = robustness(model, (x, y), r, draws=20, relative=False)
    vector_angle = np.arctan2(np.sqrt(2 * n) * r, 1.0)
    assert abs(found.accuracy[0, 0] - (1 - vector_angle / np.pi)) < 0.04
    assert found.error[0, 0] < 0.02


def test_relative_noise_does_not_depend_on_the_scale_of_a_layer() -> None:
    """ReLU without biases: a layer times 7 changes no decision, with noise or without."""
    model = mlp([20, 30, 5], seed=1)
    x, y = data(model)
    before = robustness(model, (x, y), [0.5], draws=2).accuracies
    with torch.no_grad():
        model[0].weight *= 8
    assert (robustness(model, (x, y), [0.5], draws=2).accuracies == before).all()


def test_more_noise_costs_more_and_much_leaves_chance() -> None:
    model = mlp([20, 60, 60, 60, 4], seed=2)
    found = robustness(model, data(model, 1000), [0.1, 0.5, 100.0], draws=5)
    assert (np.diff(found.accuracy, axis=1) < 0).all() and (found.cost > 0).all()
    assert found.accuracy[:, 2].max() < 0.75 and found.most_fragile in found.layers


def test_nothing_is_left_behind() -> None:
    model = nn.Sequential(
        nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(54, 2)
    )
    model.train()
    before, state = deepcopy(model.state_dict()), torch.get_rng_state()
    x = torch.randn(50, 1, 20, generator=torch.Generator().manual_seed(0))
    found = robustness(model, (x, torch.zeros(50, dtype=torch.int64)), [0.2], layers=[0, "5"], draws=1)
    assert model.training and all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and found.layers == ("0", "5") and np.isnan(found.error).all()
    assert all(p.grad is None for p in model.parameters())


def test_table() -> None:
    model = mlp([20, 30, 5], seed=1)
    found = robustness(model, data(model), [0.1, 0.2], draws=3)
    frame = found.to_pandas()
    assert frame.shape == (4, 5) and frame.accuracy.tolist() == found.accuracy.reshape(-1).tolist()
    assert "most fragile" in str(found) and "noise 0.2" in str(found)


@pytest.mark.parametrize(("change", "message"), [
    ({"noise": [-0.1]}, ">= 0"),
    ({"noise": [float("nan")]}, "noise.*finite"),
    ({"noise": []}, ">= 0"),
    ({"layers": ["1"]}, "without a weight"),
    ({"layers": ["x"]}, "no layer 'x'"),
    ({"layers": [7]}, "numbered from 0"),
    ({"draws": 0}, ">= 1"),
    ({"data": (torch.zeros(3, 20), torch.zeros(2, dtype=torch.int64))}, "2 targets for 3 examples"),
    ({"data": (torch.zeros(3, 20), torch.zeros(3))}, "do not fit"),
    ({"data": (torch.full((3, 20), torch.nan), torch.zeros(3, dtype=torch.int64))}, "NaN"),
    ({"data": (torch.zeros(0, 20), torch.zeros(0, dtype=torch.int64))}, "do not fit"),
])  # fmt: skip
def test_bad_input(change: dict, message: str) -> None:
    model = mlp([20, 30, 5], seed=1)
    arguments = {"data": (torch.zeros(3, 20), torch.zeros(3, dtype=torch.int64)), "noise": [0.1], **change}
    with pytest.raises(InputError, match=message):
        robustness(model, **arguments)


@pytest.mark.parametrize("problem", [AssertionError(), StopIteration(), ValueError("two\nlines")])
def test_an_error_of_the_model_that_says_nothing_is_one_line(problem: Exception) -> None:
    def fail(*_: object) -> None:
        raise problem

    model = mlp([20, 30, 5], seed=1)
    model.register_forward_pre_hook(fail)
    with pytest.raises(InputError) as caught:
        robustness(model, (torch.zeros(3, 20), torch.zeros(3, dtype=torch.int64)), [0.1])
    said = (str(problem) or type(problem).__name__).splitlines()[0]
    assert "\n" not in str(caught.value) and said in str(caught.value)
