"""Masks: a frozen mapping that counts, sums up and saves."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from epoch0.errors import InputError
from epoch0.prune.masks.masks import LAYOUT as MASKS
from epoch0.prune.masks.masks import Masks


def some(seed: int = 0, density: float = 0.3) -> Masks:
    source = torch.Generator().manual_seed(seed)
    shapes = {"conv.weight": (6, 3, 3, 3), "fc.weight": (5, 7), "odd.weight": (1, 1), "vector": (13,)}
    return Masks({name: torch.rand(shape, generator=source) < density for name, shape in shapes.items()})


def test_counts() -> None:
    masks = Masks({"a": torch.tensor([[True, False], [False, False]]), "b": torch.zeros(2, 2, dtype=torch.bool)})
    assert (masks.kept, masks.total, masks.density, masks.sparsity) == (1, 8, 0.125, 0.875)
    assert masks.kept_of == {"a": 1, "b": 0} and masks.dead == ("b",)
    assert masks.density_of == {"a": 0.25, "b": 0.0}
    assert str(masks) == "1 of 8 weights kept in 2 layers, sparsity 87.5000%" and repr(masks) == f"<Masks: {masks}>"


def test_it_is_frozen() -> None:
    given_ = {"a": torch.tensor([True, False])}
    masks = Masks(given_)
    given_["a"][1] = True
    given_["b"] = torch.tensor([True])
    assert masks["a"].tolist() == [True, False] and list(masks) == ["a"]
    with pytest.raises(TypeError):
        masks["a"] = torch.tensor([True, True])  # type: ignore[index]
    with pytest.raises(TypeError):
        hash(masks)
    assert masks != {"a": 1} and masks != Masks({"b": masks["a"]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "no masks"),
        ({"a": [True]}, r"masks\['a'\]=\[True\]: give a torch tensor"),
        ({"a": torch.ones(2)}, r"'a' is torch\.float32.*mask != 0"),
    ],
)
def test_what_is_no_mask(value: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Masks(value)  # type: ignore[arg-type]


def test_summary_of_rows_and_columns() -> None:
    conv = torch.zeros(4, 3, 2, 2, dtype=torch.bool)
    conv[0, 1, 0, 0] = conv[2, 1, 1, 1] = True
    masks = Masks({"conv": conv, "dead": torch.zeros(2, 3, dtype=torch.bool), "vector": torch.tensor([True, False])})
    summary = masks.summary()
    rows = {layer.name: (layer.kept, layer.dead_rows, layer.dead_columns) for layer in summary.layers}
    assert rows == {"conv": (2, 2, 2), "dead": (0, 2, 3), "vector": (1, 1, 0)}
    assert summary.dead == ("dead",) and summary.verdict == "1 of 3 layers are dead: dead"
    assert summary.effective is None and summary.effective_sparsity is None
    assert summary.sparsity == masks.sparsity
    frame = summary.to_pandas()
    assert frame["status"].tolist() == ["ok", "dead: nothing is kept", "ok"] and frame["weights"].sum() == 56
    assert summary.to_dict()["layers"][0]["shape"] == [4, 3, 2, 2]
    assert "3 of 56 weights kept, sparsity 94.6429%" in str(summary) and "dead: nothing is kept" in str(summary)


def test_summary_with_a_model() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    first, last = torch.tensor([[1, 1, 0], [0, 0, 0]]).bool(), torch.tensor([[0, 1], [0, 1]]).bool()
    summary = Masks({"0.weight": first, "2.weight": last}).summary(model, (3,))
    assert summary.effective == 0 and summary.effective_sparsity == 1.0
    assert "no path leads from the input to the output" in summary.verdict
    whole = Masks({"0.weight": first, "2.weight": ~last}).summary(model, torch.zeros(5, 3))
    assert (whole.kept, whole.effective, whole.verdict) == (4, 4, "every layer lies on a path")
    with pytest.raises(InputError, match=r"x=\(3, 32, 32\)"):
        some().summary(model)
    with pytest.raises(InputError, match=r"masks are of another model than this Sequential: it has no weight 'conv\.w"):
        some().summary(model, (3,))


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_saved_masks_come_back(tmp_path: Path, density: float) -> None:
    masks = some(2, density)
    path = masks.save(tmp_path / "masks.safetensors")
    loaded = Masks.load(str(path))
    assert loaded == masks and list(loaded) == list(masks)
    assert [p.name for p in tmp_path.iterdir()] == ["masks.safetensors"]


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    path = some().save(tmp_path / "m.safetensors")
    content = path.read_bytes()
    for length in (0, 7, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=rf"m\.safetensors' \({length} bytes\) cannot be read: .*cut short"):
            Masks.load(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="damaged"):
        Masks.load(path)
    with pytest.raises(InputError, match="does not exist"):
        Masks.load(tmp_path / "none.safetensors")
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(InputError, match="holds no masks"):
        Masks.load(path)
    save_file({"w": torch.ones(2)}, path, {"format": "epoch0 masks 9"})
    with pytest.raises(InputError, match=f"layout is 'epoch0 masks 9', and this version reads '{MASKS}'"):
        Masks.load(path)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The system refuses to write more, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    small, big = Masks({"w": torch.ones(2, dtype=torch.bool)}), Masks({"w": torch.ones(10**6, dtype=torch.bool)})
    path = small.save(tmp_path / "m.safetensors")
    intact = r"m\.safetensors.* the file that was there is intact"
    with files_no_larger_than(4096), pytest.raises(InputError, match=intact):
        big.save(path)
    assert Masks.load(path) == small
    with files_no_larger_than(4096), pytest.raises(InputError, match=rf"cannot be written: {os.strerror(errno.EFBIG)}"):
        big.save(tmp_path / "new.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize("name", ["masks.pt", "nowhere/masks.safetensors"])
def test_paths_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"masks\.safetensors|no folder"):
        some().save(tmp_path / name)
