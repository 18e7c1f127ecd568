"""The data path of CIFAR-10 (gather, pad-crop-flip, standardization) against a training step; decoding of files."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from clock import cpu_seconds
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from epoch0.data import DataSet
from epoch0.data.image_files import read_images
from epoch0.networks import resnet
from epoch0.train.data import Folder, Images, PadCropFlip

BATCH, IMAGES = 128, 50_000


def made() -> DataSet:
    """Images of CIFAR-10's sizes; what is in them does not change the time."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    return DataSet("made", "train", images, random.integers(0, 10, IMAGES), tuple("0123456789"))


def path_against_step() -> dict[str, float]:
    """CPU seconds of one batch of 128 with and without augmentation, and of one step of ResNet-20."""
    dataset = made()
    order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(0))
    batches = iter(order.repeat(10).split(BATCH))
    sources = {
        "augmented": Images.of(dataset, augment=PadCropFlip(4)),
        "plain": Images.of(dataset),
    }
    found = {
        name: cpu_seconds(lambda source=source: source.batch(next(batches), 7), 100) for name, source in sources.items()
    }
    network = resnet(20, seed=0)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    x, y = sources["augmented"].batch(next(batches), 7)

    def step(x: Tensor = x, y: Tensor = y) -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    found["step"] = cpu_seconds(step, 4)
    return found


def decoding() -> dict[str, float]:
    """Images a CPU second of one thread: 64 x 64 read into memory, 500 x 375 with random crops to 224 x 224."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        for i in range(60):
            for name, size in (("small", (64, 64)), ("large", (500, 375))):
                coarse = Image.fromarray(random.integers(0, 256, (size[1] // 9, size[0] // 9, 3), dtype=np.uint8))
                path = Path(scratch) / name / f"train/{i % 2}/{i}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                coarse.resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
        small = sorted((Path(scratch) / "small").rglob("*.jpg")) * 10
        source = Folder.of(f"folder:{scratch}/large", augment=True, workers=1)
        everything = torch.arange(len(source))
        return {
            "of 64 x 64": len(small) / cpu_seconds(lambda: read_images(small, workers=1), 3),
            "of 500 x 375, random parts at 224 x 224": len(source)
            / cpu_seconds(lambda: source.batch(everything, 0), 3),
        }


def main() -> None:
    """Print what the data cost of a step, and how fast files are decoded."""
    torch.set_num_threads(1)
    found = path_against_step()
    step = found.pop("step")
    print(f"a step of ResNet-20, batch {BATCH}: {step:.3f} CPU s; its data (limit 3 %):")
    for name, seconds in found.items():
        print(f"  {name}: {1e3 * seconds:.2f} ms, {100 * seconds / step:.2f} % of the step")
    for name, rate in decoding().items():
        print(f"JPEG files {name}: {rate:,.0f} a CPU second")


if __name__ == "__main__":
    main()
