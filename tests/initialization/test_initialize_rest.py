"""What an initialization leaves alone, what it says, what it refuses, and the file it goes into."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.initialization import Initialization, check_path, initialize, save
from epoch0.measure.gain import gain
from epoch0.networks import mlp
from init_models import Block, ResNet, residual_mlp, transformer_like, vgg


def vectors(examples: int = 32) -> Tensor:
    return torch.randn(examples, 100, generator=torch.Generator().manual_seed(3))


def net_of(width: int = 200, outputs: int = 200) -> nn.Sequential:
    torch.manual_seed(0)
    first, second, last = nn.Linear(100, width), nn.Linear(width, width), nn.Linear(width, outputs)
    return nn.Sequential(first, nn.Tanh(), second, nn.ReLU(), last)


def bits(net: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


class Fails(nn.Module):
    """Raises when its countdown is over."""

    def __init__(self, calls: int, error: BaseException) -> None:
        super().__init__()
        self.left, self.error = [calls], error

    def forward(self, h: Tensor) -> Tensor:
        self.left[0] -= 1
        if self.left[0] < 0:
            raise self.error
        return h


@pytest.mark.parametrize("how", ["theory", "measured"])
def test_everything_but_weights_stays_to_the_bit(how: str) -> None:
    torch.manual_seed(1)
    net = ResNet(1, width=8)
    calls: list[int] = []
    net.layer1.register_forward_hook(lambda *_: calls.append(1))
    net.layer2.eval()
    net.fc.weight.requires_grad_(False)
    x = torch.randn(4, 3, 8, 8)
    net(x).sum().backward()
    calls.clear()
    before, modes = bits(net), [m.training for m in net.modules()]
    grads = {name: (p.grad, None if p.grad is None else p.grad.clone()) for name, p in net.named_parameters()}
    identities = {name: (id(p), p.data_ptr(), p.requires_grad) for name, p in net.named_parameters()}
    hooks = len(net.layer1._forward_hooks)
    copied, states = x.clone(), (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    done = initialize(net, x=x, method=how, weights="orthogonal")
    # python's own generator comes back too, but the type checker of the tests draws from it
    assert torch.equal(torch.get_rng_state(), states[0]) and torch.equal(x, copied)
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert [m.training for m in net.modules()] == modes and len(net.layer1._forward_hooks) == hooks
    for name, p in net.named_parameters():
        assert (id(p), p.data_ptr(), p.requires_grad) == identities[name]
        assert p.grad is grads[name][0] and (p.grad is None or torch.equal(p.grad, grads[name][1]))
    changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    named = {row.name for row in done.layers} | set(done.norms) | {"fc.bias"}
    assert {row.name for row in done.layers} <= changed <= named


ERRORS = [RuntimeError("no"), KeyboardInterrupt()]


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_on_an_error_the_weights_stay_too(calls: int, error: BaseException) -> None:
    net = net_of(20)
    net.insert(4, Fails(calls, error))
    before = bits(net)
    with pytest.raises((RuntimeError, KeyboardInterrupt, InputError)):
        initialize(net, x=vectors(), method="measured")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


class Step(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return torch.sign(h)


def test_an_activation_without_slope_is_named_and_nothing_is_set() -> None:
    net = net_of(20)
    net[1] = Step()
    before = bits(net)
    with pytest.raises(InputError, match=r"layer '0'.*cannot have the gain 1.*at most.*Nothing was changed"):
        initialize(net, x=vectors())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


BAD: list[tuple[dict[str, Any], str]] = [
    ({"at": "edge"}, "'edge_of_chaos'"),
    ({"chi": 0.0}, "finite number > 0"),
    ({"chi": math.nan}, "finite number > 0"),
    ({"chi": math.inf}, "finite number > 0"),
    ({"method": "guess"}, "'theory' or 'measured'"),
    ({"weights": "normal"}, "gaussian"),
    ({"bias_std": -1.0}, "bias_std=-1.0"),
    ({"seed": -1}, "seed=-1"),
    ({"x": vectors()[:, :7]}, "in_features=100"),
    ({"x": vectors() * math.nan}, "holds NaN"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=lambda value: str(value)[:30])
def test_bad_arguments_are_told(arguments: dict[str, Any], words: str) -> None:
    net = net_of(20)
    before = bits(net)
    with pytest.raises(InputError, match=words):
        initialize(net, **{"x": vectors(), **arguments})
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_models_that_cannot_be_set_are_told() -> None:
    with pytest.raises(InputError, match="no nonlinearity"):
        initialize(nn.Sequential(nn.Linear(100, 5), nn.Linear(5, 5)), x=vectors())
    net = net_of(20)
    net[2].weight.data[0, 0] = math.nan
    with pytest.raises(InputError, match=r"'2.weight' holds NaN"):
        initialize(net, x=vectors())
    pruned = net_of(20)
    prune.random_unstructured(pruned[2], "weight", amount=400)
    with pytest.raises(InputError, match=r"'2\.weight_orig' keeps none of its 400"):
        initialize(pruned, x=vectors())
    normed = nn.Sequential(parametrizations.weight_norm(nn.Linear(100, 20)), nn.ReLU())
    with pytest.raises(InputError, match=r"no weight of the model can be set.*several parameters"):
        initialize(normed, x=vectors())
    zeros = net_of(20)
    nn.init.zeros_(zeros[2].weight)
    with pytest.raises(InputError, match=r"'2\.weight' holds only zeros"):
        initialize(zeros, x=vectors(), weights="keep")


def test_pruned_weights_keep_their_mask() -> None:
    net = net_of(400, 400)
    for place, amount in ((0, 0.5), (2, 0.8)):
        prune.random_unstructured(net[place], "weight", amount=amount)
    masks = {name: b.clone() for name, b in net.named_buffers()}
    done = initialize(net, x=vectors(), weights="gaussian")
    assert [round(row.density, 3) for row in done.layers] == [0.5, 0.2, 1.0]
    assert [row.name for row in done.layers] == ["0.weight_orig", "2.weight_orig", "4.weight"]
    assert all(torch.equal(b, masks[name]) for name, b in net.named_buffers())
    # the sum of squares of what is kept is sigma_w^2 on average over units: alpha sigma_w^2 without a mask
    assert float(net[2].weight.detach().square().sum(1).mean()) == pytest.approx(2, rel=1e-4)
    assert done.layers[1].weight_std == pytest.approx(math.sqrt(2 / 0.2), rel=1e-4)
    # 40 and 80 weights a unit: at these the gain of tanh is a few percent below that of infinitely many
    assert gain(net, vectors()).chi_forward == pytest.approx(np.ones(3), abs=0.12)


def test_applied_masks_keep_the_weights_zero() -> None:
    net = net_of(300)
    mask = torch.rand(300, 300, generator=torch.Generator().manual_seed(0)) < 0.3
    done = initialize(e0.prune.apply(net, {"2.weight": mask}), x=vectors())
    assert bool((net[2].weight[~mask] == 0).all()) and bool((net[2].weight[mask] != 0).all())
    assert done.layers[1].density == pytest.approx(0.3, abs=0.01)
    assert done.layers[1].weight_std == pytest.approx(math.sqrt(2 / done.layers[1].density), rel=1e-5)


def test_other_elementwise_parametrizations() -> None:
    class Half(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return 0.5 * w

    net = net_of(300)
    parametrize.register_parametrization(net[2], "weight", Half())
    before = net[2].weight.detach().clone()
    done = initialize(net, x=vectors())
    assert done.untouched["2.parametrizations.weight.original"] == "its weights are no masked copy of the parameter"
    assert torch.equal(net[2].weight, before)


class Mixed(nn.Module):
    """Attention, weight norm, a low-rank product, a slice, a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(100, 16)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.normed = parametrizations.weight_norm(nn.Linear(16, 16))
        self.left, self.right = nn.Parameter(torch.randn(16, 2)), nn.Parameter(torch.randn(2, 16))
        self.part = nn.Parameter(torch.randn(32, 16))
        self.gate = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.start(x))[:, None]
        h = self.attend(h, h, h, need_weights=False)[0][:, 0]
        h = torch.relu(self.normed(h))
        h = h @ (self.left @ self.right)
        h = torch.relu(nn.functional.linear(h, self.part[:16]))
        return h * torch.sigmoid(self.gate(h))


