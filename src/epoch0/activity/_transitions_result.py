"""What a count of transitions returns: by layer and neuron, with how it was counted and what it may have missed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0.columns import aligned
from epoch0.errors import InputError, suggest

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Transitions:
    """How often the neurons of one network, or of several, switch along a curve.

    A transition is one passage of one neuron through one of its faces: 0 for a ReLU, -1 or 1 for a hard tanh.

    Attributes:
        layers: names of the layers watched, in order; ``("output",)`` where the output is watched.
        neurons: for each layer the counts of its neurons, shape (networks, neurons), int64.
        faces: for each layer the counts of its faces, shape (networks, faces).
        method: "line" (break points of the walk on straight lines), "exact" (closed forms on circles) or "refined"
            (steps halved where a crossing could hide).
        resolution: length in t of the shortest step; 0 where the count is exact.
        points: of the curve at which the networks were evaluated, all together; 0 where the count is exact.
        margin: of those counted, crossings that only the caution found: half of it would have missed so many.
        missed: crossings missed, estimated by looking again at steps chosen at random; 0 where the count is exact.
        missed_at_most: the same with 95 % confidence; a wide bound, as few steps are looked at again.
        unresolved: steps left suspicious at the finest resolution.
        closest: for exact counts the closest decision, as a part of the size of the values; 0 for refined ones.
        times: for each network t of every transition, increasing; None for refined counts.
        owners: for each network, layer and neuron of every transition, shape (transitions, 2); None for refined counts.
        notes: what else should be known.
    """

    layers: tuple[str, ...]
    neurons: tuple[np.ndarray, ...]
    faces: tuple[np.ndarray, ...]
    method: str
    resolution: float = 0.0
    points: int = 0
    margin: int = 0
    missed: float = 0.0
    missed_at_most: float = 0.0
    unresolved: int = 0
    closest: float = 0.0
    times: tuple[np.ndarray, ...] | None = None
    owners: tuple[np.ndarray, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def networks(self) -> int:
        """Number of networks."""
        return len(self.neurons[0])

    @property
    def per_layer(self) -> np.ndarray:
        """Transitions in each layer, shape (networks, layers)."""
        return np.stack([counts.sum(axis=1) for counts in self.neurons], axis=1)

    @property
    def counts(self) -> np.ndarray:
        """Transitions of each network, shape (networks,)."""
        return np.asarray(self.per_layer.sum(axis=1))

    @property
    def count(self) -> int:
        """Transitions of all networks together."""
        return int(self.counts.sum())

    @property
    def exact(self) -> bool:
        """Whether the count is exact up to rounding."""
        return self.method in ("line", "exact")

    def per_neuron(self, layer: str) -> np.ndarray:
        """Transitions of each neuron of a layer, shape (networks, neurons)."""
        if layer not in self.layers:
            known = ", ".join(self.layers)
            raise InputError(f"no layer {layer!r} was watched; there are {known}.{suggest(layer, self.layers)}")
        return self.neurons[self.layers.index(layer)]

    def to_dict(self) -> list[dict[str, Any]]:
        """One dict a layer: mean count over the networks, its standard error (None for one network), busiest neuron."""
        rows = []
        for layer, counts in zip(self.layers, self.neurons, strict=True):
            totals = counts.sum(axis=1)
            error = float(totals.std(ddof=1) / len(totals) ** 0.5) if len(totals) > 1 else None
            rows.append({
                "layer": layer, "transitions": float(totals.mean()), "error": error,
                "per_neuron": float(counts.mean()), "most_of_one_neuron": int(counts.max(initial=0)),
            })  # fmt: skip
        return rows

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    @property
    def how(self) -> str:
        """How it was counted and what it may have missed, in one line."""
        if self.exact:
            where = "straight lines" if self.method == "line" else "circles"
            return f"exact on {where}; closest decision {self.closest:.0e} of the values' size"
        words = (
            f"steps halved where a crossing could hide, down to {self.resolution:.1e} in t, {self.points} points; "
            f"{self.margin} found by the caution alone; {self.missed:.0f} missed by the look at random steps "
            f"(at most {self.missed_at_most:.0f} with 95 % confidence)"
        )
        return f"{words}; {self.unresolved} steps left unresolved" if self.unresolved else words

    def __str__(self) -> str:
        who = "one network" if self.networks == 1 else f"{self.networks} networks, means with standard errors"
        rows = [["layer", "transitions", "+-", "a neuron", "at most"]]
        for row in self.to_dict():
            error = "" if row["error"] is None else f"{row['error']:.3g}"
            rows.append([row["layer"], f"{row['transitions']:.6g}", error, f"{row['per_neuron']:.3g}",
                         str(row["most_of_one_neuron"])])  # fmt: skip
        mean = f"{self.counts.mean():.6g}"
        return "\n".join([f"{mean} transitions, {who}", *aligned(rows), f"  {self.how}",
                          *(f"  note: {note}" for note in self.notes)])  # fmt: skip
