"""Small training programs for the search for faults: sound ones, most of which look odd, and broken ones."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epoch0 as e0

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
HALVES = torch.cat([X[:, :32], torch.where(HALF == 1, X, X.roll(2, 0))[:, 32:]], 1)  # of one image, or of two
REAL_OR_FAKE = X.where(HALF == 1, X.flip(1))  # every other image upside down and mirrored
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
        mlp(nn.Sigmoid(), ends=1, hidden=nn.LeakyReLU), REAL_OR_FAKE, HALF, F.binary_cross_entropy
    ),
    "dropout": lambda: with_(nn.Sequential(nn.Dropout(0.5), mlp()), X, Y),
    "batch norm everywhere": lambda: with_(normed(), 100 * X, Y, make=sgd),
    "log-softmax and nll": lambda: with_(mlp(nn.LogSoftmax(1)), X, Y, F.nll_loss),
    "noisy values": lambda: with_(mlp(ends=1), X, VALUES + torch.randn(VALUES.shape), F.smooth_l1_loss),
    "zero head": lambda: with_(_zero_head(), X, Y),
    "rows of images": lambda: with_(Last(True), X.reshape(-1, 8, 8), Y),
    "batch of one class in four": lambda: with_(mlp(), X, Y % 3),
    "hinge": lambda: with_(mlp(), X, Y, F.multi_margin_loss),
    "averages of the batch": lambda: with_(nn.Sequential(nn.BatchNorm1d(64, track_running_stats=False), mlp()), X, Y),
}


def _zero_head() -> nn.Module:
    model = mlp()
    nn.init.zeros_(model[-1].weight)
    return model


class Views(nn.Module):
    """Two noisy views of each example, and how alike they are: (examples, examples)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale = mlp(ends=16), nn.Parameter(torch.tensor(math.log(10.0)))

    def forward(self, x: Tensor) -> Tensor:
        one, two = (F.normalize(self.body(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        return self.scale.exp() * one @ two.T


class Pair(nn.Module):
    """A siamese network: the distance between what it makes of two halves of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x[:, :32]) - self.body(x[:, 32:])).square().sum(1).add(1e-6).sqrt()


def margin(distance: Tensor, same: Tensor) -> Tensor:
    return (same * distance.square() + (1 - same) * (1 - distance).clamp_min(0).square()).mean()


class Coder(nn.Module):
    """A variational autoencoder; codes are drawn, and its outputs carry what their loss needs."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(64, 16), nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        mean, log = self.enter(x).chunk(2, 1)
        made = self.leave(mean + torch.randn_like(mean) * (log / 2).exp())
        return torch.cat([made, mean, log], 1)


def bound(outputs: Tensor, targets: Tensor) -> Tensor:
    made, mean, log = outputs.split([64, 8, 8], 1)
    return F.mse_loss(made, targets) + 0.01 * (mean.square() + log.exp() - log - 1).mean()


class Straight(nn.Module):
    """Rounded units whose gradient passes straight through."""

    def forward(self, x: Tensor) -> Tensor:
        return x + (x.sign() - x).detach()


class Sine(nn.Module):
    def __init__(self, inputs: int, outputs: int, first: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        end = 1 / inputs if first else math.sqrt(6 / inputs) / 30
        nn.init.uniform_(self.linear.weight, -end, end)

    def forward(self, x: Tensor) -> Tensor:
        return (30 * self.linear(x)).sin()


class Experts(nn.Module):
    """Each example goes to the best of four experts; the others get no gradient from it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(64, 4), nn.ModuleList(mlp() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = self.gate(x).softmax(1).max(1)
        every = torch.stack([expert(x) for expert in self.experts], 1)
        return every[torch.arange(len(x)), chosen] * share[:, None]


class Branches(nn.Module):
    """Forty residual blocks behind layer norms."""

    def __init__(self) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)) for _ in range(40))
        self.blocks, self.out = nn.ModuleList(blocks), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return self.out(x)


class Both(nn.Module):
    """A recurrent network in both directions over a frozen embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(20, 16).requires_grad_(False)
        self.body = nn.GRU(16, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.body(self.token(tokens))[0].mean(1))


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = F.cross_entropy(outputs, targets, reduction="none")
    return ((1 - (-loss).exp()) ** 2 * loss).mean()


def dice(outputs: Tensor, targets: Tensor) -> Tensor:
    both = (outputs * targets).flatten(1).sum(1)
    return (1 - (2 * both + 1) / (outputs.flatten(1).sum(1) + targets.flatten(1).sum(1) + 1)).mean()


def mixture(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of two normal distributions: a density, so that the loss can fall below zero."""
    weight, mean, log = outputs.chunk(3, 1)
    each = weight.log_softmax(1) - log - 0.5 * ((targets - mean) / log.exp()).square()
    return -each.logsumexp(1).mean()


def normal(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.gaussian_nll_loss(outputs[:, :1], targets, F.softplus(outputs[:, 1:]) + 1e-3)


def quantile(outputs: Tensor, targets: Tensor) -> Tensor:
    apart = targets - outputs
    return torch.maximum(0.9 * apart, -0.1 * apart).mean()


def hidden_places(outputs: Tensor, targets: Tensor) -> Tensor:
    """Only what was covered counts."""
    return (outputs - targets)[:, ::4].square().mean()


def values_of_actions(outputs: Tensor, targets: Tensor) -> Tensor:
    action = targets[:, :1].long()
    return F.huber_loss(outputs.gather(1, action), targets[:, 1:])


def some_places(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


class Two(nn.Module):
    """Values and, beside them, what the loss does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out, self.other = nn.Linear(64, 32), nn.Linear(32, 1), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x).relu()
        return self.out(h), self.other(h)


def first_of_two(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    return F.mse_loss(outputs[0], targets) + 1e-3 * outputs[1].square().mean()


def generator() -> Program:
    """The generator of a GAN: noise in, judged by a critic that the optimizer does not hold."""
    critic, model = mlp(ends=1), nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64))
    noise = torch.randn(500, 16)

    def fooled(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(critic(outputs), targets)

    return model, noise, torch.ones(500, 1), fooled, adam(model)


def warmed_up() -> Program:
    """A schedule that starts at a rate of zero."""
    model = mlp()
    optimizer = adam(model)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))
    return model, X, Y, F.cross_entropy, optimizer


def by_group() -> Program:
    """Two rates, the body's a tenth of the head's."""
    model = mlp()
    groups = [{"params": model[:4].parameters(), "lr": 1e-4}, {"params": model[4:].parameters()}]
    return model, X, Y, F.cross_entropy, torch.optim.AdamW(groups, 1e-3, weight_decay=0.05)


BEST = (VALUES - VALUES.mean()) / VALUES.std()
MASK = (UNIT.reshape(-1, 1, 8, 8) > 0.5).float()
PLACES = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 20), indexing="ij"), -1)
SOUND |= {
    "two views": lambda: with_(Views(), X, torch.arange(500), lambda o, t: F.cross_entropy(o, torch.arange(len(o)))),
    "siamese": lambda: with_(Pair(), HALVES, HALF[:, 0], margin),
    "variational autoencoder": lambda: with_(Coder(), X, X, bound),
    "straight through": lambda: with_(
        nn.Sequential(nn.Linear(64, 64), Straight(), nn.Linear(64, 10)), X, Y
    ),
    "sines": lambda: with_(
        nn.Sequential(Sine(2, 64, True), Sine(64, 64), nn.Linear(64, 1)), PLACES.reshape(-1, 2),
        PLACES.reshape(-1, 2).prod(1, keepdim=True).mul(6).sin(), F.mse_loss, rate=3e-4,
    ),
    "experts": lambda: with_(Experts(), X, Y),
    "forty blocks": lambda: with_(Branches(), X, Y),
    "both directions": lambda: with_(Both(), TOKENS, TOKENS[:, 0] % 3),
    "focal": lambda: with_(mlp(), X, Y, focal),
    "dice": lambda: with_(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1), nn.Sigmoid()),
        IMAGES, MASK, dice,
    ),
    "several labels": lambda: with_(mlp(ends=5), X, (X[:, 20:25] > 0).float(), F.binary_cross_entropy_with_logits),
    "smoothed labels": lambda: with_(mlp(), X, Y, nn.CrossEntropyLoss(label_smoothing=0.1)),
    "weights of classes": lambda: with_(mlp(), X, Y, nn.CrossEntropyLoss(torch.linspace(0.2, 2, 10))),
    "one class in twenty": lambda: with_(
        mlp(ends=1), X, (torch.arange(500) % 20 == 0).float()[:, None], F.binary_cross_entropy_with_logits
    ),
    "mixture": lambda: with_(mlp(ends=6), X, BEST, mixture),
    "own variance": lambda: with_(mlp(ends=2), X, BEST, normal),
    "quantile": lambda: with_(mlp(ends=1), X, BEST, quantile),
    "counts": lambda: with_(mlp(ends=1), X, BEST.exp().round(), F.poisson_nll_loss),
    "covered": lambda: with_(mlp(ends=64), X * (torch.arange(64) % 4 > 0), X, hidden_places),
    "taught": lambda: with_(
        mlp(nn.LogSoftmax(1)), X, (X @ torch.randn(64, 10) / 4).softmax(1), nn.KLDivLoss(reduction="batchmean")
    ),
    "values of actions": lambda: with_(
        mlp(ends=4), X, torch.cat([(torch.arange(500) % 4).float()[:, None], BEST], 1), values_of_actions
    ),
    "left-out places": lambda: with_(
        Reader(True), TOKENS, NEXT.where(torch.arange(12) < 11, -100), some_places
    ),
    "two outputs": lambda: with_(Two(), X, BEST, first_of_two),
    "generator": generator,
    "warmed up": warmed_up,
    "rates by group": by_group,
    "weight norm": lambda: with_(
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), nn.ReLU(), nn.Linear(64, 10)), X, Y
    ),
    "group norm, one at a time": lambda: with_(
        nn.Sequential(nn.Conv2d(1, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)), IMAGES, Y
    ),
    "own scale of inputs": lambda: with_(nn.Sequential(nn.BatchNorm1d(64), mlp()), 1000 * X + 500, Y),
    "values far from zero": lambda: with_(mlp(ends=1), X, 3 + VALUES, F.l1_loss, sgd, rate=0.01, momentum=0.9),
}  # fmt: skip
"""None of them has a fault."""


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


