"""The checkup as users meet it: verdicts, any way of calling a model, the model unchanged, bad input."""

import copy
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup, trial
from epoch0.diagnosis.result import VerdictError
from epoch0.diagnosis.step import LADDER
from epoch0.errors import InputError
from epoch0.measure.gain import gain
from epoch0.seeds import generator


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LENGTHS", (3,))
    monkeypatch.setattr(trial, "OTHERS", 3)


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(96, 32, generator=generator(1))


@pytest.fixture(scope="module")
def y(x: Tensor) -> Tensor:
    return (x @ torch.randn(32, 5, generator=generator(2))).argmax(1)


def dense(depth: int, width: int = 48) -> nn.Sequential:
    """ReLU layers as torch initializes them."""
    torch.manual_seed(0)
    sizes = [32, *[width] * (depth - 1)]
    layers = [[nn.Linear(a, b), nn.ReLU()] for a, b in pairwise(sizes)]
    return nn.Sequential(*[module for layer in layers for module in layer], nn.Linear(sizes[-1], 5))


def relu_net(chi: float, depth: int, width: int = 48) -> nn.Module:
    return e0.networks.mlp([32, *[width] * depth, 5], weights=e0.Gaussian((2 * chi) ** 0.5), seed=0)


def quick(net: nn.Module, *given: Any, **settings: Any) -> Checkup:
    return checkup(net, *given, **{"trial": False, "remedies": False, "directions": 2, **settings})


def test_a_plain_network_trains_and_says_how(monkeypatch: pytest.MonkeyPatch, x: Tensor, y: Tensor) -> None:
    monkeypatch.setattr(trial, "LENGTHS", (30,))
    found = checkup(dense(3), x, y)
    assert found.trains and found.outcome == "trains" and found.blame is None and not found.remedies
    assert found.verdict.removeprefix("Probably: ").lower().startswith("trains with either, adam at a rate of about")
    for name, recipe in found.recipes.items():
        assert recipe.optimizer == name and recipe.trains and 0.5 <= recipe.probability <= 1
        assert recipe.learning_rate in [run.rate for run in found.trial.of(name)]
        assert recipe.largest_learning_rate in LADDER[name] and recipe.evidence == "trial" and recipe.cause == "learns"
        assert "in 30 steps at" in recipe.reason and "held-out" in recipe.reason
        assert recipe.numbers and all(math.isfinite(value) for value in recipe.numbers.values())
    assert found.advice == (next(line for line in found.advice if "nothing has to change" in line),)
    found.raise_for_verdict()


def test_a_deep_network_does_not_and_the_remedy_that_was_tried_is_said(x: Tensor, y: Tensor) -> None:
    found = checkup(dense(16, 16), x, y, trial=False)
    assert not found.trains and found.outcome == "vanishing" and found.backward.orders < -3
    assert "Will not train: gradients shrink by" in found.verdict
    helped = [remedy for remedy in found.remedies if remedy.helps]
    assert helped and helped[0].after >= helped[0].before + 0.1 and "e0.initialize" in helped[0].change
    assert any(line.startswith(f"{helped[0].change}: tried on a copy") for line in found.advice)
    with pytest.raises(VerdictError, match="Will not train"):
        found.raise_for_verdict()
    with pytest.raises(AssertionError, match=r"where False = <Checkup of Sequential: Will not train: gr"):
        assert found.trains  # what pytest shows of it
    with pytest.raises(AssertionError, match="Will not train: gradients"):
        assert found
    without = checkup(dense(16, 16), x, y, trial=False, remedies=False)
    assert not without.remedies and not any("e0.initialize" in line for line in without.advice)


@pytest.mark.slow
def test_without_a_trial_remedies_are_tried_where_that_is_quick(
    monkeypatch: pytest.MonkeyPatch, x: Tensor, y: Tensor
) -> None:
    monkeypatch.setattr(sys.modules["epoch0.diagnosis.checkup"], "SHORT", 0.0)
    by_default, asked = (checkup(dense(16, 16), x, y, trial=False, remedies=how) for how in (None, True))
    assert not by_default.remedies and any("see remedies=True" in note for note in by_default.notes)
    assert asked.remedies and not any("No remedy was tried" in note for note in asked.notes)
    assert checkup(dense(16, 16), x, y, trial=True).remedies


