"""PyTorch: loops, losses, graphs, control, medicine, games, textbooks; comments tell what is smaller or drawn."""

import itertools

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    dice,
    digits,
    garments,
    initialized,
    keras,
    normal,
    once_each,
    one_hot,
    r_squared,
    r_squared_all,
    sgd,
)
from faults import Program
from torch import nn
from torch.nn import functional as F


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _done(fixes):
    # a point that runs away from the middle of a square, four pushes, in place of the pole; stored moves
    make = dice(9102)
    p = torch.rand(3000, 2, generator=make) * 2 - 1
    pushes = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    move = torch.randint(4, (3000,), generator=make)
    after = 1.3 * p + 0.4 * pushes[move]
    done = (after.abs().max(1).values > 1).float()
    y = torch.cat([move[:, None].float(), after, done[:, None]], 1)
    all_after = (1.3 * p)[:, None] + 0.4 * pushes
    safe = all_after.abs().max(2).values <= 1
    only = safe.sum(1) == 1
    copies = once_each(lambda o: {"steps": 0, "net": None})
    import copy

    def step(model, optimizer, loss, x, y):
        held = copies(optimizer)
        if held["steps"] % 30 == 0:
            held["net"] = copy.deepcopy(model)
        held["steps"] += 1
        with torch.no_grad():
            following = held["net"](y[:, 1:3]).max(1).values
            aim = 1 + 0.9 * following * ((1 - y[:, 3]) if "done" in fixes else 1)
        optimizer.zero_grad()
        error = loss(model(x).gather(1, y[:, :1].long())[:, 0], aim)
        error.backward()
        optimizer.step()
        return error.item()

    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    return Program(
        model,
        p,
        y,
        F.mse_loss,
        adam(0.002),
        accuracy,
        0.8,
        64,
        15,
        held_out=(p[only], safe[only].int().argmax(1)),
        step=step,
    )


def _bert(fixes):
    # from scratch and small, with rates as much larger
    make = dice(9103)
    x = torch.randint(60, (900, 12), generator=make)
    y = ((x < 10).sum(1) > (x >= 50).sum(1)).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(60, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.end = nn.Linear(32, 2)

        def forward(self, x):
            return self.end(self.layers(self.words(x)).mean(1))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        if "clip" in fixes:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return error.item()

    def how(m):
        return torch.optim.AdamW(m.parameters(), 5e-4 if "rate" in fixes else 0.02)

    return Program(Net(), x, y, F.cross_entropy, how, accuracy, 0.8, 32, 9, step=step)


def _glove(fixes):
    # vectors and reviews drawn
    make = dice(9104)
    feel = torch.randn(400, generator=make)
    table = torch.randn(400, 25, generator=make) * 0.4
    table[:, 0] = feel
    x = torch.randint(400, (800, 15), generator=make)
    y = (feel[x].mean(1, keepdim=True) > 0).float()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding.from_pretrained(
                table if "vectors" in fixes else torch.zeros(400, 25), freeze="trainable" not in fixes
            )
            self.lstm, self.end = nn.LSTM(25, 32, batch_first=True), nn.Linear(32, 1)

        def forward(self, x):
            return self.end(self.lstm(self.words(x))[0][:, -1]).sigmoid()

    model = keras(Net())
    return Program(model, x, y, binary_crossentropy, adam(0.003), accuracy, 0.8, 32, 8)


def _unet(fixes):
    # 16 x 16 pictures drawn, one level deep
    make = dice(9105)
    centre = torch.rand(160, 2, 1, 1, generator=make) * 10 + 3
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
    y = (((grid - centre) ** 2).sum(1, keepdim=True) < 6).float()
    x = y * 0.5 + 0.25 * torch.randn(160, 1, 16, 16, generator=make) + 0.3

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (
                nn.Conv2d(1, 8, 3, padding=1),
                nn.Conv2d(8, 16, 3, padding=1),
                nn.Conv2d(24, 8, 3, padding=1),
            )
            self.d = nn.Conv2d(8, 1, 1)

        def forward(self, x):
            a = self.a(x).relu()
            b = F.interpolate(self.b(F.max_pool2d(a, 2)).relu(), scale_factor=2)
            z = self.d(self.c(torch.cat([a, b], 1)).relu())
            return z.sigmoid() if "sigmoid" in fixes else z.softmax(1)

    def overlap(o, t):
        o, t = o > 0.5, t > 0.5
        return ((o & t).sum() / (o | t).sum().clamp(min=1)).item()

    return Program(keras(Net()), x, y, binary_crossentropy, adam(0.005), overlap, 0.6, 16, 30)


def _cox(o, t):
    """Negative partial likelihood; those who are under risk are those of the batch."""
    order = t[:, 0].argsort(descending=True)
    risk, event = o[order, 0], t[order, 1]
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)