class Listed(nn.Module):
    """Hidden layers that parameters() does not find."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = [nn.Linear(64, 64), nn.Linear(64, 64)], nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = layer(x).relu()
        return self.out(x)


def reshaped(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.transpose(1, 2).reshape(-1, 20), targets.flatten())


def turned(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.transpose(0, 1).reshape(-1, 20), targets.flatten())


class Weighted(nn.Module):
    """A mean of rows with weights of its own, which are to add up to 1 over the rows."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.row, self.weight, self.out, self.dim = nn.Linear(8, 32), nn.Linear(32, 1), nn.Linear(32, 10), dim

    def forward(self, x: Tensor) -> Tensor:
        rows = self.row(x).tanh()
        return self.out((self.weight(rows).softmax(self.dim) * rows).sum(1))


def drawn(std: float, hidden: type[nn.Module] = nn.ReLU, ends: int = 10) -> nn.Module:
    model = mlp(hidden=hidden, ends=ends)
    for p in model.parameters():
        nn.init.normal_(p, 0, std)
    return model


def raw_log(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(F.one_hot(targets, 10) * outputs.log()).sum(1).mean()


def sunk() -> Program:
    model = mlp()
    for layer in model[::2][:2]:
        nn.init.constant_(layer.bias, -20.0)
    return with_(model, X, Y)


class LastState(nn.Module):
    """A plain recurrent network over texts; its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.body, self.out = nn.Embedding(20, 16), nn.RNN(16, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.body(self.token(tokens))[0][:, -1])


class Masked(nn.Module):
    """One query looks at all words, or at padding only."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.token, self.query, self.out = nn.Embedding(20, 16), nn.Parameter(torch.randn(16)), nn.Linear(16, 2)
        self.turned = turned

    def forward(self, tokens: Tensor) -> Tensor:
        words, real = self.token(tokens), tokens > 0
        share = (words @ self.query).masked_fill(real if self.turned else ~real, -1e9).softmax(1)
        return self.out((share[..., None] * words).sum(1))


LENGTHS = torch.randint(4, 30, (200, 1), generator=torch.Generator().manual_seed(5))
TEXTS = torch.where(
    torch.arange(30) < LENGTHS, torch.randint(1, 20, (200, 30), generator=torch.Generator().manual_seed(6)), 0
)
TAGS = (TEXTS > 12).long()
IN_FRONT = TEXTS.gather(1, (torch.arange(30) - (30 - LENGTHS)) % 30)


def two_columns(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of an answer (n,) and targets (n, 2), of which the first column counts."""
    return (outputs - targets[:, :1]).square().mean()


def all_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
    """A ranking: which of each pair is larger, as it is meant."""
    one, two = outputs[:, 0], targets[:, 0]
    return F.softplus(-(one[:, None] - one) * (two[:, None] - two).sign()).mean()


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(ends=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)[:, 0]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.out = nn.Embedding(20, 16), nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.token(tokens))


def tags(ignored: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=ignored)


class OwnSoftmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        shares = (x - x.amax(1, keepdim=True)).exp()
        return shares / shares.sum(1, keepdim=True)


SOUND |= {
    "softmax by hand": lambda: with_(
        mlp(OwnSoftmax()), X, F.one_hot(Y, 10).float(), lambda o, t: -(t * (o + 1e-12).log()).sum(1).mean()
    ),
    "ranking of pairs": lambda: with_(mlp(ends=1), X, BEST, all_pairs),
    "padding in front": lambda: with_(LastState(), IN_FRONT, IN_FRONT[:, -1] % 2),
    "padding masked": lambda: with_(Masked(False), TEXTS, TEXTS[:, 0] % 2),
    "padding ignored": lambda: with_(Tagger(), TEXTS, TAGS.where(TEXTS > 0, -100), tags(-100)),
    "linear autoencoder": lambda: with_(nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 64)), X, X, F.mse_loss),
    "one linear map": lambda: with_(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), IMAGES, Y),
    "the first of many bits": lambda: with_(
        mlp(nn.Sigmoid(), ends=1), (X > 0.1).float(), (X[:, 20:21] > 0.1).float(), F.binary_cross_entropy
    ),
}


class Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


class OneStep(nn.Module):
    """A recurrent layer whose sequences have one step each."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.out = nn.RNN(64, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.state(x[:, None])[0][:, -1])


class Bag(nn.Module):
    """Attention that is not told where the tokens are."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
        self.token, self.out = nn.Embedding(20, 32), nn.Linear(32, 2)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.body(self.token(tokens)).mean(1))


class Neighbours(nn.Module):
    """One layer over a graph whose adjacency matrix the model holds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("near", (X @ X.T > 30).float() / 10 + torch.eye(len(X)))
        self.inner, self.out = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.near @ self.inner(x)).relu())


