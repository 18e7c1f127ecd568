"""Ways to train: plain loops for all of them, precision, masks that stay exact, layout, compiling, progress, errors."""

import functools
import io
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from epoch0.errors import InputError
from epoch0.networks import mlp, resnet
from epoch0.prune import apply, keep
from epoch0.prune.scores.baselines import random as random_scores
from epoch0.seeds import generator
from epoch0.train import checkpoint as checkpoints
from epoch0.train._forward import first_loss
from epoch0.train._losses import BUNCH, Losses
from epoch0.train.console import Console, Glance
from epoch0.train.device import chosen_device, precision_for
from epoch0.train.distributed import Group
from epoch0.train.loop import ORDER, SGD, Adam, AdamW, _source, train
from epoch0.train.record import Accuracy, Every
from epoch0.train.schedules import Cosine, Steps
from epoch0.train.sources import Tensors
from epoch0.train.stacked import Stacked

X = torch.randn(37, 5, generator=generator(5))
Y = X[:, :3].argmax(1)


def two_layers(seed: int = 0) -> nn.Sequential:
    """5 - 8 - 3 with a ReLU; its parameters are a function of the seed."""
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed, parameter.dim())) / 2)
    return net


def images(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (count, 3, 8, 8) of four classes."""
    return torch.randn(count, 3, 8, 8, generator=generator(1)), torch.arange(count) % 4


def convolutional() -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(384, 4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(2, parameter.dim())) / 5)
    return net


def same(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def torchs(how: SGD | Adam | AdamW, net: nn.Module) -> torch.optim.Optimizer:
    if isinstance(how, SGD):
        return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-2, nesterov=True)
    kind = torch.optim.AdamW if isinstance(how, AdamW) else torch.optim.Adam
    return kind(net.parameters(), 0.05, weight_decay=1e-2)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("how", [SGD(0.9, 0.01, nesterov=True), Adam(weight_decay=0.01), AdamW()], ids=str)
def test_two_layers_equal_ten_lines_of_torch_to_the_bit(how: SGD | Adam | AdamW, clip: float | None) -> None:
    ours, net = two_layers(), two_layers()
    schedule = Steps((2, 4), 0.25)
    train(ours, (X, Y), epochs=5, batch_size=10, optimizer=how, learning_rate=0.05, schedule=schedule, clip=clip)
    clipped = 0

    optimizer = torchs(how, net)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.25)
    for epoch in range(5):
        for chosen in torch.randperm(37, generator=generator(0, ORDER, epoch)).split(10):
            optimizer.zero_grad()
            F.cross_entropy(net(X[chosen]), Y[chosen]).backward()
            if clip is not None:
                clipped += bool(nn.utils.clip_grad_norm_(net.parameters(), clip) > clip)
            optimizer.step()
        scheduler.step()
    assert same(ours, net) and (clip is None or clipped > 0)


def test_a_source_gives_the_bits_of_its_tensors() -> None:
    one, other = two_layers(), two_layers()
    train(one, (X, Y), steps=9, batch_size=10)
    train(other, Tensors(X, Y), steps=9, batch_size=10)
    assert same(one, other)


def test_label_smoothing_through_the_loss() -> None:
    ours, net = two_layers(), two_layers()
    train(ours, (X, Y), steps=4, batch_size=37, loss=functools.partial(F.cross_entropy, label_smoothing=0.2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(4):
        chosen = torch.randperm(37, generator=generator(0, ORDER, step))
        logs = net(X[chosen]).log_softmax(1)
        smooth = F.one_hot(Y[chosen], 3) * 0.8 + 0.2 / 3
        optimizer.zero_grad()
        (-(smooth * logs).sum(1).mean()).backward()
        optimizer.step()
    for a, b in zip(ours.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_bfloat16_is_autocast_with_a_loss_in_float32() -> None:
    ours, net = two_layers(), two_layers()
    done = train(ours, (X, Y), steps=4, batch_size=37, optimizer=SGD(0.9), precision="bfloat16")
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step in range(4):
        chosen = torch.randperm(37, generator=generator(0, ORDER, step))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = net(X[chosen])
        assert outputs.dtype == torch.bfloat16
        F.cross_entropy(outputs.float(), Y[chosen]).backward()
        optimizer.step()
    assert same(ours, net) and all(parameter.dtype == torch.float32 for parameter in ours.parameters())
    assert done.precision == "bfloat16"
    plain = two_layers()
    train(plain, (X, Y), steps=4, batch_size=37, optimizer=SGD(0.9))
    assert not same(plain, ours)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "how", [SGD(), SGD(0.9, 5e-2, nesterov=True), Adam(weight_decay=5e-2), AdamW(weight_decay=5e-2)], ids=str
)
def test_masks_stay_exact(how: SGD | Adam | AdamW, precision: str) -> None:
    x, y = images()
    net = convolutional()
    masks = keep(random_scores(net, seed=3), 0.7)
    apply(net, masks)
    zeros = [module.weight == 0 for module in net if isinstance(module, nn.Conv2d | nn.Linear)]
    assert all(bool(zero.any()) for zero in zeros)
    seen = []

    def watch(step: int, model: nn.Module, row: object) -> None:
        for module, zero in zip([model[0], model[4]], zeros, strict=True):
            assert bool((module.weight[zero] == 0).all()) and bool((module.weight[~zero] != 0).all())
        seen.append(step)

    before = net[4].weight.detach().clone()
    train(net, (x, y), epochs=6, batch_size=5, optimizer=how, learning_rate=0.05, clip=5.0, precision=precision,
          channels_last=True, callbacks=[Every(1, watch)])  # fmt: skip
    assert len(seen) == 19 and not torch.equal(before, net[4].weight)


def test_channels_last_changes_rounding_only_and_leaves_no_trace() -> None:
    x, y = images()
    ours, plain = convolutional(), convolutional()
    inside: list[bool] = []

    def watch(step: int, model: nn.Module, row: object) -> None:
        inside.append(model[0].weight.is_contiguous(memory_format=torch.channels_last))

    train(ours, (x, y), epochs=3, batch_size=5, optimizer=SGD(0.9), channels_last=True, callbacks=[watch])
    train(plain, (x, y), epochs=3, batch_size=5, optimizer=SGD(0.9))
    assert all(inside) and ours[0].weight.is_contiguous()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [SGD(0.9, 1e-2), AdamW()], ids=str)
def test_a_stack_trains_in_bfloat16_as_each_network_alone(how: SGD | AdamW) -> None:
    """To the rounding of bfloat16, 2^-8 of a product, over six steps; the paths round in another order."""
    nets = [two_layers(seed) for seed in range(3)]
    stack = Stacked.of(nets)
    options = {"steps": 6, "batch_size": 10, "optimizer": how, "learning_rate": 0.01, "precision": "bfloat16"}
    train(stack, (X, Y), **options, loss=stack.loss(F.cross_entropy))
    for index, net in enumerate(nets):
        start = [parameter.detach().clone() for parameter in net.parameters()]
        train(net, (X, Y), **options)
        for a, b, c in zip(stack.unstack(index).parameters(), net.parameters(), start, strict=True):
            assert (a - b).detach().norm() < 0.1 * (b - c).detach().norm()


def test_channels_last_resumes_to_the_bit(tmp_path) -> None:
    x, y = images()
    how = {"optimizer": "adam", "batch_size": 5, "channels_last": True, "learning_rate": 0.01}
    whole = train(convolutional(), (x, y), steps=8, **how)
    train(convolutional(), (x, y), steps=3, **how, checkpoint=tmp_path / "c")
    assert same(whole.model, train(convolutional(), (x, y), steps=8, **how, checkpoint=tmp_path / "c").model)


def test_a_compiled_run_computes_the_same_and_writes_the_same_names(tmp_path) -> None:
    ours, plain = two_layers(), two_layers()
    train(ours, (X, Y), steps=5, batch_size=10, compile="eager", checkpoint=tmp_path / "c")
    train(plain, (X, Y), steps=5, batch_size=10)
    assert ours.state_dict().keys() == plain.state_dict().keys()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    # a model that the user compiled, or one with a compiled part, goes on from a plain one's checkpoint
    wrapped = torch.compile(two_layers(7), backend="eager")
    part = nn.Sequential(*two_layers(8))
    part[0] = torch.compile(part[0], backend="eager")
    for model in (wrapped, part):
        train(model, (X, Y), steps=5, batch_size=10, checkpoint=tmp_path / "c")
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), ours.parameters(), strict=True))
    assert set(checkpoints.plain_names(part).values()) == set(plain.state_dict())


def test_a_compiler_that_fails_is_told() -> None:
    def broken(graph: object, inputs: object) -> None:
        raise RuntimeError("no compiler here")

    torch._dynamo.reset()
    with pytest.raises(InputError, match=r"compile='nonesuch' cannot be used: Invalid backend"):
        train(two_layers(), (X, Y), steps=1, compile="nonesuch")
    net = nn.Sequential(nn.Linear(5, 3))
    with pytest.raises(InputError, match=r"could not compile this Sequential: .*train without compile"):
        first_loss(net, torch.compile(net, backend=broken), F.cross_entropy, X, Y, Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules
def test_inductor_computes_the_same() -> None:
    ours, plain = two_layers(), two_layers()
    train(ours, (X, Y), steps=5, batch_size=10, compile=True)
    train(plain, (X, Y), steps=5, batch_size=10)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_clipping_a_stack_clips_each_network_alone() -> None:
    nets = [two_layers(0), two_layers(1)]
    with torch.no_grad():
        nets[1][2].weight.mul_(30)  # its gradient is large; the other's must not shrink for it
    stack = Stacked.of(nets)
    train(stack, (X, Y), steps=6, batch_size=10, clip=0.5, loss=stack.loss(F.cross_entropy))
    for index, net in enumerate(nets):
        train(net, (X, Y), steps=6, batch_size=10, clip=0.5)
        for a, b in zip(stack.unstack(index).parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_progress_in_a_log_and_for_a_function() -> None:
    log, seen = io.StringIO(), []
    net = mlp([5, 8, 3], seed=0)
    train(net, (X, Y), steps=30, batch_size=10, evaluate=Accuracy(X, Y), progress=Console("toy", log, every=0.0))
    lines = log.getvalue().splitlines()
    assert all(line.startswith("toy: step ") for line in lines)
    assert "step 30 of 30, epoch 7.5, loss " in lines[-1] and "accuracy 0." in lines[-1] and "images/s" in lines[-1]
    train(net, (X, Y), steps=30, batch_size=10, progress=seen.append)
    assert seen[-1].step == 30 and seen[-1].seconds_left == 0
    train(net, (X, Y), steps=3, batch_size=10, progress=False)


def test_the_bar_of_a_terminal_is_taken_down_when_a_run_fails() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    shown = Console("toy", terminal)
    shown(Glance(3, 10, 0.5, 0.7, {"accuracy": 0.4, "per_class": [1, 2]}, 1234.0, 65.0))

    def fail(step: int, model: nn.Module, row: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(two_layers(), (X, Y), steps=3, callbacks=[fail], progress=shown)
    text = terminal.getvalue()
    assert "toy: epoch 0.5, loss 0.7, accuracy 0.4, 1,234 images/s" in text and "3/10" in text
    assert "per_class" not in text
    assert not shown._meter.on_terminal


def test_a_training_in_plain_numbers() -> None:
    done = train(two_layers(), (X, Y), epochs=3, batch_size=10, evaluate=Accuracy(X, Y))
    told = done.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["steps"] == 12 and told["stopped_because"] == "steps" and told["diverged"] is False
    assert [row["step"] for row in told["history"]] == [0, 4, 8, 12]
    assert done.seconds > 0
    assert done.images_per_second == pytest.approx(3 * 37 / done.seconds)
    assert (told["device"], told["precision"]) == ("cpu", "float32")


def test_losses_are_read_in_bunches_off_the_cpu() -> None:
    """What CUDA runs do, with tensors of the meta device's kind of place: reading happens once in so many steps."""
    losses = Losses(torch.device("cuda"), Group())
    for step in range(BUNCH):
        assert not losses.due
        losses.put(torch.tensor(float(step)))
    assert losses.due and losses.waiting
    assert losses.read() == [float(step) for step in range(BUNCH)]
    assert not losses.waiting and losses.read() == []


@pytest.mark.parametrize("rate", [0.1, 1e30])
def test_reading_late_changes_no_row(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """The CUDA way of reading on a CPU: the same history, and the same step at which a run diverged."""
    x = X * (1e30 if rate > 1 else 1)
    options = {"steps": 50, "batch_size": 10, "learning_rate": rate, "evaluate": Accuracy(x, Y), "evaluate_every": 7}
    at_once = train(two_layers(), (x, Y), **options)

    class Late(Losses):
        def __init__(self, device: torch.device, group: Group) -> None:
            super().__init__(torch.device("cuda"), group)

    monkeypatch.setattr("epoch0.train._run.Losses", Late)
    late = train(two_layers(), (x, Y), **options)
    assert str(late.history) == str(at_once.history)  # as text, since NaN is not itself
    assert late.steps == at_once.steps and late.diverged == at_once.diverged == (rate > 1)
    if rate < 1:
        assert same(late.model, at_once.model)


def test_labels_out_of_range_are_named_before_anything_changes() -> None:
    x, y = images()
    y = y.clone()
    y[7] = 4
    net, before = convolutional(), convolutional()
    # the label is not in the first batch; batch norm's averages come back too
    with pytest.raises(InputError, match="example 7 has label 4 and the network has 4 outputs"):
        train(net, (x, y), steps=5, batch_size=2)
    assert same(net, before) and net.training
    with pytest.raises(InputError, match="label -1"):
        train(net, (x, y - 1), steps=5, batch_size=2)
    stack = Stacked.of([two_layers(0), two_layers(1)])
    with pytest.raises(InputError, match="the network has 3 outputs"):
        train(stack, (X, Y + 1), steps=5, batch_size=37, loss=stack.loss(F.cross_entropy))
    y[7] = -100  # what torch's cross-entropy leaves out
    train(net, (x, y), steps=2, batch_size=6)


def test_targets_of_another_loss_may_be_anything() -> None:
    net = two_layers()
    done = train(net, (X, Y + 100), steps=2, loss=lambda outputs, targets: (outputs[:, 0] - targets).square().mean())
    assert done.steps == 2


def test_what_the_first_batch_shows() -> None:
    with pytest.raises(InputError, match=r"inputs float32 of shape \(37, 4\), .*0.weight is float32 of shape \(8, 5\)"):
        train(two_layers(), (X[:, :4], Y), steps=1)
    with pytest.raises(InputError, match=r"outputs float32 of shape \(37, 3\), targets float32 of shape \(37, 2\)"):
        train(two_layers(), (X, X[:, :2]), steps=1)
    with pytest.raises(InputError, match=r"the loss has the type float"):
        train(two_layers(), (X, Y), steps=1, loss=lambda outputs, targets: 1.0)
    with pytest.raises(InputError, match="data is a list; give a tuple"):
        _source([X, Y])
    frozen = two_layers().requires_grad_(False)
    with pytest.raises(InputError, match="no parameter that requires a gradient"):
        train(frozen, (X, Y), steps=1)


def test_memory_that_is_not_there_is_told_with_the_batch_size() -> None:
    class Huge(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + torch.empty(2**60, dtype=torch.uint8).sum()

    with pytest.raises(InputError, match=r"batch_size=16 does not fit into the memory of cpu .*smaller batch"):
        train(Huge(5, 3), (X, Y), steps=1, batch_size=16)

    calls = 0

    class OnCuda(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
            return super().forward(inputs)

    with pytest.raises(InputError, match=r"batch_size=16 .*Tried to allocate 2 GiB"):
        train(OnCuda(5, 3), (X, Y), steps=5, batch_size=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float16"}, "precision is 'float16'; use 'float32', 'bfloat16' or 'auto'"),
        ({"device": "cuda:7"}, "device='cuda:7'.*use 'cpu'"),
        ({"device": "gpu"}, "device='gpu' names no device"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"checkpoint_minutes": 0.0}, "checkpoint_minutes is 0.0"),
        ({"optimizer": SGD(nesterov=True)}, "SGD.*cannot be used: Nesterov momentum requires"),
    ],
)
def test_ways_that_cannot_work(options: dict, message: str) -> None:
    net = two_layers()
    with pytest.raises(InputError, match=message):
        train(net, (X, Y), steps=1, **options)
    assert same(net, two_layers())


def test_the_chosen_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPOCH0_DEVICE", raising=False)
    assert chosen_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setenv("EPOCH0_DEVICE", "cpu")
    assert chosen_device() == torch.device("cpu")
    monkeypatch.setenv("EPOCH0_DEVICE", "tpu9")
    with pytest.raises(InputError, match="EPOCH0_DEVICE='tpu9'"):
        chosen_device()
    assert precision_for("auto", torch.device("cuda")) == "bfloat16"
    assert precision_for("auto", torch.device("cpu")) == "float32"


def test_a_residual_network_learns_in_bfloat16() -> None:
    """A few images learnt by heart, with everything at once."""
    x, y = torch.randn(16, 3, 32, 32, generator=generator(3)), torch.arange(16) % 4
    net = resnet(8, seed=0)
    done = train(
        net, (x, y), steps=25, batch_size=8, optimizer=SGD(0.9, 5e-4), learning_rate=0.05, schedule=Cosine(), clip=5.0,
        precision="bfloat16", channels_last=True, evaluate=Accuracy(x, y), evaluate_every=25,
    )  # fmt: skip
    assert done.history[-1]["accuracy"] > 0.9 > done.history[0]["accuracy"]
