"""Norm laws: printed tables to the last digit, mixtures of chi-squares by scipy, laws that must hold, errors.

The twins are written apart from the product: ``scipy.stats`` sums over every count, adaptive quadrature, and the bounds
as the paper prints them. Drawn networks are in test_norms_networks.
"""

import doctest
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from epoch0.errors import InputError
from epoch0.theory import norms
from epoch0.theory.norms import _by_contour, _by_sum, layer_failure, saddle, subspace_width, tail

METHODS = ("paper", "chernoff", "exact")
# samples, layers -> for eps 0.05, 0.1, 0.2, 0.5 the widths by the paper, by the best lambda, by the exact law
WIDTHS = {
    (1, 1): [(16175, 14765, 7681), (4152, 3698, 1919), (1092, 931, 479), (200, 158, 75)],
    (1, 10): [(26271, 24004, 15684), (6743, 6029, 3928), (1773, 1535, 989), (324, 273, 166)],
    (1, 100): [(36367, 33261, 24172), (9334, 8378, 6069), (2454, 2153, 1542), (449, 390, 271)],
    (1000, 1): [(46463, 42536, 32973), (11926, 10742, 8300), (3135, 2780, 2128), (573, 508, 382)],
    (1000, 10): [(56558, 51828, 41811), (14517, 13120, 10551), (3816, 3414, 2724), (698, 626, 494)],
    (50000, 10): [(73711, 67652, 57021), (18919, 17186, 14445), (4972, 4498, 3761), (909, 827, 687)],
    (50000, 100): [(83807, 76986, 66057), (21510, 19592, 16767), (5653, 5138, 4380), (1033, 945, 802)],
}


def tail_by_mixture(width: int, ratio: float, upper: bool) -> float:
    """P((2/m) chi2_A beyond the ratio), A ~ Bin(m, 1/2), over every count with scipy.stats."""
    on = np.arange(1, width + 1)
    mass = stats.binom.pmf(on, width, 0.5)
    limit = width * ratio / 2
    beyond = stats.chi2.sf(limit, on) if upper else stats.chi2.cdf(limit, on)
    return float(mass @ beyond) + (0.0 if upper else 0.5**width)


def paper_exponent(eps: float) -> float:
    return eps / 4 + math.log(2 / (1 + math.sqrt(1 + eps)))


def chernoff_by_search(ratio: float) -> float:
    """sup over lambda of lambda t/2 - log(0.5 + 0.5 (1 - 2 lambda)^(-1/2)), numerically."""

    def bound(value: float) -> float:
        return math.log(0.5 + 0.5 / math.sqrt(1 - 2 * value)) - value * ratio / 2

    ends = (0.0, 0.4999999) if ratio > 1 else (-1e4, 0.0)
    return -optimize.minimize_scalar(bound, bounds=ends, method="bounded", options={"xatol": 1e-12}).fun


