"""Issues of PyTorch projects, TrainCheck's collection and the PyTorch forum: inputs, labels, shapes, what trains.

In ``gh-`` programs the issue names the fault; network, sizes and data are made to hold it.
"""

import itertools

import torch
from common import accuracy, adam, dice, digits, garments, once_each, r_squared, sgd
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def _convolutions() -> list[nn.Module]:
    one, two = nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.Conv2d(12, 24, 3, stride=2, padding=1)
    return [one, nn.ReLU(), two, nn.ReLU(), nn.Flatten()]


def _mean_of_halves(fixes: frozenset[str]) -> Program:
    x, y = garments(1500)
    x = ((x / 255 if "scale" in fixes else x) - 0.45) / 0.225
    model = nn.Sequential(*_convolutions(), nn.Linear(1176, 64), nn.ReLU(), nn.Linear(64, 10))
    return Program(model, x, y, F.cross_entropy, sgd(0.01, momentum=0.9), accuracy, 0.6, 32, 6)


def _normalized_in_place(fixes: frozenset[str]) -> Program:
    # the step normalizes, once more in each epoch of 32 batches; images that are normalized once are scored
    x, y = garments(1000)
    x = x / 255
    steps = once_each(lambda optimizer: itertools.count())

    def normalized(x: Tensor) -> Tensor:
        return (x - 0.45) / 0.25

    def step(model, optimizer, loss, x, y):
        for _ in range(1 if "copy" in fixes else next(steps(optimizer)) // 32 + 1):
            x = normalized(x)
        return plain_step(model, optimizer, loss, x, y)

    model, test = nn.Sequential(*_convolutions(), nn.Linear(1176, 10)), (normalized(x), y)
    optimizer = sgd(0.02, momentum=0.9)
    return Program(model, x, y, F.cross_entropy, optimizer, accuracy, 0.6, 32, 8, held_out=test, step=step)


def _never_zeroed(fixes: frozenset[str]) -> Program:
    # 600 digits, a stride of 2, and a rate of 0.001 for 0.0001
    x, y = digits(600)
    one, two = nn.Conv2d(1, 32, 3, stride=2), nn.Conv2d(32, 64, 3)
    dense = [nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(one, nn.ReLU(), two, nn.MaxPool2d(2), nn.Flatten(), *dense)

    def step(model, optimizer, loss, x, y):
        if "zero_grad" in fixes:
            optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value.item()

    return Program(model, (x / 255 - 0.1307) / 0.3081, y, F.cross_entropy, adam(), accuracy, 0.9, 30, 10, step=step)


def _frozen_head(fixes: frozenset[str]) -> Program:
    # random filters for EfficientNet, and digits for CIFAR-100
    x, y = digits(1500)
    body = nn.Sequential(nn.Conv2d(1, 24, 5, stride=2), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    model = nn.Sequential(body, nn.Linear(864, 10))
    model.requires_grad_("all" in fixes)
    body[1].requires_grad_(True)
    if "head" in fixes:
        model[1].requires_grad_(True)

    def adadelta(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adadelta((model if "all" in fixes else model[1]).parameters(), 1.0)

    return Program(model, x / 255, y, F.cross_entropy, adadelta, accuracy, 0.7, 64, 5)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.one, self.two = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_one(x + self.attend(x, x, x, need_weights=False)[0])
        return self.norm_two(x + self.two(F.gelu(self.one(x))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(12, 32), nn.Embedding(12, 32)
        self.blocks, self.out = nn.Sequential(*[Block(32) for _ in range(4)]), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.token(x) + self.place(torch.arange(x.shape[1]))).mean(1))


def _drawn_layer_norms(fixes: frozenset[str]) -> Program:
    # which of the first four tokens stands most often in a row of twelve
    x = torch.randint(12, (1200, 12), generator=dice(60))
    y = torch.stack([(x == token).sum(1) for token in range(4)], 1).argmax(1)
    model = Encoder()
    for part in model.modules():
        norm = isinstance(part, nn.LayerNorm) and "ones" not in fixes
        if norm or isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, 0, 0.02)
        if norm:
            nn.init.normal_(part.bias, 0, 0.02)
    return Program(model, x, y, F.cross_entropy, adam(0.003 if "rate" in fixes else 0.0003), accuracy, 0.8, 32, 8)


class Lamb(torch.optim.Optimizer):
    """LAMB with the factor 1 where weights are all zero, or without it."""

    def __init__(self, parameters, rate: float, one_at_zero: bool) -> None:
        super().__init__(parameters, {"lr": rate})
        self.one_at_zero = one_at_zero

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].lerp_(p.grad, 1 - 0.9)
                state["v"].lerp_(p.grad**2, 1 - 0.999)
                move = state["m"] / (state["v"].sqrt() + 1e-6)
                size, length = p.norm().clamp(0, 10), move.norm()
                trust = size / length if length > 0 and not (self.one_at_zero and size == 0) else 1.0
                p.sub_(group["lr"] * trust * move)


def _lamb_from_zero(fixes: frozenset[str]) -> Program:
    x, y = garments(1500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    nn.init.zeros_(model[3].bias)
    if "drawn" not in fixes:
        nn.init.zeros_(model[3].weight)

    def lamb(model: nn.Module) -> torch.optim.Optimizer:
        return Lamb(model.parameters(), 0.01, "trust" in fixes)

    return Program(model, x / 255, y, F.cross_entropy, lamb, accuracy, 0.6, 32, 6)


class Flow(nn.Module):
    """Log probabilities of five actions and the log partition function."""

    def __init__(self, attached: bool) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 5))
        self.z = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
        self.attached = attached

    def forward(self, x: Tensor) -> Tensor:
        logits = self.policy(x).clone()
        return torch.cat([(logits if self.attached else logits.detach()).log_softmax(1), self.z(x)], 1)


def _detached_policy(fixes: frozenset[str]) -> Program:
    # trajectories of one step, all five actions of each at once
    make = dice(62)
    x = torch.randn(800, 6, generator=make)
    rewards = (x @ torch.randn(6, 5, generator=make)) * 1.2  # their logarithms

    def balance(outputs: Tensor, rewards: Tensor) -> Tensor:
        return (outputs[:, 5:] + outputs[:, :5] - rewards).square().mean()

    def better_than_uniform(outputs: Tensor, rewards: Tensor) -> float:
        p = rewards.softmax(1)
        gap = (outputs[:, :5].exp() - p).abs().sum(1).mean()
        return 1 - (gap / (p - 0.2).abs().sum(1).mean()).item()

    return Program(Flow("attached" in fixes), x, rewards, balance, adam(0.003), better_than_uniform, 0.6, 32, 15)


def _decay_by_step(fixes: frozenset[str]) -> Program:
    x, y = digits(1500)
    layers = [nn.Linear(784, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)]
    model = nn.Sequential(nn.Flatten(), *layers)
    decay = 1.0 if "one" in fixes else 0.75

    def by_layer(model: nn.Module) -> torch.optim.Optimizer:
        inner = [model[1], model[3], model[5]]
        groups = [{"params": [*layer.parameters()], "lr": 0.0005 * decay ** (2 - i)} for i, layer in enumerate(inner)]
        return torch.optim.AdamW(groups)

    def step(model, optimizer, loss, x, y):
        if "once" not in fixes:
            for i, group in enumerate(optimizer.param_groups):
                group["lr"] *= decay ** (3 - i)
        return plain_step(model, optimizer, loss, x, y)

    return Program(model, x / 255, y, F.cross_entropy, by_layer, accuracy, 0.75, 32, 5, step=step)


class Graphs(nn.Module):
    """Two rounds of sums over neighbours; an input is adjacency beside node features."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, h = x[..., :12], x[..., 12:]
        h = self.one(h + a @ h).relu()
        return self.out(self.two(h + a @ h).relu().mean(1))


def _one_label_for_all(fixes: frozenset[str]) -> Program:
    make = dice(64)
    y = torch.randint(3, (500,), generator=make)
    chance = torch.tensor([0.15, 0.3, 0.5])[y][:, None, None]
    edges = (torch.rand(500, 12, 12, generator=make) < chance).float().triu(1)
    x = torch.cat([edges + edges.transpose(1, 2), torch.eye(12).expand(500, 12, 12)], 2)
    given = y if "own" in fixes else y[:1].expand(500).clone()
    return Program(Graphs(), x, given, F.cross_entropy, adam(0.003), accuracy, 0.65, 32, 12, held_out=(x, y))


class Attention(nn.Module):
    def __init__(self, permute: bool) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
        self.value, self.out = nn.Linear(16, 32), nn.Linear(32, 6)
        self.permute = permute

    def forward(self, x: Tensor) -> Tensor:
        h = (x.permute(0, 2, 3, 1) if self.permute else x).reshape(len(x), 49, 16)
        return self.out((self.weigh(h).softmax(1) * self.value(h)).sum(1).relu())


def _features_as_places(fixes: frozenset[str]) -> Program:
    # the class is what 16 features show at one of 49 places
    make = dice(66)
    y = torch.randint(6, (1000,), generator=make)
    pattern = torch.randn(6, 16, generator=make)
    where = torch.randint(49, (1000,), generator=make)
    x = 0.5 * torch.randn(1000, 16, 49, generator=make)
    x[torch.arange(1000), :, where] += 1.5 * pattern[y]
    model = Attention("permute" in fixes)
    return Program(model, x.view(1000, 16, 7, 7), y, F.cross_entropy, adam(0.003), accuracy, 0.7, 32, 12)


class Column(nn.Module):
    """A line by matrix product: outputs (n, 1), or (n,)."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.weights, self.bias = nn.Parameter(torch.randn(2, 1)), nn.Parameter(torch.randn(1))
        self.flat = flat

    def forward(self, x: Tensor) -> Tensor:
        out = x.mm(self.weights) + self.bias
        return out.view(-1) if self.flat else out


def _column_less_row(fixes: frozenset[str]) -> Program:
    # loss and rate are the thread's; 3,000 of 10,000 steps
    y = torch.tensor([2.0, 3, 7, 9])
    x = torch.stack([torch.ones(4), y], 1)

    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()

    optimizer = adam(0.01 if "rate" in fixes else 0.00001)
    return Program(Column("column" in fixes), x, y, squared, optimizer, r_squared, 0.9, 4, 3000)


PROGRAMS = {
    "traincheck-forum-84911": _frozen_head,
    "gh-transformers-143": _drawn_layer_norms,
    "gh-pytorch-lamb-6": _lamb_from_zero,
    "gh-gflownet-251": _detached_policy,
    "gh-vitpose-20": _decay_by_step,
    "gh-pyg-7813": _one_label_for_all,
    "gh-adaptive-attention-6": _features_as_places,
    "forum-linear-column": _column_less_row,
    "traincheck-so-60335387": _never_zeroed,
    "gh-pycls-21": _normalized_in_place,
    "gh-efficientdet-137": _mean_of_halves,
}
