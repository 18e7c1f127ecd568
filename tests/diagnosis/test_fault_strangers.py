"""Faults that strangers' programs had and that were missed at first, each beside its sound form."""

import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import epoch0 as e0
from epoch0.diagnosis.faults import evidence, find_faults
from epoch0.diagnosis.faults.changes import CHANGES
from epoch0.diagnosis.faults.program import Trained, UserProgram
from fault_programs import X, Y, adam, mlp


@pytest.fixture(autouse=True)
def weights_of_one_draw() -> None:
    torch.manual_seed(0)


def found(model: nn.Module, x: Tensor, y: Tensor, loss: Any = F.cross_entropy, rate: float = 1e-3, **more: Any) -> Any:
    draw = torch.Generator().manual_seed(0)
    given = {"data": DataLoader(TensorDataset(x, y), 32, shuffle=True, generator=draw), "seconds": 0, **more}
    return find_faults(model, x[:100], y[:100], loss=loss, optimizer=adam(model, rate), **given)


def kinds(looked: Any) -> list[str]:
    return [fault.kind for fault in looked.faults]


class Cells(nn.Module):
    """A recurrent cell whose state is cut off at each step, or not."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut, self.cell, self.end = cut, nn.GRUCell(4, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 32)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state.detach() if self.cut else state)
        out: Tensor = self.end(state)
        return out


@pytest.mark.parametrize("cut", [True, False])
def test_a_state_that_is_detached_is_kept_on_a_copy(cut: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(800, 6, 4, generator=draw)
    y = (x[:, 0, 0] * x[:, 1, 0] > 0).long()  # what only the first two steps tell, together
    torch.manual_seed(0)
    model = Cells(cut)
    looked = found(model, x, y, rate=5e-3, seconds=60)
    assert kinds(looked)[:1] == ["gradient flow"] * cut, str(looked)
    assert "forward" not in vars(model)
    if cut:
        assert looked.faults[0].evidence == "mended on a copy"
        assert "Leave detach() out" in looked.faults[0].fix and "held-out" in looked.faults[0].fix


@pytest.mark.parametrize("large", [True, False])
def test_weights_that_are_too_large_stand_where_others_learn_much_sooner(large: bool) -> None:
    """Eight tanh layers of N(0, 1) come to know half of what the same layers know at once, started well."""
    draw = torch.Generator().manual_seed(0)
    centres, y = 1.5 * torch.randn(5, 20, generator=draw), torch.randint(5, (800,), generator=draw)
    torch.manual_seed(0)
    layers = [part for a, b in pairwise([20, *[64] * 8]) for part in (nn.Linear(a, b), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(64, 5))
    for part in model if large else ():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight)
    looked = found(model, centres[y] + torch.randn(800, 20, generator=draw), y, seconds=60)
    assert kinds(looked) == ["initialization"] * large, str(looked)


@pytest.mark.parametrize("distance", [nn.MSELoss(), F.smooth_l1_loss])
def test_several_outputs_against_one_target(distance: Any) -> None:
    """As of Q-learning without the gather: torch only warns."""
    value = X[:, 10:20].sum(1, keepdim=True)
    with warnings.catch_warnings(action="ignore"):
        looked = found(mlp(ends=4), X, value, distance)
    assert (
        kinds(looked)[0] == "shapes"
        and "4 outputs of an example, (n, 4), with its one target" in looked.faults[0].message
    )
    assert not kinds(found(mlp(ends=1), X, value, distance))
    with warnings.catch_warnings(action="ignore"):
        classes = found(mlp(), X, Y[:, None].float(), distance)
    assert kinds(classes)[:2] == ["labels", "shapes"] and "one-hot" in classes.faults[0].fix


def test_what_is_wrong_with_a_step_stands_beside_what_mended_it() -> None:
    def clipped(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
        optimizer.step()

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = find_faults(
        model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=optimizer, step=clipped, data=(X, Y)
    ).faults[0]
    assert first.kind == "update" and "shortens the gradient to 0.0001" in first.message
    assert first.fix.startswith("Clip gradients to a norm of about 1, not to nothing. Or: Write the usual loop")


def logs(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(outputs.gather(1, targets[:, None]) + 1e-7).log().mean()


def half_a_bce(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(targets * (outputs + 1e-7).log()).mean()


BITS = (X[:, 10:22] > 0).float()


@pytest.mark.parametrize(
    ("model", "y", "loss", "expected"),
    [
        (mlp(nn.Softmax(1)), Y, logs, None),  # of probabilities above 1, which there are none of, it would be negative
        (mlp(nn.Softmax(1)), Y, F.cross_entropy, "output activation"),
        (mlp(nn.Sigmoid(), ends=12), BITS, half_a_bce, "loss"),
        (mlp(nn.Sigmoid(), ends=12), BITS, F.binary_cross_entropy, None),
        (mlp(ends=12), BITS, F.soft_margin_loss, "labels"),  # for -1 and 1
        (mlp(ends=12), 2 * BITS - 1, F.soft_margin_loss, None),
        (mlp(nn.Softmax(1), ends=12), BITS, F.binary_cross_entropy, "output activation"),  # several are on
        (mlp(ends=12), BITS + 1, F.binary_cross_entropy_with_logits, "labels"),
        (mlp(ends=2), (X[:, 20] > 3).long(), F.cross_entropy, "labels"),  # hardly any
        (mlp(ends=1), X[:, 10:11], lambda o, t: (o - t).mean() ** 2, "loss"),  # all that is compared are means
        (mlp(nn.Sigmoid(), ends=12), BITS, lambda o, t: F.mse_loss(o + (o.round() - o).detach(), t), None),
    ],
)
def test_what_the_loss_makes_of_probabilities_and_targets(
    model: nn.Module, y: Tensor, loss: Any, expected: Any
) -> None:
    assert kinds(found(model, X, y, loss))[:1] == [expected] * bool(expected)


@pytest.mark.parametrize("inverse", [True, False])
def test_weights_of_classes_that_help_those_that_are_many(inverse: bool) -> None:
    y = (Y == 0).long()
    counts = torch.bincount(y).float()
    looked = found(mlp(ends=2), X, y, nn.CrossEntropyLoss(weight=1 / counts if inverse else counts / counts.sum()))
    assert kinds(looked) == ["loss"] * (not inverse), str(looked)


class Read(nn.Module):
    """A recurrent layer of which one step is used."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.inside, self.end, self.step = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 10), step

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.end(self.inside(x.reshape(-1, 8, 8))[0][:, self.step])
        return out


@pytest.mark.parametrize("step", [0, -1])
def test_a_recurrent_layer_of_which_the_first_step_is_used(step: int) -> None:
    looked = found(Read(step), X, Y)
    assert kinds(looked) == ["architecture"] * (step == 0), str(looked)
    if step == 0:
        assert "Of 8 steps only what 'inside' returns at the first is used" in looked.faults[0].message


def test_a_loss_that_turns_its_targets_round_reads_them_all_the_same() -> None:
    words = torch.randint(12, (200, 6), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))

    def turned(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.reshape(-1, 12), targets.flip(1).reshape(-1))

    def mixed(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.transpose(1, 2).reshape(-1, 12), targets.reshape(-1))

    def across(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.reshape(-1, 12), targets.t().reshape(-1))

    assert not kinds(found(model, words, words, turned))
    assert kinds(found(model, words, words, across))[:1] == ["shapes"]
    assert kinds(found(model, words, words, mixed))[:1] == ["shapes"]


