"""Scores of weights written out in a few lines of plain torch, and the network of the published comparison."""

import copy
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.prune.masks.places import standing


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """What the scores look at, by name."""
    return {place.name: place.parameter for place in standing(model)}


class Block(nn.Module):
    """Two convolutions, the shortcut a convolution where shapes change, the nonlinearity behind the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.downsample(x))


class ResNet(nn.Module):
    """The CIFAR ResNet of depth 6 blocks + 2."""

    def __init__(self, blocks: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
        inputs = widths[0]
        for stage, width in enumerate(widths):
            layers = []
            for block in range(blocks):
                layers.append(Block(inputs, width, 2 if stage and block == 0 else 1))
                inputs = width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.linear = nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(F.avg_pool2d(h, h.shape[-1]).flatten(1))


def recipe(blocks: int = 5, widths: Sequence[int] = (32, 64, 128)) -> ResNet:
    """The compared network: Kaiming-normal weights drawn twice, as its constructor and then the comparison did."""
    torch.manual_seed(0)
    net = ResNet(blocks, widths)
    for _ in range(2):
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
    nn.init.zeros_(net.linear.bias)
    return net


def recipe_batch(examples: int = 128, size: int = 32) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    return torch.randn(examples, 3, size, size, generator=source), torch.randint(10, (examples,), generator=source)


def matrices(net: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in net.named_parameters() if p.dim() >= 2}


def plain_snip(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    weights = matrices(net)
    gradients = torch.autograd.grad(F.cross_entropy(net(x), y), list(weights.values()))
    return {name: (w * g).abs().detach() for (name, w), g in zip(weights.items(), gradients, strict=True)}


def plain_grasp(net: nn.Module, x: Tensor, y: Tensor, temperature: float) -> dict[str, Tensor]:
    weights = matrices(net)
    loss = F.cross_entropy(net(x) / temperature, y)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    products = torch.autograd.grad(sum((g * g.detach()).sum() for g in gradients), list(weights.values()))
    return {name: (w * p).detach() for (name, w), p in zip(weights.items(), products, strict=True)}


def top(scores: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Masks of the largest scores by one stable sort."""
    order = torch.sort(torch.cat([s.flatten() for s in scores.values()]), descending=True, stable=True).indices
    flat = torch.zeros(len(order), dtype=torch.bool)
    flat[order[:count]] = True
    parts = flat.split([s.numel() for s in scores.values()])
    return {name: part.view_as(s) for (name, s), part in zip(scores.items(), parts, strict=True)}


def plain_synflow_rounds(net: nn.Module, shape: tuple[int, ...], kept: Sequence[int]) -> dict[str, Tensor]:
    """Tanaka et al.'s loop in float64: score the positive network in eval mode, sort, zero, again."""
    net = copy.deepcopy(net).double().eval()
    for p in net.parameters():
        p.data.abs_()
    weights = matrices(net)
    masks = {name: torch.ones_like(w, dtype=torch.bool) for name, w in weights.items()}
    for count in kept:
        for name, w in weights.items():
            w.data.mul_(masks[name])
        output = net(torch.ones(1, *shape, dtype=torch.float64)).sum()
        gradients = torch.autograd.grad(output, list(weights.values()))
        scores = {
            name: torch.where(masks[name], w.detach() * g, -1.0)
            for (name, w), g in zip(weights.items(), gradients, strict=True)
        }
        masks = top(scores, count)
    return masks


def exponential(total: int, sparsity: float, steps: int) -> list[int]:
    return [total - round((1 - (1 - sparsity) ** (k / steps)) * total) for k in range(1, steps + 1)]


TABLE = {  # layer: density kept by SNIP, batch norm in eval mode; the same in train mode; GraSP in train mode
    "conv1": (0.1354, 0.8218, 0.3912), "layer1.0.conv1": (0.0320, 0.5022, 0.2363),
    "layer1.0.conv2": (0.0651, 0.4514, 0.2296), "layer1.1.conv1": (0.0543, 0.3962, 0.1950),
    "layer1.1.conv2": (0.0526, 0.3307, 0.1880), "layer1.2.conv1": (0.0717, 0.3010, 0.1574),
    "layer1.2.conv2": (0.0599, 0.2499, 0.1543), "layer1.3.conv1": (0.0706, 0.2362, 0.1404),
    "layer1.3.conv2": (0.0798, 0.1826, 0.1243), "layer1.4.conv1": (0.0498, 0.1858, 0.1146),
    "layer1.4.conv2": (0.0522, 0.1478, 0.1053), "layer2.0.conv1": (0.0270, 0.1226, 0.0859),
    "layer2.0.conv2": (0.0231, 0.0397, 0.0465), "layer2.0.downsample.0": (0.1133, 0.3604, 0.2285),
    "layer2.1.conv1": (0.0179, 0.0306, 0.0405), "layer2.1.conv2": (0.0184, 0.0176, 0.0375),
    "layer2.2.conv1": (0.0259, 0.0120, 0.0290), "layer2.2.conv2": (0.0261, 0.0069, 0.0287),
    "layer2.3.conv1": (0.0368, 0.0064, 0.0217), "layer2.3.conv2": (0.0355, 0.0024, 0.0190),
    "layer2.4.conv1": (0.0321, 0.0027, 0.0170), "layer2.4.conv2": (0.0357, 0.0012, 0.0129),
    "layer3.0.conv1": (0.0140, 0.0004, 0.0082), "layer3.0.conv2": (0.0071, 0.0000, 0.0021),
    "layer3.0.downsample.0": (0.0787, 0.0356, 0.0771), "layer3.1.conv1": (0.0083, 0.0000, 0.0019),
    "layer3.1.conv2": (0.0099, 0.0000, 0.0028), "layer3.2.conv1": (0.0078, 0.0000, 0.0025),
    "layer3.2.conv2": (0.0126, 0.0000, 0.0043), "layer3.3.conv1": (0.0125, 0.0000, 0.0051),
    "layer3.3.conv2": (0.0197, 0.0000, 0.0077), "layer3.4.conv1": (0.0243, 0.0000, 0.0106),
    "layer3.4.conv2": (0.0293, 0.0000, 0.0185), "linear": (0.4070, 0.9227, 0.6313),
}  # fmt: skip
EMPTY = {"layer3.0.conv2", "layer3.1.conv1", "layer3.2.conv1", "layer3.3.conv1", "layer3.4.conv1", "layer3.4.conv2"}
"""What SNIP empties in train mode."""
