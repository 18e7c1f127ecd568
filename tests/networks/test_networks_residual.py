"""Residual networks: published counts and names, a plain twin of the forward, what the stable factor does."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.initialization import initialize
from epoch0.models import load_model
from epoch0.networks import resnet
from epoch0.networks.residual import BasicBlock
from region_twins import line_breaks

SMALL = {
    "cifar": {"depth": 8, "width": 0.25, "inputs": (1, 8, 8)},
    "stable": {"depth": 8, "width": 0.25, "inputs": (1, 8, 8), "stable": True, "norm": None},
    "basic": {"depth": 18, "width": 1 / 32, "inputs": (1, 32, 32), "variant": "imagenet", "classes": 5},
    "bottleneck": {"depth": 50, "width": 1 / 32, "inputs": (1, 8, 8), "variant": "imagenet", "stem": "3x3"},
}
LARGE_ARE_SLOW = ["cifar", "stable", "basic", pytest.param("bottleneck", marks=pytest.mark.slow)]


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("depth", "published"),
    [(20, 272_474), (32, 466_906), (44, 661_338), (56, 855_770), (110, 1_730_714)],
)
def test_parameters_on_cifar(depth: int, published: int) -> None:
    assert parameters(resnet(depth)) == published


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("depth", "published"),
    [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032), (101, 44_549_160), (152, 60_192_808)],
)
def test_parameters_on_imagenet(depth: int, published: int) -> None:
    assert parameters(resnet(depth, variant="imagenet")) == published


def test_prunable_weights_of_resnet32_with_doubled_filters() -> None:
    sizes = {"conv1": 3 * 32 * 9}
    before = 32
    for stage, after in enumerate((32, 64, 128), start=1):
        for place in range(5):
            sizes[f"layer{stage}.{place}.conv1"] = before * after * 9
            sizes[f"layer{stage}.{place}.conv2"] = after * after * 9
            if before != after:
                sizes[f"layer{stage}.{place}.downsample.0"] = before * after
            before = after
    sizes["linear"] = 1280
    found = {name: p.numel() for name, p in resnet(32, width=2).named_parameters() if p.dim() >= 2}
    assert found == {f"{name}.weight": size for name, size in sizes.items()}
    assert list(found) == [f"{name}.weight" for name in sizes]
    assert len(found) == 34 and sum(found.values()) == 1_855_584


def test_multiplications_of_resnet32_with_doubled_filters() -> None:
    net, found = resnet(32, width=2), []
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda m, _, y: found.append(m.weight.numel() * y[0, 0].numel()))
    net.eval()(torch.zeros(1, 3, 32, 32))
    assert sum(found) == pytest.approx(275.6e6, rel=2e-4)  # as measured elsewhere for this network


@pytest.mark.parametrize(("depth", "blocks"), [(20, 9), (32, 15), (50, 24), (56, 27), (104, 51)])
def test_stable_factor_counts_blocks(depth: int, blocks: int) -> None:
    stable = [m.scale for m in resnet(depth, width=1 / 16, stable=True).modules() if isinstance(m, BasicBlock)]
    assert stable == [pytest.approx(blocks**-0.5)] * blocks
    assert all(m.scale == 1.0 for m in resnet(depth, width=1 / 16).modules() if isinstance(m, BasicBlock))


@pytest.mark.parametrize(
    ("variant", "depth", "shape", "classes"),
    [("cifar", 8, (3, 32, 32), 10), ("tiny_imagenet", 8, (3, 64, 64), 200), ("imagenet", 18, (3, 224, 224), 1000)],
)
def test_shapes_forward_and_backward(variant: str, depth: int, shape: tuple[int, ...], classes: int) -> None:
    net = resnet(depth, variant=variant, width=1 / 8)
    outputs = net(torch.randn(2, *shape, generator=e0.seeds.generator(0)))
    outputs.square().sum().backward()
    assert outputs.shape == (2, classes)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
    assert all(bool(p.grad.any()) for name, p in net.named_parameters() if p.dim() >= 2)


def plain_forward(net: nn.Module, x: Tensor, counts: list[int], scale: float, circular: bool) -> Tensor:
    """The same network from its state, written out: basic blocks or bottlenecks, evaluation mode, ReLU."""
    state = dict(net.state_dict())

    def conv(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight, bias = state[f"{name}.weight"], state.get(f"{name}.bias")
        side = weight.shape[-1] // 2
        padded = F.pad(x, (side,) * 4, mode="circular" if circular and side else "constant")
        return F.conv2d(padded, weight, bias, stride)

    def norm(x: Tensor, name: str) -> Tensor:
        if f"{name}.running_mean" not in state:
            return x
        parts = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (state[f"{name}.{part}"][:, None, None] for part in parts)
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    x = norm(conv(x, "conv1", 2 if state["conv1.weight"].shape[-1] == 7 else 1), "bn1").relu()
    x = F.max_pool2d(x, 3, 2, 1) if state["conv1.weight"].shape[-1] == 7 else x
    for stage, count in enumerate(counts, start=1):
        for place in range(count):
            name, stride = f"layer{stage}.{place}", 2 if stage > 1 and place == 0 else 1
            deep = f"{name}.conv3.weight" in state
            h = norm(conv(x, f"{name}.conv1", 1 if deep else stride), f"{name}.bn1").relu()
            h = norm(conv(h, f"{name}.conv2", stride if deep else 1), f"{name}.bn2")
            h = norm(conv(h.relu(), f"{name}.conv3"), f"{name}.bn3") if deep else h
            if f"{name}.downsample.0.weight" in state:
                x = norm(conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
            x = (x + scale * h).relu()
    last = "fc" if "fc.weight" in state else "linear"
    return x.mean((2, 3)) @ state[f"{last}.weight"].T + state[f"{last}.bias"]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        ({"depth": 14, "width": 0.5}, [2, 2, 2]),
        ({"depth": 14, "width": 0.5, "norm": None, "padding": "circular", "biases": e0.Gaussian(0.1)}, [2, 2, 2]),
        ({"depth": 34, "width": 1 / 16, "variant": "imagenet", "inputs": (3, 40, 33)}, [3, 4, 6, 3]),
        ({"depth": 50, "width": 1 / 16, "variant": "imagenet", "inputs": (3, 40, 33)}, [3, 4, 6, 3]),
        ({"depth": 18, "width": 1 / 16, "variant": "imagenet", "inputs": (3, 40, 33), "stem": "3x3"}, [2, 2, 2, 2]),
    ],
)
def test_equal_to_a_plain_forward(arguments: dict, counts: list[int], stable: bool) -> None:
    net = resnet(**arguments, stable=stable, dtype=torch.float64)
    source = e0.seeds.generator(4)
    for module in net.modules():  # norms that do something
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.running_var, module.weight.data, module.bias.data):
                tensor.copy_(torch.rand(tensor.shape, generator=source, dtype=torch.float64) + 0.5)
    x = torch.randn(3, *arguments.get("inputs", (3, 17, 16)), generator=source, dtype=torch.float64)
    scale = 1 / math.sqrt(sum(counts)) if stable else 1.0
    expected = plain_forward(net, x, counts, scale, arguments.get("padding") == "circular")
    torch.testing.assert_close(net.eval()(x), expected, rtol=1e-10, atol=1e-10)


def test_batch_norm_starts_as_the_identity() -> None:
    norms = [m for m in resnet(8).modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 1 + 6 + 2
    for m in norms:
        assert m.running_var.eq(1).all() and m.weight.eq(1).all() and int(m.num_batches_tracked) == 0
        assert not m.running_mean.any() and not m.bias.any()


def test_seeded_whatever_the_global_generator() -> None:
    before = torch.get_rng_state()
    first = resnet(8, seed=3).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(17)
    again, stable, other = (resnet(8, **more).state_dict() for more in ({"seed": 3}, {"seed": 3, "stable": True}, {}))
    torch.set_rng_state(before)
    assert all(torch.equal(first[name], again[name]) and torch.equal(first[name], stable[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_weights_have_the_law_and_the_fan_in() -> None:
    net = resnet(20, width=2, weights=e0.Uniform(3.0), biases=e0.Gaussian(0.1), norm=None, dtype=torch.float64)
    for name, p in net.named_parameters():
        assert p.dtype == torch.float64
        if p.dim() >= 2:
            squares = p.detach().square() * p[0].numel() / 3.0
            # U(-3, 3) has variance 3 and kurtosis 9/5; |z| < 5 in each of 22 tensors: false alarms 1.3e-5
            assert float(squares.mean()) == pytest.approx(1, abs=5 * math.sqrt(0.8 / p.numel())), name
            assert float(p.detach().abs().max()) <= 3 / math.sqrt(p[0].numel())
    assert all(bool(p.any()) for name, p in net.named_parameters() if name.endswith("bias"))
    assert not resnet(8).linear.bias.any()


@pytest.mark.parametrize("activation", ["tanh", "elu", "gelu", "hardtanh", e0.activations.leaky_relu(0.2)])
def test_any_activation(activation: str | e0.activations.Activation) -> None:
    net = resnet(8, activation=activation, norm=None, stable=True, width=1 / 4, dtype=torch.float64)
    kind = type(e0.networks.mlp([2, 2, 2], activation)[1])
    assert sum(type(m) is kind for m in net.modules()) == 7
    assert net(torch.ones(2, 3, 8, 8, dtype=torch.float64)).shape == (2, 10)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LARGE_ARE_SLOW)
def test_regions_on_a_line(name: str) -> None:
    net = resnet(**SMALL[name])
    x0, x1 = torch.randn(2, *SMALL[name]["inputs"], generator=e0.seeds.generator(3), dtype=torch.float64)
    x1 = x0 + 0.2 * (x1 - x0)
    twin = resnet(**SMALL[name], dtype=torch.float64).eval()
    twin.load_state_dict(net.state_dict())
    if name == "basic":  # the twin's max pool knows no padding
        twin.maxpool = nn.Sequential(nn.ConstantPad2d(1, -1e30), nn.MaxPool2d(3, 2))
    found = e0.regions.on_line(net, x0, x1).count
    assert found > 50
    assert found == len(line_breaks(twin, x0, x1, 801)) + 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LARGE_ARE_SLOW)
def test_gain_and_initialize(name: str) -> None:
    net = resnet(**SMALL[name])
    x = torch.randn(16, *SMALL[name]["inputs"], generator=e0.seeds.generator(1))
    blocks = {"cifar": 3, "stable": 3, "basic": 8, "bottleneck": 16}[name]
    kinds = [layer.kind for layer in e0.gain(net, x, directions=2).layers]
    assert kinds == ["convolution", *["residual block"] * blocks, "linear"]
    weights = [n for n, p in net.named_parameters() if p.dim() >= 2]
    done = initialize(net, x=x)
    assert sorted(layer.name for layer in done.layers) == sorted(weights) and not done.untouched
    assert all(bool(p.isfinite().all()) for p in net.parameters())


@pytest.mark.slow
def test_checkup() -> None:
    x = torch.randn(8, 1, 8, 8, generator=e0.seeds.generator(1))
    plain, stable = (
        e0.checkup(resnet(20, width=0.25, inputs=(1, 8, 8), norm=None, stable=stable), x) for stable in (False, True)
    )
    assert plain.to_dict()["backward"]["factor"] > 3 * stable.to_dict()["backward"]["factor"]


def stage_squares(stable: bool, seeds: range) -> Tensor:
    """Mean squares around the two blocks of the first stage: (networks, blocks, in / before the ReLU / out)."""
    rows = []
    for seed in seeds:
        net = resnet(14, stable=stable, norm=None, padding="circular", seed=seed)
        x, sums = torch.randn(1, 3, 6, 6, generator=e0.seeds.generator(seed, 1)), []
        for block in net.layer1:
            block.activation2.register_forward_pre_hook(lambda _, inputs, sums=sums: sums.append(inputs[0]))
        with torch.no_grad():
            first = net.activation1(net.conv1(x))
            second = net.layer1[0](first)
            third = net.layer1[1](second)
        rows.append([[t.square().mean() for t in (first, sums[0], second)],
                     [t.square().mean() for t in (second, sums[1], third)]])  # fmt: skip
    return torch.tensor(rows).double()


@pytest.mark.sample(1)
@pytest.mark.parametrize("stable", [False, True])
def test_a_block_adds_its_branch_in_the_mean(stable: bool) -> None:
    """With He's law and circular padding E|sum|^2 = (1 + 2 scale^2) E|x|^2 exactly, at any width.

    The paired difference has mean 0; |z| < 5 over 80 networks, four means in all: false alarms below 1e-5.
    """
    squares = stage_squares(stable, range(80))
    growth = 1 + 2 * (1 / 6 if stable else 1.0)
    difference = squares[..., 1] - growth * squares[..., 0]
    z = difference.mean(0) / (difference.std(0) / math.sqrt(len(difference)))
    assert bool((z.abs() < 5).all())
    # so a ReLU behind the sum leaves at least half of it, and at most all: 1.5 <= plain, stable <= 1 + 2/L
    ratios = squares[..., 2].mean(0) / squares[..., 0].mean(0)
    assert bool((ratios < 1.1 * growth).all()) and bool((ratios > 0.45 * growth).all())


def test_stable_networks_stay_where_plain_ones_explode() -> None:
    """ReLU keeps half of a sum or more: plain blocks grow more than 1.5-fold each, stable ones less than 1 + 2/24."""
    squares = {}
    for stable in (False, True):
        net = resnet(50, width=2, stable=stable, norm=None, padding="circular")
        x = torch.randn(1, 3, 6, 6, generator=e0.seeds.generator(1))
        with torch.no_grad():
            start = net.activation1(net.conv1(x))
            squares[stable] = float(net.layer1(start).square().mean() / start.square().mean())
    # one network of width 32: its factor scatters by less than a factor of 3
    assert squares[False] > 1.5**8 / 3
    assert squares[True] < 3 * math.exp(2 * 8 / 24)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"depth": 33}, "nearest are 32 and 38"),
        ({"depth": 2}, "nearest are 8 and 14"),
        ({"depth": -5}, ">= 1"),
        ({"depth": 18}, "variant='imagenet' has this depth"),
        ({"depth": 20, "variant": "imagenet"}, "18, 34, 50, 101 or 152"),
        ({"variant": "cifr"}, "Did you mean 'cifar'"),
        ({"width": 0.3}, "such as 0.3125"),
        ({"width": 0}, "finite number > 0"),
        ({"width": float("nan")}, "width=nan"),
        ({"classes": 0}, "classes=0"),
        ({"activation": "rellu"}, "Did you mean 'relu'"),
        ({"inputs": (3, 32)}, "inputs=\\(3, 32\\)"),
        ({"inputs": (3, 2, 32)}, "divide the sides by 4"),
        ({"stem": "5x5"}, "'7x7'"),
        ({"norm": "layer"}, "norm='layer'"),
        ({"padding": "circle"}, "Did you mean 'circular'"),
        ({"seed": -1}, "seed=-1"),
        ({"dtype": torch.float16}, "float16"),
    ],
)
def test_bad_input(arguments: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        resnet(**arguments)


def test_named_on_the_command_line() -> None:
    net = load_model("epoch0.networks:resnet")
    assert parameters(net) == 466_906
