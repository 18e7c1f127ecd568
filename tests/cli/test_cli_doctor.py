"""What the doctor says about an installation."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from command_line import epoch0


def test_versions_devices_and_data_with_the_command_that_mends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = [
        "torch>=2.10",
        "numpy>=999",
        "no-such-thing>=1",
        'lacking>=3; extra == "all"',
        'pytest>=8; extra == "test"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: asked)
    code, out, _ = epoch0("doctor", "--json")
    rows = {row["what"]: row for row in json.loads(out)}
    assert code == 1
    assert rows["torch"] == {"what": "torch", "found": metadata.version("torch"), "status": "ok", "mend": None}
    assert rows["numpy"]["status"] == "missing" and rows["numpy"]["found"] == metadata.version("numpy")
    assert rows["no-such-thing"]["mend"] == "pip install 'no-such-thing>=1'"
    assert rows["lacking"]["status"] == "optional" and "pytest" not in rows
    assert f"{torch.get_num_threads()} threads" in rows["cpu"]["found"]
    assert rows["digits"]["status"] == "ok" and rows["mnist"]["mend"] == "epoch0 data fetch mnist"
    assert "where to put it" in rows["imagenet"]["mend"]


def test_a_whole_installation_leaves_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["torch>=2.10"])
    code, out, _ = epoch0("doctor")
    assert code == 0 and "torch" in out and "digits" in out


def test_shells_can_complete_commands() -> None:
    code, out, _ = epoch0("--help")
    assert code == 0 and "--install-completion" in out
