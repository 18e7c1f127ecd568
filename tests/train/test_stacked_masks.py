"""Stacks of pruned networks: equal to training them one by one, and zeros that stay."""

import copy
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.prune import apply, keep, random
from epoch0.seeds import generator
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from epoch0.train.stacked import Stacked

DECAYED = partial(torch.optim.SGD, momentum=0.9, weight_decay=0.01)
SPARSITIES = (0.0, 0.3, 0.6, 0.9)
SIZES = [6, 12, 12, 12, 3]


def toy_data(examples: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian inputs (examples, 6) in three classes."""
    x = torch.randn(examples, 6, generator=generator(11))
    return x, x[:, :3].argmax(1)


def network(seed: int, activation: str = "tanh", bias: bool = True, std: float = 1.3) -> nn.Sequential:
    net = mlp(SIZES, activation, weights=Gaussian(std), biases=Gaussian(0.1 if bias else 1e-9), seed=seed)
    for layer in net if not bias else ():
        if isinstance(layer, nn.Linear):
            layer.bias = None
    return net


def pruned(activation: str = "tanh", bias: bool = True) -> list[nn.Module]:
    """Networks of one kind with masks of their own, the first of all weights."""
    nets = [network(seed, activation, bias) for seed in range(len(SPARSITIES))]
    return [apply(net, keep(random(net, seed=3), s)) for net, s in zip(nets, SPARSITIES, strict=True)]


def visible(net: nn.Module) -> Iterator[torch.Tensor]:
    """What the layers compute with."""
    for layer in net.children():
        if isinstance(layer, nn.Linear):
            yield layer.weight.detach()
            if layer.bias is not None:
                yield layer.bias.detach()


def apart(one: nn.Module, other: nn.Module) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(visible(one), visible(other), strict=True))


HOW = [
    ("tanh", True, partial(torch.optim.SGD, momentum=0.9, weight_decay=0.01, nesterov=True), 0.03),
    ("elu", True, partial(torch.optim.SGD, momentum=0.9), 0.02),
    ("relu", False, partial(torch.optim.SGD, weight_decay=0.1), 0.1),
    ("tanh", False, partial(torch.optim.Adam, weight_decay=0.01), 0.003),
    ("relu", True, torch.optim.Adam, 0.003),
    ("sigmoid", True, torch.optim.SGD, 0.5),
    ("gelu", True, partial(torch.optim.SGD, momentum=0.9), 0.02),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("activation", "bias", "optimizer", "rate"), HOW, ids=lambda v: str(v)[:12])
def test_equals_training_one_by_one(activation: str, bias: bool, optimizer: object, rate: float) -> None:
    """float32, 50 steps, the last batch of an epoch a short one: every kept weight to 1e-6, every pruned one zero."""
    data, nets = toy_data(), pruned(activation, bias)
    start = copy.deepcopy(nets)
    stack = Stacked.of(nets)
    options = {"steps": 50, "batch_size": 16, "optimizer": optimizer, "learning_rate": rate, "seed": 5}
    train(stack, data, **options, loss=stack.loss(F.cross_entropy))
    for index, net in enumerate(nets):
        alone = train(net, data, **options).model
        ours = stack.unstack(index)
        assert apart(alone, start[index]) > 1e-2, "the network has moved"
        assert apart(alone, ours) < 1e-6
        for layer in ours.children():
            if isinstance(layer, nn.Linear):
                row = layer.parametrizations.weight
                mask = row[0].mask
                assert int(mask.count_nonzero()) < mask.numel() or index == 0
                assert bool((layer.weight[~mask] == 0).all())
                assert bool((layer.weight[mask] != 0).all())


def test_masks_can_be_given_with_the_networks() -> None:
    nets = [network(seed) for seed in range(3)]
    masks = [keep(random(net, seed=1), s) for net, s in zip(nets, (0.2, 0.5, 0.8), strict=True)]
    partial = [masks[0], masks[1], {"0.weight": masks[2]["0.weight"]}]
    stack = Stacked.of(nets, partial)
    x, _ = toy_data()
    for index, (net, own) in enumerate(zip(nets, partial, strict=True)):
        assert not hasattr(net[0], "parametrizations"), "the networks given are as they were"
        torch.testing.assert_close(stack(x)[index], apply(copy.deepcopy(net), own)(x))
        torch.testing.assert_close(stack.unstack(index)(x), stack(x)[index])


def dead(seed: int, kind: str) -> nn.Module:
    """A network whose outputs do not depend on its inputs."""
    net = network(seed).double()
    masks = {name: p.detach() == p.detach() for name, p in net.named_parameters() if p.dim() == 2}
    if kind == "last":
        masks["6.weight"][:] = False
    elif kind:  # units that the inputs reach, and units that reach the outputs, but not the same
        here, after = {"path": ("0.weight", "2.weight"), "later path": ("2.weight", "4.weight")}[kind]
        masks[here][:6] = False
        masks[after][:, 6:] = False
    return apply(net, masks)


def test_gradients_are_those_of_each_network() -> None:
    """Against autograd on each network, in float64; three of five have no path from inputs to outputs."""
    x, y = toy_data()
    nets = [dead(seed, kind) for seed, kind in enumerate(("", "later path", "path", "", "last"))]
    stack = Stacked.of(nets)
    outputs = stack(x.double())
    stack.loss(F.cross_entropy)(outputs, y).backward()
    for index, net in enumerate(nets):
        value = net(x.double())
        torch.testing.assert_close(outputs[index], value, rtol=1e-12, atol=1e-14)
        F.cross_entropy(value, y).backward()
        for name, parameter in net.named_parameters():
            own = stack.networks.get_parameter(name).grad
            assert own is not None and parameter.grad is not None
            torch.testing.assert_close(own[index], parameter.grad, rtol=1e-12, atol=1e-14, msg=f"{index} {name}")


def test_gradients_add_up_and_passes_do_not_mix() -> None:
    x, y = toy_data()
    stack = Stacked.of([net.double() for net in pruned()])
    total = stack.loss(F.cross_entropy)
    parameters = list(stack.networks.parameters())

    def gradient(*halves: slice) -> list[torch.Tensor]:
        stack.zero_grad()
        losses = [total(stack(x[half].double()), y[half]) for half in halves]  # all forward passes first
        for loss in losses:
            loss.backward()
        return [p.grad.clone() for p in parameters if p.grad is not None]

    first, second = slice(0, 50), slice(50, 90)
    together, one, other = gradient(first, second), gradient(first), gradient(second)
    assert len(one) == len(parameters)
    for a, b, c in zip(together, one, other, strict=True):
        torch.testing.assert_close(a, b + c, rtol=1e-12, atol=1e-14)


def test_frozen_parameters_and_copies() -> None:
    x, y = toy_data()
    stack = Stacked.of(pruned())
    frozen = dict(stack.networks.named_parameters())["0.bias"].requires_grad_(False)
    before = frozen.detach().clone()
    twin = copy.deepcopy(stack)
    train(stack, (x, y), steps=5, loss=stack.loss(F.cross_entropy))
    assert torch.equal(frozen, before)
    assert torch.equal(dict(twin.networks.named_parameters())["0.bias"], before)
    train(twin, (x, y), steps=5, loss=twin.loss(F.cross_entropy))
    assert all(torch.equal(a, b) for a, b in zip(stack.parameters(), twin.parameters(), strict=True))
    assert twin.double()(x.double()).dtype == torch.float64


def test_a_diverging_network_stops_as_it_would_alone() -> None:
    """One deep linear network is so steep that each step is larger than the one before."""
    data, nets = toy_data(), [network(seed, "identity") for seed in range(3)]
    with torch.no_grad():
        for place in (0, 2, 4):
            nets[1][place].weight.mul_(20)
    nets = [apply(net, keep(random(net, seed=1), 0.3)) for net in nets]
    stack = Stacked.of(nets)
    options = {"steps": 20, "batch_size": 16, "learning_rate": 0.05, "optimizer": DECAYED}
    done = train(stack, data, **options, loss=stack.loss(F.cross_entropy), evaluate=Accuracy(*data))
    assert done.stopped_because == "steps" and stack.diverged.tolist() == [False, True, False]
    alone = train(nets[1], data, **options)
    assert alone.diverged and 0 < alone.steps < 20
    for mine, theirs in zip(visible(stack.unstack(1)), visible(nets[1]), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6, equal_nan=True)
    for index in (0, 2):
        assert apart(train(nets[index], data, **options).model, stack.unstack(index)) < 1e-6


def test_resuming_is_exact_and_the_masks_come_back(tmp_path) -> None:
    data = toy_data()

    def run(steps: int, checkpoint=None, seed: int = 0) -> Stacked:
        nets = [network(seed) for _ in range(3)]
        masks = [keep(random(net, seed=seed + i), 0.5) for i, net in enumerate(nets)]
        stack = Stacked.of(nets, masks)
        train(
            stack, data, steps=steps, batch_size=16, optimizer="adam", learning_rate=0.01, seed=1,
            loss=stack.loss(F.cross_entropy), checkpoint=checkpoint,
        )  # fmt: skip
        return stack

    whole = run(20)
    run(9, tmp_path / "c")
    # begun with other networks and masks: all of it is in the checkpoint
    again = run(20, tmp_path / "c", seed=7)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), again.state_dict().values(), strict=True))
    assert float(again.unstack(0)[0].weight.count_nonzero()) < 6 * 12


def test_half_precision_keeps_the_zeros() -> None:
    data, nets = toy_data(), pruned()
    stack = Stacked.of(nets)
    done = train(stack, data, steps=20, optimizer=DECAYED, learning_rate=0.05,
                 precision="bfloat16", loss=stack.loss(F.cross_entropy))  # fmt: skip
    assert done.precision == "bfloat16" and done.history[-1]["loss"] < 4 * 1.2
    for index in range(len(nets)):
        rows = [layer.parametrizations.weight for layer in stack.unstack(index) if isinstance(layer, nn.Linear)]
        assert all(float(row().detach()[~row[0].mask].abs().sum()) == 0 for row in rows)
        full = train(copy.deepcopy(nets[index]), data, steps=20, optimizer=DECAYED,
                     learning_rate=0.05).model  # fmt: skip
        assert 1e-7 < apart(full, stack.unstack(index)) < 0.1


def test_masks_that_do_not_fit() -> None:
    nets = [network(seed) for seed in range(2)]
    masks = [keep(random(net, seed=1), 0.5) for net in nets]
    with pytest.raises(InputError, match="1 masks for 2 networks"):
        Stacked.of(nets, masks[:1])
    with pytest.raises(InputError, match=r"cannot be stacked .* or of none"):
        Stacked.of([nets[0], apply(nets[1], masks[1])])
    with pytest.raises(InputError, match="nothing"):
        Stacked.of([nets[0]], [{"nothing": torch.ones(2, 2, dtype=torch.bool)}])


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 5),
    depth=st.integers(1, 4),
    width=st.integers(1, 5),
    batch=st.integers(1, 7),
    density=st.floats(0.0, 1.0),
    activation=st.sampled_from(["tanh", "relu", "elu", "sigmoid"]),
)
def test_any_chain_has_the_gradients_of_its_networks(
    seed: int, count: int, depth: int, width: int, batch: int, density: float, activation: str
) -> None:
    source = generator(seed)
    sizes = [3, *[width] * (depth - 1), 2]
    nets = [mlp(sizes, activation, biases=Gaussian(0.5), seed=seed + i, dtype=torch.float64) for i in range(count)]
    for net in nets:
        shapes = {name: p.shape for name, p in net.named_parameters() if p.dim() == 2}
        apply(net, {name: torch.rand(shape, generator=source) < density for name, shape in shapes.items()})
    x = torch.randn(batch, 3, generator=source, dtype=torch.float64)
    y = torch.randint(2, (batch,), generator=source)
    stack = Stacked.of(nets)
    stack.loss(F.cross_entropy)(stack(x), y).backward()
    for index, net in enumerate(nets):
        F.cross_entropy(net(x), y).backward()
        for name, parameter in net.named_parameters():
            own = stack.networks.get_parameter(name).grad
            assert own is not None and parameter.grad is not None
            torch.testing.assert_close(own[index], parameter.grad, rtol=1e-10, atol=1e-13)
