"""Circular padding with a cheaper gradient: torch's numbers to the bit, and in use where it should be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from epoch0.networks import vanilla_cnn
from epoch0.prune import apply, keep
from epoch0.prune.baselines import random
from epoch0.seeds import generator
from epoch0.train._circular_padding import _CircularPad, pad, with_cheap_padding
from epoch0.train.loop import ORDER, SGD, train
from epoch0.train.stacked import Stacked


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_values_and_gradients_are_torchs_to_the_bit(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    beside, above = data.draw(st.integers(0, width)), data.draw(st.integers(0, height))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    image = torch.randn(2, 3, height, width, generator=generator(0)).to(dtype)
    if data.draw(st.booleans()):
        image = image.contiguous(memory_format=torch.channels_last)
    found = []
    for way in (pad, lambda x, beside, above: F.pad(x, (beside, beside, above, above), mode="circular")):
        x = image.clone().requires_grad_()
        padded = way(x, beside, above)
        gradient = torch.randn(padded.shape, generator=generator(1)).to(dtype)
        kept = gradient.clone()
        padded.backward(gradient)
        assert torch.equal(gradient, kept), "what comes from behind is not written to"
        found.append((padded.detach(), x.grad))
    for ours, torchs in zip(*found, strict=True):
        assert torch.equal(ours, torchs)


def test_it_can_be_differentiated_twice() -> None:
    image = torch.randn(1, 2, 3, 4, dtype=torch.float64, generator=generator(0), requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: pad(x, 1, 2) ** 3, image)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a padding that goes the cheap way."""
    found: list[int] = []
    own = _CircularPad.apply
    monkeypatch.setattr(_CircularPad, "apply", lambda *a: found.append(1) or own(*a))
    return found


def small(seed: int = 0) -> nn.Module:
    """Four circular convolutions, half of the weights pruned."""
    net = vanilla_cnn(4, 5, 3, (1, 6, 6), 3, "tanh", seed=seed)
    return apply(net, keep(random(net, seed=1), 0.5))


X = torch.randn(24, 1, 6, 6, generator=generator(2))
Y = torch.arange(24) % 3


def test_a_run_equals_plain_torch_to_the_bit(calls: list[int]) -> None:
    ours, plain = small(), small()
    train(ours, (X, Y), epochs=2, batch_size=8, optimizer=SGD(momentum=0.9), learning_rate=0.1)
    assert len(calls) == 3 * 6, "the inputs of the first of four convolutions need no gradient"
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for chosen in torch.randperm(24, generator=generator(0, ORDER, epoch)).split(8):
            optimizer.zero_grad()
            F.cross_entropy(plain(X[chosen]), Y[chosen]).backward()
            optimizer.step()
    assert len(calls) == 3 * 6
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_stack_of_circular_convolutions_trains_as_each_alone(calls: list[int]) -> None:
    nets = [vanilla_cnn(3, 4, 3, (1, 6, 6), 3, "tanh", seed=seed) for seed in (0, 1)]
    stack = Stacked.of(nets)
    train(stack, (X, Y), steps=4, batch_size=8, learning_rate=0.05, loss=stack.loss(F.cross_entropy))
    assert not calls, "inside vmap padding goes torch's way"
    for index, net in enumerate(nets):
        train(net, (X, Y), steps=4, batch_size=8, learning_rate=0.05)
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(stack.networks.get_parameter(name)[index], parameter, rtol=1e-5, atol=1e-6)


class Own(nn.Conv2d):
    """A convolution with a forward of its own."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(image)


def test_everything_else_goes_torchs_way(calls: list[int]) -> None:
    image = torch.randn(2, 2, 5, 6, generator=generator(0), requires_grad=True)
    others = [
        nn.Conv2d(2, 2, 3, padding=1),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(2, 2, 3, padding="same", padding_mode="circular"),
        Own(2, 2, 3, padding=1, padding_mode="circular"),
    ]
    for layer in others:
        assert with_cheap_padding(layer, layer) is layer
    circular = nn.Conv2d(2, 4, (3, 5), 2, (1, 2), groups=2, padding_mode="circular")
    cheap = with_cheap_padding(circular, circular)
    for x in (image, image[0]):
        assert torch.equal(cheap(x), circular(x))
    assert len(calls) == 1, "one image without a batch goes torch's way"
    with torch.no_grad():
        cheap(image)
    torch.func.grad(lambda x: cheap(x).sum())(image.detach())
    assert len(calls) == 1


def test_the_model_is_as_it_was_after_every_call_even_one_that_fails() -> None:
    net = small()
    before = [set(part.__dict__) for part in net.modules()]
    seen = []
    net[0].register_forward_hook(lambda *args: seen.append("forward" in net[0].__dict__))
    cheap = with_cheap_padding(net, net)
    cheap(X)
    with pytest.raises(RuntimeError):
        cheap(X[:, :, :2, :2].expand(-1, 2, -1, -1))
    assert seen == [True]
    net[0]._forward_hooks.clear()
    assert [set(part.__dict__) for part in net.modules()] == before
    wide = nn.Conv2d(1, 1, 3, padding=9, padding_mode="circular")
    with pytest.raises(RuntimeError, match="wrapping around more than once"):
        with_cheap_padding(wide, wide)(X.clone().requires_grad_())
