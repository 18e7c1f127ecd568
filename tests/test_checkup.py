"""The checkup as users meet it: verdicts of real networks, every kind of module, the model unchanged, bad input."""

import copy
import json
import math

import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup
from epoch0.errors import InputError
from epoch0.measure.gain import gain


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(64, 32, generator=torch.Generator().manual_seed(1))


def relu_net(chi: float, depth: int, width: int = 48) -> nn.Module:
    return e0.networks.mlp([32, *[width] * depth, 5], weights=e0.Gaussian((2 * chi) ** 0.5), seed=2)


@pytest.mark.parametrize(
    ("chi", "outcome", "phase"),
    [(0.5, "vanishing", "ordered"), (1.0, "trains", "critical"), (2.0, "exploding", "chaotic")],
)
def test_verdict_follows_the_gain(x: torch.Tensor, chi: float, outcome: str, phase: str) -> None:
    found = checkup(relu_net(chi, 12), x, directions=4)
    assert (found.outcome, found.phase, found.trains) == (outcome, phase, outcome == "trains")
    # chi of the law within 5 standard errors of 12 layers of width 48: the relative variance of one is 5/48
    assert found.chi == pytest.approx(chi, rel=5 * math.sqrt(5 / 48 / 12))
    assert found.chi_interval[0] < found.chi < found.chi_interval[1]


def test_depth_matters_at_the_same_gain(x: torch.Tensor) -> None:
    shallow, deep = (checkup(relu_net(0.5, depth), x, directions=4) for depth in (4, 15))
    assert shallow.trains and shallow.phase == "ordered"
    assert deep.outcome == "vanishing" and deep.phase == "ordered"
    assert deep.trainable_depth is not None and 6 <= deep.trainable_depth <= 12  # 6 / log 2 = 8.7
    assert "of them instead of 16" in " ".join(deep.advice)


def test_rows_are_the_gains_and_the_passage_is_their_product(x: torch.Tensor) -> None:
    net, targets = relu_net(0.8, 5), torch.arange(64) % 5
    found, measured = checkup(net, x, targets), gain(net, x, targets)
    for layer, row in zip(found.layers, measured.layers, strict=True):
        assert (layer.forward_gain, layer.backward_gain, layer.predicted) == (row.forward, row.backward, row.predicted)
        assert layer.gradient == row.gradient
        assert layer.norm_out == pytest.approx(row.square_out**0.5, rel=1e-5)
    both = [(row.forward + row.backward) / 2 for row in measured.layers]
    assert found.forward.log_gain == pytest.approx(sum(map(math.log, both)))
    assert found.backward.log_gain == pytest.approx(sum(map(math.log, both[1:])))
    assert found.layers[0].shape_in == (32,) and found.layers[-1].shape_out == (5,)


def test_first_layer_gradient_is_what_the_verdict_says(x: torch.Tensor) -> None:
    """The passage is a product over random directions; the gradient of a loss must agree in order of magnitude."""
    found = checkup(relu_net(0.4, 12), x, torch.arange(64) % 5)
    measured = math.log10(found.layers[0].gradient / found.layers[-1].gradient)
    assert found.backward.orders == pytest.approx(measured, abs=0.3)


def test_predictions_stand_beside_measurements(x: torch.Tensor) -> None:
    found = checkup(relu_net(1.0, 6, width=256), x)
    for layer in found.layers:
        assert layer.predicted is not None
        # five standard deviations of one layer's gain at width 256
        assert layer.forward_gain == pytest.approx(layer.predicted, rel=5 * math.sqrt(5 / 256))


class Twice(nn.Module):
    """One layer used twice, with a functional nonlinearity."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.inner(torch.relu(self.inner(x)))))


class Residual(nn.Module):
    """A residual block with batch norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def everything() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Residual(8), nn.Dropout(0.5), Residual(8),
        nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def bits(net: nn.Module) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in net.state_dict().items()}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_norm", ["train", "eval"])
def test_model_comes_back_unchanged(training: bool, batch_norm: str) -> None:
    net = everything().train(training)
    net[3].eval()
    modes = [module.training for module in net.modules()]
    before, random = bits(net), torch.get_rng_state()
    images = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    checkup(net, images, torch.arange(16) % 4, batch_norm=batch_norm, directions=2)
    assert bits(net) == before and [module.training for module in net.modules()] == modes
    assert torch.equal(random, torch.get_rng_state())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_mode_of_the_model_does_not_matter_and_notes_say_what_was_measured() -> None:
    images = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net = everything()
    one, other = checkup(net.train(), images, directions=3), checkup(net.eval(), images, directions=3)
    assert one.to_dict() == other.to_dict()
    text = " ".join(one.notes)
    assert all(words in text for words in ("as training sees it", "Dropout was off", "3 random directions"))
    evaluated = checkup(net, images, batch_norm="eval", directions=2)
    assert "running statistics, as in evaluation" in " ".join(evaluated.notes)
    assert [layer.kind for layer in one.layers][1] == "residual block: 2 convolutions, 2 batch norms, 2 relus"


