"""Faults: broken programs give the right one first, sound ones that look odd give none, and nothing is changed."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import epoch0 as e0
from epoch0.diagnosis.faults import KINDS, Fault, evidence, find_faults
from epoch0.diagnosis.faults.program import Program as OwnProgram
from epoch0.errors import InputError

Program = tuple[nn.Module, Any, Any, Callable[..., Tensor] | None, torch.optim.Optimizer | None]
DIGITS = e0.data.load("digits")
X, Y = torch.from_numpy(DIGITS.inputs("standard"))[:500].float(), torch.from_numpy(DIGITS.labels)[:500].long()
IMAGES = X.reshape(-1, 1, 8, 8)
VALUES = X[:, 10:30] @ torch.randn(20, 1, generator=torch.Generator().manual_seed(3)) / 4
TOKENS = torch.randint(20, (200, 12), generator=torch.Generator().manual_seed(4))
NEXT = torch.cat([TOKENS[:, 1:], TOKENS[:, :1]], 1)


def mlp(*last: nn.Module, ends: int = 10, hidden: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), hidden(), nn.Linear(64, 64), hidden(), nn.Linear(64, ends), *last)


def adam(model: nn.Module, rate: float = 1e-3, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], rate, **more)


def sgd(model: nn.Module, rate: float = 0.1, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), rate, **more)


class Residual(nn.Module):
    """x + a * f(x): a zero last norm, a zero scale, or LoRA's zero matrix, are open after a step."""

    def __init__(self, zero: str) -> None:
        super().__init__()
        self.enter, self.out = nn.Conv2d(1, 16, 3, padding=1), nn.Linear(16, 10)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                          nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)) for _ in range(3)
        )  # fmt: skip
        self.scales = nn.Parameter(torch.zeros(3) if zero == "scale" else torch.ones(3))
        if zero == "gamma":
            for block in self.body:
                nn.init.zeros_(block[-1].weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for scale, block in zip(self.scales, self.body, strict=True):
            x = (x + scale * block(x)).relu()
        return self.out(x.mean((2, 3)))


class Lora(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(64, 10).requires_grad_(False)
        self.down, self.up = nn.Linear(64, 4, bias=False), nn.Linear(4, 10, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Reader(nn.Module):
    """A small transformer over tokens: causal or in both directions, embedding tied to the output or not."""

    def __init__(self, causal: bool, tied: bool = False, classes: int = 20) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(20, 32), nn.Parameter(0.1 * torch.randn(12, 32))
        nn.init.normal_(self.token.weight, std=0.1)
        layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out, self.causal, self.pooled = nn.Linear(32, classes), causal, classes != 20
        if tied:
            self.out.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(12) if self.causal else None
        x = self.body(self.token(tokens) + self.place, mask=mask)
        return self.out(x.mean(1)) if self.pooled else self.out(x)


class Last(nn.Module):
    """The last state of an LSTM over the rows of an image."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 32, batch_first=batch_first), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0][:, -1])


class Apply(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def tokens_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.transpose(1, 2), targets)


def with_(model: nn.Module, x: Any, y: Any, loss: Any = F.cross_entropy, make: Any = adam, **more: Any) -> Program:
    return model, x, y, loss, make(model, **more)


def frozen() -> Program:
    body = mlp(ends=32).requires_grad_(False)
    model = nn.Sequential(body, nn.Linear(32, 10))
    return model, X, Y, F.cross_entropy, adam(model)


def normed() -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm1d(64), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10), nn.BatchNorm1d(10)
    )


SOFT = F.one_hot(Y, 10) * 0.9 + 0.01
UNIT = (X - X.min()) / (X.max() - X.min())
HALF = (torch.arange(500) % 2).float()[:, None]
SOUND: dict[str, Callable[[], Program]] = {
    "plain": lambda: with_(mlp(), X, Y),
    "sgd with momentum": lambda: with_(mlp(), X, Y, make=sgd, rate=0.01, momentum=0.9, weight_decay=5e-4),
    "zero gamma": lambda: with_(Residual("gamma"), IMAGES, Y, make=sgd, rate=0.05),
    "rezero": lambda: with_(Residual("scale"), IMAGES, Y),
    "frozen backbone": frozen,
    "lora": lambda: with_(Lora(), X, Y),
    "causal transformer": lambda: with_(Reader(True), TOKENS, NEXT, tokens_loss),
    "tied embeddings": lambda: with_(Reader(True, tied=True), TOKENS, NEXT, tokens_loss),
    "masked tokens": lambda: with_(Reader(False), TOKENS.where(TOKENS > 3, 0), TOKENS, tokens_loss),
    "classes of texts": lambda: with_(Reader(False, classes=3), TOKENS, TOKENS[:, 0] % 3),
    "autoencoder": lambda: with_(mlp(ends=64), X, X, F.mse_loss),
    "autoencoder of pixels": lambda: with_(mlp(nn.Sigmoid(), ends=64), UNIT, UNIT, F.binary_cross_entropy),
    "soft labels": lambda: with_(mlp(), X, SOFT),
    "generator's critic": lambda: with_(
        mlp(nn.Sigmoid(), ends=1, hidden=nn.LeakyReLU), X, HALF, F.binary_cross_entropy
    ),
    "dropout": lambda: with_(nn.Sequential(nn.Dropout(0.5), mlp()), X, Y),
    "batch norm everywhere": lambda: with_(normed(), 100 * X, Y, make=sgd),
    "log-softmax and nll": lambda: with_(mlp(nn.LogSoftmax(1)), X, Y, F.nll_loss),
    "noisy values": lambda: with_(mlp(ends=1), X, VALUES + torch.randn(VALUES.shape), F.smooth_l1_loss),
    "zero head": lambda: with_(_zero_head(), X, Y),
    "rows of images": lambda: with_(Last(True), X.reshape(-1, 8, 8), Y),
    "batch of one class in four": lambda: with_(mlp(), X, Y % 3),
    "hinge": lambda: with_(mlp(), X, Y, F.multi_margin_loss),
}


def _zero_head() -> nn.Module:
    model = mlp()
    nn.init.zeros_(model[-1].weight)
    return model


def constant() -> Program:
    model = mlp()
    for p in model.parameters():
        nn.init.constant_(p, 0.01)
    return with_(model, X, Y)


def cut() -> Program:
    model = nn.Sequential(mlp(), Apply(torch.Tensor.detach))
    return with_(model, X, Y)


def forgotten_head() -> Program:
    body, head = mlp(ends=32), nn.Linear(32, 10)
    return nn.Sequential(body, head), X, Y, F.cross_entropy, adam(body)


def raw_log(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(F.one_hot(targets, 10) * outputs.log()).sum(1).mean()


BROKEN: dict[str, tuple[str, Callable[[], Program]]] = {
    "softmax twice": ("output activation", lambda: with_(mlp(nn.Softmax(1)), X, Y)),
    "softmax over one unit": ("output activation", lambda: with_(mlp(nn.Softmax(1), ends=1), X, HALF, F.mse_loss)),
    "values outside of tanh": ("output activation", lambda: with_(mlp(nn.Tanh(), ends=1), X, 5 + VALUES, F.mse_loss)),
    "nll of logits": ("output activation", lambda: with_(mlp(), X, Y, F.nll_loss)),
    "wrong sign": ("loss", lambda: with_(mlp(), X, Y, lambda o, t: -F.cross_entropy(o, t))),
    "broadcast": ("shapes", lambda: with_(mlp(ends=1), X, VALUES[:, 0], lambda o, t: ((o - t) ** 2).mean())),
    "masks of 255": ("target scale", lambda: with_(mlp(ends=1), X, 255 * HALF, F.binary_cross_entropy_with_logits)),
    "prices": ("target scale", lambda: with_(mlp(ends=1), X, 1e5 * (3 + VALUES), F.mse_loss)),
    "constant start": ("initialization", constant),
    "detached": ("gradient flow", cut),
    "head without optimizer": ("update", forgotten_head),
    "another model's optimizer": ("update", lambda: (mlp(), X, Y, F.cross_entropy, adam(mlp()))),
    "rate of 10": ("learning rate", lambda: with_(mlp(), X, Y, make=sgd, rate=10.0)),
    "rate of 1e-6": ("learning rate", lambda: with_(mlp(), X, Y, rate=1e-6)),
    "maximized": ("update", lambda: with_(mlp(), X, Y, maximize=True)),
    "decay": ("regularization", lambda: with_(mlp(), X, Y, weight_decay=1.0)),
    "pixels": ("input scale", lambda: with_(mlp(), 40 * X, Y, make=sgd)),
    "softmax over the batch": ("shapes", lambda: with_(mlp(nn.Softmax(0)), X, Y, F.cross_entropy)),
    "time first": ("shapes", lambda: with_(Last(False), X.reshape(-1, 8, 8), Y)),
    "sees the next token": ("architecture", lambda: with_(Reader(False), TOKENS, NEXT, tokens_loss)),
    "log of logits": ("loss", lambda: with_(mlp(), X, Y, raw_log)),
    "one label": ("labels", lambda: with_(mlp(), X, 0 * Y)),
}


def found(program: Program, seconds: float = 0.0, **more: Any) -> tuple[Fault, ...]:
    """What is seen before training, and with seconds also what mends it."""
    model, x, y, loss, optimizer = program
    loader = DataLoader(TensorDataset(x, y), 32, shuffle=True)
    given = {"optimizer": optimizer, "data": loader, "seconds": seconds, **more}
    looked = find_faults(model, x[:100], y[:100], loss=loss, **given)
    assert looked.passes <= 15
    assert not any("could not" in line for line in looked.not_examined if "Steps" not in line), looked.not_examined
    return looked.faults


@pytest.mark.parametrize("name", SOUND)
def test_sound_programs_have_no_fault(name: str) -> None:
    torch.manual_seed(0)
    assert not found(SOUND[name]())


@pytest.mark.parametrize("name", BROKEN)
def test_broken_programs_have_theirs_first(name: str) -> None:
    torch.manual_seed(0)
    kind, program = BROKEN[name]
    faults = found(program())
    assert faults and faults[0].kind == kind, faults
    assert all(fault.kind in KINDS and 0 < fault.certainty < 1 and fault.fix for fault in faults)


def test_the_owner_s_things_come_back() -> None:
    model, x, y, loss, _ = SOUND["batch norm everywhere"]()
    optimizer = sgd(model, momentum=0.9)
    loss(model(x), y).backward()
    optimizer.step()
    source = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(x, y), 32, shuffle=True, generator=source)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict())), torch.get_rng_state(), source.get_state()
    slopes = [p.grad.clone() for p in model.parameters()]
    find_faults(model, x[:100], y[:100], loss=loss, optimizer=optimizer, data=loader, seconds=4)
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before[0], rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before[1]) and torch.equal(source.get_state(), before[2])
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), slopes, strict=True)) and model.training


def test_an_owner_s_step_that_goes_up() -> None:
    torch.manual_seed(0)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        (-loss(model(x), y)).backward()
        optimizer.step()

    faults = found(with_(mlp(), X, Y), step=step)
    assert (faults[0].kind, faults[0].where) == ("update", "step")


def late(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    optimizer.step()
    loss(model(x), y).backward()


def adding(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> None:
    loss(model(x), y).backward()
    optimizer.step()


def evaluating(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> None:
    model.eval()
    usual(model, optimizer, loss, x, y)


def gathering(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> None:
    """Gradients of two batches are added on purpose."""
    waiting = any(p.grad is not None for p in model.parameters())
    (loss(model(x), y) / 2).backward()
    if waiting:
        optimizer.step()
        optimizer.zero_grad()


def usual(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> float:
    value = loss(model(x), y)
    value.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(value.detach())


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (late, "between optimizer.zero_grad"),
        (adding, "zero_grad"),
        (evaluating, "train()"),
        (usual, None),
        (gathering, None),
    ],
)
def test_the_loop_body(step: Callable[..., Any], said: str | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(64), mlp())
    faults = found(with_(model, X, Y), step=step)
    assert (said in faults[0].fix and (faults[0].kind, faults[0].where) == ("update", "step")) if said else not faults


def test_checkup_has_them_everywhere() -> None:
    torch.manual_seed(0)
    net = mlp(nn.Softmax(1))
    given: dict[str, Any] = {"loss": F.cross_entropy, "trial": False, "remedies": False}
    report = e0.checkup(net, X[:60], Y[:60], optimizer=torch.optim.Adam(net.parameters()), **given)
    assert report.faults[0].kind == "output activation" and "fault: output activation" in str(report)
    assert report.to_dict()["faults"][0]["where"] == "outputs" and "Leave" not in report._repr_html_()[:10]
    assert any("data=" in line for line in report.not_examined)
    assert not e0.checkup(mlp(), X[:60], Y[:60], data=(X, Y), trial=False).faults
    unasked = e0.checkup(net, X[:60], Y[:60], **given)
    assert not unasked.faults and any("optimizer=" in line for line in unasked.not_examined)


def test_a_program_that_cannot_be_measured_has_a_checkup() -> None:
    model, *_, optimizer = cut()
    report = e0.checkup(model, X[:60], Y[:60], optimizer=optimizer, data=(X, Y), trial=False)
    assert report.faults[0].kind == "gradient flow" and not report.trains and report.outcome == "fault"
    assert "graph was cut" in report.verdict and not report.layers
    assert "graph was cut" in report._repr_html_()
    report.print()
    with pytest.raises(InputError):
        e0.checkup(model, X[:60], Y[:60], trial=False)


def sigmoids() -> Program:
    """Five sigmoids on default weights, slowly: nothing shows before training, and nothing is learned."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()) for _ in range(5)), nn.Linear(64, 10))
    return with_(model, X, Y, make=sgd, rate=0.02)


def test_what_mends_it_is_tried() -> None:
    torch.manual_seed(0)
    faults = found(sigmoids(), seconds=30)
    assert faults[0].kind in ("hidden activation", "initialization") and faults[0].evidence == "mended on a copy"
    assert "Tried on a copy: after" in faults[0].fix and faults[0].certainty > 0.2


def test_a_fault_that_was_seen_is_mended() -> None:
    torch.manual_seed(0)
    net = mlp(nn.Softmax(1))
    report = e0.checkup(net, X[:100], Y[:100], loss=F.cross_entropy, optimizer=sgd(net, 0.05), data=(X, Y))
    mine = report.recipes["yours"]
    assert not report.trains and not mine.trains and mine.evidence == "trial" and mine.learning_rate == 0.05
    assert report.faults[0].kind == "output activation" and report.faults[0].evidence == "mended on a copy"
    assert report.program is not None and report.program.best is not None
    best = report.program.best
    assert best.trained.known > 0.3 > 0.12 > report.program.own.known
    plain = report.to_dict()["program"]
    assert plain["tried"][plain["best"]]["mends"] and plain["curve"][0][0] == 0


@pytest.mark.parametrize("name", ["plain", pytest.param("zero gamma", marks=pytest.mark.slow)])
def test_sound_programs_learn(name: str) -> None:
    torch.manual_seed(0)
    model, x, y, loss, optimizer = SOUND[name]()
    report = e0.checkup(model, x[:100], y[:100], loss=loss, optimizer=optimizer, data=(x, y), trial=None)
    assert report.trains and not report.faults and "earns" in report.verdict
    assert report.program is not None and not report.program.tried


class Lightning(nn.Module):
    """What a LightningModule has that matters here."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.net, self.rate = mlp(), rate

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return {"optimizer": torch.optim.Adam(self.parameters(), self.rate)}


@pytest.mark.parametrize(("rate", "kind"), [(1e-3, None), (1e-6, "learning rate")])
def test_a_lightning_module_brings_its_own(rate: float, kind: str | None) -> None:
    torch.manual_seed(0)
    report = e0.checkup(Lightning(rate), (X[:200], Y[:200]), trial=None, seconds=20)
    assert report.recipes["yours"].learning_rate == rate and report.program is not None
    assert report.trains == (kind is None) and [f.kind for f in report.faults[:1]] == [kind] * (kind is not None)


def test_half_precision() -> None:
    torch.manual_seed(0)
    net = mlp().bfloat16()
    before = [p.clone() for p in net.parameters()]
    looked = find_faults(net, X[:100], Y[:100], optimizer=adam(net), data=(X, Y), seconds=10)
    assert not looked.faults and looked.mending is not None and looked.mending.own.learns
    assert all(torch.equal(p, q) and p.dtype == torch.bfloat16 for p, q in zip(net.parameters(), before, strict=True))


def test_ctrl_c_keeps_what_is_known() -> None:
    torch.manual_seed(0)
    told: list[str] = []

    def tell(what: str, share: float) -> None:
        told.append(what)
        if len(told) == 4:
            raise KeyboardInterrupt

    model, x, y, loss, optimizer = sigmoids()
    looked = find_faults(model, x, y, loss=loss, optimizer=optimizer, data=(x, y), seconds=30, tell=tell)
    assert looked.mending is not None and 0 < len(looked.mending.tried) < 4
    assert any("Ctrl-C" in line for line in looked.not_examined)


def test_known_is_what_ten_lines_say() -> None:
    """The share that the own targets take away, by a twin that trains in the plain way."""
    torch.manual_seed(0)
    model, x, y, loss, optimizer = with_(mlp(), X, Y)
    seen = evidence(model, x, y, loss=loss, optimizer=optimizer, data=(x, y))
    program = OwnProgram.of(seen)
    assert program is not None
    done = program.copied()
    trained = done.train(60)
    outputs = done.call.model.eval()(done.call.batch).detach()[: 500 - done.held]
    wanted = done.call.targets[: 500 - done.held]
    own = loss(outputs, wanted)
    other = torch.stack([loss(outputs, wanted[torch.randperm(len(wanted))]) for _ in range(50)]).mean()
    assert abs(trained.known - float((other - own) / other)) < 0.08
    assert trained.held is not None and done.held == 125 and trained.steps <= 60


@pytest.mark.parametrize(
    ("more", "said"),
    [({"optimizer": 3}, "Optimizer"), ({"data": 3}, "DataLoader"), ({"step": 3}, "step"), ({"data": iter([])}, "anew")],
)
def test_bad_input(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_faults(mlp(), X[:20], Y[:20], **more)