def test_nothing_is_advised_that_did_not_help(monkeypatch: pytest.MonkeyPatch, x: Tensor, y: Tensor) -> None:
    module = sys.modules["epoch0.diagnosis.checkup"]
    monkeypatch.setattr(module, "initialize", lambda model, **settings: None)
    found = checkup(dense(16, 16), x, y, trial=False)
    assert len(found.remedies) == len(module.WAYS) and not any(remedy.helps for remedy in found.remedies)
    assert all(remedy.after == pytest.approx(remedy.before, abs=0.05) for remedy in found.remedies)
    assert any("did not help" in line for line in found.advice)
    assert not any("chance to train is" in line for line in found.advice)


def test_cannot_is_said_where_no_weight_gets_a_gradient(x: Tensor, y: Tensor) -> None:
    net = dense(3).append(nn.ReLU())
    nn.init.constant_(net[4].bias, -10)
    found = quick(net, x, y)
    assert found.verdict == "Cannot train: no weight gets a gradient." and found.outcome == "no gradient"
    assert all(recipe.probability <= 0.01 for recipe in found.recipes.values())
    # a layer that is dead inside leaves the readout's bias: "cannot" would be too much
    net = dense(4)
    nn.init.constant_(net[2].bias, -10)
    found = quick(net, x, y)
    assert found.verdict.startswith("Will not train: ") and found.blame is not None and found.blame[0] == "2"
    assert found.layers[1].status == "dead" and found.layers[1].dead_units == 1
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_trial_is_on_where_it_is_quick(monkeypatch: pytest.MonkeyPatch, x: Tensor, y: Tensor) -> None:
    net = dense(2, 16)
    by_default, left_out = checkup(net, x, y, remedies=False), quick(net, x, y)
    assert by_default.trial is not None and by_default.trial_reason == "" and by_default.trial.steps == 3
    assert left_out.trial is None and left_out.trial_reason == "left out, as asked"
    assert {recipe.evidence for recipe in left_out.recipes.values()} == {"step 0"}
    monkeypatch.setattr(sys.modules["epoch0.diagnosis.checkup"], "affordable", lambda *seconds: None)
    slow = checkup(net, x, y, remedies=False)
    assert slow.trial is None and "trial=True makes it all the same" in slow.trial_reason
    forced = checkup(net, x, y, trial=True, remedies=False)
    assert forced.trial is not None and forced.trial.steps == 30


@pytest.mark.parametrize(("chi", "phase"), [(0.5, "ordered"), (1.0, "critical"), (2.0, "chaotic")])
def test_the_phase_is_that_of_the_gains(x: Tensor, y: Tensor, chi: float, phase: str) -> None:
    found = quick(relu_net(chi, 12), x, y, directions=4)
    assert found.phase == phase and found.chi_interval[0] < found.chi < found.chi_interval[1]
    # chi of the law within 5 standard errors of 12 layers of width 48: the relative variance of one is 5/48
    assert found.chi == pytest.approx(chi, rel=5 * math.sqrt(5 / 48 / 12))


def test_rows_are_those_of_gain(x: Tensor, y: Tensor) -> None:
    net = relu_net(0.8, 5)
    found, measured = quick(net, x, y, directions=8), gain(net, x, y)
    for layer, row in zip(found.layers, measured.layers, strict=True):
        assert (layer.forward_gain, layer.backward_gain, layer.predicted) == (row.forward, row.backward, row.predicted)
        assert layer.gradient == row.gradient and layer.tangent == math.sqrt(row.tangent)
        assert layer.norm_out == pytest.approx(row.square_out**0.5, rel=1e-5)
    assert found.layers[-1].shape_out == (5,)


