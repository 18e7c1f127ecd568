"""The short training, against a plain loop of torch; what is read of it; batches of a loader; the model untouched."""

import copy
import math
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import epoch0 as e0
from epoch0.diagnosis.faults import find
from epoch0.diagnosis.faults.program import UserProgram
from epoch0.diagnosis.trial import (
    LENGTHS,
    MOMENTUM,
    RATES,
    TELLS,
    Run,
    affordable,
    constant_loss,
    kernel_knows,
    pairs_apart,
    pairs_ordered,
    trial,
)
from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing.call import Call


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, outputs)).double()


def batch(examples: int = 40) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, 6, generator=generator(1), dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5)


def split(examples: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(examples, generator=generator(0, 0x7472))
    return order[examples // 4 :], order[: examples // 4]


def trained(net: nn.Module, batches: list[tuple[Tensor, Tensor]], optimizer: str, rate: float) -> list[float]:
    """The plain loop; it returns the loss of each batch before its step."""
    net.train()
    weights = net.parameters()
    update = torch.optim.Adam(weights, rate) if optimizer == "adam" else torch.optim.SGD(weights, rate, MOMENTUM)
    losses = []
    for x, y in batches:
        loss = F.mse_loss(net(x), y) if y.is_floating_point() else F.cross_entropy(net(x), y)
        losses.append(float(loss.detach()))
        update.zero_grad()
        loss.backward()
        update.step()
    return losses


def told_apart(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of pairs of examples with other classes whose loss is lower with the own class."""
    net.eval()
    with torch.no_grad():
        logs = F.log_softmax(net(x), 1)
    pairs = [(i, int(c)) for i in range(len(x)) for c in y if int(c) != int(y[i])]
    return sum(float(logs[i, y[i]] > logs[i, c]) for i, c in pairs) / len(pairs)


def entropy(y: Tensor) -> float:
    p = y.bincount().double() / len(y)
    return float(-(p[p > 0] * p[p > 0].log()).sum())


def test_every_run_is_a_plain_training() -> None:
    net, (x, y) = network(), batch()
    done = trial(Call.of(net, x, y), 12)
    seen, held = split(40)
    assert (done.steps, done.batch, done.held_out) == (12, 30, 10) and done.constant == pytest.approx(entropy(y))
    assert [(r.optimizer, r.rate) for r in done.runs] == [(name, rate) for name in RATES for rate in RATES[name]]
    assert [run.rate for run in done.of("sgd")] == list(RATES["sgd"])
    for run in done.runs:
        twin = copy.deepcopy(net)
        losses = trained(twin, [(x[seen], y[seen])] * 12, run.optimizer, run.rate)
        assert run.losses == pytest.approx(losses) and not run.diverged
        assert run.known == pytest.approx(told_apart(twin, x[held], y[held]))
        assert run.drop == pytest.approx((entropy(y) - sum(losses[-10:]) / 10) / entropy(y), abs=1e-6)
        with torch.no_grad():
            assert run.held == pytest.approx(float(F.cross_entropy(twin(x[held]), y[held])))


def test_where_the_largest_rate_settles_it_the_others_end_as_soon() -> None:
    y = torch.arange(120) % 3
    apart = 3 * F.one_hot(y, 6) + torch.randn(120, 6, generator=generator(3), dtype=torch.float64)
    asked = Call.of(network(), apart, y)
    done = trial(asked, 150)
    assert [len(run.losses) for run in done.runs] == [60] * 5
    assert done.runs == trial(asked, 60).runs and all(run.settles(done.constant) for run in done.of("sgd")[1:])
    noise = torch.randn(120, 6, generator=generator(3), dtype=torch.float64)
    done = trial(Call.of(network(), noise, y), 150)
    assert [len(run.losses) for run in done.runs] == [150] * 5
    assert not any(run.settles(done.constant) for run in done.runs)


def test_large_batches_are_gone_through_in_parts() -> None:
    net, (x, y) = network(), batch(200)
    run = trial(Call.of(net, x, y), 5).runs[1]
    (seen, _), order = split(200), generator(0, 0x6F72)
    parts: list[tuple[Tensor, Tensor]] = []
    while len(parts) < 5:
        index = torch.randperm(150, generator=order)
        parts += [(x[seen][index[s : s + 64]], y[seen][index[s : s + 64]]) for s in (0, 64)]
    assert run.losses == pytest.approx(trained(copy.deepcopy(net), parts[:5], run.optimizer, run.rate))


def test_values_are_met_in_mean_square() -> None:
    net, (x, _) = network(2), batch()
    y = torch.stack([x[:, 0], 3 * x[:, 1] + 2], 1)
    done = trial(Call.of(net, x, y), 8)
    assert done.constant == pytest.approx(float((y - y.mean(0)).square().mean()), rel=1e-6)
    seen, held = split(40)
    twin = copy.deepcopy(net)
    assert done.runs[2].losses == pytest.approx(trained(twin, [(x[seen], y[seen])] * 8, "adam", RATES["adam"][2]))
    with torch.no_grad():
        far = (twin.eval()(x[held])[:, None] - y[held][None]).square().mean(2)
    other = ~torch.eye(10, dtype=torch.bool)
    assert done.runs[2].known == pytest.approx(float((far.diag()[:, None] < far)[other].double().mean()))


def test_batches_of_a_loader_and_the_whole_batch_held_out() -> None:
    net, (x, y) = network(), batch(24)
    more, labels = batch(40)
    loader = DataLoader(TensorDataset(more.flip(0), labels.flip(0)), batch_size=16)
    done = trial(Call.of(net, x, y), 7, batches=loader)
    assert done.held_out == 24
    stream = [(a, b) for _ in range(3) for a, b in loader][:7]
    assert done.runs[0].losses == pytest.approx(trained(copy.deepcopy(net), stream, "adam", RATES["adam"][0]))


def test_batches_that_cannot_be_used_say_so() -> None:
    net, (x, y) = network(), batch(8)
    call = Call.of(net, x, y)
    with pytest.raises(InputError, match="batches is empty"):
        trial(call, 3, batches=[])
    with pytest.raises(InputError, match="has ended; give what can be begun again"):
        trial(call, 3, batches=((x, y) for _ in range(5)))
    with pytest.raises(InputError, match=r"pairs \(inputs, targets\); one of them is an input of shape \(8, 6\)"):
        trial(call, 3, batches=[x])
    with pytest.raises(InputError, match=r"target 1\d is out of range"):
        trial(call, 3, batches=[(x, y), (x, y + 12 - y.max())])
    assert len(trial(call, 3, batches=(pair for pair in islice([(x, y)] * 15, 15))).runs) == 5


def test_a_model_with_a_loss_of_its_own_is_trained_on_it() -> None:
    class Owns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.net(x)
            return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}

    (x, y), model = batch(), Owns()
    done = trial(Call.of(model, {"x": x, "labels": y}), 10)
    seen, _ = split(40)
    expected = trained(copy.deepcopy(model.net), [(x[seen], y[seen])] * 10, "adam", RATES["adam"][1])
    constant = constant_loss(Call.of(model.net, x, y))  # the entropy of the classes; of the other a search finds it
    assert done.constant == pytest.approx(constant, rel=1e-3) and done.runs[1].losses == pytest.approx(expected)
    assert done.runs[1].known is None and done.runs[1].drop == pytest.approx(1 - sum(expected) / 10 / done.constant)
    again = trial(Call.of(model, {"x": x, "labels": y}), 4, batches=[{"x": x[seen], "labels": y[seen]}])
    assert again.runs[1].losses == pytest.approx(expected[:4])


def test_the_model_is_as_it_was() -> None:
    net, (x, y) = network().eval(), batch()
    net[0].weight.grad = given = torch.ones_like(net[0].weight)
    before, state = {name: t.clone() for name, t in net.state_dict().items()}, torch.get_rng_state()
    told: list[float] = []
    trial(Call.of(net, x, y), 3, tell=told.append)
    assert told == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert net[0].weight.grad is given and bool((given == 1).all()) and not net.training
    assert torch.equal(state, torch.get_rng_state())


def test_the_same_seed_gives_the_same_runs() -> None:
    net, (x, y) = network(), batch(16)
    net.append(nn.Dropout(0.5))
    one, two, other = (trial(Call.of(net, x, y), 3, seed=seed) for seed in (1, 1, 2))
    assert one.runs == two.runs and one.runs != other.runs


def test_a_training_that_diverges_ends() -> None:
    net, (x, _) = network(2), batch()
    done = trial(Call.of(net, x, 1e200 * x[:, :2]), 6)
    run = done.of("sgd")[1]
    assert run.diverged and len(run.losses) < 6 and run.drop == -1 and run.held is None and run.known == 0.5


def test_few_examples_hold_none_out() -> None:
    net, (x, y) = network(), batch(7)
    done = trial(Call.of(net, x, y), 2)
    assert done.held_out == 0 and all(run.known is None and run.known_seen is not None for run in done.runs)


@pytest.mark.parametrize("last", [True, False])
def test_the_best_constant_answer_to_sequences_is_one_for_all_places(last: bool) -> None:
    y = torch.randint(3, (8, 5), generator=generator(3))
    net: nn.Module = nn.Linear(4, 3) if last else nn.Conv1d(4, 3, 1)
    x = torch.randn((8, 5, 4) if last else (8, 4, 5), generator=generator(4))
    assert constant_loss(Call.of(net, x, y)) == pytest.approx(entropy(y.flatten()), rel=1e-4)


def test_no_constant_answer_is_known() -> None:
    net, (x, y) = network(), batch()
    assert constant_loss(Call.of(net, x, torch.zeros_like(y))) is None  # it is the right one
    assert constant_loss(Call.of(net, x[:1], y[:1])) is None
    assert constant_loss(Call.of(net, {"input": x})) is None
    weighted = constant_loss(Call.of(net, x, y, loss=lambda o, t: 3 * F.cross_entropy(o, t)))
    assert weighted == pytest.approx(3 * entropy(y), rel=1e-5)


def test_a_loss_that_compares_examples_tells_nothing_of_one() -> None:
    """Triplets within the batch: of an example alone the loss is zero, whatever its class."""
    torch.manual_seed(0)
    x, y = batch(64)

    def triplets(outputs: Tensor, classes: Tensor) -> Tensor:
        apart, same = torch.cdist(outputs, outputs), classes[:, None] == classes
        far, near = (apart * same).amax(1), (apart + 1e3 * same).amin(1)
        return (far - near + 0.5).relu().mean()

    done = trial(Call.of(network(), x, y, loss=triplets), 30)
    assert all(one.known is None and one.known_seen is None and one.held is not None for one in done.runs)
    assert all(one.known is not None for one in trial(Call.of(network(), x, y), 5).runs)


def test_the_length_is_what_the_time_allows() -> None:
    runs = sum(map(len, RATES.values()))
    for steps in LENGTHS:
        assert affordable(20.0 / runs / steps * 0.99) == steps
    assert affordable(1.0) is None and affordable(0.0) == LENGTHS[0]


def test_nothing_can_be_copied() -> None:
    class Locked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.made = network(), (n for n in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    with pytest.raises(InputError, match="cannot be copied for a trial"):
        trial(Call.of(Locked(), *batch()), 2)


def test_diverged_is_said_of_numbers_that_are_not_finite() -> None:
    for losses, diverged in (((), True), ((1.0, math.nan), True), ((1.0, math.inf), True), ((1.0, 2.0), False)):
        assert Run("adam", 1e-3, losses, None, None, 0.0, None).diverged == diverged


class Skipping(nn.Module):
    """A residual block that is left out in three of ten runs (Huang et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        return x if self.training and torch.rand(()).item() < 0.3 else x + self.inside(x)


@pytest.mark.slow
def test_layers_that_are_skipped_in_the_first_step() -> None:
    torch.manual_seed(0)
    digits = e0.data.load("digits")
    x, y = torch.from_numpy(digits.inputs("standard"))[:128].float(), torch.from_numpy(digits.labels)[:128].long()
    report = e0.checkup(nn.Sequential(*(Skipping() for _ in range(8)), nn.Linear(64, 10)), x, y)
    assert report.recipes["sgd"].trains and report.recipes["sgd"].evidence == "trial"


@pytest.mark.parametrize("loss", [F.cross_entropy, lambda o, t: F.cross_entropy(o, t) + 0.0, F.mse_loss])
def test_pairs_told_apart_against_every_pair_by_itself(loss: Any) -> None:
    """Twenty examples against twelve; of equal targets no pair is made."""
    (x, y), net = batch(20), network(1 if loss is F.mse_loss else 3)
    targets = x[:, :1].round() if loss is F.mse_loss else y
    call = Call.of(net, x, targets, loss=loss)
    net.eval()
    share = pairs_ordered(call, net(x), 5, 20)
    chosen = torch.randperm(20, generator=generator(5, 0x7072))[:12].tolist()
    pairs = [(i, j) for i in range(20) for j in chosen if not torch.equal(targets[i], targets[j])]
    cost = {(i, j): float(loss(net(x)[i : i + 1].detach(), targets[j : j + 1])) for i in range(20) for j in range(20)}
    assert share == pytest.approx(sum(cost[i, i] < cost[i, j] for i, j in pairs) / len(pairs))
    share, count = pairs_apart(call, net(x))
    order = sorted(range(20), key=lambda i: (float(targets[i]), i))
    pairs = [(i, j) for i, j in zip(order[:10], order[10:], strict=True) if not torch.equal(targets[i], targets[j])]
    right = [cost[i, i] + cost[j, j] < cost[i, j] + cost[j, i] for i, j in pairs]
    assert count == len(pairs) > 3 and share == pytest.approx(sum(right) / count)


def test_pairs_of_a_rare_class_are_no_more_often_right_by_chance() -> None:
    """One answer for all is half right whatever the classes, random ones within their error (4 sigma)."""
    source, wins, made = generator(6), 0.0, 0
    for _ in range(40):
        y = (torch.rand(200, 1, generator=source) < 0.1).float()
        x = torch.randn(200, 1, generator=source)
        call = Call.of(nn.Linear(1, 1), x, y, loss=F.binary_cross_entropy_with_logits)
        assert pairs_apart(call, torch.full_like(x, -2.0))[0] == 0.5
        share, count = pairs_apart(call, x)
        wins, made = wins + share * count, made + count
    assert made > 600 and abs(wins / made - 0.5) < 4 * 0.5 / math.sqrt(made)


def test_ranks_see_what_a_few_outputs_far_too_certain_hide() -> None:
    """One example of fifteen has a wrong output of a thousand: the mean loss of those held out knows nothing then."""
    labels = torch.arange(120) % 2
    x = torch.nn.functional.one_hot(labels, 2).float() + 0.01 * torch.randn(120, 2, generator=generator(3))
    x[::15] = 1000 * (1 - x[::15].round())
    model = nn.Linear(2, 2)
    model.weight.data, model.bias.data = torch.eye(2), torch.zeros(2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    seen = find.evidence(model, x[:90], labels[:90], loss=F.cross_entropy, optimizer=optimizer, data=(x, labels))
    program = UserProgram.of(seen)
    assert program is not None and program.held == 30
    done = program.train(1)
    assert program.known(of=slice(90, None)) < 0 < 0.7 < (done.held or 0) and done.others == 30


def ridge(x: Tensor, values: Tensor, more: Tensor) -> Tensor:
    """The twin, in its primal form: the answer nearest to the values among combinations of kernels around x."""
    far = [[float((a - b).norm()) for b in x] for a in torch.cat([x, more])]
    middle = sorted(d for row in far[: len(x)] for d in row)[(len(x) ** 2 - 1) // 2]
    kernel = torch.tensor(far, dtype=torch.float64).div(-middle).exp()
    own, mean = kernel[: len(x)], values.double().mean(0)
    weights = torch.linalg.lstsq(own @ own + 0.01 * own, own @ (values - mean)).solution
    return kernel[len(x) :] @ weights + mean


@pytest.mark.parametrize("targets", ["classes", "a column of classes", "values", "rows of values"])
def test_what_a_kernel_knows_of_held_out_examples(targets: str) -> None:
    x, y = batch(60)
    x, classes = x.view(60, 2, 3), targets.endswith("classes")
    given = {"classes": y, "a column of classes": y[:, None], "values": x[:, 0, 0], "rows of values": x[:, 0] ** 3}[
        targets
    ]
    call, (seen, held) = Call.of(nn.Linear(3, 1), x, given, loss=lambda out, t: out.sum()), split(60)
    values = F.one_hot(y, 3).double() if classes else given.reshape(60, -1)
    told = ridge(x[seen].flatten(1), values[seen], x[held].flatten(1))
    scores = -torch.stack([(told - one).square().sum(1) for one in values[held]], 1)  # of each answer with each target
    scores = told[:, y[held]] if classes else scores
    others = torch.randperm(15, generator=generator(0, 0x7072))[:12].tolist()
    pairs = [(i, j) for i in range(15) for j in others if not torch.equal(given[held][i], given[held][j])]
    share = sum(float(scores[i, i] > scores[i, j]) for i, j in pairs) / len(pairs)
    assert kernel_knows(call.rows(seen), call.rows(held), 0) == pytest.approx(share) and share > 0.7


def test_a_kernel_is_asked_of_one_tensor_an_example_a_row() -> None:
    x, y = batch(40)
    for inputs, targets in (((x, x), y), (x, (y, y)), (x, y - 1), (x, y[:, None].expand(40, 2)), (x, x * math.nan)):
        call = Call.of(nn.Linear(6, 2), inputs, targets, loss=lambda out, t: out.sum())
        assert kernel_knows(call.rows(slice(0, 30)), call.rows(slice(30, 40)), 0) is None


def test_classes_drawn_at_random_tell_nothing_of_a_sound_network() -> None:
    """It learns them by heart, as any would, and was said not to train; what it knows of others cannot be told."""
    source = generator(4)
    x, y = torch.randn(128, 64, generator=source), torch.randint(0, 5, (128,), generator=source)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    found = e0.checkup(model, x, y)
    assert found.trial is not None and found.trial.untold is not None and abs(found.trial.untold - 0.5) < TELLS - 0.5
    assert found.verdict.startswith("Probably: trains with either") and found.recipes["adam"].probability == 0.75
    assert "holds for other examples" in found.not_examined[-1] and "held-out" not in found.recipes["sgd"].reason
    dead = e0.checkup(
        nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()) for _ in range(12)), nn.Linear(64, 5)), x, y
    )
    assert (
        not dead.trains and dead.trial is not None and dead.trial.untold is not None
    )  # which does not learn them either


def test_real_digits_tell() -> None:
    digits = e0.data.load("digits")
    x, y = torch.from_numpy(digits.inputs("standard"))[:128].float(), torch.from_numpy(digits.labels)[:128].long()
    call, (seen, held) = Call.of(nn.Linear(64, 10), x, y), split(128)
    assert (kernel_knows(call.rows(seen), call.rows(held), 0) or 0) > 0.9
    torch.manual_seed(0)
    shut = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.97), nn.Linear(32, 10))  # learns neither
    done = trial(Call.of(shut, x, y), 30)
    assert done.untold is None and all(run.known is not None for run in done.runs)


class Graph(nn.Module):
    """A graph network that holds its sparse adjacency matrix as a plain attribute, or is given it."""

    def __init__(self, edges: Tensor | None = None) -> None:
        super().__init__()
        self.edges, self.first, self.last = edges, nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor, edges: Tensor | None = None) -> Tensor:
        edges = self.edges if edges is None else edges
        assert edges is not None
        out: Tensor = self.last(torch.sparse.mm(edges, self.first(torch.sparse.mm(edges, x)).relu()))
        return out


