"""Data sets by name: what is loaded, from where, and what is refused."""

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epoch0 import data
from epoch0.data.catalogue import SETS
from epoch0.errors import InputError
from epoch0.papers.reproduce import environment
from made_sets import CIFAR10_FILES, encode_idx, made_idx, write_cifar, write_idx, write_set

REAL = Path(os.environ["EPOCH0_DATA"]) if os.environ.get("EPOCH0_DATA") else None

# labels 0..9 counted in the official files
HISTOGRAMS = {
    ("mnist", "train"): [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    ("mnist", "test"): [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    ("fashion-mnist", "train"): [6000] * 10,
    ("fashion-mnist", "test"): [1000] * 10,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own, and no EPOCH0_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EPOCH0_DATA", raising=False)
    return tmp_path / "cache" / "epoch0"


# --- the embedded digits


def test_digits_are_the_official_1797_in_a_stratified_split() -> None:
    train, test = data.load("digits"), data.load("digits", split="test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.images.shape == (1437, 1, 8, 8) and train.images.dtype == np.uint8 and train.labels.dtype == np.int64
    assert train.verified and test.verified and train.peak == train.images.max() == test.images.max() == 16
    both = np.bincount(train.labels) + np.bincount(test.labels)
    assert both.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as the source describes them
    assert set(np.bincount(test.labels)) <= {35, 36, 37}
    whole = {image.tobytes() for image in np.concatenate([train.images, test.images])}
    assert len(whole) == 1797  # no image twice, so none in both splits
    assert str(train) == "digits (train): 1,437 images of 1 x 8 x 8, 10 classes, official content"


def test_digits_look_like_digits() -> None:
    """The mean image of its class is the nearest one for most test images: pixels and labels belong together."""
    train, test = data.load("digits"), data.load("digits", split="test")
    means = np.stack([train.inputs()[train.labels == label].mean(axis=0) for label in range(10)])
    distances = ((test.inputs()[:, None] - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == test.labels).mean() > 0.85


def test_digits_come_from_the_package_whatever_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path / "absent"))
    assert data.load("digits", data_dir=tmp_path).verified
    assert data.path("digits") == data.fetch("digits") == Path(data.__file__).parent / "digits"


# --- inputs


def test_inputs_against_plain_formulas() -> None:
    digits = data.load("digits", split="test")
    pixels = digits.images.astype(np.float64)
    flat = pixels.reshape(360, 64)
    unit = digits.inputs("unit", dtype=np.float64)
    np.testing.assert_allclose(unit, flat / 16, rtol=1e-15)
    standard = digits.inputs("standard", dtype=np.float64)
    np.testing.assert_allclose(standard, (flat - flat.mean()) / flat.std(), rtol=1e-12, atol=1e-14)
    norm = digits.inputs("norm", dtype=np.float64)
    np.testing.assert_allclose(norm, flat / np.sqrt((flat**2).sum(axis=1, keepdims=True)), rtol=1e-14)
    np.testing.assert_array_equal(digits.inputs(None, flatten=False), pixels)
    for normalize in (*data.NORMALIZATIONS, None):
        values = digits.inputs(normalize)
        assert values.shape == (360, 64) and values.dtype == np.float32 and values.flags.writeable
        exact = digits.inputs(normalize, flatten=False, dtype="float64")
        assert exact.shape == (360, 1, 8, 8) and exact.dtype == np.float64
        np.testing.assert_allclose(values, exact.reshape(360, 64), rtol=1e-5, atol=1e-6)
        values[:] = 0
    assert digits.images.any()  # inputs are copies


def colour_set(seed: int = 0, **changes: object) -> data.DataSet:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (30, 3, 4, 5), dtype=np.uint8) // np.array([1, 2, 3], np.uint8).reshape(3, 1, 1)
    arguments = {"name": "made", "split": "train", "images": images, "labels": np.arange(30) % 2, "classes": ("a", "b")}
    return data.DataSet(**(arguments | changes))  # type: ignore[arg-type]


def test_standard_is_per_channel_and_can_use_another_sets_statistics() -> None:
    train, test = colour_set(0), colour_set(1, split="test")
    own = train.inputs("standard", flatten=False, dtype=np.float64)
    np.testing.assert_allclose(own.mean(axis=(0, 2, 3)), 0, atol=1e-13)
    np.testing.assert_allclose(own.std(axis=(0, 2, 3)), 1, rtol=1e-13)
    other = test.inputs("standard", flatten=False, dtype=np.float64, like=train)
    mean = train.images.mean(axis=(0, 2, 3)).reshape(3, 1, 1)
    std = train.images.std(axis=(0, 2, 3)).reshape(3, 1, 1)
    np.testing.assert_allclose(other, (test.images - mean) / std, rtol=1e-12, atol=1e-13)


def test_statistics_of_many_images_are_those_of_all() -> None:
    images = np.random.default_rng(0).integers(0, 256, (700, 2, 3, 3), dtype=np.uint8)
    images[600:, 1] = 9  # the last images differ from the first
    shift, divisor = colour_set(images=images, labels=np.zeros(700, np.int64)).scaling()
    np.testing.assert_allclose(shift, images.mean(axis=(0, 2, 3)), rtol=1e-14)
    np.testing.assert_allclose(divisor, images.std(axis=(0, 2, 3)), rtol=1e-13)


def test_unusable_inputs() -> None:
    made = colour_set()
    with pytest.raises(InputError, match=r"normalize='unti' is not known; use 'unit'.* Did you mean 'unit'"):
        made.inputs("unti")
    with pytest.raises(InputError, match="floating-point"):
        made.inputs(dtype="int64")
    with pytest.raises(InputError, match="like= names the statistics"):
        made.inputs("unit", like=made)
    with pytest.raises(InputError, match="1 channels and made has 3"):
        made.inputs("standard", like=data.load("digits"))
    flat = made.images.copy()
    flat[:, 1] = 7
    with pytest.raises(InputError, match=r"channel 1 of made .* is constant"):
        colour_set(images=flat).inputs("standard")
    flat[4] = 0
    with pytest.raises(InputError, match=r"image 4 of made .* entirely black"):
        colour_set(images=flat).inputs("norm")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(29, np.int64)}, "30 images but 29 labels"),
        ({"labels": np.full(30, 2)}, "labels from 2 to 2 for 2 classes; labels run from 0 to 1"),
        ({"labels": np.full(30, -1)}, "labels from -1"),
        ({"images": np.zeros((0, 1, 2, 2), np.uint8), "labels": np.zeros(0, np.int64)}, "holds no image"),
        ({"images": np.zeros((30, 2, 2), np.uint8)}, r"images of shape \(30, 2, 2\)"),
    ],
)
def test_parts_that_do_not_fit_together(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        colour_set(**changes)


# --- looking for a set


def real_or_made(tmp_path: Path, name: str) -> tuple[Path, bool]:
    """The folder named by EPOCH0_DATA when the tests began if it has the set, else made files of the same layout."""
    if REAL is not None and (REAL / name / "train-images-idx3-ubyte.gz").is_file():
        return REAL, True
    write_set(tmp_path / "made" / name)
    return tmp_path / "made", False


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_sets_have_the_official_content_where_they_are_official(tmp_path: Path, name: str) -> None:
    folder, official = real_or_made(tmp_path, name)
    for split, count in (("train", 60_000), ("test", 10_000)):
        loaded = data.load(name, split, data_dir=folder)
        assert loaded.verified is official and loaded.images.shape[1:] == (1, 28, 28) and loaded.peak == 255
        expected = HISTOGRAMS[name, split] if official else [2 if split == "train" else 1] * 10
        assert len(loaded) == sum(expected) == (count if official else sum(expected))
        assert np.bincount(loaded.labels, minlength=10).tolist() == expected


SPELLINGS = ["{}-{}-idx{}-ubyte.gz", "{}-{}-idx{}-ubyte", "{}-{}.idx{}-ubyte.gz", "{}-{}.idx{}-ubyte"]
FOLDERS = [("mnist", "mnist"), ("mnist", "MNIST/raw"), ("fashion-mnist", "fashion-mnist")]


@pytest.mark.parametrize("names", SPELLINGS)
@pytest.mark.parametrize(("name", "folder"), FOLDERS)
def test_every_spelling_of_an_idx_set_is_found(tmp_path: Path, name: str, folder: str, names: str) -> None:
    write_set(tmp_path / folder, names=names)
    loaded = data.load(name, "test", data_dir=str(tmp_path))
    images, labels = made_idx(1, 10)
    np.testing.assert_array_equal(loaded.images[:, 0], images)
    np.testing.assert_array_equal(loaded.labels, labels)
    assert not loaded.verified and "content not verified" in str(loaded)
    assert data.path(name, tmp_path) == tmp_path / folder


def test_data_dir_comes_before_the_variable_before_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(cache / "mnist", count=20)
    assert len(data.load("mnist")) == 20
    write_set(tmp_path / "variable" / "mnist", count=40)
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path / "variable"))
    assert len(data.load("mnist")) == 40
    write_set(tmp_path / "named" / "mnist", count=60)
    assert len(data.load("mnist", data_dir=tmp_path / "named")) == 60
    # folders that lack the set are passed over
    assert len(data.load("mnist", data_dir=tmp_path / "absent")) == 40
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path))
    assert len(data.load("mnist", data_dir=tmp_path / "absent")) == 20
    monkeypatch.setenv("EPOCH0_DATA", os.pathsep.join([str(tmp_path / "absent"), str(tmp_path / "variable")]))
    assert len(data.load("mnist")) == 40
    with environment("EPOCH0_DATA", tmp_path / "named", ahead=True):  # as a reproduction and its workers look
        assert len(data.load("mnist")) == 60
    with pytest.raises(InputError, match="give one without it"), environment("EPOCH0_DATA", "a:b", ahead=True):
        pass
    with environment("EPOCH0_DATA", tmp_path / "nowhere", ahead=True):
        assert len(data.load("mnist")) == 40
    monkeypatch.setenv("EPOCH0_DATA", "")
    assert data.path("mnist") == cache / "mnist"


