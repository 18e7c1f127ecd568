"""What setting the weights does to training, beside other remedies, and its cost in forward passes of the batch.

The networks and their training come from the folder that the environment variable EPOCH0_VERDICT names: a module
``networks`` with ``CONFIGS`` (name -> (family, ...)), ``PAIR``, ``load()``, ``make(name, data)`` (model, inputs, test
inputs), ``train(model, x, y, test_x, test_y, recipe, steps)`` (a dict with "acc" and "to80") and ``outcomes()`` (name
-> recipe -> accuracy as it came). Without it twelve networks of this script's own are trained on the embedded digits.
The package anyinit takes part where it can be imported.
"""

import copy
import importlib.util
import math
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from clock import cpu_seconds
from torch import Tensor, nn
from torch.nn import functional as F

import epoch0 as e0
from epoch0.initialization import initialize
from epoch0.seeds import generator

STEPS, TRAINS, ENOUGH, FALL = 300, 0.8, 0.93, 0.03
"""Steps of a run; accuracy above which a network trains, and at which the second recipe is left out; a fall."""

Remedy = Callable[[nn.Module, Tensor], Any]


# ---------------------------------------------------------------------------------------------------------------- own


def plain(depth: int, act: type[nn.Module] = nn.ReLU, norm: type[nn.Module] | None = None, scale: float = 1.0,
          tail: tuple[nn.Module, ...] = ()) -> nn.Sequential:  # fmt: skip
    """A chain of width 64 in torch's default weights times a scale."""
    parts: list[nn.Module] = []
    for _ in range(depth - 1):
        parts += [nn.Linear(64, 64), *([norm(64)] if norm else []), act()]
    net = nn.Sequential(*parts, nn.Linear(64, 10), *tail)
    for module in net:
        if isinstance(module, nn.Linear):
            module.weight.data.mul_(scale)
    return net


class Residual(nn.Module):
    """x + W2 relu(W1 x)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)
        self.one.weight.data.mul_(scale)
        self.two.weight.data.mul_(scale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(F.relu(self.one(x)))


def convolutional(depth: int) -> nn.Sequential:
    """Convolutions of 8 channels on 8 by 8 pixels."""
    parts: list[nn.Module] = [nn.Unflatten(1, (1, 8, 8))]
    for place in range(depth - 1):
        parts += [nn.Conv2d(8 if place else 1, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(512, 10))


OWN: dict[str, Callable[[], nn.Module]] = {
    "relu 4": lambda: plain(4),
    "relu 16": lambda: plain(16),
    "relu 30": lambda: plain(30),
    "relu 10, weights x 5": lambda: plain(10, scale=5.0),
    "tanh 30": lambda: plain(30, nn.Tanh),
    "sigmoid 5": lambda: plain(5, nn.Sigmoid),
    "gelu 16": lambda: plain(16, nn.GELU),
    "sigmoid at the output": lambda: plain(4, tail=(nn.Sigmoid(),)),
    "batch norm 40": lambda: plain(40, norm=nn.BatchNorm1d),
    "layer norm 40": lambda: plain(40, norm=nn.LayerNorm),
    "residual 20": lambda: nn.Sequential(*(Residual(3.0) for _ in range(20)), nn.Linear(64, 10)),
    "convolutions 12": lambda: convolutional(12),
}


def _load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    train, test = e0.data.load("digits"), e0.data.load("digits", "test")
    arrays = train.inputs("standard"), train.labels, test.inputs("standard"), test.labels
    x, y, tx, ty = (torch.from_numpy(np.array(array)) for array in arrays)
    return x, y, tx, ty


def _make(name: str, data: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return OWN[name](), data[0], data[2]


def _train(model: nn.Module, x: Tensor, y: Tensor, tx: Tensor, ty: Tensor, recipe: str, steps: int) -> dict[str, Any]:
    model, order = copy.deepcopy(model), torch.Generator().manual_seed(7)
    if recipe == "adam1e-3":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    accuracy, to80 = 0.1, None
    for step in range(1, steps + 1):
        chosen = torch.randint(len(x), (64,), generator=order)
        loss = F.cross_entropy(model.train()(x[chosen]), y[chosen])
        if not bool(loss.isfinite()):
            return {"acc": 0.1, "to80": None}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            with torch.no_grad():
                accuracy = float((model.eval()(tx).argmax(1) == ty).double().mean())
            to80 = step if to80 is None and accuracy > TRAINS else to80
            if accuracy >= 0.95:
                break
    return {"acc": accuracy, "to80": to80}


def networks() -> Any:
    """The module that EPOCH0_VERDICT names, or this script's own networks."""
    folder = os.environ.get("EPOCH0_VERDICT")
    if not folder:
        pair = ("adam1e-3", "sgd0.01")
        return SimpleNamespace(CONFIGS=OWN, PAIR=pair, load=_load, make=_make, train=_train, outcomes=dict)
    spec = importlib.util.spec_from_file_location("networks", Path(folder) / "networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ----------------------------------------------------------------------------------------------------------- remedies


def lsuv(model: nn.Module, x: Tensor) -> None:
    """Mishkin & Matas 2016: orthogonal weights, then unit variance of each layer's output in turn."""
    weighted = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    seen: list[nn.Module] = []
    for module in weighted:
        nn.init.orthogonal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    hooks = [m.register_forward_hook(lambda m, i, o: seen.append(m) if m not in seen else None) for m in weighted]
    model.train()
    with torch.no_grad():
        model(x)
        for hook in hooks:
            hook.remove()
        for module in seen:
            found: list[float] = []
            hook = module.register_forward_hook(lambda m, i, o, found=found: found.append(float(o.var())))
            for _ in range(10):
                found.clear()
                model(x)
                if not found or not math.isfinite(found[0]) or found[0] < 1e-20 or abs(found[0] - 1) < 0.1:
                    break
                module.weight.div_(math.sqrt(found[0]))
            hook.remove()


def default(model: nn.Module, x: Tensor) -> None:
    """What torch draws."""
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            module._reset_parameters()
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()


def remedies() -> dict[str, Remedy]:
    """By name; those of anyinit only where it is installed."""
    found: dict[str, Remedy] = {
        "initialize (theory)": lambda model, x: initialize(model, x=x),
        "initialize (measured)": lambda model, x: initialize(model, x=x, method="measured"),
        "initialize, Gaussian": lambda model, x: initialize(model, x=x, weights="gaussian"),
        "torch's default": default,
        "LSUV": lsuv,
    }
    if importlib.util.find_spec("anyinit"):
        anyinit: ModuleType = importlib.import_module("anyinit")
        found["anyinit (analytic)"] = lambda model, x: anyinit.initialize(model, "analytic", x)
        found["anyinit (empirical)"] = lambda model, x: anyinit.initialize(model, "empirical", x)
    return found


def best(source: Any, model: nn.Module, data: Any, x: Tensor, tx: Tensor, least: float) -> tuple[float, float]:
    """Accuracy of the better recipe, and steps to 0.8; the second is left out when the first does well."""
    accuracy, steps = 0.0, float(STEPS)
    for recipe in source.PAIR:
        run = source.train(model, x, data[1], tx, data[3], recipe, STEPS)
        accuracy, steps = max(accuracy, run["acc"]), min(steps, run["to80"] or STEPS)
        if accuracy >= max(ENOUGH, least):
            break
    return accuracy, steps


def table(only: str = "") -> list[str]:
    """One line a remedy: networks rescued, spoiled, fallen, and the median steps to 0.8.

    Args:
        only: what the names of the networks must begin with.
    """
    source = networks()
    data, known = source.load(), source.outcomes()
    names = [name for name in source.CONFIGS if name.startswith(only)]
    before = {}
    for name in names:
        if name in known:
            before[name] = max(known[name][recipe] for recipe in source.PAIR)
        else:
            model, x, tx = source.make(name, data)
            before[name] = best(source, model, data, x, tx, 2.0)[0]
    fail = sum(accuracy <= TRAINS for accuracy in before.values())
    chosen = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(3))[:128]
    heads = ("remedy", f"of {fail} that fail", f"of {len(names) - fail} that train,", "fall by", "steps to"), (
        "", "train after", "fail after", "> 3 points", "80 %")  # fmt: skip
    lines = [f"{a:<24}{b:>18}{c:>22}{d:>14}{e:>12}" for a, b, c, d, e in heads]
    for title, remedy in remedies().items():
        rescued = spoiled = fallen = refused = 0
        steps = []
        for name in names:
            model, x, tx = source.make(name, data)
            torch.manual_seed(0)
            try:
                remedy(model, x[chosen])
            except Exception:
                refused += 1
                model = source.make(name, data)[0]
            after, count = best(source, model, data, x, tx, before[name] - FALL)
            rescued += before[name] <= TRAINS < after
            spoiled += after <= TRAINS < before[name]
            fallen += before[name] > TRAINS and after < before[name] - FALL
            steps.append(count)
        said = f" ({refused} refused)" if refused else ""
        lines.append(f"{title:<24}{rescued:>18}{spoiled:>22}{fallen:>14}{statistics.median(steps):>12.0f}{said}")
        print(lines[-1] if len(lines) > 3 else "\n".join(lines), flush=True)
    return lines


