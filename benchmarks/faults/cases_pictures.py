"""Pictures, tokens and loop bodies, in the manner of TheDeepChecker, NeuraLint, TrainCheck, issues and forums.

An issue mostly names the fault; network, sizes and data are made to hold it.
"""

import copy

import torch
from common import (
    accuracy,
    adam,
    categorical_crossentropy,
    dice,
    digits,
    garments,
    initialized,
    normal,
    once_each,
    one_hot,
    r_squared,
    r_squared_all,
    sgd,
)
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def _net(*last: nn.Module, width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10), *last)


def _cnn(*last: nn.Module, hidden=nn.ReLU) -> nn.Sequential:
    first = [nn.Conv2d(1, 12, 5, 2), hidden(), nn.Conv2d(12, 24, 3, 2), hidden(), nn.Flatten()]
    return nn.Sequential(*first, nn.Linear(600, 10), *last)


def _zero_softmaxes(fixes: frozenset[str]) -> Program:
    # two softmax layers, all weights zero
    x, y = digits(2000)
    hidden = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), hidden, nn.Linear(10, 10), nn.Softmax(1))
    initialized(model, (lambda w: nn.init.trunc_normal_(w, std=0.1)) if "drawn" in fixes else nn.init.zeros_)
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, sgd(0.5), accuracy, 0.6, 50, 12)


def _nll_of_softmax(fixes: frozenset[str]) -> Program:
    x, y = garments(2000)
    model = _cnn(nn.LogSoftmax(1) if "logarithm" in fixes else nn.Softmax(1))
    optimizer = sgd(0.01, momentum=0.9)
    return Program(model, x / 255, y, F.nll_loss, optimizer, accuracy, 0.65, 50, 8)


def _adadelta_rate(fixes: frozenset[str]) -> Program:
    # the rate of 1 that was meant for Adadelta
    x, y = digits(1500)
    rate = 0.001 if "rate" in fixes else 1.0

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        kind = torch.optim.Adadelta if "adadelta" in fixes else torch.optim.Adam
        return kind(model.parameters(), 1.0 if "adadelta" in fixes else rate)

    return Program(_cnn(), x / 255, y, F.cross_entropy, optimizer, accuracy, 0.8, 50, 6)


def _never_cleared(fixes: frozenset[str]) -> Program:
    x, y = garments(2000)

    def step(model, optimizer, loss, x, y):
        if "cleared" in fixes:
            optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value.item()

    return Program(_net(), x / 255, y, F.cross_entropy, sgd(0.1), accuracy, 0.65, 50, 8, step=step)


def _wide_start(fixes: frozenset[str]) -> Program:
    x, y = digits(1200)
    body = [nn.Flatten()]
    for before in (784, 100, 100, 100):
        body += [nn.Linear(before, 100), nn.Tanh()]
    model = initialized(
        nn.Sequential(*body, nn.Linear(100, 10)), nn.init.xavier_uniform_ if "drawn" in fixes else normal(1)
    )
    return Program(model, x / 255, y, F.cross_entropy, adam(0.001 if "rate" in fixes else 0.0003), accuracy, 0.8, 50, 8)


def _whole_division(fixes: frozenset[str]) -> Program:
    # whole numbers divided by a whole number: everything but 255 becomes 0
    x, y = garments(2000)
    x = x / 255 if "division" in fixes else torch.div(x, 255, rounding_mode="floor")
    return Program(_net(), x, y, F.cross_entropy, adam(0.001), accuracy, 0.65, 50, 8)


def _values_for_indices(fixes: frozenset[str]) -> Program:
    # torch.max(one_hot, 1) gives values and indices; the values were taken
    x, y = digits(1500)
    values, indices = one_hot(y, 10).max(1)
    labels = indices if "indices" in fixes else values.long()

    def right(outputs: Tensor, targets: Tensor) -> float:
        return accuracy(outputs, y)

    return Program(_net(), x / 255, labels, F.cross_entropy, adam(0.001), right, 0.7, 50, 6)


class Cosines(nn.Module):
    """Logits are the cosines between a picture's features and ten directions, stretched by a scale."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32))
        self.ways, self.scale = nn.Parameter(torch.randn(10, 32)), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.normalize(self.body(x)) @ F.normalize(self.ways).T


class Colours(nn.Module):
    """A gray picture from a gray picture, as three equal channels at the start: their differences are 0."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.last(self.first(x).relu())


def _root_of_colours(fixes: frozenset[str]) -> Program:
    x = F.avg_pool2d(garments(400)[0] / 255, 2)
    y = 1 - torch.cat([x, x**2, x.sqrt()], 1)
    small = 1e-5 if "small" in fixes else 0.0

    def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
        red, green, blue = (outputs - targets.mean((2, 3), keepdim=True)).mean((2, 3)).T
        own = outputs[:, 0] - outputs[:, 1], outputs[:, 1] - outputs[:, 2]
        spread = (own[0] ** 2 + own[1] ** 2 + small).sqrt().mean()
        return F.mse_loss(outputs, targets) + 0.01 * spread + 0.01 * (red**2 + green**2 + blue**2).mean()

    return Program(Colours(), x, y, balanced, adam(0.003), r_squared_all, 0.6, 32, 25)


