"""Second moments of the scores of a wide dense network, layer by layer (Hayou et al. 2021, B.1 and Theorem 1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.seeds import numpy_generator
from epoch0.theory.mean_field.correlations import pair_mean
from epoch0.theory.mean_field.gaussian import gaussian_mean

Array = NDArray[np.float64]

_DRAWS = 500  # of labels and outputs, for the moments of the loss's gradient


@dataclass(frozen=True, eq=False)
class DenseMoments:
    """What mean-field theory says of each of the L layers; arrays of shape (L,), the first layer first.

    Attributes:
        q: variance of the pre-activations that the layer makes.
        c: their correlation over two examples.
        entering: mean square of what enters the layer.
        entering_c: correlation of what enters, over two examples.
        chi: gain of the nonlinearity behind the layer and the weights after that; the last is not used.
        fourth: E phi'^4 / (E phi'^2)^2 there.
        errors: variance of the gradient at the pre-activations of one example.
        errors_c: its correlation over two examples.
        concentration: sum of squares over square of the sum of the spectrum of the gradients of all examples: 1 if they
            point in one direction, 1/r if evenly in r.
        shared: share of the variance of a weight's gradient in the direction that all examples have in common.
        mean_square: m_l = E (W dL/dW)^2.
    """

    q: Array
    c: Array
    entering: Array
    entering_c: Array
    chi: Array
    fourth: Array
    errors: Array
    errors_c: Array
    concentration: Array
    shared: Array
    mean_square: Array


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

    Args:
        rule: the nonlinearity between the layers.
        weight_std: sigma_w of each layer, shape (L,): standard deviation times sqrt(fan_in).
        bias_std: sigma_b of each layer, shape (L,).
        widths: number of inputs, then of the units of each layer; L + 1 integers.
        input_square: mean square of an input.
        input_correlation: of two examples.
        examples: number of examples the loss is a mean over.
        seed: of the few random labels and outputs that the last gradient's moments are taken from.

    Raises:
        InputError: if a variance leaves the range of floats; the message names the layer.
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
        if layer and (q[layer], c[layer]) == (q[layer - 1], c[layer - 1]):
            continue  # settled: the next layer sees what this one saw
        square = _square(rule, q[layer], 0)
        pair = float(pair_mean(rule, q[layer], q[layer], c[layer]))
        cosine = min(max(pair / square, -1.0), 1.0) if square > 0 else 1.0
    return _backward(rule, weight_std, widths, examples, seed, (q, c, entering, entering_c))


def _backward(
    rule: Activation,
    weight_std: Array,
    widths: Sequence[int],
    examples: int,
    seed: int,
    forward: tuple[Array, Array, Array, Array],
) -> DenseMoments:
    q, c, entering, entering_c = forward
    depth = len(q)
    errors, errors_c, focus = np.ones(depth), np.zeros(depth), np.ones(depth)
    chi, fourth = np.ones(depth), np.ones(depth)
    errors_c[-1], focus[-1] = _output_errors(float(q[-1]), float(c[-1]), widths[-1], examples, seed)
    slopes: dict[tuple[float, float], tuple[float, float, float]] = {}
    for layer in range(depth - 2, -1, -1):
        at = (float(q[layer]), float(c[layer]))
        if at not in slopes:
            mean = _square(rule, at[0], 1)
            pair = float(pair_mean(rule, at[0], at[0], at[1], derivative=True))
            slopes[at] = mean, pair / mean if mean > 0 else 1.0, _square(rule, at[0], 2)
        mean, alike, high = slopes[at]
        width, after = widths[layer + 1], widths[layer + 2]
        chi[layer] = weight_std[layer + 1] ** 2 * mean
        fourth[layer] = high / mean**2 if mean > 0 else 1.0
        errors[layer] = errors[layer + 1] * chi[layer] * after / width
        errors_c[layer] = errors_c[layer + 1] * alike
        focus[layer] = _focused(float(focus[layer + 1]), float(fourth[layer]) / width)
    a, b, n = errors_c, np.clip(entering_c, 0.0, 1.0), examples
    common, rest = (1 - a + a * n) * (1 - b + b * n), (n - 1) * (1 - a) * (1 - b)
    fan_in = np.asarray(widths[:-1], dtype=np.float64)
    # the loss is a mean over examples: each brings 1/n of its gradient
    mean_square = weight_std**2 / fan_in * errors * entering * (common + rest) / n**2
    return DenseMoments(
        q, c, entering, entering_c, chi, fourth, errors, errors_c, focus, common / (common + rest), mean_square
    )


def _focused(s: float, step: float) -> float:
    """How concentrated the gradients' spectrum is one layer further back.

    With X the second moment of the gradients, of trace 1, and A = sum_j phi'_j^2 w_j w_j' / n the layer, s goes from
    tr X^2 to the expected tr (A X)^2 / (tr A X)^2, to first order in 1/n. That needs tr X^3, which is taken as that of
    a spectrum which falls off geometrically, as the Lyapunov spectrum of such products does.
    """
    cubes = 4 * s**2 / (3 + s**2)
    return min(max(s + step * (1 + s + 6 * s**2 - 8 * cubes), 0.0), 1.0)


def _square(rule: Activation, q: float, kind: int) -> float:
    """E phi^2, E phi'^2 or E phi'^4 at variance q, for kind 0, 1 and 2."""
    if kind == 0:
        return gaussian_mean(lambda h: rule.function(h) ** 2, q, rule.breaks)
    power = 2 * kind
    return gaussian_mean(lambda h: rule.derivative(h) ** power, q, rule.breaks)


def _output_errors(q: float, c: float, classes: int, examples: int, seed: int) -> tuple[float, float]:
    """Correlation over examples of the cross-entropy's gradient at the outputs, and its spectrum's concentration."""
    if classes == 1:  # one output has no cross-entropy: a loss whose errors are unrelated
        return 0.0, 1.0
    draw = numpy_generator(seed, 0)
    both = math.sqrt(max(c, 0.0)) * draw.standard_normal((_DRAWS, classes))
    first, second = (
        softmax(math.sqrt(q) * (both + math.sqrt(1 - max(c, 0.0)) * draw.standard_normal((_DRAWS, classes))))
        for _ in range(2)
    )
    # over random labels y, y': E |p - y|^2 and E (p - y)(p' - y')
    own = 1 - 2 / classes + float((first**2).sum(axis=1).mean())
    other = float((first * second).sum(axis=1).mean()) - 1 / classes
    labels = draw.integers(classes, size=(2, _DRAWS))
    one, two = (p - np.eye(classes)[y] for p, y in zip((first, second), labels, strict=True))
    squares = float(((one * two).sum(axis=1) ** 2).mean())
    return other / own, (own**2 + (examples - 1) * squares) / (examples * own**2)


def softmax(h: Array) -> Array:
    """Probabilities from outputs, over the last axis."""
    p = np.exp(h - h.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))
