"""Reading models into steps: every way to write an operation, and one clear error for what has no regions."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune

from epoch0 import regions
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.regions.network.trace import trace


class Functional(nn.Module):
    """Everything written as a function, a method or an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(6, 3)
        self.slope, self.matrix = nn.Parameter(torch.tensor([0.3])), nn.Parameter(torch.randn(64, 6))
        self.scale, self.relu = nn.Parameter(torch.rand(4, 1, 1)), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.norm(self.conv(x)))
        h = h + F.hardtanh(h.mul(self.scale)) - 0.25
        h = torch.maximum(h, 0.5 * h - 1)
        first, second = h.chunk(2, dim=1)
        h = torch.cat([first, second.abs()], 1)
        h = F.prelu(F.max_pool2d(h, 3, stride=2, padding=1), self.slope)
        h = F.pad(h[:, :, ::1], (0, 0, 0, 0)).permute(0, 2, 3, 1).contiguous()
        h = F.dropout(h, 0.5, self.training).view(x.size(0), -1)
        h = torch.relu(h @ self.matrix).clamp(min=-1, max=0.9)
        return self.out(torch.minimum(h, h.mean(1, keepdim=True))).amax(dim=1, keepdim=True)


def test_functional_forms_are_read(tmp_path) -> None:
    torch.manual_seed(0)
    model = Functional().double().eval()
    x0, x1 = torch.randn(2, 1, 8, 8, dtype=torch.float64) * 2
    line = regions.on_line(model, x0, x1)
    assert line.count > 30
    middle = 0.5 * (line.breakpoints[1:] + line.breakpoints[:-1])  # inside a region the output is affine in t
    width = 0.4 * (line.breakpoints[1:] - line.breakpoints[:-1])
    with torch.no_grad():
        at = [model(line.point(middle + s * width)) for s in (-1, 0, 1)]
    assert torch.allclose(at[1], 0.5 * (at[0] + at[2]), atol=1e-12)


def test_hooks_parametrizations_and_wrappers() -> None:
    class Twice(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 1)).double()
    x0, x1 = torch.randn(2, 3, dtype=torch.float64) * 4
    with torch.no_grad():
        parametrize.register_parametrization(plain[2], "weight", Twice())
    expected = regions.on_line(plain, x0, x1)
    parametrize.remove_parametrizations(plain[2], "weight")
    assert regions.on_line(plain, x0, x1).breakpoints.tolist() == expected.breakpoints.tolist()
    prune.random_unstructured(plain[2], "weight", 0.5)
    pruned = regions.on_line(nn.DataParallel(plain), x0, x1).breakpoints.tolist()
    prune.remove(plain[2], "weight")
    assert regions.on_line(plain, x0, x1).breakpoints.tolist() == pruned


