"""Programs whose batch is more than a tensor of examples: sound ones learn and have no fault, however data come."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset

import epoch0 as e0
from epoch0.diagnosis.faults import evidence, find_faults
from epoch0.errors import InputError
from fault_programs import X, Y, adam, mlp

Whole = tuple[nn.Module, Any, Any, Callable[..., Tensor]]


class Timed(nn.Module):
    """Values and a whole number an example, as a denoiser or a packed text has them."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.inside = nn.Embedding(100, 16), mlp(ends=10)
        self.enter = nn.Linear(80, 64)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        out: Tensor = self.inside(self.enter(torch.cat([x, self.places(t)], 1)))
        return out


class Neighbours(nn.Module):
    """All nodes of one graph, with a dense adjacency matrix beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.out = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        out: Tensor = self.out((near @ self.enter(x)).relu())
        return out


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.digit, self.sum = mlp(ends=32), nn.Linear(32, 10), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.body(x).relu()
        return {"digit": self.digit(h), "sum": self.sum(h)}


class Embedded(nn.Module):
    """Examples, others of the same kind and others of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = mlp(ends=16)

    def forward(self, *three: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.inside(x) for x in three)


class Similar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = mlp(ends=16)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return 10 * F.normalize(self.inside(x), dim=1) @ F.normalize(self.inside(other), dim=1).T


class Spectral(nn.Module):
    """Complex weights on the frequencies of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(33, dtype=torch.cfloat)), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=64).relu())
        return out


class Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(64, 64, dtype=torch.cfloat), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.inside(x).abs())
        return out


class Sizes(nn.Module):
    """A list of images, one example each."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = nn.Conv2d(1, 32, 3, padding=1), nn.Linear(32 * 4, 2)

    def forward(self, *images: Tensor) -> Tensor:
        pooled = [F.adaptive_avg_pool2d(self.inside(image[None]).relu(), 2).flatten(1) for image in images]
        out: Tensor = self.out(torch.cat(pooled))
        return out


class Bag(nn.Module):
    """Texts one after another, and where each begins."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.EmbeddingBag(20, 64, mode="max"), nn.Linear(64, 2)

    def forward(self, text: Tensor, begins: Tensor) -> Tensor:
        first = F.embedding(text[begins], self.words.weight)
        out: Tensor = self.out(self.words(text, begins) + first)
        return out


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(20, 64, sparse=True), nn.Linear(64, 2)

    def forward(self, text: Tensor) -> Tensor:
        out: Tensor = self.out(self.words(text)[:, 0])
        return out


class Queue(nn.Module):
    """A key encoder that follows the other in forward, and negatives in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(64, 16), nn.Linear(64, 16).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(100, 16), dim=1))

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        with torch.no_grad():
            self.key.weight.mul_(0.99).add_(self.query.weight, alpha=0.01)
            key = F.normalize(self.key(other), dim=1)
        query = F.normalize(self.query(x), dim=1)
        return torch.cat([(query * key).sum(1, keepdim=True), query @ self.queue.T], 1) / 0.1