@pytest.mark.parametrize("filled", [True, False])
def test_a_label_that_is_filled_anew_for_the_next_loss(filled: bool) -> None:
    def body(model: nn.Module, optimizer: Any, loss: Any, real: Tensor, made: Tensor) -> None:
        optimizer.zero_grad()
        label = torch.ones(len(real), 1)
        loss(model(real), label).backward()
        if filled:
            label.fill_(0.0)
        loss(model(made), label).backward()
        optimizer.step()

    looked = found(mlp(ends=1), X, X.flip(0) + 1, F.binary_cross_entropy_with_logits, step=body)
    assert ("labels" in kinds(looked)) == (not filled), str(looked)


@pytest.mark.parametrize("rate", [0.3, 1e-3])
def test_of_what_learns_slowly_a_rate_that_is_too_large_is_a_fault(rate: float) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    looked = found(model, X, Y, rate=rate, seconds=60)
    assert kinds(looked)[:1] == ["learning rate"] * (rate > 0.1), str(looked)


def test_pairs_of_names_of_which_a_sample_is_read_are_not_learned_by_heart() -> None:
    draw = torch.Generator().manual_seed(5)
    taste, trait = (0.6 * torch.randn(count, 5, generator=draw) for count in (200, 150))
    user, item = (torch.randint(count, (6000,), generator=draw) for count in (200, 150))

    class Ratings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(200, 50), nn.Embedding(150, 50)
            for table in (self.users, self.items):
                nn.init.normal_(table.weight, 0, 0.05)

        def forward(self, x: Tensor) -> Tensor:
            return (self.users(x[:, 0]) * self.items(x[:, 1])).sum(1)

    torch.manual_seed(0)
    looked = found(
        Ratings(), torch.stack([user, item], 1), (taste[user] * trait[item]).sum(1), F.mse_loss, 5e-3, seconds=60
    )
    assert not looked.faults, str(looked)


@pytest.mark.parametrize("scaled", [True, False])
def test_values_under_a_binary_cross_entropy_ask_for_another_loss(scaled: bool) -> None:
    """Standardized values, of which logits learn the sign, and prices, which the loss of probabilities refuses."""
    values = X[:, :8] @ torch.linspace(-1, 1, 8)[:, None]
    torch.manual_seed(0)
    model = mlp(ends=1)
    loss = nn.BCEWithLogitsLoss() if scaled else nn.BCELoss()
    model = model if scaled else nn.Sequential(model, nn.Sigmoid())
    looked = found(model, X, values if scaled else 200 + 50 * values, loss)
    assert kinds(looked)[:1] == ["loss"] and "MSELoss" in looked.faults[0].fix, str(looked)
    assert not kinds(found(mlp(ends=1), X, (values > 0).float(), nn.BCEWithLogitsLoss()))


@pytest.mark.parametrize("cut", ["loss", "outputs", ""])
def test_backward_of_a_copy_of_the_loss_or_the_outputs_is_a_gradient_that_is_cut(cut: str) -> None:
    """Beside gradients that are cleared before the step, which leave none either."""

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        value = loss(model(x).detach().requires_grad_() if cut == "outputs" else model(x), y)
        (torch.tensor(value.item(), requires_grad=True) if cut == "loss" else value).backward()
        optimizer.zero_grad()
        optimizer.step()

    assert kinds(found(mlp(), X, Y, step=step))[:1] == ["gradient flow" if cut else "update"]


@pytest.mark.parametrize("apart", [True, False])
def test_a_loss_that_is_the_same_whichever_class_is_right(apart: bool) -> None:
    """Targets and logarithms are added up over the classes first, and then multiplied."""

    def loss(p: Tensor, wanted: Tensor) -> Tensor:
        logs = p.clamp(1e-32, 1.0).log()
        return -(wanted.sum(1) * logs.sum(1) if apart else (wanted * logs).sum(1)).mean()

    looked = found(mlp(nn.Softmax(1)), X, F.one_hot(Y, 10).float(), loss)
    assert kinds(looked)[:1] == (["loss"] if apart else []), str(looked)


@pytest.mark.parametrize("stepped", [True, False])
def test_a_warm_up_in_the_loop_body_starts_where_it_is(stepped: bool) -> None:
    """The rate is multiplied from step to step: begun at its end it would leave the range of floats."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-4, total_iters=50)

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        if stepped:
            schedule.step()

    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=optimizer, data=(X, Y), step=step)
    assert kinds(looked)[:1] == ["learning rate"] * (not stepped), str(looked)
    assert not any("schedule" in line for line in looked.not_examined)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-5) and schedule.last_epoch == 0


class Frozen(nn.Module):
    """Layers that are not trained, as they were drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.end = (
            nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 6), nn.Tanh()),
            nn.Linear(6, 10),
        )
        self.inside.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.end(self.inside(x))
        return out


def test_frozen_weights_of_what_learns_slowly_are_trained_on_a_copy() -> None:
    """Which is told, and no fault: what is frozen may have been learned."""
    torch.manual_seed(0)
    model = Frozen()
    data = DataLoader(TensorDataset(X, Y), 32, shuffle=True, generator=torch.Generator().manual_seed(0))
    given = {"loss": F.cross_entropy, "optimizer": adam(model, 1e-3), "data": data}
    report = e0.checkup(model, X[:100], Y[:100], **given)
    assert report.trains and not report.faults and "Train the frozen weights, too." in report.verdict
    assert not any(p.requires_grad for p in model.inside.parameters())