class TestTables:
    @pytest.mark.parametrize(("samples", "layers"), WIDTHS)
    def test_required_widths(self, samples: int, layers: int) -> None:
        for eps, row in zip((0.05, 0.1, 0.2, 0.5), WIDTHS[samples, layers], strict=True):
            found = tuple(norms.required_width(eps, 0.05, samples, layers, method) for method in METHODS)
            assert found == row
            assert tuple(norms.summary(eps, 0.05, samples, layers).widths.values()) == row

    @pytest.mark.parametrize(
        ("eps", "paper", "upper", "lower"),
        [(0.05, 0.0002281, 0.0002429, 0.0002576), (0.1, 0.0008886, 0.0009451, 0.0010630),
         (0.2, 0.0033812, 0.0035867, 0.0045451), (0.5, 0.0185049, 0.0195058, 0.0364211)],
    )  # fmt: skip
    def test_rates(self, eps: float, paper: float, upper: float, lower: float) -> None:
        assert norms.paper_rate(eps) == pytest.approx(paper, abs=5.1e-8)
        assert norms.chernoff_rate(eps) == pytest.approx(upper, abs=5.1e-8)
        assert norms.chernoff_rate(eps, "lower") == pytest.approx(lower, abs=5.1e-8)

    @pytest.mark.parametrize(
        ("width", "eps", "upper", "lower"),
        [(20, 0.5, 0.15335, 0.14843), (100, 0.2, 0.18118, 0.18794), (500, 0.1, 0.15840, 0.15836)],
    )
    def test_tails(self, width: int, eps: float, upper: float, lower: float) -> None:
        assert tail(width, eps) == pytest.approx(upper, abs=5.1e-6)
        assert tail(width, -eps) == pytest.approx(lower, abs=5.1e-6)
        assert norms.NormRatio((width,)).variance == pytest.approx(5 / width, rel=1e-14)

    @pytest.mark.parametrize(("dimension", "width"), [(1, 25097), (2, 35285), (10, 129914), (100, 1671944)])
    def test_equation_eleven_as_printed(self, dimension: int, width: int) -> None:
        assert math.ceil(subspace_width(0.2, 0.05, dimension, layers=10)) == width

    def test_as_text(self) -> None:
        assert str(norms.summary(0.1, 0.05, samples=50_000, layers=100)).splitlines() == [
            "Width for 100 ReLU layers to keep the squared norm of 50,000 inputs within a factor 1 ± 0.1 in each,",
            "with probability at least 0.95 (forward):",
            "method    width  to exact  failure",
            "paper     21510      1.28   0.0500",
            "chernoff  19592      1.17   0.0500",
            "exact     16767      1.00   0.0500",
        ]


