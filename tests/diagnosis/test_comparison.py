"""Two checkups side by side: what the object, the terminal and the page say is what the checkups hold."""

import json
from html import unescape
from pathlib import Path

import pytest
import torch

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup
from epoch0.diagnosis.result import BY_LAYER, Comparison
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import chance, number
from epoch0.errors import InputError
from pages import Page, assert_self_contained


def look(std: float, depth: int = 12) -> Checkup:
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    y = x[:, :4].argmax(1)
    net = e0.networks.mlp([16, *[32] * depth, 4], weights=e0.Gaussian(std), seed=1)
    return checkup(net, x, y, directions=4, trial=False, remedies=False)


@pytest.fixture(scope="module")
def pair() -> tuple[Checkup, Checkup]:
    return look(0.1), look(2**0.5)


@pytest.fixture(scope="module")
def found(pair: tuple[Checkup, Checkup]) -> Comparison:
    return pair[0].compare(pair[1], ["All weights times 2.02.", "Nothing <else>."])


def test_the_dictionary_holds_both(pair: tuple[Checkup, Checkup], found: Comparison) -> None:
    before, after = pair
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (plain["before"]["outcome"], plain["after"]["outcome"]) == (before.outcome, "trains")
    assert not before.trains and plain["before"]["recipes"] == json.loads(json.dumps(before.to_dict()["recipes"]))
    assert (plain["before"]["chi"], plain["after"]["chi"]) == (before.chi, after.chi)
    assert plain["before"]["phase"] == before.phase and plain["after"]["verdict"] == after.verdict
    assert plain["changes"] == ["All weights times 2.02.", "Nothing <else>."]
    for row, one, other in zip(plain["layers"], before.layers, after.layers, strict=True):
        assert row["name"] == one.name and set(row["before"]) == set(BY_LAYER) == set(row["after"])
        assert (row["before"]["norm_out"], row["after"]["norm_out"]) == (one.norm_out, other.norm_out)
        assert row["after"]["forward_gain"] == other.forward_gain and row["after"]["agreement"] == other.agreement
        assert (row["before"]["tangent"], row["after"]["gradient"]) == (one.tangent, other.gradient)
        assert row["after"]["update"] == other.update


def test_the_text_says_both_verdicts_and_every_layer(pair: tuple[Checkup, Checkup], found: Comparison) -> None:
    text = str(found)
    assert all(one.verdict in text for one in pair) and "All weights times 2.02." in text
    for one, other in zip(pair[0].layers, pair[1].layers, strict=True):
        for key in ("forward_gain", "tangent", "gradient"):
            assert f"{number(getattr(one, key), 2)} → {number(getattr(other, key), 2)}" in text


@pytest.mark.parametrize("width", [72, 100, 150])
def test_the_terminal_loses_columns_not_digits(
    pair: tuple[Checkup, Checkup], found: Comparison, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found.print(width=width)
    out = capsys.readouterr().out
    assert "…" not in out and max(len(line) for line in out.splitlines()) <= width
    assert "before" in out and "after" in out and "What was changed" in out and pair[0].outcome in out
    for name, recipe in pair[1].recipes.items():
        line = next(line for line in out.splitlines() if line.startswith(f"{NAMES[name]} "))
        assert f"{chance(pair[0].recipes[name].probability)} → {chance(recipe.probability)}" in line
    for one, other in zip(pair[0].layers, pair[1].layers, strict=True):
        gradients = (number(layer.gradient, 2) for layer in (one, other))
        assert " → ".join(gradients) in out and f"{one.status} → {other.status}" in out
    heading = next(line for line in out.splitlines() if line.startswith("layer"))
    assert ("what it is" in heading) == (width == 150)


def test_the_page_is_one_file_with_both_checkups(
    pair: tuple[Checkup, Checkup], found: Comparison, tmp_path: Path
) -> None:
    before, after = pair
    text = before.to_html(tmp_path / "both.html", after=after, changes=found.changes).read_text(encoding="utf-8")
    page = Page(text)
    counts = [page.tags.count(tag) for tag in ("h1", "img", "script")]
    assert counts == [1, 0, 2] and page.tags.count("svg") >= 3
    assert json.loads(page.data["checkup"]) == json.loads(json.dumps(before.to_dict()))
    assert json.loads(page.data["after"]) == json.loads(json.dumps(after.to_dict()))
    assert "Nothing &lt;else&gt;." in text and all(one.verdict in unescape(text) for one in pair)
    for index, (one, other) in enumerate(zip(before.layers, after.layers, strict=True), start=1):
        assert f"<td>{number(one.tangent)} → {number(other.tangent)}</td>" in text
        assert f"<title>{index}: after {other.tangent:.4g}</title>" in text
    assert text == found.to_html(tmp_path / "again.html").read_text(encoding="utf-8")
    assert_self_contained(before.to_html(tmp_path / "one.html").read_text(encoding="utf-8"))


def test_hostile_changes_stay_text(found: Comparison, tmp_path: Path) -> None:
    hostile = Comparison(found.before, found.after, ("</script><script>alert(1)</script>",))
    text = hostile.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert Page(text).tags.count("script") == 2 and "alert(1)</script>" not in text


def test_nothing_passes_before(tmp_path: Path) -> None:
    dead, alive = look(1e-30, 3), look(2**0.5, 3)
    found = dead.compare(alive)
    json.dumps(found.to_dict(), allow_nan=False)
    found.print(width=90)
    found.to_html(tmp_path / "page.html")


def test_checkups_of_two_models_are_refused(pair: tuple[Checkup, Checkup]) -> None:
    with pytest.raises(InputError, match=r"13 layers before and 4 after, '8' is in one of them only"):
        pair[0].compare(look(1.0, 3))
    with pytest.raises(InputError, match="not of one model"):
        pair[0].to_html("page.html", after=look(1.0, 3))
