"""What is carried to the end of each layer and to each part, against plain autograd; correlated layers; blame."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0
from carried_models import Recurrent, Tokens, dense, normed, residual
from epoch0.diagnosis.result import Checkup, LayerCheckup
from epoch0.diagnosis.rows import to_blame
from epoch0.diagnosis.verdict import CumulativeGain, Signs
from epoch0.seeds import generator

Walk = Callable[[nn.Module, Tensor], list[Tensor]]


def walk_residual(net: nn.Module, x: Tensor) -> list[Tensor]:
    one = torch.relu(net[0](x))
    two = net[2](one)
    three = net[3](two)
    four = net[5](net[4](three))
    return [one, two, three, four, net[7](four.flatten(1))]


def walk_dense(net: nn.Module, x: Tensor) -> list[Tensor]:
    found = [torch.relu(net[0](x))]
    for block in (net[2], net[3]):
        found.append(torch.cat([found[-1], torch.relu(block.one(found[-1]))], 1))
        found.append(torch.cat([found[-1], torch.relu(block.two(found[-1]))], 1))
    return [*found, net[5](found[-1].flatten(1))]


def walk_recurrent(net: nn.Module, x: Tensor) -> list[Tensor]:
    found = [x]
    for _ in range(3):
        found.append(torch.tanh(net.inner(found[-1])))
    return [*found[1:], net.head(found[-1])]


def walk_tokens(net: nn.Module, e: Tensor) -> list[Tensor]:
    """From the embedding's output on."""
    h = e + net.down(F.gelu(net.up(net.norm(e))))
    return [h, net.head(h)]


def walk_normed(net: nn.Module, x: Tensor) -> list[Tensor]:
    found = [x]
    for place in (0, 3, 6):
        found.append(torch.relu(net[place + 1](net[place](found[-1]))))
    return [*found[1:], net[9](found[-1])]


CASES: dict[str, tuple[Callable[[], nn.Module], str, Walk]] = {
    "zero gamma": (lambda: residual(zero=True), "images", walk_residual),
    "relu after the sum": (lambda: residual(zero=False), "images", walk_residual),
    "zero gamma, nothing after the sum": (lambda: residual(zero=True, after=False), "images", walk_residual),
    "densely connected": (dense, "images", walk_dense),
    "one layer three times": (Recurrent, "vectors", walk_recurrent),
    "embedding is the head": (Tokens, "tokens", walk_tokens),
    "batch norm": (normed, "vectors", walk_normed),
}


def batch(kind: str) -> tuple[Tensor, Tensor]:
    source = generator(5)
    if kind == "tokens":
        return torch.randint(9, (10, 5), generator=source), torch.randint(9, (10, 5), generator=source)
    shape = (10, 2, 5, 5) if kind == "images" else (10, 12)
    return torch.randn(shape, generator=source, dtype=torch.float64), torch.arange(10) % 4


def built(case: str) -> tuple[nn.Module, Tensor, Tensor, Walk]:
    build, kind, walk = CASES[case]
    torch.manual_seed(0)
    return build().double(), *batch(kind), walk


def judged(net: nn.Module, x: Tensor, y: Tensor) -> Checkup:
    return e0.checkup(net, x, y, trial=False, remedies=False, directions=3)


def twin_of(net: nn.Module) -> nn.Module:
    """A copy whose batch norm has the statistics of the batch, and keeps none."""
    twin = copy.deepcopy(net).train()
    for module in twin.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return twin