class TestTwins:
    @pytest.mark.parametrize("width", [1, 2, 5, 20, 100, 256, 257, 500, 3000, 20_000])
    @pytest.mark.parametrize("eps", [0.003, 0.1, 0.5, 0.9, 0.999])
    def test_tails_are_mixtures_of_chi_squares(self, width: int, eps: float) -> None:
        for upper in (True, False):
            twin = tail_by_mixture(width, 1 + eps if upper else 1 - eps, upper)
            if twin > 1e-290:
                assert tail(width, eps if upper else -eps) == pytest.approx(twin, rel=2e-10)

    @pytest.mark.parametrize("width", [257, 600])
    def test_the_two_routes_agree(self, width: int) -> None:
        for excess in (1e-9, 1e-3, 0.03, 0.4, 0.99, -1e-9, -1e-3, -0.03, -0.4, -0.9):
            both = _by_sum(width, excess), _by_contour(width, excess, saddle(excess))
            assert both[0] == pytest.approx(both[1], rel=1e-12)

    @pytest.mark.parametrize(
        ("width", "excess", "value"),
        [
            (300, 0.2, 0.0663120135278766),
            (100000, 0.01, 0.07895164950230499),
            (100000, -0.03, 9.407497091117658e-06),
            (1000000, -0.01, 3.651368609276224e-06),
            (1000000000, 0.0001, 0.07865264740912879),
            (1000000000000, -5e-06, 0.01267357342148178),
        ],
    )
    def test_tails_to_35_digits(self, width: int, excess: float, value: float) -> None:
        """Bromwich's integral in arithmetic of 35 digits, done once elsewhere."""
        assert tail(width, excess) == pytest.approx(value, rel=1e-12 if width <= 10**6 else 1e-10)

    @pytest.mark.parametrize("width", [10**6, 10**9, 10**12])
    def test_great_widths_near_the_normal_law(self, width: int) -> None:
        """The tail of a standardised mean is the normal one with the skewness term; the next is of order 1/m."""
        skewness = (15 / 2 - 3 * 3 / 2 / 2 + 2 / 8) / 1.25**1.5  # third cumulant of B Z^2 over its sd cubed
        for z in (0.5, 2.0, 4.0):
            sum_of_both = layer_failure(width, z * math.sqrt(5 / width))
            assert sum_of_both == pytest.approx(2 * stats.norm.sf(z), rel=2000 / width + 1e-9)
            one = tail(width, z * math.sqrt(5 / width))
            edge = stats.norm.sf(z) + skewness / 6 / math.sqrt(width) * (z * z - 1) * stats.norm.pdf(z)
            assert one == pytest.approx(edge, rel=2000 / width + 1e-9)

    @pytest.mark.parametrize("eps", [1e-6, 0.01, 0.3, 0.9, 0.999])
    def test_rates_by_search(self, eps: float) -> None:
        assert norms.paper_rate(eps) == pytest.approx(paper_exponent(eps), abs=1e-15)
        for name, ratio in (("upper", 1 + eps), ("lower", 1 - eps)):
            assert norms.chernoff_rate(eps, name) == pytest.approx(chernoff_by_search(ratio), rel=1e-6, abs=1e-15)

    def test_small_eps_keeps_its_digits(self) -> None:
        for eps in (1e-3, 1e-5):
            assert norms.paper_rate(eps) == pytest.approx(3 * eps**2 / 32 * (1 - 5 * eps / 9), rel=3 * eps**2 + 1e-9)
            for name in ("upper", "lower"):
                assert norms.chernoff_rate(eps, name) == pytest.approx(eps**2 / 10, rel=2 * eps)

    @pytest.mark.parametrize("method", METHODS)
    def test_failure_of_layers_and_samples_by_hand(self, method: str) -> None:
        eps, widths, samples = 0.4, [200, 300, 200], 7
        one = {
            "paper": lambda m: 2 * math.exp(-m * paper_exponent(eps)),
            "chernoff": lambda m: sum(math.exp(-m * chernoff_by_search(t)) for t in (1 + eps, 1 - eps)),
            "exact": lambda m: tail_by_mixture(m, 1 + eps, True) + tail_by_mixture(m, 1 - eps, False),
        }[method]
        each = [one(m) for m in widths]
        total = samples * (1 - math.prod(1 - p for p in each) if method == "exact" else sum(each))
        assert norms.failure_probability(eps, widths, samples, method) == pytest.approx(min(1.0, total), rel=1e-6)
        twice = norms.failure_probability(eps, widths, samples, method, "gradient")
        assert twice == pytest.approx(min(1.0, 2 * total), rel=1e-6)

    @pytest.mark.parametrize(("width", "eps"), [(1, 0.5), (5, 0.3), (20, 0.5), (100, 0.1), (500, 0.05), (4000, 0.1)])
    def test_law_and_tail_agree(self, width: int, eps: float) -> None:
        """The Fourier series of the law over depth, for one layer, against the tails."""
        law = norms.NormRatio((width,))
        outside = law.cdf(1 - eps) + 1 - law.cdf(1 + eps)
        assert outside == pytest.approx(layer_failure(width, eps), abs=1e-12)

    @pytest.mark.parametrize("width", [1, 2, 7, 100])
    def test_one_layer_is_a_mixture_of_chi_squares(self, width: int) -> None:
        x = np.array([0.01, 0.3, 1.0, 1.7, 4.0])
        on = np.arange(1, width + 1)
        mass = stats.binom.pmf(on, width, 0.5)
        twin = [0.5**width + mass @ stats.chi2.cdf(width * value / 2, on) for value in x]
        np.testing.assert_allclose(norms.NormRatio((width,)).cdf(x), twin, atol=1e-11)

    @pytest.mark.sample(1)
    @pytest.mark.parametrize(("widths", "scales"), [((3, 4), ()), ((5, 20, 9), (0.5, 2.0, 1.3)), ((50,) * 8, ())])
    def test_moments_are_integrals_of_the_law(self, widths: tuple[int, ...], scales: tuple[float, ...]) -> None:
        law = norms.NormRatio(widths, scales)
        # in y = log x the law is smooth; pieces so small that their middles tell
        ends = np.exp(np.linspace(*(2 * math.log(end) for end in law.norm.support), 40_001))
        mass, x = np.diff(law.cdf(ends)), np.sqrt(ends[1:] * ends[:-1])
        assert mass.sum() + law.zero_probability == pytest.approx(1.0, abs=1e-10)
        assert (mass * x).sum() == pytest.approx(law.mean, rel=1e-6)
        assert (mass * x * x).sum() - law.mean**2 == pytest.approx(law.variance, rel=1e-5)
        assert (mass * np.abs(1 - np.sqrt(x))).sum() + law.zero_probability == pytest.approx(
            law.mean_distortion, rel=1e-4
        )

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("width", [1, 5, 60])
    @pytest.mark.parametrize("scale", [0.3, 2.5])
    def test_mean_distortion_by_quadrature(self, width: int, scale: float) -> None:
        """One layer: an integral of |1 - r| over every chi density, adaptively."""
        std = math.sqrt(2 * scale / width)
        total = 0.5**width
        for a in range(1, width + 1):
            mass = math.comb(width, a) / 2**width
            if mass < 1e-13:
                continue
            chi = stats.chi(a)
            marks = [max(0.0, math.sqrt(a) - 9), math.sqrt(a) + 9]
            inside = [1 / std] if marks[0] < 1 / std < marks[1] else None
            total += (
                mass
                * integrate.quad(
                    lambda r, chi=chi: abs(1 - std * r) * chi.pdf(r), *marks, points=inside, epsabs=1e-11, limit=200
                )[0]
            )
        law = norms.NormRatio((width,), (scale,))
        assert law.mean_distortion == pytest.approx(total, abs=1e-9)


