"""Questions of forums and issues about PyTorch; networks and data are made to hold a named fault."""

import torch
from common import (
    accuracy,
    adam,
    dice,
    digits,
    garments,
    once_each,
    r_squared,
    r_squared_all,
    sequence_cross_entropy,
    sgd,
    token_accuracy,
)
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def kept_gradients(model, optimizer, loss, x, y):
    value = loss(model(x), y)
    value.backward()
    optimizer.step()
    return value.item()


class Cross(nn.Module):
    def __init__(self, column: bool) -> None:
        super().__init__()
        self.layer, self.column = nn.Linear(9, 1), column
        nn.init.uniform_(self.layer.weight, -0.5, 0.5)
        nn.init.uniform_(self.layer.bias, -0.5, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x).sigmoid()
        return out if self.column else out[:, 0]


def _cross(fixes):
    # 50,000 steps in the thread
    x = torch.rand(10, 9, generator=dice(951))
    x[6:] = torch.tensor([1.0, 0, 1, 0, 1, 0, 1, 0, 1])
    y = (torch.arange(10) > 5).float()[:, None]

    def right(o, t):
        return ((o.reshape(-1) > 0.5) == (t[:, 0] > 0.5)).double().mean().item()

    step = None if "zero_grad" in fixes else kept_gradients
    return Program(
        Cross("column" in fixes), x, y, lambda o, t: ((o - t) ** 2).mean(), sgd(0.05), right, 0.95, 10, 6000, step=step
    )


class Ramp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(1, 100, batch_first=True), nn.Linear(100, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0])[..., 0]


def _ramp(fixes):
    # the optimizer is not in the excerpt: Adam; 1,000 steps at 0.001 as there
    x = torch.arange(21.0)[None, :, None] / 20
    y = torch.arange(2.0, 23)[None] / 20
    step = None if "zero_grad" in fixes else kept_gradients

    def summed(o, t):
        return ((o - t) ** 2).sum()

    return Program(Ramp(), x, y, summed, adam(0.003 if "rate" in fixes else 1e-3), r_squared, 0.98, 1, 1000, step=step)


def _own_output(fixes):
    # y = 7 x + 3; a hundred columns of weights in the question
    make = dice(953)
    x = torch.randn(100, 1, generator=make)
    y = 7 * x + 3 + torch.randn(100, 1, generator=make)
    model = nn.Linear(1, 1)
    nn.init.normal_(model.weight, 0, 0.01)
    nn.init.normal_(model.bias)
    rate = 0.01 if "rate" in fixes else 1e-4

    def by_hand(model, optimizer, loss, x, y):
        with torch.no_grad():
            out = model(x)
            error = out - y
            model.weight -= rate * (error * (x if "input" in fixes else out)).mean()
            model.bias -= rate * error.mean()
        return loss(out, y).item()

    return Program(model, x, y, F.mse_loss, sgd(rate), r_squared, 0.8, 100, 3000, step=by_hand)


