"""Vanilla CNNs, VGG and the residual chain of the theory: index sums, exact means, the edge of chaos, bad input."""

import math
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.initialization import initialize
from epoch0.models import load_model
from epoch0.networks import residual_chain, vanilla_cnn, vgg
from epoch0.theory import mean_field
from region_twins import line_breaks

SMALL = {
    "V-CNN, 1-D": (vanilla_cnn, {"depth": 4, "channels": 6, "kernel": 5, "inputs": (2, 12)}),
    "V-CNN, 2-D": (vanilla_cnn, {"depth": 4, "channels": (3, 4, 4, 5), "inputs": (1, 6, 5)}),
    "chain": (residual_chain, {"blocks": 4, "width": 12, "inputs": (5,)}),
    "chain, 2-D": (residual_chain, {"blocks": 3, "width": 4, "inputs": (1, 5, 5), "stable": True}),
    "VGG": (vgg, {"depth": 11, "width": 1 / 32, "inputs": (1, 16, 16)}),
    "VGG, circular": (vgg, {"depth": 11, "width": 1 / 32, "inputs": (1, 16, 16), "norm": None, "padding": "circular"}),
}


def build(name: str, **more: object) -> tuple[nn.Sequential, tuple[int, ...]]:
    make, arguments = SMALL[name]
    return make(**arguments, **more), arguments["inputs"]


