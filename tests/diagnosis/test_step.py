"""One step of an optimizer seen in the outputs, against finite steps in plain torch; everything else as it was."""

import copy
import dataclasses
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epoch0.diagnosis import step as step_module
from epoch0.diagnosis.step import FEW, LADDER, OPTIMIZERS, USUAL, Optimizer, steps
from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing.call import Call


def split(examples: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(examples, generator=generator(0, 0x7374))
    return order[: (examples + 1) // 2], order[(examples + 1) // 2 :]


def loss_of(output: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(output, y) if y.is_floating_point() else F.cross_entropy(output.flatten(0, -2), y.flatten())


def stepped(net: nn.Module, gradients: list[Tensor], optimizer: Optimizer, rate: float) -> nn.Module:
    """A copy after one step of torch's own optimizer."""
    twin = copy.deepcopy(net)
    for p, g in zip(twin.parameters(), gradients, strict=True):
        p.grad = g.clone()
    weights = twin.parameters()
    (torch.optim.Adam(weights, rate) if optimizer == "adam" else torch.optim.SGD(weights, rate)).step()
    return twin


def cosine(one: Tensor, other: Tensor) -> tuple[float, float]:
    one, other = (t.reshape(-1, t.shape[-1]) for t in (one, other))
    one, other = one - one.mean(0), other - other.mean(0)
    product = float((one * other).sum())
    return product / float(one.norm() * other.norm()), product


def first_order(net: nn.Module, x: Tensor, y: Tensor, optimizer: Optimizer) -> dict[str, float]:
    """How outputs move along the step of what the loss wants beyond the mean answer, by differences of outputs."""
    seen, others = split(len(x))
    output = net(x[seen])
    output.retain_grad()
    loss = loss_of(output, y[seen])
    net.zero_grad()
    loss.backward()
    gradients = [p.grad.clone() for p in net.parameters()]
    left = output.grad - output.grad.mean(dim=tuple(range(output.dim() - 1)), keepdim=True)
    net.zero_grad()
    net(x[seen]).backward(left)
    h = 1e-7
    ahead = stepped(net, [p.grad.clone() for p in net.parameters()], optimizer, h)
    with torch.no_grad():
        alignment, product = cosine(-output.grad, (ahead(x[seen]) - net(x[seen])) / h)
    held_output = net(x[others])
    held_loss = loss_of(held_output, y[others])
    pull = -torch.autograd.grad(held_loss, held_output)[0]
    with torch.no_grad():
        held, _ = cosine(pull, (ahead(x[others]) - net(x[others])) / h)
    found = {"loss": float(loss.detach()), "held loss": float(held_loss.detach()), "alignment": alignment}
    return {**found, "held": held, "pace": product / found["loss"], "gradients": gradients}  # type: ignore[dict-item]


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x)) + self.inner(x).mean(1, keepdim=True))


class Square(torch.autograd.Function):
    """No forward derivative."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return 2 * ctx.saved_tensors[0] * g


class Squared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(Square.apply(self.inner(x)))


def plain(*more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), *more, nn.Tanh(), nn.Linear(12, 4))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool, float]] = {
    "classes": (plain, (21, 6), True, 1e-4),
    "values": (plain, (20, 6), False, 1e-4),
    "batch norm": (lambda: plain(nn.BatchNorm1d(12, affine=False)), (24, 6), True, 1e-4),
    "positions": (Sequences, (18, 5, 6), True, 1e-4),
    "no forward derivative": (Squared, (20, 6), True, 3e-3),
}


def case(name: str) -> tuple[nn.Module, Tensor, Tensor, float]:
    build, shape, classes, close = CASES[name]
    torch.manual_seed(3)
    net, source = build().double().train(), generator(4)
    x = torch.randn(shape, generator=source, dtype=torch.float64)
    y = torch.randint(4, shape[:-1], generator=source)
    return net, x, y if classes else torch.randn(len(x), 4, generator=source, dtype=torch.float64), close


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", CASES)
def test_a_finite_step_says_the_same(name: str, optimizer: Optimizer) -> None:
    net, x, y, close = case(name)
    found = steps(Call.of(net, x, y))[optimizer]
    before = first_order(net, x, y, optimizer)
    assert found.loss == pytest.approx(before["loss"])
    assert (found.alignment, found.held) == pytest.approx((before["alignment"], before["held"]), abs=close)
    usual = stepped(net, before["gradients"], optimizer, USUAL[optimizer])
    after = first_order(usual, x, y, optimizer)
    assert (found.second, found.second_held) == pytest.approx((after["alignment"], after["held"]), abs=close)
    assert found.second_pace == pytest.approx(after["pace"], rel=close * 10)
    assert found.change == pytest.approx(math.log10(after["held loss"] / before["held loss"]), abs=1e-9)

    seen, _ = split(len(x))
    good = []
    for rate in LADDER[optimizer]:
        with torch.no_grad():
            loss = float(loss_of(stepped(net, before["gradients"], optimizer, rate)(x[seen]), y[seen]))
        good.append(loss <= found.loss)
    assert good[0] and good == sorted(good, reverse=True)  # from one rate on all raise it: bisection finds that one
    assert found.largest == LADDER[optimizer][sum(good) - 1]

    moved = stepped(net, before["gradients"], optimizer, 1.0)
    for (key, p), q in zip(net.named_parameters(), moved.parameters(), strict=True):
        change, size = (float(t.detach().square().mean().sqrt()) for t in (q - p, p))
        assert found.updates[key] == pytest.approx(change / size, rel=1e-6)
    sizes = torch.cat([g.flatten().abs() for g in before["gradients"]])
    share = sizes / (sizes + 1e-8) if optimizer == "adam" else (sizes > 0).double()
    assert found.reached == pytest.approx(float(share.mean()))
    assert found.finite and found.examples == len(seen)


class NumpyDropout(nn.Module):
    """Some models draw their masks from numpy's global stream."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.from_numpy(np.random.rand(*x.shape) > 0.3)  # noqa: NPY002


