"""Stack Overflow, the PyTorch forum, a blog and GitHub; comments tell what is smaller, drawn or ours."""

import torch
from common import (
    accuracy,
    adam,
    categorical_crossentropy,
    dice,
    digits,
    garments,
    keras,
    normal,
    once_each,
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


def four_digits(count, start=0):
    """Four digits of 14 x 14 side by side, in 0..255, and their four labels."""
    x, y = digits(4 * count, start)
    x = F.avg_pool2d(x, 2).reshape(count, 4, 14, 14).permute(0, 2, 1, 3).reshape(count, 1, 14, 56)
    return x, y.reshape(count, 4)


class Captcha(nn.Module):
    """Two convolutions, one dense layer, and ten outputs for each of the four places."""

    def __init__(self, last=lambda z: z):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(384, 64),
            nn.ReLU(),
            nn.Linear(64, 40),
        )
        self.last = last

    def forward(self, x):
        return self.last(self.body(x).reshape(-1, 4, 10))


@case(
    "forum-148155",
    "PyTorch forum 148155, Output of the model depends on the shape of the weights tensor",
    "The sum of three inputs: outputs of (1024, 1) against targets of (1024), and the error stays at their variance.",
    column=("shapes", "targets of (1024, 1)"),
    flat=("shapes", "a weight of one axis, outputs of (1024)"),
    adam=("optimizer", "Adam at 0.01 for SGD at 0.1"),
)
def _sum_of_three(fixes):
    # the thread's network, data, rate, schedule and 500 epochs; the weight starts at zero, as there
    x = torch.rand(1024, 3, generator=dice(14001))
    y = x.sum(1)
    y = y[:, None] if "column" in fixes else y

    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x)[:, 0] if "flat" in fixes and "column" not in fixes else super().forward(x)

    model = Net(3, 1, bias=False)
    nn.init.zeros_(model.weight)
    plans = once_each(lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, "min", factor=0.5, patience=20))

    def step(model, optimizer, loss, x, y):
        plan = plans(optimizer)
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        plan.step(error.item())
        return error.item()

    how = adam(0.01) if "adam" in fixes else sgd(0.1)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.98, 1024, 500, step=step)


@case(
    "gh-cnn-keras-captcha-8",
    "GitHub scnuhealthy/cnn_keras_captcha issue 8, not working (the answer: a lower rate; the rate is ours)",
    "Four softmaxes for four digits: the same four are told for all pictures, one in ten is right.",
    rate=("learning rate", "0.001 for 0.1"),
    sgd=("optimizer", "SGD with momentum at 0.05"),
    logits=("loss", "cross-entropy of what comes before the softmax"),
)
def _four_softmaxes(fixes):
    # four digits of MNIST, halved, side by side; 400 pictures for 18,000
    x, y = four_digits(400)
    model = keras(Captcha((lambda z: z) if "logits" in fixes else (lambda z: z.softmax(2))))

    def loss(o, t):
        o, t = o.flatten(0, 1), t.flatten()
        return F.cross_entropy(o, t) if "logits" in fixes else categorical_crossentropy(o, one_hot(t, 10))

    rate = 1e-3 if "rate" in fixes else 0.1
    how = sgd(0.05, momentum=0.9) if "sgd" in fixes else adam(rate)
    return Program(model, x / 255, y, loss, how, token_accuracy, 0.6, 20, 15)


@case(
    "gh-srnet-18",
    "GitHub lksshw/SRNet issue 18, No sigmoid in discriminator output and too much gradient clip",
    "Logarithms of a discriminator's raw outputs, cut to 0..1, and all weights clamped to 0.01 after each step.",
    sigmoid=("output activation", "a sigmoid at the end"),
    clamp=("update", "weights clamped to 1"),
    rate=("learning rate", "0.001 for 0.0002"),
)
def _no_sigmoid(fixes):
    # garments against blurred garments in place of the generator's; three convolutions; Adam as there
    x = garments(600)[0] / 127.5 - 1
    x = torch.cat([x[:300], F.avg_pool2d(x[300:], 3, 1, 1)])
    y = (torch.arange(600) < 300).float()[:, None]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 3, 2),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 16, 3, 2),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(64, 1),
    )
    if "sigmoid" in fixes:
        model.append(nn.Sigmoid())

    def loss(o, t):
        return -(t * o.clamp(1e-8, 1).log() + (1 - t) * (1 - o).clamp(1e-8, 1).log()).mean()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        with torch.no_grad():
            for p in model.parameters():
                p.clamp_(-1, 1) if "clamp" in fixes else p.clamp_(-0.01, 0.01)
        return error.item()

    how = adam(1e-3 if "rate" in fixes else 2e-4)
    return Program(model, x, y, loss, how, accuracy, 0.8, 20, 20, step=step)


