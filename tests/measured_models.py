"""Models that measurements are judged on, each with its layers written out by hand in plain torch (the slow twin)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Segment = tuple[str, Callable[[Tensor], Tensor]]


@dataclass(frozen=True)
class Case:
    """A model, a batch, and what each of its layers computes; batch norm with the statistics of the batch."""

    name: str
    model: nn.Module
    x: Tensor
    segments: list[Segment]
    nonlinearities: list[str]
    twin: nn.Module | None = None  # whose parameters the segments use, if not the model's own


def batch_statistics(norm: nn.Module, h: Tensor) -> Tensor:
    return F.batch_norm(h, None, None, norm.weight, norm.bias, True)


class BasicBlock(nn.Module):
    """Post-activation block with a projection where widths differ; one in-place ReLU used twice, the sum in place."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.project = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        h += self.project(x)
        return self.relu(h)

    def by_hand(self, x: Tensor) -> Tensor:
        h = torch.relu(batch_statistics(self.bn1, self.conv1(x)))
        return torch.relu(batch_statistics(self.bn2, self.conv2(h)) + self.project(x))


class PreActivationBlock(nn.Module):
    """BN, ReLU, convolution, added to the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bn, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.relu(self.bn(x)))

    def by_hand(self, x: Tensor) -> Tensor:
        return x + self.conv(torch.relu(batch_statistics(self.bn, x)))


class Functional(nn.Module):
    """Functional nonlinearities in many spellings, changes in place, dropout whatever the mode, one module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h.relu_()
        h = F.dropout(h, 0.5)
        h = torch.tanh(self.again(h))
        h = self.again(h).clamp(min=0)
        h *= 1.5
        h[:, 0] = 0.0
        return self.last(h)

    def segments(self) -> list[Segment]:
        keep = torch.cat([torch.zeros(1), torch.full((7,), 1.5)])
        return [
            ("first", lambda x: torch.relu(self.first(x))),
            ("again", lambda h: torch.tanh(self.again(h))),
            ("again (2nd use)", lambda h: torch.relu(self.again(h)) * keep.to(h.dtype)),
            ("last", self.last),
        ]


class Skip(nn.Module):
    """A small U-Net: the input is concatenated to what the middle made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.head = nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(16, 3)

    def middle(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.relu(self.up(F.leaky_relu(self.down(x), 0.2)))], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(x))


class Sign(torch.autograd.Function):
    """A sign that lets gradients through: no forward derivative, and its code cannot be followed."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient


class Quantized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Sign.apply(x)


class FrozenScale(nn.Module):
    """Divides by a scale that no gradient goes through, computed in a no_grad block."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x))
        with torch.no_grad():
            scale = h.abs().mean()
        return h / scale


def transformer_segments(layer: nn.TransformerEncoderLayer) -> list[Segment]:
    def attend(x: Tensor) -> Tensor:
        return layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])

    return [
        ("self_attn", attend),
        ("linear1 … linear2", lambda h: layer.norm2(h + layer.linear2(F.gelu(layer.linear1(h))))),
    ]


def sequential_segments(model: nn.Sequential, cuts: dict[str, slice]) -> list[Segment]:
    return [(name, model[part]) for name, part in cuts.items()]


def make_cases() -> list[Case]:
    torch.manual_seed(5)
    made = []

    def add(
        name: str, model: nn.Module, x: Tensor, segments: list[Segment], taps: list[str], twin: nn.Module | None = None
    ) -> None:
        made.append(Case(name, model, x, segments, taps, twin))

    for dtype in (torch.float32, torch.float64):
        for activation in (nn.ReLU, nn.Tanh):
            net = nn.Sequential(nn.Linear(6, 10), activation(), nn.Linear(10, 7), activation(), nn.Linear(7, 3))
            net.to(dtype)
            cuts = {"0": slice(0, 2), "2": slice(2, 4), "4": slice(4, 5)}
            kind = f"{activation.__name__} {str(dtype)[6:]}"
            add(kind, net, torch.randn(5, 6, dtype=dtype), sequential_segments(net, cuts), ["1", "3"])

    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, stride=2), nn.GELU(), nn.Dropout2d(0.3), nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 3),
    )  # fmt: skip
    add(
        "convolutions", net, torch.randn(4, 1, 8, 8),
        [
            ("0", lambda x, n=net: n[3](torch.relu(batch_statistics(n[1], n[0](x))))),
            ("4", lambda h, n=net: n[8](F.gelu(n[4](h)).flatten(1))),
            ("9", net[9]),
        ], ["2", "5"],
    )  # fmt: skip

    post, wide, pre = BasicBlock(3, 3), BasicBlock(3, 4), PreActivationBlock(4)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), post, wide, pre, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    add(
        "residual", net, torch.randn(4, 1, 6, 6),
        [
            ("0", net[0]), ("1", post.by_hand), ("2", wide.by_hand),
            ("3.conv", lambda h: pre.by_hand(h).mean((2, 3))), ("6", net[6]),
        ], ["1.relu", "1.relu (2nd use)", "2.relu", "2.relu (2nd use)", "3.relu()"],
    )  # fmt: skip

    functional = Functional()
    add("functional", functional, torch.randn(5, 6), functional.segments(), ["relu()", "tanh()", "clamp()"])

    skip = Skip()
    add("skip", skip, torch.randn(4, 8), [("down … up", skip.middle), ("head", skip.head)], ["leaky_relu()", "relu()"])

    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, activation="gelu", batch_first=True)
    plain = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, activation="gelu", batch_first=True)
    plain.load_state_dict(layer.state_dict())
    add("transformer", layer, torch.randn(3, 4, 8), transformer_segments(plain), ["gelu()"], plain)

    net = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1, groups=2), nn.SiLU(), nn.Conv1d(4, 2, 3, stride=2), nn.ELU(),
        nn.Flatten(), nn.Linear(6, 2),
    )  # fmt: skip
    cuts = {"0": slice(0, 2), "2": slice(2, 5), "5": slice(5, 6)}
    add("convolutions in 1-d", net, torch.randn(4, 2, 8), sequential_segments(net, cuts), ["1", "3"])

    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
    net = nn.Sequential(nn.Linear(5, 8), nn.PReLU(), normed, nn.Sigmoid())
    cuts = {"0": slice(0, 2), "2": slice(2, 4)}
    add("parametrized", net, torch.randn(4, 5), sequential_segments(net, cuts), ["1", "3"])

    frozen = FrozenScale()

    def scaled(x: Tensor) -> Tensor:
        h = torch.tanh(frozen.linear(x))
        return h / h.detach().abs().mean()

    add("no gradient through the scale", frozen, torch.randn(4, 5), [("linear", scaled)], ["tanh()"])

    net = nn.Sequential(nn.Linear(5, 6), Quantized(), nn.Linear(6, 4), Quantized(), nn.Linear(4, 3))
    cuts = {"0": slice(0, 2), "2": slice(2, 4), "4": slice(4, 5)}
    add("straight through", net, torch.randn(4, 5), sequential_segments(net, cuts), [])
    return made


CASES = make_cases()
