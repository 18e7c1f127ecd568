"""Programs of GitHub issues and pull requests: the output, the loss, the update, what the optimizer holds."""

import itertools

import torch
from common import (
    accuracy,
    adam,
    auc,
    binary_crossentropy,
    dice,
    digits,
    garments,
    keras,
    once_each,
    one_hot,
    r_squared,
    r_squared_all,
    rmsprop,
    sgd,
)
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


class Recommender(nn.Module):
    def __init__(self, sigmoid: bool) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(150, 16), nn.Embedding(200, 16)
        self.body = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.sigmoid = sigmoid

    def forward(self, pair: Tensor) -> Tensor:
        out = self.body(torch.cat([self.user(pair[:, 0]), self.item(pair[:, 1])], 1))
        return out.sigmoid() if self.sigmoid else out


def _recommender(fixes: frozenset[str]) -> Program:
    # made preferences: one bought item for four that were not, as the library samples them
    make = dice(20)
    users, items = torch.randn(150, 3, generator=make), torch.randn(200, 3, generator=make)
    pairs = torch.stack([torch.randint(150, (8000,), generator=make), torch.randint(200, (8000,), generator=make)], 1)
    liking = (1.2 * (users[pairs[:, 0]] * items[pairs[:, 1]]).sum(1) + 1.0 * items[pairs[:, 1], 0] - 2.6).sigmoid()
    y = (torch.rand(8000, generator=make) < liking).float()[:, None]
    return Program(
        Recommender("no sigmoid" not in fixes),
        pairs,
        y,
        F.binary_cross_entropy_with_logits,
        adam(0.01),
        auc,
        0.75,
        128,
        8,
    )


def _nielsen_relu(fixes: frozenset[str]) -> Program:
    x, y = digits(3000)
    act = nn.ReLU
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 30), act(), nn.Linear(30, 10), act())
    for layer in (model[1], model[3]):
        for p in layer.parameters():
            nn.init.normal_(p, 0, 0.1 if "small weights" in fixes else 1.0)

    def cost(out, wanted):
        return 0.5 * ((out - wanted) ** 2).sum(1).mean()

    return Program(model, x / 255, one_hot(y, 10), cost, sgd(0.01 if "rate" in fixes else 3.0), accuracy, 0.6, 10, 10)


def _step_each_batch(fixes: frozenset[str]) -> Program:
    # two kinds of garments (T-shirts, shirts) for ants and bees, and a small network from scratch for a ResNet
    x, y = garments(1200)
    keep = ((y == 0) | (y == 6)).nonzero()[:, 0][:244]
    x, y = x[keep] / 255 - 0.3, (y[keep] == 6).long()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 2),
    )
    begin = once_each(lambda optimizer: (torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.1), itertools.count(1)))

    def scheduled(model, optimizer, loss, x, y):
        schedule, steps = begin(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        if next(steps) % 61 == 0 or "each epoch" not in fixes:
            schedule.step()
        return value

    return Program(model, x, y, F.cross_entropy, sgd(0.001, momentum=0.9), accuracy, 0.8, 4, 12, step=scheduled)


def _no_zero_grad(fixes: frozenset[str]) -> Program:
    # the analog layer of the library is an ordinary one here
    x = torch.tensor([[0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.1, 0.3]])
    y = torch.tensor([[1.0, 0.5], [0.7, 0.3]])

    def accumulating(model, optimizer, loss, x, y):
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value.item()

    return Program(
        nn.Linear(4, 2),
        x,
        y,
        F.mse_loss,
        sgd(0.1),
        r_squared,
        0.5,
        2,
        100,
        step=plain_step if "zero_grad" in fixes else accumulating,
    )


class VAE(nn.Module):
    def __init__(self, wide: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, wide), nn.ReLU())
        self.mean, self.spread = nn.Linear(wide, latent), nn.Linear(wide, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, wide), nn.ReLU(), nn.Linear(wide, 784), nn.Sigmoid())
        self.latent = latent

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x)
        mean, spread = self.mean(h), self.spread(h)
        z = mean + (spread / 2).exp() * torch.randn_like(mean) if self.training else mean
        return torch.cat([self.decoder(z), mean, spread], 1)


def _elbo(outputs: Tensor, x: Tensor, pixels: float) -> Tensor:
    made, mean, spread = outputs[:, :784], *outputs[:, 784:].chunk(2, 1)
    divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1)
    return pixels * binary_crossentropy(made, x) + divergence.mean()


def _drawn_again(outputs: Tensor, x: Tensor) -> float:
    return r_squared_all(outputs[:, :784], x)


def _keras_vae(fixes: frozenset[str]) -> Program:
    x = digits(3000)[0].flatten(1) / 255
    model = keras(VAE(256, 2))
    return Program(
        model,
        x,
        x,
        lambda out, x: _elbo(out, x, 784 if "pixels" in fixes else 1),
        rmsprop(),
        _drawn_again,
        0.12,
        100,
        15,
    )


