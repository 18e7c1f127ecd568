"""Bad calls: a public function that is given nonsense says so in one InputError, at once, and touches nothing.

Each call is one that works (``calls.py``), of a function or of a method, with one to three arguments replaced. Some
values are never valid for what a parameter is: they must be refused. Others may be; then anything but a raw error, a
change or a long wait will do.
"""

import contextlib
import decimal
import inspect
import io
import itertools
import math
import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pandas
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from calls import CALLS, METHODS, NEVER_CALLED, folder, net, nothing, public, x, y
from epoch0.errors import InputError

SECONDS = 20
PUBLIC = dict(public())


class Refusing(torch.Tensor):
    """A tensor that takes part in nothing."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError("refused")


class Closed:
    """Nothing can be read of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __len__(self) -> int:
        raise OSError("no length")


class Arrayless:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("no array")


class Failing:
    """A data set whose examples cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise OSError("gone")


class Shut(type):
    """A class of which nothing can be read, not even its own."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Odd(nn.Module):
    """A model whose forward does anything."""

    def __init__(self, act: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.fc, self.act = nn.utils.skip_init(nn.Linear, 6, 3), act
        for parameter in self.parameters():
            nn.init.ones_(parameter)

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(self.fc(x))


def freed() -> torch.Tensor:
    tensor = x()
    tensor.untyped_storage().resize_(0)
    return tensor


def cyclic() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


NUMBERS: list[Callable[[], Any]] = [
    lambda: math.nan, lambda: math.inf, lambda: "3", lambda: object(), lambda: 1j, list, lambda: {"a": 1},
    lambda: b"x", lambda: int, lambda: np.array([math.nan]), lambda: -(10**400),
]  # fmt: skip
TENSORS: list[Callable[[], Any]] = [
    lambda: x() * math.nan, lambda: torch.full((12, 6), -math.inf), lambda: torch.empty(12, 6, device="meta"),
    lambda: torch.eye(6).to_sparse(), lambda: x().to(torch.complex64), lambda: "x", lambda: object(),
    lambda: math.nan, lambda: nothing, lambda: torch.tensor([]), freed,
    lambda: torch.quantize_per_tensor(x(), 0.1, 0, torch.quint8), lambda: x().as_subclass(Refusing),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), lambda: nn.parameter.UninitializedParameter(),
    lambda: torch._subclasses.FakeTensorMode().from_tensor(x()), lambda: torch.eye(6).to_sparse_csr(),
]  # fmt: skip
#: by what the working value is: values that are never valid in its place
NEVER: dict[type, list[Callable[[], Any]]] = {
    bool: [lambda: "yes", lambda: 3, lambda: math.nan, list, lambda: object(), lambda: torch.ones(2)],
    int: [*NUMBERS, lambda: True, lambda: 1.5, lambda: 10**400, lambda: -(2**80)],
    float: [*NUMBERS, lambda: True, lambda: 10**400, lambda: -math.inf],
    str: [lambda: math.nan, lambda: 3.5, list, dict, lambda: object(), lambda: b"relu", lambda: int],
    torch.Tensor: TENSORS,
    nn.Module: [lambda: None, lambda: "net", lambda: 3, lambda: x(), lambda: nn.Linear, dict, lambda: object()],
    list: [lambda: 3.5, lambda: "abc", lambda: [object()], lambda: [math.nan], lambda: [None],
           lambda: object(), lambda: int],
    dict: [lambda: 3.5, lambda: "abc", lambda: [1], lambda: {1: object()}, lambda: {"a": math.nan}, lambda: {"a": "b"}],
    Path: [lambda: 3.5, list, lambda: "a\0b", lambda: "n" * 300, lambda: object(), dict],
    torch.dtype: [lambda: "float99", lambda: 3, lambda: float, list, lambda: object()],
    type(nothing): [lambda: 3, lambda: "f", list, dict, lambda: x()],
}  # fmt: skip
#: values that may be valid: no raw error and no change
MAYBE: list[Callable[[], Any]] = [
    lambda: None, lambda: -1, lambda: 0, lambda: 2**63, lambda: 10**12, lambda: "", list, lambda: (),
    dict, lambda: np.float32(0.5), lambda: np.int64(2), lambda: x(0), lambda: x()[0], lambda: torch.ones(2, 3, 4),
    lambda: nn.Identity(), lambda: [[1, 2], [3]], lambda: [x(), "y"], lambda: {"a": x()}, lambda: 1e300, lambda: 1e-320,
    lambda: torch.tensor(0.5), lambda: range(3), lambda: set(), lambda: iter([]), lambda: (3, "a"), lambda: lambda: 3,
    Closed, Arrayless, cyclic, lambda: (1 / 0 for _ in range(3)), lambda: np.ma.masked_array([1.0, 2.0], [0, 1]),
    lambda: np.array([object(), None]), lambda: pandas.Series([1.0, 2.0]), lambda: pandas.NA,
    lambda: np.ones(3, ">f8"), lambda: np.arange(4.0)[::-1], lambda: np.array(["2020"], "datetime64[D]"),
    lambda: torch.utils.data.DataLoader([1, 2]), lambda: torch.device("cuda", 9), lambda: decimal.Decimal("nan"),
    lambda: Odd(lambda _: None), lambda: Odd(lambda y: y * math.nan), lambda: Odd(lambda y: y.numpy()),
    lambda: Odd(lambda _: 1 / 0), lambda: nn.LazyLinear(3), lambda: nn.Linear(6, 3, device="meta"),
    lambda: nn.Linear(6, 3, dtype=torch.complex64), lambda: nn.Parameter(x()), lambda: slice(0, 2), lambda: ...,
    lambda: x().to(torch.float8_e4m3fn),  # torch reads it from 2.15 on
    lambda: torch.arange(12) - 5, lambda: "relu", lambda: -0.5, lambda: 1.0, lambda: np.zeros((0, 3)), lambda: True,
]  # fmt: skip
#: parameters that take more than their working value shows, or anything
FREE = {
    ("activations.known_function", "function"), ("activations.known_module", "module"),
    ("activations.get", "activation"),
    ("activations.known_call", "args"), ("activations.known_call", "kwargs"), ("activations.Activation", "source"),
    ("experiments.experiment.canonical_json", "value"),
    *((name, "errors") for name in CALLS if ".claims." in name),  # NaN: not measured
    *(("experiments.claims.better_fit", shape) for shape in ("better", "worse")),  # one number: it is constant
    ("experiments.experiment.Trial", "spec"),
    ("theory.pruning.magnitude_density", "weight_std"), ("LinePartition.point", "t"),  # one number for all
}  # fmt: skip
#: what is called back raises its own errors: only values that are never one
CALLED_BACK = {("train.train", "evaluate")}


