"""Every weight law against quadrature or enumeration, and its samples against its moments."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import epoch0 as e0
from epoch0 import distributions
from epoch0.errors import InputError
from epoch0.seeds import generator


class LawCase:
    """What every law must satisfy; a subclass supplies ``law`` and ``moment``, an independent way to E |X|^p."""

    law: distributions.Law

    def moment(self, order: int) -> float:
        raise AssertionError("the case must supply its own twin")

    def test_moments(self) -> None:
        assert self.law.variance == pytest.approx(self.moment(2), rel=1e-9)
        assert self.law.std == pytest.approx(math.sqrt(self.moment(2)), rel=1e-9)
        assert self.law.mean_abs == pytest.approx(self.moment(1), rel=1e-9)
        assert self.law.excess_kurtosis == pytest.approx(self.moment(4) / self.moment(2) ** 2 - 3, rel=1e-8, abs=1e-9)
        assert self.law.even and self.law.mean == 0.0

    @pytest.mark.sample(1)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_samples_have_the_moments(self, dtype: torch.dtype) -> None:
        # 4 statistics x 2 dtypes x 8 laws at |z| < 5: false-alarm rate below 1e-4 in all; the seed is fixed anyway
        n = 400_000
        x = self.law.sample((n,), generator(11), dtype=dtype).double()
        assert x.dtype == torch.float64
        for order in (1, 2):
            sd = math.sqrt(max(self.moment(2 * order) - self.moment(order) ** 2, 1e-30) / n)
            assert abs(float(x.abs().pow(order).mean()) - self.moment(order)) < 5 * sd + 1e-6 * self.moment(order)
        assert abs(float(x.mean())) < 5 * math.sqrt(self.moment(2) / n)
        # neighbours are uncorrelated: a slip in the placing of kept entries would show here
        corr = float((x[1:] * x[:-1]).mean()) / self.moment(2)
        assert abs(corr) < 5 / math.sqrt(n)
        together = float((x[1:].abs() * x[:-1].abs()).mean())
        sd = math.sqrt((self.moment(2) ** 2 - self.moment(1) ** 4) / n) * 1.8  # neighbouring products overlap
        assert abs(together - self.moment(1) ** 2) < 5 * sd + 1e-6

    def test_scaled(self) -> None:
        scaled = self.law.scaled(-2.5)
        assert scaled.variance == pytest.approx(6.25 * self.law.variance)
        assert scaled.mean_abs == pytest.approx(2.5 * self.law.mean_abs)
        assert scaled.excess_kurtosis == pytest.approx(self.law.excess_kurtosis)

    def test_same_stream_same_bits(self) -> None:
        a = self.law.sample((50, 3), generator(4, 2))
        out = torch.full((50, 3), 7.0)
        assert self.law.sample((50, 3), generator(4, 2), out=out) is out
        assert torch.equal(a, out)
        assert not torch.equal(a, self.law.sample((50, 3), generator(4, 3)))

    def test_global_generator_is_left_alone(self) -> None:
        before = torch.get_rng_state()
        self.law.sample((10,))
        self.law.sample((10,), generator(0))
        assert torch.equal(before, torch.get_rng_state())


def quadrature(density, order: int, bound: float) -> float:
    value, _ = integrate.quad(lambda x: 2 * x**order * density(x), 0, bound, epsabs=0, epsrel=1e-12, limit=200)
    return value


class TestGaussian(LawCase):
    law = e0.Gaussian(1.7)

    def moment(self, order: int) -> float:
        return quadrature(stats.norm(0, 1.7).pdf, order, 40)


class TestUniform(LawCase):
    law = e0.Uniform(0.3)

    def moment(self, order: int) -> float:
        return quadrature(lambda x: 1 / 0.6, order, 0.3)


class TestIntegers(LawCase):
    law = distributions.integers(3, scale=0.5)

    def moment(self, order: int) -> float:
        return sum(abs(0.5 * value) ** order for value in range(-3, 4)) / 7

    def test_variance_in_closed_form(self) -> None:
        assert self.law.variance == pytest.approx(0.25 * 3 * 4 / 3)


class TestDiscreteRepeated(LawCase):
    law = e0.Discrete((-1.0, 1.0, 1.0, -1.0, 5.0, -5.0))

    def moment(self, order: int) -> float:
        return (4 + 2 * 5**order) / 6


class TestSparseGaussian(LawCase):  # by gaps
    law = e0.Sparse(e0.Gaussian(2.0), 0.07)

    def moment(self, order: int) -> float:
        return 0.07 * quadrature(stats.norm(0, 2.0).pdf, order, 40)


class TestSparseUniform(LawCase):  # by mask, with ties between the 16 bits
    law = e0.Sparse(e0.Uniform(1.0), 0.7)

    def moment(self, order: int) -> float:
        return 0.7 / (order + 1)


class TestSparseHalf(LawCase):  # by mask, without ties
    law = e0.Sparse(e0.Gaussian(1.0), 0.5)

    def moment(self, order: int) -> float:
        return 0.5 * quadrature(stats.norm.pdf, order, 40)


class TestSparseDiscrete(LawCase):
    law = e0.Sparse(e0.Discrete((-1.0, 1.0)), 0.3)

    def moment(self, order: int) -> float:
        return 0.3


@given(st.floats(1e-4, 1.0), st.integers(1, 3000), st.integers(0, 2**32))
def test_number_kept_is_binomial(density: float, count: int, seed: int) -> None:
    kept = int((e0.Sparse(e0.Discrete((1.0, -1.0)), density).sample((count,), generator(seed)) != 0).sum())
    # two-sided tail below 1e-7 an example, 50 examples: false-alarm rate 5e-6
    assert stats.binom.cdf(kept, count, density) > 5e-8
    assert stats.binom.sf(kept - 1, count, density) > 5e-8


@pytest.mark.parametrize("density", [0.02, 0.2, 0.44, 0.46, 0.61, 0.999])
def test_places_kept_are_independent_coins(density: float) -> None:
    # chi-square of the pairs (kept, next kept) and of the places modulo 16; level 1e-4 each, 12 tests
    n = 320_000
    kept = (e0.Sparse(e0.Discrete((1.0, -1.0)), density).sample((n,), generator(5)) != 0).numpy()
    pairs = np.bincount(2 * kept[0::2] + kept[1::2], minlength=4)
    p = np.array([(1 - density) ** 2, density * (1 - density), density * (1 - density), density**2])
    assert stats.chisquare(pairs, p * n / 2).pvalue > 1e-4
    by_place = kept.reshape(-1, 16).sum(0)
    z = (by_place - n / 16 * density) / math.sqrt(n / 16 * density * (1 - density))
    assert stats.chi2.sf(float((z**2).sum()), 16) > 1e-4


def test_sparse_sampling_costs_its_density(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    original = e0.Gaussian._fill

    def counting(self, out, generator):
        drawn.append(out.numel())
        original(self, out, generator)

    monkeypatch.setattr(e0.Gaussian, "_fill", counting)
    e0.Sparse(e0.Gaussian(1.0), 0.01).sample((1000, 1000), generator(0))
    assert 9_000 < sum(drawn) < 11_000


def test_constant_zero() -> None:
    assert e0.Gaussian(0.0).variance == 0 and math.isnan(e0.Gaussian(0.0).excess_kurtosis)
    assert not e0.Gaussian(0.0).sample((5,), generator(0)).any()


def test_asymmetric_set_is_not_even() -> None:
    law = e0.Discrete((0.0, 1.0, 2.0))
    assert not law.even and law.mean == 1.0 and law.variance == pytest.approx(2 / 3)
    assert not e0.Sparse(law, 0.5).even


def test_laws_are_values() -> None:
    assert e0.Gaussian(1) == e0.Gaussian(1.0) and hash(e0.Gaussian(1)) == hash(e0.Gaussian(1.0))
    assert repr(e0.Sparse(e0.Uniform(2), 0.5)) == "Sparse(law=Uniform(bound=2.0), density=0.5)"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: e0.Gaussian(-1.0), "std=-1.0"),
        (lambda: e0.Gaussian(math.nan), "std=nan"),
        (lambda: e0.Uniform(math.inf), "bound=inf"),
        (lambda: e0.Discrete(()), "one or more finite|give a finite number"),
        (lambda: e0.Discrete((1.0, math.nan)), "one or more finite|give a finite number"),
        (lambda: e0.Sparse(e0.Gaussian(1.0), 0.0), "density=0.0"),
        (lambda: e0.Sparse(e0.Gaussian(1.0), 1.5), "in \\(0, 1\\]"),
        (lambda: e0.Sparse(e0.Gaussian(1.0), -0.1), "density=-0.1"),
        (lambda: e0.Sparse(e0.Sparse(e0.Gaussian(1.0), 0.5), 0.5), "not itself sparse"),
        (lambda: distributions.integers(0), "integer >= 1"),
        (lambda: e0.Gaussian(1.0).sample((3,), out=torch.zeros(4)), "shape"),
        (lambda: e0.Gaussian(1.0).sample((3,), dtype=torch.float16), "float16"),
    ],
)
def test_bad_input(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
