"""Distance to the nearest boundary: twins by autograd one neuron at a time and by walking out along the gradient."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.regions.distance import distance, faces
from epoch0.regions.network.trace import trace
from region_twins import FOLDING, Recorder, dense, networks, patterns, recipe, windows
from region_twins import faces as faces_of

NETWORKS = networks()


def inputs(shape: tuple[int, ...], count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def twin(model: nn.Module, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Distances from every face by one backward pass each, and the nearest point of the nearest face."""
    seen: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda m, args, _: seen.append((m, args[0].clone())))
        for module in model.modules() if isinstance(module, FOLDING)
    ]  # fmt: skip
    rows, nearest = [], []
    for one in x:
        point = one.clone().requires_grad_()
        seen.clear()
        model(point[None])
        gaps = []
        for module, z in list(seen):
            if isinstance(module, nn.MaxPool2d):
                entries = windows(module, z)[0]
                top = entries.argmax(dim=1)
                gaps += [e[t] - other for e, t in zip(entries, top, strict=True) for k, other in enumerate(e) if k != t]
            else:
                gaps += [element - face for element in z.flatten() for face in faces_of(module)]
        gradients = [torch.autograd.grad(gap, point, retain_graph=True)[0] for gap in gaps]
        steep = [float(d.norm()) for d in gradients]
        away = [abs(float(g.detach())) / d if d > 1e-11 else np.inf for g, d in zip(gaps, steep, strict=True)]
        rows.append(np.sort(away))
        best = int(np.argmin(away))
        nearest.append((one - gaps[best].detach() * gradients[best] / gradients[best].square().sum()).numpy())
    for hook in hooks:
        hook.remove()
    return np.stack(rows), np.stack(nearest)


def of_all_faces(model: nn.Module, x: Tensor) -> dict[str, np.ndarray]:
    """Distances of all faces of each layer, (examples, faces, neurons)."""
    program = trace(model, tuple(x.shape[1:]))
    with torch.no_grad():
        blocks = [found for _, found in faces(program, x.double())]
    return {
        layer: torch.cat(parts).numpy() for layer, parts in zip(program.layers, zip(*blocks, strict=True), strict=True)
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_twin_by_autograd(name: str) -> None:
    model, shape = NETWORKS[name]
    x = inputs(shape, 6)
    expected, _ = twin(deepcopy(model), x)
    assert distance(model, x).distance == pytest.approx(expected[:, 0], rel=1e-9)
    every = np.concatenate([part.reshape(len(x), -1) for part in of_all_faces(model, x).values()], axis=1)
    for row, other in zip(every, expected, strict=True):  # ours also hold the largest entry itself, nowhere
        finite = np.sort(row[np.isfinite(row)])
        assert finite == pytest.approx(other[np.isfinite(other)], rel=1e-7)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_pattern_holds_up_to_the_distance_and_changes_there(name: str) -> None:
    model, shape = deepcopy(NETWORKS[name])
    x = inputs(shape, 8, seed=1)
    found = distance(model, x).distance
    record = Recorder(model)
    own = patterns(record, x)
    _, nearest = twin(model, x)
    step = torch.from_numpy(nearest) - x
    assert step.reshape(len(x), -1).norm(dim=1).numpy() == pytest.approx(found, rel=1e-9)
    before, after = patterns(record, x + (1 - 1e-6) * step), patterns(record, x + (1 + 1e-6) * step)
    assert (before == own).all() and (after != own).any(axis=1).all()
    source = torch.Generator().manual_seed(2)
    for _ in range(50):
        away = torch.randn(x.shape, generator=source, dtype=torch.float64)
        away *= torch.from_numpy(found * 0.999999).view(-1, *[1] * len(shape)) / away.reshape(len(x), -1).norm(
            dim=1
        ).view(-1, *[1] * len(shape))
        assert (patterns(record, x + away) == own).all()


def exits(record: Recorder, x: Tensor, directions: Tensor, reach: float) -> np.ndarray:
    """How far from x each direction leaves the region of x, by halving alone: cells are convex, nobody comes back."""
    own = patterns(record, x[None])
    low, high = torch.zeros(len(directions), dtype=torch.float64), torch.full((len(directions),), reach).double()
    for _ in range(60):
        middle = 0.5 * (low + high)
        inside = torch.from_numpy((patterns(record, x + middle[:, None] * directions) == own).all(axis=1))
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return high.numpy()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["skip", "convolutional", "max pool", "overlapping pool", "batch norm", "maxout"])
def test_no_direction_of_a_circle_leaves_sooner(name: str) -> None:
    """Networks of every kind behind two inputs: 1,500 directions around each point, then finer around the best ten."""
    model, shape = deepcopy(NETWORKS[name])
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(2, int(np.prod(shape))), nn.Unflatten(1, shape), model).double()
    record, x = Recorder(net), inputs((2,), 2, seed=4)
    found = distance(net, x).distance
    for point, exact in zip(x, found, strict=True):
        angles = torch.linspace(0.0, 2 * np.pi, 1501, dtype=torch.float64)[:-1]
        step = 2 * np.pi / 1500
        for _ in range(3):
            away = exits(record, point, torch.stack([angles.cos(), angles.sin()], 1), 1e3)
            best = angles[torch.from_numpy(np.argsort(away)[:10].copy())]
            angles, step = (best[:, None] + step * torch.linspace(-1, 1, 41, dtype=torch.float64)).flatten(), step / 20
        # the nearest of the directions misses the exact one by an angle of at most 1e-5
        assert exact * (1 - 1e-9) <= away.min() <= exact * (1 + 1e-8)


