"""Issues about PyTorch: what a step makes of the graph, of shapes in the loss, of gradients, of schedules, of labels.

An issue mostly names the fault; network, sizes and data are made to hold it.
"""

import torch
from common import accuracy, adam, dice, digits, garments, once_each, r_squared, r_squared_all, sgd
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 4))
        self.critic = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.actor(x), self.critic(x)], 1)


def _actor_in_a_new_tensor(fixes: frozenset[str]) -> Program:
    # one-step games with four actions, of which one is paid
    make = dice(31)
    x = torch.randn(1500, 6, generator=make)
    y = (x @ torch.randn(6, 4, generator=make)).argmax(1)

    def play(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        out = model(x)
        policy, value = torch.distributions.Categorical(logits=out[:, :4]), out[:, 4]
        action = policy.sample()
        reward, chances = (action == y).float(), policy.log_prob(action)
        chances = torch.stack(list(chances)) if "stack" in fixes else torch.tensor([one.item() for one in chances])
        error = -(chances * (reward - value).detach()).mean() + F.mse_loss(value, reward)
        error.backward()
        optimizer.step()
        return error.item()

    def best(outputs: Tensor, targets: Tensor) -> float:
        return accuracy(outputs[:, :4], targets)

    return Program(ActorCritic(), x, y, F.mse_loss, adam(0.003), best, 0.7, 32, 15, step=play)


class Critic(nn.Module):
    def __init__(self, column: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.column = column

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        return out if self.column else out[:, 0]


def _critic_by_batch(fixes: frozenset[str]) -> Program:
    make = dice(32)
    x = torch.randn(1024, 10, generator=make)
    returns = x[:, :1] * 2 + x[:, 1:2] * x[:, 2:3] + 0.2 * torch.randn(1024, 1, generator=make)
    y = torch.cat([returns, 0.5 * torch.randn(1024, 1, generator=make)], 1)  # what came, and the old value

    def clipped(values: Tensor, y: Tensor) -> Tensor:
        returns, old = y[:, :1], y[:, 1:]
        near = old + (values - old).clamp(-4, 4)
        return 0.5 * torch.max((returns - values) ** 2, (returns - near) ** 2).mean()

    def explained(outputs: Tensor, targets: Tensor) -> float:
        return r_squared(outputs, targets[:, :1])

    return Program(Critic("column" in fixes), x, y, clipped, adam(0.002), explained, 0.6, 64, 25)


def _weights_by_batch(fixes: frozenset[str]) -> Program:
    # half of the recorded actions are good, half are the contrary; the advantage tells
    make = dice(33)
    x = torch.randn(1200, 5, generator=make)
    best = (x @ torch.randn(5, 2, generator=make)).tanh()
    good = (torch.rand(1200, 1, generator=make) < 0.5).float()
    actions = best * (2 * good - 1) + 0.1 * torch.randn(1200, 2, generator=make)
    y = torch.cat([actions, 3 * good - 1.5, best], 1)
    model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def regression(outputs: Tensor, y: Tensor) -> Tensor:
        chance = torch.distributions.Normal(outputs, 0.5).log_prob(y[:, :2]).sum(1, keepdim="column" in fixes)
        return -(chance * y[:, 2:3].exp()).mean()

    def near_best(outputs: Tensor, targets: Tensor) -> float:
        return r_squared_all(outputs, targets[:, 3:])

    return Program(model, x, y, regression, adam(0.002), near_best, 0.6, 64, 20)


def _never_enough_batches(fixes: frozenset[str]) -> Program:
    x, y = garments(640)
    convolutions = [nn.Conv2d(1, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(600, 10))
    wanted, batches = 4 if "fewer" in fixes else 64, 40  # of an epoch
    begin = once_each(lambda optimizer: {"batch": 0, "gathered": 0})

    def gathering(model, optimizer, loss, x, y):
        count = begin(optimizer)
        if count["batch"] == 0 or (count["batch"] % batches == 0 and "across" not in fixes):
            count["gathered"] = 0
            model.zero_grad()
        value = loss(model(x), y)
        (value / wanted).backward()
        count["batch"] += 1
        count["gathered"] += 1
        if count["gathered"] % wanted == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value.item()

    return Program(model, x / 255, y, F.cross_entropy, adam(0.003), accuracy, 0.6, 16, 40, step=gathering)


def _only_the_schedule(fixes: frozenset[str]) -> Program:
    x, y = digits(1500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10))
    begin = once_each(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 600, 0.1))

    def scheduled(model, optimizer, loss, x, y):
        schedule = begin(optimizer)
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        if "step" in fixes:
            optimizer.step()
        schedule.step()
        return value.item()

    x = (x / 255 - 0.1307) / 0.3081
    return Program(model, x, y, F.cross_entropy, sgd(0.05, momentum=0.9), accuracy, 0.8, 50, 8, step=scheduled)


def _plateau_upside_down(fixes: frozenset[str]) -> Program:
    x, y = garments(3000)
    convolutions = [nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(800, 10))
    mode = "min" if "mode" in fixes else "max"
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    begin = once_each(lambda optimizer: (plateau(optimizer, mode, factor=0.3, patience=1), []))

    def watched(model, optimizer, loss, x, y):
        schedule, losses = begin(optimizer)
        value = plain_step(model, optimizer, loss, x, y)
        losses.append(value)
        if len(losses) % 10 == 0:  # the report comes every so many steps
            schedule.step(sum(losses[-10:]) / 10)
        return value

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.01, momentum=0.5), accuracy, 0.6, 50, 8, step=watched)