@case(
    "gh-keras-255",
    "GitHub keras-team/keras issue 255, model doesn't learn/weights don't get updated",
    "The pictures were divided by 255 as whole numbers: every pixel is 0.",
    float=("input scale", "divided as floats"),
    epochs=("training length", "40 epochs for 10"),
    adam=("optimizer", "Adam at 0.001"),
)
def _whole_pixels(fixes):
    # planes and frogs of CIFAR-10 for scenes of a game, 200 each; network and rate are ours
    x, y = photographs(2000)
    rows = (y == 0) | (y == 6)
    x, y = x[rows], one_hot(y[rows] == 6, 2)
    x = x / 255 if "float" in fixes else (x.long() // 255).float()
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 32),
        nn.ReLU(),
        nn.Linear(32, 2),
        nn.Softmax(1),
    )
    epochs = 40 if "epochs" in fixes else 10
    how = adam() if "adam" in fixes else sgd(0.01, momentum=0.9, nesterov=True)
    return Program(keras(model), x, y, categorical_crossentropy, how, accuracy, 0.75, 20, epochs)


@case(
    "gh-pygoturn-16",
    "GitHub amoudgl/pygoturn issue 16, an error about the use of exp_lr_scheduler",
    "When the decay is due, it is made again for every sample until the batch is full: the rate is soon nothing.",
    once=("update", "the decay is made when the batch is full"),
    later=("learning rate", "decays twenty times as late"),
    adam=("optimizer", "Adam at 0.002"),
)
def _decay_for_each_sample(fixes):
    # where a garment stands in a dark picture of 20 x 20: its box, by convolutions for CaffeNet; decay after 20 batches
    make = dice(14006)
    small = F.avg_pool2d(garments(400)[0], 2) / 255
    x, y = torch.zeros(400, 1, 20, 20), torch.randint(7, (400, 2), generator=make)
    for k, (i, j) in enumerate(y.tolist()):
        x[k, 0, i : i + 14, j : j + 14] = small[k, 0]
    y = y / 3 - 1
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 2),
    )
    counts = once_each(lambda optimizer: [0])
    every = 400 if "later" in fixes else 20

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        if count[0] and count[0] % every == 0:
            for group in optimizer.param_groups:
                group["lr"] *= 0.7 if "once" in fixes else 0.7 ** len(x)
        count[0] += 1
        optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        return error.item()

    how = adam(0.002) if "adam" in fixes else sgd(0.02, momentum=0.9)
    return Program(model, x, y, F.mse_loss, how, r_squared_all, 0.75, 20, 15, step=step)


@case(
    "gh-population-estimation-68",
    "GitHub jvargasmu/population_estimation issue 68, Sometimes the initial solution predicts only zeros (due to RELU "
    "activation)",
    "Persons per building end in a ReLU that is zero in every cell from the start, and no gradient comes.",
    softplus=("output activation", "softplus for ReLU"),
    bias=("initialization", "the last bias starts at 0"),
    logarithm=("loss", "absolute differences of logarithms"),
)
def _no_persons(fixes):
    # 200 regions of 16 cells, eight columns and the count of buildings, drawn; the last bias starts at -1 in all seeds
    make = dice(14007)
    x = torch.randn(200, 16, 8, generator=make)
    buildings = torch.randint(1, 30, (200, 16, 1), generator=make).float()
    rate_of = torch.sigmoid(x[..., :1] + 0.5 * x[..., 1:2] - 1)
    y = (buildings * rate_of).sum(1)
    x = torch.cat([x, buildings], 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
            nn.init.constant_(self.body[4].bias, 0 if "bias" in fixes else -1)
            self.last = nn.Softplus() if "softplus" in fixes else nn.ReLU()

        def forward(self, x):
            return (x[..., 8:] * self.last(self.body(x[..., :8]))).sum(1)

    def loss(o, t):
        return ((o + 1).log() - (t + 1).log()).abs().mean() if "logarithm" in fixes else F.l1_loss(o, t)

    return Program(Net(), x, y, loss, adam(0.003), r_squared, 0.7, 10, 20)


@case(
    "gh-voxelnet-tensorflow-10",
    "GitHub tsinghua-rll/VoxelNet-tensorflow issue 10, RPN last layer",
    "Batch norm and ReLU stand also after the last layer, and shifts of boxes, half of them negative, cannot be met.",
    linear=("output activation", "nothing after the last layer"),
    shifted=("target scale", "targets 3 higher"),
    absolute=("loss", "smooth absolute differences"),
)
def _relu_of_boxes(fixes):
    # a spot of 3 x 3 in a map of 12 x 12, drawn: its shift and the logarithm of its height; one anchor
    make = dice(14008)
    x, y = 0.3 * torch.randn(400, 1, 12, 12, generator=make), torch.zeros(400, 3)
    for k, (i, j) in enumerate(torch.randint(10, (400, 2), generator=make).tolist()):
        tall = torch.randn(1, generator=make)[0]
        x[k, 0, i : i + 3, j : j + 3] += 2 * (0.3 * tall).exp()
        y[k] = torch.stack([torch.tensor((i - 4.5) / 3), torch.tensor((j - 4.5) / 3), tall])
    y = y + 3 if "shifted" in fixes else y
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 3),
    )
    if "linear" not in fixes:
        model = nn.Sequential(*model, nn.BatchNorm1d(3), nn.ReLU())
    loss = F.smooth_l1_loss if "absolute" in fixes else F.mse_loss
    return Program(model, x, y, loss, adam(0.003), r_squared_all, 0.75, 20, 20)


