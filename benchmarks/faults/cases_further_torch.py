"""PyTorch forum and GitHub: loops, losses, sequence models; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    dice,
    digits,
    garments,
    once_each,
    r_squared,
    rmsprop,
    sgd,
)
from faults import Program
from torch import nn
from torch.nn import functional as F

CASES = {}


def case(name, source, story, **fixes):
    def add(build):
        CASES[name] = (source, story, fixes, build)
        return build

    return add


@case(
    "forum-50431",
    "PyTorch forum 50431, Why the model fail to converge without a manul weight initialization?",
    "x.squeeze() is not kept: outputs (n, 1) against targets (n,), so that all are compared with all.",
    squeezed=("shapes", "x = x.squeeze()"),
)
def _not_squeezed(fixes):
    # data and network of the thread, 2,000 rows for 10,000; Adam at 0.05 assumed
    make = dice(9501)
    x = torch.randn(2000, 2, generator=make) * 100
    y = 5 * x[:, 0] + 3 * x[:, 1] + torch.randn(2000, generator=make)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1 = nn.Linear(2, 1, bias=False)

        def forward(self, x):
            x = self.layer1(x)
            return x.squeeze(1) if "squeezed" in fixes else x

    return Program(Net(), x, y, F.mse_loss, adam(0.05), r_squared, 0.9, 100, 30)


@case(
    "forum-sign-between",
    "PyTorch forum (Soratobtai, April 2019), Circumventing an indifferentiability problem",
    "torch.sign between the layers: no gradient comes to the first one.",
    tanh=("hidden activation", "tanh in place of sign"),
)
def _sign(fixes):
    # the thread has two numbers and two units; here two spirals, and a narrow net
    make = dice(9502)
    a = torch.rand(600, 1, generator=make) * 6.0
    y = (torch.rand(600, 1, generator=make) < 0.5).float()
    x = torch.cat([a * torch.cos(a + 3.14159 * y), a * torch.sin(a + 3.14159 * y)], 1) / 3
    x = x + 0.05 * torch.randn(600, 2, generator=make)

    class Sign(nn.Module):
        def forward(self, x):
            return torch.tanh(x) if "tanh" in fixes else torch.sign(x)

    model = nn.Sequential(nn.Linear(2, 16), Sign(), nn.Linear(16, 4), Sign(), nn.Linear(4, 1), nn.Sigmoid())
    return Program(model, x, y, F.binary_cross_entropy, adam(0.02), accuracy, 0.9, 50, 150)


@case(
    "forum-mean-then-square",
    "a kind of question of the PyTorch forum: my own MSE, torch.mean(output - target) ** 2, goes to zero and "
    "the predictions are useless",
    "The square is taken of the mean, not the mean of the squares.",
    inside=("loss", "torch.mean((output - target) ** 2)"),
)
def _mean_then_square(fixes):
    # all rows in one batch
    make = dice(9503)
    x = torch.randn(400, 6, generator=make)
    y = x[:, :1] * 2 - x[:, 1:2] + torch.sin(2 * x[:, 2:3])
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss(o, t):
        return ((o - t) ** 2).mean() if "inside" in fixes else (o - t).mean() ** 2

    return Program(model, x, y, loss, adam(0.005), r_squared, 0.8, 400, 500)


@case(
    "forum-attention-of-one",
    "a kind of question of the PyTorch forum: all attention weights are 1",
    "Scores of shape (batch, steps, 1) go through softmax(dim=2): every weight is 1, and the steps are summed.",
    dim=("shapes", "softmax(dim=1)"),
)
def _attention_of_one(fixes):
    make = dice(9504)
    x = torch.randn(600, 24, 9, generator=make)
    x[:, :, 0] = 0
    where = torch.randint(24, (600,), generator=make)
    x[torch.arange(600), where, 0] = 3  # the step that counts is marked
    y = x[torch.arange(600), where, 1:5].argmax(1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.key, self.score, self.value, self.out = (
                nn.Linear(9, 16),
                nn.Linear(16, 1),
                nn.Linear(9, 16),
                nn.Linear(16, 4),
            )

        def forward(self, x):
            weights = self.score(torch.tanh(self.key(x))).softmax(1 if "dim" in fixes else 2)
            return self.out((weights * self.value(x)).sum(1))

    return Program(Net(), x, y, F.cross_entropy, adam(0.005), accuracy, 0.8, 32, 40)


@case(
    "forum-net-made-anew",
    "a kind of question of the PyTorch forum: the loss starts from the same value in every epoch (the network "
    "is made in the loop)",
    "Weights and optimizer are made anew at the beginning of each epoch.",
    once=("update", "made once, before the loop"),
)
def _made_anew(fixes):
    x, y = digits(1000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    counts = once_each(lambda optimizer: [0])

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        if count[0] % 10 == 0 and "once" not in fixes:
            for layer in model:
                if isinstance(layer, nn.Linear):
                    layer.reset_parameters()
        count[0] += 1
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        return error.item()

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.02, momentum=0.5), accuracy, 0.8, 100, 40, step=step)


@case(
    "forum-wgan-clamp",
    "a kind of question of the PyTorch forum: the critic's loss stays at 0.69 / near 0 (weights clamped to "
    "0.01 after each step, as in WGAN)",
    "All parameters of a deep discriminator are clamped to +-0.01 after each step.",
    clamp=("update", "not clamped"),
    wide=("update", "clamped to 0.1"),
)
def _clamped(fixes):
    # garments against garments with rows shuffled; seven layers of 64
    x, _ = garments(800)
    x = x[:, 0] / 127.5 - 1
    fake = x[400:][:, torch.randperm(28, generator=dice(9505))]
    x = torch.cat([x[:400], fake])
    y = (torch.arange(800) < 400).float()[:, None]
    layers = [nn.Flatten(), nn.Linear(784, 64), nn.LeakyReLU(0.2)]
    for _ in range(6):
        layers += [nn.Linear(64, 64), nn.LeakyReLU(0.2)]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    bound = None if "clamp" in fixes else 0.1 if "wide" in fixes else 0.01

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        if bound:
            for p in model.parameters():
                p.data.clamp_(-bound, bound)
        return error.item()

    def right(o, t):
        return ((o > 0) == (t > 0.5)).double().mean().item()

    return Program(model, x, y, F.binary_cross_entropy_with_logits, rmsprop(2e-4), right, 0.9, 64, 20, step=step)


@case(
    "gh-gymnasium-1336",
    "GitHub Farama-Foundation/Gymnasium issue 1336, Bad REINFORCE implementation for Mujoco tutorial",
    "The log probabilities are averaged before they are multiplied with the returns: no action is told from another.",
    each=("loss", "each log probability times its own return"),
)
def _mean_of_logs(fixes):
    # an arm of four is pulled by the state, returns less their mean
    make = dice(9506)
    x = torch.randn(512, 6, generator=make)
    best = (x @ torch.randn(6, 4, generator=make)).argmax(1)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))

    def step(model, optimizer, loss, x, y):
        law = torch.distributions.Categorical(logits=model(x))
        action = law.sample()
        gains = (action == y).float()
        gains = gains - gains.mean()
        logs = law.log_prob(action)
        error = -(logs * gains).sum() if "each" in fixes else -(logs.mean() * gains).sum()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        return error.item()

    return Program(model, x, best, F.cross_entropy, adam(0.005), accuracy, 0.75, 32, 40, step=step)


@case(
    "gh-lavt-25",
    "GitHub yz93/LAVT-RIS issue 25, About zero initialization",
    "Both linear layers of the language gate begin at zero, with ReLU between and tanh after: the gate never opens.",
    first=("initialization", "the first one is drawn"),
)
def _gate(fixes):
    # what is seen is noise, the sentence tells the class
    make = dice(9508)
    y = torch.randint(5, (500,), generator=make)
    said = torch.randn(5, 16, generator=make)[y] + 0.3 * torch.randn(500, 16, generator=make)
    x = torch.cat([torch.randn(500, 16, generator=make), said], 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.see, self.read = nn.Linear(16, 32), nn.Linear(16, 32)
            self.one, self.two = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
            self.out = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
            nn.init.zeros_(self.two.weight)
            if "first" not in fixes:
                nn.init.zeros_(self.one.weight)

        def forward(self, x):
            seen, read = self.see(x[:, :16]), self.read(x[:, 16:])
            gate = self.two(self.one(read).relu()).tanh()
            return self.out(seen.relu() + gate * read)

    return Program(Net(), x, y, F.cross_entropy, adam(0.003), accuracy, 0.85, 32, 8)


@case(
    "gh-3d-mri-7",
    "GitHub IAmSuyogJadhav/3d-mri-brain-tumor-segmentation issue 7, Shouldn't the dice coefficient loss be negative?",
    "The loss is the Dice coefficient itself, which is made as small as can be.",
    sign=("loss", "1 - Dice"),
)
def _dice_sign(fixes):
    # discs on noise, 24 x 24, two convolutions
    make = dice(9509)
    at = torch.rand(160, 2, 1, 1, generator=make) * 14 + 5
    r = torch.arange(24.0)
    y = ((r[None, :, None] - at[:, 0]) ** 2 + (r[None, None, :] - at[:, 1]) ** 2 < 16).float()[:, None]
    x = y * 0.8 + 0.5 * torch.randn(160, 1, 24, 24, generator=make)

    def overlap(o, t):
        return 2 * (o * t).sum() / ((o**2).sum() + (t**2).sum() + 1e-8)

    def loss(o, t):
        return 1 - overlap(o, t) if "sign" in fixes else overlap(o, t)

    model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 5, padding=2), nn.Sigmoid())
    return Program(model, x, y, loss, adam(0.005), lambda o, t: overlap((o > 0.5).float(), t).item(), 0.7, 16, 12)


@case(
    "gh-vqgan-3",
    "GitHub SerezD/vqvae-vqgan-pytorch-lightning issue 3, typo of discriminator loss in non-saturating type",
    "Real and fake pictures are both given ones.",
    zeros=("labels", "zeros_like for the fake ones"),
)
def _both_ones(fixes):
    # garments, and garments blurred, as a first generator makes them
    x, _ = garments(600)
    x = x / 127.5 - 1
    x = torch.cat([x[:300], F.avg_pool2d(x[300:], 5, 1, 2)])
    true = (torch.arange(600) < 300).float()[:, None]
    y = true if "zeros" in fixes else torch.ones_like(true)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(784, 1),
    )

    def right(o, t):
        return ((o > 0) == (t > 0.5)).double().mean().item()

    return Program(model, x, y, F.binary_cross_entropy_with_logits, adam(0.001), right, 0.9, 32, 8, (x, true))


@case(
    "gh-hip-pop-8",
    "GitHub TobiasLee/Chinese-Hip-pop-Generation pull request 8, Fix for the fully connected layer",
    "Inputs transposed for a recurrent encoder, (steps, batch, width), are reshaped to (batch, -1): sentences "
    "are mixed.",
    order=("shapes", "not transposed"),
)
def _mixed(fixes):
    make = dice(9510)
    y = torch.randint(8, (512,), generator=make)
    x = torch.randint(50, (512, 10), generator=make)
    spot = torch.randint(10, (512,), generator=make)
    x[torch.arange(512), spot] = 50 + y  # one word tells the kind
    x[torch.arange(512), (spot + 3) % 10] = 50 + y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(58, 16)
            self.dense = nn.Sequential(nn.Linear(160, 64), nn.ReLU(), nn.Linear(64, 8))

        def forward(self, x):
            z = self.table(x)
            z = z if "order" in fixes else z.transpose(0, 1)
            return self.dense(z.reshape(len(x), -1))

    return Program(Net(), x, y, F.cross_entropy, adam(0.003), accuracy, 0.85, 64, 30)


@case(
    "gh-siamese-triplet-18",
    "GitHub adambielski/siamese-triplet issue 18; keras-team/keras issue 9097, NaN loss when using euclidean "
    "distance for siamese network",
    "sqrt(sum(square)) without an epsilon; some pairs are of the same picture, and the gradient is nan.",
    epsilon=("loss", "sqrt(... + 1e-6)"),
    pairs=("data", "no pair of a picture with itself"),
)
def _root_of_zero(fixes):
    # 784, 64, 32 and RMSprop, 600 pairs of digits
    make = dice(9511)
    x, y = digits(400)
    x = (x / 255).flatten(1)
    left = torch.randint(400, (600,), generator=make)
    right = torch.randint(400, (600,), generator=make)
    for i in range(0, 600, 2):  # every other pair is of one digit
        same = (y == y[left[i]]).nonzero()[:, 0]
        right[i] = same[torch.randint(len(same), (1,), generator=make)]
    right[10:600:60] = left[10:600:60]
    pairs = torch.stack([x[left], x[right]], 1)
    alike = (y[left] == y[right]).float()[:, None]
    clean = left != right
    held = (pairs[clean], alike[clean])
    if "pairs" in fixes:
        pairs, alike = held

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())

        def forward(self, x):
            return torch.cat([self.base(x[:, 0]), self.base(x[:, 1])], 1)

    def distance(o):
        a, b = o.chunk(2, 1)
        return (((a - b) ** 2).sum(1, keepdim=True) + (1e-6 if "epsilon" in fixes else 0)).sqrt()

    def loss(o, t):
        d = distance(o)
        return (t * d**2 + (1 - t) * (1 - d).clamp(min=0) ** 2).mean()

    def near(o, t):
        return ((distance(o) < 0.5) == (t > 0.5)).double().mean().item()

    return Program(Net(), pairs, alike, loss, rmsprop(), near, 0.85, 64, 20, held)


@case(
    "gh-skorch-481",
    "GitHub skorch-dev/skorch issue 481, torch.log(y_pred) in NeuralNetClassifier.get_loss may cause NaN",
    "Softmax in the network and its logarithm in the loss; with Adam and the notebook's rate of 0.1 the loss is nan.",
    stable=("loss", "log_softmax of the logits"),
    rate=("learning rate", "0.001 in place of 0.1"),
)
def _log_of_softmax(fixes):
    # the notebook's 784, 98, 10 and dropout 0.5; 1,000 digits
    x, y = digits(1000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 98), nn.ReLU(), nn.Dropout(0.5), nn.Linear(98, 10))
    if "stable" not in fixes:
        model.append(nn.Softmax(1))

    def loss(o, t):
        return F.cross_entropy(o, t) if "stable" in fixes else F.nll_loss(o.log(), t)

    return Program(model, x / 255, y, loss, adam(0.001 if "rate" in fixes else 0.1), accuracy, 0.8, 128, 20)


@case(
    "forum-lstm-is-output",
    "a kind of question of the PyTorch forum: the outputs of my LSTM never exceed 1 (hidden_size=1, no linear layer)",
    "nn.LSTM(1, 1): its hidden state, within -1 and 1, is the prediction of a power of 40 to 90.",
    linear=("architecture", "32 units and a linear layer"),
    targets=("target scale", "standardized"),
    inputs=("input scale", "standardized"),
)
def _hidden_is_output(fixes):
    make = dice(9513)
    t = torch.arange(640.0)
    s = 65 + 18 * torch.sin(t * 0.21) + 5 * torch.sin(t * 0.05) + torch.randn(640, generator=make)
    w = s.unfold(0, 17, 1)[::2]
    small = (w - 65) / 13
    x, y = (small if "inputs" in fixes else w)[:, :16, None], (small if "targets" in fixes else w)[:, 16:]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            more = "linear" in fixes
            self.lstm = nn.LSTM(1, 32 if more else 1, batch_first=True)
            self.out = nn.Linear(32, 1) if more else nn.Identity()

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    return Program(Net(), x, y, F.mse_loss, adam(0.01), r_squared, 0.8, 16, 40)


@case(
    "forum-plain-tensors",
    "a kind of question of the PyTorch forum: weights of my own layer are not updated (a tensor with "
    "requires_grad, not a Parameter)",
    "self.weight = torch.randn(...).requires_grad_() in each layer: model.parameters() has the biases only.",
    parameter=("update", "nn.Parameter"),
)
def _plain_tensors(fixes):
    x, y = digits(800)

    class Own(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            weight = torch.randn(inputs, outputs) / inputs**0.5
            self.weight = nn.Parameter(weight) if "parameter" in fixes else weight.requires_grad_()
            self.bias = nn.Parameter(torch.zeros(outputs))

        def forward(self, x):
            return x @ self.weight + self.bias

    model = nn.Sequential(nn.Flatten(), Own(784, 64), nn.ReLU(), Own(64, 10))
    return Program(model, x / 255, y, F.cross_entropy, sgd(0.1), accuracy, 0.85, 32, 10)


@case(
    "gh-haiku-442",
    "GitHub google-deepmind/dm-haiku issue 442, Zero gradients after argmax",
    "The loss compares argmax of two outputs with the class: its gradient is zero.",
    soft=("gradient flow", "softmax(outputs) @ (0, 1) in place of argmax"),
    entropy=("loss", "cross-entropy"),
)
def _argmax(fixes):
    # 12, 64, 64, 2 as there; data drawn
    make = dice(9515)
    x = torch.randn(500, 12, generator=make)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def loss(o, t):
        if "entropy" in fixes:
            return F.cross_entropy(o, t)
        guess = o.softmax(1)[:, 1] if "soft" in fixes else o.argmax(1) + 0 * o.sum(1)
        return ((guess - t) ** 2).mean()

    return Program(model, x, y, loss, adam(0.001), accuracy, 0.85, 32, 30)


PROGRAMS = {name: case[3] for name, case in CASES.items()}
