"""Colours for activation patterns that stay with a pattern through training (Hanin-Rolnick Figures 1 and 8)."""

import numpy as np

from epoch0.errors import InputError


def pattern_colours(patterns: np.ndarray) -> np.ndarray:
    """A light colour for each pattern that depends on its bits alone.

    >>> pattern_colours(on_plane(net, window).patterns).shape
    (4711, 3)

    Each byte of the pattern adds its own multiple to a sum, and the sum's bits choose hue, strength and brightness, so
    a cell keeps its colour between training steps as long as its pattern survives.

    Args:
        patterns: packed bits, as partitions have them, shape (patterns, bytes).

    Returns:
        Red, green and blue between 0 and 1, shape (patterns, 3).

    Raises:
        InputError: if the patterns are no table of whole numbers.

    Source: pictures as in Hanin and Rolnick 2019, Figures 1 and 8; the rule for the colours is ours.
    """
    if patterns.ndim != 2 or patterns.dtype.kind not in "ui":
        raise InputError(
            f"patterns are {patterns.dtype} of shape {patterns.shape}; give packed bits of shape (patterns, bytes), "
            "such as the attribute patterns of a partition."
        )
    from matplotlib.colors import hsv_to_rgb

    weights = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, patterns.shape[1], dtype=np.uint64)
    mixed = np.empty(len(patterns), dtype=np.uint64)
    for start in range(0, len(patterns), 1 << 14):
        part = patterns[start : start + (1 << 14)].astype(np.uint64) + np.uint64(1)
        mixed[start : start + (1 << 14)] = (part * (weights | np.uint64(1))).sum(axis=1, dtype=np.uint64)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    parts = [((mixed >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(float) / 65535 for shift in (0, 16, 32)]
    return np.asarray(hsv_to_rgb(np.stack([parts[0], 0.12 + 0.33 * parts[1], 0.84 + 0.16 * parts[2]], axis=1)))
