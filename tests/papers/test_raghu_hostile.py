"""Hostile input to transitions, patterns, dichotomies, robustness, regularization: one clear error each."""

import copy
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.errors import InputError

LONGS = torch.zeros(5, dtype=torch.int64)


def points(count: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def net(activation: str = "hardtanh", seed: int = 0) -> nn.Sequential:
    return e0.networks.mlp([6, 12, 12, 2], activation, e0.Gaussian(2.0), seed=seed)


def arc() -> e0.Arc:
    return e0.Arc(*points(2, 6, 1))


VERBS = {
    "transitions": lambda model: e0.transitions(model, arc()).count,
    "patterns": lambda model: e0.activation_patterns(model, points(5, 6)).packed.tolist(),
    "dichotomies": lambda model: e0.dichotomies(model, points(5, 6)).which[0].tolist(),
    "robustness": lambda model: e0.robustness(model, (points(5, 6), LONGS), [0.5]).accuracies.tolist(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_models_that_cannot_be_read(verb: str) -> None:
    broken = net()
    with torch.no_grad():
        broken[0].weight[0, 0] = float("nan")
    cases = [
        (broken, "NaN"), (nn.ReLU(), "no parameters"), (nn.Sequential(nn.LazyLinear(2)), "lazy"),
        (nn.Linear(6, 2, device="meta"), "meta"),
    ]  # fmt: skip
    if verb != "robustness":  # which measures a float32 copy of them
        cases += [(net().half(), "float16"), (net().bfloat16(), "bfloat16")]
    for model, message in cases:
        with pytest.raises(InputError, match=message):
            VERBS[verb](model)


@pytest.mark.parametrize("verb", VERBS)
def test_models_that_can(verb: str) -> None:
    """Frozen, wrapped, nested, in training mode, with a shared nonlinearity, without gradients: the same numbers."""
    plain = net()
    expected = VERBS[verb](plain)
    assert VERBS[verb](copy.deepcopy(plain).requires_grad_(False)) == expected
    assert VERBS[verb](nn.DataParallel(plain)) == expected
    nested = nn.Sequential(nn.Sequential(*plain[:2]), nn.Sequential(nn.Sequential(plain[2]), *plain[3:]))
    assert VERBS[verb](nested) == expected
    shared = nn.Sequential(plain[0], plain[1], plain[2], plain[1], plain[4])
    assert VERBS[verb](shared) == expected
    assert VERBS[verb](nn.Sequential(plain[0], nn.Dropout(0.9), *plain[1:]).train()) == expected
    with torch.inference_mode():
        assert VERBS[verb](plain) == expected


@pytest.mark.parametrize("verb", VERBS)
def test_the_model_comes_back(verb: str) -> None:
    """Modes, bits, gradients, hooks, requires_grad and random states, of parametrized and normed models too."""
    model = nn.Sequential(
        nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Dropout(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(9, 9)), nn.ReLU(), nn.Linear(9, 2),
    ).train()  # fmt: skip
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[1].eval()
    model[6].bias.requires_grad_(False)
    before, states = copy.deepcopy(model.state_dict()), (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    modes = [part.training for part in model.modules()]
    if verb == "robustness":
        e0.robustness(model, (points(5, 6), LONGS), 0.5, layers="0")
    else:
        VERBS[verb](model)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert modes == [part.training for part in model.modules()] and not model[6].bias.requires_grad
    assert bool((model[0].weight.grad == 1).all()) and all(p.grad is None for p in list(model.parameters())[1:])
    assert torch.equal(states[0], torch.get_rng_state()) and (states[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in (model[0], model[2], model[6]))


def test_inputs_of_other_kinds_mean_the_same() -> None:
    x, y = points(5, 6), torch.tensor([0, 1, 0, 1, 1])
    for given in (x.double(), points(5, 6).requires_grad_(), x.T.contiguous().T):
        assert e0.activation_patterns(net(), given).packed.tolist() == e0.activation_patterns(net(), x).packed.tolist()
        assert e0.dichotomies(net(), given).which[0].tolist() == e0.dichotomies(net(), x).which[0].tolist()
        expected = e0.robustness(net(), (x, y), 0.3).accuracy
        assert e0.robustness(net(), (given, y), 0.3).accuracy == pytest.approx(expected)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: e0.Line(torch.ones(6), torch.ones(6)), "same point"),
    (lambda: e0.Polyline(torch.ones(3, 6)), "coincide"),
    (lambda: e0.transitions(net(), arc(), caution=float("inf")), "caution=inf: give a finite number > 0"),
    (lambda: e0.dichotomies(net(), points(3, 6), True), "layer=True: give an integer or a text"),
    (lambda: e0.dichotomies(net(), points(3, 6), "1"), "without a weight matrix"),
    (lambda: e0.dichotomies(net(), points(3, 6), other=net()[0].weight), "depend on the weights"),
    (lambda: e0.dichotomies(net(), points(0, 6)), "s >= 1"),
    (lambda: e0.dichotomies(net(), points(3, 6), seed=-1), "seed"),
    (lambda: e0.activation_patterns(net(), points(3, 7)), "does not take"),
    (lambda: e0.activation_patterns(net(), points(0, 6)), "batch"),
    (lambda: e0.robustness(net(), (points(5, 6), LONGS), -0.1), ">= 0"),
    (lambda: e0.robustness(net(), (points(5, 7), LONGS), 0.1), "fails on an input of shape"),
    (lambda: e0.robustness(net(), (points(5, 6) * torch.nan, LONGS), 0.1), "NaN"),
    (lambda: e0.robustness(net(), (points(5, 6), LONGS + 2), 0.1), "2 classes"),
    (lambda: e0.robustness(net(), (points(5, 6), LONGS), 0.1, batch_size=True), "batch_size=True"),
    (lambda: e0.robustness(e0.networks.mlp([6, 4, 1]), (points(5, 6), LONGS), 0.1), "classes >= 2"),
    (lambda: e0.TrajectoryRegularization().train()(points(1, 6)), "at least two"),
    (lambda: e0.TrajectoryRegularization(scale=-1.0), "scale"),
    (lambda: e0.replace_batch_norm(net()), "no batch norm"),
    (lambda: e0.train_one_layer(net(), "1", (points(5, 6), LONGS), epochs=1), "without a weight"),
    (lambda: e0.train_one_layer(net(), 0, (points(5, 7), LONGS), epochs=1), "."),
])  # fmt: skip
def test_bad_input(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_a_data_set_smaller_than_a_batch() -> None:
    x, y = points(5, 6), torch.tensor([0, 1, 0, 1, 1])
    whole = e0.robustness(net(), (x, y), [0.2], batch_size=1000)
    assert whole.accuracies.tolist() == e0.robustness(net(), (x, y), [0.2], batch_size=2).accuracies.tolist()


@pytest.mark.parametrize("method", ["exact", "refined"])
def test_behind_dead_neurons_nothing_switches(method: str) -> None:
    """Two ReLUs of x and y, both dead in one quadrant: a w1 + b w2 is 0 there, exactly, whatever rounding says.

    Elsewhere a neuron behind them is above 0 on one connected arc if either weight is positive: two transitions.
    """
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 50, bias=False), nn.ReLU(), nn.Linear(50, 1)
    )
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
    curve = e0.GreatCircle(torch.tensor([0.8, 0.6]), torch.tensor([-0.6, 0.8]))
    found = e0.transitions(model, curve, method=method)
    expected = 2 * (model[2].weight > 0).any(dim=1).long()
    assert found.neurons[0].tolist() == [[2, 2]] and found.neurons[1][0].tolist() == expected.tolist()
    assert found.points < 2000


@pytest.mark.slow
def test_an_output_that_rests() -> None:
    """Narrow ReLU networks whose outputs are 0 for whole stretches of the sweep: both methods end, and agree."""
    nets = e0.networks.ensemble(20, [6, 2, 2, 2, 1], "relu", seed=0)
    exact, refined = (e0.dichotomies(nets, points(5, 6), method=method) for method in ("exact", "refined"))
    assert exact.flips.tolist() == refined.flips.tolist() and (exact.flips == 0).any() and (exact.flips > 0).any()


@pytest.mark.slow
def test_convolutions_pools_and_residual_sums_are_swept() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3),
        nn.Hardtanh(), nn.Flatten(), nn.Linear(16, 2, bias=False),
    )  # fmt: skip
    x = points(4, 64).reshape(4, 1, 8, 8)
    angles = 2 * torch.pi * torch.linspace(0, 1, 4001, dtype=torch.float64)
    for layer, place in enumerate((0, 3, 6)):
        other = points(1, model[place].weight.numel(), 7).reshape(model[place].weight.shape) * 0.3
        found = e0.dichotomies(model, x, layer, other=other)
        twin = copy.deepcopy(model).double()
        labels = []
        with torch.no_grad():
            for angle in angles:
                twin[place].weight.copy_(model[place].weight * angle.cos() + other * angle.sin())
                labels.append(twin(x.double())[:, 0] > 0)
        changes = torch.stack(labels)[1:] != torch.stack(labels)[:-1]
        assert found.flips[0] == int(changes.sum()) and found.layer == str(place)


@pytest.mark.slow
def test_warnings_as_errors() -> None:
    """A first run in a fresh process, where torch imports code that warns about itself."""
    program = (
        "import torch, epoch0 as e0; torch.manual_seed(0); curve = e0.Arc(torch.randn(8), torch.randn(8));"
        "nets = e0.networks.ensemble(2, [8, 9, 3], 'tanh', seed=0);"
        "assert e0.trajectory_length(nets, curve).lengths.shape == (2,);"
        "assert e0.transitions(nets, curve, threshold=0.0).count >= 0"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_warnings_of_the_users_model_are_the_users() -> None:
    class Warns(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("mine", DeprecationWarning, stacklevel=2)
            return super().forward(x)

    with pytest.warns(DeprecationWarning, match="mine"):
        e0.trajectory_length(nn.Sequential(Warns(6, 4), nn.Tanh()), arc())
