"""Trajectory length of one module: tangents against chords, honest errors, bad input, and nothing left behind."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.measure.length import grid_errors, module_pieces
from epoch0.seeds import generator
from length_models import DOUBLE, MODELS, Twice, chord_lengths, dense, he, line


@pytest.mark.parametrize("name", MODELS)
def test_tangents_agree_with_chords(name: str) -> None:
    make, shape = MODELS[name]
    model, curve = make(), line(shape)
    chords = chord_lengths(model, curve, points=4000)
    tangents = e0.trajectory_length(model, curve, points=4000)
    assert len(tangents.layers) >= 2
    np.testing.assert_allclose(tangents.lengths, chords, rtol=3e-3)
    # chords are inscribed, so they never exceed the true length
    assert (chords <= tangents.lengths * (1 + 2e-3)).all()


@pytest.mark.parametrize("name", MODELS)
def test_float32_is_close_to_float64(name: str) -> None:
    make, shape = MODELS[name]
    curve = line(shape)
    exact = e0.trajectory_length(make(), curve, points=256)
    single = e0.trajectory_length(make().to(torch.float32), curve, points=256)
    again = e0.trajectory_length(make().to(torch.float32).to(DOUBLE), curve, points=256)
    np.testing.assert_allclose(single.lengths, exact.lengths, rtol=1e-4)
    np.testing.assert_allclose(again.lengths, exact.lengths, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_model_comes_back_unchanged(name: str) -> None:
    make, shape = MODELS[name]
    model = make().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    e0.trajectory_length(model, line(shape))
    e0.trajectory_length(model, line(shape), batch_norm="train")
    with pytest.raises(InputError):
        e0.trajectory_length(model, line((5,)))
    after = model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(part.training for part in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert torch.equal(state, torch.get_rng_state())


def test_chosen_layers() -> None:
    model, curve = dense("relu"), line((12,))
    every = e0.trajectory_length(model, curve, layers=["0", "1", "3", "4"])
    assert every.layers == ("0", "1", "3", "4")
    default = e0.trajectory_length(model, curve)
    assert every.lengths[2] == default.lengths[1]
    nets = e0.networks.ensemble(3, [12, 40, 30], seed=1, dtype=DOUBLE)
    some = e0.trajectory_length(nets, curve, layers=["0", "2"])
    np.testing.assert_allclose(
        some.network_lengths, e0.trajectory_length(list(nets), curve, layers=["0", "2"]).network_lengths
    )


@pytest.mark.parametrize("kind", ["arc", "circle", "semicircles", "polyline"])
def test_kinds_of_curves(kind: str) -> None:
    x0, x1 = torch.eye(12, dtype=DOUBLE)[:2]
    curve, length = {
        "arc": (e0.Arc(x0, x1), math.pi / 2),
        "circle": (e0.GreatCircle(x0, x1), 2 * math.pi),
        "semicircles": (e0.SemicircularArcs(x0, x1, planes=5), math.pi / math.sqrt(2)),
        "polyline": (e0.Polyline(torch.stack([x0, x1, -x0, x0])), 2 * math.sqrt(2) + 2),
    }[kind]
    tangents = e0.trajectory_length(dense("relu"), curve, points=3000)
    chords = chord_lengths(dense("relu"), curve, points=3000)
    assert tangents.lengths[0] == pytest.approx(length, rel=1e-3)
    np.testing.assert_allclose(tangents.lengths, chords, rtol=5e-3)


def test_lengths_too_small_for_the_dtype_are_vanished() -> None:
    # torch's default law shrinks by sqrt(1/6) a layer: float32 ends after some 85 layers
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [part for _ in range(120) for part in (nn.Linear(64, 64, bias=False), nn.ReLU())]
    model, curve = nn.Sequential(*layers), line((64,), dtype=torch.float32)
    single = e0.trajectory_length(model, curve, points=8)
    double = e0.trajectory_length(copy.deepcopy(model).double(), curve, points=8)
    assert single.status[-1] == "vanished" and set(double.status) <= {"shrinks", "keeps", "grows"}
    known = ~np.isnan(single.growth)
    assert 60 < known.sum() < 120
    whole = int(known.sum()) - 8  # in the last of them only the longest pieces are left
    np.testing.assert_allclose(single.growth[:whole], double.growth[:whole], rtol=1e-4)
    assert abs(np.mean(np.log(double.growth)) - math.log(math.sqrt(1 / 6))) < 0.05


def test_several_uses_are_several_layers() -> None:
    assert e0.trajectory_length(he(Twice()), line((12,))).layers == ("act", "act (2nd use)")


@pytest.mark.parametrize("how", ["one", "list", "no running statistics"])
def test_batch_statistics_are_held_fixed(how: str) -> None:
    # along a line all tangents are equal; if the statistics moved with the points, batch norm would cancel them
    model = he(nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 9), nn.Tanh()))
    running = e0.trajectory_length(model, line((12,)), points=300)
    if how == "no running statistics":
        model[1] = nn.BatchNorm1d(20, track_running_stats=False, dtype=DOUBLE)
    mode = "eval" if how == "no running statistics" else "train"
    net = [model, model] if how == "list" else model
    tangents = e0.trajectory_length(net, line((12,)), points=3000, batch_norm=mode)
    chords = chord_lengths(model, line((12,)), points=3000, batch_norm=mode)
    np.testing.assert_allclose(tangents.lengths, chords, rtol=3e-3)
    assert not np.allclose(running.lengths[1:], tangents.lengths[1:], rtol=5e-2)


def test_a_dead_network_says_vanished() -> None:
    model = e0.networks.mlp([3, 4, 4], weights=e0.Gaussian(1.0), biases=e0.Discrete((-9.0,)), linear_output=False)
    result = e0.trajectory_length(model, line((3,), dtype=torch.float32))
    assert result.lengths[1] == 0 and result.status == ("vanished", "vanished")
    assert "vanished" in str(result) and math.isnan(result.growth[1])


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["line", "polyline"])
def test_offset_grid_is_unbiased(kind: str) -> None:
    # the mean over 250 offsets of an 8-point grid is the fine value; |z| < 4: false-alarm rate 6e-5 each
    model, curve = dense("relu"), line((12,))
    if kind == "polyline":  # 11 pieces of unequal speed: more than the grid has points
        curve = e0.Polyline(torch.randn(12, 12, generator=generator(6), dtype=DOUBLE).cumsum(0))
    fine = e0.trajectory_length(model, curve, points=8_000).lengths
    coarse = e0.trajectory_length([model] * 250, curve, points=8)
    assert (np.abs(coarse.lengths - fine) <= 4 * coarse.length_errors + 1e-12).all()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_errors_over_t_are_honest(name: str, closed: bool) -> None:
    # all 40 offsets of a grid of 64 points, evenly spread: the true sd of the mean, against what each grid reports
    make, shape = MODELS[name]
    ends = torch.randn(2, *shape, generator=generator(5), dtype=DOUBLE)
    curve = e0.GreatCircle(*ends) if closed else e0.Line(*ends)
    norms = module_pieces(make(), curve, (torch.arange(64 * 40) + 0.5) / (64 * 40), None, "eval", None).norms[0]
    values = np.concatenate([norms[:, 1:], norms[:, 1:] / norms[:, :-1]], axis=1)  # lengths, then growth
    reported = np.sqrt(np.mean([grid_errors(values[offset::40]) ** 2 for offset in range(40)], axis=0))
    true = np.array([values[offset::40].mean(axis=0) for offset in range(40)]).std(axis=0)
    assert (reported > 0.9 * true).all(), reported / true
    if not closed:  # along a smooth closed curve the true error is next to nothing
        assert (reported < 5 * true).all(), reported / true


def test_errors_of_a_smooth_curve() -> None:
    t = (np.arange(64) + 0.3) / 64
    values = np.stack([np.ones(64), 2 + np.sin(t)], axis=1)
    errors = grid_errors(values)
    assert errors[0] == 0
    # the only error of a fine grid on a smooth curve comes from its offset: rise / m times the sd of a uniform offset
    assert errors[1] == pytest.approx(math.sin(1.0) / 64 / math.sqrt(12), rel=0.01)


def test_table() -> None:
    result = e0.trajectory_length(dense("relu"), line((12,)))
    frame = result.to_pandas()
    assert list(frame["layer"]) == ["input", "1", "3", "5"]
    assert frame["length"].tolist() == result.lengths.tolist()
    assert "one network, 64 tangents" in str(result) and set(result.status) <= {"grows", "shrinks", "keeps"}


def test_operation_without_a_forward_derivative_is_named() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(Square.apply(self.layer(x)))

    model, curve = Model(), line((4,), dtype=torch.float32)
    with pytest.raises(InputError, match="Square"):
        e0.trajectory_length(model, curve)


NAN = e0.networks.mlp([4, 4, 4])
with torch.no_grad():
    NAN[2].weight[1, 2] = math.nan
SHORT = line((4,), dtype=torch.float32)
GOOD, PAIR = e0.networks.mlp([4, 4, 4]), e0.networks.ensemble(2, [4, 4, 4])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: e0.trajectory_length(NAN, SHORT), "2.weight"),
        (lambda: e0.trajectory_length(e0.networks.mlp([5, 4, 4]), SHORT), r"\(2, 4\)|in_features=5"),
        (lambda: e0.trajectory_length(e0.networks.ensemble(3, [5, 4, 4]), SHORT), "in_features=5"),
        (lambda: e0.trajectory_length(nn.Linear(4, 4), SHORT), "no elementwise nonlinearity"),
        (lambda: e0.trajectory_length(e0.networks.ensemble(2, [4, 4]), SHORT), "no elementwise nonlinearity"),
        (lambda: e0.trajectory_length(GOOD, SHORT, layers=["11"]), "no layer is named '11'"),
        (lambda: e0.trajectory_length(PAIR, SHORT, layers=["7"]), "no layer is named '7'"),
        (lambda: e0.trajectory_length(GOOD, SHORT, layers=[]), r"layers=\[\]; give a list"),
        (lambda: e0.trajectory_length(PAIR, SHORT, layers="1"), "layers='1': give a list"),
        (lambda: e0.trajectory_length(GOOD, SHORT, points=0), "points=0"),
        (lambda: e0.trajectory_length(GOOD, SHORT, batch_norm="batch"), "batch_norm|type"),
        (lambda: e0.trajectory_length(GOOD, torch.zeros(2, 4)), "Tensor|type"),
        (
            lambda: e0.trajectory_length(
                nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), SHORT, points=1, batch_norm="train"
            ),
            "one",
        ),
        (lambda: e0.trajectory_length([], SHORT), "empty list"),
        (lambda: e0.trajectory_length([GOOD, e0.networks.mlp([4, 5, 4])], SHORT), "one architecture"),
        (
            lambda: e0.trajectory_length(
                e0.networks.ensemble(2, [4] + [40] * 99, weights=e0.Gaussian(9.0), linear_output=False), SHORT
            ),
            "overflows",
        ),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(Exception, match=says) as caught:
        make()
    assert isinstance(caught.value, InputError) or "type" in str(caught.value).lower()
