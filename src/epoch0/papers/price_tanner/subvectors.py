"""Price-Tanner Figures 4a, 4b (appendix B): the expected norm of a random sub-vector, between alpha and its root.

The paper's lower bound is linear in the density alpha because of vectors with one entry; typical vectors follow the
upper bound sqrt(alpha).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from epoch0 import plots
from epoch0.experiments.claims import Claim, at_least, at_most, better_fit, equal_within_error, increasing
from epoch0.experiments.experiment import Trial
from epoch0.papers.catalogue import OldArtifact, Results
from epoch0.papers.means import mean_and_error
from epoch0.seeds import numpy_generator
from epoch0.theory import growth as theory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Direction = Literal["sphere", "one-hot"]

_AT_ONCE = 2_000_000
"""Random numbers held at once."""

TIGHT = 0.99
"""At the widths of networks the upper bound is called tight if the norm is at least this much of it."""

MODERATE = 10
"""The paper says that the norm behaves like sqrt(alpha) "for even moderately large k": from here on."""


@dataclass(frozen=True)
class Setting:
    """One preset.

    Attributes:
        direction: ``"sphere"``, a vector drawn uniformly from the unit sphere, or ``"one-hot"``.
        sizes: numbers of entries k of the vector, increasing.
        densities: probabilities alpha that an entry is kept, increasing up to 1.
        vectors: how many vectors, each with its own sub-vectors.
        draws: sub-vectors of each vector.
    """

    direction: Direction
    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    vectors: int
    draws: int


def norms(spec: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Mean norm of the sub-vectors of several unit vectors.

    >>> spec = {"direction": "sphere", "size": 100, "densities": [0.5, 1.0], "vectors": 20, "draws": 1000}
    >>> norms(spec, seed=0)["norms"].shape                      # (vectors, densities)
    (20, 2)

    All densities share the random numbers: entry i is kept at density alpha if its number is below alpha.

    Args:
        spec: ``direction``, ``size``, ``densities``, ``vectors`` and ``draws`` as in :class:`Setting`.
        seed: names the vectors and the sub-vectors.

    Source: Price & Tanner, appendix B.
    """
    size, draws = spec["size"], spec["draws"]
    found = np.empty((spec["vectors"], len(spec["densities"])))
    for vector, row in enumerate(found):
        source = numpy_generator(seed, vector)
        squares = source.standard_normal(size) ** 2 if spec["direction"] == "sphere" else np.eye(1, size)[0]
        squares /= squares.sum()
        total, left = np.zeros(len(row)), draws
        while left:
            count = min(left, max(1, _AT_ONCE // size))
            coins = source.random((count, size))
            total += [np.sqrt((coins < density) @ squares).sum() for density in spec["densities"]]
            left -= count
        row[:] = total / draws
    return {"norms": found}


def trials(setting: Setting) -> list[Trial]:
    """One trial a size."""
    told = {"direction": setting.direction, "densities": setting.densities, "vectors": setting.vectors}
    return [
        Trial("epoch0.papers.price_tanner.subvectors:norms", {**told, "size": size, "draws": setting.draws}, seed=size)
        for size in setting.sizes
    ]


def table(setting: Setting, results: Results) -> list[dict[str, Any]]:
    """One row a size and density: the mean norm, its standard error over vectors, both bounds and the exact value."""
    rows = []
    for size, result in zip(setting.sizes, results, strict=True):
        for place, density in enumerate(setting.densities):
            mean, error = mean_and_error(np.asarray(result["norms"])[:, place])
            rows.append(
                {
                    "direction": setting.direction,
                    "size": size,
                    "density": density,
                    "norm": mean,
                    "norm_error": error,
                    "vectors": setting.vectors,
                    "lower": density,
                    "exact": theory.expected_subvector_norm(setting.direction, density, size),
                    "upper": math.sqrt(density),
                }
            )
    return rows


def claims(setting: Setting, results: Results) -> list[Claim]:
    """Appendix B: both bounds hold, and which of the two is tight."""
    rows = table(setting, results)
    norm, error, lower, exact, upper = (
        np.array([row[name] for row in rows]) for name in ("norm", "norm_error", "lower", "exact", "upper")
    )
    names = [f"k = {row['size']}, density {row['density']:g}" for row in rows]
    count = setting.vectors
    sphere = setting.direction == "sphere"
    text = "the norm is its exact expectation" if sphere else "the lower bound is attained: the norm is the density"
    decided = [
        at_most("the norm is at most sqrt(density)", norm, error, upper, count, names),
        equal_within_error(
            text, np.stack([norm, exact], 1), np.stack([error, np.zeros_like(error)], 1), count, settings=names,
            groups=("measured", "exact"),
        ),
    ]  # fmt: skip
    if sphere:
        decided.insert(0, at_least("the norm is at least the density (Lemma 7)", norm, error, lower, count, names))
    shapes = ("sqrt(density)", "density") if sphere else ("density", "sqrt(density)")
    for size in setting.sizes:
        if sphere and size < MODERATE:
            continue
        # at density 1 both bounds meet, so that it says nothing
        mine = [row for row in rows if row["size"] == size and row["density"] < 1]
        by_name = {shape: [row["upper" if shape.startswith("sqrt") else "lower"] for row in mine] for shape in shapes}
        decided.append(
            better_fit(
                f"the norm has the shape {shapes[0]}, not {shapes[1]} (k = {size})",
                [row["norm"] for row in mine], [row["norm_error"] for row in mine],
                by_name[shapes[0]], by_name[shapes[1]], count, names=shapes,
            )
        )  # fmt: skip
    return [*decided, *(_tightness(setting, results) if sphere else _no_size(setting, rows))]


def _tightness(setting: Setting, results: Results) -> list[Claim]:
    """For vectors on the sphere: the upper bound is approached as k grows."""
    densities = np.array(setting.densities)
    part = densities < 1
    shares = [np.asarray(result["norms"])[:, part] / np.sqrt(densities[part]) for result in results]
    means, errors = np.transpose([mean_and_error(share.mean(1)) for share in shares])
    names = [f"k = {size}" for size in setting.sizes]
    largest, spread = mean_and_error(shares[-1])
    where = [f"density {density:g}" for density in densities[part]]
    text = f"at k = {setting.sizes[-1]} the upper bound is tight: the norm is at least {TIGHT:g} of it"
    return [
        increasing("the norm approaches the upper bound as k grows", means, errors, setting.vectors, names),
        at_least(text, largest, spread, TIGHT, setting.vectors, where),
    ]


def _no_size(setting: Setting, rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """For one-hot vectors: the lower bound is attained, whatever k is."""
    values = [[row for row in rows if row["density"] == density] for density in setting.densities]
    norm, error = (np.array([[row[name] for row in group] for group in values]) for name in ("norm", "norm_error"))
    return [
        equal_within_error(
            "the norm does not depend on k", norm, error, setting.vectors,
            settings=[f"density {density:g}" for density in setting.densities],
            groups=[f"k = {size}" for size in setting.sizes],
        )
    ]  # fmt: skip


def draw(setting: Setting, results: Results) -> "Figure":
    """The norm against the density, one hollow marker a size, so that none hides another, between its two bounds."""
    rows = table(setting, results)
    picture, axes = plots.figure(6.0, 4.4)
    fine = np.linspace(setting.densities[0], 1, 200)
    axes.plot(fine, np.sqrt(fine), "--", color=plots.BOUND, label=r"upper bound $\sqrt{\alpha}$")
    axes.plot(fine, fine, ":", color=plots.BOUND, label=r"lower bound $\alpha$ (Lemma 7)")
    for index, size in enumerate(setting.sizes):
        mine = [row for row in rows if row["size"] == size]
        x = [row["density"] for row in mine]
        exact = [theory.expected_subvector_norm(setting.direction, float(density), size) for density in fine]
        if setting.direction == "sphere":
            plots.curve(axes, list(fine), exact, index, linewidth=1.0)
        plots.points(
            axes, x, [row["norm"] for row in mine], [row["norm_error"] for row in mine], index, f"k = {size}",
            markerfacecolor="none", markersize=3.0 + 2.5 * index,
        )  # fmt: skip
    axes.set(xlabel=r"density $\alpha$ (probability that an entry is kept)", ylabel=r"$E\,\|u_J\|\,/\,\|u\|$")
    axes.set(xlim=(0, 1.03), ylim=(0, 1.05))
    axes.legend(loc="lower right")
    return picture


def about(setting: Setting) -> str:
    """The setting in one line."""
    kind = "uniform on the sphere" if setting.direction == "sphere" else "with one entry"
    return f"{setting.vectors} unit vectors {kind}, {setting.draws:,} sub-vectors each; bars: two standard errors"


_DENSITIES = tuple(tenth / 10 for tenth in range(1, 11))
_SIZES = (3, 10, 100, 784)
"""The paper prints none; 784 is the width of its networks."""


def _presets(direction: Direction) -> dict[str, Setting]:
    return {
        "quick": Setting(direction, _SIZES, _DENSITIES, vectors=100, draws=1000),
        "paper": Setting(direction, _SIZES, _DENSITIES, vectors=100, draws=10_000),
    }


_artifact = partial(OldArtifact, trials=trials, table=table, claims=claims, draw=draw, about=about)
ARTIFACTS: tuple[OldArtifact, ...] = (
    _artifact(
        "price-tanner/fig4a",
        "Norm of a random sub-vector of a vector on the sphere",
        "Price & Tanner, Figure 4a, appendix B",
        _presets("sphere"),
    ),
    _artifact(
        "price-tanner/fig4b",
        "Norm of a random sub-vector of a vector with one entry",
        "Price & Tanner, Figure 4b, appendix B",
        _presets("one-hot"),
    ),
)
"""Figures 4a and 4b."""
