"""Files that are attacked: planted links, devices, names the system refuses, headers that say what cannot be."""

import json
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import epoch0 as e0
from epoch0.errors import InputError
from epoch0.files import made, to_read, write_atomic
from epoch0.initialization.files import load_tensors, save, save_tensors
from epoch0.prune import Masks
from epoch0.prune.masks.masks import LAYOUT

CONTENT = torch.tensor([0b10110000], dtype=torch.uint8)
HOSTILE = (
    None, True, -1, 2**70, 1e400, "text", "", [], {}, [[]], {"a": -1}, {"a": [-2, -2]}, {"a": [2**40, 2**40]},
    {"a": [0, 2**62]}, {"a": [True, 4]}, {"a": [4.0]}, {"a": "4"}, {"b": [4]}, {"a": [4], "b": [4]}, {"a": [[4]]},
    {"a": [1] * 70}, {"a": [9]}, {"a": None},
)  # fmt: skip


def nets() -> torch.nn.Module:
    return e0.networks.mlp([3, 4, 2], "relu", weights=e0.Gaussian(1.0), seed=0)


def writers() -> dict[str, Callable[[Path], object]]:
    """Everything of ours that writes a file at a path of the user's."""
    net, x = nets(), torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    report = e0.checkup(net, x, torch.arange(8) % 2, trial=False)
    return {
        "any.txt": lambda path: write_atomic(path, b"own"),
        "masks.safetensors": lambda path: e0.prune.keep(e0.prune.magnitude(net), 0.5).save(path),
        "scores.safetensors": lambda path: e0.prune.magnitude(net).save(path),
        "weights.safetensors": lambda path: save(net, path),
        "new-idx1-ubyte": lambda path: e0.data.write_idx(path, np.arange(4, dtype=np.uint8)),
        "page.html": report.to_html,
    }


def test_a_planted_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for name, write in writers().items():
        victim.write_bytes(b"precious")
        (tmp_path / name).symlink_to(victim)
        write(tmp_path / name)
        assert victim.read_bytes() == b"precious", name
        assert not (tmp_path / name).is_symlink() and (tmp_path / name).stat().st_size, name
    assert not [each for each in os.listdir(tmp_path) if "partial" in each]


def test_devices_pipes_and_folders_are_refused_and_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "null.html").symlink_to("/dev/null")
    before = os.stat("/dev/null").st_rdev
    for name, kind in (("pipe", "device, pipe"), ("folder", "folder"), ("null", "device, pipe")):
        for act in (lambda path: write_atomic(path, b""), to_read):
            with pytest.raises(InputError, match=kind):
                act(tmp_path / f"{name}.html")
    assert os.stat("/dev/null").st_rdev == before and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert stat.S_ISFIFO(os.lstat(tmp_path / "pipe.html").st_mode) and (tmp_path / "null.html").is_symlink()


def test_names_that_the_system_refuses_are_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "loop.safetensors").symlink_to(tmp_path / "loop.safetensors")
    masks = Masks({"a": torch.tensor([True, False])})
    for name in ("a\0b.safetensors", "long" * 100 + ".safetensors", "no/where.safetensors", "loop.safetensors"):
        for act in (
            Masks.load,
            to_read,
            *([masks.save] * ("loop" not in name)),
        ):
            with pytest.raises(InputError) as caught:
                act(tmp_path / name)
            assert "\n" not in str(caught.value) and len(str(caught.value)) < 1500
    assert os.listdir(tmp_path) == ["loop.safetensors"]


@pytest.mark.parametrize("name", ["shapes", "format"])
def test_headers_that_say_what_cannot_be_are_refused(tmp_path: Path, name: str) -> None:
    """With a checksum that is right: whatever is in one entry, the masks are the written ones or there is one error."""
    whole = {"shapes": json.dumps({"a": [4]})}
    path = save_tensors(tmp_path / "m.safetensors", "masks", LAYOUT, {"a": CONTENT}, whole)
    assert Masks.load(path)["a"].tolist() == [True, False, True, True]
    draw = random.Random(0)
    texts = [json.dumps(value) for value in HOSTILE] + [
        "{",
        "[" * 5000,
        "NaN",
        "\udcff".encode("utf-8", "replace").decode(),
    ]
    for _ in range(60):  # valid text with a few characters exchanged
        letters = list(whole["shapes"])
        for _ in range(draw.randint(1, 3)):
            letters[draw.randrange(len(letters))] = draw.choice('{}[]":,a0192-. ')
        texts.append("".join(letters))
    for text in texts:
        words = {**whole, name: text} if name == "shapes" else whole
        save_tensors(path, "masks", text if name == "format" else LAYOUT, {"a": CONTENT}, words)
        try:
            assert Masks.load(path)["a"].flatten().tolist() == [True, False, True, True]
        except InputError as problem:
            assert str(path) in str(problem)


def test_a_folder_that_stays_empty_is_removed_again(tmp_path: Path) -> None:
    with pytest.raises(KeyError), made(tmp_path / "a" / "b"):
        raise KeyError
    assert not (tmp_path / "a").exists()
    with made(tmp_path / "a") as folder:
        (folder / "kept").write_text("")
    assert (tmp_path / "a" / "kept").exists()


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    path = save_tensors(tmp_path / "t.safetensors", "masks", LAYOUT, {"a": CONTENT}, {"shapes": "{}"})
    found, words = load_tensors(path, "masks", LAYOUT, "Masks.save")
    assert found["a"].tolist() == CONTENT.tolist() and words["shapes"] == "{}"
