"""Stack Overflow, other sites of Stack Exchange, and GitHub; comments tell what is smaller, drawn or ours."""

import torch
from common import (
    accuracy,
    adam,
    cars,
    categorical_crossentropy,
    dice,
    digits,
    garments,
    he,
    initialized,
    keras,
    normal,
    one_hot,
    photographs,
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


def bits(outputs, targets):
    """Share of right numbers among several that are 0 or 1 each."""
    return ((outputs > 0.5) == (targets > 0.5)).double().mean().item()


@case(
    "dse-33450",
    "Data Science Stack Exchange 33450, Why does cost function on a neural network increase? (the table is ours)",
    "Squared errors of 510, 287,486,752, 2e18: gradient descent with momentum at 0.005 on columns as they are.",
    standardized=("input scale", "columns standardized"),
    rate=("learning rate", "0.0001 for 0.005"),
    drawn=("initialization", "He's law for a normal law of 1"),
    adam=("optimizer", "Adam at 0.1"),
    relu=("output activation", "ReLU at the end, as the author did"),
)
def _cost_increases(fixes):
    # cars and their miles per gallon; one hidden layer of 20, TensorFlow's random_normal; the whole table at once
    x, y = cars()
    x = standardized(x) if "standardized" in fixes else x
    model = nn.Sequential(nn.Linear(x.shape[1], 20), nn.ReLU(), nn.Linear(20, 1))
    model = initialized(model, he if "drawn" in fixes else normal(1.0))
    if "relu" in fixes:
        nn.init.ones_(model[2].bias)
        model.append(nn.ReLU())
    how = adam(0.1) if "adam" in fixes else sgd(1e-4 if "rate" in fixes else 0.005, momentum=0.9)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.6, len(x), 300)


@case(
    "so-75753767",
    "Stack Overflow (coderapp 75753767), Neural network with sigmoid function always get value closer to 0.5 fo XOR",
    "Two lines that cross, 21 points, three layers of sigmoids without biases, weights from 0 to 1, a rate of 0.001.",
    rate=("learning rate", "1 for 0.001"),
    drawn=("initialization", "a normal law of 1"),
    bias=("architecture", "biases"),
    epochs=("training length", "5,000 for 1,000"),
    adam=("optimizer", "Adam at 0.05"),
)
def _crossing_lines(fixes):
    # the thread's network, data, rate and steps; summed squared errors; all points are for training
    step = torch.arange(11) / 10
    x = torch.cat([torch.stack([step, step], 1), torch.stack([step, 1 - step], 1)])
    y = (torch.arange(22) > 10).float()[:, None]
    x, y = (part[torch.arange(22) != 16] for part in (x, y))
    layers = [nn.Linear(2, 3, "bias" in fixes), nn.Linear(3, 3, "bias" in fixes), nn.Linear(3, 1, "bias" in fixes)]
    for layer in layers:
        nn.init.normal_(layer.weight) if "drawn" in fixes else nn.init.uniform_(layer.weight)
        if "bias" in fixes:
            nn.init.zeros_(layer.bias)
    model = nn.Sequential(*[part for layer in layers for part in (layer, nn.Sigmoid())])

    def loss(o, t):
        return ((o - t) ** 2).sum() / 2

    how = adam(0.05) if "adam" in fixes else sgd(1.0 if "rate" in fixes else 0.001)
    return Program(model, x, y, loss, how, accuracy, 0.9, 21, 5000 if "epochs" in fixes else 1000)


@case(
    "cv-245448",
    "Cross Validated 245448, Loss function for autoencoders (optimizer and rate are ours)",
    "Digits through 784-100-50-100-784, sigmoids everywhere, cross-entropy: the same blob for all.",
    relu=("hidden activation", "ReLU for the hidden sigmoids"),
    squared=("loss", "squared errors"),
    rate=("learning rate", "5 for 0.5"),
    adam=("optimizer", "Adam at 0.003"),
)
def _blob(fixes):
    # 600 digits, 30 rounds
    x = digits(600)[0].flatten(1) / 255

    def act():
        return nn.ReLU() if "relu" in fixes else nn.Sigmoid()

    layers = []
    for a, b in ((784, 100), (100, 50), (50, 100), (100, 784)):
        layers += [nn.Linear(a, b), act()]
    model = keras(nn.Sequential(*layers[:-1], nn.Sigmoid()))
    how = adam(0.003) if "adam" in fixes else sgd(5.0 if "rate" in fixes else 0.5)
    loss = F.mse_loss if "squared" in fixes else F.binary_cross_entropy
    return Program(model, x, x, loss, how, r_squared_all, 0.25, 20, 30)


