"""The command line as a user meets it: what it prints, and one clear error with exit code 2 for each bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import epoch0
from epoch0.experiments.claims import VERDICTS
from epoch0.papers.sweep import AUTHORS
from made_sets import write_idx

MODELS = """
from epoch0.experiments.claims import VERDICTS
import torch
from torch import nn

def deep():
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU()]
    for _ in range(18):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))

def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5),
                         nn.Flatten(), nn.Linear(512, 10))

def broken():
    net = deep()
    with torch.no_grad():
        net[1].weight[2, 3] = float("nan")
    return net

def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def needs(argument):
    return deep()
"""


@pytest.fixture()
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


def fails(*arguments: object) -> str:
    """Run a command that must fail with one line on stderr, nothing on stdout and exit code 2."""
    code, out, err = epoch0(*arguments)
    assert (code, out) == (2, ""), (code, out, err)
    assert err.startswith("error: ") and "Traceback" not in err and err.count("\n") == 1, err
    return err


def test_checkup_prints_a_table_and_writes_a_page(models: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = epoch0("checkup", f"{models}:deep", "--data", "digits", "--html", page, "--no-trial")
    assert code == 0 and "vanish" in out and "ordered" in out and str(page) in out
    assert "<html" in page.read_text() and "http" not in page.read_text().replace("http://www.w3.org", "")


def test_checkup_json(models: Path) -> None:
    plain = ("checkup", f"{models}:convolutional", "--data", "digits", "--json", "--no-trial")
    code, out, _ = epoch0(*plain)
    found = json.loads(out)
    assert code == 0 and len(found["layers"]) == 2
    code, again, _ = epoch0(*plain)
    assert again == out  # seeded throughout
    code, evaluated, _ = epoch0(*plain, "--batch-norm", "eval")
    assert json.loads(evaluated)["layers"][0] != found["layers"][0]


def test_checkup_of_gaussian_inputs_and_npz(models: Path, tmp_path: Path) -> None:
    plain = ("checkup", f"{models}:convolutional", "--no-trial")
    assert epoch0(*plain, "--input-shape", "1,8,8")[0] == 0
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=generator.normal(size=(40, 1, 8, 8)).astype("float32"), y=np.arange(40) % 10)
    assert epoch0(*plain, "--data", tmp_path / "d.npz")[0] == 0


def test_theory() -> None:
    code, out, _ = epoch0("theory", "growth", "--width", 784, "--depth", 2, "--json")
    assert code == 0 and json.loads(out)["layers"][0]["exact"] == pytest.approx(1.413086, abs=5e-7)
    for law in ("gaussian", "uniform", "discrete"):
        code, out, _ = epoch0("theory", "growth", "--law", law, "--density", 0.5, "--depth", 3)
        assert code == 0 and "upper" in out


def test_data() -> None:
    code, out, _ = epoch0("data", "list", "--json")
    assert code == 0 and {"digits", "mnist", "cifar10"} <= {row["name"] for row in json.loads(out)}
    code, out, _ = epoch0("data", "path", "digits")
    assert code == 0 and Path(out.strip()).exists()


def test_list() -> None:
    code, out, _ = epoch0("reproduce", "--list", "--json")
    ids = {row["id"] for row in json.loads(out)}
    assert code == 0
    figures = ("1", "2", "3a", "3b", "4a", "4b", "5a", "5b", "5c", "5d", "6a", "6b")
    assert {f"price-tanner/fig{name}" for name in figures} <= ids


def test_statements_have_their_paper_and_both_presets() -> None:
    """A column of one name would hide another: the paper's name and the verdicts of its preset are two."""
    rows = json.loads(epoch0("reproduce", "--statements", "--json")[1])
    assert {row["paper"] for row in rows} == set(AUTHORS)
    th2 = next(row for row in rows if (row["paper"], row["statement"]) == ("hanin-rolnick", "Theorem 2"))
    assert {"quick preset", "paper preset"} < set(th2) and "holds" in th2["paper preset"]
    told = epoch0("reproduce", "--statements")[1]
    assert "hanin" in told and "paper" in told


def test_reproduce_writes_and_resumes(tmp_path: Path) -> None:
    code, out, _ = epoch0("reproduce", "price-tanner/fig4b", "--out", tmp_path, "--workers", 1)
    assert code == 0 and "holds" in out
    names = {path.suffix for path in tmp_path.rglob("*fig4b*")}
    assert {".csv", ".png", ".json"} <= names
    code, again, _ = epoch0("reproduce", "price-tanner/fig4b", "--out", tmp_path, "--workers", 1, "--json")
    assert code == 0
    assert all(claim["verdict"] in VERDICTS for claim in json.loads(again)[0]["claims"])


