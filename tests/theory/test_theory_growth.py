"""Growth theory: printed tables, closed forms against sums, quadrature and simulation, laws, errors.

The twins here are written apart from the product: full sums with math.comb and math.lgamma, scipy's adaptive
quadrature, and networks drawn entry by entry. A simulated mean may be off by 4.5 standard errors: 7e-6 false alarms
each, with about 60 of them below 5e-4 for the whole file; seeds are fixed.
"""

import json
import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special

import epoch0 as e0
from epoch0.distributions import Discrete, Gaussian, Law, Sparse, Uniform, integers
from epoch0.errors import InputError
from epoch0.theory import growth

SIGMAS = 4.5


def dense_by_full_sum(width: int, probability: float) -> float:
    """E chi_A over every count, with log-gammas from the standard library."""
    total = 0.0
    for a in range(1, width + 1):
        mass = math.exp(
            math.lgamma(width + 1) - math.lgamma(a + 1) - math.lgamma(width - a + 1)
            + a * math.log(probability) + (width - a) * math.log1p(-probability)
        )  # fmt: skip
        total += mass * math.sqrt(2) * math.exp(math.lgamma((a + 1) / 2) - math.lgamma(a / 2))
    return total


def root_by_quadrature(transform, terms: int) -> float:
    """E sqrt(S) = (1 / (2 sqrt pi)) int (1 - E exp(-sS)) s^(-3/2) ds, adaptively, with s = v^2."""

    def integrand(v: float) -> float:
        return (1 - transform(v * v) ** terms) / (v * v) / math.sqrt(math.pi)

    # in v the integral is int_0^inf 2 v (...) v^-3 / (2 sqrt pi) dv
    marks = [1e-7, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4]
    middle = sum(integrate.quad(integrand, a, b, epsrel=1e-11, limit=400)[0] for a, b in pairwise(marks))
    return middle + integrate.quad(lambda w: integrand(1 / w) / w**2, 1e-12, 1e-4)[0]


def simulate(law: Law, rows: int, direction, draws: int, seed: int, slope: float = 0.0):
    """Growth of a tangent along ``direction`` at an unrelated point, drawn entry by entry: mean, error, mean square."""
    generator = np.random.default_rng(seed)
    density, kept = (law.density, law.law) if isinstance(law, Sparse) else (1.0, law)
    shape = (draws, rows, len(direction))
    if isinstance(kept, Gaussian):
        weights = generator.normal(0, kept.std, shape)
    elif isinstance(kept, Uniform):
        weights = generator.uniform(-kept.bound, kept.bound, shape)
    else:
        weights = generator.choice(np.array(kept.values), shape)
    weights *= generator.random(shape) < density
    bias = generator.normal(0, 0.01, (draws, rows))
    point = generator.normal(size=len(direction))
    gates = np.where(weights @ point + bias > 0, 1.0, slope)
    ratios = np.linalg.norm(gates * (weights @ np.asarray(direction)), axis=1)
    return ratios.mean(), ratios.std(ddof=1) / math.sqrt(draws), (ratios**2).mean()


def one_hot(size: int):
    return np.eye(size)[0]


def flat(size: int):
    return np.full(size, size**-0.5)