def _concordance(o, t):
    earlier = (t[:, 0][:, None] < t[:, 0]) & (t[:, 1][:, None] > 0)
    gap = o[:, 0][:, None] - o[:, 0][None]
    return ((gap > 0).double()[earlier].mean() + 0.5 * (gap == 0).double()[earlier].mean()).item()


def _survival(fixes):
    make = dice(9106)
    x = torch.randn(200, 6, generator=make)
    hazard = (x @ torch.tensor([1.0, -1, 0.8, 0, 0, 0.5])).exp()
    time = -torch.rand(200, generator=make).log() / hazard
    y = torch.stack([time, (torch.rand(200, generator=make) < 0.8).float()], 1)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    return Program(model, x, y, _cox, adam(0.01), _concordance, 0.75, 50 if "batch" in fixes else 1, 12)


def _chess(fixes):
    # positions drawn; the evaluation is material and where it stands
    make = dice(9107)
    worth = torch.tensor([100.0, 300, 310, 500, 900]).repeat(2) * torch.tensor([1.0] * 5 + [-1.0] * 5)
    x = (torch.rand(1500, 10, 64, generator=make) < 0.025).float()
    y = (x.sum(2) @ worth)[:, None] * 0.5 + 20 * torch.randn(1500, 1, generator=make)
    y = y / 1000 if "scale" in fixes else y
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(640, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
        nn.Identity() if "linear" in fixes else nn.Tanh(),
    )
    return Program(model, x, y, F.mse_loss, adam(), r_squared, 0.7, 32, 20)


def _deep_gcn(fixes):
    # a drawn graph of four groups; Kipf's rates
    make = dice(9108)
    n = 200
    kind = torch.arange(n) % 4
    chance = torch.where(kind[:, None] == kind, 0.10, 0.02)
    a = (torch.rand(n, n, generator=make) < chance).float().triu(1)
    a = a + a.T + torch.eye(n)
    a = a / a.sum(1).sqrt()[:, None] / a.sum(1).sqrt()
    features = one_hot(kind, 4) @ torch.randn(4, 16, generator=make) + 1.5 * torch.randn(n, 16, generator=make)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            depth = 2 if "two" in fixes else 12
            sizes = [16] + [16] * (depth - 1) + [4]
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))

        def forward(self, nodes):
            h = features
            for i, layer in enumerate(self.layers):
                h = a @ layer(h)
                if i < len(self.layers) - 1:
                    h = h.relu() if "plain" in fixes else F.dropout(h.relu(), 0.5, self.training)
            return h[nodes[:, 0]]

    return Program(
        keras(Net()),
        torch.arange(n)[:, None],
        kind,
        F.cross_entropy,
        adam(0.01, weight_decay=5e-4),
        accuracy,
        0.8,
        n,
        120,
    )