def test_what_is_not_understood_is_left_alone_and_named() -> None:
    torch.manual_seed(0)
    net = Mixed()
    before = bits(net)
    done = initialize(net, x=vectors())
    left = {"attend.in_proj_weight", "left", "right", "part"}
    assert left <= set(done.untouched) and all(done.untouched.values())
    assert any("normed" in name and "several" in why for name, why in done.untouched.items())
    kept = {"start.weight", "start.bias"}
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items() if name not in kept)
    assert "kept: a gate" in done.layers[-1].status
    assert "left alone: part (only a part" in str(done)


class Branches(nn.Module):
    """Two inputs, a frozen layer in between, a second output, and a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.frozen = nn.Linear(100, 64), nn.Linear(6, 64), nn.Linear(64, 64).requires_grad_(False)
        self.c, self.other, self.unused = nn.Linear(128, 3), nn.Linear(128, 2), nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.cat([torch.relu(self.frozen(torch.relu(self.a(x)))), torch.tanh(self.b(y))], 1)
        return self.c(h), self.other(h)


@pytest.mark.parametrize("how", [{}, {"method": "measured"}, {"weights": "gaussian"}, {"weights": "keep"}])
def test_what_is_not_set_is_named_with_a_reason_that_is_true(how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    net, y = Branches(), torch.randn(32, 6)
    before = bits(net)
    done = initialize(net, x=(vectors(), y), **how)
    reasons = {"b.weight": "another input's", "other.weight": "first output", "unused.weight": "not seen to use it"}
    reasons |= {"frozen.weight": "requires_grad is off", "frozen.bias": "requires_grad is off"}
    assert done.untouched.keys() == reasons.keys()
    assert all(words in done.untouched[name] for name, words in reasons.items())
    changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    weights = {name for name in before if name.endswith("weight")}
    assert {row.name for row in done.layers} == weights - done.untouched.keys() == changed & weights
    # what is behind the frozen layer is set for what it passes on
    arrives = list[float]()
    net.c.register_forward_pre_hook(lambda _m, h: arrives.append(float(h[0].detach().square().mean())))
    net(vectors(), y)
    last = done.layers[-1]
    if how != {"method": "measured"} and how != {"weights": "keep"}:
        assert last.q == pytest.approx(last.weight_std**2 * arrives[0], rel=1e-4)
    assert not net.frozen.weight.requires_grad and net.a.weight.requires_grad


def test_frozen_parameters_of_all_kinds_stay() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(100, 64), *(NormLast(64) for _ in range(2)), nn.Linear(64, 10))
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
    deep = nn.Sequential(nn.Linear(100, 64), nn.Unflatten(0, (4, 8)), layer, nn.Linear(64, 10))
    nn.init.constant_(layer.self_attn.in_proj_weight, 3.0)  # sharp: it would be drawn anew
    plain = net_of(20)
    for model, name in ((net, "1.norm.weight"), (deep, "2.self_attn.in_proj_weight"), (plain, "2.bias")):
        loose = copy.deepcopy(model)
        before = bits(model)
        model.get_parameter(name).requires_grad_(False)
        done = initialize(model, x=vectors())
        assert torch.equal(model.get_parameter(name), before[name])
        assert "requires_grad" in done.untouched[name] and name not in done.norms
        initialize(loose, x=vectors())
        assert not torch.equal(loose.get_parameter(name), before[name])


class NormLast(nn.Module):
    """x + norm(W phi(x)): the norm ends the branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        nn.init.constant_(self.norm.weight, 1000.0)  # too large to stay

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.linear(torch.relu(x)))