class TestTables:
    """Numbers printed in the theory page and its survey, to their last digit."""

    @pytest.mark.parametrize(("width", "value"), [(10, 1.323191), (100, 1.405349), (784, 1.413086)])
    def test_dense_sigma_two(self, width: int, value: float) -> None:
        law = Gaussian(2 * width**-0.5)
        assert growth.exact(law, width) == pytest.approx(value, abs=5.1e-7)
        assert growth.lower_bound(law, width) == pytest.approx(0.797885, abs=5.1e-7)
        assert growth.upper_bound(law, width) == pytest.approx(1.414214, abs=5.1e-7)

    @pytest.mark.parametrize(
        ("width", "value"), [(1, 0.5641895835), (10, 0.9356372180), (100, 0.9937319380), (784, 0.9992025136)]
    )
    def test_dense_sigma_root_two(self, width: int, value: float) -> None:
        law = Gaussian((2 / width) ** 0.5)
        assert growth.exact(law, width) == pytest.approx(value, abs=5.1e-11)
        assert growth.lower_bound(law, width) == pytest.approx(0.56419, abs=5.1e-6)

    @pytest.mark.parametrize(
        ("width", "depth", "value"),
        [(10, 1, 0.99239), (10, 2, 0.98484), (10, 5, 0.96254), (10, 10, 0.92648),
         (100, 1, 1.05401), (100, 2, 1.11094), (100, 5, 1.30085), (100, 10, 1.69221)],
    )  # fmt: skip
    def test_depth(self, width: int, depth: int, value: float) -> None:
        law = Gaussian(1.5 * width**-0.5)
        assert growth.bounds(law, [width] * depth).over_depth.exact == pytest.approx(value, abs=5.1e-6)
        assert growth.GrowthLaw((width,) * depth, (law.std,) * depth).mean == pytest.approx(value, abs=5.1e-6)

    @pytest.mark.parametrize(
        ("density", "paper", "fourth", "minimum", "maximum", "upper"),
        [
            (0.01, 0.00798, 0.10648, 0.126754, 0.141292, 0.141421),
            (0.05, 0.03989, 0.29466, 0.310130, 0.315968, 0.316228),
            (0.1, 0.07979, 0.43128, 0.442974, 0.446852, 0.447214),
            (0.2, 0.15958, 0.62107, 0.629521, 0.631948, 0.632456),
            (0.3, 0.23937, 0.76538, 0.772245, 0.773977, 0.774597),
            (0.5, 0.39894, 0.99306, 0.998244, 0.999201, 1.000000),
            (0.7, 0.55852, 1.17754, 1.181787, 1.182272, 1.183216),
            (1.0, 0.79788, 1.40973, 1.413086, 1.413086, 1.414214),
        ],
    )
    def test_sparse_gaussian_784(
        self, density: float, paper: float, fourth: float, minimum: float, maximum: float, upper: float
    ) -> None:
        row = growth.bounds(Sparse(Gaussian(2.0), density).scaled(784**-0.5), 784).layers[0]
        assert row.paper_lower == pytest.approx(paper, abs=5.1e-6)
        assert row.lower == pytest.approx(fourth, abs=5.1e-6)
        assert (row.minimum, row.maximum) == pytest.approx((minimum, maximum), abs=5.1e-7)
        assert row.upper == pytest.approx(upper, abs=5.1e-7)

    @pytest.mark.parametrize(
        ("law", "width", "density", "paper", "fourth_flat", "fourth_one_hot"),
        [
            (Gaussian(2.0), 10, 0.1, 0.0798, 0.3131, 0.1703),
            (Gaussian(2.0), 10, 0.5, 0.3989, 0.8006, 0.6901),
            (Gaussian(2.0), 10, 1.0, 0.7979, 1.1547, 1.1547),
            (Uniform(12**0.5), 10, 0.1, 0.0612, 0.3333, 0.2108),
            (Uniform(12**0.5), 10, 0.5, 0.3062, 0.8133, 0.7857),
            (Uniform(12**0.5), 10, 1.0, 0.6124, 1.1641, 1.2599),
            (Gaussian(2.0), 784, 0.1, 0.0798, 0.4458, 0.4313),
            (Gaussian(2.0), 784, 0.5, 0.3989, 0.9968, 0.9931),
            (Uniform(12**0.5), 784, 0.1, 0.0612, 0.4458, 0.4376),
            (Uniform(12**0.5), 784, 0.5, 0.3062, 0.9968, 0.9961),
            (integers(2), 784, 0.1, 0.0424, 0.3152, None),
            (integers(2), 784, 0.5, 0.2121, 0.7049, None),
            (integers(2), 784, 1.0, 0.4243, 0.9968, None),
        ],
    )
    def test_fourth_moment_bound_with_its_direction(
        self, law: Law, width: int, density: float, paper: float, fourth_flat: float, fourth_one_hot: float | None
    ) -> None:
        entry = Sparse(law, density).scaled(width**-0.5)
        assert growth.lower_bound(entry, width) == pytest.approx(paper, abs=5.1e-5)
        assert growth.fourth_moment_lower_bound(entry, width, 1 / width) == pytest.approx(fourth_flat, abs=5.1e-5)
        if fourth_one_hot is not None:
            assert growth.fourth_moment_lower_bound(entry, width, 1.0) == pytest.approx(fourth_one_hot, abs=5.1e-5)

    @pytest.mark.parametrize(
        ("density", "one_hot_value", "flat_value"), [(0.1, 0.22999, 0.39250), (0.5, 0.85251, 0.93032)]
    )
    def test_sparse_width_ten(self, density: float, one_hot_value: float, flat_value: float) -> None:
        law = Sparse(Gaussian(2.0), density).scaled(10**-0.5)
        assert growth.sparse_minimum(law, 10) == pytest.approx(one_hot_value, abs=5.1e-6)
        assert growth.sparse_maximum(law, 10) == pytest.approx(flat_value, abs=5.1e-6)

    def test_corollaries(self) -> None:
        """Price-Tanner's three bases, as printed, for unscaled weights of width k."""
        k, density = 50, 0.3
        root = math.sqrt(k)
        assert growth.lower_bound(Sparse(Gaussian(1.7), density), k) == pytest.approx(
            density * 1.7 * root / math.sqrt(2 * math.pi)
        )
        assert growth.lower_bound(Sparse(Uniform(1.7), density), k) == pytest.approx(
            density * 1.7 * root / (4 * math.sqrt(2))
        )
        values = (-3.0, -1.0, 1.0, 3.0)
        assert growth.lower_bound(Sparse(Discrete(values), density), k) == pytest.approx(
            density * root * 8 / (2 * math.sqrt(2) * 4)
        )


