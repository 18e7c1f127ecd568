"""Laws of a single weight or bias, with exact moments and seeded sampling (Price-Tanner section 1.1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from epoch0.arguments import Density, Size, Std, Whole, checked
from epoch0.errors import InputError

if TYPE_CHECKING:
    import torch

# Below this density the places of the kept entries are drawn one by one (cost ~ density), above it a mask of random
# bits is cheaper. The draws of either kind are those of a seed, so this stays.
_GAPS_BELOW = 0.45


@checked
class Law:
    """A probability law of one real number; the subclasses are frozen values that compare, hash and print.

    Every law here is symmetric about zero except a :class:`Discrete` one over an asymmetric set.
    """

    @cached_property  # not a plain one, whose place the field of a Gaussian could not take
    def std(self) -> float:
        """Square root of the variance; a field of :class:`Gaussian`, derived in the other laws."""
        return math.sqrt(self.variance)

    @property
    def variance(self) -> float:
        """Mean of the square less the square of the mean."""
        return self._moment(2) - self.mean**2

    @property
    def mean(self) -> float:
        """E X: zero for every even law."""
        return 0.0

    @property
    def mean_abs(self) -> float:
        """E abs(X)."""
        return self._moment(1)

    @property
    def excess_kurtosis(self) -> float:
        """E X^4 / (E X^2)^2 - 3, about zero; NaN for the constant 0, which has no shape."""
        second = self._moment(2)
        return self._moment(4) / second**2 - 3.0 if second > 0 else math.nan

    @property
    def even(self) -> bool:
        """Whether X and -X have the same law, which the growth theorems ask for."""
        return True

    def scaled(self, factor: float) -> "Law":
        """The law of ``factor * X``, as in ``Gaussian(2.0).scaled(784**-0.5)``."""
        raise InputError(f"{type(self).__name__} does not say how it scales; define scaled(factor).")

    def sample(
        self,
        shape: Sequence[Whole],
        generator: "torch.Generator | None" = None,
        dtype: "torch.dtype | None" = None,
        out: "Annotated[torch.Tensor, None] | None" = None,  # whatever it holds
    ) -> "torch.Tensor":
        """Independent draws.

        >>> Gaussian(0.5).sample((3, 4), generator=e0.seeds.generator(0)).shape
        torch.Size([3, 4])

        On the CPU, from a CPU generator; without one fresh entropy is drawn and the global generator left alone. The
        dtype is float32 (default) or float64; ``out``, a contiguous tensor, is filled instead.
        """
        import torch

        if out is None:
            out = torch.empty(tuple(shape), dtype=dtype or torch.float32)
        elif tuple(out.shape) != tuple(shape) or not out.is_contiguous():
            raise InputError(f"out has shape {tuple(out.shape)}; it must be contiguous with shape {tuple(shape)}.")
        if out.dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype {out.dtype} cannot be sampled; use torch.float32 or torch.float64.")
        if generator is None:
            generator = torch.Generator()
            generator.seed()
        self.fill(out, generator)
        return out

    def fill(self, out: "torch.Tensor", generator: "torch.Generator") -> None:
        """Overwrite a contiguous tensor with independent draws, unchecked: thousands of small networks feel a check."""
        self._fill(out.view(-1), generator)

    fill.checks = True  # type: ignore[attr-defined]  # as if it had them

    def _moment(self, order: int) -> float:
        """E |X|^order for order 1, 2 and 4."""
        raise InputError(f"{type(self).__name__} has no moment of order {order}.")

    def _fill(self, out: "torch.Tensor", generator: "torch.Generator") -> None:
        """Overwrite the flat tensor ``out`` with independent draws."""
        raise InputError(f"{type(self).__name__} cannot be sampled.")


@checked
@dataclass(frozen=True)
class Gaussian(Law):
    """The normal law N(0, std^2); ``Gaussian(0.0)`` is the constant zero.

    >>> Gaussian(2.0).variance, round(Gaussian(2.0).mean_abs, 6)
    (4.0, 1.595769)

    An InputError if std is negative or not finite.
    """

    std: Std = field()

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", float(self.std))

    def scaled(self, factor: float) -> "Gaussian":
        return Gaussian(self.std * abs(factor))

    def _moment(self, order: int) -> float:
        return {1: self.std * math.sqrt(2 / math.pi), 2: self.std**2, 4: 3 * self.std**4}[order]

    def _fill(self, out: "torch.Tensor", generator: "torch.Generator") -> None:
        if self.std == 0:
            out.zero_()
        else:
            out.normal_(0.0, self.std, generator=generator)


@checked
@dataclass(frozen=True)
class Uniform(Law):
    """The uniform law on [-bound, bound].

    >>> Uniform(3.0).variance, Uniform(3.0).mean_abs
    (3.0, 1.5)

    An InputError if bound is negative or not finite.
    """

    bound: Std

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", float(self.bound))

    def scaled(self, factor: float) -> "Uniform":
        return Uniform(self.bound * abs(factor))

    def _moment(self, order: int) -> float:
        return self.bound**order / (order + 1)

    def _fill(self, out: "torch.Tensor", generator: "torch.Generator") -> None:
        out.uniform_(-self.bound, self.bound, generator=generator)


@checked
@dataclass(frozen=True)
class Discrete(Law):
    """The uniform law on a finite set of values (a value listed twice counts twice).

    >>> Discrete((-1.0, 1.0)).variance, Discrete((-1.0, 1.0)).excess_kurtosis
    (1.0, -2.0)

    At least one value, all finite, or it is an InputError; the growth theorems want a symmetric set (:attr:`even`).
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise InputError("Discrete(values=()) is no law; give one or more finite numbers.")
        object.__setattr__(self, "values", tuple(sorted(map(float, self.values))))

    @property
    def mean(self) -> float:
        """E X: zero for a symmetric set."""
        return 0.0 if self.even else math.fsum(self.values) / len(self.values)

    @property
    def even(self) -> bool:
        return self.values == tuple(-value for value in reversed(self.values))

    def scaled(self, factor: float) -> "Discrete":
        return Discrete(tuple(value * factor for value in self.values))

    def _moment(self, order: int) -> float:
        return math.fsum(abs(value) ** order for value in self.values) / len(self.values)

    def _fill(self, out: "torch.Tensor", generator: "torch.Generator") -> None:
        import torch

        values = torch.tensor(self.values, dtype=out.dtype)
        chosen = torch.randint(len(self.values), out.shape, generator=generator, dtype=torch.int32)
        torch.index_select(values, 0, chosen, out=out)