@case(
    "gh-brainjs-687",
    "GitHub BrainJS/brain.js issue 687, Single input, Single output",
    "1 to 5 are to give 1, 4, 6, 8, 10: the error never goes down, as a sigmoid gives at most 1.",
    linear=("output activation", "no sigmoid at the end"),
    targets=("target scale", "a tenth"),
    rate=("learning rate", "0.02 for 0.3"),
    adam=("optimizer", "Adam at 0.03"),
)
def _one_to_five(fixes):
    # data of the issue; three hidden sigmoids, rate 0.3 and momentum 0.1 of brain.js; 1,000 of 100,000 rounds
    x = torch.arange(1.0, 6)[:, None]
    y = torch.tensor([[1.0], [4], [6], [8], [10]])
    y = y / 10 if "targets" in fixes else y
    model = nn.Sequential(nn.Linear(1, 3), nn.Sigmoid(), nn.Linear(3, 1))
    if "linear" not in fixes:
        model.append(nn.Sigmoid())
    rate = 0.02 if "rate" in fixes else 0.3
    how = adam(0.03) if "adam" in fixes else sgd(rate, momentum=0.1)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.85, 1, 1000)


@case(
    "gh-brainjs-489",
    "GitHub BrainJS/brain.js issue 489, Running network from JSON seems inaccurate with hundreds of JSON objects?",
    "Seven amounts such as 451, 2200, 42, 0 as they are, to seven answers of 0 or 1, through three sigmoids.",
    scaled=("input scale", "amounts / 3000"),
    relu=("hidden activation", "leaky ReLU"),
    adam=("optimizer", "Adam at 0.03"),
    wide=("architecture", "20 hidden units"),
)
def _seven_amounts(fixes):
    # 200 loans, drawn: each answer is a limit on one amount and the income; rate 0.3 and momentum 0.1 of brain.js
    make = dice(15005)
    x = torch.rand(200, 7, generator=make) * 3000
    z = x / 3000
    y = (z[:, :1] + 0.3 * z + 0.5 * z[:, 1:2] > 0.9).float()
    x = z if "scaled" in fixes else x
    width = 20 if "wide" in fixes else 3
    act = nn.LeakyReLU(0.01) if "relu" in fixes else nn.Sigmoid()
    model = nn.Sequential(nn.Linear(7, width), act, nn.Linear(width, 7), nn.Sigmoid())
    how = adam(0.03) if "adam" in fixes else sgd(0.3, momentum=0.1)
    return Program(model, x, y, F.mse_loss, how, bits, 0.85, 1, 30)


@case(
    "gh-edgenets-14",
    "GitHub sacmehta/EdgeNets issue 14, Zeroing out the gradient before calling optimizer.step() in train_eval_seg.py",
    "Gradients are set to zero between the backward pass and the step of the optimizer.",
    order=("update", "zeroed in front of the backward pass"),
    rate=("learning rate", "0.1 for 0.02"),
    adam=("optimizer", "Adam at 0.003"),
)
def _zeroed_before_step(fixes):
    # garments of 14 x 14 in noise, and where they are; three convolutions; momentum and weight decay as in such code
    make = dice(15006)
    clean = F.avg_pool2d(garments(300)[0], 2) / 255
    y = (clean > 0.15).float()
    x = clean + 0.3 * torch.randn(clean.shape, generator=make)
    layers = []
    for a, b in ((1, 12), (12, 12)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(12, 1, 3, padding=1))

    def step(model, optimizer, loss, x, y):
        if "order" in fixes:
            optimizer.zero_grad(set_to_none=False)
        error = loss(model(x), y)
        error.backward()
        if "order" not in fixes:
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()
        return error.item()

    def overlap(o, t):
        o, t = o > 0, t > 0.5
        return ((o & t).sum() / (o | t).sum()).item()

    how = adam(0.003) if "adam" in fixes else sgd(0.1 if "rate" in fixes else 0.02, momentum=0.9, weight_decay=5e-4)
    return Program(model, x, y, F.binary_cross_entropy_with_logits, how, overlap, 0.7, 10, 8, step=step)