class Recurrent(nn.Module):
    """As torch's recurrent layers are by default: (length, examples, ...)."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.words, self.inside, self.out, self.last = nn.Embedding(20, 16), nn.GRU(16, 32), nn.Linear(32, 20), last

    def forward(self, x: Tensor) -> Tensor:
        h = self.inside(self.words(x))[0]
        out: Tensor = self.out(h[-1] if self.last else h.flatten(0, 1))
        return out


TEXTS = torch.randint(20, (12, 200), generator=torch.Generator().manual_seed(1))
BEFORE = torch.cat([TEXTS[:1], TEXTS[:-1]])


def flat(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets.reshape(-1))


SAME = (Y[:200, None] == Y[:200]) & (torch.rand(200, 200, generator=torch.Generator().manual_seed(2)) < 0.2)
NEAR = (SAME | torch.eye(200).bool()).float() / (SAME | torch.eye(200).bool()).sum(1, keepdim=True)


class OneGraph(Neighbours):
    """Those of a graph that stands beside the class, as in a notebook."""

    def forward(self, x: Tensor, near: Tensor | None = None) -> Tensor:
        return super().forward(x, NEAR)


class Pair(Timed):
    """Its two inputs come as one argument."""

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(*pair)


def triplets() -> Whole:
    order = Y.argsort(stable=True)
    near, far = X[order].roll(1, 0), X[order].roll(250, 0)
    return Embedded(), (X[order], near, far), torch.zeros(500), lambda o, t: F.triplet_margin_loss(*o)


class Rounded(nn.Module):
    """Values in 63 steps up to the largest of them, with the slope of what was rounded."""

    def forward(self, x: Tensor) -> Tensor:
        step = x.detach().abs().max() / 31
        return x + ((x / step).round() * step - x).detach()


PROGRAMS: dict[str, Callable[[], Whole]] = {
    "timed": lambda: (Timed(), (X, torch.arange(500) % 100), Y, F.cross_entropy),
    "a pair as one argument": lambda: (Pair(), (X, torch.arange(500) % 100), Y, F.cross_entropy),
    "neighbours": lambda: (Neighbours(), (X[:200], NEAR), Y[:200], F.cross_entropy),
    "a graph that its model knows": lambda: (OneGraph(), X[:200], Y[:200], F.cross_entropy),
    "two tasks": lambda: (
        Heads(), X, {"digit": Y, "sum": X[:, 10:20].mean(1, keepdim=True)},
        lambda o, t: F.cross_entropy(o["digit"], t["digit"]) + F.mse_loss(o["sum"], t["sum"]),
    ),
    "triplets": triplets,
    "places in the batch": lambda: (
        Similar(), (X[:200], X[:200] + 0.1 * torch.randn(200, 64)), torch.arange(200), F.cross_entropy
    ),
    "length first": lambda: (Recurrent(True), TEXTS, TEXTS[-1], F.cross_entropy),
    "length first, a target a place": lambda: (Recurrent(False), TEXTS, BEFORE, flat),
    "places in one text": lambda: (Bag(), (TEXTS.flatten(), torch.arange(0, 2400, 12)), TEXTS.reshape(-1, 12)[:, 0] % 2,
        F.cross_entropy),
    "sparse gradients": lambda: (Sparse(), TEXTS.T, TEXTS[0] % 2, F.cross_entropy),
    "one positive, many negatives": lambda: (
        Queue(), (X, X + 0.1 * torch.randn(500, 64)), torch.zeros(500, dtype=torch.long), F.cross_entropy
    ),
    "images of two sizes": lambda: (
        Sizes(), [X[i].reshape(1, 8, 8)[:, : 7 + i % 2] for i in range(100)], Y[:100] % 2, F.cross_entropy
    ),
    "complex inputs": lambda: (Waves(), torch.fft.fft(X), Y, F.cross_entropy),
    "rounded to the range of the batch": lambda: (nn.Sequential(Rounded(), mlp()), X, Y, F.cross_entropy),
    "complex weights": lambda: (Spectral(), X, Y, F.cross_entropy),
}  # fmt: skip


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", PROGRAMS)
def test_sound_programs(name: str) -> None:
    torch.manual_seed(0)
    model, x, y, loss = PROGRAMS[name]()
    optimizer = torch.optim.SGD(model.parameters(), 1.0) if name == "sparse gradients" else adam(model, 3e-3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    report = e0.checkup(model, x, y, loss=loss, optimizer=optimizer, data=(x, y), seconds=30)
    assert report.trains and not report.faults, report.verdict
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert report.program is not None and report.program.own.learns
    untold = name in ("triplets", "one positive, many negatives")  # targets that say nothing
    assert report.program.own.untold == untold == any("reads no targets" in line for line in report.not_examined)


def test_a_network_that_takes_all_of_a_graph_alone() -> None:
    torch.manual_seed(0)
    report = e0.checkup(OneGraph(), X[:200], Y[:200])
    assert report.trains and not report.faults and report.trial is not None and report.trial.held_out == 0


class Energy(nn.Module):
    """One number for all examples, and nothing beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 16) / 8)

    def forward(self, x: Tensor) -> Tensor:
        return (x - x @ self.weight @ self.weight.T).square().mean()


