"""Faults that a training of a copy shows, and what the owner's loop body holds: it stays as it is."""

import copy
import math
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import epoch0 as e0
from epoch0.diagnosis.faults import evidence, find_faults
from epoch0.diagnosis.faults.program import UserProgram
from fault_programs import X as DIGITS
from fault_programs import Y as LABELS
from fault_programs import mlp

torch.manual_seed(0)
MEANS = 2 * torch.randn(10, 32)
Y = torch.randint(10, (600,))
X = MEANS[Y] + torch.randn(600, 32)
DATA = DataLoader(TensorDataset(X, Y), 32, shuffle=True)


def net(*inside: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), *inside, nn.Linear(64, 10))


def found(model: nn.Module, loss: Any = F.cross_entropy, rate: float = 3e-3, **more: Any) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), rate)
    return find_faults(model, X[:100], Y[:100], **{"loss": loss, "optimizer": optimizer, "data": DATA, **more})


@pytest.mark.parametrize("rate", [1e-3, 3.0])
def test_outputs_that_explode_do_not_know_the_targets(rate: float) -> None:
    """At a rate of 3 the loss of others' targets is far above that of the right ones, and both are far too large."""
    torch.manual_seed(0)
    model = mlp()
    data, optimizer = (
        DataLoader(TensorDataset(DIGITS, LABELS), 64, shuffle=True),
        torch.optim.Adam(model.parameters(), rate),
    )
    looked = find_faults(
        model, DIGITS[:100], LABELS[:100], loss=F.cross_entropy, optimizer=optimizer, data=data, seconds=2
    )
    assert bool(looked.faults) == (rate > 1) and looked.mending.sound == (rate < 1)
    if looked.faults:
        assert looked.faults[0].kind == "learning rate" and not looked.mending.own.known > 0


def test_a_loop_body_moves_copies_of_what_it_holds() -> None:
    model, seen = net(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule, average = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7), copy.deepcopy(model)
    before = [p.clone() for p in average.parameters()]

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        schedule.step()
        seen.append(float(value.detach()))
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(p, 0.1)
        return seen[-1]

    def through(*given: Any) -> float:  # one that calls another, which closes over all that
        return step(*given)

    looked = find_faults(
        model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=optimizer, data=DATA, step=through, seconds=20
    )
    assert looked.faults[0].kind == "learning rate" and "once an epoch" in looked.faults[0].fix
    assert optimizer.param_groups[0]["lr"] == 0.05 and schedule.last_epoch == 0 and not seen
    assert all(torch.equal(one, two) for one, two in zip(before, average.parameters(), strict=True))


def test_batch_norm_that_fits_no_evaluation() -> None:
    shared = nn.BatchNorm1d(64)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.norm = nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 10)]), shared

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(100 * self.layers[0](x) + 50).relu()
            return self.layers[2](self.norm(0.01 * self.layers[1](x) - 50).relu())

    looked = found(Twice(), seconds=2)
    assert "normalization" in [fault.kind for fault in looked.faults[:2]]
    assert any("With the statistics of a batch" in fault.message for fault in looked.faults)
    assert not found(net(nn.BatchNorm1d(64)), seconds=20).faults


def slow(seconds: float) -> Any:
    """The usual loop body, whose steps take at least so long."""

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> float:
        until = time.thread_time() + seconds
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        while time.thread_time() < until:
            pass
        return float(value.detach())

    return step