def sort(value: Any) -> type:
    """The kind of a working value, as NEVER has it."""
    sorts = (bool, int, float, str, torch.Tensor, nn.Module, Path, torch.dtype, type(nothing))
    found = next((kind for kind in sorts if isinstance(value, kind)), None)
    return found or (list if isinstance(value, list | tuple) else dict if isinstance(value, dict) else object)


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def streams() -> list[Any]:
    """What no call may change: random streams, modes, defaults, files; beartype draws from Python's own stream."""
    found: list[Any] = [torch.get_rng_state().tolist(), str(np.random.get_state())]  # noqa: NPY002
    found.append(os.environ.get("EPOCH0_TYPES") or random.getstate())
    return [
        *found,
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        os.getcwd(),
        np.geterr(),
    ]


def state(arguments: dict[str, Any]) -> list[Any]:
    """The models and the tensors, to the bit."""
    found: list[Any] = []
    for value in arguments.values():
        if isinstance(value, nn.Module):
            found.append([(n, m.training, len(m._forward_hooks)) for n, m in value.named_modules()])
            found.append([(n, p.requires_grad, p.grad, shown(p)) for n, p in value.named_parameters()])
            found.append([(n, shown(b)) for n, b in value.named_buffers()])
        if type(value) is torch.Tensor:
            found.append((value.requires_grad, value.grad, shown(value)))
    return found


def shown(tensor: torch.Tensor) -> object:
    """The values, where there are any."""
    try:
        return tensor.tolist()
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def judged(name: str, arguments: dict[str, Any], never: bool) -> str:
    """One word for what a call did: fine, raw, nonsense, hung or touched; with the reason."""
    function = getattr(METHODS[name][0](), name.split(".")[1]) if name in METHODS else PUBLIC[name]
    around, before = streams(), repr(state(arguments))
    word, failed = "nonsense" if never else "fine", True
    try:
        with limited(SECONDS), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            function(**arguments)
        failed = False
    except InputError:
        word = "fine"
    except TimeoutError:
        word = "hung"
    except Exception as error:
        word = f"raw {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    touched = streams() != around or (failed and repr(state(arguments)) != before)
    return "touched" if touched else word


