"""Models whose batch is more than one tensor, or that return more than one: what the output depends on is set."""

import pytest
import torch
from torch import Tensor, nn

import epoch0 as e0


class Heads(nn.Module):
    """Two outputs; the first is the one that is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.digit, self.sum = nn.Linear(20, 64), nn.Linear(64, 10), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x).relu()
        return self.digit(h), self.sum(h)


class Timed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places, self.body, self.out = nn.Embedding(100, 20), nn.Linear(40, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(torch.cat([x, self.places(t)], 1)).relu())
        return out


@pytest.mark.parametrize("method", ["theory", "measured"])
def test_a_second_head_stays_as_it_is(method: str) -> None:
    torch.manual_seed(0)
    model = Heads()
    before = model.sum.weight.detach().clone()
    made = e0.initialize(model, x=torch.randn(100, 20), method=method)
    assert made.untouched == {"sum.weight": "the first output does not depend on it"}
    assert [row["name"] for row in made.rows()] == ["body.weight", "digit.weight"]
    assert torch.equal(model.sum.weight, before)


def test_more_examples_than_a_check_takes() -> None:
    torch.manual_seed(0)
    model, batch = Timed(), (torch.randn(200, 20), torch.arange(200) % 100)
    e0.initialize(model, x=batch, method="measured")
    gains = e0.gain(model, batch)
    assert gains.chi_backward[0] == pytest.approx(1.0, abs=0.1)


def test_a_first_layer_of_few_inputs_gets_biases() -> None:
    """Units without biases of one input are odd or linear on each side of zero, and nothing learns an offset."""
    torch.manual_seed(0)
    x = torch.rand(400, 1) * 2 - 1
    y, reached = torch.sin(5 * x + 1), []
    for biases in (None, 0.0):
        net = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        e0.initialize(net, x=x[:100], seed=0, bias_std=biases)
        assert float(net[0].bias.detach().square().mean().sqrt()) == pytest.approx(0.5 if biases is None else 0.0)
        assert torch.equal(net[0].bias[:16], -net[0].bias[16:]) and not net[2].bias.any()  # pairs are opposite units
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        for _ in range(300):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
        reached.append(float(nn.functional.mse_loss(net(x).detach(), y) / y.var()))
    assert reached[0] < 0.1 < reached[1]
    wide = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 1))
    e0.initialize(wide, x=torch.randn(50, 40))
    assert not wide[0].bias.any()


@pytest.mark.parametrize(("act", "rate"), [(nn.LeakyReLU, 1e-3), (nn.Tanh, 3e-3)])
def test_how_far_inputs_are_from_zero_is_learned_from_few_of_them(act: type[nn.Module], rate: float) -> None:
    """Three rings in eight dimensions: networks that are homogeneous or odd make little of them."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 8, generator=draw)
    y = torch.bucketize(x.norm(dim=1), x.norm(dim=1).quantile(torch.tensor([1 / 3, 2 / 3])))
    right = []
    for biases in (None, 0.0):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(8, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 3))
        e0.initialize(net, x=x[:100], seed=0, bias_std=biases)
        optimizer = torch.optim.Adam(net.parameters(), rate)
        for _ in range(200):
            rows = torch.randint(2000, (64,), generator=draw)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
        right.append(float((net(x).argmax(1) == y).double().mean()))
    assert right[0] > right[1] + 0.05, right


class Wave(nn.Module):
    def __init__(self, inputs: int, k: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 32)
        nn.init.uniform_(self.linear.weight, -k, k)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(30 * self.linear(x))


def test_the_frequencies_of_a_siren_stay() -> None:
    net = nn.Sequential(Wave(2, 0.5), Wave(32, 0.1), nn.Linear(32, 1))
    before = [layer.linear.weight.detach().clone() for layer in net[:2]]
    made = e0.initialize(net, x=torch.rand(100, 2) * 2 - 1)
    assert torch.equal(net[0].linear.weight, before[0]) and not torch.equal(net[1].linear.weight, before[1])
    assert made.layers[0].status == "kept: it draws the frequencies of the sine behind it"
