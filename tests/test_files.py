"""Files that are attacked: planted links, devices, names the system refuses, headers that say what cannot be."""

import functools
import json
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

import epoch0 as e0
from command_line import epoch0
from epoch0 import plots
from epoch0.errors import InputError
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import Store, merge, on_network
from epoch0.files import made, to_read, write_atomic
from epoch0.initialization.files import _packed as packed
from epoch0.initialization.files import digest, load_tensors, read_tensors, save, save_tensors
from epoch0.models import load_model
from epoch0.papers.reproduce import Reproduction
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


def command(*arguments: object) -> None:
    """A command; what it refuses is the error that a library user gets."""
    code, _, errors = epoch0(*arguments)
    if code != 0:
        assert code == 2 and "Traceback" not in errors, errors
        raise InputError(" ".join(errors.split()))


def reproduced(path: Path) -> None:
    """The last of the three files of an artifact is this one."""
    figure = plots.figure(2.0, 2.0)[0]
    drawn = SimpleNamespace(id=path.stem, data=({"a": 1},), figure=figure, to_dict=lambda: {"data": 0}, markdown=str)
    Reproduction.save(cast(Reproduction, drawn), path.parent)


def writers(folder: Path) -> dict[str, Callable[[Path], object]]:
    """Everything of ours that writes a file at a path of the user's, by a name it may have."""
    net, x = nets(), torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    report = e0.checkup(net, x, torch.arange(8) % 2, trial=False)
    folder.mkdir()
    (folder / "model.py").write_text(
        "from torch import nn\ndef build(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))\n"
    )
    with Store(folder / "one.sqlite") as store:
        store.put(Trial("math:sqrt", {"a": 1}, 0), {"b": 2.0})
    model = (f"{folder / 'model.py'}:build", "--input-shape", "3")
    pruned = ("prune", *model, "--sparsity", "0.5", "--score", "magnitude")
    pair = (x, torch.arange(8) % 2)
    return {
        "any.txt": lambda path: write_atomic(path, b"own"),
        "masks.safetensors": lambda path: e0.prune.keep(e0.prune.magnitude(net), 0.5).save(path),
        "weights.safetensors": lambda path: save(net, path),
        "page.html": report.to_html,
        "checkpoint.safetensors": lambda path: e0.train.train(nets(), pair, steps=1, checkpoint=path),
        "results.sqlite": lambda path: Store(path).close(),
        "merged.sqlite": lambda path: merge(folder / "one.sqlite", path),
        "fig1.png": reproduced,
        "regions.svg": lambda path: command("regions", *model, "--plane", "0", "1", "2", "--plot", path),
        "phases.png": lambda path: command("theory", "phase-diagram", "relu", "--points", "3", "--out", path),
        "kernels.safetensors": lambda path: command("theory", "kernel", "relu", "--examples", "3", "--out", path),
        "set.safetensors": lambda path: command("init", *model, "--no-trial", "--out", path),
        "bits.safetensors": lambda path: command(*pruned, "--out", path),
        "pruned.safetensors": lambda path: command(*pruned, "--out-weights", path),
        "checkup.html": lambda path: command("checkup", *model, "--no-trial", "--html", path),
        "mended.safetensors": lambda path: command("checkup", *model, "--no-trial", "--fix", path),
    }


#: those that read what is there first, and so refuse what is none of theirs
OPENED = ("checkpoint.safetensors", "results.sqlite", "merged.sqlite")
#: those that make a folder that is missing
FOLDERS: dict[str, Callable[[Path], object]] = {
    "reproduced": lambda path: e0.reproduce("price-tanner/fig4b", out=path, workers=1),
    "shown": lambda path: command("demo", "--out", path),
}


def tree(folder: Path) -> list[tuple[str, int]]:
    """All that is there, and what it is."""
    return sorted((str(each), stat.S_IFMT(each.lstat().st_mode)) for each in folder.rglob("*"))