def test_a_set_found_nowhere_says_what_to_do_and_where_it_looked(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path / "variable"))
    write_set(tmp_path / "named" / "mnist")
    (tmp_path / "named" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError) as caught:
        data.load("mnist", split="test", data_dir=tmp_path / "named")
    for part in ("`epoch0 data fetch mnist`", "EPOCH0_DATA", f"{cache / 'mnist'} (cache)",
                 f"{tmp_path / 'variable' / 'mnist'} (EPOCH0_DATA)",
                 f"{tmp_path / 'named' / 'mnist'} (data_dir; lacks t10k-labels-idx1-ubyte)"):  # fmt: skip
        assert part in str(caught.value)
    assert len(data.load("mnist", split="train", data_dir=tmp_path / "named")) == 20  # its own files are all there
    with pytest.raises(InputError, match="was not found"):
        data.path("mnist", tmp_path / "named")


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"data set 'minst' is unknown; .*Did you mean 'mnist'"):
        data.load("minst")
    with pytest.raises(InputError, match=r"split='tset' is not known.*Did you mean 'test'"):
        data.load("digits", split="tset")
    for function in (data.path, data.fetch):
        with pytest.raises(InputError, match=r"'imagnet' is unknown; .*Did you mean 'imagenet'"):
            function("imagnet")