@case(
    "gh-tensorflow-1565",
    "GitHub tensorflow/tensorflow issue 1565, Some problem about softmax (its loss stays at 0.6, ours is nan)",
    "Five convolutions and three dense layers, weights and biases of a larger deviation: the loss is soon nan.",
    drawn=("initialization", "He's law for a deviation of 0.6"),
    rate=("learning rate", "a hundredth"),
    norm=("normalization", "batch norm in front of each ReLU"),
    adam=("optimizer", "Adam at 0.001"),
)
def _deviation(fixes):
    # a deviation of 0.6 in layers of 12 and 64 for 0.1 in wide ones; cats and ships of CIFAR-10, 200 each
    x, y = photographs(2000)
    rows = (y == 3) | (y == 8)
    x, y = x[rows] / 127.5 - 1, (y[rows] == 8).long()
    layers, norm = [], "norm" in fixes
    for a, b, stride in ((3, 12, 1), (12, 12, 2), (12, 12, 1), (12, 12, 2), (12, 12, 1)):
        layers += [nn.Conv2d(a, b, 3, stride, 1), *([nn.BatchNorm2d(b)] if norm else []), nn.ReLU()]
    layers.append(nn.Flatten())
    for a, b in ((192, 64), (64, 64)):
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm else []), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 2))
    model = initialized(model, he) if "drawn" in fixes else initialized(model, normal(0.6), bias=normal(0.6))
    how = adam() if "adam" in fixes else sgd(5e-5 if "rate" in fixes else 0.005)
    return Program(model, x, y, F.cross_entropy, how, accuracy, 0.75, 10, 15)


@case(
    "gh-bertclassifier-2",
    "GitHub illiterate/BertClassifier issue 2, a softmax at the end of the model besides that of CrossEntropyLoss",
    "A softmax stands before the cross-entropy: the most frequent class is said for all texts.",
    logits=("output activation", "no softmax at the end"),
    rate=("learning rate", "0.005 for 0.0005"),
    epochs=("training length", "30 for 6"),
    balanced=("data", "as many texts of each class"),
)
def _texts_softmax(fixes):
    # texts of 12 words of 200, drawn, ten classes, two fifths in one; a small encoder of random weights for BERT
    make = dice(15012)
    share = torch.full((10,), 0.1) if "balanced" in fixes else torch.tensor([0.4] + 9 * [0.6 / 9])
    y = torch.multinomial(share, 600, True, generator=make)
    own = torch.randint(5, (600, 12), generator=make) + 5 * y[:, None]
    x = torch.where(torch.rand(600, 12, generator=make) < 0.4, own, torch.randint(50, 200, (600, 12), generator=make))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(200, 32)
            self.layer = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
            self.last = nn.Linear(32, 10)

        def forward(self, x):
            o = self.last(self.layer(self.words(x)).mean(1))
            return o if "logits" in fixes else o.softmax(1)

    how = adam(0.005 if "rate" in fixes else 0.0005)
    return Program(Net(), x, y, F.cross_entropy, how, accuracy, 0.8, 15, 30 if "epochs" in fixes else 6)


@case(
    "gh-mcfly-43",
    "GitHub NLeSC/mcfly issue 43, find out why learning stops sometimes",
    "Of ten drawn models those with a rate above 0.03 keep one loss and one accuracy.",
    rate=("learning rate", "0.001 for 0.08"),
    sgd=("optimizer", "SGD with momentum at 0.01"),
    norm=("normalization", "batch norm after each convolution"),
    leaky=("hidden activation", "leaky ReLU"),
)
def _rate_above(fixes):
    # six movements, drawn, three channels and 64 steps; four convolutions and one dense layer
    make = dice(15013)
    y = torch.arange(480) % 6
    at = torch.arange(64) * (0.2 + 0.15 * y[:, None, None]) + 6.3 * torch.rand(480, 3, 1, generator=make)
    x = at.sin() * (0.5 + torch.rand(480, 3, 1, generator=make)) + 0.5 * torch.randn(480, 3, 64, generator=make)

    def act():
        return nn.LeakyReLU(0.1) if "leaky" in fixes else nn.ReLU()

    layers = []
    for a, b in ((3, 16), (16, 24), (24, 24), (24, 24)):
        layers += [nn.Conv1d(a, b, 5, 2), *([nn.BatchNorm1d(b)] if "norm" in fixes else []), act()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 50), act(), nn.Linear(50, 6), nn.Softmax(1))
    how = sgd(0.01, momentum=0.9) if "sgd" in fixes else adam(1e-3 if "rate" in fixes else 0.08)
    return Program(keras(model), x, one_hot(y, 6), categorical_crossentropy, how, accuracy, 0.7, 16, 15)