def circular_layer(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Equation (3): y[i, a] = sum over j and b in [-k, k] of W[i, j, b] x[j, a + b], indices taken round the input."""
    y = np.empty((len(weight), *x.shape[1:]))
    half = weight.shape[2] // 2
    for i in range(len(weight)):
        for place in np.ndindex(*x.shape[1:]):
            total = bias[i]
            for j in range(len(x)):
                for offset in np.ndindex(*weight.shape[2:]):
                    seen = tuple((p + o - half) % n for p, o, n in zip(place, offset, x.shape[1:], strict=True))
                    total += weight[(i, j, *offset)] * x[(j, *seen)]
            y[(i, *place)] = total
    return y


@pytest.mark.parametrize(("inputs", "kernel"), [((2, 7), 5), ((1, 4), 3), ((2, 4, 5), 3), ((1, 5, 3), 5), ((3, 2), 1)])
def test_equal_to_index_sums(inputs: tuple[int, ...], kernel: int) -> None:
    net = vanilla_cnn(3, 3, kernel, inputs, 4, "tanh", biases=e0.Gaussian(0.3), dtype=torch.float64)
    x = np.random.Generator(np.random.PCG64(0)).standard_normal(inputs)
    h = x
    for place in (0, 2, 4):
        h = circular_layer(h if place == 0 else np.tanh(h), *(p.detach().numpy() for p in net[place].parameters()))
    last = [p.detach().numpy() for p in net[7].parameters()]
    expected = last[0] @ np.tanh(h).ravel() + last[1]
    np.testing.assert_allclose(net(torch.from_numpy(x)[None])[0].detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_layers_and_heads() -> None:
    net = vanilla_cnn(2, (3, 5), inputs=(1, 4, 6), activation="tanh")
    kinds = [type(layer).__name__ for layer in net]
    assert kinds == ["Conv2d", "Tanh", "Conv2d", "Tanh", "Flatten", "Linear"]
    assert net[5].in_features == 5 * 24 and net(torch.zeros(7, 1, 4, 6)).shape == (7, 10)
    assert vanilla_cnn(2, 3, inputs=(2, 9), classes=None)(torch.zeros(4, 2, 9)).shape == (4, 3, 9)
    assert vanilla_cnn()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_moves_with_its_input() -> None:
    net = vanilla_cnn(4, 6, inputs=(2, 5, 7), classes=None, dtype=torch.float64)
    x = torch.randn(1, 2, 5, 7, generator=e0.seeds.generator(0), dtype=torch.float64)
    torch.testing.assert_close(net(x.roll((2, 3), (2, 3))), net(x).roll((2, 3), (2, 3)))


def mean_squares(nets: list[nn.Module], x: Tensor) -> Tensor:
    """Mean square of each network's output over that of the input."""
    with torch.no_grad():
        return torch.stack([net(x).double().square().mean() / x.square().mean() for net in nets])


@pytest.mark.sample(1)
@pytest.mark.parametrize("inputs", [(2, 9), (1, 5, 4)])
@pytest.mark.parametrize("law", [e0.Gaussian(math.sqrt(2)), e0.Sparse(e0.Uniform(math.sqrt(12)), 0.5)], ids=repr)
def test_he_keeps_the_mean_square_of_a_relu_v_cnn(law: e0.Law, inputs: tuple[int, ...]) -> None:
    """E over the weights is exactly sigma_w^2 = 2 times the input's, at every width and depth; circular, so no border.

    Means over 150 networks, |z| < 5: false alarms about 1e-5 in four tests, the skew included.
    """
    assert law.variance == pytest.approx(2)
    nets = [vanilla_cnn(3, 40, inputs=inputs, classes=None, weights=law, seed=seed) for seed in range(150)]
    found = mean_squares(nets, torch.randn(1, *inputs, generator=e0.seeds.generator(0)))
    assert abs(float(found.mean()) - 2) < 5 * float(found.std()) / math.sqrt(len(found))


@pytest.mark.sample(1)
@pytest.mark.parametrize("activation", ["tanh", "erf"])
def test_v_cnn_stays_on_the_edge_of_chaos(activation: str) -> None:
    """Variance q and gain 1 of the mean field at the last of ten layers, over 40 networks of 100 channels.

    |z| < 5 beside 1/width, which is above the O(1/width) shift of either mean: false alarms below 1e-5.
    """
    edge = mean_field.edge_of_chaos(activation, bias_std=0.2)
    slope = e0.activations.get(activation).derivative
    q, chi = [], []
    for seed in range(40):
        net = vanilla_cnn(
            10, 100, inputs=(3, 8), classes=None, activation=activation, weights=e0.Gaussian(edge.weight_std),
            biases=e0.Gaussian(0.2), seed=seed,
        )  # fmt: skip
        signs = torch.randn(1, 3, 8, generator=e0.seeds.generator(seed, 1)).sign()
        with torch.no_grad():
            y = net(signs * math.sqrt((edge.q - 0.04) / edge.weight_std**2)).double()
        q.append(float(y.square().mean()) / edge.q)
        chi.append(edge.weight_std**2 * float(np.square(slope(y.numpy())).mean()))
    for values in (np.array(q), np.array(chi)):
        assert abs(values.mean() - 1) < 5 * values.std(ddof=1) / math.sqrt(40) + 1 / 100


@pytest.mark.sample(1)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(("activation", "share", "inputs"), [("identity", 1.0, (6,)), ("relu", 0.5, (6,)),
                                                             ("relu", 0.5, (2, 4))])  # fmt: skip
def test_growth_of_the_residual_chain(activation: str, share: float, inputs: tuple[int, ...], stable: bool) -> None:
    """(1 + sigma_w^2 share scale^2) a block: exact for the identity, up to 1/width a block for ReLU.

    Means over 60 networks of width 60, |z| < 5 beside that: false alarms about 1e-5 in six tests, the skew included.
    """
    blocks, width = 8, 60
    nets = [residual_chain(blocks, width, inputs, stable, None, activation, seed=seed) for seed in range(60)]
    found = mean_squares(nets, torch.ones(1, *inputs)) / 2  # the first layer has sigma_w^2 = 2
    predicted = (1 + 2 * share / (blocks if stable else 1)) ** blocks
    shift = 0.0 if activation == "identity" else predicted * blocks / width * (1 / blocks if stable else 1)
    assert abs(float(found.mean()) - predicted) < 5 * float(found.std()) / math.sqrt(len(found)) + shift
    assert predicted < math.e**2 if stable else predicted > 200


def test_residual_chain_written_out() -> None:
    net = residual_chain(3, 5, (4,), True, 2, "tanh", biases=e0.Gaussian(0.2), dtype=torch.float64)
    w = list(net.parameters())
    x = torch.randn(6, 4, generator=e0.seeds.generator(0), dtype=torch.float64)
    y = x @ w[0].T + w[1]
    for place in (2, 4, 6):
        y = y + (y.tanh() @ w[place].T + w[place + 1]) / math.sqrt(3)
    torch.testing.assert_close(net(x), y.tanh() @ w[8].T + w[9], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("depth", "prunable", "tensors"),
    [(11, 9_222_848, 9), (13, 9_407_168, 11), (16, 14_715_584, 14), (19, 20_024_000, 17)],
)
def test_weights_of_vgg(depth: int, prunable: int, tensors: int) -> None:
    found = [p.numel() for p in vgg(depth).parameters() if p.dim() >= 2]
    assert (sum(found), len(found)) == (prunable, tensors)


def test_parameters_of_vgg16() -> None:
    assert sum(p.numel() for p in vgg(16).parameters()) == 14_724_042
    assert sum(p.numel() for p in vgg(16, norm=None).parameters()) == 14_715_584 + 4_224 + 10
    wide = sum(p.numel() for p in vgg(16, width=2).parameters() if p.dim() == 4)
    assert wide == 4 * 14_710_464 - 2 * 3 * 64 * 9  # the image keeps its three channels


def test_threefold_vgg16_is_deeper_not_wider() -> None:
    net = vgg(16, repeat=3, width=1 / 16)
    kinds = [type(layer).__name__ for layer in net.features]
    blocks = " ".join(kinds).split(" MaxPool2d ")
    assert [block.count("Conv2d") for block in blocks] == [6, 6, 9, 9, 9]
    assert sum(p.numel() for p in vgg(16, repeat=3).parameters() if p.dim() >= 2) == 47_303_360
    assert kinds.count("MaxPool2d") == sum(isinstance(m, nn.MaxPool2d) for m in vgg(16, width=1 / 16).features) == 4
    assert {m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)} == {4, 8, 16, 32}


