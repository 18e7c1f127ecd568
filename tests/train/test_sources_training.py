"""Sources inside the training loop: resumed runs, streamed runs and runs on tuples give the same bits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from epoch0.data import DataSet, load
from epoch0.networks import mlp
from epoch0.seeds import generator
from epoch0.train.data import Folder, Images, PadCropFlip, Pair, image_sources
from epoch0.train.evaluation import Evaluation
from epoch0.train.loop import ORDER, train
from made_trees import picture, save


def network(inputs: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), mlp([inputs, 12, classes], seed=0))


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photographs")
    for i in range(30):
        save(root / f"train/{'abc'[i % 3]}/{i:02d}.JPEG", picture(i, 20 + i, 50 - i))
    return root


def test_images_train_as_the_inputs_of_their_data_set() -> None:
    digits = load("digits")
    tensors = (torch.from_numpy(digits.inputs("standard")), torch.from_numpy(digits.labels))
    models = []
    for source in (tensors, Pair(*tensors), Images.of(digits, flatten=True), Images.of(digits)):
        models.append(network(64, 10))
        train(models[-1], source, steps=30, batch_size=50, learning_rate=0.1)
    assert all(same(models[0], model) for model in models[1:])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_resumed_run_with_augmentation_equals_one_in_one_go(tmp_path: Path, folder: Path, streamed: bool) -> None:
    digits = load("digits")
    if streamed:
        whole, later = (Folder.of(f"folder:{folder}", augment=True, size=8, workers=workers) for workers in (1, 3))
        inputs, classes, batch_size = 192, 3, 7
    else:
        whole, later = (Images.of(digits, augment=PadCropFlip(2)) for _ in range(2))
        inputs, classes, batch_size = 64, 10, 200
    settings = {"batch_size": batch_size, "learning_rate": 0.05}
    at_once = network(inputs, classes)
    train(at_once, whole, steps=13, **settings)
    in_parts = network(inputs, classes)
    for steps in (4, 9, 13):  # epochs are of 5 and 8 steps: the parts begin in the middle of them
        in_parts = network(inputs, classes)
        train(in_parts, later, steps=steps, checkpoint=tmp_path / "run.safetensors", **settings)
    assert same(at_once, in_parts)
    plain = network(inputs, classes)
    train(plain, Images.of(digits) if not streamed else Folder.of(f"folder:{folder}", size=8), steps=13, **settings)
    assert not same(plain, at_once)


def test_the_loop_by_hand_on_an_augmented_source() -> None:
    """Every batch is augmented with a seed of its own, in the order of the run."""
    digits = load("digits")
    seen: list[tuple[torch.Tensor, int]] = []

    class Noted(Images):
        def to(self, device: str | torch.device) -> Images:
            return self

        def batch(self, chosen: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
            seen.append((chosen, seed))
            return super().batch(chosen, seed)

    plain = Images.of(digits)
    train(network(64, 10), Noted(plain.images, plain.targets, plain.scaling, PadCropFlip(1)), epochs=2, batch_size=500)
    orders = [torch.cat([chosen for chosen, _ in part]) for part in (seen[:3], seen[3:])]
    for epoch, order in enumerate(orders):
        assert torch.equal(order, torch.randperm(1437, generator=generator(0, ORDER, epoch)))
    assert len({seed for _, seed in seen}) == 6


def test_a_network_learns_from_files(tmp_path: Path) -> None:
    """Reddish, greenish and bluish photographs are told apart on others than it was trained on."""
    for i in range(60):
        pixels = np.asarray(picture(i, 20 + i, 70 - i)) // 2
        pixels[..., i % 3] += 90
        save(tmp_path / f"{'train' if i < 45 else 'val'}/{'abc'[i % 3]}/{i}.jpg", Image.fromarray(pixels))
    train_set, test_set = (Folder.of(f"folder:{tmp_path}", split, augment=split == "train", size=8, workers=2)
                           for split in ("train", "test"))  # fmt: skip
    done = train(network(192, 3), train_set, epochs=12, batch_size=9, learning_rate=0.05,
                 evaluate=Evaluation(test_set), evaluate_every=60)  # fmt: skip
    assert done.history[0]["test_accuracy"] < 0.6 and done.history[-1]["test_accuracy"] == 1


def test_any_set_by_name() -> None:
    train_set, test_set = image_sources("digits", augment=True)
    assert isinstance(train_set, Images) and train_set.augment == PadCropFlip(4) and test_set.augment is None
    assert torch.equal(train_set.scaling, test_set.scaling) and train_set.shape == (1, 8, 8)
    plain, _ = image_sources("digits")
    chosen = torch.arange(5)
    assert torch.equal(plain.augmented(PadCropFlip(4)).batch(chosen, 3)[0], train_set.batch(chosen, 3)[0])
    assert plain.augmented(PadCropFlip(4)).images is plain.images and plain.augment is None


def test_batches_are_made_on_the_device() -> None:
    """On the meta device, where a tensor of the host among the others is an error."""
    random = np.random.default_rng(0)
    made = DataSet("made", "train", random.integers(0, 256, (9, 3, 8, 8), dtype=np.uint8), np.arange(9) % 2, ("a", "b"))
    x, y = Images.of(made, augment=PadCropFlip(2)).to("meta").batch(torch.tensor([4, 2]), 0)
    assert x.device.type == y.device.type == "meta" and x.shape == (2, 3, 8, 8)
    x, y = Pair(torch.eye(9), torch.arange(9)).to(torch.device("meta")).batch(torch.tensor([4, 2]), 0)
    assert x.device.type == y.device.type == "meta" and x.shape == (2, 9)
