"""Programs on photographs, from TheDeepChecker, AUTOTRAINER and a course; smaller pictures than theirs, and fewer."""

from itertools import pairwise

from common import accuracy, adam, he_uniform, initialized, normal, photographs, sgd
from faults import Program
from torch import nn
from torch.nn import functional as F


def _raw_pixels(fixes: frozenset[str]) -> Program:
    x, y = photographs(600)
    one = [nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    two = [nn.Conv2d(16, 36, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()]
    dense = [nn.Linear(144, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10)]
    norm = [nn.BatchNorm2d(3)] if "norm" in fixes else []
    model = initialized(nn.Sequential(*norm, *one, *two, *dense), he_uniform)
    return Program(model, x / 255 if "scale" in fixes else x, y, F.cross_entropy, adam(), accuracy, 0.3, 32, 15)


def _deep_net() -> nn.Module:
    # batch norm's averages follow five times faster than theirs, for so few batches
    norm = {"eps": 1e-3, "momentum": 0.05}
    layers: list[nn.Module] = []
    channels = 3
    for filters, share in ((32, 0.2), (64, 0.3), (64, 0.4)):
        for inputs in (channels, filters):
            layers += [nn.Conv2d(inputs, filters, 3, padding=1, bias=False), nn.ReLU(), nn.BatchNorm2d(filters, **norm)]
        layers += [nn.MaxPool2d(2), nn.Dropout(share)]
        channels = filters
    dense = [nn.Linear(64, 128), nn.ReLU(), nn.BatchNorm1d(128, **norm), nn.Dropout(0.5), nn.Linear(128, 10)]
    return initialized(nn.Sequential(*layers, nn.Flatten(), *dense), he_uniform, nn.init.xavier_uniform_)


def _deep(rate: float, step=None) -> Program:
    # pictures of 8 x 8, 200 of them, and 0.003 as the sound rate where theirs is 0.001
    x, y = photographs(200)
    x, optimizer = F.avg_pool2d(x, 2) / 255, sgd(rate, momentum=0.9)
    return Program(_deep_net(), x, y, F.cross_entropy, optimizer, accuracy, 0.3, 16, 20, step=step)


def _deep_upwards(fixes: frozenset[str]) -> Program:
    def upwards(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        for parameter in model.parameters():
            parameter.grad.neg_()
        optimizer.step()
        return value.item()

    return _deep(0.003, None if "sign" in fixes else upwards)


def _deep_fast(fixes: frozenset[str]) -> Program:
    return _deep(0.003 if "rate" in fixes else 0.1)


def _tiny_weights(fixes: frozenset[str]) -> Program:
    # rates and deviations from memory; divided by 4, as inputs are four times fewer and are not divided in the course
    x, y = photographs(50)
    law = normal(0.06 if "drawn" in fixes else 1e-5)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise((768, 100, 100, 100, 100, 10)):
        layers += [initialized(nn.Linear(inputs, outputs), law), nn.ReLU()]
    rate = 0.02 if "rate" in fixes else 0.002
    optimizer = adam(rate / 2) if "adam" in fixes else sgd(rate)
    model = nn.Sequential(*layers[:-1])
    return Program(model, (x - x.mean(0)) / 4, y, F.cross_entropy, optimizer, accuracy, 0.6, 25, 40)


PROGRAMS = {
    "deepchecker-deep-flipped-sign": _deep_upwards,
    "autotrainer-raw-images": _raw_pixels,
    "cs231n-five-layers": _tiny_weights,
    "deepchecker-deep-high-lr": _deep_fast,
}
