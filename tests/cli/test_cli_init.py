"""epoch0 init and checkup --fix as a user meets them: the file they write makes the network train."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from command_line import epoch0

MODELS = """
import torch
from torch import nn

def deep():
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.Tanh()]
    for _ in range(10):
        layers += [nn.Linear(64, 64), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(64, 10))

def masked():
    net = deep()
    from torch.nn.utils import prune
    prune.random_unstructured(net[1], "weight", 0.9)
    prune.random_unstructured(net[3], "weight", 1.0)
    return net

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 10)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = torch.relu(self.first(x)).flatten(2).transpose(1, 2)
        return self.last(self.mix(x, x, x)[0].mean(1))
"""


@pytest.fixture()
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["theory", "measured"])
def test_the_written_weights_train(models: Path, tmp_path: Path, how: str) -> None:
    out = tmp_path / "w.safetensors"
    trial = ("--no-trial",) if how == "measured" else ()
    code, text, _ = epoch0("init", f"{models}:deep", "--data", "digits", "--out", out, "--method", how, *trial)
    assert code == 0 and "before: " in text and "now:    Trains with either" in text and str(out) in text
    code, found, _ = epoch0("checkup", f"{models}:deep", "--data", "digits", "--weights", out, "--json", "--no-trial")
    found = json.loads(found)
    assert code == 0 and found["trains"] and abs(found["backward"]["log_gain"]) < 2
    assert len(load_file(out)) == 24


@pytest.mark.slow
def test_a_gain_of_ones_own(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    arguments = (
        "init",
        f"{models}:deep",
        "--data",
        "digits",
        "--out",
        out,
        "--at",
        "0.5",
        "--bias-std",
        "0",
        "--json",
        "--no-trial",
    )
    code, text, _ = epoch0(*arguments)
    found = json.loads(text)
    assert code == 0 and found["initialization"]["target"] == 0.5
    assert [row["predicted"] for row in found["initialization"]["layers"]] == pytest.approx([0.5] * 12, rel=1e-6)
    # the mean over layers; a single network of width 64 scatters by a few percent a layer
    assert found["after"]["chi"] == pytest.approx(0.5, rel=0.05)
    again = epoch0(*arguments)[1]
    assert again == text
    assert not np.array_equal(load_file(out)["1.weight"][0], load_file(out)["3.weight"][0])


def test_fix_shows_before_and_after(models: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "w.safetensors", tmp_path / "page.html"
    code, text, _ = epoch0("checkup", f"{models}:deep", "--data", "digits", "--fix", out, "--html", page)
    assert code == 0 and "before" in text and "after" in text and "✓ trains" in text and str(page) in text
    assert "Trains with either" in page.read_text()
    code, text, _ = epoch0("checkup", f"{models}:deep", "--data", "digits", "--fix", out, "--json", "--no-trial")
    found = json.loads(text)
    chances = [found[when]["recipes"]["sgd"]["probability"] for when in ("before", "after")]
    assert chances[0] < chances[1] and found["after"]["outcome"] == "trains"


def test_what_is_not_understood_is_named(models: Path, tmp_path: Path) -> None:
    code, text, _ = epoch0(
        "init", f"{models}:Net", "--input-shape", "1,8,8", "--out", tmp_path / "w.safetensors", "--no-trial"
    )
    assert code == 0 and "first.weight" in text and "left alone: mix.in_proj_weight" in text


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--at", "critical"), "'critical' is neither edge-of-chaos nor a gain"),
        (("--at", "-1"), "-1"),
        (("--out", "w.pt"), "safetensors"),
        (("--out", "nowhere/w.safetensors"), "nowhere"),
        (("--bias-std", "-0.1"), "-0.1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = epoch0("init", f"{models}:deep", "--data", "digits", "--no-trial", *arguments)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert sorted(tmp_path.rglob("*.safetensors")) == [path for path in before if path.suffix == ".safetensors"]


def test_a_layer_with_nothing_kept(models: Path, tmp_path: Path) -> None:
    code, _, err = epoch0("init", f"{models}:masked", "--data", "digits", "--out", tmp_path / "w.safetensors")
    assert code == 2 and "3.weight" in err and not (tmp_path / "w.safetensors").exists()