def test_a_sparse_adjacency_matrix() -> None:
    """Held by the model it is left alone, and all nodes are trained on; in the batch it is refused by name."""
    source = generator(5)
    edges, x = torch.eye(60).roll(1, 0) + 3 * torch.eye(60), torch.randn(60, 8, generator=source)
    torch.manual_seed(0)
    model, y = Graph(edges.to_sparse()), x[:, :3].argmax(1)
    kept, optimizer = model.edges, torch.optim.Adam(model.parameters(), 1e-2)
    plain = e0.checkup(model, x, y)
    yours = e0.checkup(model, x, y, loss=F.cross_entropy, optimizer=optimizer)
    assert plain.trains and yours.trains and not yours.faults and model.edges is kept
    for more in ({}, {"loss": F.cross_entropy, "optimizer": optimizer}):
        with pytest.raises(InputError, match="'edges' is sparse_coo"):
            e0.checkup(model, (x, edges.to_sparse()), y, **more)


class Likely(nn.Module):
    """A normal distribution a row; torch refuses one without a deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log = nn.Linear(6, 1), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean(x), self.log.exp())


def test_a_distribution_that_is_driven_out_of_its_range_diverges() -> None:
    """Of a likelihood that is made smaller, as its minus was forgotten."""
    x, source = batch(64)[0].float(), generator(6)
    torch.manual_seed(0)
    call = Call.of(
        Likely(), x, x[:, :1] + 0.1 * torch.randn(64, 1, generator=source), loss=lambda d, y: d.log_prob(y).mean()
    )
    done = trial(call, 150)
    assert any(run.diverged for run in done.of("sgd"))