class Pictures(nn.Module):
    """Pictures with their colours last, which a convolution wants first."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut, self.inside = cut, nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 4))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inside(x.view(-1, 3, 12, 12) if self.cut else x.permute(0, 3, 1, 2))
        return out


@pytest.mark.parametrize("cut", [True, False])
def test_a_view_in_the_place_of_a_permutation(cut: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    looked = found(Pictures(cut), torch.rand(300, 12, 12, 3, generator=draw), torch.arange(300) % 4)
    assert [fault.kind for fault in looked.faults if "view" in fault.message] == ["shapes"] * cut


@pytest.mark.parametrize("fault", ["dropout", ""])
def test_what_a_regression_hardly_sees(fault: str) -> None:
    """Outputs that dropout sets to zero; it learns the rest."""
    torch.manual_seed(0)
    model = mlp(nn.Dropout(0.5), ends=2) if fault else mlp(ends=2)
    looked = found(model, X, X[:, :2], F.mse_loss, seconds=60)
    assert kinds(looked)[:1] == ["regularization"] * (fault == "dropout"), str(looked)


@pytest.mark.parametrize("rate", [0.5, 1e-2])
def test_a_program_that_learns_is_looked_at_again_where_its_rate_is_in_doubt(rate: float) -> None:
    """Momentum of 0.98: it knows the classes for a while, and loses them; 0.99 is suspected at once."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.98 if rate > 0.1 else 0.9)
    data = DataLoader(TensorDataset(X, Y), 32, shuffle=True, generator=torch.Generator().manual_seed(0))
    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=optimizer, data=data)
    assert bool(looked.faults) == (rate > 0.1), str(looked)
    assert looked.mending is not None and (looked.mending.own.steps > 200) == (rate > 0.1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("fault", ["", "exchanged", "turned"])
def test_targets_the_other_way_round(fault: str) -> None:
    """Maps with rows and columns exchanged; alike and not alike in a loss of distances."""
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    if fault == "exchanged":
        pairs, centres = torch.randint(3, (2, 600), generator=draw), 2 * torch.randn(3, 16, generator=draw)
        x = (centres[pairs] + 0.8 * torch.randn(2, 600, 16, generator=draw)).movedim(0, 1)
        alike = (pairs[0] == pairs[1]).float()
        inside = nn.Sequential(
            nn.Flatten(0, 1), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8), nn.Unflatten(0, (-1, 2))
        )

        def loss(ends: Tensor, wanted: Tensor) -> Tensor:
            far = (ends[:, 0] - ends[:, 1]).norm(dim=1)
            return (wanted * (2 - far).relu().square() + (1 - wanted) * far.square()).mean()

        looked = found(inside, x, alike, loss, seconds=60)
    else:
        x = torch.rand(400, 1, 12, 12, generator=draw)
        maps = (nn.functional.avg_pool2d(x, (1, 5), 1, (0, 2)) > 0.55).float()
        net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 5, padding=2))
        wanted = maps.transpose(-1, -2) if fault else maps
        looked = found(net, x, wanted, F.binary_cross_entropy_with_logits, rate=1e-2, seconds=60)
    assert kinds(looked)[:1] == ["labels"] * bool(fault), str(looked)


def test_a_loop_body_whose_targets_move_with_a_copy_of_the_model_is_not_judged() -> None:
    model, wanted = mlp(ends=2), mlp(ends=2)
    count = [0]

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            aim = y[:, 1] + 0.9 * wanted(x.roll(1, 1)).amax(1)
        optimizer.zero_grad()
        F.smooth_l1_loss(model(x).gather(1, y[:, :1].long())[:, 0], aim).backward()
        optimizer.step()
        count[0] += 1
        if count[0] % 20 == 0:
            wanted.load_state_dict(model.state_dict())

    y = torch.stack([torch.arange(len(X)) % 2, X[:, 0]], 1)
    looked = find_faults(model, X[:100], y[:100], optimizer=adam(model), data=(X, y), step=step)
    assert not looked.faults and any("move with a copy" in line for line in looked.not_examined), str(looked)


class Ahead(nn.Module):
    """A first layer whose result is cut off, beside two that are trained."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut, self.first, self.rest = cut, nn.Linear(64, 8), mlp()
        self.rest[0] = nn.Linear(8, 64)
        self.aside = nn.Linear(8, 8)  # runs, and nothing is made of it

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        self.aside(h)
        out: Tensor = self.rest(h.detach() if self.cut else h)
        return out


@pytest.mark.parametrize("cut", [True, False])
def test_one_layer_that_gets_no_gradient(cut: bool) -> None:
    torch.manual_seed(0)
    looked = found(Ahead(cut), X, Y)
    assert [(f.kind, f.where) for f in looked.faults] == [("gradient flow", "first.weight")] * cut, str(looked)


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_pairs_that_are_not_alike_are_minus_one_for_a_cosine(low: float) -> None:
    draw = torch.Generator().manual_seed(0)
    pairs, centres = torch.randint(4, (2, 600), generator=draw), torch.randn(4, 16, generator=draw)
    x = (centres[pairs] + 0.3 * torch.randn(2, 600, 16, generator=draw)).movedim(0, 1)
    alike = torch.where(pairs[0] == pairs[1], 1.0, low)
    torch.manual_seed(0)
    inside = nn.Sequential(nn.Flatten(0, 1), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8), nn.Unflatten(0, (-1, 2)))
    looked = found(inside, x, alike, lambda ends, t: F.cosine_embedding_loss(ends[:, 0], ends[:, 1], t), seconds=60)
    assert kinds(looked)[:1] == ["labels"] * (low == 0), str(looked)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rewards_above_their_mean_are_judged_by_what_is_chosen(sign: float) -> None:
    """Once nearly all are earned the loss is higher with the right targets, as with a wrong sign."""
    state = {"baseline": 0.1}

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        policy = torch.distributions.Categorical(logits=model(x))
        action = policy.sample()
        reward = (action == y).float()
        optimizer.zero_grad()
        value = -(policy.log_prob(action) * (reward - state["baseline"])).mean() - 0.01 * policy.entropy().mean()
        (sign * value).backward()
        optimizer.step()
        state["baseline"] = 0.9 * state["baseline"] + 0.1 * float(reward.mean())

    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    centres, y = 2 * torch.randn(4, 64, generator=draw), torch.randint(4, (600,), generator=draw)
    model = mlp(ends=4)
    x = centres[y] + torch.randn(600, 64, generator=draw)
    looked = find_faults(model, x[:100], y[:100], optimizer=adam(model, 5e-3), data=(x, y), step=step, seconds=20)
    assert bool(looked.faults) == (sign < 0), str(looked)


@pytest.mark.parametrize(("last", "right"), [(0.3, True), (-0.3, True), (None, False)])
def test_what_is_chosen_counts_where_the_loss_swings(
    last: float | None, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sign of what is known at the last look alone is chance; one that never swings is no reward's."""
    looks = iter([0.0, *[-0.3, 0.2, -0.3, 0.3, -0.3, 0.2, -0.3, last or 0.3]])
    known = (lambda *_, **__: next(looks, last)) if last else (lambda *_, **__: 0.2)
    model = mlp()
    given = {"loss": F.cross_entropy, "optimizer": adam(model, 1e-2), "data": (X, Y)}
    program = UserProgram.of(evidence(model, X, Y, **given))
    assert program is not None
    monkeypatch.setattr(UserProgram, "known", known)
    assert (program.train(80).right > 0.6) == right


@pytest.mark.parametrize("taken_off", [False, True])
def test_a_program_that_takes_off_as_its_seconds_end_gets_more(
    taken_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plateau of hundreds of steps, as of sigmoids, outlasts the seconds by a little."""
    now = iter([(200, 0.0), (400, 0.01 if taken_off else 0.003), *[(400, 0.9)] * taken_off])

    def train(*_: Any, **__: Any) -> Trained:
        steps, known = next(now, (200, 0.0))  # the changes do nothing
        return Trained(((0, 0.0), (steps // 2, 0.001), (steps, known)), (2.3,) * steps, known, 10.0)

    model = mlp()
    given = {"loss": F.cross_entropy, "optimizer": adam(model, 1e-4), "data": (X, Y)}
    monkeypatch.setattr(UserProgram, "train", train)
    looked = find_faults(model, X[:100], Y[:100], **given, seconds=60)
    assert not looked.faults and (looked.mending is not None) == taken_off, str(looked)
    assert taken_off or "too few; pass seconds=" in str(looked.not_examined)


class Steps(nn.Module):
    """The class at each of so many steps, flattened, steps or examples first."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.turned, self.reads, self.end = turned, nn.GRU(3, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.end(self.reads(x)[0])
        return (out.transpose(0, 1) if self.turned else out).reshape(-1, 3)


@pytest.mark.parametrize("wrong", ["", "steps first", "labels repeated"])
def test_outputs_are_compared_with_the_targets_of_their_own_example(wrong: str) -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(3, (400,), generator=draw)
    x = torch.randn(400, 10, 3, generator=draw) + F.one_hot(y, 3).float()[:, None]

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        return F.cross_entropy(out, wanted.repeat(10) if wrong == "labels repeated" else wanted.repeat_interleave(10))

    looked = found(Steps(wrong == "steps first"), x, y, loss)
    assert kinds(looked)[:1] == ["shapes"] * bool(wrong), str(looked)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(ignore_index=0), nn.CrossEntropyLoss(torch.rand(10))])
