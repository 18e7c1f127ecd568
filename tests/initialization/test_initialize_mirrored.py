"""Weights set for training: pairs of opposite units, sizes at both ends, and what stays as it came."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import epoch0 as e0
from epoch0.activations import get
from epoch0.initialization import initialize
from epoch0.initialization.draw import odd_half
from epoch0.measure.gain import gain
from init_models import ResNet, images, transformer_like, vectors

STRAIGHT = ("relu", "gelu", "silu", "softplus")
"""Activations whose odd half is a straight line."""


def deep(act: Callable[[], nn.Module], depth: int = 20, width: int = 64, norm: Callable[[int], nn.Module] | None = None,
         inputs: int = 100) -> nn.Sequential:  # fmt: skip
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for place in range(depth - 1):
        parts += [nn.Linear(width if place else inputs, width), *([norm(width)] if norm else []), act()]
    return nn.Sequential(*parts, nn.Linear(width, 10))


def bits(net: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def same(net: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("name", [*STRAIGHT, "leaky_relu", "elu", "sigmoid", "selu", "mish"])
def test_the_odd_half(name: str) -> None:
    phi, h = get(name), np.linspace(-3, 3, 41)
    half = odd_half(phi)
    assert half is not None
    assert half.function(h) == pytest.approx((phi.function(h) - phi.function(-h)) / math.sqrt(2), abs=1e-12)
    if name in STRAIGHT:
        assert half.function(h) == pytest.approx(h / math.sqrt(2), abs=1e-9)
    step = 1e-5
    slopes = (half.function(h + step) - half.function(h - step)) / (2 * step)
    assert half.derivative(h)[h != 0] == pytest.approx(slopes[h != 0], abs=1e-3)


@pytest.mark.parametrize("name", ["tanh", "erf", "hardtanh", "abs"])
def test_odd_and_even_activations_need_no_pairs(name: str) -> None:
    assert odd_half(get(name)) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("act", [nn.ReLU, nn.GELU, nn.SiLU, nn.Softplus])
def test_a_deep_network_starts_as_an_isometry(act: type[nn.Module]) -> None:
    net, x = deep(act, 30), vectors(8)
    done = initialize(net, x=x)
    assert all(row.status.startswith("in pairs") for row in done.layers[:-1]) and done.layers[-1].status == "set"
    jacobian = torch.func.vmap(torch.func.jacrev(net))(x).detach()
    values = torch.linalg.svdvals(jacobian.double())
    # all ten outputs see what 32 pairs carry, none fades: Gaussian weights of this depth leave a spread of 1e4
    assert float(values.max() / values.min()) < 1.01
    one, two = net(x[:1]), net(x[1:2])
    assert torch.allclose(net(x[:1] + x[1:2]), one + two, atol=1e-3)  # a straight line, though it is 30 layers deep


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["theory", "measured"])
@pytest.mark.parametrize("act", [nn.LeakyReLU, nn.ELU, nn.Sigmoid, nn.GELU, nn.SELU])
def test_the_gain_that_pairs_hand_on_is_the_target(act: type[nn.Module], how: str) -> None:
    """The carried gain from the second pre-activation to the last but one, by forward derivatives of the network."""
    net, x = deep(act, 8, 256), vectors(32)
    done = initialize(net, x=x, method=how, chi=1.0)
    h = nn.Sequential(*net[:1])(x).detach()
    tangent = torch.randn(32, 128, generator=torch.Generator().manual_seed(1))
    tangent = torch.cat([tangent, -tangent], 1)  # one that came through pairs
    before = float(tangent.square().mean())
    end = torch.func.jvp(nn.Sequential(*net[1:13]), (h,), (tangent,))[1].detach()  # six activations and six weights
    predicted = math.prod(row.predicted or 0 for row in done.layers[:6])
    assert predicted == pytest.approx(1, rel=1e-5 if how == "theory" else 0.1)
    # from before an activation to before the next: the first weights' share out, the seventh's in
    first, last = done.layers[0].weight_std ** 2, done.layers[6].weight_std ** 2
    assert float(end.square().mean()) / before * first / last == pytest.approx(1, rel=0.25)
    found = gain(net, x, directions=8, seed=3)
    for layer, target in list(zip(found.layers, done.layer_targets.values(), strict=True))[1:-1]:
        assert target is not None and layer.forward == pytest.approx(target, rel=0.15), layer.name


def test_pairs_pass_norms_pools_and_reshapes() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(16, 15, 3, padding=1), nn.ReLU(), nn.Conv2d(15, 8, 3, padding=1), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10),
    )  # fmt: skip
    done = initialize(net, x=images())
    pairs = [row.name for row in done.layers if "in pairs" in row.status]
    weights = {row.name: net.get_parameter(row.name).detach() for row in done.layers}
    for name in ("0.weight", "3.weight", "8.weight", "12.weight"):
        half = weights[name].shape[0] // 2
        assert torch.equal(weights[name][:half], -weights[name][half:]), name
    for name in ("3.weight", "6.weight", "12.weight", "15.weight"):
        half = weights[name].shape[1] // 2
        assert torch.equal(weights[name][:, :half], -weights[name][:, half:]), name
    assert "12.weight" not in pairs  # a norm after it fixes its gain, and the row says that
    assert not torch.equal(weights["6.weight"][:7], -weights["6.weight"][7:14])  # 15 channels make no pairs
    with torch.no_grad():
        assert 0.2 < float(net(images()).square().mean()) < 5


class Between(nn.Module):
    """Something between two layers."""

    def __init__(self, between: Callable[[Tensor], Tensor], width: int = 32) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(100, width), nn.Linear(width, 10), between

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(torch.relu(self.first(x))))


@pytest.mark.parametrize(("between", "pairs"), [
    (lambda h: h, True),
    (lambda h: functional.dropout(h, 0.5), True),
    (lambda h: h.flip(1), True),
    (lambda h: h.reshape(-1, 16, 2).transpose(1, 2).reshape(-1, 32), False),  # halves no longer are halves
    (lambda h: h * torch.linspace(1, 2, 32), False),  # partners are treated differently
    (lambda h: h + h.detach().flip(1), True),
    (lambda h: h[:, :16].repeat(1, 2), False),
])  # fmt: skip
def test_pairs_are_found_by_trying(between: Callable[[Tensor], Tensor], pairs: bool) -> None:
    done = initialize(Between(between), x=vectors())
    assert done.layers[0].status.startswith("in pairs") == pairs


def test_no_pairs_where_another_path_uses_them_or_a_mask_is() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(100, 32), nn.Linear(32, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.first(x))
            return self.third(h + torch.relu(self.second(h)) + x[:, :32])

    assert not any("in pairs" in row.status for row in initialize(Two(), x=vectors()).layers)
    net = deep(nn.ReLU, 3)
    mask = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < 0.5
    done = initialize(e0.prune.apply(net, {"2.weight": mask}), x=vectors())
    assert not any("in pairs" in row.status for row in done.layers)


@pytest.mark.sample(3)
@pytest.mark.parametrize("scale", [1e-3, 0.03, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh])
def test_inputs_and_outputs_of_any_size_come_to_unit_size(act: type[nn.Module], scale: float) -> None:
    net, x = nn.Sequential(*deep(act, 6), nn.Identity()), vectors() * scale
    done = initialize(net, x=x)
    assert ("inputs to unit size" in done.layers[0].status) == (scale != 1 or act is nn.Tanh)
    with torch.no_grad():
        assert 0.25 < float(net[:1](x).square().mean()) < 4 and 0.2 < float(net(x).square().mean()) < 5
    exact = initialize(net, x=x, chi=1.0)
    assert "unit size" not in str(exact) and exact.layers[0].predicted == pytest.approx(1, rel=1e-6)


class Last(nn.Module):
    """Something done to the outputs."""

    def __init__(self, net: nn.Module, last: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.last = net, last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.net(x))


def test_outputs() -> None:
    for factor in (0.001, 1000.0):
        net = Last(deep(nn.ReLU, 4), lambda h, factor=factor: h * factor)
        initialize(net, x=vectors())
        with torch.no_grad():
            assert 0.25 < float(net(vectors()).square().mean()) < 4
    for saturates in (torch.sigmoid, lambda h: h.softmax(1)):
        net = Last(deep(nn.ReLU, 4), saturates)
        initialize(net, x=vectors())
        with torch.no_grad():
            assert 0.25 < float(net.net(vectors()).square().mean()) < 4


class Encoder(nn.Module):
    """Two blocks of torch's own transformer, in front of a readout."""

    def __init__(self, norm_first: bool = True, std: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Linear(10, 32), nn.Linear(32, 5)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=norm_first) for _ in range(2)
        )
        for parameter in self.parameters():
            if std is not None and parameter.dim() > 1:
                nn.init.normal_(parameter, 0, std)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.reshape(-1, 10, 10))
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