class Optional(nn.Module):
    """Arguments with defaults, one of which decides a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, x: Tensor, scale: float = 2.0, mask: Tensor | None = None) -> Tensor:
        h = self.layer(x * scale)
        return h.relu() if mask is None else h * mask


def test_arguments_keep_their_defaults() -> None:
    torch.manual_seed(0)
    model = Optional()
    same = nn.Sequential(model.layer, nn.ReLU())
    ends = torch.randn(2, 3)
    assert regions.on_line(model, *ends).count == regions.on_line(same, *(2 * ends)).count > 1


class Product(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        if self.kind == "mean":
            return h - h.mean(0)
        if self.kind == "branch":
            return h if h.sum() > 0 else -h
        if self.kind == "value":
            return h * float(h[0, 0])
        return h * h if self.kind == "product" else torch.tanh(h) if self.kind == "tanh" else h.softmax(1)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Tanh()), ["tanh", "module '1'", "trajectory_length", "gain"]),
        (nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 1)), ["gelu", "module '1'"]),
        (nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), ["layer_norm", "norm of its input"]),
        (Product("product"), ["mul", "depend on the input"]),
        (Product("tanh"), ["tanh"]),
        (Product("softmax"), ["softmax"]),
        (Product("mean"), ["mean", "mixes"]),
        (Product("branch"), ["sum", "branch"]),
        (Product("value"), ["mixes", "branch"]),
        (nn.Linear(3, 3).half(), ["float16"]),
        (nn.Linear(4, 3), ["shape (3,)"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_regions_is_refused(model: nn.Module, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        regions.on_line(model, torch.zeros(3), torch.ones(3))
    assert all(word in str(error.value) for word in words), str(error.value)


class Sized(nn.Module):
    """Asks for the sizes of its points in every way, one of which is 13."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 13), nn.Linear(13, 4)

    def forward(self, x: Tensor) -> Tensor:
        points, rows, columns = x.size()
        h = self.first(x.reshape(points, rows * columns)).relu().view(-1, 13)
        h = self.second(h).view(len(x), 2, -1).sum(2, keepdim=True).expand(x.shape[0], 2, 3)
        return h.abs().reshape(h.size(0), h.numel() // len(h))


def test_sizes_are_asked_for_in_every_way() -> None:
    torch.manual_seed(0)
    model, x = Sized().double(), torch.randn(29, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(trace(model, (3, 4)).forward(x), model(x), rtol=1e-12, atol=1e-12)
    assert regions.on_line(model, *x[:2]).certificate.holds


def test_bad_lines_are_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    zero, one = torch.zeros(3), torch.ones(3)
    for x0, x1, words in (
        (zero, zero, "same point"), (zero, torch.ones(4), "agree"), (zero, one * float("nan"), "NaN"),
        (zero.half(), one.half(), "float16"), ([0, 0, 0], one, "tensor"),
        (torch.zeros(2, 3), torch.stack([one, zero]), "line 1"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            regions.on_line(net, x0, x1)
    with pytest.raises(InputError, match="segment"):
        regions.on_line(net, zero, one, kind="circle")
    with pytest.raises(InputError, match="curve"):
        regions.on_curve(net, zero)


class Cancelled(nn.Module):
    """A sum that is zero but for rounding, and another that is not affine."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return (h + (0.1 * h + 0.2 * h - 0.3 * h)).relu()


def test_a_sum_that_cancels_is_affine() -> None:
    torch.manual_seed(0)
    model = Cancelled().double()
    ends = torch.randn(2, 3, dtype=torch.float64) * 4
    plain = regions.on_line(nn.Sequential(model.layer, nn.ReLU()), *ends)
    assert np.allclose(regions.on_line(model, *ends).breakpoints, plain.breakpoints) and plain.count > 1


def test_our_own_activations_are_read() -> None:
    ends = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    net = mlp([3, 16, 16, 2], "abs", biases=Gaussian(0.5), seed=0)
    layers = [nn.Linear(3, 16), nn.PReLU(init=-1.0), nn.Linear(16, 16), nn.PReLU(init=-1.0), nn.Linear(16, 2)]
    twin = nn.Sequential(*layers).double()
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    for mine, theirs in zip((m for m in layers if isinstance(m, nn.Linear)), linear, strict=True):
        mine.load_state_dict(theirs.state_dict())
    found, expected = regions.on_line(net, *ends), regions.on_line(twin, *ends)
    assert found.count == expected.count > 5
    assert np.allclose(found.breakpoints, expected.breakpoints, rtol=1e-9)
    for name in ("erf", "sin"):
        with pytest.raises(InputError, match=f"{name} is no piecewise linear function"):
            regions.on_line(mlp([3, 4, 2], name, seed=0), *ends)


class Normed(nn.Module):
    """A batch norm after a layer that nothing else reads, after one that is read twice, and after none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norms = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 3, 1, bias=False), nn.ModuleList()
        self.norms = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3)])
        self.out, self.last = nn.Linear(48, 5), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norms[0](self.first(x)).relu()
        h = self.second(h)
        h = self.norms[2]((h + self.norms[1](h)).relu())
        return self.last(self.out(h.relu().flatten(1)))


def test_batch_norms_everywhere() -> None:
    torch.manual_seed(0)
    model = Normed().double()
    for _ in range(3):
        model.train()(torch.randn(32, 1, 6, 6, dtype=torch.float64))
    program = trace(model.eval(), (1, 6, 6))
    names = {step.name for step in program.steps}
    assert {"first", "second", "out", "last", "norms.0", "norms.1", "norms.2"} <= names
    x = torch.randn(9, 1, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(program.forward(x), model(x), rtol=1e-12, atol=1e-12)