def test_a_mean_over_what_is_counted_is_no_comparison_of_others(loss: nn.Module) -> None:
    """Other targets of two examples change the weight of all the others alike."""
    assert "shapes" not in kinds(found(mlp(), X, Y.where(torch.arange(500) % 4 == 0, 0), loss))


class Pixels(TensorDataset):
    """Images that are scaled in place when they are read, or not."""

    def __init__(self, within: bool) -> None:
        super().__init__(X.clone(), Y)
        self.within = within

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        if self.within:
            x /= 16
        return x if self.within else x / 16, y


@pytest.mark.parametrize("within", [True, False])
def test_a_dataset_that_writes_into_what_it_holds(within: bool) -> None:
    data = Pixels(within)
    looked = found(mlp(), X / 16, Y, data=DataLoader(data, 32))
    assert ("data" in kinds(looked)) == within, str(looked)
    assert ("Read again" in str(looked)) == within


class Words(nn.Module):
    """The mean of embedded words, whatever numbers they come as."""

    def __init__(self, zero: bool = False) -> None:
        super().__init__()
        self.words, self.end = nn.Embedding(100, 16), nn.Linear(16, 2)
        if zero:
            nn.init.zeros_(self.words.weight)
            nn.init.zeros_(self.end.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.end(self.words(x.long()).mean(1))
        return out


def test_names_of_words_that_a_rounding_makes_one() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(100, (200, 8), generator=draw).float()
    y = (x[:, 0] > 50).long()
    assert kinds(found(Words(), x / 100, y))[0] == "data"
    assert kinds(found(Words(), x, y)) == []


def test_weights_that_are_all_zero_are_the_cause_and_not_the_architecture() -> None:
    x = torch.randint(100, (200, 8), generator=torch.Generator().manual_seed(0))
    assert kinds(found(Words(zero=True), x, (x[:, 0] > 50).long()))[0] == "initialization"


@pytest.mark.parametrize("size", [2, 32])
def test_a_norm_over_two_examples_leaves_their_order(size: int) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    looked = found(model, X, Y, data=DataLoader(TensorDataset(X, Y), size, shuffle=True))
    assert kinds(looked) == ["batch size"] * (size == 2), str(looked)


def test_one_output_of_several_classes_is_no_matter_of_scale() -> None:
    looked = found(
        mlp(nn.Sigmoid(), ends=1), X, Y[:, None].float(), lambda p, t: -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    )
    assert kinds(looked)[0] == "architecture" and "target scale" not in kinds(looked), str(looked)


def test_probabilities_that_nothing_keeps_within_0_and_1() -> None:
    """A binary cross-entropy that clamps what it gets, of a network without a sigmoid."""
    y = (Y > 4).float()[:, None]

    def clamped(p: Tensor, t: Tensor) -> Tensor:
        p = p.clamp(1e-7, 1 - 1e-7)
        return -(t * p.log() + (1 - t) * (1 - p).log()).mean()

    looked = found(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)), 3 * X, y, clamped)
    assert kinds(looked)[0] == "output activation", str(looked)


def test_saturated_sigmoids_are_a_matter_of_their_weights_and_not_of_a_cut() -> None:
    """What is detached no draw of weights mends."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 10))
    nn.init.uniform_(model[0].weight, 0, 3)
    looked = found(model, X.abs() + 1, Y, rate=1e-3, seconds=30)
    said = [*kinds(looked), "gradient flow"]
    assert said.index("initialization") < said.index("gradient flow"), str(looked)


def test_two_units_that_are_both_shut_are_too_few() -> None:
    model = nn.Sequential(nn.Linear(64, 2), nn.ReLU(), nn.Linear(2, 10))
    with torch.no_grad():
        model[0].bias.fill_(-100)
    looked = found(model, X, Y)
    assert kinds(looked)[0] == "architecture" and "2 units" in looked.faults[0].fix, str(looked)


def test_a_linear_map_is_told_from_relus_that_stay_open_on_tiny_inputs() -> None:
    """One value in each column dwarfs the others, which a minimum and a maximum bring to a millionth."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(300, 6, generator=draw)
    y = (x[:, 0] > x[:, 1]).long()
    x[range(6), range(6)] = 1e6
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))
    looked = found(model, x / 1e6, y, seconds=5)
    assert "single linear map" not in str(looked), str(looked)


class Backcast(nn.Module):
    """Two blocks as of N-BEATS: what the last leaves of its input is returned, and no loss reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.back, self.last = nn.Linear(64, 64), nn.Linear(64, 64)
        self.ahead = nn.ModuleList([nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)) for _ in range(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left = x - self.back(x)
        return left - self.last(left), self.ahead[0](x) + self.ahead[1](left)


def test_what_only_another_output_depends_on_is_not_cut_off() -> None:
    torch.manual_seed(0)
    looked = found(Backcast(), X, Y, lambda out, y: F.cross_entropy(out[1], y))
    assert kinds(looked) == [], str(looked)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_probability_of_the_right_class_is_to_be_large(sign: int) -> None:
    """A loss with bounds both ways falls whichever its sign is."""
    looked = found(mlp(), X, Y, lambda out, y: sign * out.softmax(1)[torch.arange(len(y)), y].mean())
    assert ("its sign is wrong" in str(looked)) == (sign == 1), str(looked)


def test_tiny_values_are_a_matter_of_their_scale() -> None:
    looked = found(mlp(ends=1), X, 1e-5 * X[:, 20:21], F.mse_loss)
    assert kinds(looked)[0] == "target scale", str(looked)


def test_far_targets_that_are_reached_soon_are_no_fault() -> None:
    """Five steps see a speed that grows with the weights."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(442, 10, generator=draw)
    y = 150 + 50 * x[:, :1] + 40 * torch.randn(442, 1, generator=draw)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    draw = torch.Generator().manual_seed(0)
    data = DataLoader(TensorDataset(x, y), 32, shuffle=True, generator=draw)
    given: Any = {"loss": F.mse_loss, "optimizer": torch.optim.SGD(model.parameters(), 1e-4), "data": data}
    assert kinds(find_faults(model, x[:100], y[:100], seconds=0, **given)) == ["target scale"]
    looked = find_faults(model, x[:100], y[:100], seconds=30, **given)
    assert kinds(looked) == [], str(looked)


