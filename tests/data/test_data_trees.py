"""Trees of image files: Tiny ImageNet and ImageNet as they are published, and all that can be wrong with them."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epoch0 import data
from epoch0.data.image_files import read_images
from epoch0.errors import InputError
from made_trees import WNIDS, picture, save, write_imagenet, write_tiny

decoding = importlib.import_module("epoch0.data.image_files")  # its room has a function of this name


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of this test's own, and no EPOCH0_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EPOCH0_DATA", raising=False)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "tiny-imagenet-200")
    return tmp_path / "tiny-imagenet-200"


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "imagenet"
    write_imagenet(root)
    return root


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


# --- Tiny ImageNet


@pytest.mark.parametrize("place", ["tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200", "tiny-imagenet"])
def test_tiny_imagenet_against_one_file_at_a_time(tmp_path: Path, place: str) -> None:
    stated = write_tiny(tmp_path / place, val=12)  # val_2 comes before val_10
    train, test = (data.load("tiny-imagenet", split, data_dir=tmp_path) for split in ("train", "test"))
    classes = sorted(WNIDS)
    assert train.classes == test.classes == tuple(classes) and train.images.shape == (12, 3, 64, 64)
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for i, image in enumerate(train.images):
        wnid = classes[i // 3]
        expected = pixels(tmp_path / place / f"train/{wnid}/images/{wnid}_{i % 3}.JPEG")
        np.testing.assert_array_equal(image.transpose(1, 2, 0), expected)
    assert len(test) == 12 and test.labels.tolist() == [classes.index(wnid) for _, wnid in stated]
    for image, (file, _) in zip(test.images, stated, strict=True):
        np.testing.assert_array_equal(image.transpose(1, 2, 0), pixels(tmp_path / place / "val/images" / file))
    assert str(test) == "tiny-imagenet (test): 12 images of 3 x 64 x 64, 4 classes, content not verified"
    assert data.path("tiny-imagenet", tmp_path) == data.fetch("tiny-imagenet", tmp_path) == tmp_path / place
    row = next(row for row in data.available(tmp_path) if row.name == "tiny-imagenet")
    assert row.found == tmp_path / place and "DIR/tiny-imagenet-200" in row.what


def test_the_files_are_listed_without_opening_one(tiny: Path) -> None:
    for file in tiny.rglob("*.JPEG"):
        file.write_bytes(b"not opened")
    files = data.image_files("tiny-imagenet", "test", tiny.parent)
    assert len(files) == 10 and files.path(3) == tiny / "val/images/val_3.JPEG"
    with pytest.raises(InputError, match=r"index=10: there are 10 files"):
        files.path(10)
    assert files.split == "test" and files.labels.dtype == np.int64


def test_a_missing_class_is_named(tiny: Path) -> None:
    (tiny / "train" / WNIDS[2]).rename(tiny / "elsewhere")
    with pytest.raises(InputError) as caught:
        data.load("tiny-imagenet", data_dir=tiny.parent)
    assert str(caught.value) == (
        f"{tiny / 'train'} must have 4 class folders, as wnids.txt has, and has 3: it lacks {WNIDS[2]}."
    )
    (tiny / "elsewhere").rename(tiny / "train" / "n99999999")
    with pytest.raises(InputError, match=rf"and has 4: it lacks {WNIDS[2]}; n99999999 is not among them"):
        data.load("tiny-imagenet", data_dir=tiny.parent)


def test_an_empty_class_is_named(tiny: Path) -> None:
    for file in (tiny / "train" / WNIDS[1] / "images").iterdir():
        file.rename(file.with_suffix(".txt"))
    with pytest.raises(InputError, match=rf"{WNIDS[1]}/images holds no image .*class {WNIDS[1]} of tiny-imagenet"):
        data.load("tiny-imagenet", data_dir=tiny.parent)
    (tiny / "train" / WNIDS[1] / "images").rename(tiny / "train" / WNIDS[1] / "pictures")
    with pytest.raises(InputError, match=rf"{WNIDS[1]}/images is not a folder; the set is not whole"):
        data.load("tiny-imagenet", data_dir=tiny.parent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(WNIDS[0], "n00000000"), r"line \d+ of .*gives 'val_\d.JPEG' the class 'n00000000'"),
        (lambda text: text.replace("val_4.", "val_44."), r"line 6 of .*names 'val_44.JPEG', which is not in .*images"),
        (lambda text: text.replace("val_4.", "val_5."), r"line 6 of .*names 'val_5.JPEG' a second time"),
        (lambda text: text.replace("val_9.JPEG\t", "val_9.JPEG "), "gives 'val_9.JPEG .* the class"),
        (lambda text: "".join(text.splitlines(True)[:-4]), "names 6 files and the folder has 10; it lacks val_0.JPEG, "
         "val_1.JPEG, val_2.JPEG and 1 more"),
        (lambda text: "", "names 0 files and the folder has 10"),
    ],
)  # fmt: skip
def test_annotations_that_fit_nothing(tiny: Path, change, message: str) -> None:
    file = tiny / "val" / "val_annotations.txt"
    file.write_text(change(file.read_text()))
    with pytest.raises(InputError, match=message):
        data.load("tiny-imagenet", "test", data_dir=tiny.parent)


def test_missing_text_files(tiny: Path) -> None:
    (tiny / "val" / "val_annotations.txt").unlink()
    with pytest.raises(InputError, match=r"val_annotations\.txt cannot be read: No such file"):
        data.load("tiny-imagenet", "test", data_dir=tiny.parent)
    (tiny / "wnids.txt").write_text(f"{WNIDS[0]}\n{WNIDS[0]}\n")
    with pytest.raises(InputError, match="must name each class once; it has 2 lines, 1 of them different"):
        data.load("tiny-imagenet", data_dir=tiny.parent)


def test_a_truncated_jpeg_is_named(tiny: Path) -> None:
    file = tiny / f"train/{WNIDS[3]}/images/{WNIDS[3]}_1.JPEG"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(InputError, match=rf"{file.name} is not a readable image: .*truncated"):
        data.load("tiny-imagenet", data_dir=tiny.parent)
    file.unlink()
    assert len(data.load("tiny-imagenet", data_dir=tiny.parent)) == 11  # no count of images is demanded


# --- ImageNet


def test_imagenet_is_listed_and_not_read_whole(imagenet: Path) -> None:
    files = data.image_files("imagenet", "test", imagenet.parent)
    assert len(files) == len(files.classes) == 1000 and files.labels.tolist() == list(range(1000))
    assert files.names[7] == "val/n00000007/val_7_0.JPEG" and files.classes[7] == "n00000007"
    assert data.path("imagenet", imagenet.parent) == imagenet
    with pytest.raises(InputError, match=r"too large .*epoch0\.train\.Folder\.of\('imagenet', 'test'\)"):
        data.load("imagenet", "test", data_dir=imagenet.parent)


def test_imagenet_with_a_class_missing(imagenet: Path, tmp_path: Path) -> None:
    folder = imagenet / "val" / "n00000500"
    folder.rename(tmp_path / "away")
    try:
        with pytest.raises(InputError) as caught:
            data.image_files("imagenet", "test", imagenet.parent)
        assert str(caught.value) == (
            f"{imagenet / 'val'} must have 1,000 class folders, as train beside it has, and has 999: "
            "it lacks n00000500."
        )
        train = imagenet / "train" / "n00000500"
        train.rename(tmp_path / "away too")
        try:
            with pytest.raises(InputError, match=r"has 999 class folders and ImageNet 1,000; .*'folder:"):
                data.image_files("imagenet", "train", imagenet.parent)
        finally:
            (tmp_path / "away too").rename(train)
    finally:
        (tmp_path / "away").rename(folder)


def test_flat_validation_images_are_told_to_be_sorted(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "imagenet", classes=2)
    for file in sorted((tmp_path / "imagenet" / "val").rglob("*.JPEG")):
        file.rename(tmp_path / "imagenet" / "val" / file.name)
        file.parent.rmdir()
    with pytest.raises(InputError, match=r"val holds 2 image files and no class folder; sort them into one folder a"):
        data.image_files("imagenet", "test", tmp_path)


@pytest.mark.parametrize("name", ["tiny-imagenet", "imagenet"])
def test_trees_found_nowhere_say_where_to_get_them(tmp_path: Path, name: str) -> None:
    first = tmp_path / ("imagenet" if name == "imagenet" else "tiny-imagenet-200")
    for function in (data.path, data.fetch, lambda name, where: data.image_files(name, "train", where)):
        with pytest.raises(InputError) as caught:
            function(name, tmp_path)
        for part in ("was not found", "terms do not allow", "get it from http", f"put it into DIR/{name}", "--data-dir",
                     f"{tmp_path / 'cache'}", f"{first} (data_dir)"):  # fmt: skip
            assert part in str(caught.value)


def test_a_split_that_is_there_can_be_used_alone(tiny: Path, tmp_path: Path) -> None:
    (tiny / "val").rename(tiny / "elsewhere")
    assert len(data.load("tiny-imagenet", data_dir=tiny.parent)) == 12
    with pytest.raises(InputError, match=r"tiny-imagenet \(test\) was not found"):
        data.load("tiny-imagenet", "test", data_dir=tiny.parent)


def test_a_set_that_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mnist does not come as image files; .*load\('mnist'\)"):
        data.image_files("mnist")
    with pytest.raises(InputError, match="'tets' is not known"):
        data.image_files("imagenet", "tets")


def test_val_is_the_test_split_of_a_folder(tmp_path: Path) -> None:
    for part in ("train", "val"):
        save(tmp_path / part / "a" / "1.jpg", picture(0))
    assert data.load(f"folder:{tmp_path}", "test").split == "test"
    files = data.image_files(f"folder:{tmp_path}", "test")
    assert files.names == ("val/a/1.jpg",) and files.classes == ("a",)


# --- decoding


def test_any_number_of_workers_gives_the_same(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{i}.jpg", picture(i, mode="L" if i % 4 else "RGB")) for i in range(20)]
    whole = np.stack([pixels(path).transpose(2, 0, 1) for path in paths])
    for workers in (1, 2, 5):
        np.testing.assert_array_equal(read_images(paths, workers=workers), whole)
    gray = [path for i, path in enumerate(paths) if i % 4]
    assert read_images(gray, workers=2).shape == (15, 1, 64, 64)
    for i in (4, 13):  # two are damaged: the first in order is named, whoever comes upon it first
        paths[i].write_bytes(paths[i].read_bytes()[:300])
    for workers in (1, 2, 5):
        with pytest.raises(InputError, match=r"/4\.jpg is not a readable image"):
            read_images(paths, workers=workers)


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGBA", "LA", "P"])
def test_other_colours_become_rgb(tmp_path: Path, mode: str) -> None:
    image = picture(3).convert(mode)
    path = tmp_path / ("a.jpg" if mode in ("CMYK", "L") else "a.png")
    image.save(path)
    found = read_images([path, save(tmp_path / "b.jpg", picture(4))])[0]
    np.testing.assert_array_equal(found.transpose(1, 2, 0), np.asarray(Image.open(path).convert("RGB")))


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PAUSE", 0.0)
    write_tiny(tmp_path / "tiny-imagenet-200")
    lines: list[str] = []
    data.load("tiny-imagenet", data_dir=tmp_path, progress=lines.append)
    assert lines[0] == "tiny-imagenet (train): 1 of 12 images decoded"
    assert lines[-1] == "tiny-imagenet (train): 12 of 12 images decoded"


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding.os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert decoding.default_workers() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert decoding.default_workers() == 2