GIVEN = {**CALLS, **{name: give for name, (_, give) in METHODS.items()}}
NAMES = [name for name, give in GIVEN.items() if give()]


def bad_call(draw: st.DataObject, name: str) -> str:
    """What a call with one to three arguments replaced did, if that was wrong: its name, what it was given, and how."""
    arguments, changed, never = GIVEN[name](), {}, False
    places = st.lists(st.sampled_from(list(arguments)), min_size=1, max_size=3, unique=True)
    for place in draw.draw(places, "places"):
        bad = NEVER.get(sort(arguments[place]), []) if (name, place) not in FREE else []
        wrong = bool(bad) and ((name, place) in CALLED_BACK or draw.draw(st.integers(0, 4)) < 3)
        make = draw.draw(st.sampled_from(bad if wrong else MAYBE))
        with warnings.catch_warnings(action="ignore"):  # of torch, about kinds of tensors that it gives up
            changed[place] = make()
        never |= wrong
    word = judged(name, {**arguments, **changed}, never)
    return "" if word == "fine" else f"{name}({', '.join(f'{k}={safe(v):.60}' for k, v in changed.items())}): {word}"


def test_every_public_name_has_a_call() -> None:
    plain = {n for n, f in PUBLIC.items() if n.startswith("activations.") and not inspect.signature(f).parameters}
    assert PUBLIC.keys() - CALLS.keys() - NEVER_CALLED - plain == set()
    assert (CALLS.keys() | NEVER_CALLED) - PUBLIC.keys() == set()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", CALLS)
def test_the_calls_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, around = CALLS[name](), streams()
    made = PUBLIC[name](**arguments)
    assert streams() == around  # builders of networks and constructions too
    getattr(made, "close", lambda: None)()  # a store's file


def safe(value: Any) -> str:
    try:
        return type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)
    except Exception:
        return type(value).__name__


@pytest.mark.sample(21)
@pytest.mark.parametrize("name", METHODS)
def test_the_methods_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, give = METHODS[name]
    method, arguments, around = getattr(made(), name.split(".")[1]), give(), streams()
    method(**arguments)
    assert streams() == around


def fuzz(name: str, calls: int, seed: int) -> list[str]:
    """Every wrong one of the calls that hypothesis draws."""
    wrong = []

    @hypothesis.seed(seed)
    @settings(max_examples=calls, derandomize=False, deadline=None, database=None, phases=[Phase.generate])
    @given(st.data())
    def drawn(draw: st.DataObject) -> None:
        wrong.extend(filter(None, [bad_call(draw, name)]))

    drawn()
    return wrong


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_bad_calls(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: st.DataObject) -> None:
    monkeypatch.chdir(tmp_path)
    assert not bad_call(draw, name)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("part", range(10))
