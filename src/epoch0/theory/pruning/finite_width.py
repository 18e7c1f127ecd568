"""How the scale of each layer's scores varies over networks of finite width: a random walk (beyond the paper)."""

import math

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.theory.pruning.dense_moments import DenseMoments

Array = NDArray[np.float64]

_POINTS, _MASS = np.polynomial.hermite_e.hermegauss(80)
_MASS = _MASS / _MASS.sum()
_FAR = 0.5  # of q: farther than this from its mean-field value the expansion is not trusted


def log_deviations(
    rule: Activation,
    weight_std: Array,
    widths: list[int],
    moments: DenseMoments,
    networks: int,
    draw: np.random.Generator,
) -> Array:
    """By how much log m_l differs from its mean-field value in each of several networks of these widths.

    Going back through n units, |delta|^2 changes by (sigma_w^2 / n) sum_j phi'(h_j)^2 z_j^2 with z_j normal, whose
    logarithm has the variance (3 k - 1) / n, k = E phi'^4 / (E phi'^2)^2, and its mean lies half of that below log chi:
    a typical gradient shrinks faster than the mean square does. That holds for one gradient, such as the mean over
    examples. Of the gradients of many examples, which point in r directions, the sum of squares varies less, by
    (k (1 + 2/r) - 1) / n, until the layers have made them parallel; ``concentration`` is 1/r. Both are followed, each
    with its share of m_l. The variance q of the pre-activations varies too, by (sigma_w^2)^2 Var(phi^2) / n a layer,
    and chi with it.

    Args:
        rule: the nonlinearity.
        weight_std: sigma_w of each layer, shape (layers,).
        widths: number of inputs and of the units of each layer.
        moments: of the network.
        networks: how many are drawn.
        draw: the random generator.

    Returns:
        Shape (networks, layers).
    """
    depth = len(moments.q)
    all_steps, common_steps, column = (np.zeros((networks, depth)) for _ in range(3))
    off = np.zeros(networks)  # q less its mean-field value
    for layer in range(depth - 1):
        width, q = widths[layer + 1], moments.q[layer]
        squares, slopes = _squares(rule, q)
        mean, slope = float(_MASS @ squares), float(_MASS @ slopes)
        normal = draw.standard_normal((3, networks))
        k, s = moments.fourth[layer], moments.concentration[layer + 1]
        of_gain = (k * (1 + 2 * s) - 1) / width
        of_square = float(_MASS @ squares**2 - mean**2) / width
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
    """The sum over all later layers; of a layer's own units the drawing of its rows knows."""
    sums = np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([sums[:, 1:], np.zeros((len(steps), 1))], axis=1)


def _squares(rule: Activation, q: float) -> tuple[Array, Array]:
    h = math.sqrt(q) * _POINTS
    return np.asarray(rule.function(h) ** 2), np.asarray(rule.derivative(h) ** 2)


def _curves(rule: Activation, q: float) -> tuple[Array, Array]:
    """By how much E phi^2 and log E phi'^2 change when q changes by x: parabolas through three points, 0 at x = 0.

    Two orders are needed: q varies by sqrt(2 / n), but in every layer, so the mean of what it does to chi adds up.
    """
    if q <= 0:
        return np.zeros(3), np.zeros(3)
    x = 0.3 * q
    squares, gains = zip(*(_means(rule, q + step) for step in (-x, 0.0, x)), strict=True)
    return _parabola(x, *squares), _parabola(x, *(math.log(max(gain, 1e-300)) for gain in gains))


def _means(rule: Activation, q: float) -> tuple[float, float]:
    squares, slopes = _squares(rule, q)
    return float(_MASS @ squares), float(_MASS @ slopes)


def _parabola(x: float, below: float, middle: float, above: float) -> Array:
    """Coefficients, highest power first, of the parabola through these less the middle one."""
    return np.array([(above - 2 * middle + below) / (2 * x**2), (above - below) / (2 * x), 0.0])