def _boxes(fixes):
    # pictures drawn
    make = dice(9111)
    n = 300
    size = torch.rand(n, 2, generator=make) * 5 + 5
    low = torch.rand(n, 2, generator=make) * (22 - size) + 1
    grid = torch.stack(torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij"))
    inside = ((grid >= low[:, :, None, None]) & (grid <= (low + size)[:, :, None, None])).all(1, keepdim=True)
    x = inside.float() + 0.1 * torch.randn(n, 1, 24, 24, generator=make)
    y = torch.cat([low, low + size], 1)

    def iou(o, t):
        both = (torch.minimum(o[:, 2:], t[:, 2:]) - torch.maximum(o[:, :2], t[:, :2])).clamp(min=0).prod(1)
        areas = (o[:, 2:] - o[:, :2]).clamp(min=0).prod(1) + (t[:, 2:] - t[:, :2]).prod(1)
        return both / (areas - both)

    def loss(o, t):
        return F.smooth_l1_loss(o, t) if "l1" in fixes else (1 - iou(o, t)).mean()

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(288, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    if "centred" in fixes:
        model[-1].bias.data = torch.tensor([6.0, 6, 18, 18])
    return Program(model, x, y, loss, adam(0.003), lambda o, t: iou(o, t).mean().item(), 0.6, 32, 20)


class Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + 5 * v.abs()) ** 2


def _spikes(fixes):
    # six steps of time; digits halved
    x, y = digits(1000)
    x = F.avg_pool2d(x / 255, 2).flatten(1)
    fire = Surrogate.apply if "surrogate" in fixes else (lambda v: (v.sign() + 1) / 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(196, 64), nn.Linear(64, 10)

        def forward(self, x):
            u, v, count = 0, 0, 0
            drive = self.a(x) * 3
            for _ in range(6):
                u = 0.8 * u + drive
                s = fire(u - 1)
                u = u - s
                v = 0.8 * v + self.b(s) * 2
                r = fire(v - 1)
                v = v - r
                count = count + r
            return count

    return Program(Net(), x, y, F.cross_entropy, adam(0.003), accuracy, 0.7, 32, 5)


def _nielsen(fixes):
    # network, start, cost and batch as in the book; 3,000 of 50,000 digits
    x, y = digits(3000)
    model = initialized(
        nn.Sequential(nn.Linear(784, 30), nn.Sigmoid(), nn.Linear(30, 10), nn.Sigmoid()), normal(1), bias=normal(1)
    )
    return Program(
        model,
        x.flatten(1) / 255,
        one_hot(y, 10),
        lambda o, t: 0.5 * ((o - t) ** 2).sum(1).mean(),
        sgd(3.0 if "rate" in fixes else 100.0),
        accuracy,
        0.7,
        10,
        7,
    )


def _std_001(fixes):
    # as in the book, 3,000 digits and 700 steps for 2,000
    x, y = digits(3000)
    parts, size = [], 784
    for _ in range(4):
        parts += [nn.Linear(size, 100), nn.ReLU()]
        size = 100
    from common import he

    model = initialized(nn.Sequential(*parts, nn.Linear(100, 10)), he if "he" in fixes else normal(0.01))
    return Program(
        model, x.flatten(1) / 255, y, F.cross_entropy, adam() if "adam" in fixes else sgd(0.01), accuracy, 0.7, 128, 30
    )


def _own_softmax(fixes):
    # weights within 0.01, rate and loss as in the book; 2,000 garments
    x, y = garments(2000)
    x = x.flatten(1) / (255 if "scale" in fixes else 1)
    last = [] if "stable" in fixes else [Lambda(lambda z: z.exp() / z.exp().sum(1, keepdim=True))]
    model = initialized(nn.Sequential(nn.Linear(784, 10), *last), normal(0.01))

    def loss(o, t):
        return F.cross_entropy(o, t) if "stable" in fixes else -o[range(len(o)), t].log().mean()

    return Program(model, x, y, loss, sgd(0.1), accuracy, 0.5, 64, 6)


def _dot(fixes):
    # ratings drawn
    make = dice(9116)
    u, m, b = torch.randn(80, 4, generator=make), torch.randn(90, 4, generator=make), torch.randn(90, generator=make)
    x = torch.stack([torch.randint(80, (3000,), generator=make), torch.randint(90, (3000,), generator=make)], 1)
    y = (3.4 + 0.6 * (u[x[:, 0]] * m[x[:, 1]]).sum(1) * 0.6 + 0.5 * b[x[:, 1]]).clamp(1, 5)[:, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.m = nn.Embedding(80, 20), nn.Embedding(90, 20)
            for e in (self.u, self.m):
                nn.init.uniform_(e.weight, 0, 0.6 if "wide" in fixes else 0.01)
            self.film, self.all = nn.Parameter(torch.zeros(90)), nn.Parameter(torch.zeros(1))

        def forward(self, x):
            z = (self.u(x[:, 0]) * self.m(x[:, 1])).sum(1)
            if "bias" in fixes:
                z = z + self.film[x[:, 1]] + self.all
            return z[:, None]

    return Program(
        Net(),
        x,
        y,
        F.mse_loss,
        adam(0.01) if "adam" in fixes else sgd(0.01, momentum=0.9, weight_decay=1e-5),
        r_squared,
        0.3,
        64,
        12,
    )


def _adadelta(fixes):
    # 1,500 digits for 60,000, batches of 16 for 256
    x, _ = digits(1500)
    x = x.flatten(1) / 255
    model = keras(nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 784), nn.Sigmoid()))

    def how(m):
        return (
            adam()(m)
            if "adam" in fixes
            else torch.optim.Adadelta(m.parameters(), 1.0 if "rate" in fixes else 0.001, rho=0.95, eps=1e-7)
        )

    return Program(model, x, x, binary_crossentropy, how, r_squared_all, 0.25, 16, 30)


def _percent_of_zero(fixes):
    # shops and days drawn
    make = dice(9118)
    x = torch.randn(800, 8, generator=make)
    y = (x[:, :3].sum(1, keepdim=True) * 4 + 4).clamp(min=0).round()

    def loss(o, t):
        return (o - t).abs().mean() if "mae" in fixes else 100 * ((o - t).abs() / t.abs().clamp(min=1e-7)).mean()

    model = keras(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)))
    return Program(model, x, y, loss, adam(0.003), r_squared, 0.6, 32, 20)


