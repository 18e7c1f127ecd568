"""From the norms of the small pieces of a curve to its lengths, its growth and their errors (THEORY section 1.2b)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """How long the pieces of the curve are, network by network.

    Attributes:
        layers: names of the L layers.
        norms: shape (networks, pieces, L + 1); column 0 is the input. Tangents: |dz/dt|; chords: distances.
        coarse: for chords the same with every second point left out, else None.
        dtype: what the norms were computed from.
    """

    layers: tuple[str, ...]
    norms: Array
    coarse: Array | None
    dtype: torch.dtype


def row_norms(pieces: Sequence[Tensor]) -> Array:
    """Euclidean norm of each row of each tensor, summed in float64: shape (rows, tensors)."""
    columns = [torch.linalg.vector_norm(piece.flatten(1), dim=1, dtype=torch.float64) for piece in pieces]
    return np.asarray(torch.stack(columns, dim=1).cpu().numpy())


def smallest_norm(dtype: torch.dtype) -> float:
    """Norms up to this one have lost digits to underflow in this dtype: 1e-34 in float32, 2e-304 in float64."""
    return 1e4 * torch.finfo(dtype).tiny


def ratios(norms: Array, floor: float) -> Array:
    """|dz_l| / |dz_(l-1)| of each piece, NaN where nothing reached layer l.

    Args:
        norms: shape (..., L + 1).
        floor: a norm up to this one counts as vanished.

    Returns:
        Shape (..., L).
    """
    before, after = norms[..., :-1], norms[..., 1:]
    return np.asarray(np.divide(after, before, out=np.full_like(after, math.nan), where=before > floor))


def mean_known(values: Array, axis: int) -> Array:
    """Means over the entries that are not NaN; NaN where there is none."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), math.nan))


def grid_errors(values: Array) -> Array:
    """Standard errors of the column means of values at equally spaced t with one random offset; NaN entries left out.

    The pieces are a systematic sample: neighbours are alike, and the error of their mean is far below that of
    independent draws. Its variance has two parts: that of what second differences leave of the values (Wolter's
    estimator v5: right for unrelated neighbours, 4 times too large where the values jump), and that of a trend, since
    a grid of m points moved by a random offset moves the mean of a straight line that rises by r from end to end by
    r (u - 1/2) / m. So it is conservative: the error of a network with kinks is stated up to 4 times too large, that
    of a smooth closed curve far too large, where it is tiny.

    Args:
        values: shape (points, columns).

    Returns:
        Shape (columns,); NaN for a column with fewer than three known values.

    Source: Wolter 2007, Introduction to Variance Estimation, section 8.2, estimator v5; the trend term is ours.
    """
    errors = np.full(values.shape[1], math.nan)
    for column in range(values.shape[1]):
        known = values[~np.isnan(values[:, column]), column]
        if len(known) >= 3:
            curvature = known[:-2] - 2 * known[1:-1] + known[2:]
            rise = (known[-1] - known[0]) / (len(known) - 1)
            errors[column] = math.sqrt(float((curvature**2).mean()) / 6 / len(known) + rise**2 / 12)
    return errors


def lengths_and_growth(pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    """Lengths (networks, L + 1), growth (networks, L), and for one network the errors of both (zeros otherwise).

    For tangents the errors are those of the grid. Chords of one network have no randomness but a bias; its size is
    told by what is lost when every second point is left out: kinks lose as much again with half the chords.
    """
    floor = smallest_norm(pieces.dtype)
    growth = mean_known(stretch := ratios(pieces.norms, floor), axis=1)
    lengths = pieces.norms.mean(axis=1) if pieces.coarse is None else pieces.norms.sum(axis=1)
    if len(pieces.norms) > 1:
        return lengths, growth, np.zeros(lengths.shape[1]), np.zeros(growth.shape[1])
    if pieces.coarse is None:
        return lengths, growth, grid_errors(pieces.norms[0]), grid_errors(stretch[0])
    halved = mean_known(ratios(pieces.coarse, floor), axis=1)
    return lengths, growth, np.abs(lengths - pieces.coarse.sum(axis=1))[0], np.abs(growth - halved)[0]