class TestTwins:
    @pytest.mark.parametrize("width", [1, 2, 3, 10, 57, 300, 1000])
    @pytest.mark.parametrize("probability", [0.5, 0.05, 0.003])
    def test_full_sum(self, width: int, probability: float) -> None:
        twin = dense_by_full_sum(width, probability)
        assert growth.binomial_chi_mean(width, probability) == pytest.approx(twin, rel=1e-11)

    @pytest.mark.parametrize(("width", "fan_in", "density"), [(1, 4, 0.3), (5, 3, 0.5), (20, 20, 0.1), (7, 40, 0.9)])
    @pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
    def test_quadrature(self, width: int, fan_in: int, density: float, slope: float) -> None:
        activation = e0.activations.leaky_relu(slope)
        counts = np.arange(fan_in + 1)
        mass = np.array([math.comb(fan_in, n) * density**n * (1 - density) ** (fan_in - n) for n in counts])

        def transform(s: float) -> float:
            kept = [(1 + 2 * s * c**2 * counts / fan_in) ** -0.5 for c in (slope, 1.0)]
            return float(mass @ (kept[0] + kept[1]) / 2)

        law = Sparse(Gaussian(1.0), density)
        assert growth.sparse_maximum(law, width, fan_in, activation) == pytest.approx(
            root_by_quadrature(transform, width), rel=1e-6
        )

        def single(s: float) -> float:
            return 1 - density + density * sum((1 + 2 * s * c**2) ** -0.5 for c in (slope, 1.0)) / 2

        assert growth.sparse_minimum(law, width, activation) == pytest.approx(
            root_by_quadrature(single, width), rel=1e-6
        )

    @pytest.mark.parametrize("density", [0.1, 0.5])
    def test_extremes_against_networks(self, density: float) -> None:
        law = Sparse(Gaussian(2.0), density).scaled(10**-0.5)
        least, most = growth.sparse_minimum(law, 10), growth.sparse_maximum(law, 10)
        for direction, expected in ((one_hot(10), least), (flat(10), most)):
            mean, error, _ = simulate(law, 10, direction, 20000, seed=3)
            assert abs(mean - expected) < SIGMAS * error

    @pytest.mark.parametrize("fan_in", [1, 3, 30])
    def test_fan_in_enters_nothing_dense(self, fan_in: int) -> None:
        direction = np.random.default_rng(1).normal(size=fan_in)
        direction /= np.linalg.norm(direction)
        for slope in (0.0, 0.3):
            mean, error, _ = simulate(Gaussian(0.6), 8, direction, 20000, seed=4, slope=slope)
            activation = e0.activations.leaky_relu(slope)
            assert abs(mean - growth.exact(Gaussian(0.6), 8, activation)) < SIGMAS * error

    def test_rectangular_sparse_maximum(self) -> None:
        law = Sparse(Gaussian(1.0), 0.3)
        mean, error, _ = simulate(law, 6, flat(4), 40000, seed=5)
        assert abs(mean - growth.sparse_maximum(law, 6, fan_in=4)) < SIGMAS * error

    @pytest.mark.parametrize("law", [Gaussian(0.5), Uniform(0.8), integers(2, 0.4), Discrete((-1.0, 1.0))])
    @pytest.mark.parametrize("density", [0.2, 1.0])
    @pytest.mark.parametrize("slope", [0.0, 0.5])
    def test_bounds_bracket_networks(self, law: Law, density: float, slope: float) -> None:
        entry = Sparse(law, density)
        activation = e0.activations.leaky_relu(slope)
        for direction in (one_hot(9), flat(9), np.array([3.0, -2.0, 1.0] + [0.0] * 6) / 14**0.5):
            mean, error, square = simulate(entry, 9, direction, 8000, seed=6, slope=slope)
            fourth = growth.fourth_moment_lower_bound(entry, 9, float((direction**4).sum()), activation)
            assert mean > max(fourth, growth.best_lower_bound(entry, 9, activation)) - SIGMAS * error
            assert mean < growth.upper_bound(entry, 9, activation) + SIGMAS * error
            assert square == pytest.approx(growth.upper_bound(entry, 9, activation) ** 2, rel=0.12)

    def test_wide(self) -> None:
        """At a million units every form meets its expansion: sqrt(1/2) (1 - 5/(8k))."""
        k = 10**6
        expected = math.sqrt(0.5) * (1 - 5 / (8 * k))
        assert growth.exact(Gaussian(k**-0.5), k) == pytest.approx(expected, rel=1e-11)
        assert growth.sparse_maximum(Gaussian(k**-0.5), k) == pytest.approx(expected, rel=1e-11)
        law = Sparse(Gaussian(k**-0.5), 0.5)
        assert growth.sparse_maximum(law, k) == pytest.approx(0.5 * (1 - 5 / (8 * k)), rel=1e-10)
        assert growth.sparse_minimum(law, k) == pytest.approx(0.5 * (1 - 11 / (8 * k)), rel=1e-10)

    @pytest.mark.parametrize("degrees", [1.0, 7.0, 199.0, 200.0, 201.0, 1e4, 1e9])
    def test_chi_mean_across_its_two_forms(self, degrees: float) -> None:
        value = float(growth.chi_mean(np.array(degrees)))
        if degrees < 1e3:
            assert value == pytest.approx(special.poch(degrees / 2, 0.5) * math.sqrt(2), rel=1e-12)
        else:
            assert value == pytest.approx(math.sqrt(degrees) * (1 - 0.25 / degrees), rel=1e-9)


