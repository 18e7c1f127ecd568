"""Networks: shapes, laws of the weights, and that network i of an ensemble never depends on its company."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.networks import ensemble, mlp

X1 = torch.linspace(-2, 2, 8, dtype=torch.float64)
LAWS = [e0.Gaussian(2.0), e0.Uniform(1.0), e0.distributions.integers(3), e0.Sparse(e0.Gaussian(2.0), 0.3)]


def test_layers() -> None:
    net = mlp([5, 8, 8, 3], activation="tanh")
    assert [type(layer).__name__ for layer in net] == ["Linear", "Tanh", "Linear", "Tanh", "Linear"]
    assert net(torch.zeros(7, 5)).shape == (7, 3)
    assert isinstance(mlp([5, 8], linear_output=False)[-1], nn.ReLU)
    for function in (torch.tanh, nn.Tanh()):
        assert isinstance(mlp([5, 8, 3], function)[1], nn.Tanh)
    assert torch.equal(
        mlp([5, 8], lambda h: h * torch.sigmoid(2 * h), linear_output=False)[1](X1), X1 * torch.sigmoid(2 * X1)
    )
    assert all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in net.parameters())


@pytest.mark.parametrize(("scaling", "fan"), [("fan_in", 300), ("fan_out", 500), ("none", 1)])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_weight_variance_follows_the_scaling(scaling: str, fan: int, law: e0.Law) -> None:
    weight = mlp([300, 500], weights=law, scaling=scaling, seed=2)[0].weight.detach()
    # relative sd of the second moment is sqrt((kurtosis + 2) / n); |z| < 5, 12 tests: false-alarm rate 1e-5
    tolerance = 5 * math.sqrt((law.excess_kurtosis + 2) / weight.numel())
    assert float(weight.detach().double().pow(2).mean()) * fan == pytest.approx(law.variance, rel=tolerance)


def test_biases_are_not_scaled_and_default_to_zero() -> None:
    assert not mlp([4, 6])[0].bias.any()
    bias = mlp([4, 20_000], biases=e0.Gaussian(0.5))[0].bias
    assert float(bias.detach().std()) == pytest.approx(0.5, rel=5 / math.sqrt(40_000))


def test_default_is_he() -> None:
    weight = mlp([1000, 400])[0].weight
    assert float(weight.detach().var()) * 1000 == pytest.approx(2.0, rel=5 * math.sqrt(2 / 400_000))


def test_float64() -> None:
    assert mlp([3, 4, 2], dtype=torch.float64)[0].weight.dtype == torch.float64


def test_seeded_and_the_global_generator_left_alone() -> None:
    before = torch.get_rng_state()
    a, b, c = mlp([5, 5], seed=1), mlp([5, 5], seed=1), mlp([5, 5], seed=2)
    assert torch.equal(a[0].weight, b[0].weight) and not torch.equal(a[0].weight, c[0].weight)
    assert torch.equal(before, torch.get_rng_state())


@given(st.sampled_from(LAWS), st.integers(1, 9), st.data())
def test_network_i_does_not_depend_on_its_company(law: e0.Law, count: int, data: st.DataObject) -> None:
    nets = ensemble(count, [7, 9, 4], weights=law, biases=e0.Gaussian(0.1), seed=5)
    i = data.draw(st.integers(0, count - 1))
    start, stop = data.draw(st.integers(0, i)), data.draw(st.integers(i + 1, count))
    alone = dict(nets[i].named_parameters())
    batch = nets.stacked(start, stop)
    longer = ensemble(count + 3, [7, 9, 4], weights=law, biases=e0.Gaussian(0.1), seed=5)[1:]
    assert batch.keys() == alone.keys()
    for name, value in alone.items():
        assert torch.equal(batch[name][i - start], value)
        if i >= 1:
            assert torch.equal(longer.stacked(i - 1, i)[name][0], value)


def test_stacked_into_memory_that_exists() -> None:
    nets = ensemble(5, [4, 4, 4], seed=1)
    memory = nets.stacked(0, 3)
    address = memory["0.weight"].data_ptr()
    again = nets.stacked(3, 5, out=memory)
    assert again["0.weight"].data_ptr() == address and again["0.weight"].shape == (2, 4, 4)
    assert torch.equal(again["2.weight"][1], nets[4][2].weight)


def test_stacked_parameters_run_the_skeleton() -> None:
    nets = ensemble(4, [6, 8, 3], seed=0)
    x = torch.randn(5, 6, generator=e0.seeds.generator(9))
    skeleton = nets.skeleton()
    together = vmap(lambda p: functional_call(skeleton, p, (x,)))(nets.stacked(0, 4))
    one_by_one = torch.stack([net(x) for net in nets])
    torch.testing.assert_close(together, one_by_one)


def test_slices_and_iteration() -> None:
    nets = ensemble(10, [2, 2], seed=3)
    part = nets[4:8]
    assert len(part) == 4 and torch.equal(part[1][0].weight, nets[5][0].weight)
    assert torch.equal(nets[-1][0].weight, nets[9][0].weight)
    assert all(torch.equal(net[0].weight, nets[4 + i][0].weight) for i, net in enumerate(part))
    with pytest.raises(IndexError, match="10"):
        nets[10]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: mlp([784]), "at least two"),
        (lambda: mlp([784, 0]), ">= 1"),
        (lambda: mlp([4, 4], activation="rellu"), "Did you mean 'relu'"),
        (lambda: mlp([4, 4], scaling="fanin"), "'fan_in'"),
        (lambda: mlp([4, 4], weights=e0.Gaussian(-2.0)), "std=-2.0"),
        (lambda: mlp([4, 4], seed=-1), "seed=-1"),
        (lambda: mlp([4, 4], dtype=torch.float16), "float16"),
        (lambda: ensemble(0, [4, 4]), "networks=0"),
        (lambda: ensemble(3, [4, 4]).stacked(2, 5), "2 to 5"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
