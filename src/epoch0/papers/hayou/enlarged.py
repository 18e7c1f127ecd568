"""Images that are too small for a network with many pools, every pixel repeated: digits for VGG (Hayou section 4.3)."""

from torch import Tensor


def enlarged(images: Tensor, factor: int) -> Tensor:
    """Every pixel as a square of that side.

    >>> enlarged(torch.arange(4.).reshape(1, 1, 2, 2), 2)[0, 0, 0]          # (..., height, width) -> twice both
    tensor([0., 0., 1., 1.])
    """
    return images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
