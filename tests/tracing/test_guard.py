"""A measured model is left unchanged to the bit, whatever happens; what cannot be measured is refused clearly."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epoch0 import initialization, prune, train
from epoch0.diagnosis.checkup import checkup
from epoch0.errors import InputError
from epoch0.measure.gain import gain
from epoch0.tracing.guard import bare, check_model, denormals_as_zero, unchanged
from epoch0.tracing.tape import tape
from measured_models import CASES, BasicBlock, Case
from photograph import Photograph


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(7)


@pytest.mark.sample(9)
@pytest.mark.parametrize("batch_norm", ["train", "eval"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gain_leaves_every_model_as_it_was(case: Case, batch_norm: str) -> None:
    model = case.model
    model.train()
    first = next(model.parameters())
    first.grad = torch.ones_like(first)
    next(iter(model.modules())).eval()  # the root alone: modes differ between submodules
    photograph = Photograph(model)
    gain(model, case.x, batch_norm=batch_norm, directions=2)
    photograph.check()
    first.grad = None


class Restless(nn.Module):
    """Changes everything it can in its forward pass, and then perhaps fails."""

    def __init__(self, fail: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.zeros(()))
        self.calls, self.history, self.fail = 0, [torch.zeros(1)], fail

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.steps += 1
        self.history.append(x)
        self.extra = x
        with torch.no_grad():
            self.linear.weight.mul_(1.01)
            self.linear.bias.data = self.linear.bias.data + 1
        self.linear.weight.grad = None
        self.norm.train()
        self.linear.register_forward_hook(lambda *_: None)
        torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
        result = torch.tanh(self.norm(self.linear(x)))
        self.fail()
        return result


def raises(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [None, RuntimeError("no"), InputError("no"), KeyboardInterrupt(), MemoryError()])
def test_a_model_that_changes_itself_is_restored_even_when_it_fails(error: BaseException | None) -> None:
    model = Restless(raises(error) if error else lambda: None)
    model.linear.weight.grad = torch.full((4, 4), 3.0)
    model.linear.bias.requires_grad_(False)
    x = torch.randn(6, 4)
    photograph, kept, before = Photograph(model), model.history, x.clone()
    try:
        with unchanged(model):
            model(x)
    except BaseException as raised:
        assert raised is error
    photograph.check(python=True)
    assert model.calls == 0 and model.history is kept and len(kept) == 1 and not hasattr(model, "extra")
    try:
        gain(model, x)
    except (InputError, KeyboardInterrupt, MemoryError) as raised:
        assert error is not None or "changes its own parameter" in str(raised)
    photograph.check()
    assert torch.equal(x, before)


def test_ctrl_c_in_the_middle_of_a_replay_restores() -> None:
    count = [0]

    def later() -> None:
        count[0] += 1
        if count[0] == 2:  # the run after the recorded one
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    model[2].register_forward_hook(lambda *_: later())
    model.train()
    x = torch.randn(5, 4)
    photograph = Photograph(model)
    with pytest.raises(KeyboardInterrupt):
        gain(model, x)
    photograph.check()


def test_the_users_hooks_run_and_stay() -> None:
    model, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []
    model[0].register_forward_pre_hook(lambda module, args: seen.append("before"))
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    x = torch.randn(3, 4)
    photograph = Photograph(model)
    with torch.no_grad():
        expected = float(model(x).double().square().mean())
    assert gain(model, x).layers[0].square_out == pytest.approx(expected, rel=1e-6)
    assert "before" in seen
    photograph.check()


def test_nan_bits_are_kept() -> None:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    photograph = Photograph(model)
    with unchanged(model), torch.no_grad():
        model.weight.fill_(0)
    photograph.check()


def test_an_untouched_model_is_not_even_written_to() -> None:
    model = nn.Linear(2, 2)
    version = model.weight._version
    gain(model, torch.randn(3, 2))
    assert model.weight._version == version


def test_inference_mode_and_no_grad_around_the_call() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.randn(5, 3)
    expected = gain(model, x).chi_backward
    with torch.no_grad():
        assert (gain(model, x).chi_backward == expected).all()
    with torch.inference_mode():
        assert (gain(model, torch.randn(5, 3)).chi_backward > 0).all()


def test_compiled_and_parallel_wrappers_are_looked_through() -> None:
    model = BasicBlock(2, 2)
    compiled = torch.compile(model, backend="eager")
    assert bare(model) is model and bare(nn.DataParallel(model)) is model and bare(compiled) is model


def half() -> nn.Module:
    return nn.Linear(2, 2).to(torch.bfloat16)


def with_nan(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[2].weight[0, :3] = value
    return model


def nan_buffer() -> nn.Module:
    model = nn.BatchNorm1d(3)
    model.running_mean[1] = float("nan")
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_nan(float("nan")), r"'2.weight' holds NaN: 3 of its 8 values are not finite"),
        (with_nan(float("inf")), r"'2.weight' holds infinity: 3 of its 8"),
        (nan_buffer(), "'running_mean' holds NaN: 1 of its 3"),
        (nn.ReLU(), "ReLU has no parameters"),
        (nn.Linear, "not the class Linear; make an instance"),
        (torch.relu, "a torch.nn.Module is needed"),
        ("vgg16", "not a str"),
        (nn.LazyLinear(3), "'weight' is lazy"),
        (nn.Linear(2, 2, device="meta"), "'weight' is on the meta device"),
        (half(), "torch.bfloat16, too coarse"),
    ],
    ids=["nan", "infinity", "buffer", "no parameters", "class", "function", "string", "lazy", "meta", "half"],
)
def test_models_that_cannot_be_measured(model: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_model(model)


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (
            nn.Sequential(nn.Linear(784, 10)), torch.zeros(16, 8, 8),
            r"Linear '0' \(in_features=784.*of an input \(16, 8, 8\)",
        ),
        (
            nn.Sequential(nn.Linear(4, 5), nn.Linear(6, 2)), torch.zeros(3, 4),
            r"input of shape \(3, 4\), in Linear '1' \(in_features=6, .*of an input \(3, 5\)",
        ),
        (nn.Linear(4, 2), torch.zeros(3, 5), r"the model Linear \(in_features=4"),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3)), torch.zeros(2, 1, 8, 8),
            r"Conv2d '0' \(3, 4, kernel_size.*of an input \(2, 1, 8, 8\)",
        ),
        (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), torch.zeros(2, 5), r"BatchNorm1d '0' \(4, eps"),
        (nn.Sequential(nn.LayerNorm(4)), torch.zeros(2, 5), r"LayerNorm '0' \(\(4,\), eps"),
        (nn.Sequential(nn.Linear(4, 4), nn.Bilinear(4, 4, 2)), torch.zeros(2, 4), "in Bilinear '1' .*: TypeError"),
        (
            nn.Sequential(nn.Conv2d(1, 2, 5), nn.Flatten(), nn.Linear(2, 2)), torch.zeros(2, 1, 4, 4),
            r"Conv2d '0' \(1, 2, .*Kernel size",
        ),
    ],
    ids=["flatten", "inner", "root", "channels", "norm", "layer norm", "arguments", "kernel"],
)  # fmt: skip
def test_a_wrong_shape_names_the_module_and_what_it_wants(model: nn.Module, x: Tensor, message: str) -> None:
    photograph = Photograph(model.train())
    with pytest.raises(InputError, match=message), tape(model, x):
        raise AssertionError("no record can be made")
    photograph.check()
    with pytest.raises(InputError, match=message):
        gain(model, x)


@pytest.mark.parametrize(
    "net",
    [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))],
)
def test_a_batch_of_one_through_batch_statistics(net: nn.Module) -> None:
    x = torch.randn(1, 4) if isinstance(net[0], nn.Linear) else torch.randn(1, 1, 5, 5)
    photograph = Photograph(net.train())
    with pytest.raises(InputError, match="a batch of one"):
        gain(net, x)
    photograph.check()
    assert (gain(net, x, batch_norm="eval").chi_forward > 0).all()
    with pytest.raises(InputError, match="batch_norm='sometimes'"):
        gain(net, x, batch_norm="sometimes")


class Drifting(nn.Module):
    """Writes into its own weights in one of three ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.net = way, nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.net[0].weight
        if self.way == "in place":
            with torch.no_grad():
                weight.mul_(1.01)
        elif self.way == "data":
            weight.data = weight.data * 1.01
        else:
            self.net[0].weight = nn.Parameter(weight.detach() * 1.01)
        return self.net(x)