class Shared(nn.Module):
    def __init__(self, own: bool) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = (
            nn.Conv2d(1, 16, 5, 2),
            nn.Conv2d(16, 16, 3, 1, 1),
            nn.Conv2d(16, 16, 3, 1, 1),
        )
        self.norm = nn.BatchNorm2d(16)
        self.others = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(16)]) if own else [self.norm, self.norm]
        self.out = nn.Linear(16 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        z = F.max_pool2d(self.norm(self.conv1(x)).relu(), 2)
        z = self.others[0](self.conv2(z)).relu()
        z = self.others[1](self.conv3(z)).relu()
        return self.out(z.flatten(1))


def _shared_norm(fixes):
    x, y = garments(2000)
    return Program(Shared("own" in fixes), x, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.7, 64, 4)


class Ahead(nn.Module):
    def __init__(self, kept: bool) -> None:
        super().__init__()

        def make():
            return (nn.Linear(784, 100), nn.Linear(100, 100))

        self.out, self.make = nn.Linear(100, 10), make
        self.layers = nn.ModuleList(make()) if kept else None

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.layers or self.make()
        return self.out(second(first(x.flatten(1)).clamp(min=0)).clamp(min=0))


def _made_in_forward(fixes):
    # 1,000 inputs, 100 units, 10 outputs in the issue
    x, y = digits(2000)
    return Program(Ahead("kept" in fixes), x / 255, y, F.cross_entropy, adam(), accuracy, 0.8, 50, 6)


def _policy_sign(fixes):
    make = dice(958)
    x = torch.randn(1500, 6, generator=make)
    y = (x @ torch.randn(6, 4, generator=make)).argmax(1)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 4))

    def proximal(model, optimizer, loss, x, y):
        with torch.no_grad():
            policy = torch.distributions.Categorical(logits=model(x))
            action = policy.sample()
            old = policy.log_prob(action)
            reward = (action == y).float()
            advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        value = None
        for _ in range(3):
            optimizer.zero_grad()
            ratio = (torch.distributions.Categorical(logits=model(x)).log_prob(action) - old).exp()
            objective = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            value = -objective if "minus" in fixes else objective
            value.backward()
            optimizer.step()
        return value.item()

    return Program(model, x, y, F.cross_entropy, adam(0.003), accuracy, 0.7, 64, 15, step=proximal)


def _collapsed_triplets(fixes):
    x, y = digits(1500)
    x = x / 255 if "scale" in fixes else x

    class Unit(nn.Module):
        def forward(self, z):
            return F.normalize(z, dim=1)

    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        *([Unit()] if "unit length" in fixes else []),
    )

    def hardest(o, t):
        distance = ((o[:, None] - o[None]) ** 2).sum(2).clamp(min=1e-12).sqrt()
        same = t[:, None] == t[None]
        positive = torch.where(same, distance, 0).amax(1)
        negative = torch.where(same, torch.inf, distance).amin(1)
        return (positive - negative + 0.5).relu().mean()

    def apart(o, t):
        distance = torch.cdist(o[:600].double(), o[:600].double()).clamp(min=1e-9)
        same = t[:600, None] == t[None, :600]
        return 1 - (distance[same].mean() / distance[~same].mean()).item()

    return Program(model, x, y, hardest, adam(1e-4 if "rate" in fixes else 0.01), apart, 0.4, 64, 12)


def _flipped_without_points(fixes):
    make = dice(960)
    points = 4 + 20 * torch.rand(1000, 2, generator=make)
    grid = torch.arange(28.0)
    gx, gy = ((grid - points[:, i : i + 1]) ** 2 for i in (0, 1))
    x = (-gx[:, None, :] / 8).exp() * (-gy[:, :, None] / 8).exp() + 0.1 * torch.randn(1000, 28, 28, generator=make)
    y = (points - 13.5) / 13.5
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, 2),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(600, 64),
        nn.ReLU(),
        nn.Linear(64, 2),
    )

    def flipping(model, optimizer, loss, x, y):
        flip = torch.rand(len(x)) < 0.5
        x = torch.where(flip[:, None, None, None], x.flip(3), x)
        if "points" in fixes:
            y = torch.where(flip[:, None], y * torch.tensor([-1.0, 1.0]), y)
        return plain_step(model, optimizer, loss, x, y)

    return Program(model, x[:, None], y, F.mse_loss, adam(), r_squared_all, 0.9, 32, 12, step=flipping)


def _cleared_too_late(fixes):
    x, y = digits(2000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))

    def step(model, optimizer, loss, x, y):
        if "order" in fixes:
            return plain_step(model, optimizer, loss, x, y)
        value = loss(model(x), y)
        value.backward()
        optimizer.zero_grad()
        optimizer.step()
        return value.item()

    return Program(model, x / 255, y, F.cross_entropy, adam(), accuracy, 0.8, 32, 5, step=step)


