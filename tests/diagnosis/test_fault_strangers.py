"""Faults that strangers' programs had and that were missed at first, each beside its sound form."""

import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from epoch0.diagnosis.faults import find_faults
from fault_programs import X, Y, adam, mlp


def found(model: nn.Module, x: Tensor, y: Tensor, loss: Any = F.cross_entropy, rate: float = 1e-3, **more: Any) -> Any:
    draw = torch.Generator().manual_seed(0)
    given = {"data": DataLoader(TensorDataset(x, y), 32, shuffle=True, generator=draw), "seconds": 0, **more}
    return find_faults(model, x[:100], y[:100], loss=loss, optimizer=adam(model, rate), **given)


def kinds(looked: Any) -> list[str]:
    return [fault.kind for fault in looked.faults]


class Cells(nn.Module):
    """A recurrent cell whose state is cut off at each step, or not."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut, self.cell, self.end = cut, nn.GRUCell(4, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 32)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state.detach() if self.cut else state)
        out: Tensor = self.end(state)
        return out


@pytest.mark.parametrize("cut", [True, False])
def test_a_state_that_is_detached_is_kept_on_a_copy(cut: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(800, 6, 4, generator=draw)
    y = (x[:, 0, 0] * x[:, 1, 0] > 0).long()  # what only the first two steps tell, together
    torch.manual_seed(0)
    model = Cells(cut)
    looked = found(model, x, y, rate=5e-3, seconds=60)
    assert kinds(looked)[:1] == ["gradient flow"] * cut, str(looked)
    assert "forward" not in vars(model)
    if cut:
        assert looked.faults[0].evidence == "mended on a copy"
        assert "Leave detach() out" in looked.faults[0].fix and "held-out" in looked.faults[0].fix


@pytest.mark.parametrize("large", [True, False])
def test_weights_that_are_too_large_stand_where_others_learn_much_sooner(large: bool) -> None:
    """Eight tanh layers of N(0, 1) come to know half of what the same layers know at once, started well."""
    draw = torch.Generator().manual_seed(0)
    centres, y = 1.5 * torch.randn(5, 20, generator=draw), torch.randint(5, (800,), generator=draw)
    torch.manual_seed(0)
    layers = [part for a, b in pairwise([20, *[64] * 8]) for part in (nn.Linear(a, b), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(64, 5))
    for part in model if large else ():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight)
    looked = found(model, centres[y] + torch.randn(800, 20, generator=draw), y, seconds=60)
    assert kinds(looked) == ["initialization"] * large, str(looked)


@pytest.mark.parametrize("distance", [nn.MSELoss(), F.smooth_l1_loss])
def test_several_outputs_against_one_target(distance: Any) -> None:
    """As of Q-learning without the gather: torch only warns."""
    value = X[:, 10:20].sum(1, keepdim=True)
    with warnings.catch_warnings(action="ignore"):
        looked = found(mlp(ends=4), X, value, distance)
    assert (
        kinds(looked)[0] == "shapes"
        and "4 outputs of an example, (n, 4), with its one target" in looked.faults[0].message
    )
    assert not kinds(found(mlp(ends=1), X, value, distance))
    with warnings.catch_warnings(action="ignore"):
        classes = found(mlp(), X, Y[:, None].float(), distance)
    assert kinds(classes)[:2] == ["labels", "shapes"] and "one-hot" in classes.faults[0].fix


@pytest.mark.parametrize("turned", [True, False])
def test_a_masked_model_is_asked_for_what_is_masked(turned: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    words = (torch.randint(4, (200, 1), generator=draw) + torch.arange(12)) % 16 + 1
    hidden = torch.rand(words.shape, generator=draw) < 0.2
    x, y = words.masked_fill(hidden, 0), words.masked_fill(hidden if turned else ~hidden, -100)
    model = nn.Sequential(nn.Embedding(17, 16), nn.Linear(16, 17))
    looked = found(model, x, y, lambda outputs, targets: F.cross_entropy(outputs.transpose(1, 2), targets))
    assert kinds(looked) == ["labels"] * turned, str(looked)
    padded = torch.where(torch.arange(12) < 8, words, 0)  # a copy task: what is left out is padding
    copied = found(
        model, padded, padded.masked_fill(padded == 0, -100), lambda o, t: F.cross_entropy(o.movedim(2, 1), t)
    )
    assert not kinds(copied)


def test_what_is_wrong_with_a_step_stands_beside_what_mended_it() -> None:
    def clipped(model: nn.Module, optimizer: Any, loss: Any, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
        optimizer.step()

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = find_faults(
        model, X[:100], Y[:100], loss=F.cross_entropy, optimizer=optimizer, step=clipped, data=(X, Y)
    ).faults[0]
    assert first.kind == "update" and "shortens the gradient to 0.0001" in first.message
    assert first.fix.startswith("Clip gradients to a norm of about 1, not to nothing. Or: Write the usual loop")