class TestLaws:
    @given(
        st.floats(0.03, 0.97), st.floats(1e-9, 0.999), st.integers(1, 10**6), st.integers(1, 500),
        st.sampled_from(METHODS), st.sampled_from(["forward", "gradient"]),
    )  # fmt: skip
    def test_required_width_is_the_least(self, eps, delta, samples, layers, method, direction) -> None:
        width = norms.required_width(eps, delta, samples, layers, method, direction)
        assert type(width) is int

        def failure(size: int) -> float:
            return norms.failure_probability(eps, size, samples, method, direction, layers)

        assert failure(width) <= delta
        assert width == 1 or failure(width - 1) > delta
        assert failure(2 * width) <= failure(width + 1) <= failure(width)

    @given(st.floats(0.03, 0.97), st.floats(1e-9, 0.999), st.integers(1, 10**6), st.integers(1, 500))
    def test_exact_below_chernoff_below_paper(self, eps, delta, samples, layers) -> None:
        paper, chernoff, exact = (norms.required_width(eps, delta, samples, layers, m) for m in METHODS)
        assert 1 <= exact <= chernoff <= paper
        for width in (exact, chernoff):
            chances = [norms.failure_probability(eps, width, samples, m, layers=layers) for m in METHODS]
            assert chances[2] <= chances[1] * (1 + 1e-12) <= chances[0] * (1 + 2e-12)

    @given(st.integers(1000, 50_000), st.floats(1e-6, 0.5), st.integers(1, 5), st.sampled_from(METHODS))
    def test_tolerance_inverts(self, width, delta, layers, method) -> None:
        eps = norms.tolerance(width, delta, 1, layers, method)
        assert norms.failure_probability(eps, width, method=method, layers=layers) <= delta
        assert norms.failure_probability(eps * (1 - 1e-9), width, method=method, layers=layers) > delta
        assert norms.required_width(eps, delta, 1, layers, method) <= width
        assert norms.required_width(eps * (1 - 1e-9), delta, 1, layers, method) > width - 1

    @pytest.mark.parametrize("eps", [0.001, 0.3, 0.999])
    def test_failure_falls_with_the_width(self, eps: float) -> None:
        """The search for the least width rests on it; not proved, so computed for every width up to 600."""
        chances = np.array([layer_failure(width, eps) for width in range(1, 601)])
        assert (np.diff(chances) < 0).all()

    @given(st.floats(1e-5, 0.99999))
    def test_rates_are_in_order(self, eps: float) -> None:
        """The paper's rate is below the best of the upper tail, and that below the lower tail's: its equation (63)."""
        assert 0 < norms.paper_rate(eps) <= norms.chernoff_rate(eps) <= norms.chernoff_rate(eps, "lower")

    @given(st.integers(1, 5000), st.floats(0.001, 0.999))
    def test_chernoff_bounds_the_tail_and_is_its_order(self, width: int, eps: float) -> None:
        for name, excess in (("upper", eps), ("lower", -eps)):
            rate = norms.chernoff_rate(eps, name)
            found = tail(width, excess)
            assert found <= math.exp(-width * rate) * (1 + 1e-12)
            if found > 0:  # what is missing is of the order of the logarithm of the width: Cramer's theorem
                assert -math.log(found) <= width * rate + 0.5 * math.log(width) + 8

    @pytest.mark.slow
    @settings(max_examples=6)
    @given(st.lists(st.tuples(st.integers(1, 300), st.floats(0.1, 10)), min_size=1, max_size=3), st.floats(0.01, 0.99))
    def test_scales_only_scale(self, layers: list[tuple[int, float]], p: float) -> None:
        widths, scales = tuple(n for n, _ in layers), tuple(s for _, s in layers)
        plain, scaled = norms.NormRatio(widths), norms.NormRatio(widths, scales)
        factor = math.prod(scales)
        assert scaled.mean == pytest.approx(factor, rel=1e-12)
        assert scaled.std == pytest.approx(factor * plain.std, rel=1e-12)
        assert scaled.quantile(p) == pytest.approx(factor * plain.quantile(p), rel=1e-9)
        assert scaled.cdf(factor) == pytest.approx(plain.cdf(1.0), abs=1e-10)
        value = plain.quantile(p)
        assert plain.cdf(value) >= p - 1e-10
        assert value == 0 or plain.cdf(value) == pytest.approx(p, abs=1e-10)

    def test_mean_of_the_norm_is_the_growth(self) -> None:
        law = norms.NormRatio((10, 100))
        assert law.norm.std**2 + law.norm.mean**2 == pytest.approx(law.mean, rel=1e-12)
        assert law.norm.mean == pytest.approx(0.9356372180 * 0.9937319380, abs=1e-9)

    def test_intervals(self) -> None:
        law = norms.NormRatio((200,) * 5)
        low, high = law.interval(0.9)
        assert law.cdf(high) - law.cdf(low) == pytest.approx(0.9, abs=1e-10)
        wider = law.interval(0.9999)
        assert wider[0] < low and high < wider[1]
        assert law.cdf(wider[0]) == pytest.approx(0.0001 / 2, abs=1e-12)
        assert norms.NormRatio((1, 1)).interval()[0] == 0.0

    def test_mean_distortion_far_from_one(self) -> None:
        dead = norms.NormRatio((1,) * 30)  # nearly always 0
        assert dead.zero_probability == pytest.approx(1 - 2.0**-30, rel=1e-15)
        far = norms.NormRatio((100,) * 3, (100.0,) * 3)
        assert far.mean_distortion == pytest.approx(far.norm.mean - 1, rel=1e-12)
        tiny = norms.NormRatio((100,), (1e-6,))
        assert tiny.mean_distortion == pytest.approx(1 - tiny.norm.mean, rel=1e-12)

    def test_initializations(self) -> None:
        sizes = [500, 100, 200, 300]
        assert norms.NormRatio.forward(sizes).scales == (1.0, 1.0, 1.0)
        assert norms.NormRatio.forward(sizes, "he_fan_in").scales == pytest.approx((0.2, 2.0, 1.5))
        assert norms.NormRatio.forward(sizes, "glorot").scales == pytest.approx((1 / 6, 2 / 3, 0.6))
        assert norms.NormRatio.forward([100] * 11, "glorot").mean == pytest.approx(0.5**10)
        # He by fan-out: going back a layer multiplies by the ratio of the widths, and nothing going forward
        for layer, mean in ((1, 100 / 300), (2, 200 / 300), (3, 1.0)):
            law = norms.NormRatio.gradient(sizes, layer)
            assert law.widths == (100, 200) and law.mean == pytest.approx(mean)
        # by fan-in it is the other way round
        for layer, mean in ((1, 1.0), (2, 0.2), (3, 0.4)):
            assert norms.NormRatio.gradient(sizes, layer, "he_fan_in").mean == pytest.approx(mean)
        even = [100] * 6
        assert norms.NormRatio.gradient(even, 2) == norms.NormRatio.forward(even[:-1])

    def test_ends_of_floats(self) -> None:
        assert norms.NormRatio((1,) * 1000).variance == math.inf
        assert norms.failure_probability(1e-300, 10) == 1.0
        assert norms.failure_probability(0.9, 10**7) == 0.0
        assert norms.failure_probability(math.nextafter(1.0, 0.0), 5000) > 0
        assert norms.failure_probability(0.5, 3, samples=10**9, layers=10**12) == 1.0