class Pairs(nn.Module):
    """Whether the first symbol comes again."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(8, 32), nn.Parameter(0.3 * torch.randn(6, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=batch_first)
        self.body, self.out = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(self.words(x) + self.places)[:, 0])


def _attends_to_the_batch(fixes):
    make = dice(962)
    x = torch.randint(8, (1200, 6), generator=make)
    y = (x[:, 1:] == x[:, :1]).any(1).long()
    return Program(Pairs("batch_first" in fixes), x, y, F.cross_entropy, adam(0.005), accuracy, 0.85, 40, 15)


class Twins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.body(x[:, 0]), self.body(x[:, 1])], 1)


def _cosine_zeros(fixes):
    images, labels = digits(3000)
    a, b = torch.arange(0, 3000, 2), torch.arange(1, 3000, 2)
    other = torch.stack(
        [
            (labels[b] == labels[i]).nonzero()[0, 0] if k % 2 else (labels[b] != labels[i]).nonzero()[k % 700, 0]
            for k, i in enumerate(a)
        ]
    )
    x = torch.stack([images[a], images[b][other]], 1) / 255
    y = (labels[a] == labels[b][other]).float()
    y = 2 * y - 1 if "minus one" in fixes else y

    def loss(o, t):
        return F.cosine_embedding_loss(o[:, 0], o[:, 1], t)

    def alike(o, t):
        cosine, same = F.cosine_similarity(o[:, 0], o[:, 1]).double(), t > 0.5
        return (cosine[same].mean() - cosine[~same].mean()).item()

    return Program(Twins(), x, y, loss, adam(), alike, 0.5, 32, 10)


class Chooser(nn.Module):
    """One network chooses one of twelve codes, another answers from the code alone."""

    def __init__(self, soft: bool) -> None:
        super().__init__()
        self.choose = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 12))
        self.codes, self.answer, self.soft = nn.Embedding(12, 32), nn.Sequential(nn.ReLU(), nn.Linear(32, 10)), soft

    def forward(self, x: Tensor) -> Tensor:
        scores = self.choose(x)
        code = scores.softmax(1) @ self.codes.weight if self.soft else self.codes(scores.argmax(1))
        return self.answer(code)


def _argmax_inside(fixes):
    x, y = digits(2000)
    return Program(Chooser("softmax" in fixes), x / 255, y, F.cross_entropy, adam(0.003), accuracy, 0.75, 50, 12)


class Cell(nn.Module):
    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.cell, self.out, self.detached = nn.GRUCell(8, 48), nn.Linear(48, 8), detached

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 48)
        for z in F.one_hot(x, 8).float().unbind(1):
            h = self.cell(z, h.detach() if self.detached else h)
        return self.out(h)


def _detached_each_step(fixes):
    x = torch.randint(8, (800, 6), generator=dice(965))
    return Program(Cell("graph" not in fixes), x, x[:, 0], F.cross_entropy, adam(0.01), accuracy, 0.9, 50, 25)


def _brightness(fixes):
    # how much of a plate is covered: a mean, which the norm of each picture takes away
    make = dice(966)
    y = torch.rand(800, 1, generator=make)
    x = 0.1 + 0.8 * y[:, :, None, None] + 0.05 * torch.randn(800, 1, 16, 16, generator=make)
    norm = nn.BatchNorm2d(8) if "batch norm" in fixes else nn.InstanceNorm2d(8, affine=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        norm,
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 1),
    )
    return Program(model, x, y, F.mse_loss, adam(0.005), r_squared, 0.7, 32, 25)


def _whole_warm_up(fixes):
    x, y = digits(2000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    rise = (lambda s: min(1.0, (s + 1) / 100)) if "fraction" in fixes else (lambda s: min(1, s // 1000))
    begin = once_each(lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rise))

    def warmed(model, optimizer, loss, x, y):
        schedule = begin(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        schedule.step()
        return value

    return Program(model, x / 255, y, F.cross_entropy, adam(), accuracy, 0.8, 32, 8, step=warmed)


def _class_after_class(fixes):
    # no shuffling: a folder of each class after the other
    x, y = digits(3000)
    order = y.argsort()
    x, y = x[order] / 255, y[order]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    begin = once_each(lambda optimizer: {"batch": 0})

    def in_order(model, optimizer, loss, some, theirs):
        if "shuffled" in fixes:
            return plain_step(model, optimizer, loss, some, theirs)
        state = begin(optimizer)
        rows = slice(32 * state["batch"], 32 * state["batch"] + 32)
        state["batch"] = (state["batch"] + 1) % 94
        return plain_step(model, optimizer, loss, x[rows], y[rows])

    return Program(model, x, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.7, 32, 3, step=in_order)


def _decayed_away(fixes):
    # gamma of an epoch used with a rate that is halved again by hand
    x, y = garments(2000)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(600, 10)
    )

    def how(m):
        return torch.optim.AdamW(
            m.parameters(), 0.01 if "rate" not in fixes else 0.002, weight_decay=10.0 if "decay" not in fixes else 0.01
        )

    return Program(model, x / 255, y, F.cross_entropy, how, accuracy, 0.75, 64, 6)


class Translator(nn.Module):
    """Reads eight symbols and writes them backwards."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 32)
        self.reader, self.writer, self.out = (
            nn.GRU(32, 96, batch_first=True),
            nn.GRU(10, 96, batch_first=True),
            nn.Linear(96, 10),
        )
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        states, h = self.reader(self.words(x))
        h = h if self.last else states[:, :1].transpose(0, 1).contiguous()
        clock = torch.eye(10)[: x.shape[1]].expand(len(x), -1, -1)
        return self.out(self.writer(clock, h)[0])


