"""More of both kinds; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    dice,
    digits,
    garments,
    he,
    initialized,
    keras,
    once_each,
    one_hot,
    r_squared,
    r_squared_all,
    sgd,
    standardized,
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


def narrow(weight):
    """Keras' 'uniform'."""
    return nn.init.uniform_(weight, -0.05, 0.05)


def halves(o, t):
    """Mean share of right answers among the positives and among the negatives."""
    right, yes = (o > 0.5) == (t > 0.5), t > 0.5
    return (right[yes].double().mean().item() + right[~yes].double().mean().item()) / 2


@case(
    "gh-brainjs-866",
    "GitHub BrainJS/brain.js issue 866, returns NaN everytime",
    "Prices of 17,000 and what belongs to them as they are, in and out of sigmoids at a rate of 0.3.",
    inputs=("input scale", "0 to 1"),
    targets=("target scale", "0 to 1"),
)
def _raw_market(fixes):
    # prices drawn, 12 columns and 3 outputs for 27 and 7; 13 hidden units
    make = dice(11112)
    base = 16000 + 1500 * torch.rand(300, 1, generator=make)
    x = torch.cat([base + 200 * torch.randn(300, 4, generator=make), 500 * torch.randn(300, 8, generator=make)], 1)
    y = base + 0.5 * x[:, 4:7] + 50 * torch.randn(300, 3, generator=make)

    def range01(t):
        return (t - t.min(0)[0]) / (t.max(0)[0] - t.min(0)[0])

    x = range01(x) if "inputs" in fixes else x
    y = range01(y) if "targets" in fixes else y
    model = nn.Sequential(nn.Linear(12, 13), nn.Sigmoid(), nn.Linear(13, 3), nn.Sigmoid())
    initialized(model, lambda w: nn.init.uniform_(w, -0.2, 0.2))

    def half(o, t):
        return ((o - t) ** 2).sum(1).mean() / 2

    return Program(model, x, y, half, sgd(0.3, momentum=0.1), r_squared_all, 0.6, 1, 40)


@case(
    "gh-brainjs-227",
    "GitHub BrainJS/brain.js issue 227, Network gives NaN after 30k trainings?",
    "The value of positions of a game by 50-700-200-1 at brain.js' rate of 0.3: 0, and then nan.",
    rate=("learning rate", "0.01 for 0.3"),
    sigmoid=("hidden activation", "sigmoid for ReLU"),
)
def _tetris(fixes):
    # positions drawn, 70 and 20 units; ReLU is ours
    make = dice(11113)
    x = (torch.rand(400, 50, generator=make) < 0.4).float()
    y = (x @ torch.randn(50, 1, generator=make)) * 0.3
    unit = nn.Sigmoid if "sigmoid" in fixes else nn.ReLU
    model = nn.Sequential(nn.Linear(50, 70), unit(), nn.Linear(70, 20), unit(), nn.Linear(20, 1))
    initialized(model, lambda w: nn.init.uniform_(w, -0.2, 0.2))

    def half(o, t):
        return ((o - t) ** 2).sum(1).mean() / 2

    rate = 0.01 if "rate" in fixes else 0.3
    return Program(model, x, y, half, sgd(rate, momentum=0.1), r_squared, 0.7, 1, 20)


@case(
    "dlai-initialization-zeros",
    "community.deeplearning.ai 121049, initialize_parameters_zeros (an exercise of Coursera's second course)",
    "All weights are zero: the prediction is 0.5 for all points, and nothing moves.",
    drawn=("initialization", "He"),
)
def _exercise_zeros(fixes):
    # two rings; 10, 5 and 1 units as there, a rate of 0.1 and 2,000 steps for 0.01 and 15,000
    make = dice(11114)
    y = (torch.arange(300) % 2).float()[:, None]
    angle = 6.2832 * torch.rand(300, 1, generator=make)
    x = torch.cat([angle.cos(), angle.sin()], 1) * (1 - 0.4 * y) + 0.05 * torch.randn(300, 2, generator=make)
    model = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1), nn.Sigmoid())
    initialized(model, he if "drawn" in fixes else nn.init.zeros_)
    return Program(model, x, y, binary_crossentropy, sgd(0.1), accuracy, 0.85, 300, 2000)