@case(
    "gh-hvpnet-5",
    "GitHub zjunlp/HVPNeT issue 5, Not putting parameters into optimizer but still trainable",
    "The group of the last layer's parameters is made and not appended: only the encoder is trained, at 0.00003.",
    appended=("update", "the last layer's parameters too, at 0.01"),
    rate=("learning rate", "0.003 for the encoder"),
    epochs=("training length", "30 for 10"),
)
def _group_not_appended(fixes):
    # sentences of 12 words of 100, drawn, and their tags; a small encoder of random weights for BERT, no CRF
    make = dice(15014)
    x = torch.randint(100, (400, 12), generator=make)
    y = x % 5
    y[:, 1:] = torch.where(x[:, :-1] < 10, 5, y[:, 1:])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.layer = nn.Embedding(100, 48), nn.GRU(48, 48, batch_first=True, bidirectional=True)
            self.last = nn.Linear(96, 6)

        def forward(self, x):
            return self.last(self.layer(self.words(x))[0])

    def how(m):
        rate = 0.003 if "rate" in fixes else 3e-5
        groups = [{"params": [*m.words.parameters(), *m.layer.parameters()], "lr": rate}]
        if "appended" in fixes:
            groups.append({"params": m.last.parameters(), "lr": 0.01})
        return torch.optim.AdamW(groups)

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    return Program(Net(), x, y, loss, how, token_accuracy, 0.75, 16, 30 if "epochs" in fixes else 10)