@case(
    "gh-explaining-in-style-9",
    "GitHub NoahVl/Explaining-In-Style-Reproducibility-Study issue 9, Classifier acc",
    "Pictures come as the folder lists them, attributes in the order of their table: no label is its picture's.",
    sorted=("labels", "the pictures are sorted by name"),
    epochs=("training length", "20 epochs for 8"),
    adam=("optimizer", "Adam at 0.001"),
)
def _listed_pictures(fixes):
    # garments, upper part or not, for an attribute of faces; 800 pictures; network and rate are ours
    x, y = garments(800)
    y = ((y == 0) | (y == 2) | (y == 4) | (y == 6) | (y == 3)).float()[:, None]
    listed = torch.randperm(800, generator=dice(14009))
    x = x / 255
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(300, 1),
    )

    def signs(o, t):
        return ((o > 0) == (t > 0.5)).double().mean().item()

    how, epochs = adam() if "adam" in fixes else sgd(0.02, momentum=0.9), 20 if "epochs" in fixes else 8
    seen = x if "sorted" in fixes else x[listed]
    loss = F.binary_cross_entropy_with_logits
    return Program(model, seen, y, loss, how, signs, 0.85, 20, epochs, held_out=(x, y))


@case(
    "gh-caffe-mobilenet-v3-1",
    "GitHub jixing0415/caffe-mobilenet-v3 issue 1, Why the loss stayed the same value? (symptom: the logarithm of the "
    "number of classes to the last digit; the cause is ours)",
    "A ReLU stands also after the last layer: a class whose score is 0 for all pictures stays there.",
    linear=("output activation", "no ReLU at the end"),
    rate=("learning rate", "0.005 for 0.1"),
    adam=("optimizer", "Adam at 0.001"),
)
def _scores_of_zero(fixes):
    # 600 digits; separable convolutions, ten classes for 1,000; momentum as there
    x, y = digits(600)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, 2, groups=16),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1152, 10),
    )
    if "linear" not in fixes:
        model.append(nn.ReLU())
    how = adam() if "adam" in fixes else sgd(0.005 if "rate" in fixes else 0.1, momentum=0.9)
    return Program(keras(model), x / 255, y, F.cross_entropy, how, accuracy, 0.75, 20, 10)


@case(
    "gh-captcha-tensorflow-14",
    "GitHub JackonYang/captcha-tensorflow issue 14, Why not the training accuracy and test accuracy rise? (symptom: "
    "4.12, the logarithm of 62; the rate is ours)",
    "Letters and digits, 62 classes: the loss comes to the logarithm of 62 and stays.",
    rate=("learning rate", "0.001 for 0.00001"),
    epochs=("training length", "25 epochs for 10"),
    sgd=("optimizer", "SGD with momentum at 0.05"),
)
def _sixty_two(fixes):
    # signs of 5 x 7, drawn, in pictures of 12 x 12, with noise; Adam as there
    make = dice(14011)
    signs = (torch.rand(62, 7, 5, generator=make) < 0.5).float()
    y = torch.randint(62, (1500,), generator=make)
    x = 0.3 * torch.rand(1500, 1, 12, 12, generator=make)
    for k, (i, j) in enumerate(torch.randint(4, (1500, 2), generator=make).tolist()):
        x[k, 0, i : i + 7, j : j + 5] += signs[y[k]]
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 128),
        nn.ReLU(),
        nn.Linear(128, 62),
    )
    rate, epochs = 0.001 if "rate" in fixes else 1e-5, 25 if "epochs" in fixes else 10
    how = sgd(0.05, momentum=0.9) if "sgd" in fixes else adam(rate)
    return Program(model, x, y, F.cross_entropy, how, accuracy, 0.6, 20, epochs)