@pytest.mark.parametrize("circular", [False, True])
def test_vgg_written_out(circular: bool) -> None:
    net = vgg(13, width=1 / 16, norm=None, padding="circular" if circular else "zeros", biases=e0.Gaussian(0.1))
    x = torch.randn(2, 3, 32, 32, generator=e0.seeds.generator(0))
    h, state = x, list(net.parameters())
    for place in range(10):
        h = F.max_pool2d(h, 2) if place in (2, 4, 6, 8) else h
        h = F.conv2d(F.pad(h, (1,) * 4, mode="circular" if circular else "constant"), *state[2 * place : 2 * place + 2])
        h = h.relu()
    torch.testing.assert_close(net(x), h.mean((2, 3)) @ state[20].T + state[21])
    assert vgg(16)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", SMALL)
def test_seeded_whatever_the_global_generator(name: str) -> None:
    before = torch.get_rng_state()
    first = build(name, seed=3)[0].state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(17)
    again, other = (build(name, **more)[0].state_dict() for more in ({"seed": 3}, {}))
    torch.set_rng_state(before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", SMALL)
def test_backward_reaches_every_weight(name: str) -> None:
    net, shape = build(name, dtype=torch.float64, activation="tanh")
    x = torch.randn(4, *shape, generator=e0.seeds.generator(1), dtype=torch.float64)
    outputs = net(x)
    outputs.square().sum().backward()
    assert outputs.shape == (4, 10) and outputs.dtype == torch.float64
    assert all(bool(p.grad.isfinite().all()) and bool(p.grad.any()) for p in net.parameters() if p.dim() >= 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SMALL)
def test_regions_on_a_line(name: str) -> None:
    net, shape = build(name, biases=e0.Gaussian(0.1))
    twin = build(name, biases=e0.Gaussian(0.1), dtype=torch.float64)[0].eval()
    twin.load_state_dict(net.state_dict())
    x0, x1 = torch.randn(2, *shape, generator=e0.seeds.generator(3), dtype=torch.float64)
    x1 = x0 + 0.3 * (x1 - x0) if "VGG" in name else x1
    found = e0.regions.on_line(net, x0, x1).count
    assert found > 20
    assert found == len(line_breaks(twin, x0, x1, 1_001)) + 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SMALL)