def test_owner_is_what_changes() -> None:
    model = recipe([5, 8, 8, 2], 0.3)
    x = inputs((5,), 20)
    found = distance(model, x)
    record = Recorder(model)
    _, nearest = twin(deepcopy(model), x)
    step = torch.from_numpy(nearest) - x
    changed = patterns(record, x + (1 + 1e-7) * step) != patterns(record, x)
    assert changed.sum(axis=1).tolist() == [1] * 20
    assert changed.argmax(axis=1).tolist() == (8 * found.owner_layer + found.owner_neuron).tolist()
    assert {layer for layer, _, face in found.owner} <= {"1", "3"} and not found.owner_face.any()
    assert found.to_pandas().columns.tolist() == ["distance", "layer", "neuron", "face"]


def test_owner_of_other_faces() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.Hardtanh(-1.0, 2.0), nn.Linear(1, 1)).double()
    with torch.no_grad():
        net[0].weight.fill_(2.0)
        net[0].bias.fill_(0.0)
    found = distance(net, torch.tensor([[-0.75], [0.75], [0.2], [3.0]]))
    assert found.distance.tolist() == pytest.approx([0.25, 0.25, 0.7, 2.0])
    assert found.owner == [("1", 0, 0), ("1", 0, 1), ("1", 0, 0), ("1", 0, 1)]
    pool = nn.Sequential(nn.Linear(1, 3), nn.Unflatten(1, (1, 3)), nn.MaxPool1d(3)).double()
    with torch.no_grad():
        pool[0].weight.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
        pool[0].bias.copy_(torch.tensor([0.0, 0.0, -5.0]))
    found = distance(pool, torch.tensor([[0.5], [-2.0]]))  # the constant entry is lower everywhere on the way
    assert found.distance.tolist() == pytest.approx([0.5, 2.0]) and found.owner == [("2", 0, 1), ("2", 0, 0)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["dense", "skip", "overlapping pool", "batch norm", "maxout"])
def test_any_split_gives_the_same(name: str) -> None:
    model, shape = NETWORKS[name]
    x = inputs(shape, 7)
    program = trace(model, shape)
    whole = [torch.cat([away.flatten() for away in found]) for _, found in faces(program, x)]
    for memory in (1, 100, 3000):
        split = [torch.cat([away.flatten() for away in found]) for _, found in faces(program, x, memory)]
        assert len(split) >= len(whole)
        assert torch.cat(split).sort().values == pytest.approx(torch.cat(whole).sort().values, rel=1e-9)


def test_wide_inputs_are_rotated() -> None:
    net = recipe([300, 12, 12, 3], 0.1)
    x = inputs((300,), 5)
    program = trace(net, (300,))
    expected, _ = twin(deepcopy(net), x)
    assert distance(net, x).distance == pytest.approx(expected[:, 0], rel=1e-10)
    for memory in (1, 1 << 12, 1 << 20):
        for start, (first, *_) in faces(program, x, memory):
            gaps = net[0](x[start : start + len(first)]).abs()
            assert torch.allclose(first[:, 0] * net[0].weight.norm(dim=1), gaps, rtol=1e-12, atol=1e-13)


def test_gradients_that_vanish_beside_large_biases() -> None:
    """A gradient of 1e-12 behind biases of 1 keeps all its digits."""
    net = recipe([3, 6, 6, 6, 2], 1.0)
    with torch.no_grad():
        for i in (0, 2, 4):
            net[i].weight.mul_(1e-4)
            net[i].bias.abs_()
    x = inputs((3,), 3)
    expected, _ = twin(deepcopy(net), x)  # refuses gradients below 1e-11, so compare the products by hand
    jacobian = net[4].weight @ net[2].weight @ net[0].weight
    z = net[:5](x)
    last = of_all_faces(net, x)["5"][:, 0]
    assert last == pytest.approx((z.abs() / jacobian.norm(dim=1)).detach().numpy(), rel=1e-10)
    assert np.isfinite(expected[:, 0]).all()