def test_a_frozen_model_is_told() -> None:
    with pytest.raises(InputError, match=r"no weight of the model can be set.*0\.weight: it is frozen"):
        initialize(net_of(20).requires_grad_(False), x=vectors())


class Tied(nn.Module):
    """An embedding that is the readout, too; with a second lookup of it, as a decoder has one."""

    def __init__(self, act: type[nn.Module], again: bool) -> None:
        super().__init__()
        self.e, self.again = nn.Embedding(200, 64), again
        self.m = nn.Sequential(nn.Linear(64, 64), act(), nn.Linear(64, 64), act())
        self.o = nn.Linear(64, 200, bias=False)
        self.o.weight = self.e.weight

    def forward(self, places: Tensor) -> Tensor:
        h = self.e(places)
        return self.o(self.m(h + 3 * self.e(places.flip(1)) if self.again else h))


@pytest.mark.sample(13)
@pytest.mark.parametrize("again", [False, True], ids=["one lookup", "two"])
@pytest.mark.parametrize("weights", ["mirrored", "gaussian", "keep"])
@pytest.mark.parametrize("method", ["theory", "measured"])
@pytest.mark.parametrize("act", [nn.Tanh, nn.GELU, nn.ReLU])
def test_of_tied_weights_what_is_said_is_true(act: type[nn.Module], method: str, weights: str, again: bool) -> None:
    torch.manual_seed(0)
    net, places = Tied(act, again), torch.randint(200, (64, 8))
    done = initialize(net, x=places, method=method, weights=weights)
    squares: list[float] = []
    for layer in (net.m[0], net.m[2], net.o):
        layer.register_forward_hook(lambda _m, _x, h: squares.append(float(h.detach().square().mean())))
    measured = [layer.forward for layer in gain(net, places).layers]
    squares.clear()
    net(places)
    close = 0.1 if method == "measured" else 0.25  # one draw of width 64
    assert [row.q for row in done.layers] == pytest.approx(squares, rel=close)
    assert list(done.layer_targets.values()) == pytest.approx(measured, rel=close)
    assert "shared with an embedding" in done.layers[-1].status and done.layers[-1].name == "e.weight"
    size = float(net.e.weight.detach().square().mean().sqrt()) * 64**0.5
    assert size == pytest.approx(1, rel=1e-5) and size == pytest.approx(done.layers[-1].weight_std, rel=1e-5)