# --------------------------------------------------------------------------------------------------------------- cost


class Bottleneck(nn.Module):
    """1 by 1, 3 by 3 and 1 by 1 convolutions with batch norms, and the shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(examples, inputs, height, width) to (examples, 4 width, height / stride, width / stride)."""
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        h += self.shortcut(x)
        return self.relu(h)


def resnet50() -> nn.Sequential:
    """He et al. 2016's network of 50 weighted layers: 16 blocks, 25.6 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def vgg16() -> nn.Sequential:
    """13 convolutions without norms, max pools, one readout: every layer has a scale to find."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def in_forward_passes(net: nn.Module, x: Tensor, how: str) -> dict[str, float]:
    """Cost of setting the weights, in forward passes of the same batch, in all and for each layer of the result."""
    net.train()

    def forward() -> None:
        with torch.no_grad():
            net(x)

    one = cpu_seconds(forward, 3)
    layers = len(initialize(net, method=how, x=x).layer_targets)
    whole = cpu_seconds(lambda: initialize(net, method=how, x=x), 2)
    return {"forward_seconds": one, "seconds": whole, "passes": whole / one, "layers": layers,
            "passes_a_layer": whole / one / layers}  # fmt: skip


def main() -> None:
    """Print the table and the costs."""
    torch.set_num_threads(1)
    table()
    x = torch.randn(16, 3, 128, 128, generator=generator(0))
    for name, net, batch in (("ResNet-50", resnet50(), x), ("VGG-16 without norms", vgg16(), x[:, :, ::2, ::2])):
        for how in ("theory", "measured"):
            cost = in_forward_passes(net, batch, how)
            print(
                f"initialize, {how}, {name}, {len(batch)} examples: {cost['passes']:.1f} forward passes for "
                f"{cost['layers']:.0f} layers, {cost['passes_a_layer']:.2f} a layer"
                f"{' (at most 1.5)' if 'ResNet' in name else ''} "
                f"({cost['seconds']:.1f} s, one pass {cost['forward_seconds']:.2f} s)"
            )


if __name__ == "__main__":
    main()
