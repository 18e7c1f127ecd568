"""The page and the terminal table: they say what the checkup holds, and the page asks for nothing outside itself."""

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

import epoch0 as e0
from epoch0.diagnosis import Checkup, LayerCheckup, checkup, report, wording
from epoch0.diagnosis.report import Series, _tick_text, log_chart
from epoch0.diagnosis.terminal import terminal
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import chance, number, rate, shape, update, with_error, within
from epoch0.errors import InputError
from pages import Page, assert_self_contained


class Block(nn.Module):
    """A residual block of four parts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.grow, self.act, self.shrink = nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch: torch.Tensor = x + self.shrink(self.act(self.grow(self.norm(x))))
        return branch


def blocks(count: int, width: int = 16) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        parts = [Block(width) for _ in range(count)]
        return nn.Sequential(nn.Linear(16, width), *parts, nn.LayerNorm(width), nn.Linear(width, 4))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    return x, (x @ torch.randn(16, 4, generator=torch.Generator().manual_seed(2))).argmax(1)


@pytest.fixture(scope="module")
def found() -> Checkup:
    """Three residual blocks, with a trial."""
    return checkup(blocks(3), *batch(), name="<net> & co", inputs="noise", directions=4)


@pytest.fixture(scope="module")
def failing() -> Checkup:
    """Weights so small that nothing passes, with the remedies that were tried."""
    net = e0.networks.mlp([16, *[16] * 5, 4], weights=e0.Gaussian(0.01), seed=1)
    return checkup(net, *batch(), directions=4, trial=False)


@pytest.fixture(scope="module")
def long(found: Checkup) -> Checkup:
    """More blocks than are shown: one of them 45 times, between the first and the last."""
    first, block, *_, last = found.layers
    many = (replace(block, name=f"body.{i}", status="keeps") for i in range(45))
    return replace(found, layers=(first, *many, last))


def plain_of(found: Checkup) -> dict[str, Any]:
    return dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))


def test_page_is_well_formed_and_self_contained(found: Checkup, tmp_path: Path) -> None:
    path = found.to_html(tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    page = assert_self_contained(text)
    assert page.tags.count("svg") >= 4 and page.tags.count("h1") == 1 and ("html", "lang", "en") in page.attributes
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes
    assert "prefers-color-scheme: dark" in text and "max-width: 34rem" in text
    assert "&lt;net&gt; &amp; co" in text and "<net>" not in text
    assert list(tmp_path.iterdir()) == [path]


def test_page_carries_the_numbers_of_the_object(found: Checkup) -> None:
    text = report.page(found.to_dict())
    page = Page(text)
    assert json.loads(page.data["checkup"]) == plain_of(found)
    rows = [[cell.strip() for cell in cells] for cells in page.cells]
    table = rows[next(i for i, cells in enumerate(rows) if cells[0] == "block") + 1 :]
    expected = [row for layer in found.layers for row in (layer, *layer.parts)]
    assert len(expected) > len(found.layers) > 3 and len(table) == len(expected)
    for cells, row in zip(table, expected, strict=True):
        norms = [number(row.tangent), number(row.gradient)]
        assert cells[2:4] == norms and cells[-2:] == [number(row.norm_out), shape(row.shape_out)]
        assert cells[6] == update(row.update) and row.kind in cells[0]
        if isinstance(row, LayerCheckup):
            assert cells[0].startswith(row.name) and row.status in cells[1]
            assert cells[4] == with_error(row.forward_gain, row.forward_error)
            assert cells[5].startswith(number(row.predicted).strip("–"))
        else:
            assert cells[4] == ("" if row.gain is None else number(row.gain))
    for part in (part for layer in found.layers for part in layer.parts):
        assert ("tr", "class", "part") in page.attributes and ("th", "title", part.name) in page.attributes


def test_page_says_both_recipes_and_shows_the_trial(found: Checkup) -> None:
    text = report.page(found.to_dict())
    assert found.trial is not None and found.verdict in html.unescape(text)
    for recipe in found.recipes.values():
        assert f"width: {100 * recipe.probability:.1f}%" in text and chance(recipe.probability) in html.unescape(text)
        assert f"Rate to begin with <b>{rate(recipe.learning_rate)}</b>" in text
        assert recipe.reason in html.unescape(text)
    drawn = report.pictures(found.to_dict())["trials"]
    assert [one["optimizer"] for one in drawn] == ["adam", "sgd"]
    for one in drawn:
        runs = found.trial.of(one["optimizer"])
        assert [run["rate"] for run in one["runs"]] == sorted(run.rate for run in runs)
        assert one["chart"].count("<polyline") == len(runs) and one["chart"] in text
        assert one["chart"].count('class="label"') == 2


def test_losses_that_diverge_and_a_loss_without_a_constant_answer(found: Checkup) -> None:
    plain = plain_of(found)
    plain["trial"]["runs"][0]["losses"] = [1.0, 1e30, None]
    plain["trial"]["constant"] = None
    text = report.page(plain)
    assert "diverged" in text and 'class="label"' in text
    chart = report.pictures(plain)["trials"][0]["chart"]
    heights = [float(point.split(",")[1]) for line in re.findall('points="([^"]*)"', chart) for point in line.split()]
    assert all(0 <= y <= 300 for y in heights)
    plain["trial"] = None
    assert "No trial: left out" in report.page({**plain, "trial_reason": "left out, as asked"})


def test_what_fails_names_the_layer_and_what_was_tried(failing: Checkup, capsys: pytest.CaptureFixture[str]) -> None:
    assert not failing.trains and failing.remedies
    text = html.unescape(report.page(failing.to_dict()))
    failing.print(width=100)
    out = " ".join(capsys.readouterr().out.split())
    assert all(remedy.change in text for remedy in failing.remedies)
    for said in (text, out):
        assert failing.verdict in said
        assert all(line in said for line in failing.advice)
        assert failing.blame is None or failing.blame[1] in said
    assert "✕ does not train" in text and "✕ no" in out and "No trial" in text and "the first step" in out


def test_layers_that_could_not_be_measured_leave_the_verdict(found: Checkup) -> None:
    plain = {**plain_of(found), "layers": [], "chi": None, "chi_low": None, "chi_high": None, "input_gradient": None}
    text = report.page(plain)
    assert_self_contained(text)
    assert "Block by block" not in text and "chance of training" in text
    assert "blocks" not in report.notebook(plain).partition("</style>")[2]


def test_blocks_fold_on_the_page(found: Checkup, long: Checkup) -> None:
    """A checkbox a block, without a script; all shut where there are more than 40 rows."""
    for one, checked in ((found, True), (long, False)):
        text = report.page(one.to_dict())
        boxes = re.findall(r'<input type="checkbox" aria-label="Parts of ([^"]*)"( checked)?>', text)
        assert [name for name, _ in boxes] == [layer.name for layer in one.layers if layer.parts]
        assert all(bool(mark) == checked for _, mark in boxes) and ('class="all"' in text) == (not checked)
    blamed = {**long.to_dict(), "blame": {"layer": long.layers[7].name, "reason": "so"}}
    assert re.findall(r'Parts of ([^"]*)" checked', report.page(blamed)) == [long.layers[7].name]


def test_charts_draw_every_finite_number(found: Checkup) -> None:
    pictures = report.pictures(found.to_dict())
    tips = re.findall(r"<title>(\d+): (forward|backward) χ ([^<]*)</title>", pictures["gains"])
    assert len(tips) == 2 * len(found.layers)
    for index, way, text in tips:
        layer = found.layers[int(index) - 1]
        assert float(text) == pytest.approx(getattr(layer, f"{way}_gain"), rel=1e-3)
    tangents = dict(re.findall(r"<title>(\w+): tangents ([^<]*)</title>", pictures["norms"]))
    assert float(tangents["in"]) == 1 and len(tangents) == len(found.layers) + 1
    assert float(tangents["2"]) == pytest.approx(found.layers[1].tangent, rel=1e-3)


def test_terminal_table(found: Checkup, capsys: pytest.CaptureFixture[str]) -> None:
    found.print(width=170)
    out = capsys.readouterr().out
    headings = ("what it is", "shape", "norm", "tangent", "gradient", "local χ", "law", "step", "status")
    assert all(heading in out for heading in headings) and "What to do" in out
    assert out.index(found.verdict) < out.index(found.model) < out.index("Adam  ")
    for recipe in found.recipes.values():
        line = next(line for line in out.splitlines() if line.startswith(NAMES[recipe.optimizer]))
        words = (chance(recipe.probability), rate(recipe.learning_rate), "yes" if recipe.trains else "no")
        assert all(word in line for word in words) and "a trial of" in line
    lines = out.splitlines()
    for layer in found.layers:
        assert with_error(layer.forward_gain, layer.forward_error) in out and layer.kind in out
        for part in layer.parts:
            mine = [line for line in lines if line.startswith(f"  {within(part.name, layer.name)} ")]
            words = (number(part.tangent, 2), number(part.norm_out, 2), update(part.update), shape(part.shape_out))
            assert any(all(word in line for word in words) for line in mine)
    assert max(len(line) for line in out.splitlines()) <= 170


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_narrow_terminals_lose_columns_not_digits(
    found: Checkup, failing: Checkup, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (found, failing):
        one.print(width=width)
        out = capsys.readouterr().out
        assert max(len(line) for line in out.splitlines()) <= width
        for layer in one.layers:
            assert number(layer.tangent, 2) in out and number(layer.gradient, 2) in out and layer.status in out
            assert with_error(layer.forward_gain, layer.forward_error).partition(" ±")[0] in out


def test_depth_folds_and_opens(found: Checkup, long: Checkup, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(one: Checkup, depth: int | None) -> list[str]:
        one.print(width=100, depth=depth)
        out = capsys.readouterr().out.splitlines()
        start = next(i for i, line in enumerate(out) if line.startswith("layer"))
        return out[start + 1 : next(i for i, line in enumerate(out) if line.startswith("Tangent and"))]

    parts = sum(len(layer.parts) for layer in found.layers)
    assert len(rows(found, 0)) == len(found.layers) and len(rows(found, 1)) == len(found.layers) + parts
    assert rows(found, None) == rows(found, 1)
    assert len(rows(long, 0)) == len(long.layers) > 40 and len(rows(long, 1)) > 150
    folded = rows(long, None)
    assert len(folded) < 40 and any("… " in line and "more, all" in line for line in folded)
    hidden = sum(int(line.split()[1]) for line in folded if line.startswith("… "))
    assert hidden + sum(not line.startswith("… ") for line in folded) == len(long.layers)


def test_a_notebook_shows_it_in_a_box_of_its_own(found: Checkup) -> None:
    text = found._repr_html_()
    page = assert_self_contained(text)
    assert page.tags[0] == "div" and page.tags.count("script") == 0
    assert text.count('<svg class="chart" viewBox') == 4 and "tangents, going forward" in text  # one chart, 3 keys
    style, _, body = text.partition("</style>")
    rules = re.sub(r"@(media|supports)[^{]*{", "", style.partition("<style>")[2])
    selectors = [one for rule in re.findall(r"([^{}]+){", rules) for one in rule.split(",")]
    assert selectors and all(one.strip().startswith(".epoch0") for one in selectors)
    assert found.verdict in html.unescape(body) and "chance of training" in body
    names = re.findall("<code>([^<]*)</code>", body)
    assert all(layer.name in names for layer in found.layers)


def test_hostile_names_stay_text(found: Checkup, capsys: pytest.CaptureFixture[str]) -> None:
    bad, worse = "</script><script>alert(1)</script>", "[bold]<img src=http://x>[/bold]"
    plain = {**plain_of(found), "model": bad, "subject": worse, "verdict": worse, "advice": [bad], "notes": [bad]}
    plain["layers"][1].update(name=worse, kind=bad, parts=[{**plain["layers"][1]["parts"][0], "name": f'{worse}"x'}])
    plain["recipes"]["adam"]["reason"] = bad
    plain["blame"] = {"layer": worse, "reason": bad}
    plain["remedies"] = [{"change": bad, "before": 0.1, "after": 0.9, "verdict": worse, "helps": True}]
    for text, scripts in ((report.page(plain), 1), (report.notebook(plain), 0)):
        page = Page(text)
        assert page.tags.count("script") == scripts and "img" not in page.tags and "<img" not in text
    Console(width=200).print(terminal(plain, 200))
    assert worse in capsys.readouterr().out


def test_missing_numbers_are_dashes(found: Checkup) -> None:
    plain = plain_of(found)
    for row in [row for layer in plain["layers"] for row in (layer, *layer["parts"])]:
        for key, value in row.items():
            if isinstance(value, float):
                row[key] = None
    plain.update(chi=None, chi_low=None, chi_high=None, input_gradient=None)
    for way in ("backward", "forward"):
        plain[way] = {**plain[way], "factor": None, "log_gain": None}
    for width in (60, 200):
        Console(width=width).print(terminal(plain, width))
    assert_self_contained(report.page(plain))


def test_writing_is_whole_or_not_at_all(found: Checkup, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        found.to_html(tmp_path / "nowhere" / "page.html")
    with pytest.raises(InputError, match="is a folder"):
        found.to_html(tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.floats(1e-300, 1e300), st.sampled_from([1, -1]))
def test_numbers_keep_three_digits(size: float, sign: int) -> None:
    value = sign * size
    superscript = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    mantissa, _, power = number(value).partition("×10")
    assert float(mantissa) * 10.0 ** int(power.translate(superscript) or 0) == pytest.approx(value, rel=6e-3)


@given(st.floats(1e-3, 1e3), st.floats(2e-5, 1e2))
def test_errors_share_the_last_digit(value: float, share: float) -> None:
    error = share * value
    shown, spread = with_error(value, error).split(" ± ")
    assert len(shown.partition(".")[2]) == len(spread.partition(".")[2])
    assert float(shown) == pytest.approx(value, abs=max(error, 1e-5))


@given(st.lists(st.one_of(st.none(), st.floats(-1e-3, 1e40)), min_size=1, max_size=60))
def test_any_numbers_make_a_chart(values: list[float | None]) -> None:
    errors = [None if v is None else abs(v) for v in values]
    series = Series("s", "forward", values, errors)
    svg = log_chart([series], title="<t>", x_label="x", y_label="y", reference=1.0)
    Page(svg)
    drawn = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    assert svg.count('class="point"') == len(drawn)
    heights = [float(y) for y in re.findall(r'cy="([-\d.]+)"', svg)]
    assert all(0 <= y <= 300 for y in heights)
    # higher values are drawn higher
    by_value = sorted(zip(drawn, heights, strict=True), key=lambda pair: (pair[0], -pair[1]))
    assert [y for _, y in by_value] == sorted(heights, reverse=True)


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.5"), (1e-5, "10^−5"), (2e-5, "2×10^−5"), (1e6, "10^6")])
def test_ticks_say_their_value(value: float, text: str) -> None:
    assert re.sub("<tspan[^>]*>", "^", _tick_text(value)).replace("</tspan>", "") == text


def test_numbers_as_people_read_them() -> None:
    said = {
        "number": {(0.166667,): "0.167", (3.2e-9,): "3.2×10⁻⁹", (None,): "–", (12345.0,): "1.23×10⁴"},
        "times": {(0.01,): "÷ 100", (3.0,): "× 3.00", (1.0,): "× 1.00"},
        "shape": {((16, 8, 8),): "16×8×8", ((10,),): "10", ((),): "1"},
        "tone": {("keeps",): "good", ("grows",): "mild", ("grows", False): "bad"},
        "chance": {(0.974,): "97 %", (0.9999,): "> 99 %", (0.0,): "< 1 %"},
        "rate": {(0.003,): "0.003", (0.0316,): "0.032", (3e-5,): "3×10⁻⁵", (10.0,): "10", (0.0,): "none"},
        "brief": {("body.3.linear1 … body.3.linear2",): "body.3.linear1 … linear2", ("body.3",): "body.3"},
        "within": {
            ("blocks.3.conv1", "blocks.3"): ".conv1", ("blocks.3.norm", "blocks.3.linear"): "…norm",
            ("up.1", "up.0"): "up.1",
        },
        "update": {(0.0123,): "0.012", (1e297,): "from 0", (None,): ""},
        "with_error": {(0.17491, 0.00071): "0.1749 ± 0.0007", (1.0, 0.02): "1.00 ± 0.02", (65.8, 12.0): "66 ± 12"},
    }  # fmt: skip
    for name, cases in said.items():
        for given_, text in cases.items():
            assert getattr(wording, name)(*given_) == text, (name, given_)


def test_the_program_as_it_is_and_mended_are_two_curves() -> None:
    """Numbers that training lost are null in the data and no point of the chart."""
    digits = e0.data.load("digits")
    x, y = torch.from_numpy(digits.inputs("standard"))[:300].float(), torch.from_numpy(digits.labels)[:300].long()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
    looked = checkup(model, x[:100], y[:100], optimizer=optimizer, data=(x, y), seconds=10, trial=True)
    program = looked.to_dict()["program"]
    lost = [value for one in (program, *program["tried"]) for _, value in one["curve"] if value is None]
    assert program["best"] is not None and lost
    page = report.page(json.loads(json.dumps(looked.to_dict(), allow_nan=False)))
    assert "✕ has a fault" in page and "chance that nothing keeps it from learning" in page
    chart = page[page.index("as it is and changed?") :]
    assert 'class="backward"' in chart and 'class="forward"' in chart and "NaN" not in page