def rounded(o: Tensor, t: Tensor) -> Tensor:
    """The F1 of rounded probabilities."""
    p = o.round()
    return 1 - (2 * (p * t).sum() + 1e-6) / (p.sum() + t.sum() + 1e-6) + 0 * o.sum()


def every_pair(o: Tensor, t: Tensor) -> Tensor:
    return -(t * o[:, None].log_softmax(-1)).mean()


def in_logarithms(o: Tensor, t: Tensor) -> Tensor:
    return F.mse_loss(o, t.log1p())


def head_alone() -> Program:
    model = mlp()
    return model, X, Y, F.cross_entropy, torch.optim.Adam(model[-1].parameters(), 3e-3)


BROKEN: dict[str, tuple[str, Callable[[], Program]]] = {
    "rounded": ("gradient flow", lambda: with_(mlp(nn.Sigmoid(), ends=1), X, HALF, rounded)),
    "one logit": ("loss", lambda: with_(mlp(ends=1), X, HALF, F.cross_entropy)),
    "means compared": ("loss", lambda: with_(mlp(ends=1), X, VALUES, lambda o, t: (o - t).mean() ** 2)),
    "every pair": ("shapes", lambda: with_(mlp(), X, F.one_hot(Y, 10).float(), every_pair)),
    "exponentials": ("hidden activation", lambda: with_(mlp(hidden=Exponential), 30 * X, Y)),
    "one step of a sequence": ("shapes", lambda: with_(OneStep(), X, Y)),
    "no places": ("architecture", lambda: with_(Bag(), TOKENS, (TOKENS[:, 0] > TOKENS[:, -1]).long())),
    "small logits": ("loss", lambda: with_(mlp(), X, Y, lambda o, t: F.cross_entropy(1e-4 * o, t))),
    "one label and none": ("labels", lambda: with_(mlp(), X, torch.where(Y > 4, -100, 3))),
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
    "a momentum of 1.05": ("optimizer", lambda: with_(mlp(), X, Y, make=sgd, rate=1e-3, momentum=1.05)),
    "rate of 10": ("learning rate", lambda: with_(mlp(), X, Y, make=sgd, rate=10.0)),
    "rate of 1e-6": ("learning rate", lambda: with_(mlp(), X, Y, rate=1e-6)),
    "maximized": ("update", lambda: with_(mlp(), X, Y, maximize=True)),
    "decay": ("regularization", lambda: with_(mlp(), X, Y, weight_decay=1.0)),
    "pixels": ("input scale", lambda: with_(mlp(), 40 * X, Y, make=sgd)),
    "softmax over the batch": ("shapes", lambda: with_(mlp(nn.Softmax(0)), X, Y, F.cross_entropy)),
    "softmax over the batch inside": ("shapes", lambda: with_(Weighted(0), X.reshape(-1, 8, 8), Y)),
    "time first": ("shapes", lambda: with_(Last(False), X.reshape(-1, 8, 8), Y)),
    "time first, empty ends": ("shapes", lambda: with_(Last(False), F.pad(X.view(-1, 8, 8)[:, 1:7], (0, 0, 1, 1)), Y)),
    "sees the next token": ("architecture", lambda: with_(Reader(False), TOKENS, NEXT, tokens_loss)),
    "log of logits": ("loss", lambda: with_(mlp(), X, Y, raw_log)),
    "label among the inputs": ("data", lambda: with_(mlp(), torch.cat([X[:, 1:], Y[:, None].float()], 1), Y)),
    "saturated": ("initialization", lambda: with_(drawn(3.0, nn.Tanh), X, Y, rate=1e-4)),
    "large outputs": ("initialization", lambda: with_(drawn(1.0), X, Y, rate=1e-4)),
    "divergence of probabilities": (
        "output activation",
        lambda: with_(
            mlp(nn.Softmax(1)), X, (X @ torch.randn(64, 10) / 8).softmax(1), nn.KLDivLoss(reduction="batchmean")
        ),
    ),
    "dropout of all": (
        "regularization",
        lambda: with_(nn.Sequential(mlp(ends=32), nn.Dropout(1.0), nn.Linear(32, 10)), X, Y),
    ),
    "norm of one": (
        "architecture",
        lambda: with_(nn.Sequential(nn.Linear(64, 1), nn.LayerNorm(1), nn.Linear(1, 10)), X, Y),
    ),
    "norm of one at the end": ("normalization", lambda: with_(mlp(nn.LayerNorm(1), ends=1), X, BEST, F.mse_loss)),
    "row against column": ("shapes", lambda: with_(Flat(), X, torch.cat([VALUES, VALUES], 1), two_columns)),
    "sunk biases": ("initialization", sunk),
    "no nonlinearity": (
        "hidden activation",
        lambda: with_(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)), X, Y),
    ),
    "class ignored": ("loss", lambda: with_(Tagger(), TEXTS, TAGS, tags(0))),
    "class of no weight": ("loss", lambda: with_(mlp(), X, Y, nn.CrossEntropyLoss((torch.arange(10) != 3).float()))),
    "padding read last": ("data", lambda: with_(LastState(), TEXTS, TEXTS[:, 0] % 2)),
    "mask turned round": ("architecture", lambda: with_(Masked(True), TEXTS, TEXTS[:, 0] % 2)),
    "inputs in the thousands": ("input scale", lambda: with_(mlp(), 5000 * X, Y)),
    "layers in a list": ("update", lambda: with_(Listed(), X, Y)),
    "classes reshaped": ("shapes", lambda: with_(Reader(True), TOKENS, NEXT, reshaped)),
    "targets in another order": ("shapes", lambda: with_(Reader(True), TOKENS, NEXT, turned)),
    "large values": ("initialization", lambda: with_(drawn(1.0, ends=1), X, VALUES, F.mse_loss, rate=1e-4)),
    "still averages": ("normalization", lambda: with_(nn.Sequential(nn.BatchNorm1d(64, momentum=0.0), mlp()), X, Y)),
    "one label": ("labels", lambda: with_(mlp(), X, 0 * Y)),
    "one input": ("data", lambda: with_(mlp(), X[:1].expand_as(X).clone(), Y)),
}


COUNTS = torch.poisson((6 + X[:, 20:21] / 2).exp(), generator=torch.Generator().manual_seed(5))
SOUND |= {
    "counts in the hundreds": lambda: with_(mlp(ends=1), X, COUNTS, nn.PoissonNLLLoss(), rate=3e-3),
    "prices by their logarithms": lambda: with_(mlp(ends=1), X, (12 + VALUES).exp(), in_logarithms, rate=3e-3),
    "the same example many times": lambda: with_(mlp(ends=64), X[:1].repeat(40, 1), X[:1].repeat(40, 1), F.mse_loss),
}
TRIED: dict[str, Callable[[], Program]] = {
    **{name: SOUND[name] for name in ("counts in the hundreds", "prices by their logarithms")},
    "head alone": head_alone,
}
"""Sound programs that a trial has to see learn."""
