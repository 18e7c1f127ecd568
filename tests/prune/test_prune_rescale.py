"""Rescaling a pruned model to the edge of chaos: its identity, its gains as measured, and what it must leave alone."""

import copy
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils import prune as torch_prune

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.initialization import initialize
from epoch0.prune.effects.rescale import WAYS, rescale, rescaled
from epoch0.prune.masks.places import Masked

SIGMA = {"relu": 2.0, "tanh": 1.700796}
"""sigma_w^2 on the edge of chaos, for tanh with sigma_b = 0.2; q* is 0.512078 there."""


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def dense(activation="relu", depth=4, width=50, size=30, seed=0, sigma_b=None):
    bias = (0.2 if activation == "tanh" else 0.0) if sigma_b is None else sigma_b
    return e0.networks.mlp(
        [size, *[width] * depth, 10], activation, weights=e0.Gaussian(math.sqrt(SIGMA[activation])),
        biases=e0.Gaussian(bias), seed=seed,
    )  # fmt: skip


def chain(depth=4, channels=12, kernel=3, seed=0):
    """A V-CNN: circular convolutions and ReLU, then a linear map."""
    torch.manual_seed(seed)
    layers, inputs = [], 3
    for _ in range(depth):
        layers += [nn.Conv2d(inputs, channels, kernel, padding=kernel // 2, padding_mode="circular", bias=False)]
        layers += [nn.ReLU()]
        inputs = channels
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * 64, 10))
    for module in net:
        if hasattr(module, "weight"):
            nn.init.normal_(module.weight, std=math.sqrt(2 / module.weight[0].numel()))
    return net


def weighted(net):
    return {name: m for name, m in net.named_modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)}


def masked(net, sparsity, seed=0, masks=None):
    """The net with random masks, or those given."""
    gen = source(seed)
    for name, module in weighted(net).items():
        mask = torch.rand(module.weight.shape, generator=gen) >= sparsity if masks is None else masks[name]
        parametrize.register_parametrization(module, "weight", Masked(mask))
    return net


def snip_masks(net, x, targets, sparsity):
    """SNIP in a few lines: the independent twin, float64."""
    net = copy.deepcopy(net).double()
    weights = {name: module.weight for name, module in weighted(net).items()}
    loss = nn.functional.cross_entropy(net(x.double()), targets)
    gradients = torch.autograd.grad(loss, list(weights.values()))
    scores = {name: (w * g).detach().abs() for (name, w), g in zip(weights.items(), gradients, strict=True)}
    every = torch.cat([score.flatten() for score in scores.values()])
    threshold = every.kthvalue(round(sparsity * len(every))).values
    return {name: score > threshold for name, score in scores.items()}


def sums(net):
    """Sum of squared weights that are used, into each output unit or channel."""
    return {name: m.weight.detach().double().square().flatten(1).sum(1) for name, m in weighted(net).items()}


# ---- the identity


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_row_gives_each_row_sigma_w(activation: str, sparsity: float) -> None:
    net = masked(dense(activation, sigma_b=0.0 if activation == "relu" else 0.2), sparsity)
    empty = masked_row(net, "2", 7)
    done = rescale(net, "row", x=torch.randn(5, 30, generator=source()))
    assert [row.name for row in done.layers] == [f"{2 * i}.weight" for i in range(5)]
    for row, (name, found) in zip(done.layers, sums(net).items(), strict=True):
        alive = net.get_submodule(name).parametrizations["weight"][0].mask.any(1)
        target = row.target**2
        assert found[alive].numpy() == pytest.approx(np.full(int(alive.sum()), target), rel=1e-5)
        assert bool((found[~alive] == 0).all()) and row.empty_rows == int((~alive).sum())
        expected = 1.0 if name == "8" else SIGMA[activation]  # nothing follows the last one
        assert target == pytest.approx(expected, rel=0.06)  # the biases of 50 units are not exactly 0.2
    assert bool((net[2].weight[empty] == 0).all())


