"""The page and the terminal table: they say what the checkup holds, and the page asks for nothing outside itself."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup, report
from epoch0.diagnosis.charts import Series, log_chart
from epoch0.diagnosis.wording import number, with_error
from epoch0.errors import InputError

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Everything a test asks of a page; fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.data: dict[str, str] = {}
        self.scripts: list[str] = []
        self._id = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag not in VOID:
            self.open.append(tag)
        self._id = dict(attrs).get("id") or ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> inside {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.data[self._id] = data
        elif self.cells and ("td" in self.open or "th" in self.open):
            self.cells[-1][-1] += data


def assert_self_contained(text: str) -> Page:
    page = Page(text)
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            assert value is not None and value.startswith(("data:", "#")), (tag, name, value)
        assert not name.startswith("on"), "no inline event handlers"
    assert "@import" not in text and not re.search(r"url\((?!['\"]?data:)", text)
    assert page.tags.count("script") == sum(t == "application/json" for _, n, t in page.attributes if n == "type")
    return page


@pytest.fixture(scope="module")
def found() -> Checkup:
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    net = e0.networks.mlp([16, *[24] * 5, 4], weights=e0.Gaussian(0.7), seed=1)
    return checkup(net, x, torch.arange(32) % 4, name="<net> & co", inputs="noise", directions=4)


def test_page_is_well_formed_and_self_contained(found: Checkup, tmp_path: Path) -> None:
    path = found.to_html(tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    page = assert_self_contained(text)
    assert page.tags.count("svg") >= 2 and page.tags.count("h1") == 1 and ("html", "lang", "en") in page.attributes
    assert "&lt;net&gt; &amp; co" in text and "<net>" not in text
    assert list(tmp_path.iterdir()) == [path]


def test_page_carries_the_numbers_of_the_object(found: Checkup) -> None:
    page = Page(report.page(found.to_dict()))
    assert json.loads(page.data["checkup"]) == json.loads(json.dumps(found.to_dict()))
    rows = page.cells[1:]
    assert len(rows) == len(found.layers)
    for cells, layer in zip(rows, found.layers, strict=True):
        texts = [cell.strip() for cell in cells]
        assert texts[1] == f"{layer.name} {layer.kind}" and layer.status in texts[2]
        assert texts[3] == with_error(layer.forward_gain, layer.forward_error)
        assert texts[4] == with_error(layer.backward_gain, layer.backward_error)
        assert texts[5] == f"{number(layer.predicted)} {layer.agreement}" and texts[6] == number(layer.factor)


def test_charts_draw_every_finite_number(found: Checkup) -> None:
    pictures = report.pictures(found.to_dict())
    tips = re.findall(r"<title>(\d+): (forward|backward) χ ([^<]*)</title>", pictures["gains"])
    assert len(tips) == 2 * len(found.layers)
    for index, way, text in tips:
        layer = found.layers[int(index) - 1]
        assert float(text) == pytest.approx(getattr(layer, f"{way}_gain"), rel=1e-3)


def test_terminal_table(found: Checkup, capsys: pytest.CaptureFixture[str]) -> None:
    found.print(width=150)
    out = capsys.readouterr().out
    assert all(heading in out for heading in ("what it is", "shape", "predicted", "backward χ"))
    assert found.verdict.split(":")[0] in out and found.phase in out and "What to change" in out
    for layer in found.layers:
        assert with_error(layer.forward_gain, layer.forward_error) in out
    assert max(len(line) for line in out.splitlines()) <= 150


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_narrow_terminals_lose_columns_not_digits(
    found: Checkup, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found.print(width=width)
    out = capsys.readouterr().out
    assert "…" not in out and max(len(line) for line in out.splitlines()) <= width
    for layer in found.layers:
        assert with_error(layer.forward_gain, layer.forward_error) in out
        assert number(layer.factor) in out and layer.status in out


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text = report.page(_with(model="</script><script>alert(1)</script>", subject="<img src=http://x>"))
    page = assert_self_contained(text)
    assert page.tags.count("script") == 1 and "img" not in page.tags


def _with(**changes: Any) -> dict[str, Any]:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    return {**checkup(e0.networks.mlp([4, 8, 2]), x, directions=2).to_dict(), **changes}


def test_missing_numbers_are_dashes() -> None:
    plain = _with()
    for layer in plain["layers"]:
        for key, value in layer.items():
            if isinstance(value, float):
                layer[key] = None
    plain.update(chi=None, chi_low=None, chi_high=None, trainable_depth=None, input_gradient=None)
    plain["backward"] = {**plain["backward"], "factor": None, "log_gain": None}
    assert_self_contained(report.page(plain))


def test_writing_is_whole_or_not_at_all(found: Checkup, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
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
    names = [f"layer {i}" for i in range(len(values))]
    errors = [None if v is None else abs(v) for v in values]
    series = Series("s", "forward", values, errors)
    svg = log_chart([series], names, title="<t>", x_label="x", y_label="y", reference=1.0)
    Page(svg)
    drawn = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    assert svg.count('class="point"') == len(drawn)
    heights = [float(y) for y in re.findall(r'cy="([-\d.]+)"', svg)]
    assert all(0 <= y <= 300 for y in heights)
    # higher values are drawn higher
    by_value = sorted(zip(drawn, heights, strict=True), key=lambda pair: (pair[0], -pair[1]))
    assert [y for _, y in by_value] == sorted(heights, reverse=True)