class TestBadInput:
    @pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
    def test_eps_and_delta(self, bad: float) -> None:
        for call in (
            lambda: norms.failure_probability(bad, 100),
            lambda: norms.required_width(bad, 0.05),
            lambda: norms.required_width_subspace(bad, 0.05, 2),
            lambda: norms.summary(bad, 0.05),
            lambda: norms.paper_rate(bad),
            lambda: norms.chernoff_rate(bad),
        ):
            with pytest.raises(InputError, match=r"eps=.* strictly between 0 and 1"):
                call()
        for call in (
            lambda: norms.required_width(0.1, bad),
            lambda: norms.required_width_subspace(0.1, bad, 2),
            lambda: norms.summary(0.1, bad),
            lambda: norms.tolerance(100, bad),
        ):
            with pytest.raises(InputError, match=r"delta=.* strictly between 0 and 1"):
                call()

    def test_counts(self) -> None:
        for call, told in (
            (lambda: norms.failure_probability(0.1, 0), "widths=0"),
            (lambda: norms.failure_probability(0.1, [10, -3]), "=-3"),
            (lambda: norms.failure_probability(0.1, []), "widths holds no layer"),
            (lambda: norms.failure_probability(0.1, [10, 20], layers=3), "2 widths and layers=3"),
            (lambda: norms.failure_probability(0.1, 10, samples=0), "samples=0"),
            (lambda: norms.failure_probability(0.1, 10, layers=0), "layers=0"),
            (lambda: norms.required_width(0.1, 0.1, samples=-1), "samples=-1"),
            (lambda: norms.required_width(0.1, 0.1, layers=0), "layers=0"),
            (lambda: norms.required_width_subspace(0.1, 0.1, 0), "dimension=0"),
            (lambda: norms.tolerance(0, 0.1), "width=0"),
            (lambda: norms.NormRatio(()), "no layer"),
            (lambda: norms.NormRatio((10, 0)), r"widths\[1\]=0"),
            (lambda: norms.NormRatio((10, 10), (1.0,)), "2 widths and 1 scales"),
            (lambda: norms.NormRatio((10,), (0.0,)), "scales"),
            (lambda: norms.NormRatio((10,), (math.inf,)), "scales"),
            (lambda: norms.NormRatio.forward([10]), "no layer"),
            (lambda: norms.NormRatio.forward([0, 10]), r"sizes\[0\]=0"),
            (lambda: norms.NormRatio.gradient([10, 10], 1), "exactly 1"),
            (lambda: norms.NormRatio.gradient([10, 10, 10], 3), "layer=3 of 2"),
            (lambda: norms.NormRatio.gradient([10, 10, 10], 0), "layer=0"),
            (lambda: norms.NormRatio((10,)).interval(1.0), "level=1.0"),
            (lambda: norms.NormRatio((10,)).quantile(0.0), "p=0.0"),
        ):
            with pytest.raises(InputError, match=told):
                call()

    def test_words(self) -> None:
        with pytest.raises(InputError, match=r"method='exakt'.*Did you mean 'exact'"):
            norms.failure_probability(0.1, 100, method="exakt")
        with pytest.raises(InputError, match=r"direction='backward'.*'forward' or 'gradient'"):
            norms.required_width(0.1, 0.05, direction="backward")
        with pytest.raises(InputError, match=r"init='kaiming'.*'he', 'he_fan_in' or 'glorot'"):
            norms.NormRatio.forward([10, 10], init="kaiming")
        with pytest.raises(InputError, match="tail='both'"):
            norms.chernoff_rate(0.1, "both")

    def test_no_tolerance_at_this_width(self) -> None:
        with pytest.raises(InputError, match=r"width=2 keeps no tolerance.*width of at least 10") as told:
            norms.tolerance(2, 0.1)
        assert "exact" in str(told.value)
        assert norms.tolerance(10, 0.1) < 1

    def test_subspace_is_refused_beyond_one_layer(self) -> None:
        assert norms.required_width_subspace(0.2, 0.05, 1) < norms.required_width_subspace(0.2, 0.05, 2)
        with pytest.raises(InputError, match=r"layers=2: .*one layer only.*rank"):
            norms.required_width_subspace(0.2, 0.05, 2, layers=2)


