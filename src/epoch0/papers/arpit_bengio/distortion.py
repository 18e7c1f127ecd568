"""Arpit-Bengio Figures 2a, 2b (section 4.2): distortion of one layer against its width, and what is predicted for it.

The paper compares two things that differ: the mean over inputs of ``|1 - ||h|| / ||x|| |``, and the eps that its lemma
allows the *squared* norm with failure probability delta. Both are measured here, each beside its own exact value.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.claims import Claim, at_most, equal_within_error, exact, increasing
from epoch0.experiments.experiment import Trial
from epoch0.papers.arpit_bengio.norms_trial import NormsSpec
from epoch0.papers.catalogue import Results
from epoch0.papers.means import mean_and_error
from epoch0.theory import norms

Array = NDArray[np.float64]
Direction = Literal["forward", "backward"]

TRIAL = "epoch0.papers.arpit_bengio.norms_trial:shallow"
METHODS = ("paper", "chernoff", "exact")
NAMES = {"paper": "the paper's bound", "chernoff": "the best Chernoff bound"}
LEMMA: dict[Direction, str] = {"forward": "Lemma 2", "backward": "Lemma 5"}

RESOLUTION = 0.05
"""The mean distortion is the exact one if a relative difference of 5 % would have been seen and was not."""

COARSE = 0.1
"""The same for the share of inputs beyond the exact tolerance, a small probability."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        widths: of the one hidden layer, increasing.
        inputs: of each network.
        networks: how many at each width; each has its own inputs.
        block: networks a trial.
        delta: failure probability at which the bounds are turned into a distortion.
    """

    widths: tuple[int, ...]
    inputs: int
    networks: int
    block: int
    delta: float = 0.05


def trials(setting: Setting) -> list[Trial]:
    """Blocks of networks, the last of a width perhaps smaller; both figures are made of the same trials."""
    return [
        Trial(TRIAL, NormsSpec((width,), "he", setting.inputs, first=first, networks=min(setting.block, left)), width)
        for width in setting.widths
        for first in range(0, setting.networks, setting.block)
        for left in [setting.networks - first]
    ]


def gather(direction: Direction, setting: Setting, results: Results) -> dict[int, Array]:
    """Width -> the norm ratio of each input, shape (networks, inputs)."""
    blocks = -(-setting.networks // setting.block)
    found = {}
    for place, width in enumerate(setting.widths):
        mine = results[place * blocks : (place + 1) * blocks]
        found[width] = np.concatenate([np.asarray(one[direction], dtype=np.float64) for one in mine])
    return found


def table(direction: Direction, setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a width: both distortions measured, the tolerances predicted, and the shares of inputs beyond them."""
    rows = []
    for width, ratios in gather(direction, setting, results).items():
        off, squares = np.abs(1 - ratios), np.abs(1 - ratios**2)
        row: dict[str, Any] = {"width": width, "networks": len(ratios)}
        row["mean"], row["mean_error"] = mean_and_error(off.mean(1))
        row["exact_mean"] = expected_distortion(width)
        # of all inputs together, since a quantile of few is biased; its error is that of networks apart
        row["quantile"] = float(np.quantile(squares, 1 - setting.delta))
        row["quantile_error"] = mean_and_error(np.quantile(squares, 1 - setting.delta, axis=1))[1]
        for method in METHODS:
            eps = norms.tolerance(width, setting.delta, method=method)
            row[f"{method}_eps"] = eps
            row[f"{method}_beyond"], row[f"{method}_beyond_error"] = mean_and_error((squares > eps).mean(1))
        # how wide the lemma would have the layer be, for what the exact law gives at this width
        row["paper_width"] = norms.required_width(row["exact_eps"], setting.delta, method="paper")
        rows.append(row)
    return rows


@functools.lru_cache(maxsize=256)
def expected_distortion(width: int) -> float:
    """Mean of ``|1 - ||v|| / ||u|| |`` for one layer, exactly (He weights)."""
    return norms.NormRatio((width,)).mean_distortion


def claims(direction: Direction, setting: Setting, results: Results) -> list[Claim]:
    """Section 4.2: the lemma holds, asks for too much, and less so for small eps; and what is exact."""
    rows = table(direction, setting, results)
    count, lemma, delta = setting.networks, LEMMA[direction], setting.delta
    names = [f"width {width}" for width in setting.widths]
    share_text = f"the squared norm is off by more than the exact law's eps for {delta:g} of the inputs"
    mean, error, eps = (np.array(_column(rows, name)) for name in ("mean", "mean_error", "paper_eps"))
    decided = [at_most(f"the mean distortion is at most the eps of {lemma}", mean, error, eps, count, names)]
    for method in ("paper", "chernoff"):
        text = f"the squared norm is off by more than the eps of {NAMES[method]} for at most {delta:g} of the inputs"
        share, spread = _column(rows, f"{method}_beyond"), _column(rows, f"{method}_beyond_error")
        decided.append(at_most(text, share, spread, delta, count, names))
    share, spread = _column(rows, "exact_beyond"), _column(rows, "exact_beyond_error")
    expected = _column(rows, "exact_mean")
    return [
        *decided,
        _same(share_text, share, spread, delta, count, COARSE, names),
        _same("the mean distortion is the exact law's", mean, error, expected, count, RESOLUTION, names),
        increasing(
            f"{lemma} is tighter at smaller eps: measured over predicted grows with the width",
            mean / eps, error / eps, count, names,
        ),
        _overestimates(lemma, rows),
    ]  # fmt: skip


def _same(
    text: str, measured: Any, error: Any, value: Any, count: int, resolution: float, names: Sequence[str]
) -> Claim:
    """Measured values against exact ones."""
    means = np.transpose(np.broadcast_arrays(measured, value))
    errors = np.transpose(np.broadcast_arrays(error, np.zeros(len(measured))))
    groups = ("measured", "exact")
    return equal_within_error(text, means, errors, count, resolution=resolution, settings=names, groups=groups)


def _overestimates(lemma: str, rows: Sequence[dict[str, Any]]) -> Claim:
    """The width that the lemma asks for against the one that is enough: two computed numbers."""
    factors = [row["paper_width"] / row["width"] for row in rows]
    ordered = all(row["exact_eps"] < row["chernoff_eps"] < row["paper_eps"] for row in rows)
    told = ", ".join(f"{row['width']}: {row['paper_width']:,}" for row in rows)
    return exact(
        f"{lemma} over-estimates the width, less so at small eps, and the best Chernoff bound lies between",
        ordered and min(factors) > 1 and factors == sorted(factors, reverse=True),
        f"it asks for {factors[0]:.2f} to {factors[-1]:.2f} times the width that is enough ({told})",
        {"largest_factor": factors[0], "smallest_factor": factors[-1]},
    )


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def about(setting: Setting) -> str:
    """The setting in one line."""
    return (
        f"{setting.networks} networks a width, {setting.inputs} inputs in R^500 each, delta = {setting.delta:g}; "
        "bars: two standard errors over networks"
    )