def test_dead_and_cancelling_neurons_are_nowhere() -> None:
    class Cancelling(nn.Module):
        """Two neurons fold; one of them is zero up to rounding, as 0.1 h + 0.2 h - 0.3 h."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(18, 2), nn.Linear(2, 1)
            self.double()
            with torch.no_grad():
                direction = torch.randn(6, dtype=torch.float64)
                self.second.weight[0] = torch.cat([0.1 * direction, 0.2 * direction, -0.3 * direction])
                self.second.bias.copy_(torch.tensor([0.0, 5.0]))

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.last(torch.relu(self.second(torch.cat([h, h, h], 1))))

    torch.manual_seed(0)
    net, x = Cancelling(), inputs((4,), 10)
    assert np.isinf(of_all_faces(net, x)["relu"][:, 0, 0]).all() and (distance(net, x).owner_neuron == 1).all()
    net = recipe([3, 8, 8, 2], 0.3)
    with torch.no_grad():
        net[2].weight[:4] = 0.0
        net[2].bias[:2] = 0.0
    x = inputs((3,), 10)
    found = distance(net, x)
    assert np.isinf(of_all_faces(net, x)["3"][:, 0, :4]).all() and np.isfinite(found.distance).all()
    assert not np.isnan(found.distance).any()


def test_zero_biases() -> None:
    """All boundaries are cones from the origin: the distance is proportional to the input."""
    net = recipe([4, 16, 16, 2], 0.0)
    x = inputs((4,), 10)
    assert distance(net, 3.0 * x).distance == pytest.approx(3.0 * distance(net, x).distance, rel=1e-9)
    assert np.isfinite(distance(net, torch.zeros(1, 4)).distance).all()


@given(widths=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 99), inputs_=st.integers(1, 12))
def test_dense_networks_against_autograd(widths: list[int], seed: int, inputs_: int) -> None:
    net = recipe([inputs_, *widths, 2], 0.4, seed)
    x = inputs((inputs_,), 3, seed)
    expected, _ = twin(net, x)
    found = distance(net, x).distance
    assert found[np.isfinite(found)] == pytest.approx(expected[:, 0][np.isfinite(found)], rel=1e-8)
    assert (np.isfinite(found) == np.isfinite(expected[:, 0])).all()


def test_one_example_and_the_model_as_it_was() -> None:
    net = dense([3, 6, 6, 2]).train()
    before = deepcopy(net.state_dict())
    x = inputs((3,), 4)
    one = distance(net, x[0])
    assert len(one) == 1 and one.distance[0] == pytest.approx(distance(net, x).distance[0])
    assert np.isnan(one.standard_error) and net.training
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert "nearest in 1" in str(distance(net, x)) and "neurons" in str(distance(net, x))


def test_a_linear_model_has_no_boundary() -> None:
    found = distance(nn.Linear(3, 2), inputs((3,), 2))
    assert np.isinf(found.distance).all() and found.owner == [None, None] and found.layers == ()
    assert found.mean == np.inf and np.isnan(found.standard_error) and "median inf" in str(found)
    assert found.to_pandas()["layer"].tolist() == [None, None]


def test_bad_input() -> None:
    net = dense([3, 6, 2])
    with pytest.raises(InputError, match="torch tensor"):
        distance(net, np.zeros((2, 3)))
    with pytest.raises(InputError, match="NaN"):
        distance(net, torch.full((2, 3), torch.nan))
    with pytest.raises(InputError, match="no example"):
        distance(net, torch.zeros(0, 3))
    with pytest.raises(InputError, match="does not take points"):
        distance(net, torch.zeros(2, 4))
    with pytest.raises(InputError, match=r"tanh.*trajectory_length"):
        distance(dense([3, 6, 2], nn.Tanh()), torch.zeros(2, 3))
    with pytest.raises(InputError, match="float16"):
        distance(net, torch.zeros(2, 3, dtype=torch.float16))


@pytest.mark.slow
def test_a_wide_network_in_one_thread() -> None:
    """One thousand images through four layers of 256: every gradient of a million neurons, not one pass a neuron."""
    found = distance(recipe([784, 256, 256, 256, 256, 10], 1e-3), inputs((784,), 1000))
    assert 0.5 < found.mean * found.neurons < 3.0