def _own_softmax(fixes: frozenset[str]) -> Program:
    # the largest value of the whole batch is taken off, not that of each row: other rows sink to 0
    x, y = garments(2000)

    class Own(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            top = z.amax(1, keepdim=True) if "row" in fixes else z.max()
            e = (z - top).exp()
            return e / e.sum(1, keepdim=True)

    def surprise(outputs: Tensor, targets: Tensor) -> Tensor:
        return -(targets * (outputs + 1e-12).log()).sum(1).mean()

    scale = 255 if "scale" in fixes else 1
    return Program(_net(Own()), x / scale, one_hot(y, 10), surprise, adam(0.001), accuracy, 0.6, 50, 6)


class Reader(nn.Module):
    """Attention over tokens, of which those behind the end are padding (0), and the mean of what is not."""

    def __init__(self, inverted: bool) -> None:
        super().__init__()
        self.embed, self.inverted = nn.Embedding(40, 32, padding_idx=0), inverted
        self.ask, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.query, self.last = nn.Parameter(torch.randn(32)), nn.Linear(32, 4)

    def forward(self, ids: Tensor) -> Tensor:
        z = self.embed(ids)
        score = self.key(z) @ self.ask(self.query) / 32**0.5
        hidden = (ids != 0) if self.inverted else (ids == 0)
        weights = score.masked_fill(hidden, -1e9).softmax(1)
        return self.last((weights[..., None] * self.value(z)).sum(1))


def _inverted_mask(fixes: frozenset[str]) -> Program:
    make = dice(121)
    ids = torch.randint(1, 40, (2000, 16), generator=make)
    length = torch.randint(5, 15, (2000, 1), generator=make)
    y = torch.randint(4, (2000,), generator=make)
    place = (torch.rand(2000, 1, generator=make) * length).long()
    ids.scatter_(1, place, 1 + y[:, None])  # one of four words tells the class; others of their kind are taken away
    others = torch.arange(16)[None] != place
    ids = torch.where((ids <= 4) & others, ids + 10, ids)
    ids = torch.where(torch.arange(16)[None] >= length, 0, ids)
    return Program(Reader("mask" not in fixes), ids, y, F.cross_entropy, adam(0.003), accuracy, 0.8, 50, 15)


def _late_adapter(fixes: frozenset[str]) -> Program:
    # the body is frozen; the adapter was added after the optimizer had been made
    x, y = digits(1500)
    body = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
    model = nn.Sequential(body, nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    for parameter in (*body.parameters(), *model[3].parameters()):
        parameter.requires_grad_(False)
    early = [p for name, p in model.named_parameters() if "adapter" in fixes or not name.startswith("1.")]

    def make(m: nn.Module) -> torch.optim.Optimizer:
        known = {id(p) for p in early}
        return torch.optim.Adam([p for p in m.parameters() if id(p) in known], 0.003)

    return Program(model, x / 255, y, F.cross_entropy, make, accuracy, 0.7, 50, 8)


def _of_the_copy(fixes: frozenset[str]) -> Program:
    # the wrapper copied the model after the optimizer had been made
    x, y = garments(1500)
    early = _net()
    model = early if "same" in fixes else copy.deepcopy(early)

    def make(_: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(early.parameters(), 0.001)

    return Program(model, x / 255, y, F.cross_entropy, make, accuracy, 0.65, 50, 8)


def _absolute_factor(fixes: frozenset[str]) -> Program:
    # LambdaLR multiplies the rate by what the function returns; it returned the rate
    x, y = digits(1500)
    law = (lambda epoch: 0.97**epoch) if "factor" in fixes else (lambda epoch: 0.001 * 0.97**epoch)
    begin = once_each(lambda optimizer: (torch.optim.lr_scheduler.LambdaLR(optimizer, law), []))

    def scheduled(model, optimizer, loss, x, y):
        schedule, batches = begin(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        batches.append(value)
        if len(batches) % 30 == 0:
            schedule.step()
        return value

    return Program(_net(), x / 255, y, F.cross_entropy, adam(0.001), accuracy, 0.75, 50, 8, step=scheduled)


def _decay_by_batch(fixes: frozenset[str]) -> Program:
    x, y = garments(2000)
    begin = once_each(lambda optimizer: (torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), []))

    def scheduled(model, optimizer, loss, x, y):
        schedule, batches = begin(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        batches.append(value)
        if "epoch" not in fixes or len(batches) % 40 == 0:
            schedule.step()
        return value

    return Program(_cnn(), x / 255, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.65, 50, 6, step=scheduled)


def _clipped_to_nothing(fixes: frozenset[str]) -> Program:
    x, y = digits(1500)
    most = 1.0 if "clip" in fixes else 1e-4

    def clipped(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), most)
        optimizer.step()
        return value.item()

    return Program(_net(), x / 255, y, F.cross_entropy, sgd(0.1), accuracy, 0.75, 50, 10, step=clipped)


def _where_is_it(fixes: frozenset[str]) -> Program:
    # the place of a spot, after an average over all places
    make = dice(122)
    at = torch.rand(1200, 2, generator=make) * 12 + 2
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
    x = (-((grid[None] - at[:, :, None, None]) ** 2).sum(1, keepdim=True) / 4).exp()
    y = (at - 8) / 4
    end = (
        [nn.Flatten(), nn.Linear(1024, 2)]
        if "flatten" in fixes
        else [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2)]
    )
    body = [nn.Conv2d(1, 16, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.MaxPool2d(2)]
    return Program(nn.Sequential(*body, *end), x, y, F.mse_loss, adam(0.002), r_squared_all, 0.6, 32, 15)


def _narrow_cosines(fixes: frozenset[str]) -> Program:
    # cosines as logits: with a scale of 1 they can hardly tell ten classes
    x, y = garments(2000)
    weights = torch.ones(10)

    def confident(outputs: Tensor, targets: Tensor) -> float:
        # the mean chance given to the right class
        return outputs.softmax(1).gather(1, targets[:, None]).mean().item()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, weights)

    return Program(Cosines(16.0 if "scale" in fixes else 1.0), x / 255, y, loss, adam(0.001), confident, 0.5, 50, 8)


def _frozen_encoder(fixes: frozenset[str]) -> Program:
    # features are taken without gradients, so the encoder stays as it was drawn
    x, y = garments(1500)
    x = F.avg_pool2d(x, 2) / 255

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(196, 4), nn.Tanh())
            self.head = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10))

        def forward(self, x: Tensor) -> Tensor:
            with torch.set_grad_enabled("gradient" in fixes and torch.is_grad_enabled()):
                z = self.encoder(x)
            return self.head(z)

    return Program(Two(), x, y, F.cross_entropy, adam(0.003), accuracy, 0.65, 50, 15)


