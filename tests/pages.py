"""What tests ask of a page of HTML: its tags, and that it needs nothing outside itself."""

import re
from html.parser import HTMLParser

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