class Contrastive(nn.Module):
    """The loss is made of two outputs, neither of which is what the model returns first."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        one, two = F.normalize(self.one(x), dim=1), F.normalize(self.two(x.flip(1)), dim=1)
        loss = F.cross_entropy(8 * one @ two.T, torch.arange(len(x)))
        return {"logits": one.detach(), "loss": loss}


def test_a_loss_of_other_outputs_falls_by_what_its_gradient_says() -> None:
    torch.manual_seed(0)
    net, x = Contrastive().double(), torch.randn(24, 6, generator=generator(1), dtype=torch.float64)
    found = steps(Call.of(net, x, torch.zeros(24), loss=lambda outputs, _: outputs["loss"]))
    assert found["sgd"].alignment == found["adam"].alignment == 0.4  # assumed, not measured
    seen, _ = split(24)
    gradients = torch.autograd.grad(net(x[seen])["loss"], list(net.parameters()))
    for optimizer in OPTIMIZERS:
        after = stepped(net, list(gradients), optimizer, USUAL[optimizer])
        loss = after(x[seen])["loss"]
        slopes = torch.autograd.grad(loss, list(after.parameters()))
        falls = sum(g.square().sum() if optimizer == "sgd" else g.abs().sum() for g in slopes)
        assert found[optimizer].second_pace == pytest.approx(float(falls) / loss.item(), rel=1e-4)


def chain(depth: int, gain: float, *more: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(5)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(32, 32, bias=False), nn.Tanh(), *(make() for make in more)]
        nn.init.normal_(layers[-1 - len(more) - 1].weight, 0, gain / 32**0.5)  # type: ignore[arg-type]
    return nn.Sequential(*layers, nn.Linear(32, 4))


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("name", "net", "close"),
    [
        ("plain", lambda: chain(3, 1.2), 0.01),
        ("dropout", lambda: chain(3, 1.2, lambda: nn.Dropout(0.3)), 0.02),
        ("dropout by numpy", lambda: chain(3, 1.2, NumpyDropout), 0.02),
        ("chaotic: gradients grow 100 times", lambda: chain(20, 2.2), 0.1),
        ("nearly collapsed: examples differ by rounding alone", lambda: chain(16, 0.35), 0.1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_differences_say_what_derivatives_say(
    name: str, net: Callable[[], nn.Module], close: float, dtype: torch.dtype
) -> None:
    x = torch.randn(48, 32, generator=generator(2)).to(dtype)
    y = torch.randint(4, (48,), generator=generator(3))
    model = net().to(dtype)
    call = Call.of(model, x, y)
    exact, quick = steps(call), steps(call, quick=True)
    for optimizer in ("sgd",) if "dropout" in name else OPTIMIZERS:  # Adam's draws are others in the two
        one, other = exact[optimizer], quick[optimizer]
        assert other.quick and not one.quick
        assert other.alignment == pytest.approx(one.alignment, abs=close)
        if one.alignment > 0.3 and other.second == other.alignment and "dropout" not in name:  # no second look
            pace = first_order(copy.deepcopy(model).double(), x.double(), y, optimizer)["pace"]
            assert other.second_pace == pytest.approx(pace, rel=0.1)


def test_what_starts_at_zero_learns_in_the_second_step() -> None:
    """A readout of zeros after a constant: the first step moves all answers alike, the second tells them apart."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[4].weight)
    x = torch.randn(40, 6, generator=generator(1), dtype=torch.float64)
    y = (x[:, :4] + torch.tensor([1.0, 0.5, 0.0, -0.5])).argmax(1)  # the first two are more than a quarter each
    for found in steps(Call.of(net, x, y)).values():
        assert (found.alignment, found.held) == pytest.approx((0, 0), abs=1e-12)
        assert found.second > 0.05