def test_steps_of_a_weight_without_dimensions() -> None:
    model = mlp()
    model.scale = nn.Parameter(torch.tensor(1.0))
    model.register_forward_hook(lambda module, args, output: output * model.scale)
    after = evidence(model, X[:60], Y[:60], optimizer=torch.optim.SGD(model.parameters(), 0.1)).after
    assert after is not None and after.towards < -0.999 and after.after < after.before


def test_a_model_of_one_number() -> None:
    model = Energy()
    seen = evidence(model, X[:60], optimizer=adam(model))
    assert seen.mixed == 0 and seen.quiet is not None and seen.quiet[0].dim() == 0


@pytest.mark.slow
def test_of_one_example_with_a_target_a_place_the_places_are_the_examples() -> None:
    """A graph or a text in a batch of one: there is nothing else that it could be told from."""
    loss = lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten())  # noqa: E731
    x, y, found = X[None, :200], Y[None, :200], []
    for rate in (3e-3, 1e-9):
        torch.manual_seed(0)
        model = mlp()
        report = e0.checkup(model, x, y, loss=loss, optimizer=adam(model, rate), data=DataLoader(TensorDataset(x, y)))
        assert report.notes[0] == "The second dimension of the batch is read as that of the examples."
        found.append(report)
    sound, slow = found
    assert sound.trains and not sound.faults and sound.program is not None and sound.program.own.known > 0.12
    assert not slow.trains and slow.faults[0].kind == "learning rate"


class Kept(set):
    """Copies of it are itself: what a loop body closes over is copied."""

    def __deepcopy__(self, memo: Any) -> "Kept":
        return self


