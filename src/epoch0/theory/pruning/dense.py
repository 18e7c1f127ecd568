"""What pruning leaves of each dense layer: from mean-field theory (THEORY 4), and by bounds (Hayou, Th. 1, Prop. 4)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np

from epoch0 import special
from epoch0.activations import Activation, ActivationLike
from epoch0.arguments import Count, Inside, Positive, Seed, Share, Size, Sparsity, Variance, Within, checked
from epoch0.errors import InputError
from epoch0.seeds import numpy_generator
from epoch0.theory.checks import Array, continuous, of_layers
from epoch0.theory.mean_field.correlations import pair_mean, pieces
from epoch0.theory.mean_field.moments import gaussian_mean, mean_slope, mean_square
from epoch0.theory.pruning.prediction import Layers, PredictedDensity, ScoreLaw, entry_tail, predict, score_law

_NETWORKS = 128  # whose random walks are averaged
_OUTPUT_DRAWS = 500  # of labels and outputs, for the moments of the loss's gradient
_POINTS, _MASS = np.polynomial.hermite_e.hermegauss(80)
_MASS = _MASS / _MASS.sum()
_FAR = 0.5  # of q: farther than this from its mean-field value the expansion is not trusted


@dataclass(frozen=True, eq=False)
class DenseMoments:
    """Mean-field moments of each of the L layers; arrays of shape (L,), the first layer first."""

    q: Array  # variance of the pre-activations that the layer makes
    c: Array  # their correlation over two examples
    entering: Array  # mean square of what enters the layer
    entering_c: Array  # its correlation over two examples
    fourth: Array  # E phi'^4 / (E phi'^2)^2 of the nonlinearity behind the layer
    concentration: Array  # of the gradients' spectrum: 1 if all examples' point in one direction, 1/r if evenly in r
    shared: Array  # share of the variance of a weight's gradient in the direction that all examples have in common
    mean_square: Array  # m_l = E (W dL/dW)^2


def dense_moments(
    rule: Activation,
    weight_std: Array,
    bias_std: Array,
    widths: Sequence[int],
    input_square: float,
    input_correlation: float,
    examples: int,
    seed: int,
) -> DenseMoments:
    """Carry variances and correlations forward, and the gradient of the cross-entropy of random labels back.

    The gradient of a weight is a sum over examples, delta_i phi_j. Where neither deltas nor phis of different examples
    are correlated it is a sum of independent products; where all examples look alike it is one product. The mean over
    examples is one direction among as many as there are examples, and carries ``shared`` of the variance.

    The seed is of the few random labels and outputs that the last gradient's moments are taken from.
    """
    depth = len(widths) - 1
    entering, entering_c, q, c = (np.empty(depth) for _ in range(4))
    square, cosine = input_square, input_correlation
    for layer in range(depth):
        entering[layer], entering_c[layer] = square, cosine
        q[layer] = bias_std[layer] ** 2 + weight_std[layer] ** 2 * square
        if not np.isfinite(q[layer]) or q[layer] > 1e150:
            raise InputError(f"the variance of the pre-activations exceeds 1e150 in layer {layer + 1}.")
        both = bias_std[layer] ** 2 + weight_std[layer] ** 2 * square * cosine
        c[layer] = min(max(both / q[layer], -1.0), 1.0) if q[layer] > 0 else 1.0
        square, cosine, *_ = _means(rule, float(q[layer]), float(c[layer]))
    # of the gradient at the pre-activations: its variance, and its correlation over two examples
    errors, errors_c, focus, fourth = np.ones(depth), np.zeros(depth), np.ones(depth), np.ones(depth)
    errors_c[-1], focus[-1] = _output_errors(float(q[-1]), float(c[-1]), widths[-1], examples, seed)
    for layer in range(depth - 2, -1, -1):
        *_, slope, correlated, fourth[layer] = _means(rule, float(q[layer]), float(c[layer]))
        width, after = widths[layer + 1], widths[layer + 2]
        errors[layer] = errors[layer + 1] * (weight_std[layer + 1] ** 2 * slope) * after / width
        errors_c[layer] = errors_c[layer + 1] * correlated
        focus[layer] = _focused(float(focus[layer + 1]), float(fourth[layer]) / width)
    a, b, n = errors_c, np.clip(entering_c, 0.0, 1.0), examples
    common, rest = (1 - a + a * n) * (1 - b + b * n), (n - 1) * (1 - a) * (1 - b)
    # the loss is a mean over examples: each brings 1/n of its gradient
    squares = weight_std**2 / np.asarray(widths[:-1], dtype=np.float64) * errors * entering * (common + rest) / n**2
    return DenseMoments(q, c, entering, entering_c, fourth, focus, common / (common + rest), squares)


@lru_cache(maxsize=256)
def _means(rule: Activation, q: float, c: float) -> tuple[float, ...]:
    """E phi^2 and its correlation over two examples, the same of phi', and E phi'^4 / (E phi'^2)^2."""
    found = []
    for whole, derivative in ((mean_square(rule, q), False), (mean_slope(rule, q), True)):
        found += [whole, float(np.clip(pair_mean(rule, q, q, c, derivative) / whole, -1.0, 1.0)) if whole > 0 else 1.0]
    fourth = gaussian_mean(lambda h: rule.derivative(h) ** 4, q, rule.breaks)
    return *found, fourth / found[2] ** 2 if found[2] > 0 else 1.0


def _focused(s: float, step: float) -> float:
    """How concentrated the gradients' spectrum is one layer further back. With X the second moment of the gradients, of
    trace 1, and A = sum_j phi'_j^2 w_j w_j' / n the layer, s goes from tr X^2 to the expected tr (A X)^2 / (tr A X)^2,
    to first order in 1/n. That needs tr X^3, which is taken as that of a spectrum which falls off geometrically, as the
    Lyapunov spectrum of such products does.
    """
    return min(max(s + step * (1 + s + 6 * s**2 - 32 * s**2 / (3 + s**2)), 0.0), 1.0)


def _output_errors(q: float, c: float, classes: int, examples: int, seed: int) -> tuple[float, float]:
    """Correlation over examples of the cross-entropy's gradient at the outputs, and its spectrum's concentration."""
    if classes == 1:  # one output has no cross-entropy: a loss whose errors are unrelated
        return 0.0, 1.0
    draw = numpy_generator(seed, 0)
    shape, apart = (_OUTPUT_DRAWS, classes), math.sqrt(1 - max(c, 0.0))
    both = math.sqrt(max(c, 0.0)) * draw.standard_normal(shape)
    outputs = (math.sqrt(q) * (both + apart * draw.standard_normal(shape)) for _ in range(2))
    first, second = (special.softmax(output, axis=-1) for output in outputs)
    # over random labels y, y': E |p - y|^2 and E (p - y)(p' - y')
    own = 1 - 2 / classes + float((first**2).sum(axis=1).mean())
    other = float((first * second).sum(axis=1).mean()) - 1 / classes
    labels = draw.integers(classes, size=(2, _OUTPUT_DRAWS))
    one, two = (p - np.eye(classes)[y] for p, y in zip((first, second), labels, strict=True))
    squares = float(((one * two).sum(axis=1) ** 2).mean())
    return other / own, (own**2 + (examples - 1) * squares) / (examples * own**2)


def log_deviations(
    rule: Activation, weight_std: Array, widths: list[int], moments: DenseMoments, draw: np.random.Generator
) -> Array:
    """By how much log m_l differs from its mean-field value in each of several networks of these widths.

    The logarithm of one gradient's square, such as of the mean over examples, walks at random over the depth with the
    variance (3 k - 1) / n a layer, k = E phi'^4 / (E phi'^2)^2 (docs/pruning). Of the gradients of many examples, which
    point in r directions, the sum of squares varies less, by (k (1 + 2/r) - 1) / n, until the layers have made them
    parallel; ``concentration`` is 1/r. Both are followed, each with its share of m_l. The variance q varies too, by
    (sigma_w^2)^2 Var(phi^2) / n a layer, and chi with it.

    Shape (networks, layers).
    """
    depth = len(moments.q)
    all_steps, common_steps, column = (np.zeros((_NETWORKS, depth)) for _ in range(3))
    off = np.zeros(_NETWORKS)  # q less its mean-field value
    for layer in range(depth - 1):
        width, q = widths[layer + 1], moments.q[layer]
        squares, slopes = _squares(rule, q)
        mean, slope = float(_MASS @ squares), float(_MASS @ slopes)
        normal = draw.standard_normal((3, _NETWORKS))
        k, s = moments.fourth[layer], moments.concentration[layer + 1]
        of_gain, of_square = (k * (1 + 2 * s) - 1) / width, float(_MASS @ squares**2 - mean**2) / width
        together = float(_MASS @ (squares * slopes) - mean * slope) / slope / width if slope > 0 else 0.0
        toward = together / math.sqrt(of_square) if of_square > 0 else 0.0
        noise = toward * normal[0] + math.sqrt(max(of_gain - toward**2, 0.0)) * normal[1]
        more_square, more_gain = _curves(rule, q)
        apart = 2 * k * max(1 - s, 0.0) / width
        all_steps[:, layer] = noise - of_gain / 2 + np.polyval(more_gain, off)
        common_steps[:, layer] = all_steps[:, layer] + math.sqrt(apart) * normal[2] - apart / 2
        weight = weight_std[layer + 1] ** 2
        if mean > 0:
            # columns are drawn with the noise of their own; what came before shifts them all
            column[:, layer + 1] = np.clip(np.polyval(more_square, off) / mean, -1.0, 1.0)
        off = weight * (np.polyval(more_square, off) + math.sqrt(of_square) * normal[0])
        off = np.clip(off, -_FAR * moments.q[layer + 1], _FAR * moments.q[layer + 1])
    shared = moments.shared
    behind = shared * np.exp(_after(common_steps)) + (1 - shared) * np.exp(_after(all_steps))
    return np.asarray(np.log(np.maximum(behind, 1e-300)) + column)


def _after(steps: Array) -> Array:
    """The sum over all later layers; a layer's own units are in the draw of its rows."""
    return np.concatenate([np.cumsum(steps[:, ::-1], axis=1)[:, ::-1][:, 1:], np.zeros((len(steps), 1))], axis=1)


def _squares(rule: Activation, q: float) -> tuple[Array, Array]:
    h = math.sqrt(q) * _POINTS
    return np.asarray(rule.function(h) ** 2), np.asarray(rule.derivative(h) ** 2)


def _curves(rule: Activation, q: float) -> tuple[Array, Array]:
    """By how much E phi^2 and log E phi'^2 change when q changes by x: parabolas through three points, 0 at x = 0. Two
    orders are needed: q varies by sqrt(2 / n) in every layer, and the mean of what that does to chi adds up.
    """
    if q <= 0:
        return np.zeros(3), np.zeros(3)
    x = 0.3 * q
    both = (_squares(rule, q + step) for step in (-x, 0.0, x))
    squares, gains = zip(*([float(_MASS @ item) for item in pair] for pair in both), strict=True)
    logs = [math.log(max(gain, 1e-300)) for gain in gains]
    # coefficients, highest power first
    first, second = (
        np.array([(above - 2 * middle + below) / (2 * x**2), (above - below) / (2 * x), 0.0])
        for below, middle, above in (squares, logs)
    )
    return first, second


_DRAWS = 24  # drawings of rows and columns that the law of a largest score is averaged over
_INNER = np.array([NormalDist().inv_cdf((i + 0.5) / 64) for i in range(64)])  # quantiles of a normal variable
_MOST_UNITS = 4096  # of one layer's rows or columns that are drawn
_MOST_ERRORS = 4_000_000  # examples x classes of the last layer that are drawn
_ALIKE = 50.0  # layers whose parameters agree to 1/50 in logarithm share a law


@checked
def predicted_density(
    activation: ActivationLike,
    weight_std: Variance,
    bias_std: Variance,
    widths: Sequence[Size],
    sparsity: Sparsity,
    *,
    input_square: Positive = 1.0,
    input_correlation: Share = 0.0,
    examples: Size = 100,
    seed: Seed = 0,
) -> PredictedDensity:
    """What pruning by abs(W dL/dW) is expected to leave of each layer of a dense network with random weights.

    >>> found = predicted_density("tanh", 1.2415, 0.3, [100] * 101, sparsity=0.7)             # chi = 0.9, 100 layers
    >>> round(found.critical_sparsity, 2), round(found.density["50"], 1)
    (0.69, 0.2)

    The expected critical sparsity came within 4 % of the mean measured over 40 networks (L = N = 100, tanh, bias_std
    0.3, chi from 0.2 to 0.99) and within 11 % in the chaotic phase; docs/pruning has how it is found.

    ``weight_std`` is sigma_w, a weight's standard deviation times sqrt(fan_in), and ``bias_std`` sigma_b: one number,
    or one a layer. ``widths`` are the number of inputs, then of units of each layer; the last are classes.
    ``input_square`` is the mean square of an input, ``input_correlation`` that of two examples, in [0, 1] (about 0.4
    for digits), and ``examples`` the size of the batch, whose labels are random. The deviation is over networks.

    Source: Hayou et al. 2021, Theorem 1, whose bound this replaces by an estimate.
    """
    rule = continuous(activation)
    if len(sizes := list(widths)) < 2:
        raise InputError(f"widths={sizes} is no network; give the number of inputs, then of units of each layer.")
    weights = of_layers("weight_std", weight_std, len(sizes) - 1)
    biases = of_layers("bias_std", bias_std, len(sizes) - 1)
    if not (weights > 0).all():
        raise InputError("weight_std must be above 0 in every layer: where all weights are 0, so are all scores.")
    moments = dense_moments(rule, weights, biases, sizes, input_square, input_correlation, examples, seed)
    laws = _laws(rule, sizes, moments, examples, seed)
    with np.errstate(divide="ignore"):
        mean_field = 0.5 * np.log(moments.mean_square)
    walks = log_deviations(rule, weights, sizes, moments, numpy_generator(seed, 1))
    layers = Layers(laws, mean_field + 0.5 * walks, np.array([law.weights for law in laws], dtype=np.float64))
    return predict(layers, sparsity, f"mean field of {rule.name}, {examples} examples")


def _laws(rule: Activation, widths: list[int], moments: DenseMoments, examples: int, seed: int) -> list[ScoreLaw]:
    """The law of each layer's scores, in units of their root mean square; layers that are alike share one."""
    known: dict[tuple[object, ...], ScoreLaw] = {}
    laws, depth = [], len(moments.q)
    for layer in range(depth):
        shares = (moments.shared, moments.entering_c, moments.concentration)
        # rounded finely next to 1 too, where what is missing decides how small a score can be
        odds = [min(max(share[layer], 0.01) / max(1 - share[layer], 1e-9), 1e3) for share in shares]
        key = (
            *(round(_ALIKE * math.log(max(item[layer], 1e-300))) for item in (moments.q, moments.entering)),
            *(round(_ALIKE / 5 * math.log(ratio)) for ratio in odds),
            *(widths[layer], widths[layer + 1], layer == 0, layer == depth - 1),
        )
        if key not in known:
            known[key] = _law(rule, widths, moments, examples, layer, numpy_generator(seed, 2, layer))
        laws.append(known[key])
    return laws


def _law(
    rule: Activation, widths: list[int], moments: DenseMoments, examples: int, layer: int, draw: np.random.Generator
) -> ScoreLaw:
    n_in, n_out = (min(width, _MOST_UNITS) for width in widths[layer : layer + 2])
    common = float(moments.shared[layer])
    product = common
    if layer == len(moments.q) - 1:
        rows = _output_rows(moments, n_out, examples, draw)
    else:
        # gradients that the layers behind have made parallel are one product too, whatever their examples look like:
        # the largest of the spectrum's shares, if it falls off geometrically
        focus = float(moments.concentration[layer])
        product += (1 - common) * 2 * focus / (1 + focus)
        rows = product * draw.standard_normal((_DRAWS, n_out)) ** 2 + 1 - product
        rows = rows * _over_examples(rule.derivative, moments.q[layer], moments.c[layer], examples, rows.shape, draw)
    if layer == 0:  # inputs are taken as normal
        correlated = moments.entering_c[0] + (1 - moments.entering_c[0]) / examples
        columns = correlated * draw.standard_normal((_DRAWS, n_in)) ** 2 + 1 - correlated
    else:
        shape = (_DRAWS, n_in)
        columns = _over_examples(rule.function, moments.q[layer - 1], moments.c[layer - 1], examples, shape, draw)
    # in that product a column is what the examples have in common, and a random sum of what they have not
    inside = common / product
    mixed = np.sqrt(inside * columns) + math.sqrt(1 - inside) * draw.standard_normal(columns.shape)
    columns = product * mixed**2 + (1 - product) * columns
    law, weights = score_law(entry_tail(product), np.sqrt(rows), np.sqrt(columns)), widths[layer] * widths[layer + 1]
    if law.weights == weights:
        return law
    # of a layer of which only some units were drawn the law of the largest score goes with their number
    return ScoreLaw(law.tail, law.none_above ** (weights / law.weights), law.scale, weights)


def _output_rows(moments: DenseMoments, classes: int, examples: int, draw: np.random.Generator) -> Array:
    """Mean squares of the last layer's gradients in each row: of probabilities less labels, which are few and large."""
    if classes == 1:
        return np.ones((_DRAWS, 1))
    count = min(examples, max(_MOST_ERRORS // (_DRAWS * classes), 1))
    correlated = max(float(moments.c[-1]), 0.0)
    common = math.sqrt(correlated) * draw.standard_normal((_DRAWS, 1, classes))
    own = math.sqrt(1 - correlated) * draw.standard_normal((_DRAWS, count, classes))
    labels = np.eye(classes)[draw.integers(classes, size=(_DRAWS, count))]
    errors = special.softmax(math.sqrt(moments.q[-1]) * (common + own), axis=-1) - labels
    entering = max(float(moments.entering_c[-1]), 0.0)
    rows = entering * errors.sum(axis=1) ** 2 + (1 - entering) * (errors**2).sum(axis=1)
    return np.asarray(rows / rows.mean())


def _over_examples(
    function: Callable[[Any], Any], q: float, c: float, examples: int, shape: tuple[int, int], draw: np.random.Generator
) -> Array:
    """Each unit's mean over examples of f(h)^2, over its mean over all units: what examples share does not average."""
    correlated = max(c, 0.0)
    correlated += (1 - correlated) / examples
    common = draw.standard_normal(shape)
    h = math.sqrt(q) * (math.sqrt(correlated) * common[..., None] + math.sqrt(max(1 - correlated, 0.0)) * _INNER)
    squares = np.asarray(function(h), dtype=np.float64) ** 2
    mean = float(squares.mean())
    return np.asarray(squares.mean(axis=-1) / mean) if mean > 0 else np.ones(shape)


@checked
def ordered_bound(chi: Inside, depth: Size, width: Size, *, paper: bool = False) -> float:
    """Upper bound on the expected critical sparsity of SNIP in the ordered phase, without its error term.

    >>> kappa = math.exp(-8 * 0.2)                                            # chi at kappa = 0.2
    >>> round(ordered_bound(kappa, 100, 100), 3), round(ordered_bound(kappa, 100, 100, paper=True), 3)
    (0.62, 0.275)

    It is (1 + log(kappa L N^2) / kappa) / L with kappa = abs(log chi) / 8; above 1 it says nothing, and it is infinite
    where kappa L N^2 is below 1, as the proof does not hold there. The error term, O(1/(kappa^2 sqrt(L N^2))), has no
    stated constant. The proof needs the natural logarithm; the paper's example, "27 % at kappa = 0.2", is the formula
    with log base 10, which ``paper`` takes. It holds for bias_std > 0 only, and lies about eight times above what is
    measured (docs/pruning); :func:`predicted_density` comes within 5 %. ``depth`` is L, ``width`` N.

    Source: Hayou et al. 2021, Theorem 1.
    """
    kappa = abs(math.log(chi)) / 8
    inside = kappa * depth * width**2
    return (1 + (math.log10(inside) if paper else math.log(inside)) / kappa) / depth if inside >= 1 else math.inf


@checked
def magnitude_bound(gamma: Annotated[float, Within(above=1)], weights: Count, *, paper: bool = False) -> float:
    """Upper bound on the critical sparsity of magnitude pruning where one layer of many has smaller weights.

    >>> [round(magnitude_bound(g, 10_000), 3) for g in (2, 5, 10)]
    [0.996, 0.935, 0.812]
    >>> [round(magnitude_bound(g, 10_000, paper=True), 3) for g in (2, 5, 10)]
    [0.961, 0.598, 0.327]

    The layers' standard deviations differ by the square root of the paper's gamma; the proposition has gamma in that
    place, and Table 7 neither (docs/pruning). ``gamma`` is the variance of the other layers' weights over that of the
    weakest layer's, > 1, ``weights`` the number of weights of that layer (zeta N^2); ``paper`` takes gamma as the ratio
    of standard deviations, as printed.

    Source: Hayou et al. 2021, appendix E, Proposition 4.
    """
    from scipy.optimize import minimize_scalar

    about, depths = (gamma if paper else math.sqrt(gamma), weights), np.linspace(1e-6, 12.0, 4001)
    start = int(np.argmin(_bound_at(depths, *about)))
    ends = (depths[max(start - 1, 0)], depths[min(start + 1, len(depths) - 1)])
    return float(minimize_scalar(_bound_at, args=about, bounds=ends, method="bounded", options={"xatol": 1e-12}).fun)


@checked
def magnitude_limit(gamma: Annotated[float, Within(above=1)], weights: Count) -> float:
    """Expected critical sparsity of magnitude pruning when one layer is weaker than infinitely many others.

    >>> [round(magnitude_limit(g, 10_000), 3) for g in (2, 5, 10)]
    [0.995, 0.925, 0.794]

    The threshold at sparsity x is the x-quantile of the other layers' weights, and the weak layer stays while one of
    its M weights exceeds it: the integral of 1 - (1 - P(abs(Z) > r Q_x))^M over x, here over r times the quantile.

    Arguments as for :func:`magnitude_bound`.

    Source: beyond Hayou et al. 2021, appendix E, which bounds it.
    """
    z, mass = pieces(np.linspace(0.0, 40.0, 801), 20)
    with np.errstate(divide="ignore"):
        stays = -np.expm1(weights * np.log1p(-np.exp(_log_outside(z))))
    return math.sqrt(2 / math.pi / gamma) * float((mass * stays * np.exp(-0.5 * z**2 / gamma)).sum())


@checked
def magnitude_density(weight_std: Variance, weights: Sequence[Count], sparsity: Sparsity) -> PredictedDensity:
    """What magnitude pruning is expected to leave of each layer of normal weights, at any depth.

    >>> found = magnitude_density([5**-0.5] + [1.0] * 99, [10_000] * 100, sparsity=0.9)
    >>> round(found.critical_sparsity, 3), found.at_risk
    (0.926, ['1'])

    Standard deviations (not times sqrt(fan_in)) and numbers of weights are one a layer; the layers' names are "1", "2",
    ... The standard deviation of the prediction is over drawings of the weights.

    Source: Hayou et al. 2021, appendix E, where only the limit of infinite depth is bounded.
    """
    if not len(weights):
        raise InputError("weights holds no layer; give the number of weights of each.")
    stds, entry = of_layers("weight_std", weight_std, len(weights)), entry_tail(1.0)
    laws = {count: score_law(entry, np.ones(1), np.ones(int(count))) for count in set(weights)}
    with np.errstate(divide="ignore"):
        layers = Layers([laws[count] for count in weights], np.log(stds)[None], np.asarray(weights, dtype=np.float64))
    return predict(layers, sparsity, "magnitudes of normal weights")


def _log_outside(z: Array | float) -> Array:
    """Logarithm of P(abs(Z) > z) for z >= 0, far into the tail."""
    return np.asarray(math.log(2) + special.log_ndtr(-z))


def _bound_at(z: Array | float, ratio: float, weights: int) -> Array:
    """The bound x + M/(1 + a) (1 - x)^(1 + a) at x = P(abs(Z) <= z), a such that (1 - x)^a = P(abs(Z) > r z)."""
    outside, inner = _log_outside(z), _log_outside(ratio * z)
    return np.asarray(-np.expm1(outside) + weights / (1 + inner / outside) * np.exp(outside + inner))
