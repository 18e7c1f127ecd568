"""Raghu Figures 2, 5, 12, 13a-d (section 2, appendix D): what is swept, and the measurements in one table."""

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epoch0.distributions import Gaussian
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import Results
from epoch0.papers.curve import CurveSpec
from epoch0.papers.means import mean_and_error, mean_growth
from epoch0.papers.raghu.transitions_trial import BlockSpec
from epoch0.theory import growth as growth_theory
from epoch0.theory.mean_field import chi, variance_map
from epoch0.theory.raghu import raghu_lower_bound, raghu_upper_bound

Array = NDArray[np.float64]

TRIAL = "epoch0.papers.raghu.transitions_trial:block"


@dataclass(frozen=True)
class Setting:
    """One preset of a figure.

    Attributes:
        activation: "hardtanh" or "relu".
        variances: sigma_w^2.
        widths: of every layer; every width is combined with every variance.
        depth: number of layers.
        networks: how many at each combination.
        block: networks a trial.
        ends: the two points of the arc.
        counted: whether transitions are counted.
        settled: the first layer, counted from 1, from which growth is averaged: there variances have settled.
    """

    activation: str
    variances: tuple[float, ...]
    widths: tuple[int, ...]
    depth: int
    networks: int
    block: int
    ends: CurveSpec
    counted: bool
    settled: int = 3


def combinations(setting: Setting) -> list[tuple[int, float]]:
    """Width and variance of every combination, in the order of the trials."""
    return [(width, variance) for width in setting.widths for variance in setting.variances]


def trials(setting: Setting) -> list[Trial]:
    """Blocks of networks; each combination has an ensemble of its own.

    Raises:
        InputError: if the images at the ends of the arc are not there.
    """
    ends = setting.ends.with_pixels()
    made = []
    for width, variance in combinations(setting):
        told = f"{setting.activation} {width} {variance!r}"
        seed = int.from_bytes(hashlib.sha256(told.encode()).digest()[:7], "big")
        for first in range(0, setting.networks, setting.block):
            spec = BlockSpec(setting.activation, variance, width, setting.depth, ends, first,
                             min(setting.block, setting.networks - first), setting.counted)  # fmt: skip
            made.append(Trial(TRIAL, spec, seed))
    return made


def gather(setting: Setting, results: Results) -> list[tuple[int, float, dict[str, Array]]]:
    """Width, variance and measurements of every combination, networks along the first axis."""
    per_point = math.ceil(setting.networks / setting.block)
    names = ("lengths", "growth", "transitions") if setting.counted else ("lengths", "growth")
    found = []
    for place, (width, variance) in enumerate(combinations(setting)):
        blocks = results[place * per_point : (place + 1) * per_point]
        whole = {name: np.concatenate([np.asarray(b[name], dtype=np.float64) for b in blocks]) for name in names}
        found.append((width, variance, whole))
    return found


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row for each combination and layer: length, growth and transitions with their standard errors."""
    rows = []
    for width, variance, whole in gather(setting, results):
        for layer in range(1, setting.depth + 1):
            length, length_error = mean_and_error(whole["lengths"][:, layer])
            growth, growth_error, _ = mean_growth(whole["growth"][:, layer - 1 : layer])
            row = {
                "width": width, "variance": variance, "layer": layer, "networks": len(whole["lengths"]),
                "length": length, "length_error": length_error, "growth": growth, "growth_error": growth_error,
            }  # fmt: skip
            if setting.counted:
                counts = whole["transitions"][:, layer - 1]
                row["transitions"], row["transitions_error"] = mean_and_error(counts)
            known = predicted(setting.activation, width, variance)
            rows.append({**row, **known, "wide": wide_limit(setting.activation, variance, layer)[-1]})
    return rows


def growth_table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """Figure 13c, d: one row a combination, the mean growth of a layer once variances have settled, with bounds.

    Layers that nothing reaches, as where all of a narrow network saturates, have no growth and do not count.
    """
    rows = []
    for width, variance, whole in gather(setting, results):
        mean, error, alive = mean_growth(whole["growth"][:, setting.settled - 1 :])
        rows.append({
            "width": width, "variance": variance, "growth": mean, "growth_error": error,
            "networks": alive, **predicted(setting.activation, width, variance),
            "wide": float(np.mean(wide_limit(setting.activation, variance, setting.depth)[setting.settled - 1 :])),
        })  # fmt: skip
    return rows


def predicted(activation: str, width: int, variance: float) -> dict[str, float]:
    """Bounds on the growth of one layer (Theorem 3), and for ReLU the exact growth."""
    return dict(_predicted(activation, width, variance))


@functools.cache
def _predicted(activation: str, width: int, variance: float) -> dict[str, float]:
    std = math.sqrt(variance)
    small = activation == "hardtanh" and variance < 1  # the proof needs sigma_w >= 1
    found = {
        "lower": 0.0 if small else raghu_lower_bound(std, 0.0, width, activation),
        "upper": raghu_upper_bound(std, width),
    }
    if activation == "relu":
        found["exact"] = float(growth_theory.exact(Gaussian(std * width**-0.5), width))
    return found


@functools.cache
def wide_limit(activation: str, variance: float, depth: int) -> tuple[float, ...]:
    """Growth of layers 1 to ``depth`` of very wide networks: sqrt(chi) at each layer's own variance (THEORY 1.2).

    Inputs have norm sqrt(size), so the first layer's variance is sigma_w^2. That of later ones tends to q*, which at
    sigma_w^2 = 1 takes very many layers.
    """
    std, q, found = math.sqrt(variance), variance, []
    for _ in range(depth):
        found.append(math.sqrt(chi(activation, std, q)))
        q = variance_map(activation, std, 0.0, q)
    return tuple(found)


def about(setting: Setting, bars: str = "bars: two standard errors") -> str:
    """The setting in one line."""
    ends = f"two random vectors in R^{setting.ends.size}" if setting.ends.ends == "random" else (
        f"two images of {setting.ends.ends}"
    )  # fmt: skip
    return (
        f"{setting.activation}, no biases, an arc between {ends} scaled to norm sqrt(inputs); {setting.networks} "
        f"networks a point, depth {setting.depth}; {bars}"
    )


def about_length(setting: Setting) -> str:
    """Figure 5 shows means of both axes."""
    return about(setting, "means over the networks, no bars")