def test_the_list_of_sets(tmp_path: Path) -> None:
    write_set(tmp_path / "mnist")
    rows = {row.name: row for row in data.available(tmp_path)}
    assert list(rows) == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "imagenet"]
    assert rows["digits"].found is not None and rows["digits"].bytes < 60_000
    assert rows["mnist"].found == tmp_path / "mnist"
    assert rows["mnist"].bytes == sum(file.stat().st_size for file in (tmp_path / "mnist").iterdir())
    assert rows["cifar10"].found is None and rows["cifar10"].bytes == 170_052_171
    assert all(row.what and row.licence for row in rows.values())


# --- damaged sets


def test_a_truncated_idx_set_names_file_sizes_and_checksums(tmp_path: Path) -> None:
    write_set(tmp_path / "mnist", names="{}-{}-idx{}-ubyte")
    file = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    found = hashlib.md5(file.read_bytes()).hexdigest()
    with pytest.raises(InputError) as caught:
        data.load("mnist", "test", data_dir=tmp_path)
    for part in (str(file), "is truncated", "has 7,855 bytes", "7,856", found, "7,840,016 bytes",
                 "2646ac647ad5339dbf082846283269ea", "`epoch0 data fetch mnist`"):  # fmt: skip
        assert part in str(caught.value)
    file.with_name(file.name + ".gz").write_bytes(gzip.compress(encode_idx(made_idx(0, 10)[0]))[:2000])
    with pytest.raises(InputError, match=r"gz is a damaged gzip file.*2646ac647ad5339dbf082846283269ea"):
        data.load("mnist", "test", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("train-images-idx3-ubyte.gz", np.zeros((20, 784), np.uint8), r"images are uint8 \(n, height, width\)"),
        ("train-images-idx3-ubyte.gz", np.zeros((20, 2, 2), np.float32), "holds float32"),
        ("train-labels-idx1-ubyte.gz", np.zeros((20, 1), np.uint8), r"labels are integers of shape \(n,\)"),
        ("train-labels-idx1-ubyte.gz", np.zeros(20, np.float64), "holds float64"),
        ("train-labels-idx1-ubyte.gz", np.zeros(19, np.uint8), "20 images but 19 labels"),
        ("train-labels-idx1-ubyte.gz", np.full(20, 10, np.uint8), "labels run from 0 to 9"),
    ],
)
def test_well_formed_files_of_the_wrong_kind(tmp_path: Path, file: str, array: np.ndarray, message: str) -> None:
    write_set(tmp_path / "mnist")
    write_idx(tmp_path / "mnist" / file, array)
    with pytest.raises(InputError, match=message) as caught:
        data.load("mnist", data_dir=tmp_path)
    assert str(tmp_path / "mnist") in str(caught.value)