class TestLawOverDepth:
    def test_width_one_is_half_a_normal(self) -> None:
        law = growth.GrowthLaw((1,), (2.0,))
        x = np.linspace(-1, 12, 60)
        np.testing.assert_allclose(law.cdf(x), np.where(x < 0, 0, special.ndtr(x / 2)), atol=1e-13)
        assert law.zero_probability == 0.5
        assert law.quantile(np.array([0.2, 0.5])).tolist() == [0.0, 0.0]
        assert law.log_mean == pytest.approx(math.log(2) - (np.euler_gamma + math.log(2)) / 2)
        assert law.log_std == pytest.approx(math.pi / math.sqrt(8))

    @pytest.mark.parametrize("width", [2, 5, 40, 500])
    def test_one_layer_is_a_mixture_of_chi_squares(self, width: int) -> None:
        law = growth.GrowthLaw((width,), (0.7,))
        x = law.quantile(np.array([1e-3, 0.3, 0.5, 0.8, 0.99999])) + 1e-6
        counts = np.arange(1, width + 1)
        mass = np.array([math.comb(width, a) / 2**width for a in counts.tolist()])
        twin = [0.5**width + mass @ special.gammainc(counts / 2, (value / 0.7) ** 2 / 2) for value in x]
        np.testing.assert_allclose(law.cdf(x), twin, atol=1e-12)

    def test_two_layers_against_nested_quadrature(self) -> None:
        """P(R1 R2 <= x), integrating the second distribution function over the first density."""
        first, second = growth.GrowthLaw((3,), (1.0,)), growth.GrowthLaw((4,), (0.5,))
        both = growth.GrowthLaw((3, 4), (1.0, 0.5))

        def density(r: float) -> float:
            return sum(
                math.comb(3, a) / 8 * 2 * r ** (a - 1) * math.exp(-r * r / 2) / (2 ** (a / 2) * math.gamma(a / 2))
                for a in (1, 2, 3)
            )

        for x in (0.05, 0.4, 1.5):
            twin = 1 / 8 + integrate.quad(lambda r, x=x: density(r) * float(second.cdf(x / r)), 1e-12, 12, limit=300)[0]
            assert float(both.cdf(x)) == pytest.approx(twin, abs=1e-8)
        assert both.zero_probability == pytest.approx(1 - (1 - 1 / 8) * (1 - 1 / 16))
        assert both.mean == pytest.approx(first.mean * second.mean)

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        "widths", [(1,), (2, 3), (100,) * 5, (784,) * 10, (10**6, 10**6), (3, 50, 2000), (1,) * 10]
    )
    def test_quantile_inverts_cdf(self, widths: tuple[int, ...]) -> None:
        law = growth.GrowthLaw(widths, (0.3,) * len(widths))
        p = np.array([1e-9, 0.01, 0.3, 0.5, 0.9, 0.9999])
        np.testing.assert_allclose(law.cdf(law.quantile(p)), np.maximum(p, law.zero_probability), atol=1e-12)
        x = law.quantile(np.linspace(0.001, 0.999, 200))
        assert (np.diff(x) >= 0).all() and (np.diff(law.cdf(x)) > -1e-13).all()

    def test_against_networks(self) -> None:
        """Three layers of full matrices without biases, tangent parallel to the point: the quantiles agree."""
        generator = np.random.default_rng(9)
        n, k = 20000, 6
        z = np.tile(one_hot(k), (n, 1))
        dz = z.copy()
        for _ in range(3):
            weights = generator.normal(0, 0.8, (n, k, k))
            on = np.einsum("nij,nj->ni", weights, z) > 0
            z = on * np.einsum("nij,nj->ni", weights, z)
            dz = on * np.einsum("nij,nj->ni", weights, dz)
        ratios = np.linalg.norm(dz, axis=1)
        law = growth.GrowthLaw((k,) * 3, (0.8,) * 3)
        for p in (0.1, 0.25, 0.5, 0.75, 0.9):
            assert abs((ratios <= law.quantile(p)).mean() - p) < SIGMAS * math.sqrt(p * (1 - p) / n)

    def test_spread_rule_of_thumb(self) -> None:
        assert growth.GrowthLaw((400,) * 7, (1.0,) * 7).log_std ** 2 == pytest.approx(5 / 4 * 7 / 400, rel=0.01)

    def test_deep_networks_neither_overflow_nor_underflow(self) -> None:
        law = growth.GrowthLaw((100,) * 1000, (1.0,) * 1000)
        assert law.mean == math.inf and law.log_mean == pytest.approx(1000 * math.log(50) / 2, rel=0.01)
        assert growth.GrowthLaw((10,) * 1000, (1e-3,) * 1000).mean == 0.0


