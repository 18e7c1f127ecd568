"""The checkup command's arguments: what it hands on, and with which code it leaves; the report is a stand-in."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command_line import epoch0
from epoch0 import diagnosis
from epoch0.errors import InputError

SOURCE = """
from torch import nn
def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""


class Report:
    """What the command asks of a report."""

    verdict, outcome = "Hard to train.", "vanishing"

    def __init__(self, trains: bool) -> None:
        self.trains = trains
        self.printed: dict[str, Any] | None = None

    def print(self, **settings: Any) -> None:
        self.printed = settings

    def raise_for_verdict(self) -> None:
        if not self.trains:
            raise InputError("a long report")

    def to_dict(self) -> dict[str, Any]:
        return {"trains": self.trains}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The last report, and what the checkup was called with."""
    found: dict[str, Any] = {"trains": True}
    (tmp_path / "nets.py").write_text(SOURCE)
    np.savez(tmp_path / "batch.npz", x=np.ones((5, 4), np.float32), y=np.arange(5) % 3)
    monkeypatch.chdir(tmp_path)

    def stand_in(model: Any, batch: Any, targets: Any, **settings: Any) -> Report:
        settings.pop("tell")("gains", 0.5)
        found.update(batch=batch, targets=targets, settings=settings, report=Report(found["trains"]))
        return found["report"]  # type: ignore[no-any-return]

    monkeypatch.setattr(diagnosis, "checkup", stand_in)
    return found


def test_batch_from_a_file(asked: dict[str, Any]) -> None:
    code, _, _ = epoch0("checkup", "nets.py:build", "--batch", "batch.npz")
    assert code == 0 and asked["batch"].shape == (5, 4)
    assert torch.equal(asked["targets"], torch.arange(5) % 3) and "batch.npz" in asked["settings"]["inputs"]
    code, _, err = epoch0("checkup", "nets.py:build", "--batch", "batch.npz", "--data", "digits")
    assert code == 2 and "leave out --data" in err
    code, _, err = epoch0("checkup", "nets.py:build", "--batch", "bathc.npz")
    assert code == 2 and "Did you mean 'batch.npz'" in err
    assert epoch0("checkup", "nets.py:build", "--batch", "7", "--input-shape", "4")[0] == 0
    assert asked["batch"].shape == (7, 4)


@pytest.mark.parametrize(("flag", "wanted"), [((), None), (("--trial",), True), (("--no-trial",), False)])
def test_trial_and_depth(asked: dict[str, Any], flag: tuple[str, ...], wanted: bool | None) -> None:
    assert epoch0("checkup", "nets.py:build", "--input-shape", "4", *flag)[0] == 0
    assert asked["settings"].get("trial") is wanted and asked["report"].printed == {"depth": None}
    assert epoch0("checkup", "nets.py:build", "--input-shape", "4", *flag, "--depth", 2)[0] == 0
    assert asked["report"].printed == {"depth": 2}
    assert epoch0("checkup", "nets.py:build", "--input-shape", "4", "--depth", "-1")[0] == 2


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_fail_on(asked: dict[str, Any], as_json: tuple[str, ...]) -> None:
    command = ("checkup", "nets.py:build", "--input-shape", "4", *as_json)
    for trains, fail_on, wanted in [
        (True, ("--fail-on", "hard"), 0), (False, ("--fail-on", "hard"), 1), (False, ("--fail-on", "never"), 0),
        (False, (), 0),
    ]:  # fmt: skip
        asked["trains"] = trains
        code, out, err = epoch0(*command, *fail_on)
        assert code == wanted and (err == "failed: Hard to train.\n") == (wanted == 1)
        assert bool(out) == bool(as_json)
    assert epoch0(*command, "--fail-on", "easy")[0] == 2


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    code, out, err = epoch0("checkup", "timm:resnet50")
    assert (code, out) == (2, "")
    assert err == "error: 'timm:resnet50' needs the package timm, which is not installed: pip install timm\n"
