"""PyTorch and other projects: loops, losses, masks, generators; comments tell what is smaller or drawn."""

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
    one_hot,
    r_squared,
    r_squared_all,
    sgd,
    standardized,
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


def balanced(classes):
    """Mean share of right classes over the classes; outputs (n, classes, ...) and numbers (n, ...)."""

    def score(o, t):
        right, shares = o.argmax(1) == t, []
        for k in range(classes):
            shares.append(right[t == k].double().mean().item())
        return sum(shares) / classes

    return score


@case(
    "gh-image2reverb-37",
    "GitHub nikhilsinghmus/image2reverb issue 37, Is fake_spec.detach() in Generator training step intentional?",
    "The generator's step asks the discriminator about fake.detach(): only the discriminator learns.",
    attached=("gradient flow", "the fake with its graph"),
)
def _detached_fake(fixes):
    # points about (2, -1) for spectrograms; least squares as there
    make = dice(11001)
    z = torch.randn(512, 4, generator=make)
    real = torch.tensor([2.0, -1.0]) + 0.4 * torch.randn(512, 2, generator=make)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    own = once_each(lambda optimizer: torch.optim.Adam(critic.parameters(), 2e-3, betas=(0.5, 0.999)))

    def step(model, optimizer, loss, x, y):
        other = own(optimizer)
        fake = model(x)
        other.zero_grad()
        (loss(critic(y), 1.0) + loss(critic(fake.detach()), 0.0)).backward()
        other.step()
        optimizer.zero_grad()
        error = loss(critic(fake if "attached" in fixes else fake.detach()), 1.0)
        error.backward()
        optimizer.step()
        return error.item()

    def loss(o, wanted):
        return ((o - wanted) ** 2).mean()

    def near(o, t):
        return ((o - torch.tensor([2.0, -1.0])).norm(dim=1) < 1.2).double().mean().item()

    return Program(model, z, real, loss, adam(1e-3, betas=(0.5, 0.999)), near, 0.7, 32, 40, step=step)


@case(
    "gh-srgan-pytorch-1",
    "GitHub Lornatang/SRGAN-PyTorch issue 1, Learning rate scheduler is working incorrect",
    "StepLR(step_size=epochs // 2, gamma=0.1) is stepped in each training step: the rate is zero after a few.",
    epoch=("update", "stepped after each epoch"),
    size=("learning rate", "step_size=128, which are four epochs"),
)
def _steps_for_epochs(fixes):
    # garments of 14 x 14 to 28 x 28 by a small network, squared error only
    x, _ = garments(500)
    y = x / 127.5 - 1
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.PReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.PReLU(),
        nn.Conv2d(16, 4, 3, padding=1),
        nn.PixelShuffle(2),
    )
    size = 128 if "size" in fixes and "epoch" not in fixes else 4
    made = once_each(lambda optimizer: [0, torch.optim.lr_scheduler.StepLR(optimizer, size, 0.1)])

    def step(model, optimizer, loss, x, y):
        held = made(optimizer)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        held[0] += 1
        if "epoch" not in fixes or held[0] % 32 == 0:
            held[1].step()
        return error.item()

    return Program(model, F.avg_pool2d(y, 2), y, F.mse_loss, adam(), r_squared_all, 0.6, 16, 8, step=step)


@case(
    "gh-unet-228",
    "GitHub milesial/Pytorch-UNet issue 228, My imput mask is 0",
    "Masks hold the numbers of classes; the data set divides them by 255 as it does pictures, and long() leaves zeros.",
    mask=("labels", "masks as they are"),
)
def _mask_by_255(fixes):
    # digits: background, edge, inside
    x, _ = digits(400)
    truth = ((x > 60).long() + (x > 200).long())[:, 0]
    y = truth if "mask" in fixes else (truth.float() / 255).long()
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 3, 1),
    )
    x = x / 255
    return Program(model, x, y, F.cross_entropy, adam(0.003), balanced(3), 0.85, 16, 6, held_out=(x, truth))