# --- CIFAR


@pytest.mark.parametrize("folder", ["cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"])
def test_cifar10(tmp_path: Path, folder: str) -> None:
    records = write_cifar(tmp_path / folder, CIFAR10_FILES, 1, 10)
    train, test = (data.load("cifar10", split, data_dir=tmp_path) for split in ("train", "test"))
    assert train.images.shape == (20, 3, 32, 32) and test.images.shape == (4, 3, 32, 32)
    np.testing.assert_array_equal(train.images, records[:5, :, 1:].reshape(20, 3, 32, 32))
    np.testing.assert_array_equal(train.labels, records[:5, :, 0].ravel())
    np.testing.assert_array_equal(test.labels, records[5, :, 0])
    assert not train.verified and train.classes[0] == "airplane" and train.classes[9] == "truck"


@pytest.mark.parametrize("folder", ["cifar100/cifar-100-binary", "cifar-100-binary"])
def test_cifar100_uses_fine_labels(tmp_path: Path, folder: str) -> None:
    records = write_cifar(tmp_path / folder, ["train.bin", "test.bin"], 2, 100)
    train = data.load("cifar100", data_dir=tmp_path)
    np.testing.assert_array_equal(train.images, records[0, :, 2:].reshape(4, 3, 32, 32))
    np.testing.assert_array_equal(train.labels, records[0, :, 1])
    assert len(set(train.classes)) == 100 and list(train.classes) == sorted(train.classes)