def test_gain_and_initialize(name: str) -> None:
    net, shape = build(name)
    x = torch.randn(16, *shape, generator=e0.seeds.generator(1))
    weights = [n for n, p in net.named_parameters() if p.dim() >= 2]
    assert len(e0.gain(net, x, directions=2).layers) == len(weights)
    done = initialize(net, x=x)
    assert [layer.name for layer in done.layers] == weights and not done.untouched


def test_initialize_finds_the_edge_of_chaos_of_a_v_cnn() -> None:
    net = vanilla_cnn(6, 30, inputs=(2, 6, 6))
    done = initialize(net, x=torch.randn(16, 2, 6, 6, generator=e0.seeds.generator(1)))
    assert [layer.weight_std for layer in done.layers[:6]] == [pytest.approx(math.sqrt(2), rel=1e-3)] * 6


@pytest.mark.slow
def test_checkup() -> None:
    net = vanilla_cnn(30, 16, inputs=(2, 12), activation="tanh", weights=e0.Gaussian(0.3))  # Adam learns no batch
    found = e0.checkup(net, torch.randn(32, 2, 12, generator=e0.seeds.generator(1)))
    assert found.outcome == "vanishing"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "make",
    [
        lambda: e0.networks.mlp([784, *[100] * 200, 10]),
        lambda: vanilla_cnn(200),
        lambda: residual_chain(200),
        lambda: vgg(16, repeat=3, width=1 / 4),
    ],
)
def test_deep_networks_are_built_quickly(make) -> None:
    start = time.process_time()
    make()
    assert time.process_time() - start < 2  # measured: 0.02 to 0.1


@pytest.mark.parametrize(
    ("name", "shape"), [("vanilla_cnn", (1, 28, 28)), ("vgg", (3, 32, 32)), ("residual_chain", (784,))]
)
def test_named_on_the_command_line(name: str, shape: tuple[int, ...]) -> None:
    assert load_model(f"epoch0.networks:{name}").eval()(torch.zeros(1, *shape)).shape == (1, 10)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: vanilla_cnn(0), "depth=0"),
        (lambda: vanilla_cnn(3, (4, 4)), "for all 3 layers"),
        (lambda: vanilla_cnn(3, 0), "channels=0"),
        (lambda: vanilla_cnn(kernel=4), "use 3 or 5"),
        (lambda: vanilla_cnn(kernel=0), "kernel=0: give an integer >= 1"),
        (lambda: vanilla_cnn(kernel=9, inputs=(1, 3, 8)), "goes round"),
        (lambda: vanilla_cnn(inputs=(784,)), "channels first"),
        (lambda: vanilla_cnn(inputs=(1, 2, 3, 4)), "channels first"),
        (lambda: vanilla_cnn(inputs=(1, 0, 8)), "inputs.1.=0: give"),
        (lambda: vanilla_cnn(classes=0), "classes=0"),
        (lambda: vanilla_cnn(activation="thanh"), "Did you mean 'tanh'"),
        (lambda: vanilla_cnn(dtype=torch.int32), "int32"),
        (lambda: vanilla_cnn(seed=-1), "seed=-1"),
        (lambda: residual_chain(0), "blocks=0"),
        (lambda: residual_chain(width=0), "width=0"),
        (lambda: residual_chain(inputs=()), "inputs=\\(\\)"),
        (lambda: residual_chain(inputs=(3, 8), kernel=2), "use 1 or 3|use 3"),
        (lambda: residual_chain(classes=-1), "classes=-1"),
        (lambda: vgg(17), "11, 13, 16 or 19"),
        (lambda: vgg(width=0.01), "such as 0.015625"),
        (lambda: vgg(repeat=0), "repeat=0"),
        (lambda: vgg(classes=0), "classes=0"),
        (lambda: vgg(inputs=(3, 15, 32)), "at least 16"),
        (lambda: vgg(norm="group"), "norm='group'"),
        (lambda: vgg(padding="reflect"), "'circular'"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