def refused(name: str, write: Callable[[Path], object], path: Path, folder: Path) -> None:
    """One error of one line, and nothing left behind."""
    before = tree(folder)
    with pytest.raises(InputError) as caught:
        write(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 3000, (name, path)
    assert tree(folder) == before, (name, path)


@pytest.mark.usefixtures("in_this_process")
def test_a_planted_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    victim, work = tmp_path / "victim", tmp_path / "work"
    work.mkdir()
    for name, write in writers(tmp_path / "models").items():
        victim.write_bytes(b"precious")
        (work / name).symlink_to(victim)
        if name in OPENED:
            refused(name, write, work / name, work)
        else:
            write(work / name)
            assert not (work / name).is_symlink() and (work / name).stat().st_size, name
        assert victim.read_bytes() == b"precious", name
    assert not [each for each in os.listdir(work) if "partial" in each]


def test_no_link_is_followed_in_folders_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in what SQLite or a writer that was killed leaves there; of links that are named only those of others."""
    work, victim = tmp_path / "work", tmp_path / "victim"
    work.mkdir()
    victim.mkdir()
    with Store(victim / "one.sqlite") as store:
        store.put(Trial("math:sqrt", {"a": 1}, 0), {"b": 2.0})
    before = {each: each.read_bytes() for each in victim.rglob("*")}
    figure = ("price-tanner/fig4b", work)
    plants = {"price-tanner": victim, "checkpoints": victim, "results.sqlite": victim / "one.sqlite"}
    plants |= {f"results.sqlite{ending}": victim / "one.sqlite" for ending in ("-wal", "-shm", "-journal")}
    for name, target in {**plants, "results.sqlite.arrays": victim, "results.sqlite-journal ": None}.items():
        place = work / name.strip()
        os.mkfifo(place) if target is None else place.symlink_to(target)
        refused(name, lambda _: e0.reproduce(figure[0], out=work, workers=1), place, work)
        place.unlink()
    (work / "price-tanner").mkdir()
    os.mkfifo(work / "price-tanner" / "fig4b.png")
    monkeypatch.setattr("epoch0.papers.reproduce.run", lambda *_, **__: pytest.fail("computed first"))
    refused("fig4b", lambda _: e0.reproduce(figure[0], out=work, workers=1), work / "price-tanner" / "fig4b.png", work)
    monkeypatch.undo()
    shutil.rmtree(work / "price-tanner")
    os.mkfifo(work / ".epoch0-0.partial")
    assert write_atomic(work / "any.txt", b"own").read_bytes() == b"own"  # and does not wait for the pipe
    shared = tmp_path / "shared"
    if os.geteuid() != 0:
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    writes: list[Callable[[Path], object]] = [FOLDERS["shown"], lambda path: merge(victim / "one.sqlite", path)]
    for target, write in zip((victim, victim / "one.sqlite"), writes, strict=True):
        shared.symlink_to(target)
        if os.geteuid() == 0:
            os.lchown(shared, 65534, 65534)
        refused("shared", write, shared, tmp_path)
        shared.unlink()
    assert {each: each.read_bytes() for each in victim.rglob("*")} == before


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_no_writer_writes_where_no_file_can_be(tmp_path: Path) -> None:
    """Names the system refuses, a file for a folder, folders that not even root may write to, devices, pipes."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("")
    for name, write in {**writers(tmp_path / "models"), **FOLDERS}.items():
        for path in (work / f"a\0{name}", work / f"{'n' * 260}{name}", work / "file" / name, Path("/proc/self") / name):
            refused(name, write, path, work)
        place = work / name
        plants: list[Callable[[], object]] = [lambda: os.mkfifo(place), lambda: place.symlink_to("/dev/null")]  # noqa: B023
        if os.geteuid() == 0:  # the null device under another name
            plants.append(lambda: os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3)))  # noqa: B023
        for plant in [*plants, *([place.mkdir] if name not in FOLDERS else [])]:  # type: ignore[list-item]
            plant()
            refused(name, write, place, work)
            place.rmdir() if stat.S_ISDIR(place.lstat().st_mode) else place.unlink()


def test_devices_pipes_and_folders_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "null.html").symlink_to("/dev/null")
    for name, kind in (("pipe", "device, pipe"), ("folder", "folder"), ("null", "device, pipe")):
        with pytest.raises(InputError, match=kind):
            to_read(tmp_path / f"{name}.html")
    (tmp_path / "loop.safetensors").symlink_to(tmp_path / "loop.safetensors")
    for path in ("a\0b.safetensors", "long" * 100 + ".safetensors", "no/where.safetensors", "loop.safetensors"):
        for act in (Masks.load, to_read):
            with pytest.raises(InputError) as caught:
                act(tmp_path / path)
            assert "\n" not in str(caught.value) and len(str(caught.value)) < 1500


