"""Models that compute their loss themselves, or differentiate on their way, as much public code does."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import epoch0 as e0
from epoch0.diagnosis.faults import evidence, find_faults
from epoch0.diagnosis.report import page as diagnosis_page
from epoch0.diagnosis.trial import constant_loss
from epoch0.errors import InputError
from epoch0.tracing.call import Call
from fault_programs import TOKENS, X, Y, adam, mlp

PREVIOUS = torch.cat([TOKENS[:, :1], TOKENS[:, :-1]], 1)


class Language(nn.Module):
    """Logits of all places and the loss where targets are given; else those of the last place."""

    def __init__(self, flat: bool = False) -> None:
        super().__init__()
        self.words, self.places, self.flat = nn.Embedding(20, 32), nn.Embedding(12, 32), flat
        self.inside, self.out = nn.GRU(32, 32, batch_first=True), nn.Linear(32, 20)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        h = self.inside(self.words(tokens) + self.places(torch.arange(tokens.shape[1])))[0]
        if targets is None:
            return self.out(h[:, [-1]]), None
        logits = self.out(h)
        rows = logits.flatten(0, 1)
        return rows if self.flat else logits, F.cross_entropy(rows, targets.flatten())


@pytest.mark.sample(2)
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("pair", [False, True])
def test_a_forward_that_takes_the_targets(flat: bool, pair: bool) -> None:
    torch.manual_seed(0)
    model = Language(flat)
    batch = ((TOKENS[:50], PREVIOUS[:50]),) if pair else (TOKENS[:50], PREVIOUS[:50])
    expected = float(model(TOKENS[:50], PREVIOUS[:50])[1].detach())
    assert e0.gain(model, *batch).loss == pytest.approx(expected)
    data = TensorDataset(TOKENS, PREVIOUS)
    report = e0.checkup(model, *batch, optimizer=adam(model, 1e-2), data=data, seconds=20)
    assert report.trains and not report.faults, report.verdict
    assert report.program is not None and report.program.own.learns


def test_its_loop_body_gets_inputs_and_targets() -> None:
    torch.manual_seed(0)
    model = Language()

    def body(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value: Tensor = model(x, y)[1]
        value.backward()
        optimizer.step()
        return value

    given = {"optimizer": adam(model, 1e-2), "data": DataLoader(TensorDataset(TOKENS, PREVIOUS), 25), "step": body}
    looked = find_faults(model, TOKENS[:50], PREVIOUS[:50], seconds=20, **given)
    assert not looked.faults and looked.mending is not None and looked.mending.own.learns


class Denoiser(nn.Module):
    """It returns its loss and nothing else."""

    def __init__(self, of: float = 1.0) -> None:
        super().__init__()
        self.inside, self.of = mlp(ends=64), of

    def forward(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.of * self.inside(x + torch.randn_like(x)), x)


def test_a_model_that_returns_nothing_but_its_loss() -> None:
    torch.manual_seed(0)
    model, dead, state = Denoiser(), Denoiser(of=0.0), torch.get_rng_state()
    call = Call.of(model, X[:100])
    assert call.has_loss and call.output(call.run()).shape == (100, 64)
    # one row for all examples: their mean, and of the loss their variance
    constant = constant_loss(call)
    assert constant == pytest.approx(float(X[:100].var(0, correction=0).mean()), rel=1e-3)
    torch.set_rng_state(state)
    report = e0.checkup(model, X, optimizer=adam(model), data=X, seconds=10)
    assert torch.equal(torch.get_rng_state(), state)
    assert report.trains and not report.faults, report.verdict
    assert not e0.checkup(dead, X).trains


def test_a_loss_that_no_module_gives_the_output_of_has_no_best_constant_answer() -> None:
    class Twice(Denoiser):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            made = self.inside(self.inside(x)).sin()
            return F.mse_loss(made, x), made

    call = Call.of(Twice(), X[:100])
    assert call.has_loss and constant_loss(call) is None


def test_a_mapping_may_say_label() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(20, 32), nn.Linear(32, 2)

        def forward(self, tokens: Tensor, label: Tensor) -> dict[str, Tensor]:
            logits = self.out(self.words(tokens)[:, 0])
            return {"logits": logits, "loss": F.cross_entropy(logits, label)}

    torch.manual_seed(0)
    rows, model = [{"tokens": t, "label": t[0] % 2} for t in TOKENS], Words()
    loader = DataLoader(rows, 40)
    looked = find_faults(model, next(iter(loader)), optimizer=adam(model, 3e-2), data=loader, seconds=20)
    assert not looked.faults and looked.mending is not None and looked.mending.own.learns


def test_a_decoder_that_reads_the_labels_learns_from_them_alone_at_first() -> None:
    """With other labels it would read these: its outputs, not the labels, are those of other examples."""

    class Speller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(20, 32), nn.Linear(32, 20)

        def forward(self, read: Tensor, labels: Tensor) -> dict[str, Tensor]:
            h = self.words(F.pad(labels, (1, 0))[:, :-1]) + self.words(read).mean(1, keepdim=True)
            logits = self.out(h)
            return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}

    torch.manual_seed(0)
    begun, model = torch.randint(20, (400, 1)), Speller()
    rows = [{"read": x, "labels": y} for x, y in zip(TOKENS, (begun + 3 * torch.arange(8)) % 20, strict=False)]
    loader = DataLoader(rows, 40)
    looked = find_faults(model, next(iter(loader)), optimizer=adam(model, 1e-2), data=loader, seconds=20)
    assert not looked.faults and looked.mending is not None and looked.mending.own.known > 0.5


class Forces(nn.Module):
    """An energy, and its derivative by the places of four atoms."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        places.requires_grad_(True)
        i, j = torch.triu_indices(4, 4, 1)
        energy = self.inside((places[:, i] - places[:, j]).norm(dim=-1))
        return energy, -torch.autograd.grad(energy.sum(), places, create_graph=True)[0]