class Keeps(nn.Module):
    """An autoencoder that keeps the code for a loss that looks for it there."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(64, 8), nn.Linear(8, 64)

    def forward(self, x: Tensor) -> Tensor:
        self.code = self.into(x)
        out: Tensor = self.out(self.code.relu())
        return out


def test_a_loss_that_cannot_be_read_of_a_copy_is_not_judged() -> None:
    """It asks a class for the model, which nothing can turn to a copy: that is said, and no error."""
    model = Keeps()

    class Own:
        kept = model

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(out, wanted) + 1e-3 * Own.kept.code.square().mean()

    for given in ({}, {"optimizer": adam(model, 1e-3), "data": (X, X)}):
        report = e0.checkup(model, X[:100], X[:100], loss=loss, seconds=5, **given)
        assert not report.faults and report.recipes["adam"].evidence == "step 0"
    assert "no attribute 'code'" in " ".join(report.not_examined)
    assert not hasattr(model, "code")


class Autoencoder(nn.Module):
    """A variational one that leaves what its loss reads on itself."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_variance, self.back = nn.Linear(64, 4), nn.Linear(64, 4), nn.Linear(4, 64)

    def forward(self, x: Tensor) -> Tensor:
        self.mu, self.wide = self.mean(x), self.log_variance(x)
        out: Tensor = self.back(self.mu + torch.randn_like(self.mu) * (self.wide / 2).exp())
        return out


def test_a_loss_that_reads_what_the_model_keeps_reads_the_copys() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.tanh(torch.randn(400, 4, generator=draw) @ torch.randn(4, 64, generator=draw))
    model, seen = Autoencoder(), list[float]()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        apart = -0.5 * (1 + model.wide - model.mu.square() - model.wide.exp()).mean()
        seen.append(float(apart.detach()))
        return F.mse_loss(output, target) + 1e-3 * apart

    report = e0.checkup(model, x[:100], x[:100], loss=loss, optimizer=adam(model, 3e-3), data=(x, x))
    assert report.trains and not report.faults, str(report)
    assert report.program is not None and report.program.own.known > 0.3
    assert e0.checkup(model, x[:100], x[:100], loss=loss).recipes["adam"].evidence == "trial"
    assert 0 < len(seen) < 100 and not hasattr(model, "mu")  # of trainings it is a copy of the list that grows


@pytest.mark.parametrize("factor", [3.0, 1e-4])
def test_a_penalty_of_the_weights_in_the_loss_is_found_and_left_out_on_a_copy(factor: float) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(500, 20, generator=draw)
    y = x[:, :3].sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss(output: Tensor, target: Tensor) -> Tensor:
        penalty: Any = sum(p.abs().sum() for p in model.parameters())
        return F.mse_loss(output, target) + factor * penalty

    looked = found(model, x, y, loss, 1e-2, seconds=60)
    assert kinds(looked) == ["regularization"] * (factor > 1), str(looked)
    if factor > 1:
        told = looked.faults[0]
        assert told.where == "loss" and "times as hard" in told.message and told.evidence == "mended on a copy"
        assert told.fix.startswith("Leave the penalty of the weights out.")
    report = e0.checkup(model, x[:100], y[:100], loss=loss)  # one answer for all costs what the weights then cost
    assert report.trial is not None and report.trains == (factor < 1), str(report)
    first, run = report.trial.constant or 0.0, report.trial.of("adam")[-1]
    assert run.constant == pytest.approx(first, rel=1e-2) if factor < 1 else 0 < (run.constant or 0) < 0.5 * first


@pytest.mark.parametrize("eps", [1.0, 1e-8])
def test_an_epsilon_far_above_the_gradients_is_the_optimizers(eps: float) -> None:
    model = mlp()
    given = {"data": DataLoader(TensorDataset(X, Y), 32, shuffle=True), "loss": F.cross_entropy, "seconds": 0}
    looked = find_faults(
        model, X[:100], Y[:100], optimizer=torch.optim.Adam(model.parameters(), 1e-3, eps=eps), **given
    )
    assert ("optimizer" in kinds(looked)) == (eps == 1.0), str(looked)
    if eps == 1.0:
        told = next(fault for fault in looked.faults if fault.kind == "optimizer")
        assert "epsilon of 1 alone" in told.message and told.fix == "Leave it at 1e-8."


@pytest.mark.parametrize("eps", [1e5, 1e-5])
def test_an_epsilon_of_a_norm_that_hides_the_variance(eps: float) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64, eps), nn.ReLU(), nn.Linear(64, 10))
    looked = found(model, X, Y)
    assert kinds(looked)[:1] == ["normalization"] * (eps > 1), str(looked)
    assert eps < 1 or (looked.faults[0].where == "1" and "100000" in looked.faults[0].message)


class Bigrams(nn.Module):
    """Each word is foretold from it and the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(12, 16), nn.Linear(32, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = self.embedding(tokens)
        before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], 1)
        out: Tensor = self.out(torch.cat([seen, before], 2)).transpose(1, 2)
        return out


@pytest.mark.parametrize("places", [1, 2])
def test_targets_that_are_moved_on_twice(places: int) -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randint(12, (300, 2), generator=draw)
    text = (start[:, :1] + start[:, 1:] * torch.arange(14)) % 12
    looked = found(Bigrams(), text[:, :10], text[:, places : 10 + places])
    assert kinds(looked) == ["labels"] * (places > 1), str(looked)
    assert places == 1 or looked.faults[0].message == "Targets are the tokens 2 places on."


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_score_of_maps_is_not_minimized(sign: float) -> None:
    draw = torch.Generator().manual_seed(0)
    y = (F.avg_pool2d(torch.randn(120, 1, 20, 20, generator=draw), 5, 1) > 0).float()
    x = y + 0.1 * torch.randn(y.shape, generator=draw)

    def dice(output: Tensor, target: Tensor) -> Tensor:
        share = output.sigmoid()
        apart = (1, 2, 3)
        return sign * ((2 * (share * target).sum(apart) + 1) / (share.sum(apart) + target.sum(apart) + 1)).mean()

    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    looked = found(model, x, y, dice)
    assert kinds(looked) == ["loss"] * (sign > 0), str(looked)
    assert sign < 0 or looked.faults[0].message.startswith("Right answers have a loss of")


@pytest.mark.parametrize("bias", [True, False])
def test_a_loss_that_stays_above_that_of_one_answer_is_not_enough(bias: bool) -> None:
    """Targets of 20 to 30 from centred inputs: without a bias at the end hardly more than their sign is learned."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=draw)
    y = 25 + x[:, :1] + 2 * x[:, 1:2].sin()
    model = nn.Sequential(nn.Linear(6, 32, bias=bias), nn.Tanh(), nn.Linear(32, 1, bias=bias))
    looked = found(model, x, y, F.mse_loss, 1e-2, seconds=60)
    assert looked.mending is not None and looked.mending.own.above == (not bias)
    assert kinds(looked)[:1] == ["target scale"] * (not bias), str(looked)
    assert bias or looked.faults[0].evidence == "mended on a copy"


