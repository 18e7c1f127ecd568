"""Gains against explicit Jacobians, closed forms and mean-field predictions, over a declared list of networks."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.measure.gain import gain
from epoch0.measure.passes import passes
from epoch0.tracing.layers import layers
from epoch0.tracing.tape import tape
from measured_models import CASES, Case, Functional

DIRECTIONS = 32


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(7)


def jacobian_gain(function: object, h: Tensor) -> float:
    """||J||_F^2 / N_out from the Jacobian of the whole batch, entry by entry."""
    jacobian = torch.autograd.functional.jacobian(function, h.double() if h.dtype == torch.float64 else h)
    outputs = function(h).numel()
    return float(jacobian.double().square().sum() / outputs)


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gains_are_those_of_the_explicit_jacobians(case: Case) -> None:
    g = gain(case.model, case.x, directions=DIRECTIONS)
    assert [layer.name for layer in g.layers] == [name for name, _ in case.segments]
    h, through = case.x, lambda x: x
    for layer, (_, segment) in zip(g.layers, case.segments, strict=True):
        exact = jacobian_gain(segment, h)
        # t with 31 degrees of freedom beyond 5.5: 5e-6 a comparison, about 130 comparisons, fixed seeds
        assert abs(layer.forward - exact) <= 5.5 * layer.forward_error + 1e-5 * exact, (layer.name, exact)
        assert abs(layer.backward - exact) <= 5.5 * layer.backward_error + 1e-5 * exact, (layer.name, exact)
        before = through
        through = lambda x, before=before, segment=segment: segment(before(x))  # noqa: E731
        travelled = jacobian_gain(through, case.x)
        assert abs(layer.tangent - travelled) <= 5.5 * layer.tangent_error + 1e-5 * travelled
        with torch.no_grad():
            assert layer.square_in == pytest.approx(float(h.double().square().mean()), rel=1e-5)
            h = segment(h)
            assert layer.square_out == pytest.approx(float(h.double().square().mean()), rel=1e-5)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradient_norms_are_those_of_one_training_step(case: Case) -> None:
    points = [case.x.clone().requires_grad_()]
    for _, segment in case.segments:
        points.append(segment(points[-1]))
        points[-1].retain_grad()
    targets = torch.randn(points[-1].shape, dtype=case.x.dtype)
    F.mse_loss(points[-1], targets).backward()
    g = gain(case.model, case.x, targets)
    assert g.loss == pytest.approx(float(F.mse_loss(points[-1], targets).detach()), rel=1e-5)
    norms = [g.input_gradient, *(layer.gradient for layer in g.layers)]
    for norm, point in zip(norms, points, strict=True):
        assert norm == pytest.approx(float(point.grad.norm()), rel=1e-4)
    twin = case.twin or case.model
    expected = {name: float(p.grad.norm()) for name, p in twin.named_parameters() if p.grad is not None}
    twin.zero_grad(set_to_none=True)
    measured = {name: norm for layer in g.layers for name, norm in layer.weight_gradients.items()}
    assert measured and measured == {name: pytest.approx(expected[name], rel=1e-4, abs=1e-7) for name in measured}


class Calls(nn.Module):
    """Modules put together by a function."""

    def __init__(self, function: Callable[[nn.ModuleList, Tensor], Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.function = nn.ModuleList(parts), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.parts, x)


def attention(p: nn.ModuleList, x: Tensor) -> Tensor:
    return p[3](F.scaled_dot_product_attention(p[0](x), p[1](x), p[2](x), dropout_p=0.1))


def dense_block(p: nn.ModuleList, x: Tensor) -> Tensor:
    h = p[0](x).relu()
    return p[2](torch.cat([x, h, p[1](torch.cat([x, h], 1)).relu()], 1))


def spectrum(p: nn.ModuleList, x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(p[0](x)) * 2, n=8).relu()


def read_out_last(p: nn.ModuleList, x: Tensor) -> Tensor:
    return p[1](p[0](x)[0][:, -1])


def summed(p: nn.ModuleList, x: Tensor) -> Tensor:
    return torch.einsum("bi,oi->bo", x, p[0].weight).relu()


def multiplied(p: nn.ModuleList, x: Tensor) -> Tensor:
    return (x @ p[0].weight.T).relu() @ p[1].weight.T


def upwards() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(2, 3, 3, stride=2), nn.ReLU(), nn.GroupNorm(3, 3), nn.Upsample(scale_factor=2),
        nn.Conv2d(3, 1, 1),
    )  # fmt: skip


def square() -> nn.Linear:
    return nn.Linear(8, 8)


torch.manual_seed(6)
ZOO: dict[str, tuple[nn.Module, tuple[int, ...], list[str]]] = {
    "lstm": (
        Calls(read_out_last, nn.LSTM(6, 8, 2, batch_first=True, dropout=0.3), nn.Linear(8, 3)),
        (4, 5, 6), ["parts.0", "parts.1"],
    ),
    "gru": (Calls(lambda p, x: p[0](x)[1][-1], nn.GRU(6, 8, batch_first=True)), (4, 5, 6), ["parts.0"]),
    "attention": (
        Calls(attention, square(), square(), square(), square()), (4, 2, 5, 8), ["parts.0 … parts.2", "parts.3"],
    ),
    "dense block": (
        Calls(dense_block, nn.Linear(8, 4), nn.Linear(12, 4), nn.Linear(16, 2)),
        (4, 8), ["parts.0 … parts.1", "parts.2"],
    ),
    "complex inside": (Calls(spectrum, square()), (4, 8), ["parts.0"]),
    "einsum": (Calls(summed, square()), (4, 8), ["parts.0"]),
    "matmul": (Calls(multiplied, square(), square()), (4, 8), ["parts.0", "parts.1"]),
    "up": (upwards(), (3, 2, 5, 5), ["0", "4"]),
    "pruned": (nn.Sequential(prune.random_unstructured(square(), "weight", 0.5), nn.ReLU()), (4, 8), ["0"]),
    "one number": (Calls(lambda p, x: p[0](x).tanh().mean(), square()), (4, 8), ["parts.0"]),
    "sequence first": (nn.TransformerEncoderLayer(8, 2, 12), (5, 4, 8), ["self_attn", "linear1 … linear2"]),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ZOO)
def test_both_ways_estimate_one_number_on_any_model(name: str) -> None:
    model, shape, names = ZOO[name]
    g = gain(model, torch.randn(shape, generator=torch.Generator().manual_seed(2)), directions=24)
    assert [layer.name for layer in g.layers] == names
    for layer in g.layers:
        # differences beyond 5.5 standard errors (46 degrees of freedom): 2e-6 a comparison
        error = math.hypot(layer.forward_error, layer.backward_error)
        assert abs(layer.forward - layer.backward) <= 5.5 * error + 1e-5 * layer.forward
        assert layer.forward > 0 and math.isfinite(layer.tangent) and layer.weight_gradients
    assert "carried from end to end" in str(g)


def test_a_mask_over_weights_is_seen_by_the_prediction() -> None:
    linear = prune.random_unstructured(nn.Linear(300, 300), "weight", 0.7)
    layer = gain(nn.Sequential(linear, nn.ReLU()), torch.randn(16, 300)).layers[0]
    assert layer.predicted == pytest.approx(45 * float(linear.weight_orig.detach().square().mean()), rel=0.03)
    assert layer.forward == pytest.approx(layer.predicted, rel=0.05)
    assert list(layer.weight_gradients) == ["0.bias", "0.weight_orig"]


def test_a_model_that_hands_its_input_through_is_refused() -> None:
    with pytest.raises(InputError, match=r"returns its input of shape \(4, 8\) as it is"):
        gain(Calls(lambda p, x: x, nn.Linear(8, 8)), torch.randn(4, 8))


def test_the_table_of_a_network_that_leaves_the_range_of_floats() -> None:
    net = nn.Sequential(*[m for _ in range(40) for m in (nn.Linear(8, 8), nn.LeakyReLU(0.5))]).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1e9)
    text = str(gain(net, torch.randn(4, 8, dtype=torch.float64)))
    assert "times beyond floats" in text and "grows" in text


@pytest.mark.slow
def test_relu_with_batch_norm_explodes_going_back() -> None:
    """Yang et al. 2019: pi / (pi - 1) a layer; width and batch leave about (1/width + 1/batch) of bias."""
    torch.manual_seed(0)
    blocks = [m for _ in range(3) for m in (nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU())]
    net = nn.Sequential(*blocks)
    x = torch.randn(512, 512)
    g = gain(net, x, directions=4)
    assert g.batch_norm == "train"
    # the first layer sees a Gaussian, not a rectified one: chi = 1/2
    assert g.chi_backward[0] == pytest.approx(0.5, rel=0.03)
    assert g.chi_backward[1:] == pytest.approx(math.pi / (math.pi - 1), rel=0.04)
    assert g.chi_forward[1:] == pytest.approx(math.pi / (math.pi - 1), rel=0.04)
    assert [layer.verdict for layer in g.layers] == ["shrinks", "keeps", "keeps"]
    # in eval mode (fresh running statistics: mean 0, variance 1) it is an ordered net that hides the explosion
    hidden = gain(net, x, directions=4, batch_norm="eval")
    assert hidden.batch_norm == "eval" and (hidden.chi_backward < 0.3).all()


@pytest.mark.parametrize(("activation", "variance"), [("relu", 2.0), ("tanh", 1.5), ("leaky_relu", 1.2), ("gelu", 2.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wide_layers_agree_with_mean_field(activation: str, variance: float, dtype: torch.dtype) -> None:
    """A width-400 layer's chi fluctuates by about sqrt(5/400) / sqrt(directions of the batch); 6 % is over 5 sigma."""
    net = e0.networks.mlp([100, 400, 400, 10], activation, e0.Gaussian(variance**0.5), seed=3, dtype=dtype)
    g = gain(net, torch.randn(32, 100, generator=torch.Generator().manual_seed(0)), targets=torch.arange(32) % 10)
    assert g.examples == 32 and g.batch_norm is None and not g.dropout
    for layer in g.layers:
        assert layer.predicted is not None
        assert layer.forward == pytest.approx(layer.predicted, rel=0.06, abs=5 * layer.forward_error)
        assert layer.backward == pytest.approx(layer.predicted, rel=0.06, abs=5 * layer.backward_error)
    assert g.layers[-1].predicted == pytest.approx(variance, rel=0.1)  # the readout has no activation
    if activation == "relu":
        assert g.layers[0].predicted == pytest.approx(1.0, rel=0.02)
        assert g.layers[0].verdict == "keeps"