class Energies(Forces):
    """The same on a copy of the places."""

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            return super().forward(places.clone())


def test_a_forward_that_differentiates() -> None:
    torch.manual_seed(0)
    model, places = Forces(), 1.5 * torch.randn(200, 4, 3)
    i, j = torch.triu_indices(4, 4, 1)
    moved = places.clone().requires_grad_()
    energy = (-(moved[:, i] - moved[:, j]).norm(dim=-1)).exp().sum(1, keepdim=True)
    targets = energy.detach(), -torch.autograd.grad(energy.sum(), moved)[0]
    report = e0.checkup(
        model, places, targets, loss=lambda o, t: F.mse_loss(o[0], t[0]) + F.mse_loss(o[1], t[1]),
        optimizer=adam(model, 3e-3), seconds=10,
    )  # fmt: skip
    assert report.trains and not report.faults, report.verdict
    assert not places.requires_grad


def test_a_loop_body_that_differentiates_by_its_inputs() -> None:
    """Points where an equation is to hold, u' = -u with u(0) = 1, as their owner has them: asking for a gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    points = torch.linspace(0, 3, 100)[:, None].requires_grad_()

    def step(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        u = model(x)
        slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        value = (slope + u).square().mean() + (model(torch.zeros(1, 1)) - 1).square().mean()
        value.backward()
        optimizer.step()
        return value

    given = {"loss": F.mse_loss, "optimizer": adam(model, 1e-2), "step": step}
    report = e0.checkup(model, points, torch.exp(-points.detach()), **given, seconds=20)
    assert report.recipes["yours"].trains and not report.faults and points.grad is None

    def slope(model: nn.Module, x: Tensor) -> Tensor:  # and what is differentiated in a call of one's own
        return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]

    given = {"loss": F.mse_loss, "optimizer": adam(model, 1e-2), "forward": slope}
    report = e0.checkup(model, points, -torch.exp(-points.detach()), **given, seconds=20)
    assert report.recipes["yours"].trains and not report.faults and points.grad is None


class Anew(torch.autograd.Function):
    """A module that keeps nothing: its own backward runs it again and asks for the gradients of its weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module, *weights: Tensor) -> Tensor:
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            out: Tensor = module(x)
        return out

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            dx, *rest = torch.autograd.grad(ctx.module(x), [x, *ctx.module.parameters()], dy)
        return dx, None, *rest


