"""Trajectory length through training: against lengths measured apart and chords; the model and the run as they were."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import epoch0 as e0
from epoch0 import prune
from epoch0.errors import InputError
from epoch0.measure.length import trajectory_length
from epoch0.train import Every, Stacked, train
from epoch0.train.raghu import TrajectoryLengths


def arc(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> e0.Arc:
    ends = torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return e0.Arc(ends[0], ends[1])


def conv(norm: bool = False, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        parts: list[nn.Module] = [nn.Conv2d(1, 4, 3, padding=1)]
        parts += [nn.BatchNorm2d(4)] if norm else []
        parts += [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(inplace=True), nn.AvgPool2d(2)]
        return nn.Sequential(*parts, nn.Flatten(), nn.Dropout(0.3), nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 3))


class Functional(nn.Module):
    """Residual, written with functions; its last layer is followed by nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(5, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.out = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        return self.out(F.gelu(self.norm(x + F.relu(self.second(x)))))


def test_layers_and_kinds_of_a_conv_net() -> None:
    watch = TrajectoryLengths(arc(1, 8, 8))
    assert watch.rows() == [] and watch.lengths.shape == watch.errors.shape == (0, 1)  # of the input, never called
    watch(0, conv())
    assert watch.layers == ("0", "2", "3", "5", "8", "10")
    assert watch.kinds == ("convolution", "pooling", "convolution", "pooling", "linear", "linear")
    apart = TrajectoryLengths(arc(1, 8, 8), activations="apart")
    apart(0, conv(norm=True))
    kinds = ("convolution", "batch norm", "activation", "pooling", "convolution", "activation", "pooling", "linear",
             "activation", "linear")  # fmt: skip
    assert apart.kinds == kinds and apart.layers[1] == "1"


def test_layers_and_kinds_of_a_residual_model_of_functions() -> None:
    watch = TrajectoryLengths(arc(5))
    watch(0, Functional())
    assert dict(zip(watch.layers, watch.kinds, strict=True)) == {
        "first": "linear", "second": "linear", "add()": "sum", "norm": "layer norm", "gelu()": "activation",
        "out": "linear",
    }  # fmt: skip


def test_an_activation_joins_only_what_nothing_else_uses() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.out(x * torch.sigmoid(x))

    watch = TrajectoryLengths(arc(4))
    watch(0, Gate())
    assert watch.layers == ("first", "sigmoid()", "out")


@pytest.mark.parametrize("norm", [False, True])
def test_equals_trajectory_length_of_the_same_places(norm: bool) -> None:
    net, curve = conv(norm).double(), arc(1, 8, 8, dtype=torch.float64)
    watch = TrajectoryLengths(curve, points=16, seed=7, activations="apart")
    watch(0, net)
    twin = trajectory_length(net, curve, layers=list(watch.layers), points=16, seed=7)
    np.testing.assert_allclose(watch.lengths[0], twin.lengths, rtol=1e-12)
    np.testing.assert_allclose(watch.errors[0], twin.length_errors, rtol=1e-8, atol=1e-14)


def test_points_that_go_through_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = TrajectoryLengths(arc(1, 8, 8)), TrajectoryLengths(arc(1, 8, 8))
    whole(0, net := conv())
    monkeypatch.setattr("epoch0.measure.length._BUDGET", 20_000)
    parts(0, net)
    np.testing.assert_allclose(parts.lengths, whole.lengths, rtol=1e-6)


def test_equals_chords_between_outputs_seen_by_hooks() -> None:
    net, curve = conv().double().eval(), arc(1, 8, 8, dtype=torch.float64)
    watch = TrajectoryLengths(curve, points=2000)
    watch(0, net)
    seen: dict[str, torch.Tensor] = {}
    measured_at = {"0": "1", "2": "2", "3": "4", "5": "5", "8": "9", "10": "10"}  # layer, its activation
    for name in measured_at.values():
        net.get_submodule(name).register_forward_hook(lambda m, a, y, name=name: seen.update({name: y}))
    with torch.no_grad():
        net(curve.point(torch.linspace(0, 1, 4001)))
    chords = [float(seen[measured_at[name]].flatten(1).diff(dim=0).norm(dim=1).sum()) for name in watch.layers]
    np.testing.assert_allclose(watch.lengths[0, 1:], chords, rtol=1e-3)


def test_our_loop_and_theirs_see_the_same_and_training_is_not_disturbed() -> None:
    x = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    y = torch.arange(40) % 3
    ours, alone = conv(norm=True), conv(norm=True)
    watch = TrajectoryLengths(arc(1, 8, 8))
    done = train(ours, (x, y), steps=12, batch_size=8, learning_rate=0.05, callbacks=[Every(4, watch)], seed=3)
    train(alone, (x, y), steps=12, batch_size=8, learning_rate=0.05, seed=3)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, alone.state_dict()[name]), name
    assert watch.steps == [0, 4, 8, 12] and watch.lengths.shape == (4, len(watch.layers) + 1)
    rows = [row["trajectory_lengths"] for row in done.history if "trajectory_lengths" in row]
    np.testing.assert_array_equal(rows, watch.lengths)
    after = TrajectoryLengths(arc(1, 8, 8))
    after(12, alone)
    np.testing.assert_allclose(after.lengths[0], watch.lengths[-1], rtol=1e-6)
    assert watch.lengths[-1, -1] > 1.1 * watch.lengths[0, -1]  # it moved, so the equalities above mean something


