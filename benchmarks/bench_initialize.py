"""Setting the weights of a ResNet-50-sized network on a batch: its cost in forward passes of that batch."""

import torch
from clock import cpu_seconds
from torch import Tensor, nn

from epoch0.initialization import initialize
from epoch0.seeds import generator


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
    layers = len(initialize(net, how=how, x=x).layer_targets)
    whole = cpu_seconds(lambda: initialize(net, how=how, x=x), 2)
    return {"forward_seconds": one, "seconds": whole, "passes": whole / one, "layers": layers,
            "passes_a_layer": whole / one / layers}  # fmt: skip


def main() -> None:
    """Print the costs."""
    torch.set_num_threads(1)
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
