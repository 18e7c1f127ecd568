"""Loop bodies that make something of inputs, outputs and targets before the model and the loss get them."""

import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0
from epoch0.diagnosis.faults import evidence, find_faults
from epoch0.diagnosis.faults.body import NOTE
from fault_programs import X as DIGITS
from fault_programs import Y as LABELS
from fault_programs import mlp

torch.manual_seed(0)
X = torch.randn(600, 8)
VALUES = X[:, 0] + X[:, 1] * X[:, 2]
CLASSES = (VALUES > 0).long() + (VALUES > 1).long()
TOKENS = torch.randint(1, 11, (600, 6))


class Tagger(nn.Module):
    """Words to one class a place, (examples, places, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(11, 32), nn.Linear(32, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.words(x))


class Both(nn.Module):
    """A class and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(8, 32), nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = self.body(x).relu()
        return self.one(inner), self.two(inner)


class Coder(nn.Module):
    """A variational autoencoder: what comes out, means and logarithms of variances."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.into(x).chunk(2, 1)
        return self.out(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


class Translator(nn.Module):
    """Of words and the words before each that is asked for, (examples, places, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(11, 32), nn.Linear(32, 11)
        self.reader, self.writer = (nn.GRU(32, 32, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.out(self.writer(self.words(before), self.reader(self.words(x))[1])[0])


def net(outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, outputs))


def body(loss_of: Callable[..., Tensor]) -> Any:
    def step(model: nn.Module, optimizer: Any, loss: Any, x: Any, y: Any) -> float:
        optimizer.zero_grad()
        value = loss_of(loss, model, x, y)
        value.backward()
        optimizer.step()
        return value.item()

    return step


SQUARES, LOGITS = F.mse_loss, F.binary_cross_entropy_with_logits
TOLD = (VALUES > 0).float()
SOUND: dict[str, Any] = {
    "outputs without their last dimension": (1, X, VALUES, SQUARES, lambda of, m, x, y: of(m(x).squeeze(), y)),
    "the same of logits": (1, X, TOLD, LOGITS, lambda of, m, x, y: of(m(x).view(-1), y)),
    "targets in a column": (1, X, TOLD, LOGITS, lambda of, m, x, y: of(m(x), y.unsqueeze(1))),
    "classes as floats": (1, X, TOLD.long(), LOGITS, lambda of, m, x, y: of(m(x)[:, 0], y.float())),
    "targets divided": (1, X, 100 * VALUES, SQUARES, lambda of, m, x, y: of(m(x)[:, 0], y / 100)),
    "a sigmoid": (1, X, TOLD[:, None], F.binary_cross_entropy, lambda of, m, x, y: of(m(x).sigmoid(), y)),
    "a log-softmax": (3, X, CLASSES, F.nll_loss, lambda of, m, x, y: of(F.log_softmax(m(x), 1), y)),
    "classes of one-hot rows": (
        3, X, F.one_hot(CLASSES, 3), F.cross_entropy, lambda of, m, x, y: of(m(x), y.argmax(1))
    ),
    "classes from 1 on": (3, X, CLASSES + 1, F.cross_entropy, lambda of, m, x, y: of(m(x), y - 1)),
    "classes in a column": (3, X, CLASSES[:, None], F.cross_entropy, lambda of, m, x, y: of(m(x), y.squeeze(1))),
    "inputs divided": (3, 255 * X, CLASSES, F.cross_entropy, lambda of, m, x, y: of(m(x / 255), y)),
    "inputs made flat": (3, X.view(600, 2, 4), CLASSES, F.cross_entropy, lambda of, m, x, y: of(m(x.flatten(1)), y)),
    "words one after another": (
        Tagger, TOKENS, TOKENS % 5, F.cross_entropy, lambda of, m, x, y: of(m(x).flatten(0, 1), y.flatten())
    ),
    "the next word": (
        Tagger, (TOKENS[:, :1] + torch.arange(6)) % 11, TOKENS, F.cross_entropy,
        lambda of, m, x, y: of(m(x[:, :-1]).reshape(-1, 11), x[:, 1:].reshape(-1)),
    ),
    "a decoder that gets the words before": (
        Translator, TOKENS, F.pad(TOKENS, (1, 0)), F.cross_entropy,
        lambda of, m, x, y: of(m(x, y[:, :-1]).reshape(-1, 11), y[:, 1:].reshape(-1)),
    ),
    "a loss of one's own": (1, X, VALUES, None, lambda of, m, x, y: (m(x).squeeze(1) - y).square().mean()),
    "the loss by its keywords": (1, X, VALUES, SQUARES, lambda of, m, x, y: of(input=m(x)[:, 0], target=y)),
    "the mean of losses": (1, X, VALUES, nn.MSELoss(reduction="none"), lambda of, m, x, y: of(m(x)[:, 0], y).mean()),
    "two losses": (Both, X, (CLASSES, VALUES[:, None]), F.cross_entropy, lambda of, m, x, y: two(of, m(x), y)),
    "inputs as targets": (8, 0.1 * X + X[:, :1], CLASSES, SQUARES, lambda of, m, x, y: of(m(x), x)),
    "a variational autoencoder": (Coder, 0.1 * X + X[:, :1], CLASSES, SQUARES, lambda of, m, x, y: bound(of, m(x), x)),
}  # fmt: skip


def two(of: Any, out: Any, y: Any) -> Tensor:
    return of(out[0], y[0]) + F.mse_loss(out[1], y[1])


def bound(of: Any, out: Any, x: Tensor) -> Tensor:
    made, mean, spread = out
    return of(made, x) - 0.001 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()


def program(name: str) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
    outputs, x, y, loss, how = SOUND[name]
    model = net(outputs) if isinstance(outputs, int) else outputs()
    more = {"loss": loss, "optimizer": torch.optim.Adam(model.parameters(), 3e-3), "data": (x, y), "step": body(how)}
    few = tuple(part[:100] for part in y) if isinstance(y, tuple) else y[:100]
    return (model, x[:100], few), more


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", SOUND)
def test_sound_bodies_have_no_fault(name: str) -> None:
    given, more = program(name)
    found = find_faults(*given, **more, seconds=20)
    assert not found.faults and not [line for line in found.not_examined if "can reach" not in line]
    assert found.mending is not None and found.mending.own.learns
    assert NOTE in evidence(*given, **more).call.notes


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["outputs without their last dimension", "classes from 1 on", "two losses"])
def test_faults_are_found_behind_what_the_body_makes(name: str) -> None:
    given, more = program(name)
    more["optimizer"] = torch.optim.Adam(given[0].parameters(), 30.0)
    faults = find_faults(*given, **more, seconds=20).faults
    assert faults and faults[0].kind == "learning rate"


def test_the_report_measures_what_the_body_does() -> None:
    """The first step and the trials of the usual optimizers, too, where the loss alone takes no such outputs."""
    given, more = program("the same of logits")
    report = e0.checkup(*given, **more, seconds=20)
    assert report.trains and report.recipes["adam"].trains and report.recipes["yours"].trains, report.verdict
    assert not report.faults and NOTE in report.notes
    assert len(report.layers) == 2


@pytest.mark.parametrize(
    "how",
    [
        lambda of, m, x, y: of(m(x), y),  # as they are
        lambda of, m, x, y: of(m(x + 0.1 * torch.randn(x.shape)), y),  # noise
        lambda of, m, x, y: of(m(x), torch.unique(y, return_inverse=True)[1]),  # by what the others are
        lambda of, m, x, y: of(m(x), y) + 0.01 * m[0].weight.square().sum(),  # a penalty
        lambda of, m, x, y: of(m(x, y), y),  # another way of calling
    ],
)
def test_other_bodies_are_left_alone(how: Any) -> None:
    (model, x, y), more = program("classes from 1 on")
    more["step"] = body(how)
    assert NOTE not in evidence(model, x, y - 1, **{**more, "data": (X, CLASSES)}).call.notes


@pytest.mark.slow
def test_what_the_body_counts_stays_as_it_is() -> None:
    (model, x, y), more = program("inputs divided")
    schedule, count = torch.optim.lr_scheduler.StepLR(more["optimizer"], 1), [0]
    before = [p.detach().clone() for p in model.parameters()]

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Any, y: Any) -> None:
        count[0] += 1
        body(SOUND["inputs divided"][-1])(model, optimizer, loss, x, y)
        schedule.step()

    find_faults(model, x, y, **{**more, "step": step}, seconds=5)
    assert count == [0] and schedule.last_epoch == 0 and more["optimizer"].param_groups[0]["lr"] == 3e-3
    assert all(torch.equal(p, old) and p.grad is None for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.slow
def test_a_body_that_makes_its_own_targets_is_looked_at_without_them() -> None:
    """Masked words: whether it learns cannot be said by the targets given, and nothing is said against it."""
    (model, x, y), more = program("words one after another")
    more["loss"] = None

    def hidden(of: Any, m: Any, x: Tensor, y: Tensor) -> Tensor:
        told = torch.where(torch.rand(x.shape) < 0.5, y, -100)
        return of(m(torch.where(told >= 0, 0, x)), told)

    report = e0.checkup(model, x, y, **{**more, "step": body(hidden)}, seconds=4)
    assert not report.faults and any("makes targets of its own" in line for line in report.not_examined)


PAIRS, ALIKE = (X[:300], X[300:]), (CLASSES[:300] == CLASSES[300:]).float()


def apart(of: Any, m: Any, x: Any, y: Tensor) -> Tensor:
    """A network that gets two inputs, one after the other, and a loss of both outputs."""
    far = (m(x[0]) - m(x[1])).square().sum(1)
    return (y * far + (1 - y) * (1 - far.sqrt()).relu().square()).mean()


@pytest.mark.sample(1)
@pytest.mark.parametrize("rate", [1e-3, 30.0])
def test_a_model_that_is_called_twice_is_judged_by_what_backward_is_called_of(rate: float) -> None:
    model = net(4)
    given = {"optimizer": torch.optim.Adam(model.parameters(), rate), "step": body(apart), "data": (PAIRS, ALIKE)}
    few = (PAIRS[0][:100], PAIRS[1][:100])
    report = e0.checkup(model, few, ALIKE[:100], **given)
    assert report.outcome == ("trains" if rate < 1 else "fault") and set(report.recipes) == {"yours"}
    assert report.program is not None and report.program.own.learns == (rate < 1)
    assert [(f.kind, f.evidence) for f in report.faults][:1] == [("learning rate", "mended on a copy")] * (rate > 1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("cut", [False, True])
def test_a_generator_whose_judge_is_trained_in_the_same_step(cut: bool) -> None:
    """Of two calls of backward neither is that of the loss; with what is judged cut off, none moves the model."""
    model, judge = net(8), net()
    other = torch.optim.Adam(judge.parameters(), 1e-3)

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        made = model(x)
        other.zero_grad()
        (loss(judge(y), torch.ones(len(x), 1)) + loss(judge(made.detach()), torch.zeros(len(x), 1))).backward()
        other.step()
        optimizer.zero_grad()
        loss(judge(made.detach() if cut else made), torch.ones(len(x), 1)).backward()
        optimizer.step()

    given = {"optimizer": torch.optim.Adam(model.parameters(), 1e-3), "loss": LOGITS, "step": step, "data": (X, X + 3)}
    report = e0.checkup(model, X[:100], X[:100] + 3, **given, seconds=10)
    assert [fault.kind for fault in report.faults][:1] == ["gradient flow"] * cut
    assert cut or not report.faults


def test_what_cannot_be_told_is_not_judged_and_told_what_to_pass() -> None:
    """A loss against noise, which cannot fall, and a body whose numbers are never the same."""
    model, pairs, like, count = net(4), (X[:100], X[100:200]), torch.ones(100), iter(range(100))

    def noise(of: Any, m: Any, x: Any, y: Tensor) -> Tensor:
        return (m(x[0])[:, 0] - m(x[1])[:, 0] - 3 * torch.randn(len(y))).square().mean()

    def rising(of: Any, m: Any, x: Any, y: Tensor) -> Tensor:
        return noise(of, m, x, y) + next(count)

    adam = torch.optim.Adam(model.parameters())
    for how, words in ((noise, "reads no targets"), (rising, "pass forward=")):
        report = e0.checkup(model, pairs, like, optimizer=adam, step=body(how), seconds=5)
        assert report.outcome == "not judged" and not report.trains and not report.faults
        assert words in report.verdict and words in str(report) and not report.advice


def test_random_numbers_stay_and_what_cannot_be_copied_is_looked_at_as_it_is() -> None:
    """A body that draws, of a model with a lock."""
    (model, x, y), more = program("inputs divided")
    more["step"] = body(lambda of, m, x, y: of(m(x / 255 + 0.1 * torch.randn(x.shape)), y))
    for lock in (None, threading.Lock()):
        model.lock = lock
        before = torch.get_rng_state()
        call = evidence(model, x, y, **more).call
        assert torch.equal(torch.get_rng_state(), before)
        assert NOTE not in call.notes and call.batch is not None


class Margin(nn.Module):
    """A head that takes the classes, as margins for faces do."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = net(3)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        return self.inside(x) - 0.2 * F.one_hot(classes, 3)


@pytest.mark.sample(1)
@pytest.mark.parametrize("steps", [True, False])
def test_a_body_gets_the_two_items_of_a_loader_that_the_model_takes(steps: bool) -> None:
    torch.manual_seed(0)
    model = Margin()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss(model(x, y), y).backward()
        if steps:
            optimizer.step()

    pair = (X[:100], CLASSES[:100])
    report = e0.checkup(model, pair, pair[1], loss=F.cross_entropy, optimizer=optimizer, step=step)
    assert report.trains == steps and [fault.kind for fault in report.faults] == ["update"] * (not steps)


def test_a_generator_is_read_anew_and_a_schedule_that_starts_low_is_said() -> None:
    model = net(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=1000, div_factor=1e6)

    def data() -> Any:
        return zip(X.split(50), CLASSES.split(50), strict=True)

    report = e0.checkup(model, X[:50], CLASSES[:50], loss=F.cross_entropy, optimizer=optimizer, data=data)
    assert report.trains and any("judged at 0.01" in line for line in report.not_examined)
    assert not any("beyond the batch" in line for line in report.not_examined)


def test_a_loss_that_falls_below_zero_says_nothing() -> None:
    """The sign of a reward's loss cannot be seen in how far it falls."""
    model = net(3)

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Any) -> None:
        optimizer.zero_grad()
        (model(x).log_softmax(1)[:, 0] * (x[:, 0] + 0.5)).mean().backward()
        optimizer.step()

    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    report = e0.checkup(model, X[:200], optimizer=optimizer, step=step)
    assert report.outcome == "not judged" and "below 0" in report.verdict and not report.recipes


def test_batches_of_a_dict_are_counted_by_their_rows() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = net(3)

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            out = self.inside(x)
            return {"loss": F.cross_entropy(out, labels), "logits": out}

    model = Named()
    rows = [{"x": x, "labels": y} for x, y in zip(X, CLASSES, strict=True)]
    loader = torch.utils.data.DataLoader(rows, 32)  # type: ignore[arg-type]

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Any, y: Any) -> None:
        model(**x)["loss"].item()

    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    found = find_faults(model, next(iter(loader)), optimizer=optimizer, data=loader, step=step, seconds=0)
    assert [fault.kind for fault in found.faults][:1] == ["update"]
    assert not any(fault.kind == "batch size" for fault in found.faults)


