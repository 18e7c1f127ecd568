"""IDX, CIFAR, image and npz readers: what is written comes back, and no broken file gives anything but InputError."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from epoch0.data import load_npz, read_idx
from epoch0.data.dataset import parse_cifar, parse_idx
from epoch0.data.image_files import read_images
from epoch0.errors import InputError
from made_sets import encode_idx, write_idx

DTYPES = [np.uint8, np.int8, np.int16, np.int32, np.float32, np.float64]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))
)


def idx_by_hand(array: np.ndarray) -> bytes:
    """The slow twin of encode_idx: one struct.pack a number."""
    code, letter = {"uint8": (8, "B"), "int8": (9, "b"), "int16": (11, "h"), "int32": (12, "i"),
                    "float32": (13, "f"), "float64": (14, "d")}[array.dtype.name]  # fmt: skip
    head = struct.pack(">HBB", 0, code, array.ndim) + b"".join(struct.pack(">I", size) for size in array.shape)
    return head + b"".join(struct.pack(f">{letter}", number) for number in array.ravel().tolist())


@given(ARRAYS)
def test_idx_round_trip(array: np.ndarray) -> None:
    raw = encode_idx(array)
    assert raw == idx_by_hand(array)
    back = parse_idx(raw, "made")
    assert back.dtype == array.dtype and back.dtype.isnative and back.shape == array.shape
    np.testing.assert_array_equal(back, array)


@given(ARRAYS)
def test_every_truncation_of_an_idx_file_is_refused(array: np.ndarray) -> None:
    raw = encode_idx(array)
    for length in range(len(raw)):
        with pytest.raises(InputError, match="made"):
            parse_idx(raw[:length], "made")
    with pytest.raises(InputError, match="too long"):
        parse_idx(raw + b"\0", "made")


@given(ARRAYS, st.data())
def test_a_corrupted_header_is_refused_or_read_as_what_it_says(array: np.ndarray, data: st.DataObject) -> None:
    """Some corruptions give another well-formed file (uint8 -> int8); then the array read must say so exactly."""
    raw = bytearray(encode_idx(array))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, 3 + 4 * array.ndim))] = data.draw(st.integers(0, 255))
    try:
        back = parse_idx(bytes(raw), "made")
    except InputError:
        return
    assert encode_idx(back) == bytes(raw)


@given(st.binary(max_size=40))
def test_any_bytes_are_refused_or_a_whole_idx_file(raw: bytes) -> None:
    try:
        back = parse_idx(raw, "made")
    except InputError:
        return
    assert encode_idx(back) == raw


def test_sizes_beyond_any_array_are_refused() -> None:
    for sizes in ([2**32 - 1] * 3 + [0], [0] * 33):
        raw = bytes([0, 0, 8, len(sizes)]) + np.array(sizes, ">u4").tobytes()
        with pytest.raises(InputError, match="more than an array can have"):
            parse_idx(raw, "made")


@pytest.mark.parametrize("name", ["plain-idx3-ubyte", "packed-idx3-ubyte.gz"])
def test_idx_files_on_disk(tmp_path: Path, name: str) -> None:
    array = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    write_idx(tmp_path / name, array)
    np.testing.assert_array_equal(read_idx(tmp_path / name), array)


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    raw = encode_idx(np.arange(5, dtype=np.uint8))
    (tmp_path / "packed").write_bytes(gzip.compress(raw))
    (tmp_path / "plain.gz").write_bytes(raw)
    (tmp_path / "members.gz").write_bytes(gzip.compress(raw[:6]) + gzip.compress(raw[6:]) + b"\0" * 9)
    for name in ("packed", "plain.gz", "members.gz"):
        np.testing.assert_array_equal(read_idx(tmp_path / name), np.arange(5))


def test_gzip_larger_than_one_piece(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 1 << 20), dtype=np.uint8)  # incompressible: 3 pieces
    write_idx(tmp_path / "big.gz", array)
    np.testing.assert_array_equal(read_idx(tmp_path / "big.gz"), array)
    raw = encode_idx(array)
    (tmp_path / "two.gz").write_bytes(gzip.compress(raw[:1_500_000]) + gzip.compress(raw[1_500_000:]))
    np.testing.assert_array_equal(read_idx(tmp_path / "two.gz"), array)


def test_every_truncation_of_a_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(encode_idx(np.arange(30, dtype=np.uint8)), mtime=0)
    file = tmp_path / "cut.gz"
    for length in range(len(packed)):
        file.write_bytes(packed[:length])
        with pytest.raises(InputError, match=r"cut\.gz"):
            read_idx(file)


def test_every_flipped_byte_of_a_gzip_body_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(encode_idx(np.arange(30, dtype=np.uint8)), mtime=0)
    file = tmp_path / "flipped.gz"
    for place in range(10, len(packed)):  # the first ten bytes hold time and system, which say nothing of the content
        file.write_bytes(packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :])
        with pytest.raises(InputError, match=r"flipped\.gz"):
            read_idx(file)


def test_rubbish_after_gzip_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tail.gz").write_bytes(gzip.compress(encode_idx(np.arange(3, dtype=np.uint8))) + b"more")
    with pytest.raises(InputError, match=r"tail\.gz is a damaged gzip file"):
        read_idx(tmp_path / "tail.gz")


def test_truncation_names_file_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(encode_idx(np.zeros((10, 28, 28), np.uint8))[:-100])
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte is truncated: it has 7,756 bytes.* asks for 7,856"):
        read_idx(file)


def test_a_missing_file_or_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_idx(path)


# --- CIFAR


@given(st.integers(1, 4), st.sampled_from([(1, 10), (2, 100)]), st.integers(0, 2**32 - 1))
def test_cifar_round_trip(count: int, layout: tuple[int, int], seed: int) -> None:
    label_bytes, classes = layout
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = random.integers(0, classes, count)
    coarse = b"\x07" * (label_bytes - 1)
    raw = b"".join(coarse + bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))
    back, back_labels = parse_cifar(raw, "made", label_bytes, classes)
    np.testing.assert_array_equal(back, images)
    np.testing.assert_array_equal(back_labels, labels)
    assert back.flags.writeable and back_labels.dtype == np.int64
    for length in (0, 1, label_bytes + 3071, len(raw) - 1, len(raw) + 1):
        with pytest.raises(InputError, match="not a multiple"):
            parse_cifar((raw + b"\0")[:length], "made", label_bytes, classes)


def test_a_cifar_label_out_of_range_names_the_record() -> None:
    raw = bytes([9]) + bytes(3072) + bytes([10]) + bytes(3072)
    with pytest.raises(InputError, match=r"record 1 has label 10, and labels run from 0 to 9"):
        parse_cifar(raw, "made", 1, 10)


# --- image files


def test_images_keep_their_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "colour.png")
    Image.fromarray(pixels[..., 0]).save(tmp_path / "gray.png")
    colour = read_images([tmp_path / "colour.png"])
    np.testing.assert_array_equal(colour, pixels.transpose(2, 0, 1)[None])
    gray = read_images([tmp_path / "gray.png"])
    np.testing.assert_array_equal(gray, pixels[None, None, :, :, 0])
    mixed = read_images([tmp_path / "colour.png", tmp_path / "gray.png"])
    np.testing.assert_array_equal(mixed[0], colour[0])
    np.testing.assert_array_equal(mixed[1], np.repeat(gray[0], 3, axis=0))


def test_images_of_two_sizes_and_damaged_images_are_named(tmp_path: Path) -> None:
    Image.new("L", (4, 5)).save(tmp_path / "a.png")
    Image.new("L", (4, 6)).save(tmp_path / "b.png")
    with pytest.raises(InputError, match=r"b\.png is 4 x 6 pixels and .*a\.png is 4 x 5"):
        read_images([tmp_path / "a.png", tmp_path / "b.png"])
    whole = (tmp_path / "a.png").read_bytes()
    for damaged in (b"", b"no image", whole[:40], whole[:50] + bytes(20)):
        (tmp_path / "c.png").write_bytes(damaged)
        with pytest.raises(InputError, match=r"c\.png is not a readable image"):
            read_images([tmp_path / "c.png"])


def test_missing_pillow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InputError, match=r"needs pillow: pip install 'epoch0\[images\]'"):
        read_images([tmp_path / "a.png"])


# --- npz


def test_npz_with_and_without_targets(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
    np.savez(tmp_path / "xy.npz", x=x, y=np.arange(6))
    np.savez_compressed(tmp_path / "x.npz", x=x.astype(np.float64), other=np.zeros(2))
    inputs, targets = load_npz(tmp_path / "xy.npz")
    np.testing.assert_array_equal(inputs, x)
    assert targets is not None and targets.tolist() == [0, 1, 2, 3, 4, 5]
    inputs, targets = load_npz(str(tmp_path / "x.npz"))
    assert inputs.dtype == np.float64 and targets is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": np.zeros(3)}, "no array named x; it holds inputs"),
        ({"x": np.array(1.0)}, "at least one example"),
        ({"x": np.zeros((0, 3))}, "at least one example"),
        ({"x": np.array(["a"])}, "must hold real numbers"),
        ({"x": np.zeros(3, complex)}, "must hold real numbers"),
        ({"x": np.array([1.0, np.nan])}, "holds NaN"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, "3 examples in x but 2 in y"),
        ({"x": np.array([{}], dtype=object)}, "cannot be read"),
    ],
)
def test_unusable_npz_files(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_npz(tmp_path / "bad.npz")


def test_damaged_npz_files(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "good.npz", x=np.random.default_rng(0).normal(size=(20, 5)))
    whole = (tmp_path / "good.npz").read_bytes()
    bad = tmp_path / "bad.npz"
    with pytest.raises(InputError, match="cannot be read"):
        load_npz(bad)
    for damaged in [whole[:length] for length in range(0, len(whole), 7)] + [b"\x93NUMPY", whole[:200] + b"x" * 99]:
        bad.write_bytes(damaged)
        with pytest.raises(InputError, match=r"bad\.npz"):
            load_npz(bad)
    for place in range(0, len(whole), 3):  # a flipped byte is refused, or lies where zip says nothing of the content
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            x, _ = load_npz(bad)
        except InputError:
            continue
        np.testing.assert_array_equal(x, load_npz(tmp_path / "good.npz")[0])
