"""More of the kinds that forums ask about, small; networks and data are ours."""

import copy

import torch
from common import accuracy, adam, dice, garments, r_squared, sgd
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def _counts(fixes):
    make = dice(981)
    x = torch.randn(1000, 4, generator=make)
    y = torch.poisson((0.6 * x[:, :1] + 0.5 * x[:, 1:2].abs() + 1.2).exp(), generator=make)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1), nn.Softplus())

    def counted(o, t):
        return F.poisson_nll_loss(o, t, log_input="rates" not in fixes)

    return Program(model, x, y, counted, adam(0.005), r_squared, 0.5, 50, 20)


def _weight_of_counts(fixes):
    make = dice(982)
    y = (torch.rand(1500, 1, generator=make) < 0.3).float()
    x = torch.randn(1500, 12, generator=make)
    x[:, :4] += 1.2 * y
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    weight = (1 - y).sum() / (y.sum() if "ratio" in fixes else 1)

    def weighed(o, t):
        return F.binary_cross_entropy_with_logits(o, t, pos_weight=weight)

    def balanced(o, t):
        return 0.5 * ((o > 0)[t > 0.5].double().mean() + (o <= 0)[t < 0.5].double().mean()).item()

    return Program(model, x, y, weighed, sgd(0.05), balanced, 0.8, 50, 10)


def _unit_rows(fixes):
    make = dice(984)
    x = torch.randn(1000, 2, generator=make) * 1.2
    y = (x.norm(dim=1, keepdim=True) < 1.4).float()
    x = (x - x.mean(0)) / x.std(0) if "columns" in fixes else F.normalize(x, dim=1)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    return Program(
        model,
        x,
        y,
        F.binary_cross_entropy_with_logits,
        adam(0.003),
        lambda o, t: accuracy(o.sigmoid(), t),
        0.85,
        32,
        15,
    )


class TwoWays(nn.Module):
    def __init__(self, moved: bool) -> None:
        super().__init__()
        self.layer, self.out, self.moved = nn.GRU(4, 24, batch_first=True, bidirectional=True), nn.Linear(48, 3), moved

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)[1]
        return self.out((h.transpose(0, 1) if self.moved else h).reshape(len(x), -1))


def _hidden_view(fixes):
    make = dice(985)
    y = torch.arange(900) % 3
    t = torch.arange(12.0)
    x = torch.sin((0.4 + 0.5 * y[:, None, None]) * t[None, :, None] + 6.28 * torch.rand(900, 1, 4, generator=make))
    x = x + 0.3 * torch.randn(900, 12, 4, generator=make)
    return Program(TwoWays("transposed" in fixes), x, y, F.cross_entropy, adam(0.005), accuracy, 0.85, 50, 15)


class Averaged(nn.Module):
    """Trains one network and answers with the running average of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        self.mean = copy.deepcopy(self.body).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) if self.training else self.mean(x)


def _slow_average(fixes):
    x, y = garments(2000)
    decay = 0.98 if "decay" in fixes else 0.9998

    def averaging(model, optimizer, loss, x, y):
        value = plain_step(model, optimizer, loss, x, y)
        with torch.no_grad():
            for old, new in zip(model.mean.parameters(), model.body.parameters(), strict=False):
                old.lerp_(new, 1 - decay)
        return value

    def how(m):
        return torch.optim.Adam(m.body.parameters(), 1e-3)

    return Program(Averaged(), x / 255, y, F.cross_entropy, how, accuracy, 0.7, 40, 6, step=averaging)


def _two_tasks(fixes):
    # a kind and a place of each object; the place is in pixels of a picture of 2,000
    make = dice(987)
    x = torch.randn(1000, 10, generator=make)
    kind = (x @ torch.randn(10, 4, generator=make)).argmax(1)
    place = 1000 + 300 * torch.randn(1000, 2, generator=make)
    place = place + 200 * x[:, :2]
    place = (place - 1000) / 360 if "unit places" in fixes else place
    y = torch.cat([kind[:, None].float(), place], 1)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))

    def both(o, t):
        weight = 1e-6 if "weight" in fixes and "unit places" not in fixes else 1.0
        return F.cross_entropy(o[:, :4], t[:, 0].long()) + weight * F.mse_loss(o[:, 4:], t[:, 1:])

    def kinds(o, t):
        return (o[:, :4].argmax(1) == t[:, 0].long()).double().mean().item()

    return Program(model, x, y, both, adam(), kinds, 0.75, 32, 15)


PROGRAMS = {
    "forum-poisson-of-rates": _counts,
    "forum-pos-weight": _weight_of_counts,
    "dse-rows-to-unit-length": _unit_rows,
    "forum-hidden-view": _hidden_view,
    "gh-average-of-weights": _slow_average,
    "forum-two-tasks": _two_tasks,
}
