"""Circular convolutions at less cost: torch's numbers, to the bit in rows, and in use where they should be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from epoch0.networks import vanilla_cnn
from epoch0.prune import apply, keep
from epoch0.prune.scores.baselines import random
from epoch0.seeds import generator
from epoch0.train import _circular_convolution as circles
from epoch0.train._circular_convolution import _CircularPad, _OnTorus, pad, with_cheap_circles
from epoch0.train.evaluation import Evaluation
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


def test_padding_can_be_differentiated_twice() -> None:
    image = torch.randn(1, 2, 3, 4, dtype=torch.float64, generator=generator(0), requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: pad(x, 1, 2) ** 3, image)


def test_what_lies_channels_last_stays_so() -> None:
    image = torch.randn(2, 3, 4, 5, generator=generator(0)).contiguous(memory_format=torch.channels_last)
    x = image.clone(memory_format=torch.preserve_format).requires_grad_()
    padded = pad(x, 1, 2)
    padded.backward(torch.ones_like(padded))
    for made in (padded, x.grad, pad(image, 1, 2)):
        assert made.is_contiguous(memory_format=torch.channels_last)


def test_padding_made_in_inference_mode_is_of_use_outside() -> None:
    image = torch.randn(1, 2, 7, 9, generator=generator(0)).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        pad(image, 1, 1)
    x = image.clone(memory_format=torch.preserve_format).requires_grad_()
    (gradient,) = torch.autograd.grad(pad(x, 1, 1).sum(), x, create_graph=True)
    assert float(gradient.detach().sum()) == 2 * 9 * 11


LAST = {"memory_format": torch.channels_last}


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_convolution_on_the_torus_and_its_two_derivatives_are_torchs(data: st.DataObject) -> None:
    """In float64, so that nothing but rounding differs: values, gradients, and gradients of their squares."""
    above, beside = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
    height, width = data.draw(st.integers(max(1, above), 5)), data.draw(st.integers(max(1, beside), 5))
    inputs, outputs = data.draw(st.integers(2, 3)), data.draw(st.integers(1, 3))
    layer = nn.Conv2d(
        inputs, outputs, (2 * above + 1, 2 * beside + 1), padding=(above, beside), padding_mode="circular",
        bias=data.draw(st.booleans()), dtype=torch.float64,
    )  # fmt: skip
    for index, parameter in enumerate(layer.parameters()):
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64, generator=generator(index))
        parameter.requires_grad_(data.draw(st.booleans()))
    image = torch.randn(2, inputs, height, width, dtype=torch.float64, generator=generator(3)).contiguous(**LAST)
    found = []
    for call in (with_cheap_circles(layer, layer), layer):
        x = image.clone(memory_format=torch.preserve_format).requires_grad_()
        wanted = [x, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
        out = call(x)
        first = torch.autograd.grad(out.sin().sum(), wanted, create_graph=True)
        second = torch.autograd.grad(sum(each.square().sum() for each in first), wanted, allow_unused=True)
        found.append([out, *first, *second])
    for ours, torchs in zip(*found, strict=True):
        assert (ours is None) == (torchs is None)
        assert ours is None or torch.allclose(ours, torchs, rtol=1e-9, atol=1e-9)


@pytest.fixture
def on_torus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a convolution whose gradient is found on the torus."""
    found: list[int] = []
    own = _OnTorus.apply
    monkeypatch.setattr(_OnTorus, "apply", lambda *a: found.append(1) or own(*a))
    return found


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


def test_a_run_in_channels_last_order_differs_by_rounding(calls: list[int], on_torus: list[int]) -> None:
    ours, plain = small(), small()
    settings = {"epochs": 2, "batch_size": 8, "optimizer": SGD(momentum=0.9), "learning_rate": 0.1}
    train(ours, (X, Y), channels_last=True, **settings)
    # of one channel both orders are the same, and the first convolution makes rows of it
    assert len(on_torus) == 2 * 6 and len(calls) == 6
    train(plain, (X, Y), **settings)
    assert len(on_torus) == 2 * 6 and len(calls) == 6 + 3 * 6
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_an_evaluation_goes_this_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net, asked = small(), []
    own = circles.pad
    monkeypatch.setattr(circles, "pad", lambda *a, **k: asked.append(1) or own(*a, **k))
    found = Evaluation((X, Y))(net)
    assert len(asked) == 4
    with torch.no_grad():
        outputs = net(X)
    assert found["test_loss"] == pytest.approx(F.cross_entropy(outputs, Y).item(), abs=1e-7)
    assert Evaluation((X, Y))(torch.compile(net, backend="eager")) == found and len(asked) == 4


def test_a_stack_of_circular_convolutions_trains_as_each_alone(calls: list[int]) -> None:
    nets = [vanilla_cnn(3, 4, 3, (1, 6, 6), 3, "tanh", seed=seed) for seed in (0, 1)]
    stack = Stacked.of(nets)
    train(stack, (X, Y), steps=4, batch_size=8, learning_rate=0.05, loss=stack.loss(F.cross_entropy))
    assert not calls, "inside vmap padding goes torch's way"
    for index, net in enumerate(nets):
        train(net, (X, Y), steps=4, batch_size=8, learning_rate=0.05)
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(stack.networks.get_parameter(name)[index], parameter, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "other", [{"stride": 2}, {"groups": 2}, {"dilation": 2}, {"padding": 2}, {"padding": 0}, {"kernel_size": (3, 5)}]
)
def test_other_convolutions_are_padded_only(other: dict[str, object], on_torus: list[int]) -> None:
    layer = nn.Conv2d(**{"in_channels": 2, "out_channels": 4, "kernel_size": 3, "padding": 1} | other,
                      padding_mode="circular")  # fmt: skip
    found = []
    for call in (with_cheap_circles(layer, layer), layer):
        x = torch.randn(3, 2, 6, 7, generator=generator(0)).contiguous(**LAST).requires_grad_()
        out = call(x)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    assert not on_torus
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


def test_autocast_and_mixed_types_are_torchs_affair(on_torus: list[int]) -> None:
    layer = nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular")
    cheap = with_cheap_circles(layer, layer)
    x = torch.randn(3, 2, 6, 7, generator=generator(0)).contiguous(**LAST).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours, torchs = cheap(x), layer(x)
    assert torch.equal(ours, torchs) and ours.dtype == torch.bfloat16
    ours.float().sum().backward()
    with pytest.raises(RuntimeError, match="type"):
        cheap(x.double())
    assert not on_torus
    cheap(x)
    assert on_torus


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
        assert with_cheap_circles(layer, layer) is layer
    circular = nn.Conv2d(2, 4, (3, 5), 2, (1, 2), groups=2, padding_mode="circular")
    cheap = with_cheap_circles(circular, circular)
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
    cheap = with_cheap_circles(net, net)
    cheap(X)
    with pytest.raises(RuntimeError):
        cheap(X[:, :, :2, :2].expand(-1, 2, -1, -1))
    assert seen == [True]
    net[0]._forward_hooks.clear()
    assert [set(part.__dict__) for part in net.modules()] == before
    wide = nn.Conv2d(1, 1, 3, padding=9, padding_mode="circular")
    with pytest.raises(RuntimeError, match="wrapping around more than once"):
        with_cheap_circles(wide, wide)(X.clone().requires_grad_())
