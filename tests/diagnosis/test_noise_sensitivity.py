"""What noise in one layer's weights does: against changed copies of the model, closed forms, and kinds of networks."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import epoch0 as e0
from epoch0.diagnosis import checkup
from epoch0.diagnosis.noise_sensitivity import NoiseSensitivity, noise_sensitivity
from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing.call import Call

# the first forward derivative loads a part of torch that uses its own deprecated script compiler
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def batch(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator(7))


def look(
    net: nn.Module, x: torch.Tensor, noise: float = 0.1, targets=None, batch_norm: str = "train"
) -> NoiseSensitivity:
    return noise_sensitivity(Call.of(net, x, targets), noise, batch_norm)


def test_changed_copies_of_the_model() -> None:
    net, x, y = e0.networks.mlp([20, 30, 30, 5], "tanh", seed=1), batch(16, 20), torch.arange(16) % 5
    found = look(net, x, 0.2, y)
    assert [row.name for row in found.layers] == ["0", "2", "4"] and found.draws == 4
    clean = net(x)
    for place, row in enumerate(found.layers):
        changes, right = [], []
        for draw in range(found.draws):
            twin = copy.deepcopy(net)
            weight = twin.get_submodule(row.name).weight.data
            step = torch.randn(weight.shape, generator=generator(0, place, draw, 0))
            weight += 0.2 * weight.square().mean().sqrt() * step
            output = twin(x)
            changes.append(((output - clean).square().sum() / clean.square().sum()).sqrt().item())
            right.append((output.argmax(1) == y).double().mean().item())
        assert row.change == pytest.approx(sum(changes) / 4, rel=1e-4)
        assert row.accuracy == pytest.approx(sum(right) / 4, abs=1e-9)
    assert found.accuracy == pytest.approx((clean.argmax(1) == y).double().mean().item())


@pytest.mark.parametrize("bias", [0.0, 0.4])
def test_last_layer_is_noise_times_weights_against_outputs(bias: float) -> None:
    """eps r |z| against |W z + b| in root mean square; 400 outputs leave the draws within a few percent of it."""
    net, x = e0.networks.mlp([50, 100, 400], biases=e0.Gaussian(bias) if bias else None, seed=3), batch(64, 50)
    with torch.no_grad():
        z = net[:2](x)
        size = net[2].weight.square().mean().sqrt()
        expected = 0.1 * size * (z.square().sum(1).mean() / net(x).square().mean()).sqrt()
    row = look(net, x).layers[-1]
    assert row.predicted == pytest.approx(float(expected), rel=0.01)  # 8 cotangents of 25,600 entries: .2 % each
    assert row.change == pytest.approx(float(expected), rel=0.05)


def test_the_prediction_is_the_sum_of_squares_of_the_derivative() -> None:
    """Against the whole Jacobian; 8 cotangents of 40 entries leave some 10 % of it, and a module used twice is one."""
    torch.manual_seed(0)
    net, x = Twice(), batch(2, 40)
    outputs = net(x)
    for row in look(net, x, noise=1e-3).layers:
        weight = net.get_submodule(row.name).weight
        rows = [torch.autograd.grad(one, weight, retain_graph=True)[0] for one in outputs.flatten()]
        slopes = sum(row.square().sum() for row in rows)
        square = (slopes * weight.square().mean() / outputs.square().sum()).detach()
        assert row.predicted == pytest.approx(1e-3 * float(square.sqrt()), rel=0.3)


def test_wide_limit_of_a_chaotic_network() -> None:
    """The square root of the product of chi behind over that of the gains of mean squares, from mean-field theory."""
    from epoch0.theory.mean_field import chi, variance_map

    depth, std, noise = 6, 1.6, 0.01
    net, x = e0.networks.mlp([300] * (depth + 2), "tanh", weights=e0.Gaussian(std), seed=5), batch(16, 300)
    x = x / x.square().mean(1, keepdim=True).sqrt()
    q = [std**2]
    while len(q) < depth + 1:
        q.append(variance_map("tanh", std, 0.0, q[-1]))
    found = look(net, x, noise)
    for place, row in enumerate(found.layers):
        # q of a layer's pre-activation is sigma_w^2 times the mean square that enters it
        expected = noise * math.sqrt(math.prod(chi("tanh", std, value) for value in q[place:-1]) * q[place] / q[-1])
        assert row.predicted == pytest.approx(expected, rel=0.05), row.name
        assert row.change == pytest.approx(expected, rel=0.1), row.name
    assert found.most_fragile is not None and found.most_fragile.name == "0"
    assert found.sentence.startswith("Most fragile: layer '0': 1.0 % noise in its weights changes the outputs by")
    changes = [row.change for row in found.layers]
    assert changes == sorted(changes, reverse=True)


def test_ordered_networks_forget_what_happens_below() -> None:
    net = e0.networks.mlp([60, *[120] * 8, 10], "tanh", weights=e0.Gaussian(0.8), biases=e0.Gaussian(0.3), seed=2)
    found = look(net, batch(32, 60))
    assert found.most_fragile is not None and found.most_fragile.name == "16"


def test_no_layer_of_a_critical_relu_network_stands_out() -> None:
    """Without biases a change of a layer's size by one part in ten is one in the outputs, whichever layer it is in."""
    found = look(e0.networks.mlp([60, *[200] * 5, 200], seed=1), batch(32, 60))
    assert found.most_fragile is None and "No layer stands out" in found.sentence
    assert all(row.predicted == pytest.approx(row.change, rel=0.3) for row in found.layers)