@pytest.mark.parametrize("pushed", [True, False])
def test_outputs_that_become_alike_where_nobody_says_what_is_right(pushed: bool) -> None:
    """Codes of noisy copies are pulled together; nothing keeps those of other digits apart, or their variance does."""

    def loss(codes: Tensor, target: Tensor) -> Tensor:
        one, other = codes.chunk(2, 1)
        return F.mse_loss(one, other) + ((1 - one.std(0)).relu().mean() if pushed else 0.0)

    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

        def forward(self, x: Tensor) -> Tensor:
            noisy = (x + 0.3 * torch.randn_like(x) for _ in range(2)) if self.training else (x, x.flip(1))
            return torch.cat([self.codes(one) for one in noisy], 1)

    looked = found(Twins(), X, Y, loss, 3e-3, seconds=60)
    assert kinds(looked) == ["loss"] * (not pushed), str(looked)
    assert pushed or "Trained, the outputs of different examples differ" in looked.faults[0].message


def test_a_loop_body_may_name_what_never_got_a_value() -> None:
    """A scaler that is only made on a GPU: the body closes over a name without a value, and over a schedule."""
    model = mlp()
    optimizer, half = adam(model), False
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        value = loss(model(x), y)
        (scaler.scale(value) if half else value).backward()
        optimizer.step()
        schedule.step()
        return float(value.detach())

    if half:
        scaler = torch.amp.GradScaler("cuda")
    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=optimizer, data=(X, Y), step=step)
    assert kinds(looked) == [] and looked.mending is not None and looked.mending.own.learns, str(looked)
    assert schedule.last_epoch == 0 and optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.sample(1)
@pytest.mark.parametrize("turned", [False, True])
def test_a_table_read_column_by_column_is_learned_by_heart(turned: bool) -> None:
    """Reshaped and not turned it loses its rows: what is learned of some examples holds for no others."""
    draw = torch.Generator().manual_seed(5)
    table = torch.randn(700, 8, generator=draw)
    y = (table[:, :3].sum(1, keepdim=True) + table[:, 3:4] * table[:, 4:5]) / 2
    x = table.T.contiguous().T if turned else table.T.contiguous().reshape(-1, 8)
    model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1))
    looked = found(model, x, y, F.mse_loss, 2e-3, seconds=60)
    assert kinds(looked) == ([] if turned else ["labels", "data", "architecture"]), str(looked)
    assert turned or "of the examples in training" in looked.faults[0].message


@pytest.mark.parametrize("turned", [True, False])
def test_places_and_channels_exchanged_compare_each_place_with_each(turned: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.randn(300, 1, 40, generator=draw)
    x = y + 0.3 * torch.randn(y.shape, generator=draw)
    model = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 1, 5, padding=2))
    with warnings.catch_warnings(action="ignore"):  # torch tells of the shapes, too
        looked = found(model, x, y.mT if turned else y, lambda output, target: F.mse_loss(output, target))
        named = found(model, x, y.mT if turned else y, lambda output, target: F.mse_loss(input=output, target=target))
    assert kinds(looked) == ["shapes"] * turned, str(looked)
    assert not turned or "(n, 1, 40)" in looked.faults[0].message
    assert turned or not named.faults


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_sign_of_a_loss_that_draws_actions(sign: float) -> None:
    """Log probabilities times rewards of actions that the loss itself draws: its minus may not be missing."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(600, 10, generator=draw)
    y = (x @ torch.randn(10, 4, generator=draw)).argmax(1)

    def policy(output: Tensor, target: Tensor) -> Tensor:
        law = torch.distributions.Categorical(logits=output)
        action = law.sample()
        reward = (action == target).float()
        return sign * (law.log_prob(action) * (reward - reward.mean()) / (reward.std() + 1e-6)).mean()

    looked = found(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4)), x, y, policy, 3e-3)
    assert kinds(looked) == ["loss"] * (sign > 0), str(looked)


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_a_step_that_goes_up_a_little_follows_another_loss(share: float) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(model(x), y)
        value.backward()
        for p in model.parameters():
            other = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
            assert p.grad is not None
            p.grad = (1 - share) * other / other.norm() - share * p.grad / (p.grad.norm() + 1e-12)
        optimizer.step()
        return value

    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=sgd, step=step, seconds=0)
    assert ("update" in kinds(looked)) == (share == 1.0), str(looked)


def test_a_frozen_model_and_a_norm_over_one_number_have_two_names() -> None:
    frozen = mlp().requires_grad_(False)
    sgd = torch.optim.SGD(list(frozen.parameters()), 0.1)
    looked = find_faults(frozen, X[:100], Y[:100], optimizer=sgd, seconds=0)
    assert kinds(looked)[:2] == ["gradient flow", "update"], str(looked)
    alone = nn.Sequential(nn.LayerNorm(1), nn.Flatten(), nn.Linear(X.shape[1], 32), nn.ReLU(), nn.Linear(32, 10))
    looked = find_faults(alone, X[:100, :, None], Y[:100], optimizer=adam(alone), seconds=0)
    assert kinds(looked)[:2] == ["architecture", "normalization"], str(looked)
    assert (
        looked.faults[0].message
        == looked.faults[1].message
        == "'0' normalizes over one number, which it makes a constant."
    )


@pytest.mark.parametrize("moved", ["nowhere", "in the data", "in the loss"])
def test_targets_that_are_the_inputs_are_copied(moved: str) -> None:
    """A network that reads from left to right sees the token it is to say, unless data or loss move it on."""
    draw = torch.Generator().manual_seed(0)
    text = (
        torch.randint(12, (300, 1), generator=draw) + torch.randint(1, 4, (300, 1), generator=draw) * torch.arange(11)
    ) % 12

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm, self.end = nn.Embedding(12, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 12)

        def forward(self, tokens: Tensor) -> Tensor:
            out: Tensor = self.end(self.lstm(self.words(tokens))[0])
            return out

    def loss(output: Tensor, target: Tensor) -> Tensor:
        first = int(moved == "in the loss")
        return F.cross_entropy(output[:, : output.shape[1] - first].flatten(0, 1), target[:, first:].flatten())

    x, y = (text[:, :-1], text[:, 1:]) if moved == "in the data" else (text, text)
    looked = found(Reader(), x, y, loss)
    assert kinds(looked) == ["labels"] * (moved == "nowhere"), str(looked)
    assert moved != "nowhere" or looked.faults[0].message.startswith("Targets are the inputs themselves")


@pytest.mark.parametrize("positive", [True, False])
def test_a_logarithm_of_outputs_wants_outputs_above_zero(positive: bool) -> None:
    """The Poisson loss of counts, as some libraries have it: of the outputs, not of their logarithm."""
    counts = torch.poisson(X[:, 10:14].exp().mean(1, keepdim=True), generator=torch.Generator().manual_seed(0))

    def poisson(output: Tensor, target: Tensor) -> Tensor:
        return (output - target * (output + 1e-7).log()).mean()

    model = mlp(*[nn.Softplus()] * positive, ends=1)
    nn.init.constant_(model[4].bias, -0.2)  # type: ignore[arg-type]
    looked = found(model, X, counts, poisson)
    assert kinds(looked)[:2] == ([] if positive else ["loss", "output activation"]), str(looked)
    assert positive or looked.faults[1].fix == "End with a softplus or an exponential."


@pytest.mark.parametrize("made", ["for shares", "of a sigmoid"])
def test_an_overlap_of_maps_wants_shares(made: str) -> None:
    maps = (X > 0.5).float().reshape(-1, 1, 8, 8)

    def dice(output: Tensor, target: Tensor) -> Tensor:
        shares = output.sigmoid() if made == "of a sigmoid" else output
        return 1 - (2 * (shares * target).sum() + 1) / (shares.sum() + target.sum() + 1)

    looked = found(nn.Conv2d(1, 1, 3, padding=1), X.reshape(-1, 1, 8, 8), maps, dice)
    assert kinds(looked)[:1] == ["output activation"] * (made == "for shares"), str(looked)


@pytest.mark.parametrize("late", [True, False])
def test_a_body_that_trains_on_the_labels_of_the_batch_before(late: bool) -> None:
    """Nothing before training shows it; with the usual loop a copy learns, so what the body pairs is named, too."""
    kept: list[Tensor] = []

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> Tensor:
        kept.append(y)
        optimizer.zero_grad()
        value = loss(model(x), kept[max(len(kept) - 1 - late, 0)][: len(x)])
        value.backward()
        optimizer.step()
        return torch.as_tensor(value)

    looked = found(mlp(), X[:480], Y[:480], rate=3e-3, step=step, seconds=20)
    assert kinds(looked)[:3] == ["update", "labels", "data"] * late, str(looked)
    assert not late or "of one batch" in looked.faults[1].fix
    assert [f.evidence for f in looked.faults[:3]] == ["mended on a copy", "trial", "trial"][: 3 * late]


@pytest.mark.parametrize("sided", [True, False])
def test_a_logarithm_for_one_of_two_targets_only(sided: bool) -> None:
    """One answer for all has next to no loss then; that it is some times the very least tells nothing of the end."""
    y = (Y > 4).float()[:, None]
    model = nn.Sequential(*mlp(ends=1), nn.Sigmoid())

    def loss(p: Tensor, t: Tensor) -> Tensor:
        both = t * (p + 1e-7).log() + (0 if sided else 1) * (1 - t) * (1 - p + 1e-7).log()
        return -both.mean()

    assert kinds(found(model, X, y, loss))[:1] == ["loss"] * sided


@pytest.mark.parametrize("places", [24, 5])
def test_classes_of_a_connectionist_loss_lie_at_the_end(places: int) -> None:
    """Outputs of (examples, 24, 5) and five targets each look like 24 classes at five places."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(1, 5, (600, 5), generator=draw)
    x = F.one_hot(y, 5).float().repeat_interleave(5, 1)[:, :places] if places > 5 else F.one_hot(y, 5).float()

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        sizes = torch.full((len(out),), out.shape[1]), torch.full((len(out),), 5)
        return F.ctc_loss(out.log_softmax(2).transpose(0, 1), wanted, *sizes, zero_infinity=True)

    looked = found(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 5)), x, y, loss)
    assert not {"shapes", "loss"}.intersection(kinds(looked)), str(looked)


