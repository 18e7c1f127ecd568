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
    assert made.untouched == {"sum.weight": "the output does not depend on it"}
    assert [row["name"] for row in made.rows()] == ["body.weight", "digit.weight"]
    assert torch.equal(model.sum.weight, before)


def test_more_examples_than_a_check_takes() -> None:
    torch.manual_seed(0)
    model, batch = Timed(), (torch.randn(200, 20), torch.arange(200) % 100)
    e0.initialize(model, x=batch, method="measured")
    gains = e0.gain(model, batch)
    assert gains.chi_backward[0] == pytest.approx(1.0, abs=0.1)
