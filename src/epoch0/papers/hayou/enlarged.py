"""Images that are too small for a network with many pools, every pixel repeated: digits for VGG (Hayou section 4.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from epoch0.train.sources import Source


@dataclass(frozen=True)
class Enlarged:
    """A source whose images have each pixel as a square of pixels.

    >>> Enlarged(image_sources("digits")[0], 2).batch(torch.arange(5), 0)[0].shape         # from (5, 1, 8, 8)
    torch.Size([5, 1, 16, 16])

    Attributes:
        source: of the images.
        factor: side of the squares.
    """

    source: Source
    factor: int

    def __len__(self) -> int:
        return len(self.source)

    @property
    def fingerprint(self) -> str:
        """That of the source, and how much larger."""
        return f"{self.source.fingerprint} times {self.factor}"

    @property
    def targets(self) -> Tensor:
        """Those of the source."""
        return self.source.targets

    @property
    def held(self) -> str:
        """Where the source lies."""
        return self.source.held

    def to(self, device: str | torch.device) -> "Enlarged":
        """The same on a device."""
        return Enlarged(self.source.to(device), self.factor)

    def batch(self, chosen: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The source's images, enlarged, and their classes."""
        inputs, targets = self.source.batch(chosen, seed)
        return enlarged(inputs, self.factor), targets


def enlarged(images: Tensor, factor: int) -> Tensor:
    """Every pixel as a square of that side.

    >>> enlarged(torch.arange(4.).reshape(1, 1, 2, 2), 2)[0, 0, 0]          # (..., height, width) -> twice both
    tensor([0., 0., 1., 1.])
    """
    return images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
