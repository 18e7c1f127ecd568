"""Evaluation against one example at a time, for networks and stacks of them, and that it leaves them alone."""

import copy
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.errors import InputError
from epoch0.networks import mlp
from epoch0.seeds import generator
from epoch0.train.data import Folder, Images, PadCropFlip, Pair
from epoch0.train.evaluation import Evaluation
from epoch0.train.loop import train
from epoch0.train.stacked import Stacked
from made_trees import picture, save


def examples(count: int, classes: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = generator(seed)
    return torch.randn(count, 4, generator=draw), torch.randint(classes, (count,), generator=draw)


def one_by_one(network: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, int]:
    """Mean loss and examples right, from one forward pass an example and Python's sorting."""
    network = copy.deepcopy(network).eval()
    loss, right = 0.0, 0
    for x, y in zip(inputs, targets.tolist(), strict=True):
        outputs = network(x[None])[0].double().tolist()
        loss += math.log(sum(math.exp(o) for o in outputs)) - outputs[y]
        right += max(range(len(outputs)), key=lambda c: outputs[c]) == y
    return loss / len(targets), right


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 1000), st.sampled_from([3, 7]))
def test_a_network_against_one_example_at_a_time(count: int, batch_size: int, seed: int, classes: int) -> None:
    inputs, targets = examples(count, classes, seed)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, classes))
    found = Evaluation((inputs, targets), batch_size)(network)
    loss, right = one_by_one(network, inputs, targets)
    assert found["test_loss"] == pytest.approx(loss, rel=1e-5)
    assert found["test_accuracy"] == right / count


@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 4))
def test_a_stack_against_its_networks(count: int, batch_size: int, networks: int) -> None:
    inputs, targets = examples(count)
    nets = [mlp([4, 8, 7], seed=seed) for seed in range(networks)]
    test = Evaluation((inputs, targets), batch_size, name="held_out")
    found = test(Stacked.of(nets))
    alone = [test(net) for net in nets]
    assert list(found) == ["held_out_loss", "held_out_accuracy"]
    assert found["held_out_loss"] == pytest.approx([one["held_out_loss"] for one in alone], rel=1e-6)
    assert found["held_out_accuracy"] == [one["held_out_accuracy"] for one in alone]


def test_the_model_comes_back_as_it_was() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 7))
    network[1].eval()  # a frozen batch norm inside a network in train mode
    modes, state = [m.training for m in network.modules()], copy.deepcopy(network.state_dict())
    noise, gradients = torch.get_rng_state(), []
    network[3].register_forward_hook(lambda module, inputs, outputs: gradients.append(outputs.requires_grad))
    test = Evaluation(examples(30), 8)
    first, second = test(network), test(network)
    assert first == second and [m.training for m in network.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert len(gradients) == 8 and not any(gradients)
    assert torch.equal(torch.get_rng_state(), noise) and all(p.grad is None for p in network.parameters())
    with pytest.raises(InputError, match="cannot take these"):
        Evaluation((torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64)))(network)
    assert [m.training for m in network.modules()] == modes


def test_images_flattened_and_not_give_the_accuracy_of_the_data_set() -> None:
    train_set, test_set = load("digits"), load("digits", "test")
    network = mlp([64, 10], seed=0)
    whole = torch.from_numpy(test_set.inputs("standard", like=train_set))
    expected = (network(whole).argmax(1) == torch.from_numpy(test_set.labels)).double().mean().item()
    assert Evaluation(Images.of(test_set, like=train_set, flatten=True), 77)(network)["test_accuracy"] == expected
    square = Evaluation(Images.of(test_set, like=train_set), 77)(nn.Sequential(nn.Flatten(), network))
    assert square == Evaluation((whole, torch.from_numpy(test_set.labels)), 77)(network)


def test_files_are_evaluated_as_they_stream(tmp_path: Path) -> None:
    for i in range(7):
        save(tmp_path / f"train/{'ab'[i % 2]}/{i}.jpg", picture(i, 20 + i, 30))
    source = Folder.of(f"folder:{tmp_path}", size=6, workers=2)
    network = nn.Sequential(nn.Flatten(), mlp([108, 2], seed=0))
    x, y = source.batch(torch.arange(7), 0)
    assert Evaluation(source, 3)(network) == Evaluation((x, y), 3)(network)


def test_the_loop_takes_it() -> None:
    digits, test = load("digits"), load("digits", "test")
    source = Images.of(digits, flatten=True)
    network = mlp([64, 10], seed=0)
    done = train(network, source, epochs=2, batch_size=100,
                 evaluate=Evaluation(Images.of(test, like=digits, flatten=True)))  # fmt: skip
    accuracies = [row["test_accuracy"] for row in done.history]
    assert len(accuracies) == 3 and accuracies[0] < 0.3 < 0.85 < accuracies[-1]
    assert done.history[-1]["test_loss"] < done.history[0]["test_loss"]


def test_low_precision_is_judged_in_full() -> None:
    inputs, targets = examples(500)
    network = mlp([4, 64, 7], seed=0)
    full = Evaluation((inputs, targets))(network)
    low = Evaluation((inputs, targets), precision="bfloat16")(network)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        outputs = network(inputs)
    assert outputs.dtype == torch.bfloat16 and low["test_loss"] == F.cross_entropy(outputs.float(), targets).item()
    assert low["test_loss"] != full["test_loss"] and low["test_loss"] == pytest.approx(full["test_loss"], rel=0.01)
    assert Evaluation((inputs, targets), precision="auto")(network) == full  # on a CPU


def test_targets_that_are_no_classes_have_no_accuracy() -> None:
    inputs = torch.randn(30, 4, generator=generator(0))
    found = Evaluation((inputs, inputs[:, :2]), 7, loss=F.mse_loss)(nn.Linear(4, 2))
    assert list(found) == ["test_loss"]
    assert Evaluation((inputs, inputs), 7, loss=F.mse_loss)(nn.Identity()) == {"test_loss": 0.0}


def test_a_source_is_moved_once_for_a_device() -> None:
    moves: list[str] = []

    class Noted(Pair):
        def to(self, device: str | torch.device) -> "Noted":
            moves.append(str(device))
            return self

    test = Evaluation(Noted(*examples(5)))
    test(mlp([4, 7], seed=0)), test(mlp([4, 7], seed=1))
    assert moves == []


def test_unusable_arguments() -> None:
    image = (torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match=r"as they are, and these have PadCropFlip\(pad=4, flip=True\)"):
        Evaluation(Images.of(load("digits"), augment=PadCropFlip(4)))
    with pytest.raises(InputError, match="batch_size=0"):
        Evaluation(image, 0)
    with pytest.raises(InputError, match="name=''"):
        Evaluation(image, name="")
    with pytest.raises(InputError, match="example 1 has label 7 and the network has 7 outputs"):
        Evaluation((torch.zeros(2, 4), torch.tensor([6, 7])))(mlp([4, 7], seed=0))
    with pytest.raises(InputError, match="example 1 has label 7 and the network has 7 outputs"):
        Evaluation((torch.zeros(2, 4), torch.tensor([6, 7])))(Stacked.of([mlp([4, 7], seed=0)]))