def test_a_backward_of_ones_own_may_ask_for_gradients_of_the_weights() -> None:
    """They ask for none while layers are measured, which costs the layers, not the verdict."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.last = nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 10)
            self.inside = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))

        def forward(self, x: Tensor) -> Tensor:
            h = Anew.apply(self.stem(x), self.inside, *self.inside.parameters())
            out: Tensor = self.last(self.norm(h))
            return out

    torch.manual_seed(0)
    report = e0.checkup(Net(), X[:128], Y[:128])
    assert report.trains and any("The layers could not be measured" in note for note in report.notes)


class Keeps(nn.Module):
    """A recurrent network whose state stays for the next window, so that batches have one size."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out, self.state = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 10), None

    def forward(self, x: Tensor) -> Tensor:
        h, state = self.inside(x.view(-1, 8, 8), self.state)
        self.state = state.detach()
        out: Tensor = self.out(h[:, -1])
        return out


def test_a_state_that_stays_wants_batches_of_one_size() -> None:
    torch.manual_seed(0)
    model = Keeps()
    report = e0.checkup(model, X[:64], Y[:64], optimizer=adam(model, 1e-2), seconds=20)
    assert report.recipes["yours"].trains and not report.faults and model.state is None


def test_a_likelihood_that_is_maximized_does_not_go_the_wrong_way() -> None:
    """Ascent is meant where the loss takes no targets; weights that are no numbers any more are no error of ours."""

    class Heap(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.scale = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.distributions.Normal(self.mean, self.scale.exp()).log_prob(x).sum(1)

    model = Heap()
    optimizer = torch.optim.Adam(model.parameters(), 0.03, maximize=True)
    report = e0.checkup(model, X[:100], loss=lambda out, _: out.mean(), optimizer=optimizer, data=X, seconds=5)
    assert not report.faults, report.verdict


def test_a_number_and_nothing_else_cannot_be_looked_at() -> None:
    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 1))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.weight).square().mean()

    with pytest.raises(InputError, match="the model returns one number and has no part that returns more"):
        e0.checkup(Line(), X[:20])


@pytest.mark.parametrize("made", [lambda v: (v, v.detach()), lambda v: [v, 0.0], lambda v: {"loss": v, "box": 0.0}])
def test_a_loss_may_return_its_parts_beside_it(made: Callable[[Tensor], Any]) -> None:
    torch.manual_seed(0)
    model = mlp()
    plain = e0.gain(model, X[:100], Y[:100]).loss
    assert e0.gain(model, X[:100], Y[:100], loss=lambda o, t: made(F.cross_entropy(o, t))).loss == plain
    given = {"loss": lambda o, t: made(F.cross_entropy(o, t)), "optimizer": adam(model)}
    looked = find_faults(model, X[:100], Y[:100], data=(X, Y), seconds=10, **given)
    assert not looked.faults and looked.mending is not None and looked.mending.own.learns


