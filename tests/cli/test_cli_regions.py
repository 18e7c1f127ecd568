"""epoch0 regions as a user meets it: lines and planes through examples of the data, counted, drawn, certified."""

import json
from pathlib import Path

import pytest
import torch

import epoch0 as e0
from command_line import epoch0

MODELS = """
import epoch0 as e0
from torch import nn

def small():
    return e0.networks.mlp([64, 24, 24, 10], biases=e0.Gaussian(0.1), seed=0)

def flat():
    return e0.networks.mlp([2, 12, 12, 1], biases=e0.Gaussian(0.1), seed=0)

def pictures():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10)).double()

def smooth():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
"""


@pytest.fixture()
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


def test_a_line_between_pictures_of_one_channel(models: Path) -> None:
    """One example of shape (1, 8, 8) could be a batch of one picture."""
    code, out, _ = epoch0("regions", f"{models}:pictures", "--data", "digits", "--line", 0, 1, "--json")
    found = json.loads(out)
    assert code == 0 and found["regions"] == len(found["breakpoints"]) + 1 > 3
    assert "'-1' is no point" in epoch0("regions", f"{models}:pictures", "--data", "digits", "--line", 0, -1)[2]


def test_a_line_between_coordinates(models: Path) -> None:
    arguments = ("regions", f"{models}:flat", "--input-shape", 2, "--line", "-1,0.5", "1,-0.25")
    code, out, _ = epoch0(*arguments, "--json")
    found = json.loads(out)
    net = e0.networks.mlp([2, 12, 12, 1], biases=e0.Gaussian(0.1), seed=0)
    expected = e0.regions.on_line(net, torch.tensor([-1.0, 0.5]).double(), torch.tensor([1.0, -0.25]).double())
    assert code == 0 and found["regions"] == expected.count > 5
    assert [row["t"] for row in found["breakpoints"]] == pytest.approx(expected.breakpoints.tolist())
    assert found["certificate"]["holds"] and found["linear_regions"] <= found["regions"]
    assert epoch0(*arguments, "--count-only")[1] == f"{expected.count} regions\n"
    more = json.loads(epoch0(*arguments, "--kind", "line", "--json")[1])
    assert more["regions"] >= found["regions"]


def test_a_plane_through_three_digits(models: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plane.svg"
    arguments = ("regions", f"{models}:small", "--data", "digits", "--plane", 0, 1, 2)
    code, out, _ = epoch0(*arguments, "--plot", picture)
    assert code == 0 and "all patterns differ" in out and picture.read_text().startswith("<?xml")
    found = json.loads(epoch0(*arguments, "--json")[1])
    assert found["certificate"]["euler"] == 1 and found["certificate"]["distinct"]
    assert found["vertices"] - found["edges"] + found["regions"] == 1
    assert json.loads(epoch0(*arguments, "--count-only", "--json")[1]) == {"regions": found["regions"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--line A B or --plane A B C"),
        (("--line", 0, 1, "--plane", 0, 1, 2), "one of them"),
        (("--line", 0, 0), "same point"),
        (("--line", 0, 99999), "'99999' is no point"),
        (("--line", 0, "1,2"), "'1,2' is no point"),
        (("--plane", 0, 1, 1), "on one line"),
        (("--line", 0, 1, "--plot", "a.png"), "--plot draws a plane"),
        (("--plane", 0, 1, 2, "--plot", "a.doc"), "a.doc"),
        (("--plane", 0, 1, 2, "--margin", 0), "margin"),
    ],
)
def test_bad_input_is_one_line(models: Path, arguments: tuple[object, ...], words: str) -> None:
    code, out, err = epoch0("regions", f"{models}:small", "--data", "digits", *arguments)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1 and words in err, err


def test_a_smooth_activation_is_named(models: Path) -> None:
    code, _, err = epoch0("regions", f"{models}:smooth", "--data", "digits", "--line", 0, 1)
    assert code == 2 and "tanh" in err.lower() and "trajectory_length" in err
