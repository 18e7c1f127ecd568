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

    A sum over many numbers in float32 loses digits, and a copy of them in float64 costs forty times as much as to read
    them. Numbers whose squares float32 cannot hold are copied all the same.
    """
    flat = tensor.detach().reshape(-1)
    if flat.dtype == torch.float64:
        return float(torch.linalg.vector_norm(flat)) ** 2
    if flat.dtype == torch.float32:
        whole = flat.numel() // RUN * RUN
        total = float(torch.linalg.vector_norm(flat[whole:] if whole else flat)) ** 2
        if whole:
            total += float(torch.linalg.vector_norm(flat[:whole].view(-1, RUN), dim=1).double().square().sum())
        if TINY * flat.numel() < total < float("inf"):
            return total
    return float(flat.double().square().sum())


def squares_by_row(tensor: Tensor) -> NDArray[np.float64]:
    """The sum of squares of each row, shape (rows,).

    >>> squares_by_row(torch.full((2, 10, 10), 3.0))
    array([900., 900.])
    """
    flat = tensor.detach().reshape(len(tensor), -1)
    if flat.shape[1] > RUN:
        return np.array([sum_of_squares(row) for row in flat])
    if flat.dtype == torch.float32 and flat.numel():
        found = torch.linalg.vector_norm(flat, dim=1).double().square()
        if bool(((found > TINY * flat.shape[1]) & found.isfinite()).all()):
            return np.asarray(found.cpu())
    return np.asarray(flat.double().square().sum(1).cpu())
