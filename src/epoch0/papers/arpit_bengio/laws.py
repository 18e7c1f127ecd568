"""The exact laws of the norm ratios of Arpit-Bengio's Figures 1 and 3, as the mean and a band around it."""

import functools
from dataclasses import dataclass
from typing import Literal

from epoch0.papers.arpit_bengio.norms import Init, NormsSpec
from epoch0.theory.norms import NormRatio

Quantity = Literal["activation", "gradient"]

LEVEL = 0.95
"""Of the bands: the ratio of one input of one network is inside with this probability."""


@dataclass(frozen=True)
class Band:
    """The law of a norm ratio in three numbers.

    Attributes:
        mean: its mean.
        low: the lower end of the band.
        high: the upper end.
    """

    mean: float
    low: float
    high: float


def band(spec: NormsSpec, quantity: Quantity, layer: int) -> Band:
    """The law of one ratio; for gradients it takes Theorem 3's assumption of independence.

    >>> found = band(NormsSpec((100,) * 10, "he", inputs=1), "activation", 10)
    >>> round(found.mean, 3), round(found.low, 2), round(found.high, 2)
    (0.939, 0.43, 1.76)

    Args:
        spec: the network, two hidden layers or more for gradients.
        quantity: ``"activation"`` or ``"gradient"``.
        layer: 1 to the depth.
    """
    law = _law((spec.size, *spec.widths), spec.init, quantity, layer)
    return _band(law.widths, law.scales)


def mean(spec: NormsSpec, quantity: Quantity, layer: int) -> float:
    """The mean alone, which costs far less than the band."""
    return _law((spec.size, *spec.widths), spec.init, quantity, layer).norm.mean


def _law(sizes: tuple[int, ...], init: Init, quantity: Quantity, layer: int) -> NormRatio:
    if quantity == "activation":
        return NormRatio.forward(sizes[: layer + 1], init)
    return NormRatio.gradient(sizes, layer, init)


@functools.lru_cache(maxsize=1024)
def _band(widths: tuple[int, ...], scales: tuple[float, ...]) -> Band:
    law = NormRatio(widths, scales).norm
    return Band(law.mean, law.quantile((1 - LEVEL) / 2), law.quantile((1 + LEVEL) / 2))