def test_the_loop_body_gets_what_its_owner_has() -> None:
    torch.manual_seed(0)
    model, shapes = Recurrent(False), Kept()

    def body(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> Tensor:
        shapes.add((len(x), len(y)))
        optimizer.zero_grad()
        value: Tensor = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    given = {"loss": flat, "optimizer": adam(model, 1e-2), "data": (TEXTS, BEFORE), "step": body, "seconds": 20}
    looked = find_faults(model, TEXTS, BEFORE, **given)
    assert not looked.faults and looked.mending is not None and looked.mending.own.others == 50
    assert shapes == {(12, 12)}  # the length, whatever the number of examples


@pytest.mark.sample(1)
@pytest.mark.parametrize("own", [False, True])
def test_an_optimizer_that_asks_for_gradients_itself(own: bool) -> None:
    torch.manual_seed(0)
    model, y = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 1)), X[:, 20:21] * X[:, 21:22]
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5)

    def body(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> Any:
        def closure() -> Tensor:
            optimizer.zero_grad()
            value: Tensor = loss(model(x), y)
            value.backward()
            return value

        return optimizer.step(closure)

    given = {"loss": F.mse_loss, "optimizer": optimizer, "data": (X, y), "step": body if own else None}
    looked = find_faults(model, X, y, seconds=20, **given)
    assert not looked.faults and looked.mending is not None and looked.mending.own.known > 0.8


def test_gains_do_not_mind_where_the_examples_are() -> None:
    torch.manual_seed(0)
    model = Recurrent(True)
    one = e0.gain(model, TEXTS, TEXTS[-1])
    other = e0.gain(model, TEXTS.T, TEXTS[-1], forward=lambda model, x: model(x.T))
    assert one.examples == 200 and one.chi_backward.tolist() == other.chi_backward.tolist()


class Rows(Dataset[Any]):
    """((x, t), y) an example."""

    def __len__(self) -> int:
        return 500

    def __getitem__(self, i: int) -> Any:
        return (X[i], torch.tensor(i % 100)), int(Y[i])


@pytest.mark.parametrize("data", ["pair", "loader of three", "dataset of pairs", "loader of pairs"])
def test_data_of_several_inputs(data: str) -> None:
    torch.manual_seed(0)
    t = torch.arange(500) % 100
    given = {
        "pair": ((X, t), Y),
        "loader of three": DataLoader(TensorDataset(X, t, Y), 32),
        "dataset of pairs": Rows(),
        "loader of pairs": DataLoader(Rows(), 32),
    }[data]
    model = Timed()
    looked = find_faults(model, (X[:90], t[:90]), Y[:90], optimizer=adam(model, 3e-3), data=given, seconds=20)
    assert not looked.faults and looked.mending is not None
    assert looked.mending.own.others == 125  # a quarter of all 500


def test_a_matrix_of_other_examples_is_no_leak_but_a_mean_over_the_batch_is() -> None:
    torch.manual_seed(0)
    model, x, y, _ = PROGRAMS["neighbours"]()
    assert not find_faults(model, x, y, seconds=0).faults
    leaky = nn.Sequential(nn.Linear(64, 10), nn.Softmax(0))
    assert find_faults(leaky, X[:100], Y[:100], seconds=0).faults[0].kind == "shapes"


@pytest.mark.slow
def test_a_rate_that_is_thousands_of_times_off() -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    first = find_faults(model, X[:100], Y[:100], optimizer=optimizer, data=(X, Y), seconds=30).faults[0]
    assert first.kind == "learning rate" and first.evidence == "mended on a copy", first
    assert float(first.fix.split("rate to ")[1].split(". ")[0]) > 1e-3


def test_arguments_of_a_loss_in_the_wrong_order() -> None:
    """Its outputs soon are no numbers, which the loss refuses."""
    torch.manual_seed(0)
    model, y = mlp(nn.Sigmoid(), ends=1), (X[:, 20:21] > 0).float()
    given = {"optimizer": adam(model), "data": (X, y), "loss": lambda o, t: F.binary_cross_entropy(t, o)}
    faults = find_faults(model, X[:100], y[:100], seconds=30, **given).faults
    assert "Exchange the arguments" in next(fault.fix for fault in faults[:2] if fault.kind == "loss")
    report = e0.checkup(model, X[:100], y[:100], loss=given["loss"])
    assert not report.trains


def test_one_output_for_two_classes() -> None:
    torch.manual_seed(0)
    y = (X[:, 20] > 0).long()
    faults = find_faults(mlp(ends=1), X, y, loss=F.cross_entropy, seconds=0).faults
    assert [fault.kind for fault in faults] == ["architecture", "loss"] and "1 output." in faults[0].message


def test_a_critic_s_loss_has_no_floor() -> None:
    torch.manual_seed(0)
    side = torch.where(X[:, 20:21] > 0, 1.0, -1.0)
    assert not find_faults(mlp(ends=1), X, side, loss=lambda o, t: -(o * t).mean(), seconds=0).faults
    faults = find_faults(mlp(ends=1), X, side, loss=F.binary_cross_entropy_with_logits, seconds=0).faults
    assert faults[0].kind == "labels"


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["batch", "data", "targets"])
def test_examples_that_hold_nan_are_a_fault_and_the_others_are_looked_at(where: str) -> None:
    torch.manual_seed(0)
    x, y = X.clone(), X[:, 20:21].clone()
    (y if where == "targets" else x)[300 if where == "data" else 7, 0] = float("nan")
    model = mlp(ends=1)
    report = e0.checkup(model, x[:100], y[:100], optimizer=adam(model), data=(x, y), seconds=20)
    assert not report.trains and report.faults[0].kind == "data", report.verdict
    assert "of 500 examples" in report.faults[0].message
    assert report.program is not None and report.program.own.learns  # without them
    if where != "data":
        with pytest.raises(InputError, match="NaN"):  # without a program there is nothing to mend
            e0.checkup(model, x[:100], y[:100], trial=False)


