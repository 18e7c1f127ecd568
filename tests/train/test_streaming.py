"""Images decoded while a network trains: the same bits for any number of threads, and damaged files told by name."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from epoch0 import data
from epoch0.data.image_files import decoded
from epoch0.errors import InputError
from epoch0.train.data import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    CentreCrop,
    CropResizeFlip,
    Folder,
    Images,
    PadCropFlip,
    batches,
    image_sources,
    uniforms,
)
from made_trees import picture, save, write_imagenet, write_tiny

SIZES = [(40, 30), (20, 50), (33, 33), (8, 70), (64, 48), (5, 5)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EPOCH0_DATA", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of many sizes and colour modes in three classes."""
    root = tmp_path_factory.mktemp("photographs")
    for i in range(24):
        mode = {5: "L", 11: "CMYK"}.get(i, "RGB")
        save(root / f"train/{'abc'[i % 3]}/{i:02d}.JPEG", picture(i, *SIZES[i % 6], mode=mode))
    return root


# --- the slow twin: one image at a time


def part_by_hand(width: int, height: int, u: list[float]) -> tuple[int, int, int, int]:
    """Left, upper, width and height of a random part, as Szegedy et al. describe it."""
    for i in range(10):
        area = (0.08 + 0.92 * u[2 * i]) * width * height
        ratio = (3 / 4) ** (1 - u[2 * i + 1]) * (4 / 3) ** u[2 * i + 1]
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 1 <= w <= width and 1 <= h <= height:
            return math.floor(u[20] * (width - w + 1)), math.floor(u[21] * (height - h + 1)), w, h
    if width / height < 3 / 4:
        w, h = width, round(width * 4 / 3)
    elif width / height > 4 / 3:
        w, h = round(height * 4 / 3), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


def by_hand(path: Path, number: int, seed: int, size: int, augment: bool) -> np.ndarray:
    """Inputs of one image, float32 of shape (3, size, size)."""
    image = Image.open(path).convert("RGB")
    if augment:
        u = uniforms(np.array([number]), seed, 23)[0].tolist()
        left, upper, w, h = part_by_hand(*image.size, u)
        image = Image.fromarray(np.asarray(image)[upper : upper + h, left : left + w])
        image = image.resize((size, size), Image.Resampling.BILINEAR)
        if u[22] < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    else:
        short, (w, h) = size * 8 // 7, image.size
        image = image.resize((short, int(short * h / w)) if w < h else (int(short * w / h), short),
                             Image.Resampling.BILINEAR)  # fmt: skip
        left, upper = round((image.width - size) / 2), round((image.height - size) / 2)
        image = Image.fromarray(np.asarray(image)[upper : upper + size, left : left + size])
    mean = (np.array(IMAGENET_MEAN) * 255).astype(np.float32)
    std = (np.array(IMAGENET_STD) * 255).astype(np.float32)
    return ((np.asarray(image).astype(np.float32) - mean) / std).transpose(2, 0, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 23), min_size=1, max_size=20), st.integers(0, 2**62), st.sampled_from([7, 21]),
    st.booleans(), st.integers(1, 4),
)  # fmt: skip
def test_batches_against_one_image_at_a_time(
    folder: Path, numbers: list[int], seed: int, size: int, augment: bool, workers: int
) -> None:
    source = Folder.of(f"folder:{folder}", augment=augment, size=size, workers=workers)
    x, y = source.batch(torch.tensor(numbers, dtype=torch.int64), seed)
    twin = [by_hand(source.files.path(number), number, seed, size, augment) for number in numbers]
    assert x.shape == (len(numbers), *source.shape) and x.dtype == torch.float32
    assert np.array_equal(x.numpy(), np.stack(twin)) and x.is_contiguous()
    assert y.tolist() == [number // 8 for number in numbers] and source.classes == 3


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 10**6))
def test_random_parts_lie_inside_the_image(width: int, height: int, seed: int) -> None:
    u = uniforms(np.arange(5), seed, CropResizeFlip.numbers)
    for own in u:
        left, upper, right, lower = CropResizeFlip().box(width, height, own)
        assert 0 <= left < right <= width and 0 <= upper < lower <= height


def test_shares_of_the_area_are_drawn_evenly() -> None:
    """A large square image: nearly every first draw fits where the share is below 3/4, so shares are uniform there.
    2,000 parts; Kolmogorov-Smirnov at 1e-4 with a fixed seed."""
    boxes = [CropResizeFlip().box(5000, 5000, own) for own in uniforms(np.arange(2000), 0, CropResizeFlip.numbers)]
    shares = np.array([(right - left) * (lower - upper) / 25e6 for left, upper, right, lower in boxes])
    low = np.sort(shares[shares < 0.75])
    distance = np.abs((low - 0.08) / 0.67 - (np.arange(len(low)) + 0.5) / len(low)).max()
    assert distance < 2.23 / np.sqrt(len(low)) and shares.max() > 0.95
    ratios = np.log([(right - left) / (lower - upper) for left, upper, right, lower in boxes])
    assert np.abs(ratios).max() < math.log(4 / 3) + 0.01 and abs(ratios.mean()) < 5 * 0.167 / np.sqrt(2000)


def test_long_images_fall_back_on_their_centre() -> None:
    u = np.full(CropResizeFlip.numbers, 1 - 1e-9)  # ten times nearly the whole area at 4:3, which does not fit
    assert CropResizeFlip().box(300, 90, u) == (90, 0, 210, 90)
    u[1:20:2] = 0.0  # at 3:4
    assert CropResizeFlip().box(30, 90, u) == (0, 25, 30, 65)
    assert CropResizeFlip().box(100, 90, u) == (0, 0, 100, 90)