def test_the_model_is_unchanged_to_the_bit() -> None:
    net = conv(norm=True)
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    net.train()
    net[0].eval()
    net(x).square().sum().backward()
    state, modes = copy.deepcopy(net.state_dict()), [part.training for part in net.modules()]
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    random, hooks = torch.get_rng_state(), len(net[0]._forward_hooks)
    watch = TrajectoryLengths(arc(1, 8, 8), batch_norm="batch")
    for step in range(3):
        watch(step, net)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert all(torch.equal(p.grad, gradients[name]) for name, p in net.named_parameters() if p.grad is not None)
    assert [part.training for part in net.modules()] == modes and len(gradients) == 10
    assert torch.equal(torch.get_rng_state(), random) and len(net[0]._forward_hooks) == hooks
    assert all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("openly", [True, False])
def test_a_model_that_changes_its_weights_when_it_is_called_is_given_back(openly: bool) -> None:
    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out, self.calls = nn.Linear(4, 4), nn.Linear(4, 2), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            with torch.no_grad():
                (self.layer.weight if openly else self.layer.weight.data).mul_(0.5)
            return self.out(torch.relu(self.layer(x)))

    net = Clipped()
    weight = net.layer.weight.detach().clone()
    watch = TrajectoryLengths(arc(4))
    for step in range(3):
        watch(step, net)
    assert torch.equal(net.layer.weight, weight) and net.calls == 0
    np.testing.assert_array_equal(watch.lengths[0], watch.lengths[2])


def test_batch_norm_at_step_0_does_nothing_in_evaluation_and_blows_up_by_the_points() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        net[0].weight[0] *= 1e-2  # a unit that hardly moves
    curve = arc(6, dtype=torch.float64)
    evaluated, own = TrajectoryLengths(curve, points=64), TrajectoryLengths(curve, points=64, batch_norm="batch")
    evaluated(0, net)
    own(0, net)
    linear, norm = evaluated.lengths[0, 1:3]
    assert norm / linear == pytest.approx(1 / math.sqrt(1 + net[1].eps), rel=1e-12)
    twin = trajectory_length(net, curve, layers=["1"], points=64, batch_norm="train")
    assert own.lengths[0, 2] == pytest.approx(twin.lengths[1], rel=1e-12)
    # by hand: each unit's tangents over its own standard deviation along the curve
    t = own._t
    net.requires_grad_(False)
    h = F.linear(curve.point(t), net[0].weight, net[0].bias)
    dh = F.linear(curve.tangent(t), net[0].weight)
    by_hand = (dh / (h.var(0, correction=0) + net[1].eps).sqrt()).norm(dim=1).mean()
    assert own.lengths[0, 2] == pytest.approx(by_hand.item(), rel=1e-10)
    assert own.lengths[0, 2] > 1.5 * norm


def test_a_model_that_is_pruned_on_the_way_is_looked_at_again() -> None:
    net, watch = conv(), TrajectoryLengths(arc(1, 8, 8))
    watch(0, net)
    scores = {name: p.detach().abs() for name, p in net.named_parameters() if p.dim() > 1}
    prune.apply(net, prune.keep(scores, sparsity=0.5))
    watch(1, net)
    assert watch.lengths.shape == (2, 7) and watch.lengths[1, 1] < watch.lengths[0, 1]
    twin = trajectory_length(net, arc(1, 8, 8), layers=["1"], points=32)
    assert watch.lengths[1, 1] == pytest.approx(twin.lengths[1], rel=1e-5)


