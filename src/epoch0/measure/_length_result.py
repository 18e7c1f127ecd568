"""What a measurement of trajectory length returns: lengths, growth and their errors, one row a layer."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrajectoryLength:
    """Length of a curve at the input and after each layer, and how it grew from one to the next.

    Length and growth are those of plain Euclidean norms, as in the papers. Growth is the mean over small pieces of the
    curve of |dz_l| / |dz_(l-1)|; a piece that an earlier layer already mapped to a point has no ratio and is left out.

    Attributes:
        layers: names of the L layers.
        network_lengths: shape (networks, L + 1); column 0 is the input curve.
        network_growth: shape (networks, L); NaN where every piece had vanished before.
        piece_errors: shape (2, L + 1): for one network the standard errors over t of the lengths and, from column 1
            on, of the growth; zeros when there are several networks or the method is chords.
        method: ``"tangents"`` or ``"chords"``.
        points: tangents or chords per network.
    """

    layers: tuple[str, ...]
    network_lengths: Array
    network_growth: Array
    piece_errors: Array
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
        return _mean(self.network_growth)

    @property
    def length_errors(self) -> Array:
        """Standard errors of the lengths, shape (L + 1,): over networks, or over t for a single one."""
        return self.piece_errors[0] if self.networks == 1 else _standard_error(self.network_lengths)

    @property
    def growth_errors(self) -> Array:
        """Standard errors of the growth, shape (L,): over networks, or over t for a single one."""
        return self.piece_errors[1, 1:] if self.networks == 1 else _standard_error(self.network_growth)

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
        """One dict a row, the input first; growth of the input is None."""
        rows: list[dict[str, Any]] = [
            {
                "layer": "input", "length": float(self.lengths[0]), "length_error": float(self.length_errors[0]),
                "growth": None, "growth_error": None, "status": "given",
            }
        ]  # fmt: skip
        for i, name in enumerate(self.layers):
            growth, error = float(self.growth[i]), float(self.growth_errors[i])
            rows.append(
                {
                    "layer": name, "length": float(self.lengths[i + 1]), "length_error": float(self.length_errors[i + 1]),
                    "growth": None if math.isnan(growth) else growth, "growth_error": None if math.isnan(error) else error,
                    "status": self.status[i],
                }
            )  # fmt: skip
        return rows

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, the input first."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def __str__(self) -> str:
        who = f"{self.networks} networks" if self.networks > 1 else "one network"
        over = "networks" if self.networks > 1 else "t"
        wide = max(len("layer"), *(len(name) for name in ("input", *self.layers)))
        lines = [
            f"Trajectory length, {who}, {self.points} {self.method}; +- is one standard error over {over}",
            f"{'layer':<{wide}}  {'length':>12} {'+-':>9}  {'growth':>9} {'+-':>9}  status",
        ]
        for row in self.to_dict():
            growth = f"{'':>9} {'':>9}"
            if row["growth"] is not None:
                growth = f"{row['growth']:>9.4f} {row['growth_error'] or 0.0:>9.4f}"
            lines.append(
                f"{row['layer']:<{wide}}  {row['length']:>12.6g} {row['length_error']:>9.2g}  {growth}  {row['status']}"
            )
        return "\n".join(lines)


def _mean(values: Array) -> Array:
    """Column means over the entries that are not NaN; NaN for a column without any."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), math.nan))


def _standard_error(values: Array) -> Array:
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    squares = np.where(known, (values - _mean(values)) ** 2, 0.0).sum(axis=0)
    variance = squares / np.maximum(count - 1, 1)
    return np.asarray(np.where(count > 1, np.sqrt(variance / np.maximum(count, 1)), math.nan))


def piece_means(norms: Array) -> tuple[Array, Array]:
    """Mean norm of the pieces at each layer, and mean ratio from layer to layer.

    Args:
        norms: shape (..., pieces, L + 1), norms of the pieces of the curve at the input and after each layer.

    Returns:
        Shapes (..., L + 1) and (..., L).
    """
    before, after = norms[..., :-1], norms[..., 1:]
    ratios = np.divide(after, before, out=np.full_like(after, math.nan), where=before > 0)
    alive = ~np.isnan(ratios)
    count = alive.sum(axis=-2)
    total = np.where(alive, ratios, 0.0).sum(axis=-2)
    return norms.mean(axis=-2), np.where(count > 0, total / np.maximum(count, 1), math.nan)


def grid_errors(norms: Array) -> Array:
    """Standard errors over t of the mean norms and ratios of one network, shape (2, L + 1).

    The pieces are a systematic sample: neighbours are alike, and the error of their mean is far below that of
    independent draws. Its variance has two parts: that of what second differences leave of the values (Wolter's
    estimator v5, conservative where the values jump), and that of a trend, since a grid of m points moved by a random
    offset moves the mean of a straight line that rises by r from end to end by r (u - 1/2) / m.
    """
    before, after = norms[:, :-1], norms[:, 1:]
    ratios = np.full(norms.shape, math.nan)
    np.divide(after, before, out=ratios[:, 1:], where=before > 0)
    errors = np.zeros((2, norms.shape[1]))
    for row, values in enumerate((norms, ratios)):
        for column in range(values.shape[1]):
            known = values[~np.isnan(values[:, column]), column]
            if len(known) >= 3:
                curvature = known[:-2] - 2 * known[1:-1] + known[2:]
                rise = (known[-1] - known[0]) / (len(known) - 1)
                errors[row, column] = math.sqrt(float((curvature**2).mean()) / 6 / len(known) + rise**2 / 12)
            else:
                errors[row, column] = math.nan
    return errors
