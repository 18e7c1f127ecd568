"""The demo: what it says before training comes true, and its report is one whole page."""

import base64
import json
from pathlib import Path

import pytest
import torch

from epoch0 import demo
from epoch0.diagnosis import checkup
from epoch0.errors import InputError
from test_report import assert_self_contained

# one transparent pixel
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch, and a picture that takes no time."""
    claims = [{"text": "the bounds <hold>", "verdict": "holds", "evidence": "27 settings"}]
    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "_figure", lambda workers: {"png": PIXEL, "claims": claims})


def test_the_three_networks_are_what_they_are_called() -> None:
    expected = {"pytorch_default": ("vanishing", 1 / 6), "he": ("trains", 1.0), "loud_convolutions": ("exploding", 4.0)}
    for case, (name, (outcome, chi)) in zip(demo.CASES, expected.items(), strict=True):
        assert case.build.__name__ == name
        found = checkup(case.build(), demo._digits(case.flat)[0][:64], directions=4)
        # zero padding takes a share of the convolutions' gain, biases and width 64 the rest
        assert found.outcome == outcome and found.chi == pytest.approx(chi, rel=0.25)


def test_networks_are_the_same_each_time_and_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    for case in demo.CASES:
        one, two = case.build().state_dict(), case.build().state_dict()
        assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.usefixtures("short")
def test_report_is_one_page_and_summary_is_json(tmp_path: Path) -> None:
    said: list[str] = []
    summary = demo.run(tmp_path / "new" / "folder", echo=said.append)
    path = Path(summary["report"])
    text = path.read_text(encoding="utf-8")
    page = assert_self_contained(text)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    assert page.tags.count("h1") == 1 and page.tags.count("img") == 1
    assert sum(value == "chart" for tag, name, value in page.attributes if tag == "svg" and name == "class") >= 6
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    carried = json.loads(page.data["checkups"])
    assert [c["outcome"] for c in carried] == [n["outcome"] for n in summary["networks"]]
    for network in summary["networks"]:
        assert network["verdict"] in text.replace("&#39;", "'") and any(network["verdict"] in line for line in said)
    assert "the bounds &lt;hold&gt;" in text and base64.b64decode(PIXEL).startswith(b"\x89PNG")


@pytest.mark.usefixtures("short")
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        demo.run(tmp_path / "file" / "out")


def test_a_wrong_number_of_workers_is_told_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers is 0"):
        demo.run(tmp_path / "out", workers=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_training_proves_the_verdicts(tmp_path: Path) -> None:
    """The whole demo with its figure: guessing is 10 %, and the seeds are fixed."""
    default, he, loud = demo.run(tmp_path)["networks"]
    for network in (default, loud):
        assert max(network["accuracy"].values()) < 0.3 and max(network["with_factors"].values()) > 0.85
    assert he["with_factors"] is None and max(he["accuracy"].values()) > 0.85
