"""Sums of squares: as exact as in float64, at the cost of reading the numbers once."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RUN = 1 << 15  # values that are summed in the tensor's own precision; the sums of such runs are added in float64
TINY = 1e-30  # mean square in float32 below which squares may have been lost to underflow


def sum_of_squares(tensor: Tensor) -> float:
    """The sum of all squares, to seven digits.

    >>> round(sum_of_squares(torch.full((1000, 1000), 3.0)), -1)
    9000000.0
    """
    return float(squares_by_row(dense(tensor).reshape(1, -1))[0])


def dense(tensor: Tensor) -> Tensor:
    """The tensor, or the plain one of a sparse gradient, as embeddings may have."""
    return tensor.to_dense() if tensor.is_sparse else tensor


def squares_by_row(tensor: Tensor) -> NDArray[np.float64]:
    """The sum of squares of each row, shape (rows,). A sum over many numbers in float32 loses digits, and a copy of
    them in float64 costs forty times as much as to read them; it is made where float32 cannot hold their squares.
    """
    flat = tensor.detach().reshape(len(tensor), -1)
    flat = torch.view_as_real(flat.resolve_conj()).flatten(1) if flat.is_complex() else flat
    if flat.dtype == torch.float32 and flat.numel():
        runs = flat.split(RUN, 1) if flat.shape[1] > RUN else (flat,)
        norms = [torch.linalg.vector_norm(run, dim=1).cpu().numpy() for run in runs]
        found: NDArray[np.float64] = np.square(norms, dtype=np.float64).sum(axis=0)
        if TINY * flat.shape[1] < found.min() and found.max() < np.inf:
            return found
    return np.asarray(flat.double().square().sum(1).cpu())
