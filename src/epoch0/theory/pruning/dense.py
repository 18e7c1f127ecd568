"""Predict from mean-field theory what SNIP leaves of each layer of a dense network (THEORY section 4)."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from epoch0.activations import Activation, ActivationLike, get
from epoch0.errors import InputError
from epoch0.seeds import numpy_generator
from epoch0.theory.checks import check_continuous, check_count, check_sparsity, network_widths, of_layers
from epoch0.theory.pruning.dense_moments import DenseMoments, dense_moments, log_deviations, softmax
from epoch0.theory.pruning.prediction import Layers, PredictedDensity, predict
from epoch0.theory.pruning.score_law import ScoreLaw, entry_tail, score_law

Array = NDArray[np.float64]

NETWORKS = 128
"""How many networks' random walks are averaged."""

_DRAWS = 24  # drawings of rows and columns that the law of a largest score is averaged over
_INNER = ndtri((np.arange(64) + 0.5) / 64)  # quantiles of a normal variable
_MOST_UNITS = 4096  # of one layer's rows or columns that are drawn
_MOST_ERRORS = 4_000_000  # examples x classes of the last layer that are drawn
_ALIKE = 50.0  # layers whose parameters agree to 1/50 in logarithm share a law


def predicted_density(
    activation: ActivationLike,
    weight_std: float | ArrayLike,
    bias_std: float | ArrayLike,
    widths: Sequence[int],
    sparsity: float,
    *,
    input_square: float = 1.0,
    input_correlation: float = 0.0,
    examples: int = 100,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> PredictedDensity:
    """What pruning by abs(W dL/dW) is expected to leave of each layer of a dense network with random weights.

    >>> found = predicted_density("tanh", 1.2415, 0.3, [100] * 101, sparsity=0.7)             # chi = 0.9, 100 layers
    >>> round(found.critical_sparsity, 2), round(found.density["50"], 1)
    (0.69, 0.2)

    A score is W_ij times a sum over examples of delta_i phi_j. How far that sum is one product, so that rows and
    columns have factors in common, follows from the correlation of the examples in that layer and from how parallel
    their gradients have become. Laws, threshold and largest scores come from convolutions; the spread over networks of
    the layers' scales, which decides which layer is weakest, from 128 random walks. The expected critical sparsity
    came within 4 % of the mean measured over 40 networks (L = N = 100, tanh, bias_std 0.3, chi from 0.2 to 0.99) and
    within 11 % in the chaotic phase.

    Args:
        weight_std: sigma_w, standard deviation of a weight times sqrt(fan_in); one number, or one a layer.
        bias_std: sigma_b; one number, or one a layer.
        widths: number of inputs, then of units of each layer; the last are classes.
        input_square: mean square of an input.
        input_correlation: correlation of two examples, in [0, 1]; about 0.4 for images of digits in [0, 1].
        examples: number of examples in the batch, whose labels are random.

    The standard deviation of the prediction is over networks.

    Source: Hayou et al. 2021, Theorem 1, whose bound this replaces by an estimate.
    """
    rule = get(activation)
    check_continuous(rule)
    check_sparsity(sparsity)
    sizes = network_widths(widths)
    check_count("examples", examples)
    weights = of_layers("weight_std", weight_std, len(sizes) - 1)
    biases = of_layers("bias_std", bias_std, len(sizes) - 1)
    if not (math.isfinite(input_square) and input_square > 0 and 0 <= input_correlation <= 1):
        raise InputError(
            f"input_square={input_square!r}, input_correlation={input_correlation!r}: the mean square must be above 0, "
            "the correlation in [0, 1]."
        )
    if not (weights > 0).all():
        raise InputError("weight_std must be above 0 in every layer: where all weights are 0, so are all scores.")
    labels = [str(layer + 1) for layer in range(len(weights))] if names is None else list(names)
    moments = dense_moments(rule, weights, biases, sizes, input_square, input_correlation, examples, seed)
    laws = _laws(rule, sizes, moments, examples, seed)
    with np.errstate(divide="ignore"):
        mean_field = 0.5 * np.log(moments.mean_square)
    walks = log_deviations(rule, weights, sizes, moments, NETWORKS, numpy_generator(seed, 1))
    counts = np.array([n_in * n_out for n_in, n_out in pairwise(sizes)], dtype=np.float64)
    layers = Layers(laws, mean_field + 0.5 * walks, counts)
    return predict(layers, labels, sparsity, f"mean field of {rule.name}, {examples} examples")


def _laws(rule: Activation, widths: list[int], moments: DenseMoments, examples: int, seed: int) -> list[ScoreLaw]:
    """The law of each layer's scores, in units of their root mean square; layers that are alike share one."""
    known: dict[tuple[object, ...], ScoreLaw] = {}
    laws = []
    depth = len(moments.q)
    for layer in range(depth):
        shares = (moments.shared, moments.entering_c, moments.concentration)
        key = (
            *(_rounded(one[layer]) for one in (moments.q, moments.entering)),
            *(_near_one(one[layer]) for one in shares),
            *(widths[layer], widths[layer + 1], layer == 0, layer == depth - 1),
        )
        if key not in known:
            known[key] = _law(rule, widths, moments, examples, layer, numpy_generator(seed, 2, layer))
        laws.append(known[key])
    return laws


def _rounded(value: float) -> int:
    return round(_ALIKE * math.log(max(value, 1e-300)))


def _near_one(share: float) -> int:
    """Rounded finely next to 1 too, where what is missing decides how small a score can be."""
    return round(_ALIKE / 5 * math.log(min(max(share, 0.01) / max(1 - share, 1e-9), 1e3)))


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
        alike = moments.entering_c[0] + (1 - moments.entering_c[0]) / examples
        columns = alike * draw.standard_normal((_DRAWS, n_in)) ** 2 + 1 - alike
    else:
        shape = (_DRAWS, n_in)
        columns = _over_examples(rule.function, moments.q[layer - 1], moments.c[layer - 1], examples, shape, draw)
    # in that product a column is what the examples have in common, and a random sum of what they have not
    inside = common / product
    mixed = np.sqrt(inside * columns) + math.sqrt(1 - inside) * draw.standard_normal(columns.shape)
    columns = product * mixed**2 + (1 - product) * columns
    law = score_law(entry_tail(product), np.sqrt(rows), np.sqrt(columns))
    return _for_all_units(law, widths[layer] * widths[layer + 1])


def _output_rows(moments: DenseMoments, classes: int, examples: int, draw: np.random.Generator) -> Array:
    """Mean squares of the last layer's gradients in each row: of probabilities less labels, which are few and large."""
    if classes == 1:
        return np.ones((_DRAWS, 1))
    count = min(examples, max(_MOST_ERRORS // (_DRAWS * classes), 1))
    alike = max(float(moments.c[-1]), 0.0)
    common = math.sqrt(alike) * draw.standard_normal((_DRAWS, 1, classes))
    own = math.sqrt(1 - alike) * draw.standard_normal((_DRAWS, count, classes))
    labels = np.eye(classes)[draw.integers(classes, size=(_DRAWS, count))]
    errors = softmax(math.sqrt(moments.q[-1]) * (common + own)) - labels
    entering = max(float(moments.entering_c[-1]), 0.0)
    rows = entering * errors.sum(axis=1) ** 2 + (1 - entering) * (errors**2).sum(axis=1)
    return np.asarray(rows / rows.mean())


def _over_examples(
    function: Callable[[Any], Any], q: float, c: float, examples: int, shape: tuple[int, int], draw: np.random.Generator
) -> Array:
    """Each unit's mean over examples of f(h)^2, over its mean over all units: what examples share does not average."""
    alike = max(c, 0.0)
    alike += (1 - alike) / examples
    common = draw.standard_normal(shape)
    h = math.sqrt(q) * (math.sqrt(alike) * common[..., None] + math.sqrt(max(1 - alike, 0.0)) * _INNER)
    squares = np.asarray(function(h), dtype=np.float64) ** 2
    mean = float(squares.mean())
    return np.asarray(squares.mean(axis=-1) / mean) if mean > 0 else np.ones(shape)


def _for_all_units(law: ScoreLaw, weights: int) -> ScoreLaw:
    """The law of a layer of which only some units were drawn: that of the largest score goes with their number."""
    if law.weights == weights:
        return law
    return ScoreLaw(law.tail, law.none_above ** (weights / law.weights), law.scale, weights)