def masked_row(net, name, row):
    """Prune one row in full."""
    net.get_submodule(name).parametrizations["weight"][0].mask[row] = False
    return row


@pytest.mark.parametrize("build", [dense, chain])
def test_layer_gives_the_mean_over_all_rows(build: object) -> None:
    net = masked(build(), 0.8)
    masked_row(net, "2", 3)
    before = {name: m.weight.detach().clone() for name, m in weighted(net).items()}
    x = torch.randn(4, 30, generator=source()) if build is dense else torch.randn(4, 3, 8, 8, generator=source())
    done = rescale(net, "layer", x=x)
    for row, (name, found) in zip(done.layers, sums(net).items(), strict=True):
        assert float(found.mean()) == pytest.approx(row.target**2, rel=1e-5) == pytest.approx(row.weight_std**2)
        assert row.smallest == row.factor == row.largest
        torch.testing.assert_close(net.get_submodule(name).weight.detach(), before[name] * row.factor)


def test_other_shapes_of_weights_against_plain_loops() -> None:
    """Groups, strides, transposed convolutions, x @ W: the row of a weight is the output it goes into."""

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4 * 36, 5, generator=source(1)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1) @ self.w

    net = nn.Sequential(
        nn.Conv2d(4, 6, 3, groups=2, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2),
        nn.ReLU(), Plain(),
    )  # fmt: skip
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=source(2)))
            if parameter.dim() > 1:
                parameter[torch.rand(parameter.shape, generator=source(3)) < 0.3] = 0.0
    rescale(net, "row", x=torch.randn(3, 4, 6, 6, generator=source()))
    conv, up, plain = net[0].weight.detach(), net[2].weight.detach(), net[4].w.detach()
    assert conv.square().sum((1, 2, 3)).numpy() == pytest.approx(np.full(6, 2.0), rel=1e-5)
    for group in range(2):
        for channel in range(2):
            total = sum(float(up[i, channel].square().sum()) for i in range(3 * group, 3 * group + 3))
            assert total == pytest.approx(2.0, rel=1e-5)
    assert plain.square().sum(0).numpy() == pytest.approx(np.ones(5), rel=1e-5)


class Batched(nn.Module):
    """Each group of examples has a matrix of its own, half of whose entries are zero."""

    def __init__(self) -> None:
        super().__init__()
        drawn, kept = torch.randn(3, 60, 40, generator=source(1)), torch.rand(3, 60, 40, generator=source(2)) < 0.5
        self.matrices = nn.Parameter(drawn * kept / math.sqrt(60))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.matrices)


@pytest.mark.parametrize("method", WAYS)
def test_a_stack_of_matrices_has_rows_in_each(method: str) -> None:
    """A loop over all rows: each way brings their mean sum of squares, about 1/2, to 2 within sampling error."""
    net = Batched()
    (layer,) = rescale(net, method, x=torch.randn(3, 100, 60, generator=source(3))).layers
    sums = [float(matrix[:, row].square().sum()) for matrix in net.matrices.detach() for row in range(40)]
    assert layer.rows == len(sums) and np.mean(sums) == pytest.approx(2, rel=0.05 if method == "measured" else 1e-5)


def test_the_function_is_that_of_the_scaled_weights_and_what_is_masked_scales_too() -> None:
    net = masked(dense(), 0.7)
    x = torch.randn(6, 30, generator=source())
    old = {name: m.parametrizations["weight"].original.detach().clone() for name, m in weighted(net).items()}
    done = rescale(net, "layer", x=x)
    h = x
    for place, row in enumerate(done.layers):
        module, scaled = net[2 * place], old[str(2 * place)] * row.factor
        torch.testing.assert_close(module.parametrizations["weight"].original.detach(), scaled)
        h = h @ (scaled * module.parametrizations["weight"][0].mask).T + module.bias.detach()
        h = h.relu() if place < 4 else h
    torch.testing.assert_close(net(x).detach(), h)


