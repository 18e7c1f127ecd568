"""What ``epoch0 prune`` says between its rounds: the verdict of the first step, and progress."""

import io
import re
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.cli._models import _verdict
from epoch0.progress import FractionProgress


def judged(net: nn.Module, x: torch.Tensor, y: torch.Tensor, batch_norm: str = "train") -> str:
    return _verdict(net, SimpleNamespace(x=x, targets=y), batch_norm, 3)  # type: ignore[arg-type]


def pooled() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )


@pytest.mark.parametrize("batch_norm", ["train", "eval"])
def test_the_verdict_is_the_checkup_s(batch_norm: str) -> None:
    x, y = torch.randn(24, 1, 8, 8, generator=e0.seeds.generator(1)), torch.arange(24) % 3
    net = pooled().train()
    before, state = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    settings = {"trial": False, "remedies": False, "directions": 2, "batch_norm": batch_norm, "seed": 3}
    assert judged(net, x, y, batch_norm) == e0.checkup(net, x, y, **settings).verdict
    assert net.training and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_what_pruning_has_cut_off_is_told() -> None:
    net, x, y = pooled(), torch.randn(24, 1, 8, 8, generator=e0.seeds.generator(1)), torch.arange(24) % 3
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    net.append(nn.ReLU())
    nn.init.constant_(net[5].bias, -1)
    assert judged(net, x, y).startswith("Cannot train: no weight gets a gradient")


def test_what_cannot_be_judged_says_why() -> None:
    assert judged(pooled(), torch.randn(4, 2, 8, 8), torch.arange(4) % 3).startswith(
        "cannot be assessed: the model fails"
    )


def test_a_log_gets_lines_while_a_stage_is_silent() -> None:
    log = io.StringIO()
    with FractionProgress("prune", log, every=0.05) as shown:
        shown(0.0, "scoring by snip")
        _until(log, "scoring by snip, 0 s so far")
        shown(0.75, "assessing, round 3 of 6")
        _until(log, "75 % done, assessing, round 3 of 6, about 0 s left, 0 s so far")
    said = log.getvalue()
    assert re.match(r"prune: 0 % done, scoring by snip, \d+ s so far\n", said)
    time.sleep(0.12)
    assert log.getvalue() == said  # nothing after the end


def test_what_is_quick_says_nothing() -> None:
    log = io.StringIO()
    with FractionProgress("prune", log) as shown:
        shown(0.0, "assessing")
    assert log.getvalue() == ""


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    with FractionProgress("prune", screen) as shown:
        shown(0.0, "scoring by synflow")
        shown(0.25, "round 26 of 100")
    assert "round 26 of 100" in screen.getvalue() or "prune" in screen.getvalue()


def test_rounds_tell_where_they_are() -> None:
    net, x = e0.networks.mlp([6, 8, 3], seed=0), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    batch, told = [(x, torch.tensor([0, 1, 2, 0, 1]))], list[tuple[float, str]]()

    def tell(share: float, what: str) -> None:
        told.append((share, what))

    expected = [(0.0, "round 1 of 4"), (0.25, "round 2 of 4"), (0.5, "round 3 of 4"), (0.75, "round 4 of 4")]
    e0.prune.force(net, batch, 0.5, steps=4, progress=tell)
    assert told == expected
    told.clear()
    e0.prune.iterate(net, lambda m: e0.prune.snip(m, batch), 0.5, steps=4, progress=tell)
    assert told == expected
    told.clear()
    import functools

    e0.prune.iterate(net, functools.partial(e0.prune.synflow, x=(6,)), 0.5, steps=4, progress=tell)
    assert told == expected


def _until(log: io.StringIO, text: str) -> None:
    for _ in range(400):
        if text in log.getvalue():
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} was not told: {log.getvalue()!r}")
