"""Ways to train: plain loops for all of them, precision, masks that stay exact, layout, schedules, loaders, errors."""

import functools
import json
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from epoch0.errors import InputError
from epoch0.networks import resnet
from epoch0.prune import apply, keep
from epoch0.prune.scores.scores import random as random_scores
from epoch0.seeds import generator
from epoch0.train.device import chosen_device, precision_for
from epoch0.train.evaluation import Accuracy, Every
from epoch0.train.loop import ORDER, train
from epoch0.train.stacked import Stacked

Optimizer = Callable[..., torch.optim.Optimizer]
MOMENTUM = partial(torch.optim.SGD, momentum=0.9)
NESTEROV = partial(torch.optim.SGD, momentum=0.9, weight_decay=0.01, nesterov=True)
DECAYED = partial(torch.optim.SGD, momentum=0.9, weight_decay=0.05)

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


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("how", [NESTEROV, torch.optim.Adam, torch.optim.AdamW], ids=str)
def test_two_layers_equal_ten_lines_of_torch_to_the_bit(how: Optimizer, clip: float | None) -> None:
    ours, net = two_layers(), two_layers()

    def schedule(optimizer: torch.optim.Optimizer, steps: int) -> MultiStepLR:
        assert steps == 20
        return MultiStepLR(optimizer, [8, 16], 0.25)

    train(ours, (X, Y), epochs=5, batch_size=10, optimizer=how, learning_rate=0.05, schedule=schedule, clip=clip)
    clipped = 0

    optimizer = how(net.parameters(), lr=0.05)
    scheduler = MultiStepLR(optimizer, [2, 4], 0.25)  # of epochs
    for epoch in range(5):
        for chosen in torch.randperm(37, generator=generator(0, ORDER, epoch)).split(10):
            optimizer.zero_grad()
            F.cross_entropy(net(X[chosen]), Y[chosen]).backward()
            if clip is not None:
                clipped += bool(nn.utils.clip_grad_norm_(net.parameters(), clip) > clip)
            optimizer.step()
        scheduler.step()
    assert same(ours, net) and (clip is None or clipped > 0)


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
    done = train(ours, (X, Y), steps=4, batch_size=37, optimizer=MOMENTUM, precision="bfloat16")
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
    train(plain, (X, Y), steps=4, batch_size=37, optimizer=MOMENTUM)
    assert not same(plain, ours)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "how", [torch.optim.SGD, NESTEROV, partial(torch.optim.Adam, weight_decay=5e-2), torch.optim.AdamW], ids=str
)
def test_masks_stay_exact(how: Optimizer, precision: str) -> None:
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

    train(ours, (x, y), epochs=3, batch_size=5, optimizer=MOMENTUM, channels_last=True, callbacks=[watch])
    train(plain, (x, y), epochs=3, batch_size=5, optimizer=MOMENTUM)
    assert all(inside) and ours[0].weight.is_contiguous()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [DECAYED, torch.optim.AdamW], ids=str)
def test_a_stack_trains_in_bfloat16_as_each_network_alone(how: Optimizer) -> None:
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


FUSED = partial(torch.optim.Adam, fused=True)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("adam", "plain"),
        ("adam", "transposed"),
        ("adamw", "transposed"),
        (FUSED, "transposed"),
        ("adam", "complex"),
        ("adamw", "complex"),
    ],
)
def test_by_name_it_is_torchs_own_but_for_rounding_and_resumes_to_the_bit(tmp_path, layout: str, name) -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kind = torch.complex64 if layout == "complex" else torch.float32
            weight = torch.randn(5, 3, generator=generator(4)).to(kind)
            self.weight = nn.Parameter(weight.t().contiguous().t() if layout == "transposed" else weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.to(self.weight.dtype) @ self.weight).abs()

    own = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    how = {"batch_size": 10, "learning_rate": 0.01}
    one, other = (train(Product(), (X, Y), steps=9, optimizer=each, **how).model for each in (name, own))
    moved = torch.linalg.vector_norm((one.weight - Product().weight).detach())
    assert torch.linalg.vector_norm((one.weight - other.weight).detach()) < 1e-5 * moved
    train(Product(), (X, Y), steps=4, optimizer=name, **how, checkpoint=tmp_path / "c")
    assert same(one, train(Product(), (X, Y), steps=9, optimizer=name, **how, checkpoint=tmp_path / "c").model)


def test_a_stack_is_not_clipped() -> None:
    stack = Stacked.of([two_layers(0), two_layers(1)])
    with pytest.raises(InputError, match=r"clip=0\.5 is for one network"):
        train(stack, (X, Y), steps=6, batch_size=10, clip=0.5, loss=stack.loss(F.cross_entropy))