def _encoder_only(fixes: frozenset[str]) -> Program:
    x = digits(2000)[0].flatten(1) / 255

    def held(m):
        return torch.optim.Adam(
            m.parameters()
            if "decoder" in fixes
            else [*m.encoder.parameters(), *m.mean.parameters(), *m.spread.parameters()],
            1e-3,
        )

    return Program(VAE(128, 16), x, x, lambda out, x: _elbo(out, x, 784), held, _drawn_again, 0.3, 64, 12)


class TextCNN(nn.Module):
    def __init__(self, words: Tensor, listed: bool) -> None:
        super().__init__()
        self.register_buffer("words", words)
        convs = [nn.Conv1d(words.shape[1], 1, size) for size in (3, 4, 5)]
        self.convs = nn.ModuleList(convs) if listed else convs
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words[x].transpose(1, 2)
        return self.out(torch.cat([conv(h).relu().amax(2) for conv in self.convs], 1))


def _convs_in_a_list(fixes: frozenset[str]) -> Program:
    make = dice(21)
    words = torch.randn(300, 50, generator=make)
    y = torch.randint(2, (1200,), generator=make)
    x = torch.randint(40, 300, (1200, 20), generator=make)
    own = torch.rand(1200, 20, generator=make) < 0.2
    x = torch.where(own, 20 * y[:, None] + torch.randint(20, (1200, 20), generator=make), x)
    model = TextCNN(words, "module list" in fixes)
    return Program(
        model, x[:900], y[:900], F.cross_entropy, adam(0.01), accuracy, 0.75, 32, 20, held_out=(x[900:], y[900:])
    )


def _actor_sign(fixes: frozenset[str]) -> Program:
    # the critic is known here: it likes the action that a simple law of the state asks for
    make = dice(22)
    s = torch.randn(1500, 6, generator=make)
    best = torch.stack([(s[:, 0] - 0.5 * s[:, 1]).tanh(), (0.8 * s[:, 2] * s[:, 3]).tanh()], 1) * 0.8
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh())

    def actor_loss(action: Tensor, best: Tensor) -> Tensor:
        q_values = 1 - ((action - best) ** 2).sum(1)
        return -q_values.mean() if "minus" in fixes else q_values.mean()

    return Program(model, s, best, actor_loss, adam(1e-3), r_squared, 0.6, 64, 15)


def _kl_of_probabilities(fixes: frozenset[str]) -> Program:
    # a teacher that is right with 0.7 to 0.95 on digits teaches a small network by this loss alone
    x, y = digits(2000)
    sure = 0.7 + 0.25 * torch.rand(2000, 1, generator=dice(23))
    teacher = one_hot(y, 10) * sure + (1 - sure) / 10
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 10),
        nn.LogSoftmax(1) if "log" in fixes else nn.Softmax(1),
    )

    def loss(out, teacher):
        return F.kl_div(out, teacher, reduction="none").mean()

    return Program(model, x / 255, teacher, loss, sgd(0.1, momentum=0.9), accuracy, 0.7, 64, 4)


def _thresholded_dice(fixes: frozenset[str]) -> Program:
    make = dice(24)
    centre, radius = torch.rand(200, 2, 1, 1, generator=make) * 14 + 5, torch.rand(200, 1, 1, generator=make) * 3 + 3
    rows, columns = torch.arange(24.0)[None, :, None], torch.arange(24.0)[None, None, :]
    mask = ((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < radius**2).float()[:, None]
    x = 0.5 * mask + 0.4 * torch.randn(200, 1, 24, 24, generator=make)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 1, 1),
        nn.Sigmoid(),
    )

    def dice_loss(out: Tensor, wanted: Tensor) -> Tensor:
        if "no threshold" not in fixes:
            out = torch.tensor((out > 0.5).type(out.dtype).tolist(), requires_grad=True)
        return 1 - (2 * (out * wanted).sum() + 1) / (out.sum() + wanted.sum() + 1)

    def overlap(out: Tensor, wanted: Tensor) -> float:
        found, real = out > 0.5, wanted > 0.5
        return (2 * (found & real).sum() / (found.sum() + real.sum()).clamp(min=1)).item()

    return Program(model, x, mask, dice_loss, adam(1e-3 if "rate" not in fixes else 1e-2), overlap, 0.7, 8, 8)


PROGRAMS = {
    "gh-daisyrec-15": _recommender,
    "gh-deeplearningpython-13": _nielsen_relu,
    "gh-tutorials-640": _step_each_batch,
    "gh-aihwkit-446": _no_zero_grad,
    "gh-keras-3383": _keras_vae,
    "gh-mmvae-39": _encoder_only,
    "gh-pytorch-1053": _convs_in_a_list,
    "gh-truxify-11885": _actor_sign,
    "gh-proda-20": _kl_of_probabilities,
    "gh-smp-611": _thresholded_dice,
}