class Labelled(nn.Module):
    """Its batches are mappings with labels, and it returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(20, 32), nn.Linear(32, 2)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.out(self.words(input_ids)[:, 0])
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def test_a_loader_of_mappings() -> None:
    torch.manual_seed(0)
    rows = [{"input_ids": text, "labels": text[0] % 2} for text in TEXTS.T]
    model, loader = Labelled(), DataLoader(rows, 40)
    looked = find_faults(model, next(iter(loader)), optimizer=adam(model, 3e-2), data=loader, seconds=20)
    assert not looked.faults and looked.mending is not None
    assert looked.mending.own.learns and looked.mending.own.others == 50  # a quarter of all 200


def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    """Examples of one class are to lie together (Khosla et al. 2020)."""
    z = F.normalize(outputs, dim=1)
    near = (5 * z @ z.T).fill_diagonal_(-1e9).log_softmax(1)
    same = (targets[:, None] == targets).float().fill_diagonal_(0)
    return -(near * same).sum() / same.sum().clamp_min(1)


@pytest.mark.parametrize("loss", [contrastive, F.cross_entropy])
def test_an_embedding_has_no_output_a_class(loss: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    model = mlp(ends=4)
    faults = find_faults(model, X, Y, loss=loss, optimizer=adam(model), data=(X, Y), seconds=20).faults
    assert [fault.kind for fault in faults[:1]] == ([] if loss is contrastive else ["labels"])


class Masked(nn.Module):
    """An autoencoder that hides a quarter of its input and returns its own loss first."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = mlp(ends=64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        made = self.inside(x * (torch.arange(64) % 4 > 0))
        return F.mse_loss(made, x), made


def test_a_model_that_returns_its_own_loss() -> None:
    torch.manual_seed(0)
    report = e0.checkup(Masked(), X[:100])
    assert report.trains and not any("made up" in note for note in report.notes)
    assert e0.gain(Masked(), X[:100]).loss == pytest.approx(float(X[:100].square().mean()), rel=0.2)


def test_targets_flattened_as_in_the_tutorial_of_language_models() -> None:
    """Tokens (length, examples), targets of all places one after another, and a body that flattens the outputs."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(20, 32), nn.Linear(32, 20)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.words(tokens).relu())

    def step(model, optimizer, loss, tokens, targets):
        optimizer.zero_grad()
        value = loss(model(tokens).view(-1, 20), targets)
        value.backward()
        optimizer.step()

    torch.manual_seed(0)
    text = [(3 * torch.arange(21)[:, None] + torch.randint(20, (10,))) % 20 for _ in range(20)]
    data = [(part[:-1], part[1:].reshape(-1)) for part in text]
    model = Words()
    given = {"loss": nn.CrossEntropyLoss(), "optimizer": torch.optim.Adam(model.parameters(), 1e-2), "data": data}
    report = e0.checkup(model, *data[0], **given, step=step)
    assert report.trains and not report.faults and report.recipes["yours"].evidence == "trial"
    assert e0.checkup(model, *data[0], trial=False).recipes["adam"].trains  # the default loss takes them as they are


def test_a_loss_may_take_other_targets_than_one_an_example() -> None:
    """Of episodes the first examples are compared with the others, and only those have targets."""

    class Episodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

        def forward(self, x: Tensor) -> Tensor:
            places = self.inside(x)
            return -torch.cdist(places[10:], places[:10]).square()

    torch.manual_seed(0)
    x = torch.cat([torch.stack([X[c == Y][2 * i + k] for c in range(10)]) for i, k in ((0, 0), (0, 1), (1, 0))])

    def nearest(distances: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(distances, labels)

    model, targets = Episodes(), torch.arange(10).repeat(2)
    report = e0.checkup(model, x, targets, loss=nearest, optimizer=torch.optim.Adam(model.parameters(), 1e-3))
    assert report.recipes["yours"].trains and not report.faults
    with pytest.raises(InputError, match=r"the loss fails on outputs \(20, 10\): .*batch_size"):
        e0.checkup(model, x, targets[:5], loss=nearest)
    with pytest.raises(InputError, match="20 targets for 30 examples"):  # torch's own take one an example
        e0.checkup(model, x, targets, loss=F.cross_entropy)


def test_a_batch_sampler_of_ones_own_is_no_order() -> None:
    """It draws the examples itself, though torch gives the loader a sampler in order beside it."""

    class Drawn(torch.utils.data.Sampler):
        def __len__(self) -> int:
            return 40

        def __iter__(self):
            return iter(torch.randperm(len(table))[:64].tolist() for _ in range(40))

    torch.manual_seed(0)
    digits = e0.data.load("digits")
    order = torch.from_numpy(digits.labels).argsort(stable=True).repeat_interleave(2)  # more than are looked at
    x, y = torch.from_numpy(digits.inputs("standard")).float()[order], torch.from_numpy(digits.labels).long()[order]
    table, model = TensorDataset(x, y), nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    given = {"loss": F.cross_entropy, "seconds": 20}
    for sampler, kinds in ((Drawn(), []), (BatchSampler(SequentialSampler(table), 16, False), ["data"])):
        data = DataLoader(table, batch_sampler=sampler)
        looked = find_faults(model, x[::40], y[::40], optimizer=adam(model, 1e-2), data=data, **given)
        assert [fault.kind for fault in looked.faults] == kinds


class Translator(nn.Module):
    """An encoder and a decoder, each with an optimizer of its own, as tutorials have them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decoder(self.encoder(x))
        return out


