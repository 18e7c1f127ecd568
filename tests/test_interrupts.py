"""Ctrl-C at drawn instants leaves nothing behind, and threads wait for one another."""

import collections
import copy
import functools
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

import epoch0 as e0
from calls import CALLS, METHODS, public
from epoch0.tracing.guard import draw_anew, noise_kept
from photograph import Photograph

# Python drops an exception that a handler raises within a destructor or a callback of the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

X, Y = torch.randn(64, 20, generator=torch.Generator().manual_seed(1)), torch.arange(64) % 5


def net(seed: int = 0, dropout: float = 0.3) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5)
        )


def masks(model: nn.Module) -> e0.prune.Masks:
    return e0.prune.keep(e0.prune.magnitude(model), sparsity=0.5)


READS: dict[str, Callable[[nn.Module], Any]] = {
    "checkup": lambda model: e0.checkup(model, X, Y, trial=False),
    "gain": lambda model: e0.gain(model, X),
    "snip": lambda model: e0.prune.snip(model, (X, Y)),
}
WRITES: dict[str, Callable[[nn.Module], Any]] = {
    "initialize": lambda model: e0.initialize(model, x=X, method="measured"),
    "apply": lambda model: e0.prune.apply(model, masks(model)),
}


@pytest.fixture
def interrupt() -> Iterator[Callable[[Callable[[], Any], float], str]]:
    """Runs a call and presses Ctrl-C after some seconds; "cut" if it ended the call, "after" if it had to wait."""
    listens, alarm = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, press)

    def run(call: Callable[[], Any], after: float) -> str:
        pressed.clear()
        ended = False
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            call()
            ended = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            for _ in range(500 if pressed else 0):  # it came where it had to wait; a signal waits for a sleep's end
                time.sleep(0.01)
        except KeyboardInterrupt:
            return "after" if ended else "cut"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return ""

    yield run
    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGINT, listens)


def instants(times: int, call: Callable[[], Any]) -> Iterator[tuple[Callable[[str, float], None], float]]:
    """Drawn instants of a call, until half of so many have cut it short; what is yielded is told how each went.

    A call that ended first says how long it takes at most, so that a measurement that a busy machine made too long is
    corrected.
    """
    draw, cuts, lasts, begun = random.Random(times), 0, 0.0, time.perf_counter()
    call()
    lasts = time.perf_counter() - begun

    def told(how: str, seconds: float) -> None:
        nonlocal cuts, lasts
        cuts += how == "cut"
        lasts = lasts if how == "cut" else min(lasts, seconds)

    for number in range(4 * times):
        if number >= times and cuts >= times // 2:
            break
        yield told, max(1e-5, draw.uniform(0, lasts))
    assert cuts >= times // 2


def clean(model: nn.Module, photograph: Photograph, grad: bool) -> None:
    photograph.check()
    assert torch.is_grad_enabled() is grad and not torch.is_inference_mode_enabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.sample(1)
@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READS)
def test_ctrl_c_at_any_instant_leaves_the_model_as_it_was(name: str, times: int, interrupt: Any) -> None:
    model = net()
    READS[name](model)
    for told, after in instants(times, lambda: READS[name](model)):
        photograph, start = Photograph(model), time.perf_counter()
        told(interrupt(lambda: READS[name](model), after), time.perf_counter() - start)
        clean(model, photograph, True)


@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_ctrl_c_while_training_leaves_modes_flags_and_streams(times: int, interrupt: Any) -> None:
    """At a line that is drawn, most of them where something is set up or put back."""
    draw = random.Random(times)

    def trained(model: nn.Module, at: int | None = None) -> int:
        seen = 0

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal seen
            seen += 1
            if seen == at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
            return trace if "epoch0" in frame.f_code.co_filename or "optim" in frame.f_code.co_filename else None

        sys.settrace(trace)
        try:
            e0.train_one_layer(model, "3", (X, Y), steps=2, batch_size=32)
        finally:
            sys.settrace(None)
        return seen

    trained(net())  # the first call imports
    lines, cuts = trained(net()), times
    for number in range(times):
        model, low = net(), (0.0, 0.9, 0.0)[number % 3]
        model[0].eval()
        model[0].weight.requires_grad_(False)
        modes, flags = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
        others, streams = {n: v.clone() for n, v in model.state_dict().items() if n[0] != "3"}, torch.get_rng_state()
        with suppress(KeyboardInterrupt):
            trained(model, 1 + int(lines * draw.uniform(low, low + 0.1 if number % 3 else 1.0)))
            cuts -= 1
            time.sleep(1.0)  # it came where it had to wait
        assert modes == [m.training for m in model.modules()] and flags == [p.requires_grad for p in model.parameters()]
        assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in others.items())
        assert torch.is_grad_enabled() and torch.equal(streams, torch.get_rng_state())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert cuts >= times // 3  # in its beginning nearly all do