def _steering(fixes):
    # 16 x 32 pictures drawn: a bright lane that leaves to one side
    make = dice(9119)
    angle = torch.rand(400, 1, generator=make) * 2 - 1
    rows = torch.arange(16.0)[None, :, None]
    lane = 16 + angle[:, :, None] * 12 * (1 - rows / 16)
    x = (
        60
        + 150 * (-((torch.arange(32.0)[None, None] - lane) ** 2) / 8).exp()
        + 10 * torch.randn(400, 16, 32, generator=make)
    )
    x = (x / 127.5 - 1 if "scale" in fixes else x)[:, None]
    model = keras(
        nn.Sequential(
            nn.Conv2d(1, 12, 5, 2),
            nn.ReLU(),
            nn.Conv2d(12, 16, 3, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 2 * 6, 50),
            nn.ReLU(),
            nn.Linear(50, 10),
            nn.ReLU(),
            nn.Linear(10, 1),
        )
    )
    return Program(model, x, angle * 0.5, F.mse_loss, adam(0.001 if "rate" in fixes else 0.01), r_squared, 0.8, 32, 15)


def _denoise(fixes):
    # layers as in the question; 128 values, 1,000 signals
    make = dice(9120)
    t = torch.linspace(0, 12.57, 96)
    waves = torch.stack([t.cos(), (0.5 * t).cos(), t.sin()])
    clean = torch.randn(700, 3, generator=make) @ waves
    noisy = clean + 0.2 * torch.randn(700, 96, generator=make)
    low, high = noisy.min(1, keepdim=True).values, noisy.max(1, keepdim=True).values
    clean, noisy = (clean - low) / (high - low), (noisy - low) / (high - low)
    noisy = 2 * noisy - 1 if "centred" in fixes else noisy
    z = 16
    model = nn.Sequential(
        nn.Linear(96, 2 * z),
        nn.ReLU(),
        nn.Linear(2 * z, z),
        nn.ReLU(),
        nn.Linear(z, z),
        nn.ReLU(),
        nn.Linear(z, z),
        nn.ReLU(),
        nn.Linear(z, 2 * z),
        nn.ReLU(),
        nn.Linear(2 * z, 96),
        nn.Tanh(),
    )
    return Program(
        model, noisy, clean, F.mse_loss, adam() if "adam" in fixes else sgd(0.01), r_squared_all, 0.5, 16, 25
    )


PROGRAMS = {
    "gh-deep-q-networks-3": _done,
    "gh-bert-1224": _bert,
    "glove-zeros": _glove,
    "gh-ultrasound-nerve-18": _unet,
    "gh-torchsurv-35": _survival,
    "chess-centipawns": _chess,
    "gcn-twelve-layers": _deep_gcn,
    "gh-darknet-5429": _boxes,
    "gh-spikingjelly-190": _spikes,
    "nielsen-eta-100": _nielsen,
    "from-zero-std-001": _std_001,
    "d2l-own-softmax": _own_softmax,
    "fastai-embedding-dot": _dot,
    "gh-tensorflow-39432": _adadelta,
    "gh-keras-2908": _percent_of_zero,
    "gh-autopilot-39": _steering,
    "so-63500337": _denoise,
}