@case(
    "so-53913552",
    "Stack Overflow 53913552, Keras loss function does not decrease on mean squared error (the end is our guess)",
    "Ratings as one number in place of five classes: the softmax stays, and is 1 for one unit.",
    linear=("output activation", "no activation at the end"),
    rate=("learning rate", "0.001 for 0.01"),
    epochs=("training length", "30 for 10"),
)
def _ratings(fixes):
    # the thread's layers, Adam at 0.01 and ten rounds; 20 features of users and items, drawn
    make = dice(15015)
    u, m = torch.rand(400, 20, generator=make), torch.rand(400, 20, generator=make)
    y = 3 + 1.2 * standardized((u[:, :4] * m[:, :4]).sum(1) + 0.5 * (u[:, 5] - m[:, 6]))
    y = y.round().clamp(1, 5)[:, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.dense, self.last = nn.Linear(20, 20), nn.Linear(40, 40), nn.Linear(40, 1)

        def forward(self, x):
            o = torch.cat([self.shared(x[:, :20]).relu(), self.shared(x[:, 20:]).relu()], 1)
            o = self.last(self.dense(o).relu())
            return o if "linear" in fixes else o.softmax(1)

    how = adam(0.001 if "rate" in fixes else 0.01)
    x, epochs = torch.cat([u, m], 1), 30 if "epochs" in fixes else 10
    return Program(keras(Net()), x, y, F.mse_loss, how, r_squared, 0.4, 20, epochs)


@case(
    "gh-kaggle-image-classify-12",
    "GitHub Borda/kaggle_image-classify pull request 12, fix dataset shuffle",
    "The table is shuffled after the labels were taken from it: no picture has its own.",
    before=("labels", "labels are taken from the shuffled table"),
    epochs=("training length", "15 for 6"),
    rate=("learning rate", "0.003 for 0.001"),
)
def _shuffled_after(fixes):
    # 600 garments for leaves, a small network
    x, y = garments(600)
    order = torch.randperm(600, generator=dice(15016))
    x, y = x[order] / 255, y[order] if "before" in fixes else y
    model = nn.Sequential(nn.Conv2d(1, 12, 3, 2), nn.ReLU(), nn.Conv2d(12, 16, 3, 2), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*model, nn.Linear(576, 32), nn.ReLU(), nn.Linear(32, 10))
    how, epochs = adam(0.003 if "rate" in fixes else 0.001), 15 if "epochs" in fixes else 6
    clean = garments(400, 3000)
    return Program(model, x, y, F.cross_entropy, how, accuracy, 0.55, 20, epochs, held_out=(clean[0] / 255, clean[1]))


@case(
    "gh-srcnn-tensorflow-24",
    "GitHub tegg89/SRCNN-Tensorflow issue 24, Loss drop little (the answer: a larger rate)",
    "Three convolutions for sharper pictures, weights within 0.001, a rate of 0.0001: the error hardly falls.",
    rate=("learning rate", "0.1 for 0.0001"),
    drawn=("initialization", "He's law"),
    adam=("optimizer", "Adam at 0.001"),
    epochs=("training length", "50 for 15"),
)
def _loss_drops_little(fixes):
    # garments of 14 x 14, blurred, and sharp; 9-1-5 as there, 16 and 8 maps for 64 and 32; law and rate from memory
    y = F.avg_pool2d(garments(200)[0], 2) / 255
    x = F.avg_pool2d(y, 3, 1, 1)
    model = nn.Sequential(nn.Conv2d(1, 16, 9, padding=4), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.ReLU())
    model = nn.Sequential(*model, nn.Conv2d(8, 1, 5, padding=2))
    model = initialized(model, he if "drawn" in fixes else normal(1e-3))
    how = adam() if "adam" in fixes else sgd(0.1 if "rate" in fixes else 1e-4)
    return Program(model, x, y, F.mse_loss, how, r_squared_all, 0.62, 10, 50 if "epochs" in fixes else 15)


@case(
    "gh-keras-13891",
    "GitHub keras-team/keras issue 13891, My model outputs the same value for all data (the rate is ours)",
    "With a layer of few ReLUs in front of the output one value comes out for all; with tanh it does not.",
    tanh=("hidden activation", "tanh"),
    linear=("hidden activation", "none"),
    rate=("learning rate", "0.01 for 0.1"),
    standardized=("input scale", "columns standardized"),
    sgd=("optimizer", "SGD with momentum at 0.001"),
)
def _few_relus(fixes):
    # 300 rows of eight columns between 0 and 20, drawn; four units; Adam
    make = dice(15021)
    x = 20 * torch.rand(300, 8, generator=make)
    y = (x @ torch.tensor([1.0, -2, 1.5, 0.5, -1, 2, -0.5, 1]))[:, None] / 10 - 4
    x = standardized(x) if "standardized" in fixes else x
    act = nn.Identity() if "linear" in fixes else nn.Tanh() if "tanh" in fixes else nn.ReLU()
    model = keras(nn.Sequential(nn.Linear(8, 4), act, nn.Linear(4, 1)))
    how = sgd(0.001, momentum=0.9) if "sgd" in fixes else adam(0.01 if "rate" in fixes else 0.1)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.6, 16, 40)


@case(
    "gh-hepattn-44",
    "GitHub samvanstroud/hepattn issue 44, Check for issues with dice and focal losses",
    "In the dice loss the sum of the mask that is told is taken of its logits, not of their sigmoids.",
    sigmoid=("loss", "sums of probabilities"),
    entropy=("loss", "cross-entropy"),
    rate=("learning rate", "0.001 for 0.01"),
)
def _sums_of_logits(fixes):
    # 300 events of 24 hits, drawn, and which of them lie on a curve; a small network for each hit
    make = dice(15022)
    y = (torch.rand(300, 24, generator=make) < 0.35).float()
    radius = torch.rand(300, 24, generator=make)
    angle = torch.where(
        y > 0.5, radius + 0.1 * torch.randn(300, 24, generator=make), 3 * torch.rand(300, 24, generator=make) - 1
    )
    x = torch.stack([radius, angle], 2)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(1))

    def loss(o, t):
        p = o.sigmoid()
        told = p if "sigmoid" in fixes else o
        return (1 - (2 * (p * t).sum(1) + 1) / (told.sum(1) + t.sum(1) + 1)).mean()

    def overlap(o, t):
        o, t = o > 0, t > 0.5
        return ((o & t).sum() / (o | t).sum()).item()

    loss = F.binary_cross_entropy_with_logits if "entropy" in fixes else loss
    return Program(model, x, y, loss, adam(1e-3 if "rate" in fixes else 0.01), overlap, 0.42, 10, 20)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
