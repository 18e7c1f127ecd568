"""The demo: what it says before training comes true, and its report is one whole page."""

import base64
import html
import json
import math
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from epoch0 import demo, gain
from epoch0.diagnosis import checkup
from epoch0.errors import InputError
from epoch0.papers.trials import tensors
from epoch0.theory import mean_field
from pages import assert_self_contained

# one transparent pixel
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first network, one epoch, no trials, and a picture that takes no time."""
    claim = SimpleNamespace(text="the bounds <hold>", verdict="holds", evidence="27 settings")
    found = SimpleNamespace(claims=[claim], figure=None)
    monkeypatch.setattr(demo, "CASES", demo.CASES[:1])
    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "checkup", partial(checkup, trial=False, remedies=False))
    monkeypatch.setattr(demo, "reproduce", lambda *given, **named: found)
    monkeypatch.setattr(demo.plots, "png", lambda figure, dpi: base64.b64decode(PIXEL))


def test_the_three_networks_are_what_they_are_called() -> None:
    tanh = mean_field.chi("tanh", demo.LOUD, mean_field.q_star("tanh", demo.LOUD, 0.0))
    expected = ((demo.SHALLOW, 1 / 6), (demo.DEEP, 1 / 6), (demo.DEEP, tanh))
    for case, (depth, chi) in zip(demo.CASES, expected, strict=True):
        found = gain(case.build(), tensors("digits")[0][:32], directions=2)
        inner = [math.log((layer.forward + layer.backward) / 2) for layer in found.layers[1:-1]]
        assert str(depth) in case.title and found.depth == depth + 1
        assert math.exp(sum(inner) / len(inner)) == pytest.approx(chi, rel=0.25)


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
    judged = [one for network in summary["networks"] for one in (network, network["after"]) if one is not None]
    assert len(judged) == 2, "after one epoch something has failed, and was initialized"
    assert [c["verdict"] for c in json.loads(page.data["checkups"])] == [one["verdict"] for one in judged]
    head, first = text.split("<thead>")[1].split("</thead>")[0], text.split("<tbody>")[1].split("</tr>")[0]
    assert len(re.findall("<th[ >]", head)) == len(
        re.findall("<t[dh][ >]", first)
    )  # a head over every column, and no more
    for one in judged:
        assert one["verdict"] in html.unescape(text) and any(one["verdict"] in line for line in said)
        for recipe in one["recipes"].values():
            assert recipe["right"] == (recipe["said"] == (recipe["best"] > demo.TRAINS))
            assert (
                recipe["best"] == max(recipe["accuracy"].values())
                and str(recipe["learning_rate"]) in recipe["accuracy"]
            )
            assert f"{recipe['best']:.0%}" in "".join(said)
    rights = [recipe["right"] for one in judged for recipe in one["recipes"].values()]
    assert (text.count("✓ right"), text.count("✕ wrong")) == (sum(rights), len(rights) - sum(rights))
    assert "the bounds &lt;hold&gt;" in text and base64.b64decode(PIXEL).startswith(b"\x89PNG")


@pytest.mark.usefixtures("short")
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        demo.run(tmp_path / "file" / "out")


def test_a_wrong_number_of_workers_is_told_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers=0"):
        demo.run(tmp_path / "out", workers=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_training_proves_the_verdicts(tmp_path: Path) -> None:
    """The whole demo with its figure: guessing is 10 %, and the seeds are fixed."""
    shallow, deep, loud = demo.run(tmp_path)["networks"]
    best = {name: recipe["best"] for name, recipe in shallow["recipes"].items()}
    assert best["adam"] > 0.85 and best["sgd"] < 0.3
    for network in (deep, loud):
        assert max(recipe["best"] for recipe in network["recipes"].values()) < demo.TRAINS
    for network in (shallow, deep, loud):
        for one in (network, network["after"]):
            assert all(recipe["right"] for recipe in one["recipes"].values())
        assert min(recipe["best"] for recipe in network["after"]["recipes"].values()) > 0.9