@pytest.mark.usefixtures("in_this_process")
def test_shards_are_merged(tmp_path: Path) -> None:
    for part in ("1/2", "2/2"):
        code, out, _ = epoch0("reproduce", "price-tanner/fig4b", "--out", tmp_path, "--workers", 1, "--shard", part)
        assert code == 0 and not list(tmp_path.rglob("*.png"))
    parts = sorted(tmp_path.glob("*-of-2.sqlite"))
    assert len(parts) == 2
    code, out, _ = epoch0("sweep", "merge", *parts, "--into", tmp_path / "results.sqlite")
    assert code == 0
    code, out, _ = epoch0("reproduce", "price-tanner/fig4b", "--out", tmp_path, "--workers", 1)
    assert code == 0 and "holds" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("{models}:broken", "--data", "digits"), "1.weight"),
        (("{models}:deep", "--input-shape", "65"), "65"),
        (("{models}:dep", "--data", "digits"), "Did you mean 'deep'"),
        (("{models}:needs", "--data", "digits"), "argument"),
        (("nowhere.py:deep", "--data", "digits"), "nowhere.py"),
        (("{models}:deep", "--data", "digit"), "digits"),
        (("{models}:deep", "--data", "digits", "--weights", "{folder}/w.pt"), "safetensors"),
        (("{models}:deep", "--input-shape", "a,b"), "a,b"),
        (("{models}:deep", "--data", "digits", "--directions", "0"), "directions"),
        (("{models}:deep", "--data", "digits", "--seed", "-1"), "seed"),
    ],
)
def test_bad_checkups(models: Path, arguments: tuple[str, ...], says: str) -> None:
    page = models.parent / "page.html"
    filled = [a.format(models=models, folder=models.parent) for a in arguments]
    assert says in fails("checkup", *filled, "--html", page)
    assert not page.exists()


def test_truncated_data(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for kind, shape in (("images-idx3", (4, 28, 28)), ("labels-idx1", (4,))):
        for split in ("train", "t10k"):
            write_idx(folder / f"{split}-{kind}-ubyte", np.zeros(shape, dtype=np.uint8))
    victim = folder / "train-images-idx3-ubyte"
    victim.write_bytes(victim.read_bytes()[:-100])
    says = fails("checkup", f"{models}:deep", "--data", "mnist", "--data-dir", tmp_path / "data")
    assert "train-images-idx3-ubyte" in says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("theory", "growth", "--density", "1.5"), "in (0, 1]"),
        (("theory", "growth", "--density", "0"), "in (0, 1]"),
        (("theory", "growth", "--std", "-1"), "std"),
        (("theory", "growth", "--width", "0"), "width 0"),
        (("theory", "growth", "--activation", "rlu"), "relu"),
        (("data", "path", "mnits"), "mnist"),
        (("data", "fetch", "imagenet"), "imagenet"),
        (("reproduce",), "--list"),
        (("reproduce", "price-tanner/fig3"), "Did you mean 'price-tanner/fig3"),
        (("reproduce", "price-tanner/fig4b", "--workers", "0"), "0"),
        (("reproduce", "price-tanner/fig4b", "--workers", "-2"), "-2"),
        (("reproduce", "price-tanner/fig4b", "--shard", "3/2", "--workers", "1"), "3/2"),
        (("sweep", "merge", "{tmp}/none.sqlite", "--into", "{tmp}/all.sqlite"), "none.sqlite"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    filled = [a.format(tmp=tmp_path) for a in arguments]
    if filled[0] == "reproduce":
        filled += ["--out", str(tmp_path / "out")]
    assert says in fails(*filled)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".csv", ".png", ".json")]


def test_absent_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPOCH0_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    says = fails("reproduce", "price-tanner/fig3b", "--preset", "paper", "--out", tmp_path / "out")
    assert "epoch0 data fetch mnist" in says
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_results_file_that_is_no_results_file(tmp_path: Path) -> None:
    file = tmp_path / "results.sqlite"
    file.write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 20)
    before = file.read_bytes()
    assert "results.sqlite" in fails("reproduce", "price-tanner/fig4b", "--out", tmp_path, "--workers", 1)
    assert file.read_bytes() == before


def test_usage_errors_leave_with_2() -> None:
    assert epoch0("reproduce", "price-tanner/fig4b", "--preset", "slow")[0] == 2
    assert epoch0("checkup")[0] == 2
    assert epoch0("nonsense")[0] == 2


def test_as_a_process() -> None:
    run = [sys.executable, "-m", "epoch0"]
    assert subprocess.run([*run, "--version"], capture_output=True, text=True, check=True).stdout.startswith("epoch0 ")
    done = subprocess.run([*run, "theory", "growth", "--std", "-3"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and "-3" in done.stderr and not done.stdout
    for command in ("", "checkup", "reproduce", "theory growth", "data fetch", "sweep merge", "demo"):
        code, shown, _ = epoch0(*command.split(), "--help")
        assert code == 0 and "--help" in shown
