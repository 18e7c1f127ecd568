"""Questions and issues about Keras, and programs of collections; comments tell what is smaller or drawn."""

import itertools

import torch
from common import (
    accuracy,
    adam,
    binary_crossentropy,
    categorical_crossentropy,
    dice,
    digits,
    garments,
    he,
    he_uniform,
    initialized,
    keras,
    one_hot,
    photographs,
    r_squared,
    r_squared_all,
    rmsprop,
    sgd,
    standardized,
)
from faults import Program
from torch import Tensor, nn
from torch.nn import functional as F


def uniform(low: float, high: float):
    return lambda weight: nn.init.uniform_(weight, low, high)


def dense(widths, activation, last=()):
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return [*layers[:-1], *last]


class Steps(nn.Module):
    """A bidirectional LSTM and a linear layer on each of its steps."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.layer, self.dropout = nn.LSTM(5, 20, batch_first=True, bidirectional=True), nn.Dropout(0.2)
        self.dense, self.last = nn.Linear(40, 3), last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dense(self.dropout(self.layer(x)[0])))


def _sequence_labels(fixes):
    # the thread's values are such: five features near 0 in steps of class 1, near 2 in those of class 2; no masking
    make = dice(901)

    def draw(count):
        y = torch.randint(1, 3, (count, 20), generator=make)
        length = torch.randint(5, 20, (count, 1), generator=make)
        y = torch.where(torch.arange(20) < length, y, 0)
        x = torch.randn(count, 5, 20, generator=make) * 0.9 + 0.2 + 1.9 * (y == 2)[:, None]
        x = torch.where((y > 0)[:, None], x, 0.0)
        return x.transpose(1, 2) if "transposed" in fixes else x.reshape(count, 20, 5), y

    (x, y), test = draw(16), draw(60)
    model = Steps(nn.Softmax(2) if "softmax" in fixes else nn.Sigmoid())

    def loss(outputs, targets):
        p = (outputs / outputs.sum(2, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return F.nll_loss(p.log().flatten(0, 1), targets.flatten())

    def steps_right(outputs, targets):
        return (outputs.argmax(2) == targets)[targets > 0].double().mean().item()

    how = adam(0.005) if "adam" in fixes else sgd(0.01, momentum=0.9, nesterov=True)
    return Program(model, x, y, loss, how, steps_right, 0.85, 20, 200 if "epochs" in fixes else 10, held_out=test)


def _big_batches(fixes):
    # 5,000 and 600 units and 60,000 digits in the collection's file
    x, y = digits(4000)
    model = keras(
        nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(128, 60),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(60, 10),
            nn.Softmax(1),
        )
    )
    rate = 0.2 if "rate" in fixes else 0.01
    batch = 128 if "batches" in fixes else 2000
    return Program(
        model,
        x / 255,
        one_hot(y, 10),
        categorical_crossentropy,
        sgd(rate, momentum=0.9 if "rate" not in fixes else 0.0),
        accuracy,
        0.85,
        batch,
        10 if "epochs" in fixes else 5,
    )


def _relu_as_probability(fixes):
    # 32, 64 filters and 1,024 units, 600 batches of 50
    x, y = digits(1500)
    layers = [
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(256, 10),
    ]
    model = keras(nn.Sequential(*layers, nn.Softmax(1) if "softmax" in fixes else nn.ReLU()))
    for layer in model[:-2]:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.constant_(layer.bias, 0.1)

    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, adam(), accuracy, 0.8, 50, 12)


def _raw_photographs(fixes):
    # 64 and 256 filters, 512 units and pictures of 32 x 32 in the question; he_normal as there
    x, y = photographs(800)
    layers = [
        nn.Conv2d(3, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 10),
        nn.Softmax(1),
    ]
    model = keras(nn.Sequential(*layers))
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            he(layer.weight)
    return Program(
        model,
        x / 255 if "scale" in fixes else x,
        one_hot(y, 10),
        categorical_crossentropy,
        adam(),
        accuracy,
        0.4,
        50,
        20,
    )


def _three_kinds_one_unit(fixes):
    # 150 x 150 colour pictures of three kinds in the question; three kinds of garments here
    x, y = garments(6000)
    rows = (y < 8) & (y % 3 == 1)  # trousers, coats, sneakers
    x, y = x[rows][:1200] / 255, torch.div(y[rows][:1200], 3, rounding_mode="floor")
    units = 3 if "three units" in fixes else 1
    last = nn.Softmax(1) if units == 3 else nn.Sigmoid()
    layers = [
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, units),
        last,
    ]

    def right(outputs, targets):
        told = outputs.argmax(1) if units == 3 else (outputs[:, 0] > 0.5).long()
        return (told == targets).double().mean().item()

    def loss(outputs, targets):
        if units == 3:
            return categorical_crossentropy(outputs, one_hot(targets, 3))
        return binary_crossentropy(outputs, targets[:, None].float())

    return Program(keras(nn.Sequential(*layers)), x, y, loss, rmsprop(), right, 0.85, 16, 6)


def _keypoints(fixes):
    # 15 points of faces on 96 x 96 pixels in the project; drawn, each point a bright spot
    make = dice(908)
    mean = 20 + 56 * torch.rand(15, 2, generator=make)
    move = 7 * torch.randn(600, 1, 2, generator=make)
    size = 1 + 0.12 * torch.randn(600, 1, 1, generator=make)
    points = ((mean - 48) * size + 48 + move).clamp(1, 94)
    grid = torch.arange(96.0)
    x = torch.zeros(600, 96, 96)
    for k in range(15):
        gx, gy = ((grid - points[:, k, i : i + 1]) ** 2 for i in (0, 1))
        x += (-gx[:, None, :] / 30).exp() * (-gy[:, :, None] / 30).exp()
    x = (0.25 + 0.6 * x.clamp(0, 1) + 0.05 * torch.randn(600, 96, 96, generator=make)).clamp(0, 1)
    y = ((points - 48) / 48).flatten(1)
    model = keras(nn.Sequential(nn.Flatten(), nn.Linear(9216, 50), nn.Linear(50, 100), nn.Linear(100, 30)))
    return Program(model, x, y, F.mse_loss, adam(3e-4 if "rate" in fixes else 0.1), r_squared_all, 0.5, 32, 20)


def _pilot_photographs(fixes):
    # 64 and 128 filters, pictures of 32 x 32 in the file
    x, y = photographs(1000)
    rate = 0.2 if "dropout" in fixes else 0.8
    layers = [
        nn.Conv2d(3, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(rate),
        nn.Conv2d(12, 24, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(rate),
        nn.Flatten(),
        nn.Linear(96, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Dropout(rate),
        nn.Linear(128, 10),
        *([nn.Softmax(1)] if "softmax" in fixes else []),
    ]
    x = x / 255 if "scale" in fixes else x

    def loss(outputs, targets):  # Keras' of probabilities: divides by the sum and clips
        p = (outputs / outputs.sum(1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return F.nll_loss(p.log(), targets)

    return Program(keras(nn.Sequential(*layers)), x, y, loss, adam(), accuracy, 0.3, 64, 18)


def _pilot_garments(fixes):
    x, y = garments(2000)
    layers = dense([784, 256, 256, 10], nn.ReLU, [nn.Softmax(1)] if "softmax" in fixes else [])
    rate = 0.1 if "size" in fixes else 1e5

    def loss(outputs, targets):
        p = (outputs / outputs.sum(1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return F.nll_loss(p.log(), targets)

    def how(m):
        return torch.optim.SGD(m.parameters(), rate, maximize="sign" not in fixes)

    return Program(keras(nn.Sequential(nn.Flatten(), *layers)), x / 255, y, loss, how, accuracy, 0.7, 256, 15)


def _evaluation_b(fixes):
    # 64 and 128 filters, pictures of 32 x 32 in the file
    x, y = photographs(1000)
    act = nn.ReLU if "relu" in fixes else nn.Identity
    layers = [
        nn.Conv2d(3, 12, 3),
        act(),
        nn.Conv2d(12, 12, 3),
        act(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Conv2d(12, 24, 3),
        act(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(96, 128),
        act(),
        nn.Linear(128, 128),
        act(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    ]
    rate = 1e-3 if "size" in fixes else 1e3

    def how(m):
        return torch.optim.Adam(m.parameters(), rate, maximize="sign" not in fixes)

    return Program(keras(nn.Sequential(*layers)), x / 255, y, F.cross_entropy, how, accuracy, 0.35, 32, 16)


def _unscaled_regression(fixes):
    make = dice(912)
    x = torch.randn(500, 20, generator=make)
    weights = torch.zeros(20, 1)
    weights[torch.randperm(20, generator=make)[:10]] = 100 * torch.rand(10, 1, generator=make)
    y = x @ weights + 0.1 * torch.randn(500, 1, generator=make)
    y = standardized(y) if "targets" in fixes else y
    model = initialized(nn.Sequential(nn.Linear(20, 25), nn.ReLU(), nn.Linear(25, 1)), he_uniform)
    how = adam(0.01) if "adam" in fixes else sgd(1e-5 if "rate" in fixes and "targets" not in fixes else 0.01)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.9, 32, 100)


class Reviews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(500, 64), nn.RNN(64, 64, batch_first=True)
        self.rest = nn.Sequential(
            nn.Dropout(0.2), nn.BatchNorm1d(64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid()
        )
        nn.init.uniform_(self.words.weight, -0.05, 0.05)
        nn.init.orthogonal_(self.layer.weight_hh_l0)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.layer(self.words(x))[0][:, -1])


def _reviews(fixes):
    # 25,000 reviews of 500 words out of 5,000 in the file; drawn: a tenth of the words tell
    make = dice(913)
    y = torch.randint(2, (1000, 1), generator=make)
    x = torch.randint(500, (1000, 20), generator=make)
    telling = torch.rand(1000, 20, generator=make) < 0.3
    x = torch.where(telling, torch.randint(25, (1000, 20), generator=make) + 25 * y, x)
    return Program(
        keras(Reviews()),
        x,
        y.float(),
        binary_crossentropy,
        adam(1e-3 if "rate" in fixes else 1.0),
        accuracy,
        0.85,
        32,
        8,
    )


def _eleven_layers(fixes):
    # 16 and 36 filters, pictures of 32 x 32 and 10,000 of them in the file
    x, y = photographs(1000)
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 18, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
    ]
    width = 18 * 16
    for _ in range(2 if "fewer layers" in fixes else 11):
        layer = nn.Linear(width, 128)
        layers += [layer, *([nn.BatchNorm1d(128)] if "batch norm" in fixes else []), nn.ReLU()]
        width = 128
    model = keras(nn.Sequential(*layers, nn.Linear(128, 10), nn.Softmax(1)))
    for layer in model[8:-2]:
        if isinstance(layer, nn.Linear):
            he_uniform(layer.weight) if "he" in fixes else nn.init.uniform_(layer.weight, -0.05, 0.05)
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, adam(), accuracy, 0.4, 64, 15)


def _deep_sigmoid_lenet(fixes):
    # optimizer and epochs could not be read: Keras' SGD and 8 epochs are assumed; a small L2 penalty is left out
    x, y = digits(1500)
    act = nn.ReLU if "relu" in fixes else nn.Sigmoid
    layers = [
        nn.Conv2d(1, 6, 5),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        act(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        act(),
    ]
    for width in (120, 84, 84, 84, 84, 84, 84):
        layers += [nn.Linear(width, 84), *([nn.BatchNorm1d(84)] if "batch norm" in fixes else []), act()]
    model = initialized(nn.Sequential(*layers, nn.Linear(84, 10), nn.Softmax(1)), he)
    return Program(
        model,
        x / 255,
        one_hot(y, 10),
        categorical_crossentropy,
        adam() if "adam" in fixes else sgd(0.01),
        accuracy,
        0.75,
        32,
        8,
    )


def _where_is_the_box(fixes):
    # 10,000 larger pictures and four times the filters in the question
    make = dice(916)
    place = torch.rand(640, 2, generator=make) * 2 - 1
    corner = ((place + 1) * 12).round().long()
    x = 0.3 * torch.rand(640, 3, 32, 32, generator=make)
    for i in range(640):
        x[i, :, corner[i, 1] : corner[i, 1] + 8, corner[i, 0] : corner[i, 0] + 8] = 1
    layers = [
        nn.Conv2d(3, 8, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, 2, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 100),
        nn.ReLU(),
        nn.Linear(100, 2),
    ]
    x = 255 * x if "scale" not in fixes else x
    return Program(
        keras(nn.Sequential(*layers)),
        x,
        place,
        F.mse_loss,
        adam(1e-3 if "rate" in fixes else 0.01),
        r_squared_all,
        0.8,
        64,
        12,
    )


def _twice_x(fixes):
    x = torch.arange(200.0)[:, None]
    y = 2 * x
    rate = 1e-3
    if "rate" in fixes:
        rate = 0.05 if "scale" in fixes else 1e-5  # what suits the inputs
    x = standardized(x) if "scale" in fixes else x
    return Program(keras(nn.Sequential(nn.Linear(1, 1))), x, y, F.mse_loss, sgd(rate), r_squared, 0.9, 1, 1)


def _patches(fixes):
    # 50 filters, two layers of 800 units, 200,000 patches of 32 x 32 in the issue; mean slopes are to be told
    make = dice(918)
    images, _ = digits(800)
    x = F.pad(images, (2, 2, 2, 2)) * (0.3 + 0.7 * torch.rand(800, 1, 1, 1, generator=make))
    y = x.flatten(1).mean(1, keepdim=True)
    y = 50 + 15 * (y - y.mean()) / y.std()
    rate = 0.4 * (0.25 if "dropout" in fixes else 1.75)
    layers = [
        nn.Conv2d(1, 10, 7),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1690, 100),
        nn.ReLU(),
        nn.Dropout(rate),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Dropout(rate),
        nn.Linear(100, 1),
    ]
    model = keras(nn.Sequential(*layers))
    penalty = 1e-4 if "penalty" in fixes else 0.5

    def clipped(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        (value + penalty * ((model[4].weight ** 2).sum() + (model[7].weight ** 2).sum())).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100)
        optimizer.step()
        return value.item()

    rate = 1e-3 if "rate" in fixes else 1e-5
    return Program(
        model, x / 255, y, F.mse_loss, sgd(rate, momentum=0.9, nesterov=True), r_squared, 0.6, 64, 15, step=clipped
    )


def _xor_two_units(fixes):
    x = torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    y = torch.tensor([[0.0], [1], [1], [0]])
    width = 8 if "units" in fixes else 2
    model = nn.Sequential(nn.Linear(2, width), nn.Sigmoid(), nn.Linear(width, 1), nn.Sigmoid())
    law = uniform(-1, 1) if "centred" in fixes else uniform(0, 1)
    initialized(model, law, bias=law)

    def half_squared(o, t):
        return 0.5 * ((o - t) ** 2).sum()

    def all_right(o, t):
        return 1 - (o - t).abs().max().item()

    return Program(model, x, y, half_squared, sgd(1.0 if "rate" in fixes else 0.1), all_right, 0.6, 1, 2250)


def _sum_of_five(fixes):
    x = torch.tensor([[1.0, 2, 3, 4, 5], [1, 2, 3, 4, 6]])
    y = torch.tensor([[15.0], [16]])
    x = x - x.mean(0) if "centred" in fixes else x
    act = nn.LeakyReLU(0.1) if "leaky" in fixes else nn.ReLU()
    model = initialized(nn.Sequential(nn.Linear(5, 2), act, nn.Linear(2, 1)), lambda w: nn.init.normal_(w))
    return Program(
        model,
        x,
        y,
        lambda o, t: ((o - t) ** 2).sum() / 2,
        sgd(1e-3 if "rate" in fixes else 0.01),
        r_squared,
        0.8,
        2,
        1000,
    )


def _numpy_rand(fixes):
    # width, rate and penalty assumed: 100, 0.05, none
    x, y = digits(1500)
    act = nn.ReLU if "relu" in fixes else nn.Sigmoid
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 100), act(), nn.Linear(100, 100), act(), nn.Linear(100, 10), nn.Softmax(1)
    )
    with torch.no_grad():
        for layer in (model[1], model[3], model[5]):
            shape, inputs = layer.weight.shape, layer.in_features
            layer.weight.copy_((torch.randn(shape) if "centred" in fixes else torch.rand(shape)) * inputs**-0.5)
            layer.bias.zero_()
    return Program(model, x / 255, one_hot(y, 10), categorical_crossentropy, sgd(0.05), accuracy, 0.8, 1, 2)


def _regression_net(fixes):
    # 1,028 units a layer in the question, as remembered; Adam of Keras
    make = dice(922)
    x = torch.randn(800, 4, generator=make)
    y = 60 * x[:, :1] - 40 * x[:, 1:2] * x[:, 2:3] + 120 + 5 * torch.randn(800, 1, generator=make)
    y = standardized(y) if "targets" in fixes else y
    model = initialized(
        nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)),
        uniform(-0.05, 0.05),
    )
    how = rmsprop() if "rmsprop" in fixes else sgd(1e-3 if "rate" in fixes else 0.1, momentum=0.9, nesterov=True)
    return Program(model, x, y, F.mse_loss, how, r_squared, 0.7, 32, 40)


def _majority(fixes):
    rows = (
        "1101111111011111111111111111111100011010111110010011111111111111011111110111111111111101111111111110",
        "0011111001000001011010001011000100010001110011011101111111110000111111001001001001110011011101111000",
        "0111101111010000000000111110001101000010110000101111010111100110010110000110000011001010000000000110",
    )
    x = torch.tensor([[float(c) for c in row] for row in rows]).T.contiguous()
    y = (x.sum(1, keepdim=True) > 1).float()
    model = keras(
        nn.Sequential(
            nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 1), nn.Sigmoid() if "sigmoid" in fixes else nn.Softmax(1)
        )
    )
    return Program(model, x, y, binary_crossentropy, rmsprop(), accuracy, 0.95, 19, 300 if "epochs" in fixes else 10)


def _whole_numbers(fixes):
    # 60,000 digits in batches of 256 in the tutorial
    x, _ = digits(3000)
    x = x.flatten(1)
    model = keras(nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 784), nn.Sigmoid()))

    def how(m):
        return torch.optim.Adadelta(m.parameters(), 1.0, rho=0.95, eps=1e-7)

    return Program(
        model,
        x / 255 if "inputs" in fixes else x,
        x / 255 if "targets" in fixes else x,
        binary_crossentropy,
        how,
        r_squared_all,
        0.4,
        32,
        20,
    )


def _rare_class(fixes):
    # a kind of question: 2 in 100 are frauds
    make = dice(924)
    x = torch.randn(3000, 10, generator=make)
    y = (torch.rand(3000, 1, generator=make) < 0.03).float()
    x[:, :3] += 1.1 * y
    model = keras(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid()))

    def weighed(o, t):
        weight = torch.where(t > 0.5, 33.0, 1.0)
        p = o.clamp(1e-7, 1 - 1e-7)
        return -(weight * (t * p.log() + (1 - t) * (1 - p).log())).mean()

    def balanced(o, t):
        told = o > 0.5
        return 0.5 * (told[t > 0.5].double().mean() + (~told)[t < 0.5].double().mean()).item()

    return Program(model, x, y, weighed if "weights" in fixes else binary_crossentropy, adam(), balanced, 0.8, 32, 10)


def _sparse_into_squares(fixes):
    # the labels are numbers, (n, 1), and ten units are compared with them
    x, y = digits(3000)
    model = keras(nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10), nn.Softmax(1)))

    def right(o, t):
        return (o.argmax(1) == (t.argmax(1) if t.shape[1] > 1 else t[:, 0])).double().mean().item()

    return Program(
        model,
        x / 255,
        one_hot(y, 10) if "one hot" in fixes else y[:, None].float(),
        F.mse_loss,
        adam(),
        right,
        0.85,
        32,
        8,
    )


PROGRAMS = {
    "so-59282996": _sequence_labels,
    "so-44164749": _big_batches,
    "so-47352366": _relu_as_probability,
    "so-48594888": _raw_photographs,
    "so-50079585": _three_kinds_one_unit,
    "deeplocalize-facial-keypoints": _keypoints,
    "umlaut-pilot-photographs": _pilot_photographs,
    "umlaut-pilot-garments": _pilot_garments,
    "umlaut-evaluation-b": _evaluation_b,
    "autotrainer-unstable-regression": _unscaled_regression,
    "autotrainer-rnn-reviews": _reviews,
    "autotrainer-eleven-layers": _eleven_layers,
    "deepdiagnosis-lenet-sigmoids": _deep_sigmoid_lenet,
    "cv-261704": _where_is_the_box,
    "gh-keras-3040": _twice_x,
    "gh-keras-2134": _patches,
    "ai-6170": _xor_two_units,
    "ai-28864": _sum_of_five,
    "so-numpy-rand": _numpy_rand,
    "so-37232782": _regression_net,
    "cv-majority-of-three": _majority,
    "gh-keras-3642": _whole_numbers,
    "dse-rare-class": _rare_class,
    "so-sparse-into-squares": _sparse_into_squares,
}
