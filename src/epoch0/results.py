"""Base of all results: a data frame, a printed table, text and picture in a notebook."""

import base64
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from epoch0.arguments import methods_checked
from epoch0.errors import InputError

if TYPE_CHECKING:
    import pandas


class Shown:
    """An object shown in a notebook by its text, and by what ``plot`` draws or its ``figure``."""

    def _repr_html_(self) -> str:
        text = f"<pre>{escape(str(self))}</pre>"
        try:
            drawn = self.plot() if hasattr(self, "plot") else getattr(self, "figure", None)
        except InputError:  # such as a watch that has seen nothing yet
            return text
        if drawn is None:
            return text
        content = io.BytesIO()
        drawn.savefig(content, format="png")
        picture = base64.b64encode(content.getvalue()).decode()
        return f'{text}<img style="max-width:100%" src="data:image/png;base64,{picture}">'


class Result(Shown):
    """Base of the results of measures, predictions and actions.

    A subclass gives ``layers``, dataclasses, or its own :meth:`rows` (plain values by name, one row a layer, network or
    point), with ``columns``, their names, where there may be no row; and ``__str__``.
    """

    layers: Any
    columns: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls) -> None:
        cls.__repr__ = vars(cls).get("__repr__", cls.__str__)  # type: ignore[method-assign]
        methods_checked(cls)

    def rows(self) -> list[dict[str, Any]]:
        """Plain values by name, one row for each item."""
        return [asdict(layer) for layer in self.layers]

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a table of pandas."""
        import pandas

        return pandas.DataFrame(self.rows(), columns=self.columns)

    def print(self) -> None:
        """Write the result to the terminal, as ``str`` gives it."""
        print(self)


def finite(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def counted(count: int, noun: str) -> str:
    """A number of things: "1 layer", "12,000 weights"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def first_names(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """The first few, and how many more: a, b and 1 more."""
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is the heading."""
    head, *rest = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])


class Grid(NamedTuple):
    """A small table for reading: a title, the names of its columns, and rows of text by their names."""

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        return "\n".join([self.title, *aligned(self.lines(), slice(1, None))])

    def lines(self) -> list[tuple[str, ...]]:
        """The heads of the columns, then each row with its name."""
        return [("", *self.columns), *((name, *cells) for name, cells in self.rows.items())]

    def best(self, apart: Collection[str] = ()) -> set[tuple[int, int]]:
        """Row and column of the highest number of each column; rows ``apart`` do not compete."""
        found = set()
        for column in range(len(self.columns)):
            cells = [(row, cells[column]) for row, (name, cells) in enumerate(self.rows.items()) if name not in apart]
            numbers = {row: float(cell.split()[0]) for row, cell in cells if cell}
            found |= {(row, column) for row, number in numbers.items() if number == max(numbers.values())}
        return found


def aligned(rows: Sequence[Sequence[str]], numbers: slice = slice(0)) -> list[str]:
    """One line a row, each column as wide as its widest cell, those of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if place in range(len(widths))[numbers] else "<" for place in range(len(widths))]
    forms = [f"{side}{width}" for side, width in zip(sides, widths, strict=True)]
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]