def carried(walk: Callable[[Tensor], list[Tensor]], start: Tensor) -> list[float]:
    """Norms a unit of what three tangents become, relative to what they were."""
    squares = []
    for d in range(3):
        v = torch.randn(start.shape, generator=generator(0, 2, d), dtype=torch.float64)
        _, moved = torch.func.jvp(lambda s: tuple(walk(s)), (start,), (v,))
        squares.append(torch.stack([m.square().mean() for m in moved]) / v.square().mean())
    return torch.stack(squares).mean(0).sqrt().tolist()


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_carried_through_layers_as_plain_autograd_carries_it(case: str) -> None:
    net, x, y, walk = built(case)
    rows = judged(net, x, y).layers
    twin = twin_of(net)
    start = twin.embedding(x).detach() if case == "embedding is the head" else x
    assert [row.tangent for row in rows] == pytest.approx(carried(lambda s: walk(twin, s), start), rel=1e-9)

    stations = walk(twin, start)
    loss = F.cross_entropy(stations[-1].flatten(0, -2), y.flatten())
    gradients = torch.autograd.grad(loss, stations)
    assert [row.gradient for row in rows] == pytest.approx([float(g.norm()) for g in gradients], rel=1e-9)
    sizes = [math.sqrt(float(s.detach().square().mean())) for s in stations]
    assert [row.norm_out for row in rows] == pytest.approx(sizes, rel=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", ["zero gamma", "relu after the sum", "embedding is the head", "batch norm"])
def test_carried_to_the_parts_as_plain_autograd_carries_it(case: str) -> None:
    net, x, y, walk = built(case)
    parts = [part for row in judged(net, x, y).layers for part in row.parts]
    assert len(parts) >= 3
    twin = twin_of(net)
    seen: dict[str, Tensor] = {}
    for part in parts:
        keep = lambda module, args, result, name=part.name: seen.update({name: result})  # noqa: E731
        twin.get_submodule(part.name).register_forward_hook(keep)
    start = twin.embedding(x).detach() if case == "embedding is the head" else x

    def inside(s: Tensor) -> list[Tensor]:
        walk(twin, s)
        return [seen[part.name] for part in parts]

    assert [part.tangent for part in parts] == pytest.approx(carried(inside, start), rel=1e-9)
    output = walk(twin, start)[-1]
    found = torch.autograd.grad(
        F.cross_entropy(output.flatten(0, -2), y.flatten()), [seen[part.name] for part in parts], allow_unused=True
    )
    expected = [0.0 if g is None else float(g.norm()) for g in found]
    assert [part.gradient for part in parts] == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_gain_of_a_part_is_that_of_its_jacobian() -> None:
    """A linear map stretches a fresh tangent by |W|^2/n_out in the mean; one draw of 400 x 200 numbers is near it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(200, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 3)).double()
    x = torch.randn(400, 200, generator=generator(1), dtype=torch.float64)
    first = judged(net, x, torch.arange(400) % 3).layers[0]
    part = first.parts[0]
    assert part.name == "0" and part.gain == pytest.approx(float(net[0].weight.detach().square().sum()) / 100, rel=0.03)
    assert part.update == pytest.approx(first.update)


def test_updates_are_the_first_step_of_adam_against_the_weights() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).double()
    x, y = batch("vectors")
    found = judged(net, x, y)
    rate = found.recipes["adam"].learning_rate
    for row, layer in zip(found.layers, (net[0], net[2]), strict=True):
        # every weight moves by the rate, whatever its gradient
        expected = [rate / float(p.detach().square().mean().sqrt()) for p in layer.parameters()]
        assert row.update in (pytest.approx(expected[0], rel=0.1), pytest.approx(max(expected), rel=0.1))


def test_relu_after_an_empty_branch_halves_fresh_tangents_and_no_carried_ones() -> None:
    net, x, y, _ = built("zero gamma")
    found = judged(net, x, y)
    for before, block in zip(found.layers[:2], found.layers[1:3], strict=True):
        # fresh directions lose those where ReLU is off, 2 errors of 3 directions of 1500 numbers
        assert block.forward_gain < 0.75
        assert block.tangent == pytest.approx(before.tangent, rel=1e-12)


def test_independent_layers_multiply() -> None:
    net = e0.networks.mlp([32, *[128] * 5, 5], weights=e0.Gaussian(2**0.5), seed=2)
    x = torch.randn(64, 32, generator=generator(1))
    found = e0.checkup(net, x, torch.arange(64) % 5, trial=False, remedies=False)
    product = math.prod(row.forward_gain for row in found.layers)
    assert found.layers[-1].tangent ** 2 == pytest.approx(product, rel=0.25)


def test_passages_go_from_the_first_layer_s_end_to_the_last_one_s_start() -> None:
    net, x, y, _ = built("one layer three times")
    found = judged(net, x, y)
    first, last = found.layers[0], found.layers[-2]
    assert found.forward.factor == pytest.approx(last.tangent / first.tangent)
    assert found.backward.factor == pytest.approx(first.gradient / last.gradient)
    assert found.forward.layers == found.backward.layers == 2


def row(name: str, tangent: float, gradient: float) -> LayerCheckup:
    return LayerCheckup(
        name=name, kind="linear", shape_out=(4,), norm_in=1.0, norm_out=1.0, forward_gain=1.0,
        forward_error=0.1, backward_gain=1.0, backward_error=0.1, predicted=None, predicted_error=math.nan,
        agreement="", averaged=1.0, tangent=tangent, gradient=gradient, update=None,
        dissimilarity=None, dead_units=0.0, saturated=None, status="keeps",
    )  # fmt: skip


def test_the_layer_to_blame_does_most_of_the_harm() -> None:
    signs = Signs(CumulativeGain(0.0, 3), CumulativeGain(2 * math.log(1e-4), 3), 1.0, 1.0, 0.5)
    rows = [row("a", 1, 1e-4), row("b", 1, 2e-4), row("c", 1, 1.0), row("d", 1, 1.1)]
    blamed = to_blame(rows, "vanishing", signs)
    assert blamed is not None and blamed[0] == "c" and "gradients change by a factor of 0.0002" in blamed[1]
    even = [row(str(place), 1, 10.0 ** (place - 6)) for place in range(6)]
    assert to_blame(even, "vanishing", signs) is None
    assert to_blame(rows, "slow", signs) is None
    forward = Signs(CumulativeGain(2 * math.log(1e5), 3), CumulativeGain(0.0, 3), 1.0, 1.0, 0.5)
    grown = to_blame([row("a", 1, 1), row("b", 1e5, 1), row("c", 2e5, 1)], "exploding", forward)
    assert grown is not None and grown[0] == "b" and "differences between inputs" in grown[1]


@pytest.mark.parametrize(
    ("cause", "field"),
    [("overflow", "overflowing"), ("no gradient", "dead"), ("collapsed", "collapsed"), ("saturated", "saturated")],
)
def test_a_layer_in_a_bad_state_is_to_blame(cause: str, field: str) -> None:
    signs = Signs(CumulativeGain(0.0, 3), CumulativeGain(0.0, 3), 1.0, 1.0, 0.5, **{field: ("x", "y")})
    blamed = to_blame([], cause, signs)
    assert blamed is not None and blamed[0] == "x"


def test_a_layer_is_told_by_its_operations() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    found = e0.checkup(net, torch.randn(20, 1, 8, 8, generator=generator(0)), trial=False, remedies=False)
    assert [layer.kind for layer in found.layers] == ["convolution, batch norm, relu", "linear"]