def test_predictions_count_padding_and_stop_at_max_pools() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip
    g = gain(net, torch.randn(16, 3, 8, 8))
    first = g.layers[0]
    assert first.predicted == pytest.approx(first.forward, rel=0.1)
    # 8 x 8 positions, 9 taps, zero padding: (22/24)^2 of the taps are there
    weight = net[0].weight.detach()
    assert first.predicted == pytest.approx(float(27 * weight.square().mean() / 2) * (22 / 24) ** 2, rel=0.03)
    assert [layer.agreement for layer in g.layers] == ["as predicted", "no law: max pool", *["as predicted"] * 2]
    assert [layer.predicted is None for layer in g.layers] == [False, True, False, False]


def test_table() -> None:
    g = gain(e0.networks.mlp([20, 40, 40, 5], weights=e0.Gaussian(1.0), seed=0), torch.randn(12, 20), directions=16)
    assert g.depth == 3 and g.chi_forward.shape == (3,)
    text = str(g)
    assert "chi forward" in text and "carried from end to end" in text and max(map(len, text.splitlines())) < 140
    frame = g.to_pandas()
    assert list(frame["name"]) == ["0", "2", "4"] and "verdict" in frame and (frame["weight_gradient"] > 0).all()


def test_same_seed_same_bits_and_global_streams_untouched() -> None:
    net, x = Functional(), torch.randn(4, 6)
    state = torch.get_rng_state()
    one, two, other = gain(net, x, seed=1), gain(net, x, seed=1), gain(net, x, seed=2)
    assert (one.chi_forward == two.chi_forward).all() and (one.chi_backward == two.chi_backward).all()
    assert (one.chi_forward != other.chi_forward).all()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.slow