@contextmanager
def as_nobody(*folders: Path) -> Iterator[None]:
    """A user who may not do everything, and for whom these folders are locked; root becomes one."""
    root, group = os.geteuid(), os.getegid()
    for each in folders:
        each.chmod(0)
    if root == 0:
        os.setegid(65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(root)
        os.setegid(group)
        for each in folders:
            each.chmod(0o700)


def test_every_path_that_is_read_is_one_line_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that may not be looked into, loops, names too long, bytes that are no name, no home."""
    monkeypatch.delenv("EPOCH0_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    readers: dict[str, Callable[[str], object]] = {
        "masks": Masks.load,
        "idx": e0.data.read_idx,
        "npz": e0.data.load_npz,
        "model": lambda path: load_model(f"{path}/model.py:build"),
        "weights": lambda path: load_model("torch.nn:Identity", path),
        "store": lambda path: Store(path, read_only=True),
        "digits": lambda path: e0.data.load("mnist", data_dir=path),
        "fetch": lambda path: e0.data.fetch("mnist", data_dir=path),
        "tree": lambda path: e0.data.image_files("tiny-imagenet", data_dir=path),
        "folder": lambda path: e0.data.image_files(f"folder:{path}"),
        "on_network": on_network,
        "list": lambda path: command("data", "list", "--data-dir", path),
        "prune": lambda path: command(
            "prune", "torch.nn:Identity", "--sparsity", "0.5", "--out", f"{path}.safetensors"
        ),
    }
    served = ("list", "on_network")  # they say what else there is
    locked, classes, file = tmp_path / "locked", tmp_path / "tree" / "train" / "class", tmp_path / "file"
    (locked / "inside").mkdir(parents=True)
    classes.mkdir(parents=True)
    file.write_text("no folder")
    (tmp_path / "loop").symlink_to("loop")
    for each in (tmp_path, *tmp_path.parents):  # pytest closes its own to other users
        if each == tmp_path or each.name.startswith(("pytest-", "popen-")):
            each.chmod(0o755)
    paths = [*map(str, [locked, locked / "inside", tmp_path / "loop" / "x", tmp_path / ("n" * 300), tmp_path / "tree"])]
    paths += [f"{tmp_path}/a\ud800b", f"{tmp_path}/a\0b", "~nobody_has_this_name/x", "/proc/self/mem"]

    def refused_everywhere(path: str) -> None:
        for name, read in readers.items():
            try:
                read(path)
            except InputError as problem:
                assert "\n" not in str(problem), (name, path)
            else:
                assert name in served, (name, path)

    for path in (str(file / "x"), *paths[5:]):  # imports what root may have kept to itself
        refused_everywhere(path)
    before = tree(tmp_path)
    with as_nobody(locked, classes):
        for path in paths:
            refused_everywhere(path)
        with pytest.raises(InputError, match=r"tree.*Permission denied.*class"):
            e0.data.image_files(f"folder:{tmp_path / 'tree'}")
    assert tree(tmp_path) == before


def test_a_name_that_is_no_text_is_said_all_the_same(tmp_path: Path) -> None:
    code, said, _ = epoch0("theory", "phase-diagram", "relu", "--points", "3", "--out", f"{tmp_path}/a\udc80.png")
    assert code == 0 and "a\\udc80.png" in said and len(list(tmp_path.iterdir())) == 1


def kept() -> Masks:
    """What is written and read back below."""
    return e0.prune.keep({"a": torch.arange(4.0), "b": torch.ones(2, 3)}, 0.5)


def read_or_refused(path: Path) -> bool:
    """The written ones: True; or one error that names the file."""
    whole = kept()
    try:
        found = Masks.load(path)
    except InputError as problem:
        assert str(path) in str(problem)
        return False
    assert found.keys() == whole.keys()
    assert found == whole
    return True


def spoilt(text: str, draw: random.Random) -> str:
    """Valid text with a few characters exchanged."""
    letters = list(text)
    for _ in range(draw.randint(1, 3)):
        letters[draw.randrange(len(letters))] = draw.choice('{}[]":,a0192-. ')
    return "".join(letters)


def test_headers_that_say_what_cannot_be_are_refused(tmp_path: Path) -> None:
    """With a checksum that is right, whatever one entry says, also where it is missing."""
    path, draw = kept().save(tmp_path / "m.safetensors"), random.Random(0)
    assert read_or_refused(path)
    mapped, header = read_tensors(path, "masks")
    tensors = {name: tensor.clone() for name, tensor in mapped.items()}
    del header["sha256"]
    values, refused = [json.dumps(value) for value in HOSTILE], dict.fromkeys(header, 0)
    for name, good in header.items():
        for text in [*values, "{", "[" * 5000, "NaN", "\ufffd", *(spoilt(good, draw) for _ in range(60)), None]:
            words = {key: value for key, value in {**header, name: text}.items() if value is not None}
            words["sha256"] = digest(json.dumps(words, sort_keys=True), tensors)
            path.write_bytes(packed(tensors, words))
            refused[name] += not read_or_refused(path)
    assert all(count > 80 for count in refused.values())


def changed(value: object, draw: random.Random) -> object:
    """What JSON holds, with one of its parts missing, doubled or exchanged."""
    if isinstance(value, dict | list) and value and draw.random() < 0.85:
        parts: list[tuple[object, object]] = [*value.items()] if isinstance(value, dict) else [*enumerate(value)]
        place = draw.randrange(len(parts))
        name, part = parts[place]
        parts[place : place + 1] = draw.choice(
            [[], [(name, changed(part, draw))], [(name, changed(part, draw))], [(f"{name}x", part), (name, part)]]
        )
        return {str(one): other for one, other in parts} if isinstance(value, dict) else [other for _, other in parts]
    return draw.choice(HOSTILE)


@pytest.mark.sample(1)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "sgd, fused"])
def test_checkpoints_that_say_what_cannot_be_change_nothing(tmp_path: Path, optimizer: str) -> None:
    """With a checksum that is right: the run is resumed, or refused in one line and the model is as it was."""
    path, draw = tmp_path / "c.safetensors", random.Random(1)
    pair = (torch.randn(16, 3, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2)
    sgd = functools.partial(torch.optim.SGD, momentum=0.9, fused=optimizer == "sgd, fused")
    momentum = "adam" if optimizer == "adam" else sgd

    def train(model: torch.nn.Module, steps: int) -> None:
        e0.train.train(model, pair, steps=steps, batch_size=8, optimizer=momentum, checkpoint=path)

    train(nets(), 2)
    mapped, header = read_tensors(path, "checkpoint")
    whole, numbers = {name: tensor.clone() for name, tensor in mapped.items()}, json.loads(header["numbers"])
    del header["sha256"]
    refused = 0
    for _ in range(60):
        words = {**header, "numbers": json.dumps(changed(numbers, draw))}
        words["sha256"] = digest(json.dumps(words, sort_keys=True), whole)
        path.write_bytes(packed(whole, words))
        model, before = nets(), nets().state_dict()
        try:
            train(model, 4)
        except InputError as problem:
            refused += 1
            assert str(path) in str(problem) and "\n" not in str(problem)
            assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert 30 < refused < 60


def test_files_whose_own_header_is_made_up_are_refused(tmp_path: Path) -> None:
    """The format's entries: type, shape and place of each tensor, wrong, negative, huge, twice, or missing."""
    path = kept().save(tmp_path / "m.safetensors")
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    texts = []
    for name, entry in header.items():
        for field in entry:
            for value in HOSTILE:
                texts.append(json.dumps({**header, name: {**entry, field: value}}))
            texts.append(json.dumps({**header, name: {key: entry[key] for key in entry if key != field}}))
            twice = json.dumps(entry)[:-1] + f", {json.dumps(field)}: {json.dumps(entry[field])}}}"
            texts.append(json.dumps({**header, name: "HERE"}).replace('"HERE"', twice))
    for text in texts:
        made_up = text.replace("Infinity", "1e400").encode()
        path.write_bytes(len(made_up).to_bytes(8, "little") + made_up + rest)
        read_or_refused(path)
    for length in (0, 1, 2**31, 2**63, 2**64 - 1):
        path.write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(InputError, match="cannot be read"):
            Masks.load(path)


def test_a_file_that_is_written_over_changes_nothing_that_was_read(tmp_path: Path) -> None:
    path = kept().save(tmp_path / "m.safetensors")
    found = Masks.load(path)
    path.write_bytes(bytes(path.stat().st_size))
    assert found == kept()


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