@checked
def integers(largest: Size, scale: float = 1.0) -> Discrete:
    """The uniform law on {-largest, ..., -1, 0, 1, ..., largest} times ``scale``; its variance is C(C+1)/3 * scale^2.

    >>> integers(3).values
    (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)

    Source: Price-Tanner section 4 (whose "-(C+1)" is a misprint for "-(C-1)").
    """
    return Discrete(tuple(scale * value for value in range(-largest, largest + 1)))


@checked
@dataclass(frozen=True)
class Sparse(Law):
    """Zero with probability 1 - density, else a draw from ``law``; the entries are independent.

    Sampling a density of 1 % costs about a hundredth of sampling the law everywhere.

    >>> Sparse(Gaussian(2.0), 0.5).variance
    2.0

    ``law`` is not itself sparse; ``density`` (alpha) is in (0, 1]. Both are checked with an InputError.

    Source: Price-Tanner section 1.1.
    """

    law: Law
    density: Density

    def __post_init__(self) -> None:
        if isinstance(self.law, Sparse):
            raise InputError(f"Sparse(law={self.law!r}) needs a law that is not itself sparse, such as Gaussian(2.0).")
        object.__setattr__(self, "density", float(self.density))

    @property
    def mean(self) -> float:
        return self.density * self.law.mean

    @property
    def even(self) -> bool:
        return self.law.even

    def scaled(self, factor: float) -> "Sparse":
        return Sparse(self.law.scaled(factor), self.density)

    def _moment(self, order: int) -> float:
        return self.density * self.law._moment(order)

    def _fill(self, out: "torch.Tensor", generator: "torch.Generator") -> None:
        import torch

        if self.density < _GAPS_BELOW:
            places = _kept_places(out.numel(), self.density, generator)
            drawn = torch.empty(len(places), dtype=out.dtype)
            self.law._fill(drawn, generator)
            out.zero_()
            out[places] = drawn
            return
        self.law._fill(out, generator)
        if self.density < 1.0:
            _thin(out, self.density, generator)


def _kept_places(count: int, density: float, generator: "torch.Generator") -> "torch.Tensor":
    """Increasing indices below ``count``, each with probability ``density``; the gaps drawn are geometric."""
    import torch

    scale = 1.0 / math.log1p(-density)
    pieces, last = [], -1
    while last < count - 1:
        expected = (count - 1 - last) * density
        draws = int(expected + 4 * math.sqrt(expected) + 8)
        # 1 - u is in (0, 1], so that the logarithm is finite
        gaps = torch.rand(draws, generator=generator, dtype=torch.float64).neg_().add_(1.0).log_().mul_(scale)
        places = gaps.clamp_(max=float(count)).to(torch.int64).add_(1).cumsum_(0).add_(last)
        pieces.append(places)
        last = int(places[-1])
    places = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    return places[: int(torch.searchsorted(places, count))]


def _thin(out: "torch.Tensor", density: float, generator: "torch.Generator") -> None:
    """Multiply by coins of probability ``density``: 16 random bits each, and 32 more for the rare ties (to 2^-48)."""
    import numpy as np
    import torch

    threshold, rest = divmod(density * 65536, 1.0)
    top = int(threshold) - 32768 - (rest == 0)  # int16 values -32768.. stand for 0..65535; a tie is kept for now
    words = torch.empty((len(out) + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    bits = words.view(torch.int16)[: len(out)]
    np.multiply(out.numpy(), bits.numpy() <= top, out=out.numpy())
    if rest > 0:
        place = (bits == top).nonzero().view(-1)
        out[place] *= torch.rand(len(place), generator=generator, dtype=torch.float64) < rest