def test_measured_gives_the_variance_of_theory_after_each_layer() -> None:
    """Twin: the recursion q -> sigma_b^2 + sigma_w^2 E phi^2, example by example, on a plain run of the result."""
    for activation in ("relu", "tanh"):
        net = masked(dense(activation, depth=6, width=80), 0.8)
        x = torch.randn(20, 30, generator=source())
        done = rescale(net, "measured", x=x)
        z, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        phi = np.tanh if activation == "tanh" else lambda h: np.maximum(h, 0)
        h, expected = x, x.double().square().mean()
        for place, row in enumerate(done.layers):
            h = net[2 * place](h).detach()
            bare = (h - net[2 * place].bias.detach()).double()
            assert float(bare.square().mean()) == pytest.approx(row.target**2 * float(expected), rel=2e-3)
            q = h.double().square().mean(1).numpy()
            expected = np.mean([weights @ phi(math.sqrt(one) * z) ** 2 for one in q])
            h = net[2 * place + 1](h) if place < 6 else h


# ---- gains, measured


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "sparsity", [*(pytest.param(each, marks=pytest.mark.slow) for each in (0.5, 0.7, 0.8, 0.95)), 0.9]
)
@pytest.mark.parametrize("kind", ["relu", "tanh", "cnn"])
def test_chi_is_one_again(kind: str, sparsity: float) -> None:
    """Mean gain of the layers behind a rescaled weight against 1: false alarm below 1e-4 a case (four errors)."""
    if kind == "cnn":
        net, x = chain(depth=6, channels=64), torch.randn(4, 3, 8, 8, generator=source())
    else:
        net = dense(kind, depth=8, width=200, size=100)
        scale = 1.0 if kind == "relu" else math.sqrt((0.512078 - 0.04) / SIGMA["tanh"])  # q is q* from layer 1 on
        x = torch.randn(16, 100, generator=source()) * scale
    net = masked(net, sparsity)
    for how in WAYS:
        pruned = copy.deepcopy(net)
        rescale(pruned, how, x=x)
        found = e0.gain(pruned, x, directions=3)
        inner = slice(1, -1)  # the last has no activation behind it
        gains = (found.chi_forward[inner] + found.chi_backward[inner]) / 2
        error = gains.std(ddof=1) / math.sqrt(len(gains))
        assert abs(gains.mean() - 1) < 4 * error + 0.02, how
        # matching variances corrects in each layer what the finite width of the one before did to them
        assert error < (0.25 if how == "measured" else 0.06), how
    if sparsity == 0.9:
        assert e0.gain(net, x, directions=2).chi_forward[1:-1].mean() < 0.25


def test_masks_that_know_the_signals_need_measuring() -> None:
    """SNIP keeps weights at active units: by layer or row a ReLU network is left chaotic, by measuring it is not."""
    net = dense("relu", depth=20, width=80, size=64)
    images = torch.randn(100, 64, generator=source())
    labels = torch.randint(10, (100,), generator=source(1))
    masks = snip_masks(net, images, labels, 0.8)
    spread = {}
    for how in WAYS:
        pruned = masked(copy.deepcopy(net), 0.8, masks=masks)
        rescaled(pruned, how, images)
        h, squares = images, []
        for module in pruned:
            h = module(h).detach()
            squares += [float(h.square().mean())] if isinstance(module, nn.Linear) else []
        spread[how] = math.log(squares[-2] / squares[0])
    assert abs(spread["measured"]) < 0.3
    assert spread["layer"] > 8 and spread["row"] > 2