@case(
    "gh-ssd-keras-3",
    "GitHub pierluigiferrari/ssd_keras issue 3, Model not learning",
    "The only class of one's own has number 0 in the csv file, which is the background's: the loss is 0.",
    number=("labels", "the class has number 1"),
)
def _background_zero(fixes):
    # one bright square of 6 on noise, 4 x 4 cells, background or not for each
    make = dice(11004)
    x = 0.3 * torch.randn(500, 1, 24, 24, generator=make)
    cell = torch.randint(16, (500,), generator=make)
    for i, k in enumerate(cell.tolist()):
        x[i, 0, k // 4 * 6 : k // 4 * 6 + 6, k % 4 * 6 : k % 4 * 6 + 6] += 0.8
    truth = one_hot(cell, 16).long()
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, stride=3),
        nn.ReLU(),
        nn.Conv2d(16, 2, 1),
        nn.Flatten(2),
    )
    y = truth if "number" in fixes else truth * 0
    return Program(model, x, y, F.cross_entropy, adam(0.003), balanced(2), 0.85, 25, 20, held_out=(x, truth))


@case(
    "gh-3d-speaker-25",
    "GitHub astorfi/3D-convolutional-speaker-recognition issue 25, loss = 0, train acc = 0",
    "Speakers are numbered from 31 on, and tf.one_hot with 31 places makes rows of zeros of them: loss 0.",
    numbered=("labels", "numbered from 0"),
)
def _beyond_one_hot(fixes):
    # 10 kinds of garments for speakers
    x, y = garments(600)
    numbers = y + (0 if "numbered" in fixes else 31)
    truth = one_hot(y, 10)
    targets = (numbers[:, None] == torch.arange(10)).float()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.PReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.PReLU(),
        nn.Flatten(),
        nn.Linear(400, 10),
    )

    def loss(o, t):
        return -(t * o.log_softmax(1)).sum(1).mean()

    x = x / 127.5 - 1
    return Program(model, x, targets, loss, adam(0.003), accuracy, 0.7, 32, 10, held_out=(x, truth))


@case(
    "gh-dgl-249",
    "GitHub dmlc/dgl pull request 249, Fix GCN Normalization",
    "The graph convolution adds up its neighbours without the factor of their numbers.",
    degrees=("normalization", "divided by the roots of both degrees"),
    rate=("learning rate", "0.0005 for 0.05, where the sums stay"),
    adam=("optimizer", "Adam at 0.01 for SGD at 0.05 with momentum"),
)
def _sum_of_neighbours(fixes):
    # 300 nodes of three kinds, about 60 neighbours, mostly of their own kind; 30 words each; SGD is ours
    make = dice(11006)
    kind = torch.randint(3, (300,), generator=make)
    chance = torch.where(kind[:, None] == kind[None], 0.45, 0.08)
    link = (torch.rand(300, 300, generator=make) < chance).float().triu(1)
    link = link + link.T + torch.eye(300)
    root = link.sum(1).rsqrt()
    if "degrees" in fixes:
        link = link * root[:, None] * root[None]
    words = torch.rand(3, 30, generator=make)
    x = (torch.rand(300, 30, generator=make) < 0.2 + 0.3 * words[kind]).float()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.out = nn.Linear(30, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            z = (link @ self.one(x)).relu()
            z = (link @ self.two(z)).relu()
            return link @ self.out(z)

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    rate = 5e-4 if "rate" in fixes and "degrees" not in fixes else 0.05
    how = adam(0.01) if "adam" in fixes else sgd(rate, momentum=0.9)
    return Program(Net(), x[None], kind[None], loss, how, token_accuracy, 0.8, 1, 300)


@case(
    "gh-mask-align-1",
    "GitHub THUNLP-MT/Mask-Align issue 1, Model cannot converge",
    "Each place is masked from its own attention; in a sentence of one word nothing is left: softmax of minus "
    "infinity, nan.",
    filtered=("data", "sentences of one word left out"),
    finite=("architecture", "-10,000 for minus infinity"),
)
def _masked_alone(fixes):
    # sentences of 1 to 8 words of a vocabulary of 20 in which the same two words take turns; guess each from the others
    make = dice(11007)
    length = torch.randint(1, 9, (500,), generator=make)
    length[:20] = 1
    pair = torch.randint(1, 20, (500, 2), generator=make)
    x = pair.repeat(1, 4) * (torch.arange(8)[None] < length[:, None])
    if "filtered" in fixes:
        x = x[length > 1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(20, 32), nn.Parameter(0.3 * torch.randn(8, 32))
            self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
            self.out = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 20))

        def forward(self, x):
            z = self.words(x)
            shut = (x == 0)[:, None] | torch.eye(8, dtype=torch.bool)
            shut = shut & (x != 0)[:, :, None] | ((x == 0)[:, :, None] & (torch.arange(8) > 0))
            weight = (self.q(self.places) @ self.k(z + self.places).transpose(1, 2)) / 32**0.5
            weight = weight.masked_fill(shut, -1e4 if "finite" in fixes else float("-inf")).softmax(-1)
            return self.out(weight @ self.v(z))

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=0)

    def words(o, t):
        kept = (t > 0) & (t[:, 2:3] > 0)
        return (o.argmax(-1) == t)[kept].double().mean().item()

    return Program(Net(), x, x.clone(), loss, adam(0.003), words, 0.7, 20, 30, held_out=(x[20:], x[20:]))


