"""The verdict alone, as ``epoch0 prune`` asks for it, against that of the whole checkup; and progress."""

import io
import re
import time

import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.cli._stages import Stages
from epoch0.diagnosis.glance import few, glance, multiplications
from epoch0.errors import InputError
from epoch0.tracing.tape import tape


def dense(std: float, activation: str = "tanh", depth: int = 3) -> nn.Module:
    laws = {"weights": e0.Gaussian(std), "biases": e0.Gaussian(0.1)}
    return e0.networks.mlp([20, *[30] * depth, 5], activation, seed=0, **laws)


def dead() -> nn.Module:
    net = dense(1.3, "relu", 3)
    with torch.no_grad():
        net[2].weight.zero_()  # type: ignore[index]
        net[2].bias.fill_(-1.0)  # type: ignore[index]
    return net


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )


@pytest.mark.parametrize(
    ("net", "shape", "batch_norm", "outcome"),
    [
        (dense(1.3), (20,), "train", "trains"), (dense(0.1), (20,), "train", "vanishing"),
        (dense(20.0, "relu"), (20,), "train", "exploding"), (dead(), (20,), "train", "dead"),
        (pooled(), (1, 8, 8), "train", "trains"), (pooled(), (1, 8, 8), "eval", "trains"),
        (e0.networks.residual_chain(3, 8, (20,)), (20,), "train", "trains"),
    ],
)  # fmt: skip
def test_the_verdict_is_the_checkup_s(net: nn.Module, shape: tuple[int, ...], batch_norm: str, outcome: str) -> None:
    x = torch.randn(12, *shape, generator=torch.Generator().manual_seed(1))
    whole = e0.checkup(net, x, batch_norm=batch_norm, directions=3, seed=3)
    seen = glance(net, x, batch_norm=batch_norm, directions=3, seed=3)
    assert seen == whole.reading and seen.outcome == outcome


def test_numbers_that_overflow_are_told() -> None:
    seen = glance(dense(1e30, "relu"), torch.randn(6, 20, generator=torch.Generator().manual_seed(1)))
    assert seen.outcome == "exploding" and "overflow" in seen.sentence


def test_the_model_is_as_it_was() -> None:
    net = pooled().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    glance(net, torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert net.training and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_multiplications_are_counted() -> None:
    net, x = pooled(), torch.zeros(2, 1, 8, 8)
    with tape(net, x) as record:
        assert multiplications(record) == 8 * 8 * 4 * 9 + 64 * 3


def test_few_examples_of_a_large_model_spread_over_the_batch() -> None:
    net, x = pooled(), torch.arange(100.0).reshape(-1, 1, 1, 1).expand(100, 1, 8, 8)
    each = 4 * (8 * 8 * 4 * 9 + 64 * 3)
    assert few(net, x, 1e9)[1] == 8 and few(net, x, 1e9)[0] is x
    part, directions = few(net, x, each * 4 * 25)
    assert directions == 4 and part[:, 0, 0, 0].tolist() == torch.linspace(0, 99, 25).round().tolist()
    assert len(few(net, x, 1.0)[0]) == 16 and len(few(net, x[:3], 1.0)[0]) == 3


def test_a_linear_model_has_no_verdict() -> None:
    with pytest.raises(InputError, match="nonlinear"):
        glance(nn.Linear(3, 2), torch.randn(4, 3))


def test_a_log_gets_lines_while_a_stage_is_silent() -> None:
    log = io.StringIO()
    with Stages("prune", 2, stream=log, every=0.05) as stage:
        stage("scoring by snip")
        _until(log, "scoring by snip (stage 1 of 2)")
        stage("judging")
        stage.within(0.5, "round 3 of 6")
        _until(log, "judging, round 3 of 6 (stage 2 of 2)")
    said = log.getvalue()
    assert re.match(r"prune: scoring by snip \(stage 1 of 2\), \d+ s\n", said)
    time.sleep(0.12)
    assert log.getvalue() == said  # nothing after the end


def test_what_is_quick_says_nothing() -> None:
    log = io.StringIO()
    with Stages("prune", 1, stream=log) as stage:
        stage("judging")
    assert log.getvalue() == ""


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    with Stages("prune", 2, stream=screen) as stage:
        stage("scoring by synflow")
        stage.within(0.25, "round 26 of 100")
    assert "round 26 of 100" in screen.getvalue() or "prune" in screen.getvalue()


def test_rounds_tell_where_they_are() -> None:
    net, x = e0.networks.mlp([6, 8, 3], seed=0), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    batch, told = [(x, torch.tensor([0, 1, 2, 0, 1]))], list[tuple[float, str]]()

    def tell(share: float, what: str) -> None:
        told.append((share, what))

    expected = [(0.0, "round 1 of 4"), (0.25, "round 2 of 4"), (0.5, "round 3 of 4"), (0.75, "round 4 of 4")]
    e0.prune.force(net, None, batch, 0.5, steps=4, progress=tell)
    assert told == expected
    told.clear()
    e0.prune.iterate(net, lambda m: e0.prune.snip(m, None, batch), 0.5, steps=4, progress=tell)
    assert told == expected
    told.clear()
    import functools

    e0.prune.iterate(net, functools.partial(e0.prune.synflow, x=(6,)), 0.5, steps=4, progress=tell)
    assert told == expected


def test_a_convolution_that_is_slow_on_few_examples_is_not_tried_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from epoch0.prune import _to_csr

    raced: list[int] = []

    def race(one: object, other: object, device: object) -> tuple[float, float]:
        raced.append(len(one.args[0]))  # type: ignore[attr-defined]
        return 1.0, 1.6

    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU())
    with torch.no_grad():
        net[0].weight[0] = 0.0
    monkeypatch.setattr(_to_csr, "_race", race)
    x = torch.randn(40, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    row = e0.prune.to_csr(net, x).layers[0]
    assert raced == [8, 8] and row.input_shape == (8, 2, 6, 6) and not row.sparse
    raced.clear()
    monkeypatch.setattr(_to_csr, "SLOW", 2.0)
    row = e0.prune.to_csr(net, x, only_faster=True).layers[0]
    assert raced == [8, 8, 40, 40] and row.input_shape == (40, 2, 6, 6)


def _until(log: io.StringIO, text: str) -> None:
    for _ in range(400):
        if text in log.getvalue():
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} was not told: {log.getvalue()!r}")