def test_weak_lottery_ticket() -> None:
    """Appendix H: random masks of density sigma_EOC^2/sigma_w^2 alone bring chi to 1; initialize knows of masks too."""
    wide = e0.networks.mlp([100, *[200] * 6, 10], "relu", weights=e0.Gaussian(2.5), seed=1)
    x = torch.randn(32, 100, generator=source())
    assert e0.gain(wide, x, directions=2).chi_forward[1:-1].mean() == pytest.approx(2.5**2 / 2, rel=0.1)
    masked(wide, 1 - 2 / 2.5**2)
    assert e0.gain(wide, x, directions=2).chi_forward[1:-1].mean() == pytest.approx(1, abs=0.12)
    drawn = initialize(wide, x=x)
    assert [round(row.density, 1) for row in drawn.layers] == [0.3] * 7
    # the table's scale is that of a kept weight: alpha sigma_w^2 is what counts
    assert drawn.layers[3].weight_std == pytest.approx(math.sqrt(2 / drawn.layers[3].density), rel=1e-4)
    assert e0.gain(wide, x, directions=2).chi_forward[1:-1].mean() == pytest.approx(1, abs=0.12)
    assert all(bool((m.weight[~m.parametrizations["weight"][0].mask] == 0).all()) for m in weighted(wide).values())


# ---- what it finds, and what it leaves alone


def test_masks_of_torch_and_baked_zeros_are_found() -> None:
    for bake in (False, True):
        net = dense(depth=3)
        for place in (2, 4):
            torch_prune.random_unstructured(net[place], "weight", amount=0.8)
            if bake:
                torch_prune.remove(net[place], "weight")
        first = net[0].weight.detach().clone()
        done = rescale(net, "layer", x=torch.randn(4, 30))
        assert [row.name for row in done.layers] == ["2.weight", "4.weight"]
        assert done.untouched == {"0.weight": "it is not masked", "6.weight": "it is not masked"}
        assert torch.equal(net[0].weight, first)
        assert float(sums(net)["4"].mean()) == pytest.approx(2, rel=1e-5)  # without another call of the module


def test_norms_residual_blocks_and_shared_weights() -> None:
    shared = nn.Linear(20, 20)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.shared = nn.Linear(30, 20), nn.BatchNorm1d(20), shared
            self.last = nn.Linear(20, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm(self.first(x)).relu()
            h = h + self.shared(self.shared(h).relu())
            return self.last(h.relu())

    net = masked(Net(), 0.5)
    done = rescale(net, "layer", x=torch.randn(16, 30))
    assert "norm" in done.untouched["first.weight"]
    assert [row.name for row in done.layers] == ["shared.weight", "last.weight"]
    assert "used 2 times" in done.layers[0].note


def test_a_dead_layer_beside_an_identity_is_left_alone() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.last = nn.Linear(12, 12), nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last((x + self.inside(x)).relu())

    net = Net()
    masks = {"inside": torch.zeros(12, 12, dtype=torch.bool), "last": torch.rand(3, 12, generator=source()) < 0.5}
    done = rescale(masked(net, 0, masks=masks), "layer", x=torch.randn(4, 12))
    assert "keeps nothing" in done.untouched["inside.weight"]
    assert [row.name for row in done.layers] == ["last.weight"]


def state(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "rows"}, "Did you mean 'row'"),
        ({"x": torch.full((2, 30), math.nan)}, "NaN"),
        ({"method": "measured", "x": torch.zeros(2, 30)}, r"'0\.weight' passes nothing on"),
    ],
)
def test_what_cannot_be_used_changes_nothing(arguments: dict, message: str) -> None:
    net = masked(dense(), 0.5)
    before = state(net)
    with pytest.raises(InputError, match=message):
        rescale(net, **{"x": torch.randn(3, 30), **arguments})
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_model_without_masks_and_an_activation_without_an_edge() -> None:
    with pytest.raises(InputError, match=r"it is not masked.*Prune first"):
        rescale(dense(), x=torch.randn(3, 30))
    net = masked(nn.Sequential(nn.Linear(20, 50), nn.SiLU(), nn.Linear(50, 50), nn.SiLU(), nn.Linear(50, 3)), 0.5)
    with torch.no_grad():
        net[0].bias.fill_(0.1)
    before = state(net)
    with pytest.raises(InputError, match=r"'0\.weight' with biases of 0.*no edge of chaos.*weights='keep'"):
        rescale(net, x=torch.randn(3, 20))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_model_comes_back_but_for_its_weights() -> None:
    net = masked(dense(), 0.5)
    net.train()
    net(torch.randn(3, 30)).sum().backward()
    gradients = [p.grad for p in net.parameters()]
    noise = torch.get_rng_state()
    rescale(net, "measured", x=torch.randn(3, 30, generator=source()))
    assert net.training and torch.equal(noise, torch.get_rng_state())
    assert all(p.grad is gradient for p, gradient in zip(net.parameters(), gradients, strict=True))


