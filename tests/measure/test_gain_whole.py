"""What a whole network does, beside the Jacobian of all of it; and what a step moves."""

import re

import pytest
import torch
from torch import Tensor, nn

import epoch0 as e0


class Block(nn.Module):
    """relu(x + 0): it halves fresh tangents, and leaves those alone that came through a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(20, 20)
        nn.init.zeros_(self.inside.weight)
        nn.init.zeros_(self.inside.bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.inside(x))


def test_the_last_line_is_that_of_the_jacobian() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), *[Block() for _ in range(8)]).double()
    x = torch.randn(16, 20, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(net, x).reshape(320, 320)
    true = float((jacobian.square().sum() / 320).sqrt())
    measured = e0.gain(net, x, directions=200)
    tangent, gradient = map(float, re.findall(r"times ([\d.e-]+)", str(measured).splitlines()[-1]))
    # 200 directions of 16 examples: the standard error is below 1 %
    assert tangent == pytest.approx(true, rel=0.04) and gradient == pytest.approx(true, rel=0.04)
    assert measured.chi_forward.prod() < true**4  # what independent layers would do


@pytest.mark.parametrize("std", [0.0, 1e-6])
def test_the_size_of_a_step_is_that_of_the_weights(std: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    with torch.no_grad():
        for layer in (net[0], net[2]):
            layer.bias.normal_().mul_(std)
    report = e0.checkup(net, torch.randn(64, 20), torch.randint(5, (64,)), trial=False)
    rate = report.recipes["adam"].learning_rate
    for layer, row in zip((net[0], net[2]), report.layers, strict=True):
        size = float(layer.weight.detach().square().mean().sqrt())
        assert row.update == pytest.approx(rate / size, rel=0.05)  # Adam moves each weight by its rate


def test_gradients_start_from_the_loss_that_was_made_up() -> None:
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    notes = " ".join(e0.checkup(net, torch.randn(64, 20), trial=False).notes)
    assert "No targets were given" in notes and "gradient norms start from the loss" in notes


def test_as_many_classes_as_pixels_in_a_row() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 8, 1), nn.ReLU(), nn.Conv2d(8, 7, 1))
    x, y = torch.randn(16, 2, 7, 7), torch.randint(7, (16, 7, 7))
    true = float(nn.functional.cross_entropy(net(x), y).detach())
    assert e0.gain(net, x, y).loss == pytest.approx(true, rel=1e-5)
    text = nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7))  # (examples, length, classes)
    tokens = torch.randint(7, (16, 7))
    true = float(nn.functional.cross_entropy(text(tokens).flatten(0, 1), tokens.flatten()).detach())
    assert e0.gain(text, tokens, tokens).loss == pytest.approx(true, rel=1e-5)


def test_what_only_a_second_input_reaches_is_said() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(6, 8), nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            return self.out(torch.relu(self.a(x) + self.b(z)))

    batch, y = (torch.randn(32, 6), torch.randn(32, 4)), torch.randint(3, (32,))
    notes = e0.checkup(Two(), batch, y, trial=False).notes
    assert any(note.endswith("what only others reach is in no row: b.") for note in notes)
