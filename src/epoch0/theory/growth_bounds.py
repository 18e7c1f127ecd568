"""The table of growth bounds that ``theory.growth.bounds`` makes: one row a layer, and the product over depth."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

_COLUMNS = ("paper_lower", "lower", "minimum", "exact", "maximum", "upper")


@dataclass(frozen=True)
class LayerGrowth:
    """What is known about the expected growth in one layer, or over all of them.

    Attributes:
        layer: 1 for the first; 0 for the product over depth.
        width: number of units; of the last layer in the product.
        paper_lower: Price and Tanner's lower bound.
        lower: the better of it and the fourth-moment bound.
        minimum: the exact least growth over directions, where it is known.
        exact: the expected growth, where it does not depend on the direction.
        maximum: the exact greatest growth over directions, where it is known.
        upper: square root of the exact second moment.
        status: "exact", "sharp interval" (minimum and maximum of one layer are attained) or "bounded".
    """

    layer: int
    width: int
    paper_lower: float
    lower: float
    minimum: float | None
    exact: float | None
    maximum: float | None
    upper: float
    status: str


@dataclass(frozen=True)
class GrowthBounds:
    """Growth bounds of every layer of a network.

    >>> print(bounds(e0.Gaussian(2.0).scaled(100**-0.5), [100, 100]))
    layer  width  paper lower     lower   minimum     exact   maximum     upper  status
    1        100     0.797885  1.380131  1.405349  1.405349  1.405349  1.414214  exact
    2        100     0.797885  1.380131  1.405349  1.405349  1.405349  1.414214  exact
    total  2 deep    0.636620  1.904762  1.975006  1.975006  1.975006  2.000000  exact

    Attributes:
        activation: name of the activation.
        rows: one LayerGrowth a layer.
    """

    activation: str
    rows: tuple[LayerGrowth, ...]

    @property
    def over_depth(self) -> LayerGrowth:
        """The products over all layers: bounds on the growth of the whole length."""
        values = {name: _product(getattr(row, name) for row in self.rows) for name in _COLUMNS}
        return LayerGrowth(layer=0, width=self.rows[-1].width, status=self.status, **values)  # type: ignore[arg-type]

    @property
    def cumulative(self) -> tuple[LayerGrowth, ...]:
        """The products over the first 1, 2, ... layers, which are bounds on the length after each layer."""
        return tuple(
            LayerGrowth(**{**asdict(GrowthBounds(self.activation, self.rows[:n]).over_depth), "layer": n})
            for n in range(1, len(self.rows) + 1)
        )

    @property
    def status(self) -> str:
        """The weakest status of any layer."""
        order = ("exact", "sharp interval", "bounded")
        return max((row.status for row in self.rows), key=order.index)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, ready for JSON."""
        return {
            "activation": self.activation,
            "depth": len(self.rows),
            "status": self.status,
            "layers": [asdict(row) for row in self.rows],
            "cumulative": [asdict(row) for row in self.cumulative],
            "over_depth": {name: getattr(self.over_depth, name) for name in _COLUMNS},
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer; columns as in :class:`LayerGrowth`, then the products so far as ``cumulative_...``."""
        import pandas

        return pandas.DataFrame(
            [
                asdict(row) | {f"cumulative_{name}": getattr(total, name) for name in _COLUMNS}
                for row, total in zip(self.rows, self.cumulative, strict=True)
            ]
        )

    def __str__(self) -> str:
        """Aligned table, one line a layer, ending with the product over depth; "-" where nothing is known."""
        lines = [["layer", "width", *(name.replace("_", " ") for name in _COLUMNS), "status"]]
        for row in self.rows:
            lines.append([str(row.layer), str(row.width), *_cells(row), row.status])
        total = self.over_depth
        lines.append(["total", f"{len(self.rows)} deep", *_cells(total), total.status])
        sizes = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        last = len(sizes) - 1
        return "\n".join(
            "  ".join(
                cell.ljust(size) if column in (0, last) else cell.rjust(size)
                for column, (cell, size) in enumerate(zip(line, sizes, strict=True))
            ).rstrip()
            for line in lines
        )


def _product(values: Iterable[float | None]) -> float | None:
    """The product, None if a factor is not known."""
    known = list(values)
    return None if any(value is None for value in known) else math.prod(value for value in known if value is not None)


def _cells(row: LayerGrowth) -> list[str]:
    values = [getattr(row, name) for name in _COLUMNS]
    return ["-" if value is None else _number(value) for value in values]


def _number(value: float) -> str:
    return f"{value:.6f}" if value == 0 or 1e-3 <= value < 1e6 else f"{value:.5e}"