def photo(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WRITES)
def test_ctrl_c_at_any_instant_leaves_all_or_nothing_written(name: str, times: int, interrupt: Any) -> None:
    before, done = photo(net()), net()
    WRITES[name](done)
    for told, after in instants(times, lambda: WRITES[name](net())):
        model, start = net(), time.perf_counter()
        told(interrupt(lambda model=model: WRITES[name](model), after), time.perf_counter() - start)
        left = photo(model)
        same = [
            list(left) == list(wanted) and all(torch.equal(left[k], wanted[k]) for k in left)
            for wanted in (before, photo(done))
        ]
        assert any(same)
        assert model.training and torch.is_grad_enabled() and all(p.requires_grad for p in model.parameters())


def test_a_ctrl_c_that_has_to_wait_comes_through_afterwards(interrupt: Any) -> None:
    class Slow:
        left = False

        def __enter__(self) -> None:
            time.sleep(0.1)

        def __exit__(self, *_: object) -> None:
            self.left = True

    slow = Slow()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Tensor) -> Tensor:
            with slow:
                return self.inner(x)

    start = time.perf_counter()
    assert interrupt(lambda: e0.gain(Model(), X), 0.03) == "cut"
    assert slow.left and time.perf_counter() - start < 4.0


#: what a call may leave behind of its model besides what it found: all of what it writes, or what was trained so far
WRITE = ("initialize", "prune.apply", "prune.bake", "prune.rescale", "replace_batch_norm")
TRAIN = ("train_one_layer", "train.train")


def touching() -> dict[str, Callable[[], tuple[Callable[[], Any], list[nn.Module]]]]:
    """Every public call that is given a model, made anew, and the models it is given."""

    def of(name: str, make: Callable[[], dict[str, Any]]) -> tuple[Callable[[], Any], list[nn.Module]]:
        torch.manual_seed(0)
        named = make()
        method = name.rpartition(".")[2]
        call = getattr(METHODS[name][0](), method) if name in METHODS else functions[name]
        return functools.partial(call, **named), [value for value in named.values() if isinstance(value, nn.Module)]

    functions = dict(public())
    makes = {**CALLS, **{name: make for name, (_, make) in METHODS.items()}}
    found = {name: functools.partial(of, name, make) for name, make in makes.items()}
    return {name: each for name, each in found.items() if each()[1]}


def left(model: nn.Module) -> tuple[object, ...]:
    """Modules with modes and hooks, and all tensors to the bit."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return (
        [
            (name, type(m).__name__, m.training, [*m._forward_hooks], [*m._forward_pre_hooks])
            for name, m in model.named_modules()
        ],
        [(name, t.requires_grad, t.numpy(force=True).tobytes()) for name, t in named],
    )


@pytest.mark.parametrize("wanted", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_call_that_ctrl_c_cuts_leaves_nothing(
    wanted: int, interrupt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instants are drawn over the whole of the time that the call takes; only those that ended it are counted."""
    monkeypatch.chdir(tmp_path)
    draw, calls, done, lasts = random.Random(wanted), touching(), dict[str, object](), dict[str, float]()
    for name, make in calls.items():
        for _ in range(2):  # the first imports
            call, models = make()
            start = time.perf_counter()
            call()
            lasts[name] = time.perf_counter() - start
        done[name] = [left(model) for model in models]
    cuts, waited, names = collections.Counter[str](), 0, sorted(calls)
    while cuts.total() < wanted:
        for name in draw.sample(names, len(names)) if wanted > len(names) else draw.choices(names):
            call, models = calls[name]()
            before, photographs = [left(model) for model in models], [Photograph(model) for model in models]
            how = interrupt(call, max(1e-5, draw.uniform(0, lasts[name])))
            cuts[name] += how == "cut"
            waited += how == "after"
            if name in TRAIN:
                assert [part for part, _ in map(left, models)] == [part for part, _ in before], name
                assert torch.equal(photographs[0].torch, torch.get_rng_state()), name
            elif name in WRITE:
                assert [left(model) for model in models] in (before, done[name]), name
                assert torch.equal(photographs[0].torch, torch.get_rng_state()), name
            else:
                for photograph in photographs:
                    photograph.check()
            assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled(), name
            assert not torch.overrides._get_current_function_mode_stack() and forward_ad._current_level == -1, name
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, name
    print(f"{cuts.total()} calls were cut, {waited} were let come to their end: {dict(cuts)}")
    assert waited + cuts.total() < 10 * wanted