def test_the_result_reads_well() -> None:
    net = masked(dense(), 0.9)
    done = rescale(net, "row", x=torch.randn(3, 30))
    text = str(done)
    assert "one factor a row" in text and "4.weight" in text and "empty rows" in text
    frame = done.to_pandas()
    assert list(frame["name"]) == [row.name for row in done.layers] and (frame["smallest"] <= frame["largest"]).all()
    assert done.to_dict()["layers"][0]["name"] == "0.weight"


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["layer", "row"])
def test_a_note_says_where_the_masks_know_the_signals(method: str) -> None:
    """And a warning. Twin: the mean square of what plain modules return, layer by layer. SNIP with ReLU, and random."""
    x, labels = torch.randn(60, 30, generator=source()), torch.arange(60) % 10
    told = {}
    for kind in ("snip", "random"):
        net = e0.networks.mlp([30, *[60] * 20, 10], "relu", weights=e0.Gaussian(2**0.5), seed=1)
        scores = e0.prune.snip(net, [(x, labels)]) if kind == "snip" else e0.prune.random(net, seed=1)
        with pytest.warns(UserWarning, match="Proposition 1") if kind == "snip" else nullcontext():
            done = rescale(e0.prune.apply(net, e0.prune.keep(scores, 0.8)), method, x=x)
        told[kind] = [note for note in done.notes if "Proposition 1" in note]
        with torch.no_grad():
            hidden = [net[: 2 * i + 1](x).square().mean() for i in (0, 19)]
        growth = float(hidden[1] / hidden[0]) ** (1 / 19)
        if kind == "snip":
            said = float(told[kind][0].split("grows ")[1].split("-fold")[0])
            assert growth > 1.2 and said == pytest.approx(growth, rel=0.35)
        else:
            assert growth == pytest.approx(1.0, abs=0.12)
    assert len(told["snip"]) == 1 and not told["random"]
    assert f"a {method} takes" in told["snip"][0] and 'method="measured"' in told["snip"][0]
    assert rescale(net, x=x).method == "measured"


@pytest.mark.parametrize("gain", [0.01, 1.0, 10.0])
def test_behind_a_batch_norm_the_weights_before_it_do_not_count(gain):
    """What arrives is what the norm lets through, whatever the scale before: pre-activations get twice E relu^2."""
    torch.manual_seed(0)
    x = torch.randn(256, 30, generator=source(1))
    net = nn.Sequential(
        nn.Linear(30, 200, bias=False), nn.BatchNorm1d(200, eps=1e-12, momentum=None), nn.ReLU(),
        nn.Linear(200, 200, bias=False), nn.ReLU(), nn.Linear(200, 10, bias=False),
    )  # fmt: skip
    with torch.no_grad():
        net[0].weight.mul_(gain)
        net(x)
    net.eval()
    scores = {name: score for name, score in e0.prune.random(net, seed=0).items() if name != "0.weight"}
    e0.prune.apply(net, e0.prune.keep(scores, 0.7, scope="layer"))
    rescale(net, x=x)
    with torch.no_grad():
        arriving, pre = net[:3](x).square().mean(), net[:4](x).square().mean()
    assert float(pre) == pytest.approx(2 * float(arriving), rel=1e-3)