# a recipe, made into a law inside the test: the type checker's own random choices may not run inside a strategy
recipes = st.tuples(st.sampled_from(["gaussian", "uniform", "integers", "signs"]), st.floats(0.01, 10))


def made(recipe: tuple[str, float]) -> Law:
    kind, scale = recipe
    if kind == "gaussian":
        return Gaussian(scale)
    if kind == "uniform":
        return Uniform(scale)
    return integers(3, scale) if kind == "integers" else Discrete((-scale, scale))


class TestLaws:
    @given(recipes, st.floats(0.01, 1), st.integers(1, 300), st.sampled_from(["relu", "leaky_relu", "identity"]))
    def test_order(self, recipe: tuple[str, float], density: float, width: int, activation: str) -> None:
        row = growth.bounds(Sparse(made(recipe), density), width, activation=activation).layers[0]
        known = [row.paper_lower, row.lower, row.minimum, row.exact, row.maximum, row.upper]
        values = [value for value in known if value is not None]
        assert all(a <= b * (1 + 1e-9) for a, b in pairwise(values))

    @given(recipes, st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 200))
    def test_more_weights_grow_more(self, recipe: tuple[str, float], one: float, other: float, width: int) -> None:
        low, high = (growth.bounds(Sparse(made(recipe), d), width).layers[0] for d in sorted((one, other)))
        for name in ("paper_lower", "lower", "minimum", "maximum", "upper"):
            if getattr(low, name) is not None:
                assert getattr(low, name) <= getattr(high, name) * (1 + 1e-9)

    @given(recipes, st.floats(0.01, 1), st.floats(0.01, 100), st.integers(1, 200))
    def test_scaling(self, recipe: tuple[str, float], density: float, factor: float, width: int) -> None:
        entry = Sparse(made(recipe), density)
        one, other = growth.bounds(entry, width).layers[0], growth.bounds(entry.scaled(factor), width).layers[0]
        for name in ("paper_lower", "lower", "minimum", "maximum", "upper"):
            if getattr(one, name) is not None:
                assert getattr(other, name) == pytest.approx(factor * getattr(one, name), rel=1e-9)

    @pytest.mark.slow
    @given(st.floats(0.05, 0.99), st.integers(1, 40), st.integers(1, 40))
    def test_more_inputs_widen_the_interval(self, density: float, width: int, fan_in: int) -> None:
        law = Sparse(Gaussian(1.0), density)
        assert growth.sparse_maximum(law, width, 1) == pytest.approx(growth.sparse_minimum(law, width), rel=1e-11)
        assert growth.sparse_maximum(law, width, fan_in) <= growth.sparse_maximum(law, width, fan_in + 1) * (1 + 1e-12)

    def test_fourth_moment_bound_wins_from_width_three(self) -> None:
        for width in range(1, 8):
            fourth = growth.fourth_moment_lower_bound(Gaussian(1.0), width)
            assert (fourth > growth.lower_bound(Gaussian(1.0), width)) == (width >= 3)