def test_parts_that_would_be_computed_again() -> None:
    class Again(nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            self.inside, self.out, self.again = nn.Linear(64, 64), nn.Linear(64, 10), again

        def forward(self, x: Tensor) -> Tensor:
            h = self.inside(x)
            out: Tensor = self.out(checkpoint(torch.tanh, h, use_reentrant=True) if self.again else h.tanh())
            return out

    gains = []
    for again in (False, True):
        torch.manual_seed(0)
        gains.append(e0.gain(Again(again), X[:50], Y[:50]).chi_backward.tolist())
        assert e0.checkup(Again(again), X, Y).trains
    assert gains[0] == gains[1]


@pytest.mark.slow
def test_a_large_rate_makes_a_loss_of_several_outputs_no_number() -> None:
    """The loss is then not finite, which is no reason to give it THE output alone."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.mean, self.log = mlp(ends=8), nn.Linear(8, 64), nn.Linear(8, 64)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.inside(x)
            return self.mean(h), 100 * self.log(h)

    torch.manual_seed(0)
    report = e0.checkup(Parts(), X[:100], X[:100], loss=lambda o, t: (o[1].exp() * (o[0] - t) ** 2 - o[1]).mean())
    assert "unpack" not in report.verdict
    with pytest.raises(InputError, match=r"of the whole tuple returned: ValueError: not these"):

        def refuses(outputs: Any, targets: Tensor) -> Tensor:
            raise ValueError("not these" if isinstance(outputs, tuple) else "nor that")

        e0.gain(Parts(), X[:100], X[:100], loss=refuses)


def test_a_softmax_written_by_hand() -> None:
    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(0.01 * torch.randn(64, 10))

        def forward(self, x: Tensor) -> Tensor:
            e = (x @ self.weight).exp()
            return e / e.sum(1, keepdim=True)

    torch.manual_seed(0)
    model = Shares()
    given = {"optimizer": torch.optim.SGD(model.parameters(), 0.1), "data": (X, Y), "seconds": 10}
    logs = find_faults(model, X, Y, loss=lambda o, t: -o[range(len(o)), t].log().mean(), **given)
    assert not logs.faults and logs.mending is not None and logs.mending.own.learns
    plain = find_faults(model, X, Y, loss=F.nll_loss, **given).faults
    assert plain and plain[0].kind == "output activation"


class Half(nn.Module):
    """It sees its input, or not."""

    def __init__(self, sees: bool) -> None:
        super().__init__()
        self.inside, self.sees = mlp(), sees

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inside(x * self.sees)
        return out


@pytest.mark.sample(1)
@pytest.mark.parametrize("sees", [False, True])
def test_a_sum_over_examples_is_compared_example_by_example(sees: bool) -> None:
    """64 examples a step, a quarter held out and all together: sums over them differ though nothing is learned."""
    found = []
    for reduction in ("mean", "sum"):
        torch.manual_seed(0)
        loss = nn.CrossEntropyLoss(reduction=reduction)
        found.append(e0.checkup(Half(sees), X[:200], Y[:200], loss=loss))
    mean, total = (one.trial for one in found)
    assert mean is not None and total is not None and total.sums and not mean.sums
    assert [one.recipes["adam"].trains for one in found] == [sees, sees]
    assert total.constant == pytest.approx(mean.constant, rel=1e-3)
    # Adam's steps do not mind the size of a gradient
    assert total.runs[0].held == pytest.approx(mean.runs[0].held, rel=0.05)
    assert total.runs[0].drop == pytest.approx(mean.runs[0].drop, abs=0.02)


@pytest.mark.sample(1)
@pytest.mark.parametrize("count", [8, 16, 100])
def test_a_loss_that_compares_examples_is_no_sum(count: int) -> None:
    """The logarithm of their number at first: two halves have not twice as much of it, and not as much."""
    torch.manual_seed(0)
    places = torch.arange(count)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(0.01 * outputs @ outputs.T, places[: len(outputs)])

    found = e0.checkup(mlp(), X[:count], Y[:count], loss=loss)
    assert found.trial is not None and not found.trial.sums


def test_what_is_known_of_a_network_that_fails_is_said() -> None:
    """Sigmoids in seven layers learn something in 150 steps; behind a wall of zeros nothing does."""
    torch.manual_seed(0)
    slow = nn.Sequential(*(m for w in [64] * 7 for m in (nn.Linear(64, w), nn.Sigmoid())), nn.Linear(64, 10))
    found = e0.checkup(slow, X[:128], Y[:128], remedies=False)
    numbers = found.recipes["adam"].numbers
    assert not found.trains and min(numbers["known"], numbers["known seen"]) > 0.5
    assert "earns too slowly: " in found.verdict and "ill not train" not in found.verdict
    assert "slowly" not in e0.checkup(Half(False), X[:128], Y[:128], remedies=False).verdict


def test_pruning_scores_of_models_with_their_own_loss() -> None:
    torch.manual_seed(0)
    model = Language()
    own = e0.prune.snip(model, [(TOKENS[:50], PREVIOUS[:50])])
    loss = F.cross_entropy(model(TOKENS[:50], PREVIOUS[:50])[0].flatten(0, 1), PREVIOUS[:50].flatten())
    (gradient,) = torch.autograd.grad(loss, model.out.weight)
    assert torch.allclose(own["out.weight"].float(), (gradient * model.out.weight).abs(), rtol=1e-3, atol=1e-8)
    alone = Denoiser()
    scores = e0.prune.grasp(alone, [(X[:100], None)], temperature=1.0)
    assert set(scores) == {"inside.0.weight", "inside.2.weight", "inside.4.weight"}
    with pytest.raises(InputError, match="there is no loss"):
        e0.prune.snip(mlp(), [(X[:100], None)])


def test_initialize_measures_a_forward_that_differentiates() -> None:
    torch.manual_seed(0)
    model = Energies()
    before = model.inside[0].weight.clone()
    e0.initialize(model, x=torch.randn(50, 4, 3), method="measured")
    assert not torch.equal(before, model.inside[0].weight)


@pytest.mark.slow
def test_counts_have_a_likelihood_below_zero_and_masks_of_255_none() -> None:
    torch.manual_seed(0)
    counts = torch.poisson(X[:, 20:21].add(1).exp())
    model = mlp(ends=1)
    given = {"optimizer": adam(model, 3e-3), "seconds": 20}
    assert not find_faults(model, X, counts, loss=nn.PoissonNLLLoss(), data=(X, counts), **given).faults
    masks = 255.0 * (X[:, 20:21] > 0)
    loss = F.binary_cross_entropy_with_logits
    assert find_faults(model, X, masks, loss=loss, data=(X, masks), **given).faults[0].kind == "target scale"


@pytest.mark.slow
def test_a_generator_behind_a_critic_that_stands_still() -> None:
    torch.manual_seed(0)
    critic = mlp(ends=1).requires_grad_(False)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), critic)
    noise, real = torch.randn(300, 8), torch.ones(300, 1)
    given = {"loss": F.binary_cross_entropy_with_logits, "data": (noise, real), "seconds": 5}
    looked = find_faults(model, noise, real, optimizer=adam(model, 2e-4), **given)
    assert not looked.faults and looked.mending is not None and looked.mending.own.untold
    critic.requires_grad_(True)
    assert find_faults(model, noise, real, optimizer=adam(model), **given).faults[0].kind == "labels"


@pytest.mark.slow
def test_a_program_that_learns_nothing_does_not_train_however_little_is_known_of_why() -> None:
    torch.manual_seed(0)
    y = torch.randint(10, (500,), generator=torch.Generator().manual_seed(9))
    model = nn.Sequential(nn.Linear(64, 2), nn.Tanh(), nn.Linear(2, 10))  # one unit alone would be a cause
    report = e0.checkup(model, X, y, optimizer=adam(model), data=(X, y), seconds=8)
    assert report.faults and report.faults[0].certainty < 0.5, report.faults
    assert not report.trains and "oes not learn as it is" in report.verdict


class Twins(nn.Module):
    """Two views of each example through one network; their correlation is to be the identity (Zbontar et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        a, b = ((z - z.mean(0)) / z.std(0) for z in (self.inside(one), self.inside(other)))
        return ((a.T @ b / len(a)) - torch.eye(16)).square().sum()


@pytest.mark.slow
def test_a_loss_of_two_views_is_measured_on_what_depends_on_the_first() -> None:
    torch.manual_seed(0)
    x = torch.randn(128, 64)
    model, views = Twins(), (x, x + 0.1 * torch.randn(128, 64))
    assert [layer.name for layer in e0.gain(model, views).layers] == ["inside.0", "inside.2"]
    report = e0.checkup(model, views)
    assert report.trains and not any("could not be measured" in note for note in report.notes)


class Filler(nn.Module):
    """Its own loss, what it makes of hidden inputs, and what was hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.rand_like(x) < 0.5
        made = self.inner(x.masked_fill(hidden, 0.0))
        return (made - x)[hidden].square().mean(), made, hidden


def between(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Any) -> float:
    """A density among noise."""
    optimizer.zero_grad()
    value = F.softplus(model(x)).mean() + F.softplus(-model(3 * torch.randn_like(x))).mean()
    value.backward()
    optimizer.step()
    return float(value.detach())


UNTOLD: dict[str, Any] = {
    "a loss of outputs alone": lambda: (mlp(ends=8), X, {"loss": lambda out, _: (out.std(0) - 1).square().mean()}),
    "two views": lambda: (
        mlp(ends=8), X, {"loss": lambda pair, _: F.mse_loss(*pair) + (pair[0].std(0) - 1).abs().mean(),
                         "forward": lambda m, x: (m(x), m(x + 0.1 * torch.randn_like(x)))},
    ),
    "a forward that gives the loss": lambda: (mlp(), X, {"forward": lambda m, x: (m(x).exp().mean() - 2).square()}),
    "a model that gives its loss": lambda: (Filler(), X, {"data": TensorDataset(X, torch.zeros(len(X)))}),
    "a loop body alone": lambda: (mlp(ends=1), X, {"step": between, "data": [(X[i : i + 50],) for i in (0, 50, 100)]}),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", UNTOLD)
def test_programs_without_targets_are_judged_by_how_far_the_loss_falls(name: str) -> None:
    """It may speak for them; where it does not fall, nothing is said against them."""
    torch.manual_seed(0)
    model, x, given = UNTOLD[name]()
    report = e0.checkup(model, x[:100], optimizer=adam(model), seconds=20, **given)
    assert report.outcome == "trains" and not report.faults and "its loss falls by" in report.verdict
    assert any("reads no targets" in line for line in report.not_examined)
    page = diagnosis_page(report.to_dict())
    assert "loss over the first" in page and "another's" not in page
    still = torch.optim.Adam(model.parameters(), 1e-9)
    looked = find_faults(model, x[:100], optimizer=still, seconds=5, **given)
    assert looked.mending is None and any("falls by 0%" in line for line in looked.not_examined)


def test_a_loss_that_needs_targets_is_told_so() -> None:
    with pytest.raises(InputError, match="no targets, and this loss needs both"):
        e0.checkup(mlp(), X[:50], loss=nn.CrossEntropyLoss())


def test_a_loss_that_leaves_out_what_is_missing_may_get_it() -> None:
    """Targets of which a third are NaN, in two of three examples."""
    wanted = X @ torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) / 8
    wanted = wanted.masked_fill(
        torch.arange(wanted.numel()).view_as(wanted) % 18 > 11 - 6 * (torch.arange(6) % 2), math.nan
    )

    def of_known(output: Tensor, targets: Tensor) -> Tensor:
        known = ~targets.isnan()
        return F.mse_loss(output[known], targets[known])

    model = mlp(ends=6)
    report = e0.checkup(model, X, wanted, loss=of_known, optimizer=adam(model), data=(X, wanted), seconds=20)
    assert report.trains and not report.faults
    holed = X.clone()
    holed[:5, 0] = math.nan  # whose targets go with them; those of the others stay missing
    call = evidence(model, holed, wanted, loss=of_known, optimizer=adam(model)).call
    assert torch.equal(call.targets.isnan(), wanted[5:].isnan()) and len(call.batch) == len(X) - 5
    faults = find_faults(model, X, wanted, loss=F.mse_loss, optimizer=adam(model), seconds=0).faults
    assert any(fault.kind == "data" for fault in faults)


def test_labels_that_a_training_step_does_not_read() -> None:
    """An autoencoder that gets classes beside its inputs."""

    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 64))

        def training_step(self, batch: Any, index: int) -> Tensor:
            return F.mse_loss(self.inner(batch[0]), batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 3e-3)

    report = e0.checkup(Coder(), (X[:100], Y[:100]), data=TensorDataset(X, Y), seconds=20)
    assert report.outcome == "trains" and not report.faults and "its loss falls by" in report.verdict


class Decoder(nn.Module):
    """Reads words, and answers for each place from the words before it, or from the word itself."""

    def __init__(self, shift: bool) -> None:
        super().__init__()
        self.shift, self.words, self.out = shift, nn.Embedding(20, 32), nn.Linear(64, 20)

    def forward(self, read: Tensor, told: Tensor) -> Tensor:
        known = self.words(F.pad(told, (1, 0))[:, :-1] if self.shift else told)
        return self.out(torch.cat([self.words(read), known], 2))


@pytest.mark.parametrize("shift", [True, False])
def test_a_decoder_that_gets_the_targets_may_move_them_itself(shift: bool) -> None:
    """Its loss leaves out the first place, where a word stands that stands nowhere else."""
    torch.manual_seed(0)
    told = torch.cat([torch.zeros(len(TOKENS), 1, dtype=torch.long), TOKENS[:, :-1] % 19 + 1], 1)

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(output[:, 1:].flatten(0, 1), targets[:, 1:].flatten())

    model, read = Decoder(shift), torch.roll(told, -1, 1)
    looked = find_faults(model, (read, told), told, loss=loss, optimizer=adam(model), seconds=0)
    assert [fault.kind for fault in looked.faults if fault.kind in ("data", "loss")] == ["data"] * (not shift)


@pytest.mark.slow
def test_a_state_that_begins_at_zero_is_not_the_input() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.inside, self.out = nn.Embedding(20, 32), nn.GRU(32, 32), nn.Linear(32, 20)

        def forward(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            made, state = self.inside(self.words(tokens), state)
            return self.out(made).view(-1, 20), state

    torch.manual_seed(0)
    words, wanted = TOKENS[:64].t(), PREVIOUS[:64].t().reshape(-1)
    report = e0.checkup(Reader(), (words, torch.zeros(1, 64, 32)), wanted)
    assert report.trains and "of size" not in report.verdict


def test_a_softmax_over_the_only_channel_is_always_one() -> None:
    class Map(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.inside(x).softmax(1)

    model, x = Map(), X[:200].view(-1, 1, 8, 8)
    wanted = x.flatten(1).softmax(1).view_as(x)
    first = find_faults(model, x, wanted, loss=F.mse_loss, optimizer=adam(model), seconds=0).faults[0]
    assert first.kind == "output activation" and "always 1" in first.message


def test_a_loss_that_comes_without_labels_is_the_loss() -> None:
    """Of a forecast with the values to come, of an autoencoder with its input: a mapping has no name for labels."""

    class Forecast(nn.Module):
        def __init__(self, own: bool) -> None:
            super().__init__()
            self.net, self.own = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4)), own

        def forward(self, past_values: Tensor, future_values: Tensor | None = None) -> dict[str, Tensor]:
            made = self.net(past_values)
            wanted = past_values[:, :4] if future_values is None else future_values
            return {"loss": F.mse_loss(made, wanted), "logits": made} if self.own else {"logits": made}

    torch.manual_seed(0)
    waves = torch.sin(0.4 * torch.arange(16) + 6 * torch.rand(100, 1))
    past, future = waves[:, :12], waves[:, 12:]
    for batch in ({"past_values": past, "future_values": future}, {"past_values": past}):
        model = Forecast(own=True)
        with torch.no_grad():
            first = float(model(**batch)["loss"])
        report = e0.checkup(model, batch)
        assert report.trains and not any("No targets were given" in note for note in report.notes)
        assert report.trial is not None and report.trial.runs[0].losses[0] == pytest.approx(first, rel=0.3)
        assert (report.trial.runs[0].held is not None) and report.recipes["adam"].evidence == "trial"
    without = e0.checkup(Forecast(own=False), {"past_values": past})
    assert any("No targets were given" in note for note in without.notes)


def test_prices_beside_classes_are_read() -> None:
    """Exchanged among examples they hardly change the mean error of outputs that are all near zero."""
    prices = 250_000 + 500 * X[:, 10:11]

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.value, self.kind = nn.Linear(64, 32), nn.Linear(32, 1), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.body(x).relu()
            return self.value(hidden), self.kind(hidden)

    torch.manual_seed(0)
    model = Both()

    def loss(outputs: tuple[Tensor, Tensor], wanted: Tensor) -> Tensor:
        return F.mse_loss(outputs[0], wanted) + outputs[1].softmax(1).square().mean()

    assert evidence(model, X[:64], prices[:64], loss=loss, optimizer=adam(model)).reads_targets