def test_keep_rescales_what_is_there() -> None:
    net = net_of()
    nn.init.uniform_(net[0].bias)
    before = bits(net)
    done = initialize(net, x=vectors(), weights="keep")
    for row in done.layers:
        ratio = net.get_parameter(row.name).detach() / before[row.name]
        assert float(ratio.std()) < 1e-6 * float(ratio.mean())
        assert float(ratio.mean()) == pytest.approx(row.weight_std / row.weight_std_before, rel=1e-5)
        assert row.predicted == pytest.approx(1, rel=1e-6)
    assert all(torch.equal(net.get_parameter(n), before[n]) for n in ("0.bias", "2.bias", "4.bias"))


@pytest.mark.parametrize("case", ["linear", "grouped", "transposed"])
def test_orthogonal(case: str) -> None:
    make: dict[str, nn.Module] = {
        "linear": nn.Sequential(nn.Linear(100, 60), nn.ReLU()),
        "grouped": nn.Sequential(nn.Unflatten(1, (4, 25)), nn.Conv1d(4, 8, 5, groups=2), nn.ReLU()),
        "transposed": nn.Sequential(nn.Unflatten(1, (4, 25)), nn.ConvTranspose1d(4, 6, 5, groups=2), nn.ReLU()),
    }
    net = make[case]
    done = initialize(net, x=vectors(), weights="orthogonal")
    weight = net.get_parameter(done.layers[0].name).detach()
    if case == "linear":
        units = [weight]
    elif case == "grouped":
        units = [part.flatten(1) for part in weight.chunk(2)]
    else:
        units = [part.transpose(0, 1).flatten(1) for part in weight.chunk(2)]
    for rows in units:
        product = rows @ rows.T
        assert torch.allclose(product / product[0, 0], torch.eye(len(rows)), atol=1e-5)