class Shards(torch.utils.data.Dataset):
    """The examples one by one, some noise added to each, as any data set of a user."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[index] + torch.rand(()) / 100, Y[index]


@pytest.mark.sample(1)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_trained_on_and_resumed_to_the_bit(tmp_path, workers: int) -> None:
    """Its order, its noise and dropout follow from the seed, through an interruption in the middle of an epoch."""

    def loader() -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(Shards(), batch_size=10, shuffle=True, num_workers=workers)

    def network(seed: int = 0) -> nn.Sequential:
        return nn.Sequential(*two_layers(seed), nn.Dropout(0.3))

    whole = train(network(), loader(), epochs=3, optimizer=MOMENTUM, seed=4)
    assert whole.steps == 12 and [row["epoch"] for row in whole.history] == [0, 1, 2, 3]
    assert same(whole.model, train(network(), loader(), epochs=3, optimizer=MOMENTUM, seed=4).model)
    assert not same(whole.model, train(network(), loader(), epochs=3, optimizer=MOMENTUM, seed=5).model)
    for steps in (3, 6, 12):
        again = train(network(steps - 3), loader(), steps=steps, optimizer=MOMENTUM, seed=4, checkpoint=tmp_path / "c")
    assert same(whole.model, again.model)


def test_batches_in_a_list_are_taken_as_they_come() -> None:
    ours, net = two_layers(), two_layers()
    batches = [(X[:10], Y[:10]), (X[10:37], Y[10:37])]
    done = train(ours, batches, epochs=2, optimizer=MOMENTUM)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for x, y in batches * 2:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert same(ours, net) and done.steps == 4


def test_a_sampler_hears_of_the_epoch() -> None:
    told = []

    class Sampler(torch.utils.data.SequentialSampler):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    pairs = torch.utils.data.TensorDataset(X, Y)
    train(two_layers(), torch.utils.data.DataLoader(pairs, 37, sampler=Sampler(pairs)), epochs=3)
    assert told == [0, 1, 2]


def test_a_training_in_plain_numbers() -> None:
    done = train(two_layers(), (X, Y), epochs=3, batch_size=10, evaluate=Accuracy(X, Y))
    told = done.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["steps"] == 12 and told["stopped_because"] == "steps" and told["diverged"] is False
    assert [row["step"] for row in told["history"]] == [0, 4, 8, 12]
    assert done.seconds > 0 and "seconds" not in told  # two runs, one result
    assert (told["device"], told["precision"]) == ("cpu", "float32")


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
    with pytest.raises(InputError, match=r"inputs are float32 of shape \(37, 4\), .*float32 of shape \(8, 5\)"):
        train(two_layers(), (X[:, :4], Y), steps=1)
    with pytest.raises(InputError, match=r"outputs are float32 of shape \(37, 3\), targets float32 of shape \(37, 2\)"):
        train(two_layers(), (X, X[:, :2]), steps=1)
    with pytest.raises(InputError, match=r"the loss is a float"):
        train(two_layers(), (X, Y), steps=1, loss=lambda outputs, targets: 1.0)
    with torch.no_grad(), pytest.raises(InputError, match=r"no gradient; .* or is torch.no_grad\(\) on\?"):
        train(two_layers(), (X, Y), steps=1)
    with pytest.raises(InputError, match="data is a generator: give a tuple"):
        train(two_layers(), (pair for pair in [(X, Y)]), steps=1)
    with pytest.raises(InputError, match="the data have no batch"):
        train(two_layers(), [], steps=1)
    with pytest.raises(InputError, match="batch 0 of 2 of epoch 0 is missing or no pair"):
        train(two_layers(), [X, X], steps=1)
    with pytest.raises(InputError, match=r"batch 0 of 37 of epoch 0 .* one example, no batch"):
        train(two_layers(), torch.utils.data.TensorDataset(X, Y), steps=1)
    with pytest.raises(InputError, match="schedule gave a NoneType"):
        train(two_layers(), (X, Y), steps=1, schedule=lambda optimizer, steps: None)
    frozen = two_layers().requires_grad_(False)
    with pytest.raises(InputError, match="no parameter that requires a gradient"):
        train(frozen, (X, Y), steps=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float16"}, "precision='float16' is not known; use 'auto', 'float32' or 'bfloat16'"),
        ({"device": "cuda:7"}, "device='cuda:7'.*use 'cpu'"),
        ({"device": "gpu"}, "device='gpu' cannot be used"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"checkpoint_minutes": 0.0}, "checkpoint_minutes=0.0"),
        ({"optimizer": partial(torch.optim.SGD, nesterov=True)}, "SGD.*cannot be made: Nesterov momentum requires"),
        ({"optimizer": torch.optim.LBFGS}, "LBFGS; give one of torch.optim that steps without a closure"),
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


@pytest.mark.slow
def test_a_residual_network_learns_in_bfloat16() -> None:
    """A few images learnt by heart, with everything at once."""
    x, y = torch.randn(16, 3, 32, 32, generator=generator(3)), torch.arange(16) % 4
    net = resnet(8, seed=0)
    done = train(
        net, (x, y), steps=25, batch_size=8, optimizer=DECAYED, learning_rate=0.05, clip=5.0, channels_last=True,
        schedule=CosineAnnealingLR, precision="bfloat16", evaluate=Accuracy(x, y), evaluate_every=25,
    )  # fmt: skip
    assert done.history[-1]["accuracy"] > 0.9 > done.history[0]["accuracy"]
