"""The training loop against a plain torch loop, against its own interruptions, and against bad checkpoints."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.seeds import generator
from epoch0.train.evaluation import Accuracy, Every
from epoch0.train.loop import ORDER, train


def small_net(dropout: float = 0.0, norm: bool = False, seed: int = 0) -> nn.Sequential:
    """Five inputs, three classes, optionally with dropout and batch norm; its parameters are a function of the seed."""
    layers: list[nn.Module] = [nn.Linear(5, 8)]
    if norm:
        layers.append(nn.BatchNorm1d(8))
    layers += [nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3)]
    net = nn.Sequential(*layers)
    source = generator(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=source) / 2)
    return net


def toy_data(examples: int = 37) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian inputs (examples, 5) with a learnable class each."""
    x = torch.randn(examples, 5, generator=generator(5))
    return x, x[:, :3].argmax(1)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Bit equality of all parameters and buffers."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("norm", [False, True])
def test_equals_a_plain_loop_to_the_bit(name: str, norm: bool) -> None:
    x, y = toy_data()
    ours, plain = small_net(norm=norm), small_net(norm=norm)
    nesterov = partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-3, nesterov=True)
    how = nesterov if name == "sgd" else partial(torch.optim.Adam, weight_decay=1e-3)
    train(ours, (x, y), epochs=4, batch_size=10, optimizer=how, learning_rate=0.05, seed=3, evaluate=Accuracy(x, y))

    if name == "sgd":
        theirs = torch.optim.SGD(plain.parameters(), 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
    else:
        theirs = torch.optim.Adam(plain.parameters(), 0.05, weight_decay=1e-3)
    for epoch in range(4):
        for chosen in torch.randperm(37, generator=generator(3, ORDER, epoch)).split(10):
            theirs.zero_grad()
            F.cross_entropy(plain(x[chosen]), y[chosen]).backward()
            theirs.step()
    assert same(ours, plain)


@settings(max_examples=12)
@given(
    interrupted_at=st.integers(1, 11),
    every=st.integers(1, 5),
    dropout=st.sampled_from([0.0, 0.4]),
    how=st.sampled_from([torch.optim.SGD, partial(torch.optim.SGD, momentum=0.9), torch.optim.Adam]),
)
def test_an_interruption_changes_no_bit(
    tmp_path_factory: pytest.TempPathFactory, interrupted_at: int, every: int, dropout: float, how: object
) -> None:
    data = toy_data()
    options = {"steps": 12, "batch_size": 10, "optimizer": how, "seed": 1, "checkpoint_every": every}
    options |= {"evaluate": Accuracy(*data), "evaluate_every": 3}
    whole = train(small_net(dropout, norm=True), data, **options)

    class Killed(Exception):
        pass

    def kill(step: int, model: nn.Module, metrics: object) -> None:
        if step == interrupted_at:
            raise Killed

    path = tmp_path_factory.mktemp("run") / "checkpoint.safetensors"
    with pytest.raises(Killed):
        train(small_net(dropout, norm=True), data, **options, checkpoint=path, callbacks=[Every(1, kill)])
    # another initial network: everything has to come from the checkpoint; a kill before the first one starts anew
    seed = 7 if interrupted_at > every else 0
    again = train(small_net(dropout, norm=True, seed=seed), data, **options, checkpoint=path)
    assert same(whole.model, again.model)
    # the killed run made a row of every step; those of the others' evaluations have to agree
    ours = {row["step"]: row.get("accuracy") for row in again.history if "accuracy" in row}
    assert ours == {row["step"]: row["accuracy"] for row in whole.history}


def test_a_resumed_history_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    data = toy_data()
    options = {"steps": 20, "batch_size": 10, "evaluate": Accuracy(*data), "evaluate_every": 6, "checkpoint_every": 4}
    whole = train(small_net(), data, **options)
    with pytest.raises(KeyboardInterrupt):  # not through the signal: raised inside, the last written checkpoint counts
        train(small_net(), data, **options, checkpoint=tmp_path / "c", loss=interrupting_loss(15))
    again = train(small_net(seed=9), data, **options, checkpoint=tmp_path / "c")
    assert again.history == whole.history
    assert again.steps == whole.steps == 20
    # asking once more does nothing and says the same
    third = train(small_net(seed=4), data, **options, checkpoint=tmp_path / "c")
    assert third.history == whole.history and same(third.model, whole.model)


def interrupting_loss(calls: int):
    """Cross-entropy that raises at the given call."""
    count = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        if count == calls:
            raise KeyboardInterrupt
        return F.cross_entropy(outputs, targets)

    return loss


def test_a_diverging_run_stops_and_says_so(tmp_path: Path) -> None:
    x, y = toy_data()
    with torch.no_grad():
        done = train(small_net(), (x, y), steps=0)
    assert done.steps == 0 and not done.diverged
    done = train(small_net(), (x * 1e30, y), steps=50, batch_size=10, learning_rate=1e30, checkpoint=tmp_path / "c")
    assert done.diverged and done.stopped_because == "diverged"
    assert done.steps < 50
    assert "diverged" in str(done)
    assert list(done.to_pandas()["status"])[-1] == "stopped: diverged"
    again = train(small_net(), (x * 1e30, y), steps=50, batch_size=10, learning_rate=1e30, checkpoint=tmp_path / "c")
    assert again.diverged and again.steps == done.steps


def test_a_last_step_that_breaks_the_parameters_is_seen() -> None:
    x, y = toy_data()
    done = train(small_net(), (x, y), steps=1, learning_rate=1e38, loss=lambda o, t: F.cross_entropy(o, t) * 1e10)
    assert done.diverged and done.steps == 1


def test_until_stops_at_an_evaluation() -> None:
    data = toy_data()
    seen = []

    def until(row: dict) -> bool:
        seen.append(row["step"])
        return row["accuracy"] > 0.9

    done = train(small_net(), data, epochs=500, batch_size=10, evaluate=Accuracy(*data), evaluate_every=7, until=until)
    assert done.stopped_because == "until"
    assert done.steps % 7 == 0 and seen == list(range(0, done.steps + 1, 7))
    assert done.history[-1]["accuracy"] > 0.9 >= done.history[-2]["accuracy"]
    assert done.best("accuracy") == done.history[-1]


def test_order_of_events() -> None:
    """Evaluation, then callbacks in the given order with the row so far, then the predicate; eval mode inside."""
    events: list[tuple] = []
    net = small_net(dropout=0.5)

    def evaluate(model: nn.Module) -> dict:
        events.append(("evaluate", model.training))
        return {"score": 1.0}

    def first(step: int, model: nn.Module, metrics) -> dict:
        events.append(("first", step, dict(metrics).get("score"), model.training))
        return {"extra": torch.arange(2)}

    def second(step: int, model: nn.Module, metrics) -> None:
        events.append(("second", step, metrics.get("extra")))

    def until(row: dict) -> bool:
        events.append(("until", row["extra"]))
        return False

    net[0].eval()
    done = train(
        net, toy_data(), steps=5, evaluate=evaluate, evaluate_every=4, callbacks=[first, Every(3, second)], until=until
    )
    score = ("evaluate", False)
    assert events == [
        score, ("first", 0, 1.0, False), ("second", 0, [0, 1]), ("until", [0, 1]),
        ("second", 3, None),
        score, ("first", 4, 1.0, False), ("until", [0, 1]),
        score, ("first", 5, 1.0, False), ("second", 5, [0, 1]), ("until", [0, 1]),
    ]  # fmt: skip
    assert [row["step"] for row in done.history] == [0, 3, 4, 5]
    assert done.history[0]["loss"] is None and "score" not in done.history[1]
    assert not net[0].training and net[1].training, "every module is left in the mode in which it came"
    assert all(parameter.grad is None for parameter in net.parameters())


def test_dropout_is_seeded_and_the_global_generator_untouched() -> None:
    data, net = toy_data(), small_net(0.5)
    before = torch.get_rng_state()
    one = train(net, data, steps=10, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    two = train(small_net(0.5), data, steps=10, seed=1, callbacks=[Every(1, lambda *_: {"noise": torch.rand(1)})])
    three = train(small_net(0.5), data, steps=10, seed=2)
    assert same(one.model, two.model) and not same(one.model, three.model)
    torch.set_rng_state(before)


@pytest.mark.parametrize("keep", [0, 4, 30, 0.3, 0.9, -1])
def test_a_cut_checkpoint_is_refused_by_name(tmp_path: Path, keep: float) -> None:
    data, path = toy_data(), tmp_path / "cut.safetensors"
    train(small_net(), data, steps=5, optimizer="adam", checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    net = small_net(seed=3)
    with pytest.raises(InputError, match=r"cut\.safetensors.*cut short, damaged or in another format"):
        train(net, data, steps=10, optimizer="adam", checkpoint=path)
    assert same(net, small_net(seed=3))


def test_an_altered_checkpoint_is_refused_with_its_checksum(tmp_path: Path) -> None:
    data, path = toy_data(), tmp_path / "altered.safetensors"
    train(small_net(), data, steps=5, checkpoint=path)
    content = bytearray(path.read_bytes())
    for place in (len(content) - 5, content.index(b"losses") + 11):  # a weight; a number of the header
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InputError, match=r"altered\.safetensors.*checksum"):
            train(small_net(), data, steps=10, checkpoint=path)


def test_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    data, path = toy_data(), tmp_path / "c.safetensors"
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(InputError, match=r"holds no checkpoint: .*train writes those.*start anew"):
        train(small_net(), data, steps=5, checkpoint=path)
    path.unlink()
    train(small_net(), data, steps=5, checkpoint=path)
    wider = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Dropout(0.0), nn.Linear(9, 3))
    with pytest.raises(InputError, match=r"of another model: 0.weight is float32\[8, 5\], the model's float32\[9, 5\]"):
        train(wider, data, steps=5, checkpoint=path)
    with pytest.raises(InputError, match=r"of another model: .*is missing"):
        train(small_net(norm=True), data, steps=5, checkpoint=path)
    with pytest.raises(InputError, match=r"a run with .*learning_rate 0.1 \(now 0.2\).*seed 0 \(now 1\)"):
        train(small_net(), data, steps=5, checkpoint=path, seed=1, learning_rate=0.2)
    with pytest.raises(InputError, match="a run with data "):
        train(small_net(), (data[0] + 1, data[1]), steps=5, checkpoint=path)
    with pytest.raises(InputError, match="already has 5 steps and 4 were asked for"):
        train(small_net(), data, steps=4, checkpoint=path)
    with pytest.raises(InputError, match="is a folder"):
        train(small_net(), data, steps=4, checkpoint=tmp_path)


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, path = toy_data(), tmp_path / "c.safetensors"
    train(small_net(), data, steps=5, checkpoint=path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        InputError, match=r"c\.safetensors.*No space left on device.*make room; the file that was there is intact"
    ):
        train(small_net(), data, steps=10, checkpoint=path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["c.safetensors"]


def test_tied_weights_survive_a_checkpoint(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        net[2].weight = net[0].weight
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator(0)))
        return net

    x, y = toy_data()
    whole = train(tied(), (x[:, :3], y), steps=10)
    train(tied(), (x[:, :3], y), steps=5, checkpoint=tmp_path / "c")
    assert same(whole.model, train(tied(), (x[:, :3], y), steps=10, checkpoint=tmp_path / "c").model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "steps is None and epochs is None; give exactly one"),
        ({"steps": 1, "epochs": 1}, "give exactly one"),
        ({"steps": -1}, "steps=-1"),
        ({"steps": 1, "batch_size": 0}, "batch_size=0"),
        ({"steps": 1, "evaluate_every": 0}, "evaluate_every=0"),
        ({"steps": 1, "learning_rate": float("nan")}, "learning_rate=nan"),
        ({"steps": 1, "optimizer": "adan"}, "Did you mean 'adam'"),
        ({"steps": 1, "loss": lambda o, t: o.sum(1)}, "must be one number"),
        ({"steps": 1, "evaluate": lambda model: {"bad": object()}}, "the metric 'bad' is an object"),
    ],
)
def test_arguments_that_cannot_work(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(small_net(), toy_data(), **options)


def test_data_that_cannot_be_trained_on() -> None:
    x, y = toy_data()
    with pytest.raises(InputError, match="37 inputs and 36 targets"):
        train(small_net(), (x, y[1:]), steps=1)
    with pytest.raises(InputError, match="the training inputs holds NaN"):
        train(small_net(), (x.index_fill(0, torch.tensor([2]), 0.0) / x.where(x != x[2, 0], 0), y), steps=1)
    with pytest.raises(InputError, match="nothing to train"):
        train(nn.Identity(), (x, y), steps=1)
    with pytest.raises(InputError, match="steps=0"):
        Every(0, lambda *_: None)
    with pytest.raises(InputError, match=r"no row .* 'acuracy'; its columns are accuracy, .*Did you mean 'accuracy'"):
        train(small_net(), (x, y), steps=1, evaluate=Accuracy(x, y)).best("acuracy")


def test_digits_are_learnt() -> None:
    (x, y), held_out = [
        (torch.from_numpy(part.inputs()), torch.from_numpy(part.labels))
        for part in (load("digits", "train"), load("digits", "test"))
    ]
    net, test = mlp([64, 32, 10], seed=0), Accuracy(*held_out)
    done = train(net, (x, y), epochs=20, optimizer="adam", learning_rate=0.01, evaluate=test)
    assert done.history[0]["accuracy"] < 0.5 and done.best("accuracy")["accuracy"] > 0.9
    assert len(done.to_pandas()) == len(done.history) == 21


@pytest.mark.parametrize("kind", [KeyError, StopIteration, ValueError])
@pytest.mark.parametrize("place", [1, 2])
def test_an_error_of_the_model_is_one_line_in_any_step(kind: type[Exception], place: int) -> None:
    net, calls = small_net(), list[int]()

    def forward(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == place:
            raise kind("of its own")
        return net(x)

    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x)

    with pytest.raises(InputError, match="of its own"):
        train(Failing(), toy_data(), steps=3)