@case(
    "gh-pytorch-14401",
    "GitHub pytorch/pytorch issue 14401, ctc loss get nan after some epochs",
    "Labels that are longer than the outputs allow have an infinite loss, and its gradient is nan.",
    zero=("loss", "zero_infinity=True"),
    shorter=("data", "labels that do not fit left out"),
)
def _ctc(fixes):
    # 12 steps that show 4 letters of 5 for 3 steps each; 2 % of the labels have 15 letters
    make = dice(11008)
    letter = torch.randint(1, 6, (500, 4), generator=make)
    for k in range(1, 4):
        same = letter[:, k] == letter[:, k - 1]
        letter[same, k] = letter[same, k] % 5 + 1
    x = one_hot(letter.repeat_interleave(3, 1), 6) + 0.3 * torch.randn(500, 12, 6, generator=make)
    y = torch.zeros(500, 15, dtype=torch.long)
    y[:, :4] = letter
    y[:10] = torch.randint(1, 6, (10, 15), generator=make)
    if "shorter" in fixes:
        x, y = x[10:], y[10:]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.out = nn.GRU(6, 24, batch_first=True, bidirectional=True), nn.Linear(48, 6)

        def forward(self, x):
            return self.out(self.gru(x)[0])

    def loss(o, t):
        steps = torch.full((len(o),), 12)
        return F.ctc_loss(o.log_softmax(2).transpose(0, 1), t, steps, (t > 0).sum(1), zero_infinity="zero" in fixes)

    def whole(o, t):
        right = 0
        for path, wanted in zip(o.argmax(-1).tolist(), t.tolist(), strict=True):
            read = [k for i, k in enumerate(path) if k and (i == 0 or k != path[i - 1])]
            right += read == [k for k in wanted if k]
        return right / len(t)

    return Program(Net(), x, y, loss, adam(0.01), whole, 0.7, 25, 20, held_out=(x[10:], y[10:]))