def test_a_readout_of_zeros_alone_moves_at_once_and_what_is_before_it_later() -> None:
    torch.manual_seed(0)
    net = plain().double()
    nn.init.zeros_(net[2].weight)
    x = torch.randn(40, 6, generator=generator(1), dtype=torch.float64)
    found = steps(Call.of(net, x, (x[:, 0] > 0).long()))["adam"]
    assert found.alignment > 0.3 and found.updates["0.weight"] == found.updates["0.bias"] == 0
    assert "2.weight" not in found.updates  # there is no size to compare with


def test_no_gradient_reaches_no_weight() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    nn.init.constant_(net[0].bias, -100)
    call = Call.of(net, torch.randn(20, 6, generator=generator(0)), torch.arange(20) % 4)
    for one in (*steps(call).values(), *steps(call, quick=True).values()):
        assert one.reached == one.second == one.alignment == 0


def test_gradients_below_adam_s_eps_are_taken_for_nothing() -> None:
    torch.manual_seed(0)
    net, x = plain().double(), torch.randn(20, 6, generator=generator(0), dtype=torch.float64)
    call = Call.of(net, x, torch.arange(20) % 4, loss=lambda o, t: 1e-12 * F.cross_entropy(o, t))
    found = steps(call)
    assert found["adam"].reached < 1e-3 and found["sgd"].reached == 1


def test_too_few_examples_hold_none_back() -> None:
    net = plain()
    found = steps(Call.of(net, torch.randn(3, 6, generator=generator(0)), torch.arange(3)))["adam"]
    assert found.held is None and found.second_held is None and found.examples == 3 and found.alignment > 0


def test_where_a_pass_takes_long_some_of_the_examples_do(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y, _ = case("classes")
    x, y = torch.cat([x, x + 1, x - 1, x / 2]), torch.cat([y] * 4)
    whole, few = steps(Call.of(net, x, y)), torch.randperm(len(x), generator=generator(0, 0x6665))[:FEW]
    assert len(x) > FEW and whole["adam"].used == len(x)
    monkeypatch.setattr(step_module, "COSTLY", 0.0)
    monkeypatch.setattr(step_module, "PASS", 0.0)
    found, alone = steps(Call.of(net, x, y)), steps(Call.of(net, x[few], y[few]))
    for name in OPTIMIZERS:
        assert (found[name].used, found[name].examples) == (FEW, whole[name].examples) and found[name].quick
        same = {"examples": found[name].examples, "seconds": found[name].seconds}
        assert dataclasses.replace(alone[name], **same) == found[name]


def test_numbers_that_are_not_finite() -> None:
    """Outputs that overflow are a finding, and the step stays countable."""
    net = plain()
    with torch.no_grad():
        net[2].weight.fill_(3e38)
    found = steps(Call.of(net, torch.randn(20, 6, generator=generator(0)), torch.arange(20) % 4))
    assert not found["adam"].finite and found["adam"].largest == 0 and found["adam"].alignment == 0


def test_rates_are_compared_with_the_same_dropout() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
    found = steps(Call.of(net, torch.randn(40, 6, generator=generator(0)), torch.arange(40) % 4))
    assert found["adam"].largest >= 1e-3 and found["sgd"].largest >= 0.1


class Writes(nn.Module):
    """Clips its weights in forward, counts its calls, draws from every global stream."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head, self.calls = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.inner.weight.data.clamp_(-0.1, 0.1)
        noise = float(np.random.rand() + random.random() + torch.rand(1))  # noqa: NPY002
        return self.head(torch.relu(self.norm(self.inner(x)))) + 1e-9 * noise


def test_the_model_and_the_random_states_are_as_they_were() -> None:
    torch.manual_seed(0)
    net = Writes().eval()
    net.head.weight.grad = given = torch.ones(4, 8)
    net.head.bias.requires_grad_(False)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002 - beartype draws from python's
    steps(Call.of(net, torch.randn(20, 6, generator=generator(0)), torch.arange(20) % 4))
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert net.head.weight.grad is given and bool((given == 1).all()) and net.inner.weight.grad is None
    assert not net.training and net.calls == 0 and not net.head.bias.requires_grad and net.inner.weight.requires_grad
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_nothing_to_train_and_no_gradient_are_refused() -> None:
    x, y = torch.randn(20, 6, generator=generator(0)), torch.arange(20) % 4
    with pytest.raises(InputError, match="nothing to train"):
        steps(Call.of(plain().requires_grad_(False), x, y))
    with pytest.raises(InputError, match="has no gradient"):
        steps(Call.of(plain(), x, y, forward=lambda model, batch: model(batch).detach()))
    with pytest.raises(InputError, match=r"fails on an input of shape \(20, 5\)"):
        steps(Call.of(plain(), x[:, :5], y))