def test_incomplete_cifar_batches(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write_cifar(folder, CIFAR10_FILES, 1, 10)
    whole = (folder / "data_batch_3.bin").read_bytes()
    (folder / "data_batch_3.bin").write_bytes(whole[:5000])
    with pytest.raises(InputError, match=r"data_batch_3\.bin .*5,000 bytes, .*multiple of the 3,073.*30,730,000 bytes"):
        data.load("cifar10", data_dir=tmp_path)
    (folder / "data_batch_3.bin").write_bytes(whole[: 2 * 3073])
    with pytest.raises(InputError, match=r"data_batch_3\.bin holds 2 images and data_batch_1\.bin beside it 4"):
        data.load("cifar10", data_dir=tmp_path)
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(InputError, match=r"lacks data_batch_3\.bin"):
        data.load("cifar10", data_dir=tmp_path)


# --- image folders


def save_image(path: Path, colour: int, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour if mode == "L" else (colour, 0, 0)).save(path)


def test_image_folder_with_splits(tmp_path: Path) -> None:
    for colour, place in enumerate(["train/dog/b.png", "train/dog/a.png", "train/cat/x.jpg", "train/cat/deep/y.JPEG",
                                    "test/eel/e.png", "test/cat/c.png"]):  # fmt: skip
        save_image(tmp_path / place, 40 * colour)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".hidden").mkdir()
    train, test = data.load(f"folder:{tmp_path}"), data.load(f"folder:{tmp_path}", split="test")
    assert train.classes == test.classes == ("cat", "dog", "eel")  # of both splits, so that labels agree
    assert train.labels.tolist() == [0, 0, 1, 1] and test.labels.tolist() == [0, 2]
    assert train.images.shape == (4, 3, 4, 6) and train.images[2:, 0, 0, 0].tolist() == [40, 0]  # by name: a, b
    assert train.split == "train" and test.images[:, 0, 0, 0].tolist() == [200, 160]


def test_image_folder_without_splits_has_no_test_part(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "1.png", 5, "L")
    save_image(tmp_path / "b" / "1.png", 6, "L")
    made = data.load(f"folder:{tmp_path}")
    assert made.split == "all" and made.images.shape == (2, 1, 4, 6) and made.labels.tolist() == [0, 1]
    with pytest.raises(InputError, match="no split folders, so it has no test part"):
        data.load(f"folder:{tmp_path}", split="test")


def test_unusable_image_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        data.load(f"folder:{tmp_path / 'absent'}")
    with pytest.raises(InputError, match="holds no image"):
        data.load(f"folder:{tmp_path}")
    save_image(tmp_path / "train" / "a" / "1.png", 5)
    with pytest.raises(InputError, match="has no folder 'test'; it has 'train'"):
        data.load(f"folder:{tmp_path}", split="test")


# --- the catalogue


def test_the_catalogue_is_consistent() -> None:
    for name, known in SETS.items():
        assert known.name == name and len(set(known.classes)) == len(known.classes)
        sums = [file.md5 for file in known.files() if file.md5]
        assert len(set(sums)) == len(sums) and all(len(md5) == 32 for md5 in sums)
        assert known.embedded or known.download
        if known.tree:
            assert known.home and not known.mirrors and not known.classes
            continue
        assert known.embedded or known.mirrors
        if known.format == "idx":
            assert len(sums) == 4 and known.archive is None
        else:
            assert known.archive is not None and known.archive.md5 and known.archive.bytes == known.download


def test_the_embedded_files_have_the_checksums_beside_them() -> None:
    folder = Path(data.__file__).parent / "digits"
    text = (folder / "SOURCE.txt").read_text()
    for file in SETS["digits"].files():
        raw = gzip.decompress((folder / f"{file.name}.gz").read_bytes())
        assert hashlib.md5(raw).hexdigest() == file.md5 and f"{file.md5}  {file.name}" in text
        assert len(raw) == file.bytes


def test_data_needs_neither_torch_nor_the_network_libraries() -> None:
    code = "import sys, epoch0.data; print([m for m in ('torch', 'pooch', 'requests', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
