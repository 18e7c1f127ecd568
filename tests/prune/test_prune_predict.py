"""Critical sparsity and predicted densities of models against keep(), plain loops and true scores."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.networks.residual import resnet
from epoch0.prune.masks.masks import critical_sparsity, keep, predicted_density
from epoch0.prune.scores.gradients import snip
from epoch0.prune.scores.scores import Scores, magnitude


def tanh_net(depth: int, width: int, weight_std: float, bias_std: float, seed: int) -> nn.Sequential:
    g = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for place in range(depth):
        layer = nn.Linear(width, width, dtype=torch.float64)
        layer.weight.data = torch.randn(width, width, generator=g, dtype=torch.float64) * weight_std / math.sqrt(width)
        layer.bias.data = torch.randn(width, generator=g, dtype=torch.float64) * bias_std
        layers += [layer, nn.Tanh()] if place < depth - 1 else [layer]
    return nn.Sequential(*layers)


def batch(width: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(100, width, generator=g, dtype=torch.float64), torch.randint(width, (100,), generator=g)


def first_empty(scores: dict[str, Tensor], already: int = 0) -> tuple[int, str]:
    """By bisection with keep(): the least number of removed weights that empties a layer, and that layer."""
    total = sum(tensor.numel() for tensor in scores.values())

    def empty(removed: int) -> list[str]:
        masks = keep(scores, removed / total)
        return [name for name in scores if not masks[name].any()]

    low, high = already - 1, total - 1  # removing all but one leaves only one layer
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if empty(middle) else (middle, high)
    return high, empty(high)[0]


@st.composite
def some_scores(draw) -> dict[str, Tensor]:
    """Two to five small tensors, each float32 or float64, with many ties, zeros, negative values and infinities."""
    shapes = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=2, max_size=5))
    value = st.sampled_from([0.0, -0.0, 0.1, 1.0, 2.0, 2.5, -1.0, 1e-300, math.inf])
    dtype = st.sampled_from([torch.float32, torch.float64])
    return {
        f"w{place}": torch.tensor(draw(st.lists(value, min_size=a * b, max_size=a * b)), dtype=draw(dtype)).view(a, b)
        for place, (a, b) in enumerate(shapes)
    }


@given(some_scores())
def test_critical_sparsity_is_that_of_bisection_with_keep(scores: dict[str, Tensor]) -> None:
    found = critical_sparsity(scores)
    removed, layer = first_empty(scores)
    assert (found.removed, found.layer) == (removed, layer)
    assert float(found) == removed / found.weights == min(found.layers.values())
    for sparsity in (0.0, float(found) / 2, float(found)):
        masks = keep(scores, sparsity)
        assert found.dead(sparsity) == [name for name in scores if not masks[name].any()]


@given(some_scores(), st.integers(0, 2**20))
def test_weights_that_are_removed_already_come_last(scores: dict[str, Tensor], seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    finite = {name: tensor.nan_to_num(posinf=9.0).abs() for name, tensor in scores.items()}
    gone = {name: torch.rand(tensor.shape, generator=g) < 0.4 for name, tensor in finite.items()}
    if all(bool(one.all()) for one in gone.values()):
        gone["w0"][0, 0] = False
    pruned = Scores({name: t.masked_fill(gone[name], 0.0) for name, t in finite.items()}, "made", gone)
    found = critical_sparsity(pruned)
    if any(bool(one.all()) for one in gone.values()):
        assert found.removed == sum(int(one.sum()) for one in gone.values()) and bool(gone[found.layer].all())
    else:
        assert (found.removed, found.layer) == first_empty(pruned, sum(int(one.sum()) for one in gone.values()))


def test_critical_sparsity_is_a_number_that_knows_its_layer() -> None:
    found = critical_sparsity({"a": torch.tensor([0.9, 0.8, 0.1]), "b": torch.tensor([0.5, 0.4])})
    assert found == 0.6 and f"{found:.2f}" == "0.60" and found.layers == {"a": 1.0, "b": 0.6}
    assert str(found) == "0.6: 'b' vanishes with 3 of 5 weights removed"
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert again == found and again.layer == "b" and again.layers == found.layers
    assert critical_sparsity({"only": torch.ones(3, 3)}) == 1.0
    large = {str(place): torch.rand(1500, 1000, generator=torch.Generator().manual_seed(place)) for place in range(3)}
    large["1"] *= 0.9
    everything = torch.cat([tensor.flatten() for tensor in large.values()])
    expected = float((everything <= large["1"].max()).double().mean())
    assert critical_sparsity(large) == pytest.approx(expected, abs=1e-12)  # over several parts of a tensor


def test_critical_sparsity_of_real_scores() -> None:
    scores = snip(tanh_net(12, 20, 0.9, 0.3, 0), [batch(20)])
    found = critical_sparsity(scores)
    assert (found.removed, found.layer) == first_empty(scores)


def worst(scores: dict[str, Tensor], sparsity: float) -> float:
    """Largest difference of a layer's predicted density to that of keep()."""
    predicted, masks = predicted_density(scores, sparsity).density, keep(scores, sparsity)
    return max(abs(predicted[name] - float(masks[name].double().mean())) for name in scores)