class Twice(nn.Module):
    """One layer used twice, with a functional nonlinearity."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.inner(torch.relu(self.inner(x)))))


class Residual(nn.Module):
    """A residual block with batch norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def everything() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Residual(8), nn.Dropout(0.5), Residual(8),
        nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def plain(found: Checkup) -> dict[str, Any]:
    """What a checkup says: no time that it took is in it."""
    told = found.to_dict()
    assert "seconds" not in told and (told["trial"] is None or "seconds" not in told["trial"])
    return told


@pytest.mark.slow
def test_mode_of_the_model_does_not_matter_and_notes_say_what_was_measured() -> None:
    images, labels = torch.randn(16, 3, 8, 8, generator=generator(0)), torch.arange(16) % 4
    net = everything()
    one, other = checkup(net.train(), images, labels, directions=3), checkup(net.eval(), images, labels, directions=3)
    assert plain(one) == plain(other)
    text = " ".join(one.notes)
    assert all(words in text for words in ("as training sees it", "Dropout was off", "3 random directions"))
    evaluated = quick(net, images, labels, batch_norm="eval")
    assert "running statistics, as in evaluation" in " ".join(evaluated.notes)
    assert [layer.kind for layer in one.layers][1] == "residual block: 2 convolutions, 2 batch norms, 2 relus"
    assert [part.name for part in one.layers[1].parts] == ["3.body.0", "3.body.1", "3.body.3", "3.body.4"]


def test_average_pooling_is_left_out_of_the_phase() -> None:
    def net(pool: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        convolution = nn.Conv2d(1, 16, 3, padding=1, padding_mode="circular")
        nn.init.normal_(convolution.weight, std=(2 / 9) ** 0.5)
        return nn.Sequential(convolution, nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(4))

    images = torch.randn(32, 1, 8, 8, generator=generator(0))
    nets = [net(nn.Identity()), net(nn.AvgPool2d(4))]
    for each in nets:
        each(images)
    without, pooled = (quick(each, images, directions=8) for each in nets)
    assert pooled.layers[0].averaged == 16 and without.layers[0].averaged == 1
    assert pooled.layers[0].forward_gain == pytest.approx(without.layers[0].forward_gain / 16, rel=0.1)
    assert pooled.chi == pytest.approx(without.chi, rel=0.1)
    assert any("over 16 places" in note for note in pooled.notes)


def test_module_used_twice_has_two_rows(x: Tensor) -> None:
    torch.manual_seed(0)
    assert [layer.name for layer in quick(Twice(), x).layers] == ["inner", "inner (2nd use)", "head"]


def test_states_of_layers_are_noticed(x: Tensor, y: Tensor) -> None:
    collapsed = quick(e0.networks.mlp([32, *[48] * 6, 5], "tanh", e0.Gaussian(0.5), e0.Gaussian(0.5)), x, y)
    assert collapsed.layers[-1].status == "collapsed" and collapsed.layers[0].status != "collapsed"
    assert collapsed.layers[-1].dissimilarity is not None and collapsed.layers[-1].dissimilarity < 1e-3
    saturated = quick(e0.networks.mlp([32, *[48] * 3, 5], "tanh", e0.Gaussian(20.0)), x, y)
    assert [layer.status for layer in saturated.layers[:3]] == ["saturated"] * 3
    assert saturated.layers[0].saturated is not None and saturated.layers[0].saturated > 0.5


def test_overflow_is_told(x: Tensor, y: Tensor) -> None:
    found = quick(e0.networks.mlp([32, *[32] * 15, 5], weights=e0.Gaussian(1e3)), x, y)
    assert found.outcome == "overflow" and "leave the range of floats" in found.verdict and not found.trains
    json.dumps(found.to_dict(), allow_nan=False)


def test_same_seed_same_numbers(x: Tensor, y: Tensor) -> None:
    net = relu_net(1.0, 1)
    one, two, other = (plain(checkup(net, x, y, directions=2, remedies=False, seed=seed)) for seed in (4, 4, 5))
    assert one == two != other


def test_dictionary_and_frame(x: Tensor, y: Tensor) -> None:
    found = checkup(relu_net(1.0, 3), x, y, directions=2, remedies=False, name="mine", inputs="noise")
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (told["model"], told["subject"], told["verdict"]) == ("mine", "noise", found.verdict)
    assert told["notes"] == list(found.notes) and told["phase"] == found.phase and told["chi"] == found.chi
    assert told["recipes"]["adam"]["probability"] == found.recipes["adam"].probability
    assert told["trial"]["runs"][0]["rate"] == 3e-4
    frame = found.to_pandas()
    assert list(frame["name"]) == [layer["name"] for layer in told["layers"]] and frame.shape[0] == 4
    assert list(frame["forward_gain"]) == [layer.forward_gain for layer in found.layers]
    assert found.verdict in str(found) and found.phase in str(found)
    assert isinstance(e0.checkup(relu_net(1.0, 2), x, trial=False), Checkup)


@dataclass
class Answer:
    """What a transformer returns."""

    logits: Tensor
    loss: Tensor | None = None


class Language(nn.Module):
    """A language model in the manner of Hugging Face."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.body = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1, norm_first=True)
        self.head = nn.Linear(16, 11, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Answer:
        logits = self.head(self.body(self.embedding(input_ids)))
        return Answer(logits, None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten()))


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        def mixed(h: Tensor) -> Tensor:
            return h + torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])

        return self.two(mixed(torch.relu(self.one(mixed(x)))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


class Changing(nn.Module):
    """Computes something else each time."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.calls = nn.Linear(8, 16), nn.Linear(16, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        h = torch.relu(self.one(x))
        for _ in range(self.calls):
            h = 0.9 * h
        return self.two(h)


def series() -> tuple[Tensor, Tensor]:
    return torch.randn(32, 5, 8, generator=generator(3)), torch.arange(32) % 3


IDS = torch.randint(11, (16, 6), generator=generator(6))

CALLS: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "labels in the batch": (Language, ({"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "labels": IDS},), {}),
    "tokens and targets": (Language, (IDS, IDS.flip(1)), {}),
    "a graph and its edges": (
        Graph,
        ((torch.randn(30, 8, generator=generator(4)), torch.randint(30, (2, 60), generator=generator(5))),
         torch.arange(30) % 3),
        {},
    ),
    "a recurrent network": (Recurrent, series(), {}),
    "forward": (
        Recurrent, ({"series": series()[0]}, series()[1]), {"forward": lambda model, batch: model(batch["series"])}
    ),
    "values": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)),
        (series()[0][:, 0], series()[0][:, 1, :2]), {},
    ),
    "a loss": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)),
        (series()[0][:, 0], F.one_hot(series()[1]).float()), {"loss": F.cross_entropy},
    ),
    "half precision": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).bfloat16(),
        (series()[0][:, 0], series()[1]), {},
    ),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CALLS)