def both_step(model, optimizers, loss, x, y):
    first, second = optimizers
    first.zero_grad()
    second.zero_grad()
    loss(model(x), y).backward()
    first.step()
    second.step()


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", [None, both_step])
def test_optimizers_that_share_a_model_are_one(step) -> None:
    torch.manual_seed(0)
    model = Translator()
    parts = [torch.optim.Adam(part.parameters(), 1e-3) for part in (model.encoder, model.decoder)]
    given = {"loss": F.cross_entropy, "data": (X, Y), "step": step}
    report = e0.checkup(model, X[:100], Y[:100], optimizer=parts, **given)
    assert report.recipes["yours"].trains and not report.faults and not any(part.state for part in parts)
    slow = [torch.optim.Adam(part.parameters(), 1e-9) for part in (model.encoder, model.decoder)]
    assert find_faults(model, X[:100], Y[:100], optimizer=slow, seconds=1, **given).faults[0].kind == "learning rate"
    short = [parts[0], torch.optim.Adam([nn.Parameter(torch.zeros(3))])]
    unlike = [parts[0], torch.optim.SGD(model.decoder.parameters(), 0.1)]
    alone = [torch.optim.LBFGS(part.parameters()) for part in (model.encoder, model.decoder)]  # it takes no groups
    for others in (short, unlike, [parts[0], parts[0]], alone):
        looked = find_faults(model, X[:100], Y[:100], optimizer=others, seconds=0, **given)
        assert any("several optimizers are not followed" in line for line in looked.not_examined)


def test_of_two_optimizers_that_step_for_losses_of_their_own_nothing_is_said() -> None:
    def in_turn(model, optimizers, loss, x, y):
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    torch.manual_seed(0)
    model = Translator()
    parts = [torch.optim.Adam(part.parameters(), 1e-3) for part in (model.encoder, model.decoder)]

    def of_other_inputs(model, optimizers, loss, x, y):
        both_step(model, optimizers, loss, y, x)  # it cannot be run on what is given, so nothing is known of it

    for step in (in_turn, of_other_inputs):
        report = e0.checkup(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=parts, data=(X, Y), step=step)
        assert "yours" not in report.recipes and not report.faults
        assert any("several optimizers are not followed" in line for line in report.not_examined)


@pytest.mark.parametrize("dataset", [False, True])
def test_data_that_are_sorted_by_class_are_read_to_their_end(dataset: bool) -> None:
    torch.manual_seed(0)
    order, model = torch.arange(3 * len(Y)) % len(Y), mlp()
    order = order[Y[order].argsort()]
    x, y = X[order], Y[order]
    given = {"optimizer": adam(model), "data": TensorDataset(x, y) if dataset else (x, y), "seconds": 20}
    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, **given)
    assert not looked.faults and looked.mending is not None and looked.mending.sound