@case(
    "gh-multi-task-tcga-16",
    "GitHub MollyZhang/Multi-task-TCGA-learning issues 16 and 15, Explore what happens when using relu as activation "
    "function in AE",
    "Before each ReLU all sums are negative: the code is 0, and the biases give the mean of every gene.",
    leaky=("hidden activation", "leaky ReLU"),
    standardized=("input scale", "genes standardized, and so what is to be given back"),
    rate=("learning rate", "a tenth"),
    tanh=("hidden activation", "tanh"),
)
def _code_of_zeros(fixes):
    # 300 samples of 100 genes, logarithms of counts up to 15, made of five factors, drawn; the rate is ours
    make = dice(14012)
    x = 8 + torch.randn(300, 5, generator=make) @ torch.randn(5, 100, generator=make)
    x = x + 2 * torch.randn(100, generator=make) + 0.3 * torch.randn(300, 100, generator=make)
    x = x.clamp(min=0)
    x = standardized(x) if "standardized" in fixes else x

    def act():
        return nn.Tanh() if "tanh" in fixes else nn.LeakyReLU(0.2) if "leaky" in fixes else nn.ReLU()

    model = nn.Sequential(nn.Linear(100, 64), act(), nn.Linear(64, 16), act(), nn.Linear(16, 64), act())
    model = nn.Sequential(*model, nn.Linear(64, 100))
    rate = 0.003 if "rate" in fixes else 0.03
    return Program(model, x, x, F.mse_loss, adam(rate), r_squared_all, 0.6, 20, 40)


@case(
    "gh-captcha-recognize-1",
    "GitHub PatrickLib/captcha_recognize issue 1, Training loss just keep increasing (the answer asks how pictures are "
    "decoded; the bytes are ours)",
    "Pictures go in as bytes, not between -0.5 and 0.5: the loss grows at every step.",
    scale=("input scale", "/ 255 - 0.5"),
    rate=("learning rate", "a hundredth"),
    adam=("optimizer", "Adam at 0.001"),
)
def _growing_loss(fixes):
    # four digits of MNIST, halved, side by side, for eight letters; 400 pictures; gradient descent is ours
    x, y = four_digits(400, 2000)
    x = x / 255 - 0.5 if "scale" in fixes else x

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    how = adam() if "adam" in fixes else sgd(1e-3 if "rate" in fixes else 0.1, momentum=0.9)
    return Program(Captcha(), x, y, loss, how, token_accuracy, 0.6, 20, 15)


@case(
    "blog-testpy-log-of-zero",
    "testpy.hatenablog.com 2017/05/08, the loss becomes NaN (TensorFlow)",
    "Cross-entropy by the logarithm of the softmax, summed: perfect in training, then a probability of 0, and nan.",
    logits=("loss", "cross-entropy of what comes before the softmax"),
    small=("loss", "1e-7 added in the logarithm"),
    rate=("learning rate", "a hundredth"),
    mean=("loss", "the mean over the batch for the sum"),
)
def _log_of_zero(fixes):
    # 500 digits; network and rate are ours
    x, y = digits(500)

    def loss(o, t):
        o = o.softmax(1)
        o = o + 1e-7 if "small" in fixes else o
        each = -(one_hot(t, 10) * o.log()).sum(1)
        return each.mean() if "mean" in fixes else each.sum()

    def stable(o, t):
        return F.cross_entropy(o, t, reduction="mean" if "mean" in fixes else "sum")

    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    how = adam(5e-4 if "rate" in fixes else 0.05)
    return Program(model, x / 255, y, stable if "logits" in fixes else loss, how, accuracy, 0.8, 20, 30)


@case(
    "so-tflearn-xor",
    "Stack Overflow (newbe.dev), tflearn / tensorflow does not learn xor",
    "XOR from two hidden layers of sigmoids, weights from a normal law of 0.02, by squared errors: 0.5 for all.",
    uniform=("initialization", "uniform between -1 and 1"),
    layer=("architecture", "one hidden layer"),
    entropy=("loss", "cross-entropy for squared errors"),
    adam=("optimizer", "Adam at 0.03"),
)
def _tflearn_xor(fixes):
    # loss, rate of 2 and law of 0.02 are an answer's; 4,000 steps on all four for its 10,000; eight units for two
    x = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    y = torch.tensor([[0.0], [1], [1], [0]])
    body = [nn.Linear(2, 8), nn.Sigmoid()]
    body += [] if "layer" in fixes else [nn.Linear(8, 8), nn.Sigmoid()]
    model = nn.Sequential(*body, nn.Linear(8, 1), nn.Sigmoid())
    law = (lambda w: nn.init.uniform_(w, -1, 1)) if "uniform" in fixes else normal(0.02)
    for layer in model:
        if isinstance(layer, nn.Linear):
            law(layer.weight)
            nn.init.zeros_(layer.bias)
    loss = F.binary_cross_entropy if "entropy" in fixes else F.mse_loss
    how = adam(0.03) if "adam" in fixes else sgd(2.0)
    return Program(model, x, y, loss, how, accuracy, 1.0, 4, 4000)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