@pytest.mark.sample(1)
@pytest.mark.parametrize("weight_std", [1.3956, pytest.param(1.3156, marks=pytest.mark.slow), 1.0, 1.6])
def test_measured_moments_of_a_50_layer_tanh_network(weight_std: float) -> None:
    scores = snip(tanh_net(50, 100, weight_std, 0.3, 3), [batch(100)])
    errors = [worst(scores, sparsity) for sparsity in (0.3, 0.8, 0.95, 0.98)]
    assert max(errors) < 0.045


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", ["train", pytest.param("eval", marks=pytest.mark.slow)])
def test_measured_moments_of_resnet_32(batch_norm: str) -> None:
    """White noise as images, the hardest case: smooth images come out closer."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(32, 3, 32, 32, generator=g), torch.randint(10, (32,), generator=g)
    scores = snip(resnet(32, width=2, seed=0), [(x, y)], batch_norm=batch_norm)
    errors = [worst(scores, sparsity) for sparsity in (0.3, 0.8, 0.95, 0.99)]
    assert max(errors) < 0.05  # in eval mode at 80 %, 0.079 of the stem before its gradients were known to follow it
    found = predicted_density(scores, 0.98)
    s_cr = critical_sparsity(scores)
    assert abs(float(s_cr) - found.critical_sparsity) < max(4 * found.critical_sparsity_sd, 0.01)
    true = s_cr.dead(0.98)
    assert abs(found.to_dict()["expected_dead"] - len(true)) < 2.5 and set(true) <= set(found.at_risk)


def test_moments_of_other_scores() -> None:
    """Magnitudes of normal and of uniform weights (torch's own), and masked scores."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 28 * 28, 10))
    assert worst(magnitude(net), 0.5) < 0.02
    normal = {"a": torch.randn(80, 90).abs(), "b": torch.randn(50, 200).abs() / 2, "c": torch.randn(30).abs()}
    assert worst(normal, 0.7) < 0.03
    thinned = {name: tensor * (torch.rand(tensor.shape) < 0.5) for name, tensor in normal.items() if name != "c"}
    assert worst(thinned, 0.8) < 0.02


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: critical_sparsity({}), "at least one"),
        (lambda: critical_sparsity({"a": torch.tensor([1.0, math.nan])}), "'a' hold 1 NaN"),
        (lambda: critical_sparsity({"a": torch.tensor([1, 2])}), "int64"),
        (lambda: predicted_density({"a": torch.ones(2, 2)}, 1.0), "sparsity=1.0"),
        (lambda: predicted_density({"a": torch.tensor([-1.0, 1.0])}, 0.5), "'a' have signs"),
        (lambda: predicted_density({"a": torch.zeros(2)}, 0.5), "all scores are 0"),
        (lambda: predicted_density({"a": torch.tensor([math.nan])}, 0.5), "'a' holds NaN"),
        (lambda: predicted_density({}, 0.5), "at least one"),
    ],
)  # fmt: skip
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