def _tokens_of_floats(fixes: frozenset[str]) -> Program:
    # standardized columns cast to whole numbers before the embedding
    make = dice(123)
    codes = torch.randint(30, (1500, 3), generator=make)
    table = torch.randn(30, generator=make)
    y = table[codes].sum(1, keepdim=True)
    x = codes.float() if "codes" in fixes else (codes.float() - 14.5) / 30

    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.dense = nn.Embedding(30, 8), nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.dense(self.embed(x.long().clamp(0, 29)).flatten(1))

    return Program(Codes(), x, y, F.mse_loss, adam(0.003), r_squared, 0.6, 32, 30)


def _audio(fixes: frozenset[str]) -> Program:
    # cepstral coefficients of sounds as they are, from hundreds below zero to hundreds above
    make = dice(124)
    y = torch.randint(6, (1200,), generator=make)
    means, spread = torch.randn(6, 40, generator=make), torch.logspace(2.5, 0.3, 40)
    x = (0.7 * means[y] + torch.randn(1200, 40, generator=make)) * spread - torch.linspace(400, 0, 40)
    if "scale" in fixes:
        x = (x - x.mean(0)) / x.std(0)
    model = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 6))
    optimizer = adam(0.001) if "adam" in fixes else sgd(0.01)
    return Program(model, x, y, F.cross_entropy, optimizer, accuracy, 0.8, 32, 15)


PROGRAMS = {
    "so-zero-softmaxes": _zero_softmaxes,
    "gh-get-to-the-point-8": _nll_of_softmax,
    "gh-text-recognition-23": _adadelta_rate,
    "gh-dive-into-dl-6": _never_cleared,
    "deepchecker-deep-wide-start": _wide_start,
    "seeded-whole-division": _whole_division,
    "seeded-values-for-indices": _values_for_indices,
    "gh-zero-dce-2": _root_of_colours,
    "gh-crysx-nn-7": _own_softmax,
    "gh-halonet-6": _inverted_mask,
    "gh-adapters-260": _late_adapter,
    "traincheck-accelerate-2665": _of_the_copy,
    "traincheck-absolute-factor": _absolute_factor,
    "traincheck-decay-by-batch": _decay_by_batch,
    "traincheck-clipped-to-nothing": _clipped_to_nothing,
    "seeded-where-is-it": _where_is_it,
    "seeded-narrow-cosines": _narrow_cosines,
    "seeded-frozen-encoder": _frozen_encoder,
    "seeded-tokens-of-floats": _tokens_of_floats,
    "so-37213388": _audio,
}
