"""The data path of CIFAR-10: gather, pad-crop-flip and standardization of a batch against a training step."""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from epoch0.data import DataSet
from epoch0.networks import resnet
from epoch0.train.augmentation import PadCropFlip
from epoch0.train.sources import Images

BATCH, IMAGES = 128, 50_000


def made() -> DataSet:
    """Images of CIFAR-10's sizes; what is in them does not change the time."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    return DataSet("made", "train", images, random.integers(0, 10, IMAGES), tuple("0123456789"))


def least(run: Callable[[], object], runs: int) -> float:
    """Least CPU seconds of single calls."""
    found = []
    for _ in range(runs):
        before = time.process_time()
        run()
        found.append(time.process_time() - before)
    return min(found)


def path_against_step() -> dict[str, float]:
    """CPU seconds of one batch of 128 with and without augmentation, and of one step of ResNet-20."""
    dataset = made()
    order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(0))
    batches = iter(order.repeat(10).split(BATCH))
    sources = {
        "augmented": Images.of(dataset, augment=PadCropFlip(4)),
        "plain": Images.of(dataset),
        "augmented, channels last": Images.of(dataset, augment=PadCropFlip(4), channels_last=True),
    }
    found = {name: least(lambda source=source: source.batch(next(batches), 7), 100) for name, source in sources.items()}
    network = resnet(20, seed=0)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    x, y = sources["augmented"].batch(next(batches), 7)

    def step(x: Tensor = x, y: Tensor = y) -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    found["step"] = least(step, 4)
    return found


def main() -> None:
    """Print what the data cost of a step."""
    torch.set_num_threads(1)
    found = path_against_step()
    step = found.pop("step")
    print(f"a step of ResNet-20, batch {BATCH}: {step:.3f} CPU s; its data (limit 3 %):")
    for name, seconds in found.items():
        print(f"  {name}: {1e3 * seconds:.2f} ms, {100 * seconds / step:.2f} % of the step")


if __name__ == "__main__":
    main()