# --- order, workers, parts


def plan(count: int, size: int, seed: int = 0) -> list[tuple[torch.Tensor, int]]:
    order = torch.randperm(24, generator=torch.Generator().manual_seed(seed)).repeat(3)
    return [(order[i * size : (i + 1) * size], 100 + i) for i in range(count)]


@pytest.mark.parametrize("workers", [1, 3])
def test_streaming_ahead_changes_nothing(folder: Path, workers: int) -> None:
    source = Folder.of(f"folder:{folder}", augment=True, size=9, workers=workers)
    found = list(batches(source, plan(6, 7)))
    assert len(found) == 6
    for (x, y), (chosen, seed) in zip(found, plan(6, 7), strict=True):
        expected = source.batch(chosen, seed)
        assert torch.equal(x, expected[0]) and torch.equal(y, expected[1])
    resumed = list(batches(source, plan(6, 7)[4:]))
    assert torch.equal(resumed[0][0], found[4][0]) and torch.equal(resumed[1][0], found[5][0])


def test_ranks_decode_their_part_only_and_make_up_the_joint_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Folder.of(f"folder:{folder}", augment=True, size=9, workers=2)
    chosen = torch.tensor([3, 17, 4, 9, 22])
    whole, _ = source.batch(chosen, 5)
    opened: list[str] = []
    real = decoded
    monkeypatch.setattr("epoch0.train.data.decoded", lambda path: opened.append(path.name) or real(path))
    parts = [source.batch(part, 5)[0] for part in chosen.tensor_split(2)]
    assert torch.equal(torch.cat(parts), whole) and len(opened) == 5


def test_nothing_is_opened_before_it_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = decoded
    monkeypatch.setattr("epoch0.train.data.decoded", lambda path: opened.append(path.name) or real(path))
    source = Folder.of(f"folder:{folder}", size=9, workers=1)
    assert len(source) == 24 and not opened
    stream = batches(source, plan(6, 4))
    assert not opened
    next(stream)
    stream.close()
    source._pool.shutdown()
    assert 4 <= len(opened) <= 8  # its own batch, and at most the one that was begun ahead


def test_fingerprints(folder: Path) -> None:
    name = f"folder:{folder}"
    prints = [Folder.of(name), Folder.of(name, augment=True), Folder.of(name, size=64), Folder.of(name).first(9)]
    assert len({source.fingerprint for source in prints}) == 4
    assert Folder.of(name, workers=5).to("cpu").fingerprint == prints[0].fingerprint


# --- what cannot be used


@pytest.mark.parametrize("workers", [1, 4])
def test_the_first_damaged_file_of_a_batch_is_named(tmp_path: Path, workers: int) -> None:
    for i in range(20):
        path = save(tmp_path / f"train/a/{i:02d}.jpg", picture(i))
        if i in (6, 15):
            path.write_bytes(path.read_bytes()[:-100])
    source = Folder.of(f"folder:{tmp_path}", size=9, workers=workers)
    stream = batches(source, [(torch.arange(5), 0), (torch.arange(19, 4, -1), 1), (torch.arange(3), 2)])
    next(stream)
    with pytest.raises(InputError, match=r"15\.jpg is not a readable image: .*truncated"):
        next(stream)
    source.files.path(2).unlink()
    with pytest.raises(InputError, match=r"02\.jpg is not a readable image: .*No such file"):
        source.batch(torch.arange(5), 0)


def test_unusable_arguments(folder: Path) -> None:
    for settings_, message in (({"workers": 0}, "workers=0"), ({"size": 0}, "size=0")):
        with pytest.raises(InputError, match=message):
            Folder.of(f"folder:{folder}", **settings_)
    with pytest.raises(InputError, match="a square of 9 pixels cannot be cut from an image 8 wide"):
        CentreCrop(9, shorter=8)
    with pytest.raises(InputError, match="cannot come with flatten=True"):
        image_sources("imagenet", flatten=True)


# --- any set by name


def test_imagenet_streams(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "imagenet")
    train, test = image_sources("imagenet", augment=True, data_dir=tmp_path)
    assert isinstance(train, Folder) and train.view == CropResizeFlip(224) and test.view == CentreCrop(224, 256)
    assert train.classes == 1000 and train.shape == (3, 224, 224) and train.targets.tolist() == list(range(1000))
    assert test.augmented().view == CropResizeFlip(224) and test.augmented().files is test.files
    x, y = test.batch(torch.tensor([999, 0]), 0)
    assert x.shape == (2, 3, 224, 224) and y.tolist() == [999, 0]


def test_tiny_imagenet_is_held(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny-imagenet-200")
    train, test = image_sources("tiny-imagenet", augment=True, data_dir=tmp_path)
    assert isinstance(train, Images) and train.augment == PadCropFlip(4) and test.augment is None
    assert train.shape == test.shape == (3, 64, 64) and train.classes == 4 and len(test) == 10
    like = data.load("tiny-imagenet", data_dir=tmp_path)
    expected = data.load("tiny-imagenet", "test", tmp_path).inputs("standard", flatten=False, like=like)
    assert np.array_equal(test.batch(torch.arange(10), 0)[0].numpy(), expected)
    streamed = Folder.of("tiny-imagenet", "test", size=64, data_dir=tmp_path)
    assert streamed.targets.tolist() == test.targets.tolist()