@case(
    "cv-nnet-one-value",
    "Cross Validated (answerofmath), neural network for regression, actual data against predicted data",
    "R's nnet with two hidden sigmoids on raw columns: every prediction is 0.560.",
    scale=("input scale", "standardized"),
    rate=("learning rate", "0.0001 for 0.02"),
    more=("architecture", "20 units for 2"),
)
def _nnet(fixes):
    # three columns drawn: ages, scores, incomes; the target squared into 0..1; Adam for nnet's method
    make = dice(11115)
    u = torch.rand(300, 3, generator=make)
    y = ((0.9 * u[:, :1] - 0.5 * u[:, 1:2] + 0.5 * u[:, 2:] + 0.1) ** 2).clamp(0, 1)
    x = u * torch.tensor([70.0, 100.0, 90000.0]) + torch.tensor([18.0, 0.0, 8000.0])
    wide = 20 if "more" in fixes else 2
    model = nn.Sequential(nn.Linear(3, wide), nn.Sigmoid(), nn.Linear(wide, 1), nn.Sigmoid())
    initialized(model, lambda w: nn.init.uniform_(w, -0.7, 0.7))
    x = standardized(x) if "scale" in fixes else x
    rate = 1e-4 if "rate" in fixes and "scale" not in fixes else 0.02
    return Program(model, x, y, F.mse_loss, adam(rate), r_squared, 0.7, 300, 800)


@case(
    "so-linear-last-nan",
    "Stack Overflow, known from a digest: why the loss is nan by using linear activation in the last layer",
    "x squared with a cosine by ten sigmoids; errors are summed over 1,000 examples and the rate is 1.",
    rate=("learning rate", "0.0003 for 1, with the mean 0.3"),
    mean=("loss", "the mean of the squared errors"),
)
def _rate_of_one(fixes):
    # standardized, one bias a unit
    x = 2 * torch.randn(1000, 1, generator=dice(11116))
    y = x**2 - 0.2 * torch.cos(3 * torch.pi * x)
    y = y / y.std()
    model = nn.Sequential(nn.Linear(1, 10), nn.Sigmoid(), nn.Linear(10, 1))
    initialized(model, lambda w: nn.init.uniform_(w, -1, 1), bias=nn.init.normal_)
    mean = "mean" in fixes

    def loss(o, t):
        return F.mse_loss(o, t, reduction="mean" if mean else "sum")

    rate = (0.3 if mean else 3e-4) if "rate" in fixes else 1.0
    return Program(model, standardized(x), y, loss, sgd(rate), r_squared, 0.7, 1000, 2000)


@case(
    "dse-28481",
    "Data Science Stack Exchange 28481, Reason for having both low loss and same predicted class (the rate and the "
    "momentum are ours)",
    "A network for two kinds of pictures learns for some time, and then says 0.5 to all.",
    rate=("learning rate", "0.01 for 1"),
    adam=("optimizer", "Adam at 0.001"),
)
def _falls_back(fixes):
    # pullovers and coats
    x, y = garments(4000)
    keep = ((y == 2) | (y == 4)).nonzero()[:500, 0]
    x, y = x[keep] / 255, (y[keep] == 4).float()[:, None]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
        nn.Sigmoid(),
    )
    how = adam() if "adam" in fixes else sgd(0.01 if "rate" in fixes else 1.0, momentum=0.9)
    return Program(keras(model), x, y, binary_crossentropy, how, accuracy, 0.8, 32, 20)


@case(
    "gh-ustc-ml24-35",
    "GitHub Smadx/USTC-ML24-Fall issue 35, loss is 0 and accuracy is 1",
    "The bound between the classes is that of logarithms, the run times are not: all labels are 1.",
    logarithm=("labels", "the logarithm of the run time against the bound"),
)
def _all_ones(fixes):
    # run times drawn
    make = dice(11118)
    x = standardized(torch.randint(1, 9, (600, 14), generator=make).float())
    time = torch.exp(x @ torch.randn(14, 1, generator=make) * 0.4 + 4.5 + 0.2 * torch.randn(600, 1, generator=make))
    truth = (time.log() > 4.5).float()
    y = truth if "logarithm" in fixes else (time > 4.5).float()
    model = nn.Sequential(nn.Linear(14, 1), nn.Sigmoid())
    return Program(model, x, y, binary_crossentropy, sgd(0.3), halves, 0.85, 32, 20, held_out=(x, truth))