def test_a_body_that_fails_itself_is_told_so() -> None:
    (model, x, _), more = program("classes from 1 on")
    wrong = torch.randn(600, 7)
    report = e0.checkup(
        model, x, wrong[:100], **{**more, "data": (X, wrong), "step": body(lambda of, m, x, y: of(m(x), y))}
    )
    assert report.outcome != "not judged" and not report.trains and "the loss fails" in report.verdict


@pytest.mark.parametrize("turned", [False, True])
def test_a_body_that_calls_the_model_by_the_names_of_its_batch(turned: bool) -> None:
    """``model(**batch)``, the names in another order than the model's, and as they are or changed before."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = net(3)

        def forward(self, shift: Tensor, x: Tensor) -> Tensor:
            out: Tensor = self.inside(x - shift)
            return out

    torch.manual_seed(0)
    model, shift = Named(), torch.randn(len(X), 1)
    batches = [
        ({"x": X[i : i + 32] + shift[i : i + 32], "shift": shift[i : i + 32]}, CLASSES[i : i + 32])
        for i in range(0, 600, 32)
    ]

    def step(model: nn.Module, optimizer: Any, loss: Any, batch: Any, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(
            model(**({**batch, "x": 1 * batch["x"] + turned, "shift": batch["shift"] + turned} if turned else batch)), y
        )
        value.backward()
        optimizer.step()
        return value

    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    given = {"loss": F.cross_entropy, "optimizer": optimizer, "data": batches, "step": step, "seconds": 20}
    looked = find_faults(model, *batches[0], **given)
    assert not looked.faults and looked.mending is not None and looked.mending.own.learns, looked.not_examined


@pytest.mark.slow
@pytest.mark.timeout(3600)  # fifteen minutes of one core
@pytest.mark.skipif("EPOCH0_DATA" not in os.environ, reason="some of them learn from real images")
def test_sound_programs_of_others_are_not_condemned(monkeypatch: pytest.MonkeyPatch) -> None:
    """85 of benchmarks/loop_bodies.py, 164 of sound_programs*.py, by people who knew neither the checks nor the code.

    And 14 with the rates of tutorials (tutorial_programs.py), and 63 of the 89 with a fault each (broken_programs.py).
    """
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    told = importlib.import_module("bench_faults").sound()
    bodies, ways, tutorials, courses, trained, rates, broken = told.values()
    assert not bodies.get("condemned") and len(bodies["learns"]) >= 84 and not bodies.get("refused"), bodies
    assert not ways.get("condemned") and len(ways["learns"]) >= 85 and not ways.get("refused"), ways
    assert not tutorials.get("condemned") and len(tutorials["learns"]) >= 24, tutorials
    assert not courses.get("condemned") and len(courses["learns"]) >= 22, courses
    assert not trained.get("condemned") and not trained.get("refused") and len(trained["learns"]) >= 22, trained
    assert rates.keys() <= {"learns", "not judged"} and len(rates["learns"]) >= 13, rates
    assert len(broken["a true cause first"]) >= 40 and len(broken.get("learns", [])) <= 12, broken


def test_a_call_of_dropout_that_leaves_nearly_nothing_is_named() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.last = nn.Linear(8, 32), nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.dropout(self.inside(x).relu(), 0.995, training=self.training))

    model = Dropped()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    found = find_faults(model, X, CLASSES, loss=F.cross_entropy, optimizer=optimizer, seconds=0)
    assert [(fault.kind, fault.where) for fault in found.faults] == [("regularization", "F.dropout")]
    assert "drops 99.5%" in found.faults[0].message


def views(m: Any, x: Tensor, y: Any) -> Tensor:
    one, two = (F.normalize(m(x + 0.3 * torch.randn_like(x)), dim=1) for _ in range(2))
    return F.cross_entropy(one @ two.T / 0.1, torch.arange(len(x)))


def hidden_values(m: Any, x: Tensor, y: Any) -> Tensor:
    hidden = (torch.rand_like(x) < 0.4).float()
    return ((m(x * (1 - hidden)) - x).square() * hidden).sum() / hidden.sum()


def same_class(m: Any, x: Tensor, y: Tensor) -> Tensor:
    made = F.normalize(m(x), dim=1)
    alone = torch.eye(len(x), dtype=torch.bool)
    chances, same = (made @ made.T / 0.2).masked_fill(alone, -1e9).log_softmax(1), (y[:, None] == y) & ~alone
    return -((chances * same).sum(1) / same.sum(1).clamp_min(1)).mean()


def noisy_classes(m: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(m(x + 0.3 * torch.randn_like(x)), y, label_smoothing=0.1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss_of", [views, hidden_values, same_class, noisy_classes])
def test_labels_that_lie_beside_are_no_targets_of_a_body_of_its_own(loss_of: Any) -> None:
    """No loss is given: that the outputs are no classes is nothing against them; that they should be is seen."""

    def step(model: Any, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()

    torch.manual_seed(0)
    for rate in (1e-3, 1e-8):
        model = mlp(ends=64)
        given: dict[str, Any] = {"optimizer": torch.optim.Adam(model.parameters(), rate), "data": (DIGITS, LABELS)}
        looked = find_faults(model, DIGITS[:64], LABELS[:64], seconds=20, step=step, **given)
        assert [fault.kind for fault in looked.faults][:1] == ["learning rate"] * (rate < 1e-3), looked.faults
        assert rate < 1e-3 or (looked.mending is not None and looked.mending.own.learns)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_gradients_that_are_cleared_before_the_step(decay: float) -> None:
    """Also where weights move, as they decay."""

    def step(model: Any, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        loss(model(x), y).backward()
        optimizer.zero_grad(set_to_none=decay == 0)
        optimizer.step()

    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=decay)
    given: dict[str, Any] = {"loss": F.cross_entropy, "optimizer": optimizer, "data": (DIGITS, LABELS)}
    fault, *_ = find_faults(model, DIGITS[:64], LABELS[:64], step=step, seconds=0, **given).faults
    assert fault.kind == "update" and ("zero or cleared" in fault.message or decay == 0), fault


@pytest.mark.parametrize("steps", [1, 2])
def test_a_judge_that_is_told_what_is_real_and_what_is_not(steps: int) -> None:
    """Each loss has one target for all; all of them together do not."""

    def step(model: Any, optimizer: Any, loss: Any, real: Tensor, _: Tensor) -> None:
        optimizer.zero_grad()
        values = [loss(model(x), torch.full((len(x), 1), float(x is real))) for x in (real, torch.randn_like(real))]
        for value in values if steps == 2 else [values[0] + values[1]]:
            value.backward()
        optimizer.step()

    torch.manual_seed(0)
    model = mlp(ends=1)
    given: dict[str, Any] = {"optimizer": torch.optim.Adam(model.parameters(), 1e-3), "data": (DIGITS, LABELS)}
    looked = find_faults(model, DIGITS[:64], LABELS[:64], loss=nn.BCEWithLogitsLoss(), step=step, seconds=20, **given)
    assert not looked.faults and (looked.mending is None) == (steps == 2)