def test_any_model_is_called_as_its_owner_calls_it(name: str) -> None:
    build, given, settings = CALLS[name]
    torch.manual_seed(0)
    found = checkup(build(), *given, directions=2, remedies=False, **settings)
    assert found.layers and found.verdict and found.trial is not None and not any("made up" in n for n in found.notes)
    assert all(0 < recipe.probability < 1 and recipe.learning_rate > 0 for recipe in found.recipes.values())
    assert any(layer.gradient > 0 for layer in found.layers)
    json.dumps(found.to_dict(), allow_nan=False)


def test_without_targets_some_are_made_up_and_it_says_so(x: Tensor) -> None:
    torch.manual_seed(0)
    cases = [
        (dense(3), x, "classes were made up that a random linear map of the inputs gives"),
        (nn.Sequential(nn.Embedding(7, 8), nn.Flatten(), nn.Linear(24, 3)), torch.randint(7, (20, 3)), "at random"),
        (
            nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 1)),
            x,
            "values were made up that a random linear map of the inputs",
        ),
        (nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 3)), torch.randint(7, (20, 3)), "values were drawn at random"),
    ]
    for net, given, words in cases:
        found = quick(net, given)
        assert sum(words in note for note in found.notes) == 1
        assert plain(found) == plain(quick(net, given))


def test_a_verdict_without_layers_says_why() -> None:
    torch.manual_seed(0)
    found = checkup(Changing(), series()[0][:, 0], series()[1])
    assert found.layers == () and found.phase == "unknown" and found.trial is not None and found.verdict
    assert any("The layers could not be measured: the model computes something else" in note for note in found.notes)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_pandas().empty