class Branches(nn.Module):
    """Convolutions with batch norm and a shortcut, average pooling and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.one, self.two = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(32) for _ in range(3))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.stem(x)).relu()
        x = (x + self.norms[2](self.two(self.norms[1](self.one(x)).relu()))).relu()
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("batch_norm", ["train", "eval"])
def test_prediction_through_blocks_norms_and_average_pools(batch_norm: str, images: bool) -> None:
    """On noise and on images, whose places are alike."""
    torch.manual_seed(0)
    x = batch(16, 3, 12, 12)
    found = look(Branches(), x.abs() if images else x, batch_norm=batch_norm)
    assert [row.name for row in found.layers] == ["stem", "one", "two", "head"]
    for row in found.layers:
        assert row.predicted is not None and row.change is not None
        assert row.predicted == pytest.approx(row.change, rel=0.35), row


def test_pruned_weights_stay_pruned_and_parametrized_ones_count_as_they_are_used() -> None:
    x = batch(32, 20)
    net = e0.networks.mlp([20, 40, 40, 30], seed=0)
    masked = e0.prune.apply(net, e0.prune.keep(e0.prune.magnitude(net), sparsity=0.8))
    baked = e0.prune.bake(copy.deepcopy(masked))
    for row, other in zip(look(masked, x).layers, look(baked, x).layers, strict=True):
        assert row.change == pytest.approx(other.change, rel=1e-5)
        assert row.predicted == pytest.approx(row.change, rel=0.35)
    torch.manual_seed(1)
    normed = nn.Sequential(weight_norm(nn.Linear(20, 80)), nn.ReLU(), spectral_norm(nn.Linear(80, 80)), nn.Tanh())
    before = {name: tensor.clone() for name, tensor in normed.state_dict().items()}
    found = look(normed, x)
    assert [row.name for row in found.layers] == ["0", "2"]
    assert all(row.predicted == pytest.approx(row.change, rel=0.25) for row in found.layers)
    assert all(torch.equal(before[name], tensor) for name, tensor in normed.state_dict().items())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(40, 40), nn.Linear(40, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


def test_a_layer_used_twice_gets_the_same_noise_twice() -> None:
    torch.manual_seed(0)
    net, x = Twice(), batch(32, 40)
    found = look(net, x)
    assert [row.name for row in found.layers] == ["inner", "head"]
    changes = []
    for draw in range(found.draws):
        twin = copy.deepcopy(net)
        weight = twin.inner.weight.data
        weight += 0.1 * weight.square().mean().sqrt() * torch.randn(weight.shape, generator=generator(0, 0, draw, 0))
        changes.append(((twin(x) - net(x)).square().sum() / net(x).square().sum()).sqrt().item())
    assert found.layers[0].change == pytest.approx(sum(changes) / len(changes), rel=1e-4)


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean(1))


def test_attention_is_predicted_too() -> None:
    torch.manual_seed(0)
    found = look(Attends(), batch(8, 6, 32))
    assert {"body.layers.0.self_attn", "head"} <= {row.name for row in found.layers}
    assert all(row.predicted == pytest.approx(row.change, rel=0.35) for row in found.layers)


def test_deep_networks_are_measured_in_some_layers_that_are_named() -> None:
    found = look(e0.networks.mlp([16] * 41, "tanh", weights=e0.Gaussian(2.0), seed=0), batch(16, 16))
    measured = [int(row.name) // 2 for row in found.measured]
    assert len(found.layers) == 40 and 11 <= len(measured) <= 12 and found.draws == 2
    assert measured[0] == 0 and measured[-1] == 39
    assert max(b - a for a, b in pairwise(measured)) <= 5
    assert all(row.predicted is not None for row in found.layers)
    assert found.most_fragile is not None and "too much for a law of small changes" in found.sentence


def test_overflow_and_dead_networks_say_so() -> None:
    net = e0.networks.mlp([8, 8, 8], seed=0)
    with torch.no_grad():
        net[2].weight.zero_()
    found = look(net, batch(8, 8))
    assert not found.measured and "cannot be told" in found.sentence and found.most_fragile is None


def test_in_the_checkup_text_page_and_json(tmp_path) -> None:
    net, x = e0.networks.mlp([20, 60, 60, 5], "tanh", weights=e0.Gaussian(2.0), seed=1), batch(32, 20)
    y = torch.arange(32) % 5
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state, settings = torch.get_rng_state(), {"directions": 2, "trial": False, "remedies": False, "noise": 0.1}
    found = checkup(net, x, y, **settings)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    told = found.to_dict()["noise_sensitivity"]
    assert told["noise"] == 0.1 and [row["name"] for row in told["layers"]] == ["0", "2", "4"]
    assert told["sentence"] in str(found) and all(0 <= row["accuracy"] <= 1 for row in told["layers"])
    assert any("Noise was put into the weights of each module 4 times" in note for note in found.notes)
    page = found.to_html(tmp_path / "page.html").read_text()
    assert "Which layer is most fragile?" in page and "change of the outputs, relative to the outputs" in page
    again = checkup(net, x, y, **settings)
    assert again.to_dict()["noise_sensitivity"] == told
    both = found.compare(again)
    assert both.to_dict()["after"]["noise_sensitivity"] == told and str(both).count(told["sentence"]) == 2
    none = checkup(net, x, y, **{**settings, "noise": None})
    assert none.noise_sensitivity is None and none.to_dict()["noise_sensitivity"] is None
    assert "fragile" not in none.to_html(tmp_path / "none.html").read_text().lower()


@pytest.mark.parametrize("noise", [0.0, -0.1, math.nan, math.inf, True])
def test_refused_sizes(noise: float) -> None:
    with pytest.raises(InputError, match="noise="):
        checkup(e0.networks.mlp([4, 4, 4], seed=0), batch(4, 4), noise=noise)


def test_a_model_that_begins_with_an_embedding() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 16), nn.Linear(16, 16), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3))
    ids = torch.arange(100).reshape(20, 5) % 11
    found = e0.checkup(model, ids, torch.arange(20) % 3, noise=0.1, trial=False, remedies=False).noise_sensitivity
    assert found is not None and [row.name for row in found.measured] == ["0", "1", "4"]
    assert all(row.change == pytest.approx(row.predicted, rel=0.3) for row in found.measured)