def test_average_pooling_is_left_out_of_the_judgement() -> None:
    def net(pool: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        convolution = nn.Conv2d(1, 16, 3, padding=1, padding_mode="circular")
        nn.init.normal_(convolution.weight, std=(2 / 9) ** 0.5)
        return nn.Sequential(convolution, nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(4))

    images = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    nets = [net(nn.Identity()), net(nn.AvgPool2d(4))]
    for each in nets:
        each(images)
    without, pooled = (checkup(each, images) for each in nets)
    assert pooled.layers[0].averaged == 16 and without.layers[0].averaged == 1
    assert pooled.layers[0].forward_gain == pytest.approx(without.layers[0].forward_gain / 16, rel=0.1)
    assert pooled.chi == pytest.approx(without.chi, rel=0.1)
    assert any("over 16 places" in note for note in pooled.notes)


def test_module_used_twice_has_two_rows(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    assert [layer.name for layer in checkup(Twice(), x).layers] == ["inner", "inner (2nd use)", "head"]


def test_dead_network(x: torch.Tensor) -> None:
    net = relu_net(1.0, 4)
    with torch.no_grad():
        net[4].bias.fill_(-1e3)  # type: ignore[union-attr,operator]
    found = checkup(net, x)
    assert found.outcome == "dead" and found.layers[2].status == "dead" and found.layers[2].dead_units == 1
    assert "layers 4, 6" in found.verdict and found.trainable_depth == 0
    assert any("marked dead" in line for line in found.advice)
    json.dumps(found.to_dict(), allow_nan=False)


def test_collapsed_network_is_noticed(x: torch.Tensor) -> None:
    found = checkup(e0.networks.mlp([32, *[48] * 6, 5], "tanh", e0.Gaussian(0.5), e0.Gaussian(0.5)), x)
    assert found.layers[-1].status == "collapsed" and found.layers[-1].unlikeness is not None
    assert found.layers[-1].unlikeness < 1e-3 and found.layers[0].status != "collapsed"
    assert any("hardly sees its input" in note for note in found.notes)


def test_collapse_decides_when_gradients_are_well(x: torch.Tensor) -> None:
    """Biases far above the signal: chi stays 1 in a ReLU network, but all examples point the same way."""
    net = nn.Sequential()
    torch.manual_seed(0)
    for _ in range(3):
        layer = nn.Linear(32, 32)
        nn.init.orthogonal_(layer.weight)
        nn.init.constant_(layer.bias, 1e3)
        net.extend([layer, nn.ReLU()])
    found = checkup(net, x)
    assert found.outcome == "collapsed" and not found.trains and "nearly the same output" in found.verdict


def test_saturation_is_noticed(x: torch.Tensor) -> None:
    found = checkup(e0.networks.mlp([32, *[48] * 3, 5], "tanh", e0.Gaussian(20.0)), x)
    assert [layer.status for layer in found.layers[:3]] == ["saturated"] * 3
    assert found.layers[0].saturated is not None and found.layers[0].saturated > 0.5
    assert any("saturated" in note for note in found.notes)


def test_overflow_is_told(x: torch.Tensor) -> None:
    found = checkup(e0.networks.mlp([32, *[32] * 15, 5], weights=e0.Gaussian(1e3)), x, directions=2)
    assert found.outcome == "exploding" and "overflow" in found.verdict
    json.dumps(found.to_dict(), allow_nan=False)


def test_same_seed_same_numbers(x: torch.Tensor) -> None:
    net = relu_net(1.0, 3)
    assert checkup(net, x, seed=4).to_dict() == checkup(net, x, seed=4).to_dict()
    assert checkup(net, x, seed=4).to_dict() != checkup(net, x, seed=5).to_dict()


def test_dictionary_and_frame(x: torch.Tensor) -> None:
    found = checkup(relu_net(1.0, 3), x, name="mine", inputs="noise", notes=["A note."])
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (plain["model"], plain["subject"], plain["verdict"]) == ("mine", "noise", found.verdict)
    assert plain["notes"][0] == "A note." and plain["phase"] == found.phase and plain["chi"] == found.chi
    frame = found.to_pandas()
    assert list(frame["name"]) == [layer["name"] for layer in plain["layers"]] and frame.shape[0] == 4
    assert list(frame["forward_gain"]) == [layer.forward_gain for layer in found.layers]
    assert found.verdict in str(found) and found.phase in str(found)


def test_it_is_one_of_the_public_names(x: torch.Tensor) -> None:
    assert isinstance(e0.checkup(relu_net(1.0, 2), x), Checkup)


def test_bad_input(x: torch.Tensor) -> None:
    net = relu_net(1.0, 2)
    broken = copy.deepcopy(net)
    with torch.no_grad():
        broken[0].weight[0, 0] = math.nan  # type: ignore[union-attr,index]
    cases = [
        (lambda: checkup(broken, x), "NaN"),
        (lambda: checkup(net, torch.randn(4, 33)), "33"),
        (lambda: checkup(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 5)), x), "no nonlinearity"),
        (lambda: checkup(nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8), nn.ReLU()), x[:1]), "batch"),
        (lambda: checkup(net, x, torch.full((64,), 9)), "9"),
        (lambda: checkup(net, x, batch_norm="both"), "batch_norm"),
        (lambda: checkup(net, x, directions=1), "directions"),
        (lambda: checkup("net", x), "Module"),
    ]
    before = bits(net)
    for call, word in cases[:-1]:
        with pytest.raises(InputError, match=word):
            call()
    assert bits(net) == before