def test_results_as_dictionaries() -> None:
    width = json.loads(json.dumps(norms.summary(0.1, 0.05, 3, 2, "gradient").to_dict()))
    assert width["direction"] == "gradient" and set(width["widths"]) == set(METHODS) == set(width["failures"])


def test_great_widths_are_found_fast() -> None:
    """Widths near 100,000 by all three methods, and the law of a deep wide network."""
    start = time.process_time()
    widths = [norms.required_width(0.045, 0.05, 50_000, 100, method) for method in METHODS]
    assert widths[2] > 80_000
    norms.NormRatio((100_000,) * 100).interval(0.95)
    assert time.process_time() - start < 1.0  # 0.1 s on the machine this was written on


def test_import_is_light() -> None:
    code = "import sys, epoch0.theory.norms\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"torch", "scipy.stats", "scipy.optimize", "matplotlib", "pandas"}


def test_the_page_says_what_the_code_does() -> None:
    """Every example and both tables of docs/norms.md."""
    page = (Path(__file__).parents[2] / "docs" / "norms.md").read_text()
    examples = "\n".join(block.split("```")[0] for block in page.split("```pycon\n")[1:])
    parsed = doctest.DocTestParser().get_doctest(examples, {}, "norms.md", None, 0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    result = doctest.DocTestRunner(optionflags=flags).run(parsed)
    assert result.attempted >= 12 and result.failed == 0
    for (samples, layers), cells in WIDTHS.items():
        row = " | ".join(f"{paper} / {chernoff} / **{exact}**" for paper, chernoff, exact in cells)
        assert f"| {samples}, {layers} | {row} |" in page
    for width in (50, 100, 500, 2000):
        row = next(line for line in page.splitlines() if line.startswith(f"| {width} |"))
        for layers, cell in zip((1, 10, 50, 100), row.split("|")[2:-1], strict=True):
            ends = [float(end) for end in cell.split(" to ")]
            assert ends == pytest.approx(norms.NormRatio((width,) * layers).interval(), abs=6e-3)
