"""Checkups with trials of their full length, of networks that strangers tried."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0
from epoch0.data import load

DIGITS = load("digits")
X = torch.from_numpy(DIGITS.inputs("standard")).float()[:128]
Y = torch.from_numpy(DIGITS.labels).long()[:128]
IMAGES, ROWS = X.view(-1, 1, 8, 8), X.view(-1, 8, 8)


@pytest.fixture(autouse=True)
def _weights_of_one_draw() -> None:
    torch.manual_seed(0)


def plain(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 32), *more, nn.ReLU(), nn.Linear(32, 10))


@pytest.mark.parametrize("batch_norm", ["train", "eval"])
def test_the_gain_of_a_batch_norm_is_that_of_the_statistics_asked_for(batch_norm: str) -> None:
    """Beside its derivative along the same number of random directions; 2 % of noise."""
    model = plain(nn.BatchNorm1d(32))
    model[1].running_var.fill_(4.0)  # type: ignore[operator, union-attr]
    report = e0.checkup(model, X, Y, trial=False, remedies=False, directions=64, batch_norm=batch_norm)
    h = model[0](X).detach()
    v = torch.randn(64, *h.shape, generator=torch.Generator().manual_seed(1))
    norm = copy.deepcopy(model[1]).train(batch_norm == "train")
    norm.track_running_stats = batch_norm == "eval"
    grown = [torch.func.jvp(lambda z: F.batch_norm(z, None, None, training=True), (h,), (one,))[1] for one in v]
    if batch_norm == "eval":
        grown = [one / 4.00001**0.5 for one in v]
    expected = float(torch.stack(grown).square().mean() / v.square().mean())
    assert report.layers[0].parts[1].gain == pytest.approx(expected, rel=0.02)


class Couplings(nn.Module):
    """A flow of four affine couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64)) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logarithm = torch.zeros(len(x))
        for net in self.nets:
            one, two = x.chunk(2, 1)
            scale, shift = net(one).chunk(2, 1)
            logarithm = logarithm + scale.tanh().sum(1)
            x = torch.cat([two * scale.tanh().exp() + shift, one], 1)
        return x, logarithm


def test_an_optimizer_whose_trainings_all_leave_the_range_of_floats_does_not_train() -> None:
    report = e0.checkup(Couplings(), X, loss=lambda out, _: (out[0].square().sum(1) / 2 - out[1]).mean())
    sgd = report.recipes["sgd"]
    assert report.trial is not None and all(run.diverged for run in report.trial.of("sgd"))
    assert not sgd.trains and report.recipes["adam"].trains, str(report)


@pytest.mark.parametrize("kind", ["sequences", "maps", "smaller maps", "one number"])
def test_values_that_are_made_up_can_be_learned(kind: str) -> None:
    stride = 2 if kind == "smaller maps" else 1
    maps = nn.Sequential(nn.Conv2d(1, 16, 3, stride, 1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1))
    rows = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
    number = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    model, batch = {"sequences": (rows, ROWS), "one number": (number, X)}.get(kind, (maps, IMAGES))
    report = e0.checkup(model, batch, remedies=False)
    assert report.trains and any("made up" in note for note in report.notes), str(report)


class TwoWays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.end = nn.LSTM(8, 32, batch_first=True, bidirectional=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.end(self.read(x)[0][:, -1])
        return out


def test_the_last_step_of_a_layer_that_reads_both_ways_is_the_first_of_one() -> None:
    report = e0.checkup(TwoWays(), ROWS, Y)
    assert report.trains and not report.faults, str(report)


def test_the_same_verdict_within_autocast_and_inference_mode() -> None:
    model = plain()
    said = e0.checkup(model, X, Y).verdict
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert e0.checkup(model, X, Y).trains
        assert torch.is_autocast_cache_enabled()
    with torch.inference_mode():
        assert e0.checkup(model, X, Y).verdict == e0.checkup(model, X.clone(), Y).verdict == said


def test_a_graph_that_waits_for_its_backward_pass_is_left_alone() -> None:
    model = plain(nn.BatchNorm1d(32)).eval()
    loss = F.cross_entropy(model(X), Y)
    versions = [t._version for t in (*model.parameters(), *model.buffers())]
    e0.checkup(model, X, Y, trial=False)
    loss.backward()
    assert versions == [t._version for t in (*model.parameters(), *model.buffers())]


def test_what_a_remedy_promises_is_what_a_checkup_says_after_it() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU6(),
        nn.Conv2d(16, 32, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    report = e0.checkup(model, IMAGES, Y)
    (helped,) = (one for one in report.remedies if one.helps)
    assert not report.trains and "initialize" in report.advice[0]
    e0.initialize(model, x=IMAGES)
    after = e0.checkup(model, IMAGES, Y)
    assert after.trains and after.verdict == helped.verdict
    assert max(recipe.probability for recipe in after.recipes.values()) == pytest.approx(helped.after)


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.end = nn.Parameter(torch.randn(64, 32, dtype=torch.cfloat) / 8), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.end((x.to(torch.cfloat) @ self.weight).abs())
        return out


@pytest.mark.filterwarnings("error")
def test_complex_weights_have_a_gain_and_no_law() -> None:
    (row, _) = e0.checkup(Spectral(), X, Y, trial=False, remedies=False).layers
    assert row.predicted is None and "complex" in row.agreement and 0.4 < row.forward_gain < 0.6


@pytest.mark.parametrize("width", [50, 60, 80])
def test_a_narrow_terminal_keeps_the_names(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    e0.checkup(plain(), X, Y, trial=False, remedies=False, sparsity=0.5).print(width=width)
    said = capsys.readouterr().out
    assert all(len(line) <= width for line in said.splitlines())
    for name in ("SGD with momentum", "Adam ", "0.weight", "2.weight"):
        assert any(line.strip().startswith(name) for line in said.splitlines()), said
