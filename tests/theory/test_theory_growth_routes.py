"""Growth theory by other routes: elliptic integrals, sums over sign patterns, quadrature, deep rectangular networks.

A comparison with a simulated mean allows 5 standard errors: 6e-7 false alarms each, below 1e-4 for the whole file.
Seeds are fixed, so that a green test stays green.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special

import epoch0 as e0
from epoch0.theory import growth
from epoch0.theory.growth import binomial, chi_mean
from growth_simulation import draw, growths

SDS = 5.0
# laws of standard deviation 1, as growth_simulation.draw makes them
UNIT = {
    "gaussian": e0.Gaussian(1.0),
    "uniform": e0.Uniform(3**0.5),
    "discrete": e0.distributions.integers(2, 0.5**0.5),
}


def scaled(std: float, width: int) -> e0.Law:
    return e0.Gaussian(std).scaled(width**-0.5)


def agree(samples: np.ndarray, value: float) -> None:
    error = samples.std() / math.sqrt(len(samples))
    assert abs(samples.mean() - value) < SDS * error, f"{samples.mean()} +- {error}, predicted {value}"


@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("name", UNIT)
def test_absolute_moment_constant_bounds_every_direction(name: str, density: float) -> None:
    rng = np.random.default_rng(11)
    rows = draw(rng, name, (200_000, 4), density)
    constant = growth.absolute_moment_constant(e0.Sparse(UNIT[name], density))
    for u in (np.eye(4)[0], np.full(4, 0.5), np.array([1, 1, 0, 0]) / 2**0.5, np.array([0.9, 0.4, 0.1, 0.1])):
        sizes = np.abs(rows @ (u / np.linalg.norm(u)))
        assert sizes.mean() + SDS * sizes.std() / math.sqrt(len(sizes)) > constant
    if name == "gaussian":  # one-hot is the sharp case
        agree(np.abs(rows[:, 0]), constant)


def test_khintchine_is_sharp_for_two_signs() -> None:
    """u = (1, 1)/sqrt 2 and fair signs: E|u.w| = 1/sqrt 2, the constant for {-1, 1}."""
    assert growth.absolute_moment_constant(e0.Discrete((-1.0, 1.0))) == pytest.approx(2**-0.5, rel=1e-15)


def test_binomial_and_chi_mean() -> None:
    for trials, probability in [(1, 0.5), (7, 0.13), (300, 0.5), (5000, 0.002)]:
        counts, mass = binomial(trials, probability)
        logs = special.gammaln(trials + 1) - special.gammaln(counts + 1) - special.gammaln(trials - counts + 1)
        direct = np.exp(logs + counts * math.log(probability) + (trials - counts) * math.log1p(-probability))
        np.testing.assert_allclose(mass, direct, rtol=1e-9, atol=1e-18)
        assert mass @ counts == pytest.approx(trials * probability, rel=1e-13)
    for a in (1, 2, 5, 199, 200, 201, 10_000):
        value, _ = integrate.quad(
            lambda x, a=a: math.exp(a * math.log(x) - x * x / 2 - (a / 2 - 1) * math.log(2) - special.gammaln(a / 2)),
            max(0.0, math.sqrt(a) - 9), math.sqrt(a) + 9, epsabs=1e-12, epsrel=1e-12,
        )  # fmt: skip
        assert float(chi_mean(np.array(float(a)))) == pytest.approx(value, rel=1e-10)


def two_gaussians(a: float, b: float) -> float:
    """E sqrt(a X^2 + b Y^2) in polar coordinates."""
    m = max(a, b)
    return math.sqrt(2 * m / math.pi) * float(special.ellipe(1 - min(a, b) / m)) if m else 0.0


@pytest.mark.parametrize("slopes", [(0.0, 1.0), (0.2, 1.0)])
@pytest.mark.parametrize(("fan_in", "density"), [(1, 0.4), (2, 0.4), (9, 0.07), (9, 0.9)])
def test_flat_growth_through_two_rows(slopes: tuple[float, float], fan_in: int, density: float) -> None:
    """Width 2 by brute force over both masks and both signs, with elliptic integrals."""
    total = 0.0
    for n in range(fan_in + 1):
        for m in range(fan_in + 1):
            mass = math.prod(math.comb(fan_in, c) * density**c * (1 - density) ** (fan_in - c) for c in (n, m))
            for s in slopes:
                for t in slopes:
                    total += mass / 4 * two_gaussians(s**2 * n / fan_in, t**2 * m / fan_in)
    law = e0.Sparse(e0.Gaussian(1.3), density)
    activation = "relu" if slopes[0] == 0 else e0.activations.leaky_relu(slopes[0])
    found = growth.sparse_maximum(law, 2, fan_in=fan_in, activation=activation)
    assert found == pytest.approx(1.3 * total, rel=1e-12)
    if fan_in == 1:  # one entry is flat and one-hot at once
        assert growth.sparse_minimum(law, 2, activation) == pytest.approx(1.3 * total, rel=1e-12)


@pytest.mark.parametrize(("slope", "width"), [(0.01, 1), (0.01, 2), (0.5, 2), (0.5, 3), (1.0, 3), (-1.0, 3), (-0.7, 3)])
def test_dense_growth_with_a_leak(slope: float, width: int) -> None:
    """All sign patterns by brute force: E sqrt of a weighted sum of squares, on the sphere for width 3."""
    activation = e0.activations.leaky_relu(slope)
    total = 0.0
    for pattern in np.ndindex(*(2,) * width):
        a = [(1.0, slope)[bit] ** 2 for bit in pattern]
        if width == 3:
            nodes, weights = np.polynomial.legendre.leggauss(80)
            angles = 2 * math.pi * np.arange(80) / 80
            flat = np.multiply.outer(1 - nodes**2, a[1] * np.cos(angles) ** 2 + a[2] * np.sin(angles) ** 2)
            norms = np.sqrt(a[0] * nodes[:, None] ** 2 + flat)
            mean = float(chi_mean(np.array(3.0))) * float(weights @ norms.mean(axis=1)) / 2
        else:
            mean = two_gaussians(a[0], a[1] if width == 2 else 0.0)
        total += mean / 2**width
    assert growth.exact(e0.Gaussian(1.0), width, activation) == pytest.approx(total, rel=1e-12)


def test_identity_is_a_chi_and_leak_zero_is_relu() -> None:
    for width in (1, 10, 5000):
        assert growth.exact(e0.Gaussian(1.0), width, "identity") == pytest.approx(
            math.sqrt(2) * math.exp(special.gammaln((width + 1) / 2) - special.gammaln(width / 2)), rel=1e-11
        )
        relu, leak = growth.exact(e0.Gaussian(1.0), width), e0.activations.leaky_relu(1e-9)
        assert growth.exact(e0.Gaussian(1.0), width, leak) == pytest.approx(relu, rel=1e-8)


def test_great_widths_agree_with_the_expansion() -> None:
    """G = sigma / sqrt 2 (1 - 5/(8k) + c/k^2 + ...), and the interval of a sparse law closes around it."""
    for width in (10**4, 10**5, 10**6):
        law = scaled(2.0, width)
        assert growth.exact(law, width) / math.sqrt(2) == pytest.approx(1 - 5 / (8 * width), rel=2 / width**2 + 1e-14)
        sparse = e0.Sparse(law, 0.01)
        least, most = growth.sparse_minimum(sparse, width), growth.sparse_maximum(sparse, width)
        assert least < most < growth.upper_bound(sparse, width)
        ratio = least / growth.upper_bound(sparse, width)
        assert ratio == pytest.approx(1 - (3 / 0.005 - 1) / (8 * width), rel=5 / (0.005 * width) ** 2)


@dataclass(frozen=True)
class Case:
    law: str
    sizes: tuple[int, int]
    density: float
    tangent: str
    slope: float = 0.0
    straight: bool = False
    bias: float = 0.3


CASES = [
    Case("gaussian", (10, 10), 1.0, "ramp"),
    Case("gaussian", (10, 10), 1.0, "flat", straight=True, bias=0.0),
    Case("gaussian", (30, 7), 1.0, "ramp"),
    Case("gaussian", (5, 20), 1.0, "one-hot", slope=0.3),
    Case("gaussian", (10, 10), 0.3, "flat"),
    Case("gaussian", (10, 10), 0.3, "one-hot"),
    Case("gaussian", (10, 10), 0.3, "ramp"),
    Case("gaussian", (3, 12), 0.5, "flat", slope=0.2),
    Case("gaussian", (40, 4), 0.1, "ramp"),
    Case("gaussian", (10, 10), 0.5, "one-hot", straight=True),
    Case("uniform", (10, 10), 0.1, "one-hot"),
    Case("uniform", (10, 10), 1.0, "flat", slope=-0.5),
    Case("uniform", (3, 25), 0.5, "ramp", straight=True),
    Case("discrete", (10, 10), 0.5, "ramp"),
    Case("discrete", (4, 2), 1.0, "flat"),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_layer_of_real_matrices(case: Case) -> None:
    fan_in, width = case.sizes
    std = 1.3 / math.sqrt(fan_in)
    law = e0.Sparse(UNIT[case.law], case.density).scaled(std)
    leak = e0.activations.leaky_relu(case.slope)
    rng = np.random.default_rng([CASES.index(case), 21])
    found = growths(
        rng, [fan_in, width], [std], law=case.law, density=case.density, tangent=case.tangent, networks=40_000,
        slope=case.slope, straight=case.straight, bias=case.bias,
    )[:, 0]  # fmt: skip
    error = SDS * found.std() / math.sqrt(len(found))
    agree(found**2, growth.upper_bound(law, width, leak) ** 2)  # the second moment is exact
    assert growth.best_lower_bound(law, width, leak) - error < found.mean() < growth.upper_bound(law, width, leak)
    if case.law == "gaussian":
        least = growth.sparse_minimum(law, width, leak)
        most = growth.sparse_maximum(law, width, fan_in, leak)
        assert least - error < found.mean() < most + error
        if case.density == 1.0 or case.tangent == "one-hot":
            agree(found, least)
        if case.density == 1.0 or case.tangent == "flat":
            agree(found, most)


def test_deep_rectangular_networks() -> None:
    """Four layers of unlike widths: mean length, its bounds, and no correlation between the layers' growths."""
    sizes, stds = [6, 12, 5, 20, 8], [0.5, 0.3, 0.9, 0.2]
    found = growths(np.random.default_rng(7), sizes, stds, networks=40_000)
    laws = [e0.Gaussian(std) for std in stds]
    table = growth.bounds(laws, sizes[1:], fan_in=6)
    for layer, product in enumerate(np.cumprod([row.exact for row in table.layers])):
        agree(found[:, layer], product)
    law = growth.GrowthLaw(tuple(sizes[1:]), tuple(stds))
    agree(found[:, -1] ** 2, law.std**2 + law.mean**2)
    alive = found[(found[:, -1] > 0)]
    steps = np.diff(np.log(alive), axis=1, prepend=0.0)
    correlations = np.corrcoef(steps.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < SDS / math.sqrt(len(alive))


def test_ties_touch_single_points_only() -> None:
    """No bias, density 0.3, the line e_1 + t e_2: growth is the one-hot value for t > 0, and far below it at t = 0."""
    rng = np.random.default_rng(22)
    weights = draw(rng, "gaussian", (200_000, 4, 4), 0.3)
    dz = weights[:, :, 1]
    law = e0.Sparse(e0.Gaussian(1.0), 0.3)
    inside = np.linalg.norm((weights[:, :, 0] + 0.37 * weights[:, :, 1] > 0) * dz, axis=1)
    agree(inside, growth.sparse_minimum(law, 4))
    start = np.linalg.norm((weights[:, :, 0] > 0) * dz, axis=1)
    agree(start**2, 0.3 * growth.upper_bound(law, 4) ** 2)
    assert start.mean() < growth.lower_bound(law, 4)


def test_deep_sparse_networks_stay_between_the_products() -> None:
    found = growths(np.random.default_rng(8), [12] * 5, [0.4] * 4, density=0.4, tangent="ramp", networks=40_000)
    total = growth.bounds(e0.Sparse(e0.Gaussian(0.4), 0.4), [12] * 4).over_depth
    error = SDS * found[:, -1].std() / 200
    assert total.minimum is not None and total.maximum is not None
    assert total.minimum - error < found[:, -1].mean() < total.maximum + error
    agree(found[:, -1] ** 2, total.upper**2)


WIDE = [pytest.param(widths, marks=pytest.mark.slow) for widths in ((100,) * 5, (10**6, 50))]


@pytest.mark.sample(2)
@pytest.mark.parametrize("widths", [(1,), (3, 3), (4, 1, 9), (10,) * 10, (784,) * 10, *WIDE])
def test_moments_are_integrals_of_the_distribution_function(widths: tuple[int, ...]) -> None:
    law = growth.GrowthLaw(widths, tuple((2 / k) ** 0.5 for k in widths))
    steps = np.linspace(-24.0, 14.0, 9_501) * law.log_std
    x = np.exp(law.log_mean + steps)
    mass = np.diff(law.cdf(x))
    middle = np.sqrt(x[1:] * x[:-1])
    assert mass.sum() + float(law.cdf(x[0])) == pytest.approx(1.0, abs=1e-9)
    assert mass @ middle == pytest.approx(law.mean, rel=1e-5)
    assert mass @ middle**2 == pytest.approx(law.std**2 + law.mean**2, rel=1e-5)
    alive = 1 - law.zero_probability
    logs = np.log(middle)
    assert mass @ logs / alive == pytest.approx(law.log_mean, abs=1e-6)
    assert mass @ (logs - law.log_mean) ** 2 / alive == pytest.approx(law.log_std**2, rel=1e-5)


def test_wide_and_deep_is_log_normal() -> None:
    """The variance of the log is 5/4 sum 1/k to first order, and its law nears a normal one."""
    widths = (4000,) * 60 + (6000,) * 40
    law = growth.GrowthLaw(widths, tuple(2 / k**0.5 for k in widths))
    assert law.log_std**2 == pytest.approx(1.25 * sum(1 / k for k in widths), rel=3e-3)
    p = np.array([0.01, 0.2, 0.5, 0.8, 0.99])
    normal = law.log_mean + law.log_std * special.ndtri(p)
    np.testing.assert_allclose(np.log(law.quantile(p)), normal, atol=0.01 * law.log_std)
    spread = math.prod(1 / (1 - 5 / (4 * k)) for k in widths) - 1
    assert law.std / law.mean == pytest.approx(math.sqrt(spread), rel=0.01)


def test_law_against_draws() -> None:
    """Dvoretzky-Kiefer-Wolfowitz: the gap exceeds sqrt(log(2/delta)/2n) with probability at most delta = 1e-6."""
    sizes, stds = [4, 3, 10, 6], [0.8, 0.5, 0.6]
    law = growth.GrowthLaw(tuple(sizes[1:]), tuple(stds))
    n = 50_000
    found = growths(np.random.default_rng(5), sizes, stds, networks=n)[:, -1]
    agree((found == 0).astype(float), law.zero_probability)
    found = np.sort(found)
    levels = np.arange(1, n + 1) / n
    alive = found > 0
    gap = np.abs(law.cdf(found[alive]) - levels[alive]).max()
    assert gap < math.sqrt(math.log(2e6) / (2 * n)) + 1 / n


def test_law_at_the_ends_of_floats() -> None:
    deep = growth.GrowthLaw((100,) * 5000, (1.0,) * 5000)
    assert deep.mean == math.inf and deep.std == math.inf and deep.log_mean > 0
    assert growth.GrowthLaw((1,) * 3000, (1.0,) * 3000).quantile(0.9) == 0.0


@pytest.mark.parametrize("density", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("size", [1, 2, 9, 60])
def test_subvector_norms_against_enumeration_and_quadrature(density: float, size: int) -> None:
    mass = [math.comb(size, n) * density**n * (1 - density) ** (size - n) for n in range(size + 1)]
    flat = sum(p * math.sqrt(n / size) for n, p in enumerate(mass))
    # given n entries kept the squared norm is Beta(n/2, (size - n)/2); E of its root, with x = sin^2
    sphere = mass[size]
    for n in range(1, size):
        a, b = n / 2, (size - n) / 2
        top, _ = integrate.quad(
            lambda t, a=a, b=b: 2 * math.sin(t) ** (2 * a) * math.cos(t) ** (2 * b - 1),
            0, math.pi / 2, epsabs=0, epsrel=1e-12,
        )  # fmt: skip
        sphere += mass[n] * top / special.beta(a, b)
    norm = growth.expected_subvector_norm
    assert norm("one-hot", density, size) == density
    assert norm("flat", density, size) == pytest.approx(flat, rel=1e-12)
    assert norm("sphere", density, size) == pytest.approx(sphere, rel=1e-10)
    assert density * (1 - 1e-12) <= norm("sphere", density, size) <= norm("flat", density, size) * (1 + 1e-12)
    assert norm("flat", density, size) <= math.sqrt(density) * (1 + 1e-12)


def test_subvector_norms_of_great_vectors() -> None:
    for name in ("flat", "sphere"):
        assert growth.expected_subvector_norm(name, 0.3, 10**6) == pytest.approx(math.sqrt(0.3), rel=1e-5)


def test_raghu_relu_constant_from_its_equation_a() -> None:
    """Equation (a) at p = 1/2, and the sum over the binomial that it bounds from below."""
    for k in (2, 5, 30, 200):
        p, sigma = 0.5, 1.7
        equation = sigma * math.sqrt(k) * p * (1 / math.sqrt(1 + (k - 1) * p) - (1 - p) ** (k - 1))
        bound = growth.raghu_lower_bound(sigma, 0.0, k)
        assert bound == pytest.approx(equation / math.sqrt(2), rel=1e-12)
        summed = sum(math.comb(k, j) / 2**k * math.sqrt(j) for j in range(2, k + 1)) * sigma / math.sqrt(2 * k)
        assert bound <= summed


@given(st.integers(1, 3000), st.floats(0, 50))
def test_raghu_relu_bound_is_below_the_exact_law(width: int, weight_std: float) -> None:
    law = scaled(weight_std, width)
    assert growth.raghu_lower_bound(weight_std, 0.0, width) <= growth.exact(law, width) * (1 + 1e-12)
    assert growth.exact(law, width) <= growth.raghu_upper_bound(weight_std, width) * (1 + 1e-12)
    assert growth.raghu_upper_bound(weight_std, width) <= weight_std * math.sqrt((width + 1) / width) * (1 + 1e-12)


@pytest.mark.parametrize("bias_std", [0.0, 0.8])
@pytest.mark.parametrize(("weight_std", "width"), [(1.0, 10), (1.5, 30), (4.0, 50), (4.0, 400)])
def test_raghu_hardtanh_constant_from_its_equation_a(weight_std: float, bias_std: float, width: int) -> None:
    """Equation (a) with the proof's p = 1/(s sqrt(2 pi)) in what is kept and p = 1/s in what is lost, s the total."""
    total = math.hypot(weight_std, bias_std)
    p = 1 / (total * math.sqrt(2 * math.pi))
    kept = weight_std * math.sqrt(width) * p / math.sqrt(1 + (width - 1) * p)
    lost = weight_std * math.sqrt(width) / total * (1 - 1 / total) ** (width - 1)
    expected = max(0.0, (kept - lost) / math.sqrt(2))
    assert growth.raghu_lower_bound(weight_std, bias_std, width, "hardtanh") == pytest.approx(expected, rel=1e-12)
    if bias_std == 0:  # as printed for b = 0
        printed = math.sqrt(weight_std * width) / math.sqrt(weight_std * math.sqrt(2 * math.pi) + width - 1)
        assert kept == pytest.approx((2 * math.pi) ** -0.25 * printed, rel=1e-12)


@pytest.mark.parametrize("weight_std", [1.0, 2.0, 5.0])
def test_raghu_hardtanh_bounds_hold_in_simulation(weight_std: float) -> None:
    """A tangent perpendicular to an input of the largest norm that hard tanh leaves."""
    k, networks = 30, 20_000
    rng = np.random.default_rng(12)
    h, dh = rng.standard_normal((2, networks, k)) * weight_std  # ||z||^2 = k, ||dz|| = sqrt k, z . dz = 0
    found = np.linalg.norm(dh * (np.abs(h) < 1), axis=1) / math.sqrt(k)
    error = SDS * found.std() / math.sqrt(networks)
    assert growth.raghu_lower_bound(weight_std, 0.0, k, "hardtanh") - error < found.mean()
    assert found.mean() < growth.raghu_upper_bound(weight_std, k) + error


@given(
    st.sampled_from([e0.Gaussian, e0.Uniform, lambda scale: e0.Discrete((-scale, 0.0, 0.0, scale))]),
    st.floats(1e-3, 1e3), st.floats(1e-4, 1.0), st.integers(1, 2000), st.floats(0.001, 1),
)  # fmt: skip
def test_fourth_moment_bound_without_u_is_the_worst(make, scale, density: float, width: int, power_sum: float) -> None:
    entry = e0.Sparse(make(scale), density)
    one = growth.fourth_moment_lower_bound(entry, width, power_sum)
    assert growth.fourth_moment_lower_bound(entry, width) <= one * (1 + 1e-11)
    assert one <= growth.upper_bound(entry, width) * (1 + 1e-11)


def test_table_as_text() -> None:
    assert str(growth.bounds([scaled(2.0, 100), e0.Uniform(0.1)], [100, 100])).splitlines() == [
        "layer   width  paper lower     lower   minimum     exact   maximum     upper  status",
        "1         100     0.797885  1.380131  1.405349  1.405349  1.405349  1.414214  exact",
        "2         100     0.176777  0.398410         -         -         -  0.408248  bounded",
        "total  2 deep     0.141047  0.549857         -         -         -  0.577350  bounded",
    ]