def test_batches_of_a_loader_are_for_the_trial(x: Tensor, y: Tensor) -> None:
    found = checkup(dense(3), x[:32], y[:32], batches=[(x[32:64], y[32:64]), (x[64:], y[64:])], remedies=False)
    assert found.trial is not None and found.trial.held_out == 32
    with torch.no_grad():
        first = float(F.cross_entropy(dense(3)(x[32:64]), y[32:64]))
    assert found.trial.runs[0].losses[0] == pytest.approx(first)


def test_the_progress_names_the_parts(x: Tensor, y: Tensor) -> None:
    told: list[tuple[str, float]] = []
    checkup(dense(16, 8), x, y, tell=lambda part, share: told.append((part, share)))
    parts = list(dict.fromkeys(part for part, _ in told))
    assert parts == ["one step of each optimizer", "gains of the layers", "trial", "remedies"]
    assert [share for part, share in told if part == "trial"] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


# ---- nothing to tell apart -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("examples", "change", "words"),
    [
        (1, lambda x, y: (x, y), "the batch holds one example"),
        (96, lambda x, y: (torch.ones_like(x), y), "all examples have the same inputs"),
        (96, lambda x, y: (x, torch.zeros_like(y)), "all targets are the same"),
    ],
)
def test_a_batch_that_says_nothing_is_told(
    x: Tensor, y: Tensor, examples: int, change: Callable[..., Any], words: str
) -> None:
    net = dense(3)
    before = state(net)
    found = checkup(net, *change(x[:examples], y[:examples]))
    assert any(words in note.lower() for note in found.notes) and not found.remedies
    failed = [recipe for recipe in found.recipes.values() if not recipe.trains]
    assert all(recipe.reason.startswith(words) and recipe.cause == "blind" for recipe in failed)
    assert state(net) == before
    json.dumps(found.to_dict(), allow_nan=False)


# ---- bad input, and the model as it was ------------------------------------------------------------------------


def state(net: nn.Module) -> list[Any]:
    """All of a model and of the random states that one can see, as something to compare."""
    tensors = [*net.named_parameters(), *net.named_buffers()]
    return [
        [(name, id(t), t.detach().numpy().tobytes(), t.requires_grad) for name, t in tensors],
        [None if p.grad is None else (id(p.grad), p.grad.numpy().tobytes()) for p in net.parameters()],
        [module.training for module in net.modules()],
        [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks), sorted(m.__dict__))
            for m in net.modules()
        ],
        [getattr(module, "calls", 0) for module in net.modules()],
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002 - python's own stream is beartype's under test
    ]


