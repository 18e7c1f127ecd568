"""Stacked training against training one by one."""

import copy
import functools
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import ensemble
from epoch0.seeds import generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.stacked import FreezeAt, Stacked, loss_of_each


def toy_data(examples: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian inputs (examples, 6) in three classes."""
    x = torch.randn(examples, 6, generator=generator(11))
    return x, x[:, :3].argmax(1)


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    """Largest absolute difference of two networks' parameters and buffers."""
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


HOW = [partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-3), torch.optim.Adam]


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", HOW, ids=["sgd", "adam"])
def test_equals_training_one_by_one(how: object) -> None:
    """float32, 100 steps, every parameter of every network to 1e-6."""
    data, nets = toy_data(), ensemble(7, [6, 16, 16, 3], weights=Gaussian(1.3), seed=2)
    stack = Stacked.of(nets)
    options = {"steps": 100, "batch_size": 16, "optimizer": how, "learning_rate": 0.003, "seed": 5}
    train(stack, data, **options, loss=stack.loss(F.cross_entropy))
    for index, net in enumerate(nets):
        alone = train(net, data, **options).model
        assert largest_difference(alone, nets[index]) > 1e-2, "the network has moved"
        assert largest_difference(alone, stack.unstack(index)) < 1e-6


def test_forward_and_unstack_are_the_networks_themselves() -> None:
    x, _ = toy_data()
    nets = ensemble(4, [6, 8, 3], biases=Gaussian(0.1), seed=3)
    stack = Stacked.of(nets)
    assert len(stack) == 4 and stack(x).shape == (4, 90, 3)
    for index, net in enumerate(nets):
        assert largest_difference(stack.unstack(index), net) == 0
        torch.testing.assert_close(stack(x)[index], net(x))
    assert [p.requires_grad for p in stack.unstack(0).parameters()] == [True] * 4


def test_convolutions_batch_norm_and_tied_weights_stack_too() -> None:
    def conv() -> nn.Module:
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten())
        net.append(nn.Linear(32, 32)).append(nn.Linear(32, 32))
        net[5].weight = net[4].weight
        return net.append(nn.Linear(32, 3))

    nets = [conv() for _ in range(3)]
    x, y = torch.randn(40, 1, 6, 6, generator=generator(1)), torch.arange(40) % 3
    stack = Stacked.of(nets)
    options = {"steps": 10, "batch_size": 20, "learning_rate": 0.05}
    train(stack, (x, y), **options, loss=stack.loss(F.cross_entropy))
    for index, net in enumerate(nets):
        alone = train(copy.deepcopy(net), (x, y), **options).model
        assert largest_difference(alone, stack.unstack(index)) < 1e-5
        own = stack.unstack(index)
        assert own[5].weight is own[4].weight
        assert int(own[1].num_batches_tracked) == 10


def test_dropout_differs_between_networks_and_is_seeded() -> None:
    net = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3))
    x, y = toy_data()

    def run() -> Stacked:
        stack = Stacked.of([net, net])
        return train(stack, (x, y), steps=5, loss=stack.loss(F.cross_entropy), seed=1).model  # type: ignore[return-value]

    one, two = run(), run()
    assert largest_difference(one, two) == 0
    assert largest_difference(one.unstack(0), one.unstack(1)) > 1e-4
    one.eval()
    assert torch.equal(one(x), one(x)), "eval mode reaches the stacked architecture"


@pytest.mark.slow
def test_a_frozen_network_is_what_it_would_be_had_it_stopped_alone(tmp_path) -> None:
    data, nets = toy_data(), ensemble(6, [6, 16, 3], seed=1)
    held_out = toy_data(60)
    options = {"batch_size": 10, "optimizer": "adam", "learning_rate": 0.003, "evaluate_every": 3}

    def stacked_run(steps: int = 600, checkpoint=None) -> tuple[Stacked, object]:
        stack = Stacked.of(nets)
        done = train(
            stack, data, steps=steps, **options, loss=stack.loss(F.cross_entropy), evaluate=Accuracy(*held_out),
            callbacks=[FreezeAt("accuracy", 0.8)], until=lambda row: row["running"] == 0, checkpoint=checkpoint,
        )  # fmt: skip
        return stack, done

    stack, done = stacked_run()
    assert done.stopped_because == "until" and stack.running == 0
    frozen = stack.frozen_at.tolist()
    assert len(set(frozen)) > 2 and max(frozen) == done.steps
    for index, net in enumerate(nets):
        alone = train(
            net, data, steps=600, **options, evaluate=Accuracy(*held_out), until=lambda row: row["accuracy"] > 0.8
        )
        assert alone.steps == frozen[index]
        assert largest_difference(alone.model, stack.unstack(index)) < 1e-6
    # the snapshots are in the checkpoint
    half = sorted(frozen)[3]
    stacked_run(half, tmp_path / "c")
    again, _ = stacked_run(600, tmp_path / "c")
    assert again.frozen_at.tolist() == frozen
    assert all(largest_difference(again.unstack(i), stack.unstack(i)) == 0 for i in range(6))
    before = [stack.unstack(i) for i in range(6)]
    stack.settle()
    accuracies = Accuracy(*held_out)(stack)["accuracy"]
    assert min(accuracies) > 0.8
    assert all(largest_difference(before[i], stack.unstack(i)) == 0 for i in range(6))
    row = next(row for row in done.history if row["step"] == frozen[0])
    assert row["accuracy"][0] == pytest.approx(accuracies[0])