@pytest.mark.parametrize("way", ["in place", "data", "another parameter"])
@pytest.mark.parametrize("trial", [False, True])
def test_a_model_that_changes_its_own_weights_is_refused(way: str, trial: bool) -> None:
    model, x, y = Drifting(way), torch.randn(32, 4), torch.arange(32) % 3
    photograph = Photograph(model)
    with pytest.raises(InputError, match=r"changes its own parameter 'net\.0\.weight'"):
        checkup(model, x, y, trial=trial)
    photograph.check()
    with contextlib.suppress(InputError):
        gain(model, x)
    photograph.check()


class Gathering(nn.Module):
    """Puts the weights of its recurrent layer into one block while it runs, as cuDNN has them on CUDA."""

    def __init__(self, gathers: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.recurrent, self.readout, self.gathers = nn.LSTM(6, 16, batch_first=True), nn.Linear(16, 4), gathers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = list(self.recurrent.parameters()) if self.gathers else []
        block = torch.cat([w.detach().flatten() for w in weights]) if weights else torch.empty(0)
        for weight, part in zip(weights, block.split([w.numel() for w in weights] or 0), strict=False):
            weight.data = part.view_as(weight)
        outputs: torch.Tensor = self.readout(self.recurrent(x)[0][:, -1])
        return outputs


def test_weights_that_move_without_changing_are_the_same_weights() -> None:
    y = torch.arange(64) % 4
    x = torch.randn(64, 7, 6, generator=torch.Generator().manual_seed(0)) + y[:, None, None]
    still, moving = (checkup(Gathering(gathers), x, y) for gathers in (False, True))
    assert moving.verdict == still.verdict and moving.recipes["adam"] == still.recipes["adam"]
    assert str(gain(Gathering(True), x)) == str(gain(Gathering(False), x))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("inner", [False, True])
def test_backward_hooks_are_seen_for_what_they_are(inner: bool) -> None:
    model, x, y = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(32, 4), torch.arange(32) % 3
    plain = gain(model, x).chi_backward
    hooked = model[2] if inner else model
    hooked.register_full_backward_hook(lambda module, inputs, outputs: None)
    report = checkup(model, x, y, trial=False)
    assert "something else" not in str(report)
    assert any("Backward hooks of" in note for note in report.notes)
    assert (gain(model, x).chi_backward == plain).all() and len(hooked._backward_hooks) == 1


@pytest.mark.parametrize("kind", ["hook", "pre_hook"])
def test_backward_hooks_of_all_modules_are_set_aside_and_come_back(kind: str) -> None:
    model, x, seen = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(32, 4), list[str]()
    plain = gain(model, x)
    hook = getattr(nn.modules.module, f"register_module_full_backward_{kind}")(lambda *_: seen.append("called"))
    try:
        hooked = gain(model, x)
        same = repr(hooked.layers) == repr(plain.layers)  # from Python 3.13 on a NaN makes them differ
        assert same and (hooked.chi_backward == plain.chi_backward).all() and not seen
        model(x.requires_grad_()).sum().backward()
        assert seen
    finally:
        hook.remove()


@pytest.mark.parametrize("at", [1, 2, 3, 5, 9, 14])
def test_what_the_users_forward_raises_in_any_pass_is_one_error(at: int) -> None:
    calls = [0]

    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            calls[0] += 1
            if calls[0] == at:
                raise ValueError("the queue is empty")
            return self.net(x)

    try:
        said = repr(checkup(Late(), torch.randn(32, 4), torch.arange(32) % 3, trial=True).to_dict())
    except InputError as error:
        said = str(error)
    assert "the queue is empty" in said


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")
def test_a_scripted_model_is_refused_and_left_whole() -> None:
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    inner[0].weight.requires_grad_(False)
    model = torch.jit.script(inner).eval()
    calls: list[Callable[[], object]] = [
        lambda: checkup(model, torch.randn(8, 4)),
        lambda: gain(model, torch.randn(8, 4)),
        lambda: prune.masks_of(model),
        lambda: prune.apply(model, prune.Masks({"0.weight": torch.ones(8, 4, dtype=torch.bool)})),
    ]
    for call in calls:
        with pytest.raises(InputError, match="is scripted"):
            call()
    assert not model.training and [p.requires_grad for p in model.parameters()] == [False, True, True, True]


def test_a_model_without_its_init_is_refused() -> None:
    empty = nn.Linear.__new__(nn.Linear)
    for call in (lambda: checkup(empty, torch.randn(8, 4)), lambda: prune.masks_of(empty)):
        with pytest.raises(InputError, match="the Linear was made without its __init__"):
            call()


def exported(inner: nn.Module, x: Tensor) -> nn.Module:
    module: nn.Module = torch.export.export(inner, (x,)).module()
    return module


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", ["exported", "part of it exported", "scripted", "frozen", "quantized"])
def test_closed_models_are_refused_in_one_line_or_served_whole(kind: str, tmp_path: Path) -> None:
    """By measures, scores, masks, training, evaluation, stacks and files."""
    x, y = torch.randn(16, 4), torch.arange(16) % 3
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    masks = prune.keep(prune.magnitude(inner), 0.5)
    model: nn.Module = {
        "exported": lambda: exported(inner, x),
        "part of it exported": lambda: nn.Sequential(exported(inner, x), nn.ReLU(), nn.Linear(3, 3)),
        "scripted": lambda: torch.jit.script(inner),
        "frozen": lambda: torch.jit.freeze(torch.jit.script(inner.eval())),
        "quantized": lambda: torch.ao.quantization.quantize_dynamic(inner, {nn.Linear}, dtype=torch.qint8),
    }[kind]()
    calls: dict[str, Callable[[], object]] = {
        "checkup": lambda: checkup(model, x, y, trial=False),
        "gain": lambda: gain(model, x),
        "initialize": lambda: initialization.initialize(model, x=x),
        "snip": lambda: prune.snip(model, (x, y)),
        "apply": lambda: prune.apply(model, masks),
        "summary": lambda: masks.summary(model, x),
        "on_paths": lambda: prune.on_paths(model, masks, x),
        "accuracy": lambda: train.Accuracy(x, y)(model),
        "evaluation": lambda: train.Evaluation((x, y))(model),
        "stack": lambda: train.Stacked.of([model, model]),
        "save": lambda: initialization.save(model, tmp_path / "w.safetensors"),
        "train": lambda: train.train(model, (x, y), steps=1),
    }
    served = []
    for name, call in calls.items():
        state = {key: value.clone() for key, value in model.state_dict().items() if isinstance(value, Tensor)}
        flags = [getattr(module, "training", None) for module in model.modules()]
        try:
            call()
            served.append(name)
        except InputError as error:
            assert "\n" not in str(error)
        if name != "train":
            assert flags == [getattr(module, "training", None) for module in model.modules()], name
            assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items()), name
    run = {"exported": [], "part of it exported": [], "frozen": []}.get(kind, ["accuracy", "evaluation", "train"])
    assert set(served) <= {*run, "save", "stack"}


class Counting(nn.Linear):
    """Counts its calls in a buffer, in any mode, as observers of quantization do."""

    def __init__(self) -> None:
        super().__init__(4, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def test_an_evaluation_gives_buffers_and_modes_back() -> None:
    x, y = torch.randn(32, 4), torch.arange(32) % 3
    model = nn.Sequential(Counting(), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).train()
    photograph = Photograph(model)
    train.Accuracy(x, y)(model)
    train.Evaluation((x, y))(model)
    photograph.check()


@pytest.mark.parametrize("before", [False, True])
def test_denormal_numbers_are_zero_for_a_while_and_again_what_they_were(before: bool) -> None:
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    assert torch.set_flush_denormal(before)
    try:
        with pytest.raises(KeyboardInterrupt), denormals_as_zero():
            assert smallest / 2 == 0
            raise KeyboardInterrupt
        assert bool(smallest / 2 == 0) == before
    finally:
        torch.set_flush_denormal(False)