@pytest.mark.parametrize("inside", [False, True])
def test_a_logarithm_of_what_the_last_layer_returns(inside: bool) -> None:
    class Logs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = mlp(ends=1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inside(x)
            return (F.softplus(out) if inside else out - 1).log()

    looked = kinds(found(Logs(), X, X[:, 10:11], F.mse_loss))
    wanted = [] if inside else ["output activation", "architecture"]
    assert [kind for kind in looked if kind != "data"] == wanted


def test_rare_targets_may_be_drawn_by_weights_the_wrong_way_round() -> None:
    y = (torch.arange(len(X)) % 80 == 0).long()
    looked = found(mlp(ends=2), X, y)
    assert kinds(looked)[:2] == ["labels", "data"] and "a sampler" in looked.faults[1].fix


@pytest.mark.parametrize("name", ["end softmax", "end log-softmax"])
@pytest.mark.parametrize("last", [True, False])
def test_a_softmax_that_is_tried_at_the_end_goes_over_the_classes(name: str, last: bool) -> None:
    """Over the steps of a sequence it would let each step see the others: a remedy that leaks."""
    y = torch.randint(9, (200, 5), generator=torch.Generator().manual_seed(0))
    x = F.one_hot(y, 9).float()
    given: nn.Module = nn.Linear(9, 9)
    if not last:
        x, given = x.transpose(1, 2).contiguous(), nn.Conv1d(9, 9, 1)

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        return F.cross_entropy(3 * (out.transpose(1, 2) if last else out).relu(), wanted)

    seen = evidence(given, x, y, loss=loss, optimizer=adam(given))
    program = UserProgram.of(seen)
    assert program is not None
    (change,) = (c for c in CHANGES if c.name == name)
    shares = list[Tensor]()
    program.loss = lambda out, wanted: shares.append(out) or loss(out, wanted)  # type: ignore[func-returns-value]
    assert change.make(program, seen)
    program.loss(given(x), y)
    ended = shares[-1].exp() if "log" in name else shares[-1]
    torch.testing.assert_close(ended.sum(2 if last else 1), torch.ones(200, 5))


@pytest.mark.parametrize("sloped", [False, True])
def test_an_activation_of_steps_has_no_slope(sloped: bool) -> None:
    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sigmoid() if sloped else (x > 0).float() + 0 * x

    inside = nn.Sequential(nn.Linear(64, 32), Steps(), nn.Linear(32, 32), Steps(), nn.Linear(32, 10))
    assert kinds(found(inside, X, Y))[:2] == ([] if sloped else ["gradient flow", "hidden activation"])


@pytest.mark.parametrize("squares", [False, True])
def test_a_cosine_of_one_output_counts_signs_alone(squares: bool) -> None:
    """The binary cross-entropy of raw outputs is flat, too, where these lie outside; their size counts there."""
    y = 30 + 5 * X[:, 20:21]
    loss = F.mse_loss if squares else lambda out, wanted: -F.cosine_similarity(out, wanted, 1).mean()
    looked = found(mlp(ends=1), X, y, loss)
    assert kinds(looked)[:1] == ([] if squares else ["loss"]), str(looked)


@pytest.mark.parametrize("least", [0, 1])
def test_targets_that_are_all_the_same_may_be_those_that_happened(least: int) -> None:
    y = (Y > 4).long().clamp_min(least)
    assert kinds(found(mlp(ends=2), X, y)) == ["labels", "data"] * least


WORDS = 30


class Following(nn.Module):
    """The next of some words, by a recurrent layer; beside the words their number may be given."""

    def __init__(self, packed: bool = False) -> None:
        super().__init__()
        self.packed = packed
        self.words, self.body = nn.Embedding(WORDS, 32, padding_idx=0), nn.GRU(32, 48, batch_first=True)
        self.end = nn.Linear(48, WORDS)

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        if self.packed and more is not None:
            last: Tensor = self.body(nn.utils.rnn.pack_padded_sequence(self.words(x), more, batch_first=True))[1][0]
            return self.end(last)
        out: Tensor = self.end(self.body(self.words(x))[0]).transpose(1, 2)
        return out


def texts(count: int = 400) -> tuple[Tensor, Tensor]:
    """Rows that count up from some word, with 0 behind them, and how long each is."""
    draw = torch.Generator().manual_seed(0)
    x = (torch.randint(1, WORDS, (count, 1), generator=draw) + 3 * torch.arange(11)) % (WORDS - 1) + 1
    lengths = torch.randint(5, 12, (count,), generator=draw)
    return x.masked_fill(torch.arange(11) >= lengths[:, None], 0), lengths


@pytest.mark.parametrize("given", ["words", "words and lengths", "scattered"])
def test_padding_that_is_class_0_may_be_ignored(given: str) -> None:
    """Behind the words, also where targets are moved on and inputs a pair; a class among others is none."""
    x, lengths = texts()
    torch.manual_seed(0)
    model, y, loss = Following(), x[:, 1:], nn.CrossEntropyLoss(ignore_index=0)
    batch: Any = x[:, :-1] if given == "words" else (x, lengths)
    if given == "words and lengths":
        y = torch.where(x > 0, x % 7 + 1, 0)
    elif given == "scattered":
        batch, y = x, x % 4
    data = TensorDataset(*batch, y) if isinstance(batch, tuple) else TensorDataset(batch, y)
    pairs = [(row[:-1] if len(row) > 2 else row[0], row[-1]) for row in data]
    looked = find_faults(
        model, batch, y, loss=loss, optimizer=torch.optim.Adam(model.parameters(), 3e-3),
        data=DataLoader(pairs, 32, shuffle=True),
    )  # fmt: skip
    assert ("loss" in kinds(looked)) == (given == "scattered"), str(looked)


def test_batches_that_must_be_sorted_by_their_lengths() -> None:
    """As sequences are packed by default; what is drawn of them is in no order."""
    x, lengths = texts()
    rows = [(x[i], lengths[i], (x[i, 0] > 15).long()) for i in range(len(x))]

    def sorted_rows(some: list[Any]) -> Any:
        words, counts, y = map(torch.stack, zip(*sorted(some, key=lambda row: -int(row[1])), strict=True))
        return (words, counts), y

    torch.manual_seed(0)
    model = Following(packed=True)
    data = DataLoader(rows, 32, shuffle=True, collate_fn=sorted_rows)
    batch, y = next(iter(data))
    given = {"loss": F.cross_entropy, "optimizer": torch.optim.Adam(model.parameters(), 5e-3), "data": data}

    def step(model: Any, optimizer: Any, loss: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(*x), y)
        value.backward()
        optimizer.step()
        return value

    kept = nn.utils.rnn.pack_padded_sequence.__defaults__
    assert e0.checkup(model, batch, y).trains
    for more in ({}, {"step": step}):
        report = e0.checkup(model, batch, y, **given, **more)
        assert report.trains and not report.faults, str(report)
    assert nn.utils.rnn.pack_padded_sequence.__defaults__ == kept


def test_classes_that_begin_at_one_are_no_matter_of_the_loss() -> None:
    """They are out of range; that the loss takes them cut off at 1 says nothing of a loss of values."""
    looked = found(mlp(), X, Y + 1)
    assert kinds(looked)[0] == "labels" and "MSELoss" not in str(looked), str(looked)


def test_void_is_a_class_of_maps_that_may_be_ignored() -> None:
    x = torch.randn(64, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + (x[:, 0] > -1).long()
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1))
    assert kinds(found(model, x, y, nn.CrossEntropyLoss(ignore_index=0))) == []