def zero_gamma() -> nn.Module:
    torch.manual_seed(0)
    net = ResNet(2, width=8)
    for block in (*net.layer1, *net.layer2):
        nn.init.zeros_(block.bn2.weight)
    return net


SOUND: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "ResNet": (lambda: ResNet(2, width=8), images()),
    "ResNet, zero gamma": (zero_gamma, images()),
    "pre-norm": (Encoder, vectors()),
    "pre-norm, GPT-2's 0.02": (lambda: Encoder(std=0.02), vectors()),
    "post-norm": (lambda: Encoder(norm_first=False), vectors()),
    "no attention": (lambda: transformer_like(2, 32), vectors()),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", SOUND)
@pytest.mark.parametrize("how", ["theory", "measured"])
def test_sound_blocks_with_norms_stay_to_the_bit(case: str, how: str) -> None:
    make, x = SOUND[case]
    net = make()
    before = bits(net)
    done = initialize(net, x=x, method=how)
    assert same(net, before) and all(row.status.startswith("kept: ") for row in done.layers)
    assert done.summary.startswith("0 weights set") and f"{len(done.layers)} kept" in done.summary
    assert all(row.weight_std == row.weight_std_before for row in done.layers) and not done.norms


def test_attention_that_looks_at_one_place_is_drawn_anew() -> None:
    net = Encoder()
    net.blocks[0].self_attn.in_proj_weight.data[:64] *= 30
    before = bits(net)
    done = initialize(net, x=vectors())
    changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    attention = {"blocks.0.self_attn.in_proj_weight", "blocks.0.self_attn.out_proj.weight"}
    assert attention <= changed and all(name.startswith("blocks.0.self_attn") for name in changed)
    assert [row.name for row in done.layers if row.kind == "attention"] == sorted(attention)
    q, k, v = net.blocks[0].self_attn.in_proj_weight.detach().chunk(3)
    assert all(torch.allclose(part @ part.T, torch.eye(32), atol=1e-5) for part in (q, k, v))