class TestRaghu:
    def test_relu_constants(self) -> None:
        for k in (1, 5, 100, 784):
            printed = (-1.5 * math.sqrt(k) / 2**k + 1.5 * math.sqrt(k) / math.sqrt(2 * (k + 1))) / math.sqrt(2)
            assert growth.raghu_lower_bound(1.5, 0.0, k) == pytest.approx(max(printed, 0.0))
            assert growth.raghu_lower_bound(1.5, 9.0, k) == growth.raghu_lower_bound(1.5, 0.0, k)
            assert growth.raghu_lower_bound(1.5, 0.0, k) <= growth.exact(Gaussian(1.5 * k**-0.5), k)

    def test_hardtanh_constants(self) -> None:
        for k, s in ((10, 1.0), (100, 4.0), (100, 16.0)):
            printed = (
                (2 * math.pi) ** -0.25 * math.sqrt(s * k) / math.sqrt(s * math.sqrt(2 * math.pi) + k - 1)
                - math.sqrt(k) * (1 - 1 / s) ** (k - 1)
            ) / math.sqrt(2)
            assert growth.raghu_lower_bound(s, 0.0, k, activation="hardtanh") == pytest.approx(max(printed, 0.0))

    def test_upper(self) -> None:
        for k in (1, 2, 100, 784):
            chi = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
            assert growth.raghu_upper_bound(2.0, k) == pytest.approx(chi * 2 / math.sqrt(k))
            assert growth.raghu_upper_bound(2.0, k) <= 2 * math.sqrt((k + 1) / k)
            assert growth.raghu_upper_bound(2.0, k) == pytest.approx(growth.exact(Gaussian(2 * k**-0.5), k, "identity"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((2.0, 0.0, 0), "width=0"),
            ((-2.0, 0.0, 5), "weight_std=-2.0"),
            ((2.0, math.nan, 5), "bias_std=nan"),
            ((2.0, 0.0, 5, "tanh"), "activation='tanh' is not known; use 'relu'"),
            ((0.5, 0.0, 5, "hardtanh"), "too small"),
        ],
    )
    def test_bad_input(self, arguments: tuple, message: str) -> None:
        with pytest.raises(InputError, match=message):
            growth.raghu_lower_bound(*arguments)


