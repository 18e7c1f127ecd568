"""Augmentation against plain loops over pixels, and its random numbers against 64-bit arithmetic in Python."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epoch0.errors import InputError
from epoch0.seeds import numpy_generator
from epoch0.train.data import PadCropFlip, uniforms

MODULUS = 2**64
SEEDS = st.integers(0, 2**62)
NUMBERS = st.lists(st.integers(0, 10**7), min_size=1, max_size=12)


def mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % MODULUS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % MODULUS
    return z ^ (z >> 31)


def uniforms_by_hand(number: int, seed: int, count: int) -> list[float]:
    """SplitMix64 in Python's integers: the state of an image, then one step a number."""
    first, second = (int(key) for key in numpy_generator(seed).integers(2**64, size=2, dtype=np.uint64))
    state = mixed((first + number * 0x9E3779B97F4A7C15) % MODULUS) ^ second
    return [(mixed((state + (i + 1) * 0x9E3779B97F4A7C15) % MODULUS) >> 11) / 2**53 for i in range(count)]


@given(NUMBERS, SEEDS, st.integers(1, 5))
def test_numbers_of_an_image_against_plain_integers(numbers: list[int], seed: int, count: int) -> None:
    found = uniforms(np.array(numbers), seed, count)
    assert found.tolist() == [uniforms_by_hand(number, seed, count) for number in numbers]


def test_numbers_are_uniform_and_independent_of_each_other() -> None:
    """Chi-square of 64 cells, of each column, of pairs of columns and of neighbours; six looks at 99.99 %: with fixed
    seeds this passes or fails for good, and a right generator would fail for one seed in 1,700."""
    u = uniforms(np.arange(200_000), 3, 3)
    other = uniforms(np.arange(200_000), 4, 1)[:, 0]
    cells = [(u[:, i] * 64).astype(int) for i in range(3)]
    eighths = [(column * 8).astype(int) for column in (u[:, 0], u[:, 1], other)]
    cells += [eighths[0] * 8 + eighths[1], eighths[0] * 8 + eighths[2], eighths[0][1:] * 8 + eighths[0][:-1]]
    for cell in cells:
        counts = np.bincount(cell, minlength=64)
        expected = len(cell) / 64
        assert ((counts - expected) ** 2 / expected).sum() < 113  # 0.9999 quantile of chi-square, 63 degrees


def padded_cropped_flipped(image: torch.Tensor, pad: int, flip: bool, u: list[float]) -> torch.Tensor:
    """One image, pixel by pixel."""
    _, height, width = image.shape
    down, right = int(u[0] * (2 * pad + 1)), int(u[1] * (2 * pad + 1))
    out = torch.zeros_like(image, memory_format=torch.contiguous_format)
    for row in range(height):
        for column in range(width):
            y, x = row + down - pad, column + right - pad
            if 0 <= y < height and 0 <= x < width:
                out[:, row, width - 1 - column if flip and u[2] < 0.5 else column] = image[:, y, x]
    return out


@given(
    NUMBERS, SEEDS, st.integers(0, 5), st.booleans(), st.booleans(),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6)), st.sampled_from([torch.uint8, torch.float32]),
)  # fmt: skip
def test_pad_crop_flip_against_one_pixel_at_a_time(
    numbers: list[int], seed: int, pad: int, flip: bool, last: bool, shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    images = torch.randint(1, 256, (len(numbers), *shape), generator=torch.Generator().manual_seed(0)).to(dtype)
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    before = images.clone()
    found = PadCropFlip(pad, flip)(images, torch.tensor(numbers), seed)
    twin = [padded_cropped_flipped(image, pad, flip, uniforms_by_hand(number, seed, 3))
            for image, number in zip(images, numbers, strict=True)]  # fmt: skip
    assert found.dtype == dtype and torch.equal(found, torch.stack(twin))
    assert torch.equal(images, before)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=20), SEEDS, st.data())
def test_a_split_batch_is_the_joint_batch(numbers: list[int], seed: int, data: st.DataObject) -> None:
    images, chosen = torch.arange(len(numbers) * 50.0).reshape(-1, 2, 5, 5), torch.tensor(numbers)
    cut = data.draw(st.integers(1, len(numbers) - 1))
    augment = PadCropFlip(2)
    parts = [augment(images[part], chosen[part], seed) for part in (slice(None, cut), slice(cut, None))]
    assert torch.equal(torch.cat(parts), augment(images, chosen, seed))


def test_every_shift_and_both_sides_come_as_often() -> None:
    """81 shifts and 2 sides, 324,000 images: the largest of 162 deviations exceeds 5 sd by chance once in 10,000."""
    down, right, mirrored = PadCropFlip(4).drawn(torch.arange(324_000), seed=1)
    counts = np.bincount((down * 9 + right) * 2 + mirrored, minlength=162)
    assert counts.shape == (162,) and np.abs(counts - 2000).max() < 5 * np.sqrt(2000)


def test_a_negative_pad_is_refused() -> None:
    with pytest.raises(InputError, match=r"pad=-1: give an integer >= 0"):
        PadCropFlip(-1)
