"""Plain SGD of stacks, each weight moved while its gradient is at hand: torch's SGD to the bit, and no trace of it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from epoch0.train._chain_descent import Descent, is_plain
from epoch0.train.loop import train
from epoch0.train.optimizers import SGD, Adam
from epoch0.train.record import Accuracy, Every
from epoch0.train.schedules import Cosine
from epoch0.train.stacked import FreezeAt, Stacked
from test_stacked_masks import network, pruned, toy_data, visible

X, Y = toy_data()


def by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop take torch's SGD from now on."""
    monkeypatch.setattr(Stacked, "descent", lambda self, parameters, rate: None)


def same(one: Stacked, other: Stacked) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(bool(torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0))) for a, b in pairs)


@pytest.mark.parametrize("cache", [96_000_000, 20_000])
@pytest.mark.parametrize(("activation", "bias"), [("tanh", True), ("relu", False), ("elu", True)])
def test_the_weights_are_those_of_torch_to_the_bit(
    activation: str, bias: bool, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epoch0.train._chain.Chain.CACHE", cache)
    nets = pruned(activation, bias)
    options = {"epochs": 4, "batch_size": 20, "learning_rate": 0.2, "schedule": Cosine()}
    stacks = []
    for _ in range(2):
        stack = Stacked.of(nets)
        train(stack, (X, Y), loss=stack.loss(F.cross_entropy), evaluate=Accuracy(X, Y), **options)
        stacks.append(stack)
        by_torch(monkeypatch)
    assert same(*stacks)
    before = list(visible(nets[0]))
    assert any(not torch.equal(a, b) for a, b in zip(before, visible(stacks[0].unstack(0)), strict=True))
    assert all(parameter.grad is None for parameter in stacks[0].parameters())


def test_frozen_layers_networks_and_a_diverging_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = []
    for _ in range(2):
        nets = [network(seed, "relu", std=1e15 if seed == 2 else 1.3) for seed in range(4)]
        stack = Stacked.of(nets)
        next(stack.networks[2].parameters()).requires_grad_(False)
        freeze = FreezeAt("accuracy", 0.8)
        train(
            stack, (X, Y), epochs=6, batch_size=20, learning_rate=0.3, loss=stack.loss(F.cross_entropy),
            evaluate=Accuracy(X, Y), callbacks=[freeze],
        )  # fmt: skip
        stacks.append(stack)
        by_torch(monkeypatch)
    assert same(*stacks)
    assert bool((stacks[0].frozen_at >= 0).any()) and bool(stacks[0].diverged[2]) and not stacks[0].diverged.all()


def test_a_callback_has_its_own_gradients_and_nothing_waits_afterwards() -> None:
    stack = Stacked.of(pruned())
    norms: list[float] = []

    def look(step: int, model: nn.Module, metrics: object) -> None:
        assert isinstance(model, Stacked)
        total = model(X).square().sum()
        gradient = torch.autograd.grad(total, next(model.networks.parameters()))[0]
        norms.append(float(gradient.norm()))

    train(stack, (X, Y), steps=6, batch_size=30, loss=stack.loss(F.cross_entropy), callbacks=[Every(2, look)])
    assert len(norms) == 4 and min(norms) > 0

    def fail(step: int, model: nn.Module, metrics: object) -> None:
        if step:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(stack, (X, Y), steps=6, batch_size=30, loss=stack.loss(F.cross_entropy), callbacks=[Every(2, fail)])
    stack.train()
    F.cross_entropy(stack(X).flatten(0, 1), Y.repeat(4)).backward()
    assert all(parameter.grad is not None for parameter in stack.networks.parameters())


def test_what_wants_gradients_twice_is_left_to_torch() -> None:
    assert is_plain(SGD(), None)
    assert not is_plain(SGD(), 1.0) and not is_plain(SGD(momentum=0.9), None)
    assert not is_plain(SGD(weight_decay=0.1), None) and not is_plain(Adam(), None)
    stack = Stacked.of(pruned())
    parameters = list(stack.networks.parameters())
    assert isinstance(stack.descent(parameters, 0.1), Descent)
    convolutions = Stacked.of([nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)) for _ in range(2)])
    assert convolutions.descent(list(convolutions.parameters()), 0.1) is None