@case(
    "gh-cloudml-samples-241",
    "GitHub GoogleCloudPlatform/cloudml-samples pull request 241, changing softmax to sigmoid",
    "Incomes above 50,000 with labels_dim = 1 and softmax at the output.",
    sigmoid=("output activation", "sigmoid"),
)
def _census(fixes):
    # ten columns drawn; 100, 70 and 50 units as there, halved; a quarter earns more
    make = dice(11119)
    x = torch.randn(500, 10, generator=make)
    score = x[:, :1] + 0.8 * x[:, 1:2] + 0.6 * x[:, 2:3] * x[:, 3:4]
    y = (score > score.quantile(0.75)).float()
    end = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = nn.Sequential(
        nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 35), nn.ReLU(), nn.Linear(35, 25), nn.ReLU(), nn.Linear(25, 1), end
    )
    return Program(keras(model), x, y, binary_crossentropy, sgd(0.05, momentum=0.9), halves, 0.85, 20, 25)


@case(
    "gh-keras-9794",
    "GitHub keras-team/keras issues 9794 and 9795, CNN with softmax for the last layer, every probability is 100%",
    "Two kinds of pictures and one output unit with softmax.",
    sigmoid=("output activation", "sigmoid"),
)
def _all_certain(fixes):
    # trousers and bags for the pictures there
    x, y = garments(3000)
    keep = ((y == 1) | (y == 8)).nonzero()[:400, 0]
    x, y = x[keep] / 255, (y[keep] == 8).float()[:, None]
    end = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1352, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
        end,
    )
    return Program(keras(model), x, y, binary_crossentropy, adam(), halves, 0.85, 32, 5)


@case(
    "gh-deep-q-learning-11",
    "GitHub keon/deep-q-learning issue 11, What am I doing wrong? (symptom: it keeps choosing what is punished; the "
    "ReLU is ours)",
    "All rewards are negative and the values of the actions come out of a ReLU: all are 0.",
    linear=("output activation", "a linear output"),
    signs=("target scale", "costs with their signs turned"),
)
def _negative_values(fixes):
    # two actions on a line of eight fields, -1 a step; all moves known, values by the sound rule
    at = torch.arange(8).repeat(40)
    left = torch.stack([8 - (at - 1).clamp(min=0), 8 - (at + 1).clamp(max=7)], 1).float()
    y = left if "signs" in fixes else -left
    x = one_hot(at, 8)
    layers = [nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2)]
    model = nn.Sequential(*layers, *([] if "linear" in fixes else [nn.ReLU()]))
    return Program(keras(model), x, y, F.mse_loss, adam(0.003), r_squared_all, 0.8, 32, 60)


@case(
    "gh-dl4j-examples-274",
    "GitHub deeplearning4j/deeplearning4j-examples issue 274, Autoencoder problem (symptom: the same reconstruction "
    "for all; softmax is ours)",
    "Columns of 0 to 1 through a narrow layer and back into an output layer of softmax.",
    sigmoid=("output activation", "sigmoid"),
    rate=("learning rate", "0.5 for 0.05"),
)
def _softmax_back(fixes):
    # 12 columns of 3 hidden numbers
    make = dice(11123)
    x = (torch.randn(400, 3, generator=make) @ torch.randn(3, 12, generator=make) * 1.5).sigmoid()
    end = nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
    model = keras(nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 12), end))

    def summed(o, t):
        return ((o - t) ** 2).sum(1).mean()

    rate = 0.5 if "rate" in fixes else 0.05
    return Program(model, x, x.clone(), summed, sgd(rate, momentum=0.9), r_squared_all, 0.5, 20, 30)