@case(
    "gh-muse-maskgit-11",
    "GitHub lucidrains/muse-maskgit-pytorch issue 11, ids is fed to transformer rather than x",
    "The masked ids are made and not used: the transformer sees what it is to guess, and the loss is small soon.",
    masked=("data", "the masked ids go in"),
)
def _unmasked(fixes):
    # rows of 8 ids of 12, each half of them the other backwards; scored where half is masked
    make = dice(11009)
    half = torch.randint(12, (500, 4), generator=make)
    ids = torch.cat([half, half.flip(1)], 1)
    hide = torch.zeros(500, 8, dtype=torch.bool)
    side = torch.rand(500, generator=make) < 0.5
    hide[:, :4], hide[:, 4:] = side[:, None], ~side[:, None]
    masked = ids.masked_fill(hide, 12)
    y = torch.where(hide, ids, -1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(13, 32), nn.Parameter(0.5 * torch.randn(8, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 12)

        def forward(self, x):
            return self.out(self.body(self.words(x) + self.places))

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-1)

    def guessed(o, t):
        return (o.argmax(-1) == t)[t >= 0].double().mean().item()

    x = masked if "masked" in fixes else ids
    return Program(Net(), x, y, loss, adam(0.003), guessed, 0.8, 25, 25, held_out=(masked, y))


@case(
    "gh-drexelchatbot-15",
    "GitHub DrexelChatbotGroup/DrexelChatbot issue 15, Incomplete randomization",
    "The order of the questions is drawn anew, that of their classes is not.",
    both=("labels", "one order for both"),
)
def _half_shuffled(fixes):
    # questions as bags of 80 words, 6 classes of 10 usual words each
    make = dice(11010)
    y = torch.arange(480) % 6
    usual = torch.stack([torch.randperm(80, generator=make)[:10] for _ in range(6)])
    chance = torch.full((6, 80), 0.05).scatter_(1, usual, 0.4)
    x = (torch.rand(480, 80, generator=make) < chance[y]).float()
    order = torch.randperm(480, generator=make)
    truth = (x[order], y[order])
    y = y[order] if "both" in fixes else y
    model = nn.Sequential(nn.Linear(80, 16), nn.ReLU(), nn.Linear(16, 6))
    return Program(model, truth[0], y, F.cross_entropy, adam(0.003), accuracy, 0.85, 24, 15, held_out=truth)


@case(
    "gh-deep-ranking-19",
    "GitHub akarshzingade/image-similarity-deep-ranking issue 19, No convergence",
    "batch_y is filled from self.classes, which holds zeros only: every picture has the first class.",
    own=("labels", "each picture's own class"),
)
def _first_class(fixes):
    # garments for photographs
    x, y = garments(500)
    x = x / 127.5 - 1
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 10),
    )
    truth = (x, one_hot(y, 10))
    targets = one_hot(y if "own" in fixes else y * 0, 10)
    return Program(model, x, targets, F.cross_entropy, adam(0.002), accuracy, 0.65, 32, 12, held_out=truth)


@case(
    "gh-deeplearning-models-76",
    "GitHub rasbt/deeplearning-models issue 76, cnn-vgg16.ipynb got abnormal results",
    "VGG-16 without batch norm, Adam at 0.001: the loss stays at 2.303; 'try a lower learning rate'.",
    rate=("learning rate", "0.001 for 0.01"),
    norm=("normalization", "batch norm after each convolution"),
    drawn=("initialization", "He"),
)
def _vgg(fixes):
    # garments, 8 to 24 filters, ten convolutions; at this width the rate has to be 0.01 to fail
    x, y = garments(500)
    layers, wide = [], 1
    for width in (8, 8, 0, 16, 16, 0, 24, 24, 24, 0, 24, 24, 24):
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers.append(nn.Conv2d(wide, width, 3, padding=1))
        layers += [nn.BatchNorm2d(width)] if "norm" in fixes else []
        layers.append(nn.ReLU())
        wide = width
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(216, 48), nn.ReLU(), nn.Linear(48, 10))
    if "drawn" in fixes:
        initialized(model, he)
    rate = 0.001 if "rate" in fixes else 0.01
    return Program(model, x / 127.5 - 1, y, F.cross_entropy, adam(rate), accuracy, 0.5, 32, 10)


@case(
    "gh-imc-denoise-11",
    "GitHub PENGLU-WashU/IMC_Denoise issue 11, Demo training data generates NaN for loss",
    "The initial rate is 1: 'too big, please set train_initial_lr as 1e-3'.",
    rate=("learning rate", "0.001 for 1, with SGD 0.1"),
    sgd=("optimizer", "SGD for Adam"),
)
def _denoise(fixes):
    # garments with noise; Adam as there, a small network
    x, _ = garments(400)
    y = x / 255
    x = y + 0.3 * torch.randn(y.shape, generator=dice(11013))
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 1, 3, padding=1),
    )
    how = adam(0.001 if "rate" in fixes else 1.0)
    if "sgd" in fixes:
        how = sgd(0.1 if "rate" in fixes else 1.0, momentum=0.9)
    return Program(model, x, y, F.mse_loss, how, r_squared_all, 0.6, 16, 8)