class TestSubvectors:
    @pytest.mark.parametrize(
        ("direction", "size"), [("one-hot", 5), ("flat", 5), ("sphere", 5), ("sphere", 1), ("flat", 300)]
    )
    def test_simulation(self, direction: str, size: int) -> None:
        generator = np.random.default_rng(10)
        n, density = 20000, 0.3
        vectors = {
            "one-hot": np.tile(one_hot(size), (n, 1)),
            "flat": np.tile(flat(size), (n, 1)),
            "sphere": generator.normal(size=(n, size)),
        }[direction]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        norms = np.linalg.norm(vectors * (generator.random((n, size)) < density), axis=1)
        error = SIGMAS * norms.std() / math.sqrt(n)
        assert abs(norms.mean() - growth.expected_subvector_norm(direction, density, size)) < error

    @given(st.floats(0.01, 1), st.integers(1, 2000))
    def test_order(self, density: float, size: int) -> None:
        hot, sphere, level = (growth.expected_subvector_norm(d, density, size) for d in ("one-hot", "sphere", "flat"))
        assert hot <= sphere * (1 + 1e-9) and sphere <= level * (1 + 1e-9) and level <= math.sqrt(density) * (1 + 1e-9)

    def test_bad_input(self) -> None:
        with pytest.raises(InputError, match="Did you mean 'sphere'"):
            growth.expected_subvector_norm("spehre", 0.5, 10)
        with pytest.raises(InputError, match="density=0"):
            growth.expected_subvector_norm("flat", 0.0, 10)
        with pytest.raises(InputError, match="size=0"):
            growth.expected_subvector_norm("flat", 0.5, 0)


class TestBounds:
    def test_mixed_layers(self) -> None:
        laws = [Gaussian(0.2), Sparse(Gaussian(0.3), 0.4), Uniform(0.3)]
        table = growth.bounds(laws, [20, 30, 10], fan_in=50)
        assert [row.status for row in table.layers] == ["exact", "sharp interval", "bounded"]
        assert table.status == "bounded" and table.over_depth.exact is None and table.over_depth.minimum is None
        assert table.layers[1].maximum == growth.sparse_maximum(laws[1], 30, fan_in=20)
        assert table.over_depth.upper == pytest.approx(math.prod(row.upper for row in table.layers))
        assert table.over_depth.lower == pytest.approx(math.prod(row.lower for row in table.layers))
        assert [row.layer for row in table.layers] == [1, 2, 3]

    def test_first_layer_spreads_over_its_inputs(self) -> None:
        law = Sparse(Gaussian(1.0), 0.4)
        assert growth.bounds(law, [8, 8], fan_in=3).layers[0].maximum == growth.sparse_maximum(law, 8, 3)

    def test_forms(self) -> None:
        table = growth.bounds(Sparse(Gaussian(2.0), 0.5).scaled(784**-0.5), [784] * 10)
        lines = str(table).splitlines()
        assert len(lines) == 12 and lines[0].startswith("layer") and lines[-1].startswith("total  10 deep")
        assert "0.998244" in lines[1] and lines[-1].endswith("sharp interval")
        assert len({line.index(word) for line, word in zip(lines, ["status"] + ["sharp"] * 11, strict=True)}) == 1
        plain = json.loads(json.dumps(table.to_dict(), allow_nan=False))
        assert plain["depth"] == 10 and plain["layers"][0]["exact"] is None
        assert plain["over_depth"]["minimum"] == pytest.approx(0.998244**10, rel=1e-5)
        frame = table.to_pandas()
        assert frame.shape[0] == 10 and frame["upper"].prod() == pytest.approx(1.0)

    def test_zero_weights_let_nothing_through(self) -> None:
        row = growth.bounds(Gaussian(0.0), 5).layers[0]
        assert (row.paper_lower, row.lower, row.exact, row.upper) == (0.0, 0.0, 0.0, 0.0)

    def test_density_one_is_dense(self) -> None:
        assert growth.bounds(Sparse(Gaussian(0.2), 1.0), 20).layers == growth.bounds(Gaussian(0.2), 20).layers