def test_uniform_has_the_same_scale() -> None:
    net = net_of()
    done = initialize(net, x=vectors(), weights="uniform")
    weight = net[2].weight.detach()
    assert float(weight.abs().max()) == pytest.approx(math.sqrt(3 * 2 / 200), rel=0.02)
    assert done.layers[1].weight_std == pytest.approx(math.sqrt(2), rel=1e-6)


def test_seeds_name_the_draw_by_the_parameter() -> None:
    one, two, other = net_of(), net_of(), net_of()
    initialize(one, x=vectors(), seed=4)
    initialize(two, x=vectors(), seed=4)
    initialize(other, x=vectors(), seed=5)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one[0].weight, other[0].weight)
    longer = nn.Sequential(*net_of(), nn.ReLU(), nn.Linear(200, 3))
    initialize(longer, x=vectors(), seed=4)
    assert torch.equal(longer[0].weight, one[0].weight)


@pytest.mark.slow
@given(
    density=st.floats(0.05, 1.0), chi=st.floats(0.3, 2.0), bias_std=st.floats(0.0, 0.6), scale=st.floats(0.1, 5.0),
    activation=st.sampled_from(["relu", "tanh", "gelu", "erf", "elu", "hardtanh", "silu", "softsign"]),
)  # fmt: skip
def test_density_enters_as_a_factor_on_the_variance(
    density: float, chi: float, bias_std: float, scale: float, activation: str
) -> None:
    """alpha sigma_w^2 is what counts: a mask of density alpha raises sigma_w by 1/sqrt(alpha) and nothing else."""
    x = vectors(4) * scale
    net = mlp([100, 40], activation, linear_output=False)
    mask = torch.zeros(40, 100, dtype=torch.bool)
    mask[:, : max(1, round(100 * density))] = True
    mask = mask[:, torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    dense = initialize(net, x=torch.ones(4, 100) * scale, chi=chi, bias_std=bias_std)
    prune.custom_from_mask(net[0], "weight", mask)
    masked = initialize(net, x=torch.ones(4, 100) * scale, chi=chi, bias_std=bias_std)
    alpha = float(mask.double().mean())
    assert masked.layers[0].weight_std * math.sqrt(alpha) == pytest.approx(dense.layers[0].weight_std, rel=1e-4)
    assert masked.layers[0].predicted == pytest.approx(chi, rel=1e-6)
    assert len(x) == 4


INPUTS = {
    "mlp": (lambda: net_of(20), "(64, 100)"),
    "vgg": (lambda: nn.Sequential(*list(vgg())[:10], nn.AdaptiveAvgPool2d(1), nn.Flatten()), "(16, 3, 32, 32)"),
    "28 pixels": (lambda: nn.Sequential(nn.Conv2d(1, 2, 5), nn.ReLU(), nn.Flatten(), nn.Linear(1152, 5)), "28, 28"),
    "batch norm first": (lambda: nn.Sequential(nn.BatchNorm1d(7), nn.Linear(7, 5), nn.Tanh()), "(64, 7)"),
    "sequences": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()), "(16, 3, 32)"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_without_an_input_one_is_found(case: str) -> None:
    make, shape = INPUTS[case]
    done = initialize(make())
    assert any("no input was given" in note and shape in note for note in done.notes)


def test_no_input_shape_is_told() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] != 12345:
                raise ValueError("no")
            return torch.relu(self.layer(x[:, :3]))

    with pytest.raises(InputError, match=r"no input shape was found that the model Picky takes; give a batch"):
        initialize(Picky())


def test_the_result_reads_well() -> None:
    done = initialize(transformer_like(2, 32), x=vectors(), weights="gaussian")
    assert isinstance(done, Initialization)
    text = str(done)
    assert text.startswith(done.summary) and "\n" not in done.summary
    assert "a gain of 1.2, by measuring, seed 3" in str(
        initialize(net_of(9), chi=1.2, method="measured", x=vectors(), seed=3)
    )
    assert text.startswith("6 weights set for a gain of 1, by theory, seed 0") and "ends a branch, one of 2" in text
    frame = done.to_pandas()
    assert len(frame) == 6 and list(frame["activation"][:2]) == ["none", "gelu"]
    assert done.to_dict()["layers"][1]["weight_std"] == done.layers[1].weight_std
    assert (
        done.layer_targets == {"0": 1.0, "1.up … 1.down": 1.5, "2.up … 2.down": 1.5, "3": 1.0}
        or len(done.layer_targets) == 4
    )