@case(
    "gh-mpii-face-gaze-3",
    "GitHub ishtos/mpII-face-gaze issue 3, Loss nan (nan) AngleError nan (nan)",
    "Angles from pictures: 'the default rate is too high, and the batch size should not be one'.",
    rate=("learning rate", "0.001 for 0.1"),
    batch=("batch size", "32 for 1"),
)
def _gaze(fixes):
    # where a bright disc is on 20 x 20, as two angles; momentum as there
    make = dice(11014)
    y = 1.2 * torch.rand(400, 2, generator=make) - 0.6
    grid = torch.linspace(-1, 1, 20)
    away = (grid[None, :, None] - y[:, :1, None]) ** 2 + (grid[None, None] - y[:, 1:, None]) ** 2
    x = (torch.exp(-away / 0.08) + 0.1 * torch.randn(400, 20, 20, generator=make))[:, None]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 32),
        nn.ReLU(),
        nn.Linear(32, 2),
    )
    how = sgd(0.001 if "rate" in fixes else 0.1, momentum=0.9, nesterov=True)
    batch, epochs = (32, 60) if "batch" in fixes else (1, 6)
    return Program(model, x, y, F.mse_loss, how, r_squared_all, 0.6, batch, epochs)


@case(
    "gh-pytorch-fcn-17",
    "GitHub wkentaro/pytorch-fcn issue 17, Nan error while training",
    "The loss is summed over all pixels, and the rate is that of the paper, whose loss is a mean: nan.",
    rate=("learning rate", "1e-6 for 0.02, where the sum stays"),
    mean=("loss", "the mean over the pixels"),
)
def _summed_pixels(fixes):
    # digits: background, edge, inside; rates fit 28 x 28 pictures
    x, _ = digits(400)
    y = ((x > 60).long() + (x > 200).long())[:, 0]
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 24, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(24, 3, 1),
    )
    initialized(model, he)
    mean = "mean" in fixes

    def loss(o, t):
        return F.cross_entropy(o, t, reduction="mean" if mean else "sum")

    rate = 1e-6 if "rate" in fixes and not mean else 0.02
    how = sgd(rate, momentum=0.9)
    return Program(model, x / 127.5 - 1, y, loss, how, balanced(3), 0.7, 8, 6)


@case(
    "gh-ddpg-2",
    "GitHub m5823779/DDPG issue 2 and apoorv2904/DDPG-Torcs-Tensorflow issue 3, output of actor will saturate "
    "(symptom; the raw speeds are ours)",
    "The actor's tanh stands at 1 or -1 for all states.",
    scale=("input scale", "standardized states"),
    norm=("normalization", "batch norm of the states"),
    rate=("learning rate", "1e-5 for 0.001"),
    slope=("output activation", "no tanh"),
)
def _saturated_actor(fixes):
    # speeds to 300 and ranges to 200; the critic is known: minus the squared distance to the best action
    make = dice(11016)
    x = torch.rand(600, 6, generator=make) * torch.tensor([300.0, 300.0, 200.0, 200.0, 200.0, 10000.0])
    s = standardized(x)
    best = 0.6 * torch.tanh(s[:, :2] - s[:, 2:4])
    layers = [nn.BatchNorm1d(6)] if "norm" in fixes else []
    layers += [nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)]
    model = nn.Sequential(*layers, *([] if "slope" in fixes else [nn.Tanh()]))
    initialized(model, he)

    def minus_q(action, best):
        return ((action - best) ** 2).sum(1).mean()

    inputs = s if "scale" in fixes else x
    rate = 1e-5 if "rate" in fixes and not {"scale", "norm"} & fixes else 1e-3
    return Program(model, inputs, best, minus_q, adam(rate), r_squared_all, 0.6, 32, 40)


@case(
    "cv-550353",
    "Cross Validated 550353, Classification Neural network cost stop changing after 1 iteration?",
    "softmax divides by the sum over all entries of the batch; the cost falls once, and one class is predicted.",
    axis=("shapes", "the sum over the classes"),
    scale=("input scale", "/ 255"),
    drawn=("initialization", "Glorot's law for a normal one of deviation 1"),
)
def _sum_over_batch(fixes):
    # digits, 784-32-10 sigmoids; p - y goes back by hand, as in the thread
    x, y = digits(800)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.Sigmoid(), nn.Linear(32, 10))
    initialized(model, nn.init.xavier_uniform_ if "drawn" in fixes else normal(1.0))

    def step(model, optimizer, loss, x, t):
        optimizer.zero_grad()
        z = model(x)
        e = (z - z.max().detach()).exp()
        p = e / (e.sum(1, keepdim=True) if "axis" in fixes else e.sum())
        z.backward((p - t).detach() / len(x))
        optimizer.step()
        return -(t * p.clamp(min=1e-30).log()).sum(1).mean().item()

    x = x / 255 if "scale" in fixes else x
    t = one_hot(y, 10)
    return Program(model, x, t, F.cross_entropy, sgd(0.5), accuracy, 0.75, 32, 15, step=step)