def _first_state(fixes):
    x = torch.randint(10, (1500, 5), generator=dice(970))
    return Program(
        Translator("last" in fixes), x, x.flip(1), sequence_cross_entropy, adam(0.005), token_accuracy, 0.85, 50, 15
    )


def _dropped_inputs(fixes):
    # a mask of 0.9 was meant to keep 0.9 and keeps a tenth, and it is drawn in eval mode too
    make = dice(971)
    x = torch.randn(1500, 6, generator=make)
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:3]).tanh() * 2

    class Drop(nn.Module):
        def forward(self, z):
            return F.dropout(z, 0.9 if "tenth" not in fixes else 0.1, self.training if "eval" in fixes else True)

    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), Drop(), nn.Linear(64, 64), nn.ReLU(), Drop(), nn.Linear(64, 1))
    return Program(model, x, y, F.mse_loss, adam(0.003), r_squared, 0.7, 32, 20)


def _half_the_minimum(fixes):
    # variance predicted as a number that may be negative: clamped, so its gradient is gone
    make = dice(972)
    x = 4 * torch.rand(1000, 1, generator=make) - 2
    y = torch.sin(2 * x) + (0.1 + 0.2 * x.abs()) * torch.randn(1000, 1, generator=make)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def likelihood(o, t):
        spread = F.softplus(o[:, 1:]) + 1e-3 if "softplus" in fixes else o[:, 1:].clamp(min=1e-3)
        return (spread.log() + (t - o[:, :1]) ** 2 / (2 * spread**2)).mean()

    def mean(o, t):
        return r_squared(o[:, :1], t)

    return Program(model, x, y, likelihood, sgd(0.01), mean, 0.6, 50, 60)


PROGRAMS = {
    "fastai-58206": _cross,
    "cv-376851": _ramp,
    "so-own-output": _own_output,
    "forum-7561": _shared_norm,
    "gh-pytorch-1291": _made_in_forward,
    "gh-rlhf-book-125": _policy_sign,
    "gh-triplet-loss-37": _collapsed_triplets,
    "gh-facial-keypoints-flip": _flipped_without_points,
    "traincheck-cleared-too-late": _cleared_too_late,
    "forum-transformer-batch-first": _attends_to_the_batch,
    "forum-cosine-zeros": _cosine_zeros,
    "forum-argmax-inside": _argmax_inside,
    "forum-detached-each-step": _detached_each_step,
    "seeded-instance-norm": _brightness,
    "seeded-whole-warm-up": _whole_warm_up,
    "forum-class-after-class": _class_after_class,
    "seeded-decoupled-decay": _decayed_away,
    "forum-first-state": _first_state,
    "forum-dropout-functional": _dropped_inputs,
    "forum-clamped-spread": _half_the_minimum,
}
