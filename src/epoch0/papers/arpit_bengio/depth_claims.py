"""What Arpit & Bengio say of Figure 1 (section 4.1, Theorems 1 and 3), decided on the measurements."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from epoch0.experiments.claims import Claim, at_most, between, equal_within_error, increasing
from epoch0.papers.arpit_bengio.depth import Kind, Setting, first_layer, gather, off_one, rows_of, step_spread, table
from epoch0.papers.arpit_bengio.laws import LEVEL, Quantity
from epoch0.papers.arpit_bengio.norms import Init
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error

RESOLUTION = 0.05
"""A mean ratio is the exact one if a relative difference of 5 % would have been seen and was not."""

COARSE = 0.25
"""The same for a variance, whose relative error is larger: a factor of 4 or 6 in the place of 5 would be near that."""

Rows = list[dict[str, Any]]

_NAMES: dict[Quantity, str] = {"activation": "activation norm ratio", "gradient": "gradient norm ratio"}


def activation_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 1a: He keeps the norm of the activations, better with width; Glorot does not."""
    kinds = gather(setting, results)
    decays = "Glorot: the activation norm ratio decays as the exact law says"
    return [
        *_he("activation", setting, results),
        _law_holds(decays, "glorot", "activation", setting, results),
        _lost("activation", setting, results, setting.depth),
        _spread([kinds["he", width] for width in setting.widths]),
    ]


def gradient_claims(setting: Setting, results: Results) -> list[Claim]:
    """Figure 1b: the same for the gradients, and the assumption that Theorem 3 makes about them."""
    kinds = gather(setting, results)
    return [
        *_he("gradient", setting, results),
        _law_holds("Glorot: the gradient norm ratio is the exact law's", "glorot", "gradient", setting, results),
        _lost("gradient", setting, results, 1),
        _independent([kinds["he", width] for width in setting.widths]),
        _shared_direction([kinds["he", width] for width in setting.widths]),
    ]


def _he(quantity: Quantity, setting: Setting, results: Results) -> list[Claim]:
    """The statements about He's initialization that both figures share."""
    name = _NAMES[quantity]
    mine = rows_of(table(quantity, setting, results), "he")
    ratio, error, low, high = (
        np.array([row[column] for row in mine]) for column in ("ratio", "ratio_error", "exact_low", "exact_high")
    )
    kinds = gather(setting, results)
    backwards = setting.widths[::-1]
    squares, errors = np.transpose([off_one(kinds["he", width], quantity) for width in backwards])
    rms = np.sqrt(squares)
    return [
        between(
            f"He: the mean {name} is inside the exact law's {100 * LEVEL:g} % band, at every layer",
            ratio, error, low, high, _networks(mine), [_told(row) for row in mine],
        ),
        _law_holds(f"He: the mean {name} is the exact law's", "he", quantity, setting, results),
        increasing(
            f"He: the {name} is nearer to 1 the wider the network (root of the mean of (ratio - 1)^2)",
            rms, errors / (2 * rms), setting.networks[::-1], [f"width {width}" for width in backwards],
        ),
    ]  # fmt: skip


def _law_holds(text: str, init: Init, quantity: Quantity, setting: Setting, results: Results) -> Claim:
    """Means against the exact law's."""
    mine = [row for row in table(quantity, setting, results) if row["init"] == init]
    columns = ("ratio", "ratio_error", "exact_mean")
    ratio, error, exact = (np.array([row[column] for row in mine]) for column in columns)
    return equal_within_error(
        text, np.stack([ratio, exact], 1), np.stack([error, np.zeros_like(error)], 1), _twice(_networks(mine)),
        resolution=RESOLUTION, settings=[_told(row) for row in mine], groups=("measured", "exact"),
    )  # fmt: skip


def _lost(quantity: Quantity, setting: Setting, results: Results, layer: int) -> Claim:
    """Glorot at the layer that is furthest from where the norm is 1 by definition: below what He's law would give."""
    rows = [row for row in table(quantity, setting, results) if row["layer"] == layer]
    glorot, he = rows_of(rows, "glorot"), rows_of(rows, "he")
    text = f"Glorot: at layer {layer} the {_NAMES[quantity]} is below the band that He's has"
    values, errors = ([row[column] for row in glorot] for column in ("ratio", "ratio_error"))
    bounds = [row["exact_low"] for row in he]
    return at_most(text, values, errors, bounds, _networks(glorot), [f"width {row['width']}" for row in glorot])


def _spread(kinds: Sequence[Kind]) -> Claim:
    """Beyond the paper: the width of the exact law, not only its middle."""
    text = "He: one layer's squared norm ratio has the exact law's variance, 5/width"
    return _is_one(text, [step_spread(kind) for kind in kinds], kinds, COARSE, "measured over exact")


def _independent(kinds: Sequence[Kind]) -> Claim:
    """Theorem 3 takes the gradient that comes down as independent of the layer that it meets."""
    text = "He: the output error is independent of the activations, as Theorem 3 assumes (width/2 x cos^2 is 1)"
    found = [mean_and_error(kind.found["alignment"]) for kind in kinds]
    return _is_one(text, found, kinds, RESOLUTION, "measured")


def _shared_direction(kinds: Sequence[Kind]) -> Claim:
    """Beyond the paper: how much larger gradients are for that dependence."""
    measured, expected, errors = np.transpose([first_layer(kind) for kind in kinds])
    return equal_within_error(
        "He: at layer 1 the mean squared ratio exceeds 1 by what that dependence gives to first order in 1/width",
        np.stack([measured, expected], 1), np.stack([errors, np.zeros_like(errors)], 1),
        _twice([kind.networks for kind in kinds]), resolution=RESOLUTION, settings=[kind.name for kind in kinds],
        groups=("measured", "predicted"),
    )  # fmt: skip


def _is_one(
    text: str, found: Sequence[tuple[float, float]], kinds: Sequence[Kind], resolution: float, name: str
) -> Claim:
    """Whether a number is 1 in all kinds of networks."""
    values, errors = np.transpose(found)
    return equal_within_error(
        text, np.stack([values, np.ones_like(values)], 1), np.stack([errors, np.zeros_like(errors)], 1),
        _twice([kind.networks for kind in kinds]), resolution=resolution, settings=[kind.name for kind in kinds],
        groups=(name, "1"),
    )  # fmt: skip


def _networks(rows: Rows) -> list[int]:
    return [row["networks"] for row in rows]


def _twice(networks: Sequence[int]) -> list[tuple[int, int]]:
    """Networks behind a measured and behind an exact number; the latter has no error, so that its count is not used."""
    return [(count, count) for count in networks]


def _told(row: dict[str, Any]) -> str:
    return f"width {row['width']}, layer {row['layer']}"