def test_one_diverging_network_does_not_take_the_others_along() -> None:
    data, nets = toy_data(), list(ensemble(3, [6, 16, 3], seed=1))
    with torch.no_grad():
        nets[1][0].weight.mul_(1e30)
        nets[1][2].weight.mul_(1e30)
    stack = Stacked.of(nets)
    done = train(stack, data, steps=20, loss=stack.loss(F.cross_entropy), callbacks=[])
    assert done.stopped_because == "steps"
    assert stack.diverged.tolist() == [False, True, False] and stack.running == 2
    alone = train(nets[2], data, steps=20).model
    assert largest_difference(alone, stack.unstack(2)) < 1e-6
    hopeless = Stacked.of([nets[1], nets[1]])
    assert train(hopeless, data, steps=20, loss=hopeless.loss(F.cross_entropy)).diverged


def test_what_cannot_be_stacked() -> None:
    with pytest.raises(InputError, match="no networks"):
        Stacked.of([])
    with pytest.raises(InputError, match="cannot be stacked"):
        Stacked.of([nn.Linear(2, 3), nn.Linear(3, 3)])
    with pytest.raises(InputError, match="cannot be stacked"):
        Stacked.of([nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3))])
    with pytest.raises(InputError, match="without parameters"):
        Stacked.of([nn.ReLU()])
    stack = Stacked.of([nn.Linear(6, 3)])
    with pytest.raises(InputError, match="network 1 is not in a stack of 1"):
        stack.unstack(1)
    with pytest.raises(InputError, match="works on a stack of networks, not on a Linear"):
        FreezeAt("accuracy", 0.5)(0, nn.Linear(2, 2), {})
    with pytest.raises(InputError, match=r"needs a metric 'accuracy' .* this row has loss"):
        FreezeAt("accuracy", 0.5)(0, stack, {"loss": 1.0})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", [None, 0.0, 0.2])
@pytest.mark.parametrize("ignored", [0, 3, 7])
def test_the_losses_of_a_stack_are_those_of_each_network(
    dtype: torch.dtype, smoothing: float | None, ignored: int
) -> None:
    """Cross entropy is written out: value and gradient against torch's, network by network; NaN if all is ignored."""
    function = F.cross_entropy if smoothing is None else functools.partial(F.cross_entropy, label_smoothing=smoothing)
    outputs = 3 * torch.randn(4, 7, 5, generator=generator(0), dtype=dtype)
    outputs[3, 2] = 1e4
    targets = torch.randint(5, (7,), generator=generator(1))
    targets[:ignored] = -100
    weights = torch.arange(1.0, 5.0, dtype=dtype)
    ours, theirs = outputs.clone().requires_grad_(), outputs.clone().requires_grad_()
    found = loss_of_each(function)(ours, targets)
    expected = torch.stack([function(own, targets) for own in theirs])
    tight = {"rtol": 1e-6 if dtype == torch.float32 else 1e-14, "atol": 1e-7 if dtype == torch.float32 else 1e-15}
    torch.testing.assert_close(found, expected, equal_nan=True, **tight)
    assert found.isnan().all() == (ignored == 7)
    (found @ weights).backward()
    (expected @ weights).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True, **tight)


def test_other_losses_of_a_stack_are_taken_as_they_are() -> None:
    outputs, targets = torch.randn(3, 7, 5, generator=generator(0)), torch.randint(5, (7,), generator=generator(1))
    soft = torch.softmax(torch.randn(7, 5, generator=generator(2)), 1)
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    for function, wanted in (
        (functools.partial(F.cross_entropy, weight=weight), targets), (F.cross_entropy, soft), (F.mse_loss, soft),
        (functools.partial(F.cross_entropy, reduction="sum"), targets), (nn.CrossEntropyLoss(weight=weight), targets),
        (lambda o, t: o.logsumexp(1).mean() - o[:, 0].mean(), targets),
    ):  # fmt: skip
        expected = torch.stack([function(own, wanted) for own in outputs])
        torch.testing.assert_close(loss_of_each(function)(outputs, wanted), expected)
