"""Slow twins of the walks over regions: patterns by hooks, lines by sampling and bisection, planes by clipping."""

import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn

FOLDING = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Hardtanh, nn.ReLU6, nn.MaxPool2d)


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Small networks of every kind, and the shapes of their inputs."""
    torch.manual_seed(0)
    found: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "dense": (dense([3, 12, 12, 2]), (3,)),
        "hardtanh": (dense([3, 8, 8, 2], nn.Hardtanh(-0.5, 0.5)), (3,)),
        "relu6": (dense([3, 8, 8, 2], nn.ReLU6(), gain=6.0), (3,)),
        "leaky": (dense([3, 10, 10, 2], nn.LeakyReLU(0.2)), (3,)),
        "skip": (Skip(), (3,)),
        "convolutional": (convolutional(), (1, 6, 6)),
        "max pool": (pooling(), (1, 8, 8)),
        "overlapping pool": (pooling(3, 1), (1, 5, 5)),
        "batch norm": (normed(), (2, 5, 5)),
        "maxout": (Maxout(), (3,)),
    }
    return {name: (net.double().eval(), shape) for name, (net, shape) in found.items()}


def dense(widths: list[int], activation: nn.Module | None = None, gain: float = 1.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.normal_(linear.weight, std=gain * (2 / fan_in) ** 0.5)
        nn.init.normal_(linear.bias, std=0.3)
        layers += [linear, activation or nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Skip(nn.Module):
    """Two residual blocks, one activation module used twice, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.last, self.relu, self.tanh = nn.Linear(16, 2), nn.ReLU(), nn.Hardtanh()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(2 * x)
        h = h + self.relu(self.second(h))
        h += self.tanh(self.third(self.relu(h)))
        return self.last(torch.cat([h, self.relu(-h)], dim=1))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1), nn.PReLU(3), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(3, 2),
    )  # fmt: skip


def pooling(kernel: int = 2, stride: int = 2) -> nn.Module:
    out = 4 if stride == 2 else 3
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(kernel, stride), nn.ReLU(), nn.Flatten(),
        nn.Linear(2 * out * out, 6), nn.ReLU(), nn.Linear(6, 2),
    )  # fmt: skip


def normed() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8),
        nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2),
    )  # fmt: skip
    net.train()
    for _ in range(3):
        net(torch.randn(64, 2, 5, 5))
    return net


class Maxout(nn.Module):
    """The largest of four affine functions, as a max pool over one row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool, self.last = nn.Linear(3, 20), nn.MaxPool2d((1, 4)), nn.Linear(5, 6)
        self.relu, self.out = nn.ReLU(), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.pool(self.first(x).view(x.size(0), 1, 5, 4)).flatten(1)
        return self.out(self.relu(self.last(h)))


class Recorder:
    """What goes into every folding module, in order of the calls."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.seen: list[tuple[nn.Module, Tensor]] = []
        for module in model.modules():
            if isinstance(module, FOLDING):
                module.register_forward_hook(lambda m, inputs, _: self.seen.append((m, inputs[0].detach().clone())))

    def __call__(self, x: Tensor) -> list[tuple[nn.Module, Tensor]]:
        self.seen = []
        with torch.no_grad():
            self.model(x)
        return self.seen


def faces(module: nn.Module) -> tuple[float, ...]:
    if isinstance(module, nn.Hardtanh):  # ReLU6 is one
        return (module.min_val, module.max_val)
    return (0.0,)


def windows(module: nn.MaxPool2d, z: Tensor) -> Tensor:
    """The entries of every pooling window, shape (points, outputs, entries)."""
    size = module.kernel_size if isinstance(module.kernel_size, tuple) else (module.kernel_size,) * 2
    step = module.stride if isinstance(module.stride, tuple) else (module.stride,) * 2
    parts = z.unfold(2, size[0], step[0]).unfold(3, size[1], step[1])
    return parts.reshape(len(z), -1, size[0] * size[1])


def patterns(record: Recorder, x: Tensor) -> np.ndarray:
    """The activation pattern at every point, as integers; shape (points, elements)."""
    columns = []
    for module, z in record(x):
        if isinstance(module, nn.MaxPool2d):
            columns.append(windows(module, z).argmax(dim=2))
        else:
            columns += [(z.reshape(len(z), -1) > face).long() for face in faces(module)]
    return torch.cat(columns, 1).numpy()