def test_a_variance_that_is_negative_wants_a_softplus_and_no_sigmoid() -> None:
    looked = found(mlp(ends=2), X, X[:, 20:21], lambda out, t: F.gaussian_nll_loss(out[:, :1], t, out[:, 1:]))
    assert kinds(looked)[0] == "output activation" and "softplus" in looked.faults[0].fix, str(looked)
    assert "BCEWithLogitsLoss" in found(mlp(ends=1), X, (X[:, 20:21] > 0).float(), F.binary_cross_entropy).faults[0].fix


def likelihood(outputs: Tensor, y: Tensor) -> Tensor:
    normal = torch.distributions.Normal(outputs[:, :1], F.softplus(outputs[:, 1:]) + 1e-3)
    return normal.log_prob(y).mean()


@pytest.mark.parametrize("given", ["as it is", "its negative", "maximized"])
def test_a_likelihood_is_maximized_or_its_negative_minimized(given: str) -> None:
    """Minimized it falls without bound, and lies lower with the own targets all the way."""
    x = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0))
    y, model = 2 * x[:, :1] + x[:, 1:2] ** 2, nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 2))
    loss = (lambda o, t: -likelihood(o, t)) if given == "its negative" else likelihood
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, maximize=given == "maximized")
    given_too = {"optimizer": optimizer, "data": (x, y), "seconds": 6}
    looked = find_faults(model, x[:128], y[:128], loss=loss, **given_too)
    assert kinds(looked) == ["loss"] * (given == "as it is"), str(looked)
    if given == "as it is":
        assert "without bound. Minimize the negative of the loss." in str(looked)


def test_a_loss_whose_floor_is_above_zero_is_measured_from_there() -> None:
    """The deviance of gamma variables falls from what one answer gives to what is possible: by a thirtieth."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 6, generator=draw)
    mean = torch.exp(0.5 * x[:, :1] + 3)
    y = mean * (-torch.rand(2000, 2, generator=draw).log()).mean(1, keepdim=True)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 1))
    looked = found(model, x, y, lambda o, t: (t * torch.exp(-o) + o).mean(), rate=3e-3, seconds=40)
    assert looked.faults == (), str(looked)


@pytest.mark.parametrize(("seed", "mixed"), [(6, False), (4, True)])
def test_what_is_learned_by_heart_of_a_thousand_may_be_told_by_ten_thousand(seed: int, mixed: bool) -> None:
    """Clicks, one in five, of which little can be known: the first thousand of them are learned by heart."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(10_000, 20, generator=draw)
    y = torch.bernoulli((0.7 * x[:, :1] - 1.5).sigmoid(), generator=draw)
    y = y[torch.randperm(len(y), generator=draw)] if mixed else y
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    looked = found(model, x, y, F.binary_cross_entropy_with_logits, seconds=40)
    own = looked.mending.own
    assert own.known > 0.5 > 0.2 > own.held, str(own)
    assert own.by_heart == mixed and bool(looked.faults) == mixed, str(looked)


def test_arguments_that_are_exchanged_into_a_loss_without_a_floor_mend_nothing() -> None:
    """Counts and outputs that are no rates: exchanged, the loss is linear in the outputs and knows no end."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1500, 5, generator=draw)
    y = torch.poisson(torch.exp(1 + 0.7 * x[:, :1]), generator=draw)
    model = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 1))
    looked = found(model, x, y, nn.PoissonNLLLoss(log_input=False), rate=1e-2, seconds=20)
    assert kinds(looked)[0] == "loss" and "Exchange" not in str(looked), str(looked)


def test_a_loss_that_is_no_number_for_many_classes_is_no_matter_of_their_numbers() -> None:
    def shares(outputs: Tensor, y: Tensor) -> Tensor:
        open_ = F.relu(outputs)
        return -torch.log((open_ / open_.sum(1, keepdim=True)).gather(1, y[:, None])).mean()

    assert kinds(found(mlp(), X, Y, shares)) == ["loss", "output activation"]
