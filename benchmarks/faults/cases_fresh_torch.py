"""Questions of the PyTorch forum, or kinds of them; networks and data are ours where no number is named."""

import copy

import torch
from common import accuracy, adam, dice, garments, once_each, r_squared, r_squared_all, sgd, standardized
from faults import Program, plain_step
from torch import Tensor, nn
from torch.nn import functional as F


def _minus_spread(fixes):
    # labels of 20 values, most of them 0; two sequences a step
    make = dice(1101)
    x = torch.randn(300, 12, generator=make)
    y = (x @ torch.randn(12, 20, generator=make) * 0.2 - 0.2).clamp(0, 1)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 20))

    def loss(o, t):
        return ((o - t) ** 2).sum() - (0 if "plain" in fixes else 100 * o.std())

    return Program(model, x, y, loss, adam(), r_squared_all, 0.8, 2, 15)


def _three_points(fixes):
    # all as in the thread; the noise is one draw, and steps are 4,000 for 10,000
    x = torch.tensor([2.0, 3.5, 5.0])[:, None]
    y = x.sin() + torch.randn(3, 1, generator=dice(1102)) / 5
    x = torch.cat([x**2, x], 1)
    x = standardized(x) if "standardized" in fixes else x

    def loss(o, t):
        return F.mse_loss(o, t, reduction="mean" if "mean" in fixes else "sum")

    rate = 1e-4 if "rate" in fixes and "standardized" not in fixes else 0.01
    return Program(nn.Linear(2, 1), x, y, loss, sgd(rate, momentum=0.9), r_squared, 0.85, 3, 4000)


def _loss_made_anew(fixes):
    x, y = garments(2000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        if "kept" not in fixes:
            error = error.detach().clone().requires_grad_(True)
        error.backward()
        optimizer.step()
        return error.item()

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.1), accuracy, 0.7, 32, 5, step=step)