def report(model: nn.Module) -> str:
    found = e0.checkup(model, X, Y, trial=False).to_dict()
    found.pop("seconds", None)
    return json.dumps(found, default=str)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("shared", [False, True])
def test_two_threads_get_two_right_reports(shared: bool, dropout: float) -> None:
    models = [net(0, dropout)] * 2 if shared else [net(0, dropout), net(1, dropout)]
    wanted, before = [report(model) for model in models], [copy.deepcopy(model.state_dict()) for model in models]
    found = ["", ""]

    def run(place: int) -> None:
        found[place] = report(models[place])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted
    for model, old in zip(models, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), old.values(), strict=True))
        assert all(p.requires_grad for p in model.parameters())


@contextmanager
def another_thread_draws() -> Iterator[None]:
    """Another thread draws from torch's global stream, and must draw what it draws alone."""
    torch.manual_seed(7)
    wanted, found, going = torch.rand(9999, dtype=torch.float64), list[Tensor](), [True]
    torch.manual_seed(7)

    def draw() -> None:
        while going:
            found.append(torch.rand((), dtype=torch.float64))
            time.sleep(0.002)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        going.clear()
        thread.join()
    assert torch.equal(torch.stack(found), wanted[: len(found)])


def test_what_another_thread_draws_is_not_touched_and_touches_nothing() -> None:
    model = net(0, 0.3)

    def results() -> tuple[str, Tensor]:
        copied = copy.deepcopy(model)
        e0.train.train(copied, (X, Y), steps=20, batch_size=8)
        return report(model), nn.utils.parameters_to_vector(copied.parameters())

    alone = results()
    with another_thread_draws():
        meanwhile = results()
    assert alone[0] == meanwhile[0]
    assert torch.equal(alone[1], meanwhile[1])


RANDOM: dict[str, Callable[[], Tensor]] = {
    "dropout": lambda: F.dropout(torch.ones(50)),
    "attention": lambda: F.scaled_dot_product_attention(*[torch.ones(1, 2, 5, 4)] * 3, dropout_p=0.5),
    "rrelu": lambda: F.rrelu(-torch.ones(9), training=True),
    "rrelu_": lambda: F.rrelu_(-torch.ones(9), training=True),
    "rand": lambda: torch.rand(3, 4),
    "randn_like": lambda: torch.randn_like(torch.ones(5, dtype=torch.float64)),
    "randint": lambda: torch.randint(3, 90, (7,)),
    "randperm": lambda: torch.randperm(20),
    "random_": lambda: torch.zeros(9).random_(),
    "loader": lambda: next(iter(torch.utils.data.DataLoader(torch.arange(40.0), 30, shuffle=True))),
    "normal": lambda: torch.normal(torch.zeros(4), 1.0),
    "multinomial": lambda: torch.multinomial(torch.ones(30), 9),
    "gamma": lambda: torch.distributions.Gamma(torch.ones(3), 1.0).sample(),
    "lstm": lambda: nn.LSTM(4, 3, 2, dropout=0.5)(torch.ones(2, 5, 4))[0],
}


@pytest.mark.parametrize("name", RANDOM)
def test_noise_of_its_own_is_the_noise_alone(name: str) -> None:
    def drawn() -> list[Tensor]:
        with noise_kept():
            draw_anew(5)
            return [RANDOM[name]() for _ in range(2)]

    alone = drawn()
    with another_thread_draws():
        meanwhile = drawn()
    assert not torch.equal(*alone)
    assert all(map(torch.equal, alone, meanwhile))