def test_errors_are_honest() -> None:
    """Over 60 seeds the spread of the estimates agrees with the stated standard errors (chi2, 59 df: 1e-4 outside)."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4))
    with tape(net, torch.randn(6, 8)) as record:
        found = layers(record)
        every = [passes(record, found, 6, seed, nodes=[layer.output for layer in found]) for seed in range(60)]
    for runs in (np.array([getattr(one, way).total for one in every]) for way in ("forward", "backward")):
        # (seeds, directions, layers)
        stated = (runs.var(axis=1, ddof=1) / runs.shape[1]).mean(axis=0)
        ratio = runs.mean(axis=1).var(axis=0, ddof=1) / stated
        assert ((ratio > 0.4) & (ratio < 2.0)).all()


def test_verdicts_speak_of_the_whole_depth() -> None:
    def verdicts(std: float, depth: int) -> set[str]:
        net = e0.networks.mlp([64] * (depth + 1), weights=e0.Gaussian(std), linear_output=False, seed=0)
        return {layer.verdict for layer in gain(net, torch.randn(128, 64), directions=16).layers}

    assert verdicts(1.3, 3) == {"keeps"}  # chi = .85: over 3 layers a fifth is lost
    assert verdicts(1.0, 12) == {"shrinks"}
    assert verdicts(2.0, 12) == {"grows"}


def test_dead_and_overflowing_layers_are_called_so() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        net[0].bias.fill_(-100.0)
    g = gain(net, torch.randn(5, 4))
    assert g.layers[0].verdict == "dead" and g.chi_forward[0] == 0
    assert g.layers[0].predicted is not None
    assert "dead" in str(g)
    with torch.no_grad():
        net[0].bias.zero_()
        for p in net.parameters():
            p.fill_(1e30)
    assert "overflows" in [layer.verdict for layer in gain(net, torch.rand(5, 4)).layers]


def test_a_batch_of_one_has_no_error_over_examples() -> None:
    g = gain(nn.Sequential(nn.Linear(4, 6), nn.Tanh()), torch.randn(1, 4))
    assert math.isnan(g.layers[0].forward_example_error) and math.isfinite(g.layers[0].forward_error)


def test_losses() -> None:
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(5, 4)
    classes = torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        outputs = net(x)
    assert gain(net, x, classes).loss == pytest.approx(float(F.cross_entropy(outputs, classes)))
    own = gain(net, x, classes, loss=lambda outputs, targets: outputs[targets == 1].sum())
    assert own.loss == pytest.approx(float(outputs[classes == 1].sum()), rel=1e-5)
    assert gain(net, x).loss is None
    for targets, loss, message in [
        (torch.tensor([0, 1, 2, 0, 3]), None, "target 3 is out of range: the model has 3 outputs"),
        (classes[:4], None, "4 targets for 5 examples"),
        (torch.randn(5), None, r"need shape \(5, 3\)"),
        (torch.zeros(5, 3, dtype=torch.long), None, "one for each of the 5 examples"),
        ([0, 1], None, "not a list"),
        (None, F.cross_entropy, "no targets"),
        (classes, lambda outputs, targets: outputs, "one number"),
        (classes, lambda outputs, targets: outputs.sum() / 0, "finite"),
        (classes, lambda outputs: outputs, "the loss fails|loss .* 2 arguments"),
    ]:
        with pytest.raises(InputError, match=message):
            gain(net, x, targets, loss=loss)


def test_positions_each_have_a_class() -> None:
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(5, 7, 4)
    targets = torch.randint(3, (5, 7))
    with torch.no_grad():
        expected = F.cross_entropy(net(x).flatten(0, 1), targets.flatten())
    assert gain(net, x, targets).loss == pytest.approx(float(expected))


@pytest.mark.parametrize("directions", [1, 0, True])
def test_directions_must_allow_an_error(directions: object) -> None:
    with pytest.raises(InputError, match=">= 2"):
        gain(nn.Linear(2, 2), torch.randn(3, 2), directions=directions)  # type: ignore[arg-type]