def test_other_layers_are_refused() -> None:
    watch = TrajectoryLengths(arc(1, 8, 8))
    watch(0, conv())
    with pytest.raises(InputError, match="changed on the way"):
        watch(1, conv(norm=True))
    assert watch.steps == [0] and watch.lengths.shape == (1, 7)


def test_a_model_that_diverged_is_measured_and_not_refused() -> None:
    net, watch = conv(), TrajectoryLengths(arc(1, 8, 8))
    watch(0, net)
    with torch.no_grad():
        net[3].weight.fill_(float("nan"))
    row = watch(100, net)["trajectory_lengths"]
    assert row[:3] == watch.lengths[0, :3].tolist() and row[3:] == [None] * 4
    assert [r["status"] for r in watch.to_dict()][7 + 3 :] == ["not finite"] * 4
    assert watch.plot().axes


def test_wrapped_and_under_autocast_the_plain_model_is_measured() -> None:
    net, plain = conv(), TrajectoryLengths(arc(1, 8, 8))
    plain(0, net)
    watch = TrajectoryLengths(arc(1, 8, 8))
    watch(0, torch.compile(net, backend="eager"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        watch(1, net)
        inside = TrajectoryLengths(arc(1, 8, 8))
        inside(0, net)
    with torch.inference_mode():
        watch(2, net)
    for lengths in (*watch.lengths, *inside.lengths):
        np.testing.assert_array_equal(lengths, plain.lengths[0])


def test_a_model_that_is_moved_to_another_dtype_and_a_watch_that_is_pickled() -> None:
    net, watch = conv(), TrajectoryLengths(arc(1, 8, 8))
    watch(0, net)
    watch(1, net.double())
    np.testing.assert_allclose(watch.lengths[0], watch.lengths[1], rtol=1e-5)
    again = pickle.loads(pickle.dumps(watch))
    again(2, net)
    np.testing.assert_array_equal(again.lengths, watch.lengths[[0, 1, 1]])
    assert len(watch.steps) == 2


def test_tables() -> None:
    watch = TrajectoryLengths(arc(1, 8, 8))
    assert "nothing measured" in str(watch)
    net = conv()
    for step in (0, 100, 250):
        watch(step, net)
    table = watch.to_pandas()
    assert list(table.columns) == ["step", "layer", "kind", "length", "error", "growth", "status"] and len(table) == 21
    assert table.status[0] == "given" and set(table.status[1:7]) <= {"grows", "shrinks", "keeps"}
    assert table.growth[1] == pytest.approx(watch.lengths[0, 1] / watch.lengths[0, 0])
    lines = str(watch).splitlines()
    assert "step 250" in lines[1] and len(lines) == 2 + 7 and "pooling" in lines[4]


def test_plot_has_a_line_a_step_and_dots_pools_and_norms() -> None:
    watch = TrajectoryLengths(arc(1, 8, 8))
    net = conv(norm=True)
    for step in (0, 100, 250):
        watch(step, net)
    picture = watch.plot()
    (axes,) = picture.axes
    curves = [line for line in axes.lines if line.get_marker() == "o"]
    assert all(len(line.get_xdata()) == len(watch.layers) + 1 for line in curves)
    assert len(curves) == 3 and len({line.get_color() for line in curves}) == 3
    dotted = sorted(line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":")
    kinds = ("input", *watch.kinds)
    assert [kinds[int(place)] for place in dotted] == ["batch norm", "pooling", "pooling"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["input", *watch.layers]
    assert axes.get_ylabel() and axes.get_yscale() == "log"
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        "pooling", "batch norm", "step 0", "step 100", "step 250"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"points": 0}, "points=0"),
        ({"points": 1, "batch_norm": "batch"}, "at least 2"),
        ({"batch_norm": "train"}, "batch_norm='train'"),
        ({"activations": "none"}, "activations='none'"),
    ],
)
def test_bad_arguments(arguments: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        TrajectoryLengths(**{"curve": arc(4), **arguments})


def test_bad_models() -> None:
    with pytest.raises(InputError, match="no layer to measure"):
        TrajectoryLengths(arc(4))(0, nn.Sequential(Scale()))
    with pytest.raises(InputError):
        TrajectoryLengths(arc(4))(0, nn.Linear(5, 2))
    with pytest.raises(InputError, match="stack"):
        TrajectoryLengths(arc(4))(0, Stacked.of([nn.Linear(4, 2), nn.Linear(4, 2)]))
    with pytest.raises(InputError, match="nothing was measured"):
        TrajectoryLengths(arc(4)).plot()


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by