def test_double_precision() -> None:
    net = net_of().double()
    done = initialize(net, x=vectors().double(), weights="gaussian")
    assert net[0].weight.dtype == torch.float64
    assert float(net[2].weight.detach().square().sum(1).mean()) == pytest.approx(2, rel=1e-12)
    assert done.layers[0].predicted == pytest.approx(1, rel=1e-9)


def test_no_forward_derivative_falls_back() -> None:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: Tensor) -> Tensor:
            return h.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0]

    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(100, 100), nn.Linear(100, 100)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.two(Clip.apply(self.one(x)))

    net = nn.Sequential(Inside(), Inside(), nn.Linear(100, 3))
    done = initialize(net, x=vectors(), method="measured")
    assert "code that cannot be followed" in done.layers[0].status
    assert done.layers[1].weight_std == pytest.approx(math.sqrt(0.5), rel=0.05)


def test_save_and_load(tmp_path: Path) -> None:
    net, other = ResNet(1, width=8), ResNet(1, width=8)
    initialize(net, x=torch.randn(4, 3, 8, 8))
    path = save(net, tmp_path / "weights.safetensors")
    other.load_state_dict(load_file(path))
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True))
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    assert set(load_file(save(tied, path))) == {"0.weight", "0.bias", "2.bias"}


def test_save_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(net_of(5), tmp_path / "w.safetensors")
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="No space left"):
        save(net_of(6), path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]
    for bad, words in (("w.pt", r"must end in \.safetensors, as 'w\."), ("none/w.safetensors", "no folder")):
        with pytest.raises(InputError, match=words):
            save(net_of(5), tmp_path / bad)
        with pytest.raises(InputError, match=words):
            check_path(tmp_path / bad)
    assert check_path(str(path)) == path
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_path(tmp_path / "x.safetensors")


def test_wrapped_and_copied_models_are_the_same_model() -> None:
    net = residual_mlp(1, 16)
    twin = copy.deepcopy(net)
    initialize(nn.DataParallel(net), x=vectors())
    initialize(twin, x=vectors())
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))
    assert isinstance(Block(3, 3), nn.Module)


def test_the_page_works_when_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "initialize.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "initialize.md", "exec"), names)
    assert names["done"].layers[-2].weight_std == pytest.approx(2**0.5, abs=0.01)
    assert (tmp_path / "weights.safetensors").exists()


class Encoder(nn.Module):
    """Means and logarithms of variances, as of a variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mean, self.logarithm = nn.Linear(100, 50), nn.Linear(50, 8), nn.Linear(50, 8)
        self.last = nn.Linear(8, 100)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        out: Tensor = self.last(self.mean(h) + torch.ones_like(self.mean(h)) * (self.logarithm(h) / 2).exp())
        return out


def test_what_an_exponential_makes_a_scale_of_is_kept() -> None:
    model = Encoder()
    before = bits(model)
    done = initialize(model, x=vectors())
    assert [row.status.partition(":")[0] for row in done.layers] == ["set", "set", "kept", "set"]
    assert torch.equal(model.logarithm.weight, before["logarithm.weight"])


def test_a_readout_of_frozen_features_is_not_enlarged() -> None:
    """Features of a tenth: brought to outputs of unit size, the readout would learn at a tenth of the rate."""
    model = net_of(outputs=10)
    with torch.no_grad():
        model[2].weight.mul_(0.1)
        model[2].bias.zero_()  # type: ignore[operator, union-attr]
    twin = copy.deepcopy(model)
    model[:4].requires_grad_(False)
    assert initialize(model, x=vectors()).layers[-1].weight_std == pytest.approx(1.0)
    twin[0].requires_grad_(False)  # what is trained before it is set, too
    assert initialize(twin, x=vectors()).layers[-1].q == pytest.approx(1.0, abs=0.5)