@case(
    "forum-hundred-softmaxes",
    "a kind of question of the PyTorch forum: softmax at the end and nn.CrossEntropyLoss, many classes, the loss stays "
    "at log(classes)",
    "Probabilities of 100 classes go into cross-entropy, which takes them for logits: 4.605 from first to last.",
    logits=("output activation", "no softmax"),
    adam=("optimizer", "Adam at 0.003 for SGD"),
    rate=("learning rate", "3 for 0.03"),
)
def _hundred(fixes):
    # 100 clouds of 10 points in 20 directions
    make = dice(11124)
    y = torch.arange(1000) % 100
    x = torch.randn(100, 20, generator=make)[y] + 0.3 * torch.randn(1000, 20, generator=make)
    layers = [nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 100)]
    model = nn.Sequential(*layers, *([] if "logits" in fixes else [nn.Softmax(1)]))
    plain = sgd(3.0 if "rate" in fixes and "logits" not in fixes else 0.03, momentum=0.9)
    how = adam(0.003) if "adam" in fixes else plain
    return Program(model, x, y, F.cross_entropy, how, accuracy, 0.7, 25, 20)


@case(
    "forum-view-of-maps",
    "a kind of question of the PyTorch forum: output.view(-1, classes) in front of the loss of a segmentation network",
    "Maps of (n, classes, height, width) are viewed as (-1, classes) without permute: classes and places are mixed up.",
    permuted=("shapes", "permute(0, 2, 3, 1) before"),
)
def _viewed_maps(fixes):
    # digits: background, edge, inside
    x, _ = digits(300)
    y = ((x > 60).long() + (x > 200).long())[:, 0]
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 3, 1)
    )

    def loss(o, t):
        rows = o.permute(0, 2, 3, 1).reshape(-1, 3) if "permuted" in fixes else o.reshape(-1, 3)
        return F.cross_entropy(rows, t.flatten())

    def three(o, t):
        right = o.argmax(1) == t
        return sum(right[t == k].double().mean().item() for k in range(3)) / 3

    return Program(model, x / 255, y, loss, adam(0.003), three, 0.8, 16, 8)


@case(
    "forum-sklearn-loss",
    "a kind of question of the PyTorch forum: a loss by scikit-learn or NumPy, made a tensor with requires_grad=True",
    "The outputs are detached for the loss, which is a new leaf: backward() runs, and no parameter has a gradient.",
    torch=("gradient flow", "the same loss of the outputs themselves"),
)
def _numpy_loss(fixes):
    make = dice(11126)
    x = torch.randn(500, 8, generator=make)
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:3] > 0).float()
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def loss(o, t):
        if "torch" in fixes:
            return binary_crossentropy(o, t)
        return torch.tensor(binary_crossentropy(o.detach(), t).item(), requires_grad=True)

    return Program(model, x, y, loss, adam(0.005), halves, 0.8, 32, 30)


@case(
    "gh-transformers-2331",
    "GitHub huggingface/transformers issue 2331 and pytorch/text issue 671, Learning Rate is not being updated by the "
    "Scheduler (symptom; that it is stepped by epoch is ours)",
    "A linear schedule with 200 steps of warm-up is stepped once an epoch: the rate stays near zero.",
    stepped=("update", "stepped after each batch"),
    rate=("learning rate", "0.3 for 0.005"),
)
def _linear_schedule(fixes):
    # sentences of 10 words of 40, of which kind most are; 12 epochs of 25 batches
    make = dice(11127)
    y = torch.arange(500) % 2
    x = torch.randint(20, (500, 10), generator=make)
    x = x + 20 * (torch.rand(500, 10, generator=make) < 0.35 + 0.3 * y[:, None]).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(40, 16), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x):
            return self.out(self.words(x).mean(1))

    made = once_each(
        lambda optimizer: [
            0,
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(k / 200, max(0.0, (1000 - k) / 800))),
        ]
    )

    def step(model, optimizer, loss, x, y):
        held = made(optimizer)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        held[0] += 1
        if "stepped" in fixes or held[0] % 25 == 0:
            held[1].step()
        return error.item()

    rate = 0.3 if "rate" in fixes and "stepped" not in fixes else 0.005
    return Program(Net(), x, y, F.cross_entropy, adam(rate), accuracy, 0.75, 20, 12, step=step)