@pytest.mark.parametrize(("momentum", "learns"), [(0.1, True), (0.01, True), (0.001, False)])
def test_running_averages_that_lag_behind_a_short_trial(momentum: float, learns: bool) -> None:
    """MobileNetV3's momentum of 0.01 needs 500 steps until evaluation works; a tenth of it is no usual one."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32, momentum=momentum), nn.ReLU()]
        nn.init.normal_(layers[-3].weight, std=0.01)  # what averages near 1 leave small
    model = nn.Sequential(*layers, nn.Linear(32, 10))
    seen = evidence(model, X[:100], Y[:100], optimizer=torch.optim.Adam(model.parameters(), 3e-3), data=DATA)
    program = UserProgram.of(seen)
    assert program is not None
    trained = program.copied().train(40, enough=math.inf)
    assert trained.learns == learns and math.isnan(trained.batched) == learns
    assert max(trained.known, trained.batched) > 0.4 and (trained.held > 0.4) == learns


def test_steps_too_long_for_a_trial_condemn_nothing() -> None:
    """A copy that gets a few steps in its time is not judged, whatever its outputs know by then."""
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.Tanh())), nn.Linear(32, 10))
    looked = found(model, rate=1e-4, step=slow(0.05), seconds=1.2)
    assert not looked.faults and looked.mending is None
    assert any("pass seconds= for more" in line for line in looked.not_examined)


def test_who_gets_no_time_for_its_epochs_is_not_judged() -> None:
    """A line cannot learn random targets by heart, whatever is changed: that is said only after all of its steps."""
    torch.manual_seed(0)
    few, drawn = X[:, :2], torch.randint(0, 10, Y.shape, generator=torch.Generator().manual_seed(1))
    for pause, seconds, judged in ((0.0, 3.0, True), (0.001, 1.0, False)):
        model = nn.Linear(2, 10)
        given = {"optimizer": torch.optim.SGD(model.parameters(), 0.1), "step": slow(pause), "seconds": seconds}
        looked = find_faults(model, few[:100], drawn[:100], loss=F.cross_entropy, data=(few, drawn), **given)
        assert bool(looked.faults) == judged
        assert judged or any("are too few; pass seconds= for more" in line for line in looked.not_examined)


def test_dropout_that_stays_on() -> None:
    class Dropped(nn.Module):
        def __init__(self, follows: bool) -> None:
            super().__init__()
            self.body, self.follows = net(), follows

        def forward(self, x: Tensor) -> Tensor:
            h = self.body[1](self.body[0](x))
            return self.body[2](F.dropout(h, 0.6, training=self.training if self.follows else True))

    assert [f.kind for f in found(Dropped(False), seconds=0).faults] == ["regularization"]
    assert not found(Dropped(True), seconds=0).faults


def test_a_loss_that_is_made_larger() -> None:
    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        value = loss(model(x), y)
        (-value).backward()
        optimizer.step()
        return float(value.detach())

    looked = found(net(), step=step, seconds=2)
    assert any(fault.kind == "loss" and "higher with the right targets" in fault.message for fault in looked.faults)


def test_a_criterion_with_weights_of_its_own_reads_the_targets() -> None:
    class Proxies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proxies = nn.Parameter(torch.randn(10, 10))

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(-torch.cdist(outputs, self.proxies), targets)

    criterion = Proxies()
    looked = found(net(), criterion, seconds=20)
    assert looked.mending.own.learns and not looked.faults and criterion.proxies.grad is None
    e0.checkup(net(), X[:100], Y[:100], loss=criterion)
    assert criterion.proxies.grad is None


def test_counts_that_grow_by_powers_are_read_all_the_same() -> None:
    """The exponential of outputs as far from zero as the counts hides what the targets add to the loss."""
    counts = 40 + 20 * X[:, 0].abs()
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    looked = found(model, nn.PoissonNLLLoss(), data=(X, counts.round()), seconds=0)
    assert not any("does not depend on whose" in line for line in looked.not_examined)


def test_classes_in_order_behind_a_loader_that_does_not_shuffle() -> None:
    order = Y.repeat(4).argsort()
    x, y = X.repeat(4, 1)[order] + 0.1 * torch.randn(2400, 32), Y.repeat(4)[order]
    for shuffle in (False, True):
        data = DataLoader(TensorDataset(x, y), 32, shuffle=shuffle)
        kinds = [fault.kind for fault in found(net(), data=data, seconds=20).faults]
        assert kinds[:1] == ([] if shuffle else ["data"])


def test_numbers_of_examples_are_no_classes() -> None:
    """As of contrastive learning: each example is told from all the others."""
    x = torch.randn(1000, 120).repeat_interleave(1, 0)
    x[500:] = x[:500] + 0.01 * torch.randn(500, 120)
    model, own = nn.Sequential(nn.Linear(120, 32), nn.ReLU(), nn.Linear(32, 8)), torch.arange(1000)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        z = F.normalize(z, dim=1)
        return F.cross_entropy(z @ z.T / 0.1, torch.arange(len(z)))

    looked = find_faults(
        model, x[:100], own[:100], loss=loss, optimizer=torch.optim.Adam(model.parameters()), data=(x, own), seconds=0
    )
    assert "labels" not in [fault.kind for fault in looked.faults]


def test_a_decoder_that_is_given_what_it_must_tell() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell, self.end = nn.Embedding(12, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 12)

        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            state = self.cell(self.embed(source))[1]
            return self.end(self.cell(self.embed(given), state)[0]).transpose(1, 2)

    source = torch.randint(1, 12, (200, 5))
    told = source.flip(1)
    for given in (told, F.pad(told, (1, -1))):
        model = Decoder()
        looked = find_faults(
            model, (source[:64], given[:64]), told[:64], loss=F.cross_entropy,
            optimizer=torch.optim.Adam(model.parameters()), seconds=0,
        )  # fmt: skip
        assert [fault.kind for fault in looked.faults] == (["data"] if given is told else [])


def test_saturated_outputs_are_no_class_that_is_ignored() -> None:
    model = net()
    with torch.no_grad():
        model[2].weight.mul_(1000)
    x, y = X[:200], model(X[:200]).argmax(1)  # sure of every class, and right for most of them
    y[:20] = (y[:20] + 1) % 10
    kinds = [fault.kind for fault in found(model, data=(x, y), seconds=0).faults]
    assert "loss" not in kinds


def test_a_forward_that_detaches_its_inputs() -> None:
    """As of physics-informed networks: nothing can be followed through the layers, and a step can."""

    class Bent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

        def forward(self, t: Tensor) -> Tensor:
            with torch.enable_grad():
                t = t.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self.u(t).sum(), t, create_graph=True)
                return -torch.autograd.grad(slope.sum(), t, create_graph=True)[0]

    t = torch.rand(200, 1)
    report = e0.checkup(Bent(), t, torch.sin(3 * t), trial=False)
    assert report.recipes["adam"].largest_learning_rate > 0 and not report.layers
    assert any("the forward detaches them" in note for note in report.notes)
    with pytest.raises(e0.InputError, match="the forward detaches them"):
        e0.gain(Bent(), t, torch.sin(3 * t))