class Flow(nn.Module):
    """The direction at a place and time (the first three columns), of a kind (the fourth)."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.Embedding(6, 16)
        self.body = nn.Sequential(nn.Linear(19, 96), nn.SELU(), nn.Linear(96, 96), nn.SELU(), nn.Linear(96, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(torch.cat([x[:, :3], self.kinds(x[:, 3].long())], 1))


def _ring(kind: Tensor) -> Tensor:
    angle = kind * 1.0472
    return 3 * torch.stack([angle.cos(), angle.sin()], 1)


def _kinds_left_behind(fixes: frozenset[str]) -> Program:
    # six heaps on a ring in place of digits; noise and data are paired anew in each batch, as by optimal transport
    make = dice(53)
    kind = torch.randint(6, (1200,), generator=make)
    points = _ring(kind) + 0.2 * torch.randn(1200, 2, generator=make)
    x = torch.cat([torch.zeros(1200, 3), kind[:, None]], 1)
    kind = torch.arange(600) % 6
    noise = torch.cat([torch.randn(600, 2, generator=make), torch.zeros(600, 1), kind[:, None]], 1)

    def flow(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        start, order = torch.randn_like(y), torch.randperm(len(y))
        end, kinds = y[order], x[order, 3:] if "ordered" in fixes else x[:, 3:]
        t = torch.rand(len(y), 1)
        value = loss(model(torch.cat([(1 - t) * start + t * end, t, kinds], 1)), end - start)
        value.backward()
        optimizer.step()
        return value.item()

    def reached(outputs: Tensor, goal: Tensor) -> float:
        return r_squared_all(outputs + noise[:, :2], goal)  # where the first direction leads

    test = (noise, _ring(kind))
    return Program(Flow(), x, points, F.mse_loss, adam(0.003), reached, 0.7, 64, 25, held_out=test, step=flow)


PROGRAMS = {
    "gh-slm-lab-133": _actor_in_a_new_tensor,
    "gh-rlinf-1568": _critic_by_batch,
    "gh-acme-277": _weights_by_batch,
    "gh-transformers-2995": _never_enough_batches,
    "gh-pytorch-3814": _only_the_schedule,
    "gh-selene-115": _plateau_upside_down,
    "gh-conditional-flow-matching-172": _kinds_left_behind,
}