class WithoutMoments(Law):
    """A law that says nothing of itself."""


class TestBadInput:
    @pytest.mark.parametrize(
        "function", [growth.lower_bound, growth.upper_bound, growth.best_lower_bound, growth.exact]
    )
    @pytest.mark.parametrize("width", [0, -3])
    def test_width(self, function, width: int) -> None:
        with pytest.raises(InputError, match=f"width={width}"):
            function(Gaussian(1.0), width)

    def test_density_is_refused_by_the_law(self) -> None:
        for density in (0.0, 1.5, math.nan):
            with pytest.raises(InputError, match="density"):
                growth.bounds(Sparse(Gaussian(1.0), density), 10)

    def test_law_that_is_not_even(self) -> None:
        for function in (growth.lower_bound, growth.upper_bound, growth.fourth_moment_lower_bound, growth.bounds):
            with pytest.raises(InputError, match="not even"):
                function(Sparse(Discrete((0.0, 1.0)), 0.5), 10)

    def test_law_without_a_rule(self) -> None:
        with pytest.raises(InputError, match="WithoutMoments has no moment of order 1"):
            growth.lower_bound(WithoutMoments(), 10)
        with pytest.raises(InputError, match="WithoutMoments has no moment"):
            growth.bounds(WithoutMoments(), 10)

    def test_exact_only_for_gaussian_entries(self) -> None:
        with pytest.raises(InputError, match=r"Uniform.*no exact growth"):
            growth.exact(Uniform(1.0), 10)
        with pytest.raises(InputError, match=r"sparse_minimum and sparse_maximum"):
            growth.exact(Sparse(Gaussian(1.0), 0.5), 10)
        with pytest.raises(InputError, match="no exact growth"):
            growth.sparse_minimum(Sparse(Uniform(1.0), 0.5), 10)
        with pytest.raises(InputError, match=r"stds\[0\]=0.0"):
            growth.GrowthLaw((10,), (0.0,))

    def test_others(self) -> None:
        with pytest.raises(InputError, match=r"tanh.*mean_field"):
            growth.upper_bound(Gaussian(1.0), 10, "tanh")
        with pytest.raises(InputError, match="fan_in=0"):
            growth.sparse_maximum(Sparse(Gaussian(1.0), 0.5), 10, 0)
        with pytest.raises(InputError, match="fourth_power_sum=2"):
            growth.fourth_moment_lower_bound(Gaussian(1.0), 10, 2.0)
        with pytest.raises(InputError, match="2 laws for 3 widths"):
            growth.bounds([Gaussian(1.0)] * 2, [5, 5, 5])
        with pytest.raises(InputError, match="0 widths"):
            growth.bounds(Gaussian(1.0), [])
        with pytest.raises(InputError, match="between 0 and 1"):
            growth.GrowthLaw((10,), (1.0,)).quantile(1.0)


def test_top_level_name_needs_no_torch() -> None:
    code = (
        "import sys, epoch0 as e0, epoch0.theory; e0.theory.growth.exact(e0.Gaussian(1.0), 4);"
        "e0.theory.mean_field.chi('tanh', 1.0, 1.0); bad = {'torch', 'scipy.stats', 'matplotlib', 'pandas'};"
        "sys.exit(str(bad & set(sys.modules)) if bad & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