def test_branches_that_are_lost_behind_a_norm_are_drawn_anew() -> None:
    net = Encoder(norm_first=False, std=0.02)
    done = initialize(net, x=vectors())
    assert not any(row.status.startswith("kept") for row in done.layers if row.layer.startswith("blocks"))
    assert not [name for name in done.untouched if "blocks" in name]


def test_zeros_that_are_meant_stay() -> None:
    class SkipInit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.scale = nn.Linear(64, 64), nn.Linear(64, 64), nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.scale * self.two(torch.relu(self.one(x)))

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(100, 64), SkipInit(), SkipInit(), nn.Linear(64, 10))
    before = bits(net)
    done = initialize(net, x=vectors())
    assert same(net, before) and "meant" in done.layers[1].status
    head = deep(nn.ReLU, 5)
    nn.init.zeros_(head[-1].weight)
    done = initialize(head, x=vectors())
    assert not bool(head[-1].weight.any()) and "meant" in done.layers[-1].status
    assert done.layers[0].status.startswith("in pairs")
    for parameter in head.parameters():  # nothing arrives at this readout: the whole network is zero, and that is not
        nn.init.zeros_(parameter)
    initialize(head, x=vectors())
    assert all(bool(layer.weight.any()) for layer in head if isinstance(layer, nn.Linear))


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", [pytest.param("batch norm", marks=pytest.mark.slow), "layer norm", "relu", "sigmoid"])
def test_it_trains_what_does_not_train(case: str) -> None:
    """In torch's default weights the loss of a batch hardly falls in 40 steps; after the remedy it falls to a fifth."""
    norm = {"batch norm": nn.BatchNorm1d, "layer norm": nn.LayerNorm}.get(case)
    train = e0.data.load("digits")
    x, y = torch.as_tensor(np.array(train.inputs("standard")[:128])), torch.as_tensor(np.array(train.labels[:128]))
    losses = []
    for remedy in (False, True):
        net = deep(nn.Sigmoid if case == "sigmoid" else nn.ReLU, 12 if case == "sigmoid" else 40, norm=norm, inputs=64)
        if remedy:
            initialize(net, x=x)
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        for _ in range(40):
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 0.8 * math.log(10) and losses[1] < 0.2 * math.log(10), losses


def test_any_batch() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.one, self.two = nn.Embedding(11, 16), nn.Linear(16, 32), nn.Linear(32, 11)

        def forward(self, tokens: Tensor, scale: float = 1.0) -> Tensor:
            return self.two(torch.relu(self.one(self.table(tokens)))) * scale

    tokens = torch.randint(11, (8, 5), generator=torch.Generator().manual_seed(0))
    for batch, forward in ((tokens, None), ({"tokens": tokens}, None), ([tokens, 3], lambda net, b: net(b[0]))):
        torch.manual_seed(0)
        net = Tokens()
        table = net.table.weight.detach().clone()
        done = initialize(net, x=batch, forward=forward)
        assert done.layers[0].status.startswith("in pairs") and torch.equal(net.table.weight, table)
    half = Tokens().to(torch.bfloat16)
    initialize(half, x=tokens)
    assert half.one.weight.dtype == torch.bfloat16
    assert torch.equal(half.one.weight[:16], -half.one.weight[16:])
