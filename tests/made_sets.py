"""Small image sets in the layouts of the known ones, written by the tests that read them back."""

import gzip
from pathlib import Path

import numpy as np

from epoch0.data.dataset import IDX_TYPES

CIFAR10_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def made_idx(seed: int, count: int, size: int = 28) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(1, 256, (count, size, size), dtype=np.uint8), (np.arange(count) % 10).astype(np.uint8)


def encode_idx(array: np.ndarray) -> bytes:
    """The bytes of an IDX file that holds this array."""
    codes = {np.dtype(name): code for code, name in IDX_TYPES.items()}
    kind = array.dtype.newbyteorder(">")
    return (
        bytes([0, 0, codes[kind], array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(kind).tobytes()
    )


def write_idx(path: Path, array: np.ndarray) -> None:
    raw = encode_idx(array)
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


def write_set(folder: Path, count: int = 20, names: str = "{}-{}-idx{}-ubyte.gz") -> None:
    """A small set in the layout of MNIST: `count` train and count / 2 test images."""
    folder.mkdir(parents=True)
    for seed, (prefix, number) in enumerate((("train", count), ("t10k", count // 2))):
        images, labels = made_idx(seed, number)
        write_idx(folder / names.format(prefix, "images", 3), images)
        write_idx(folder / names.format(prefix, "labels", 1), labels)


def write_cifar(folder: Path, files: list[str], label_bytes: int, classes: int, count: int = 4) -> np.ndarray:
    folder.mkdir(parents=True)
    random = np.random.default_rng(len(files))
    records = random.integers(0, 256, (len(files), count, label_bytes + 3072), dtype=np.uint8)
    records[..., :label_bytes] %= min(classes, 20)
    for name, batch in zip(files, records, strict=True):
        (folder / name).write_bytes(batch.tobytes())
    return records
