"""Pruning in rounds: the schedule, the exact count, what a score gets to see, and what it may not change."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.prune.masks.apply import apply, masks_of
from epoch0.prune.masks.masks import Masks, keep
from epoch0.prune.scores.scores import magnitude, random
from epoch0.prune.scores.synaptic_flow import iterate, scheduled, synflow
from score_twins import prunable


def flow(model: nn.Module) -> dict[str, Tensor]:
    """SynFlow of a chain of linear layers in a few lines: |W| times what comes in and what goes out."""
    weights = [layer.weight.detach().double().abs() for layer in model if isinstance(layer, nn.Linear)]
    before, after = [torch.ones(weights[0].shape[1]).double()], [torch.ones(weights[-1].shape[0]).double()]
    for weight in weights:
        before.append(weight @ before[-1])
    for weight in reversed(weights):
        after.insert(0, weight.t() @ after[0])
    names = list(prunable(model))
    return {n: w * before[i] * after[i + 1][:, None] for i, (n, w) in enumerate(zip(names, weights, strict=True))}


def by_hand(model: nn.Module, sparsity: float, steps: int) -> dict[str, Tensor]:
    """The twin: zeros written into a copy, one sort a round."""
    twin = copy.deepcopy(model)
    total = sum(p.numel() for p in prunable(model).values())
    for k in range(1, steps + 1):
        count = total - round((1 - (1 - sparsity) ** (k / steps) if k < steps else sparsity) * total)
        scores = torch.cat([s.flatten() for s in flow(twin).values()])
        mask = torch.zeros(total, dtype=torch.bool)
        mask[torch.sort(scores, descending=True, stable=True).indices[:count]] = True
        parts = mask.split([p.numel() for p in prunable(twin).values()])
        masks = {n: m.view_as(p) for (n, p), m in zip(prunable(twin).items(), parts, strict=True)}
        with torch.no_grad():
            for name, parameter in prunable(twin).items():
                parameter.mul_(masks[name])
    return masks


@pytest.mark.parametrize("steps", [1, 7, 30])
def test_synaptic_flow_by_hand(steps: int) -> None:
    model = mlp([20, 30, 30, 30, 5], "relu")
    masks = iterate(model, flow, 0.97, steps=steps)
    assert masks == Masks(by_hand(model, 0.97, steps))
    total = sum(p.numel() for p in prunable(model).values())
    assert masks.kept == total - round(0.97 * total)


@pytest.mark.slow
def test_rounds_keep_alive_what_one_round_empties() -> None:
    model = mlp([50, *[40] * 12, 5], "relu")
    with torch.no_grad():
        for parameter in prunable(model).values():
            parameter.mul_(1 + 3 * torch.rand(parameter.shape, generator=torch.Generator().manual_seed(1)))
    once, often = keep(flow(model), 0.99), iterate(model, flow, 0.99, steps=100)
    assert len(often.dead) == 0 and once.kept == often.kept and once != often


@pytest.mark.sample(1)
@pytest.mark.parametrize("already", [False, True])
def test_the_quick_rounds_of_synaptic_flow(already: bool) -> None:
    model = mlp([20, 30, 30, 5], "relu")
    if already:
        apply(model, keep(random(model), 0.4))
    quick = iterate(model, partial(synflow, x=(20,)), 0.95, steps=20)
    slow = iterate(model, lambda twin: synflow(twin, (20,)), 0.95, steps=20)
    assert quick == slow and quick.kept == 1650 - round(0.95 * 1650)
    if already:
        assert all(bool((masks_of(model)[name] | ~mask).all()) for name, mask in quick.items())
        with pytest.raises(InputError, match="removed already"):
            iterate(model, partial(synflow, x=(20,)), 0.1)
    floor = iterate(model, partial(synflow, x=(20,)), 0.95, steps=5, floor=9)
    assert floor == iterate(model, lambda twin: synflow(twin, (20,)), 0.95, steps=5, floor=9)


def test_the_schedule() -> None:
    assert scheduled(0.99, 2) == pytest.approx([0.9, 0.99])
    assert scheduled(0.99, 2, 0.9) == pytest.approx([1 - 0.1**1.5, 0.99])
    rise = scheduled(0.9999, 50, 0.3)
    assert rise == sorted(rise) and rise[-1] == 0.9999 and rise[0] > 0.3
    assert scheduled(0.5, 1) == [0.5]


def test_what_the_score_sees() -> None:
    model, seen = mlp([10, 20, 5], "relu"), []

    def score(twin: nn.Module) -> dict[str, Tensor]:
        seen.append(sum(int(layer.weight.count_nonzero()) for layer in twin if isinstance(layer, nn.Linear)))
        assert twin is not model
        return {name: torch.rand(p.shape, generator=torch.Generator().manual_seed(len(seen))) for name, p in
                prunable(twin).items()}  # fmt: skip

    before = copy.deepcopy(model.state_dict())
    masks = iterate(model, score, 0.8, steps=4)
    assert seen == [300, 201, 134, 90] and masks.kept == 60  # 300 times 0.2 to the power of 0, 1/4, 2/4, 3/4
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert type(model[0]) is nn.Linear


def test_pruned_models_go_on_from_where_they_are() -> None:
    model = mlp([10, 20, 5], "relu")
    first = keep(random(model, 3), 0.6)
    apply(model, first)
    counts = []

    def score(twin: nn.Module) -> dict[str, Tensor]:
        counts.append(masks_of(twin).kept)
        return random(twin, len(counts))

    masks = iterate(model, score, 0.9, steps=2)
    assert counts == [120, 60] and masks.kept == 30
    assert all(bool((first[name] | ~mask).all()) for name, mask in masks.items())
    assert masks_of(model) == first
    with pytest.raises(InputError, match="180 are removed already"):
        iterate(model, magnitude, 0.5)


def test_options_of_keep() -> None:
    model = mlp([10, 20, 5], "relu")
    masks = iterate(model, partial(random, seed=1), 0.9, steps=5, scope="layer")
    assert masks.kept_of == {"0.weight": 20, "2.weight": 10}
    masks = iterate(model, partial(random, seed=1), 0.9, steps=5, scope="layer", layers="erk", floor=3)
    assert masks.kept == 30 and min(masks.kept_of.values()) >= 3
    assert iterate(model, magnitude, 1 - 1 / 300, steps=3).kept == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"sparsity": 1.0}, "sparsity=1.0"),
        ({"score": lambda m: [1]}, "must return tensors by name, not a list"),
        ({"scope": "all"}, "scope='all'"),
    ],
)
def test_bad_input(change: dict[str, object], message: str) -> None:
    options: dict[str, object] = {"score": magnitude, "sparsity": 0.5, "steps": 2, **change}
    with pytest.raises(InputError, match=message):
        iterate(mlp([4, 4, 2], "relu"), **options)  # type: ignore[arg-type]


def test_scores_must_stay_the_same_weights() -> None:
    calls = []

    def score(model: nn.Module) -> dict[str, Tensor]:
        calls.append(1)
        return {name: s for name, s in magnitude(model).items() if len(calls) == 1 or name == "0.weight"}

    with pytest.raises(InputError, match=r"other weights than in the round before: '2\.weight'"):
        iterate(mlp([4, 4, 2], "relu"), score, 0.5, steps=2)
    model = mlp([4, 4, 2], "relu")
    torch_prune.random_unstructured(model[0], "weight", 0.5)
    model(torch.ones(1, 4))
    with pytest.raises(InputError, match=r"cannot be copied.*bake"):
        iterate(model, magnitude, 0.9, steps=2)