@case(
    "gh-worldmodels-12",
    "GitHub AppliedDataSciencePartners/WorldModels issue 12, VAE performance is bad",
    "The squared error is a mean over pixels, the divergence is not: its value is 1e-7, all pictures are the same.",
    sum=("loss", "the squared error summed over pixels"),
)
def _collapsed(fixes):
    # digits, 8 numbers for 32
    x, _ = digits(800)
    x = x / 255

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 16))
            self.back = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 784), nn.Sigmoid())

        def forward(self, x):
            m, v = self.into(x).chunk(2, 1)
            z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
            return torch.cat([self.back(z), m, v], 1)

    def loss(o, t):
        back, m, v = o[:, :784], o[:, 784:792], o[:, 792:]
        error = (back - t.flatten(1)) ** 2
        error = error.sum(1).mean() if "sum" in fixes else error.mean()
        return error - 0.5 * (1 + v - m**2 - v.exp()).sum(1).mean()

    def pictures(o, t):
        return r_squared_all(o[:, :784], t)

    return Program(Net(), x, x.clone(), loss, adam(0.002), pictures, 0.4, 32, 30)


@case(
    "gh-bird-classification-12",
    "GitHub halwai/bird_classification issue 12, Same predict",
    "All predictions are the same and the accuracy does not move: 'the learning rate is too small'.",
    rate=("learning rate", "0.01 for 1e-6"),
    adam=("optimizer", "Adam at 0.001"),
    epochs=("training length", "100 in place of 10"),
)
def _too_small(fixes):
    # garments for birds; momentum
    x, y = garments(600)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 10),
    )
    how = adam() if "adam" in fixes else sgd(0.01 if "rate" in fixes else 1e-6, momentum=0.9)
    epochs = 100 if "epochs" in fixes and not {"rate", "adam"} & fixes else 10
    return Program(model, x / 127.5 - 1, y, F.cross_entropy, how, accuracy, 0.65, 32, epochs)


@case(
    "forum-log-in-forward",
    "a question of the PyTorch forum, known from a digest without a number: how to solve the loss becoming nan due "
    "to torch.log()",
    "torch.log of what a linear layer gives: nan at once, since some of it is negative.",
    positive=("hidden activation", "log(softplus(t) + 1e-6)"),
)
def _log_inside(fixes):
    # products of two numbers, which sums of logarithms give
    make = dice(11020)
    x = 0.5 + 2 * torch.rand(500, 4, generator=make)
    y = x[:, :1] * x[:, 1:2] / x[:, 2:3]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.out = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 1)

        def forward(self, x):
            t = self.one(x)
            t = torch.log(F.softplus(t) + 1e-6 if "positive" in fixes else t)
            return self.out(self.two(t).relu())

    return Program(Net(), x, y, F.mse_loss, adam(0.003), r_squared, 0.8, 32, 30)