@case(
    "forum-cosine-without-minus",
    "a kind of question of the PyTorch forum: nn.CosineSimilarity as loss goes to -1",
    "The similarity of outputs and targets is what backward() is called on: they become opposite.",
    minus=("loss", "1 - similarity"),
)
def _cosine(fixes):
    # vectors of 16 to vectors of 8
    make = dice(11128)
    x = torch.randn(500, 16, generator=make)
    y = torch.tanh(x @ torch.randn(16, 8, generator=make) * 0.3)
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 8))

    def loss(o, t):
        near = F.cosine_similarity(o, t).mean()
        return 1 - near if "minus" in fixes else near

    def near(o, t):
        return F.cosine_similarity(o, t).mean().item()

    return Program(model, x, y, loss, adam(0.003), near, 0.85, 25, 20)


@case(
    "forum-weight-decay-half",
    "a kind of question of the PyTorch forum: weight_decay=0.5, the network gives the same output for everything",
    "Decay takes more from the weights in each step than the gradient gives.",
    decay=("regularization", "weight_decay=0.0005"),
    rate=("learning rate", "0.005 for 0.05"),
)
def _decay(fixes):
    x, y = garments(500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    decay = 5e-4 if "decay" in fixes else 0.5
    how = sgd(0.005 if "rate" in fixes else 0.05, momentum=0.9, weight_decay=decay)
    return Program(model, x / 127.5 - 1, y, F.cross_entropy, how, accuracy, 0.7, 20, 15)


@case(
    "forum-break-left-in",
    "a kind of question of the PyTorch forum: a break of debugging is left in the loop over the loader",
    "Each epoch ends after its first batch: ten steps in ten epochs.",
    whole=("training length", "no break"),
    epochs=("training length", "400 epochs in place of 10"),
    rate=("learning rate", "0.1 for 0.001"),
)
def _break(fixes):
    x, y = digits(1280)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    counts = once_each(lambda optimizer: [0])
    whole = "whole" in fixes

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        count[0] += 1
        if not whole and count[0] % 40 != 1:
            return 0.0
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        return error.item()

    rate = 0.1 if "rate" in fixes else 0.001
    epochs = 400 if "epochs" in fixes and not whole else 10
    how = sgd(rate, momentum=0.9)
    return Program(model, x / 255, y, F.cross_entropy, how, accuracy, 0.6, 32, epochs, step=step)


@case(
    "gh-networks-reason-1",
    "GitHub NNReasoning/What-Can-Neural-Networks-Reason-About issue 1, Are you normalizing input data?",
    "The greatest difference of values among objects: with raw places, colours and values 'did not even converge'.",
    scale=("input scale", "each column / its range"),
    rate=("learning rate", "0.0001 for 0.1"),
)
def _greatest_difference(fixes):
    # 8 objects for 25, three classes of the difference; a sum over objects, SGD
    make = dice(11131)
    x = torch.rand(600, 8, 4, generator=make) * torch.rand(600, 1, 1, generator=make)
    gap = x[..., 2].amax(1) - x[..., 2].amin(1)
    y = (gap > gap.quantile(1 / 3)).long() + (gap > gap.quantile(2 / 3)).long()
    x = x if "scale" in fixes else x * torch.tensor([20.0, 20.0, 100.0, 6.0])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
            self.two = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

        def forward(self, x):
            return self.two(self.one(x).sum(1))

    rate = 1e-4 if "rate" in fixes and "scale" not in fixes else 0.1
    return Program(Net(), x, y, F.cross_entropy, sgd(rate, momentum=0.9), accuracy, 0.7, 30, 40)


@case(
    "forum-own-layer-zeros",
    "a kind of question of the PyTorch forum: a linear layer of one's own, nn.Parameter(torch.zeros(n, m)), twice",
    "Both weights of a network of two such layers start at zero: only the last bias moves.",
    drawn=("initialization", "torch.randn / sqrt(n)"),
)
def _own_layers(fixes):
    make = dice(11132)
    x = torch.randn(500, 6, generator=make)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] * x[:, 2] > 0).long()

    class Own(nn.Module):
        def __init__(self, n, m):
            super().__init__()
            self.w = nn.Parameter(torch.randn(n, m) / n**0.5 if "drawn" in fixes else torch.zeros(n, m))
            self.b = nn.Parameter(torch.zeros(m))

        def forward(self, x):
            return x @ self.w + self.b

    model = nn.Sequential(Own(6, 48), nn.Tanh(), Own(48, 4))
    return Program(model, x, y, F.cross_entropy, adam(0.01), accuracy, 0.75, 25, 30)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
