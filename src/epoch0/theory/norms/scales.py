"""What an initialization is in the norm laws: the variance of each layer's weights over He's by fan-out, 2/n.

The paper (Arpit-Bengio section 3) draws weights N(0, 2/fan_out), so that the forward pass keeps norms in expectation.
"""

from collections.abc import Sequence
from itertools import pairwise

from epoch0.errors import InputError
from epoch0.theory.gaussian_growth import check_width
from epoch0.theory.norms.checks import check_choice, check_count

# Variance of a weight by (fan_in, fan_out).
_VARIANCE = {
    "he": lambda fan_in, fan_out: 2 / fan_out,
    "he_fan_in": lambda fan_in, fan_out: 2 / fan_in,
    "glorot": lambda fan_in, fan_out: 2 / (fan_in + fan_out),
}


def forward_scales(sizes: Sequence[int], init: str) -> tuple[float, ...]:
    """Scale of every layer in the forward pass.

    >>> forward_scales([50, 100, 100], "he_fan_in")
    (2.0, 1.0)

    Args:
        sizes: number of inputs, then of units of every layer.
        init: "he", "he_fan_in" or "glorot".

    Raises:
        InputError: for fewer than two sizes, a size below 1 or an unknown init.
    """
    variances = _variances(sizes, init)
    return tuple(n * variance / 2 for n, variance in zip(sizes[1:], variances, strict=True))


def gradient_scales(sizes: Sequence[int], layer: int, init: str) -> tuple[float, ...]:
    """Scale of the factor that every layer but the last gives to the gradient of the weights of ``layer``.

    >>> gradient_scales([50, 100, 100, 200], 2, "he")              # layer 1 forward, layer 2 on the way back
    (1.0, 0.5)

    Args:
        sizes: number of inputs, then of units of every layer.
        layer: 1 for the first.
        init: "he", "he_fan_in" or "glorot".

    Raises:
        InputError: for fewer than three sizes, a size below 1, a layer that is not there or an unknown init.
    """
    variances = _variances(sizes, init)
    depth = len(variances)
    check_count("layer", layer)
    if depth < 2 or layer > depth:
        raise InputError(
            f"layer={layer!r} of {depth} cannot be used: it is a layer of the network, from 1, and with one layer "
            "only the ratio is exactly 1."
        )
    # unit i of layer l is scaled by its row of W^l going forward, by its column of W^(l+1) coming back
    passed = [variances[at] if at + 1 < layer else variances[at + 1] for at in range(depth - 1)]
    return tuple(n * variance / 2 for n, variance in zip(sizes[1:-1], passed, strict=True))


def _variances(sizes: Sequence[int], init: str) -> list[float]:
    """Variance of the weights of every layer."""
    check_choice("init", init, tuple(_VARIANCE))
    if len(sizes) < 2:
        raise InputError(f"sizes={list(sizes)!r} holds no layer; give the number of inputs and of units of each layer.")
    for size in sizes:
        check_width(size, "size")
    return [_VARIANCE[init](fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
