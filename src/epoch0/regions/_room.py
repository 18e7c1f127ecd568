"""Room for large tensors: on the CPU numpy asks for huge pages, which makes filling them several times cheaper."""

import numpy as np
import torch
from torch import Tensor


def room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor with nothing in it yet.

    Args:
        shape: its shape.
        like: a tensor of the same type and device.
    """
    if like.device.type == "cpu" and like.dtype == torch.float64:
        return torch.from_numpy(np.empty(shape))
    return like.new_empty(shape)
