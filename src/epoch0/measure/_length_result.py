"""What a measurement of trajectory length returns: lengths, growth and their errors, one row a layer."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0.measure._pieces import Array, mean_known

if TYPE_CHECKING:
    import pandas
_NUMBERS = ("length", "length_error", "growth", "growth_error")


@dataclass(frozen=True, eq=False)
class TrajectoryLength:
    """Length of a curve at the input and after each layer, and how it grew from one to the next.

    Length and growth are those of plain Euclidean norms, as in the papers. Growth is the mean over small pieces of the
    curve of |dz_l| / |dz_(l-1)|; a piece that an earlier layer already mapped to a point has no ratio and is left out.
    So is one that has become too short for the dtype (1e-34 in float32, 2e-304 in float64).

    Attributes:
        layers: names of the L layers.
        network_lengths: shape (networks, L + 1); column 0 is the input curve.
        network_growth: shape (networks, L); NaN where every piece had vanished before.
        piece_length_errors: shape (L + 1,), for one network: the standard error over t of tangents (conservative:
            up to about 4 times too large where the network has kinks), or what chords lose when every second point is
            left out; zeros for several networks.
        piece_growth_errors: shape (L,), the same for the growth.
        method: ``"tangents"`` or ``"chords"``.
        points: tangents or chords per network.
    """

    layers: tuple[str, ...]
    network_lengths: Array
    network_growth: Array
    piece_length_errors: Array
    piece_growth_errors: Array
    method: str
    points: int

    @property
    def networks(self) -> int:
        """Number of networks measured."""
        return len(self.network_lengths)

    @property
    def lengths(self) -> Array:
        """Mean length over the networks, shape (L + 1,); entry 0 is the input curve."""
        return np.asarray(self.network_lengths.mean(axis=0))

    @property
    def growth(self) -> Array:
        """Mean growth factor of each layer, shape (L,); NaN if nothing reached the layer."""
        return mean_known(self.network_growth, axis=0)

    @property
    def length_errors(self) -> Array:
        """Standard errors of the lengths, shape (L + 1,): over networks, or over t (chords: the bias) for one."""
        return self.piece_length_errors if self.networks == 1 else _standard_error(self.network_lengths)

    @property
    def growth_errors(self) -> Array:
        """Standard errors of the growth, shape (L,): over networks, or over t (chords: the bias) for one."""
        return self.piece_growth_errors if self.networks == 1 else _standard_error(self.network_growth)

    @property
    def spread(self) -> Array:
        """Standard deviation of the length from network to network, shape (L + 1,); NaN for one network."""
        if self.networks == 1:
            return np.full(len(self.layers) + 1, math.nan)
        return np.asarray(self.network_lengths.std(axis=0, ddof=1))

    @property
    def status(self) -> tuple[str, ...]:
        """One word a layer: grows, shrinks, keeps (1 is within two standard errors) or vanished."""
        words = []
        for length, growth, error in zip(self.lengths[1:], self.growth, self.growth_errors, strict=True):
            if length == 0 or math.isnan(growth):
                words.append("vanished")
            elif abs(growth - 1) <= 2 * error:
                words.append("keeps")
            else:
                words.append("grows" if growth > 1 else "shrinks")
        return tuple(words)

    def to_dict(self) -> list[dict[str, Any]]:
        """One dict a row, the input first; a number that does not exist (growth of the input) is None."""
        status = ("given", *self.status)
        growth, growth_errors = ([math.nan, *values] for values in (self.growth, self.growth_errors))
        rows = zip(self.lengths, self.length_errors, growth, growth_errors, strict=True)
        return [
            {
                "layer": name,
                **{key: None if math.isnan(value) else float(value) for key, value in zip(_NUMBERS, row, strict=True)},
                "status": word,
            }
            for name, row, word in zip(("input", *self.layers), rows, status, strict=True)
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, the input first."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def __str__(self) -> str:
        who = f"{self.networks} networks" if self.networks > 1 else "one network"
        over = "one standard error over networks"
        if self.networks == 1:
            over = "one standard error over t" if self.method == "tangents" else "what half as many chords lose"
        wide = max(len("layer"), *(len(name) for name in ("input", *self.layers)))
        lines = [
            f"Trajectory length, {who}, {self.points} {self.method}; +- is {over}",
            f"{'layer':<{wide}}  {'length':>12} {'+-':>9}  {'growth':>9} {'+-':>9}  status",
        ]
        for row in self.to_dict():
            length, error, growth, growth_error = (math.nan if row[key] is None else row[key] for key in _NUMBERS)
            ratio = f"{'':>9} {'':>9}" if row["growth"] is None else f"{growth:>9.4f} {growth_error:>9.2g}"
            lines.append(f"{row['layer']:<{wide}}  {length:>12.6g} {error:>9.2g}  {ratio}  {row['status']}")
        return "\n".join(lines)


def _standard_error(values: Array) -> Array:
    """Standard error of each column mean over the entries that are not NaN."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    squares = np.where(known, (values - mean_known(values, axis=0)) ** 2, 0.0).sum(axis=0)
    variance = squares / np.maximum(count - 1, 1)
    return np.asarray(np.where(count > 1, np.sqrt(variance / np.maximum(count, 1)), math.nan))