class Generator(nn.Module):
    """Answers with what is made of noise; the critic takes part in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
        self.tell = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.make(x)


def _detached_twice(fixes):
    make = dice(1104)
    noise = torch.randn(2000, 2, generator=make)
    real = torch.tensor([3.0, -2.0]) + torch.randn(2000, 2, generator=make) * torch.tensor([0.6, 0.3])
    critics = once_each(lambda o: torch.optim.Adam(o.critic.parameters(), 1e-3, betas=(0.5, 0.999)))

    def how(m):
        optimizer = torch.optim.Adam(m.make.parameters(), 1e-3, betas=(0.5, 0.999))
        optimizer.critic = m.tell
        return optimizer

    def play(model, optimizer, loss, x, y):
        critic = critics(optimizer)
        fake = model.make(x)
        right, wrong = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        critic.zero_grad()
        (loss(model.tell(y), right) + loss(model.tell(fake.detach()), wrong)).backward()
        critic.step()
        optimizer.zero_grad()
        error = loss(model.tell(fake if "attached" in fixes else fake.detach()), right)
        error.backward()
        optimizer.step()
        return error.item()

    def near(o, t):
        gap = (o.mean(0) - t.mean(0)).norm() + (o.std(0) - t.std(0)).norm()
        return 1 - (gap / t.mean(0).norm()).item()

    return Program(Generator(), noise, real, F.binary_cross_entropy_with_logits, how, near, 0.7, 50, 25, step=play)


def _best_of_the_batch(fixes):
    """Ten places in a row, the last pays; stored moves, and a target network that is renewed every 20 steps."""
    make = dice(1105)
    place = torch.randint(9, (2000,), generator=make)
    right = torch.randint(2, (2000,), generator=make)
    after = (place + 2 * right - 1).clamp(min=0)
    done, reward = (after == 9).float(), (after == 9).float()
    x = F.one_hot(place, 10).float()
    y = torch.stack([right.float(), after.float(), reward, done], 1)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    copies = once_each(lambda o: {"steps": 0, "net": None})

    def learn(model, optimizer, loss, x, y):
        held = copies(optimizer)
        if held["steps"] % 20 == 0:
            held["net"] = copy.deepcopy(model)
        held["steps"] += 1
        with torch.no_grad():
            ahead = held["net"](F.one_hot(y[:, 1].long(), 10).float())
            best = ahead.max(1).values if "dim" in fixes else ahead.max(0).values[y[:, 0].long()]
            target = y[:, 2] + 0.9 * best * (1 - y[:, 3])
        optimizer.zero_grad()
        error = loss(model(x).gather(1, y[:, :1].long())[:, 0], target)
        error.backward()
        optimizer.step()
        return error.item()

    def fit(o, t):  # the value of going right is 0.9 to the number of moves that are left after it
        known = 0.9 ** (8 - torch.arange(9.0))
        seen = torch.stack([o[place == k, 1].mean() for k in range(9)])
        return r_squared(seen[:, None], known[:, None])

    return Program(model, x, y, F.mse_loss, adam(0.003), fit, 0.8, 50, 25, step=learn)


def _divergence_of_probabilities(fixes):
    make = dice(1106)
    x = torch.randn(1000, 10, generator=make)
    y = (x @ torch.randn(10, 5, generator=make) * 0.4).softmax(1)
    log = "logarithms" in fixes
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5), nn.LogSoftmax(1) if log else nn.Softmax(1))

    def divergence(o, t):
        return F.kl_div(o, t, reduction="batchmean")

    def near(o, t):
        o = o if log else o.clamp(min=1e-30).log()
        least = (t * t.log()).sum(1).mean()
        return 1 - ((least - (t * o).sum(1).mean()) / (least - (t * t.mean(0).log()).sum(1).mean())).item()

    return Program(model, x, y, divergence, adam(0.003), near, 0.8, 50, 20)


class Bag(nn.Module):
    """Whether the largest number stands in the first half."""

    def __init__(self, places: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 32)
        self.places = nn.Parameter(0.3 * torch.randn(10, 32)) if places else None
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.body, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.words(x)
        return self.out(self.body(z if self.places is None else z + self.places).mean(1))


def _no_places(fixes):
    make = dice(1107)
    x = torch.stack([torch.randperm(12, generator=make)[:10] for _ in range(1500)])
    y = (x.argmax(1) < 5).long()
    return Program(Bag("places" in fixes), x, y, F.cross_entropy, adam(0.002), accuracy, 0.85, 50, 15)


def _statistics_of_bytes(fixes):
    # ToTensor divides by 255, and mean and deviation are those of 0 to 255
    x, y = garments(2000)
    mean, spread = (0.286, 0.353) if "statistics" in fixes else (72.9, 90.0)
    x = (x / 255 - mean) / spread
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10)
    )
    return Program(model, x, y, F.cross_entropy, sgd(0.05, momentum=0.5), accuracy, 0.7, 32, 5)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(60, 24), nn.LSTM(24, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.words(x))[0])


def _padding_wins(fixes):
    # sentences of 3 to 8 words, filled up to 80
    make = dice(1109)
    length = torch.randint(3, 9, (500, 1), generator=make)
    kind = torch.randint(1, 5, (60,), generator=make)
    x = torch.randint(1, 60, (500, 80), generator=make) * (torch.arange(80) < length)
    y = kind[x] * (x > 0)
    skip = 0 if "ignored" in fixes else -100

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=skip)

    def tags_right(o, t):
        return (o.argmax(2) == t)[t > 0].double().mean().item()

    rate = 0.02 if "rate" in fixes else 0.003
    return Program(Tagger(), x, y, loss, adam(rate), tags_right, 0.85, 50, 6)


class Neighbours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.center, self.context = nn.Embedding(100, 16), nn.Embedding(100, 16)
        nn.init.uniform_(self.center.weight, -0.03, 0.03)
        nn.init.uniform_(self.context.weight, -0.03, 0.03)

    def forward(self, x: Tensor) -> Tensor:
        return (self.center(x[:, :1]) * self.context(x[:, 1:])).sum(2)


def _negatives_pulled(fixes):
    # words come in ten groups of ten; a word, a neighbour, five others
    make = dice(1110)
    word = torch.randint(100, (4000,), generator=make)
    near = word // 10 * 10 + torch.randint(10, (4000,), generator=make)
    far = torch.randint(100, (4000, 5), generator=make)
    x = torch.cat([word[:, None], near[:, None], far], 1)
    y = (far // 10 == word[:, None] // 10).float()
    sign = -1.0 if "sign" in fixes else 1.0

    def sampled(o, t):
        return -(F.logsigmoid(o[:, 0]) + F.logsigmoid(sign * o[:, 1:]).sum(1)).mean()

    def apart(o, t):
        close, other = o[:, 0].double(), o[:, 1][t[:, 0] < 0.5].double()
        return (close[:, None] > other[None]).double().mean().item()

    return Program(Neighbours(), x, y, sampled, adam(0.01), apart, 0.85, 50, 10)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(8, 48, batch_first=True, bidirectional=True), nn.Linear(96, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0])


def _blank_is_a_letter(fixes):
    # four letters, four or five a word, two or three frames a letter, and a pause; number 0 is the blank of ctc_loss
    make = dice(1111)
    look = torch.randn(5, 8, generator=make) * 1.5
    x, y = torch.zeros(500, 20, 8), torch.full((500, 6), -1)
    for i in range(500):
        letters = torch.randint(1, 5, (int(torch.randint(4, 6, (1,), generator=make)),), generator=make)
        at = 0
        for letter in letters:
            many = int(torch.randint(2, 4, (1,), generator=make))
            x[i, at : at + many] = look[letter]
            at += many + 1
        y[i, 0] = len(letters)
        y[i, 1 : 1 + len(letters)] = letters
    x = x + 0.3 * torch.randn(500, 20, 8, generator=make)
    if "numbers" not in fixes:
        y[:, 1:] = (y[:, 1:] - 1).clamp(min=0)

    def ctc(o, t):
        lengths = torch.full((len(o),), 20)
        places = o.log_softmax(2).transpose(0, 1)
        return F.ctc_loss(places, t[:, 1:].clamp(min=0), lengths, t[:, 0], zero_infinity=True)

    def words_right(o, t):
        best, right = o.argmax(2), 0
        for row, want in zip(best, t, strict=True):
            told = [a.item() for k, a in enumerate(row) if a and (k == 0 or a != row[k - 1])]
            right += told == want[1 : 1 + want[0]].tolist()
        return right / len(t)

    return Program(Reader(), x, y, ctc, adam(0.005), words_right, 0.8, 25, 20)


def _norm_at_the_end(fixes):
    make = dice(1112)
    x = torch.randn(1000, 8, generator=make)
    y = 60 + 15 * (x[:, :1].sin() + x[:, 1:2] * x[:, 2:3])
    y = standardized(y) if "targets" in fixes else y
    end = [] if "end" in fixes else [nn.BatchNorm1d(1)]
    model = nn.Sequential(
        nn.Linear(8, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 1),
        *end,
    )
    rate = 0.03 if "rate" in fixes else 0.001
    return Program(model, x, y, F.mse_loss, adam(rate), r_squared, 0.8, 32, 25)


class Adapted(nn.Module):
    def __init__(self, drawn: bool) -> None:
        super().__init__()
        self.base = nn.Linear(20, 20)
        self.base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(20, 4) * 0.2 if drawn else torch.zeros(20, 4))
        self.up = nn.Parameter(torch.zeros(4, 20))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down @ self.up


def _both_zero(fixes):
    make = dice(1113)
    x = torch.randn(600, 20, generator=make)
    model = Adapted("drawn" in fixes)
    shift = torch.randn(20, 3, generator=make) @ torch.randn(3, 20, generator=make) * 0.2
    with torch.no_grad():
        y = model.base(x) + x @ shift

    def how(m):
        return torch.optim.Adam([m.down, m.up], 0.01)

    def gained(o, t):
        with torch.no_grad():
            before = F.mse_loss(model.base(x), t)
        return 1 - (F.mse_loss(o, t) / before).item()

    return Program(model, x, y, F.mse_loss, how, gained, 0.8, 50, 20)


def _same_letter(fixes):
    """The targets of a language model are its inputs, not moved by one; the next letter is scored."""
    make = dice(1114)
    table = torch.randperm(30, generator=make)
    x = torch.zeros(400, 13, dtype=torch.long)
    x[:, 0] = torch.randint(30, (400,), generator=make)
    for k in range(12):
        jump = torch.rand(400, generator=make) < 0.1
        x[:, k + 1] = torch.where(jump, torch.randint(30, (400,), generator=make), table[x[:, k]])
    y = torch.stack([x[:, 1:] if "moved" in fixes else x[:, :-1], x[:, 1:]], 2)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer, self.out = nn.Embedding(30, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 30)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.layer(self.words(x))[0])

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t[..., 0].flatten())

    def following(o, t):
        return (o.argmax(2) == t[..., 1]).double().mean().item()

    return Program(Model(), x[:, :-1], y, loss, adam(0.005), following, 0.8, 40, 12)


def _relu_cell(fixes):
    """The mean of the last six numbers of forty, from a cell whose weights are drawn with deviation 0.3."""
    make = dice(1115)
    x = torch.rand(600, 40, 1, generator=make)
    y = x[:, -6:].mean(1) * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.RNN(1, 50, nonlinearity="tanh" if "tanh" in fixes else "relu", batch_first=True)
            if "drawn" not in fixes:
                nn.init.normal_(self.layer.weight_hh_l0, 0, 0.3)
            self.out = nn.Linear(50, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.layer(x)[0][:, -1])

    def step(model, optimizer, loss, x, y):
        if "clip" not in fixes:
            return plain_step(model, optimizer, loss, x, y)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return error.item()

    return Program(Model(), x, y, F.mse_loss, adam(), r_squared, 0.6, 20, 25, step=step)


PROGRAMS = {
    "forum-188664": _minus_spread,
    "forum-71751": _three_points,
    "forum-loss-made-anew": _loss_made_anew,
    "forum-detached-twice": _detached_twice,
    "forum-best-of-the-batch": _best_of_the_batch,
    "forum-kl-of-probabilities": _divergence_of_probabilities,
    "forum-no-places": _no_places,
    "forum-statistics-of-bytes": _statistics_of_bytes,
    "forum-padding-wins": _padding_wins,
    "forum-negatives-pulled": _negatives_pulled,
    "forum-blank-is-a-letter": _blank_is_a_letter,
    "forum-norm-at-the-end": _norm_at_the_end,
    "gh-lora-both-zero": _both_zero,
    "forum-same-letter": _same_letter,
    "forum-relu-cell": _relu_cell,
}

STORIES = {
    "forum-188664": (
        "PyTorch forum 188664, Loss function finding extreme local minimum",
        "A hundred deviations of the outputs are taken off the squared error: spread is worth more than fit.",
        {"plain": ("loss", "squared error alone")},
    ),
    "forum-71751": (
        "PyTorch forum 71751, Finding coefficients of a polynomial through linear regression",
        "x^2 and x of three points up to 5, summed error, momentum 0.9 at 0.01: infinite at once.",
        {
            "rate": ("learning rate", "0.0001 for 0.01, where inputs are not standardized"),
            "standardized": ("input scale", "standardized"),
            "mean": ("loss", "the mean for the sum"),
        },
    ),
    "forum-loss-made-anew": (
        "PyTorch forum's kind of question: loss = Variable(loss.data, requires_grad=True)",
        "The loss is wrapped anew so that backward() raises nothing: no gradient reaches the network.",
        {"kept": ("gradient flow", "the loss as it is")},
    ),
    "forum-detached-twice": (
        "PyTorch forum's kind of question: a generator that does not learn",
        "What the generator made is detached for its own step too.",
        {"attached": ("gradient flow", "not detached in the generator's step")},
    ),
    "forum-best-of-the-batch": (
        "PyTorch forum's kind of question: max over the batch in Q-learning",
        "The best next value is taken over the batch in place of the actions.",
        {"dim": ("shapes", "max over the actions")},
    ),
    "forum-kl-of-probabilities": (
        "PyTorch forum's kind of question: KLDivLoss is negative",
        "kl_div wants logarithms and gets probabilities.",
        {"logarithms": ("output activation", "log_softmax for softmax")},
    ),
    "forum-no-places": (
        "PyTorch forum's kind of question: a transformer without positional encoding",
        "Whether the largest number comes early or late cannot be told from a bag.",
        {"places": ("architecture", "learned places are added")},
    ),
    "forum-statistics-of-bytes": (
        "PyTorch forum's kind of question: Normalize with statistics of 0 to 255 after ToTensor",
        "All pixels become -0.8, to two digits.",
        {"statistics": ("input scale", "statistics of 0 to 1")},
    ),
    "forum-padding-wins": (
        "PyTorch forum's kind of question: cross-entropy over padding",
        "Nine places in ten are padding, and padding is all that is predicted.",
        {"ignored": ("loss", "ignore_index"), "rate": ("learning rate", "0.02 for 0.003")},
    ),
    "forum-negatives-pulled": (
        "PyTorch forum's kind of question: skip grams with negative sampling",
        "The minus before the negatives is missing: all words are neighbours.",
        {"sign": ("loss", "minus before the negatives")},
    ),
    "forum-blank-is-a-letter": (
        "GitHub's kind of issue with crnn.pytorch and warp-ctc: letters numbered from 0",
        "Letters are numbered from 0, which is the blank.",
        {"numbers": ("labels", "numbered from 1")},
    ),
    "forum-norm-at-the-end": (
        "PyTorch forum's kind of question: batch norm after the last layer of a regression",
        "Targets are near 60, and batch norm keeps outputs near 0.",
        {
            "end": ("normalization", "no batch norm at the output"),
            "targets": ("target scale", "standardized"),
            "rate": ("learning rate", "0.03 for 0.001"),
        },
    ),
    "gh-lora-both-zero": (
        "GitHub's kind of issue: an adapter (LoRA) with both factors zero",
        "A product of two zero matrices has no slope in either.",
        {"drawn": ("initialization", "one factor is drawn")},
    ),
    "forum-same-letter": (
        "PyTorch forum's kind of question: targets of a language model that are its inputs",
        "The loss goes to 0 and what is written repeats one letter: targets are not moved by one.",
        {"moved": ("labels", "targets moved by one")},
    ),
    "forum-relu-cell": (
        "PyTorch forum's and Keras' kind of question: a recurrent layer of ReLU",
        "A ReLU cell with wide weights grows over 40 steps: huge outputs, or nan.",
        {
            "tanh": ("hidden activation", "tanh for ReLU"),
            "drawn": ("initialization", "PyTorch's law for deviation 0.3"),
            "clip": ("update", "gradients clipped to a norm of 1"),
        },
    ),
}
