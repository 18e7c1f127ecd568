"""What rescaling did: one row for each masked weight, what was left alone and why (Hayou et al. 2021, 2.3)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from epoch0.columns import aligned
from epoch0.initialization.result import left_alone

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class RescaledLayer:
    """What one masked weight was multiplied by.

    Attributes:
        name: its parameter, by the name it had before it was masked.
        kind: ``"linear"`` or ``"convolution"``.
        activation: what is applied to its output next; ``"none"`` if nothing is.
        density: fraction of the weights that is kept.
        rows: units, or output channels of a convolution.
        empty_rows: those without a kept weight; they stay zero.
        target: the weight_std of an unpruned layer that it now stands for.
        weight_std_before: root of the mean over rows of the sum of squared kept weights, as it came.
        weight_std: the same now.
        factor: what the kept weights were multiplied by; with ``how="row"`` the median over rows that keep something.
        smallest: the smallest factor of a row.
        largest: the largest.
        note: in words.
    """

    name: str
    kind: str
    activation: str
    density: float
    rows: int
    empty_rows: int
    target: float
    weight_std_before: float
    weight_std: float
    factor: float
    smallest: float
    largest: float
    note: str


@dataclass(frozen=True)
class Rescaling:
    """What :func:`epoch0.prune.rescale.rescale` changed, and what it left alone.

    Attributes:
        layers: one row for each masked weight that was rescaled, in order of execution.
        untouched: other weights, each with the reason.
        how: ``"layer"``, ``"row"`` or ``"measured"``.
        notes: what a reader must know.
    """

    layers: tuple[RescaledLayer, ...]
    untouched: Mapping[str, str]
    how: str
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What was done, in one line."""
        way = {"layer": "one factor a layer", "row": "one factor a row", "measured": "one factor a layer, measured"}
        empty = sum(layer.empty_rows for layer in self.layers)
        rows = sum(layer.rows for layer in self.layers)
        weights = f"{len(self.layers)} masked weight{'s' if len(self.layers) != 1 else ''}"
        return f"{weights} rescaled, {way[self.how]}; {empty} of {rows} rows keep nothing"

    def __str__(self) -> str:
        """The table, then what was left alone."""
        lines = [self.summary]
        lines += aligned([_HEAD, *(_cells(layer) for layer in self.layers)])
        return "\n".join([*lines, *left_alone(self.untouched), *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dicts."""
        found = asdict(self)
        return {**found, "layers": list(found["layers"]), "notes": list(self.notes)}

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a masked weight, with the attributes of :class:`RescaledLayer` as columns."""
        import pandas

        columns = list(RescaledLayer.__dataclass_fields__)
        return pandas.DataFrame([asdict(layer) for layer in self.layers], columns=columns)


_HEAD = ("weights", "activation", "density", "empty rows", "weight std", "now", "target", "factor", "note")


def _cells(layer: RescaledLayer) -> tuple[str, ...]:
    same = layer.smallest == layer.largest
    spread = "" if same else f" ({layer.smallest:.3g} to {layer.largest:.3g})"
    return (
        layer.name,
        layer.activation,
        f"{layer.density:.3g}",
        f"{layer.empty_rows} of {layer.rows}",
        f"{layer.weight_std_before:.4g}",
        f"{layer.weight_std:.4g}",
        f"{layer.target:.4g}",
        f"{layer.factor:.4g}{spread}",
        layer.note,
    )
