"""PyTorch forum and GitHub: loops, losses, sequence models; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    dice,
    digits,
    garments,
    he,
    initialized,
    normal,
    once_each,
    photographs,
    r_squared,
    rmsprop,
    sgd,
    signs,
    token_accuracy,
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
    "gh-pytorch-crf-81",
    "GitHub kmkurn/pytorch-crf issue 81, bi-LSTM with CRF not training properly",
    "The layer returns the log likelihood, and that is minimized: a big negative loss, one tag for all.",
    sign=("loss", "minus the log likelihood"),
)
def _crf(fixes):
    # sentences drawn: 12 words of a vocabulary of 30, three tags that follow the word and the tag before
    make = dice(10602)
    x = torch.randint(30, (300, 12), generator=make)
    y = x % 3
    y[:, 1:] = torch.where(x[:, 1:] > 20, y[:, :-1], y[:, 1:])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm = nn.Embedding(30, 16), nn.LSTM(16, 16, batch_first=True, bidirectional=True)
            self.out, self.trans = nn.Linear(32, 3), nn.Parameter(torch.empty(3, 3).uniform_(-0.1, 0.1))

        def forward(self, x):
            return self.out(self.lstm(self.words(x))[0])

    model = Net()

    def loss(e, t):
        score = e.gather(2, t[:, :, None])[:, :, 0].sum(1) + model.trans[t[:, :-1], t[:, 1:]].sum(1)
        a = e[:, 0]
        for k in range(1, e.shape[1]):
            a = (a[:, :, None] + model.trans).logsumexp(1) + e[:, k]
        likely = (score - a.logsumexp(1)).mean()
        return -likely if "sign" in fixes else likely

    def tags(e, t):
        a, back = e[:, 0], []
        for k in range(1, e.shape[1]):
            best, which = (a[:, :, None] + model.trans).max(1)
            a = best + e[:, k]
            back.append(which)
        path = [a.argmax(1)]
        for which in reversed(back):
            path.append(which.gather(1, path[-1][:, None])[:, 0])
        return (torch.stack(path[::-1], 1) == t).double().mean().item()

    return Program(model, x, y, loss, adam(0.005), tags, 0.85, 32, 20)


@case(
    "gh-learning2rank-23",
    "GitHub shiba24/learning2rank issue 23, Runtime Warning and unchanged loss (symptom: train mean loss=0.0; "
    "the cause is ours)",
    "ListNet: the softmax over the documents is taken over the last axis, which has one place.",
    dim=("shapes", "over the documents"),
)
def _listnet(fixes):
    # 200 queries of 10 documents with 12 columns, drawn
    make = dice(10603)
    x = torch.randn(200, 10, 12, generator=make)
    y = 2 * torch.tanh(x[..., :1] + x[..., 1:2] * x[..., 2:3]) + 0.2 * torch.randn(200, 10, 1, generator=make)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
    dim = 1 if "dim" in fixes else 2

    def loss(o, t):
        return -(t.softmax(dim) * o.log_softmax(dim)).sum(dim).mean()

    def order(o, t):
        o, t = o[..., 0], t[..., 0]
        gap = (o[:, :, None] - o[:, None]).sign() * (t[:, :, None] - t[:, None]).sign()
        return gap.double().sum().item() / 200 / 90

    return Program(model, x, y, loss, adam(0.003), order, 0.6, 10, 30)


def chain():
    """All moves on a line of nine states, reward at the right end, 20 times; the state, and what comes of it with Q."""
    rows = []
    for s in range(8):
        for a in range(2):
            to = min(s + 1, 8) if a else max(s - 1, 0)
            done = to == 8
            best = 0.9 ** (7 - to) if not done else 1.0
            q = 1.0 if done else 0.9 * best
            rows.append([s, a, float(done), to, float(done), q])
    table = torch.tensor(rows).repeat(20, 1)
    return F.one_hot(table[:, 0].long(), 9).float(), table[:, 1:]


def q_value(outputs, y):
    return r_squared(outputs.gather(1, y[:, :1].long()), y[:, 4:])


def q_net():
    return nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 2))


def q_step(copy):
    """One batch of Q-learning with a target network; copy(count, model, target) after the update."""
    made = once_each(lambda optimizer: {"count": 0, "target": None})

    def step(model, optimizer, loss, x, y):
        held = made(optimizer)
        if held["target"] is None:
            held["target"] = q_net()
        with torch.no_grad():
            ahead = held["target"](F.one_hot(y[:, 2].long(), 9).float()).max(1)[0]
            goal = y[:, 1] + 0.9 * ahead * (1 - y[:, 3])
        optimizer.zero_grad()
        error = loss(model(x).gather(1, y[:, :1].long())[:, 0], goal)
        error.backward()
        optimizer.step()
        held["count"] += 1
        copy(held["count"], model, held["target"])
        return error.item()

    return step


@case(
    "gh-nntrainer-2680",
    "GitHub nntrainer/nntrainer pull request 2680, Bug fix in RL example (copy mainNet to targetNet was not "
    "written as intended)",
    "The copy goes the wrong way: every 25 updates the main network becomes the target network again.",
    way=("update", "main to target"),
)
def _copy_back(fixes):
    # a line of nine states for the cart
    x, y = chain()

    def copy(count, model, target):
        if count % 25 == 0:
            if "way" in fixes:
                target.load_state_dict(model.state_dict())
            else:
                model.load_state_dict(target.state_dict())

    return Program(q_net(), x, y, F.mse_loss, adam(0.01), q_value, 0.85, 32, 80, step=q_step(copy))


@case(
    "gh-rainbow-stocks-6",
    "GitHub THINK989/Real-Time-Stock-Market-Prediction-using-Ensemble-DL-and-Rainbow-DQN issue 6, N_iter is "
    "never updated",
    "A counter stays at 0, so the target network never becomes a copy: rewards are known one step back only.",
    copied=("update", "copied every 25 updates"),
)
def _never_copied(fixes):
    # a line of nine states for the market
    x, y = chain()

    def copy(count, model, target):
        if "copied" in fixes and count % 25 == 0:
            target.load_state_dict(model.state_dict())

    return Program(q_net(), x, y, F.mse_loss, rmsprop(0.003), q_value, 0.85, 16, 60, step=q_step(copy))


@case(
    "gh-keras-2001",
    "GitHub keras-team/keras issue 2001, Train mnist_siamese_graph.py with train_on_batch returns nan loss",
    "Digits of zero mean and unit variance, pixel by pixel: the border's deviation is 0, the loss nan.",
    guarded=("input scale", "the deviation is at least 0.1"),
)
def _zero_deviation(fixes):
    # towers of 64 units for 128, 800 pairs
    make = dice(10604)
    images, kind = digits(1000)
    images = images.flatten(1) / 255
    deviation = images.std(0).clamp(min=0.1) if "guarded" in fixes else images.std(0)
    images = (images - images.mean(0)) / deviation
    first = torch.randint(1000, (800,), generator=make)
    same = torch.arange(800) % 2 == 0
    second = torch.stack(
        [
            (kind == kind[i]).nonzero()[torch.randint((kind == kind[i]).sum().item(), (1,), generator=make), 0][0]
            if s
            else (kind != kind[i]).nonzero()[torch.randint((kind != kind[i]).sum().item(), (1,), generator=make), 0][0]
            for i, s in zip(first, same, strict=True)
        ]
    )
    x = torch.stack([images[first], images[second]], 1)
    y = same.float()[:, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU())

        def forward(self, x):
            a, b = self.tower(x[:, 0]), self.tower(x[:, 1])
            return ((a - b) ** 2).sum(1, keepdim=True).clamp(min=1e-7).sqrt()

    def contrastive(d, t):
        return (t * d**2 + (1 - t) * (1 - d).clamp(min=0) ** 2).mean()

    def told(d, t):
        return ((d < 0.5) == (t > 0.5)).double().mean().item()

    return Program(Net(), x, y, contrastive, rmsprop(), told, 0.85, 64, 12)


@case(
    "gh-simgan-captcha-4",
    "GitHub 0b01/SimGAN-Captcha issue 4, when pre-train discriminator, loss keeps the same",
    "discriminator_model.trainable = False stands before compile: the loss is 0.693147 for real and synthetic images.",
    trainable=("gradient flow", "set to False after compile, for the combined model only"),
)
def _frozen_discriminator(fixes):
    # digits, and digits with rows mixed up
    x, _ = digits(600)
    fake = x[300:][:, :, torch.randperm(28, generator=dice(10605))]
    x = torch.cat([x[:300], fake]) / 127.5 - 1
    y = (torch.arange(600) < 300).long()
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 1),
        nn.ReLU(),
        nn.Conv2d(8, 2, 1),
        nn.Flatten(),
        nn.Linear(18, 2),
    )
    on = "trainable" in fixes
    for p in model.parameters():
        p.requires_grad_(on)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        if on:
            error.backward()
        optimizer.step()
        return error.item()

    return Program(model, x, y, F.cross_entropy, adam(0.003), accuracy, 0.9, 32, 15, step=step)


@case(
    "gh-coursia-15256",
    "GitHub jsboige/CoursIA pull request 15256, dead critic: value loss detached from the graph, critic never trained",
    "Policy and value loss are added, but the values of the second were kept with .detach(): the critic never learns.",
    attached=("gradient flow", "the values with their graph"),
)
def _dead_critic(fixes):
    # rewards of 600 drawn states; the score is the critic's
    make = dice(10606)
    x = torch.randn(600, 6, generator=make)
    action = torch.randint(3, (600,), generator=make)
    value = 2 * x[:, 0] + x[:, 1] ** 2
    reward = value + x[:, 2:5].gather(1, action[:, None])[:, 0] * 0.5
    y = torch.stack([reward, action.float()], 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
            self.critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))

        def forward(self, x):
            return torch.cat([self.actor(x), self.critic(x)], 1)

    def loss(o, t):
        logp, v = o[:, :3].log_softmax(1).gather(1, t[:, 1:].long())[:, 0], o[:, 3]
        policy = (
            -(logp * (t[:, 0] - v.detach()).clamp(-1, 1)).mean()
            - 0.05 * (-(o[:, :3].softmax(1) * o[:, :3].log_softmax(1)).sum(1)).mean()
        )
        kept = v if "attached" in fixes else v.detach()
        return policy + 0.5 * ((kept - t[:, 0]) ** 2).mean()

    def critic(o, t):
        return r_squared(o[:, 3], t[:, 0])

    return Program(Net(), x, y, loss, adam(0.01), critic, 0.7, 32, 40)


@case(
    "gh-caffe-2085",
    "GitHub BVLC/caffe issues 2085 and 59, testing accuracy 0.001 on ImageNet after two days of training",
    "CaffeNet with weights of deviation 0.01 and biases of 1 in its later layers: chance; 'change all the bias "
    "1 to 0.1'.",
    biases=("initialization", "biases 0.1"),
    drawn=("initialization", "He"),
    scale=("input scale", "/ 60"),
)
def _caffenet(fixes):
    # 16 x 16 photographs of three kinds, 12 to 24 filters, 48 units; rate and momentum of the model
    x, y = photographs(3000)
    keep = ((y == 0) | (y == 1) | (y == 6)).nonzero()[:, 0]
    x, y = (x[keep] - 120) / (60 if "scale" in fixes else 1), (y[keep] > 0).long() + (y[keep] > 1).long()
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 48),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(48, 48),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(48, 3),
    )
    initialized(model, he if "drawn" in fixes else normal(0.01))
    layers = [layer for layer in model if isinstance(layer, (nn.Conv2d, nn.Linear))]
    for k in (1, 3, 4, 5, 6):
        nn.init.constant_(layers[k].bias, 0.1 if "biases" in fixes else 1.0)
    return Program(model, x, y, F.cross_entropy, sgd(0.01, momentum=0.9, weight_decay=5e-4), accuracy, 0.6, 32, 20)


@case(
    "gh-mobilenet-caffe-75",
    "GitHub shicai/MobileNet-Caffe issue 75, Fine-tune with provided solver leads to loss=87.3365",
    "Fine-tuning with the solver's rate: within 20 iterations the loss is at its ceiling; 'reduce lr'.",
    rate=("learning rate", "0.02 in place of 1"),
)
def _ceiling(fixes):
    # depthwise layers of 16 and 24 filters on garments, from the start; Caffe's floor of probabilities
    x, y = garments(800)
    layers = [nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU()]
    for a, b, s in ((16, 16, 1), (16, 24, 2), (24, 24, 2)):
        layers += [nn.Conv2d(a, a, 3, stride=s, padding=1, groups=a), nn.ReLU(), nn.Conv2d(a, b, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    initialized(model, he)

    def loss(o, t):
        return -o.softmax(1).clamp(min=1.1754944e-38).log().gather(1, t[:, None]).mean()

    rate = 0.02 if "rate" in fixes else 1.0
    return Program(model, x / 127.5 - 1, y, loss, sgd(rate, momentum=0.9), accuracy, 0.55, 32, 15)


@case(
    "gh-outfit-transformer-3",
    "GitHub bigohofone/outfit-transformer issue 3, acc is always about 0.5 when training cp task (symptom; the "
    "rate is ours)",
    "A transformer with a class token tells whether things go together: the accuracy stays at one half.",
    rate=("learning rate", "0.0005 in place of 0.02"),
    first=("normalization", "norm before attention"),
)
def _outfits(fixes):
    # sets of 5 vectors of 16; they go together where all are near one direction
    make = dice(10607)
    y = (torch.rand(600, 1, generator=make) < 0.5).float()
    style = torch.randn(600, 1, 16, generator=make)
    x = torch.where(
        y[:, :, None] > 0.5,
        style + 0.6 * torch.randn(600, 5, 16, generator=make),
        1.16 * torch.randn(600, 5, 16, generator=make),
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 32) * 0.02)
            self.into = nn.Linear(16, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True, norm_first="first" in fixes)
            self.body, self.out = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(32, 1)

        def forward(self, x):
            z = torch.cat([self.token.expand(len(x), 1, 32), self.into(x)], 1)
            return self.out(self.body(z)[:, 0])

    rate = 5e-4 if "rate" in fixes else 0.02
    return Program(Net(), x, y, F.binary_cross_entropy_with_logits, adam(rate), signs, 0.85, 32, 25)


@case(
    "forum-view-for-permute",
    "a kind of question of the PyTorch forum: x.view(seq_len, batch, features) in front of an LSTM, the loss "
    "does not decrease",
    "The batch is reshaped, not transposed: steps of different examples are mixed up.",
    permuted=("shapes", "x.permute(1, 0, 2)"),
)
def _viewed(fixes):
    make = dice(10609)
    x = torch.randn(600, 12, 5, generator=make)
    y = (x[:, :, 0].cumsum(1)[:, -1] > 0).long() + 2 * (x[:, -1, 1] > 0).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(5, 32), nn.Linear(32, 4)

        def forward(self, x):
            x = x.permute(1, 0, 2) if "permuted" in fixes else x.reshape(12, len(x), 5)
            return self.out(self.lstm(x)[0][-1])

    return Program(Net(), x, y, F.cross_entropy, adam(0.005), accuracy, 0.8, 30, 25)


@case(
    "forum-accumulated-forever",
    "a kind of question of the PyTorch forum: gradient accumulation, the loss is the same in all epochs",
    "step() where (i + 1) % 64 == 0, but an epoch has 25 batches, and zero_grad() stands at the beginning of "
    "each epoch.",
    steps=("update", "every 2 batches"),
)
def _accumulated(fixes):
    x, y = digits(800)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    every = 2 if "steps" in fixes else 64
    counts = once_each(lambda optimizer: [0])

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        if count[0] % 25 == 0:
            optimizer.zero_grad()
            count[0] = 0
        error = loss(model(x), y)
        (error / every).backward()
        count[0] += 1
        if count[0] % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return error.item()

    return Program(model, x / 255, y, F.cross_entropy, adam(), accuracy, 0.85, 32, 10, step=step)


@case(
    "forum-onecycle-by-epoch",
    "a kind of question of the PyTorch forum and fast.ai's: OneCycleLR(steps_per_epoch=len(loader)) with "
    "scheduler.step() once an epoch",
    "The schedule counts batches, but is stepped by epoch: the rate stays at 1/25 of its peak.",
    stepped=("update", "stepped by batch"),
    peak=("learning rate", "max_lr 0.5 in place of 0.02"),
)
def _one_cycle(fixes):
    x, y = digits(1000)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 10),
    )
    made = once_each(
        lambda optimizer: [
            0,
            torch.optim.lr_scheduler.OneCycleLR(
                optimizer, 0.5 if "peak" in fixes else 0.02, epochs=8, steps_per_epoch=32, cycle_momentum=False
            ),
        ]
    )

    def step(model, optimizer, loss, x, y):
        held = made(optimizer)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        held[0] += 1
        if ("stepped" in fixes or held[0] % 32 == 0) and held[0] < 256:
            held[1].step()
        return error.item()

    return Program(model, x / 255, y, F.cross_entropy, sgd(0.01), accuracy, 0.6, 32, 8, step=step)


@case(
    "annotated-transformer-warmup",
    "a kind of issue of harvardnlp/annotated-transformer: NoamOpt with warmup=4000 on a small set of one's own",
    "The rate rises for 4,000 steps; the training has 300.",
    warmup=("learning rate", "warmup 400"),
    epochs=("training length", "100 in place of 15 (50 with the short warmup)"),
)
def _noam(fixes):
    # letters backwards, 6 of a vocabulary of 11; one encoder with places, width 32, factor 1 as there
    make = dice(10610)
    x = torch.randint(1, 11, (640, 6), generator=make)
    y = x.flip(1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(11, 32), nn.Parameter(torch.randn(6, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 11)
            for p in self.body.parameters():
                if p.dim() > 1:
                    nn.init.xavier_uniform_(p)

        def forward(self, x):
            return self.out(self.body(self.words(x) * 32**0.5 + self.places))

    warm = 400 if "warmup" in fixes else 4000
    counts = once_each(lambda optimizer: [0])

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        count[0] += 1
        for group in optimizer.param_groups:
            group["lr"] = 32**-0.5 * min(count[0] ** -0.5, count[0] * warm**-1.5)
        optimizer.zero_grad()
        error = loss(model(x).flatten(0, 1), y.flatten())
        error.backward()
        optimizer.step()
        return error.item()

    epochs = 100 if "epochs" in fixes and "warmup" not in fixes else 50 if "epochs" in fixes else 15
    how = adam(1e-4, betas=(0.9, 0.98), eps=1e-9)
    return Program(Net(), x, y, F.cross_entropy, how, token_accuracy, 0.85, 32, epochs, step=step)


@case(
    "forum-focal-alpha-one",
    "a kind of question of the PyTorch forum: focal loss with alpha=1, everything is predicted positive",
    "alpha weighs the positives and 1 - alpha the negatives: with alpha=1 negatives cost nothing.",
    alpha=("loss", "alpha=0.25"),
)
def _focal(fixes):
    make = dice(10611)
    y = (torch.rand(800, 1, generator=make) < 0.2).float()
    x = torch.randn(800, 10, generator=make) + y * torch.tensor([1.5, -1.5, 1.0, 1.0, -1.0, 0, 0, 0, 0, 0])
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    alpha = 0.25 if "alpha" in fixes else 1.0

    def loss(o, t):
        p = o.sigmoid()
        pt, a = torch.where(t > 0.5, p, 1 - p), torch.where(t > 0.5, torch.tensor(alpha), torch.tensor(1 - alpha))
        return (a * (1 - pt) ** 2 * F.binary_cross_entropy_with_logits(o, t, reduction="none")).mean()

    def balanced(o, t):
        hit = ((o > 0) == (t > 0.5)).double()
        return (hit[t > 0.5].mean().item() + hit[t < 0.5].mean().item()) / 2

    return Program(model, x, y, loss, adam(0.003), balanced, 0.8, 32, 30)


@case(
    "gh-five-video-26",
    "GitHub harvitronix/five-video-classification-methods pull request 26, Fixes bug where our fine-tuning "
    "layers were frozen",
    "All layers are frozen, the new ones at the top with them.",
    top=("gradient flow", "the new layers are trained"),
)
def _frozen_top(fixes):
    # a random convolutional base for Inception, garments for frames
    x, y = garments(800)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(384, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    initialized(model, he)
    for layer in model if "top" not in fixes else model[:6]:
        for p in layer.parameters():
            p.requires_grad_(False)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        if error.requires_grad:
            error.backward()
        optimizer.step()
        return error.item()

    return Program(model, x / 127.5 - 1, y, F.cross_entropy, adam(0.002), accuracy, 0.7, 32, 10, step=step)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