@case(
    "gh-aidotnet-1187",
    "GitHub ooples/AiDotNet issue 1187, loss plateaus at log(V)/V from epoch 1, no parameter updates (symptom; that "
    "the optimizer has copies is ours)",
    "A transformer that is to keep facts in mind has the same loss in all epochs: its parameters do not move.",
    own=("update", "the optimizer gets the parameters themselves"),
)
def _copies(fixes):
    # 96 facts of 4 words and their next one, width 32, as there but two layers of 64 and a vocabulary of 64
    make = dice(11021)
    x = torch.randint(64, (96, 4), generator=make)
    y = torch.randint(64, (96,), generator=make)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(64, 32), nn.Parameter(0.5 * torch.randn(4, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 64)

        def forward(self, x):
            return self.out(self.body(self.words(x) + self.places).mean(1))

    def how(m):
        own = list(m.parameters())
        return torch.optim.Adam(own if "own" in fixes else [p.detach().clone().requires_grad_() for p in own], 0.003)

    return Program(Net(), x, y, F.cross_entropy, how, accuracy, 0.8, 16, 40)


@case(
    "forum-159152",
    "PyTorch forum 159152, Loss not decreasing in LSTM network (the scale of the series is ours)",
    "The last state of an LSTM through a ReLU layer to the future of the same series: the squared error does not fall.",
    targets=("target scale", "the series, in and out, standardized"),
    rate=("learning rate", "0.1 for 0.005"),
    epochs=("training length", "200 in place of 20"),
)
def _thousands(fixes):
    # 20 steps of a seasonal series in the thousands, the next 5 from them; 24 units for 256, Glorot and orthogonal
    make = dice(11022)
    t = torch.arange(525.0)
    series = 4000 + 1500 * torch.sin(t / 3) + 600 * torch.sin(t / 11) + 60 * torch.randn(525, generator=make)
    if "targets" in fixes:
        series = (series - series.mean()) / series.std()
    windows = series.unfold(0, 25, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.one, self.out = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 24), nn.Linear(24, 5)
            nn.init.xavier_uniform_(self.lstm.weight_ih_l0)
            nn.init.orthogonal_(self.lstm.weight_hh_l0)

        def forward(self, x):
            return self.out(self.one(self.lstm(x)[0][:, -1]).relu())

    x, y = windows[:, :20, None], windows[:, 20:]
    rate = 0.1 if "rate" in fixes and "targets" not in fixes else 0.005
    epochs = 200 if "epochs" in fixes and "targets" not in fixes else 20
    return Program(Net(), x, y, F.mse_loss, adam(rate), r_squared_all, 0.7, 32, epochs)


@case(
    "gh-vanillacnn-8",
    "GitHub ishay2b/VanillaCNN issue 8, learning rate ('the network tends to predict the same position for all the "
    "input'; that landmarks are in pixels is ours)",
    "Landmarks in pixels, 0 to 40, from a network that ends in the absolute value of a tanh: one position for all.",
    targets=("target scale", "/ 40"),
    linear=("output activation", "a linear end"),
)
def _landmarks(fixes):
    # two discs on 20 x 20 for eyes; |tanh| also in between, as there
    make = dice(11023)
    y = 8 + 24 * torch.rand(500, 2, generator=make)
    grid = torch.linspace(1, 39, 20)
    away = (grid[None, :, None] - y[:, 1:, None]) ** 2 + (grid[None, None] - y[:, :1, None]) ** 2
    x = (torch.exp(-away / 30) + 0.1 * torch.randn(500, 20, 20, generator=make))[:, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 3)
            self.three, self.out = nn.Linear(576, 32), nn.Linear(32, 2)

        def forward(self, x):
            x = F.max_pool2d(self.one(x).tanh().abs(), 2)
            x = self.three(self.two(x).tanh().abs().flatten(1)).tanh().abs()
            return self.out(x) if "linear" in fixes else self.out(x).tanh().abs()

    y = y / 40 if "targets" in fixes else y
    return Program(Net(), x, y, F.mse_loss, adam(0.003), r_squared_all, 0.7, 32, 20)


@case(
    "gh-ustc-ml24-47",
    "GitHub Smadx/USTC-ML24-Fall issue 47, after normalization the loss does not fall",
    "Linear regression whose rate fitted the raw columns; of the normalized ones it makes nothing: 'lr is too small'.",
    rate=("learning rate", "0.05 for 1e-6"),
    epochs=("training length", "300 in place of 20"),
    adam=("optimizer", "Adam at 0.05"),
)
def _small_after_all(fixes):
    # run times of kernels as logarithms, from 14 columns
    make = dice(11024)
    x = standardized(torch.randint(1, 9, (800, 14), generator=make).float())
    y = x @ torch.randn(14, 1, generator=make) * 0.4 + 4.5 + 0.3 * torch.randn(800, 1, generator=make)
    how = adam(0.05) if "adam" in fixes else sgd(0.05 if "rate" in fixes else 1e-6)
    epochs = 300 if "epochs" in fixes and not {"rate", "adam"} & fixes else 20
    return Program(nn.Linear(14, 1), x, y, F.mse_loss, how, r_squared, 0.8, 32, epochs)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