class Careless(nn.Module):
    """Counts calls, keeps statistics, clips its weights in forward, draws from global streams; fails when told to."""

    def __init__(self, fails: Callable[["Careless"], bool] = lambda model: False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.norm, self.two = nn.Linear(32, 16), nn.BatchNorm1d(16), nn.Linear(16, 5)
        self.drop, self.calls, self.fails = nn.Dropout(0.1), 0, fails
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        self.one.weight.data.clamp_(-0.2, 0.2)  # wider than they are drawn: what moves is refused
        noise = float(np.random.rand() + torch.rand(1))  # noqa: NPY002
        h = self.drop(torch.relu(self.norm(self.one(x))))
        if self.fails(self):
            raise RuntimeError("midway")
        return self.two(h) + 1e-9 * noise


def given_away(net: nn.Module) -> nn.Module:
    """Gradients, modes, frozen weights and a hook that are to come back."""
    for p in list(net.parameters())[::2]:
        p.grad = torch.full_like(p, 0.5)
    next(net.parameters()).requires_grad_(False)
    list(net.children())[1].eval()
    net.register_forward_hook(lambda module, args, result: None)
    return net


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_norm", ["train", "eval"])
def test_the_model_comes_back_to_the_bit(training: bool, batch_norm: str, x: Tensor, y: Tensor) -> None:
    net = given_away(Careless().train(training))
    before = state(net)
    found = checkup(net, x, y, batch_norm=batch_norm, directions=2, remedies=False)
    assert found.trial is not None and state(net) == before


def test_a_network_with_everything_comes_back(x: Tensor) -> None:
    net = given_away(everything())
    before = state(net)
    images = torch.randn(16, 3, 8, 8, generator=generator(0))
    checkup(net, images, torch.arange(16) % 4, directions=2, sparsity=0.5)
    assert state(net) == before


def broken(value: float) -> nn.Module:
    net = Careless()
    with torch.no_grad():
        net.one.weight[0, 0] = value
    return net


def poisoned(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x[1, 2] = value
    return x


def failing(after: int) -> nn.Module:
    return Careless(lambda model: model.calls > after)


BAD: dict[str, tuple[str, Callable[[Tensor, Tensor], Any]]] = {
    "NaN in weights": ("'one.weight' holds NaN: 1 of its 512", lambda x, y: (broken(math.nan), x, y)),
    "infinity in weights": ("'one.weight' holds infinity", lambda x, y: (broken(math.inf), x, y)),
    "NaN in inputs": (r"the input \(96, 32\) holds NaN", lambda x, y: (Careless(), poisoned(x, math.nan), y)),
    "infinity in inputs": ("holds infinity", lambda x, y: (Careless(), poisoned(x, math.inf), y)),
    "NaN in targets": ("targets .* holds NaN", lambda x, y: (Careless(), x, torch.full((96, 5), math.nan))),
    "loss not finite": ("loss of this batch is nan", lambda x, y: (Careless(), x, y, lambda o, t: o.sum() * math.nan)),
    "loss infinite": ("loss of this batch is inf", lambda x, y: (Careless(), x, y, lambda o, t: o.exp().sum() / 0)),
    "loss of several numbers": (r"not a tensor of shape \(96, 5\)", lambda x, y: (Careless(), x, y, lambda o, t: o)),
    "loss without a gradient": ("one number computed", lambda x, y: (Careless(), x, y, lambda o, t: o.detach().sum())),
    "loss that fails": ("ZeroDivisionError", lambda x, y: (Careless(), x, y, lambda o, t: 1 / 0)),
    "loss without targets": ("a loss was given but no targets", lambda x, y: (Careless(), x, None, F.mse_loss)),
    "labels too large": ("target . is out of range", lambda x, y: (Careless(), x, y + 4)),
    "labels negative": ("target -. is out of range", lambda x, y: (Careless(), x, y - 5)),
    "targets of another shape": ("do not fit outputs", lambda x, y: (Careless(), x, x[:, :4])),
    "too few targets": ("10 targets for 96 examples", lambda x, y: (Careless(), x, y[:10])),
    "one example for batch norm": ("more than 1 value per channel", lambda x, y: (Careless(), x[:1], y[:1])),
    "nothing in the batch": ("an empty batch", lambda x, y: (Careless(), x[:0], y[:0])),
    "no tensor": ("the batch holds no tensor", lambda x, y: (Careless(), None, y)),
    "an array": ("torch.from_numpy", lambda x, y: (Careless(), x.numpy(), y)),
    "other inputs": (r"fails on an input of shape \(96, 31\)", lambda x, y: (Careless(), x[:, 1:], y)),
    "fails at once": ("RuntimeError: midway", lambda x, y: (failing(0), x, y)),
    "fails later": ("RuntimeError: midway", lambda x, y: (failing(3), x, y)),
    "fails in training": ("midway", lambda x, y: (Careless(lambda model: model.training), x, y)),
    "no weight to train": ("nothing to train", lambda x, y: (Careless().requires_grad_(False), x, y)),
    "no weights": ("has no parameters", lambda x, y: (nn.ReLU(), x, y)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error_and_the_model_as_it_was(name: str, x: Tensor, y: Tensor) -> None:
    words, make = BAD[name]
    net, *given = make(x, y)
    before = state(net)
    with pytest.raises(InputError, match=words) as caught:
        checkup(net, *given[:2], loss=given[2] if len(given) > 2 else None)
    assert "\n" not in str(caught.value) and state(net) == before


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("returns", "words"),
    [
        (lambda h: None, "returns a NoneType without a floating point tensor"),
        (lambda h: {}, "returns a dict without"),
        (lambda h: h.argmax(1), "without a floating point tensor"),
        (lambda h: h.detach(), "has no gradient"),
        (lambda h: "text", "returns a str"),
    ],
)
@pytest.mark.parametrize("targets", [True, False])
def test_a_model_that_returns_nothing_to_measure(
    returns: Callable[[Tensor], Any], words: str, targets: bool, x: Tensor, y: Tensor
) -> None:
    net = Careless()
    before = state(net)
    with pytest.raises(InputError, match=words):
        checkup(net, x, y if targets else None, forward=lambda model, batch: returns(model(batch)))
    assert state(net) == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_norm": "both"}, "batch_norm='both'"),
        ({"directions": 1}, "directions=1"),
        ({"seed": -1}, "seed=-1"),
        ({"sparsity": 2.0}, "sparsity=2.0"),
        ({"trial": "yes"}, "trial='yes'"),
        ({"tell": 3}, "tell=3"),
        ({"batches": 3}, "batches=3"),
        ({"batches": []}, "batches is empty"),
        ({"batches": [torch.ones(4, 32)]}, "pairs"),
    ],
)
def test_arguments_that_cannot_be_used(settings: dict[str, Any], words: str, x: Tensor, y: Tensor) -> None:
    net = Careless()
    before = state(net)
    with pytest.raises(InputError, match=words):
        checkup(net, x, y, **settings)
    assert state(net) == before


def test_a_trial_that_fails_leaves_the_model(x: Tensor, y: Tensor) -> None:
    """The first step, the record and the trial run the model; it fails in the trial only."""
    runs: list[int] = []
    net = Careless(lambda model: runs.append(model.calls) or False)
    quick(net, x, y)
    count = len(runs)
    runs.clear()
    late = Careless(lambda model: runs.append(model.calls) or len(runs) > count + 4)
    before = state(late)
    with pytest.raises(InputError, match="midway"):
        checkup(late, x, y, directions=2, remedies=False)
    assert state(late) == before


@pytest.mark.parametrize(("long", "examples", "runs", "ways_back"), [(False, 96, 25, 16), (True, 32, 18, 8)])
def test_a_checkup_costs_so_many_runs(
    monkeypatch: pytest.MonkeyPatch, long: bool, examples: int, runs: int, ways_back: int
) -> None:
    """A large model feels each of them; whether a pass takes long is estimated on 16, so it is set here."""
    monkeypatch.setattr("epoch0.diagnosis.step.COSTLY", 0.0 if long else 1e9)
    monkeypatch.setattr("epoch0.diagnosis.step.PASS", 0.0)
    (first, *seen), back = forward_and_back(examples)
    assert first == 16 and len(seen) <= runs and len(back) <= ways_back
    if long:  # then a larger batch costs no more
        assert forward_and_back(8 * examples) == ([first, *seen], back)


def forward_and_back(examples: int) -> tuple[list[int], list[int]]:
    """With how many examples a network was run for a checkup, and gradients came back to its outputs."""
    seen, back = list[int](), list[int]()

    def count(module: nn.Module, args: Any, output: Tensor) -> None:
        seen.append(len(output))
        if output.requires_grad:
            output.register_hook(lambda gradient: back.append(1))

    net, source = dense(6).append(nn.Dropout(0.1)), generator(1)
    net.register_forward_hook(count)
    quick(net, torch.randn(examples, 32, generator=source), torch.randint(5, (examples,), generator=source))
    return seen, back


def test_a_copy_is_not_needed_without_trial(x: Tensor, y: Tensor) -> None:
    net = dense(3)
    net.made = (n for n in range(3))
    with pytest.raises(TypeError):
        copy.deepcopy(net)
    with pytest.raises(InputError, match="trial=False"):
        checkup(net, x, y, trial=True)
    found = checkup(net, x, y, remedies=False)
    assert found.layers and found.trial is None and "cannot be copied" in found.trial_reason
