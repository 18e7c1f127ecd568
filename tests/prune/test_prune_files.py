"""Files of masks and tensors: whole or not at all, in the order in which they were, checked."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from epoch0.errors import InputError
from epoch0.initialization.files import load_tensors, save_tensors
from epoch0.prune.masks.masks import LAYOUT, Masks, keep

KINDS: dict[str, Tensor] = {
    "half": torch.randn(2, 3).bfloat16(),
    "scalar": torch.tensor(3.5, dtype=torch.float64),
    "none": torch.empty(0, 4),
    "bool": torch.eye(3, dtype=torch.bool),
    "strided": torch.arange(12).reshape(3, 4).t()[::2],
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
    "complex": torch.tensor([1 + 2j]),
}


def test_all_kinds_of_tensors_come_back(tmp_path: Path) -> None:
    shared = {**KINDS, "10": KINDS["nan"], "2": KINDS["nan"][:2]}  # views of one storage, names that sort otherwise
    path = save_tensors(tmp_path / "t.safetensors", "things", "things 1", shared, {"word": "·"})
    found, words = load_tensors(str(path), "things", "things 1", "a test")
    assert list(found) == list(shared) and words == {"word": "·", "format": "things 1"}
    for name, tensor in shared.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        bits = tensor.contiguous().flatten().view(torch.uint8)
        assert torch.equal(found[name].contiguous().flatten().view(torch.uint8), bits)
    assert [p.name for p in tmp_path.iterdir()] == ["t.safetensors"]


def test_order_breaks_ties_after_loading_as_before(tmp_path: Path) -> None:
    scores = {f"{n}.weight": torch.ones(2, 2) for n in (2, 10, 1)}
    path = save_tensors(tmp_path / "s.safetensors", "scores", "scores 1", scores, {})
    loaded, _ = load_tensors(path, "scores", "scores 1", "a test")
    assert list(loaded) == ["2.weight", "10.weight", "1.weight"]
    assert keep(loaded, 0.5) == keep(scores, 0.5)


def test_each_damage_is_seen(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(3, 2), "b": torch.ones(1, 2)}
    path = save_tensors(tmp_path / "s.safetensors", "scores", "scores 1", tensors, {"method": "mine"})
    read = partial(load_tensors, noun="scores", layout="scores 1", writer="a test")
    content = path.read_bytes()
    for length in (0, 8, 200, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=rf"scores .*\({length} bytes\) cannot be read: the file is cut short"):
            read(path)
    for old, new in ((b"method", b"mothed"), (content[-4:], b"\0\0\0\1"), (b'"b"', b'"c"')):
        assert content.count(old) >= 1
        path.write_bytes(content.replace(old, new))
        with pytest.raises(InputError, match="checksum"):
            read(path)
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "no.safetensors")
    with pytest.raises(InputError, match="a folder"):
        read(tmp_path)


def test_files_of_another_kind_or_version(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    save_file({"a": torch.ones(2)}, path)
    with pytest.raises(InputError, match=r"holds no masks: .*Masks\.save writes those"):
        Masks.load(path)
    save_file({"a": torch.ones(2)}, path, {"format": "epoch0 masks 7"})
    with pytest.raises(InputError, match=f"layout is 'epoch0 masks 7', and this version reads '{LAYOUT}'"):
        Masks.load(path)
    save_file({"a": torch.ones(2)}, path, {"format": LAYOUT})
    with pytest.raises(InputError, match="checksum"):
        Masks.load(path)


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    path.write_text("old")

    def stopped(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        save_tensors(path, "weights", "things 1", KINDS, {})
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]
    with pytest.raises(InputError, match=r"'masks\.pt' must end in \.safetensors"):
        Masks({"a": torch.ones(2) > 0}).save("masks.pt")


def test_the_header_can_be_read_by_others(tmp_path: Path) -> None:
    path = Masks({"b": torch.ones(1, 2) > 0, "a": torch.ones(1) > 0}).save(tmp_path / "s.safetensors")
    with safe_open(str(path), framework="pt") as file:
        header = file.metadata()
    assert header["format"] == LAYOUT and json.loads(header["order"]) == ["b", "a"]