def test_a_list_of_examples_is_read_as_a_dataset_is() -> None:
    torch.manual_seed(0)
    model = mlp()
    given = {"optimizer": adam(model), "data": list(zip(X, Y, strict=True))}
    seen = evidence(model, X[:100], Y[:100], loss=F.cross_entropy, **given)
    assert seen.batch_size is None and seen.data is not None and seen.data[0].shape[1:] == X.shape[1:]
    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, **given, seconds=20)
    assert not looked.faults and looked.mending is not None and looked.mending.sound


def test_a_dataset_that_draws_leaves_the_stream_of_random_numbers_where_it_was() -> None:
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + 0.01 * torch.randn_like(x), y

    model = mlp()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    evidence(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=adam(model), data=Noisy(X, Y))
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_in_a_list_say_how_many_examples_a_step_has() -> None:
    model = mlp()
    batches = list(zip(X.split(8), Y.split(8), strict=True))
    for data in (batches, lambda: iter(batches)):
        seen = evidence(model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=adam(model), data=data)
        assert seen.batch_size == 8
    given = {"loss": F.cross_entropy, "optimizer": adam(model)}
    for unread in ([(X, Y, Y)], [{"x": X, "y": Y}], []):  # what the loop reads of it, nobody can say
        seen = evidence(model, X[:100], Y[:100], data=unread, **given)
        assert seen.batch_size is None
        looked = find_faults(model, X[:100], Y[:100], data=unread, seconds=0, **given)
        assert any("holds no pairs" in line for line in looked.not_examined)
    with pytest.raises(InputError, match=r"shape \(60,\), batch= of \(64,\)"):
        evidence(model, X[:100], Y[:100], data=[(X[:, :60], Y)], **given)


def test_a_loader_of_a_stream_is_read() -> None:
    """Its examples have no number, and neither have the samplers that torch gives it."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    torch.manual_seed(0)
    model = mlp()
    given = {"optimizer": adam(model), "data": DataLoader(Stream(), 32), "seconds": 20}
    looked = find_faults(model, X[:100], Y[:100], loss=F.cross_entropy, **given)
    assert not looked.faults and looked.mending is not None and looked.mending.sound


def test_a_body_of_dicts_computes_a_loss_of_its_own() -> None:
    """Items that follow against items that do not, as of sessions: no targets, no loss, a loader of dicts."""

    class Sessions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items, self.inside = nn.Embedding(20, 32), nn.Linear(32, 32)

        def forward(self, before: Tensor, after: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            feats = self.inside(self.items(before))
            return (feats * self.items(after)).sum(-1), (feats * self.items(other)).sum(-1)

    def step(model, optimizer, loss, batch, _):
        after, other = model(**batch)
        optimizer.zero_grad()
        (F.softplus(-after).mean() + F.softplus(other).mean()).backward()
        optimizer.step()

    torch.manual_seed(0)
    first = torch.randint(20, (400,))
    data = [{"before": i, "after": (i + 3) % 20, "other": torch.randint(20, ())} for i in first]
    loader = DataLoader(data, 32, shuffle=True)
    for rate, learns in ((1e-2, True), (1e-9, False)):
        model = Sessions()
        report = e0.checkup(model, next(iter(loader)), optimizer=adam(model, rate), data=loader, step=step, seconds=3)
        assert report.trains == learns and ("yours" in report.recipes or not learns)


def test_two_views_of_each_example_have_twice_as_many_targets() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(64, 10)

        def forward(self, one: Tensor, two: Tensor) -> Tensor:
            return torch.cat([self.inside(one), self.inside(two)])

    torch.manual_seed(0)
    views = (X[:100], X[:100] + 0.1 * torch.randn(100, 64))
    report = e0.checkup(Views(), views, torch.cat([Y[:100], Y[:100]]), loss=F.cross_entropy, trial=False)
    assert report.recipes["adam"].trains
    with pytest.raises(InputError, match="150 targets for 100 examples"):
        e0.checkup(Views(), views, torch.cat([Y[:100], Y[:50]]), loss=F.cross_entropy)