def test_more_bad_calls(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1 % raw and 2 % accepted nonsense, none hung, nothing touched; of all 10,000 it was 5 and 1."""
    monkeypatch.chdir(tmp_path)
    wrong = [line for name in NAMES[part::10] for line in fuzz(name, calls=10_000 // len(NAMES) + 1, seed=part)]
    raw, nonsense = ([line for line in wrong if f": {word}" in line] for word in ("raw", "nonsense"))
    assert len(raw) <= 10 and len(nonsense) <= 20 and len(wrong) == len(raw) + len(nonsense), "\n".join(wrong)


FOUND: dict[str, Callable[[], Any]] = {
    "endless range": lambda: PUBLIC["theory.growth.bounds"](law=range(10**9), widths=[3, 4]),
    "peak": lambda: PUBLIC["data.DataSet"](**{**CALLS["data.DataSet"](), "peak": -5}),
    "one integer": lambda: PUBLIC["prune.on_paths"](**{**CALLS["prune.on_paths"](), "x": torch.tensor(3)}),
    "number of a network": lambda: PUBLIC["networks.ensemble"](**CALLS["networks.ensemble"]())["seven"],
    "samples without end": lambda: PUBLIC["experiments.claims.at_most"](
        **{**CALLS["experiments.claims.at_most"](), "samples": math.inf}
    ),
    "no name": lambda: PUBLIC["activations.known_function"](Closed()),
    "one number for a segment": lambda: PUBLIC["regions.boundary_density"](
        **{**CALLS["regions.boundary_density"](), "where": torch.tensor(0.5)}
    ),
    "lazy weights in a file": lambda: PUBLIC["initialization.save"](nn.LazyLinear(3), "a.safetensors"),
    "lazy weights to train": lambda: PUBLIC["train.train"](**{**CALLS["train.train"](), "model": nn.LazyLinear(3)}),
    "lazy evaluation": lambda: PUBLIC["train.Evaluation"]((x(), y()))(nn.LazyLinear(3)),
    "lazy accuracy": lambda: PUBLIC["train.Accuracy"](x(), y())(nn.LazyLinear(3)),
    "accuracy without values": lambda: PUBLIC["train.Accuracy"](x(), y())(nn.Linear(6, 3, device="meta")),
    "closed inputs": lambda: PUBLIC["gain"](**{**CALLS["gain"](), "x": Closed()}),
    "closed targets": lambda: PUBLIC["gain"](**{**CALLS["gain"](), "targets": Closed()}),
    "a time for a count": lambda: PUBLIC["networks.folding"](
        **{**CALLS["networks.folding"](), "inputs": np.timedelta64(3)}
    ),
    "an array for an output": lambda: PUBLIC["dichotomies"](
        **{**CALLS["dichotomies"](), "model": Odd(lambda y: y.numpy())}
    ),
    "a loader that fails": lambda: PUBLIC["prune.snip"](net(), torch.utils.data.DataLoader(Failing())),
    "training on a loader that fails": lambda: PUBLIC["train.train"](
        net(), torch.utils.data.DataLoader(Failing()), steps=1
    ),
    "batches that fail": lambda: PUBLIC["prune.snip"](net(), (1 / 0 for _ in range(3))),
    "a class that shows nothing": lambda: PUBLIC["experiments.experiment.Trial"]("math:sqrt", Shut("Shut", (), {}), 0),
    "one number for a window": lambda: PUBLIC["regions.count"](net(), torch.tensor(0.5)),
    "weights without values": lambda: PUBLIC["initialization.save"](nn.Linear(6, 3, device="meta"), "a.safetensors"),
    "batches without end": lambda: PUBLIC["prune.snip"](net(), itertools.repeat((x(), y()))),
    "an empty slope": lambda: PUBLIC["activations.known_call"]("leaky_relu", ([],), {}),
    "a slope in a list": lambda: PUBLIC["activations.known_call"]("celu", (), {"alpha": [[]]}),
    "steps without end": lambda: PUBLIC["train.train"](net(), (x(), y()), steps=10**12),
    "epochs without end": lambda: PUBLIC["train.train"](net(), (x(), y()), epochs=10**10),
    "no text for a setting": lambda: METHODS["Artifact.setting"][0]().caption(None),
    "no number of an image": lambda: PUBLIC["data.image_files"](f"folder:{folder() / 'tree'}").path("first"),
    "no range of networks": lambda: PUBLIC["networks.ensemble"](**CALLS["networks.ensemble"]()).stacked(0, "all"),
    "weights made in inference mode": lambda: PUBLIC["gain"](torch.inference_mode()(net)(), x()),
    "steps of weights made in inference mode": lambda: PUBLIC["checkup"](torch.inference_mode()(net)(), x(), y()),
    "training of weights made in inference mode": lambda: PUBLIC["train.train"](
        torch.inference_mode()(net)(), (x(), y()), steps=1
    ),
    "expanded weights to train": lambda: PUBLIC["train.train"](expanded(), (x(), y()), steps=1),
    "expanded weights": lambda: PUBLIC["initialize"](expanded(), x=x()),
    "no weights to train": lambda: PUBLIC["train.train"](net().to("meta"), (x(), y()), steps=1),
    "no metrics": lambda: PUBLIC["train.train"](net(), (x(), y()), steps=1, evaluate=lambda _: 3),
    "frozen while it runs": lambda: PUBLIC["gain"](model := Odd(lambda y: model.requires_grad_(False) and y), x()),
    "complex weights in a file": lambda: PUBLIC["initialization.save"](
        nn.Linear(6, 3, dtype=torch.complex128), "a.safetensors"
    ),
    "many values": lambda: PUBLIC["theory.growth.GrowthLaw"]((3,), (1.0,)).quantile(np.zeros((30, 30))),
    "lines of an array": lambda: PUBLIC["theory.growth.GrowthLaw"]((3,), (1.0,)).quantile(np.full((9, 5), 2.0)),
}


def expanded() -> nn.Module:
    model = nn.Linear(6, 3)
    model.bias = nn.Parameter(torch.ones(1).expand(3))
    return model


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", FOUND)
def test_what_later_fuzzers_found_is_one_line(name: str) -> None:
    with limited(SECONDS), pytest.raises(InputError) as caught:
        FOUND[name]()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1600


def test_negated_tensors_are_numbers() -> None:
    given = {**CALLS["experiments.claims.fitted_exponent"](), "measured": torch._neg_view(-torch.tensor([1.0, 4, 9]))}
    assert PUBLIC["experiments.claims.fitted_exponent"](**given)[0] == pytest.approx(2.0)


@pytest.mark.parametrize("kind", ["Accuracy", "Evaluation"])
def test_an_evaluation_gives_back_what_the_model_draws(kind: str) -> None:
    def noisy(outputs: torch.Tensor) -> torch.Tensor:
        return outputs + torch.rand(3) + np.random.rand() + random.random()  # noqa: NPY002

    assert judged(f"{kind}.__call__", {"model": Odd(noisy)}, never=False) == "fine"
    assert judged("train.train", {**CALLS["train.train"](), "model": Odd(noisy)}, never=False) == "fine"


@pytest.mark.parametrize("kind", ["Accuracy", "Evaluation"])
def test_an_evaluation_gives_back_what_the_model_does_to_itself(kind: str) -> None:
    def restless(outputs: torch.Tensor) -> torch.Tensor:
        model.register_buffer("seen", torch.ones(2))
        model.fc.register_forward_hook(lambda *_: None)
        model.fc.weight.data.mul_(0.5)
        model.fc.bias.requires_grad_(False)
        return outputs

    model = Odd(restless)
    before = repr(state({"model": model}))
    METHODS[f"{kind}.__call__"][0]()(model)
    assert repr(state({"model": model})) == before


@pytest.mark.parametrize("name", ["robustness", "checkup"])
def test_a_model_that_writes_into_its_input_writes_into_a_copy(name: str) -> None:
    model = net()
    model.register_forward_pre_hook(lambda _, args: (args[0].mul_(0.5),))
    given, batch = CALLS[name](), x()
    given |= {"model": model} | ({"batch": batch} if name == "checkup" else {"data": (batch, y())})
    PUBLIC[name](**{key: value for key, value in given.items() if key != "forward"})
    assert torch.equal(batch, x())


class Restless(nn.Module):
    """It sets its own mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.eval()
        return torch.as_tensor(x)


TOUCHED: list[tuple[str, str, Callable[[], Any]]] = [
    *((f"{kind}.__call__", "model", lambda: nn.LazyLinear(3)) for kind in ("Accuracy", "Evaluation")),
    ("theory.mean_field.gaussian_mean", "f", lambda: nn.LazyLinear(3)),
    ("train.train", "evaluate", lambda: nn.LazyLinear(3)),
    ("experiments.store.merge", "sources", lambda: torch.utils.data.DataLoader([1, 2])),
    *((name, "data", lambda: torch.utils.data.DataLoader([1, 2])) for name in ("train.train", "train_one_layer")),
    *((f"prune.{name}", "batches", lambda: torch.utils.data.DataLoader([1, 2])) for name in ("snip", "force", "obd")),
    ("prune.obd", "batches", lambda: (np.random.rand(3) + random.random() for _ in range(2))),  # noqa: NPY002
]


@pytest.mark.parametrize(("name", "place", "make"), TOUCHED)
def test_neither_modules_nor_the_draws_of_a_loader_change(name: str, place: str, make: Callable[[], Any]) -> None:
    give = METHODS[name][1] if name in METHODS else CALLS[name]
    assert judged(name, {**give(), place: make()}, never=True) == "fine"


if __name__ == "__main__":  # python tests/test_fuzz.py SEED CALLS
    import collections
    import sys

    os.chdir(folder())
    seed, calls = map(int, sys.argv[1:])
    found = [line for name in NAMES for line in fuzz(name, calls // len(NAMES) + 1, seed)]
    print("\n".join(found))
    print(collections.Counter(line.rpartition("): ")[2].split()[0] for line in found), "of", calls)