def line_breaks(model: nn.Module, x0: Tensor, x1: Tensor, samples: int = 20_001) -> np.ndarray:
    """Break points by sampling densely and halving between samples whose patterns differ."""
    record = Recorder(model)

    def at(t: np.ndarray) -> np.ndarray:
        place = torch.from_numpy(t).view(-1, *[1] * x0.dim())
        return patterns(record, x0 + place * (x1 - x0))

    t = np.linspace(0, 1, samples)
    found = at(t)
    differ = (found[1:] != found[:-1]).any(axis=1)
    low, high, left, right = t[:-1][differ], t[1:][differ], found[:-1][differ], found[1:][differ]
    breaks: list[float] = []
    while len(low):
        middle = 0.5 * (low + high)
        done = (high - low < 1e-13) | (middle <= low) | (middle >= high)
        breaks += middle[done].tolist()
        low, high, left, right, middle = (a[~done] for a in (low, high, left, right, middle))
        if not len(low):
            break
        inner = at(middle)
        a, b = (left != inner).any(axis=1), (inner != right).any(axis=1)
        low, high = np.concatenate([low[a], middle[b]]), np.concatenate([middle[a], high[b]])
        left, right = np.concatenate([left[a], inner[b]]), np.concatenate([inner[a], right[b]])
    return np.sort(breaks)


def plane_areas(model: nn.Module, origin: Tensor, axes: Tensor, window: np.ndarray) -> np.ndarray:
    """Areas of all cells, sorted."""
    return np.sort([area(cell) for cell in plane_cells(model, origin, axes, window)])


def plane_cells(model: nn.Module, origin: Tensor, axes: Tensor, window: np.ndarray) -> list[np.ndarray]:
    """Corners of all cells, by clipping one polygon after another at one neuron after another."""
    record = Recorder(model)
    cells = [np.asarray(window, dtype=float)]
    first = record(origin[None])
    for layer in range(len(first)):
        cut: list[np.ndarray] = []
        for cell in cells:
            points = origin + torch.tensordot(torch.from_numpy(cell), axes, 1)
            module, z = record(points)[layer]
            if isinstance(module, nn.MaxPool2d):
                cut += _split_largest(cell, windows(module, z).numpy())
            else:
                flat = z.reshape(len(z), -1).numpy()
                cut += _split(cell, np.concatenate([flat - face for face in faces(module)], axis=1))
        cells = cut
    return cells


def area(cell: np.ndarray) -> float:
    x, y = (cell - cell[0]).T
    return 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))


def _split(cell: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    parts = [(cell, z)]
    for j in range(z.shape[1]):
        parts = [half for polygon, values in parts for half in _halves(polygon, values, values[:, j])]
    return [polygon for polygon, _ in parts]


def _split_largest(cell: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    parts = [(cell, z)]
    for w in range(z.shape[1]):
        parts = [piece for polygon, values in parts for piece in _largest_pieces(polygon, values, w)]
    return [polygon for polygon, _ in parts]


def _largest_pieces(cell: np.ndarray, z: np.ndarray, w: int) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for entry in range(z.shape[2]):
        piece: tuple[np.ndarray, np.ndarray] | None = (cell, z)
        for other in range(z.shape[2]):
            if piece is not None and other != entry:
                difference = piece[1][:, w, entry] - piece[1][:, w, other]
                halves = _halves(*piece, difference)
                piece = next((h for h in halves if (h[1][:, w, entry] - h[1][:, w, other]).max() > 1e-12), None)
        if piece is not None:
            found.append(piece)
    return found


def _halves(cell: np.ndarray, values: np.ndarray, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    z = np.where(np.abs(z) < 1e-12, 0.0, z)
    if not ((z > 0).any() and (z < 0).any()):
        return [(cell, values)]
    halves = []
    for sign in (1, -1):
        points, kept = [], []
        for i in range(len(cell)):
            k = (i + 1) % len(cell)
            if sign * z[i] >= 0:
                points.append(cell[i])
                kept.append(values[i])
            if z[i] * z[k] < 0:
                s = z[i] / (z[i] - z[k])
                points.append(cell[i] + s * (cell[k] - cell[i]))
                kept.append(values[i] + s * (values[k] - values[i]))
        halves.append((np.array(points), np.array(kept)))
    return halves


def recipe(widths: list[int], bias_std: float, seed: int = 0) -> nn.Sequential:
    """The random networks of the reference counts: PCG64, weights of variance 2 / fan_in, layer after layer."""
    source = np.random.Generator(np.random.PCG64(seed))
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        linear = nn.Linear(fan_in, fan_out, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(source.standard_normal((fan_out, fan_in)) * math.sqrt(2 / fan_in)))
            linear.bias.copy_(torch.from_numpy(source.standard_normal(fan_out) * bias_std))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def recipe_lines(count: int = 100) -> tuple[Tensor, Tensor]:
    """Ends of the reference lines."""
    ends = np.random.Generator(np.random.PCG64(1)).standard_normal((100, 2, 784))
    return torch.from_numpy(ends[:count, 0].copy()), torch.from_numpy(ends[:count, 1].copy())


def recipe_plane() -> tuple[Tensor, Tensor, Tensor]:
    """Centre and two orthonormal directions of the reference plane in 784 dimensions."""
    source = np.random.Generator(np.random.PCG64(2))
    centre, (u, v) = source.standard_normal(784), source.standard_normal((2, 784))
    u /= np.linalg.norm(u)
    v -= (v @ u) * u
    v /= np.linalg.norm(v)
    return torch.from_numpy(centre), torch.from_numpy(u), torch.from_numpy(v)
